"""Every rounding, overflow and rule for NaN and infinities, on every row: against codes found among a format's values,
and Python's integers for what is wider."""

from __future__ import annotations

import functools
import itertools
from fractions import Fraction
from typing import Any

import aarch64
import launch
import numpy as np
import pytest
import rows
from formats import CERTAIN, FORMATS, by, every_code, every_conversion, magnitudes, midpoints

from samebits import dtypes, philox
from samebits.codegen.isa import Isa
from samebits.conversions import PRESETS, SB1, Conversion
from samebits.dtypes import DType
from samebits.kernels import elementwise
from samebits.kernels.expression import Chain, Expression
from samebits.kernels.functions import exact

Array = np.ndarray[Any, Any]
F32 = np.float32
EVERY_ROW = pytest.mark.parametrize("row", rows.ALL_ROWS, ids=lambda row: row.name)
EVERY_FORMAT = pytest.mark.parametrize("dtype", FORMATS, ids=lambda dtype: dtype.name)
FASTEST = max(rows.COMPILED_ROWS, key=lambda row: row.lanes)
# Rows on which everything is tried; on the others a part, which compiles in a second.
FULL = (rows.ALL_ROWS[0], FASTEST)


@functools.cache
def several(source: DType, target: DType, hows: tuple[Conversion, ...]) -> Expression:
    """Conversions of one input, an output each: compiled together they take a tenth of the time."""
    chain = Chain()
    x = chain.input(source)
    return chain.finish(*(chain.apply("cast", x, dtype=target, conversion=how) for how in hows))


def converted(x: Array, target: DType, hows: tuple[Conversion, ...], row: Isa) -> list[Array]:
    """x by each conversion, by a kernel."""
    outs = [np.empty(x.shape, target.numpy) for _ in hows]
    expression = several(dtypes.of(x.dtype), target, hows)
    plan = elementwise.plan(expression, launch.layouts(x), launch.layouts(*outs), row, 1)
    launch.run_plan(plan, [x, *outs])
    return outs


