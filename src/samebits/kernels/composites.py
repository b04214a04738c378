"""Composites that numerics.md writes as a sequence of roundings, each as one expression: the eager functions and the
front ends build the same ones, which is why their bits agree. Sections 6 to 8.

A composite of a float narrower than float32 computes in float32 and rounds at its outputs.
"""

from __future__ import annotations

import functools

from samebits import dtypes
from samebits.dtypes import DType, float32
from samebits.kernels import convert
from samebits.kernels import gelu as gelus
from samebits.kernels.expression import Chain, Expression, ExpressionValue


@functools.cache
def relu(dtype: DType = float32) -> Expression:
    """maximum(x, +0)."""
    chain = Chain()
    return chain.finish(chain.apply("maximum", chain.input(dtype), chain.constant(0.0, dtype)))


@functools.cache
def gelu(dtype: DType = float32) -> Expression:
    """(0.5 * x) * (1 + erf(x * r)), r the root of 1/2: 0x3F3504F3, in float64 0x3FE6A09E667F3BCD."""
    chain = Chain()
    return chain.finish(given(chain, gelus.gelu(chain, taken(chain, dtype)), dtype))


@functools.cache
def gelu_tanh(dtype: DType = float32) -> Expression:
    """(0.5 * x) * (1 + tanh(r * (x + c * ((x * x) * x)))) with the root of 2 / pi for r and 0.044715 for c.

    r is 0x3F4C422A and c 0x3D372713, in float64 0x3FE9884533D43651 and 0x3FA6E4E26D4801F7.
    """
    chain = Chain()
    return chain.finish(given(chain, gelus.gelu_tanh(chain, taken(chain, dtype)), dtype))


@functools.cache
def reduction(op: str, dtype: DType = float32) -> Expression:
    """`row_sum`, `row_prod`, `row_max` or `row_min` of x; integers and truths are added and multiplied as int64,
    uint64 as itself."""
    chain = Chain()
    x = taken(chain, dtype)
    if op in ("row_sum", "row_prod") and not dtype.is_float:
        total = summed(dtype)
        return chain.finish(chain.apply(op, x if x.dtype is total else chain.apply("cast", x, dtype=total)))
    return chain.finish(given(chain, chain.apply(op, x), dtype))


def summed(dtype: DType) -> DType:
    """The dtype of a sum or product along axes."""
    if dtype.is_float or dtype is dtypes.uint64:
        return dtype
    return dtypes.int64


@functools.cache
def mean(dtype: DType = float32) -> Expression:
    """The sum of x over its count."""
    chain = Chain()
    x = taken(chain, dtype)
    return chain.finish(given(chain, row_mean(chain, x), dtype))


@functools.lru_cache(maxsize=256)
def var_mean(correction: float, dtype: DType = float32) -> Expression:
    """Two outputs: sum(d * d) / maximum(count - correction, +0) with d = x - mean, and the mean."""
    chain = Chain()
    x = taken(chain, dtype)
    mean = row_mean(chain, x)
    d = chain.apply("sub", x, mean)
    count = chain.apply("sub", chain.count(x.dtype), chain.number(correction, x.dtype))
    freedom = chain.apply("maximum", count, chain.constant(0.0, x.dtype))
    variance = chain.apply("div", chain.apply("row_sum", chain.apply("mul", d, d)), freedom)
    return chain.finish(given(chain, variance, dtype), given(chain, mean, dtype))


@functools.lru_cache(maxsize=256)
def var(correction: float, dtype: DType = float32) -> Expression:
    """sum(d * d) / maximum(count - correction, +0) with d = x - mean."""
    chain = Chain()
    return chain.finish(chain.include(var_mean(correction, dtype), chain.input(dtype))[0])


@functools.cache
def softmax(dtype: DType = float32) -> Expression:
    """e / s with e = exp(x - m), m the row's maximum, s the sum of e."""
    chain = Chain()
    x = taken(chain, dtype)
    e = chain.apply("exp", chain.apply("sub", x, chain.apply("row_max", x)))
    return chain.finish(given(chain, chain.apply("div", e, chain.apply("row_sum", e)), dtype))


@functools.cache
def log_softmax(dtype: DType = float32) -> Expression:
    """(x - m) - log(sum(exp(x - m))), m the row's maximum."""
    chain = Chain()
    low, total = exponentials(chain, taken(chain, dtype))
    return chain.finish(given(chain, chain.apply("sub", low, chain.apply("log", total)), dtype))


