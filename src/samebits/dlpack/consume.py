"""What a producer of DLPack hands over, checked: start at `receive`.

Memory that the host can read is used in place. That of CUDA and ROCm is carried: its address and device are facts, and
what needs the host refuses them. Every other device is refused by name, Metal among them: its data pointer is a handle,
an `id<MTLBuffer>`, and no address (dlpack.h, DLTensor.data).
"""

import ctypes
import struct
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Protocol

from samebits.dlpack.abi import (
    HEADER,
    LEGACY,
    LEGACY_NAME,
    USED,
    VERSION,
    VERSIONED,
    VERSIONED_NAME,
    is_valid,
    name_of,
    pointer_of,
    rename,
)
from samebits.dlpack.encoding import COPIED, PADDED, READ_ONLY, Encoding, decode, row_major
from samebits.dtypes import DType
from samebits.errors import ExchangeError, SamebitsError
from samebits.layout import Layout, Shape
from samebits.memory import Buffer, Device
from samebits.memory.address import LEAST_ADDRESS
from samebits.shapes import MAX_RANK

__all__ = ["REFUSALS", "Producer", "receive", "refused"]

# DLDeviceType of dlpack.h 1.3: those that have no address the host or a CUDA or ROCm kernel could use, or none known.
_REFUSED = {
    4: "kDLOpenCL",
    7: "kDLVulkan",
    8: "kDLMetal",
    9: "kDLVPI",
    12: "kDLExtDev",
    14: "kDLOneAPI",
    15: "kDLWebGPU",
    16: "kDLHexagon",
    17: "kDLMAIA",
    18: "kDLTrn",
}
_major_at = ctypes.c_uint32.from_address


class Producer(Protocol):
    """Anything that exports DLPack."""

    def __dlpack__(self, **options: Any) -> Any:
        """A capsule."""

    def __dlpack_device__(self) -> tuple[Any, int]:
        """`(device_type, device_id)`."""


class _Managed:
    """A managed tensor that is ours: its deleter is called once, when the last user lets go, on that thread."""

    __slots__ = ("_address", "_deleter")

    _call = ctypes.CFUNCTYPE(None, ctypes.c_size_t)

    def __init__(self, address: int, deleter: int) -> None:
        self._address = address
        self._deleter = deleter

    def __del__(self) -> None:
        if self._deleter:
            self._call(self._deleter)(self._address)


def receive(producer: Producer, call: str = "from_dlpack") -> tuple[Buffer, Layout, DType]:
    """The producer's memory, layout and dtype, without copying; the buffer's owner calls the deleter.

    A legacy capsule cannot say whether its memory may be written, and is taken as read-only.

    Args:
        producer: Anything with `__dlpack__`.
        call: The public function, for messages.

    Raises:
        ExchangeError: There is no capsule, or one that breaks the protocol or is of another major version.
        DTypeError: Its elements are of no row of `dtypes.ROWS`.
    """
    order = _order_of(producer)
    capsule = _requested(producer, order, call)
    try:
        name, address = VERSIONED_NAME, pointer_of(capsule, VERSIONED_NAME)
    except ValueError:
        if not is_valid(capsule, LEGACY_NAME):
            actual = name_of(capsule) if type(capsule).__name__ == "PyCapsule" else type(capsule).__name__
            expected = "b'dltensor_versioned' or b'dltensor'"
            raise ExchangeError(call, "capsule", "name", repr(actual), expected, "ask for a new one") from None
        name, address = LEGACY_NAME, pointer_of(capsule, LEGACY_NAME)
    rename(capsule, USED[name])
    if name == LEGACY_NAME:
        *tensor, _, deleter = LEGACY.unpack(ctypes.string_at(address, LEGACY.size))
        return _checked(call, tensor, READ_ONLY, order, _Managed(address, deleter))
    if _major_at(address).value != VERSION[0]:
        # It shares the header with this version, which is what it takes to give the tensor back.
        major, minor, _, deleter = HEADER.unpack(ctypes.string_at(address, HEADER.size))
        _Managed(address, deleter)
        raise ExchangeError(call, "capsule", "version", f"{major}.{minor}", "1.x", "export it with max_version=(1, 3)")
    _, _, _, deleter, flags, *tensor = VERSIONED.unpack(ctypes.string_at(address, VERSIONED.size))
    owner = _Managed(address, deleter)
    if flags & ~(READ_ONLY | COPIED | PADDED):
        raise ExchangeError(
            call, "capsule", "flags", f"{flags:#x}", "a subset of 0x7", "export it with max_version=(1, 3)"
        )
    return _checked(call, tensor, flags, order, owner)


