"""Tuned rows: the tile and the cache sizes that one engine uses on one Isa row, shipped or measured on this machine.

A row is an argument of `plan`, which therefore stays pure; `samebits.tuning` keeps measured ones in a file. No row
changes a bit. Start at `row_for`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from samebits.codegen.isa import Isa
from samebits.dtypes import float32
from samebits.kernels.gemm.engine import Engine
from samebits.kernels.gemm.tiles import Tile, tile_for


@dataclass(frozen=True, slots=True)
class Sizes:
    """What cache blocks may take, in bytes and in words of 32 bits along K (half as many of 64 bits).

    Attributes:
        a_bytes: A block of A, which stays in the second cache (1 MB here, 512 KB on smaller cores) beside a micropanel
            of B and a tile of C.
        kc: Longer means fewer visits to C, which miss where its rows are a power of two apart: at 2048 cubed 101.0,
            102.7 and 104.1 GFLOP/s for 256, 512 and 1024 with a block of A of equal size. But a block of A needs 8
            micropanels, or the next panel of B is not all asked for: float64 at 1024 cubed 47.5 with 4 of them, 52.3.
            So lower tiles have longer ones (`sizes_for`; avx2 at 2048 cubed 98.7 and 100.5 for 1024 and 2048).
        kc_few_rows: With few rows B streams from memory, and a panel should be left late: M = 1 26 GB/s with 1024, 28
            with 4096.
        staged_bytes: All of B in panels is one step up to this size; beyond it, B is packed and used in rounds.
    """

    a_bytes: int = 384 * 1024
    kc: int = 1024
    kc_few_rows: int = 4096
    staged_bytes: int = 64 * 1024 * 1024


_MICROPANELS, _KC_STEP, _KC_MOST = 8, 256, 4096


def sizes_for(tile: Tile) -> Sizes:
    """What is used with a tile where nothing was measured."""
    sizes = Sizes()
    words = sizes.a_bytes // (float32.size_bytes * _MICROPANELS * tile.mr)
    return replace(sizes, kc=min(_KC_MOST, max(1, words // _KC_STEP) * _KC_STEP))


@dataclass(frozen=True, slots=True)
class Tuned:
    """What the engine called `engine` uses."""

    engine: str
    tile: Tile
    sizes: Sizes = Sizes()

    def nr(self, engine: Engine, isa: Isa) -> int:
        """Columns of a panel."""
        return self.tile.nv * engine.lanes(isa)


def shipped(engine: Engine, isa: Isa) -> Tuned:
    """What is used where nothing was measured."""
    return Tuned(engine.name, tile_for(isa), sizes_for(tile_for(isa)))


def row_for(engine: Engine, isa: Isa, tuned: Sequence[Tuned], nr: int | None = None) -> Tuned:
    """The engine's row among `tuned`, else the shipped one; where panels exist, the one whose width `nr` they have.

    Panels of neither width are refused by the plan.
    """
    default = shipped(engine, isa)
    row = next((row for row in tuned if row.engine == engine.name), default)
    return default if nr not in (None, row.nr(engine, isa)) else row
