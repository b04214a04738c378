"""Memory of ours as an array of NumPy, torch or JAX, in the form that each of them takes.

Start at `to_numpy`, `to_torch` and `to_jax`. None of them relabels: a format that the library has no name for is
refused, and its bytes can still cross, as `Exported`.
"""

import numbers
import operator
from typing import Any

import numpy as np
import numpy.typing as npt

from samebits import driver, dtypes, elements, optional
from samebits.dlpack.encoding import Encoding, encode
from samebits.dlpack.produce import capsule_of
from samebits.dtypes import DType
from samebits.errors import DeviceError, DTypeError, ExchangeError, LayoutError, OptionError, shown
from samebits.frozen import dataclass
from samebits.layout import Layout
from samebits.memory import ALIGNMENT, CPU, Buffer

__all__ = ["Exported", "to_dlpack", "to_jax", "to_numpy", "to_torch"]

# The formats of fewer than 8 bits that JAX holds, float6 from some version on; int1 and uint1 are names alone there.
_NARROW_IN_JAX = frozenset({"float6_e2m3fn", "float6_e3m2fn", "float4_e2m1fn", "int4", "uint4", "int2", "uint2"})


@dataclass(frozen=True, slots=True, eq=False)
class Exported:
    """A tensor for a library that has no name for its dtype: its bytes as that library's array, and what they mean.

    Attributes:
        bytes: uint8 [size_bytes] of the library, on the tensor's own memory unless a copy was asked for.
        dtype: What an element's bits mean.
        layout: Where in the bytes each element is.
    """

    bytes: Any
    dtype: DType
    layout: Layout


def to_numpy(buffer: Buffer, layout: Layout, dtype: DType, call: str) -> npt.NDArray[Any]:
    """A NumPy array on the memory, of an ml_dtypes dtype where NumPy has none; read-only where the buffer is.

    Raises:
        DTypeError: NumPy has no such dtype, with ml_dtypes either.
        LayoutError: Elements are packed within bytes, where NumPy gives each at least one.
        DeviceError: The host cannot read the memory.
    """
    if dtype.numpy is None:
        expected, remedy = "one NumPy or ml_dtypes has", "update ml_dtypes, or use Tensor.export"
        raise DTypeError(call, "tensor", "dtype", dtype, expected, remedy)
    if layout.pitch_bits % 8:
        actual, remedy = f"packed, {layout.pitch_bits} bits an element", "pass copy=True for one byte an element"
        raise LayoutError(call, "tensor", "storage", actual, "whole bytes", remedy)
    return np.ndarray(layout.shape, dtype.numpy, buffer.array(), layout.offset_bytes, layout.strides_bytes)


def to_dlpack(
    buffer: Buffer,
    layout: Layout,
    dtype: DType,
    stream: int | None,
    max_version: tuple[int, int] | None,
    dl_device: tuple[int, int] | None,
    *,
    copied: bool,
) -> object:
    """A capsule for a consumer that is not known, as `Tensor.__dlpack__` says.

    Raises:
        ExchangeError: The memory cannot be handed over as asked without losing a fact.
        OptionError: max_version or dl_device is no pair of integers.
    """
    call = "Tensor.__dlpack__"
    is_host, device = buffer.device.is_host, buffer.device.dlpack
    _check_stream(buffer, stream, call)
    if dl_device is not None and (wanted := _pair(call, "dl_device", dl_device)) != device:
        if not is_host or wanted != CPU.dlpack:
            expected = f"{device}, where the tensor is"
            raise ExchangeError(call, "dl_device", "", wanted, expected, "move it afterwards")
        device = CPU.dlpack
    versioned = max_version is not None and _pair(call, "max_version", max_version) >= (1, 0)
    if buffer.read_only and not versioned:
        expected, remedy = "writable in a legacy capsule", "pass max_version=(1, 0) or copy=True"
        raise ExchangeError(call, "tensor", "access", "read-only", expected, remedy)
    if layout.storage == "padded" and not versioned:
        expected, remedy = "packed in a legacy capsule", "pass max_version=(1, 0)"
        raise ExchangeError(call, "tensor", "storage", "padded", expected, remedy)
    _check_strides(layout, call)
    encoding = encode(dtype, layout, "padded" if layout.storage == "padded" else "packed", call)
    _make_ready(buffer, stream, call)
    return capsule_of(buffer, encoding, device, versioned=versioned, read_only=buffer.read_only, copied=copied)


