"""Rows are found wherever a batch puts them, and compared by their bits; layouts keep values and change addresses."""

import numpy as np
import pytest

from samebits.verification import rows


def test_part_finds_a_row_however_the_batch_lies():
    row = np.arange(12, dtype=np.float32).reshape(2, 6)
    for outer in (1, 2, 3, 6):
        pieces = np.stack([row.reshape(2, outer, 6 // outer), -row.reshape(2, outer, 6 // outer)], 2)
        whole = pieces.reshape(2, 12)
        assert rows.same_bits(rows.part(whole, 1, 0, 2, row), row)
        assert rows.same_bits(rows.part(whole, 1, 1, 2, -row), -row)
        assert not rows.same_bits(rows.part(whole, 1, 1, 2, row), row)
    assert rows.part(row, 1, 0, 4, row) is row  # 6 does not divide into 4 rows


def test_digest_covers_names_formats_shapes_and_bits():
    x = np.zeros((2, 3), np.float32)
    digests = {
        rows.digest([{"y": x}]),
        rows.digest([{"z": x}]),
        rows.digest([{"y": x.astype(np.int32)}]),
        rows.digest([{"y": x.reshape(3, 2)}]),
        rows.digest([{"y": -x}]),
    }
    assert len(digests) == 5


def test_elements_are_compared_by_bits():
    x = np.array([0.0, np.nan, 1.0], np.float32)
    y = np.array([-0.0, np.nan, 1.0], np.float32)
    assert rows.different_elements(x, x) == 0
    assert rows.different_elements(x, y) == 1
    assert not rows.same_bits(x, y)
    assert not rows.same_bits(x[:0], x[:0].astype(np.float64))
    assert not rows.same_row({"a": x}, {"a": y})
    assert not rows.same_row({"a": x}, {"a": x, "b": x})


@pytest.mark.parametrize("layout", rows.LAYOUTS)
@pytest.mark.parametrize("shape", [(), (5,), (3, 4), (2, 3, 4), (0, 4), (1, 1)])
def test_a_layout_keeps_values_and_has_memory_of_its_own(layout, shape):
    x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    made = rows.laid(layout, {"x": x})["x"]
    assert rows.same_bits(made, x)
    assert made.flags.aligned


def test_layouts_differ():
    x = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    strides = {name: layout(x).strides for name, layout in rows.LAYOUTS.items()}
    assert strides == {
        "every axis reversed": (-48, -16, -4),
        "every second element of every axis": (9 * 11 * 4 * 2, 11 * 4 * 2, 8),
        "the first axis fastest": (4, 8, 24),
        "one element off": (48, 16, 4),
    }
    assert rows.LAYOUTS["one element off"](x).ctypes.data % 16 == 4
