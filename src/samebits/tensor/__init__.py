"""The tensor: a buffer, a layout and a dtype, which say together what bytes mean.

Start at `Tensor`. A tensor is a view: its facts never change, none of its methods computes on elements, and what reads
or moves them here goes through `elements`, which takes every layout; `ops` has the fast ways.
"""

import pickle
from collections.abc import Callable, Mapping, Sequence
from types import FunctionType
from typing import Any, Literal, NoReturn, SupportsIndex

import numpy as np
import numpy.typing as npt

from samebits import demand, driver, dtypes, elements, hot, numpy_functions
from samebits.dtypes import DType
from samebits.errors import ExchangeError, OptionError, shown
from samebits.exchange.outgoing import Exported, to_dlpack, to_jax, to_numpy, to_torch
from samebits.layout import Layout, Shape, Storage
from samebits.memory import Buffer, Device, allocate
from samebits.memory.device import check_device
from samebits.shapes import check_flag
from samebits.tensor.creation import TensorCreation, dense_layout
from samebits.tensor.facts import TensorFacts
from samebits.tensor.values import TensorValues
from samebits.tensor.views import TensorViews

__all__ = ["Tensor"]


# A slot's own setter passes by the frozen class's refusal, at half the cost of object.__setattr__.
_set_buffer, _set_layout, _set_dtype = (TensorFacts.__dict__[name].__set__ for name in ("buffer", "layout", "dtype"))


def _trusted(buffer: Buffer, layout: Layout, dtype: DType) -> "Tensor":
    tensor = object.__new__(Tensor)
    _set_buffer(tensor, buffer)
    _set_layout(tensor, layout)
    _set_dtype(tensor, dtype)
    return tensor


class _ExchangeApi:
    """The capsule of C functions that other libraries look for on the class; asking for it has it made."""

    def __get__(self, instance: object, owner: "type[Tensor]") -> object:
        hot.act()
        found = vars(Tensor)["__dlpack_c_exchange_api__"]
        if found is self:
            raise AttributeError("Tensor has no __dlpack_c_exchange_api__ here; use __dlpack__")
        return found


class Tensor(TensorCreation, TensorViews, TensorValues):
    """element(i, j, ...) = dtype.decode(the width_bits bits of buffer at layout's place of (i, j, ...)).

    `Tensor.from_any(x)` is one of an array, a list or a number, `zeros`, `full` and `arange` make new ones, and
    `from_buffer` gives bytes their meaning.

    Attributes:
        buffer: The bytes.
        layout: Where in them each element is.
        dtype: What an element's bits mean.
    """

    __slots__ = ()
    __dlpack_c_exchange_api__ = _ExchangeApi()
    # Static, which takes less time to call.
    _trusted = staticmethod(_trusted)

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
            source = self._written(self._codes(), self.dtype, "packed", None) if is_padded else self.copy()
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
        raw = self._trusted(source.buffer, Layout((size_bytes,), (8,), start * 8, 8), dtypes.uint8)
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
        """NumPy's protocol: the array of `numpy()`, converted or copied as NumPy asks.

        Of elements packed within bytes there is only a copy, an element a byte. It is read-only where NumPy asked for
        none, as by `numpy.asarray`: what is written into it would not reach the tensor.
        """
        is_packed = copy is None and self.layout.pitch_bits % 8 != 0
        array = self.numpy(copy=is_packed or bool(copy))
        if is_packed:
            array.flags.writeable = False
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

    def __copy__(self) -> "Tensor":
        return self

    def __reduce_ex__(self, protocol: SupportsIndex) -> tuple[Any, ...]:
        """A pickle holds the value: dtype, shape, storage and bytes. It comes back dense, writable and on the host.

        From protocol 5 on, a dense tensor's bytes may travel out of band, without a copy on this side.
        """
        layout = self.layout
        dense, size_bytes = dense_layout(self.shape, self.dtype, layout.storage)
        is_clean = not layout.width_bits % 8 and layout == dense
        source = self if is_clean else self.copy()
        data = source.buffer.array()[:size_bytes]
        carried = pickle.PickleBuffer(data.data) if int(protocol) >= 5 else data.tobytes()
        return _unpickled, (self.dtype, self.shape, layout.storage, carried)


# What Python says of a method, in an error or in a pickle, names Tensor and this module, wherever it is written.
for _base in (TensorCreation, TensorViews, TensorValues):
    for _member in vars(_base).values():
        _function = getattr(_member, "__func__", _member)
        if isinstance(_function, FunctionType):
            _function.__module__, _function.__qualname__ = __name__, f"Tensor.{_function.__name__}"


def in_new_memory(size_bytes: int, layout: Layout, dtype: DType) -> Tensor:
    """A tensor of a layout that takes so many bytes, of arbitrary values, on the host; nothing is checked."""
    return _trusted(allocate(size_bytes), layout, dtype)


def _unpickled(dtype: DType, shape: Shape, storage: Storage, data: Any) -> Tensor:
    """The tensor that a pickle holds, in memory of its own."""
    tensor = Tensor.empty(shape, dtype, storage=storage)
    target, source = tensor.buffer.array(), np.frombuffer(data, np.uint8)
    if source.size != target.size:
        remedy = "pickle it again"
        raise ExchangeError("pickle", "data", "size", f"{source.size} bytes", f"{target.size} bytes", remedy)
    target[:] = source
    return tensor
