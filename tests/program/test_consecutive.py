"""Gathers of places that follow each other: views that keep every bit, where all of the places are sure to be there."""

from collections.abc import Callable

import numpy as np
import pytest

from samebits import dtypes
from samebits.errors import ShapeError
from samebits.operations import dim
from samebits.operations.moves import AxisGather, Concat, GatherND, Range
from samebits.operations.operation import Array
from samebits.program.builder import ProgramBuilder
from samebits.program.consecutive import gather_as_view
from samebits.program.graph import Program
from samebits.program.transform import optimise
from samebits.runtime import cpu, reference

F = np.float32
N, M = dim.symbol("n"), dim.symbol("m")
TABLE = np.random.default_rng(0).standard_normal((12, 3)).astype(F)
GATHERS = {"gather", "gather_nd"}


def counted(b: ProgramBuilder, count: dim.Size, start: dim.Size = 0, step: int = 1) -> str:
    return b.add("range", (), Range(start, count, step))[0]


def gathered(b: ProgramBuilder, x: str, index: str, axis: int = 0) -> str:
    return b.add("gather", (x, index), AxisGather(axis))[0]


def numbers(*values: int) -> Array:
    return np.array(values, np.int64)


def rows_to_a_length(b: ProgramBuilder, x: str) -> str:
    """A row of places, as exporters keep it, cut to a length that may be more than it has."""
    places = b.slice(b.constant(np.arange(12)[None]), (0, 0), (1, dim.minimum(12, N)), (1, 1))
    return gathered(b, b.constant(TABLE), places)


def computed_rows(b: ProgramBuilder, x: str) -> str:
    """The same of a small table that is computed from constants."""
    table = b.apply("mul", b.constant(TABLE), b.scalar(0.5, dtypes.float32))
    return gathered(b, table, counted(b, dim.minimum(N, 12)))


def every_place(b: ProgramBuilder, x: str) -> str:
    """A value gathered at all its places, in axes with others between them, one of which repeats it."""
    rows = b.reshape(b.expand(b.reshape(counted(b, N), (N, 1, 1)), (N, 4, M)), (N, 4, M, 1))
    columns = b.reshape(b.expand(b.reshape(counted(b, M), (1, M)), (4, M)), (1, 4, M, 1))
    (index,) = b.add("concat", (rows, b.expand(columns, (N, 4, M, 1))), Concat(3))
    return b.add("gather_nd", (x, index), GatherND())[0]


def one_column(b: ProgramBuilder, x: str) -> str:
    """The first rows beside a column that does not count up."""
    count = dim.minimum(N, 12)
    rows, column = b.reshape(counted(b, count), (count, 1)), b.expand(b.constant(numbers(2)[None]), (count, 1))
    (index,) = b.add("concat", (rows, column), Concat(1))
    return b.add("gather_nd", (b.constant(TABLE), index), GatherND())[0]


TAKEN: dict[str, Callable[[ProgramBuilder, str], str]] = {
    "rows to a length": rows_to_a_length,
    "computed rows": computed_rows,
    "every place": every_place,
    "one column": one_column,
    "a number": lambda b, x: gathered(b, b.constant(TABLE), b.constant(np.array(4))),
    "the last rows": lambda b, x: gathered(b, b.constant(TABLE), b.constant(numbers(9, 10, 11))),
    "one row, repeated": lambda b, x: gathered(b, b.constant(TABLE), b.expand(b.constant(numbers(7)), (N,))),
    "columns": lambda b, x: gathered(b, b.constant(TABLE), b.constant(numbers(1, 2)), 1),
    "a part of the places": lambda b, x: gathered(
        b, b.constant(TABLE), b.slice(b.constant(np.arange(2, 10)), (3,), (4,), (1,))
    ),
    "an input by its own extent": lambda b, x: gathered(b, x, counted(b, M), 1),
}
LEFT: dict[str, Callable[[ProgramBuilder, str], str]] = {
    "falling": lambda b, x: gathered(b, b.constant(TABLE), b.constant(numbers(3, 2, 1))),
    "in steps": lambda b, x: gathered(b, b.constant(TABLE), counted(b, 4, step=2)),
    "every second": lambda b, x: gathered(b, b.constant(TABLE), b.slice(b.constant(np.arange(12)), (0,), (5,), (2,))),
    "with a gap": lambda b, x: gathered(b, b.constant(TABLE), b.constant(numbers(0, 1, 3))),
    "from the end": lambda b, x: gathered(b, b.constant(TABLE), b.constant(numbers(-2, -1))),
    "of two axes": lambda b, x: gathered(b, b.constant(TABLE), b.constant(np.arange(4).reshape(2, 2))),
    "from an open number on": lambda b, x: gathered(b, b.constant(TABLE), counted(b, 1, start=dim.minimum(N, 3))),
    "of joined axes": lambda b, x: gathered(b, b.constant(TABLE), b.reshape(b.constant(np.arange(4)), (2, 2))),
    "more than there may be": lambda b, x: gathered(b, b.constant(TABLE), counted(b, N)),
    "of an input's other axis": lambda b, x: gathered(b, x, counted(b, N), 1),
    "by data": lambda b, x: gathered(b, b.constant(TABLE), b.apply("cast", x, cast_to=dtypes.int64)),
    "along a diagonal": lambda b, x: b.add(
        "gather_nd",
        (b.constant(TABLE), b.add("concat", [b.reshape(counted(b, 3), (3, 1))] * 2, Concat(1))[0]),
        GatherND(),
    )[0],
    "turned": lambda b, x: b.add("gather_nd", (b.constant(TABLE), turned(b)), GatherND())[0],
    "what was not joined": lambda b, x: b.add(
        "gather_nd", (b.constant(TABLE), b.constant(numbers(0, 1)[None])), GatherND()
    )[0],
}


