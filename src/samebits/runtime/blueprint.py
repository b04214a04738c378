"""What lowering decided, for all sizes that compare alike: which planners to ask, and what lies where.

A `Blueprint` holds places of a tape where numbers stood. Binding it to sizes replays the tape, computes what follows
from sizes alone, asks each planner once for each different question, places temporaries and says where every operand
lies. Nothing in it is an address: constants have slots, as inputs and outputs have. Start at `Blueprint.bind`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from samebits.dtypes import DType
from samebits.errors import PlanError, SamebitsError, ShapeError
from samebits.frozen import dataclass, replace
from samebits.kernels.plan import Plan, in_lines
from samebits.memory import ALIGNMENT, address_of
from samebits.operations import registry
from samebits.operations.operation import Array, outside
from samebits.operations.strided import Strided
from samebits.program.constants import Value, array_of
from samebits.program.graph import Node, Program
from samebits.program.memory import Steps, place, side_by_side
from samebits.runtime.plan_tape import Answers
from samebits.tape import Tape, Templates
from samebits.tensor import Tensor

__all__ = [
    "ARENA",
    "NOTHING",
    "STATUS_BYTES",
    "Blueprint",
    "Check",
    "Lowered",
    "Packed",
    "Resident",
    "Storage",
    "Use",
    "named",
    "resident",
]

# The slot of the arena; inputs, outputs and then constants follow it.
ARENA = 0
STATUS_BYTES = 16

# What the templates of a blueprint are filled to, by place.
_Made = Sequence[Any]
# A value's storage, element format, and the places of its offset and axes.
_Value = tuple[int, DType, int, int]


@dataclass(frozen=True, slots=True, eq=False)
class Resident:
    """A value that stays where it is for as long as anything needs it, and where that is."""

    value: Value
    address: int


@dataclass(frozen=True, slots=True)
class Packed:
    """The inputs and outputs whose elements are packed within bytes."""

    inputs: frozenset[str] = frozenset()
    outputs: frozenset[str] = frozenset()


NOTHING = Packed()


@dataclass(frozen=True, slots=True)
class Storage:
    """Bytes that operands lie in: a slot, or a part of the arena that steps `first` to `last` touch.

    Attributes:
        size_bytes: Of a part of the arena; its place among the templates.
        slot: None for a part of the arena.
        first: The first step that touches it; None if none does.
        last: The last one.
    """

    size_bytes: int
    slot: int | None
    first: int | None
    last: int | None


@dataclass(frozen=True, slots=True)
class Use:
    """One use of a plan: for which nodes, the number of its question, (storage, place of the offset) of operands."""

    origin: str
    question: int
    operands: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Check:
    """Two int64 of the arena: not zero after a run if `node` met an index that one of `extents` has not, or an element
    that its operation refuses, in an operand of these extents; `attributes` are those of such an operation, and
    `indices` the shape of the others' indices."""

    offset: int
    node: str
    operation: str
    attributes: Any = None
    extents: tuple[int, ...] = ()
    indices: tuple[int, ...] = ()

    def error(self, status: tuple[int, int]) -> SamebitsError:
        """What the two int64 say."""
        refuses = registry.ROWS[self.operation].refuses
        if refuses is not None:
            return named(refuses(self.attributes, self.extents, status[1]), self.node)
        return outside("run", f" of node {self.node!r}", status, self.extents, self.indices)


@dataclass(frozen=True, slots=True)
class Lowered:
    """A program bound to sizes.

    Attributes:
        calls: Each plan with where its operands lie, its workspace last if it has one: (slot, bytes from its start).
            Slots are the arena, the inputs, the outputs, the constants.
        origins: What each call is for.
        arena_bytes: Size of the arena.
        status_bytes: How much of it, from its start, must be zero before a run.
        checks: What to look at after a run.
        values: Where each value that a kernel makes lies, if no two share memory: (slot, bytes from it, dtype, where).
        inputs: How many slots the inputs take.
        outputs: The name and shape of each output, and its NumPy dtype, or its DType where it is packed, in the order
            of their slots.
        constants: What lies in the last slots.
    """

    calls: tuple[tuple[Plan, tuple[tuple[int, int], ...]], ...]
    origins: tuple[str, ...]
    arena_bytes: int
    status_bytes: int
    checks: tuple[Check, ...]
    values: Mapping[str, tuple[int, int, DType, Strided]]
    inputs: int
    outputs: tuple[tuple[str, tuple[int, ...], Any], ...]
    constants: tuple[Resident, ...]

    @property
    def slots(self) -> int:
        """How many there are."""
        return ARENA + 1 + self.inputs + len(self.outputs) + len(self.constants)


