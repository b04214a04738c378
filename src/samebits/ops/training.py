"""What training needs beside the public functions, for `samebits.torch`: log_softmax, cross-entropy, and gradients.

Numerics.md section 5 decides the bits. Arrays are of one dtype and of shapes that fit: their callers have looked.
`threads` are at most so many, by default every usable core.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from samebits import dtypes
from samebits.codegen.isa import Isa
from samebits.dtypes import DType
from samebits.frozen import replace
from samebits.kernels import convert, gradients, ragged, row_totals
from samebits.kernels.expression import Expression
from samebits.kernels.gemm.contraction import SB1, Spec
from samebits.kernels.gemm.order import ORDERS
from samebits.kernels.plan import SMALL
from samebits.layout import Layout
from samebits.operations.moves import AxisGather
from samebits.operations.rows import RowWise
from samebits.ops import casts, elementwise, move
from samebits.ops.call import Call
from samebits.ops.elementwise import apply
from samebits.ops.launch import launch
from samebits.ops.memo import remembered
from samebits.ops.recipe import CallOperand, Prepared
from samebits.tensor import Tensor

__all__ = [
    "add_embedding_gradient", "cross_entropy", "cross_entropy_gradient", "element_gradient", "embedding",
    "embedding_gradient", "layer_norm_gradient", "layer_norm_gradients", "layer_norm_weight_gradient", "log_softmax",
    "row_gradient", "scaled",
]  # fmt: skip

_ELEMENTS = {"exp": gradients.exp, "log": gradients.log, "erf": gradients.erf, "relu": gradients.relu,
             "gelu": gradients.gelu}  # fmt: skip
_ROWS = {"softmax": gradients.softmax, "log_softmax": gradients.log_softmax}
_SCALES = {"mul": gradients.scaled, "div": gradients.divided}


@remembered
def scaled(x: Any, op: str, number: float, *, threads: int | None = None) -> Any:
    """x * number or x / number (`mul` or `div`), the number rounded to float32 (float64 beside it)."""
    call = Call("scaled", x, threads)
    given = call.operand("x", x)
    kind = dtypes.float64 if given.dtype is dtypes.float64 else dtypes.float32
    value = call.constant(np.asarray(call.number("number", number, kind), kind.numpy))
    return apply(call, _SCALES[op](given.dtype, kind), [given, value])


@remembered
def element_gradient(name: str, x: Any, dy: Any, *, threads: int | None = None) -> Any:
    """The gradient of exp, log, erf, relu or gelu, from its operand, or from its result for exp and relu."""
    call = Call(f"{name}'s gradient", x, threads)
    operands = [call.operand("x", x), call.operand("dy", dy)]
    return apply(call, _ELEMENTS[name](operands[0].dtype, operands[1].dtype), operands)


@remembered
def row_gradient(name: str, y: Any, dy: Any, axis: int, *, threads: int | None = None) -> Any:
    """The gradient of softmax or log_softmax along an axis counted from the end, from its result."""
    call = Call(f"{name}'s gradient", y, threads)
    operands = [call.operand("y", y), call.operand("dy", dy)]
    return call.result(_along(call, _ROWS[name](operands[0].dtype, operands[1].dtype), operands, axis))


@remembered
def log_softmax(x: Any, axis: int = -1, *, threads: int | None = None) -> Any:
    """(x - max) - log(sum(exp(x - max))) along an axis counted from the end."""
    call = Call("log_softmax", x, threads)
    given = call.operand("x", x)
    return call.result(_along(call, gradients.log_softmax_of(given.dtype), [given], axis))


@remembered
def layer_norm_gradient(x: Any, dy: Any, weight: Any, eps: float, *, threads: int | None = None) -> Any:
    """The gradient of a layer norm by x; weight may be None."""
    call = Call("layer_norm's gradient", x, threads)
    operands = [call.operand("x", x), call.operand("dy", dy)]
    if weight is not None:
        operands.append(call.operand("weight", weight))
    dtype = operands[0].dtype
    expression = gradients.layer_norm(dtype, weight is not None, call.number("eps", eps, dtype))
    return call.result(_along(call, expression, operands, -1))


@remembered
def layer_norm_weight_gradient(x: Any, dy: Any, eps: float, *, threads: int | None = None) -> Any:
    """What the gradient of a layer norm by its weight sums over rows, in float32 (float64)."""
    call = Call("layer_norm's gradient", x, threads)
    operands = [call.operand("x", x), call.operand("dy", dy)]
    dtype = operands[0].dtype
    expression = gradients.layer_norm_weight(dtype, call.number("eps", eps, dtype))
    return call.result(_along(call, expression, operands, -1))


@remembered
def layer_norm_gradients(
    x: Any, dy: Any, weight: Any, dw: Any, db: Any, eps: float, chunk: int, *, threads: int | None = None
) -> Any:  # fmt: skip
    """The gradient of a layer norm of x [R, C] by x, R and C at least 1; those by its weight and by its bias are
    written to dw and, if it is not None, db: their sums over rows are those of `Spec(chunk)`."""
    call = Call("layer_norm's gradient", x, threads)
    operands = [call.operand("x", x), call.operand("dy", dy), call.operand("weight", weight)]
    sums = [call.operand("dw", dw), *([] if db is None else [call.operand("db", db)])]
    dtype, layouts = operands[0].dtype, tuple([operand.tensor.layout for operand in operands])
    number = call.number("eps", eps, dtype)
    prepared = _with_totals(dtype, layouts, number, chunk, len(sums), call.isa, call.threads)
    dx = call.output(operands[0].shape, dtype)
    call.run(prepared, *operands, dx, *sums)
    return call.result(dx)


@functools.lru_cache(maxsize=1024)
def _with_totals(
    dtype: DType, layouts: tuple[Layout, ...], eps: float, chunk: int, sums: int, isa: Isa, threads: int
) -> Prepared:  # fmt: skip
    shape, width = layouts[0].shape, dtype.width_bits
    lies = tuple([(x.shape, tuple([step // width for step in x.strides_bits])) for x in layouts])
    output, expression = (shape, (shape[1], 1)), gradients.layer_norm_totals(dtype, sums > 1, eps)
    shared = threads if math.prod(shape) >= SMALL["elements"] else 1
    return Prepared(row_totals.plan(expression, lies, (output,), (dtype,) * sums, chunk, isa, shared))


@remembered
def cross_entropy(x: Any, target: Any, classes: Any, *, threads: int | None = None) -> Any:
    """One float32 (float64) value for each row of x [R, C]; target is [R, 1], classes 0, 1, ... C - 1, int64 both."""
    call = Call("cross_entropy", x, threads)
    operands = [call.operand("x", x), call.operand("target", target), call.operand("classes", classes)]
    return call.result(_along(call, gradients.cross_entropy_of(operands[0].dtype), operands, -1))


@remembered
def cross_entropy_gradient(x: Any, target: Any, classes: Any, g: Any, *, threads: int | None = None) -> Any:
    """The gradient by x; g is [R, 1] in float32 (float64). A row with a negative target has zeros."""
    call = Call("cross_entropy's gradient", x, threads)
    arrays = {"x": x, "target": target, "classes": classes, "g": g}
    operands = [call.operand(name, array) for name, array in arrays.items()]
    return call.result(_along(call, gradients.cross_entropy(operands[0].dtype), operands, -1))


@remembered
def embedding(weight: Any, indices: Any, *, threads: int | None = None) -> Any:
    """Rows of weight [V, D] by indices of int64, in [0, V) as the caller has seen; bits are copied."""
    call = Call("embedding", weight, threads)
    operands = [call.operand("weight", weight), call.operand("indices", indices)]
    return call.result(launch(call, "gather", AxisGather(0), operands, is_checked=True)[0])


def _along(call: Call, expression: Expression, operands: list[CallOperand], axis: int) -> CallOperand:
    return launch(call, "rows", RowWise(expression, (axis,)), operands)[0]


def embedding_gradient(dy: Any, indices: Any, count: int, spec: Spec = SB1, *, threads: int | None = None) -> Any:
    """The gradient of an embedding by its table: for each index the sum over its rows of dy, zeros where it has none.

    Args:    dy: [R, D] floats.   indices: [R] int64; a row with a negative one takes no part.
             count: rows of the table.
    Returns: [count, D] of dy's kind and dtype.
    """
    call = Call("embedding's gradient", dy, threads)
    given = call.operand("dy", dy)
    dtype, (_, columns) = given.dtype, given.shape
    kind = convert.computed(dtype)
    x = given.tensor if dtype is kind else casts.cast(given.tensor, kind, threads=threads)
    x = x if x.layout.is_contiguous() else move.contiguous(x, threads=threads)
    places = call.operand("indices", indices).tensor.numpy()
    parts = []
    for low, high in spec.bounds(len(places)):
        made = Tensor.empty((count, columns), kind)
        made.numpy().view(np.uint8).fill(0)  # five sixths of the time that a fill of floats takes
        _scatter(call, x, places[low:high], low, spec, made)
        parts.append(made)
    while len(parts) > 1:
        parts = [elementwise.add(a, b, threads=threads) for a, b in zip(parts[::2], parts[1::2], strict=True)]
    return call.result(call.own(parts[0] if dtype is kind else casts.cast(parts[0], dtype, threads=threads)))


def add_embedding_gradient(
    total: Any, dy: Any, indices: Any, spec: Spec = SB1, *, threads: int | None = None
) -> None:  # fmt: skip
    """Go on with the sums that `embedding_gradient` makes: total is [S, V, D], one sum for each segment of the rows,
    whatever the segments of `spec` are."""
    call = Call("embedding's gradient", dy, threads)
    given, out = call.operand("dy", dy), call.operand("total", total)
    x = casts.cast(given.tensor, out.dtype, threads=threads) if given.dtype is not out.dtype else given.tensor
    x = x if x.layout.is_contiguous() else move.contiguous(x, threads=threads)
    places = call.operand("indices", indices).tensor.numpy()
    spec = replace(spec, segments=out.shape[0])
    for s, (low, high) in enumerate(spec.bounds(len(places))):
        sums = out.tensor[s]
        dense = sums if sums.layout.is_contiguous() else move.contiguous(sums, threads=threads)
        _scatter(call, x, places[low:high], low, spec, dense)
        if dense is not sums:
            sums.numpy()[...] = dense.numpy()


def _scatter(call: Call, x: Tensor, places: Any, first: int, spec: Spec, out: Tensor) -> None:
    """Onto rows of out: the sums of a chunk's rows of one index, in the order asked for, then those of its chunks."""
    taken = np.flatnonzero(places >= 0)
    if not taken.size or not x.shape[1]:
        return
    row = ORDERS[spec.order]
    if row.block:
        chain = taken // row.block * row.chains + taken % row.block % row.chains
        order = taken[np.lexsort((taken, chain, places[taken]))]
    else:
        order = taken[np.argsort(places[taken], kind="stable")]
    index, sums, rows, part = places[order], x, order + first, order // spec.chunk
    # Rows of a chain, chains of a block: what is one of them is one sum, by additions from +0.
    levels = [order // row.block * row.chains + order % row.block % row.chains, order // row.block] if row.block else []
    while levels:
        begins = np.flatnonzero(_changes(index, levels[0]))
        found = Tensor.empty((len(begins), x.shape[1]), x.dtype)
        _summed(call, sums, rows, np.append(begins, len(index)), found)
        index, part, sums, rows = index[begins], part[begins], found, np.arange(len(begins))
        levels = [level[begins] for level in levels[1:]]
    begins = np.flatnonzero(_changes(index, part))
    groups = np.flatnonzero(_changes(index[begins]))
    numbers = [
        rows, np.append(begins, len(index)), np.append(groups, len(begins)), index[begins[groups]],
        np.array([len(groups)]),
    ]  # fmt: skip
    # A power of two of groups, so that steps share plans.
    prepared = _prepared_onto(x.dtype, 1 << (len(groups) - 1).bit_length(), x.shape[1], call.isa, call.threads)
    given = [Tensor.from_any(np.ascontiguousarray(a, np.int64)) for a in numbers]
    prepared.run([sums.address, *[a.address for a in given], out.address])


def _changes(first: Any, *others: Any) -> Any:
    """Where one of some arrays is not what it was one place before; at its first place too."""
    found = np.empty(len(first), bool)
    found[0] = True
    np.not_equal(first[1:], first[:-1], out=found[1:])
    for x in others:
        found[1:] |= x[1:] != x[:-1]
    return found


def _summed(call: Call, x: Tensor, rows: Any, starts: Any, out: Tensor) -> None:
    """Run the plan of ragged sums."""
    prepared = _prepared(x.dtype, len(rows), len(starts) - 1, x.shape[1], call.isa, call.threads)
    numbers = [Tensor.from_any(np.ascontiguousarray(a, np.int64)) for a in (rows, starts)]
    prepared.run([x.address, numbers[0].address, numbers[1].address, out.address])


@functools.lru_cache(maxsize=256)
def _prepared(dtype: DType, count: int, groups: int, columns: int, isa: Isa, threads: int) -> Prepared:
    return Prepared(ragged.plan(ragged.RaggedSum(dtype, count, groups, columns), isa, threads))


@functools.lru_cache(maxsize=256)
def _prepared_onto(dtype: DType, most: int, columns: int, isa: Isa, threads: int) -> Prepared:
    return Prepared(ragged.plan_onto(ragged.RaggedOnto(dtype, most, columns), isa, threads))
