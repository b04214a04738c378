"""Dequantising against the NumPy reference on every row: every format, lies, lengths, threads."""

from __future__ import annotations

import aarch64
import pytest
import rows
from quantize_run import Numbers

from samebits import dtypes
from samebits.codegen.isa import ROWS, Isa
from samebits.dtypes import DType
from samebits.errors import PlanError
from samebits.kernels.quantize import formats, values_plan
from samebits.kernels.quantize.formats import BlockFormat

ISAS = pytest.mark.parametrize("isa", rows.ALL_ROWS, ids=lambda row: row.name)
NUMPY = ROWS[0]
# Rows of each kind of element, of scale, of zero point and of block.
DISTINCT = list(
    {
        (row.element, row.scale, row.zero_point, row.codebook, row.block[1] if row.block[1] in (None, 1) else 0): row
        for row in formats.ROWS
    }.values()
)


def shape_of(row: BlockFormat, columns: int, lines: int = 5) -> tuple[int, int]:
    """A shape that blocks of the format divide."""
    return (32 if row.block[0] == 16 else lines, columns)


@rows.in_turn("isa, row", DISTINCT, 0)
def test_every_format_equals_the_reference(isa: Isa, row: BlockFormat) -> None:
    for dtype in (dtypes.float32, dtypes.bfloat16):
        Numbers(row, shape_of(row, 256), dtype).check(isa)
    if row.partial:
        Numbers(row, shape_of(row, 200, 3)).check(isa)
        Numbers(row, shape_of(row, 64, 130 if isa.compiled else 3)).check(isa)


@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.bfloat16, dtypes.float16], ids=str)
@ISAS
def test_a_global_scale_multiplies_or_divides(isa: Isa, dtype: DType) -> None:
    for line in (False, True):
        for divides in (False, True):
            Numbers(formats.of("nvfp4"), (7, 48), dtype, divides, line).check(isa)


@ISAS
def test_lines_of_every_length(isa: Isa) -> None:
    for name in ("nvfp4", "mxfp6-e2m3", "mxfp8-e5m2"):
        row = formats.of(name)
        along = row.block[1]
        assert along is not None
        for count in (0, 1, 2, 3, 63, 64, 65, 128, 130) if isa.compiled else (0, 1, 3):
            for lines in (0, 1, 3):
                Numbers(row, (lines, along * count)).check(isa)


@pytest.mark.parametrize("name", ["nvfp4", "mxfp4"])
@ISAS
def test_many_numbers_are_looked_up(isa: Isa, name: str) -> None:
    """Where vectors are of whole bytes, lines lie densely and one scale is that of all."""
    row = formats.of(name)
    for dtype, divides in ((dtypes.float32, False), (dtypes.bfloat16, True), (dtypes.float16, False)):
        facts = Numbers(row, (65, 2048), dtype, divides).check(isa)
        assert ("looked up" in facts) == (isa.lanes % 2 == 0)


def test_what_a_line_scales_is_not() -> None:
    row = rows.COMPILED_ROWS[-2]
    assert "looked up" not in Numbers(formats.of("nvfp4"), (65, 2048), line=True).check(row)


@pytest.mark.parametrize("threads", [2, 3])
def test_threads_change_nothing(threads: int) -> None:
    for shape in ((3, 65536 + 16), (1031, 256)):
        Numbers(formats.of("nvfp4"), shape).check(rows.COMPILED_ROWS[-1], threads)


@pytest.mark.parametrize("isa", rows.AARCH64_ROWS, ids=lambda row: row.name)
@pytest.mark.parametrize("name", ["nvfp4", "mxfp6-e3m2", "mxfp8-e4m3", "uint4-group32-float-zero", "nf4", "fp8-column"])
def test_bits_on_aarch64(isa: Isa, name: str) -> None:
    row = formats.of(name)
    Numbers(row, (2, 64 + 40 * row.partial)).check(isa, run=aarch64.run_plan)
    Numbers(row, (2, 64), dtypes.bfloat16).check(isa, run=aarch64.run_plan)


def plan(elements: tuple[int, ...], shape: tuple[int, ...] = (4, 64)) -> None:
    """The plan of int4 rows that lie so."""
    strides = (("elements", elements), ("scales", (1, 0)), ("out", (shape[1], 1)))
    values_plan.plan(formats.of("int4-row"), shape, strides, dtypes.float32, rows.PLANNED)


def test_what_has_no_kernel_is_refused() -> None:
    for elements, shape, sentence in (
        ((4, 16), (4, 64), "dequantize.plan: elements stride is 16, must be 4; copy them"),
        ((260, 4), (4, 65), "dequantize.plan: elements line is 65 of 4 bits, must be whole bytes; pad them"),
        ((252, 4), (4, 62), "dequantize.plan: elements line is 62 of 4 bits, must be whole bytes; pad them"),
    ):
        with pytest.raises(PlanError) as caught:
            plan(elements, shape)
        assert str(caught.value) == sentence
    plan((256, 4))
