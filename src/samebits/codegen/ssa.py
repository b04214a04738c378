"""LLVM assembly as text: one function's blocks and names, index values, and the split of vectors into registers.

This is the part of the LLVM builder that knows SSA form but no vocabulary; `llvm.LlvmBuilder` stands on it. Text is
written directly rather than through llvmlite.ir: it is faster, and does not depend on which vector intrinsics a
given llvmlite can declare.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from operator import index
from typing import Any

from samebits.dtypes import DType
from samebits.frozen import dataclass


def element_type(dtype: DType) -> str:
    """The LLVM type of one element in memory and in lanes (a mask lane is i1, see `Vector.is_mask`)."""
    if dtype.name == "float32":
        return "float"
    if dtype.name == "float64":
        return "double"
    return f"i{max(dtype.width_bits, 8)}"


def literal(value: float | bool, kind: str) -> str:
    """A constant of an LLVM scalar type; floats are printed as the bits of a double that the type holds exactly."""
    if kind in ("float", "double"):
        return f"0x{struct.unpack('<Q', struct.pack('<d', float(value)))[0]:016X}"
    if kind == "i1":
        return "true" if value else "false"
    return str(int(value))


class Writer:
    """The text of one function under construction: numbered names, labelled blocks, patchable phi lines."""

    def __init__(self, header: str) -> None:
        self.header = header
        self.lines: list[str] = []
        self.entry: list[str] = []
        self.block = "entry"
        self.tiles = 0
        self._names = 0

    def fresh(self, prefix: str = "v") -> str:
        """A name not used before in this function."""
        self._names += 1
        return f"%{prefix}{self._names}"

    def emit(self, text: str) -> None:
        """One instruction without a result."""
        self.lines.append("  " + text)

    def value(self, text: str) -> str:
        """One instruction with a result: its name."""
        name = self.fresh()
        self.lines.append(f"  {name} = {text}")
        return name

    def label(self, prefix: str) -> str:
        """A block name for later `begin`."""
        return self.fresh(prefix)[1:]

    def begin(self, label: str) -> None:
        """Continue writing in a new block."""
        self.lines.append(f"{label}:")
        self.block = label

    def reserve(self) -> int:
        """Room for one line that is not known yet (a phi)."""
        self.lines.append("")
        return len(self.lines) - 1

    def text(self) -> str:
        """The whole function."""
        return "\n".join([self.header + " {", "entry:", *self.entry, *self.lines, "  ret void", "}"])


@dataclass(frozen=True, slots=True)
class Condition:
    """An i1 that decides control flow."""

    writer: Writer
    name: str

    def __and__(self, other: Condition | bool) -> Condition | bool:
        if isinstance(other, bool):
            return self if other else False
        return Condition(self.writer, self.writer.value(f"and i1 {self.name}, {other.name}"))

    __rand__ = __and__

    def __or__(self, other: Condition | bool) -> Condition | bool:
        if isinstance(other, bool):
            return True if other else self
        return Condition(self.writer, self.writer.value(f"or i1 {self.name}, {other.name}"))

    __ror__ = __or__

    def __bool__(self) -> bool:
        raise TypeError("a condition of a kernel is known when it runs, not when it is emitted; use b.when")


@dataclass(frozen=True, slots=True, eq=False)
class Index:
    """A 64-bit signed index in SSA form, with Python's operators (`//` and `%` for non-negative values)."""

    writer: Writer
    name: str

    def _binary(self, op: str, x: Any, y: Any) -> Index:
        return Index(self.writer, self.writer.value(f"{op} i64 {operand(x)}, {operand(y)}"))

    def _compare(self, op: str, other: Any) -> Condition:
        return Condition(
            self.writer,
            self.writer.value(f"icmp {op} i64 {self.name}, {operand(other)}"),
        )

    def __add__(self, other: Any) -> Index:
        return self if _is(other, 0) else self._binary("add nsw", self, other)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Index:
        return self if _is(other, 0) else self._binary("sub nsw", self, other)

    def __rsub__(self, other: Any) -> Index:
        return self._binary("sub nsw", other, self)

    def __mul__(self, other: Any) -> Any:
        if _is(other, 0):
            return 0
        return self if _is(other, 1) else self._binary("mul nsw", self, other)

    __rmul__ = __mul__

    def __floordiv__(self, other: Any) -> Index:
        return self if _is(other, 1) else self._binary("udiv", self, other)

    def __rfloordiv__(self, other: Any) -> Index:
        return self._binary("udiv", other, self)

    def __mod__(self, other: Any) -> Any:
        return 0 if _is(other, 1) else self._binary("urem", self, other)

    def __rmod__(self, other: Any) -> Index:
        return self._binary("urem", other, self)

    def __lshift__(self, other: Any) -> Index:
        return self if _is(other, 0) else self._binary("shl", self, other)

    def __rlshift__(self, other: Any) -> Index:
        return self._binary("shl", other, self)

    def __rshift__(self, other: Any) -> Index:
        return self if _is(other, 0) else self._binary("ashr", self, other)

    def __rrshift__(self, other: Any) -> Index:
        return self._binary("ashr", other, self)

    def __and__(self, other: Any) -> Index:
        return self._binary("and", self, other)

    __rand__ = __and__

    def __or__(self, other: Any) -> Index:
        return self if _is(other, 0) else self._binary("or", self, other)

    __ror__ = __or__

    def __neg__(self) -> Index:
        return self._binary("sub nsw", 0, self)

    def __lt__(self, other: Any) -> Condition:
        return self._compare("slt", other)

    def __le__(self, other: Any) -> Condition:
        return self._compare("sle", other)

    def __gt__(self, other: Any) -> Condition:
        return self._compare("sgt", other)

    def __ge__(self, other: Any) -> Condition:
        return self._compare("sge", other)

    def __eq__(self, other: object) -> Condition:  # type: ignore[override]  # an SSA comparison, like NumPy's
        return self._compare("eq", other)

    def __ne__(self, other: object) -> Condition:  # type: ignore[override]
        return self._compare("ne", other)

    def __bool__(self) -> bool:
        raise TypeError("an index of a kernel is known when it runs, not when it is emitted; use b.when")


