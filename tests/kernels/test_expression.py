"""Expressions: their constants are rounded once, to nearest; they are looked up by what they hold, in any process."""

import pickle
import struct
import subprocess
import sys

import floating
import pytest

from samebits import dtypes
from samebits.kernels.expression import Chain, Expression


@pytest.mark.parametrize("mode", floating.MODES)
def test_a_constant_is_rounded_to_nearest_whatever_the_callers_float_environment(mode: str) -> None:
    numbers = (0.1, 0.7, 1 / 3, 1e-40, 1e-45)
    with floating.environment(mode):
        chain = Chain()
        made = [chain.finish(chain.constant(number, dtypes.float32)) for number in numbers]
    found = [expression.nodes[0].attribute[0] for expression in made]
    assert found == [struct.unpack("<I", struct.pack("<f", number))[0] for number in numbers]


def negated() -> Expression:
    """-x."""
    chain = Chain()
    return chain.finish(chain.apply("neg", chain.input(dtypes.float32)))


def test_equal_expressions_are_one_key() -> None:
    assert negated() is not negated()
    assert {negated(): 1}[negated()] == 1
    assert "hash" not in repr(negated())


def test_an_expression_of_another_process_is_the_same_key() -> None:
    """Hashes of strings differ from process to process, so that of an expression does not come along."""
    given = negated()
    hash(given)
    text = (
        "import pickle, sys; key = pickle.load(sys.stdin.buffer); hash(key); sys.stdout.buffer.write(pickle.dumps(key))"
    )
    done = subprocess.run([sys.executable, "-c", text], input=pickle.dumps(given), capture_output=True, check=True)
    assert {given: 1}[pickle.loads(done.stdout)] == 1
