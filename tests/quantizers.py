"""The quantisers of other packages, on NumPy arrays: what each stores of x.

The packages are loaded by the first of them that is asked.
"""
# ruff: noqa: F401 (`tools` gives what it imports by name)

from __future__ import annotations

import functools
import types
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt
import torch

Array = npt.NDArray[Any]


@functools.cache
def tools() -> types.SimpleNamespace:
    """What is used of the packages, by its name: loading them takes ten seconds, which collecting tests must not.

    At import they warn of themselves, and warnings are errors in tests.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from compressed_tensors.compressors.mx_utils import compress_mx_scale
        from compressed_tensors.compressors.mxfp6.helpers import pack_fp6_to_uint8
        from compressed_tensors.compressors.nvfp4.helpers import pack_fp4_to_uint8
        from compressed_tensors.quantization import QuantizationArgs
        from compressed_tensors.quantization.lifecycle.forward import quantize as ct_quantize
        from compressed_tensors.quantization.utils import calculate_qparams, generate_gparam
        from modelopt.torch.quantization.qtensor import FP8QTensor, MXFP4QTensor, MXFP8QTensor, NVFP4QTensor
        from torchao.prototype.mx_formats.config import ScaleCalculationMode
        from torchao.prototype.mx_formats.mx_tensor import to_mx
        from torchao.prototype.mx_formats.nvfp4_tensor import nvfp4_quantize, per_tensor_amax_to_scale
        from torchao.prototype.mx_formats.utils import to_blocked
        from torchao.quantization.quant_primitives import _choose_scale_float8, _quantize_affine_float8
    return types.SimpleNamespace(**locals())


@dataclass(frozen=True, slots=True, eq=False)
class Stored:
    """What a tool stores: codes of elements, an element a byte; scale codes; its global scale."""

    elements: Array
    scales: Array
    global_scale: Array | None = None


def to_torch(x: Array) -> torch.Tensor:
    """The same numbers as a torch tensor."""
    if x.dtype == np.float32:
        return torch.from_numpy(x.copy())
    return torch.from_numpy(x.view(np.int16).copy()).view(torch.bfloat16)


def codes_of(t: torch.Tensor) -> Array:
    """A tensor's elements of 8 bits as they lie."""
    return t.contiguous().view(torch.uint8).numpy()


def nibbles(packed: Array) -> Array:
    """Two elements a byte, the first in the low half."""
    return np.stack([packed & 15, packed >> 4], -1).reshape(*packed.shape[:-1], -1)


def sixes(packed: Array) -> Array:
    """Four elements of 6 bits in three bytes, the first in the lowest bits."""
    first, second, third = (packed.reshape(len(packed), -1, 3)[..., i].astype(np.uint32) for i in range(3))
    word = first | second << 8 | third << 16
    return np.stack([word >> shift & 63 for shift in (0, 6, 12, 18)], -1).reshape(len(packed), -1).astype(np.uint8)


def torchao_nvfp4(x: Array) -> Stored:
    t = to_torch(x)
    s = tools().per_tensor_amax_to_scale(torch.amax(torch.abs(t)))
    scales, packed = tools().nvfp4_quantize(t, 16, s)
    return Stored(nibbles(codes_of(packed)), codes_of(scales).reshape(len(x), -1), s.numpy())


def modelopt_nvfp4(x: Array) -> Stored:
    q, scales, s = tools().NVFP4QTensor.quantize(to_torch(x), 16)
    return Stored(nibbles(codes_of(q._quantized_data)), codes_of(scales), s.numpy())


