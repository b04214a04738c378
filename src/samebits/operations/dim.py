"""Sizes that may be symbols: integer polynomials over names, kept in one canonical form.

A size is a plain `int`, or a `Dim` where a symbol is left in it; arithmetic gives back an `int` as soon as it can. Two
sizes that are equal as polynomials are equal as Python values, which is what lets the transforms prove that two shapes
agree before anything is bound. Division, `min`, `max` and broadcasting are atoms of the polynomial: they compare by
their arguments, of which the last three take any number, so that chains of them do not nest.

A size is printed, sorted, compared and bound by its form, and a form used twice doubles (`s * s`, `s // 2 + s`): none
may become larger than `_LARGEST`, deeper than `_DEEPEST`, or have larger numbers than `_NUMBERS`. Start at `symbol` and
`bind`.
"""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field

from samebits.errors import ShapeError, printable
from samebits.frozen import dataclass

__all__ = [
    "Dim",
    "Size",
    "SymbolicShape",
    "are_known",
    "bind",
    "bind_shape",
    "branches",
    "broadcast",
    "broadcast_shapes",
    "floor_divide",
    "is_at_most",
    "is_never_negative",
    "maximum",
    "minimum",
    "product",
    "symbol",
    "symbols",
]


# What a size may be made of, counting names, numbers and operations; and how deep operations may lie in each other.
# Shapes of real models have a dozen.
_LARGEST = 256
_DEEPEST = 32
# Coefficients; room for sums of a few int64.
_NUMBERS = range(-(2**66), 2**66)
# So many letters of a name count as one, since names are printed and compared too.
_LETTERS = 64


@dataclass(frozen=True, slots=True)
class _Symbol:
    """A size given by its name."""

    name: str

    @property
    def weight(self) -> int:
        """How much of `_LARGEST` it takes."""
        return 1 + len(self.name) // _LETTERS

    @property
    def depth(self) -> int:
        """How many operations lie in each other."""
        return 0

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class _SizeCall:
    """An operation on sizes that is no polynomial."""

    operation: str
    arguments: tuple[Size, ...]

    @property
    def weight(self) -> int:
        """How much of `_LARGEST` it takes."""
        return 1 + sum(map(_weight, self.arguments))

    @property
    def depth(self) -> int:
        """How many operations lie in each other."""
        return 1 + max(size.depth for size in self.arguments if isinstance(size, Dim))

    def __str__(self) -> str:
        return f"{self.operation}({', '.join(map(str, self.arguments))})"


_Atom = _Symbol | _SizeCall
_Monomial = tuple[_Atom, ...]


@dataclass(frozen=True, slots=True)
class Dim:
    """sum of coefficient * atom * atom * ...; the monomials sorted, no coefficient zero, at least one atom in all.

    Attributes:
        terms: The monomials with their coefficients.
        weight: How many names, numbers and operations it is made of.
        depth: How many operations lie in each other.
    """

    terms: tuple[tuple[_Monomial, int], ...]
    weight: int = field(init=False, compare=False)
    depth: int = field(init=False, compare=False)
    _hash: int = field(init=False, compare=False)

    def __post_init__(self) -> None:
        atoms = [atom for monomial, _ in self.terms for atom in monomial]
        object.__setattr__(self, "weight", len(self.terms) + sum(atom.weight for atom in atoms))
        object.__setattr__(self, "depth", max(atom.depth for atom in atoms))
        object.__setattr__(self, "_hash", hash(self.terms))

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> tuple[type[Dim], tuple[object, ...]]:
        return Dim, (self.terms,)  # another process hashes otherwise

    def __add__(self, other: Size) -> Size:
        total = dict(self.terms)
        for monomial, coefficient in _terms(other):
            total[monomial] = total.get(monomial, 0) + coefficient
        return _canonical(total)

    def __mul__(self, other: Size) -> Size:
        # Terms that come out alike are added up, which is no reason to multiply without end.
        if len(self.terms) * _weight(other) + len(_terms(other)) * self.weight > 4 * _LARGEST:
            raise _too_large()
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

    def __repr__(self) -> str:
        return printable(str(self))


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


def broadcast_shapes(shapes: Sequence[SymbolicShape]) -> SymbolicShape:
    """The shape that all of them broadcast to, aligned at the last axis.

    Raises:  ShapeError if two extents do not fit.
    """
    first, *others = shapes or [()]
    if all(shape == first for shape in others):
        return first
    rank = max(map(len, shapes))
    padded = [(1,) * (rank - len(shape)) + shape for shape in shapes]
    one: Size = 1
    return tuple(functools.reduce(broadcast, sizes, one) for sizes in zip(*padded, strict=True))


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
    return len(arguments) == 2 and other in arguments and any(isinstance(cap, int) and cap >= 2 for cap in arguments)


def are_known(*sizes: Size) -> bool:
    """Whether no symbol is left in any of them."""
    return not any(isinstance(size, Dim) for size in sizes)


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


def is_at_most(x: Size, y: Size) -> bool:
    """Whether no values of their symbols make x larger than y, as far as their forms show."""
    sizes = (x, *_inner("min", x))
    return any(size == y or (isinstance(size, int) and isinstance(y, int) and size < y) for size in sizes)


