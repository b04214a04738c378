"""Shared bits: the exact solver against brute force and NumPy, and its limit."""

import itertools
import random

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from samebits.layout import Layout
from samebits.layout.aliasing import reaches


@given(
    st.lists(st.tuples(st.integers(-12, 12), st.integers(0, 4)), max_size=4), st.integers(-60, 60), st.integers(0, 5)
)
def test_reaches_equals_trying_all(terms: list[tuple[int, int]], low: int, width: int) -> None:
    sums = {
        sum(c * x for (c, _), x in zip(terms, xs, strict=True))
        for xs in itertools.product(*[range(bound + 1) for _, bound in terms])
    }
    assert reaches(terms, low, low + width) == any(low <= value <= low + width for value in sums)


def test_reaches_equals_trying_all_for_every_small_pair() -> None:
    """Joining two coefficients is right to the last one that leaves no gap."""
    for a, b in itertools.combinations(range(2, 9), 2):
        for x_bound, y_bound in itertools.product(range(1, 4), repeat=2):
            sums = {a * x + b * y for x in range(x_bound + 1) for y in range(y_bound + 1)}
            for low, width in itertools.product(range(max(sums) + 2), range(2)):
                found = reaches([(a, x_bound), (b, y_bound)], low, low + width)
                assert found == bool(sums & {low, low + width})


def test_large_strides_are_decided_too() -> None:
    """Coprime strides of a million rows: far beyond trying all, and beyond a fast path."""
    rows = 10**6
    assert Layout((rows, rows), (8 * (rows + 1), 8 * rows), 0, 8).is_unique() is True
    assert Layout((rows + 1, rows + 2), (8 * (rows + 1), 8 * rows), 0, 8).is_unique() is False
    assert Layout((rows + 1, rows + 1), (8 * (rows + 1), 8 * rows), 0, 8).is_unique() is True
    evens = Layout.dense((2**40,), width_bits=8)[::2]
    odds = Layout.dense((2**40,), width_bits=8)[1::2]
    assert evens.overlaps(odds) is False
    assert evens.overlaps(odds, 8) is True
    assert evens.overlaps(evens.flip(0)) is True


def test_overlaps_equals_numpy_shares_memory() -> None:
    memory = np.zeros(1 << 16, np.uint8)
    rng = random.Random(3)
    for _ in range(300):
        pair = []
        for _ in range(2):
            shape = tuple(rng.randint(1, 12) for _ in range(3))
            strides = tuple(rng.randint(0, 400) for _ in range(3))
            start = rng.randint(0, 6000)
            view = np.lib.stride_tricks.as_strided(memory[start:], shape, strides)
            pair.append((view, Layout.from_byte_strides(shape, strides, start, width_bits=8)))
        (one, mine), (other, theirs) = pair
        assert mine.overlaps(theirs) == np.shares_memory(one, other)


def test_past_the_limit_the_answer_is_none_and_never_wrong() -> None:
    rng = random.Random(4)
    undecided = 0
    for _ in range(200):
        shape = tuple(rng.randint(2, 5) for _ in range(4))
        layout = Layout(shape, tuple(8 * rng.randint(1, 60) for _ in shape), 0, 8)
        exact, hurried = layout.is_unique(), layout.is_unique(work=1)
        assert exact is not None
        assert hurried in (exact, None)
        undecided += hurried is None
        other = Layout((3, 3), (8 * 31, 8 * 7), 3000, 5)
        assert layout.overlaps(other, work=1) in (layout.overlaps(other), None)
    assert undecided


def test_hard_layouts_end_soon() -> None:
    """A knapsack of 40 axes: given up, not waited for."""
    rng = random.Random(5)
    layout = Layout((2,) * 40, tuple(16 * rng.randrange(2**38, 2**39) for _ in range(40)), 8, 8)
    assert layout.overlaps(Layout((), (), 2**43, 8)) is False
    even = Layout((2,) * 40, tuple(8 * rng.randrange(2**38, 2**39) for _ in range(40)), 0, 8)
    assert even.overlaps(Layout((), (), 8 * 5 * 2**40 + 8, 8), work=2000) in (None, True)
