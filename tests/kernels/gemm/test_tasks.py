"""How threads share a product: what is read often by one task, equally many tasks for each; the bits do not know."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from gemm_run import contraction, measured, product, same
from rows import COMPILED_ROWS, row_named, rows_of_engines

import samebits as sb
from samebits.codegen.isa import Isa
from samebits.dtypes import DType, bfloat16, float32, int8, int32, uint8
from samebits.kernels import gemm
from samebits.kernels.gemm import Contraction, Matrix, Panels, reference, tasks
from samebits.kernels.gemm.choice import Overrides, choose
from samebits.kernels.gemm.panels import panel_columns
from samebits.kernels.gemm.tiles import tile_for
from samebits.kernels.gemm.tuned import Sizes, Tuned
from samebits.kernels.plan import SMALL, Plan

AVX512 = row_named("avx512")


def lying(m: int, k: int, n: int, dtype: DType = float32, *, columns: bool = False, batch: int = 0) -> Contraction:
    """a @ b of rows, or with b's columns contiguous."""
    b = Matrix(1, k, (k * n,), dtype) if columns else Matrix(n, 1, (k * n,), dtype)
    a, out = Matrix(k, 1, (m * k,), dtype), Matrix(n, 1, (m * n,), int32 if dtype is int8 else dtype)
    if batch:
        return contraction(m, n, k, a, b, out, (batch,))
    return contraction(m, n, k, *(Matrix(x.row, x.column, (), x.dtype) for x in (a, b, out)))


def packed(m: int, k: int, n: int) -> Contraction:
    """a @ b, b in panels."""
    return contraction(m, n, k, Matrix(k, 1), Panels(panel_columns(AVX512)), Matrix(n, 1))


def counts(plan: Plan, name: str = "macrokernel") -> list[int]:
    """Tasks of the steps of one kernel."""
    return [step.tasks for step in plan.steps if step.spec.text.__name__ == name]


@pytest.mark.parametrize("threads", [2, 4])
def test_packed_panels_are_read_by_one_thread_where_all_rows_are_one_block(threads: int) -> None:
    for m, k, n in ((32, 4096, 4096), (8, 4096, 4096), (128, 768, 3072), (32, 1536, 384)):
        assert counts(gemm.plan(packed(m, k, n), AVX512, threads)) == [threads]
    # Too few columns for each: blocks of rows.
    facts = dict(gemm.plan(packed(32, 768, 160), AVX512, threads).facts)
    assert facts["blocks"].startswith("MC 11 ")


def test_each_thread_packs_a_once_where_b_is_packed_on_the_way() -> None:
    for dtype, row in ((float32, "avx512"), (bfloat16, "avx512_bf16")):
        plan = gemm.plan(lying(512, 3072, 768, dtype, columns=True), row_named(row), 2)
        assert counts(plan) == [2]
    # Three or five products for two threads: halves, or one thread would have more of them.
    for batch in (3, 5):
        assert counts(gemm.plan(lying(100, 512, 768, batch=batch), AVX512, 2)) == [2 * batch]
    # What a task keeps of C is counted by the rows that there are, so that it may have half of N.
    assert counts(gemm.plan(lying(64, 4096, 4096, bfloat16), row_named("avx512_bf16"), 2)) == [2]


def test_rounds_of_staged_panels_are_equal() -> None:
    assert counts(gemm.plan(lying(512, 3072, 768), AVX512, 1), "pack_panels") == [3]
    for threads in (1, 2):
        rounds = counts(gemm.plan(lying(1000, 3000, 2000), AVX512, threads), "pack_panels")
        assert len(rounds) == 3
        assert len(set(rounds)) == 1
        assert len(counts(gemm.plan(lying(2048, 2048, 2048), AVX512, threads), "pack_panels")) == 2
    assert widths(lying(3000, 4096, 10000)) == {104, 105}


def widths(c: Contraction, **sizes: int) -> set[int]:
    """Panels of the rounds of a product."""
    machine = measured(Tuned("fma float32", tile_for(AVX512), Sizes(**sizes)))
    spans = choose(c, AVX512, 2, Overrides(tile_for(AVX512), "staged"), machine).spans
    return {span.panels for span in spans}


def test_rounds_take_no_more_than_they_may() -> None:
    panel_bytes = 3000 * panel_columns(AVX512) * 4
    for n in (31, 32, 640, 1999, 2000, 2049):
        for room in (1, 2, 3, 7):
            found = widths(lying(100, 3000, n), staged_bytes=room * panel_bytes)
            assert max(found) <= room
            assert max(found) - min(found) <= 1


