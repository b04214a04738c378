"""Reductions whose rows lie side by side: lanes along the axis that stays, the reference's bits in every one."""

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

from samebits import dtypes
from samebits.codegen.isa import Isa
from samebits.codegen.vocabulary import KernelSpec
from samebits.kernels import columns, reduce
from samebits.kernels.expression import Chain, Expression

Array = np.ndarray[Any, Any]
EVERY_ROW = pytest.mark.parametrize("row", rows.ALL_ROWS, ids=lambda row: row.name)
F32 = dtypes.float32


def reduction(op: str, dtype: dtypes.DType = F32) -> Expression:
    """One reduction."""
    c = Chain()
    return c.finish(c.apply(op, c.input(dtype)))


def moments() -> Expression:
    """Mean of x * gamma + beta, its extremes' difference, gamma along the columns and beta along the reduced axis."""
    c = Chain()
    x, gamma, beta = (c.input(F32) for _ in range(3))
    y = c.apply("fma", x, gamma, beta)
    mean = c.apply("div", c.apply("row_sum", y), c.count())
    return c.finish(c.apply("mul", mean, gamma), c.apply("sub", c.apply("row_max", y), c.apply("row_min", y)), gamma)


def check(
    e: Expression, row: Isa, inputs: list[Array], axes: tuple[int, ...], outputs: list[Array] | None = None
) -> None:
    """The plan is one of columns, and gives the reference's bits."""
    due = reduce.reference(e, *inputs, axes=axes)
    shape = [1 if a in axes else s for a, s in enumerate(np.broadcast_shapes(*[x.shape for x in inputs]))]
    due = [np.broadcast_to(d, shape) for d in due]
    outputs = outputs or [np.full_like(d, 99) for d in due]
    plan = reduce.plan(e, launch.layouts(*inputs), launch.layouts(*outputs), axes, row)
    assert plan.steps[-1].spec.text is columns.text, plan
    launch.run_plan(plan, [*inputs, *outputs])
    for got, want in zip(outputs, due, strict=True):
        launch.assert_bits(got, want, (inputs[0].shape, row.name))


def some(*shape: int) -> Array:
    """Normal values, some of them special."""
    x = np.random.default_rng(shape[-1]).normal(size=shape).astype(np.float32)
    flat = x.reshape(-1)
    flat[5::97] = -0.0
    flat[11::1009] = np.inf
    flat[13::2003] = np.array([0xFFC12345], np.uint32).view(np.float32)
    return x


@EVERY_ROW
def test_every_extent_and_every_tail(row: Isa) -> None:
    w = columns.width(row.lanes)
    extents = (2, 3, 31, 63, 64, 65, 129, 319, 320, 2048, 2049, 4103) if row.compiled else (2, 65, 321, 2049)
    for n in extents:
        for wide in {row.lanes, w - 1, w, 2 * w + 1} if n < 200 else {w + 1}:
            if wide >= row.lanes and wide > 1:
                check(reduction("row_sum"), row, [some(n, wide)], (0,))
    for op in ("row_max", "row_min"):
        check(reduction(op), row, [some(130, w + 2)], (0,))
    zeros = np.full((70, w), -0.0, np.float32)
    check(reduction("row_sum"), row, [zeros], (0,))


@EVERY_ROW
@pytest.mark.parametrize("at_start", [False, True], ids=["end", "start"])
def test_operands_beside_guard_pages(row: Isa, at_start: bool) -> None:
    for n, wide in ((2, 67), (70, 65), (2050, 2 * row.lanes + 1)):
        inputs = [guard.array(x, at_start=at_start) for x in (some(3, n, wide), some(1, 1, wide), some(1, n, 1))]
        outputs = [guard.empty((3, 1, wide), np.float32, at_start=at_start) for _ in range(3)]
        check(moments(), row, inputs, (1,), outputs)


@EVERY_ROW
def test_axes_strides_and_dtypes(row: Isa) -> None:
    x = some(4, 5, 6, 70)
    check(reduction("row_sum"), row, [x], (0,))
    check(reduction("row_sum"), row, [x], (2,))
    check(reduction("row_sum"), row, [x], (0, 1, 2))
    check(reduction("row_sum"), row, [x[:, ::-1]], (1,))
    check(reduction("row_sum"), row, [x[:, :, ::2, :66]], (2,))
    check(reduction("row_sum"), row, [x.transpose(3, 0, 1, 2)], (1, 2, 3))
    whole = np.full((5, 6, 140), 99, np.float32)
    check(reduction("row_sum"), row, [x], (0,), [whole[None, :, :, 3:73]])
    assert (whole[:, :, :3] == 99).all()
    assert (whole[:, :, 73:] == 99).all()
    for dtype in (dtypes.float64, dtypes.int64, dtypes.int32, dtypes.uint8):
        wide = np.random.default_rng(1).integers(0, 100, (131, 66)).astype(dtype.numpy)
        for op in ("row_sum", "row_prod", "row_max"):
            check(reduction(op, dtype), row, [wide], (0,))


@pytest.mark.parametrize("row", rows.COMPILED_ROWS, ids=lambda row: row.name)
def test_bits_ignore_threads_and_layout(row: Isa) -> None:
    x = np.random.default_rng(3).normal(size=(3, 2100, 300)).astype(np.float32)
    (due,) = reduce.reference(reduction("row_sum"), x, axes=(1,))
    for threads in (1, 2, 3):
        for form in (x, np.ascontiguousarray(x.transpose(0, 2, 1)).transpose(0, 2, 1)):
            out = np.empty_like(due)
            plan = reduce.plan(reduction("row_sum"), launch.layouts(form), launch.layouts(out), (1,), row, threads)
            launch.run_plan(plan, [form, out], threads)
            launch.assert_bits(out, due, threads)


@pytest.mark.parametrize("row", rows.AARCH64_ROWS, ids=lambda row: row.name)
def test_aarch64_has_the_same_bits(row: Isa) -> None:
    x = some(70, 37)
    (due,) = reduce.reference(reduction("row_sum"), x, axes=(0,))
    out = np.empty_like(due)
    plan = reduce.plan(reduction("row_sum"), launch.layouts(x), launch.layouts(out), (0,), row)
    aarch64.run_plan(plan, [x, out])
    launch.assert_bits(out, due, row.name)


def kernels(extents: Iterable[int]) -> set[KernelSpec]:
    """What sums along axes that are not the dense one need."""
    found, isa = set[KernelSpec](), rows.PLANNED
    for n, wide in itertools.product(extents, repeat=2):
        shapes = [((n, wide), 0), ((3, n, wide), 1), ((2, 3, n, wide), 2)]
        for shape, axis in shapes:
            out = tuple(1 if a == axis else extent for a, extent in enumerate(shape))
            x, y = ((s, tuple(math.prod(s[a + 1 :]) for a in range(len(s)))) for s in (shape, out))
            found |= {
                step.spec for step in reduce.plan(reduction("row_sum"), (x,), (y,), (axis,), isa).steps if step.tasks
            }
    return found


def test_new_extents_need_no_new_kernels() -> None:
    """The first ones: 1, around what fills the lanes, and around one and two blocks."""
    lanes = rows.PLANNED.lanes
    known = kernels((1, 2, lanes - 1, lanes, lanes + 1, 2048, 2049))
    assert len(known) <= 9
    assert kernels((3, 7, 33, 64, 65, 100, 384, 1000, 2047, 4096, 10007)) <= known
