"""The operators behind products: `linear`, `matmul`, `sum_rows`, with gradients (numerics.md sections 2, 5).

Gradients are calls of these operators, so they have gradients and batches too.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from samebits.errors import DTypeError, ShapeError
from samebits.kernels.gemm.contraction import Spec
from samebits.ops import matmul as products
from samebits.ops.memo import itself
from samebits.ops.recording import is_stand_in
from samebits.torch.element_operators import converted, scaled
from samebits.torch.operator import (
    FLOATS,
    Form,
    Gradient,
    Operator,
    by_loop,
    check_tensor,
    define,
    front,
    in_front,
    of_memory,
)
from samebits.torch.spec import DEFAULT

__all__ = [
    "factor_gradients",
    "factors",
    "linear",
    "linear_of",
    "linear_shapes",
    "matmul",
    "rows_of",
    "spec_options",
    "sum_rows",
    "wide",
    "wide_product",
]


def _word(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


_linear, _multiplied, _summed = itself(products.linear), itself(products.matmul), of_memory(products.matmul)
# Making the name of a torch.dtype takes longer than finding it.
_WORDS = {dtype: _word(dtype) for dtype in FLOATS}


def spec_options(chunk: int, segments: int, order: str) -> dict[str, Any]:
    """Nothing where calls take it anyway: what is not passed is not looked at."""
    return {} if (chunk, segments, order) == DEFAULT else {"spec": Spec(chunk, segments, order)}


def _check_same(call: str, name: str, right: Tensor, left: Tensor) -> None:
    """Raise unless two operands are floats of one dtype: our own products take more."""
    if is_stand_in(left):
        return
    if left.dtype not in FLOATS:
        check_tensor(call, "input" if call == "linear" else "a", left)
    if right.dtype != left.dtype:
        expected = f"{_word(left.dtype)}, as the left operand's"
        raise DTypeError(call, name, "dtype", _word(right.dtype), expected, "convert one of them")


# linear


@of_memory
def linear_of(
    x: Tensor, weight: Tensor, bias: Tensor | None, chunk: int, segments: int, order: str, threads: int
) -> Any:  # fmt: skip
    """x @ weight^T + bias of tensors on the host."""
    _check_same("linear", "weight", weight, x)
    return _linear(x, weight, bias, spec=Spec(chunk, segments, order), threads=threads)


def linear_shapes(x: Tensor, weight: Tensor, bias: Tensor | None, chunk: int, segments: int, order: str) -> Tensor:
    """The result without its values; refuses what does not fit."""
    for name, operand in (("input", x), ("weight", weight), ("bias", bias)):
        if operand is not None:
            check_tensor("linear", name, operand)
    _check_same("linear", "weight", weight, x)
    if weight.ndim != 2:
        raise ShapeError("linear", "weight", "rank", weight.ndim, 2, "reshape it to [N, K]")
    if x.ndim < 1:
        raise ShapeError("linear", "input", "rank", 0, "at least 1", "reshape it to [1, K]")
    if x.shape[-1] != weight.shape[1]:
        expected = f"{weight.shape[1]}, weight's column count"
        raise ShapeError("linear", "input", "column count", x.shape[-1], expected, "pass [..., K] and a weight [N, K]")
    shape = (*x.shape[:-1], weight.shape[0])
    if bias is not None:
        _check_addend("linear", "bias", bias, shape, x)
    return x.new_empty(shape)


def _linear_backward(
    inputs: tuple[Any, ...], kept: tuple[Tensor, ...], needs: tuple[bool, ...], dy: Tensor
) -> tuple[Tensor | None, ...]:
    (x, weight), (bias, chunk, segments, order) = kept, inputs[2:]
    dx = linear(dy, weight.mT, None, chunk, segments, order) if needs[0] else None
    dw = db = None
    rows = rows_of(dy)
    if needs[1]:
        dw = matmul(rows.mT, rows_of(x), None, 1.0, 1.0, chunk, segments, order)
    if needs[2]:
        db = _added(rows, bias, 1.0, chunk, segments, order)
    return dx, dw, db, None, None, None


def rows_of(x: Tensor) -> Tensor:
    """x as a matrix of rows, leading axes in row-major order."""
    return x if x.ndim == 2 else x.unsqueeze(0) if x.ndim == 1 else x.flatten(0, -2)


def _linear_batch(call: Any, size: int, axes: tuple[Any, ...], arguments: tuple[Any, ...]) -> tuple[Any, Any]:
    x, weight, bias, chunk, segments, order = arguments
    x = x if axes[0] is None else x.movedim(axes[0], 0)
    if axes[1] is None and axes[2] is None:
        return linear(x, weight, bias, chunk, segments, order), 0
    is_vector = x.ndim - (axes[0] is not None) == 1
    x = x.unsqueeze(-2) if is_vector else x
    weight = weight if axes[1] is None else weight.movedim(axes[1], 0)
    places = (*[None if axis is None else 0 for axis in axes[:2]], axes[2])
    y, _ = _matmul_batch(matmul, size, places, (x, weight.mT, bias, 1.0, 1.0, chunk, segments, order))
    return y.squeeze(-2) if is_vector else y, 0


# matmul


@of_memory
def _matmul(
    a: Tensor, b: Tensor, c: Tensor | None, alpha: float, beta: float, chunk: int, segments: int, order: str,
    threads: int,
) -> Any:  # fmt: skip
    _check_same("matmul", "b", b, a)
    beta = 1.0 if c is None else beta
    return _multiplied(a, b, c=c, alpha=alpha, beta=beta, spec=Spec(chunk, segments, order), threads=threads)


def _matmul_shapes(
    a: Tensor, b: Tensor, c: Tensor | None, alpha: float, beta: float, chunk: int, segments: int, order: str
) -> Tensor:
    for name, operand in (("a", a), ("b", b), ("c", c)):
        if operand is not None:
            check_tensor("matmul", name, operand)
    _check_same("matmul", "b", b, a)
    for name, operand in (("a", a), ("b", b)):
        if operand.ndim < 2:
            raise ShapeError("matmul", name, "rank", operand.ndim, "at least 2", "reshape a vector to a matrix")
    if a.shape[-1] != b.shape[-2]:
        expected = f"{a.shape[-1]}, the left operand's column count"
        raise ShapeError("matmul", "b", "row count", b.shape[-2], expected, "transpose one of them")
    try:
        batch = torch.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    except RuntimeError:
        expected = f"one that broadcasts with {tuple(a.shape[:-2])}"
        raise ShapeError("matmul", "b", "batch shape", tuple(b.shape[:-2]), expected, "reshape it") from None
    shape = (*batch, a.shape[-2], b.shape[-1])
    if c is not None:
        _check_addend("matmul", "c", c, shape, a)
    return a.new_empty(shape)


def _check_addend(call: str, name: str, c: Tensor, shape: tuple[Any, ...], x: Tensor) -> None:
    """Raise unless c broadcasts to the result, and is as wide as what the result is summed in."""
    try:
        fits = torch.broadcast_shapes(c.shape, shape) == torch.Size(shape)
    except RuntimeError:
        fits = False
    if not fits:
        raise ShapeError(call, name, "shape", tuple(c.shape), f"one that broadcasts to {tuple(shape)}", "reshape it")
    if (c.dtype is torch.float64) != (x.dtype is torch.float64):
        expected = "float64" if x.dtype is torch.float64 else "float32 or bfloat16 or float16"
        raise DTypeError(call, name, "dtype", _word(c.dtype), expected, "convert it first")


def _matmul_backward(
    inputs: tuple[Any, ...], kept: tuple[Tensor, ...], needs: tuple[bool, ...], dy: Tensor
) -> tuple[Tensor | None, ...]:
    c, beta, *sums = inputs[2], *inputs[4:]
    dc = _added(dy, c, beta, *sums) if needs[2] else None
    return (*factor_gradients(inputs, kept, needs, dy), dc, None, None, None, None, None)


def factor_gradients(
    inputs: tuple[Any, ...], kept: tuple[Tensor, ...], needs: tuple[bool, ...], dy: Tensor
) -> tuple[Tensor | None, Tensor | None]:
    """The gradients of a product by both factors, of the inputs of `matmul`."""
    (a, b), (left, right, _, alpha, _, chunk, segments, order) = kept, inputs
    if left.shape[:-2] != right.shape[:-2]:
        return _of_batches(inputs, kept, needs, dy)
    da = matmul(dy, b.mT, None, alpha, 1.0, chunk, segments, order) if needs[0] else None
    db = matmul(a.mT, dy, None, alpha, 1.0, chunk, segments, order) if needs[1] else None
    return da, db


def _of_batches(
    inputs: tuple[Any, ...], kept: tuple[Tensor, ...], needs: tuple[bool, ...], dy: Tensor
) -> tuple[Tensor | None, Tensor | None]:
    """The gradients of both factors where batches broadcast: a factor is summed along the axes where it is the same."""
    (a, b), (left, right, _, alpha, _, chunk, segments, order) = kept, inputs
    da = db = None
    if needs[0]:
        repeated = _repeated(left.shape, dy)
        factor = _beside(_whole(b, dy, repeated).mT, repeated, -2)
        da = matmul(_beside(dy, repeated, -1), factor, None, alpha, 1.0, chunk, segments, order).reshape(left.shape)
    if needs[1]:
        repeated = _repeated(right.shape, dy)
        factor = _beside(_whole(a, dy, repeated).mT, repeated, -1)
        db = matmul(factor, _beside(dy, repeated, -2), None, alpha, 1.0, chunk, segments, order).reshape(right.shape)
    return da, db


def _repeated(shape: torch.Size, dy: Tensor) -> list[int]:
    """The batch axes of the result along which an operand of that shape is the same."""
    missing = dy.ndim - len(shape)
    return [i for i in range(dy.ndim - 2) if dy.shape[i] != 1 and (i < missing or shape[i - missing] == 1)]


def _whole(x: Tensor, dy: Tensor, repeated: list[int]) -> Tensor:
    """x with all batch axes of the result, written out along those that are summed."""
    x = x.reshape((1,) * (dy.ndim - x.ndim) + tuple(x.shape))
    return x.expand([dy.shape[i] if i in repeated else size for i, size in enumerate(x.shape)]) if repeated else x


def _beside(x: Tensor, axes: list[int], place: int) -> Tensor:
    """x with these batch axes moved before the axis that is summed, as one with it in row-major order."""
    if not axes:
        return x
    kept = [i for i in range(x.ndim - 2) if i not in axes]
    rows, columns = x.ndim - 2, x.ndim - 1
    if place == -1:
        return x.permute(*kept, rows, *axes, columns).flatten(-1 - len(axes))
    return x.permute(*kept, *axes, rows, columns).flatten(-2 - len(axes), -2)


def _added(dy: Tensor, c: Form, beta: float, chunk: int, segments: int, order: str) -> Tensor:
    """The gradient of what was multiplied by beta and added: a sum over the axes along which it was repeated."""
    if len(c.shape) == 1 and c.shape[0] == dy.shape[-1]:
        return sum_rows(rows_of(dy), beta, c.dtype, chunk, segments, order)  # type: ignore[no-any-return]
    missing = dy.ndim - len(c.shape)
    repeated = [i for i in range(dy.ndim) if i < missing or (c.shape[i - missing] == 1 and dy.shape[i] != 1)]
    if not repeated:
        made = dy if beta == 1.0 else scaled(dy, "mul", beta)
        return converted(made, c.dtype)
    kept = [i for i in range(dy.ndim) if i not in repeated]
    rows = dy.permute(*repeated, *kept).flatten(0, len(repeated) - 1)
    rows = rows.flatten(1) if len(kept) > 1 else rows.unsqueeze(1) if not kept else rows
    added: Tensor = sum_rows(rows, beta, c.dtype, chunk, segments, order)
    return added.reshape(c.shape)


def _matmul_batch(call: Any, size: int, axes: tuple[Any, ...], arguments: tuple[Any, ...]) -> tuple[Any, Any]:
    a, b, c, *rest = arguments
    ranks = [0 if x is None else x.ndim - (axis is not None) for x, axis in zip((a, b, c), axes, strict=False)]
    rank = max(ranks)
    if axes[0] is None and axes[1] is None:
        a, axes = a.unsqueeze(0).expand(size, *a.shape), (0, *axes[1:])
    return matmul(front(a, axes[0], rank), front(b, axes[1], rank), front(c, axes[2], rank), *rest), 0


# sum_rows: a contraction with ones


def _sum_rows(
    x: Tensor, scale: float, dtype: torch.dtype, chunk: int, segments: int, order: str, threads: int
) -> Any:  # fmt: skip
    ones = _ONES[x.dtype is torch.float64].expand(x.shape[-2])
    options = spec_options(chunk, segments, order)
    return _summed(ones, x, alpha=scale, out_dtype=_WORDS[dtype], threads=threads, **options)


def _sum_rows_shapes(x: Tensor, scale: float, dtype: torch.dtype, chunk: int, segments: int, order: str) -> Tensor:
    check_tensor("sum_rows", "x", x)
    return x.new_empty((*x.shape[:-2], x.shape[-1]), dtype=dtype)


def _sum_rows_backward(
    inputs: tuple[Any, ...], kept: tuple[Tensor, ...], needs: tuple[bool, ...], dy: Tensor
) -> tuple[Tensor | None, ...]:
    x, scale, *_ = inputs
    dx = dy if scale == 1.0 else scaled(dy, "mul", scale)
    return converted(dx, x.dtype).unsqueeze(-2).expand(x.shape), None, None, None, None, None


_ONES = (torch.ones((), dtype=torch.float32), torch.ones((), dtype=torch.float64))


@of_memory
def _wide_product(
    a: Tensor, b: Tensor, c: Tensor | None, alpha: float, chunk: int, order: str, threads: int
) -> Any:  # fmt: skip
    kind = _WORDS[wide(a.dtype)]
    return _multiplied(a, b, c=c, alpha=alpha, out_dtype=kind, spec=Spec(chunk, 1, order), threads=threads)


def _wide_product_shapes(a: Tensor, b: Tensor, c: Tensor | None, alpha: float, chunk: int, order: str) -> Tensor:
    shape = (*torch.broadcast_shapes(a.shape[:-2], b.shape[:-2]), a.shape[-2], b.shape[-1])
    return a.new_empty(shape, dtype=wide(a.dtype))


def wide(dtype: torch.dtype) -> torch.dtype:
    """What elements of a dtype are summed in."""
    return torch.float64 if dtype is torch.float64 else torch.float32


def factors(inputs: tuple[Any, ...], result: Any, needs: tuple[bool, ...]) -> tuple[Tensor | None, ...]:
    """Each of the first two operands is read for the gradient of the other."""
    return inputs[0] if needs[1] else None, inputs[1] if needs[0] else None


_ORDER = "int chunk, int segments, str order) -> Tensor"
linear = define(Operator(
    f"linear(Tensor input, Tensor weight, Tensor? bias, {_ORDER}",
    linear_of, linear_shapes, _linear_batch, Gradient(factors, _linear_backward, formed=(2,)), casts=3,
))  # fmt: skip
matmul = define(Operator(
    f"matmul(Tensor a, Tensor b, Tensor? c, float alpha, float beta, {_ORDER}",
    _matmul, _matmul_shapes, _matmul_batch, Gradient(factors, _matmul_backward, formed=(0, 1, 2)), casts=3,
))  # fmt: skip
# Of floats of two dtypes, whose result is not rounded to either; it has no gradient.
wide_product = define(Operator(
    "wide_product(Tensor a, Tensor b, Tensor? c, float alpha, int chunk, str order) -> Tensor",
    _wide_product, _wide_product_shapes, by_loop,
))  # fmt: skip
sum_rows = define(Operator(
    f"sum_rows(Tensor input, float scale, ScalarType dtype, {_ORDER}",
    _sum_rows, _sum_rows_shapes, in_front(1),
    Gradient(lambda inputs, result, needs: (), _sum_rows_backward, formed=(0,)),
))  # fmt: skip
