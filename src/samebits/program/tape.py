"""Numbers that write down how they were computed: what was decided for some sizes, asked again for others.

A `Tape` begins with variables (the values of symbols, the strides of inputs). Arithmetic on its numbers gives more of
them, each an entry of the tape; a comparison gives a plain bool and is an entry too, with the answer it had: a guard.
`replay` computes the entries again with other variables. If every guard answers as before, then whoever computed and
compared would have gone the same way and met these values; if one does not, nothing is known, and the work has to be
done again. That is a tape as automatic differentiation has it, with guards as tracing compilers have them.

Nothing gets past the tape unseen: a number that is used as an index, hashed, printed or turned to a plain int is
`pinned`, that is, guarded to have just this value. Start at `Tape`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any, cast

from samebits.frozen import dataclass

__all__ = ["At", "Tape", "Templates", "template"]

_Function = Callable[[int, int], int]
# In an entry, in the stead of the place of a result: it is a comparison.
_GUARD = -1


@dataclass(frozen=True, slots=True)
class At:
    """In a template, the number at this place of the tape."""

    place: int


class Tape:
    """Entries in the order they were made: operations with the place of their result, comparisons with their answer.

    Attributes:
        values: The numbers of the recording, by place.
        pinned: Places of numbers that are guarded to have one value.
    """

    def __init__(self) -> None:
        self.values: list[int] = []
        self.pinned: list[int] = []
        self._variables = 0
        self._constants: dict[int, int] = {}
        self._results: dict[tuple[_Function, int, int], Recorded] = {}
        self._answers: dict[tuple[_Function, int, int], bool] = {}
        self._entries: list[tuple[_Function, int, int, int, bool]] = []

    def variable(self, value: int) -> int:
        """The next variable; all of them come before anything is computed. It serves as an int wherever one does."""
        assert self._variables == len(self.values)  # `replay` gives the first places to them
        self._variables += 1
        return cast(int, Recorded(self, self._new(value), value))

    def replay(self, variables: Sequence[int]) -> list[int] | None:
        """The numbers for other variables, by place; None where a comparison comes out otherwise."""
        values = self.values.copy()
        values[: self._variables] = variables
        for function, x, y, place, answer in self._entries:
            if place != _GUARD:
                values[place] = function(values[x], values[y])
            elif function(values[x], values[y]) is not answer:
                return None
        return values

    def compute(self, function: _Function, x: int | Recorded, y: int | Recorded) -> Recorded:
        """The number function(x, y); one that was computed before is the same entry."""
        i, j = self._place(x), self._place(y)
        found = self._results.get((function, i, j))
        if found is None:
            value = function(self.values[i], self.values[j])
            found = self._results[function, i, j] = Recorded(self, self._new(value), value)
            self._entries.append((function, i, j, found.place, False))
        return found

    def compare(self, function: _Function, x: int | Recorded, y: int | Recorded) -> bool:
        """function(x, y), which is guarded from now on."""
        i, j = self._place(x), self._place(y)
        answer = self._answers.get((function, i, j))
        if answer is None:
            answer = self._answers[function, i, j] = bool(function(self.values[i], self.values[j]))
            self._entries.append((function, i, j, _GUARD, answer))
        return answer

    def pin(self, x: Recorded) -> int:
        """The number as a plain int, which it must be at every replay."""
        if self.compare(operator.eq, x, x.value) and x.place not in self.pinned:
            self.pinned.append(x.place)
        return x.value

    def _place(self, x: int | Recorded) -> int:
        if isinstance(x, Recorded):
            return x.place
        found = self._constants.get(x)
        if found is None:
            found = self._constants[x] = self._new(x)
        return found

    def _new(self, value: int) -> int:
        self.values.append(value)
        return len(self.values) - 1


class Recorded:
    """A number of a tape; stands for an int in arithmetic and comparisons.

    Attributes:
        place: Where it is on the tape.
        at: That place in a template.
        value: What it is in the recording; who reads it decides nothing by it.
    """

    __slots__ = ("_tape", "at", "place", "value")

    def __init__(self, tape: Tape, place: int, value: int) -> None:
        self._tape, self.place, self.at, self.value = tape, place, At(place), value

    def __add__(self, other: int | Recorded) -> int | Recorded:
        return self if type(other) is int and other == 0 else self._tape.compute(operator.add, self, other)

    def __sub__(self, other: int | Recorded) -> int | Recorded:
        return self if type(other) is int and other == 0 else self._tape.compute(operator.sub, self, other)

    def __rsub__(self, other: int) -> Recorded:
        return self._tape.compute(operator.sub, other, self)

    def __neg__(self) -> Recorded:
        return self._tape.compute(operator.sub, 0, self)

    def __mul__(self, other: int | Recorded) -> int | Recorded:
        if type(other) is int and other in (0, 1):
            return self if other else 0
        return self._tape.compute(operator.mul, self, other)

    __radd__ = __add__
    __rmul__ = __mul__

    def __floordiv__(self, other: int | Recorded) -> int | Recorded:
        return self if type(other) is int and other == 1 else self._tape.compute(operator.floordiv, self, other)

    def __rfloordiv__(self, other: int) -> Recorded:
        return self._tape.compute(operator.floordiv, other, self)

    def __mod__(self, other: int | Recorded) -> Recorded:
        return self._tape.compute(operator.mod, self, other)

    def __rmod__(self, other: int) -> Recorded:
        return self._tape.compute(operator.mod, other, self)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Recorded):
            return self.place == other.place or self._tape.compare(operator.eq, self, other)
        return self._tape.compare(operator.eq, self, other) if isinstance(other, int) else NotImplemented

    def __lt__(self, other: int | Recorded) -> bool:
        return self._tape.compare(operator.lt, self, other)

    def __gt__(self, other: int | Recorded) -> bool:
        return self._tape.compare(operator.lt, other, self)

    def __le__(self, other: int | Recorded) -> bool:
        return not self._tape.compare(operator.lt, other, self)

    def __ge__(self, other: int | Recorded) -> bool:
        return not self._tape.compare(operator.lt, self, other)

    def __bool__(self) -> bool:
        return not self._tape.compare(operator.eq, self, 0)

    def __index__(self) -> int:
        return self._tape.pin(self)

    __int__ = __index__

    def __hash__(self) -> int:
        return hash(self._tape.pin(self))

    def __repr__(self) -> str:
        return repr(self._tape.pin(self))


def template(value: Any) -> Any:
    """A value of nested tuples with the place of each number of a tape in its stead; plain data that can be hashed."""
    if type(value) is tuple:
        return tuple([each if type(each) is int else template(each) for each in value])
    return value.at if type(value) is Recorded else value


class Templates:
    """Templates of one tape that are filled with numbers again, all together: a tuple that is in several is made once.

    What they are made of stands in one list, each part behind those that it holds: first the numbers of the tape, by
    place, then what holds none, and tuples.

    Args:    tape: which has all of its entries.
    """

    def __init__(self, tape: Tape) -> None:
        self._numbers = len(tape.values)
        self._parts: list[tuple[Callable[[Sequence[Any]], Any] | None, Any]] = []
        self._known: dict[Any, int] = {}

    def add(self, value: Any) -> int:
        """Where in the list a template is going to be."""
        if type(value) is At:
            return value.place
        if type(value) is not tuple:
            # Equal values of other types are others; those that are known live, so no other has their identity.
            return self._part((int, value) if type(value) is int else id(value), None, value)
        items = tuple([self.add(each) for each in value])
        varies = any(place < self._numbers or self._parts[place - self._numbers][0] for place in items)
        take = operator.itemgetter(*items) if len(items) > 1 else lambda made: tuple([made[place] for place in items])
        return self._part((tuple, items), take if varies else None, value)

    def filled(self, numbers: Sequence[int]) -> list[Any]:
        """Every part with these numbers in it."""
        assert len(numbers) == self._numbers  # places of parts follow those of the numbers
        made = list[Any](numbers)
        for take, value in self._parts:
            made.append(take(made) if take else value)
        return made

    def _part(self, key: Any, take: Callable[[Sequence[Any]], Any] | None, value: Any) -> int:
        place = self._known.get(key)
        if place is None:
            place = self._known[key] = self._numbers + len(self._parts)
            self._parts.append((take, value))
        return place
