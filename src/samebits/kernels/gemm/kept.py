"""Panels by NumPy, of a right operand that is known before any kernel is compiled, and for any row.

The words are those of the kernel `pack.pack_panels`, in the order that `packed` documents. Start at `panels`;
`scaled_panels` has the scales of blocks behind weights, whose codes it keeps.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from samebits import dtypes
from samebits.dtypes import DType, bfloat16
from samebits.kernels.functions import exact
from samebits.kernels.gemm import engine as engines
from samebits.kernels.gemm.engine import Engine
from samebits.kernels.gemm.facts import NOTHING, SUBNORMAL
from samebits.kernels.gemm.inner import size_words
from samebits.kernels.gemm.packed import scales_at, size_scaled

Array = npt.NDArray[Any]


def panels(b: Array, engine: Engine, nr: int, empty: Callable[..., Array] = np.empty) -> Array:
    """b[k, n] as words [panel][step][nr] and their facts, missing elements and columns zero; in memory of `empty(count,
    dtype)`."""
    k, n = b.shape
    steps, count, depth = engine.steps(k), -(-n // nr), engine.depth
    codes = _elements(b, engine)
    if codes.shape != (steps * depth, count * nr):
        whole = np.zeros((steps * depth, count * nr), codes.dtype)
        whole[:k, :n] = codes
        codes = whole
    # A pair of bfloat16 has its first element in the high bits.
    order = slice(None, None, -1) if engine.b is bfloat16 else slice(None)
    parts = codes.reshape(steps, depth, count, nr).transpose(2, 0, 3, 1)[..., order]
    assert engine.word.numpy is not None and engine.b.numpy is not None  # every word is a NumPy number
    words = empty(size_words(engine, k, count * nr), engine.word.numpy)
    packed = words[: steps * count * nr]
    packed.view(codes.dtype).reshape(parts.shape)[...] = parts
    if engine.has_facts:
        facts = codes.view(engine.b.numpy).sum(axis=0, dtype=np.int64) if engine.exact else _lowest_bits(codes)
        words[packed.size :] = facts.astype(np.int32).view(words.dtype)
    return words


def scaled_panels(
    b: Array, engine: Engine, nr: int, group: tuple[int, int], kept: DType, scale: Array, zero: Array | None,
    empty: Callable[..., Array] = np.empty,
) -> Array:  # fmt: skip
    """b[k, n] as codes [panel][step][nr] of one of NIBBLES or WEIGHTS, and behind them scales [panel][block][nr]; in
    memory of `empty(count, dtype)`.

    Args:    group: the extents of a block along K and of columns.   kept: what scales are kept as.
             scale: [blocks along K, blocks of columns].   zero: the same of zero points, which leave the elements.
    """
    (k, n), (size, lines) = b.shape, group
    count = -(-n // nr)
    if zero is not None:
        points = np.repeat(np.repeat(zero.astype(np.int64), size, 0)[:k], lines, 1)[:, :n]
        b = (b.astype(np.int64) - points).astype(engine.b.numpy)
    words = _nibbles(b, engine.depth, nr) if engine in engines.NIBBLES else panels(b, engine, nr)
    values = np.repeat(exact.widened(scale).astype(np.float32), lines, 1)[:, :n]
    of_blocks = np.zeros((len(values), count * nr), np.float32)
    of_blocks[:, :n] = values
    found = np.ascontiguousarray(of_blocks.reshape(-1, count, nr).transpose(1, 0, 2))
    narrow = (found.view(np.uint32) >> 16).astype(np.uint16) if kept is bfloat16 else found
    made = empty(size_scaled(k, n, nr, engine, size, kept), engine.word.numpy)
    made[: words.size], made[words.size :] = words, 0
    at = scales_at(k, n, nr, engine)
    made.view(np.uint8)[at : at + narrow.nbytes] = narrow.ravel().view(np.uint8)
    return made


def _nibbles(b: Array, depth: int, nr: int) -> Array:
    """Codes of four bits, `depth` of a column in a word."""
    from samebits.kernels.gemm.nibble_panels import place  # which other weights do without

    k, n = b.shape
    codes = np.zeros((k, -(-n // nr) * nr), np.uint32)
    codes[:, :n] = b.view(np.uint8) & 15
    places = np.array([place(i) for i in range(depth)], np.uint32)[:, None]
    words = np.bitwise_or.reduce(codes.reshape(k // depth, depth, -1) << places, axis=1)
    return np.ascontiguousarray(words.reshape(k // depth, -1, nr).transpose(1, 0, 2)).ravel()


def _elements(b: Array, engine: Engine) -> Array:
    """The codes that words are made of, as unsigned integers of an element's width."""
    element, x = engine.b, exact.widened(b)
    assert element.numpy is not None  # engines multiply numbers of NumPy's and ml_dtypes'
    if element.is_integer:
        source = dtypes.of(b.dtype)
        whole = x if x.dtype.kind in "iu" else x / np.float32(engines.unit(source))
        x = whole.astype(np.int64) + engines.offset(element, source)
    return x.astype(element.numpy, copy=False).view(_unsigned(element))


def _unsigned(element: DType) -> str:
    return f"u{element.element_bytes}"


def _lowest_bits(codes: Array) -> Array:
    """For each column the exponent of the lowest bit that any bfloat16 in it may have: its last one."""
    magnitudes = codes & 0x7FFF
    least = np.where(magnitudes == 0, 0x8000, magnitudes).min(axis=0).astype(np.int64)
    found = (least >> bfloat16.mantissa_bits) - (bfloat16.bias + bfloat16.mantissa_bits)
    found = np.where(least < 1 << bfloat16.mantissa_bits, SUBNORMAL, found)
    return np.where(least == 0x8000, NOTHING, found)
