"""Numbers that write down how they were computed: what was decided for some sizes, asked again for others.

A `Tape` begins with variables (the values of symbols, the strides of inputs). Arithmetic on its numbers gives more of
them, each an entry of the tape; a comparison gives a plain bool and is an entry too, with the answer it had: a guard.
`replay` computes the entries again with other variables. If every guard answers as before, then whoever computed and
compared would have gone the same way and met these values; if one does not, nothing is known, and the work has to be
done again. That is a tape as automatic differentiation has it, with guards as tracing compilers have them.

Nothing gets past the tape unseen: a number that is used as an index, hashed, printed or turned to a plain int is
`pinned`, that is, guarded to have just this value; where a tape is `strict`, `Pinned` is raised instead. What a
function of numbers answers may be one entry (`entry`), so that it need not be walked through. Start at `Tape`.
"""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Callable, Sequence
from typing import Any, ParamSpec, TypeVar, cast

from samebits.frozen import dataclass

__all__ = [
    "At", "Pinned", "Recorded", "Tape", "Templates", "Ways", "cached", "entry", "larger", "smaller", "template",
]  # fmt: skip

_P = ParamSpec("_P")
_T = TypeVar("_T")
_Function = Callable[..., Any]
# In an entry, in the stead of the place of a result: it is a comparison.
_GUARD = -1
# In an entry, in the stead of the place of its second operand: the first is where a tuple of all arguments is said.
_CALL = -1


class Pinned(Exception):
    """A number of a strict tape was to become a plain int."""


@dataclass(frozen=True, slots=True)
class At:
    """In a template, the number at this place of the tape."""

    place: int


class Tape:
    """Entries in the order they were made: operations with the place of their result, comparisons with their answer.

    Attributes:
        values: The numbers of the recording, by place.
        pinned: Places of numbers that are guarded to have one value.

    Args:    strict: raise `Pinned` rather than pin a number; one that is printed is then a question mark.
    """

    def __init__(self, strict: bool = False) -> None:
        self.values: list[Any] = []
        self.pinned: list[int] = []
        self.strict = strict
        self._variables = 0
        self._constants: dict[int | tuple[int], int] = {}
        self._results: dict[tuple[_Function, Any, int], Recorded] = {}
        self._answers: dict[tuple[_Function, int, int], bool] = {}
        self._entries: list[tuple[_Function, int, int, int, bool]] = []

    def __len__(self) -> int:
        """How many entries there are."""
        return len(self._entries)

    def variable(self, value: int) -> int:
        """The next variable; all of them come before anything is computed. It serves as an int wherever one does."""
        assert self._variables == len(self.values)  # `replay` gives the first places to them
        self._variables += 1
        return cast(int, Recorded(self, self._new(value), value))

    def replay(self, variables: Sequence[int]) -> list[Any] | None:
        """The numbers for other variables, by place; None where a comparison comes out otherwise."""
        values = self.values.copy()
        values[: self._variables] = variables
        for function, x, y, place, answer in self._entries:
            if y == _CALL:
                values[place] = function(*[values[at] for at in values[x]])
            elif place != _GUARD:
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

    def call(self, function: _Function, arguments: Sequence[Any]) -> Recorded:
        """function(*arguments), which decides nothing but by these: a number, or what only stands in a template."""
        places = tuple(map(self._place, arguments))
        key = function, places, _CALL
        found = self._results.get(key)
        if found is None:
            value = function(*[self.values[place] for place in places])
            at = self._new(places)
            found = self._results[key] = Recorded(self, self._new(value), value)
            self._entries.append((function, at, _CALL, found.place, False))
        return found

    def compare(self, function: _Function, x: int | Recorded, y: float | Recorded) -> bool:
        """function(x, y), which is guarded from now on."""
        i, j = self._place(x), self._place(y)
        answer = self._answers.get((function, i, j))
        if answer is None:
            answer = self._answers[function, i, j] = bool(function(self.values[i], self.values[j]))
            self._entries.append((function, i, j, _GUARD, answer))
        return answer

    def pin(self, x: Recorded) -> int:
        """The number as a plain int, which it must be at every replay.

        Raises:  Pinned if the tape is strict.
        """
        if self.strict:
            raise Pinned
        if self.compare(operator.eq, x, x.value) and x.place not in self.pinned:
            self.pinned.append(x.place)
        return x.value

    def branches(self) -> list[tuple[_Branch, bool]]:
        """The entries up to each comparison with the answer it had, and those behind the last one."""
        found, begin, start = list[tuple[_Branch, bool]](), self._variables, 0
        for number, each in enumerate((*self._entries, None)):
            if each is not None and each[3] != _GUARD:
                continue
            entries = tuple([(function, x, y, place) for function, x, y, place, _ in self._entries[start:number]])
            made = {place for *_, place in entries}
            # What an entry or a comparison takes was written down before it, and behind that only what comes later.
            stop = len(self.values) if each is None else 1 + max(begin - 1, each[1], each[2], *made)
            numbers = [None if place in made else self.values[place] for place in range(begin, stop)]
            found.append((_Branch(numbers, entries, each[:3] if each else None), each is not None and each[4]))
            begin, start = stop, number + 1
        return found

    def _place(self, x: Any) -> int:
        if type(x) is Recorded:
            return x.place
        key = x if type(x) is int else (id(x),)  # what is a value here lives as long as the tape
        found = self._constants.get(key)
        if found is None:
            found = self._constants[key] = self._new(x)
        return found

    def _new(self, value: Any) -> int:
        self.values.append(value)
        return len(self.values) - 1


