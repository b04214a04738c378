"""What an eager call runs, and where it has its operands from: all that a call like it needs to know.

Start at `CallOperand`, which goes from the arguments of a call to what it runs.
"""

from __future__ import annotations

from samebits import dtypes
from samebits.dtypes import DType
from samebits.kernels import spread
from samebits.kernels.plan import Plan
from samebits.layout import Layout, Shape
from samebits.native import scratch
from samebits.native.table import alone
from samebits.operations.lying import Lying
from samebits.tensor import Tensor

__all__ = ["CallOperand", "Prepared"]


class Prepared:
    """A plan with its table: what the caches of the eager functions hold."""

    __slots__ = ("plan", "table", "workspace_bytes")

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.table = alone(plan)
        self.workspace_bytes = plan.workspace_bytes

    def run(self, addresses: list[int]) -> None:
        """Run the plan on operands at these addresses, in its order."""
        workspace = scratch.take(self.workspace_bytes)
        addresses.append(workspace.address)
        self.table.run(addresses)
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
