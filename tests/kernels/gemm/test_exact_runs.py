"""Runs whose sums nothing rounds, summed in integers: the bits of the chain, whatever the values are."""

from __future__ import annotations

from typing import Any

import gemm_cases
import ml_dtypes
import numpy as np
import pytest
from launch import assert_bits, run_plan
from rows import EVEX_VNNI, PRODUCT_ROWS, row_named

import samebits as sb
from samebits import dtypes
from samebits.codegen.isa import Isa
from samebits.frozen import replace
from samebits.kernels import gemm
from samebits.kernels.gemm import (
    Contraction,
    Matrix,
    Panels,
    Shared,
    Side,
    Spec,
    nibble_panels,
    panel_columns,
    reference,
)
from samebits.kernels.gemm.engine import named
from samebits.kernels.gemm.exact_runs import CodeBytes
from samebits.kernels.gemm.machine import EMERALD_RAPIDS

Array = np.ndarray[Any, np.dtype[Any]]
F32, BF16 = np.float32, ml_dtypes.bfloat16
K, N = 384, 70
# The text as NumPy means it, and rows of both widths that have the instruction.
INTERPRETED = replace(row_named("numpy"), name="numpy", instructions=("dot4_uint8_int8",))
ROWS = [
    INTERPRETED,
    *(row for row in PRODUCT_ROWS if row in (EVEX_VNNI, row_named("avx512_bf16")) and row.available),
]
FORMATS = ("float4_e2m1fn", "int4", "uint4")


def drawn(m: int) -> Array:
    return np.random.default_rng(m).standard_normal((m, K)).astype(BF16)


