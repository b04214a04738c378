"""Expressions: their constants are rounded once, to nearest."""

import struct

import floating
import pytest

from samebits import dtypes
from samebits.kernels.expression import Chain


@pytest.mark.parametrize("mode", floating.MODES)
def test_a_constant_is_rounded_to_nearest_whatever_the_callers_float_environment(mode: str) -> None:
    numbers = (0.1, 0.7, 1 / 3, 1e-40, 1e-45)
    with floating.environment(mode):
        chain = Chain()
        made = [chain.finish(chain.constant(number, dtypes.float32)) for number in numbers]
    found = [expression.nodes[0].attribute[0] for expression in made]
    assert found == [struct.unpack("<I", struct.pack("<f", number))[0] for number in numbers]
