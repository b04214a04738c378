"""Micropanels of A lie in turns of the microkernel where its rows are contiguous; nothing outside A is read."""

from __future__ import annotations

from typing import Any

import guard
import launch
import numpy as np
import pytest
import rows
from gemm_run import contraction, execute, product, same

from samebits.codegen.isa import Isa
from samebits.codegen.vocabulary import Builder, KernelSpec
from samebits.dtypes import DType, bfloat16, float32, float64, int8, int32, uint8
from samebits.frozen import dataclass, replace
from samebits.kernels import gemm
from samebits.kernels.gemm import Matrix, Panels, reference
from samebits.kernels.gemm.engine import FMA32, FMA64, PAIRS, Engine, named
from samebits.kernels.gemm.inner import words_of
from samebits.kernels.gemm.interleaved import InterleavedRows
from samebits.kernels.gemm.machine import CASCADE_LAKE, EMERALD_RAPIDS, WIDE_LANES, ZEN4
from samebits.kernels.gemm.microkernel import function
from samebits.kernels.gemm.microtile import UNROLL, Microtile
from samebits.kernels.plan import Operand, Plan, Step
from samebits.native.compile import assembly

Array = np.ndarray[Any, Any]
PARAMETERS = ("x", "out", "row", "rows", "columns")


@dataclass(frozen=True, slots=True)
class Micropanel:
    """One micropanel of A's elements, in the words of an engine."""

    engine: Engine
    source: DType

    def __str__(self) -> str:
        return f"{self.engine.name}-{self.source.name}"


# Of several elements in a word: pairs, the first in the high bits or in the low ones, and bytes, plain and shifted.
CASES = [
    *(Micropanel(FMA32, source) for source in (float32, bfloat16)),
    Micropanel(FMA64, float64),
    Micropanel(PAIRS, bfloat16),
    Micropanel(named("int16 pairs"), int8),
    *(Micropanel(named("uint8 x int8 quads"), source) for source in (uint8, int8)),
]


def words_due(elements: Array, d: Micropanel) -> Array:
    """The words of each row, by shifts of whole integers; a last one that the elements do not fill has zeros."""
    if d.engine.depth == 1:
        return elements.astype(d.engine.word.numpy)
    codes = elements.view(np.uint16) if d.source is bfloat16 else elements.astype(np.int64)
    if d.engine.a is uint8 and d.source is int8:
        codes = codes + 128
    bits = 32 // d.engine.depth
    codes = codes.astype(np.int64) & (1 << bits) - 1
    padded = np.pad(codes, ((0, 0), (0, -codes.shape[1] % d.engine.depth)))
    parts = padded.reshape(len(codes), -1, d.engine.depth)
    places = [bits * i for i in range(d.engine.depth)]
    shifts = places[::-1] if d.source is bfloat16 else places
    return (parts << np.array(shifts)).sum(-1).astype(np.uint32).view(np.int32)


def interleave(b: Builder, d: Micropanel) -> None:
    """out = the micropanel."""
    words = words_of(d.engine, d.source, d.source)[0]
    pack = InterleavedRows(words, d.engine.lanes(b.isa)).emit(b, "pack")
    x, out = b.pointer("x", words.pointer), b.pointer("out", words.word)
    for _ in b.tasks():
        b.call(pack, x, *(b.index(name) for name in PARAMETERS[2:]), out)


def lying(x: Array, kind: str) -> Array:
    """x beside a page that nothing may read, with contiguous rows or columns, or neither."""
    if kind == "copy":
        return guard.array(x)
    if kind == "transpose":
        return guard.array(np.ascontiguousarray(x.T)).T
    spread = np.zeros((x.shape[0], 2 * x.shape[1] - 1), x.dtype)
    spread[:, ::2] = x
    return guard.array(spread)[:, ::2]


