"""Folding a row through lanes: numerics.md section 6 as kernel text, and the order-free maximum and minimum.

Every sum and product takes the same steps whatever the instruction set: 64 lanes however many registers they fill.
Start at `fold`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from samebits import dtypes
from samebits.codegen.vocabulary import Builder, Condition, Index, Pointer, Vector
from samebits.dtypes import DType
from samebits.frozen import dataclass
from samebits.kernels.expression import Term

LANES = 64
BLOCK = 2048
# Vectors that an order-free reduction accumulates side by side: enough to hide the latency of a step.
_ORDER_FREE = 4

Compute = Callable[[Index, int, "Index | None"], list[Vector]]
"""`(i, width, count)`: the values to fold at i .. i+width-1, of which only the first `count` matter."""
Known = Callable[[Index, Index], list[Vector]]
"""`(start, stop)`: the result of a block, and an int32 that is 1 where it has to be folded."""


@dataclass(frozen=True, slots=True)
class Accumulator:
    """One accumulator: the word that takes one element more, and the identity of that word."""

    word: str
    dtype: DType
    identity: float | int

    @property
    def ordered(self) -> bool:
        """Whether the order of steps can change the result's bits."""
        return self.word in ("add", "mul") and self.dtype.is_float

    def step(self, b: Builder, x: Vector, y: Vector) -> Vector:
        """x and y as one; x is what has been accumulated so far."""
        if self.word == "larger":
            return b.select(b.less(x, y), y, x)
        if self.word == "smaller":
            return b.select(b.less(y, x), y, x)
        if self.word == "nan":
            return b.add(x, y)
        found: Vector = getattr(b, self.word)(x, y)
        return found

    def neutral(self, b: Builder, width: int) -> Vector:
        """The identity in every lane."""
        return b.constant(self.identity, self.dtype, width)


def exact(node: Term) -> Accumulator:
    """The accumulator that a reduction node means."""
    dtype = node.dtype
    if node.op == "row_sum":
        # x + -0 is x for every x, -0 included: lanes that the rule skips hold -0.
        return Accumulator("add", dtype, -0.0 if dtype.is_float else 0)
    if node.op == "row_prod":
        return Accumulator("mul", dtype, 1)
    infinity = float("inf")
    if node.op == "row_max":
        return Accumulator("maximum", dtype, -infinity if dtype.is_float else dtype.min)
    return Accumulator("minimum", dtype, infinity if dtype.is_float else dtype.max)


def kinds(node: Term) -> tuple[Accumulator, ...]:
    """The accumulators of a reduction node: of a float extreme a quick pair, else the exact one.

    The first of the pair is one instruction: it passes over NaN and takes zeros in no order. The second is one too, a
    sum, which is NaN where an element is, and where infinities of both signs meet. Where it is, or where the extreme is
    a zero, the exact accumulator has to run after them.
    """
    found = exact(node)
    if found.word in ("add", "mul") or not found.dtype.is_float:
        return (found,)
    word = {"maximum": "larger", "minimum": "smaller"}[found.word]
    return Accumulator(word, found.dtype, found.identity), Accumulator("nan", found.dtype, 0.0)


def lane_width(b: Builder) -> int:
    """The widest vector that fits a register and divides the 64 lanes."""
    return 1 << (min(b.isa.lanes, LANES).bit_length() - 1)


