"""The operation `map`: one value an element, operands broadcasting.

Start at `Map`; `single` is one function as an expression, `check_dtypes` what every operation says of its operands.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import numpy as np

from samebits.codegen.isa import Isa
from samebits.conversions import SB1, Conversion
from samebits.dtypes import DType
from samebits.errors import DTypeError
from samebits.frozen import dataclass
from samebits.kernels import coded, elementwise, expression, values
from samebits.kernels.expression import Chain, Expression
from samebits.kernels.plan import Plan
from samebits.kernels.walk import AxisSteps
from samebits.operations import dim
from samebits.operations.axes import Axes, aligned
from samebits.operations.fact import Fact, dense
from samebits.operations.operation import Array, Operation, PlanTarget, View, shared_by

__all__ = ["ROWS", "Map", "check_dtypes", "single", "text"]


@dataclass(frozen=True, slots=True)
class Map:
    """What is computed of each element."""

    expression: Expression

    def __str__(self) -> str:
        return text(self.expression)


@functools.lru_cache(maxsize=4096)
def single(op: str, *dtypes: DType, cast_to: DType | None = None, conversion: Conversion = SB1) -> Expression:
    """One function as an expression; a cast says to what, and how.

    Raises:  DTypeError if it does not take these dtypes.
    """
    chain = Chain()
    inputs = [chain.input(dtype) for dtype in dtypes]
    return chain.finish(chain.apply(op, *inputs, dtype=cast_to, conversion=conversion))


def text(e: Expression) -> str:
    """The expression in one line: `x0` is the first input, nested where a value is used once."""
    count = len(e.inputs)
    uses: dict[int, int] = {}
    for node in e.nodes:
        for argument in node.arguments:
            uses[argument] = uses.get(argument, 0) + 1
    words = [f"x{i}" for i in range(count)]
    bindings: list[str] = []
    for number, node in enumerate(e.nodes, count):
        if node.op in expression.CONSTANTS:
            words.append(repr(expression.constant_value(node)))
            continue
        suffix = f", {node.dtype.name}" if node.op in ("cast", "bitcast") else ""
        word = f"{node.op}({', '.join(words[argument] for argument in node.arguments)}{suffix})"
        if uses.get(number, 0) > 1:
            bindings.append(f"t{number} = {word}")
            word = f"t{number}"
        words.append(word)
    return "; ".join([*bindings, ", ".join(words[output] for output in e.outputs)])


def check_dtypes(what: str, taken: Sequence[DType], facts: Sequence[Fact]) -> None:
    """Raise DTypeError unless the operands have the element formats that are read."""
    given = tuple(fact.dtype for fact in facts)
    if given != tuple(taken):
        raise DTypeError(what, "operands", "dtypes", given, tuple(taken), "cast them")


def _infer(attributes: Map, facts: Sequence[Fact]) -> tuple[Fact, ...]:
    e = attributes.expression
    check_dtypes("map", e.inputs, facts)
    shape = dim.broadcast_shapes([fact.shape for fact in facts])
    return tuple(dense(e.dtype(output), shape) for output in e.outputs)


def _reference(attributes: Map, arrays: Sequence[Array]) -> tuple[Array, ...]:
    """By NumPy; many elements in blocks of rows, whose temporaries stay in the cache."""
    shape = np.broadcast_shapes(*[x.shape for x in arrays])
    if math.prod(shape) <= _BLOCK:
        made = values.reference(attributes.expression, arrays)
        return tuple([y if y.shape == shape else np.broadcast_to(y, shape) for y in made])
    step = max(1, _BLOCK * shape[0] // math.prod(shape))
    results: list[Array] = []
    for start in range(0, shape[0], step):
        part = (min(step, shape[0] - start), *shape[1:])
        rows = [_rows(x, shape, start, start + step) for x in arrays]
        made = [np.broadcast_to(y, part) for y in values.reference(attributes.expression, rows)]
        results = results or [np.empty(shape, block.dtype) for block in made]
        for result, block in zip(results, made, strict=True):
            result[start : start + step] = block
    return tuple(results)


# Elements of a block: so many that NumPy's calls take little of the time, so few that their arrays stay in caches.
_BLOCK = 1 << 17


def _rows(x: Array, shape: tuple[int, ...], start: int, stop: int) -> Array:
    """Rows of an operand of that shape; all of it where it repeats."""
    return x[start:stop] if x.ndim == len(shape) and x.shape[0] != 1 else x


def _axes(attributes: Map, facts: Sequence[Fact]) -> Axes:
    return Axes(aligned(facts, max(fact.rank for fact in facts)))


def plan_map(attributes: Map, views: tuple[View, ...], target: PlanTarget) -> Plan:
    """One elementwise kernel."""
    question = _question(attributes, views, target)
    return coded.plan(*question) or elementwise.plan(*question)


def _reads(attributes: Map, views: tuple[View, ...], packed: tuple[int, ...], target: PlanTarget) -> Plan | None:
    """One kernel that takes inputs of four bits apart."""
    return coded.plan(*_question(attributes, views, target), packed)


def _question(
    attributes: Map, views: tuple[View, ...], target: PlanTarget
) -> tuple[Expression, tuple[AxisSteps, ...], tuple[AxisSteps, ...], Isa, int]:
    """What planners are asked for."""
    layouts, count = tuple([view[1:] for view in views]), len(attributes.expression.inputs)
    return attributes.expression, layouts[:count], layouts[count:], target.isa, shared_by(views, target)


def _packs(attributes: Map, views: tuple[View, ...], target: PlanTarget) -> Plan | None:
    """One kernel that packs its result."""
    from samebits.kernels import packed_result  # which few programs have

    *inputs, out = [view[1:] for view in views]
    return packed_result.plan(attributes.expression, tuple(inputs), out, target.isa, shared_by(views, target))


ROWS: tuple[Operation, ...] = (
    Operation("map", _infer, _reference, _axes, plan=plan_map, packs=_packs, reads=_reads, overwrites=True),
)
