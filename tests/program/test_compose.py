"""Joined expressions compute what the two compute one after the other, and nothing that nobody reads."""

from __future__ import annotations

import random

import numpy as np
import pytest

from samebits import dtypes
from samebits.kernels import values
from samebits.kernels.expression import Chain, Expression
from samebits.operations.elementwise import single
from samebits.program.compose import Applied, join

OPERATIONS = ("add", "sub", "mul", "maximum")


def some(chance: random.Random, inputs: int, outputs: int) -> Expression:
    """A few operations over so many inputs; its outputs are any of its values."""
    chain = Chain()
    made = [chain.input(dtypes.float32) for _ in range(inputs)]
    for _ in range(chance.randrange(1, 6)):
        made.append(chain.apply(chance.choice(OPERATIONS), chance.choice(made), chance.choice(made)))
    return chain.finish(*[chance.choice(made) for _ in range(outputs)])


def computed(applied: Applied, known: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The outputs by name."""
    made = values.reference(applied.expression, [known[name] for name in applied.inputs])
    return dict(zip(applied.outputs, made, strict=True))


@pytest.mark.parametrize("seed", range(200))
def test_joined_is_one_after_the_other(seed: int) -> None:
    chance = random.Random(seed)
    count = chance.randrange(1, 4)
    first = Applied(some(chance, count, 2), tuple("abc"[:count]), ("p", "q"))
    names = tuple(chance.choice(["p", "q", "a", "b", "d"]) for _ in range(chance.randrange(1, 4)))
    second = Applied(some(chance, len(names), 2), names, ("y", "z"))
    keep = [name for name in first.outputs if chance.random() < 0.4]
    both = join(first, second, keep)
    assert both.outputs == (*keep, "y", "z")
    assert both.inputs == tuple(dict.fromkeys((*first.inputs, *(name for name in names if name not in "pq"))))
    assert both.expression.inputs == (dtypes.float32,) * len(both.inputs)
    random_numbers = np.random.default_rng(seed)
    known = {name: random_numbers.standard_normal(5).astype(np.float32) for name in "abcd"}
    known |= computed(first, known)
    known |= computed(second, known)
    for name, x in computed(both, known).items():
        assert np.broadcast_to(x, 5).tobytes() == np.broadcast_to(known[name], 5).tobytes()
    read = {*both.expression.outputs, *(k for term in both.expression.nodes for k in term.arguments)}
    assert read >= set(range(len(both.inputs), len(both.inputs) + len(both.expression.nodes)))


def test_operations_are_not_made_again_where_nothing_is_counted_otherwise() -> None:
    neg = single("neg", dtypes.float32)
    chain = join(Applied(neg, ("x",), ("a",)), Applied(neg, ("a",), ("b",)), ())
    longer = join(chain, Applied(neg, ("b",), ("c",)), ())
    assert all(old is new for old, new in zip(chain.expression.nodes, longer.expression.nodes, strict=False))
    assert [term.arguments for term in longer.expression.nodes] == [(0,), (1,), (2,)]
