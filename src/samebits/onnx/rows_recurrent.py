"""RNN, GRU and LSTM, step by step (numerics.md section 8): the number of steps is known when the model is loaded.

What the inputs of all steps give is one product; each step has one of the state, or two where a gate stands between.
Start at `_layer`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from samebits import dtypes, elements
from samebits.dtypes import DType
from samebits.frozen import dataclass, replace
from samebits.kernels import composites
from samebits.onnx.row import Attribute, NodeCall, OnnxRow, OpenExtent, Unsupported
from samebits.operations import dim
from samebits.operations.dim import Size, SymbolicShape
from samebits.program.builder import ProgramBuilder

__all__ = ["ROWS"]

_MOST_STEPS = 1024
# Which operands these are.
_BIASES, _LENGTHS, _PEEPHOLES = 3, 4, 7
_FUNCTIONS = ("Sigmoid", "Tanh", "Relu")


@dataclass(frozen=True, slots=True)
class _UnrolledLayer:
    """One direction of a layer, about to be unrolled.

    Attributes:
        b: Where nodes are added.
        steps: Of each step what its input gives, [batch, gates * hidden].
        state: The weights of the state, [hidden, gates * hidden].
        biases: Those of the input and of the state, [gates * hidden] each; nothing where there are none.
        peepholes: Of an LSTM the weights of c, [hidden] of i, o and f; nothing where there are none.
        functions: What each activation is.
        limit: What the activations' operands are cut to, a positive and a negative scalar; nothing where they are not.
        hidden: The extent of the state.
        is_linear_first: Whether a GRU multiplies the state before it is reset.
        made: What every step asks for, by what it is: so that a session keeps the weights in one form once.
    """

    b: ProgramBuilder
    steps: tuple[str, ...]
    state: str
    biases: tuple[str, ...]
    peepholes: tuple[str, ...]
    functions: tuple[str, ...]
    limit: tuple[str, ...]
    hidden: int
    is_linear_first: bool
    made: dict[object, str]

    def gate(self, x: str, number: int, count: int = 1) -> str:
        """Some gates of a value that has all of them along its last axis."""
        shape = self.b.facts[x].shape
        starts = (0,) * (len(shape) - 1)
        ends = (*shape[:-1], count * self.hidden)
        return self.once(
            (x, number, count), lambda: self.b.slice(x, (*starts, number * self.hidden), ends, (1,) * len(shape))
        )

    def once(self, key: object, make: Callable[[], str]) -> str:
        """What was made of a key before, or is made now."""
        if key not in self.made:
            self.made[key] = make()
        return self.made[key]

    def both(self, number: int, count: int) -> str:
        """The sum of both biases of some gates."""
        parts = [self.gate(bias, number, count) for bias in self.biases]
        return self.once((*self.biases, number, count), lambda: self.b.apply("add", *parts))

    def bias(self, which: int, number: int) -> str:
        """A gate's bias of the input (0) or of the state (1)."""
        return self.gate(self.biases[which], number)

    def product(self, h: str, number: int, count: int) -> str:
        """A state times the weights of some gates."""
        return self.b.contract(h, self.gate(self.state, number, count))

    def active(self, number: int, x: str) -> str:
        """An activation; those of gates, of what they are given cut to the limit."""
        if self.limit and number < 2:
            x = self.b.apply("maximum", self.b.apply("minimum", x, self.limit[0]), self.limit[1])
        name = self.functions[number]
        if name == "Relu":
            return self.b.map(composites.relu(self.b.facts[x].dtype), x)[0]
        return self.b.apply(name.lower(), x)

    def sums(self, step: str, h: str, count: int) -> list[str]:
        """Of the first gates (W x + R h) + (Wb + Rb)."""
        b = self.b
        total = b.apply("add", self.gate(step, 0, count), self.product(h, 0, count))
        if self.biases:
            total = b.apply("add", total, self.both(0, count))
        return [self.gate(total, number) for number in range(count)]


