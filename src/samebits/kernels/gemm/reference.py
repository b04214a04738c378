"""The independent meaning of a contraction: numerics.md sections 2 to 4 in NumPy, slow and short.

`reference` is the product of floats, `integers` that of integers; `product` has every option of `matmul`.
"""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from samebits import dtypes, ieee
from samebits.dtypes import DType
from samebits.kernels import functions, values
from samebits.kernels.expression import Expression
from samebits.kernels.gemm.contraction import SB1, Spec

Array = NDArray[Any]
Blocked = int | tuple[int, int]
Block = tuple[int, int]  # elements along K, and lines


def reference(
    a: Array, b: Array, *, spec: Spec = SB1, scale: Array | None = None, alpha: float | None = None,
    beta: float | None = None, c: Array | None = None, bias: Array | None = None, a_scale: Array | None = None,
    a_block: Blocked = 0, b_scale: Array | None = None, b_block: Blocked = 0,
) -> Array:  # fmt: skip
    """t * scale * alpha + beta * c + bias for t = a @ b of floats, every step rounded to float32; NaN canonical.

    Where an operand is float64, everything is float64.

    Args:    a: [..., M, K].   b: [..., K, N].   scale, c, bias: broadcast against [..., M, N].
             a_scale: [..., M, ceil(K / a_block)], of blocks of a along K (section 4).
             b_scale: [..., ceil(K / b_block), N], of blocks of b.
             a_block, b_block: elements along K, or a pair: extents along the last two axes.
    """
    kind = np.float64 if np.float64 in (a.dtype, b.dtype) else np.float32
    with np.errstate(all="ignore"):
        a, b = a.astype(kind), b.astype(kind)
        left = None if a_scale is None else _scale_of_each(a_scale.astype(kind), a_block, a.shape, -2)
        right = None if b_scale is None else _scale_of_each(b_scale.astype(kind), b_block, b.shape, -1)
        parts = [_segment(a, b, low, high, spec, left, right) for low, high in spec.bounds(a.shape[-1])]
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


def product(
    a: Array, b: Array, result: DType, *, spec: Spec = SB1, a_scale: Any = None, b_scale: Any = None,
    a_global_scale: Any = None, b_global_scale: Any = None, a_zero_point: Any = None, b_zero_point: Any = None,
    groups: tuple[Block | None, Block | None] = (None, None), c: Array | None = None,
    bias: Array | None = None, alpha: Array | float = 1.0, beta: Array | float = 1.0,
    activation: Expression | None = None, a_dtype: DType | None = None, out_scale: Any = None, out_zero_point: Any = 0,
) -> Array:  # fmt: skip
    """The product of a [..., M, K] and b [..., K, N] with every option of `matmul`, of dtype `result`.

    Args:    scales and zero points in the shapes of `matmul`: one for all, one for each row of a, or column of b or of
             the result, or with `groups` of a and of b for their blocks, elements along K in some lines.
    """
    if a_dtype is not None:
        parts = np.asarray(_lined(a_scale, a, -1), np.float32), np.asarray(_lined(a_zero_point, a, -1), a_dtype.numpy)
        a = functions.row("quantize").reference(a_dtype, a.astype(np.float32), *parts)
    of_a, of_b = groups
    in_blocks = [of_b is not None and np.ndim(x) > 1 for x in (b_scale, b_zero_point)]
    lines = [a_global_scale if of_a else a_scale, b_global_scale if in_blocks[0] else b_scale]
    if not (_is_integer(a) and _is_integer(b)) or any(in_blocks) or of_a:
        right = b
        if b_zero_point is not None:
            right = b.astype(np.float32) - _along_k(b_zero_point, b, of_b if in_blocks[1] else None)
        blocks: dict[str, Any] = {}
        if in_blocks[0] and of_b:
            blocks |= {"b_scale": b_scale, "b_block": (of_b[0], of_b[1])}
        if of_a:
            blocks |= {"a_scale": a_scale, "a_block": (of_a[1], of_a[0])}
        t = reference(a.astype(np.float32) if _is_integer(a) else a, right, spec=spec, **blocks)
    else:
        zeros = (_lined(x, operand, axis) for x, operand, axis in ((a_zero_point, a, -1), (b_zero_point, b, -2)))
        t = np.matmul(*(x.astype(np.int64) - zero for x, zero in zip((a, b), zeros, strict=True)))
        if bias is not None and bias.dtype == np.int32:
            t, bias = t + bias, None
        if result.is_integer and out_scale is None:
            return np.asarray(t.astype(result.numpy))
    given = zip(lines, (a, b), (-1, -2), strict=True)
    scales = [_lined(x, operand, axis) for x, operand, axis in given if x is not None]
    if out_scale is not None:
        factors = [np.asarray(x, np.float32) for x in (*scales, _lined(out_scale, t, -2))]
        zero = np.asarray(_lined(out_zero_point, t, -2), result.numpy)
        return np.asarray(functions.row("requantize").reference(result, t, *factors, zero))
    return _finished(t, result, scales, (alpha, beta), c, bias, activation)


