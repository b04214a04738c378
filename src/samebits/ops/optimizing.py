"""What optimisers do to a parameter, for `samebits.torch`: each function one step of numerics.md section 12, in place.

Numbers that change from step to step come as an array, so that calls are remembered whatever they are.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from samebits import dtypes
from samebits.codegen.isa import Isa
from samebits.kernels import elementwise, gradients
from samebits.kernels.expression import Expression
from samebits.kernels.plan import Plan, sized
from samebits.kernels.walk import AxisSteps
from samebits.native.table import Table
from samebits.operations.elementwise import Map
from samebits.operations.rows import RowWise
from samebits.ops.call import Call
from samebits.ops.elementwise import apply
from samebits.ops.launch import launch
from samebits.ops.memo import remembered
from samebits.ops.recipe import CallOperand

__all__ = [
    "STEPS", "adam", "adam_step", "descent", "joined", "momentum", "momentum_descent", "scaled", "second_moment",
    "sum_of_squares",
]  # fmt: skip

_F32 = dtypes.float32
# Steps that are one walk: the expression, how many numbers it takes, and which of its first inputs it writes.
STEPS: Mapping[str, tuple[Expression, int, tuple[int, ...]]] = {
    "adam": (gradients.adam(_F32, _F32), 8, (1, 2, 0)),
    "momentum_descent": (gradients.momentum_descent(_F32, _F32), 3, (1, 0)),
    "descent": (gradients.descent(_F32, _F32), 1, (0,)),
}


@functools.lru_cache(maxsize=32)
def joined(steps: tuple[tuple[str, int], ...], isa: Isa, threads: int) -> Table:
    """Some of `STEPS`, each of so many dense float32, one after the other; its slots are for each step what it reads,
    the gradient last, and its numbers."""
    plans, slots = [], 0
    for name, count in steps:
        _, numbers, written = STEPS[name]
        plan = _joined_plan(name, count, isa, sized(threads, count))
        place = slots + len(written) + 1
        where: list[int | tuple[int, int]] = [*range(slots, place), *[(place, 4 * i) for i in range(numbers)]]
        plans.append((plan, [*where, *[slots + k for k in written]]))
        slots = place + 1
    return Table(plans, slots, threads)


@functools.lru_cache(maxsize=256)
def _joined_plan(name: str, count: int, isa: Isa, threads: int) -> Plan:
    expression, numbers, written = STEPS[name]
    dense: AxisSteps = ((count,), (1,))
    inputs: tuple[AxisSteps, ...] = (*[dense] * (len(written) + 1), *[((), ())] * numbers)
    return elementwise.plan(expression, inputs, (dense,) * len(written), isa, threads)


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
def adam(p: Any, m: Any, v: Any, g: Any, numbers: Any, *, out: Any, threads: int | None = None) -> Any:
    """`momentum` onto m, `second_moment` onto v, by two numbers each, and `adam_step` by the other four: one walk over
    all. `out` is p; no two of the four share memory, as the caller has seen."""
    call = Call("adam", p, threads)
    operands = [call.operand(name, x) for name, x in (("p", p), ("m", m), ("v", v), ("g", g))]
    expression = gradients.adam(operands[0].dtype, operands[3].dtype)
    return _stepped(call, expression, operands, numbers, 8, out, (m, v))


@remembered
def momentum_descent(p: Any, b: Any, g: Any, numbers: Any, *, out: Any, threads: int | None = None) -> Any:
    """`momentum` onto b by two numbers, and `descent` along it by the third: one walk over all. `out` is p; no two of
    the three share memory, as the caller has seen."""
    call = Call("momentum_descent", p, threads)
    operands = [call.operand(name, x) for name, x in (("p", p), ("b", b), ("g", g))]
    expression = gradients.momentum_descent(operands[0].dtype, operands[2].dtype)
    return _stepped(call, expression, operands, numbers, 3, out, (b,))


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
    call: Call, expression: Expression, operands: list[CallOperand], numbers: Any, count: int, out: Any,
    before: tuple[Any, ...] = (),
) -> Any:  # fmt: skip
    """The expression over operands and the first numbers of an array, which each element meets; `before`: arrays that
    take the outputs before the last."""
    given, first = call.operand("numbers", numbers), operands[0]
    others = [call.output(first.shape, first.dtype, array) for array in before]
    operands = [*operands, *[given.seen(given.tensor[i]) for i in range(count)]]
    return call.result(launch(call, "map", Map(expression), operands, out, before=others)[-1])
