"""Order: the places of the elements of a line, sorted; a stable merge sort of keys that are integers.

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


@dataclass(frozen=True, slots=True)
class OrderText:
    """What specialises the kernel.

    Attributes:
        dtype: What is sorted.
        descending: Whether the largest comes first.
        classes: How x and out lie along neighbouring lines.
        above: Whether axes lie above the stretches.
    """

    dtype: DType
    descending: bool
    classes: tuple[str, ...]
    above: bool


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
    lines = way.rows * way.inner.extent if length else 0
    each = max(1, _TASK // max(1, length))
    spec = KernelSpec(
        text,
        OrderText(dtype, descending, way.classes, way.above),
        ("each", "lines", "length", "count", "passes", "x0.along", "x1.along", *way.parameters()),
        isa,
    )
    arguments = (each, lines, length, count, max(length - 1, 0).bit_length(), strides[0][axis], strides[1][axis])
    return Plan(
        what=f"order of {dtype} {shape} along axis {axis}",
        isa=isa,
        threads=threads,
        steps=(Step(spec, -(-lines // each), (*arguments, *way.arguments((Operand(0), Operand(1))))),),
        operands=("x", "out"),
        scratch_bytes=8 * _ROOMS * length,
        facts=(("lines", f"{lines} of {length}"),),
    )


def text(b: Builder, d: OrderText) -> None:
    """A task is some lines, each of which is sorted in scratch."""
    each, n, extent = b.index("each"), b.index("n"), b.index("stretch")
    length, room = b.index("length"), b.scratch(int64)
    for task in b.tasks():
        first = task * each
        for line in b.loop(first, b.min(first + each, b.index("lines"))):
            row, i = line // n, line % n
            number, place = (row // extent, row % extent) if d.above else (0, row)
            cursor = stretch(b, d.classes, (d.dtype, int64), d.above, number, place, place + 1).row(place)
            for k in b.loop(0, length):
                b.store(room, k, _key(b, cursor.on("along", k).load(0, i, 1), d.descending))
                b.store(room, length + k, b.from_index(k, int64))
            start = _sorted(b, room, length)
            for k in b.loop(0, b.index("count")):
                cursor.on("along", k).store(1, i, b.load(room, start + length + k, 1))


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


def _sorted(b: Builder, room: Pointer, length: Index) -> Index:
    """Keys and places merged, runs twice as long in each pass; where in the room they end up."""
    carry: list[Index] = [1, 0]
    for _ in b.loop(0, b.index("passes"), carry=carry):
        run, source = carry
        target = 2 * length - source
        for low in b.loop(0, length, run * 2):
            middle, high = b.min(low + run, length), b.min(low + run * 2, length)
            heads: list[Index] = [low, middle]
            for k in b.loop(low, high, carry=heads):
                left, right = heads
                a = b.load_index(room, source + b.min(left, length - 1))
                c = b.load_index(room, source + b.min(right, length - 1))
                is_left = (left < middle) & ((right >= high) | (a <= c))
                place = b.choose(is_left, left, right)
                b.store(room, target + k, b.load(room, source + place, 1))
                b.store(room, target + length + k, b.load(room, source + length + place, 1))
                heads[0], heads[1] = b.choose(is_left, left + 1, left), b.choose(is_left, right, right + 1)
        carry[0], carry[1] = run * 2, target
    return carry[1]
