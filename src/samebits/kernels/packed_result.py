"""Packed result: an elementwise expression whose one result is packed within bytes as it is made.

    plan(expression, inputs, shape, isa, threads) -> Plan

For a result that is dense from a byte on and inputs that lie as it does, or are one element. Others make a byte an
element first, which `spread` packs. Operands: the inputs, then the bytes of the result; of its last byte, bits behind
the last element stay. Start at `plan`, which gives None where operands lie otherwise.
"""

from __future__ import annotations

import functools

from samebits.codegen.isa import Isa
from samebits.codegen.vocabulary import Builder, Index, KernelSpec, Vector
from samebits.dtypes import uint8, uint64
from samebits.frozen import dataclass
from samebits.kernels import values
from samebits.kernels.elementwise import unroll
from samebits.kernels.expression import Expression, with_arguments
from samebits.kernels.narrow_text import Line, gathered, put_words
from samebits.kernels.plan import Operand, Plan, Step
from samebits.kernels.walk import Axis, AxisSteps, Cursor, broadcast, walk

__all__ = ["WIDTHS", "plan"]

# Eight elements of these widths are an unsigned integer.
WIDTHS = (1, 2, 4)
# Elements of one task, as of elementwise kernels; a multiple of every vector's.
_TASK = 8192


@dataclass(frozen=True, slots=True)
class PackedResult:
    """What specialises the kernel: the expression, and how each input lies along the row."""

    expression: Expression
    classes: tuple[str, ...]


@functools.lru_cache(maxsize=1024)
def plan(
    expression: Expression, inputs: tuple[AxisSteps, ...], out: AxisSteps, isa: Isa, threads: int = 1
) -> Plan | None:
    """One kernel, if all operands are one row.

    Args:    out: the result's shape and strides, in elements.
    """
    shape, width = out[0], expression.dtype(expression.outputs[0]).width_bits
    strides = [*(broadcast("packed_result.plan", x, shape) for x in inputs), out[1]]
    way = walk(
        [Axis(extent, tuple([s[a] for s in strides])) for a, extent in enumerate(shape)]
        or [Axis(1, (0,) * len(strides))]
    )
    if width not in WIDTHS or way.outer or way.classes[-1:] != ("unit",) or "strided" in way.classes:
        return None
    n, count = way.inner.extent, len(inputs)
    names, (computed, numbers) = tuple(f"x{k}" for k in range(count)), with_arguments(expression)
    spec = KernelSpec(text, PackedResult(computed, way.classes[:-1]), ("n", *numbers, *names, "out"), isa)
    step = Step(spec, -(-n // _TASK), (n, *numbers.values(), *(Operand(k) for k in range(count + 1))))
    return Plan(
        what=f"elementwise {' '.join(node.op for node in expression.nodes) or 'copy'} {shape}",
        isa=isa,
        threads=threads,
        steps=(step,),
        operands=(*(f"input {k}" for k in range(count)), "output 0"),
        facts=(("rows", f"1 of {n}"), ("output 0", f"{width} bits an element, packed as they are made")),
    )


def text(b: Builder, d: PackedResult) -> None:
    """A task is a block of the row."""
    places = [b.pointer(f"x{k}", dtype) for k, dtype in enumerate(d.expression.inputs)]
    cursor = Cursor(b, d.classes, tuple(places))
    wide = -(-b.isa.lanes * unroll(d.expression) // 8) * 8
    for task in b.tasks():
        start = task * _TASK
        stop = b.min(start + _TASK, b.index("n"))
        whole = start + (stop - start) // wide * wide
        for i in b.loop(start, whole, wide):
            _eights(b, d, i, _codes(b, d, cursor, i, wide, None))
        for i in b.loop(whole, stop, 8):
            _rest(b, d, i, _codes(b, d, cursor, i, 8, stop - i), b.min(stop - i, 8))


def _codes(b: Builder, d: PackedResult, cursor: Cursor, i: Index, width: int, count: Index | None) -> Vector:
    """The codes of results i .., a byte each."""
    found = values.Values(b, d.expression, width, lambda k: cursor.load(k, i, width, count))
    return b.bitcast(found.stored(d.expression.outputs[0]), uint8)


def _width(d: PackedResult) -> int:
    return d.expression.dtype(d.expression.outputs[0]).width_bits


def _eights(b: Builder, d: PackedResult, i: Index, codes: Vector) -> None:
    """Whole eights, from element i on."""
    words = gathered(b, b.join(codes, uint64), _width(d))
    put_words(b, b.pointer("out", uint8), i // 8, words, _width(d))


def _rest(b: Builder, d: PackedResult, i: Index, codes: Vector, count: Index) -> None:
    """Fewer elements than a vector, one by one."""
    kept, width = b.local(uint8, 8), _width(d)
    b.store(kept, 0, codes)
    line = Line(b, "packed", width, b.pointer("out", uint8), 0, width)
    for k in b.loop(0, count):
        line.store(i + k, b.load_index(kept, k))
