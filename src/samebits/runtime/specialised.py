"""A program for one set of shapes: symbols bound, sizes folded, everything in one table.

Start at `lower`; `Specialised.run` is the hot path.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from samebits import driver
from samebits.codegen.isa import Isa
from samebits.errors import PlanError, ShapeError
from samebits.native import scratch
from samebits.native.table import Table
from samebits.program import registry
from samebits.program.fact import Fact, check_extents
from samebits.program.fold import computed
from samebits.program.graph import Array, Node, Program
from samebits.program.primitive import Place
from samebits.program.room import Room, size_bytes
from samebits.runtime import limits
from samebits.runtime.buffers import aligned, viewed
from samebits.runtime.lowering import ARENA, Lowered, Lowerer

__all__ = ["Specialised", "lower"]


@driver.default_float_environment()
def lower(
    program: Program,
    isa: Isa,
    threads: int,
    symbols: Mapping[str, int],
    strides: Mapping[str, Sequence[int]],
    kept: dict[Any, Array],
    reuse: bool = True,
) -> Lowered:
    """The program with its symbols bound, as plans over memory; nothing is compiled.

    Args:
        program: What to lower.
        isa: The Isa row; it need not be one of this machine.
        threads: At most so many share a step.
        symbols: The value of each symbol.
        strides: Of each input, in elements.
        kept: Memory made from constants, shared by every shape; added to.
        reuse: Whether temporaries may share memory; without, every value can be read after a run.

    Raises:
        ShapeError: Operands do not fit with these sizes, or the values do not fit the memory of this machine.
    """
    facts = _bound_facts(program, symbols)
    lowerer = Lowerer(facts, isa, threads, kept, reuse)
    for name, array in program.constants.items():
        lowerer.know(name, array, fixed=True)
    for slot, name in enumerate(program.input_names, ARENA + 1):
        lowerer.give(name, slot, strides[name])
    first_output = ARENA + 1 + len(program.input_names)
    for slot, name in enumerate(program.output_names, first_output):
        lowerer.want(name, slot)
    room = Room()
    known: dict[str, Array] = dict(program.constants)
    for node in program.nodes:
        with _named(node):
            bound = node.bind(symbols)
        _check(bound, facts)
        with _named(node):
            if not known.keys() >= set(node.inputs) or not room.take(bound, facts):
                lowerer.at(bound)
                registry.ROWS[node.primitive].lower(lowerer, bound)
                continue
            made = computed(bound, [known[name] for name in node.inputs])
        for name, array in zip(node.outputs, made, strict=True):
            known[name] = _owned(array)
            lowerer.know(name, known[name], fixed=False)
    for slot, name in enumerate(program.output_names, first_output):
        lowerer.settle(name, slot)
    lowered = lowerer.finish(program.output_names)
    limits.check_total(lowered.arena_bytes + sum(size_bytes(facts[name]) for name in program.output_names))
    return lowered


@contextlib.contextmanager
def _named(node: Node) -> Iterator[None]:
    """Errors inside say which node they are about."""
    try:
        yield
    except (PlanError, ShapeError) as error:
        call = f"run: node {'+'.join(node.origin)!r}: {error.call}"
        raise error.renamed(call, error.operand) from error


def _bound_facts(program: Program, symbols: Mapping[str, int]) -> dict[str, Fact]:
    """Every fact with its symbols bound.

    Raises:  ShapeError, naming the first node whose operands do not fit.
    """
    facts = {name: program.facts[name].bind(symbols) for name in (*program.input_names, *program.constants)}
    for node in program.nodes:
        made: dict[str, Fact] = {}
        try:
            made = {name: program.facts[name].bind(symbols) for name in node.outputs}
            check_extents("run", list(made.values()))
        except ShapeError as error:
            raise _misfit(node, facts) from error
        facts |= made
        limits.check_values(node, made, program.outputs)
    return facts


def _owned(array: Array) -> Array:
    """A dense copy on aligned memory."""
    copy = aligned(array.shape, array.dtype)
    copy[...] = array
    return copy


def _check(node: Node, facts: Mapping[str, Fact]) -> None:
    """Raise ShapeError unless the operands' sizes give the outputs' sizes."""
    try:
        made = registry.ROWS[node.primitive].infer(node.description, node.inputs, [facts[name] for name in node.inputs])
    except ShapeError as error:
        raise _misfit(node, facts) from error
    if any(fact.shape != facts[name].shape for fact, name in zip(made, node.outputs, strict=True)):
        raise _misfit(node, facts)


def _misfit(node: Node, facts: Mapping[str, Fact]) -> ShapeError:
    shapes = [list(facts[name].shape) for name in node.inputs]
    where, expected = f"operands of node {'+'.join(node.origin)!r}", "shapes that fit each other"
    return ShapeError("run", where, "shapes", shapes, expected, "give inputs of other sizes")


class Specialised:
    """A table and what it needs around it for each run."""

    __slots__ = ("_lowered", "_status", "_table")

    def __init__(self, lowered: Lowered, threads: int) -> None:
        self._lowered = lowered
        self._status = ctypes.c_int64 * (lowered.status_bytes // 8)
        slots = ARENA + 1 + lowered.inputs + len(lowered.outputs)
        self._table = Table([(plan, range(slots)) for plan in lowered.plans], slots, threads)

    def run(self, arrays: Sequence[Array], empty: Callable[..., Array] = np.empty) -> dict[str, Array]:
        """The outputs by name, in memory of `empty(shape, dtype)`.

        Raises:  ShapeError if the data hold an index that is out of range; MemoryError if the system has too little.
        """
        arena = scratch.take(self._lowered.arena_bytes)
        made = self._run(arena, arrays, empty)
        scratch.give(arena)
        return made

    def trace(self, arrays: Sequence[Array]) -> dict[str, Array]:
        """Every computed value by name.

        Raises:  as `run`.
        """
        arena = scratch.take(self._lowered.arena_bytes)
        outputs = list(self._run(arena, arrays, np.empty).values())
        first_output = ARENA + 1 + self._lowered.inputs
        found = {
            name: _read(arena, offset, place) if slot == ARENA else outputs[slot - first_output]
            for name, (slot, offset, place) in self._lowered.values.items()
        }
        scratch.give(arena)
        return found

    def _run(self, arena: scratch.PageBlock, arrays: Sequence[Array], empty: Callable[..., Array]) -> dict[str, Array]:
        try:
            made = {name: empty(shape, dtype) for name, shape, dtype in self._lowered.outputs}
        except MemoryError:
            raise limits.no_memory("its outputs") from None
        addresses = [arena.address]
        for array in (*arrays, *made.values()):
            addresses.append(array.__array_interface__["data"][0])
        if not self._lowered.checks:
            self._table.run(addresses)
            return made
        status = self._status.from_address(arena.address)
        ctypes.memset(status, 0, self._lowered.status_bytes)
        self._table.run(addresses)
        for check in self._lowered.checks:
            if status[check.offset // 8]:
                found = status[check.offset // 8 + 1]
                where = f"an index of node {check.node!r}"
                raise ShapeError("run", where, "", found, check.expected, "give indices that exist")
        return made


def _read(arena: scratch.PageBlock, offset: int, place: Place) -> Array:
    """A copy of a value in the arena, in row-major order."""
    pieces = [piece for axis in place.strided.axes for piece in axis]
    if 0 in place.strided.shape:
        return np.empty(place.strided.shape, place.dtype.numpy)
    span = 1 + sum((size - 1) * stride for size, stride in pieces)
    start = arena.address + offset + place.strided.offset * place.dtype.size_bytes
    flat = viewed(arena, start, span, place.dtype.numpy)
    steps = tuple(stride * flat.itemsize for _, stride in pieces)
    view = np.lib.stride_tricks.as_strided(flat, tuple(size for size, _ in pieces), steps)
    return np.array(view).reshape(place.strided.shape)
