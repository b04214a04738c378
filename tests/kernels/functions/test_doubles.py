"""Functions of float64: the bits of their sequences on every row, and as near to MPFR as numerics.md says."""

import functools
from collections.abc import Callable
from typing import Any

import aarch64
import gmpy2
import launch
import numpy as np
import pytest
import rows

from samebits import dtypes
from samebits.codegen.isa import Isa
from samebits.kernels import elementwise, functions
from samebits.kernels.expression import Chain, Expression

# In how many units in the last place each may err.
BOUNDS = {"exp": 2, "exp2": 1, "expm1": 3, "tanh": 3, "sigmoid": 2, "log": 2, "log2": 2, "log10": 2, "log1p": 2,
          "sin": 3, "cos": 3, "pow": 1, "erf": 2}  # fmt: skip
EDGES = np.array(
    [0, -0.0, 1, -1, np.inf, -np.inf, np.nan, 5e-324, -5e-324, 2.0**-1022, 2.0**-1060, 1e308, -1e308, 709.78, 709.79,
     -745.1, -745.2, -708, -740, 1023.99, 1024, -1074, -1075, -1076, 20, -20, 0.7071, 1.4142, -0.5, -1 + 2.0**-53,
     2.0**-54, 2.0**-53, -(2.0**-55), 37, -37, 2.0**53, 2.0**53 + 2, -(2.0**53) + 1, 2.0**20, 2.0**20 - 2.0**-33,
     2.0**64, 6381956970095103 * 2.0**797, 3, -3, 2, -2]
)  # fmt: skip
EVERY_ROW = pytest.mark.parametrize("row", rows.ALL_ROWS, ids=lambda row: row.name)


def expression(name: str) -> Expression:
    chain = Chain()
    return chain.finish(chain.apply(name, *[chain.input(dtypes.float64) for _ in range(1 + (name == "pow"))]))


@functools.cache
def inputs(name: str, n: int) -> list[np.ndarray]:
    random = np.random.default_rng(1)
    near = 1 + random.uniform(-1, 1, n) * 2.0 ** -random.integers(1, 52, n).astype(float)
    small = random.uniform(-1, 1, n) * 2.0 ** random.integers(-60, 4, n)
    if name == "pow":
        bases = [np.exp2(random.uniform(-1074, 1023, n)), np.exp2(random.uniform(-3, 3, n)), near]
        reached = [random.uniform(-1074, 1024, n) / np.where(x == 1, 1, np.log2(x)) for x in bases]
        x, y = (v.ravel() for v in np.meshgrid(EDGES, EDGES))
        whole = random.integers(-40, 40, (2, n)).astype(float)
        return [np.concatenate([x, *bases, whole[0]]), np.concatenate([y, *reached, whole[1]])]
    if name in ("sin", "cos"):
        quarters = np.floor(np.exp2(random.uniform(-1, 60, n))) * (np.pi / 2)
        return [np.concatenate([EDGES, small, quarters, -np.exp2(random.uniform(-30, 1024, n))])]
    wide = [random.uniform(-745, 710, n), np.exp2(random.uniform(-1074, 1023, n))]
    return [np.concatenate([EDGES, random.normal(size=n), near, small, *wide])]


def reference(name: str, *arrays: np.ndarray) -> np.ndarray:
    with np.errstate(all="ignore"):
        found = functions.row(name).meaning(dtypes.float64, *arrays)
    return np.where(np.isnan(found), np.nan, found)


@functools.cache
def due(name: str) -> np.ndarray:
    """What all rows are compared with, computed once."""
    return reference(name, *inputs(name, 3000))


@EVERY_ROW
@pytest.mark.parametrize("name", BOUNDS)
def test_every_row_has_the_bits_of_the_sequence(name: str, row: Isa) -> None:
    arrays = inputs(name, 3000)
    out = np.empty_like(arrays[0])
    plan = elementwise.plan(expression(name), launch.layouts(*arrays), launch.layouts(out), row)
    launch.run_plan(plan, [*arrays, out])
    launch.assert_bits(out, due(name), (name, row.name))


@pytest.mark.parametrize("name", BOUNDS)
def test_aarch64_has_the_bits_of_the_sequence(name: str) -> None:
    arrays = [x[::11].copy() for x in inputs(name, 3000)]
    out = np.empty_like(arrays[0])
    plan = elementwise.plan(expression(name), launch.layouts(*arrays), launch.layouts(out), rows.AARCH64_ROWS[-1], 1)
    aarch64.run_plan(plan, [*arrays, out])
    launch.assert_bits(out, due(name)[::11], name)


def right(name: str) -> Callable[..., Any]:
    """The function by MPFR, in more bits than it loses."""
    if name == "pow":
        return lambda x, y: x**y
    if name == "sigmoid":
        return lambda x: 1 / (1 + gmpy2.exp(-x))
    return getattr(gmpy2, name)


@pytest.mark.parametrize("name", BOUNDS)
def test_errors_are_within_their_bounds(name: str) -> None:
    arrays = inputs(name, 1500)
    found, function = reference(name, *arrays), right(name)
    for values in zip(found.tolist(), *(x.tolist() for x in arrays), strict=True):
        with gmpy2.context(precision=1200, emin=-(1 << 30), emax=1 << 30):
            due = function(*map(gmpy2.mpfr, values[1:]))
            nearest = float(due) if abs(due) < 2**1024 or not gmpy2.is_finite(due) else float(gmpy2.sign(due)) * np.inf
            if not np.isfinite(nearest) or nearest == 0 or not np.isfinite(values[0]):
                assert np.array_equal(values[0], nearest, equal_nan=True) or abs(due) > 2**1023 * 1.9999, values
                continue
            error = abs(gmpy2.mpfr(values[0]) - due) / gmpy2.mpfr(float(np.spacing(abs(nearest))))
            assert error <= BOUNDS[name], (values, float(error))
