"""The steps of a choice, each alone: what they keep to, and what decides them."""

from __future__ import annotations

from dataclasses import replace

from gemm_run import contraction
from rows import row_named

from samebits.dtypes import bfloat16, float32, int8, int32, uint8
from samebits.kernels.gemm import Contraction, Matrix, Panels, Side, engine, selection
from samebits.kernels.gemm.choice import (
    Blocks,
    Overrides,
    blocks_for,
    choose,
    for_form,
    form_of,
    group_of,
    orient,
    rounds_of,
    tile_of,
)
from samebits.kernels.gemm.contraction import Windows
from samebits.kernels.gemm.form import FUSED, STAGED, STREAMED
from samebits.kernels.gemm.inner import KC_LEAST, Inner
from samebits.kernels.gemm.machine import DEFAULT, Caches
from samebits.kernels.gemm.pack import PACKED
from samebits.kernels.gemm.tiles import Tile, tile_for
from samebits.kernels.gemm.tuned import SHIPPED, Sizes

AVX512, BF16 = row_named("avx512"), row_named("avx512_bf16")
NONE = Overrides()


def dense(m: int, n: int, k: int, dtype=float32, total=float32) -> Contraction:
    return contraction(m, n, k, Matrix(k, 1, (), dtype), Matrix(n, 1, (), dtype), Matrix(n, 1, (), total))


def inner(m: int, n: int, k: int, row: engine.Engine = engine.FMA32, **changes: object) -> Inner:
    dtype = bfloat16 if row is engine.PAIRS else row.a
    return Inner.of(replace(dense(m, n, k, dtype, row.total), **changes), row)


def test_a_product_is_turned_for_contiguous_rows_and_full_lanes() -> None:
    for c, turned in (
        (dense(40, 300, 9), ""), (dense(300, 8, 9), "lanes over N"), (dense(300, 9, 9), ""),
        (replace(dense(40, 300, 9), out=Side(Matrix(1, 40))), "rows of out"),
        (replace(dense(300, 2, 9), b=Side(Panels(32))), ""),
    ):  # fmt: skip
        found, order, reasons = orient(c, 32)
        assert [name for name, _ in reasons] == ([turned] if turned else [])
        assert (found.m, found.n) == ((c.n, c.m) if turned else (c.m, c.n))
        assert order == ((1, 0, 2) if turned else (0, 1, 2))
    assert orient(dense(300, 8, 9), 16)[2] == ()
    narrow = choose(dense(300, 8, 9), AVX512, 1, Overrides(tile=Tile(12, 1)), DEFAULT)
    assert (narrow.c.m, choose(dense(300, 8, 9), AVX512, 1, NONE, DEFAULT).c.m) == (300, 8)


def test_the_engine_is_that_of_the_product_as_it_runs() -> None:
    """Rows of a batch that are joined are more rows, and turned operands change places: both may decide engines."""
    vnni = row_named("avx512_vnni")
    turned = replace(dense(300, 8, 64, int8, int32), a=Side(Matrix(64, 1, (), uint8)))
    joined = replace(
        dense(1, 512, 512), batch=(64,), a=Side(Matrix(512, 1, (512,), int8)), b=Side(Matrix(512, 1, (0,), int8)),
        out=Side(Matrix(512, 1, (512,), int32)),
    )  # fmt: skip
    for c in (dense(37, 64, 64, int8, int32), turned, joined):
        made = choose(c, vnni, 1, NONE, DEFAULT)
        assert made.engine.name == selection.of_operands(made.c, vnni, DEFAULT, None, None)[0].name
        alone = selection.of_operands(c, vnni, DEFAULT, None, None)[0].name
        assert (made.engine.name == alone) == (c not in (turned, joined))


def test_a_form_that_was_asked_for_is_had_where_there_is_a_sum() -> None:
    given = Overrides(form=STAGED)
    assert form_of(inner(9, 64, 64), AVX512, Caches(), SHIPPED, given) == (STAGED, ())
    assert form_of(inner(9, 64, 0), AVX512, Caches(), SHIPPED, given)[0] == FUSED


def test_what_nothing_looked_at_takes_safe_steps() -> None:
    pairs = inner(2, 64, 64, engine.PAIRS)
    for form in (FUSED, STAGED):
        assert for_form(pairs, form, None) == (pairs, ())
    found, reasons = for_form(pairs, STREAMED, None)
    assert (found.engine, reasons[0][0]) == (engine.FMA32, engine.PAIRS.name)
    assert found.words[0].depth == 1
    assert for_form(pairs, STREAMED, engine.PAIRS.name)[0].engine == engine.PAIRS.safe
    floats = inner(2, 64, 64)
    assert for_form(floats, STREAMED, None) == (floats, ())


