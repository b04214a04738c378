"""What every eager function does around its kernel: operands in, threads chosen, a table run, a result out.

Start at `Call`: it validates, remembers the kind of the first operand, and launches plans.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Sequence
from typing import Any, ParamSpec, TypeVar

import numpy as np

from samebits import driver
from samebits.codegen import isa as isas
from samebits.codegen.isa import Isa
from samebits.dtypes import DType
from samebits.errors import DeviceError, DTypeError, ExchangeError, OptionError, ShapeError, message
from samebits.kernels.plan import Plan
from samebits.kinds import Kind, kind_of, to_kind
from samebits.memory import address_of
from samebits.native import scratch
from samebits.native.table import Table
from samebits.tensor import Tensor

# Work, in elements or multiply-adds, below which a second thread costs more than it gives (about 20 us of one core).
SMALL = {"elements": 1 << 16, "products": 1 << 20}


class Call:
    """One call of a public function: its name for messages, its operands, and the kind of array it gives back."""

    __slots__ = ("_given", "_ran", "_signature", "isa", "kind", "name", "threads")

    def __init__(self, name: str, first: object, threads: int | None = None) -> None:
        self.name = name
        self.kind: Kind = kind_of(first)
        self.isa: Isa = isas.current()
        self.threads = _check_threads(name, threads)
        self._signature, _asked.signature = _asked.signature, None
        self._given: list[tuple[object, Tensor]] = []
        self._ran: list[tuple[Prepared, tuple[Tensor, ...]]] = []

    def operand(self, name: str, x: object, *dtypes: DType) -> Tensor:
        """x as a tensor on the host.

        Raises:  DTypeError if its dtype is none of `dtypes` (where any are given), DeviceError if it is elsewhere.
        """
        tensor = Tensor.from_any(x)
        if dtypes and tensor.dtype not in dtypes:
            expected = " or ".join(dtype.name for dtype in dtypes)
            raise DTypeError(message(self.name, name, "dtype", tensor.dtype.name, expected, "convert it first"))
        if not tensor.device.is_host:
            raise DeviceError(message(self.name, name, "device", tensor.device, "the host", "copy it to the host"))
        self._given.append((x, tensor))
        return tensor

    def output(self, shape: Sequence[int], dtype: DType, out: object = None, name: str = "out") -> Tensor:
        """A new dense tensor, or `out` after checking that the result fits in it.

        Raises:  ShapeError, DTypeError or ExchangeError if `out` cannot take the result.
        """
        if out is None:
            return Tensor.empty(shape, dtype)
        tensor = self.operand(name, out, dtype)
        if tensor.shape != tuple(shape):
            raise ShapeError(
                message(self.name, name, "shape", tensor.shape, tuple(shape), "pass an array of that shape")
            )
        if tensor.read_only:
            raise ExchangeError(message(self.name, name, "memory", "read-only", "writable", "pass another array"))
        return tensor

    def sized(self, work: int, unit: str) -> int:
        """How many threads share this much work: one where a second would cost more than it gives."""
        return self.threads if work >= SMALL[unit] else 1

    def run(self, prepared: Prepared, *operands: Tensor) -> None:
        """Run a plan on operands in its order."""
        self._ran.append((prepared, operands))
        prepared.run([x.address for x in operands])

    def result(self, tensor: Tensor, out: object = None) -> Any:
        """The array to return: `out` itself where it was given, else of the first operand's kind."""
        if out is not None:
            return out
        if self._signature is not None and len(self._ran) == 1:
            self._remember(*self._signature, tensor)
        return to_kind(tensor, self.kind)

    def _remember(self, key: Any, arrays: list[Any], result: Tensor) -> None:
        """Let the next such call skip to the table. Of this call's arrays only their places are kept, and nothing where
        one array came twice, since the next call may bring two."""
        position = {id(x): i for i, x in enumerate(arrays)}
        if len(position) < len(arrays) or result.dtype.numpy is None:
            return
        known = {id(tensor.buffer): (position.get(id(x)), tensor.address) for x, tensor in self._given}
        known[id(result.buffer)] = (len(arrays), result.address)
        ((prepared, operands),) = self._ran
        places: list[int] = []
        for x in operands:
            place, address = known.get(id(x.buffer), (None, 0))
            if place is None or x.address != address:
                return
            places.append(place)
        if len(_memos) >= _MEMOS:
            _memos.clear()
        _memos[key] = _Memo(prepared, tuple(places), result.shape, result.dtype.numpy)


