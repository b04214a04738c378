"""Products of every format, on every engine and row, have the bits of the values' product; integers are exact."""

from __future__ import annotations

import itertools
import pickle
from typing import Any

import aarch64
import guard
import ml_dtypes
import numpy as np
import pytest
from gemm_run import contraction, execute, matrix, typed_product
from launch import assert_bits
from rows import AARCH64_PRODUCT_ROWS, AVX_VNNI, EVEX_VNNI, PRODUCT_ROWS, in_turn, rows_of_engines

import samebits as sb
from samebits import dtypes, tuning
from samebits.codegen import isa as isas
from samebits.codegen import llvm as emitter
from samebits.codegen.isa import ROWS, Isa
from samebits.dtypes import DType
from samebits.kernels import gemm
from samebits.kernels.gemm import Shared, Side, engine, reference
from samebits.kernels.gemm.contraction import fused
from samebits.kernels.gemm.machine import ZEN4
from samebits.kernels.gemm.reference import integers
from samebits.native import compile

Array = np.ndarray[Any, np.dtype[Any]]
FLOATS = tuple(row for row in dtypes.ROWS if row.is_float and row.numpy is not None)
NARROW = tuple(row for row in FLOATS if row.width_bits <= 16)
INTEGERS = tuple(row for row in dtypes.ROWS if row.is_integer and row.width_bits <= 8 and row.numpy is not None)
# The fastest row of this machine.
BEST = PRODUCT_ROWS[-2:-1]
every_row = pytest.mark.parametrize("isa", PRODUCT_ROWS, ids=lambda row: row.name)


def draw(dtype: DType, *shape: int, seed: int = 0) -> Array:
    """Numbers of every magnitude that the format has within a few of 1, or every integer."""
    rng = np.random.default_rng([seed, *shape])
    if dtype.is_integer:
        return rng.integers(int(dtype.min), int(dtype.max) + 1, shape).astype(dtype.numpy)
    with np.errstate(all="ignore"):
        x = rng.standard_normal(shape) * np.exp2(rng.integers(-3, 3, shape))
        return np.abs(x).astype(dtype.numpy) if not dtype.signed else x.astype(dtype.numpy)


