"""What specialises a macrokernel: its description, the names of its arguments, the functions of its microtiles.

The text is `macrokernel`'s. Start at `Macrokernel`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping

from samebits.codegen.isa import Isa
from samebits.codegen.rules import TILE_LANES
from samebits.codegen.vocabulary import FunctionSpec
from samebits.dtypes import DType, bfloat16, float32
from samebits.frozen import dataclass
from samebits.kernels.gemm import batch, block_microkernel, microkernel, parts, window_panels
from samebits.kernels.gemm.block_microkernel import BlockMicrotile, Runs
from samebits.kernels.gemm.blocks import SCALE, BlockOperand
from samebits.kernels.gemm.engine import Engine
from samebits.kernels.gemm.epilogue import Epilogue
from samebits.kernels.gemm.microtile import Microtile
from samebits.kernels.gemm.order import CHAIN, SumOrder
from samebits.kernels.gemm.pack import DECODED, PACKED, WIDENED, WINDOWS
from samebits.kernels.gemm.tiles import Micropanels, Tile
from samebits.kernels.gemm.words import Words
from samebits.tape import entry


@dataclass(frozen=True, slots=True)
class Macrokernel:
    """What specialises the text; sizes, strides and the microtiles' functions are arguments.

    `words`: how elements of A and B become words.   `checked`: whether a guarded engine must look at the facts.
    `tile`: the largest microtile, whose NR is the width of a panel.   `chunk`: words of one.   `pitch`: words between
    rows of A within a chunk.   `a`: kind of packing.
    `b`: kind of packing, or PACKED, or DECODED (packed weights, which the microkernel converts), or WIDENED (which that
    of the first micropanel of a block converts), or WINDOWS.
    `accumulates`: the sum starts from what out holds.
    `shared`: what blocks share (`blocks.A_SCALE`, `SCALE`, `ZERO`); zero points only where b is packed here.
    `runs`: how K is cut by blocks whose sums are scaled by `block_microkernel`; None where none are, or b's alone by
    `microkernel`.
    `order`: how a chunk is summed.
    `interleaved`: whether micropanels of A are (`interleaved`), each `pitch` words a row.
    `lies`: whether the first micropanel of a block reads whole panels of B where they lie, and writes their words down
    for the others; only what is left at the end of a row is packed before.
    `four_wide`: as of microtiles.
    """

    engine: Engine
    words: tuple[Words, Words]
    checked: bool
    tile: Tile
    chunk: int
    pitch: int
    a: str
    b: str
    batch_rank: int
    accumulates: bool
    epilogue: Epilogue
    shared: tuple[BlockOperand, ...] = ()
    runs: Runs | None = None
    order: SumOrder = CHAIN
    interleaved: bool = False
    lies: bool = False
    four_wide: bool = False

    @property
    def pointers(self) -> dict[str, DType]:
        """The operands that move with the batch, and what they are read as."""
        right = self.engine.word if self.b == PACKED else self.words[1].pointer
        shared = {x.name: float32 for x in self.shared}
        return {"a": self.words[0].pointer, "b": right, **shared, **self.epilogue.operands}

    @property
    def row_words(self) -> int:
        """Words of a row of A in a chunk, and what runs take from it (`run_values`)."""
        return self.pitch + (self.runs.values(self.chunk) if self.runs else 0)

    @property
    def is_packed(self) -> bool:
        """Whether B is in panels."""
        return self.b in (PACKED, DECODED, WIDENED)

    @property
    def weights(self) -> Words | None:
        """How panels of weights, or rows where they lie, become words as they are read; None where they are words."""
        is_read = self.b in (DECODED, WIDENED) or (self.lies and not self.words[1].is_plain)
        return self.words[1] if is_read else None

    @property
    def keeps(self) -> bool:
        """Whether the first micropanel of a block writes down the words of B that it reads, for the others."""
        return self.b == WIDENED or self.lies

    @property
    def apart(self) -> bool:
        """Whether microtiles have even and odd columns of bfloat16 apart: where panels are pairs of vectors, and sums
        meet nothing of columns before they are finished."""
        is_wide = self.weights is not None and self.weights.source is bfloat16 and not self.lies
        return is_wide and self.tile.nv % 2 == 0 and not (self.accumulates or self.shared)

    @property
    def by_tiles(self) -> bool:
        """Whether A lies in steps of tiles, and all microtiles of a panel are one call (`tile_walk`)."""
        return self.engine.takes_tiles and self.runs is None

    @property
    def waits(self) -> bool:
        """Whether microtiles of all micropanels of a block wait in scratch: between chunks, or for the epilogue."""
        return self.b == WINDOWS or self.by_tiles

    @property
    def may_pass(self) -> bool:
        """Whether finished microtiles may be written past the caches: of tiles, which are a line wide and more."""
        return self.by_tiles and self.epilogue.plain and not self.accumulates

    @property
    def shift(self) -> int:
        """What packing added to integers of A; sums start without its product with B's columns."""
        return self.words[0].offset

    @property
    def engines(self) -> tuple[Engine, ...]:
        """The engine, and what runs where the facts do not allow it."""
        return (self.engine, self.engine.safe) if self.checked else (self.engine,)

    @property
    def parameters(self) -> tuple[str, ...]:
        """The argument names in order. Of the blocks: `height` rows of each of the first `tall` micropanels, `lower`
        fewer of the others; `kc` words, whole chunks; `group` panels that are packed together, and `wide` of them that
        a microtile covers; `asks` of a microtile; `in_scratch`: 1 where C is kept in scratch between blocks of K;
        `passes`: 1 where microtiles are written past the caches."""
        names = ["a", "b", "m_panels", "tall", "height", "lower", "n", "k", "k_begin", "k_end", "kc"]
        names += ["n_step", "m_blocks", "n_blocks", "first", "last", "elements", "group", "wide", "asks", "in_scratch"]
        names += ["a_row", "a_column", "b_row", "b_column", "b_facts", "scratch_b", "scratch_f", "scratch_c"]
        names += [name for engine in range(len(self.engines)) for name in tile_names(engine)]
        names += first_names() if self.keeps else []
        names += [name for x in self.shared for name in x.parameters]
        names += ["scratch_w"] if self.waits else []
        names += window_panels.PARAMETERS if self.b == WINDOWS else []
        names += ["passes"] if self.may_pass else []
        names += parts.PARAMETERS
        return (*names, *self.epilogue.parameters, *batch.parameters(self.batch_rank, self.pointers))

    def functions(self, rows: Micropanels, wide: int, isa: Isa) -> Mapping[str, FunctionSpec]:
        """The arguments that are functions: of tall and low micropanels, of `wide` panels and of one."""
        found = dict[str, FunctionSpec]()
        for names, microtile in _microtiles(self, isa):
            both = [(h, panels) for h in (rows.heights[0], rows.heights[-1]) for panels in (wide, 1)]
            found |= {name: microtile(*size) for name, size in zip(names, both, strict=True)}
        return found


