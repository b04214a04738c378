"""Where a value of a lowered program lies. Start at `Place`."""

from __future__ import annotations

from samebits.dtypes import DType
from samebits.frozen import dataclass, replace
from samebits.operations.operation import Shape, View
from samebits.operations.packing import AnyView
from samebits.operations.strided import Strided

__all__ = ["Place"]


@dataclass(frozen=True, slots=True)
class Place:
    """Where a value lies: elements of `dtype`, `strided` over the bytes of `storage`.

    Elements of fewer than 8 bits have a byte each, unless they are packed, as in constants, inputs and outputs that are
    packed and in views of them: what a kernel makes has a byte an element.
    """

    storage: int
    dtype: DType
    strided: Strided
    is_packed: bool = False

    @property
    def pitch_bits(self) -> int:
        """Bits from an element to the next."""
        return self.dtype.width_bits if self.is_packed else 8 * self.dtype.element_bytes

    @property
    def offset_bytes(self) -> int:
        """Bytes from the start of its storage."""
        return self.strided.offset * self.pitch_bits // 8

    @property
    def view(self) -> View:
        """How it lies where it has one stride an axis; packed as if it had bytes."""
        strides = self.strided.strides
        assert strides is not None  # asked of plain and of defined places alone
        return self.dtype, self.strided.shape, strides

    def lies(self, shape: Shape, strides: Shape) -> AnyView:
        """How it lies over a shape with these strides, in elements."""
        if not self.is_packed:
            return self.dtype, shape, strides
        pitch = self.pitch_bits
        return self.dtype, shape, tuple([step * pitch for step in strides]), self.strided.offset * pitch % 8

    def wide(self, shape: Shape) -> Place:
        """The place repeated to a shape."""
        return self if self.strided.shape == shape else replace(self, strided=self.strided.expand(shape))
