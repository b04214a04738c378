"""What lowering decided, for all sizes that compare alike: which planners to ask, and what lies where.

A `Blueprint` holds places of a tape where numbers stood. Binding it to sizes replays the tape, computes what follows
from sizes alone, asks each planner once for each different question, places temporaries and says where every operand
lies. Nothing in it is an address: constants have slots, as inputs and outputs have. Start at `Blueprint.bind`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from samebits.codegen.isa import Isa
from samebits.dtypes import DType
from samebits.errors import PlanError, SamebitsError, ShapeError
from samebits.kernels.plan import Plan, in_lines
from samebits.operations.operation import Array
from samebits.operations.strided import Strided
from samebits.program import memory
from samebits.program.constants import Value, array_of
from samebits.program.fold import computed
from samebits.program.graph import Node, Program
from samebits.program.memory import Life
from samebits.program.tape import Tape, filled
from samebits.runtime.buffers import aligned
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

Numbers = Sequence[int]
# A planner and what it is asked: a template.
_Question = tuple[Callable[..., Plan], tuple[Any, ...]]
# A value's storage, element format, offset and axes: a template too.
_Value = tuple[int, DType, Any, Any]


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
        size_bytes: Of a part of the arena; a template.
        slot: None for a part of the arena.
        first: The first step that touches it; None if none does.
        last: The last one.
    """

    size_bytes: Any
    slot: int | None
    first: int | None
    last: int | None


@dataclass(frozen=True, slots=True)
class Use:
    """One use of a plan: for which nodes, the number of its question, (storage, offset template) of each operand."""

    origin: str
    question: int
    operands: tuple[tuple[int, Any], ...]


@dataclass(frozen=True, slots=True)
class Check:
    """Two int64 of the arena: not zero after a run if `node` met an index that one of `extents` has not."""

    offset: int
    node: str
    extents: tuple[Any, ...]

    @property
    def expected(self) -> str:
        """What an index must be in."""
        return "in " + " and ".join(f"[{-extent}, {extent})" for extent in self.extents)


