"""Arrays of other libraries as buffer, layout and dtype: start at `facts_of`, which tries what loses least first."""

import contextlib
import operator
import sys
from collections.abc import Hashable
from functools import lru_cache
from typing import Any, Literal, cast

import numpy as np
import numpy.typing as npt

from samebits import driver, dtypes
from samebits.dlpack.consume import REFUSALS, Producer, receive, refused
from samebits.dtypes import DType
from samebits.errors import DTypeError, ExchangeError, SamebitsError, ShapeError
from samebits.layout import Layout, Shape
from samebits.memory import CPU, Buffer, Device, address_of

__all__ = ["check_torch", "facts_of", "from_jax_narrow", "from_numpy", "is_jax_narrow", "is_shared"]

Facts = tuple[Buffer, Layout, DType]


def facts_of(x: object, call: str) -> Facts:
    """x's memory, layout and dtype, shared, by the first of these that x has:

    NumPy's array itself, whose dtype may be of ml_dtypes; DLPack; the CUDA array interface; the buffer protocol, the
    array interface and `__array__`, in NumPy's order. A list or a number becomes a new array.

    Raises:
        DTypeError: Its elements are of no row of `dtypes.ROWS`, or of a torch dtype that does not say what they are.
        ExchangeError: Its memory cannot be shared.
    """
    if isinstance(x, np.ma.MaskedArray):
        remedy = "fill it first, with x.filled(value)"
        raise ExchangeError(call, "x", "type", "a masked array", "an array without a mask", remedy)
    if isinstance(x, np.ndarray | np.generic):
        return from_numpy(np.asarray(x), call)
    if hasattr(type(x), "__dlpack__"):
        check_torch(x, call)
        return receive(cast(Producer, x), call)
    if hasattr(type(x), "__cuda_array_interface__"):
        return _from_cuda(x, call)
    return from_numpy(_made(x, call), call)


def _made(x: object, call: str) -> npt.NDArray[Any]:
    """The array that NumPy makes of x.

    Raises:
        ShapeError: x is nested lists of unlike lengths.
        DTypeError: x holds what is no number.
        ExchangeError: x, or an element of it, makes no array of itself.
    """
    try:
        array = np.asarray(memoryview(x) if isinstance(x, bytes) else x)
    except REFUSALS as error:
        if isinstance(error, SamebitsError):
            raise
        if not isinstance(x, list | tuple) or not isinstance(error, ValueError):
            raise refused(x, call, error) from error
        expected, remedy = "as many elements in each", "pad them"
        raise ShapeError(call, "x", "shape", "lists of unlike lengths", expected, remedy) from None
    if array.dtype.kind in "OUS":
        expected, remedy = "an array, numbers, or lists of them", "convert it first"
        raise DTypeError(call, "x", "type", type(x).__name__, expected, remedy)
    return array


def is_shared(x: object) -> bool:
    """Whether `facts_of` shares x's memory: not of a number or a list, nor of what makes an array when asked."""
    named = ("__dlpack__", "__cuda_array_interface__", "__array_interface__", "__array_struct__")
    if isinstance(x, np.ndarray) or any(hasattr(type(x), name) for name in named[:2]):
        return True
    if isinstance(x, np.generic):
        return False
    with contextlib.suppress(TypeError):
        memoryview(x)  # type: ignore[arg-type]  # what has no buffer is told by the TypeError
        return True
    return any(hasattr(x, name) for name in named[2:])


def from_numpy(array: npt.NDArray[Any], call: str) -> Facts:
    """The array's memory, from its lowest byte to its highest."""
    try:
        dtype = dtypes.of(array.dtype)
    except DTypeError:
        expected, remedy = "an element format, in this machine's byte order", "convert it first"
        raise DTypeError(call, "x", "dtype", array.dtype, expected, remedy) from None
    if not array.flags.aligned:
        remedy = "copy it first"
        raise ExchangeError(call, "x", "alignment", "less than its dtype's", "natural", remedy)
    layout, low, span = _layout_of(array.shape, array.strides, dtype)
    return Buffer(address_of(array) + low, span, array, CPU, not array.flags.writeable), layout, dtype


