"""Logarithms by pairs of float32: whatever single lanes ask for, every lane has the bits by NumPy and Decimal."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import launch
import numpy as np
import pytest
import rows

from samebits import dtypes
from samebits.codegen.interpreter import ArrayVector, NumpyBuilder
from samebits.codegen.isa import Isa
from samebits.codegen.vocabulary import KernelSpec
from samebits.kernels import elementwise
from samebits.kernels.expression import Chain
from samebits.kernels.functions import decimals, paired_logarithm

B = NumpyBuilder(KernelSpec(elementwise.text, (), (), rows.ALL_ROWS[0]), [], 0, 0, 0)
# Ends of the pieces of m, and of what is computed in pairs.
ENDS = (np.arange(33, dtype=np.int32) * (1 << 18) + paired_logarithm._LEAST).view(np.float32)
EDGES = (1.0, 10.0, 1e10, 2.0, 0.5, 2.0**-126, 2.0**-149, 2.0**126, 2.0**127, np.inf, 0.0, -0.0, -1.0, -2.0, np.nan)


@dataclass(frozen=True)
class Logarithm:
    """A function, what it takes its own pair of x by, and what of its argument the logarithm is of."""

    name: str
    pair: Callable[..., Any]
    less: float = 0.0

    def __str__(self) -> str:
        return self.name

    def parts(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """high, low and the margin."""
        high, low, margin = (part.lanes for part in self.pair(B, ArrayVector(dtypes.float32, x)))
        return high, low, margin

    def in_doubt(self, x: np.ndarray) -> np.ndarray:
        """Where high + low does not tell which way the result rounds."""
        high, low, margin = self.parts(x)
        return np.asarray(high + (low - margin) != high + (low + margin))


ALL = (
    Logarithm("log", paired_logarithm.pair),
    Logarithm("log2", paired_logarithm.pair_of_2),
    Logarithm("log10", paired_logarithm.pair_of_10),
    Logarithm("log1p", paired_logarithm.pair_of_sum, 1.0),
)


def computed(row: Isa, name: str, x: np.ndarray) -> np.ndarray:
    """The function by a row's kernel."""
    chain, out = Chain(), np.empty_like(x)
    e = chain.finish(chain.apply(name, chain.input(dtypes.float32)))
    launch.run_plan(elementwise.plan(e, launch.layouts(x), launch.layouts(out), row), [x, out])
    return out


def numbers(function: Logarithm, seed: int, count: int) -> np.ndarray:
    """A third near 1, a third in its octave and the next, a third anywhere; less what the function adds."""
    random = np.random.default_rng(seed)
    near, beside = random.uniform(0.98, 1.03, count), random.uniform(0.5, 2, count)
    anywhere = np.exp(random.uniform(-86, 86, count))
    return (np.concatenate([near, beside, anywhere]) - function.less).astype(np.float32)


@pytest.mark.parametrize("function", ALL, ids=str)
@pytest.mark.parametrize("row", rows.ALL_ROWS, ids=lambda row: row.name)
def test_one_lane_does_not_change_its_neighbours(row: Isa, function: Logarithm) -> None:
    """Lanes that leave the pair in doubt, lie outside its range, are nothing or NaN, alone among quick ones."""
    many = numbers(function, 0, 3_000)
    many = many[many > -1] if function.less else many
    doubtful = many[function.in_doubt(many)]
    assert 3 < len(doubtful) < 200
    edges = np.array(EDGES, np.float32)
    given = np.concatenate([doubtful, edges, edges - 1, ENDS, ENDS - 1, ENDS * np.float32(4096)])
    given = np.concatenate([given, np.nextafter(given, np.float32(0)), np.nextafter(given, np.float32(np.inf))])
    x = np.random.default_rng(1).uniform(0.1, 9, (len(given), 32)).astype(np.float32)
    x[np.arange(len(given)), np.arange(len(given)) % 31] = given
    x[::2, 31] = 0.0  # what a mask leaves
    due = getattr(decimals, function.name)(x)
    due[np.isnan(due)] = np.nan
    launch.assert_bits(computed(row, function.name, x), due, row.name)


@pytest.mark.parametrize("function", ALL, ids=str)
def test_the_pair_errs_by_less_than_the_margin(function: Logarithm) -> None:
    """high + low beside float64, of all pieces; the margin of what is nearest to 0 is below float64's error."""
    x = numbers(function, 2, 200_000)
    x = x[(np.abs(x + np.float32(function.less) - 1) > 2.0**-12) & (x + np.float32(function.less) > 0)]
    high, low, margin = (part.astype(np.float64) for part in function.parts(x))
    right = getattr(np, function.name)(x.astype(np.float64))
    assert np.all(np.abs(high - right + low) < margin)