class _Memo:
    """What a call with known dtypes, shapes, strides and options runs."""

    __slots__ = ("dtype", "places", "prepared", "shape")

    def __init__(self, prepared: Prepared, places: tuple[int, ...], shape: tuple[int, ...], dtype: Any) -> None:
        self.prepared, self.places, self.shape, self.dtype = prepared, places, shape, dtype

    def run(self, arrays: list[Any]) -> Any:
        """The result for other arrays of the same signature, in the order in which the call took them."""
        out = np.empty(self.shape, self.dtype)
        found = [address_of(x) for x in arrays]
        found.append(address_of(out))
        self.prepared.run([found[place] for place in self.places])
        return out


class _Asked(threading.local):
    """The key and arrays of the call that `remembered` is about to make, for its `Call` to pick up."""

    signature: tuple[Any, list[Any]] | None = None


_MEMOS = 4096
_memos: dict[Any, _Memo] = {}
_asked = _Asked()
P = ParamSpec("P")
R = TypeVar("R")


def remembered(function: Callable[P, R]) -> Callable[P, R]:
    """`function`, except that a call on NumPy arrays like one before (dtypes, shapes, strides, options, Isa row) goes
    straight to that call's table: validation and planning have given the same answer already.
    """

    @functools.wraps(function)
    def wrapper(*arguments: P.args, **options: P.kwargs) -> R:
        arrays: list[Any] = []
        key: list[Any] = [function, isas.current(), *options]
        for value in (*arguments, *options.values()):
            kind = type(value)
            if kind is np.ndarray:
                arrays.append(value)
                key += (value.dtype, value.shape, value.strides)  # type: ignore[attr-defined]
            elif kind in _PLAIN:
                key += (kind, repr(value) if kind is float else value)
            else:
                return function(*arguments, **options)
        if options.get("out") is not None:
            return function(*arguments, **options)
        whole = tuple(key)
        memo = _memos.get(whole)
        if memo is not None:
            return memo.run(arrays)  # type: ignore[no-any-return]
        _asked.signature = (whole, arrays)
        try:
            return function(*arguments, **options)
        finally:
            _asked.signature = None

    return wrapper


_PLAIN = frozenset([int, float, str, bool, type(None)])


def _check_threads(name: str, threads: int | None) -> int:
    cores = driver.usable_cores()
    if threads is None:
        return cores
    if isinstance(threads, bool) or not isinstance(threads, int) or not 1 <= threads <= 255:
        raise OptionError(
            message(name, "threads", "", repr(threads), "an integer from 1 to 255", "leave it out for every core")
        )
    return threads


@functools.lru_cache(maxsize=1024)
def _table(plan: Plan) -> Table:
    slots = len(plan.operands) + 1
    return Table([(plan, range(slots))], slots, plan.threads)


class Prepared:
    """A plan with its table: what the caches of the eager functions hold."""

    __slots__ = ("plan", "table", "workspace_bytes")

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.table = _table(plan)
        self.workspace_bytes = plan.workspace_bytes

    def run(self, addresses: list[int]) -> None:
        """Run the plan on operands at these addresses, in its order."""
        workspace = scratch.take(self.workspace_bytes)
        addresses.append(workspace.address)
        self.table.run(addresses)
        scratch.give(workspace)
