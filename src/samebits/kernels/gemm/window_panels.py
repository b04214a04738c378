"""Panels of a right operand whose columns are windows of an image (`contraction.Windows`), packed from where it lies.

Windows of a row lie side by side, so that a row of a panel is a few runs of the image. Start at `emit`.
"""

from __future__ import annotations

from samebits.codegen.vocabulary import Builder, Function, Index, Pointer
from samebits.dtypes import int64
from samebits.kernels.gemm.contraction import Windows
from samebits.kernels.gemm.words import Words

# What a kernel with such an operand takes beside the usual; and in the end, unnamed, `words`.
PARAMETERS = ("across", "channel", "places", "axes")
# Vectors of a row that are copied together: each has its address in a register.
_TOGETHER = 4


def arguments(x: Windows) -> dict[str, int]:
    """The values of `PARAMETERS`."""
    return dict(zip(PARAMETERS, (x.across, x.channel, len(x.places), len(x.rows)), strict=True))


def words(x: Windows) -> tuple[int, ...]:
    """What a kernel reads behind its named arguments: how far on places look, then extents and steps of the axes."""
    return (*x.places, *[word for row in x.rows for word in row])


def emit(b: Builder, of: Words, nr: int, lanes: int) -> Function:
    """A function `(x, further, across, channel, places, axes, first, columns, pc, k, panel, runs)` that packs words pc
    .. pc+k-1, each of one element, of `columns` windows from `first` on; `runs` has room for 2 `nr` numbers.

    Vectors are whole: up to one is read behind what the last window looks at, and written behind the panel. What a run
    writes behind its end the next one covers, in the next row at last. Columns that a panel lacks hold anything.
    """

    def body(
        x: Pointer, further: Pointer, across: Index, channel: Index, places: Index, axes: Index, first: Index,
        columns: Index, pc: Index, k: Index, panel: Pointer, runs: Pointer,
    ) -> None:  # fmt: skip
        end, count = first + columns, [0]
        for row in b.loop(first // across, (end + (across - 1)) // across, carry=count):
            begin = b.max(first, row * across)
            at = _row(b, b.offset(further, places), axes, row) + (begin - row * across)
            for i in b.loop(0, b.min(end, (row + 1) * across) - begin, lanes, carry=count):
                for word, value in enumerate((at + i, begin - first + i)):
                    b.store(runs, count[0] * 2 + word, b.from_index(value, int64))
                count[0] = count[0] + 1
        for c in b.loop(pc // places, (pc + k + (places - 1)) // places):
            above = c * places - pc  # words of the panel above this channel
            image, target = b.offset(x, c * channel), b.offset(panel, above * nr)
            rows = b.max(0, 0 - above), b.min(places, k - above)
            for several in range(1, _TOGETHER + 1):
                for _ in b.when(count[0] == several):
                    ways = [_run(b, image, target, runs, run) for run in range(several)]
                    for place in b.loop(*rows):
                        at = b.load_index(further, place)
                        for source, column in ways:
                            b.store(column, place * nr, of.across(b, source, at, 0, lanes))
            for place in b.loop(rows[0], b.choose(count[0] > _TOGETHER, rows[1], 0)):
                at = b.load_index(further, place)
                for run in b.loop(0, count[0]):
                    source, column = _run(b, image, target, runs, run)
                    b.store(column, place * nr, of.across(b, source, at, 0, lanes))

    return b.function("pack_windows", (of.pointer, int64, *[None] * 8, of.word, int64), body)


def _run(b: Builder, image: Pointer, target: Pointer, runs: Pointer, run: Index) -> tuple[Pointer, Pointer]:
    """Where a run begins, in a channel and in the panel."""
    return b.offset(image, b.load_index(runs, run * 2)), b.offset(target, b.load_index(runs, run * 2 + 1))


def _row(b: Builder, further: Pointer, axes: Index, row: Index) -> Index:
    """How far on the first window of a row looks."""
    carry = [row, 0]
    for a in b.loop(0, axes, carry=carry):
        extent = b.load_index(further, a * 2)
        carry[1] = carry[1] + carry[0] % extent * b.load_index(further, a * 2 + 1)
        carry[0] = carry[0] // extent
    return carry[1]
