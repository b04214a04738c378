"""Steps of many parameters in one native call, where all that a step reads and writes lies plainly in float32.

A call for each parameter costs ten times what the arithmetic of a small one does. Nothing is remembered of tensors but
how many elements they have: where they lie is asked of them in each step. Start at `JoinedSteps`.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from samebits.codegen import isa as isas
from samebits.memory.address import LEAST_ADDRESS
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

    __slots__ = ("_gathered", "_is_open", "_places", "numbers")

    def __init__(self) -> None:
        self.numbers: dict[int, npt.NDArray[np.float32]] = {}
        # Of each step its key in `optimizing.joined`, its addresses, what it writes, and the gradient, to keep it.
        self._gathered: list[tuple[tuple[str, int], list[int], tuple[Tensor, ...], Tensor]] = []
        # Arrays of numbers, to keep them, and where they lie.
        self._places: dict[int, tuple[npt.NDArray[np.float32], int]] = {}
        # Modes and transforms act on calls of torch's functions, and joined steps call none: beside one, each step is
        # taken by itself.
        compiling, modes = torch.compiler.is_compiling(), torch._C._len_torch_dispatch_stack()
        self._is_open = not (compiling or modes or torch._C._are_functorch_transforms_active())

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
        if not count:
            return False
        free = LEAST_ADDRESS  # below are a storage whose memory was freed, and a tensor of zeros that has none
        for at in sorted(found):
            if at < free:
                return False
            free = at + count * _WIDTH
        place = self._places.get(id(numbers))
        if place is None:
            place = self._places[id(numbers)] = numbers, numbers.ctypes.data
        found.append(place[1])
        self._gathered.append(((step, count), found, written, g))  # at once: an interruption leaves whole steps
        return True

    def run(self) -> None:
        """Take what was gathered, and let autograd know what was written."""
        gathered, self._gathered = self._gathered, []
        if not gathered:
            return
        table = optimizing.joined(tuple([each[0] for each in gathered]), isas.current(), threads())
        table.run([address for each in gathered for address in each[1]])
        torch.autograd.graph.increment_version([x for each in gathered for x in each[2]])
