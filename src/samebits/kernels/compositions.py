"""Compositions: named functions as the sequences of roundings that numerics.md writes, built onto a `Chain`.

Each takes the chain and values of it, and returns a value; nothing here is an operation of its own to a kernel.
"""

from __future__ import annotations

from samebits import dtypes
from samebits.kernels.expression import Chain, Value

_SQRT_HALF = float.fromhex("0x1.6a09e6p-1")  # 0x3F3504F3


def relu(c: Chain, x: Value) -> Value:
    """maximum(x, +0)."""
    return c.apply("maximum", x, c.constant(0, x.dtype))


def square(c: Chain, x: Value) -> Value:
    """x * x: also pow(x, 2)."""
    return c.apply("mul", x, x)


def gelu(c: Chain, x: Value) -> Value:
    """(0.5 * x) * (1 + erf(x * 0x3F3504F3))."""
    half = c.apply("mul", c.constant(0.5, x.dtype), x)
    error = c.apply("erf", c.apply("mul", x, c.constant(_SQRT_HALF, x.dtype)))
    return c.apply("mul", half, c.apply("add", c.constant(1, x.dtype), error))


def mean(c: Chain, x: Value) -> Value:
    """sum(x) / n along the row."""
    return c.apply("div", c.apply("row_sum", x), c.count())


def softmax(c: Chain, x: Value) -> Value:
    """e / sum(e), e = exp(x - max(x)) along the row."""
    e = c.apply("exp", c.apply("sub", x, c.apply("row_max", x)))
    return c.apply("div", e, c.apply("row_sum", e))


def reciprocal_root(c: Chain, variance: Value, epsilon: float) -> Value:
    """1 / sqrt(variance + epsilon), epsilon rounded to float32."""
    return c.apply("reciprocal", c.apply("sqrt", c.apply("add", variance, c.constant(epsilon, dtypes.float32))))


def layer_norm(c: Chain, x: Value, gamma: Value | None, beta: Value | None, epsilon: float) -> Value:
    """fma((x - mean) * rstd, gamma, beta), rstd = 1 / sqrt(var + epsilon); numerics.md section 8."""
    centred = c.apply("sub", x, mean(c, x))
    normal = c.apply("mul", centred, reciprocal_root(c, mean(c, square(c, centred)), epsilon))
    if gamma is None:
        return normal if beta is None else c.apply("add", normal, beta)
    return c.apply("mul", normal, gamma) if beta is None else c.apply("fma", normal, gamma, beta)


def rms_norm(c: Chain, x: Value, gamma: Value, epsilon: float) -> Value:
    """(x * (1 / sqrt(mean(x * x) + epsilon))) * gamma."""
    return c.apply("mul", c.apply("mul", x, reciprocal_root(c, mean(c, square(c, x)), epsilon)), gamma)
