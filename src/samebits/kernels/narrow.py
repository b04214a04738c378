"""Narrow: elements of up to 8 bits copied between any two layouts, packed within bytes or padded to them.

    plan(source, target, isa, threads) -> Plan
    reference(source, source_bytes, target, target_bytes)

Operands: the bytes that the two layouts count from, which must not overlap where elements do. Nothing outside the
target's elements changes, and no two tasks write one byte. Wider elements, and bytes that no bit stride takes apart,
are `elementwise` with the operation `copy`.

Where both rows are dense, eight elements are one 64-bit lane: their codes a byte each, or side by side in its low bits;
`narrow_text` turns the one into the other. Start at `plan`.
"""

from __future__ import annotations

import functools
import math

from samebits import elements
from samebits.codegen.isa import Isa
from samebits.codegen.vocabulary import KernelSpec
from samebits.errors import PlanError, ShapeError
from samebits.kernels.narrow_text import EIGHTS, WIDTHS, Narrow, text
from samebits.kernels.plan import Operand, Plan, Step
from samebits.kernels.walk import Axis, Walk, walk
from samebits.layout import Layout

# Elements of one task: 32 KB of the padded side, microseconds of work, so that threads can share it.
_TASK = 1 << 15
# The axis of a single element.
_ONE = Axis(1, (0, 0))


def reference(source: Layout, source_bytes: elements.Bytes, target: Layout, target_bytes: elements.Bytes) -> None:
    """target[i] = source[i] for every index i, by NumPy; as broadcasting repeats the source."""
    elements.write(target_bytes, target, elements.read(source_bytes, source.broadcast_to(target.shape)))


@functools.lru_cache(maxsize=4096)
def plan(source: Layout, target: Layout, isa: Isa, threads: int = 1) -> Plan:
    """One kernel over the merged axes of both.

    Args:
        source: Of up to 8 bits, no element before the operand's first byte; broadcast to the target's shape.
        target: Of the same width, each element at a place of its own.

    Raises:
        PlanError: An element is wider, widths differ, or one lies before the operand.
        ShapeError: The source does not broadcast to the target's shape.
    """
    _check(source, target)
    way, lie = _walked(source, target)
    n, apart, inner_apart = way.inner.extent, *_apart(way, target)
    packed = lie[1] == "packed"
    may_cut = apart == len(way.outer) and (inner_apart or packed)
    head, block = _blocks(way, target, packed) if may_cut else (0, max(n, 1))
    together = math.prod(axis.extent for axis in way.outer[apart:])
    rows_per_task = together * max(1, _TASK // max(1, n * together)) if block >= n else 1
    blocks = max(1, -(-(n - head) // block))
    tasks = -(-way.rows // rows_per_task) * blocks if target.size else 0
    spec = KernelSpec(
        text,
        Narrow(target.width_bits, *lie, way.above),
        ("rows", "rows_per_task", "blocks", "block", "head", "x0.bit", "x1.bit", *way.parameters()),
        isa,
    )
    numbers = (way.rows, rows_per_task, blocks, block, head, source.offset_bits, target.offset_bits)
    step = Step(spec, tasks, (*numbers, *way.arguments((Operand(0), Operand(1)))))
    return Plan(
        what=f"narrow {target.width_bits} bits {target.shape}",
        isa=isa,
        threads=threads,
        steps=(step,),
        operands=("source", "target"),
        facts=(
            ("rows", f"{way.rows} of {n}"),
            ("inner axis", f"{lie[0]} to {lie[1]}"),
            ("tasks", f"{tasks}, of which none shares a byte of the target with another"),
        ),
    )


def is_fast(source: Layout, target: Layout) -> bool:
    """Whether rows are dense on both sides, so that eight elements move at a time."""
    return _walked(source, target)[1] in EIGHTS


def _walked(source: Layout, target: Layout) -> tuple[Walk, tuple[str, str]]:
    """The axes of both, the target's slowest first, and how each side lies along the inner one."""
    steps = source.broadcast_to(target.shape).strides_bits
    axes = (Axis(n, (x, y)) for n, x, y in zip(target.shape, steps, target.strides_bits, strict=True))
    way = walk(sorted(axes, key=lambda axis: -abs(axis.strides[1])) or [_ONE])
    return way, (_source_class(source, way), _target_class(target, way))


def _check(source: Layout, target: Layout) -> None:
    if not source.width_bits == target.width_bits <= 8:
        actual = f"{source.width_bits} and {target.width_bits} bits"
        expected, remedy = "equal and at most 8 bits", "use elementwise.plan with the operation copy"
        raise PlanError("narrow.plan", "source and target", "widths", actual, expected, remedy)
    low = min(source.bounds_bits[0], target.bounds_bits[0])
    if low < 0:
        raise PlanError("narrow.plan", "first bit", "", low, "at least 0", "use Layout.rebased")
    try:
        source.broadcast_to(target.shape)
    except ShapeError:
        expected = f"one that broadcasts to {target.shape}"
        raise ShapeError("narrow.plan", "source", "shape", source.shape, expected, "reshape it") from None


def _in_bytes(layout: Layout, way: Walk, operand: int) -> bool:
    """Whether every element begins at a byte."""
    steps = [axis.strides[operand] for axis in (*way.outer, way.inner) if axis.extent > 1]
    return not (layout.offset_bits % 8 or any(step % 8 for step in steps))


def _source_class(source: Layout, way: Walk) -> str:
    """How the source lies along the inner axis: `packed`, `bytes`, `same` (one element) or `any`."""
    step = way.inner.strides[0]
    if step == 0:
        return "same"
    if step == source.width_bits and step in WIDTHS:
        return "packed"
    return "bytes" if step == 8 and _in_bytes(source, way, 0) else "any"


def _target_class(target: Layout, way: Walk) -> str:
    """How the target does: `packed`, `bytes`, `whole` (bytes of its own for each element, further apart) or `any`."""
    step = way.inner.strides[1]
    if target.pitch_bits == 8 and _in_bytes(target, way, 1):
        return "bytes" if step == 8 else "whole"
    return "packed" if step == target.width_bits and step in WIDTHS else "any"


def _apart(way: Walk, target: Layout) -> tuple[int, bool]:
    """How many of the slowest axes step between bytes that no other step shares, and whether the inner one does too."""
    low, high = 0, target.width_bits
    found: list[bool] = []
    for axis in (way.inner, *reversed(way.outer)):
        step = axis.strides[1]
        first, last = (target.offset_bits + low) // 8, (target.offset_bits + high - 1) // 8
        found.append(axis.extent == 1 or (step % 8 == 0 and abs(step) >= 8 * (last - first + 1)))
        reach = (axis.extent - 1) * step
        low, high = low + min(reach, 0), high + max(reach, 0)
    outer = found[:0:-1]
    return (outer.index(False) if False in outer else len(outer)), found[0]


def _blocks(way: Walk, target: Layout, packed: bool) -> tuple[int, int]:
    """Elements before a row's first whole byte, and elements of a block of whole bytes (as many as a row has: none).

    Rows that are apart begin at the same bit, so they have the same head.
    """
    n = way.inner.extent
    heads = [h for h in range(8) if (target.offset_bits + h * target.width_bits) % 8 == 0] if packed else [0]
    return (heads[0], _TASK) if heads and n >= 2 * _TASK else (0, max(n, 1))