@rows.in_turn("isa, case", CASES, 1)
def test_words_lie_in_turns(isa: Isa, case: Micropanel) -> None:
    source = case.source
    random = np.random.default_rng(7)
    for h, k in ((1, 1), (1, 70), (2, 3), (5, 16), (11, 33), (12, 128), (12, 130), (13, 257), (6, 63), (5, 66)):
        elements = random.integers(-128, 128, (h, k)) if source.is_integer else random.standard_normal((h, k))
        elements = elements.astype(source.numpy)
        words = words_due(elements, case)
        whole = np.zeros((h, -(-words.shape[1] // UNROLL) * UNROLL), words.dtype)
        whole[:, : words.shape[1]] = words
        due = whole.reshape(h, -1, UNROLL).transpose(1, 0, 2)
        x = guard.array(elements)
        out = np.full(h * (-(-k // 128) * 128), 77, words.dtype)
        spec = KernelSpec(interleave, case, PARAMETERS, isa)
        step = Step(spec, 1, (Operand(0), Operand(1), k, h, k))
        launch.run_plan(Plan(what="", isa=isa, threads=1, steps=(step,), operands=("x", "out")), [x, out])
        launch.assert_bits(out[: due.size].reshape(due.shape), due, (isa.name, h, k))


WIDE = [row for row in rows.COMPILED_ROWS if row.lanes >= 8]


@pytest.mark.parametrize("isa", WIDE, ids=lambda row: row.name)
@pytest.mark.parametrize("kind", ["copy", "transpose", "gather"])
def test_products_of_wide_results_take_it_where_rows_are_contiguous(isa: Isa, kind: str) -> None:
    m, k, n = 29, 300, 12 * 48 + 5
    random = np.random.default_rng(3)
    a, b = random.standard_normal((m, k), np.float32), random.standard_normal((k, n), np.float32)
    a[3, 7], a[5, 299], b[299, 1] = np.inf, np.nan, -0.0
    c = contraction(
        m,
        n,
        k,
        {"copy": Matrix(k, 1), "transpose": Matrix(1, m), "gather": Matrix(2 * k - 1, 2)}[kind],
        Matrix(n, 1),
        Matrix(n, 1),
    )
    described = [step.spec.description for step in gemm.plan(c, isa, 2).steps]
    assert any(getattr(x, "interleaved", False) for x in described) == (kind == "copy")
    assert same(product(lying(a, kind), b, isa, threads=2), reference(a, b))


@pytest.mark.parametrize("isa", [row for row in rows.PRODUCT_ROWS if row.lanes >= 8], ids=lambda row: row.name)
@pytest.mark.parametrize("kind", ["copy", "transpose"])
@pytest.mark.parametrize("kinds", [(int8, int8), (uint8, int8), (int8, uint8), (bfloat16, bfloat16)], ids=str)
def test_words_of_several_elements_take_it(isa: Isa, kinds: tuple[DType, DType], kind: str) -> None:
    """The last word is full or not, is the first of a turn, the last or neither, and may alone have a subnormal
    product. Columns take it for pairs of bfloat16, where there are several chunks."""
    random, n = np.random.default_rng(9), 24 * 2 * isa.lanes + 5
    for m, k, threads in ((29, 301, 1), (12, 1030, 2), (13, 3, 1), (26, 2055, 2), (7, 257, 1), (12, 1281, 1)):
        if kinds[0] is bfloat16:
            a, b = random.standard_normal((m, k)).astype(bfloat16.numpy), random.standard_normal((k, n))
            b = b.astype(bfloat16.numpy)
            a[0, 0], a[m - 1], a[m - 1, k - 1], b[k - 1, 1], b[k - 1, n - 1] = np.inf, 0, 2.0**-100, 2.0**-40, np.nan
            due = reference(a.astype(np.float32), b.astype(np.float32))
            assert due[m - 1, 1] == 2.0**-140
        else:
            a, b = (
                random.integers(int(x.min), int(x.max) + 1, shape).astype(x.numpy)
                for x, shape in zip(kinds, ((m, k), (k, n)), strict=True)
            )
            due = (a.astype(np.int64) @ b.astype(np.int64)).astype(np.int32)
        out_dtype = float32 if kinds[0] is bfloat16 else int32
        left = Matrix(k, 1, dtype=kinds[0]) if kind == "copy" else Matrix(1, m, dtype=kinds[0])
        c = contraction(m, n, k, left, Matrix(n, 1, dtype=kinds[1]), Matrix(n, 1, dtype=out_dtype))
        plan = gemm.plan(c, isa, threads, machine=ZEN4, form="fused" if m % 2 else "staged")
        d = plan.steps[-1].spec.description
        takes = kind == "copy" or (d.engine.is_guarded and k > 1000)
        assert d.interleaved == (takes and not isa.has_tiles)
        out = np.full((m, n), 77, out_dtype.numpy)
        execute(plan, [lying(a, kind), guard.array(b), out])
        launch.assert_bits(out, due, (isa.name, m, k, n))
        if d.engine.depth == 1:
            continue
        panels = guard.empty(gemm.packed_elements(k, n, isa, (), d.engine), d.engine.word.numpy)
        execute(gemm.plan_pack(k, n, Matrix(n, 1, (), kinds[1]), isa, 1, (), d.engine, kinds[0]), [b, panels])
        packed = Panels(gemm.panel_columns(isa, d.engine), (), kinds[1], d.engine.name)
        plan = gemm.plan(replace(c, b=replace(c.b, values=packed)), isa, threads, machine=ZEN4, form="packed")
        assert plan.steps[-1].spec.description.interleaved == d.interleaved
        out = np.full((m, n), 77, out_dtype.numpy)
        execute(plan, [lying(a, kind), panels, out])
        launch.assert_bits(out, due, (isa.name, m, k, n, "packed"))


@pytest.mark.parametrize("isa", WIDE, ids=lambda row: row.name)
@pytest.mark.parametrize("source", [float32, bfloat16, float64], ids=lambda row: row.name)
def test_the_first_micropanel_reads_b_where_it_lies(isa: Isa, source: DType) -> None:
    random = np.random.default_rng(4)
    nr = 2 * isa.lanes // (2 if source is float64 else 1)
    dtype = np.float64 if source is float64 else np.float32
    for m, k, columns, wide in ((29, 300, nr // 2 + 5, 0), (25, 128, 0, 7), (13, 1, nr - 1, 0)):
        n = 24 * nr + columns
        a, b = random.standard_normal((m, k)).astype(source.numpy), random.standard_normal((k, n + wide))
        b = b.astype(source.numpy)
        a[3, 0], a[5, k - 1], b[k - 1, 1], b[0, n - 1] = np.inf, np.nan, -0.0, np.inf
        b = guard.array(b)[:, :n]
        due = reference(a.astype(dtype), b.astype(dtype))
        for threads in (1, 2):
            c = contraction(
                m, n, k, Matrix(k, 1, dtype=source), Matrix(n + wide, 1, dtype=source),
                Matrix(n, 1, dtype=float64 if source is float64 else float32),
            )  # fmt: skip
            plan = gemm.plan(c, isa, threads, machine=EMERALD_RAPIDS, form="fused")
            assert plan.steps[0].spec.description.lies
            far = replace(EMERALD_RAPIDS, caches=EMERALD_RAPIDS.caches.far)
            assert not gemm.plan(c, isa, threads, machine=far, form="fused").steps[0].spec.description.lies
            out = np.full((m, n), np.nan, dtype)
            execute(plan, [guard.array(a), b, out])
            launch.assert_bits(out, due, (isa.name, m, k, n))


@pytest.mark.parametrize("isa", WIDE, ids=lambda row: row.name)
@pytest.mark.parametrize("kind", ["copy", "transpose", "gather"])
@pytest.mark.parametrize("source", [float32, bfloat16, float64], ids=lambda row: row.name)
def test_words_that_are_read_twice_give_the_same_bits(isa: Isa, kind: str, source: DType) -> None:
    random = np.random.default_rng(5)
    dtype = np.float64 if source is float64 else np.float32
    for m, k in ((29, 300), (23, 7), (12, 1), (5, 130)):
        n = 24 * 2 * isa.lanes + 5
        a, b = random.standard_normal((m, k)).astype(source.numpy), random.standard_normal((k, n)).astype(source.numpy)
        a[3, 0], a[4, k - 1], b[k - 1, 1], b[0, n - 1] = np.inf, np.nan, -0.0, np.finfo(np.float32).tiny / 4
        strides = {"copy": (k, 1), "transpose": (1, m), "gather": (2 * k - 1, 2)}[kind]
        c = contraction(
            m, n, k, Matrix(*strides, dtype=source), Matrix(n, 1, dtype=source),
            Matrix(n, 1, dtype=float64 if source is float64 else float32),
        )  # fmt: skip
        engine = "fma float64" if source is float64 else "fma float32"
        plan = gemm.plan(c, isa, 2, machine=CASCADE_LAKE, engine=engine, form="fused")
        described = [step.spec.description for step in plan.steps]
        assert any(getattr(x, "four_wide", False) for x in described) == (isa.lanes >= WIDE_LANES)
        out = np.full((m, n), np.nan, dtype)
        execute(plan, [lying(a, kind), guard.array(b), out])
        launch.assert_bits(out, reference(a.astype(dtype), b.astype(dtype)), (isa.name, m, k, n))


@pytest.mark.parametrize("isa", WIDE, ids=lambda row: row.name)
def test_kept_panels_take_it_where_four_instructions_begin_in_a_cycle(isa: Isa) -> None:
    """Sums end in rows that follow each other, in rows that do not, and in columns that fill no panel."""
    random = np.random.default_rng(6)
    for m, k, n, wide in ((29, 300, 24 * 2 * isa.lanes, 0), (25, 1100, 24 * 2 * isa.lanes + 5, 3), (12, 128, 16, 0)):
        a, b = random.standard_normal((m, k), np.float32), random.standard_normal((k, n), np.float32)
        a[3, 0], a[4, k - 1], b[k - 1, 1], b[0, n - 1] = np.inf, np.nan, -0.0, np.finfo(np.float32).tiny / 4
        due = reference(a, b)
        kept = contraction(m, n, k, Matrix(k, 1), Panels(gemm.panel_columns(isa)), Matrix(n, 1))
        for machine in (CASCADE_LAKE, EMERALD_RAPIDS):
            (step,) = gemm.plan(kept, isa, machine=machine).steps
            takes = machine is CASCADE_LAKE and isa.lanes >= WIDE_LANES and n > 16
            assert step.spec.description.interleaved == takes
            for threads in (1, 2):
                out = guard.empty((m, n + wide), np.float32)[:, :n]
                product(guard.array(a), b, isa, threads, out=out, packed=True, machine=machine)
                launch.assert_bits(out, due, (isa.name, machine.name, m, k, n))


@pytest.mark.parametrize("isa", WIDE, ids=lambda row: row.name)
@pytest.mark.parametrize("source", [float32, bfloat16, float64], ids=lambda row: row.name)
def test_columns_are_turned_for_it_where_there_are_several_chunks(isa: Isa, source: DType) -> None:
    """Micropanels of fewer rows than a square has, and of rows that squares do not fill; turns that are not full."""
    random = np.random.default_rng(8)
    dtype, n = np.float64 if source is float64 else np.float32, 24 * 2 * isa.lanes + 5
    engine = "fma float64" if source is float64 else "fma float32"
    for m, k in ((29, 601), (3, 514), (25, 512), (13, 1023), (26, 257)):
        a, b = random.standard_normal((m, k)).astype(source.numpy), random.standard_normal((k, n)).astype(source.numpy)
        a[2, 0], a[1, k - 1], b[k - 1, 1], b[0, n - 1] = np.inf, np.nan, -0.0, np.finfo(np.float32).tiny / 4
        c = contraction(
            m, n, k, Matrix(1, m, dtype=source), Matrix(n, 1, dtype=source),
            Matrix(n, 1, dtype=float64 if source is float64 else float32),
        )  # fmt: skip
        due = reference(a.astype(dtype), b.astype(dtype))
        for form in ("fused", "staged"):
            plan = gemm.plan(c, isa, 2, machine=CASCADE_LAKE, engine=engine, form=form)
            takes = isa.lanes >= WIDE_LANES and k >= 512
            assert plan.steps[-1].spec.description.interleaved == takes
            out = guard.empty((m, n), dtype)
            execute(plan, [lying(a, "transpose"), guard.array(b), out])
            launch.assert_bits(out, due, (isa.name, form, m, k, n))


def test_words_that_are_read_twice_are_read_by_the_steps_themselves() -> None:
    """Six of twelve rows, two vectors, four words a turn, of which there are two: one asks for sums. LLVM must not make
    one read of the two."""
    isa = next(row for row in rows.COMPILED_ROWS if row.lanes >= WIDE_LANES)
    tiles = [Microtile(FMA32, 12, 2, 1, 0, interleaved=True, four_wide=x) for x in (False, True)]
    once, twice = (assembly(function(tile, isa), "x86_64").count("{1to16}") for tile in tiles)
    assert (once, twice) == (0, 2 * 6 * 2 * UNROLL)
