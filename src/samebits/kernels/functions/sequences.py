"""Functions of float64 by NumPy: the sequences of operations that numerics.md section 7 writes. Start at `MEANINGS`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from samebits import ieee
from samebits.kernels.functions import double_turns, doubles, power

Array = npt.NDArray[Any]
Pair = tuple[Array, Array]


def _horner(coefficients: tuple[str, ...], r: Array) -> Array:
    found = np.full_like(r, float.fromhex(coefficients[-1]))
    for c in reversed(coefficients[:-1]):
        found = ieee.fma(found, r, np.float64(float.fromhex(c)))
    return found


def _raised(n: Array, r: Array) -> Array:
    """(1 + r * P(r)) * 2**n."""
    return np.asarray(np.ldexp(ieee.fma(_horner(doubles.EXPONENTIAL, r), r, np.float64(1)), _whole(n)))


def _whole(n: Array) -> Array:
    return np.where(np.isnan(n), 0, n).astype(np.int32)


def _split(x: Array) -> tuple[Array, Array]:
    n = np.rint(x * doubles.LOG2_E)
    rest = ieee.fma(-n, np.float64(doubles.LN2_LOW), ieee.fma(-n, np.float64(doubles.LN2), x))
    return n, rest * doubles.LOG2_E


def _exp(x: Array) -> Array:
    return _raised(*_split(np.clip(x, -746, 710)))


def _exp2(x: Array) -> Array:
    x = np.clip(x, -1076, 1025)
    return _raised(np.rint(x), x - np.rint(x))


def _expm1(x: Array) -> Array:
    n, r = _split(np.clip(x, -40, 710))
    half = np.ldexp(1.0, _whole(n) - 1)
    found = 2 * ieee.fma(half * r, _horner(doubles.EXPONENTIAL, r), half - 0.5)
    return np.where(np.abs(x) < 2.0**-54, x, found)


def _tanh(x: Array) -> Array:
    grown = _expm1(2 * np.clip(x, -20, 20))
    return np.where(np.abs(x) < 2.0**-54, x, grown / (grown + 2))


def _sigmoid(x: Array) -> Array:
    power = _exp(-np.abs(x))
    return np.asarray(np.where(x < 0, power, 1.0) / (1 + power))


def _fraction(x: Array) -> tuple[Array, Array]:
    """x = 2**k * (1 + f), 1 + f from the root of 1/2 on and below twice that."""
    m, k = np.frexp(np.where((x > 0) & (x < np.inf), x, 1.0))
    below = m < np.float64(0.5) ** 0.5
    return np.where(below, k - 1, k).astype(np.float64), np.where(below, 2 * m, m) - 1


def _grown(f: Array) -> Array:
    """f - (h - s * (h + z * L(z))), h = (f / 2) * f, s = f / (f + 2), z = s * s."""
    s = f / (f + 2)
    z, h = s * s, (f * 0.5) * f
    return np.asarray(f - ieee.fma(-s, ieee.fma(z, _horner(doubles.LOGARITHM, z), h), h))


def _settled(x: Array, found: Array, pole: float) -> Array:
    edge = np.where(x == pole, -np.inf, np.nan)
    return np.where(x == np.inf, x, np.where(x > pole, found, edge))


def _log(x: Array) -> Array:
    k, f = _fraction(x)
    return _settled(x, ieee.fma(k, np.float64(doubles.LN2), _grown(f)), 0)


def _log2(x: Array) -> Array:
    k, f = _fraction(x)
    return _settled(x, ieee.fma(_grown(f), np.float64(doubles.LOG2_E), k), 0)


def _log10(x: Array) -> Array:
    k, f = _fraction(x)
    return _settled(x, ieee.fma(k, np.float64(doubles.LOG10_2), _grown(f) * doubles.LOG10_E), 0)


def _log1p(x: Array) -> Array:
    total = 1 + x
    k, f = _fraction(total)
    lost = np.where(x > 1, 1 - (total - x), x - (total - 1)) / total
    grown = _grown(np.where(k == 0, x, f)) + np.where(k == 0, 0, lost)
    found = _settled(x, ieee.fma(k, np.float64(doubles.LN2), grown), -1)
    return np.where(np.abs(x) < 2.0**-54, x, found)


def _near_turns(x: Array, phase: float) -> tuple[Array, Array]:
    n = np.rint(ieee.fma(x, np.float64(double_turns.PER_PI), np.float64(phase)))
    r = x
    for part in double_turns.PI:
        r = ieee.fma(phase - n, np.float64(part), r)
    return r, n


def _sum(x: Array, y: Array) -> tuple[Array, Array]:
    """x + y, rounded, and the rounding error (Knuth's two-sum)."""
    total = x + y
    part = total - x
    return total, (x - (total - part)) + (y - part)


def _far_turns(x: Array, phase: float) -> tuple[Array, Array]:
    m, e = np.frexp(np.abs(x))
    parts = [np.array(part)[np.clip(e - 1 - double_turns.FAR.start, 0, None)] for part in double_turns.parts()]
    whole = np.ldexp(m, 53)
    products = [whole * part for part in parts]
    lost = [ieee.fma(whole, part, -p) for part, p in zip(parts, products, strict=True)]
    n = np.rint(products[0])
    high, low = (products[0] - n) + phase, np.zeros_like(x)
    for term in (lost[0], products[1], lost[1], products[2], lost[2], products[3]):
        high, error = _sum(high, term)
        low = low + error
    more = np.rint(high)
    high, low = _sum(high - more, low)
    first, second = (np.float64(part) for part in double_turns.PI[:2])
    r = ieee.fma(high, first, ieee.fma(high, second, low * first))
    return r if phase else np.where(x < 0, -r, r), n % 2 + more


def _product(x: Pair, y: Pair) -> Pair:
    high = x[0] * y[0]
    return high, ieee.fma(x[1], y[0], ieee.fma(x[0], y[1], ieee.fma(x[0], y[0], -high)))


def _series(x: Pair, terms: tuple[Fraction, ...], pairs: int) -> Pair:
    high, low = np.full_like(x[0], float(terms[-1])), np.zeros_like(x[0])
    for place in reversed(range(len(terms) - 1)):
        first = float(terms[place])
        if place >= pairs:
            high = ieee.fma(high, x[0], np.float64(first))
            continue
        grown, rest = _product(x, (high, low))
        high = first + grown
        low = (grown - (high - first)) + (rest + float(terms[place] - Fraction(first)))
    return high, low


def _joined(x: Pair, y: Pair) -> Pair:
    """x + y, of which x has the larger high part and no low one, or is 0."""
    high, low = _ordered(x[0], y[0])
    return _ordered(high, low + y[1])


def _ordered(x: Array, y: Array) -> Pair:
    return x + y, y - ((x + y) - x)


def pow(x: Array, y: Array) -> Array:
    """x to the y of float64 (numerics.md section 7)."""
    x, y = np.broadcast_arrays(x, y)
    ordinary = np.isfinite(x) & (x != 0)
    k, f = _fraction(np.where(ordinary, np.abs(x), 1.0))
    below, rest = _ordered(np.full_like(f, 2.0), f)
    s = f / below
    quotient = s, ieee.fma(-s, rest, ieee.fma(-s, below, f)) / below
    logarithm = _product(quotient, _series(_ordered(*_product(quotient, quotient)), *power.LOGARITHM))
    high, low = _joined((k, np.zeros_like(k)), logarithm)
    exponent = np.clip(y, -(2.0**65), 2.0**65)
    turned = exponent * high
    lost = ieee.fma(exponent, low, ieee.fma(exponent, high, -turned))
    lost = np.where((turned >= -1080) & (turned <= 1025), lost, 0)
    turned = np.clip(turned, -1080, 1025)
    n = np.rint(turned)
    r = _sum(turned - n, lost)
    high, _ = _joined((np.ones_like(r[0]), np.zeros_like(r[0])), _product(r, _series(r, *power.POWER)))
    found = np.ldexp(high, _whole(n))
    odd = (np.rint(y) == y) & (np.rint(y / 2) != y / 2)
    found = np.where(ordinary | np.isnan(y), found, np.where((x == 0) ^ (y < 0), 0.0, np.inf))
    found = np.where(odd & np.signbit(x), -found, found)
    wrong = np.isnan(x) | (ordinary & (x < 0) & (np.rint(y) != y))
    return np.where((y == 0) | (x == 1), 1.0, np.where(wrong, np.nan, found))


def _turned(x: Array, phase: float) -> Array:
    far = (np.abs(x) >= 2.0**double_turns.FAR.start) & (np.abs(x) < np.inf)
    pairs = zip(_far_turns(np.where(far, x, 1.0), phase), _near_turns(x, phase), strict=True)
    r, n = (np.where(far, distant, near) for distant, near in pairs)
    z = r * r
    found = ieee.fma(r * z, _horner(double_turns.SINE, z), r)
    return np.where(n % 2 == 1, -found, found)


def _sin(x: Array) -> Array:
    return np.where(np.abs(x) < 2.0**-27, x, _turned(x, 0.0))


def _cos(x: Array) -> Array:
    return _turned(x, 0.5)


def _erf(x: Array) -> Array:
    size = np.minimum(np.abs(x), 6.0)
    turned = (size - doubles.ERROR_TURN) / (size + doubles.ERROR_TURN)
    far = ieee.fma(-_exp(-(size * size)), _horner(doubles.ERROR_FAR, turned), np.float64(1))
    near = x * _horner(doubles.ERROR_NEAR, x * x)
    return np.where(np.abs(x) < 1, near, np.where(x < 0, -far, far))


MEANINGS: Mapping[str, Callable[[Array], Array]] = {
    "exp": _exp,
    "exp2": _exp2,
    "expm1": _expm1,
    "tanh": _tanh,
    "sigmoid": _sigmoid,
    "log": _log,
    "log2": _log2,
    "log10": _log10,
    "log1p": _log1p,
    "sin": _sin,
    "cos": _cos,
    "erf": _erf,
}
