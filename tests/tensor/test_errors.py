"""What each method of a tensor refuses, in one sentence."""

from typing import Any

import numpy as np
import pytest
import torch

import samebits
from samebits import dtypes
from samebits.errors import (
    DeviceError,
    DTypeError,
    ExchangeError,
    LayoutError,
    OptionError,
    OutOfRangeError,
    SamebitsError,
    ShapeError,
)
from samebits.layout import Layout
from samebits.memory import Buffer, Device, allocate
from samebits.tensor import Tensor


@pytest.mark.parametrize(
    "name", ["empty", "zeros", "full", "arange", "empty_like", "from_buffer", "from_bytes", "view"]
)
def test_a_format_that_is_none_is_refused_in_the_words_of_the_call(name: str) -> None:
    t = Tensor.zeros((2,))
    given = {"full": ((2,), 1), "arange": (2,), "empty_like": (t,), "from_buffer": (t,), "from_bytes": (t,), "view": ()}
    options: dict[str, Any] = {"shape": (2,)} if name.startswith("from") else {}
    with pytest.raises(DTypeError) as error:
        getattr(t, name)(*given.get(name, ((2,),)), dtype="bf16", **options)
    remedy = "pass one of its names, such as 'bfloat16'"
    assert str(error.value) == f"Tensor.{name}: dtype is 'bf16', must be an element format; {remedy}"


@pytest.mark.parametrize(
    ("symbol", "name", "call"),
    [
        ("+", "add", lambda t: t + t), ("+", "add", lambda t: t + 1), ("+", "add", lambda t: 1 + t),
        ("+", "add", lambda t: torch.ones(2) + t), ("-", "subtract", lambda t: 2 - t),
        ("@", "matmul", lambda t: t @ t), ("<", "less", lambda t: t < 2), (">", "greater", lambda t: t > 2),
        ("negation", "negative", lambda t: -t), ("abs", "abs", abs),
    ],
)  # fmt: skip
def test_an_operator_names_the_function_to_call(symbol: str, name: str, call: Any) -> None:
    with pytest.raises(TypeError) as error:
        call(Tensor.zeros((2,)))
    due = f"Tensor {symbol}: an operand is a Tensor, must be an array whose library computes; call samebits.{name}"
    assert str(error.value) == due
    assert callable(getattr(samebits, name))


def unaligned() -> np.ndarray:
    """float32 at an odd address."""
    return np.zeros(9, np.uint8)[1:].view(np.float32)


