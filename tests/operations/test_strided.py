"""Strided views place every element where NumPy does, or say that only a copy can."""

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from samebits.operations.strided import Strided, dense, of_strides


def gathered(view: Strided) -> np.ndarray:
    """The offsets of a view's elements, in row-major order."""
    offsets = np.array([view.offset])
    for axis in view.axes:
        for size, stride in axis:
            offsets = (offsets[:, None] + np.arange(size) * stride).reshape(-1)
    return offsets.reshape(view.shape)


@given(st.data())
def test_views_agree_with_numpy(data: st.DataObject) -> None:
    shape = tuple(data.draw(st.lists(st.sampled_from([1, 2, 3, 4, 6]), min_size=1, max_size=4)))
    array = np.arange(math.prod(shape)).reshape(shape)
    view = dense(shape)
    for _ in range(data.draw(st.integers(1, 5))):
        kind = data.draw(st.sampled_from(["transpose", "reshape", "slice", "expand"]))
        rank = array.ndim
        if not rank:
            break
        if kind == "transpose":
            order = data.draw(st.permutations(range(rank)))
            array, view = array.transpose(order), view.transpose(order)
        elif kind == "reshape":
            target = data.draw(factors(array.size))
            changed = view.reshape(target)
            if changed is not None:
                array, view = array.reshape(target), changed
            elif view.strides is not None:
                assert not numpy_views(view, target)
        elif kind == "slice":
            axis = data.draw(st.integers(0, rank - 1))
            start = data.draw(st.integers(0, array.shape[axis] - 1))
            step = data.draw(st.sampled_from([1, 2, -1]))
            places = range(array.shape[axis])[start::step]
            starts = tuple(start if i == axis else 0 for i in range(rank))
            counts = tuple(len(places) if i == axis else n for i, n in enumerate(array.shape))
            changed = view.slice(starts, counts, tuple(step if i == axis else 1 for i in range(rank)))
            if changed is not None:
                array, view = array.take(places, axis), changed
        elif rank < 5:
            target = (2, *array.shape)
            array, view = np.broadcast_to(array, target), view.expand(target)
        assert view.shape == array.shape
        assert np.array_equal(gathered(view), array)


def numpy_views(view: Strided, shape: tuple[int, ...]) -> bool:
    """Whether NumPy gives an array of these strides that shape without a copy."""
    assert view.strides is not None
    memory = np.empty(1 << 16, np.int8)
    array = np.lib.stride_tricks.as_strided(memory[1 << 15 :], view.shape, view.strides)
    try:
        array.reshape(shape, copy=False)
    except ValueError:
        return False
    return True


@given(st.lists(st.sampled_from([0, 1, 2, 3, 4, 6]), max_size=4), st.data())
def test_a_dense_value_has_every_shape(shape: list[int], data: st.DataObject) -> None:
    target = data.draw(st.permutations(shape) if 0 in shape else factors(math.prod(shape)))
    made = dense(shape).reshape(target)
    assert made == dense(target)
    assert made is not None
    assert made.strides is not None


@given(st.data())
def test_nothing_is_dense_however_it_came_about(data: st.DataObject) -> None:
    shape = data.draw(st.lists(st.sampled_from([1, 2, 4]), min_size=1, max_size=4))
    view = dense(shape).transpose(data.draw(st.permutations(range(len(shape)))))
    rank = len(shape)
    axis = data.draw(st.integers(0, rank - 1))
    counts = tuple(0 if i == axis else n for i, n in enumerate(view.shape))
    cut = view.slice((0,) * rank, counts, (1,) * rank)
    assert cut == dense(counts)
    assert cut is not None
    assert cut.is_dense
    assert cut.reshape((5, 0, 7)) == dense((5, 0, 7))
    assert dense((1, 3)).expand((0, 3)) == dense((0, 3))
    assert of_strides(counts, (7,) * rank) == dense(counts)


def test_neighbours_of_several_axes_are_joined() -> None:
    assert dense((2, 3)).reshape((3, 2)) == dense((3, 2))
    assert dense((4, 2, 3)).slice((0, 0, 0), (2, 2, 3), (1, 1, 1)).reshape((3, 4)) == dense((3, 4))
    turned = dense((2, 6, 5)).transpose((2, 0, 1))
    assert turned.reshape((5, 4, 3)) == Strided(0, (((5, 1),), ((4, 15),), ((3, 5),)))
    assert turned.reshape((4, 15)) is None


@st.composite
def factors(draw: st.DrawFn, size: int) -> tuple[int, ...]:
    """A shape of `size` elements."""
    shape = []
    while size > 1:
        extent = draw(st.sampled_from([d for d in range(2, size + 1) if size % d == 0]))
        shape.append(extent)
        size //= extent
    return tuple(shape)


def test_an_axis_that_was_joined_splits_again_without_a_copy() -> None:
    heads = dense((2, 5, 3, 4)).transpose((0, 2, 1, 3))
    joined = heads.reshape((6, 5, 4))
    assert joined is not None
    assert joined.strides is None
    assert joined.reshape((2, 3, 5, 4)) == heads


def test_dense_in_another_order() -> None:
    assert dense((2, 3, 4), order=(1, 0, 2)).transpose((1, 0, 2)).is_dense
    assert dense((3, 0, 4)).shape == (3, 0, 4)
