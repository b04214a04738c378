"""Elementwise kernels: on every row, for every operation, size, stride and thread count, the reference's bits."""

import itertools
from collections.abc import Iterable
from typing import Any

import guard
import launch
import numpy as np
import pytest
import rows

from samebits import dtypes
from samebits.codegen.isa import Isa
from samebits.codegen.vocabulary import KernelSpec
from samebits.dtypes import DType
from samebits.errors import PlanError, ShapeError
from samebits.kernels import elementwise, functions
from samebits.kernels.expression import Chain, Expression

Array = np.ndarray[Any, Any]
EVERY_ROW = pytest.mark.parametrize("row", rows.ALL_ROWS, ids=lambda row: row.name)

FLOAT_CODES = [
    0, 1, 0x007FFFFF, 0x00800000, 0x3F800000, 0x3F800001, 0x7F7FFFFF, 0x7F800000, 0x7F800001, 0x7FC00000, 0x7FFFFFFF,
    0x3F000000, 0x4F000000, 0x4EFFFFFF, 0x5F000000, 0x43000000, 0x42FF0000, 0x40490FDB, 0x2F800000,
]  # fmt: skip


def specials(dtype: DType) -> Array:
    """Values at every edge of a dtype, both signs, NaN payloads and subnormals."""
    if dtype is dtypes.float32:
        codes = np.array(FLOAT_CODES, np.uint32)
        return np.concatenate([codes, codes | 0x80000000]).view(np.float32)
    if dtype is dtypes.float64:
        with np.errstate(all="ignore"):
            wide = specials(dtypes.float32).astype(np.float64)
        return np.concatenate([wide, [2.0**63, -(2.0**63), np.nextafter(2.0**63, 0), 5e-324, 1e308, 2.0**31 - 0.5]])
    if dtype.kind == "bool":
        return np.array([False, True])
    low, high = int(dtype.min), int(dtype.max)
    small = [v for v in (-3, -1, 0, 1, 2, 100) if low <= v]
    return np.array([low, low + 1, *small, high // 3, high - 1, high], dtype.numpy)


def cases() -> list[tuple[str, tuple[DType, ...], DType | None]]:
    """Every operation with every dtype its arguments may have."""
    found: list[tuple[str, tuple[DType, ...], DType | None]] = []
    kernels = [dtypes.float32, dtypes.float64, dtypes.int64, dtypes.int32, dtypes.int8, dtypes.uint8, dtypes.bool_]
    for entry in functions.ROWS:
        for dtype in kernels:
            kinds = tuple(
                dtypes.bool_ if len(accepted) == 1 and "bool" in accepted else dtype for accepted in entry.accepts
            )
            if any(kind.name not in accepted for kind, accepted in zip(kinds, entry.accepts, strict=True)):
                continue
            targets = [k for k in kernels if k is not dtype] if entry.result == "any" else [None]
            if entry.name == "bitcast":
                targets = [k for k in targets if k.width_bits == dtype.width_bits and k is not dtypes.bool_]
            found += [(entry.name, kinds, target) for target in targets if (entry.name, kinds, target) not in found]
    return found


def single(name: str, kinds: tuple[DType, ...], target: DType | None = None) -> Expression:
    """One operation."""
    chain = Chain()
    return chain.finish(chain.apply(name, *[chain.input(kind) for kind in kinds], dtype=target))


def run(expression: Expression, row: Isa, inputs: list[Array], outputs: list[Array], threads: int = 1) -> None:
    """Plan and perform."""
    plan = elementwise.plan(expression, launch.layouts(*inputs), launch.layouts(*outputs), row, threads)
    launch.run_plan(plan, [*inputs, *outputs], threads)


def check(expression: Expression, row: Isa, inputs: list[Array], outputs: list[Array], what: object = "") -> None:
    """Outputs have the reference's bits."""
    due = elementwise.reference(expression, *[x.copy() for x in inputs])
    run(expression, row, inputs, outputs)
    for got, want in zip(outputs, due, strict=True):
        launch.assert_bits(got, np.broadcast_to(want, got.shape), (what, row.name))


def check_special_values(row: Isa, some: list[tuple[str, tuple[DType, ...], DType | None]]) -> None:
    """Every pair or triple of special values. Eight operations of the same operands are one kernel, soon compiled."""
    alike = dict[tuple[DType, ...], list[tuple[str, DType | None]]]()
    for name, kinds, target in some:
        alike.setdefault(kinds, []).append((name, target))
    for kinds, every in alike.items():
        grids = np.meshgrid(*[specials(kind) for kind in kinds], indexing="ij")
        inputs = [np.ascontiguousarray(g.ravel()) for g in grids]
        if len(inputs) == 3 and not row.compiled:
            inputs = [x[::7].copy() for x in inputs]
        for eight in (every[first : first + 8] for first in range(0, len(every), 8)):
            chain = Chain()
            given = [chain.input(kind) for kind in kinds]
            together = chain.finish(*(chain.apply(name, *given, dtype=target) for name, target in eight))
            outputs = [np.empty(inputs[0].shape, together.dtype(out).numpy) for out in together.outputs]
            due = elementwise.reference(together, *[x.copy() for x in inputs])
            run(together, row, inputs, outputs)
            for (name, target), got, want in zip(eight, outputs, due, strict=True):
                launch.assert_bits(got, np.broadcast_to(want, got.shape), (name, kinds, target, row.name))


@EVERY_ROW
def test_every_operation_on_special_values(row: Isa) -> None:
    """Interpreted, and on every second compiled row, the next operation on the rows between."""
    turn = rows.COMPILED_ROWS.index(row) if row.compiled else 0
    check_special_values(row, cases()[turn % 2 :: 2] if row.compiled else cases())


@pytest.mark.exhaustive
@pytest.mark.parametrize("row", rows.COMPILED_ROWS, ids=lambda row: row.name)
def test_every_operation_on_special_values_of_every_row(row: Isa) -> None:
    check_special_values(row, cases())


def chain_of_types() -> Expression:
    """Four dtypes of four widths, two outputs: where(m, x * y + x, x), and a cast of a comparison."""
    c = Chain()
    x, y, m, k = c.input(dtypes.float32), c.input(dtypes.float32), c.input(dtypes.bool_), c.input(dtypes.int64)
    total = c.apply("add", c.apply("mul", x, y), x)
    wide = c.apply("cast", c.apply("less", total, y), dtype=dtypes.int64)
    return c.finish(c.apply("where", m, total, x), c.apply("add", wide, k))


def operands(n: int, seed: int = 0) -> list[Array]:
    """Inputs of `chain_of_types`."""
    r = np.random.default_rng(seed)
    x, y = r.normal(size=(2, n)).astype(np.float32)
    x[::5] = specials(dtypes.float32)[np.arange(len(x[::5])) % 38]
    return [x, y, r.integers(0, 2, n).astype(bool), r.integers(-9, 9, n)]


def sizes(row: Isa) -> list[int]:
    """Around the vector, its unrolled form and a task."""
    lanes = min(row.lanes, 64)
    near = {0, 1, lanes - 1, lanes, lanes + 1, 2 * lanes + 1, 4 * lanes - 1, 4 * lanes, 4 * lanes + 1, 9 * lanes + 2}
    return sorted({*near, 63, 64, 65, 4097} | ({16383, 16384, 16385, 24577} if row.compiled else set()))


@EVERY_ROW
@pytest.mark.parametrize("at_start", [False, True], ids=["end", "start"])
def test_sizes_beside_guard_pages(row: Isa, at_start: bool) -> None:
    for n in sizes(row):
        inputs = [guard.array(x, at_start=at_start) for x in operands(n, n)]
        outputs = [guard.empty(n, np.float32, at_start=at_start), guard.empty(n, np.int64, at_start=at_start)]
        check(chain_of_types(), row, inputs, outputs, n)


@pytest.mark.parametrize("row", rows.COMPILED_ROWS, ids=lambda row: row.name)
def test_bits_where_lines_are_asked_for(row: Isa) -> None:
    rng = np.random.default_rng(5)
    repeated = guard.array(rng.integers(-128, 128, (1, 1030), np.int8))
    negated = guard.empty((2100, 1030), np.int8)
    assert negated.nbytes + negated.size >= elementwise._BEYOND
    check(single("neg", (dtypes.int8,)), row, [repeated], [negated])
    exp, x = single("exp", (dtypes.float32,)), guard.array(rng.normal(size=(520, 1030)).astype(np.float32))
    apart = guard.empty(x.shape, np.float32)
    for half in (slice(260), slice(260, 520)):
        run(exp, row, [x[half]], [apart[half]])
    assert x.nbytes < elementwise._BEYOND <= 2 * x.nbytes
    run(exp, row, [x], [x], threads=2)
    launch.assert_bits(x, apart)


@EVERY_ROW
def test_any_strides(row: Isa) -> None:
    add = single("add", (dtypes.float32, dtypes.float32))
    x = np.arange(2 * 70 * 6 * 37, dtype=np.float32).reshape(2 * 70, 6, 37)
    y = np.random.default_rng(1).normal(size=(70, 6, 37)).astype(np.float32)
    views = [
        (x[::2], y), (x[:70, ::-1], y[:, :, ::-1]), (x[:70].transpose(2, 1, 0), y.transpose(2, 1, 0)),
        (x[:70, :, ::3], y[:, :, :13]), (x[:70, 2:3], y), (x[:1, :, :1], y), (x[0, 0], y), (x[3, 2, 1, ...], y),
        (x[:70].transpose(1, 2, 0), y.transpose(1, 2, 0)), (x[:70, :, 5:6], y[:, :1]),
        (x[1, 1, 1, ...], y[1, 1, 1, ...]),
    ]  # fmt: skip
    for k, (a, b) in enumerate(views):
        shape = np.broadcast_shapes(a.shape, b.shape)
        dense = np.empty(shape, np.float32)
        turned = np.empty(shape[::-1], np.float32).T
        spaced = np.empty((*shape, 3), np.float32)[..., 1]
        for out in (dense, turned, spaced):
            check(add, row, [a, b], [out], (k, out.strides))


@EVERY_ROW
@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float64, dtypes.int32, dtypes.int16])
def test_every_second_element_beside_guard_pages(row: Isa, dtype: DType) -> None:
    """Of rows, too, and beside what is dense or comes in threes; what lies between is never the result's."""
    kind: Any = dtype.numpy
    one, two = single("copy", (dtype,)), single("maximum", (dtype, dtype))
    for n in (*range(1, 36), 64, 127, 128, 129, 200):
        codes = np.random.default_rng(n).integers(-100, 100, (3, 2 * n - 1)).astype(kind)
        for at_start in (False, True):
            x, rest = guard.array(codes[0], at_start=at_start), guard.array(codes[1, :n], at_start=at_start)
            check(one, row, [x[::2]], [guard.empty(n, kind, at_start=at_start)], (n, at_start))
            check(two, row, [x[::2], rest], [guard.empty(n, kind, at_start=at_start)], (n, at_start))
        rows_of_it = guard.array(codes)
        check(two, row, [rows_of_it[:, ::2], codes[::-1, ::2]], [guard.empty((3, n), kind)], n)


