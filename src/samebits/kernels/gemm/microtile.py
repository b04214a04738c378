"""What specialises a microtile, and how far its loop over K goes in a turn. Start at `Microtile`.

`microkernel` has the contract and the texts, `microtile_operands` what these read.
"""

from __future__ import annotations

from samebits.codegen.isa import Isa
from samebits.frozen import dataclass
from samebits.kernels.gemm.engine import Engine
from samebits.kernels.gemm.machine import WIDE_LANES
from samebits.kernels.gemm.order import CHAIN, SumOrder
from samebits.kernels.gemm.words import Words

# Four steps of k a turn: the loop's own instructions cost nothing then, and the code of a 12 x 32 tile stays in the
# micro-operation cache.
UNROLL = 4
# Lines that a turn asks for at most.
MOST_ASKS = 4


@dataclass(frozen=True, slots=True)
class Microtile:
    """What specialises the text: `h` rows by `panels` micropanels of `nv` vectors, by one engine's steps; `pitch` words
    from one row of A to the next, which depends on how long chunks are and on nothing else.

    `accumulates`: whether a sum may begin as -0.
    `weights`: how the panels' elements become words as they are read; None where they are words.
    `scaled`: whether blocks along k have scales.
    `order`: how a chunk is summed.
    `keeps`: whether the words that are read, or that weights become, are written down as a panel too, for other
    microtiles, which take them as they are.
    `apart`: whether of two vectors of columns one has the even columns and the other the odd ones until the sum is
    finished, also where it and words are kept meanwhile: then two operations widen both vectors of bfloat16, not four
    (Emerald Rapids, one thread, time without over with: 1 x 768 x 768 1.29, 24 x 768 x 768 1.05, 512 x 768 x 768 1.01).
    `interleaved`: whether A lies so; `pitch` does not matter then.
    `lies`: whether B is one panel of an operand that is not packed; `weights` then says how its elements become words.
    `four_wide`: whether instructions of a turn are saved (`machine.Machine.four_wide`).
    `in_steps`: whether A lies in steps of tiles (`tile_blocks`), each a block of the order; `pitch` is that of a step.
    """

    engine: Engine
    h: int
    nv: int
    panels: int
    pitch: int
    accumulates: bool = False
    weights: Words | None = None
    scaled: bool = False
    order: SumOrder = CHAIN
    keeps: bool = False
    apart: bool = False
    interleaved: bool = False
    lies: bool = False
    four_wide: bool = False
    in_steps: bool = False

    @property
    def vectors(self) -> int:
        """Vectors of a row of C."""
        return self.nv * self.panels

    def asks_for_sums(self, isa: Isa) -> bool:
        """Whether turns ask for the lines of what sums are added to and become, one each: in vectors of 64 bytes, where
        A is interleaved, or where words are of one element and many rows use one panel (Emerald Rapids, 768 x 128 x
        768, speed over that of asking for all at once: 1.03, by vectors of 32 bytes 0.95)."""
        is_plain = self.engine.depth == 1 and not self.order.block and self.weights is None
        is_tall = self.interleaved or (is_plain and self.panels == 1 and self.h > 2)
        return is_tall and isa.lanes >= WIDE_LANES
