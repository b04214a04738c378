"""Machines: what is fast on a processor, one frozen row each, by LLVM's name for it.

An Isa row says what may run; a machine's row says what pays: which engine the formats of a product take, what blocks
may take of the caches, when memory is what a product waits for. Constants of instructions and registers are no
machine's: they stand where they are used, as do those of kernel text. A row is an argument of `plan`, which therefore
stays pure, and the plan prints its name. No row changes a bit. Start at `Machine` and `ROWS`; `current` is this
machine's, and `samebits.tuning` adds to it what was measured here.
"""

from __future__ import annotations

import functools

from samebits.codegen import isa as isas
from samebits.codegen.isa import Isa
from samebits.codegen.rules import TILE_LANES
from samebits.dtypes import DType
from samebits.frozen import dataclass, replace
from samebits.kernels.gemm.engine import FMA32, HALVES, NIBBLES, PAIRS, Engine
from samebits.kernels.gemm.engine import ROWS as ENGINES
from samebits.kernels.gemm.tiles import BLOCKS, Tile, of_blocks, of_tiles, tile_for
from samebits.kernels.gemm.tiles import NIBBLES as NIBBLES_TILE
from samebits.kernels.gemm.tuned import OF_TILED_BLOCKS, OF_TILES, SHIPPED, Preferred, Sizes, Tuned

# Elements of 32 bits in a vector of 64 bytes.
WIDE_LANES = 16


@dataclass(frozen=True, slots=True)
class Caches:
    """What products may take of a machine's caches beside the blocks of `Sizes`, in bytes unless a name says rows.

    All figures are of one Zen 4 core with 1 MB of second cache, and a third of 32 MB.

    Attributes:
        near: A right operand up to so large is in a cache near the core, so that its columns are better walked side by
            side (`strip`): 768 x 768 at M = 1, GB/s: 51 by two chunks, 57 by three groups of columns; from memory
            48 and 21.
        shared: A right operand that is larger comes from memory, and the faster the fewer runs it is read in
            (4096 x 4096 at M = 1: 31 GB/s by one chunk at a time, 24 by two).
        kept: What a task keeps of C in scratch is visited once a block of K and asked for ahead: the third cache will
            do; what it has no room for costs another packing of A (256 x 4096 x 4096 of bfloat16: 209 GFLOP/s with
            256 KB and 214 with 2 MB).
        round: Staged panels of B that stay in the third cache until they are used; half as much again does too, while
            panels that go through memory cost more than packing A again (512 x 4096 x 4096 of bfloat16: 198 GFLOP/s
            in one round and 203 in rounds).
        strip: Sums of a strip of columns, which stay in the second cache.
        group: Panels that are packed together just before their use, which stay in the second cache.
        down_blocks: Where B's columns are contiguous, a panel of all of K is one run of memory, and C is visited once:
            worth a block of A of so many times the second cache's part, which comes from the third (128 x 4096 x 4096,
            GFLOP/s: bfloat16 by KC 768 and 2048 194 and 206, float32 by 768 and 4096 97 and 100).
        windows_blocks: Where B is windows, of which a chunk at a time takes the place of a panel, a block of A is worth
            so many times its part of the second cache (256 filters, 256 channels of 28 x 28, 3 x 3, Cascade Lake, ms by
            1 and 2: 9.0 and 8.6).
        down_all: There KC is that of few rows while all rows of A by such a KC take at most so many bytes; a larger A
            is cut by the KC of many. On Zen 4 none is too large.
        down_whole: There K of at most so many words of float32 is one block however large A is: C is visited once.
        whole: Where panels of float32 exist or are packed first, all of K is one block if 128 rows of it take at most
            so many bytes: C is visited once, by a block of A that takes them.
        down_rows: Up to so many rows that also pays where they are a few such blocks and each packs B again: panels of
            all of B would leave the caches (GFLOP/s, staged and fused: 512 x 4096 x 4096 of bfloat16 195 and 208,
            512 x 3072 x 768 of float32 97 and 103; but 1024 cubed of float32 106 and 104, 2048 cubed of bfloat16 210
            and 202).
        streamed_rows: Up to so many rows B is read where it lies: packing it would cost more than the sums (24 x 4096
            x 4096: 6.6 GB/s of B streamed and 4.7 packed on the way).
        streamed_cached: The same where rows of B come from a cache (`rows_cached`) and those of A are contiguous, so
            that the first micropanel may pack B as it reads it.
        streamed_always: The same where a word holds several elements, so that packing pays sooner.
        kc_streamed: Words of float32 along K of a block there, where columns of B are packed on the way, and beside
            weights, if A leaves room for it: how long memory is read without a jump (Emerald Rapids, a row beside
            weights [N, K], GB/s by 2048 and 4096: 3072 x 768 22.9 and 24.5, 4096 x 4096 4 % more; four rows 2 to 3 %
            more, eight and more the same; speed over that of 2048: 32 x 3072 x 4096 of columns 1.02 to 1.07, bfloat16
            beside packed int8 and uint4 of 4096 x 4096 1.02 and 1.1 for a row, uint4 1.02 for four).
        kept_panels: Micropanels of a block of A where C is kept in scratch between blocks of K: fewer visits to it pay
            for reading B more often (512 x 3072 x 768 of bfloat16, packed, GFLOP/s: KC 768 with MC 132 205, KC 1536
            with MC 60 213).
        kc_fused: Words of float32 along K by which panels of B are packed just before their use, where its rows are
            contiguous and at most `fused_rows` of A use them: the block of A is then in the first cache beside a panel.
        down_cached: So they are where its columns are, and words of B take at most so many bytes: it comes from a cache
            then, to which long runs do not matter. What takes more than `near` is packed by 256 words.
        rows_cached: Where rows of B are contiguous, words that come from a cache take at most so many bytes.
        panels_alone: Where rows of B are contiguous, and its words, of one element each, take at most so many bytes,
            panels are packed one at a time, so that they stay in the first cache until they are used: the rows of the
            next one are in the second cache by then (`following`).
        result: Results of tiles that take more bytes are written past the caches, a line at a time, which else is read
            first (Emerald Rapids, memory written by plain stores and past the caches: 8.5 and 22 GB/s; prototypes of
            int8 products, operands packed, GOP/s: 1024 cubed 2,050 and 2,300, 2048 cubed 2,220 and 2,520, 4096 cubed
            1,620 and 2,680).
    """

    near: int = 5 << 20
    shared: int = 32 << 20
    kept: int = 2 << 20
    round: int = 8 << 20
    strip: int = 256 << 10
    group: int = 256 << 10
    down_blocks: int = 12
    windows_blocks: int = 1
    down_all: int = 1 << 40
    down_whole: int = 0
    whole: int = 0
    down_rows: int = 640
    streamed_rows: int = 24
    streamed_cached: int = 24
    streamed_always: int = 8
    kc_streamed: int = 4096
    kept_panels: int = 4
    kc_fused: int = 256
    fused_rows: int = 40
    down_cached: int = 0
    rows_cached: int = 0
    panels_alone: int = 0
    result: int = 2 << 20

    @property
    def far(self) -> Caches:
        """The same where all right operands come from memory, as they are many."""
        return replace(self, down_cached=0, rows_cached=0, panels_alone=0)


