"""Row reductions: on every row, for every size, layout and thread count, the reference's bits; torch for values."""

import functools
import itertools
import math
from collections.abc import Iterable
from typing import Any

import aarch64
import guard
import launch
import numpy as np
import pytest
import rows
import torch
from formats import every_code, nearest

from samebits import dtypes
from samebits.codegen.isa import Isa
from samebits.codegen.vocabulary import KernelSpec
from samebits.errors import OptionError, PlanError, ShapeError
from samebits.kernels import composites, elementwise, long_rows, reduce
from samebits.kernels.expression import Chain, Expression
from samebits.kernels.reduce_text import ReduceText

Array = np.ndarray[Any, Any]
EVERY_ROW = pytest.mark.parametrize("row", rows.ALL_ROWS, ids=lambda row: row.name)
COMPILED = pytest.mark.parametrize("row", rows.COMPILED_ROWS, ids=lambda row: row.name)
F32 = dtypes.float32
SIZES = (0, 1, 2, 3, 7, 15, 16, 17, 31, 33, 63, 64, 65, 127, 129, 1000, 2047, 2048, 2049, 4097)


def reduction(op: str, dtype: dtypes.DType = F32) -> Expression:
    """One reduction."""
    c = Chain()
    return c.finish(c.apply(op, c.input(dtype)))


def fused() -> Expression:
    """A residual added before a layer norm, its mean as a second output, and a where after it."""
    c = Chain()
    x, residual, gamma, beta = (c.input(F32) for _ in range(4))
    scale, mask = c.input(F32), c.input(dtypes.bool_)
    total = c.apply("add", x, c.apply("mul", residual, scale))
    mean = c.apply("div", c.apply("row_sum", total), c.count())
    (normal,) = c.include(composites.layer_norm(True, True, 1e-5), total, gamma, beta)
    return c.finish(c.apply("where", mask, normal, c.constant(-0.0, F32)), mean, c.apply("row_min", normal))


def fused_operands(r: int, n: int) -> list[Array]:
    """Inputs of `fused`: two of full rows, two along the row, one a row, a mask along the row."""
    g = np.random.default_rng(n)
    x, residual = g.normal(size=(2, r, n)).astype(np.float32)
    gamma, beta = g.normal(size=(2, 1, n)).astype(np.float32)
    return [x, residual, gamma, beta, g.normal(size=(r, 1)).astype(np.float32), g.integers(0, 2, (1, n)).astype(bool)]


def run(
    e: Expression, row: Isa, inputs: list[Array], outputs: list[Array], axes: tuple[int, ...], threads: int = 1
) -> None:
    """Plan and perform."""
    plan = reduce.plan(e, launch.layouts(*inputs), launch.layouts(*outputs), axes, row, threads)
    launch.run_plan(plan, [*inputs, *outputs], threads)


def outputs_like(due: list[Array]) -> list[Array]:
    """Fresh outputs."""
    return [np.full_like(d, 99) for d in due]


def check(
    e: Expression, row: Isa, inputs: list[Array], axes: tuple[int, ...], what: object = "", threads: int = 1
) -> None:
    """Outputs have the reference's bits."""
    due = reduce.reference(e, *inputs, axes=axes)
    outputs = outputs_like(due)
    run(e, row, inputs, outputs, axes, threads)
    for got, want in zip(outputs, due, strict=True):
        launch.assert_bits(got, want, (what, row.name))


@EVERY_ROW
@pytest.mark.parametrize("op", ["row_sum", "row_prod", "row_max", "row_min"])
def test_reductions_of_every_size(row: Isa, op: str) -> None:
    for n in SIZES[op in ("row_max", "row_min") :]:
        x = np.random.default_rng(n).normal(size=(3, n)).astype(np.float32)
        check(reduction(op), row, [x], (1,), n)


@EVERY_ROW
def test_softmax_and_layer_norm_of_every_size(row: Isa) -> None:
    for n in SIZES if row.compiled else (1, 3, 65, 129, 2049):
        x = 3 * np.random.default_rng(n).normal(size=(5, n)).astype(np.float32)
        if n:
            check(composites.softmax(), row, [x], (1,), n)
        check(composites.layer_norm(False, False, 1e-5), row, [x], (-1,), n)


@EVERY_ROW
def test_quotients_by_a_sum_are_divisions(row: Isa) -> None:
    """Also where elements underflow, are 0, or the sum is too small or too large to be multiplied by its reciprocal."""
    chain = Chain()
    e = chain.apply("exp", chain.input(F32))
    share = chain.finish(chain.apply("div", e, chain.apply("row_sum", e)))
    x = np.random.default_rng(4).uniform(-68, 0, (8, 131)).astype(np.float32)
    x[:, 40] = 0
    x[1, 5:60], x[2, 7], x[3], x[4, 9], x[5, 9] = -np.inf, -69.4, x[3] - 10, 14.5, 88
    x[6, 0], x[7, 1] = np.inf, np.nan
    check(share, row, [x], (1,))