@functools.cache
def logsumexp(dtype: DType = float32) -> Expression:
    """m + log(sum(exp(x - m))), m the row's maximum, +0 where that is not finite."""
    chain = Chain()
    x = taken(chain, dtype)
    top = chain.apply("row_max", x)
    m = chain.apply("where", chain.apply("is_finite", top), top, chain.constant(0.0, x.dtype))
    total = chain.apply("row_sum", chain.apply("exp", chain.apply("sub", x, m)))
    return chain.finish(given(chain, chain.apply("add", m, chain.apply("log", total)), dtype))


@functools.lru_cache(maxsize=256)
def layer_norm(weighted: bool, biased: bool, eps: float, dtype: DType = float32) -> Expression:
    """fma((x - mean) * rstd, weight, bias) of the inputs x, weight, bias; or without bias; or without either."""
    chain = Chain()
    operands = [chain.input(dtype) for _ in range(1 + weighted + biased)]
    return chain.finish(chain.include(layer_norm_statistics(weighted, biased, eps, dtype), *operands)[0])


@functools.lru_cache(maxsize=256)
def layer_norm_statistics(weighted: bool, biased: bool, eps: float, dtype: DType = float32) -> Expression:
    """Three outputs: the layer norm, and each row's mean and 1 / sqrt(var + eps), which are not rounded to `dtype`."""
    chain = Chain()
    x, *scale = (taken(chain, dtype) for _ in range(1 + weighted + biased))
    mean = row_mean(chain, x)
    d = chain.apply("sub", x, mean)
    variance = row_mean(chain, chain.apply("mul", d, d))
    root = chain.apply("sqrt", chain.apply("add", variance, chain.number(eps, x.dtype)))
    rstd = chain.apply("reciprocal", root)
    y = chain.apply("mul", d, rstd)
    if biased:
        y = chain.apply("fma", y, *scale)
    elif weighted:
        y = chain.apply("mul", y, scale[0])
    return chain.finish(given(chain, y, dtype), mean, rstd)


@functools.lru_cache(maxsize=256)
def rms_norm(weighted: bool, eps: float, dtype: DType = float32) -> Expression:
    """(x * (1 / sqrt(sum(x * x) / n + eps))) * weight of the inputs x and weight, or without it."""
    chain = Chain()
    x, *weight = (taken(chain, dtype) for _ in range(1 + weighted))
    mean = row_mean(chain, chain.apply("mul", x, x))
    root = chain.apply("sqrt", chain.apply("add", mean, chain.number(eps, x.dtype)))
    y = chain.apply("mul", x, chain.apply("reciprocal", root))
    return chain.finish(given(chain, chain.apply("mul", y, *weight) if weighted else y, dtype))


@functools.lru_cache(maxsize=256)
def batch_norm(eps: float, dtype: DType = float32) -> Expression:
    """fma((x - mean) * (1 / sqrt(var + eps)), weight, bias) of the inputs x, weight, bias, mean, var."""
    chain = Chain()
    x, weight, bias, mean, variance = (taken(chain, dtype) for _ in range(5))
    root = chain.apply("sqrt", chain.apply("add", variance, chain.number(eps, x.dtype)))
    scaled = chain.apply("mul", chain.apply("sub", x, mean), chain.apply("reciprocal", root))
    return chain.finish(given(chain, chain.apply("fma", scaled, weight, bias), dtype))


@functools.cache
def scaled(dtype: DType = float32) -> Expression:
    """fma(x, weight, bias) of the inputs x, weight, bias: the second stage of a norm over groups."""
    chain = Chain()
    return chain.finish(given(chain, chain.apply("fma", *[taken(chain, dtype) for _ in range(3)]), dtype))


def exponentials(chain: Chain, x: ExpressionValue) -> tuple[ExpressionValue, ExpressionValue]:
    """x - m, m the row's maximum, and the sum of its exponentials."""
    low = chain.apply("sub", x, chain.apply("row_max", x))
    return low, chain.apply("row_sum", chain.apply("exp", low))


def row_mean(chain: Chain, x: ExpressionValue) -> ExpressionValue:
    """The sum of a row over its count."""
    return chain.apply("div", chain.apply("row_sum", x), chain.count(x.dtype))


def taken(chain: Chain, dtype: DType) -> ExpressionValue:
    """The next input, as it is computed with; a truth as 0 or 1."""
    x, computed = chain.input(dtype), dtypes.uint8 if dtype.kind == "bool" else convert.computed(dtype)
    return x if computed is dtype else chain.apply("cast", x, dtype=computed)


def given(chain: Chain, x: ExpressionValue, dtype: DType) -> ExpressionValue:
    """A result as a value of `dtype`."""
    return x if x.dtype is dtype else chain.apply("cast", x, dtype=dtype)