def test_a_narrow_tile_is_for_what_is_packed_for_one_product_alone() -> None:
    row, wide = DEFAULT.shipped(engine.FMA32, AVX512), tile_for(AVX512)
    assert tile_of(inner(40, 48, 64), FUSED, AVX512, row, NONE)[0] == Tile(12, 1)
    assert tile_of(inner(40, 64, 64), FUSED, AVX512, row, NONE) == (wide, ())
    assert tile_of(inner(4, 48, 64), STREAMED, AVX512, row, NONE) == (wide, ())
    assert tile_of(inner(40, 48, 64, b=Side(Panels(32))), FUSED, AVX512, row, NONE) == (wide, ())
    assert tile_of(inner(40, 48, 64, engine.PAIRS), FUSED, BF16, row, NONE) == (wide, ())
    assert tile_of(inner(40, 48, 64), FUSED, AVX512, row, Overrides(tile=wide)) == (wide, ())
    other = replace(row, tile=Tile(3, 2))
    assert tile_of(inner(40, 48, 64), FUSED, AVX512, other, NONE) == (Tile(3, 2), ())
    windows = replace(dense(40, 48, 64), b=Side(Matrix(0, 1, windows=Windows(48, (), 48, tuple(range(8))))))
    assert tile_of(Inner.of(windows, engine.FMA32), FUSED, AVX512, row, NONE) == (wide, ())
    for n, due in ((16, Tile(12, 1)), (48, Tile(12, 1)), (79, Tile(12, 1)), (80, wide), (784, wide)):
        assert tile_of(inner(40, n, 64), FUSED, AVX512, row, NONE, replace(DEFAULT, four_wide=True))[0] == due


def test_windows_are_packed_a_chunk_at_a_time_beside_blocks_of_a_that_take_twice_the_room() -> None:
    for m, k, kc in ((64, 576, 768), (256, 2304, 512), (512, 4608, 256), (5000, 300, 256)):
        windows = Matrix(0, 1, windows=Windows(28, ((28, 30),), 900, tuple(range(9))))
        c = replace(dense(m, 784, k), b=Side(windows))
        sizes = Sizes(a_bytes=256 << 10)
        assert form_of(Inner.of(c, engine.FMA32), AVX512, Caches(), sizes, NONE) == (FUSED, ())
        found = blocks_for(Inner.of(c, engine.FMA32), FUSED, 12, sizes, Caches(windows_blocks=2))
        assert (found.kc, found.kc * min(m, found.mc) * 4 <= 2 * sizes.a_bytes or kc > k) == (kc, True)
        assert choose(c, AVX512, 1, NONE, DEFAULT).group == 1


def test_a_machine_has_a_tile_for_what_is_packed_first_where_columns_fill_it() -> None:
    row, shipped = DEFAULT.shipped(engine.FMA32, AVX512), tile_for(AVX512)
    machine = replace(DEFAULT, staged=Tile(6, 4))
    for n, due in (
        (64, Tile(6, 4)),
        (113, Tile(6, 4)),
        (112, Tile(12, 1)),
        (96, shipped),
        (32, shipped),
        (48, Tile(12, 1)),
    ):
        assert tile_of(inner(400, n, 64), STAGED, AVX512, row, NONE, machine)[0] == due
    assert tile_of(inner(400, 64, 64), FUSED, AVX512, row, NONE, machine)[0] == shipped
    assert tile_of(inner(400, 64, 64), STAGED, AVX512, row, Overrides(tile=shipped), machine)[0] == shipped
    assert tile_of(inner(400, 64, 64, b=Side(Panels(32))), STAGED, AVX512, row, NONE, machine)[0] == shipped