@EVERY_ROW
def test_what_stands_before_and_after_is_fused(row: Isa) -> None:
    for r, n in ((1, 1), (7, 63), (3, 64), (37, 65), (2, 2049), (40, 48)):
        check(fused(), row, fused_operands(r, n), (1,), (r, n))
    plan = reduce.plan(
        fused(),
        launch.layouts(*fused_operands(4, 64)),
        (((4, 64), (64, 1)), ((4, 1), (1, 1)), ((4, 1), (1, 1))),
        (1,),
        row,
    )
    assert len(plan.steps) == 1


@EVERY_ROW
@pytest.mark.parametrize("at_start", [False, True], ids=["end", "start"])
def test_rows_beside_guard_pages(row: Isa, at_start: bool) -> None:
    for n in (1, 2, 17, 63, 65, 100, 2049):
        inputs = [guard.array(x, at_start=at_start) for x in fused_operands(3, n)]
        due = reduce.reference(fused(), *inputs, axes=(1,))
        outputs = [guard.array(np.full_like(d, 99), at_start=at_start) for d in due]
        run(fused(), row, inputs, outputs, (1,))
        for got, want in zip(outputs, due, strict=True):
            launch.assert_bits(got, want, (n, row.name))


@EVERY_ROW
def test_special_values(row: Isa) -> None:
    nan = np.array([0xFFC12345], np.uint32).view(np.float32)[0]
    x = np.random.default_rng(1).normal(size=(9, 130)).astype(np.float32)
    x[0, 77], x[1, 3], x[2, 3], x[2, 129] = nan, np.inf, np.inf, -np.inf
    x[3], x[4], x[5], x[6] = -np.inf, -0.0, 1e-40, -np.inf
    x[6, 100], x[7], x[8] = 2, -0.0, 3e38
    x[7, 128] = 0.0
    for op in ("row_sum", "row_prod", "row_max", "row_min"):
        check(reduction(op), row, [x], (1,), op)
    check(composites.softmax(), row, [x], (1,))
    check(composites.layer_norm(False, False, 1e-5), row, [x], (1,))
    with launch.flushing():
        out = np.zeros((9, 1), np.float32)
        run(reduction("row_sum"), row, [x], [out], (1,))
    assert out[5] == np.float32(np.sum(x[5].astype(np.float64)))


def test_the_rule_by_hand() -> None:
    """Section 6 on values whose order shows: 2**24 absorbs a 1 unless another 1 joins it first."""
    big = np.zeros((1, 129), np.float32)
    big[0, 0], big[0, 64], big[0, 128] = 2.0**24, 1, 1
    assert reduce.reference(reduction("row_sum"), big, axes=(1,))[0].item() == 2.0**24
    big[0, 128], big[0, 32], big[0, 96] = 0, 1, 0
    assert reduce.reference(reduction("row_sum"), big, axes=(1,))[0].item() == 2.0**24
    big[0, 64], big[0, 96] = 0, 1
    assert reduce.reference(reduction("row_sum"), big, axes=(1,))[0].item() == 2.0**24 + 2
    zeros = np.full((2, 3), -0.0, np.float32)
    assert np.signbit(reduce.reference(reduction("row_sum"), zeros, axes=(1,))[0]).all()
    empty = reduce.reference(reduction("row_sum"), np.zeros((2, 0), np.float32), axes=(1,))[0]
    launch.assert_bits(empty, np.zeros((2, 1), np.float32))


@EVERY_ROW
def test_any_axes_and_strides(row: Isa) -> None:
    x = np.random.default_rng(4).normal(size=(6, 5, 4, 7)).astype(np.float32)
    views = [x, x[::2, ::-1], x.transpose(3, 1, 0, 2), x[:, 1:2], np.broadcast_to(x[:1], x.shape), x[..., ::3]]
    for k, view in enumerate(views):
        for axes in ((3,), (0,), (1, 2), (0, 3), (0, 1, 2, 3), (2, 1), ()):
            check(reduction("row_sum"), row, [view], axes, (k, axes))
            if row.compiled and k % 2 == 0:
                check(composites.softmax(), row, [view], axes, (k, axes))


