"""Registers of the LLVM builder: one instruction for each part of a vector."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from samebits import dtypes
from samebits.codegen.isa import Isa
from samebits.codegen.ssa import Vector, Writer, literal, part_type
from samebits.dtypes import DType


class Registers:
    """What is written so far, and the ways to write one instruction a register."""

    def __init__(self, isa: Isa, writer: Writer) -> None:
        self.isa = isa
        self.w = writer
        self.declarations: set[str] = set()
        self.constants: dict[tuple[str, ...], str] = {}

    def intrinsic(
        self,
        name: str,
        result: str,
        arguments: Sequence[tuple[str, str]],
        attribute: str = "",
    ) -> str:
        """Call an LLVM intrinsic by its full name, declaring it; the result's name."""
        kinds = ", ".join(kind for kind, _ in arguments)
        self.declarations.add(f"declare {result} @{name}({kinds})")
        passed = ", ".join(f"{kind} {value}" for kind, value in arguments)
        text = f"call {result} @{name}({passed}){attribute}"
        if result == "void":
            self.w.emit(text)
            return ""
        return self.w.value(text)

    def each(self, make: Callable[..., str], dtype: DType, *vectors: Vector) -> Vector:
        """`make(size, parts..)` for each register of vectors of one width (which are split alike)."""
        sizes = vectors[0].sizes
        parts = tuple(make(size, *(v.parts[i] for v in vectors)) for i, size in enumerate(sizes))
        return Vector(dtype, parts, sizes)

    def binary(self, op: str, x: Vector, y: Vector, dtype: DType | None = None) -> Vector:
        return self.each(
            lambda size, a, b: self.w.value(f"{op} {part_type(x.lane, size)} {a}, {b}"),
            dtype or x.dtype,
            x,
            y,
        )

    def math(self, name: str, *vectors: Vector, tail: Sequence[tuple[str, str]] = ()) -> Vector:
        """An intrinsic overloaded on the register type, e.g. llvm.fma.v8f32."""
        first = vectors[0]
        letter = "f" if first.dtype.kind == "float" else "i"

        def make(size: int, *parts: str) -> str:
            kind = part_type(first.lane, size)
            suffix = f"{letter}{first.dtype.width_bits}" if size == 1 else f"v{size}{letter}{first.dtype.width_bits}"
            return self.intrinsic(f"llvm.{name}.{suffix}", kind, [*((kind, p) for p in parts), *tail])

        return self.each(make, first.dtype, *vectors)

    def as_mask(self, v: Vector) -> Vector:
        return self.each(
            lambda size, a: self.w.value(f"icmp ne {part_type('i8', size)} {a}, {zero('i8', size)}"),
            dtypes.bool_,
            v,
        )

    def as_bytes(self, v: Vector) -> Vector:
        parts = tuple(
            self.w.value(f"zext {kind} {part} to {part_type('i8', size)}")
            for (kind, part), size in zip(v.kinds(), v.sizes, strict=True)
        )
        return Vector(dtypes.uint8, parts, v.sizes)


def align(dtype: DType) -> int:
    return max(dtype.width_bits, 8) // 8


def suffix(lane: str) -> str:
    return {"float": "f32", "double": "f64"}.get(lane, lane)


def zero(lane: str, size: int) -> str:
    return "zeroinitializer" if size > 1 else literal(0, lane)
