"""A program for one set of shapes: symbols bound, sizes folded, everything in one table.

`record` lowers the program for some sizes, `rebound` binds it to these and to others that compare alike.
`Specialised.run` is the hot path. Start at `record`.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any

import numpy as np

from samebits import driver, tuning
from samebits.codegen.isa import Isa
from samebits.collecting import without_collections
from samebits.dtypes import DType
from samebits.errors import PlanError, ShapeError
from samebits.frozen import replace
from samebits.memory import address_of
from samebits.native import scratch
from samebits.native.table import Table
from samebits.operations.fact import Fact, check_extents
from samebits.operations.operation import Array, PlanTarget
from samebits.operations.strided import Strided
from samebits.program.constants import Value, array_of, sees_packed
from samebits.program.graph import Node, Program
from samebits.program.room import Room
from samebits.runtime import limits
from samebits.runtime.blueprint import ARENA, NOTHING, Blueprint, Lowered, Packed, named
from samebits.runtime.buffers import empty, viewed
from samebits.runtime.kept import KeptForms
from samebits.runtime.lowering import Lowerer
from samebits.tape import Tape
from samebits.tensor import Tensor

__all__ = ["Specialised", "rebound", "record"]


@without_collections
@driver.default_float_environment()
def record(
    program: Program,
    isa: Isa,
    threads: int,
    symbols: Mapping[str, int],
    strides: Mapping[str, Sequence[int]],
    kept: dict[Any, Array],
    reuse: bool = True,
    packed: Packed = NOTHING,
    runs: bool = False,
) -> Blueprint:
    """The program lowered for these sizes, and for all that compare alike; nothing is compiled unless it `runs`.

    Args:
        program: What to lower.
        isa: The Isa row; it need not be one of this machine.
        threads: At most so many share a step.
        symbols: The value of each symbol.
        strides: Of each input, in elements.
        kept: Memory made from constants, shared by every shape; added to.
        reuse: Whether temporaries may share memory; without, every value can be read after a run.
        packed: What lies packed within bytes.
        runs: Whether it is going to run here, so that kernels may make what is kept.

    Raises:
        NativeError: A kernel cannot be compiled.
        ShapeError: Operands do not fit with these sizes, or the values do not fit the memory of this machine.
    """
    tape = Tape()
    sizes = {name: tape.variable(symbols[name]) for name in program.symbols}
    steps = {name: tuple(map(tape.variable, strides[name])) for name in program.input_names}
    facts = _bound_facts(program, sizes)
    target = PlanTarget(isa, threads, tuning.machine(isa), in_program=True)
    forms = KeptForms(kept, by_kernels=runs)
    lowerer = Lowerer(program, facts, tape, target, forms, reuse, packed)
    for slot, name in enumerate(program.input_names, ARENA + 1):
        lowerer.give(name, slot, steps[name])
    first_output = ARENA + 1 + len(program.input_names)
    for slot, name in enumerate(program.output_names, first_output):
        lowerer.want(name, slot)
    room = Room()
    known = set(program.constants)
    fitting = set[Any]()
    for node in program.nodes:
        bound = _bound(node, sizes, facts, fitting)
        is_known = known.issuperset(node.inputs) and node.row.folds
        is_known = is_known and not sees_packed(node.operation, map(program.constants.get, node.inputs))
        if is_known and room.take(bound, facts):
            known.update(node.outputs)
            lowerer.fold(node, bound)
            continue
        try:
            lowerer.lower(bound)
        except (PlanError, ShapeError) as error:
            raise named(error, node.label) from error
    for slot, name in enumerate(program.output_names, first_output):
        lowerer.settle(name, slot)
    return lowerer.finish()


@without_collections
@driver.default_float_environment()
def rebound(
    blueprint: Blueprint, symbols: Mapping[str, int], strides: Mapping[str, Sequence[int]], texts: bool = True
) -> Lowered | None:
    """The blueprint's program with these sizes; None if they compare otherwise than those it was recorded for.

    Args:    texts: whether its plans are asked for what they say of themselves too.

    Raises:  ShapeError or PlanError if the program cannot have these sizes.
    """
    program = blueprint.program
    variables = [symbols[name] for name in program.symbols]
    for name in program.input_names:
        variables += strides[name]
    numbers = blueprint.tape.replay(variables)
    if numbers is None:
        return None
    lowered = blueprint.bind(numbers, symbols, texts)
    outputs = sum(limits.bytes_of(shape, kind) for _, shape, kind in lowered.outputs)
    scratch = max([plan.scratch_bytes for plan, _ in lowered.calls], default=0)
    limits.check_total(lowered.arena_bytes + outputs + scratch)
    return lowered


def _bound_facts(program: Program, symbols: Mapping[str, int]) -> dict[str, Fact]:
    """Every fact with its symbols bound; of values alike one is checked.

    Raises:  ShapeError, naming the first node whose operands do not fit.
    """
    facts = {name: program.facts[name].bind(symbols) for name in (*program.input_names, *program.constants)}
    checked: dict[Any, Fact] = {}
    for node in program.nodes:
        for name in node.outputs:
            fact = program.facts[name]
            key = (node.operation, fact.dtype, fact.shape, fact.stride_order, name in program.outputs)
            bound = checked.get(key)
            if bound is None:
                bound = checked[key] = _checked(node, name, fact, symbols, facts, program.outputs)
            facts[name] = bound
    return facts


def _checked(
    node: Node,
    name: str,
    fact: Fact,
    symbols: Mapping[str, int],
    facts: Mapping[str, Fact],
    outputs: Container[str],
) -> Fact:
    """The fact of one output of a node with its symbols bound.

    Raises:  ShapeError, if the node's operands do not fit, or the machine cannot hold the value.
    """
    try:
        bound = fact.bind(symbols)
        check_extents("run", (bound,))
    except ShapeError as error:
        raise _misfit(node, facts) from error
    limits.check_value(node, name, bound, outputs)
    return bound


def _bound(node: Node, symbols: Mapping[str, int], facts: Mapping[str, Fact], fitting: set[Any]) -> Node:
    """The node with its symbols bound.

    Args:    fitting: what nodes before were asked for, whose operands fit; added to.
    Raises:  ShapeError unless the operands' sizes give the outputs' sizes.
    """
    try:
        bound = node.bind(symbols)
    except (PlanError, ShapeError) as error:
        raise named(error, node.label) from error
    # Facts that are alike are one object (`_bound_facts`): how they compare is on the tape already. What holds sizes is
    # not looked for: to find it would compare them.
    is_fixed = bound is node
    asked = (node.operation, node.attributes, *[id(facts[name]) for name in (*node.inputs, *node.outputs)])
    if is_fixed and asked in fitting:
        return bound
    try:
        made = bound.inferred(facts)
    except PlanError as error:
        raise named(error, node.label) from error
    except ShapeError as error:
        raise _misfit(node, facts) from error
    if any(fact.shape != facts[name].shape for fact, name in zip(made, node.outputs, strict=True)):
        raise _misfit(node, facts)
    if is_fixed:
        fitting.add(asked)
    return bound


def _misfit(node: Node, facts: Mapping[str, Fact]) -> ShapeError:
    """The error of operands that do not fit; of a single one it says what it does not fit, where that is bound."""
    shapes, where = [list(facts[name].shape) for name in node.inputs], f"of node {node.label!r}"
    due = [list(facts[name].shape) for name in node.outputs if name in facts]
    remedy = "give inputs of other sizes"
    if len(shapes) == len(due) == 1:
        return ShapeError("run", f"operand {where}", "shape", shapes[0], f"one that fits {due[0]}", remedy)
    return ShapeError("run", f"operands {where}", "shapes", shapes, "shapes that fit each other", remedy)


class Specialised:
    """A program bound to sizes: its table of native calls, its constants, and how results and status are laid out.

    Attributes:
        table: The table, which takes the arena and then what `run_on` takes.
        ran: Whether a session ran it before.
    """

    __slots__ = ("_lowered", "_status", "ran", "table")

    def __init__(self, lowered: Lowered, threads: int) -> None:
        self._lowered = replace(lowered, calls=(), origins=())  # which are in the table
        self._status = ctypes.c_int64 * (lowered.status_bytes // 8)
        constants = [constant.address for constant in lowered.constants]
        self.table = Table(lowered.calls, lowered.slots - len(constants), threads, constants)
        self.ran = False

    def run(self, given: Sequence[Value], new: Callable[..., Array] = empty) -> dict[str, Value]:
        """The outputs by name, in memory of `new(shape, dtype)`, or Tensors where they are packed.

        Raises:  ShapeError if the data hold an index that is out of range; MemoryError if the system has too little.
        """
        arena = scratch.take(self._lowered.arena_bytes)
        made = self._run(arena, given, new)
        scratch.give(arena)
        return made

    @property
    def outputs(self) -> tuple[tuple[str, tuple[int, ...], Any], ...]:
        """Name, shape and dtype of each output: a dtype of NumPy's, or a DType where it is packed."""
        return self._lowered.outputs

    @property
    def status_bytes(self) -> int:
        """How much of the arena, from its start, has to be zero before a run of the table, and then is where no index
        is refused."""
        return self._lowered.status_bytes

    @property
    def arena_bytes(self) -> int:
        """How much memory the arena takes."""
        return self._lowered.arena_bytes

    def run_on(self, addresses: Sequence[int]) -> None:
        """Run on memory that the caller holds: the addresses of the inputs, which lie as those that this was bound to,
        and of dense outputs behind them.

        Raises:  as `run`.
        """
        arena = scratch.take(self._lowered.arena_bytes)
        self._run_on(arena, [arena.address, *addresses])
        scratch.give(arena)

    def trace(self, given: Sequence[Value]) -> dict[str, Array]:
        """Every computed value by name.

        Raises:  as `run`.
        """
        arena = scratch.take(self._lowered.arena_bytes)
        outputs = [array_of(x) for x in self._run(arena, given, np.empty).values()]
        first_output = ARENA + 1 + self._lowered.inputs
        found = {
            name: _read(arena, offset, dtype, where) if slot == ARENA else outputs[slot - first_output]
            for name, (slot, offset, dtype, where) in self._lowered.values.items()
        }
        scratch.give(arena)
        return found

    def _run(self, arena: scratch.PageBlock, given: Sequence[Value], new: Callable[..., Array]) -> dict[str, Value]:
        made: dict[str, Value]
        try:
            made = {
                name: Tensor.empty(shape, kind) if type(kind) is DType else new(shape, kind)
                for name, shape, kind in self._lowered.outputs
            }
        except MemoryError:
            raise limits.no_memory("its outputs") from None
        addresses = [arena.address]
        for x in (*given, *made.values()):
            addresses.append(x.address if isinstance(x, Tensor) else address_of(x))
        self._run_on(arena, addresses)
        return made

    def _run_on(self, arena: scratch.PageBlock, addresses: list[int]) -> None:
        """Run the table on the addresses of arena, inputs and outputs."""
        if not self._lowered.checks:
            self.table.run(addresses)
            return
        status = self._status.from_address(arena.address)
        ctypes.memset(status, 0, self._lowered.status_bytes)
        self.table.run(addresses)
        for check in self._lowered.checks:
            mark, culprit = status[check.offset // 8 : check.offset // 8 + 2]
            if mark:
                raise check.error((mark, culprit))


def _read(arena: scratch.PageBlock, offset: int, dtype: DType, where: Strided) -> Array:
    """A copy of a value in the arena, in row-major order."""
    pieces = [piece for axis in where.axes for piece in axis]
    if 0 in where.shape:
        return np.empty(where.shape, dtype.numpy)
    span = 1 + sum((size - 1) * stride for size, stride in pieces)
    start = arena.address + offset + where.offset * dtype.element_bytes
    flat = viewed(arena, start, span, dtype.numpy)
    steps = tuple(stride * flat.itemsize for _, stride in pieces)
    view = np.lib.stride_tricks.as_strided(flat, tuple(size for size, _ in pieces), steps)
    return np.array(view).reshape(where.shape)
