"""How NumKong, cuda.core, ONNX Runtime, Arrow, TVM and TensorFlow make, read, take and give: see `frameworks`."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
from numpy.typing import NDArray

from samebits import dtypes
from samebits.doctor.arrays import make_array, read_array
from samebits.doctor.framework import CannotHold, Held, Stated, at, codes_in, dense_at, row_of, shared
from samebits.doctor.witness import Codes, aligned, pack, unpack, unsigned
from samebits.dtypes import DType
from samebits.ops import move
from samebits.tensor import Tensor

# NumKong: short names for its floats; its int4 shapes count bytes and its first element lies in the high bits.

_NUMKONG = {
    "float8_e4m3fn": "e4m3",
    "float8_e5m2": "e5m2",
    "float6_e2m3fn": "e2m3",
    "float6_e3m2fn": "e3m2",
}
_FROM_NUMKONG = {theirs: ours for ours, theirs in _NUMKONG.items()}


def _swapped(raw: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Bytes with their halves exchanged."""
    halves = np.unpackbits(raw.reshape(-1, 1), axis=1)
    return np.packbits(np.roll(halves, 4, axis=1), axis=1).reshape(raw.shape)


def make_numkong(numkong: Any, dtype: DType, codes: Codes) -> Any:
    name = _NUMKONG.get(dtype.name, dtype.name)
    if dtype in (dtypes.int4, dtypes.uint4):
        return numkong.Tensor(_swapped(pack(codes, 4)).reshape(*codes.shape[:-1], -1), dtype=name)
    if dtype is dtypes.float8_e4m3:
        raise CannotHold("its float8_e4m3 is another name of its float8_e4m3fn")
    if dtype.width_bits < 8 and not dtype.is_float:
        raise CannotHold("no page says which bit of a byte comes first")
    # Its own dtypes come from NumPy's; the others are named over plain bytes.
    if dtype.numpy is not None and dtype.numpy.isbuiltin == 1:
        codes = codes.view(dtype.numpy)
    try:
        return numkong.Tensor(codes, dtype=name)
    except (ValueError, TypeError) as error:
        raise CannotHold(str(error)) from error


def read_numkong(numkong: Any, x: Any) -> Held:
    dtype = row_of(_FROM_NUMKONG.get(x.dtype, x.dtype))
    raw = at(x.data_ptr, x.nbytes)
    if dtype in (dtypes.int4, dtypes.uint4):
        shape = (*x.shape[:-1], 2 * x.shape[-1])
        return Held(dtype, x.dtype, shape, unpack(_swapped(raw), 4, shape), x.data_ptr)
    codes = codes_in(raw, dtype).reshape(x.shape) if dtype else raw
    return Held(dtype, x.dtype, tuple(x.shape), codes, x.data_ptr)


def take_numkong(numkong: Any, tensor: Tensor, copy: bool) -> Any:
    return numkong.from_dlpack(tensor.copy() if copy else tensor)


def put_numkong(numkong: Any, tensor: Tensor) -> Any:
    """float6 a byte each; int4 and uint4 as pairs with their halves exchanged."""
    if tensor.dtype.is_float:
        return numkong.from_dlpack(move.to_padded(tensor))
    raw = _swapped(move.to_packed(tensor).buffer.array()).reshape(*tensor.shape[:-1], -1)
    return numkong.Tensor(raw, dtype=tensor.dtype.name)


def give_numkong(numkong: Any, x: Any) -> Tensor:
    held = read_numkong(numkong, x)
    assert held.dtype is not None
    raw = aligned(pack(held.codes, held.dtype.width_bits))
    return shared(raw.ctypes.data, held.dtype, held.shape, raw)


# cuda.core's StridedMemoryView


def make_view(module: Any, dtype: DType, codes: Codes) -> Any:
    return module.StridedMemoryView.from_dlpack(Stated(dtype, codes), -1)


def read_view(module: Any, x: Any) -> Held:
    try:
        called = x.dtype.name
    except (TypeError, NotImplementedError) as error:  # it has the bytes, and no name for them
        raise CannotHold(str(error)) from error
    dtype = row_of(called)
    codes = dense_at(x.ptr, dtype, x.shape) if dtype else np.zeros(0, np.uint8)
    return Held(dtype, called, tuple(x.shape), codes, x.ptr)


def take_view(module: Any, tensor: Tensor, copy: bool) -> Any:
    return module.StridedMemoryView.from_dlpack(tensor, -1)


def give_view(module: Any, x: Any) -> Tensor:
    return shared(x.ptr, dtypes.of(x.dtype), tuple(x.shape), x)


