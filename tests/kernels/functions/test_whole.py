"""Rounding to integral values, signs, division and shifts, neighbours: against Python's own numbers, and torch."""

import math
import operator
from collections.abc import Callable
from fractions import Fraction

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


def floats(dtype: DType, count: int, seed: int) -> np.ndarray:
    """Numbers of any exponent, and each beside the edges of the format."""
    width = dtype.width_bits
    codes = np.random.default_rng(seed).integers(0, (1 << width) - 1, count, np.uint64, endpoint=True)
    info = np.finfo(dtype.numpy)
    edges = [0, 1, 1.5, 2, 3, info.max, info.tiny, info.smallest_subnormal, 3 * info.smallest_subnormal, math.inf]
    found = np.concatenate([codes.astype(f"u{width // 8}").view(dtype.numpy), np.array(edges, dtype.numpy)])
    return np.concatenate([found, -found, [np.nan]]).astype(dtype.numpy)


@EVERY_ROW
@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float64], ids=str)
def test_remainders_of_floats_are_exact(dtype: DType, row: Isa) -> None:
    """Those of fractions; and of torch where quotients are small, as its vectors of float32 are wrong beyond."""
    grid = np.meshgrid(floats(dtype, 6, 1), floats(dtype, 6, 2), indexing="ij")
    x, y = (np.ascontiguousarray(part.ravel()) for part in grid)
    found = {name: computed(name, row, x, y) for name in ("fmod", "mod")}
    with np.errstate(all="ignore"):
        near = (np.abs(x / y) < 2**20) | ~np.isfinite(x)
    for name, theirs in (("fmod", torch.fmod), ("mod", torch.remainder)):
        due = theirs(torch.from_numpy(x), torch.from_numpy(y)).numpy()
        assert np.array_equal(found[name][near], due[near], equal_nan=True), name
    assert (np.signbit(found["fmod"]) == np.signbit(x))[~np.isnan(found["fmod"])].all()
    assert (np.signbit(found["mod"]) == np.signbit(y))[found["mod"] == 0].all()
    for a, b, c in zip(x[::5], y[::5], found["fmod"][::5], strict=True):
        if np.isfinite([a, b]).all() and b:
            p, q = Fraction(float(a)), Fraction(float(b))
            assert Fraction(float(c)) == p - math.trunc(p / q) * q, (a, b)


@EVERY_ROW
@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float64, dtypes.bfloat16], ids=str)
def test_the_next_number_is_that_of_torch(dtype: DType, row: Isa) -> None:
    kind = dtypes.float32 if dtype is dtypes.bfloat16 else dtype
    grid = np.meshgrid(floats(kind, 6, 3), floats(kind, 6, 4), indexing="ij")
    x, y = (part.ravel().astype(dtype.numpy) for part in grid)
    found = computed("next_after", row, x, y)
    codes, torch_type = np.dtype(f"i{dtype.size_bytes}"), getattr(torch, dtype.name)
    given = [torch.from_numpy(v.view(codes)).view(torch_type) for v in (x, y)]
    due = torch.nextafter(*given).view(getattr(torch, codes.name)).numpy()
    there = ~np.isnan(found)
    assert np.array_equal(found.view(codes)[there], due[there])
    assert np.array_equal(there, ~(np.isnan(x) | np.isnan(y)))


@EVERY_ROW
def test_greatest_common_divisors_are_those_of_python(row: Isa) -> None:
    for dtype in SIGNED + UNSIGNED:
        x, y = (part[:: 1 if row.compiled else 7].copy() for part in pairs(dtype))
        wrap = 1 << dtype.width_bits
        due = [math.gcd(int(a), int(b)) % wrap for a, b in zip(x, y, strict=True)]
        assert [int(v) % wrap for v in computed("gcd", row, x, y)] == due, dtype
    numbers = [np.array([v], np.uint64) for v in (12200160415121876738, 7540113804746346429)]
    assert computed("gcd", row, *numbers).tolist() == [1]  # neighbours among Fibonacci's numbers: 92 steps


def raised(x: int, y: int, modulus: int) -> int:
    """x to the y as Python has it; of a negative y what is left of 1 / x**-y toward zero, and 0 of 0."""
    return pow(x, y, modulus) if y >= 0 else {1: 1, -1: -1 if y % 2 else 1}.get(x, 0) % modulus


@EVERY_ROW
def test_powers_of_integers_are_those_of_python_and_torch(row: Isa) -> None:
    for dtype in SIGNED + UNSIGNED:
        x, y = (part[:: 1 if row.compiled else 7].copy() for part in pairs(dtype))
        wrap = 1 << dtype.width_bits
        found = computed("pow", row, x, y)
        due = [raised(int(a), int(b), wrap) for a, b in zip(x, y, strict=True)]
        assert [int(v) % wrap for v in found] == due, dtype
        if dtype.signed:
            theirs = torch.pow(torch.from_numpy(x), torch.from_numpy(y)).numpy()
            assert np.array_equal(found, theirs), dtype


@EVERY_ROW
def test_trunc_and_questions_of_a_code(row: Isa) -> None:
    for dtype in (dtypes.float32, dtypes.float64):
        x = floats(dtype, 40, 5)
        whole = computed("trunc", row, x)
        due = torch.trunc(torch.from_numpy(x)).numpy()
        assert np.array_equal(whole, due, equal_nan=True)
        there = ~np.isnan(x)
        assert np.array_equal(np.signbit(whole[there]), np.signbit(due[there]))
        given = torch.from_numpy(x)
        for name, theirs in (("is_finite", torch.isfinite), ("is_infinite", torch.isinf), ("sign_bit", torch.signbit)):
            asked = np.empty(x.shape, bool)
            chain = Chain()
            expression = chain.finish(chain.apply(name, chain.input(dtype)))
            plan = elementwise.plan(expression, launch.layouts(x), launch.layouts(asked), row)
            launch.run_plan(plan, [x, asked])
            assert np.array_equal(asked, theirs(given).numpy()), name


@EVERY_ROW
def test_signs_of_integers(row: Isa) -> None:
    for dtype in SIGNED + UNSIGNED:
        x, _ = pairs(dtype)
        assert computed("sign", row, x).tolist() == [(int(v) > 0) - (int(v) < 0) for v in x]
