"""Runs of floats by elements of four bits whose sums are exact: products of bytes give them, four to an instruction.

Where all elements of A in a run are whole multiples of some 2^u, and the sum of their magnitudes times the largest of B
is below 2^(24 + u), every sum on the way of the chain of numerics.md section 4 is a multiple of 2^u that float32 holds:
nothing is rounded, so the order is free and integers give the same bits. That is a fact of values, found once for each
row of A: of a run as many words as pass, from its first on, are summed so, and the chain goes on from there. Numbers of
few significant bits mostly pass (bfloat16, normally distributed, beside float4_e2m1fn in blocks of 16 and int4 in
blocks of 32, 64 and 128: 99, 98, 93 and 77 words of 100).

Such multiples have 22 bits and are kept as three digits, signed bytes: 65536 x + 256 y + z; codes of B become
unsigned bytes, a number and `CodeBytes.offset`, and what that adds is in what sums start at. A word and 16 columns
take 6 products and 3 or 5 operations for the codes, where floats take 20: on Emerald Rapids 1 x 4096 x 1024 with int4
by 32 takes 46 * 10^9 weights a second, and 33 by floats. Start at `emit_measure`, which looks at rows, and at
`ExactRuns.gain`.
"""

from __future__ import annotations

from typing import Any

from samebits.codegen.isa import Isa
from samebits.codegen.vocabulary import Builder, Function, Index, Pointer, Vector
from samebits.dtypes import DType, float32, int32, uint8, uint32
from samebits.frozen import dataclass
from samebits.kernels.gemm import engine as engines
from samebits.kernels.gemm.block_microkernel import BEGUN, BEGUN_FLOAT

# Elements of a word of B, digits of a multiple, and what is kept for a word: two int32 of each digit, for the low
# halves of its bytes and the high ones.
EIGHT, _DIGITS = 8, 3
SLOTS = 2 * _DIGITS
# What is kept for a run: how many of its words pass, the float32 that a unit stands for, and what sums start at.
FACTS = 3
# Runs of up to so many words are summed in a straight text, as a whole or not at all.
_STRAIGHT = 4
# Bits of a float32's significand, of its fraction, and its exponent's bias.
_SIGNIFICANT, _FRACTION, _BIAS = 24, 23, 127
# The least and the largest bound of sums: units are normal numbers, half of them too, and nothing overflows.
_LEAST_FIELD, _MOST = 25, 2.0**100
# Sums of magnitudes are rounded, by far less than this.
_MARGIN = 1 + 2.0**-8
# Elements of A of more bits, and of longer runs, seldom have sums that are exact.
_MOST_BITS, _LONGEST = 16, 512


def suits(isa: Isa, a: DType, run: int) -> bool:
    """Whether it pays to look at elements of format `a`, in runs of so many."""
    return "dot4_uint8_int8" in isa.instructions and a.width_bits <= _MOST_BITS and run <= _LONGEST


@dataclass(frozen=True, slots=True)
class CodeBytes:
    """Codes of a format of four bits as unsigned bytes: its number in units, and `offset`."""

    dtype: DType

    @property
    def values(self) -> tuple[int, ...]:
        """The number of each code, in units."""
        unit = engines.unit(self.dtype)
        return tuple(int(float(self.dtype.decode(code)) / unit) for code in range(16))

    @property
    def offset(self) -> int:
        """What makes all numbers positive."""
        return -min(self.values)

    @property
    def span(self) -> int:
        """The largest magnitude, in units."""
        return max(map(abs, self.values))

    def of(self, b: Builder, codes: Vector) -> Vector:
        """The low halves of bytes of words as these bytes."""
        low = b.bit_and(codes, b.like(codes, 0x0F0F0F0F))
        table = [value + self.offset for value in self.values]
        # Codes whose numbers are in order once some of their bits are turned need no table: int4's number plus 8 is
        # code ^ 8.
        turned = table.index(0)
        if table == [code ^ turned for code in range(16)]:
            low = b.bit_xor(low, b.like(low, 0x01010101 * turned)) if turned else low
        else:
            low = b.lookup_bytes(table, low)
        return b.bitcast(low, int32)


