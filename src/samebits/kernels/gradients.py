"""What training needs beside `composites`: cross-entropy, and gradients of one element or of one row.

Each is one expression of the roundings that numerics.md section 5 writes.

Inputs come in the order of the formula's names. `dy` has the format of what it belongs to, as results have.
"""

from __future__ import annotations

import functools
import math

from samebits.dtypes import DType, int64
from samebits.kernels import gelu as gelus
from samebits.kernels.composites import exponentials, given, row_mean, taken
from samebits.kernels.expression import Chain, Expression, ExpressionValue


@functools.cache
def scaled(dtype: DType, scale: DType) -> Expression:
    """x * s of the inputs x and s."""
    chain = Chain()
    return chain.finish(given(chain, chain.apply("mul", taken(chain, dtype), taken(chain, scale)), dtype))


@functools.cache
def divided(dtype: DType, count: DType) -> Expression:
    """x / n of the inputs x and n."""
    chain = Chain()
    return chain.finish(given(chain, chain.apply("div", taken(chain, dtype), taken(chain, count)), dtype))


@functools.cache
def exp(dtype: DType, _: DType) -> Expression:
    """dy * y of the inputs y and dy."""
    chain = Chain()
    y, dy = taken(chain, dtype), taken(chain, dtype)
    return chain.finish(given(chain, chain.apply("mul", dy, y), dtype))


@functools.cache
def log(dtype: DType, _: DType) -> Expression:
    """dy / x of the inputs x and dy."""
    chain = Chain()
    x, dy = taken(chain, dtype), taken(chain, dtype)
    return chain.finish(given(chain, chain.apply("div", dy, x), dtype))


@functools.cache
def erf(dtype: DType, _: DType) -> Expression:
    """dy * (exp(-(x * x)) * s) of the inputs x and dy, s = 2 / sqrt(pi)."""
    chain = Chain()
    x, dy = taken(chain, dtype), taken(chain, dtype)
    bell = chain.apply("exp", chain.apply("neg", chain.apply("mul", x, x)))
    slope = chain.apply("mul", bell, chain.constant(2 / math.sqrt(math.pi), x.dtype))
    return chain.finish(given(chain, chain.apply("mul", dy, slope), dtype))


@functools.cache
def relu(dtype: DType, _: DType) -> Expression:
    """+0 where y <= 0, else dy * 1, of the inputs y and dy."""
    chain = Chain()
    y, dy = taken(chain, dtype), taken(chain, dtype)
    zero = chain.constant(0.0, y.dtype)
    passed = chain.apply("mul", dy, chain.constant(1.0, y.dtype))
    dx = chain.apply("where", chain.apply("less_equal", y, zero), zero, passed)
    return chain.finish(given(chain, dx, dtype))


@functools.cache
def sigmoid(dtype: DType, _: DType) -> Expression:
    """dy * (y * (1 - y)) of the inputs y and dy."""
    chain = Chain()
    y, dy = taken(chain, dtype), taken(chain, dtype)
    rest = chain.apply("sub", chain.constant(1.0, y.dtype), y)
    return chain.finish(given(chain, chain.apply("mul", dy, chain.apply("mul", y, rest)), dtype))


@functools.cache
def tanh(dtype: DType, _: DType) -> Expression:
    """dy * (1 - y * y) of the inputs y and dy."""
    chain = Chain()
    y, dy = taken(chain, dtype), taken(chain, dtype)
    slope = chain.apply("sub", chain.constant(1.0, y.dtype), chain.apply("mul", y, y))
    return chain.finish(given(chain, chain.apply("mul", dy, slope), dtype))


@functools.cache
def silu(dtype: DType, _: DType) -> Expression:
    """dy * (s * (1 + x * (1 - s))) of the inputs x and dy, s = sigmoid(x)."""
    chain = Chain()
    x, dy = taken(chain, dtype), taken(chain, dtype)
    one, s = chain.constant(1.0, x.dtype), chain.apply("sigmoid", x)
    grown = chain.apply("add", one, chain.apply("mul", x, chain.apply("sub", one, s)))
    return chain.finish(given(chain, chain.apply("mul", dy, chain.apply("mul", s, grown)), dtype))


@functools.cache
def gelu(dtype: DType, _: DType) -> Expression:
    """dy * (0.5 * (1 + erf(x * r)) + x * (exp((x * -0.5) * x) * d)) of the inputs x and dy, r the root of 1/2 and
    d = 1 / sqrt(2 * pi)."""
    chain = Chain()
    x, dy = taken(chain, dtype), taken(chain, dtype)
    return chain.finish(given(chain, gelus.gradient(chain, x, dy), dtype))


@functools.cache
def gelu_tanh(dtype: DType, _: DType) -> Expression:
    """That of gelu by tanh, of the inputs x and dy, as `kernels.gelu.gradient_tanh` writes it."""
    chain = Chain()
    x, dy = taken(chain, dtype), taken(chain, dtype)
    return chain.finish(given(chain, gelus.gradient_tanh(chain, x, dy), dtype))


