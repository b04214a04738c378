"""What a planner answered, for all sizes that compare alike: its numbers as a tape, to be computed again.

A planner is a pure function of its question. Asked with numbers of a strict tape in the stead of sizes it goes the way
that it goes for these, and its plan is a plan on a tape: kernels, and how tasks and arguments follow from sizes,
guarded by every comparison that was made. For sizes that compare alike a replay takes a tenth of the time of planning.
A planner that needs a number itself (for a look-up, a loop) makes no tape, and is asked each time.

A tape serves runs alone: what a plan says of itself as text is left out. Start at `Answers.plan`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from samebits.codegen.vocabulary import FunctionSpec, KernelSpec
from samebits.errors import SamebitsError
from samebits.kernels.plan import Operand, Plan, Step
from samebits.tape import At, Pinned, Recorded, Tape

__all__ = ["Answers", "PlanTape", "filled"]

# Tapes of a question, those used last first, and how many are made: of lengths 1 to 128 of a small encoder each
# question has a few. Where more come up, sizes have little in common, and making tapes takes longer than planning.
_KEPT, _MADE = 8, 32
# As many count as made where a planner needed a number itself, which it may do for some sizes alone.
_REFUSED = 7


class PlanTape:
    """A plan whose numbers are those of a tape.

    Raises:  Pinned if a kernel's description holds a number of the tape.
    """

    def __init__(self, tape: Tape, plan: Plan) -> None:
        self._tape = tape
        self._isa, self._threads, self._names = plan.isa, plan.threads, plan.operands
        # Places count the numbers of the tape, then operands that begin at a number's bytes, then everything else.
        self._moving: list[tuple[int, int]] = []
        self._others: list[Any] = []
        steps: list[tuple[KernelSpec, tuple[Any, ...]]]
        steps = [(step.spec, (step.tasks, *step.arguments)) for step in plan.steps]
        for x in (x for spec, given in steps for x in (spec, *given) if type(x) in (KernelSpec, FunctionSpec)):
            hash(x)  # raises where it holds a number
        for _, given in steps:
            self._moving += [(x.index, x.offset_bytes.place) for x in given if _moves(x)]
        behind, at = len(tape.values) + len(self._moving), iter(range(len(tape.values), 1 << 62))

        def place(x: Any) -> int:
            if type(x) is Recorded:
                return x.place
            if _moves(x):
                return next(at)
            self._others.append(x)
            return behind + len(self._others) - 1

        self._sizes = place(plan.scratch_bytes), place(plan.workspace_bytes)
        self._steps = [(spec, operator.itemgetter(*map(place, given))) for spec, given in steps]
        tape.seal()

    def filled(self, variables: Sequence[int]) -> Plan | None:
        """The plan for these numbers, without its texts; None where they compare otherwise."""
        numbers: list[Any] | None = self._tape.replay(variables)
        if numbers is None:
            return None
        scratch, workspace = self._sizes
        numbers += [Operand(index, numbers[offset]) for index, offset in self._moving]
        numbers += self._others
        steps = []
        for spec, take in self._steps:
            tasks, *arguments = take(numbers)
            steps.append(Step(spec, tasks, tuple(arguments)))
        return Plan("", self._isa, self._threads, tuple(steps), self._names, numbers[scratch], numbers[workspace])


def _moves(x: Any) -> bool:
    """Whether it is an operand that begins at a number's bytes."""
    return type(x) is Operand and isinstance(x.offset_bytes, Recorded)


class Answers:
    """Of a question that is asked for many sizes the answers.

    Attributes:
        planner: Who is asked.
        arguments: A template of what.
        tapes: Those that are kept, the one used last first.
        places: Of the numbers that the template holds.
    """

    def __init__(self, planner: Callable[..., Plan], arguments: Any) -> None:
        self.planner, self.arguments = planner, arguments
        self.tapes: tuple[PlanTape, ...] = ()
        self.places = sorted(set(_places(arguments)))
        self._made = -1  # the first answer is a planner's: many programs are bound to one set of sizes alone

    def asked(self, numbers: Sequence[int]) -> Plan:
        """The planner's answer for these numbers of the tape that the template is of.

        Raises:  what the planner raises.
        """
        plan: Plan = self.planner(*filled(self.arguments, numbers))
        return plan

    def plan(self, numbers: Sequence[int]) -> Plan:
        """The same, without its texts where a tape has it.

        Raises:  what the planner raises.
        """
        variables = [numbers[place] for place in self.places]
        for tape in self.tapes:
            found = tape.filled(variables)
            if found is not None:
                if tape is not self.tapes[0]:
                    self._keep(tape)
                return found
        self._made += 1
        if 0 < self._made <= _MADE:
            made = self._recorded(variables)
            if made is None:
                self._made += _REFUSED
            else:
                self._keep(made)
                found = made.filled(variables)
                assert found is not None  # what was recorded compares as it did
                return found
        return self.asked(numbers)

    def _keep(self, tape: PlanTape) -> None:
        """Threads that do this at once keep what the last of them saw, which is only slower."""
        others = [each for each in self.tapes if each is not tape]
        self.tapes = (tape, *others[: _KEPT - 1])

    def _recorded(self, variables: Sequence[int]) -> PlanTape | None:
        """A tape for these sizes; None if the planner needs a number of them itself, or refuses them."""
        tape = Tape(strict=True)
        given = dict(zip(self.places, map(tape.variable, variables), strict=True))
        try:
            return PlanTape(tape, self.planner(*filled(self.arguments, given)))
        except (Pinned, SamebitsError):
            return None


def _places(value: Any) -> Iterator[int]:
    """The places that a template holds."""
    if type(value) is At:
        yield value.place
    elif type(value) is tuple:
        for each in value:
            yield from _places(each)


def filled(value: Any, numbers: Mapping[int, int] | Sequence[int]) -> Any:
    """A template with these numbers in it, by place."""
    if type(value) is tuple:
        return tuple([filled(each, numbers) for each in value])
    return numbers[value.place] if type(value) is At else value
