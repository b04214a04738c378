"""The inner product of a plan: its engine, what operands become for it, how long its chunks are.

Start at `Inner.of`; `choice` decides the rest by it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from samebits.dtypes import DType
from samebits.kernels.gemm import engine as engines
from samebits.kernels.gemm.contraction import Contraction, Spec
from samebits.kernels.gemm.engine import Engine
from samebits.kernels.gemm.words import Words

# Blocks of K are a multiple of so many words, and so are chunks that are longer than K, so that kernels are shared.
KC_LEAST = 256
# The most words of a chunk of integers: any number gives the same sums. With few rows every further chunk costs time.
_EXACT_WORDS = 1024


def size_words(engine: Engine, k: int, columns: int) -> int:
    """Words of panels of `columns` columns in all, with their facts."""
    return (engine.steps(k) + engine.has_facts) * columns


def words_of(engine: Engine, a: DType, b: DType) -> tuple[Words, Words]:
    """How elements of A and of B become the engine's words."""

    def read(x: DType, element: DType) -> Words:
        return Words(x, element, engines.offset(element, x), engine.depth, engine.word)

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
        total = engines.total_of(c.a.dtype, c.b.dtype, c.k, (c.a.is_shifted, c.b.is_shifted))
        chunk = min(_EXACT_WORDS * engine.depth, engines.LONGEST_CHUNK)
        return cls(replace(c, spec=Spec(chunk)), replace(engine, total=total), words)

    @property
    def steps(self) -> int:
        """Words along K."""
        return self.engine.steps(self.c.k)

    @property
    def chunk(self) -> int:
        """Words of a chunk."""
        rounded = max(KC_LEAST, 1 << (self.steps - 1).bit_length())
        return min(self.c.spec.chunk // self.engine.depth, rounded)

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
