"""Decoding gives the value of every code, and encoding the nearest value, on every row: against `DType.decode`, exact
neighbours and midpoints, and ml_dtypes where its rules are the same."""

from __future__ import annotations

import bisect
import functools
from collections.abc import Sequence
from typing import Any

import aarch64
import launch
import numpy as np
import pytest
import rows
from formats import FORMATS, every_code, magnitudes, midpoints, nearest

from samebits import dtypes
from samebits.codegen.isa import Isa
from samebits.conversions import SB1, Conversion
from samebits.dtypes import DType
from samebits.kernels import convert, elementwise
from samebits.kernels.expression import Chain, Expression

Array = np.ndarray[Any, Any]
F32 = np.float32
SATURATED = Conversion(overflow="saturate")
INTEGERS = tuple(row for row in dtypes.ROWS if row.is_integer)
EVERY_FORMAT = pytest.mark.parametrize("dtype", FORMATS, ids=lambda dtype: dtype.name)


@functools.cache
def conversion(source: DType, target: DType, how: Conversion = SB1) -> Expression:
    """One cast."""
    chain = Chain()
    return chain.finish(chain.apply("cast", chain.input(source), dtype=target, conversion=how))


def converted(x: Array, target: DType, row: Isa, how: Conversion = SB1) -> Array:
    """x by a kernel of a row of this machine, or of AArch64 by emulation."""
    out = np.empty(x.shape, target.numpy)
    expression = conversion(dtypes.of(x.dtype), target, how)
    plan = elementwise.plan(expression, launch.layouts(x), launch.layouts(out), row, 1)
    if row in rows.ALL_ROWS:
        launch.run_plan(plan, [x, out])
    else:
        aarch64.run_plan(plan, [x, out])
    return out


def converted_to_each(x: Array, targets: Sequence[DType], row: Isa) -> list[Array]:
    """x as each of several formats; those of the same size are outputs of one kernel, which is soon compiled."""
    found = dict[DType, Array]()
    for size in {np.dtype(target.numpy).itemsize for target in targets}:
        alike = [target for target in targets if np.dtype(target.numpy).itemsize == size]
        chain = Chain()
        given = chain.input(dtypes.of(x.dtype))
        together = chain.finish(*(chain.apply("cast", given, dtype=target) for target in alike))
        outs = [np.empty(x.shape, target.numpy) for target in alike]
        launch.run_plan(elementwise.plan(together, launch.layouts(x), launch.layouts(*outs), row, 1), [x, *outs])
        found |= dict(zip(alike, outs, strict=True))
    return [found[target] for target in targets]


@functools.cache
def singles(dtype: DType) -> Array:
    """float32: all values and midpoints of a format with their neighbours, specials, and random bits."""
    with np.errstate(all="ignore"):
        exact = np.concatenate([magnitudes(dtype), midpoints(dtype)]).astype(F32)
        near = np.concatenate([exact, np.nextafter(exact, F32(np.inf)), np.nextafter(exact, F32(0))])
    codes = [
        0,
        1,
        2,
        0x7FFFFF,
        0x800000,
        0x7F7FFFFF,
        0x7F800000,
        0x7F800001,
        0x7FC00000,
        0x7FFFFFFF,
        0x400000,
        0x600000,
    ]
    random = np.random.default_rng(0).integers(0, 1 << 31, 20000, dtype=np.uint32)
    half = np.concatenate([near.view(np.uint32), np.array(codes, np.uint32), random])
    return np.concatenate([half, half | np.uint32(0x80000000)]).view(F32)


@functools.cache
def doubles(dtype: DType) -> Array:
    """float64: the same, and neighbours in float64 of values and midpoints, which rounding twice gets wrong."""
    exact = np.concatenate([magnitudes(dtype), midpoints(dtype)])
    with np.errstate(all="ignore"):
        wide = singles(dtype).astype(np.float64)
        near = np.concatenate([np.nextafter(exact, np.inf), np.nextafter(exact, 0), exact * (1 + 2.0**-30)])
    tiny = np.array([5e-324, 2.0**-150, 2.0**-151, 2.0**-1022, 1e308, np.inf, np.nan])
    return np.concatenate([wide, near, -near, tiny, -tiny])


