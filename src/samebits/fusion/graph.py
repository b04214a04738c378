"""What a definition says: values, the operations between them, inputs and outputs.

A `Fusion` is under construction between `with FusionDefinition() as fd:` and its end; afterwards nothing changes it.
Extents are scalars. Where an operation takes two axes together, their extents are one and the same from then on, which
`Fusion.same` writes down and `Fusion.root` asks. Start at `Fusion`; `TensorView` and `Scalar` are what users hold.
"""

from __future__ import annotations

import contextlib
import operator
import threading
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from samebits.errors import FusionError, FusionTypeError, shown
from samebits.frozen import dataclass
from samebits.fusion.datatypes import DataType
from samebits.fusion.equations import equations

__all__ = [
    "Argument",
    "Expr",
    "Fusion",
    "Number",
    "Output",
    "Scalar",
    "TensorAxis",
    "TensorView",
    "Val",
    "current",
    "entered",
    "integer",
    "number",
]  # fmt: skip

Number = bool | int | float


class Val:
    """A value of a fusion: a tensor or a scalar.

    Attributes:
        fusion: The fusion that it belongs to.
        dtype: Its element format.
        name: Its number among the tensors, or the scalars, of the fusion.
        definition: The operation that makes it; None of inputs, constants and extents of inputs.
    """

    def __init__(self, fusion: Fusion, dtype: DataType, definition: Expr | None = None) -> None:
        self.fusion, self.dtype, self.definition = fusion, dtype, definition
        self.name = fusion.take_name(type(self))

    def is_tensor(self) -> bool:
        """Whether it is a tensor."""
        return isinstance(self, TensorView)

    def is_symbolic(self) -> bool:
        """Whether its value is known only when the fusion runs."""
        return True


class Scalar(Val):
    """A number: a constant, an input, an extent, or what is computed of others.

    Attributes:
        value: Of a constant; else None.
    """

    def __init__(
        self, fusion: Fusion, dtype: DataType, value: Number | None = None, definition: Expr | None = None
    ) -> None:
        super().__init__(fusion, dtype, definition)
        self.value = value

    def is_symbolic(self) -> bool:
        """Whether its value is known only when the fusion runs."""
        return self.value is None

    def __str__(self) -> str:
        if self.value is not None:
            return number(self.value)
        letter = {DataType.Double: "d", DataType.Float: "f", DataType.Bool: "b"}.get(self.dtype, "i")
        return f"{letter}{self.name}"

    __repr__ = __str__


@dataclass(frozen=True, slots=True, eq=False)
class TensorAxis:
    """One axis of a tensor.

    Attributes:
        size: Its extent, 1 where `is_broadcast`.
        expanded: The extent that a broadcast axis is repeated to; None where it is not.
        is_broadcast: Whether its elements are one element.
        is_reduced: Whether it is summed away: it is printed, and no axis of the result.
        name: Its number among the axes of the fusion.
    """

    size: Scalar
    expanded: Scalar | None
    is_broadcast: bool
    is_reduced: bool
    name: int

    @property
    def length(self) -> Scalar:
        """How many elements an index may name."""
        return self.size if self.expanded is None else self.expanded

    def extent(self) -> Scalar:
        """The extent, 1 of a broadcast axis."""
        return self.size

    def __str__(self) -> str:
        letter = "r" if self.is_reduced else "b" if self.is_broadcast else "i"
        extra = "" if self.expanded is None else f" ex {self.expanded}"
        return f"{letter}S{self.name}{{{self.size}{extra}}}"

    __repr__ = __str__


class TensorView(Val):
    """A tensor of a fusion.

    Attributes:
        axes: Its axes.
        reduced: The axes that its own operation has reduced, as they are printed, with their places.
        contiguity: Of an input, for each axis from the slowest to the fastest in memory, whether it lies beside the
            next; None of a broadcast axis.
        stride_order: For each axis how many lie faster than it; None where that is row-major.
        is_cpu: Whether it was said to be a scalar on the host.
    """

    def __init__(
        self,
        fusion: Fusion,
        dtype: DataType,
        axes: Sequence[TensorAxis],
        definition: Expr | None = None,
        *,
        printed: Sequence[TensorAxis] | None = None,
        contiguity: tuple[bool | None, ...] | None = None,
        stride_order: tuple[int, ...] | None = None,
        is_cpu: bool = False,
    ) -> None:
        super().__init__(fusion, dtype, definition)
        self.axes, self.contiguity, self.stride_order = tuple(axes), contiguity, stride_order
        self.printed = self.axes if printed is None else tuple(printed)
        self.is_cpu = is_cpu

    @property
    def ndim(self) -> int:
        """How many axes it has."""
        return len(self.axes)

    def size(self, dim: int) -> Scalar:
        """The extent of an axis, which may be counted from the end.

        Raises:  FusionError if there is no such axis.
        """
        return self.axes[self.fusion.axis("size", self, dim)].length

    def shape(self) -> list[Scalar]:
        """The extents of all axes."""
        return [axis.length for axis in self.axes]

    def axis(self, index: int) -> TensorAxis:
        """One of the axes, which may be counted from the end."""
        return self.axes[index]

    def domain(self) -> str:
        """The axes as they are printed."""
        return f"[{', '.join(map(str, self.printed))}]"

    def __str__(self) -> str:
        place = "g" if self in self.fusion.inputs or any(self is each.tensor for each in self.fusion.outputs) else "l"
        return f"T{self.name}_{place}_{self.dtype.value}{self.domain()}"

    __repr__ = __str__