def product(sizes: Sequence[Size]) -> Size:
    """The product of all; 1 for none."""
    if any(type(size) is Dim for size in sizes):
        return _product(tuple(sizes))
    return functools.reduce(operator.mul, sizes, 1)


@functools.lru_cache(maxsize=4096)
def _product(sizes: SymbolicShape) -> Size:
    """A model has few shapes, and asks for their elements again and again."""
    return functools.reduce(operator.mul, sizes, 1)


def symbols(size: Size) -> frozenset[str]:
    """The names that `size` depends on."""
    if not isinstance(size, Dim):
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
    if not isinstance(size, Dim):
        return size
    total = 0
    for monomial, coefficient in size.terms:
        for atom in monomial:
            if isinstance(atom, _Symbol):
                coefficient *= values[atom.name]
            else:
                numbers = [bind(argument, values) for argument in atom.arguments]
                coefficient *= functools.reduce(_NUMERIC[atom.operation], numbers)
        total += coefficient
    return total


def bind_shape(shape: SymbolicShape, values: Mapping[str, int]) -> tuple[int, ...]:
    """Every size of a shape as a number.

    Raises:  as `bind`.
    """
    return tuple(bind(size, values) for size in shape)


def branches(size: Size, values: Mapping[str, int]) -> tuple[int, ...]:
    """Of each operation in a size that is no polynomial, which way it goes: the signs of its arguments' differences.

    Where these do not change, the size is one polynomial of its symbols; the sign of a quotient is 1 from the first
    multiple of its divisor on.

    Raises:  as `bind`.
    """
    if not isinstance(size, Dim):
        return ()
    found: list[int] = []
    for monomial, _ in size.terms:
        for atom in monomial:
            if isinstance(atom, _SizeCall):
                numbers = [bind(argument, values) for argument in atom.arguments]
                for x, y in itertools.combinations(numbers, 2):
                    found.append(1 if x == y and atom.operation == "floordiv" else (x > y) - (x < y))
                found += [way for argument in atom.arguments for way in branches(argument, values)]
    return tuple(found)


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
    if not isinstance(x, Dim) and not isinstance(y, Dim):
        return _NUMERIC[operation](x, y)
    arguments = (x, y) if operation == "floordiv" else _flat(operation, x, y)
    return _limited((((_SizeCall(operation, arguments),), 1),)) if len(arguments) > 1 else arguments[0]


def _flat(operation: str, x: Size, y: Size) -> tuple[Size, ...]:
    """The arguments of op(x, y), those of an inner op in their place: each once, sorted, the numbers as one."""
    arguments = (*_inner(operation, x), *_inner(operation, y))
    numbers = [size for size in arguments if isinstance(size, int)]
    sizes: list[Size] = [size for size in dict.fromkeys(arguments) if isinstance(size, Dim)]
    if numbers and (number := functools.reduce(_NUMERIC[operation], numbers), operation) != (1, "broadcast"):
        sizes.append(number)
    return tuple(sorted(sizes, key=str))


def _inner(operation: str, size: Size) -> tuple[Size, ...]:
    """Sizes whose op is this size: those of op(a, b) + n are a + n and b + n, but for broadcasting; else itself."""
    if isinstance(size, int):
        return (size,)
    (atoms, coefficient), *rest = size.terms
    number = rest[0][1] if rest and rest[0][0] == () else 0
    call = atoms[0]
    alone = len(atoms) == coefficient == 1 and len(rest) == (number != 0)
    if (
        not alone
        or not isinstance(call, _SizeCall)
        or call.operation != operation
        or (operation == "broadcast" and number)
    ):
        return (size,)
    return tuple(argument + number for argument in call.arguments)


def _limited(terms: tuple[tuple[_Monomial, int], ...]) -> Dim:
    """These terms as a size.

    Raises:  ShapeError if it is too large to be computed with.
    """
    made = Dim(terms)
    if made.weight > _LARGEST:
        raise _too_large()
    if made.depth > _DEEPEST:
        actual, expected = f"nested more than {_DEEPEST} operations deep", "simpler"
        raise ShapeError("dim", "a size", "", actual, expected, "compute less with the shapes of the model")
    if any(coefficient not in _NUMBERS for _, coefficient in terms):
        raise ShapeError("dim", "a size", "", "a multiple beyond 66 bits", "an int64", "check the model")
    return made


def _too_large() -> ShapeError:
    actual = f"made of more than {_LARGEST} names, numbers and operations"
    return ShapeError("dim", "a size", "", actual, "simpler", "compute less with the shapes of the model")


def _weight(size: Size) -> int:
    return size.weight if isinstance(size, Dim) else 1


def _terms(size: Size) -> tuple[tuple[_Monomial, int], ...]:
    return size.terms if isinstance(size, Dim) else (((), size),)


def _canonical(total: dict[_Monomial, int]) -> Size:
    terms = tuple(sorted(((m, c) for m, c in total.items() if c), key=lambda term: (-len(term[0]), str(term[0]))))
    if not terms:
        return 0
    return terms[0][1] if terms[0][0] == () else _limited(terms)


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
