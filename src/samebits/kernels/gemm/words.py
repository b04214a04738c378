"""Words: how elements of any format become the words of an engine's panels, exactly, while they are packed.

`along` reads elements that lie side by side along K, `across` reads them `step` apart for several rows at once; both
give the same words. Start at `Words`.
"""

from __future__ import annotations

from samebits import dtypes
from samebits.codegen.vocabulary import Builder, Index, Pointer, Vector
from samebits.dtypes import DType, float32, float64, uint32
from samebits.frozen import dataclass
from samebits.kernels import convert

_UNSIGNED = {8: dtypes.uint8, 16: dtypes.uint16, 32: dtypes.uint32, 64: dtypes.uint64}


@dataclass(frozen=True, slots=True)
class Words:
    """Elements of `source`, each in whole bytes, as `element`, `offset` added, `depth` of them in a word; floats as an
    integer `element` are counted in their `unit`. `is_grouped`: the integers of a word lie side by side, and `across`
    counts words.

    The first is in a word's low bits, but for bfloat16 in the high ones, which its engine takes first.
    """

    source: DType
    element: DType
    offset: int
    depth: int
    word: DType
    unit: float = 1.0
    is_grouped: bool = False

    @property
    def pointer(self) -> DType:
        """The dtype of pointers to the source."""
        stored = convert.stored(self.source)
        return _UNSIGNED[stored.width_bits * self.depth] if self.is_grouped else stored

    @property
    def is_plain(self) -> bool:
        """Whether a word is an element as it lies."""
        is_code = self.source is self.element and convert.stored(self.source) is self.word
        return self.source is self.word or is_code

    def place(self, i: int) -> int:
        """Bits below element i of a word."""
        i = self.depth - 1 - i if self.element is dtypes.bfloat16 else i
        return i * self.element.width_bits

    @property
    def _counts(self) -> bool:
        """Whether floats are counted in units."""
        return self.element.is_integer and self.source.is_float

    @property
    def _is_regrouped(self) -> bool:
        """Whether codes side by side become bytes of a word all at once."""
        narrow = not self._counts or self.source is dtypes.float4_e2m1fn
        return self.element.is_integer and self.element.width_bits == 8 and narrow

    def along(self, b: Builder, x: Pointer, i: Index, width: int, count: Index | None = None) -> Vector:
        """`width` words of elements i, i+1, ...; with `count`, only so many words are read and the rest are zero."""
        if self.depth == 1:
            return self._words(b, [b.load(x, i, width, count)])
        return self._whole(b, self._side_by_side(b, x, i, width, count), count)

    def _side_by_side(self, b: Builder, x: Pointer, i: Index, width: int, count: Index | None) -> Vector:
        bits = self.pointer.width_bits
        # Whole vectors of bytes are widened by one instruction (Cascade Lake, avx2, 1 x 768 x 3072 of int8 beside
        # columns: 0.78 of the time of shifts and masks).
        if self.element is dtypes.int16 and self.source.is_integer and self.source.width_bits == 8 and count is None:
            each = b.convert(b.bitcast(b.load(x, i, width * self.depth), self.source), dtypes.int16)
            return b.bitcast(b.join(b.bitcast(each, dtypes.uint16), uint32), self.word)
        lying = _UNSIGNED[bits * self.depth]
        group = b.load(b.cast(b.offset(x, i), lying, aligned=False), 0, width, count)
        lies = self.source.width_bits == bits or self.source.is_integer
        if self._is_regrouped or (bits == self.element.width_bits and lies and not self._counts):
            return self._regrouped(b, group)
        group = b.convert(group, uint32) if lying.width_bits < 32 else group
        mask = b.like(group, (1 << bits) - 1)
        codes = [b.bit_and(b.shift_right(group, bits * s), mask) for s in range(self.depth)]
        return self._words(b, codes)

    def _whole(self, b: Builder, words: Vector, count: Index | None) -> Vector:
        """Words of which only `count` were read: the rest is zero although an offset was added."""
        if count is None or not self.offset:
            return words
        limit = b.splat(b.from_index(count, dtypes.int32), words.width)
        return b.select(b.less(b.iota(dtypes.int32, words.width), limit), words, b.like(words, 0))

    def _regrouped(self, b: Builder, group: Vector) -> Vector:
        """Words whose elements lie as in a word, but for their order, the offset and what is above narrow integers."""
        if self.element is dtypes.bfloat16:
            group = b.bit_or(b.shift_left(group, 16), b.shift_right(group, 16))
        width = self.source.width_bits
        flips = bool(self.offset)
        if self._counts:
            return b.bitcast(_halves(b, group, flips), self.word)
        if width < 8:
            group = b.bit_and(group, b.like(group, 0x01010101 * ((1 << width) - 1)))
        if width < 8 and self.source.signed:
            # Code ^ half is value + half; with 128 more no byte borrows from the next when half is taken away.
            half = 0x01010101 << width - 1
            group = b.sub(
                b.bit_or(b.bit_xor(group, b.like(group, half)), b.like(group, 0x80808080)), b.like(group, half)
            )
            flips = not flips
        if flips:
            group = b.bit_xor(group, b.like(group, 0x80808080))
        return b.bitcast(group, self.word)

    def across(
        self, b: Builder, x: Pointer, i: Index, step: Index, width: int, count: Index | None = None,
        present: Index | None = None,
    ) -> Vector:  # fmt: skip
        """`width` words, the elements of word l at i+l, i+l+step, ...; `present`: how many of them exist, else zero."""
        if self.is_grouped:
            return self._whole(b, self._regrouped(b, b.load(x, i, width, count)), count)
        rows = []
        for s in range(self.depth):
            limit = count
            if present is not None and s:
                limit = b.choose(present > s, width if count is None else count, 0)
            row = b.load(x, i + step * s, width, limit)
            rows.append(row if self.depth == 1 else b.convert(row, uint32))
        return self._whole(b, self._words(b, rows, present), count)

    def _words(self, b: Builder, codes: list[Vector], present: Index | None = None) -> Vector:
        """Words of loaded elements (codes of uint32 where a word holds several)."""
        if self.is_plain:
            return codes[0]
        if self.depth == 1:
            return self._converted(b, codes[0])
        if self._is_regrouped and present is None:
            return self._regrouped(b, _joined(b, codes))
        whole = None
        for i, code in enumerate(codes):
            part = self._code(b, code)
            if present is not None and i and self.offset:
                limit = b.splat(b.from_index(b.choose(present > i, -1, 0), dtypes.int32), code.width)
                part = b.bit_and(part, b.bitcast(limit, uint32))
            part = b.shift_left(part, self.place(i))
            whole = part if whole is None else b.bit_or(whole, part)
        assert whole is not None  # a word holds an element
        return b.bitcast(whole, self.word)

    def _converted(self, b: Builder, code: Vector) -> Vector:
        """The element itself as a word: float32, float64 or int32."""
        if self.source.is_integer:
            return b.convert(convert.integer(b, code, self.source), self.word)
        value = code if self.source in (float32, float64) else self._decoded(b, code)
        return b.convert(value, self.word)

    def _decoded(self, b: Builder, code: Vector) -> Vector:
        """The number that a float's code stands for. Of few codes many are subnormal (Emerald Rapids, bfloat16 by
        weights in panels, ms by multiplying what float32 has as subnormal and without: 17 x 4096 x 4096 of float4 57
        and 14, 1 x 4096 x 4096 of normal numbers in float8_e4m3fn 9.5 and 2.2)."""
        return convert.decode(b, code, self.source, often_subnormal=self.source.width_bits <= 8)

    def _code(self, b: Builder, code: Vector) -> Vector:
        """The code of the element in the low bits of uint32, zero above."""
        if self.element is dtypes.bfloat16:
            if self.source is dtypes.bfloat16:
                return code
            value = (
                b.convert(convert.integer(b, code, self.source), float32)
                if self.source.is_integer
                else self._decoded(b, code)
            )
            return b.shift_right(b.bitcast(value, uint32), 16)
        if self._counts:
            units = b.mul(self._decoded(b, code), b.constant(1 / self.unit, float32, code.width))
            value = b.bitcast(b.convert(units, dtypes.int32), uint32)
        else:
            value = b.bitcast(convert.integer(b, code, self.source), uint32)
        if self.offset:
            value = b.bit_xor(value, b.like(value, 128))
        return b.bit_and(value, b.like(value, (1 << self.element.width_bits) - 1))


def _joined(b: Builder, codes: list[Vector]) -> Vector:
    """Codes of at most 8 bits side by side in uint32, the first lowest."""
    whole = codes[0]
    for i, code in enumerate(codes[1:], 1):
        whole = b.bit_or(whole, b.shift_left(code, 8 * i))
    return whole


def _halves(b: Builder, codes: Vector, offset: bool) -> Vector:
    """Codes of float4_e2m1fn, a byte each, as the halves that they count, in bytes: 0 1 2 3 4 6 8 12 and their
    negatives; with `offset` 128 more."""
    halves = [int(2 * float(dtypes.float4_e2m1fn.decode(code))) for code in range(16)]
    table = [(x + 128 if offset else x) % 256 for x in halves]
    return b.lookup_bytes(table, b.bit_and(codes, b.like(codes, 0x0F0F0F0F)))
