"""Inner products of the elements inside lanes, and tables of them: one instruction where the row has one, else plain
words.

The instructions' intrinsics are named here, and nowhere else. Start at `Dots`.
"""

from __future__ import annotations

from collections.abc import Sequence

from samebits import dtypes
from samebits.codegen import rules
from samebits.codegen.llvm_lanes import Lanes
from samebits.codegen.ssa import Vector

# word: (lanes of one instruction: (intrinsic, what its operands are to LLVM, whether it adds the accumulator)).
_INTRINSICS: dict[str, dict[int, tuple[str, str, bool]]] = {
    "dot2_bfloat16": {16: ("llvm.x86.avx512bf16.dpbf16ps.512", "<32 x bfloat>", True)},
    "dot2_int16": {
        16: ("llvm.x86.avx512.pmaddw.d.512", "<32 x i16>", False),
        8: ("llvm.x86.avx2.pmadd.wd", "<16 x i16>", False),
    },
    "dot4_uint8_int8": {
        16: ("llvm.x86.avx512.vpdpbusd.512", "<64 x i8>", True),
        8: ("llvm.x86.avx512.vpdpbusd.256", "<32 x i8>", True),
    },
    "dot4_int8": {4: ("llvm.aarch64.neon.sdot.v4i32.v16i8", "<16 x i8>", True)},
}

# Lanes of 32 bits whose bytes one instruction looks up.
_SHUFFLES = {16: "llvm.x86.avx512.pshuf.b.512", 8: "llvm.x86.avx2.pshuf.b", 4: "llvm.x86.ssse3.pshuf.b.128"}


class Dots(Lanes):
    """The words `dot*`, `lookup_halves` and `lookup_bytes` of the vocabulary."""

    def dot2_bfloat16(self, acc: Vector, x: Vector, y: Vector) -> Vector:
        rules.dot("dot2_bfloat16", acc, x, y)
        return self._instruction("dot2_bfloat16", acc, x, y) or self._bfloat16(acc, x, y)

    def dot2_int16(self, acc: Vector, x: Vector, y: Vector) -> Vector:
        rules.dot("dot2_int16", acc, x, y)
        return self._instruction("dot2_int16", acc, x, y) or self._integers(acc, x, y, 2, True, True)

    def dot4_uint8_int8(self, acc: Vector, x: Vector, y: Vector) -> Vector:
        rules.dot("dot4_uint8_int8", acc, x, y)
        return self._instruction("dot4_uint8_int8", acc, x, y) or self._integers(acc, x, y, 4, False, True)

    def dot4_int8(self, acc: Vector, x: Vector, y: Vector) -> Vector:
        rules.dot("dot4_int8", acc, x, y)
        return self._instruction("dot4_int8", acc, x, y) or self._integers(acc, x, y, 4, True, True)

    def dot4_uint8(self, acc: Vector, x: Vector, y: Vector) -> Vector:
        rules.dot("dot4_uint8", acc, x, y)
        return self._integers(acc, x, y, 4, False, False)

    def lookup_halves(self, table: Sequence[int], index: Vector) -> Vector:
        rules.halves_table(table, index)
        if "lookup" in self.isa.instructions and set(index.sizes) == {16}:
            codes = "<" + ", ".join(f"i16 {code}" for code in table) + ">"
            return self.each(lambda size, part: self._permute32(codes, part), dtypes.uint32, index)
        low, high = index, self.shift_right(index, 16)
        found = [
            self.lookup(table, dtypes.uint32, self.bitcast(self.bit_and(half, self.like(half, 31)), dtypes.int32))
            for half in (low, high)
        ]
        return self.bit_or(found[0], self.shift_left(found[1], 16))

    def lookup_bytes(self, table: Sequence[int], index: Vector) -> Vector:
        rules.bytes_table(table, index)
        if "lookup_bytes" in self.isa.instructions and _SHUFFLES.keys() >= set(index.sizes):
            return self.each(lambda size, part: self._shuffled(table, size, part), dtypes.uint32, index)
        found = index
        for i in range(4):
            code = self.bit_and(self.shift_right(index, 8 * i), self.like(index, 15))
            byte = self.shift_left(self.lookup(table, dtypes.uint32, self.bitcast(code, dtypes.int32)), 8 * i)
            found = self.bit_or(found, byte) if i else byte
        return found

    def _shuffled(self, table: Sequence[int], size: int, part: str) -> str:
        """Bytes of a table of sixteen: pshufb, which has one table for each sixteen bytes, or tbl."""
        is_arm, kind = self.isa.targets[0].arch == "aarch64", f"<{4 * size} x i8>"
        codes = "<" + ", ".join([f"i8 {code}" for code in table] * (size // 4)) + ">"
        places = self.w.value(f"bitcast <{size} x i32> {part} to {kind}")
        name = "llvm.aarch64.neon.tbl1.v16i8" if is_arm else _SHUFFLES[size]
        found = self.intrinsic(name, kind, [(kind, codes), (kind, places)])
        return self.w.value(f"bitcast {kind} {found} to <{size} x i32>")

    def _permute32(self, codes: str, part: str) -> str:
        """Thirty-two halves of a 32-entry table: vpermw, which takes the low five bits."""
        kind, name = "<32 x i16>", "llvm.x86.avx512.permvar.hi.512"
        halves = self.w.value(f"bitcast <16 x i32> {part} to {kind}")
        found = self.intrinsic(name, kind, [(kind, codes), (kind, halves)])
        return self.w.value(f"bitcast {kind} {found} to <16 x i32>")

    def _instruction(self, word: str, acc: Vector, x: Vector, y: Vector) -> Vector | None:
        """The word as the row's instruction, if it has one of the width of every part."""
        known = _INTRINSICS[word] if word in self.isa.instructions else {}
        if not known.keys() >= set(x.sizes):
            return None

        def make(size: int, t: str, *parts: str) -> str:
            name, kind, accumulates = known[size]
            total = f"<{size} x {acc.lane}>"
            given = [(kind, self.w.value(f"bitcast <{size} x i32> {part} to {kind}")) for part in parts]
            if accumulates:
                return self.intrinsic(name, total, [(total, t), *given])
            added = self.w.value(f"add {total} {t}, {self.intrinsic(name, total, given)}")
            # Nothing, but that LLVM does not add two steps' products first, which costs registers and spills sums
            # (avx2, a 6x2 tile in cache: 150 GOP/s without, 177 with it).
            return self.w.value(f'call {total} asm "", "=v,0"({total} {added})')

        return self.each(make, acc.dtype, acc, x, y)

    def _bfloat16(self, acc: Vector, x: Vector, y: Vector) -> Vector:
        high = [self.bit_and(v, self.like(v, -65536)) for v in (x, y)]
        low = [self.shift_left(v, 16) for v in (x, y)]
        for first, second in (high, low):
            acc = self.fma(self.bitcast(first, dtypes.float32), self.bitcast(second, dtypes.float32), acc)
        return acc

    def _integers(self, acc: Vector, x: Vector, y: Vector, count: int, x_signed: bool, y_signed: bool) -> Vector:
        bits = 32 // count

        def element(v: Vector, i: int, signed: bool) -> Vector:
            kind = dtypes.int32 if signed else dtypes.uint32
            whole = self.shift_left(self.bitcast(v, kind), 32 - bits * (i + 1))
            return self.bitcast(self.shift_right(whole, 32 - bits), dtypes.int32)

        for i in range(count):
            acc = self.add(acc, self.mul(element(x, i, x_signed), element(y, i, y_signed)))
        return acc
