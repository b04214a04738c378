"""Pairs of bfloat16 have the bits of the chain, also where a subnormal could be, which the instruction takes for zero.

The interpreter takes them for zero too (`NumpyBuilder.dot2_bfloat16`), so a guard that looks away is seen on every
machine. Each test runs where a product is packed, fused and staged, with microtiles of one panel and of several.
"""

from __future__ import annotations

import itertools
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from gemm_run import contraction, execute, measured, typed_product
from launch import assert_bits
from rows import ALL_ROWS, PRODUCT_ROWS
from vocabulary_run import execute as execute_kernel

import samebits as sb
from samebits import dtypes
from samebits.codegen.isa import Isa
from samebits.codegen.vocabulary import Builder, KernelSpec
from samebits.kernels import gemm
from samebits.kernels.gemm import Matrix, Shared, Side, choice, engine, facts, reference
from samebits.kernels.gemm.tuned import Sizes, Tuned

Array = np.ndarray[Any, np.dtype[Any]]
BFLOAT16 = ml_dtypes.bfloat16
NAME = engine.PAIRS.name
# Rows whose step takes subnormals for zero: the interpreter, and those that have the instruction.
FLUSHING = (*ALL_ROWS[:1], *(row for row in PRODUCT_ROWS if "dot2_bfloat16" in row.instructions))
FORMS = ("packed", "fused", "staged")
flushing_rows = pytest.mark.parametrize("isa", FLUSHING, ids=lambda row: row.name)


def draw(*shape: int, seed: int = 0) -> Array:
    """Numbers of magnitudes so far apart that every order of additions gives other bits."""
    rng = np.random.default_rng([seed, *shape])
    return (rng.standard_normal(shape) * np.exp2(rng.integers(-8, 8, shape))).astype(BFLOAT16)


def pairs(a: Array, b: Array, isa: Isa, form: str, **choices: Any) -> Array:
    """a @ b with this engine, whatever else would be chosen."""
    return typed_product(a, b, isa, engine=NAME, form=form, **choices)


