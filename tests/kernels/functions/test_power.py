"""x to the y against MPFR on every row: exact powers, ties, neighbours of 1, subnormal results, specials.

tools/exhaustive.py runs as many random pairs as one likes.
"""

import functools
import sys
from pathlib import Path

import aarch64
import launch
import mpmath
import numpy as np
import pytest
import rows

from samebits import dtypes
from samebits.codegen.interpreter import ArrayVector, NumpyBuilder
from samebits.codegen.isa import Isa
from samebits.codegen.vocabulary import KernelSpec
from samebits.kernels import elementwise, functions
from samebits.kernels.expression import Chain, Expression
from samebits.kernels.functions import power

sys.path.insert(0, str(Path(__file__).parents[3] / "tools"))
import exhaustive

F32 = np.float32
EDGES = np.array(
    [0.0, -0.0, 1, -1, np.inf, -np.inf, np.nan, 2, -2, 3, -3, 0.5, -0.5, 1.5, 1e-45, -1e-45, 3e38, -3e38, 2.0**24,
     2.0**24 - 1, 2.0**25 + 2, 2.0**-126, 0.1, -7, 8, 1 - 2.0**-24, 1 + 2.0**-23, 150, -150, 149, -149, 127, 128, 1e-30,
     2.0**-149, 2.0**40, 2.0**41, -(2.0**41)], F32,
)  # fmt: skip


def expression() -> Expression:
    chain = Chain()
    return chain.finish(chain.apply("pow", chain.input(dtypes.float32), chain.input(dtypes.float32)))


def to_reach(x: np.ndarray, low: float, high: float, random: np.random.Generator) -> np.ndarray:
    """Exponents that lead from x to powers of two between low and high."""
    return (random.uniform(low, high, x.size) / np.log2(x.astype(float))).astype(F32)


def sets(n: int) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Pairs of every kind that is hard in its own way."""
    random = np.random.default_rng(3)
    anywhere = np.exp2(random.uniform(-20, 20, n)).astype(F32)
    odd = random.integers(2897, 8192, n) | 1  # squares of 24 to 26 bits, half of which are ties
    roots = random.integers(1, 60, n) ** random.choice([1, 2, 4], n) * np.exp2(16 * random.integers(-3, 3, n))
    codes = random.integers(0, 1 << 32, (2, n), dtype=np.uint32).view(F32)
    x, y = (v.ravel() for v in np.meshgrid(EDGES, EDGES))
    return {
        "edges": (x.copy(), y.copy()),
        "anywhere": (anywhere, to_reach(anywhere, -150, 128, random)),
        "near one": ((1 + random.integers(-999, 999, n) * 2.0**-23).astype(F32), anywhere),
        "integers": (random.integers(-6000, 6000, n).astype(F32), random.integers(-8, 17, n).astype(F32)),
        "ties": (np.concatenate([odd, odd / 8]).astype(F32), np.full(2 * n, 2, F32)),
        "roots": (roots.astype(F32), (random.integers(1, 100, n) / random.choice([1, 2, 4, 8, 16], n)).astype(F32)),
        "subnormal": (anywhere, to_reach(anywhere, -150, -125, random)),
        "to infinity": (anywhere, to_reach(anywhere, 127.99999, 128.00001, random)),
        "any codes": (codes[0].copy(), codes[1].copy()),
    }


@functools.cache
def pairs(n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """All sets, and what MPFR says of them."""
    x, y = (np.concatenate(columns) for columns in zip(*sets(n).values(), strict=True))
    return x, y, np.array([exhaustive.mpfr("pow", *pair) for pair in zip(x, y, strict=True)])


@pytest.mark.parametrize("row", rows.ALL_ROWS, ids=lambda row: row.name)
def test_powers_equal_mpfr(row: Isa) -> None:
    x, y, due = pairs(4000)
    out = np.empty_like(x)
    plan = elementwise.plan(expression(), launch.layouts(x, y), launch.layouts(out), row)
    launch.run_plan(plan, [x, y, out])
    launch.assert_bits(out, due, row.name)


@pytest.mark.parametrize("row", rows.AARCH64_ROWS, ids=lambda row: row.name)
def test_powers_on_aarch64(row: Isa) -> None:
    x, y, due = (v[::37].copy() for v in pairs(4000))
    out = np.empty_like(x)
    plan = elementwise.plan(expression(), launch.layouts(x, y), launch.layouts(out), row, 1)
    aarch64.run_plan(plan, [x, y, out])
    launch.assert_bits(out, due, row.name)


def test_reference_equals_mpfr() -> None:
    x, y, due = pairs(4000)
    with np.errstate(all="ignore"):
        found = functions.row("pow").meaning(dtypes.float32, x, y)
    launch.assert_bits(np.where(np.isnan(found), F32(np.nan), found), due, "reference")


def test_both_paths_err_by_less_than_their_texts_say() -> None:
    b = NumpyBuilder(KernelSpec(elementwise.text, (), (), rows.ALL_ROWS[0]), [], 0, 0, 0)
    random = np.random.default_rng(5)
    parts = [np.exp2(random.uniform(-140, 127, 400)), 1 + random.integers(1, 2000, 400) * 2.0**-23]
    parts += [random.uniform(0.70, 0.72, 400), random.uniform(1.41, 1.42, 400)]
    x = np.concatenate(parts).astype(F32)
    y = to_reach(x, -149, 127, random)
    lanes = [ArrayVector(dtypes.float64, v.astype(float)) for v in (x, y)]
    fast, slow = power.fast(b, *lanes), power.in_pairs(b, *lanes)
    with mpmath.workprec(300):
        due = [mpmath.mpf(float(a)) ** mpmath.mpf(float(c)) for a, c in zip(x, y, strict=True)]
        worst = max(abs(mpmath.mpf(float(v)) / d - 1) for v, d in zip(fast.lanes, due, strict=True))
        assert worst < mpmath.mpf(2) ** -45
        high, low, n = (v.lanes for v in slow)
        turned = [mpmath.mpf(2) ** int(v) for v in n]
        sums = [(mpmath.mpf(float(h)) + mpmath.mpf(float(v))) * t for h, v, t in zip(high, low, turned, strict=True)]
        assert max(abs(v / d - 1) for v, d in zip(sums, due, strict=True)) < mpmath.mpf(2) ** -96
