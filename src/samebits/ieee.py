"""IEEE-754 operations that NumPy lacks, for references and for the interpreter of kernel text.

Each is correctly rounded (to nearest, ties to even) with subnormals, and silent: special values are results here,
never warnings. NaN results have an unspecified sign and payload until `canonical` gives them their code point. Start at
`fma`.

Round to odd: an inexact value becomes the neighbour whose last bit is 1, so that a second rounding to at least two bits
fewer equals one rounding of the exact value (Boldo and Melquiond, "Emulation of FMA and correctly rounded sums: proved
algorithms using rounding to odd", IEEE Trans. Computers 57(4), 2008).
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from samebits import dtypes
from samebits.conversions import SB1, Conversion, Rounding
from samebits.errors import DTypeError

__all__ = [
    "canonical",
    "encode",
    "fma",
    "maximum",
    "minimum",
    "numbers",
    "rounded",
    "rounded_to_whole",
    "settled",
]

Array = npt.NDArray[Any]
Float64s = npt.NDArray[np.float64]
Int64s = npt.NDArray[np.int64]

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
        # A product of two 24-bit significands is exact in binary64, so that the sum is rounded twice. That differs from
        # once only where binary64 gives a number halfway between two float32, whose last 28 bits are 0: such a sum is
        # rounded to odd first.
        product = np.multiply(a, b, dtype=np.float64)
        total = np.asarray(product + c)
        result = total.astype(np.float32)
        halfway = (total.view(np.int64) & 0xFFFFFFF == 0) & (result != total)
        if halfway.any():
            if product.shape != c.shape:
                product, c = np.broadcast_arrays(product, c)
            result[halfway] = _to_odd(*_two_sum(product[halfway], c[halfway].astype(np.float64)))
        return result


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


def encode(x: npt.ArrayLike, dtype: dtypes.DType, conversion: Conversion = SB1, words: Array | None = None) -> Array:
    """The code of each number as a float, by a conversion (numerics.md section 9); `error` gives what `ieee` does.

    Args:    x: floats of at most 64 bits, integers or bools.   dtype: a float format.
             words: a uint32 for each number, which stochastic rounding takes.
    Returns: unsigned integers of the format's width, of 8 bits where it has fewer.
    """
    with np.errstate(all="ignore"):
        values = numbers(np.asarray(x), dtype, conversion)
        return settled(values, dtype, *rounded(values, dtype, conversion.rounding_to(dtype), words), conversion)


def numbers(x: Array, dtype: dtypes.DType, conversion: Conversion = SB1) -> Array:
    """x as `rounded` takes it: binary64, or 64-bit integers where that could not stand for them."""
    if conversion.via is not None:
        x = x.astype(conversion.via.numpy)
    if x.dtype.kind in "iu" and x.dtype.itemsize == 8:
        # Of an integer rounded to odd 53 bits are left: those of the result and the ones that decide its rounding.
        deciding = 32 if conversion.rounding == "stochastic" else 2
        return _doubles(x) if dtype.mantissa_bits + 1 + deciding <= 53 else x
    values = x.astype(np.float64)
    if conversion.absolute and not dtype.signed:
        values = np.abs(values)
    if conversion.subnormal_up and not dtype.has_zero:
        values = np.where((values > 2.0**-127) & (values < 2.0**-126), 2.0**-126, values)
    return values


def rounded(
    x: Array, dtype: dtypes.DType, rounding: Rounding = "nearest_even", words: Array | None = None
) -> tuple[Int64s, npt.NDArray[np.bool_]]:
    """The code of the magnitude that |x| is rounded to, as if exponents had no limit, and whether it is beyond the
    largest.

    In a format without zero it is negative where 0 would be next; of a NaN it means nothing.
    """
    if x.dtype.kind != "f":
        return _rounded_integers(x, dtype, rounding, words)
    unusual = ~np.isfinite(x)
    finite = np.where(unusual, 1.0, np.abs(x))
    # value = whole * 2^(exponent - mantissa_bits), the exponent held at that of the subnormals.
    least = dtype.has_zero - dtype.bias
    exponent = np.where(finite == 0, least, np.maximum(np.frexp(finite)[1] - 1, least)).astype(np.int64)
    scaled = np.ldexp(finite, dtype.mantissa_bits - exponent)
    whole = np.rint(scaled) if rounding == "nearest_even" else _whole(scaled, np.signbit(x), rounding, words)
    # The fraction's leading 1 carries into the exponent field, as rounding up to the next power of two does.
    codes = ((exponent + (dtype.bias - 1)) << dtype.mantissa_bits) + whole.astype(np.int64)
    return codes, unusual | (codes > dtype.max_code)


def rounded_to_whole(x: Float64s, rounding: Rounding, words: Array | None = None) -> Float64s:
    """Finite numbers rounded to integers, -0 where a negative one becomes 0."""
    size = np.rint(np.abs(x)) if rounding == "nearest_even" else _whole(np.abs(x), np.signbit(x), rounding, words)
    return np.copysign(size, x)


def settled(
    x: Array, dtype: dtypes.DType, codes: Int64s, over: npt.NDArray[np.bool_], conversion: Conversion = SB1
) -> Array:
    """`encode` of x, of which `rounded` gave these: with signs, and what is beyond the format's values."""
    nan, infinite, negative = np.isnan(x), np.isinf(x), _is_negative(x)
    low = ~nan & (x <= 0) if not (dtype.signed or conversion.absolute) else np.zeros_like(nan)
    beyond = (over | low) & ~nan
    held = np.where(infinite, conversion.infinity() == "saturate", conversion.overflow == "saturate")
    rounding = conversion.rounding_to(dtype)
    # Rounded to the side of 0, no finite number gets beyond the largest.
    inward = (rounding == "toward_zero") | ((rounding == "down") & ~negative) | ((rounding == "up") & negative)
    held = held | (inward & ~infinite & ~low)
    found = np.where(low, 0, np.where(beyond, dtype.max_code, np.maximum(codes, 0))).astype(np.uint64)
    lost = beyond & ~held
    sign = negative.astype(np.uint64) << np.uint64(dtype.width_bits - 1)
    if dtype.has_infinity:
        found, lost = np.where(lost, np.uint64(dtype.max_code + 1), found), np.zeros_like(lost)
    if dtype.signed:
        found |= np.where(dtype.has_negative_zero | (found != 0), sign, np.uint64(0))
    if dtype.canonical_nan is not None:
        turned = sign * np.uint64(conversion.signed_nan(dtype) != "never")
        found = np.where(lost, np.uint64(dtype.canonical_nan) ^ turned, found)
    if conversion.inf == "nan":
        nan = nan | infinite
    turned = sign * np.uint64(conversion.signed_nan(dtype) == "always")
    codes_of_nan = np.uint64(conversion.nan_code(dtype)) ^ turned
    if conversion.nan_payload:
        fraction = x.view(np.uint64) & np.uint64((1 << 52) - 1)
        codes_of_nan = codes_of_nan | fraction >> np.uint64(52 - dtype.mantissa_bits)
    found = np.where(nan, codes_of_nan, found)
    return np.asarray(found.astype(f"u{max(dtype.width_bits, 8) // 8}"))