def emit_measure(b: Builder, high: int, run: int, kind: CodeBytes, order: tuple[int, ...]) -> Function:
    """A function `(a, pitch, steps, digits, facts)`: what is kept of `high` rows of float32, `pitch` apart, of `steps`
    words in runs of `run`. Words pass where they do in all of these rows.

    `order`: the elements of a word that its bytes hold, from the lowest on, in their low halves, then in the high."""
    rows = range(high)

    def body(a: Pointer, pitch: Index, steps: Index, digits: Pointer, facts: Pointer) -> None:
        for first in b.loop(0, steps, run):
            stop = b.min(first + run, steps)
            known = [_unit(b, b.offset(a, i * pitch), first, stop, kind) for i in rows]
            passing, count = b.constant(-1, int32, 1), b.constant(0, int32, 1)
            for _, _, bounded in known:
                passing = b.bit_and(passing, bounded)
            state = [passing, count]
            sums = [b.constant(0, int32, EIGHT) for _ in rows]
            for s in b.loop(first, stop, carry=[state, sums]):
                wholes = []
                for i, (unit, inverse, _) in enumerate(known):
                    x, begun = b.load(a, i * pitch + s * EIGHT, EIGHT), b.constant(BEGUN_FLOAT, float32, EIGHT)
                    # Below 2^22, as all are where sums are not too large, its bits are those of the number nearest.
                    near = b.fma(x, b.splat(inverse, EIGHT), begun)
                    whole = b.sub(b.bitcast(near, int32), b.constant(BEGUN, int32, EIGHT))
                    other = b.invert(b.equal(b.mul(b.sub(near, begun), b.splat(unit, EIGHT)), x))
                    state[0] = b.bit_and(state[0], b.from_index(b.choose(b.any(other), 0, -1), int32))
                    b.store(digits, (i * steps + s) * SLOTS, _digits(b, b.pick([whole], order)))
                    wholes.append(whole)
                state[1] = b.sub(state[1], state[0])
                for i in rows:
                    sums[i] = b.add(sums[i], b.bit_and(wholes[i], b.splat(state[0], EIGHT)))
            for i, (unit, _, _) in enumerate(known):
                start, at = _total(b, sums[i]), (i * runs_of(b, steps, run) + first // run) * FACTS
                b.store(facts, at, state[1])
                b.store(facts, at + 1, b.bitcast(b.mul(unit, b.like(unit, engines.unit(kind.dtype))), int32))
                b.store(facts, at + 2, b.mul(start, b.like(start, -kind.offset)))

    return b.function(f"measure_{high}", (float32, None, None, int32, int32), body)


def runs_of(b: Builder, steps: Index, run: int) -> Index:
    """Runs of so many words."""
    return (steps + run - 1) // run


def _unit(b: Builder, a: Pointer, first: Index, stop: Index, kind: CodeBytes) -> tuple[Vector, Vector, Vector]:
    """The unit of words first .. stop-1 of a row, in which no sum is too large, one over it, and -1 if that is so."""
    total = [b.constant(0, float32, EIGHT)]
    for s in b.loop(first, stop, carry=total):
        total[0] = b.add(total[0], b.abs(b.load(a, s * EIGHT, EIGHT)))
    found = _total(b, total[0])
    bound = b.mul(found, b.like(found, kind.span * _MARGIN))
    field = b.shift_right(b.bitcast(bound, int32), _FRACTION)
    field = b.maximum(field, b.like(field, _LEAST_FIELD))
    # The bound is below 2^(field - bias + 1), the unit that times 2^-24.
    exponent = b.sub(field, b.like(field, _SIGNIFICANT - 1))
    fields = exponent, b.sub(b.like(exponent, 2 * _BIAS), exponent)
    unit, inverse = (b.bitcast(b.shift_left(x, _FRACTION), float32) for x in fields)
    return unit, inverse, b.sub(b.like(field, 0), b.convert(b.less(bound, b.like(bound, _MOST)), int32))


def _total(b: Builder, x: Vector) -> Vector:
    """The sum of eight lanes."""
    for width in (4, 2, 1):
        x = b.add(b.slice(x, 0, width), b.slice(x, width, width))
    return x


def _digits(b: Builder, x: Vector) -> Vector:
    """The digits of eight numbers, the lowest first, two int32 each.

    128 is added at each digit, so that all bytes are positive and none borrows from the next, and taken off again by
    turning each byte's highest bit.
    """
    high = b.like(x, sum(128 << 8 * i for i in range(_DIGITS)))
    places = b.bitcast(b.bit_xor(b.add(x, high), high), uint32)
    found = [b.join(b.convert(b.shift_right(places, 8 * i), uint8), uint32) for i in range(_DIGITS)]
    return b.bitcast(b.concat(found), int32)


@dataclass(frozen=True, slots=True)
class ExactRuns:
    """The digits of some rows of A, `pitch` apart from row to row, and facts of their `runs` runs of `run` words.

    `nr`: columns of a panel of B, whose codes become `kind`."""

    kind: CodeBytes
    run: int
    nr: int
    digits: Pointer
    pitch: Index
    facts: Pointer
    runs: Index

    def gain(self, b: Builder, sums: list[list[Any]], panel: Pointer, first: Index, ahead: int) -> Index:
        """The rows' sums of a run, which begins at word `first` of the panel, are those of the words that pass, of
        which the number is the result; +0 where none does."""
        high = len(sums)
        taken = b.load_index(self.facts, self._facts_at(0, first))
        if self.run <= _STRAIGHT:
            taken = b.choose(taken >= self.run, self.run, 0)
        vectors = len(sums[0])
        # Registers beside digits of sums hold the accumulators, bytes of a word and some words of A.
        room = (b.isa.registers - vectors * high - 6) // (_DIGITS * high)
        together = next((size for size in (vectors, 2) if size <= room), 1)
        for _ in b.when(taken > 0, carry=sums):
            for v in range(0, vectors, together):
                self._group(b, sums, range(v, min(v + together, vectors)), panel, first, taken, ahead)
        return taken

    def _facts_at(self, i: int, first: Index) -> Index:
        return (i * self.runs + first // self.run) * FACTS

    def _group(
        self, b: Builder, sums: list[list[Any]], vectors: range, panel: Pointer, first: Index, taken: Index, ahead: int
    ) -> None:
        """Sums of some vectors of columns."""
        rows, lanes = range(len(sums)), b.isa.lanes
        nothing = b.constant(0, int32, lanes)
        digits = []
        for i in rows:
            start = b.splat(b.load(self.facts, self._facts_at(i, first) + 2, 1), lanes)
            digits += [[start, *[nothing] * (_DIGITS - 1)] for _ in vectors]
        if self.run <= _STRAIGHT:
            for s in range(self.run):
                self._step(b, digits, vectors, panel, first + s, ahead)
        else:
            for s in b.loop(first, first + taken, carry=digits):
                self._step(b, digits, vectors, panel, s, ahead)
        for i in rows:
            unit = b.bitcast(b.splat(b.load(self.facts, self._facts_at(i, first) + 1, 1), lanes), float32)
            for n, v in enumerate(vectors):
                low, middle, top = digits[i * len(vectors) + n]
                whole = b.add(low, b.add(b.shift_left(middle, 8), b.shift_left(top, 16)))
                sums[i][v] = b.mul(b.convert(whole, float32), unit)

    def _step(self, b: Builder, digits: list[list[Any]], vectors: range, panel: Pointer, s: Index, ahead: int) -> None:
        """Every digit's sum gains the eight products of word s."""
        lanes = b.isa.lanes
        for n, v in enumerate(vectors):
            word = b.load(panel, s * self.nr + v * lanes, lanes)
            b.prefetch(panel, (s + ahead) * self.nr + v * lanes)
            halves = self.kind.of(b, word), self.kind.of(b, b.shift_right(word, 4))
            for i in range(len(digits) // len(vectors)):
                found = digits[i * len(vectors) + n]
                for q in range(_DIGITS):
                    for half, bytes_of in enumerate(halves):
                        at = i * self.pitch + s * SLOTS + 2 * q + half
                        left = b.splat(b.load(self.digits, at, 1), lanes)
                        found[q] = b.dot4_uint8_int8(found[q], bytes_of, left)
