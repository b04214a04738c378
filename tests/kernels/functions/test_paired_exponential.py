"""exp and exp2 by pairs of float32: whatever single lanes ask for, every lane has the bits by NumPy and Decimal."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import launch
import numpy as np
import pytest
import rows

from samebits import dtypes
from samebits.codegen import isa
from samebits.codegen.interpreter import ArrayVector, NumpyBuilder
from samebits.codegen.isa import Isa
from samebits.codegen.vocabulary import KernelSpec
from samebits.kernels import elementwise
from samebits.kernels.expression import Chain
from samebits.kernels.functions import decimals, paired_exponential

# By the lanes of a register, which decide how many steps there are.
BUILDERS = {
    lanes: NumpyBuilder(KernelSpec(elementwise.text, (), (), isa.named(name)), [], 0, 0, 0)
    for lanes, name in ((8, "avx2"), (16, "avx512"))
}


@dataclass(frozen=True)
class Power:
    """A function, what is less than it by a margin, where that decides, and where results become subnormal, 0 or
    infinite."""

    name: str
    less: Callable[..., Any]
    within: float
    edges: tuple[float, ...]

    def __str__(self) -> str:
        return self.name

    def parts(self, lanes: int, x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """high, low and twice the margin."""
        high, low, doubled = self.less(BUILDERS[lanes], ArrayVector(dtypes.float32, x))
        return high.lanes, low.lanes, doubled.lanes

    def in_doubt(self, lanes: int, x: np.ndarray) -> np.ndarray:
        """Where high + low does not tell which way the result rounds."""
        high, low, doubled = self.parts(lanes, x)
        more = (high.astype(np.float64) * doubled + low).astype(np.float32)
        return np.asarray(high + low != high + more)


EXP = Power(
    "exp", paired_exponential.less, paired_exponential._WITHIN,
    (87.3, 88.73, 89.0, -87.4, -103.9, -103.98, -104.0, -104.5),
)  # fmt: skip
EXP2 = Power(
    "exp2", paired_exponential.less_of_2, paired_exponential._WITHIN_OF_2,
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
    lanes = 16 if row.lanes >= 16 else 8
    many = np.random.default_rng(0).uniform(-30, 30, 200_000).astype(np.float32)
    doubtful = many[power.in_doubt(lanes, many)]
    assert 20 < len(doubtful) < 100  # one lane in 5000
    edges = [power.within, -power.within, *power.edges, -1e9, np.inf, -np.inf, np.nan]
    given = np.concatenate([doubtful, np.array(edges, np.float32)])
    given = np.concatenate([given, np.nextafter(given, np.float32(0)), np.nextafter(given, np.float32(-np.inf))])
    x = np.random.default_rng(1).uniform(-20, 2, (len(given), 64)).astype(np.float32)
    x[np.arange(len(given)), np.arange(len(given)) % 64] = given
    x[:, 63] = -np.inf  # what a mask leaves
    launch.assert_bits(computed(row, power.name, x), getattr(decimals, power.name)(x), row.name)


@pytest.mark.parametrize("lanes", BUILDERS)
@pytest.mark.parametrize("power", [EXP, EXP2], ids=str)
def test_the_pair_errs_by_less_than_the_margin(power: Power, lanes: int) -> None:
    """high + low, of all residues of k, beside float64."""
    x = np.random.default_rng(2).uniform(-power.within, power.within, 200_000).astype(np.float32)
    high, low, doubled = power.parts(lanes, x)
    found = (high.astype(np.float64) + low) / getattr(np, power.name)(x.astype(np.float64))
    assert np.all((found < 1) & (1 - doubled.astype(np.float64) < found))
