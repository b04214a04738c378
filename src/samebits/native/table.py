"""Tables: plans laid out as one array of 64-bit words that a single native call runs.

Slots are the table's operands: each plan's operands are mapped onto them, and `run` is given one address a slot.
Several threads may run one table at once: each takes a frame (a copy of the words) of its own. The words are those of
`pool_text`. With the Isa row `numpy` the same table is walked in Python by the interpreter.
"""

from __future__ import annotations

import functools
from array import array
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from samebits import driver, errors
from samebits.codegen import interpreter
from samebits.codegen.vocabulary import FunctionSpec, KernelSpec
from samebits.kernels.plan import Operand, Plan, Step, in_lines
from samebits.native import scratch

MAX_THREADS = 255  # what the pool's state word and its sleepers' bits have room for
# Words before a table's steps, and words of a step.
HEADER, STEP = 8, 4
# A step is taken in at least so many grabs a thread, where it has as many tasks, and in twice as many at most: few
# enough that taking work costs nothing, enough that a grab more for one thread does not matter. (22 tasks in pairs are
# 6 grabs for one of two threads and 5 for the other: a twelfth of the time.)
_GRABS_A_THREAD = 16


def grain(tasks: int, threads: int) -> int:
    """Tasks that a thread takes at a time."""
    return max(1, tasks // (threads * _GRABS_A_THREAD)) if threads > 1 else tasks


# Where an operand lies: a slot, or a slot and how many bytes from its start.
Where = int | tuple[int, int]
# Where an eager call has an operand from: an array by its number among the arguments and how many bytes from its start;
# or `RESULT`, the new memory of the result, and how many bytes from that; or `FIXED` and an address.
CallPlace = tuple[int, int]
FIXED, RESULT = -1, -2


_Address = Callable[[KernelSpec | FunctionSpec], int]


def _no_address(spec: KernelSpec | FunctionSpec) -> int:
    """That of a kernel which is interpreted."""
    return 0


class _StepWords(NamedTuple):
    """The words of a step, those of its arguments, and (which one, operand, bytes on) for each that is an operand."""

    words: list[int]
    arguments: list[int]
    operands: list[tuple[int, int, int]]


def pairs(flat: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Numbers two by two: so the garbage collector has no pairs to look at while they are kept."""
    numbers = iter(flat)
    return zip(numbers, numbers, strict=False)


class _Frame:
    """One copy of a table's words, with the addresses of its own words and of constants, and those that it holds of
    other slots (None: not known)."""

    __slots__ = ("address", "last", "words")

    def __init__(self, table: Table) -> None:
        self.words = words = array("q", table.template)
        self.address = words.buffer_info()[0]
        for position, word in pairs(table.argument_words):
            words[position] = self.address + 8 * word
        for patches, address in zip(table.patches[table.slots :], table.constants, strict=True):
            for position, offset in pairs(patches):
                words[position] = address + offset
        self.last: tuple[int, ...] | None = None


class Table:
    """Steps of one or more plans, ready to run on this machine.

    Attributes:
        template: The words, operands and addresses of the words themselves left out.
        patches: For each slot where its address goes, and how many bytes on: `pairs`, one behind the other.
        argument_words: Where the address of a word goes, and which word: as many pairs as steps.
        shares: Whether several threads can have something to do.

    Args:    plans: each plan with where its operands lie (the workspace last, if it has one): a slot, or a slot and
                 how many bytes from its start.
             slots: how many slots `run` is given addresses for.   threads: callers and workers that share each step.
             constants: the addresses of the slots behind those. They are in frames alone, not in the words they are
                 copied from.
    Raises:  NativeError if a kernel cannot be compiled; OptionError if threads is out of range.
    """

    def __init__(
        self,
        plans: Sequence[tuple[Plan, Sequence[Where]]],
        slots: int,
        threads: int,
        constants: Sequence[int] = (),
    ) -> None:
        if not 1 <= threads <= MAX_THREADS:
            raise errors.OptionError(
                "Table", "threads", "", threads, f"within 1 .. {MAX_THREADS}", "leave it out for all cores"
            )
        self.slots, self.threads, self.constants = slots, threads, tuple(constants)
        # A plan that is used often has the same steps each time; to compare their descriptions would take longer.
        different = {id(plan): plan for plan, _ in plans}.values()
        self.scratch_bytes = max([in_lines(plan.scratch_bytes) for plan in different], default=0)
        self.steps: list[Step] = [step for plan, _ in plans for step in plan.steps if step.tasks]
        self.compiled = all(plan.isa.compiled for plan in different)
        address: _Address = _no_address
        self.shares = threads > 1 and any(step.tasks > 1 for step in self.steps)
        if self.compiled:
            from samebits.native import compile, pool  # LLVM is needed for compiled rows alone

            pool.link([spec for plan in different for step in plan.steps if step.tasks for spec in step.needs])
            self._pool, self._run, address = pool, pool.run_function(), compile.address
        self.patches: list[list[int]] = [[] for _ in range(slots + len(self.constants))]
        self.argument_words: list[int] = []
        self.template = self._layout(plans, address)
        self._frames: list[_Frame] = []

    def _layout(self, plans: Sequence[tuple[Plan, Sequence[Where]]], address: _Address) -> array[int]:
        """The words; a plan that is used often is read once."""
        words = [len(self.steps), self.threads, 0, self.scratch_bytes, 0, 0, 0, 0]
        arguments: list[int] = []
        first = HEADER + STEP * len(self.steps)
        read: dict[int, list[_StepWords]] = {}
        for plan, places in plans:
            steps = read.get(id(plan))
            if steps is None:
                steps = read[id(plan)] = [self._step_words(step, address) for step in plan.steps if step.tasks]
            where = [(place, 0) if isinstance(place, int) else place for place in places]
            for step in steps:
                start = first + len(arguments)
                self.argument_words += len(words) + 1, start
                words += step.words
                arguments += step.arguments
                for position, index, offset in step.operands:
                    slot, begin = where[index]
                    self.patches[slot] += start + position, begin + offset
        return array("q", words + arguments)

    def _step_words(self, step: Step, address: _Address) -> _StepWords:
        arguments, operands = list[int](), list[tuple[int, int, int]]()
        for position, argument in enumerate(step.arguments):
            if isinstance(argument, int):
                arguments.append(argument)
            elif isinstance(argument, Operand):
                operands.append((position, argument.index, argument.offset_bytes))
                arguments.append(0)
            else:
                arguments.append(address(argument))
        words = [address(step.spec), 0, step.tasks, grain(step.tasks, self.threads)]
        return _StepWords(words, arguments, operands)

    def run(self, addresses: Sequence[int]) -> None:
        """Perform every step; `addresses[slot]` is where that slot's bytes are. The GIL is released meanwhile."""
        try:
            frame = self._frames.pop()
        except IndexError:
            frame = _Frame(self)
        try:
            given = tuple(addresses)
            if frame.last != given:
                self._patch(frame, given)
            block = scratch.take(self.scratch_bytes * self.threads)
            try:
                frame.words[2] = block.address
                if self.compiled:
                    self._run_native(frame)
                else:
                    self._run_interpreted(frame.words, block.address)
            finally:
                scratch.give(block)
        finally:
            self._frames.append(frame)

    def _patch(self, frame: _Frame, addresses: tuple[int, ...]) -> None:
        if len(addresses) != self.slots:
            raise errors.OptionError("Table.run", "addresses", "count", len(addresses), self.slots, "give one a slot")
        words, known = frame.words, frame.last
        frame.last = None  # half written if what follows raises
        for slot, new in enumerate(addresses):
            if known is None or known[slot] != new:
                for position, offset in pairs(self.patches[slot]):
                    words[position] = new + offset
        frame.last = addresses

    def _run_native(self, frame: _Frame) -> None:
        if self.shares:
            frame.words[4] = self._pool.pool(self.threads).address
        self._run(frame.address)

    def _run_interpreted(self, words: array[int], temporary: int) -> None:
        with driver.default_float_environment():
            for step, (_, at) in zip(self.steps, pairs(self.argument_words), strict=True):
                given = words[at : at + len(step.arguments)].tolist()
                both = zip(step.arguments, given, strict=True)
                arguments = [x if isinstance(x, FunctionSpec) else word for x, word in both]
                interpreter.run(step.spec, arguments, 0, step.tasks, temporary)


@functools.lru_cache(maxsize=1024)
def alone(plan: Plan) -> Table:
    """The table of one plan, its operands the slots, and behind them its workspace."""
    slots = len(plan.operands) + 1
    return Table([(plan, range(slots))], slots, plan.threads)
