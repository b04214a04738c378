"""Runs of floats by elements of four bits whose sums are exact: products of bytes give them, four to an instruction.

Where all elements of A in a run are whole multiples of some 2^u, and the sum of their magnitudes times the largest of B
is below 2^(24 + u), every sum on the way of the chain of numerics.md section 4 is a multiple of 2^u that float32 holds:
nothing is rounded, so the order is free and integers give the same bits. That is a fact of values, found once for each
row of A: of a run as many words as pass, from its first on, are summed so, and the chain goes on from there; short runs
are summed so as a whole or not at all. Numbers of few significant bits mostly pass: of 100 words of bfloat16 beside
float4_e2m1fn in blocks of 16 and int4 in blocks of 32, 64 and 128, normally distributed 99, 97, 94 and 81, times exp of
twice another such number 65, 33, 36 and 18.

Such multiples have 22 bits and are kept as three digits, signed bytes: 65536 x + 256 y + z; codes of B become
unsigned bytes, a number and `CodeBytes.offset`, and what that adds is in what sums start at. A word and 16 columns
take 6 products and 3 or 5 operations for the codes, where floats take 20: on Emerald Rapids 1 x 4096 x 1024 with int4
by 32 takes 46 * 10^9 weights a second, and 33 by floats. Start at `emit_measure`, which looks at rows, and at
`ExactRuns.gain`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
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
STRAIGHT = 4
# Bits of a float32's significand, of its fraction, and its exponent's bias.
_SIGNIFICANT, _FRACTION, _BIAS = 24, 23, 127
# The least and the largest bound of sums: units are normal numbers, half of them too, and nothing overflows.
_LEAST_FIELD, _MOST = 25, 2.0**100
# Sums of magnitudes are rounded, by far less than this.
_MARGIN = 1 + 2.0**-8
# The exponent field of the lowest bit of 0, above all others.
_EVERY_BIT = 1 << 9
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
            of_run = b.offset(a, first * EIGHT)
            sides, words = [b.offset(of_run, i * pitch) for i in rows], b.min(run, steps - first)
            count, fields = _passing_whole(b, sides, words, kind)
            if run > STRAIGHT:
                found = [count, *fields]
                for _ in b.when(b.any(b.equal(count, b.like(count, 0))), carry=found):
                    found[0], found[1:] = _passing(b, sides, words, kind)
                count, *fields = found
            at = [(i * runs_of(b, steps, run) + first // run) * FACTS for i in rows]
            b.store(facts, at[0], count)
            units = [_units(b, field) for field in fields]
            sums = [b.constant(0, int32, EIGHT) for _ in rows]
            for s in b.loop(0, b.load_index(facts, at[0]), carry=sums):
                for i, (_, inverse) in enumerate(units):
                    x, begun = b.load(of_run, i * pitch + s * EIGHT, EIGHT), b.constant(BEGUN_FLOAT, float32, EIGHT)
                    # Below 2^22, as all are where sums are not too large, its bits are those of the number.
                    whole = b.bitcast(b.fma(x, b.splat(inverse, EIGHT), begun), int32)
                    whole = b.sub(whole, b.constant(BEGUN, int32, EIGHT))
                    b.store(digits, (i * steps + first + s) * SLOTS, _digits(b, b.pick([whole], order)))
                    sums[i] = b.add(sums[i], whole)
            for i, (unit, _) in enumerate(units):
                start = _folded(b, b.add, sums[i])
                b.store(facts, at[i] + 1, b.bitcast(b.mul(unit, b.like(unit, engines.unit(kind.dtype))), int32))
                b.store(facts, at[i] + 2, b.mul(start, b.like(start, -kind.offset)))

    return b.function(f"measure_{high}", (float32, None, None, int32, int32), body)


def runs_of(b: Builder, steps: Index, run: int) -> Index:
    """Runs of so many words."""
    return (steps + run - 1) // run


def _passing_whole(b: Builder, rows: list[Pointer], words: Index, kind: CodeBytes) -> tuple[Vector, list[Vector]]:
    """The number of words of a run if all of them pass, else 0, and each row's field as `_bounded` says."""
    state = [_nothing(b) for _ in rows]
    for s in b.loop(0, words, carry=state):
        state[:] = [_joined(b, of_row, b.load(row, s * EIGHT, EIGHT)) for of_row, row in zip(state, rows, strict=True)]
    found = [_bounded(b, of_row, kind) for of_row in state]
    passing = functools.reduce(b.bit_and, [exact for exact, _ in found])
    return b.bit_and(passing, b.from_index(words, int32)), [field for _, field in found]


