"""Machine rows change which kernels run and never bits; this machine's row is found by LLVM's name."""

from __future__ import annotations

from dataclasses import replace

import launch
import ml_dtypes
import numpy as np
import pytest
from gemm_cases import KINDS, Kind, cases
from gemm_run import contraction
from rows import PRODUCT_ROWS, rows_of_engines

import samebits as sb
from samebits import tuning
from samebits.codegen import isa as isas
from samebits.codegen.isa import Isa
from samebits.dtypes import bfloat16, float32, int8, int32, uint8
from samebits.kernels import gemm
from samebits.kernels.gemm import engine, reference
from samebits.kernels.gemm.machine import (
    CASCADE_LAKE,
    DEFAULT,
    ROWS,
    SAPPHIRE_RAPIDS,
    SKYLAKE_X,
    ZEN4,
    Caches,
    Machine,
    current,
)
from samebits.kernels.gemm.tiles import Tile
from samebits.kernels.gemm.tuned import Preferred, Sizes, Tuned

# Caches of almost nothing, so that everything is cut small, and for each kind of sum the plainest engine first.
ODD = Machine(
    "odd",
    slow=frozenset(row.name for row in engine.ROWS if row.step not in ("fma", "mul add")),
    caches=Caches(
        near=0, shared=0, kept=1 << 12, round=1 << 12, strip=1, group=1, down_blocks=1, down_all=1, down_rows=0,
        streamed_rows=3, streamed_always=2, kc_streamed=1, kept_panels=1, kc_fused=1, fused_rows=100,
        whole=1 << 16, panels_alone=1 << 16,
    ),
    staged=Tile(3, 1),
    sizes=Sizes(a_bytes=1 << 14, kc=256, kc_few_rows=512, staged_bytes=1 << 20),
)  # fmt: skip
# Caches that hold everything, and more rows streamed than any processor should.
WIDE = Machine(
    "wide",
    caches=Caches(
        near=1 << 40, shared=1 << 40, kept=1 << 30, round=1 << 40, strip=1 << 30, group=1 << 30, down_blocks=100,
        down_whole=1 << 16, whole=1 << 24,
        down_rows=1 << 20, streamed_rows=80, streamed_always=80, kc_streamed=1 << 16, kept_panels=64, kc_fused=1 << 16,
        fused_rows=9, down_cached=1 << 40,
    ),
    staged=Tile(2, 8),
    sizes_of_wide=Sizes(a_bytes=1 << 22, kc=1 << 16, kc_few_rows=1 << 16),
    preferred=(Preferred("int8", "int8", "int16 pairs"), Preferred("uint8", "uint8", "int32")),
)  # fmt: skip


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_no_machine_changes_a_bit(kind: Kind) -> None:
    """Each row of ROWS and two made-up ones, on one Isa row of the kind, another for the next; a few M."""
    i = KINDS.index(kind)
    isa = PRODUCT_ROWS[i % len(PRODUCT_ROWS)]
    for j, machine in enumerate((*ROWS, ODD, WIDE)):
        found = [replace(case, machine=machine) for case in cases(kind, isa, (i % 3, 5 + i % 13, 70 - i % 29))][j::5]
        assert [case for case in found if not case.run(rows=70)] == [], machine.name


def test_rows_are_of_different_processors_and_the_default_is_none() -> None:
    assert len({row.name for row in ROWS}) == len(ROWS)
    assert DEFAULT in ROWS
    for row in ROWS:
        assert row.slow <= {x.name for x in engine.ROWS}
        assert (row.preferred, row.tuned) == ((), ())


def test_this_machines_row_has_llvms_name(monkeypatch: pytest.MonkeyPatch) -> None:
    named = {"znver4": ZEN4, "sapphirerapids": SAPPHIRE_RAPIDS, "cascadelake": CASCADE_LAKE}
    named |= {"skylake-avx512": SKYLAKE_X, "skylake": DEFAULT, "generic": DEFAULT, "": DEFAULT}
    for name, row in named.items():
        monkeypatch.setattr(isas, "host_cpu", lambda name=name: name)
        assert current() is row
        assert tuning.shipped(isas.best()) is row


def test_a_row_that_is_interpreted_asks_for_no_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> str:
        raise AssertionError("LLVM was asked")

    monkeypatch.setattr(isas, "host_cpu", refuse)
    assert tuning.shipped(isas.named("numpy")) is DEFAULT


def test_engines_are_tried_in_the_machines_order() -> None:
    assert DEFAULT.engines(bfloat16, bfloat16) == engine.ROWS
    slow = replace(DEFAULT, slow=frozenset({engine.PAIRS.name}))
    assert slow.engines(bfloat16, bfloat16) == (*engine.ROWS[1:], engine.PAIRS)
    # Where everything is slow nothing is.
    assert replace(DEFAULT, slow=frozenset(row.name for row in engine.ROWS)).engines(int8, int8) == engine.ROWS
    measured = replace(slow, preferred=(Preferred("bfloat16", "bfloat16", engine.PAIRS.name),))
    assert measured.engines(bfloat16, bfloat16) == engine.ROWS
    assert measured.engines(bfloat16, float32) == slow.engines(bfloat16, float32)
    assert measured.prefers(engine.PAIRS, bfloat16, bfloat16)
    assert not measured.prefers(engine.FMA32, bfloat16, bfloat16)


