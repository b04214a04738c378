"""`convolve` of integers: exact sums, zero points and requantisation, whichever way windows are packed."""

from __future__ import annotations

import functools
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import aarch64
import guard
import launch
import numpy as np
import pytest
import rows
import torch

from samebits import dtypes
from samebits.codegen import isa as isas
from samebits.codegen import permission
from samebits.codegen.isa import Isa
from samebits.errors import DTypeError, ShapeError
from samebits.frozen import replace
from samebits.kernels.gemm.machine import DEFAULT
from samebits.native import table
from samebits.operations import convolution_plans
from samebits.operations.convolution import Convolution
from samebits.operations.operation import Known, PlanTarget
from samebits.program.builder import ProgramBuilder
from samebits.program.graph import Program
from samebits.runtime import cpu, reference

Array = np.ndarray[Any, np.dtype[Any]]
I8, U8 = np.int8, np.uint8

# By name: image [batch, channels, ...], weights [filters, channels of a group, ...], strides, dilations, padding before
# and behind, groups.
CASES: dict[str, tuple[Any, ...]] = {
    "padded": ((2, 8, 9, 7), (5, 8, 3, 3), (1, 1), (1, 1), (1, 1), (1, 1), 1),
    "channels that fill no word": ((1, 7, 9, 11), (9, 7, 3, 2), (1, 1), (1, 1), (1, 0), (0, 1), 1),
    "fewer channels than a word": ((2, 3, 13, 12), (8, 3, 5, 5), (1, 1), (1, 1), (2, 2), (2, 2), 1),
    "phases": ((1, 12, 13, 14), (20, 12, 3, 3), (2, 2), (1, 1), (1, 1), (1, 1), 1),
    "phases of three": ((1, 6, 17, 40), (7, 6, 4, 5), (2, 3), (1, 1), (2, 1), (1, 3), 1),
    "apart": ((1, 8, 12, 13), (6, 8, 3, 2), (1, 1), (2, 3), (2, 1), (2, 1), 1),
    "apart in steps": ((1, 8, 12, 13), (6, 8, 3, 2), (1, 2), (2, 3), (2, 1), (2, 1), 1),
    "groups of whole words": ((2, 16, 9, 13), (12, 8, 3, 3), (1, 2), (1, 1), (1, 1), (0, 1), 2),
    "groups that fill no word": ((1, 15, 7, 9), (21, 5, 3, 3), (1, 1), (1, 1), (1, 1), (1, 1), 3),
    "depth": ((1, 6, 9, 10), (12, 1, 3, 3), (1, 2), (1, 1), (1, 1), (1, 1), 6),
    "depth in steps of two": ((2, 6, 15, 75), (6, 1, 3, 5), (2, 2), (1, 1), (1, 2), (1, 1), 6),
    "depth of a long line": ((2, 5, 300), (10, 1, 7), (1,), (2,), (3,), (9,), 5),
    "depth of a volume": ((1, 3, 4, 6, 37), (3, 1, 2, 3, 2), (1, 2, 3), (1, 1, 1), (1, 1, 0), (0, 1, 1), 3),
    "two filters of channels": ((2, 9, 8, 40), (4, 9, 3, 2), (1, 1), (1, 2), (1, 1), (1, 1), 1),
    "two filters of long sums": ((1, 40, 7, 9), (2, 40, 3, 3), (1, 1), (1, 1), (1, 1), (1, 1), 1),
    "one by one": ((2, 9, 6, 7), (10, 9, 1, 1), (1, 1), (1, 1), (0, 0), (0, 0), 1),
    "one by one in steps": ((1, 9, 16, 17), (10, 9, 1, 1), (2, 2), (1, 1), (0, 0), (0, 0), 1),
    "few windows": ((2, 9, 5, 4), (10, 9, 3, 3), (1, 1), (1, 1), (0, 0), (0, 0), 1),
    "one window": ((3, 9, 3, 3), (10, 9, 3, 3), (1, 1), (1, 1), (0, 0), (0, 0), 1),
    "long sums": ((1, 150, 6, 9), (6, 150, 3, 3), (1, 1), (1, 1), (1, 1), (1, 1), 1),
    "a line": ((2, 6, 100), (9, 6, 7), (2,), (1,), (3,), (2,), 1),
    "a volume": ((1, 5, 5, 6, 7), (6, 5, 2, 3, 2), (1, 2, 1), (1, 1, 1), (1, 1, 0), (0, 1, 1), 1),
    "one window of one filter": ((3, 6, 3, 2), (6, 1, 3, 2), (1, 1), (1, 1), (0, 0), (0, 0), 6),
    "no channels": ((1, 0, 8, 9), (3, 0, 3, 3), (1, 1), (1, 1), (1, 1), (1, 1), 1),
    "no windows": ((1, 4, 0, 9), (3, 4, 3, 3), (1, 1), (1, 1), (1, 1), (1, 1), 1),
    "nothing in the batch": ((0, 4, 8, 9), (6, 4, 3, 3), (1, 1), (1, 1), (1, 1), (1, 1), 1),
}
KINDS = [(U8, I8), (I8, I8), (U8, U8), (I8, U8)]
OF_SUMS = ("b_zero_point", "a_zero_point")