class _Branch:
    """A part of tapes up to the next comparison, and what follows by its answer; or up to their end, which is there.

    Attributes:
        numbers: By place, behind those before it: what is a value from the start, and None for what an entry makes.
        entries: A function, where its operands are, the place of its result.
        guard: The comparison, and where its operands are; None at the end.
        following: By its answer; None where no tape went on.
        end: What there is at the end.
    """

    __slots__ = ("end", "entries", "following", "guard", "numbers")

    def __init__(
        self,
        numbers: list[Any],
        entries: tuple[tuple[_Function, int, int, int], ...],
        guard: tuple[_Function, int, int] | None,
    ) -> None:
        self.numbers, self.entries, self.guard = numbers, entries, guard
        self.following: list[_Branch | None] = [None, None]
        self.end: Any = None

    def is_like(self, other: _Branch) -> bool:
        """Whether another branch computes the same of the same."""
        return (self.numbers, self.entries, self.guard) == (other.numbers, other.entries, other.guard)


class Ways:
    """Tapes of one pure function, which begin alike: up to a comparison that comes out otherwise each goes the way of
    another. So all of them are replayed together in the time of one.
    """

    def __init__(self) -> None:
        self._first: _Branch | None = None

    def add(self, tape: Tape, end: Any) -> bool:
        """Have what is found at the end of a tape; whether it begins as the others do, as those of a pure function."""
        branches = tape.branches()
        for (branch, answer), (behind, _) in itertools.pairwise(branches):
            branch.following[answer] = behind
        branches[-1][0].end = end
        if self._first is None:
            self._first = branches[0][0]
        known = self._first
        for number, (branch, answer) in enumerate(branches):
            if not known.is_like(branch):
                return False
            if known.guard is None:
                break
            following = known.following[answer]
            if following is None:
                # Threads that do this at once keep what the last of them saw, which is only slower.
                known.following[answer] = branches[number + 1][0]
                break
            known = following
        return True

    def replay(self, variables: Sequence[int]) -> tuple[list[Any], Any] | None:
        """The numbers for these variables, by place, and what is at the end; None where no tape went that way."""
        numbers, branch = list[Any](variables), self._first
        while branch is not None:
            numbers += branch.numbers
            for function, x, y, place in branch.entries:
                if y == _CALL:
                    numbers[place] = function(*[numbers[at] for at in numbers[x]])
                else:
                    numbers[place] = function(numbers[x], numbers[y])
            if branch.guard is None:
                return numbers, branch.end
            function, x, y = branch.guard
            branch = branch.following[function(numbers[x], numbers[y])]
        return None


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

    @property
    def tape(self) -> Tape:
        """The tape that the number is written on."""
        return self._tape

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

    def __divmod__(self, other: int | Recorded) -> tuple[int | Recorded, Recorded]:
        return self // other, self % other

    def __rdivmod__(self, other: int) -> tuple[int | Recorded, Recorded]:
        return other // self, other % self

    def __rshift__(self, bits: int) -> int | Recorded:
        return self // (1 << bits)

    def __abs__(self) -> int | Recorded:
        return -self if self < 0 else self

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Recorded):
            return self.place == other.place or self._tape.compare(operator.eq, self, other)
        return self._tape.compare(operator.eq, self, other) if isinstance(other, int | float) else NotImplemented

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

    def __round__(self) -> int:
        return self._tape.pin(self)

    def __hash__(self) -> int:
        return hash(self._tape.pin(self))

    def __repr__(self) -> str:
        return "?" if self._tape.strict else repr(self._tape.pin(self))

    def __format__(self, how: str) -> str:
        return "?" if self._tape.strict else format(self._tape.pin(self), how)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tape.pin(self), name)  # whatever else an int has