def _is_integer(x: Array) -> bool:
    return dtypes.of(x.dtype).is_integer


def _lined(x: Any, operand: Array, axis: int) -> Array:
    """What lines of an operand share, beside its elements: 0 where there is nothing; `axis` is that of K."""
    x = np.asarray(0 if x is None else x)
    if x.size == 1 and all(extent == 1 for extent in x.shape):
        x = x.reshape(())
    elif x.ndim < operand.ndim:
        x = np.expand_dims(x, axis)
    return np.asarray(x.astype(np.int64) if _is_integer(x) else x)


def _along_k(x: Any, b: Array, group: Block | None) -> Array:
    """Zero points of b beside its elements, those of blocks repeated along K and across lines."""
    if group is None:
        return np.asarray(_lined(x, b, -2).astype(np.float32))
    found = np.repeat(np.repeat(np.asarray(x).astype(np.float32), group[0], -2), group[1], -1)
    return np.asarray(found[..., : b.shape[-2], : b.shape[-1]])


def _finished(
    t: Array, result: DType, scales: list[Array], factors: Sequence[Array | float], c: Array | None,
    bias: Array | None, activation: Expression | None,
) -> Array:  # fmt: skip
    """Step 4 of section 2: each operation rounds once; the result is converted once."""
    kind: Any = np.float64 if t.dtype == np.float64 else np.float32
    alpha, beta = (np.asarray(x, kind) for x in factors)
    with np.errstate(all="ignore"):
        t = t.astype(kind)
        if scales:
            t = t * np.asarray(functools.reduce(operator.mul, (x.astype(kind) for x in scales)))
        t = t * alpha
        if c is not None:
            t = t + beta * c.astype(kind)
        if bias is not None:
            t = t + bias.astype(kind)
        t = ieee.canonical(t)
        if activation is not None:
            (t,) = values.reference(activation, [t])
        return ieee.canonical(t).astype(result.numpy)


def _scale_of_each(scale: Array, block: Blocked, shape: Sequence[int], line: int) -> tuple[Array, int]:
    """Scales of blocks, one for every line, and the elements of a block along K; `line` is the axis of lines."""
    if not isinstance(block, tuple):
        return scale, block
    lines, size = block if line == -2 else block[::-1]
    return np.repeat(scale, lines, line).take(range(shape[line]), line), size


def _segment(
    a: Array, b: Array, low: int, high: int, spec: Spec, left: tuple[Array, int] | None,
    right: tuple[Array, int] | None,
) -> Array:  # fmt: skip
    """Chunks, added ascending; then + (+0)."""
    fronts = [x.shape[:-2] for x in (a, b, *(y[0] for y in (left, right) if y))]
    zero = np.zeros((*np.broadcast_shapes(*fronts), a.shape[-2], b.shape[-1]), a.dtype)
    t = None
    summed = _CHUNKS[spec.order]
    for start in range(low, high, spec.chunk):
        k = range(start, min(start + spec.chunk, high))
        p = summed(a, b, k, zero) if left is right is None else _blocks(a, b, k, zero, left, right)
        t = p if t is None else t + p
    return zero if t is None else t + zero


def _chain(a: Array, b: Array, ks: range, zero: Array) -> Array:
    """An ascending fma chain from +0."""
    p = zero
    for k in ks:
        p = ieee.fma(a[..., :, k : k + 1], b[..., k : k + 1, :], p)
    return p


def _pairs32(a: Array, b: Array, ks: range, zero: Array) -> Array:
    """Blocks of 32 added ascending from +0, each the chain of its even k plus that of its odd k."""
    acc = zero
    for start in range(0, len(ks), 32):
        block = ks[start : start + 32]
        acc = acc + (_chain(a, b, block[::2], zero) + _chain(a, b, block[1::2], zero))
    return acc


# How a chunk is summed, by the name of the order.
_CHUNKS: Mapping[str, Callable[[Array, Array, range, Array], Array]] = MappingProxyType({
    "sb1": _chain, "pairs32": _pairs32,
})  # fmt: skip


def _blocks(
    a: Array, b: Array, ks: range, zero: Array, left: tuple[Array, int] | None, right: tuple[Array, int] | None
) -> Array:
    """A chain for every run of k in one block of each side, times the scales' product, onto a chain from +0 (section
    4)."""
    acc = zero
    edges = {ks.start, ks.stop}
    for _, size in (x for x in (left, right) if x):
        edges |= {k for k in ks if k % size == 0}
    for low, high in itertools.pairwise(sorted(edges)):
        factors = []
        if left:
            factors.append(left[0][..., :, low // left[1], None])
        if right:
            factors.append(right[0][..., low // right[1], None, :])
        scale = functools.reduce(operator.mul, factors)
        acc = ieee.fma(_chain(a, b, range(low, high), zero), scale, acc)
    return acc
