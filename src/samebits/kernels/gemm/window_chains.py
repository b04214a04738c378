"""Sums over the windows of an image in which each element is a chain of its own: groups of few filters (numerics.md
section 2).

A task takes a block of windows of an image, for some groups one after the other. It copies what they look at to
scratch, widened, with +0 around it, and along the last axis by phases: in one of them lie, side by side, the elements
that a place of the kernel looks at from neighbouring windows. So a place is an offset, and vectors of windows are
whole. What a block has around it is the same for every group, so +0 is written once a task. Sums go through the
epilogue of products. Integers are widened too, less their zero points, where float32 counts every sum exactly, which is
an int32 then. Start at `text`.
"""

from __future__ import annotations

from collections.abc import Iterator

from samebits.codegen.vocabulary import Builder, Index, Pointer, Vector
from samebits.dtypes import DType, float32, int32, int64
from samebits.frozen import dataclass
from samebits.kernels import convert
from samebits.kernels.gemm.epilogue import Epilogue, Finish
from samebits.kernels.walk import Cursor

__all__ = ["PHASE", "TOGETHER", "WindowChains", "text"]

# Vectors of sums that are computed together: as many chains as hide the latency of an fma on two pipes. What is left of
# a row is computed by half as many.
TOGETHER = 8
# Words of a phase in scratch: where elements of the image begin in it, how many there are, and which is the first.
PHASE = 3
# Rows whose last, partial vectors are copied together: their lanes are counted once for all of them.
_ROWS = 4
# Words of an axis above rows, before the steps of the operands of the epilogue.
_AXIS = 7


@dataclass(frozen=True, slots=True)
class WindowChains:
    """What specialises the kernel.

    Attributes:
        dtype: Elements of the image.
        weights: Elements of the weights: the same, or integers where those are.
        zeros: Whether image and weights have a zero point, as integers may.
        lies: The class of the elements of a phase along a row of the image (`walk.Walk.classes`).
        is_flat: Whether all windows of a block are computed as one row, which goes on with what lies between the last
            window of a row and the first of the next; else vectors that are computed together are of a row each.
        finish: What follows.
    """

    dtype: DType
    weights: DType
    zeros: tuple[bool, bool]
    lies: str
    is_flat: bool
    finish: Epilogue

    @property
    def parameters(self) -> tuple[str, ...]:
        """The kernel's named arguments. Unnamed come behind them: how far on in scratch each place of the kernel looks;
        how many elements of the image behind the begin of a window each phase begins; and for each axis above rows, the
        last first, windows and places along it, steps between them, how far before the image the first window begins,
        the extent of the image, elements from one to the next of the image and of each operand of the epilogue."""
        return (
            # The image, and the weights, which are dense. What a task is: blocks along rows and columns, groups and how
            # many of them a task takes, windows above rows.
            "x0", "w", "row_blocks", "column_blocks", "groups", "each", "above",
            # Windows of a block and in all. Channels and filters of a group; places of the kernel above rows, in all,
            # and of a chunk.
            "block_rows", "block_columns", "rows", "columns", "depth", "filters", "places_above", "places", "chunk",
            # Between windows, and how far before the image the first begins; the extents of the image.
            "row_stride", "column_stride", "rows_before", "columns_before", "height", "width",
            # Elements of the image from one to the next; `inner` is the step within a phase.
            "x0.image", "x0.channel", "x0.row", "x0.column", "x0.inner",
            # What windows look at in scratch: bytes before it, phases of a plane and rows of a phase, elements from a
            # row to the next, vectors in all. Then the bytes before the sums, and elements between rows of them.
            "seen", "phases", "seen_rows", "pitch", "vectors", "sums", "sums_pitch",
            # The zero points, that of the weights with elements from a filter to the next; the bytes before what a
            # filter's weights become.
            *(["zero"] if self.zeros[0] else []), *(["w.zero", "w.zero.filter"] if self.zeros[1] else []),
            *(["weights"] if self.weights.is_integer else []),
            "axes", *[f"{name}.{step}" for name in self.finish.operands for step in ("image", "filter")],
            *self.finish.parameters,
        )  # fmt: skip


def text(b: Builder, d: WindowChains) -> None:
    """A task is a block of windows of some groups of an image."""
    kernel = _Kernel(b, d)
    index = b.index
    for task in b.tasks():
        column, rest = task % index("column_blocks") * index("block_columns"), task // index("column_blocks")
        row, rest = rest % index("row_blocks") * index("block_rows"), rest // index("row_blocks")
        parts = (index("groups") + (index("each") - 1)) // index("each")
        first, rest = rest % parts * index("each"), rest // parts
        above, image = rest % index("above"), rest // index("above")
        kernel.prepare(column)
        for group in b.loop(first, b.min(first + index("each"), index("groups"))):
            kernel.copy(image, group, above, row)
            kernel.sums(image, group, above, row, column)


