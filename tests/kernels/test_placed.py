"""Conversions that depend on where an element is: words by row-major index in any layout, and the first misfit."""

from __future__ import annotations

from typing import Any

import launch
import numpy as np
import pytest
import rows
from formats import by

from samebits import dtypes, philox
from samebits.codegen.isa import Isa
from samebits.conversions import Conversion
from samebits.dtypes import DType
from samebits.kernels import placed
from samebits.kernels.functions import exact
from samebits.kernels.placed import Placed

Array = np.ndarray[Any, Any]
EVERY_ROW = pytest.mark.parametrize("row", rows.ALL_ROWS, ids=lambda row: row.name)
SEED = (3 << 40) + 12345
STOCHASTIC, CHECKED = Conversion("stochastic"), Conversion(overflow="error")
E4M3 = dtypes.float8_e4m3fn


def drawn(
    x: Array, target: DType, row: Isa, out: Array | None = None, how: Conversion = STOCHASTIC, threads: int = 1
) -> Array:
    """x by stochastic rounding, by the kernel."""
    out = np.empty(x.shape, target.numpy) if out is None else out
    plan = placed.plan(Placed(dtypes.of(x.dtype), target, how), *launch.layouts(x, out), row, threads)
    launch.run_plan(plan, [x, np.array(SEED, np.uint64), out])
    return out


def first_misfit(x: Array, target: DType, row: Isa, how: Conversion = CHECKED) -> int | None:
    """The index that the kernel refuses."""
    status, out = np.zeros(2, np.int64), np.empty(x.shape, target.numpy)
    plan = placed.plan(Placed(dtypes.of(x.dtype), target, how), *launch.layouts(x, out), row, 2)
    operands = [x, status, out] if how.rounding != "stochastic" else [x, np.array(SEED, np.uint64), status, out]
    launch.run_plan(plan, operands)
    return int(status[1]) if status[0] else None


def meant(x: Array, target: DType) -> Array:
    """By NumPy."""
    words = philox.words(SEED, np.arange(x.size)).reshape(x.shape)
    with np.errstate(all="ignore"):
        return exact.cast(target, x, STOCHASTIC, words)


