"""Rows of functions: their dtypes, and those of correct rounding against MPFR on a dense sample.

tools/exhaustive.py runs all inputs.
"""

import functools
import math
import sys
from decimal import Decimal
from pathlib import Path

import gmpy2
import launch
import numpy as np
import pytest
import rows

from samebits import dtypes
from samebits.codegen.interpreter import ArrayVector, NumpyBuilder
from samebits.codegen.isa import Isa
from samebits.codegen.vocabulary import KernelSpec
from samebits.errors import DTypeError, OptionError
from samebits.kernels import elementwise, functions, values
from samebits.kernels.expression import Chain, Expression
from samebits.kernels.functions import decimals, rounded
from samebits.kernels.functions.rows import ROUNDED as LANES
from samebits.kernels.functions.texts import PAIRED
from samebits.kernels.functions.texts import ROUNDED as ROWS_ROUNDED

sys.path.insert(0, str(Path(__file__).parents[3] / "tools"))
import exhaustive

ROUNDED = [row.name for row, _ in ROWS_ROUNDED]
# Results within 2**-49 of a rounding boundary, relative: the hardest that fitting and scanning met.
HARD = np.array(
    [0x4288942B, 0xC16912CD, 0x3940EAD6, 0xB940EAD6, 0x39C0057D, 0x3B25A39D]
    + [code for row, _ in ROWS_ROUNDED for code, _ in row.exceptions],
    np.uint32,
)
SPECIAL = np.array(
    [0.0, -0.0, np.inf, -np.inf, 1e-45, -1e-45, 2.0**-126, 1.0, -1.0, 88.722, 88.723, 88.73, 89, 3.4e38, -3.4e38,
     -87.34, -103.97, -103.98, -104, -1e9, 3.9192, 3.9193, 5, 9.01, 9.02, 17.32, 17.33, 2.0**20, 2.0**20 - 0.25,
     -(2.0**20), 3.1415927, 1.5707964, 11, 1e22, 2.0**127], np.float32,
)  # fmt: skip
# IEEE-754, clause 9.2.1.
INF, NAN = math.inf, math.nan
EDGES = {
    "exp": [(INF, INF), (-INF, 0.0), (0.0, 1.0)],
    "erf": [(INF, 1.0), (-INF, -1.0), (-0.0, -0.0)],
    "log": [(INF, INF), (-INF, NAN), (0.0, -INF), (-0.0, -INF), (1.0, 0.0), (-1.0, NAN), (-1e-45, NAN)],
    "log2": [(INF, INF), (-INF, NAN), (0.0, -INF), (-0.0, -INF), (1.0, 0.0), (8.0, 3.0), (2.0**-149, -149.0)],
    "log10": [(INF, INF), (-INF, NAN), (0.0, -INF), (-0.0, -INF), (1.0, 0.0), (1000.0, 3.0), (1e10, 10.0)],
    "log1p": [(INF, INF), (-INF, NAN), (0.0, 0.0), (-0.0, -0.0), (-1.0, -INF), (-1.5, NAN), (-1e-45, -1e-45)],
    "exp2": [(INF, INF), (-INF, 0.0), (0.0, 1.0), (-0.0, 1.0), (-149.0, 2.0**-149), (-150.0, 0.0), (127.0, 2.0**127)],
    "expm1": [(INF, INF), (-INF, -1.0), (0.0, 0.0), (-0.0, -0.0), (-1e-45, -1e-45)],
    "tanh": [(INF, 1.0), (-INF, -1.0), (0.0, 0.0), (-0.0, -0.0), (-1e-45, -1e-45)],
    "sigmoid": [(INF, 1.0), (-INF, 0.0), (0.0, 0.5), (-0.0, 0.5)],
    "sin": [(INF, NAN), (-INF, NAN), (0.0, 0.0), (-0.0, -0.0), (-1e-45, -1e-45)],
    "cos": [(INF, NAN), (-INF, NAN), (0.0, 1.0), (-0.0, 1.0)],
}
NANS = np.array([0x7FC00000, 0xFFC00000, 0x7F800001, 0xFFFFFFFF, 0x7FA12345], np.uint32).view(np.float32)


def one(name: str) -> Expression:
    """The expression of one function."""
    chain = Chain()
    return chain.finish(chain.apply(name, chain.input(dtypes.float32)))


