"""Calls of a fusion that emitted code knows, which take a fifth of the time: those that give one new array of others.

Start at `KnownCalls.answer`.
"""

from __future__ import annotations

import weakref
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

from samebits import hot
from samebits.fusion.direct import Direct
from samebits.native.call_text import FRAME_WORDS
from samebits.native.table import FIXED, RESULT, WORKSPACE, CallPlace
from samebits.ops import memo
from samebits.runtime.recent import keep
from samebits.tensor import Tensor

__all__ = ["KnownCalls"]

# Calls of one fusion that are known.
_CALLS = 64


class KnownCalls:
    """Those of one fusion, which are let go with this."""

    def __init__(self) -> None:
        self._owner = object()  # whose address is in the keys
        self._keys: OrderedDict[bytes, bytes] = OrderedDict()
        weakref.finalize(self, memo.forget, self._keys).atexit = False

    def answer(self, inputs: Sequence[Any]) -> Any:
        """The result of a call like one before; else its key, as bytes, which are none where it has none."""
        return memo.answer(self._owner, tuple(inputs))

    def learn(self, key: bytes, inputs: Sequence[Any], way: Direct, made: Any) -> bool:
        """Know calls of this key from now on; whether calls of the fusion can be known.

        Args:    key: that of a call.   inputs: what it was given.   way: how it ran.
                 made: its result, of elements of whole bytes that NumPy has.
        """
        table = way.bound.table
        if table is None or not table.compiled or len(table.template) > FRAME_WORDS:
            return False
        if not key:
            hot.count_call()
        elif not any(way.packings):
            arrays = [x for x, kind in zip(inputs, way.scalars, strict=True) if kind is None]
            given = [Tensor.from_any(x.detach() if way.kind == "torch" else x) for x in arrays]
            places: list[CallPlace] = [(WORKSPACE, 0), *[(number, 0) for number in range(len(given))], (RESULT, 0)]
            places += [(FIXED, address) for address in table.constants]
            result, room = Tensor.from_any(made), way.bound.arena_bytes
            unit = max(x.layout.pitch_bits >> 3 for x in (*given, result))
            memo.teach(key, self._owner, tuple(inputs), table, places, room, unit - 1, way.kind, result, way.bound)
            memo.forget(keep(self._keys, key, key, _CALLS))
        return True
