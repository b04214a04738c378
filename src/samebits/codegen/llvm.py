"""The LLVM meaning of the vocabulary: kernel text in, one LLVM module as text out.

A vector is split into parts of `isa.lanes` lanes whatever its dtype; LLVM halves what is wider than a register
(16 float64 lanes become two zmm). Start at `emit`; control is in `LlvmBuilder`, lanes in `llvm_lanes.Lanes`, their
inner products in `llvm_dots.Dots`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from samebits.codegen import llvm_tiles, rules
from samebits.codegen.llvm_dots import Dots
from samebits.codegen.ssa import (
    Callee,
    Condition,
    Index,
    Pointer,
    TileRegister,
    Vector,
    Writer,
    element_type,
    operand,
)
from samebits.codegen.vocabulary import ENTRY, FunctionSpec, KernelSpec
from samebits.dtypes import DType, int64, uint8


def emit(spec: KernelSpec | FunctionSpec) -> str:
    """The LLVM module of one kernel or function; its only exported function is `ENTRY`."""
    builder = LlvmBuilder(spec)
    spec.text(builder, spec.description, *builder.passed)
    return builder.module()


class LlvmBuilder(Dots):
    """`vocabulary.Builder` that writes LLVM IR."""

    def __init__(self, spec: KernelSpec | FunctionSpec) -> None:
        if isinstance(spec, KernelSpec):
            taken = "ptr noalias %arguments, i64 %begin, i64 %end, ptr noalias align 64 %scratch"
        else:
            taken = _signature(spec.parameters)
        super().__init__(spec.isa, Writer(f"define void @{ENTRY}({taken}) nounwind"))
        self._kernel = self.w if isinstance(spec, KernelSpec) else None
        self._parameters = {name: i for i, name in enumerate(spec.parameters) if isinstance(name, str)}
        # What the text of a function is passed after the description.
        self.passed = [] if isinstance(spec, KernelSpec) else self._passed(spec.parameters)
        self._functions: list[str] = []
        self._names = {ENTRY}
        self._arguments: dict[str, str] = {}
        self._unroll = spec.unroll
        self._metadata: list[str] = []

    def module(self) -> str:
        """Declarations, constants, functions and what is said of loops as one text."""
        functions = [*self._functions, self.w.text()]
        return "\n".join([*self.constants.values(), *sorted(self.declarations), *functions, *self._metadata, ""])

    # -- arguments and tasks ---------------------------------------------------------------------------------
    def _argument(self, name: str) -> str:
        """Arguments are read once, in the entry block, so that every later block may use them."""
        self._in_kernel(name)
        if name not in self._arguments:
            slot, value = self.w.fresh("slot"), self.w.fresh("arg")
            self.w.entry.append(f"  {slot} = getelementptr i64, ptr %arguments, i64 {self._parameters[name]}")
            self.w.entry.append(f"  {value} = load i64, ptr {slot}, align 8")
            self._arguments[name] = value
        return self._arguments[name]

    def pointer(self, name: str, dtype: DType) -> Pointer:
        key = name + " pointer"
        if key not in self._arguments:
            address, value = self._argument(name), self.w.fresh("ptr")
            self.w.entry.append(f"  {value} = inttoptr i64 {address} to ptr")
            self._arguments[key] = value
        return Pointer(self._arguments[key], dtype)

    def _in_kernel(self, what: str) -> None:
        if self.w is not self._kernel:
            raise TypeError(f"{what} inside a function: must be passed to it as a parameter")

    def index(self, name: str) -> Index:
        return Index(self.w, self._argument(name))

    def scalar(self, name: str, dtype: DType) -> Vector:
        kind, bits = element_type(dtype), max(dtype.width_bits, 8)
        value = self._argument(name)
        if dtype.kind == "bool":
            return Vector(dtype, (self.w.value(f"icmp ne i64 {value}, 0"),), (1,))
        if bits < 64:
            value = self.w.value(f"trunc i64 {value} to i{bits}")
        if dtype.kind == "float" and not kind.startswith("i"):
            value = self.w.value(f"bitcast i{bits} {value} to {kind}")
        return Vector(dtype, (value,), (1,))

    def callee(self, name: str, parameters: Sequence[DType | None]) -> Callee:
        return Callee(self.pointer(name, uint8).name, tuple(parameters))

    def further(self) -> Pointer:
        self._in_kernel("further")
        behind = len(self._parameters)
        return Pointer(self.w.value(f"getelementptr i64, ptr %arguments, i64 {behind}"), int64)

    def tasks(self) -> Iterator[Index]:
        self._in_kernel("tasks")
        yield from self.loop(Index(self.w, "%begin"), Index(self.w, "%end"))

    def scratch(self, dtype: DType, offset_bytes: Any = 0) -> Pointer:
        self._in_kernel("scratch")
        return Pointer(
            self.w.value(f"getelementptr i8, ptr %scratch, i64 {operand(offset_bytes)}"),
            dtype,
        )

    def local(self, dtype: DType, count: int) -> Pointer:
        name = self.w.fresh("local")
        self.w.entry.append(f"  {name} = alloca [{count} x {element_type(dtype)}], align 64")
        return Pointer(name, dtype)

    # -- indices ---------------------------------------------------------------------------------------------
    def min(self, x: Any, y: Any) -> Any:
        return self._extreme("smin", min, x, y)

    def max(self, x: Any, y: Any) -> Any:
        return self._extreme("smax", max, x, y)

    def _extreme(self, name: str, python: Callable[[int, int], int], x: Any, y: Any) -> Any:
        if isinstance(x, int) and isinstance(y, int):
            return python(x, y)
        return Index(
            self.w,
            self.intrinsic(f"llvm.{name}.i64", "i64", [("i64", operand(x)), ("i64", operand(y))]),
        )

    def choose(self, condition: Any, x: Any, y: Any) -> Any:
        if isinstance(condition, bool):
            return x if condition else y
        if isinstance(x, Callee):
            if not isinstance(y, Callee) or x.parameters != y.parameters:
                raise TypeError("choose of a function and something else: must be functions with the same parameters")
            return Callee(self.w.value(f"select i1 {condition.name}, ptr {x.name}, ptr {y.name}"), x.parameters)
        if isinstance(x, Pointer):
            if not isinstance(y, Pointer) or x.dtype is not y.dtype:
                raise TypeError("choose of a pointer and something else: must be pointers to one dtype")
            chosen = self.w.value(f"select i1 {condition.name}, ptr {x.name}, ptr {y.name}")
            return Pointer(chosen, x.dtype, x.aligned and y.aligned)
        return Index(
            self.w,
            self.w.value(f"select i1 {condition.name}, i64 {operand(x)}, i64 {operand(y)}"),
        )

    # -- control ---------------------------------------------------------------------------------------------
    def loop(self, start: Any, stop: Any, step: Any = 1, carry: list[Any] | None = None) -> Iterator[Index]:
        rules.step(step)
        w, carry = self.w, carry if carry is not None else []
        body, latch_stop, done = w.label("body"), operand(stop), w.label("done")
        first = list(_flatten(carry))
        entry = w.block
        enter = w.value(f"icmp slt i64 {operand(start)}, {latch_stop}")
        w.emit(f"br i1 {enter}, label %{body}, label %{done}")
        w.begin(body)
        i, i_line = w.fresh("i"), w.reserve()
        phis = [[(w.fresh("phi"), w.reserve()) for _ in _registers(value)] for value in first]
        _assign(
            carry,
            [_rebuild(self.w, value, [n for n, _ in p]) for value, p in zip(first, phis, strict=True)],
        )
        yield Index(w, i)
        last, latch = _carried(carry, first), w.block
        following = w.value(f"add nsw i64 {i}, {operand(step)}")
        again = w.value(f"icmp slt i64 {following}, {latch_stop}")
        w.emit(f"br i1 {again}, label %{body}, label %{done}{self._loop_metadata()}")
        w.lines[i_line] = f"  {i} = phi i64 [ {operand(start)}, %{entry} ], [ {following}, %{latch} ]"
        w.begin(done)
        results = []
        for before, after, names in zip(first, last, phis, strict=True):
            merged = []
            both = zip(_registers(before), _registers(after), names, strict=True)
            for (kind, x), (_, y), (name, line) in both:
                w.lines[line] = f"  {name} = phi {kind} [ {x}, %{entry} ], [ {y}, %{latch} ]"
                merged.append(w.value(f"phi {kind} [ {x}, %{entry} ], [ {y}, %{latch} ]"))
            results.append(_rebuild(w, before, merged))
        _assign(carry, results)

    def _loop_metadata(self) -> str:
        """What the last branch of a loop says of how it may be compiled."""
        if self._unroll:
            return ""
        # Each loop has a node of its own; the first says what holds for all of them.
        if not self._metadata:
            self._metadata.append('!0 = !{!"llvm.loop.unroll.disable"}')
        number = len(self._metadata)
        self._metadata.append(f"!{number} = distinct !{{!{number}, !0}}")
        return f", !llvm.loop !{number}"

    def when(self, condition: Any, carry: list[Any] | None = None) -> Iterator[None]:
        if isinstance(condition, bool):
            if condition:
                yield None
            return
        w, carry = self.w, carry if carry is not None else []
        then, done = w.label("then"), w.label("join")
        first, entry = list(_flatten(carry)), w.block
        w.emit(f"br i1 {condition.name}, label %{then}, label %{done}")
        w.begin(then)
        yield None
        last, end = _carried(carry, first), w.block
        w.emit(f"br label %{done}")
        w.begin(done)
        results = []
        for before, after in zip(first, last, strict=True):
            merged = [
                w.value(f"phi {kind} [ {x}, %{entry} ], [ {y}, %{end} ]")
                for (kind, x), (_, y) in zip(_registers(before), _registers(after), strict=True)
            ]
            results.append(_rebuild(w, before, merged))
        _assign(carry, results)

    def function(self, name: str, parameters: Sequence[DType | None], body: Callable[..., None]) -> Any:
        outer, outer_arguments = self.w, self._arguments
        unique = name if name not in self._names else f"{name}.{len(self._names)}"
        self._names.add(unique)
        defined = f"define internal void @{unique}({_signature(parameters)}) noinline nounwind"
        self.w, self._arguments = Writer(defined), {}
        body(*self._passed(parameters))
        self._functions.append(self.w.text())
        self.w, self._arguments = outer, outer_arguments
        return Callee(f"@{unique}", tuple(parameters))

    def _passed(self, parameters: Sequence[DType | None]) -> list[Any]:
        """What `_signature` names."""
        return [Index(self.w, f"%p{i}") if d is None else Pointer(f"%p{i}", d) for i, d in enumerate(parameters)]

    def call(self, function: Callee, *arguments: Any) -> None:
        rules.passed(*arguments)
        given = [x.dtype if isinstance(x, Pointer) else None for x in arguments]
        if given != list(function.parameters):
            expected = f"must be {list(function.parameters)} (None: an index)"
            raise TypeError(f"call of {function.name[1:]} with {given}: {expected}")
        texts = [x.name if isinstance(x, Pointer) else operand(x) for x in arguments]
        passed = ", ".join(f"{_parameter(d)} {x}" for d, x in zip(function.parameters, texts, strict=True))
        self.w.emit(f"call void {function.name}({passed})")

    # -- tiles -----------------------------------------------------------------------------------------------
    def tiles(self) -> Iterator[None]:
        self._in_kernel("tiles")
        yield from llvm_tiles.enabled(self)

    def tile(self) -> TileRegister:
        self.w.tiles += 1
        rules.tile_number(self.w.tiles)
        return llvm_tiles.made(self, self.w.tiles - 1)

    def tile_zero(self, x: TileRegister) -> None:
        llvm_tiles.zero(self, x)

    def tile_load(self, x: TileRegister, p: Pointer, step: Any) -> None:
        llvm_tiles.load(self, x, p, step)

    def tile_store(self, x: TileRegister, p: Pointer, step: Any) -> None:
        llvm_tiles.store(self, x, p, step)

    def tile_dot4_int8(self, acc: TileRegister, x: TileRegister, y: TileRegister) -> None:
        llvm_tiles.dot(self, "dot4_int8", acc, x, y)

    def tile_dot4_int8_uint8(self, acc: TileRegister, x: TileRegister, y: TileRegister) -> None:
        llvm_tiles.dot(self, "dot4_int8_uint8", acc, x, y)

    def tile_dot4_uint8_int8(self, acc: TileRegister, x: TileRegister, y: TileRegister) -> None:
        llvm_tiles.dot(self, "dot4_uint8_int8", acc, x, y)

    def tile_dot4_uint8(self, acc: TileRegister, x: TileRegister, y: TileRegister) -> None:
        llvm_tiles.dot(self, "dot4_uint8", acc, x, y)

    def tile_dot2_bfloat16(self, acc: TileRegister, x: TileRegister, y: TileRegister) -> None:
        llvm_tiles.dot_bfloat16(self, acc, x, y)

    def any(self, m: Vector) -> Condition:
        rules.mask("any", m)
        found = "false"
        for (kind, part), size in zip(m.kinds(), m.sizes, strict=True):
            one = part
            if size > 1:
                one = self.intrinsic(f"llvm.vector.reduce.or.v{size}i1", "i1", [(kind, part)])
            found = self.w.value(f"or i1 {found}, {one}")
        return Condition(self.w, found)


def _parameter(dtype: DType | None) -> str:
    return "i64" if dtype is None else "ptr"


def _signature(parameters: Sequence[DType | None]) -> str:
    """The parameters of a function, named by their numbers."""
    return ", ".join(f"{_parameter(d)} %p{i}" for i, d in enumerate(parameters))


def _flatten(carry: list[Any]) -> Iterator[Any]:
    for item in carry:
        if isinstance(item, list):
            yield from _flatten(item)
        else:
            yield item


def _carried(carry: list[Any], before: list[Any]) -> list[Any]:
    """The carried values after the body, each of the kind it had before."""
    after = list(_flatten(carry))
    kinds = [[_kind(x) for x in values] for values in (before, after)]
    if kinds[0] != kinds[1]:
        raise TypeError(f"a body carries {kinds[1]}: must be as before, {kinds[0]}")
    return after


def _kind(value: Any) -> str:
    return f"{value.dtype.name} x {value.width}" if isinstance(value, Vector) else "index"


def _assign(carry: list[Any], values: list[Any]) -> None:
    """Put values back into the nested list, in the order of `_flatten`."""
    remaining = iter(values)

    def fill(items: list[Any]) -> None:
        for position, item in enumerate(items):
            if isinstance(item, list):
                fill(item)
            else:
                items[position] = next(remaining)

    fill(carry)


def _registers(value: Any) -> list[tuple[str, str]]:
    """(LLVM type, name) of the SSA values that a carried value consists of."""
    return list(value.kinds()) if isinstance(value, Vector) else [("i64", operand(value))]


def _rebuild(w: Writer, like: Any, names: list[str]) -> Any:
    return Vector(like.dtype, tuple(names), like.sizes) if isinstance(like, Vector) else Index(w, names[0])
