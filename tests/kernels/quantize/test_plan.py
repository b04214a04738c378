"""Quantising against the NumPy reference on every row: dialects, lies, lengths, threads, what is no number."""

from __future__ import annotations

import aarch64
import block_rows
import numpy as np
import pytest
import rows
from quantize_run import KINDS, Array, Case, guarded
from quantize_samples import samples

from samebits import dtypes
from samebits.codegen.isa import ROWS, Isa
from samebits.dtypes import bfloat16
from samebits.errors import PlanError
from samebits.frozen import replace
from samebits.kernels.quantize import codes, dialects, formats, widths
from samebits.kernels.quantize import plan as quantize_plan
from samebits.kernels.quantize.dialects import Dialect

ISAS = pytest.mark.parametrize("isa", rows.ALL_ROWS, ids=lambda row: row.name)
NUMPY = ROWS[0]
EXACT = dialects.of("nvfp4/exact-1")
NVFP4, FOUR_OVER_SIX = formats.of("nvfp4"), dialects.of("nvfp4/four-over-six-1")


# A format for each dialect, the formats taking turns, so that each is there with some dialect.
PAIRS = [(dialect, dialect.formats[k % len(dialect.formats)]) for k, dialect in enumerate(dialects.ROWS)]
# What the default dialects make besides, of each kind of block, zero point and element.
PAIRS += [(dialects.default(formats.of(name)), name) for name in block_rows.SOME]
PAIRS = list(dict.fromkeys(PAIRS))
MEMBERS = [(dialect, name, "bfloat16" if "bfloat16" in dialect.takes else "float32") for dialect, name in PAIRS]
MEMBERS += [(d, n, t) for d, n, t in [(EXACT, "nvfp4", "float32"), (EXACT, "nvfp4", "float16")]]
MEMBERS += [(dialects.of("fp8-block/deepseek"), "fp8-1x128", "float32")]
MEMBERS += [(dialects.of("mx/floor"), "mxfp6-e2m3", "float32"), (dialects.of("mx/rceil"), "mxfp8-e5m2", "float16")]


def numbers(shape: tuple[int, ...], kind: str = "bfloat16", seed: int = 0) -> Array:
    """Normal numbers of a dtype."""
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32).astype(KINDS[kind])


# Rows take turns, so that each has many dialects and each dialect a row or two: a kernel takes long to compile.
TURNS = [(rows.ALL_ROWS[k % len(rows.ALL_ROWS)], *member) for k, member in enumerate(MEMBERS)]
TURNS += [(rows.ALL_ROWS[(k + 2) % len(rows.ALL_ROWS)], *member) for k, member in enumerate(MEMBERS[::3])]


@pytest.mark.parametrize(("isa", "dialect", "name", "kind"), TURNS, ids=lambda v: getattr(v, "name", str(v)))
def test_every_dialect_equals_the_reference(isa: Isa, dialect: Dialect, name: str, kind: str) -> None:
    row = formats.of(name)
    lines = 64 if isa.compiled else row.block[0] or 4
    for _, x in samples(128, 256) if row.block[0] == 128 else samples(64, 128):
        with np.errstate(all="ignore"):
            Case(row, dialect, x.astype(np.float32).astype(KINDS[kind])[:lines]).check(isa)


@rows.in_turn("isa, kind", tuple(KINDS), 1)
def test_every_code_of_16_bits_and_random_codes_of_32(isa: Isa, kind: str) -> None:
    bits = 8 * np.dtype(KINDS[kind]).itemsize
    codes = np.random.default_rng(5).integers(0, 1 << bits, 1 << 16, np.uint64).astype(f"u{bits // 8}")
    if bits == 16:
        codes = np.random.default_rng(5).permutation(1 << 16).astype(np.uint16)
    x = codes.view(KINDS[kind]).reshape(64, -1)
    for dialect, name in ((EXACT, "nvfp4"), (dialects.of("mx/floor"), "mxfp8-e4m3")):
        Case(formats.of(name), dialect, x if isa.compiled else x[:2]).check(isa)


