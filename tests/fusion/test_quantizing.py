"""`nv_block_quantize`: against a NumPy walk of nvFuser's formula, on every kind of array, and what is refused."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
import torch

import samebits as sb
from samebits.errors import FusionError
from samebits.fusion import DataType, FusionDefinition

F32 = np.float32


def walked(x: np.ndarray, g: np.float32) -> tuple[np.ndarray, np.ndarray]:
    """Codes of elements and of scales, as nvFuser 0.2.36 has them in runtime/block_quantization_kernels.cu."""
    split = x.astype(F32).reshape(*x.shape[:-1], x.shape[-1] // 16, 16)
    scale = np.minimum(np.abs(split).max(-1, initial=0) / F32(6) * g, F32(448)).astype(ml_dtypes.float8_e4m3fn)
    with np.errstate(divide="ignore"):
        factor = np.minimum(F32(1) / (scale.astype(F32) * (F32(1) / g)), np.finfo(F32).max)
    scaled = np.clip(split * factor[..., None], -6, 6).astype(ml_dtypes.float4_e2m1fn)
    return scaled.reshape(x.shape).view(np.uint8), scale.view(np.uint8)


def defined(shape: list[int], dtype: DataType = DataType.Float, *, scaled: bool = True) -> FusionDefinition:
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=shape, contiguity=True, dtype=dtype)
        g = [fd.define_tensor(shape=[], contiguity=True, dtype=DataType.Float)] if scaled else []
        for made in fd.ops.nv_block_quantize(x, *g):
            fd.add_output(made)
    return fd


def codes(x: object) -> np.ndarray:
    """An element a byte."""
    return sb.Tensor.from_any(x).numpy(copy=True).view(np.uint8)


KINDS = [(F32, DataType.Float), (ml_dtypes.bfloat16, DataType.BFloat16), (np.float16, DataType.Half)]


@pytest.mark.parametrize(("kind", "dtype"), KINDS, ids=[name.name for _, name in KINDS])
@pytest.mark.parametrize("shape", [(16,), (5, 48), (2, 3, 64), (0, 32), (4, 0)], ids=str)
def test_elements_and_scales_are_those_of_nvfusers_formula(kind, dtype, shape):
    rng = np.random.default_rng(len(shape))
    x = (rng.standard_normal(shape) * np.exp2(rng.integers(-8, 8, shape))).astype(kind)
    if x.size:
        x[..., :16] = 0
    for scaled in (True, False):
        g = F32(2688) / np.abs(x.astype(F32)).max(initial=1) if scaled else F32(1)
        fd = defined([-1] * len(shape), dtype, scaled=scaled)
        elements, scales = fd.validate([x, np.asarray(g, F32)] if scaled else [x])
        due = walked(x, g)
        np.testing.assert_array_equal(codes(elements), due[0])
        np.testing.assert_array_equal(codes(scales), due[1])


def test_torch_has_two_elements_a_byte_and_eager_calls_the_same_bits():
    x = torch.randn(6, 32, generator=torch.Generator().manual_seed(3)).bfloat16()
    g = 2688 / x.float().abs().max()
    elements, scales = defined([-1, 32], DataType.BFloat16).execute([x, g])
    assert (elements.dtype, tuple(elements.shape)) == (torch.float4_e2m1fn_x2, (6, 16))
    assert (scales.dtype, tuple(scales.shape)) == (torch.float8_e4m3fn, (6, 2))
    q = sb.quantize(x, "nvfp4", dialect="nvfp4/nvfuser-0.2", global_scale=F32(g))
    assert q.elements.equal_bits(sb.Tensor.from_any(elements))
    assert q.scales.equal_bits(sb.Tensor.from_any(scales))


WRONG = [
    (DataType.Float, [4, 24], {}, "input last extent is 24, must be a multiple of 16; pad it with zeros first"),
    (DataType.Int, [4, 32], {}, "input dtype is DataType.Int, must be Float, BFloat16 or Half; cast it first"),
    (DataType.Float, [], {}, "input rank is 0, must be at least 1; broadcast it"),
    (DataType.Float, [4, 32], {"swizzle_block_scales": 1},
     "swizzle_block_scales is 1, must be True or False; leave it out"),
    (DataType.Float, [2, 4, 32], {"swizzle_block_scales": True},
     "input rank is 3, must be 2 where scales are put into tiles; reshape it to a matrix"),
    (DataType.Float, [4, 32], {"block_size": 32}, "block_size is 32, must be 16, that of NVFP4; leave it out"),
    (DataType.Float, [4, 32], {"dtype": DataType.Float8_e4m3fn},
     "dtype is DataType.Float8_e4m3fn, must be DataType.Float4_e2m1fn; leave it out, or quantise by samebits.quantize"),
]  # fmt: skip


@pytest.mark.parametrize(("dtype", "shape", "options", "sentence"), WRONG)
def test_what_is_no_nvfp4_is_refused(dtype, shape, options, sentence):
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=shape, contiguity=True, dtype=dtype)
        with pytest.raises(FusionError) as raised:
            fd.ops.nv_block_quantize(x, **options)
        fd.add_output(fd.ops.neg(fd.define_tensor(shape=[2], contiguity=True, dtype=DataType.Float)))
    assert str(raised.value) == f"nv_block_quantize: {sentence}"


def test_a_global_scale_is_one_float():
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[4, 32], contiguity=True, dtype=DataType.Float)
        with pytest.raises(FusionError) as raised:
            fd.ops.nv_block_quantize(x, x)
        fd.add_output(fd.ops.neg(x))
    expected = "global_scale is DataType.Float of rank 2, must be DataType.Float of rank 0; cast it, and squeeze it"
    assert str(raised.value) == f"nv_block_quantize: {expected}"


def test_an_open_extent_that_is_no_multiple_is_refused_at_the_run():
    with pytest.raises(sb.FusionError, match=r"\[2, 24\].*must be shapes that fit"):
        defined([-1, -1], scaled=False).execute([np.ones((2, 24), F32)])
