"""Copies are made where strides force one, in the bits of NumPy's own, and never of nothing."""

import numpy as np
import pytest

from samebits import dtypes
from samebits.kernels.expression import Chain, Expression
from samebits.operations.operation import Array
from samebits.program.builder import ProgramBuilder
from samebits.program.graph import Program
from samebits.runtime import cpu, reference


def total() -> Expression:
    """The sum of a row."""
    chain = Chain()
    return chain.finish(chain.apply("row_sum", chain.input(dtypes.float32)))


def run(program: Program, x: Array) -> tuple[Array, Array]:
    """Output y of the session and of the reference."""
    return cpu.prepare(program, threads=1).run({"x": x})["y"], reference.run(program, {"x": x})["y"]


@pytest.mark.parametrize(
    ("shape", "order", "target"),
    [((2, 3), (0, 1), (3, 2)), ((2, 3), (1, 0), (2, 3)), ((4, 3, 2), (1, 0, 2), (8, 3)), ((6, 4), (1, 0), (3, 8))],
)
def test_a_reshape_that_is_no_view_is_a_copy(
    shape: tuple[int, ...], order: tuple[int, ...], target: tuple[int, ...]
) -> None:
    b = ProgramBuilder("g")
    turned = b.transpose(b.input("x", dtypes.float32, shape), order)
    x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    for y in run(b.build({"y": b.reshape(turned, target)}), x):
        assert np.array_equal(y, x.transpose(order).reshape(target))


@pytest.mark.parametrize("axes", [(-1,), (-2,), (-3, -2, -1), (-3, -1)])
@pytest.mark.parametrize("empty", [0, 1, 2])
def test_reductions_of_an_empty_slice(empty: int, axes: tuple[int, ...]) -> None:
    b = ProgramBuilder("g")
    x = b.input("x", dtypes.float32, (4, 5, 3))
    counts = tuple(0 if axis == empty else extent for axis, extent in enumerate((4, 5, 3)))
    (y,) = b.rows(total(), b.slice(x, (0, 0, 0), counts, (1, 1, 1)), axes=axes)
    for made in run(b.build({"y": y}), np.ones((4, 5, 3), np.float32)):
        due = np.zeros(counts, np.float32).sum(axes, keepdims=True)
        assert made.shape == due.shape
        assert np.array_equal(made, due)


def test_an_axis_of_two_strides_cut_to_nothing() -> None:
    b = ProgramBuilder("g")
    x = b.transpose(b.input("x", dtypes.float32, (4, 3, 2)), (1, 0, 2))
    cut = b.slice(b.reshape(x, (12, 2)), (0, 0), (12, 0), (1, 1))
    for y in run(b.build({"y": b.apply("neg", cut)}), np.ones((4, 3, 2), np.float32)):
        assert y.shape == (12, 0)


@pytest.mark.parametrize("extent", [0, 1, 2])
def test_an_operand_without_elements_beside_one_that_repeats(extent: int) -> None:
    """One operand follows both reduced axes, the other repeats along the first, which may have no extent at all."""
    b = ProgramBuilder("g")
    x = b.slice(b.input("x", dtypes.float32, (2, 4)), (0, 0), (extent, 4), (1, 1))
    chain = Chain()
    values = [chain.input(dtypes.float32), chain.input(dtypes.float32)]
    both = chain.finish(chain.apply("row_sum", chain.apply("add", *values)))
    (y,) = b.rows(both, x, b.constant(np.arange(4, dtype=np.float32)[None]), axes=(-2, -1))
    for made in run(b.build({"y": y}), np.ones((2, 4), np.float32)):
        assert made.shape == (1, 1)
        assert made[0, 0] == extent * (4 + 6)
