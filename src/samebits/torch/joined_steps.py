"""Steps of many parameters in one native call, where all that a step reads and writes lies plainly in float32.

A call for each parameter costs ten times what the arithmetic of a small one does. Nothing is remembered of tensors but
how many elements they have: where they lie is asked of them in each step. Start at `JoinedSteps`.
"""

from __future__ import annotations

import itertools

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from samebits.codegen import isa as isas
from samebits.ops import optimizing
from samebits.torch.operator import threads

__all__ = ["JoinedSteps"]

_PLAIN = frozenset((Tensor, torch.nn.Parameter))
_WIDTH = 4


class JoinedSteps:
    """Steps that are gathered, and taken in their order by `run`.

    Attributes:
        numbers: What steps of one group read, by how many steps came before; cleared where another group begins.
    """

    __slots__ = ("_addresses", "_is_open", "_kept", "_places", "_steps", "_written", "numbers")

    def __init__(self) -> None:
        self.numbers: dict[int, npt.NDArray[np.float32]] = {}
        self._forget()
        # Modes and transforms act on calls of torch's functions, and joined steps call none: beside one, each step is
        # taken by itself.
        compiling, modes = torch.compiler.is_compiling(), torch._C._len_torch_dispatch_stack()
        self._is_open = not (compiling or modes or torch._C._are_functorch_transforms_active())

    def _forget(self) -> None:
        self._steps: list[tuple[str, int]] = []
        self._addresses: list[int] = []
        self._written: list[Tensor] = []
        # What has to live until the steps are taken, and where numbers among it are.
        self._kept: list[object] = []
        self._places: dict[int, int] = {}

    def add(self, step: str, written: tuple[Tensor, ...], g: Tensor, numbers: npt.NDArray[np.float32]) -> bool:
        """Gather one step of `optimizing.STEPS`: what it writes, the parameter first, its gradient and its numbers.

        Returns: whether all of it lies as it must, else nothing is gathered.
        """
        if not self._is_open:
            return False
        shape, found = written[0].shape, []
        for x in (*written, g):
            if (
                type(x) not in _PLAIN
                or x.dtype is not torch.float32
                or x.layout is not torch.strided
                or x.shape != shape
                or not x.is_contiguous()
                or not x.is_cpu
                or x.is_neg()
                or x.is_inference()
            ):
                return False
            found.append(x.data_ptr())
        count = shape.numel()
        places, size = sorted(found), count * _WIDTH
        if not count or any([high - low < size for low, high in itertools.pairwise(places)]):  # noqa: C419
            return False
        if not places[0]:  # a storage whose memory was freed, or a tensor of zeros that has none
            return False
        self._steps.append((step, count))
        self._addresses += found
        place = self._places.get(id(numbers))
        if place is None:
            place = self._places[id(numbers)] = numbers.ctypes.data
        self._addresses.append(place)
        self._written += written
        self._kept += (g, numbers)
        return True

    def run(self) -> None:
        """Take what was gathered, and let autograd know what was written."""
        if not self._steps:
            return
        addresses, written = self._addresses, self._written
        table = optimizing.joined(tuple(self._steps), isas.current(), threads())
        kept = self._kept
        self._forget()
        table.run(addresses)
        torch.autograd.graph.increment_version(written)
        del kept
