"""The independent meaning of a contraction: numerics.md section 2 in NumPy, slow and short."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from samebits import ieee
from samebits.kernels.gemm.contraction import SB1, Spec

Float32s = NDArray[np.float32]


def reference(
    a: Float32s, b: Float32s, *, spec: Spec = SB1, alpha: float | None = None, beta: float | None = None,
    c: Float32s | None = None, bias: Float32s | None = None,
) -> Float32s:  # fmt: skip
    """t * alpha + beta * c + bias for t = a @ b, every step rounded to float32; NaN canonical.

    Args:    a: [..., M, K].   b: [..., K, N].   c, bias: broadcast against [..., M, N].
    """
    with np.errstate(all="ignore"):
        parts = [_segment(a[..., low:high], b[..., low:high, :], spec.chunk) for low, high in spec.bounds(a.shape[-1])]
        while len(parts) > 1:
            parts = [x + y for x, y in zip(parts[::2], parts[1::2], strict=True)]
        t = parts[0]
        if alpha is not None:
            t = t * np.float32(alpha)
        if c is not None:
            t = t + (c if beta is None else np.float32(beta) * c)
        if bias is not None:
            t = t + bias
    return ieee.canonical(t)


def _segment(a: Float32s, b: Float32s, chunk: int) -> Float32s:
    """Chunks of ascending fma chains from +0, added ascending; then + (+0)."""
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    zero = np.zeros((*batch, a.shape[-2], b.shape[-1]), np.float32)
    t = None
    for start in range(0, a.shape[-1], chunk):
        p = zero
        for k in range(start, min(start + chunk, a.shape[-1])):
            p = ieee.fma(a[..., :, k : k + 1], b[..., k : k + 1, :], p)
        t = p if t is None else t + p
    return zero if t is None else t + zero
