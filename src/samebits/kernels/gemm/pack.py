"""Packing: a block of a matrix becomes rows of words of constant pitch, and a right operand becomes panels of words.

Both operands use one text: `block[r * pitch + c] = word(r, c)`. For A, r is m and c counts words along K of one chunk
(the pitch is a chunk and a little more, so that rows do not fall into one cache set); for B, r counts words along K and
c is n (the pitch is NR). Which of the operand's strides is 1 decides the kind: `copy` (c contiguous), `transpose` (r
contiguous), else `gather`. What a word is, `words.Words` says. Start at `PackedBlock`; `pack_panels` is the kernel of a
step that packs a whole operand.
"""

from __future__ import annotations

from samebits.codegen.vocabulary import Builder, Function, Index, Pointer, Vector
from samebits.dtypes import DType, float32, int32
from samebits.frozen import dataclass
from samebits.kernels.gemm import batch, blocks, facts
from samebits.kernels.gemm.blocks import ZERO
from samebits.kernels.gemm.contraction import Matrix
from samebits.kernels.gemm.engine import Engine
from samebits.kernels.gemm.words import Words
from samebits.kernels.plan import LINE_BYTES

# Vectors of a row of A that are copied at a time, but where a chunk has fewer.
COPIED_VECTORS = 4
# How weights in panels are packed: each panel is copied, and a column's stride is that between panels over NR.
FROM_PANELS = "from panels"
# What is in panels already: words, or weights that become words as they are read, each time or the first in a block.
PACKED, DECODED, WIDENED = "packed", "decoded", "widened"
# How a panel is packed whose columns are windows of an image (`window_panels`).
WINDOWS = "windows"
_ROWS_AHEAD = 4
# Columns that are turned together: the ways of the first cache, as columns a multiple of 4 KB apart share one set
# (32 x 4096 x 4096 of bfloat16, a weight [N, K] not on a line: 150 GFLOP/s by 16 columns, 163 by 8).
_SIDE = 8