Argument = Val | Number | DataType | str | None | Sequence["Argument"]


@dataclass(frozen=True, slots=True, eq=False)
class Expr:
    """One operation of a definition.

    Attributes:
        op: Its name among `fd.ops`.
        args: What stands first in its call: values, lists of values.
        options: What is given by name, with what is left out where it is the default.
        outputs: What it makes.
    """

    op: str
    args: tuple[Argument, ...]
    options: tuple[tuple[str, Argument], ...]
    outputs: list[Val]

    @property
    def inputs(self) -> Iterator[Val]:
        """Every value that it reads."""
        return values(*self.args, *[value for _, value in self.options])

    @property
    def tensors(self) -> list[TensorView]:
        """The tensors among `args`, in their order."""
        return [x for x in self.args if isinstance(x, TensorView)]

    def option(self, name: str) -> Any:
        """What it was given by a name; None where that was left out."""
        return dict(self.options).get(name)


def values(*given: Argument) -> Iterator[Val]:
    """The values among arguments and in lists of them."""
    for each in given:
        if isinstance(each, Val):
            yield each
        elif isinstance(each, list | tuple):
            yield from values(*each)


@dataclass(frozen=True, slots=True, eq=False)
class Output:
    """What a run gives back.

    Attributes:
        tensor: The value.
        alias: The input in whose memory it is written, and which is not given back; None of a new tensor.
    """

    tensor: TensorView
    alias: TensorView | None = None


