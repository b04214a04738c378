"""Kernel text that finds the global scale: the largest magnitude of everything, or of each line. Start at `text`."""

from __future__ import annotations

from samebits.codegen.vocabulary import Builder, Index, Vector
from samebits.dtypes import DType, float32
from samebits.frozen import dataclass
from samebits.kernels import values
from samebits.kernels.expression import Expression
from samebits.kernels.quantize import magnitudes
from samebits.kernels.walk import Cursor, numbered, stretch

PARTIAL_PARAMETERS = ("partial", "lines", "lines_per_task", "spans", "span")
WHOLE_PARAMETERS = ("partial", "count", "scale")
# Vectors that are walked side by side.
_ABREAST = 8


@dataclass(frozen=True, slots=True)
class Partial:
    """Largest magnitudes of spans of lines.

    Attributes:
        x: The dtype of the numbers.
        finite: Whether infinities and NaN are skipped.
        lie: How x lies along a line, as `walk` names it.
        above: Whether axes lie above the stretches of lines.
    """

    x: DType
    finite: bool
    lie: str
    above: bool


@dataclass(frozen=True, slots=True)
class Whole:
    """The global scale of partial magnitudes by a dialect's expression."""

    x: DType
    expression: Expression


def text(b: Builder, d: Partial) -> None:
    """A task's largest magnitude, as a code, is element `task` of `partial`."""
    codes = magnitudes.codes_of(d.x)
    spans, per_task, n = b.index("spans"), b.index("lines_per_task"), b.index("n")
    for task in b.tasks():
        first, begin = task // spans * per_task, task % spans * b.index("span")
        last, end = b.min(first + per_task, b.index("lines")), b.min(begin + b.index("span"), n)
        partial = b.pointer("partial", codes)
        b.store(partial, task, b.constant(0, codes, 1))
        for number, from_line, to_line in numbered(b, d.above, first, last):
            lines = stretch(b, (d.lie,), (d.x,), d.above, number, from_line, to_line)
            for r in b.loop(lines.begin, lines.end):
                found = _of_line(b, d, lines.row(r), begin, end)
                b.store(partial, task, b.maximum(b.load(partial, task, 1), found))


def _of_line(b: Builder, d: Partial, cursor: Cursor, begin: Index, end: Index) -> Vector:
    """The largest magnitude of positions begin .. end-1 of a line."""
    codes, lanes = magnitudes.codes_of(d.x), b.isa.lanes
    largest = [b.constant(0, codes, lanes) for _ in range(_ABREAST)]

    def more(k: int, i: Index, count: Index | None) -> Vector:
        x = b.bitcast(cursor.load(0, i, lanes, count), codes)
        return b.maximum(largest[k], magnitudes.without_sign(b, x, d.x, d.finite))

    together = _ABREAST * lanes
    whole = begin + (end - begin) // together * together
    for i in b.loop(begin, whole, together, largest):
        for k in range(_ABREAST):
            largest[k] = more(k, i + k * lanes, None)
    for i in b.loop(whole, end, lanes, largest):
        largest[0] = more(0, i, end - i)
    while len(largest) > 1:
        largest = [b.maximum(x, y) for x, y in zip(largest[::2], largest[1::2], strict=True)]
    one = b.slice(largest[0], 0, 1)
    for k in range(1, lanes):
        one = b.maximum(one, b.slice(largest[0], k, 1))
    return one


def whole_text(b: Builder, d: Whole) -> None:
    """Element `task` of `scale` from the `count` partial magnitudes of that task."""
    codes, count = magnitudes.codes_of(d.x), b.index("count")
    for task in b.tasks():
        found = [b.constant(0, codes, 1)]
        for i in b.loop(task * count, (task + 1) * count, 1, found):
            found[0] = b.maximum(found[0], b.load(b.pointer("partial", codes), i, 1))
        (scale,) = values.emit(b, d.expression, [magnitudes.number(b, found[0], d.x)], 1)
        b.store(b.pointer("scale", float32), task, scale)
