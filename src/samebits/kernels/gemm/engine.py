"""Engines: what one step of the inner product is, one frozen row each.

An engine's panels hold words; a word holds `depth` elements that follow each other along K, and a step takes one word
of A and one of B. Every engine that takes a pair of dtypes in an order gives the same bits (numerics.md sections 2 and
3). Which one a product runs on, `selection` says. Start at `ROWS`.
"""

from __future__ import annotations

from samebits.codegen.isa import Isa
from samebits.codegen.vocabulary import Builder, Tile, Vector
from samebits.dtypes import ROWS as DTYPES
from samebits.dtypes import (
    DType,
    bfloat16,
    float4_e2m1fn,
    float16,
    float32,
    float64,
    int4,
    int8,
    int16,
    int32,
    int64,
    uint4,
    uint8,
    uint16,
    uint32,
)
from samebits.errors import OptionError
from samebits.frozen import dataclass, replace
from samebits.kernels.gemm.order import CHAIN, ORDERS, PAIRS32


@dataclass(frozen=True, slots=True)
class Engine:
    """One inner product.

    Attributes:
        name: As plans print it.
        a, b: The elements that words of A and of B hold; operands convert to them exactly.
        depth: Elements of a word.
        word: What panels are made of.
        accumulator: What a lane sums a chunk in.
        total: What chunks are summed in.
        step: The word of the vocabulary that takes a step; `fma`, or `mul add` of two words.
        unsigned: For a dot product of unlike signs, the operand whose elements are unsigned.
        tile: The word of the vocabulary that multiplies tiles of the same words, if there is one.
        orders: The orders of sums of floats (`order.ORDERS`) that its steps can give; exact sums have none.
    """

    name: str
    a: DType
    b: DType
    depth: int
    word: DType
    accumulator: DType
    total: DType
    step: str
    unsigned: str = ""
    tile: str = ""
    orders: tuple[str, ...] = (CHAIN.name,)

    def __hash__(self) -> int:
        return hash(self.name)  # a part of every key that kernels and their functions are found by

    @property
    def exact(self) -> bool:
        """Whether sums are exact, so that their order is free."""
        return self.total.is_integer

    @property
    def sums_blocks(self) -> bool:
        """Whether sums of blocks are exact integers, which scales of blocks make floats (numerics.md section 4)."""
        return self.total.is_float and self.accumulator.is_integer

    @property
    def is_guarded(self) -> bool:
        """Whether the step is right only where nothing is subnormal, which packing finds out."""
        return self.step.endswith("dot2_bfloat16")

    @property
    def has_facts(self) -> bool:
        """Whether packed panels come with a row of facts, one int32 a column (`facts`)."""
        return self.exact or self.is_guarded

    @property
    def safe(self) -> Engine:
        """The engine that takes the same words where this one is not right."""
        return replace(self, step="fma of halves")

    def kept_scale(self, source: DType) -> DType:
        """What scales of a format are kept as behind panels of codes, exactly."""
        is_narrow = source.width_bits <= 8 or source is bfloat16
        return bfloat16 if self.word is uint32 and is_narrow else float32

    def is_native(self, isa: Isa) -> bool:
        """Whether the step is an instruction of the row."""
        return self.step in (*_PLAIN, *isa.instructions)

    @property
    def takes_tiles(self) -> bool:
        """Whether a step multiplies tiles of words, and not vectors."""
        return self.step == self.tile != ""

    @property
    def of_tiles(self) -> Engine:
        """The engine that multiplies tiles of the same words, in the same panels; of floats in an order of its own."""
        orders = self.orders if self.accumulator.is_integer else (PAIRS32.name,)
        return replace(self, name=self.name + _OF_TILES, step=self.tile, orders=orders)

    @property
    def panels(self) -> str:
        """The name of the engine whose panels these are."""
        return self.name.removesuffix(_OF_TILES)

    def lanes(self, isa: Isa) -> int:
        """Words in a vector register."""
        return max(1, isa.lanes * float32.size_bytes // self.accumulator.size_bytes)

    def advance(self, b: Builder, x: Vector, y: Vector, acc: Vector) -> Vector:
        """acc and a step: x is a vector of words of A, y of B."""
        if self.step == "fma":
            return b.fma(x, y, acc)
        if self.step == "mul add":
            return b.add(acc, b.mul(x, y))
        if self.step == "fma of halves":
            for half in (_high, _low):
                acc = b.fma(half(b, x), half(b, y), acc)
            return acc
        word = getattr(b, self.step)
        return word(acc, y, x) if self.unsigned == "b" else word(acc, x, y)

    def advance_chains(self, b: Builder, x: Vector, y: Vector, chains: list[Vector]) -> list[Vector]:
        """A chain for each of the two floats of a word, the first in its high bits."""
        return [b.fma(half(b, x), half(b, y), acc) for half, acc in zip((_high, _low), chains, strict=True)]

    def advance_tile(self, b: Builder, x: Tile, y: Tile, acc: Tile) -> None:
        """acc and the products of a tile of words of A and one of B."""
        getattr(b, self.tile)(acc, x, y)

    def sums(self, b: Builder, words: Vector, element: DType, acc: Vector) -> Vector:
        """acc and the sum of the integers `element` of each word."""
        if self.depth == 1:
            return b.add(acc, words)
        ones = b.like(words, sum(1 << i * element.width_bits for i in range(self.depth)))
        if element is int16:
            return b.dot2_int16(acc, words, ones)
        if element is int8 and self.step == "dot4_int8":
            return b.dot4_int8(acc, words, ones)
        return b.dot4_uint8_int8(acc, *((words, ones) if element is uint8 else (ones, words)))

    def without(self, b: Builder, words: Vector, zero: Vector) -> Vector:
        """Words less a float32 in every element, of an engine of floats or of weights."""
        if self.word.is_integer and self.depth == 1:  # codes of a format that holds the difference
            return b.sub(words, b.convert(b.convert(zero, int32), self.word))
        if self.depth == 1:
            return b.sub(words, b.convert(zero, self.word))
        high, low = (b.bitcast(b.sub(half(b, words), zero), uint32) for half in (_high, _low))
        return b.bitcast(b.bit_or(b.bit_and(high, b.like(high, 0xFFFF0000)), b.shift_right(low, 16)), self.word)

    def steps(self, k: int) -> int:
        """Words that k elements take."""
        return -(-k // self.depth)


def _high(b: Builder, x: Vector) -> Vector:
    return b.bitcast(b.bit_and(x, b.like(x, -65536)), float32)


def _low(b: Builder, x: Vector) -> Vector:
    return b.bitcast(b.shift_left(x, 16), float32)


def _dot(what: str, total: DType, a: DType, b: DType, step: str, unsigned: str = "") -> Engine:
    tile = f"tile_dot4_{a.name if a is b else f'{a.name}_{b.name}'}"
    return Engine(f"{a.name} x {b.name} {what}", a, b, 4, int32, int32, total, step, unsigned, tile)


# Bytes of A and of B: their dot product, and for one of unlike signs the operand that is unsigned.
_BYTES = (
    (uint8, int8, "dot4_uint8_int8", "a"), (int8, uint8, "dot4_uint8_int8", "b"), (int8, int8, "dot4_int8"),
    (uint8, uint8, "dot4_uint8"),
)  # fmt: skip


# Whose steps are one fma each take them in any order.
_EVERY = tuple(ORDERS)
FMA32 = Engine("fma float32", float32, float32, 1, float32, float32, float32, "fma", orders=_EVERY)
FMA64 = Engine("fma float64", float64, float64, 1, float64, float64, float64, "fma", orders=_EVERY)
# VDPBF16PS takes the pair (k, k + 1) as (high, low): numerics.md section 2.
PAIRS = Engine(
    "bfloat16 pairs", bfloat16, bfloat16, 2, int32, float32, float32, "dot2_bfloat16", tile="tile_dot2_bfloat16"
)
# The fastest first, where a machine's row says nothing else: the first that takes the operands and has its
# instruction runs.
ROWS: tuple[Engine, ...] = (
    PAIRS,
    FMA32,
    FMA64,
    *(_dot("quads", int32, *row) for row in _BYTES),
    Engine("int16 pairs", int16, int16, 2, int32, int32, int32, "dot2_int16"),
    Engine("int32", int32, int32, 1, int32, int32, int32, "mul add"),
)
_OF_TILES = " by tiles"
# Each takes what the engine of its words takes.
OF_TILES: tuple[Engine, ...] = tuple(row.of_tiles for row in ROWS if row.tile)
# What sums scaled blocks of integers, and of floats that are a few units each. Elements of B alone may be shifted to
# fit: what that adds to a sum is one number for a row of A, which microtiles read anyway. Both
# sides unsigned are an instruction of tiles alone.
_BLOCKS = tuple(_dot("blocks", float32, *row) for row in _BYTES)
BLOCKS: tuple[Engine, ...] = _BLOCKS[:-1]
BLOCKS_OF_TILES: tuple[Engine, ...] = tuple(row.of_tiles for row in _BLOCKS)
# Weights that keep their codes in panels, a byte or two each: what packs them. A product reads such panels with another
# engine. int16 holds 8-bit integers without a zero point.
_NARROW_FLOATS = tuple(row for row in DTYPES if row.is_float and row.has_zero and 4 < row.width_bits <= 8)
WEIGHTS: tuple[Engine, ...] = tuple(
    Engine(f"{element.name} weights", float32, element, 1, word, float32, float32, "fma", orders=_EVERY)
    for element, word in ((int8, uint8), (uint8, uint8), (int16, uint16), *((row, uint8) for row in _NARROW_FLOATS))
)
# Floats of 16 bits that keep their codes in panels where their products are sums by fma of float32, whose words would
# take twice the bytes, which few rows wait for (Emerald Rapids, 1 x 4096 x 4096, one thread: 1.9 times the time). But
# float16 where no instruction widens it (1 x 2048 x 2048 by plain x86-64: 0.35 of the time).
HALVES: tuple[Engine, ...] = tuple(
    Engine(f"{element.name} codes", float32, element, 1, uint16, float32, float32, "fma", orders=_EVERY)
    for element in (bfloat16, float16)
)
WEIGHT_NAMES = frozenset(row.name for row in (*WEIGHTS, *HALVES))
# Weights of four bits that stay so in their panels, two to a byte (`nibble_panels`).
NIBBLES: tuple[Engine, ...] = tuple(
    Engine(f"{element.name} nibbles", float32, element, 8, uint32, float32, float32, "fma", orders=_EVERY)
    for element in (int4, uint4, float4_e2m1fn)
)
_BY_NAME = {row.name: row for row in (*ROWS, *OF_TILES, *BLOCKS, *BLOCKS_OF_TILES, *WEIGHTS, *HALVES, *NIBBLES)}
_PLAIN = ("fma", "mul add")
# Sums of a row or column of as many elements are exact in int32.
LONGEST = 1 << 23
# So many products of integers of 8 bits, at most 255 * 255 each, sum exactly in an int32 lane.
LONGEST_CHUNK = 1 << 15
# Integers up to here are float32 exactly, so that a chain of fma is exact too.
EXACT = 1 << 24


def named(name: str) -> Engine:
    """The row called `name`.

    Raises:  OptionError if there is none.
    """
    found = _BY_NAME.get(name)
    if found is not None:
        return found
    names = [row.name for row in (*ROWS, *OF_TILES, *BLOCKS, *BLOCKS_OF_TILES)]
    raise OptionError("plan", "engine", "", repr(name), f"one of {names}", "leave it out")


def takes(element: DType, source: DType) -> bool:
    """Whether every value of `source` is one of `element`: for 8-bit integers after `offset`, of floats in units; for
    floats, also without a zero point, because they hold -255 to 255."""
    if source.is_integer:
        return source.width_bits <= 8
    if element.is_integer:
        return source.is_float and in_units(source)
    if not (source.is_float and element.is_float):
        return False
    fits = source.mantissa_bits <= element.mantissa_bits and source.exponent_bits <= element.exponent_bits
    return fits and source.width_bits <= element.width_bits


def of_weights(source: DType, has_zeros: bool) -> Engine:
    """The row of WEIGHTS that holds elements of `source`, integers without their zero points if they have any."""
    if source.is_float:
        return next(row for row in WEIGHTS if row.b is source)
    low, high = source.min, source.max
    if has_zeros:
        low, high = low - high, high - low
    return next(row for row in WEIGHTS if row.b.is_integer and row.b.min <= low and high <= row.b.max)


def packs(engine: Engine, source: DType, isa: Isa) -> Engine:
    """What packs elements of `source` for products on an engine: the row of HALVES that keeps their codes where the
    engine would take them as float32, and widening costs an instruction or two; else the engine."""
    if engine is not FMA32 or (source is float16 and "float16" not in isa.instructions):
        return engine
    return next((row for row in HALVES if row.b is source), engine)


def of_coded(source: DType, has_zeros: bool, k: int) -> Engine | None:
    """What keeps the codes of elements that are packed with the scales of their blocks: of NIBBLES, whose words are
    full, else of WEIGHTS; None of floats that have neither."""
    of_four = next((row for row in NIBBLES if row.b is source and not has_zeros), None)
    if of_four is not None and k % of_four.depth == 0:
        return of_four
    return of_weights(source, has_zeros) if source.is_integer or source in _NARROW_FLOATS else None


def offset(element: DType, source: DType) -> int:
    """What packing adds to integers of `source` so that they become `element`."""
    if not element.is_integer:
        return 0
    least, most = source.min, source.max
    if source.is_float:
        most = span(source, False)
        least = -most
    if element.min <= least <= most <= element.max:
        return 0
    return 128 if element.kind == "uint" else -128


def in_units(source: DType) -> bool:
    """Whether a float format is -127 to 127 times its `unit`, and has no NaN."""
    lowest = lowest_bit(source) if source.is_float else None
    return lowest is not None and source.width_bits < 8 and span(source, False) <= int8.max


def unit(source: DType) -> float:
    """The power of two of which all numbers of `source` are multiples; 1 of integers."""
    lowest = lowest_bit(source)
    return 2.0 ** (lowest or 0)


def span(source: DType, zero: bool) -> int:
    """The largest magnitude of an integer of `source` without its zero point; of a float in units."""
    if source.is_float:
        return int(float(source.max) / unit(source))
    return int(source.max - source.min if zero else max(source.max, -source.min))


def total_of(a: DType, b: DType, k: int, zeros: tuple[bool, bool]) -> DType:
    """int32 where no sum of k products can leave it, else int64 (numerics.md section 3)."""
    return int32 if k * span(a, zeros[0]) * span(b, zeros[1]) <= int32.max else int64


def lowest_bit(source: DType) -> int | None:
    """The exponent of the lowest set bit that any element has, None where that is for packing to find (bfloat16)."""
    if source.is_integer:
        return 0
    if source is bfloat16 or not source.has_zero:
        return None
    return 1 - source.bias - source.mantissa_bits


def must_check(a: DType, b: DType) -> bool:
    """Whether an engine that is guarded must look at the elements: numerics.md section 2, the lsb condition."""
    lows = lowest_bit(a), lowest_bit(b)
    return lows[0] is None or lows[1] is None or lows[0] + lows[1] < LOWEST


# The least exponent of a product's lowest bit with which no accumulator is subnormal.
LOWEST = -126
