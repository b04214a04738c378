"""What a tensor is: a buffer, a layout and a dtype that fit each other, and what follows from them.

Start at `TensorFacts`, which all that a tensor does stands on.
"""

from dataclasses import field
from typing import Self

from samebits.dtypes import DType
from samebits.errors import LayoutError, OptionError
from samebits.frozen import dataclass
from samebits.layout import Layout, Shape
from samebits.memory import Buffer, Device
from samebits.shapes import check_type

__all__ = ["TensorFacts", "check_tensor"]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class TensorFacts:
    """The fields of a `Tensor`.

    Attributes:
        buffer: The bytes.
        layout: Where in them each element is.
        dtype: What an element's bits mean.
    """

    # What is left out is refused as what is of another class.
    buffer: Buffer = None  # type: ignore[assignment]
    layout: Layout = None  # type: ignore[assignment]
    dtype: DType = None  # type: ignore[assignment]
    # Shape and strides as C reads them; native code makes them when it is first asked.
    _extents: bytes = field(init=False, repr=False)

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
    def _trusted(cls, buffer: Buffer, layout: Layout, dtype: DType) -> Self:
        """A Tensor of facts known to fit each other, whatever class asks."""
        raise NotImplementedError

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


# What Python's own refusals of arguments name.
TensorFacts.__init__.__qualname__ = "Tensor.__init__"


def check_tensor(call: str, name: str, x: object) -> None:
    """Refuse what is no tensor."""
    if not isinstance(x, TensorFacts):
        raise OptionError(call, name, "type", type(x).__name__, "Tensor", f"pass Tensor.from_any({name})")
