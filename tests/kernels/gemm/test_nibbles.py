"""Weights of four bits packed two to a byte with the scales of their blocks, beside floats: few rows and many."""

from __future__ import annotations

import functools
import pickle
from typing import Any

import aarch64
import gemm_cases
import guard
import ml_dtypes
import numpy as np
import pytest
from launch import assert_bits
from rows import AARCH64_ROWS, ALL_ROWS, PRODUCT_ROWS, here, row_named

import samebits as sb
from samebits import dtypes
from samebits.codegen import isa as isas
from samebits.codegen.isa import Isa
from samebits.kernels import gemm
from samebits.kernels.gemm import Contraction, Matrix, Panels, Shared, Side, nibble_panels, reference
from samebits.kernels.gemm.engine import FMA32, PAIRS, named
from samebits.kernels.gemm.machine import EMERALD_RAPIDS, ZEN4, Machine

Array = np.ndarray[Any, np.dtype[Any]]
F32, BF16, E4M3, E8M0 = np.float32, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e8m0fnu
ROWS = (*ALL_ROWS, PRODUCT_ROWS[-2])
FORMATS = (("float4_e2m1fn", E4M3, 16), ("int4", np.float16, 128), ("uint4", BF16, 32), ("float4_e2m1fn", E8M0, 32))


def weights(name: str, k: int, n: int) -> Array:
    return np.random.default_rng([k, n]).integers(0, 16, (k, n)).astype(np.uint8).view(dtypes.of(name).numpy)


def scales(kind: Any, blocks: int, n: int) -> Array:
    random = np.random.default_rng([3, blocks, n])
    x = np.exp2(random.integers(-6, 7, (blocks, n))) if kind is E8M0 else random.standard_normal((blocks, n))
    return np.asarray(x).astype(kind)


def activations(kind: Any, m: int, k: int) -> Array:
    return np.random.default_rng([m, k]).standard_normal((m, k)).astype(kind)


