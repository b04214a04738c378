"""Products with scales of blocks along K (numerics.md section 4) have the reference's bits on every row and form."""

from __future__ import annotations

import itertools
from fractions import Fraction
from typing import Any

import aarch64
import guard
import ml_dtypes
import numpy as np
import pytest
from gemm_run import contraction, execute
from launch import assert_bits
from rows import AARCH64_ROWS, ALL_ROWS, PRODUCT_ROWS, row_named

from samebits import dtypes
from samebits.codegen.isa import Isa
from samebits.errors import PlanError
from samebits.kernels import gemm
from samebits.kernels.gemm import SB1, Matrix, Shared, Side, Spec, engine, reference
from samebits.kernels.gemm.machine import ZEN4
from samebits.kernels.plan import Plan

Array = np.ndarray[Any, np.dtype[Any]]
BFLOAT16 = ml_dtypes.bfloat16
# The fastest row of this machine; rows that differ for floats.
BEST = PRODUCT_ROWS[-2]
EVERY_ROW = (*ALL_ROWS, BEST)


def integers(dtype: Any, *shape: int, seed: int = 0) -> Array:
    row = dtypes.of(dtype)
    return np.random.default_rng([seed, *shape]).integers(int(row.min), int(row.max) + 1, shape).astype(row.numpy)


def floats(dtype: Any, *shape: int, seed: int = 0) -> Array:
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(dtype)


