"""From a program with numbers for its sizes to a blueprint: storages, views, copies, lifetimes, questions to planners.

Its sizes are numbers of a tape, so that what is decided for one set of shapes holds for all that compare alike
(`blueprint.Blueprint`). Start at `Lowerer.lower`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from samebits import dtypes
from samebits.dtypes import DType
from samebits.errors import ShapeError
from samebits.frozen import dataclass, replace
from samebits.kernels.plan import Plan
from samebits.operations import packing, strided
from samebits.operations.elementwise import Map, single
from samebits.operations.fact import Fact
from samebits.operations.operation import Array, Known, Operation, PlanTarget, Shape, Source
from samebits.operations.packing import AnyView
from samebits.operations.strided import Strided
from samebits.program.constants import Deferred, Value, array_of
from samebits.program.graph import Node, Program
from samebits.program.room import BYTES
from samebits.runtime.blueprint import (
    ARENA,
    NOTHING,
    STATUS_BYTES,
    Blueprint,
    Check,
    Packed,
    Resident,
    Storage,
    Use,
    resident,
)
from samebits.runtime.kept import KeptForms
from samebits.runtime.places import Place
from samebits.runtime.plan_tape import Answers
from samebits.tape import Tape, Templates, template
from samebits.tensor import Tensor

__all__ = ["Lowerer"]


class _Bytes:
    """Bytes that places lie in: a constant (by number), a slot (an input or output), or else a part of the arena.

    `first` and `last` are the steps that touch them.
    """

    __slots__ = ("constant", "first", "last", "size_bytes", "slot")

    def __init__(self, size_bytes: int, slot: int | None = None, constant: int | None = None) -> None:
        self.size_bytes, self.slot, self.constant = size_bytes, slot, constant
        self.first: int | None = None
        self.last: int | None = None

    @property
    def is_temporary(self) -> bool:
        """Whether it is a part of the arena."""
        return self.slot is None and self.constant is None


@dataclass(frozen=True, slots=True)
class _Emitted:
    """A question to a planner, by number, and the places of the plan's operands."""

    origin: str
    question: int
    reads: tuple[Place, ...]
    writes: tuple[Place, ...]
    overwrites: bool


