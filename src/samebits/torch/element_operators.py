"""Operators of one element, `scaled` among them, with gradients (numerics.md sections 5 and 7)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from samebits.ops import casts, elementwise, training
from samebits.ops.memo import itself
from samebits.torch.operator import Form, Gradient, Operator, check_tensor, define, in_front, of_memory

__all__ = ["converted", "erf", "exp", "gelu", "gelu_tanh", "log", "relu", "scaled", "sigmoid", "silu", "tanh"]


def _function(name: str, keeps_result: bool, call: str = "", **options: Any) -> Any:
    """An operator of one operand; its gradient follows from the operand, or from the result, and `dy`.

    Args:    call: the eager function, if it is not called alike, and its options.
    """
    compute, gradient = itself(getattr(elementwise, call or name)), itself(training.element_gradient)
    call = call or name

    @of_memory
    def of_host(x: Tensor, threads: int) -> Any:
        check_tensor(call, "input", x)
        return compute(x, threads=threads, **options)

    @of_memory
    def slope_of_host(kept: Tensor, dy: Tensor, threads: int) -> Any:
        return gradient(name, kept, dy, threads=threads)

    def shapes(x: Tensor) -> Tensor:
        check_tensor(call, "input", x)
        return x.new_empty(x.shape)

    def keeps(inputs: tuple[Any, ...], result: Any, needs: Any) -> tuple[Tensor, ...]:
        return (result,) if keeps_result else inputs

    def backward(inputs: Any, kept: tuple[Tensor, ...], needs: Any, dy: Tensor) -> tuple[Tensor]:
        return (slope(*kept, dy),)

    slope = define(Operator(
        f"{name}_backward(Tensor kept, Tensor dy) -> Tensor",
        slope_of_host, lambda kept, dy: kept.new_empty(kept.shape), in_front(2),
    ))  # fmt: skip
    return define(Operator(
        f"{name}(Tensor input) -> Tensor", of_host, shapes, in_front(1), Gradient(keeps, backward)
    ))  # fmt: skip


def _scaled_shapes(x: Tensor, op: str, number: float) -> Tensor:
    check_tensor("scaled", "input", x)
    return x.new_empty(x.shape)


def _scaled_backward(inputs: tuple[Any, ...], kept: Any, needs: Any, dy: Tensor) -> tuple[Any, ...]:
    return scaled(dy, *inputs[1:]), None, None


_cast = of_memory(casts.cast)


def converted(x: Tensor, dtype: torch.dtype) -> Tensor:
    """x in another float format, rounded once, NaN canonical: torch's own conversion gives it other codes."""
    return x if x.dtype is dtype else _converted(x, dtype)


def _converted_of(x: Tensor, dtype: torch.dtype, threads: int) -> Any:
    return _cast(x, str(dtype).removeprefix("torch."), threads=threads)


def _converted_shapes(x: Tensor, dtype: torch.dtype) -> Tensor:
    return x.new_empty(x.shape, dtype=dtype)


def _converted_backward(inputs: tuple[Form, Any], kept: Any, needs: Any, dy: Tensor) -> tuple[Any, ...]:
    return converted(dy, inputs[0].dtype), None


_converted = define(Operator(
    "converted(Tensor input, ScalarType dtype) -> Tensor", _converted_of, _converted_shapes, in_front(1),
    Gradient(lambda inputs, result, needs: (), _converted_backward, formed=(0,)),
))  # fmt: skip
exp = _function("exp", True)
log = _function("log", False)
erf = _function("erf", False)
gelu = _function("gelu", False)
gelu_tanh = _function("gelu_tanh", False, "gelu", approximate="tanh")
relu = _function("relu", True)
sigmoid = _function("sigmoid", True)
silu = _function("silu", False)
tanh = _function("tanh", True)
# `op` is mul or div.
scaled = define(Operator(
    "scaled(Tensor input, str op, float number) -> Tensor", of_memory(training.scaled), _scaled_shapes, in_front(1),
    Gradient(lambda inputs, result, needs: (), _scaled_backward),
))  # fmt: skip