@EVERY_ROW
def test_strided_stores_leave_gaps_alone(row: Isa) -> None:
    copy = single("copy", (dtypes.int8,))
    whole = np.full((5, 2, 41), 77, np.int8)
    x = np.arange(5 * 41, dtype=np.int8).reshape(5, 41)
    check(copy, row, [x], [whole[:, 1]])
    assert (whole[:, 0] == 77).all()
    run(copy, row, [x[:, :20]], [whole[:, 0, 1::2]])
    assert (whole[:, 0, ::2] == 77).all()


@pytest.mark.parametrize("row", rows.COMPILED_ROWS, ids=lambda row: row.name)
def test_bits_ignore_threads(row: Isa) -> None:
    for shape in ((100_003,), (1021, 97), (40_000, 2), (3, 7, 5000)):
        x = np.random.default_rng(2).normal(size=shape).astype(np.float32)
        first: list[Array] = []
        for threads in (1, 2, 3, 7):
            out = np.empty_like(x)
            run(single("exp", (dtypes.float32,)), row, [x], [out], threads)
            first = first or [out]
            launch.assert_bits(out, first[0], (shape, threads))


@pytest.mark.parametrize("row", rows.COMPILED_ROWS, ids=lambda row: row.name)
def test_an_output_may_lie_on_an_input(row: Isa) -> None:
    x = np.random.default_rng(3).normal(size=1001).astype(np.float32)
    due = elementwise.reference(single("exp", (dtypes.float32,)), x)[0]
    run(single("exp", (dtypes.float32,)), row, [x], [x])
    launch.assert_bits(x, due)