def test_blocks_stay_within_their_cache() -> None:
    for k in (1, 255, 256, 257, 2048, 2049, 5000):
        for m in (1, 40, 400, 4000):
            for sizes in (SHIPPED, Sizes(a_bytes=1 << 17, kc=512, kc_few_rows=1024)):
                for form in (FUSED, STAGED):
                    found = blocks_for(inner(m, 64, k), form, 12, sizes, Caches())
                    assert found.kc % KC_LEAST == 0
                    assert found.mc * found.kc * 4 <= sizes.a_bytes
    down = inner(128, 64, 4096, b=Side(Matrix(1, 4096)))
    assert blocks_for(down, FUSED, 12, SHIPPED, Caches(down_blocks=12)) == Blocks(
        12 * SHIPPED.a_bytes // 4 // 4096, 1 << 40, 4096
    )
    assert blocks_for(down, FUSED, 12, SHIPPED, Caches(down_blocks=3)).mc == 3 * SHIPPED.a_bytes // 4 // 4096
    # All of A by the KC of few rows takes 2 MB.
    assert blocks_for(down, FUSED, 12, SHIPPED, Caches(down_all=2 << 20)).kc == SHIPPED.kc_few_rows
    assert blocks_for(down, FUSED, 12, SHIPPED, Caches(down_all=(2 << 20) - 1)).kc == SHIPPED.kc
    # What comes from a cache is packed in short panels.
    near, far = (Caches(near=size, down_cached=size + more) for size, more in ((1 << 20, 0), (0, 1 << 20)))
    assert blocks_for(down, FUSED, 12, SHIPPED, replace(near, kc_fused=128, fused_rows=128)).kc == 128
    assert blocks_for(down, FUSED, 12, SHIPPED, replace(near, kc_fused=128, fused_rows=127)).kc == KC_LEAST
    assert blocks_for(down, FUSED, 12, SHIPPED, replace(far, kc_fused=128)).kc == KC_LEAST
    assert blocks_for(down, FUSED, 12, SHIPPED, replace(far, down_cached=(1 << 20) - 1)).kc == 4096
    # So is what few rows use, whose block is in the first cache then.
    for m, kc in ((40, 128), (41, KC_LEAST)):
        blocks = blocks_for(inner(m, 64, 4096), FUSED, 12, SHIPPED, Caches(kc_fused=128, fused_rows=40))
        assert (blocks.kc, blocks.mc) == (kc, SHIPPED.a_bytes // 4 // kc)
    # What is read as it lies is read in long runs, as far as the rows of A leave room.
    for m, form, kc in ((1, STREAMED, 4096), (1, STAGED, 2048), (48, STREAMED, 2048)):
        assert blocks_for(inner(m, 64, 4096), form, 12, replace(SHIPPED, kc_few_rows=2048), Caches()).kc == kc
    # Panels that are made before C is visited are used along all of K at once, while 128 rows of A fit; others are not.
    sizes, packed = Sizes(a_bytes=256 << 10, kc=512, kc_few_rows=1024), Side(Panels(32))
    for k, size, kc in ((700, 384 << 10, 768), (769, 384 << 10, 512), (700, (700 * 128 * 4) - 1, 512)):
        for described, form in ((inner(500, 64, k), STAGED), (inner(500, 64, k, b=packed), PACKED)):
            assert blocks_for(described, form, 12, sizes, Caches(whole=size)) == Blocks(128, 1 << 40, kc)
        assert blocks_for(inner(500, 64, k), FUSED, 12, sizes, Caches(whole=size)).kc == KC_LEAST
    # What is kept of C is visited less often.
    kept = inner(500, 64, 8192, out=Side(Matrix(1, 500)))
    few, many = (blocks_for(kept, STAGED, 6, SHIPPED, Caches(kept_panels=x)).kc for x in (4, 8))
    assert few > many >= blocks_for(inner(500, 64, 8192), STAGED, 6, SHIPPED, Caches()).kc


def test_rounds_and_groups_are_what_the_caches_hold() -> None:
    c = dense(10, 4096, 4096)
    walk_bytes = 32 * 4096 * 4
    for held, rounds in ((1 << 40, 1), (64 << 20, 1), (32 << 20, 2), (8 << 20, 8)):
        assert rounds_of(c, 128, walk_bytes, SHIPPED, Caches(round=held)) == rounds
    # A is packed again for each round, which many rows do not pay for; memory has the last word.
    assert rounds_of(replace(c, m=10_000), 128, walk_bytes, SHIPPED, Caches()) == 1
    assert rounds_of(replace(c, m=10_000), 128, walk_bytes, Sizes(staged_bytes=16 << 20), Caches()) == 4
    assert rounds_of(c, 0, 0, SHIPPED, Caches()) == 1
    for n_step, wide, held, group in (
        (100, 1, 1 << 20, 8),
        (100, 1, 100_000, 3),
        (2, 1, 1 << 20, 2),
        (100, 4, 100_000, 4),
    ):
        assert group_of(c, engine.FMA32, 250, 32, n_step, wide, Caches(group=held)) == group
    down = replace(c, b=Side(Matrix(1, 4096)))
    assert group_of(down, engine.FMA32, 250, 32, 100, 2, Caches()) == 2
    # Panels that are packed alone are whole lines of words of one element, and B comes from a cache.
    assert group_of(c, engine.FMA32, 250, 32, 100, 1, Caches(panels_alone=(64 << 20) - 1)) == 8
    alone, bytes_ = Caches(panels_alone=64 << 20), dense(10, 4096, 4096, int8, int32)
    for of, row, nr, group in (
        (c, engine.FMA32, 32, 1), (c, engine.FMA32, 8, 8), (dense(10, 4096, 4096, bfloat16), engine.FMA32, 32, 1),
        (bytes_, engine.ROWS[3], 32, 8), (bytes_, engine.ROWS[3], 64, 4),
    ):  # fmt: skip
        assert group_of(of, row, 250, nr, 100, 1, alone) == group


def test_micropanels_ask_together_for_the_lines_that_follow() -> None:
    """Eight a turn of a panel of 32 columns of float32: four each of few micropanels, then two, then one."""
    packed = [replace(dense(m, 3072, 768), b=Side(Panels(32))) for m in (1, 12, 36, 48, 84, 96, 300)]
    found = [choose(c, AVX512, 1, NONE, DEFAULT) for c in packed]
    assert [x.m_step for x in found] == [1, 1, 3, 4, 7, 8, 25]
    assert [x.asks for x in found] == [4, 4, 4, 2, 2, 1, 1]


def test_integers_are_summed_in_chunks_of_their_own() -> None:
    c = dense(10, 64, 5000, int8, int32)
    found = choose(c, BF16, 1, NONE, DEFAULT)
    assert found.c.spec.chunk == 1024 * 4
    assert found.engine.total is int32
    assert found.machine == "default"
    assert found == choose(c, BF16, 1, NONE, DEFAULT)
