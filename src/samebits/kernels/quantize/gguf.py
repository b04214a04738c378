"""Blocks of GGUF files, by NumPy: what their bytes mean. One row a type; start at `ROWS`, then `decode`.

A block is a run of bytes: scales first or last, elements of 4 to 8 bits whose low and high halves lie apart. All is
computed in float32, one rounding an operation, in the order of ggml's own dequantisation (ggml/src/ggml-quants.c):
(d * scale) * element, minus dmin * minimum where a type has one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from samebits import driver, dtypes, elements, ieee
from samebits.frozen import dataclass
from samebits.kernels.quantize import formats

__all__ = ["ROWS", "GgufBlock", "decode", "of"]

Array = npt.NDArray[Any]
Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class GgufBlock:
    """One type of GGUF.

    Attributes:
        name: As GGUF calls it.
        elements: Elements of a block.
        size_bytes: Bytes of a block.
        values: (bytes of blocks, uint8 [n, size_bytes]) to float32 [n, elements].
        text: What a value is, in words.
    """

    name: str
    elements: int
    size_bytes: int
    values: Callable[[Bytes], Array]
    text: str = ""

    def __repr__(self) -> str:
        return self.name


def _half(raw: Bytes) -> Array:
    """Two bytes a block as one float16, as float32 [n, 1]."""
    return np.ascontiguousarray(raw).view(np.float16).astype(np.float32)


def _halves(raw: Bytes, run: int) -> Array:
    """The low halves of each run of bytes, then their high halves."""
    parts = raw.reshape(len(raw), -1, 1, run)
    return np.concatenate([parts & 15, parts >> 4], axis=2).reshape(len(raw), -1)


def _bits(raw: Bytes, run: int, width: int) -> Array:
    """As `_halves` of elements of `width` bits: the lowest of each run of bytes, then the next ones."""
    parts = raw.reshape(len(raw), -1, 1, run)
    mask = np.uint8((1 << width) - 1)
    return np.concatenate([parts >> np.uint8(s) & mask for s in range(0, 8, width)], axis=2).reshape(len(raw), -1)


def _signed(codes: Array, offset: int) -> Array:
    """Codes less an offset, as float32."""
    return (codes.astype(np.int16) - np.int16(offset)).astype(np.float32)


def _each(scales: Array, count: int) -> Array:
    """Each scale for as many elements."""
    return np.repeat(scales, count, axis=1)


def _q8_0(raw: Bytes) -> Array:
    return _half(raw[:, :2]) * raw[:, 2:].view(np.int8).astype(np.float32)


def _q4_0(raw: Bytes) -> Array:
    return _half(raw[:, :2]) * _signed(_halves(raw[:, 2:], 16), 8)


def _q5_0(raw: Bytes) -> Array:
    high = np.unpackbits(np.ascontiguousarray(raw[:, 2:6]), axis=1, bitorder="little")
    return _half(raw[:, :2]) * _signed(_halves(raw[:, 6:], 16) | high << 4, 16)


def _scales_and_minima(raw: Bytes) -> tuple[Array, Array]:
    """Eight scales and eight minima of 6 bits: four of each in a byte's low bits, the top bits of the others above."""
    low, middle, shared = raw[:, :4], raw[:, 4:8], raw[:, 8:]
    scales = np.concatenate([low & 63, shared & 15 | low >> 6 << 4], axis=1)
    minima = np.concatenate([middle & 63, shared >> 4 | middle >> 6 << 4], axis=1)
    return scales.astype(np.float32), minima.astype(np.float32)


def _affine(raw: Bytes, codes: Array) -> Array:
    """(d * scale) * code - dmin * minimum, a scale and a minimum for 32 elements."""
    scales, minima = _scales_and_minima(raw[:, 4:16])
    steps, offsets = _half(raw[:, :2]) * scales, _half(raw[:, 2:4]) * minima
    return _each(steps, 32) * codes.astype(np.float32) - _each(offsets, 32)


