"""Sizes: equal polynomials are equal values, and binding is evaluation."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from samebits.errors import ShapeError
from samebits.program import dim

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


def test_a_divisor_that_is_zero() -> None:
    for call in (lambda: dim.floor_divide(A, 0), lambda: dim.bind(dim.floor_divide(A, B), {"a": 1, "b": 0})):
        with pytest.raises(ShapeError) as error:
            call()
        assert str(error.value) == "floor_divide: divisor is 0, must be another size; divide by something else"
