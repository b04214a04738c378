"""The inner product of a plan: its engine, what operands become for it, how long its chunks are.

Start at `Inner.of`; `choice` decides the rest by it.
"""

from __future__ import annotations

import math

from samebits.codegen.rules import TILE_ROWS
from samebits.dtypes import DType
from samebits.frozen import dataclass, replace
from samebits.kernels.gemm import engine as engines
from samebits.kernels.gemm.block_microkernel import LIMIT, Runs
from samebits.kernels.gemm.contraction import Contraction, Matrix, Shared, Spec
from samebits.kernels.gemm.engine import Engine
from samebits.kernels.gemm.order import ORDERS, SumOrder
from samebits.kernels.gemm.words import Words
from samebits.tape import entry, larger, smaller

# Blocks of K are a multiple of so many words, and so are chunks that are longer than K, so that kernels are shared.
KC_LEAST = 256
# The most words of a chunk of integers: any number gives the same sums. With few rows every further chunk costs time.
_EXACT_WORDS = 1024
# The same by tiles, where several micropanels share a panel: windows of an image are packed a chunk at a time.
_TILED_WORDS = 512
# Words of K that a block of A for tiles has room for at least: more rows of fewer words would not be faster.
TILED_BLOCK = 1024


def size_words(engine: Engine, k: int, columns: int) -> int:
    """Words of panels of `columns` columns in all, with their facts."""
    return (engine.steps(k) + engine.has_facts) * columns


def words_of(engine: Engine, a: DType, b: DType) -> tuple[Words, Words]:
    """How elements of A and of B become the engine's words."""

    def read(x: DType, element: DType) -> Words:
        unit = engines.unit(x) if element.is_integer else 1.0
        return Words(x, element, engines.offset(element, x), engine.depth, engine.word, unit)

    return read(a, engine.a), read(b, engine.b)


