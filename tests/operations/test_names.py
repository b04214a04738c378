"""Errors name the function that was called and its own operands, not those of the product that it becomes."""

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch

import samebits as sb

F32 = np.float32
X, W, DY = np.ones((3, 4), F32), np.ones((5, 4), F32), np.ones((3, 5), F32)
INTEGERS = W.astype(np.int8)
SQUARE = np.ones((3, 3), F32)


def on_device(*shape: int) -> sb.Tensor:
    buffer = sb.Buffer(1 << 20, 1 << 10, None, sb.Device("cuda"))
    return sb.Tensor(buffer, sb.Layout.dense(shape, width_bits=32), sb.dtypes.float32)


LINEAR: list[tuple[Callable[[], Any], type[Exception], str]] = [
    (
        lambda: sb.linear(X, W[:, :3]), sb.ShapeError,
        "linear: weight column count is 3, must be x's column count 4; pass weight of shape [N, 4]",
    ),
    (
        lambda: sb.linear(X, sb.pack(W)), sb.ShapeError,
        "linear: weight row count is 5, must be x's column count 4; pack weight.T of shape [4, N]",
    ),
    (
        lambda: sb.linear(X, W[0]), sb.ShapeError,
        "linear: weight rank is 1, must be 2; pass a matrix, or use matmul",
    ),
    (
        lambda: sb.linear(X, sb.pack(np.ones((2, 4, 5), F32))), sb.ShapeError,
        "linear: weight rank is 3, must be 2; pass a matrix, or use matmul",
    ),
    (
        lambda: sb.linear(F32(1), W), sb.ShapeError,
        "linear: x rank is 0, must be at least 1; use multiply for a scalar",
    ),
    (
        lambda: sb.linear(X.astype(np.int32), W), sb.DTypeError,
        "linear: x dtype is int32, must be a float or an integer of at most 8 bits; convert it first",
    ),
    (
        lambda: sb.linear(X, W.astype(np.int16)), sb.DTypeError,
        "linear: weight dtype is int16, must be a float or an integer of at most 8 bits; convert it first",
    ),
    (
        lambda: sb.linear(X.astype(np.int8), W), sb.DTypeError,
        "linear: weight dtype is float32, must be one that multiplies with int8; convert x to float32",
    ),
    (
        lambda: sb.linear(on_device(3, 4), W), sb.DeviceError,
        "linear: x device is cuda:0, must be the host; copy it to the host",
    ),
    (
        lambda: sb.linear(X, on_device(5, 4)), sb.DeviceError,
        "linear: weight device is cuda:0, must be the host; copy it to the host",
    ),
    (
        lambda: sb.linear(X, W, X[0]), sb.ShapeError,
        "linear: bias shape is (4,), must be one that broadcasts to (3, 5); reshape it",
    ),
    (
        lambda: sb.linear(INTEGERS, INTEGERS, np.ones(5, F32)), sb.OptionError,
        "linear: bias is given for int32, must be left out; pass an int32 bias, or weight_scale=1.0",
    ),
    (
        lambda: sb.linear(X, W, np.ones(5)), sb.DTypeError,
        "linear: bias dtype is float64, must be float32 or bfloat16 or float16; convert it first",
    ),
    (
        lambda: sb.linear(X, W, out=X), sb.ShapeError,
        "linear: out shape is (3, 4), must be (3, 5); pass an array of that shape",
    ),
    (
        lambda: sb.linear(X, W, out=DY.astype(np.float64)), sb.DTypeError,
        "linear: out dtype is float64, must be float32; convert it first",
    ),
    (
        lambda: sb.linear(X[:, :3], X[:, 1:], out=X[:, :3]), sb.LayoutError,
        "linear: out memory is that of an operand, must be its own; leave out= away",
    ),
    (
        lambda: sb.linear(X, W, weight_scale=X[0]), sb.ShapeError,
        (
            "linear: weight_scale shape is (4,), must be [], [5] or [5, 1], or [5, blocks] with group=; pass one for "
            "all, or one for each row of weight"
        ),
    ),
    (
        lambda: sb.linear(X, W, weight_scale=X[:, :2]), sb.ShapeError,
        (
            "linear: weight_scale shape is (3, 2), must be [], [5] or [5, 1], or [5, blocks] with group=; pass one for "
            "all, or one for each row of weight"
        ),
    ),
    (
        lambda: sb.linear(X, W, weight_scale=DY.T), sb.ShapeError,
        (
            "linear: weight_scale shape is (5, 3), must be [], [5] or [5, 1], or [5, blocks] with group=; pass one for "
            "all, or one for each row of weight"
        ),
    ),
    (
        lambda: sb.linear(X, W, weight_scale=DY.T, group=2), sb.ShapeError,
        (
            "linear: weight_scale shape is (5, 3), must be [5, 2], as K = 4 has blocks of 2; pass one for each row of "
            "weight and each block"
        ),
    ),
    (
        lambda: sb.linear(X, W, weight_scale=np.ones((1, 5, 2), F32)), sb.ShapeError,
        (
            "linear: weight_scale shape is (1, 5, 2), must be [], [5] or [5, 1], or [5, blocks] with group=; pass one "
            "for all, or one for each row of weight"
        ),
    ),
    (
        lambda: sb.linear(X, W, group=2), sb.OptionError,
        "linear: group is 2 without blocks, must be left out; pass scales or zero points [N, K / group] with it",
    ),
    (
        lambda: sb.linear(X, INTEGERS, weight_scale=W[:, :2], group=0), sb.OptionError,
        "linear: group is 0, must be an integer of at least 1; count the elements along K that share a scale",
    ),
    (
        lambda: sb.linear(X, INTEGERS, weight_zero_point=INTEGERS[:3]), sb.ShapeError,
        (
            "linear: weight_zero_point shape is (3, 4), must be [], [5] or [5, 1], or [5, blocks] with group=; pass "
            "one for all, or one for each row of weight"
        ),
    ),
    (
        lambda: sb.linear(X, INTEGERS, weight_zero_point=INTEGERS[0]), sb.ShapeError,
        (
            "linear: weight_zero_point shape is (4,), must be [], [5] or [5, 1], or [5, blocks] with group=; pass one "
            "for all, or one for each row of weight"
        ),
    ),
    (
        lambda: sb.linear(X, INTEGERS, weight_zero_point=W[:, 0]), sb.DTypeError,
        "linear: weight_zero_point dtype is float32, must be int8; convert it first",
    ),
    (
        lambda: sb.linear(X, INTEGERS, weight_zero_point=128), sb.OptionError,
        "linear: weight_zero_point is 128, must be within [-128, 127], as for int8; pass one that the format holds",
    ),
    (
        lambda: sb.linear(X, W, weight_zero_point=1), sb.OptionError,
        "linear: weight_zero_point is given for float32 and float32, must be left out; subtract it before",
    ),
    (
        lambda: sb.linear(X, sb.pack(INTEGERS.T, left="float32"), weight_zero_point=1), sb.OptionError,
        "linear: weight_zero_point is given beside packed weights, must be left out; give it to pack, with left=",
    ),
    (
        lambda: sb.linear(X.astype(np.float64), INTEGERS, weight_scale=W[:, :2], group=2), sb.PlanError,
        "linear: weight_scale per block is beside float64, must be beside float32; convert x",
    ),
    (
        lambda: sb.linear(X, sb.pack(INTEGERS.T)), sb.PlanError,
        "linear: weight engine is {engine!r}, must be one for float32; pack it again with left='float32'",
    ),
    (
        lambda: sb.linear(X, W, threads=0), sb.OptionError,
        "linear: threads is 0, must be an integer from 1 to 255; leave it out for every core",
    ),
]  # fmt: skip

