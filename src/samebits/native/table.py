"""Tables: plans laid out as one array of 64-bit words that a single native call runs.

Slots are the table's operands: each plan's operands are mapped onto them, and `run` is given one address a slot.
Several threads may run one table at once: each takes a frame (a copy of the words) of its own. The words are those of
`pool_text`. With the Isa row `numpy` the same table is walked in Python by the interpreter.
"""

from __future__ import annotations

import functools
import itertools
from array import array
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from samebits import driver, errors
from samebits.codegen.vocabulary import FunctionSpec, KernelSpec
from samebits.frozen import dataclass
from samebits.kernels.plan import Operand, Plan, Step, in_lines
from samebits.native import scratch
from samebits.tape import larger

MAX_THREADS = 255  # what the pool's state word and its sleepers' bits have room for
# Words before a table's steps, and words of a step.
HEADER, STEP = 8, 4
# A step is taken in at least so many grabs a thread, where it has as many tasks, and in twice as many at most: few
# enough that taking work costs nothing, enough that a grab more for one thread does not matter. (22 tasks in pairs are
# 6 grabs for one of two threads and 5 for the other: a twelfth of the time.)
_GRABS_A_THREAD = 16


def grain(tasks: int, threads: int) -> int:
    """Tasks that a thread takes at a time."""
    return larger(1, tasks // (threads * _GRABS_A_THREAD)) if threads > 1 else tasks


# Where an operand lies: a slot, or a slot and how many bytes from its start.
Where = int | tuple[int, int]
# Where a remembered call has an operand from: an array by its number among the arguments and how many bytes from its
# start; or `FIXED` and an address; or `WORKSPACE`, the memory that a table needs beside its operands, and how many
# bytes from that; or `RESULT`, the new memory of the result, and how many bytes from that. The numbers below `RESULT`
# are the results behind the first.
CallPlace = tuple[int, int]
FIXED, WORKSPACE, RESULT = -1, -2, -3
# An array of indices, side by side, by its number among the arguments: the bytes of one (4 or 8), how many they are,
# and what each has to be below; none is negative.
Bound = tuple[int, int, int, int]


_Address = Callable[[KernelSpec | FunctionSpec], int]
_Numbers = npt.NDArray[np.int64]


def _no_address(spec: KernelSpec | FunctionSpec) -> int:
    """That of a kernel which is interpreted."""
    return 0


@dataclass(frozen=True, slots=True, eq=False)
class _PlanWords:
    """The words of a plan's steps, where arguments begin counted from the plan's first; those of all its arguments; and
    of each that is an operand three: which argument, the operand, how many bytes on."""

    steps: array[int]
    arguments: array[int]
    operands: array[int]


class _Frame:
    """One copy of a table's words, with the addresses of its own words and of constants, and those that it holds of
    other slots (None: not known)."""

    __slots__ = ("address", "last", "words")

    def __init__(self, table: Table) -> None:
        self.words = array("q", table.template)
        self.address = self.words.buffer_info()[0]
        starts = _starts(self.words, len(table.steps))
        starts *= 8
        starts += self.address
        self.last: tuple[int, ...] | None = None


def _starts(words: array[int], steps: int) -> _Numbers:
    """Of a table's words those that say where the arguments of each step are."""
    return np.frombuffer(words, np.int64)[HEADER + 1 : HEADER + STEP * steps : STEP]


class Table:
    """Steps of one or more plans, ready to run on this machine.

    Attributes:
        template: The words; operands are left out, and where arguments begin is the number of a word.
        places: Where the address of an operand goes, by operand: the word, the slot, how many bytes on.
        shares: Whether several threads can have something to do.

    Args:    plans: each plan with where its operands lie (the workspace last, if it has one): a slot, or a slot and
                 how many bytes from its start.
             slots: how many slots `run` is given addresses for.   threads: callers and workers that share each step; a
                 plan for one thread is its caller's alone.
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
        different = {id(plan): plan for plan, _ in plans}
        self.scratch_bytes = max([in_lines(plan.scratch_bytes) for plan in different.values()], default=0)
        self.steps: list[Step] = [step for plan, _ in plans for step in plan.steps if step.tasks]
        self.compiled = all(plan.isa.compiled for plan in different.values())
        address: _Address = _no_address
        several = (step for plan in different.values() if plan.threads > 1 for step in plan.steps)
        self.shares = threads > 1 and any(step.tasks > 1 for step in several)
        if self.compiled:
            from samebits.native import compile, pool  # LLVM is needed for compiled rows alone

            pool.link([x for plan in different.values() for step in plan.steps if step.tasks for x in step.needs])
            self._pool, self._run, address = pool, pool.run_function(), compile.address
        read = {number: self._plan_words(plan, address) for number, plan in different.items()}
        self.template, self.places = self._layout([read[id(plan)] for plan, _ in plans], [where for _, where in plans])
        self._moves: dict[int, list[tuple[int, int]]] = {}
        self._frames: list[_Frame] = []

    def _layout(
        self, read: Sequence[_PlanWords], places: Sequence[Sequence[Where]]
    ) -> tuple[array[int], tuple[_Numbers, _Numbers, _Numbers]]:
        """The words, and where operands go."""
        words = array("q", [len(self.steps), self.threads, 0, self.scratch_bytes, 0, 0, 0, 0])
        arguments, operands = array("q"), array("q")
        for plan in read:
            words.extend(plan.steps)
            arguments.extend(plan.arguments)
            operands.extend(plan.operands)
        pairs = [(x, 0) if isinstance(x, int) else x for x in itertools.chain.from_iterable(places)]
        where = array("q", itertools.chain.from_iterable(pairs))
        starts = _before(HEADER + STEP * len(self.steps), [len(plan.arguments) for plan in read])
        of_steps = _starts(words, len(self.steps))
        of_steps += np.repeat(starts, [len(plan.steps) // STEP for plan in read])
        del of_steps  # while it is there no words can follow
        words.extend(arguments)
        counts = [len(plan.operands) // 3 for plan in read]
        at, operand, offsets = np.frombuffer(operands, np.int64).reshape(-1, 3).T
        slots, begins = np.frombuffer(where, np.int64).reshape(-1, 2).T
        operand = operand + np.repeat(_before(0, list(map(len, places))), counts)
        return words, (at + np.repeat(starts, counts), slots[operand], offsets + begins[operand])

    def _plan_words(self, plan: Plan, address: _Address) -> _PlanWords:
        words, arguments, operands = array("q"), list[Any](), list[int]()
        for step in plan.steps:
            if not step.tasks:
                continue
            start = len(arguments)
            words.extend((address(step.spec), start, step.tasks, grain(step.tasks, min(plan.threads, self.threads))))
            arguments += step.arguments
            for at in [at for at, x in enumerate(step.arguments, start) if type(x) is not int]:
                x = arguments[at]
                if isinstance(x, Operand):
                    operands += at, x.index, x.offset_bytes
                    x = 0
                arguments[at] = address(x) if isinstance(x, FunctionSpec) else x
        return _PlanWords(words, array("q", arguments), array("q", operands))

    @property
    def starts(self) -> list[int]:
        """The word where the arguments of each step begin."""
        found: list[int] = _starts(self.template, len(self.steps)).tolist()
        return found

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
        if known is None:
            at, slots, offsets = self.places
            np.frombuffer(words, np.int64)[at] = np.array(addresses + self.constants, np.int64)[slots] + offsets
        else:
            for slot, new in enumerate(addresses):
                if known[slot] != new:
                    for position, offset in self.moves(slot):
                        words[position] = new + offset
        frame.last = addresses

    def moves(self, slot: int) -> list[tuple[int, int]]:
        """The words that hold an address of a slot, and how many bytes on it is."""
        found = self._moves.get(slot)
        if found is None:
            at, slots, offsets = self.places
            mine = slots == slot
            found = self._moves[slot] = list(zip(at[mine].tolist(), offsets[mine].tolist(), strict=True))
        return found

    def _run_native(self, frame: _Frame) -> None:
        if self.shares:
            frame.words[4] = self._pool.pool(self.threads).address
        self._run(frame.address)

    def _run_interpreted(self, words: array[int], temporary: int) -> None:
        from samebits.codegen import interpreter  # for the row `numpy` alone

        with driver.default_float_environment():
            for step, start in zip(self.steps, self.starts, strict=True):
                given = words[start : start + len(step.arguments)].tolist()
                both = zip(step.arguments, given, strict=True)
                arguments = [x if isinstance(x, FunctionSpec) else word for x, word in both]
                interpreter.run(step.spec, arguments, 0, step.tasks, temporary)


def _before(first: int, sizes: Sequence[int]) -> _Numbers:
    """Where each of some lists of these sizes begins, one behind the other."""
    return np.array(list(itertools.accumulate(sizes, initial=first))[:-1], np.int64)


@functools.lru_cache(maxsize=1024)
def alone(plan: Plan) -> Table:
    """The table of one plan; its slots are the plan's operands, then the workspace."""
    slots = len(plan.operands) + 1
    return Table([(plan, range(slots))], slots, plan.threads)


def check_threads(name: str, threads: int | None) -> int:
    """A `threads=` argument as a count; None is every usable core.

    Raises:  OptionError if it is no count.
    """
    if threads is None:
        return min(driver.usable_cores(), MAX_THREADS)
    if isinstance(threads, int | np.integer) and not isinstance(threads, bool) and 1 <= threads <= MAX_THREADS:
        return int(threads)
    expected = f"an integer from 1 to {MAX_THREADS}"
    raise errors.OptionError(name, "threads", "", errors.shown(threads), expected, "leave it out for every core")