@lru_cache(maxsize=4096)
def _layout_of(shape: Shape, strides: Shape, dtype: DType) -> tuple[Layout, int, int]:
    """An array's layout from its lowest byte, how far from element (0, 0, ...) that is, and the bytes spanned."""
    storage: Literal["packed", "padded"] = "padded" if dtype.width_bits % 8 else "packed"
    return Layout.from_byte_strides(shape, strides, width_bits=dtype.width_bits, storage=storage).rebased()


def check_torch(x: object, call: str) -> None:
    """Refuse what torch would hand over as something else, or not say in a sentence of ours.

    Its dtypes without a meaning, such as torch.int4, would arrive as int8 or uint8; the memory of a tensor whose values
    are still to be negated, which views of conjugates are, as it lies there. A parameter that has no shape yet answers
    no question.
    """
    dtype = getattr(x, "dtype", None)
    # Another library's dtype need not even be hashable.
    if type(dtype).__module__ != "torch":
        return
    if _is_shell(dtype):
        remedy = "say what its bytes are, with Tensor.from_buffer(x.view(torch.uint8), dtype, shape)"
        raise DTypeError(call, "x", "dtype", dtype, "one whose bits torch gives a meaning", remedy)
    if isinstance(x, _unmade()):
        actual, remedy = "still to be made, as its module has not run", "run the module once first"
        raise ExchangeError(call, "x", "memory", actual, "what the values are", remedy)
    is_negated = getattr(x, "is_neg", None)
    if is_negated is not None and is_negated():
        actual, remedy = "still to be negated", "call x.resolve_neg() first"
        raise ExchangeError(call, "x", "memory", actual, "what the values are", remedy)


def _unmade() -> tuple[type, ...]:
    """The classes of torch's parameters and buffers without a shape, those of lazy modules."""
    torch = sys.modules.get("torch.nn.parameter")
    return () if torch is None else (torch.UninitializedTensorMixin,)


@lru_cache(maxsize=256)
def _is_shell(dtype: Hashable) -> bool:
    """Whether a dtype of torch's only names a width."""
    name = str(dtype).removeprefix("torch.")
    stem = name.rstrip("0123456789x")
    return stem in ("bits", "qint", "quint") or (stem in ("int", "uint") and int(name.removeprefix(stem)) < 8)


_NOT_EXPORTED = frozenset({"int4", "uint4", "int2", "uint2", "float6_e2m3fn", "float6_e3m2fn"})


def is_jax_narrow(x: object) -> bool:
    """Whether x is a JAX array of a format for which JAX has no DLPack: int4, uint4, int2, uint2, float6."""
    dtype = getattr(x, "dtype", None)
    return isinstance(dtype, np.dtype) and _is_narrow(cast(Hashable, type(x)), dtype)


@lru_cache(maxsize=1024)
def _is_narrow(kind: Any, dtype: np.dtype[Any]) -> bool:
    """Whether a class is JAX's and a dtype one that it does not export."""
    packages = {base.__module__.partition(".")[0] for base in kind.__mro__}
    return dtype.name in _NOT_EXPORTED and bool(packages & {"jax", "jaxlib"})


