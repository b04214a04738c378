"""Operators along axes, such as `softmax` and `layer_norm`, with gradients (numerics.md sections 5, 6 and 8)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from samebits.errors import DTypeError, ShapeError
from samebits.frozen import dataclass
from samebits.ops import rows, training
from samebits.ops.memo import itself
from samebits.torch.element_operators import scaled
from samebits.torch.operator import Form, Gradient, Operator, check_tensor, define, in_front, of_memory, threads
from samebits.torch.product_operators import rows_of, sum_rows, wide

__all__ = [
    "NormGradients", "layer_norm", "layer_norm_of", "layer_norm_shapes", "log_softmax", "mean", "of_layer_norm",
    "of_rms_norm", "rms_norm", "rms_norm_of", "rms_norm_shapes", "softmax", "sum", "weighed",
]  # fmt: skip

_summed, _averaged = of_memory(rows.sum), of_memory(rows.mean)
_normalised, _scaled_by_root = itself(rows.layer_norm), itself(rows.rms_norm)
_normalised_all = of_memory(training.layer_norm_gradients)


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
    return _norm_shapes("layer_norm", x, weight=weight, bias=bias)


def rms_norm_shapes(x: Tensor, weight: Tensor | None, eps: float, chunk: int, segments: int, order: str) -> Tensor:
    """The result without its values; refuses what does not fit."""
    check_tensor("rms_norm", "input", x)
    return _norm_shapes("rms_norm", x, weight=weight)


def _norm_shapes(call: str, x: Tensor, **scales: Tensor | None) -> Tensor:
    """What has x's shape; refuses scales that have not one number of its dtype for each place of a row."""
    for name, operand in scales.items():
        if operand is not None:
            check_tensor(call, name, operand)
            if operand.dtype != x.dtype:
                actual, expected = (str(dtype).removeprefix("torch.") for dtype in (operand.dtype, x.dtype))
                raise DTypeError(call, name, "dtype", actual, f"input's {expected}", "convert it first")
            if operand.shape != x.shape[-1:]:
                expected = f"input's last extent {tuple(x.shape[-1:])}"
                raise ShapeError(call, name, "shape", tuple(operand.shape), expected, "pass one for each column")
    return x.new_empty(x.shape)


@of_memory
def layer_norm_of(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float, chunk: int, segments: int, order: str,
    threads: int,
) -> Any:  # fmt: skip
    """The layer norm of tensors on the host."""
    check_tensor("layer_norm", "input", x)
    return _normalised(x, weight, bias, eps=eps, threads=threads)


@of_memory
def rms_norm_of(
    x: Tensor, weight: Tensor | None, eps: float, chunk: int, segments: int, order: str, threads: int
) -> Any:  # fmt: skip
    """The RMS norm of tensors on the host."""
    check_tensor("rms_norm", "input", x)
    return _scaled_by_root(x, weight, eps=eps, threads=threads)


def _layer_norm_backward(
    inputs: tuple[Any, ...], kept: tuple[Tensor, ...], needs: tuple[bool, ...], dy: Tensor
) -> tuple[Tensor | None, ...]:
    weight, bias, eps, *sums = inputs[1:]
    return (*_norm_backward(of_layer_norm, kept, (weight, bias), needs, dy, eps, *sums), None, None, None, None)


def _rms_norm_backward(
    inputs: tuple[Any, ...], kept: tuple[Tensor, ...], needs: tuple[bool, ...], dy: Tensor
) -> tuple[Tensor | None, ...]:
    weight, eps, *sums = inputs[1:]
    dx, dw, _ = _norm_backward(of_rms_norm, kept, (weight, None), (*needs[:2], False), dy, eps, *sums)
    return dx, dw, None, None, None, None


@dataclass(frozen=True, slots=True)
class NormGradients:
    """The operators of a norm's gradients: by the operand; what that by the weight sums over rows; all at once."""

    input: Any
    weight: Any
    all: Any


