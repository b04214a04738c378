"""Streamed products have the reference's bits: every row, lie of B, edge, thread count, type and ending."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import guard
import ml_dtypes
import numpy as np
import pytest
from gemm_run import contraction, product, same
from rows import ALL_ROWS, COMPILED_ROWS, PRODUCT_ROWS, rows_of_engines

import samebits as sb
from samebits import tuning
from samebits.codegen.isa import ROWS, Isa
from samebits.dtypes import bfloat16, float8_e4m3fn, int8
from samebits.kernels import gemm
from samebits.kernels.gemm import Matrix, Side, Spec, choice, reference, tasks
from samebits.kernels.gemm.machine import DEFAULT, Caches
from samebits.kernels.gemm.reference import integers

Array = np.ndarray[Any, Any]
LIES = ("rows", "columns")


def draw(*shape: int, seed: int = 0) -> Array:
    """Normal numbers of mixed magnitude, so that every order of additions gives other bits."""
    rng = np.random.default_rng([seed, *shape])
    return (rng.standard_normal(shape) * np.exp2(rng.integers(-6, 6, shape))).astype(np.float32)


def lying(x: Array, lie: str, *, at_start: bool = False) -> Array:
    """x [..., K, N] beside a forbidden page, its rows or its columns contiguous."""
    if lie == "rows":
        return guard.array(x, at_start=at_start)
    return guard.array(x.swapaxes(-1, -2), at_start=at_start).swapaxes(-1, -2)


@pytest.mark.parametrize("isa", COMPILED_ROWS, ids=lambda row: row.name)
@pytest.mark.parametrize("lie", LIES)
def test_bits_on_edges_beside_guard_pages(isa: Isa, lie: str) -> None:
    lanes = isa.lanes
    ns = sorted({1, lanes - 1, lanes, lanes + 1, 2 * lanes, 2 * lanes + 1, 5 * lanes + 2} - {0})
    ks = [1, 7, lanes, 127, 128, 129, 128 + lanes, 255, 257, 384]
    for i, (m, n) in enumerate(itertools.product((1, 5, 8), ns)):
        k = ks[i % len(ks)]
        a, b = draw(m, k), draw(k, n, seed=1)
        expected = reference(a, b)
        for at_start in (False, True):
            left, right = guard.array(a, at_start=at_start), lying(b, lie, at_start=at_start)
            out = guard.empty((m, n), np.float32, at_start=at_start)
            assert same(product(left, right, isa, out=out, form="streamed"), expected), (m, n, k)


@pytest.mark.parametrize("isa", ALL_ROWS, ids=lambda row: row.name)
def test_bits_on_every_row_and_its_interpreter(isa: Isa) -> None:
    a, b = draw(3, 135), draw(135, 19, seed=1)
    for lie in LIES:
        assert same(product(a, lying(b, lie), isa, form="streamed"), reference(a, b))


@pytest.mark.parametrize("isa", COMPILED_ROWS, ids=lambda row: row.name)
@pytest.mark.parametrize("lie", LIES)
def test_floats_that_are_widened_beside_float64(isa: Isa, lie: str) -> None:
    """A weight of every width that float64 takes is not turned as one of its own is."""
    a, b = draw(2, 135).astype(np.float64), draw(135, 19, seed=1)
    for kind in (np.float32, ml_dtypes.bfloat16, np.float16):
        w = lying(b.astype(kind), lie)
        for m in (1, 2):
            with sb.use_isa(isa):
                assert "form: streamed" in str(sb.plan_matmul(a[:m], w))
                assert same(sb.matmul(a[:m], w), reference(a[:m], b.astype(kind).astype(np.float64)))


@pytest.mark.parametrize("isa", COMPILED_ROWS, ids=lambda row: row.name)
def test_bits_ignore_strips_threads_and_blocks(isa: Isa, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "_STRIP", 100)
    monkeypatch.setattr(tasks, "_STRIP_DOWN", 50)
    gemm.plan.cache_clear()
    for m in (1, 6):
        a, b = draw(m, 300), draw(300, 333, seed=1)
        expected = reference(a, b)
        for lie, threads in itertools.product(LIES, (1, 2, 3, 7)):
            assert same(product(a, lying(b, lie), isa, threads, form="streamed"), expected)
        blocks = choice.Blocks(8, 64, 128)
        assert same(product(a, lying(b, "rows"), isa, form="streamed", blocks=blocks), expected)
    gemm.plan.cache_clear()


@pytest.mark.parametrize("isa", COMPILED_ROWS, ids=lambda row: row.name)
def test_bits_ignore_how_many_chunks_are_walked_together(isa: Isa) -> None:
    """Two chunks side by side, one, an odd number of them, and what fills none; two groups of columns and a part."""
    for cached in (0, 1 << 30):
        machine = replace(DEFAULT, caches=Caches(shared=cached))
        for m, k, n in ((1, 256, 37), (1, 384, 16), (1, 515, 33), (3, 650, 31), (9, 300, 35)):
            a, b = draw(m, k), draw(k, n, seed=1)
            got = product(a, lying(b, "columns"), isa, form="streamed", machine=machine)
            assert same(got, reference(a, b)), (m, k, n)


@pytest.mark.parametrize("isa", COMPILED_ROWS, ids=lambda row: row.name)
def test_bits_ignore_how_many_columns_are_walked_side_by_side(isa: Isa, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whole and partly filled groups of columns, a part of a chunk, columns a power of two apart, chunks of no line."""
    for near in (0, 1 << 30):
        machine = replace(DEFAULT, caches=Caches(near=near))
        monkeypatch.setitem(tuning._kept, isa, machine)
        for m, k, n in ((1, 384, 48), (1, 515, 101), (2, 256, 50), (4, 300, 63), (5, 256, 48), (1, 512, 49)):
            a, b = draw(m, k), draw(k, n, seed=1)
            left, right = guard.array(a), lying(b, "columns")
            assert same(product(left, right, isa, form="streamed", machine=machine), reference(a, b)), (m, k, n)
        with sb.use_isa(isa):
            for kind, total in ((np.float64, np.float64), (ml_dtypes.bfloat16, np.float32)):
                for m, k, n in ((1, 384, 51), (2, 301, 30), (3, 512, 24)):
                    a, b = draw(m, k).astype(kind), draw(k, n, seed=1).astype(kind)
                    got = sb.matmul(a, lying(b, "columns"), out_dtype=np.dtype(total))
                    assert got.tobytes() == reference(a, b).tobytes(), (kind, m, k, n)
        for spec in (Spec(100), Spec(72), Spec(256)):
            a, b = draw(1, 600), draw(600, 53, seed=1)
            got = product(a, lying(b, "columns"), isa, form="streamed", spec=spec, machine=machine)
            assert same(got, reference(a, b, spec=spec)), spec


