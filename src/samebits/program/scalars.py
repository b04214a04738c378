"""Scalar constants become part of the expressions that read them.

requires: no node reads constants alone.   ensures: no map, row expression or epilogue reads a constant of one element,
unless its shape decides the result's. Floats of maps and row expressions may become arguments of their kernels instead,
so that programs that differ in nothing else have the same ones. Start at `absorb_scalars`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from samebits import dtypes
from samebits.dtypes import DType
from samebits.frozen import replace
from samebits.kernels.expression import Expression
from samebits.operations.convolution import Convolution
from samebits.operations.elementwise import Map
from samebits.operations.matmul import MatrixProduct
from samebits.operations.operation import Array
from samebits.operations.rows import RowWise
from samebits.program.compose import Applied, absorb
from samebits.program.constants import array_of
from samebits.program.graph import Node, Program

__all__ = ["absorb_scalars", "absorb_scalars_as_arguments"]


def absorb_scalars(program: Program) -> Program:
    """Every expression with its scalar constants inside."""
    return _absorb(program, ())


def absorb_scalars_as_arguments(program: Program) -> Program:
    """The same, floats as arguments of kernels."""
    return _absorb(program, (dtypes.float32, dtypes.float64))


def _absorb(program: Program, numbers: Collection[DType]) -> Program:
    codes = {
        name: _code(array_of(constant))
        for name, constant in program.constants.items()
        if constant.size == 1 and _is_expressed(dtypes.of(constant.dtype))
    }
    return program.replace([_absorbed(program, node, codes, numbers) for node in program.nodes])


def _code(array: Array) -> int:
    """The bits of an array's one element."""
    return int(array.reshape(1).view(f"u{array.itemsize}")[0])


def _is_expressed(dtype: DType) -> bool:
    """Whether expressions hold constants of this format; narrow floats are only ever moved."""
    return dtype.kind != "float" or dtype.width_bits >= 32


def _absorbed(program: Program, node: Node, codes: Mapping[str, int], numbers: Collection[DType]) -> Node:
    attributes = node.attributes
    fixed: tuple[str, ...] = ()
    if isinstance(attributes, Map | RowWise):
        expression: Expression | None = attributes.expression
        inputs = node.inputs
    elif isinstance(attributes, MatrixProduct | Convolution) and attributes.epilogue is not None:
        expression = attributes.epilogue
        # The product stands in the place of its operands.
        count = len(attributes.names)
        fixed, inputs, numbers = node.inputs[:count], ("", *node.inputs[count:]), ()
    else:
        return node
    if expression is None or all(name in codes for name in inputs) or not any(name in codes for name in inputs):
        return node
    applied = absorb(Applied(expression, inputs, node.outputs), codes, numbers=numbers)
    rest = (*fixed, *applied.inputs[len(fixed) and 1 :])
    if isinstance(attributes, MatrixProduct | Convolution):
        changed: object = replace(attributes, epilogue=applied.expression)
    else:
        changed = replace(attributes, expression=applied.expression)
    made = replace(node, inputs=rest, attributes=changed)
    facts = zip(made.inferred(program.facts), node.outputs, strict=True)
    return node if any(fact.shape != program.facts[name].shape for fact, name in facts) else made