def compressed_nvfp4(x: Array) -> Stored:
    t = to_torch(x)
    args = tools().QuantizationArgs(
        num_bits=4, type="float", strategy="tensor_group", group_size=16, symmetric=True,
        scale_dtype=torch.float8_e4m3fn, zp_dtype=torch.float8_e4m3fn,
    )  # fmt: skip
    g = tools().generate_gparam(*torch.aminmax(t))
    low, high = (f(t.unflatten(-1, (-1, 16)), dim=-1) for f in (torch.amin, torch.amax))
    scales, _ = tools().calculate_qparams(low, high, args, global_scale=g)
    q = tools().ct_quantize(x=t, scale=scales, global_scale=g, zero_point=None, args=args)
    return Stored(nibbles(codes_of(tools().pack_fp4_to_uint8(q))), codes_of(scales.to(torch.float8_e4m3fn)), g.numpy())


_TORCHAO_ELEMENTS = {
    "mxfp4": torch.float4_e2m1fn_x2,
    "mxfp6-e2m3": "fp6_e2m3",
    "mxfp6-e3m2": "fp6_e3m2",
    "mxfp8-e4m3": torch.float8_e4m3fn,
    "mxfp8-e5m2": torch.float8_e5m2,
}


def torchao_mx(name: str, mode: str) -> Callable[[Array], Stored]:
    def quantise(x: Array) -> Stored:
        scales, data = tools().to_mx(
            to_torch(x), _TORCHAO_ELEMENTS[name], 32, tools().ScaleCalculationMode[mode.upper()]
        )
        found = codes_of(data)
        return Stored(nibbles(found) if name == "mxfp4" else found, codes_of(scales))

    return quantise


def modelopt_mxfp4(x: Array) -> Stored:
    q, scales = tools().MXFP4QTensor.quantize(to_torch(x), 32)
    return Stored(nibbles(codes_of(q._quantized_data)), codes_of(scales).reshape(len(x), -1))


def modelopt_mxfp8(x: Array) -> Stored:
    q, scales = tools().MXFP8QTensor.quantize(to_torch(x))
    return Stored(codes_of(q._quantized_data), codes_of(scales))


def compressed_mx(bits: int) -> Callable[[Array], Stored]:
    def quantise(x: Array) -> Stored:
        t = to_torch(x)
        args = tools().QuantizationArgs(
            num_bits=bits, type="float", strategy="group", group_size=32, symmetric=True,
            scale_dtype=torch.uint8, zp_dtype=torch.uint8,
        )  # fmt: skip
        low, high = (f(t.unflatten(-1, (-1, 32)), dim=-1) for f in (torch.amin, torch.amax))
        scales, _ = tools().calculate_qparams(low, high, args)
        q = tools().ct_quantize(x=t, scale=scales, zero_point=None, args=args)
        stored = codes_of(tools().compress_mx_scale(scales, torch.uint8))
        if bits == 4:
            return Stored(nibbles(codes_of(tools().pack_fp4_to_uint8(q))), stored)
        if bits == 8:
            return Stored(codes_of(q.to(torch.float8_e4m3fn)), stored)
        return Stored(sixes(codes_of(tools().pack_fp6_to_uint8(q))), stored)

    return quantise


def gguf_mxfp4(x: Array) -> Stored:
    with np.errstate(all="ignore"):
        blocks = gguf.quants.quantize(x.astype(np.float32), gguf.GGMLQuantizationType.MXFP4)
    raw = blocks.reshape(-1, 17)
    codes = np.concatenate([raw[:, 1:] & 15, raw[:, 1:] >> 4], 1)
    return Stored(codes.reshape(x.shape), raw[:, 0].reshape(len(x), -1))


def extents(name: str, shape: tuple[int, ...]) -> tuple[int, int]:
    """Rows and columns of a block of float8."""
    rows, columns = shape
    kinds = {"tensor": shape, "row": (1, columns), "column": (rows, 1), "1x128": (1, 128), "128x128": (128, 128)}
    return kinds[name.removeprefix("fp8-").removeprefix("e5m2-")]


def torchao_fp8(name: str) -> Callable[[Array], Stored]:
    def quantise(x: Array) -> Stored:
        t, dtype = to_torch(x), torch.float8_e5m2 if "e5m2" in name else torch.float8_e4m3fn
        scales = tools()._choose_scale_float8(t, list(extents(name, x.shape)), dtype)
        return Stored(codes_of(tools()._quantize_affine_float8(t, scales, dtype)), scales.numpy().view(np.uint32))

    return quantise


