"""Loads and stores of the LLVM builder: whole, counted (masked) and strided."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from samebits.codegen import rules
from samebits.codegen.llvm_registers import align, suffix
from samebits.codegen.llvm_shuffles import Shuffles
from samebits.codegen.ssa import Index, Pointer, Vector, element_type, literal, operand, part_type, split
from samebits.dtypes import DType, float32

_REGISTER_BITS = (128, 256, 512)


class Memory(Shuffles):
    """Words that touch memory; positions count elements of the pointer's dtype."""

    def offset(self, p: Pointer, i: Any) -> Pointer:
        return Pointer(self._address(p, i), p.dtype, p.aligned)

    def anchor(self, p: Pointer, after: Sequence[Vector] = ()) -> Pointer:
        # Nothing, but that LLVM does not know so. Else it keeps a pointer for each of 24 columns, on the stack, and
        # hoists so many loads that it spills. Parts of no register's size have no place in such a constraint, and
        # vectors of integers would be sought among the registers of addresses. On x86-64 "X" is one of the first 16
        # registers of 32, which costs moves and spills, and "v" any.
        anywhere = "v" if all(target.arch == "x86_64" for target in self.isa.targets) else "X"
        held, places = [], list[str]()
        for v in after:
            for (kind, part), size in zip(v.kinds(), v.sizes, strict=True):
                bits = size * v.dtype.width_bits
                if size > 1 and bits in _REGISTER_BITS and bits <= float32.width_bits * self.isa.lanes:
                    floats = f"<{bits // 32} x float>"
                    held.append(f"{floats} {self.w.value(f'bitcast {kind} {part} to {floats}')}")
                    places.append(anywhere)
                elif size == 1:
                    held.append(f"{kind} {part}")
                    places.append("X")
        operands = ", ".join([f"ptr {p.name}", *held])
        made = self.w.value(f'call ptr asm "", "{",".join(["=r", "0", *places])}"({operands})')
        return Pointer(made, p.dtype, p.aligned)

    def cast(self, p: Pointer, dtype: DType, aligned: bool = True) -> Pointer:
        return Pointer(p.name, dtype, aligned)

    def _address(self, p: Pointer, i: Any) -> str:
        if isinstance(i, int) and i == 0:
            return p.name
        return self.w.value(f"getelementptr {element_type(p.dtype)}, ptr {p.name}, i64 {operand(i)}")

    def load(self, p: Pointer, i: Any, width: int, count: Any = None) -> Vector:
        sizes, lane, start = split(width, self.isa.lanes), element_type(p.dtype), 0
        parts = []
        for size in sizes:
            address, kind = self._address(p, i + start), part_type(lane, size)
            if count is None:
                parts.append(self.w.value(f"load {kind}, ptr {address}, align {_align(p)}"))
            else:
                parts.append(self._masked_load(address, lane, size, count - start, _align(p)))
            start += size
        v = Vector(p.dtype, tuple(parts), sizes)
        return self.as_mask(v) if p.dtype.kind == "bool" else v

    def store(self, p: Pointer, i: Any, v: Vector, count: Any = None) -> None:
        rules.stored(p.dtype, v)
        if v.is_mask:
            v = self.as_bytes(v)
        start, lane = 0, element_type(p.dtype)
        for (kind, part), size in zip(v.kinds(), v.sizes, strict=True):
            address = self._address(p, i + start)
            if count is None:
                self.w.emit(f"store {kind} {part}, ptr {address}, align {_align(p)}")
            else:
                self._masked_store(address, part, lane, size, count - start, _align(p))
            start += size

    def _lane_mask(self, count: Any, size: int, unknown: bool = False) -> str:
        """<size x i1>: lane < count. Compared as 32-bit lanes: 64-bit ones would need twice the registers.

        Args:    unknown: whether LLVM must not find out what it is.
        """
        if isinstance(count, int) and not unknown:
            return "<" + ", ".join(f"i1 {literal(lane < count, 'i1')}" for lane in range(size)) + ">"
        low = self.intrinsic("llvm.smax.i64", "i64", [("i64", operand(count)), ("i64", "0")])
        clamped = self.intrinsic("llvm.smin.i64", "i64", [("i64", low), ("i64", str(size))])
        low = self.w.value(f"trunc i64 {clamped} to i32")
        if unknown:
            low = self.w.value(f'call i32 asm "", "=r,0"(i32 {low})')
        splat = self._splat_text(low, "i32", size)
        lanes = ", ".join(f"i32 {lane}" for lane in range(size))
        return self.w.value(f"icmp slt <{size} x i32> <{lanes}>, {splat}")

    def _masked_load(self, address: str, lane: str, size: int, count: Any, align_bytes: int) -> str:
        kind, mask = f"<{size} x {lane}>", self._lane_mask(count, size)
        name = f"llvm.masked.load.v{size}{suffix(lane)}.p0"
        whole = self.intrinsic(
            name,
            kind,
            [
                ("ptr", address),
                ("i32", str(align_bytes)),
                (f"<{size} x i1>", mask),
                (kind, "zeroinitializer"),
            ],
        )
        return whole if size > 1 else self.w.value(f"extractelement {kind} {whole}, i64 0")

    def _masked_store(self, address: str, part: str, lane: str, size: int, count: Any, align_bytes: int) -> None:
        # Where LLVM 22 knows that a mask is the first lane alone, x86 stores that lane as wide as it was before it was
        # truncated, beyond the element (github.com/llvm/llvm-project/issues/179489).
        kind, mask = f"<{size} x {lane}>", self._lane_mask(count, size, unknown=size > 1 and lane.startswith("i"))
        if size == 1:
            part = self.w.value(f"insertelement {kind} poison, {lane} {part}, i64 0")
        arguments = [
            (kind, part),
            ("ptr", address),
            ("i32", str(align_bytes)),
            (f"<{size} x i1>", mask),
        ]
        self.intrinsic(f"llvm.masked.store.v{size}{suffix(lane)}.p0", "void", arguments)

    def load_strided(self, p: Pointer, i: Any, stride: Any, width: int, count: Any = None) -> Vector:
        lanes = []
        for lane in range(width):
            limit = None if count is None else count - lane
            lanes.append(self.load(p, i + stride * lane, 1, limit))
        return self.concat(lanes)

    def store_strided(self, p: Pointer, i: Any, stride: Any, v: Vector, count: Any = None) -> None:
        for lane in range(v.width):
            limit = None if count is None else count - lane
            self.store(p, i + stride * lane, self.slice(v, lane, 1), limit)

    def load_index(self, p: Pointer, i: Any) -> Index:
        rules.indexed(p.dtype)
        kind, address = element_type(p.dtype), self._address(p, i)
        value = self.w.value(f"load {kind}, ptr {address}, align {_align(p)}")
        if p.dtype.width_bits < 64:
            extend = "sext" if p.dtype.kind == "int" else "zext"
            value = self.w.value(f"{extend} {kind} {value} to i64")
        return Index(self.w, value)

    def lookup_at(self, p: Pointer, i: Any, index: Vector) -> Vector:
        rules.table_in_memory(p.dtype, index)
        start = self.offset(p, i)
        permute = {16: self._permuted, 8: self._permuted_halves} if "lookup_at" in self.isa.instructions else {}
        parts = [
            permute.get(size, self._loaded)(start, part, size)
            for part, size in zip(index.parts, index.sizes, strict=True)
        ]
        return Vector(p.dtype, tuple(parts), index.sizes)

    def _permuted(self, start: Pointer, index: str, size: int) -> str:
        """Sixteen lanes of a register, which the instruction counts by four bits."""
        row = self.load(self.cast(start, float32, start.aligned), 0, size).parts[0]
        arguments = [("<16 x float>", row), ("<16 x i32>", index)]
        found = self.intrinsic("llvm.x86.avx512.permvar.sf.512", "<16 x float>", arguments)
        return self._of_floats(found, start.dtype, size)

    def _permuted_halves(self, start: Pointer, index: str, size: int) -> str:
        """Eight lanes of each of two registers, which the instruction counts by three bits; the fourth chooses."""
        floats, found = self.cast(start, float32, start.aligned), []
        for half in (0, 8):
            arguments = [("<8 x float>", self.load(floats, half, size).parts[0]), ("<8 x i32>", index)]
            found.append(self.intrinsic("llvm.x86.avx2.permps", "<8 x float>", arguments))
        top = self.w.value(f"shl <8 x i32> {index}, <{', '.join(['i32 28'] * size)}>")
        second = self.w.value(f"icmp slt <8 x i32> {top}, zeroinitializer")
        both = self.w.value(f"select <8 x i1> {second}, <8 x float> {found[1]}, <8 x float> {found[0]}")
        return self._of_floats(both, start.dtype, size)

    def _of_floats(self, found: str, dtype: DType, size: int) -> str:
        if dtype is float32:
            return found
        return self.w.value(f"bitcast <{size} x float> {found} to {part_type(element_type(dtype), size)}")

    def _loaded(self, start: Pointer, index: str, size: int) -> str:
        """A load a lane."""
        kind, whole = element_type(start.dtype), "poison"
        for lane in range(size):
            one = index if size == 1 else self.w.value(f"extractelement <{size} x i32> {index}, i64 {lane}")
            place = self.w.value(f"zext i32 {self.w.value(f'and i32 {one}, 15')} to i64")
            address = self.w.value(f"getelementptr {kind}, ptr {start.name}, i64 {place}")
            found = self.w.value(f"load {kind}, ptr {address}, align {_align(start)}")
            if size == 1:
                return found
            whole = self.w.value(f"insertelement <{size} x {kind}> {whole}, {kind} {found}, i64 {lane}")
        return whole

    def prefetch(self, p: Pointer, i: Any, level: int = 1) -> None:
        address = self._address(p, i)
        self.intrinsic(
            "llvm.prefetch.p0",
            "void",
            [("ptr", address), ("i32", "0"), ("i32", str(4 - level)), ("i32", "1")],
        )

    def misaligned(self, p: Pointer, size_bytes: int) -> Index:
        address = self.w.value(f"ptrtoint ptr {p.name} to i64")
        return Index(self.w, self.w.value(f"and i64 {address}, {size_bytes - 1}"))

    def store_nontemporal(self, p: Pointer, i: Any, v: Vector) -> None:
        rules.stored(p.dtype, v)
        start = 0
        for (kind, part), size in zip(v.kinds(), v.sizes, strict=True):
            size_bytes = size * v.dtype.width_bits // 8
            # No processor has registers of other sizes.
            is_register = size_bytes & (size_bytes - 1) == 0
            aligned = min(size_bytes, size * 4)  # elements of 64 bits are in two registers
            how = f"align {aligned}, !nontemporal !{{i32 1}}" if is_register else f"align {_align(p)}"
            self.w.emit(f"store {kind} {part}, ptr {self._address(p, i + start)}, {how}")
            start += size

    def fence(self) -> None:
        self.w.emit("fence seq_cst")


def _align(p: Pointer) -> int:
    """What LLVM may take the address to be a multiple of."""
    return align(p.dtype) if p.aligned else 1
