"""Sizes that may be symbols: integer polynomials over names, kept in one canonical form.

A size is a plain `int`, or a `Dim` where a symbol is left in it; arithmetic gives back an `int` as soon as it can. Two
sizes that are equal as polynomials are equal as Python values, which is what lets the transforms prove that two shapes
agree before anything is bound. Division, `min`, `max` and broadcasting are atoms of the polynomial: they compare by
their arguments. Start at `symbol` and `bind`.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from samebits.errors import ShapeError

__all__ = [
    "Dim",
    "Size",
    "SymbolicShape",
    "bind",
    "bind_shape",
    "broadcast",
    "floor_divide",
    "is_never_negative",
    "maximum",
    "minimum",
    "product",
    "symbol",
    "symbols",
]


@dataclass(frozen=True, slots=True)
class _Symbol:
    """A size given by its name."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class _SizeCall:
    """An operation on sizes that is no polynomial."""

    operation: str
    arguments: tuple[Size, ...]

    def __str__(self) -> str:
        return f"{self.operation}({', '.join(map(str, self.arguments))})"


# No model's shapes come near; without a limit a few multiplications fill the memory.
_MOST_TERMS = 1024

_Atom = _Symbol | _SizeCall
_Monomial = tuple[_Atom, ...]


@dataclass(frozen=True, slots=True)
class Dim:
    """sum of coefficient * atom * atom * ...; the monomials sorted, no coefficient zero, at least one atom in all."""

    terms: tuple[tuple[_Monomial, int], ...]

    def __add__(self, other: Size) -> Size:
        total = dict(self.terms)
        for monomial, coefficient in _terms(other):
            total[monomial] = total.get(monomial, 0) + coefficient
        return _canonical(total)

    def __mul__(self, other: Size) -> Size:
        if len(self.terms) * len(_terms(other)) > _MOST_TERMS:
            raise ShapeError("dim", "a size", "terms", "too many", _MOST_TERMS, "simplify the shapes")
        total: dict[_Monomial, int] = {}
        for left, p in self.terms:
            for right, q in _terms(other):
                monomial = tuple(sorted(left + right, key=str))
                total[monomial] = total.get(monomial, 0) + p * q
        return _canonical(total)

    __radd__ = __add__
    __rmul__ = __mul__

    def __neg__(self) -> Size:
        return self * -1

    def __sub__(self, other: Size) -> Size:
        return self + other * -1

    def __rsub__(self, other: Size) -> Size:
        return self * -1 + other

    def __str__(self) -> str:
        text = ""
        for monomial, coefficient in self.terms:
            factors = [str(atom) for atom in monomial]
            if abs(coefficient) != 1 or not factors:
                factors.insert(0, str(abs(coefficient)))
            sign = "-" if coefficient < 0 else "+" if text else ""
            text += sign + "*".join(factors)
        return text

    __repr__ = __str__


Size = int | Dim
SymbolicShape = tuple[Size, ...]


def symbol(name: str) -> Dim:
    """The size called `name`."""
    return Dim((((_Symbol(name),), 1),))


def minimum(x: Size, y: Size) -> Size:
    """The smaller of two sizes."""
    return x if x == y else _call("min", x, y)


def maximum(x: Size, y: Size) -> Size:
    """The larger of two sizes."""
    return x if x == y else _call("max", x, y)


def floor_divide(x: Size, y: Size) -> Size:
    """x // y; exact where y divides every term of x.

    Raises:  ShapeError if y is zero.
    """
    if y == 0:
        raise _zero()
    quotient = _exact_quotient(x, y)
    return _call("floordiv", x, y) if quotient is None else quotient


def broadcast(x: Size, y: Size) -> Size:
    """The extent of two operands' common axis: equal extents, or one of them is 1.

    Raises:  ShapeError if both are numbers that do not fit. Where symbols are left, `bind` raises it.
    """
    if x == y or y == 1:
        return x
    if x == 1:
        return y
    for size, other in ((x, y), (y, x)):
        if _is_capped(size, other):
            return other
    return _call("broadcast", x, y)