def _check_stream(buffer: Buffer, stream: Any, call: str) -> None:
    """Refuse what DLPack has no meaning for: a stream of host memory, or 0 for CUDA, which has several."""
    if stream is None or (isinstance(stream, numbers.Integral) and stream == -1):
        return
    kind = buffer.device.kind
    is_number = isinstance(stream, int) and not isinstance(stream, bool)
    if is_number and ((kind == "cuda" and stream > 0) or (kind == "rocm" and stream == 0)):
        return
    expected = {"cuda": "None, -1, 1, 2 or a stream's handle", "rocm": "None, -1 or 0"}
    raise ExchangeError(
        call, "stream", "", shown(stream), expected.get(kind, "None or -1 for host memory"), "leave it out"
    )


def _make_ready(buffer: Buffer, stream: int | None, call: str) -> None:
    """Let a consumer's stream wait for the default stream, in whose order memory of a CUDA device is ready here.

    Raises:
        DeviceError: It must, and there is no CUDA driver.
    """
    if buffer.device.kind == "cuda" and stream is not None and stream > driver.LEGACY_STREAM:
        cuda = driver.needed_cuda(call, f"the stream of memory of {buffer.device}")
        cuda.order(driver.LEGACY_STREAM, stream, buffer.device.index)


def _pair(call: str, name: str, value: Any) -> tuple[int, int]:
    """An option of two integers."""
    try:
        first, second = value
        return operator.index(first), operator.index(second)
    except (TypeError, ValueError):
        remedy = "leave it out"
        raise OptionError(call, name, "", shown(value), "a pair of integers", remedy) from None


def to_torch(buffer: Buffer, layout: Layout, dtype: DType, call: str) -> Any:
    """A torch tensor on the memory; float4_e2m1fn becomes float4_e2m1fn_x2, whose shape counts pairs.

    Raises:
        DTypeError: torch has no such dtype, or one that its DLPack does not take.
        ExchangeError: The memory is read-only, a stride is negative, or float4 does not lie in pairs.
        MissingPackageError: torch is not installed.
    """
    try:
        import torch.utils.dlpack
    except ImportError as error:
        raise optional.missing(call, "torch", error) from None

    # torch's other dtypes of fewer than 8 bits are shells: its DLPack knows them as int8 and uint8 alone.
    name = "float4_e2m1fn_x2" if dtype is dtypes.float4_e2m1fn else dtype.name
    if not hasattr(torch, name) or (dtype.width_bits < 8 and not dtype.is_float):
        remedy = "use Tensor.export(to='torch') for its bytes"
        raise DTypeError(call, "tensor", "dtype", dtype, "one that torch takes by DLPack", remedy)
    if buffer.read_only:
        remedy = "pass copy=True, because torch ignores that memory is read-only"
        raise ExchangeError(call, "tensor", "access", "read-only", "writable", remedy)
    _check_strides(layout, call)
    encoding = encode(dtype, layout, "lanes" if dtype.width_bits < 8 else "packed", call)
    device = CPU if buffer.device.is_host else buffer.device
    if device.kind == "cuda" and torch.cuda.is_available():
        _make_ready(buffer, torch.cuda.current_stream(device.index).cuda_stream, call)
    capsule = capsule_of(buffer, encoding, device.dlpack, versioned=True, read_only=False)
    return torch.utils.dlpack.from_dlpack(capsule)


def to_jax(buffer: Buffer, layout: Layout, dtype: DType, call: str, *, may_copy: bool) -> Any:
    """A JAX array on the memory, which JAX takes as constant; of fewer than 8 bits a copy, because JAX imports none.

    Raises:
        ExchangeError: The elements are not dense in row-major order, or not aligned to 64 bytes; or only a copy is
            possible and `may_copy` is not set.
        DTypeError: JAX has no such dtype, or has 64-bit types switched off.
        DeviceError: The host cannot read the memory.
        MissingPackageError: JAX is not installed.
    """
    try:
        import jax.dtypes
        import jax.numpy as jnp
    except ImportError as error:
        raise optional.missing(call, "jax", error) from None

    is_known = dtype.width_bits >= 8 or dtype.name in _NARROW_IN_JAX
    if dtype.numpy is None or not (is_known and hasattr(jnp, dtype.name)):
        raise _unknown_to_jax(dtype, call)
    if jax.dtypes.canonicalize_dtype(dtype.numpy) != dtype.numpy:
        remedy = "set jax.config.update('jax_enable_x64', True)"
        raise DTypeError(call, "tensor", "dtype", dtype, "at most 32 bits wide", remedy)
    if not layout.is_contiguous() or layout.offset_bits % 8:
        actual = f"{layout.shape} with strides_bits {layout.strides_bits}"
        raise ExchangeError(call, "tensor", "layout", actual, "row-major and dense", "pass copy=True")
    if layout.width_bits < 8:
        if not may_copy:
            remedy = "leave copy=False out"
            raise ExchangeError(call, "tensor", "dtype", dtype, "one that JAX takes by DLPack", remedy)
        return _narrow_jax(buffer, layout, dtype, call)
    return _shared_jax(buffer, encode(dtype, layout, "packed", call), call)


