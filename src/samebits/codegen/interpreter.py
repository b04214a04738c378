"""The NumPy meaning of the vocabulary: kernel text computed directly, on the same addresses as compiled code.

This is the Isa row `numpy`. It needs no compiler, so every kernel text can be tried where LLVM is absent, and it is a
second witness of what the LLVM builder means. Indices are Python ints, conditions Python bools, vectors a NumPy array
each (masks: bool arrays; formats without NumPy arithmetic: their code points). Start at `run`.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from samebits import dtypes, ieee
from samebits.codegen import rules
from samebits.codegen.isa import Isa
from samebits.codegen.vocabulary import FunctionSpec, KernelSpec
from samebits.dtypes import DType
from samebits.frozen import dataclass

Array = npt.NDArray[Any]


def run(spec: KernelSpec, arguments: Sequence[int | FunctionSpec], begin: int, end: int, scratch: int) -> None:
    """Perform tasks begin <= t < end of one kernel; a function stands for its address."""
    builder = NumpyBuilder(spec, arguments, begin, end, scratch)
    with np.errstate(all="ignore"):
        spec.text(builder, spec.description)


@dataclass(frozen=True, slots=True)
class ArrayPointer:
    """An address of elements of `dtype`, a multiple of their size if `aligned`."""

    address: int
    dtype: DType
    aligned: bool = True


@dataclass(frozen=True, slots=True)
class ArrayVector:
    """`lanes` in the storage of `dtype`, or bools."""

    dtype: DType
    lanes: Array

    @property
    def width(self) -> int:
        """How many lanes."""
        return len(self.lanes)


@functools.cache
def _storage(dtype: DType) -> np.dtype[Any]:
    """How elements lie in memory; formats that NumPy does not compute in are their code points."""
    if dtype.kind == "bool":
        return np.dtype(np.uint8)
    if dtype.width_bits < (32 if dtype.is_float else 8):
        return np.dtype(f"u{max(dtype.width_bits, 8) // 8}")
    assert dtype.numpy is not None  # every row that kernels know has one
    return dtype.numpy


class NumpyBuilder:
    """`vocabulary.Builder` that computes as the text goes."""

    def __init__(
        self,
        spec: KernelSpec,
        arguments: Sequence[int | FunctionSpec],
        begin: int,
        end: int,
        scratch: int,
    ) -> None:
        self.isa: Isa = spec.isa
        named = len(spec.parameters)
        self._arguments: dict[str, Any] = dict(zip(spec.parameters, arguments[:named], strict=True))
        self._further = np.array(arguments[named:], np.int64)
        self._begin, self._end, self._scratch = begin, end, scratch
        self._locals: list[Array] = []
        self._tiles = 0

    # -- arguments and tasks ---------------------------------------------------------------------------------
    def pointer(self, name: str, dtype: DType) -> ArrayPointer:
        return ArrayPointer(self._arguments[name], dtype)

    def index(self, name: str) -> int:
        return int(self._arguments[name])

    def scalar(self, name: str, dtype: DType) -> ArrayVector:
        raw = np.array([self._arguments[name]], np.int64)
        return ArrayVector(dtype, raw != 0 if dtype.kind == "bool" else raw.view(_storage(dtype))[:1])

    def callee(self, name: str, parameters: Sequence[DType | None]) -> Callable[..., None]:
        function: FunctionSpec = self._arguments[name]
        return functools.partial(self._called, function)

    def _called(self, function: FunctionSpec, *arguments: Any) -> None:
        """Run the text of a function, whose tiles are numbered apart from the caller's."""
        outer, self._tiles = self._tiles, 0
        function.text(self, function.description, *arguments)
        self._tiles = outer

    def further(self) -> ArrayPointer:
        return ArrayPointer(self._further.ctypes.data, dtypes.int64)

    def tasks(self) -> Iterator[int]:
        yield from range(self._begin, self._end)

    def scratch(self, dtype: DType, offset_bytes: int = 0) -> ArrayPointer:
        return ArrayPointer(self._scratch + offset_bytes, dtype)

    def local(self, dtype: DType, count: int) -> ArrayPointer:
        block = np.empty(count * 8 + 64, np.uint8)
        self._locals.append(block)
        return ArrayPointer(-(-block.ctypes.data // 64) * 64, dtype)

    # -- indices and control ---------------------------------------------------------------------------------
    def min(self, x: int, y: int) -> int:
        return min(x, y)

    def max(self, x: int, y: int) -> int:
        return max(x, y)

    def choose(self, condition: bool, x: Any, y: Any) -> Any:
        return x if condition else y

    def loop(self, start: int, stop: int, step: int = 1, carry: list[Any] | None = None) -> Iterator[int]:
        rules.step(step)
        yield from range(start, stop, step)

    def when(self, condition: bool, carry: list[Any] | None = None) -> Iterator[None]:
        if condition:
            yield None

    def function(self, name: str, parameters: Sequence[DType | None], body: Callable[..., None]) -> Any:
        return body

    def call(self, function: Callable[..., None], *arguments: Any) -> None:
        rules.passed(*arguments)
        function(*arguments)

    # -- memory ----------------------------------------------------------------------------------------------
    def offset(self, p: ArrayPointer, i: int) -> ArrayPointer:
        return ArrayPointer(p.address + i * _storage(p.dtype).itemsize, p.dtype, p.aligned)

    def anchor(self, p: ArrayPointer, after: Sequence[ArrayVector] = ()) -> ArrayPointer:
        return p

    def cast(self, p: ArrayPointer, dtype: DType, aligned: bool = True) -> ArrayPointer:
        return ArrayPointer(p.address, dtype, aligned)

    def _memory(self, p: ArrayPointer, i: int, count: int, stride: int = 1) -> Array:
        """`count` elements, at least one, each `stride` elements behind the one before."""
        kind, last = _storage(p.dtype), stride * (count - 1)
        lowest = p.address + (i + min(last, 0)) * kind.itemsize
        block = (ctypes.c_char * ((abs(last) + 1) * kind.itemsize)).from_address(lowest)
        return np.ndarray((count,), kind, memoryview(block), max(-last, 0) * kind.itemsize, (stride * kind.itemsize,))

    def load(self, p: ArrayPointer, i: int, width: int, count: int | None = None) -> ArrayVector:
        return self.load_strided(p, i, 1, width, count)

    def store(self, p: ArrayPointer, i: int, v: ArrayVector, count: int | None = None) -> None:
        self.store_strided(p, i, 1, v, count)

    def load_strided(self, p: ArrayPointer, i: int, stride: int, width: int, count: int | None = None) -> ArrayVector:
        n = _covered(width, count)
        lanes = np.zeros(width, _storage(p.dtype))
        if n:
            lanes[:n] = self._memory(p, i, n, stride)
        return ArrayVector(p.dtype, lanes != 0 if p.dtype.kind == "bool" else lanes)

    def store_strided(self, p: ArrayPointer, i: int, stride: int, v: ArrayVector, count: int | None = None) -> None:
        rules.stored(p.dtype, v)
        n = _covered(v.width, count)
        if n:
            self._memory(p, i, n, stride)[:] = v.lanes[:n]

    def load_index(self, p: ArrayPointer, i: int) -> int:
        rules.indexed(p.dtype)
        return int(self._memory(p, i, 1)[0])

    def prefetch(self, p: ArrayPointer, i: int, level: int = 1) -> None:
        """Nothing to compute."""

    def misaligned(self, p: ArrayPointer, size_bytes: int) -> int:
        return p.address % size_bytes

    def store_nontemporal(self, p: ArrayPointer, i: int, v: ArrayVector) -> None:
        self.store(p, i, v)

    def fence(self) -> None:
        """Nothing to compute."""

    # -- making vectors --------------------------------------------------------------------------------------
    def constant(self, value: float | bool, dtype: DType, width: int) -> ArrayVector:
        kind = np.bool_ if dtype.kind == "bool" else _storage(dtype)
        return ArrayVector(dtype, np.full(width, rules.constant(value, dtype), kind))

    def like(self, x: ArrayVector, value: float | bool) -> ArrayVector:
        return self.constant(value, x.dtype, x.width)

    def splat(self, v: ArrayVector, width: int) -> ArrayVector:
        rules.single("splat", v)
        return ArrayVector(v.dtype, np.repeat(v.lanes, width))

    def iota(self, dtype: DType, width: int) -> ArrayVector:
        rules.iota(dtype, width)
        return ArrayVector(dtype, np.arange(width, dtype=_storage(dtype)))

    def from_index(self, i: int, dtype: DType) -> ArrayVector:
        return self.convert(ArrayVector(dtypes.int64, np.array([i], np.int64)), dtype)

    def slice(self, v: ArrayVector, start: int, width: int) -> ArrayVector:
        rules.part(v, start, width)
        return ArrayVector(v.dtype, v.lanes[start : start + width])

    def concat(self, vs: Sequence[ArrayVector]) -> ArrayVector:
        rules.sequence("concat", vs)
        return ArrayVector(vs[0].dtype, np.concatenate([v.lanes for v in vs]))

    def pick(self, vs: Sequence[ArrayVector], lanes: Sequence[int]) -> ArrayVector:
        rules.picked(vs, lanes)
        return ArrayVector(vs[0].dtype, np.concatenate([v.lanes for v in vs])[list(lanes)])

    def join(self, v: ArrayVector, dtype: DType) -> ArrayVector:
        rules.joined(v, dtype)
        each = v.lanes.astype(_storage(dtype)).reshape(-1, dtype.width_bits // v.dtype.width_bits)
        found = np.zeros(len(each), each.dtype)
        for place, lanes in enumerate(each.T):
            found |= lanes << each.dtype.type(place * v.dtype.width_bits)
        return ArrayVector(dtype, found)

    def transpose(self, vs: Sequence[ArrayVector]) -> list[ArrayVector]:
        rules.same("transpose", *vs)
        return [ArrayVector(vs[0].dtype, lanes) for lanes in np.stack([v.lanes for v in vs], axis=1)]

    def transpose_blocks(self, vs: Sequence[ArrayVector]) -> list[ArrayVector]:
        rules.blocks(vs)
        squares = np.stack([v.lanes for v in vs]).reshape(len(vs), -1, len(vs))
        return [ArrayVector(vs[0].dtype, lanes.ravel()) for lanes in squares.transpose(2, 1, 0)]

    def lookup(self, table: Sequence[float], dtype: DType, index: ArrayVector) -> ArrayVector:
        rules.table(len(table), dtype, index)
        entries = np.array([rules.constant(x, dtype) for x in table], _storage(dtype))
        return ArrayVector(dtype, entries[index.lanes])

    def lookup_at(self, p: ArrayPointer, i: int, index: ArrayVector) -> ArrayVector:
        rules.table_in_memory(p.dtype, index)
        return ArrayVector(p.dtype, self._memory(p, i, 16)[index.lanes & 15])

    def lookup_halves(self, table: Sequence[int], index: ArrayVector) -> ArrayVector:
        rules.halves_table(table, index)
        codes = np.array(table, np.uint32)
        return ArrayVector(index.dtype, codes[index.lanes & 31] | codes[index.lanes >> 16 & 31] << np.uint32(16))

    def lookup_bytes(self, table: Sequence[int], index: ArrayVector) -> ArrayVector:
        rules.bytes_table(table, index)
        codes = np.array(table, np.uint8)
        return ArrayVector(index.dtype, codes[index.lanes.copy().view(np.uint8)].view(np.uint32))

    # -- arithmetic ------------------------------------------------------------------------------------------
    def add(self, x: ArrayVector, y: ArrayVector) -> ArrayVector:
        rules.numbers("add", x, y)
        return ArrayVector(x.dtype, x.lanes + y.lanes)

    def sub(self, x: ArrayVector, y: ArrayVector) -> ArrayVector:
        rules.numbers("sub", x, y)
        return ArrayVector(x.dtype, x.lanes - y.lanes)

    def mul(self, x: ArrayVector, y: ArrayVector) -> ArrayVector:
        rules.numbers("mul", x, y)
        return ArrayVector(x.dtype, x.lanes * y.lanes)

    def div(self, x: ArrayVector, y: ArrayVector) -> ArrayVector:
        rules.floats("div", x, y)
        return ArrayVector(x.dtype, x.lanes / y.lanes)

    def quotient(self, x: ArrayVector, y: ArrayVector) -> ArrayVector:
        rules.integers("quotient", x, y)
        return ArrayVector(x.dtype, (x.lanes - np.fmod(x.lanes, y.lanes)) // y.lanes)

    def fma(self, x: ArrayVector, y: ArrayVector, z: ArrayVector) -> ArrayVector:
        rules.floats("fma", x, y, z)
        return ArrayVector(x.dtype, ieee.fma(x.lanes, y.lanes, z.lanes))

    def sqrt(self, x: ArrayVector) -> ArrayVector:
        rules.floats("sqrt", x)
        return ArrayVector(x.dtype, np.sqrt(x.lanes))

    def rint(self, x: ArrayVector) -> ArrayVector:
        rules.floats("rint", x)
        return ArrayVector(x.dtype, np.rint(x.lanes))

    def neg(self, x: ArrayVector) -> ArrayVector:
        rules.numbers("neg", x)
        return ArrayVector(x.dtype, -x.lanes)

    def abs(self, x: ArrayVector) -> ArrayVector:
        rules.numbers("abs", x)
        return ArrayVector(x.dtype, np.abs(x.lanes))

    def maximum(self, x: ArrayVector, y: ArrayVector) -> ArrayVector:
        rules.numbers("maximum", x, y)
        function = ieee.maximum if x.dtype.is_float else np.maximum
        return ArrayVector(x.dtype, function(x.lanes, y.lanes))

    def minimum(self, x: ArrayVector, y: ArrayVector) -> ArrayVector:
        rules.numbers("minimum", x, y)
        function = ieee.minimum if x.dtype.is_float else np.minimum
        return ArrayVector(x.dtype, function(x.lanes, y.lanes))

    def canonical(self, x: ArrayVector) -> ArrayVector:
        if not x.dtype.is_float:
            return x
        rules.floats("canonical", x)
        return ArrayVector(x.dtype, ieee.canonical(x.lanes))

    # -- inner products of neighbours ----------------------------------------------------------------------------
    def dot2_bfloat16(self, acc: ArrayVector, x: ArrayVector, y: ArrayVector) -> ArrayVector:
        """Subnormals are taken for zero, as by the instruction set that may: a kernel that lets one meet shows it."""
        rules.dot("dot2_bfloat16", acc, x, y)
        total = _flushed(acc.lanes)
        for half in (1, 0):
            first, second = (
                _flushed((v.lanes.view(np.uint16)[half::2].astype(np.uint32) << 16).view(np.float32)) for v in (x, y)
            )
            total = _flushed(ieee.fma(first, second, total))
        return ArrayVector(acc.dtype, total)

    def _dot(
        self, word: str, kinds: tuple[type[Any], type[Any]], acc: ArrayVector, x: ArrayVector, y: ArrayVector
    ) -> ArrayVector:
        rules.dot(word, acc, x, y)
        pairs = [
            v.lanes.view(kind).astype(np.int64).reshape(v.width, -1) for v, kind in zip((x, y), kinds, strict=True)
        ]
        total = acc.lanes + (pairs[0] * pairs[1]).sum(axis=1)
        return ArrayVector(acc.dtype, total.astype(np.int32))

    def dot2_int16(self, acc: ArrayVector, x: ArrayVector, y: ArrayVector) -> ArrayVector:
        return self._dot("dot2_int16", (np.int16, np.int16), acc, x, y)

    def dot4_uint8_int8(self, acc: ArrayVector, x: ArrayVector, y: ArrayVector) -> ArrayVector:
        return self._dot("dot4_uint8_int8", (np.uint8, np.int8), acc, x, y)

    def dot4_int8(self, acc: ArrayVector, x: ArrayVector, y: ArrayVector) -> ArrayVector:
        return self._dot("dot4_int8", (np.int8, np.int8), acc, x, y)

    def dot4_uint8(self, acc: ArrayVector, x: ArrayVector, y: ArrayVector) -> ArrayVector:
        return self._dot("dot4_uint8", (np.uint8, np.uint8), acc, x, y)

    # -- tiles ---------------------------------------------------------------------------------------------------
    def tiles(self) -> Iterator[None]:
        yield None

    def tile(self) -> Array:
        self._tiles += 1
        rules.tile_number(self._tiles)
        return np.empty((rules.TILE_ROWS, rules.TILE_LANES), np.int32)

    def tile_zero(self, x: Array) -> None:
        x[...] = 0

    def tile_load(self, x: Array, p: ArrayPointer, step: int) -> None:
        for r in range(rules.TILE_ROWS):
            x[r] = self._row_of_tile(p, r * step)

    def tile_store(self, x: Array, p: ArrayPointer, step: int) -> None:
        for r in range(rules.TILE_ROWS):
            self._row_of_tile(p, r * step)[:] = x[r]

    def _row_of_tile(self, p: ArrayPointer, i: int) -> Array:
        return self._memory(self.cast(self.offset(p, i), dtypes.int32), 0, rules.TILE_LANES)

    def _tile_dot(self, kinds: tuple[type[Any], type[Any]], acc: Array, x: Array, y: Array) -> None:
        left = x.view(kinds[0]).astype(np.int64)  # [row, (lane, element)]
        right = y.view(kinds[1]).reshape(rules.TILE_ROWS, rules.TILE_LANES, -1).astype(np.int64)
        products = left @ right.transpose(0, 2, 1).reshape(left.shape[1], rules.TILE_LANES)
        acc[...] = (acc + products).astype(np.int32)

    def tile_dot4_int8(self, acc: Array, x: Array, y: Array) -> None:
        self._tile_dot((np.int8, np.int8), acc, x, y)

    def tile_dot4_int8_uint8(self, acc: Array, x: Array, y: Array) -> None:
        self._tile_dot((np.int8, np.uint8), acc, x, y)

    def tile_dot4_uint8_int8(self, acc: Array, x: Array, y: Array) -> None:
        self._tile_dot((np.uint8, np.int8), acc, x, y)

    def tile_dot4_uint8(self, acc: Array, x: Array, y: Array) -> None:
        self._tile_dot((np.uint8, np.uint8), acc, x, y)

    def tile_dot2_bfloat16(self, acc: Array, x: Array, y: Array) -> None:
        """Subnormals are taken for zero, as by the instruction set that may."""
        total = _flushed(acc.view(np.float32))
        chains = []
        for half in (0, 1):
            left, right = (
                _flushed((v.view(np.uint16)[:, half::2].astype(np.uint32) << 16).view(np.float32)) for v in (x, y)
            )
            chain = np.zeros_like(total)
            for k in range(rules.TILE_ROWS):
                chain = _flushed(ieee.fma(left[:, k : k + 1], right[k : k + 1], chain))
            chains.append(chain)
        acc[...] = _flushed(total + _flushed(chains[0] + chains[1])).view(np.int32)

    # -- bits, comparisons, choice -----------------------------------------------------------------------------
    def bit_and(self, x: ArrayVector, y: ArrayVector) -> ArrayVector:
        rules.bits("bit_and", x, y)
        return ArrayVector(x.dtype, x.lanes & y.lanes)

    def bit_or(self, x: ArrayVector, y: ArrayVector) -> ArrayVector:
        rules.bits("bit_or", x, y)
        return ArrayVector(x.dtype, x.lanes | y.lanes)

    def bit_xor(self, x: ArrayVector, y: ArrayVector) -> ArrayVector:
        rules.bits("bit_xor", x, y)
        return ArrayVector(x.dtype, x.lanes ^ y.lanes)

    def shift_left(self, x: ArrayVector, bits: int | ArrayVector) -> ArrayVector:
        rules.shift("shift_left", x, bits)
        return ArrayVector(x.dtype, x.lanes << _counts(x, bits))

    def shift_right(self, x: ArrayVector, bits: int | ArrayVector) -> ArrayVector:
        rules.shift("shift_right", x, bits)
        return ArrayVector(x.dtype, x.lanes >> _counts(x, bits))

    def equal(self, x: ArrayVector, y: ArrayVector) -> ArrayVector:
        rules.numbers("equal", x, y)
        return ArrayVector(dtypes.bool_, x.lanes == y.lanes)

    def less(self, x: ArrayVector, y: ArrayVector) -> ArrayVector:
        rules.numbers("less", x, y)
        return ArrayVector(dtypes.bool_, x.lanes < y.lanes)

    def less_equal(self, x: ArrayVector, y: ArrayVector) -> ArrayVector:
        rules.numbers("less_equal", x, y)
        return ArrayVector(dtypes.bool_, x.lanes <= y.lanes)

    def is_nan(self, x: ArrayVector) -> ArrayVector:
        rules.floats("is_nan", x)
        return ArrayVector(dtypes.bool_, np.isnan(x.lanes))

    def invert(self, m: ArrayVector) -> ArrayVector:
        rules.mask("invert", m)
        return ArrayVector(m.dtype, ~m.lanes)

    def select(self, m: ArrayVector, x: ArrayVector, y: ArrayVector) -> ArrayVector:
        rules.selection(m, x, y)
        return ArrayVector(x.dtype, np.where(m.lanes, x.lanes, y.lanes))

    def any(self, m: ArrayVector) -> bool:
        rules.mask("any", m)
        return bool(m.lanes.any())

    # -- conversion ------------------------------------------------------------------------------------------
    def convert(self, x: ArrayVector, dtype: DType) -> ArrayVector:
        if x.dtype is dtype:
            return x
        rules.conversion(x.dtype, dtype, self.isa.instructions)
        if dtype.kind == "bool":
            return ArrayVector(dtype, x.lanes != 0)
        target = _storage(dtype)
        if x.dtype is dtypes.float16:
            return ArrayVector(dtype, x.lanes.view(np.float16).astype(target))
        if dtype is dtypes.float16:
            return ArrayVector(dtype, x.lanes.astype(np.float16).view(target))
        if x.dtype.is_float and not dtype.is_float:
            return ArrayVector(dtype, _saturate(x.lanes, target))
        return ArrayVector(dtype, x.lanes.astype(target))

    def bitcast(self, x: ArrayVector, dtype: DType) -> ArrayVector:
        rules.bitcast(x.dtype, dtype)
        return ArrayVector(dtype, x.lanes.view(_storage(dtype)))


def _counts(x: ArrayVector, bits: int | ArrayVector) -> Any:
    """By how much each lane is shifted, in x's format."""
    return bits.lanes if isinstance(bits, ArrayVector) else x.lanes.dtype.type(bits)


def _covered(width: int, count: int | None) -> int:
    """How many of `width` lanes `count` covers."""
    return width if count is None else max(0, min(width, count))


def _flushed(x: Array) -> Array:
    """float32 with zeros of the same sign for subnormals."""
    codes = x.view(np.uint32)
    return np.where(codes & 0x7F800000 == 0, codes & 0x80000000, codes).view(np.float32)


def _saturate(x: Array, target: np.dtype[Any]) -> Array:
    """Toward zero, clamped to the target's range, NaN gives 0."""
    limits = np.iinfo(target)
    inside = np.isfinite(x) & (x > float(limits.min) - 1) & (x < float(limits.max) + 1)
    whole = np.where(inside, x, 0).astype(target)
    whole = np.where(x >= float(limits.max) + 1, target.type(limits.max), whole)
    return np.where(x <= float(limits.min) - 1, target.type(limits.min), whole).astype(target)
