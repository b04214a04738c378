"""Resampling of images: every output row is a few rows of the input, of which each output element is a few elements.

    tables(places, extent) -> Tables | None, which a plan takes
    plan(r, isa, threads) -> Plan
    reference(r, x, *tables) -> array

An axis is resampled by places and, unless elements are moved alone, weights, both [taken, out]: `x_0 w_0`, then an fma
for each further place, ascending (numerics.md section 8); rows before columns. Places of a row of outputs are told by
blocks: from where on the sixteen elements lie that hold all places of the block, and which of those each output takes,
which is one permutation of a register. Operands of the plan: x [images, rows, columns], starts, offsets, and weights
where there are any, of the columns; then the places of rows, and their weights, where rows are resampled; out. Start at
`text`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from samebits import dtypes, ieee
from samebits.codegen.isa import Isa
from samebits.codegen.vocabulary import Builder, Index, KernelSpec, Pointer, Vector
from samebits.dtypes import DType
from samebits.frozen import dataclass
from samebits.kernels.plan import Operand, Plan, Step
from samebits.tape import cached

__all__ = ["Resampling", "plan", "reference", "tables"]

Array = npt.NDArray[Any]

# Elements of one task, as of elementwise kernels.
_TASK = 8192
# Elements that a permutation picks from; outputs that share them at most and at least.
_WINDOW, _LARGEST, _LEAST = 16, 16, 4
# Outputs that offsets and weights are filled up to a multiple of: whole vectors.
_PADDED = 64


@dataclass(frozen=True, slots=True)
class Resampling:
    """What is computed: `taken` and `rows_taken` are how many places of each axis an output takes, rows 0 if they stay.

    Attributes:
        dtype: The element format, of 32 bits; float32 where there are weights.
        images, rows, columns: Extents of x.
        rows_out, columns_out: Extents of the result; as many images.
        block: Outputs that share where their sixteen elements begin.
        weighed: Whether there are weights.
    """

    dtype: DType
    images: int
    rows: int
    columns: int
    rows_out: int
    columns_out: int
    block: int
    taken: int
    rows_taken: int
    weighed: bool


@dataclass(frozen=True, slots=True)
class ResampleText:
    """What specialises the kernel."""

    dtype: DType
    block: int
    taken: int
    rows_taken: int
    weighed: bool


def tables(places: Array, weights: Array | None) -> tuple[int, tuple[Array, ...]] | None:
    """The block, and starts [taken, blocks], offsets and weights [taken, out, filled up]; None where the places of few
    outputs are further apart than a permutation reaches."""
    taken, out = places.shape
    filled = -(-out // _PADDED) * _PADDED
    wide = np.pad(places, ((0, 0), (0, filled - out)), mode="edge") if out else np.zeros((taken, 0), np.int64)
    block = _LARGEST
    while block >= _LEAST:
        blocks = wide.reshape(taken, -1, block)
        starts = blocks.min(2)
        offsets = blocks - starts[:, :, None]
        if not offsets.size or offsets.max() < _WINDOW:
            found = starts.astype(np.int64), offsets.reshape(taken, filled).astype(np.uint32)
            if weights is None:
                return block, found
            return block, (*found, np.pad(weights, ((0, 0), (0, filled - out))))
        block //= 2
    return None


def reference(r: Resampling, x: Array, *operands: Array) -> Array:
    """By NumPy: an axis after the other."""
    starts, offsets, *more = operands
    columns = (np.repeat(starts, r.block, axis=1) + offsets)[:, : r.columns_out]
    weights = more.pop(0)[:, None, None, : r.columns_out] if r.weighed else None
    images = x.reshape(r.images, r.rows, r.columns)
    if r.rows_taken:
        by_row = more[1][:, None, :, None] if r.weighed else None
        images = _summed(np.moveaxis(images[:, more[0]], 1, 0), by_row)
    return _summed(np.moveaxis(images[:, :, columns], 2, 0), weights).reshape(*x.shape[:-2], r.rows_out, r.columns_out)


def _summed(parts: Array, weights: Array | None) -> Array:
    """What an output takes, by its weights."""
    if weights is None:
        return np.ascontiguousarray(parts[0])
    total = np.full(parts.shape[1:], -0.0, np.float32)  # which a product and it leave as it is
    for part, weight in zip(parts, weights, strict=True):
        total = ieee.canonical(ieee.fma(part, np.broadcast_to(weight, part.shape), total))
    return total


@cached(1024)
def plan(r: Resampling, isa: Isa, threads: int = 1) -> Plan:
    """One kernel over the rows of the result."""
    names = ["x", "starts", "offsets", *["weights"] * r.weighed]
    if r.rows_taken:
        names += ["row_places", *["row_weights"] * r.weighed]
    names.append("out")
    rows, each = r.images * r.rows_out, max(1, _TASK // max(1, r.columns_out))
    sizes = {
        "each": each, "lines": rows, "rows": r.rows, "columns": r.columns, "rows_out": r.rows_out,
        "columns_out": r.columns_out, "filled": -(-r.columns_out // _PADDED) * _PADDED,
    }  # fmt: skip
    text_of = ResampleText(r.dtype, r.block, r.taken, r.rows_taken, r.weighed)
    spec = KernelSpec(text, text_of, (*names, *sizes), isa, unroll=False)
    step = Step(spec, -(-rows // each) if r.columns_out else 0, (*map(Operand, range(len(names))), *sizes.values()))
    return Plan(
        what=f"resample {r.dtype.name} {r.images} x {r.rows} x {r.columns} to {r.rows_out} x {r.columns_out}",
        isa=isa,
        threads=threads,
        steps=(step,),
        operands=tuple(names),
        scratch_bytes=4 * (r.columns + _WINDOW + isa.lanes),
        facts=(("places of an output", f"{max(1, r.rows_taken)} x {r.taken}, {r.block} outputs together"),),
    )


def text(b: Builder, d: ResampleText) -> None:
    """A task is some rows of the result. What columns are taken from lies in scratch: windows reach behind it."""
    x, out, line = b.pointer("x", d.dtype), b.pointer("out", d.dtype), b.scratch(d.dtype)
    each, columns, columns_out, lanes = b.index("each"), b.index("columns"), b.index("columns_out"), _lanes(b)
    for task in b.tasks():
        for r in b.loop(task * each, b.min(task * each + each, b.index("lines"))):
            sources, weights = _sources(b, d, x, r)
            whole = columns // lanes * lanes
            for i in b.loop(0, whole, lanes):
                b.store(line, i, _sum(b, [b.load(source, i, lanes) for source in sources], weights))
            for i in b.loop(whole, columns, lanes):
                rest = [b.load(source, i, lanes, columns - i) for source in sources]
                b.store(line, i, _sum(b, rest, weights))
            row, whole = b.offset(out, r * columns_out), columns_out // lanes * lanes
            for i in b.loop(0, whole, lanes):
                b.store(row, i, _picked(b, d, line, i))
            for i in b.loop(whole, columns_out, lanes):
                b.store(row, i, _picked(b, d, line, i), columns_out - i)


def _lanes(b: Builder) -> int:
    """Elements of a vector: a power of two, as blocks have."""
    return 1 << b.isa.lanes.bit_length() - 1


def _sources(b: Builder, d: ResampleText, x: Pointer, r: Index) -> tuple[list[Pointer], list[Vector]]:
    """The rows of x that row r of the result takes, and their weights in every lane."""
    columns, rows_out, lanes = b.index("columns"), b.index("rows_out"), _lanes(b)
    if not d.rows_taken:
        return [b.offset(x, r * columns)], []
    places, image, row = b.pointer("row_places", dtypes.int64), r // rows_out * b.index("rows"), r % rows_out
    found = [image + b.load_index(places, p * rows_out + row) for p in range(d.rows_taken)]
    given = b.pointer("row_weights", d.dtype) if d.weighed else None
    weights = [b.splat(b.load(given, p * rows_out + row, 1), lanes) for p in range(d.rows_taken)] if given else []
    return [b.offset(x, at * columns) for at in found], weights


def _picked(b: Builder, d: ResampleText, line: Pointer, i: Index) -> Vector:
    """Outputs i .. i+lanes-1 of a row."""
    lanes, filled = _lanes(b), b.index("filled")
    starts, offsets = b.pointer("starts", dtypes.int64), b.pointer("offsets", dtypes.uint32)
    step, parts = min(lanes, d.block), []
    for p in range(d.taken):
        index = b.load(offsets, p * filled + i, lanes)
        found = []
        for k in range(0, lanes, step):
            start = b.load_index(starts, (p * filled + i + k) // d.block)
            found.append(b.lookup_at(line, start, index))
        # Every window is looked up whole, as an instruction does: lanes have theirs of the window that they are in.
        parts.append(b.pick(found, [lane // step * lanes + lane for lane in range(lanes)]) if found[1:] else found[0])
    given = b.pointer("weights", d.dtype) if d.weighed else None
    weights = [b.load(given, p * filled + i, lanes) for p in range(d.taken)] if given else []
    return b.canonical(_sum(b, parts, weights)) if d.weighed else parts[0]


def _sum(b: Builder, parts: list[Vector], weights: list[Vector]) -> Vector:
    """A product, then an fma for each further part; of no weights the part."""
    if not weights:
        return parts[0]
    total = b.mul(parts[0], weights[0])
    for part, weight in zip(parts[1:], weights[1:], strict=True):
        total = b.fma(part, weight, total)
    return total
