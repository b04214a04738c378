"""Functions of float64 as kernel text: the sequences of operations that numerics.md section 7 writes. Start at `TEXTS`.

They are not correctly rounded: each errs by a few units in the last place, the same on every row. `sequences` has their
independent meaning.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from samebits import dtypes
from samebits.codegen.vocabulary import Builder, Vector
from samebits.kernels.functions import double_turns, logarithms
from samebits.kernels.functions.rounded import ROUNDER, polynomial

LN2 = float.fromhex("0x1.62e42fefa39efp-1")
LN2_LOW = float.fromhex("0x1.abc9e3b39803fp-56")
LOG2_E = float.fromhex("0x1.71547652b82fep+0")
LOG10_E = float.fromhex("0x1.bcb7b1526e50ep-2")
LOG10_2 = float.fromhex("0x1.34413509f79ffp-2")
# (2**r - 1) / r on |r| <= 1/2; relative error of 2**r 2**-55.5.
EXPONENTIAL = (
    "0x1.62e42fefa39efp-1",
    "0x1.ebfbdff82c598p-3",
    "0x1.c6b08d704a0c2p-5",
    "0x1.3b2ab6fba1dd8p-7",
    "0x1.5d87fe78a5275p-10",
    "0x1.43091309705fdp-13",
    "0x1.ffcbfc670e3f6p-17",
    "0x1.62bfd475db30ep-20",
    "0x1.b524fae4cb89bp-24",
    "0x1.e60642a220885p-28",
    "0x1.e9d400f144ca3p-32",
)
LOGARITHM = logarithms.LOG.coefficients
# erf(x) / x in x * x <= 1; relative error 2**-55.0.
ERROR_NEAR = (
    "0x1.20dd750429b6dp+0",
    "-0x1.812746b0379e6p-2",
    "0x1.ce2f21a042b2fp-4",
    "-0x1.b82ce31284df1p-6",
    "0x1.565bcd0dba7cep-8",
    "-0x1.c02db3dabced8p-11",
    "0x1.f9a321d4dab9dp-14",
    "-0x1.f4d1e306e0024p-17",
    "0x1.b9df216542643p-20",
    "-0x1.5f1ec38082bdcp-23",
    "0x1.f7b46724de981p-27",
    "-0x1.389c36ba235e9p-30",
    "0x1.05fccb83cf37bp-34",
)
# exp(x * x) * (1 - erf(x)) in (x - 2.5) / (x + 2.5), 1 <= x <= 6; relative error 2**-51.0, of at most a fifth of erf.
ERROR_FAR = (
    "0x1.afbb3f3b7343bp-3",
    "-0x1.7ca88dec2179fp-2",
    "0x1.01c11a735cd90p-2",
    "-0x1.0011543717910p-3",
    "0x1.470ba1f67a1a9p-5",
    "-0x1.05bb2fdf6af31p-8",
    "-0x1.5a5716b1b771fp-9",
    "0x1.cb3b5c1d1aec7p-11",
    "0x1.def28f2749997p-13",
    "-0x1.0e4525f30bfc3p-13",
    "-0x1.1eafcc284801bp-15",
    "0x1.38006c5e8491ep-16",
    "0x1.f74c7792ffaecp-18",
    "-0x1.2bb032d568ee0p-19",
    "-0x1.aa2d5ed17d342p-20",
)
ERROR_TURN = 2.5
# Powers of two that are normal numbers, as far as any exponent here is split in two.
_NORMAL = 1000.0
_TINY = 2.0**-54


def _between(b: Builder, x: Vector, low: float, high: float) -> Vector:
    """x within limits; NaN stays."""
    x = b.select(b.less(b.like(x, high), x), b.like(x, high), x)
    return b.select(b.less(x, b.like(x, low)), b.like(x, low), x)


def _power_of_two(b: Builder, n: Vector) -> Vector:
    """2**n of whole numbers n that make it normal."""
    bits = b.bitcast(b.add(n, b.like(n, ROUNDER)), dtypes.int64)
    return b.bitcast(b.add(b.shift_left(bits, 52), b.bitcast(b.like(n, 1.0), dtypes.int64)), dtypes.float64)


def scaled(b: Builder, m: Vector, n: Vector) -> Vector:
    """m * 2**n, 1/2 < m < 2, rounded once."""
    first = _between(b, n, -_NORMAL, _NORMAL)
    return b.mul(b.mul(m, _power_of_two(b, first)), _power_of_two(b, b.sub(n, first)))


def _turned(b: Builder, x: Vector) -> tuple[Vector, Vector]:
    """x * log2(e) as n + r, n whole."""
    n = b.rint(b.mul(x, b.like(x, LOG2_E)))
    minus = b.neg(n)
    rest = b.fma(minus, b.like(x, LN2_LOW), b.fma(minus, b.like(x, LN2), x))
    return n, b.mul(rest, b.like(x, LOG2_E))


def _raised(b: Builder, n: Vector, r: Vector) -> Vector:
    """2**(n + r)."""
    return scaled(b, b.fma(polynomial(b, EXPONENTIAL, r), r, b.like(r, 1.0)), n)


def exp(b: Builder, x: Vector) -> Vector:
    return _raised(b, *_turned(b, _between(b, x, -746.0, 710.0)))


def exp2(b: Builder, x: Vector) -> Vector:
    x = _between(b, x, -1076.0, 1025.0)
    n = b.rint(x)
    return _raised(b, n, b.sub(x, n))


def expm1(b: Builder, x: Vector) -> Vector:
    n, r = _turned(b, _between(b, x, -40.0, 710.0))
    half = _power_of_two(b, b.sub(n, b.like(n, 1.0)))
    found = b.fma(b.mul(half, r), polynomial(b, EXPONENTIAL, r), b.sub(half, b.like(x, 0.5)))
    return b.select(b.less(b.abs(x), b.like(x, _TINY)), x, b.add(found, found))


def tanh(b: Builder, x: Vector) -> Vector:
    near = _between(b, x, -20.0, 20.0)
    grown = expm1(b, b.add(near, near))
    return b.select(b.less(b.abs(x), b.like(x, _TINY)), x, b.div(grown, b.add(grown, b.like(x, 2.0))))


def sigmoid(b: Builder, x: Vector) -> Vector:
    power, one = exp(b, b.neg(b.abs(x))), b.like(x, 1.0)
    return b.div(b.select(b.less(x, b.like(x, 0.0)), power, one), b.add(one, power))


def fraction(b: Builder, x: Vector) -> tuple[Vector, Vector]:
    """x = 2**k * (1 + f), 1 + f between the roots of 1/2 and 2: k and f; anything for what is not positive."""
    small = b.less(x, b.like(x, 2.0**-1022))
    x = b.select(small, b.mul(x, b.like(x, 2.0**54)), x)
    _, (k, f, _) = logarithms.reduced(b, x)
    return b.select(small, b.sub(k, b.like(k, 54.0)), k), f


def _grown(b: Builder, f: Vector) -> Vector:
    """log(1 + f)."""
    s = b.div(f, b.add(f, b.like(f, 2.0)))
    z = b.mul(s, s)
    return logarithms.of_fraction(b, z, polynomial(b, LOGARITHM, z), f, s)


def _settled(b: Builder, x: Vector, found: Vector, pole: float) -> Vector:
    """-inf at the pole, NaN below it, infinity for itself."""
    infinity, low = b.like(x, math.inf), b.like(x, pole)
    edge = b.select(b.equal(x, low), b.neg(infinity), b.like(x, math.nan))
    return b.select(b.equal(x, infinity), x, b.select(b.less(low, x), found, edge))


def log(b: Builder, x: Vector) -> Vector:
    k, f = fraction(b, x)
    return _settled(b, x, b.fma(k, b.like(k, LN2), _grown(b, f)), 0.0)


def log2(b: Builder, x: Vector) -> Vector:
    k, f = fraction(b, x)
    return _settled(b, x, b.fma(_grown(b, f), b.like(k, LOG2_E), k), 0.0)


def log10(b: Builder, x: Vector) -> Vector:
    k, f = fraction(b, x)
    tens = b.mul(_grown(b, f), b.like(k, LOG10_E))
    return _settled(b, x, b.fma(k, b.like(k, LOG10_2), tens), 0.0)


def log1p(b: Builder, x: Vector) -> Vector:
    one, zero = b.like(x, 1.0), b.like(x, 0.0)
    total = b.add(x, one)
    k, f = fraction(b, total)
    whole = b.equal(k, zero)
    larger = b.less(one, x)
    lost = b.select(larger, b.sub(one, b.sub(total, x)), b.sub(x, b.sub(total, one)))
    lost = b.select(whole, zero, b.div(lost, total))
    found = b.fma(k, b.like(k, LN2), b.add(_grown(b, b.select(whole, x, f)), lost))
    return b.select(b.less(b.abs(x), b.like(x, _TINY)), x, _settled(b, x, found, -1.0))


def erf(b: Builder, x: Vector) -> Vector:
    one, far = b.like(x, 1.0), _between(b, b.abs(x), 0.0, 6.0)
    turn = b.like(x, ERROR_TURN)
    rest = polynomial(b, ERROR_FAR, b.div(b.sub(far, turn), b.add(far, turn)))
    found = b.fma(b.neg(exp(b, b.neg(b.mul(far, far)))), rest, one)
    found = b.select(b.less(x, b.like(x, 0.0)), b.neg(found), found)
    return b.select(b.less(b.abs(x), one), b.mul(x, polynomial(b, ERROR_NEAR, b.mul(x, x))), found)


TEXTS: Mapping[str, Callable[[Builder, Vector], Vector]] = {
    "exp": exp,
    "exp2": exp2,
    "expm1": expm1,
    "tanh": tanh,
    "sigmoid": sigmoid,
    "log": log,
    "log2": log2,
    "log10": log10,
    "log1p": log1p,
    "sin": double_turns.sin,
    "cos": double_turns.cos,
    "erf": erf,
}
