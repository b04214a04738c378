"""Comparing what a fusion gave with what it should have given.

Start at `check_bits`; `check_close` is for references that are another's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from samebits.tensor import Tensor

__all__ = ["check_bits", "check_close"]


def check_bits(made: Sequence[Any], expected: Sequence[Any]) -> None:
    """Raise AssertionError unless arrays have the same bits."""
    for place, (x, y) in enumerate(zip(made, expected, strict=True)):
        a, b = (np.ascontiguousarray(Tensor.from_any(each).numpy(copy=True)) for each in (x, y))
        if a.shape != b.shape or a.dtype != b.dtype or a.tobytes() != b.tobytes():
            raise AssertionError(f"validate: output {place} has other bits than the reference")


def check_close(made: Sequence[Any], expected: Sequence[Any]) -> None:
    """Raise AssertionError unless arrays are alike: floats within 16 steps of their format at the largest value,
    everything else equal."""
    if len(made) != len(expected):
        raise AssertionError(f"validate: reference_outputs has {len(expected)}, must be {len(made)}, one an output")
    for place, (x, y) in enumerate(zip(made, expected, strict=True)):
        a, b = Tensor.from_any(x), Tensor.from_any(y)
        if a.shape != b.shape:
            raise AssertionError(f"validate: reference {place} has shape {b.shape}, must be {a.shape}")
        left, right = (np.asarray(each.numpy(copy=True)).astype(np.float64) for each in (a, b))
        step = 2.0**-a.dtype.mantissa_bits if a.dtype.is_float else 0.0
        bound = 16 * step * max(1.0, float(np.max(np.abs(right), initial=0.0, where=np.isfinite(right))))
        same = (left == right) | (np.isnan(left) & np.isnan(right))
        with np.errstate(invalid="ignore"):
            if not np.all(same | (np.abs(left - right) <= bound)):
                raise AssertionError(f"validate: output {place} differs from its reference by more than {bound:g}")
