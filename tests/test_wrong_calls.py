"""Wrong calls of every public function: each is answered by one sentence of ours.

Right arguments are spoiled by number: one to three of them become something of a wrong type, rank, extent, dtype or
range. Whatever is raised is a SamebitsError, or a TypeError or MemoryError with a sentence like one; Python itself says
that a signature is another. Nothing else leaves the library, but what is a defect of ours, which nothing may hide.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import samebits as sb
from samebits import dtypes
from samebits.layout import Swizzle, TiledLayout, coalesce, tma_violations
from samebits.ops import call as calls
from samebits.ops import elementwise

F32 = np.float32


class Odd:
    """An object that is nothing that any call takes."""

    def __repr__(self) -> str:
        return "<odd>"


def tensor(*shape: int, dtype: str = "float32") -> sb.Tensor:
    return sb.Tensor.zeros(shape, dtype)


# What may come in the place of any argument: each time made anew, so that nothing that a call wrote is met again.
WRONG: dict[str, Callable[[], Any]] = {
    "None": lambda: None, "True": lambda: True, "0": lambda: 0, "-1": lambda: -1, "7": lambda: 7,
    "1 << 62": lambda: 1 << 62, "10 ** 400": lambda: 10**400, "1.5": lambda: 1.5, "nan": lambda: float("nan"),
    "inf": lambda: float("inf"), "1j": lambda: 1j, "''": lambda: "", "'float32'": lambda: "float32",
    "text of many lines": lambda: "a\nb\n" * 100, "b'abc'": lambda: b"abc", "object": Odd, "class": lambda: Odd,
    "function": lambda: len, "()": lambda: (), "(0, 1)": lambda: (0, 1), "(-1,)": lambda: (-1,),
    "(None,)": lambda: (None,), "('a', 1.5)": lambda: ("a", 1.5), "[]": list, "[[1], [1, 2]]": lambda: [[1], [1, 2]],
    "[[1.0, 2.0]]": lambda: [[1.0, 2.0]], "{}": dict, "a set": lambda: {1}, "a slice": lambda: slice(0, 2),
    "Ellipsis": lambda: ..., "np.float32(2)": lambda: F32(2), "np.int64(3)": lambda: np.int64(3),
    "np.array(None)": lambda: np.array(None), "np.float64": lambda: np.float64,
    "np.dtype('>i4')": lambda: np.dtype(">i4"),
    "[]: float32": lambda: np.ones((), F32), "[0]": lambda: np.ones(0, F32), "[4]": lambda: np.ones(4, F32),
    "[3, 4]": lambda: np.ones((3, 4), F32), "[4, 4]: float64": lambda: np.ones((4, 4)),
    "[2, 3, 4]": lambda: np.ones((2, 3, 4), F32), "[0, 4]": lambda: np.ones((0, 4), F32),
    "40 axes": lambda: np.ones((1,) * 40, F32), "int8": lambda: np.ones((4, 4), np.int8),
    "int64": lambda: np.ones((4, 4), np.int64), "bool": lambda: np.ones((4, 4), bool),
    "complex": lambda: np.ones((4, 4), np.complex64), "another order": lambda: np.ones((4, 4), ">f4"),
    "strings": lambda: np.array(["a"]), "records": lambda: np.zeros(2, [("x", "f4")]),
    "dates": lambda: np.zeros(2, "datetime64[s]"), "masked": lambda: np.ma.masked_array([1.0], [True]),
    "bfloat16": lambda: np.ones((4, 4), ml_dtypes.bfloat16), "int4": lambda: np.ones((4, 4), ml_dtypes.int4),
    "read-only": lambda: np.broadcast_to(F32(1), (3, 5)),
    "overlapping": lambda: np.lib.stride_tricks.as_strided(np.ones(8, F32), (3, 5), (4, 4)),
    "Tensor": lambda: tensor(3, 4), "Tensor of int4": lambda: tensor(4, 4, dtype="int4"),
    "closed": lambda: closed(), "on a device": lambda: on_device(), "a row": lambda: dtypes.float6_e2m3fn,
    "a Layout": lambda: sb.Layout.dense((3, 4), width_bits=32), "a Device": lambda: sb.Device("cuda", 3),
    "packed": lambda: sb.pack(np.ones((4, 5), F32)), "packed int8": lambda: sb.pack(np.ones((4, 5), np.int8)),
    "a plan": lambda: sb.plan_matmul(np.ones((2, 2), F32), np.ones((2, 2), F32)), "a Spec": lambda: sb.Spec(chunk=64),
    "an error": lambda: ValueError("x"),
}  # fmt: skip


def closed() -> sb.Tensor:
    x = tensor(3, 4)
    x.buffer.close()
    return x


def on_device() -> sb.Tensor:
    buffer = sb.Buffer(1 << 20, 1 << 10, None, sb.Device("cuda"))
    return sb.Tensor(buffer, sb.Layout.dense((3, 4), width_bits=32), dtypes.float32)


X, W, B, DY = (np.ones(shape, F32) for shape in ((3, 4), (5, 4), (4, 5), (3, 5)))
I8 = np.ones((5, 4), np.int8)
MATMUL = {
    "a": X, "b": B, "bias": DY[0], "activation": "relu", "alpha": 2.0, "c": DY, "beta": 0.5, "b_scale": DY[0],
    "a_scale": X[:, 0], "b_group": None, "out_dtype": "float32", "out": None, "spec": sb.Spec(), "threads": 1,
}  # fmt: skip
INTEGER = {
    "a": I8[:3], "b": I8.T, "bias": np.ones(5, np.int32), "a_zero_point": I8[:3, 0], "b_zero_point": 1, "a_scale": 0.5,
    "b_scale": DY[0], "out_scale": 0.5, "out_zero_point": 3, "out_dtype": "int8", "out": None,
}  # fmt: skip
T = sb.Tensor
BLOCKS = np.ones((4, 64), F32)
Q, Q8 = sb.quantize(BLOCKS, "nvfp4"), sb.quantize(BLOCKS, "uint8-group32-zero")
HELD = sb.memory.allocate(64)
# Functions with arguments that they take; a name may stand twice for two ways to call it.
RIGHT: list[tuple[str, Callable[..., Any], dict[str, Any]]] = [
    ("matmul", sb.matmul, MATMUL), ("plan_matmul", sb.plan_matmul, MATMUL), ("matmul", sb.matmul, INTEGER),
    ("matmul", sb.matmul, {"a": X, "b": I8.T, "a_dtype": "int8", "a_scale": 0.1, "plan": None}),
    ("matmul", sb.matmul, {"a": X, "b": I8.T, "b_scale": X[:2, :1] * DY[:2], "b_group": 2, "b_zero_point": 3}),
    ("linear", sb.linear, {"x": X, "weight": W, "bias": DY[0], "weight_scale": 1.0, "group": None, "out": None,
        "activation": "relu", "out_dtype": "float32"}),
    ("linear", sb.linear, {"x": X, "weight": I8, "weight_zero_point": I8[:, :2], "weight_scale": W[:, :2], "group": 2}),
    ("pack", sb.pack, {"b": I8.T, "left": "float32", "zero_point": 3, "group": None, "spec": sb.Spec()}),
    ("grouped_matmul", sb.grouped_matmul, {
        "a": X, "b": B[None], "group_sizes": [3], "bias": DY[0], "out_dtype": None, "out": None, "spec": sb.Spec()}),
    ("grad_input", sb.grad_input, {"dy": DY, "weight": W, "out": None, "out_dtype": None, "spec": sb.Spec()}),
    ("grad_weight", sb.grad_weight, {"x": X, "dy": DY, "out": None, "spec": sb.Spec()}),
    ("grad_bias", sb.grad_bias, {"dy": DY, "out": None, "spec": sb.Spec()}),
    ("cast", sb.cast, {"x": X, "dtype": "int8", "out": None}),
    ("where", sb.where, {"condition": X > 0, "x": X, "y": 1.0, "out": None, "threads": 1}),
    ("concat", sb.concat, {"arrays": [X, X], "axis": -1, "threads": 1}),
    ("take", sb.take, {"x": X, "indices": np.array([0, 1]), "axis": 1, "threads": 1}),
    ("gelu", sb.gelu, {"x": X, "out": None}), ("relu", sb.relu, {"x": X, "out": None}),
    ("silu", sb.silu, {"x": X, "out": None}),
    *((name, getattr(sb, name), {"x": X, "axis": 1, "keepdims": True, "threads": 1}) for name in ("sum", "mean")),
    *((name, getattr(sb, name), {"x": X, "axis": (0, 1)}) for name in ("max", "min")),
    *((name, getattr(sb, name), {"x": X, "axis": -1, "out": None}) for name in ("softmax", "log_softmax")),
    ("layer_norm", sb.layer_norm, {"x": X, "weight": X[0], "bias": X[0], "eps": 1e-5, "out": None}),
    ("rms_norm", sb.rms_norm, {"x": X, "weight": X[0], "eps": 1e-5, "out": None}),
    ("copy", sb.copy, {"x": X, "order": "C", "storage": None, "out": None, "threads": 1}),
    ("contiguous", sb.contiguous, {"x": X, "order": "any"}),
    ("fill", lambda out, value, threads: sb.fill(out, value, threads=threads), {
        "out": np.ones(3), "value": 1, "threads": 1}),
    ("to_packed", sb.to_packed, {"x": X}), ("to_padded", sb.to_padded, {"x": X}),
    ("dtype", sb.dtype, {"x": "int4"}), ("Spec", sb.Spec, {"chunk": 64, "segments": 2}),
    ("Device", sb.Device, {"kind": "cpu", "index": 0}),
    ("Tensor", sb.Tensor, {"buffer": tensor(3).buffer, "layout": tensor(3).layout, "dtype": dtypes.float32}),
    ("from_any", T.from_any, {"x": X, "copy": None}), ("from_dlpack", T.from_dlpack, {"x": X}),
    ("from_buffer", T.from_buffer, {
        "data": X, "dtype": "int16", "shape": (4,), "strides": (2,), "offset": 1, "storage": "packed"}),
    ("from_bytes", T.from_bytes, {"data": b"abcd", "dtype": "int4", "shape": (8,), "storage": "packed"}),
    ("from_exported", T.from_exported, {"exported": tensor(3).export("numpy")}),
    *((name, getattr(T, name), {"shape": (3, 4), "dtype": "int4", "storage": "padded", "device": None})
      for name in ("empty", "zeros", "ones")),
    ("full", T.full, {"shape": (2,), "value": 1.5, "dtype": "float8_e5m2", "storage": "packed", "device": None}),
    ("arange", T.arange, {"start": 1, "stop": 9, "step": 2, "dtype": "int8", "storage": "packed"}),
    ("empty_like", T.empty_like, {"x": tensor(3), "dtype": None, "device": None}),
    ("zeros_like", T.zeros_like, {"x": tensor(3), "dtype": None, "device": None}),
    ("ones_like", T.ones_like, {"x": tensor(3), "dtype": None, "device": None}),
    ("full_like", T.full_like, {"x": tensor(3), "value": 1, "dtype": None, "device": None}),
    ("permute", tensor(3, 4).permute, {"axes": (1, 0)}),
    ("transpose", tensor(3, 4).transpose, {"first": 0, "second": 1}),
    ("reshape", tensor(3, 4).reshape, {"shape": (4, 3)}), ("getitem", tensor(3, 4).__getitem__, {"": 1}),
    ("broadcast_to", tensor(3, 4).broadcast_to, {"shape": (2, 3, 4)}), ("squeeze", tensor(3, 1).squeeze, {"axis": 1}),
    ("unsqueeze", tensor(3).unsqueeze, {"axis": 1}), ("flip", tensor(3).flip, {"axis": 0}),
    ("flatten", tensor(3, 4).flatten, {"start": 0, "end": 1}),
    ("unflatten", tensor(3, 4).unflatten, {"axis": 1, "extents": (2, 2)}),
    ("diagonal", tensor(3, 4).diagonal, {"skew": 1, "axis1": 0, "axis2": 1}),
    ("sliding_window", tensor(3, 4).sliding_window, {"window": 2, "axis": 1}),
    ("view", tensor(4).view, {"dtype": "int8"}),
    ("to", tensor(3).to, {"device": sb.Device("cpu"), "stream": None}),
    ("equal_bits", tensor(3).equal_bits, {"other": tensor(3)}),
    ("equal_values", tensor(3).equal_values, {"other": tensor(3), "equal_nan": True}),
    ("numpy", tensor(3).numpy, {"copy": True}), ("export", tensor(3).export, {"to": "numpy", "copy": False}),
    ("__dlpack__", tensor(3).__dlpack__, {"stream": None, "max_version": (1, 3), "dl_device": (1, 0), "copy": None}),
    ("Layout", sb.Layout, {
        "shape": (3,), "strides_bits": (32,), "offset_bits": 0, "width_bits": 32, "storage": "packed"}),
    ("Layout.dense", sb.Layout.dense, {"shape": (3, 4), "width_bits": 4, "order": "F", "storage": "padded"}),
    ("Layout.from_strides", sb.Layout.from_strides, {"shape": (3,), "strides": (2,), "offset": 1, "width_bits": 4}),
    ("Layout.overlaps", tensor(3).layout.overlaps, {"other": tensor(3).layout}),
    ("Layout.is_contiguous", tensor(3).layout.is_contiguous, {"order": "C"}),
    ("Layout.repack", tensor(4).layout.repack, {"width_bits": 8}),
    ("Layout.dense_like", sb.Layout.dense_like, {"other": tensor(3, 4).layout, "order": "K"}),
    ("Layout.is_byte_aligned", tensor(3, 4).layout.is_byte_aligned, {"axis": 0}),
    ("Layout.max_vector_bits", tensor(3, 4).layout.max_vector_bits, {"axis": 0}),
    ("Layout.from_byte_strides", sb.Layout.from_byte_strides, {
        "shape": (3,), "strides_bytes": (4,), "offset_bytes": 0, "width_bits": 32}),
    ("coalesce", coalesce, {"layouts": (tensor(3, 4).layout,), "lead": 0}),
    ("tma_violations", tma_violations, {
        "layout": tensor(16, 64).layout, "box": (8, 8), "address": 0, "steps": (1, 1), "swizzle": "none",
        "interleave": "none", "type": None}),
    ("TiledLayout.scales_128x4", TiledLayout.scales_128x4, {"rows": 3, "columns": 4, "block": 16, "width_bits": 8}),
    ("Buffer.view", HELD.view, {"offset": 1, "size_bytes": 8}),
    ("Buffer.copy_from", HELD.copy_from, {"source": sb.memory.allocate(64), "stream": None}),
    ("Buffer.copy_to", HELD.copy_to, {"target": sb.memory.allocate(64), "stream": None}),
    ("TiledLayout", TiledLayout, {
        "shape": (4,), "pieces": ((2, 2),), "strides_bits": ((8, 16),), "offset_bits": 0, "width_bits": 8}),
    ("Swizzle", Swizzle, {"bits": 2, "base": 3, "shift": 3}),
    ("use_isa", sb.use_isa, {"isa": "scalar"}), ("decode", dtypes.float16.decode, {"code": 5}),
    ("quantize", sb.quantize, {
        "x": BLOCKS, "format": "nvfp4", "dialect": "nvfp4/te-2", "axis": -1, "global_scale": 2.0, "out": None,
        "threads": 1}),
    ("quantize", sb.quantize, {"x": BLOCKS, "format": "fp8-128x128", "axis": 1, "threads": None}),
    ("dequantize", sb.dequantize, {"q": Q, "dtype": "bfloat16", "out": None, "threads": 1}),
    ("Quantized.dequantize", Q.dequantize, {"dtype": "float16", "threads": 1}),
    ("Quantized.cat", sb.Quantized.cat, {"parts": [Q, Q], "axis": 1}),
    ("Quantized.equal_bits", Q.equal_bits, {"other": Q}), ("getitem", Q.__getitem__, {"": 1}),
    ("Quantized", sb.Quantized, {
        "elements": Q.elements, "scales": Q.scales, "format": "nvfp4", "global_scale": Q.global_scale,
        "zero_points": None, "dialect": "nvfp4/exact-1", "axis": -1}),
    ("Quantized", sb.Quantized, {
        "elements": Q8.elements, "scales": Q8.scales, "format": Q8.format, "zero_points": Q8.zero_points}),
    ("hadamard", sb.hadamard, {"x": BLOCKS, "signs": [1] * 16, "inverse": True, "threads": 1}),
    ("from_awq", sb.from_awq, {
        "qweight": np.ones((64, 2), np.int32), "qzeros": np.ones((2, 2), np.int32), "scales": np.ones((2, 16), F32),
        "group": 32}),
    ("from_gptq", sb.from_gptq, {
        "qweight": np.ones((8, 16), np.int32), "qzeros": np.ones((2, 2), np.int32), "scales": np.ones((2, 16), F32),
        "group": 32, "g_idx": np.arange(64) // 32, "zero_offset": 1}),
    ("report", sb.report, {"x": BLOCKS, "q": Q}), ("dialects", sb.dialects, {"format": "mxfp4"}),
    ("scales_from_tiles", sb.scales_from_tiles, {"tiles": Q.scale_tiles(), "shape": (4, 4)}),
    ("decode_gguf", sb.decode_gguf, {"data": np.ones((2, 36), np.uint8), "type": "Q4_0", "threads": 1}),
    ("allocate", sb.memory.allocate, {"size_bytes": 64, "zero": False, "device": None, "resource": None}),
]  # fmt: skip
# Functions of numbers and arrays, which take them by place.
BY_PLACE: dict[str, int] = {
    "abs": 1, "cos": 1, "erf": 1, "exp": 1, "log": 1, "negative": 1, "sin": 1, "tanh": 1,
    "reciprocal": 1, "sqrt": 1, "add": 2, "divide": 2, "maximum": 2,
    "minimum": 2, "multiply": 2, "subtract": 2,
}  # fmt: skip
# What Python says of a call that fits no signature; what NumPy's and torch's arrays are asked is theirs.
SIGNATURE = re.compile(r"[\w.]+\(\) (got an unexpected|got multiple|missing|takes) .*")
SENTENCE = re.compile(r"[^\n]+: [^\n]+ is [^\n]+, must be [^\n]+; [^\n]+")


def spoiled(number: int) -> tuple[str, Callable[[], Any]]:
    """One wrong call: in words, and itself."""
    draw = random.Random(number)
    i = draw.randrange(len(RIGHT) + len(BY_PLACE))
    if i >= len(RIGHT):
        name = [*BY_PLACE][i - len(RIGHT)]
        function, right = getattr(sb, name), {f"x{n}": X for n in range(BY_PLACE[name])}
    else:
        name, function, right = RIGHT[i]
    wrong = {key: draw.choice([*WRONG]) for key in draw.sample([*right], min(draw.choice((1, 1, 2, 3)), len(right)))}

    def call() -> Any:
        given = {key: WRONG[wrong[key]]() if key in wrong else value for key, value in right.items()}
        if name in BY_PLACE or name == "getitem":
            return function(*given.values())
        return function(**given)

    return f"{number}: {name}({', '.join(f'{key}={value}' for key, value in wrong.items())})", call


def complaint(call: Callable[[], Any]) -> str | None:
    """What is wrong with how a call is answered."""
    try:
        call()
    except sb.SamebitsError as error:
        return None if SENTENCE.fullmatch(str(error)) else f"no sentence: {error}"
    except (TypeError, MemoryError) as error:
        is_ours = SENTENCE.fullmatch(str(error)) or (type(error) is TypeError and SIGNATURE.fullmatch(str(error)))
        return None if is_ours else f"{type(error).__name__}: {error}"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None


def check(numbers: range) -> None:
    found = []
    with np.errstate(all="ignore"):
        for number in numbers:
            words, call = spoiled(number)
            if (said := complaint(call)) is not None:
                found.append(f"{words}\n    {said}")
    assert not found, "\n".join([f"{len(found)} of {len(numbers)} wrong calls:", *found[:40]])


def test_every_wrong_call_is_answered_by_one_sentence() -> None:
    check(range(1_000))


@pytest.mark.exhaustive
def test_every_wrong_call_of_very_many_is_answered_by_one_sentence() -> None:
    check(range(1_000, 100_000))


def test_a_signature_that_does_not_fit_is_said_by_python() -> None:
    for name, function, right in RIGHT:
        if name == "fill":  # a lambda of this module
            continue
        with pytest.raises(TypeError) as caught:
            function(**right, nonesuch=1)
        assert SIGNATURE.fullmatch(str(caught.value)), (name, caught.value)
        assert complaint(function) is None, name  # without arguments, which some do not need
    for name in BY_PLACE:
        for count in (0, 3):
            with pytest.raises(TypeError, match=rf"^{name}\(\) takes "):
                getattr(sb, name)(*[X] * count)


def test_right_calls_are_taken() -> None:
    for _, function, right in (row for row in RIGHT if row[0] != "getitem"):
        function(**right)


@pytest.mark.parametrize("error", [KeyError, AttributeError, IndexError, ZeroDivisionError, AssertionError])
def test_a_defect_of_ours_reaches_the_caller_as_itself(error: type[Exception], monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise error("a defect")

    monkeypatch.setattr(calls.Call, "output", broken)
    monkeypatch.setattr(elementwise, "_operands", broken)
    monkeypatch.setattr(sb.Tensor, "values", broken)
    for call in (
        lambda: sb.matmul(np.ones((3, 7), F32), np.ones((7, 3), F32)), lambda: sb.add(np.ones(77), np.ones(77)),
        lambda: sb.softmax(np.ones((7, 3), F32)), tensor(3).tolist, lambda: tensor(3).equal_values(tensor(3)),
    ):  # fmt: skip
        with pytest.raises(error, match="a defect"):
            call()