class Lowerer:
    """Lowers one program once.

    Args:
        program: What is lowered.
        facts: Of every value, its sizes numbers of the tape.
        tape: Where these numbers are written down.
        target: What plans are for.
        kept: Memory made from constants, shared by every shape.
        reuse: Whether temporaries may share memory.
        packed: What lies packed within bytes.
    """

    def __init__(
        self,
        program: Program,
        facts: Mapping[str, Fact],
        tape: Tape,
        target: PlanTarget,
        kept: KeptForms,
        reuse: bool,
        packed: Packed = NOTHING,
    ) -> None:
        self._program, self._facts, self._tape, self._target = program, facts, tape, target
        self._kept, self._reuse, self._packed = kept, reuse, packed
        self._storages: list[_Bytes] = []
        self._places: dict[str, Place] = {}
        self._constants: list[Resident | str] = []
        self._numbers: dict[int | str, int] = {}
        self._folds: list[Node] = []
        self._views: dict[str, Node] = {}  # of constants that are packed
        self._questions: dict[tuple[Callable[..., Plan], Any], int] = {}
        # How values of facts lie and how large they are, and numbers of questions, each beside what their keys go by.
        self._dense_facts: dict[int, tuple[Fact, Strided, int]] = {}
        self._asked: dict[Any, tuple[Sequence[Place], int]] = {}
        self._steps: list[_Emitted] = []
        self._checks: list[tuple[Check, Shape, Shape]] = []
        self._slots: dict[str, int] = {}
        self._defined: list[str] = []
        self._origin = ""
        self._status_storage: int | None = None

    # -- one node after the other -----------------------------------------------------------------------------
    def lower(self, node: Node) -> None:
        """The node's outputs: views of its input, or made by a plan.

        Raises:
            ShapeError: It indexes what has no elements, or follows from sizes and is too large to be computed early.
        """
        self._origin, row = node.label, node.row
        if row.view:
            self._seen(node, row.view)
        elif row.plan:
            self._planned(node, row)
        else:
            expected = f"within the {BYTES >> 20} MiB of what is computed before a run"
            actual = f"{math.prod(self._shape(node.outputs[0]))} {self._facts[node.outputs[0]].dtype.name}"
            raise ShapeError(node.operation, "its result", "", actual, expected, "give smaller inputs")

    def _seen(self, node: Node, view: Callable[[Any, Strided, Shape], Strided | None]) -> None:
        """An output in its input's memory, or in that of a dense copy."""
        (source,), (output,) = node.inputs, node.outputs
        place, shape = self._place(source), self._shape(output)
        found = view(node.attributes, place.strided, shape)
        if found is None:
            place = self._dense(place)
            found = view(node.attributes, place.strided, shape)
        assert found is not None  # a dense value has every view
        self._places[output] = replace(place, strided=found)
        is_constant = isinstance(self._program.constants.get(source), Tensor) or source in self._views
        if is_constant and all(type(extent) is int for extent in shape):
            self._views[output] = node

    def _planned(self, node: Node, row: Operation) -> None:
        """Outputs that a plan makes; inputs are copied first where it does not take them as they lie."""
        attributes, inputs = self._operands(node, row)
        attributes = row.asked(attributes) if row.asked else attributes
        outputs = [self._define(name) for name in node.outputs]
        shapes = [self._shape(name) for name in node.inputs]
        if not row.runs(shapes, [place.strided.shape for place in outputs]):
            return
        if row.takes:
            wanted = row.takes(attributes, [place.view for place in inputs])
            pairs = zip(inputs, wanted, strict=True)
            inputs = [x if shape is None else self._dense(x.wide(shape)) for x, shape in pairs]
        question = self._asked_of(node, attributes, inputs, outputs)
        if row.extents:
            outputs = [self._status(node, row.extents(attributes, shapes), shapes[1]), *outputs]
        elif row.refuses:
            outputs = [self._status(node, shapes[0], (), attributes), *outputs]
        self._step(question, inputs, outputs, row.overwrites)

    def _asked_of(self, node: Node, attributes: Any, inputs: Sequence[Place], outputs: Sequence[Place]) -> int:
        """The number of a node's question. Of one without sizes that was asked of values that lie so before it is found
        at once: to look for sizes would compare them."""
        places = [*inputs, *outputs]
        if hasattr(node.attributes, "bind"):
            return self._question(packing.plan, node.operation, attributes, _lies(places), len(outputs), self._target)
        key = (node.operation, attributes, len(outputs), *[(id(x.strided), x.dtype.name, x.is_packed) for x in places])
        found = self._asked.get(key)
        if found is None:
            number = self._question(packing.plan, node.operation, attributes, _lies(places), len(outputs), self._target)
            found = self._asked[key] = places, number
        return found[1]

    def _operands(self, node: Node, row: Operation) -> tuple[Any, list[Place]]:
        """The node's attributes and where its inputs lie, one stride an axis; a constant in the form that suits."""
        known = self._constants_of(node) if row.keep else {}
        kinds = [self._facts[name].dtype for name in node.inputs] if known else []
        kept = row.keep(node.attributes, kinds, known, self._target) if row.keep and known else None
        if kept is None:
            return node.attributes, [self._plain(name) for name in node.inputs]
        key = *(node.inputs[number] for number in (kept.index, *kept.within)), kept.key
        made = self._kept.taken(key, functools.partial(self._kept.form, kept))
        inputs = [
            self._known(made) if number == kept.index else self._plain(name)
            for number, name in enumerate(node.inputs)
            if number not in kept.within
        ]
        return kept.attributes, inputs

    def _constants_of(self, node: Node) -> dict[int, Known]:
        """The node's inputs that are constants, or views of constants that are packed within bytes, by number."""
        return {
            number: Known(self._shape(name), functools.partial(self._values, name), self._source(name))
            for number, name in enumerate(node.inputs)
            if name in self._program.constants or name in self._views
        }

    def _values(self, name: str) -> Array:
        """A constant as NumPy has it, or a view of one."""
        node = self._views.get(name)
        if node is None:
            return array_of(self._program.constants[name])
        return node.computed([self._values(node.inputs[0])])[0]

    def _source(self, name: str) -> Source | None:
        """What a constant follows from that is not in memory."""
        value = self._program.constants.get(name)
        return value.source if isinstance(value, Deferred) else None

    # -- where values lie ----------------------------------------------------------------------------------------
    def _shape(self, name: str) -> Shape:
        """The extents of a value."""
        return self._facts[name].shape  # type: ignore[return-value]  # facts are bound

    def _place(self, name: str) -> Place:
        """Where a value lies, whatever its strides."""
        found = self._places.get(name)
        if found is None:
            found = self._places[name] = self._known(self._constant(name))
        return found

    def _constant(self, name: str) -> Value:
        """A constant with elements in memory."""
        value = self._program.constants[name]
        if not isinstance(value, Deferred):
            return value
        return self._kept.taken(name, value.array)

    def _plain(self, name: str) -> Place:
        """Where a value lies with one stride an axis; it is copied if it must be."""
        place = self._place(name)
        if place.strided.strides is None:
            place = self._dense(place)
            self._places[name] = place
        return place

    def _define(self, name: str) -> Place:
        """Memory for a value, in its fact's stride order."""
        fact = self._facts[name]
        found = self._dense_facts.get(id(fact))
        if found is None:
            where, size = strided.dense(self._shape(name), fact.stride_order), math.prod(self._shape(name))
            found = self._dense_facts[id(fact)] = fact, where, size * fact.dtype.element_bytes
        _, where, size = found
        place = Place(self._add(_Bytes(size, slot=self._slots.get(name))), fact.dtype, where)
        self._places[name] = place
        self._defined.append(name)
        return place

    def _dense(self, source: Place) -> Place:
        """A dense copy, which is a step of the plan and printed with it."""
        size = math.prod(source.strided.shape) * source.dtype.element_bytes
        target = Place(self._add(_Bytes(size)), source.dtype, strided.dense(source.strided.shape))
        self._copy(source, target)
        return target

    def _copy(self, source: Place, target: Place) -> None:
        """Move elements between two places of one shape, each piece of an axis an axis of its own."""
        if 0 in source.strided.shape:
            return
        shape, read, write = strided.refined(source.strided, target.strided)
        views = source.lies(shape, read), target.lies(shape, write)
        if source.is_packed or target.is_packed:
            self._step(self._question(packing.moved, views, self._target), [source], [target])
            return
        copied = Map(single("copy", source.dtype))
        self._step(self._question(packing.plan, "map", copied, views, 1, self._target), [source], [target], True)

    def _status(self, node: Node, extents: Sequence[int], indices: Sequence[int], refuses: Any = None) -> Place:
        """Two int64 at the start of the arena; `indices`: their shape; `refuses`: the attributes of an operation that
        refuses elements."""
        if 0 in extents and refuses is None:
            remedy = "give elements to index, or no indices"
            raise ShapeError(node.operation, "data", "extents", tuple(extents), "at least 1", remedy)
        offset = STATUS_BYTES * len(self._checks)
        check = Check(offset, node.label, node.operation, refuses)
        self._checks.append((check, tuple(extents), tuple(indices)))
        if self._status_storage is None:
            self._status_storage = self._add(_Bytes(0, slot=ARENA))
        return Place(self._status_storage, dtypes.int64, Strided(offset // 8, (((2, 1),),)))

    def _question(self, planner: Callable[..., Plan], *arguments: Any) -> int:
        """The number of a question. What its arguments hold of sizes are numbers of the tape: each set of sizes gets a
        plan of its own."""
        return self._questions.setdefault((planner, template(arguments)), len(self._questions))

    def _step(self, question: int, reads: Sequence[Place], writes: Sequence[Place], overwrites: bool = False) -> None:
        """Run the plan that answers a question here."""
        now = len(self._steps)
        for place in (*reads, *writes):
            storage = self._storages[place.storage]
            storage.first = now if storage.first is None else storage.first
            storage.last = now
        self._steps.append(_Emitted(self._origin, question, tuple(reads), tuple(writes), overwrites))

    # -- what the session says ----------------------------------------------------------------------------------
    def give(self, name: str, slot: int, strides: Sequence[int]) -> None:
        """An input: it lies in a slot with these strides."""
        storage = self._add(_Bytes(0, slot=slot))
        where = strided.of_strides(self._shape(name), strides)
        self._places[name] = Place(storage, self._facts[name].dtype, where, name in self._packed.inputs)

    def want(self, name: str, slot: int) -> None:
        """An output: if a node defines it, it is written where the caller reads it, unless that is packed."""
        if name not in self._packed.outputs:
            self._slots[name] = slot

    def fold(self, node: Node, bound: Node) -> None:
        """A node whose values follow from constants and sizes, as it is and for these sizes: what lies densely within
        a constant is a view of it; else values are computed when the blueprint is bound, each a constant."""
        self._folds.append(node)
        if node.row.view and self._is_within(bound, node.row.view):
            return
        for name in node.outputs:
            fact = self._facts[name]
            self._places[name] = Place(self._numbered(name, name), fact.dtype, strided.dense(self._shape(name)))

    def _is_within(self, node: Node, view: Callable[[Any, Strided, Shape], Strided | None]) -> bool:
        """Whether a view of a constant is dense too; then it is noted where it lies."""
        (source,), (output,) = node.inputs, node.outputs
        if isinstance(self._program.constants.get(source), Deferred):
            return False  # its elements are in no memory
        place = self._place(source)
        found = view(node.attributes, place.strided, self._shape(output))
        if found is None or not found.is_dense:
            return False
        self._places[output] = replace(place, strided=found)
        return True

    def settle(self, name: str, slot: int) -> None:
        """Have an output lie in its slot, copied there if need be."""
        place = self._place(name)
        if self._storages[place.storage].slot == slot:
            return
        shape = self._shape(name)
        target = Place(self._add(_Bytes(0, slot=slot)), place.dtype, strided.dense(shape), name in self._packed.outputs)
        storage = self._storages[place.storage]
        size = math.prod(shape) * place.dtype.element_bytes
        is_alone = storage.is_temporary and place.strided.is_dense and place.strided.offset == 0
        is_alone = is_alone and not target.is_packed
        if is_alone and storage.size_bytes == size:
            storage.slot = slot
        else:
            self._origin = name
            self._copy(place, target)

    # -- the end ---------------------------------------------------------------------------------------------------
    def finish(self) -> Blueprint:
        """What was decided, with the places of numbers on the tape where they stood."""
        program, count = self._program, len(self._constants)
        is_read = [False] * count
        for storage in self._storages:
            if storage.constant is not None and storage.first is not None:
                is_read[storage.constant] = True
        read = [number for number in range(count) if is_read[number]]
        behind = ARENA + 1 + len(program.input_names) + len(program.output_names)
        slots = {number: slot for slot, number in enumerate(read, behind)}
        offsets = [[(x.storage, template(x.offset_bytes)) for x in (*step.reads, *step.writes)] for step in self._steps]
        overwrites = tuple(self._overwrites()) if self._reuse else ()
        templates = Templates(self._tape)  # no number is computed or compared any more
        return Blueprint(
            program=program,
            tape=self._tape,
            templates=templates,
            folds=_needed(self._folds, [self._constants[number] for number in read]),
            constants=tuple(self._constants[number] for number in read),
            storages=tuple(
                Storage(
                    templates.add(template(storage.size_bytes)),
                    storage.slot if storage.constant is None else slots.get(storage.constant),
                    storage.first,
                    storage.last,
                )
                for storage in self._storages
            ),
            questions=tuple(Answers(planner, arguments) for planner, arguments in self._questions),
            calls=tuple(
                Use(
                    step.origin,
                    step.question,
                    tuple([(storage, templates.add(offset)) for storage, offset in operands]),
                )
                for step, operands in zip(self._steps, offsets, strict=True)
            ),
            overwrites=overwrites,
            checks=tuple(
                [(check, templates.add(template(n)), templates.add(template(ids))) for check, n, ids in self._checks]
            ),
            outputs=tuple(
                (name, templates.add(template(self._shape(name))), self._kind(name)) for name in program.output_names
            ),
            values={} if self._reuse else {name: self._value(name, templates) for name in self._defined},
            reuse=self._reuse,
            packed=self._packed,
            arrangements={},
        )

    def _kind(self, name: str) -> Any:
        """What an output is made as: of a NumPy dtype, or packed of a DType."""
        dtype = self._facts[name].dtype
        return dtype if name in self._packed.outputs else dtype.numpy

    def _value(self, name: str, templates: Templates) -> tuple[int, DType, int, int]:
        """The storage of a value, its element format, and the places of its offset and axes."""
        place = self._places[name]
        offset, axes = (templates.add(template(x)) for x in (place.strided.offset, place.strided.axes))
        return place.storage, place.dtype, offset, axes

    def _overwrites(self) -> list[tuple[int, int, int]]:
        """Which kernel that reads a temporary for the last time may write its output there: where both lie alike."""
        found = []
        for now, step in enumerate(self._steps):
            taken: set[int] = set()
            for output in step.writes if step.overwrites else ():
                written = self._storages[output.storage]
                if not written.is_temporary or written.first != now:
                    continue
                for source in step.reads:
                    if source.storage not in taken and self._may_share(source, output, step, now):
                        taken.add(source.storage)
                        found.append((now, output.storage, source.storage))
                        break
        return found

    def _may_share(self, source: Place, output: Place, step: _Emitted, now: int) -> bool:
        read, written = self._storages[source.storage], self._storages[output.storage]
        return (
            read.is_temporary
            and read is not written
            and read.last == now
            and source.dtype.width_bits == output.dtype.width_bits
            and all(place.strided == output.strided for place in step.reads if place.storage == source.storage)
            and read.size_bytes == written.size_bytes
        )

    def _add(self, storage: _Bytes) -> int:
        self._storages.append(storage)
        return len(self._storages) - 1

    def _known(self, value: Value) -> Place:
        """A constant that is the same for every shape; one of the same address is the same constant."""
        constant = resident(value)
        storage = self._numbered(constant.address, constant)
        return Place(storage, dtypes.of(value.dtype), strided.dense(value.shape), isinstance(value, Tensor))

    def _numbered(self, key: int | str, constant: Resident | str) -> int:
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self._constants)
            self._constants.append(constant)
        return self._add(_Bytes(0, constant=number))


def _needed(folds: Sequence[Node], read: Sequence[Resident | str]) -> tuple[Node, ...]:
    """Those nodes, in order, that make what is read, by name, or what others of them need for it."""
    names, found = {each for each in read if isinstance(each, str)}, list[Node]()
    for node in reversed(folds):
        if not names.isdisjoint(node.outputs):
            names.update(node.inputs)
            found.append(node)
    return tuple(found[::-1])


def _lies(places: Sequence[Place]) -> tuple[AnyView, ...]:
    """How operands lie that have one stride an axis."""
    return tuple([place.lies(*place.view[1:]) for place in places])