def test_an_engines_row_is_the_measured_one_unless_panels_have_the_shipped_width() -> None:
    isa, tuned = isas.best(), Tuned(engine.FMA32.name, Tile(3, 1), Sizes(kc=512))
    machine = replace(DEFAULT, sizes=Sizes(kc=1024), tuned=(tuned,))
    shipped = machine.shipped(engine.FMA32, isa)
    assert shipped.sizes == Sizes(kc=1024)
    widths = tuned.nr(engine.FMA32, isa), shipped.nr(engine.FMA32, isa)
    assert machine.row(engine.FMA32, isa) == machine.row(engine.FMA32, isa, widths[0]) == tuned
    assert machine.row(engine.FMA32, isa, widths[1]) == shipped
    assert machine.row(engine.FMA64, isa) == machine.shipped(engine.FMA64, isa)


def _bfloat16(*shape: int) -> np.ndarray:
    return np.random.default_rng(shape).standard_normal(shape).astype(ml_dtypes.bfloat16)


@pytest.mark.parametrize("isa", rows_of_engines(bfloat16, bfloat16), ids=lambda row: row.name)
def test_pairs_of_bfloat16_are_not_taken_where_they_are_slow(isa: Isa, monkeypatch: pytest.MonkeyPatch) -> None:
    """Packing keeps codes then; each machine takes the panels of the other, with the same bits."""
    a, b = _bfloat16(40, 300), _bfloat16(300, 70)
    due = reference(a, b).astype(ml_dtypes.bfloat16)
    with sb.use_isa(isa):
        monkeypatch.setitem(tuning._kept, isa, ZEN4)
        pairs, plan = sb.pack(b), sb.plan_matmul(a, b)
        monkeypatch.setitem(tuning._kept, isa, SAPPHIRE_RAPIDS)
        codes, other = sb.pack(b), sb.plan_matmul(a, b)
        assert (codes.engine, dict(other.facts)["engine"]) == ("bfloat16 codes", "fma float32")
        assert dict(other.facts)["machine"] == "sapphirerapids"
        has_pairs = "dot2_bfloat16" in isa.instructions
        reason = ("bfloat16 pairs", "slower than fma float32 on sapphirerapids")
        assert (pairs.engine == "bfloat16 pairs") == (reason in other.rejected) == has_pairs
        if has_pairs:
            assert dict(sb.plan_matmul(a, pairs).facts)["engine"].partition(",")[0] == pairs.engine
        for machine in (SAPPHIRE_RAPIDS, ZEN4):
            monkeypatch.setitem(tuning._kept, isa, machine)
            for right in (b, pairs, codes):
                assert sb.matmul(a, right).tobytes() == due.tobytes()
            assert sb.matmul(a[:3], codes).tobytes() == due[:3].tobytes()
        # A plan that another machine made is obeyed.
        assert sb.matmul(a, b, plan=plan).tobytes() == sb.matmul(a, b, plan=other).tobytes() == due.tobytes()


def test_what_was_measured_is_printed() -> None:
    isa = isas.best()
    c = contraction(*(50, 60, 700), *(gemm.Matrix(x, 1, (), int8) for x in (700, 60)), gemm.Matrix(60, 1, (), int32))
    plan = gemm.plan(c, isa, machine=WIDE)
    assert dict(plan.facts)["engine"] == "int16 pairs (tuned)"
    assert dict(plan.facts)["machine"] == "wide"
    assert ("int8 x int8 quads", f"Isa row {isa.name} has no dot4_int8") in plan.rejected
    assert "(tuned)" not in str(gemm.plan(c, isa, machine=WIDE, engine="int32"))
    assert "(tuned)" not in str(gemm.plan(c, isa, machine=ODD))
    others = replace(c, a=gemm.Side(replace(c.a.values, dtype=uint8)))
    assert "(tuned)" not in str(gemm.plan(others, isa, machine=WIDE))


def test_the_tile_for_sums_of_blocks_is_the_machines_where_registers_suffice() -> None:
    sums = next(row for row in engine.BLOCKS if row.a is int8)
    for isa in PRODUCT_ROWS:
        wide = isa.registers == 32
        assert SAPPHIRE_RAPIDS.shipped(sums, isa).tile == (Tile(6, 2) if wide else DEFAULT.shipped(sums, isa).tile)
        assert DEFAULT.shipped(sums, isa).tile.nv == 1


def test_products_of_blocks_have_the_same_bits_by_the_tiles_of_all_machines() -> None:
    random, k, made = np.random.default_rng(0), 200, set[str]()
    for group in (16, 40, 64):
        a, b = (random.integers(-128, 128, shape).astype(np.int8) for shape in ((31, k), (k, 70)))
        blocks = -(-k // group)
        of_a, of_b = (random.standard_normal(shape).astype(np.float32) for shape in ((31, blocks), (blocks, 70)))
        due = reference(
            a.astype(np.float32), b.astype(np.float32), a_scale=of_a, a_block=group, b_scale=of_b, b_block=group
        )
        left = gemm.Side(gemm.Matrix(k, 1, (), int8), gemm.Shared(gemm.Matrix(blocks, 1), group))
        right = gemm.Side(gemm.Matrix(70, 1, (), int8), gemm.Shared(gemm.Matrix(70, 1), group))
        c = gemm.Contraction(31, 70, k, left, right, gemm.Side(gemm.Matrix(70, 1)))
        for machine in (*ROWS, ODD):
            plan, out = gemm.plan(c, isas.best(), machine=machine), np.zeros((31, 70), np.float32)
            launch.run_plan(plan, [a, b, of_a, of_b, out], 1)
            assert out.tobytes() == due.tobytes(), (group, machine.name)
            made.add(dict(plan.facts)["tile"])
    assert len(made) > 1 or isas.best().registers < 32