@dataclass(frozen=True, slots=True)
class Machine:
    """What is fast on one kind of processor.

    Attributes:
        name: LLVM's name of the processor.
        slow: Names of the engines that lose to another that takes the same operands. Products and packing try them
            last; a right operand that is in their panels already still runs.
        caches, sizes: What products may take of its caches: what is fixed, and what `samebits tune` varies.
        sizes_of_wide: What products on rows whose vectors have 64 bytes may take instead of `sizes`: they use up B
            twice as fast as those whose vectors have 32. None: no other sizes.
        sizes_of_blocks: What engines that sum blocks apart may take instead, on the same rows. None: no others.
        sizes_of_tiles: What those by tiles may take instead.
        blocks: The tile of engines that sum blocks apart.
        equal_blocks: One as wide for blocks that are equal runs, so high that some accumulators may wait in the first
            cache while a run is summed. None: no other.
        staged: The tile of float32 on rows whose vectors have 64 bytes, where panels are packed first, for one product
            alone, and columns fill them; None: that of the row.
        four_wide: Whether a processor begins four instructions a cycle, of which two are fma. In microtiles of two
            vectors of columns, of 64 bytes each, the words of every second row of A are then read by the two fma that
            take them, and not once before: fewer instructions, more loads; only calls whose sums come from afar ask
            for them; and A is interleaved beside kept panels too, and where its columns are contiguous.
        preferred: The engines that were measured to be fastest for some pairs of formats.
        tuned: The tiles and sizes that were measured to be fastest for some engines.
    """

    name: str
    slow: frozenset[str] = frozenset()
    caches: Caches = Caches()
    sizes: Sizes = SHIPPED
    sizes_of_wide: Sizes | None = None
    sizes_of_blocks: Sizes | None = None
    sizes_of_tiles: Sizes = OF_TILES
    blocks: Tile = BLOCKS
    equal_blocks: Tile | None = None
    staged: Tile | None = None
    four_wide: bool = False
    preferred: tuple[Preferred, ...] = ()
    tuned: tuple[Tuned, ...] = ()

    def __hash__(self) -> int:
        return hash(self.name)  # a part of the key of every plan

    def engines(self, a: DType, b: DType) -> tuple[Engine, ...]:
        """Every engine in the order in which products of these formats try them: the one that was measured to be the
        fastest, then as in `engine.ROWS`, what is slow here last."""
        return tuple(sorted(ENGINES, key=lambda row: (not self.prefers(row, a, b), row.name in self.slow)))

    def prefers(self, engine: Engine, a: DType, b: DType) -> bool:
        """Whether the engine was measured to be the fastest for these formats."""
        return bool(self.preferred) and Preferred(a.name, b.name, engine.name) in self.preferred

    def shipped(self, engine: Engine, isa: Isa) -> Tuned:
        """What the engine uses where nothing was measured."""
        if engine.takes_tiles:
            return Tuned(engine.name, of_tiles(isa), OF_TILED_BLOCKS if engine.sums_blocks else self.sizes_of_tiles)
        tile = of_blocks(self.blocks, isa) if engine.sums_blocks else tile_for(isa)
        tile = NIBBLES_TILE if engine in NIBBLES else tile
        wide = (self.sizes_of_blocks if engine.sums_blocks else None) or self.sizes_of_wide
        return Tuned(engine.name, tile, (isa.lanes >= WIDE_LANES and wide) or self.sizes)

    @functools.lru_cache(maxsize=1024)  # noqa: B019 - there are as many machines as files of tuned rows
    def row(self, engine: Engine, isa: Isa, nr: int | None = None) -> Tuned:
        """The engine's row among those measured, else the shipped one; where panels exist, the one whose width `nr`
        they have. Panels of neither width are refused by the plan. Codes of 16 bits lie as float32 would."""
        engine = FMA32 if engine in HALVES else engine
        shipped = self.shipped(engine, isa)
        if engine.takes_tiles and nr is not None and nr % TILE_LANES == 0:
            return replace(shipped, tile=replace(shipped.tile, nv=nr // engine.lanes(isa)))
        row = next((row for row in self.tuned if row.engine == engine.name), shipped)
        return shipped if nr not in (None, row.nr(engine, isa)) else row


DEFAULT = Machine("default")
ZEN4 = replace(DEFAULT, name="znver4")
# GFLOP/s of one thread. 1024 cubed of bfloat16: 98 by VDPBF16PS and 157 by the fma of float32, whose peak is 202;
# panels keep codes (`engine.HALVES`), so that one row is read as fast as pairs (1 x 4096 x 4096: 16 by both). The
# third cache is far from a core, so that a panel of B wants more rows of A, and A a block that the second one holds.
# By KC 2048 and MC 48, and by KC 1024 and MC 96, float32: 1024 x 4096 x 4096 131 and 155, 512 x 4096 x 4096 packed
# 133 and 158, 4096 cubed 136 and 163; float64: 2048 cubed 71 and 78. KC 768 and 512 are no faster, nor is a block of
# A of 448 KB; vectors of 32 bytes lose 4 % by KC 1024. The same two where C is kept in scratch, bfloat16: 1024 x 4096
# x 4096 124 and 152. Few rows by KC 4096 and 2048: 24 x 4096 x 4096 packed 99 and 113. Columns of B packed on the
# way, by KC 4096 (3072) and 1024: 512 x 4096 x 4096 127 and 138, 128 x 3072 x 768 111 and 125; by KC 4096, 2048 and
# 1024: 64 x 4096 x 4096 92, 100 and 92. From 480 rows on they are staged (fused and staged: 384 x 3072 x 768 134 and
# 127, 512 x 3072 x 768 138 and 139, of bfloat16 137 and 143, 640 x 3072 x 768 134 and 139, 640 x 1024 x 4096 144 and
# 149; but 512 x 768 x 3072 144 and 143).
# On a busy machine, over MKL's rate in turns with ours, float32: panels that columns of a cached B are packed in on the
# way by KC 128, 256 and 768: 16 x 768 x 768 1.34, 1.25, 1.12, 64 x 768 x 768 1.09, 1.05, 0.98, 40 x 3072 x 768 1.22,
# 1.17, 1.10; of 512 x 3072 x 768 by 256 in one block of A, and staged, 0.96 and 0.91. Rows of B by KC 128 over 256: 32
# x 768 x 768 1.05, 32 x 4096 x 4096 1.08, 384 x 768 x 768 0.94, and since the first micropanel packs them (`lies`) 48
# x 768 x 768 1.10, 64 x 768 x 768 1.02, 64 x 3072 x 768 1.07, 128 x 768 x 768 0.99, on two threads 0.90; 512 x 3072 x
# 768 in one block of A by 128 over staged 0.97; columns, 512 x 768 x 768 0.95 and 0.87. Staged by 6x4 and 12x2: 1024
# cubed 1.04 and 1.00, 2048 cubed 0.99 and 0.96, 768 cubed 1.02 and 0.99.
# Rows of B packed by 8 panels, which leave the first cache, and one by one: 32 x 768 x 768 117 and 136, 128 x 768 x 768
# 149 and 158, 128 x 768 x 3072 146 and 154, 32 x 4096 x 4096 105 and 123; of bytes in words of four a panel has half a
# line of each row, and eight at a time are faster (64 x 4096 x 4096 1.08 times). Packed by the first of several
# micropanels, time of streaming over it: 13, 16 and 24 x 768 x 768 1.09, 1.14, 1.26, 24 x 768 x 3072 1.02, 16 x 3072 x
# 768 1.10, of bfloat16 1.20 to 1.26, but from memory 24 x 4096 x 4096 0.70.
# Sums of blocks of bytes, of which a cycle has twice as many as on Zen 4, so that A is read too often for one vector
# of B: 1024 cubed by 8x1 or 12x1, 4x2 and 6x2: MXFP4 225, 322, 343, int8 by 32 244, 353, 371, by 64 344, 370, 395, by
# 128 360, 366, 400. Words of a block are then taken one after the other by all rows, so that registers need hold one
# alone, and ten or twelve sums are under way at once, not six (NVFP4 from the first two caches, GFLOP/s of 5x2 row by
# row 411, word by word 430, of 6x2 442). Panels of B with scales want the first cache, and A, whose rows of a chunk
# are pages away from those of the next, few pages: 1024 cubed by MC 174, 132, 66, 48 and 36, KC 256, ms: NVFP4 5.81,
# 5.78, 5.36, 5.22, 5.20; int8 by 128 by MC 66, 48 and 36 4.06, 3.96, 4.04; 4096 cubed by MC 258, 132, 66 and 48 NVFP4
# 394, 388, 359, 355, int8 by 128 by MC 66 and 48 291 and 279. Equal blocks have a sum and an
# accumulator for each of fourteen vectors, of which a few wait in the first cache: fewer steps wait for each other than
# of twelve. 1024 cubed in turns, GFLOP/s by 6x2, 7x2 and 8x2: NVFP4 416, 421, 403, MXFP4 419, 432, 431, int8 by 32 453,
# 464, 462, by 64 507, 520, 522, by 128 536, 555, 554 (by 10x2 and 12x2 a few less).
SAPPHIRE_RAPIDS = replace(
    DEFAULT,
    name="sapphirerapids",
    slow=frozenset({PAIRS.name}),
    blocks=Tile(6, 2),
    equal_blocks=Tile(7, 2),
    staged=Tile(6, 4),
    caches=Caches(
        down_blocks=3,
        down_all=640 << 10,
        down_rows=528,
        kept_panels=8,
        kc_fused=128,
        fused_rows=72,
        streamed_cached=12,
        down_cached=16 << 20,
        rows_cached=16 << 20,
        panels_alone=16 << 20,
    ),
    sizes_of_wide=replace(SHIPPED, kc=1024, kc_few_rows=2048),
    sizes_of_blocks=replace(SHIPPED, a_bytes=48 << 10, kc=256, kc_few_rows=2048),
)
EMERALD_RAPIDS = replace(SAPPHIRE_RAPIDS, name="emeraldrapids")
# GFLOP/s of one thread of a virtual machine, whose peak with operands in registers is 137 (float64 69, bytes 490): two
# fma a cycle at 2.1 GHz; memory gives 11 GB/s. The second cache has 1 MB and the first 32 KB. By KC 2048 and a block of
# A of 384 KB, KC 512 and 384 KB, 512 and 256 KB, 256 and 256 KB, float32: 1024 cubed 109, 110, 113, 110, 2048 cubed 98,
# 109, 112, 108, 512 x 3072 x 768 packed 93, 112, 113, 113, 1024 x 2048 x 2048 of columns 93, 104, 105, 103; int8 by the
# first and the third: 1024 cubed 423 and 427, 2048 cubed 471 and 485, 512 x 4096 x 4096 packed 503 and 498. Few rows,
# packed, by KC 4096, 2048, 1024, 512: 24 x 4096 x 4096 56, 80, 88, 86; 32 x 768 x 768 of columns by 1024 and 512 42 and
# 40, 64 x 4096 x 4096 57 and 55. Columns packed on the way by the KC of few rows however large A is, and while A takes
# 256 KB: 64 x 4096 x 4096 67 and 75, 128 x 3072 x 768 84 and 92, 256 x 3072 x 768 91 and 101; while it takes 256 KB and
# 384 KB: 96 x 768 x 3072 100 and 103, 96 x 4096 x 4096 102 and 104. Speed by one block of K over that by 512: 512 x 768
# x 3072 1.05, 128 x 768 x 3072 1.07, 512 x 1024 x 4096 1.04, 256 x 1024 x 1024 0.99.
# Rows packed on the way by KC 256 and 128: 32 x 768 x 768 74 and 84, 64 x 768 x 3072 79 and 90, 32 x 4096 x 4096 52
# and 59, 128 x 768 x 768 111 and 115, 256 x 768 x 768 108 and 117, 256 x 3072 x 768 104 and 114.
# K of 768 in one block, and in blocks of 512, which visit C twice, by a block of A of 384 KB; speed of the first over
# the second: 640 cubed, 768 cubed and 768 x 768 x 3072 1.03, 256 x 768 x 768 and 1024 x 768 x 3072 packed 1.04, 128 x
# 768 x 3072 packed 1.00; but K of 1024, 300 x 1024 x 1024 0.97, 128 x 1024 x 1024 packed 0.96.
# Panels packed alone, and by 8, speed of the first over the second: 256 cubed 1.06, 64 x 256 x 256 1.08, 384 x 384 with
# 32, 64, 128 and 256 rows 1.13, 1.07, 1.04, 1.04, 512 x 512 with 128 and 256 rows 1.07, 1.04; but of what the second
# cache does not hold, where others work on the same core, 64 x 768 x 768 0.74, 64 x 1024 x 512 0.80.
# Words of A read once, and every second row's twice: 1024 x 768 x 3072 of columns 114 and 119, 128 x 3072 x 768 100 and
# 105, 64 x 768 x 768 of rows 92 and 98, 1024 cubed 117 and 118, float64 53 and 55; packed 1.00 to 1.015 times. Lines
# of sums asked for in every call, and where they come from afar alone, speed over the first, A interleaved: packed 512
# x 768 x 768 1.05, 512 x 1024 x 1024 1.07, 32 x 768 x 768 1.08, of rows 768 x 128 x 768 1.05, 1024 cubed 1.03.
# Sums of blocks, 1024 cubed, ms by 12x1, 6x2, and 7x2 where blocks are equal, then by blocks of A of 96 KB and KC 256
# instead of 256 KB and 512: NVFP4 11.5, 10.0, 9.7, 9.4, MXFP4 11.5, 9.3, 9.3, 9.2, int8 by 32 10.8, 8.4, 8.4, 8.5, by
# 64 8.3, 7.4, 7.4, 7.4, by 128 7.8, 7.0, 6.8, 6.7 (8x2: NVFP4 10.2, int8 by 64 7.2).
CASCADE_LAKE = replace(
    DEFAULT,
    name="cascadelake",
    blocks=Tile(6, 2),
    equal_blocks=Tile(7, 2),
    caches=Caches(
        down_all=384 << 10,
        down_whole=1024,
        whole=384 << 10,
        windows_blocks=2,
        kc_fused=128,
        fused_rows=256,
        streamed_cached=15,
        rows_cached=2400 << 10,
        panels_alone=1 << 20,
    ),
    sizes_of_wide=replace(SHIPPED, a_bytes=256 << 10, kc=512, kc_few_rows=1024),
    sizes_of_blocks=replace(SHIPPED, a_bytes=96 << 10, kc=256, kc_few_rows=2048),
    four_wide=True,
)
# The same core and caches, without dot products of bytes; no such processor was measured.
SKYLAKE_X = replace(CASCADE_LAKE, name="skylake-avx512")
ROWS: tuple[Machine, ...] = (ZEN4, SAPPHIRE_RAPIDS, EMERALD_RAPIDS, CASCADE_LAKE, SKYLAKE_X, DEFAULT)


def current() -> Machine:
    """This machine's row, by LLVM's name of its processor; the default where it has none."""
    name = isas.host_cpu()
    return next((row for row in ROWS if row.name == name), DEFAULT)
