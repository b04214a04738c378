"""Every format through every library, whether it holds it or not, with its name, address and access."""

import pickle
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from samebits import Exported, dtypes
from samebits.dtypes import DType
from samebits.errors import DTypeError, ExchangeError, LayoutError, OptionError
from samebits.layout import Layout
from samebits.memory import address_of
from samebits.tensor import Tensor

NARROW = [row for row in dtypes.ROWS if row.width_bits < 8]
WIDE = [row for row in dtypes.ROWS if row.width_bits >= 8]
IN_JAX = ["float4_e2m1fn", "int4", "uint4", "int2", "uint2"]
IN_TORCH = [row for row in WIDE if row.name not in ("float8_e3m4", "float8_e4m3", "float8_e4m3b11fnuz")]


def codes_of(row: DType, count: int = 24) -> np.ndarray:
    """Code points, all that there are of narrow formats."""
    random = np.random.default_rng(row.width_bits)
    high = 2 if row is dtypes.bool_ else 1 << min(row.width_bits, 63)
    kind = np.dtype(f"u{max(row.width_bits // 8, 1)}")
    return random.integers(0, high, count, dtype=kind) if high <= 256 else random.integers(0, high, count).astype(kind)


def tensor_of(row: DType, shape: tuple[int, ...] = (3, 8), storage: Any = "packed") -> Tensor:
    """A tensor of known codes, written bit by bit."""
    t = Tensor.zeros(shape, row, storage=storage)
    data = t.buffer.array()
    pitch = t.layout.pitch_bits
    for i, code in enumerate(codes_of(row, t.size)):
        for bit in range(row.width_bits):
            place = i * pitch + bit
            data[place // 8] |= ((int(code) >> bit) & 1) << (place % 8)
    return t


def as_codes(array: Any) -> np.ndarray:
    """The code points of a NumPy array of any dtype, flat, whatever its unused bits."""
    kind = np.dtype(f"u{array.dtype.itemsize}")
    codes = np.ascontiguousarray(array).reshape(-1).view(kind)
    width = dtypes.of(array.dtype).width_bits
    return codes & kind.type((1 << width) - 1) if width < 8 else codes


# NumPy with ml_dtypes: every format.


@pytest.mark.parametrize("row", NARROW, ids=repr)
def test_numpy_holds_padded_storage_in_place(row: DType) -> None:
    t = tensor_of(row, storage="padded")
    array = t.numpy()
    assert (array.dtype, array.shape, address_of(array)) == (row.numpy, (3, 8), t.address)
    assert np.array_equal(as_codes(array), codes_of(row))
    back = Tensor.from_any(array)
    assert (back.dtype, back.layout, back.address) == (row, t.layout, t.address)


@pytest.mark.parametrize("row", NARROW, ids=repr)
def test_numpy_gets_packed_storage_only_as_a_copy(row: DType) -> None:
    t = tensor_of(row)
    for use in (t.numpy, lambda: np.array(t, copy=False)):
        with pytest.raises(LayoutError) as error:
            use()
        assert str(error.value) == (
            f"Tensor.numpy: tensor storage is packed, {row.width_bits} bits an element, must be whole bytes; "
            "pass copy=True for one byte an element"
        )
    for array in (t.numpy(copy=True), np.array(t), np.array(t, copy=True)):
        assert (array.dtype, array.shape, array.flags.writeable) == (row.numpy, (3, 8), True)
        assert np.array_equal(as_codes(array), codes_of(row))
    array = np.asarray(t)
    assert (array.dtype, array.shape, array.flags.writeable) == (row.numpy, (3, 8), False)
    assert np.array_equal(as_codes(array), codes_of(row))
    assert np.array_equal(np.asarray(t, np.float32), array.astype(np.float32), equal_nan=True)


@pytest.mark.parametrize("row", WIDE, ids=repr)
def test_a_numpy_copy_is_apart(row: DType) -> None:
    t = tensor_of(row)
    array = t.numpy(copy=True)
    assert address_of(array) != t.address
    assert np.array_equal(as_codes(array), codes_of(row))


# torch.


@pytest.mark.parametrize("row", IN_TORCH, ids=repr)
def test_torch_takes_and_gives_what_it_names(row: DType) -> None:
    t = tensor_of(row)
    x = t.torch()
    assert str(x.dtype) == f"torch.{row.name}"
    assert (x.data_ptr(), tuple(x.shape)) == (t.address, (3, 8))
    back = Tensor.from_any(x.T)
    assert (back.dtype, back.layout, back.address, back.read_only) == (row, t.T.layout, t.address, False)
    assert np.array_equal(as_codes(Tensor.from_any(x).numpy()), codes_of(row))


def test_torch_counts_float4_in_pairs() -> None:
    row = dtypes.float4_e2m1fn
    t = tensor_of(row)
    for ours, pairs, strides in ((t, (3, 4), (4, 1)), (t.T, (4, 3), (1, 4)), (t[1:, 2:6], (2, 2), (4, 1))):
        x = ours.torch()
        assert (x.dtype, tuple(x.shape), x.stride()) == (torch.float4_e2m1fn_x2, pairs, strides)
        assert x.data_ptr() == ours.address
        for back in (Tensor.from_any(x), Tensor.from_dlpack(x)):
            assert (back.dtype, back.shape, back.strides) == (row, ours.shape, ours.strides)
            assert back.address == ours.address
            assert np.array_equal(as_codes(back.numpy(copy=True)), as_codes(ours.numpy(copy=True)))
    with pytest.raises(ExchangeError, match="must be one with a dense axis of a multiple of 2 elements"):
        tensor_of(row, (3, 5)).torch()
    padded = tensor_of(row, storage="padded")
    with pytest.raises(ExchangeError, match="storage is padded, must be packed"):
        padded.torch()
    assert Tensor.from_any(padded.torch(copy=True)).equal_bits(padded)
    with pytest.raises(ExchangeError, match="must be one with a unit stride for its lanes to lie along"):
        Tensor.from_any(t.torch()[:, ::2])


@pytest.mark.parametrize("name", ["int4", "uint4", "int1", "uint7", "bits8", "quint4x2"])
def test_a_torch_dtype_that_only_names_a_width_is_refused(name: str) -> None:
    kind = getattr(torch, name)
    x = torch.zeros(4, dtype=torch.uint8).view(kind) if "q" not in name else type("X", (), {"dtype": kind})()
    type(x).__dlpack__ = getattr(type(x), "__dlpack__", lambda self, **_: None)
    for call, use in (("from_any", Tensor.from_any), ("from_dlpack", Tensor.from_dlpack)):
        with pytest.raises(DTypeError) as error:
            use(x)
        assert str(error.value) == (
            f"Tensor.{call}: x dtype is torch.{name}, must be one whose bits torch gives a meaning; "
            "say what its bytes are, with Tensor.from_buffer(x.view(torch.uint8), dtype, shape)"
        )


def test_torch_is_given_no_dtype_that_only_names_a_width() -> None:
    for row in [row for row in dtypes.ROWS if row not in IN_TORCH and row is not dtypes.float4_e2m1fn]:
        with pytest.raises(DTypeError) as error:
            tensor_of(row).torch()
        assert str(error.value) == (
            f"Tensor.torch: tensor dtype is {row}, must be one that torch takes by DLPack; "
            "use Tensor.export(to='torch') for its bytes"
        )


# JAX.


@pytest.mark.parametrize("row", [row for row in WIDE if row.width_bits < 64], ids=repr)
def test_jax_takes_and_gives_every_format_of_whole_bytes(row: DType) -> None:
    t = tensor_of(row)
    x = t.jax(copy=False)
    assert (x.dtype, x.shape, x.unsafe_buffer_pointer()) == (row.numpy, (3, 8), t.address)
    back = Tensor.from_any(x, copy=False)
    assert (back.dtype, back.layout, back.address, back.read_only) == (row, t.layout, t.address, True)
    assert t.jax(copy=True).unsafe_buffer_pointer() != t.address


@pytest.mark.parametrize("storage", ["packed", "padded"])
@pytest.mark.parametrize("shape", [(3, 8), (3, 5), (7,), (), (0, 3)], ids=str)
@pytest.mark.parametrize("name", IN_JAX)
def test_jax_holds_narrow_formats_after_a_copy(name: str, shape: tuple[int, ...], storage: str) -> None:
    t = tensor_of(dtypes.of(name), shape, storage)
    x = t.jax()
    assert isinstance(x, jax.Array)
    assert (str(x.dtype), x.shape) == (name, shape)
    assert np.array_equal(as_codes(np.asarray(x)), as_codes(t.numpy(copy=True)))
    t.buffer.array()[:] = 0
    back = Tensor.from_any(x)
    assert (back.dtype, back.shape) == (t.dtype, shape)
    assert back.layout == Layout.dense(shape, width_bits=t.dtype.width_bits)
    assert np.array_equal(as_codes(back.numpy(copy=True)), as_codes(np.asarray(x)))


@pytest.mark.parametrize("storage", ["packed", "padded"])
@pytest.mark.parametrize("name", IN_JAX)
def test_jax_gets_the_elements_of_a_part_of_a_tensor(name: str, storage: str) -> None:
    """From each element on, as many as end in each place of a byte."""
    whole = tensor_of(dtypes.of(name), (40,), storage)
    values = whole.values()
    for start in range(18):
        for count in (1, 2, 3, 7, 8, 9, 16, 22):
            part = whole[start : start + count]
            x = part.jax(copy=None if part.layout.offset_bits % 8 == 0 else True)
            assert np.array_equal(np.asarray(x).astype(np.float32), values[start : start + count]), (start, count)
    for key in (np.s_[::-1], np.s_[3::2], np.s_[30:2:-3]):
        assert np.array_equal(np.asarray(whole[key].jax(copy=True)).astype(np.float32), values[key])
    table = whole.reshape((5, 8))
    for view, due in ((table.T, values.reshape(5, 8).T), (table[1:, 2:5], values.reshape(5, 8)[1:, 2:5])):
        assert np.array_equal(np.asarray(view.jax(copy=True)).astype(np.float32), due)


def test_jax_says_where_it_would_have_to_copy() -> None:
    t = tensor_of(dtypes.int4)
    with pytest.raises(ExchangeError) as error:
        t.jax(copy=False)
    assert str(error.value) == (
        "Tensor.jax: tensor dtype is int4, must be one that JAX takes by DLPack; leave copy=False out"
    )
    with pytest.raises(ExchangeError) as error:
        Tensor.from_any(t.jax(), copy=False)
    assert str(error.value) == (
        "Tensor.from_any: x dtype is int4, must be a format that JAX exports; leave copy=False out"
    )
    with pytest.raises(ExchangeError, match="must be row-major and dense; pass copy=True"):
        t.T.jax()
    assert np.array_equal(np.asarray(t.T.jax(copy=True)), np.asarray(t.jax()).T)


def test_jax_float4_comes_in_place() -> None:
    x = jnp.asarray(tensor_of(dtypes.float4_e2m1fn, storage="padded").numpy())
    for t in (Tensor.from_any(x, copy=False), Tensor.from_dlpack(x)):
        assert (t.dtype, t.layout) == (dtypes.float4_e2m1fn, Layout.dense((3, 8), width_bits=4))
        assert (t.address, t.read_only) == (x.unsafe_buffer_pointer(), True)
        assert np.array_equal(as_codes(t.numpy(copy=True)), as_codes(np.asarray(x)))


def is_in_jax(name: str) -> bool:
    """Whether this version of JAX holds the format."""
    try:
        return jnp.asarray(np.ones(3, name)).block_until_ready().dtype == np.dtype(name)
    except jax.errors.JaxRuntimeError:
        return False


FLOAT6_IN_JAX = is_in_jax("float6_e2m3fn")


@pytest.mark.skipif(not FLOAT6_IN_JAX, reason="this JAX does not hold float6")
@pytest.mark.parametrize("storage", ["packed", "padded"])
@pytest.mark.parametrize("name", ["float6_e2m3fn", "float6_e3m2fn"])
def test_jax_float6_is_kept_in_bytes(name: str, storage: str) -> None:
    t = tensor_of(dtypes.of(name), storage=storage)
    x = t.jax()
    assert str(x.dtype) == name
    t.buffer.array()[:] = 0
    assert np.array_equal(as_codes(np.asarray(x)), codes_of(t.dtype))
    back = Tensor.from_any(x, copy=False)
    assert (back.dtype, back.address, back.read_only) == (t.dtype, x.unsafe_buffer_pointer(), True)


NOT_IN_JAX = ["int1", "uint1", *([] if FLOAT6_IN_JAX else ["float6_e2m3fn", "float6_e3m2fn"])]


@pytest.mark.parametrize("storage", ["packed", "padded"])
@pytest.mark.parametrize("name", NOT_IN_JAX)
def test_jax_is_not_given_what_it_does_not_hold(name: str, storage: str) -> None:
    with pytest.raises(DTypeError) as error:
        tensor_of(dtypes.of(name), storage=storage).jax()
    assert str(error.value) == (
        f"Tensor.jax: tensor dtype is {name}, must be one that JAX has; use Tensor.export(to='jax') for its bytes"
    )


# Ours to ours, by DLPack alone: every format, in the standard's own encodings.


@pytest.mark.parametrize("storage", ["packed", "padded"])
@pytest.mark.parametrize("row", dtypes.ROWS, ids=repr)
def test_dlpack_carries_every_format_whole(row: DType, storage: str) -> None:
    t = tensor_of(row, storage=storage)
    for view in (t, t.T, t[1:], t[:, ::2], t[2], t[:0]):
        back = Tensor.from_dlpack(view)
        assert (back.dtype, back.shape, back.layout.storage) == (row, view.shape, view.layout.storage)
        assert back.layout.strides_bits == view.layout.strides_bits
        if view.size:
            assert back.address == view.address
    copied = Tensor.from_any(t, copy=True)
    assert (copied.layout, copied.digest()) == (t.layout, t.digest())
    assert copied.address != t.address


# Bytes with a sidecar: every format through every library.


@pytest.mark.parametrize("storage", ["packed", "padded"])
@pytest.mark.parametrize("to", ["tensor", "numpy", "torch", "jax"])
@pytest.mark.parametrize("row", dtypes.ROWS, ids=repr)
def test_every_format_crosses_every_library_as_bytes(row: DType, to: Any, storage: str) -> None:
    t = tensor_of(row, storage=storage)
    views = (t,) if to == "jax" else (t, t[1:], t.T, t.flip(0), t[:, 1:4])
    for view in views:
        exported = view.export(to)
        assert isinstance(exported, Exported)
        kind = {"tensor": Tensor, "numpy": np.ndarray, "torch": torch.Tensor, "jax": jax.Array}[to]
        assert isinstance(exported.bytes, kind)
        assert str(exported.bytes.dtype).removeprefix("torch.") == "uint8"
        assert exported.bytes.ndim == 1
        back = Tensor.from_exported(exported)
        assert (back.dtype, back.shape, back.digest()) == (row, view.shape, view.digest())
        assert back.layout.strides_bits == view.layout.strides_bits
        assert back.buffer.address == view.buffer.address + view.layout.rebased()[1]
    # The bytes may have been elsewhere in between.
    if to == "torch":
        moved = Exported(exported.bytes.clone(), exported.dtype, exported.layout)
        assert Tensor.from_exported(moved).digest() == view.digest()


@pytest.mark.parametrize("to", ["numpy", "torch"])
def test_an_exported_tensor_may_be_saved(to: Any) -> None:
    view = tensor_of(dtypes.float6_e3m2fn)[1:, 1:4]
    exported = view.export(to)
    loaded = pickle.loads(pickle.dumps(exported))
    assert (loaded.dtype, loaded.layout) == (exported.dtype, exported.layout)
    assert Tensor.from_exported(loaded).digest() == view.digest()


def test_export_refuses_what_a_library_would_not_keep_to() -> None:
    x = np.zeros(8, np.uint8)
    x.flags.writeable = False
    t = Tensor.from_any(x)
    assert Tensor.from_exported(t.export("numpy")).read_only
    assert Tensor.from_exported(t.export("tensor")).read_only
    with pytest.raises(ExchangeError, match="torch ignores that memory is read-only"):
        t.export("torch")
    assert t.export("torch", copy=True).bytes.data_ptr() != t.address
    with pytest.raises(OptionError) as error:
        t.export("tf")  # type: ignore[arg-type]
    assert str(error.value) == (
        "Tensor.export: to is 'tf', must be 'tensor', 'numpy', 'torch' or 'jax'; name one of these"
    )


def test_bytes_that_do_not_fit_their_sidecar_are_refused() -> None:
    layout = Layout.dense((8,), width_bits=4)
    fp4 = dtypes.float4_e2m1fn
    with pytest.raises(LayoutError, match=r"span is bits \[0, 32\), must be within the buffer's 3 bytes"):
        Tensor.from_exported(Exported(np.zeros(3, np.uint8), fp4, layout))
    with pytest.raises(ExchangeError, match=r"data is of shape .* must be dense; copy it first"):
        Tensor.from_exported(Exported(np.zeros(8, np.uint8)[::2], fp4, layout))
    with pytest.raises(ExchangeError, match="x type is list, must be one whose memory can be shared"):
        Tensor.from_exported(Exported([1, 2, 3, 4], fp4, layout))
