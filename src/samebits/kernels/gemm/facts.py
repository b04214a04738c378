"""Facts of packed words, one int32 a column: for integers the sum of the column's elements as they are in the words;
for bfloat16 the exponent of the lowest bit that is set in any of them, or `SUBNORMAL`. Start at `emit`.
"""

from __future__ import annotations

from samebits.codegen.vocabulary import Builder, Function, Index, Pointer, Vector
from samebits.dtypes import bfloat16, int32, uint16, uint32
from samebits.kernels.gemm.engine import Engine

# Less than any pair of exponents may sum to, twice over; and what a column of zeros has.
SUBNORMAL, NOTHING = -10_000, 1_000


def emit(b: Builder, engine: Engine, nr: int) -> Function:
    """A function `(words, steps, facts)` over words [steps][nr]."""
    if engine.exact:
        return _sums(b, engine, nr)

    def body(words: Pointer, steps: Index, facts: Pointer) -> None:
        lowest, halves = [b.constant(0xFFFF, uint16, nr * 2)], b.local(uint16, nr * 2)
        for s in b.loop(0, steps, carry=lowest):
            lowest[0] = b.minimum(lowest[0], _lowest(b, words, s * nr, nr))
        b.store(halves, 0, lowest[0])
        b.store(facts, 0, exponent(b, _of_words(b, halves, nr)))

    return b.function("lowest_bits", (int32, None, int32), body)


def _sums(b: Builder, engine: Engine, nr: int) -> Function:
    def body(words: Pointer, steps: Index, facts: Pointer) -> None:
        total = [b.constant(0, int32, nr)]
        for s in b.loop(0, steps, carry=total):
            total[0] = engine.sums(b, b.load(words, s * nr, nr), engine.b, total[0])
        b.store(facts, 0, total[0])

    return b.function("sums", (int32, None, int32), body)


def _lowest(b: Builder, words: Pointer, i: Index, width: int, count: Index | None = None) -> Vector:
    """Of `width` words from i on, as two uint16 each, the bits without sign, less one: zero, which has no lowest bit,
    is largest then. Half the work of looking at the two in uint32."""
    halves = b.load(b.cast(words, uint16), i * 2, width * 2, None if count is None else count * 2)
    return b.sub(b.bit_and(halves, b.like(halves, 0x7FFF)), b.like(halves, 1))


def _of_words(b: Builder, halves: Pointer, width: int) -> Vector:
    """The smaller half of each of `width` words, as uint32, where zero is largest still."""
    both = b.load(b.cast(halves, uint32), 0, width)
    return b.minimum(b.bit_and(both, b.like(both, 0xFFFF)), b.shift_right(both, 16))


def exponent(b: Builder, magnitudes: Vector) -> Vector:
    """The exponent of the lowest bit of the smallest number, by `_of_words`, as int32."""
    m, fraction = bfloat16.mantissa_bits, bfloat16.bias + bfloat16.mantissa_bits
    x = b.bit_and(b.add(magnitudes, b.like(magnitudes, 1)), b.like(magnitudes, 0xFFFF))
    found = b.bitcast(b.shift_right(x, m), int32)
    found = b.sub(found, b.like(found, fraction))
    found = b.select(b.less(x, b.like(x, 1 << m)), b.like(found, SUBNORMAL), found)
    return b.select(b.equal(x, b.like(x, 0)), b.like(found, NOTHING), found)


def emit_block(b: Builder) -> Function:
    """A function `(words, pitch, rows, steps, fact)`: the int32 at `fact` becomes the lowest bit of a block of A, rows
    `pitch` apart, where that is lower."""
    lanes = b.isa.lanes

    def body(words: Pointer, pitch: Index, rows: Index, steps: Index, fact: Pointer) -> None:
        lowest, halves = [b.constant(0xFFFF, uint16, lanes * 2)], b.local(uint16, lanes * 2)
        whole = steps // lanes * lanes
        for r in b.loop(0, rows, carry=lowest):
            for s in b.loop(0, whole, lanes, carry=lowest):
                lowest[0] = b.minimum(lowest[0], _lowest(b, words, r * pitch + s, lanes))
            for _ in b.when(whole < steps, carry=lowest):
                lowest[0] = b.minimum(lowest[0], _lowest(b, words, r * pitch + whole, lanes, steps - whole))
        b.store(halves, 0, lowest[0])
        found = _of_words(b, halves, lanes)
        least = b.slice(found, 0, 1)
        for lane in range(1, lanes):
            least = b.minimum(least, b.slice(found, lane, 1))
        b.store(fact, 0, b.minimum(b.load(fact, 0, 1), exponent(b, least)))

    return b.function("lowest_bit", (int32, None, None, None, int32), body)
