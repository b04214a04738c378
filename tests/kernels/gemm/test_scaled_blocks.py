"""Products whose operands both have scales of blocks: numerics.md section 4, on every row."""

from __future__ import annotations

import itertools
import re
from dataclasses import replace
from fractions import Fraction
from typing import Any

import aarch64
import ml_dtypes
import numpy as np
import pytest
from gemm_run import execute
from launch import assert_bits
from rows import AARCH64_ROWS, ALL_ROWS, EVEX_VNNI, PLANNED, PRODUCT_ROWS, row_named

import samebits as sb
from samebits import dtypes
from samebits.codegen import llvm
from samebits.codegen.isa import Isa, best
from samebits.kernels import gemm
from samebits.kernels.gemm import Contraction, Matrix, Shared, Side, Spec, reference
from samebits.kernels.gemm.machine import EMERALD_RAPIDS, ZEN4

Array = np.ndarray[Any, np.dtype[Any]]
F32, BF16, E4M3, E8M0 = np.float32, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e8m0fnu
ROWS = (*(row for row in ALL_ROWS if not row.compiled), *PRODUCT_ROWS)
# Formats of a and of b, and of their scales: NVFP4, MXFP4, MXFP6, MXFP8, FP8 by blocks, integers in groups, mixes.
FORMATS = (
    ("float4_e2m1fn", "float4_e2m1fn", E4M3), ("float4_e2m1fn", "float6_e2m3fn", E8M0),
    ("float6_e3m2fn", "float6_e3m2fn", E8M0), ("float8_e4m3fn", "float8_e5m2", E8M0),
    ("float8_e4m3fn", "float8_e4m3fn", F32), ("int8", "int8", F32), ("int8", "int4", np.float16),
    ("uint8", "float4_e2m1fn", BF16), ("bfloat16", "int4", E4M3), ("float16", "float8_e4m3fn", E4M3),
    ("uint8", "uint8", F32),
)  # fmt: skip
# Blocks of a and of b: alike, one within the other, neither, longer than a chunk, one over all of K.
BLOCKS = ((16, 16), (32, 16), (32, 32), (128, 128), (64, 128), (7, 5), (256, 16), (1000, 1000))


def elements(name: str, *shape: int, seed: int = 0) -> Array:
    """Finite numbers of a format, zeros among them."""
    dtype, random = dtypes.of(name), np.random.default_rng([seed, *shape])
    if dtype.is_integer:
        return random.integers(int(dtype.min), int(dtype.max) + 1, shape).astype(dtype.numpy)
    return (random.standard_normal(shape) * 3 * random.integers(0, 2, shape)).astype(dtype.numpy)


def scales(kind: Any, *shape: int, seed: int = 0) -> Array:
    random = np.random.default_rng([seed, *shape])
    x = np.exp2(random.integers(-6, 7, shape)) if kind is E8M0 else random.standard_normal(shape)
    return np.asarray(x).astype(kind)


def cases(turn: int | None) -> list[tuple[int, tuple[str, str, Any], tuple[int, int]]]:
    """Numbered pairs of formats and blocks, of which a row takes every third one, the next row the next."""
    every = itertools.zip_longest(FORMATS, BLOCKS, fillvalue=(16, 16))
    return [(i, *case) for i, case in enumerate(every) if turn is None or (i + turn) % 3 == 0]


@pytest.mark.exhaustive
@pytest.mark.parametrize("isa", ROWS, ids=lambda row: row.name)
def test_bits_of_every_case_on_every_row(isa: Isa) -> None:
    check_bits(isa, None)


@pytest.mark.parametrize("isa", ROWS, ids=lambda row: row.name)
def test_bits_on_every_row(isa: Isa) -> None:
    check_bits(isa, ROWS.index(isa))