@functools.lru_cache(maxsize=1024)
def _microtiles(d: Macrokernel, isa: Isa) -> list[tuple[list[str], Callable[[int, int], FunctionSpec]]]:
    """Names of functions, and of each kind of microtile the function of one of so many rows and panels."""
    weights = None if d.keeps else d.weights
    kinds = [(tile_names(number), engine, weights, False) for number, engine in enumerate(d.engines)]
    kinds += [(first_names(), d.engine, d.weights, True)] if d.keeps else []
    cached = functools.lru_cache(1024)
    return [
        (names, entry(cached(functools.partial(_microtile, d, isa, engine, weights, keeps))))
        for names, engine, weights, keeps in kinds
    ]


def _microtile(
    d: Macrokernel, isa: Isa, engine: Engine, weights: Words | None, keeps: bool, h: int, panels: int
) -> FunctionSpec:
    if d.runs is not None:
        block = BlockMicrotile(engine, h, d.tile.nv, d.chunk, d.pitch, d.runs, d.accumulates)
        if engine.takes_tiles:
            from samebits.kernels.gemm import tile_block_microkernel  # which few machines run

            return tile_block_microkernel.function(block, isa)
        return block_microkernel.function(block, isa)
    scaled = SCALE in d.shared
    if engine.takes_tiles:
        from samebits.kernels.gemm import tile_microkernel  # which few machines run

        chunk = 0 if engine.exact else d.chunk
        column = tile_microkernel.TiledColumn(engine, h, d.tile.nv, chunk, d.accumulates, d.epilogue.converts)
        return tile_microkernel.function(column, isa)
    in_steps = d.by_tiles
    pitch = TILE_LANES if in_steps else 0 if d.interleaved else d.pitch
    tile = Microtile(
        engine, h, d.tile.nv, panels, pitch, d.accumulates, weights, scaled, d.order, keeps,
        d.apart, d.interleaved, keeps and d.lies, d.four_wide, in_steps=in_steps,
    )  # fmt: skip
    return microkernel.function(tile, isa)


def tile_names(engine: int) -> list[str]:
    """The functions of an engine's microtiles: of tall and low micropanels, each of several panels and of one."""
    safe = "_safe" if engine else ""
    return [f"{height}_{width}{safe}" for height in ("tall", "low") for width in ("wide", "one")]


def first_names() -> list[str]:
    """The same of the first micropanel of a block, which writes down the words of B."""
    return [f"{name}_first" for name in tile_names(0)]