def _requested(producer: Producer, order: dict[str, Any], call: str) -> object:
    """The capsule of a producer, which may be too old to know any keyword; one of device memory is not taken then.

    The Array API has a producer order its work before the stream that the consumer names. Where it cannot be named
    nothing says in which order memory is read, and torch and CuPy, which name it too, take no such producer.

    Raises:
        ExchangeError: There is no way to ask for one, or the producer refuses.
    """
    export = getattr(producer, "__dlpack__", None)
    if export is None:
        raise ExchangeError(call, "x", "type", type(producer).__name__, "one with __dlpack__", "use Tensor.from_any")
    try:
        said = TypeError()
        for given in ({"max_version": VERSION, **order}, order):
            try:
                return export(**given)
            except TypeError as error:
                said = error
        if not order:
            return export()
        if any(words in str(said) for words in _NOT_TAKEN):
            raise _unordered(producer, call) from said
        raise said
    except SamebitsError:
        raise
    except REFUSALS as error:
        raise refused(producer, call, error) from error


def _unordered(producer: Producer, call: str) -> ExchangeError:
    """The error of a producer of device memory that cannot be told in whose order it is read."""
    actual = f"that of {type(producer).__name__}, which takes no stream="
    expected, remedy = "the standard's, which orders work on a device", "pass one whose __dlpack__ takes stream="
    return ExchangeError(call, "x", "__dlpack__", actual, expected, remedy)


# What Python, and what pybind11 and nanobind say of an argument that a function does not have.
_NOT_TAKEN = ("keyword", "incompatible function arguments")
# Codes of CUDA and ROCm in dlpack.h, and what the default stream, in whose order copies of ours are, is called there.
_DEFAULT_STREAMS = {2: 1, 10: 0}


def _order_of(producer: Producer) -> dict[str, Any]:
    """The option that has a producer of device memory order its work before that of the default stream.

    The standard lets a producer take that stream where none is named; torch then orders nothing. A producer that
    cannot say where its memory is will say why when it is asked for that.
    """
    try:
        # To name its device takes torch as long as to share its memory. An array that says that it is of the CPU and
        # is not is refused once its capsule has told the device.
        if getattr(producer, "is_cpu", None) is True:
            return {}
        stream = _DEFAULT_STREAMS.get(int(producer.__dlpack_device__()[0]))
    except (AttributeError, *REFUSALS):
        return {}
    return {} if stream is None else {"stream": stream}


# What libraries raise where they do not hand memory over: the standard's BufferError, torch's RuntimeError for what has
# no storage and NotImplementedError, JAX's TypeError for keys and tracers, Arrow's for nulls.
REFUSALS = (BufferError, RuntimeError, TypeError, ValueError)


def refused(x: object, call: str, error: Exception) -> ExchangeError:
    """A library's refusal to share x in our words, with what helps where that is known."""
    said = str(error).partition("\n")[0]
    remedy = "do what it says"
    for has, helps in _HELPS:
        if has(x):
            remedy = helps
            break
    actual = f"not shared by its library ({said})"
    return ExchangeError(call, "x", "", actual, "memory that can be shared", remedy)


def _is(name: str) -> Callable[[object], bool]:
    """Whether x has that attribute, and it is True or returns it."""

    def has(x: object) -> bool:
        found = getattr(x, name, None)
        return found is True or (callable(found) and found() is True)

    return has


