"""Integers that are shifted to fit an engine's words: exact in every form, at the edges of K, of int32 and of int8."""

from __future__ import annotations

import itertools
from typing import Any

import guard
import numpy as np
import pytest
from gemm_run import contraction, execute, measured
from launch import assert_bits
from rows import ALL_ROWS, PRODUCT_ROWS, rows_of_engines

import samebits as sb
from samebits import dtypes
from samebits.codegen.isa import Isa
from samebits.kernels import gemm
from samebits.kernels.gemm import Contraction, Matrix, Shared, Side, engine, inner, tiles
from samebits.kernels.gemm.choice import Blocks
from samebits.kernels.gemm.contraction import fused
from samebits.kernels.gemm.reference import integers
from samebits.kernels.gemm.tuned import Sizes, Tuned

Array = np.ndarray[Any, np.dtype[Any]]
# Engines whose A takes a shift: the dtype of both operands with which it does.
SHIFTED = {"uint8 x int8 quads": dtypes.int8, "int8 x uint8 quads": dtypes.uint8, "int8 x int8 quads": dtypes.uint8}
DOTS = [row for row in PRODUCT_ROWS if "dot4_uint8_int8" in row.instructions]
# Of these one for each width of registers.
WIDTHS = [row for row in rows_of_engines(dtypes.int8, dtypes.int8) if row in DOTS]
every_shift = pytest.mark.parametrize("name", SHIFTED)


def draw(dtype: dtypes.DType, *shape: int) -> Array:
    """Every integer, the ends more often."""
    rng = np.random.default_rng([7, *shape])
    x = rng.integers(int(dtype.min), int(dtype.max) + 1, shape)
    return np.where(rng.random(shape) < 0.2, rng.choice([int(dtype.min), int(dtype.max)], shape), x).astype(dtype.numpy)