@dataclass(frozen=True, slots=True)
class Lowered:
    """A program bound to sizes.

    Attributes:
        target: What its plans are for.
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

    target: Isa
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


@dataclass(frozen=True, slots=True, eq=False)
class Blueprint:
    """A lowered program before it is bound to sizes.

    Attributes:
        program: What was lowered.
        target: What its plans are for.
        tape: How every number follows from symbols and strides, and which comparisons hold.
        folds: The nodes whose values follow from constants and sizes, in order.
        constants: What the slots of constants hold: an array, or the name of a value of `folds`.
        storages: What operands lie in.
        questions: The different ones.
        calls: The steps, in order.
        overwrites: (step, output's storage, input's storage): where the plan has no workspace, the output lies where
            the input did.
        checks: What to look at after a run.
        outputs: The name and shape of each output, and its NumPy dtype, or its DType where it is packed.
        values: Where each value that a kernel makes lies, if no two share memory.
        reuse: Whether temporaries may share memory.
        packed: What lies packed within bytes.
    """

    program: Program
    target: Isa
    tape: Tape
    folds: tuple[Node, ...]
    constants: tuple[Resident | str, ...]
    storages: tuple[Storage, ...]
    questions: tuple[_Question, ...]
    calls: tuple[Use, ...]
    overwrites: tuple[tuple[int, int, int], ...]
    checks: tuple[Check, ...]
    outputs: tuple[tuple[str, Any, Any], ...]
    values: Mapping[str, _Value]
    reuse: bool
    packed: Packed

    def bind(self, numbers: Numbers, symbols: Mapping[str, int]) -> Lowered:
        """The program with these sizes.

        Args:
            numbers: What the tape gave for them.
            symbols: The value of each symbol.

        Raises:
            ShapeError: A node cannot have these sizes.
            PlanError: A kernel cannot.
        """
        constants = self._constants(symbols)
        plans = self._plans(numbers)
        where, workspaces, status_bytes, arena_bytes = self._placed(plans, numbers)
        return Lowered(
            self.target,
            tuple(self._bound_calls(plans, where, workspaces, numbers)),
            tuple([call.origin for call in self.calls]),
            arena_bytes,
            status_bytes,
            tuple([Check(check.offset, check.node, filled(check.extents, numbers)) for check in self.checks]),
            {name: _value(value, where, numbers) for name, value in self.values.items()},
            len(self.program.input_names),
            tuple([(name, filled(shape, numbers), dtype) for name, shape, dtype in self.outputs]),
            constants,
        )

    def _constants(self, symbols: Mapping[str, int]) -> tuple[Resident, ...]:
        """What the slots of constants hold; what was computed is dense and on aligned memory."""
        known: dict[str, Array] = {}
        for node in self.folds:
            arrays = [known[name] if name in known else array_of(self.program.constants[name]) for name in node.inputs]
            try:
                made = computed(node.bind(symbols), arrays)
            except (PlanError, ShapeError) as error:
                raise named(error, "+".join(node.origin)) from error
            known.update(zip(node.outputs, made, strict=True))
        return tuple([_owned(known[each]) if isinstance(each, str) else each for each in self.constants])

    def _plans(self, numbers: Numbers) -> list[Plan]:
        """The answer to each question."""
        plans: list[Plan] = []
        for planner, arguments in self.questions:
            try:
                plans.append(planner(*filled(arguments, numbers)))
            except (PlanError, ShapeError) as error:
                origin = next(call.origin for call in self.calls if call.question == len(plans))
                raise named(error, origin) from error
        return plans

    def _placed(
        self, plans: Sequence[Plan], numbers: Numbers
    ) -> tuple[list[tuple[int, int]], dict[int, int], int, int]:
        """The slot of each storage and where in it, the workspaces' offsets by step, the bytes of status and arena."""
        shared = list(range(len(self.storages)))
        last = [storage.last for storage in self.storages]
        for step, written, read in self.overwrites:
            if not plans[self.calls[step].question].workspace_bytes:
                shared[written] = shared[read]
                last[shared[read]] = last[written]
        lives: list[Life] = []
        owners: list[int] = []
        for number, storage in enumerate(self.storages):
            if storage.slot is None and storage.first is not None and shared[number] == number:
                lives.append(Life(filled(storage.size_bytes, numbers), storage.first, last[number] or 0))
                owners.append(number)
        steps = [step for step, call in enumerate(self.calls) if plans[call.question].workspace_bytes]
        lives += [Life(plans[self.calls[step].question].workspace_bytes, step, step) for step in steps]
        offsets, total = memory.place(lives) if self.reuse else memory.side_by_side(lives)
        status_bytes = in_lines(STATUS_BYTES * len(self.checks))
        found = dict(zip(owners, offsets, strict=False))
        where = [
            (ARENA, status_bytes + found.get(shared[number], 0)) if storage.slot is None else (storage.slot, 0)
            for number, storage in enumerate(self.storages)
        ]
        workspaces = {step: status_bytes + at for step, at in zip(steps, offsets[len(owners) :], strict=True)}
        return where, workspaces, status_bytes, status_bytes + total

    def _bound_calls(
        self,
        plans: Sequence[Plan],
        where: Sequence[tuple[int, int]],
        workspaces: Mapping[int, int],
        numbers: Numbers,
    ) -> list[tuple[Plan, tuple[tuple[int, int], ...]]]:
        """Each plan with where its operands lie."""
        made = []
        for step, call in enumerate(self.calls):
            operands = []
            for storage, offset in call.operands:
                if offset == 0:
                    operands.append(where[storage])
                    continue
                slot, base = where[storage]
                operands.append((slot, base + filled(offset, numbers)))
            if step in workspaces:
                operands.append((ARENA, workspaces[step]))
            made.append((plans[call.question], tuple(operands)))
        return made


def named(error: SamebitsError, node: str) -> SamebitsError:
    """The error of a node, which says which one."""
    return error.renamed(f"run: node {node!r}: {error.call}", error.operand)


def _value(value: _Value, where: Sequence[tuple[int, int]], numbers: Numbers) -> tuple[int, int, DType, Strided]:
    storage, dtype, offset, axes = value
    return (*where[storage], dtype, Strided(filled(offset, numbers), filled(axes, numbers)))


def resident(value: Value) -> Resident:
    """The value and its address."""
    return Resident(value, value.address if isinstance(value, Tensor) else value.__array_interface__["data"][0])


def _owned(array: Array) -> Resident:
    """A dense copy on aligned memory."""
    copy = aligned(array.shape, array.dtype)
    copy[...] = array
    return resident(copy)
