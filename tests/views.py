"""Layouts beside NumPy views of the same elements, and what brute force says of either."""

import math
import random
from collections.abc import Callable

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from samebits.errors import LayoutError
from samebits.layout import Layout

BASE = np.arange(1 << 12, dtype=np.int16)
Pair = tuple[np.ndarray, Layout]


def layout_of(view: np.ndarray, base: np.ndarray = BASE) -> Layout:
    """The layout of a NumPy view into base."""
    offset = view.__array_interface__["data"][0] - base.__array_interface__["data"][0]
    return Layout.from_byte_strides(view.shape, view.strides, offset, width_bits=view.itemsize * 8)


def places(layout: Layout) -> np.ndarray:
    """The bit at which each element begins, by the formula alone."""
    index = np.indices(layout.shape, dtype=np.int64)
    steps = np.array(layout.strides_bits, np.int64).reshape((-1,) + (1,) * layout.ndim)
    return (index * steps).sum(axis=0) + (layout.offset_bits if layout.size else 0)


def bits(layout: Layout) -> np.ndarray:
    """Every bit of every element, one row for each."""
    return places(layout).reshape(-1, 1) + np.arange(layout.width_bits)


def pair_of(view: np.ndarray) -> Pair:
    """A view of BASE and its layout."""
    return view, layout_of(view)


def random_key(rng: random.Random, shape: tuple[int, ...]) -> tuple[object, ...]:
    """A key NumPy takes as a view: integers of Python and NumPy, slices of any step, None, an Ellipsis."""
    head = rng.randint(0, len(shape))
    tail = rng.randint(head, len(shape))
    parts: list[object] = []
    for axis in (*range(head), Ellipsis, *range(tail, len(shape))):
        if rng.random() < 0.15:
            parts.append(None)
        if axis is Ellipsis:
            parts.append(axis)
            continue
        extent = shape[axis]
        bound = extent + 2
        if extent and rng.random() < 0.3:
            index = rng.randrange(-extent, extent)
            parts.append(rng.choice((int, np.int64))(index))
        else:
            start, stop = (rng.choice((None, rng.randint(-bound, bound))) for _ in range(2))
            parts.append(slice(start, stop, rng.choice((None, None, 1, 2, 3, -1, -2))))
    return tuple(parts)


def random_shape(rng: random.Random, size: int) -> tuple[int, ...]:
    """A shape of so many elements, extents of 1 among it."""
    if size == 0:
        shape = [rng.randint(0, 3) for _ in range(rng.randint(0, 3))] + [0]
        rng.shuffle(shape)
        return tuple(shape)
    shape = []
    while size > 1:
        factor = rng.choice([n for n in range(2, size + 1) if size % n == 0])
        shape.append(factor)
        size //= factor
    for _ in range(rng.choice((0, 0, 1, 2))):
        shape.insert(rng.randint(0, len(shape)), 1)
    return tuple(shape)


def agree(numpy: Callable[[], np.ndarray], ours: Callable[[], Layout], error: type[Exception]) -> Pair | None:
    """Both views, or None where NumPy and we both say there is none; anything else fails."""
    try:
        view = numpy()
    except error:
        try:
            found = ours()
        except LayoutError:
            return None
        raise AssertionError(f"{found} where NumPy refuses") from None
    return view, ours()


def step(rng: random.Random, pair: Pair) -> Pair:
    """One random operation on both; the pair as it was where neither has a view."""
    view, layout = pair
    ndim, kind = view.ndim, rng.randrange(11)
    axes = rng.sample(range(-ndim, 0), rng.randint(0, ndim))
    if kind == 0:
        key = random_key(rng, view.shape)
        return view[key], layout[key]
    if kind == 1:
        order = rng.sample(range(ndim), ndim)
        return view.transpose(order), layout.permute(order)
    if kind == 2 and ndim:  # NumPy gives a scalar, a copy, without axes
        return np.flip(view, axes), layout.flip(axes)
    if kind == 3:
        ones = [axis for axis in axes if view.shape[axis] == 1]
        return np.squeeze(view, tuple(ones)), layout.squeeze(ones)
    if kind == 4 and ndim < 6:
        count = rng.randint(0, 2)
        added = rng.sample(range(-ndim - count, ndim + count), count)
        if len({axis % (ndim + count) for axis in added}) == count:
            return np.expand_dims(view, tuple(added)), layout.unsqueeze(added)
    if kind == 5 and ndim < 6 and view.size < 64:
        wanted = tuple(rng.choice((1, 2, 3)) if n == 1 else n for n in view.shape)
        wanted = (*[rng.randint(1, 3) for _ in range(rng.randint(0, 1))], *wanted)
        return np.broadcast_to(view, wanted), layout.broadcast_to(wanted)
    if kind == 6 and ndim > 1:
        first, second = rng.sample(range(ndim), 2)
        skew = rng.randint(-3, 3)
        return np.diagonal(view, skew, first, second), layout.diagonal(skew, first, second)
    if kind == 7 and ndim < 5 and view.size < 200:
        window = [rng.randint(1, max(view.shape[axis], 1)) for axis in axes]
        if all(view.shape[axis] for axis in axes):
            return sliding_window_view(view, window, axes), layout.sliding_window(window, axes)
    if kind == 8 and ndim and ndim < 6:
        place = rng.randrange(ndim)
        pieces = random_shape(rng, view.shape[place])
        wanted = (*view.shape[:place], *pieces, *view.shape[place + 1 :])
        if pieces and math.prod(wanted) == view.size:
            split = layout.unflatten(place, (*pieces[:-1], -1) if 0 not in pieces else pieces)
            return np.reshape(view, wanted, copy=False), split
    if kind == 9 and ndim:
        first, last = sorted(rng.choices(range(ndim), k=2))
        wanted = (*view.shape[:first], math.prod(view.shape[first : last + 1]), *view.shape[last + 1 :])
        return (
            agree(lambda: np.reshape(view, wanted, copy=False), lambda: layout.flatten(first, last), ValueError) or pair
        )
    if kind == 10:
        wanted = random_shape(rng, view.size)
        return agree(lambda: np.reshape(view, wanted, copy=False), lambda: layout.reshape(wanted), ValueError) or pair
    return pair