@rows.in_turn("row, dtype", [*FORMATS, *(row for row in INTEGERS if convert.is_coded(row))], 0)
def test_every_code_decodes_to_its_value(row: Isa, dtype: DType) -> None:
    x = every_code(dtype, above=True)
    mask = (1 << dtype.width_bits) - 1
    value = [dtype.decode(int(code) & mask) for code in launch.bits(x)]
    for target in (dtypes.float32, dtypes.float64):
        due = np.array(value, target.numpy)
        found = converted(x, target, row)
        assert np.array_equal(found, due, equal_nan=True)
        assert np.array_equal(np.signbit(found), np.signbit(due))
        nan = launch.bits(found)[np.isnan(found)]
        assert (nan == target.canonical_nan).all()
        with np.errstate(invalid="ignore"):
            clean = (launch.bits(x) & mask).astype(launch.bits(x).dtype).view(x.dtype)
            assert np.array_equal(clean.astype(target.numpy), due, equal_nan=True)


@rows.in_turn("row, dtype", FORMATS, 1)
def test_encoding_takes_the_nearest_value(row: Isa, dtype: DType) -> None:
    for x in (singles(dtype), doubles(dtype)):
        x = x if row.compiled else x[:: 1 + len(x) // 30000].copy()
        with np.errstate(all="ignore"):
            wide = x.astype(np.float64)
        for how, saturates in ((SB1, False), (SATURATED, True)):
            due = nearest(wide, dtype, saturates).view(dtype.numpy)
            launch.assert_bits(converted(x, dtype, row, how), due, (row.name, dtype, how, x.dtype))


@EVERY_FORMAT
def test_the_reference_takes_the_nearest_value(dtype: DType) -> None:
    for x in (singles(dtype), doubles(dtype)):
        with np.errstate(all="ignore"):
            wide = x.astype(np.float64)
        for how, saturates in ((SB1, False), (SATURATED, True)):
            (found,) = elementwise.reference(conversion(dtypes.of(x.dtype), dtype, how), x)
            launch.assert_bits(found, nearest(wide, dtype, saturates).view(dtype.numpy), (how, x.dtype))


@EVERY_FORMAT
def test_encoding_of_float32_is_that_of_ml_dtypes_but_for_nan(dtype: DType) -> None:
    x = singles(dtype)
    if not dtype.has_zero:  # below half way from 2^-127 to 2^-126 ml_dtypes takes some numbers for the larger
        x = x[~(np.abs(x) < 2.0**-126)]
    with np.errstate(all="ignore"):
        due = launch.bits(x.astype(dtype.numpy))
        nan = np.isnan(x.astype(F32)) | np.isnan(x.astype(dtype.numpy).astype(F32))
    found = launch.bits(converted(x, dtype, rows.COMPILED_ROWS[-1]))
    assert np.array_equal(found[~nan], due[~nan])
    assert (found[nan] == (dtype.canonical_nan or 0)).all()
    assert nan.sum() > 2


@functools.cache
def integers(source: DType, dtype: DType) -> tuple[Array, Array]:
    """Integers beside the midpoints of a format and far from them, and the codes of the values nearest to them."""
    # Python compares an integer with a float exactly, however large it is.
    values, middles = magnitudes(dtype).tolist(), midpoints(dtype).tolist()

    def one(n: int) -> int:
        below = bisect.bisect_left(middles, abs(n))
        if below < len(middles) and middles[below] == abs(n):
            below += below % 2 if dtype.has_zero else 1
        if not dtype.has_zero and n <= 0:
            return dtype.canonical_nan or 0
        if below >= len(values):
            return int(nearest(np.array([np.copysign(np.inf, n)]), dtype)[0])
        sign = 1 << dtype.width_bits - 1 if n < 0 and (dtype.has_negative_zero or below) else 0
        return below | sign

    random, low, high = np.random.default_rng(source.width_bits), int(source.min), int(source.max)
    near = {int(m) + d for m in middles[:: 1 + len(middles) // 300] for d in (-1, 0, 1)}
    near |= {1 << k for k in range(64)} | {(1 << k) + (1 << k - 9) + 1 for k in range(12, 64)} | {low, high, 0}
    near |= {int(v) for v in random.integers(max(low, -(2**62)), min(high, 2**62), 200, endpoint=True)}
    numbers = sorted(n for m in near for n in (m, -m) if low <= n <= high)
    wide = np.array(numbers, np.int64 if source.signed else np.uint64)
    x = wide.astype(np.int8 if source.width_bits < 8 else source.numpy).astype(source.numpy)
    return x, np.array([one(n) for n in numbers], f"u{max(dtype.width_bits, 8) // 8}").view(dtype.numpy)


@rows.in_turn("row, dtype", FORMATS, 2)
def test_integers_become_floats_with_one_rounding(row: Isa, dtype: DType) -> None:
    for source in INTEGERS:
        x, due = integers(source, dtype)
        launch.assert_bits(converted(x, dtype, row), due, (row.name, source, dtype))
        (found,) = elementwise.reference(conversion(source, dtype), x)
        launch.assert_bits(found, due, (source, dtype))


@rows.in_turn("row, dtype", [*FORMATS, dtypes.float32], 0)
def test_floats_become_integers_toward_zero_within_the_limits(row: Isa, dtype: DType) -> None:
    x = every_code(dtype) if convert.is_coded(dtype) else singles(dtypes.float8_e4m3fn)
    x = x if x.size <= 256 else x[::11].copy()
    targets = INTEGERS if row.compiled else (dtypes.int4, dtypes.uint1, dtypes.int8)
    for target, made in zip(targets, converted_to_each(x, targets, row), strict=True):
        with np.errstate(invalid="ignore"):
            wide = x.astype(F32)
        limits = int(target.min), int(target.max)
        numbers = [0 if v != v else limits[v > 0] if np.isinf(v) else int(v) for v in map(float, wide)]
        codes = [min(max(n, limits[0]), limits[1]) & ((1 << target.width_bits) - 1) for n in numbers]
        found = launch.bits(made)
        kind = np.dtype(f"u{max(target.width_bits, 8) // 8}")
        assert np.array_equal(found, np.array(codes, kind)), (dtype, target)
        (meant,) = elementwise.reference(conversion(dtype, target), x)
        assert np.array_equal(launch.bits(meant), found), (dtype, target)


@rows.in_turn("row, source", (dtypes.int64, dtypes.int8, dtypes.uint4, dtypes.int2, dtypes.bool_), 0)
def test_integers_wrap(row: Isa, source: DType) -> None:
    width = 1 if source.kind == "bool" else source.width_bits
    x = np.random.default_rng(2).integers(-(1 << 40), 1 << 40, 300).astype(np.int64)
    x = (x & 1).astype(bool) if width == 1 else x.astype(source.numpy)
    number = [int(v) for v in x.astype(np.int64)]
    for target in (dtypes.int4, dtypes.uint4, dtypes.int1, dtypes.uint2, dtypes.uint8, dtypes.int64):
        found = launch.bits(converted(x, target, row))
        assert [int(v) for v in found] == [v & ((1 << target.width_bits) - 1) for v in number], (source, target)
    assert np.array_equal(converted(x, dtypes.bool_, row), np.array(number) != 0)


@rows.in_turn("row, dtype", FORMATS, 3)
def test_truths_are_what_is_not_zero(row: Isa, dtype: DType) -> None:
    x = every_code(dtype)
    with np.errstate(invalid="ignore"):
        assert np.array_equal(converted(x, dtypes.bool_, row), x.astype(F32) != 0)
    if dtype.has_zero:
        assert converted(np.array([True, False, True]), dtype, row).astype(F32).tolist() == [1, 0, 1]


@rows.in_turn("row, source", FORMATS, 1)
def test_every_pair_of_formats(row: Isa, source: DType) -> None:
    x = every_code(source)
    x = x if row.compiled or x.size <= 256 else x[::17].copy()
    with np.errstate(all="ignore"):
        wide = x.astype(np.float64)
    for target, found in zip(FORMATS, converted_to_each(x, FORMATS, row), strict=True):
        due = nearest(wide, target).view(target.numpy)
        launch.assert_bits(found, due, (row.name, source, target))


@pytest.mark.parametrize("row", rows.AARCH64_ROWS, ids=lambda row: row.name)
def test_conversions_on_aarch64(row: Isa) -> None:
    here = rows.COMPILED_ROWS[-1]
    for dtype in FORMATS:
        codes = every_code(dtype)
        codes = codes if codes.size <= 256 else codes[::13].copy()
        launch.assert_bits(converted(codes, dtypes.float32, row), converted(codes, dtypes.float32, here), dtype)
        for x in (singles(dtype), doubles(dtype)):
            x = x[:: 1 + len(x) // 3000].copy()
            launch.assert_bits(converted(x, dtype, row), converted(x, dtype, here), dtype)
