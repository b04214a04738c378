"""Dialects: by which formulas a tool finds the stored parts of a block format. One frozen row each.

A format says what is stored; tools disagree on the rest: how the scale of a block follows from its largest magnitude,
what is multiplied and what divided and in which order, what becomes of a block of zeros, of NaN and of Inf. Those are
the facts of a row. Its name carries a version, because tools change bits between versions. Start at `Dialect`, then
`ROWS`; `Dialect.formulas` is what kernels and the reference take, for one format and one dtype of x.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from samebits.dtypes import DType
from samebits.errors import DTypeError, OptionError
from samebits.frozen import dataclass
from samebits.kernels.quantize import formats, fp8_formulas, int_formulas, mx_formulas, nvfp4_formulas
from samebits.kernels.quantize.formats import BlockFormat
from samebits.kernels.quantize.formulas import Formulas

__all__ = ["ROWS", "Dialect", "default", "dialects", "of"]


@dataclass(frozen=True, slots=True)
class Dialect:
    """How the stored parts of a block format are found, as one tool in one version does it.

    Attributes:
        name: Family, tool and version.
        formats: The names of the block formats that it makes.
        build: `(format, dtype of x)` to the formulas.
        takes: The names of the dtypes that x may have.
        divides: Whether the global scale is kept as what one divides by: of 17% of all float32 numbers the reciprocal's
            reciprocal is another number, so that it cannot be kept otherwise.
        exact: Whether codes are the nearest for the stored scales, so that global scales must be powers of two.
        chooses: Whether a block has the scale of two whose codes are nearer.
        text: The formula in words, for the page of formats.
        source: Where the formula is published.
    """

    name: str
    formats: tuple[str, ...]
    build: Callable[[BlockFormat, DType], Formulas]
    takes: tuple[str, ...] = ("float32", "bfloat16", "float16")
    divides: bool = False
    exact: bool = False
    chooses: bool = False
    text: str = ""
    source: str = ""

    def __repr__(self) -> str:
        return self.name

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return of, (self.name,)

    def formulas(self, row: BlockFormat, x: DType) -> Formulas:
        """What kernels and the reference compute, for blocks of that format of numbers of that dtype.

        Raises:
            OptionError: The dialect makes no such format.
            DTypeError: It takes no such numbers.
        """
        if row.name not in self.formats:
            expected = f"one of {', '.join(self.formats)} for {self.name}"
            raise OptionError("Dialect.formulas", "format", "", row, expected, "choose another dialect")
        if x.name not in self.takes:
            expected = f"one of {', '.join(self.takes)} for {self.name}"
            raise DTypeError("Dialect.formulas", "x", "dtype", x, expected, "cast it first")
        return _formulas(self, row, x)


@cache
def _formulas(dialect: Dialect, row: BlockFormat, x: DType) -> Formulas:
    return dialect.build(row, x)


_NVFP4 = ("nvfp4", "nvfp4-16x16")
_FP8 = tuple(row.name for row in formats.ROWS if row.name.startswith("fp8-"))
_FP8_FLOAT32 = tuple(name for name in _FP8 if not name.endswith("e8m0"))
_FP8_BLOCKS = tuple(name for name in _FP8 if "128" in name)
_FP8_FLOAT32_BLOCKS = tuple(name for name in _FP8_FLOAT32 if "128" in name)
_FP8_E4M3 = tuple(name for name in _FP8_FLOAT32 if "e5m2" not in name)
_INT = tuple(row.name for row in formats.ROWS if row.name.startswith("int"))
_UINT = tuple(row.name for row in formats.ROWS if row.name.startswith("uint"))
_TWO = ("float32", "bfloat16")
_MX = ("mxfp4", "mxfp6-e2m3", "mxfp6-e3m2", "mxfp8-e4m3", "mxfp8-e5m2")

_OWN = "numerics.md, section 9"
_TORCHAO_MX = "torchao 0.18, prototype/mx_formats/mx_tensor.py"

ROWS: tuple[Dialect, ...] = (
    Dialect(
        "nvfp4/exact-1",
        _NVFP4,
        nvfp4_formulas.exact,
        exact=True,
        text="g = 2^ceil(log2(G / 2688)); scale = e4m3(max((A / g) / 6, 2^-9)); the code nearest to x / (scale * g)",
        source=_OWN,
    ),
    Dialect(
        "nvfp4/torchao-0.18",
        ("nvfp4",),
        nvfp4_formulas.torchao,
        takes=_TWO,
        text="s = G / 2688; scale = e4m3(max((A / 6) / s, 2^-6)); x * ((1 / s) / scale)",
        source="torchao 0.18, prototype/mx_formats/nvfp4_tensor.py",
    ),
    Dialect(
        "nvfp4/te-2",
        _NVFP4,
        nvfp4_formulas.transformer_engine,
        divides=True,
        text="g = 2688 / G; scale = e4m3(A * (g * (1/6))); x * min(1 / (scale * (1 / g)), largest float32)",
        source="Transformer Engine 2, common/cast/nvfp4 and common/util/ptx.cuh",
    ),
    Dialect(
        "nvfp4/nvfuser-0.2",
        ("nvfp4",),
        nvfp4_formulas.nvfuser,
        divides=True,
        text="g = 2688 / G; scale = e4m3((A / 6) * g); x * min(1 / (scale * (1 / g)), largest float32)",
        source="nvFuser 0.2.36, runtime/block_quantization_kernels.cu, of numbers without NaN",
    ),
    Dialect(
        "nvfp4/flashinfer",
        ("nvfp4",),
        nvfp4_formulas.flashinfer,
        divides=True,
        text="g = 2688 / G; scale = e4m3(g * (A * (1/6))); x * (1 / (scale * (1 / g))), 0 where the scale is 0",
        source="FlashInfer (August 2026), tests/utils_fp4.py, ref_fp4_quant",
    ),
    Dialect(
        "nvfp4/modelopt-0.47",
        ("nvfp4",),
        nvfp4_formulas.modelopt,
        text="s = G / 2688; scale = e4m3(max(A / (6 * s), 2^-9)), 1 where that is 0; x / (scale * s)",
        source="ModelOpt 0.47, torch/quantization/qtensor/nvfp4_tensor.py",
    ),
    Dialect(
        "nvfp4/compressed-tensors-0.20",
        ("nvfp4",),
        nvfp4_formulas.compressed_tensors,
        takes=_TWO,
        divides=True,
        text="g = 1 / G * 2688, A / 6 in x's dtype; scale = e4m3(g * (A / 6)), 0.125 where 0; x / (scale / g)",
        source="compressed-tensors 0.20, quantization/utils/helpers.py",
    ),
    Dialect(
        "nvfp4/four-over-six-1",
        _NVFP4,
        nvfp4_formulas.four_over_six,
        exact=True,
        chooses=True,
        text="g = 2^ceil(log2(G / 1792)); scale = e4m3(max((A / g) / 6, 2^-9)) or so with 4 for 6, by the lesser error",
        source=f"{_OWN}; Four Over Six (2025)",
    ),
    Dialect(
        "mx/floor",
        _MX,
        mx_formulas.floor,
        text="E - e; x / max(scale, 2^-126)",
        source=f"OCP MX v1.0, section 6.3; {_TORCHAO_MX}",
    ),
    Dialect(
        "mx/ceil",
        _MX,
        mx_formulas.ceil,
        text="ceil(log2(A)) - e; x / max(scale, 2^-126)",
        source=_TORCHAO_MX,
    ),
    Dialect(
        "mx/even",
        _MX,
        mx_formulas.even,
        text="the exponent of A rounded, half up, to the element's fraction, less e; x / max(scale, 2^-126)",
        source=_TORCHAO_MX,
    ),
    Dialect(
        "mx/rceil",
        _MX,
        mx_formulas.rceil,
        text="ceil(log2(A / M)); x * (1 / scale), x itself where the scale is 2^-127",
        source=f"cuBLAS, block scaling factors; {_TORCHAO_MX}",
    ),
    Dialect(
        "mx/modelopt-0.47",
        ("mxfp4", "mxfp8-e4m3"),
        mx_formulas.modelopt,
        text="as mx/rceil; x / scale; for mxfp4 ties go toward zero, and 0 is -0",
        source="ModelOpt 0.47, torch/quantization/qtensor/mxfp4_tensor.py and mxfp8_tensor.py",
    ),
    Dialect(
        "mx/compressed-tensors-0.20",
        ("mxfp4", "mxfp6-e2m3", "mxfp8-e4m3"),
        mx_formulas.compressed_tensors,
        takes=_TWO,
        text="as mx/even, e4m3 with the fraction of e2m1; x / scale; for mxfp4 -0 is 0",
        source="compressed-tensors 0.20, quantization/utils/mxfp_utils.py",
    ),
    Dialect(
        "mx/gguf",
        ("mxfp4",),
        mx_formulas.gguf,
        text="as mx/floor; x / scale; ties go toward zero, and -0 is 0",
        source="gguf-py 0.19, quants.py",
    ),
    Dialect(
        "mxint8/ocp",
        ("mxint8",),
        mx_formulas.integers,
        text="E; the integer from -127 to 127 nearest to x / (scale * 2^-6)",
        source="OCP MX v1.0, section 6.3; microxcaling, mx_ops.py with rounding to even",
    ),
    Dialect(
        "fp8/exact-1",
        _FP8,
        fp8_formulas.exact,
        exact=True,
        text="A / M rounded up to 15 bits, or to a power of two; the code nearest to x / scale",
        source=_OWN,
    ),
    Dialect(
        "fp8-block/deepseek",
        _FP8_BLOCKS,
        fp8_formulas.deepseek,
        text="max(A, 1e-4) / M, or the power of two that is not below it; x / scale",
        source="DeepSeek-V3.1, inference/kernel.py, act_quant_kernel",
    ),
    Dialect(
        "fp8-block/te-2",
        _FP8_FLOAT32_BLOCKS,
        fp8_formulas.transformer_engine,
        text="m = M / A rounded down to a power of two; scale = 1 / m; x * m",
        source="Transformer Engine 2, common/recipe/recipe_common.cuh, force_pow_2_scales",
    ),
    Dialect(
        "fp8-block/te-2-float32",
        _FP8_FLOAT32_BLOCKS,
        fp8_formulas.transformer_engine_float32,
        text="m = M / A; scale = 1 / m; x * m",
        source="Transformer Engine 2, common/recipe/recipe_common.cuh",
    ),
    Dialect(
        "fp8/torchao-0.18",
        _FP8_FLOAT32,
        fp8_formulas.torchao,
        takes=_TWO,
        text="A / M in x's dtype; x / scale",
        source="torchao 0.18, quantization/quant_primitives.py, _choose_scale_float8",
    ),
    Dialect(
        "fp8/modelopt-0.47",
        _FP8_E4M3,
        fp8_formulas.modelopt,
        takes=_TWO,
        text="A / M and x / scale, both in x's dtype",
        source="ModelOpt 0.47, torch/quantization/qtensor/fp8_tensor.py",
    ),
    Dialect(
        "fp8/compressed-tensors-0.20",
        _FP8_E4M3,
        fp8_formulas.compressed_tensors,
        takes=_TWO,
        text="A / M and x / scale, both in x's dtype",
        source="compressed-tensors 0.20, quantization/utils/helpers.py",
    ),
    Dialect(
        "int/exact-1",
        _INT,
        int_formulas.symmetric,
        exact=True,
        text="A / M rounded up to 15 bits; the integer nearest to x / scale",
        source=_OWN,
    ),
    Dialect(
        "int/affine-1",
        _UINT,
        int_formulas.asymmetric,
        text="(high - low) / M rounded up to 15 bits, 0 among them; zero point -low / scale; rint(x / scale) + zero",
        source=_OWN,
    ),
    Dialect(
        "nf4/qlora",
        ("nf4",),
        int_formulas.code_book,
        text="A; the code whose value is nearest to x / A, the smaller of two as near",
        source="QLoRA (2023), section 3 and appendix E",
    ),
)

_BY_NAME = {row.name: row for row in ROWS}
# What a format is quantised by where nobody says otherwise: the first dialect that makes it.
_DEFAULT = {name: row for row in reversed(ROWS) for name in row.formats}


def of(name: object) -> Dialect:
    """The row that a name stands for; a row is its own.

    Raises:
        OptionError: There is none of that name.
    """
    return formats.named("dialects.of", "dialect", name, Dialect, _BY_NAME)


def default(row: BlockFormat) -> Dialect:
    """The dialect of a format where none is named."""
    return _DEFAULT[row.name]


def dialects(format: object = None) -> tuple[Dialect, ...]:
    """Every dialect, or those that make a block format, the default one first.

    Raises:
        OptionError: There is no such format.
    """
    if format is None:
        return ROWS
    try:
        row = formats.of(format)
    except OptionError as error:
        raise error.renamed("dialects", "format") from None
    return tuple(found for found in ROWS if row.name in found.formats)
