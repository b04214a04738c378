"""Gradients by NumPy, word for word from numerics.md section 5: what tests of `samebits.torch` compare bits with."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import torch

from samebits import ieee
from samebits.kernels.functions import sequences
from samebits.kernels.gemm.contraction import SB1, Spec

Array = np.ndarray[Any, Any]
NUMPY = {
    torch.float64: np.dtype(np.float64), torch.float32: np.dtype(np.float32), torch.float16: np.dtype(np.float16),
    torch.bfloat16: np.dtype(ml_dtypes.bfloat16),
}  # fmt: skip


def numbers(x: torch.Tensor) -> Array:
    """A tensor as an array of what is computed with: float32, or float64."""
    wide = torch.float64 if x.dtype is torch.float64 else torch.float32
    return x.detach().to(wide).contiguous().numpy()


def bits(x: torch.Tensor | Array) -> bytes:
    """The code points of an array, NaN canonical only if the array has it so."""
    if isinstance(x, torch.Tensor):
        x = x.detach().contiguous()
        return (
            x.view(torch.int64 if x.element_size() == 8 else torch.int32 if x.element_size() == 4 else torch.int16)
            .numpy()
            .tobytes()
        )
    return np.ascontiguousarray(x).tobytes()


def given(x: Array, dtype: torch.dtype) -> Array:
    """Rounded once to a dtype of torch; a NaN is canonical."""
    kind = NUMPY[dtype]
    with np.errstate(all="ignore"):
        y = ieee.canonical(np.asarray(x)).astype(kind)
    if dtype is torch.bfloat16:  # ml_dtypes keeps the sign of a NaN
        y = np.where(np.isnan(y.astype(np.float32)), np.uint16(0x7FC0), y.view(np.uint16)).view(kind)
    return y


def contraction(a: Array, b: Array, spec: Spec = SB1) -> Array:
    """Section 2, steps 2 and 3: a [..., M, K] by b [..., K, N]."""
    kind = a.dtype
    shape = (*np.broadcast_shapes(a.shape[:-2], b.shape[:-2]), a.shape[-2], b.shape[-1])
    parts = []
    for low, high in spec.bounds(a.shape[-1]):
        t: Array | None = None
        for start in range(low, high, spec.chunk):
            p: Array = np.zeros(shape, kind)
            for k in range(start, min(start + spec.chunk, high)):
                p = ieee.fma(a[..., k : k + 1], b[..., k : k + 1, :], p)
            t = p if t is None else t + p
        parts.append(np.zeros(shape, kind) if t is None else t + np.zeros((), kind))
    while len(parts) > 1:
        parts = [x + y for x, y in zip(parts[::2], parts[1::2], strict=True)]
    return parts[0]


def sum_of_rows(x: Array, spec: Spec = SB1) -> Array:
    """A contraction with ones over the axis before the last."""
    return contraction(np.ones((1, x.shape[-2]), x.dtype), x, spec)[..., 0, :]


def total(x: Array) -> Array:
    """Section 6 along the last axis, which stays with extent 1."""
    while x.shape[-1] > 1:
        parts = []
        for start in range(0, x.shape[-1], 2048):
            block = x[..., start : start + 2048]
            lanes = [block[..., lane] for lane in range(min(64, block.shape[-1]))]
            for i in range(64, block.shape[-1]):
                lanes[i % 64] = lanes[i % 64] + block[..., i]
            for half in (32, 16, 8, 4, 2, 1):
                for lane in range(half):
                    if lane + half < len(lanes):
                        lanes[lane] = lanes[lane] + lanes[lane + half]
                lanes = lanes[:half]
            parts.append(lanes[0])
        x = np.stack(parts, axis=-1)
    return x if x.shape[-1] else np.zeros((*x.shape[:-1], 1), x.dtype)


def mean(x: Array) -> Array:
    """Section 6: the sum along the last axis divided by its count in the format."""
    return total(x) / x.dtype.type(x.shape[-1])


def exp(x: Array) -> Array:
    """Correctly rounded float32: float64's is within an ulp of its own, and no sample lies that near to a tie.

    Of float64 the sequence of section 7, which a test of its own holds next to MPFR.
    """
    if x.dtype == np.float64:
        return sequences.MEANINGS["exp"](x)
    return np.exp(x.astype(np.float64)).astype(np.float32)


def log(x: Array) -> Array:
    """As `exp`."""
    if x.dtype == np.float64:
        return sequences.MEANINGS["log"](x)
    return np.log(x.astype(np.float64)).astype(np.float32)


def erf(x: Array) -> Array:
    """As `exp`."""
    if x.dtype == np.float64:
        return sequences.MEANINGS["erf"](x)
    return torch.erf(torch.from_numpy(x.astype(np.float64))).numpy().astype(np.float32)


def constant(x: Array, single: int, double: int) -> Any:
    """The constant of these bits: of the float32, or where x is float64 of that."""
    return np.uint64(double).view(np.float64) if x.dtype == np.float64 else np.uint32(single).view(np.float32)


def exp_gradient(x: Array, y: Array, dy: Array) -> Array:
    return dy * y


def log_gradient(x: Array, y: Array, dy: Array) -> Array:
    return dy / x


def erf_gradient(x: Array, y: Array, dy: Array) -> Array:
    return dy * (exp(-(x * x)) * constant(x, 0x3F906EBB, 0x3FF20DD750429B6D))


def relu_gradient(x: Array, y: Array, dy: Array) -> Array:
    return np.where(y <= 0, np.zeros_like(dy), dy)


def gelu_gradient(x: Array, y: Array, dy: Array) -> Array:
    half = x.dtype.type(0.5)
    c = half * (x.dtype.type(1) + erf(x * constant(x, 0x3F3504F3, 0x3FE6A09E667F3BCD)))
    p = exp((x * -half) * x) * constant(x, 0x3ECC422A, 0x3FD9884533D43651)
    return dy * (c + x * p)


def tanh(x: Array) -> Array:
    """As `exp`."""
    if x.dtype == np.float64:
        return sequences.MEANINGS["tanh"](x)
    return np.tanh(x.astype(np.float64)).astype(np.float32)


def gelu_tanh_gradient(x: Array, y: Array, dy: Array) -> Array:
    half, one, root = x.dtype.type(0.5), x.dtype.type(1), constant(x, 0x3F4C422A, 0x3FE9884533D43651)
    t = tanh(root * (x + constant(x, 0x3D372713, 0x3FA6E4E26D4801F7) * ((x * x) * x)))
    q = root * (one + constant(x, 0x3E095D4F, 0x3FC12BA9D1F60179) * (x * x))
    return dy * (half * (one + t) + (half * x) * ((one - t * t) * q))


def sigmoid(x: Array) -> Array:
    """As `exp`."""
    if x.dtype == np.float64:
        return sequences.MEANINGS["sigmoid"](x)
    return torch.sigmoid(torch.from_numpy(x.astype(np.float64))).numpy().astype(np.float32)


def sigmoid_gradient(x: Array, y: Array, dy: Array) -> Array:
    return dy * (y * (1 - y))


def tanh_gradient(x: Array, y: Array, dy: Array) -> Array:
    return dy * (1 - y * y)


def silu_gradient(x: Array, y: Array, dy: Array) -> Array:
    s = sigmoid(x)
    return dy * (s * (1 + x * (1 - s)))


def softmax_gradient(x: Array, y: Array, dy: Array) -> Array:
    return y * (dy - total(dy * y))


def log_softmax(x: Array) -> Array:
    low = x - x.max(-1, keepdims=True)
    return low - log(total(exp(low)))


def log_softmax_gradient(x: Array, y: Array, dy: Array) -> Array:
    return dy - exp(y) * total(dy)


def normalised(x: Array, eps: float, centred: bool = True) -> tuple[Array, Array]:
    """Section 8: (x - mean) * rstd, and rstd; of an RMS norm without the mean."""
    d = x - mean(x) if centred else x
    rstd = x.dtype.type(1) / np.sqrt(mean(d * d) + x.dtype.type(eps))
    return d * rstd, rstd


def layer_norm_gradient(x: Array, dy: Array, weight: Array, eps: float) -> Array:
    h, rstd = normalised(x, eps)
    g = dy * weight
    return ((g - mean(g)) - h * mean(g * h)) * rstd


def rms_norm_gradient(x: Array, dy: Array, weight: Array, eps: float) -> Array:
    h, rstd = normalised(x, eps, False)
    g = dy * weight
    return (g - h * mean(g * h)) * rstd


def cross_entropy_gradient(x: Array, target: Array, g: Array) -> Array:
    e = exp(x - x.max(-1, keepdims=True))
    hit = (np.arange(x.shape[1]) == target[:, None]).astype(x.dtype)
    return np.where(target[:, None] < 0, x.dtype.type(0), (e / total(e) - hit) * g[:, None])


def embedding_gradient(dy: Array, indices: Array, count: int, spec: Spec = SB1) -> Array:
    """Section 5, row by row: sums of chunks, then of segments, then their tree."""
    parts = []
    for low, high in spec.bounds(len(dy)):
        t = np.zeros((count, dy.shape[1]), dy.dtype)
        for start in range(low, high, spec.chunk):
            p = np.zeros_like(t)
            for row in range(start, min(start + spec.chunk, high)):
                if indices[row] >= 0:
                    p[indices[row]] += dy[row]
            t += p
        parts.append(t)
    while len(parts) > 1:
        parts = [a + b for a, b in zip(parts[::2], parts[1::2], strict=True)]
    return parts[0]
