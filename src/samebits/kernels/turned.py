"""Elementwise where an input is dense along another axis than the outputs: square tiles, transposed in registers.

Such an input is read by vectors along its own dense axis, which is the stretch; everything else as ever. The
edges that do not fill a tile are read one element a lane. Start at `text`.
"""

from __future__ import annotations

from samebits.codegen.vocabulary import Builder, Index, Vector
from samebits.frozen import dataclass
from samebits.kernels import values
from samebits.kernels.expression import Expression
from samebits.kernels.walk import Cursor, stretch


@dataclass(frozen=True, slots=True)
class Turned:
    """What specialises the kernel: as in elementwise, some class being `turned`; and the side of a tile."""

    expression: Expression
    classes: tuple[str, ...]
    above: bool
    side: int


def text(b: Builder, d: Turned) -> None:
    """A task is some rows of tiles."""
    e, side, n, extent = d.expression, d.side, b.index("n"), b.index("stretch")
    types = (*e.inputs, *(e.dtype(k) for k in e.outputs))
    tiles_per_task, tiles_per_stretch = b.index("tiles_per_task"), (extent + (side - 1)) // side
    for task in b.tasks():
        first = task * tiles_per_task
        for tile in b.loop(first, b.min(first + tiles_per_task, b.index("tiles"))):
            below = tile % tiles_per_stretch * side
            end = b.min(below + side, extent)
            found = stretch(b, d.classes, types, d.above, tile // tiles_per_stretch, below, end)
            rest = b.choose(below + side <= extent, n // side * side, 0)
            above = found.row(below)
            for i in b.loop(0, rest, side):
                _tile(b, d, above, i)
            # Rows of whole tiles have no edge; entering them would cost as much as a tile.
            for r in b.loop(below, b.choose(rest < n, end, below)):
                cursor = found.row(r)
                for i in b.loop(rest, n, side):
                    _row(b, d, cursor, i, n - i, {})


def _tile(b: Builder, d: Turned, first: Cursor, i: Index) -> None:
    """`side` rows from the first on, at positions i .. i+side-1 of each."""
    places = [k for k in range(len(d.expression.inputs)) if d.classes[k] == "turned"]
    turned = {k: b.transpose([first.load_across(k, i + j, d.side) for j in range(d.side)]) for k in places}
    for j in range(d.side):
        # By constant multiples of strides, which are made once for all tiles.
        _row(b, d, first.on("stretch", j), i, None, {k: vectors[j] for k, vectors in turned.items()})


def _row(b: Builder, d: Turned, cursor: Cursor, i: Index, count: Index | None, turned: dict[int, Vector]) -> None:
    """One vector of one row. Loads come before stores; a turned input shares no memory with an output."""
    e = d.expression
    found = values.Values(
        b, e, d.side, lambda k: turned[k] if k in turned else cursor.load(k, i, d.side, count)
    )  # fmt: skip
    results = [found.stored(k) for k in e.outputs]
    for k, result in enumerate(results):
        cursor.store(len(e.inputs) + k, i, result, count)
