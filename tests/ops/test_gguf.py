"""decode_gguf as it is called; what blocks mean is tests/kernels/quantize/test_gguf.py."""

from __future__ import annotations

import numpy as np
import pytest

import samebits as sb
from samebits.errors import DTypeError, OptionError, ShapeError
from samebits.kernels.quantize import gguf


def test_blocks_lie_along_the_last_axis() -> None:
    raw = np.random.default_rng(0).integers(0, 255, (2, 3, 5 * 34)).astype(np.uint8)
    found = sb.decode_gguf(raw, "Q8_0")
    assert found.shape == (2, 3, 160)
    np.testing.assert_array_equal(found, gguf.decode(raw, gguf.of("Q8_0")))
    wide = np.zeros((2, 3, 2 * 170), np.uint8)
    wide[..., ::-2] = raw
    np.testing.assert_array_equal(sb.decode_gguf(wide[..., ::-2], "Q8_0"), found)
    assert isinstance(sb.decode_gguf(sb.Tensor.from_any(raw), "Q8_0"), sb.Tensor)


@pytest.mark.parametrize("row", gguf.ROWS, ids=str)
def test_no_blocks_have_no_values(row: gguf.GgufBlock) -> None:
    for shape, due in (((0,), (0,)), ((2, 0), (2, 0)), ((0, 3 * row.size_bytes), (0, 3 * row.elements))):
        found = sb.decode_gguf(np.zeros(shape, np.uint8), row)
        assert found.shape == due
        assert found.dtype == np.float32


def test_bytes_that_are_no_blocks_are_refused() -> None:
    raw = np.zeros(35, np.uint8)
    for data, kind, error, sentence in (
        (raw, "Q8_0", ShapeError, ("data extent of axis 0 is 35, must be a multiple of 34, the bytes of a block of "
             "Q8_0; pass whole blocks")),
        (raw.view(np.int8), "Q8_0", DTypeError, "data dtype is int8, must be uint8; convert it first"),
        (raw[0], "Q8_0", ShapeError, "data rank is 0, must be at least 1; reshape it to one row"),
        (raw, "Q9", OptionError, ("type is 'Q9', must be one of Q8_0, Q4_0, Q5_0, Q4_K, Q5_K, Q6_K, IQ4_NL, MXFP4, "
             "NVFP4; name one of these")),
    ):  # fmt: skip
        with pytest.raises(error) as caught:
            sb.decode_gguf(data, kind)
        assert str(caught.value) == f"decode_gguf: {sentence}"