@EVERY_ROW
def test_outputs_of_any_strides(row: Isa) -> None:
    x = np.random.default_rng(4).normal(size=(6, 5, 4)).astype(np.float32)
    for axes in ((2,), (0, 2), (1,)):
        due = reduce.reference(composites.softmax(), x, axes=axes)[0]
        whole = np.full((4, 5, 6, 2), 99, np.float32)
        run(composites.softmax(), row, [x], [whole.T[1]], axes)
        launch.assert_bits(whole.T[1], due, axes)
        assert (whole.T[0] == 99).all()


@EVERY_ROW
def test_integers_sum_exactly(row: Isa) -> None:
    for dtype in (dtypes.int32, dtypes.int64):
        x = np.random.default_rng(6).integers(-(2**31), 2**31, (4, 333)).astype(dtype.numpy)
        for op in ("row_sum", "row_max", "row_min"):
            check(reduction(op, dtype), row, [x], (1,), (dtype, op))


@COMPILED
def test_bits_ignore_threads_and_neighbours(row: Isa) -> None:
    inputs = fused_operands(301, 129)
    due = reduce.reference(fused(), *inputs, axes=(1,))
    for threads in (1, 2, 3, 7):
        outputs = outputs_like(due)
        run(fused(), row, inputs, outputs, (1,), threads)
        for got, want in zip(outputs, due, strict=True):
            launch.assert_bits(got, want, threads)
    alone = [x[17:18] if len(x) > 1 else x for x in inputs]
    outputs = [np.empty_like(d[17:18]) for d in due]
    run(fused(), row, alone, outputs, (1,))
    for got, want in zip(outputs, due, strict=True):
        launch.assert_bits(got, want[17:18])


def test_long_rows_apply_the_rule_again() -> None:
    x = np.random.default_rng(8).normal(size=(1, 2048 * 2048 + 12345)).astype(np.float32)
    (due,) = reduce.reference(reduction("row_sum"), x, axes=(0, 1))
    for row in rows.COMPILED_ROWS:
        out = np.empty((1, 1), np.float32)
        for threads in (1, 2):
            run(reduction("row_sum"), row, [x], [out], (0, 1), threads)
            launch.assert_bits(out, due, row.name)


def middle() -> Expression:
    """(mean(x * s) + t, max - min): inputs along the row, one a row, and one for all."""
    c = Chain()
    x, s, t = (c.input(F32) for _ in range(3))
    y = c.apply("mul", x, s)
    mean = c.apply("div", c.apply("row_sum", y), c.count())
    spread = c.apply("sub", c.apply("row_max", y), c.apply("row_min", y))
    return c.finish(c.apply("add", mean, t), spread, c.apply("cast", c.apply("less", t, spread), dtype=dtypes.int32))


@functools.cache
def long_operands(r: int, n: int) -> tuple[Array, Array, Array, list[Array]]:
    """Inputs of `middle`, and what is due."""
    g = np.random.default_rng(n)
    x, s, t = (g.normal(size=shape).astype(np.float32) for shape in ((r, n), (r, 1), (1, 1)))
    x[0, 5::9973] = -0.0
    return x, s, t, [np.array(np.broadcast_to(d, (r, 1))) for d in reduce.reference(middle(), x, s, t, axes=(1,))]


@COMPILED
def test_bits_ignore_how_threads_share_long_rows(row: Isa) -> None:
    for r, n in ((1, 131072), (3, 2048 * 65 + 1)):
        x, s, t, due = long_operands(r, n)
        backwards = np.zeros((r, 2 * n), np.float32)[:, ::-2]
        backwards[...] = x
        for threads, view in ((1, x), (2, x), (2, backwards), (3, x)):
            outputs = [np.full_like(d, 99) for d in due]
            plan = reduce.plan(middle(), launch.layouts(view, s, t), launch.layouts(*outputs), (1,), row, threads)
            assert (len(plan.steps) > 1) == (r < 2 * threads and threads > 1), plan
            launch.run_plan(plan, [view, s, t, *outputs], threads)
            for got, want in zip(outputs, due, strict=True):
                launch.assert_bits(got, want, (r, n, threads))


def test_long_rows_of_several_axes_are_shared() -> None:
    x = np.random.default_rng(8).normal(size=(2, 400, 401)).astype(np.float32)
    x[1, 399, 400:] = np.array([0xFFC12345], np.uint32).view(np.float32)
    for row in rows.COMPILED_ROWS:
        for axes in ((1, 2), (0, 1, 2)):
            check(reduction("row_sum"), row, [x], axes, axes, threads=3)


def about_count(op: str) -> Expression:
    """op(x / count) * count, and op(x) / count: the row's length before and after a reduction."""
    c = Chain()
    x = c.input(F32)
    before = c.apply("mul", c.apply(op, c.apply("div", x, c.count())), c.count())
    return c.finish(before, c.apply("div", c.apply(op, x), c.count()), c.count())