def _norm_gradients(name: str, centred: bool) -> NormGradients:
    """Those of `layer_norm`, or of a norm that subtracts no mean."""
    by_input, by_weight = itself(training.layer_norm_gradient), itself(training.layer_norm_weight_gradient)

    @of_memory
    def input_of_host(x: Tensor, dy: Tensor, weight: Tensor | None, eps: float, threads: int) -> Any:
        return by_input(x, dy, weight, eps, centred, threads=threads)

    @of_memory
    def weight_of_host(x: Tensor, dy: Tensor, eps: float, threads: int) -> Any:
        return by_weight(x, dy, eps, centred, threads=threads)

    def all_of_host(
        x: Tensor, dy: Tensor, weight: Tensor, eps: float, chunk: int, biased: bool, threads: int
    ) -> tuple[Any, ...]:  # fmt: skip
        dw, db = torch.empty_like(weight), torch.empty_like(weight) if biased else x.new_empty(0)
        dx = _normalised_all(
            rows_of(x), rows_of(dy), weight, dw, db if biased else None, eps, chunk, centred, threads=threads
        )  # fmt: skip
        return dx if x.ndim == 2 else dx.reshape(x.shape), dw, db

    return NormGradients(
        define(Operator(
            f"{name}_input_backward(Tensor input, Tensor dy, Tensor? weight, float eps) -> Tensor",
            input_of_host, lambda x, dy, weight, eps: x.new_empty(x.shape), in_front(2),
        )),
        define(Operator(
            f"{name}_weight_backward(Tensor input, Tensor dy, float eps) -> Tensor", weight_of_host, _wide, in_front(2)
        )),
        define(Operator(
            f"{name}_backward(Tensor input, Tensor dy, Tensor weight, float eps, int chunk, bool biased) -> "
            "(Tensor, Tensor, Tensor)",
            all_of_host, _all_shapes, _all_batch,
        )),
    )  # fmt: skip


def _norm_backward(
    of: NormGradients, kept: tuple[Tensor, ...], scales: tuple[Any, Any], needs: tuple[bool, ...], dy: Tensor,
    eps: float, chunk: int, segments: int, order: str,
) -> tuple[Tensor | None, ...]:  # fmt: skip
    """The gradients by the operand, by the weight and by the bias, those that are needed."""
    x, weight = kept
    if needs[0] and needs[1] and order == "sb1" and segments == 1 and x.numel() and _are_many(x, chunk):
        dx, *sums = of.all(x, dy, weight, eps, chunk, needs[2])
        return dx, sums[0], sums[1] if needs[2] else None
    dx = of.input(x, dy, weight, eps) if needs[0] else None
    dw = db = None
    if needs[1]:
        dw = sum_rows(rows_of(of.weight(x, dy, eps)), 1.0, scales[0].dtype, chunk, segments, order)
    if needs[2]:
        db = sum_rows(rows_of(dy), 1.0, scales[1].dtype, chunk, segments, order)
    return dx, dw, db


def _are_many(x: Tensor, chunk: int) -> bool:
    """Whether each thread has a chunk of rows of its own: else they share rows, in a step for each gradient."""
    return x.numel() // x.shape[-1] > chunk * (threads() - 1)


def _all_shapes(
    x: Tensor, dy: Tensor, weight: Tensor, eps: float, chunk: int, biased: bool
) -> tuple[Tensor, ...]:  # fmt: skip
    return x.new_empty(x.shape), x.new_empty(weight.shape), x.new_empty(weight.shape if biased else 0)


def _all_batch(call: Any, size: int, axes: tuple[Any, ...], arguments: tuple[Any, ...]) -> tuple[Any, Any]:
    """The gradients of each call of a batch, by itself: parameters have one for each."""
    parts = []
    for i in range(size):
        parts.append(call(*[x if a is None else x.select(a, i) for x, a in zip(arguments, axes, strict=True)]))
    return tuple([torch.stack(part) for part in zip(*parts, strict=True)]), (0, 0, 0)


def _wide(x: Tensor, *rest: Any) -> Tensor:
    return x.new_empty(x.shape, dtype=wide(x.dtype))


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
log_softmax = _exponential("log_softmax", rows.log_softmax)
of_layer_norm, of_rms_norm = _norm_gradients("layer_norm", True), _norm_gradients("rms_norm", False)
layer_norm = define(Operator(
    "layer_norm(Tensor input, Tensor? weight, Tensor? bias, float eps, int chunk, int segments, str order) -> Tensor",
    layer_norm_of, layer_norm_shapes, in_front(1), Gradient(weighed, _layer_norm_backward, formed=(1, 2)),
))  # fmt: skip
rms_norm = define(Operator(
    "rms_norm(Tensor input, Tensor? weight, float eps, int chunk, int segments, str order) -> Tensor",
    rms_norm_of, rms_norm_shapes, in_front(1), Gradient(weighed, _rms_norm_backward, formed=(1,)),
))  # fmt: skip
sum = define(Operator(
    "sum(Tensor input, int[] dim, bool keepdim) -> Tensor",
    _sum, _sum_shapes, in_front(1), Gradient(_nothing, _sum_backward, formed=(0,)),
))  # fmt: skip
mean = define(Operator(
    "mean(Tensor input, int[] dim, bool keepdim) -> Tensor",
    _mean, _mean_shapes, in_front(1), Gradient(_nothing, _mean_backward, formed=(0,)),
))  # fmt: skip
