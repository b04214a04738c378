"""Reductions over an axis that is not the dense one: lanes lie along the axis that stays, and every lane is one result.

The sum rule is the same as in `fold` (numerics.md section 6): of each result 64 accumulators, which here are rows of a
small table in scratch that a block of the operand is walked past in the order of its memory. Start at `text`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from samebits.codegen.vocabulary import Builder, Index, Pointer, Vector
from samebits.frozen import dataclass
from samebits.kernels import fold, values
from samebits.kernels.expression import REDUCTIONS, Expression
from samebits.kernels.fold import BLOCK, LANES, Accumulator
from samebits.kernels.walk import Cursor, stretch

# Registers of results side by side: with float32 the accumulators of one reduction take half a first-level cache.
_REGISTERS = 4
# Rows, 64 apart, that an accumulator takes between its load and its store.
_ROUNDS = 4

Compute = Callable[[Index], list[Vector]]
"""`(r)`: the values of row r to fold, one a reduction."""


@dataclass(frozen=True, slots=True)
class Columns:
    """What specialises the kernel.

    Attributes:
        expression: What to compute.
        classes: Each operand's class along the columns.
        above: Whether axes lie above the stretches of columns.
        levels: How often the sum rule is applied, for up to 2048 ** levels elements.
    """

    expression: Expression
    classes: tuple[str, ...]
    above: bool
    levels: int


def width(lanes: int) -> int:
    """Columns that are reduced together."""
    return _REGISTERS * lanes


def text(b: Builder, d: Columns) -> None:
    """A task is some groups of columns."""
    e, w = d.expression, width(b.isa.lanes)
    types = (*e.inputs, *(e.dtype(k) for k in e.outputs))
    groups_per_task, n, extent = b.index("groups_per_task"), b.index("n"), b.index("stretch")
    groups = (n + (w - 1)) // w
    for task in b.tasks():
        first = task * groups_per_task
        for group in b.loop(first, b.min(first + groups_per_task, groups * b.index("rows"))):
            row, start = group // groups, group % groups * w
            number, place = (row // extent, row % extent) if d.above else (0, row)
            cursor = stretch(b, d.classes, types, d.above, number, place, place + 1).row(place)
            # Twice, so that only the last columns pay for their count.
            for _ in b.when(start + w <= n):
                _Group(b, d, cursor, start, None).emit()
            for _ in b.when(start + w > n):
                _Group(b, d, cursor, start, n - start).emit()


class _Group:
    """Some columns of one outer row."""

    def __init__(self, b: Builder, d: Columns, cursor: Cursor, start: Index, count: Index | None) -> None:
        self.b, self.d, self.e, self.cursor = b, d, d.expression, cursor
        self.start, self.count, self.width = start, count, width(b.isa.lanes)
        self.n = b.index("reduced")
        first = len(self.e.inputs)
        self.reductions = [first + j for j, node in enumerate(self.e.nodes) if node.op in REDUCTIONS]

    def emit(self) -> None:
        """Reduce, then store what is made of the results."""
        b, e = self.b, self.e
        nodes = [node for node in e.nodes if node.op in REDUCTIONS]
        kinds = [fold.exact(node) for node in nodes]

        def compute(r: Index) -> list[Vector]:
            found = self._values(r, {})
            return [found.get(node.arguments[0]) for node in nodes]

        tables = [b.scratch(kind.dtype, b.index(f"table{j}")) for j, kind in enumerate(kinds)]
        rooms = [b.scratch(kind.dtype, b.index(f"partial{j}")) for j, kind in enumerate(kinds)]
        results = _fold(b, kinds, self.n, self.d.levels, compute, tables, rooms, self.width)
        reduced = dict(zip(self.reductions, map(b.canonical, results), strict=True))
        found = self._values(0, reduced)
        outputs = [found.stored(k) for k in e.outputs]
        for j, result in enumerate(outputs):
            self.cursor.store(len(e.inputs) + j, self.start, result, self.count)

    def _values(self, r: Index, reduced: dict[int, Vector]) -> values.Values:
        """The expression at row r of the reduced axis."""
        b, e = self.b, self.e
        cursor = self.cursor.on("reduced", r)

        def load(k: int) -> Vector:
            node = e.node(k)
            if k in reduced:
                return reduced[k]
            if node is not None:
                return b.splat(b.from_index(self.n, node.dtype), self.width)
            return cursor.load(k, self.start, self.width, self.count)

        counts = {len(e.inputs) + j: False for j, node in enumerate(e.nodes) if node.op == "count"}
        return values.Values(b, e, self.width, load, counts | dict.fromkeys(reduced, False))


def _fold(
    b: Builder, kinds: Sequence[Accumulator], n: Index, levels: int, compute: Compute, tables: Sequence[Pointer],
    rooms: Sequence[Pointer], width: int,
) -> list[Vector]:  # fmt: skip
    """Blocks of 2048 rows, whose results are rows that are folded by the same rule, `levels` times in all."""
    if levels == 1:
        return _block(b, kinds, 0, n, compute, tables, width)
    blocks = (n + (BLOCK - 1)) // BLOCK
    for k in b.loop(0, blocks):
        results = _block(b, kinds, k * BLOCK, b.min(k * BLOCK + BLOCK, n), compute, tables, width)
        for room, result in zip(rooms, results, strict=True):
            b.store(room, k * width, result)  # in place: block k lies behind row k

    def partial(r: Index) -> list[Vector]:
        return [b.load(room, r * width, width) for room in rooms]

    return _fold(b, kinds, blocks, levels - 1, partial, tables, rooms, width)


def _block(
    b: Builder, kinds: Sequence[Accumulator], start: Index, stop: Index, compute: Compute, tables: Sequence[Pointer],
    width: int,
) -> list[Vector]:  # fmt: skip
    """64 lanes, each beginning with its first row and adding every 64th; then halves onto halves where both exist."""
    there = b.min(start + LANES, stop)
    for r in b.loop(start, there):
        for table, v in zip(tables, compute(r), strict=True):
            b.store(table, (r - start) * width, v)
    together = LANES * _ROUNDS
    first = b.min(start + LANES, stop)
    rest = first + (stop - first) // together * together
    for place in b.loop(first, rest, together):
        for r in b.loop(place, place + LANES):
            rows = [compute(r + k * LANES) for k in range(_ROUNDS)]
            _accumulate(b, kinds, tables, (r - place) * width, rows, width)
    for place in b.loop(rest, stop, LANES):
        for r in b.loop(place, b.min(place + LANES, stop)):
            _accumulate(b, kinds, tables, (r - place) * width, [compute(r)], width)
    distance = LANES // 2
    while distance:
        for lane in b.loop(0, b.min(there - start - distance, distance)):
            others = [b.load(table, (lane + distance) * width, width) for table in tables]
            _accumulate(b, kinds, tables, lane * width, [others], width)
        distance //= 2
    return [b.load(table, 0, width) for table in tables]


def _accumulate(
    b: Builder,
    kinds: Sequence[Accumulator],
    tables: Sequence[Pointer],
    at: Index,
    rows: Sequence[Sequence[Vector]],
    width: int,
) -> None:
    """Rows onto a lane, one after the other."""
    for j, (kind, table) in enumerate(zip(kinds, tables, strict=True)):
        found = b.load(table, at, width)
        for row in rows:
            found = kind.step(b, found, row[j])
        b.store(table, at, found)
