"""Constants in the forms that kernels take, made once for all sizes of a session: by kernels, or by NumPy.

Kernels take a third of NumPy's time for weights of codes and scales, and share it among threads; they are compiled for
it where they are not in the cache, so that what is small, and what nothing is going to run on, is left to NumPy. Start
at `KeptForms`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from samebits.kernels.plan import Plan
from samebits.memory import address_of
from samebits.memory.chunks import Chunks
from samebits.native import scratch
from samebits.native.table import Table, alone
from samebits.operations.operation import Array, Filling, KeptConstant

__all__ = ["KeptForms"]


class KeptForms:
    """What one lowering finds, or makes and adds.

    Args:    made: what there is, by form or name; added to.   by_kernels: whether kernels may make it.
    """

    __slots__ = ("_by_kernels", "_chunks", "_made", "_tables")

    def __init__(self, made: dict[Any, Array], by_kernels: bool) -> None:
        self._made, self._by_kernels, self._chunks = made, by_kernels, Chunks()
        self._tables: dict[int, tuple[Plan, Table]] = {}  # by plan, to hash which takes longer than to run it

    def taken(self, key: Any, make: Callable[[], Array]) -> Array:
        """What is kept under a key; `make` makes it where there is nothing."""
        found = self._made.get(key)
        if found is None:
            found = self._made[key] = make()
        return found

    def form(self, constant: KeptConstant) -> Array:
        """A constant in another form, new."""
        filling = constant.filling() if constant.filling is not None and self._by_kernels else None
        return constant.make(self._chunks.empty) if filling is None else self._filled(filling)

    def _filled(self, filling: Filling) -> Array:
        """Memory that the plan has filled."""
        assert filling.word.numpy is not None  # every word is a NumPy number
        words = self._chunks.empty(filling.size, filling.word.numpy)
        plan = filling.plan
        found = self._tables.get(id(plan))
        if found is None:
            found = self._tables[id(plan)] = plan, alone(plan)
        workspace = scratch.take(plan.workspace_bytes)
        found[1].run([*map(address_of, filling.operands), address_of(words), workspace.address])
        scratch.give(workspace)
        return words
