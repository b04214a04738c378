"""Plans: pure, printable, with reasons; the assembly of their microkernels keeps every accumulator in a register."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from gemm_run import contraction, measured, product, same
from rows import COMPILED_ROWS, FAKE3, row_named, without_dots

from samebits.codegen.isa import ROWS, Isa, named
from samebits.codegen.vocabulary import FunctionSpec, KernelSpec
from samebits.dtypes import bfloat16, bool_, float32, int8, int32
from samebits.errors import OptionError, PlanError
from samebits.kernels import gemm
from samebits.kernels.expression import Chain
from samebits.kernels.gemm import LINE, Contraction, Matrix, Panels, Shared, Side, Spec, reference
from samebits.kernels.gemm.normal import normal
from samebits.kernels.gemm.tiles import cut, tile_for
from samebits.kernels.gemm.tuned import Sizes, Tuned
from samebits.kernels.plan import Step
from samebits.native import compile


def dense(m: int, n: int, k: int, **facts: Any) -> Contraction:
    return contraction(m, n, k, Matrix(k, 1), Matrix(n, 1), Matrix(n, 1), **facts)


def test_plan_is_cached_and_prints_its_reasons() -> None:
    isa = ROWS[1]
    plan = gemm.plan(dense(100, 200, 300), isa, 1)
    assert plan is gemm.plan(dense(100, 200, 300), isa, 1)
    text = str(plan)
    assert text.startswith(
        "matmul a[100,300] b[300,200], chunk 128\n  isa scalar, threads 1\n  machine: default\n  engine: fma float32\n"
    )
    assert "form: fused" in text
    assert "rejected staged: all 100 rows are one block: nothing would use packed B again" in text


def test_columns_of_b_are_packed_on_the_way_all_of_k_at_once() -> None:
    for dtype, row, (m, k), form, blocks in (
        (float32, "avx512", (128, 3072), "fused", "MC 132 KC 3072"),
        (float32, "avx512", (512, 3072), "fused", "MC 264 KC 3072"),
        (float32, "avx512", (512, 9000), "fused", "MC 264 KC 3072"),
        (float32, "avx512", (1024, 3072), "staged", ""),
        (bfloat16, "avx512_bf16", (512, 4096), "fused", "MC 516 KC 2048"),
    ):
        c = contraction(m, 800, k, Matrix(k, 1, (), dtype), Matrix(1, k, (), dtype), Matrix(800, 1, (), dtype))
        facts = dict(gemm.plan(c, next(isa for isa in ROWS if isa.name == row), 1).facts)
        assert facts["form"] == form
        assert facts["blocks"].startswith(blocks)


def test_orientation_follows_out() -> None:
    isa = ROWS[1]
    c = contraction(100, 200, 300, Matrix(300, 1), Matrix(200, 1), Matrix(1, 100))
    assert dict(gemm.plan(c, isa, 1).facts)["orientation"] == "transposed"
    assert dict(gemm.plan(dense(100, 200, 300), isa, 1).facts)["orientation"] == "as given"


def test_rows_are_cut_evenly() -> None:
    for mr in (1, 2, 6, 12):
        for m in range(400):
            rows = cut(m, mr)
            heights = [rows.heights[0]] * rows.tall + [rows.heights[-1]] * (rows.panels - rows.tall)
            assert sum(heights) == m
            assert rows.panels == -(-m // mr)
            assert max(heights, default=1) <= mr
            assert max(heights, default=1) - min(heights, default=1) <= 1


def test_a_narrow_tile_is_taken_where_it_reaches_less_beyond_n() -> None:
    isa = row_named("avx512")
    for form, m in (("fused", 40), ("staged", 5000)):
        for n, nr in ((16, 16), (17, 32), (48, 16), (49, 32), (64, 32), (1025, 16)):
            plan = gemm.plan(dense(m, n, 300), isa, 1, form=form)
            assert f"tile: MR 12 NR {nr}," in str(plan)
            assert ("rejected MR 12 NR 32: N = " in str(plan)) is (nr == 16)
    assert "NR 32," in str(gemm.plan(replace(dense(40, 48, 300), b=Side(Panels(32, ()))), isa, 1))
    assert "NR 32," in str(gemm.plan(dense(40, 48, 300), isa, 1, tile=tile_for(isa)))
    halves = contraction(40, 48, 300, Matrix(300, 1, (), bfloat16), Matrix(48, 1, (), bfloat16), Matrix(48, 1))
    assert "NR 32," in str(gemm.plan(halves, row_named("avx512_bf16"), 1))
    assert "NR 16," in str(gemm.plan(dense(40, 24, 300), row_named("avx2"), 1))


def test_narrow_tiles_have_the_bits_of_wide_ones() -> None:
    rng = np.random.default_rng(0)
    for isa in (row for row in COMPILED_ROWS if (row.lanes, row.registers) == (16, 32)):
        for m, n, k in ((1, 16, 3), (25, 48, 129), (13, 80, 300), (26, 33, 0), (700, 47, 260)):
            a, b = rng.standard_normal((m, k)).astype("f4"), rng.standard_normal((k, n)).astype("f4")
            for form in ("fused", "staged"):
                assert same(product(a, b, isa, form=form), reference(a, b)), (isa.name, m, n, k)
            assert not any(spilled(dense(max(m, 12), n, 256), isa, "fused").values())


def test_batches_with_one_right_operand_become_rows() -> None:
    c = contraction(
        16, 32, 64, Matrix(64, 1, (5 * 16 * 64, 16 * 64)), Matrix(32, 1, (0, 0)), Matrix(32, 1, (5 * 16 * 32, 16 * 32)),
        (3, 5), spec=Spec(),
    )  # fmt: skip
    merged = normal(c)
    assert (merged.m, merged.batch) == (240, ())
    heads = contraction(
        128, 128, 32, Matrix(384, 1, (128 * 384, 32)), Matrix(1, 384, (128 * 384, 32)),
        Matrix(128, 1, (12 * 128 * 128, 128 * 128)), (4, 12),
    )  # fmt: skip
    assert normal(heads).batch == (4, 12)
    kept = contraction(1, 32, 64, Matrix(0, 1, (64,)), Panels(32, (0,)), Matrix(0, 1, (32,)), (7,))
    assert (normal(kept).m, normal(kept).a.values.row, normal(kept).out.values.row) == (7, 64, 32)


def test_forms_that_cannot_be_had_are_refused() -> None:
    isa = ROWS[1]
    with pytest.raises(OptionError) as error:
        gemm.plan(dense(10, 10, 10), isa, 1, form="packed")
    assert str(error.value) == (
        "plan: form for unpacked b is 'packed', must be one of ['streamed', 'fused', 'staged']; leave it away"
    )
    with pytest.raises(OptionError) as error:
        gemm.plan(contraction(2, 10, 10, Matrix(10, 1), Matrix(20, 2), Matrix(10, 1)), isa, 1, form="streamed")
    assert str(error.value) == (
        "plan: form is 'streamed', must be another: neither rows nor columns of b are contiguous; leave it away"
    )
    lying, total, point = Matrix(10, 1, dtype=int8), Matrix(10, 1, dtype=int32), Matrix(0, 0, dtype=int32)
    shifted = Side(lying, zero=Shared(point))
    epilogue, sources = gemm.fused(total=int32, a=shifted)
    summed = contraction(10, 10, 10, shifted, lying, total, epilogue=epilogue, sources=sources)
    with pytest.raises(OptionError) as error:
        gemm.plan(summed, isa, 1, form="fused")
    assert str(error.value) == (
        "plan: form is 'fused', must be one that packs b first, as the zero points of a need; leave it away"
    )


def test_operands_of_another_dtype_than_their_kernels_are_refused() -> None:
    chain = Chain()
    t, limit = chain.input(float32), chain.input(float32)
    less = chain.finish(chain.apply("less", t, limit))
    isa, line, half = ROWS[1], Matrix(0, 1), Matrix(10, 1, dtype=int8)
    cases = {
        "matmul: out dtype is int8, must be float32; describe it as it lies": replace(
            dense(10, 10, 10), out=Side(half)
        ),
        "matmul: out dtype is float32, must be bool; describe it as it lies": dense(
            10, 10, 10, epilogue=less, sources=(line,)
        ),
        "matmul: source 1 dtype is int8, must be float32; describe it as it lies": replace(
            dense(10, 10, 10, epilogue=less, sources=(half,)), out=Side(Matrix(10, 1, dtype=bool_))
        ),
        "matmul: sources count is 0, must be 1, as the epilogue's inputs after t are; list each input's source": dense(
            10, 10, 10, epilogue=less
        ),
    }
    for text, described in cases.items():
        with pytest.raises(PlanError) as error:
            gemm.plan(described, isa, 1)
        assert str(error.value) == text


def test_sides_that_no_kernel_has_are_refused() -> None:
    x, y, line = Matrix(10, 1), Matrix(10, 1, dtype=int8), Shared(Matrix(1, 0), LINE)
    block, plain = Shared(Matrix(10, 1), 5), dense(10, 10, 10)
    cases = {
        "matmul: a_zero is per block of 5, must be one for all, or one for each line; give blocks to b": replace(
            plain, a=Side(x, zero=block)
        ),
        "matmul: b_global_scale is given alone, must be left out, or beside scales of blocks; pass it as b_scale": (
            replace(plain, b=Side(x, global_scale=line))
        ),
        "matmul: out_zero is per block of 5, must be one for all, or one for each line; give blocks to b": replace(
            plain, out=Side(x, zero=block)
        ),
        "matmul: quantised_from is given without a_scale, must be beside a and a_scale; quantise it before": replace(
            plain, a=Side(y, quantised_from=x)
        ),
        "matmul: quantised_from is given for b, must be beside a and a_scale; quantise it before": replace(
            plain, b=Side(y, line, quantised_from=x)
        ),
        "matmul: epilogue is None beside a_zero, b_scale, must be an expression of these; make it with fused": replace(
            plain, a=Side(x, zero=line), b=Side(x, line)
        ),
    }
    for text, described in cases.items():
        with pytest.raises(PlanError) as error:
            gemm.plan(described, ROWS[1], 1)
        assert str(error.value) == text


def test_a_transposed_product_takes_what_sides_share_in_the_same_order() -> None:
    points = [Shared(Matrix(*steps, dtype=int32), LINE) for steps in ((1, 0), (0, 1))]
    left, right = (Side(Matrix(10, 1, dtype=int8), zero=point) for point in points)
    epilogue, sources = gemm.fused(total=int32, a=left, b=right)
    c = contraction(10, 10, 10, left, right, Matrix(10, 1, dtype=int32), epilogue=epilogue, sources=sources)
    assert list(c.shared) == ["a_zero", "b_zero"]
    assert list(c.transposed.shared) == ["b_zero", "a_zero"]
    assert c.transposed.inputs == tuple(point.operand.transposed for point in points)
    assert c.transposed.transposed == c


def test_spec_refuses_what_has_no_meaning() -> None:
    with pytest.raises(OptionError) as error:
        Spec(segments=3)
    assert str(error.value) == "Spec: segments is 3, must be a power of two up to 1024; use 1, 2, 4 or 8"
    with pytest.raises(OptionError) as error:
        Spec(chunk=0)
    assert str(error.value) == "Spec: chunk is 0, must be an int of at least 1; leave it at 128, which is sb1"
    wrong = [(128.5, 1), (True, 1), (128, 2.0), (128, 2048), (128, 1 << 40)]
    for given in wrong:
        with pytest.raises(OptionError):
            Spec(*given)  # type: ignore[arg-type]


def test_big_right_operands_are_packed_in_rounds() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((41, 70)).astype("f4"), rng.standard_normal((2, 70, 333)).astype("f4")
    for isa in COMPILED_ROWS:
        right, out = Matrix(333, 1, (70 * 333,)), Matrix(333, 1, (41 * 333,))
        whole = contraction(41, 333, 70, Matrix(70, 1, (0,)), right, out, (2,))
        small = measured(Tuned("fma float32", tile_for(isa), Sizes(staged_bytes=40_000)))
        plan = gemm.plan(whole, isa, 1, form="staged", machine=small)
        assert len(plan.steps) > 2
        assert plan.workspace_bytes <= 2 * 40_000
        for spec in (Spec(), Spec(32, 2)):
            assert same(product(a, b, isa, form="staged", spec=spec, machine=small), reference(a, b, spec=spec))


@pytest.mark.parametrize("isa", without_dots(row for row in (*ROWS, FAKE3) if row.compiled), ids=lambda row: row.name)
def test_products_of_all_sizes_share_their_kernels(isa: Isa) -> None:
    """No description holds a size: there is a kernel for each form, two where A may be interleaved, and a function for
    each height."""

    def needed(low: float, high: float, seed: int) -> tuple[set[KernelSpec], set[FunctionSpec]]:
        rng, kernels, called = np.random.default_rng(seed), set[KernelSpec](), set[FunctionSpec]()
        for _ in range(200):
            m, n, k = (int(2**power) for power in rng.uniform(low, high, 3))
            threads = int(rng.integers(1, 5))
            for right in (Matrix(n, 1), Matrix(1, k)):
                for batch in ((), (3,), (2, 3)):
                    strides = tuple(1 << 30 for _ in batch)
                    left, out = Matrix(k, 1, strides), Matrix(n, 1, strides)
                    c = contraction(m, n, k, left, replace(right, batch=strides), out, batch)
                    for step in gemm.plan(c, isa, threads).steps:
                        kernels.add(step.spec)
                        called |= {x for x in step.needs if isinstance(x, FunctionSpec)}
        return kernels, called

    both = needed(0, 12, 1), needed(0, 13, 2)
    kernels, called = (set.union(*found) for found in zip(*both, strict=True))
    assert len(kernels) <= 26, [spec.description for spec in kernels]
    assert len(called) <= 64, called


def functions(step: Step, arch: str) -> dict[str, str]:
    """The text of each function that a kernel calls by its address, and of those within it that stream B."""
    found = {repr(spec.description): compile.assembly(spec, arch) for spec in step.needs[:-1]}
    within = compile.assembly(step.spec, arch)
    found |= dict(re.findall(r"^(?:\.?L?)((?:gain|walk)_\w+):(.*?)(?=^\s*\.size|\Z)", within, re.M | re.S))
    assert found
    return found


def spilled(c: Contraction, isa: Isa, form: str) -> dict[str, list[str]]:
    """Vector registers in the stack traffic of each function of a product's kernel."""
    arch, found = isa.targets[0].arch, {}
    for name, body in functions(gemm.plan(c, isa, 1, form=form).steps[-1], arch).items():
        register = r"[xyz]mm\d+" if arch == "x86_64" else r"\b[qvs]\d+"
        stack = r"\(%rsp" if arch == "x86_64" else r"\[sp"
        lines = [line for line in body.splitlines() if re.search(register, line) and re.search(stack, line)]
        # Callee-saved halves of vector registers are saved once a call on AArch64.
        found[name] = [line for line in lines if not re.search(r"\bd\d+", line)]
    return found


