"""What a planner answered, for all sizes that compare alike: its numbers as a tape, to be computed again.

A planner is a pure function of its question. Asked with numbers of a strict tape in the stead of sizes it goes the way
that it goes for these, and its plan is a plan on a tape: kernels, and how tasks and arguments follow from sizes,
guarded by every comparison that was made. For sizes that compare alike a replay takes a tenth of the time of planning.
A planner that needs a number itself (for a look-up, a loop) makes no tape, and is asked each time.

What a plan says of itself as text is left out: such plans serve runs alone. Start at `Answers.plan`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from samebits.codegen.vocabulary import FunctionSpec, KernelSpec
from samebits.errors import SamebitsError
from samebits.kernels.plan import Operand, Plan, Step
from samebits.tape import At, Pinned, Recorded, Tape, Ways

__all__ = ["Answers", "filled"]

# Tapes that are made of a question: of lengths 1 to 128 of a small encoder each has a few. Where more come up, sizes
# have little in common, and making tapes takes longer than planning.
_MADE = 32
# As many count as made where a planner needed a number itself, which it may do for some sizes alone.
_REFUSED = 7


class _Filled:
    """A plan whose numbers are those of a tape.

    Raises:  Pinned if a kernel's description holds a number of the tape.
    """

    def __init__(self, tape: Tape, plan: Plan) -> None:
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

    def plan(self, numbers: list[Any]) -> Plan:
        """The plan for these numbers of the tape, without its texts; `numbers` is added to."""
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
        tapes: How many of them are kept.
        places: Of the numbers that the template holds.
    """

    def __init__(self, planner: Callable[..., Plan], arguments: Any) -> None:
        self.planner, self.arguments, self.tapes = planner, arguments, 0
        self.places = sorted(set(_places(arguments)))
        self._ways = Ways()
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
        found = self._ways.replay(variables)
        if found is None:
            self._made += 1
            if 0 < self._made <= _MADE:
                self._made += 0 if self._record(variables) else _REFUSED
                found = self._ways.replay(variables)
        return found[1].plan(found[0]) if found else self.asked(numbers)

    def _record(self, variables: Sequence[int]) -> bool:
        """Keep a tape for these sizes; False if the planner needs a number of them itself, or refuses them."""
        tape = Tape(strict=True)
        given = dict(zip(self.places, map(tape.variable, variables), strict=True))
        try:
            made = _Filled(tape, self.planner(*filled(self.arguments, given)))
        except (Pinned, SamebitsError):
            return False
        is_kept = self._ways.add(tape, made)
        self.tapes += is_kept
        return is_kept


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
