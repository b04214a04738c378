"""Fit the polynomials of `samebits.kernels.functions.rounded` and print them as hex floats with their error.

Each polynomial interpolates at Chebyshev nodes in 300-bit arithmetic, which is within a factor of about two of the
minimax one, and is then rounded to float64. The printed bound is the largest relative error of the rounded polynomial
in exact arithmetic over a fine grid. Run: `python tools/fit_functions.py` (needs mpmath, a development dependency).
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import mpmath  # type: ignore[import-untyped]

from samebits.kernels.functions import error_nodes

mpmath.mp.prec = 300
Real: TypeAlias = Any  # an mpmath.mpf; mpmath ships no types
real = mpmath.mpf


@dataclass(frozen=True, slots=True)
class Fit:
    """Approximate `target` on [low, high] by a polynomial; `value(r, p)` rebuilds what `truth(r)` should be."""

    name: str
    low: Real
    high: Real
    degree: int
    target: Callable[[Real], Real]
    value: Callable[[Real, Real], Real]
    truth: Callable[[Real], Real]


# The centre of erf's interval [0, 2 * ERF_CENTRE] in x * x. Below 2**-50 of relative error the hardest inputs (a result
# within 2**-56 of a rounding boundary) are a matter of luck: this centre, a little above half of 3.9192**2, leaves no
# input wrong, which about a third of its neighbours do too.
ERF_CENTRE = real("7.734375")
# In float64 erf has two pieces, and the second is a polynomial in (x - ERF_TURN) / (x + ERF_TURN), 1 <= x <= 6.
ERF_TURN = real("2.5")
LOG2 = mpmath.log(2)
# The pieces of m of a logarithm in pairs of float32, each of 2**18 codes, from this code on: 1 is the middle of one.
LOG_PIECES, LOG_LEAST = 32, 0x3F800000 - (1 << 17) - (18 << 18)
HALF = real("0.50001")  # a little beyond 1/2: rint(x * log2(e)) is taken of a rounded product


def _erf_ratio(z: Real) -> Real:
    """erf(sqrt(z)) / sqrt(z)."""
    return 2 / mpmath.sqrt(mpmath.pi) if z <= 0 else mpmath.erf(mpmath.sqrt(z)) / mpmath.sqrt(z)


def _erf_rest(t: Real) -> Real:
    """exp(x * x) * erfc(x) of t = (x - ERF_TURN) / (x + ERF_TURN)."""
    x = ERF_TURN * (1 + t) / (1 - t)
    return mpmath.erfc(x) * mpmath.exp(x * x)


def _exp2_ratio(r: Real) -> Real:
    """(2**r - 1) / r."""
    return LOG2 + LOG2**2 * r / 2 if abs(r) < real(10) ** -30 else mpmath.expm1(r * LOG2) / r


def _exp2_sixteenth(r: Real) -> Real:
    """(2**(r / 16) - 1) / r."""
    return _exp2_ratio(r / 16) / 16


def _log_rest(z: Real) -> Real:
    """(log((1 + s) / (1 - s)) - 2 * s) / s**3 of z = s**2 < 0.03, by its series."""
    return mpmath.fsum(2 * z**k / (2 * k + 3) for k in range(60))


def _sine_ratio(z: Real) -> Real:
    """sin(sqrt(z)) / sqrt(z)."""
    return real(1) if z <= 0 else mpmath.sin(mpmath.sqrt(z)) / mpmath.sqrt(z)


def _sine_rest(z: Real) -> Real:
    """(sin(sqrt(z)) / sqrt(z) - 1) / z, by its series."""
    return mpmath.fsum((-1) ** (k + 1) * z**k / mpmath.factorial(2 * k + 3) for k in range(60))


# The squares of (m - 1) / (m + 1) for the m between the square roots of 1/2 and 2, and of half turns.
LOG_END = real("0.02944")
SINE_END = (mpmath.pi / 2 * real("1.00001")) ** 2

FITS = (
    Fit("EXP", -HALF, HALF, 9, _exp2_ratio, lambda r, p: 1 + r * p, lambda r: mpmath.power(2, r)),
    Fit("EXP_BY_TABLE", -HALF, HALF, 5, _exp2_sixteenth, lambda r, p: 1 + r * p, lambda r: mpmath.power(2, r / 16)),
    Fit("EXPONENTIAL", -HALF, HALF, 10, _exp2_ratio, lambda r, p: 1 + r * p, lambda r: mpmath.power(2, r)),
    Fit("ERF", -ERF_CENTRE, ERF_CENTRE, 26, lambda w: _erf_ratio(w + ERF_CENTRE), lambda w, p: p,
        lambda w: _erf_ratio(w + ERF_CENTRE)),
    Fit("ERROR_NEAR", real(0), real("1.0001"), 12, _erf_ratio, lambda z, p: p, _erf_ratio),
    Fit("ERROR_FAR", (1 - ERF_TURN) / (1 + ERF_TURN), (6 - ERF_TURN) / (6 + ERF_TURN), 14, _erf_rest,
        lambda t, p: p, _erf_rest),
    Fit("LOG", real(0), LOG_END, 6, _log_rest, lambda z, p: 2 + z * p, lambda z: 2 + z * _log_rest(z)),
    Fit("SINE", real(0), SINE_END, 7, _sine_rest, lambda z, p: 1 + z * p, _sine_ratio),
)  # fmt: skip


def interpolate(fit: Fit) -> list[float]:
    """Coefficients, the constant first, rounded to float64."""
    count = fit.degree + 1
    centre, radius = (fit.low + fit.high) / 2, (fit.high - fit.low) / 2
    nodes = [centre + radius * mpmath.cos(mpmath.pi * (2 * k + 1) / (2 * count)) for k in range(count)]
    matrix, values = mpmath.matrix(count, count), mpmath.matrix(count, 1)
    for i, x in enumerate(nodes):
        values[i] = fit.target(x)
        for j in range(count):
            matrix[i, j] = x**j
    return [float(c) for c in mpmath.lu_solve(matrix, values)]


def error_bits(fit: Fit, coefficients: list[float]) -> float:
    """log2 of the largest relative error on a grid of 2000 points."""
    exact = [real(c) for c in reversed(coefficients)]
    worst = real(0)
    for i in range(2001):
        x = fit.low + (fit.high - fit.low) * i / 2000
        worst = max(worst, abs(fit.value(x, mpmath.polyval(exact, x)) / fit.truth(x) - 1))
    return float(mpmath.log(worst, 2))


def main() -> None:
    """Print every row as Python source."""
    for fit in FITS:
        coefficients = interpolate(fit)
        print(f"# {fit.name}: degree {fit.degree}, relative error 2**{error_bits(fit, coefficients):.1f}")
        for c in coefficients:
            print(f'    "{c.hex()}",')
    print("# 2**(i / 16), its bits less i << 48")
    for i in range(16):
        (bits,) = struct.unpack("<q", struct.pack("<d", float(mpmath.power(2, real(i) / 16))))
        (entry,) = struct.unpack("<d", struct.pack("<q", bits - (i << 48)))
        print(f'    "{entry.hex()}",')
    print_pairs()
    print_logarithm_pairs()
    print_error_pairs()
    print_quarters()


def print_pairs() -> None:
    """Print what exp in pairs of float32 is made of."""
    first = mpmath.nint(LOG2 * 2**24) / 2**24
    print(f"# log(2): {float(first).hex()} + {float(single(LOG2 - first)).hex()}")
    for count, known in ((32, 2), (8, 3)):
        fit = exponential_rest(known, LOG2 / count / 2 * real("1.0002"))
        coefficients = [single(c) for c in interpolate(fit)]
        bits = error_bits(fit, coefficients)
        print(f"# what remains of e**r, over r**{known}, of {count} steps: relative error of e**r 2**{bits:.1f}")
        print(*[f'    "{c.hex()}",' for c in coefficients], sep="\n")
    powers = [mpmath.power(2, real(i) / 32) for i in range(32)]
    print("# 2**(i / 32) in float32, its bits less i << 18; then what that rounding took off the logarithm")
    for i, power in enumerate(powers):
        (bits,) = struct.unpack("<i", struct.pack("<f", single(power)))
        (entry,) = struct.unpack("<f", struct.pack("<i", bits - (i << 18)))
        rest = single(mpmath.log(power / single(power)))
        print(f'    "{entry.hex()}", "{rest.hex()}",')


def exponential_rest(known: int, end: Real) -> Fit:
    """What e**r has beyond so many terms of its series, over r to that."""

    def value(r: Real, p: Real) -> Real:
        return mpmath.fsum(r**k / mpmath.factorial(k) for k in range(known)) + r**known * p

    def rest(r: Real) -> Real:
        return mpmath.fsum(r**k / mpmath.factorial(k + known) for k in range(40))

    return Fit("", -end, end, 2, rest, value, mpmath.exp)


def print_logarithm_pairs() -> None:
    """Print what logarithms in pairs of float32 are made of, a line a piece: the columns are `paired_logarithm`'s."""
    step = mpmath.nint(LOG2 * 2**16) / 2**16
    print(f"# log(2): {float(step).hex()} + {float(single(LOG2 - step)).hex()}")
    print("# 1 / m, -log of that and the rest of it, by pieces; the largest |r|")
    end = real(0)
    for i in range(LOG_PIECES):
        inverse, most = piece_inverse(i)
        value = mpmath.nint(-mpmath.log(inverse) * 2**17) / 2**17
        print(*[f'"{float(x).hex()}",' for x in (inverse, value, single(-mpmath.log(inverse) - value))], float(most))
        end = max(end, most)
    fit = Fit("", -end, end, 2, lambda r: mpmath.fsum((-r) ** k / (k + 3) for k in range(60)),
              lambda r, p: 1 - r / 2 + r**2 * p, lambda r: mpmath.log1p(r) / r if r else real(1))  # fmt: skip
    coefficients = [single(c) for c in interpolate(fit)]
    print(
        f"# (log(1 + r) - r + r**2 / 2) / r**3: relative error of the logarithm 2**{error_bits(fit, coefficients):.1f}"
    )
    print(*[f'    "{c.hex()}",' for c in coefficients], sep="\n")


