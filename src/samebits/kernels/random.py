"""Random numbers: uniform and normal ones of float64, float32, float16 and bfloat16 (numerics.md section 13).

    plan(random, out, isa, threads, after, others) -> Plan
    reference(random, shape, first, second, seed, offset) -> array

Operands of the plan: first and second (low and high, or mean and standard deviation: one element of out's format each),
the seed and the offset (one uint64 each), out. What is computed of each number as it is drawn is `after`, an expression
whose first input is the number: its other inputs are operands before out, its other results behind it. An element's
words follow from its index in row-major order, whatever strides out has: a last operand of the walk, which is not in
memory, has the strides of that order and counts it. What becomes of the words is an expression, `expression`. Start at
`text`.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from samebits import dtypes, ieee, philox
from samebits.codegen.isa import Isa
from samebits.codegen.vocabulary import Builder, Index, KernelSpec, Pointer, Vector
from samebits.conversions import Conversion
from samebits.dtypes import DType, int32, int64, uint32, uint64
from samebits.frozen import dataclass
from samebits.kernels import functions
from samebits.kernels.composites import taken
from samebits.kernels.expression import Chain, Expression, ExpressionValue, with_arguments
from samebits.kernels.functions import exact
from samebits.kernels.plan import Operand, Plan, Step
from samebits.kernels.values import Values
from samebits.kernels.walk import Axis, AxisSteps, Cursor, Stretch, broadcast, numbered, offsets, walk
from samebits.kernels.words import WordStream, words_room

__all__ = ["FORMATS", "Distribution", "Random", "expression", "plan", "reference"]

Array = npt.NDArray[Any]
Distribution = Literal["uniform", "normal"]

# The formats that numbers are made in: those whose numbers have neighbours.
FORMATS = (dtypes.float64, dtypes.float32, dtypes.float16, dtypes.bfloat16)
# Elements of one task; fewer than of other elementwise kernels, as each takes longer.
_TASK = 4096
# Elements whose words are drawn at once: 2 KB of the first cache for each of their words.
_BLOCK = 512
# The highest bit of an offset, which no counter of a rounding has.
_APART = 1 << 63
_DOWN = Conversion("down")
# Twice pi, to the nearest number of the format.
_TURN = {dtypes.float32: 6.2831854820251465, dtypes.float64: 6.283185307179586}


@dataclass(frozen=True, slots=True)
class Random:
    """Which numbers, of which format."""

    distribution: Distribution
    dtype: DType

    @property
    def words(self) -> int:
        """How many random words an element takes."""
        return (2 if self.dtype is dtypes.float64 else 1) * (2 if self.distribution == "normal" else 1)


@dataclass(frozen=True, slots=True)
class RandomText:
    """What specialises the kernel.

    Attributes:
        random: The numbers.
        expression: What is computed of an element's words, first, second and the elements of other inputs.
        classes: How other inputs and results lie along the row.
        counts: Whether neighbours along the row are neighbours in row-major order too.
        above: Whether axes lie above the stretches.
    """

    random: Random
    expression: Expression
    classes: tuple[str, ...]
    counts: bool
    above: bool


# -- what they are -----------------------------------------------------------------------------------------------------
def reference(
    random: Random, shape: tuple[int, ...], first: npt.ArrayLike, second: npt.ArrayLike, seed: int, offset: int
) -> Array:
    """The numbers, by NumPy."""
    index = np.arange(int(np.prod(shape, dtype=np.int64)), dtype=np.uint64)
    w = [philox.words(seed, index, offset | _APART, number).reshape(shape) for number in range(random.words)]
    x, y = (exact.widened(np.asarray(each)) for each in (first, second))
    with np.errstate(all="ignore"):
        if random.distribution == "uniform":
            found = x + _unit(w) * (y - x)
            found = np.where(found == y, np.nextafter(y, x), found)
            return exact.cast(random.dtype, ieee.canonical(found), _DOWN)
        half = len(w) // 2
        angle = _unit(w[half:]) * _TURN[dtypes.of(x.dtype)]
        radius = np.sqrt(_function("log", _unit_above_zero(w[:half])) * x.dtype.type(-2))
        return exact.cast(random.dtype, ieee.canonical(x + y * (radius * _function("cos", angle))))


def _unit(w: Sequence[Array]) -> Array:
    """Multiples of 2^-24 (2^-53, of two words) in [0, 1)."""
    if len(w) == 1:
        return (w[0] >> np.uint32(8)).astype(np.float32) * np.float32(2.0**-24)
    return _whole(w).astype(np.float64) * 2.0**-53


def _unit_above_zero(w: Sequence[Array]) -> Array:
    """Numbers in (0, 1]."""
    if len(w) == 1:
        # A float32 plus half of the last place of the smallest: exact in float64.
        return (w[0].astype(np.float32).astype(np.float64) * 2.0**-32 + 2.0**-33).astype(np.float32)
    return (_whole(w) + np.uint64(1)).astype(np.float64) * 2.0**-53


def _whole(w: Sequence[Array]) -> Array:
    """53 bits of two words."""
    return (w[0].astype(np.uint64) << np.uint64(21)) + (w[1] >> np.uint32(11))


def _function(name: str, x: Array) -> Array:
    """A function by its own independent meaning."""
    return functions.row(name).meaning(dtypes.of(x.dtype), x)


@functools.cache
def expression(random: Random, after: Expression | None = None) -> Expression:
    """A number of the inputs: its words, then first and second; or what `after` makes of it, with its other inputs."""
    chain = Chain()
    w = [chain.input(uint32) for _ in range(random.words)]
    x, y = taken(chain, random.dtype), taken(chain, random.dtype)
    if random.distribution == "uniform":
        span = chain.apply("mul", _unit_of(chain, w), chain.apply("sub", y, x))
        found, conversion = chain.apply("add", x, span), _DOWN
        below = chain.apply("next_after", y, x)
        found = chain.apply("where", chain.apply("equal", found, y), below, found)
    else:
        half, conversion = len(w) // 2, Conversion()
        angle = chain.apply("mul", _unit_of(chain, w[half:]), chain.constant(_TURN[x.dtype], x.dtype))
        grown = chain.apply("log", _unit_above_zero_of(chain, w[:half]))
        radius = chain.apply("sqrt", chain.apply("mul", grown, chain.constant(-2.0, x.dtype)))
        standard = chain.apply("mul", radius, chain.apply("cos", angle))
        found = chain.apply("add", x, chain.apply("mul", y, standard))
    if x.dtype is not random.dtype:
        found = chain.apply("cast", found, dtype=random.dtype, conversion=conversion)
    if after is None:
        return chain.finish(found)
    return chain.finish(*chain.include(after, found, *[chain.input(dtype) for dtype in after.inputs[1:]]))


def _unit_of(chain: Chain, w: Sequence[ExpressionValue]) -> ExpressionValue:
    """`_unit` in kernel text."""
    if len(w) == 1:
        whole = chain.apply("cast", _top(chain, w[0], 8), dtype=dtypes.float32)
        return chain.apply("mul", whole, chain.constant(2.0**-24, dtypes.float32))
    low = chain.apply("cast", _top(chain, w[1], 11), dtype=dtypes.float64)
    return _joined(chain, w[0], chain.apply("mul", low, chain.constant(2.0**-53, dtypes.float64)))


def _unit_above_zero_of(chain: Chain, w: Sequence[ExpressionValue]) -> ExpressionValue:
    """`_unit_above_zero` in kernel text."""
    if len(w) == 1:
        scale, half = (chain.constant(2.0**power, dtypes.float32) for power in (-32, -33))
        return chain.apply("fma", chain.apply("cast", w[0], dtype=dtypes.float32), scale, half)
    low = chain.apply("cast", _top(chain, w[1], 11), dtype=dtypes.float64)
    step = chain.constant(2.0**-53, dtypes.float64)
    return _joined(chain, w[0], chain.apply("fma", low, step, step))


def _joined(chain: Chain, high: ExpressionValue, low: ExpressionValue) -> ExpressionValue:
    """high * 2^-32 + low, which has 53 bits."""
    whole = chain.apply("cast", high, dtype=dtypes.float64)
    return chain.apply("fma", whole, chain.constant(2.0**-32, dtypes.float64), low)


def _top(chain: Chain, word: ExpressionValue, dropped: int) -> ExpressionValue:
    """A word without its lowest bits, as an int32: processors convert these."""
    return chain.apply("bitcast", chain.apply("shift_right", word, chain.constant(dropped, uint32)), dtype=int32)


# -- the kernel --------------------------------------------------------------------------------------------------------
@functools.lru_cache(maxsize=1024)
def plan(
    random: Random, out: AxisSteps, isa: Isa, threads: int = 1, after: Expression | None = None,
    others: tuple[AxisSteps, ...] = (),
) -> Plan:  # fmt: skip
    """One kernel over the merged axes of all; `others` are the other inputs of `after`, then its other results."""
    shape, read = out[0], 0 if after is None else len(after.inputs) - 1
    layouts = (*others[:read], out, *others[read:])
    order = tuple(itertools.accumulate(reversed(shape[1:]), lambda n, extent: n * extent, initial=1))[::-1]
    strides = [*[broadcast("random.plan", layout, shape) for layout in layouts], order[: len(shape)]]
    axes = [Axis(extent, tuple([s[a] for s in strides])) for a, extent in enumerate(shape)]
    axes.sort(key=lambda axis: -abs(axis.strides[read]))
    way = walk(axes) if axes else walk([Axis(1, (0,) * len(strides))])
    computed, constants = with_arguments(expression(random, after))
    rows, n = way.rows, way.inner.extent
    block = _TASK if n >= 2 * _TASK else max(n, 1)
    column_tasks, rows_per_task = -(-n // block), max(1, _TASK // block)
    spec = KernelSpec(
        text,
        RandomText(random, computed, way.classes[:-1], way.classes[-1] == "unit", way.above),
        ("column_tasks", "rows_per_task", "block", "rows", "first", "second", "seed", "offset", *constants,
         *way.parameters()),
        isa,
    )  # fmt: skip
    operands = tuple(Operand(k) for k in range(4 + len(layouts)))
    walked = way.arguments((*operands[4:], 0))
    arguments = (column_tasks, rows_per_task, block, rows, *operands[:4], *constants.values(), *walked)
    names = ("first", "second", "seed", "offset", *[f"input {k}" for k in range(read)])
    return Plan(
        what=f"{random.distribution} {random.dtype} {shape}",
        isa=isa,
        threads=threads,
        steps=(Step(spec, column_tasks * -(-rows // rows_per_task), arguments),),
        operands=(*names, "out", *[f"out {k}" for k in range(1, len(layouts) - read)]),
        facts=(("rows", f"{rows} of {n}"), ("inner axis", " ".join(way.classes))),
    )


def text(b: Builder, d: RandomText) -> None:
    """A task is some rows, or a block of one long row."""
    column_tasks, rows_per_task, block = b.index("column_tasks"), b.index("rows_per_task"), b.index("block")
    rooms = tuple([b.local(uint32, _BLOCK + words_room(b.isa.lanes)) for _ in range(d.random.words)])
    e, count = d.expression, len(d.classes)
    types = (*e.inputs[d.random.words + 2 :], *[e.dtype(value) for value in e.outputs])
    for task in b.tasks():
        first = (task // column_tasks) * rows_per_task
        start = (task % column_tasks) * block
        stop = b.min(start + block, b.index("n"))
        for number, begin, end in numbered(b, d.above, first, b.min(first + rows_per_task, b.index("rows"))):
            at = offsets(b, count + 1, number) if d.above else [0] * (count + 1)
            starts = tuple([b.offset(b.pointer(f"x{k}", dtype), at[k]) for k, dtype in enumerate(types)])
            stretch = Stretch(b, d.classes, starts, begin, end)
            for r in b.loop(begin, end):
                row = _RowOfNumbers(b, d, stretch.row(r), at[count] + r * b.index(f"x{count}.stretch"), rooms)
                row.make(start, stop)


def _shared(b: Builder, d: RandomText, numbers: Sequence[Vector]) -> dict[int, Vector]:
    """What all elements share, by its number in the expression: first, second and whatever follows from these alone."""
    e, lanes, words = d.expression, b.isa.lanes, d.random.words
    found = Values(b, e, lanes, lambda k: numbers[k - words])
    shared = {words + place: number for place, number in enumerate(numbers)}
    for value in range(len(e.inputs), len(e.inputs) + len(e.nodes)):
        node = e.node(value)
        if node is not None and node.arguments and all(x in shared for x in node.arguments):
            shared[value] = found.stored(value)
    return shared


@dataclass(frozen=True, slots=True)
class _RowOfNumbers:
    """One row: where it lies, the index of its first element, and where words go, a room for each of an element's."""

    b: Builder
    d: RandomText
    cursor: Cursor
    index: Index
    rooms: tuple[Pointer, ...]

    def make(self, start: Index, stop: Index) -> None:
        """Elements start .. stop-1."""
        b, lanes = self.b, self.b.isa.lanes
        numbers = [b.load(b.pointer(name, self.d.random.dtype), 0, 1) for name in ("first", "second")]
        shared = _shared(b, self.d, [b.splat(number, lanes) for number in numbers])
        for block in b.loop(start, stop, _BLOCK):
            end = b.min(block + _BLOCK, stop)
            words = [self._words(number, block, end) for number in range(self.d.random.words)]
            whole = block + (end - block) // lanes * lanes
            for i in b.loop(block, whole, lanes):
                self._vector(i, None, words, shared)
            for i in b.loop(whole, end, lanes):
                self._vector(i, end - i, words, shared)

    def _vector(
        self, i: Index, count: Index | None, words: Sequence[Callable[[Index], Vector]], shared: dict[int, Vector]
    ) -> None:
        e, lanes, first = self.d.expression, self.b.isa.lanes, len(words) + 2

        def load(k: int) -> Vector:
            if k < len(words):
                return words[k](i)
            return shared[k] if k in shared else self.cursor.load(k - first, i, lanes, count)

        found = Values(self.b, e, lanes, load, dict.fromkeys(shared, False))
        for k, result in enumerate([found.stored(output) for output in e.outputs]):
            self.cursor.store(len(e.inputs) - first + k, i, result, count)

    def _words(self, number: int, block: Index, end: Index) -> Callable[[Index], Vector]:
        """One word of each element, by vectors of a block of the row."""
        b, lanes = self.b, self.b.isa.lanes
        offset = b.bit_or(b.load(b.pointer("offset", uint64), 0, 1), b.constant(_APART, uint64, 1))
        stream = WordStream(b, offset, number)
        if not self.d.counts:
            return lambda i: stream.each(self._indices(i, lanes))
        words = stream.fill(self.rooms[number], self.index + block, end - block)
        return lambda i: b.load(words, i - block, lanes)

    def _indices(self, i: Index, lanes: int) -> Vector:
        """The indices of elements i .. of the row, as uint64."""
        b, along = self.b, self.b.index(f"x{len(self.d.classes)}.inner")
        steps = b.mul(b.iota(int64, lanes), b.splat(b.from_index(along, int64), lanes))
        return b.bitcast(b.add(steps, b.splat(b.from_index(self.index + i * along, int64), lanes)), uint64)