@pytest.mark.parametrize("op", ["row_sum", "row_max", "row_min"])
def test_a_count_is_that_of_the_row_however_threads_share_it(op: str) -> None:
    """Shorter than what is shared, as long, and a block and a bit more."""
    long = long_rows._LONG
    for n in (long - 1, long, long + 2049):
        x = np.random.default_rng(n).normal(size=(1, n)).astype(np.float32)
        wide = np.float32(n)

        def reduced(y: Array) -> Array:
            if op == "row_sum":
                return reduce.reference(reduction(op), y, axes=(1,))[0]
            return (np.max if op == "row_max" else np.min)(y, axis=1, keepdims=True)

        due = [reduced(x / wide) * wide, reduced(x) / wide, np.full((1, 1), wide)]
        for row, threads in ((rows.COMPILED_ROWS[0], 2), (rows.COMPILED_ROWS[-1], 2), (rows.COMPILED_ROWS[-1], 1)):
            outputs = [np.full((1, 1), 99, np.float32) for _ in due]
            run(about_count(op), row, [x], outputs, (1,), threads)
            for got, want in zip(outputs, due, strict=True):
                launch.assert_bits(got, want, (n, row.name, threads))


@pytest.mark.parametrize("op", ["row_sum", "row_max", "row_min"])
def test_one_nan_anywhere_makes_a_long_row_nan(op: str) -> None:
    """In the first block, at a block's end, in the last short block; the result is canonical whatever its payload."""
    n = long_rows._LONG + 2049
    for row, dtype in itertools.product((rows.COMPILED_ROWS[0], rows.COMPILED_ROWS[-1]), (F32, dtypes.float64)):
        canonical = np.full((2, 1), np.nan, dtype.numpy)
        for code, at in zip((0xFFC12345, 0x7F800001, 0x7FC00055, 0xFFFFFFFF), (0, 2047, 2048, n - 1), strict=True):
            x = np.ones((2, n), dtype.numpy)
            word = code if dtype is F32 else code >> 31 << 63 | 0x7FF << 52 | (code & 0x7FFFFF) << 29
            x.view(f"u{x.itemsize}")[0, at], x[1, (at + 4096) % n] = word, np.nan
            out = np.zeros((2, 1), dtype.numpy)
            run(reduction(op, dtype), row, [x], [out], (1,), threads=2)
            launch.assert_bits(out, canonical, (row.name, dtype.name, at))


@COMPILED
def test_an_output_may_lie_on_an_input(row: Isa) -> None:
    x = np.random.default_rng(3).normal(size=(9, 300)).astype(np.float32)
    due = reduce.reference(composites.softmax(), x, axes=(1,))[0]
    run(composites.softmax(), row, [x], [x], (1,))
    launch.assert_bits(x, due)


@EVERY_ROW
def test_outputs_of_one_a_row_are_stored_after_all_is_read(row: Isa) -> None:
    c = Chain()
    s, t = c.input(F32), c.input(F32)
    swapped = c.finish(c.apply("neg", t), c.apply("neg", s), c.apply("row_sum", s))
    for n in (1, 3):
        x, y = np.random.default_rng(n).normal(size=(2, 5, 1)).astype(np.float32)
        due = reduce.reference(swapped, x, y, axes=(1,))
        total = np.empty_like(x)
        run(swapped, row, [x, y], [x, y, total], (1,))
        for got, want in zip((x, y, total), due, strict=True):
            launch.assert_bits(got, want, (n, row.name))


@EVERY_ROW
def test_expressions_without_reductions_are_computed_too(row: Isa) -> None:
    c = Chain()
    x = c.input(F32)
    e = c.finish(c.apply("neg", x), c.apply("mul", x, c.count()))
    for shape in ((5, 1), (5, 3), (5, 0), (0, 3)):
        check(e, row, [np.random.default_rng(2).normal(size=shape).astype(np.float32)], (1,), shape)


@EVERY_ROW
def test_nothing_is_read_of_what_has_no_elements(row: Isa) -> None:
    whole = guard.array(np.zeros(0, np.float32))
    x = np.lib.stride_tricks.as_strided(whole, (3, 0), (0, 0))
    check(reduction("row_sum"), row, [x], (1,))
    c = Chain()
    v = c.input(F32)
    check(c.finish(c.apply("add", v, c.apply("row_sum", v))), row, [x], (1,))


WIDTHS = (dtypes.float64, dtypes.int8, dtypes.uint8, dtypes.int16, dtypes.uint16, dtypes.uint32, dtypes.uint64)