def modelopt_fp8(name: str) -> Callable[[Array], Stored]:
    def quantise(x: Array) -> Stored:
        rows, columns = extents(name, x.shape)
        axes: dict[str, Any] = {"fp8-tensor": {"axis": None}, "fp8-row": {"axis": 0}, "fp8-column": {"axis": 1}}.get(
            name, {"block_sizes": {-1: columns, -2: rows}}
        )
        q, scales = tools().FP8QTensor.quantize(to_torch(x), **axes)
        shape = (x.shape[0] // rows, x.shape[1] // columns)
        return Stored(codes_of(q._quantized_data), scales.float().reshape(shape).numpy().view(np.uint32))

    return quantise


def compressed_fp8(name: str) -> Callable[[Array], Stored]:
    def quantise(x: Array) -> Stored:
        t, (rows, columns) = to_torch(x), extents(name, x.shape)
        kinds: dict[str, dict[str, Any]] = {
            "fp8-tensor": {"strategy": "tensor"},
            "fp8-row": {"strategy": "channel"},
            "fp8-128x128": {"strategy": "block", "block_structure": [128, 128]},
            "fp8-1x128": {"strategy": "group", "group_size": 128},
        }
        args = tools().QuantizationArgs(num_bits=8, type="float", symmetric=True, **kinds[name])
        split = t.reshape(x.shape[0] // rows, rows, x.shape[1] // columns, columns)
        low, high = (f(split, dim=(1, 3)) for f in (torch.amin, torch.amax))
        scales, _ = tools().calculate_qparams(low, high, args)
        given = scales.reshape(1) if name == "fp8-tensor" else scales
        q = tools().ct_quantize(x=t, scale=given, zero_point=None, args=args, dtype=torch.float8_e4m3fn)
        return Stored(codes_of(q), scales.float().numpy().view(np.uint32))

    return quantise


_FP8 = ("fp8-tensor", "fp8-row", "fp8-column", "fp8-1x128", "fp8-128x128")


def tiles(scales: Array) -> Array:
    """Scales of a matrix in tiles of 128 by 4."""
    found: Array = tools().to_blocked(torch.from_numpy(scales.copy())).flatten().numpy()
    return found


TOOLS: dict[tuple[str, str], Callable[[Array], Stored]] = {
    ("nvfp4/torchao-0.18", "nvfp4"): torchao_nvfp4,
    ("nvfp4/modelopt-0.47", "nvfp4"): modelopt_nvfp4,
    ("nvfp4/compressed-tensors-0.20", "nvfp4"): compressed_nvfp4,
    **{
        (f"mx/{mode}", name): torchao_mx(name, mode)
        for mode in ("floor", "ceil", "even", "rceil")
        for name in _TORCHAO_ELEMENTS
    },
    **{("fp8/torchao-0.18", n): torchao_fp8(n) for name in _FP8 for n in (name, name.replace("fp8", "fp8-e5m2"))},
    **{("fp8/modelopt-0.47", name): modelopt_fp8(name) for name in _FP8},
    **{("fp8/compressed-tensors-0.20", name): compressed_fp8(name) for name in _FP8 if name != "fp8-column"},
    ("mx/gguf", "mxfp4"): gguf_mxfp4,
    ("mx/modelopt-0.47", "mxfp4"): modelopt_mxfp4,
    ("mx/modelopt-0.47", "mxfp8-e4m3"): modelopt_mxfp8,
    ("mx/compressed-tensors-0.20", "mxfp4"): compressed_mx(4),
    ("mx/compressed-tensors-0.20", "mxfp6-e2m3"): compressed_mx(6),
    ("mx/compressed-tensors-0.20", "mxfp8-e4m3"): compressed_mx(8),
}