def entry(function: Callable[_P, _T]) -> Callable[_P, _T]:
    """A pure function of numbers, and of other values by position: asked with a number of a tape, it is an entry of it.

    Its answer is computed anew at each replay, and what it does to find it needs no guard.
    """

    @functools.wraps(function)
    def asked(*arguments: _P.args, **named: _P.kwargs) -> _T:
        for x in arguments:
            if type(x) is Recorded:
                assert not named  # they would not be written down
                return cast(_T, x.tape.call(function, arguments))
        return function(*arguments, **named)

    return asked


def smaller(x: int, y: int) -> int:
    """The smaller one, without a guard."""
    return _of_two(min, x, y)


def larger(x: int, y: int) -> int:
    """The larger one, without a guard."""
    return _of_two(max, x, y)


def _of_two(function: Callable[[int, int], int], x: int | Recorded, y: int | Recorded) -> int:
    either = x if type(x) is Recorded else y
    if type(either) is Recorded:
        return cast(int, either.tape.compute(function, x, y))
    return function(cast(int, x), cast(int, y))


def cached(maxsize: int) -> Callable[[Callable[_P, _T]], Callable[_P, _T]]:
    """As `functools.lru_cache`; asked with numbers of a strict tape, which have no hash, it keeps nothing."""

    def made(function: Callable[_P, _T]) -> Callable[_P, _T]:
        kept: Any = functools.lru_cache(maxsize)(function)

        @functools.wraps(function)
        def asked(*arguments: _P.args, **named: _P.kwargs) -> _T:
            try:
                return cast(_T, kept(*arguments, **named))
            except Pinned:
                return function(*arguments, **named)

        asked.cache_clear, asked.cache_info = kept.cache_clear, kept.cache_info  # type: ignore[attr-defined]
        return asked

    return made


def _pinning(name: str) -> Callable[..., Any]:
    """An operation of ints that no tape writes down: its numbers are pinned."""

    def operation(x: Recorded, *others: Any) -> Any:
        return getattr(int(x), name)(*[int(y) if type(y) is Recorded else y for y in others])

    return operation


for _name in ("truediv", "lshift", "and", "or", "xor", "pow"):
    for _side in ("", "r"):
        setattr(Recorded, f"__{_side}{_name}__", _pinning(f"__{_side}{_name}__"))
for _name in ("rrshift", "pos", "invert"):
    setattr(Recorded, f"__{_name}__", _pinning(f"__{_name}__"))


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