@dataclass(frozen=True, slots=True)
class _Arrangement:
    """How the arena is shared, whatever the sizes.

    Attributes:
        lives: Of the temporaries, then of the workspaces.
        sizes: Of the temporaries, places among the templates.
        steps: Those that have a workspace.
        where: The slot of each storage and where in it, but for those that are or share a temporary.
        parts: Those, each with the number of its temporary.
    """

    lives: tuple[Steps, ...]
    sizes: list[int]
    steps: list[int]
    where: list[tuple[int, int]]
    parts: list[tuple[int, int]]


@dataclass(frozen=True, slots=True, eq=False)
class Blueprint:
    """A lowered program before it is bound to sizes.

    Attributes:
        program: What was lowered.
        tape: How every number follows from symbols and strides, and which comparisons hold.
        templates: What is made of these numbers; the other attributes hold places of it.
        folds: The nodes whose values follow from constants and sizes, in order.
        constants: What the slots of constants hold: an array, or the name of a value of `folds`.
        storages: What operands lie in.
        questions: The different ones to planners, and what these answered.
        calls: The steps, in order.
        overwrites: (step, output's storage, input's storage): where the plan has no workspace, the output lies where
            the input did.
        checks: What to look at after a run, and the places of the extents and of the shape of indices.
        outputs: The name and shape of each output, and its NumPy dtype, or its DType where it is packed.
        values: Where each value that a kernel makes lies, if no two share memory.
        reuse: Whether temporaries may share memory.
        packed: What lies packed within bytes.
        arrangements: How the arena was shared, by which questions' plans had a workspace.
    """

    program: Program
    tape: Tape
    templates: Templates
    folds: tuple[Node, ...]
    constants: tuple[Resident | str, ...]
    storages: tuple[Storage, ...]
    questions: tuple[Answers, ...]
    calls: tuple[Use, ...]
    overwrites: tuple[tuple[int, int, int], ...]
    checks: tuple[tuple[Check, int, int], ...]
    outputs: tuple[tuple[str, int, Any], ...]
    values: Mapping[str, _Value]
    reuse: bool
    packed: Packed
    arrangements: dict[tuple[bool, ...], _Arrangement]

    def bind(self, numbers: Sequence[int], symbols: Mapping[str, int], texts: bool = True) -> Lowered:
        """The program with these sizes.

        Args:
            numbers: What the tape gave for them.
            symbols: The value of each symbol.
            texts: Whether plans are asked for what they say of themselves too, which takes longer.

        Raises:
            ShapeError: A node cannot have these sizes.
            PlanError: A kernel cannot.
        """
        constants = self._constants(symbols)
        made = self.templates.filled(numbers)
        plans = self._plans(numbers, texts)
        where, workspaces, status_bytes, arena_bytes = self._placed(plans, made)
        return Lowered(
            tuple(self._bound_calls(plans, where, workspaces, made)),
            tuple([call.origin for call in self.calls]),
            arena_bytes,
            status_bytes,
            tuple([replace(check, extents=made[n], indices=made[ids]) for check, n, ids in self.checks]),
            {name: _value(value, where, made) for name, value in self.values.items()},
            len(self.program.input_names),
            tuple([(name, made[shape], dtype) for name, shape, dtype in self.outputs]),
            constants,
        )

    def _constants(self, symbols: Mapping[str, int]) -> tuple[Resident, ...]:
        """What the slots of constants hold; what was computed is dense and on aligned memory."""
        known: dict[str, Array] = {}
        for node in self.folds:
            arrays = [known[name] if name in known else array_of(self.program.constants[name]) for name in node.inputs]
            try:
                made = node.bind(symbols).computed(arrays)
            except (PlanError, ShapeError) as error:
                raise named(error, node.label) from error
            known.update(zip(node.outputs, made, strict=True))
        return tuple([_owned(known[each]) if isinstance(each, str) else each for each in self.constants])

    def _plans(self, numbers: Sequence[int], texts: bool) -> list[Plan]:
        """The answer to each question."""
        plans: list[Plan] = []
        for answers in self.questions:
            try:
                plans.append(answers.asked(numbers) if texts else answers.plan(numbers))
            except (PlanError, ShapeError) as error:
                origin = next(call.origin for call in self.calls if call.question == len(plans))
                raise named(error, origin) from error
        return plans

    def _placed(self, plans: Sequence[Plan], made: _Made) -> tuple[list[tuple[int, int]], dict[int, int], int, int]:
        """The slot of each storage and where in it, the workspaces' offsets by step, the bytes of status and arena."""
        workspaces = [plan.workspace_bytes for plan in plans]
        key = tuple([size > 0 for size in workspaces])
        found = self.arrangements.get(key)
        if found is None:
            found = self.arrangements[key] = self._arranged(key)
        sizes = [made[size] for size in found.sizes] + [workspaces[self.calls[step].question] for step in found.steps]
        offsets, total = place(sizes, found.lives) if self.reuse else side_by_side(sizes)
        status_bytes = in_lines(STATUS_BYTES * len(self.checks))
        where = found.where.copy()
        for storage, owner in found.parts:
            where[storage] = ARENA, status_bytes + offsets[owner]
        own = offsets[len(found.sizes) :]
        workspaces_at = {step: status_bytes + at for step, at in zip(found.steps, own, strict=True)}
        return where, workspaces_at, status_bytes, status_bytes + total

    def _arranged(self, has_workspace: Sequence[bool]) -> _Arrangement:
        """What lies in the arena and how long, by which questions' plans have a workspace."""
        shared = list(range(len(self.storages)))
        last = [storage.last for storage in self.storages]
        for step, written, read in self.overwrites:
            if not has_workspace[self.calls[step].question]:
                shared[written] = shared[read]
                last[shared[read]] = last[written]
        lives: list[Steps] = []
        sizes: list[int] = []
        owners: dict[int, int] = {}
        for number, storage in enumerate(self.storages):
            if storage.slot is None and storage.first is not None and shared[number] == number:
                owners[number] = len(lives)
                lives.append((storage.first, last[number] or 0))
                sizes.append(storage.size_bytes)
        steps = [step for step, call in enumerate(self.calls) if has_workspace[call.question]]
        status_bytes = in_lines(STATUS_BYTES * len(self.checks))
        return _Arrangement(
            (*lives, *zip(steps, steps, strict=True)),
            sizes,
            steps,
            [(ARENA, status_bytes) if storage.slot is None else (storage.slot, 0) for storage in self.storages],
            [
                (number, owners[owner])
                for number, (owner, storage) in enumerate(zip(shared, self.storages, strict=True))
                if storage.slot is None and owner in owners
            ],
        )

    def _bound_calls(
        self,
        plans: Sequence[Plan],
        where: Sequence[tuple[int, int]],
        workspaces: Mapping[int, int],
        made: _Made,
    ) -> list[tuple[Plan, tuple[tuple[int, int], ...]]]:
        """Each plan with where its operands lie."""
        calls = []
        for step, call in enumerate(self.calls):
            operands = []
            for storage, offset in call.operands:
                slot, base = where[storage]
                operands.append((slot, base + made[offset]))
            if step in workspaces:
                operands.append((ARENA, workspaces[step]))
            calls.append((plans[call.question], tuple(operands)))
        return calls


def named(error: SamebitsError, node: str) -> SamebitsError:
    """The same error with the node's name in front."""
    return error.renamed(f"run: node {node!r}: {error.call}", error.operand)


def _value(value: _Value, where: Sequence[tuple[int, int]], made: _Made) -> tuple[int, int, DType, Strided]:
    storage, dtype, offset, axes = value
    return (*where[storage], dtype, Strided(made[offset], made[axes]))


def resident(value: Value) -> Resident:
    """The value and its address."""
    return Resident(value, value.address if isinstance(value, Tensor) else address_of(value))


def _owned(array: Array) -> Resident:
    """A dense copy on aligned memory."""
    memory = np.empty(array.nbytes + ALIGNMENT, np.uint8)
    start = -address_of(memory) % ALIGNMENT
    copy = memory[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return resident(copy)