@ISAS
def test_lines_of_every_number_of_blocks(isa: Isa) -> None:
    lanes, chunk = widths.lanes_of(isa), 128
    counts = {0, 1, lanes - 1, lanes, lanes + 1, 2 * lanes, chunk - 1, chunk, chunk + 1, 2 * chunk + lanes + 1}
    for count in sorted(counts) if isa.compiled else (0, 1, lanes + 1):
        for lines in (0, 1, 3):
            for at_start in (False, True):
                x = guarded(numbers((lines, 16 * count)), at_start=at_start)
                Case(NVFP4, EXACT, x).check(isa, at_start=at_start)
                Case(formats.of("mxfp6-e3m2"), dialects.of("mx/even"), x[:, : 16 * count // 32 * 32]).check(isa)


def lies() -> list[Array]:
    """Arrays whose lines lie in every way."""
    x = numbers((6, 10, 96))
    wide = numbers((5, 3, 64 + 7))
    return [
        x[::-2], x[:, ::-1], x[..., ::-1], x[..., ::3], x.transpose(1, 0, 2), x[0].T[:, :0], numbers((96, 5)).T,
        np.broadcast_to(x[:1], (4, 10, 96)), np.broadcast_to(numbers((7, 1)), (7, 64)), wide[..., 7:], wide[:, 1, :64],
        numbers((2, 3, 2, 5, 32)).transpose(3, 1, 0, 2, 4), x[0, 0], x[:, :1],
    ]  # fmt: skip


@ISAS
def test_x_of_any_lie(isa: Isa) -> None:
    for x in lies() if isa.compiled else lies()[-4:]:
        Case(NVFP4, EXACT, x).check(isa)
        if x.shape[-1]:
            Case(NVFP4, EXACT, x, line=True).check(isa)
        Case(formats.of("mxfp4"), dialects.of("mx/floor"), x[..., : x.shape[-1] // 32 * 32]).check(isa)


@ISAS
def test_a_global_scale_is_taken_as_it_is_given(isa: Isa) -> None:
    x = numbers((5, 80))
    Case(NVFP4, EXACT, x, np.array(0.5, np.float32)).check(isa)
    Case(NVFP4, EXACT, x, np.exp2(np.arange(-2.0, 3.0)).astype(np.float32).reshape(5, 1), line=True).check(isa)
    for given in (0.0, -1.5, np.nan, np.inf, 1e-40, 3e38):
        Case(NVFP4, dialects.of("nvfp4/torchao-0.18"), x, np.array(given, np.float32)).check(isa)


# Heights around the lines that are walked side by side, and around runs of them; widths around whole vectors, and a
# chunk and the next.
HEIGHTS, WIDTHS = (1, 3, 4, 5, 8, 9, 65), (63, 64, 192, 2112)


@rows.in_turn(
    "isa, name", ("fp8-column", "int8-column", "uint4-column-zero", "fp8-128x128"), 2, among=rows.COMPILED_ROWS
)
def test_columns_of_every_height(isa: Isa, name: str) -> None:
    row = formats.of(name)
    for number, height in enumerate(HEIGHTS):
        for width in WIDTHS:
            x = numbers((2, height, width + width % (8 // row.element.width_bits)), seed=number)
            Case(row, dialects.default(row), guarded(x, at_start=bool(number % 2))).check(isa)
    x[1, 5, 7] = np.nan
    Case(row, dialects.default(row), x).check(isa)


@pytest.mark.parametrize("threads", [2, 3])
def test_threads_change_nothing(threads: int) -> None:
    isa = rows.COMPILED_ROWS[-1]
    for shape in ((3, 65536 + 16), (1031, 256), (1, 1 << 18)):
        x = guarded(numbers(shape))
        Case(NVFP4, EXACT, x).check(isa, threads)
        Case(NVFP4, EXACT, x, line=True).check(isa, threads)


ON_AARCH64 = [
    ("nvfp4/exact-1", "nvfp4"),
    ("nvfp4/torchao-0.18", "nvfp4"),
    ("nvfp4/compressed-tensors-0.20", "nvfp4"),
    ("mx/floor", "mxfp6-e3m2"),
    ("mx/rceil", "mxfp8-e4m3"),
    ("mx/even", "mxfp4"),
    ("nvfp4/exact-1", "nvfp4-16x16"),
    ("fp8/exact-1", "fp8-row"),
    ("fp8/exact-1", "fp8-column"),
    ("int/affine-1", "uint8-tensor-zero"),
    ("int/affine-1", "uint4-group32-float-zero"),
    ("nf4/qlora", "nf4"),
    ("nvfp4/four-over-six-1", "nvfp4"),
    ("nvfp4/four-over-six-1", "nvfp4-16x16"),
]


@rows.in_turn("isa, pair", ON_AARCH64, 0, among=rows.AARCH64_ROWS)
def test_bits_on_aarch64(isa: Isa, pair: tuple[str, str]) -> None:
    dialect, name = pair
    some = slice(16) if name == "nvfp4-16x16" else slice(2, 5)
    for label, x in samples(64, 128):
        if label in ("normal", "heavy", "zero blocks", "nan and inf", "subnormal", "steps"):
            case = Case(formats.of(name), dialects.of(dialect), x[some].astype(np.float32).astype(KINDS["bfloat16"]))
            case.check(isa, run=aarch64.run_plan)


@rows.in_turn("isa, name", FOUR_OVER_SIX.formats, 2)
def test_a_choice_of_two_scales_is_that_of_the_reference(isa: Isa, name: str) -> None:
    """Of every lie and length, with numbers whose squares are beyond float32, below its normal ones, and no numbers."""
    row, at = formats.of(name), rows.ALL_ROWS.index(isa)
    height = row.block[0] or 1
    kind = list(KINDS)[at % len(KINDS)]
    x = numbers((2 * height, 64 if isa is NUMPY else 2112), "float32", at)
    x[:, 16:32] *= 4.0
    x[0, 3], x[height, 40], x[height // 2, 48:64] = np.nan, -np.inf, 0
    with np.errstate(all="ignore"):
        cases = [x, x[:, :48], x[::-1, ::2], x * np.float32(2.0**127), x * np.float32(2.0**-130)]
        for case in [case.astype(KINDS[kind]) for case in cases]:
            for at_start in (False, True):
                Case(row, FOUR_OVER_SIX, guarded(case, at_start=at_start)).check(isa, at_start=at_start)
            Case(row, FOUR_OVER_SIX, case[..., ::-1]).check(isa, 2)
    whole = np.array(0.5, np.float32)
    Case(row, FOUR_OVER_SIX, x.astype(KINDS[kind]), whole).check(isa)
    if name == "nvfp4":
        Case(row, FOUR_OVER_SIX, x.astype(KINDS[kind]), line=True).check(isa)


def test_kernels_know_no_size() -> None:
    isa = rows.COMPILED_ROWS[-1]
    kernels = {
        step.spec
        for shape in ((1, 16), (7, 4096), (300, 80))
        for step in Case(NVFP4, EXACT, numbers(shape)).plan(isa).steps
    }
    assert len(kernels) == 3


def test_scratch_does_not_grow() -> None:
    isa = rows.COMPILED_ROWS[-1]
    small, large = (
        quantize_plan.plan(NVFP4, EXACT, bfloat16, (shape, (shape[1], 1)), isa) for shape in ((4, 4096), (4096, 16384))
    )
    assert small.scratch_bytes == large.scratch_bytes < 32768
    assert large.workspace_bytes < 4096 * 16384 // 4096


def test_a_plan_says_what_it_is() -> None:
    found = str(quantize_plan.plan(NVFP4, EXACT, bfloat16, ((8, 64), (64, 1)), rows.PLANNED, 2))
    assert found.splitlines()[0] == "quantize bfloat16 (8, 64) to nvfp4 by nvfp4/exact-1"
    assert "lines: 1 of 32 blocks of 16" in found
    assert "read: twice, once for the global scale" in found


def shapes(name: str) -> list[tuple[int, ...]]:
    """Shapes whose last blocks are short, with a line, several matrices, nothing, and more than a chunk."""
    if name == "nvfp4-16x16":
        return [(16, 32), (48, 2064), (2, 32, 48), (0, 16), (3, 0, 32)]
    if name == "nf4":
        return [(5, 192), (3, 64 * 65), (2, 3, 64), (0, 64)]
    return [(1, 8), (5, 200), (130, 264), (3, 2056), (2, 3, 40), (16,), (0, 8), (2, 0, 8), (3, 0), (131, 2)]


BLOCKS = (
    "nvfp4-16x16", "fp8-128x128", "fp8-row", "fp8-column", "fp8-tensor", "uint8-row-zero", "uint8-column-float-zero",
    "uint8-group32-zero", "uint8-tensor-zero", "nf4",
)  # fmt: skip


@rows.in_turn("isa, name", BLOCKS, 3)
def test_blocks_of_every_kind_end_anywhere(isa: Isa, name: str) -> None:
    row = formats.of(name)
    for shape in shapes(name):
        if isa.compiled or np.prod(shape) < 4000:
            for at_start in (False, True):
                x = guarded(numbers(shape), at_start=at_start)
                Case(row, dialects.default(row), x).check(isa, at_start=at_start)


@pytest.mark.parametrize("name", BLOCKS)
def test_blocks_of_every_kind_in_x_of_any_lie(name: str) -> None:
    row, isa = formats.of(name), rows.COMPILED_ROWS[-1]
    wide = numbers((6, 64, 256 + 8))
    lines = [wide[..., 8:], wide[::-2, ::-1, :256], wide[..., :256:2], wide[:, :, 7::-1][:, :, :0], wide[0].T[:256]]
    for x in [*lines, np.broadcast_to(wide[:, :1, :256], (6, 32, 256)), wide[:, :32, :128].transpose(1, 0, 2)[:, :0]]:
        Case(row, dialects.default(row), x).check(isa)


@pytest.mark.parametrize("name", ["nvfp4-16x16", "fp8-128x128", "fp8-row", "fp8-column", "fp8-tensor", "nf4"])
def test_threads_change_nothing_of_any_block(name: str) -> None:
    row, isa = formats.of(name), rows.COMPILED_ROWS[-1]
    for shape in ((272, 2048), (2, 1 << 17)):
        if name != "nvfp4-16x16" or shape[0] > 2:
            Case(row, dialects.default(row), guarded(numbers(shape))).check(isa, 3)


def test_quotients_by_any_number_are_rounded_once() -> None:
    row, rng = formats.of("nf4"), np.random.default_rng(3)
    assert row.codebook is not None
    middles = (np.array(row.codebook[1:]) + np.array(row.codebook[:-1])) / 2
    amax = rng.uniform(1, 2, (512, 1)).astype(np.float32)
    near = (amax * middles).astype(np.float32)  # within an ulp of where the code changes
    x = np.zeros((512, 64), np.float32)
    x[:, :15], x[:, 15:30], x[:, 30:45] = near, np.nextafter(near, np.float32(2)), np.nextafter(near, np.float32(-2))
    x[:, 63:] = amax
    for isa in rows.COMPILED_ROWS[-2:]:
        Case(row, dialects.default(row), x * np.exp2(rng.integers(-70, 70, (512, 1))).astype(np.float32)).check(isa)


def test_codes_of_a_book_beside_the_ends_of_cells() -> None:
    row = formats.of("nf4")
    ends = np.arange(-31, 32, 2) / 30
    assert row.codebook is not None
    x = np.zeros((3, 64), np.float32)
    x[:, :32] = ends.clip(-1, 1)
    x[1], x[2] = np.nextafter(x[0], np.float32(-2)).clip(-1), np.nextafter(x[0], np.float32(2)).clip(None, 1)
    x[:, 63] = 1
    for isa in rows.COMPILED_ROWS[-2:]:
        Case(row, dialects.default(row), x).check(isa)
    assert codes._cells(row.codebook) is not None
    assert codes._cells((*np.linspace(-1, -0.9, 9), *np.linspace(0, 1, 7))) is None


DRAWN = (
    "nvfp4",
    "mxfp8-e5m2",
    "nvfp4-16x16",
    "fp8-column",
    "uint4-group32-zero",
    "int8-row",
    "uint8-tensor-float-zero",
)


@rows.in_turn("isa, name", DRAWN, 0)
def test_words_are_those_of_elements_wherever_they_are(isa: Isa, name: str) -> None:
    row, wide = formats.of(name), numbers((3, 48, 288))
    dialect = dialects.default(row)
    wide[0, 3, 5], wide[1, 7, 3] = np.nan, -0.0
    few = wide if isa.compiled else wide[:1, :16]
    for x in (few[..., :256], few[:, ::-1, 32:], few[0, :16, ::2][:, :128], few[:, :0, :32]):
        Case(row, dialect, x, seed=2**63 + 5).check(isa, 2 if isa.compiled else 1)


@pytest.mark.parametrize("isa", rows.AARCH64_ROWS[:2], ids=lambda row: row.name)
def test_words_on_aarch64(isa: Isa) -> None:
    for name in ("nvfp4", "int8-group32"):
        row = formats.of(name)
        Case(row, dialects.default(row), numbers((3, 96)), seed=9).check(isa, run=aarch64.run_plan)


REFUSED = {
    ("uint4-row-zero", (3, 5)): "elements line is 5 of 4 bits, must be whole bytes; quantise it by its reference",
    ("nvfp4", (2, 24)): "x extent is 24, must be a multiple of 16; pad it",
    ("nvfp4-16x16", (8, 32)): "x extent is 8, must be a multiple of 16; pad it",
}


@pytest.mark.parametrize(("name", "shape"), REFUSED)
def test_what_kernels_do_not_take_is_refused(name: str, shape: tuple[int, int]) -> None:
    row = formats.of(name)
    with pytest.raises(PlanError) as caught:
        quantize_plan.plan(row, dialects.default(row), dtypes.float32, (shape, (shape[1], 1)), rows.PLANNED)
    assert str(caught.value) == f"quantize.plan: {REFUSED[name, shape]}"


def test_blocks_of_another_length_are_refused() -> None:
    row = replace(NVFP4, block=(1, 8))
    with pytest.raises(PlanError) as caught:
        quantize_plan.plan(row, EXACT, dtypes.float32, ((2, 16), (16, 1)), rows.PLANNED)
    due = "format block is (1, 8), must be 1, all or a power of two of at least 16 along the axis"
    assert str(caught.value) == f"quantize.plan: {due}; quantise it by its reference"
