"""Tapes: a replay gives what computing afresh would give, or says that it would go another way."""

from __future__ import annotations

import itertools
import operator
import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from samebits.tape import At, Pinned, Tape, Templates, Ways, cached, entry, larger, smaller, template

OPERATORS = (operator.add, operator.sub, operator.mul, operator.floordiv, operator.mod)
COMPARISONS = (operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge)


def filled(tape: Tape, value: Any, numbers: Sequence[int]) -> Any:
    """A template with these numbers in it."""
    templates = Templates(tape)
    place = templates.add(value)
    return templates.filled(numbers)[place]


def work(seed: int) -> Callable[[Sequence[int]], list[int]]:
    """A function of two numbers that branches on comparisons of all that it computed so far."""

    def run(variables: Sequence[int]) -> list[int]:
        chance = random.Random(seed)
        numbers = [*variables, 0, 1, 7]
        for _ in range(12):
            x, y = chance.choice(numbers), chance.choice(numbers)
            function, compare = chance.choice(OPERATORS), chance.choice(COMPARISONS)
            bound = chance.randrange(4)
            if function in (operator.floordiv, operator.mod) and y == 0:
                function = operator.add
            numbers.append(function(x, y) if compare(x, bound) else min(x, y) + max(y, 1))
        return numbers

    return run


@pytest.mark.parametrize("seed", range(300))
def test_a_replay_is_what_computing_afresh_gives(seed: int) -> None:
    run, chance = work(seed), random.Random(seed)
    first = (chance.randrange(6), chance.randrange(6))
    tape = Tape()
    recorded = template(tuple(run([tape.variable(size) for size in first])))
    assert filled(tape, recorded, tape.values) == tuple(run(first))
    for sizes in itertools.product(range(6), repeat=2):
        numbers = tape.replay(sizes)
        if numbers is not None:
            assert filled(tape, recorded, numbers) == tuple(run(sizes))
    assert tape.replay(first) is not None


@pytest.mark.parametrize("seed", range(100))
def test_tapes_of_one_function_are_replayed_together(seed: int) -> None:
    """Whatever was recorded in which order: what is found is what computing afresh gives, or nothing is."""
    run, chance, ways = work(seed), random.Random(seed), Ways()
    sizes = list(itertools.product(range(6), repeat=2))
    met = chance.sample(sizes, 12)
    for first in met:
        tape = Tape()
        recorded = template(tuple(run([tape.variable(size) for size in first])))
        if ways.replay(first) is None:
            assert ways.add(tape, (tape, recorded))
        if chance.random() < 0.5:  # what is there already changes nothing
            assert ways.add(tape, (tape, recorded))
    served = 0
    for each in sizes:
        found = ways.replay(each)
        assert found is not None or each not in met
        if found is not None:
            numbers, (tape, recorded) = found
            assert len(numbers) == len(tape.values)
            assert filled(tape, recorded, numbers) == tuple(run(each))
            served += 1
    assert served >= len(met)


def test_a_tape_of_another_function_is_not_kept() -> None:
    ways = Ways()
    for step, kept in ((2, True), (3, False)):
        tape = Tape()
        x = tape.variable(4) + step
        assert x > 1
        assert ways.add(tape, step) is kept
    assert ways.replay([7]) == ([7, 2, 9, 1], 2)


def test_every_comparison_is_a_guard() -> None:
    for compare, (x, y) in itertools.product(COMPARISONS, itertools.product(range(3), repeat=2)):
        for of_two in (True, False):
            tape = Tape()
            a = tape.variable(x)
            b = tape.variable(y) if of_two else y
            answer = compare(a, b)
            assert answer is compare(x, y)
            for other in range(3):
                served = tape.replay([other, y] if of_two else [other]) is not None
                assert not served or compare(other, y) == answer


@pytest.mark.parametrize(
    "use",
    [int, operator.index, hash, str, repr, lambda x: f"{x}", lambda x: range(x), lambda x: "abc"[x], lambda x: {x: 1}],
    ids=["int", "index", "hash", "str", "repr", "format", "range", "item", "key"],
)
def test_a_number_that_leaves_the_tape_is_pinned(use: Callable[[int], Any]) -> None:
    tape = Tape()
    x = tape.variable(1) + 1
    use(x)
    assert [tape.values[place] for place in tape.pinned] == [2]
    assert tape.replay([1]) is not None
    assert tape.replay([2]) is None
    use(x)
    assert len(tape.pinned) == 1


USES = {
    "index": operator.index,
    "hash": hash,
    "range": lambda x: range(x),
    "quotient": lambda x: x / 2,
    "of a quotient": lambda x: 2 / x,
    "shift": lambda x: 1 << x,
    "bits": lambda x: x.bit_length(),
    "round": round,
    "power": lambda x: x**2,
    "and": lambda x: x & 1,
}


@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_a_strict_tape_pins_nothing(use: Callable[[int], Any]) -> None:
    tape, pinned = Tape(strict=True), Tape()
    with pytest.raises(Pinned):
        use(tape.variable(3))
    assert not tape.pinned
    due, found = use(3), use(pinned.variable(3))
    assert found == due
    assert pinned.replay([4]) is None  # another tape guards it


def test_a_text_of_a_strict_tapes_number_says_nothing_of_it() -> None:
    x = Tape(strict=True).variable(3)
    assert f"{x} of {x:>4} {x!r}" == "? of ? ?"