def described(a: Array, b: Array, out: Array, zero: bool = False) -> Contraction:
    """out = (a - zero point) @ b, the zero point one number."""
    lying = [Matrix(*(s // x.itemsize for s in x.strides), (), dtypes.of(x.dtype)) for x in (a, b, out)]
    left = Side(lying[0], zero=Shared(Matrix(0, 0, (), dtypes.int32)) if zero else None)
    epilogue, sources = fused(total=lying[2].dtype, a=left)
    m, k, n = *a.shape, b.shape[1]
    return contraction(m, n, k, left, *lying[1:], (), epilogue, sources)


def product(a: Array, b: Array, isa: Isa, name: str, **choices: Any) -> Array:
    """a @ b on the engine called `name`, in what it is summed in."""
    total = engine.total_of(dtypes.of(a.dtype), dtypes.of(b.dtype), a.shape[1], (False, False))
    out = guard.empty((a.shape[0], b.shape[1]), total.numpy)
    execute(gemm.plan(described(a, b, out), isa, 1, engine=name, **choices), [guard.array(a), guard.array(b), out])
    return out


@every_shift
@pytest.mark.parametrize("row", [*ALL_ROWS, *WIDTHS], ids=lambda row: row.name)
def test_a_shift_of_a_is_taken_away_in_every_form_and_block(
    name: str, row: Isa, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    found = engine.named(name)
    monkeypatch.setattr(inner, "_EXACT_WORDS", 3)
    short = Blocks(1 << 20, 1 << 20, 6)  # two chunks
    wide = 2 * tiles.tile_for(row).nr(row) + 1
    for m, k, n, form, blocks in (
        (5, 11, wide, "fused", short), (5, 1, wide, "fused", short), (5, 0, wide, "fused", short),
        (5, 70, 11, "staged", short), (5, 12, 11, "staged", short), (5, 71, wide, "staged", short),
    ):  # fmt: skip
        a, b = draw(SHIFTED[name], m, k), draw(SHIFTED[name], k, n)
        got = product(a, b, row, name, form=form, blocks=blocks)
        assert_bits(got, integers(a, b).astype(got.dtype), (found.name, m, k, n, form))


@every_shift
def test_a_shift_needs_all_of_k_or_packed_panels(name: str) -> None:
    row = PRODUCT_ROWS[-2]
    a, b = draw(SHIFTED[name], 5, 4100), draw(SHIFTED[name], 4100, 11)  # longer than a chunk of 1024 words
    out = np.empty((5, 11), np.int32)
    plan = gemm.plan(described(a, b, out), row, 1, engine=name)
    assert dict(plan.facts)["form"] == "staged"
    assert ("fused", "the zero points of a need the sums of b's columns first") in plan.rejected
    for zero in (False, True):
        with pytest.raises(sb.OptionError) as caught:
            gemm.plan(described(a, b, out, zero), row, 1, engine=name, form="fused")
        assert str(caught.value) == (
            "plan: form is 'fused', must be one that packs b first, as the zero points of a need; leave it away"
        )


@pytest.mark.parametrize("row", [row for row in DOTS if not row.has_tiles], ids=lambda row: row.name)
def test_signed_products_end_where_they_are_stored(row: Isa) -> None:
    """No pass over C and none over A: the shift is in what sums start from."""
    for dtype, name in ((dtypes.int8, "uint8 x int8 quads"), (dtypes.uint8, "int8 x uint8 quads")):
        lying = Matrix(512, 1, (), dtype), Matrix(512, 1, (), dtype), Matrix(512, 1, (), dtypes.int32)
        plan = gemm.plan(contraction(512, 512, 512, *lying), row, 1)
        assert [step.spec.text.__name__ for step in plan.steps] == ["pack_panels", "macrokernel"]
        assert plan.steps[-1].spec.description.epilogue.plain
        assert dict(plan.facts)["engine"] == name


@pytest.mark.parametrize("row", WIDTHS, ids=lambda row: row.name)
def test_the_longest_sum_of_int32_and_the_first_of_int64(row: Isa) -> None:
    for k, kind in ((131071, np.int32), (131072, np.int64)):
        a, b = np.full((2, k), -128, np.int8), np.full((k, 3), -128, np.int8)
        got = product(a, b, row, "uint8 x int8 quads")
        assert got.dtype == kind
        assert (got == 128 * 128 * k).all()
        with sb.use_isa(row):
            assert_bits(sb.matmul(a, sb.pack(b)), got)
            assert_bits(sb.matmul(a, sb.pack(b), a_zero_point=127, b_zero_point=127), integers(a, b, 127, 127))


def with_bias(a: Array, b: Array, bias: Array, za: int = 0, zb: int = 0) -> Array:
    """(a - za) @ (b - zb) + bias of Python's integers."""
    return (a.astype(object) - za) @ (b.astype(object) - zb) + bias.astype(object)


LEAST, MOST = -(2**31), 2**31 - 1


@pytest.mark.parametrize("row", [*(x for x in ALL_ROWS if not x.compiled), *PRODUCT_ROWS], ids=lambda row: row.name)
def test_an_int32_bias_is_added_exactly(row: Isa) -> None:
    """Beyond int32 and at its edges: the sum is int64, and rounded once to a float."""
    bias = draw(dtypes.int32, 19)
    bias[:7] = LEAST, MOST, 0, -1, LEAST + 1, MOST - 1, 1 << 24
    with sb.use_isa(row):
        for left, right, m, k, za, zb in (
            ("uint8", "int8", 1, 70, 0, 0), ("int8", "int8", 5, 71, 3, 5), ("int8", "uint8", 9, 0, 0, 0)
        ):  # fmt: skip
            a, b = draw(dtypes.of(left), m, k), draw(dtypes.of(right), k, 19)
            b[:, :2] = np.iinfo(right).min, np.iinfo(right).max
            due = with_bias(a, b, bias, za, zb)
            assert not k or min(due.ravel()) < LEAST
            options = {"a_zero_point": za, "b_zero_point": zb} if za else {}
            for given in (b, sb.pack(b, left=left)):
                assert_bits(sb.matmul(a, given, bias=bias, **options), due.astype(np.int64), (left, right, m))
            if k == 70:
                rounded = due.astype(np.float64).astype(np.float32)  # exact, then once
                assert_bits(sb.matmul(a, given, bias=bias, b_scale=0.3), rounded * np.float32(0.3))


def test_an_int32_bias_of_any_shape_and_place() -> None:
    a, b = draw(dtypes.uint8, 3, 5, 40), draw(dtypes.int8, 40, 11)
    for shape in ((), (11,), (5, 1), (3, 1, 1), (3, 5, 11)):
        bias = draw(dtypes.int32, *shape)
        bias[...] = np.where(bias < 0, LEAST, MOST)
        assert_bits(sb.matmul(a, b, bias=bias), with_bias(a, b, bias).astype(np.int64), shape)
        for other in (bias[..., ::-1], bias.T.copy().T) if shape else ():
            out = np.empty((3, 5, 22), np.int64)[..., ::2]
            assert sb.matmul(a, b, bias=other, out=out) is out
            assert_bits(out.copy(), with_bias(a, b, other).astype(np.int64), shape)
    bias = draw(dtypes.int32, 5, 11)
    due = with_bias(a[0], b, bias)
    c, rounded = np.full(11, 0.1, np.float32), due.astype(np.float64).astype(np.float32)
    got = sb.matmul(a[0], b, bias=bias, c=c, beta=0.7, alpha=0.3, activation="relu", out_dtype="float32")
    assert_bits(got, np.maximum(rounded * np.float32(0.3) + np.float32(0.7) * c, 0))
    # The bias itself may be out, of elements as wide.
    assert_bits(sb.matmul(a[0], b, bias=bias, out=bias.view(np.float32), out_dtype="float32"), rounded)
    bias = draw(dtypes.int32, 5, 11)
    assert_bits(sb.matmul(a[0, 0], b, bias=bias[0]), with_bias(a[0, 0], b, bias[0]).astype(np.int64))
    floats, scale = draw(dtypes.int8, 4, 40).astype(np.float32), np.float32(1)
    for out_dtype in ("int64", None):
        got = sb.matmul(floats, b, a_dtype="int8", a_scale=scale, bias=bias[0], out_dtype=out_dtype)
        assert_bits(got, with_bias(floats.astype(np.int8), b, bias[0]).astype(np.float64).astype(got.dtype))


@pytest.mark.parametrize("row", [*ALL_ROWS[:1], *WIDTHS], ids=lambda row: row.name)
def test_every_round_of_panels_has_its_own_sums(row: Isa) -> None:
    """A zero point of a, and the shift of its signs, are taken away with the sums of b's columns."""
    m, k, n = 5, 60, 300
    a, b, zero = draw(dtypes.int8, m, k), draw(dtypes.int8, k, n), np.array([[7]], np.int32)
    name = "uint8 x int8 quads"
    small = measured(Tuned(name, tiles.tile_for(row), Sizes(staged_bytes=k * n // 3)))
    for given in ([], [zero]):
        out = np.empty((m, n), np.int32)
        plan = gemm.plan(described(a, b, out, bool(given)), row, 1, engine=name, form="staged", machine=small)
        assert [step.spec.text.__name__ for step in plan.steps].count("pack_panels") > 1
        execute(plan, [a, b, *given, out])
        assert_bits(out, integers(a, b, 7 if given else 0).astype(np.int32), given)


def test_the_longest_sum_whose_rows_and_columns_int32_holds() -> None:
    """Beside zero points, which multiply sums of 2^23 elements of 255; one more is refused."""
    k = engine.LONGEST
    a, b = np.full((1, k + 1), 255, np.uint8), np.full((k + 1, 1), 255, np.uint8)
    for points in ((0, 0), (1, 3)):
        due = (255 - points[0]) * (255 - points[1]) * k
        assert sb.matmul(a[:, :k], b[:k], a_zero_point=points[0], b_zero_point=points[1]).tolist() == [[due]]
    with pytest.raises(sb.ShapeError) as error:
        sb.matmul(a, b)
    assert str(error.value) == (f"matmul: a column count is {k + 1}, must be at most {k}; cut K and add the products")


def test_an_int32_bias_beyond_the_longest_sum_of_int32() -> None:
    for k in (131071, 131072):
        a, b, bias = (
            np.full((2, k), -128, np.int8),
            np.full((k, 3), -128, np.int8),
            np.array([MOST, LEAST, 0], np.int32),
        )
        due = [[128 * 128 * k + int(x) for x in bias]] * 2
        for right in (b, sb.pack(b)):
            assert_bits(sb.matmul(a, right, bias=bias), np.array(due))


def test_linear_and_groups_take_an_int32_bias() -> None:
    x, w, bias = draw(dtypes.int8, 6, 33), draw(dtypes.int8, 2, 9, 33), draw(dtypes.int32, 2, 9)
    bias[:, :2] = LEAST, MOST
    assert_bits(sb.linear(x, w[0], bias[0]), with_bias(x, w[0].T, bias[0]).astype(np.int64))
    assert_bits(sb.linear(x, sb.pack(w[0].T), bias[0]), with_bias(x, w[0].T, bias[0]).astype(np.int64))
    b = w.transpose(0, 2, 1)
    got = sb.grouped_matmul(x, b, [2, 3], bias=bias)
    due = [with_bias(x[:2], b[0], bias[0]), with_bias(x[2:5], b[1], bias[1]), np.zeros((1, 9), np.int64)]
    assert_bits(got, np.concatenate(due).astype(np.int64))


@pytest.mark.parametrize("row", PRODUCT_ROWS, ids=lambda row: row.name)
def test_few_rows_stream_columns_with_sums_of_free_order(row: Isa) -> None:
    """Lanes run over K: whole squares, what fills none, several chunks, and the ends of int8."""
    for left, right, m, k, n in (
        (dtypes.int8, dtypes.int8, 1, 1100, 35), (dtypes.uint8, dtypes.uint8, 5, 71, 18),
        (dtypes.int8, dtypes.uint8, 1, 1100, 35),
    ):  # fmt: skip
        a, w = guard.array(draw(left, m, k)), guard.array(draw(right, n, k), at_start=True)
        out = np.empty((m, n), np.int32)
        execute(gemm.plan(described(a, w.T, out), row, 1, form="streamed"), [a, w.T, out])
        assert_bits(out, integers(a, w.T).astype(np.int32), (left, right))
    zero = int(right.min)  # of the last, which has no offset
    with sb.use_isa(row):
        assert_bits(sb.matmul(a, w.T, b_zero_point=zero), integers(a, w.T, 0, zero).astype(np.int32))


@pytest.mark.parametrize("row", WIDTHS, ids=lambda row: row.name)
def test_panels_serve_both_signs_of_a(row: Isa) -> None:
    with sb.use_isa(row):
        for right in (dtypes.int8, dtypes.uint8):
            b = draw(right, 2, 75, 40)
            kept = sb.pack(b)
            for left in (dtypes.int8, dtypes.uint8):
                a, za, zb = draw(left, 9, 75), int(left.max), draw(right, 40)
                assert_bits(sb.matmul(a, kept), integers(a, b).astype(np.int32))
                got = sb.matmul(a, kept, a_zero_point=za, b_zero_point=zb)
                assert_bits(got, integers(a, b, za, zb).astype(np.int32), (left, right))


@pytest.mark.parametrize(
    ("row", "every"),
    [(row, False) for row in WIDTHS[:1]] + [pytest.param(row, True, marks=pytest.mark.exhaustive) for row in WIDTHS],
    ids=lambda x: x.name if isinstance(x, Isa) else "every" * x,
)
@pytest.mark.parametrize(
    ("left", "right"), [*itertools.product((dtypes.int8, dtypes.uint8), repeat=2)], ids=lambda dtype: dtype.name
)
def test_quads_of_all_signs(left: dtypes.DType, right: dtypes.DType, row: Isa, every: bool) -> None:
    """Few rows and many, b as rows, as columns and packed; zero points of each; K longer than lanes may sum at once."""
    with sb.use_isa(row):
        for i, (m, k, n) in enumerate(((1, 131, 35), (13, 131, 35), (3, 33_000, 5), (3, 131, 35))[: 3 + every]):
            a, b = guard.array(draw(left, m, k)), guard.array(draw(right, k, n), at_start=True)
            given = (None, None), (draw(left, m), draw(right, n))
            for j, y in enumerate((b, guard.array(b.T).T, sb.pack(b, left=left.name))):
                for za, zb in given if every else (given[(i + j) % 2],):
                    got = sb.matmul(a, y, a_zero_point=za, b_zero_point=zb)
                    due = integers(a, b, 0 if za is None else za, 0 if zb is None else zb)
                    assert_bits(got, due.astype(got.dtype), (m, k, j, za))


def test_zero_points_of_an_empty_sum() -> None:
    for left in (dtypes.int8, dtypes.uint8):
        a, b = np.empty((3, 0), left.numpy), np.empty((0, 5), np.int8)
        for right in (b, sb.pack(b, left=left)):
            got = sb.matmul(a, right, a_zero_point=int(left.max), b_zero_point=-128)
            assert_bits(got, np.zeros((3, 5), np.int32))


@pytest.mark.parametrize(("m", "k"), [(1, 40_000), (16, 140_001)])
def test_no_size_of_blocks_or_chunks_lets_a_lane_overflow(m: int, k: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inner, "_EXACT_WORDS", 1 << 16)
    for row in (PRODUCT_ROWS[0], *WIDTHS, *(x for x in PRODUCT_ROWS if x.name == "avx2")):
        a, b, out = np.full((m, k), 255, np.uint8), np.full((k, 9), 255, np.uint8), np.zeros((m, 9), np.int64)
        machine = measured(*(Tuned(x.name, tiles.tile_for(row), Sizes(kc=1 << 16)) for x in engine.ROWS))
        execute(gemm.plan(described(a, b, out), row, 1, machine=machine), [a, b, out])
        assert (out == 255 * 255 * k).all(), row.name