@EVERY_ROW
def test_a_flushing_host_does_not_matter(row: Isa) -> None:
    x = np.array([1e-40, -3e-39, 1.5], np.float32)
    c = Chain()
    v = c.input(dtypes.float32)
    half = c.finish(
        c.apply("mul", v, c.constant(0.5, dtypes.float32)), c.apply("exp", c.apply("sub", v, c.constant(95, v.dtype)))
    )
    due = elementwise.reference(half, x)
    outs = [np.empty_like(x), np.empty_like(x)]
    with launch.flushing():
        run(half, row, [x], outs)
    for got, want in zip(outs, due, strict=True):
        launch.assert_bits(got, want)
    assert (due[0] != 0).all()
    assert (due[1] != 0).all()


@EVERY_ROW
def test_copies_keep_nan_codes_and_constants_keep_bits(row: Isa) -> None:
    x = np.array([0x7F800001, 0xFFC12345, 0x80000000], np.uint32).view(np.float32)
    c = Chain()
    v = c.input(dtypes.float32)
    nan, zero = c.constant_code(0xFFC12345, dtypes.float32), c.constant(-0.0, dtypes.float32)
    truth = c.apply("is_nan", v)
    e = c.finish(
        c.apply("copy", v),
        c.apply("neg", v),
        c.apply("where", truth, nan, zero),
        c.apply("abs", c.apply("add", v, zero)),
    )
    outs = [np.empty_like(x) for _ in range(4)]
    check(e, row, [x], outs)
    assert outs[0].view(np.uint32).tolist() == [0x7F800001, 0xFFC12345, 0x80000000]
    assert outs[1].view(np.uint32).tolist() == [0xFF800001, 0x7FC12345, 0]
    assert outs[2].view(np.uint32).tolist() == [0xFFC12345, 0xFFC12345, 0x80000000]
    assert outs[3].view(np.uint32).tolist() == [0x7FC00000, 0x7FC00000, 0]


