"""What callers write as shapes and flags."""

import itertools
from typing import Any

import numpy as np
import pytest

import samebits as sb
from samebits.errors import OptionError
from samebits.shapes import broadcast_extents, check_flag


def test_shapes_broadcast_as_numpys_do() -> None:
    shapes = [shape for rank in range(4) for shape in itertools.product((0, 1, 2, 3), repeat=rank)]
    for x, y in itertools.product(shapes, repeat=2):
        try:
            due: tuple[int, ...] | None = np.broadcast_shapes(x, y)
        except ValueError:
            due = None
        assert broadcast_extents(x, y) == due
    assert broadcast_extents() == ()
    assert broadcast_extents((2, 1), (3,), (1, 1, 1)) == (1, 2, 3)


def test_eager_functions_broadcast_as_many_axes_as_a_tensor_has() -> None:
    for rank in (33, 40, 62):
        one, two = np.full((1,) * rank, np.float32(3)), np.arange(2, dtype=np.float32)
        assert sb.add(one, two).ravel().tolist() == [3, 4]
        assert sb.add(two, one).shape == (*(1,) * (rank - 1), 2)
        square = np.eye(2, dtype=np.float32).reshape((1,) * (rank - 2) + (2, 2))
        assert sb.matmul(square, np.ones((3, 2, 2), np.float32), bias=two).shape == (*(1,) * (rank - 3), 3, 2, 2)
        assert sb.softmax(one).ravel().tolist() == [1]
        with pytest.raises(sb.ShapeError):
            sb.add(np.zeros((2, *(1,) * rank), np.float32), np.zeros((3, *(1,) * rank), np.float32))


def test_a_flag_is_true_or_false() -> None:
    for value in (True, False, np.True_, np.False_):
        assert check_flag("f", "x", value) is bool(value)
    wrong: list[Any] = [0, 1, None, "True", np.ones(2, bool), 1.0, []]
    for value in wrong:
        with pytest.raises(OptionError) as error:
            check_flag("f", "x", value)
        assert str(error.value) == f"f: x is {value!r}, must be True or False; pass one of the two"