@functools.cache
def meant(name: str, kind: Any, group: int, left: Any, m: int, k: int, n: int) -> Array:
    """What all rows are compared with, computed once."""
    b, s = weights(name, k, n), scales(kind, k // group, n)
    return reference(activations(left, m, k), b, b_scale=s, b_block=group, scale=F32(0.3))


@pytest.mark.parametrize("isa", ROWS, ids=lambda row: row.name)
def test_bits_on_every_row(isa: Isa) -> None:
    # Interpreted, each call takes a second, and one of several threads is like one of one.
    k, n, many = (256, 200, (1, 3)) if isa.compiled else (256, 70, (3,))
    for i, (name, kind, group) in enumerate(FORMATS):
        b, s = weights(name, k, n), scales(kind, k // group, n)
        left = (BF16, F32, np.float16, E4M3)[i]
        with sb.use_isa(isa):
            kept = pickle.loads(pickle.dumps(sb.pack(b, left=left, scale=s, group=group, global_scale=0.3)))
            assert kept.engine == f"{name} nibbles"
            for m in (1, 3, 33) if isa.compiled else ((1, 33), (3,))[i % 2]:
                a = activations(left, m, k)
                due = meant(name, kind, group, left, m, k, n)
                for threads in many:
                    got = sb.matmul(a, kept, out_dtype="float32", threads=threads)
                    assert_bits(got, due, (name, m))


def test_panels_hold_half_a_byte_an_element_and_a_scale_as_it_is() -> None:
    k, n = 512, 128
    kept = sb.pack(weights("float4_e2m1fn", k, n), left="bfloat16", scale=scales(E4M3, k // 16, n), group=16)
    assert kept.tensor.nbytes == k * n // 2 + k // 16 * n * 2
    plan = str(sb.plan_matmul(np.zeros((1, k), BF16), kept))
    assert "decoded" in plan
    assert "four bits" in plan


def test_columns_that_lie_packed_and_what_quantize_gives_pack_too() -> None:
    w = np.random.default_rng(0).standard_normal((80, 256)).astype(F32)
    x, q = activations(BF16, 2, 256), sb.quantize(w, "nvfp4")
    due = sb.linear(x, q)
    for kept in (
        sb.pack(q, left="bfloat16"), sb.pack(sb.quantize(w.T.copy(), "nvfp4", axis=-2), left="bfloat16"),
        sb.pack(sb.to_packed(q.elements).T, left="bfloat16", scale=q.scales.T, group=16,
                global_scale=float(q.global_scale.numpy())),
    ):  # fmt: skip
        assert_bits(sb.linear(x, kept), due)
    squares = sb.quantize(w, "nvfp4-16x16")
    assert_bits(sb.linear(x, sb.pack(squares, left="bfloat16")), sb.linear(x, squares))


@pytest.mark.parametrize("machine", [ZEN4, EMERALD_RAPIDS], ids=lambda row: row.name)
def test_bits_of_the_engine_that_a_machine_chooses(machine: Machine) -> None:
    k, n, isa = 256, 70, isas.best()
    for name, kind, group in FORMATS:
        b, s = weights(name, k, n), scales(kind, k // group, n)
        kept = sb.pack(b, left="bfloat16", scale=s, group=group)
        panels = kept.fits.panels(())
        for m, tiny in ((1, 1.0), (1, 1e-39), (3, 2.0**-126), (2, 2.0**-119), (1, 2.0**-118), (3, 2.0**-117)):
            a = activations(BF16, m, k)
            if tiny != 1:
                a[0, 8:] *= BF16(0)
                a[0, 5:40:7] = BF16(tiny)
            c = Contraction(m, n, k, Side(Matrix(k, 1, dtype=dtypes.bfloat16)), Side(panels), Side(Matrix(n, 1)))
            plan, out = gemm.plan(c, isa, machine=machine), np.zeros((m, n), F32)
            is_slow = PAIRS.name in machine.slow or not PAIRS.is_native(isa)
            assert dict(plan.facts)["engine"] == (FMA32 if is_slow else PAIRS).name
            gemm_cases.execute(plan, [a, kept.tensor.numpy(), out])
            assert_bits(out, reference(a, b, b_scale=s, b_block=group), (name, m, tiny))


@pytest.mark.parametrize(("machine", "kind", "most"), [(EMERALD_RAPIDS, BF16, 32), (EMERALD_RAPIDS, F32, 16)])
def test_few_rows_decode_what_they_read(machine: Machine, kind: Any, most: int) -> None:
    isa = row_named("avx512_bf16")
    for m in (1, most, most + 1):
        a, panels = (
            Matrix(256, 1, dtype=dtypes.of(kind)),
            Panels(64, (), dtypes.int4, "int4 nibbles", 128, dtypes.float32),
        )
        plan = gemm.plan(Contraction(m, 70, 256, Side(a), Side(panels), Side(Matrix(70, 1))), isa, machine=machine)
        assert (dict(plan.facts)["form"] == "decoded") == (m <= most), m


def test_blocks_and_orders_that_no_decoder_has_are_opened() -> None:
    b, a = weights("int4", 168, 70), activations(BF16, 2, 168)
    for group, spec in ((56, sb.Spec()), (1000, sb.Spec()), (16, sb.Spec()), (24, sb.Spec(24, 2)), (5, sb.Spec())):
        s = scales(F32, -(-168 // group), 70)
        kept = sb.pack(b, left="bfloat16", scale=s, group=group)
        due = reference(a, b, spec=spec, b_scale=s, b_block=group)
        assert_bits(sb.matmul(a, kept, out_dtype="float32", spec=spec), due, (group, spec))


def test_both_sides_may_have_scales_beside_packed_ones() -> None:
    a, b = weights("float4_e2m1fn", 5, 96), weights("float4_e2m1fn", 96, 33)
    of_a, of_b = scales(E4M3, 5, 6), scales(E4M3, 6, 33)
    kept = sb.pack(b, left="float32", scale=of_b, group=16)
    due = reference(a, b, a_scale=of_a, a_block=16, b_scale=of_b, b_block=16)
    assert_bits(sb.matmul(a, kept, a_scale=of_a, a_group=16), due)


@pytest.mark.parametrize("name", ["float4_e2m1fn", "int4"])
@pytest.mark.parametrize("left", ["float4_e2m1fn", "bfloat16", "float32"])
def test_without_k_every_sum_is_zero_and_what_is_added_stays(name: str, left: str) -> None:
    n, empty = 40, np.ones((0, 40), F32)
    bias = np.random.default_rng(0).standard_normal(n).astype(F32)
    kept = sb.pack(weights(name, 0, n), left=left, scale=empty, group=32)
    for m in (0, 1, 9, 40):
        a = np.zeros((m, 0), dtypes.of(left).numpy)
        for more in ({}, {"a_scale": np.ones((m, 0), F32), "a_group": 32}):
            got = sb.matmul(a, kept, bias=bias, out_dtype="float32", **more)
            assert_bits(got, np.broadcast_to(bias, (m, n)), (m, more))
            assert_bits(sb.matmul(a, kept, out_dtype="float32", **more), np.zeros((m, n), F32), (m, more))


@pytest.mark.parametrize("isa", [*AARCH64_ROWS, here("avx2"), isas.best()], ids=lambda row: row.name)
def test_nothing_outside_the_operands_is_touched(isa: Isa) -> None:
    for m, k, n in ((1, 48, 70), (3, 32, 13), (18, 48, 13)):
        b, s, name = weights("float4_e2m1fn", k, n), scales(E4M3, k // 16, n), "float4_e2m1fn nibbles"
        nr = gemm.panel_columns(isa, named(name))
        panels = Panels(nr, (), dtypes.float4_e2m1fn, name, 16, dtypes.bfloat16)
        c = Contraction(m, n, k, Side(Matrix(k, 1)), Side(panels), Side(Matrix(n, 1)))
        size = -(-n // nr) * nr * (k // 8) + -(-k // 16) * -(-n // nr) * nr // 2
        a, out = guard.array(activations(F32, m, k)), guard.array(np.zeros((m, n), F32))
        words = guard.empty((size,), np.uint32)
        lies = Matrix(n, 1, (), dtypes.float4_e2m1fn)
        shared = Shared(Matrix(n, 1, (), dtypes.float8_e4m3fn), 16)
        is_foreign = isa in AARCH64_ROWS
        run = aarch64.run_plan if is_foreign else gemm_cases.execute
        run(nibble_panels.plan_pack(k, n, lies, shared, nr, isa, 1), [guard.array(b), guard.array(s), words])
        run(gemm.plan(c, isa), [a, words, out])
        assert_bits(out, reference(a, b, b_scale=s, b_block=16), (m, k, n))


REFUSED: list[tuple[Any, type[Exception], str]] = [
    (
        lambda b, s: sb.pack(b, left="float32", scale=s), sb.OptionError,
        ("pack: scale is given without group, must be given beside scale and group, for scales of blocks; pass group= "
        "too, or scale with the product"),
    ),
    (
        lambda b, s: sb.pack(b, left="float32", global_scale=2.0), sb.OptionError,
        ("pack: global_scale is given without scale, must be given beside scale and group, for scales of blocks; pass "
        "scale= too, or global_scale with the product"),
    ),
    (
        lambda b, s: sb.pack(weights("float4_e2m1fn", 94, 20), left="float32", scale=s, group=16), sb.ShapeError,
        "pack: b row count is 94, must be a multiple of 8 for float4_e2m1fn with scales; pass b unpacked",
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
        call(weights("int4", 96, 20), scales(F32, 6, 20))
    assert str(error.value) == text
