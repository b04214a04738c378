"""What a node may do: one row a primitive, and what lowering offers to a row.

A row has three meanings that tests hold together: `infer` (facts from facts), `reference` (arrays from arrays, by the
rooms' NumPy references) and `lower` (plans over memory). Start at `Primitive`; `registry.ROWS` lists them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from samebits.codegen.isa import Isa
from samebits.dtypes import DType
from samebits.kernels.plan import Plan
from samebits.program.fact import Fact
from samebits.program.graph import Array, Node
from samebits.program.strided import Strided

__all__ = ["Lowering", "Place", "Primitive"]


@dataclass(frozen=True, slots=True)
class Place:
    """Where a value lies: elements of `dtype`, `strided` over the bytes of `storage`."""

    storage: int
    dtype: DType
    strided: Strided


class Lowering(Protocol):
    """What a row's `lower` may ask for; every shape is of numbers by now.

    They may be numbers of a `tape`: what a row decides by comparing them is then decided for every shape that compares
    alike. So plans are not made here but asked for: `emit` takes the planner and what to ask it, by which each shape
    gets a plan of its own.
    """

    isa: Isa
    threads: int

    def shape(self, name: str) -> tuple[int, ...]:
        """The extents of a value."""

    def place(self, name: str) -> Place:
        """Where a value lies, whatever its strides."""

    def plain(self, name: str) -> Place:
        """Where a value lies with one stride an axis; it is copied if it must be."""

    def define(self, name: str) -> Place:
        """Memory for a value that the node is about to make, in its fact's stride order."""

    def temporary(self, dtype: DType, shape: Sequence[int]) -> Place:
        """Memory that the node alone uses, dense."""

    def alias(self, name: str, place: Place) -> None:
        """A value that lies where another does."""

    def constant(self, name: str) -> Array | None:
        """A value's elements, if they are known."""

    def keep(self, key: Any, make: Callable[[], Array]) -> Place:
        """Memory derived from constants, made once for the whole session under `key`."""

    def status(self, node: Node, extents: Sequence[int]) -> Place:
        """Two int64 that the kernel sets to (1, culprit) if `node` meets an index that is outside of its extent."""

    def emit(
        self,
        planner: Callable[..., Plan],
        arguments: tuple[Any, ...],
        reads: Sequence[Place],
        writes: Sequence[Place],
        overwrites: bool = False,
    ) -> None:
        """Run the plan of these arguments here.

        Args:
            planner: A pure function; what it is given are plain numbers.
            arguments: Numbers, nested tuples of them, and values that compare by what they hold.
            reads: The plan's first operands.
            writes: The other operands.
            overwrites: Whether a write may lie where a read of the same layout does.
        """


@dataclass(frozen=True, slots=True)
class Primitive:
    """One kind of node.

    Attributes:
        name: As it is printed.
        infer: `(description, input names, input facts)` to the facts of the outputs.
        reference: `(description, input arrays)` to the output arrays.
        lower: `(lowering, node)`: defines or aliases the node's outputs.
        is_view: Whether its output is its input's memory (`Fact.alias`).
    """

    name: str
    infer: Callable[[Any, Sequence[str], Sequence[Fact]], tuple[Fact, ...]]
    reference: Callable[[Any, Sequence[Array]], tuple[Array, ...]]
    lower: Callable[[Lowering, Node], None]
    is_view: bool = False
