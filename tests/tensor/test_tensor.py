"""Tensors: what they are made of, their views, and what they print."""

import copy
import hashlib
import itertools
import operator
import pickle
from typing import Any

import floating
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import samebits
from samebits import driver, dtypes
from samebits.dtypes import DType
from samebits.errors import (
    ClosedError,
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
from samebits.memory import CPU, Buffer, Device, address_of, allocate
from samebits.tensor import Tensor

NUMPY_ROWS = [row for row in dtypes.ROWS if row.numpy is not None]


@pytest.mark.parametrize("row", NUMPY_ROWS, ids=repr)
def test_every_numpy_dtype_comes_in_and_goes_out_without_copying(row: DType) -> None:
    base = np.zeros((4, 6), row.numpy)
    for view in (base, base[1:, ::2], base.T, base[::-1, ::-2], base[2:2], base[1, 1, ...], base[:, None]):
        t = Tensor.from_any(view)
        assert (t.dtype, t.shape, t.ndim, t.size) == (row, view.shape, view.ndim, view.size)
        assert (t.device, t.read_only, t.nbytes) == (CPU, False, view.nbytes)
        assert t.address == address_of(view)
        back = t.numpy()
        assert back.dtype == view.dtype
        assert address_of(back) == address_of(view) or not view.size
        assert back.strides == view.strides or not view.size or 1 in view.shape


@given(hnp.arrays(np.int16, hnp.array_shapes(min_dims=0, max_dims=4, min_side=0)), st.data())
def test_views_equal_numpy(x: np.ndarray, data: st.DataObject) -> None:
    t = Tensor.from_any(x)
    axes = data.draw(st.permutations(range(x.ndim)))
    key = data.draw(hnp.basic_indices(x.shape, allow_newaxis=True))
    pairs: list[tuple[Tensor, Any]] = [
        (t.permute(axes), x.transpose(axes)),
        (t.T, x.T),
        (t[key], x[key]),
        (t.reshape((-1,)) if x.size else t.reshape((0,)), x.reshape(-1)),
        (t.squeeze(), x.squeeze()),
        (t.unsqueeze(0), x[None]),
        (t.unsqueeze((0, -1)), x[None, ..., None]),
        (t.flatten(), x.reshape(x.size)),
        (t.broadcast_to((2, *x.shape)), np.broadcast_to(x, (2, *x.shape))),
    ]
    if x.ndim:
        pairs.append((t.flip(-1), np.flip(x, -1)))
        pairs.append((t.unflatten(0, (x.shape[0], 1)), x[:, None]))
        pairs.append((t.sliding_window((), ()), x))
        assert [u.tobytes() for u in t] == [np.asarray(row).tobytes() for row in x]
    if x.ndim > 1:
        pairs.append((t.transpose(), np.swapaxes(x, -2, -1)))
        pairs.append((t.mT, np.swapaxes(x, -2, -1)))
        pairs.append((t.diagonal(1), np.diagonal(x, 1)))
        pairs.append((t.transpose(0, -1), np.swapaxes(x, 0, -1)))
    for ours, theirs in pairs:
        assert ours.buffer is t.buffer
        assert np.array_equal(ours.numpy(), theirs)
        assert ours.tobytes() == np.asarray(theirs).tobytes()
        assert np.array_equal(ours.copy().numpy(), theirs)


def test_numbers_and_lists_come_in_as_numpy_sees_them() -> None:
    assert Tensor.from_any(1.5).dtype is dtypes.float64
    assert Tensor.from_any([[True], [False]]).dtype is dtypes.bool_
    assert Tensor.from_any(np.float16(2)).dtype is dtypes.float16
    assert Tensor.from_any(ml_dtypes.bfloat16(2)).dtype is dtypes.bfloat16
    t = Tensor.from_any(range(3))
    assert (t.shape, Tensor.from_any(t)) == ((3,), t)


@pytest.mark.parametrize("row", dtypes.ROWS, ids=repr)
def test_empty_and_zeros_are_dense_and_aligned(row: DType) -> None:
    for make in (Tensor.empty, Tensor.zeros):
        for shape in ((), (0,), (3, 5), (2, 0, 3)):
            t = make(shape, row)
            assert (t.shape, t.dtype, t.read_only) == (shape, row, False)
            assert t.layout == Layout.dense(shape, width_bits=row.width_bits)
            assert t.address % 64 == 0
            assert t.buffer.size_bytes == t.nbytes == -(-t.size * row.width_bits // 8)
    assert not Tensor.zeros((3, 5), row).buffer.array().any()
    assert Tensor.zeros((2,), row.name).dtype is row


def test_dtype_defaults_to_float32() -> None:
    assert Tensor.empty((2,)).dtype is Tensor.zeros((2,)).dtype is dtypes.float32


class Whole:
    """What Python takes where it needs an integer, though it is none."""

    def __init__(self, value: int) -> None:
        self.value = value

    def __index__(self) -> int:
        return self.value


def test_extents_and_axes_may_be_several_arguments() -> None:
    x = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    t = Tensor.from_any(x)
    for views, arrays in [
        ((t.reshape(6, 4), t.reshape(6, -1), t.reshape([6, 4]), t.reshape(shape=(6, 4))), x.reshape(6, 4)),
        ((t.reshape(-1), t.reshape(np.int64(24)), t.reshape(np.array([24])), t.reshape(Whole(24))), x.reshape(-1)),
        ((t.permute(2, 0, 1), t.permute((2, 0, 1)), t.permute(-1, 0, 1)), x.transpose(2, 0, 1)),
    ]:
        for view in views:
            np.testing.assert_array_equal(view.numpy(), arrays)
    assert (len(t), len(t[0]), len(Tensor.zeros((0, 3)))) == (2, 3, 0)


@pytest.mark.parametrize("name", [name for name in dir(Tensor) if callable(getattr(Tensor, name)) and name[0] != "_"])
def test_a_method_is_called_that_of_a_tensor(name: str) -> None:
    """Whichever module of the room it is written in: errors of Python name it, and pickles."""
    method = getattr(Tensor, name)
    assert method.__qualname__ == f"Tensor.{name}"
    assert pickle.loads(pickle.dumps(method)) == method


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
    assert str(error.value) == f"Tensor.{name}: dtype is 'bf16', must be a row of dtypes.ROWS; {remedy}"


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


def test_a_copy_is_dense_writable_and_apart() -> None:
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    x.flags.writeable = False
    t = Tensor.from_any(x).T
    c = t.copy()
    assert c.layout.is_contiguous()
    assert not c.read_only
    c.numpy()[:] = 0
    assert x.sum() == 66
    narrow = Tensor.from_any(np.arange(-8, 8).astype(ml_dtypes.int4))
    assert narrow[::-2].copy().numpy().tolist() == list(range(-8, 8))[::-2]


def test_numpy_asks_for_what_it_wants() -> None:
    t = Tensor.from_any([1.0, 2.0])
    assert address_of(np.asarray(t)) == t.address
    assert np.asarray(t, dtype=np.int32).tolist() == [1, 2]
    assert address_of(np.array(t)) != t.address
    with pytest.raises(ValueError, match="copy"):
        np.array(t, dtype=np.int32, copy=False)
    assert (np.float32(1) + np.asarray(t)).tolist() == [2, 3]


def test_bytes_are_logical_and_narrow_codes_are_clean() -> None:
    x = np.arange(6, dtype=np.uint16).reshape(2, 3)
    assert Tensor.from_any(x).T.tobytes() == x.T.tobytes()
    negative = Tensor.from_any(np.array([-1, 2], ml_dtypes.int4))
    assert negative.tobytes() == b"\x0f\x02"
    dirty = np.array([0xF1, 0x02], np.uint8).view(ml_dtypes.float4_e2m1fn)
    assert Tensor.from_any(dirty).tobytes() == b"\x01\x02"


def test_a_digest_is_of_dtype_shape_and_bytes() -> None:
    x = np.arange(6, dtype=np.int32).reshape(2, 3)
    t = Tensor.from_any(x)
    assert t.digest() == hashlib.sha256(b"int32 (2, 3)\n" + x.tobytes()).hexdigest()
    assert t.digest() == t.T.copy().T.digest() == Tensor.from_any(np.asfortranarray(x)).digest()
    others = [t.reshape((3, 2)), Tensor.from_any(x.view(np.uint32)), t.flip(0), t[:1]]
    assert len({u.digest() for u in [t, *others]}) == 5


def test_repr_shows_values_and_facts() -> None:
    assert repr(Tensor.from_any([[1, 2], [3, 4]])) == "Tensor([[1, 2],\n        [3, 4]], int64, shape=(2, 2), cpu)"
    assert repr(Tensor.from_any(np.array(1.5, ml_dtypes.bfloat16))) == "Tensor(1.5, bfloat16, shape=(), cpu)"
    assert repr(Tensor.arange(3, dtype="float4_e2m1fn")) == "Tensor([0., 1., 2.], float4_e2m1fn, shape=(3,), cpu)"
    t = Tensor.zeros((1000, 1000))
    assert len(repr(t)) < 1000
    for extent in (7, 8, 100, 101, 5000):
        shown = np.array2string(np.arange(extent), separator=", ", prefix="Tensor(", threshold=100)
        assert repr(Tensor.arange(extent)) == f"Tensor({shown}, int64, shape=({extent},), cpu)"
    t.buffer.close()
    assert repr(t) == "Tensor(closed, float32, shape=(1000, 1000), cpu)"


def test_every_use_of_closed_memory_is_one_error() -> None:
    t = Tensor.from_any(np.zeros((2, 3), np.float32))
    t.buffer.close()
    for use in (t.numpy, t.torch, t.copy, t.tobytes, t.digest, t.__dlpack__, t.T.numpy, lambda: t.address, t.jax):
        with pytest.raises(ClosedError, match="buffer is closed, must be open; close it after its last use"):
            use()
    assert (t.shape, t.strides) == ((2, 3), (3, 1))


def test_a_tensor_does_not_change() -> None:
    t = Tensor.zeros((2,))
    for name in ("buffer", "layout", "dtype", "shape", "other"):
        with pytest.raises((AttributeError, TypeError)):
            setattr(t, name, None)
    assert copy.copy(t).buffer is t.buffer


def unaligned() -> np.ndarray:
    """float32 at an odd address."""
    return np.zeros(9, np.uint8)[1:].view(np.float32)


PACKED = "packed, 4 bits an element, must be whole bytes; pass copy=True for one byte an element"
ERRORS: dict[str, tuple[type[SamebitsError], Any]] = {
    "Tensor.from_any: x dtype is >f4, must be a row of dtypes.ROWS, in this machine's byte order; convert it first": (
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
    "Layout.reshape: shape is (7,), must be of 6 elements like (2, 3); keep the number of elements": (
        ShapeError,
        lambda: Tensor.zeros((2, 3)).reshape((7,)),
    ),
    "Buffer.array: buffer device is cuda:0, must be readable by the host; copy it to the host first": (
        DeviceError,
        lambda: Tensor(
            Buffer(4096, 8, None, Device("cuda")), Layout.dense((2,), width_bits=32), dtypes.float32
        ).numpy(),
    ),
}


@pytest.mark.parametrize("text", ERRORS)
def test_each_bad_input_has_one_clear_error(text: str) -> None:
    kind, use = ERRORS[text]
    with pytest.raises(kind) as error:
        use()
    assert str(error.value) == text


NARROW = [row for row in dtypes.ROWS if row.width_bits < 8]


def sample(row: DType, shape: tuple[int, ...], seed: int = 0) -> tuple[Tensor, np.ndarray]:
    """A packed tensor and its code points, one a byte, packed by np.packbits."""
    codes = np.random.default_rng(seed).integers(0, 1 << row.width_bits, shape, np.uint8)
    bits = np.unpackbits(codes.reshape(-1, 1), axis=1, bitorder="little")[:, : row.width_bits]
    data = np.packbits(bits, bitorder="little")
    buffer = Buffer(address_of(data), data.size, data)
    return Tensor(buffer, Layout.dense(shape, width_bits=row.width_bits), row), codes


@pytest.mark.parametrize("row", NARROW, ids=repr)
def test_packed_elements_are_read_from_any_view(row: DType) -> None:
    assert row.numpy is not None
    t, codes = sample(row, (5, 7))
    for key in ((), (0,), np.s_[1:, 1:], np.s_[::-2, 3], np.s_[:, ::-1], np.s_[2, 5], np.s_[3:3]):
        ours, due = t[key], codes[key]
        assert ours.tobytes() == np.asarray(due).tobytes()
        expected = np.asarray(due).view(row.numpy).astype(np.float64)
        assert np.array_equal(ours.values(), expected)
        assert ours.tolist() == expected.tolist()
        c = ours.copy()
        assert (c.layout, c.dtype) == (Layout.dense(ours.shape, width_bits=row.width_bits), row)
        assert c.tobytes() == ours.tobytes()
        padded = Tensor.from_any(np.ascontiguousarray(due).reshape(np.shape(due)).view(row.numpy))
        assert padded.layout.storage == "padded"
        assert padded.digest() == ours.digest() == c.digest()
        assert padded.equal_bits(ours)
        assert ours.equal_bits(padded.copy())


@pytest.mark.parametrize("row", dtypes.ROWS, ids=repr)
def test_full_and_arange_of_every_format(row: DType) -> None:
    for storage in ("packed", "padded"):
        for value in (1, 1.0, np.float32(1)) if row.max >= 1 else (0, 0.0):
            t = Tensor.full((3, 5), value, row, storage=storage)
            assert (t.shape, t.dtype, t.layout.storage) == ((3, 5), row, storage if row.width_bits % 8 else "packed")
            assert (t.values() == value).all()
        assert Tensor.full((), 1 if row.max >= 1 else 0, row).item() == (1 if row.max >= 1 else 0)
        if row.has_zero and row.max >= 3:
            assert Tensor.arange(4, dtype=row, storage=storage).tolist() == [0, 1, 2, 3]
            assert Tensor.arange(3, 0, -2, row).tolist() == [3, 1]
    assert Tensor.arange(0, dtype=row).shape == (0,)
    if row.max >= 1:
        ones = Tensor.ones((3, 5), row, storage="padded")
        assert ones.layout == Tensor.ones_like(ones).layout
        assert ones.equal_bits(Tensor.full((3, 5), 1, row))
        assert Tensor.ones_like(Tensor.zeros((3, 5)), dtype=row).equal_bits(ones)
    like = Tensor.full_like(Tensor.zeros((2, 3), "int4", storage="padded"), 0 if row.max < 1 else 1, dtype=row)
    assert (like.shape, like.dtype) == ((2, 3), row)
    assert Tensor.zeros_like(like).layout == Tensor.empty_like(like, device=CPU).layout == like.layout


def test_arange_counts_as_numpy_does() -> None:
    for arguments in [(5,), (2, 9), (2, 9, 3), (9, 2, -3), (5, 5), (5, 2), (-3, 4, 2), (2**62, 2**62 + 3)]:
        t = Tensor.arange(*arguments)
        assert (t.dtype, t.tolist()) == (dtypes.int64, np.arange(*arguments).tolist())
    for arguments in [(0, 1, 0.1), (1, 0, -0.25), (0.5,), (0, 1e-3, 1e-4)]:
        t = Tensor.arange(*arguments)
        assert (t.dtype, t.tolist()) == (dtypes.float32, np.arange(*arguments).astype(np.float32).tolist())
    assert Tensor.arange(2**64 - 2, 2**64, dtype="uint64").tolist() == [2**64 - 2, 2**64 - 1]


def test_a_tensor_is_not_searched() -> None:
    with pytest.raises(TypeError, match="container"):
        assert 1 in Tensor.arange(3)


def test_empty_tensors_of_long_axes_have_values_and_digests() -> None:
    for shape in [(0, 2**57 - 1), (2**57 - 1, 0), (0, 2**28, 2**28)]:
        t = Tensor.zeros(shape, "float64")
        assert t.numpy().shape == t.values().shape == t.copy().shape == Tensor.full(shape, 1, "int64").shape == shape
        assert t.tobytes() == b""
        assert t.equal_bits(pickle.loads(pickle.dumps(t)))


def test_arange_ends_before_stop() -> None:
    for start, stop, step in [(1, 1.3, 0.1), (1.1, 0.1, -0.1), (0, 0.3, 0.1), (0, 1e-323, 5e-324), (0.5, 1.5, 0.25)]:
        is_before = operator.lt if step > 0 else operator.gt
        due = [x for i in range(99) if is_before(x := start + i * step, stop)]
        assert Tensor.arange(start, stop, step, "float64").tolist() == due
    assert Tensor.arange(-1e308, 1e308, 1e308, "float64").tolist() == [-1e308, 0]
    assert Tensor.arange(0, 10, 10**400).tolist() == [0]


def test_view_equals_numpy_for_whole_bytes() -> None:
    x = np.arange(48, dtype=np.uint8).reshape(2, 3, 8)
    for base in (x, x[:, 1:], x[::-1], x.transpose(1, 0, 2)):
        for name in ("int8", "uint16", "float32", "int64", "float8_e4m3fn"):
            t = Tensor.from_any(base).view(name)
            due = base.view(dtypes.of(name).numpy)
            assert (t.shape, t.tobytes()) == (due.shape, due.tobytes())
            assert t.view("uint8").equal_bits(Tensor.from_any(base))


def test_view_of_packed_elements_and_bytes() -> None:
    t, codes = sample(dtypes.float4_e2m1fn, (3, 8))
    assert t.view("int4").tobytes() == t.tobytes()
    as_bytes = t.view("uint8")
    assert as_bytes.tolist() == (codes[:, ::2] | codes[:, 1::2] << 4).tolist()
    assert as_bytes.view("uint4").tobytes() == t.tobytes()
    assert t[:, 2:].view("uint8").equal_bits(as_bytes[:, 1:])
    assert t.view("uint1").shape == (3, 32)
    assert Tensor.zeros((2, 8), "float6_e2m3fn").view("uint8").shape == (2, 6)
    assert Tensor.zeros((2, 0), "float6_e2m3fn").view("uint8").shape == (2, 0)
    for start in range(6):  # wherever in memory the bytes are
        part = Tensor.arange(12, dtype="uint8")[start : start + 6]
        sixes = part.view("float6_e2m3fn")
        assert sixes.shape == (8,)
        assert sixes.view("uint8").equal_bits(part)
    odd = Buffer.from_handle(Tensor.zeros((8,), "uint8").address + 1, 0)
    assert Tensor(odd, Layout.dense((0, 4), width_bits=8), dtypes.uint8).view("int32").shape == (0, 1)
    assert Tensor.zeros((3,), "int4", storage="padded").view("uint4").layout.storage == "padded"
    assert Tensor.full((3,), -1, "int4", storage="padded").view("uint8").tolist() == [15] * 3
    assert Tensor.zeros((), "float32").view("int32").shape == ()


def test_equality_of_bits_and_of_values() -> None:
    nan, zero, negative_zero = (Tensor.full((2,), x) for x in (np.nan, 0.0, -0.0))
    assert nan.equal_bits(nan.copy())
    assert not nan.equal_values(nan)
    assert nan.equal_values(nan, equal_nan=True)
    assert nan.equal_values(Tensor.full((2,), np.nan, "bfloat16"), equal_nan=True)
    assert not zero.equal_bits(negative_zero)
    assert zero.equal_values(negative_zero)
    assert not zero.equal_bits(Tensor.zeros((2,), "int32"))
    assert zero.equal_values(Tensor.zeros((2,), "int32"))
    assert not zero.equal_bits(Tensor.zeros((2, 1)))
    assert not zero.equal_values(Tensor.zeros((2, 1)))
    assert Tensor.arange(7, dtype="uint4")[1:].equal_values(Tensor.arange(1, 7))
    assert not nan.equal_values(zero, equal_nan=True)


def test_items_are_python_numbers() -> None:
    assert type(Tensor.full((1, 1), 2, "int4").item()) is int
    assert type(Tensor.full((), 2, "bfloat16").item()) is float
    assert Tensor.full((2,), True, "bool").tolist() == [True, True]
    assert [x.item() for x in Tensor.arange(3, dtype="uint2")] == [0, 1, 2]


def test_one_element_is_a_float_an_int_and_a_truth_value_as_in_numpy() -> None:
    for row in NUMPY_ROWS:
        for value in (row.min, 0, 1, row.max) if row.has_zero and row.max >= 1 else (1,) if row.max >= 1 else ():
            x = np.full((), value, row.numpy)
            t = Tensor.from_any(x)
            assert (float(t), int(t), bool(t)) == (float(x), int(x), bool(x)), (row, value)
            assert type(float(t)) is float
            assert type(int(t)) is int
    assert bool(Tensor.full((1, 1), float("nan")))
    assert int(Tensor.full((1,), -2.75)) == -2
    with pytest.raises(ValueError, match="cannot convert float NaN to integer"):
        int(Tensor.full((), float("nan")))
    with floating.environment("flush"):
        truths = [bool(Tensor.from_bytes(b"\1" + bytes(n - 1), f"float{8 * n}", ())) for n in (2, 4, 8)]
    assert truths == [True] * 3


def test_repr_of_any_format_is_numpys_of_its_values() -> None:
    for row in dtypes.ROWS:
        t = Tensor.full((3, 4), 0 if row.max < 1 else 1, row)
        values = np.array2string(t.values(), separator=", ", prefix="Tensor(")
        assert repr(t) == f"Tensor({values}, {row}, shape=(3, 4), cpu)"
    x = np.arange(20 * 3 * 30, dtype=np.float32).reshape(20, 3, 30)
    summary = np.array2string(x, separator=", ", prefix="Tensor(", threshold=100)
    assert repr(Tensor.from_any(x)) == f"Tensor({summary}, float32, shape=(20, 3, 30), cpu)"
    wide = Tensor.zeros(()).broadcast_to((10,) * 18)
    assert repr(wide) == f"Tensor(float32, shape={(10,) * 18}, cpu)"
    huge = repr(Tensor.zeros((), "float6_e2m3fn").broadcast_to((1 << 40, 3)))
    assert huge.startswith("Tensor([[0., 0., 0.],\n")
    far = Tensor(Buffer(4096, 8, None, Device("cuda")), Layout.dense((2,), width_bits=32), dtypes.float32)
    assert repr(far) == "Tensor(float32, shape=(2,), cuda:0)"


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_pickle_is_the_value(protocol: int) -> None:
    packed, _ = sample(dtypes.int4, (3, 5))
    dirty = Tensor.from_any(np.array([0xF1, 0x02], np.uint8).view(ml_dtypes.float4_e2m1fn))
    strided = Tensor.from_any(np.arange(24.0).reshape(4, 6)).T[1:, ::-1]
    for t in (packed, packed[1:, 1:], dirty, strided, Tensor.zeros((0, 3)), Tensor.full((), 7, "int64")):
        back = pickle.loads(pickle.dumps(t, protocol))
        assert back.equal_bits(t)
        assert (back.layout.storage, back.read_only, back.device) == (t.layout.storage, False, CPU)
        assert back.layout.is_contiguous()
        assert back.address % 64 == 0


@pytest.mark.parametrize("row", NARROW, ids=repr)
def test_bits_after_the_last_element_are_0(row: DType) -> None:
    for storage in ("packed", "padded"):
        for t in (Tensor.full((5,), row.max, row, storage=storage), sample(row, (3, 7))[0][:, 1:6].copy()):
            bits = np.unpackbits(t.buffer.array(), bitorder="little")
            assert not bits[t.layout.bounds_bits[1] :].any()
            assert pickle.dumps(t) == pickle.dumps(t.copy())


@pytest.mark.parametrize("protocol", [2, 4, 5])
@pytest.mark.parametrize("row", NARROW, ids=repr)
def test_a_pickle_holds_no_bits_of_what_lies_behind_the_tensor(row: DType, protocol: int) -> None:
    """Equal values have equal pickles, and memory that belongs to another tensor is in none."""
    width = row.width_bits
    for count in (1, 2, 3, 5, 7, 8, 9):
        for storage in ("packed", "padded"):
            layout = Layout.dense((count,), width_bits=width, storage=storage)
            elements = np.zeros(layout.required_bytes * 8, np.uint8)  # which bits are elements'
            for i in range(count):
                elements[i * layout.pitch_bits :][:width] = 1
            made = set()
            for around in (0, 1):
                raw = np.packbits(np.where(elements, 0, around).astype(np.uint8), bitorder="little")
                t = Tensor.from_buffer(raw, row, (count,), storage=storage)
                made.add(pickle.dumps(t, protocol))
            assert len(made) == 1, (count, storage)


def test_a_pickle_of_a_dense_tensor_goes_out_of_band() -> None:
    t, carried = Tensor.arange(1000), []
    data = pickle.dumps(t, 5, buffer_callback=carried.append)
    assert len(data) < 500
    assert address_of(np.frombuffer(carried[0], np.uint8)) == t.address
    back = pickle.loads(data, buffers=carried)
    assert back.equal_bits(t)
    assert back.address != t.address
    assert copy.deepcopy(t).address != t.address


VALUE_ERRORS: dict[str, tuple[type[SamebitsError], Any]] = {
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
    "Layout[...]: index of axis 0 is a number of too many digits to show, must be in [-2, 2); use an existing one": (
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
    "Layout.repack: axis is -1, must be in [0, 0); use an existing one": (
        LayoutError,
        lambda: Tensor.zeros(()).view("int8"),
    ),
    "Layout.repack: axis 0 stride is 64, must be 32 bits, one element; copy it first": (
        LayoutError,
        lambda: Tensor.zeros((4,))[::2].view("uint8"),
    ),
    "Layout.repack: axis 1 extent is 3, must be a multiple of 2; copy it first": (
        LayoutError,
        lambda: Tensor.zeros((2, 3), "int4").view("uint8"),
    ),
    "Layout.repack: offset_bits is 4, must be a multiple of 8; copy it first": (
        LayoutError,
        lambda: Tensor.zeros((2, 7), "int4")[:, 1:].view("uint8"),
    ),
    "Layout.repack: address in bits is 32784, must be a multiple of 32; copy it first": (
        LayoutError,
        lambda: Tensor(Buffer(4098, 8, None), Layout.dense((2,), width_bits=16), dtypes.int16).view("int32"),
    ),
}


@pytest.mark.parametrize("text", VALUE_ERRORS)
def test_what_has_no_value_has_one_clear_error(text: str) -> None:
    kind, use = VALUE_ERRORS[text]
    with pytest.raises(kind) as error:
        use()
    assert str(error.value) == text


def test_new_tensors_are_where_they_are_asked_for() -> None:
    for make in (Tensor.empty, Tensor.zeros):
        assert make((2, 3), "int4", device=CPU).device == CPU
    assert (
        Tensor.full((2,), 1, device=CPU).tolist() == Tensor.arange(1, 3, dtype="float32", device=CPU).tolist()[:1] * 2
    )
    if driver.cuda() is None:
        for use in (
            lambda: Tensor.zeros((2,), device=Device("cuda")),
            lambda: Tensor.full_like(Tensor.zeros((2,)), 1, device=Device("cuda")),
            lambda: Tensor.arange(3, device=Device("cuda")),
        ):
            with pytest.raises(DeviceError):
                use()


@pytest.mark.parametrize("mode", floating.MODES)
def test_the_callers_float_environment_changes_no_conversion(mode: str) -> None:
    numbers = Tensor.from_any(np.array([0.1, 0.7, 1 / 3, 1e-40, -1e-310]))
    narrow = Tensor.from_any(np.array([1e-40, -3e-39, 1.5], np.float32))

    def converted() -> list[bytes]:
        made = [
            np.asarray(numbers, np.float32),
            np.asarray(numbers, ml_dtypes.bfloat16),
            np.asarray(narrow, np.float64),
        ]
        made += [Tensor.full((3,), 0.1, row).numpy() for row in (dtypes.float32, dtypes.float8_e4m3fn, dtypes.bfloat16)]
        made += [np.array(narrow.tolist()), np.array(narrow[:1].item()), np.array(numbers.equal_values(numbers))]
        made += [np.array(narrow.equal_values(Tensor.zeros((3,))))]
        return [*(x.tobytes() for x in made), repr(narrow).encode(), repr(numbers).encode()]

    due = converted()
    with floating.environment(mode):
        found = converted()
    assert found == due


def test_a_tensor_is_compared_by_name_and_never_by_equality() -> None:
    t = Tensor.from_any(np.arange(3, dtype=np.float32))
    others: list[Any] = [t, t.copy(), np.zeros(3), np.float32(1), torch.zeros(3), jnp.zeros(3), 1, 1.5, True, [0], (0,)]
    for other in others:
        for compare in (operator.eq, operator.ne):
            with pytest.raises(TypeError, match=r"must be an|ask what you mean|numpy\.(not_)?equal"):
                compare(t, other)
            if not isinstance(other, torch.Tensor):
                with pytest.raises(TypeError):
                    compare(other, t)
    with pytest.raises(TypeError) as error:
        t == t.copy()  # noqa: B015
    assert str(error.value) == (
        "Tensor ==: other is of type Tensor, must be an object that is no array; "
        "ask what you mean: x is y, x.equal_bits(y) or x.equal_values(y)"
    )
    for other in (None, "a", object(), Tensor, {}):
        assert t != other
        assert not t == other  # noqa: SIM201


def test_a_tensor_is_a_key_of_its_own() -> None:
    t = Tensor.zeros((3,))
    assert len({t, t, t.copy(), t[:]}) == 3
    assert {t: 1}[t] == 1
    assert t in [t]


def test_an_index_that_is_not_there_is_an_index_error_too() -> None:
    t = Tensor.zeros((3, 4))
    for use in (
        lambda: t[3], lambda: t[-4], lambda: t[0, 4], lambda: t[0, 0, 0], lambda: t[0, 0][0], lambda: t.flip(2),
        lambda: t.squeeze(5), lambda: t.unsqueeze(9),
    ):  # fmt: skip
        with pytest.raises(IndexError) as error:
            use()
        assert isinstance(error.value, OutOfRangeError)
        assert isinstance(error.value, LayoutError)
    for use in (lambda: t["a"], lambda: t[1.5], lambda: t[..., ...]):  # type: ignore[index]
        with pytest.raises(LayoutError) as other:
            use()
        assert not isinstance(other.value, IndexError)


def test_what_iterates_by_index_ends() -> None:
    t, seen = Tensor.from_any(np.arange(3)), []
    try:
        for i in itertools.count():
            seen.append(t[i].item())
    except IndexError:
        pass
    assert seen == [0, 1, 2]
