"""exp and exp2 by pairs of float32: whatever single lanes ask for, every lane has the bits by NumPy and Decimal."""

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
from samebits.kernels.functions import decimals, paired_exponential

B = NumpyBuilder(KernelSpec(elementwise.text, (), (), rows.ALL_ROWS[0]), [], 0, 0, 0)
MARGIN = paired_exponential._MARGIN


@dataclass(frozen=True)
class Power:
    """A function, its pair, where that decides, and where results become subnormal, 0 or infinite."""

    name: str
    pair: Callable[..., Any]
    within: float
    edges: tuple[float, ...]

    def __str__(self) -> str:
        return self.name

    def parts(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """high and low."""
        high, low = self.pair(B, ArrayVector(dtypes.float32, x), MARGIN)
        return high.lanes, low.lanes

    def in_doubt(self, x: np.ndarray) -> np.ndarray:
        """Where high + low does not tell which way the result rounds."""
        high, low = self.parts(x)
        more = (high.astype(np.float64) * (2 * MARGIN) + low).astype(np.float32)
        return np.asarray(high + low != high + more)


EXP = Power(
    "exp", paired_exponential.pair, paired_exponential._WITHIN,
    (87.3, 88.73, 89.0, -87.4, -103.9, -103.98, -104.0, -104.5),
)  # fmt: skip
EXP2 = Power(
    "exp2", paired_exponential.pair_of_2, paired_exponential._WITHIN_OF_2,
    (0.0, 1.0, -1.0, 0.5, 1 / 32, 1 / 64, 127.0, 128.0, 129.0, -125.9, -126.0, -149.0, -149.5, -150.0, -151.0, -151.5),
)  # fmt: skip


def computed(row: Isa, name: str, x: np.ndarray) -> np.ndarray:
    """The function by a row's kernel."""
    chain, out = Chain(), np.empty_like(x)
    e = chain.finish(chain.apply(name, chain.input(dtypes.float32)))
    launch.run_plan(elementwise.plan(e, launch.layouts(x), launch.layouts(out), row), [x, out])
    return out


@pytest.mark.parametrize("power", [EXP, EXP2], ids=str)
@pytest.mark.parametrize("row", rows.ALL_ROWS, ids=lambda row: row.name)
def test_one_lane_does_not_change_its_neighbours(row: Isa, power: Power) -> None:
    """Lanes that leave the pair in doubt, lie outside its range, are nothing or NaN, alone among quick ones."""
    many = np.random.default_rng(0).uniform(-30, 30, 100_000).astype(np.float32)
    doubtful = many[power.in_doubt(many)]
    assert 20 < len(doubtful) < 100  # one lane in 2300
    edges = [power.within, -power.within, *power.edges, -1e9, np.inf, -np.inf, np.nan]
    given = np.concatenate([doubtful, np.array(edges, np.float32)])
    given = np.concatenate([given, np.nextafter(given, np.float32(0)), np.nextafter(given, np.float32(-np.inf))])
    x = np.random.default_rng(1).uniform(-20, 2, (len(given), 64)).astype(np.float32)
    x[np.arange(len(given)), np.arange(len(given)) % 64] = given
    x[:, 63] = -np.inf  # what a mask leaves
    launch.assert_bits(computed(row, power.name, x), getattr(decimals, power.name)(x), row.name)


@pytest.mark.parametrize("power", [EXP, EXP2], ids=str)
def test_the_pair_errs_by_less_than_the_margin(power: Power) -> None:
    """high + low, of all residues of k, beside float64."""
    x = np.random.default_rng(2).uniform(-power.within, power.within, 200_000).astype(np.float32)
    high, low = power.parts(x)
    found = high.astype(np.float64) + low
    error = found / getattr(np, power.name)(x.astype(np.float64)) - (1 - MARGIN)
    assert np.abs(error).max() < 2.0**-36
