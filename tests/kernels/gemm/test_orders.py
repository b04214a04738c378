"""Products in an order other than sb1 have the bits of the reference on every row, in every form, at every edge."""

from __future__ import annotations

import itertools

import aarch64
import gmpy2
import guard
import numpy as np
import pytest
from gemm_run import product, same
from rows import AARCH64_ROWS, ALL_ROWS, COMPILED_ROWS

from samebits.codegen.isa import Isa
from samebits.errors import OptionError
from samebits.kernels.gemm import Matrix, Spec, fused, reference
from samebits.kernels.gemm.machine import Caches
from samebits.kernels.gemm.tiles import tile_for

PAIRS32 = Spec(order="pairs32")
# Every remainder of a block of 32 comes by, in one chunk and in several.
KS = (*range(34), 63, 64, 65, 97, 511, 512, 513, 1056)


def draw(*shape: int, seed: int = 0) -> np.ndarray:
    """Normal numbers of mixed magnitude, so that every order of additions gives other bits."""
    rng = np.random.default_rng([seed, *shape])
    return (rng.standard_normal(shape) * np.exp2(rng.integers(-6, 6, shape))).astype(np.float32)


def exact_sum(a: np.ndarray, b: np.ndarray, chunk: int) -> np.float32:
    """numerics.md's rule of pairs32 for one element, word by word, by MPFR."""
    x, y = ([gmpy2.mpfr(float(v)) for v in z] for z in (a, b))
    zero = gmpy2.mpfr(0)
    with gmpy2.context(gmpy2.ieee(32)):
        total = zero
        for start in range(0, len(x), chunk):
            part = zero
            for low in range(start, min(start + chunk, len(x)), 32):
                chains = [zero, zero]
                for k in range(low, min(low + 32, start + chunk, len(x))):
                    chains[(k - low) % 2] = gmpy2.fma(x[k], y[k], chains[(k - low) % 2])
                part = gmpy2.add(part, gmpy2.add(*chains))
            total = gmpy2.add(total, part)
        return np.float32(float(gmpy2.add(total, zero)))


def test_the_reference_is_the_rule() -> None:
    for k, chunk in ((0, 512), (1, 32), (31, 32), (33, 64), (100, 64), (700, 512), (300, 128)):
        a, b = draw(3, k), draw(k, 4, seed=1)
        due = [[exact_sum(a[i], b[:, j], chunk) for j in range(4)] for i in range(3)]
        assert same(reference(a, b, spec=Spec(chunk, order="pairs32")), np.array(due, np.float32)), (k, chunk)


def test_orders_have_bits_of_their_own() -> None:
    a, b = draw(20, 600), draw(600, 30, seed=1)
    found = [reference(a, b, spec=spec) for spec in (PAIRS32, Spec(512), Spec(32), Spec(128, order="pairs32"))]
    for x, y in itertools.combinations(found, 2):
        assert (x != y).mean() > 0.2


@pytest.mark.parametrize("isa", COMPILED_ROWS, ids=lambda row: row.name)
def test_bits_on_edge_sizes_beside_guard_pages(isa: Isa) -> None:
    tile = tile_for(isa)
    mr, nr = tile.mr, tile.nr(isa)
    shapes = itertools.cycle(itertools.product((1, mr - 1, mr, 2 * mr + 1), (1, nr - 1, nr, 2 * nr + 1)))
    for i, (k, (m, n)) in enumerate(zip(KS, shapes, strict=False)):
        a, b, at_start = draw(m, k), draw(k, n, seed=1), bool(i % 2)
        due = reference(a, b, spec=PAIRS32)
        left, right = guard.array(a, at_start=at_start), guard.array(b, at_start=at_start)
        turned = guard.array(b.T, at_start=at_start).T
        out = guard.empty((m, n), np.float32, at_start=at_start)
        assert same(product(left, right, isa, out=out, spec=PAIRS32), due), (m, n, k)
        assert same(product(left, turned, isa, 3, spec=PAIRS32), due), (m, n, k)
        assert same(product(left, right, isa, form="staged", spec=PAIRS32), due), (m, n, k)
        for lying in (right, turned) if k and m <= Caches().streamed_rows else ():
            out[:] = np.nan
            assert same(product(left, lying, isa, out=out, form="streamed", spec=PAIRS32), due), (m, n, k)
        if n and k:
            assert same(product(left, right, isa, packed=True, spec=PAIRS32), due), (m, n, k)


@pytest.mark.parametrize("isa", ALL_ROWS, ids=lambda row: row.name)
def test_bits_follow_chunks_and_segments(isa: Isa) -> None:
    a, b = draw(6, 300), draw(300, 20, seed=1)
    for spec in (Spec(32, 4, "pairs32"), Spec(96, order="pairs32")):
        due = reference(a, b, spec=spec)
        assert same(product(a, b, isa, spec=spec), due), spec
        if not isa.compiled:
            continue
        assert same(product(a, b, isa, 2, spec=spec, packed=True), due), spec
        assert same(product(a.T.copy().T, b, isa, 2, spec=spec, out=np.empty((20, 6), np.float32).T), due), spec


