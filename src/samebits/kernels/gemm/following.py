"""Following: what of B is read after a group of panels, and which of it each chunk of a microtile asks for.

All of it is then in the second cache in time (2048 cubed, packed: avx512 109.8 to 111.6, avx2 104.7 to 108.4 GFLOP/s;
32 x 4096 x 4096 of bfloat16, a weight [N, K] packed on the way: 136 to 148; few micropanels ask for more each,
`Choice.asks`). Start at `Asking.following`.
"""

from __future__ import annotations

from samebits.codegen.vocabulary import Builder, Index, Pointer
from samebits.dtypes import uint8
from samebits.frozen import dataclass
from samebits.kernels.gemm.pack import DECODED, FROM_PANELS, PACKED, WIDENED, WINDOWS

__all__ = ["Asking", "Following"]


@dataclass(frozen=True, slots=True)
class Following:
    """What follows a group of panels: `runs` runs of memory from `start` on, which begin `run` bytes after each other.
    `calls` chunks ask for one run, which begin `part` bytes after each other, and each turn of a chunk for what begins
    `line` bytes after that of the turn before."""

    start: Pointer
    runs: Index
    calls: Index
    run: Index
    part: Index
    line: Index


@dataclass(frozen=True, slots=True)
class Asking:
    """How the microkernels of one kernel ask for B.

    `kind`: how B is packed (`pack`).   `nr`: columns of a panel.   `depth`: elements of a word.   `turns`: those of the
    microkernel's loop in a chunk.   `width`: bytes that each of them asks for.
    """

    kind: str
    nr: int
    depth: int
    turns: Index
    width: Index

    def following(
        self, b: Builder, x: Pointer, j: Index, size: Index, part: tuple[Index, Index], pc: Index, kc: Index
    ) -> Following:
        """What is read after `size` panels from j, words pc .. pc+kc-1 of x: the next ones of `part`, panels from its
        first to before its last, or that first one's next KC; packed or as it lies."""
        first, last = part
        nr, size_bytes = self.nr, x.dtype.size_bytes
        more, columns = j + size < last, size * nr
        if self.kind in (PACKED, DECODED, WIDENED):
            panel = b.index("k") * nr
            at = b.choose(more, (j + size) * panel + pc * nr, first * panel + (pc + kc) * nr)
            start, run = b.cast(b.offset(x, at), uint8), kc * nr * size_bytes
            if self.kind == PACKED:
                return Following(start, self._times(run, self.along), 1, self.along, 0, self.width)
            return self._runs(b, start, size, run, panel * size_bytes)
        if self.kind == WINDOWS:  # what is read next is not far
            return Following(b.cast(x, uint8), 0, 1, 0, 0, 0)
        row, column, k = b.index("b_row"), b.index("b_column"), kc * self.depth
        above = pc * self.depth * row
        at = b.choose(more, above + (j + size) * nr * column, above + k * row + first * nr * column)
        start = b.cast(b.offset(x, at), uint8)
        if self.kind == "copy":
            line, width = row * size_bytes, self.width
            calls = b.max(k // self.turns, 1)
            return Following(start, self._times(columns * size_bytes, width), calls, width, self.turns * line, line)
        if self.kind == FROM_PANELS:
            return self._runs(b, start, size, k * nr * size_bytes, column * nr * size_bytes)
        return self._runs(b, start, columns, k * size_bytes, column * size_bytes)

    def _runs(self, b: Builder, start: Pointer, runs: Index, run: Index, step: Index) -> Following:
        """Runs of `run` bytes, `step` apart; few calls ask for one where it is short."""
        return Following(start, runs, b.max(self._times(run, self.along), 1), step, self.along, self.width)

    def asked(self, b: Builder, x: Following, call: Index) -> tuple[Pointer, Index]:
        """Where call number `call` begins to ask, and how far it goes every turn."""
        run = call // x.calls
        return b.offset(x.start, b.min(run, x.runs) * x.run + (call - run * x.calls) * x.part), x.line

    @property
    def along(self) -> Index:
        """Bytes that the turns of a call ask for."""
        return self.turns * self.width

    @staticmethod
    def _times(size: Index, of: Index) -> Index:
        """How many of so many bytes have `size` in all."""
        return (size + (of - 1)) // of

    def each(self, b: Builder, x: Following) -> Index:
        """How far beyond a call the next one begins to ask, where they are fewer than ask for a part of each run."""
        return x.part if self.kind in (WINDOWS, "copy") else b.choose(x.calls > 1, x.part, x.run)
