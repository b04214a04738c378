"""Frameworks as rows: how each makes a tensor of a format, what it says it holds, how it takes ours and gives its own.

Start at `Framework` and `ROWS`. A row never imports its framework: the module is handed in, so that nothing is loaded
that is not tried. `make` and `read` use the framework alone, and are the witness against whom exchange is checked;
`take` and `give` are what a user would write.
"""

from __future__ import annotations

import ctypes
import struct
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from samebits import dtypes
from samebits.doctor.witness import Codes, aligned, pack, unpack, unsigned
from samebits.dtypes import DType
from samebits.errors import DTypeError
from samebits.layout import Layout, Shape
from samebits.memory import Buffer
from samebits.tensor import Tensor

__all__ = ["ROWS", "CannotHold", "Framework", "Held", "named", "shared"]


class CannotHold(Exception):
    """The framework has no such format."""


@dataclass(frozen=True, slots=True)
class Held:
    """What a framework says that it holds.

    Attributes:
        dtype: The format, or None for one without a row here.
        called: The framework's own name for it.
        shape: Extents in elements.
        codes: Code points, unsigned, of that shape.
        address: Of the first element, or None where the framework does not tell.
    """

    dtype: DType | None
    called: str
    shape: Shape
    codes: Codes
    address: int | None


@dataclass(frozen=True, slots=True)
class Framework:
    """One framework.

    Attributes:
        name: What people call it.
        distribution: Whose version it is.
        module: What is imported.
        make: (module, dtype, codes) -> its own tensor; raises CannotHold.
        read: (module, its tensor) -> what it says it holds.
        take: (module, Tensor, copy) -> its tensor of ours, of the same memory unless a copy is allowed.
        give: (module, its tensor) -> Tensor, where `Tensor.from_any` cannot; None where it always can.
        prepare: (module) -> None, once after import.
        limits: `direction dtype` -> whose fault it is that the format is not kept; a `*` for every one that it holds.
    """

    name: str
    distribution: str
    module: str
    make: Callable[[Any, DType, Codes], Any]
    read: Callable[[Any, Any], Held]
    take: Callable[[Any, Tensor, bool], Any]
    give: Callable[[Any, Any], Tensor] | None = None
    prepare: Callable[[ModuleType], None] = lambda module: None
    limits: Mapping[str, str] = field(default_factory=dict)


def named(name: str) -> Framework:
    """The row of that name; KeyError without one."""
    return {row.name: row for row in ROWS}[name]


def _at(address: int, size_bytes: int) -> NDArray[np.uint8]:
    """A copy of memory."""
    return np.frombuffer(ctypes.string_at(address, size_bytes), np.uint8)


