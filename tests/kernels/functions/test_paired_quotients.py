"""sigmoid and tanh by pairs of float32: whatever single lanes ask for, every lane has the bits of NumPy and Decimal."""

import launch
import numpy as np
import pytest
import rows
import torch

from samebits import dtypes
from samebits.codegen import isa
from samebits.codegen.interpreter import ArrayVector, NumpyBuilder
from samebits.codegen.isa import Isa
from samebits.codegen.vocabulary import KernelSpec
from samebits.kernels import elementwise
from samebits.kernels.expression import Chain
from samebits.kernels.functions import decimals, paired_quotients

BUILDERS = {
    lanes: NumpyBuilder(KernelSpec(elementwise.text, (), (), isa.named(name)), [], 0, 0, 0)
    for lanes, name in ((8, "avx2"), (16, "avx512"))
}
SEEDS = {"sigmoid": 0, "tanh": 1}
EDGES = [75.0, 75.01, 104.0, 18.0, 17.33, 9.015625, 9.02, 1e30, np.inf, 0.0054, 0.35, 2.0**-12, 2.0**-126, 2.0**-149, 0]


def computed(name: str, row: Isa, x: np.ndarray) -> np.ndarray:
    """The function by a row's kernel."""
    chain, out = Chain(), np.empty_like(x)
    e = chain.finish(chain.apply(name, chain.input(dtypes.float32)))
    launch.run_plan(elementwise.plan(e, launch.layouts(x), launch.layouts(out), row), [x, out])
    return out


def limits(name: str, lanes: int, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The function of x, x >= 0 for tanh, less and more the margin, in float64."""
    given = ArrayVector(dtypes.float32, -2 * x if name == "tanh" else -x)
    found = paired_quotients._inverse(BUILDERS[lanes], given, name == "tanh")
    q, t, margin = (part.lanes.astype(np.float64) for part in found)
    scale, rest = (2 * q, 2 * q - 1) if name == "tanh" else (q, q)
    return rest + scale * (t - margin), rest + scale * (t + margin)


def in_doubt(name: str, lanes: int, x: np.ndarray) -> np.ndarray:
    """Where the pair does not tell which way the result rounds."""
    less, more = limits(name, lanes, x)
    return np.asarray(less.astype(np.float32) != more.astype(np.float32))


@pytest.mark.parametrize("name", SEEDS)
@pytest.mark.parametrize("row", rows.ALL_ROWS, ids=lambda row: row.name)
def test_one_lane_does_not_change_its_neighbours(row: Isa, name: str) -> None:
    """Lanes that leave the pair in doubt or lie outside its range, zeros and NaN, among quick ones."""
    lanes = 16 if row.lanes >= 16 else 8
    many = (9 * np.random.default_rng(SEEDS[name]).uniform(0, 1, 40_000) ** 2).astype(np.float32)
    doubtful = many[in_doubt(name, lanes, many)]
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


@pytest.mark.parametrize("lanes", BUILDERS)
@pytest.mark.parametrize("name", SEEDS)
def test_the_pair_errs_by_less_than_the_margin(name: str, lanes: int) -> None:
    """The pair about every step of e**x and near 0, beside torch in float64."""
    x = np.random.default_rng(3).uniform(0, 9, 300_000).astype(np.float32)
    x[::3] *= np.float32(0.01)
    x[::4] *= np.float32(0.05)
    if name == "sigmoid":
        x[1::2] *= np.float32(-8)
    less, more = limits(name, lanes, x)
    right = getattr(torch, name)(torch.from_numpy(x.astype(np.float64))).numpy()
    assert np.all((less < right) & (right < more))