OTHERS: list[tuple[Callable[[], Any], type[Exception], str]] = [
    (
        lambda: sb.grad_input(X, W), sb.ShapeError,
        "grad_input: weight row count is 5, must be dy's column count 4; pass weight of shape [4, K]",
    ),
    (
        lambda: sb.grad_input(X, sb.pack(W)), sb.ShapeError,
        "grad_input: weight row count is 5, must be dy's column count 4; pass weight of shape [4, K]",
    ),
    (
        lambda: sb.grad_input(DY, W[:, 0]), sb.ShapeError,
        "grad_input: weight rank is 1, must be 2; pass a matrix, or use matmul",
    ),
    (
        lambda: sb.grad_input(F32(1), W), sb.ShapeError,
        "grad_input: dy rank is 0, must be at least 1; use multiply for a scalar",
    ),
    (
        lambda: sb.grad_input(DY.astype(np.int64), W), sb.DTypeError,
        "grad_input: dy dtype is int64, must be a float or an integer of at most 8 bits; convert it first",
    ),
    (
        lambda: sb.grad_input(DY.astype(np.int8), W), sb.DTypeError,
        "grad_input: weight dtype is float32, must be one that multiplies with int8; convert dy to float32",
    ),
    (
        lambda: sb.grad_input(DY, on_device(5, 4)), sb.DeviceError,
        "grad_input: weight device is cuda:0, must be the host; copy it to the host",
    ),
    (
        lambda: sb.grad_input(DY, W, out=DY), sb.ShapeError,
        "grad_input: out shape is (3, 5), must be (3, 4); pass an array of that shape",
    ),
    (
        lambda: sb.grad_input(DY, W, out_dtype="int8"), sb.OptionError,
        "grad_input: out_dtype is int8, must be float32 or bfloat16 or float16; leave it out",
    ),
    (
        lambda: sb.grad_input(DY, sb.pack(INTEGERS)), sb.PlanError,
        "grad_input: weight engine is {engine!r}, must be one for float32; pack it again with left='float32'",
    ),
    (
        lambda: sb.grad_weight(X, DY, out=X), sb.ShapeError,
        "grad_weight: out shape is (3, 4), must be (5, 4); pass an array of that shape",
    ),
    (
        lambda: sb.grad_weight(X, DY, out=W.astype(ml_dtypes.bfloat16)), sb.DTypeError,
        "grad_weight: out dtype is bfloat16, must be float32; convert it first",
    ),
    (
        lambda: sb.grad_weight(X, on_device(3, 5)), sb.DeviceError,
        "grad_weight: dy device is cuda:0, must be the host; copy it to the host",
    ),
    (
        lambda: sb.grad_weight(X, np.ones((2, 3, 5), F32).transpose(1, 0, 2)), sb.LayoutError,
        (
            "grad_weight: dy layout is (3, 2, 5) with strides_bits (160, 480, 32), must be one whose leading "
            "dimensions can be viewed as one; copy it first"
        ),
    ),
    (
        lambda: sb.grad_weight(SQUARE[:2], SQUARE[1:], out=SQUARE), sb.LayoutError,
        "grad_weight: out memory is that of an operand, must be its own; leave out= away",
    ),
    (
        lambda: sb.grad_bias(SQUARE, out=SQUARE[0]), sb.LayoutError,
        "grad_bias: out memory is that of an operand, must be its own; leave out= away",
    ),
    (
        lambda: sb.matmul(SQUARE, SQUARE, c=SQUARE[0], out=SQUARE), sb.LayoutError,
        "matmul: out memory is that of an operand, must be its own, or exactly c's; leave out= away",
    ),
    (
        lambda: sb.linear(SQUARE, SQUARE, SQUARE[0], out=SQUARE), sb.LayoutError,
        "linear: out memory is that of an operand, must be its own, or exactly bias's; leave out= away",
    ),
    (
        lambda: sb.matmul(X, W.T, out_dtype="float7"), sb.DTypeError,
        ("matmul: out_dtype is 'float7', must be an element format; "
         "pass one of its names, such as 'float64', 'float32', 'float16'"),
    ),
    (
        lambda: sb.matmul(X, INTEGERS.T, a_dtype="int9", a_scale=1.0), sb.DTypeError,
        ("matmul: a_dtype is 'int9', must be an element format; "
         "pass one of its names, such as 'int8', 'int4', 'int2'"),
    ),
    (
        lambda: sb.grad_input(DY, W, out_dtype=5), sb.DTypeError,
        "grad_input: out_dtype is 5, must be an element format; pass one of its names, such as 'float32'",
    ),
    (
        lambda: sb.matmul(X, W.T, beta=5.0), sb.OptionError,
        "matmul: beta is given without c, must be left out; pass c too",
    ),
    (
        lambda: sb.plan_matmul(X, W.T, bias=DY, beta=0.0), sb.OptionError,
        "plan_matmul: beta is given without c, must be left out; pass c too",
    ),
    (
        lambda: sb.pack(W, left="complex64"), sb.DTypeError,
        "pack: left is 'complex64', must be an element format; pass one of its names, such as 'float32'",
    ),
    (
        lambda: sb.pack(W, left="int16"), sb.DTypeError,
        (
            "pack: left is int16, must be a float or an integer of at most 8 bits; name the dtype of the left operands "
            "to come"
        ),
    ),
    (
        lambda: sb.pack(W, left="int8"), sb.DTypeError,
        "pack: left is int8, must be a float, as b is float32; name the dtype of the left operands to come",
    ),
    (
        lambda: sb.pack(W.astype(ml_dtypes.float8_e4m3fn), left="uint4"), sb.DTypeError,
        "pack: left is uint4, must be a float, as b is float8_e4m3fn; name the dtype of the left operands to come",
    ),
    (
        lambda: sb.grad_bias(DY, out=X[0]), sb.ShapeError,
        "grad_bias: out shape is (4,), must be (5,); pass an array of that shape",
    ),
    (
        lambda: sb.grad_bias(DY.astype(np.int8)), sb.DTypeError,
        "grad_bias: dy dtype is int8, must be {floats}; convert it first",
    ),
    (
        lambda: sb.plan_matmul(X, sb.pack(INTEGERS.T)), sb.PlanError,
        "plan_matmul: b engine is {engine!r}, must be one for float32; pack it again with left='float32'",
    ),
    (
        lambda: sb.plan_matmul(X, W), sb.ShapeError,
        "plan_matmul: b row count is 5, must be a's column count 4; pass b of shape [..., 4, N]",
    ),
    (
        lambda: sb.grouped_matmul(X, sb.pack(INTEGERS.T[None]), [3]), sb.PlanError,
        "grouped_matmul: b engine is {engine!r}, must be one for float32; pack it again with left='float32'",
    ),
    (
        lambda: sb.pack(INTEGERS, left="float32", zero_point=INTEGERS[0, :3]), sb.ShapeError,
        (
            "pack: zero_point shape is (3,), must be [], [4] or [1, 4], or [blocks, 4] with group=; pass one for all, "
            "or one for each column of b"
        ),
    ),
    (
        lambda: sb.pack(INTEGERS, left="float32", zero_point=INTEGERS[:2], group=2), sb.ShapeError,
        (
            "pack: zero_point shape is (2, 4), must be [3, 4], as K = 5 has blocks of 2; pass one for each column of b "
            "and each block"
        ),
    ),
    (
        lambda: sb.pack(INTEGERS, left="float32", zero_point=INTEGERS[:2, 1:], group=4), sb.ShapeError,
        (
            "pack: zero_point shape is (2, 3), must be [2, 4], as K = 5 has blocks of 4; pass one for each column of b "
            "and each block"
        ),
    ),
]  # fmt: skip


