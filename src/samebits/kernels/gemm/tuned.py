"""What `samebits tune` measures on a machine: an engine's tile and cache sizes, and the engine that two formats take.

Such rows are part of a `machine.Machine`, an argument of `plan`, which therefore stays pure; `samebits.tuning` keeps
them in a file. No row changes a bit. Start at `Tuned`.
"""

from __future__ import annotations

from samebits.codegen.isa import Isa
from samebits.frozen import dataclass
from samebits.kernels.gemm.engine import Engine
from samebits.kernels.gemm.tiles import Tile


@dataclass(frozen=True, slots=True)
class Sizes:
    """What cache blocks may take, in bytes and in words of 32 bits along K (half as many of 64 bits).

    Attributes:
        a_bytes: A block of A, which stays in the second cache (1 MB here, 512 KB on smaller cores) beside a micropanel
            of B and a tile of C. It is larger where columns of B are packed on the way (`machine.Caches.down_blocks`).
        kc: Longer means fewer visits to C, which miss where its rows are a power of two apart: at 2048 cubed 101, 104
            and 106 GFLOP/s for 512, 1024 and 2048 (avx2 101, 102 and 106; float64 46, 48 and 50) with a block of A of
            equal size, if each micropanel of it asks for its part of the next panel of B (`Choice.asks`).
        kc_few_rows: With few rows B streams from memory, and a panel should be left late: M = 1 26 GB/s with 1024, 28
            with 4096. So it should where columns of B are packed on the way.
        staged_bytes: What panels of B that a plan packs may take; more of them are packed and used in rounds.
    """

    a_bytes: int = 384 * 1024
    kc: int = 2048
    kc_few_rows: int = 4096
    staged_bytes: int = 64 * 1024 * 1024


SHIPPED = Sizes()
# Processors with tiles have 2 MB of second cache, of which a block of A takes half. The longer KC, the fewer visits to
# C, and the fewer rows for each panel of B (Emerald Rapids, 4096 cubed of bfloat16, of torch's speed by KC 1024 and 256
# rows, and by 2048 and 128: chunk 128 1.32 and 1.46, chunk 512 1.50 and 1.66).
OF_TILES = Sizes(a_bytes=1024 * 1024, kc=2048)
# Where tiles sum scaled blocks, A and the scales come in pieces that stay near (Emerald Rapids, 1024 cubed of int8 by
# 64 and by 128, of the speed of vectors in three runs: 256 rows and KC 1024 1.3 and 1.4, 128 and 256 1.6 and 1.5).
OF_TILED_BLOCKS = Sizes(a_bytes=128 * 1024, kc=256)


@dataclass(frozen=True, slots=True)
class Tuned:
    """What the engine called `engine` uses."""

    engine: str
    tile: Tile
    sizes: Sizes = SHIPPED

    def nr(self, engine: Engine, isa: Isa) -> int:
        """Columns of a panel."""
        return self.tile.nv * engine.lanes(isa)


@dataclass(frozen=True, slots=True)
class Preferred:
    """Products of the formats called `a` and `b` take the engine called `engine` where it can be had."""

    a: str
    b: str
    engine: str
