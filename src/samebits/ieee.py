"""IEEE-754 operations that NumPy lacks, for references and for the interpreter of kernel text.

Each is correctly rounded (to nearest, ties to even) with subnormals, and silent: special values are results here,
never warnings. NaN results have an unspecified sign and payload until `canonical` gives them their code point. Start at
`fma`.

Round to odd: an inexact value becomes the neighbour whose last bit is 1, so that a second rounding to at least two bits
fewer equals one rounding of the exact value (Boldo and Melquiond, "Emulation of FMA and correctly rounded sums: proved
algorithms using rounding to odd", IEEE Trans. Computers 57(4), 2008).
"""

from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from samebits import dtypes
from samebits.errors import DTypeError

__all__ = ["canonical", "encode", "fma", "maximum", "minimum", "nearest", "settled"]

Array = npt.NDArray[Any]
Float64s = npt.NDArray[np.float64]

# Magnitudes between which no step of `_fma64_safe` can overflow or lose a bit: the smallest quantity met is the last
# bit of a product, 2**(2 * -400 - 105), and of c, 2**(-800 - 52); both are normal.
_FACTOR_RANGE = (2.0**-400, 2.0**400)
_ADDEND_RANGE = (2.0**-800, 2.0**800)
# 2**ceil(53 / 2) + 1, Veltkamp's splitting constant for binary64.
_SPLITTER = 134217729.0


def fma(a: npt.ArrayLike, b: npt.ArrayLike, c: npt.ArrayLike) -> Array:
    """round(a * b + c), rounded once.

    Args:
        a: Array of float32 or float64.
        b: Array of the same dtype, broadcast with the others.
        c: Array of the same dtype, broadcast with the others.

    Returns:
        An array of the same dtype and the broadcast shape.

    Raises:
        DTypeError: The three are not all float32 or all float64.
    """
    a, b, c = np.asarray(a), np.asarray(b), np.asarray(c)
    if not a.dtype == b.dtype == c.dtype or a.dtype not in (np.float32, np.float64):
        given = f"({a.dtype}, {b.dtype}, {c.dtype})"
        raise DTypeError("ieee.fma", "(a, b, c)", "dtype", given, "all float32 or all float64", "convert them first")
    with np.errstate(all="ignore"):
        if a.dtype == np.float64:
            return _fma64(a, b, c)
        # A product of two 24-bit significands is exact in binary64: only the sum is rounded, to odd, then to 24 bits.
        total, error = _two_sum(np.multiply(a, b, dtype=np.float64), c.astype(np.float64))
        return _to_odd(total, error).astype(np.float32)


def canonical(x: Array) -> Array:
    """x, every NaN replaced by the canonical NaN of its dtype (numerics.md section 1).

    Returns:
        x itself where it holds no NaN, else a new array.
    """
    code = dtypes.of(x.dtype).canonical_nan
    if code is None:
        return x
    with np.errstate(invalid="ignore"):
        nan = np.isnan(x)
    if not nan.any():
        return x
    result = np.array(x)
    result.view(np.dtype(f"u{x.dtype.itemsize}"))[nan] = code
    return result


def encode(x: npt.ArrayLike, dtype: dtypes.DType) -> Array:
    """The code of the value of a float format that is nearest to each number, ties to an even fraction.

    Beyond the largest value is an infinity, in a format without one NaN, in a format without either that value. NaN is
    canonical, and 0 in a format without it; so are negative numbers and 0 in a format of powers of two alone.

    Args:    x: floats of at most 64 bits, integers or bools.   dtype: a float format.
    Returns: unsigned integers of the format's width, of 8 bits where it has fewer.
    """
    with np.errstate(all="ignore"):
        values = _doubles(np.asarray(x))
        return settled(values, dtype, *nearest(values, dtype))


def settled(
    x: Float64s, dtype: dtypes.DType, codes: npt.NDArray[np.int64], over: npt.NDArray[np.bool_]
) -> npt.NDArray[Any]:
    """`encode` of x, of which `nearest` gave these: with signs, and what is beyond the format's values."""
    lost = np.isnan(x)
    if not dtype.has_zero:
        lost = lost | (x <= 0)
    if dtype.has_infinity or dtype.canonical_nan is None:
        codes = np.where(over, dtype.max_code + dtype.has_infinity, codes)
    else:
        lost = lost | over
    found = np.maximum(codes, 0).astype(np.uint64)
    if dtype.signed:
        negative = np.signbit(x) & (dtype.has_negative_zero | (found != 0))
        found |= negative.astype(np.uint64) << np.uint64(dtype.width_bits - 1)
    found = np.where(lost, np.uint64(dtype.canonical_nan or 0), found)
    return np.asarray(found.astype(f"u{max(dtype.width_bits, 8) // 8}"))


def nearest(x: Float64s, dtype: dtypes.DType) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """The code of the magnitude nearest to |x|, as if exponents had no limit, and whether it is beyond the largest.

    In a format without zero it is negative where 0 would be nearest; of a NaN it means nothing.
    """
    unusual = ~np.isfinite(x)
    finite = np.where(unusual, 1.0, np.abs(x))
    # value = whole * 2^(exponent - mantissa_bits), the exponent held at that of the subnormals.
    least = dtype.has_zero - dtype.bias
    exponent = np.where(finite == 0, least, np.maximum(np.frexp(finite)[1] - 1, least)).astype(np.int64)
    whole = np.rint(np.ldexp(finite, dtype.mantissa_bits - exponent)).astype(np.int64)
    # The fraction's leading 1 carries into the exponent field, as rounding up to the next power of two does.
    codes = ((exponent + (dtype.bias - 1)) << dtype.mantissa_bits) + whole
    return codes, unusual | (codes > dtype.max_code)