NO_ARRAYS: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "text": (
        lambda: "1.0", sb.DTypeError, "type is str, must be an array, numbers, or lists of them; convert it first"
    ),
    "unlike lists": (
        lambda: [[1.0], [1.0, 2.0]], sb.ShapeError,
        "shape is lists of unlike lengths, must be as many elements in each; pad them",
    ),
    "another order of bytes": (
        lambda: X.astype(">f4"), sb.DTypeError,
        "dtype is >f4, must be an element format, in this machine's byte order; convert it first",
    ),
    "masked": (
        lambda: np.ma.masked_array(X, X > 0), sb.ExchangeError,
        "type is a masked array, must be an array without a mask; fill it first, with x.filled(value)",
    ),
    "a parameter of torch": (
        lambda: torch.ones(3, 4, requires_grad=True), sb.ExchangeError,
        (
            "is not shared by its library (Can't export tensors that require gradient, use tensor.detach()), must be "
            "memory that can be shared; call its detach() first"
        ),
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", NO_ARRAYS)
def test_what_cannot_come_in_is_named_as_the_caller_did(what: str) -> None:
    made, kind, text = NO_ARRAYS[what]
    for name, call in {
        "matmul: a": lambda x: sb.matmul(x, W.T),
        "matmul: b": lambda x: sb.matmul(X, x),
        "matmul: b_scale": lambda x: sb.matmul(X, W.T, b_scale=x),
        "linear: weight": lambda x: sb.linear(X, x),
        "linear: bias": lambda x: sb.linear(X, W, x),
        "linear: weight_zero_point": lambda x: sb.linear(X, INTEGERS, weight_zero_point=x),
        "grad_input: dy": lambda x: sb.grad_input(x, W),
        "grad_weight: x": lambda x: sb.grad_weight(x, DY),
        "grad_bias: dy": sb.grad_bias,
        "pack: b": sb.pack,
        "grouped_matmul: b": lambda x: sb.grouped_matmul(X, x, [3]),
        "exp: x": sb.exp,
        "copy: x": sb.copy,
    }.items():
        with pytest.raises(kind) as caught:
            call(made())
        assert str(caught.value) == f"{name} {text}"


@pytest.mark.parametrize(("call", "kind", "text"), [*LINEAR, *OTHERS])
def test_errors_name_the_function_and_its_operands(call: Callable[[], Any], kind: type[Exception], text: str) -> None:
    floats = " or ".join(row.name for row in sb.dtypes.ROWS if row.is_float)
    with pytest.raises(kind) as caught:
        call()
    assert str(caught.value) == text.replace("{floats}", floats).replace("{engine!r}", repr(sb.pack(INTEGERS).engine))
