"""Weights of a byte each packed with the scales of their blocks: bits of the product of what was not packed."""

from __future__ import annotations

import pickle
from typing import Any

import aarch64
import gemm_cases
import guard
import ml_dtypes
import numpy as np
import pytest
from launch import assert_bits
from rows import AARCH64_ROWS, ALL_ROWS, PRODUCT_ROWS, here

import samebits as sb
from samebits import dtypes
from samebits.codegen import isa as isas
from samebits.codegen.isa import Isa
from samebits.kernels import gemm
from samebits.kernels.gemm import Contraction, Matrix, Panels, Shared, Side, reference
from samebits.kernels.gemm.engine import WEIGHTS, named
from samebits.kernels.gemm.packed import scales_at, size_scaled

Array = np.ndarray[Any, np.dtype[Any]]
F32, BF16, F16, E8M0 = np.float32, ml_dtypes.bfloat16, np.float16, ml_dtypes.float8_e8m0fnu
ROWS = (*ALL_ROWS, PRODUCT_ROWS[-2])
# Elements, scales, elements of a block, K.
FORMATS = (
    ("float8_e4m3fn", E8M0, 32, 130), ("int8", F16, 128, 200), ("float8_e5m2", F32, 128, 256),
    ("float6_e3m2fn", E8M0, 32, 64), ("uint8", BF16, 64, 97), ("float8_e4m3b11fnuz", F32, 48, 100),
    ("float6_e2m3fn", E8M0, 32, 96), ("int2", F16, 32, 70), ("int4", BF16, 32, 70), ("uint4", F32, 24, 99),
)  # fmt: skip


def drawn(name: str, *shape: int) -> Array:
    """Codes of a format, all of them; of floats without NaN and infinity, which one test has."""
    dtype = dtypes.of(name)
    assert dtype.numpy is not None
    codes = np.random.default_rng([*shape, dtype.width_bits]).integers(0, 1 << dtype.width_bits, shape)
    x = np.asarray(codes.astype(np.uint8).view(dtype.numpy))
    return x if dtype.is_integer else np.where(np.isfinite(x.astype(F32)), x, np.asarray(1.5, dtype.numpy))


def scales(kind: Any, *shape: int) -> Array:
    random = np.random.default_rng([3, *shape])
    x = np.exp2(random.integers(-6, 7, shape)) if kind is E8M0 else random.standard_normal(shape)
    return np.asarray(x).astype(kind)


def activations(kind: Any, *shape: int) -> Array:
    return np.random.default_rng([4, *shape]).standard_normal(shape).astype(kind)


