"""Where the answers of ONNX Runtime are others than ours, which follow the standard: a case of each, with both answers.

docs/operators.md lists them; tests/onnx/test_differences.py runs both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]
F = np.float32
LOW, HIGH = np.finfo(np.float32).min, np.finfo(np.float64).max


@dataclass(frozen=True)
class Difference:
    """One node; `op` names all operators of which the same is true, the case is of the first.

    `when`: what makes the difference.   `ours`, `theirs`: the answers in words; `here`, `there`: and in numbers, None
    where it is refused.   `standard`: what the standard says of it.
    """

    op: str
    when: str
    ours: str
    theirs: str
    standard: str
    arrays: Sequence[Array]
    here: Sequence[Array]
    there: Sequence[Array] | None
    attributes: dict[str, Any] = field(default_factory=dict)
    fixed: tuple[int, ...] = ()
    opset: int = 19
    domain: str = ""


def _ints(*values: int) -> Array:
    return np.array(values, np.int64)


_ODD = np.array([-2, 0.5, np.nan, np.inf, -np.inf], F)
_ZEROS, _NAN = np.zeros((2, 3), F), np.full(5, np.nan, F)
_WIDE = np.arange(5, dtype=F).reshape(1, 1, 5)
_BYTES = np.arange(0, 60, 10, dtype=np.uint8).reshape(1, 1, 6)
_QUANTISED = [np.array(1, F), np.array(0, np.uint8)]
_SAME = "the result has ceil(extent / stride) places, whatever the dilations"

DIFFERENCES: tuple[Difference, ...] = (
    Difference(
        "DynamicQuantizeLinear", "every element is 0", "the scale is 0", "the scale is 1",
        "(max - min) / 255 for the scale", [_ZEROS],
        [_ZEROS.astype(np.uint8), np.array(0, F), np.array(0, np.uint8)],
        [_ZEROS.astype(np.uint8), np.array(1, F), np.array(0, np.uint8)],
    ),
    Difference(
        "Squeeze", "`axes` is an empty list", "no axis is removed", "every axis of extent 1 is removed",
        "only without `axes` are all of extent 1 removed", [np.zeros((1, 3, 1), F), _ints()], [np.zeros((1, 3, 1), F)],
        [np.zeros(3, F)], fixed=(1,),
    ),
    Difference(
        "Clip", "a limit is NaN", "the result is NaN", "the limit is ignored",
        "`Min(max, Max(input, min))` in the text; the function body only compares",
        [_ODD, np.array(np.nan, F), np.array(9, F)], [_NAN], [np.array([-2, 0.5, np.nan, 9, -np.inf], F)],
    ),
    Difference(
        "Clip", "one limit is left out and the element is infinite on that side", "it stays infinite",
        "it becomes the largest or least finite number",
        "finite limits for default in the text; none in the function body and the reference",
        [_ODD.astype(np.float64), np.array(-1.0)], [np.array([-1, 0.5, np.nan, np.inf, -1])],
        [np.array([-1, 0.5, np.nan, HIGH, -1])],
    ),
    Difference(
        "MaxPool, AveragePool, LpPool", "`auto_pad` is SAME_UPPER or SAME_LOWER and dilations are not 1",
        "padded for the dilated kernel", "padded for a kernel without dilations, which leaves fewer places", _SAME,
        [_WIDE], [np.array([2, 3, 4, 3, 4], F).reshape(1, 1, 5)], [np.array([3, 4, 3], F).reshape(1, 1, 3)],
        {"kernel_shape": [3], "dilations": [2], "auto_pad": "SAME_UPPER"},
    ),
    Difference(
        "Conv", "`auto_pad` is SAME_UPPER or SAME_LOWER and dilations are not 1", "padded for the dilated kernel",
        "refused", _SAME, [_WIDE, np.ones((1, 1, 2), F)], [np.array([1, 2, 4, 6, 3], F).reshape(1, 1, 5)], None,
        {"dilations": [2], "auto_pad": "SAME_UPPER"}, (1,),
    ),
    Difference(
        "ConvTranspose", "`auto_pad` is SAME_UPPER or SAME_LOWER and strides reach beyond the kernel",
        "what no place reaches is 0", "the result ends where the last place reaches",
        "the result has extent * stride places", [_WIDE[..., 1:3], np.ones((1, 1, 1), F)],
        [np.array([1, 0, 0, 2, 0, 0], F).reshape(1, 1, 6)], [np.array([1, 0, 0, 2], F).reshape(1, 1, 4)],
        {"strides": [3], "auto_pad": "SAME_LOWER"}, (1,),
    ),
    Difference(
        "Slice", "a step is negative and its end the largest int64", "nothing is taken",
        "all down to the first element",
        "an end is cut to [-1, extent - 1], and the least int64 says all", [np.arange(5, dtype=F), _ints(4),
         _ints(2**63 - 1), _ints(0), _ints(-1)], [np.zeros(0, F)], [np.arange(5, dtype=F)[::-1]], fixed=(1, 2, 3, 4),
    ),
    Difference(
        "QLinearAveragePool", "padding counts and `ceil_mode` lets a window reach behind it",
        "what is behind the padding does not count, as in AveragePool", "all places of the kernel count",
        "none: it is an operator of ONNX Runtime", [_BYTES, *_QUANTISED, *_QUANTISED],
        [np.array([[[3, 30, 25]]], np.uint8)], [np.array([[[3, 30, 17]]], np.uint8)],
        {"kernel_shape": [3], "strides": [3], "pads": [1, 1], "ceil_mode": 1, "count_include_pad": 1},
        (1, 2, 3, 4), domain="com.microsoft",
    ),
    Difference(
        "QLinearSoftmax", "the reciprocal of the scale of the result is no whole number",
        "quotients by the scale are rounded", "products with the whole part of its reciprocal are rounded",
        "none: it is an operator of ONNX Runtime",
        [np.array([[0, 50]], np.uint8), *_QUANTISED, np.array(0.011, F), _QUANTISED[1]],
        [np.array([[0, 91]], np.uint8)], [np.array([[0, 90]], np.uint8)], {"axis": -1, "opset": 13},
        (1, 2, 3, 4), domain="com.microsoft",
    ),
)  # fmt: skip