def random_pair(rng: random.Random) -> Pair:
    """A dense view of BASE in some order, or one of arbitrary strides."""
    shape = tuple(rng.choice((1, 2, 2, 3, 4, 5)) for _ in range(rng.randint(0, 4)))
    if rng.random() < 0.1:
        shape = (*shape, 0)
    if rng.random() < 0.5:
        return pair_of(BASE[: math.prod(shape)].reshape(shape, order=rng.choice("CF")))
    strides = tuple(rng.choice((rng.randint(-12, 12), rng.randint(-60, 60))) * 2 for _ in shape)
    middle = BASE[len(BASE) // 2 :]
    return pair_of(np.lib.stride_tricks.as_strided(middle, shape, strides))


def random_bits(rng: random.Random, width: int | None = None) -> Layout:
    """A small layout of arbitrary strides in bits, elements overlapping or not."""
    width = width or rng.choice((1, 2, 4, 6, 8, 12, 16))
    shape = tuple(rng.randint(1, 5) for _ in range(rng.randint(0, 4)))
    reach = rng.choice((3, 12, 40, 150))
    unit = rng.choice((1, 1, width, width))
    strides = tuple(rng.randint(-reach, reach) * unit for _ in shape)
    return Layout(shape, strides, rng.randint(-90, 90), width, rng.choice(("packed", "padded")))


def check_pair(rng: random.Random, pair: Pair) -> None:
    """Every fact of the layout against NumPy's view of an array that counts its own elements."""
    view, layout = pair
    assert layout == layout_of(view)
    assert layout.shape == view.shape
    assert np.array_equal(places(layout), view.astype(np.int64) * 16)
    assert layout.is_contiguous("C") == view.flags.c_contiguous
    assert layout.is_contiguous("F") == view.flags.f_contiguous
    if view.size:
        low, high = np.lib.array_utils.byte_bounds(view)
        start = BASE.__array_interface__["data"][0]
        assert layout.bounds_bits == ((low - start) * 8, (high - start) * 8)
        assert layout.is_unique() == (len(np.unique(view)) == view.size)
    else:
        assert layout.required_bytes == 0
        assert layout.is_unique() is True
    dense = np.empty_like(view, order="K")
    assert layout.to_dense() == layout_of(dense, dense)
    rebased, start, size = layout.rebased()
    assert rebased.required_bytes == size
    assert np.array_equal(places(rebased) + 8 * start, places(layout)) or not view.size
    wanted = random_shape(rng, view.size)
    reshaped = agree(lambda: np.reshape(view, wanted, copy=False), lambda: layout.reshape(wanted), ValueError)
    if reshaped is not None:
        assert np.array_equal(places(reshaped[1]), reshaped[0].astype(np.int64) * 16)


def check_aliasing(rng: random.Random) -> None:
    """Uniqueness of one layout and the overlap of two, bit by bit."""
    one, other = random_bits(rng), random_bits(rng)
    mine, theirs, delta = bits(one), bits(other), rng.choice((0, rng.randint(-200, 200)))
    assert one.is_unique() == (len(np.unique(mine)) == mine.size)
    meet = bool(np.intersect1d(mine, theirs + delta).size)
    assert one.overlaps(other, delta) == other.overlaps(one, -delta) == meet
    assert one.bounds_bits == (places(one).min(), places(one).max() + one.width_bits)


def check_repack(rng: random.Random) -> bool:
    """The same bits in the same order along the axis; whether there was such a view."""
    shape = [rng.choice((1, 2, 3, 4, 8)) for _ in range(rng.randint(1, 3))]
    layout = Layout.dense(
        shape, width_bits=rng.choice((1, 2, 4, 6, 8)), order=rng.sample(range(len(shape)), len(shape))
    )
    layout = layout[random_key(rng, layout.shape)]
    axis, width = rng.randrange(-layout.ndim, layout.ndim or 1), rng.choice((1, 2, 3, 4, 6, 8, 12, 16, 24, 32))
    try:
        found = layout.repack(width, axis)
    except LayoutError:
        return False
    assert found.size * found.width_bits == layout.size * layout.width_bits
    if layout.size and layout.ndim:
        moved = [np.moveaxis(places(x), axis, -1) for x in (layout, found)]
        before, after = (
            (at[..., None] + np.arange(x.width_bits)).reshape(*at.shape[:-1], -1)
            for at, x in zip(moved, (layout, found), strict=True)
        )
        assert np.array_equal(before, after)
        assert not (places(found) % (width & -width)).any() or width < layout.width_bits
    return True