def lying(x: Array) -> Matrix:
    steps = [s // x.itemsize for s in x.strides]
    return Matrix(steps[-2], steps[-1], tuple(steps[:-2]), dtypes.of(x.dtype))


def product(
    a: Array, b: Array, block: int, scale: Array | None, zero: Array | None, isa: Isa, threads: int = 1, *,
    spec: Spec = SB1, run: Any = execute, **choices: Any,
) -> Array:  # fmt: skip
    """a @ b through the kernels: of elements without their zero points, in blocks with scales."""
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    out = guard.empty((*batch, a.shape[-2], b.shape[-1]), np.float32)
    right = Side(lying(b), *(None if x is None else Shared(lying(x), block) for x in (scale, zero)))
    c = contraction(
        a.shape[-2], b.shape[-1], a.shape[-1], lying(a), right, lying(out), batch, spec=spec
    )  # fmt: skip
    run(gemm.plan(c, isa, threads, **choices), [a, b, *(x for x in (scale, zero) if x is not None), out])
    return out


def meaning(a: Array, b: Array, block: int, scale: Array | None, zero: Array | None, spec: Spec = SB1) -> Array:
    """The same by the reference."""
    values = b.astype(np.float32)
    if zero is not None:
        values = values - np.repeat(zero.astype(np.float32), block, -2)[..., : b.shape[-2], :]
    return reference(a, values, spec=spec, b_scale=scale, b_block=block)


def rounded(x: Fraction) -> Fraction:
    """x as float32, ties to even, of ordinary magnitude."""
    if x == 0:
        return x
    exponent = 0
    while abs(x) >= Fraction(2) ** (exponent + 1):
        exponent += 1
    while abs(x) < Fraction(2) ** exponent:
        exponent -= 1
    ulp = Fraction(2) ** (exponent - 23)
    return round(x / ulp) * ulp


def test_reference_is_the_rule_in_fractions() -> None:
    for k, block in ((300, 32), (300, 48), (140, 256), (129, 5)):
        a, b = floats(np.float32, 1, k), floats(np.float32, k, 1, seed=1)
        scale = floats(np.float32, -(-k // block), 1, seed=2)
        total = Fraction(0)
        for chunk in range(0, k, 128):
            acc = d = Fraction(0)
            for i in range(chunk, min(chunk + 128, k)):
                d = rounded(Fraction(float(a[0, i])) * Fraction(float(b[i, 0])) + d)
                if (i + 1) % block == 0 or i + 1 in (chunk + 128, k):
                    acc = rounded(d * Fraction(float(scale[i // block, 0])) + acc)
                    d = Fraction(0)
            total = rounded(total + acc)
        assert Fraction(float(reference(a, b, b_scale=scale, b_block=block)[0, 0])) == total


@pytest.mark.parametrize("isa", EVERY_ROW, ids=lambda row: row.name)
def test_integers_in_blocks_have_the_bits_of_the_reference(isa: Isa) -> None:
    for left, sizes, blocks, form in (
        (np.float32, ((1, 300, 70),), (64, 1000), "fused"),
        (BFLOAT16, ((5, 300, 33), (2, 0, 5)), (32, 48, 256, 5), "staged"),
    ):
        for m, k, n in sizes:
            a, b = guard.array(floats(left, m, k)), guard.array(integers(np.int8, k, n))
            for block in blocks:
                rows = -(-k // block)
                scale, zero = floats(np.float16, rows, n, seed=1), integers(np.int8, rows, n, seed=2)
                points = None if block in (1000, 48) else zero
                got = product(a, b, block, scale, points, isa, form=form)
                assert_bits(got, meaning(a, b, block, scale, points), (left, m, k, n, block))


@pytest.mark.parametrize("isa", EVERY_ROW, ids=lambda row: row.name)
@pytest.mark.parametrize(("left", "form"), [(np.float32, "staged"), (BFLOAT16, "fused")], ids=["float32", "bfloat16"])
def test_blocks_end_at_their_ends_wherever_chunks_do(isa: Isa, left: Any, form: str) -> None:
    """The last chunk ends a word before the end of the block that it begins in, there, and a word after; and longer
    blocks end inside whole chunks. Where a block is missed, one scale serves two."""
    n = 33
    ends = [(block, k) for block, end in ((48, 288), (200, 200), (96, 288)) for k in (end - 2, end, end + 1, end + 2)]
    for block, k in (*ends, (126, 300), (128, 300), (130, 300), (300, 300), (298, 300), (2, 131)):
        a, b = floats(left, 2, k), integers(np.int8, k, n)
        scale = floats(np.float32, -(-k // block), n, seed=1)
        assert_bits(product(a, b, block, scale, None, isa, form=form), meaning(a, b, block, scale, None), (k, block))


@pytest.mark.parametrize("form", ["decoded", "fused", "staged"])
def test_a_scale_multiplies_its_own_block_alone(form: str) -> None:
    """Column j has an infinite scale in block j: an infinity there, where a neighbour that it met would make NaN."""
    block = 32
    for isa, k in itertools.product((ALL_ROWS[0], BEST), (256, 300)):
        blocks = -(-k // block)
        a, b = np.abs(floats(np.float32, 3, k)) + np.float32(1), np.ones((k, blocks), np.int8)
        scale = np.ones((blocks, blocks), np.float32)
        np.fill_diagonal(scale, np.inf)
        got = packed_product(a, b, scale, block, form, isa, execute)
        assert_bits(got, np.full((3, blocks), np.inf, np.float32), (isa.name, k))
        if form != "decoded":
            assert_bits(product(a, b, block, scale, None, isa, form=form), got, (isa.name, k))
            pairs = product(a.astype(BFLOAT16), b, block, scale, None, isa, form=form, engine="bfloat16 pairs")
            assert_bits(pairs, got, (isa.name, k, "pairs"))


@pytest.mark.parametrize("kind", ["uint8", "int4", "uint4", "int2", "uint2", "float8_e4m3fn", "float4_e2m1fn"])
def test_every_format_of_weights(kind: str) -> None:
    dtype = dtypes.of(kind)
    a, block = floats(BFLOAT16, 4, 150), 32
    b = integers(dtype, 150, 40) if dtype.is_integer else floats(dtype.numpy, 150, 40)
    zero = integers(dtype, 5, 40, seed=1) if dtype.is_integer else None
    narrow = ("float16", "float8_e8m0fnu", "float8_e4m3fn") if kind in ("int4", "float4_e2m1fn") else ("float32",)
    for scaled in ("bfloat16", *narrow):
        scale = np.abs(floats(np.float32, 5, 40, seed=2)).astype(dtypes.of(scaled).numpy)
        for right in (b, np.asfortranarray(b)) if kind in ("int4", "uint8") else (b,):
            got = product(a, right, block, scale, zero, BEST)
            assert_bits(got, meaning(a, b, block, scale, zero), (kind, scaled))
    if dtype.is_integer:
        assert_bits(product(a, b, block, None, zero, BEST), meaning(a, b, block, None, zero), "section 2")


def test_integers_by_integers_are_exact_in_blocks() -> None:
    a, b, scale = integers(np.int8, 5, 300), integers(np.uint8, 300, 40), floats(np.float32, 3, 40)
    got = product(a, b, 128, scale, None, BEST)
    exact = np.zeros((5, 40), np.float32)
    for i, low in enumerate(range(0, 300, 128)):
        part = a[:, low : low + 128].astype(np.int64) @ b[low : low + 128].astype(np.int64)
        exact = exact + part.astype(np.float32) * scale[i]  # one rounding each: nothing is added to the product
    assert_bits(got, exact)
    assert_bits(got, meaning(a, b, 128, scale, None))


@pytest.mark.parametrize("isa", EVERY_ROW, ids=lambda row: row.name)
def test_a_block_beyond_2_24_units_is_the_chain(isa: Isa) -> None:
    """A hundred times 28 * 28 are more than 2^16, whose last bit is 2^-7: each 2^-8 after them is a tie and is lost,
    where their exact sum, rounded once, would keep 28 of them."""
    kind = ml_dtypes.float6_e3m2fn
    a, b = np.full((3, 128), 28, np.float32), np.full((128, 40), 28, np.float32)
    a[:, 100:], b[100:] = 0.0625, 0.0625
    scale = np.array([[2.0, 1.0] * 20], np.float32)
    due = np.broadcast_to(100 * 28 * 28 * scale, (3, 40)).astype(np.float32)
    for form in ("fused", "staged"):
        assert_bits(product(a.astype(kind), b.astype(kind), 128, scale, None, isa, form=form), due, form)
    assert np.float32(100 * 28 * 28 + 28 / 256) != np.float32(100 * 28 * 28)


def test_integers_by_integers_reach_2_24_and_are_refused_beyond() -> None:
    a, b = np.full((3, 1100), -128, np.int8), np.full((1100, 40), -128, np.int8)
    for block in (1023, 1024):
        scale = np.array([[1.0], [0.25]], np.float32).repeat(40, 1)
        due = np.full((3, 40), 128 * 128 * (block + (1100 - block) / 4), np.float32)
        assert_bits(product(a, b, block, scale, None, BEST, spec=Spec(1100)), due, block)
    with pytest.raises(PlanError) as error:
        product(a, b, 1025, scale, None, BEST, spec=Spec(1100))
    expected = "so short that sums of a block are exact in float32"
    assert str(error.value) == f"matmul: b_scale block is 1025, must be {expected}; use the default spec"


def test_hostile_scales_and_activations() -> None:
    a, b = floats(BFLOAT16, 6, 300), integers(np.int8, 300, 50)
    a[1, 3], a[2, 140], a[3] = np.nan, np.inf, 0
    a[4] = (a[4].astype(np.float32) * 2.0**-110).astype(BFLOAT16)
    scale = floats(np.float32, 10, 50, seed=1)
    scale[:, 4], scale[3, 5], scale[9, 6], scale[:, 7] = np.inf, np.nan, -np.inf, 0
    scale[:, 8:20] = np.float32(1e-40)
    scale[:, 20:30] *= np.float32(2.0**100)
    due = meaning(a, b, 32, scale, None)
    assert np.isnan(due[3, 4])
    assert np.isinf(due[0, 6])
    assert ((due != 0) & (np.abs(due) < 2.0**-126)).any()
    for isa in (ALL_ROWS[0], BEST):
        assert_bits(product(a, b, 32, scale, None, isa), due, isa.name)


def test_batches_threads_segments_and_cut_k() -> None:
    a, b = floats(np.float32, 3, 20, 700), integers(np.int8, 3, 700, 90)
    scale, zero = floats(np.float32, 3, 11, 90, seed=1), integers(np.int8, 3, 11, 90, seed=2)
    for spec in (Spec(), Spec(32, 2)):
        due = meaning(a, b, 64, scale, zero, spec)
        for threads, form in ((1, "fused"), (3, "staged")):
            got = product(a, b, 64, scale, zero, BEST, threads, spec=spec, form=form)
            assert_bits(got, due, (spec, form))
    cut = gemm.choice.Blocks(12, 64, 128)
    assert_bits(product(a, b, 64, scale, zero, BEST, blocks=cut, form="fused"), meaning(a, b, 64, scale, zero))
    shared = b[:1], np.broadcast_to(scale[:1], scale.shape), zero
    for form in ("fused", "staged"):
        got = product(a, np.broadcast_to(shared[0], b.shape), 64, *shared[1:], BEST, form=form)
        assert_bits(got, meaning(a, shared[0], 64, *shared[1:]), form)


def packed_product(a: Array, b: Array, scale: Array, block: int, form: str | None, isa: Isa, run: Any) -> Array:
    """a @ b of weights b that were packed."""
    (m, k), n = a.shape, b.shape[1]
    row = engine.of_weights(dtypes.of(b.dtype), has_zeros=False)
    panels = guard.empty((gemm.packed_elements(k, n, isa, (), row),), row.word.numpy)
    run(gemm.plan_pack(k, n, lying(b), isa, engine=row), [b, panels])
    out, kept = guard.empty((m, n), np.float32), gemm.Panels(gemm.panel_columns(isa, row), (), row.b, row.name)
    c = contraction(m, n, k, lying(a), Side(kept, Shared(lying(scale), block)), lying(out))
    run(gemm.plan(c, isa, form=form), [a, panels, scale, out])
    return out


@pytest.mark.parametrize("isa", [*ALL_ROWS[:1], *AARCH64_ROWS[-2:]], ids=lambda row: row.name)
def test_packed_weights_where_nothing_is_compiled_for_this_machine(isa: Isa) -> None:
    run = execute if isa is ALL_ROWS[0] else aarch64.run_plan
    a, b, scale = floats(np.float32, 3, 70), integers(np.uint8, 70, 30), floats(np.float32, 3, 30, seed=1)
    for form in ("decoded", "fused", "staged"):
        assert_bits(packed_product(a, b, scale, 32, form, isa, run), meaning(a, b, 32, scale, None), form)


@pytest.mark.parametrize("left", [np.float32, BFLOAT16], ids=lambda kind: np.dtype(kind).name)
def test_packed_weights_of_many_rows_are_converted_once(left: Any) -> None:
    a, b, scale = floats(left, 390, 261), integers(np.int8, 261, 300), floats(np.float32, 3, 300, seed=1)
    plans = list[Plan]()

    def run(plan: Plan, operands: list[Any]) -> None:
        plans.append(plan)
        execute(plan, operands)

    got = packed_product(a, b, scale, 128, None, BEST, run)
    assert dict(plans[-1].facts)["form"] == "staged"
    assert_bits(got, meaning(a, b, 128, scale, None))


@pytest.mark.parametrize("isa", AARCH64_ROWS[-1:], ids=lambda row: row.name)
def test_bits_on_aarch64(isa: Isa) -> None:
    a, b = floats(np.float32, 5, 140), integers(np.int8, 140, 14)
    scale, zero = floats(np.float32, 5, 14, seed=1), integers(np.int8, 5, 14, seed=2)
    got = product(a, b, 32, scale, zero, isa, run=aarch64.run_plan)
    assert_bits(got, meaning(a, b, 32, scale, zero))


def test_pairs_run_where_blocks_are_even() -> None:
    isa = row_named("avx512_bf16")
    a, b, out = Matrix(96, 1, dtype=dtypes.bfloat16), Matrix(40, 1, dtype=dtypes.int8), Matrix(40, 1)
    for size, name in ((32, "bfloat16 pairs, checked"), (33, "fma float32"), (97, "bfloat16 pairs, checked")):
        c = contraction(9, 40, 96, a, Side(b, Shared(Matrix(40, 1), size)), out)
        plan = gemm.plan(c, isa, 1, machine=ZEN4)
        assert dict(plan.facts)["engine"] == name
    assert "blocks of 33 would split its pairs" in str(gemm.plan(
        contraction(9, 40, 96, a, Side(b, Shared(Matrix(40, 1), 33)), out), isa, 1, machine=ZEN4
    ))  # fmt: skip


def test_what_has_no_meaning_is_refused() -> None:
    a, b, out = Matrix(96, 1), Matrix(40, 1, dtype=dtypes.int8), Matrix(40, 1)
    per = Shared(Matrix(40, 1), 32)
    cases = {
        "matmul: b_scale block is 0, must be at least 1; count the elements of a block": (a, b, Shared(a, 0), None),
        "matmul: b_scale dtype is int8, must be float32 or a narrower float; convert it first": (
            a, b, Shared(b, 32), None
        ),
        "matmul: b_zero is given for float32, must be left out; subtract it before": (a, a, per, Shared(b, 32)),
        "matmul: b_scale or b_zero per block is beside float64, must be beside float32; convert a": (
            Matrix(96, 1, dtype=dtypes.float64), b, per, None
        ),
    }  # fmt: skip
    for text, (left, right, scale, zero) in cases.items():
        with pytest.raises(PlanError) as error:
            gemm.plan(contraction(9, 40, 96, left, Side(right, scale, zero), out), BEST, 1)
        assert str(error.value) == text
    whole = contraction(9, 40, 1200, b, Side(b, Shared(Matrix(40, 1), 1200)), out, spec=Spec(1200))
    with pytest.raises(PlanError, match="exact in float32"):
        gemm.plan(whole, BEST, 1)
