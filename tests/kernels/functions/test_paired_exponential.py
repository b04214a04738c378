"""exp by pairs of float32: whatever single lanes ask for, every lane has the bits of exp by NumPy and Decimal."""

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
from samebits.kernels.functions import decimals, paired_exponential

WITHIN = paired_exponential._WITHIN
B = NumpyBuilder(KernelSpec(elementwise.text, (), (), rows.ALL_ROWS[0]), [], 0, 0, 0)


def computed(row: Isa, x: np.ndarray) -> np.ndarray:
    """exp by a row's kernel."""
    chain, out = Chain(), np.empty_like(x)
    e = chain.finish(chain.apply("exp", chain.input(dtypes.float32)))
    launch.run_plan(elementwise.plan(e, launch.layouts(x), launch.layouts(out), row), [x, out])
    return out


def pair(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """high and low."""
    high, low = paired_exponential.pair(B, ArrayVector(dtypes.float32, x), paired_exponential._MARGIN)
    return high.lanes, low.lanes


def in_doubt(x: np.ndarray) -> np.ndarray:
    """Where high + low does not tell which way the result rounds."""
    high, low = pair(x)
    more = (high.astype(np.float64) * (2 * paired_exponential._MARGIN) + low).astype(np.float32)
    return np.asarray(high + low != high + more)


@pytest.mark.parametrize("row", rows.ALL_ROWS, ids=lambda row: row.name)
def test_one_lane_does_not_change_its_neighbours(row: Isa) -> None:
    """Lanes that leave the pair in doubt, lie outside its range, are nothing or NaN, alone among quick ones."""
    many = np.random.default_rng(0).uniform(-30, 30, 100_000).astype(np.float32)
    doubtful = many[in_doubt(many)]
    assert 20 < len(doubtful) < 100  # one lane in 2300
    edges = [WITHIN, -WITHIN, 87.3, 88.73, 89.0, -87.4, -103.9, -103.98, -104.0, -104.5, -1e9, np.inf, -np.inf, np.nan]
    given = np.concatenate([doubtful, np.array(edges, np.float32)])
    given = np.concatenate([given, np.nextafter(given, np.float32(0)), np.nextafter(given, np.float32(-np.inf))])
    x = np.random.default_rng(1).uniform(-20, 2, (len(given), 64)).astype(np.float32)
    x[np.arange(len(given)), np.arange(len(given)) % 64] = given
    x[:, 63] = -np.inf  # what a mask leaves
    launch.assert_bits(computed(row, x), decimals.exp(x), row.name)


def test_the_pair_errs_by_less_than_the_margin() -> None:
    """high + low, of all residues of k, beside float64."""
    x = np.random.default_rng(2).uniform(-WITHIN, WITHIN, 200_000).astype(np.float32)
    high, low = pair(x)
    found = high.astype(np.float64) + low
    error = found / np.exp(x.astype(np.float64)) - (1 - 1.25 * 2.0**-36)
    assert np.abs(error).max() < 2.0**-36
