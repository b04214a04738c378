"""What training needs beside the public functions, for `samebits.torch`: cross-entropy and gradients.

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
from samebits.kernels import convert, gradients, index_sums, reduce, row_totals
from samebits.kernels.expression import Expression
from samebits.kernels.gemm.contraction import Spec
from samebits.kernels.gemm.order import ORDERS
from samebits.kernels.plan import chained, sized
from samebits.kernels.walk import AxisSteps
from samebits.layout import Layout, Shape
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
    "embedding_gradient", "layer_norm_gradient", "layer_norm_gradients", "layer_norm_weight_gradient",
    "row_gradient", "scaled",
]  # fmt: skip

_ELEMENTS = {"exp": gradients.exp, "log": gradients.log, "erf": gradients.erf, "relu": gradients.relu,
             "gelu": gradients.gelu, "gelu_tanh": gradients.gelu_tanh, "sigmoid": gradients.sigmoid,
             "silu": gradients.silu, "tanh": gradients.tanh}  # fmt: skip
_ROWS = {"softmax": gradients.softmax, "log_softmax": gradients.log_softmax}
_SCALES = {"mul": gradients.scaled, "div": gradients.divided}
# Bytes that the C library clears past the caches, in nine tenths of the time that one thread's stores take.
_STREAMED = 1 << 26


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
    """The gradient of a function of one element, from its operand; of exp, relu, sigmoid and tanh from the result."""
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
def layer_norm_gradient(
    x: Any, dy: Any, weight: Any, eps: float, centred: bool = True, *, threads: int | None = None
) -> Any:  # fmt: skip
    """The gradient of a layer norm by x, of an RMS norm where it is not centred; weight may be None."""
    call = Call("layer_norm's gradient", x, threads)
    operands = [call.operand("x", x), call.operand("dy", dy)]
    if weight is not None:
        operands.append(call.operand("weight", weight))
    dtype = operands[0].dtype
    expression = gradients.layer_norm(dtype, weight is not None, call.number("eps", eps, dtype), centred)
    return call.result(_along(call, expression, operands, -1))


@remembered
def layer_norm_weight_gradient(
    x: Any, dy: Any, eps: float, centred: bool = True, *, threads: int | None = None
) -> Any:  # fmt: skip
    """What the gradient of a layer norm by its weight sums over rows, in float32 (float64); `centred` as above."""
    call = Call("layer_norm's gradient", x, threads)
    operands = [call.operand("x", x), call.operand("dy", dy)]
    dtype = operands[0].dtype
    expression = gradients.layer_norm_weight(dtype, call.number("eps", eps, dtype), centred)
    return call.result(_along(call, expression, operands, -1))


@remembered
def layer_norm_gradients(
    x: Any, dy: Any, weight: Any, dw: Any, db: Any, eps: float, chunk: int, centred: bool = True, *,
    threads: int | None = None,
) -> Any:  # fmt: skip
    """The gradient of a layer norm of x [R, C] by x, R and C at least 1; those by its weight and by its bias are
    written to dw and, if it is not None, db: their sums over rows are those of `Spec(chunk)`. `centred` as above."""
    call = Call("layer_norm's gradient", x, threads)
    operands = [call.operand("x", x), call.operand("dy", dy), call.operand("weight", weight)]
    sums = [call.operand("dw", dw), *([] if db is None else [call.operand("db", db)])]
    dtype, layouts = operands[0].dtype, tuple([operand.tensor.layout for operand in operands])
    number = call.number("eps", eps, dtype)
    prepared = _with_totals(dtype, layouts, number, chunk, len(sums), centred, call.isa, call.threads)
    dx = call.output(operands[0].shape, dtype)
    call.run(prepared, *operands, dx, *sums)
    return call.result(dx)


@functools.lru_cache(maxsize=1024)
def _with_totals(
    dtype: DType, layouts: tuple[Layout, ...], eps: float, chunk: int, sums: int, centred: bool, isa: Isa,
    threads: int,
) -> Prepared:  # fmt: skip
    shape, width = layouts[0].shape, dtype.width_bits
    lies = tuple([(x.shape, tuple([step // width for step in x.strides_bits])) for x in layouts])
    output, expression = (shape, (shape[1], 1)), gradients.layer_norm_totals(dtype, sums > 1, eps, centred)
    shared = sized(threads, math.prod(shape))
    return Prepared(row_totals.plan(expression, lies, (output,), (dtype,) * sums, chunk, isa, shared))


@remembered
def cross_entropy(
    x: Any, target: Any, reduction: str, count: float = 1.0, is_whole: bool = False, *, threads: int | None = None
) -> Any:  # fmt: skip
    """-log_softmax(x)[target] of each row of x [R, C] in float32 (float64), +0 where target [R], int64, is negative;
    `sum` adds them all (section 6), `mean` divides that by count, `none` leaves them. `is_whole`: none is negative."""
    call = Call("cross_entropy", x, threads)
    operands = [call.operand("x", x), call.operand("target", target)]
    dtype, shape = operands[0].dtype, operands[0].shape
    if is_whole:
        call.within(operands[1], shape[1])
    kind, layouts = convert.computed(dtype), (operands[0].tensor.layout, operands[1].tensor.layout)
    prepared = _losses(dtype, layouts, reduction, call.isa, call.threads)
    operands.append(call.constant(_classes(shape[1])))
    if reduction == "mean":
        operands.append(call.constant(np.full(1, call.number("count", count, kind), kind.numpy)))
    made = call.output(shape[:1] if reduction == "none" else (), kind)
    call.run(prepared, *operands, made)
    return call.result(made)


@remembered
def cross_entropy_gradient(
    x: Any, target: Any, g: Any, count: float, is_whole: bool = False, *, threads: int | None = None
) -> Any:  # fmt: skip
    """The gradient by x: g, in float32 (float64), is [R], or [] for all rows, and divided by count. A row with a
    negative target has zeros; `is_whole`: there is none."""
    call = Call("cross_entropy's gradient", x, threads)
    operands = [call.operand("x", x), call.operand("target", target), call.operand("g", g)]
    dtype, shape = operands[0].dtype, operands[0].shape
    if is_whole:
        call.within(operands[1], shape[1])
    kind, layouts = convert.computed(dtype), tuple([operand.tensor.layout for operand in operands])
    prepared = _losses_gradient(dtype, layouts, call.isa, call.threads)
    number = np.full(1, call.number("count", count, kind), kind.numpy)
    made = call.output(shape, dtype)
    call.run(prepared, *operands, call.constant(_classes(shape[1])), call.constant(number), made)
    return call.result(made)


@functools.lru_cache(maxsize=64)
def _classes(count: int) -> Any:
    return np.arange(count)


@functools.lru_cache(maxsize=1024)
def _losses(dtype: DType, layouts: tuple[Layout, ...], reduction: str, isa: Isa, threads: int) -> Prepared:
    """The loss of each row, and what is made of them all."""
    x, target = map(_lying, layouts)
    rows, kind = x[0][0], convert.computed(dtype)
    inputs, each = (x, _by_row(*target, rows), (x[0][1:], (1,))), ((rows, 1), (1, 1))
    shared = sized(threads, math.prod(x[0]))
    plan = reduce.plan(gradients.cross_entropy_of(dtype), inputs, (each,), (1,), isa, shared)
    if reduction == "none":
        return Prepared(plan)
    expression, one = gradients.total(kind, reduction == "mean"), ((1,), (1,))
    of_rows = (((rows,), (1,)), one)[: len(expression.inputs)]
    then = reduce.plan(expression, of_rows, (one,), (0,), isa, sized(threads, rows))
    return Prepared(chained(plan, then, rows * kind.width_bits // 8))


@functools.lru_cache(maxsize=1024)
def _losses_gradient(dtype: DType, layouts: tuple[Layout, ...], isa: Isa, threads: int) -> Prepared:
    x, target, g = map(_lying, layouts)
    rows, columns = x[0]
    inputs = (x, _by_row(*target, rows), _by_row(*g, rows), ((columns,), (1,)), ((1, 1), (0, 0)))
    shared = sized(threads, rows * columns)
    return Prepared(reduce.plan(gradients.cross_entropy(dtype), inputs, ((x[0], (columns, 1)),), (1,), isa, shared))


def _lying(layout: Layout) -> AxisSteps:
    """Its extents, and steps in elements."""
    return layout.shape, layout.strides


def _by_row(shape: Shape, steps: Shape, rows: int) -> AxisSteps:
    """One value for each row, or one for all, as a column."""
    return (rows, 1), ((steps[0] if shape else 0), 0)


@remembered
def embedding(weight: Any, indices: Any, *, threads: int | None = None) -> Any:
    """Rows of weight [V, D] by indices of int64 or int32, in [0, V) as the caller has seen; bits are copied."""
    call = Call("embedding", weight, threads)
    operands = [call.operand("weight", weight), call.operand("indices", indices)]
    call.within(operands[1], operands[0].shape[0])
    return call.result(launch(call, "gather", AxisGather(0), operands, is_checked=True)[0])


def _along(call: Call, expression: Expression, operands: list[CallOperand], axis: int) -> CallOperand:
    return launch(call, "rows", RowWise(expression, (axis,)), operands)[0]


@remembered
def embedding_gradient(
    dy: Any, indices: Any, count: int, left_out: int, chunk: int, segments: int, order: str, *,
    threads: int | None = None,
) -> Any:  # fmt: skip
    """The gradient of an embedding by its table: for each index the sum over its rows of dy, zeros where it has none.

    Args:    dy: [..., D] floats, dense unless there are two axes.   indices: [...] int64 or int32, dense; a row takes
             no part whose index is no row of the table.
             count: rows of the table.   left_out: one of them, whose gradient is zero; -1: none.
             chunk, segments, order: those of a `Spec`, by which emitted code remembers calls.
    Returns: [count, D] of dy's kind and dtype.
    """
    call = Call("embedding's gradient", dy, threads)
    given, places = call.operand("dy", dy), call.within(call.operand("indices", indices), count)
    rows, shape, spec = places.tensor.size, (count, given.shape[-1]), Spec(chunk, segments, order)
    if len(places.shape) != 1:
        places = places.seen(places.tensor.reshape(rows))
    if len(given.shape) != 2:
        given = given.seen(given.tensor.reshape(rows, shape[1]))
    x = _in_rows(call, given)
    if segments == 1:
        made = call.output(shape, given.dtype)
        is_cleared = call.threads == 1 and made.tensor.nbytes >= _STREAMED
        if is_cleared:
            made = call.own(made.tensor)
            made.tensor.numpy().view(np.uint8).fill(0)
        call.run(_index_sums(call, (x, places, made), spec, left_out, False, is_cleared), x, places, made)
        return call.result(made)
    parts = []
    for low, high in spec.bounds(rows):
        part = call.own(Tensor.empty(shape, convert.computed(given.dtype)))
        operands = x.seen(x.tensor[low:high]), places.seen(places.tensor[low:high]), part
        call.run(_index_sums(call, operands, spec, left_out, False), *operands)
        parts.append(part.tensor)
    while len(parts) > 1:
        parts = [elementwise.add(a, b, threads=threads) for a, b in zip(parts[::2], parts[1::2], strict=True)]
    return call.result(call.own(casts.cast(parts[0], given.dtype, threads=threads)))


def add_embedding_gradient(
    total: Any, dy: Any, indices: Any, left_out: int, spec: Spec, *, threads: int | None = None
) -> None:  # fmt: skip
    """Go on with the sums that `embedding_gradient` makes: total is [S, V, D], one sum for each segment of the rows,
    whatever the segments of `spec` are."""
    call = Call("embedding's gradient", dy, threads)
    out, places = call.operand("total", total), call.operand("indices", indices)
    x = _in_rows(call, call.operand("dy", dy))
    for s, (low, high) in enumerate(replace(spec, segments=out.shape[0]).bounds(places.shape[0])):
        given = out.seen(out.tensor[s])
        sums = _in_rows(call, given)
        operands = x.seen(x.tensor[low:high]), places.seen(places.tensor[low:high]), sums
        call.run(_index_sums(call, operands, spec, left_out, True), *operands)
        if sums is not given:
            given.tensor.numpy()[...] = sums.tensor.numpy()


def _in_rows(call: Call, x: CallOperand) -> CallOperand:
    """x [R, D], or a copy of it: the elements of a row next to each other."""
    if x.shape[1] < 2 or x.tensor.layout.strides[1] == 1:
        return x
    return call.own(move.contiguous(x.tensor, threads=call.threads))


def _index_sums(
    call: Call, operands: tuple[CallOperand, ...], spec: Spec, left_out: int, is_onto: bool, is_cleared: bool = False
) -> Prepared:  # fmt: skip
    """What sums rows of x by their indices in a table."""
    x, places, out = [operand.tensor for operand in operands]
    (rows, columns), count, order = x.shape, out.shape[0], ORDERS[spec.order]
    steps = x.layout.strides[0], places.layout.strides[0], out.layout.strides[0]
    described = index_sums.IndexSums(
        x.dtype, places.dtype, out.dtype, is_onto, is_cleared, rows, count, columns, steps, left_out,
        spec.chunk, order.block, order.chains,
    )  # fmt: skip
    return _prepared(described, call.isa, call.threads)


@functools.lru_cache(maxsize=1024)
def _prepared(described: index_sums.IndexSums, isa: Isa, threads: int) -> Prepared:
    return Prepared(index_sums.plan(described, isa, threads))
