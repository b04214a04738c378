"""From a program with bound sizes to plans over memory: storages, views, copies, lifetimes, addresses.

`Lowerer` is what the primitives' `lower` sees; `finish` places every temporary in one arena and writes the addresses of
constants into the plans, so that only the arena, inputs and outputs are left to be patched at each run. Start there.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from samebits import dtypes
from samebits.codegen.isa import Isa
from samebits.dtypes import DType
from samebits.kernels.plan import Argument, Operand, Plan, Step
from samebits.program import copies, memory, strided
from samebits.program.fact import Fact
from samebits.program.graph import Array, Node
from samebits.program.primitive import Place
from samebits.program.strided import Strided

__all__ = ["ARENA", "Check", "Lowered", "Lowerer"]

# The slot of the arena; inputs and then outputs follow it.
ARENA = 0
_STATUS_BYTES = 16


@dataclass(slots=True)
class _Storage:
    """Bytes that places lie in: at an address (constants), in a slot (inputs, outputs), or in the arena.

    `first` and `last` are the steps that touch them, `numbers` what places call them by.
    """

    size_bytes: int
    address: int | None = None
    slot: int | None = None
    first: int | None = None
    last: int | None = None
    numbers: list[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Check:
    """Two int64 of the arena: not zero after a run if `node` met an index that is not in `expected`."""

    offset: int
    node: str
    expected: str


@dataclass(frozen=True, slots=True)
class Lowered:
    """A lowered program.

    Attributes:
        plans: In order, their operands being the slots: the arena, the inputs, the outputs.
        described: The same plans with what each is for.
        arena_bytes: Size of the arena.
        status_bytes: How much of it, from its start, must be zero before a run.
        checks: What to look at after a run.
        values: Where each value that a kernel makes lies: (slot, bytes from it, place).
        inputs: How many slots the inputs take, after the arena's.
        outputs: The name, shape and NumPy dtype of each output, in the order of their slots after those.
        keep_alive: The constants whose addresses are in the plans.
    """

    plans: tuple[Plan, ...]
    described: tuple[tuple[str, Plan], ...]
    arena_bytes: int
    status_bytes: int
    checks: tuple[Check, ...]
    values: Mapping[str, tuple[int, int, Place]]
    inputs: int
    outputs: tuple[tuple[str, tuple[int, ...], Any], ...]
    keep_alive: tuple[Array, ...]


class Lowerer:
    """Lowers one program for one set of shapes."""

    def __init__(
        self,
        facts: Mapping[str, Fact],
        isa: Isa,
        threads: int,
        kept: dict[Any, Array],
        reuse: bool,
    ) -> None:
        self.isa, self.threads = isa, threads
        self._facts, self._kept, self._reuse = facts, kept, reuse
        self._storages: list[_Storage] = []
        self._places: dict[str, Place] = {}
        self._constants: dict[str, Array] = {}
        self._held: dict[int, Array] = {}
        self._steps: list[tuple[str, Plan, list[Place]]] = []
        self._checks: list[Check] = []
        self._inputs = 0
        self._outputs: dict[str, int] = {}
        self._defined: list[str] = []
        self._origin = ""
        self._status: int | None = None

    # -- what primitives ask for (primitive.Lowering) ---------------------------------------------------------
    def shape(self, name: str) -> tuple[int, ...]:
        """The extents of a value."""
        return self._facts[name].shape  # type: ignore[return-value]  # facts are bound

    def place(self, name: str) -> Place:
        """Where a value lies, whatever its strides."""
        return self._places[name]

    def plain(self, name: str) -> Place:
        """Where a value lies with one stride an axis; it is copied if it must be."""
        place = self._places[name]
        if place.strided.strides is None:
            place = copies.dense(self, place)
            self._places[name] = place
        return place

    def define(self, name: str) -> Place:
        """Memory for a value, in its fact's stride order."""
        fact = self._facts[name]
        where = strided.dense(self.shape(name), fact.stride_order)
        size = math.prod(self.shape(name)) * fact.dtype.size_bytes
        slot = self._outputs.get(name)
        place = Place(self._add(_Storage(size, slot=slot)), fact.dtype, where)
        self._places[name] = place
        self._defined.append(name)
        return place

    def temporary(self, dtype: DType, shape: Sequence[int]) -> Place:
        """Memory that the node alone uses, dense."""
        size = math.prod(shape) * dtype.size_bytes
        return Place(self._add(_Storage(size)), dtype, strided.dense(shape))

    def alias(self, name: str, place: Place) -> None:
        """A value that lies where another does."""
        self._places[name] = place

    def constant(self, name: str) -> Array | None:
        """A value's elements, if they are known for every shape."""
        return self._constants.get(name)

    def keep(self, key: Any, make: Callable[[], Array]) -> Place:
        """Memory derived from constants, made once for the whole session under `key`."""
        if key not in self._kept:
            self._kept[key] = make()
        return self._known(self._kept[key])

    def status(self, node: Node, text: str) -> Place:
        """Two int64 at the start of the arena."""
        offset = _STATUS_BYTES * len(self._checks)
        self._checks.append(Check(offset, "+".join(node.origin), text))
        # The storage is made by `finish`; here it stands for the arena itself.
        return Place(self._status_storage(), dtypes.int64, Strided(offset // 8, (((2, 1),),)))

    def emit(self, plan: Plan, places: Sequence[Place]) -> None:
        """Run `plan` here, its operands at `places`."""
        operands = list(places)
        if plan.workspace_bytes:
            operands.append(self.temporary(dtypes.uint8, (plan.workspace_bytes,)))
        now = len(self._steps)
        for place in operands:
            storage = self._storages[place.storage]
            storage.first = now if storage.first is None else storage.first
            storage.last = now
        self._steps.append((self._origin, plan, operands))

    # -- what the session says ----------------------------------------------------------------------------------
    def give(self, name: str, slot: int, strides: Sequence[int]) -> None:
        """An input: it lies in a slot with these strides."""
        self._inputs += 1
        storage = self._add(_Storage(0, slot=slot))
        self._places[name] = Place(storage, self._facts[name].dtype, strided.of_strides(self.shape(name), strides))

    def want(self, name: str, slot: int) -> None:
        """An output: if a node defines it, it is written where the caller reads it."""
        self._outputs[name] = slot

    def know(self, name: str, array: Array, fixed: bool) -> None:
        """A constant; `fixed` if it is the same for every shape."""
        self._places[name] = self._known(array)
        if fixed:
            self._constants[name] = array

    def at(self, node: Node) -> None:
        """Plans from now on are for this node."""
        self._origin = "+".join(node.origin) or ", ".join(node.outputs)

    def settle(self, name: str, slot: int) -> None:
        """See that an output is in its slot: what is elsewhere is copied there."""
        place = self._places[name]
        if self._storages[place.storage].slot == slot:
            return
        shape = self.shape(name)
        target = Place(self._add(_Storage(0, slot=slot)), place.dtype, strided.dense(shape))
        storage = self._storages[place.storage]
        size = math.prod(shape) * place.dtype.size_bytes
        free = storage.slot is None and storage.address is None
        if free and place.strided.is_dense and place.strided.offset == 0 and storage.size_bytes == size:
            storage.slot = slot
        else:
            self._origin = name
            copies.copy(self, place, target)

    # -- the end ---------------------------------------------------------------------------------------------------
    def finish(self, outputs: Sequence[str]) -> Lowered:
        """Offsets for temporaries, addresses for constants, slots for the rest."""
        if self._reuse:
            self._write_in_place()
        status_bytes = -(-_STATUS_BYTES * len(self._checks) // memory.ALIGNMENT) * memory.ALIGNMENT
        temporaries = [s for s in self._distinct() if s.slot is None and s.address is None and s.first is not None]
        if self._reuse:
            offsets, total = memory.place([memory.Life(s.size_bytes, s.first or 0, s.last or 0) for s in temporaries])
        else:
            sizes = [-(-s.size_bytes // memory.ALIGNMENT) * memory.ALIGNMENT for s in temporaries]
            *offsets, total = itertools.accumulate(sizes, initial=0)
        where = {id(s): status_bytes + offset for s, offset in zip(temporaries, offsets, strict=True)}
        plans = tuple(
            replace(
                plan,
                steps=tuple(self._resolved(step, places, where) for step in plan.steps),
                operands=(),
                workspace_bytes=0,
            )
            for _, plan, places in self._steps
        )
        values = {name: (*self._base(self._places[name], where), self._places[name]) for name in self._defined}
        return Lowered(
            plans,
            tuple((origin, plan) for origin, plan, _ in self._steps),
            status_bytes + total,
            status_bytes,
            tuple(self._checks),
            values,
            self._inputs,
            tuple((name, self.shape(name), self._facts[name].dtype.numpy) for name in outputs),
            tuple(self._held.values()),
        )

    def _resolved(self, step: Step, places: Sequence[Place], where: Mapping[int, int]) -> Step:
        """The step with slots for operands, addresses for constants."""
        arguments: list[Argument] = []
        for argument in step.arguments:
            if not isinstance(argument, Operand):
                arguments.append(argument)
                continue
            place = places[argument.index]
            slot, base = self._base(place, where)
            offset = base + place.strided.offset * place.dtype.size_bytes + argument.offset_bytes
            arguments.append(offset if slot < 0 else Operand(slot, offset))
        return replace(step, arguments=tuple(arguments))

    def _base(self, place: Place, where: Mapping[int, int]) -> tuple[int, int]:
        """(slot, offset) of a place's storage, or (-1, address) of a constant."""
        storage = self._storages[place.storage]
        if storage.address is not None:
            return -1, storage.address
        if storage.slot is not None:
            return storage.slot, 0
        return ARENA, where.get(id(storage), 0)

    def _write_in_place(self) -> None:
        """A kernel that reads a temporary for the last time writes its output there, where both lie alike."""
        for now, (_, plan, places) in enumerate(self._steps):
            if plan.workspace_bytes:
                continue
            outputs = [place for place, name in zip(places, plan.operands, strict=False) if name.startswith("output")]
            inputs = [place for place, name in zip(places, plan.operands, strict=False) if name.startswith("input")]
            for output in outputs:
                written = self._storages[output.storage]
                if written.slot is not None or written.address is not None or written.first != now:
                    continue
                for source in inputs:
                    read = self._storages[source.storage]
                    views = [place.strided for place in places if self._storages[place.storage] is read]
                    if self._may_share(read, written, source, output, now) and set(views) == {output.strided}:
                        self._merge(read, written)
                        break

    def _may_share(self, read: _Storage, written: _Storage, source: Place, output: Place, now: int) -> bool:
        return (
            read.slot is None
            and read.address is None
            and read is not written
            and read.last == now
            and read.size_bytes == written.size_bytes
            and source.strided == output.strided
            and source.dtype.width_bits == output.dtype.width_bits
        )

    def _merge(self, read: _Storage, written: _Storage) -> None:
        read.last = written.last
        read.numbers += written.numbers
        for number in written.numbers:
            self._storages[number] = read

    def _distinct(self) -> list[_Storage]:
        return list({id(storage): storage for storage in self._storages}.values())

    def _add(self, storage: _Storage) -> int:
        storage.numbers.append(len(self._storages))
        self._storages.append(storage)
        return len(self._storages) - 1

    def _status_storage(self) -> int:
        if self._status is None:
            self._status = self._add(_Storage(0, slot=ARENA))
        return self._status

    def _known(self, array: Array) -> Place:
        address = array.__array_interface__["data"][0]
        if address not in self._held:
            self._held[address] = array
        storage = self._add(_Storage(array.nbytes, address=address))
        return Place(storage, dtypes.of(array.dtype), strided.dense(array.shape))