def _check_strides(layout: Layout, call: str) -> None:
    """Refuse negative strides: torch up to 2.13 ends the process on one, and a producer cannot know its consumer."""
    if min(layout.strides_bits, default=0) < 0:
        actual, expected = f"of strides_bits {layout.strides_bits}", "one of non-negative strides"
        remedy = "pass copy=True or use numpy()"
        raise ExchangeError(call, "tensor", "layout", actual, expected, remedy)


def _shared_jax(buffer: Buffer, encoding: Encoding, call: str) -> Any:
    """A JAX array of whole bytes on the memory."""
    import jax.dlpack

    if buffer.device.kind == "cuda":
        _check_jax_gpu(buffer, call)
    else:
        buffer.array()  # refuses what is closed, and what the host cannot read
    address = buffer.address + encoding.byte_offset
    if address % ALIGNMENT:
        expected = f"a multiple of {ALIGNMENT}"
        raise ExchangeError(call, "tensor", "address", f"{address:#x}", expected, "pass copy=True")
    return jax.dlpack.from_dlpack(_Constant(buffer, encoding), copy=False)


def _check_jax_gpu(buffer: Buffer, call: str) -> None:
    """Refuse memory of a CUDA device where JAX knows none."""
    import jax

    try:
        jax.devices("cuda")
    except RuntimeError:
        expected, remedy = "one that this JAX computes on", "install JAX for CUDA, or copy it to the host"
        raise DeviceError(call, "tensor", "device", buffer.device, expected, remedy) from None


class _Constant:
    """Memory for a consumer that asks for a legacy capsule and never writes: being read-only loses nothing there."""

    def __init__(self, buffer: Buffer, encoding: Encoding) -> None:
        self._buffer, self._encoding = buffer, encoding

    def __dlpack__(self, *, stream: int | None = None, **_: object) -> object:
        _make_ready(self._buffer, stream, "Tensor.jax")
        return capsule_of(self._buffer, self._encoding, self.__dlpack_device__(), versioned=False, read_only=False)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (CPU if self._buffer.device.is_host else self._buffer.device).dlpack


def _unknown_to_jax(dtype: DType, call: str) -> DTypeError:
    """What this version of JAX does not hold."""
    remedy = "use Tensor.export(to='jax') for its bytes"
    return DTypeError(call, "tensor", "dtype", dtype, "one that JAX has", remedy)


def _narrow_jax(buffer: Buffer, layout: Layout, dtype: DType, call: str) -> Any:
    """A new JAX array of elements of fewer than 8 bits, which JAX imports by no protocol."""
    import jax.errors
    import jax.lax
    import jax.numpy as jnp

    if layout.storage == "padded" or not layout.size or 8 % layout.width_bits:
        codes = elements.read(buffer.array(), layout)
        try:
            return _settled(jnp.asarray(codes.view(dtype.numpy)))
        except jax.errors.JaxRuntimeError:
            raise _unknown_to_jax(dtype, call) from None
    count = -(-layout.size * layout.width_bits // 8)
    raw = jnp.asarray(buffer.array()[layout.offset_bytes :][:count])
    found = jax.lax.bitcast_convert_type(raw, jnp.dtype(dtype.name)).reshape(-1)
    if found.size != layout.size:
        found = found[: layout.size]
    return _settled(found.reshape(layout.shape))


def _settled(array: Any) -> Any:
    """The array once it is computed: JAX may read what it is given later, when it has changed."""
    return array.block_until_ready()