@rows.in_turn("row, dtype", WIDTHS, 2)
def test_dtypes_of_every_width(row: Isa, dtype: dtypes.DType) -> None:
    x = (100 * np.random.default_rng(6).normal(size=(3, 2055))).astype(np.int64).astype(dtype.numpy)
    for op in ("row_sum", "row_max", "row_min"):
        views = (x, x[:, ::-1], x[:, :70:3], x[:, :1])
        for view in views if op == "row_sum" else views[::2]:
            check(reduction(op, dtype), row, [view], (1,), (dtype, op))


@pytest.mark.parametrize("row", rows.AARCH64_ROWS, ids=lambda row: row.name)
def test_aarch64_has_the_same_bits(row: Isa) -> None:
    inputs = fused_operands(3, 131)
    due = reduce.reference(fused(), *inputs, axes=(1,))
    outputs = outputs_like(due)
    aarch64.run_plan(
        reduce.plan(fused(), launch.layouts(*inputs), launch.layouts(*outputs), (1,), row), [*inputs, *outputs]
    )
    for got, want in zip(outputs, due, strict=True):
        launch.assert_bits(got, want, row.name)
    x, soft = inputs[0], np.empty_like(inputs[0])
    aarch64.run_plan(reduce.plan(composites.softmax(), launch.layouts(x), launch.layouts(soft), (1,), row), [x, soft])
    launch.assert_bits(soft, reduce.reference(composites.softmax(), x, axes=(1,))[0], row.name)


def test_torch_agrees_within_the_bound_of_the_sum() -> None:
    """|sum error| <= (n/64 + 8 + 1) 2**-24 sum|x| on both sides; a softmax adds a few roundings of its own."""
    x = torch.tensor(np.random.default_rng(9).normal(size=(20, 777)).astype(np.float32))
    row, n = rows.COMPILED_ROWS[-1], 777
    unit = 2.0**-24
    out = np.empty((20, 1), np.float32)
    run(reduction("row_sum"), row, [x.numpy()], [out], (1,))
    bound = (n / 64 + 9) * unit * x.abs().double().sum(1)
    assert (torch.from_numpy(out)[:, 0].double() - x.double().sum(1)).abs().le(bound).all()
    soft = np.empty((20, n), np.float32)
    run(composites.softmax(), row, [x.numpy()], [soft], (1,))
    due = torch.softmax(x.double(), 1).numpy()
    # x - m errs by half an ulp of at most 8, which exp turns into a relative error.
    assert (np.abs(soft - due) <= due * (n / 64 + 9 + 2 * 8 + 4) * unit).all()
    norm = np.empty((20, n), np.float32)
    run(composites.layer_norm(False, False, 1e-5), row, [x.numpy()], [norm], (1,))
    assert np.abs(norm - torch.nn.functional.layer_norm(x.double(), (n,)).numpy()).max() < 64 * unit * 5


def test_plans_refuse_what_they_cannot_do() -> None:
    row = rows.ALL_ROWS[0]
    with pytest.raises(PlanError) as empty:
        reduce.plan(reduction("row_max"), (((2, 0), (0, 1)),), (((2, 1), (1, 1)),), (1,), row)
    assert str(empty.value) == "reduce.plan: axes extent is 0, must be at least 1; row_max of nothing has no value"
    with pytest.raises(OptionError) as axes:
        reduce.plan(reduction("row_sum"), (((2, 3), (3, 1)),), (((2, 1), (1, 1)),), (1, -1), row)
    assert str(axes.value) == "reduce.plan: axes is (1, -1), must be distinct, in [-2, 2); name each axis once"
    with pytest.raises(ShapeError) as shape:
        reduce.plan(reduction("row_sum"), (((2, 3), (3, 1)),), (((3,), (1,)),), (1,), row)
    assert str(shape.value) == (
        "reduce.plan: operands is 1 inputs, 1 outputs, output shapes [(3,)], must be 1 inputs, 1 outputs of shape "
        "(2, 3) or (2, 1); pass one layout each"
    )
    with pytest.raises(ShapeError) as apart:
        reduce.plan(fused(), (((2,), (1,)), ((3,), (1,))), (), (0,), row)
    assert str(apart.value) == (
        "reduce.plan: inputs shapes is [(2,), (3,)], must be shapes that broadcast together; reshape them"
    )


def test_an_input_without_the_first_axes_is_copied_where_its_reduced_axes_are_turned() -> None:
    c = Chain()
    e = c.finish(c.apply("row_sum", c.apply("mul", c.input(F32), c.input(F32))))
    g = np.random.default_rng(1)
    x, y = g.normal(size=(2, 3, 7, 5)).astype(np.float32), g.normal(size=(5, 7)).astype(np.float32).T
    for isa in rows.COMPILED_ROWS:
        check(e, isa, [x, y], (2, 3))
        check(e, isa, [x, np.stack([y, -y, y])], (2, 3))