# -- one step of each kind: the states before give those after, of which the first is the output ---------------------
def _plain(cell: _UnrolledLayer, step: str, states: Sequence[str]) -> list[str]:
    return [cell.active(0, cell.sums(step, states[0], 1)[0])]


def _gated(cell: _UnrolledLayer, step: str, states: Sequence[str]) -> list[str]:
    """Gates in the order z, r, h."""
    b, (h,) = cell.b, states
    z, r = (cell.active(0, total) for total in cell.sums(step, h, 2))
    own = cell.gate(step, 2)
    if cell.is_linear_first:
        inner = cell.product(h, 2, 1)
        inner = b.apply("add", inner, cell.bias(1, 2)) if cell.biases else inner
        total = b.apply("add", own, b.apply("mul", r, inner))
        total = b.apply("add", total, cell.bias(0, 2)) if cell.biases else total
    else:
        total = b.apply("add", own, cell.product(b.apply("mul", r, h), 2, 1))
        if cell.biases:
            total = b.apply("add", total, cell.both(2, 1))
    one = b.scalar(1.0, b.facts[h].dtype)
    fresh = b.apply("mul", b.apply("sub", one, z), cell.active(1, total))
    return [b.apply("add", fresh, b.apply("mul", z, h))]


def _long_short(cell: _UnrolledLayer, step: str, states: Sequence[str]) -> list[str]:
    """Gates in the order i, o, f, c; weights of c in the order i, o, f."""
    b, (h, c) = cell.b, states
    i, o, f, fresh = cell.sums(step, h, 4)
    if cell.peepholes:
        i = b.apply("add", i, b.apply("mul", cell.peepholes[0], c))
        f = b.apply("add", f, b.apply("mul", cell.peepholes[2], c))
    kept = b.apply("mul", cell.active(0, f), c)
    made = b.apply("add", kept, b.apply("mul", cell.active(0, i), cell.active(1, fresh)))
    if cell.peepholes:
        o = b.apply("add", o, b.apply("mul", cell.peepholes[1], made))
    return [b.apply("mul", cell.active(0, o), cell.active(2, made)), made]


@dataclass(frozen=True, slots=True)
class _Kind:
    """How many gates and states a layer has, the activations that it has where none are named, and its step."""

    gates: int
    states: int
    functions: tuple[str, ...]
    step: Callable[[_UnrolledLayer, str, Sequence[str]], list[str]]


_KINDS = {
    "RNN": _Kind(1, 1, ("Tanh",), _plain),
    "GRU": _Kind(3, 1, ("Sigmoid", "Tanh"), _gated),
    "LSTM": _Kind(4, 2, ("Sigmoid", "Tanh", "Tanh"), _long_short),
}


def _layer(call: NodeCall) -> Sequence[str]:
    """Each direction by itself; what they give lies side by side."""
    b, kind = call.b, _KINDS[call.node.op]
    is_batch_first = bool(call.attributes.get("layout", 0))
    x = b.transpose(call[0], (1, 0, 2)) if is_batch_first and call.fact(0).rank == 3 else call[0]
    directions, hidden, call = _checked(call, x, kind)
    outputs: list[str] = []
    states: list[list[str]] = []
    for number in range(directions):
        is_reverse = call.attributes["direction"] == "reverse" or number == 1
        before = [_initial(call, x, 5 + i, number, hidden, is_batch_first) for i in range(kind.states)]
        y, after = _run(call, _cell(call, x, kind, number, hidden), kind, before, is_reverse)
        outputs.append(y)
        states.append(after)
    along = 2 if is_batch_first else 1
    steps, batch = b.facts[x].shape[:2]
    each = [b.reshape(b.transpose(y, (1, 0, 2)), (batch, steps, 1, hidden)) if is_batch_first
            else b.reshape(y, (steps, 1, batch, hidden)) for y in outputs]  # fmt: skip
    last = [b.concat([b.reshape(h, (batch, 1, hidden) if is_batch_first else (1, batch, hidden)) for h in found],
                    along - 1) for found in zip(*states, strict=True)]  # fmt: skip
    return (b.concat(each, along), *last)


