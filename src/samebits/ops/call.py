"""What every eager function does around its kernel: operands in, threads chosen, a table run, a result out.

Start at `Call`: it validates, remembers the kind of the first operand, and launches plans.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from samebits import driver
from samebits.codegen import isa as isas
from samebits.codegen.isa import Isa
from samebits.dtypes import DType
from samebits.errors import DeviceError, DTypeError, ExchangeError, OptionError, ShapeError, message
from samebits.kernels.plan import Plan
from samebits.kinds import Kind, kind_of, to_kind
from samebits.native import scratch
from samebits.native.table import Table
from samebits.tensor import Tensor

# Work, in elements or multiply-adds, below which a second thread costs more than it gives (about 20 us of one core).
SMALL = {"elements": 1 << 16, "products": 1 << 20}


class Call:
    """One call of a public function: its name for messages, its operands, and the kind of array it gives back."""

    __slots__ = ("isa", "kind", "name", "threads")

    def __init__(self, name: str, first: object, threads: int | None = None) -> None:
        self.name = name
        self.kind: Kind = kind_of(first)
        self.isa: Isa = isas.current()
        self.threads = _check_threads(name, threads)

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

    def result(self, tensor: Tensor, out: object = None) -> Any:
        """The array to return: `out` itself where it was given, else of the first operand's kind."""
        return out if out is not None else to_kind(tensor, self.kind)


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

    def run(self, *operands: Tensor) -> None:
        """Run the plan on operands in its order."""
        workspace = scratch.take(self.workspace_bytes)
        self.table.run([*(x.address for x in operands), workspace.address])
        scratch.give(workspace)
