"""Vectors made of constants, scalars and lanes of other vectors: splats, slices, transposes, table lookups.

`lookup` uses the permutes of AVX-512 where the row has them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from samebits.codegen import rules
from samebits.codegen.llvm_registers import Registers, align
from samebits.codegen.ssa import Vector, element_type, literal, part_type, split
from samebits.dtypes import DType


class Shuffles(Registers):
    """Words that make vectors without arithmetic."""

    def constant(self, value: float | bool, dtype: DType, width: int) -> Vector:
        sizes = split(width, self.isa.lanes)
        kind = "i1" if dtype.kind == "bool" else element_type(dtype)
        text = literal(rules.constant(value, dtype), kind)
        parts = tuple(text if s == 1 else "<" + ", ".join([f"{kind} {text}"] * s) + ">" for s in sizes)
        return Vector(dtype, parts, sizes)

    def _splat_text(self, scalar: str, kind: str, size: int) -> str:
        if size == 1:
            return self.w.value(f"insertelement <1 x {kind}> poison, {kind} {scalar}, i64 0")
        first = self.w.value(f"insertelement <{size} x {kind}> poison, {kind} {scalar}, i64 0")
        return self.w.value(
            f"shufflevector <{size} x {kind}> {first}, <{size} x {kind}> poison, <{size} x i32> zeroinitializer"
        )

    def like(self, x: Vector, value: float | bool) -> Vector:
        return self.constant(value, x.dtype, x.width)

    def splat(self, v: Vector, width: int) -> Vector:
        rules.single("splat", v)
        sizes, made = split(width, self.isa.lanes), {1: v.parts[0]}
        for size in sizes:
            if size not in made:
                made[size] = self._splat_text(v.parts[0], v.lane, size)
        return Vector(v.dtype, tuple(made[size] for size in sizes), sizes)

    def iota(self, dtype: DType, width: int) -> Vector:
        rules.iota(dtype, width)
        sizes, kind, parts, start = split(width, self.isa.lanes), element_type(dtype), [], 0
        for size in sizes:
            lanes = [f"{kind} {start + lane}" for lane in range(size)]
            parts.append("<" + ", ".join(lanes) + ">" if size > 1 else str(start))
            start += size
        return Vector(dtype, tuple(parts), sizes)

    def _gathered(self, source: Sequence[Vector], lanes: Sequence[int]) -> Vector:
        """Lanes of the concatenation of `source`, in the order given, as a new vector."""
        places = [(v, p, lane) for v in source for p, size in enumerate(v.sizes) for lane in range(size)]
        first, sizes, start = source[0], split(len(lanes), self.isa.lanes), 0
        parts = []
        for size in sizes:
            parts.append(self._shuffle([places[lane] for lane in lanes[start : start + size]], first.lane))
            start += size
        return Vector(first.dtype, tuple(parts), sizes)

    def _shuffle(self, places: Sequence[tuple[Vector, int, int]], lane: str) -> str:
        """One register from lanes of others: itself, one shufflevector, or lane by lane."""
        size = len(places)
        origins = list(dict.fromkeys((v.parts[p], v.sizes[p]) for v, p, _ in places))
        picks = [k for _, _, k in places]
        if len(origins) == 1 and origins[0][1] == size and picks == list(range(size)):
            return origins[0][0]
        if size > 1 and len(origins) <= 2 and len({s for _, s in origins}) == 1 and origins[0][1] > 1:
            wide = origins[0][1]
            base = {name: wide * n for n, (name, _) in enumerate(origins)}
            mask = ", ".join(f"i32 {base[v.parts[p]] + k}" for v, p, k in places)
            other = origins[-1][0] if len(origins) == 2 else "poison"
            kind = part_type(lane, wide)
            return self.w.value(f"shufflevector {kind} {origins[0][0]}, {kind} {other}, <{size} x i32> <{mask}>")
        scalars = []
        for v, p, k in places:
            name, wide = v.parts[p], v.sizes[p]
            scalars.append(name if wide == 1 else self.w.value(f"extractelement <{wide} x {lane}> {name}, i64 {k}"))
        if size == 1:
            return scalars[0]
        whole = "poison"
        for k, scalar in enumerate(scalars):
            whole = self.w.value(f"insertelement <{size} x {lane}> {whole}, {lane} {scalar}, i64 {k}")
        return whole

    def slice(self, v: Vector, start: int, width: int) -> Vector:
        rules.part(v, start, width)
        return self._gathered([v], range(start, start + width))

    def concat(self, vs: Sequence[Vector]) -> Vector:
        rules.sequence("concat", vs)
        return self._gathered(vs, range(sum(v.width for v in vs)))

    def pick(self, vs: Sequence[Vector], lanes: Sequence[int]) -> Vector:
        rules.picked(vs, lanes)
        return self._gathered(vs, lanes)

    def join(self, v: Vector, dtype: DType) -> Vector:
        rules.joined(v, dtype)
        each, kind = dtype.width_bits // v.dtype.width_bits, element_type(dtype)
        sizes, parts = split(v.width // each, self.isa.lanes), []
        left = [(part, size) for (_, part), size in zip(v.kinds(), v.sizes, strict=True)]
        for size in sizes:
            taken: list[tuple[str, int]] = []
            while sum(count for _, count in taken) < size * each:
                taken.append(left.pop(0))
            if taken[0][1] == 1:
                parts.append(self._stacked([part for part, _ in taken], v, kind))
                continue
            whole, lanes = self._side_by_side(taken, v.lane)
            parts.append(self.w.value(f"bitcast <{lanes} x {v.lane}> {whole} to {part_type(kind, size)}"))
        return Vector(dtype, tuple(parts), sizes)

    def _side_by_side(self, parts: list[tuple[str, int]], lane: str) -> tuple[str, int]:
        """Registers of one size, a power of two of them, as one."""
        while len(parts) > 1:
            size = parts[0][1]
            mask = ", ".join(f"i32 {k}" for k in range(2 * size))
            pairs = zip(parts[::2], parts[1::2], strict=True)
            kind = f"<{size} x {lane}>"
            parts = [
                (self.w.value(f"shufflevector {kind} {x}, {kind} {y}, <{2 * size} x i32> <{mask}>"), 2 * size)
                for (x, _), (y, _) in pairs
            ]
        return parts[0]

    def _stacked(self, scalars: Sequence[str], v: Vector, kind: str) -> str:
        """Scalars above one another in a wider one."""
        whole = self.w.value(f"zext {v.lane} {scalars[0]} to {kind}")
        for place, scalar in enumerate(scalars[1:], 1):
            wide = self.w.value(f"zext {v.lane} {scalar} to {kind}")
            moved = self.w.value(f"shl {kind} {wide}, {place * v.dtype.width_bits}")
            whole = self.w.value(f"or {kind} {whole}, {moved}")
        return whole

    def transpose(self, vs: Sequence[Vector]) -> list[Vector]:
        rules.same("transpose", *vs)
        n, width = len(vs), vs[0].width
        if n != width or n & (n - 1) or n > self.isa.lanes:
            return [self._gathered(vs, [row * width + column for row in range(n)]) for column in range(width)]
        # Squares within 128 bits by interleaving halves, then squares of 128-bit blocks by gathering even and odd ones:
        # patterns that are one in-lane or one block shuffle everywhere (other orders cost two, or an index register).
        side = min(n, max(1, 128 // vs[0].dtype.width_bits))
        within = [self._within(vs[first : first + side], side) for first in range(0, n, side)]
        columns = [self._blocks([rows[c] for rows in within], side) for c in range(side)]
        return [columns[k % side][k // side] for k in range(n)]

    def transpose_blocks(self, vs: Sequence[Vector]) -> list[Vector]:
        rules.blocks(vs)
        side, width = len(vs), vs[0].width
        if side & (side - 1) or width > self.isa.lanes or width & (width - 1):
            order = [[i * width + q + k for q in range(0, width, side) for i in range(side)] for k in range(side)]
            return [self._gathered(vs, lanes) for lanes in order]
        return self._within(vs, side)

    def _within(self, rows: Sequence[Vector], side: int) -> list[Vector]:
        """Row c: of each block of `side` lanes, lane c of every row."""
        n, half = rows[0].width, side // 2
        starts = [block + k for block in range(0, n, side) for k in range(half)]
        low, high = ([x for k in starts for x in (k + shift, n + k + shift)] for shift in (0, half))
        found = list(rows)
        for _ in range(side.bit_length() - 1):
            pairs = zip(found[:half], found[half:], strict=True)
            found = [self._gathered(pair, lanes) for pair in pairs for lanes in (low, high)]
        return found

    def _blocks(self, rows: Sequence[Vector], side: int) -> list[Vector]:
        """Row q: block q of every row, a block being `side` lanes."""
        n = rows[0].width
        picks = [
            [k for block in range(first, 2 * n, 2 * side) for k in range(block, block + side)] for first in (0, side)
        ]
        found = list(rows)
        for _ in range(len(rows).bit_length() - 1):
            pairs = list(zip(found[::2], found[1::2], strict=True))
            found = [self._gathered(pair, lanes) for lanes in picks for pair in pairs]
        return found

    def lookup(self, table: Sequence[float], dtype: DType, index: Vector) -> Vector:
        rules.table(len(table), dtype, index)
        table = [rules.constant(x, dtype) for x in table]
        parts = []
        for (kind, part), size in zip(index.kinds(), index.sizes, strict=True):
            permute = self._permute(dtype.name, size, len(table))
            if permute is not None:
                parts.append(permute(table, kind, part))
            else:
                parts.append(self._load_lanes(table, dtype, kind, part, size))
        return Vector(dtype, tuple(parts), index.sizes)

    def _permute(self, dtype: str, size: int, entries: int) -> Callable[[Sequence[float], str, str], str] | None:
        """How so many lanes of a dtype are looked up in a table of so many entries, if it is in registers."""
        if size == 8 and "lookup_at" in self.isa.instructions and dtype == "float32" and entries <= 8:
            return self._permute8_single
        if size != 16 or "lookup" not in self.isa.instructions:
            return None
        if dtype == "float64":
            return self._permute16 if entries <= 16 else None
        if dtype != "float32" or entries > 32:
            return None
        return self._permute16_single if entries <= 16 else self._permute32_single

    def _permute8_single(self, table: Sequence[float], kind: str, part: str) -> str:
        """Eight float32 of an 8-entry table: one vpermps."""
        arguments = [("<8 x float>", _entries(table, 8)), (kind, part)]
        return self.intrinsic("llvm.x86.avx2.permps", "<8 x float>", arguments)

    def _permute16(self, table: Sequence[float], kind: str, part: str) -> str:
        """Sixteen float64 of a 16-entry table: two vpermi2pd."""
        padded = [*table, *[0.0] * (16 - len(table))]
        halves = ["<" + ", ".join(f"double {literal(x, 'double')}" for x in padded[k : k + 8]) + ">" for k in (0, 8)]
        wide = self.w.value(f"zext {kind} {part} to <16 x i64>")
        found = []
        for k in (0, 8):
            mask = ", ".join(f"i32 {k + lane}" for lane in range(8))
            lanes = self.w.value(f"shufflevector <16 x i64> {wide}, <16 x i64> poison, <8 x i32> <{mask}>")
            found.append(
                self.intrinsic(
                    "llvm.x86.avx512.vpermi2var.pd.512",
                    "<8 x double>",
                    [
                        ("<8 x double>", halves[0]),
                        ("<8 x i64>", lanes),
                        ("<8 x double>", halves[1]),
                    ],
                )
            )
        mask = ", ".join(f"i32 {lane}" for lane in range(16))
        return self.w.value(f"shufflevector <8 x double> {found[0]}, <8 x double> {found[1]}, <16 x i32> <{mask}>")

    def _permute16_single(self, table: Sequence[float], kind: str, part: str) -> str:
        """Sixteen float32 of a 16-entry table: one vpermps."""
        arguments = [("<16 x float>", _entries(table)), (kind, part)]
        return self.intrinsic("llvm.x86.avx512.permvar.sf.512", "<16 x float>", arguments)

    def _permute32_single(self, table: Sequence[float], kind: str, part: str) -> str:
        """Sixteen float32 of a 32-entry table: one vpermi2ps."""
        halves = [("<16 x float>", _entries(table[k : k + 16])) for k in (0, 16)]
        arguments = [halves[0], (kind, part), halves[1]]
        return self.intrinsic("llvm.x86.avx512.vpermi2var.ps.512", "<16 x float>", arguments)

    def _load_lanes(self, table: Sequence[float], dtype: DType, kind: str, part: str, size: int) -> str:
        element, entries = (
            element_type(dtype),
            tuple(literal(x, element_type(dtype)) for x in table),
        )
        key = (element, *entries)
        if key not in self.constants:
            body = ", ".join(f"{element} {x}" for x in entries)
            name = f"@table{len(self.constants)}"
            self.constants[key] = (
                f"{name} = private unnamed_addr constant [{len(entries)} x {element}] [{body}], align 64"
            )
        name = self.constants[key].split(" ", 1)[0]
        whole = "poison"
        for lane in range(size):
            at = part if size == 1 else self.w.value(f"extractelement {kind} {part}, i64 {lane}")
            position = self.w.value(f"zext {kind if size == 1 else kind.split(' x ')[1][:-1]} {at} to i64")
            address = self.w.value(f"getelementptr {element}, ptr {name}, i64 {position}")
            one = self.w.value(f"load {element}, ptr {address}, align {align(dtype)}")
            if size == 1:
                return one
            whole = self.w.value(f"insertelement <{size} x {element}> {whole}, {element} {one}, i64 {lane}")
        return whole


def _entries(table: Sequence[float], count: int = 16) -> str:
    """At most so many float32 constants, filled up with zeros."""
    padded = [*table, *[0.0] * (count - len(table))]
    return "<" + ", ".join(f"float {literal(x, 'float')}" for x in padded) + ">"