def _checked(call: NodeCall, x: str, kind: _Kind) -> tuple[int, int, NodeCall]:
    """How many directions there are, the extent of the state, and the call with operands of the batch that x has."""
    fact, weights, given = call.b.facts[x], call.fact(1).shape, call.attributes
    directions = 2 if given["direction"] == "bidirectional" else 1
    if fact.rank != 3 or len(weights) != 3 or call.fact(2).rank != 3:
        raise Unsupported("inputs 0 to 2 must have three axes")
    steps, rows = fact.shape[0], weights[1]
    if not isinstance(steps, int) or not isinstance(rows, int) or rows % kind.gates:
        reason = "the number of steps and of units must be known when the model is loaded"
        raise OpenExtent(reason, (steps, rows))
    hidden = rows // kind.gates
    due = (directions, rows, fact.shape[2]), (directions, rows, hidden)
    if weights != due[0] or call.fact(2).shape != due[1] or given["hidden_size"] not in (None, hidden):
        raise Unsupported(f"weights are {list(weights)} and {list(call.fact(2).shape)}, must be {due[0]} and {due[1]}")
    if not 1 <= steps <= _MOST_STEPS:
        raise Unsupported(f"{steps} steps are unrolled, must be 1 to {_MOST_STEPS}")
    state = (fact.shape[1], directions, hidden) if given.get("layout", 0) else (directions, fact.shape[1], hidden)
    due_shapes = (
        *due, (directions, 2 * rows), (fact.shape[1],), *[state] * kind.states, (directions, 3 * hidden)
    )  # fmt: skip
    fitted = [
        _operand(call, at, dtypes.int32 if at == _LENGTHS else fact.dtype, shape)
        for at, shape in enumerate(due_shapes, 1)
    ]
    _check_attributes(call, kind, directions * len(kind.functions))
    return directions, hidden, replace(call, inputs=(call[0], *fitted))


def _operand(call: NodeCall, at: int, dtype: DType, shape: SymbolicShape) -> str | None:
    """An operand that is given, of that shape; Unsupported where it is of another format, or cannot have that."""
    if call.optional(at) is None:
        return None
    found = call.fact(at)
    is_other = len(found.shape) != len(shape) or any(
        dim.are_known(x, y) and x != y for x, y in zip(found.shape, shape, strict=True)
    )
    if found.dtype is not dtype or is_other:
        raise Unsupported(
            f"input {at} is {found.dtype.name} of shape {list(found.shape)}, must be {dtype.name} of {list(shape)}"
        )
    return call.fitted(at, shape)


def _check_attributes(call: NodeCall, kind: _Kind, count: int) -> None:
    """Raise Unsupported for a limit that is none, and for activations that are not so many; an RNN names two always."""
    limit, named = call.attributes["clip"], call.attributes["activations"]
    if limit is not None and not limit >= 0:
        raise Unsupported(f"attribute 'clip' is {limit}, must be 0 or more")
    is_other = named and tuple(named) != 2 * kind.functions
    if is_other and (len(named) != count or not set(named) <= set(_FUNCTIONS)):
        raise Unsupported(f"activations are {list(named)}, must be {count} of {list(_FUNCTIONS)}")


def _part(b: ProgramBuilder, x: str, number: int) -> str:
    """One of the first axis, which is left out."""
    shape = b.facts[x].shape
    return b.reshape(b.slice(x, (number, *[0] * (len(shape) - 1)), (1, *shape[1:]), (1,) * len(shape)), shape[1:])


