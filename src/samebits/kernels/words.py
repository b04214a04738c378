"""Random words inside kernel texts: Philox4x32-10 of many counters at once (`philox.block` is its meaning).

    WordStream(b)                                    # what roundings draw from (numerics.md section 9)
    stream.fill(room, first, count) -> Pointer   # neighbours in row-major order: four of a counter
    stream.each(index) -> Vector                 # any indices: one of a counter, the others are lost

Start at `WordStream`.
"""

from __future__ import annotations

from collections.abc import Sequence

from samebits import philox
from samebits.codegen.vocabulary import Builder, Index, Pointer, Vector
from samebits.dtypes import uint32, uint64
from samebits.frozen import dataclass

__all__ = ["WordStream", "words_room"]


def words_room(lanes: int) -> int:
    """Words that `fill` may write beside those that are asked for, with so many float32 in a register."""
    return 4 + 4 * (-(-lanes // 4) * 4)


@dataclass(frozen=True, slots=True)
class WordStream:
    """The words of one seed, which the argument `seed` of the kernel points to.

    Attributes:
        b: The builder.
        offset: One uint64, the upper half of every counter; None is 0.
        number: Which word of each element it has.
    """

    b: Builder
    offset: Vector | None = None
    number: int = 0

    def fill(self, room: Pointer, first: Index, count: Index) -> Pointer:
        """Where the words of elements first .. first+count-1 begin, once they are drawn into a room.

        Args:    room: of uint32, `words_room` more of them than are drawn.
        """
        b, skipped = self.b, first & 3
        keys = self._keys(self._lanes)
        for group in b.loop(0, (count + skipped + 3) >> 2, self._lanes):
            for k, drawn in enumerate(self._four((first >> 2) + group, keys)):
                b.store(room, group * 4 + k * drawn.width, drawn)
        return b.offset(room, skipped)

    def each(self, index: Vector) -> Vector:
        """The word of each index, lanes of uint64."""
        b = self.b
        drawn = self._drawn(b.shift_right(index, 2), self._keys(index.width))
        which = b.bit_and(index, b.like(index, 3))
        found = drawn[0]
        for k in (1, 2, 3):
            found = b.select(b.equal(which, b.like(which, k)), drawn[k], found)
        return found

    @property
    def _lanes(self) -> int:
        """Counters that are drawn from at once: a multiple of four."""
        return -(-self.b.isa.lanes // 4) * 4

    def _keys(self, lanes: int) -> list[tuple[Vector, Vector]]:
        """The two words of the seed as each round takes them, in every lane."""
        b = self.b
        seed = b.load(b.pointer("seed", uint64), 0, 1)
        low, high = b.convert(seed, uint32), b.convert(b.shift_right(seed, 32), uint32)

        def moved(word: Vector, distance: int) -> Vector:
            return b.splat(b.convert(b.add(word, b.constant(distance & 0xFFFFFFFF, uint32, 1)), uint64), lanes)

        first, second = philox.WEYL
        return [(moved(low, number * first), moved(high, number * second)) for number in range(philox.ROUNDS)]

    def _four(self, first: Index, keys: Sequence[tuple[Vector, Vector]]) -> list[Vector]:
        """The words of counters first, first + 1, ..., four vectors that follow one another in memory."""
        b, lanes = self.b, self._lanes
        # Squares of four lanes are transposed: lane 4 q + k has the counter that the k-th vector begins its q-th four
        # with.
        lane = b.iota(uint64, lanes)
        order = b.add(b.mul(b.bit_and(lane, b.like(lane, 3)), b.like(lane, lanes // 4)), b.shift_right(lane, 2))
        counter = b.add(order, b.splat(b.from_index(first, uint64), lanes))
        return b.transpose_blocks(self._drawn(counter, keys))

    def _drawn(self, counter: Vector, keys: Sequence[tuple[Vector, Vector]]) -> list[Vector]:
        """Philox4x32-10 of counters whose lower 64 bits are given: four words each.

        Words are the low halves of lanes of 64 bits, where products are; what is above them is not looked at.
        """
        b = self.b
        if self.number:
            counter = b.add(counter, b.like(counter, self.number << 62))
        low, w = b.like(counter, 0xFFFFFFFF), [counter, b.shift_right(counter, 32)]
        if self.offset is None:
            w += [b.like(counter, 0), b.like(counter, 0)]
        else:
            upper = b.splat(self.offset, counter.width)
            w += [upper, b.shift_right(upper, 32)]
        for first, second in keys:
            x, y = (
                b.mul(b.bit_and(w[k], low), b.like(counter, multiplier))
                for k, multiplier in zip((0, 2), philox.MULTIPLIERS, strict=True)
            )
            high_x, high_y = b.shift_right(x, 32), b.shift_right(y, 32)
            w = [b.bit_xor(b.bit_xor(high_y, w[1]), first), y, b.bit_xor(b.bit_xor(high_x, w[3]), second), x]
        return [b.convert(word, uint32) for word in w]
