"""Expressions over named values, and joining two of them into one.

Joining changes no bit: every operation keeps its own rounding (numerics.md section 11). Start at `Applied`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from samebits.dtypes import DType
from samebits.frozen import dataclass
from samebits.kernels.expression import Chain, Expression, Term

__all__ = ["Applied", "absorb", "join"]


@dataclass(frozen=True, slots=True)
class Applied:
    """An expression, what its inputs are called and what its outputs are called."""

    expression: Expression
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


def join(first: Applied, second: Applied, keep: Collection[str]) -> Applied:
    """`second` after `first`; of the outputs of `first` only those in `keep` stay outputs.

    The inputs of `first` come first and keep their places; a value that is read twice becomes one input. Operations
    keep their order, so that those of `first` are not made again where `second` brings no input of its own.
    """
    made = frozenset(first.outputs)
    types: dict[str, DType] = dict(zip(first.inputs, first.expression.inputs, strict=True))
    for name, dtype in zip(second.inputs, second.expression.inputs, strict=True):
        if name not in made:
            types.setdefault(name, dtype)
    number = {name: place for place, name in enumerate(types)}
    terms, values = _renumbered(first, number, len(types))
    before = dict(zip(first.outputs, [values[output] for output in first.expression.outputs], strict=True))
    more, values = _renumbered(second, number | before, len(types) + len(terms))
    after = dict(zip(second.outputs, [values[output] for output in second.expression.outputs], strict=True))
    names = (*[name for name in first.outputs if name in keep], *second.outputs)
    both = before | after
    expression = Expression(tuple(types.values()), (*terms, *more), tuple([both[name] for name in names]))
    read = {*expression.outputs, *[argument for term in more for argument in term.arguments]}
    return Applied(expression if read.issuperset(before.values()) else _live(expression), tuple(types), names)


def _renumbered(applied: Applied, inputs: Mapping[str, int], start: int) -> tuple[tuple[Term, ...], list[int]]:
    """The operations of an expression and the new number of each of its values, if operations count from `start`."""
    expression = applied.expression
    new = [inputs[name] for name in applied.inputs]
    new += range(start, start + len(expression.nodes))
    if new == list(range(len(new))):
        return expression.nodes, new
    terms = [
        Term(term.op, tuple([new[argument] for argument in term.arguments]), term.dtype, term.attribute)
        for term in expression.nodes
    ]
    return tuple(terms), new


def _live(expression: Expression) -> Expression:
    """The expression without what no output needs, inputs excepted."""
    chain = Chain()
    return chain.finish(*chain.include(expression, *[chain.input(dtype) for dtype in expression.inputs]))


def absorb(applied: Applied, codes: Mapping[str, int], first: int = 0, numbers: Collection[DType] = ()) -> Applied:
    """The inputs named in `codes`, from place `first` on, become constants of the expression; those whose format is one
    of `numbers` become numbers, which kernels take as arguments."""
    chain = Chain()
    values, names = [], []
    for place, (name, dtype) in enumerate(zip(applied.inputs, applied.expression.inputs, strict=True)):
        if place >= first and name in codes:
            made_of = chain.number_code if dtype in numbers else chain.constant_code
            values.append(made_of(codes[name], dtype))
        else:
            values.append(chain.input(dtype))
            names.append(name)
    made = chain.include(applied.expression, *values)
    return Applied(chain.finish(*made), tuple(names), applied.outputs)