def piece_inverse(i: int) -> tuple[float, Real]:
    """c of the i-th piece of m, which nearly inverts it, and the largest |r|, r = m * c - 1, which a float32 holds."""
    code = struct.pack("<i", LOG_LEAST + (i << 18)), struct.pack("<i", LOG_LEAST + (i + 1 << 18) - 1)
    low, high = (struct.unpack("<f", each)[0] for each in code)
    unit, found = 24 if low < 1 else 23, []
    for digits in range(9):
        for c in (n / 2**digits for n in range(2**digits // 2, 2 ** (digits + 1))):
            most = max(abs(low * c - 1), abs(high * c - 1))
            if most * 2 ** (unit + digits) <= 2**24:
                found.append((most, c))
    most, c = min(found)
    return c, real(most)


def print_error_pairs() -> None:
    """Print the columns of `error_nodes`, a line a node."""
    for nodes, powers in (
        (error_nodes.OF_SIXTEEN_LANES, (3, 4, 5, 6)),
        (error_nodes.OF_EIGHT_LANES, tuple(range(3, 10))),
    ):
        count, per_one = len(nodes.columns[0]), nodes.per_one
        print(f"# erf by c of {count}: erf, its rest, slope, its rest, terms; relative error of erf")
        for i in range(count):
            c, part = real(i) / per_one, 1 - real(nodes.margins[i]) / 2 if nodes.margins else real(1)
            high = real(1) / 2 / per_one if i < count - 1 or nodes.margins else real("3.9375") - c
            terms, bits = error_terms(c, part, (-real(1) / 2 / per_one, high), powers, with_third=not nodes.margins)
            print(*[term.hex() for term in terms], f"2**{bits:.1f}")


def error_terms(
    c: Real, part: Real, ends: tuple[Real, Real], powers: tuple[int, ...], with_third: bool
) -> tuple[list[float], float]:
    """Of `part` of erf about c, as `paired_error` writes it; and log2 of the error, by least squares at 24 nodes.

    Args:    with_third: whether r**3 has the coefficient of erf's own series, rounded.
    """
    low, high, slope = ends[0] if c else real(2) ** -30, ends[1], part * 2 / mpmath.sqrt(mpmath.pi)
    value, slope = single(part * mpmath.erf(c)), single(slope * mpmath.exp(-c * c))
    third = [single((2 * c * c - 1) / 3)] if with_third else []
    powers = powers[len(third) :]

    def known(r: Real) -> Real:
        """What of erf, by the slope, is not fitted."""
        return r - c * r * r + mpmath.fsum(term * r**3 for term in third)

    def basis(r: Real) -> list[Real]:
        """What the rests and the terms are multiplied by; at 0 erf is 0 and has no rest."""
        return [real(bool(c)), slope * known(r), *[slope * r**k for k in powers]][not c :]

    size = len(powers) + (2 if c else 1)
    matrix, values = mpmath.matrix(24, size), mpmath.matrix(24, 1)
    for i in range(24):
        r = (low + high) / 2 + (high - low) / 2 * mpmath.cos(mpmath.pi * (2 * i + 1) / 48)
        right = mpmath.erf(c + r)
        values[i] = (part * right - value - slope * known(r)) / right
        for j, term in enumerate(basis(r)):
            matrix[i, j] = term / right
    rests = [single(x) for x in mpmath.qr_solve(matrix, values)[0]]
    worst = real(0)
    for i in range(101):
        r = low + (high - low) * i / 100
        found = value + slope * known(r) + mpmath.fdot(basis(r), rests)
        worst = max(worst, abs(found / (part * mpmath.erf(c + r)) - 1))
    rest, slope_rest, *terms = rests if c else [0.0, *rests]
    return [value, rest, slope, slope_rest, *third, *terms], float(mpmath.log(worst, 2))


def print_quarters() -> None:
    """Print the polynomials of `bounded_gelu`, a table a line, the constants first."""
    for name, target, degree in (("SHARES", _share, 4), ("SLOPES", _slope, 5)):
        found = [quarter(target, real(i) / 4, degree) for i in range(32)]
        print(f"# {name} by c, in quarters: coefficients of powers of |x| - c")
        for k in range(degree + 1):
            print("(" + ", ".join(f'"{terms[k].hex()}"' for terms in found) + "),")


def _share(x: Real) -> Real:
    """What gelu multiplies -x by, x >= 0."""
    return mpmath.erfc(x / mpmath.sqrt(2)) / 2


def _slope(x: Real) -> Real:
    """The slope of gelu at -x, x >= 0."""
    return _share(x) - x * mpmath.npdf(x)


def quarter(target: Callable[[Real], Real], c: Real, degree: int) -> list[float]:
    """The coefficients of powers of what x is from c, 1/8 at most: interpolated at Chebyshev nodes and rounded one
    after the other from the top, so that the lower ones take up what that took off."""
    low, high, found = -real(1) / 8 if c else real(0), real(1) / 8, dict[int, float]()
    for top in range(degree, -1, -1):
        matrix, values = mpmath.matrix(top + 1, top + 1), mpmath.matrix(top + 1, 1)
        for i in range(top + 1):
            r = (low + high) / 2 + (high - low) / 2 * mpmath.cos(mpmath.pi * (2 * i + 1) / (2 * top + 2))
            values[i] = target(c + r) - sum(term * r**k for k, term in found.items())
            for k in range(top + 1):
                matrix[i, k] = r**k
        found[top] = single(mpmath.lu_solve(matrix, values)[top])
    return [found[k] for k in range(degree + 1)]


def single(x: Real) -> float:
    """x rounded to float32."""
    (found,) = struct.unpack("<f", struct.pack("<f", float(x)))
    return float(found)


if __name__ == "__main__":
    main()
