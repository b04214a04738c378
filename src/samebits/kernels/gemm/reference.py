"""The independent meaning of a contraction: numerics.md sections 2 and 3 in NumPy, slow and short."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from samebits import ieee
from samebits.kernels.gemm.contraction import SB1, Spec

Array = NDArray[Any]


def reference(
    a: Array, b: Array, *, spec: Spec = SB1, scale: Array | None = None, alpha: float | None = None,
    beta: float | None = None, c: Array | None = None, bias: Array | None = None, b_scale: Array | None = None,
    b_block: int = 0,
) -> Array:  # fmt: skip
    """t * scale * alpha + beta * c + bias for t = a @ b of floats, every step rounded to float32; NaN canonical.

    Where an operand is float64, everything is float64.

    Args:    a: [..., M, K].   b: [..., K, N].   scale, c, bias: broadcast against [..., M, N].
             b_scale: [..., ceil(K / b_block), N], of blocks of b along K (section 4).
    """
    kind = np.float64 if np.float64 in (a.dtype, b.dtype) else np.float32
    with np.errstate(all="ignore"):
        a, b = a.astype(kind), b.astype(kind)
        scales = None if b_scale is None else (b_scale.astype(kind), b_block)
        parts = [_segment(a, b, low, high, spec.chunk, scales) for low, high in spec.bounds(a.shape[-1])]
        while len(parts) > 1:
            parts = [x + y for x, y in zip(parts[::2], parts[1::2], strict=True)]
        t = parts[0]
        if scale is not None:
            t = t * scale
        if alpha is not None:
            t = t * np.asarray(alpha, kind)
        if c is not None:
            t = t + (c.astype(kind) if beta is None else np.asarray(beta, kind) * c.astype(kind))
        if bias is not None:
            t = t + bias.astype(kind)
    return ieee.canonical(t)


def integers(a: Array, b: Array, a_zero_point: Any = 0, b_zero_point: Any = 0) -> Array:
    """(a - a_zero_point) @ (b - b_zero_point) of integers, exactly, as int64.

    Args:    a: [..., M, K].   b: [..., K, N].   a_zero_point: scalar or [..., M].   b_zero_point: scalar or [..., N].
    """
    zeros = np.asarray(a_zero_point).astype(np.int64), np.asarray(b_zero_point).astype(np.int64)
    left = a.astype(np.int64) - (zeros[0][..., :, None] if zeros[0].ndim else zeros[0])
    right = b.astype(np.int64) - (zeros[1][..., None, :] if zeros[1].ndim else zeros[1])
    return np.asarray(np.matmul(left, right))


def _segment(a: Array, b: Array, low: int, high: int, chunk: int, scales: tuple[Array, int] | None) -> Array:
    """Chunks, added ascending; then + (+0)."""
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2], scales[0].shape[:-2] if scales else ())
    zero = np.zeros((*batch, a.shape[-2], b.shape[-1]), a.dtype)
    t = None
    for start in range(low, high, chunk):
        k = range(start, min(start + chunk, high))
        p = _chain(a, b, k, zero) if scales is None else _blocks(a, b, k, zero, *scales)
        t = p if t is None else t + p
    return zero if t is None else t + zero


def _chain(a: Array, b: Array, ks: range, zero: Array) -> Array:
    """An ascending fma chain from +0."""
    p = zero
    for k in ks:
        p = ieee.fma(a[..., :, k : k + 1], b[..., k : k + 1, :], p)
    return p


def _blocks(a: Array, b: Array, ks: range, zero: Array, scale: Array, size: int) -> Array:
    """A chain for every run of k in one block, times its scale, onto a chain from +0 (section 4)."""
    acc = zero
    for block in range(scale.shape[-2]):
        inside = range(max(ks.start, block * size), min(ks.stop, (block + 1) * size))
        if inside:
            acc = ieee.fma(_chain(a, b, inside, zero), scale[..., block : block + 1, :], acc)
    return acc
