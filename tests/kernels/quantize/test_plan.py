"""Quantising against the NumPy reference on every row: dialects, lies, lengths, threads, what is no number."""

from __future__ import annotations

import aarch64
import numpy as np
import pytest
import rows
from quantize_run import KINDS, Array, Case, guarded
from quantize_samples import samples

from samebits import dtypes
from samebits.codegen.isa import ROWS, Isa
from samebits.dtypes import bfloat16, float32
from samebits.errors import PlanError
from samebits.kernels.quantize import dialects, formats, lines_text
from samebits.kernels.quantize import plan as quantize_plan
from samebits.kernels.quantize.dialects import Dialect
from samebits.kernels.quantize.formats import BlockFormat

ISAS = pytest.mark.parametrize("isa", rows.ALL_ROWS, ids=lambda row: row.name)
NUMPY = ROWS[0]
EXACT = dialects.of("nvfp4/exact-1")
NVFP4 = formats.of("nvfp4")


def is_taken(row: BlockFormat) -> bool:
    """Whether there is a kernel for the format."""
    across, along = row.block
    return across == 1 and along is not None and row.zero_point is None and row.codebook is None


# A format for each dialect, the formats taking turns, so that each is there with some dialect.
PAIRS = [
    (dialect, taken[number % len(taken)])
    for number, dialect in enumerate(dialects.ROWS)
    if (taken := [name for name in dialect.formats if is_taken(formats.of(name))])
]
# What the default dialects make besides.
PAIRS += [(dialects.default(row), row.name) for row in formats.ROWS if is_taken(row)]
PAIRS = list(dict.fromkeys(PAIRS))
MEMBERS = [(dialect, name, "bfloat16" if "bfloat16" in dialect.takes else "float32") for dialect, name in PAIRS]
MEMBERS += [(d, n, t) for d, n, t in [(EXACT, "nvfp4", "float32"), (EXACT, "nvfp4", "float16")]]
MEMBERS += [(dialects.of("mx/floor"), "mxfp6-e2m3", "float32"), (dialects.of("mx/rceil"), "mxfp8-e5m2", "float16")]


def numbers(shape: tuple[int, ...], kind: str = "bfloat16", seed: int = 0) -> Array:
    """Normal numbers of a dtype."""
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32).astype(KINDS[kind])


# Rows take turns, so that each has many dialects and each dialect a row or two: a kernel takes long to compile.
TURNS = [(rows.ALL_ROWS[k % len(rows.ALL_ROWS)], *member) for k, member in enumerate(MEMBERS)]
TURNS += [(rows.ALL_ROWS[(k + 2) % len(rows.ALL_ROWS)], *member) for k, member in enumerate(MEMBERS[::3])]


@pytest.mark.parametrize(("isa", "dialect", "name", "kind"), TURNS, ids=lambda v: getattr(v, "name", str(v)))
def test_every_dialect_equals_the_reference(isa: Isa, dialect: Dialect, name: str, kind: str) -> None:
    for _, x in samples(64, 128):
        with np.errstate(all="ignore"):
            Case(
                formats.of(name), dialect, x.astype(np.float32).astype(KINDS[kind])[: 64 if isa.compiled else 4]
            ).check(isa)


@pytest.mark.parametrize("kind", KINDS)
@ISAS
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
    lanes, chunk = lines_text.lanes_of(isa), 128
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


@pytest.mark.parametrize("threads", [2, 3])
def test_threads_change_nothing(threads: int) -> None:
    isa = rows.COMPILED_ROWS[-1]
    for shape in ((3, 65536 + 16), (1031, 256), (1, 1 << 18)):
        x = guarded(numbers(shape))
        Case(NVFP4, EXACT, x).check(isa, threads)
        Case(NVFP4, EXACT, x, line=True).check(isa, threads)


@pytest.mark.parametrize("isa", rows.AARCH64_ROWS, ids=lambda row: row.name)
@pytest.mark.parametrize(
    ("dialect", "name"),
    [
        ("nvfp4/exact-1", "nvfp4"),
        ("nvfp4/torchao-0.18", "nvfp4"),
        ("nvfp4/compressed-tensors-0.20", "nvfp4"),
        ("mx/floor", "mxfp6-e3m2"),
        ("mx/rceil", "mxfp8-e4m3"),
        ("mx/even", "mxfp4"),
    ],
)
def test_bits_on_aarch64(isa: Isa, dialect: str, name: str) -> None:
    for label, x in samples(64, 128):
        if label in ("normal", "heavy", "zero blocks", "nan and inf", "subnormal", "steps"):
            case = Case(formats.of(name), dialects.of(dialect), x[2:5].astype(np.float32).astype(KINDS["bfloat16"]))
            case.check(isa, run=aarch64.run_plan)


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


REFUSED = {
    "nvfp4-16x16": "quantize.plan: format block is (16, 16), must be 1 by a power of two of at least 16; "
    "quantise it by its reference",
    "fp8-row": "quantize.plan: format block is (1, None), must be 1 by a power of two of at least 16; "
    "quantise it by its reference",
    "uint4-group32-zero": "quantize.plan: format part is zero points, must be elements and scales; "
    "quantise it by its reference",
    "nf4": "quantize.plan: format part is a code book, must be elements and scales; quantise it by its reference",
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_has_no_kernel_is_refused(name: str) -> None:
    row = formats.of(name)
    with pytest.raises(PlanError) as caught:
        quantize_plan.plan(row, dialects.default(row), float32, ((32, 64), (64, 1)), rows.PLANNED)
    assert str(caught.value) == REFUSED[name]


def test_blocks_divide_the_axis() -> None:
    with pytest.raises(PlanError) as caught:
        quantize_plan.plan(NVFP4, EXACT, dtypes.float32, ((2, 24), (24, 1)), rows.PLANNED)
    assert str(caught.value) == "quantize.plan: x extent is 24, must be a multiple of 16; pad it"