def _cell(call: NodeCall, x: str, kind: _Kind, number: int, hidden: int) -> _UnrolledLayer:
    """A direction's weights, and what the inputs of all steps give."""
    b, dtype = call.b, call.fact(0).dtype
    steps, batch, inputs = b.facts[x].shape
    weights = [b.transpose(_part(b, call[i], number), (1, 0)) for i in (1, 2)]
    given = b.reshape(b.contract(_flat(b, x, inputs), weights[0]), (steps, batch, kind.gates * hidden))
    biases, peepholes = (_lines(call, at, number, kind, hidden) for at in (_BIASES, _PEEPHOLES))
    count = len(kind.functions)
    functions = (call.attributes["activations"] or 2 * kind.functions)[number * count : (number + 1) * count]
    limit = call.attributes["clip"]
    limits = () if limit is None else tuple(b.constant(elements.rounded(x, dtype)) for x in (limit, -limit))
    return _UnrolledLayer(
        b, tuple(_part(b, given, step) for step in range(int(str(steps)))), weights[1], biases, peepholes,
        tuple(functions), limits, hidden,
        bool(call.attributes.get("linear_before_reset", 0)), {},
    )  # fmt: skip


def _flat(b: ProgramBuilder, x: str, last: Size) -> str:
    """All but the last axis as one."""
    steps, batch, _ = b.facts[x].shape
    return b.reshape(x, (steps * batch, last))


def _lines(call: NodeCall, at: int, number: int, kind: _Kind, hidden: int) -> tuple[str, ...]:
    """A direction's biases, each of all gates, or peepholes, each of one; nothing where there are none."""
    b, x = call.b, call.optional(at)
    if x is None:
        return ()
    own = _part(b, x, number)
    (extent,) = b.facts[own].shape
    size = kind.gates * hidden if at == _BIASES else hidden
    return tuple(b.slice(own, (start,), (size,), (1,)) for start in range(0, int(str(extent)), size or 1))


def _initial(call: NodeCall, x: str, at: int, number: int, hidden: int, is_batch_first: bool) -> str:
    """A direction's first state; zeros where none is given."""
    b, given = call.b, call.optional(at)
    if given is None:
        return call.filled((b.facts[x].shape[1], hidden), np.zeros((), b.facts[x].dtype.numpy))
    return _part(b, b.transpose(given, (1, 0, 2)) if is_batch_first else given, number)


def _run(
    call: NodeCall, cell: _UnrolledLayer, kind: _Kind, states: list[str], is_reverse: bool
) -> tuple[str, list[str]]:  # fmt: skip
    """The outputs of all steps, [steps, batch, hidden], and the last states; sequences may end before the last step."""
    b, ends = call.b, call.optional(_LENGTHS)
    made = dict[int, str]()
    numbers = range(len(cell.steps))
    zero = b.scalar(0.0, call.fact(0).dtype)
    for at in reversed(numbers) if is_reverse else numbers:
        after = kind.step(cell, cell.steps[at], states)
        output = after[0]
        if ends is not None:
            is_there = b.reshape(b.apply("less", b.scalar(at, dtypes.int32), ends), (b.facts[ends].shape[0], 1))
            after = [b.apply("where", is_there, new, old) for new, old in zip(after, states, strict=True)]
            output = b.apply("where", is_there, output, zero)
        made[at], states = output, after
    each = [b.reshape(made[at], (1, *b.facts[made[at]].shape)) for at in numbers]
    return b.concat(each, 0), states


_COMMON = (
    Attribute("activation_alpha", None, "floats"),
    Attribute("activation_beta", None, "floats"),
    Attribute("clip", None, "float"),
    Attribute("direction", "forward", "string", ("forward", "reverse", "bidirectional")),
    Attribute("hidden_size", None),
    Attribute("layout", 0, allowed=(0, 1), since=14),
)


def _named(*default: str) -> Attribute:
    """The activations."""
    return Attribute("activations", default or None, "strings")


_LIMITS = "numbers of steps that are open when the model is loaded; other activations than Sigmoid, Tanh and Relu"

ROWS: tuple[OnnxRow, ...] = (
    OnnxRow("RNN", 7, _layer, (*_COMMON, _named("Tanh", "Tanh")), 6, limits=_LIMITS),
    OnnxRow(
        "GRU", 7, _layer, (*_COMMON, _named(), Attribute("linear_before_reset", 0, allowed=(0, 1))), 6, limits=_LIMITS
    ),
    OnnxRow("LSTM", 7, _layer, (*_COMMON, _named(), Attribute("input_forget", 0, allowed=(0,))), 8, limits=_LIMITS),
)