def fold(
    b: Builder,
    kinds: Sequence[Accumulator],
    n: Index,
    levels: int,
    compute: Compute,
    rooms: Sequence[Pointer],
    order: Sequence[int] | None = None,
    ahead: Callable[[Index], None] | None = None,
    known: Known | None = None,
) -> list[Vector]:
    """Blocks of 2048 elements, their results a vector that is folded by the same rule, `levels` times in all.

    Args:    rooms: for each kind, scratch for the blocks' results (none if there is one level).
             order: of whole vectors that `compute` gives, the place of the element that each lane has; None: its own.
             ahead: fetches what is needed later, once for whole lanes that begin at an index.
             known: of a single kind, a quicker way to results of some blocks.
    Returns: One width-1 vector a kind; of nothing, its identity.
    """
    if levels == 1:
        return _block(b, kinds, 0, n, compute, order, ahead, known)
    blocks, paired = (n + (BLOCK - 1)) // BLOCK, 0
    # Two whole blocks together, where lanes of both fit registers: the tree of one is waited for by no other step.
    if order is not None and _fit_registers(b, kinds, 2 * LANES):
        paired = n // (2 * BLOCK) * 2
        for k in b.loop(0, paired, 2):
            for _ in b.when(_open(b, rooms, k, known)):
                for j, results in enumerate(_folded_pair(b, kinds, k * BLOCK, compute, order, ahead)):
                    _keep(b, rooms, k + j, results)
    for k in b.loop(paired, blocks):
        start = k * BLOCK
        _keep(b, rooms, k, _block(b, kinds, start, b.min(start + BLOCK, n), compute, order, ahead, known))
    # Two results go from their stores to the sum at once; a vector of them would wait until they are in the cache.
    carry = [kind.step(b, b.load(room, 0, 1), b.load(room, 1, 1)) for kind, room in zip(kinds, rooms, strict=True)]
    for _ in b.when((blocks != 2) & (blocks <= lane_width(b)), carry):
        carry[:] = _of_few(b, kinds, blocks, rooms)
    for _ in b.when((blocks != 2) & (blocks > lane_width(b)), carry):
        carry[:] = fold(
            b, kinds, blocks, levels - 1, lambda i, w, count: [b.load(room, i, w, count) for room in rooms], rooms
        )
    return carry


def _keep(b: Builder, rooms: Sequence[Pointer], k: Index, results: Sequence[Vector]) -> None:
    """The results of block k, in place: block k lies behind element k."""
    for room, result in zip(rooms, results, strict=True):
        b.store(room, k, result)


def _of_few(b: Builder, kinds: Sequence[Accumulator], n: Index, rooms: Sequence[Pointer]) -> list[Vector]:
    """Elements that one vector holds, which are lanes of their own: the tree alone is left of the rule. A row of 4096
    has two blocks, of which walking 64 lanes took 17 ns of 145."""
    width = lane_width(b)
    there = b.less(b.iota(dtypes.int32, width), b.splat(b.from_index(n, dtypes.int32), width))
    loaded = zip(kinds, [b.load(room, 0, width, n) for room in rooms], strict=True)
    return [_tree(b, kind, [b.select(there, v, kind.neutral(b, width))]) for kind, v in loaded]


def _block(
    b: Builder, kinds: Sequence[Accumulator], start: Index, stop: Index, compute: Compute, order: Sequence[int] | None,
    ahead: Callable[[Index], None] | None, known: Known | None,
) -> list[Vector]:  # fmt: skip
    """What is known of a block, else what it is folded to."""
    if known is None:
        return _folded(b, kinds, start, stop, compute, order, ahead)
    result, is_open = known(start, stop)
    carry = [result]
    for _ in b.when(b.any(b.equal(is_open, b.like(is_open, 1))), carry):
        carry[0] = _folded(b, kinds, start, stop, compute, order, ahead)[0]
    return carry


def _open(b: Builder, rooms: Sequence[Pointer], first: Index, known: Known | None) -> Condition:
    """Keep what is known of two whole blocks; whether it is not all: folding one that is known gives the same."""
    if known is None:
        return True
    carry = [b.constant(0, dtypes.int32, 1)]
    for k in b.loop(first, first + 2, carry=carry):
        result, is_open = known(k * BLOCK, (k + 1) * BLOCK)
        _keep(b, rooms, k, [result])
        carry[0] = b.bit_or(carry[0], is_open)
    return b.any(b.equal(carry[0], b.like(carry[0], 1)))


def _folded_pair(
    b: Builder, kinds: Sequence[Accumulator], start: Index, compute: Compute, order: Sequence[int] | None,
    ahead: Callable[[Index], None] | None,
) -> list[list[Vector]]:  # fmt: skip
    """As `_folded`, two whole blocks side by side."""
    starts = (start, start + BLOCK)
    rooms = [_neutral(b, kinds, LANES) for _ in starts]
    for i in b.loop(0, BLOCK, LANES):
        if ahead is not None:
            ahead(start + i)
            ahead(start + i + BLOCK)
        for j in range(0, LANES, lane_width(b)):
            for at, room in zip(starts, rooms, strict=True):
                _accumulate(b, kinds, room, j, compute(at + i + j, lane_width(b), None))
    return [_trees(b, kinds, room, LANES, order) for room in rooms]