@EVERY_ROW
@pytest.mark.parametrize("is_kept", [False, True])
def test_nan_of_what_is_chosen_and_then_computed_with(row: Isa, is_kept: bool) -> None:
    """Copies of computed values have their canonical NaN wherever bits are looked at, and inputs their own."""
    c = Chain()
    x, y = c.input(dtypes.float32), c.input(dtypes.float32)
    computed = c.apply("sub", c.apply("mul", x, y), x)
    chosen = c.apply(
        "where", c.apply("less", y, x), c.apply("neg", computed), c.apply("where", c.apply("is_nan", y), x, computed)
    )
    turned = c.apply("abs", c.apply("neg", chosen))
    only = c.apply("where", c.apply("less", x, y), computed, x)
    outputs = [
        c.apply("cast", only, dtype=dtypes.bfloat16),
        c.apply("add", only, y),
        c.apply("cast", chosen, dtype=dtypes.bfloat16),
        c.apply("add", turned, x),
        c.apply("maximum", chosen, y),
    ]
    if is_kept:
        outputs += [chosen, c.apply("sign_bit", c.apply("neg", chosen)), c.apply("bitcast", turned, dtype=dtypes.int32)]
    found = specials(dtypes.float32)
    a, b = (v.ravel() for v in np.meshgrid(found, found))
    e = c.finish(*outputs)
    check(e, row, [a, b], [np.empty(a.shape, e.dtype(k).numpy) for k in e.outputs])