@pytest.mark.parametrize("shape", [(5,), (1, 1, 5), (3, 7, 1)])
def test_an_input_that_repeats_along_some_of_the_reduced_axes_is_refused(shape: tuple[int, ...]) -> None:
    c = Chain()
    e = c.finish(c.apply("row_sum", c.apply("mul", c.input(F32), c.input(F32))))
    x, y, out = np.ones((3, 7, 5), np.float32), np.ones(shape, np.float32), np.ones((3, 1, 1), np.float32)
    with pytest.raises(ShapeError) as refused:
        reduce.plan(e, launch.layouts(x, y), launch.layouts(out), (1, 2), rows.PLANNED)
    assert str(refused.value) == (
        f"reduce.plan: an input shape is {shape}, must be (3, 7, 5) or 1 along all of axes (1, 2); "
        "write it out along them"
    )
    # Along an axis of one element nothing repeats.
    one = np.atleast_2d(y)[..., :1, :]
    reduce.plan(e, launch.layouts(x[:, :1], one), launch.layouts(out), (1, 2), rows.PLANNED)


def kernels(extents: Iterable[int]) -> set[KernelSpec]:
    """What sum, maximum, softmax and layer norm need for rows and batches of rows of these extents."""
    found, isa = set[KernelSpec](), rows.PLANNED
    for r, n in itertools.product(extents, repeat=2):
        whole, apart, along = ((r, n), (n, 1)), ((5, r, n), (2 * r * n, n, 1)), ((n,), (1,))
        for x in (whole, apart):
            y = (x[0], tuple(math.prod(x[0][a + 1 :]) for a in range(len(x[0]))))
            each, axes = ((*x[0][:-1], 1), (*(s // n for s in y[1][:-1]), 1)), (len(x[0]) - 1,)
            for e, inputs, out in (
                (reduction("row_sum"), (x,), each),
                (reduction("row_max"), (x,), each),
                (composites.softmax(), (x,), y),
                (composites.layer_norm(True, True, 1e-5), (x, along, along), y),
            ):
                found |= {step.spec for step in reduce.plan(e, inputs, (out,), axes, isa).steps if step.tasks}
    return found


def test_new_extents_need_no_new_kernels() -> None:
    """The first ones: 1, around what is long for rows that share an input, and around one and two blocks."""
    known = kernels((1, 2, 1024, 1025, 2048, 2049, 4096, 4097))
    assert len(known) <= 23
    assert kernels((3, 7, 16, 33, 64, 100, 384, 1000, 1023, 1026, 2047, 2050, 4095, 10007, 1 << 22)) <= known


def test_levels_of_the_rule_are_all_that_longer_rows_add() -> None:
    isa, found = rows.PLANNED, set[int]()
    for n in (2048, 2049, 2048**2, 2048**2 + 1, 2048**3):
        (step,) = reduce.plan(reduction("row_sum"), (((1, n), (n, 1)),), (((1, 1), (1, 1)),), (1,), isa).steps
        assert isinstance(step.spec.description, ReduceText)
        found.add(step.spec.description.levels)
        assert 2048 ** (step.spec.description.levels - 1) < n <= 2048**step.spec.description.levels
    assert found == {1, 2, 3}


@EVERY_ROW
def test_layer_norm_at_each_threshold_of_rows_and_extents(row: Isa) -> None:
    """Rows: odd ones, around a group of 16. Extents: around what is long, and around a block; weights without rows."""
    pairs = [(r, n) for n in (2, 1023, 1024, 1025, 2048, 2049) for r in (1, 2, 3)]
    for r, n in [*pairs, (15, 33), (16, 33), (17, 33), (33, 64)] if row.compiled else [(1, 2), (3, 65), (17, 3)]:
        g = np.random.default_rng(n)
        x, weight, bias = (g.normal(size=shape).astype(np.float32) for shape in ((r, n), (n,), (n,)))
        check(composites.layer_norm(True, True, 1e-5), row, [x, weight, bias], (1,), (r, n))


@EVERY_ROW
def test_rows_of_one_element_are_elementwise(row: Isa) -> None:
    x = np.array([1.5, -0.0, 0.0, np.inf, -np.inf, 1e-40, 3], np.float32)[:, None]
    x[6] = np.array([0xFFC12345], np.uint32).view(np.float32)
    for e in (reduction("row_sum"), reduction("row_max"), reduction("row_min"), composites.softmax()):
        check(e, row, [x], (1,))
        plan = reduce.plan(e, launch.layouts(x), launch.layouts(x), (1,), row)
        assert [step.spec.text for step in plan.steps] == [elementwise.text]
    c = Chain()
    v = c.input(F32)
    check(c.finish(c.apply("add", c.apply("div", c.apply("row_sum", v), c.count()), v)), row, [x], (1,))
    check(fused(), row, fused_operands(9, 1), (1,))


@COMPILED
def test_stretches_of_few_rows_and_tasks_that_begin_within_one(row: Isa) -> None:
    """Rows of 100 in stretches of 1, 2, 3 and 17, a task being 81 rows at least."""
    for stretches in (1, 2, 3, 17):
        x = np.random.default_rng(stretches).normal(size=(stretches, 41, 3, 101)).astype(np.float32)[..., :100]
        for axes, view in (((3,), x), ((3,), x.transpose(2, 1, 0, 3))):
            for threads in (1, 2):
                check(composites.softmax(), row, [view], axes, (stretches, threads), threads)
                check(reduction("row_sum"), row, [view], axes, (stretches, threads), threads)


ROW_FORMATS = (dtypes.float16, dtypes.bfloat16, dtypes.float8_e4m3fn, dtypes.float8_e5m2fnuz, dtypes.float6_e3m2fn,
               dtypes.float4_e2m1fn)  # fmt: skip


def coded_rows(dtype: dtypes.DType, r: int, n: int) -> Array:
    """Values of a format, and in the last rows NaN, infinities or whatever its largest codes are."""
    x = coded(2 * np.random.default_rng(n).normal(size=(r, n)), dtype)
    if n:
        x[-1, n // 2] = every_code(dtype)[-1]
        x[-2, -1] = coded(np.array([-np.inf]), dtype)[0]
    return x


def coded(x: Array, dtype: dtypes.DType) -> Array:
    """Numbers rounded to the nearest value of a format."""
    return nearest(np.asarray(x, np.float64), dtype).view(dtype.numpy)


def wide(x: Array) -> Array:
    """x as float32."""
    with np.errstate(invalid="ignore"):
        return np.asarray(x.astype(np.float32))


@rows.in_turn("row, dtype", ROW_FORMATS, 0)
def test_rows_of_narrow_floats_are_float32_rounded_at_the_end(row: Isa, dtype: dtypes.DType) -> None:
    pairs = [
        (composites.reduction("row_sum", dtype), composites.reduction("row_sum")),
        (composites.reduction("row_max", dtype), composites.reduction("row_max")),
        (composites.reduction("row_min", dtype), composites.reduction("row_min")),
        (composites.mean(dtype), composites.mean()),
        (composites.softmax(dtype), composites.softmax()),
        (composites.layer_norm(True, True, 1e-5, dtype), composites.layer_norm(True, True, 1e-5)),
    ]
    for n in (1, 2, 17, 65, 2049) if row.compiled else (1, 65):
        x, weights = coded_rows(dtype, 5, n), coded(np.random.default_rng(n).normal(size=(2, 1, n)), dtype)
        for e, single in pairs:
            inputs = [x, *weights][: len(e.inputs)]
            (due,) = reduce.reference(single, *map(wide, inputs), axes=(1,))
            due = coded(due, dtype)
            (meant,) = reduce.reference(e, *inputs, axes=(1,))
            found = np.zeros_like(due)
            run(e, row, inputs, [found], (1,))
            launch.assert_bits(found, due, (row.name, dtype, n, str(e)[:60]))
            launch.assert_bits(meant, due, (dtype, n))


# The first row has whole bytes, the next one less than a byte, and so on.
NARROW = [
    pytest.param(row, dtype, id=f"{row.name}-{dtype.name}", marks=pytest.mark.exhaustive if turn % 2 else ())
    for number, row in enumerate(rows.COMPILED_ROWS)
    for turn, dtype in enumerate((dtypes.bfloat16, dtypes.float4_e2m1fn), number)
]


@pytest.mark.parametrize(("row", "dtype"), NARROW)
def test_narrow_rows_in_every_lie(row: Isa, dtype: dtypes.DType) -> None:
    """Down columns, through the workspace, strided, for threads that share a row, beside guard pages."""
    base = coded(np.random.default_rng(3).normal(size=(40, 6, 96)), dtype)
    for e in (composites.reduction("row_sum", dtype), composites.softmax(dtype)):
        for axes in ((0,), (1,), (2,), (0, 2), (0, 1, 2)):
            check(e, row, [base], axes, (dtype, axes))
            check(e, row, [base[::2, :, ::3]], axes, (dtype, axes))
    long = coded(np.random.default_rng(4).normal(size=(1, 3 << 16)), dtype)
    for e in (composites.reduction("row_sum", dtype), composites.mean(dtype)):
        check(e, row, [long], (1,), dtype, threads=2)
    for n in (1, 33, 70):
        x = guard.array(coded(np.random.default_rng(n).normal(size=(3, n)), dtype), at_start=False)
        due = reduce.reference(composites.softmax(dtype), x, axes=(1,))
        out = guard.array(np.zeros_like(due[0]), at_start=False)
        run(composites.softmax(dtype), row, [x], [out], (1,))
        launch.assert_bits(out, due[0], n)


@EVERY_ROW
def test_rows_of_float64_are_summed_in_float64(row: Isa) -> None:
    for n in (0, 1, 3, 64, 129, 2049) if row.compiled else (1, 129):
        x = np.random.default_rng(n).normal(size=(4, n))
        norm = composites.layer_norm(False, False, 1e-5, dtypes.float64)
        for e in (composites.reduction("row_sum", dtypes.float64), composites.mean(dtypes.float64), norm):
            check(e, row, [x], (1,), n)
        if n:
            for op in ("row_max", "row_min"):
                check(composites.reduction(op, dtypes.float64), row, [x], (1,), n)
        (found,) = reduce.reference(composites.reduction("row_sum", dtypes.float64), x, axes=(1,))
        exact = np.array([[math.fsum(line)] for line in x])
        # However n numbers are added, each of n - 1 roundings errs by at most 2**-53 of the sum of magnitudes.
        assert (np.abs(found - exact) <= n * 2.0**-53 * np.abs(x).sum(1, keepdims=True)).all()


@EVERY_ROW
def test_integers_sum_exactly_and_have_extremes(row: Isa) -> None:
    random = np.random.default_rng(5)
    integers = [d for d in dtypes.ROWS if d.is_integer and d.numpy is not None]
    for dtype in (*integers, dtypes.bool_) if row.compiled else (dtypes.int8, dtypes.uint4, dtypes.bool_):
        for n in (1, 2, 65, 2049):
            low, high = max(int(dtype.min), -(2**61)), min(int(dtype.max), 2**61)
            numbers = random.integers(low, high, (3, n), endpoint=True)
            numbers[0] = high
            x = numbers.astype(np.int8 if dtype.width_bits < 8 else dtype.numpy).astype(dtype.numpy)
            total = [[sum(map(int, line))] for line in numbers]
            kind = np.uint64 if dtype is dtypes.uint64 else np.int64
            modulo = [[(v + (0 if kind is np.uint64 else 2**63)) % 2**64 - (0 if kind is np.uint64 else 2**63)]
                      for (v,) in total]  # fmt: skip
            due = {"row_sum": np.array(modulo, kind)}
            for op, extreme in (("row_max", max), ("row_min", min)):
                found = np.array([[extreme(map(int, line))] for line in numbers])
                due[op] = found.astype(np.int8 if dtype.width_bits < 8 else dtype.numpy).astype(dtype.numpy)
            for op, want in due.items():
                e = composites.reduction(op, dtype)
                (meant,) = reduce.reference(e, x, axes=(1,))
                out = np.zeros_like(want)
                run(e, row, [x], [out], (1,))
                launch.assert_bits(out, want, (row.name, dtype, op, n))
                launch.assert_bits(meant, want, (dtype, op, n))


@pytest.mark.parametrize("row", rows.AARCH64_ROWS, ids=lambda row: row.name)
def test_narrow_rows_on_aarch64(row: Isa) -> None:
    for dtype in (dtypes.float16, dtypes.bfloat16, dtypes.float8_e4m3fn):
        x = coded_rows(dtype, 4, 70)
        for e in (composites.reduction("row_sum", dtype), composites.softmax(dtype)):
            (due,) = reduce.reference(e, x, axes=(1,))
            out = np.zeros_like(due)
            aarch64.run_plan(reduce.plan(e, launch.layouts(x), launch.layouts(out), (1,), row), [x, out])
            launch.assert_bits(out, due, (row.name, dtype))


def test_bfloat16_softmax_is_that_of_torch_in_float32() -> None:
    x = coded(np.random.default_rng(6).normal(size=(64, 33)), dtypes.bfloat16)
    out = np.zeros_like(x)
    run(composites.softmax(dtypes.bfloat16), rows.COMPILED_ROWS[-1], [x], [out], (1,))
    theirs = torch.softmax(torch.from_numpy(wide(x)), 1).numpy()
    assert np.abs(wide(out) - theirs).max() <= 2.0**-9
