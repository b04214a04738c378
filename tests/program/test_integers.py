"""Integers known before a run: what is said of a node is what NumPy computes once the symbols are bound."""

from typing import Any

import numpy as np
import pytest

from samebits import dtypes
from samebits.operations import dim
from samebits.operations.dim import SymbolicShape
from samebits.operations.moves import AxisGather, Concat
from samebits.program import integers
from samebits.program.builder import ProgramBuilder
from samebits.runtime import reference

N, M = dim.symbol("n"), dim.symbol("m")
BOUND = {"n": 7, "m": 3}


def begun() -> tuple[ProgramBuilder, str]:
    """A program over x[n, m], and its shape."""
    b = ProgramBuilder("g")
    b.input("x", dtypes.float32, (N, M))
    return b, b.dims((N, M))


def known(b: ProgramBuilder, name: str) -> SymbolicShape:
    """The integers of a value, which are also what it is when it runs."""
    found = b.integers(name)
    assert found is not None
    x = np.zeros((BOUND["n"], BOUND["m"]), np.float32)
    made = reference.run(b.build({"y": name}), {"x": x})["y"]
    assert [dim.bind(size, BOUND) for size in found] == made.reshape(-1).tolist()
    return found


def vector(b: ProgramBuilder, *numbers: int) -> str:
    return b.constant(np.array(numbers, np.int64))


@pytest.mark.parametrize("op", ["add", "sub", "mul", "maximum", "minimum"])
@pytest.mark.parametrize("other", [(5,), (2, -9), (0, 1)])
def test_arithmetic_of_sizes(op: str, other: tuple[int, ...]) -> None:
    b, shape = begun()
    found = known(b, b.apply(op, shape, vector(b, *other)))
    meaning: Any = {"add": lambda x, y: x + y, "sub": lambda x, y: x - y, "mul": lambda x, y: x * y,
                    "maximum": dim.maximum, "minimum": dim.minimum}[op]  # fmt: skip
    assert found == tuple(meaning(x, y) for x, y in zip((N, M), other * (2 // len(other)), strict=True))


def test_moves_of_sizes() -> None:
    b, shape = begun()
    assert known(b, b.slice(shape, (1,), (2,), (-1,))) == (M, N)
    b, shape = begun()
    assert known(b, b.add("gather", (shape, vector(b, -1, 0, -1)), AxisGather(0))[0]) == (M, N, M)
    b, shape = begun()
    assert known(b, b.add("concat", (shape, vector(b, 4), shape), Concat(0))[0]) == (N, M, 4, N, M)
    b, shape = begun()
    assert known(b, b.reshape(b.slice(shape, (0,), (1,), (1,)), ())) == (N,)


def test_questions_about_sizes() -> None:
    b, shape = begun()
    minus = b.apply("equal", shape, vector(b, -1, -1))
    assert known(b, b.apply("where", minus, vector(b, 5, 6), shape)) == (N, M)
    b, shape = begun()
    same = b.apply("equal", shape, b.add("concat", (b.slice(shape, (0,), (1,), (1,)), vector(b, 9)), Concat(0))[0])
    assert b.integers(same) is None  # whether m is 9 is not known


def test_what_wraps_is_left_to_the_run() -> None:
    b, _ = begun()
    assert b.integers(b.apply("mul", vector(b, 2**62), vector(b, 4))) == (0,)  # a constant, computed with wrapping
    found = integers.propagate("map", None, [(N,)], 1)
    assert found is None


def test_a_cast_to_a_narrow_integer_is_no_size() -> None:
    b, shape = begun()
    narrow = b.apply("cast", b.apply("cast", shape, cast_to=dtypes.uint8), cast_to=dtypes.int64)
    assert b.integers(narrow) is None
    b, shape = begun()
    assert known(b, b.apply("cast", b.apply("cast", shape, cast_to=dtypes.int32), cast_to=dtypes.int64)) == (N, M)


@pytest.mark.parametrize("operands", [[None], [], [(N,), None]])
def test_data_are_not_known(operands: list[SymbolicShape | None]) -> None:
    assert integers.propagate("concat", Concat(0), operands, 1) is None


def test_a_matrix_is_no_shape() -> None:
    assert integers.propagate("reshape", None, [(N, M)], 2) is None


def test_long_vectors_are_data() -> None:
    whole = (N,) * integers.LIMIT
    assert integers.propagate("concat", Concat(0), [whole], 1) == whole
    assert integers.propagate("concat", Concat(0), [whole, (M,)], 1) is None


@pytest.mark.parametrize("indices", [(2,), (-3,), (N,)])
def test_an_index_that_is_out_of_range_or_a_size_is_left_to_the_run(indices: SymbolicShape) -> None:
    assert integers.propagate("gather", AxisGather(0), [(N, M), indices], 1) is None
