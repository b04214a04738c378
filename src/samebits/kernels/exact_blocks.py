"""Blocks of NVFP4 whose sums nothing rounds, summed in integers: byte dot products take sixteen elements where a table
and an addition take one (numerics.md section 6).

A chain of such elements is looked up by the codes of an element and of its block's scale (`code_tables`). Where it is
`element * scale * 2^k`, each of its values is a whole multiple of 2^k times the unit of the smallest scale of a block
of 2048 elements; where the largest is not much larger, their sum is at most 2^24 of it. `probe` asks a table for that
2^k, and `emit_sum` the scales of a block whether it is such a one. Start at `chosen`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

from samebits import dtypes
from samebits.codegen.isa import Isa
from samebits.codegen.vocabulary import Builder, Index, KernelSpec, Pointer, Vector
from samebits.dtypes import float32, int32, uint8, uint32
from samebits.frozen import dataclass
from samebits.kernels import fold
from samebits.kernels.code_tables import ENTRIES, CodeTable
from samebits.kernels.expression import Expression
from samebits.kernels.passes import Pass
from samebits.kernels.plan import Operand, Step
from samebits.kernels.walk import NIBBLES, Cursor, blocks

__all__ = ["UNIT", "chosen", "emit_sum", "probe"]

# The argument that holds 2^k, or 0 where the table is no such product.
UNIT = "unit"
_ELEMENT, _SCALE = dtypes.float4_e2m1fn, dtypes.float8_e4m3fn
# Elements of a word of codes.
_WORD = 8
_WORDS = {"dot4_uint8_int8", "dot2_int16", "lookup_bytes"}
# Twice the value of each code.
_TWICE = tuple(int(2 * float(_ELEMENT.decode(code))) for code in range(ENTRIES))
# Codes of scales that are positive, normal numbers: 8 + code % 8 times 2^(code // 8 - 10).
_LEAST, _LARGEST = 0x08, 0x7E
# How far the code of the largest scale may be above that of the power of two at or below the smallest: its value is
# then at most 640 units, and 2048 * 12 * 640 is less than 2^24.
_SPREAD = 50
# Exponents of 2^k, from float32's bits: no multiple is subnormal or infinite.
_EXPONENTS = (27, 207)


def chosen(
    e: Expression, tables: Sequence[CodeTable], found: Sequence[Pass], classes: Sequence[str], n: int, isa: Isa
) -> int | None:
    """The value that is looked up and that a pass over rows of n elements sums and reduces to nothing else, if the row
    `isa` has the words."""
    if n < fold.BLOCK or (isa.compiled and not _WORDS.issubset(isa.instructions)):
        return None
    for table in tables:
        if table.scales is None or table.dtype is not float32:
            continue
        types = e.inputs[table.codes], e.inputs[table.scales]
        lies = classes[table.codes], classes[table.scales]
        sums = any([_read(e, k) for k in a_pass.reductions] == [("row_sum", (table.value,))] for a_pass in found)
        if sums and types == (_ELEMENT, _SCALE) and lies == (NIBBLES, blocks(ENTRIES)):
            return table.value
    return None


def _read(e: Expression, k: int) -> tuple[str, tuple[int, ...]]:
    node = e.node(k)
    assert node is not None  # it is a reduction
    return node.op, node.arguments


@dataclass(frozen=True, slots=True)
class Probe:
    """What specialises the kernel that asks a table, which is nothing."""


def probe(table: Operand, unit: Operand, isa: Isa) -> Step:
    """The step that writes 2^k."""
    return Step(KernelSpec(text, Probe(), ("table", UNIT), isa), 1, (table, unit))


def text(b: Builder, d: Probe) -> None:
    """The value of the element 1/2 and the smallest normal scale has 2^k; every other one must be its multiple."""
    table = b.pointer("table", float32)
    for _ in b.tasks():
        of_half = b.load(table, _LEAST * ENTRIES + 1, 1)
        unit = b.mul(of_half, b.like(of_half, 0.125))
        twice = b.lookup([float(x) for x in _TWICE], float32, b.iota(int32, ENTRIES))
        wrong = [b.constant(0, int32, ENTRIES)]
        for code in b.loop(_LEAST, _LARGEST + 1, carry=wrong):
            weight = b.from_index((code % 8 + 8) << (code // 8 - 1), float32)
            due = b.mul(twice, b.splat(b.mul(weight, unit), ENTRIES))
            same = b.equal(due, b.load(table, code * ENTRIES, ENTRIES))
            wrong[0] = b.bit_or(wrong[0], b.convert(b.invert(same), int32))
        bits = b.bitcast(unit, uint32)
        exponent = b.bit_and(b.shift_right(bits, 23), b.like(bits, 0xFF))
        low, high = (b.like(bits, x) for x in _EXPONENTS)
        good = b.bit_and(b.less_equal(low, exponent), b.less_equal(exponent, high))
        good = b.bit_and(good, b.equal(b.bit_and(bits, b.like(bits, 0x7FFFFF)), b.like(bits, 0)))
        found = b.select(good, unit, b.like(unit, 0.0))
        state = [found]
        for _ in b.when(b.any(b.less(b.constant(0, int32, ENTRIES), wrong[0])), state):
            state[0] = b.constant(0.0, float32, 1)
        b.store(b.pointer(UNIT, float32), 0, state[0])


def emit_sum(
    cursor: Cursor, codes: int, scales: int, start: Index, stop: Index, ahead: Callable[[Index], None]
) -> list[Vector]:
    """The sum of positions start .. stop-1 of a row, and an int32 that is 1 where it is not known: the block is not a
    whole one, or its scales do not lie side by side in ascending order, or its values are others, or they add up to 0,
    whose sign depends on theirs.

    Args:    codes, scales: the operands that have them.   ahead: fetches codes of a position that is read later.
    """
    b = cursor.b
    unit = b.load(b.pointer(UNIT, float32), 0, 1)
    state = [b.constant(0.0, float32, 1), b.constant(1, int32, 1)]
    is_whole = (stop - start > fold.BLOCK - 1) & (b.index(f"x{scales}.inner") == 1)
    for _ in b.when(is_whole & b.any(b.invert(b.equal(unit, b.like(unit, 0.0)))), state):
        first = b.offset(b.cast(cursor.places[scales], uint8), start // ENTRIES)
        least, largest = _limits(b, first)
        base = b.shift_right(least, 3)
        near = b.less_equal(largest, b.add(b.shift_left(base, 3), b.like(base, _SPREAD)))
        normal = b.bit_and(b.less_equal(b.like(least, _LEAST), least), b.less_equal(largest, b.like(least, _LARGEST)))
        for _ in b.when(b.any(b.bit_and(near, normal)), state):
            words = b.cast(b.offset(cursor.places[codes], start // 2), uint32, aligned=False)
            total = _total(b, words, first, base, lambda i: ahead(start + i))
            # The unit of elements is half of the power of two of the least scale's: 2^(base - 1) of the table's unit.
            power = b.bitcast(b.shift_left(b.add(base, b.like(base, 127 - 1)), 23), float32)
            state[0] = b.mul(b.convert(total, float32), b.mul(unit, power))
            state[1] = b.convert(b.equal(total, b.like(total, 0)), int32)
    return state


def _limits(b: Builder, first: Pointer) -> list[Vector]:
    """The least and the largest code of a block's scales, as uint32."""
    width = fold.lane_width(b)
    loaded = [b.load(first, j, width) for j in range(0, fold.BLOCK // ENTRIES, width)]
    found = []
    for word in (b.minimum, b.maximum):
        v = functools.reduce(word, loaded)
        while v.width > 1:
            v = word(b.slice(v, 0, v.width // 2), b.slice(v, v.width // 2, v.width // 2))
        found.append(b.convert(v, uint32))
    return found


def _total(b: Builder, words: Pointer, first: Pointer, base: Vector, ahead: Callable[[Index], None]) -> Vector:
    """The sum of a block in units: of twice the elements of each word, by the whole number that its scale is."""
    width = fold.lane_width(b)
    ones, low = b.constant(0x01010101, int32, width), b.constant(0x0F0F0F0F, uint32, width)
    table = [x % 256 for x in _TWICE]
    sums = [b.constant(0, int32, width) for _ in range(2)]
    bases = b.splat(base, width)
    for i in b.loop(0, fold.BLOCK, ENTRIES * width, carry=sums):
        code = b.convert(b.load(first, i // ENTRIES, width), uint32)
        whole = b.bit_or(b.bit_and(code, b.like(code, 7)), b.like(code, 8))
        weights = b.bitcast(b.shift_left(whole, b.sub(b.shift_right(code, 3), bases)), int32)
        for half in range(2):
            at = i // _WORD + half * width
            ahead(i + half * width * _WORD)
            pairs = b.load(words, at, width)
            found = b.constant(0, int32, width)
            for codes in (pairs, b.shift_right(pairs, 4)):
                values = b.bitcast(b.lookup_bytes(table, b.bit_and(codes, low)), int32)
                found = b.dot4_uint8_int8(found, ones, values)
            # A sum has 8 bits, its high half is its sign; that of a weight, which has at most 10, is 0.
            own = b.pick([weights], [half * width // 2 + lane // 2 for lane in range(width)])
            sums[half] = b.dot2_int16(sums[half], found, own)
    total = b.add(*sums)
    while total.width > 1:
        total = b.add(*(b.slice(total, k, total.width // 2) for k in (0, total.width // 2)))
    return total
