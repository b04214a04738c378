"""Packed operands: kept, pickled, refused where they do not belong."""

from __future__ import annotations

import dataclasses
import itertools
import pickle
from typing import Any

import gemm_cases
import guard
import ml_dtypes
import numpy as np
import pytest
from gemm_run import contraction, execute, matrix, pack, product, product_of_codes, same
from launch import assert_bits
from rows import COMPILED_ROWS, PRODUCT_ROWS

import samebits as sb
from samebits import dtypes, tuning
from samebits.codegen.isa import Isa, named
from samebits.errors import PlanError, ShapeError
from samebits.kernels import gemm
from samebits.kernels.gemm import Matrix, PackedMatrix, Spec, reference
from samebits.kernels.gemm.machine import SAPPHIRE_RAPIDS, ZEN4
from samebits.kernels.gemm.reference import integers
from samebits.kernels.gemm.tiles import tile_for
from samebits.tensor import Tensor


def ids(row: Isa) -> str:
    return row.name


def draw(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(np.float32)


def value(b: np.ndarray, isa: Isa) -> PackedMatrix:
    return PackedMatrix(Tensor.from_any(pack(b, isa)), b.shape, gemm.panel_columns(isa), isa.name)


@pytest.mark.parametrize("isa", COMPILED_ROWS, ids=ids)
def test_panels_are_the_matrix_and_zeros(isa: Isa) -> None:
    nr = gemm.panel_columns(isa)
    for k, n in ((1, 1), (5, nr - 1), (7, nr), (20, nr + 1), (33, 3 * nr + 2)):
        b = draw(k, n)
        wide = np.zeros((k, -(-n // nr) * nr), np.float32)
        wide[:, :n] = b
        expected = wide.reshape(k, -1, nr).transpose(1, 0, 2).ravel()
        for x in (guard.array(b), guard.array(b.T).T, guard.array(b, at_start=True), np.repeat(b, 2, axis=1)[:, ::2]):
            assert same(pack(x, isa), expected), (k, n)


@pytest.mark.parametrize("isa", COMPILED_ROWS, ids=ids)
def test_packed_operand_survives_pickling(isa: Isa) -> None:
    a, b = draw(4, 30), draw(2, 30, 50, seed=1)
    kept = pickle.loads(pickle.dumps(value(b, isa)))
    out = np.empty((2, 4, 50), np.float32)
    c = contraction(4, 50, 30, matrix(a, (2, 4, 30)), kept.fits.panels((2,)), matrix(out, out.shape), (2,))
    execute(gemm.plan(c, isa, 1), [a, kept.tensor.numpy(), out])
    assert same(out, reference(a, b))


def test_packed_bytes_do_not_depend_on_the_row_but_on_its_width() -> None:
    found: dict[int, bytes] = {}
    for isa in COMPILED_ROWS:
        made = pack(draw(9, 40), isa).tobytes()
        assert found.setdefault(gemm.panel_columns(isa), made) == made


def test_panels_of_another_width_are_refused() -> None:
    isa = COMPILED_ROWS[0]
    nr = gemm.panel_columns(isa)
    c = contraction(4, 50, 30, Matrix(30, 1), gemm.Panels(nr + 1), Matrix(50, 1))
    with pytest.raises(PlanError) as error:
        gemm.plan(c, isa, 1)
    assert str(error.value) == (
        f"matmul: b panel width is {nr + 1}, must be {nr} on Isa row {isa.name}; pack it again with pack()"
    )


def test_panels_that_cannot_be_scaled_by_blocks_are_refused_in_the_words_of_the_call() -> None:
    a, b, scale = np.ones((2, 4), np.int8), np.ones((4, 3), np.int8), np.ones((2, 3), np.float32)
    kept = sb.pack(b)
    for name, call in (
        ("matmul: b", lambda: sb.matmul(a, kept, b_scale=scale, b_group=2)),
        ("linear: weight", lambda: sb.linear(a, kept, weight_scale=scale.T, group=2)),
    ):
        with pytest.raises(PlanError) as error:
            call()
        expected, remedy = "one for scales of blocks", "pass it as it is, not packed"
        assert str(error.value) == f"{name} engine is {kept.engine!r}, must be {expected}; {remedy}"
    x, y = (z.astype(dtypes.bfloat16.numpy) for z in (a, b))
    panels = gemm.Panels(16, dtype=dtypes.bfloat16, engine="bfloat16 pairs")
    scales = gemm.Shared(matrix(np.ones((4, 3), np.float32), (4, 3)), 1)
    c = contraction(
        2, 3, 4, Matrix(4, 1, (), dtypes.bfloat16), gemm.Side(panels, scales), Matrix(3, 1, (), dtypes.float32)
    )  # fmt: skip
    with pytest.raises(PlanError) as error:
        gemm.plan(c, COMPILED_ROWS[-1], 1)
    assert str(error.value) == (
        "matmul: b engine is 'bfloat16 pairs', must be one for blocks of 1; pack it again with left='float32'"
    )
    # What the sentences advise works.
    expected = [[4.0] * 3] * 2
    assert sb.matmul(a, b, b_scale=scale, b_group=2).tolist() == expected
    again, ones = sb.pack(y, left="float32"), np.ones((4, 3), np.float32)
    assert sb.matmul(x, again, b_scale=ones, b_group=1).astype(np.float32).tolist() == expected


def test_packed_batches_that_do_not_broadcast_are_refused() -> None:
    kept = PackedMatrix(Tensor.zeros((3 * 30 * 64,)), (3, 30, 50), 32, "avx512")
    with pytest.raises(ShapeError) as error:
        kept.fits.panels((2,))
    assert str(error.value) == (
        "matmul: b batch dimensions is (3,), must be dimensions that broadcast to (2,); pack a matrix that broadcasts"
    )
    assert kept.fits.panels((2, 3)).batch == (0, 2 * 30 * 32)


def test_unknown_format_is_refused() -> None:
    made = PackedMatrix(Tensor.from_any(draw(64)), (1, 50), 32, "avx512", format="samebits-panels-0")
    with pytest.raises(PlanError, match="pack the matrix again"):
        pickle.loads(pickle.dumps(made))


HUGE = 2**70, 0, 5


def test_pickles_that_hold_something_else_are_refused() -> None:
    made = sb.pack(np.ones((200, 5), np.uint8))
    function, fields = made.__reduce__()
    names = "words", "shape", "nr", "isa", "dtype", "engine", "format", "block", "scale", "global_scale"
    words = f"one that words of {made.engine} hold"
    wrong: list[tuple[str, Any, str, str]] = [
        *(
            ("shape", x, repr(x), "that of a matrix")
            for x in ((200, "a"), 5, [200, 5], (True, 5), None, (2.0, 5), HUGE)
        ),
        *(("nr", x, repr(x), "an integer of at least 1") for x in ("16", None, 0, 16.0, True)),
        *(("dtype", x, repr(x), words) for x in ("float32", None, 5, np.dtype("uint8"), dtypes.float32)),
        ("isa", 5, "5", "the name of an Isa row"),
        *(("engine", x, repr(x), "the name of an engine") for x in ("none", 5, None, ["fma float32"])),
        *(("format", x, repr(x), "'samebits-panels-2'") for x in ("samebits-panels-0", None, [2])),
        ("words", [1, 2], "<class 'list'>", "an array of an engine's words"),
        ("words", np.empty(4, object), "dtype('O')", "an array of an engine's words"),
    ]
    for name, value, actual, expected in wrong:
        given = [value if x == name else y for x, y in zip(names, fields, strict=True)]
        with pytest.raises(PlanError) as error:
            function(*given)
        due = f"PackedMatrix: {name} is {actual}, must be {expected}; pack the matrix again"
        assert str(error.value) == due
    assert function(*fields).fits == made.fits


def test_fewer_words_than_the_shape_says_are_refused() -> None:
    made = sb.pack(draw(5, 7))
    due = made.tensor.size
    function, (words, *rest) = made.__reduce__()
    short = function, (words[:-1], *rest)
    for wrong in (lambda: short[0](*short[1]), lambda: dataclasses.replace(made, tensor=made.tensor[: due - 1])):
        with pytest.raises(PlanError) as error:
            wrong()
        assert str(error.value) == (
            f"PackedMatrix: words count is {due - 1} of float32, must be {due} of float32, one after the other; "
            "pack the matrix again"
        )
    for fields in ({"tensor": Tensor.zeros((due,), "int32")}, {"tensor": Tensor.zeros((2 * due,))[::2]}):
        with pytest.raises(PlanError, match="one after the other"):
            dataclasses.replace(made, **fields)
    for shape in ((35,), (-1, 7)):
        with pytest.raises(PlanError) as error:
            dataclasses.replace(made, shape=shape)
        assert str(error.value) == (f"PackedMatrix: shape is {shape}, must be that of a matrix; pack the matrix again")


def test_product_of_a_packed_vector_and_one_row() -> None:
    for isa in COMPILED_ROWS:
        a, b = draw(1, 200), draw(200, 1, seed=1)
        assert same(product(a, b, isa, packed=True), reference(a, b))


# Every engine's words, by what is packed for what; the rest are other elements in the same words.
FEW = [("float32", "float32"), ("bfloat16", "bfloat16"), ("uint8", "int8"), ("float64", "float32")]
MORE = [
    ("int8", "int8"),
    ("float64", "float64"), ("float32", "bfloat16"), ("float16", "float16"),
    ("float8_e4m3fn", "float8_e4m3fn"), ("float8_e4m3fn", "bfloat16"), ("int8", "uint8"), ("uint8", "uint8"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("left", "right"), [*FEW, *(pytest.param(*pair, marks=pytest.mark.exhaustive) for pair in MORE)]
)
def test_what_one_row_packed_gives_the_right_bits_on_another_or_is_refused(left: str, right: str) -> None:
    """Every pair of rows, and every dtype of a beside the one that was said to come."""
    b = gemm_cases.values(dtypes.of(right), 37, 43, seed=1)
    rows = (named("numpy"), *PRODUCT_ROWS)
    used, reasons = 0, set()
    kept: dict[str, bytes] = {}
    for row in rows:
        with sb.use_isa(row):
            kept[row.name] = pickle.dumps(sb.pack(b, left=left))
    for name, row in itertools.product(kept, rows):
        packed = pickle.loads(kept[name])
        assert (packed.isa, packed.format) == (name, "samebits-panels-2")
        for kind in (left, "float32", "bfloat16", "int8", "uint8", "float64"):
            a = gemm_cases.values(dtypes.of(kind), 3, 37)
            zeros = {"a_zero_point": 3, "b_zero_point": 2} if "int" in kind and "int" in right else {}
            with sb.use_isa(row):
                try:
                    got = sb.matmul(a, packed, **zeros)
                except (sb.PlanError, sb.DTypeError) as error:
                    reasons.add(" ".join(str(error).split()[:4]))
                    continue
            used += 1
            due = integers(a, b, *zeros.values()) if zeros else reference(a, b)
            assert_bits(got, due.astype(got.dtype), (name, row.name, kind))
    assert used >= len(rows)
    assert reasons <= {"matmul: b panel width", "matmul: b engine is", "matmul: b dtype is"}
    assert "matmul: b panel width" in reasons


@pytest.mark.parametrize(
    "right", [pytest.param("int4", marks=pytest.mark.exhaustive), "float4_e2m1fn", "float8_e4m3fn"]
)
def test_codes_that_one_row_packed_give_the_right_bits_on_another_or_are_refused(right: str) -> None:
    """Panels of codes, scales behind, are read where vectors make whole panels, by one row of a or by many in turn."""
    k, n, group = 64, 37, 32
    rows = (named("scalar"), *PRODUCT_ROWS)
    codes = np.random.default_rng(1).integers(0, 16, (k, n)).astype(np.uint8)
    b, scale = codes.view(dtypes.of(right).numpy), np.random.default_rng(2).standard_normal((2, n)).astype(np.float32)
    a = gemm_cases.values(dtypes.float32, 17, k)
    due = reference(a, b, b_scale=scale, b_block=group)
    kept = dict[int, bytes]()
    for row in rows:
        with sb.use_isa(row):
            made = sb.pack(b, left="float32", scale=scale, group=group)
        kept[made.nr] = pickle.dumps(made)
    used, refused = 0, set[str]()
    for (at, (nr, packed)), (number, row) in itertools.product(enumerate(kept.items()), enumerate(rows)):
        m = (1, 17)[(at + number) % 2]
        with sb.use_isa(row):
            try:
                got = sb.matmul(a[:m], pickle.loads(packed))
            except sb.PlanError as error:
                refused.add(str(error).replace(f"{nr}, must be a multiple of {row.lanes} on Isa row {row.name}", "..."))
                continue
        used += 1
        assert_bits(got, due[:m], (nr, row.name, m))
    assert used >= len(rows)
    if dtypes.of(right).width_bits == 4:
        assert refused == {"matmul: b panel width is ...; pack it again with pack()"}


@pytest.mark.parametrize("kind", [ml_dtypes.bfloat16, np.float16])
@pytest.mark.parametrize("isa", COMPILED_ROWS, ids=ids)
def test_codes_of_16_bits_have_the_bits_of_the_reference_in_every_form(isa: Isa, kind: type) -> None:
    """Every number counts once and alone, in another chunk or column: subnormals, NaN of any bits, zeros of a sign."""
    rows = tile_for(isa).mr
    every = np.arange(1 << 16, dtype=np.uint16).view(kind)
    for m, n, k, threads in ((1, 7, 0, 1), (rows + 1, 2 * rows + 3, 150, 1), (3 * rows, 70, 300, 2)):
        a, b = draw(m, k).astype(kind), draw(k, n, seed=1).astype(kind)
        a[: m // 2, 1::7] = 0
        due = reference(a, b)
        for form in ("decoded", "widened", "fused", "staged"):
            assert same(product_of_codes(a, b, isa, form, threads), due), (m, n, k, form)
    other = Spec(order="pairs32")
    assert same(product_of_codes(a, b, isa, "widened", threads, spec=other), reference(a, b, spec=other))
    b = every[np.arange(1 << 16) % 2 == 0].reshape(64, 512)  # half of all, the others below
    for codes in (b, every[1::2].reshape(64, 512)):
        a = np.zeros((rows + 1, 64), kind)
        a[:, 3], a[0, 17] = 1, kind(2)
        due = reference(a, codes)
        for form in ("decoded", "widened"):
            assert same(product_of_codes(a, codes, isa, form), due), form


@pytest.mark.parametrize("isa", PRODUCT_ROWS, ids=ids)
def test_panels_of_16_bits_take_two_bytes_an_element(isa: Isa, monkeypatch: pytest.MonkeyPatch) -> None:
    """But for the facts of columns where pairs are multiplied, and float16 where nothing widens it at once."""
    with sb.use_isa(isa):
        for machine in (ZEN4, SAPPHIRE_RAPIDS):
            monkeypatch.setitem(tuning._kept, isa, machine)
            for kind in (ml_dtypes.bfloat16, np.float16):
                kept = sb.pack(np.ones((30, 96), kind))
                columns = -(-96 // kept.nr) * kept.nr
                has_pairs = kept.engine == "bfloat16 pairs"
                is_wide = kind is np.float16 and "float16" not in isa.instructions
                assert kept.tensor.nbytes == (4 if is_wide else 2) * 30 * columns + 4 * columns * has_pairs
                assert is_wide == (kept.engine == "fma float32")
                assert has_pairs <= (machine is ZEN4 and kind is ml_dtypes.bfloat16)
            # What is multiplied with float64 is kept as that.
            assert sb.pack(np.ones((30, 96), np.float16), left="float64").engine == "fma float64"


def test_codes_are_refused_beside_what_their_words_are_not_multiplied_with() -> None:
    codes = sb.pack(np.ones((30, 96), np.float16))
    assert codes.engine == "float16 codes"
    with pytest.raises(PlanError) as error:
        sb.matmul(np.ones((2, 30)), codes)
    assert str(error.value) == (
        "matmul: b engine is 'float16 codes', must be one for float64; pack it again with left='float64'"
    )
    words = codes.tensor
    with pytest.raises(PlanError, match="PackedMatrix: dtype is float8_e5m2, must be float16; pack the matrix again"):
        PackedMatrix(words, codes.shape, codes.nr, codes.isa, dtypes.float8_e5m2, codes.engine)
    with pytest.raises(PlanError, match="PackedMatrix: words count is"):
        PackedMatrix(words, (31, 96), codes.nr, codes.isa, dtypes.float16, codes.engine)
