"""What dialects mean: nearest codes where they are exact, and published formulas written once more, on their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
import quantize_samples

from samebits import elements
from samebits.kernels.quantize import blocks, dialects, formats, reference

Array = npt.NDArray[Any]
Float32 = np.float32

SAMPLES = dict(quantize_samples.samples(128, 256))
KINDS = [np.float32, ml_dtypes.bfloat16, np.float16]
EXACT = [(d, formats.of(f)) for d in dialects.ROWS if d.exact for f in d.formats]
# Each sample is of one kind of numbers by default, of the next one for the next dialect; what is no number is of all.
CASES = [
    pytest.param(
        dialect, row, sample, kind, id=f"{dialect.name}-{row.name}-{sample}-{np.dtype(kind).name}",
        marks=pytest.mark.exhaustive if turn % len(KINDS) and np.isfinite(SAMPLES[sample]).all() else (),
    )
    for number, (dialect, row) in enumerate(EXACT)
    for start, sample in enumerate(SAMPLES, number)
    for turn, kind in enumerate(KINDS, start)
]  # fmt: skip


def as_kind(name: str, kind: Any) -> Array:
    with np.errstate(all="ignore"):
        return SAMPLES[name].astype(np.float32).astype(kind)


def nearest(x: Array, scale: Array, row: formats.BlockFormat) -> Array:
    """The code of the element nearest to x / scale, ties to an even code, by comparing with midpoints in float64."""
    codes = np.arange(1 << (row.element.width_bits - 1), dtype=np.uint8)
    values = elements.decode(codes, row.element).astype(np.float64)
    codes, values = codes[np.isfinite(values)], values[np.isfinite(values)]
    middles = (values[1:] + values[:-1]) / 2
    found = np.zeros(x.shape, np.uint8)
    for code, middle in zip(codes[1:], middles, strict=True):
        limit = scale * middle  # exact: 24 bits by 10
        found = np.where((abs(x) > limit) | ((abs(x) == limit) & (code % 2 == 0)), code, found)
    return found


@pytest.mark.parametrize(("dialect", "row", "sample", "kind"), CASES)
def test_exact_dialects_give_the_nearest_code_for_the_stored_scales(
    dialect: dialects.Dialect, row: formats.BlockFormat, sample: str, kind: Any
) -> None:
    x = as_kind(sample, kind)
    parts = reference.quantize(x, row, dialect)
    cut = blocks.Blocking(row, x.shape, -1)
    wide = cut.split(x.astype(np.float64))
    scales = parts.scales.astype(np.float64)
    if parts.global_scale is not None:
        scales = scales * parts.global_scale.astype(np.float64)
    scale = np.broadcast_to(cut.spread(scales), wide.shape)
    codes = cut.split(parts.elements)
    whole = np.isfinite(wide).all(axis=cut.within, keepdims=True)
    assert (np.isnan(scale) == ~whole).all()
    assert (codes[np.isnan(scale)] == 0).all()
    with np.errstate(invalid="ignore"):
        if row.element.is_integer:
            values = elements.decode(parts.elements, row.element)
            due = np.clip(np.rint(wide / scale), row.element.min, row.element.max)  # the quotient's midpoints are exact
            found = cut.split(values.astype(np.float64))
            assert (found == due)[~np.isnan(scale)].all()
            return
        due = nearest(wide, scale, row)
    sign = np.uint8(1 << (row.element.width_bits - 1))
    due = due | np.where(np.signbit(wide), sign, np.uint8(0))
    assert (codes == due)[~np.isnan(scale)].all()


@pytest.mark.parametrize("row", [formats.of("nvfp4"), formats.of("nvfp4-16x16")], ids=str)
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_nan_or_an_infinity_changes_no_other_block(row: formats.BlockFormat, value: float) -> None:
    x = as_kind("normal", np.float32)
    before = reference.quantize(x, row, dialects.default(row))
    x[40, 70] = value if abs(x[40, 70]) < abs(x).max() else x[40, 70]
    after = reference.quantize(x, row, dialects.default(row))
    assert before.global_scale == after.global_scale
    r, c = row.block
    assert r is not None
    assert c is not None
    inside = np.zeros(x.shape, bool)
    inside[40 // r * r : 40 // r * r + r, 70 // c * c : 70 // c * c + c] = True
    np.testing.assert_array_equal(before.elements[~inside], after.elements[~inside])
    assert np.isnan(reference.dequantize(after, row)[inside]).all()
    assert np.isfinite(reference.dequantize(after, row)[~inside]).all()


def codes_of(y: Array, kind: Any) -> Array:
    """Codes of numbers within the format, rounded to nearest even by ml_dtypes."""
    top = np.float32(ml_dtypes.finfo(kind).max)
    return np.clip(y, -top, top).astype(kind).view(np.uint8)


def te_nvfp4(x: Array) -> tuple[Array, Array, Array]:
    """Transformer Engine 2, common/cast/nvfp4: compute_global_encode_scaling_factor_FP4 and
    compute_decoding_scaling_factor, then mul_cvt with the rounding of cvt.rn.satfinite."""
    split = x.astype(np.float32).reshape(len(x), -1, 16)
    amax = np.abs(split).max()
    with np.errstate(all="ignore"):
        g = np.minimum(Float32(2688) / amax, np.finfo(np.float32).max)
        g = Float32(1) if amax == 0 or g == 0 else g
        scale = np.minimum(np.abs(split).max(-1) * (g * (Float32(1) / Float32(6))), Float32(448))
        stored = scale.astype(ml_dtypes.float8_e4m3fn)
        stored.view(np.uint8)[np.isnan(scale)] = 0x7F
        factor = Float32(1) / (stored.astype(np.float32) * (Float32(1) / g))
        y = split * np.minimum(factor, np.finfo(np.float32).max)[..., None]
    codes = np.where(np.isnan(y), 7, codes_of(np.nan_to_num(y), ml_dtypes.float4_e2m1fn))
    return codes.reshape(x.shape), stored.view(np.uint8), g


def nvfuser_nvfp4(x: Array) -> tuple[Array, Array, Array]:
    """nvFuser 0.2.36, runtime/block_quantization_kernels.cu: block_quantize_to_nvfp4_util, and the global scale of
    tests/python/direct/test_narrow_precision.py; NaN, which its maximum skips, stays in its block."""
    split = x.astype(np.float32).reshape(len(x), -1, 16)
    amax, largest = np.abs(split).max(), np.finfo(np.float32).max
    with np.errstate(all="ignore"):
        g = np.minimum(Float32(2688) / amax, largest)
        g = Float32(1) if amax == 0 or g == 0 else g
        scale = np.minimum(np.minimum(np.abs(split).max(-1) / Float32(6) * g, largest), Float32(448))
        stored = scale.astype(ml_dtypes.float8_e4m3fn)
        stored.view(np.uint8)[np.isnan(scale)] = 0x7F
        factor = np.minimum(Float32(1) / (stored.astype(np.float32) * (Float32(1) / g)), largest)
        y = split * factor[..., None]
    codes = np.where(np.isnan(y), 7, codes_of(np.nan_to_num(y), ml_dtypes.float4_e2m1fn))
    return codes.reshape(x.shape), stored.view(np.uint8), g


def flashinfer_nvfp4(x: Array) -> tuple[Array, Array, Array]:
    """FlashInfer, tests/utils_fp4.py: ref_fp4_quant with g = 448 * 6 / amax."""
    split = x.astype(np.float32).reshape(len(x), -1, 16)
    with np.errstate(all="ignore"):
        g = Float32(2688) / np.abs(split).max()
        scale = np.minimum(g * (np.abs(split).max(-1) * (Float32(1) / Float32(6))), Float32(448))
        stored = scale.astype(ml_dtypes.float8_e4m3fn)
        stored.view(np.uint8)[np.isnan(scale)] = 0x7F
        product = stored.astype(np.float32) * (Float32(1) / g)
        factor = np.where(product == 0, Float32(0), Float32(1) / product)
        y = split * factor[..., None]
    codes = np.where(np.isnan(y), 0, codes_of(np.nan_to_num(y), ml_dtypes.float4_e2m1fn))
    return codes.reshape(x.shape), stored.view(np.uint8), g


@pytest.mark.parametrize("kind", KINDS[:2], ids=lambda kind: np.dtype(kind).name)
@pytest.mark.parametrize("sample", SAMPLES)
@pytest.mark.parametrize(
    ("name", "formula"),
    [("nvfp4/te-2", te_nvfp4), ("nvfp4/nvfuser-0.2", nvfuser_nvfp4), ("nvfp4/flashinfer", flashinfer_nvfp4)],
)
def test_nvfp4_of_kernels_is_the_published_formula(
    name: str, formula: Callable[[Array], tuple[Array, Array, Array]], sample: str, kind: Any
) -> None:
    x = as_kind(sample, kind)
    codes, scales, g = formula(x)
    parts = reference.quantize(x, formats.of("nvfp4"), dialects.of(name))
    np.testing.assert_array_equal(parts.scales.view(np.uint8), scales)
    np.testing.assert_array_equal(parts.elements, codes)
    np.testing.assert_array_equal(parts.global_scale, g)


def deepseek_fp8(tile: Array) -> tuple[Array, Array]:
    """DeepSeek-V3.1, inference/kernel.py: act_quant_kernel with scale_fmt None."""
    amax = np.maximum(np.abs(tile).max(), Float32(1e-4))
    s = amax / Float32(448)
    return codes_of(tile / s, ml_dtypes.float8_e4m3fn), s


def te_fp8(tile: Array) -> tuple[Array, Array]:
    """Transformer Engine 2, common/recipe/recipe_common.cuh: compute_scale_from_amax with force_pow_2_scales."""
    amax = np.abs(tile).max()
    s = Float32(1)
    with np.errstate(over="ignore"):
        if amax != 0 and np.isfinite(amax):
            s = Float32(448) / amax
            s = np.finfo(np.float32).max if np.isinf(s) else s
            s = Float32(2.0 ** (np.frexp(np.float64(s))[1] - 1))
        return codes_of(tile * s, ml_dtypes.float8_e4m3fn), Float32(1) / s


@pytest.mark.parametrize("sample", [name for name in SAMPLES if "nan" not in name and "inf" not in name])
@pytest.mark.parametrize(("name", "formula"), [("fp8-block/deepseek", deepseek_fp8), ("fp8-block/te-2", te_fp8)])
@pytest.mark.parametrize("format", ["fp8-1x128", "fp8-128x128"])
def test_blocks_of_float8_are_the_published_formula(
    name: str, formula: Callable[[Array], tuple[Array, Array]], format: str, sample: str
) -> None:
    x, row = as_kind(sample, np.float32), formats.of(format)
    parts = reference.quantize(x, row, dialects.of(name))
    rows = row.block[0]
    assert rows is not None
    for i in range(0, len(x), rows):
        for j in range(0, x.shape[1], 128):
            codes, scale = formula(x[i : i + rows, j : j + 128])
            assert parts.scales[i // rows, j // 128] == scale
            np.testing.assert_array_equal(parts.elements[i : i + rows, j : j + 128], codes)


def test_integers_with_zero_points_span_their_block_and_hold_zero() -> None:
    x = as_kind("normal", np.float32) + np.float32(0.75)
    for row in formats.ROWS:
        if row.zero_point is None:
            continue
        parts = reference.quantize(x, row, dialects.default(row))
        y = reference.dequantize(parts, row)
        step = blocks.Blocking(row, x.shape, -1)
        limit = step.spread(parts.scales) * np.float32(1.01)
        assert (abs(step.split(y) - step.split(x)) <= limit).all()
        zeros = reference.quantize(np.zeros((128, 128), np.float32), row, dialects.default(row))
        assert (reference.dequantize(zeros, row) == 0).all()


def test_codes_of_nf4_are_nearest_in_its_code_book() -> None:
    row = formats.of("nf4")
    assert row.codebook is not None
    book = np.array(row.codebook)
    x = as_kind("normal", np.float32)
    parts = reference.quantize(x, row, dialects.default(row))
    y = (x.reshape(-1, 64) / np.abs(x.reshape(-1, 64)).max(-1, keepdims=True)).astype(np.float64)
    due = np.abs(y[..., None] - book).argmin(-1)
    np.testing.assert_array_equal(parts.elements.reshape(-1, 64), due)


@pytest.mark.parametrize("row", [r for r in formats.ROWS if r.partial and r.zero_point is None], ids=str)
def test_a_short_last_block_has_the_scale_of_its_own_elements(row: formats.BlockFormat) -> None:
    x = as_kind("normal", np.float32)[:100, :200]
    parts = reference.quantize(x, row, dialects.default(row))
    r, c = (n or whole for n, whole in zip(row.block, x.shape, strict=True))
    for i, j in ((0, 0), (parts.scales.shape[0] - 1, parts.scales.shape[1] - 1)):
        piece = x[i * r : (i + 1) * r, j * c : (j + 1) * c]
        alone = reference.quantize(piece, row, dialects.default(row))
        np.testing.assert_array_equal(alone.elements, parts.elements[i * r : (i + 1) * r, j * c : (j + 1) * c])
        assert alone.scales[0, 0] == parts.scales[i, j]


def test_blocks_along_the_other_axis_are_those_of_the_transpose() -> None:
    x = as_kind("normal", np.float32)
    for row in formats.ROWS:
        along = reference.quantize(x, row, dialects.default(row), -2)
        turned = reference.quantize(np.ascontiguousarray(x.T), row, dialects.default(row))
        np.testing.assert_array_equal(along.elements, turned.elements.T)
        np.testing.assert_array_equal(along.scales.astype(np.float32), turned.scales.T.astype(np.float32))
        np.testing.assert_array_equal(reference.dequantize(along, row, axis=-2), reference.dequantize(turned, row).T)
