"""Products have the bits of the reference on every row, tile, form, layout, thread count and edge."""

from __future__ import annotations

import itertools

import guard
import numpy as np
import pytest
from gemm_run import product, same
from rows import ALL_ROWS, COMPILED_ROWS

from samebits.codegen.isa import Isa
from samebits.kernels.gemm import Spec, reference
from samebits.kernels.gemm.choice import Blocks
from samebits.kernels.gemm.tiles import Tile, tile_for


def ids(row: Isa) -> str:
    return row.name


def draw(*shape: int, seed: int = 0) -> np.ndarray:
    """Normal numbers of mixed magnitude, so that every order of additions gives other bits."""
    rng = np.random.default_rng([seed, *shape])
    return (rng.standard_normal(shape) * np.exp2(rng.integers(-6, 6, shape))).astype(np.float32)


def edges(r: int) -> list[int]:
    return sorted({0, 1, r - 1, r, r + 1, 2 * r + 1} - {-1})


def guarded(x: np.ndarray, layout: str, *, at_start: bool = False) -> np.ndarray:
    """x beside a forbidden page, as rows, columns, or every second element."""
    if layout == "columns":
        return guard.array(x.T, at_start=at_start).T
    if layout == "strided":
        wide = np.zeros((x.shape[0], max(2 * x.shape[1] - 1, 0)), np.float32)
        wide[:, ::2] = x
        return guard.array(wide, at_start=at_start)[:, ::2]
    return guard.array(x, at_start=at_start)


@pytest.mark.parametrize("isa", COMPILED_ROWS, ids=ids)
def test_bits_on_edge_sizes_beside_guard_pages(isa: Isa) -> None:
    tile = tile_for(isa)
    ks = [0, 1, 127, 128, 129, 255, 256, 257, 384]
    shapes = list(itertools.product(edges(tile.mr), edges(tile.nr(isa))))
    for i, (m, n) in enumerate(shapes):
        k = ks[i % len(ks)]
        a, b = draw(m, k), draw(k, n, seed=1)
        expected = reference(a, b)
        for at_start in (False, True):
            out = guard.empty((m, n), np.float32, at_start=at_start)
            left, right = guarded(a, "rows", at_start=at_start), guarded(b, "rows", at_start=at_start)
            assert same(product(left, right, isa, out=out), expected), (m, n, k)
            if n and k:
                assert same(product(left, right, isa, packed=True), expected), (m, n, k)


@pytest.mark.parametrize("isa", COMPILED_ROWS, ids=ids)
@pytest.mark.parametrize("k", [1, 127, 128, 129, 255, 256, 257, 384])
def test_bits_on_edges_of_k(isa: Isa, k: int) -> None:
    tile = tile_for(isa)
    m, n = tile.mr + 1, tile.nr(isa) + 1
    a, b = draw(m, k), draw(k, n, seed=1)
    expected = reference(a, b)
    for form in ("fused", "staged"):
        assert same(product(guarded(a, "rows"), guarded(b, "rows"), isa, form=form), expected)


