"""Codes of scaled numbers as kernel text: two elements a lane, encoded, and put side by side as they are stored.

A lane of 32 bits has an even element and the odd one after it: for formats of 16 bits that is how they lie in memory.
Start at `Encoder`.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from samebits.codegen.vocabulary import Builder, Index, Pointer, Vector
from samebits.conversions import Conversion
from samebits.dtypes import DType, bfloat16, float4_e2m1fn, float32, int32, uint8, uint16, uint32
from samebits.frozen import dataclass
from samebits.kernels import convert, rounding
from samebits.kernels.quantize import halves
from samebits.kernels.quantize.formulas import ElementRule

_SIGN = 1 << 31
_INFINITY = 0x7F800000
# What a quotient is quickly found by: factors of few bits and of an exponent such that no step of it leaves the range
# of normal numbers where the code of an element could depend on it.
_FEW_BITS, _SHORT_BITS, _FRACTION = 0x000001FF, 0x000FFFFF, 0x007FFFFF
_NEAR_ONE = 80
# A number between 2^23 and 2^24, whose ulp is 1, with room for codes above it.
_WHOLE = 1.5 * 2**23
# Cells of a code book on each side of the one around 0: with it they are one less than a lookup has entries.
_CELLS = 15


@dataclass(frozen=True, slots=True)
class Pairs:
    """Even and odd elements as float32, and where the format has 16 bits their codes side by side."""

    even: Vector
    odd: Vector
    both: Vector | None = None


def load_pairs(b: Builder, x: Pointer, i: Index, width: int) -> Pairs:
    """Elements i, i+2, ... and i+1, i+3, ..., `width` of each."""
    dtype: DType = x.dtype
    if dtype is float32:
        halves = [b.load(x, i + k, width) for k in (0, width)]
        return Pairs(b.pick(halves, range(0, 2 * width, 2)), b.pick(halves, range(1, 2 * width, 2)))
    both = b.load(b.cast(b.offset(x, i), uint32, aligned=False), 0, width)
    low, high = b.shift_left(both, 16), b.bit_and(both, b.like(both, 0xFFFF0000))
    if dtype is bfloat16:
        return Pairs(b.bitcast(low, float32), b.bitcast(high, float32), both)
    even, odd = (convert.decode(b, b.shift_right(code, 16), dtype) for code in (low, high))
    return Pairs(even, odd, both)


@dataclass(frozen=True, slots=True)
class Encoder:
    """How numbers become codes of one element format by a rule.

    Attributes:
        x: The format of numbers.
        element: The format, of 4, 6 or 8 bits.
        rule: How a code follows from a number and the factor of its block.
        powers: Whether factors are powers of two, where the rule divides.
        zero: The format of zero points; None without.
        codebook: What codes mean, ascending, where that is not the format's.
        drawn: Whether codes are rounded stochastically; then all are encoded plainly.
    """

    x: DType
    element: DType
    rule: ElementRule
    powers: bool
    zero: DType | None = None
    codebook: tuple[float, ...] | None = None
    drawn: bool = False

    def is_plain(self, b: Builder, amax: Vector, factor: Vector) -> Vector:
        """A mask of blocks whose elements need to be encoded plainly, by their largest magnitude and their factor.

        Elsewhere no number is NaN and no factor negative, and division is what `_quotient` and `_scaled` make of it.
        """
        bits, largest = b.bitcast(factor, uint32), b.bitcast(amax, uint32)
        infinity, divides = b.like(bits, _INFINITY), self.rule.apply == "divide"
        odd = b.invert(b.less(largest, infinity))
        if self.by_halves(b):
            odd = b.bit_or(odd, b.invert(halves.is_within(b, amax, factor, divides)))
        if not divides:
            return b.bit_or(odd, b.invert(b.less(bits, infinity)))
        low = (float32.bias - _NEAR_ONE) << float32.mantissa_bits
        far = b.less(b.like(bits, 2 * _NEAR_ONE << float32.mantissa_bits), b.sub(bits, b.like(bits, low)))
        if self._is_twice:
            return b.bit_or(odd, far)
        few = _FRACTION if self.powers else _SHORT_BITS if self.by_halves(b) else _FEW_BITS
        many = b.invert(b.equal(b.bit_and(bits, b.like(bits, few)), b.like(bits, 0)))
        return b.bit_or(odd, b.bit_or(far, many))

    def by_halves(self, b: Builder) -> bool:
        """Whether codes of two elements are looked up at a time (`halves`): where that is one instruction, and ties are
        products without an error, or far enough from others."""
        rule, exact = self.rule, self.powers or self.rule.factors == "short"
        usual = rule.ties == "even" and rule.zero == "kept" and rule.within is float32 and not self.drawn
        fits = self.element is float4_e2m1fn and self.x.width_bits == 16 and "lookup" in b.isa.instructions
        return fits and exact and usual

    @property
    def _is_twice(self) -> bool:
        """Whether a quotient is made right in two steps, as factors have any number of bits."""
        return self.codebook is not None or self.rule.factors == "many"

    def takes(self, b: Builder, plain: bool) -> tuple[str, ...]:
        """What `lanes` needs of blocks: their factor, its inverse, or both; plainly also the code of NaN; and last the
        zero point."""
        zero = () if self.zero is None else ("zero",)
        if plain:
            return ("factor", "nan", *zero)
        if self.rule.apply == "multiply":
            return ("factor", *zero)
        alone = self.powers or self.by_halves(b)
        return ("inverse", *zero) if alone else ("factor", "inverse", *zero)

    def lanes(
        self,
        b: Builder,
        pairs: Pairs,
        of_even: Sequence[Vector],
        of_odd: Sequence[Vector],
        plain: bool,
        words: tuple[Vector, Vector] | None = None,
    ) -> Vector:
        """uint32 lanes with the codes of pairs of elements in their lowest bits; above them anything.

        Args:    of_even, of_odd: what `takes` names, for the elements of pairs.   plain: see `is_plain`.
                 words: of even and odd elements, where they are rounded stochastically.
        """
        if pairs.both is not None and not plain and self.by_halves(b):
            even, odd = (magnitude(b, x) for x in (pairs.even, pairs.odd))
            return halves.codes(b, even, odd, pairs.both, (of_even[-1], of_odd[-1]))
        width = self.element.width_bits
        ones = (1 << (width - 1)) - 1
        (even, even_sign), (odd, odd_sign) = (
            self._code(b, x, of_block, plain, word)
            for x, of_block, word in zip((pairs.even, pairs.odd), (of_even, of_odd), words or (None, None), strict=True)
        )
        if plain or self.rule.zero != "kept" or pairs.both is None or self.element.is_integer:
            signs = [b.bit_and(sign, b.like(sign, _SIGN)) for sign in (even_sign, odd_sign)]
            low, high = b.shift_right(signs[0], 32 - width), b.shift_right(signs[1], 32 - 2 * width)
        else:
            both = b.bit_and(pairs.both, b.like(pairs.both, 0x80008000))
            low, high = b.shift_right(both, 16 - width), b.shift_right(both, 32 - 2 * width)
        codes = halves.chosen(b, (1 << width) - 1, even, b.shift_left(odd, width))
        if self.element.is_integer:
            return codes
        if not self._is_clean:
            codes = b.bit_and(codes, b.like(codes, ones | ones << width))
        return b.bit_or(b.bit_or(codes, low), high)

    def _code(
        self, b: Builder, x: Vector, of_block: Sequence[Vector], plain: bool, word: Vector | None
    ) -> tuple[Vector, Vector]:
        """The code, of a float without its sign, in the lowest bits; and a number that has its sign."""
        bits = b.bitcast(x, uint32)
        zero = None if self.zero is None else of_block[-1]
        if plain:
            y = b.mul(x, of_block[0]) if self.rule.apply == "multiply" else b.div(x, of_block[0])
            signed = b.bitcast(y, uint32)
        elif self.element.is_integer:
            y = self._scaled(b, x, of_block if zero is None else of_block[:-1])
            signed = b.bitcast(y, uint32)
        else:
            y = self._scaled(b, magnitude(b, x), of_block)
            signed = bits
        if self.rule.within is not float32:
            y = convert.number(b, convert.cast(b, y, self.rule.within))
            signed = b.bitcast(y, uint32) if plain else signed
        if self.element.is_integer:
            code = self._integer(b, y, zero, word) if self.codebook is None else self._nearest(b, y, self.codebook)
            sign = b.like(bits, 0)
        else:
            scaled = b.bit_and(b.bitcast(y, uint32), b.like(bits, _SIGN - 1)) if plain else b.bitcast(y, uint32)
            if word is not None:
                conversion = Conversion(rounding="stochastic", overflow="saturate")
                code = rounding.to_float(b, y, self.element, conversion, word).lanes
                code = b.bit_and(code, b.like(code, (1 << (self.element.width_bits - 1)) - 1))
            else:
                code = self._by_lines(b, scaled) if self._is_clean else self._rounded(b, scaled)
            sign = self._sign(b, code, scaled, signed)
        if plain:
            lost, nan, width = b.is_nan(y), of_block[1], self.element.width_bits
            kept = 0 if self.element.is_integer else 1 << (width - 1)
            code = b.select(lost, b.bit_and(nan, b.like(nan, 0xFFFFFFFF ^ kept)), code)
            sign = b.select(lost, b.shift_left(b.bit_and(nan, b.like(nan, kept)), 32 - width), sign)
        return code, sign

    def _sign(self, b: Builder, code: Vector, scaled: Vector, signed: Vector) -> Vector:
        """A number that has the sign of the code."""
        if self.rule.zero == "kept":
            return signed
        zero, magnitude = b.like(scaled, 0), scaled
        if self.rule.zero == "unsigned":
            magnitude = b.bit_and(code, b.like(code, (1 << (self.element.width_bits - 1)) - 1))
        due = b.like(scaled, _SIGN if self.rule.zero == "negative" else 0)
        return b.select(b.equal(magnitude, zero), due, signed)

    def _integer(self, b: Builder, y: Vector, zero: Vector | None, word: Vector | None) -> Vector:
        """The nearest integer of those that there are, in two's complement in the lowest bits: a large number is added
        whose ulp is 1. An integer zero point is added behind it, to the limits before. Signed integers have as many
        below 0 as above."""
        largest = float(self.element.max)
        low, high = b.like(y, -largest if self.element.signed else 0.0), b.like(y, largest)
        if zero is not None and self.zero is float32:
            y, zero = b.add(y, zero), None
        if word is not None:
            y = rounding.whole(b, y, "stochastic", word)
        if zero is not None:
            low, high = b.sub(low, zero), b.sub(high, zero)
        y = b.select(b.less(y, high), y, high)
        y = b.select(b.less(low, y), y, low)
        whole = b.bitcast(b.add(y, b.like(y, _WHOLE)), uint32)
        return whole if zero is None else b.add(whole, b.bitcast(b.add(zero, b.like(y, _WHOLE)), uint32))

    def _nearest(self, b: Builder, y: Vector, book: tuple[float, ...]) -> Vector:
        """How many of the middles between neighbours of an ascending book of 2^n values are below y: bit by bit, or by
        tables of cells where lookups are instructions (nf4 of 4096 x 4096 of bfloat16: 2.45 and 1.82 times as long as
        memory takes)."""
        cells = _cells(book) if "lookup" in b.isa.instructions else None
        if cells is not None:
            return _by_cells(b, y, cells)
        middles = [_below((first + second) / 2) for first, second in itertools.pairwise(book)]
        masks: list[Vector] = []
        code = b.constant(0, uint32, y.width)
        for bit in reversed(range(len(book).bit_length() - 1)):
            # The middles that may decide this bit: one for each choice of the bits above.
            found = [b.like(y, x) for x in middles[(1 << bit) - 1 :: 2 << bit]]
            for mask in reversed(masks):
                found = [b.select(mask, second, first) for first, second in zip(found[::2], found[1::2], strict=True)]
            masks.append(b.less(found[0], y))
            code = b.bit_or(code, b.select(masks[-1], b.like(code, 1 << bit), b.like(code, 0)))
        return code

    def _scaled(self, b: Builder, x: Vector, of_block: Sequence[Vector]) -> Vector:
        """A magnitude times or over its block's factor, rounded once; over a power of two is times its inverse.

        Else the error of x * inverse is found exactly by an fma, and its quotient is added. What is then rounded is
        wrong by 2^-23 of an ulp, and a quotient by a number of few bits is never that near to where rounding turns.
        By one of many bits it may be: but as the result is less than an ulp away, and the inverse is rounded to
        nearest, the same once more gives the rounded quotient (Markstein 1990, theorem 8.4 of his book of 2000).
        """
        if len(of_block) == 1:
            return b.mul(x, of_block[0])
        factor, inverse = of_block
        first = b.mul(x, inverse)
        for _ in range(2 if self._is_twice else 1):
            first = b.fma(b.fma(b.neg(first), factor, x), inverse, first)
        return first

    @property
    def _is_clean(self) -> bool:
        """Whether `_rounded` leaves the bit of the sign 0."""
        return self.element.is_float and self.element.exponent_bits == 2 and self.rule.ties == "even"

    def _by_lines(self, b: Builder, scaled: Vector) -> Vector:
        """The code of a magnitude where few powers of two have codes of their own; at most the largest.

        Over the magnitude, codes are a chain of straight lines that grow ever slower, so the least of the lines is the
        one that holds; each is rounded to a whole number, in the lowest bits, as it is added to a large one.
        """
        element, x = self.element, b.bitcast(scaled, float32)
        mantissa = element.mantissa_bits
        found = b.bitcast(b.constant(_WHOLE + element.max_code, float32, x.width), uint32)
        for power in range(3):
            slope, start = 2.0 ** (mantissa - power), b.like(x, _WHOLE + (power << mantissa))
            line = b.add(x, start) if slope == 1 else b.fma(x, b.like(x, slope), start)
            found = b.minimum(found, b.bitcast(line, uint32))
        return found

    def _rounded(self, b: Builder, scaled: Vector) -> Vector:
        """The code of a magnitude given by its bits, in the lowest bits; at most the largest.

        A power of two is added whose ulp is the distance of codes there: the sum's lowest bits count codes from the
        last power of two, of which the exponent says how many codes are below. So subnormals are no case of their own.
        """
        element = self.element
        mantissa, drop = element.mantissa_bits, float32.mantissa_bits - element.mantissa_bits
        lowest = float32.bias + 1 - element.bias  # the least normal exponent, as float32 has it
        # The power may be raised by codes, which the sum then counts too; an even number: ties stay as they are.
        counted = -(lowest << mantissa) % (1 << (element.width_bits - 1))
        top = b.bitcast(b.constant(float(element.max), float32, scaled.width), uint32)
        scaled = b.minimum(scaled, top)
        exponent = b.maximum(
            b.bit_and(scaled, b.like(scaled, _INFINITY)), b.like(scaled, lowest << float32.mantissa_bits)
        )
        anchor = b.add(exponent, b.like(exponent, (drop << float32.mantissa_bits) + counted))
        total = b.add(b.bitcast(scaled, float32), b.bitcast(anchor, float32))
        code = b.add(b.bitcast(total, uint32), b.shift_right(exponent, drop))
        if self.rule.ties == "zero":
            plain = b.bitcast(b.sub(anchor, b.like(anchor, counted)), float32)
            raised = b.sub(b.sub(total, b.bitcast(anchor, float32)), b.bitcast(scaled, float32))
            tie = b.equal(raised, b.mul(plain, b.like(plain, 2.0**-24)))
            code = b.select(tie, b.sub(code, b.like(code, 1)), code)
        return code


@functools.cache
def _cells(book: tuple[float, ...]) -> tuple[tuple[float, ...], tuple[float, ...]] | None:
    """For each of 31 cells, those of numbers that are nearest to c / 15, and before them for none: float32 whose bits
    are how many middles are below the cell, and the middle in it, or infinity. The first and the last have no end. None
    where a cell has several middles."""
    middles = [Fraction((first + second) / 2) for first, second in itertools.pairwise(book)]
    counts, inside = [0], [math.inf]
    for c in range(-_CELLS, _CELLS + 1):
        low, high = (Fraction(2 * c + side, 2 * _CELLS) for side in (-1, 1))
        below = 0 if c == -_CELLS else sum(m < low for m in middles)
        found = middles[below:] if c == _CELLS else [m for m in middles[below:] if m <= high]
        if len(found) > 1:
            return None
        counts.append(below)
        inside.append(_below(float(found[0])) if found else math.inf)
    return tuple(np.array(counts, np.uint32).view(np.float32).tolist()), tuple(inside)


def _by_cells(b: Builder, y: Vector, cells: tuple[tuple[float, ...], tuple[float, ...]]) -> Vector:
    """How many middles are below y: y's cell comes of one addition to a number whose ulp is 1."""
    first = int(np.float32(_WHOLE + _CELLS + 1).view(np.int32))
    number = b.bitcast(b.fma(y, b.like(y, float(_CELLS)), b.like(y, _WHOLE + _CELLS + 1)), int32)
    number = b.minimum(b.maximum(number, b.like(number, first - _CELLS)), b.like(number, first + _CELLS))
    number = b.bit_and(number, b.like(number, 2 * _CELLS + 1))
    below, middle = b.bitcast(b.lookup(cells[0], float32, number), uint32), b.lookup(cells[1], float32, number)
    return b.add(below, b.select(b.less(middle, y), b.like(below, 1), b.like(below, 0)))


