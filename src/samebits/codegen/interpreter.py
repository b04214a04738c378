"""The NumPy meaning of the vocabulary: kernel text computed directly, on the same addresses as compiled code.

This is the Isa row `numpy`. It needs no compiler, so every kernel text can be tried where LLVM is absent, and it is a
second witness of what the LLVM builder means. Indices are Python ints, conditions Python bools, vectors NumPy
arrays (masks: bool arrays). Start at `run`.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from samebits import ieee
from samebits.codegen.isa import Isa
from samebits.codegen.vocabulary import KernelSpec
from samebits.dtypes import DType

Array = Any  # a one-dimensional NumPy array; to texts, as opaque as the vocabulary's Vector


def run(spec: KernelSpec, arguments: Sequence[int], begin: int, end: int, scratch: int) -> None:
    """Perform tasks begin <= t < end of one kernel."""
    builder = NumpyBuilder(spec, arguments, begin, end, scratch)
    with np.errstate(all="ignore"):
        spec.text(builder, spec.description)


@dataclass(frozen=True, slots=True)
class Pointer:
    """An address of elements of `dtype`."""

    address: int
    dtype: DType


def _storage(dtype: DType) -> np.dtype[Any]:
    """How elements lie in memory; formats without NumPy arithmetic are their code points."""
    if dtype.kind == "bool":
        return np.dtype(np.uint8)
    if dtype.kind == "float" and dtype.width_bits < 32:
        return np.dtype(f"u{max(dtype.width_bits, 8) // 8}")
    assert dtype.numpy is not None  # every row that kernels know has one
    return dtype.numpy


class NumpyBuilder:
    """`vocabulary.Builder` that computes as the text goes."""

    def __init__(
        self,
        spec: KernelSpec,
        arguments: Sequence[int],
        begin: int,
        end: int,
        scratch: int,
    ) -> None:
        self.isa: Isa = spec.isa
        self._arguments = dict(zip(spec.parameters, arguments, strict=True))
        self._begin, self._end, self._scratch = begin, end, scratch
        self._locals: list[Array] = []

    # -- arguments and tasks ---------------------------------------------------------------------------------
    def pointer(self, name: str, dtype: DType) -> Pointer:
        return Pointer(self._arguments[name], dtype)

    def index(self, name: str) -> int:
        return self._arguments[name]

    def scalar(self, name: str, dtype: DType) -> Array:
        raw = np.array([self._arguments[name]], np.int64)
        if dtype.kind == "bool":
            return raw != 0
        return raw.view(_storage(dtype))[:1]

    def tasks(self) -> Iterator[int]:
        yield from range(self._begin, self._end)

    def scratch(self, dtype: DType, offset_bytes: int = 0) -> Pointer:
        return Pointer(self._scratch + offset_bytes, dtype)

    def local(self, dtype: DType, count: int) -> Pointer:
        block = np.empty(count * 8 + 64, np.uint8)
        self._locals.append(block)
        return Pointer(-(-block.ctypes.data // 64) * 64, dtype)

    # -- indices and control ---------------------------------------------------------------------------------
    def min(self, x: int, y: int) -> int:
        return min(x, y)

    def max(self, x: int, y: int) -> int:
        return max(x, y)

    def choose(self, condition: bool, x: Any, y: Any) -> Any:
        return x if condition else y

    def loop(self, start: int, stop: int, step: int = 1, carry: list[Any] | None = None) -> Iterator[int]:
        yield from range(start, stop, step)

    def when(self, condition: bool, carry: list[Any] | None = None) -> Iterator[None]:
        if condition:
            yield None

    def function(self, name: str, parameters: Sequence[DType | None], body: Callable[..., None]) -> Any:
        return body

    def call(self, function: Callable[..., None], *arguments: Any) -> None:
        function(*arguments)

    # -- memory ----------------------------------------------------------------------------------------------
    def offset(self, p: Pointer, i: int) -> Pointer:
        return Pointer(p.address + i * _storage(p.dtype).itemsize, p.dtype)

    def cast(self, p: Pointer, dtype: DType) -> Pointer:
        return Pointer(p.address, dtype)

    def _memory(self, p: Pointer, i: int, count: int) -> Array:
        kind = _storage(p.dtype)
        block = (ctypes.c_char * (count * kind.itemsize)).from_address(p.address + i * kind.itemsize)
        return np.frombuffer(memoryview(block), kind)

    def load(self, p: Pointer, i: int, width: int, count: int | None = None) -> Array:
        n = width if count is None else max(0, min(width, count))
        lanes = np.zeros(width, _storage(p.dtype))
        if n:
            lanes[:n] = self._memory(p, i, n)
        return lanes != 0 if p.dtype.kind == "bool" else lanes

    def store(self, p: Pointer, i: int, v: Array, count: int | None = None) -> None:
        n = len(v) if count is None else max(0, min(len(v), count))
        if n:
            self._memory(p, i, n)[:] = v[:n]

    def load_strided(self, p: Pointer, i: int, stride: int, width: int, count: int | None = None) -> Array:
        n = width if count is None else max(0, min(width, count))
        lanes = [self.load(p, i + stride * lane, 1, 1 if lane < n else 0) for lane in range(width)]
        return np.concatenate(lanes)

    def store_strided(self, p: Pointer, i: int, stride: int, v: Array, count: int | None = None) -> None:
        n = len(v) if count is None else max(0, min(len(v), count))
        for lane in range(n):
            self.store(p, i + stride * lane, v[lane : lane + 1])

    def load_index(self, p: Pointer, i: int) -> int:
        return int(self._memory(p, i, 1)[0])

    def prefetch(self, p: Pointer, i: int) -> None:
        """Nothing to compute."""

    # -- making vectors --------------------------------------------------------------------------------------
    def constant(self, value: float | bool, dtype: DType, width: int) -> Array:
        return np.full(width, value, np.bool_ if dtype.kind == "bool" else _storage(dtype))

    def like(self, x: Array, value: float | bool) -> Array:
        return np.full_like(x, value)

    def splat(self, v: Array, width: int) -> Array:
        return np.repeat(v, width)

    def iota(self, dtype: DType, width: int) -> Array:
        return np.arange(width, dtype=_storage(dtype))

    def from_index(self, i: int, dtype: DType) -> Array:
        return np.array([i], np.int64).astype(_storage(dtype))

    def slice(self, v: Array, start: int, width: int) -> Array:
        return v[start : start + width]

    def concat(self, vs: Sequence[Array]) -> Array:
        return np.concatenate(list(vs))

    def transpose(self, vs: Sequence[Array]) -> list[Array]:
        return list(np.stack(list(vs), axis=1))

    def lookup(self, table: Sequence[float], dtype: DType, index: Array) -> Array:
        return np.array(table, _storage(dtype))[index]

    # -- arithmetic ------------------------------------------------------------------------------------------
    def add(self, x: Array, y: Array) -> Array:
        return x + y

    def sub(self, x: Array, y: Array) -> Array:
        return x - y

    def mul(self, x: Array, y: Array) -> Array:
        return x * y

    def div(self, x: Array, y: Array) -> Array:
        return x / y

    def fma(self, x: Array, y: Array, z: Array) -> Array:
        return ieee.fma(x, y, z)

    def sqrt(self, x: Array) -> Array:
        return np.sqrt(x)

    def rint(self, x: Array) -> Array:
        return np.rint(x)

    def neg(self, x: Array) -> Array:
        return -x

    def abs(self, x: Array) -> Array:
        return np.abs(x)

    def maximum(self, x: Array, y: Array) -> Array:
        return ieee.maximum(x, y) if x.dtype.kind == "f" else np.maximum(x, y)

    def minimum(self, x: Array, y: Array) -> Array:
        return ieee.minimum(x, y) if x.dtype.kind == "f" else np.minimum(x, y)

    def canonical(self, x: Array) -> Array:
        return ieee.canonical(x) if x.dtype.kind == "f" else x

    # -- bits, comparisons, choice -----------------------------------------------------------------------------
    def bit_and(self, x: Array, y: Array) -> Array:
        return x & y

    def bit_or(self, x: Array, y: Array) -> Array:
        return x | y

    def bit_xor(self, x: Array, y: Array) -> Array:
        return x ^ y

    def shift_left(self, x: Array, bits: int) -> Array:
        return x << x.dtype.type(bits)

    def shift_right(self, x: Array, bits: int) -> Array:
        return x >> x.dtype.type(bits)

    def equal(self, x: Array, y: Array) -> Array:
        return x == y

    def less(self, x: Array, y: Array) -> Array:
        return x < y

    def less_equal(self, x: Array, y: Array) -> Array:
        return x <= y

    def is_nan(self, x: Array) -> Array:
        return np.isnan(x)

    def invert(self, m: Array) -> Array:
        return ~m

    def select(self, m: Array, x: Array, y: Array) -> Array:
        return np.where(m, x, y)

    def any(self, m: Array) -> bool:
        return bool(m.any())

    # -- conversion ------------------------------------------------------------------------------------------
    def convert(self, x: Array, dtype: DType) -> Array:
        if dtype.kind == "bool":
            return x != 0
        target = _storage(dtype)
        if x.dtype.kind == "f" and dtype.kind != "float":
            return _saturate(x, target)
        return x.astype(target)

    def bitcast(self, x: Array, dtype: DType) -> Array:
        return x.view(_storage(dtype))


def _saturate(x: Array, target: np.dtype[Any]) -> Array:
    """Toward zero, clamped to the target's range, NaN gives 0."""
    limits = np.iinfo(target)
    inside = np.isfinite(x) & (x > float(limits.min) - 1) & (x < float(limits.max) + 1)
    whole = np.where(inside, x, 0).astype(target)
    whole = np.where(x >= float(limits.max) + 1, target.type(limits.max), whole)
    return np.where(x <= float(limits.min) - 1, target.type(limits.min), whole).astype(target)
