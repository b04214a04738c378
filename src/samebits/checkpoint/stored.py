"""What a file says of one tensor: its format, its shape, and where its bytes are. Start at `StoredTensor`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeAlias

from samebits.dtypes import DType
from samebits.errors import DTypeError, LayoutError, ModelError
from samebits.frozen import dataclass
from samebits.layout import Layout
from samebits.layout.checks import Storage

__all__ = ["MEMBER", "Refuse", "StoredTensor", "refusing"]

# The member of an .npz that holds the free text, and what of our own there is to say.
MEMBER = "samebits.json"

Refuse: TypeAlias = Callable[[str, object, object], ModelError]
"""Makes the error for a fact of a file that is not what it must be."""


def refusing(call: str, what: str, remedy: str) -> Refuse:
    """What makes the errors of one file.

    Args:    call: the public function.   what: the file, as a message names it.   remedy: what to do about all of them.
    """

    def refuse(fact: str, actual: object, expected: object) -> ModelError:
        return ModelError(call, what, fact, actual, expected, remedy)

    return refuse


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """One tensor of a file.

    Attributes:
        name: What the file calls it.
        dtype: Its format; None where no row of `dtypes.ROWS` is what the file says.
        shape: Extents in elements.
        stored: The file's own word for the format: `F8_E4M3`, `U8`, `<u2`.
        offset: Where in the file its first byte is; None where the file has it compressed.
        size_bytes: How many bytes it takes there, uncompressed.
        order: `C`, row-major; `F`, first axis fastest.
        storage: `packed`, or `padded`: elements of fewer than 8 bits take a byte each.
    """

    name: str
    dtype: DType | None
    shape: tuple[int, ...]
    stored: str
    offset: int | None
    size_bytes: int
    order: Literal["C", "F"] = "C"
    storage: Storage = "packed"

    def format(self, call: str) -> DType:
        """The row of its format.

        Raises:  DTypeError, in the name of `call`, if there is none.
        """
        if self.dtype is None:
            remedy = "convert it where it was written" if self.stored != "C64" else "store its real and imaginary parts"
            raise DTypeError(call, f"tensor {self.name!r}", "format", self.stored, "an element format", remedy)
        return self.dtype

    def layout(self, call: str) -> Layout:
        """How its elements lie from its first byte on.

        Raises:  DTypeError, in the name of `call`, as for `format`; LayoutError if no layout has such a shape.
        """
        width = self.format(call).width_bits
        try:
            return Layout.dense(self.shape, width_bits=width, order=self.order, storage=self.storage)
        except LayoutError as error:
            raise error.renamed(call, f"tensor {self.name!r} shape") from None
