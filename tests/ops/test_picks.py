"""Sorting and indices along an axis: pairs that torch gives, and what is refused."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import samebits as sb
from samebits.errors import DTypeError, OptionError, ShapeError

X = np.array([[3, 1, 4, 1, 5], [9, 2, 6, 5, 3]], np.float32)


def test_topk_gives_what_torch_gives() -> None:
    for axis, k, largest in ((1, 3, True), (1, 2, False), (0, 1, True), (-1, 0, True)):
        found, places = sb.topk(X, k, axis, largest=largest)
        due = torch.topk(torch.from_numpy(X), k, dim=axis, largest=largest)
        assert np.array_equal(found, due.values.numpy())
        assert np.array_equal(np.take_along_axis(X, places, axis), found)
    assert sb.topk(np.array([1, 1, 1]), 2)[1].tolist() == [0, 1]
    assert sb.sort(X, descending=True).tolist() == torch.sort(torch.from_numpy(X), descending=True).values.tolist()


def test_of_several_updates_the_last_stays() -> None:
    x = np.zeros((2, 3), np.int8)
    found = sb.scatter(x, np.array([[1, 1, -2], [0, 2, 0]]), np.arange(1, 7, dtype=np.int8).reshape(2, 3))
    assert found.tolist() == [[0, 3, 0], [6, 0, 5]]
    assert not x.any()


CASES: dict[str, tuple[type[Exception], Callable[[], Any]]] = {
    "topk: k is 6, must be at most 5, x's extent there; ask for fewer": (OptionError, lambda: sb.topk(X, 6)),
    "topk: k is -1, must be a count; pass 0 or more": (OptionError, lambda: sb.topk(X, -1)),
    "take_along_axis: indices dtype is int32, must be int64; convert it first": (
        DTypeError, lambda: sb.take_along_axis(X, np.zeros((2, 1), np.int32))
    ),
    "take_along_axis: indices shape is (3, 1), must be within (2, 5) but along axis 1; slice or expand them": (
        ShapeError, lambda: sb.take_along_axis(X, np.zeros((3, 1), np.int64))
    ),
    "scatter: updates shape is (2, 2), must be (2, 1); slice or expand them": (
        ShapeError, lambda: sb.scatter(X, np.zeros((2, 1), np.int64), X[:, :2])
    ),
    "scatter: updates dtype is float64, must be float32; convert it first": (
        DTypeError, lambda: sb.scatter(X, np.zeros((2, 1), np.int64), np.zeros((2, 1)))
    ),
}  # fmt: skip


@pytest.mark.parametrize("sentence", CASES)
def test_what_does_not_fit_is_refused(sentence: str) -> None:
    kind, call = CASES[sentence]
    with pytest.raises(kind) as refused:
        call()
    assert str(refused.value) == sentence
