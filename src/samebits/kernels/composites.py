"""Composites that numerics.md writes as a sequence of roundings, each as one expression: the eager functions and the
front ends build the same ones, which is why their bits agree. Sections 7 and 8.
"""

from __future__ import annotations

import functools

from samebits.dtypes import DType, float32
from samebits.kernels.expression import Chain, Expression


@functools.cache
def relu(dtype: DType = float32) -> Expression:
    """maximum(x, +0)."""
    chain = Chain()
    return chain.finish(chain.apply("maximum", chain.input(dtype), chain.constant(0.0, dtype)))


@functools.cache
def gelu(dtype: DType = float32) -> Expression:
    """(0.5 * x) * (1 + erf(x * 0x3F3504F3))."""
    chain = Chain()
    x = chain.input(dtype)
    grown = chain.apply("erf", chain.apply("mul", x, chain.constant_code(0x3F3504F3, dtype)))
    half = chain.apply("mul", chain.constant(0.5, dtype), x)
    return chain.finish(chain.apply("mul", half, chain.apply("add", chain.constant(1.0, dtype), grown)))


@functools.cache
def softmax(dtype: DType = float32) -> Expression:
    """e / s with e = exp(x - m), m the row's maximum, s the sum of e."""
    chain = Chain()
    x = chain.input(dtype)
    e = chain.apply("exp", chain.apply("sub", x, chain.apply("row_max", x)))
    return chain.finish(chain.apply("div", e, chain.apply("row_sum", e)))


@functools.lru_cache(maxsize=256)
def layer_norm(weighted: bool, biased: bool, eps: float, dtype: DType = float32) -> Expression:
    """fma((x - mean) * rstd, weight, bias) of the inputs x, weight, bias; or without bias; or without either."""
    chain = Chain()
    operands = [chain.input(dtype) for _ in range(1 + weighted + biased)]
    return chain.finish(chain.include(layer_norm_statistics(weighted, biased, eps, dtype), *operands)[0])


@functools.lru_cache(maxsize=256)
def layer_norm_statistics(weighted: bool, biased: bool, eps: float, dtype: DType = float32) -> Expression:
    """Three outputs: the layer norm, and each row's mean and 1 / sqrt(var + eps)."""
    chain = Chain()
    x = chain.input(dtype)
    scale = [chain.input(dtype) for _ in range(weighted + biased)]
    mean = chain.apply("div", chain.apply("row_sum", x), chain.count())
    d = chain.apply("sub", x, mean)
    variance = chain.apply("div", chain.apply("row_sum", chain.apply("mul", d, d)), chain.count())
    root = chain.apply("sqrt", chain.apply("add", variance, chain.constant(eps, dtype)))
    rstd = chain.apply("reciprocal", root)
    y = chain.apply("mul", d, rstd)
    if biased:
        y = chain.apply("fma", y, *scale)
    elif weighted:
        y = chain.apply("mul", y, scale[0])
    return chain.finish(y, mean, rstd)


@functools.lru_cache(maxsize=256)
def rms_norm(eps: float, dtype: DType = float32) -> Expression:
    """x * (1 / sqrt(sum(x * x) / n + eps))."""
    chain = Chain()
    x = chain.input(dtype)
    mean = chain.apply("div", chain.apply("row_sum", chain.apply("mul", x, x)), chain.count())
    root = chain.apply("sqrt", chain.apply("add", mean, chain.constant(eps, dtype)))
    return chain.finish(chain.apply("mul", x, chain.apply("reciprocal", root)))


@functools.lru_cache(maxsize=256)
def batch_norm(eps: float, dtype: DType = float32) -> Expression:
    """fma((x - mean) * (1 / sqrt(var + eps)), weight, bias) of the inputs x, weight, bias, mean, var."""
    chain = Chain()
    x, weight, bias, mean, variance = (chain.input(dtype) for _ in range(5))
    root = chain.apply("sqrt", chain.apply("add", variance, chain.constant(eps, dtype)))
    scaled = chain.apply("mul", chain.apply("sub", x, mean), chain.apply("reciprocal", root))
    return chain.finish(chain.apply("fma", scaled, weight, bias))


@functools.cache
def scaled(dtype: DType = float32) -> Expression:
    """fma(x, weight, bias) of the inputs x, weight, bias: the second stage of a norm over groups."""
    chain = Chain()
    return chain.finish(chain.apply("fma", *[chain.input(dtype) for _ in range(3)]))
