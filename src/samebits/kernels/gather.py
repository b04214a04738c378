"""Gathering: rows of one operand picked by indices, bits unchanged.

    plan(gather, isa, threads) -> Plan

out[o, i, :] = data[o, ids[i, 0], ids[i, 1], ...][:], dense rows of `inner` elements. Operands: data, ids (int64,
dense), status, out. An index counts from the end if it is negative; one that is out of range reads row 0 and sets
status to (1, the index), so that the caller can refuse: also where out has no elements. Copies of any strides are
`elementwise` with the operation `copy`.
"""

from __future__ import annotations

from samebits import dtypes
from samebits.codegen.isa import Isa
from samebits.codegen.vocabulary import Builder, Index, KernelSpec, Pointer
from samebits.dtypes import DType
from samebits.frozen import dataclass
from samebits.kernels.plan import LINE_BYTES, Operand, Plan, Step
from samebits.kernels.walk import numbered
from samebits.tape import cached

__all__ = ["GatherText", "RowGather", "copy_row", "place", "plan"]

# Bytes of one task: microseconds of work, so that threads can share it.
_TASK_BYTES = 1 << 15
# How many lines of the next row are asked for while a row is moved, that of a large table being nowhere near; what an
# index out of range would name is asked for too, which reads nothing.
_AHEAD_LINES = 4
_BITS = {8: dtypes.uint8, 16: dtypes.uint16, 32: dtypes.int32, 64: dtypes.int64}


@dataclass(frozen=True, slots=True)
class RowGather:
    """What is gathered.

    Attributes:
        dtype: The element format of data and out.
        outer: Repetitions, `outer_stride` elements of data apart.
        count: Index rows.
        inner: Elements of each gathered row.
        extents: How many places each index has, one entry a column of ids.
        strides: Elements of data from one place to the next, one entry a column of ids.
    """

    dtype: DType
    outer: int
    outer_stride: int
    count: int
    inner: int
    extents: tuple[int, ...]
    strides: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class GatherText:
    """What specialises the kernel: the bits of an element, the columns of ids, and whether rows have one element.

    The columns are part of the operation, and as an argument they cost 0.8 ns of the 2.1 that a short row takes. What
    says how many elements a row has takes longer than to move one.
    """

    element: DType
    depth: int
    single: bool = False


@cached(1024)
def plan(g: RowGather, isa: Isa, threads: int = 1) -> Plan:
    """One kernel over all rows of out."""
    element = _BITS[8 * g.dtype.element_bytes]
    # Where nothing is gathered every index is looked at once.
    outer, inner = (g.outer, g.inner) if g.outer * g.inner else (1, 0)
    rows = outer * g.count
    each = max(1, _TASK_BYTES // max(1, inner * element.size_bytes))
    axes = [word for j in range(len(g.extents)) for word in (f"extent{j}", f"stride{j}")]
    spec = KernelSpec(
        text,
        GatherText(element, len(g.extents), inner == 1),
        ("data", "ids", "status", "out", "rows", "each", "stretch", "inner", "outer_stride", *axes),
        isa,
    )
    sizes = [size for pair in zip(g.extents, g.strides, strict=True) for size in pair]
    operands = [Operand(k) for k in range(4)]
    step = Step(spec, -(-rows // each), (*operands, rows, each, g.count, inner, g.outer_stride, *sizes))
    return Plan(
        what=f"gather {g.dtype.name} {g.outer} x {g.count} rows of {g.inner}",
        isa=isa,
        threads=threads,
        steps=(step,),
        operands=("data", "ids", "status", "out"),
    )


def text(b: Builder, d: GatherText) -> None:
    """A task is some rows of out; those of one repetition are a stretch."""
    data, ids = b.pointer("data", d.element), b.pointer("ids", dtypes.int64)
    status, out = b.pointer("status", dtypes.int64), b.pointer("out", d.element)
    rows, each, count = b.index("rows"), b.index("each"), b.index("stretch")
    inner, outer_stride = b.index("inner"), b.index("outer_stride")
    for task in b.tasks():
        first, last = task * each, b.min(task * each + each, rows)
        for number, begin, end in numbered(b, True, first, last):
            behind = b.offset(out, number * count * inner)
            for i in b.loop(begin, end):
                source: Index = number * outer_stride
                for j in range(d.depth):
                    found = place(b, ids, i * d.depth + j, b.index(f"extent{j}"), status)
                    source = source + found * b.index(f"stride{j}")
                if d.depth == 1 and not d.single:
                    ahead = number * outer_stride + b.load_index(ids, b.min(i + 1, end - 1)) * b.index("stride0")
                    for line in range(_AHEAD_LINES):
                        b.prefetch(data, ahead + line * LINE_BYTES // d.element.size_bytes)
                if d.single:
                    b.store(behind, i, b.load(data, source, 1))
                else:
                    copy_row(b, b.offset(data, source), b.offset(behind, i * inner), inner)


def place(b: Builder, ids: Pointer, at: Index, extent: Index, status: Pointer, mark: Index = 1) -> Index:
    """The index as a place; 0 where it is out of range: the first that a task meets is reported as (mark, itself)."""
    given = b.load_index(ids, at)
    found = [b.choose(given < 0, given + extent, given)]
    for _ in b.when((found[0] < 0) | (found[0] >= extent), found):
        found[0] = 0
        for _ in b.when(b.load_index(status, 0) == 0):
            b.store(status, 1, b.from_index(given, dtypes.int64))
            b.store(status, 0, b.from_index(mark, dtypes.int64))
    return found[0]


def copy_row(b: Builder, source: Pointer, target: Pointer, inner: Index) -> None:
    """Move `inner` elements that lie side by side."""
    lanes = b.isa.lanes
    for i in b.loop(0, inner - (lanes - 1), lanes):
        b.store(target, i, b.load(source, i, lanes))
    done = inner // lanes * lanes
    for _ in b.when(done < inner):
        b.store(target, done, b.load(source, done, lanes, inner - done), inner - done)