def _whole(size: Float64s, negative: npt.NDArray[np.bool_], rounding: Rounding, words: Array | None) -> Float64s:
    """Numbers that are not negative as integers, by any rounding but to nearest even; `negative`: of those that they
    are the magnitudes of."""
    whole = np.floor(size)
    rest = size - whole  # exact: the bits behind the point
    if rounding == "stochastic":
        assert words is not None  # the caller's choice
        return np.asarray(whole + (np.floor(rest * 2.0**32) > words))
    never = np.zeros_like(negative)
    outward = {"toward_zero": never, "nearest_away": rest >= 0.5, "up": ~negative, "down": negative}[rounding]
    return np.asarray(whole + (outward & (rest > 0)))


def _rounded_integers(
    x: Array, dtype: dtypes.DType, rounding: Rounding, words: Array | None
) -> tuple[Int64s, npt.NDArray[np.bool_]]:
    """`rounded` of integers that binary64 does not hold, one by one; none is beyond the format."""
    draws = np.zeros(x.shape, np.uint32) if words is None else words
    found = np.empty(x.size, np.int64)
    for place, (number, word) in enumerate(zip(x.ravel().tolist(), draws.ravel().tolist(), strict=True)):
        size, exponent = abs(number), max(abs(number).bit_length() - 1, 0)
        drop = max(exponent - dtype.mantissa_bits, 0)
        whole, rest = divmod(size, 1 << drop)
        twice = 2 * rest - (1 << drop)
        outward = {
            "nearest_even": twice > 0 or (twice == 0 and whole % 2 == 1),
            "nearest_away": twice >= 0,
            "toward_zero": False,
            "up": number > 0 and rest > 0,
            "down": number < 0 and rest > 0,
            "stochastic": (rest << 32) >> drop > word,
        }[rounding]
        whole = (whole + outward) << max(dtype.mantissa_bits - exponent, 0)
        found[place] = size and ((exponent + dtype.bias - 1) << dtype.mantissa_bits) + whole
    return found.reshape(x.shape), np.zeros(x.shape, np.bool_)


def _is_negative(x: Array) -> npt.NDArray[np.bool_]:
    """Whether the sign bit is set."""
    return np.asarray(np.signbit(x) if x.dtype.kind == "f" else x < 0)


def _doubles(x: Array) -> Float64s:
    """64-bit integers as binary64, rounded to odd where it does not hold them."""
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
    step = (bits ^ e.view(np.int64)) >> 63 | 1
    inexact = np.isfinite(e) & (e != 0)
    odd: Float64s = (bits + step * (inexact & (bits & 1 == 0))).view(np.float64)
    return odd.reshape(np.shape(s))


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
    from fractions import Fraction  # which few sums need

    exact = Fraction(a) * Fraction(b) + Fraction(c)
    if exact == 0:
        return 0.0
    try:
        magnitude = float(abs(exact))
    except OverflowError:
        magnitude = float("inf")
    return -magnitude if exact < 0 else magnitude