@pytest.mark.parametrize("isa", COMPILED_ROWS, ids=lambda row: row.name)
def test_special_values_and_their_neighbours(isa: Isa) -> None:
    a, b = draw(7, 260), draw(260, 37, seed=1)
    a[2, 5], a[3, 7], b[9, 4], a[4], b[:, 6] = np.nan, np.inf, -np.inf, 0.0, -0.0
    a.view(np.uint32)[2, 6] = 0xFFC12345
    a[5] *= np.float32(2.0**-126)
    b[:, 9] *= np.float32(2.0**-20)
    due = reference(a, b, spec=PAIRS32)
    for form in ("fused", "staged", "streamed"):
        assert same(product(a, b, isa, spec=PAIRS32, form=form), due)
        assert same(product(a, np.asfortranarray(b), isa, spec=PAIRS32, form=form), due)
    assert set(np.unique(due.view(np.uint32)[2])) == {0x7FC00000}
    assert np.isfinite(due[0, :4]).all()
    assert not np.signbit(due[4][np.isfinite(due[4])]).any()


@pytest.mark.parametrize("isa", COMPILED_ROWS, ids=lambda row: row.name)
def test_nothing_beyond_the_end_of_k_leaks_in(isa: Isa) -> None:
    """NaN and infinity past the end of rows and columns, and in other rows, stay there."""
    for k in (1, 2, 31, 32, 33, 47, 64, 79):
        wide, tall = np.full((5, k + 40), np.nan, np.float32), np.full((k + 40, 21), np.inf, np.float32)
        wide[:, :k], tall[:k] = draw(5, k), draw(k, 21, seed=1)
        wide[3, 0], tall[0, 4] = np.nan, -np.inf
        a, b = wide[:, :k], tall[:k]
        due = reference(a, b, spec=PAIRS32)
        assert np.isfinite(due[:3, :4]).all()
        for form in ("fused", "staged", "streamed"):
            assert same(product(a, b, isa, spec=PAIRS32, form=form), due), (k, form)


@pytest.mark.parametrize("isa", AARCH64_ROWS, ids=lambda row: row.name)
def test_bits_on_aarch64(isa: Isa) -> None:
    for m, n, k in ((1, 30, 77), (9, 13, 130), (17, 2, 33)):
        a, b, bias = draw(m, k), draw(k, n, seed=1), draw(n, seed=2)
        epilogue, _ = fused(bias=Matrix(0, 1))
        spec = Spec(64, order="pairs32")
        for right in (b, np.asfortranarray(b)):
            given = {"epilogue": epilogue, "sources": [bias], "spec": spec, "run": aarch64.run_plan}
            for form in ("fused", "streamed"):
                got = product(a, right, isa, form=form, **given)
                assert same(got, reference(a, b, bias=bias, spec=spec)), (m, n, k, form)


@pytest.mark.parametrize("isa", COMPILED_ROWS, ids=lambda row: row.name)
def test_streams_walk_chunks_and_columns_in_every_way(isa: Isa) -> None:
    """Several chunks, bands of rows, columns beside each other, squares of less and more than a block."""
    spec = Spec(64, order="pairs32")
    for m, n, k in ((1, 200, 300), (2, 40, 256), (9, 70, 200), (20, 33, 97), (3, 5, 65)):
        a, b = draw(m, k), draw(k, n, seed=1)
        due = reference(a, b, spec=spec)
        for right in (b, np.asfortranarray(b)):
            assert same(product(a, right, isa, spec=spec, form="streamed"), due), (m, n, k)


def test_wrong_specs_are_refused_in_one_sentence() -> None:
    for given, sentence in (
        ({"order": "tree"}, "Spec: order is 'tree', must be 'sb1' or 'pairs32'; leave it out for sb1"),
        ({"order": 1}, "Spec: order is 1, must be 'sb1' or 'pairs32'; leave it out for sb1"),
        ({"chunk": 100, "order": "pairs32"},
         "Spec: chunk is 100, must be a multiple of 32 in order pairs32; leave it at 512"),
        ({"chunk": 0, "order": "pairs32"},
         "Spec: chunk is 0, must be an int of at least 1; leave it at 512, which is pairs32"),
    ):  # fmt: skip
        with pytest.raises(OptionError) as caught:
            Spec(**given)  # type: ignore[arg-type]
        assert str(caught.value) == sentence
    assert (Spec(order="pairs32").chunk, Spec(64, order="pairs32").chunk, Spec().chunk) == (512, 64, 128)
