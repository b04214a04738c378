"""The tensor: a buffer, a layout and a dtype, which say together what bytes mean.

Start at `Tensor.from_any`, which takes what others made, and `Tensor.empty`. A tensor is a view: its facts never
change, none of its methods computes on elements, and what reads or moves them here goes through `elements`, which takes
every layout; `ops` has the fast ways.
"""

import math
import numbers
import operator
import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from functools import lru_cache
from typing import Any, Literal, NoReturn, SupportsIndex

import numpy as np
import numpy.typing as npt

from samebits import demand, driver, dtypes, elements, hot, numpy_functions
from samebits.dlpack import Producer, receive
from samebits.dtypes import DType
from samebits.errors import ExchangeError, LayoutError, OptionError, ShapeError, message, shown
from samebits.exchange import incoming
from samebits.exchange.incoming import check_torch, facts_of, from_numpy
from samebits.exchange.outgoing import Exported, to_dlpack, to_jax, to_numpy, to_torch
from samebits.frozen import dataclass
from samebits.layout import Axes, Key, Layout, Shape, Storage
from samebits.memory import Buffer, Device, allocate
from samebits.memory.device import check_device
from samebits.shapes import check_extents, check_flag, check_type

__all__ = ["Tensor"]


class _ExchangeApi:
    """The capsule of C functions that other libraries look for on the class; asking for it has it made."""

    def __get__(self, instance: object, owner: "type[Tensor]") -> object:
        hot.act()
        found = vars(Tensor)["__dlpack_c_exchange_api__"]
        if found is self:
            raise AttributeError("Tensor has no __dlpack_c_exchange_api__ here; use __dlpack__")
        return found


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
    # Shape and strides as C reads them; native code makes them when it is first asked.
    _extents: bytes = field(init=False, repr=False)

    __dlpack_c_exchange_api__ = _ExchangeApi()

    def __post_init__(self) -> None:
        if type(self.buffer) is not Buffer or type(self.layout) is not Layout or type(self.dtype) is not DType:
            parts = ("buffer", self.buffer, Buffer), ("layout", self.layout, Layout), ("dtype", self.dtype, DType)
            for name, x, due in parts:
                check_type("Tensor", name, x, due, "use Tensor.from_any or Tensor.from_buffer")
        if self.layout.width_bits != self.dtype.width_bits:
            actual, expected = f"{self.layout.width_bits} bits", f"{self.dtype.width_bits} bits as in {self.dtype}"
            raise LayoutError("Tensor", "layout", "width", actual, expected, "make the layout for this dtype")
        low, high = self.layout.bounds_bits
        if low < 0 or high > self.buffer.size_bytes * 8:
            actual, expected = f"bits [{low}, {high})", f"within the buffer's {self.buffer.size_bytes} bytes"
            raise LayoutError("Tensor", "layout", "span", actual, expected, "allocate layout.required_bytes")
        unit = self.layout.pitch_bits
        if unit % 8 == 0 and (self.buffer.address * 8 + self.layout.offset_bits) % unit and self.layout.size:
            actual = f"{self.buffer.address + self.layout.offset_bits // 8:#x}"
            raise LayoutError("Tensor", "address", "", actual, f"a multiple of {unit // 8}", "copy it first")

    @classmethod
    def from_any(cls, x: object, *, copy: bool | None = None) -> "Tensor":
        """x as a tensor, sharing its memory.

        Of what x offers, the first of these that there is: NumPy's own array, whose dtype may be of ml_dtypes; DLPack;
        the CUDA array interface; the buffer protocol, the array interface and `__array__`. JAX arrays of int4, uint4,
        int2 and uint2, for which JAX has no DLPack, come in as a copy, packed; a list or a number as a new array.

        What a producer calls by another name cannot be detected: an OrtValue of bool exports itself as uint8.

        Args:
            x: A Tensor; an array of NumPy, torch, JAX or another library; bytes; a Python number or a list of them.
            copy: True copies always; None where nothing else is possible; False never, but refuses.

        Raises:
            DTypeError: Its elements are of no row of `dtypes.ROWS`, or of a torch dtype whose bits torch gives no
                meaning, such as torch.int4.
            ExchangeError: Its memory cannot be shared, or is to be and is not.
        """
        if copy is not None and copy is not False:
            check_flag("Tensor.from_any", "copy", copy)
            return cls.from_any(x).copy() if copy else cls.from_any(x, copy=False)
        hot.count()
        if type(x) is np.ndarray:
            return _trusted(*from_numpy(x, "Tensor.from_any"))
        if isinstance(x, Tensor):
            return x
        if incoming.is_jax_narrow(x):
            return _trusted(*incoming.from_jax_narrow(x, "Tensor.from_any", may_copy=copy is not False))
        if copy is False and not incoming.is_shared(x):
            expected, remedy = "one whose memory can be shared", "leave copy=False out"
            raise ExchangeError("Tensor.from_any", "x", "type", type(x).__name__, expected, remedy)
        return _trusted(*facts_of(x, "Tensor.from_any"))

    @classmethod
    def from_dlpack(cls, x: Producer) -> "Tensor":
        """x as a tensor, sharing its memory through DLPack, in whichever way it writes elements of fewer than 8 bits.

        Raises:
            DTypeError: Its elements are of no row of `dtypes.ROWS`.
            ExchangeError: What x hands over breaks the protocol, or is on a device that cannot be named.
        """
        hot.count()
        check_torch(x, "Tensor.from_dlpack")
        return _trusted(*receive(x, "Tensor.from_dlpack"))

    @classmethod
    def from_buffer(
        cls,
        data: object,
        dtype: object,
        shape: Sequence[SupportsIndex],
        strides: Sequence[SupportsIndex] | None = None,
        offset: SupportsIndex = 0,
        *,
        storage: Storage = "packed",
    ) -> "Tensor":
        """Elements in memory that others keep, shared; read-only where they say so.

        Args:
            data: A Buffer, what has the buffer protocol, or any dense array that `from_any` shares: its bytes are read
                as elements, whatever its own dtype is.
            dtype: What `dtypes.of` takes.
            shape: Extents.
            strides: In elements; row-major and dense by default.
            offset: Of element (0, 0, ...), in elements.
            storage: `packed`, or `padded`: elements of fewer than 8 bits take a byte each.

        Raises:
            LayoutError: An element would lie outside the data, or at an address that is no multiple of its size.
            ExchangeError: The memory cannot be shared, or is not dense.
        """
        row = dtypes.of(dtype)
        if strides is None:
            extents = check_extents("Tensor.from_buffer", "shape", shape)
            strides = Layout.dense(extents, width_bits=row.width_bits, storage=storage).strides
        layout = Layout.from_strides(shape, strides, offset, width_bits=row.width_bits, storage=storage)
        return cls(data if isinstance(data, Buffer) else _memory_of(data, "Tensor.from_buffer"), layout, row)

    @classmethod
    def from_bytes(
        cls, data: object, dtype: object, shape: Sequence[SupportsIndex], *, storage: Storage = "packed"
    ) -> "Tensor":
        """A dense, row-major, writable tensor of a copy of the data, which has exactly its bytes.

        What `tobytes` gave comes back with `storage="padded"`.

        Args:
            data: As for `from_buffer`.
            dtype: What `dtypes.of` takes.
            shape: Extents.
            storage: `packed` or `padded`.

        Raises:
            LayoutError: The data has more or fewer bytes.
            ExchangeError: As for `from_buffer`.
        """
        tensor = cls.empty(shape, dtype, storage=storage)
        source = _memory_of(data, "Tensor.from_bytes")
        if source.size_bytes != tensor.buffer.size_bytes:
            expected = f"{tensor.buffer.size_bytes} bytes for {tensor.dtype} of shape {tensor.shape}, {storage}"
            actual, remedy = f"{source.size_bytes} bytes", "use from_buffer for a part of it"
            raise LayoutError("Tensor.from_bytes", "data", "size", actual, expected, remedy)
        tensor.buffer.array()[:] = source.array()
        return tensor

    @classmethod
    def from_exported(cls, exported: Exported) -> "Tensor":
        """The tensor that `export` took apart, on the memory of its bytes, wherever they have been since.

        Raises:
            OptionError: It is none of `export`.
            ExchangeError: The bytes are not those of a dense array.
            LayoutError: The layout does not fit them or their address.
        """
        check_type("Tensor.from_exported", "exported", exported, Exported, "pass what Tensor.export gave")
        return cls(_memory_of(exported.bytes, "Tensor.from_exported"), exported.layout, exported.dtype)

    @classmethod
    def empty(
        cls,
        shape: Sequence[SupportsIndex],
        dtype: object = dtypes.float32,
        *,
        storage: Storage = "packed",
        device: Device | None = None,
    ) -> "Tensor":
        """A dense row-major tensor, aligned to 64 bytes, of arbitrary values.

        Args:
            shape: Extents.
            dtype: What `dtypes.of` takes.
            storage: `packed`, or `padded`: elements of fewer than 8 bits take a byte each. Others are the same in both.
            device: Where; by default on the host.

        Raises:
            DeviceError: There is no such device here.
        """
        return _allocated("empty", shape, dtypes.of(dtype), storage, device)

    @classmethod
    def zeros(
        cls,
        shape: Sequence[SupportsIndex],
        dtype: object = dtypes.float32,
        *,
        storage: Storage = "packed",
        device: Device | None = None,
    ) -> "Tensor":
        """As `empty`, of code points 0, which is the value 0 in every format that has it."""
        return _allocated("zeros", shape, dtypes.of(dtype), storage, device, zero=True)

    @classmethod
    def full(
        cls,
        shape: Sequence[SupportsIndex],
        value: float,
        dtype: object = dtypes.float32,
        *,
        storage: Storage = "packed",
        device: Device | None = None,
    ) -> "Tensor":
        """As `empty`, every element the value.

        Args:
            shape: Extents.
            value: A Python or NumPy number; a float format takes the nearest of its values, ties to an even fraction.
            dtype: What `dtypes.of` takes.
            storage: `packed` or `padded`.
            device: Where; by default on the host.

        Raises:
            DTypeError: The format has no value near it, or is an integer format that does not have exactly it.
        """
        row = dtypes.of(dtype)
        code, extents = elements.code_of(value, row, "Tensor.full"), check_extents("Tensor.full", "shape", shape)
        _dense_layout(extents, row, _checked_storage(storage))
        return _written(np.broadcast_to(code, extents), row, storage, device)

    @classmethod
    def arange(
        cls,
        start: float,
        stop: float | None = None,
        step: float = 1,
        dtype: object = None,
        *,
        storage: Storage = "packed",
        device: Device | None = None,
    ) -> "Tensor":
        """element i = start + i * step, for as many i as stay before stop; one number given is stop.

        In NumPy's the last element may reach stop, where steps are not exact.

        Args:
            start: The first; 0 where stop is left out.
            stop: The end, which is not reached.
            step: Not 0; negative to count down.
            dtype: Default int64 where all three are integers, float32 otherwise. A float format takes the elements
                rounded to float64 and then to the nearest of its values; an integer format takes integers alone.
            storage: `packed` or `padded`.
            device: Where; by default on the host.

        Raises:
            DTypeError: The format does not have an element.
            OptionError: step is 0, a number is not finite, or there are 2**60 elements.
        """
        if stop is None:
            start, stop = 0, start
        whole = all(isinstance(x, int | np.integer) for x in (start, stop, step))
        row = dtypes.of(("int64" if whole else "float32") if dtype is None else dtype)
        return _written(elements.arange(start, stop, step, row, "Tensor.arange"), row, storage, device)

    @classmethod
    def empty_like(cls, x: "Tensor", *, dtype: object = None, device: Device | None = None) -> "Tensor":
        """A dense row-major tensor of arbitrary values with x's shape and storage and, unless given, dtype and device.

        Raises:
            DeviceError: There is no such device here.
        """
        _check_tensor("Tensor.empty_like", "x", x)
        row = x.dtype if dtype is None else dtypes.of(dtype)
        return _allocated("empty_like", x.shape, row, x.layout.storage, x.device if device is None else device)

    @classmethod
    def zeros_like(cls, x: "Tensor", *, dtype: object = None, device: Device | None = None) -> "Tensor":
        """As `empty_like`, of code points 0."""
        _check_tensor("Tensor.zeros_like", "x", x)
        row = x.dtype if dtype is None else dtypes.of(dtype)
        where = x.device if device is None else device
        return _allocated("zeros_like", x.shape, row, x.layout.storage, where, zero=True)

    @classmethod
    def full_like(cls, x: "Tensor", value: float, *, dtype: object = None, device: Device | None = None) -> "Tensor":
        """As `empty_like`, every element the value, as in `full`."""
        _check_tensor("Tensor.full_like", "x", x)
        row, where = x.dtype if dtype is None else dtype, x.device if device is None else device
        return cls.full(x.shape, value, row, storage=x.layout.storage, device=where)

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
            if bool in (type(first), type(second)):
                raise TypeError
            here, there = operator.index(first), operator.index(second)
            axes[here], axes[there] = axes[there], axes[here]
        except (IndexError, TypeError):
            expected = f"two of {self.ndim} axes"
            raise LayoutError("Tensor.transpose", "axes", "", (first, second), expected, "name existing axes") from None
        return self.permute(tuple(axes))

    @property
    def T(self) -> "Tensor":
        """A view with all axes in reverse order."""
        return self.permute(tuple(range(self.ndim - 1, -1, -1)))

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
            raise LayoutError("iter", "tensor", "rank", 0, "at least 1", "use item()")
        return (self[index] for index in range(self.shape[0]))

    # A tensor has no `==` of values, so what Python would look for by iterating is never found.
    __contains__ = None

    def broadcast_to(self, shape: Sequence[SupportsIndex]) -> "Tensor":
        """A view that repeats along new axes and along axes of extent 1."""
        return _trusted(self.buffer, self.layout.broadcast_to(shape), self.dtype)

    def squeeze(self, axis: Axes | None = None) -> "Tensor":
        """A view without the axes named, each of extent 1, or without all of that extent."""
        return _trusted(self.buffer, self.layout.squeeze(axis), self.dtype)

    def unsqueeze(self, axis: Axes) -> "Tensor":
        """A view with axes of extent 1 inserted, which become those axes of the result."""
        return _trusted(self.buffer, self.layout.unsqueeze(axis), self.dtype)

    def flip(self, axis: Axes | None = None) -> "Tensor":
        """A view in reverse order along the axes named, or along all."""
        return _trusted(self.buffer, self.layout.flip(axis), self.dtype)

    def flatten(self, start: SupportsIndex = 0, end: SupportsIndex = -1) -> "Tensor":
        """A view with the axes from start to end merged into one; LayoutError where only a copy has it."""
        return _trusted(self.buffer, self.layout.flatten(start, end), self.dtype)

    def unflatten(self, axis: SupportsIndex, extents: Sequence[SupportsIndex]) -> "Tensor":
        """A view with one axis split into several, row-major."""
        return _trusted(self.buffer, self.layout.unflatten(axis, extents), self.dtype)

    def diagonal(self, skew: SupportsIndex = 0, axis1: SupportsIndex = 0, axis2: SupportsIndex = 1) -> "Tensor":
        """A view of the elements whose index along axis2 is `skew` more than along axis1, as the last axis."""
        return _trusted(self.buffer, self.layout.diagonal(skew, axis1, axis2), self.dtype)

    def sliding_window(self, window: Axes, axis: Axes | None = None) -> "Tensor":
        """A view of every window of neighbouring elements, whose extents become the last axes."""
        return _trusted(self.buffer, self.layout.sliding_window(window, axis), self.dtype)

    def view(self, dtype: object) -> "Tensor":
        """The same bits read as elements of another format, without moving any.

        A format of the same width keeps the layout. For one of another width, the last axis must be dense; its extent
        becomes extent * pitch / new width, least significant bits first, padding of elements included.

        Args:
            dtype: What `dtypes.of` takes.

        Raises:
            LayoutError: There is no axis; the last one is not dense, or no whole number of new elements; or the new
                elements would not begin at multiples of their own width (for 6 bits: at every second bit).
        """
        row, layout = dtypes.of(dtype), self.layout
        if row.width_bits != layout.width_bits:
            common = math.gcd(row.width_bits, layout.pitch_bits)
            layout = layout.repack(common).repack(row.width_bits, address=self.buffer.address)
        return Tensor(self.buffer, layout, row)

    def copy(self) -> "Tensor":
        """The same elements, dense and row-major, in writable memory of their own; `ops.copy` is the fast way."""
        new = Tensor.empty(self.shape, self.dtype, storage=self.layout.storage)
        elements.copy(self.buffer.array(), self.layout, new.buffer.array(), new.layout)
        return new

    def astype(
        self,
        dtype: object,
        *,
        rounding: str | None = None,
        overflow: str | None = None,
        nan: str | int | None = None,
        inf: str | None = None,
        seed: int | None = None,
        preset: str | None = None,
        out: object = None,
        threads: int | None = None,
    ) -> "Tensor":
        """The elements converted to another dtype by value, with one rounding: `samebits.cast` of this tensor.

        Args:
            dtype: A DType, its name, or a NumPy dtype.
            rounding: As in `samebits.cast`, like everything that follows.
            overflow: What becomes of numbers that are too large.
            nan: What becomes of NaN.
            inf: What becomes of infinities.
            seed: Of stochastic rounding.
            preset: A conversion by name.
            out: A tensor for the result.
            threads: At most so many.

        Raises:
            DTypeError: There is no such conversion, or an element does not fit and `overflow` is `error`.
            OptionError: An option has no such value.
        """
        options = {"rounding": rounding, "overflow": overflow, "nan": nan, "inf": inf, "seed": seed, "preset": preset}
        made: Tensor = demand.taken("cast")(self, dtype, **options, out=out, threads=threads)
        return made

    def to(self, device: Device, *, stream: object = None) -> "Tensor":
        """The same elements in memory of that device, every byte between the first and the last, in the same layout.

        Args:
            device: Where; the tensor itself comes back where it is there already.
            stream: A CUDA stream in whose order to copy, until when both tensors must be kept; by default the copy is
                done when this returns.

        Raises:
            DeviceError: There is no such device here, or no copy to it or from where the tensor is.
        """
        if check_device("Tensor.to", device) == self.device:
            return self
        layout, start, size_bytes = self.layout.rebased()
        buffer = allocate(size_bytes, device=device)
        buffer.copy_from(self.buffer.view(start, size_bytes), stream=stream)
        return Tensor(buffer, layout, self.dtype)

    def values(self) -> npt.NDArray[Any]:
        """The elements as numbers of a dtype of NumPy's own that holds every value of the format exactly; a new array.

        Returns:
            float32 for the narrow floats and bfloat16, int8 or uint8 for the narrow integers, else the same dtype.
        """
        return elements.decode(self._codes(), self.dtype)

    def tolist(self) -> Any:
        """The values as Python numbers in nested lists; a number alone for rank 0."""
        return elements.listed(self.values())

    def item(self) -> float:
        """The one element as a Python number.

        Raises:
            ShapeError: There is not exactly one.
        """
        if self.size != 1:
            raise ShapeError("Tensor.item", "tensor", "size", self.size, 1, "use tolist()")
        number: float = elements.listed(self.values().reshape(()))
        return number

    def equal_bits(self, other: "Tensor") -> bool:
        """Whether dtype, shape and every code point agree, whatever the layouts: exactly where digests do.

        A NaN equals the NaN of the same code, and -0 is not 0.

        Raises:
            OptionError: other is no Tensor.
        """
        _check_tensor("Tensor.equal_bits", "other", other)
        same = self.dtype is other.dtype and self.shape == other.shape
        return same and np.array_equal(self._seen(), other._seen())

    def equal_values(self, other: "Tensor", *, equal_nan: bool = False) -> bool:
        """Whether shapes agree and elements are equal as real numbers; dtypes may differ, and nothing is rounded.

        -0 equals 0, and True equals 1. A NaN equals nothing, or every NaN if `equal_nan`.

        Raises:
            OptionError: other is no Tensor.
        """
        _check_tensor("Tensor.equal_values", "other", other)
        check_flag("Tensor.equal_values", "equal_nan", equal_nan)
        if self.shape != other.shape:
            return False
        x, y = self.values(), other.values()
        equal = elements.same_values(x, y)
        if equal_nan and x.dtype.kind == y.dtype.kind == "f":
            equal |= np.isnan(x) & np.isnan(y)
        return bool(equal.all())

    def numpy(self, *, copy: bool = False) -> npt.NDArray[Any]:
        """A NumPy array of the same memory, of an ml_dtypes dtype where NumPy has none; read-only where this is.

        Args:
            copy: A new, writable array instead; elements packed within bytes get a byte each.

        Raises:
            DTypeError: NumPy has no such dtype, with ml_dtypes either.
            LayoutError: Elements are packed within bytes, and there is to be no copy.
            DeviceError: The host cannot read the memory.
        """
        copy = copy is not False and check_flag("Tensor.numpy", "copy", copy)
        if copy and self.layout.pitch_bits % 8 and self.dtype.numpy is not None:
            return elements.read(self.buffer.array(), self.layout).view(self.dtype.numpy)
        array = to_numpy(self.buffer, self.layout, self.dtype, "Tensor.numpy")
        return array.copy() if copy else array

    def torch(self, *, copy: bool = False) -> Any:
        """A torch tensor of the same memory, or of a dense copy if asked for.

        float4_e2m1fn becomes torch.float4_e2m1fn_x2, whose shape counts pairs along the dense axis.

        Raises:
            ExchangeError: The tensor is read-only, which torch does not keep to, has a negative stride, or is float4
                that does not lie in pairs.
            DTypeError: torch has no such dtype, or one that only names a width; `export` takes its bytes across.
        """
        source = self
        if copy is not False and check_flag("Tensor.torch", "copy", copy):
            is_padded = self.layout.storage == "padded"
            source = _written(self._codes(), self.dtype, "packed", None) if is_padded else self.copy()
        return to_torch(source.buffer, source.layout, source.dtype, "Tensor.torch")

    def jax(self, *, copy: bool | None = None) -> Any:
        """A JAX array of the same memory, which JAX takes as constant; of fewer than 8 bits an element always a copy.

        JAX has float4_e2m1fn, int4, uint4, int2 and uint2 and imports none of them: the packed bytes go in as uint8,
        and `jax.lax.bitcast_convert_type` makes a new array of them. Newer versions have float6 too, a byte each.

        Args:
            copy: True copies always; None where nothing else is possible; False never, but refuses.

        Raises:
            ExchangeError: The tensor is not row-major and dense, or not aligned to 64 bytes, and copy is not True; or
                JAX needs a copy, and copy is False.
            DTypeError: JAX has 64-bit types switched off, or no such dtype.
        """
        source = self.copy() if copy is not None and check_flag("Tensor.jax", "copy", copy) else self
        return to_jax(source.buffer, source.layout, source.dtype, "Tensor.jax", may_copy=copy is not False)

    def export(self, to: Literal["tensor", "numpy", "torch", "jax"], *, copy: bool = False) -> Exported:
        """The bytes as a uint8 array of a library, with the dtype and the layout that it cannot name beside them.

        The array is on this tensor's memory, from its first byte to its last, and may travel as any array of that
        library; `from_exported` makes the tensor whole again.

        Args:
            to: Whose array; `tensor` for a Tensor, which any consumer of DLPack takes.
            copy: Of a dense copy instead.

        Raises:
            ExchangeError: The library cannot share the memory: torch nothing read-only, JAX nothing that is not
                aligned to 64 bytes.
        """
        source = self.copy() if check_flag("Tensor.export", "copy", copy) else self
        layout, start, size_bytes = source.layout.rebased()
        raw = _trusted(source.buffer, Layout((size_bytes,), (8,), start * 8, 8), dtypes.uint8)
        if not isinstance(to, str) or to not in ("tensor", "numpy", "torch", "jax"):
            expected = "'tensor', 'numpy', 'torch' or 'jax'"
            raise OptionError("Tensor.export", "to", "", shown(to), expected, "name one of these")
        array = raw if to == "tensor" else raw.numpy() if to == "numpy" else raw.torch() if to == "torch" else raw.jax()
        return Exported(array, source.dtype, layout)

    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> object:
        """A DLPack capsule of the same memory, or of a copy if asked for.

        Elements of fewer than 8 bits go as the standard's default, packed in one lane, or one byte each with the flag
        that says so; `torch` and `jax` know what those two want instead.

        Args:
            stream: Host memory has no streams: None or -1. Memory of a CUDA device is ready in the order of the legacy
                default stream (None, -1 or 1), and another stream (2, or its handle) waits for that.
            max_version: What the consumer understands; from (1, 0) on the capsule is versioned.
            dl_device: Where the consumer wants it; only where it is already, or the CPU for memory the host can read.
            copy: True copies; False and None share.

        Raises:
            ExchangeError: The tensor cannot be handed over as asked without losing a fact.
            DeviceError: A stream would have to wait, and there is no CUDA driver.
            OptionError: max_version or dl_device is no pair of integers.
        """
        hot.count()
        source = self.copy() if copy is not None and check_flag("Tensor.__dlpack__", "copy", copy) else self
        return to_dlpack(source.buffer, source.layout, source.dtype, stream, max_version, dl_device, copied=bool(copy))

    def __dlpack_device__(self) -> tuple[int, int]:
        """`(device_type, device_id)` of DLPack."""
        return self.device.dlpack

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> npt.NDArray[Any]:
        """NumPy's protocol: the array of `numpy()`, converted or copied as NumPy asks."""
        array = self.numpy(copy=bool(copy))
        if dtype is None:
            return np.array(array, copy=None if copy else copy)
        with driver.default_float_environment():
            return np.array(array, dtype=dtype, copy=None if copy else copy)

    def __array_function__(
        self, func: Callable[..., Any], types: object, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Any:
        """NumPy's protocol for its functions: those that move, compare or store take `numpy()` and give arrays.

        Raises:
            TypeError: The function computes, and its bits would not be those of numerics.md.
        """
        return numpy_functions.called(Tensor, func, args, kwargs)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: object, **options: object) -> NoReturn:
        """NumPy's protocol for `numpy.add` and its like, and for operators with an array on one side: refused.

        Raises:
            TypeError: Always.
        """
        name = f"numpy.{ufunc.__name__}"
        raise numpy_functions.refused(Tensor, name if method == "__call__" else f"{name}.{method}")

    def tobytes(self) -> bytes:
        """The elements in row-major order, each in as few whole bytes as hold it, unused high bits 0."""
        return self._seen().tobytes()

    def digest(self) -> str:
        """SHA-256, in hex, of the dtype's name, the shape and `tobytes()`: equal exactly where all three are.

        Strides, storage and device do not matter.
        """
        import hashlib  # which a start does without

        digest = hashlib.sha256(f"{self.dtype.name} {self.shape}\n".encode())
        digest.update(np.ascontiguousarray(self._seen()).reshape(-1).view(np.uint8).data)
        return digest.hexdigest()

    def __eq__(self, other: object) -> bool:
        """Refused for tensors, arrays and numbers: neither whether two are one object, nor whether bits or values are
        the same, nor an answer for each element would be clear. Nothing else equals a tensor.

        Raises:
            TypeError: `other` could be meant by its values.
        """
        if isinstance(other, numbers.Number | list | tuple) or hasattr(type(other), "__dlpack__"):
            remedy = "ask what you mean: x is y, x.equal_bits(y) or x.equal_values(y)"
            expected = "an object that is no array"
            raise TypeError(message("Tensor ==", "other", "", f"of type {type(other).__name__}", expected, remedy))
        return NotImplemented

    # A tensor is a view, told from others by identity: in a set or as a key each is one of its own.
    __hash__ = object.__hash__

    def __bool__(self) -> bool:
        """Refused: not whether there is a tensor, nor whether its elements are nonzero, would be clear.

        Raises:
            ShapeError: Always.
        """
        remedy = "ask what you mean: tensor is None, tensor.size, or tensor.numpy().any()"
        raise ShapeError("bool", "tensor", "shape", self.shape, "one truth value", remedy)

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

    @driver.default_float_environment()
    def __repr__(self) -> str:
        facts = f"{self.dtype}, shape={self.shape}, {self.device}"
        if self.buffer.is_closed:
            return f"Tensor(closed, {facts})"
        shown = min(self.size, math.prod(min(extent, _EDGES + 1) for extent in self.shape))
        if not self.device.is_host or shown > _SHOWN:
            return f"Tensor({facts})"
        # Of a large tensor NumPy leaves places of its long axes out, and what it leaves out is not read.
        whole = self.size <= _WHOLE
        codes = self._codes() if whole else elements.edges(self.buffer.array(), self.layout, _EDGES // 2)
        values = np.array2string(
            elements.decode(codes, self.dtype), separator=", ", prefix="Tensor(", threshold=_WHOLE if whole else 0
        )
        return f"Tensor({values}, {facts})"

    def _codes(self) -> npt.NDArray[Any]:
        """The code points, unused high bits 0, in a new dense array of `shape`."""
        return elements.read(self.buffer.array(), self.layout)

    def _seen(self) -> npt.NDArray[Any]:
        """The code points, unused high bits 0, of `shape`; perhaps this memory, so not to be written."""
        return elements.seen(self.buffer.array(), self.layout)


# A slot's own setter passes by the frozen class's refusal, at half the cost of object.__setattr__.
_set_buffer, _set_layout, _set_dtype = (Tensor.__dict__[name].__set__ for name in ("buffer", "layout", "dtype"))


def _check_tensor(call: str, name: str, x: object) -> None:
    """Refuse what is no tensor."""
    check_type(call, name, x, Tensor, f"pass Tensor.from_any({name})")


def _trusted(buffer: Buffer, layout: Layout, dtype: DType) -> Tensor:
    """A tensor of facts known to fit each other."""
    tensor = object.__new__(Tensor)
    _set_buffer(tensor, buffer)
    _set_layout(tensor, layout)
    _set_dtype(tensor, dtype)
    return tensor


def in_new_memory(size_bytes: int, layout: Layout, dtype: DType) -> Tensor:
    """A tensor of a layout that takes so many bytes, of arbitrary values, on the host; nothing is checked."""
    return _trusted(allocate(size_bytes), layout, dtype)


# All of so many elements are shown, of more three places at both ends of an axis; nothing of a tensor with so many axes
# that even the summary would be larger than this.
_WHOLE, _EDGES, _SHOWN = 100, 6, 10_000


def _allocated(
    call: str,
    shape: Sequence[SupportsIndex],
    dtype: DType,
    storage: Storage = "packed",
    device: Device | None = None,
    *,
    zero: bool = False,
) -> Tensor:
    """A dense row-major tensor in new memory, bits after the last element 0 where the host can write them."""
    extents = check_extents(f"Tensor.{call}", "shape", shape)
    layout, size_bytes = _dense_layout(extents, dtype, _checked_storage(storage))
    buffer = allocate(size_bytes, zero=zero, device=device)
    if layout.width_bits < 8 and layout.bounds_bits[1] % 8 and buffer.device.is_host:
        buffer.array()[-1] = 0
    return _trusted(buffer, layout, dtype)


def _written(codes: npt.NDArray[Any], dtype: DType, storage: Storage, device: Device | None) -> Tensor:
    """A dense tensor of these code points; for memory that the host cannot write, made on the host and copied."""
    tensor = _allocated("empty", codes.shape, dtype, storage, device)
    if tensor.device.is_host:
        elements.write(tensor.buffer.array(), tensor.layout, codes)
    else:
        tensor.buffer.copy_from(_written(codes, dtype, storage, None).buffer)
    return tensor


def _checked_storage(storage: Storage) -> Storage:
    """A storage that may be looked up: what has no hash is refused as every wrong name is."""
    if type(storage) is not str:
        Layout.dense((), width_bits=1, storage=storage)
    return storage


@lru_cache(maxsize=4096)
def _dense_layout(shape: Shape, dtype: DType, storage: Storage) -> tuple[Layout, int]:
    """The dense row-major layout, and the bytes it takes."""
    layout = Layout.dense(shape, width_bits=dtype.width_bits, storage=storage)
    return layout, layout.required_bytes


def _unpickled(dtype: DType, shape: Shape, storage: Storage, data: Any) -> Tensor:
    """The tensor that a pickle holds, in memory of its own."""
    tensor = Tensor.empty(shape, dtype, storage=storage)
    target, source = tensor.buffer.array(), np.frombuffer(data, np.uint8)
    if source.size != target.size:
        remedy = "pickle it again"
        raise ExchangeError("pickle", "data", "size", f"{source.size} bytes", f"{target.size} bytes", remedy)
    target[:] = source
    return tensor


def _memory_of(x: object, call: str) -> Buffer:
    """The bytes of a dense array of any library, or of what has the buffer protocol."""
    if isinstance(x, Buffer):
        return x
    whole = Tensor.from_any(x, copy=False)
    if not whole.layout.is_contiguous() or whole.layout.offset_bits % 8:
        begins = f" from bit {whole.layout.offset_bits % 8}" if whole.layout.offset_bits % 8 else ""
        actual = f"of shape {whole.shape} with strides_bits {whole.layout.strides_bits}{begins}"
        raise ExchangeError(call, "data", "", actual, "dense", "copy it first")
    buffer = whole.buffer
    if whole.nbytes != buffer.size_bytes:
        return Buffer(whole.address, whole.nbytes, buffer.owner, buffer.device, buffer.read_only)
    return buffer
