"""Records of calls of any sizes that compare alike: words of a table that are numbers of a tape, to be computed again.

What emitted code runs for a call (`native.calls`) is a list of words, and most of them are the same for all sizes that
a planner's comparisons do not tell apart. Start at `SizedRecord`.
"""

from __future__ import annotations

import operator
from array import array
from collections.abc import Callable, Sequence
from typing import Any

from samebits.codegen.vocabulary import FunctionSpec
from samebits.kernels.plan import Operand, Plan, in_lines
from samebits.native import calls, compile, pool
from samebits.native.call_text import FRAME, FRAME_WORDS
from samebits.native.calls import MakerOf
from samebits.native.table import HEADER, STEP, WORKSPACE, CallPlace, grain
from samebits.tape import Recorded, Tape

__all__ = ["SizedRecord"]


class SizedRecord:
    """A record of one plan on a tape, which has all of its entries when this was made.

    Args:    plan: compiled, for arrays and one new result.   places: of each of its operands, and no others.
             misaligned: bits that no address may have.   shape: of the result.
    Raises:  ValueError if emitted code has no room for so many words; Pinned if a kernel's description holds a number.
    """

    __slots__ = ("_late", "_others", "_take", "_threads", "_words", "_workers")

    def __init__(
        self, tape: Tape, plan: Plan, places: Sequence[CallPlace], misaligned: int, shape: Sequence[int]
    ) -> None:
        words, patches = _written(plan, (*places, (WORKSPACE, 0)))
        if len(words) > FRAME_WORDS:
            raise ValueError(f"{len(words)} words")
        shared_bytes = in_lines(plan.scratch_bytes) * plan.threads
        found: list[Any] = [*calls.head_of(words, patches, shared_bytes, plan.workspace_bytes, misaligned), *words]
        for patch in patches:
            found += patch
        self._words, self._threads = len(found), plan.threads
        shares = plan.threads > 1 and any(step.tasks > 1 for step in plan.steps)
        self._workers: Callable[[int], int] | None = calls.pool_address if shares else None
        found += shape
        # What an entry chooses by sizes, such as a function for so many rows, has its address when it is chosen.
        self._late = [at for at, x in enumerate(found) if type(x) is Recorded and _is_function(x.value)]
        self._others = [x for x in found if type(x) is not Recorded]
        behind = iter(range(len(tape.values), 1 << 62))
        self._take = operator.itemgetter(*[x.place if type(x) is Recorded else next(behind) for x in found])

    def words(self, numbers: list[Any]) -> tuple[bytes, tuple[int, ...]]:
        """The words of the record, and the shape of its result, for these numbers of the tape; they are added to.

        Raises:  OverflowError if one is beyond int64; NativeError if a function cannot be compiled.
        """
        numbers += self._others
        found = self._take(numbers)
        if self._late:
            chosen = list(found)
            for at in self._late:
                chosen[at] = compile.address(chosen[at])
            found = tuple(chosen)
        return array("q", found[: self._words]).tobytes(), found[self._words :]

    def keep(self, key: bytes, words: bytes, made: MakerOf, keep: object) -> None:
        """Have emitted code run these words for calls of a key.

        Args:    made: what makes the result.   keep: what the key tells by its address alone, and who has the memory
                     at fixed addresses.
        """
        calls.put_record(key, (words, (made,), self._workers, self._threads, keep))


def _is_function(value: object) -> bool:
    return type(value) is FunctionSpec


def _written(plan: Plan, places: Sequence[CallPlace]) -> tuple[list[Any], list[tuple[int, Any, Any]]]:
    """The words of a table of one plan, and its patches: what `Table` and `calls.record` make of plain numbers."""
    steps = [step for step in plan.steps if step.tasks]
    pool.link([x for step in steps for x in step.needs])
    begin, arguments, patches = HEADER + STEP * len(steps), list[Any](), list[tuple[int, Any, Any]]()
    shared_bytes = in_lines(plan.scratch_bytes)
    words: list[Any] = [len(steps), plan.threads, 0, shared_bytes, 0, 0, 0, 0]
    for number, step in enumerate(steps):
        start = begin + len(arguments)
        words += (compile.address(step.spec), start, step.tasks, grain(step.tasks, plan.threads))
        patches.append((HEADER + STEP * number + 1, FRAME, 8 * start))
        arguments += step.arguments
    words += arguments
    for at, x in enumerate(words):
        if type(x) is Operand:
            words[at] = 0
            calls.put_place(words, patches, at, places[x.index], x.offset_bytes, shared_bytes * plan.threads)
        elif type(x) is FunctionSpec:
            words[at] = compile.address(x)
    return words, patches
