"""Epilogues: alpha, beta, addends, biases, activations and in-place results, each step rounded on its own."""

from __future__ import annotations

import platform

import gemm_cases
import guard
import ml_dtypes
import numpy as np
import pytest
from gemm_run import contraction, product, same
from launch import flushing
from rows import ALL_ROWS, COMPILED_ROWS

import samebits
from samebits import driver, dtypes
from samebits.codegen.isa import Isa
from samebits.dtypes import float32
from samebits.kernels import gemm, values
from samebits.kernels.expression import Chain, Expression
from samebits.kernels.gemm import Immediate, Matrix, Spec, fused, reference
from samebits.kernels.gemm.choice import Blocks
from samebits.kernels.gemm.tiles import tile_for


def ids(row: Isa) -> str:
    return row.name


def draw(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(np.float32)


def activation(*ops: str) -> Expression:
    chain = Chain()
    x = chain.input(float32)
    for op in ops:
        x = chain.apply(op, x)
    return chain.finish(x)


def test_immediates_round_once_to_nearest_even() -> None:
    values_due = {
        0.1: 0x3DCCCCCD, 1e39: 0x7F800000, -1e39: -0x800000, 1e-40: 0x116C2, 1e-50: 0, -0.0: -0x80000000,
        float("inf"): 0x7F800000, 2.0**24 + 1: 0x4B800000,
    }  # fmt: skip
    library = driver.libc()
    modes = (0, 0x400, 0x800, 0xC00) if platform.machine() == "x86_64" else (0, 0x400000, 0x800000, 0xC00000)
    for mode in modes:
        assert library.fesetround(mode) == 0
        try:
            found = [Immediate.of(value).code for value in values_due]
        finally:
            library.fesetround(0)
        assert found == list(values_due.values())
    with flushing():
        assert Immediate.of(1e-40).code == 0x116C2


ROW, COLUMN, FULL = Matrix(0, 1), Matrix(1, 0), Matrix(1, 1)


@pytest.mark.parametrize("isa", ALL_ROWS, ids=ids)
def test_alpha_beta_c_bias_are_rounded_one_by_one(isa: Isa) -> None:
    tile = tile_for(isa)
    m, n, k = tile.mr + 1, min(tile.nr(isa) + 1, 70), 130
    a, b = draw(m, k), draw(k, n, seed=1)
    c, bias = guard.array(draw(m, n, seed=2)), guard.array(draw(n, seed=3))
    for alpha, beta in ((None, None), (0.1, None), (None, 0.3), (1 / 3, -0.7)):
        numbers = {name: Immediate.of(x) for name, x in (("alpha", alpha), ("beta", beta)) if x is not None}
        epilogue, listed = fused(**numbers, c=FULL, bias=ROW)
        arrays = iter([c, bias])
        sources = [next(arrays) if isinstance(s, Matrix) else s for s in listed]
        expected = reference(a, b, alpha=alpha, beta=beta, c=c, bias=bias)
        assert same(product(a, b, isa, epilogue=epilogue, sources=sources), expected)


@pytest.mark.parametrize("isa", COMPILED_ROWS, ids=ids)
@pytest.mark.parametrize("k", [0, 40, 1100])
def test_sources_of_every_stride(isa: Isa, k: int) -> None:
    m, n = 13, 37
    a, b = draw(m, k), draw(k, n, seed=1)
    full = draw(m, n, seed=2)
    kinds = {
        "row": draw(1, n), "column": draw(m, 1), "scalar": draw(1, 1), "full": full, "transposed": full.T.copy().T,
        "strided": draw(m, 2 * n)[:, ::2],
    }  # fmt: skip
    outs = (None, np.empty((n, m), np.float32).T, np.empty((m, 2 * n), np.float32)[:, ::2])
    epilogue, _ = fused(bias=ROW)
    for i, (name, source) in enumerate(kinds.items()):
        expected = reference(a, b, bias=source)
        # Every source meets two of the three ways in which out lies, and every way four sources.
        for out in (outs[i % 3], outs[(i + 1) % 3]):
            left = guard.array(source) if name == "row" else source
            assert same(product(a, b, isa, epilogue=epilogue, sources=[left], out=out), expected), name
        if k == 40:
            assert same(product(a, b, isa, 2, epilogue=epilogue, sources=[source], packed=True), expected), name


@pytest.mark.parametrize("isa", ALL_ROWS, ids=ids)
@pytest.mark.parametrize(("m", "n", "k"), [(13, 37, 40), (45, 70, 0), (1, 33, 7), (30, 1, 5)])
def test_tiles_are_transposed_where_the_columns_of_out_lie_side_by_side(isa: Isa, m: int, n: int, k: int) -> None:
    a, b = draw(m, k), draw(k, n, seed=1)
    kinds = {
        "row": draw(1, n), "column": draw(m, 1), "full": draw(m, n, seed=2), "transposed": draw(n, m, seed=2).T,
        "strided": draw(m, 2 * n)[:, ::2],
    }  # fmt: skip
    memory = guard.array(np.empty((n, m), np.float32))
    for expected, more in (
        (reference(a, b), {}),
        *((reference(a, b, bias=x), {"epilogue": fused(bias=ROW)[0], "sources": [x]}) for x in kinds.values()),
    ):
        memory[...] = np.nan
        assert same(product(a, b, isa, packed=True, out=memory.T, **more), expected)
    narrow = np.empty((n, m), ml_dtypes.bfloat16)
    found = product(a, b, isa, packed=True, out=narrow.T, out_dtype=dtypes.bfloat16)
    assert found.tobytes() == reference(a, b).astype(ml_dtypes.bfloat16).tobytes()


@pytest.mark.parametrize("kind", [np.int8, np.float64, ml_dtypes.bfloat16])
def test_tiles_of_other_sums_are_transposed_too(kind: type) -> None:
    a, b = (4 * draw(47, 90)).astype(kind), (4 * draw(90, 71, seed=1)).astype(kind)
    due = samebits.matmul(a, b, threads=1)
    exact = a.astype(np.float64) @ b.astype(np.float64)  # integers, and their sums, are exact
    assert kind is not np.int8 or (due == exact).all()
    for threads in (1, 2):
        turned = np.zeros((71, 47), due.dtype).T
        samebits.matmul(a, samebits.pack(b), out=turned, threads=threads)
        assert turned.tobytes() == due.tobytes()


@pytest.mark.parametrize("isa", COMPILED_ROWS, ids=ids)
def test_activations_and_a_nan_that_they_copy(isa: Isa) -> None:
    a, b = draw(5, 33), draw(33, 20, seed=1)
    a[1, 2], a[2, 3] = np.nan, np.inf
    for ops in (("abs",), ("neg", "abs", "exp"), ("erf",)):
        epilogue, _ = fused(activation=activation(*ops))
        (expected,) = values.reference(activation(*ops), [reference(a, b)])
        assert same(product(a, b, isa, epilogue=epilogue), expected)
        epilogue, _ = fused(bias=ROW, activation=activation(*ops))
        bias = draw(20, seed=4)
        (expected,) = values.reference(activation(*ops), [reference(a, b, bias=bias)])
        assert same(product(a, b, isa, epilogue=epilogue, sources=[bias]), expected)


@pytest.mark.parametrize("isa", COMPILED_ROWS, ids=ids)
@pytest.mark.parametrize("k", [0, 100, 1100])
def test_out_may_be_the_addend_itself(isa: Isa, k: int) -> None:
    a, b, c = draw(9, k), draw(k, 50, seed=1), draw(9, 50, seed=2)
    epilogue, listed = fused(alpha=Immediate.of(0.5), beta=Immediate.of(2.0), c=FULL)
    expected = reference(a, b, alpha=0.5, beta=2.0, c=c)
    for spec in (Spec(), Spec(segments=2)):
        target = guard.array(c)
        sources = [target if isinstance(s, Matrix) else s for s in listed]
        got = product(a, b, isa, out=target, epilogue=epilogue, sources=sources, in_place=True, spec=spec)
        want = reference(a, b, alpha=0.5, beta=2.0, c=c, spec=spec)
        assert same(got, want)
    assert same(expected, reference(a, b, alpha=0.5, beta=2.0, c=c))


@pytest.mark.parametrize("isa", COMPILED_ROWS, ids=ids)
def test_batches_of_sources(isa: Isa) -> None:
    a, b = draw(2, 3, 4, 20), draw(3, 20, 10, seed=1)
    for shape in ((10,), (3, 1, 10), (2, 1, 4, 1), (2, 3, 4, 10), (1, 1, 1, 1)):
        bias = draw(*shape, seed=5)
        epilogue, _ = fused(bias=ROW)
        assert same(product(a, b, isa, epilogue=epilogue, sources=[bias]), reference(a, b, bias=bias)), shape
        assert same(product(a, b[0], isa, epilogue=epilogue, sources=[bias]), reference(a, b[0], bias=bias)), shape
        got = product(a, b, isa, epilogue=epilogue, sources=[bias], spec=Spec(8, 2))
        assert same(got, reference(a, b, bias=bias, spec=Spec(8, 2))), shape


@pytest.mark.parametrize("isa", COMPILED_ROWS, ids=ids)
def test_scratch_holds_all_that_is_kept_between_blocks_of_k(isa: Isa) -> None:
    """Several panels of C, what an immediate is read from, and then a forbidden page."""
    m, k, n = 2 * tile_for(isa).mr + 1, 300, 3 * tile_for(isa).nr(isa) + 3
    a, b = draw(m, k), draw(k, n, seed=1)
    epilogue, sources = fused(alpha=Immediate.of(0.5))
    out = Matrix(n, 1, (), dtypes.bfloat16)
    c = contraction(m, n, k, Matrix(k, 1), Matrix(n, 1), out, (), epilogue, sources)
    for form in ("fused", "staged"):
        got = np.zeros((m, n), ml_dtypes.bfloat16)
        plan = gemm.plan(c, isa, form=form, blocks=Blocks(m, 1000, 128))
        assert dict(plan.facts)["kept between KC blocks"] == "in scratch"
        gemm_cases.execute(plan, [a, b, got])
        assert got.tobytes() == reference(a, b, alpha=0.5).astype(ml_dtypes.bfloat16).tobytes(), form


def test_result_of_another_dtype() -> None:
    chain = Chain()
    t, limit = chain.input(float32), chain.input(float32)
    epilogue = chain.finish(chain.apply("less", t, limit))
    assert epilogue.dtype(epilogue.outputs[0]) is dtypes.bool_
    a, b, limits = draw(7, 1300), draw(1300, 45, seed=1), draw(45, seed=2)
    for isa in COMPILED_ROWS:
        out = np.full((7, 45), 9, np.uint8)
        product(a, b, isa, epilogue=epilogue, sources=[limits], out=out, out_dtype=dtypes.bool_)
        assert np.array_equal(out, (reference(a, b) < limits).astype(np.uint8))
