"""Order: the places of the elements of a line, sorted; a stable merge sort of keys that are integers.

Of a long line of which few places are asked for, only candidates are sorted: the first that there are room for, from
whose order on only what comes before the last of so few, until there is no room and they are sorted anew.

    plan(dtype, x, out, axis, descending, isa, threads) -> Plan
    reference(x, axis, descending) -> array

Of equal elements the first comes first, in both directions; -0 equals +0, and a NaN is above every number. Operands of
the plan: x, and out, int64, whose extent along the axis may be smaller: the first places of the order. Start at `text`.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import numpy.typing as npt

from samebits.codegen.isa import Isa
from samebits.codegen.vocabulary import Builder, Index, KernelSpec, Pointer, Vector
from samebits.dtypes import DType, float32, float64, int64, uint64
from samebits.frozen import dataclass
from samebits.kernels import convert
from samebits.kernels.functions import exact
from samebits.kernels.plan import Operand, Plan, Step
from samebits.kernels.walk import Axis, AxisSteps, broadcast, stretch, walk

__all__ = ["plan", "reference"]

Array = npt.NDArray[Any]

# Elements of one task: a line, or some short ones.
_TASK = 1024
# Keys and places, from which each pass merges into others.
_ROOMS = 4
_LARGEST = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class OrderText:
    """What specialises the kernel.

    Attributes:
        dtype: What is sorted.
        descending: Whether the largest comes first.
        classes: How x and out lie along neighbouring lines.
        above: Whether axes lie above the stretches.
        dense: Whether the elements of a line lie side by side.
        selects: Whether there is no room for a whole line.
    """

    dtype: DType
    descending: bool
    classes: tuple[str, ...]
    above: bool
    dense: bool
    selects: bool


def reference(x: Array, axis: int, descending: bool) -> Array:
    """The places by NumPy: ranks among the different values, negated for the other direction."""
    wide = np.moveaxis(exact.widened(x), axis, -1)
    lines = wide.reshape(-1, wide.shape[-1]) if wide.size else wide.reshape(0, max(1, wide.shape[-1]))
    found = np.empty(lines.shape, np.int64)
    for line, places in zip(lines, found, strict=True):
        _, ranks = np.unique(line, return_inverse=True)  # -0 and +0 are one value, and all NaN the last
        places[:] = np.argsort(-ranks if descending else ranks, kind="stable")
    return np.ascontiguousarray(np.moveaxis(found.reshape(wide.shape), -1, axis))


@functools.lru_cache(maxsize=1024)
def plan(dtype: DType, x: AxisSteps, out: AxisSteps, axis: int, descending: bool, isa: Isa, threads: int = 1) -> Plan:
    """One kernel over the lines along the axis."""
    shape, length, count = x[0], x[0][axis], out[0][axis]
    strides = [broadcast("order.plan", layout, layout[0]) for layout in (x, out)]
    axes = [Axis(extent, (strides[0][a], strides[1][a])) for a, extent in enumerate(shape) if a != axis]
    axes.sort(key=lambda one: -abs(one.strides[1]))
    way = walk(axes) if axes else walk([Axis(1, (0, 0))])
    lines = way.rows * way.inner.extent if count else 0
    each = max(1, _TASK // max(1, length))
    # Room for a whole line, or for twice what is kept and a vector; a power of two, for runs are filled up to one.
    few = 2 * (count + isa.lanes)
    selects = few < length // 2
    room = 1 << max(0, (few if selects else length) - 1).bit_length()
    spec = KernelSpec(
        text,
        OrderText(dtype, descending, way.classes, way.above, strides[0][axis] == 1, selects),
        ("each", "lines", "length", "count", "room", "passes", "x0.along", "x1.along", *way.parameters()),
        isa,
    )
    arguments = (each, lines, length, count, room, room.bit_length() - 1, strides[0][axis], strides[1][axis])
    return Plan(
        what=f"order of {dtype} {shape} along axis {axis}",
        isa=isa,
        threads=threads,
        steps=(Step(spec, -(-lines // each), (*arguments, *way.arguments((Operand(0), Operand(1))))),),
        operands=("x", "out"),
        scratch_bytes=8 * _ROOMS * room,
        facts=(("lines", f"{lines} of {length}"),),
    )


def text(b: Builder, d: OrderText) -> None:
    """A task is some lines, each of which is sorted in scratch."""
    each, n, extent = b.index("each"), b.index("n"), b.index("stretch")
    keys = b.scratch(int64)
    places = b.offset(keys, b.index("room"))
    for task in b.tasks():
        first = task * each
        for line in b.loop(first, b.min(first + each, b.index("lines"))):
            row, i = line // n, line % n
            number, place = (row // extent, row % extent) if d.above else (0, row)
            cursor = stretch(b, d.classes, (d.dtype, int64), d.above, number, place, place + 1).row(place)
            held = _candidates(b, d, b.offset(cursor.places[0], i * b.index("x0.inner")), keys)
            start = _sorted(b, keys, held)
            for k in b.loop(0, b.index("count")):
                cursor.on("along", k).store(1, i, b.load(places, start + k, 1))


def _candidates(b: Builder, d: OrderText, line: Pointer, keys: Pointer) -> Index:
    """Keys and places of the elements of a line that may be among the first, in scratch; how many these are.

    Each is written, and the next one over it where it comes too late.
    """
    lanes, length, room, count = b.isa.lanes, b.index("length"), b.index("room"), b.index("count")
    places, along, step = b.offset(keys, room), b.index("x0.along"), b.local(int64, lanes)
    carry: list[Index] = [0, _LARGEST]  # how many there are, and the largest key that is not too late
    for k in b.loop(0, length, lanes, carry=carry):
        left = length - k
        x = b.load(line, k, lanes, left) if d.dense else b.load_strided(line, k * along, along, lanes, left)
        key = _key(b, x, d.descending)
        last = b.splat(b.from_index(carry[1], int64), lanes)
        for _ in b.when(b.any(b.less_equal(key, last)), carry):
            b.store(step, 0, key)
            held = [carry[0]]
            for j in b.loop(0, b.min(lanes, left), carry=held):
                b.store(keys, held[0], b.load(step, j, 1))
                b.store(places, held[0], b.from_index(k + j, int64))
                held[0] = held[0] + b.choose(b.load_index(step, j) <= carry[1], 1, 0)
            carry[0] = held[0]
            if d.selects:
                for _ in b.when(held[0] + lanes > room, carry):
                    start = _sorted(b, keys, held[0])
                    for j in b.loop(0, count):
                        for one in (keys, places):
                            b.store(one, j, b.load(one, start + j, 1))
                    # What is equal to the last of them comes behind it; no key is less than the least.
                    carry[0], carry[1] = count, b.max(b.load_index(keys, count - 1), 1 - _LARGEST) - 1
    return carry[0]


def _key(b: Builder, x: Vector, descending: bool) -> Vector:
    """An int64 for each element, in their order."""
    dtype: DType = x.dtype
    if dtype is uint64:
        key = b.bitcast(b.bit_xor(x, b.like(x, 1 << 63)), int64)
    elif dtype.is_float:
        value = convert.number(b, x)
        wide = value if value.dtype is not float32 else b.convert(value, float64)
        code = b.bitcast(wide, int64)
        key = b.bit_xor(code, b.bit_and(b.shift_right(code, 63), b.like(code, (1 << 63) - 1)))
        key = b.select(b.equal(wide, b.like(wide, 0.0)), b.like(code, 0), key)
        key = b.select(b.is_nan(wide), b.like(code, (1 << 63) - 1), key)
    else:
        value = convert.number(b, x)
        key = value if value.dtype is int64 else b.convert(value, int64)
    return b.sub(b.like(key, -1), key) if descending else key


def _sorted(b: Builder, keys: Pointer, held: Index) -> Index:
    """Keys and places merged, runs twice as long in each pass; where, counted from the first, they end up.

    Runs are filled up with keys that come last, so that both of a pair have one length: then either half of what they
    become is merged without asking whether a run has ended, and two steps, one from each end, overlap.
    """
    room = b.index("room")
    carry: list[Index] = [1, 0]
    for _ in b.loop(0, b.index("passes"), carry=carry):
        for _ in b.when(carry[0] < held, carry):
            run, source = carry
            target, end = 2 * room - source, (held + 2 * run - 1) // (2 * run) * (2 * run)
            for k in b.loop((held + run - 1) // run * run, end):
                b.store(keys, source + k, b.constant(_LARGEST, int64, 1))
            for low in b.loop(0, end, 2 * run):
                _merged(b, keys, source + low, run, target + low)
            carry[0], carry[1] = run * 2, target
    return carry[1]


def _merged(b: Builder, keys: Pointer, source: Index, run: Index, target: Index) -> None:
    """Two runs of one length become one: the first half of it from their beginnings, the second from their ends."""
    room = b.index("room")
    ends: list[Index] = [source, source + run, source + run - 1, source + 2 * run - 1]
    for k in b.loop(0, run, carry=ends):
        for side, at in enumerate((target + k, target + 2 * run - 1 - k)):
            left, right = ends[2 * side : 2 * side + 2]
            a, c = b.load_index(keys, left), b.load_index(keys, right)
            # Of equal keys the left one comes first, so that from the ends the right one is taken.
            is_left = c < a if side else a <= c
            b.store(keys, at, b.from_index(b.choose(is_left, a, c), int64))
            b.store(keys, room + at, b.load(keys, room + b.choose(is_left, left, right), 1))
            step = b.choose(is_left, 1, 0)
            ends[2 * side] = left - step if side else left + step
            ends[2 * side + 1] = right - (1 - step) if side else right + (1 - step)