def _below(x: float) -> float:
    """The largest float32 that is not above x."""
    near = np.float32(x)
    return float(near if float(near) <= x else np.nextafter(near, np.float32(-np.inf)))


def magnitude(b: Builder, x: Vector) -> Vector:
    """A float32 without its sign."""
    bits = b.bitcast(x, uint32)
    return b.bitcast(b.bit_and(bits, b.like(bits, _SIGN - 1)), float32)


def spread(b: Builder, of_block: Vector, pairs: int) -> Vector:
    """A number a block in the lanes of its pairs."""
    several = of_block.width
    if several == 1:
        return b.splat(of_block, pairs)
    return b.pick([of_block], [k * several // pairs for k in range(pairs)])


def store_pairs(b: Builder, target: Pointer, i: Index, lanes: Vector, width_bits: int) -> None:
    """Write the codes of pairs i, i+1, ... from a byte on, a multiple of 4 of them."""
    if width_bits == 8:
        b.store(b.cast(target, uint16, aligned=False), i, b.convert(lanes, uint16))
    elif width_bits == 4:
        b.store(target, i, b.convert(lanes, uint8))
    else:
        _store_sixes(b, target, i, lanes)


def _store_sixes(b: Builder, target: Pointer, i: Index, lanes: Vector) -> None:
    """Pairs of 6 bits each: four elements are 24 bits of a lane, and four such lanes are three words."""
    n = lanes.width // 2
    lanes = b.bit_and(lanes, b.like(lanes, 0xFFF))
    even, odd = (b.pick([lanes], range(k, 2 * n, 2)) for k in (0, 1))
    fours = b.bit_or(even, b.shift_left(odd, 12))
    # Word k of three is what is left of four k, and the beginning of four k + 1.
    order = [(k // 3 * 4 + k % 3) % n for k in range(n)]
    first, second = b.pick([fours], order), b.pick([fours], [(k + 1) % n for k in order])
    place = b.convert(b.iota(uint8, n), uint32)
    third = b.sub(place, b.mul(b.shift_right(b.mul(place, b.like(place, 43)), 7), b.like(place, 3)))
    bits = b.shift_left(third, 3)
    words = b.bit_or(b.shift_right(first, bits), b.shift_left(second, b.sub(b.like(bits, 24), bits)))
    b.store(b.cast(b.offset(target, i // 2 * 3), uint32, aligned=False), 0, words, n * 3 // 4)


def copy_bytes(b: Builder, source: Pointer, target: Pointer, n: Index) -> None:
    """n bytes, nothing else."""
    width = 4 * b.isa.lanes
    for i in b.loop(0, n, width):
        b.store(target, i, b.load(source, i, width, n - i), n - i)