@pytest.mark.parametrize("isa", COMPILED_ROWS, ids=ids)
def test_bits_ignore_layout_and_form(isa: Isa) -> None:
    """Every pair of an operand's layouts with another's; `test_proofs.py` has every three."""
    tile = tile_for(isa)
    layouts = ("rows", "columns", "strided")
    shapes = ((2 * tile.mr + 1, tile.nr(isa) + 3, 70), (1, tile.nr(isa) * 3 + 1, 140), (tile.mr * 5, 1, 33), (1, 1, 5))
    for m, n, k in shapes:
        a, b = draw(m, k), draw(k, n, seed=1)
        expected = reference(a, b)
        for i, (la, lb) in enumerate(itertools.product(layouts, repeat=2)):
            lo = layouts[(i + i // 3) % 3]
            for form in ("fused", "staged"):
                out = guarded(np.full((m, n), np.nan, np.float32), lo)
                got = product(guarded(a, la), guarded(b, lb), isa, out=out, form=form)
                assert same(got, expected), (m, n, k, la, lb, lo, form)


@pytest.mark.parametrize("isa", COMPILED_ROWS, ids=ids)
@pytest.mark.parametrize("threads", [1, 2, 3, 7])
def test_bits_ignore_threads(isa: Isa, threads: int) -> None:
    for m, n, k in ((37, 150, 300), (3, 400, 200), (200, 5, 130)):
        a, b = draw(m, k), draw(k, n, seed=1)
        for form in (None, "fused", "staged"):
            assert same(product(a, b, isa, threads, form=form), reference(a, b))
        assert same(product(a, b, isa, threads, packed=True), reference(a, b))


@pytest.mark.parametrize("isa", COMPILED_ROWS, ids=ids)
def test_bits_ignore_tile_and_blocks(isa: Isa) -> None:
    a, b = draw(29, 520), draw(520, 71, seed=1)
    expected = reference(a, b)
    tiles = (Tile(1, 1), Tile(2, 3), Tile(3, 2), Tile(5, 1))
    kept = (Blocks(7, 32, 256), Blocks(1, 1, 128), Blocks(1000, 1000, 512), None)
    for tile, blocks in zip(tiles, kept, strict=True):
        for form in ("fused", "staged"):
            assert same(product(a, b, isa, tile=tile, blocks=blocks, form=form), expected)
        transposed = np.full((71, 29), np.nan, np.float32)
        product(b.T, a.T, isa, out=transposed, tile=tile, blocks=blocks)
        assert same(transposed.T, expected)


@pytest.mark.parametrize("isa", ALL_ROWS, ids=ids)
def test_bits_on_every_row_and_its_interpreter(isa: Isa) -> None:
    for m, n, k in ((3, 5, 7), (9, 66, 130), (1, 2, 0)):
        a, b = draw(m, k), draw(k, n, seed=1)
        assert same(product(a, b, isa), reference(a, b))
        assert same(product(a, np.asfortranarray(b), isa, out=np.full((n, m), np.nan, np.float32).T), reference(a, b))


@pytest.mark.parametrize("isa", COMPILED_ROWS, ids=ids)
def test_bits_of_batches_that_broadcast(isa: Isa) -> None:
    pairs = [((3,), ()), ((3,), (3,)), ((), (3,)), ((2, 1, 3), (4, 1)), ((2, 3), (2, 1)), ((0,), ()), ((1, 2), (5, 1))]
    for left, right in pairs:
        a, b = draw(*left, 5, 40), draw(*right, 40, 19, seed=1)
        expected = reference(a, b)
        for form in (None, "staged"):
            assert same(product(a, b, isa, form=form), expected), (left, right)
        assert same(product(a, b, isa, packed=True), expected), (left, right)
        order = (*range(len(left)), len(left) + 1, len(left))
        assert same(product(np.ascontiguousarray(a.transpose(order)).transpose(order), b, isa), expected)


@pytest.mark.parametrize("isa", COMPILED_ROWS, ids=ids)
def test_bits_follow_spec(isa: Isa) -> None:
    a, b = draw(6, 700), draw(700, 20, seed=1)
    seen = set()
    for spec in (Spec(), Spec(256), Spec(100), Spec(1), Spec(1000), Spec(7), Spec(128, 2), Spec(128, 4), Spec(32, 8)):
        got = product(a, b, isa, spec=spec)
        assert same(got, reference(a, b, spec=spec)), spec
        if spec.chunk in (7, 32, 1000):
            assert same(product(a, b, isa, spec=spec, packed=True), got), spec
            assert same(product(a.T.copy().T, b, isa, 2, spec=spec, out=np.empty((20, 6), np.float32).T), got), spec
        seen.add(got.tobytes())
    assert len(seen) > 4


@pytest.mark.parametrize("isa", COMPILED_ROWS, ids=ids)
def test_special_values_and_their_neighbours(isa: Isa) -> None:
    a, b = draw(7, 260), draw(260, 37, seed=1)
    a[2, 5], a[3, 7], b[9, 4], a[4], b[:, 6] = np.nan, np.inf, -np.inf, 0.0, -0.0
    a.view(np.uint32)[2, 6] = 0xFFC12345
    a[5] *= np.float32(2.0**-126)
    b[:, 9] *= np.float32(2.0**-20)
    got = product(a, b, isa)
    assert same(got, reference(a, b))
    assert np.isnan(got[2]).all()
    assert np.isfinite(got[0, :4]).all()
    assert set(np.unique(got.view(np.uint32)[2])) == {0x7FC00000}
    assert not np.signbit(got[4][np.isfinite(got[4])]).any()


def test_infinity_times_zero_is_the_canonical_nan() -> None:
    for isa in COMPILED_ROWS:
        got = product(np.full((1, 1), np.inf, np.float32), np.zeros((1, 3), np.float32), isa)
        assert set(got.view(np.uint32).ravel()) == {0x7FC00000}


@pytest.mark.parametrize("isa", COMPILED_ROWS, ids=ids)
def test_one_nan_is_canonical_in_every_place_of_a_tile(isa: Isa) -> None:
    """Inf * 0 alone, in each row and each vector of columns; infinities of one sign beside it make no other NaN."""
    tile = tile_for(isa)
    nr, lanes = tile.nr(isa), isa.lanes
    for m, wide in ((tile.mr, 1), (tile.mr - 1, 1), (1, 4)):
        for i, j in itertools.product(range(m), range(lanes // 2, wide * nr, lanes)):
            a, b = np.ones((m, 3), np.float32), np.ones((3, wide * nr), np.float32)
            a[i, 1], b[1, j] = np.inf, 0
            due = np.full((m, wide * nr), 3, np.float32)
            due[:, j], due[i] = 2, np.inf
            due[i, j] = np.nan
            assert same(product(a, b, isa, packed=True), due), (m, i, j)


@pytest.mark.parametrize("isa", COMPILED_ROWS, ids=ids)
def test_a_row_alone_equals_the_row_in_a_batch(isa: Isa) -> None:
    a, b = draw(40, 300), draw(300, 65, seed=1)
    whole = product(a, b, isa, 2)
    for i in (0, 1, 17, 39):
        assert same(product(a[i : i + 1], b, isa), whole[i : i + 1])
    for rows in (2, 3, 8, 17):
        assert same(product(a[5 : 5 + rows], b, isa), whole[5 : 5 + rows])
    for column in (0, 31, 64):
        assert same(product(a, b[:, column : column + 1], isa), whole[:, column : column + 1])