def drawn(kind: Any, *shape: int) -> Array:
    """Any integers, those at the ends among them."""
    limits, random = np.iinfo(kind), np.random.default_rng([len(shape), *shape])
    x = random.integers(limits.min, limits.max + 1, shape)
    x.flat[::7], x.flat[3::11] = limits.max, limits.min
    return x.astype(kind)


def made(name: str, named: tuple[str, ...] = (), out: Any = None) -> Convolution:
    """The attributes of a case, with further operands."""
    x, w, strides, dilations, before, behind, groups = CASES[name]
    axes = zip(x[2:], w[2:], strides, dilations, before, behind, strict=True)
    windows = tuple((n + low + high - (k - 1) * apart - 1) // step + 1 for n, k, step, apart, low, high in axes)
    out_dtype = None if out is None else dtypes.of(out)
    return Convolution(strides, dilations, before, windows, groups, names=("x", "w", *named), out_dtype=out_dtype)


def operands(name: str, kinds: Any, named: tuple[str, ...], out: Any = None) -> dict[str, Array]:
    """What a case is given."""
    x, w = (drawn(kind, *shape) for kind, shape in zip(kinds, CASES[name][:2], strict=True))
    filters = len(w)
    k = max(1, w[0].size)
    every = {
        "b_zero_point": np.array(113, kinds[0]),
        "a_zero_point": drawn(kinds[1], filters),
        "a_scale": np.random.default_rng(3).uniform(0.001, 0.02, filters).astype(np.float32),
        "b_scale": np.array(0.031, np.float32),
        "out_scale": np.array(0.004 * k**0.5, np.float32),
        "out_zero_point": np.array(12, out or U8),
        "bias": np.random.default_rng(4).integers(-1 << 20, 1 << 20, filters).astype(np.int32),
    }
    every["bias"][:2] = -(1 << 31), (1 << 31) - 1  # with which sums leave int32
    return {"x": x, "w": w} | {key: every[key] for key in named}


def program(attributes: Convolution, given: dict[str, Array], kept: bool) -> Program:
    """The convolution of operands, of which the weights may be a constant."""
    b = ProgramBuilder("convolve")
    values = [
        b.constant(x) if kept and key == "w" else b.input(key, dtypes.of(x.dtype), x.shape) for key, x in given.items()
    ]
    return b.build({"y": b.add("convolve", values, attributes)[0]})


def sums(name: str, given: dict[str, Array]) -> Array:
    """The exact sums without zero points, by torch in float64, which holds them."""
    _, w_shape, strides, dilations, before, behind, groups = CASES[name]
    w = given["w"].astype(np.float64)
    if "a_zero_point" in given:
        w = w - given["a_zero_point"].astype(float).reshape(-1, *[1] * (w.ndim - 1))
    x = given["x"].astype(np.float64) - float(given.get("b_zero_point", 0))
    around = [(0, 0), (0, 0), *zip(before, behind, strict=True)]
    x = np.pad(x, around)
    if 0 in w_shape or 0 in x.shape or 0 in made(name).out:
        return np.zeros((len(x), len(w), *made(name).out), np.int64)
    convolve = {1: torch.nn.functional.conv1d, 2: torch.nn.functional.conv2d, 3: torch.nn.functional.conv3d}[x.ndim - 2]
    found = convolve(torch.from_numpy(x), torch.from_numpy(w), stride=strides, dilation=dilations, groups=groups)
    area = tuple(slice(0, n) for n in made(name).out)
    return found.numpy()[(slice(None), slice(None), *area)].astype(np.int64)


def requantised(total: Array, given: dict[str, Array]) -> Array:
    """Each sum and bias in fractions, rounded once."""
    filters = total.shape[1]
    limits, zero = np.iinfo(given["out_zero_point"].dtype), int(given["out_zero_point"])
    bias = given.get("bias", np.zeros(filters, np.int64))
    over = Fraction(float(given["b_scale"])) / Fraction(float(given["out_scale"]))
    found = np.empty(total.shape, limits.dtype)
    for at in np.ndindex(total.shape):
        quotient = (int(total[at]) + int(bias[at[1]])) * Fraction(float(given["a_scale"][at[1]])) * over
        found[at] = min(max(round(quotient) + zero, limits.min), limits.max)
    return found


@functools.cache
def due(name: str, kinds: Any, named: tuple[str, ...], out: Any = None) -> Array:
    """What the outsider says, and the reference too."""
    given = operands(name, kinds, named, out)
    total = sums(name, given)
    result = total.astype(np.int32) if out is None else requantised(total, given)
    of = program(made(name, named, out), given, kept=False)
    assert reference.run(of, given)["y"].tobytes() == result.tobytes()
    return result


# Weights that are constants, which are grouped for the image's words where an instruction multiplies these, and others.
WAYS = [
    *[(name, KINDS[number % 2], True) for number, name in enumerate(CASES)],
    *[(name, KINDS[(number + 2) % 4], False) for number, name in enumerate(CASES)],
]
CHAINED = [name for name in CASES if name.startswith(("depth", "two filters of channels"))]
BEST = max(rows.COMPILED_ROWS, key=lambda row: (row.lanes, len(row.instructions)))


@rows.in_turn("isa, way", WAYS, 2, always=[BEST], among=rows.COMPILED_ROWS)
def test_sums_are_exact(isa: Isa, way: Any) -> None:
    name, kinds, kept = way
    # Zero points of weights leave these as they are.
    for named in ((), OF_SUMS[:1]) if kept else (OF_SUMS,):
        given = operands(name, kinds, named)
        session = cpu.prepare(program(made(name, named), given, kept), isa=isa, threads=2)
        found = session.run({key: x for key, x in given.items() if not (kept and key == "w")})["y"]
        launch.assert_bits(found, due(name, kinds, named), (named, isa.name))


@pytest.mark.parametrize("isa", [row for row in rows.ALL_ROWS if not row.compiled], ids=lambda row: row.name)
@pytest.mark.parametrize("name", ["fewer channels than a word", "one by one", "depth", "one window of one filter"])
def test_the_text_means_the_same(isa: Isa, name: str) -> None:
    given = operands(name, KINDS[1], OF_SUMS)
    session = cpu.prepare(program(made(name, OF_SUMS), given, kept=False), isa=isa, threads=1)
    launch.assert_bits(session.run(given)["y"], due(name, KINDS[1], OF_SUMS))


REQUANTISED = ("b_scale", "b_zero_point", "a_scale", "out_scale", "out_zero_point", "bias")


@rows.in_turn("isa, way", WAYS, 1, always=[BEST], among=rows.COMPILED_ROWS)
def test_results_are_rounded_once(isa: Isa, way: Any) -> None:
    name, kinds, kept = way
    ways = ((REQUANTISED, U8), (REQUANTISED[:-1], I8)) if kept else (((*REQUANTISED, "a_zero_point"), I8),)
    for named, out in ways:
        given = operands(name, kinds, named, out)
        session = cpu.prepare(program(made(name, named, out), given, kept), isa=isa, threads=1)
        found = session.run({key: x for key, x in given.items() if not (kept and key == "w")})["y"]
        launch.assert_bits(found, due(name, kinds, named, out), (named, isa.name))


@rows.in_turn(
    "isa, name",
    [*CHAINED, "padded", "one by one", "one window", "long sums"],
    1,
    always=[BEST],
    among=rows.COMPILED_ROWS,
)
def test_a_bias_that_fits_is_added_in_int32(isa: Isa, name: str) -> None:
    for number, out in enumerate((U8, I8)):
        given = operands(name, KINDS[number], REQUANTISED, out)
        given["bias"] //= 1 << 12
        due = requantised(sums(name, given), given)
        for fits in (True, False):
            attributes = replace(made(name, REQUANTISED, out), bias_fits=fits)
            found = cpu.prepare(program(attributes, given, kept=False), isa=isa, threads=1).run(given)["y"]
            launch.assert_bits(found, due, (fits, isa.name))


@pytest.mark.parametrize("name", ["padded", "phases", "channels that fill no word", "a volume", "a line"])
@pytest.mark.parametrize("kept", [True, False])
def test_large_images_are_copied_a_part_at_a_time(name: str, kept: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(convolution_plans, "_NEAR", 128)
    monkeypatch.setattr(convolution_plans, "_LEAST", 12)
    monkeypatch.setattr(convolution_plans, "_COLUMNS", 12)
    given = operands(name, KINDS[0], OF_SUMS[:1])
    session = cpu.prepare(program(made(name, OF_SUMS[:1]), given, kept), isa=BEST, threads=2)
    given_now = {key: x for key, x in given.items() if not (kept and key == "w")}
    launch.assert_bits(session.run(given_now)["y"], due(name, KINDS[0], OF_SUMS[:1]))
    ((_, plan),) = session.planned(given_now)
    assert "rows of" in dict(plan.facts)["by"]


def test_few_filters_are_chains_of_numbers_where_these_hold_every_sum() -> None:
    """Of two factors of at most 255 float32 holds the sums of 258 products, and not of all 259."""
    by = {"two filters of long sums": "windows", "one window of one filter": "elements of one window"}
    for name in (*CHAINED, *by):
        given = operands(name, KINDS[0], REQUANTISED)
        session = cpu.prepare(program(made(name, REQUANTISED, U8), given, kept=True), isa=BEST)
        ((_, plan),) = session.planned({key: x for key, x in given.items() if key != "w"})
        assert dict(plan.facts)["by"].startswith(by.get(name, "chains of elements")), name
        assert "order" not in dict(plan.facts)
    for channels, places, by_chains in ((43, 6, True), (37, 7, False)):
        both = {"x": np.full((1, channels, 40), 255, U8), "w": np.full((1, channels, places), 255, U8)}
        both["w"][0, 0, 0], both["x"][0, 1, ::16] = 254, 0
        attributes = Convolution((1,), (1,), (0,), (41 - places,))
        session = cpu.prepare(program(attributes, both, kept=False), isa=BEST, threads=1)
        ((_, plan),) = session.planned(both)
        assert (dict(plan.facts)["by"] == "chains of elements") == by_chains
        windows = np.lib.stride_tricks.sliding_window_view(both["x"].astype(int), places, 2)
        due = np.einsum("bcok,fck->bfo", windows, both["w"].astype(int))
        assert due.max() > (1 << 24) - 66_000
        launch.assert_bits(session.run(both)["y"], due.astype(np.int32))


@pytest.mark.parametrize("isa", rows.COMPILED_ROWS, ids=lambda row: row.name)
@pytest.mark.parametrize("name", [*CHAINED, "one window of one filter"])
def test_chains_touch_nothing_beside_their_operands_and_scratch(
    isa: Isa, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All that a thread is given lies beside forbidden pages, and scratch holds NaN before it is written."""
    named = (*REQUANTISED, "a_zero_point")
    given, result = operands(name, KINDS[3], named, I8), due(name, KINDS[3], named, I8)
    session = cpu.prepare(program(made(name, named, I8), given, kept=False), isa=isa, threads=1)
    ((_, plan),) = session.planned(given)

    def take(size_bytes: int) -> Any:
        block = guard.array(np.full(size_bytes, 0xFF, np.uint8), at_start=at_start)
        return SimpleNamespace(address=block.ctypes.data, block=block)

    monkeypatch.setattr(table, "scratch", SimpleNamespace(take=take, give=lambda block: None))
    for at_start in (False, True):
        out = guard.empty(result.shape, I8, at_start=at_start)
        launch.run_plan(plan, [*[guard.array(x, at_start=at_start) for x in given.values()], out])
        launch.assert_bits(out, result)


NATIVE = [row for row in rows.COMPILED_ROWS if "dot4_uint8_int8" in row.instructions]


@pytest.mark.parametrize("isa", NATIVE, ids=lambda row: row.name)
@pytest.mark.parametrize("name", ["padded", "phases", "channels that fill no word", "groups of whole words"])
def test_windows_are_packed_from_words_and_nothing_beside_operands_is_read(isa: Isa, name: str) -> None:
    """Constant weights are grouped; image, weights and result lie beside forbidden pages."""
    named, kinds = OF_SUMS[:1], KINDS[len(name) % 2]
    given, attributes, keep = operands(name, kinds, named), made(name, named), convolution_plans.ROWS[0].keep
    assert keep is not None
    formats = [dtypes.of(x.dtype) for x in given.values()]
    kept = keep(attributes, formats, {1: Known(given["w"].shape, lambda: given["w"])}, PlanTarget(isa, 2, DEFAULT))
    assert kept is not None
    given["w"] = kept.make(np.empty)
    result, planner = due(name, kinds, named), convolution_plans.ROWS[0].plan
    assert planner is not None
    views = [(dtypes.of(x.dtype), x.shape, tuple(step // x.itemsize for step in x.strides)) for x in given.values()]
    views.append((dtypes.int32, result.shape, tuple(step // 4 for step in result.strides)))
    plan = planner(kept.attributes, tuple(views), PlanTarget(isa, 2, DEFAULT))
    assert plan.facts == (("by", "windows of a copied image of words"),)
    for at_start in (False, True):
        out = guard.empty(result.shape, np.int32, at_start=at_start)
        launch.run_plan(plan, [*[guard.array(x, at_start=at_start) for x in given.values()], out], 2)
        launch.assert_bits(out, result)


def test_weights_lie_as_they_are_where_tiles_are_multiplied(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tiles multiply panels of columns; words of the image are for vectors."""
    monkeypatch.setattr(permission, "refusal", lambda: None)
    given, keep = operands("padded", KINDS[0], ()), convolution_plans.ROWS[0].keep
    assert keep is not None
    formats, weights = [dtypes.of(x.dtype) for x in given.values()], Known(given["w"].shape, lambda: given["w"])
    kept = {
        row.name: keep(made("padded"), formats, {1: weights}, PlanTarget(row, 1, DEFAULT))
        for row in isas.ROWS
        if "dot4_uint8_int8" in row.instructions
    }
    assert {name for name, found in kept.items() if found is None} == {row.name for row in isas.ROWS if row.has_tiles}


def test_images_may_lie_in_any_way() -> None:
    for name in ("padded", "phases", "one by one"):
        given = operands(name, KINDS[0], OF_SUMS[:1])
        session = cpu.prepare(program(made(name, OF_SUMS[:1]), given, kept=True), isa=BEST, threads=1)
        wide = np.zeros((*given["x"].shape[:-1], 2 * given["x"].shape[-1]), U8)
        wide[..., ::2] = given["x"]
        last = np.moveaxis(np.ascontiguousarray(np.moveaxis(given["x"], 1, -1)), -1, 1)
        for image in (np.asfortranarray(given["x"]), wide[..., ::2], last, given["x"][..., ::-1].copy()[..., ::-1]):
            found = session.run({"x": image, "b_zero_point": given["b_zero_point"]})["y"]
            launch.assert_bits(found, due(name, KINDS[0], OF_SUMS[:1]))


@pytest.mark.parametrize("isa", rows.AARCH64_ROWS, ids=lambda row: row.name)
def test_sums_are_exact_on_aarch64(isa: Isa) -> None:
    planner = convolution_plans.ROWS[0].plan
    assert planner is not None
    for name, named, out in (
        ("groups that fill no word", OF_SUMS, None),
        ("depth in steps of two", REQUANTISED, U8),
        ("one window of one filter", (*REQUANTISED, "a_zero_point"), I8),
    ):
        given, result = operands(name, KINDS[1], named, out), due(name, KINDS[1], named, out)
        found = np.empty_like(result)
        arrays = [*given.values(), found]
        views = [(dtypes.of(x.dtype), x.shape, tuple(step // x.itemsize for step in x.strides)) for x in arrays]
        aarch64.run_plan(planner(made(name, named, out), tuple(views), PlanTarget(isa, 1, DEFAULT)), arrays)
        launch.assert_bits(found, result)


@pytest.mark.parametrize("name", ["channels that fill no word", "groups of whole words"])
def test_windows_are_packed_from_words_on_aarch64(name: str) -> None:
    isa, named, kinds = rows.row_named("neon_dot"), OF_SUMS[:1], KINDS[len(name) % 2]
    given, result = operands(name, kinds, named), due(name, kinds, named)
    keep, planner = convolution_plans.ROWS[0].keep, convolution_plans.ROWS[0].plan
    assert keep is not None
    assert planner is not None
    formats = [dtypes.of(x.dtype) for x in given.values()]
    weights = Known(given["w"].shape, lambda: given["w"])
    kept = keep(made(name, named), formats, {1: weights}, PlanTarget(isa, 1, DEFAULT))
    assert kept is not None
    found = np.empty_like(result)
    arrays = [given["x"], kept.make(np.empty), given["b_zero_point"], found]
    views = [(dtypes.of(x.dtype), x.shape, tuple(step // x.itemsize for step in x.strides)) for x in arrays]
    aarch64.run_plan(planner(kept.attributes, tuple(views), PlanTarget(isa, 1, DEFAULT)), arrays)
    launch.assert_bits(found, result)


def test_what_does_not_fit_filters_is_refused() -> None:
    given = operands("padded", KINDS[0], OF_SUMS)
    given["a_zero_point"] = given["a_zero_point"][:3]
    said = "convolve: a_zero_point shape is .*, must be one number, or one for each of 5 filters; reshape it"
    with pytest.raises(ShapeError, match=said):
        program(made("padded", OF_SUMS), given, kept=False)


def test_what_belongs_to_the_image_is_one_number() -> None:
    """Here there are as many windows as filters, so that a product would take it for one a window."""
    x, w, points = drawn(U8, 1, 4, 5, 6), drawn(I8, 12, 4, 3, 3), drawn(U8, 12)
    attributes = Convolution((1, 1), (1, 1), (0, 0), (3, 4), names=("x", "w", "b_zero_point"))
    with pytest.raises(ShapeError, match=r"convolve: b_zero_point shape is .*12.*, must be one number; reshape it"):
        program(attributes, {"x": x, "w": w, "b_zero_point": points}, kept=False)


def test_floats_take_nothing_beside_image_and_weights() -> None:
    x, w = np.zeros((1, 4, 5, 6), np.float32), np.zeros((2, 4, 3, 3), np.float32)
    attributes = Convolution((1, 1), (1, 1), (0, 0), (3, 4), names=("x", "w", "bias"))
    said = "convolve: x dtype is float32 beside bias, must be integers; let a map follow"
    with pytest.raises(DTypeError, match=said):
        program(attributes, {"x": x, "w": w, "bias": np.zeros(2, np.float32)}, kept=False)


def test_integers_and_floats_are_no_operands_of_one_convolution() -> None:
    given = operands("padded", KINDS[0], ()) | {"w": np.zeros((5, 8, 3, 3), np.float32)}
    said = "operands dtypes is uint8 and float32, must be integers, or of one format, which their product has too"
    with pytest.raises(DTypeError, match=said):
        program(made("padded"), given, kept=False)


def test_requantised_integers_are_told_apart_by_their_format() -> None:
    given = operands("padded", KINDS[0], REQUANTISED, I8)
    assert str(made("padded", REQUANTISED, I8)) != str(made("padded", REQUANTISED))
    with pytest.raises(DTypeError):
        program(replace(made("padded", REQUANTISED, U8)), given, kept=False)
