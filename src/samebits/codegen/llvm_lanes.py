"""Lanes of the LLVM builder: memory, arithmetic, shuffles and conversions of vectors.

Every method maps over the registers of a `Vector`; the only place where an instruction set shows is `lookup`,
which uses the two-register permute of AVX-512 when the row has it. `llvm.LlvmBuilder` adds arguments and control.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from samebits import dtypes
from samebits.codegen import rules
from samebits.codegen.isa import Isa
from samebits.codegen.ssa import (
    Index,
    Pointer,
    Vector,
    Writer,
    element_type,
    literal,
    operand,
    part_type,
    split,
)
from samebits.dtypes import DType


class Lanes:
    """Vector words of the vocabulary, written as LLVM instructions."""

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

    def _each(self, make: Callable[..., str], dtype: DType, *vectors: Vector) -> Vector:
        """`make(size, parts..)` for each register of vectors of one width (which are split alike)."""
        sizes = vectors[0].sizes
        parts = tuple(make(size, *(v.parts[i] for v in vectors)) for i, size in enumerate(sizes))
        return Vector(dtype, parts, sizes)

    def _binary(self, op: str, x: Vector, y: Vector, dtype: DType | None = None) -> Vector:
        return self._each(
            lambda size, a, b: self.w.value(f"{op} {part_type(x.lane, size)} {a}, {b}"),
            dtype or x.dtype,
            x,
            y,
        )

    def _math(self, name: str, *vectors: Vector, tail: Sequence[tuple[str, str]] = ()) -> Vector:
        """An intrinsic overloaded on the register type, e.g. llvm.fma.v8f32."""
        first = vectors[0]
        letter = "f" if first.dtype.kind == "float" else "i"

        def make(size: int, *parts: str) -> str:
            kind = part_type(first.lane, size)
            suffix = f"{letter}{first.dtype.width_bits}" if size == 1 else f"v{size}{letter}{first.dtype.width_bits}"
            return self.intrinsic(f"llvm.{name}.{suffix}", kind, [*((kind, p) for p in parts), *tail])

        return self._each(make, first.dtype, *vectors)

    # -- memory ------------------------------------------------------------------------------------------------
    def offset(self, p: Pointer, i: Any) -> Pointer:
        return Pointer(self._address(p, i), p.dtype)

    def cast(self, p: Pointer, dtype: DType) -> Pointer:
        return Pointer(p.name, dtype)

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
                parts.append(self.w.value(f"load {kind}, ptr {address}, align {_align(p.dtype)}"))
            else:
                parts.append(self._masked_load(address, lane, size, count - start, p.dtype))
            start += size
        v = Vector(p.dtype, tuple(parts), sizes)
        return self._as_mask(v) if p.dtype.kind == "bool" else v

    def store(self, p: Pointer, i: Any, v: Vector, count: Any = None) -> None:
        rules.stored(p.dtype, v)
        if v.is_mask:
            v = self._as_bytes(v)
        start, lane = 0, element_type(p.dtype)
        for (kind, part), size in zip(v.kinds(), v.sizes, strict=True):
            address = self._address(p, i + start)
            if count is None:
                self.w.emit(f"store {kind} {part}, ptr {address}, align {_align(p.dtype)}")
            else:
                self._masked_store(address, part, lane, size, count - start, p.dtype)
            start += size

    def _lane_mask(self, count: Any, size: int) -> str:
        """<size x i1>: lane < count. Compared as 32-bit lanes: 64-bit ones would need twice the registers."""
        if isinstance(count, int):
            return "<" + ", ".join(f"i1 {literal(lane < count, 'i1')}" for lane in range(size)) + ">"
        low = self.intrinsic("llvm.smax.i64", "i64", [("i64", operand(count)), ("i64", "0")])
        clamped = self.intrinsic("llvm.smin.i64", "i64", [("i64", low), ("i64", str(size))])
        splat = self._splat_text(self.w.value(f"trunc i64 {clamped} to i32"), "i32", size)
        lanes = ", ".join(f"i32 {lane}" for lane in range(size))
        return self.w.value(f"icmp slt <{size} x i32> <{lanes}>, {splat}")

    def _masked_load(self, address: str, lane: str, size: int, count: Any, dtype: DType) -> str:
        kind, mask = f"<{size} x {lane}>", self._lane_mask(count, size)
        name = f"llvm.masked.load.v{size}{_suffix(lane)}.p0"
        whole = self.intrinsic(
            name,
            kind,
            [
                ("ptr", address),
                ("i32", str(_align(dtype))),
                (f"<{size} x i1>", mask),
                (kind, "zeroinitializer"),
            ],
        )
        return whole if size > 1 else self.w.value(f"extractelement {kind} {whole}, i64 0")

    def _masked_store(self, address: str, part: str, lane: str, size: int, count: Any, dtype: DType) -> None:
        kind, mask = f"<{size} x {lane}>", self._lane_mask(count, size)
        if size == 1:
            part = self.w.value(f"insertelement {kind} poison, {lane} {part}, i64 0")
        arguments = [
            (kind, part),
            ("ptr", address),
            ("i32", str(_align(dtype))),
            (f"<{size} x i1>", mask),
        ]
        self.intrinsic(f"llvm.masked.store.v{size}{_suffix(lane)}.p0", "void", arguments)

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
        value = self.w.value(f"load {kind}, ptr {address}, align {_align(p.dtype)}")
        if p.dtype.width_bits < 64:
            extend = "sext" if p.dtype.kind == "int" else "zext"
            value = self.w.value(f"{extend} {kind} {value} to i64")
        return Index(self.w, value)

    def prefetch(self, p: Pointer, i: Any) -> None:
        address = self._address(p, i)
        self.intrinsic(
            "llvm.prefetch.p0",
            "void",
            [("ptr", address), ("i32", "0"), ("i32", "3"), ("i32", "1")],
        )

    def _as_mask(self, v: Vector) -> Vector:
        return self._each(
            lambda size, a: self.w.value(f"icmp ne {part_type('i8', size)} {a}, {_zero('i8', size)}"),
            dtypes.bool_,
            v,
        )

    def _as_bytes(self, v: Vector) -> Vector:
        parts = tuple(
            self.w.value(f"zext {kind} {part} to {part_type('i8', size)}")
            for (kind, part), size in zip(v.kinds(), v.sizes, strict=True)
        )
        return Vector(dtypes.uint8, parts, v.sizes)

    # -- making vectors ----------------------------------------------------------------------------------------
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

    def from_index(self, i: Any, dtype: DType) -> Vector:
        return self.convert(Vector(dtypes.int64, (operand(i),), (1,)), dtype)

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

    def transpose(self, vs: Sequence[Vector]) -> list[Vector]:
        rules.same("transpose", *vs)
        n, width = len(vs), vs[0].width
        if n != width or n & (n - 1) or n > self.isa.lanes:
            return [self._gathered(vs, [row * width + column for row in range(n)]) for column in range(width)]
        rows, distance = list(vs), n // 2
        while distance:  # exchange off-diagonal blocks of size `distance`, halving: log2(n) rounds of n shuffles
            for i in range(n):
                if i & distance:
                    continue
                x, y = rows[i], rows[i + distance]
                low = [k if not k & distance else n + k - distance for k in range(n)]
                high = [k + distance if not k & distance else n + k for k in range(n)]
                rows[i], rows[i + distance] = (
                    self._gathered([x, y], low),
                    self._gathered([x, y], high),
                )
            distance //= 2
        return rows

    def lookup(self, table: Sequence[float], dtype: DType, index: Vector) -> Vector:
        rules.table(len(table), dtype, index)
        table = [rules.constant(x, dtype) for x in table]
        permute = dtype.name == "float64" and len(table) <= 16 and self.isa.name == "avx512"
        parts = []
        for (kind, part), size in zip(index.kinds(), index.sizes, strict=True):
            if permute and size == 16:
                parts.append(self._permute16(table, kind, part))
            else:
                parts.append(self._load_lanes(table, dtype, kind, part, size))
        return Vector(dtype, tuple(parts), index.sizes)

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
            one = self.w.value(f"load {element}, ptr {address}, align {_align(dtype)}")
            if size == 1:
                return one
            whole = self.w.value(f"insertelement <{size} x {element}> {whole}, {element} {one}, i64 {lane}")
        return whole

    # -- arithmetic --------------------------------------------------------------------------------------------
    def add(self, x: Vector, y: Vector) -> Vector:
        rules.numbers("add", x, y)
        return self._binary("fadd" if x.dtype.kind == "float" else "add", x, y)

    def sub(self, x: Vector, y: Vector) -> Vector:
        rules.numbers("sub", x, y)
        return self._binary("fsub" if x.dtype.kind == "float" else "sub", x, y)

    def mul(self, x: Vector, y: Vector) -> Vector:
        rules.numbers("mul", x, y)
        return self._binary("fmul" if x.dtype.kind == "float" else "mul", x, y)

    def div(self, x: Vector, y: Vector) -> Vector:
        rules.floats("div", x, y)
        return self._binary("fdiv", x, y)

    def fma(self, x: Vector, y: Vector, z: Vector) -> Vector:
        rules.floats("fma", x, y, z)
        return self._math("fma", x, y, z)

    def sqrt(self, x: Vector) -> Vector:
        rules.floats("sqrt", x)
        return self._math("sqrt", x)

    def rint(self, x: Vector) -> Vector:
        rules.floats("rint", x)
        return self._math("roundeven", x)

    def neg(self, x: Vector) -> Vector:
        rules.numbers("neg", x)
        if x.dtype.kind != "float":
            return self.sub(self.constant(0, x.dtype, x.width), x)
        return self._each(
            lambda size, a: self.w.value(f"fneg {part_type(x.lane, size)} {a}"),
            x.dtype,
            x,
        )

    def abs(self, x: Vector) -> Vector:
        rules.numbers("abs", x)
        if x.dtype.kind == "uint":
            return x
        return self._math("fabs", x) if x.dtype.kind == "float" else self._math("abs", x, tail=[("i1", "false")])

    def maximum(self, x: Vector, y: Vector) -> Vector:
        rules.numbers("maximum", x, y)
        return self._math({"float": "maximum", "int": "smax"}.get(x.dtype.kind, "umax"), x, y)

    def minimum(self, x: Vector, y: Vector) -> Vector:
        rules.numbers("minimum", x, y)
        return self._math({"float": "minimum", "int": "smin"}.get(x.dtype.kind, "umin"), x, y)

    def canonical(self, x: Vector) -> Vector:
        if x.dtype.kind != "float":
            return x
        # To LLVM the code of a computed NaN is its own to choose, so it may drop this select (and does, after sqrt);
        # behind a fence x is no computation, and its NaNs are as they are.
        x = self._math("arithmetic.fence", x)
        return self.select(self.is_nan(x), self.constant(float("nan"), x.dtype, x.width), x)

    # -- bits and comparisons ----------------------------------------------------------------------------------
    def bit_and(self, x: Vector, y: Vector) -> Vector:
        rules.bits("bit_and", x, y)
        return self._binary("and", x, y)

    def bit_or(self, x: Vector, y: Vector) -> Vector:
        rules.bits("bit_or", x, y)
        return self._binary("or", x, y)

    def bit_xor(self, x: Vector, y: Vector) -> Vector:
        rules.bits("bit_xor", x, y)
        return self._binary("xor", x, y)

    def shift_left(self, x: Vector, bits: int) -> Vector:
        rules.shift("shift_left", x, bits)
        return self._binary("shl", x, self.constant(bits, x.dtype, x.width))

    def shift_right(self, x: Vector, bits: int) -> Vector:
        rules.shift("shift_right", x, bits)
        op = "ashr" if x.dtype.kind == "int" else "lshr"
        return self._binary(op, x, self.constant(bits, x.dtype, x.width))

    def _compare(self, ordered: str, signed: str, unsigned: str, x: Vector, y: Vector) -> Vector:
        op = {"float": f"fcmp {ordered}", "int": f"icmp {signed}"}.get(x.dtype.kind, f"icmp {unsigned}")
        return self._binary(op, x, y, dtypes.bool_)

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
        return self._binary("fcmp uno", x, x, dtypes.bool_)

    def invert(self, m: Vector) -> Vector:
        rules.mask("invert", m)
        return self.bit_xor(m, self.constant(True, m.dtype, m.width))

    def select(self, m: Vector, x: Vector, y: Vector) -> Vector:
        rules.selection(m, x, y)

        def make(size: int, c: str, a: str, b: str) -> str:
            kind = part_type(x.lane, size)
            return self.w.value(f"select {part_type('i1', size)} {c}, {kind} {a}, {kind} {b}")

        return self._each(make, x.dtype, m, x, y)

    # -- conversion --------------------------------------------------------------------------------------------
    def convert(self, x: Vector, dtype: DType) -> Vector:
        if x.dtype is dtype:
            return x
        rules.conversion(x.dtype, dtype)
        if dtype.kind == "bool":
            zero = self.constant(0, x.dtype, x.width)
            return self._binary("fcmp une" if x.dtype.kind == "float" else "icmp ne", x, zero, dtype)
        source, target = x.lane, element_type(dtype)
        if x.dtype.kind == "float" and dtype.kind != "float":
            return self._saturate(x, dtype)
        op = _conversion(x.dtype, dtype)
        if op is None:
            return Vector(dtype, x.parts, x.sizes)
        return self._each(
            lambda size, a: self.w.value(f"{op} {part_type(source, size)} {a} to {part_type(target, size)}"),
            dtype,
            x,
        )

    def _saturate(self, x: Vector, dtype: DType) -> Vector:
        op = "fptosi" if dtype.kind == "int" else "fptoui"

        def make(size: int, part: str) -> str:
            source, target = (
                part_type(x.lane, size),
                part_type(element_type(dtype), size),
            )
            n = "" if size == 1 else f"v{size}"
            name = f"llvm.{op}.sat.{n}i{dtype.width_bits}.{n}f{x.dtype.width_bits}"
            return self.intrinsic(name, target, [(source, part)])

        return self._each(make, dtype, x)

    def bitcast(self, x: Vector, dtype: DType) -> Vector:
        rules.bitcast(x.dtype, dtype)
        source, target = x.lane, element_type(dtype)
        if source == target:
            return Vector(dtype, x.parts, x.sizes)
        return self._each(
            lambda size, a: self.w.value(f"bitcast {part_type(source, size)} {a} to {part_type(target, size)}"),
            dtype,
            x,
        )


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


def _align(dtype: DType) -> int:
    return max(dtype.width_bits, 8) // 8


def _suffix(lane: str) -> str:
    return {"float": "f32", "double": "f64"}.get(lane, lane)


def _zero(lane: str, size: int) -> str:
    return "zeroinitializer" if size > 1 else literal(0, lane)
