"""gelu and its gradient as chains of roundings, by erf and by tanh, and as patterns: what is faster where they are
rounded to bfloat16.

Start at `gelu` and `gradient`, which numerics.md writes in sections 5 and 7.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping

from samebits.dtypes import float32
from samebits.kernels.expression import Chain, Expression, ExpressionValue

_CUBIC, _ROOT = 0.044715, math.sqrt(2 / math.pi)


def gelu(chain: Chain, x: ExpressionValue) -> ExpressionValue:
    """(0.5 * x) * (1 + erf(x * r)), r the root of 1/2."""
    half = chain.apply("mul", chain.constant(0.5, x.dtype), x)
    return chain.apply("mul", half, _one_more(chain, x))


def gradient(chain: Chain, x: ExpressionValue, dy: ExpressionValue) -> ExpressionValue:
    """dy * (0.5 * (1 + erf(x * r)) + x * (exp((x * -0.5) * x) * d)), d = 1 / sqrt(2 * pi)."""
    below = chain.apply("mul", chain.constant(0.5, x.dtype), _one_more(chain, x))
    square = chain.apply("mul", chain.apply("mul", x, chain.constant(-0.5, x.dtype)), x)
    density = chain.apply("mul", chain.apply("exp", square), chain.constant(1 / math.sqrt(2 * math.pi), x.dtype))
    slope = chain.apply("add", below, chain.apply("mul", x, density))
    return chain.apply("mul", dy, slope)


def gelu_tanh(chain: Chain, x: ExpressionValue) -> ExpressionValue:
    """(0.5 * x) * (1 + tanh(r * (x + c * ((x * x) * x)))) with the root of 2 / pi for r and 0.044715 for c."""
    half = chain.apply("mul", chain.constant(0.5, x.dtype), x)
    return chain.apply("mul", half, chain.apply("add", chain.constant(1.0, x.dtype), _grown(chain, x)))


def gradient_tanh(chain: Chain, x: ExpressionValue, dy: ExpressionValue) -> ExpressionValue:
    """dy * (0.5 * (1 + t) + (0.5 * x) * ((1 - t * t) * (r * (1 + d * (x * x))))), t the tanh of `gelu_tanh` and d =
    0.134145, three times its c."""
    one, half, t = chain.constant(1.0, x.dtype), chain.constant(0.5, x.dtype), _grown(chain, x)
    square = chain.apply("mul", chain.constant(3 * _CUBIC, x.dtype), chain.apply("mul", x, x))
    inner = chain.apply("mul", chain.constant(_ROOT, x.dtype), chain.apply("add", one, square))
    density = chain.apply("mul", chain.apply("sub", one, chain.apply("mul", t, t)), inner)
    below = chain.apply("mul", half, chain.apply("add", one, t))
    slope = chain.apply("add", below, chain.apply("mul", chain.apply("mul", half, x), density))
    return chain.apply("mul", dy, slope)


def _grown(chain: Chain, x: ExpressionValue) -> ExpressionValue:
    cube = chain.apply("mul", chain.apply("mul", x, x), x)
    inner = chain.apply("add", x, chain.apply("mul", chain.constant(_CUBIC, x.dtype), cube))
    return chain.apply("tanh", chain.apply("mul", chain.constant(_ROOT, x.dtype), inner))


def _one_more(chain: Chain, x: ExpressionValue) -> ExpressionValue:
    grown = chain.apply("erf", chain.apply("mul", x, chain.constant(math.sqrt(0.5), x.dtype)))
    return chain.apply("add", chain.constant(1.0, x.dtype), grown)


@functools.cache
def patterns() -> Mapping[str, Expression]:
    """Expressions of float32 of which `functions.texts` has, by these names, a text of the result as bfloat16."""
    one, two = Chain(), Chain()
    x, dy = two.input(float32), two.input(float32)
    return {"gelu": one.finish(gelu(one, one.input(float32))), "gelu's gradient": two.finish(gradient(two, x, dy))}