def check_bits(isa: Isa, turn: int | None) -> None:
    """The cases of a turn have the bits of the reference."""
    for i, (left, right, kind), (ga, gb) in cases(turn):
        m, n, k = ((5, 40, 300), (1, 17, 130), (26, 35, 256))[i % 3]
        a, b = elements(left, m, k), elements(right, k, n, seed=1)
        of_a, of_b = scales(kind, m, -(-k // ga)), scales(kind, -(-k // gb), n, seed=1)
        due = reference(a, b, a_scale=of_a, a_block=ga, b_scale=of_b, b_block=gb)
        options = {"a_scale": of_a, "b_scale": of_b, "a_group": ga, "b_group": gb, "out_dtype": "float32"}
        with sb.use_isa(isa):
            for threads in (1, 2):
                assert_bits(sb.matmul(a, b, **options, threads=threads), due, (left, right, ga, gb))
            assert_bits(sb.matmul(np.asfortranarray(a), np.asfortranarray(b), **options), due, (left, right))


def contraction(a: Array, b: Array, of_a: Array, of_b: Array, sizes: tuple[int, int]) -> Contraction:
    """The product of dense operands and scales of blocks."""
    (m, k), n = a.shape, b.shape[1]

    def lies(x: Array) -> Matrix:
        return Matrix(x.shape[1], 1, (), dtypes.of(x.dtype))

    left, right = Side(lies(a), Shared(lies(of_a), sizes[0])), Side(lies(b), Shared(lies(of_b), sizes[1]))
    return Contraction(m, n, k, left, right, Side(Matrix(n, 1)))


@pytest.mark.parametrize("isa", AARCH64_ROWS, ids=lambda row: row.name)
def test_bits_on_aarch64(isa: Isa) -> None:
    for _, (left, right, kind), (ga, gb) in cases(AARCH64_ROWS.index(isa)):
        m, n, k = 9, 13, 150
        a, b = elements(left, m, k), elements(right, k, n, seed=1)
        of_a, of_b = scales(kind, m, -(-k // ga)), scales(kind, -(-k // gb), n, seed=1)
        out = np.zeros((m, n), F32)
        plan = gemm.plan(contraction(a, b, of_a, of_b, (ga, gb)), isa)
        aarch64.run_plan(plan, [a, b, of_a, of_b, out])
        assert_bits(out, reference(a, b, a_scale=of_a, a_block=ga, b_scale=of_b, b_block=gb), (left, right))


def test_forms_tiles_and_cache_blocks_do_not_matter() -> None:
    from samebits.kernels.gemm.choice import Blocks
    from samebits.kernels.gemm.tiles import Tile

    m, n, k = 29, 70, 900
    rows = {isa.name: isa for isa in (PLANNED, best())}
    for (left, right, kind), isa in itertools.product((FORMATS[0], FORMATS[4], FORMATS[6]), rows.values()):
        a, b = elements(left, m, k), elements(right, k, n, seed=1)
        of_a, of_b = scales(kind, m, -(-k // 32)), scales(kind, -(-k // 16), n, seed=1)
        due = reference(a, b, a_scale=of_a, a_block=32, b_scale=of_b, b_block=16)
        c = contraction(a, b, of_a, of_b, (32, 16))
        for tile, blocks, threads in (
            (None, Blocks(7, 33, 256), 3), (Tile(3, 1), None, 2), (Tile(1, 2), Blocks(100, 100, 512), 1)
        ):  # fmt: skip
            out = np.zeros((m, n), F32)
            plan = gemm.plan(c, isa, threads, tile=tile, blocks=blocks)
            execute(plan, [a, b, of_a, of_b, out])
            assert_bits(out, due, (left, isa.name, tile, blocks))


def exact(a: Array, b: Array, of_a: Array, of_b: Array, size: int) -> Array:
    """By rational numbers: every sum of a block is exact, each of its products with the scales rounds as one fma."""

    def rounded(x: Fraction) -> Fraction:
        """The nearest float32, ties to even: of numbers that are normal in it."""
        if not x:
            return x
        exponent = 0
        while abs(x) * Fraction(2) ** -exponent >= 2:
            exponent += 1
        while abs(x) * Fraction(2) ** -exponent < 1:
            exponent -= 1
        unit = Fraction(2) ** (exponent - 23)
        return round(x / unit) * unit

    (m, k), n = a.shape, b.shape[1]
    out = np.zeros((m, n), F32)
    for i, j in np.ndindex(m, n):
        total = Fraction(0)
        for chunk in range(0, k, 128):
            acc = Fraction(0)
            for low in range(chunk, min(chunk + 128, k), size):
                ks = range(low, min(low + size, chunk + 128, k))
                d = sum((Fraction(float(a[i, x])) * Fraction(float(b[x, j])) for x in ks), Fraction(0))
                s = rounded(Fraction(float(of_a[i, low // size])) * Fraction(float(of_b[low // size, j])))
                acc = rounded(d * s + acc)
            total = rounded(total + acc)
        out[i, j] = float(total)
    return out


@pytest.mark.parametrize(("left", "right"), [("float4_e2m1fn", "float4_e2m1fn"), ("int8", "int4")])
def test_small_products_are_those_of_rational_numbers(left: str, right: str) -> None:
    for m, n, k, size in ((2, 3, 40, 16), (1, 2, 150, 32), (2, 1, 33, 8)):
        a, b = elements(left, m, k, seed=5), elements(right, k, n, seed=6)
        of_a, of_b = scales(F32, m, -(-k // size), seed=7), scales(F32, -(-k // size), n, seed=8)
        got = sb.matmul(a, b, a_scale=of_a, b_scale=of_b, a_group=size, b_group=size)
        assert np.array_equal(got, exact(a, b, of_a, of_b, size))


def test_global_scales_multiply_the_finished_sum_once() -> None:
    m, n, k = 5, 33, 160
    a, b = elements("float4_e2m1fn", m, k), elements("float4_e2m1fn", k, n, seed=1)
    of_a, of_b = scales(E4M3, m, 10), scales(E4M3, 10, n, seed=1)
    given = {"a_scale": of_a, "b_scale": of_b, "a_group": 16, "b_group": 16}
    plain = {"a_scale": of_a, "b_scale": of_b, "a_block": 16, "b_block": 16}
    one, rows, columns = F32(0.3), scales(F32, m, seed=2), scales(F32, n, seed=3)
    bias = scales(F32, n, seed=4)
    due = reference(a, b, **plain, scale=rows[:, None] * one, bias=bias)
    assert_bits(sb.matmul(a, b, **given, a_global_scale=rows, b_global_scale=0.3, bias=bias), due)
    due = reference(a, b, **plain, scale=one * columns)
    assert_bits(sb.matmul(a, b, **given, a_global_scale=one, b_global_scale=columns), due)
    due = reference(a, b, b_scale=of_b, b_block=16, scale=rows[:, None])
    assert_bits(sb.matmul(a, b, b_scale=of_b, b_group=16, a_scale=rows), due)
    weight = sb.linear(
        a, b.T, bias, weight_scale=of_b.T, group=16, weight_global_scale=one, x_scale=of_a, x_group=16,
        x_global_scale=rows,
    )  # fmt: skip
    assert_bits(weight, sb.matmul(a, b, **given, a_global_scale=rows, b_global_scale=one, bias=bias))


def test_blocks_may_cover_several_lines_of_an_operand() -> None:
    m, n, k = 21, 300, 390
    a, b = elements("float8_e4m3fn", m, k), elements("float8_e4m3fn", k, n, seed=1)
    of_a, of_b = scales(F32, m, 4), scales(F32, 4, 3, seed=1)
    due = reference(a, b, a_scale=of_a, a_block=128, b_scale=of_b, b_block=(128, 128))
    assert_bits(sb.matmul(a, b, a_scale=of_a, b_scale=of_b, a_group=128, b_group=(128, 128)), due)
    got = sb.linear(a, b.T, weight_scale=of_b.T, group=(128, 128), x_scale=of_a, x_group=(1, 128))
    assert_bits(got, due)
    of_a, of_b = scales(E4M3, 2, 25), scales(E4M3, 25, 19, seed=1)
    due = reference(a, b, a_scale=of_a, a_block=(16, 16), b_scale=of_b, b_block=(16, 16))
    got = sb.matmul(a[None], b[None], a_scale=of_a[None], b_scale=of_b[None], a_group=(16, 16), b_group=(16, 16))
    assert_bits(got[0], due)


def test_nan_infinite_and_zero_scales_do_what_arithmetic_makes_of_them() -> None:
    m, n, k = 4, 20, 96
    a, b = elements("float4_e2m1fn", m, k), elements("float4_e2m1fn", k, n, seed=1)
    a[1, 16:32] = 0  # a block of zeros
    of_a, of_b = scales(F32, m, 6), scales(F32, 6, n, seed=1)
    of_a[0, 2], of_a[2, 3], of_b[1, 3], of_b[4, 5] = np.nan, 0, np.inf, np.nan
    of_a[3, 0], of_b[0, 7] = 3e38, 3e38  # whose product overflows
    of_a[3, 1], of_b[1, 7] = 1e-30, 1e-30  # and underflows
    given = {"a_scale": of_a, "b_scale": of_b, "a_group": 16, "b_group": 16}
    due = reference(a, b, a_scale=of_a, a_block=16, b_scale=of_b, b_block=16)
    assert np.isnan(due[0]).all()
    assert np.isnan(due[1, 3])
    assert not np.isnan(due[2]).all()
    for isa in ROWS:
        with sb.use_isa(isa):
            assert_bits(sb.matmul(a, b, **given), due, isa.name)


def test_a_row_of_a_batch_is_the_row_alone_and_segments_keep_blocks() -> None:
    k, n = 300, 40
    a, b = elements("int8", 70, k), elements("int8", k, n, seed=1)
    of_a, of_b = scales(F32, 70, 10), scales(F32, 10, n, seed=1)
    given = {"b_scale": of_b, "a_group": 32, "b_group": 32}
    whole = sb.matmul(a, b, a_scale=of_a, **given)
    for m in (1, 3, 13):
        assert_bits(sb.matmul(a[-m:], b, a_scale=of_a[-m:], **given), whole[-m:], m)
    assert_bits(sb.matmul(a.reshape(7, 10, k), b, a_scale=of_a.reshape(7, 10, 10), **given).reshape(70, n), whole)
    for spec in (Spec(64, 2), Spec(256), Spec(48, 4)):
        due = reference(a, b, spec=spec, a_scale=of_a, a_block=32, b_scale=of_b, b_block=32)
        assert_bits(sb.matmul(a, b, a_scale=of_a, **given, spec=spec), due, spec)


def test_scales_of_batches_have_the_bits_of_each() -> None:
    k, n = 200, 40
    for batch_a, batch_b in (((3,), (3,)), ((2, 3), (3,)), ((3,), ()), ((), (2,))):
        a, b = elements("float4_e2m1fn", *batch_a, 5, k), elements("float4_e2m1fn", *batch_b, k, n, seed=1)
        of_a, of_b = scales(E4M3, *batch_a, 5, 7), scales(E4M3, *batch_b, 13, n, seed=1)
        due = reference(a, b, a_scale=of_a, a_block=32, b_scale=of_b, b_block=16)
        assert_bits(sb.matmul(a, b, a_scale=of_a, b_scale=of_b, a_group=32, b_group=16), due, (batch_a, batch_b))


def test_integers_are_summed_by_bytes_where_blocks_have_equal_runs() -> None:
    def planned(left: str, right: str, ga: int, gb: int, spec: Spec = gemm.SB1) -> str:
        a, b = elements(left, 4, 256), elements(right, 256, 20)
        made = contraction(a, b, scales(E4M3, 4, -(-256 // ga)), scales(E4M3, -(-256 // gb), 20), (ga, gb))
        return str(gemm.plan(replace(made, spec=spec), row_named("avx512_vnni"), 1))

    for left, right in (("float4_e2m1fn", "float6_e2m3fn"), ("int8", "int4"), ("int8", "uint8")):
        assert "engine: int8 x uint8 blocks" in planned(left, right, 32, 16)
    assert "engine: uint8 x int8 blocks" in planned("uint8", "float4_e2m1fn", 32, 16)
    for left, right, ga, gb, engine, reason in (
        ("int8", "int8", 24, 16, "int8 x uint8", "chunks and blocks do not have equal runs of a multiple of 4"),
        ("uint8", "uint8", 16, 16, "uint8 x int8", "uint8 would need an offset"),
        ("uint8", "uint8", 16, 16, "int8 x uint8", "uint8 would need an offset"),
    ):
        text = planned(left, right, ga, gb)
        assert "engine: fma float32" in text
        assert f"rejected {engine} blocks: {reason}" in text
    long = planned("int8", "int8", 4096, 4096, spec=Spec(4096))
    assert "engine: int8 x uint8 blocks" in long  # of 256 elements all sums are exact
    assert "engine: fma float32" in planned("float6_e3m2fn", "float4_e2m1fn", 16, 16)


@pytest.mark.parametrize("isa", [row for row in PRODUCT_ROWS if row.registers >= 16], ids=lambda row: row.name)
def test_tiles_have_chains_that_hide_the_latency_of_fma(isa: Isa) -> None:
    a, b = elements("float8_e4m3fn", 64, 256), elements("float8_e4m3fn", 256, 64)
    made = contraction(a, b, scales(E8M0, 64, 8), scales(E8M0, 8, 64), (32, 32))
    high, width = map(int, re.findall(r"R (\d+)", dict(gemm.plan(made, isa, 1).facts)["tile"])[:2])
    assert high * width // isa.lanes >= 8


def test_sums_whose_bits_are_floats_keep_every_scale_of_a_byte() -> None:
    """Every code of the format of scales on both sides, NaN, zeros and negative ones too, and blocks of the largest
    elements, of either sign: 1.5 * 2^23 and a sum may neither carry nor round (`block_microkernel.BEGUN`)."""
    m, n, k = 8, 32, 1024
    random = np.random.default_rng(9)

    def drawn(name: str, size: int, lines: int) -> Array:
        """Lines of k elements, two thirds of their blocks all the least or all the largest."""
        dtype, of_block = dtypes.of(name), np.repeat(random.integers(-1, 2, (lines, k // size)), size, 1)
        most = np.where(of_block < 0, float(dtype.min), float(dtype.max))
        return np.where(of_block == 0, elements(name, lines, k).astype(F32), most).astype(dtype.numpy)

    def codes(kind: Any, lines: int, blocks: int) -> Array:
        """Every code, but of formats other than e4m3 finite ones alone, and a corner of ordinary numbers."""
        x = random.permutation(np.arange(lines * blocks) % 256).astype(np.uint8).reshape(lines, blocks).view(kind)
        x[: lines // 2] = np.where(np.isfinite(x[: lines // 2].astype(F32)), x[: lines // 2], kind(0.5))
        return x if kind is E4M3 else np.where(np.isfinite(x.astype(F32)), x, kind(1))

    for left, right, kind, size in (
        ("float4_e2m1fn", "float4_e2m1fn", E4M3, 16), ("int8", "int8", E4M3, 32), ("int8", "int8", E4M3, 128),
        ("int8", "float4_e2m1fn", ml_dtypes.float8_e5m2fnuz, 64),
    ):  # fmt: skip
        sides = drawn(left, size, m), drawn(right, size, n).T
        of_a, of_b = codes(kind, m, k // size), codes(kind, n, k // size).T
        due = reference(*sides, a_scale=of_a, a_block=size, b_scale=of_b, b_block=size)
        given = {"a_scale": of_a, "b_scale": of_b, "a_group": size, "b_group": size, "out_dtype": "float32"}
        for isa in {row.name: row for row in (best(), *PRODUCT_ROWS) if row in (best(), EVEX_VNNI)}.values():
            with sb.use_isa(isa):
                assert_bits(sb.matmul(*sides, **given), due, (left, right, isa.name))


def test_equal_blocks_take_a_tile_of_their_own() -> None:
    """Whole chunks and halves of one, of which the last is not whole, in micropanels of 7 and 6 rows."""
    m, n, k = 13, 40, 296
    a, b = elements("int8", m, k), elements("int8", k, n, seed=1)
    isa = best() if "dot4_uint8_int8" in best().instructions else PLANNED
    for size, kind in ((128, F32), (64, F32), (128, E4M3), (32, F32), (16, E4M3)):
        of_a, of_b = scales(kind, m, -(-k // size)), scales(kind, -(-k // size), n, seed=1)
        c = contraction(a, b, of_a, of_b, (size, size))
        plan = gemm.plan(c, row_named("avx512_vnni"), machine=EMERALD_RAPIDS)
        assert dict(plan.facts)["tile"].startswith("MR 7 NR 32,"), size
        other = gemm.plan(c, row_named("avx512_vnni"), machine=ZEN4)
        assert dict(other.facts)["tile"].startswith(f"MR {8 if size <= 32 else 12} NR 16,"), size
        out = np.zeros((m, n), F32)
        execute(gemm.plan(c, isa, machine=EMERALD_RAPIDS), [a, b, of_a, of_b, out])
        assert_bits(out, reference(a, b, a_scale=of_a, a_block=size, b_scale=of_b, b_block=size), (size, kind))


def test_long_runs_are_summed_in_a_loop_that_is_no_longer_for_them() -> None:
    m, n, k, size = 3, 20, 2300, 1000  # runs of 250 words, and one of 75
    a, b = elements("int8", m, k), elements("int8", k, n, seed=1)
    of_a, of_b = scales(F32, m, 3), scales(F32, 3, n, seed=1)
    a[:, :size], b[:size] = -128, 127
    due = reference(a, b, spec=Spec(size), a_scale=of_a, a_block=size, b_scale=of_b, b_block=size)
    assert_bits(sb.matmul(a, b, a_scale=of_a, b_scale=of_b, a_group=size, b_group=size, spec=Spec(size)), due)

    def emitted(k: int) -> int:
        """Characters of the texts of a product whose K is one block."""
        a, b = elements("int2", 1, k), elements("int2", k, 16)
        c = replace(contraction(a, b, scales(F32, 1, 1), scales(F32, 1, 16), (k, k)), spec=Spec(k))
        plan = gemm.plan(c, row_named("avx512_vnni"))
        assert dict(plan.facts)["engine"] == "int8 x uint8 blocks"
        return sum(len(llvm.emit(step.spec)) for step in plan.steps)

    assert emitted(1 << 16) < emitted(1 << 12) * 1.01


REFUSED: list[tuple[dict[str, Any], type[Exception], str]] = [
    (
        {"a_scale": np.ones((2, 5), F32), "a_group": 16}, sb.ShapeError,
        ("matmul: a_scale shape is (2, 5), must be [2, 6], as K = 96 has blocks of 16; pass one for each row of a and "
        "each block"),
    ),
    (
        {"b_scale": np.ones((6, 2), F32), "b_group": (16, 8)}, sb.ShapeError,
        ("matmul: b_scale shape is (6, 2), must be [6, 3], as K = 96 has blocks of 16 along K by 8; pass one for each "
        "block"),
    ),
    (
        {"a_group": 16}, sb.OptionError,
        "matmul: a_group is 16 without blocks, must be left out; pass scales [..., M, K / a_group] with it",
    ),
    (
        {"a_scale": np.ones((2, 6), np.float64), "a_group": 16}, sb.DTypeError,
        ("matmul: a_scale dtype is float64, must be float32 or float16 or bfloat16 or float8_e3m4 or float8_e4m3 or "
        "float8_e4m3b11fnuz or float8_e4m3fn or float8_e4m3fnuz or float8_e5m2 or float8_e5m2fnuz or float8_e8m0fnu; "
        "convert it first"),
    ),
    (
        {"a_scale": 1.0, "a_global_scale": 2.0}, sb.OptionError,
        ("matmul: a_global_scale is given without blocks, must be left out, or beside a_scale of blocks; pass it as "
        "a_scale, or a_group= too"),
    ),
    (
        {"b_scale": np.ones((6, 20), F32), "b_group": (16, 0)}, sb.OptionError,
        ("matmul: b_group is (16, 0), must be a pair of integers of at least 1; pass an extent for each of its last "
        "two axes"),
    ),
]  # fmt: skip


@pytest.mark.parametrize(("options", "kind", "text"), REFUSED, ids=lambda x: x if isinstance(x, str) else "")
def test_what_does_not_fit_is_refused_in_one_sentence(
    options: dict[str, Any], kind: type[Exception], text: str
) -> None:
    a, b = elements("float4_e2m1fn", 2, 96), elements("float4_e2m1fn", 96, 20)
    with pytest.raises(kind) as error:
        sb.matmul(a, b, **options)
    assert str(error.value) == text