def rows_of_a() -> dict[str, Array]:
    """Rows whose runs pass, pass in part, and do not, for different reasons."""
    random = np.random.default_rng(0)
    found = {"normal": drawn(1), "several": drawn(5)}
    for name, value in (("small", 2.0**-30), ("least", 2.0**-133), ("nan", np.nan), ("inf", -np.inf), ("large", 3e38)):
        x = drawn(2)
        x[0, 5:K:61] = BF16(value)
        x[1, K // 2 + 9] = BF16(value)
        found[name] = x
    found["tiny"] = np.ldexp(random.integers(-3, 4, (3, K)), [[-133], [-126], [-120]]).astype(BF16)
    found["huge"] = np.ldexp(random.integers(-127, 128, (3, K)), [[85], [100], [120]]).astype(BF16)
    found["zero"] = (drawn(2) * np.array([[0.0], [-0.0]])).astype(BF16)
    found["wide"] = np.ldexp(random.uniform(-1, 1, (3, K)), random.integers(-20, 20, (3, K))).astype(BF16)
    # Words that pass before one that does not, which is larger or has a lower bit; in each run at another place.
    for name, first, later in (("larger later", -12, 3), ("smaller later", 2, -14), ("one unit", 0, 0)):
        x = np.ldexp(random.integers(-127, 128, (3, K)), first)
        x[0, 40::56] = np.ldexp(random.integers(1, 128, x[0, 40::56].shape), later)
        x[1, 99::128] = np.ldexp(255, later)
        x[2, ::24] = np.ldexp(1, later)
        found[name] = x.astype(BF16)
    # Multiples of one unit whose sums come up to 2^24 of it, and a unit beyond.
    for i, top in enumerate((2.0**12, 2.0**15, 2.0**17)):
        x = np.ones((2, K))
        x[:, ::8] = top
        x[1] *= random.choice([-1, 1], K)
        found[f"edge {i}"] = x.astype(BF16)
    return found


def run(
    isa: Isa, a: Array, b: Array, scale: Array | None, group: int, chunk: int = 128
) -> tuple[Array, dict[str, str]]:
    """The product by panels of four bits, and what its plan says."""
    (m, k), n, dtype = a.shape, b.shape[1], dtypes.of(b.dtype)
    name = f"{dtype.name} nibbles"
    nr = panel_columns(isa, named(name))
    panels = Panels(
        nr, (), dtype, name, group if scale is not None else 0, dtypes.float32 if scale is not None else None
    )
    of_blocks = Shared(Matrix(n, 1, (), dtypes.float32), group)
    words = np.zeros(-(-n // nr) * nr * (k // 8 + -(-k // group)) + 64, np.uint32)
    given = np.ones((-(-k // group), n), F32) if scale is None else scale
    packing = nibble_panels.plan_pack(k, n, Matrix(n, 1, (), dtype), of_blocks, nr, isa, 1)
    perform = gemm_cases.execute if isa.compiled else run_plan
    perform(packing, [b.view(np.uint8), given, words])
    sides = Side(Matrix(k, 1, dtype=dtypes.of(a.dtype))), Side(panels)
    plan = gemm.plan(Contraction(m, n, k, *sides, Side(Matrix(n, 1)), spec=Spec(chunk)), isa, machine=EMERALD_RAPIDS)
    out = np.zeros((m, n), F32)
    perform(plan, [a, words, out])
    return out, dict(plan.facts)


@pytest.mark.parametrize("isa", ROWS, ids=lambda row: row.name)
@pytest.mark.parametrize("name", FORMATS)
def test_bits_are_those_of_the_chain(isa: Isa, name: str) -> None:
    random = np.random.default_rng(7)
    b = random.integers(0, 16, (K, N)).astype(np.uint8)
    b[:, :2] = 15, 7  # where all terms have one sign sums are largest
    b = b.view(dtypes.of(name).numpy)
    rows = list(rows_of_a().items())[:: 3 if isa is INTERPRETED else 1]
    for group in (128,) if isa is INTERPRETED else (16, 32, 64, 128):
        scale = random.standard_normal((K // group, N)).astype(F32)
        for what, a in rows:
            out, facts = run(isa, a, b, scale, group)
            assert facts["runs"] == f"{group // 8} words, in integers where a's values make sums exact"
            assert_bits(out, reference(a, b, b_scale=scale, b_block=group), (what, group))


def test_chunks_without_scales_and_runs_of_three_words() -> None:
    isa = ROWS[-1]
    b = np.random.default_rng(1).integers(0, 16, (K, N)).astype(np.uint8).view(dtypes.int4.numpy)
    scale = np.random.default_rng(2).standard_normal((K // 24, N)).astype(F32)
    for what, a in rows_of_a().items():
        assert_bits(
            run(isa, a, b, scale, 24, chunk=48)[0], reference(a, b, spec=Spec(48), b_scale=scale, b_block=24), what
        )
        assert_bits(run(isa, a, b, None, 8)[0], reference(a, b), what)
    for few in (drawn(2)[:, :24].copy(), drawn(2)[:, :24].astype(F32)):  # the last run is shorter than a straight text
        out, facts = run(isa, few, b[:24], None, 8, chunk=16)
        assert facts["form"] != "decoded"
        assert_bits(out, reference(few, b[:24], spec=Spec(16)))


def test_a_sum_that_float32_would_round_is_not_exact() -> None:
    """Of 2^24 units and one more the chain keeps 2^24, however that one is reached."""
    b = np.full((K, N), 1, np.uint8).view(dtypes.uint4.numpy)
    a, scale = np.zeros((1, K), BF16), np.ones((K // 128, N), F32)
    a[0, [0, 100, 101]] = [2.0**24, 1, 1]
    due = reference(a, b, b_scale=scale, b_block=128)
    assert (due == 2.0**24).all()
    for isa in ROWS:
        assert_bits(run(isa, a, b, scale, 128)[0], due, isa.name)


@pytest.mark.parametrize("name", FORMATS)
def test_bytes_are_numbers_in_units(name: str) -> None:
    dtype = dtypes.of(name)
    kind = CodeBytes(dtype)
    assert [value * (0.5 if dtype.is_float else 1.0) for value in kind.values] == [
        float(dtype.decode(c)) for c in range(16)
    ]
    assert 0 <= min(kind.values) + kind.offset <= max(kind.values) + kind.offset < 256


def test_formats_of_many_bits_and_rows_without_the_instruction_take_floats() -> None:
    kept = sb.pack(np.zeros((256, 64), dtypes.int4.numpy), left="float32", scale=np.ones((2, 64), F32), group=128)
    assert "make sums exact" not in str(sb.plan_matmul(np.zeros((1, 256), F32), kept))
    isa, a = row_named("avx2"), np.zeros((1, K), BF16)
    b, scale = np.zeros((K, N), np.uint8).view(dtypes.int4.numpy), np.ones((K // 128, N), F32)
    if isa.available:
        assert "runs" not in run(isa, a, b, scale, 128)[1]
