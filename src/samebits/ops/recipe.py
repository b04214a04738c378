"""What an eager call runs, and where it has its operands from: all that a call like it needs to know.

Start at `CallOperand`, which goes from the arguments of a call to what it runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from samebits import dtypes
from samebits.dtypes import DType
from samebits.kernels import spread
from samebits.kernels.plan import Plan
from samebits.layout import Layout, Shape
from samebits.native import scratch
from samebits.native.table import FIXED, CallPlace, Table, alone
from samebits.operations.lying import Lying
from samebits.tensor import Tensor

__all__ = ["CallOperand", "Prepared", "alignment", "places_of"]


class Prepared:
    """A plan with its table: what the caches of the eager functions hold."""

    __slots__ = ("_table", "plan", "workspace_bytes")

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self._table: Table | None = None
        self.workspace_bytes = plan.workspace_bytes

    @property
    def table(self) -> Table:
        """Its table, made when it is first needed: a plan on a tape has none."""
        if self._table is None:
            self._table = alone(self.plan)
        return self._table

    def run(self, addresses: list[int]) -> None:
        """Run the plan on operands at these addresses, in its order."""
        workspace = scratch.take(self.workspace_bytes)
        addresses.append(workspace.address)
        (self._table or self.table).run(addresses)
        scratch.give(workspace)


class CallOperand:
    """An operand of a call, or its result.

    Attributes:
        tensor: Its elements.
        number: The array among the arguments that it is, or is a view of; `FIXED` if it is the same in every call with
            these arguments; `RESULT`; None where no other call has such memory.
    """

    __slots__ = ("number", "tensor")

    def __init__(self, tensor: Tensor, number: int | None) -> None:
        self.tensor = tensor
        self.number = number

    @property
    def dtype(self) -> DType:
        """Its element format."""
        return self.tensor.dtype

    @property
    def shape(self) -> Shape:
        """Its extents."""
        return self.tensor.layout.shape

    @property
    def start(self) -> int:
        """The byte of its buffer in which its first element begins; the buffer itself may be closed by now."""
        return self.tensor.layout.offset_bits >> 3

    @property
    def lying(self) -> Lying:
        """The fact of it."""
        layout = self.tensor.layout
        return Lying(self.tensor.dtype, layout) if layout.offset_bits < 8 else Lying.of(self.tensor.dtype, layout)

    def seen(self, view: Tensor) -> CallOperand:
        """A view of it."""
        return CallOperand(view, self.number)

    def in_bytes(self) -> CallOperand:
        """The operand as plans take it: itself, or the byte in which its first element begins if it is packed."""
        layout = self.tensor.layout
        if not layout.size or not spread.is_packed(layout):
            return self
        first = Layout((1,), (8,), layout.offset_bits // 8 * 8, 8)
        return self.seen(Tensor(self.tensor.buffer, first, dtypes.uint8))


def places_of(operands: Sequence[CallOperand], starts: Mapping[int, int]) -> list[CallPlace] | None:
    """Where a call like this one has the operands of its plan from; None if one is in memory of this call alone.

    Args:    starts: of arrays by number where they start; 0 for those that are left out.
    """
    found = list[CallPlace]()
    for x in operands:
        if x.number is None:
            return None
        start = x.tensor.address if x.number == FIXED else x.start - starts.get(x.number, 0)
        found.append((x.number, start))
    return found


def alignment(operands: Sequence[CallOperand]) -> int:
    """Bytes of which the address of each array is to be a multiple."""
    return max(1, *[x.tensor.layout.pitch_bits >> 3 for x in operands])
