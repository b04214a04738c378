"""Einsum: operands joined from the left by products, and by sums over what is in one alone (numerics.md section 8).

An axis is called by its letter; those of an ellipsis by their place from the end. Start at `_einsum`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from samebits.frozen import dataclass
from samebits.kernels import composites
from samebits.onnx.row import MANY, Attribute, NodeCall, OnnxRow, Unsupported
from samebits.operations import dim
from samebits.program.builder import ProgramBuilder

__all__ = ["ROWS"]

Labels = tuple[str, ...]
_TERM = re.compile(r"([A-Za-z]*)(\.\.\.)?([A-Za-z]*)")


@dataclass(frozen=True, slots=True)
class _Labelled:
    """A value and what its axes are called."""

    value: str
    labels: Labels


def _einsum(call: NodeCall) -> Sequence[str]:
    """Operands are contracted from the left: each with the result of those before it."""
    b = call.b
    texts, output = _parsed(call.attributes["equation"], len(call.inputs))
    terms = [_Labelled(call[i], _labels(text, call.fact(i).rank)) for i, text in enumerate(texts)]
    due = _output(output, terms)
    _check(b, terms, due)
    made, *rest = [_diagonal(b, term) for term in terms]
    for number, term in enumerate(rest):
        later = {*due, *(label for other in rest[number + 1 :] for label in other.labels)}
        made = _joined(call, _summed(b, made, {*later, *term.labels}), _summed(b, term, {*later, *made.labels}), later)
    made = _summed(b, made, due)
    return (b.transpose(made.value, [made.labels.index(label) for label in due]),)


def _parsed(equation: str, count: int) -> tuple[list[str], str | None]:
    """The text of each operand and, if there is one, of the result."""
    left, *right = equation.replace(" ", "").split("->")
    texts = left.split(",")
    if len(right) > 1 or len(texts) != count or not all(_TERM.fullmatch(text) for text in (*texts, *right)):
        raise Unsupported(f"attribute 'equation' is {equation!r}, must be letters and ellipses of {count} operands")
    return texts, right[0] if right else None


def _labels(text: str, rank: int) -> Labels:
    """What the axes of an operand of that rank are called."""
    before, dots, after = text.partition("...")
    more = rank - len(before) - len(after)
    if more < 0 or (more and not dots):
        raise Unsupported(f"{text!r} is given for an operand of rank {rank}")
    return (*before, *(f".{place}" for place in range(more, 0, -1)), *after)


def _output(text: str | None, terms: Sequence[_Labelled]) -> Labels:
    """What the axes of the result are called: without a text, letters that occur once, in their order."""
    every = [label for term in terms for label in term.labels]
    dots = sorted({label for label in every if label[0] == "."}, key=lambda label: -int(label[1:]))
    if text is None:
        return (*dots, *sorted(label for label in every if every.count(label) == 1 and label[0] != "."))
    before, found, after = text.partition("...")
    letters = (*before, *after)
    if len(set(letters)) != len(letters) or not set(letters) <= set(every):
        raise Unsupported(f"the result is {text!r}, must have letters of the operands, each once")
    return (*before, *(dots if found else ()), *after)


def _check(b: ProgramBuilder, terms: Sequence[_Labelled], due: Labels) -> None:
    """Raise Unsupported where a letter has two extents, or an ellipsis is left out of the result."""
    extents: dict[str, dim.Size] = {}
    for term in terms:
        for label, size in zip(term.labels, b.facts[term.value].shape, strict=True):
            known = extents.setdefault(label, size)
            if label[0] != "." and dim.are_known(known, size) and known != size:
                raise Unsupported(f"axes {label!r} have extents {known} and {size}, must have one")
            if label[0] == "." and label not in due:
                raise Unsupported("an ellipsis is summed over, must be in the result")


def _diagonal(b: ProgramBuilder, term: _Labelled) -> _Labelled:
    """The term without the axes whose letter an axis before has, along which it is the diagonal."""
    value, labels = term.value, list(term.labels)
    while len(set(labels)) < len(labels):
        second = next(i for i, label in enumerate(labels) if label in labels[:i])
        first = labels.index(labels[second])
        shape, rest = b.facts[value].shape, [i for i in range(len(labels)) if i not in (first, second)]
        extent = shape[first]
        if not isinstance(extent, int) or shape[second] != extent:
            raise Unsupported(f"a diagonal of extents {extent} and {shape[second]}, must be one that is known")
        outer = tuple(shape[i] for i in rest)
        flat = b.reshape(b.transpose(value, (*rest, first, second)), (*outer, extent * extent))
        value = b.slice(flat, (0,) * (len(rest) + 1), (*outer, extent), (*[1] * len(rest), extent + 1))
        labels = [*(labels[i] for i in rest), labels[first]]
    return _Labelled(value, tuple(labels))


def _summed(b: ProgramBuilder, term: _Labelled, kept: Collection[str]) -> _Labelled:
    """The term without the axes that are not kept."""
    shape, dtype = b.facts[term.value].shape, b.facts[term.value].dtype
    axes = tuple(i - len(shape) for i, label in enumerate(term.labels) if label not in kept)
    if not axes:
        return term
    if not dtype.is_float:
        raise Unsupported(f"operands that are summed over are {dtype.name}, must be floats")
    (made,) = b.rows(composites.reduction("row_sum", dtype), term.value, axes=axes)
    left = [i for i in range(len(shape)) if i - len(shape) not in axes]
    return _Labelled(b.reshape(made, tuple(shape[i] for i in left)), tuple(term.labels[i] for i in left))


def _joined(call: NodeCall, x: _Labelled, y: _Labelled, kept: Collection[str]) -> _Labelled:
    """The product of two terms, summed over the letters of both that are not kept."""
    b = call.b
    both = [label for label in x.labels if label in y.labels]
    batch, inner = ([label for label in both if (label in kept) == wanted] for wanted in (True, False))
    left, right = ([label for label in term.labels if label not in both] for term in (x, y))
    sizes = {label: size for term in (y, x) for label, size in zip(term.labels, b.facts[term.value].shape, strict=True)}
    labels = (*batch, *left, *right)
    if not inner:
        operands = _spread(b, x, labels), _spread(b, y, labels)
        return _Labelled(b.apply("mul", *operands), labels)
    if not b.facts[x.value].dtype.is_float:
        raise Unsupported(f"operands that are summed over are {b.facts[x.value].dtype.name}, must be floats")
    made = b.contract(_matrix(b, x, batch, left, inner), _matrix(b, y, batch, inner, right))
    outer = b.facts[made].shape[: len(batch)]
    return _Labelled(b.reshape(made, (*outer, *(sizes[label] for label in (*left, *right)))), labels)


def _spread(b: ProgramBuilder, term: _Labelled, labels: Labels) -> str:
    """Its axes in that order, an extent of 1 where it has none."""
    own = [label for label in labels if label in term.labels]
    turned = b.transpose(term.value, [term.labels.index(label) for label in own])
    sizes = dict(zip(own, b.facts[turned].shape, strict=True))
    return b.reshape(turned, tuple(sizes.get(label, 1) for label in labels))


def _matrix(
    b: ProgramBuilder, term: _Labelled, batch: Sequence[str], rows: Sequence[str], columns: Sequence[str]
) -> str:
    """The axes of a batch as they are, then those of rows as one and those of columns as one."""
    turned = b.transpose(term.value, [term.labels.index(label) for label in (*batch, *rows, *columns)])
    shape = b.facts[turned].shape
    cut, end = len(batch), len(batch) + len(rows)
    return b.reshape(turned, (*shape[:cut], dim.product(shape[cut:end]), dim.product(shape[end:])))


_EQUATION = Attribute("equation", kind="string")

ROWS: tuple[OnnxRow, ...] = (
    OnnxRow(
        "Einsum",
        12,
        _einsum,
        (_EQUATION,),
        MANY,
        limits="sums of integers; an ellipsis that is summed over; a letter with an extent of 1 beside another",
    ),
)