def test_each_round_has_tasks_for_every_thread() -> None:
    x, w = np.zeros((32, 4096), np.uint8), np.zeros((4096, 4096), np.int8)
    for row in rows_of_engines(uint8, int8):
        if row.compiled:
            with sb.use_isa(row):
                found = counts(sb.plan_matmul(x, w, a_zero_point=3, threads=2))
                assert len(found) > 1
                assert all(count % 2 == 0 for count in found), row


def test_pieces_are_about_as_much_for_each_thread() -> None:
    for units, wanted, repeats, threads in itertools.product(
        (0, 1, 2, 5, 10, 24, 63, 128), (1, 2, 4, 9), (0, 1, 3, 8), (1, 2, 3, 8, 255)
    ):
        size = tasks.evenly(units, wanted, repeats, threads)
        assert 1 <= size <= max(1, units)
        most = -(-repeats * -(-units // size) // threads) * size
        pieces = range(min(units, wanted), min(units, wanted + threads) + 1)
        if any(count and units % count == 0 and repeats * count % threads == 0 for count in pieces):
            assert most <= 1.1 * units * repeats / threads, (units, wanted, repeats, threads)
    assert [tasks.evenly(24, wanted, 1, 2) for wanted in (1, 2, 3, 8)] == [12, 12, 6, 3]
    assert tasks.evenly(10, 8, 1, 2) == 1
    assert tasks.evenly(768, 1, 5, 2) == 384


def test_threads_pack_equally_many_panels() -> None:
    for n, threads, count in ((768, 1, 3), (768, 2, 6), (768, 3, 3), (1024, 2, 4), (4096 + 256, 2, 17)):
        assert counts(gemm.plan(lying(1024, 256, n), AVX512, threads), "pack_panels") == [count], (n, threads)


def test_one_row_is_strips_that_threads_can_share() -> None:
    for k, n, strips in ((3072, 768, 8), (768, 768, 8), (4096, 4096, 16)):
        assert counts(gemm.plan(lying(1, k, n, columns=True), AVX512, 2), "stream") == [strips]
    assert counts(gemm.plan(lying(1, 3072, 768, columns=True), AVX512, 1), "stream") == [3]
    # Strips of few columns would pack the rows too often.
    assert counts(gemm.plan(lying(8, 4096, 320, columns=True), AVX512, 2), "stream") == [2]


def test_bytes_are_work_where_few_rows_wait_for_them() -> None:
    enough = SMALL["products"]
    assert lying(1, 768, 768).work >= enough
    assert lying(1, 768, 768, int8).work < enough
    assert lying(64, 128, 128).work == 64 * 128 * 128
    assert lying(2, 128, 128, batch=5).work == 5 * 128 * (2 + 128) * 4
    x, w = np.zeros((1, 768), np.float32), np.zeros((768, 768), np.float32)
    assert sb.plan_matmul(x, w.T, threads=2).threads == 2
    assert sb.plan_matmul(x.astype(np.int8), w.T.astype(np.int8), threads=2).threads == 1


@pytest.mark.parametrize("isa", COMPILED_ROWS, ids=lambda row: row.name)
def test_bits_ignore_who_shares_what(isa: Isa) -> None:
    rng = np.random.default_rng(0)
    for m, k, n in ((20, 150, 1100), (1, 300, 1030), (150, 140, 770)):
        a, b = rng.standard_normal((m, k)).astype("f4"), rng.standard_normal((k, n)).astype("f4")
        expected = reference(a, b)
        for right in (b, np.ascontiguousarray(b.T).T):
            for threads in (1, 2, 3):
                assert same(product(a, right, isa, threads), expected), (m, k, n, threads)
        with sb.use_isa(isa):
            panels = sb.pack(b)
            for threads in (1, 2, 3):
                assert same(sb.matmul(a, panels, threads=threads), expected), (m, k, n, threads)


def test_nothing_is_shared_where_there_is_nothing() -> None:
    for m, k, n in ((600, 70, 0), (0, 70, 600), (600, 0, 600), (1, 70, 0)):
        for threads in (1, 2, 255):
            plan = gemm.plan(lying(m, k, n), AVX512, threads)
            assert all(step.tasks == 0 for step in plan.steps) or k == 0
            assert not sb.matmul(np.zeros((m, k), "f4"), np.zeros((k, n), "f4"), threads=threads).any()