@pytest.mark.parametrize("lie", LIES)
def test_bits_of_long_sums_and_other_orders(lie: str) -> None:
    a, b = draw(2, 4400), draw(4400, 5, seed=1)
    for isa in COMPILED_ROWS:
        assert same(product(a, lying(b, lie), isa, form="streamed"), reference(a, b))
    a, b = a[:, :700], b[:700]
    for spec in (Spec(256), Spec(100), Spec(1), Spec(1000), Spec(7), Spec(128, 4), Spec(32, 8)):
        assert same(
            product(a, lying(b, lie), COMPILED_ROWS[-1], form="streamed", spec=spec), reference(a, b, spec=spec)
        )


@pytest.mark.parametrize("lie", LIES)
def test_without_rows_or_columns_there_is_nothing_to_do(lie: str) -> None:
    for m, k, n in itertools.product((0, 2), (0, 5, 300), (0, 3)):
        a, b = np.ones((m, k), np.float32), lying(np.ones((k, n), np.float32), lie)
        for threads in (1, 4):
            assert same(sb.matmul(a, b, threads=threads), reference(a, b)), (m, k, n)


@pytest.mark.parametrize("isa", COMPILED_ROWS, ids=lambda row: row.name)
def test_bits_of_layouts_and_batches(isa: Isa) -> None:
    a, b = draw(3, 140), draw(140, 37, seed=1)
    expected = reference(a, b)
    wide = np.zeros((280, 37), np.float32)
    wide[::2] = b
    assert same(product(a, wide[::2], isa, form="streamed"), expected)
    assert same(product(a, np.ascontiguousarray(b[::-1])[::-1], isa, form="streamed"), expected)
    assert same(product(np.asfortranarray(a), b, isa, form="streamed"), expected)
    assert same(product(a[:, ::-1][:, ::-1], b, isa, out=np.empty((37, 3), np.float32).T), expected)
    line = np.broadcast_to(b[:1], b.shape)
    assert same(product(a, line, isa, form="streamed"), reference(a, line))
    # What is contiguous one way or the other is refused, and runs in another form.
    assert same(product(a, np.ascontiguousarray(b[:, ::-1])[:, ::-1], isa), expected)
    for lie in LIES:
        left, right = draw(3, 1, 2, 70), draw(1, 4, 70, 21, seed=1)
        assert same(product(left, lying(right, lie), isa, 2, form="streamed"), reference(left, right))