@functools.cache
def softmax(dtype: DType, _: DType) -> Expression:
    """y * (dy - sum(dy * y)) of the inputs y and dy."""
    chain = Chain()
    y, dy = taken(chain, dtype), taken(chain, dtype)
    total = chain.apply("row_sum", chain.apply("mul", dy, y))
    return chain.finish(given(chain, chain.apply("mul", y, chain.apply("sub", dy, total)), dtype))


@functools.cache
def log_softmax(dtype: DType, _: DType) -> Expression:
    """dy - exp(y) * sum(dy) of the inputs y and dy."""
    chain = Chain()
    y, dy = taken(chain, dtype), taken(chain, dtype)
    total = chain.apply("row_sum", dy)
    dx = chain.apply("sub", dy, chain.apply("mul", chain.apply("exp", y), total))
    return chain.finish(given(chain, dx, dtype))


@functools.lru_cache(maxsize=256)
def layer_norm(dtype: DType, weighted: bool, eps: float, centred: bool = True) -> Expression:
    """((g - u) - h * v) * rstd of the inputs x, dy and gamma: g = dy * gamma, u = mean(g), v = mean(g * h); of a norm
    that subtracts no mean (g - h * v) * rstd."""
    chain = Chain()
    return chain.finish(_layer_norm(chain, dtype, weighted, eps, centred)[0])


@functools.lru_cache(maxsize=256)
def layer_norm_totals(dtype: DType, biased: bool, eps: float, centred: bool = True) -> Expression:
    """The same of x, dy and gamma, then what the gradients by gamma and, if asked for, by beta sum over rows: dy * h,
    and dy, not rounded to their format."""
    chain = Chain()
    dx, h, dy = _layer_norm(chain, dtype, True, eps, centred)
    return chain.finish(dx, chain.apply("mul", dy, h), *[dy] * biased)


def _layer_norm(
    chain: Chain, dtype: DType, weighted: bool, eps: float, centred: bool
) -> tuple[ExpressionValue, ExpressionValue, ExpressionValue]:
    """The gradient by x, h and dy."""
    x, dy = taken(chain, dtype), taken(chain, dtype)
    h, rstd = _normalised(chain, x, eps, centred)
    g = chain.apply("mul", dy, taken(chain, dtype)) if weighted else dy
    rest = chain.apply("sub", g, row_mean(chain, g)) if centred else g
    v = row_mean(chain, chain.apply("mul", g, h))
    rest = chain.apply("sub", rest, chain.apply("mul", h, v))
    return given(chain, chain.apply("mul", rest, rstd), dtype), h, dy


@functools.lru_cache(maxsize=256)
def layer_norm_weight(dtype: DType, eps: float, centred: bool = True) -> Expression:
    """dy * h of the inputs x and dy, not rounded to their format: what the gradient by gamma sums over rows."""
    chain = Chain()
    x, dy = taken(chain, dtype), taken(chain, dtype)
    h, _ = _normalised(chain, x, eps, centred)
    return chain.finish(chain.apply("mul", dy, h))


@functools.cache
def cross_entropy_of(dtype: DType) -> Expression:
    """-((x_t - m) - log(sum(exp(x - m)))) of the inputs x, t, classes (0, 1, ...): one value a row; +0 where t is
    negative."""
    chain = Chain()
    x, target, classes = taken(chain, dtype), chain.input(int64), chain.input(int64)
    low, total = exponentials(chain, x)
    picked = chain.apply("where", chain.apply("equal", target, classes), low, chain.constant(0.0, x.dtype))
    found = chain.apply("sub", chain.apply("row_sum", picked), chain.apply("log", total))
    loss, zero = chain.apply("mul", found, chain.constant(-1.0, x.dtype)), chain.constant(0.0, x.dtype)
    return chain.finish(chain.apply("where", chain.apply("less", target, chain.constant(0, int64)), zero, loss))


@functools.cache
def total(dtype: DType, is_divided: bool) -> Expression:
    """sum(x) of the input x; divided by the input n behind it."""
    chain = Chain()
    found = chain.apply("row_sum", chain.input(dtype))
    return chain.finish(chain.apply("div", found, chain.input(dtype)) if is_divided else found)


@functools.cache
def cross_entropy(dtype: DType) -> Expression:
    """(exp(x_j - m) / sum(exp(x - m)) - [j = t]) * (g / n) of the inputs x, t, g, classes and n; +0 where t is
    negative."""
    chain = Chain()
    x, target = taken(chain, dtype), chain.input(int64)
    dy, classes = chain.input(x.dtype), chain.input(int64)
    g = chain.apply("div", dy, chain.input(x.dtype))
    one, zero = chain.constant(1.0, x.dtype), chain.constant(0.0, x.dtype)
    e = chain.apply("exp", chain.apply("sub", x, chain.apply("row_max", x)))
    share = chain.apply("div", e, chain.apply("row_sum", e))
    hit = chain.apply("where", chain.apply("equal", target, classes), one, zero)
    dx = chain.apply("mul", chain.apply("sub", share, hit), g)
    left_out = chain.apply("less", target, chain.constant(0, int64))
    return chain.finish(given(chain, chain.apply("where", left_out, zero, dx), dtype))