@functools.cache
def numbers(dtype: DType) -> Array:
    """float64: values and midpoints of a format, their neighbours in float32 and float64, specials and random bits."""
    at = np.concatenate(
        [magnitudes(dtype), midpoints(dtype), [2 * magnitudes(dtype)[-1], 5e-324, 1e300, np.inf, np.nan]]
    )
    at = at[:: 1 + len(at) // 4000]
    with np.errstate(all="ignore"):
        single = at.astype(F32)
        near = [
            np.nextafter(at, np.inf),
            np.nextafter(at, 0),
            np.nextafter(single, F32(np.inf)),
            np.nextafter(single, F32(0)),
        ]
        random = np.random.default_rng(3).integers(0, 1 << 32, 3000, dtype=np.uint32).view(F32)
        wide = np.random.default_rng(4).standard_normal(1000) * dtype.max / 2
        half = np.concatenate([at, *(x.astype(np.float64) for x in near), random.astype(np.float64), wide])
    return np.concatenate([half, -half])


@rows.in_turn("row, dtype", FORMATS, 0, FULL)
def test_every_conversion_finds_its_value(row: Isa, dtype: DType) -> None:
    wide = numbers(dtype)
    with np.errstate(all="ignore"):
        single = wide.astype(F32)
    hows = tuple(every_conversion(dtype))
    hows = hows if row in FULL else hows[FORMATS.index(dtype) % 3 :: 3]
    for x in (single, wide):
        x = x if row.compiled else x[:: 1 + len(x) // 3000].copy()
        with np.errstate(all="ignore"):
            exact_x = x.astype(np.float64)
        for how, found in zip(hows, converted(x, dtype, hows, row), strict=True):
            launch.assert_bits(found, by(exact_x, dtype, how).view(dtype.numpy), (row.name, dtype, how, x.dtype))


@EVERY_FORMAT
def test_the_reference_finds_the_value(dtype: DType) -> None:
    x = numbers(dtype)
    words = philox.words(5, np.arange(x.size))
    for how in (*every_conversion(dtype), Conversion("stochastic"), Conversion("stochastic", "saturate", inf="ieee")):
        with np.errstate(all="ignore"):
            found = exact.cast(dtype, x, how, words)
        launch.assert_bits(found, by(x, dtype, how, words).view(dtype.numpy), (dtype, how))


@pytest.mark.parametrize("source", [dtypes.float16, dtypes.bfloat16], ids=lambda dtype: dtype.name)
def test_every_code_of_16_bits(source: DType) -> None:
    for number, dtype in enumerate(FORMATS):
        every_code_of_16_bits(source, dtype, tuple(every_conversion(dtype)[number % 4 :: 4]), FASTEST)


@pytest.mark.exhaustive
@EVERY_ROW
@pytest.mark.parametrize("source", [dtypes.float16, dtypes.bfloat16], ids=lambda dtype: dtype.name)
def test_every_code_of_16_bits_by_every_conversion(row: Isa, source: DType) -> None:
    for dtype in FORMATS:
        every_code_of_16_bits(source, dtype, tuple(every_conversion(dtype)), row)


def every_code_of_16_bits(source: DType, dtype: DType, hows: tuple[Conversion, ...], row: Isa) -> None:
    """Kernels and the reference give the value that is found among the format's."""
    x = every_code(source)
    with np.errstate(all="ignore"):
        wide = x.astype(np.float64)
    for how, found in zip(hows, converted(x, dtype, hows, row), strict=True):
        due = by(wide, dtype, how).view(dtype.numpy)
        launch.assert_bits(found, due, (row.name, source, dtype, how))
        with np.errstate(all="ignore"):
            launch.assert_bits(exact.cast(dtype, x, how), due, (source, dtype, how))


def whole(value: Fraction, rounding: str) -> int:
    """A fraction rounded to an integer."""
    below = value.numerator // value.denominator
    rest = value - below
    return {
        "nearest_even": below + (rest > Fraction(1, 2) or (rest == Fraction(1, 2) and below % 2 == 1)),
        "nearest_away": below + (rest > Fraction(1, 2) or (rest == Fraction(1, 2) and value > 0)),
        "toward_zero": below + (rest > 0 and value < 0),
        "up": below + (rest > 0),
        "down": below,
    }[rounding]


@EVERY_ROW
def test_floats_become_integers_by_every_rounding(row: Isa) -> None:
    halves = np.arange(-40, 41) / 4
    large = np.array([127.4, 127.5, 128.5, -128.5, -129.0, 2.0**31, -(2.0**31), 2.0**63, 1e300, 255.5, 2.0**53 + 2])
    x = np.concatenate([halves, large, [np.inf, -np.inf, np.nan, -0.0, 2.0**-1074]])
    hows = (*(Conversion(rounding) for rounding in CERTAIN), Conversion("up", "saturate", nan=1, inf="nan"))
    for target in (dtypes.int8, dtypes.uint4, dtypes.int64) if row.compiled else (dtypes.uint8, dtypes.int2):
        low, high = int(target.min), int(target.max)
        for source in (np.float64, F32):
            with np.errstate(all="ignore"):
                given = x.astype(source)
            for how, found in zip(hows, converted(given, target, hows, row), strict=True):
                due = []
                for value in given.astype(np.float64).tolist():
                    if value != value or (how.inf == "nan" and abs(value) == np.inf):
                        due.append(0 if how.nan is None else target.decode(how.nan))
                    elif abs(value) == np.inf:
                        due.append(high if value > 0 else low)
                    else:
                        due.append(min(max(whole(Fraction(value), how.rounding_to(target)), low), high))
                codes = [int(number) & ((1 << target.width_bits) - 1) for number in due]
                assert [int(code) for code in launch.bits(found)] == [
                    code & (1 << 8 * target.element_bytes) - 1 for code in codes
                ], (row.name, target, how, source)
                with np.errstate(all="ignore"):
                    launch.assert_bits(exact.cast(target, given, how), found, (target, how))


def rounded_fraction(value: int, dtype: DType, rounding: str) -> int:
    """The code of an integer in float32 or float64, by integers alone."""
    size, exponent = abs(value), max(abs(value).bit_length() - 1, 0)
    unit = Fraction(2) ** (exponent - dtype.mantissa_bits)
    count = whole(Fraction(value) / unit, rounding)
    code = (((exponent + dtype.bias - 1) << dtype.mantissa_bits) + abs(count)) if size else 0
    return code | (value < 0) << dtype.width_bits - 1


@EVERY_ROW
def test_wide_integers_round_once_to_wide_floats(row: Isa) -> None:
    random = np.random.default_rng(6)
    hows = tuple(Conversion(rounding) for rounding in CERTAIN)
    for source in (dtypes.int64, dtypes.uint64, dtypes.int32):
        low, high = int(source.min), int(source.max)
        near = [2**k + d for k in (0, 23, 24, 25, 31, 52, 53, 54, 63, 64) for d in (-3, -2, -1, 0, 1, 2, 3, 2**20 + 1)]
        near += [
            int(n) >> int(s) for n, s in zip(random.integers(0, 2**63, 200), random.integers(0, 63, 200), strict=True)
        ]
        values = sorted({n for m in near for n in (m, -m, low, high) if low <= n <= high})
        values = values if row.compiled else values[::7]
        x = np.array(values, source.numpy)
        for target in (dtypes.float32, dtypes.float64):
            for how, found in zip(hows, converted(x, target, hows, row), strict=True):
                due = [rounded_fraction(n, target, how.rounding_to(target)) for n in values]
                assert launch.bits(found).tolist() == due, (row.name, source, target, how)
                with np.errstate(all="ignore"):
                    launch.assert_bits(exact.cast(target, x, how), found, (source, target, how))


@EVERY_ROW
def test_float64_becomes_float32_by_every_rounding(row: Isa) -> None:
    random = np.random.default_rng(7)
    with np.errstate(all="ignore"):
        at = (random.standard_normal(400) * 2.0 ** random.integers(-160, 140, 400)).astype(F32)
        wide = at.astype(np.float64)
        x = np.concatenate([wide, np.nextafter(wide, np.inf), np.nextafter(wide, -np.inf), random.standard_normal(99)])
        middle = (wide + np.nextafter(at, F32(np.inf)).astype(np.float64)) / 2
    x = np.concatenate(
        [x, middle, -middle, [0.0, -0.0, np.inf, -np.inf, np.nan, 2.0**-149, 2.0**-150, 2.0**-1074, 1e300, -1e300]]
    )
    hows = tuple(Conversion(rounding, overflow) for rounding in CERTAIN for overflow in ("ieee", "saturate"))
    found = dict(zip(hows, converted(x, dtypes.float32, hows, row), strict=True))
    with np.errstate(all="ignore"):
        launch.assert_bits(found[hows[0]], np.where(np.isnan(x), np.nan, x).astype(F32), row.name)
        down, up = found[Conversion("down")].astype(np.float64), found[Conversion("up")].astype(np.float64)
        finite = np.isfinite(x)
        assert (down[finite] <= x[finite]).all()
        assert (up[finite] >= x[finite]).all()
        apart = np.nextafter(found[Conversion("down")], F32(np.inf)).astype(np.float64)
        assert ((down == up) | (apart == up))[finite].all()
        zero = found[Conversion("toward_zero")].astype(np.float64)
        assert np.array_equal(np.abs(zero), np.abs(np.where(x > 0, down, up)), equal_nan=True)
        for how in hows:
            launch.assert_bits(exact.cast(dtypes.float32, x, how), found[how], (row.name, how))


@EVERY_ROW
def test_integers_saturate_or_wrap(row: Isa) -> None:
    hows = (SB1, Conversion(overflow="saturate"))
    for source, target in itertools.product((dtypes.int64, dtypes.uint64, dtypes.int8, dtypes.uint4), repeat=2):
        low, high = int(source.min), int(source.max)
        values = sorted({n for n in (low, -9, -8, -1, 0, 1, 7, 8, 15, 16, 127, 128, 255, high) if low <= n <= high})
        x = np.array(values, np.int8 if source.width_bits < 8 else source.numpy).astype(source.numpy)
        wrapped, held = converted(x, target, hows, row)
        mask = (1 << target.width_bits) - 1
        limited = [min(max(n, int(target.min)), int(target.max)) & mask for n in values]
        full = (1 << 8 * target.element_bytes) - 1
        assert launch.bits(wrapped).tolist() == [n & mask & full for n in values], (row.name, source, target)
        assert launch.bits(held).tolist() == [n & full for n in limited], (row.name, source, target)


@EVERY_ROW
def test_presets_are_their_meaning(row: Isa) -> None:
    sources = ("float64", "float32", "bfloat16", "float8_e4m3fnuz", "int64") if row in FULL else ("float32",)
    for preset, source in itertools.product(PRESETS[1:], sources):
        kind = dtypes.of(source)
        if kind.width_bits <= 16:
            x = every_code(kind)[:: 1 if row.compiled else 13].copy()
        elif kind.is_float:
            with np.errstate(all="ignore"):
                x = numbers(dtypes.float8_e8m0fnu)[::3].astype(kind.numpy)
        else:
            x = np.array([n << k for n in (1, 3, 257, -255, 65537) for k in range(40)])
        for target in FORMATS[PRESETS.index(preset) % 3 :: 3]:
            how = preset.conversion(kind, target)
            if how is None:
                continue
            (found,) = converted(x, target, (how,), row)
            with np.errstate(all="ignore"):
                launch.assert_bits(found, exact.cast(target, x, how), (row.name, preset.name, source, target))


@EVERY_ROW
@pytest.mark.parametrize("source", [dtypes.float32, dtypes.float64], ids=lambda dtype: dtype.name)
def test_a_computed_nan_is_canonical_before_its_sign_or_fraction_is_taken(row: Isa, source: DType) -> None:
    targets = (dtypes.float8_e5m2, dtypes.bfloat16, dtypes.float16)
    chain = Chain()
    x = chain.input(source)
    values = [chain.apply(op, x) for op in ("sqrt", "log", "sin", "exp", "tanh")]
    values += [chain.apply("sub", x, x), chain.apply("neg", values[0])]
    hows = (Conversion(nan_sign="always"), Conversion(nan_payload=True))
    casts = [chain.apply("cast", v, dtype=to, conversion=how) for v in values for to in targets for how in hows]
    expression = chain.finish(*casts)
    codes = np.array([0x7F800000, 0xFF800000, 0xBF800000, 0x7FC00001, 0xFFC00000, 0x7F800001, 0xFFFFFFFF], np.uint32)
    with np.errstate(all="ignore"):
        numbers = codes.view(F32).astype(source.numpy)
    due = elementwise.reference(expression, numbers)
    outs = [np.empty_like(d) for d in due]
    plan = elementwise.plan(expression, launch.layouts(numbers), launch.layouts(*outs), row, 1)
    launch.run_plan(plan, [numbers, *outs])
    for k, (found, want) in enumerate(zip(outs, due, strict=True)):
        launch.assert_bits(found, want, (row.name, k))


@pytest.mark.parametrize("row", rows.AARCH64_ROWS, ids=lambda row: row.name)
def test_conversions_on_aarch64(row: Isa) -> None:
    hows = (Conversion("up", nan=1), Conversion("nearest_away", "saturate", inf="nan"))
    for dtype in (dtypes.float8_e4m3fn, dtypes.float4_e2m1fn, dtypes.float8_e8m0fnu, dtypes.int8, dtypes.float32):
        wide = numbers(dtype if dtype in FORMATS else dtypes.float8_e5m2)
        for x in (wide[::17].copy(), np.arange(-300, 300, 7)):
            outs = [np.empty(x.shape, dtype.numpy) for _ in hows]
            expression = several(dtypes.of(x.dtype), dtype, hows)
            plan = elementwise.plan(expression, launch.layouts(x), launch.layouts(*outs), row, 1)
            aarch64.run_plan(plan, [x, *outs])
            for how, found in zip(hows, outs, strict=True):
                with np.errstate(all="ignore"):
                    launch.assert_bits(found, exact.cast(dtype, x, how), (row.name, dtype, how))