@pytest.mark.parametrize("isa", [*ALL_ROWS, *FLUSHING[1:]], ids=lambda row: row.name)
def test_pairs_are_taken_in_the_order_of_k(isa: Isa) -> None:
    forms = FORMS if isa in FLUSHING else FORMS[-1:]
    for (m, k, n), form in itertools.product(((1, 141, 130), (30, 39, 40)), forms):
        a, b = draw(m, k), draw(k, n, seed=1)
        a[m // 2, 2], a[0, 4], b[8, 2] = np.nan, np.inf, -np.inf
        assert_bits(pairs(a, b, isa, form), reference(a, b), (m, form))


@pytest.mark.parametrize("isa", [*ALL_ROWS[1:], *FLUSHING], ids=lambda row: row.name)
def test_pairs_keep_their_bits_where_products_are_subnormal(isa: Isa) -> None:
    for m, form in ((1, "packed"), (9, "staged")):
        a, b = draw(m, 141), draw(141, 130, seed=1)
        tiny = np.float32(2.0**-75)
        a[m // 2] = (a[m // 2].astype(np.float32) * tiny).astype(a.dtype)
        b[:, 40:] = (b[:, 40:].astype(np.float32) * tiny).astype(b.dtype)
        a[m - 1, 7], b[11, 66] = np.float32(1e-40), np.float32(-1e-39)
        due = reference(a, b)
        assert ((np.abs(due) < 2.0**-126) & (due != 0)).any()
        assert_bits(pairs(a, b, isa, form), due, (m, form))


def alone(m: int, k: int, n: int, at: tuple[int, int, int], x: float, y: float) -> tuple[Array, Array, Array]:
    """a, b of ordinary numbers but for row i of a and column j of b, whose only numbers are x and y at k; and a @ b."""
    a, b, (i, p, j) = draw(m, k), draw(k, n, seed=1), at
    a[i], b[:, j] = 0, 0
    a[i, p], b[p, j] = x, y
    return a, b, reference(a, b)


@flushing_rows
@pytest.mark.parametrize("form", FORMS)
def test_a_subnormal_product_is_met_in_every_place(isa: Isa, form: str) -> None:
    """In each panel, at its edges; in the first and last row; in the first, middle and last of K, a pair or half."""
    k, nr = 19, gemm.panel_columns(isa, engine.PAIRS)
    wide = choice.tiles.columns(1, choice.tiles.tile_for(isa), isa)
    columns = [0, nr - 1, nr, 2 * nr - 1, wide * nr - 1, wide * nr, wide * nr + 2]
    ks = itertools.cycle((0, 1, 8, k - 2, k - 1))
    for m in (1, 30) if isa.compiled else (1, 9):
        for j, i in zip(columns, itertools.cycle((0, m - 1, m // 2)), strict=False):
            a, b, due = alone(m, k, columns[-1] + 1, (i, next(ks), j), 2.0**-66, 1.5 * 2.0**-65)
            assert due[i, j] == 1.5 * 2.0**-131
            assert_bits(pairs(a, b, isa, form), due, (m, i, j))


@flushing_rows
def test_a_subnormal_operand_is_met_in_every_place(isa: Isa) -> None:
    """Of a and of b, beside a number so large that the product is none."""
    least = 2.0**-133  # of bfloat16
    for m, form in ((1, "packed"), (9, "staged"), (9, "fused")):
        n = 5 * gemm.panel_columns(isa, engine.PAIRS)
        for (x, y), j in itertools.product(((least, 2.0**127), (2.0**127, -least)), (1, n - 1)):
            a, b, due = alone(m, 19, n, (m - 1, 18, j), x, y)
            assert abs(due[m - 1, j]) == 2.0**-6
            assert_bits(pairs(a, b, isa, form), due, (m, form, x, j))


@flushing_rows
def test_the_guard_holds_at_its_bound(isa: Isa) -> None:
    """(1 + 2^-6) - (1 + 2^-7)^2 = -2^-14: two products that leave nothing but their lowest bit, at each side of the
    least exponent of a normal number."""
    for m, form in ((1, "packed"), (1, "fused"), (30, "packed"), (30, "staged")):
        for exponent in (-109, -111, -112, -113, -114, -120):
            for left in (exponent // 2, -7, exponent + 120):
                a, b = np.zeros((m, 4), BFLOAT16), np.zeros((4, 40), BFLOAT16)
                a[:, 2], a[:, 3] = -(1 + 2.0**-7) * 2.0**left, (1 + 2.0**-6) * 2.0**left
                b[2], b[3] = (1 + 2.0**-7) * 2.0 ** (exponent - left), 2.0 ** (exponent - left)
                due = np.full((m, 40), -(2.0 ** (exponent - 14)), np.float32)
                assert_bits(pairs(a, b, isa, form), due, (m, form, exponent, left))


@flushing_rows
@pytest.mark.parametrize("kind", ["float8_e5m2", "float8_e4m3fn", "float6_e3m2fn", "float4_e2m1fn", "int8", "uint8"])
def test_the_guard_knows_the_lowest_bit_of_every_format(isa: Isa, kind: str) -> None:
    """(1 + 2^-7) - 1 = 2^-7, times the least number that the format has."""
    dtype = np.dtype(getattr(ml_dtypes, kind, kind))
    least = 1.0 if "int" in kind else float(ml_dtypes.finfo(dtype).smallest_subnormal)
    for exponent in (-118, -119, -120, -121):
        x = np.array([[1 + 2.0**-7, -1.0]] * 2) * 2.0**exponent / least
        y = np.full((2, 40), least)
        due = np.full((2, 40), 2.0 ** (exponent - 7), np.float32)
        for form in FORMS[1:]:
            assert_bits(pairs(x.astype(BFLOAT16), y.astype(dtype), isa, form), due, (exponent, form))
        if "int" not in kind:
            left, right = y.T[:3].astype(dtype), np.repeat(x[:1].T, 40, 1).astype(BFLOAT16)
            assert_bits(pairs(left, right, isa, "packed"), due[:1].repeat(3, 0), exponent)


@flushing_rows
def test_the_guard_sees_weights_and_blocks(isa: Isa) -> None:
    """Integers beside tiny bfloat16: nobody looks at them, as their lowest bit is known."""
    b = np.random.default_rng(0).integers(-128, 128, (70, 40)).astype(np.int8)
    scale = np.exp2(np.arange(80.0)).reshape(2, 40).astype(np.float32)
    for m, form in ((1, "fused"), (30, "staged")):
        for exponent in (-118, -119, -120, -126, -130):
            a = (1.5 * 2.0**exponent * np.sign(draw(m, 70).astype(np.float32))).astype(BFLOAT16)
            assert_bits(pairs(a, b, isa, form), reference(a, b.astype(np.float32)), (m, exponent))
            out = np.empty((m, 40), np.float32)
            right = Side(Matrix(40, 1, (), dtypes.int8), Shared(Matrix(40, 1), 36))
            c = contraction(m, 40, 70, Matrix(70, 1, (), dtypes.bfloat16), right, Matrix(40, 1))
            execute(gemm.plan(c, isa, engine=NAME, form=form), [a, b, scale, out])
            due = reference(a, b.astype(np.float32), b_scale=scale, b_block=36)
            assert_bits(out, due, (m, exponent, "blocks"))


@flushing_rows
def test_every_block_of_k_and_every_matrix_is_looked_at(isa: Isa) -> None:
    for at, form in itertools.product((3, 299), ("fused", "staged")):
        a, b, due = alone(20, 300, 40, (19, at, 39), 2.0**-66, -(2.0**-65))
        assert_bits(pairs(a, b, isa, form, blocks=choice.Blocks(8, 64, 64)), due, (at, form))
    a, b = draw(3, 9, 70), draw(3, 70, 40, seed=1)
    a[2], b[2] = (a[2].astype(np.float32) * 2.0**-70).astype(BFLOAT16), (b[2].astype(np.float32) * 2.0**-70)
    with sb.use_isa(isa):
        for right in (b, sb.pack(b)):
            for left in (a, a[:, :1]):
                assert_bits(sb.matmul(left, right, out_dtype="float32"), reference(left, b), left.shape)


@flushing_rows
def test_every_round_of_panels_and_every_part_of_k_has_its_own_facts(isa: Isa) -> None:
    nr = gemm.panel_columns(isa, engine.PAIRS)
    m, k, n = 9, 39, 6 * nr
    tile = choice.tiles.tile_for(isa)
    small = measured(Tuned(NAME, tile, Sizes(staged_bytes=2 * 21 * nr * engine.PAIRS.word.size_bytes)))
    lies = Matrix(k, 1, (), dtypes.bfloat16), Matrix(n, 1, (), dtypes.bfloat16), Matrix(n, 1)
    plan = gemm.plan(contraction(m, n, k, *lies), isa, engine=NAME, form="staged", machine=small)
    assert [step.spec.text.__name__ for step in plan.steps].count("pack_panels") == 3
    for j in range(nr - 1, n, nr):
        a, b, due = alone(m, k, n, (j // nr, 38, j), 2.0**-66, 2.0**-65)
        assert_bits(pairs(a, b, isa, "staged", machine=small), due, j)
    for at in (129, 299):
        a, b, _ = alone(9, 300, 40, (4, at, 39), 2.0**-66, -(2.0**-65))
        with sb.use_isa(isa):
            for spec in (sb.Spec(), sb.Spec(segments=4), sb.Spec(32, 2)):
                got = sb.matmul(a, sb.pack(b), spec=spec, out_dtype="float32", threads=3)
                assert_bits(got, reference(a, b, spec=spec), (at, spec))


def panel_of(b: Builder, nr: int) -> None:
    """The facts of a panel."""
    function = facts.emit(b, engine.PAIRS, nr)
    words, found = b.pointer("words", dtypes.int32), b.pointer("facts", dtypes.int32)
    for _ in b.tasks():
        b.call(function, words, b.index("steps"), found)


@pytest.mark.parametrize("isa", ALL_ROWS, ids=lambda row: row.name)
def test_facts_are_the_lowest_bit_of_every_code(isa: Isa) -> None:
    """exponent - 7 of the least number beside zeros; less than any that counts where it is subnormal."""
    nr, codes = 64, np.arange(1 << 15)
    due = np.where(codes < 0x80, facts.SUBNORMAL, (codes >> 7) - 127 - 7)
    due[0] = facts.NOTHING
    spec = KernelSpec(panel_of, nr, ("words", "facts", "steps"), isa)
    # Every code of the lowest exponents, and some of all.
    for part in (*range(0, 0x200, nr), *range(0x200, 1 << 15, 41 * nr), (1 << 15) - nr):
        for half, sign in ((0, 0), (16, 0x8000)):
            words = np.zeros((3, nr), np.uint32)
            words[1] = (codes[part : part + nr] | sign) << half
            got = np.empty(nr, np.int32)
            execute_kernel(spec, [words, got, 3])
            assert got.tolist() == due[part : part + nr].tolist(), (part, half)


@pytest.mark.parametrize("isa", ALL_ROWS, ids=lambda row: row.name)
def test_facts_of_a_block_are_those_of_its_least_number(isa: Isa) -> None:
    rows, pitch = 3, 2 * isa.lanes + 5
    spec = KernelSpec(block_of, pitch, ("words", "facts", "steps", "rows"), isa)
    got = np.empty(1, np.int32)
    for steps in sorted({1, isa.lanes - 1, isa.lanes, isa.lanes + 1, 2 * isa.lanes + 1} - {0}):
        for row, at in itertools.product(range(rows), {0, steps // 2, steps - 1}):
            words = np.full((rows, pitch), 0x3F803F80, np.uint32)
            words[:, steps:] = 0x00010001  # beyond the block: nothing to look at
            words[row, at] = 0x3F800180 if at % 2 else 0x01803F80
            execute_kernel(spec, [words, got, steps, rows])
            assert got[0] == 3 - 127 - 7, (steps, row, at)


def block_of(b: Builder, pitch: int) -> None:
    """The fact of a block of A."""
    function = facts.emit_block(b)
    words, found = b.pointer("words", dtypes.int32), b.pointer("facts", dtypes.int32)
    for _ in b.tasks():
        b.call(function, words, pitch, b.index("rows"), b.index("steps"), found)