def turned(b: ProgramBuilder) -> str:
    """The places of a matrix, column after column."""
    rows = b.expand(b.reshape(counted(b, 12), (1, 12, 1)), (3, 12, 1))
    columns = b.expand(b.reshape(counted(b, 3), (3, 1, 1)), (3, 12, 1))
    return b.add("concat", (rows, columns), Concat(2))[0]


def program_of(make: Callable[[ProgramBuilder, str], str]) -> Program:
    b = ProgramBuilder("g")
    x = b.input("x", dtypes.float32, (N, M))
    return b.build({"y": make(b, x), "z": b.apply("neg", x)})


def check_bits(program: Program, shapes: list[tuple[int, int]]) -> None:
    """The rewritten program, and one session for all sizes, give what the reference gives of the program."""
    better, session = gather_as_view(program), cpu.prepare(program)
    better.check()
    assert {name: fact.shape for name, fact in better.outputs.items()} == {
        name: fact.shape for name, fact in program.outputs.items()
    }
    for shape in shapes:
        x = np.arange(np.prod(shape), dtype=F).reshape(shape) % 3
        due = reference.run(program, {"x": x})["y"]
        for made in (reference.run(better, {"x": x}), session.run({"x": x})):
            assert made["y"].shape == due.shape
            assert made["y"].tobytes() == due.tobytes()


SHAPES = [(n, m) for n in (0, 1, 2, 4, 11, 12) for m in (0, 1, 2, 3)]


@pytest.mark.parametrize("name", TAKEN)
def test_a_gather_of_consecutive_places_is_a_view(name: str) -> None:
    program = program_of(TAKEN[name])
    assert GATHERS.isdisjoint(node.operation for node in gather_as_view(program).nodes)
    check_bits(program, SHAPES)


@pytest.mark.parametrize("name", LEFT)
def test_other_gathers_stay(name: str) -> None:
    program = program_of(LEFT[name])
    assert gather_as_view(program) is program
    check_bits(program, [(n, m) for n, m in SHAPES if name != "of an input's other axis" or n <= m])


def test_a_place_that_is_not_there_is_refused_as_before() -> None:
    session = cpu.prepare(program_of(LEFT["more than there may be"]))
    for n in (12, 13, 12, 13):
        x = np.zeros((n, 1), F)
        if n == 12:
            assert session.run({"x": x})["y"].tobytes() == TABLE.tobytes()
            continue
        with pytest.raises(ShapeError, match=r"12, must be in \[-12, 12\)"):
            session.run({"x": x})


def test_a_large_table_is_not_computed_for_a_few_rows() -> None:
    b = ProgramBuilder("g")
    x = b.input("x", dtypes.float32, (N, M))
    codes = np.ones((1 << 19, 3), np.int8)
    wide = b.apply("cast", b.constant(codes), cast_to=dtypes.float32)
    program = b.build({"y": gathered(b, wide, counted(b, dim.minimum(N, 9))), "z": b.apply("neg", x)})
    assert gather_as_view(program) is program
    assert all(constant.nbytes <= codes.nbytes for constant in optimise(program).constants.values())


def test_rows_of_a_table_are_read_where_they_lie() -> None:
    """Nothing is computed for a new length, and no length has a copy of its own."""
    program = optimise(program_of(computed_rows))
    session = cpu.prepare(program)
    kept = set()
    for n in (3, 5, 12):
        bound = session.bound({"x": np.zeros((n, 2), F)})
        kept |= {constant.address for constant in bound._lowered.constants}
    assert len(kept) == 1


def test_sizes_that_no_view_can_be_computed_of_leave_the_gather() -> None:
    b, wide = ProgramBuilder("g"), sum((dim.symbol(f"s{i}") for i in range(1, 12)), start=dim.symbol("s0"))
    x = b.input("x", dtypes.float32, (3, wide, wide, wide, wide))
    program = b.build({"y": gathered(b, x, b.constant(numbers(0)))})
    with pytest.raises(ShapeError, match="made of more than"):
        dim.product(program.facts["x"].shape)
    assert gather_as_view(program).nodes == program.nodes
