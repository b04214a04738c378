"""Activations beside relu and gelu, each as one expression of the roundings that numerics.md section 7 writes.

Where an element passes unchanged it is multiplied by 1, which keeps a number and makes a NaN canonical. One of a float
narrower than float32 computes in float32 and rounds at its output, as every composite does.
"""

from __future__ import annotations

import functools

from samebits.dtypes import DType, float32
from samebits.kernels.composites import given, taken
from samebits.kernels.expression import Chain, Expression, ExpressionValue


@functools.lru_cache(maxsize=256)
def elu(alpha: float, dtype: DType = float32) -> Expression:
    """x where x >= 0, else alpha * (exp(x) - 1)."""
    chain = Chain()
    x = taken(chain, dtype)
    low = chain.apply("mul", chain.constant(alpha, x.dtype), _grown(chain, x))
    y = chain.apply("where", chain.apply("greater_equal", x, chain.constant(0, x.dtype)), x, low)
    return chain.finish(given(chain, y, dtype))


@functools.lru_cache(maxsize=256)
def celu(alpha: float, dtype: DType = float32) -> Expression:
    """maximum(x, +0) + minimum(alpha * (exp(x / alpha) - 1), +0)."""
    chain = Chain()
    x = taken(chain, dtype)
    scale, zero = chain.constant(alpha, x.dtype), chain.constant(0, x.dtype)
    low = chain.apply("minimum", chain.apply("mul", scale, _grown(chain, chain.apply("div", x, scale))), zero)
    return chain.finish(given(chain, chain.apply("add", chain.apply("maximum", x, zero), low), dtype))


def _grown(chain: Chain, x: ExpressionValue) -> ExpressionValue:
    """exp(x) - 1, two roundings."""
    return chain.apply("sub", chain.apply("exp", x), chain.constant(1.0, x.dtype))


@functools.lru_cache(maxsize=256)
def selu(alpha: float, gamma: float, dtype: DType = float32) -> Expression:
    """gamma * x where x > 0, else gamma * (alpha * exp(x) - alpha)."""
    chain = Chain()
    x = taken(chain, dtype)
    scale, factor = chain.constant(alpha, x.dtype), chain.constant(gamma, x.dtype)
    low = chain.apply("sub", chain.apply("mul", scale, chain.apply("exp", x)), scale)
    positive = chain.apply("greater", x, chain.constant(0, x.dtype))
    return chain.finish(given(chain, chain.apply("mul", factor, chain.apply("where", positive, x, low)), dtype))


@functools.lru_cache(maxsize=256)
def hard_sigmoid(alpha: float, beta: float, dtype: DType = float32) -> Expression:
    """maximum(minimum(alpha * x + beta, 1), +0)."""
    chain = Chain()
    return chain.finish(given(chain, _hard_sigmoid(chain, taken(chain, dtype), alpha, beta), dtype))


@functools.cache
def hard_swish(dtype: DType = float32) -> Expression:
    """x * hard_sigmoid(x) with alpha 0x3E2AAAAB, a sixth, and beta 0.5."""
    chain = Chain()
    x = taken(chain, dtype)
    return chain.finish(given(chain, chain.apply("mul", x, _hard_sigmoid(chain, x, 1 / 6, 0.5)), dtype))


def _hard_sigmoid(chain: Chain, x: ExpressionValue, alpha: float, beta: float) -> ExpressionValue:
    line = chain.apply("mul", chain.constant(alpha, x.dtype), x)
    line = chain.apply("add", line, chain.constant(beta, x.dtype))
    line = chain.apply("minimum", line, chain.constant(1, x.dtype))
    return chain.apply("maximum", line, chain.constant(0, x.dtype))


@functools.lru_cache(maxsize=256)
def leaky_relu(alpha: float, dtype: DType = float32) -> Expression:
    """x * alpha where x < 0, else x * 1."""
    chain = Chain()
    x = taken(chain, dtype)
    return chain.finish(given(chain, chain.include(prelu(x.dtype), x, chain.constant(alpha, x.dtype))[0], dtype))


@functools.cache
def prelu(dtype: DType = float32) -> Expression:
    """x * slope where x < 0, else x * 1, of the inputs x and slope."""
    chain = Chain()
    x, slope = taken(chain, dtype), taken(chain, dtype)
    negative = chain.apply("less", x, chain.constant(0, x.dtype))
    y = chain.apply("mul", x, chain.apply("where", negative, slope, chain.constant(1, x.dtype)))
    return chain.finish(given(chain, y, dtype))


@functools.lru_cache(maxsize=256)
def thresholded_relu(alpha: float, dtype: DType = float32) -> Expression:
    """+0 where x <= alpha, else x * 1."""
    chain = Chain()
    x = taken(chain, dtype)
    zero = chain.constant(0, x.dtype)
    low = chain.apply("less_equal", x, chain.constant(alpha, x.dtype))
    y = chain.apply("where", low, zero, chain.apply("mul", x, chain.constant(1, x.dtype)))
    return chain.finish(given(chain, y, dtype))


@functools.lru_cache(maxsize=256)
def shrink(bias: float, limit: float, dtype: DType = float32) -> Expression:
    """x - bias above the limit, x + bias below its negative, +0 between them."""
    chain = Chain()
    x = taken(chain, dtype)
    shift = chain.constant(bias, x.dtype)
    above = chain.apply("greater", x, chain.constant(limit, x.dtype))
    below = chain.apply("less", x, chain.constant(-limit, x.dtype))
    low = chain.apply("where", below, chain.apply("add", x, shift), chain.constant(0, x.dtype))
    return chain.finish(given(chain, chain.apply("where", above, chain.apply("sub", x, shift), low), dtype))


@functools.cache
def softsign(dtype: DType = float32) -> Expression:
    """x / (1 + |x|)."""
    chain = Chain()
    x = taken(chain, dtype)
    y = chain.apply("div", x, chain.apply("add", chain.constant(1, x.dtype), chain.apply("abs", x)))
    return chain.finish(given(chain, y, dtype))


@functools.cache
def silu(dtype: DType = float32) -> Expression:
    """x * sigmoid(x)."""
    chain = Chain()
    x = taken(chain, dtype)
    return chain.finish(given(chain, chain.apply("mul", x, chain.apply("sigmoid", x)), dtype))


@functools.lru_cache(maxsize=256)
def swish(alpha: float, dtype: DType = float32) -> Expression:
    """x * sigmoid(alpha * x)."""
    chain = Chain()
    x = taken(chain, dtype)
    scaled = chain.apply("mul", chain.constant(alpha, x.dtype), x)
    return chain.finish(given(chain, chain.apply("mul", x, chain.apply("sigmoid", scaled)), dtype))


@functools.cache
def softplus(dtype: DType = float32) -> Expression:
    """maximum(x, +0) + log1p(exp(-|x|))."""
    chain = Chain()
    x = taken(chain, dtype)
    return chain.finish(given(chain, _softplus(chain, x), dtype))


@functools.cache
def mish(dtype: DType = float32) -> Expression:
    """x * tanh(softplus(x))."""
    chain = Chain()
    x = taken(chain, dtype)
    return chain.finish(given(chain, chain.apply("mul", x, chain.apply("tanh", _softplus(chain, x))), dtype))


def _softplus(chain: Chain, x: ExpressionValue) -> ExpressionValue:
    tail = chain.apply("log1p", chain.apply("exp", chain.apply("neg", chain.apply("abs", x))))
    return chain.apply("add", chain.apply("maximum", x, chain.constant(0, x.dtype)), tail)