def _q4_k(raw: Bytes) -> Array:
    return _affine(raw, _halves(raw[:, 16:], 32))


def _q5_k(raw: Bytes) -> Array:
    return _affine(raw, _halves(raw[:, 48:], 32) | _bits(raw[:, 16:48], 32, 1) << 4)


def _q6_k(raw: Bytes) -> Array:
    codes = _halves(raw[:, :128], 64) | _bits(raw[:, 128:192], 32, 2) << 4
    scales = _half(raw[:, 208:]) * raw[:, 192:208].view(np.int8).astype(np.float32)
    return _each(scales, 16) * _signed(codes, 32)


# The code book of IQ4_NL.
_STEPS = np.array(
    [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], np.float32
)  # fmt: skip


def _iq4_nl(raw: Bytes) -> Array:
    return _half(raw[:, :2]) * _STEPS[_halves(raw[:, 2:], 16)]


def _e2m1(codes: Array) -> Array:
    """The values of e2m1, in which -0 does not occur."""
    return np.asarray(elements.decode(codes, dtypes.float4_e2m1fn) + np.float32(0))


def _mxfp4(raw: Bytes) -> Array:
    """A code of 255 is 2^128 here, not NaN: half of it is what doubled elements are multiplied with."""
    exponent = raw[:, :1].astype(np.int32) - 128
    halved: Array = np.ldexp(np.float32(1), exponent)
    return halved * (_e2m1(_halves(raw[:, 1:], 16)) * np.float32(2))


def _nvfp4(raw: Bytes) -> Array:
    """Four scales of e4m3, whose sign is ignored and whose NaN is 0, and 16 elements each."""
    scales = elements.decode(raw[:, :4] & 0x7F, dtypes.float8_e4m3fn)
    scales = np.where(np.isnan(scales), np.float32(0), scales)
    return _each(scales, 16) * _e2m1(_halves(raw[:, 4:], 8))


ROWS: tuple[GgufBlock, ...] = (
    GgufBlock("Q8_0", 32, 34, _q8_0, "d * q, q of 8 bits"),
    GgufBlock("Q4_0", 32, 18, _q4_0, "d * (q - 8)"),
    GgufBlock("Q5_0", 32, 22, _q5_0, "d * (q - 16)"),
    GgufBlock("Q4_K", 256, 144, _q4_k, "(d * scale) * q - dmin * minimum, scales and minima of 6 bits for 32 each"),
    GgufBlock("Q5_K", 256, 176, _q5_k, "as Q4_K, q of 5 bits"),
    GgufBlock("Q6_K", 256, 210, _q6_k, "(d * scale) * (q - 32), scales of 8 bits for 16 each"),
    GgufBlock("IQ4_NL", 32, 18, _iq4_nl, "d * a code book of integers"),
    GgufBlock("MXFP4", 32, 17, _mxfp4, "2^(code - 127) * e2m1"),
    GgufBlock("NVFP4", 64, 36, _nvfp4, "e4m3 * e2m1, four scales for 16 each"),
)

_BY_NAME = {row.name: row for row in ROWS}


def of(name: object) -> GgufBlock:
    """The row that a name stands for; a row is its own.

    Raises:
        OptionError: There is none of that name.
    """
    return formats.named("gguf.of", "type", name, GgufBlock, _BY_NAME)


@driver.default_float_environment()
def decode(raw: Bytes, row: GgufBlock) -> Array:
    """The values of blocks that follow each other: uint8 [..., n * size_bytes] to float32 [..., n * elements]."""
    shape = (*raw.shape[:-1], raw.shape[-1] // row.size_bytes * row.elements)
    if not raw.size:
        return np.empty(shape, np.float32)
    blocks = np.ascontiguousarray(raw).reshape(-1, row.size_bytes)
    with np.errstate(invalid="ignore", over="ignore"):
        found = row.values(blocks)
    return ieee.canonical(found).reshape(shape)
