"""The words that kernel text is written in, and the frozen name of one kernel.

`Builder` is the vocabulary; `llvm.LlvmBuilder` and `interpreter.NumpyBuilder` are its two meanings. A text is a
function `text(b, description)`; docs/decisions/0001 says how it becomes code that runs. Indices are 64-bit and
signed; Python ints and index values mix freely. Everything here that computes rounds to nearest even, once. What a word
accepts is in `rules`: a breach raises TypeError while the text runs, under either builder.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import field
from typing import Any, Protocol

from samebits.codegen.isa import Isa
from samebits.dtypes import DType
from samebits.frozen import dataclass

# Opaque to texts: each builder has its own. `Index` also stands for Python ints and supports + - * // % << >> & | (the
# last four on two's complement, >> keeping the sign) and comparisons; comparisons give a `Condition`, which supports &
# and |.
Index = Any
Condition = Any
Pointer = Any
Vector = Any
Function = Any
# Sixteen rows of sixteen lanes of 32 bits, which words change in place.
Tile = Any


# The only function that the module of a kernel or function exports.
ENTRY = "kernel"


class Builder(Protocol):
    """Everything that a kernel text may say."""

    isa: Isa

    # -- arguments and tasks ---------------------------------------------------------------------------------
    def pointer(self, name: str, dtype: DType) -> Pointer:
        """The argument `name` as the address of elements of `dtype`."""

    def index(self, name: str) -> Index:
        """The argument `name` as an index."""

    def scalar(self, name: str, dtype: DType) -> Vector:
        """The argument `name` as a width-1 vector: its low bits hold the element."""

    def callee(self, name: str, parameters: Sequence[DType | None]) -> Function:
        """The argument `name` as the address of a function that is compiled alone (`FunctionSpec`); `parameters` as in
        `function`."""

    def further(self) -> Pointer:
        """The arguments behind the named ones, of which a step may give any number, as elements of int64."""

    def tasks(self) -> Iterator[Index]:
        """Walk this call's tasks."""

    def scratch(self, dtype: DType, offset_bytes: Index = 0) -> Pointer:
        """The calling thread's own temporary, 64-byte aligned, undefined on entry."""

    def local(self, dtype: DType, count: int) -> Pointer:
        """A small array on the stack (`count` constant), 64-byte aligned, undefined on entry."""

    # -- indices ---------------------------------------------------------------------------------------------
    def min(self, x: Index, y: Index) -> Index: ...
    def max(self, x: Index, y: Index) -> Index: ...
    def choose(self, condition: Condition, x: Any, y: Any) -> Any:
        """x if the condition holds, else y: two indices, two pointers to one dtype, or two functions that are called
        alike."""

    # -- control ---------------------------------------------------------------------------------------------
    def loop(self, start: Index, stop: Index, step: Index = 1, carry: list[Any] | None = None) -> Iterator[Index]:
        """for i = start; i < stop; i += step, a step of at least 1.

        `carry`: nested list of vectors and indices, updated by the body."""

    def when(self, condition: Condition, carry: list[Any] | None = None) -> Iterator[None]:
        """The body runs if the condition holds; `carry` then holds what it left, else what it was."""

    def function(self, name: str, parameters: Sequence[DType | None], body: Callable[..., None]) -> Function:
        """A function of its own, never inlined: `body(*parameters)`; a DType is a pointer to it, None an index.

        The body sees its parameters alone: no argument of the kernel, no scratch, no value from outside."""

    def call(self, function: Function, *arguments: Any) -> None: ...

    # -- memory (positions count elements of the pointer's dtype) ---------------------------------------------
    def offset(self, p: Pointer, i: Index) -> Pointer:
        """p advanced by i elements."""

    def anchor(self, p: Pointer, after: Sequence[Vector] = ()) -> Pointer:
        """The same address, made here: a loop that moves it moves it alone, not a pointer to each place at strides from
        it, and what is read from it is read, in the order of the code, when the vectors `after` are made."""

    def cast(self, p: Pointer, dtype: DType, aligned: bool = True) -> Pointer:
        """The same address seen as elements of another dtype; at any byte if not `aligned`."""

    def load(self, p: Pointer, i: Index, width: int, count: Index | None = None) -> Vector:
        """Elements i .. i+width-1; with `count`, only the first `count` are read and the rest are zero.

        A bool element loads as a mask (any non-zero byte is True)."""

    def store(self, p: Pointer, i: Index, v: Vector, count: Index | None = None) -> None:
        """Write v at i, of p's dtype; with `count`, only its first `count` lanes. A mask stores as bytes 0 and 1."""

    def load_strided(
        self,
        p: Pointer,
        i: Index,
        stride: Index,
        width: int,
        count: Index | None = None,
    ) -> Vector:
        """Elements i, i+stride, ...: one load a lane."""

    def store_strided(self, p: Pointer, i: Index, stride: Index, v: Vector, count: Index | None = None) -> None: ...
    def load_index(self, p: Pointer, i: Index) -> Index:
        """The integer element i as an index (sign- or zero-extended by its dtype)."""

    def prefetch(self, p: Pointer, i: Index, level: int = 1) -> None:
        """Ask for the line of element i, into the cache of that level: 1, 2 or 3."""

    def misaligned(self, p: Pointer, size_bytes: int) -> Index:
        """Bytes from the last multiple of `size_bytes`, a power of two, to p."""

    def store_nontemporal(self, p: Pointer, i: Index, v: Vector) -> None:
        """As `store`, but past the caches, of what nothing reads soon; the address is a multiple of v's size, of half
        where elements have 64 bits. `fence` comes before another thread may read it."""

    def fence(self) -> None:
        """What this thread has stored past the caches is in memory before anything that it stores from here on."""

    # -- making vectors ----------------------------------------------------------------------------------------
    def constant(self, value: float | bool, dtype: DType, width: int) -> Vector:
        """The value in every lane, rounded once to a float dtype (a NaN is canonical); integers must be in range."""

    def like(self, x: Vector, value: float | int | bool) -> Vector:
        """A constant of x's dtype and width."""

    def splat(self, v: Vector, width: int) -> Vector:
        """A width-1 vector in every lane."""

    def iota(self, dtype: DType, width: int) -> Vector:
        """0, 1, 2, ... as integers."""

    def from_index(self, i: Index, dtype: DType) -> Vector:
        """The index as a width-1 vector, converted once (RNE)."""

    def slice(self, v: Vector, start: int, width: int) -> Vector: ...
    def concat(self, vs: Sequence[Vector]) -> Vector: ...
    def pick(self, vs: Sequence[Vector], lanes: Sequence[int]) -> Vector:
        """Lanes of the concatenation of `vs` by their numbers, in the order given and as often as given."""

    def join(self, v: Vector, dtype: DType) -> Vector:
        """Neighbouring lanes of unsigned integers as one lane of a wider one, the first in its low bits."""

    def transpose(self, vs: Sequence[Vector]) -> list[Vector]:
        """n vectors of width w become w vectors of width n."""

    def transpose_blocks(self, vs: Sequence[Vector]) -> list[Vector]:
        """n vectors of blocks of n lanes: block q of every vector is a square, which is transposed where it lies."""

    def lookup(self, table: Sequence[float], dtype: DType, index: Vector) -> Vector:
        """table[index] per lane; the table is constant, 0 <= index < len(table) (int32 lanes)."""

    def lookup_at(self, p: Pointer, i: Index, index: Vector) -> Vector:
        """Of the sixteen elements of 32 bits from i on, per lane that of the low four bits of index (uint32 lanes)."""

    def lookup_halves(self, table: Sequence[int], index: Vector) -> Vector:
        """Lanes of uint32: each half of a lane of index, by its low five bits, becomes one of 32 codes of 16 bits."""

    def lookup_bytes(self, table: Sequence[int], index: Vector) -> Vector:
        """Lanes of uint32: each byte of a lane of index, which is below 16, becomes one of 16 codes of 8 bits."""

    # -- arithmetic (per lane; both operands have one dtype and width) -------------------------------------------
    def add(self, x: Vector, y: Vector) -> Vector: ...
    def sub(self, x: Vector, y: Vector) -> Vector: ...
    def mul(self, x: Vector, y: Vector) -> Vector: ...
    def div(self, x: Vector, y: Vector) -> Vector:
        """Floats only."""

    def quotient(self, x: Vector, y: Vector) -> Vector:
        """x / y of integers, toward zero; no lane of y may be 0, nor -1 where that of x is the least number."""

    def fma(self, x: Vector, y: Vector, z: Vector) -> Vector:
        """x * y + z, rounded once."""

    def sqrt(self, x: Vector) -> Vector: ...
    def rint(self, x: Vector) -> Vector:
        """To an integral value, ties to even."""

    def neg(self, x: Vector) -> Vector: ...
    def abs(self, x: Vector) -> Vector: ...
    def maximum(self, x: Vector, y: Vector) -> Vector:
        """numerics.md section 1: NaN propagates, +0 > -0. Integers too."""

    def minimum(self, x: Vector, y: Vector) -> Vector: ...
    def canonical(self, x: Vector) -> Vector:
        """x, every NaN lane replaced by the dtype's canonical NaN. Identity on integers and masks."""

    # -- inner products of neighbours: a lane of int32 holds several elements, the first in its low bits -------------
    def dot2_bfloat16(self, acc: Vector, x: Vector, y: Vector) -> Vector:
        """Lanes of float32: fma(low x, low y, fma(high x, high y, acc)) for the two bfloat16 of each lane of x and y.

        Only where no operand and no result can be subnormal: one instruction set takes those for zero."""

    def dot2_int16(self, acc: Vector, x: Vector, y: Vector) -> Vector:
        """acc + the two products of int16, wrapping."""

    def dot4_uint8_int8(self, acc: Vector, x: Vector, y: Vector) -> Vector:
        """acc + the four products of a uint8 of x and an int8 of y, wrapping."""

    def dot4_int8(self, acc: Vector, x: Vector, y: Vector) -> Vector:
        """acc + the four products of int8, wrapping."""

    def dot4_uint8(self, acc: Vector, x: Vector, y: Vector) -> Vector:
        """acc + the four products of uint8, wrapping."""

    # -- tiles: sixteen rows of sixteen lanes of 32 bits, which some machines multiply as one ------------------------
    def tiles(self) -> Iterator[None]:
        """The body, once, in which this kernel and the functions that it calls may use tiles."""

    def tile(self) -> Tile:
        """A tile of its own, undefined until `tile_zero` or `tile_load`; a text has at most eight."""

    def tile_zero(self, x: Tile) -> None:
        """Every bit of x becomes 0."""

    def tile_load(self, x: Tile, p: Pointer, step: Index) -> None:
        """Row r of x becomes the 64 bytes at element r * step of p."""

    def tile_store(self, x: Tile, p: Pointer, step: Index) -> None:
        """Row r of x is written to the 64 bytes at element r * step of p."""

    def tile_dot4_int8(self, acc: Tile, x: Tile, y: Tile) -> None:
        """acc[i, j] += the four products of int8 of x[i, k] and y[k, j], for every k, in int32, wrapping."""

    def tile_dot4_int8_uint8(self, acc: Tile, x: Tile, y: Tile) -> None:
        """The same of int8 of x and uint8 of y."""

    def tile_dot4_uint8_int8(self, acc: Tile, x: Tile, y: Tile) -> None:
        """The same of uint8 of x and int8 of y."""

    def tile_dot4_uint8(self, acc: Tile, x: Tile, y: Tile) -> None:
        """The same of uint8."""

    def tile_dot2_bfloat16(self, acc: Tile, x: Tile, y: Tile) -> None:
        """acc[i, j] of float32 += e + o: of the two bfloat16 of each lane, the fma chain from +0 over the low ones of
        x[i, k] and y[k, j], k ascending, and that over the high ones.

        Only where no operand and no result can be subnormal: one instruction set takes those for zero."""

    # -- bits (integers) -----------------------------------------------------------------------------------------
    def bit_and(self, x: Vector, y: Vector) -> Vector:
        """Also masks."""

    def bit_or(self, x: Vector, y: Vector) -> Vector: ...
    def bit_xor(self, x: Vector, y: Vector) -> Vector: ...
    def shift_left(self, x: Vector, bits: Index | Vector) -> Vector:
        """By 0 <= bits < the element's width: an index for every lane, or a vector like x for each its own."""

    def shift_right(self, x: Vector, bits: Index | Vector) -> Vector:
        """As `shift_left`; arithmetic for signed dtypes, logical for unsigned."""

    # -- comparisons and choice ------------------------------------------------------------------------------------
    def equal(self, x: Vector, y: Vector) -> Vector: ...
    def less(self, x: Vector, y: Vector) -> Vector: ...
    def less_equal(self, x: Vector, y: Vector) -> Vector: ...
    def is_nan(self, x: Vector) -> Vector: ...
    def invert(self, m: Vector) -> Vector:
        """not, per lane of a mask."""

    def select(self, m: Vector, x: Vector, y: Vector) -> Vector: ...
    def any(self, m: Vector) -> Condition:
        """True if some lane of the mask is."""

    # -- conversion --------------------------------------------------------------------------------------------------
    def convert(self, x: Vector, dtype: DType) -> Vector:
        """By value: float widths (RNE), integers to float (RNE), integer widths (wrapping), float to integer
        (toward zero, saturating, NaN gives 0), mask to anything (0 or 1), anything to mask (non-zero); float16 from and
        to float32 (RNE) where the row has `float16` among its instructions."""

    def bitcast(self, x: Vector, dtype: DType) -> Vector:
        """The same bits as another dtype of the same width in bits; elements narrower than a byte are a byte wide."""


