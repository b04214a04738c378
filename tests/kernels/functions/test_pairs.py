"""Sums and products of pairs are exact, or err by what their module says, told by fractions."""

import functools
import operator
from fractions import Fraction

import numpy as np
import rows

from samebits import dtypes
from samebits.codegen.interpreter import ArrayVector, NumpyBuilder
from samebits.codegen.vocabulary import KernelSpec
from samebits.kernels import elementwise
from samebits.kernels.functions import pairs

B = NumpyBuilder(KernelSpec(elementwise.text, (), (), rows.ALL_ROWS[0]), [], 0, 0, 0)
RANDOM = np.random.default_rng(1)
X, Y = (RANDOM.normal(size=300) * 2.0 ** RANDOM.integers(-60, 60, 300) for _ in range(2))


def vector(x: np.ndarray) -> ArrayVector:
    return ArrayVector(dtypes.float64, np.asarray(x, np.float64))


def exact(*vectors: ArrayVector) -> list[Fraction]:
    """The sums of their lanes."""
    columns = zip(*(v.lanes.tolist() for v in vectors), strict=True)
    return [functools.reduce(operator.add, map(Fraction, lanes)) for lanes in columns]


def test_sums_are_exact() -> None:
    due = [Fraction(x) + Fraction(y) for x, y in zip(X.tolist(), Y.tolist(), strict=True)]
    assert exact(*pairs.sum_of(B, vector(X), vector(Y))) == due
    larger, smaller = np.where(abs(X) > abs(Y), X, Y), np.where(abs(X) > abs(Y), Y, X)
    assert exact(*pairs.ordered_sum(B, vector(larger), vector(smaller))) == due
    assert exact(*pairs.ordered_sum(B, vector(0 * X), vector(Y))) == [Fraction(y) for y in Y.tolist()]


def test_products_err_by_104_bits() -> None:
    left, right = ((vector(v), vector(v * 2.0**-54 * RANDOM.uniform(-1, 1, 300))) for v in (X, Y))
    found = exact(*pairs.product(B, left, right))
    for value, x, y in zip(found, exact(*left), exact(*right), strict=True):
        assert abs(value / (x * y) - 1) < Fraction(1, 1 << 103)


def test_series_err_by_103_bits() -> None:
    terms = [Fraction(1, k + 1) for k in range(30)]
    x = RANDOM.uniform(-0.5, 0.5, 300)
    argument = (vector(x), vector(x * 2.0**-54))
    found = exact(*pairs.series(B, argument, terms, 20))
    for value, v in zip(found, exact(*argument), strict=True):
        due = sum(term * v**k for k, term in enumerate(terms))
        assert abs(value / due - 1) < Fraction(1, 1 << 70)


def test_rounding_to_odd_leaves_the_last_rounding_to_whoever_comes_next() -> None:
    high = 1 + RANDOM.integers(0, 1 << 52, 300) * 2.0**-52
    high[:100] = 1 + (2 * RANDOM.integers(0, 1 << 23, 100) + 1) * 2.0**-24  # the middle of two float32
    low = RANDOM.choice([-1.0, 0.0, 1.0], 300) * 2.0**-54
    found = pairs.odd(B, (vector(high), vector(low))).lanes
    for value, h, part in zip(found.tolist(), high.tolist(), low.tolist(), strict=True):
        total = Fraction(h) + Fraction(part)
        units = total * (1 << 23)
        assert np.float32(value) == float(round(units)) / (1 << 23)
