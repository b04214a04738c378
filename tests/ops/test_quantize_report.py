"""What a report counts, on arrays whose counts are known."""

from __future__ import annotations

import math

import numpy as np
import pytest

import samebits as sb
from samebits.errors import ShapeError

F32 = np.float32


def test_exact_values_have_no_error() -> None:
    x = np.tile(np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6] * 4, F32), (2, 1))
    report = sb.report(x, sb.quantize(x, "mxfp4"))
    assert report.sqnr_db == math.inf
    assert (report.largest_error, report.clipped, report.underflowed, report.not_finite) == (0, 0, 0, 0)
    assert (report.elements, report.blocks, report.zero_blocks, report.contained) == (64, 2, 0, True)


def test_what_is_lost_is_counted() -> None:
    x = np.zeros((4, 64), F32)
    x[0] = 1
    x[1, :32] = 1e-30
    x[1, 32] = 1
    x[1, 33] = 0.01
    x[2, 0] = 7.9
    x[2, 1] = 0.125
    q = sb.quantize(x, "mxfp4")
    report = sb.report(x, q)
    assert report.zero_blocks == 4 - 1
    assert report.clipped == 1  # 7.9 beside a scale of 1, whose largest is 6
    assert report.underflowed == 2
    assert report.underflowed_blocks == 0
    assert report.largest_error == np.float32(7.9) - 6
    single = sb.quantize(x, "nvfp4", dialect="nvfp4/te-2")
    assert sb.report(x, single).underflowed_blocks == 2
    assert str(report).splitlines()[1] == "1 elements clipped, 2 underflowed; 0 blocks underflowed, 3 of zeros"


def test_sqnr_is_the_ratio_of_squares() -> None:
    x = np.random.default_rng(0).standard_normal((64, 64)).astype(F32)
    q = sb.quantize(x, "nvfp4")
    y = q.dequantize().numpy().astype(np.float64)
    due = 10 * np.log10((x.astype(np.float64) ** 2).sum() / ((x - y) ** 2).sum())
    assert sb.report(x, q).sqnr_db == pytest.approx(due, abs=1e-9)


@pytest.mark.parametrize(
    ("dialect", "blocks", "contained"),
    [("nvfp4/exact-1", 1, True), ("nvfp4/torchao-0.18", 256, False), ("nvfp4/compressed-tensors-0.20", 1, True)],
)
def test_a_nan_is_contained_or_not(dialect: str, blocks: int, contained: bool) -> None:
    x = np.random.default_rng(0).standard_normal((64, 64)).astype(F32)
    x[3, 5] = np.nan
    report = sb.report(x, sb.quantize(x, "nvfp4", dialect=dialect))
    assert (report.not_finite, report.nan_blocks, report.contained) == (1, blocks, contained)
    words = "contained in" if contained else "spread beyond"
    assert str(report).splitlines()[2] == f"1 elements not finite, {words} their blocks; {blocks} blocks are not"


def test_nothing_is_near_nothing() -> None:
    x = np.full((1, 32), np.nan, F32)
    assert math.isnan(sb.report(x, sb.quantize(x, "mxfp4")).sqnr_db)
    zeros = np.zeros((1, 32), F32)
    assert sb.report(zeros, sb.quantize(zeros, "mxfp4")).zero_blocks == 1


def test_what_was_not_quantised_is_refused() -> None:
    q = sb.quantize(np.ones((4, 64), F32), "nvfp4")
    with pytest.raises(ShapeError) as caught:
        sb.report(np.ones((4, 32), F32), q)
    due = "report: x shape is (4, 32), must be (4, 64), as q has; pass what was quantised"
    assert str(caught.value) == due
