"""sigmoid and tanh by pairs of float32: whatever single lanes ask for, every lane has the bits of NumPy and Decimal."""

import launch
import numpy as np
import pytest
import rows
import torch

from samebits import dtypes
from samebits.codegen.interpreter import ArrayVector, NumpyBuilder
from samebits.codegen.isa import Isa
from samebits.codegen.vocabulary import KernelSpec
from samebits.kernels import elementwise
from samebits.kernels.expression import Chain
from samebits.kernels.functions import decimals, paired_quotients

B = NumpyBuilder(KernelSpec(elementwise.text, (), (), rows.ALL_ROWS[0]), [], 0, 0, 0)
SEEDS = {"sigmoid": 0, "tanh": 1}
EDGES = [75.0, 75.01, 104.0, 18.0, 17.33, 9.015625, 9.02, 1e30, np.inf, 0.0054, 0.35, 2.0**-12, 2.0**-126, 2.0**-149, 0]


def computed(name: str, row: Isa, x: np.ndarray) -> np.ndarray:
    """The function by a row's kernel."""
    chain, out = Chain(), np.empty_like(x)
    e = chain.finish(chain.apply(name, chain.input(dtypes.float32)))
    launch.run_plan(elementwise.plan(e, launch.layouts(x), launch.layouts(out), row), [x, out])
    return out


def pair(name: str, x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """high, low and the margin, in float64."""
    given = ArrayVector(dtypes.float32, x)
    if name == "tanh":
        high, low, margin = (part.lanes.astype(np.float64) for part in paired_quotients._tanh_pair(B, given))
        return high, low, margin
    high, low = (part.lanes.astype(np.float64) for part in paired_quotients._sigmoid_pair(B, given))
    return high, low, high * paired_quotients._MARGIN


def in_doubt(name: str, x: np.ndarray) -> np.ndarray:
    """Where high + low does not tell which way the result rounds."""
    high, low, margin = pair(name, x)
    return np.asarray((high + (low - margin)).astype(np.float32) != (high + (low + margin)).astype(np.float32))


@pytest.mark.parametrize("name", SEEDS)
@pytest.mark.parametrize("row", rows.ALL_ROWS, ids=lambda row: row.name)
def test_one_lane_does_not_change_its_neighbours(row: Isa, name: str) -> None:
    """Lanes that leave the pair in doubt or lie outside its range, zeros and NaN, among quick ones."""
    many = (9 * np.random.default_rng(SEEDS[name]).uniform(0, 1, 40_000) ** 2).astype(np.float32)
    doubtful = many[in_doubt(name, many)]
    assert 3 < len(doubtful) < 80
    given = np.concatenate([doubtful, np.array(EDGES, np.float32)])
    given = np.concatenate([given, np.nextafter(given, np.float32(0)), np.nextafter(given, np.float32(np.inf))])
    given = np.concatenate([given, -given, np.array([np.nan], np.float32)])
    x = np.random.default_rng(2).uniform(-4, 4, (len(given), 16)).astype(np.float32)
    x[np.arange(len(given)), np.arange(len(given)) % 15] = given
    x[:, 15] = -0.0
    due = getattr(decimals, name)(x)
    due[np.isnan(due)] = np.nan
    launch.assert_bits(computed(name, row, x), due, row.name)


@pytest.mark.parametrize("name", SEEDS)
def test_the_pair_errs_by_less_than_the_margin(name: str) -> None:
    """high + low about every step of e**x and near 0, beside torch in float64."""
    x = np.random.default_rng(3).uniform(0, 9, 300_000).astype(np.float32)
    x[::3] *= np.float32(0.01)
    x[::4] *= np.float32(0.05)
    if name == "sigmoid":
        x[1::2] *= np.float32(-8)
    high, low, margin = pair(name, x)
    right = getattr(torch, name)(torch.from_numpy(x.astype(np.float64))).numpy()
    assert np.all(np.abs(high - right + low) < margin)