PACKED = "packed, 4 bits an element, must be whole bytes; pass copy=True for one byte an element"
ERRORS: dict[str, tuple[type[SamebitsError], Any]] = {
    "Tensor.from_any: x dtype is >f4, must be an element format, in this machine's byte order; convert it first": (
        DTypeError,
        lambda: Tensor.from_any(np.zeros(2, ">f4")),
    ),
    "Tensor.from_any: x type is object, must be an array, numbers, or lists of them; convert it first": (
        DTypeError,
        lambda: Tensor.from_any(object()),
    ),
    "Tensor.from_any: x type is list, must be an array, numbers, or lists of them; convert it first": (
        DTypeError,
        lambda: Tensor.from_any([1, None]),
    ),
    "Tensor.from_any: x shape is lists of unlike lengths, must be as many elements in each; pad them": (
        ShapeError,
        lambda: Tensor.from_any([[1], [2, 3]]),
    ),
    "bool: tensor shape is (0,), must be one truth value; ask what you mean: tensor is None, tensor.size, or "
    "tensor.numpy().any()": (ShapeError, lambda: bool(Tensor.zeros((0,)))),
    "float: tensor size is 2, must be 1; use tolist()": (ShapeError, lambda: float(Tensor.zeros((2,)))),
    "int: tensor size is 0, must be 1; use tolist()": (ShapeError, lambda: int(Tensor.zeros((0,)))),
    "Tensor.mT: tensor rank is 1, must be at least 2; use unsqueeze for a new axis": (
        LayoutError,
        lambda: Tensor.zeros((2,)).mT,
    ),
    "Tensor.from_any: x alignment is less than its dtype's, must be natural; copy it first": (
        ExchangeError,
        lambda: Tensor.from_any(unaligned()),
    ),
    "Tensor.from_any: x type is a masked array, must be an array without a mask; fill it first, with x.filled(value)": (
        ExchangeError,
        lambda: Tensor.from_any(np.ma.masked_array([1.0], [True])),
    ),
    "Tensor.empty: shape is (-1,), must be extents of at least 0; count elements": (
        LayoutError,
        lambda: Tensor.empty((-1,)),
    ),
    "Tensor: layout width is 16 bits, must be 32 bits as in float32; make the layout for this dtype": (
        LayoutError,
        lambda: Tensor(allocate(8), Layout.dense((2,), width_bits=16), dtypes.float32),
    ),
    "Tensor: layout span is bits [0, 96), must be within the buffer's 8 bytes; allocate layout.required_bytes": (
        LayoutError,
        lambda: Tensor(allocate(8), Layout.dense((3,), width_bits=32), dtypes.float32),
    ),
    "Tensor: layout span is bits [-32, 32), must be within the buffer's 8 bytes; allocate layout.required_bytes": (
        LayoutError,
        lambda: Tensor(allocate(8), Layout.from_strides((2,), (-1,), width_bits=32), dtypes.float32),
    ),
    "Tensor: address is 0x1001, must be a multiple of 4; copy it first": (
        LayoutError,
        lambda: Tensor(Buffer(4096, 8, None), Layout((1,), (32,), 8, 32), dtypes.float32),
    ),
    f"Tensor.numpy: tensor storage is {PACKED}": (LayoutError, lambda: Tensor.zeros((2,), "int4").numpy()),
    "Layout.offset_bytes: layout is 4 bits, must be whole bytes of 8 bits; use the count in bits": (
        LayoutError,
        lambda: Tensor.zeros((2,), "int4")[1:].address,
    ),
    "Tensor.transpose: axes is (-2, -1), must be two of 1 axes; name existing axes": (
        LayoutError,
        lambda: Tensor.zeros((2,)).transpose(),
    ),
    "Tensor.transpose: axes is (slice(0, 2, None), True), must be two of 2 axes; name existing axes": (
        LayoutError,
        lambda: Tensor.zeros((2, 3)).transpose(slice(0, 2), True),  # type: ignore[arg-type]
    ),
    "Tensor.transpose: axes is (0.5, 1), must be two of 2 axes; name existing axes": (
        LayoutError,
        lambda: Tensor.zeros((2, 2)).transpose(0.5, 1),
    ),
    "len: tensor rank is 0, must be at least 1; use item()": (LayoutError, lambda: len(Tensor.zeros(()))),
    "iter: tensor rank is 0, must be at least 1; use item()": (LayoutError, lambda: list(Tensor.zeros(()))),
    "Tensor: buffer type is list, must be Buffer; use Tensor.from_any or Tensor.from_buffer": (
        OptionError,
        lambda: Tensor([1, 2]),  # type: ignore[arg-type]
    ),
    "Tensor: buffer type is NoneType, must be Buffer; use Tensor.from_any or Tensor.from_buffer": (
        OptionError,
        lambda: Tensor(),
    ),
    "Tensor: layout type is NoneType, must be Layout; use Tensor.from_any or Tensor.from_buffer": (
        OptionError,
        lambda: Tensor(allocate(8)),
    ),
    "Tensor.reshape: shape is (7,), must be of 6 elements like (2, 3); keep the number of elements": (
        ShapeError,
        lambda: Tensor.zeros((2, 3)).reshape((7,)),
    ),
    "Tensor.reshape: layout is (3, 2) with strides_bits (32, 96), must be viewable as (6,); copy it first": (
        LayoutError,
        lambda: Tensor.zeros((2, 3)).T.reshape(6),
    ),
    "Tensor.permute: axes is (0, 0), must be a permutation of 2 axes; name each axis once": (
        LayoutError,
        lambda: Tensor.zeros((2, 3)).permute(0, 0),
    ),
    "Tensor.broadcast_to: shape is (3, 3), must be one (2, 3) broadcasts to; "
    "extents must be equal or 1, aligned at the last axis": (
        ShapeError,
        lambda: Tensor.zeros((2, 3)).broadcast_to((3, 3)),
    ),
    "Tensor.squeeze: axis 0 extent is 2, must be 1; index it instead": (
        LayoutError,
        lambda: Tensor.zeros((2, 3)).squeeze(0),
    ),
    "Tensor.unsqueeze: axis is 5, must be in [-3, 3); use an existing one": (
        OutOfRangeError,
        lambda: Tensor.zeros((2, 3)).unsqueeze(5),
    ),
    "Tensor.flip: axis is 3, must be in [-2, 2); use an existing one": (
        OutOfRangeError,
        lambda: Tensor.zeros((2, 3)).flip(3),
    ),
    "Tensor.flatten: start is 3, must be in [-2, 2); use an existing one": (
        OutOfRangeError,
        lambda: Tensor.zeros((2, 3)).flatten(3),
    ),
    "Tensor.unflatten: shape is (3, 2), must be of 3 elements like (3,); keep the number of elements": (
        ShapeError,
        lambda: Tensor.zeros((2, 3)).unflatten(1, (3, 2)),
    ),
    "Tensor.diagonal: (axis1, axis2) is (1, 1), must be distinct; name each axis once": (
        LayoutError,
        lambda: Tensor.zeros((2, 3)).diagonal(0, 1, 1),
    ),
    "Tensor.sliding_window: window is (4,), must be within (2, 3) along axes (1,); use a smaller window": (
        ShapeError,
        lambda: Tensor.zeros((2, 3)).sliding_window(4, 1),
    ),
    "Buffer.array: buffer device is cuda:0, must be readable by the host; copy it to the host first": (
        DeviceError,
        lambda: Tensor(
            Buffer(4096, 8, None, Device("cuda")), Layout.dense((2,), width_bits=32), dtypes.float32
        ).numpy(),
    ),
    "Tensor.full: value is 8, must be a whole number within [-8, 7] for int4; choose another dtype": (
        DTypeError,
        lambda: Tensor.full((2,), 8, "int4"),
    ),
    "Tensor.full: value is 7.5, must be a number within [-6.0, 6.0] for float4_e2m1fn; choose another dtype": (
        DTypeError,
        lambda: Tensor.full((2,), 7.5, "float4_e2m1fn"),
    ),
    "Tensor.arange: value is 7.0, must be a number within [-6.0, 6.0] for float4_e2m1fn; choose another dtype": (
        DTypeError,
        lambda: Tensor.arange(9, dtype="float4_e2m1fn"),
    ),
    "Tensor.arange: value is 8, must be a whole number within [-8, 7] for int4; choose another dtype": (
        DTypeError,
        lambda: Tensor.arange(9, dtype="int4"),
    ),
    "Tensor.arange: (start, stop, step) is (0, 1, 0), must be finite numbers, the last not 0; pass such numbers": (
        OptionError,
        lambda: Tensor.arange(0, 1, 0),
    ),
    "Tensor.arange: (start, stop, step) is (0, True, 1), must be finite numbers, the last not 0; pass such numbers": (
        OptionError,
        lambda: Tensor.arange(True),
    ),
    "Tensor.arange: (start, stop, step) is (0, 9223372036854775808, 1), must be those of fewer than 2**60 elements;"
    " use a larger step": (OptionError, lambda: Tensor.arange(2**63)),
    "Tensor.arange: (start, stop, step) is (0, 1, 5e-324), must be those of fewer than 2**60 elements;"
    " use a larger step": (OptionError, lambda: Tensor.arange(0, 1, 5e-324)),
    f"Tensor.full: value is {10**400}, must be a whole number within [-8, 7] for int4; choose another dtype": (
        DTypeError,
        lambda: Tensor.full((), 10**400, "int4"),
    ),
    "Tensor.arange: (start, stop, step) is (0, 1.5, 1), must be integers for int8; use a float dtype": (
        DTypeError,
        lambda: Tensor.arange(0, 1.5, dtype="int8"),
    ),
    "Layout: span is [0, 147573952589676412928) bits, must be within 64-bit integers; use less": (
        LayoutError,
        lambda: Tensor.full((2**62,), 1),
    ),
    "Tensor.zeros: shape is (0, 144115188075855872), must be extents of fewer than 2**57 elements beside 0; use less": (
        LayoutError,
        lambda: Tensor.zeros((0, 2**57)),
    ),
    "Layout.dense: storage is ['packed'], must be 'packed' or 'padded'; name one of the two": (
        LayoutError,
        lambda: Tensor.empty((2,), storage=["packed"]),  # type: ignore[arg-type]
    ),
    "Tensor[...]: index of axis 0 is [0, 1], must be an integer, a slice, None or ...; call samebits.take for what "
    "lies anywhere": (LayoutError, lambda: Tensor.zeros((2,))[[0, 1]]),  # type: ignore[index]
    "format: tensor size is 2, must be 1; use tolist()": (ShapeError, lambda: f"{Tensor.zeros((2,)):.2f}"),
    "Tensor[...]: index of axis 0 is a number of too many digits to show, must be in [-2, 2); use an existing one": (
        LayoutError,
        lambda: Tensor.zeros((2,))[10**5000],
    ),
    "Tensor.equal_bits: other type is ndarray, must be Tensor; pass Tensor.from_any(other)": (
        OptionError,
        lambda: Tensor.zeros((2,)).equal_bits(np.zeros(2, np.float32)),  # type: ignore[arg-type]
    ),
    "Tensor.equal_values: other type is float, must be Tensor; pass Tensor.from_any(other)": (
        OptionError,
        lambda: Tensor.zeros(()).equal_values(0.0),  # type: ignore[arg-type]
    ),
    "Tensor.item: tensor size is 2, must be 1; use tolist()": (ShapeError, lambda: Tensor.zeros((2,)).item()),
    "Tensor.view: tensor rank is 0, must be at least 1; use unsqueeze for a new axis": (
        LayoutError,
        lambda: Tensor.zeros(()).view("int8"),
    ),
    "Tensor.view: axis 0 stride is 64, must be 32 bits, one element; copy it first": (
        LayoutError,
        lambda: Tensor.zeros((4,))[::2].view("uint8"),
    ),
    "Tensor.view: axis 1 extent is 3, must be a multiple of 2; copy it first": (
        LayoutError,
        lambda: Tensor.zeros((2, 3), "int4").view("uint8"),
    ),
    "Tensor.view: offset_bits is 4, must be a multiple of 8; copy it first": (
        LayoutError,
        lambda: Tensor.zeros((2, 7), "int4")[:, 1:].view("uint8"),
    ),
    "Tensor.view: address in bits is 32784, must be a multiple of 32; copy it first": (
        LayoutError,
        lambda: Tensor(Buffer(4098, 8, None), Layout.dense((2,), width_bits=16), dtypes.int16).view("int32"),
    ),
}


@pytest.mark.parametrize("text", ERRORS)
def test_each_bad_input_has_one_clear_error(text: str) -> None:
    kind, use = ERRORS[text]
    with pytest.raises(kind) as error:
        use()
    assert str(error.value) == text


def test_an_argument_that_is_none_is_refused_in_the_name_of_the_class() -> None:
    with pytest.raises(TypeError, match=r"^Tensor\.__init__\(\) got an unexpected keyword argument 'shape'$"):
        Tensor(shape=(2, 3))  # type: ignore[call-arg]
