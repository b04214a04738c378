"""IEEE-754 operations against the C library, on random and constructed hard operands."""

import ctypes
import warnings

import ml_dtypes
import numpy as np
import pytest

from samebits import dtypes, ieee
from samebits.errors import DTypeError

_LIBM = ctypes.CDLL("libm.so.6")
_LIBM.fma.restype = ctypes.c_double
_LIBM.fma.argtypes = [ctypes.c_double] * 3
_LIBM.fmaf.restype = ctypes.c_float
_LIBM.fmaf.argtypes = [ctypes.c_float] * 3


def libm_fma(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """The C library's fma, one element at a time."""
    call = _LIBM.fmaf if a.dtype == np.float32 else _LIBM.fma
    a, b, c = np.broadcast_arrays(a, b, c)
    values = [call(*map(float, t)) for t in zip(a.flat, b.flat, c.flat, strict=True)]
    return np.array(values, a.dtype).reshape(a.shape)


def assert_same_bits(ours: np.ndarray, theirs: np.ndarray) -> None:
    """Equal bit for bit, all NaNs alike."""
    assert ours.dtype == theirs.dtype
    assert ours.shape == theirs.shape
    width = np.dtype(f"u{ours.dtype.itemsize}")
    assert np.array_equal(ieee.canonical(ours).view(width), ieee.canonical(theirs).view(width))


def specials(dtype: type) -> np.ndarray:
    """Zeros, infinities, NaN, and the edges of the normal and subnormal ranges."""
    info = np.finfo(dtype)
    positive = [0.0, info.smallest_subnormal, info.smallest_normal, 1.0, info.eps, 1 + info.eps, info.max, np.inf]
    values = np.array([*positive, np.nan], dtype)
    return np.concatenate([values, -values, np.nextafter(values, dtype(0))])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_fma_equals_libm_on_special_values(dtype: type) -> None:
    s = specials(dtype)
    a, b, c = s[:, None, None], s[None, :, None], s[None, None, :]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert_same_bits(ieee.fma(a, b, c), libm_fma(a, b, c))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("case", ["anything", "near one", "cancelling", "subnormal result", "halfway", "overflow edge"])
def test_fma_equals_libm_on_hard_operands(dtype: type, case: str) -> None:
    rng = np.random.default_rng(7)
    info = np.finfo(dtype)
    n, bits, width = 4000, info.nmant, np.dtype(f"u{info.bits // 8}")
    a, b, c = (rng.integers(0, 2**info.bits, n, width).view(dtype) for _ in range(3))
    near_one = [np.ldexp(rng.integers(2**bits, 2 ** (bits + 1), n).astype(dtype), -bits) for _ in range(3)]
    sign = rng.choice(np.array([-1, 1], dtype), n)
    with np.errstate(all="ignore"):
        if case == "near one":
            a, b = near_one[:2]
            c = sign * np.ldexp(near_one[2], rng.integers(-2 * bits - 4, 2 * bits + 4, n)).astype(dtype)
        elif case == "cancelling":
            a, b = near_one[:2]
            c = -(a * b) + np.ldexp(sign, rng.integers(-2 * bits - 4, -bits, n)).astype(dtype)
        elif case == "subnormal result":
            a = np.ldexp(near_one[0], info.minexp // 2 - rng.integers(0, bits // 2, n)).astype(dtype)
            b = np.ldexp(near_one[1], info.minexp // 2 - rng.integers(0, bits // 2, n)).astype(dtype)
            c = sign * rng.integers(0, 2 ** (bits // 2), n, width).view(dtype)
        elif case == "halfway":
            # An odd product of one bit more than fits, and a far smaller addend that decides the direction.
            a = np.ldexp(rng.integers(2 ** (bits // 2), 2 ** (bits // 2 + 1), n).astype(dtype) * 2 + 1, 0)
            b = np.ldexp(rng.integers(2 ** (bits // 2), 2 ** (bits // 2 + 1), n).astype(dtype) * 2 + 1, 0)
            c = sign * np.ldexp(near_one[2], -rng.integers(0, 3 * bits, n)).astype(dtype)
        elif case == "overflow edge":
            a = np.ldexp(near_one[0], info.maxexp // 2).astype(dtype)
            b = np.ldexp(near_one[1], info.maxexp // 2 - 1).astype(dtype)
            c = sign * np.ldexp(near_one[2], info.maxexp - 1 - rng.integers(0, bits + 3, n)).astype(dtype)
    assert_same_bits(ieee.fma(a, b, c), libm_fma(a, b, c))


@pytest.mark.parametrize(("x", "y"), [np.float32([1 + 2**-12] * 2), np.float64([1 + 2**-26, 1 + 2**-27])])
def test_fma_sees_an_addend_that_decides_a_tie_from_afar(x: np.generic, y: np.generic) -> None:
    tiny = x.dtype.type(2.0**-110)
    up, down = ieee.fma(x, y, tiny), ieee.fma(x, y, -tiny)
    assert up > down
    assert_same_bits(up, libm_fma(x, y, tiny))
    assert_same_bits(down, libm_fma(x, y, -tiny))


def test_fma_keeps_the_sign_of_an_underflow() -> None:
    tiny = np.float64(5e-324)
    assert np.signbit(ieee.fma(tiny, -tiny, np.float64(0.0)))
    assert not np.signbit(ieee.fma(tiny, -tiny, tiny))


def test_fma_wants_one_dtype() -> None:
    with pytest.raises(DTypeError) as error:
        ieee.fma(np.float32(1), np.float32(1), np.float64(1))
    assert str(error.value) == (
        "ieee.fma: (a, b, c) dtype is (float32, float32, float64), must be all float32 or all float64; "
        "convert them first"
    )


@pytest.mark.parametrize(
    "row", [r for r in dtypes.ROWS if r.canonical_nan is not None and r.width_bits <= 16], ids=repr
)
def test_canonical_changes_nothing_but_nans(row: dtypes.DType) -> None:
    assert row.numpy is not None
    codes = np.arange(1 << row.width_bits).astype(f"u{row.size_bytes}")
    nan = np.array([np.isnan(row.decode(int(code))) for code in codes])
    result = ieee.canonical(codes.view(row.numpy)).view(codes.dtype)
    assert np.array_equal(result, np.where(nan, row.canonical_nan, codes))


def test_canonical_copies_only_for_a_nan() -> None:
    x = np.array([1.0, -0.0], np.float32)
    assert ieee.canonical(x) is x
    y = np.array([1.0, -np.nan], ml_dtypes.bfloat16)
    assert ieee.canonical(y).view(np.uint16)[1] == 0x7FC0
    assert y.view(np.uint16)[1] == 0xFFC0


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_maximum_and_minimum_order_the_zeros_and_propagate_nan(dtype: type) -> None:
    values = np.array([-np.inf, -1, -0.0, 0.0, 1, np.inf, np.nan], dtype)
    a, b = values[:, None], values[None, :]
    order = np.arange(len(values))
    either_nan = np.isnan(a) | np.isnan(b)
    for ours, index in (
        (ieee.maximum(a, b), np.maximum.outer(order, order)),
        (ieee.minimum(a, b), np.minimum.outer(order, order)),
    ):
        assert ours.dtype == dtype
        assert_same_bits(ours, np.where(either_nan, dtype(np.nan), values[index]))
