"""Where B's panels come from, by rows of A, by how B lies and by what a machine's caches hold."""

from __future__ import annotations

from dataclasses import replace

import pytest
from gemm_run import contraction
from rows import row_named

from samebits.codegen.isa import Isa
from samebits.dtypes import bfloat16, int8
from samebits.errors import OptionError
from samebits.kernels.gemm import Matrix, Panels, Shared, Side, engine
from samebits.kernels.gemm.form import FUSED, STAGED, STREAMED, check_form, form_for, has_weights, runs_down
from samebits.kernels.gemm.inner import Inner
from samebits.kernels.gemm.machine import Caches
from samebits.kernels.gemm.tiles import tile_for

AVX512: Isa = row_named("avx512")
ROWS, COLUMNS = Matrix(512, 1), Matrix(1, 512)
A_BYTES, CACHES = 384 * 1024, Caches()


def of(m: int, b: Matrix | Panels | Side[Panels] = ROWS, row: engine.Engine = engine.FMA32) -> Inner:
    dtype = bfloat16 if row is engine.PAIRS else row.a
    b = replace(b, dtype=dtype) if isinstance(b, Matrix) else b
    return Inner.of(contraction(m, 512, 512, Matrix(512, 1, (), dtype), b, Matrix(512, 1)), row)


def form(inner: Inner, caches: Caches = CACHES, a_bytes: int = A_BYTES, mc: int | None = None) -> str:
    return form_for(inner, AVX512, caches, a_bytes, mc)[0]


def test_few_rows_stream_and_how_many_is_the_machines() -> None:
    assert [form(of(m)) for m in (1, 24, 25)] == [STREAMED, STREAMED, FUSED]
    assert [form(of(m), Caches(streamed_rows=2)) for m in (2, 3)] == [STREAMED, FUSED]
    near = Caches(rows_cached=512 * 512 * 4, streamed_cached=7)
    assert [form(of(m), near) for m in (7, 8)] == [STREAMED, FUSED]
    assert form(of(24), replace(near, rows_cached=512 * 512 * 4 - 1)) == STREAMED
    assert form(of(24, COLUMNS), near) == STREAMED
    # Of checked columns three, whatever the machine streams; where a word holds several elements fewer.
    assert [form(of(m, COLUMNS, engine.PAIRS)) for m in (3, 4)] == [STREAMED, FUSED]
    assert [form(of(m, ROWS, engine.PAIRS)) for m in (8, 9)] == [STREAMED, FUSED]
    assert [form(of(m, ROWS, engine.PAIRS), Caches(streamed_always=5)) for m in (5, 6)] == [STREAMED, FUSED]
    assert form(of(1, Matrix(1024, 2))) == FUSED


def test_one_block_of_rows_is_packed_on_the_way() -> None:
    rows = A_BYTES // 4 // 256
    assert [form(of(m)) for m in (rows, rows + 1)] == [FUSED, STAGED]
    assert [form(of(m), a_bytes=A_BYTES // 2) for m in (rows // 2, rows // 2 + 1)] == [FUSED, STAGED]
    assert [form(of(100), mc=mc) for mc in (100, 99)] == [FUSED, STAGED]


def test_a_few_blocks_pack_columns_again_and_how_many_is_the_machines() -> None:
    assert [form(of(m, COLUMNS)) for m in (640, 641)] == [FUSED, STAGED]
    assert [form(of(m, COLUMNS), Caches(down_rows=500)) for m in (500, 501)] == [FUSED, STAGED]
    assert form(of(500), Caches(down_rows=500)) == STAGED
    assert form(of(640, COLUMNS), mc=100) == STAGED


def test_what_is_in_panels_is_read_there() -> None:
    assert form(of(4, Panels(32))) == "packed"
    weights = Panels(32, (), int8, "int8 weights")
    rows = tile_for(AVX512).mr
    assert [form(of(m, weights)) for m in (rows, rows + 1, 1024, 1025)] == ["decoded", "widened", "widened", STAGED]
    codes = Panels(32, (), bfloat16, "bfloat16 codes")
    assert [form(of(m, codes)) for m in (rows, rows + 1, 1025)] == ["decoded", "widened", STAGED]
    scaled = Side(weights, Shared(Matrix(32, 1), 64, in_panels=True))
    assert [form(of(m, scaled)) for m in (96, 97)] == ["decoded", FUSED]
    assert [has_weights(of(4, b).c) for b in (weights, Panels(32), ROWS)] == [True, False, False]
    assert [runs_down(of(4, b).c) for b in (COLUMNS, ROWS, Panels(32))] == [True, False, False]


def test_a_form_that_cannot_be_had_is_refused() -> None:
    caches = Caches()
    for m, wanted in ((1, STREAMED), (1, STAGED), (1000, FUSED), (24, STREAMED)):
        check_form(of(m).c, wanted, engine.FMA32, caches)
    for c, wanted, said in (
        (of(25).c, STREAMED, "25 rows use each element of B more than 24 times"),
        (of(1, Matrix(1024, 2)).c, STREAMED, "neither rows nor columns of b are contiguous"),
        (of(1, Panels(32)).c, FUSED, "form for packed b is 'fused', must be one of"),
        (of(1).c, "packed", "form for unpacked b is 'packed', must be one of"),
    ):
        with pytest.raises(OptionError, match=said):
            check_form(c, wanted, engine.FMA32, caches)
    check_form(of(25).c, STREAMED, engine.FMA32, Caches(streamed_rows=25))
