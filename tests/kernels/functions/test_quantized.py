"""Quantisation is IEEE division and requantisation exact on every row: ties, neighbours of ties, saturation, and scales
that are no common numbers."""

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

from samebits import dtypes
from samebits.codegen.isa import Isa
from samebits.dtypes import DType
from samebits.kernels import elementwise
from samebits.kernels.expression import Chain, Expression

Array = np.ndarray[Any, Any]
F32 = np.float32
KINDS = [(dtypes.int32, dtypes.int8), (dtypes.float64, dtypes.uint8)]


def expression(total: DType, result: DType) -> Expression:
    chain = Chain()
    scales = [dtypes.float32] * 3
    return chain.finish(chain.apply("requantize", *(chain.input(x) for x in (total, *scales, result))))


def close_to_ties() -> list[tuple[int, int, int, int, int]]:
    """(acc, s_a, s_b, s_y, k) with acc * s_a * s_b = (n + 1/2) * s_y * 2**k up to 1 to 3, about 2**-55 of it."""
    rng, found = np.random.default_rng(0), []
    while len(found) < 400:
        a, b = (int(x) | 1 for x in rng.integers(1 << 9, 1 << 17, 2))
        r = int(rng.choice([-3, -1, 1, 3]))
        acc = r * pow(a * b, -1, 1 << 31) % (1 << 31)
        top = (acc * a * b - r) >> 31
        odd = [q for q in range(1, 512, 2) if top % q == 0 and 0 < top // q < 1 << 24]
        found += [(acc, a, b, top // q, 32) for q in odd[:2]]
    return found


@functools.cache
def cases(total: DType, result: DType) -> tuple[Array, ...]:
    """Accumulators, three scales and zero points."""
    rng = np.random.default_rng(1)
    limits = np.iinfo(result.numpy)
    parts: list[tuple[Any, ...]] = []

    def add(*columns: Any) -> None:
        parts.append(np.broadcast_arrays(*columns))

    n = 3000
    scale = [np.exp2(rng.uniform(-20, 4, n)).astype(F32) * rng.choice([-1, 1], n).astype(F32) for _ in range(3)]
    zero = rng.integers(limits.min, limits.max + 1, n)
    large = rng.integers(-(2**31), 2**31, n)
    aim = rng.uniform(-300, 300, n)
    with np.errstate(all="ignore"):
        # Large sums whose quotient is in range, and every quotient in steps of a quarter.
        add(large, scale[0], scale[1], (large * scale[0].astype(float) * scale[1] / aim).astype(F32), zero)
        m = rng.integers(1, 1 << 12, (2, n))
        exact = (m[0] * m[1]).astype(F32)
        for y in (exact, np.nextafter(exact, F32(np.inf)), np.nextafter(exact, F32(0))):
            add(rng.integers(-1200, 1200, n), m[0].astype(F32) / 4, m[1].astype(F32), y, zero)
    for acc, a, b, y, k in close_to_ties():
        for sign in (-1, 1):
            add(sign * acc, F32(a), F32(b) / F32(2) ** (k // 2), F32(y) * F32(2) ** (k - k // 2), int(zero[acc % n]))
    edges = [0, 1, -1, 255, 2**31 - 1, -(2**31)]
    odd = [0.0, -0.0, 1.0, -0.7, 1e-45, -1e-38, 3e38, np.inf, -np.inf, np.nan, 2e-39]
    grid = np.meshgrid(edges, odd, odd, odd, [limits.min, 0, limits.max], indexing="ij")
    add(*(x.ravel() for x in grid))
    columns = [np.concatenate([np.atleast_1d(p[i]) for p in parts]) for i in range(5)]
    kinds = [total.numpy, F32, F32, F32, result.numpy]
    inputs = tuple(np.ascontiguousarray(x.astype(kind)) for x, kind in zip(columns, kinds, strict=True))
    if total is dtypes.float64:  # sums beyond int32
        inputs[0][:n] *= 256
        inputs[3][:n] *= F32(256)
    (due,) = elementwise.reference(expression(total, result), *inputs)
    return (*inputs, due)


@pytest.mark.parametrize("row", rows.ALL_ROWS, ids=lambda row: row.name)
@pytest.mark.parametrize(("total", "result"), KINDS)
def test_requantisation_is_exact(row: Isa, total: DType, result: DType) -> None:
    *inputs, due = cases(total, result)
    out = np.empty(due.shape, due.dtype)
    e = expression(total, result)
    launch.run_plan(elementwise.plan(e, launch.layouts(*inputs), launch.layouts(out), row, 1), [*inputs, out], 1)
    wrong = np.flatnonzero(out != due)
    assert not len(wrong), [(x[wrong[0]] for x in (*inputs, out, due))]


@functools.cache
def with_bias() -> tuple[Array, ...]:
    """The same sums in two, of which some leave int32 together, and what is due of their sum."""
    acc, *given, _ = cases(*KINDS[0])
    n, limits = len(acc), np.iinfo(np.int32)
    rng = np.random.default_rng(5)
    bias = rng.integers(limits.min, limits.max + 1, n)
    bias[::5] = rng.choice([limits.min, limits.max, 0, 1, -1], len(bias[::5]))
    t = acc.astype(np.int64) - bias
    t = np.where((t < limits.min) | (t > limits.max), rng.choice([limits.min, limits.max], n), t)
    total, result = (t + bias).astype(np.float64), KINDS[0][1]
    (due,) = elementwise.reference(expression(dtypes.float64, result), total, *given)
    assert (np.abs(total) > limits.max).sum() > n // 10
    return (t.astype(np.int32), bias.astype(np.int32), *given, due)


@pytest.mark.parametrize("row", rows.ALL_ROWS, ids=lambda row: row.name)
def test_a_bias_is_added_exactly(row: Isa) -> None:
    *inputs, due = with_bias()
    chain = Chain()
    e = chain.finish(chain.apply("requantize_sum", *[chain.input(dtypes.of(x.dtype)) for x in inputs]))
    assert np.array_equal(elementwise.reference(e, *inputs)[0], due)
    out = np.empty(due.shape, due.dtype)
    launch.run_plan(elementwise.plan(e, launch.layouts(*inputs), launch.layouts(out), row, 1), [*inputs, out], 1)
    assert np.array_equal(out, due)


@pytest.mark.parametrize("row", rows.AARCH64_ROWS, ids=lambda row: row.name)
def test_requantisation_on_aarch64(row: Isa) -> None:
    *inputs, due = (x[::5].copy() for x in cases(*KINDS[0]))
    out = np.empty(due.shape, due.dtype)
    plan = elementwise.plan(expression(*KINDS[0]), launch.layouts(*inputs), launch.layouts(out), row, 1)
    aarch64.run_plan(plan, [*inputs, out])
    assert np.array_equal(out, due)


def test_the_cases_tell_exact_rounding_from_floats() -> None:
    acc, a, b, y, zero, due = cases(*KINDS[0])
    with np.errstate(all="ignore"):
        for kind in (np.float32, np.float64):
            quotient = acc.astype(kind) * (a.astype(kind) * b.astype(kind)) / y.astype(kind)
            near = np.clip(np.rint(np.nan_to_num(quotient, nan=0.0)), -1000, 1000) + zero
            assert (np.clip(near, -128, 127) != due).sum() > 50, kind
    i = int(np.flatnonzero(due != zero)[0])
    whole = round(Fraction(int(acc[i])) * Fraction(float(a[i])) * Fraction(float(b[i])) / Fraction(float(y[i])))
    assert due[i] == min(max(whole + int(zero[i]), -128), 127)


@functools.cache
def floats(source: DType, result: DType) -> tuple[Array, ...]:
    """x, scales and zero points: every code of a narrow format; ties, their neighbours and specials of float32."""
    rng = np.random.default_rng(2)
    odd = np.array([0.0, -0.0, 1e-45, -1e-38, 0.5, -1.5, 3e38, np.inf, -np.inf, np.nan], F32)
    if source is dtypes.float32:
        s = np.exp2(rng.uniform(-20, 20, 3000)).astype(F32)
        ties = ((rng.integers(-300, 300, 3000) + 0.5) * s).astype(F32)
        parts = [ties, np.nextafter(ties, F32(np.inf)), np.nextafter(ties, F32(-np.inf)), odd.repeat(10)]
        x, scale = np.concatenate(parts), np.concatenate([s, s, s, np.tile(odd, 10)])
    else:
        x = np.arange(1 << 16, dtype=np.uint16).view(source.numpy)
        scale = rng.choice(np.concatenate([odd, np.exp2(rng.uniform(-9, 9, 50)).astype(F32)]), x.size)
    limits = np.iinfo(result.numpy)
    zero = rng.integers(limits.min, limits.max + 1, x.size).astype(result.numpy)
    return x, scale, zero


@pytest.mark.parametrize("row", rows.ALL_ROWS, ids=lambda row: row.name)
def test_quantisation_is_a_division_rounded_and_saturated(row: Isa) -> None:
    for source, result in itertools.product(
        (dtypes.float32, dtypes.bfloat16, dtypes.float16), (dtypes.int8, dtypes.uint8)
    ):
        x, scale, zero = floats(source, result)
        with np.errstate(all="ignore"):
            quotient = x.astype(F32) / scale
            whole = np.where(np.isnan(quotient), 0, np.rint(quotient).astype(float)) + zero
        due = np.clip(whole, *(float(v) for v in (result.min, result.max))).astype(result.numpy)
        chain = Chain()
        inputs = [chain.input(dtype) for dtype in (source, dtypes.float32, result)]
        wide = inputs[0] if source is dtypes.float32 else chain.apply("cast", inputs[0], dtype=dtypes.float32)
        e = chain.finish(chain.apply("quantize", wide, *inputs[1:]))
        assert np.array_equal(elementwise.reference(e, x, scale, zero)[0], due)
        out = np.empty(due.shape, due.dtype)
        plan = elementwise.plan(e, launch.layouts(x, scale, zero), launch.layouts(out), row, 1)
        launch.run_plan(plan, [x, scale, zero, out], 1)
        assert np.array_equal(out, due), (source, result)


# Both signs, quiet and signalling; what a rounding by addition would leave of them in the low bits is not zero.
PAYLOADS = (0x7FC00055, 0xFFC00055, 0x7F800001, 0xFFFFFFFF, 0x7FC000AA, 0x7FC00000)


@pytest.mark.parametrize("row", rows.ALL_ROWS, ids=lambda row: row.name)
@pytest.mark.parametrize("result", [dtypes.int8, dtypes.uint8], ids=lambda row: row.name)
def test_whatever_nan_gives_the_zero_point(row: Isa, result: DType) -> None:
    """Of every operand, in every lane, beside numbers and beside other NaN."""
    limits = np.iinfo(result.numpy)
    nan = np.array(PAYLOADS, np.uint32).view(F32)
    odd = np.concatenate([nan, np.array([1.0, -3.5, 0.0, np.inf], F32)])
    zeros = np.array([limits.min, 0, 5, limits.max], result.numpy)

    def check(name: str, wanted: Any, *columns: Any) -> None:
        grids = [np.ascontiguousarray(g.ravel()) for g in np.meshgrid(*columns, zeros, indexing="ij")]
        with np.errstate(invalid="ignore"):  # of signalling NaN
            lanes = np.any([np.isnan(x.astype(np.float64)) for x in grids[:-1]], axis=0)
        assert lanes.sum() > 100
        inputs = [x[lanes] for x in grids]
        chain = Chain()
        values = [chain.input(dtypes.of(x.dtype)) for x in inputs]
        e, out = chain.finish(wanted(chain, *values)), np.empty(inputs[0].shape, result.numpy)
        plan = elementwise.plan(e, launch.layouts(*inputs), launch.layouts(out), row, 1)
        launch.run_plan(plan, [*inputs, out], 1)
        assert np.array_equal(out, inputs[-1]), name
        assert np.array_equal(elementwise.reference(e, *inputs)[0], inputs[-1]), name

    check("quantize", lambda c, *v: c.apply("quantize", *v), odd, odd)
    for source in (dtypes.bfloat16, dtypes.float16):
        codes = np.arange(1 << 16, dtype=np.uint16).view(source.numpy)
        nans, scales = codes[np.isnan(codes.astype(F32))][::7], np.array([0.25, -2.0], F32)
        check(
            source.name,
            lambda c, x, *v: c.apply("quantize", c.apply("cast", x, dtype=dtypes.float32), *v),
            nans,
            scales,
        )
    for total in (np.int32, np.float64):
        sums = np.array([0, 1, -77, 40000], total)
        check("requantize", lambda c, *v: c.apply("requantize", *v), sums, odd[::2], odd[1::2], odd[::3])
