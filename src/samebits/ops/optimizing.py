"""What optimisers do to a parameter, for `samebits.torch`: each function one step of numerics.md section 12, in place.

Numbers that change from step to step come as an array, so that calls are remembered whatever they are.
"""

from __future__ import annotations

from typing import Any

from samebits.kernels import gradients
from samebits.kernels.expression import Expression
from samebits.operations.rows import RowWise
from samebits.ops.call import Call
from samebits.ops.elementwise import apply
from samebits.ops.launch import launch
from samebits.ops.memo import remembered
from samebits.ops.recipe import CallOperand

__all__ = ["adam_step", "descent", "momentum", "scaled", "second_moment", "sum_of_squares"]


@remembered
def momentum(b: Any, g: Any, numbers: Any, *, out: Any, threads: int | None = None) -> Any:
    """numbers[0] * b + numbers[1] * g, both products rounded."""
    call = Call("momentum", b, threads)
    operands = [call.operand("b", b), call.operand("g", g)]
    return _stepped(call, gradients.momentum(operands[0].dtype, operands[1].dtype), operands, numbers, 2, out)


@remembered
def second_moment(v: Any, g: Any, numbers: Any, *, out: Any, threads: int | None = None) -> Any:
    """numbers[0] * v + (numbers[1] * g) * g."""
    call = Call("second_moment", v, threads)
    operands = [call.operand("v", v), call.operand("g", g)]
    return _stepped(call, gradients.second_moment(operands[0].dtype, operands[1].dtype), operands, numbers, 2, out)


@remembered
def adam_step(p: Any, m: Any, v: Any, numbers: Any, *, out: Any, threads: int | None = None) -> Any:
    """p * decay - rate * (m / (sqrt(v) / root + eps)); the numbers are decay, rate, root and eps."""
    call = Call("adam_step", p, threads)
    operands = [call.operand("p", p), call.operand("m", m), call.operand("v", v)]
    return _stepped(call, gradients.adam_step(operands[0].dtype), operands, numbers, 4, out)


@remembered
def descent(p: Any, g: Any, numbers: Any, *, out: Any, threads: int | None = None) -> Any:
    """p - numbers[0] * g."""
    call = Call("descent", p, threads)
    operands = [call.operand("p", p), call.operand("g", g)]
    return _stepped(call, gradients.descent(operands[0].dtype, operands[1].dtype), operands, numbers, 1, out)


@remembered
def scaled(x: Any, number: Any, *, out: Any, threads: int | None = None) -> Any:
    """x * number, which is an array of float32 (float64 beside it) without axes."""
    call = Call("scaled", x, threads)
    operands = [call.operand("x", x), call.operand("number", number)]
    return apply(call, gradients.scaled(operands[0].dtype, operands[1].dtype), operands, out)


@remembered
def sum_of_squares(x: Any, *, threads: int | None = None) -> Any:
    """The sum of x's rounded squares over all axes, in float32 (float64)."""
    call = Call("sum_of_squares", x, threads)
    given = call.operand("x", x)
    axes = tuple(range(-len(given.shape), 0))
    made = launch(call, "rows", RowWise(gradients.squares(given.dtype), axes), [given])[0]
    return call.result(made.seen(made.tensor.reshape(())))


def _stepped(
    call: Call, expression: Expression, operands: list[CallOperand], numbers: Any, count: int, out: Any
) -> Any:
    """The expression over operands and the first numbers of an array, which each element meets."""
    given = call.operand("numbers", numbers)
    return apply(call, expression, [*operands, *[given.seen(given.tensor[i]) for i in range(count)]], out)
