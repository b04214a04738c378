"""What optimisers do to a parameter, for `samebits.torch`: each function one step of numerics.md section 12, in place.

Numbers that change from step to step come as an array, so that calls are remembered whatever they are.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

from samebits import dtypes
from samebits.codegen.isa import Isa
from samebits.dtypes import DType
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
    return _stepped("momentum", gradients.momentum, {"b": b, "g": g}, numbers, 2, out, threads)


@remembered
def second_moment(v: Any, g: Any, numbers: Any, *, out: Any, threads: int | None = None) -> Any:
    """numbers[0] * v + (numbers[1] * g) * g."""
    return _stepped("second_moment", gradients.second_moment, {"v": v, "g": g}, numbers, 2, out, threads)


@remembered
def adam_step(p: Any, m: Any, v: Any, numbers: Any, *, out: Any, threads: int | None = None) -> Any:
    """p * decay - rate * (m / (sqrt(v) / root + eps)); the numbers are decay, rate, root and eps."""
    operands = {"p": p, "m": m, "v": v}
    return _stepped("adam_step", lambda p, _: gradients.adam_step(p), operands, numbers, 4, out, threads)


@remembered
def adam(p: Any, m: Any, v: Any, g: Any, numbers: Any, *, out: Any, threads: int | None = None) -> Any:
    """`momentum` onto m, `second_moment` onto v, by two numbers each, and `adam_step` by the other four: one walk over
    all. `out` is p; no two of the four share memory, as the caller has seen."""
    operands = {"p": p, "m": m, "v": v, "g": g}
    return _stepped("adam", gradients.adam, operands, numbers, 8, out, threads, (m, v))


@remembered
def momentum_descent(p: Any, b: Any, g: Any, numbers: Any, *, out: Any, threads: int | None = None) -> Any:
    """`momentum` onto b by two numbers, and `descent` along it by the third: one walk over all. `out` is p; no two of
    the three share memory, as the caller has seen."""
    operands = {"p": p, "b": b, "g": g}
    return _stepped("momentum_descent", gradients.momentum_descent, operands, numbers, 3, out, threads, (b,))


@remembered
def descent(p: Any, g: Any, numbers: Any, *, out: Any, threads: int | None = None) -> Any:
    """p - numbers[0] * g."""
    return _stepped("descent", gradients.descent, {"p": p, "g": g}, numbers, 1, out, threads)


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
    name: str, make: Callable[[DType, DType], Expression], arrays: Mapping[str, Any], numbers: Any, count: int,
    out: Any, threads: int | None, before: tuple[Any, ...] = (),
) -> Any:  # fmt: skip
    """An expression over arrays and the first numbers of another, which each element meets.

    Args:    make: the expression, by the dtypes of the first and of the last array.   arrays: by name.
             before: those that take the outputs before the last, which `out` takes.
    """
    call = Call(name, next(iter(arrays.values())), threads)
    operands = [call.operand(key, x) for key, x in arrays.items()]
    first, expression = operands[0], make(operands[0].dtype, operands[-1].dtype)
    given = call.operand("numbers", numbers)
    operands += [given.seen(given.tensor[i]) for i in range(count)]
    others = [call.output(first.shape, first.dtype, array) for array in before]
    return call.result(launch(call, "map", Map(expression), operands, out, before=others)[-1])