def test_an_entry_is_computed_anew_by_its_function() -> None:
    asked = []

    def function(x: int, y: str, z: int) -> list[Any]:
        asked.append((x, y, z))
        return [x, y, z]

    kept, tape = entry(function), Tape(strict=True)
    assert kept(1, "a", 2) == [1, "a", 2]
    x = tape.variable(4)
    first, again, other = (template(kept(*given)) for given in ((x + 1, "a", 2), (x + 1, "a", 2), (2, "a", x)))
    assert first == again != other
    assert asked[1:] == [(5, "a", 2), (2, "a", 4)]
    assert filled(tape, (first, other), tape.replay([7]) or ()) == ([8, "a", 2], [2, "a", 7])


def test_the_smaller_and_the_larger_of_two_need_no_guard() -> None:
    assert (smaller(2, 3), larger(2, 3)) == (2, 3)
    tape = Tape(strict=True)
    x, y = tape.variable(2), tape.variable(3)
    made = template((smaller(x, y), larger(x, y), smaller(4, x), larger(x, 4)))
    for sizes in itertools.product(range(6), repeat=2):
        a, b = sizes
        numbers = tape.replay(sizes)
        assert numbers is not None
        assert filled(tape, made, numbers) == (min(a, b), max(a, b), min(4, a), max(a, 4))


def test_what_is_cached_keeps_nothing_of_a_strict_tape() -> None:
    asked = []

    @cached(4)
    def double(x: int) -> int:
        """Twice x."""
        asked.append(x)
        return 2 * x

    tape = Tape(strict=True)
    x = tape.variable(3)
    assert [double(3), double(3)] == [6, 6]
    made = template((double(x), double(x)))
    assert len(asked) == 3
    assert filled(tape, made, tape.replay([5]) or ()) == (10, 10)
    assert double(3) == 6
    assert len(asked) == 3
    assert double.__doc__ == "Twice x."


def test_operations_of_ints_that_are_several_entries() -> None:
    tape = Tape(strict=True)
    x, y = tape.variable(7), tape.variable(-3)
    made = template((*divmod(x, 4), x >> 1, abs(x), abs(y), *divmod(40, x)))
    assert filled(tape, made, tape.replay([9, -5]) or ()) == (2, 1, 4, 9, 5, 4, 4)
    assert tape.replay([9, 5]) is None


def test_truth_is_a_guard_against_zero() -> None:
    tape = Tape()
    assert tape.variable(3)
    assert not tape.pinned
    assert tape.replay([5]) is not None
    assert tape.replay([0]) is None


def test_a_divisor_of_zero_is_never_met() -> None:
    """What would not have been divided afresh is not divided in a replay."""
    tape = Tape()
    x, y = tape.variable(6), tape.variable(3)
    quotient = x // y if y else x
    assert filled(tape, template(quotient), tape.values) == 2
    assert tape.replay([6, 0]) is None


def test_what_is_computed_twice_is_one_entry() -> None:
    tape = Tape()
    x, y = tape.variable(6), tape.variable(3)
    assert template(x * y) == template(x * y)
    assert template((x + 0, x * 1, x // 1, 1 * x)) == (At(0),) * 4
    assert template(x * 0) == 0


def test_templates_are_plain_data() -> None:
    tape = Tape()
    x = tape.variable(6)
    made = template(("a", (x, 2, (x * 2, None)), 5))
    assert made == ("a", (At(0), 2, (At(2), None)), 5)
    assert hash(made) == hash(template(("a", (x, 2, (x * 2, None)), 5)))
    assert not tape.pinned
    assert filled(tape, made, tape.replay([10]) or ()) == ("a", (10, 2, (20, None)), 5)


def test_templates_that_are_filled_together_share_equal_tuples_alone() -> None:
    tape = Tape()
    x = tape.variable(6)
    templates = Templates(tape)
    given = [template(value) for value in ((x, 1), (x, True), ((x, 1), None), (), ((),), (6, 1), x, 1, True, (x,))]
    places = [templates.add(value) for value in given]
    made = templates.filled([9])
    found = [made[place] for place in places]
    assert found == [(9, 1), (9, True), ((9, 1), None), (), ((),), (6, 1), 9, 1, True, (9,)]
    assert [type(value) for value in (found[0][1], found[1][1], found[7], found[8])] == [int, bool, int, bool]
    assert found[2][0] is found[0]
    assert templates.add(template((x, 1))) == places[0]


@pytest.mark.parametrize("operation", [operator.pos, operator.invert, lambda x: 64 >> x, lambda x: x << 1])
def test_operations_of_ints_that_no_tape_writes_down_pin(operation: Callable[[int], int]) -> None:
    tape = Tape()
    assert operation(tape.variable(3)) == operation(3)
    assert tape.pinned == [0]
    with pytest.raises(Pinned):
        operation(Tape(strict=True).variable(3))


def test_a_float_of_the_same_value_is_equal() -> None:
    tape = Tape()
    x = tape.variable(6)
    assert x == 6.0
    assert x != 6.5
    assert tape.replay([6]) is not None
    assert tape.replay([7]) is None


def test_other_values_are_not_numbers_of_a_tape() -> None:
    tape = Tape()
    x = tape.variable(6)
    assert x != "6"
    assert x is not None
    assert tape.replay([7]) is not None