def _check_text(kind: str, text: Callable[..., None]) -> None:
    name = getattr(text, "__qualname__", "<object>")
    if "<" in name:
        raise TypeError(f"{kind}: text {name} must be a function of a module: its name is in the cache key")
    held = ("__self__", "__closure__", "__defaults__", "__kwdefaults__")
    if any(getattr(text, attribute, None) is not None for attribute in held):
        raise TypeError(
            f"{kind}: text {name} holds values of its own, which are not in the cache key: give them in the description"
        )


def _name(text: Callable[..., None]) -> str:
    return f"{text.__module__.removeprefix('samebits.')}.{text.__qualname__}"


@dataclass(frozen=True, slots=True)
class FunctionSpec:
    """One function that is compiled alone, so that several kernels share it; they get its address as an argument.

    `text(b, description, *parameters)` is its body; `parameters`: as those of `Builder.function`. `unroll`: whether the
    compiler may unroll loops; a text that unrolls what is worth it says no, and is compiled in less time.
    """

    text: Callable[..., None]
    description: Hashable
    parameters: tuple[DType | None, ...]
    isa: Isa
    unroll: bool = True
    _hash: int = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        _check_text("FunctionSpec", self.text)
        object.__setattr__(self, "_hash", hash((self.text, self.description)))

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> tuple[type[FunctionSpec], tuple[Any, ...]]:
        # Another process hashes otherwise.
        return FunctionSpec, (self.text, self.description, self.parameters, self.isa, self.unroll)

    @property
    def name(self) -> str:
        """`module.function`, without the package."""
        return _name(self.text)


@dataclass(frozen=True, slots=True)
class KernelSpec:
    """One kernel to be compiled: its text, what specialises it, and the names of its first arguments in order.

    `unroll`: as that of `FunctionSpec`.
    """

    text: Callable[[Builder, Any], None]
    description: Hashable
    parameters: tuple[str, ...]
    isa: Isa
    unroll: bool = True
    _hash: int = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        _check_text("KernelSpec", self.text)
        object.__setattr__(self, "_hash", hash((self.text, self.description)))

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> tuple[type[KernelSpec], tuple[Any, ...]]:
        return KernelSpec, (self.text, self.description, self.parameters, self.isa, self.unroll)

    @property
    def name(self) -> str:
        """`module.function`, without the package."""
        return _name(self.text)
