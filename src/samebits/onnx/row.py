"""What an ONNX operator is here: one frozen row.

Start at `OnnxRow`; `NodeCall` is what its `lower` sees.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal

from samebits.conversions import SB1, Conversion
from samebits.dtypes import DType
from samebits.frozen import dataclass
from samebits.kernels import functions
from samebits.onnx.proto import DTYPES, ModelNode
from samebits.operations import dim
from samebits.operations.dim import Size, SymbolicShape
from samebits.operations.fact import Fact
from samebits.operations.moves import Range
from samebits.operations.operation import Array
from samebits.program.builder import ProgramBuilder

__all__ = [
    "LATEST",
    "MANY",
    "REQUIRED",
    "Attribute",
    "NodeCall",
    "OnnxRow",
    "OpenExtent",
    "Unsupported",
    "applied",
    "chained",
    "folded",
]

# The inputs of operators that take any number.
MANY = 1 << 16

# The newest opset whose operators were compared with these rows.
LATEST = 28

REQUIRED: Any = object()


class Unsupported(Exception):
    """A node asks for what its row does not do; the text is the reason."""


class OpenExtent(Unsupported):
    """A node asks for a size that the model leaves open: it is known where `load` is given its symbols.

    Attributes:
        symbols: What the sizes are made of.
    """

    def __init__(self, reason: str, sizes: Iterable[dim.Size]) -> None:
        super().__init__(reason)
        self.symbols = tuple(dict.fromkeys(name for size in sizes for name in sorted(dim.symbols(size))))


@dataclass(frozen=True, slots=True)
class Attribute:
    """One attribute: its default (REQUIRED if it has none), its kind, the values that are done (None: all), opsets."""

    name: str
    default: Any = REQUIRED
    kind: Literal["int", "float", "string", "ints", "floats", "strings", "tensor"] = "int"
    allowed: tuple[Any, ...] | None = None
    since: int = 1
    until: int = LATEST


@dataclass(frozen=True, slots=True)
class NodeCall:
    """One node about to be lowered.

    Attributes:
        b: Where nodes are added.
        node: The node as the model has it.
        opset: The version in force.
        inputs: The program's values, None where an optional input is left out.
        attributes: Every attribute of the row, defaults filled in.
    """

    b: ProgramBuilder
    node: ModelNode
    opset: int
    inputs: tuple[str | None, ...]
    attributes: Mapping[str, Any]

    def __getitem__(self, index: int) -> str:
        """Input `index`, which the row requires."""
        name = self.optional(index)
        if name is None:
            raise Unsupported(f"input {index} is missing")
        return name

    def optional(self, index: int) -> str | None:
        """Input `index`, or None."""
        return self.inputs[index] if index < len(self.inputs) else None

    def fitted(self, index: int, shape: SymbolicShape) -> str:
        """Input `index` as one of that shape, from which its own differs in symbols alone: a run whose extents differ
        is refused, and says of which input."""
        x, origin = self[index], self.b.origin
        self.b.origin = (f"{self.node.name}, input {index}",)
        for axis, size in enumerate(shape):
            own = self.b.facts[x].shape
            if own[axis] != size:
                x = self.b.reshape(x, (*own[:axis], size, *own[axis + 1 :]))
        self.b.origin = origin
        return x

    def fact(self, index: int) -> Fact:
        """The fact of input `index`."""
        return self.b.facts[self[index]]

    def axis(self, name: str = "axis", rank: int | None = None) -> int:
        """The attribute as an axis of input 0, counted from the front."""
        return self.check_axis(self.attributes[name], self.fact(0).rank if rank is None else rank)

    def axes(self, given: Sequence[int], rank: int) -> tuple[int, ...]:
        """Axes counted from the front, each once."""
        axes = tuple(self.check_axis(axis, rank) for axis in given)
        if len(set(axes)) != len(axes):
            raise Unsupported(f"axes {tuple(given)} name one axis twice")
        return axes

    def check_axis(self, axis: int, rank: int) -> int:
        """An axis counted from the front."""
        if not -rank <= axis < rank:
            raise Unsupported(f"axis {axis} is outside a rank of {rank}")
        return axis % rank

    def integers(self, index: int) -> SymbolicShape:
        """The integers of input `index`, symbols allowed."""
        known = self.b.integers(self[index])
        if known is None and self.fact(index).shape == (0,):
            return ()  # whatever computes it
        if known is None:
            raise Unsupported(
                f"input {index} ({self.node.inputs[index]!r}) depends on data, must be a shape or a constant"
            )
        return known

    def integer(self, index: int) -> Size:
        """The integer of input `index`, a symbol allowed."""
        known = self.integers(index)
        if len(known) != 1:
            raise Unsupported(f"input {index} ({self.node.inputs[index]!r}) has {len(known)} elements, not one")
        return known[0]

    def numbers(self, index: int) -> tuple[int, ...]:
        """The integers of input `index`, no symbols allowed."""
        known = self.integers(index)
        if not all(isinstance(size, int) for size in known):
            raise Unsupported(f"input {index} ({self.node.inputs[index]!r}) depends on a size, must be a constant")
        return tuple(size for size in known if isinstance(size, int))

    def single(self, index: int, dtype: DType | None = None) -> str:
        """Input `index`, which is one element, as a scalar; of a format, if one is named."""
        fact = self.fact(index)
        if dim.product(fact.shape) != 1 or (dtype is not None and fact.dtype is not dtype):
            due = "one element" if dtype is None else f"one {dtype.name}"
            raise Unsupported(f"input {index} ({self.node.inputs[index]!r}) is {fact}, must be {due}")
        return self.b.reshape(self[index], ())

    def element_type(self, name: str) -> DType:
        """The attribute as an element format."""
        number = self.attributes[name]
        if number not in DTYPES:
            raise Unsupported(f"attribute {name!r} is {number}, which no element type here has")
        return DTYPES[number]

    def converted(self, x: str, target: DType, conversion: Conversion = SB1) -> str:
        """x in another format; x itself if it has it."""
        dtype = self.b.facts[x].dtype
        if dtype is target:
            return x
        taken = functions.row("cast").accepts[0]
        if dtype.name not in taken or target.name not in taken:
            raise Unsupported(f"nothing here casts {dtype.name} to {target.name}")
        return self.b.apply("cast", x, cast_to=target, conversion=conversion)

    def numbered(self, count: Size) -> str:
        """0, 1, 2, ... as int64."""
        return self.b.add("range", (), Range(0, count, 1))[0]

    def filled(self, shape: SymbolicShape, element: Array) -> str:
        """A value of one element everywhere."""
        return self.b.expand(self.b.constant(element.reshape(())), shape)

    def padded(self, x: str, axis: int, around: Sequence[int], element: Array) -> str:
        """x with so many of one element before and behind it along an axis."""
        shape = self.b.facts[x].shape
        before, behind = ([self.filled((*shape[:axis], n, *shape[axis + 1 :]), element)] if n else [] for n in around)
        parts = [*before, x, *behind]
        return self.b.concat(parts, axis)

    def array(self, index: int) -> Array:
        """The elements of input `index`, which must be a constant."""
        array = self.b.array(self[index])
        if array is None:
            raise Unsupported(f"input {index} ({self.node.inputs[index]!r}) depends on data, must be a constant")
        return array


@dataclass(frozen=True, slots=True)
class OnnxRow:
    """One operator over a range of opsets.

    Attributes:
        op: Its name.
        since: The first opset that `lower` means.
        lower: Adds nodes for a call, gives a value for each output.
        attributes: Those it may have; any other is refused.
        inputs: How many inputs it takes at most.
        until: The last opset.
        limits: What it leaves out beside attributes that are not `allowed`, for `docs/operators.md`.
        domain: Whose operator it is; that of ONNX itself has no name.
    """

    op: str
    since: int
    lower: Callable[[NodeCall], Sequence[str]]
    attributes: tuple[Attribute, ...] = ()
    inputs: int = 1
    until: int = LATEST
    limits: str = ""
    domain: str = ""


def applied(op: str) -> Callable[[NodeCall], Sequence[str]]:
    """A `lower` of one per-element operation of every input."""

    def lower(call: NodeCall) -> Sequence[str]:
        return (call.b.apply(op, *[call[i] for i in range(len(call.inputs))]),)

    return lower


def folded(op: str) -> Callable[[NodeCall], Sequence[str]]:
    """A `lower` of ((x0 op x1) op x2) ..."""

    def lower(call: NodeCall) -> Sequence[str]:
        operands = [call[i] for i in range(max(1, len(call.inputs)))]
        return (chained(call, op, operands) if len(operands) > 1 else call.b.apply("copy", operands[0]),)

    return lower


def chained(call: NodeCall, op: str, values: Sequence[str]) -> str:
    """((v0 op v1) op v2) ..., which is v0 where it is alone."""
    return functools.reduce(functools.partial(call.b.apply, op), values)
