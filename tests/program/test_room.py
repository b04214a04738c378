"""What a node takes before a run: its results, and what its reference holds meanwhile."""

import numpy as np

from samebits import dtypes
from samebits.kernels.expression import Chain
from samebits.program.builder import ProgramBuilder
from samebits.program.fold import fold_constants
from samebits.program.graph import Node
from samebits.program.room import SMALL, Room
from samebits.runtime import cpu

F = np.float32


def doubled(count: int) -> tuple[Node, ProgramBuilder]:
    """A node that makes `count` float32."""
    b = ProgramBuilder("g")
    b.apply("neg", b.input("x", dtypes.float32, (count,)))
    return b._nodes[-1], b


def test_results_are_counted_until_they_are_given_back() -> None:
    node, b = doubled(2500)
    room = Room(20_000)
    assert [room.take(node, b.facts) for _ in range(3)] == [True, True, False]
    room.give(10_000)
    assert room.take(node, b.facts)
    assert not room.take_bytes(1)


def test_small_results_always_have_room() -> None:
    small, b = doubled(SMALL // 4)
    large, c = doubled(SMALL // 4 + 1)
    room = Room(0)
    assert all(room.take(small, b.facts) for _ in range(100))
    assert not room.take(large, c.facts)


def test_rows_that_are_far_larger_than_their_results_are_left_to_the_run() -> None:
    """A column and a row of 30,000 make 900 million sums, of which 30,000 are kept."""
    b = ProgramBuilder("g")
    chain = Chain()
    x, y = chain.input(dtypes.float32), chain.input(dtypes.float32)
    largest = chain.finish(chain.apply("row_max", chain.apply("add", x, y)))
    row = np.arange(30_000, dtype=F)
    (z,) = b.rows(largest, b.constant(row[:, None]), b.constant(row[None]))
    program = b.build({"z": b.slice(z, (0, 0), (3, 1), (1, 1))})
    assert [node.operation for node in fold_constants(program).nodes] == ["rows", "slice"]
    few = ProgramBuilder("g")
    (z,) = few.rows(largest, few.constant(row[:2000, None]), few.constant(row[None, :2000]))
    made = cpu.prepare(few.build({"z": z})).run({})["z"]
    assert made.tobytes() == (row[:2000, None] + 1999).tobytes()