# ONNX Runtime's OrtValue: by its pointer, as its DLPack lacks the narrow floats and says uint8 for bool.

_BY_ONNX = {row.onnx: row for row in dtypes.ROWS if row.onnx is not None}


def make_ort(ort: Any, dtype: DType, codes: Codes) -> Any:
    if dtype.onnx is None:
        raise CannotHold
    try:
        value = ort.OrtValue.ortvalue_from_shape_and_type(codes.shape, dtype.onnx)
    except RuntimeError as error:
        raise CannotHold from error
    raw = pack(codes, dtype.width_bits)
    ctypes.memmove(value.data_ptr(), raw.ctypes.data, raw.nbytes)
    return value


def read_ort(ort: Any, x: Any) -> Held:
    dtype, shape = _BY_ONNX.get(x.element_type()), tuple(x.shape())
    codes = dense_at(x.data_ptr(), dtype, shape) if dtype else np.zeros(0, np.uint8)
    return Held(dtype, x.data_type(), shape, codes, x.data_ptr())


def take_ort(ort: Any, tensor: Tensor, copy: bool) -> Any:
    raw = tensor.numpy(copy=copy).view(unsigned(tensor.dtype.width_bits))
    if tensor.dtype.width_bits < 8:
        raise CannotHold("it takes NumPy arrays of one byte an element, and packs none")
    return ort.OrtValue.ortvalue_from_numpy_with_onnx_type(raw, tensor.dtype.onnx)


def put_ort(ort: Any, tensor: Tensor) -> Any:
    value = ort.OrtValue.ortvalue_from_shape_and_type(tensor.shape, tensor.dtype.onnx)
    packed = move.to_packed(tensor)
    ctypes.memmove(value.data_ptr(), packed.address, packed.nbytes)
    return value


def give_ort(ort: Any, x: Any) -> Tensor:
    return shared(x.data_ptr(), _BY_ONNX[x.element_type()], tuple(x.shape()), x)


# Arrow's Tensor


def make_arrow(pa: Any, dtype: DType, codes: Codes) -> Any:
    if dtype.numpy is None or dtype.numpy.isbuiltin != 1 or dtype.kind == "bool":
        raise CannotHold
    return pa.Tensor.from_numpy(make_array(dtype, codes, True))


def read_arrow(pa: Any, x: Any) -> Held:
    return read_array(None, x.to_numpy())


def take_arrow(pa: Any, tensor: Tensor, copy: bool) -> Any:
    return pa.Tensor.from_numpy(tensor.numpy())


# TVM's FFI tensor: every DLDataType there is, lanes too.


def make_tvm(tvm_ffi: Any, dtype: DType, codes: Codes) -> Any:
    return tvm_ffi.from_dlpack(Stated(dtype, codes))


def read_tvm(tvm_ffi: Any, x: Any) -> Held:
    called, shape = str(x.dtype), tuple(x.shape)
    dtype = row_of(called.removesuffix("x2"))
    if called.endswith("x2"):
        shape = (*shape[:-1], 2 * shape[-1])
    codes = dense_at(x.data_ptr(), dtype, shape) if dtype else np.zeros(0, np.uint8)
    return Held(dtype, called, shape, codes, x.data_ptr())


def take_tvm(tvm_ffi: Any, tensor: Tensor, copy: bool) -> Any:
    return tvm_ffi.from_dlpack(tensor)


def put_tvm(tvm_ffi: Any, tensor: Tensor) -> Any:
    """It asks for legacy capsules, which cannot say that elements are padded."""
    return tvm_ffi.from_dlpack(move.to_packed(tensor))


# TensorFlow: legacy DLPack for what that has, otherwise NumPy with ml_dtypes.


def make_tensorflow(tf: Any, dtype: DType, codes: Codes) -> Any:
    if dtype.numpy is None:
        raise CannotHold
    try:
        made = tf.constant(make_array(dtype, codes, dtype.numpy.isbuiltin == 1))
    except ValueError as error:
        raise CannotHold from error
    if made.dtype.name != dtype.name:
        raise CannotHold
    return made


def read_tensorflow(tf: Any, x: Any) -> Held:
    held = read_array(None, np.asarray(x))
    return Held(held.dtype, x.dtype.name, tuple(x.shape), held.codes, held.address)


def take_tensorflow(tf: Any, tensor: Tensor, copy: bool) -> Any:
    return tf.experimental.dlpack.from_dlpack(tensor.__dlpack__(copy=copy))


def put_tensorflow(tf: Any, tensor: Tensor) -> Any:
    return tf.constant(tensor.numpy(copy=True))


def give_tensorflow(tf: Any, x: Any) -> Tensor:
    return Tensor.from_any(np.asarray(x))