def _is_sparse(x: object) -> bool:
    """Whether x is a torch tensor of another layout than strides."""
    return hasattr(x, "to_dense") and str(getattr(x, "layout", "torch.strided")) != "torch.strided"


def _is_traced(x: object) -> bool:
    """Whether x stands for an array while JAX traces a function."""
    return any(base.__name__ == "Tracer" for base in type(x).__mro__)


# The first that is so. What computes with gradients goes before the rest: whatever else is wrong is said after it.
_HELPS: tuple[tuple[Callable[[object], bool], str], ...] = (
    (_is("is_meta"), "make it on a device: it has a shape, and no elements"),
    (_is("requires_grad"), "call its detach() first"),
    (_is_traced, "call it outside of what JAX traces, such as jit and grad"),
    (_is("is_nested"), "pass the tensors of its unbind() apart"),
    (_is_sparse, "call its to_dense() first"),
    (_is("is_conj"), "pass torch.view_as_real of its resolve_conj()"),
)


def _checked(
    call: str, tensor: list[int], flags: int, order: dict[str, Any], owner: _Managed
) -> tuple[Buffer, Layout, DType]:
    """The facts of a DLTensor, refused where they cannot be true, or where its producer ordered no work on its device,
    which it said it is not on."""
    data, device_type, device_id, ndim, code, bits, lanes, shape_at, strides_at, byte_offset = tensor
    device = None if device_type in _REFUSED else Device.from_dlpack(device_type, device_id)
    if device is None:
        actual = f"{_REFUSED.get(device_type, 'unknown')} ({device_type})"
        expected = "the host's, CUDA's or ROCm's"
        raise ExchangeError(call, "x", "DLPack device type", actual, expected, "copy it to the host first")
    if device_type in _DEFAULT_STREAMS and order != {"stream": _DEFAULT_STREAMS[device_type]}:
        raise _broken(call, "DLPack device", (device_type, device_id), "what its __dlpack_device__ says")
    if not 0 <= ndim <= MAX_RANK:
        raise ExchangeError(call, "x", "rank", ndim, f"in [0, {MAX_RANK}]", "reshape it first")
    if ndim and not shape_at:
        raise _broken(call, "shape pointer", "NULL", f"{ndim} extents")
    shape = struct.unpack(f"{ndim}q", ctypes.string_at(shape_at, 8 * ndim)) if ndim else ()
    strides = struct.unpack(f"{ndim}q", ctypes.string_at(strides_at, 8 * ndim)) if ndim and strides_at else None
    dtype, layout, low, span = _decoded(code, bits, lanes, flags & PADDED, shape, strides, call)
    if not span:
        return Buffer(0, 0, owner, device, bool(flags & READ_ONLY)), layout, dtype
    address = data + byte_offset
    if data < LEAST_ADDRESS and (not data or device.is_host):
        raise _broken(call, "data pointer", f"{data:#x}" if data else "NULL", "that of its elements")
    if address + low < 0 or address + low + span > 1 << 64:
        raise _broken(call, "span", f"{span} bytes from {address + low:#x}", "addressable")
    if layout.pitch_bits % 8 == 0 and address % (layout.pitch_bits >> 3):
        expected = f"a multiple of {layout.pitch_bits >> 3}"
        raise ExchangeError(call, "x", "address", f"{address:#x}", expected, "copy it first")
    return Buffer(address + low, span, owner, device, bool(flags & READ_ONLY)), layout, dtype


@lru_cache(maxsize=4096)
def _decoded(
    code: int, bits: int, lanes: int, padded: int, shape: Shape, strides: Shape | None, call: str
) -> tuple[DType, Layout, int, int]:
    """The dtype, the layout from its lowest byte, how far from element (0, 0, ...) that is, and the bytes spanned."""
    steps = row_major(shape) if strides is None else strides
    dtype, layout = decode(Encoding(code, bits, lanes, padded, shape, steps), call)
    return dtype, *layout.rebased()


def _broken(call: str, fact: str, actual: object, expected: object) -> ExchangeError:
    """What no correct producer hands over."""
    return ExchangeError(call, "x", fact, actual, expected, "report it to the producer")