def from_jax_narrow(x: Any, call: str, *, may_copy: bool) -> Facts:
    """A JAX array of such a format: a packed copy of what JAX keeps packed, and float6, which it does not, in place.

    Raises:
        ExchangeError: Only a copy is possible, and `may_copy` is not set.
    """
    import jax.lax
    import jax.numpy as jnp

    dtype = dtypes.of(x.dtype)
    if 8 % dtype.width_bits:
        _check_on_host(x, call)
        array = np.asarray(x)
        if may_copy or address_of(array) == x.unsafe_buffer_pointer():
            return from_numpy(array, call)
    if not may_copy:
        expected, remedy = "a format that JAX exports", "leave copy=False out"
        raise ExchangeError(call, "x", "dtype", dtype, expected, remedy)
    count = 8 // dtype.width_bits
    flat = jnp.pad(x.reshape(-1), (0, -x.size % count))
    raw: Any = jax.lax.bitcast_convert_type(flat.reshape(-1, count), jnp.uint8)
    return receive(raw, call)[0], Layout.dense(x.shape, width_bits=dtype.width_bits), dtype


def _check_on_host(x: Any, call: str) -> None:
    """Refuse a JAX array of another device, which NumPy would get as a copy on the host."""
    places = [str(place) for place in x.devices() if place.platform != "cpu"]
    if places:
        remedy = "copy it there first, with jax.device_put"
        raise ExchangeError(call, "x", "device", ", ".join(places), "the host, for a format of 6 bits", remedy)


def _from_cuda(x: object, call: str) -> Facts:
    """The facts of a CUDA array interface of version 3 or later; the default stream waits for the one it names."""
    facts: dict[str, Any] = x.__cuda_array_interface__  # type: ignore[attr-defined]  # asked for above
    try:
        version, shape, given = facts["version"], tuple(facts["shape"]), np.dtype(str(facts["typestr"]))
        (address, read_only), mask = facts["data"], facts.get("mask")
        pointer = operator.index(address)
        steps = None if facts.get("strides") is None else tuple(facts["strides"])
        stream = None if facts.get("stream") is None else operator.index(facts["stream"])
    except (KeyError, TypeError, ValueError) as error:
        remedy = "report it to the producer"
        raise ExchangeError(call, "x", "CUDA array interface", facts, "that of its page", remedy) from error
    if not isinstance(version, int) or version < 3:
        remedy = "export it with DLPack"
        raise ExchangeError(call, "x", "CUDA array interface version", version, "at least 3", remedy)
    if mask is not None:
        raise ExchangeError(call, "x", "mask", "an array", "None", "fill the masked elements first")
    dtype = dtypes.named(call, "x dtype", given)
    strides = Layout.dense(shape, width_bits=dtype.width_bits).strides_bytes if steps is None else steps
    layout, low, span = _layout_of(shape, strides, dtype)
    if span and any(place % given.itemsize for place in (pointer, *layout.strides_bytes)):
        expected, remedy = f"multiples of {given.itemsize}", "copy it first"
        actual = f"{pointer:#x} and {strides}"
        raise ExchangeError(call, "x", "address and strides", actual, expected, remedy)
    # The driver knows the device, for which the interface has no word, and managed memory.
    device = Device("cuda") if driver.cuda() is None else None
    buffer = Buffer.from_handle(pointer + low if span else 0, span, owner=x, device=device, read_only=bool(read_only))
    if span and stream is not None and stream != driver.LEGACY_STREAM:
        cuda = driver.needed_cuda(call, "the stream of x")
        cuda.order(stream, driver.LEGACY_STREAM, buffer.device.index)
    return buffer, layout, dtype


def _register_with_numpy() -> None:
    """Let NumPy 2.5 and later exchange the dtypes of ml_dtypes, each under the standard's own code.

    NumPy takes one byte or more an element, so that float6 and float4 go as its 8 bits, and integers of fewer bits,
    which would be int8 and uint8, not at all.
    """
    register = getattr(np.dtypes, "register_dlpack_dtype", None)
    if register is None:
        return
    for row in dtypes.ROWS:
        if row.numpy is not None and row.numpy.isbuiltin != 1 and row.is_float:
            # Who was first keeps the code; registering the same dtype again is no conflict.
            with contextlib.suppress(ValueError):
                register((row.dlpack[0], row.numpy.itemsize * 8), row.numpy)


_register_with_numpy()