def copied_words(chunk: int, lanes: int) -> int:
    """Words of a row of A that are copied at a time, where `chunk` words follow each other."""
    return min(COPIED_VECTORS, -(-chunk // lanes)) * lanes


def kind(x: Matrix) -> str:
    """How a block with rows and columns as in x is packed."""
    if x.windows is not None:
        return WINDOWS
    if x.column == 1:
        return "copy"
    return "transpose" if x.row == 1 else "gather"


@dataclass(frozen=True, slots=True)
class PackedBlock:
    """A function `(x, row, column, rows, columns, block, pitch)`: extents count elements, K is `rows` or `columns`.

    `width` words of a row are copied at a time where c is contiguous. Each row of the block has room for its words
    rounded up to `width`; the copy kind fills them with zeros.
    """

    words: Words
    kind: str
    width: int
    lanes: int
    k_is_row: bool

    def emit(self, b: Builder, name: str) -> Function:
        """The function."""
        pack = {"copy": self._copy, FROM_PANELS: self._copy, "transpose": self._transpose, "gather": self._gather}[
            self.kind
        ]
        depth = self.words.depth

        def body(
            x: Pointer, row: Index, column: Index, rows: Index, columns: Index, block: Pointer, pitch: Index
        ) -> None:
            k = rows if self.k_is_row else columns
            if self.kind == FROM_PANELS:
                column = 1  # these are of one panel
            whole = k // depth
            extents = (whole, columns) if self.k_is_row else (rows, whole)
            pack(b, x, row, column, *extents, block, pitch)
            if depth > 1:
                for _ in b.when(whole * depth < k):
                    self._last(b, x, row, column, rows, columns, whole, block, pitch)

        return b.function(name, (self.words.pointer, None, None, None, None, self.words.word, None), body)

    def _at(self, r: Index, c: Index, row: Index, column: Index) -> Index:
        """Where the first element of word (r, c) lies."""
        r, c = (r * self.words.depth, c) if self.k_is_row else (r, c * self.words.depth)
        return r * row + c * column

    def _step(self, row: Index, column: Index) -> Index:
        """From an element to the next along K."""
        return row if self.k_is_row else column

    def _line(
        self, b: Builder, x: Pointer, at: Index, row: Index, column: Index, width: int, count: Index | None = None
    ) -> Vector:
        """Words one after the other in the contiguous direction."""
        if self.k_is_row == (self.kind in ("copy", FROM_PANELS)):
            return self.words.across(b, x, at, self._step(row, column), width, count)
        return self.words.along(b, x, at, width, count)

    def _copy(
        self, b: Builder, x: Pointer, row: Index, column: Index, rows: Index, columns: Index, block: Pointer,
        pitch: Index,
    ) -> None:  # fmt: skip
        width = self.width

        def words(r: Index, c: Index, count: Index | None = None) -> None:
            b.store(block, r * pitch + c, self._line(b, x, self._at(r, c, row, column), row, column, width, count))

        whole = columns // width * width
        # A row after the other: what is contiguous streams from memory (256 cubed, cold: 76 to 82 GFLOP/s of float32).
        for r in b.loop(0, rows):
            for c in b.loop(0, whole, width):
                words(r, c)
            for _ in b.when(whole < columns):
                words(r, whole, columns - whole)

    def _transpose(
        self, b: Builder, x: Pointer, row: Index, column: Index, rows: Index, columns: Index, block: Pointer,
        pitch: Index,
    ) -> None:  # fmt: skip
        """Squares; the last square of a row or column is moved back to overlap its neighbour. Of A, whose blocks are
        short runs of memory, the next columns are asked for meanwhile."""
        lanes = min(self.lanes, _SIDE)
        roomy = (rows >= lanes) & (columns >= lanes)
        for _ in b.when(roomy):
            for c in b.loop(0, columns, lanes):
                c0 = b.min(c, columns - lanes)
                for r in b.loop(0, rows, lanes):
                    r0 = b.min(r, rows - lanes)
                    if not self.k_is_row:
                        for i in range(lanes):
                            b.prefetch(x, self._at(r0, c0 + lanes + i, row, column))
                    square = [
                        self._line(b, x, self._at(r0, c0 + i, row, column), row, column, lanes) for i in range(lanes)
                    ]
                    for i, v in enumerate(b.transpose(square)):
                        b.store(block, (r0 + i) * pitch + c0, v)
        for _ in b.when((rows < lanes) | (columns < lanes)):
            self._gather(b, x, row, column, rows, columns, block, pitch)

    def _gather(
        self, b: Builder, x: Pointer, row: Index, column: Index, rows: Index, columns: Index, block: Pointer,
        pitch: Index,
    ) -> None:  # fmt: skip
        step = self._step(row, column)
        for c in b.loop(0, columns):
            for r in b.loop(0, rows):
                word = self.words.across(b, x, self._at(r, c, row, column), step, 1)
                b.store(block, r * pitch + c, word)

    def _last(
        self, b: Builder, x: Pointer, row: Index, column: Index, rows: Index, columns: Index, whole: Index,
        block: Pointer, pitch: Index,
    ) -> None:  # fmt: skip
        """The word along K that the elements do not fill."""
        step, k = self._step(row, column), rows if self.k_is_row else columns
        for i in b.loop(0, columns if self.k_is_row else rows):
            r, c = (whole, i) if self.k_is_row else (i, whole)
            word = self.words.across(b, x, self._at(r, c, row, column), step, 1, None, k - whole * self.words.depth)
            b.store(block, r * pitch + c, word)


def emit_panel(b: Builder, block: PackedBlock, nr: int) -> Function:
    """A function `(b, row, column, k, columns, panel)` that packs one micropanel of B, `nr` columns of which the
    missing ones are zero."""
    pack, words = block.emit(b, "pack_b"), block.words

    def body(x: Pointer, row: Index, column: Index, k: Index, columns: Index, panel: Pointer) -> None:
        for _ in b.when(columns < nr):
            zero = b.constant(0, words.word, nr)
            for s in b.loop(0, (k + (words.depth - 1)) // words.depth):
                b.store(panel, s * nr, zero)
        b.call(pack, x, row, column, k, columns, panel, nr)

    return b.function("pack_panel", (words.pointer, None, None, None, None, words.word), body)


def emit_group(b: Builder, block: PackedBlock, nr: int) -> Function:
    """A function `(b, row, column, k, group, panels, step)` that packs `group` whole micropanels, `step` words apart.

    Rows of B are read across the whole group: a panel at a time would touch one line or two of every row, each in a
    page of its own (M = 4, K = N = 4096: 6.7 GB/s a panel at a time, 9.5 in groups of 8).
    """
    words, depth = block.words, block.words.depth
    one = block.emit(b, "pack_group") if block.kind != "copy" or depth > 1 else None
    line = LINE_BYTES // words.pointer.size_bytes

    def body(x: Pointer, row: Index, column: Index, k: Index, group: Index, panels: Pointer, step: Index) -> None:
        if block.kind != "copy":
            for g in b.loop(0, group):
                b.call(one, b.offset(x, g * nr * column), row, column, k, nr, b.offset(panels, g * step), nr)
            return
        whole = k // depth
        for s in b.loop(0, whole):
            for g in b.loop(0, group):
                at = s * depth * row + g * nr
                for u in range(depth):
                    for j in range(0, nr, line):
                        b.prefetch(x, at + (_ROWS_AHEAD + u) * row + j)
                b.store(panels, g * step + s * nr, words.across(b, x, at, row, nr))
        if depth > 1:
            for _ in b.when(whole * depth < k):
                for g in b.loop(0, group):
                    rest = b.offset(x, whole * depth * row + g * nr)
                    b.call(one, rest, row, column, k - whole * depth, nr, b.offset(panels, g * step + whole * nr), nr)

    return b.function("pack_panels", (words.pointer, None, None, None, None, words.word, None), body)


@dataclass(frozen=True, slots=True)
class PackPanels:
    """A right operand to panels of `nr` columns; `batch_rank` batch dimensions.

    `has_zeros`: zero points are subtracted, which lie in panels themselves (`blocks`).
    """

    engine: Engine
    words: Words
    kind: str
    nr: int
    batch_rank: int
    has_zeros: bool = False

    @property
    def pointers(self) -> dict[str, DType]:
        """The operands and what they are read as."""
        zeros = {ZERO.name: float32} if self.has_zeros else {}
        return {"x": self.words.pointer, "out": self.words.word, **zeros}

    @property
    def parameters(self) -> tuple[str, ...]:
        """`k` counts elements. `row column` strides; `panels` of this launch from `first` on, `group` of them a task,
        in `groups`; `n` columns in all; `facts`: from the first panel to the facts, in words."""
        moving = batch.parameters(self.batch_rank, self.pointers)
        zeros = ZERO.parameters if self.has_zeros else []
        names = ("x", "out", "k", "n", "row", "column", "panels", "group", "groups", "first", "facts")
        return (*names, *zeros, *moving)


def pack_panels(b: Builder, d: PackPanels) -> None:
    """out[batch][panel][k][nr] = words of x[batch][k, panel * nr + j], then the facts; a task is some panels of one
    batch."""
    block = PackedBlock(d.words, d.kind, d.nr, d.engine.lanes(b.isa), k_is_row=True)
    one, several = emit_panel(b, block, d.nr), emit_group(b, block, d.nr)
    look = facts.emit(b, d.engine, d.nr) if d.engine.has_facts else None
    subtract = blocks.emit_zeros(b, d.engine, d.nr) if d.has_zeros else None
    k, n, row, column = b.index("k"), b.index("n"), b.index("row"), b.index("column")
    steps = (k + (d.words.depth - 1)) // d.words.depth
    group, groups, first = b.index("group"), b.index("groups"), b.index("first")
    for task in b.tasks():
        operands = batch.moved(b, d.batch_rank, task // groups, d.pointers)
        p0 = task % groups * group
        end = b.min(p0 + group, b.index("panels"))
        j = (first + p0) * d.nr
        whole = (p0 + group <= b.index("panels")) & (j + group * d.nr <= n)
        for _ in b.when(whole):
            source, target = b.offset(operands["x"], j * column), b.offset(operands["out"], p0 * steps * d.nr)
            b.call(several, source, row, column, k, group, target, steps * d.nr)
        for p in b.loop(p0, b.choose(whole, p0, end)):
            j = (first + p) * d.nr
            source, target = b.offset(operands["x"], j * column), b.offset(operands["out"], p * steps * d.nr)
            b.call(one, source, row, column, k, b.min(n - j, d.nr), target)
        if subtract is not None:
            for p in b.loop(p0, end):
                zeros = ZERO.panel(b, operands[ZERO.name], first + p, d.nr)
                b.call(subtract, b.offset(operands["out"], p * steps * d.nr), 0, steps, zeros, ZERO.words(b))
        if look is not None:
            for p in b.loop(p0, end):
                target = b.cast(b.offset(operands["out"], b.index("facts") + p * d.nr), int32)
                b.call(look, b.offset(operands["out"], p * steps * d.nr), steps, target)
