"""Following: what of B is read after a group of panels, and which of it each call of the microkernel asks for.

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
    """What follows a group of panels: `runs` of `run` bytes, `step` apart, from `start`; `calls` of the microkernel ask
    for one run (for a part of each, where they are short)."""

    start: Pointer
    runs: Index
    run: Index
    step: Index
    calls: Index


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
            return self._runs(b, b.cast(b.offset(x, at), uint8), size, kc * nr * size_bytes, panel * size_bytes)
        if self.kind == WINDOWS:  # what is read next is not far
            return Following(b.cast(x, uint8), 0, 0, 0, 1)
        row, column, k = b.index("b_row"), b.index("b_column"), kc * self.depth
        above = pc * self.depth * row
        at = b.choose(more, above + (j + size) * nr * column, above + k * row + first * nr * column)
        start = b.cast(b.offset(x, at), uint8)
        if self.kind == "copy":
            return self._runs(b, start, k, columns * size_bytes, row * size_bytes)
        if self.kind == FROM_PANELS:
            return self._runs(b, start, size, k * nr * size_bytes, column * nr * size_bytes)
        return self._runs(b, start, columns, k * size_bytes, column * size_bytes)

    def _runs(self, b: Builder, start: Pointer, runs: Index, run: Index, step: Index) -> Following:
        """What follows, with how many calls ask for a run: the turns of one ask for `turn` bytes."""
        turn = self.turns * self.width
        calls = b.max(runs // self.turns if self.kind == "copy" else (run + (turn - 1)) // turn, 1)
        return Following(start, runs, run, step, calls)

    def asked(self, b: Builder, x: Following, call: Index) -> tuple[Pointer, Index]:
        """Where call number `call` begins to ask, and how far it goes every turn."""
        turns, width = self.turns, self.width
        if self.kind == WINDOWS:
            return x.start, 0
        if self.kind == PACKED:
            return b.offset(x.start, b.min(call * (turns * width), x.run)), width
        if self.kind == "copy":
            part = call // x.calls
            row = (call - part * x.calls) * turns * x.step
            return b.offset(x.start, row + b.min(part * width, x.run)), x.step
        n = call // x.calls
        at = b.min(n, x.runs) * x.step + (call - n * x.calls) * (turns * width)
        return b.offset(x.start, at), width

    def each(self, b: Builder, x: Following) -> Index:
        """How far beyond a call the next one begins to ask, where they are fewer than ask for a part of each run."""
        if self.kind == WINDOWS:
            return 0
        along = self.turns * self.width
        if self.kind == "copy":
            return self.turns * x.step
        return along if self.kind == PACKED else b.choose(x.calls > 1, along, x.step)