def product(
    a: Array, b: Array, isa: Isa, *, zeros: tuple[Any, Any] = (None, None), run: Any = execute, **choices: Any
) -> Array:
    """a @ b through the kernels, in what it is summed in."""
    (m, k), n = a.shape, b.shape[1]
    kinds = dtypes.of(a.dtype), dtypes.of(b.dtype)
    total = dtypes.float64 if dtypes.float64 in kinds else dtypes.float32
    if kinds[0].is_integer:
        total = engine.total_of(*kinds, k, (zeros[0] is not None, zeros[1] is not None))
    out = guard.empty((m, n), total.numpy)
    lying = [gemm.Matrix(*(s // x.itemsize for s in x.strides), (), dtypes.of(x.dtype)) for x in (a, b, out)]
    given = [None if z is None else np.asarray(z, np.int32) for z in zeros]
    points = [
        z if z is None else Shared(gemm.Matrix(*steps if z.ndim else (0, 0), (), dtypes.int32))
        for z, steps in zip(given, ((1, 0), (0, 1)), strict=True)
    ]
    left, right = (Side(x, zero=point) for x, point in zip(lying, points, strict=False))
    epilogue, sources = fused(total=total, a=left, b=right)
    c = contraction(m, n, k, left, right, lying[2], (), epilogue, sources)
    run(gemm.plan(c, isa, 1, **choices), [a, b, *(z for z in given if z is not None), out])
    return out


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda row: row.name)
def test_every_float_format_multiplies_as_its_values_do(dtype: DType) -> None:
    m, k, n = 5, 131, 21
    a, b = guard.array(draw(dtype, m, k)), guard.array(draw(dtype, k, n, seed=1), at_start=True)
    due = reference(a, b)
    for isa in PRODUCT_ROWS if dtype in (dtypes.float16, dtypes.bfloat16) else BEST:
        assert_bits(product(a, b, isa), due, isa.name)


@pytest.mark.parametrize("dtype", NARROW, ids=lambda row: row.name)
def test_every_code_point_is_read_exactly(dtype: DType) -> None:
    codes = np.arange(1 << dtype.width_bits, dtype=f"u{max(dtype.width_bits, 8) // 8}")
    assert dtype.numpy is not None
    # Each code point is alone in its row of a and in its column of b, and takes every place of a word.
    x = (np.zeros if dtype.has_zero else np.ones)((len(codes), 4), dtype.numpy)
    x[np.arange(len(x)), np.arange(len(x)) % 4] = codes.view(dtype.numpy)
    some = x[:: -(-len(x) // 47)]
    for a, b in ((x, some), (some, x)):
        assert_bits(product(a, b.T, BEST[0]), reference(a, b.T))


@pytest.mark.parametrize("isa", rows_of_engines(dtypes.bfloat16, dtypes.bfloat16), ids=lambda row: row.name)
def test_formats_mix_freely(isa: Isa) -> None:
    kinds = [dtypes.bfloat16, dtypes.float16, dtypes.float8_e5m2, dtypes.float4_e2m1fn, dtypes.bfloat16]
    for left, right in itertools.pairwise(kinds):
        a, b = draw(left, 3, 40), draw(right, 40, 9, seed=1)
        assert_bits(product(a, b, isa), reference(a, b), (left, right))
    assert_bits(
        product(draw(dtypes.float64, 3, 40), draw(dtypes.float16, 40, 9), isa),
        reference(draw(dtypes.float64, 3, 40), draw(dtypes.float16, 40, 9)),
    )


PAIRS = [(dtypes.bfloat16, dtypes.bfloat16), (dtypes.float64, dtypes.float64), (dtypes.uint8, dtypes.int8)]


@pytest.mark.parametrize(
    ("left", "right", "isa"), [(*pair, row) for pair in PAIRS for row in rows_of_engines(*pair)], ids=lambda x: x.name
)
def test_bits_ignore_form_layout_and_edges(left: DType, right: DType, isa: Isa) -> None:
    meaning = integers if left.is_integer else reference
    for m, k, n in ((1, 257, 40), (13, 130, 33)):
        a, b = draw(left, m, k), draw(right, k, n, seed=1)
        due = meaning(a, b)
        strided = np.repeat(a, 2, 1)[:, ::2], np.repeat(b, 2, 1)[:, ::2]
        columns, forms = (guard.array(a.T).T, guard.array(b.T).T), ("fused", "staged", None)
        for (x, y), form in zip(((guard.array(a), guard.array(b)), columns, strided), forms, strict=True):
            got = product(x, y, isa, form=form)
            assert_bits(got, due.astype(got.dtype), (m, k, n, form))


@in_turn("row, found", engine.ROWS, 0)
def test_every_engine_runs_on_every_row(row: Isa, found: engine.Engine) -> None:
    """With its own step, few rows and many, b in panels and not; none is streamed, which takes other steps."""
    left, right = ((x, dtypes.int8)[found.exact and x.width_bits > 8] for x in (found.a, found.b))
    half = ((1, "packed"), (30, ("fused", "staged")[engine.ROWS.index(found) % 2]))
    every = itertools.product((1, 30), ("packed", "fused", "staged"))
    for m, form in half if row.compiled else every:
        a, b = draw(left, m, 39), draw(right, 39, 37, seed=1)
        due = integers(a, b).astype(np.int32) if found.exact else reference(a, b)
        assert_bits(typed_product(a, b, row, engine=found.name, form=form), due, (found.name, m, form))


@pytest.mark.parametrize("isa", rows_of_engines(dtypes.int8, dtypes.int8), ids=lambda row: row.name)
def test_integers_are_exact_for_every_pair_of_signs_and_zero_points(isa: Isa) -> None:
    check_zero_points(dtypes.uint8, dtypes.uint8, isa, (True, True), (True, False), (False, True))
    check_zero_points(dtypes.int8, dtypes.int8, isa, (False, False), (True, True))
    if isa is rows_of_engines(dtypes.int8, dtypes.int8)[-2]:
        check_zero_points(dtypes.int8, dtypes.uint8, isa, (False, False), (True, True), (True, False))
        check_zero_points(dtypes.uint8, dtypes.int8, isa, (True, True), (False, True))


@pytest.mark.parametrize("dtype", [row for row in INTEGERS if row.width_bits < 8], ids=lambda row: row.name)
def test_narrow_integers_are_exact(dtype: DType) -> None:
    check_zero_points(dtype, dtypes.int8, BEST[0], (True, True))
    check_zero_points(dtypes.uint8, dtype, BEST[0], (False, False))


def check_zero_points(left: DType, right: DType, isa: Isa, *given: tuple[bool, bool]) -> None:
    """Products with and without zero points: of a, one a row; of b, one a column."""
    m, k, n = 6, 71, 37
    a, b = draw(left, m, k), draw(right, k, n, seed=1)
    rows, columns = draw(left, m, seed=2), draw(right, n, seed=3)
    for of_a, of_b in given:
        zeros = (rows if of_a else None, columns if of_b else None)
        due = integers(a, b, *(0 if z is None else z for z in zeros))
        got = product(a, b, isa, zeros=zeros)
        assert_bits(got, due.astype(np.int32), (left, right, zeros))


@every_row
def test_integers_at_the_edge_of_int32(isa: Isa) -> None:
    for k, kind in ((33025, np.int32), (33026, np.int64)):
        a, b = np.full((2, k), 255, np.uint8), np.full((k, 3), 255, np.uint8)
        got = product(a, b, isa)
        assert got.dtype == kind
        assert (got == 255 * 255 * k).all()
    a, b = np.full((1, 16384), -128, np.int8), np.full((16384, 2), 127, np.int8)
    assert (product(a, b, isa, zeros=(127, -128)) == -255 * 255 * 16384).all()


def test_public_products_of_integers() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.integers(0, 256, (3, 5, 40)).astype(np.uint8), rng.integers(-128, 128, (40, 30)).astype(np.int8)
    za, zb = rng.integers(0, 256, (3, 5)).astype(np.uint8), rng.integers(-128, 128, 30).astype(np.int8)
    due = integers(a, b, za, zb)
    assert_bits(sb.matmul(a, b, a_zero_point=za, b_zero_point=zb), due.astype(np.int32))
    assert_bits(sb.matmul(a, sb.pack(b), a_zero_point=za, b_zero_point=zb, out_dtype="int64"), due)
    assert_bits(sb.matmul(a, b, a_zero_point=3, out_dtype=np.float32), integers(a, b, 3).astype(np.float32))
    bias = rng.standard_normal(30).astype(np.float32)
    scaled = sb.matmul(a, b, alpha=0.1, bias=bias, out_dtype="bfloat16")
    assert_bits(scaled, (integers(a, b).astype(np.float32) * np.float32(0.1) + bias).astype(ml_dtypes.bfloat16))
    for _ in range(2):  # the second call skips to the table, with other zero points
        za = za[::-1].copy()
        assert_bits(sb.matmul(a, b, a_zero_point=za), integers(a, b, za).astype(np.int32))
    vector = sb.matmul(a[0, 0], b[:, 0], b_zero_point=-7)
    assert vector.shape == ()
    assert vector == integers(a[0, :1], b[:, :1], 0, -7)[0, 0]


@pytest.mark.parametrize("dtype", [dtypes.float16, dtypes.bfloat16], ids=lambda row: row.name)
def test_results_are_rounded_once(dtype: DType) -> None:
    rng = np.random.default_rng(1)
    codes = rng.integers(0, 1 << 32, 1 << 16, dtype=np.uint32)
    assert dtype.numpy is not None
    halves = np.arange(1 << 16, dtype=np.uint16).view(dtype.numpy).astype(np.float32)
    halves = halves[~np.isnan(halves)]
    ties = (halves.view(np.uint32) | (0x1000 if dtype is dtypes.float16 else 0x8000)).view(np.float32)
    x = np.concatenate([codes.view(np.float32), halves, ties, halves / np.float32(3)])
    x = x[~np.isnan(x)]
    with np.errstate(all="ignore"):
        due = (x + np.float32(0)).astype(dtype.numpy)
    got = sb.matmul(x[:, None], np.ones((1, 1), np.float32), out_dtype=dtype)
    assert_bits(got[:, 0], due)
    assert sb.matmul(np.ones((2, 2), dtype.numpy), np.ones((2, 2), dtype.numpy)).dtype == dtype.numpy


def test_public_products_of_floats_beside_torch_and_numpy() -> None:
    torch = pytest.importorskip("torch")
    # Sums of small integers are exact in every order, and rounded once.
    a, b = (torch.randint(-8, 9, shape).to(torch.bfloat16) for shape in ((20, 64), (64, 31)))
    got = sb.matmul(a, b, bias=torch.ones(31, dtype=torch.bfloat16))
    assert got.dtype == torch.bfloat16
    assert torch.equal(got, (a.double() @ b.double() + 1).to(torch.bfloat16))
    x, y = draw(dtypes.float64, 9, 200).round(), draw(dtypes.float64, 200, 31).round()
    assert np.array_equal(sb.matmul(x, y, alpha=0.1), 0.1 * (x @ y))
    x, y = draw(dtypes.float64, 9, 200), draw(dtypes.float64, 200, 31)
    assert_bits(sb.matmul(x, y, alpha=-0.1, c=x[:, :31] * 0 + 1), reference(x, y, alpha=-0.1, c=np.ones((9, 31))))
    assert_bits(sb.matmul(x, y, out_dtype="float32"), reference(x, y).astype(np.float32))


def test_packed_operands_of_every_kind() -> None:
    for kind in ("bfloat16", "float8_e4m3fn", "float64", "uint8"):
        dtype = dtypes.of(kind)
        a, b = draw(dtype, 4, 75), draw(dtype, 2, 75, 50, seed=1)
        options = {} if dtype.is_integer or dtype is dtypes.float64 else {"out_dtype": "float32"}
        due = integers(a, b).astype(np.int32) if dtype.is_integer else reference(a, b)
        for row in PRODUCT_ROWS[:-1]:
            with sb.use_isa(row):
                kept = pickle.loads(pickle.dumps(sb.pack(b)))
                assert_bits(sb.matmul(a, kept, **options), due, (kind, row.name))


def test_what_does_not_multiply_is_refused() -> None:
    half, whole = np.ones((2, 2), ml_dtypes.bfloat16), np.ones((2, 2), np.int8)
    cases: list[tuple[Any, type[Exception], str]] = [
        (
            lambda: sb.matmul(whole, half),
            sb.DTypeError,
            "matmul: b dtype is bfloat16, must be one that multiplies with int8; convert a to float32",
        ),
        (
            lambda: sb.matmul(np.ones((2, 2), np.int32), whole),
            sb.DTypeError,
            "matmul: a dtype is int32, must be a float or an integer of at most 8 bits; convert it first",
        ),
        (
            lambda: sb.matmul(whole, whole, out_dtype="int8"),
            sb.OptionError,
            "matmul: out_dtype is int8, must be int32 or int64 or float32 or bfloat16 or float16; leave it out",
        ),
        (
            lambda: sb.matmul(np.ones((1, 40000), np.uint8), np.ones((40000, 1), np.uint8), out_dtype="int32"),
            sb.OptionError,
            "matmul: out_dtype is int32, must be int64 or float32 or bfloat16 or float16; K = 40000 may leave int32",
        ),
        (
            lambda: sb.matmul(half, half, a_zero_point=1),
            sb.OptionError,
            "matmul: a_zero_point is given for bfloat16 and bfloat16, must be left out; subtract it before",
        ),
        (
            lambda: sb.matmul(whole, whole, bias=np.ones(2, np.int32), out_dtype="int32"),
            sb.OptionError,
            (
                "matmul: out_dtype is int32, must be int64 or float32 or bfloat16 or float16; "
                "an int32 bias may leave int32"
            ),
        ),
        (
            lambda: sb.matmul(whole, whole, bias=np.ones(2, np.int64)),
            sb.DTypeError,
            "matmul: bias dtype is int64, must be float32 or bfloat16 or float16 or int32; convert it first",
        ),
        (
            lambda: sb.matmul(half, half, bias=np.ones(2, np.int32)),
            sb.DTypeError,
            "matmul: bias dtype is int32, must be float32 or bfloat16 or float16; convert it first",
        ),
        (
            lambda: sb.matmul(whole, whole, a_zero_point=200),
            sb.OptionError,
            "matmul: a_zero_point is 200, must be within [-128, 127], as for int8; pass one that the format holds",
        ),
        (
            lambda: sb.matmul(whole, whole, bias=np.ones(2, np.float32)),
            sb.OptionError,
            "matmul: bias is given for int32, must be left out; pass an int32 bias, or out_dtype='float32'",
        ),
    ]
    for call, kind, text in cases:
        with pytest.raises(kind) as caught:
            call()
        assert str(caught.value) == text


def test_panels_of_another_engine_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a machine whose products of bfloat16 take pairs, as not all that have the instruction do."""
    names = {row.name for row in PRODUCT_ROWS}
    if "avx512_bf16" not in names:
        pytest.skip("this machine has no bfloat16 pairs")
    monkeypatch.setitem(tuning._kept, isas.named("avx512_bf16"), ZEN4)
    with sb.use_isa("avx512_bf16"), pytest.raises(sb.PlanError) as caught:
        sb.matmul(np.ones((2, 2), np.float32), sb.pack(np.ones((2, 2), ml_dtypes.bfloat16)))
    assert str(caught.value) == (
        "matmul: b engine is 'bfloat16 pairs', must be one for float32; pack it again with left='float32'"
    )
    a, b, odd = draw(dtypes.bfloat16, 3, 40), draw(dtypes.bfloat16, 40, 9), sb.Spec(chunk=7)
    with sb.use_isa("avx512_bf16"), pytest.raises(sb.PlanError) as caught:
        sb.matmul(a, sb.pack(b), spec=odd)
    assert str(caught.value) == (
        "matmul: b engine is 'bfloat16 pairs', must be one for chunks of 7; pack it again with left='float32'"
    )
    with sb.use_isa("avx512_bf16"):
        got = sb.matmul(a, sb.pack(b, left="float32"), spec=odd, out_dtype="float32")
    assert_bits(got, reference(a, b, spec=odd))


@pytest.mark.parametrize("name", ["a", "b", "c", "bias", "out"])
def test_complex_operands_are_refused_by_name(name: str) -> None:
    torch = pytest.importorskip("torch")
    real = np.ones((2, 2), np.float32)
    given = [(kind, np.ones((2, 2), kind)) for kind in ("complex64", "complex128")]
    given += [(kind, torch.ones(2, 2, dtype=getattr(torch, kind))) for kind, _ in given]
    calls = {"matmul": sb.matmul}
    if name == "b":
        calls |= {"pack": lambda a, b: sb.pack(b), "grouped_matmul": lambda a, b: sb.grouped_matmul(a, b[None], [2])}
    for (kind, x), (call, function) in itertools.product(given, calls.items()):
        operands = {"a": real, "b": real} | {name: x}
        with pytest.raises(sb.DTypeError) as caught:
            function(**operands)
        assert str(caught.value) == (
            f"{call}: {name} dtype is {kind}, must be real; pass its real and imaginary parts apart"
        )
    with pytest.raises(sb.DTypeError) as caught:
        sb.linear(real, given[0][1])
    assert str(caught.value) == (
        "linear: weight dtype is complex64, must be real; pass its real and imaginary parts apart"
    )
    with pytest.raises(sb.DTypeError) as caught:
        sb.grad_weight(real, given[0][1])
    assert str(caught.value) == (
        "grad_weight: dy dtype is complex64, must be real; pass its real and imaginary parts apart"
    )


INSTRUCTIONS = {
    "avx512_bf16": (("bfloat16", "vdpbf16ps", "zmm"), ("uint8", "vpdpbusd", "zmm"), ("int8", "vpdpbusd", "zmm")),
    "avx512_vnni": (("int8", "vpdpbusd", "zmm"), ("bfloat16", "vfmadd231ps", "zmm")),
    "avx512": (("uint8", "vpmaddwd", "zmm"), ("float64", "vfmadd231pd", "zmm")),
    "avx_vnni": (("int8", "{vex}", "ymm"), ("uint8", "vpdpbusd", "ymm")),
    "evex_vnni": (("int8", "vpdpbusd", "ymm"), ("uint8", "vpdpbusd", "ymm")),
    "avx2": (("int8", "vpmaddwd", "ymm"), ("float64", "vfmadd231pd", "ymm")),
    "neon_dot": (("int8", "sdot", ".16b"),),
}


@pytest.mark.parametrize(
    "isa", [row for row in (*ROWS, EVEX_VNNI) if row.name in INSTRUCTIONS], ids=lambda row: row.name
)
def test_each_row_uses_its_instruction_and_keeps_accumulators_in_registers(isa: Isa) -> None:
    for kind, mnemonic, register in INSTRUCTIONS[isa.name]:
        dtype = dtypes.of(kind)
        total = engine.total_of(dtype, dtype, 512, (False, False)) if dtype.is_integer else dtypes.float32
        total = dtype if dtype is dtypes.float64 else total
        lying = gemm.Matrix(512, 1, (), dtype)
        c = contraction(24, 512, 512, lying, lying, gemm.Matrix(512, 1, (), total))
        needs = gemm.plan(c, isa, 1, form="staged").steps[-1].needs
        text = "\n".join(compile.assembly(spec, isa.targets[0].arch) for spec in needs)
        lines = [line for line in text.splitlines() if mnemonic in line and register in line]
        assert len(lines) >= 24, (kind, len(lines))


def test_the_row_that_stands_for_avx_vnni_runs_its_kernels() -> None:
    """The same text to LLVM, so that what the one gives is what the other would."""
    for left, right in itertools.product((dtypes.int8, dtypes.uint8), repeat=2):
        lying = gemm.Matrix(512, 1, (), left), gemm.Matrix(1, 512, (), right), gemm.Matrix(512, 1, (), dtypes.int32)
        for m, form in ((1, "streamed"), (24, "fused"), (24, "staged")):
            c = contraction(m, 512, 512, *lying)
            plans = [gemm.plan(c, row, 1, form=form) for row in (AVX_VNNI, EVEX_VNNI)]
            for ours, other in zip(*(plan.steps for plan in plans), strict=True):
                for mine, yours in zip(ours.needs, other.needs, strict=True):
                    assert emitter.emit(mine) == emitter.emit(yours), (left, right, form)


@pytest.mark.parametrize("isa", AARCH64_PRODUCT_ROWS, ids=lambda row: row.name)
def test_bits_on_aarch64(isa: Isa) -> None:
    for left, right in (("int8", "uint8"), ("uint8", "uint8"), ("bfloat16", "float8_e4m3fn"), ("float64", "float64")):
        a, b = draw(dtypes.of(left), 5, 39), draw(dtypes.of(right), 39, 14, seed=1)
        zeros = (3, None) if left == "uint8" else (None, None)
        got = product(a, b, isa, zeros=zeros, run=aarch64.run_plan)
        due = integers(a, b, zeros[0] or 0).astype(np.int32) if "int" in left else reference(a, b)
        assert_bits(got, due, (left, right))


def test_plans_say_which_engine_and_why() -> None:
    for row in ROWS:
        if row.name not in ("avx512", "avx512_bf16"):
            continue
        left, right = (gemm.Matrix(n, 1, (), dtypes.bfloat16) for n in (4, 40))
        c = contraction(12, 40, 4, left, right, gemm.Matrix(40, 1))
        text = str(gemm.plan(c, row, 1))
        if row.name == "avx512":
            assert "engine: fma float32" in text
            assert "rejected bfloat16 pairs: Isa row avx512 has no dot2_bfloat16" in text
        else:
            assert "engine: bfloat16 pairs, checked" in text


def test_matrices_of_a_batch() -> None:
    a, b = draw(dtypes.uint8, 3, 5, 40), draw(dtypes.uint8, 3, 40, 50)
    for row in PRODUCT_ROWS:
        with sb.use_isa(row):
            assert_bits(sb.matmul(a, b, b_zero_point=5), integers(a, b, 0, 5).astype(np.int32), row.name)
            assert_bits(sb.matmul(a, sb.pack(b), a_zero_point=5), integers(a, b, 5).astype(np.int32), row.name)
    assert matrix(a, a.shape).batch == (200,)