@pytest.mark.parametrize("isa", without_dots(row for row in (*ROWS, FAKE3) if row.compiled), ids=lambda row: row.name)
def test_microkernels_keep_accumulators_in_registers(isa: Isa) -> None:
    tile = tile_for(isa)
    for m in {tile.mr, 1, 2, 3, (tile.mr * 2 - 1)}:
        found = spilled(dense(m, 8 * tile.nr(isa), 256), isa, "fused")
        assert not any(found.values()), found


@pytest.mark.parametrize("isa", without_dots(row for row in (*ROWS, FAKE3) if row.compiled), ids=lambda row: row.name)
def test_streams_keep_sums_and_squares_in_registers(isa: Isa) -> None:
    for m in (1, 2, 5, 8):
        for right in (Matrix(500, 1), Matrix(1, 256)):
            found = spilled(replace(dense(m, 500, 256), b=Side(right)), isa, "streamed")
            assert not any(found.values()), (m, right, found)


def test_x86_microkernels_broadcast_from_memory_and_multiply_in_registers() -> None:
    for name, register in (("avx512", "zmm"), ("avx2", "ymm")):
        isa = named(name) if next(row for row in ROWS if row.name == name).available else None
        if isa is None:
            pytest.skip(f"this machine has no {name}")
        tile = tile_for(isa)
        step = gemm.plan(dense(tile.mr, 4 * tile.nr(isa), 256), isa, 1, form="fused").steps[-1]
        body = next(iter(functions(step, "x86_64").values()))
        assert len(re.findall(rf"vfmadd231ps\s.*%{register}", body)) >= 4 * tile.mr * tile.nv
        assert re.search(r"vbroadcastss\s+-?\d*\(", body)
