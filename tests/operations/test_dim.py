"""Sizes: equal polynomials are equal values, and binding is evaluation."""

import functools
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from samebits.errors import ShapeError
from samebits.operations import dim

A, B = dim.symbol("a"), dim.symbol("b")
NUMBERS = st.integers(-6, 6)
POSITIVE = st.integers(1, 9)


@st.composite
def sizes(draw: st.DrawFn) -> dim.Size:
    """A size made of a, b and numbers."""
    size: dim.Size = draw(st.sampled_from([A, B, 1, 2, 3]))
    for _ in range(draw(st.integers(0, 4))):
        other: dim.Size = draw(st.sampled_from([A, B, 2, 5]))
        operation = draw(st.sampled_from(["+", "*", "-", "min", "max"]))
        size = {
            "+": lambda x, y: x + y,
            "*": lambda x, y: x * y,
            "-": lambda x, y: x - y,
            "min": dim.minimum,
            "max": dim.maximum,
        }[operation](size, other)
    return size


@given(sizes(), sizes(), POSITIVE, POSITIVE)
def test_bind_is_a_homomorphism(x: dim.Size, y: dim.Size, a: int, b: int) -> None:
    values = {"a": a, "b": b}
    p, q = dim.bind(x, values), dim.bind(y, values)
    assert dim.bind(x + y, values) == p + q
    assert dim.bind(x * y, values) == p * q
    assert dim.bind(x - y, values) == p - q
    assert dim.bind(dim.minimum(x, y), values) == min(p, q)
    assert dim.bind(dim.maximum(x, y), values) == max(p, q)
    if q > 0:
        assert dim.bind(dim.floor_divide(x, y), values) == p // q


@given(sizes(), sizes(), sizes())
def test_sums_and_products_have_one_form(x: dim.Size, y: dim.Size, z: dim.Size) -> None:
    assert x + y == y + x
    assert x * y == y * x
    assert (x + y) + z == x + (y + z)
    assert x * (y + z) == x * y + x * z
    assert x - x == 0


def test_division_is_exact_where_it_can_be() -> None:
    assert dim.floor_divide(384 * A * B, 32 * A * B) == 12
    assert dim.floor_divide(6 * A + 4 * B, 2) == 3 * A + 2 * B
    assert str(dim.floor_divide(A + 1, 2)) == "floordiv(a+1, 2)"


@pytest.mark.parametrize(("a", "b", "expected"), [(1, 5, 5), (5, 1, 5), (4, 4, 4), (1, 0, 0)])
def test_broadcast_follows_numpy(a: int, b: int, expected: int) -> None:
    assert dim.bind(dim.broadcast(A, B), {"a": a, "b": b}) == expected


def test_broadcast_of_numbers_that_do_not_fit_is_refused() -> None:
    with pytest.raises(ShapeError) as error:
        dim.bind(dim.broadcast(A, B), {"a": 2, "b": 3})
    assert str(error.value) == "broadcast: extents is 2 and 3, must be equal, or one of them 1; align the operands"


def test_a_table_cut_to_a_size_broadcasts_to_that_size() -> None:
    assert dim.broadcast(dim.minimum(512, A), A) == A


def test_sizes_print_as_polynomials() -> None:
    assert str(2 * A * B - A + 3) == "2*a*b-a+3"
    assert dim.symbols(dim.maximum(A, B) * 2) == {"a", "b"}


@given(sizes(), st.integers(0, 9), st.integers(0, 9))
def test_what_is_never_negative_is_not(x: dim.Size, a: int, b: int) -> None:
    if dim.is_never_negative(x):
        assert dim.bind(x, {"a": a, "b": b}) >= 0
    assert dim.is_never_negative(dim.maximum(x, 0))


@given(sizes(), sizes(), st.integers(0, 9), st.integers(0, 9))
def test_what_is_at_most_another_is(x: dim.Size, y: dim.Size, a: int, b: int) -> None:
    values = {"a": a, "b": b}
    for size, limit in ((x, y), (dim.minimum(x, y), y), (dim.minimum(y, 3), 4), (x, x)):
        if dim.is_at_most(size, limit):
            assert dim.bind(size, values) <= dim.bind(limit, values)
    assert dim.is_at_most(x, x)
    assert dim.is_at_most(dim.minimum(x, 3), 3) or x == 3


def test_what_may_be_larger_is_not_at_most_another() -> None:
    assert dim.is_at_most(dim.minimum(A, 512), 512)
    assert dim.is_at_most(3, 4)
    assert not dim.is_at_most(5, 4)
    assert not dim.is_at_most(A, 512)
    assert not dim.is_at_most(dim.minimum(A, 513), 512)
    assert not dim.is_at_most(A, B)


