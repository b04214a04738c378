"""The distance from another runtime's answer hides nothing."""

import math

import numpy as np

from samebits.verification.compare import compare


def test_compare_hides_nothing():
    x = np.array([1.0, np.nan, np.inf, -1.0], np.float32)

    def apart(a, b):
        found = compare("other", "y", np.asarray(a), np.asarray(b))
        return found.absolute, found.ulp

    assert apart(x, x) == (0.0, 0)
    assert apart(x[:1], np.nextafter(x[:1], np.float32(2))) == (2.0**-23, 1)
    assert apart(np.float32([0.0]), np.float32([-0.0])) == (0.0, 1)
    assert apart(np.float64([-1.7e308]), np.float64([1.7e308])) == (
        math.inf,
        2 * int(np.float64(1.7e308).view(np.int64)) + 1,
    )
    assert apart(x, np.float32([1.0, 0.0, np.inf, -1.0]))[0] == math.inf
    assert apart(x, np.float32([1.0, np.nan, 3e38, -1.0]))[0] == math.inf
    assert apart(np.int64([3, -4]), np.int64([3, 5])) == (9.0, 0)
    assert apart([True, False], [True, True]) == (1.0, 0)
    assert apart(x, x[:2])[0] == math.inf
    assert apart(x[:0], x[:0]) == (0.0, 0)
