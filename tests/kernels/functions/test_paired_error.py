"""erf by pairs of float32: whatever single lanes ask for, every lane has the bits of erf by NumPy and Decimal."""

from dataclasses import replace

import launch
import numpy as np
import pytest
import rows
import torch

from samebits import dtypes, ieee
from samebits.codegen.interpreter import ArrayVector, NumpyBuilder
from samebits.codegen.isa import Isa
from samebits.codegen.vocabulary import KernelSpec
from samebits.kernels import elementwise
from samebits.kernels.expression import Chain
from samebits.kernels.functions import decimals, paired_error

LEAST, MOST = paired_error._LEAST, paired_error._MOST
# As registers of so many lanes compute the pair.
BUILDERS = {
    lanes: NumpyBuilder(KernelSpec(elementwise.text, (), (), replace(rows.ALL_ROWS[0], lanes=lanes)), [], 0, 0, 0)
    for lanes in (8, 16)
}


def computed(row: Isa, x: np.ndarray) -> np.ndarray:
    """erf by a row's kernel."""
    chain, out = Chain(), np.empty_like(x)
    e = chain.finish(chain.apply("erf", chain.input(dtypes.float32)))
    launch.run_plan(elementwise.plan(e, launch.layouts(x), launch.layouts(out), row), [x, out])
    return out


def pair(x: np.ndarray, lanes: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """high, and what it lacks less and more the margin."""
    high, less, more = paired_error._pair(BUILDERS[lanes], ArrayVector(dtypes.float32, x))
    return high.lanes, less.lanes, more.lanes


def in_doubt(x: np.ndarray, lanes: int) -> np.ndarray:
    """Where the pair does not tell which way the result rounds."""
    high, less, more = pair(x, lanes)
    return np.asarray(high + less != high + more)


@pytest.mark.parametrize("row", rows.ALL_ROWS, ids=lambda row: row.name)
def test_one_lane_does_not_change_its_neighbours(row: Isa) -> None:
    """Lanes that leave the pair in doubt, lie outside its range or between nodes, zeros and NaN, among quick ones."""
    many = np.random.default_rng(0).uniform(0, MOST, 20_000).astype(np.float32)
    doubts = [in_doubt(many, lanes) for lanes in BUILDERS]
    assert all(5 < np.count_nonzero(doubt) < 80 for doubt in doubts)  # one lane in 600
    doubtful = many[doubts[0] | doubts[1]]
    edges = [LEAST, MOST, 3.9192059, 3.9375, 4.0, 0.0625, 0.1875, 1.0625, 2.0**-126, 2.0**-149, 1e-40, 1e30, np.inf]
    given = np.concatenate([doubtful, np.array([*edges, 0.0], np.float32)])
    given = np.concatenate([given, np.nextafter(given, np.float32(0)), np.nextafter(given, np.float32(np.inf))])
    given = np.concatenate([given, -given, np.array([np.nan], np.float32)])
    x = np.random.default_rng(1).uniform(-4, 4, (len(given), 16)).astype(np.float32)
    x[np.arange(len(given)), np.arange(len(given)) % 15] = given
    x[:, 15] = -0.0
    launch.assert_bits(computed(row, x), decimals.erf(x), row.name)


@pytest.mark.parametrize("row", rows.ALL_ROWS, ids=lambda row: row.name)
def test_one_more_than_a_function_rounds_twice(row: Isa) -> None:
    """1 + f(x), 1 on either side, where nothing else takes f(x) and where an output does."""
    edges = np.array([0.0, LEAST, 0.0625, MOST, 4.0, 9.1, np.inf, 2.0**-149, 2.0**-25, 0.5**0.5], np.float32)
    near = np.random.default_rng(3).uniform(0, 4, 6000).astype(np.float32)
    halves = np.random.default_rng(4).uniform(0.4, 0.6, 2000).astype(np.float32)  # 1 - f(x) is exact beyond
    x = np.concatenate([near, halves, edges, np.nextafter(edges, np.float32(1))])
    x = np.concatenate([x, -x, np.array([np.nan], np.float32)])
    for name, due in (("erf", decimals.erf(x)), ("tanh", decimals.tanh(x))):
        chain = Chain()
        given, one = chain.input(dtypes.float32), chain.constant(1.0, dtypes.float32)
        alone, kept = chain.apply(name, given), chain.apply(name, given)
        e = chain.finish(chain.apply("add", one, alone), chain.apply("add", kept, one), kept)
        outs = [np.empty_like(x) for _ in range(3)]
        launch.run_plan(elementwise.plan(e, launch.layouts(x), launch.layouts(*outs), row), [x, *outs])
        for found, right in zip(outs, (1 + due, 1 + due, due), strict=True):
            launch.assert_bits(found, ieee.canonical(right.astype(np.float32)), (row.name, name))


@pytest.mark.parametrize("lanes", BUILDERS)
def test_the_pair_errs_by_less_than_the_margin(lanes: int) -> None:
    """Both limits about every node, beside torch in float64."""
    x = np.random.default_rng(2).uniform(0, MOST, 400_000).astype(np.float32)
    x[::2] *= np.float32(0.05)
    high, less, more = pair(x, lanes)
    right = torch.special.erf(torch.from_numpy(x.astype(np.float64))).numpy()
    assert np.all(high.astype(np.float64) + less < right)
    assert np.all(high.astype(np.float64) + more > right)