def computed(name: str, row: Isa, x: np.ndarray) -> np.ndarray:
    """The function by a row's kernel."""
    out = np.empty_like(x)
    launch.run_plan(elementwise.plan(one(name), launch.layouts(x), launch.layouts(out), row), [x, out])
    return out


@functools.cache
def sample(count: int) -> np.ndarray:
    """Every exponent and sign, with mantissas at both ends and random ones; and the hard and special inputs."""
    random = np.random.default_rng(7)
    tops = np.arange(512, dtype=np.uint32) << 23
    ends = np.array([0, 1, 2, 0x3FFFFF, 0x400000, 0x400001, 0x7FFFFE, 0x7FFFFF], np.uint32)
    inner = random.integers(0, 1 << 23, max(count // 512 - len(ends), 1), dtype=np.uint32)
    codes = (tops[:, None] | np.concatenate([ends, inner])[None, :]).ravel()
    return np.concatenate([codes, HARD, SPECIAL.view(np.uint32), NANS.view(np.uint32)]).view(np.float32)


@functools.cache
def right(name: str, count: int) -> np.ndarray:
    """glibc's float64 function rounded, or MPFR near a boundary."""
    return exhaustive.oracle(name, sample(count))[0].view(np.float32)


def test_the_table_of_rows_names_every_text() -> None:
    assert set(LANES) == set(ROUNDED)
    assert {name for name, lanes in LANES.items() if lanes is not None} == set(PAIRED)


@pytest.mark.parametrize("row", rows.ALL_ROWS, ids=lambda row: row.name)
@pytest.mark.parametrize("name", ROUNDED)
def test_rounded_functions_equal_mpfr(name: str, row: Isa) -> None:
    count = 1 << 20 if row.compiled else 1 << 14
    launch.assert_bits(computed(name, row, sample(count)), right(name, count), (name, row.name))


@pytest.mark.parametrize("row", rows.ALL_ROWS, ids=lambda row: row.name)
def test_ties_of_the_logistic_function_are_decided(row: Isa) -> None:
    """Below 2**-14 0.5 + x / 4 may lie in the middle of two float32, which the function only nearly does."""
    halves = np.arange(1, 1 << 10, dtype=np.float32) * np.float32(2.0**-24)
    x = np.concatenate([halves, np.nextafter(halves, np.float32(1)), np.nextafter(halves, np.float32(0))])
    x = np.concatenate([x, -x])
    due = np.array([exhaustive.mpfr("sigmoid", v) for v in x])
    launch.assert_bits(computed("sigmoid", row, x), due, row.name)
    launch.assert_bits(decimals.sigmoid(x), due, "reference")


@pytest.mark.parametrize("row", rows.ALL_ROWS, ids=lambda row: row.name)
@pytest.mark.parametrize("name", ["sin", "cos"])
def test_turns_of_every_size_are_taken_off(name: str, row: Isa) -> None:
    """Beside multiples of a quarter of a turn, which lose most bits, and both sides of where the way changes."""
    exponents = np.arange(-3, 128)
    quarters = np.floor(2.0 ** exponents.astype(np.float64) * 1.3) + np.arange(4)[:, None]
    near = np.minimum(quarters.ravel() * (np.pi / 2), np.finfo(np.float32).max).astype(np.float32)
    border = np.float32(2.0**20)
    x = np.concatenate([near, np.nextafter(near, np.float32(0)), [border, np.nextafter(border, np.float32(0))]])
    x = np.concatenate([x, -x]).astype(np.float32)
    launch.assert_bits(computed(name, row, x), np.array([exhaustive.mpfr(name, v) for v in x]), (name, row.name))


@pytest.mark.parametrize("name", ROUNDED)
def test_reference_equals_mpfr(name: str) -> None:
    (found,) = values.reference(one(name), [sample(1 << 16)])
    launch.assert_bits(found, right(name, 1 << 16), name)


@pytest.mark.parametrize("name", ROUNDED)
def test_oracle_decides_by_mpfr_as_mpfr_alone(name: str) -> None:
    for x in np.concatenate([HARD.view(np.float32), SPECIAL[np.isfinite(SPECIAL)]]):
        with gmpy2.context(precision=200):
            wide = exhaustive.accurate(name, gmpy2.mpfr(float(x)))
        found, _ = exhaustive.oracle(name, np.array([x]))
        with gmpy2.context(precision=24, emin=-148, emax=128, subnormalize=True):
            due = np.float32(float(gmpy2.mpfr(wide)))
        assert np.array_equal(found.view(np.float32)[0], due, equal_nan=True), (name, x)


@pytest.mark.parametrize("row", rows.ALL_ROWS, ids=lambda row: row.name)
def test_every_code_of_every_format_is_copied_and_chosen(row: Isa) -> None:
    """Codes of 16 bits, and those of 8 as often: a NaN keeps its payload where bits are only moved."""
    codes = np.arange(1 << 16, dtype=np.uint16)[:: 1 if row.compiled else 7]
    moved = [x for x in dtypes.ROWS if x.numpy is not None and x.width_bits in (8, 16) and x.kind != "bool"]
    chain, inputs, due = Chain(), [codes % 3 == 0], []
    outputs, chosen = [], chain.input(dtypes.bool_)
    for dtype in moved:
        x = codes.astype(f"u{dtype.size_bytes}").view(dtype.numpy)
        v, w = (chain.input(dtype) for _ in range(2))
        inputs += [x, x[::-1].copy()]
        outputs += [chain.apply("copy", v), chain.apply("where", chosen, v, w)]
        due += [x, np.where(inputs[0], x.view(f"u{x.itemsize}"), x[::-1].view(f"u{x.itemsize}")).view(dtype.numpy)]
    e, found = chain.finish(*outputs), [np.zeros_like(x) for x in due]
    launch.run_plan(elementwise.plan(e, launch.layouts(*inputs), launch.layouts(*found), row), [*inputs, *found])
    for got, want, reference in zip(found, due, elementwise.reference(e, *inputs), strict=True):
        launch.assert_bits(got, want, row.name)
        launch.assert_bits(reference, want, row.name)


def test_exact_decides_what_the_estimate_leaves_open() -> None:
    x = np.array([1.5], np.float32)
    with gmpy2.context(precision=100):
        low = np.float32(float(gmpy2.exp(gmpy2.mpfr("1.5"))))
    neighbour = np.nextafter(low, np.float32(np.inf))
    middle = np.array([(float(low) + float(neighbour)) / 2])
    above, below = (decimals.rounded(x, middle, lambda _, v=v: Decimal(float(v))) for v in (neighbour, low))
    assert (above[0], below[0]) == (neighbour, low)


@pytest.mark.parametrize("name", ROUNDED)
def test_specials(name: str) -> None:
    for x, y in EDGES[name]:
        (found,) = values.reference(one(name), [np.array([x], np.float32)])
        launch.assert_bits(found, np.array([y], np.float32), (name, x))
    (found,) = values.reference(one(name), [NANS])
    assert (found.view(np.uint32) == 0x7FC00000).all()


def test_exceptions_are_mended() -> None:
    row = rounded.CorrectlyRounded(
        "half", lambda b, x: (x, x), ("0x0p+0", "0x1p-1"), lambda b, x, r, p, kept: p, low=-9.0, high=9.0,
        exceptions=((0x3F800000, 0xC0000000), (0xC0000000, 0x00000001)),
    )  # fmt: skip
    b = NumpyBuilder(KernelSpec(elementwise.text, (), (), rows.ALL_ROWS[0]), [], 0, 0, 0)
    found = rounded.emit(b, row, ArrayVector(dtypes.float32, np.array([1.0, -2.0, 3.0], np.float32)))
    assert found.lanes.view(np.uint32).tolist() == [0xC0000000, 1, 0x3FC00000]


def test_names_and_dtypes_are_checked() -> None:
    with pytest.raises(OptionError) as unknown:
        functions.row("tan")
    assert str(unknown.value) == (
        "functions.row: name is 'tan', must be a row of functions.ROWS; compose it of other rows"
    )
    with pytest.raises(DTypeError) as mixed:
        functions.result_dtype("fma", (dtypes.float32, dtypes.float32, dtypes.float64))
    assert str(mixed.value) == (
        "fma: arguments dtypes is (float32, float32, float64), must be "
        "(any float with a zero, any float with a zero, any float with a zero), alike; convert them first"
    )
    with pytest.raises(DTypeError) as target:
        functions.result_dtype("cast", (dtypes.float32,))
    assert str(target.value) == "cast: dtype is None, must be the dtype to convert to; pass dtype="
    assert functions.result_dtype("where", (dtypes.bool_, dtypes.int8, dtypes.int8)) is dtypes.int8
    assert functions.result_dtype("less", (dtypes.int8, dtypes.int8)) is dtypes.bool_