@EVERY_ROW
@pytest.mark.parametrize("at_start", [False, True], ids=["end", "start"])
def test_inputs_dense_along_another_axis(row: Isa, at_start: bool) -> None:
    c = Chain()
    x, y, k = c.input(dtypes.float32), c.input(dtypes.float32), c.input(dtypes.float32)
    total = c.apply("add", c.apply("mul", x, y), k)
    e = c.finish(total, c.apply("less", x, y))
    side = min(1 << row.lanes.bit_length() - 1, 16)
    for p, m, n in ((1, side, side), (2, side + 1, 2 * side - 1), (1, 3 * side - 1, 2 * side + 1), (3, 2 * side, side)):
        v = np.random.default_rng(m).normal(size=(2, p, m, n)).astype(np.float32)
        turned = guard.array(v[0].transpose(0, 2, 1), at_start=at_start).transpose(0, 2, 1)
        whole = [turned, guard.array(v[1], at_start=at_start), guard.array(v[1, :, :, :1], at_start=at_start)]
        outs = [guard.empty((p, m, n), kind, at_start=at_start) for kind in (np.float32, np.bool_)]
        check(e, row, whole, outs, (m, n))
        plan = elementwise.plan(e, launch.layouts(*whole), launch.layouts(*outs), row)
        assert (plan.steps[0].spec.name == "kernels.turned.text") == (side > 1)
    for dtype in (np.int8, np.int16, np.int64, np.float64, np.bool_) if row.compiled else (np.int16, np.float64):
        z = np.random.default_rng(1).integers(0, 2, (5, 35, 67)).astype(dtype)
        kind = next(d for d in dtypes.ROWS if d.numpy == np.dtype(dtype))
        for axes in ((0, 2, 1), (2, 1, 0), (1, 2, 0), (2, 0, 1)):
            out = guard.empty(z.transpose(axes).shape, dtype, at_start=at_start)
            check(single("copy", (kind,)), row, [z.transpose(axes)], [out], (dtype, axes))
            check(
                single("copy", (kind,)),
                row,
                [z[:, ::2].transpose(axes)],
                [out[tuple(slice(18) if a == 1 else slice(None) for a in axes)]],
                (dtype, axes),
            )


def test_axes_merge() -> None:
    add = single("add", (dtypes.float32, dtypes.float32))
    x = np.zeros((4, 5, 6), np.float32)
    for a, b, facts in (
        (x, x, "1 of 120"), (x, x[:1], "4 of 30"), (x, x[0, 0], "20 of 6"), (x.T, x.T, "1 of 120"),
        (x, x[:, :, :1], "20 of 6"),
    ):  # fmt: skip
        out = np.zeros(x.T.shape, np.float32, order="F") if a.shape == x.T.shape else x
        plan = elementwise.plan(add, launch.layouts(a, b), launch.layouts(out), rows.ALL_ROWS[0])
        assert dict(plan.facts)["rows"] == facts


def test_numpy_agrees_where_the_contract_gives_its_values() -> None:
    x, y = np.random.default_rng(5).normal(size=(2, 999)).astype(np.float32)
    for name, function in (("add", np.add), ("mul", np.multiply), ("div", np.divide), ("maximum", np.maximum)):
        out = np.empty_like(x)
        run(single(name, (dtypes.float32, dtypes.float32)), rows.COMPILED_ROWS[-1], [x, y], [out])
        assert (out == function(x, y)).all()


