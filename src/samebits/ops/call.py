"""What every eager function does around its kernel: operands in, threads chosen, a table run, a result out.

Start at `Call`: it validates, remembers the kind of the first operand, and launches plans.
"""

from __future__ import annotations

import numbers
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from samebits import driver, dtypes, elements
from samebits.codegen import isa as isas
from samebits.codegen.isa import Isa
from samebits.dtypes import DType, float32, float64
from samebits.errors import (
    ClosedError,
    DeviceError,
    DTypeError,
    ExchangeError,
    LayoutError,
    OptionError,
    SamebitsError,
    ShapeError,
    shown,
)
from samebits.kernels.plan import sized
from samebits.kinds import ArrayKind, check_untraced, kind_of, note_written, to_kind
from samebits.layout import Shape
from samebits.memory import CPU
from samebits.native.table import FIXED, RESULT, check_threads
from samebits.ops import memo
from samebits.ops.recipe import CallOperand, Prepared
from samebits.ops.recording import Recording, asked
from samebits.shapes import broadcast_extents
from samebits.tensor import Tensor

# What a number must be that no float64 is near.
WITHIN_FLOAT64 = f"a number within [-{float64.max!r}, {float64.max!r}]"


class Call:
    """One call of a public function: its name for messages, its operands, and the kind of array it gives back."""

    __slots__ = (
        "_asked_by",
        "_given",
        "_indices",
        "_lists",
        "_out",
        "_ran",
        "_recording",
        "isa",
        "kind",
        "name",
        "threads",
    )

    def __init__(self, name: str, first: object, threads: int | None = None) -> None:
        self.name = name
        self.kind: ArrayKind = kind_of(first)
        if self.kind == "torch":
            check_untraced(name)
        self.isa: Isa = isas.current()
        self.threads = check_threads(name, threads)
        self._asked_by, asked.by = asked.by, None
        self._recording = self._asked_by if type(self._asked_by) is Recording else None
        if self._recording is not None:
            self.kind = self._recording.kind
        self._given: list[tuple[str, CallOperand, object]] = []
        self._indices: list[tuple[CallOperand, int]] = []
        self._lists: tuple[str, ...] = ()
        self._out: object = None
        self._ran: list[tuple[Prepared, tuple[CallOperand, ...]]] = []

    def operand(self, name: str, x: object, *dtypes: DType, meant: str = "") -> CallOperand:
        """x as a tensor on the host, whose memory stays until the call ends even if another thread closes its buffer.

        Args:    dtypes: what it may be of, anything if none is given.   meant: how a message calls them all.
        Raises:  DTypeError if its dtype is none of `dtypes` (where any are given), DeviceError if it is elsewhere,
                 ClosedError if its buffer is closed.
        """
        tensor = as_tensor(self.name, name, x)
        if type(x) is list:
            self._lists += (name,)
        if dtypes and tensor.dtype not in dtypes:
            expected = meant or " or ".join(dtype.name for dtype in dtypes)
            raise self.told(DTypeError(self.name, name, "dtype", tensor.dtype.name, expected, "convert it first"))
        if self._recording is not None:
            return CallOperand(tensor, self._recording.number(x))
        buffer = tensor.buffer
        if buffer.device is not CPU and not buffer.device.is_host:
            raise DeviceError(self.name, name, "device", buffer.device, "the host", "copy it to the host")
        if buffer.is_closed:
            raise ClosedError(self.name, name, "buffer", "closed", "open", "close it after its last use")
        number = None if self._asked_by is None else self._asked_by.number(x)
        found = CallOperand(tensor, number)
        self._given.append((name, found, buffer.owner))
        return found

    def told(self, error: DTypeError) -> DTypeError:
        """The error; of an operand that was given as a list of the right kind of numbers it says that their width is
        NumPy's choice."""
        kind = str(error.actual).rstrip("0123456789")
        if error.operand not in self._lists or kind not in str(error.expected):
            return error
        actual, remedy = f"{error.actual}, as NumPy reads a list", "pass an array, which says its dtype"
        return DTypeError(error.call, error.operand, error.fact, actual, error.expected, remedy)

    def constant(self, array: npt.NDArray[Any]) -> CallOperand:
        """An operand made of a Python number among the arguments: the same in every call with these arguments."""
        return CallOperand(Tensor.from_any(array), FIXED)

    def within(self, x: CallOperand, extent: int) -> CallOperand:
        """x, whose elements are in [0, extent), as the caller has seen: such calls alone are remembered by this one."""
        self._indices.append((x, extent))
        return x

    def own(self, tensor: Tensor) -> CallOperand:
        """An operand in memory that was made for this call alone, of which no other call is remembered."""
        return CallOperand(tensor, None)

    def output(
        self, shape: Sequence[int], dtype: DType, out: object = None, shared: Collection[str] | None = None
    ) -> CallOperand:
        """A new dense tensor, or `out` after checking that the result fits in it.

        An operand taken before may be `out` itself, element on element, if its name is one of `shared` (None: any).
        With any other overlap the bits would depend on the order of loads and stores.

        Raises:  ExchangeError, DTypeError, ShapeError or LayoutError if `out` cannot take the result.
        """
        if out is None:
            if self._recording is not None:
                return self._recording.output(shape, dtype)
            return CallOperand(Tensor.empty(shape, dtype), RESULT)
        if isinstance(out, np.generic) or not (isinstance(out, Tensor) or hasattr(type(out), "__dlpack__")):
            remedy = "make one with numpy.empty"
            raise ExchangeError(self.name, "out", "type", type(out).__name__, "an array", remedy)
        operands = [(name, x.tensor) for name, x, _ in self._given]
        target = self.operand("out", out, dtype)
        tensor = target.tensor
        if tensor.shape != tuple(shape):
            raise ShapeError(self.name, "out", "shape", tensor.shape, tuple(shape), "pass an array of that shape")
        if tensor.read_only:
            raise ExchangeError(self.name, "out", "memory", "read-only", "writable", "pass another array")
        if not tensor.layout.is_unique():
            actual, expected = (
                f"{tensor.shape} with strides_bits {tensor.layout.strides_bits}",
                "one with a place for each element",
            )
            raise LayoutError(self.name, "out", "layout", actual, expected, "pass another array")
        for name, x in operands:
            may_be = shared is None or name in shared
            if not (may_be and _is_exactly(x, tensor)) and _overlap(x, tensor):
                whose = "an operand's" if shared is None else " or ".join(f"{name}'s" for name in shared)
                expected = f"its own, or exactly {whose}" if whose else "its own"
                raise LayoutError(self.name, "out", "memory", "that of an operand", expected, "leave out= away")
        self._out = out
        return target

    def broadcast(self, name: str, shape: Shape, other: Shape) -> Shape:
        """The shape that `shape` and the one of operand `name` broadcast to.

        Raises:  ShapeError if there is none.
        """
        if shape == other:
            return shape
        found = broadcast_extents(shape, other)
        if found is None:
            expected = f"one that broadcasts with {shape}"
            raise ShapeError(self.name, name, "shape", other, expected, "reshape it")
        return found

    def number(self, name: str, value: object, dtype: DType = float32) -> float:
        """value rounded once to float32, or to float64.

        Raises:  OptionError if it is no real number, or beyond float64.
        """
        if isinstance(value, bool) or not isinstance(value, numbers.Real):
            raise OptionError(self.name, name, "", shown(value), "a number", "pass a float")
        try:
            # Even float() of a float32 that is subnormal is arithmetic, which may flush it.
            with driver.default_float_environment(), np.errstate(over="ignore"):
                number = elements.as_float(value, dtype)
                return number if dtype is float64 else float(np.float32(number))
        except OverflowError:
            remedy = "pass float('inf') for more"
            raise OptionError(self.name, name, "", "beyond float64", WITHIN_FLOAT64, remedy) from None

    def dtype(self, name: str, x: object) -> DType:
        """The row that an argument names.

        Raises:  DTypeError if it names none.
        """
        return dtypes.named(self.name, name, x)

    def sized(self, work: int, unit: str) -> int:
        """How many threads share this much work: one where a second would cost more than it gives."""
        return sized(self.threads, work, unit)

    def run(self, prepared: Prepared, *operands: CallOperand) -> None:
        """Run a plan on operands in its order."""
        self._ran.append((prepared, operands))
        if self._recording is None:
            prepared.run([x.tensor.address for x in operands])

    def result(self, made: CallOperand) -> Any:
        """The array to return: `out` itself where it was given, else of the first operand's kind.

        Raises:  DTypeError or ExchangeError if that kind has no such format.
        """
        if self._recording is not None:
            return self._recording.finish(self._ran, made)
        try:
            result = to_kind(made.tensor, self.kind) if self._out is None else self._out
        except (DTypeError, ExchangeError) as error:
            remedy = "pass Tensor.from_any of the array, for a Tensor"
            raise type(error)(self.name, "result", error.fact, error.actual, error.expected, remedy) from None
        if isinstance(self._asked_by, memo.Signature) and len(self._ran) == 1:
            ((prepared, operands),) = self._ran
            given = [x for _, x, _ in self._given]
            memo.keep(self._asked_by, self.isa, self.kind, prepared, operands, made, given, result, self._indices)
        self.written()
        return result

    def written(self) -> None:
        """Let autograd know that `out`, where it was given, is written: what refuses a call later says it itself."""
        if self._out is not None:
            note_written(self._out)


def as_tensor(call: str, name: str, x: object) -> Tensor:
    """The operand `name` of a call, on its own memory.

    Raises:  as `Tensor.from_any`, in this call's words.
    """
    try:
        return Tensor.from_any(x)
    except SamebitsError as error:
        given = str(getattr(x, "dtype", "")).removeprefix("torch.")
        if given.startswith("complex"):
            remedy = "pass its real and imaginary parts apart"
            raise DTypeError(call, name, "dtype", given, "real", remedy) from None
        raise error.renamed(call, name if error.operand == "x" else f"{name}'s {error.operand}") from None


def _is_exactly(x: Tensor, y: Tensor) -> bool:
    """Whether element i of x is element i of y, for every i."""
    return (
        x.buffer.address * 8 + x.layout.offset_bits == y.buffer.address * 8 + y.layout.offset_bits
        and x.dtype.width_bits == y.dtype.width_bits
        and x.shape == y.shape
        and (x.layout.strides_bits == y.layout.strides_bits)
    )


def _overlap(x: Tensor, y: Tensor) -> bool:
    """Whether elements of x and y share a bit; also where that is too hard to tell."""
    return x.layout.overlaps(y.layout, (y.buffer.address - x.buffer.address) * 8) is not False
