"""Rounding to integral values, signs, division and shifts of integers: against Python's own numbers, and torch."""

import math
import operator
from collections.abc import Callable

import launch
import numpy as np
import pytest
import rows
import torch

from samebits import dtypes
from samebits.codegen.isa import Isa
from samebits.dtypes import DType
from samebits.kernels import elementwise
from samebits.kernels.expression import Chain

EVERY_ROW = pytest.mark.parametrize("row", rows.ALL_ROWS, ids=lambda row: row.name)
SIGNED = [dtypes.int8, dtypes.int16, dtypes.int32, dtypes.int64]
UNSIGNED = [dtypes.uint8, dtypes.uint16, dtypes.uint32, dtypes.uint64]


def computed(name: str, row: Isa, *arrays: np.ndarray) -> np.ndarray:
    """The operation by a row's kernel, which is the reference's in every bit."""
    chain = Chain()
    expression = chain.finish(chain.apply(name, *[chain.input(dtypes.of(x.dtype)) for x in arrays]))
    out = np.empty_like(arrays[0])
    launch.run_plan(elementwise.plan(expression, launch.layouts(*arrays), launch.layouts(out), row), [*arrays, out])
    launch.assert_bits(out, elementwise.reference(expression, *arrays)[0], (name, row.name))
    return out


def pairs(dtype: DType) -> list[np.ndarray]:
    """All pairs of numbers at the edges of a format; of a format of 8 bits all pairs."""
    low, high = int(dtype.min), int(dtype.max)
    inner = range(-260, 261, 5) if low else range(0, 521, 5)
    edges = range(low, high + 1) if high < 256 else sorted({low, low + 1, high // 2, high - 1, high, 3, 7, *inner})
    return [x.ravel() for x in np.meshgrid(*[np.array(list(edges), dtype.numpy)] * 2, indexing="ij")]


def truncated(x: int, y: int) -> int:
    """x / y toward zero."""
    return abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1) if y else 0


MEANINGS: dict[str, Callable[[int, int], int]] = {
    "quotient": truncated,
    "fmod": lambda x, y: x - truncated(x, y) * y if y else 0,
    "mod": lambda x, y: x % y if y else 0,
    "bit_and": operator.and_,
    "bit_or": operator.or_,
    "bit_xor": operator.xor,
}


@EVERY_ROW
@pytest.mark.parametrize("name", MEANINGS)
def test_integers_are_divided_and_joined_as_python_does(name: str, row: Isa) -> None:
    for dtype in SIGNED + UNSIGNED:
        x, y = pairs(dtype)
        wrap = 1 << dtype.width_bits
        due = [MEANINGS[name](int(a), int(b)) % wrap for a, b in zip(x, y, strict=True)]
        found = computed(name, row, x, y)
        assert [int(v) % wrap for v in found] == due, dtype


@EVERY_ROW
def test_shifts_beyond_the_width_leave_the_sign_alone(row: Isa) -> None:
    for dtype in SIGNED + UNSIGNED:
        x, y = pairs(dtype)
        far = (y < -2) | (y > dtype.width_bits + 1)
        y = np.where(far & (y % 5 > 0), y % dtype.width_bits, y).astype(y.dtype)
        wrap, width = 1 << dtype.width_bits, dtype.width_bits
        inside = [0 <= int(b) < width for b in y]
        left = [(int(a) << int(b)) % wrap if i else 0 for a, b, i in zip(x, y, inside, strict=True)]
        right = [int(a) >> (int(b) if i else width) for a, b, i in zip(x, y, inside, strict=True)]
        assert [int(v) % wrap for v in computed("shift_left", row, x, y)] == left
        assert computed("shift_right", row, x, y).tolist() == right


@EVERY_ROW
def test_bits_are_inverted_as_python_does(row: Isa) -> None:
    for dtype in SIGNED + UNSIGNED:
        x, _ = pairs(dtype)
        assert computed("bit_not", row, x).tolist() == [~int(v) % (1 << dtype.width_bits) for v in x] or dtype.signed
        assert not dtype.signed or computed("bit_not", row, x).tolist() == [~int(v) for v in x]


@EVERY_ROW
@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float64], ids=str)
def test_floor_ceil_and_sign_are_those_of_torch(dtype: DType, row: Isa) -> None:
    near = np.array([0.0, 0.4, 0.5, 0.75, 1.0, 1.5, 2.5, 1e7 + 0.5, 2.0**22 + 0.5, 2.0**23 + 1, 2.0**51 + 0.5, 1e30])
    tiny = np.finfo(dtype.numpy).smallest_subnormal
    x = np.array([*near, tiny, 1 - 2.0**-24, math.inf]).astype(dtype.numpy)
    x = np.concatenate([x, -x])
    for name in ("floor", "ceil", "sign"):
        due = getattr(torch, name)(torch.from_numpy(x)).numpy()
        found = computed(name, row, x)
        assert np.array_equal(found, due)
        assert name == "sign" or np.array_equal(np.signbit(found), np.signbit(due))
    assert np.isnan(computed("floor", row, np.array([np.nan], dtype.numpy)))
    assert np.isnan(computed("sign", row, np.array([np.nan], dtype.numpy)))
    assert not np.signbit(computed("sign", row, np.array([-0.0], dtype.numpy)))


@EVERY_ROW
def test_signs_of_integers(row: Isa) -> None:
    for dtype in SIGNED + UNSIGNED:
        x, _ = pairs(dtype)
        assert computed("sign", row, x).tolist() == [(int(v) > 0) - (int(v) < 0) for v in x]