def test_plans_refuse_what_they_cannot_do() -> None:
    row, flat = rows.ALL_ROWS[0], ((4,), (1,))
    c = Chain()
    summed = c.finish(c.apply("row_sum", c.input(dtypes.float32)))
    with pytest.raises(PlanError) as wrong:
        elementwise.plan(summed, (flat,), (flat,), row)
    assert str(wrong.value) == (
        "elementwise.plan: expression operations is ['row_sum'], must be per element; use reduce.plan"
    )
    with pytest.raises(ShapeError) as shapes:
        elementwise.plan(single("copy", (dtypes.int8,)), (((3,), (1,)),), (flat,), row)
    assert str(shapes.value) == (
        "elementwise.plan: an operand shape is (3,), must be one that broadcasts to (4,); reshape it"
    )
    with pytest.raises(ShapeError) as count:
        elementwise.plan(single("copy", (dtypes.int8,)), (), (flat,), row)
    assert str(count.value) == (
        "elementwise.plan: operands is (0, 1), [(4,)], must be 1 inputs and 1 outputs of one shape; "
        "pass one layout each"
    )


def test_every_operation_has_a_case() -> None:
    elsewhere = {
        "quantize",
        "requantize",
        "requantize_sum",
    }  # functions/test_quantized.py: their arguments differ in kind
    assert {name for name, _, _ in cases()} | elsewhere == {entry.name for entry in functions.ROWS}
    assert len(list(itertools.chain(cases()))) > 90


def kernels(extents: Iterable[int]) -> set[KernelSpec]:
    """What adding, adding a row, adding a column and turning need for matrices and their batches of these extents."""
    found = set[KernelSpec]()
    isa, add, copy = rows.PLANNED, single("add", (dtypes.float32, dtypes.float32)), single("copy", (dtypes.uint8,))
    for m, n in itertools.product(extents, repeat=2):
        whole, batched = ((m, n), (n, 1)), ((3, m, n), (2 * m * n, n, 1))
        others = (whole, ((1, n), (n, 1)), ((n,), (1,)), ((m, 1), (1, 1)), ((1, 1), (1, 1)), ((m, n), (2 * n, 1)))
        plans = [elementwise.plan(add, (whole, other), (whole,), isa) for other in others]
        plans += [elementwise.plan(add, (batched, other), (batched,), isa) for other in others]
        plans.append(elementwise.plan(copy, (((m, n), (1, m)),), (whole,), isa))
        plans.append(elementwise.plan(copy, (((3, m, n), (m * n, 1, m)),), (batched,), isa))
        found |= {step.spec for plan in plans for step in plan.steps if step.tasks}
    return found


def test_new_extents_need_no_new_kernels() -> None:
    """The first ones: 0, 1, and around a vector, a tile and a task."""
    lanes = rows.PLANNED.lanes
    known = kernels((0, 1, 2, lanes - 1, lanes, lanes + 1, 8191, 8192, 8193, 16383, 16384, 16385))
    assert len(known) <= 12
    assert kernels((3, 5, 7, 64, 100, 333, 1000, 4095, 4096, 4097, 10007, 1 << 20)) <= known


@EVERY_ROW
def test_transposes_around_a_tile_and_its_batches(row: Isa) -> None:
    side = 1 << row.lanes.bit_length() - 1
    for m, n in itertools.product(sorted({1, 2, side - 1, side, side + 1, 2 * side + 1} - {0}), repeat=2):
        x = np.random.default_rng(m).normal(size=(2, 2, n, m)).astype(np.float32)
        copied = single("copy", (dtypes.float32,))
        check(copied, row, [x[0, 0].T], [np.empty((m, n), np.float32)], (m, n))
        check(copied, row, [x.transpose(1, 0, 3, 2)], [np.empty((2, 2, m, n), np.float32)], (m, n))
