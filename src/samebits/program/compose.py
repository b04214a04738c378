"""Expressions over named values, and joining two of them into one.

Joining changes no bit: every operation keeps its own rounding (numerics.md section 11). Start at `Applied`.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping, Sequence

from samebits.dtypes import DType
from samebits.frozen import dataclass
from samebits.kernels.expression import Chain, Expression, Term

__all__ = ["Applied", "absorb", "itself", "join"]


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
    made = {name: place for place, name in enumerate(first.outputs)}
    number = dict[str, int]()
    of_first = tuple([number.setdefault(name, len(number)) for name in first.inputs])
    of_second = tuple([~made[x] if x in made else number.setdefault(x, len(number)) for x in second.inputs])
    kept = tuple([place for name, place in made.items() if name in keep]) if keep else ()
    expression = _joined(first.expression, second.expression, of_first, of_second, kept)
    return Applied(expression, tuple(number), (*[first.outputs[place] for place in kept], *second.outputs))


@functools.lru_cache(maxsize=4096)
def _joined(
    first: Expression, second: Expression, of_first: tuple[int, ...], of_second: tuple[int, ...], kept: tuple[int, ...]
) -> Expression:
    """`second` after `first`; models repeat themselves, and what was joined once need not be again.

    Args:    of_first: the input of both that each input of `first` is.
             of_second: the same of `second`; ~n is output n of `first`.
             kept: which outputs of `first` stay outputs.
    """
    types: dict[int, DType] = {}
    inputs = zip((*of_first, *of_second), (*first.inputs, *second.inputs), strict=True)
    for place, dtype in inputs:
        if place >= 0:
            types.setdefault(place, dtype)
    terms, values = _renumbered(first, of_first, len(types))
    before = [values[output] for output in first.outputs]
    places = [place if place >= 0 else before[~place] for place in of_second]
    more, values = _renumbered(second, places, len(types) + len(terms))
    outputs = (*[before[place] for place in kept], *[values[output] for output in second.outputs])
    expression = Expression(tuple([types[place] for place in range(len(types))]), (*terms, *more), outputs)
    read = {*outputs, *[argument for term in more for argument in term.arguments]}
    return expression if read.issuperset(before) else _live(expression)


def _renumbered(expression: Expression, inputs: Sequence[int], start: int) -> tuple[tuple[Term, ...], list[int]]:
    """The operations of an expression and the new number of each of its values, if operations count from `start`."""
    new = [*inputs, *range(start, start + len(expression.nodes))]
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


def itself(dtype: DType) -> Expression:
    """An element as it is."""
    chain = Chain()
    return chain.finish(chain.input(dtype))


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
