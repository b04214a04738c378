"""Kernel text that finds largest magnitudes: of everything, of each line, of each column. Start at `text`."""

from __future__ import annotations

from collections.abc import Sequence

from samebits.codegen.vocabulary import Builder, Index, Pointer, Vector
from samebits.dtypes import DType, float32
from samebits.frozen import dataclass
from samebits.kernels import values
from samebits.kernels.expression import Expression
from samebits.kernels.quantize import magnitudes
from samebits.kernels.quantize.magnitudes import Part
from samebits.kernels.quantize.widths import LINES_ABREAST
from samebits.kernels.walk import Cursor, numbered, stretch

PARTIAL_PARAMETERS = ("partial", "lines", "lines_per_task", "spans", "span")
COLUMNS_PARAMETERS = ("partial", "spans", "span", "each", "runs", "height", "line")
WHOLE_PARAMETERS = ("partial", "count", "scale")
# Vectors that are walked side by side.
_ABREAST = 8


@dataclass(frozen=True, slots=True)
class Partial:
    """Largest magnitudes of spans of lines, or of columns in runs of lines.

    Attributes:
        x: The dtype of the numbers.
        parts: Of which numbers, one magnitude each.
        finite: Whether infinities and NaN are skipped.
        lie: How x lies along a line, as `walk` names it.
        above: Whether axes lie above the stretches of lines.
    """

    x: DType
    parts: tuple[Part, ...]
    finite: bool
    lie: str
    above: bool


@dataclass(frozen=True, slots=True)
class Whole:
    """The global scale of partial magnitudes by a dialect's expression."""

    x: DType
    expression: Expression


def text(b: Builder, d: Partial) -> None:
    """A task's largest magnitudes, as codes, are elements of `partial` from the task's number times their count on."""
    codes = magnitudes.codes_of(d.x)
    spans, per_task, n = b.index("spans"), b.index("lines_per_task"), b.index("n")
    for task in b.tasks():
        first, begin = task // spans * per_task, task % spans * b.index("span")
        last, end = b.min(first + per_task, b.index("lines")), b.min(begin + b.index("span"), n)
        partial = b.offset(b.pointer("partial", codes), task * len(d.parts))
        for k, _ in enumerate(d.parts):
            b.store(partial, k, b.constant(0, codes, 1))
        for number, from_line, to_line in numbered(b, d.above, first, last):
            lines = stretch(b, (d.lie,), (d.x,), d.above, number, from_line, to_line)
            for r in b.loop(lines.begin, lines.end):
                for k, part in enumerate(d.parts):
                    found = of_line(b, lines.row(r), d.x, part, begin, end, d.finite)
                    b.store(partial, k, b.maximum(b.load(partial, k, 1), found))


def of_line(
    b: Builder, cursor: Cursor, dtype: DType, part: Part, begin: Index, end: Index, finite: bool = False
) -> Vector:
    """The largest magnitude of positions begin .. end-1 of a line, as a code."""
    codes, lanes = magnitudes.codes_of(dtype), b.isa.lanes
    largest = [b.constant(0, codes, lanes) for _ in range(_ABREAST)]

    def more(k: int, i: Index, count: Index | None) -> Vector:
        x = b.bitcast(cursor.load(0, i, lanes, count), codes)
        return b.maximum(largest[k], magnitudes.without_sign(b, x, dtype, part, finite))

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


def columns_text(b: Builder, d: Partial) -> None:
    """A task is a span of the columns of some lines: row `task // spans` of `partial` has its largest magnitudes."""
    codes, width = magnitudes.codes_of(d.x), _ABREAST // 2 * b.isa.lanes
    spans, n = b.index("spans"), b.index("n")
    for task in b.tasks():
        run, begin = task // spans, task % spans * b.index("span")
        end = b.min(begin + b.index("span"), n)
        each = b.min(b.index("each"), b.index("height") - run % b.index("runs") * b.index("each"))
        partial = b.offset(b.pointer("partial", codes), run * (n * len(d.parts)))
        for number, from_line, to_line in numbered(b, d.above, run, run + 1):
            lines = stretch(b, (d.lie,), (d.x,), d.above, number, from_line, to_line)
            for r in b.loop(lines.begin, lines.end):
                for k, part in enumerate(d.parts):
                    for i in b.loop(begin, end, width):
                        b.store(partial, k * n + i, b.constant(0, codes, width), end - i)
                    together = each // LINES_ABREAST * LINES_ABREAST
                    for first, stop, count in ((0, together, LINES_ABREAST), (together, each, 1)):
                        for line in b.loop(first, stop, count):
                            cursor = lines.row(r)
                            places = [b.offset(cursor.places[0], (line + j) * b.index("line")) for j in range(count)]
                            some = [Cursor(b, cursor.classes, (place,)) for place in places]
                            _add_columns(b, d, some, part, b.offset(partial, k * n), begin, end)


def _add_columns(
    b: Builder, d: Partial, lines: Sequence[Cursor], part: Part, largest: Pointer, begin: Index, end: Index
) -> None:
    """Take columns begin .. end-1 of some lines into the largest magnitudes."""
    width = _ABREAST // 2 * b.isa.lanes

    def one(i: Index, count: Index | None) -> None:
        found = b.load(largest, i, width, count)
        for x in lines:
            code = b.bitcast(x.load(0, i, width, count), largest.dtype)
            found = b.maximum(found, magnitudes.without_sign(b, code, d.x, part))
        b.store(largest, i, found, count)

    whole = begin + (end - begin) // width * width
    for i in b.loop(begin, whole, width):
        one(i, None)
    for _ in b.when(whole < end):
        one(whole, end - whole)


def whole_text(b: Builder, d: Whole) -> None:
    """Element `task` of `scale` from the `count` partial magnitudes of that task."""
    codes, count = magnitudes.codes_of(d.x), b.index("count")
    for task in b.tasks():
        found = [b.constant(0, codes, 1)]
        for i in b.loop(task * count, (task + 1) * count, 1, found):
            found[0] = b.maximum(found[0], b.load(b.pointer("partial", codes), i, 1))
        (scale,) = values.emit(b, d.expression, [magnitudes.number(b, found[0], d.x)], 1)
        b.store(b.pointer("scale", float32), task, scale)