@pytest.mark.parametrize("isa", COMPILED_ROWS, ids=lambda row: row.name)
def test_special_values(isa: Isa) -> None:
    a, b = draw(4, 260), draw(260, 37, seed=1)
    a[2, 5], a[3, 7], b[9, 4], b[:, 6] = np.nan, np.inf, -np.inf, -0.0
    a.view(np.uint32)[2, 6] = 0xFFC12345
    b[:, 9] *= np.float32(2.0**-130)
    for lie in LIES:
        got = product(a, lying(b, lie), isa, form="streamed")
        assert same(got, reference(a, b))
        assert set(np.unique(got.view(np.uint32)[2])) == {0x7FC00000}


@pytest.mark.parametrize("isa", rows_of_engines(bfloat16, bfloat16), ids=lambda row: row.name)
@pytest.mark.parametrize("lie", LIES)
def test_bits_of_every_float(isa: Isa, lie: str) -> None:
    x, y = draw(5, 270), draw(270, 41, seed=1)
    y[3, 3] = 2.0**-127  # subnormal in bfloat16
    with sb.use_isa(isa):
        for name in ("bfloat16", "float16", "float8_e4m3fn", "float64"):
            kind = getattr(ml_dtypes, name, name)
            a, b = x.astype(kind), y.astype(kind)
            total = np.float64 if name == "float64" else np.float32
            for m in (1, 5):
                got = sb.matmul(a[:m], lying(b, lie), out_dtype=np.dtype(total))
                assert got.tobytes() == reference(a[:m], b).tobytes(), (name, m)


@pytest.mark.parametrize("isa", rows_of_engines(int8, int8), ids=lambda row: row.name)
@pytest.mark.parametrize("lie", LIES)
def test_integers_of_every_sign(isa: Isa, lie: str) -> None:
    rng = np.random.default_rng(0)
    with sb.use_isa(isa):
        for left, right in itertools.product((np.int8, np.uint8), repeat=2):
            a, b = (rng.integers(np.iinfo(t).min, np.iinfo(t).max + 1, s).astype(t)
                    for t, s in ((left, (5, 271)), (right, (271, 41))))  # fmt: skip
            for m in (1, 5):
                assert np.array_equal(sb.matmul(a[:m], lying(b, lie)), integers(a[:m], b))
                got = sb.matmul(a[:m], lying(b, lie), a_zero_point=3, b_zero_point=b[0])
                assert np.array_equal(got, integers(a[:m], b, 3, b[0]))


