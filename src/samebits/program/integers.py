"""Integers that are known before anything runs, symbols allowed: what shape arithmetic in a model comes down to.

A value of rank 0 or 1 is a tuple of sizes; `propagate` gives those of a node's output, or None where they depend on
data. Start there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from samebits.kernels.expression import CONSTANTS, Expression, constant_value
from samebits.operations import dim
from samebits.operations.dim import Size, SymbolicShape
from samebits.operations.elementwise import Map
from samebits.operations.moves import AxisGather, Concat, Dims
from samebits.operations.views import Slice

__all__ = ["LIMIT", "propagate"]

# Longer vectors are data, not shapes.
LIMIT = 64
# What sizes are computed in. A number outside wraps, which is left to the kernels; a symbol is a size that fits.
_RANGES = {"int64": range(-(2**63), 2**63), "int32": range(-(2**31), 2**31), "bool": range(2)}

_Known = Size | bool


def _equal(x: _Known, y: _Known) -> bool | None:
    if x == y:
        return True
    if isinstance(x, int) and isinstance(y, int):
        return False
    # Exporters ask whether a size was left open by comparing it with -1.
    negative = any(isinstance(size, int) and size < 0 for size in (x, y))
    return False if negative and (dim.is_never_negative(x) or dim.is_never_negative(y)) else None


def _where(condition: _Known, x: _Known, y: _Known) -> _Known | None:
    if isinstance(condition, int):
        return x if condition else y
    return None


_RULES: dict[str, Callable[..., Any]] = {
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "mul": lambda x, y: x * y,
    "neg": lambda x: -x,
    "maximum": dim.maximum,
    "minimum": dim.minimum,
    "equal": _equal,
    "where": _where,
    "cast": lambda x: x,
    "copy": lambda x: x,
}


def propagate(
    operation: str, attributes: object, operands: Sequence[SymbolicShape | None], rank: int
) -> SymbolicShape | None:
    """The integers of a node's only output (of the given rank), or None if they are not known."""
    if isinstance(attributes, Dims):
        return attributes.sizes
    known = [operand for operand in operands if operand is not None]
    if len(known) != len(operands) or not known or rank > 1:
        return None
    if operation == "reshape":
        return known[0]
    if isinstance(attributes, Concat):
        return tuple(size for operand in known for size in operand) if sum(map(len, known)) <= LIMIT else None
    if isinstance(attributes, Slice):
        return _slice(attributes, known[0]) if rank else known[0]
    if isinstance(attributes, AxisGather):
        return _gather(known[0], known[1])
    if isinstance(attributes, Map) and len(attributes.expression.outputs) == 1:
        return _map(attributes.expression, known)
    return None


def _slice(attributes: Slice, sizes: SymbolicShape) -> SymbolicShape | None:
    (start,), (count,), (step,) = attributes.starts, attributes.counts, attributes.steps
    if not isinstance(start, int) or not isinstance(count, int):
        return None
    return tuple(sizes[start + i * step] for i in range(count))


def _gather(sizes: SymbolicShape, indices: SymbolicShape) -> SymbolicShape | None:
    picked = []
    for index in indices:
        if not isinstance(index, int) or not -len(sizes) <= index < len(sizes):
            return None
        picked.append(sizes[index])
    return tuple(picked)


def _map(expression: Expression, operands: Sequence[SymbolicShape]) -> SymbolicShape | None:
    if any(dtype.name not in _RANGES for dtype in (*expression.inputs, *[n.dtype for n in expression.nodes])):
        return None
    length = max(map(len, operands))
    if any(len(operand) not in (1, length) for operand in operands):
        return None
    result = []
    for i in range(length):
        value = _element(expression, [operand[i if len(operand) > 1 else 0] for operand in operands])
        if value is None:
            return None
        result.append(value)
    return tuple(result)


def _element(expression: Expression, inputs: Sequence[Size]) -> Size | None:
    values: list[Any] = list(inputs)
    for node in expression.nodes:
        if node.op in CONSTANTS:
            values.append(constant_value(node))
            continue
        arguments = [values[argument] for argument in node.arguments]
        rule = _RULES.get(node.op)
        value = rule(*arguments) if rule and None not in arguments else None
        if node.op == "cast" and node.dtype.kind == "bool":
            value = arguments[0] != 0 if isinstance(arguments[0], int) else None
        if value is None or (isinstance(value, int) and value not in _RANGES[node.dtype.name]):
            return None
        values.append(value)
    result: Size = values[expression.outputs[0]]
    return result