def _dense_at(address: int, dtype: DType, shape: Shape) -> Codes:
    """Code points that lie side by side, packed where they are narrow."""
    return unpack(_at(address, -(-int(np.prod(shape)) * dtype.width_bits // 8)), dtype.width_bits, shape)


def shared(address: int, dtype: DType, shape: Shape, owner: object) -> Tensor:
    """A tensor over memory that another object keeps: dense, row-major, packed where elements are narrow."""
    layout = Layout.dense(shape, width_bits=dtype.width_bits)
    return Tensor(Buffer(address, layout.required_bytes, owner), layout, dtype)


def _row(name: str) -> DType | None:
    """The row of that name, or None."""
    try:
        return dtypes.of(name)
    except DTypeError:
        return None


def _codes_of(array: NDArray[Any], dtype: DType) -> Codes:
    """The code points of a NumPy array; bits that the format lacks are dropped."""
    codes = np.ascontiguousarray(array).view(unsigned(dtype.width_bits))
    return codes & codes.dtype.type((1 << dtype.width_bits) - 1) if dtype.width_bits < 8 else codes


# NumPy, with its own dtypes and with those of ml_dtypes.


def _make_array(dtype: DType, codes: Codes, builtin: bool) -> NDArray[Any]:
    if dtype.numpy is None or (dtype.numpy.isbuiltin == 1) != builtin:
        raise CannotHold
    if dtype.kind == "int" and dtype.width_bits < 8:  # ml_dtypes keeps the sign in the bits above
        sign = 1 << (dtype.width_bits - 1)
        codes = ((codes ^ sign).astype(np.int8) - sign).view(np.uint8)
    return aligned(codes).view(dtype.numpy)


def _read_array(module: Any, x: NDArray[Any]) -> Held:
    dtype = _row(x.dtype.name)
    codes = _codes_of(x, dtype) if dtype else np.zeros(0, np.uint8)
    return Held(dtype, x.dtype.name, x.shape, codes, x.ctypes.data)


def _take_array(module: Any, tensor: Tensor, copy: bool) -> NDArray[Any]:
    return (tensor.copy() if copy else tensor).numpy()


# torch: its float4 is named for its pairs, which its shape counts.

_PAIRS = "float4_e2m1fn_x2"


def _make_torch(torch: Any, dtype: DType, codes: Codes) -> Any:
    named = getattr(torch, _PAIRS if dtype is dtypes.float4_e2m1fn else dtype.name, None)
    if named is None:
        raise CannotHold
    if dtype is dtypes.float4_e2m1fn:
        codes = pack(codes, 4).reshape(*codes.shape[:-1], -1)
    return torch.from_numpy(aligned(codes).view(np.uint8)).view(named)


def _read_torch(torch: Any, x: Any) -> Held:
    called = str(x.dtype).removeprefix("torch.")
    dtype = _row(called.removesuffix("_x2"))
    raw = x.contiguous().view(torch.uint8).numpy()
    if called == _PAIRS:
        shape = (*x.shape[:-1], 2 * x.shape[-1])
        return Held(dtype, called, shape, unpack(raw, 4, shape), x.data_ptr())
    return Held(dtype, called, tuple(x.shape), _codes_of(raw, dtype) if dtype else raw, x.data_ptr())


def _take_torch(torch: Any, tensor: Tensor, copy: bool) -> Any:
    return tensor.torch(copy=copy)


# JAX


def _prepare_jax(module: Any) -> None:
    """Without this JAX makes 32 bits of 64."""
    module.config.update("jax_enable_x64", True)


def _make_jax(jax: Any, dtype: DType, codes: Codes) -> Any:
    if dtype.numpy is None:
        raise CannotHold
    try:
        made = jax.numpy.asarray(_make_array(dtype, codes, dtype.numpy.isbuiltin == 1)).block_until_ready()
    except jax.errors.JaxRuntimeError as error:  # XLA's CPU has no such type
        raise CannotHold from error
    if made.dtype != dtype.numpy:
        raise CannotHold
    return made


def _read_jax(jax: Any, x: Any) -> Held:
    held = _read_array(None, np.asarray(x))
    return Held(held.dtype, x.dtype.name, x.shape, held.codes, x.unsafe_buffer_pointer())


def _take_jax(jax: Any, tensor: Tensor, copy: bool) -> Any:
    return tensor.jax(copy=copy)


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


def _make_numkong(numkong: Any, dtype: DType, codes: Codes) -> Any:
    name = _NUMKONG.get(dtype.name, dtype.name)
    if dtype in (dtypes.int4, dtypes.uint4):
        return numkong.Tensor(_swapped(pack(codes, 4)).reshape(*codes.shape[:-1], -1), dtype=name)
    if dtype.width_bits < 8 and not dtype.is_float:
        raise CannotHold("no page says which bit of a byte comes first")
    # Its own dtypes come from NumPy's; the others are named over plain bytes.
    if dtype.numpy is not None and dtype.numpy.isbuiltin == 1:
        codes = codes.view(dtype.numpy)
    try:
        return numkong.Tensor(codes, dtype=name)
    except (ValueError, TypeError) as error:
        raise CannotHold(str(error)) from error


def _read_numkong(numkong: Any, x: Any) -> Held:
    dtype = _row(_FROM_NUMKONG.get(x.dtype, x.dtype))
    raw = _at(x.data_ptr, x.nbytes)
    if dtype in (dtypes.int4, dtypes.uint4):
        shape = (*x.shape[:-1], 2 * x.shape[-1])
        return Held(dtype, x.dtype, shape, unpack(_swapped(raw), 4, shape), x.data_ptr)
    codes = _codes_of(raw, dtype).reshape(x.shape) if dtype else raw
    return Held(dtype, x.dtype, tuple(x.shape), codes, x.data_ptr)


def _take_numkong(numkong: Any, tensor: Tensor, copy: bool) -> Any:
    if tensor.dtype in (dtypes.int4, dtypes.uint4) and copy:
        raw = _swapped(tensor.copy().buffer.array()).reshape(*tensor.shape[:-1], -1)
        return numkong.Tensor(raw, dtype=tensor.dtype.name)
    return numkong.from_dlpack(tensor)


def _give_numkong(numkong: Any, x: Any) -> Tensor:
    held = _read_numkong(numkong, x)
    assert held.dtype is not None
    raw = aligned(pack(held.codes, held.dtype.width_bits))
    return shared(raw.ctypes.data, held.dtype, held.shape, raw)


# cuda.core's StridedMemoryView


def _make_view(module: Any, dtype: DType, codes: Codes) -> Any:
    if dtype.numpy is None or dtype.numpy.isbuiltin != 1:
        raise CannotHold
    return module.StridedMemoryView.from_dlpack(_make_array(dtype, codes, True), -1)


def _read_view(module: Any, x: Any) -> Held:
    dtype = _row(x.dtype.name)
    codes = _dense_at(x.ptr, dtype, x.shape) if dtype else np.zeros(0, np.uint8)
    return Held(dtype, x.dtype.name, tuple(x.shape), codes, x.ptr)


def _take_view(module: Any, tensor: Tensor, copy: bool) -> Any:
    return module.StridedMemoryView.from_dlpack(tensor, -1)


# ONNX Runtime's OrtValue: by its pointer, as its DLPack lacks the narrow floats and says uint8 for bool.

_BY_ONNX = {row.onnx: row for row in dtypes.ROWS if row.onnx is not None}


def _make_ort(ort: Any, dtype: DType, codes: Codes) -> Any:
    if dtype.onnx is None:
        raise CannotHold
    try:
        value = ort.OrtValue.ortvalue_from_shape_and_type(codes.shape, dtype.onnx)
    except RuntimeError as error:
        raise CannotHold from error
    raw = pack(codes, dtype.width_bits)
    ctypes.memmove(value.data_ptr(), raw.ctypes.data, raw.nbytes)
    return value


def _read_ort(ort: Any, x: Any) -> Held:
    dtype, shape = _BY_ONNX.get(x.element_type()), tuple(x.shape())
    codes = _dense_at(x.data_ptr(), dtype, shape) if dtype else np.zeros(0, np.uint8)
    return Held(dtype, x.data_type(), shape, codes, x.data_ptr())


def _take_ort(ort: Any, tensor: Tensor, copy: bool) -> Any:
    if copy:
        value = ort.OrtValue.ortvalue_from_shape_and_type(tensor.shape, tensor.dtype.onnx)
        source = tensor.copy()
        ctypes.memmove(value.data_ptr(), source.address, source.nbytes)
        return value
    if tensor.dtype.width_bits < 8:
        raise CannotHold("it takes arrays of one byte an element, and packs none")
    raw = tensor.numpy().view(unsigned(tensor.dtype.width_bits))
    return ort.OrtValue.ortvalue_from_numpy_with_onnx_type(raw, tensor.dtype.onnx)


def _give_ort(ort: Any, x: Any) -> Tensor:
    return shared(x.data_ptr(), _BY_ONNX[x.element_type()], tuple(x.shape()), x)


# Arrow's Tensor


def _make_arrow(pa: Any, dtype: DType, codes: Codes) -> Any:
    if dtype.numpy is None or dtype.numpy.isbuiltin != 1 or dtype.kind == "bool":
        raise CannotHold
    return pa.Tensor.from_numpy(_make_array(dtype, codes, True))


def _read_arrow(pa: Any, x: Any) -> Held:
    return _read_array(None, x.to_numpy())


def _take_arrow(pa: Any, tensor: Tensor, copy: bool) -> Any:
    return pa.Tensor.from_numpy(tensor.numpy())


# TVM's FFI tensor: every DLDataType there is, lanes too.


class _Stated:
    """NumPy's legacy capsule with another DLDataType written into it; the narrow elements lie at its beginning."""

    def __init__(self, dtype: DType, codes: Codes) -> None:
        self._array = aligned(codes.view(unsigned(dtype.width_bits)))
        packed = pack(codes, dtype.width_bits)
        self._array.view(np.uint8).reshape(-1)[: packed.size] = packed
        self._dtype = dtype

    def __dlpack__(self, **_: object) -> object:
        capsule = self._array.__dlpack__()
        pointer = ctypes.pythonapi.PyCapsule_GetPointer
        pointer.restype, pointer.argtypes = ctypes.c_size_t, [ctypes.py_object, ctypes.c_char_p]
        # DLTensor: data, device type and id, ndim, then the code and the bits of its dtype.
        at = pointer(capsule, b"dltensor") + struct.calcsize("@Piii")
        ctypes.c_uint16.from_address(at).value = int.from_bytes(bytes(self._dtype.dlpack), sys.byteorder)
        return capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)


def _make_tvm(tvm_ffi: Any, dtype: DType, codes: Codes) -> Any:
    return tvm_ffi.from_dlpack(_Stated(dtype, codes))


def _read_tvm(tvm_ffi: Any, x: Any) -> Held:
    called, shape = str(x.dtype), tuple(x.shape)
    dtype = _row(called.removesuffix("x2"))
    if called.endswith("x2"):
        shape = (*shape[:-1], 2 * shape[-1])
    codes = _dense_at(x.data_ptr(), dtype, shape) if dtype else np.zeros(0, np.uint8)
    return Held(dtype, called, shape, codes, x.data_ptr())


def _take_tvm(tvm_ffi: Any, tensor: Tensor, copy: bool) -> Any:
    return tvm_ffi.from_dlpack(tensor)


# TensorFlow: legacy DLPack for what that has, otherwise NumPy with ml_dtypes.


def _make_tensorflow(tf: Any, dtype: DType, codes: Codes) -> Any:
    if dtype.numpy is None:
        raise CannotHold
    try:
        made = tf.constant(_make_array(dtype, codes, dtype.numpy.isbuiltin == 1))
    except ValueError as error:
        raise CannotHold from error
    if made.dtype.name != dtype.name:
        raise CannotHold
    return made


def _read_tensorflow(tf: Any, x: Any) -> Held:
    held = _read_array(None, np.asarray(x))
    return Held(held.dtype, x.dtype.name, tuple(x.shape), held.codes, held.address)


def _take_tensorflow(tf: Any, tensor: Tensor, copy: bool) -> Any:
    if copy:
        return tf.constant(tensor.numpy())
    return tf.experimental.dlpack.from_dlpack(tensor.__dlpack__())


def _give_tensorflow(tf: Any, x: Any) -> Tensor:
    return Tensor.from_any(np.asarray(x))


ROWS: tuple[Framework, ...] = (
    Framework(
        "numpy", "numpy", "numpy", lambda np, dtype, codes: _make_array(dtype, codes, True), _read_array, _take_array
    ),
    Framework(
        "ml_dtypes",
        "ml_dtypes",
        "ml_dtypes",
        lambda np, dtype, codes: _make_array(dtype, codes, False),
        _read_array,
        _take_array,
    ),
    Framework("torch", "torch", "torch", _make_torch, _read_torch, _take_torch),
    Framework("jax", "jax", "jax", _make_jax, _read_jax, _take_jax, prepare=_prepare_jax),
    Framework("numkong", "numkong", "numkong", _make_numkong, _read_numkong, _take_numkong, _give_numkong),
    Framework("cuda.core", "cuda-core", "cuda.core.utils", _make_view, _read_view, _take_view),
    Framework("onnxruntime", "onnxruntime", "onnxruntime", _make_ort, _read_ort, _take_ort, _give_ort),
    Framework("pyarrow", "pyarrow", "pyarrow", _make_arrow, _read_arrow, _take_arrow),
    Framework("tvm_ffi", "apache-tvm-ffi", "tvm_ffi", _make_tvm, _read_tvm, _take_tvm),
    Framework(
        "tensorflow",
        "tensorflow-cpu",
        "tensorflow",
        _make_tensorflow,
        _read_tensorflow,
        _take_tensorflow,
        _give_tensorflow,
    ),
)