class _Kernel:
    """The parts of the text, with what all tasks share."""

    def __init__(self, b: Builder, d: WindowChains) -> None:
        self._b, self._d, self._total = b, d, float32 if d.dtype.is_integer else d.finish.total
        kinds = ((name, x if x.is_integer else convert.stored(x)) for name, x in (("x0", d.dtype), ("w", d.weights)))
        self._x, self._w = (b.pointer(name, kind) for name, kind in kinds)
        zero = b.convert(b.load(b.pointer("zero", d.dtype), 0, 1), self._total) if d.zeros[0] else None
        self._zero = None if zero is None else b.splat(zero, b.isa.lanes)
        self._operands = {name: b.pointer(name, dtype) for name, dtype in d.finish.operands.items()}
        self._finish = Finish(b, d.finish, b.isa.lanes)
        self._phases = b.scratch(int64)
        self._seen = b.scratch(self._total, b.index("seen"))
        self._made = b.scratch(d.finish.total, b.index("sums"))

    def prepare(self, column: Index) -> None:
        """Write +0 to scratch, and what of the image each phase has where windows begin with a column."""
        b, lanes = self._b, self._b.isa.lanes
        zero = b.constant(0.0, self._total, lanes)
        for i in b.loop(0, b.index("vectors")):
            b.store(self._seen, i * lanes, zero)
        stride, width, length = b.index("column_stride"), b.index("width"), b.index("pitch")
        begin = column * stride - b.index("columns_before")
        for phase in b.loop(0, b.index("phases")):
            at = begin + b.load_index(b.further(), b.index("places") + phase)
            first = b.max(0 - at + (stride - 1), 0) // stride
            count = b.min((b.max(width - at, 0) + (stride - 1)) // stride, length) - first
            for word, value in enumerate((first, count, at + first * stride)):
                b.store(self._phases, phase * PHASE + word, b.from_index(value, int64))

    def copy(self, image: Index, group: Index, above: Index, row: Index) -> None:
        """Copy what a group's windows look at."""
        b, index = self._b, self._b.index
        top = row * index("row_stride") - index("rows_before")
        x = b.offset(self._x, image * index("x0.image") + group * index("depth") * index("x0.channel"))
        for place in b.loop(0, index("places_above")):
            at, height = self._looked_at(place, above)
            begin, end = b.max(0 - top, 0), b.min(height - top, index("seen_rows"))
            for channel in b.loop(0, index("depth")):
                plane = (place * index("depth") + channel) * index("phases")
                source = b.offset(x, channel * index("x0.channel") + at + top * index("x0.row"))
                for phase in b.loop(0, index("phases")):
                    self._copy_phase(source, plane + phase, phase, begin, end)

    def _looked_at(self, place: Index, above: Index) -> tuple[Index, Index]:
        """How far on in the image a window looks by a place of the kernel above rows, and how many rows are there: none
        beside the image."""
        b, steps = self._b, _AXIS + len(self._operands)
        words = b.offset(b.further(), b.index("places") + b.index("phases"))
        carry = [place, above, 0, b.index("height")]
        for axis in b.loop(0, b.index("axes"), carry=carry):
            windows, places, stride, dilation, before, extent, step = (
                b.load_index(words, axis * steps + word) for word in range(_AXIS)
            )
            at = carry[1] % windows * stride + carry[0] % places * dilation - before
            carry[3] = b.choose((at >= 0) & (at < extent), carry[3], 0)
            carry[2] = carry[2] + at * step
            carry[0], carry[1] = carry[0] // places, carry[1] // windows
        return carry[2], carry[3]

    def _copy_phase(self, source: Pointer, plane: Index, phase: Index, begin: Index, end: Index) -> None:
        """One phase of some rows: whole vectors, then what is left of each."""
        b, lanes, pitch = self._b, self._b.isa.lanes, self._b.index("pitch")
        first, count, at = (b.load_index(self._phases, phase * PHASE + word) for word in range(PHASE))
        whole = b.max(count, 0) // lanes * lanes
        start = b.offset(source, at * b.index("x0.column"))
        target = b.offset(self._seen, plane * b.index("seen_rows") * pitch + first)

        def row(line: Index) -> tuple[Cursor, Pointer]:
            cursor = Cursor(b, (self._d.lies,), (b.anchor(b.offset(start, line * b.index("x0.row"))),))
            return cursor, b.anchor(b.offset(target, line * pitch))

        for line in b.loop(begin, b.choose(whole > 0, end, begin)):
            x, to = row(line)
            for i in b.loop(0, whole, lanes):
                b.store(to, i, self._widened(x.load(0, i, lanes), self._d.dtype, self._zero))
        for i in b.loop(whole, count, lanes):
            for line in b.loop(begin, end, _ROWS):
                # Rows behind the last one are that one again.
                several = [row(b.min(line + k, end - 1)) for k in range(_ROWS)]
                for x, to in several:
                    widened = self._widened(x.load(0, i, lanes, count - i), self._d.dtype, self._zero)
                    b.store(to, i, widened, count - i)

    def _widened(self, x: Vector, dtype: DType, zero: Vector | None = None) -> Vector:
        """Elements as they are summed."""
        if dtype.is_integer:
            x = self._b.convert(x, self._total)
            return x if zero is None else self._b.sub(x, zero)
        return x if x.dtype is self._total else convert.decode(self._b, x, dtype)

    def _weights(self, filter: Index) -> Pointer:
        """Those of a filter; integers as they are summed, in scratch."""
        b, places, dtype = self._b, self._b.index("places"), self._d.weights
        w = b.offset(self._w, filter * places)
        if not dtype.is_integer:
            return w
        zero, into = None, b.scratch(self._total, b.index("weights"))
        if self._d.zeros[1]:
            own = b.load(b.pointer("w.zero", dtype), filter * b.index("w.zero.filter"), 1)
            zero = b.splat(b.convert(own, self._total), b.isa.lanes)
        for i in b.loop(0, places, b.isa.lanes):
            b.store(into, i, self._widened(b.load(w, i, b.isa.lanes, places - i), dtype, zero))
        return into

    def sums(self, image: Index, group: Index, above: Index, row: Index, column: Index) -> None:
        """Compute a block of a group, and finish it."""
        b, index = self._b, self._b.index
        rows, columns = (b.min(index(f"block_{x}"), index(x) - at) for x, at in (("rows", row), ("columns", column)))
        for number in b.loop(0, index("filters")):
            filter = group * index("filters") + number
            w = self._weights(filter)
            if self._d.is_flat:
                length, wide = (rows - 1) * index("sums_pitch") + columns, TOGETHER * b.isa.lanes
                whole = length // wide * wide
                for x in b.loop(0, whole, wide):
                    self._several(w, [0], x, TOGETHER)
                for x in b.loop(whole, length, wide // 2):
                    self._several(w, [0], x, TOGETHER // 2)
            else:
                for y in b.loop(0, rows, TOGETHER):
                    # Rows behind the last one are that one again.
                    lines = [b.min(y + i, rows - 1) for i in range(TOGETHER)]
                    for x in b.loop(0, columns, b.isa.lanes):
                        self._several(w, lines, x, 1)
            places = dict(zip(self._operands, self._places(image, filter, above), strict=True))
            self._finish.call(places, self._made, index("sums_pitch"), row, column, rows, columns)

    def _places(self, image: Index, filter: Index, above: Index) -> Iterator[Pointer]:
        """Where the windows of a filter begin in the operands of the epilogue."""
        b, steps = self._b, _AXIS + len(self._operands)
        words = b.offset(b.further(), b.index("places") + b.index("phases"))
        carry = [above, *[0 for _ in self._operands]]
        for axis in b.loop(0, b.index("axes"), carry=carry):
            place = carry[0] % b.load_index(words, axis * steps)
            for k in range(len(self._operands)):
                carry[1 + k] = carry[1 + k] + place * b.load_index(words, axis * steps + _AXIS + k)
            carry[0] = carry[0] // b.load_index(words, axis * steps)
        for (name, start), at in zip(self._operands.items(), carry[1:], strict=True):
            yield b.offset(start, at + image * b.index(f"{name}.image") + filter * b.index(f"{name}.filter"))

    def _several(self, w: Pointer, lines: list[Index], column: Index, along: int) -> None:
        """The sums of `along` vectors of windows from a column on, in each of some rows."""
        b, lanes, index = self._b, self._b.isa.lanes, self._b.index
        looks = [b.anchor(b.offset(self._seen, y * (index("row_stride") * index("pitch")) + column)) for y in lines]
        vectors = [(look, v * lanes) for look in looks for v in range(along)]
        zero = b.constant(0.0, self._total, lanes)
        totals: list[Vector] = [zero] * len(vectors)
        for first in b.loop(0, index("places"), index("chunk"), carry=totals):
            sums: list[Vector] = [zero] * len(vectors)
            for place in b.loop(first, b.min(first + index("chunk"), index("places")), carry=sums):
                at = b.load_index(b.further(), place)
                each = b.load(w, place, 1)
                weight = b.splat(each if each.dtype is self._total else self._widened(each, self._d.weights), lanes)
                for k, (look, v) in enumerate(vectors):
                    sums[k] = b.fma(weight, b.load(look, at + v, lanes), sums[k])
            for k, x in enumerate(sums):
                totals[k] = b.add(totals[k], x)
        for k, total in enumerate(totals):
            at = lines[k // along] * index("sums_pitch") + column + k % along * lanes
            b.store(self._made, at, b.canonical(total) if total.dtype is self._made.dtype else b.convert(total, int32))