def _passing(b: Builder, rows: list[Pointer], words: Index, kind: CodeBytes) -> tuple[Vector, list[Vector]]:
    """How many words of a run pass, from the first on, and each row's field as `_bounded` says.

    Every further word makes the sum larger and the lowest bit lower, so that behind one that fails all do."""
    state = [_nothing(b) for _ in rows]
    fields, count = [b.constant(_BIAS, int32, 1) for _ in rows], [b.constant(0, int32, 1)]
    for s in b.loop(0, words, carry=[state, fields, count]):
        state[:] = [_joined(b, of_row, b.load(row, s * EIGHT, EIGHT)) for of_row, row in zip(state, rows, strict=True)]
        found = [_bounded(b, of_row, kind) for of_row in state]
        passing = functools.reduce(b.bit_and, [exact for exact, _ in found])
        count[0] = b.sub(count[0], passing)
        passes = b.less(passing, b.constant(0, int32, 1))
        fields[:] = [b.select(passes, new, old) for (_, new), old in zip(found, fields, strict=True)]
    return count[0], fields


def _nothing(b: Builder) -> list[Vector]:
    """The sum of the magnitudes of no numbers, and the exponent field of their lowest bit, in eight lanes."""
    return [b.constant(0, float32, EIGHT), b.constant(_EVERY_BIT, int32, EIGHT)]


def _joined(b: Builder, of_row: list[Vector], x: Vector) -> list[Vector]:
    """The same of eight more numbers."""
    return [b.add(of_row[0], b.abs(x)), b.minimum(of_row[1], _lowest_bits(b, x))]


def _bounded(b: Builder, of_row: list[Vector], kind: CodeBytes) -> tuple[Vector, Vector]:
    """-1 if no sum of such numbers times elements of B is rounded, else 0; and the exponent field of a bound of these
    sums, which are below twice its power of two."""
    total, lowest = _folded(b, b.add, of_row[0]), _folded(b, b.minimum, of_row[1])
    bound = b.mul(total, b.like(total, kind.span * _MARGIN))
    field = b.shift_right(b.bitcast(bound, int32), _FRACTION)
    field = b.maximum(field, b.like(field, _LEAST_FIELD))
    exact = b.bit_and(b.less_equal(_unit_field(b, field), lowest), b.less(bound, b.like(bound, _MOST)))
    return b.sub(b.constant(0, int32, 1), b.convert(exact, int32)), field


def _lowest_bits(b: Builder, x: Vector) -> Vector:
    """The exponent fields of the lowest set bits; of subnormal numbers some below all normal ones."""
    bits = b.bitcast(x, int32)
    significand = b.bit_or(b.bit_and(bits, b.like(bits, 0x7FFFFF)), b.like(bits, 0x800000))
    lowest = b.convert(b.bit_and(significand, b.sub(b.like(bits, 0), significand)), float32)
    exponent = b.bit_and(b.shift_right(bits, _FRACTION), b.like(bits, 0xFF))
    field = b.sub(b.add(exponent, b.shift_right(b.bitcast(lowest, int32), _FRACTION)), b.like(bits, _BIAS + _FRACTION))
    return b.select(b.equal(x, b.like(x, 0)), b.like(field, _EVERY_BIT), field)


