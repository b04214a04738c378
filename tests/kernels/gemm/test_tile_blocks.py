"""Sums of scaled blocks by tiles have the bits of numerics.md section 4, and are chosen where they may run and pay."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import guard
import ml_dtypes
import numpy as np
import pytest
from gemm_run import execute
from launch import assert_bits
from rows import ALL_ROWS, FAKE3, row_named

import samebits as sb
from samebits import dtypes
from samebits.codegen import isa as isas
from samebits.codegen import permission
from samebits.codegen.isa import Isa, best
from samebits.kernels import gemm
from samebits.kernels.gemm import Contraction, Matrix, Shared, Side, Spec, engine, kept, reference
from samebits.kernels.gemm.contraction import Panels
from samebits.kernels.gemm.engine import BLOCKS_OF_TILES, named
from samebits.kernels.gemm.machine import DEFAULT, EMERALD_RAPIDS
from samebits.kernels.gemm.selection import of_operands
from samebits.native import compile

Array = np.ndarray[Any, np.dtype[Any]]
F32, E4M3, E8M0 = np.float32, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e8m0fnu
AMX = row_named("avx512_amx")
RUNS = AMX.available and permission.refusal() is None
# Where tiles are rows in memory: the interpreter, this machine's best row, panels of an odd width; and real ones.
NUMPY, HERE = ALL_ROWS[0], best() if not best().has_tiles else row_named("avx512")
ROWS = (NUMPY, HERE, *([AMX] if RUNS else []))


def elements(name: str, *shape: int, seed: int = 0) -> Array:
    """Numbers of a format beside forbidden memory, its extremes and zeros often."""
    dtype, random = dtypes.of(name), np.random.default_rng([seed, *shape])
    low, high = float(dtype.min), float(dtype.max)
    ends = random.choice([low, high, 0], shape)
    x = random.integers(int(low), int(high) + 1, shape) if dtype.is_integer else 2 * random.standard_normal(shape)
    return guard.array(np.where(random.random(shape) < 0.3, ends, x).astype(dtype.numpy))


def scales(kind: Any, *shape: int, seed: int = 0) -> Array:
    random = np.random.default_rng([seed, *shape])
    x = np.exp2(random.integers(-6, 7, shape)) if kind is E8M0 else random.standard_normal(shape)
    return guard.array(np.asarray(x).astype(kind))


def lies(x: Array | None) -> Matrix:
    """How a dense matrix lies, or one whose columns are contiguous."""
    assert x is not None
    row, column = (s // x.itemsize for s in x.strides)
    return Matrix(row, column, (), dtypes.of(x.dtype))


def multiplied(
    a: Array, b: Array, of_a: Array | None, of_b: Array | None, sizes: tuple[int, int], isa: Isa, name: str | None,
    *, spec: Spec = gemm.SB1, threads: int = 1, out: Array | None = None, packed: str = "", **chosen: Any,
) -> Array:  # fmt: skip
    """The product on an engine called `name`, or with b in panels of the one called `packed`; onto `out` if given."""
    (m, k), n = a.shape, b.shape[1]
    left = Side(lies(a), None if of_a is None else Shared(lies(of_a), sizes[0]))
    shared = None if of_b is None else Shared(lies(of_b), sizes[1])
    right: Side[Any] = Side(lies(b), shared)
    if packed:
        columns = gemm.panel_columns(isa, named(packed))
        right = Side(Panels(columns, (), dtypes.of(b.dtype), packed), shared)
        b = guard.array(kept.panels(b, named(packed), columns))
    accumulates = out is not None
    out = guard.array(np.full((m, n), np.nan, F32) if out is None else out)
    c = Contraction(m, n, k, left, right, Side(Matrix(n, 1)), spec=spec, accumulates=accumulates)
    plan = gemm.plan(c, isa, threads, engine=name, **chosen)
    assert f"engine: {name or f'{packed} by tiles'}\n" in str(plan)
    execute(plan, [a, b, *(x for x in (of_a, of_b) if x is not None), out])
    return out


# Elements and scales, extents of a block of a and of b, M K N, chunk: of a tile's 16 rows and columns and 64 elements
# along K, of two of them, and of a chunk; runs of one, two, three and four tiles, and of chunks that hold up to eight.
CASES: tuple[tuple[str, str, Any, tuple[int, int], tuple[int, int, int], int], ...] = (
    ("int8", "int8", F32, (64, 64), (33, 448, 65), 128),
    ("uint8", "int8", E4M3, (128, 64), (17, 300, 33), 128),
    ("int8", "uint8", F32, (256, 128), (70, 1000, 40), 128),
    ("uint8", "uint8", E8M0, (64, 128), (16, 129, 16), 128),
    ("int8", "int4", np.float16, (192, 192), (48, 900, 31), 384),
    ("uint4", "int4", F32, (64, 256), (5, 770, 64), 256),
    ("float4_e2m1fn", "float4_e2m1fn", E4M3, (128, 128), (32, 256, 32), 128),
    ("float6_e2m3fn", "float4_e2m1fn", F32, (64, 192), (40, 333, 50), 192),
    ("int8", "int8", F32, (64, 64), (35, 1200, 17), 512),
    ("int8", "int4", F32, (64, 128), (18, 768, 40), 512),
    ("uint8", "int8", F32, (192, 192), (20, 1999, 20), 6144),
    ("uint8", "int8", F32, (320, 320), (20, 1000, 20), 640),
    ("int8", "float6_e2m3fn", F32, (1000, 64), (1, 63, 1), 128),
    ("uint8", "int8", F32, (64, 64), (20, 7, 20), 128),
    ("int8", "int8", F32, (256, 256), (34, 0, 3), 256),
)


def expected(left: str, right: str) -> str:
    """The engine whose bytes hold both formats as they are."""
    signs = ["uint8" if name == "uint8" else "int8" for name in (left, right)]
    return f"{' x '.join(signs)} blocks by tiles"


@pytest.mark.parametrize("isa", ROWS, ids=lambda row: row.name)
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0]}-{case[1]}-{case[3]}-{case[4]}")
def test_bits_are_those_of_the_rule(isa: Isa, case: tuple[Any, ...]) -> None:
    left, right, kind, (ga, gb), (m, k, n), chunk = case
    a, b = elements(left, m, k), elements(right, k, n, seed=1)
    of_a, of_b = scales(kind, m, -(-k // ga)), scales(kind, -(-k // gb), n, seed=1)
    spec = Spec(chunk)
    due = reference(a, b, spec=spec, a_scale=of_a, a_block=ga, b_scale=of_b, b_block=gb)
    name = expected(left, right)
    for form in ("fused", "staged") if isa is AMX else (("fused", "staged")[CASES.index(case) % 2],):
        got = multiplied(a, b, of_a, of_b, (ga, gb), isa, name, spec=spec, form=form)
        assert_bits(got, due, form)


def test_panels_of_three_tiles_and_lanes_of_three() -> None:
    for (m, k, n), spec in (((33, 300, 100), Spec()), ((3, 700, 20), Spec(512))):
        a, b = elements("int8", m, k), elements("uint8", k, n, seed=1)
        of_a, of_b = scales(F32, m, -(-k // 64)), scales(F32, -(-k // 64), n, seed=1)
        due = reference(a, b, spec=spec, a_scale=of_a, a_block=64, b_scale=of_b, b_block=64)
        got = multiplied(a, b, of_a, of_b, (64, 64), FAKE3, "int8 x uint8 blocks by tiles", spec=spec)
        assert_bits(got, due, (m, k, n))


@pytest.mark.parametrize("isa", ROWS, ids=lambda row: row.name)
def test_nan_infinite_and_zero_scales_do_what_arithmetic_makes_of_them(isa: Isa) -> None:
    """Also those of blocks whose elements are zeros, and of the last block of K, which is not whole."""
    m, k, n = 20, 700, 35
    a, b = elements("int8", m, k), elements("int8", k, n, seed=1)
    a[1, 64:128], b[256:320, 3] = 0, 0
    of_a, of_b = scales(F32, m, 11), scales(F32, 11, n, seed=1)
    of_a[0, 2], of_a[2, 3], of_b[1, 3], of_b[4, 5], of_b[10, 6] = np.nan, 0, np.inf, np.nan, -np.inf
    of_a[3, 0], of_b[0, 7], of_a[3, 1], of_b[1, 7] = 3e38, 3e38, 1e-30, 1e-30
    of_a[4], of_b[:, 8] = -0.0, 0.0
    with np.errstate(all="ignore"):
        due = reference(a, b, a_scale=of_a, a_block=64, b_scale=of_b, b_block=64)
    assert np.isnan(due[0]).all()
    assert np.isnan(due[1, 3])
    assert not np.isnan(due[5:, 9:]).any()
    assert_bits(multiplied(a, b, of_a, of_b, (64, 64), isa, "int8 x int8 blocks by tiles"), due)


@pytest.mark.parametrize("isa", ROWS, ids=lambda row: row.name)
def test_segments_threads_sums_that_go_on_and_columns(isa: Isa) -> None:
    m, k, n = 70, 1100, 130
    a, b = elements("uint8", m, k), elements("int8", k, n, seed=1)
    of_a, of_b = scales(F32, m, -(-k // 128)), scales(F32, -(-k // 64), n, seed=1)
    blocks = {"a_scale": of_a, "a_block": 128, "b_scale": of_b, "b_block": 64}
    name = "uint8 x int8 blocks by tiles"
    for spec, threads in ((Spec(128, 4), 1), (Spec(256, 2), 3), (Spec(), 2)):
        got = multiplied(a, b, of_a, of_b, (128, 64), isa, name, spec=spec, threads=threads)
        assert_bits(got, reference(a, b, spec=spec, **blocks), spec)
    turned = guard.array(a.T).T, guard.array(b.T).T
    assert_bits(multiplied(*turned, of_a, of_b, (128, 64), isa, name), reference(a, b, **blocks))
    # From -0, and from what the first chunks gave.
    low = k // 256 * 128
    first = np.full((m, n), -0.0, F32)
    for ks in (slice(0, low), slice(low, k)):
        part = of_a[:, ks.start // 128 : -(-ks.stop // 128)], of_b[ks.start // 64 : -(-ks.stop // 64)]
        given = (guard.array(x) for x in (a[:, ks], b[ks], *part))
        first = multiplied(*given, (128, 64), isa, name, out=first)
    assert_bits(first, reference(a, b, **blocks))


@pytest.mark.parametrize("isa", ROWS, ids=lambda row: row.name)
def test_one_side_alone_may_have_scales(isa: Isa) -> None:
    m, k, n = 18, 333, 20
    a, b = elements("int8", m, k), elements("float4_e2m1fn", k, n, seed=1)
    of_a, of_b = scales(F32, m, -(-k // 64)), scales(F32, -(-k // 64), n, seed=1)
    name = "int8 x int8 blocks by tiles"
    due = reference(a, b, a_scale=of_a, a_block=64)
    assert_bits(multiplied(a, b, of_a, None, (64, 0), isa, name), due)
    due = reference(a, b, b_scale=of_b, b_block=64)
    assert_bits(multiplied(a, b, None, of_b, (0, 64), isa, name), due)


@pytest.mark.parametrize("isa", [*ROWS, FAKE3], ids=lambda row: row.name)
def test_panels_for_vectors_are_read_by_tiles(isa: Isa, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where packing shifted b to fit, each run takes that away again. The rows are made to have tiles here."""
    from samebits.kernels.gemm import selection

    if isa is not AMX:

        def read(rows: Sequence[engine.Engine], *_: Any) -> tuple[engine.Engine, gemm.form.Reasons]:
            return rows[0], ()

        monkeypatch.setattr(selection, "_blocks_by_tiles", read)
    for right, kind in (("int8", F32), ("uint8", F32), ("int4", E4M3)):
        m, k, n = 37, 444, 40
        a, b = elements("int8", m, k), elements(right, k, n, seed=1)
        of_a, of_b = scales(kind, m, -(-k // 64)), scales(kind, -(-k // 128), n, seed=1)
        due = reference(a, b, a_scale=of_a, a_block=64, b_scale=of_b, b_block=128)
        got = multiplied(a, b, of_a, of_b, (64, 128), isa, None, packed="int8 x uint8 blocks")
        assert_bits(got, due, right)


def described(m: int, left: str, right: str, ga: int, gb: int, k: int = 1024, n: int = 64, **facts: Any) -> Contraction:
    """A product of dense operands with scales of blocks of float32."""
    sides = (
        Side(Matrix(row, 1, (), dtypes.of(name)), Shared(Matrix(columns, 1), size))
        for name, row, columns, size in ((left, k, -(-k // ga), ga), (right, n, n, gb))
    )
    return Contraction(m, n, k, *sides, Side(Matrix(n, 1)), **facts)


@pytest.mark.skipif(AMX.available and not RUNS, reason="this process may not use tiles")
def test_tiles_are_chosen_for_blocks_of_whole_tiles_and_rows_enough() -> None:
    def found(c: Contraction) -> tuple[str, dict[str, str]]:
        row, rejected = of_operands(c, AMX, DEFAULT, None, None)
        return row.name, dict(rejected)

    for left, right in (
        ("int8", "int8"), ("uint8", "int8"), ("int8", "uint8"), ("uint8", "uint8"), ("int8", "int4"),
        ("float4_e2m1fn", "float4_e2m1fn"),
    ):  # fmt: skip
        name = expected(left, right)
        assert found(described(17, left, right, 64, 128)) == (name, {})
        few, why = found(described(16, left, right, 64, 128))
        assert not named(few).takes_tiles
        assert why[name] == "16 rows are one tile of rows at most, and wait for b"
    for ga, gb, chunk in ((32, 64, 128), (64, 16, 128), (192, 192, 128), (64, 64, 96)):
        name, why = found(described(100, "int8", "int8", ga, gb, spec=Spec(chunk)))
        assert not named(name).takes_tiles, (ga, gb)
        least = "chunks and blocks do not have equal runs of a multiple of 64"
        assert why["int8 x int8 blocks by tiles"] == least
    assert found(described(100, "int8", "int8", 192, 192, spec=Spec(384)))[0] == "int8 x int8 blocks by tiles"
    for left, right in (("float8_e4m3fn", "int8"), ("bfloat16", "int8"), ("float32", "float32")):
        other, why = found(described(100, left, right, 64, 64))
        assert not named(other).takes_tiles
        assert not any("blocks by tiles" in name for name in why)
    slow = replace(DEFAULT, slow=frozenset({"int8 x int8 blocks by tiles"}))
    row, rejected = of_operands(described(100, "int8", "int8", 64, 64), AMX, slow, None, None)
    assert row.name == "int8 x uint8 blocks"
    assert rejected == (("int8 x int8 blocks by tiles", "slow on default"),)
    text = str(gemm.plan(described(16, "int8", "int8", 64, 64), AMX))
    assert "rejected int8 x int8 blocks by tiles: 16 rows are one tile of rows at most, and wait for b\n" in text
    # On a row without tiles nothing is said of them.
    assert of_operands(described(100, "int8", "int8", 64, 64), row_named("avx512_vnni"), DEFAULT, None, None) == (
        named("int8 x uint8 blocks"), ()
    )  # fmt: skip


@pytest.mark.skipif(AMX.available and not RUNS, reason="this process may not use tiles")
def test_a_weight_that_is_packed_once_has_the_panels_of_vectors() -> None:
    """Few rows go by vectors and many by tiles, in the same panels."""
    for machine in (DEFAULT, EMERALD_RAPIDS):
        columns = gemm.panel_columns(AMX, named("int8 x uint8 blocks"), machine)
        panels: Side[Any] = Side(Panels(columns, (), dtypes.int8, "int8 x uint8 blocks"), Shared(Matrix(64, 1), 64))
        for m, name in ((8, "int8 x uint8 blocks"), (64, "int8 x uint8 blocks by tiles")):
            c = replace(described(m, "int8", "int8", 64, 64), b=panels)
            text = str(gemm.plan(c, AMX, machine=machine))
            assert f"engine: {name}\n" in text
            assert f"NR {columns}," in text
    assert [row.panels for row in BLOCKS_OF_TILES][:3] == [row.name for row in engine.BLOCKS]


def test_a_refusal_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    from samebits.kernels.gemm import selection

    monkeypatch.setattr(selection, "_refused", lambda isa: "nobody may" if isa is AMX else None)
    c = described(100, "uint8", "uint8", 64, 64)
    row, rejected = of_operands(c, AMX, DEFAULT, None, None)
    assert not row.takes_tiles
    assert rejected[0] == ("uint8 x uint8 blocks by tiles", "nobody may")
    with pytest.raises(sb.OptionError) as caught:
        of_operands(c, AMX, DEFAULT, "uint8 x uint8 blocks by tiles", None)
    assert str(caught.value) == (
        "plan: engine is 'uint8 x uint8 blocks by tiles', must be one without tiles: nobody may; leave it out"
    )


@pytest.mark.skipif(isas.host_arch() != "x86_64", reason="reads x86-64 assembly")
@pytest.mark.skipif(AMX.available and not RUNS, reason="this process may not use tiles")
def test_vectors_scale_a_chunk_while_tiles_sum_the_next() -> None:
    for size, runs in ((64, 2), (128, 1)):
        plan = gemm.plan(described(64, "int8", "int8", size, size), AMX)
        texts = [compile.assembly(spec) for spec in plan.steps[-1].needs]
        assert sum("ldtilecfg" in text for text in texts) == 1
        (text,) = {text for text in texts if "tdpbssd" in text}
        loops = [part for part in re.split(r"^\.LBB", text, flags=re.M) if part.count("tdpbssd") == 8]
        (woven,) = [part for part in loops if "vfmadd" in part]
        assert woven.count("tileloadd") == 8
        assert woven.count("tilestored") == woven.count("tilezero") == 4 * runs
        behind = woven.split("tdpbssd")[1:]
        # Of 32 rows of two vectors as many behind each of eight products.
        for part in behind:
            assert part.count("vcvtdq2ps") == part.count("vfmadd") == part.count("vmulps") == 8 * runs
            assert part.count("vaddps") == 8
            assert not re.search(r"call|div", part)


@pytest.mark.skipif(not RUNS, reason=f"no AMX here: {permission.refusal() or 'Isa row unavailable'}")
def test_calls_take_tiles_for_blocks() -> None:
    for left, right, ga, gb in (
        ("int8", "int8", 64, 64), ("uint8", "uint8", 128, 128), ("int8", "int4", 128, 64),
        ("float4_e2m1fn", "float4_e2m1fn", 64, (64, 32)),
    ):  # fmt: skip
        m, k, n = 100, 531, 70
        a, b = elements(left, m, k), elements(right, k, n, seed=1)
        size, lines = gb if isinstance(gb, tuple) else (gb, 1)
        of_a, of_b = scales(F32, m, -(-k // ga)), scales(F32, -(-k // size), -(-n // lines), seed=1)
        due = reference(a, b, a_scale=of_a, a_block=ga, b_scale=of_b, b_block=gb)
        given = {"b_scale": of_b, "a_group": ga, "b_group": gb, "out_dtype": "float32"}
        with sb.use_isa(AMX):
            assert "blocks by tiles" in str(sb.plan_matmul(a, b, a_scale=of_a, **given))
            for count, threads in ((m, 1), (m, 2), (17, 1), (16, 1), (1, 1)):
                got = sb.matmul(a[:count], b, a_scale=of_a[:count], **given, threads=threads)
                assert_bits(got, due[:count], (left, right, count))
            got = sb.matmul(np.stack([a, a]), b, a_scale=np.stack([of_a, of_a]), **given)
            assert_bits(got, np.stack([due, due]), (left, right))
