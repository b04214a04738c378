"""Words: how elements of any format become the words of an engine's panels, exactly, while they are packed.

`along` reads elements that lie side by side along K, `across` reads them `step` apart for several rows at once; both
give the same words. Start at `Words`.
"""

from __future__ import annotations

from dataclasses import dataclass

from samebits import dtypes
from samebits.codegen.vocabulary import Builder, Index, Pointer, Vector
from samebits.dtypes import DType, float32, float64, uint32
from samebits.kernels import convert

_UNSIGNED = {8: dtypes.uint8, 16: dtypes.uint16, 32: dtypes.uint32, 64: dtypes.uint64}


@dataclass(frozen=True, slots=True)
class Words:
    """Elements of `source`, each in whole bytes, as `element`, `offset` added, `depth` of them in a word.

    The first is in a word's low bits, but for bfloat16 in the high ones, which its engine takes first.
    """

    source: DType
    element: DType
    offset: int
    depth: int
    word: DType

    @property
    def pointer(self) -> DType:
        """The dtype of pointers to the source."""
        return convert.stored(self.source)

    @property
    def is_plain(self) -> bool:
        """Whether a word is an element as it lies."""
        return self.source is self.word

    def place(self, i: int) -> int:
        """Bits below element i of a word."""
        i = self.depth - 1 - i if self.element is dtypes.bfloat16 else i
        return i * self.element.width_bits

    def along(self, b: Builder, x: Pointer, i: Index, width: int, count: Index | None = None) -> Vector:
        """`width` words of elements i, i+1, ...; with `count`, only so many words are read and the rest are zero."""
        if self.depth == 1:
            return self._words(b, [b.load(x, i, width, count)])
        return self._whole(b, self._side_by_side(b, x, i, width, count), count)

    def _side_by_side(self, b: Builder, x: Pointer, i: Index, width: int, count: Index | None) -> Vector:
        bits = self.pointer.width_bits
        lying = _UNSIGNED[bits * self.depth]
        group = b.load(b.cast(b.offset(x, i), lying, aligned=False), 0, width, count)
        if bits == self.element.width_bits and (self.source.width_bits == bits or self.source.is_integer):
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
        if self.element.is_integer and self.element.width_bits == 8 and present is None:
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
        value = code if self.source in (float32, float64) else convert.decode(b, code, self.source)
        return b.convert(value, self.word)

    def _code(self, b: Builder, code: Vector) -> Vector:
        """The code of the element in the low bits of uint32, zero above."""
        if self.element is dtypes.bfloat16:
            if self.source is dtypes.bfloat16:
                return code
            value = (
                b.convert(convert.integer(b, code, self.source), float32)
                if self.source.is_integer
                else convert.decode(b, code, self.source)
            )
            return b.shift_right(b.bitcast(value, uint32), 16)
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