def _fit_registers(b: Builder, kinds: Sequence[Accumulator], lanes: int) -> bool:
    """Whether lanes of each kind leave as many registers to temporaries."""
    return lanes // lane_width(b) * len(kinds) <= b.isa.registers // 2


def _folded(
    b: Builder, kinds: Sequence[Accumulator], start: Index, stop: Index, compute: Compute, order: Sequence[int] | None,
    ahead: Callable[[Index], None] | None,
) -> list[Vector]:  # fmt: skip
    """64 lanes, each adding every 64th element in ascending order; then halves onto halves."""
    width = lane_width(b)
    lanes = LANES if any(kind.ordered for kind in kinds) else min(LANES, _ORDER_FREE * width)
    whole = start + (stop - start) // lanes * lanes
    rooms = _neutral(b, kinds, lanes)
    for i in b.loop(start, whole, lanes):
        if ahead is not None:
            ahead(i)
        # Lanes that do not fit registers live in memory, and are walked by a loop.
        for j in range(0, lanes, width) if _fit_registers(b, kinds, lanes) else b.loop(0, lanes, width):
            _accumulate(b, kinds, rooms, j, compute(i + j, width, None))
    for _ in b.when(whole < stop):
        rest = _neutral(b, kinds, lanes)
        for j in b.loop(0, stop - whole, width):
            # Clamped as a load clamps it, so that LLVM sees one mask and makes one masked load of both.
            count = b.min(b.max(stop - whole - j, 0), width)
            there = b.less(b.iota(dtypes.int32, width), b.splat(b.from_index(count, dtypes.int32), width))
            for kind, last, v in zip(kinds, rest, compute(whole + j, width, count), strict=True):
                b.store(last, j, b.select(there, v, kind.neutral(b, width)))
        for j in range(0, lanes, width):
            vectors = [b.load(last, j, width) for last in rest]
            _accumulate(b, kinds, rooms, j, vectors if order is None else [b.pick([v], order) for v in vectors])
    return _trees(b, kinds, rooms, lanes, order)


def _neutral(b: Builder, kinds: Sequence[Accumulator], lanes: int) -> list[Pointer]:
    """Lanes of each kind, holding its identity; LLVM keeps them in registers where every position is constant."""
    rooms = [b.local(kind.dtype, lanes) for kind in kinds]
    for kind, room in zip(kinds, rooms, strict=True):
        for j in range(0, lanes, lane_width(b)):
            b.store(room, j, kind.neutral(b, lane_width(b)))
    return rooms


def _accumulate(
    b: Builder, kinds: Sequence[Accumulator], rooms: Sequence[Pointer], j: Index, vectors: Sequence[Vector]
) -> None:
    """Lanes j .. take one element each."""
    for kind, room, v in zip(kinds, rooms, vectors, strict=True):
        b.store(room, j, kind.step(b, b.load(room, j, lane_width(b)), v))


def _trees(
    b: Builder, kinds: Sequence[Accumulator], rooms: Sequence[Pointer], lanes: int, order: Sequence[int] | None
) -> list[Vector]:
    """The tree of each kind's lanes."""
    starts = range(0, lanes, lane_width(b))
    return [
        _tree(b, kind, [b.load(room, j, lane_width(b)) for j in starts], order)
        for kind, room in zip(kinds, rooms, strict=True)
    ]


def _tree(b: Builder, kind: Accumulator, vectors: list[Vector], order: Sequence[int] | None = None) -> Vector:
    """l += l+32, +16, ... +1: whole vectors first, in whose lanes `order` has put elements, then halves of the last."""
    while len(vectors) > 1:
        half = len(vectors) // 2
        vectors = [kind.step(b, x, y) for x, y in zip(vectors[:half], vectors[half:], strict=True)]
    v, width = vectors[0], lane_width(b)
    if order is not None:
        v = b.pick([v], [order.index(lane) for lane in range(width)])
    while width > 1:
        width //= 2
        v = kind.step(b, b.slice(v, 0, width), b.slice(v, width, width))
    return v