def test_a_divisor_that_is_zero() -> None:
    for call in (lambda: dim.floor_divide(A, 0), lambda: dim.bind(dim.floor_divide(A, B), {"a": 1, "b": 0})):
        with pytest.raises(ShapeError) as error:
            call()
        assert str(error.value) == "floor_divide: divisor is 0, must be another size; divide by something else"


# -- no form grows without end --------------------------------------------------------------------------------------

GROWTH = {
    "a power": lambda x: x * x,
    "a quotient beside its dividend": lambda x: dim.floor_divide(x, 2) + x,
    "a quotient of itself": lambda x: dim.floor_divide(x + 1, dim.floor_divide(x, 3)),
    "a remainder": lambda x: x - dim.floor_divide(x, 3) * 3,
    "a minimum": lambda x: dim.minimum(x * B, x + 1) + x,
    "a maximum": lambda x: dim.maximum(x * -1, x * 2 - B),
    "a broadcast": lambda x: dim.broadcast(x + 1, x * 2),
    "a difference": lambda x: (x - B) * (x + B),
    "many terms": lambda x: x * (x + dim.symbol(f"n{x.weight}")),
    "a multiple": lambda x: x * 2**40,
    "operations in each other": lambda x: dim.floor_divide(x + 1, 2),
    "a long name": lambda x: x + dim.symbol(str(x) * 2),
}


@pytest.mark.parametrize("grow", GROWTH.values(), ids=GROWTH.keys())
def test_a_size_that_grows_is_refused_while_it_is_small(grow: Callable[[Any], dim.Size]) -> None:
    with pytest.raises(ShapeError, match=r"dim: a size is .*, must be (simpler|an int64); "):
        grown(grow, 60)


def grown(grow: Callable[[Any], dim.Size], times: int) -> None:
    """Grow a size again and again; it is never large."""
    size: dim.Size = A
    for _ in range(times):
        size = grow(size)
        assert isinstance(size, dim.Dim)
        assert size.weight <= 256
        assert len(str(size)) <= 256 * 64


def test_many_sizes_side_by_side_do_not_nest() -> None:
    many = [dim.symbol(f"n{i}") for i in range(100)]
    for operation in (dim.broadcast, dim.maximum, dim.minimum):
        size = functools.reduce(operation, many)
        assert size == functools.reduce(operation, many[::-1])
        assert isinstance(size, dim.Dim)
        assert size.depth == 1
        assert dim.bind(size, {f"n{i}": 7 for i in range(100)}) == 7


def test_a_number_added_to_a_maximum_is_added_inside() -> None:
    size: dim.Size = A
    for _ in range(100):
        size = dim.maximum(size - 1, 0)
    assert size == dim.maximum(A - 100, 0)
    assert dim.minimum(dim.minimum(A, B) + 2, 9) == dim.minimum(dim.minimum(A + 2, 9), B + 2)


# -- where a size changes its form ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("size", "values", "ways"),
    [
        (7, {}, ()),
        (A * 3 + 1, {"a": 5}, ()),
        (dim.minimum(A, 17), {"a": 16}, (1,)),
        (dim.minimum(A, 17), {"a": 17}, (0,)),
        (dim.minimum(A, 17), {"a": 18}, (-1,)),
        (dim.floor_divide(A, 4), {"a": 3}, (-1,)),
        (dim.floor_divide(A, 4), {"a": 4}, (1,)),
        (dim.minimum(dim.minimum(A, B), 17), {"a": 5, "b": 20}, (1, -1, -1)),
        (dim.maximum(dim.minimum(A, 9) - 4, 0), {"a": 3}, (1, 1)),
    ],
    ids=str,
)
def test_branches_are_the_signs_of_what_is_compared(
    size: dim.Size, values: dict[str, int], ways: tuple[int, ...]
) -> None:
    assert dim.branches(size, values) == ways


@given(sizes(), st.tuples(POSITIVE, POSITIVE), st.tuples(POSITIVE, POSITIVE))
def test_where_branches_are_the_same_and_never_even_a_size_is_one_polynomial(
    size: dim.Size, here: tuple[int, int], there: tuple[int, int]
) -> None:
    """On a line between two such places the values of a size of one form and of degree 1 are on a line too."""
    first, second = dict(zip("ab", here, strict=True)), dict(zip("ab", there, strict=True))
    last = {name: 2 * second[name] - first[name] for name in "ab"}
    ways = {dim.branches(size, values) for values in (first, second, last)}
    is_linear = "*" not in str(size)
    if len(ways) == 1 and 0 not in ways.pop() and is_linear:
        assert dim.bind(size, last) - dim.bind(size, second) == dim.bind(size, second) - dim.bind(size, first)