@pytest.mark.parametrize("isa", ROWS, ids=lambda row: row.name)
def test_bits_on_every_row(isa: Isa) -> None:
    """Few rows decode, many convert first; each row of the machine takes some of the formats."""
    at, n = ROWS.index(isa), 40
    for i in (2 * at % len(FORMATS), (2 * at + 1) % len(FORMATS)):
        name, kind, group, k = FORMATS[i]
        b, s, left = drawn(name, k, n), scales(kind, -(-k // group), n), (BF16, F32)[i % 2]
        with sb.use_isa(isa):
            kept = pickle.loads(pickle.dumps(sb.pack(b, left=left, scale=s, group=group, global_scale=0.3)))
            for m in (2, 20):
                a = activations(left, m, k)
                due = reference(a, b, b_scale=s, b_block=group, scale=F32(0.3))
                for threads in (1, 3):
                    assert_bits(sb.matmul(a, kept, out_dtype="float32", threads=threads), due, (name, m))


@pytest.mark.parametrize("name", [row.b.name for row in WEIGHTS if row.b is not dtypes.int16])
def test_every_format_of_a_byte_keeps_its_codes(name: str) -> None:
    k, n, group = 70, 33, 32
    b, s = drawn(name, k, n), scales(F32, 3, n)
    kept = sb.pack(b, left="bfloat16", scale=s, group=group)
    assert kept.engine == f"{name} weights"
    a = activations(BF16, 3, k)
    assert_bits(sb.matmul(a, kept, out_dtype="float32"), reference(a, b, b_scale=s, b_block=group))


def test_panels_hold_a_byte_an_element_and_scales_as_they_are_read() -> None:
    k, n = 512, 128
    kept = sb.pack(drawn("float8_e4m3fn", k, n), left="bfloat16", scale=scales(E8M0, k // 32, n), group=32)
    assert kept.tensor.nbytes == k * n + k // 32 * n * 4
    plan = sb.plan_matmul(np.zeros((1, k), BF16), kept)
    assert len(plan.steps) == 1
    assert ("form", "decoded") in plan.facts


def test_nan_and_infinities_stay_in_their_columns() -> None:
    k, n = 64, 40
    for name in ("float8_e4m3fn", "float8_e5m2"):
        b, s = drawn(name, k, n), scales(F32, 2, n)
        b[3, 5], b[40, 7], s[1, 9] = (np.asarray(x, b.dtype) for x in (np.nan, np.inf, 1.0))
        s[1, 9], s[0, 11] = np.inf, np.nan
        kept = sb.pack(b, left="bfloat16", scale=s, group=32)
        for m in (1, 20):
            a = activations(BF16, m, k)
            due = reference(a, b, b_scale=s, b_block=32)
            assert np.isnan(due[:, [5, 11]]).all()
            assert_bits(sb.matmul(a, kept, out_dtype="float32"), due, (name, m))


@pytest.mark.parametrize("name", ["uint8", "int8", "uint4"])
def test_zero_points_leave_the_elements_when_they_are_packed(name: str) -> None:
    k, n, group = 96, 20, 32
    b, z, s = drawn(name, k, n), drawn(name, 3, n)[::-1], scales(F32, 3, n)
    values = b.astype(F32) - np.repeat(z.astype(F32), group, 0)
    of_a = scales(F32, 20, 3)
    kept = sb.pack(b, left="bfloat16", scale=s, zero_point=z, group=group)
    for m in (2, 20):
        a = activations(BF16, m, k)
        assert_bits(sb.matmul(a, kept, out_dtype="float32"), reference(a, values, b_scale=s, b_block=group))
    # Differences of bytes do not fit the words that sum blocks of integers.
    a = drawn("int8", 20, k)
    due = reference(a.astype(F32), values, a_scale=of_a, a_block=32, b_scale=s, b_block=group)
    assert_bits(sb.matmul(a, kept, a_scale=of_a, a_group=32), due, name)


@pytest.mark.parametrize(
    ("left", "right"), [("int8", "int8"), ("float4_e2m1fn", "float6_e2m3fn"), ("float8_e4m3fn", "float8_e4m3fn")]
)
def test_both_sides_may_have_scales_beside_packed_ones(left: str, right: str) -> None:
    k, n = 256, 70
    b, of_b = drawn(right, k, n), scales(F32, k // 32, n)
    kept = sb.pack(b, left="float32", scale=of_b, group=32)
    for m, group in ((1, 32), (20, 64)):
        a, of_a = drawn(left, m, k), scales(F32, m, k // group)
        due = reference(a.astype(F32), b.astype(F32), a_scale=of_a, a_block=group, b_scale=of_b, b_block=32)
        assert_bits(sb.matmul(a, kept, a_scale=of_a, a_group=group), due, (left, m))


def test_integers_of_a_are_numbers_beside_packed_scales() -> None:
    a, s = drawn("int8", 3, 64), scales(F32, 2, 20)
    for name in ("int8", "int4"):
        b = drawn(name, 64, 20)
        kept = sb.pack(b, left="int8", scale=s, group=32)
        due = reference(a.astype(F32), b.astype(F32), b_scale=s, b_block=32)
        assert_bits(sb.matmul(a, kept), due, name)


@pytest.mark.parametrize(
    "name", ["mxfp8-e4m3", "mxfp8-e5m2", "mxfp6-e2m3", "mxint8", "fp8-1x128", "fp8-128x128", "int8-group32",
             "int8-group128", "uint8-group64-zero", "uint4-group32-zero"],
)  # fmt: skip
def test_what_quantize_gives_packs(name: str) -> None:
    w = np.random.default_rng(0).standard_normal((128, 256)).astype(F32)
    x, q = activations(BF16, 3, 256), sb.quantize(w, name)
    due = sb.linear(x, q)
    for kept in (
        sb.pack(q, left="bfloat16"), sb.pack(sb.quantize(w.T.copy(), name, axis=-2), left="bfloat16"),
    ):  # fmt: skip
        assert_bits(sb.linear(x, kept), due)


def test_without_k_every_sum_is_zero() -> None:
    for name in ("int8", "float8_e4m3fn"):
        kept = sb.pack(drawn(name, 0, 40), left="bfloat16", scale=np.ones((0, 40), F32), group=32)
        for m in (0, 1, 20):
            more: dict[str, Any]
            for more in ({}, {"a_scale": np.ones((m, 0), F32), "a_group": 32}):
                got = sb.matmul(np.zeros((m, 0), BF16), kept, out_dtype="float32", **more)
                assert_bits(got, np.zeros((m, 40), F32), (name, m))


@pytest.mark.parametrize("isa", [*AARCH64_ROWS, here("avx2"), isas.best()], ids=lambda row: row.name)
def test_nothing_outside_the_operands_is_touched(isa: Isa) -> None:
    name = "float8_e4m3fn weights"
    engine = named(name)
    nr, e4m3 = gemm.panel_columns(isa, engine), dtypes.float8_e4m3fn
    for m, k, n in ((1, 48, 70), (15, 50, 13)):
        blocks = -(-k // 16)
        b, s = drawn("float8_e4m3fn", k, n), scales(F32, blocks, n)
        c = Contraction(
            m, n, k, Side(Matrix(k, 1)), Side(Panels(nr, (), e4m3, name, 16, dtypes.float32)), Side(Matrix(n, 1))
        )
        a, out = guard.array(activations(F32, m, k)), guard.array(np.zeros((m, n), F32))
        words = guard.empty((size_scaled(k, n, nr, engine, 16, dtypes.float32),), np.uint8)
        assert words.nbytes == scales_at(k, n, nr, engine) + blocks * -(-n // nr) * nr * 4
        shared = Shared(Matrix(n, 1), 16)
        run = aarch64.run_plan if isa in AARCH64_ROWS else gemm_cases.execute
        packing = gemm.plan_pack(k, n, Matrix(n, 1, (), e4m3), isa, 1, (), engine, dtypes.float32, scale=shared)
        run(packing, [guard.array(b), guard.array(s), words])
        run(gemm.plan(c, isa), [a, words, out])
        assert_bits(out, reference(a, b, b_scale=s, b_block=16), (m, k, n))


REFUSED: list[tuple[Any, type[Exception], str]] = [
    (
        lambda b, s: sb.pack(b.astype(BF16), left="float32", scale=s, group=16), sb.OptionError,
        ("pack: scale is given for bfloat16 [96, 20] beside float32, must be left out, or for integers or signed "
         "floats of at most 8 bits, [K, N], beside float32 or narrower; pass it with the product"),
    ),
    (
        lambda b, s: sb.pack(b, left="float64", scale=s, group=16), sb.OptionError,
        ("pack: scale is given for int8 [96, 20] beside float64, must be left out, or for integers or signed floats of "
         "at most 8 bits, [K, N], beside float32 or narrower; pass it with the product"),
    ),
    (
        lambda b, s: sb.pack(b.view(E8M0), left="float32", scale=s, group=16), sb.OptionError,
        ("pack: scale is given for float8_e8m0fnu [96, 20] beside float32, must be left out, or for integers or signed "
         "floats of at most 8 bits, [K, N], beside float32 or narrower; pass it with the product"),
    ),
    (
        lambda b, s: sb.pack(b.view(E8M0), left="float32", scale=s, group=16), sb.OptionError,
        ("pack: scale is given for float8_e8m0fnu [96, 20] beside float32, must be left out, or for integers or signed "
        "floats of at most 8 bits, [K, N], beside float32 or narrower; pass it with the product"),
    ),
    (
        lambda b, s: sb.pack(b, left="float32", scale=s[0], zero_point=s.astype(np.int8), group=16), sb.OptionError,
        ("pack: scale is one for more than a block, must be one for each block of group; pass it with the product"),
    ),
    (
        lambda b, s: sb.pack(b, left="float32", scale=s[:5], group=16), sb.ShapeError,
        ("pack: scale shape is (5, 20), must be [6, 20], as K = 96 has blocks of 16; pass one for each column of b and "
        "each block"),
    ),
    (
        lambda b, s: sb.matmul(np.ones((2, 96), F32), sb.pack(b, left="float32", scale=s, group=16), b_scale=2.0),
        sb.OptionError,
        ("matmul: b_scale is given beside packed scales, must be left out; leave it out, or pack without scales"),
    ),
    (
        lambda b, s: sb.matmul(np.ones((2, 96)), sb.pack(b, left="float32", scale=s, group=16)), sb.PlanError,
        ("matmul: b_scale per block is beside float64, must be beside float32; convert a"),
    ),
]  # fmt: skip


@pytest.mark.parametrize(("call", "kind", "text"), REFUSED, ids=range(len(REFUSED)))
def test_what_does_not_fit_is_refused_in_one_sentence(call: Any, kind: type[Exception], text: str) -> None:
    with pytest.raises(kind) as error:
        call(drawn("int8", 96, 20), scales(F32, 6, 20))
    assert str(error.value) == text
