"""Operators along axes: `softmax log_softmax layer_norm sum mean`, with gradients (numerics.md sections 5, 6 and 8)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from samebits.errors import DTypeError, ShapeError
from samebits.ops import rows, training
from samebits.ops.memo import itself
from samebits.torch.element_operators import scaled
from samebits.torch.operator import Form, Gradient, Operator, check_tensor, define, in_front, of_memory, threads
from samebits.torch.product_operators import rows_of, sum_rows

__all__ = [
    "layer_norm", "layer_norm_input", "layer_norm_of", "layer_norm_shapes", "layer_norm_weight", "log_softmax", "mean",
    "softmax", "sum", "weighed",
]  # fmt: skip

_summed, _averaged = of_memory(rows.sum), of_memory(rows.mean)
_normalised, _normalised_all = itself(rows.layer_norm), of_memory(training.layer_norm_gradients)


def _exponential(name: str, compute: Callable[..., Any]) -> Any:
    """softmax or log_softmax; an axis counts from the end, so that there may be any number in front."""
    gradient, compute = itself(training.row_gradient), itself(compute)

    @of_memory
    def of_host(x: Tensor, dim: int, threads: int) -> Any:
        check_tensor(name, "input", x)
        return compute(x, dim, threads=threads) if x.ndim else compute(x.unsqueeze(0), dim).reshape(())

    @of_memory
    def slope_of_host(y: Tensor, dy: Tensor, dim: int, threads: int) -> Any:
        return gradient(name, y, dy, dim, threads=threads)

    def shapes(x: Tensor, dim: int) -> Tensor:
        check_tensor(name, "input", x)
        return x.new_empty(x.shape)

    def backward(inputs: Any, kept: tuple[Tensor, ...], needs: Any, dy: Tensor) -> tuple[Any, ...]:
        return slope(*kept, dy, inputs[1]), None

    slope = define(Operator(
        f"{name}_backward(Tensor y, Tensor dy, int dim) -> Tensor",
        slope_of_host, lambda y, dy, dim: y.new_empty(y.shape), in_front(2),
    ))  # fmt: skip
    return define(Operator(
        f"{name}(Tensor input, int dim) -> Tensor", of_host, shapes, in_front(1),
        Gradient(lambda inputs, result, needs: (result,), backward),
    ))  # fmt: skip


def layer_norm_shapes(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float, chunk: int, segments: int, order: str
) -> Tensor:
    """The result without its values; refuses what does not fit."""
    check_tensor("layer_norm", "input", x)
    if weight is None and bias is not None:
        raise ShapeError("layer_norm", "bias", "", "given", "given together with weight", "pass weight too")
    for name, operand in (("weight", weight), ("bias", bias)):
        if operand is not None:
            check_tensor("layer_norm", name, operand)
            if operand.dtype != x.dtype:
                actual, expected = (str(dtype).removeprefix("torch.") for dtype in (operand.dtype, x.dtype))
                raise DTypeError("layer_norm", name, "dtype", actual, f"input's {expected}", "convert it first")
            if operand.shape != x.shape[-1:]:
                expected = f"input's last extent {tuple(x.shape[-1:])}"
                raise ShapeError(
                    "layer_norm", name, "shape", tuple(operand.shape), expected, "pass one for each column"
                )
    return x.new_empty(x.shape)


@of_memory
def layer_norm_of(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float, chunk: int, segments: int, order: str,
    threads: int,
) -> Any:  # fmt: skip
    """The layer norm of tensors on the host."""
    check_tensor("layer_norm", "input", x)
    return _normalised(x, weight, bias, eps=eps, threads=threads)


def _layer_norm_backward(
    inputs: tuple[Any, ...], kept: tuple[Tensor, ...], needs: tuple[bool, ...], dy: Tensor
) -> tuple[Tensor | None, ...]:
    (x, weight), (bias, eps, chunk, segments, order) = kept, inputs[2:]
    if needs[0] and needs[1] and order == "sb1" and segments == 1 and x.numel() and _are_many(x, chunk):
        dx, *sums = layer_norm_all(x, dy, weight, eps, chunk, needs[2])
        return dx, sums[0], sums[1] if needs[2] else None, None, None, None, None
    dx = layer_norm_input(x, dy, weight, eps) if needs[0] else None
    dw = db = None
    if needs[1]:
        summed = layer_norm_weight(x, dy, eps)
        dw = sum_rows(rows_of(summed), 1.0, inputs[1].dtype, chunk, segments, order)
    if needs[2]:
        db = sum_rows(rows_of(dy), 1.0, bias.dtype, chunk, segments, order)
    return dx, dw, db, None, None, None, None


def _are_many(x: Tensor, chunk: int) -> bool:
    """Whether each thread has a chunk of rows of its own: else they share rows, in a step for each gradient."""
    return x.numel() // x.shape[-1] > chunk * (threads() - 1)


def _layer_norm_all(
    x: Tensor, dy: Tensor, weight: Tensor, eps: float, chunk: int, biased: bool, threads: int
) -> tuple[Any, ...]:
    dw, db = torch.empty_like(weight), torch.empty_like(weight) if biased else x.new_empty(0)
    dx = _normalised_all(
        rows_of(x), rows_of(dy), weight, dw, db if biased else None, eps, chunk, threads=threads
    )  # fmt: skip
    return dx if x.ndim == 2 else dx.reshape(x.shape), dw, db


def _layer_norm_all_shapes(
    x: Tensor, dy: Tensor, weight: Tensor, eps: float, chunk: int, biased: bool
) -> tuple[Tensor, ...]:  # fmt: skip
    return x.new_empty(x.shape), x.new_empty(weight.shape), x.new_empty(weight.shape if biased else 0)


def _layer_norm_all_batch(call: Any, size: int, axes: tuple[Any, ...], arguments: tuple[Any, ...]) -> tuple[Any, Any]:
    """The gradients of each call of a batch, by itself: parameters have one for each."""
    parts = []
    for i in range(size):
        parts.append(call(*[x if a is None else x.select(a, i) for x, a in zip(arguments, axes, strict=True)]))
    return tuple([torch.stack(part) for part in zip(*parts, strict=True)]), (0, 0, 0)


def _wide(x: Tensor, *rest: Any) -> Tensor:
    return x.new_empty(x.shape, dtype=torch.float64 if x.dtype is torch.float64 else torch.float32)


def _sum(x: Tensor, dim: list[int], keepdim: bool, threads: int) -> Any:
    check_tensor("sum", "input", x)
    return _summed(x, _axis(x, dim), keepdims=keepdim, threads=threads)


def _mean(x: Tensor, dim: list[int], keepdim: bool, threads: int) -> Any:
    check_tensor("mean", "input", x)
    return _averaged(x, _axis(x, dim), keepdims=keepdim, threads=threads)


def _axis(x: Tensor, dim: list[int]) -> Any:
    """The axes in a form that calls are remembered by, where there is one."""
    return dim[0] if len(dim) == 1 else None if len(dim) == x.ndim else dim


def _sum_shapes(x: Tensor, dim: list[int], keepdim: bool) -> Tensor:
    check_tensor("sum", "input", x)
    return _reduced(x, dim, keepdim)


def _mean_shapes(x: Tensor, dim: list[int], keepdim: bool) -> Tensor:
    check_tensor("mean", "input", x)
    return _reduced(x, dim, keepdim)


def _reduced(x: Tensor, dim: list[int], keepdim: bool) -> Tensor:
    kept = [
        1 if axis - x.ndim in dim else size for axis, size in enumerate(x.shape) if keepdim or axis - x.ndim not in dim
    ]
    return x.new_empty(kept)


def _spread(x: Form, dy: Tensor, dim: list[int], keepdim: bool) -> Tensor:
    """dy for each element of x."""
    if not keepdim:
        for axis in sorted(axis + len(x.shape) for axis in dim):
            dy = dy.unsqueeze(axis)
    return dy.expand(x.shape)


def _sum_backward(inputs: tuple[Any, ...], kept: Any, needs: Any, dy: Tensor) -> tuple[Any, ...]:
    return _spread(inputs[0], dy, *inputs[1:]), None, None


def _mean_backward(inputs: tuple[Any, ...], kept: Any, needs: Any, dy: Tensor) -> tuple[Any, ...]:
    x, dim, keepdim = inputs
    count = math.prod([x.shape[axis] for axis in dim])
    return _spread(x, scaled(dy, "div", float(count)), dim, keepdim), None, None


def _nothing(inputs: tuple[Any, ...], result: Any, needs: Any) -> tuple[Any, ...]:
    return ()


def weighed(inputs: tuple[Any, ...], result: Any, needs: tuple[bool, ...]) -> tuple[Any, ...]:
    """What the gradient of a layer norm reads: the operand, and the weight where it is for the operand."""
    return inputs[0] if needs[0] or needs[1] else None, inputs[1] if needs[0] else None


softmax = _exponential("softmax", rows.softmax)
log_softmax = _exponential("log_softmax", training.log_softmax)
layer_norm_input = define(Operator(
    "layer_norm_input_backward(Tensor input, Tensor dy, Tensor? weight, float eps) -> Tensor",
    of_memory(training.layer_norm_gradient), lambda x, dy, weight, eps: x.new_empty(x.shape), in_front(2),
))  # fmt: skip
layer_norm_weight = define(Operator(
    "layer_norm_weight_backward(Tensor input, Tensor dy, float eps) -> Tensor",
    of_memory(training.layer_norm_weight_gradient), _wide, in_front(2),
))  # fmt: skip
layer_norm_all = define(Operator(
    "layer_norm_backward(Tensor input, Tensor dy, Tensor weight, float eps, int chunk, bool biased) -> "
    "(Tensor, Tensor, Tensor)",
    _layer_norm_all, _layer_norm_all_shapes, _layer_norm_all_batch,
))  # fmt: skip
layer_norm = define(Operator(
    "layer_norm(Tensor input, Tensor? weight, Tensor? bias, float eps, int chunk, int segments, str order) -> Tensor",
    layer_norm_of, layer_norm_shapes, in_front(1), Gradient(weighed, _layer_norm_backward, formed=(1, 2)),
))  # fmt: skip
sum = define(Operator(
    "sum(Tensor input, int[] dim, bool keepdim) -> Tensor",
    _sum, _sum_shapes, in_front(1), Gradient(_nothing, _sum_backward, formed=(0,)),
))  # fmt: skip
mean = define(Operator(
    "mean(Tensor input, int[] dim, bool keepdim) -> Tensor",
    _mean, _mean_shapes, in_front(1), Gradient(_nothing, _mean_backward, formed=(0,)),
))  # fmt: skip
