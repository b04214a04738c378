"""Blocks of GGUF against the package gguf, on bytes of any kind."""

from __future__ import annotations

import numpy as np
import pytest

from samebits.errors import OptionError
from samebits.kernels.quantize import gguf


@pytest.mark.parametrize("row", gguf.ROWS, ids=str)
def test_blocks_mean_what_the_package_says(row: gguf.GgufBlock) -> None:
    package = pytest.importorskip("gguf")
    kind = package.GGMLQuantizationType[row.name]
    assert package.GGML_QUANT_SIZES[kind] == (row.elements, row.size_bytes)
    raw = np.random.default_rng(5).integers(0, 256, (300, 4 * row.size_bytes)).astype(np.uint8)
    if row.name == "MXFP4":
        raw[:256, 0] = np.arange(256)
    if row.name == "NVFP4":
        raw[:256, 0] = np.arange(256)
        raw[raw == 0xFF] = 0x7F  # which the package reads as 480 with a sign, and as 0 without
    with np.errstate(all="ignore"):
        due = package.quants.dequantize(raw, kind)
    ours = gguf.decode(raw, row)
    assert ours.dtype == np.float32
    nan = np.isnan(due)
    np.testing.assert_array_equal(ours.view(np.uint32)[np.isnan(ours)], 0x7FC00000)  # canonical, whatever d was
    np.testing.assert_array_equal(np.isnan(ours), nan)
    np.testing.assert_array_equal(ours[~nan], due[~nan])
    np.testing.assert_array_equal(np.signbit(ours[~nan]), np.signbit(due[~nan]))


def test_a_type_that_is_no_row_is_refused() -> None:
    with pytest.raises(OptionError) as caught:
        gguf.of("Q2_K")
    perhaps = ", perhaps 'Q6_K', 'Q5_K', 'Q4_K'"
    known = "Q8_0, Q4_0, Q5_0, Q4_K, Q5_K, Q6_K, IQ4_NL, MXFP4, NVFP4"
    assert str(caught.value) == f"gguf.of: type is 'Q2_K', must be one of {known}; name one of these{perhaps}"