class Fusion:
    """Values, operations, inputs and outputs.

    Attributes:
        inputs: What a run is given, in order.
        exprs: The operations, in the order in which they were written.
        outputs: What a run gives.
        is_finished: Whether its definition has ended.
    """

    def __init__(self) -> None:
        self.inputs: list[Val] = []
        self.exprs: list[Expr] = []
        self.outputs: list[Output] = []
        self.is_finished = False
        self._names: dict[type, int] = {}
        self._axes = 0
        self._zero: Scalar | None = None
        self._same: dict[Scalar, Scalar] = {}

    # -- making values ---------------------------------------------------------------------------------------------
    def take_name(self, kind: type) -> int:
        """The next number for a tensor or a scalar."""
        found = self._names.get(kind, 0)
        self._names[kind] = found + 1
        return found

    def constant(self, value: Number, dtype: DataType = DataType.Int) -> Scalar:
        """A scalar that is known."""
        return Scalar(self, dtype, value)

    def open_size(self) -> Scalar:
        """An extent that an input brings."""
        return Scalar(self, DataType.Int)

    def new_axis(self, size: Scalar, *, expanded: Scalar | None = None, reduced: bool = False) -> TensorAxis:
        """An axis; one of the constant extent 1 is a broadcast axis."""
        if self._zero is None:
            self._zero = self.constant(0)  # where axes start, which takes a scalar's name
        self._axes += 1
        is_broadcast = expanded is not None or size.value == 1
        return TensorAxis(size, expanded, is_broadcast and not reduced, reduced, self._axes - 1)

    def copied(self, axis: TensorAxis) -> TensorAxis:
        """An axis like another."""
        return self.new_axis(axis.size, expanded=axis.expanded)

    def record(self, op: str, args: Sequence[Argument], **options: Argument) -> Expr:
        """A new operation, whose outputs are added to it.

        Raises:  FusionError if the definition has ended, or a value is another fusion's.
        """
        if self.is_finished:
            remedy = "call it within `with FusionDefinition() as fd:`"
            raise FusionError(op, "call", "", "after the end of the definition", "inside of it", remedy)
        made = Expr(op, tuple(args), tuple(options.items()), [])
        for value in made.inputs:
            self.check(op, value)
        self.exprs.append(made)
        return made

    def tensor(
        self,
        expr: Expr,
        dtype: DataType,
        axes: Sequence[TensorAxis],
        printed: Sequence[TensorAxis] | None = None,
        stride_order: tuple[int, ...] | None = None,
    ) -> TensorView:
        """A new output of an operation."""
        made = TensorView(self, dtype, axes, expr, printed=printed, stride_order=stride_order)
        expr.outputs.append(made)
        return made

    def like(self, expr: Expr, x: TensorView, dtype: DataType | None = None) -> TensorView:
        """A new output of an operation with the axes of x, and its format where none is given."""
        return self.tensor(expr, dtype or x.dtype, [self.copied(axis) for axis in x.axes])

    def scalar(self, expr: Expr, dtype: DataType) -> Scalar:
        """A new output of an operation on scalars."""
        made = Scalar(self, dtype, definition=expr)
        expr.outputs.append(made)
        return made

    # -- checks ----------------------------------------------------------------------------------------------------
    def check(self, call: str, value: Val) -> None:
        """Raise FusionError unless a value belongs to this fusion."""
        if value.fusion is not self:
            remedy = "define it in this one, by define_tensor or define_scalar"
            raise FusionError(call, "operand", "", "a value of another fusion", "one of this fusion", remedy)

    def axis(self, call: str, x: TensorView, dim: object) -> int:
        """The number of an axis, counted from the front.

        Raises:  FusionError if there is none, or it is no integer.
        """
        place = integer(call, "dim", dim)
        if not -x.ndim <= place < x.ndim:
            expected = f"in [{-x.ndim}, {x.ndim})"
            raise FusionError(call, "dim", "", place, expected, "name an axis that the tensor has")
        return place % x.ndim

    # -- extents that are one --------------------------------------------------------------------------------------
    def root(self, size: Scalar) -> Scalar:
        """The scalar that stands for all that are known to equal `size`."""
        while (found := self._same.get(size)) is not None:
            size = found
        return size

    def axis_of(self, size: Scalar, values: Iterable[Val]) -> tuple[TensorView, int] | None:
        """The first tensor among values, and which axis of it, that is known to have an extent."""
        root = self.root(size)
        for x in values:
            if isinstance(x, TensorView):
                for place, axis in enumerate(x.axes):
                    if self.root(axis.length) is root:
                        return x, place
        return None

    def same(self, x: Scalar, y: Scalar) -> Scalar:
        """Write down that two extents are equal; gives the one that stands for both: a constant where one is."""
        x, y = self.root(x), self.root(y)
        if x is y or (x.value is not None and x.value == y.value):
            return x
        if _rank(y) < _rank(x):
            x, y = y, x
        if y.value is None:
            self._same[y] = x
        return x

    def print_math(self, from_outputs_only: bool = True) -> str:
        """The operations as text; those that no output needs are left out."""
        del from_outputs_only
        return equations(self.inputs, [output.tensor for output in self.outputs], self.sorted_exprs())

    def sorted_exprs(self) -> list[Expr]:
        """The operations that outputs depend on, in topological order."""
        found: dict[int, Expr] = {}
        stack: list[tuple[Val, bool]] = [(output.tensor, False) for output in reversed(self.outputs)]
        while stack:
            value, is_ready = stack.pop()
            expr = value.definition
            if expr is None or id(expr) in found:
                continue
            if is_ready:
                found[id(expr)] = expr
                continue
            stack.append((value, True))
            stack += [(operand, False) for operand in reversed(list(expr.inputs))]
        return list(found.values())


def _rank(size: Scalar) -> int:
    """Which of equal extents stands for all: a constant, then an input, then an extent of an input."""
    if size.value is not None:
        return 0
    return 1 if size in size.fusion.inputs else 2 if size.definition is None else 3


def integer(call: str, operand: str, given: object) -> int:
    """A number that must be an integer of 64 bits, of Python or of a library that has such.

    Raises:  FusionTypeError if it is none; truths are none either.
    """
    if not isinstance(given, bool | Val):
        with contextlib.suppress(TypeError):
            found = operator.index(given)  # type: ignore[arg-type]  # which is asked here
            if -(2**63) <= found < 2**63:
                return found
    raise FusionTypeError(call, operand, "", shown(given), "an integer of 64 bits", "pass a number such as 1")


def number(value: Number) -> str:
    """A number as Python reads it: in six digits as nvFuser writes it where these are all that it has."""
    if not isinstance(value, float):
        return repr(value)
    if value != value:
        return 'float("nan")'
    if value in (float("inf"), -float("inf")):
        return f'float("{value}")'
    text = f"{value:#g}"
    return text if float(text) == value else repr(value)


class _Current(threading.local):
    """The fusions that this thread is defining, the innermost last."""

    def __init__(self) -> None:
        self.stack: list[Fusion] = []


_current = _Current()


def current(call: str) -> Fusion:
    """The fusion that is being defined.

    Raises:  FusionError if none is.
    """
    if not _current.stack:
        expected, remedy = "inside of a definition", "call it within `with FusionDefinition() as fd:`"
        raise FusionError(call, "call", "", "outside of a definition", expected, remedy)
    return _current.stack[-1]


def entered() -> list[Fusion]:
    """The stack of fusions that are being defined by this thread."""
    return _current.stack