def _is(x: Any, value: int) -> bool:
    return isinstance(x, int) and x == value


def operand(x: Any) -> str:
    """An index as it stands in an instruction."""
    return x.name if isinstance(x, Index) else str(index(x))


@dataclass(frozen=True, slots=True)
class Pointer:
    """An address of elements of `dtype`, a multiple of their size if `aligned`."""

    name: str
    dtype: DType
    aligned: bool = True


@dataclass(frozen=True, slots=True)
class TileRegister:
    """One of a text's tiles: a register of the machine by its number, or where its rows lie one after the other."""

    number: int
    rows: Pointer | None


@dataclass(frozen=True, slots=True)
class Callee:
    """What a call names: a function of the module, or the value of an address."""

    name: str
    parameters: tuple[DType | None, ...]


@dataclass(frozen=True, slots=True)
class Vector:
    """`width` lanes of `dtype` in registers `parts`, `sizes[i]` lanes each; a one-lane part is a scalar."""

    dtype: DType
    parts: tuple[str, ...]
    sizes: tuple[int, ...]

    @property
    def width(self) -> int:
        """Lanes in all."""
        return sum(self.sizes)

    @property
    def is_mask(self) -> bool:
        """True for lanes of i1."""
        return self.dtype.kind == "bool"

    @property
    def lane(self) -> str:
        """LLVM type of one lane."""
        return "i1" if self.is_mask else element_type(self.dtype)

    def kinds(self) -> Iterator[tuple[str, str]]:
        """(LLVM type, name) of each part."""
        for part, size in zip(self.parts, self.sizes, strict=True):
            yield part_type(self.lane, size), part


def part_type(lane: str, size: int) -> str:
    """The LLVM type of a part of `size` lanes."""
    return lane if size == 1 else f"<{size} x {lane}>"


def split(width: int, lanes: int) -> tuple[int, ...]:
    """How `width` lanes are cut into registers: the largest power of two within `lanes`, then smaller ones.

    Powers of two, because LLVM widens odd vectors: a widened load may read past the operand, and the AArch64 backend
    gives up on `trunc <3 x i64> to <3 x i8>`.
    """
    full = 1 << (lanes.bit_length() - 1)
    sizes = [full] * (width // full)
    rest = width % full
    while rest:
        size = 1 << (rest.bit_length() - 1)
        sizes.append(size)
        rest -= size
    return tuple(sizes)