def _doubles(x: Array) -> Float64s:
    """Numbers as binary64; integers that it does not hold are rounded to odd."""
    if x.dtype.kind not in "iu" or x.dtype.itemsize < 8:
        return x.astype(np.float64)
    high = x // (1 << 32)
    return _to_odd(*_two_sum(high.astype(np.float64) * 2.0**32, (x - high * (1 << 32)).astype(np.float64)))


def maximum(a: npt.ArrayLike, b: npt.ArrayLike) -> Array:
    """The larger of a and b, NaN if either is NaN, and +0 > -0: IEEE-754-2019 maximum."""
    a, b = np.asarray(a), np.asarray(b)
    with np.errstate(all="ignore"):
        # Of two zeros the sum is -0 only if both are, which is their maximum.
        return np.asarray(np.where((a == 0) & (b == 0), a + b, np.maximum(a, b)))


def minimum(a: npt.ArrayLike, b: npt.ArrayLike) -> Array:
    """The smaller of a and b, NaN if either is NaN, and -0 < +0: IEEE-754-2019 minimum."""
    a, b = np.asarray(a), np.asarray(b)
    with np.errstate(all="ignore"):
        return np.asarray(np.where((a == 0) & (b == 0), -(-a + -b), np.minimum(a, b)))


def _two_sum(a: Float64s, b: Float64s) -> tuple[Float64s, Float64s]:
    """a + b = s + e exactly, s = round(a + b) (Knuth); e is NaN where s is not finite."""
    s = a + b
    t = s - a
    return s, (a - (s - t)) + (b - t)


def _two_product(a: Float64s, b: Float64s) -> tuple[Float64s, Float64s]:
    """a * b = p + e exactly, p = round(a * b), where nothing overflows or underflows (Veltkamp, Dekker)."""
    p = a * b
    a_high = _SPLITTER * a - (_SPLITTER * a - a)
    b_high = _SPLITTER * b - (_SPLITTER * b - b)
    a_low, b_low = a - a_high, b - b_high
    return p, a_low * b_low - (((p - a_high * b_high) - a_low * b_high) - a_high * b_low)


def _to_odd(s: Float64s, e: Float64s) -> Float64s:
    """s + e rounded to odd, for s = round(s + e); s where s is not finite."""
    bits = np.atleast_1d(s).view(np.int64)
    e = np.atleast_1d(e)
    # The neighbour towards e is one step up in magnitude when the signs agree, else one step down.
    step = np.where((e < 0) == (bits < 0), 1, -1)
    inexact = np.isfinite(e) & (e != 0)
    return np.where(inexact & (bits & 1 == 0), bits + step, bits).view(np.float64).reshape(np.shape(s))


def _fma64(a: Float64s, b: Float64s, c: Float64s) -> Float64s:
    """fma of binary64 arrays: error-free transformations where they are safe, exact rationals elsewhere."""
    a, b, c = np.broadcast_arrays(a, b, c)
    product = a * b
    finite = np.isfinite(a) & np.isfinite(b)
    special = ~finite | (a == 0) | (b == 0)
    safe = _within(a, _FACTOR_RANGE) & _within(b, _FACTOR_RANGE) & _within(c, _ADDEND_RANGE)
    # A special value or an exact zero product: only the addition rounds, so NumPy's is right. With c = 0 the product is
    # all there is, and adding c could turn an underflow to -0 into +0. An infinite c meets no infinity that a finite
    # product only rounds to.
    result = np.asarray(np.where(special, product + c, np.where(c == 0, product, c)))
    result[safe] = _fma64_safe(a[safe], b[safe], c[safe])
    for index in zip(*np.nonzero(np.atleast_1d(~special & ~safe & np.isfinite(c) & (c != 0))), strict=True):
        place = index if result.ndim else ()
        result[place] = _fma64_exact(float(a[place]), float(b[place]), float(c[place]))
    return result


def _within(x: Float64s, limits: tuple[float, float]) -> npt.NDArray[np.bool_]:
    """low <= |x| <= high."""
    magnitude = np.abs(x)
    return (magnitude >= limits[0]) & (magnitude <= limits[1])


def _fma64_safe(a: Float64s, b: Float64s, c: Float64s) -> Float64s:
    """round(a * b + c) in error-free transformations (Boldo and Melquiond, algorithm Fma)."""
    product_high, product_low = _two_product(a, b)
    sum_high, sum_low = _two_sum(c, product_low)
    high, low = _two_sum(product_high, sum_high)
    return high + _to_odd(*_two_sum(sum_low, low))


def _fma64_exact(a: float, b: float, c: float) -> float:
    """round(a * b + c) in rationals, for finite operands with a * b != 0; Python rounds int / int correctly."""
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    if exact == 0:
        return 0.0
    try:
        magnitude = float(abs(exact))
    except OverflowError:
        magnitude = float("inf")
    return -magnitude if exact < 0 else magnitude
