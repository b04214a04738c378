"""The tensor: a buffer, a layout and a dtype, which say together what bytes mean.

Start at `Tensor.from_any`, which takes what others made, and `Tensor.empty`. A tensor is a view: its facts never
change, none of its methods computes on elements, and what reads or moves them here goes through `elements`, which takes
every layout; `ops` has the fast ways.
"""

import hashlib
import math
import pickle
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, SupportsIndex, cast

import numpy as np
import numpy.typing as npt

from samebits import dtypes, elements
from samebits.dlpack import Producer, capsule_of, carrier_of, check_exchanged, receive
from samebits.dtypes import DType
from samebits.errors import DeviceError, DTypeError, ExchangeError, LayoutError, ShapeError, message
from samebits.layout import Key, Layout, Shape, Storage
from samebits.memory import ALIGNMENT, CPU, Buffer, Device, address_of, allocate
from samebits.shapes import check_extents

__all__ = ["Tensor"]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Tensor:
    """element(i, j, ...) = dtype.decode(the width_bits bits of buffer at layout's place of (i, j, ...)).

    Attributes:
        buffer: The bytes.
        layout: Where in them each element is.
        dtype: What an element's bits mean.
    """

    buffer: Buffer
    layout: Layout
    dtype: DType

    def __post_init__(self) -> None:
        if self.layout.width_bits != self.dtype.width_bits:
            actual, expected = f"{self.layout.width_bits} bits", f"{self.dtype.width_bits} bits as in {self.dtype}"
            raise LayoutError(message("Tensor", "layout", "width", actual, expected, "make the layout for this dtype"))
        low, high = self.layout.bounds_bits
        if low < 0 or high > self.buffer.size_bytes * 8:
            actual, expected = f"bits [{low}, {high})", f"within the buffer's {self.buffer.size_bytes} bytes"
            raise LayoutError(message("Tensor", "layout", "span", actual, expected, "allocate layout.required_bytes"))
        unit = self.layout.pitch_bits
        if unit % 8 == 0 and (self.buffer.address * 8 + self.layout.offset_bits) % unit and self.layout.size:
            actual = f"{self.buffer.address + self.layout.offset_bits // 8:#x}"
            raise LayoutError(message("Tensor", "address", "", actual, f"a multiple of {unit // 8}", "copy it first"))

    @classmethod
    def from_any(cls, x: object) -> "Tensor":
        """x as a tensor, sharing its memory.

        Args:
            x: A Tensor; a NumPy array, of an ml_dtypes dtype too; anything with `__dlpack__`, such as torch and JAX
                arrays; or what `numpy.asarray` takes, Python numbers and lists among it.

        Raises:
            DTypeError: Its elements are of no row of `dtypes.ROWS`.
            ExchangeError: Its memory cannot be shared.
        """
        if type(x) is np.ndarray:
            return _from_numpy(x)
        if isinstance(x, Tensor):
            return x
        if isinstance(x, np.ma.MaskedArray):
            remedy = "fill it first, with x.filled(value)"
            raise ExchangeError(
                message("Tensor.from_any", "x", "type", "a masked array", "an array without a mask", remedy)
            )
        if not isinstance(x, np.ndarray | np.generic) and hasattr(type(x), "__dlpack__"):
            return _trusted(*receive(cast(Producer, x), "Tensor.from_any"))
        return _from_numpy(np.asarray(x))

    @classmethod
    def from_dlpack(cls, x: Producer) -> "Tensor":
        """x as a tensor, sharing its memory through DLPack.

        Raises:
            DTypeError: Its elements are of no row in `dlpack.EXCHANGED`.
            ExchangeError: What x hands over breaks the protocol.
        """
        return _trusted(*receive(x, "Tensor.from_dlpack"))

    @classmethod
    def empty(
        cls, shape: Sequence[SupportsIndex], dtype: object = dtypes.float32, *, storage: Storage = "packed"
    ) -> "Tensor":
        """A dense row-major host tensor, aligned to 64 bytes, of arbitrary values.

        Args:
            shape: Extents.
            dtype: What `dtypes.of` takes.
            storage: `packed`, or `padded`: elements of fewer than 8 bits take a byte each. Others are the same in both.
        """
        return _allocated(shape, dtypes.of(dtype), storage, zero=False)

    @classmethod
    def zeros(
        cls, shape: Sequence[SupportsIndex], dtype: object = dtypes.float32, *, storage: Storage = "packed"
    ) -> "Tensor":
        """As `empty`, of code points 0, which is the value 0 in every format that has it."""
        return _allocated(shape, dtypes.of(dtype), storage, zero=True)

    @classmethod
    def full(
        cls,
        shape: Sequence[SupportsIndex],
        value: float,
        dtype: object = dtypes.float32,
        *,
        storage: Storage = "packed",
    ) -> "Tensor":
        """As `empty`, every element the value.

        Args:
            shape: Extents.
            value: A Python or NumPy number; a float format takes the nearest of its values, ties to an even fraction.
            dtype: What `dtypes.of` takes.
            storage: `packed` or `padded`.

        Raises:
            DTypeError: The format has no value near it, or is an integer format that does not have exactly it.
        """
        tensor = cls.empty(shape, dtype, storage=storage)
        code = elements.code_of(value, tensor.dtype, "Tensor.full")
        elements.write(tensor.buffer.array(), tensor.layout, np.broadcast_to(code, tensor.shape))
        return tensor

    @classmethod
    def arange(
        cls,
        start: float,
        stop: float | None = None,
        step: float = 1,
        dtype: object = None,
        *,
        storage: Storage = "packed",
    ) -> "Tensor":
        """element i = start + i * step, for as many i as stay before stop; one number given is stop.

        Args:
            start: The first; 0 where stop is left out.
            stop: The end, which is not reached.
            step: Not 0; negative to count down.
            dtype: Default int64 where all three are integers, float32 otherwise. A float format takes the elements
                rounded to float64 and then to the nearest of its values; an integer format takes integers alone.
            storage: `packed` or `padded`.

        Raises:
            DTypeError: The format does not have an element.
            OptionError: step is 0, or a number is not finite.
        """
        if stop is None:
            start, stop = 0, start
        whole = all(isinstance(x, int | np.integer) for x in (start, stop, step))
        row = dtypes.of(("int64" if whole else "float32") if dtype is None else dtype)
        codes = elements.arange(start, stop, step, row, "Tensor.arange")
        tensor = cls.empty(codes.shape, row, storage=storage)
        elements.write(tensor.buffer.array(), tensor.layout, codes)
        return tensor

    @classmethod
    def empty_like(cls, x: "Tensor", *, dtype: object = None, device: Device | None = None) -> "Tensor":
        """A dense row-major tensor of arbitrary values with x's shape, storage and, unless given, dtype.

        Raises:
            DeviceError: The device, x's own where none is given, is not plain host memory.
        """
        return cls.empty(x.shape, _like(x, dtype, device, "Tensor.empty_like"), storage=x.layout.storage)

    @classmethod
    def zeros_like(cls, x: "Tensor", *, dtype: object = None, device: Device | None = None) -> "Tensor":
        """As `empty_like`, of code points 0."""
        return cls.zeros(x.shape, _like(x, dtype, device, "Tensor.zeros_like"), storage=x.layout.storage)

    @classmethod
    def full_like(cls, x: "Tensor", value: float, *, dtype: object = None, device: Device | None = None) -> "Tensor":
        """As `empty_like`, every element the value, as in `full`."""
        return cls.full(x.shape, value, _like(x, dtype, device, "Tensor.full_like"), storage=x.layout.storage)

    @property
    def shape(self) -> Shape:
        """Extents in elements."""
        return self.layout.shape

    @property
    def strides(self) -> Shape:
        """Strides in elements."""
        return self.layout.strides

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.layout.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return self.layout.size

    @property
    def nbytes(self) -> int:
        """Bytes of its elements side by side, without what lies between them here."""
        return -(-self.layout.size * self.layout.pitch_bits // 8)

    @property
    def device(self) -> Device:
        """Where its bytes are."""
        return self.buffer.device

    @property
    def read_only(self) -> bool:
        """Whether its bytes may not be written."""
        return self.buffer.read_only

    @property
    def address(self) -> int:
        """Address of element (0, 0, ...).

        Raises:
            ClosedError: The buffer was closed.
            LayoutError: The element begins inside a byte.
        """
        offset = self.layout.offset_bits
        return self.buffer.address + (self.layout.offset_bytes if offset & 7 else offset >> 3)

    def permute(self, axes: Sequence[SupportsIndex]) -> "Tensor":
        """A view whose axis i is axis axes[i] of this tensor."""
        return _trusted(self.buffer, self.layout.permute(axes), self.dtype)

    def transpose(self, first: int = -2, second: int = -1) -> "Tensor":
        """A view with two axes exchanged, the last two unless others are named."""
        axes = list(range(self.ndim))
        try:
            axes[first], axes[second] = axes[second], axes[first]
        except (IndexError, TypeError):
            expected = f"two of {self.ndim} axes"
            raise LayoutError(
                message("Tensor.transpose", "axes", "", (first, second), expected, "name existing axes")
            ) from None
        return self.permute(axes)

    @property
    def T(self) -> "Tensor":
        """A view with all axes in reverse order."""
        return self.permute(range(self.ndim)[::-1])

    def reshape(self, shape: Sequence[SupportsIndex]) -> "Tensor":
        """A view of the same elements in row-major order; LayoutError where only a copy has that shape."""
        return _trusted(self.buffer, self.layout.reshape(shape), self.dtype)

    def __getitem__(self, key: Key) -> "Tensor":
        """A view of what the key selects: integers, slices, None and Ellipsis."""
        return _trusted(self.buffer, self.layout[key], self.dtype)

    def __iter__(self) -> Iterator["Tensor"]:
        """Views along the first axis.

        Raises:
            LayoutError: There is no axis.
        """
        if not self.shape:
            raise LayoutError(message("iter", "tensor", "rank", 0, "at least 1", "use item()"))
        return (self[index] for index in range(self.shape[0]))

    def broadcast_to(self, shape: Sequence[SupportsIndex]) -> "Tensor":
        """A view that repeats along new axes and along axes of extent 1."""
        return _trusted(self.buffer, self.layout.broadcast_to(shape), self.dtype)

    def squeeze(self, axis: SupportsIndex | None = None) -> "Tensor":
        """A view without an axis of extent 1, or without all of them."""
        return _trusted(self.buffer, self.layout.squeeze(axis), self.dtype)

    def unsqueeze(self, axis: SupportsIndex) -> "Tensor":
        """A view with an axis of extent 1 inserted."""
        return _trusted(self.buffer, self.layout.unsqueeze(axis), self.dtype)

    def flip(self, axis: SupportsIndex) -> "Tensor":
        """A view in reverse order along one axis."""
        return _trusted(self.buffer, self.layout.flip(axis), self.dtype)

    def view(self, dtype: object) -> "Tensor":
        """The same bits read as elements of another format, without moving any.

        A format of the same width keeps the layout. For one of another width, the last axis must be dense and packed;
        its extent becomes extent * width / new width, least significant bits first, and all else stays.

        Args:
            dtype: What `dtypes.of` takes.

        Raises:
            LayoutError: The last axis is not dense, elements are padded, or the new elements would not begin at
                multiples of their own width.
            ShapeError: There is no axis, or the last one is no whole number of new elements.
        """
        row = dtypes.of(dtype)
        layout = self.layout if row.width_bits == self.dtype.width_bits else _viewed(self.layout, row)
        return Tensor(self.buffer, layout, row)

    def copy(self) -> "Tensor":
        """The same elements, dense and row-major, in writable memory of their own; `ops.copy` is the fast way."""
        new = Tensor.empty(self.shape, self.dtype, storage=self.layout.storage)
        if self.dtype.width_bits >= 8 and not any(stride % 8 for stride in self.layout.strides_bits):
            np.copyto(new._array("copy", new._unit()), self._array("copy", self._unit()))
        else:
            elements.write(new.buffer.array(), new.layout, self._codes())
        return new

    def values(self) -> npt.NDArray[Any]:
        """The elements as numbers of a dtype of NumPy's own that holds every value of the format exactly; a new array.

        Returns:
            float32 for the narrow floats and bfloat16, int8 or uint8 for the narrow integers, else the same dtype.
        """
        return elements.decode(self._codes(), self.dtype)

    def tolist(self) -> Any:
        """The values as Python numbers in nested lists; a number alone for rank 0."""
        return self.values().tolist()

    def item(self) -> float:
        """The one element as a Python number.

        Raises:
            ShapeError: There is not exactly one.
        """
        if self.size != 1:
            raise ShapeError(message("Tensor.item", "tensor", "size", self.size, 1, "use tolist()"))
        number: float = self.values().item()
        return number

    def equal_bits(self, other: "Tensor") -> bool:
        """Whether dtype, shape and every code point agree, whatever the layouts: exactly where digests do.

        A NaN equals the NaN of the same code, and -0 is not 0.
        """
        same = self.dtype is other.dtype and self.shape == other.shape
        return same and np.array_equal(self._codes(), other._codes())

    def equal_values(self, other: "Tensor", *, equal_nan: bool = False) -> bool:
        """Whether shapes agree and elements are equal as real numbers; dtypes may differ, and nothing is rounded.

        -0 equals 0, and True equals 1. A NaN equals nothing, or every NaN if `equal_nan`.
        """
        if self.shape != other.shape:
            return False
        x, y = self.values(), other.values()
        equal = elements.same_values(x, y)
        if equal_nan and x.dtype.kind == y.dtype.kind == "f":
            equal |= np.isnan(x) & np.isnan(y)
        return bool(equal.all())

    def numpy(self) -> npt.NDArray[Any]:
        """A NumPy array of the same memory, of an ml_dtypes dtype where NumPy has none; read-only where this is.

        Raises:
            DTypeError: NumPy has no such dtype, with ml_dtypes either.
            LayoutError: Elements are packed within bytes.
            DeviceError: The host cannot read the memory.
        """
        if self.dtype.numpy is None:
            remedy = "update ml_dtypes"
            raise DTypeError(
                message("Tensor.numpy", "tensor", "dtype", self.dtype, "one NumPy or ml_dtypes has", remedy)
            )
        return self._array("numpy", self.dtype.numpy)

    def torch(self, *, copy: bool = False) -> Any:
        """A torch tensor of the same memory, or of a copy if asked for.

        Raises:
            ExchangeError: The tensor is read-only, which torch does not keep to, or has a negative stride.
            DTypeError: Its elements are of no row in `dlpack.EXCHANGED`.
        """
        import torch.utils.dlpack

        check_exchanged(self.dtype, "Tensor.torch")
        if not hasattr(torch, self.dtype.name):
            remedy = "exchange its bytes as uint8"
            raise DTypeError(message("Tensor.torch", "x", "dtype", self.dtype, "one that torch has", remedy))
        source = self.copy() if copy else self
        if source.read_only:
            remedy = "pass copy=True, because torch ignores that memory is read-only"
            raise ExchangeError(message("Tensor.torch", "tensor", "access", "read-only", "writable", remedy))
        return torch.utils.dlpack.from_dlpack(source._capsule("torch", versioned=True))

    def jax(self, *, copy: bool = False) -> Any:
        """A JAX array of the same memory, or of a copy if asked for; JAX takes the memory as constant.

        Raises:
            ExchangeError: The tensor is not row-major and dense, or not aligned to 64 bytes.
            DTypeError: JAX has 64-bit types switched off, or the elements are of no row in `dlpack.EXCHANGED`.
        """
        import jax.dlpack
        import jax.dtypes

        source = self.copy() if copy else self
        check_exchanged(self.dtype, "Tensor.jax")
        if jax.dtypes.canonicalize_dtype(self.dtype.numpy) != self.dtype.numpy:
            remedy = "set jax.config.update('jax_enable_x64', True)"
            raise DTypeError(message("Tensor.jax", "tensor", "dtype", self.dtype, "at most 32 bits wide", remedy))
        if not source.layout.is_contiguous():
            actual = f"{source.shape} with strides {source.strides}"
            raise ExchangeError(
                message("Tensor.jax", "tensor", "layout", actual, "row-major and dense", "pass copy=True")
            )
        if source.address % ALIGNMENT:
            expected = f"a multiple of {ALIGNMENT}"
            raise ExchangeError(
                message("Tensor.jax", "tensor", "address", f"{source.address:#x}", expected, "pass copy=True")
            )
        return jax.dlpack.from_dlpack(_Constant(source), copy=False)

    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> object:
        """A DLPack capsule of the same memory, or of a copy if asked for.

        Args:
            stream: None or -1; host memory has no streams.
            max_version: What the consumer understands; from (1, 0) on the capsule is versioned.
            dl_device: Where the consumer wants it; only where it is already.
            copy: True copies; False and None share.

        Raises:
            ExchangeError: The tensor cannot be handed over as asked without losing a fact.
            DTypeError: Its elements are of no row in `dlpack.EXCHANGED`.
        """
        if stream not in (None, -1):
            raise ExchangeError(
                message("__dlpack__", "stream", "", stream, "None or -1 for host memory", "leave it out")
            )
        if dl_device is not None and tuple(dl_device) != self.device.dlpack:
            expected = f"{self.device.dlpack}, where the tensor is"
            raise ExchangeError(
                message("__dlpack__", "dl_device", "", tuple(dl_device), expected, "move it afterwards")
            )
        versioned = max_version is not None and tuple(max_version) >= (1, 0)
        if copy:
            return self.copy()._capsule("__dlpack__", versioned=versioned, copied=True)
        if self.read_only and not versioned:
            remedy = "pass max_version=(1, 0) or copy=True"
            raise ExchangeError(
                message("__dlpack__", "tensor", "access", "read-only", "writable in a legacy capsule", remedy)
            )
        return self._capsule("__dlpack__", versioned=versioned)

    def __dlpack_device__(self) -> tuple[int, int]:
        """`(device_type, device_id)` of DLPack."""
        return self.device.dlpack

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> npt.NDArray[Any]:
        """NumPy's protocol: the array of `numpy()`, converted or copied as NumPy asks."""
        return np.array(self.numpy(), dtype=dtype, copy=copy)

    def tobytes(self) -> bytes:
        """The elements in row-major order, each in as few whole bytes as hold it, unused high bits 0."""
        return self._codes().tobytes()

    def digest(self) -> str:
        """SHA-256, in hex, of the dtype's name, the shape and `tobytes()`: equal exactly where all three are.

        Strides, storage and device do not matter.
        """
        header = f"{self.dtype.name} {self.shape}\n".encode()
        return hashlib.sha256(header + self.tobytes()).hexdigest()

    def __copy__(self) -> "Tensor":
        return self

    def __reduce_ex__(self, protocol: SupportsIndex) -> tuple[Any, ...]:
        """A pickle holds the value: dtype, shape, storage and bytes. It comes back dense, writable and on the host.

        From protocol 5 on, a dense tensor's bytes may travel out of band, without a copy on this side.
        """
        layout = self.layout
        dense, size_bytes = _dense_layout(self.shape, self.dtype, layout.storage)
        is_clean = not layout.width_bits % 8 and layout == dense
        source = self if is_clean else self.copy()
        data = source.buffer.array()[:size_bytes]
        carried = pickle.PickleBuffer(data.data) if int(protocol) >= 5 else data.tobytes()
        return _unpickled, (self.dtype, self.shape, layout.storage, carried)

    def __repr__(self) -> str:
        facts = f"{self.dtype}, shape={self.shape}, {self.device}"
        if self.buffer.is_closed:
            return f"Tensor(closed, {facts})"
        if not self.device.is_host or math.prod(min(extent, _EDGES + 1) for extent in self.shape) > _SHOWN:
            return f"Tensor({facts})"
        codes = elements.edges(self.buffer.array(), self.layout, _EDGES // 2)
        # NumPy leaves places of a long axis out where there is more than the threshold; what it leaves out is not read.
        threshold = 0 if self.size > 100 else 100
        values = np.array2string(
            elements.decode(codes, self.dtype), separator=", ", prefix="Tensor(", threshold=threshold
        )
        return f"Tensor({values}, {facts})"

    def _codes(self) -> npt.NDArray[Any]:
        """The code points, unused high bits 0, in a new dense array of `shape`."""
        return elements.read(self.buffer.array(), self.layout)

    def _unit(self) -> np.dtype[Any]:
        """The unsigned integer that holds one element's code point."""
        return elements.unit(self.dtype.width_bits)

    def _array(self, call: str, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
        """The memory as a NumPy array of a dtype as wide as an element's storage."""
        layout = self.layout
        if layout.pitch_bits % 8:
            actual, remedy = f"packed, {layout.pitch_bits} bits an element", "use buffer.array() for the bytes"
            raise LayoutError(message(f"Tensor.{call}", "tensor", "storage", actual, "whole bytes", remedy))
        return np.ndarray(layout.shape, dtype, self.buffer.array(), layout.offset_bytes, layout.strides_bytes)

    def _capsule(self, call: str, *, versioned: bool, copied: bool = False) -> object:
        """A DLPack capsule of the memory as it is, checked for what consumers cannot take."""
        check_exchanged(self.dtype, f"Tensor.{call}")
        if not self.device.is_host:
            remedy = "hand over the producer's own tensor"
            raise ExchangeError(message(f"Tensor.{call}", "tensor", "device", self.device, "host memory", remedy))
        if min(self.layout.strides_bits, default=0) < 0:
            # torch up to 2.13 ends the process on a negative stride, and a producer cannot know its consumer.
            remedy = "pass copy=True or use numpy()"
            raise ExchangeError(
                message(
                    f"Tensor.{call}",
                    "tensor",
                    "layout",
                    f"of strides {self.strides}",
                    "one of non-negative strides",
                    remedy,
                )
            )
        array = self._array(call, carrier_of(self.dtype))
        return capsule_of(array, self.dtype, versioned=versioned, copied=copied)


# A slot's own setter passes by the frozen class's refusal, at half the cost of object.__setattr__.
_set_buffer, _set_layout, _set_dtype = (Tensor.__dict__[name].__set__ for name in ("buffer", "layout", "dtype"))


def _trusted(buffer: Buffer, layout: Layout, dtype: DType) -> Tensor:
    """A tensor of facts known to fit each other."""
    tensor = object.__new__(Tensor)
    _set_buffer(tensor, buffer)
    _set_layout(tensor, layout)
    _set_dtype(tensor, dtype)
    return tensor


# A summary shows three places at both ends of an axis, and nothing of a tensor with so many short axes that it would be
# larger than this.
_EDGES, _SHOWN = 6, 10_000


class _Constant:
    """A tensor for a consumer that asks for a legacy capsule and never writes: read-only memory loses nothing there."""

    def __init__(self, tensor: Tensor) -> None:
        self._tensor = tensor

    def __dlpack__(self, **_: object) -> object:
        buffer, tensor = self._tensor.buffer, self._tensor
        if buffer.read_only:
            writable = Buffer(buffer.address, buffer.size_bytes, buffer.owner, buffer.device)
            tensor = _trusted(writable, tensor.layout, tensor.dtype)
        return tensor._capsule("jax", versioned=False)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._tensor.device.dlpack


def _allocated(shape: Sequence[SupportsIndex], dtype: DType, storage: Storage, *, zero: bool) -> Tensor:
    """A dense row-major tensor in new host memory."""
    layout, size_bytes = _dense_layout(check_extents("Tensor.empty", "shape", shape), dtype, storage)
    return _trusted(allocate(size_bytes, zero=zero), layout, dtype)


@lru_cache(maxsize=4096)
def _dense_layout(shape: Shape, dtype: DType, storage: Storage) -> tuple[Layout, int]:
    """The dense row-major layout, and the bytes it takes."""
    layout = Layout.dense(shape, width_bits=dtype.width_bits, storage=storage)
    return layout, layout.required_bytes


def _like(x: Tensor, dtype: object, device: Device | None, call: str) -> DType:
    """The dtype of a new tensor like x, whose memory must be the host's."""
    wanted = x.device if device is None else device
    if wanted != CPU:
        remedy = f"pass device={CPU!r}"
        raise DeviceError(message(call, "device", "", wanted, CPU, remedy))
    return x.dtype if dtype is None else dtypes.of(dtype)


def _viewed(layout: Layout, dtype: DType) -> Layout:
    """The layout of the same bits as elements of another width."""
    call, old, new = "Tensor.view", layout.width_bits, dtype.width_bits
    if not layout.shape:
        remedy = "reshape((1,)) it first"
        raise ShapeError(message(call, "tensor", "rank", 0, f"at least 1 to go from {old} bits to {new}", remedy))
    if layout.pitch_bits != old:
        remedy = "use ops.to_packed first"
        raise LayoutError(message(call, "tensor", "storage", "padded", "packed", remedy))
    extent, stride = layout.shape[-1], layout.strides_bits[-1]
    if extent > 1 and stride != old:
        expected = f"{old} bits, elements side by side"
        raise LayoutError(message(call, "last axis", "stride", f"{stride} bits", expected, "copy it first"))
    if extent * old % new:
        actual, expected = f"{extent} elements of {old} bits", f"a whole number of {new} bits"
        raise ShapeError(message(call, "last axis", "extent", actual, expected, "pad it first"))
    axes = zip(layout.shape[:-1], layout.strides_bits[:-1], strict=True)
    starts = [layout.offset_bits, *(step for length, step in axes if length > 1)] if layout.size else []
    if any(start % new for start in starts):
        actual, expected = f"{starts} bits", f"multiples of {new} bits"
        raise LayoutError(message(call, "tensor", "offset and strides", actual, expected, "copy it first"))
    shape = (*layout.shape[:-1], extent * old // new)
    return Layout(shape, (*layout.strides_bits[:-1], new), layout.offset_bits, new)


def _unpickled(dtype: DType, shape: Shape, storage: Storage, data: Any) -> Tensor:
    """The tensor that a pickle holds, in memory of its own."""
    tensor = Tensor.empty(shape, dtype, storage=storage)
    target, source = tensor.buffer.array(), np.frombuffer(data, np.uint8)
    if source.size != target.size:
        remedy = "pickle it again"
        raise ExchangeError(message("pickle", "data", "size", f"{source.size} bytes", f"{target.size} bytes", remedy))
    target[:] = source
    return tensor


def _from_numpy(array: npt.NDArray[Any]) -> Tensor:
    """The array's memory, from its lowest byte to its highest."""
    dtype = dtypes.of(array.dtype)
    if not array.flags.aligned:
        remedy = "copy it first"
        raise ExchangeError(message("Tensor.from_any", "x", "alignment", "less than its dtype's", "natural", remedy))
    layout, low, span = _numpy_layout(array.shape, array.strides, dtype)
    return _trusted(Buffer(address_of(array) + low, span, array, CPU, not array.flags.writeable), layout, dtype)


@lru_cache(maxsize=4096)
def _numpy_layout(shape: Shape, strides: Shape, dtype: DType) -> tuple[Layout, int, int]:
    """A NumPy array's layout from its lowest byte, how far from element (0, 0, ...) that is, and the bytes spanned."""
    storage: Literal["packed", "padded"] = "padded" if dtype.width_bits % 8 else "packed"
    return Layout.from_byte_strides(shape, strides, width_bits=dtype.width_bits, storage=storage).rebased()
