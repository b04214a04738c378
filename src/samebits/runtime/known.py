"""Runs that emitted code knows, which take a tenth of the time: those that give new arrays of others.

Start at `KnownCalls.answer`.
"""

from __future__ import annotations

import weakref
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

from samebits.kinds import kind_of
from samebits.native.argument_text import MOST_RESULTS
from samebits.native.call_text import FRAME_WORDS
from samebits.native.table import FIXED, RESULT, WORKSPACE, CallPlace
from samebits.ops import memo
from samebits.runtime.recent import keep
from samebits.runtime.specialised import Specialised
from samebits.tensor import Tensor

__all__ = ["KnownCalls"]

# Calls of one owner that are known.
_CALLS = 64


class KnownCalls:
    """Those of one session or fusion, which are let go with this.

    Args:    is_memory: given, torch's tensors are taken whether or not they need gradients, and parameters as tensors.
    """

    def __init__(self, *is_memory: bool) -> None:
        self._owner = object()  # whose address is in the keys
        self._is_memory = is_memory
        self._keys: OrderedDict[bytes, bytes] = OrderedDict()
        weakref.finalize(self, memo.forget, self._keys).atexit = False

    def answer(self, inputs: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """The result of a call like one before, or a tuple of several; else its key, as bytes: empty if it has none."""
        return memo.answer(self._owner, inputs, named, *self._is_memory)

    @staticmethod
    def takes(bound: Specialised) -> bool:
        """Whether calls that run this can be known."""
        few = len(bound.outputs) <= MOST_RESULTS and len(bound.table.template) <= FRAME_WORDS
        return few and bound.table.compiled

    def learn(
        self, key: bytes, inputs: tuple[Any, ...], named: dict[str, Any], operands: Sequence[tuple[int, Any]],
        bound: Specialised, made: Sequence[Any],
    ) -> None:  # fmt: skip
        """Know calls of this key from now on.

        Args:
            key: That of a call.
            inputs, named: What it was given, in the order in which the key has them.
            operands: What the table takes: the number among its arrays, and the array.
            bound: What it ran, which `takes` likes.
            made: Its results, of elements of whole bytes that NumPy has.
        """
        table = bound.table
        given = [Tensor.from_any(x.detach() if kind_of(x) == "torch" else x) for _, x in operands]
        results = [Tensor.from_any(x) for x in made]
        places: list[CallPlace] = [(WORKSPACE, 0), *[(number, 0) for number, _ in operands]]
        places += [(RESULT - number, 0) for number in range(len(results))]
        places += [(FIXED, address) for address in table.constants]
        # No address may have a bit below the widest element's size.
        unit = max(x.layout.pitch_bits >> 3 for x in (*given, *results))
        room, kind = (bound.arena_bytes, bound.status_bytes), kind_of(made[0])
        call = key, self._owner, inputs, named
        memo.teach(*call, table, places, *room, unit - 1, kind, results, bound, *self._is_memory)
        memo.forget(keep(self._keys, key, key, _CALLS))
