"""Elementwise where an input is dense along another axis than the outputs: square tiles, transposed in registers.

Such an input is read by vectors along its own dense axis, the last of the outer ones; everything else as ever. The
edges that do not fill a tile are read one element a lane. Start at `text`.
"""

from __future__ import annotations

from dataclasses import dataclass

from samebits.codegen.vocabulary import Builder, Index, Vector
from samebits.kernels import values
from samebits.kernels.expression import Expression
from samebits.kernels.walk import Cursor


@dataclass(frozen=True, slots=True)
class Turned:
    """What specialises the kernel: as in elementwise, some class being `turned`; and the side of a tile."""

    expression: Expression
    classes: tuple[str, ...]
    outer: int
    side: int


def text(b: Builder, d: Turned) -> None:
    """A task is some rows of tiles."""
    e, side = d.expression, d.side
    cursor = Cursor(b, d.classes, (*e.inputs, *(e.dtype(k) for k in e.outputs)), d.outer)
    extent, tiles_per_task = b.index(f"extent{d.outer - 1}"), b.index("tiles_per_task")
    tiles = (extent + (side - 1)) // side
    for task in b.tasks():
        first = task * tiles_per_task
        for tile in b.loop(first, b.min(first + tiles_per_task, cursor.row_count() // extent * tiles)):
            below = tile % tiles * side
            row = tile // tiles * extent + below
            rest = b.choose(below + side <= extent, cursor.n // side * side, 0)
            for i in b.loop(0, rest, side):
                _tile(b, d, cursor, row, i)
            for edge in b.loop(row, b.min(row + side, row - below + extent)):
                cursor.enter(edge)
                for i in b.loop(rest, cursor.n, side):
                    _row(b, d, cursor, i, cursor.n - i, {})


def _tile(b: Builder, d: Turned, cursor: Cursor, row: Index, i: Index) -> None:
    """`side` rows from `row`, at positions i .. i+side-1 of each."""
    cursor.enter(row)
    places = [k for k in range(len(d.expression.inputs)) if d.classes[k] == "turned"]
    turned = {k: b.transpose([cursor.load_across(k, i + j, d.side) for j in range(d.side)]) for k in places}
    for j in range(d.side):
        cursor.enter(row, [b.index(f"x{k}.{d.outer - 1}") * j for k in range(len(d.classes))])
        _row(b, d, cursor, i, None, {k: found[j] for k, found in turned.items()})


def _row(b: Builder, d: Turned, cursor: Cursor, i: Index, count: Index | None, turned: dict[int, Vector]) -> None:
    """One vector of one row. Loads come before stores; a turned input shares no memory with an output."""
    e = d.expression
    found = values.Values(
        b, e, d.side, lambda k: turned[k] if k in turned else cursor.load(k, i, d.side, count)
    )  # fmt: skip
    results = [found.stored(k) for k in e.outputs]
    for k, result in enumerate(results):
        cursor.store(len(e.inputs) + k, i, result, count)