@dataclass(frozen=True, slots=True)
class Inner:
    """What is summed along K, and in which words.

    Attributes:
        c: The contraction, with the order in which it is really summed.
        engine: One step of it, with the dtype that its chunks are summed in.
        words: How elements of A and of B become the engine's words.
    """

    c: Contraction
    engine: Engine
    words: tuple[Words, Words]

    @classmethod
    def of(cls, c: Contraction, engine: Engine) -> Inner:
        """c on an engine; of integers the order is free, so chunks are long, while their sums fit their lanes."""
        words = words_of(engine, c.a.dtype, c.b.dtype)
        if not engine.exact:
            return cls(c, engine, words)
        if isinstance(c.b.values, Matrix) and c.b.values.windows and c.b.values.windows.depth > 1:
            words = words[0], replace(words[1], is_grouped=True)
        total = engines.total_of(c.a.dtype, c.b.dtype, c.k, (c.a.is_shifted, c.b.is_shifted))
        words_of_chunk = _TILED_WORDS if engine.takes_tiles and c.m > 2 * TILE_ROWS else _EXACT_WORDS
        chunk = min(words_of_chunk * engine.depth, engines.LONGEST_CHUNK)
        return cls(replace(c, spec=Spec(chunk)), replace(engine, total=total), words)

    @property
    def order(self) -> SumOrder:
        """How the words of a chunk are summed."""
        return ORDERS[self.c.sums.order]

    @property
    def steps(self) -> int:
        """Words along K."""
        return self.engine.steps(self.c.k)

    @property
    def chunk(self) -> int:
        """Words of a chunk."""
        longest = self.c.spec.chunk // self.engine.depth
        return longest if longest <= KC_LEAST else smaller(longest, larger(KC_LEAST, _power_of_two(self.steps)))

    @property
    def checked(self) -> bool:
        """Whether elements must be looked at before the engine may run."""
        return self.engine.is_guarded and engines.must_check(self.c.a.dtype, self.c.b.dtype)

    @property
    def needs_sums(self) -> bool:
        """Whether sums of b's columns must be there before they are used: they are if B was packed before, or where
        a task has all of K."""
        shifted = self.words[0].offset != 0 and self.steps > self.chunk
        return bool(self.c.k) and (self.c.a.is_shifted or shifted)

    @property
    def runs(self) -> Runs | None:
        """How blocks of K follow each other, where `block_microkernel` sums them: those of a have scales, or several of
        b are in a chunk (512 x 2048 x 2048 of bfloat16, ms by `microkernel` and it, float4_e2m1fn by 16: 31.5 24.1,
        int8 by 32: 25.2 22.2)."""
        c, engine = self.c, self.engine
        several = c.b.is_scaled_by_block and block_sizes(c)[1] < min(c.spec.chunk, c.k)
        several &= isinstance(c.b.values, Matrix)
        if not (c.a.is_scaled_by_block or engine.sums_blocks or several):
            return None
        scaled = c.a.is_scaled_by_block, c.b.is_scaled_by_block
        sizes = [-(-size // engine.depth) for size in block_sizes(c)]
        words = -(-run_of(c) // engine.depth)
        offset = self.words[1].offset if engine.sums_blocks else 0
        alone = sizes[0] == words, sizes[1] == words
        return Runs(words, scaled, alone, self._unit / self.unit_of_scales, offset, self._floats)

    @property
    def _floats(self) -> bool:
        """Whether sums of integers start at `block_microkernel.BEGUN`: scales on both sides are so narrow that neither
        their products nor those with a sum lose a bit, overflow or underflow. Tiles, which are read from memory, would
        take longer to start there than vectors take to convert their sums."""
        c, sides = self.c, (self.c.a, self.c.b)
        scales = [x.scale.operand.dtype for x in sides if x.scale is not None and x.is_scaled_by_block]
        by_vectors = self.engine.sums_blocks and not self.engine.takes_tiles
        if not (by_vectors and len(scales) == 2) or any(map(_is_wide, scales)):
            return False
        run, span, other = min(run_of(c), max(c.k, 1)), engines.span(c.a.dtype, False), engines.span(c.b.dtype, False)
        reached = run * span * (other + abs(self.words[1].offset))
        return reached < LIMIT and run * span * other << scales[0].mantissa_bits + 1 <= engines.EXACT

    @property
    def _unit(self) -> float:
        """What a unit of a sum stands for."""
        return math.prod(x.unit for x in self.words)

    @property
    def unit_of_scales(self) -> float:
        """What scales of a are multiplied with when they are read: the unit, where no scales of these formats lose a
        bit by that, which saves a multiplication of each sum."""
        scales = [side.scale for side in (self.c.a, self.c.b) if side.scale is not None and side.is_scaled_by_block]
        bounded = all(x.operand.dtype.width_bits <= 16 and x.operand.dtype.exponent_bits <= 5 for x in scales)
        return self._unit if self.c.a.is_scaled_by_block and bounded else 1.0


def _is_wide(scale: DType) -> bool:
    """Whether a format of scales has infinities, or more than a byte, or more exponents than a byte needs for both."""
    return scale.has_infinity or scale.width_bits > 8 or scale.exponent_bits > 5


@entry
def _power_of_two(steps: int) -> int:
    """The least one that is not less."""
    return 1 << (steps - 1).bit_length()


def block_sizes(c: Contraction) -> tuple[int, int]:
    """Elements along K of a block of a and of b; more than there are where none has a scale."""

    def size(x: Shared | None) -> int:
        return x.size if x is not None and x.is_by_block else max(1, c.k) * c.spec.chunk

    return size(c.a.scale), size(c.b.scale)


def run_of(c: Contraction) -> int:
    """Elements of every run between boundaries of blocks and chunks, where all but the last are equal; else 0."""
    sizes = [c.spec.chunk, *block_sizes(c)]
    least = min(sizes)
    return least if least and all(size % least == 0 or size >= c.k for size in sizes) else 0
