"""Kernel text that is refused, by both builders alike."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import rows

from samebits import dtypes
from samebits.codegen import interpreter, llvm
from samebits.codegen.isa import Isa
from samebits.codegen.vocabulary import Builder, FunctionSpec, KernelSpec, Vector
from samebits.dtypes import DType, bool_, float32, float64, int8, int32, int64, uint8, uint32

Array = Any


def nothing(b: Builder, description: None) -> None:
    """The text of builders that tests give other words."""


def _builders(isa: Isa) -> Builder:
    spec = KernelSpec(nothing, None, ("p",), isa)
    return llvm.LlvmBuilder(spec) if isa.compiled else interpreter.NumpyBuilder(spec, [0], 0, 1, 0)


def _f(b: Builder, width: int = 4, dtype: DType = float32) -> Vector:
    return b.constant(1, dtype, width)


REFUSED: dict[str, tuple[Callable[[Builder], object], str]] = {
    "widths": (lambda b: b.add(_f(b, 4), _f(b, 5)), "add of float32 x 4, float32 x 5: they must agree"),
    "dtypes": (lambda b: b.mul(_f(b), _f(b, 4, float64)), "mul of float32 x 4, float64 x 4: they must agree"),
    "signs": (lambda b: b.add(_f(b, 4, int32), _f(b, 4, uint32)), "add of int32 x 4, uint32 x 4: they must agree"),
    "third": (lambda b: b.fma(_f(b), _f(b), _f(b, 3)), "fma of float32 x 4, float32 x 4, float32 x 3: they must agree"),
    "unaligned call": (
        lambda b: b.call(
            b.function("f", (int32,), lambda p: None), b.offset(b.cast(b.pointer("p", uint8), int32, aligned=False), 1)
        ),
        "call with a pointer at any byte: must be aligned; cast it inside the function",
    ),
    "integer div": (lambda b: b.div(_f(b, 4, int32), _f(b, 4, int32)), "div of int32: must be float32 or float64"),
    "integer sqrt": (lambda b: b.sqrt(_f(b, 4, int8)), "sqrt of int8: must be float32 or float64"),
    "mask add": (
        lambda b: b.add(_f(b, 4, bool_), _f(b, 4, bool_)),
        "add of bool: must be float32, float64 or an integer of whole bytes",
    ),
    "float bits": (
        lambda b: b.bit_and(_f(b), _f(b)),
        "bit_and of float32: must be an integer of whole bytes or a mask",
    ),
    "float shift": (lambda b: b.shift_left(_f(b), 1), "shift_left of float32: must be an integer of whole bytes"),
    "far shift": (lambda b: b.shift_right(_f(b, 4, int8), 8), "shift_right of int8 by 8: must be within 0 .. 7"),
    "select": (lambda b: b.select(_f(b), _f(b), _f(b)), "select of float32: must be a mask"),
    "select width": (
        lambda b: b.select(_f(b, 3, bool_), _f(b), _f(b)),
        "select of 3 mask lanes and 4 lanes: they must agree",
    ),
    "any": (lambda b: b.any(_f(b)), "any of float32: must be a mask"),
    "invert": (lambda b: b.invert(_f(b, 4, int32)), "invert of int32: must be a mask"),
    "splat": (lambda b: b.splat(_f(b), 8), "splat of 4 lanes: must be 1"),
    "slice": (lambda b: b.slice(_f(b), 2, 3), "slice of lanes 2 .. 4 from 4"),
    "join": (
        lambda b: b.join(_f(b, 6, uint8), uint32),
        "join of uint8 x 6 to uint32: must be unsigned lanes that fill wider ones",
    ),
    "join signed": (
        lambda b: b.join(_f(b, 4, int32), int64),
        "join of int32 x 4 to int64: must be unsigned lanes that fill wider ones",
    ),
    "concat": (lambda b: b.concat([_f(b), _f(b, 4, int32)]), "concat of ['float32', 'int32']: must be one dtype"),
    "pick": (
        lambda b: b.pick([_f(b), _f(b)], [0, 8]),
        "pick of lanes [0, 8] of 8: must be at least one, within 0 .. 7",
    ),
    "pick none": (lambda b: b.pick([_f(b)], []), "pick of lanes [] of 4: must be at least one, within 0 .. 3"),
    "transpose": (
        lambda b: b.transpose([_f(b), _f(b, 3)]),
        "transpose of float32 x 4, float32 x 3: they must agree",
    ),
    "transpose_blocks": (
        lambda b: b.transpose_blocks([_f(b)] * 3),
        "transpose_blocks of 3 x 4 lanes: must be whole squares",
    ),
    "bitcast": (
        lambda b: b.bitcast(_f(b), int64),
        "bitcast of float32 to int64: must be elements of one width, not masks",
    ),
    "bitcast mask": (
        lambda b: b.bitcast(_f(b, 4, bool_), uint8),
        "bitcast of bool to uint8: must be elements of one width, not masks",
    ),
    "convert": (
        lambda b: b.convert(_f(b), dtypes.bfloat16),
        "convert of bfloat16: must be a computed number or a mask",
    ),
    "convert half": (
        lambda b: b.convert(_f(b), dtypes.float16),
        "convert of float16: must be a computed number or a mask",
    ),
    "constant range": (lambda b: b.constant(300, uint8, 4), "constant 300 of uint8: must be within 0 .. 255"),
    "constant part": (
        lambda b: b.constant(1.5, int32, 4),
        "constant 1.5 of int32: must be within -2147483648 .. 2147483647",
    ),
    "constant large": (
        lambda b: b.constant(1e300, float32, 4),
        "constant 1e+300 of float32: must be finite in float32, or infinite itself",
    ),
    "constant narrow": (
        lambda b: b.constant(1.0, dtypes.float16, 4),
        "constant of float16: must be a computed number or a mask",
    ),
    "iota": (lambda b: b.iota(float32, 4), "iota of float32: must be an integer of whole bytes"),
    "iota range": (lambda b: b.iota(int8, 200), "constant 199 of int8: must be within -128 .. 127"),
    "lookup_halves": (
        lambda b: b.lookup_halves([1] * 16, _f(b, 4, int64)),
        "lookup_halves of 16 entries by int64: must be of 32 codes of 16 bits by uint32",
    ),
    "lookup_bytes": (
        lambda b: b.lookup_bytes([256] * 16, _f(b, 4, dtypes.uint32)),
        "lookup_bytes of 16 entries by uint32: must be of 16 codes of 8 bits by uint32",
    ),
    "lookup_at": (
        lambda b: b.lookup_at(b.pointer("p", dtypes.float64), 0, _f(b, 4, int32)),
        "lookup_at of float64 by int32: must be of numbers of 32 bits by uint32",
    ),
    "lookup": (
        lambda b: b.lookup([1.0], float32, _f(b, 4, int64)),
        "lookup of int64 in 1 entries: must be int32 in at least one",
    ),
    "store": (
        lambda b: b.store(b.pointer("p", float32), 0, _f(b, 4, float64)),
        "store of float64 to elements of float32: convert or cast first",
    ),
    "load_index": (
        lambda b: b.load_index(b.pointer("p", float32), 0),
        "load_index of float32: must be an integer of whole bytes or bool",
    ),
    "step": (lambda b: list(b.loop(0, 4, 0)), "loop step 0: must be at least 1"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_text_that_mixes_types_is_refused_alike_by_both_builders(case: str) -> None:
    use, text = REFUSED[case]
    for isa in (rows.FAKE3, rows.ALL_ROWS[0]):
        with pytest.raises(TypeError) as caught:
            use(_builders(isa))
        assert str(caught.value) == text


COMPILED_REFUSED: dict[str, tuple[Callable[[Any], object], str]] = {
    "carry": (
        lambda b: _carry(b, lambda c: c.__setitem__(0, _f(b, 5))),
        "a body carries ['float32 x 5', 'index']: must be as before, ['float32 x 4', 'index']",
    ),
    "call": (
        lambda b: b.call(b.function("f", (float32, None), lambda p, i: None), 3, 3),
        "call of f with [None, None]: must be [float32, None] (None: an index)",
    ),
    "chosen function": (
        lambda b: b.choose(b.index("p") < 3, b.callee("p", (float32,)), b.callee("p", (None,))),
        "choose of a function and something else: must be functions with the same parameters",
    ),
    "condition": (
        lambda b: bool(b.index("p") < 3),
        "a condition of a kernel is known when it runs, not when it is emitted; use b.when",
    ),
    "index": (
        lambda b: bool(b.index("p")),
        "an index of a kernel is known when it runs, not when it is emitted; use b.when",
    ),
    "argument": (
        lambda b: b.function("f", (), lambda: b.index("p")),
        "p inside a function: must be passed to it as a parameter",
    ),
    "further": (
        lambda b: b.function("f", (), lambda: b.further()),
        "further inside a function: must be passed to it as a parameter",
    ),
    "scratch": (
        lambda b: b.function("f", (), lambda: b.scratch(float32)),
        "scratch inside a function: must be passed to it as a parameter",
    ),
}


def _carry(b: Any, body: Callable[[list[Any]], None]) -> None:
    carry = [_f(b), 0]
    for _ in b.loop(0, 3, carry=carry):
        body(carry)


@pytest.mark.parametrize("case", COMPILED_REFUSED)
def test_a_text_that_cannot_be_compiled_says_why(case: str) -> None:
    use, text = COMPILED_REFUSED[case]
    with pytest.raises(TypeError) as caught:
        use(_builders(rows.FAKE3))
    assert str(caught.value) == text


def test_a_kernel_is_a_function_of_a_module() -> None:
    with pytest.raises(TypeError) as caught:
        KernelSpec(lambda b, d: None, None, (), rows.FAKE3)
    name = "test_a_kernel_is_a_function_of_a_module.<locals>.<lambda>"
    assert str(caught.value) == (
        f"KernelSpec: text {name} must be a function of a module: its name is in the cache key"
    )


def with_default(b: Builder, d: None, held: int = 1) -> None:
    """No kernel: its default value is in no cache key."""


class Holder:
    """Has a method that is no kernel: what it is bound to is in no cache key."""

    def text(self, b: Builder, d: None) -> None: ...


def test_a_text_holds_no_values_of_its_own() -> None:
    """Two of one name and description would share a compiled object."""
    held = 1

    def closed(b: Builder, d: None) -> None:
        print(held)

    closed.__qualname__ = "closed"
    for text, name in ((with_default, "with_default"), (Holder().text, "Holder.text"), (closed, "closed")):
        for spec, kind in ((KernelSpec, "KernelSpec"), (FunctionSpec, "FunctionSpec")):
            with pytest.raises(TypeError) as caught:
                spec(text, None, (), rows.FAKE3)
            assert str(caught.value) == (
                f"{kind}: text {name} holds values of its own, which are not in the cache key: "
                "give them in the description"
            )