def _unit_field(b: Builder, field: Vector) -> Vector:
    """The exponent field of the unit of sums below twice 2^(field - bias), which is that times 2^-24."""
    return b.sub(field, b.like(field, _SIGNIFICANT - 1))


def _units(b: Builder, field: Vector) -> tuple[Vector, Vector]:
    """The unit of such sums, and one over it."""
    exponent = _unit_field(b, field)
    fields = exponent, b.sub(b.like(exponent, 2 * _BIAS), exponent)
    unit, inverse = (b.bitcast(b.shift_left(x, _FRACTION), float32) for x in fields)
    return unit, inverse


def _folded(b: Builder, word: Callable[[Vector, Vector], Vector], x: Vector) -> Vector:
    """Eight lanes joined by a word of the vocabulary."""
    for width in (4, 2, 1):
        x = word(b.slice(x, 0, width), b.slice(x, width, width))
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

    def passing(self, b: Builder, first: Index) -> Index:
        """How many words pass of the run that begins at word `first`."""
        return b.load_index(self.facts, self._facts_at(0, first))

    def gain(
        self, b: Builder, sums: list[list[Any]], panel: Pointer, first: Index, taken: Index, ahead: int,
        done: Callable[[list[list[Any]], Sequence[int]], None] | None = None,
    ) -> None:  # fmt: skip
        """The rows' sums of the first `taken` words of the run that begins at word `first` of the panel; `done` is
        called with them as soon as those of some vectors are there."""
        high, vectors = len(sums), len(sums[0])
        # Registers beside digits of sums hold the accumulators, bytes of a word and some words of A.
        room = (b.isa.registers - vectors * high - 6) // (_DIGITS * high)
        together = next((size for size in (vectors, 2) if size <= room), 1)
        source, digits, there = panel, self.digits, list[Any]()
        for v in range(0, vectors, together):
            # In a straight text what these vectors read is read when the others are there: registers hold one of both.
            if there and self.run <= STRAIGHT:
                source, digits = b.anchor(panel, there), b.anchor(self.digits, there)
            group = range(v, min(v + together, vectors))
            self._group(b, sums, group, digits, source, first, taken, ahead)
            there = [row[i] for row in sums for i in group]
            if done is not None:
                done(sums, group)

    def _facts_at(self, i: int, first: Index) -> Index:
        return (i * self.runs + first // self.run) * FACTS

    def _group(
        self, b: Builder, sums: list[list[Any]], vectors: range, of_a: Pointer, panel: Pointer, first: Index,
        taken: Index, ahead: int,
    ) -> None:  # fmt: skip
        """Sums of some vectors of columns."""
        rows, lanes = range(len(sums)), b.isa.lanes
        nothing = b.constant(0, int32, lanes)
        digits: list[list[Any]] = []
        for i in rows:
            start = b.splat(b.load(self.facts, self._facts_at(i, first) + 2, 1), lanes)
            digits += [[start, *[nothing] * (_DIGITS - 1)] for _ in vectors]
        if self.run <= STRAIGHT:
            for s in range(self.run):
                self._step(b, digits, vectors, of_a, panel, first + s, ahead)
        else:
            for s in b.loop(first, first + taken, carry=digits):
                self._step(b, digits, vectors, of_a, panel, s, ahead)
        for i in rows:
            unit = b.bitcast(b.splat(b.load(self.facts, self._facts_at(i, first) + 1, 1), lanes), float32)
            for n, v in enumerate(vectors):
                low, middle, top = digits[i * len(vectors) + n]
                whole = b.add(low, b.add(b.shift_left(middle, 8), b.shift_left(top, 16)))
                sums[i][v] = b.mul(b.convert(whole, float32), unit)

    def _step(
        self, b: Builder, digits: list[list[Any]], vectors: range, of_a: Pointer, panel: Pointer, s: Index, ahead: int
    ) -> None:
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
                        left = b.splat(b.load(of_a, at, 1), lanes)
                        found[q] = b.dot4_uint8_int8(found[q], bytes_of, left)