def _is_capped(size: Size, other: Size) -> bool:
    """Whether size is min(n, other) with n >= 2: a table of n rows, cut to what the other operand needs.

    Such operands only fit where size equals other, so that is the extent; binding still checks the operands.
    """
    if not isinstance(size, Dim) or len(size.terms) != 1:
        return False
    (atoms, coefficient) = size.terms[0]
    if len(atoms) != 1 or coefficient != 1 or not isinstance(atoms[0], _SizeCall) or atoms[0].operation != "min":
        return False
    arguments = atoms[0].arguments
    return other in arguments and any(isinstance(cap, int) and cap >= 2 for cap in arguments)


def is_never_negative(size: Size) -> bool:
    """Whether no values of its symbols make the size negative, as far as its form shows."""
    return all(
        coefficient > 0 and all(isinstance(atom, _Symbol) or _is_never_negative(atom) for atom in monomial)
        for monomial, coefficient in _terms(size)
        if coefficient
    )


def _is_never_negative(call: _SizeCall) -> bool:
    known = [is_never_negative(argument) for argument in call.arguments]
    return any(known) if call.operation == "max" else all(known)


def product(sizes: Sequence[Size]) -> Size:
    """The product of all; 1 for none."""
    return functools.reduce(operator.mul, sizes, 1)


def symbols(size: Size) -> frozenset[str]:
    """The names that `size` depends on."""
    if isinstance(size, int):
        return frozenset()
    found: set[str] = set()
    for monomial, _ in size.terms:
        for atom in monomial:
            found |= {atom.name} if isinstance(atom, _Symbol) else frozenset().union(*map(symbols, atom.arguments))
    return frozenset(found)


def bind(size: Size, values: Mapping[str, int]) -> int:
    """The size as a number, every symbol replaced by its value.

    Raises:  ShapeError if a broadcast in it does not fit, or a divisor is 0.   KeyError if a symbol has no value.
    """
    if isinstance(size, int):
        return size
    total = 0
    for monomial, coefficient in size.terms:
        for atom in monomial:
            if isinstance(atom, _Symbol):
                coefficient *= values[atom.name]
            else:
                coefficient *= _NUMERIC[atom.operation](*[bind(argument, values) for argument in atom.arguments])
        total += coefficient
    return total


def bind_shape(shape: SymbolicShape, values: Mapping[str, int]) -> tuple[int, ...]:
    """Every size of a shape as a number.

    Raises:  as `bind`.
    """
    return tuple(bind(size, values) for size in shape)


def _broadcast_numbers(x: int, y: int) -> int:
    if x == y or y == 1:
        return x
    if x == 1:
        return y
    raise ShapeError("broadcast", "extents", "", f"{x} and {y}", "equal, or one of them 1", "align the operands")


def _divide_numbers(x: int, y: int) -> int:
    if y == 0:
        raise _zero()
    return x // y


def _zero() -> ShapeError:
    return ShapeError("floor_divide", "divisor", "", 0, "another size", "divide by something else")


_NUMERIC: dict[str, Callable[[int, int], int]] = {
    "min": min,
    "max": max,
    "floordiv": _divide_numbers,
    "broadcast": _broadcast_numbers,
}


def _call(operation: str, x: Size, y: Size) -> Size:
    if isinstance(x, int) and isinstance(y, int):
        return _NUMERIC[operation](x, y)
    arguments = (x, y) if operation == "floordiv" else tuple(sorted((x, y), key=str))
    return Dim((((_SizeCall(operation, arguments),), 1),))


def _terms(size: Size) -> tuple[tuple[_Monomial, int], ...]:
    return size.terms if isinstance(size, Dim) else (((), size),)


def _canonical(total: dict[_Monomial, int]) -> Size:
    terms = tuple(sorted(((m, c) for m, c in total.items() if c), key=lambda term: (-len(term[0]), str(term[0]))))
    if not terms:
        return 0
    return terms[0][1] if terms[0][0] == () else Dim(terms)


def _exact_quotient(x: Size, y: Size) -> Size | None:
    """x / y where y is one monomial that divides every term of x, else None."""
    if isinstance(x, int) and isinstance(y, int):
        return x // y
    divisor = _terms(y)
    if len(divisor) != 1:
        return 1 if x == y else None
    (atoms, by) = divisor[0]
    quotient: dict[_Monomial, int] = {}
    for monomial, coefficient in _terms(x):
        rest = list(monomial)
        for atom in atoms:
            if atom not in rest:
                return None
            rest.remove(atom)
        if coefficient % by:
            return None
        quotient[tuple(rest)] = coefficient // by
    return _canonical(quotient)
