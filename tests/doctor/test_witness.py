"""The witness itself: against ml_dtypes and by hand."""

import ml_dtypes
import numpy as np
import pytest

from samebits import dtypes
from samebits.doctor.witness import aligned, codes_for, pack, unpack


@pytest.mark.parametrize("row", dtypes.ROWS, ids=repr)
def test_unpack_undoes_pack(row):
    codes = codes_for(row)
    assert np.array_equal(unpack(pack(codes, row.width_bits), row.width_bits, codes.shape), codes)
    assert pack(codes, row.width_bits).size == codes.size * row.width_bits // 8
    assert len(np.unique(codes)) == min(codes.size, 2 if row is dtypes.bool_ else 1 << row.width_bits)


def test_the_first_element_is_in_the_lowest_bits():
    assert pack(np.array([1, 2, 3, 4], np.uint8), 4).tolist() == [0x21, 0x43]
    assert pack(np.array([1, 0, 0, 0, 0, 0, 0, 1], np.uint8), 1).tolist() == [0x81]
    assert pack(np.array([0x3F, 1, 0, 0x20], np.uint8), 6).tolist() == [0x7F, 0, 0x80]
    wide = np.array([1.5, -2], ml_dtypes.bfloat16)
    assert pack(wide.view(np.uint16), 16).tobytes() == wide.tobytes()


def test_aligned_is():
    for count in (1, 7, 64, 1000):
        assert aligned(np.zeros(count, np.uint16)).ctypes.data % 64 == 0