def _normalised(chain: Chain, x: ExpressionValue, eps: float, centred: bool) -> tuple[ExpressionValue, ExpressionValue]:
    """(x - mean) * rstd, and rstd, by the roundings of `composites.layer_norm`; without the mean of `rms_norm`."""
    d = chain.apply("sub", x, row_mean(chain, x)) if centred else x
    variance = row_mean(chain, chain.apply("mul", d, d))
    root = chain.apply("sqrt", chain.apply("add", variance, chain.number(eps, x.dtype)))
    rstd = chain.apply("reciprocal", root)
    return chain.apply("mul", d, rstd), rstd


@functools.cache
def momentum(kind: DType, grown: DType) -> Expression:
    """mu * b + c * g of the inputs b, g, mu and c."""
    chain = Chain()
    b, g = chain.input(kind), taken(chain, grown)
    return chain.finish(_momentum(chain, b, g, chain.input(kind), chain.input(kind)))


@functools.cache
def second_moment(kind: DType, grown: DType) -> Expression:
    """beta * v + (c * g) * g of the inputs v, g, beta and c."""
    chain = Chain()
    v, g = chain.input(kind), taken(chain, grown)
    return chain.finish(_second_moment(chain, v, g, chain.input(kind), chain.input(kind)))


@functools.cache
def adam_step(kind: DType) -> Expression:
    """p * decay - rate * (m / (sqrt(v) / root + eps)) of the inputs p, m, v, decay, rate, root and eps."""
    chain = Chain()
    return chain.finish(_adam_step(chain, *[chain.input(kind) for _ in range(7)]))


@functools.cache
def adam(kind: DType, grown: DType) -> Expression:
    """The moments m and v, and p by them, of the inputs p, m, v, g, two numbers of `momentum`, two of `second_moment`
    and four of `adam_step`."""
    chain = Chain()
    p, m, v = (chain.input(kind) for _ in range(3))
    g = taken(chain, grown)
    numbers = [chain.input(kind) for _ in range(8)]
    m, v = _momentum(chain, m, g, *numbers[:2]), _second_moment(chain, v, g, *numbers[2:4])
    return chain.finish(m, v, _adam_step(chain, p, m, v, *numbers[4:]))


def _momentum(
    chain: Chain, b: ExpressionValue, g: ExpressionValue, mu: ExpressionValue, c: ExpressionValue
) -> ExpressionValue:
    return chain.apply("add", chain.apply("mul", mu, b), chain.apply("mul", c, g))


def _second_moment(
    chain: Chain, v: ExpressionValue, g: ExpressionValue, beta: ExpressionValue, c: ExpressionValue
) -> ExpressionValue:
    square = chain.apply("mul", chain.apply("mul", c, g), g)
    return chain.apply("add", chain.apply("mul", beta, v), square)


def _adam_step(
    chain: Chain, p: ExpressionValue, m: ExpressionValue, v: ExpressionValue, decay: ExpressionValue,
    rate: ExpressionValue, root: ExpressionValue, eps: ExpressionValue,
) -> ExpressionValue:  # fmt: skip
    size = chain.apply("add", chain.apply("div", chain.apply("sqrt", v), root), eps)
    step = chain.apply("mul", rate, chain.apply("div", m, size))
    return chain.apply("sub", chain.apply("mul", p, decay), step)


@functools.cache
def descent(kind: DType, grown: DType) -> Expression:
    """p - rate * g of the inputs p, g and rate."""
    chain = Chain()
    p, g, rate = chain.input(kind), taken(chain, grown), chain.input(kind)
    return chain.finish(chain.apply("sub", p, chain.apply("mul", rate, g)))


@functools.cache
def momentum_descent(kind: DType, grown: DType) -> Expression:
    """b = mu * b + c * g, and p - rate * b, of the inputs p, b, g, mu, c and rate."""
    chain = Chain()
    p, b, g = chain.input(kind), chain.input(kind), taken(chain, grown)
    b, rate = _momentum(chain, b, g, chain.input(kind), chain.input(kind)), chain.input(kind)
    return chain.finish(b, chain.apply("sub", p, chain.apply("mul", rate, b)))


@functools.cache
def squares(dtype: DType) -> Expression:
    """sum(x * x), not rounded to x's format."""
    chain = Chain()
    x = taken(chain, dtype)
    return chain.finish(chain.apply("row_sum", chain.apply("mul", x, x)))
