"""Arithmetic, comparisons and conversions of the LLVM builder, lane by lane.

`llvm_registers`, `llvm_shuffles` and `llvm_memory` are under it; `llvm.LlvmBuilder` adds arguments and control.
"""

from __future__ import annotations

from typing import Any

from samebits import dtypes
from samebits.codegen import rules
from samebits.codegen.llvm_memory import Memory
from samebits.codegen.ssa import Vector, element_type, operand, part_type
from samebits.dtypes import DType

# Lanes of 32 bits of the registers of rows that have no instruction for integers of a register without their high bits
# (Cascade Lake, avx2, 2^18 of float32, 10^9 elements a second: as int8 2.2 and 3.4, bfloat16 added 1.5 and 2.7).
_PACKING = (8,)


class Lanes(Memory):
    """Vector words of the vocabulary, written as LLVM instructions."""

    # -- arithmetic --------------------------------------------------------------------------------------------
    def add(self, x: Vector, y: Vector) -> Vector:
        rules.numbers("add", x, y)
        return self.binary("fadd" if x.dtype.kind == "float" else "add", x, y)

    def sub(self, x: Vector, y: Vector) -> Vector:
        rules.numbers("sub", x, y)
        return self.binary("fsub" if x.dtype.kind == "float" else "sub", x, y)

    def mul(self, x: Vector, y: Vector) -> Vector:
        rules.numbers("mul", x, y)
        return self.binary("fmul" if x.dtype.kind == "float" else "mul", x, y)

    def div(self, x: Vector, y: Vector) -> Vector:
        rules.floats("div", x, y)
        return self.binary("fdiv", x, y)

    def quotient(self, x: Vector, y: Vector) -> Vector:
        rules.integers("quotient", x, y)
        return self.binary("sdiv" if x.dtype.kind == "int" else "udiv", x, y)

    def fma(self, x: Vector, y: Vector, z: Vector) -> Vector:
        rules.floats("fma", x, y, z)
        return self.math("fma", x, y, z)

    def sqrt(self, x: Vector) -> Vector:
        rules.floats("sqrt", x)
        return self.math("sqrt", x)

    def rint(self, x: Vector) -> Vector:
        rules.floats("rint", x)
        return self.math("roundeven", x)

    def neg(self, x: Vector) -> Vector:
        rules.numbers("neg", x)
        if x.dtype.kind != "float":
            return self.sub(self.constant(0, x.dtype, x.width), x)
        return self.each(
            lambda size, a: self.w.value(f"fneg {part_type(x.lane, size)} {a}"),
            x.dtype,
            x,
        )

    def abs(self, x: Vector) -> Vector:
        rules.numbers("abs", x)
        if x.dtype.kind == "uint":
            return x
        return self.math("fabs", x) if x.dtype.kind == "float" else self.math("abs", x, tail=[("i1", "false")])

    def maximum(self, x: Vector, y: Vector) -> Vector:
        rules.numbers("maximum", x, y)
        return self.math({"float": "maximum", "int": "smax"}.get(x.dtype.kind, "umax"), x, y)

    def minimum(self, x: Vector, y: Vector) -> Vector:
        rules.numbers("minimum", x, y)
        return self.math({"float": "minimum", "int": "smin"}.get(x.dtype.kind, "umin"), x, y)

    def canonical(self, x: Vector) -> Vector:
        if x.dtype.kind != "float":
            return x
        # To LLVM the code of a computed NaN is its own to choose, so it may drop this select (and does, after sqrt);
        # behind a fence x is no computation, and its NaNs are as they are.
        x = self.math("arithmetic.fence", x)
        return self.select(self.is_nan(x), self.constant(float("nan"), x.dtype, x.width), x)

    # -- bits and comparisons ----------------------------------------------------------------------------------
    def bit_and(self, x: Vector, y: Vector) -> Vector:
        rules.bits("bit_and", x, y)
        return self.binary("and", x, y)

    def bit_or(self, x: Vector, y: Vector) -> Vector:
        rules.bits("bit_or", x, y)
        return self.binary("or", x, y)

    def bit_xor(self, x: Vector, y: Vector) -> Vector:
        rules.bits("bit_xor", x, y)
        return self.binary("xor", x, y)

    def shift_left(self, x: Vector, bits: Any) -> Vector:
        rules.shift("shift_left", x, bits)
        return self.binary("shl", x, self._shift_count(x, bits))

    def shift_right(self, x: Vector, bits: Any) -> Vector:
        rules.shift("shift_right", x, bits)
        op = "ashr" if x.dtype.kind == "int" else "lshr"
        return self.binary(op, x, self._shift_count(x, bits))

    def _shift_count(self, x: Vector, bits: Any) -> Vector:
        if isinstance(bits, int):
            return self.constant(bits, x.dtype, x.width)
        if isinstance(bits, Vector):
            return bits
        return self.splat(self.from_index(bits, x.dtype), x.width)

    def _compare(self, ordered: str, signed: str, unsigned: str, x: Vector, y: Vector) -> Vector:
        op = {"float": f"fcmp {ordered}", "int": f"icmp {signed}"}.get(x.dtype.kind, f"icmp {unsigned}")
        return self.binary(op, x, y, dtypes.bool_)

    def equal(self, x: Vector, y: Vector) -> Vector:
        rules.numbers("equal", x, y)
        return self._compare("oeq", "eq", "eq", x, y)

    def less(self, x: Vector, y: Vector) -> Vector:
        rules.numbers("less", x, y)
        return self._compare("olt", "slt", "ult", x, y)

    def less_equal(self, x: Vector, y: Vector) -> Vector:
        rules.numbers("less_equal", x, y)
        return self._compare("ole", "sle", "ule", x, y)

    def is_nan(self, x: Vector) -> Vector:
        rules.floats("is_nan", x)
        return self.binary("fcmp uno", x, x, dtypes.bool_)

    def invert(self, m: Vector) -> Vector:
        rules.mask("invert", m)
        return self.bit_xor(m, self.constant(True, m.dtype, m.width))

    def select(self, m: Vector, x: Vector, y: Vector) -> Vector:
        rules.selection(m, x, y)

        def make(size: int, c: str, a: str, b: str) -> str:
            kind = part_type(x.lane, size)
            return self.w.value(f"select {part_type('i1', size)} {c}, {kind} {a}, {kind} {b}")

        return self.each(make, x.dtype, m, x, y)

    # -- conversion --------------------------------------------------------------------------------------------
    def convert(self, x: Vector, dtype: DType) -> Vector:
        if x.dtype is dtype:
            return x
        rules.conversion(x.dtype, dtype, self.isa.instructions)
        if dtypes.float16 in (x.dtype, dtype):
            return self._half(x, dtype)
        if dtype.kind == "bool":
            zero = self.constant(0, x.dtype, x.width)
            return self.binary("fcmp une" if x.dtype.kind == "float" else "icmp ne", x, zero, dtype)
        source, target = x.lane, element_type(dtype)
        if x.dtype.kind == "float" and dtype.kind != "float":
            return self._saturate(x, dtype)
        op = _conversion(x.dtype, dtype)
        if op is None:
            return Vector(dtype, x.parts, x.sizes)
        if op == "trunc" and self._packs(x):
            return self._packed(x, dtype)
        return self.each(
            lambda size, a: self.w.value(f"{op} {part_type(source, size)} {a} to {part_type(target, size)}"),
            dtype,
            x,
        )

    def _packs(self, x: Vector) -> bool:
        """Whether parts of x become narrower together: where an instruction packs two registers in one, and none makes
        one narrower."""
        full = x.sizes.count(self.isa.lanes) == len(x.sizes) in (2, 4)
        return full and x.dtype.width_bits == 32 and self.isa.lanes in _PACKING

    def _packed(self, x: Vector, dtype: DType) -> Vector:
        """Whole registers of integers, 2 or 4 of them, without their high bits."""
        size, target = self.isa.lanes, element_type(dtype)
        whole, lanes = self._side_by_side([(part, size) for part in x.parts], x.lane)
        narrow = self.w.value(f"trunc <{lanes} x {x.lane}> {whole} to <{lanes} x {target}>")
        parts = []
        for start in range(0, lanes, size):
            mask = ", ".join(f"i32 {start + lane}" for lane in range(size))
            kind = f"<{lanes} x {target}>"
            parts.append(self.w.value(f"shufflevector {kind} {narrow}, {kind} poison, <{size} x i32> <{mask}>"))
        return Vector(dtype, tuple(parts), x.sizes)

    def _half(self, x: Vector, dtype: DType) -> Vector:
        """float16, whose lanes are codes, from or to float32."""

        def make(size: int, part: str) -> str:
            half, code, single = (part_type(kind, size) for kind in ("half", "i16", "float"))
            if dtype is dtypes.float16:
                return self.w.value(f"bitcast {half} {self.w.value(f'fptrunc {single} {part} to {half}')} to {code}")
            return self.w.value(f"fpext {half} {self.w.value(f'bitcast {code} {part} to {half}')} to {single}")

        return self.each(make, dtype, x)

    def _saturate(self, x: Vector, dtype: DType) -> Vector:
        """A float as an integer. Only AArch64 has an instruction for it: of vectors LLVM takes each lane by itself
        elsewhere, of which a conversion took 1.6 ns on Cascade Lake."""
        if x.width == 1 or any(target.arch != "x86_64" for target in self.isa.targets):
            return self._to_integer(x, dtype, ".sat")
        low, high = (self.constant(limit, x.dtype, x.width) for limit in (dtype.min, _last_within(x.dtype, dtype)))
        within = self.select(self.less(low, x), x, low)  # low where x is NaN
        within = self.select(self.less(high, within), high, within)
        if dtype.min:
            within = self.select(self.is_nan(x), self.like(x, 0.0), within)
        wide = dtypes.int32 if dtype.width_bits < dtypes.int32.width_bits else dtype
        found = self.convert(self._to_integer(within, wide, ""), dtype)
        if _last_within(x.dtype, dtype) != dtype.max:
            found = self.select(self.less(high, x), self.constant(dtype.max, dtype, x.width), found)
        return found

    def _to_integer(self, x: Vector, dtype: DType, beyond: str) -> Vector:
        """Toward zero; `beyond`: ".sat" where elements may be beyond the integers."""
        op = "fptosi" if dtype.kind == "int" else "fptoui"

        def make(size: int, part: str) -> str:
            source, target = part_type(x.lane, size), part_type(element_type(dtype), size)
            if not beyond:
                return self.w.value(f"{op} {source} {part} to {target}")
            n = "" if size == 1 else f"v{size}"
            name = f"llvm.{op}{beyond}.{n}i{dtype.width_bits}.{n}f{x.dtype.width_bits}"
            return self.intrinsic(name, target, [(source, part)])

        return self.each(make, dtype, x)

    def from_index(self, i: Any, dtype: DType) -> Vector:
        return self.convert(Vector(dtypes.int64, (operand(i),), (1,)), dtype)

    def bitcast(self, x: Vector, dtype: DType) -> Vector:
        rules.bitcast(x.dtype, dtype)
        source, target = x.lane, element_type(dtype)
        if source == target:
            return Vector(dtype, x.parts, x.sizes)
        return self.each(
            lambda size, a: self.w.value(f"bitcast {part_type(source, size)} {a} to {part_type(target, size)}"),
            dtype,
            x,
        )


def _last_within(source: DType, target: DType) -> int:
    """The largest number of a float format that an integer format has, whose largest is 2^n - 1."""
    largest = int(target.max)
    return largest - (1 << max(0, largest.bit_length() - source.mantissa_bits - 1)) + 1


def _conversion(source: DType, target: DType) -> str | None:
    """The LLVM instruction that converts by value, or None where the lanes are already the same."""
    if source.kind == "float" and target.kind == "float":
        return "fpext" if target.width_bits > source.width_bits else "fptrunc"
    if target.kind == "float":
        return "sitofp" if source.kind == "int" else "uitofp"
    if source.kind == "bool":
        return "zext"
    if target.width_bits == source.width_bits:
        return None
    if target.width_bits < source.width_bits:
        return "trunc"
    return "sext" if source.kind == "int" else "zext"