@pytest.mark.parametrize("lie", LIES)
def test_bits_of_types_narrower_than_a_byte(lie: str) -> None:
    rng = np.random.default_rng(0)
    with sb.use_isa(PRODUCT_ROWS[-2]):
        for kind in (ml_dtypes.float6_e2m3fn, ml_dtypes.float4_e2m1fn):
            a, b = draw(2, 270).astype(kind), draw(270, 41, seed=1).astype(kind)
            assert dict(sb.plan_matmul(a, lying(b, lie)).facts)["form"] == "streamed"
            assert same(sb.matmul(a, lying(b, lie), out_dtype=np.float32), reference(a, b))
        a, b = rng.integers(0, 16, (2, 271)).astype(ml_dtypes.uint4), rng.integers(-8, 8, (271, 41)).astype(np.int8)
        for left, right in ((a, b.astype(ml_dtypes.int4)), (a.view(np.uint8), (b + 8).astype(ml_dtypes.uint4))):
            assert np.array_equal(sb.matmul(left, lying(right, lie)), integers(left, right))


@pytest.mark.parametrize("isa", COMPILED_ROWS, ids=lambda row: row.name)
def test_endings(isa: Isa) -> None:
    a, b, bias, c = draw(4, 200), draw(200, 75, seed=1), draw(75, seed=2), draw(4, 75, seed=3)
    with sb.use_isa(isa):
        for lie in LIES:
            right = lying(b, lie)
            assert same(sb.matmul(a, right, bias=bias, alpha=0.5), reference(a, b, bias=bias, alpha=0.5))
            relu = np.maximum(reference(a, b), np.float32(0))
            assert same(sb.matmul(a, right, activation="relu"), relu)
            out = c.copy()
            assert sb.matmul(a, right, c=out, beta=0.25, out=out) is out
            assert same(out, reference(a, b, c=c, beta=0.25))
            half = sb.matmul(a, right, out_dtype=bfloat16)
            assert half.tobytes() == reference(a, b).astype(ml_dtypes.bfloat16).tobytes()


def test_gradients_that_start_from_minus_zero() -> None:
    for isa in COMPILED_ROWS:
        with sb.use_isa(isa):
            for columns in (1, 40):
                x, dy = np.full((1, columns), -(2.0**-100), np.float32), np.full((1, columns), 2.0**-100, np.float32)
                out = np.full((columns, columns), -0.0, np.float32)
                sb.grad_weight(x, dy, out=out)
                assert out.tobytes() == np.zeros_like(out).tobytes()
                bias = np.full(columns, -0.0, np.float32)
                sb.grad_bias(-np.zeros((1, columns), np.float32), out=bias)
                assert bias.tobytes() == np.zeros_like(bias).tobytes()


def test_plans_say_why() -> None:
    isa, row, left = ROWS[1], Matrix(50, 1), Matrix(300, 1)

    def text(m: int, b: Matrix, **facts: Any) -> str:
        return str(gemm.plan(contraction(m, 50, 300, facts.pop("a", left), b, row, **facts), isa, 1))

    assert "form: streamed" in text(1, row)
    assert "form: streamed" in text(8, Matrix(1, 300))
    assert "rejected fused: 8 rows use each element of B 8 times: packing it would cost more" in text(8, row)
    assert "rejected streamed: 25 rows use each element of B more than 24 times: packing it pays" in text(25, row)
    assert "rejected streamed: neither rows nor columns of b are contiguous" in text(2, Matrix(100, 2))
    pairs = contraction(2, 50, 300, Matrix(300, 1, dtype=bfloat16), Matrix(50, 1, dtype=bfloat16), row)
    plan = gemm.plan(pairs, ROWS[-1], 1)
    assert dict(plan.facts)["engine"] == "fma float32"
    assert dict(plan.facts)["kept between KC blocks"] == "in scratch"
    assert "rejected bfloat16 pairs: b is read once, where it lies: nothing has looked for" in str(plan)
    exact = replace(pairs, a=Side(Matrix(300, 1, dtype=float8_e4m3fn)), b=Side(Matrix(50, 1, dtype=float8_e4m3fn)))
    assert dict(gemm.plan(exact, ROWS[-1], 1).facts)["engine"] == "bfloat16 pairs"
