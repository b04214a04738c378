"""Layouts of numbers of a tape: what they derive is what layouts of plain numbers do, also computed again."""

import itertools

import numpy as np
import pytest

from samebits.errors import LayoutError, SamebitsError
from samebits.layout import Layout
from samebits.layout.recorded import RecordedLayout, dense
from samebits.tape import Pinned, Recorded, Tape

SHAPES = ((3, 4), (1, 4), (3, 1), (1, 1), (6, 2), (2, 6), (5, 7))
VIEWS = {
    "permute": lambda x, n: x.permute((1, 0)), "flat": lambda x, n: x.reshape((n,)),
    "split": lambda x, n: x.reshape((n // 2, 2)), "front": lambda x, n: x.unsqueeze(0),
    "back": lambda x, n: x.unsqueeze(2), "squeezed": lambda x, n: x.squeeze(0),
    "repeated": lambda x, n: x.broadcast_to((2, *x.shape)), "wide": lambda x, n: x.broadcast_to((6, 4)),
    "both": lambda x, n: x.permute((1, 0)).reshape((n,)),
}  # fmt: skip


def facts(x):
    return [*x.shape, *x.strides_bits, x.offset_bits, x.width_bits, *x.strides, x.size, x.is_contiguous()]


def outcome(make, x, n):
    try:
        return facts(make(x, n))
    except SamebitsError as error:
        return type(error)


@pytest.mark.parametrize("view", VIEWS)
def test_views_are_those_of_plain_numbers_and_so_are_replays(view):
    make = VIEWS[view]
    plain = {shape: Layout.from_strides(shape, (16, 1), width_bits=16) for shape in SHAPES}
    for shape in SHAPES:
        tape = Tape(strict=True)
        extents = tuple(map(tape.variable, shape))
        strides = tuple(map(tape.variable, plain[shape].strides_bits))
        found = outcome(make, RecordedLayout.of(extents, strides, 0, 16), extents[0] * extents[1])
        due = outcome(make, plain[shape], shape[0] * shape[1])
        if type(found) is type:
            assert found is due
            continue
        assert [getattr(x, "value", x) for x in found] == due
        for other in SHAPES:
            numbers = tape.replay((*other, *plain[other].strides_bits))
            if numbers is not None:
                again = [numbers[x.place] if type(x) is Recorded else x for x in found]
                assert again == outcome(make, plain[other], other[0] * other[1]), other


def test_dense_layouts_are_those_of_plain_numbers():
    for shape, (width, storage) in itertools.product(SHAPES, [(32, "packed"), (4, "packed"), (4, "padded")]):
        tape, due = Tape(strict=True), Layout.dense(shape, width_bits=width, storage=storage)
        found = dense(tuple(map(tape.variable, shape)), width_bits=width, storage=storage)
        assert [getattr(x, "value", x) for x in facts(found)] == facts(due)
        assert dense(shape, width_bits=width, storage=storage) == due
        assert found == due
        assert due == found


def test_what_no_memory_holds_is_refused():
    tape = Tape(strict=True)
    large = tape.variable(1 << 40)
    with pytest.raises(LayoutError):
        dense((large, large), width_bits=8)
    with pytest.raises(LayoutError):
        dense((large, 1 << 20), width_bits=32)


def test_recorded_layouts_have_no_hash_and_tell_layouts_apart():
    tape = Tape(strict=True)
    x = RecordedLayout.of((tape.variable(3), 4), (128, 32), 0, 32)
    with pytest.raises(Pinned):
        hash(x)
    for other in (Layout.dense((3, 5), width_bits=32), Layout.dense((3,), width_bits=32), np.float32):
        assert x != other
