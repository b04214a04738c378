"""Coalescing: the same tuples of elements over fewer axes."""

import random

import numpy as np
import pytest
from views import places, random_pair, step

from samebits.errors import LayoutError, ShapeError
from samebits.layout import Layout, coalesce


def tuples_of(layouts: tuple[Layout, ...]) -> list[tuple[int, ...]]:
    """Which elements belong together, in no order."""
    return sorted(zip(*[places(layout).ravel().tolist() for layout in layouts], strict=True))


def random_layouts(rng: random.Random) -> tuple[Layout, ...]:
    """Up to three layouts of one shape, by NumPy's broadcasting and by strides of their own."""
    _, first = step(rng, random_pair(rng))
    shape = first.shape
    found = [first]
    for _ in range(rng.randint(0, 2)):
        if rng.random() < 0.5:
            order = rng.sample(range(len(shape)), len(shape))
            found.append(Layout.dense(shape, width_bits=rng.choice((4, 8, 32)), order=order))
        else:
            kept = tuple(n if rng.random() < 0.6 else 1 for n in shape)
            found.append(Layout.dense(kept, width_bits=8).broadcast_to(shape))
    return tuple(found)


def test_elements_that_belonged_together_still_do() -> None:
    rng = random.Random(7)
    for _ in range(1500):
        layouts = random_layouts(rng)
        lead = rng.randrange(len(layouts))
        merged = coalesce(layouts, lead=lead)
        assert {layout.shape for layout in merged} == {merged[0].shape}
        if layouts[0].size == 0:
            assert merged[0].shape == (0,)
            continue
        assert tuples_of(merged) == tuples_of(layouts)
        assert merged[0].ndim <= layouts[0].ndim
        assert 1 not in merged[0].shape
        assert merged[lead].stride_order == tuple(range(merged[lead].ndim))
        assert coalesce(merged, lead=lead) == merged
        for axis in range(merged[0].ndim - 1):
            joint = [m.strides_bits[axis] == m.strides_bits[axis + 1] * m.shape[axis + 1] for m in merged]
            assert not all(joint)


def test_layouts_that_put_elements_alike_coalesce_alike() -> None:
    a = Layout.dense((4, 1, 6), width_bits=16)
    assert coalesce([a]) == (Layout.dense((24,), width_bits=16),)
    turned = a.permute((2, 0, 1))
    assert coalesce([turned, turned]) == coalesce([a, a])
    bias = Layout.dense((6,), width_bits=16).broadcast_to((4, 6))
    assert coalesce([a.squeeze(), bias]) == (a.squeeze(), bias)
    assert coalesce([a[..., ::-1]])[0].strides == (6, -1)
    assert coalesce([a.flip((0, 2))]) == (Layout.from_strides((24,), (-1,), 23, width_bits=16),)
    assert coalesce([Layout.dense((), width_bits=4)])[0].shape == ()


def test_the_lead_says_the_order() -> None:
    c, f = Layout.dense((2, 3), width_bits=8), Layout.dense((2, 3), width_bits=8, order="F")
    assert [layout.strides for layout in coalesce([c, f])] == [(3, 1), (1, 2)]
    assert [layout.strides for layout in coalesce([c, f], lead=1)] == [(1, 3), (2, 1)]
    repeated = Layout.dense((), width_bits=8).broadcast_to((2, 3))
    assert [layout.strides for layout in coalesce([repeated, f])] == [(0,), (1,)]
    assert np.array_equal(places(coalesce([repeated, f])[1]), np.arange(6) * 8)


def test_errors() -> None:
    a, b = Layout.dense((2, 3), width_bits=8), Layout.dense((3,), width_bits=8)
    with pytest.raises(ShapeError) as shape:
        coalesce([a, b])
    assert str(shape.value) == "coalesce: layouts[1] shape is (3,), must be (2, 3); use broadcast_to first"
    with pytest.raises(LayoutError) as none:
        coalesce([])
    assert str(none.value) == "coalesce: layouts is (), must be at least one, all of type Layout; give these"
    with pytest.raises(LayoutError) as kind:
        coalesce([a, a.shape])
    assert str(kind.value) == (
        "coalesce: layouts is (Layout, tuple), must be at least one, all of type Layout; give these"
    )
    with pytest.raises(LayoutError) as lead:
        coalesce([a], lead=1)
    assert str(lead.value) == "coalesce: lead is 1, must be in [-1, 1); use an existing one"
