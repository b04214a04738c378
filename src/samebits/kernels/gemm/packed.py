"""PackedMatrix: a right operand kept in panels, as a value that can be pickled and reused.

The bytes are [batch][panel][k][nr], columns beyond N zero. They depend on the width `nr` of a panel alone, so rows of
one width share them; a product on a row of another width refuses them (`plan` raises). Start at `PackedMatrix`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from samebits.errors import PlanError, ShapeError, message
from samebits.kernels.gemm.contraction import Panels
from samebits.tensor import Tensor

FORMAT = "samebits-panels-1"


def size_elements(k: int, n: int, nr: int) -> int:
    """Elements of one packed matrix."""
    return -(-n // nr) * k * nr


@dataclass(frozen=True, slots=True, eq=False)
class PackedMatrix:
    """A packed b[..., K, N].

    Attributes:
        tensor: float32 [elements], contiguous.
        shape: (..., K, N) of the matrix that was packed.
        nr: Columns of a panel.
        isa: The Isa row that it was packed for; any row with panels of `nr` columns takes it.
        format: The tag of the layout, checked when it is unpickled.
    """

    tensor: Tensor
    shape: tuple[int, ...]
    nr: int
    isa: str
    format: str = FORMAT

    def __reduce__(self) -> tuple[Callable[..., PackedMatrix], tuple[object, ...]]:
        return _restored, (np.array(self.tensor.numpy()), self.shape, self.nr, self.isa, self.format)

    def panels(self, batch: tuple[int, ...]) -> Panels:
        """The operand description, its batch dimensions broadcast to `batch`.

        Raises:  ShapeError if they do not broadcast.
        """
        own, strides = self.shape[:-2], list[int]()
        size = size_elements(self.shape[-2], self.shape[-1], self.nr)
        padded = (1,) * (len(batch) - len(own)) + own
        if len(own) > len(batch) or any(x not in (1, y) for x, y in zip(padded, batch, strict=True)):
            expected = f"dimensions that broadcast to {batch}"
            raise ShapeError(message("matmul", "b", "batch dimensions", own, expected, "pack a matrix that broadcasts"))
        for extent in reversed(padded):
            strides.append(0 if extent == 1 else size)
            size *= extent
        return Panels(self.nr, tuple(reversed(strides)))


def _restored(
    elements: npt.NDArray[np.float32], shape: tuple[int, ...], nr: int, isa: str, format: str
) -> PackedMatrix:
    if format != FORMAT:
        raise PlanError(message("PackedMatrix", "format", "", repr(format), repr(FORMAT), "pack the matrix again"))
    tensor = Tensor.empty(elements.shape)
    tensor.numpy()[...] = elements
    return PackedMatrix(tensor, shape, nr, isa, format)