@EVERY_ROW
def test_words_belong_to_indices_in_any_layout(row: Isa) -> None:
    size = 1 if row.compiled else 5
    for shape in ((0,), (), (1,), (3, 0), (7,), (2077 // size,), (5, 131), (3, 4, 37)):
        x = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
        due = meant(x, E4M3)
        launch.assert_bits(drawn(x, E4M3, row), due, (row.name, shape))
        if x.ndim < 2:
            continue
        turned = np.empty(shape[::-1], E4M3.numpy).T
        launch.assert_bits(drawn(np.asfortranarray(x), E4M3, row, turned), due, (row.name, shape, "turned"))
        apart = np.empty((2 * shape[0], *shape[1:]), E4M3.numpy)[::2]
        launch.assert_bits(drawn(x[::-1][::-1], E4M3, row, apart), due, (row.name, shape, "apart"))
        backwards = np.empty(shape, E4M3.numpy)[::-1]
        launch.assert_bits(drawn(x, E4M3, row, backwards), due, (row.name, shape, "backwards"))


def test_threads_and_blocks_draw_the_same() -> None:
    row = rows.COMPILED_ROWS[0]
    x = np.random.default_rng(2).standard_normal((1, 70001)).astype(np.float32)
    launch.assert_bits(drawn(x, E4M3, row, threads=3), meant(x, E4M3), "threads")


@EVERY_ROW
@pytest.mark.parametrize(
    "target", [E4M3, dtypes.float4_e2m1fn, dtypes.float8_e8m0fnu, dtypes.bfloat16, dtypes.int8, dtypes.float32]
)
def test_every_source_draws_by_its_own_fraction(row: Isa, target: DType) -> None:
    random = np.random.default_rng(8)
    wide = random.standard_normal(700) * 2.0 ** random.integers(-20, 12, 700)
    wide = np.concatenate([wide, [0.0, -0.0, np.inf, -np.inf, np.nan, 2.0**-140, 1e30, -460.0, 470.0, 6.5, 2.0**-33]])
    with np.errstate(all="ignore"):
        sources: list[Array] = [wide, wide.astype(np.float32), wide.astype(np.float16)]
    whole = random.integers(-(1 << 62), 1 << 62, 300) >> random.integers(0, 62, 300)
    sources += [whole, whole.astype(np.int32)]
    for x in sources if row.compiled else sources[:1]:
        found = drawn(x, target, row)
        launch.assert_bits(found, meant(x, target), (row.name, target, x.dtype))
        if x.dtype.kind == "f" and target.is_float and target.width_bits < 32:
            words = philox.words(SEED, np.arange(x.size))
            due = by(x.astype(np.float64), target, STOCHASTIC, words)
            launch.assert_bits(found, due.view(target.numpy), (row.name, target, x.dtype))


def test_what_is_drawn_is_right_on_average() -> None:
    x = np.full(1 << 16, 1 + 0.125 * 0.3, np.float32)
    found = drawn(x, E4M3, rows.COMPILED_ROWS[-1]).astype(np.float32)
    assert set(found.tolist()) == {1.0, 1.125}
    share = float((found > 1).mean())
    assert abs(share - 0.3) < 5 * np.sqrt(0.3 * 0.7 / x.size)


@EVERY_ROW
def test_the_first_misfit_is_named(row: Isa) -> None:
    x = np.random.default_rng(3).standard_normal((41, 53) if row.compiled else (5, 53)).astype(np.float32)
    assert first_misfit(x, E4M3, row) is None
    x[4, 50] = 465.0
    x[3, 52] = 464.1
    x[4, 1] = -np.inf
    assert first_misfit(x, E4M3, row) == 3 * 53 + 52
    assert first_misfit(np.asfortranarray(x), E4M3, row) == 3 * 53 + 52
    assert first_misfit(x[::-1], E4M3, row) == (len(x) - 5) * 53 + 1
    x[3, 52], x[4, 50] = 464.0, np.nan
    assert first_misfit(x, E4M3, row) == 4 * 53 + 1
    assert first_misfit(x, dtypes.float8_e5m2, row) is None
    assert first_misfit(x, dtypes.float4_e2m1fn, row) == 3 * 53 + 52


@EVERY_ROW
def test_misfits_are_those_of_the_reference(row: Isa) -> None:
    x = np.array(
        [-np.inf, np.inf, np.nan, 464.0, 465.0, -500.0, 0.0, -1.0, 7.0, 7.5, 8.0, -8.5, -9.0, 2.0**200, 1.5 * 2.0**127]
    )
    hows = (
        CHECKED,
        Conversion("toward_zero", "error"),
        Conversion("up", "error", nan=0),
        Conversion(overflow="error", inf="saturate"),
        Conversion("stochastic", "error"),
    )
    for target in (E4M3, dtypes.float8_e8m0fnu, dtypes.float6_e3m2fn, dtypes.int4, dtypes.uint8, dtypes.float32):
        for how in hows if row.compiled else hows[:2]:
            words = philox.words(SEED, np.zeros(1))
            for value in x:
                with np.errstate(all="ignore"):
                    due = bool(exact.misfits(target, np.array([value]), how, words)[0])
                assert (first_misfit(np.array([value]), target, row, how) == 0) is due, (row.name, target, how, value)


def test_integers_that_do_not_fit() -> None:
    row = rows.COMPILED_ROWS[-1]
    assert first_misfit(np.array([0, 127, -128, 128]), dtypes.int8, row) == 3
    assert first_misfit(np.array([0, 255, -1]), dtypes.uint8, row) == 2
    assert first_misfit(np.array([2**63], np.uint64), dtypes.int64, row) == 0
    assert first_misfit(np.array([2**62]), dtypes.float64, row) is None
    assert first_misfit(np.array([65504, 65520]), dtypes.float16, row) == 1
