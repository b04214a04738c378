"""Tensors from what others made, from numbers, and in new memory.

Start at `TensorCreation.from_any`, which takes what others made, and `TensorCreation.empty`.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Self, SupportsIndex, cast

import numpy as np
import numpy.typing as npt

from samebits import dtypes, elements, hot
from samebits.dlpack import Producer, receive
from samebits.dtypes import DType
from samebits.errors import ExchangeError, LayoutError
from samebits.exchange import incoming
from samebits.exchange.incoming import check_torch, facts_of, from_numpy
from samebits.exchange.outgoing import Exported
from samebits.layout import Layout, Shape, Storage
from samebits.memory import Buffer, Device, allocate
from samebits.shapes import check_extents, check_flag, check_type
from samebits.tensor.facts import TensorFacts, check_tensor

__all__ = ["TensorCreation", "dense_layout"]


class TensorCreation(TensorFacts):
    """The methods of `Tensor` that make one."""

    __slots__ = ()

    @classmethod
    def from_any(cls, x: object, *, copy: bool | None = None) -> Self:
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
            return cls._trusted(*from_numpy(x, "Tensor.from_any"))
        if isinstance(x, TensorFacts):
            return cast(Self, x)
        if incoming.is_jax_narrow(x):
            return cls._trusted(*incoming.from_jax_narrow(x, "Tensor.from_any", may_copy=copy is not False))
        if copy is False and not incoming.is_shared(x):
            expected, remedy = "one whose memory can be shared", "leave copy=False out"
            raise ExchangeError("Tensor.from_any", "x", "type", type(x).__name__, expected, remedy)
        return cls._trusted(*facts_of(x, "Tensor.from_any"))

    @classmethod
    def from_dlpack(cls, x: Producer) -> Self:
        """x as a tensor, sharing its memory through DLPack, in whichever way it writes elements of fewer than 8 bits.

        Raises:
            DTypeError: Its elements are of no row of `dtypes.ROWS`.
            ExchangeError: What x hands over breaks the protocol, or is on a device that cannot be named.
        """
        hot.count()
        check_torch(x, "Tensor.from_dlpack")
        return cls._trusted(*receive(x, "Tensor.from_dlpack"))

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
    ) -> Self:
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
        row = dtypes.named("Tensor.from_buffer", "dtype", dtype)
        if strides is None:
            extents = check_extents("Tensor.from_buffer", "shape", shape)
            strides = Layout.dense(extents, width_bits=row.width_bits, storage=storage).strides
        layout = Layout.from_strides(shape, strides, offset, width_bits=row.width_bits, storage=storage)
        return cls(data if isinstance(data, Buffer) else cls._memory_of(data, "Tensor.from_buffer"), layout, row)

    @classmethod
    def from_bytes(
        cls, data: object, dtype: object, shape: Sequence[SupportsIndex], *, storage: Storage = "packed"
    ) -> Self:
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
        tensor = cls._allocated("from_bytes", shape, dtypes.named("Tensor.from_bytes", "dtype", dtype), storage)
        source = cls._memory_of(data, "Tensor.from_bytes")
        if source.size_bytes != tensor.buffer.size_bytes:
            expected = f"{tensor.buffer.size_bytes} bytes for {tensor.dtype} of shape {tensor.shape}, {storage}"
            actual, remedy = f"{source.size_bytes} bytes", "use from_buffer for a part of it"
            raise LayoutError("Tensor.from_bytes", "data", "size", actual, expected, remedy)
        tensor.buffer.array()[:] = source.array()
        return tensor

    @classmethod
    def from_exported(cls, exported: Exported) -> Self:
        """The tensor that `export` took apart, on the memory of its bytes, wherever they have been since.

        Raises:
            OptionError: It is none of `export`.
            ExchangeError: The bytes are not those of a dense array.
            LayoutError: The layout does not fit them or their address.
        """
        check_type("Tensor.from_exported", "exported", exported, Exported, "pass what Tensor.export gave")
        return cls(cls._memory_of(exported.bytes, "Tensor.from_exported"), exported.layout, exported.dtype)

    @classmethod
    def empty(
        cls,
        shape: Sequence[SupportsIndex],
        dtype: object = dtypes.float32,
        *,
        storage: Storage = "packed",
        device: Device | None = None,
    ) -> Self:
        """A dense row-major tensor, aligned to 64 bytes, of arbitrary values.

        Args:
            shape: Extents.
            dtype: What `dtypes.of` takes.
            storage: `packed`, or `padded`: elements of fewer than 8 bits take a byte each. Others are the same in both.
            device: Where; by default on the host.

        Raises:
            DeviceError: There is no such device here.
        """
        return cls._allocated("empty", shape, dtypes.named("Tensor.empty", "dtype", dtype), storage, device)

    @classmethod
    def zeros(
        cls,
        shape: Sequence[SupportsIndex],
        dtype: object = dtypes.float32,
        *,
        storage: Storage = "packed",
        device: Device | None = None,
    ) -> Self:
        """As `empty`, of code points 0, which is the value 0 in every format that has it."""
        row = dtypes.named("Tensor.zeros", "dtype", dtype)
        return cls._allocated("zeros", shape, row, storage, device, zero=True)

    @classmethod
    def full(
        cls,
        shape: Sequence[SupportsIndex],
        value: float,
        dtype: object = dtypes.float32,
        *,
        storage: Storage = "packed",
        device: Device | None = None,
    ) -> Self:
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
        return cls._filled("Tensor.full", shape, value, dtype, storage, device)

    @classmethod
    def ones(
        cls,
        shape: Sequence[SupportsIndex],
        dtype: object = dtypes.float32,
        *,
        storage: Storage = "packed",
        device: Device | None = None,
    ) -> Self:
        """As `empty`, every element 1.

        Raises:
            DTypeError: The format does not have 1, as int1.
        """
        return cls._filled("Tensor.ones", shape, 1, dtype, storage, device)

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
    ) -> Self:
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
        given = ("int64" if whole else "float32") if dtype is None else dtype
        row = dtypes.named("Tensor.arange", "dtype", given)
        return cls._written(elements.arange(start, stop, step, row, "Tensor.arange"), row, storage, device)

    @classmethod
    def empty_like(cls, x: Self, *, dtype: object = None, device: Device | None = None) -> Self:
        """A dense row-major tensor of arbitrary values with x's shape and storage and, unless given, dtype and device.

        Raises:
            DeviceError: There is no such device here.
        """
        check_tensor("Tensor.empty_like", "x", x)
        row = x.dtype if dtype is None else dtypes.named("Tensor.empty_like", "dtype", dtype)
        return cls._allocated("empty_like", x.shape, row, x.layout.storage, x.device if device is None else device)

    @classmethod
    def zeros_like(cls, x: Self, *, dtype: object = None, device: Device | None = None) -> Self:
        """As `empty_like`, of code points 0."""
        check_tensor("Tensor.zeros_like", "x", x)
        row = x.dtype if dtype is None else dtypes.named("Tensor.zeros_like", "dtype", dtype)
        where = x.device if device is None else device
        return cls._allocated("zeros_like", x.shape, row, x.layout.storage, where, zero=True)

    @classmethod
    def full_like(cls, x: Self, value: float, *, dtype: object = None, device: Device | None = None) -> Self:
        """As `empty_like`, every element the value, as in `full`."""
        check_tensor("Tensor.full_like", "x", x)
        row, where = x.dtype if dtype is None else dtype, x.device if device is None else device
        return cls._filled("Tensor.full_like", x.shape, value, row, x.layout.storage, where)

    @classmethod
    def ones_like(cls, x: Self, *, dtype: object = None, device: Device | None = None) -> Self:
        """As `empty_like`, every element 1, as in `ones`."""
        check_tensor("Tensor.ones_like", "x", x)
        row, where = x.dtype if dtype is None else dtype, x.device if device is None else device
        return cls._filled("Tensor.ones_like", x.shape, 1, row, x.layout.storage, where)

    def copy(self) -> Self:
        """The same elements, dense and row-major, in writable memory of their own; `ops.copy` is the fast way."""
        new = self.empty(self.shape, self.dtype, storage=self.layout.storage)
        elements.copy(self.buffer.array(), self.layout, new.buffer.array(), new.layout)
        return new

    @classmethod
    def _allocated(
        cls,
        call: str,
        shape: Sequence[SupportsIndex],
        dtype: DType,
        storage: Storage = "packed",
        device: Device | None = None,
        *,
        zero: bool = False,
    ) -> Self:
        """A dense row-major tensor in new memory, bits after the last element 0 where the host can write them."""
        extents = check_extents(f"Tensor.{call}", "shape", shape)
        layout, size_bytes = dense_layout(extents, dtype, _checked_storage(storage))
        buffer = allocate(size_bytes, zero=zero, device=device)
        if layout.width_bits < 8 and layout.bounds_bits[1] % 8 and buffer.device.is_host:
            buffer.array()[-1] = 0
        return cls._trusted(buffer, layout, dtype)

    @classmethod
    def _filled(
        cls, call: str, shape: Sequence[SupportsIndex], value: float, dtype: object, storage: Storage,
        device: Device | None,
    ) -> Self:  # fmt: skip
        """A dense tensor whose every element is the value."""
        row = dtypes.named(call, "dtype", dtype)
        code, extents = elements.code_of(value, row, call), check_extents(call, "shape", shape)
        dense_layout(extents, row, _checked_storage(storage))
        return cls._written(np.broadcast_to(code, extents), row, storage, device)

    @classmethod
    def _written(cls, codes: npt.NDArray[Any], dtype: DType, storage: Storage, device: Device | None) -> Self:
        """A dense tensor of these code points; for memory that the host cannot write, made on the host and copied."""
        tensor = cls._allocated("empty", codes.shape, dtype, storage, device)
        if tensor.device.is_host:
            elements.write(tensor.buffer.array(), tensor.layout, codes)
        else:
            tensor.buffer.copy_from(cls._written(codes, dtype, storage, None).buffer)
        return tensor

    @classmethod
    def _memory_of(cls, x: object, call: str) -> Buffer:
        """The bytes of a dense array of any library, or of what has the buffer protocol."""
        if isinstance(x, Buffer):
            return x
        whole = cls.from_any(x, copy=False)
        if not whole.layout.is_contiguous() or whole.layout.offset_bits % 8:
            begins = f" from bit {whole.layout.offset_bits % 8}" if whole.layout.offset_bits % 8 else ""
            actual = f"of shape {whole.shape} with strides_bits {whole.layout.strides_bits}{begins}"
            raise ExchangeError(call, "data", "", actual, "dense", "copy it first")
        buffer = whole.buffer
        if whole.nbytes != buffer.size_bytes:
            return Buffer(whole.address, whole.nbytes, buffer.owner, buffer.device, buffer.read_only)
        return buffer


def _checked_storage(storage: Storage) -> Storage:
    """A storage that may be looked up: what has no hash is refused as every wrong name is."""
    if type(storage) is not str:
        Layout.dense((), width_bits=1, storage=storage)
    return storage


@lru_cache(maxsize=4096)
def dense_layout(shape: Shape, dtype: DType, storage: Storage) -> tuple[Layout, int]:
    """The dense row-major layout, and the bytes it takes."""
    layout = Layout.dense(shape, width_bits=dtype.width_bits, storage=storage)
    return layout, layout.required_bytes
