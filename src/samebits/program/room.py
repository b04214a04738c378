"""How much may be computed before a program runs: what is known from constants and sizes alone is held in memory.

A few nodes can make terabytes of one number (a chain of `Concat` of a value with itself, one `Expand`), so results that
are known early have a room of stated size, and a node whose result does not fit stays a node: it runs with the others,
as a view where it is one. Start at `Room`.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from samebits.operations import dim
from samebits.operations.fact import Fact
from samebits.program.graph import Node

__all__ = ["BYTES", "GROWTH", "SMALL", "Room", "reach_bytes", "size_bytes"]

# Masks and tables of positions of the longest inputs that encoders take are a tenth of this.
BYTES = 64 << 20
# Results may also take so many times what the model's own constants do: bytes that become float64 grow this much.
GROWTH = 8
# Results that are always computed, since a model has only as many nodes as it has bytes.
SMALL = 4096


class Room:
    """Bytes left for results that are known before a run, and for what is held while one of them is computed."""

    def __init__(self, size_bytes: int = BYTES) -> None:
        self._left = size_bytes

    def take(self, node: Node, facts: Mapping[str, Fact]) -> bool:
        """Whether the node may be computed now; then its results are counted. Every size is a number."""
        if any(reach_bytes(facts[name]) > sys.maxsize for name in node.outputs):
            return False
        results = sum(size_bytes(facts[name]) for name in node.outputs)
        needed = results + _temporary(node, [facts[name] for name in node.inputs], results)
        if needed > self._left and needed > SMALL:
            return False
        self._left -= results
        return True

    def take_bytes(self, size_bytes: int) -> bool:
        """Whether so many bytes fit; then they are counted."""
        if size_bytes > self._left:
            return False
        self._left -= size_bytes
        return True

    def give(self, size_bytes: int) -> None:
        """Results that nothing needs any more."""
        self._left += size_bytes


def size_bytes(fact: Fact) -> int:
    """Bytes of a value that no symbol is left in."""
    return math.prod(dim.bind_shape(fact.shape, {})) * fact.dtype.element_bytes


def reach_bytes(fact: Fact) -> int:
    """What NumPy counts of a value that no symbol is left in: an extent of 0 as 1, so that an array of no elements may
    be too large for it."""
    return math.prod(max(extent, 1) for extent in dim.bind_shape(fact.shape, {})) * fact.dtype.element_bytes


def _temporary(node: Node, operands: Sequence[Fact], results: int) -> int:
    """Bytes that a node's reference holds beside its operands and results, roughly: maps are computed in blocks."""
    if node.operation == "rows":
        attributes: Any = node.attributes
        whole = dim.bind_shape(dim.broadcast_shapes([fact.shape for fact in operands]), {})
        return math.prod(whole) * sum(int(term.dtype.element_bytes) for term in attributes.expression.nodes)
    return 4 * results if node.operation == "contract" else 0
