"""Register blocks: the largest microtile of each Isa row, and how M is cut into micropanels of nearly equal height.

A microtile of MR rows and nv vectors keeps MR * nv accumulators, nv vectors of B and one broadcast of A in registers.
A made-up row gets the tile of `largest`; measured ones stand in `MEASURED` by (lanes, registers), which is all that the
tile depends on: every engine's step takes one vector of each operand.
"""

from __future__ import annotations

from samebits.codegen.isa import Isa
from samebits.codegen.rules import TILE_LANES, TILE_ROWS
from samebits.frozen import dataclass
from samebits.tape import entry


@dataclass(frozen=True, slots=True)
class Tile:
    """MR rows by nv vectors: NR = nv * lanes columns, which is the width of a packed panel."""

    mr: int
    nv: int

    def nr(self, isa: Isa) -> int:
        """Columns of the tile."""
        return self.nv * isa.lanes

    def fits(self, isa: Isa) -> bool:
        """Whether accumulators, one row of B and one broadcast stay in registers."""
        return self.mr * self.nv + self.nv + 1 <= isa.registers


# GFLOP/s of one Zen 4 core (peak 117) with operands in cache, chunk 128: avx512 12x2 116.7, 8x3 117.4; 14x2 and 9x3
# fit on paper and spill. 12x2 reads least memory an fma and wastes least at the edge of N. avx2 6x2 118.0, 4x3 117.8.
MEASURED = {
    (16, 32): Tile(12, 2),
    (8, 16): Tile(6, 2),
    (4, 32): Tile(8, 3),
    (1, 16): Tile(4, 2),
    (64, 1024): Tile(8, 1),
}


# The best for sums of blocks, where registers suffice (`block_microkernel`).
BLOCKS = Tile(12, 1)
# Rows where a block is a few words (1024 cubed of int8, GFLOP/s of the kernel by 8, 10 and 12 rows: blocks of 16 240,
# 232, 237, of 32 281, 260, 260; of 128, where words do not stay in registers, 327, 321, 334).
SHORT = 8

# Chains that hide the latency of fma. Where registers have no room for so many sums of blocks beside as many
# accumulators, the latter wait in the first cache while a block is summed (Cascade Lake, avx2, 1024 cubed, GFLOP/s by
# 2x2 and 6x2: NVFP4 36 and 48, MXFP8 37 and 56, int8 by 128 35 and 61).
CHAINS = 8

# As many chains as hide the latency of a step where few rows decode what they read, and long runs of memory.
NIBBLES = Tile(1, 4)

# Half as wide, for fewer columns beyond N. Time of 12x2 over that of 12x1, avx512, M = K = 256: float32, N = 48: 1.32,
# N = 144: 1.12, N = 256: 1.00; uint8 x int8, N = 48: 1.30; but pairs of bfloat16, N = 48: 0.99, N = 24: 0.79. On avx2
# 12x1 needs more loads than there is time for: float32, N = 48: 0.83.
NARROW = {(16, 32): Tile(12, 1)}


def largest(isa: Isa) -> Tile:
    """The tile with the fewest loads an fma, (mr + nv) / (mr * nv), among those that fit; the first of equals."""
    candidates = [Tile(mr, nv) for nv in (2, 1, 3, 4) for mr in range(1, 17) if Tile(mr, nv).fits(isa)]
    return min(candidates, key=lambda t: (t.mr + t.nv) / (t.mr * t.nv))


def tile_for(isa: Isa) -> Tile:
    """The tile whose NR is the panel width of the row."""
    return MEASURED.get((isa.lanes, isa.registers)) or largest(isa)


def with_sums_of_blocks(tile: Tile, isa: Isa, most: int | None = None) -> Tile:
    """A tile as wide, so low that registers hold beside its accumulators as many sums of blocks; of `most` rows where
    blocks are of few words, which stay in registers too."""
    mr = (isa.registers - 2 * tile.nv - 2) // (2 * tile.nv)
    return Tile(max(1, min(tile.mr, mr, mr if most is None else most)), tile.nv)


def of_blocks(tile: Tile, isa: Isa) -> Tile:
    """The tile for an engine that sums blocks apart, where the row has the registers for it, else `BLOCKS` as it fits
    them."""
    return tile if with_sums_of_blocks(tile, isa) == tile else with_sums_of_blocks(BLOCKS, isa)


def of_tiles(isa: Isa) -> Tile:
    """Two tiles of rows by two of columns, so that each tile that is read is used twice; as wide as the row's other
    panels where these are whole tiles."""
    nv = tile_for(isa).nv
    return Tile(2 * TILE_ROWS, nv if nv * isa.lanes % TILE_LANES == 0 else TILE_LANES)


def narrow_for(n: int, tile: Tile, lanes: int, isa: Isa, least: int = 0) -> Tile:
    """The narrow tile of the row where with it fewer columns are beyond N, by more than `least`; else the tile."""
    narrow = NARROW.get((isa.lanes, isa.registers), tile)
    saved = -n % (tile.nv * lanes) - -n % (narrow.nv * lanes)
    return narrow if saved > least else tile


@dataclass(frozen=True, slots=True)
class PanelSpan:
    """Panels of B that follow one another, from `start` on, before `stop`."""

    start: int
    stop: int

    @property
    def panels(self) -> int:
        """How many there are."""
        return self.stop - self.start


@dataclass(frozen=True, slots=True)
class Micropanels:
    """M as micropanels: the first `tall` have `heights[0]` rows, the others `heights[-1]`."""

    heights: tuple[int, ...]
    panels: int
    tall: int


def cut_whole(m: int, mr: int) -> Micropanels:
    """M in micropanels of `mr` rows and a lower one for the rest: a tile takes as long with fewer rows."""
    whole, rest = divmod(m, mr)
    if not whole:
        return Micropanels((max(1, rest),), int(rest > 0), int(rest > 0))
    return Micropanels((mr, rest) if rest else (mr,), whole + (rest > 0), whole)


def cut(m: int, mr: int) -> Micropanels:
    """M in as few micropanels as possible and as even as possible.

    Even heights beat full tiles and a low tail: a tail of one row has too few independent chains to hide the latency
    of fma, and from (mr - 1)^2 rows on, every M is cut into heights mr and mr - 1, so two microkernels serve them all.
    """
    if m == 0:
        return Micropanels((mr,), 0, 0)
    panels = -(-m // mr)
    low, tall = divmod(m, panels)
    if tall == 0:
        return Micropanels((low,), panels, panels)
    return Micropanels((low + 1, low), panels, tall)


@entry
def columns(h: int, tile: Tile, isa: Isa) -> int:
    """How many adjacent panels a microtile of h rows covers, a power of two up to 8.

    A low microtile needs more vectors in flight: at least CHAINS.
    """
    panels = 1
    while panels < 8 and Tile(h, tile.nv * panels * 2).fits(isa) and h * tile.nv * panels < CHAINS:
        panels *= 2
    return panels
