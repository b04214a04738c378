"""Products by tiles are exact at every edge, read nothing beyond their operands, and are chosen where they may run."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import guard
import numpy as np
import pytest
from gemm_run import contraction, execute, typed_product
from launch import assert_bits
from rows import ALL_ROWS, FAKE3

import samebits as sb
from samebits import dtypes
from samebits.codegen import isa as isas
from samebits.codegen import permission
from samebits.codegen.isa import Isa
from samebits.dtypes import DType, int8, int32, uint8
from samebits.kernels import gemm
from samebits.kernels.gemm import Matrix, Shared, Side, engine, reference
from samebits.kernels.gemm.contraction import Panels, Spec, fused
from samebits.kernels.gemm.machine import DEFAULT, Machine
from samebits.kernels.gemm.reference import integers
from samebits.kernels.gemm.selection import of_operands
from samebits.kernels.gemm.tiles import cut_whole
from samebits.native import compile

Array = np.ndarray[Any, np.dtype[Any]]
AMX = next(row for row in isas.ROWS if row.name == "avx512_amx")
RUNS = AMX.available and permission.refusal() is None
# The interpreter, tiles made of vectors in panels of an odd width, and the machine's own.
ROWS = (ALL_ROWS[0], FAKE3, *([AMX] if RUNS else []))
INTEGERS = tuple(row for row in engine.OF_TILES if row.exact)
FORMS = ("fused", "staged", "packed")
PAIRS = Spec(order="pairs32")
# Of a tile's 16 rows and columns and 64 bytes along K, of two of them, and of a chunk.
SIZES = ((1, 3, 1), (16, 64, 16), (17, 65, 31), (33, 191, 70), (48, 128, 33), (70, 2111, 40))


def draw(dtype: DType, *shape: int, seed: int = 0) -> Array:
    """Every integer of the format, its extremes often."""
    rng = np.random.default_rng([seed, *shape])
    low, high = int(dtype.min), int(dtype.max)
    x = rng.integers(low, high + 1, shape)
    return guard.array(np.where(rng.random(shape) < 0.3, rng.choice([low, high], shape), x), dtype.numpy)


@pytest.mark.parametrize("found", INTEGERS, ids=lambda x: x.name)
@pytest.mark.parametrize("isa", ROWS, ids=lambda row: row.name)
def test_tiles_give_exact_sums_at_every_edge(isa: Isa, found: engine.Engine) -> None:
    number = INTEGERS.index(found)
    some = SIZES[number::4] if isa is FAKE3 else SIZES[number % 2 :: 2]
    for i, (m, k, n) in enumerate(SIZES if isa is AMX else some):
        a, b = draw(found.a, m, k), draw(found.b, k, n, seed=1)
        for form in FORMS if isa is AMX else FORMS[(number + i) % 3 :][:1]:
            got = typed_product(a, b, isa, engine=found.name, form=form)
            assert_bits(got, integers(a, b).astype(np.int32), (m, k, n, form))


# Magnitudes within which no product is subnormal, whose products are, and special values of either sign.
DRAWS = ("plain", "subnormal", "special")


def floats(kind: str, dtype: DType, *shape: int, seed: int = 0) -> Array:
    """Numbers of a format."""
    rng = np.random.default_rng([seed, *shape])
    x = rng.standard_normal(shape) * np.exp2(rng.integers(-6, 6, shape))
    if kind == "subnormal":
        x *= np.exp2(rng.integers(-75, -50, shape).astype(np.float64))
    if kind == "special":
        x = np.where(rng.random(shape) < 0.05, rng.choice([np.nan, np.inf, -np.inf, 0.0, -0.0], shape), x)
    with np.errstate(all="ignore"):
        return guard.array(x.astype(dtype.numpy))


def multiplied(a: Array, b: Array, isa: Isa, spec: Spec, form: str) -> Array:
    """a @ b by tiles, or from panels that tiles have."""
    (m, k), n, kinds = a.shape, b.shape[1], (dtypes.of(a.dtype), dtypes.of(b.dtype))
    out, right = guard.empty((m, n), np.float32), b
    lying: Matrix | Panels = Matrix(n, 1, (), kinds[1])
    chosen: dict[str, Any] = {"form": form, "engine": "bfloat16 pairs by tiles"}
    if form == "packed":
        right = np.zeros(gemm.packed_elements(k, n, isa, (), engine.PAIRS), np.int32)
        execute(gemm.plan_pack(k, n, lying, isa, 1, (), engine.PAIRS, kinds[0]), [b, right])
        lying, chosen = Panels(gemm.panel_columns(isa, engine.PAIRS), (), kinds[1], engine.PAIRS.name), {}
    c = contraction(m, n, k, Matrix(k, 1, (), kinds[0]), lying, Matrix(n, 1), spec=spec)
    execute(gemm.plan(c, isa, 1, **chosen), [a, right, out])
    return out


@pytest.mark.parametrize("kind", DRAWS)
@pytest.mark.parametrize("isa", ROWS, ids=lambda row: row.name)
def test_tiles_of_bfloat16_sum_in_their_order(isa: Isa, kind: str) -> None:
    """NaN and infinities stay in their rows and columns, at K of every kind of rest; subnormals are honoured."""
    every = [(1, 3, 1), (17, 33, 20), (33, 95, 40), (33, 171, 70), (40, 1100, 33)]
    shapes = every if isa is AMX else every[3:4]
    for i, (m, k, n) in enumerate(shapes):
        a, b = (floats(kind, dtypes.bfloat16, *shape, seed=s) for s, shape in enumerate(((m, k), (k, n))))
        spec = Spec((64, 512)[i % 2], order="pairs32")
        with np.errstate(all="ignore"):
            due = reference(a, b, spec=spec)
        for form in FORMS if isa is AMX else FORMS[1:]:
            assert_bits(multiplied(a, b, isa, spec, form), due, (m, k, n, form))


@pytest.mark.skipif(not RUNS, reason=f"no AMX here: {permission.refusal() or 'Isa row unavailable'}")
def test_calls_in_the_order_of_tiles_take_every_format_that_is_exact_in_bfloat16() -> None:
    spec = Spec(order="pairs32")
    for name in ("bfloat16", "float8_e4m3fn", "float8_e5m2", "float4_e2m1fn"):
        a, b = (floats("plain", dtypes.of(name), *shape) for shape in ((40, 171), (171, 33)))
        due = reference(a, b, spec=spec)
        with sb.use_isa(AMX):
            for right in (b, sb.pack(b, spec=spec)):
                for m in (1, 40):
                    got = sb.matmul(a[:m], right, spec=spec, out_dtype="float32", threads=2)
                    assert_bits(got, due[:m], (name, m))
        with sb.use_isa("avx2"):
            assert_bits(sb.matmul(a, b, spec=spec, out_dtype="float32"), due, name)


def test_the_other_order_is_named_where_tiles_would_be_faster() -> None:
    lying = Matrix(256, 1, (), dtypes.bfloat16), Matrix(64, 1, (), dtypes.bfloat16), Matrix(64, 1)
    found, rejected = of_operands(contraction(100, 64, 256, *lying), AMX, DEFAULT, None, None)
    assert found is engine.PAIRS
    assert rejected == (("bfloat16 pairs by tiles", "its sums are those of pairs32, which would be faster"),)
    if not AMX.available or RUNS:
        c = contraction(100, 64, 256, *lying, spec=Spec(order="pairs32"))
        assert of_operands(c, AMX, DEFAULT, None, None)[0].name == "bfloat16 pairs by tiles"
    # Of float32 no tile holds the elements.
    c = contraction(100, 64, 256, Matrix(256, 1), Matrix(64, 1), Matrix(64, 1), spec=Spec(order="pairs32"))
    assert of_operands(c, AMX, DEFAULT, None, None)[0].name == "fma float32"


def written(a: Array, b: Array, isa: Isa, out: Array, spec: Spec, result: int) -> None:
    """out = a @ b by tiles, where a result of more than `result` bytes goes past the caches."""
    (m, k), n = a.shape, b.shape[1]
    kinds = [dtypes.of(x.dtype) for x in (a, b, out)]
    lying = [Matrix(x.strides[0] // x.itemsize, 1, (), kind) for x, kind in zip((a, b, out), kinds, strict=True)]
    machine = replace(DEFAULT, name=f"result {result}", caches=replace(DEFAULT.caches, result=result))
    chosen = next(x for x in engine.OF_TILES if x.exact == kinds[0].is_integer and x.a is kinds[0] and x.b is kinds[1])
    c = contraction(m, n, k, *lying, spec=spec)
    execute(gemm.plan(c, isa, 1, engine=chosen.name, machine=machine), [a, b, out])


@pytest.mark.parametrize("at", [0, 4])
@pytest.mark.parametrize("isa", ROWS, ids=lambda row: row.name)
def test_results_go_past_the_caches_where_their_rows_are_whole_lines(isa: Isa, at: int) -> None:
    """Of 32 columns a panel, and fewer at the end; into memory on a line and beside one, whose neighbours stay."""
    m, k, n, step = (70, 171, 100, 112) if isa.compiled else (33, 35, 70, 80)
    for kind, total in ((int8, int32), (dtypes.bfloat16, dtypes.float32)):
        if kind is int8:
            a, b = draw(kind, m, k), draw(kind, k, n, seed=1)
            due = integers(a, b).astype(np.int32)
        else:
            a, b = (floats("special", kind, *shape) for shape in ((m, k), (k, n)))
            with np.errstate(all="ignore"):
                due = reference(a, b, spec=PAIRS)
        for result in (0, 1 << 40):
            memory = np.full((m * step + 64) * 4, 7, np.uint8)
            first = -memory.ctypes.data % 64 + at
            every = memory[first : first + m * step * 4].view(total.numpy).reshape(m, step)
            written(a, b, isa, every[:, :n], PAIRS if kind is not int8 else Spec(), result)
            assert_bits(every[:, :n].copy(), due, (kind.name, result))
            every[:, :n].view(np.uint8)[:] = 7
            assert (memory == 7).all(), (kind.name, result)


@pytest.mark.parametrize("isa", ROWS, ids=lambda row: row.name)
def test_sums_become_narrower_floats(isa: Isa) -> None:
    m, k, n = (70, 171, 100) if isa.compiled else (33, 70, 70)
    for kind in DRAWS:
        a, b = (floats(kind, dtypes.bfloat16, *shape, seed=s) for s, shape in enumerate(((m, k), (k, n))))
        for spec in (Spec(64, order="pairs32"), PAIRS):
            for narrow in (dtypes.bfloat16, dtypes.float16):
                out = guard.empty((m, n), narrow.numpy)
                written(a, b, isa, out, spec, 0)
                with np.errstate(all="ignore"):
                    due = np.asarray(sb.cast(reference(a, b, spec=spec), narrow.name))
                assert_bits(out, due, (kind, spec.chunk, narrow.name))


@pytest.mark.parametrize("isa", ROWS, ids=lambda row: row.name)
def test_results_lie_by_columns(isa: Isa) -> None:
    """Which the epilogue turns, of more micropanels than wait for it together; packed panels cannot change places."""
    m, k, n = 161, 19, 17
    a, b = draw(int8, m, k), draw(int8, k, n, seed=1)
    row = engine.named("int8 x int8 quads by tiles")
    panels = np.zeros(gemm.packed_elements(k, n, isa, (), row), np.int32)
    execute(gemm.plan_pack(k, n, Matrix(n, 1, (), int8), isa, 1, (), row, int8), [b, panels])
    lying = Panels(gemm.panel_columns(isa, row), (), int8, row.name)
    out = guard.empty((n, m), np.int32)
    c = contraction(m, n, k, Matrix(k, 1, (), int8), lying, Matrix(1, m, (), int32))
    execute(gemm.plan(c, isa, 1), [a, panels, out])
    assert_bits(out.T.copy(), integers(a, b).astype(np.int32))


def described(a: Array, b: Array, zeros: tuple[int, int]) -> tuple[gemm.Contraction, list[Array]]:
    """The product of two matrices with zero points, and its operands; the last is the result."""
    (m, k), n = a.shape, b.shape[1]
    kinds = dtypes.of(a.dtype), dtypes.of(b.dtype)
    total = engine.total_of(*kinds, k, (True, True))
    out = guard.empty((m, n), total.numpy)
    lying = [Matrix(*(s // x.itemsize for s in x.strides), (), dtypes.of(x.dtype)) for x in (a, b, out)]
    points = [np.full(1, zero, np.int32) for zero in zeros]
    left, right = (Side(x, zero=Shared(Matrix(0, 0, (), int32))) for x in lying[:2])
    epilogue, sources = fused(total=total, a=left, b=right)
    return contraction(m, n, k, left, right, lying[2], (), epilogue, sources), [a, b, *points, out]


@pytest.mark.parametrize("isa", ROWS, ids=lambda row: row.name)
def test_zero_points_layouts_and_sums_of_64_bits(isa: Isa) -> None:
    name = "uint8 x int8 quads by tiles"
    for (m, k, n), turned in (((17, 75, 21), True), ((17, 33100, 3), False))[: 2 if isa.compiled else 1]:
        a, b = draw(uint8, m, k), draw(int8, k, n, seed=1)
        if turned:
            a, b = guard.array(a.T).T, guard.array(b.T).T
        c, operands = described(a, b, (200, -7))
        execute(gemm.plan(c, isa, 1, engine=name, form="staged"), operands)
        assert (operands[-1].dtype == np.int64) is not turned
        assert_bits(operands[-1], integers(a, b, 200, -7).astype(operands[-1].dtype), (m, k, n))


@pytest.mark.parametrize("threads", [2, 3])
def test_threads_share_the_product(threads: int) -> None:
    a, b = draw(int8, 70, 300), draw(int8, 300, 130, seed=1)
    out = np.empty((70, 130), np.int32)
    c = contraction(70, 130, 300, *(Matrix(x.shape[1], 1, (), dtypes.of(x.dtype)) for x in (a, b, out)))
    execute(gemm.plan(c, ROWS[-1], threads, engine="int8 x int8 quads by tiles"), [a, b, out])
    assert_bits(out, integers(a, b).astype(np.int32))


@pytest.mark.skipif(not RUNS, reason=f"no AMX here: {permission.refusal() or 'Isa row unavailable'}")
def test_calls_take_tiles() -> None:
    for left, right in itertools.product(("int8", "uint8", "int4", "uint4"), repeat=2):
        a, b = draw(dtypes.of(left), 100, 531), draw(dtypes.of(right), 531, 70, seed=1)
        due = integers(a, b)
        with sb.use_isa(AMX):
            packed = sb.pack(b, left=left)
            for right_operand in (b, packed):
                assert_bits(sb.matmul(a, right_operand, threads=1), due.astype(np.int32), (left, right))
            bias = np.arange(70, dtype=np.int32)
            assert_bits(sb.matmul(a, b, bias=bias), due + bias)
            for m in (1, 2, 9):
                assert_bits(sb.matmul(a[:m], packed), due[:m].astype(np.int32))


def test_a_product_by_tiles_is_chosen_with_rows_enough() -> None:
    if AMX.available and not RUNS:
        pytest.skip("this process may not use tiles")
    for a, b in itertools.product((int8, uint8), repeat=2):
        for m, is_tiled in ((9, True), (8, False)):
            c = contraction(m, 256, 256, Matrix(256, 1, (), a), Matrix(256, 1, (), b), Matrix(256, 1, (), int32))
            assert (of_operands(c, AMX, DEFAULT, None, None)[0] in engine.OF_TILES) is is_tiled
    slow = Machine("slow", slow=frozenset(row.name for row in engine.OF_TILES))
    found, rejected = of_operands(c, AMX, slow, None, None)
    assert (found.name, rejected[0]) == ("uint8 x int8 quads", ("uint8 x uint8 quads by tiles", "slow on slow"))
    c = contraction(9, 256, 256, Matrix(256, 1, (), int8), Matrix(256, 1, (), int8), Matrix(256, 1, (), int32))
    assert "engine: int8 x int8 quads by tiles" in str(gemm.plan(c, AMX, 1))
    with pytest.raises(sb.OptionError) as caught:
        gemm.plan(c, AMX, 1, engine="int8 x int8 quads by tiles", form="streamed")
    assert str(caught.value) == ("plan: form is 'streamed', must be another: tiles are of panels; leave it away")


@pytest.mark.skipif(AMX.available and not RUNS, reason="this process may not use tiles")
def test_blocks_by_tiles_have_256_rows_and_several_of_them_share_packed_panels() -> None:
    for kind, total, spec, of_many in (
        (int8, int32, Spec(), (256, 1024)),
        (dtypes.bfloat16, dtypes.float32, PAIRS, (128, 2048)),
    ):
        for m, form, (mc, kc) in ((256, "fused", (256, 1024)), (512, "staged", of_many)):
            c = contraction(
                m, 512, 4096, Matrix(4096, 1, (), kind), Matrix(512, 1, (), kind), Matrix(512, 1, (), total), spec=spec
            )
            text = str(gemm.plan(c, AMX, 1))
            assert f"blocks: MC {mc} KC {kc} NC 512\n" in text
            assert f"form: {form}\n" in text


def test_rows_are_cut_into_whole_micropanels() -> None:
    for m in (0, 1, 31, 32, 33, 64, 100):
        rows = cut_whole(m, 32)
        lower = (rows.panels - rows.tall) * rows.heights[-1]
        assert rows.tall * rows.heights[0] + lower == m
        assert rows.panels == -(-m // 32)


@pytest.mark.skipif(isas.host_arch() != "x86_64", reason="reads x86-64 assembly")
def test_a_step_loads_each_tile_once() -> None:
    c = contraction(64, 64, 512, Matrix(512, 1, (), int8), Matrix(64, 1, (), int8), Matrix(64, 1, (), int32))
    plan = gemm.plan(c, AMX, 1, engine=None if not AMX.available or RUNS else "int8 x int8 quads")
    if "by tiles" not in str(plan):
        pytest.skip("this process may not use tiles")
    texts = [compile.assembly(spec) for spec in plan.steps[-1].needs]
    entry = [text for text in texts if "ldtilecfg" in text]
    assert len(entry) == 1
    assert entry[0].count("tilerelease") == 1
    (tile,) = {text for text in texts if "tdpbssd" in text}
    steps = [part for part in tile.split(".LBB") if part.count("tdpbssd") == 4]
    assert len(steps) == 2  # of whole tiles, and of the rest
    for loop in steps:
        assert loop.count("tileloadd") == 4
        assert "tilestored" not in loop.split("tdpbssd")[1]
