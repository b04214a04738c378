"""The formulas of float8 with float32 scales or powers of two: by tensor, row, column, 1 by 128 and 128 by 128.

A is the largest magnitude of a block, M the largest value of the element format. Start at `exact`, which is our own;
the others equal a tool, whose source its row of `dialects` names.
"""

from __future__ import annotations

from collections.abc import Callable

from samebits.dtypes import DType, bfloat16, float8_e8m0fnu, float32, uint8
from samebits.kernels.quantize.formats import BlockFormat
from samebits.kernels.quantize.formula import Quantity, choose, constant, exponent_above, expression
from samebits.kernels.quantize.formulas import ElementRule, Factors, Formulas

_NAN = 255  # of e8m0
_INFINITE = float("inf")
_LEAST = 1e-4

Formula = Callable[..., Quantity]


def _formulas(
    row: BlockFormat, scale: Formula, factor: Formula, rule: ElementRule, nans: tuple[int, int] = (0x7F, 0xFF)
) -> Formulas:
    """Of a block's scale, and of the factor of its elements.

    Args:    nans: the codes of NaN in a block with a NaN, and in others: on x86 the NaN of 0 / 0 is negative.
    """

    def nan(scale: Quantity, amax: Quantity) -> Quantity:
        given, invalid = (constant(code, uint8)(amax) for code in nans)
        return given if nans[0] == nans[1] else choose(amax.is_nan(), given, invalid)

    return Formulas(
        "amax",
        None,
        "propagate",
        expression(scale, float32),
        expression(factor, row.scale, float32),
        expression(nan, row.scale, float32),
        rule,
    )


def stored(scale: Quantity, amax: Quantity) -> Quantity:
    """The factor that is the stored scale itself."""
    return scale.to(float32)


def rounded_up(x: Quantity, bits: int) -> Quantity:
    """A positive float32, rounded up to so many bits of significand."""
    low = (1 << (24 - bits)) - 1
    return (x.bits() + low).applied("bit_and", ~low).bits(float32)


def exact(row: BlockFormat, x: DType) -> Formulas:
    """The nearest code for the stored scale, which is A / M rounded up to 15 bits, or to a power of two.

    A scale of 15 bits times a midpoint between two codes, of at most 9, is exact; `nvfp4_formulas.exact` says why
    the rounded quotient then has the nearest code.
    """

    def scale(amax: Quantity) -> Quantity:
        ratio = amax / row.element.max
        if row.scale is float8_e8m0fnu:
            found = choose(amax.less(_INFINITE), exponent_above(ratio), _NAN).code(float8_e8m0fnu)
        else:
            near = choose(amax.equals(0.0), 1.0, rounded_up(ratio.at_least(2.0**-100), 15))
            found = choose(amax.less(_INFINITE), near, float("nan"))
        return found

    return _formulas(row, scale, stored, ElementRule("divide"), (0, 0))


def deepseek(row: BlockFormat, x: DType) -> Formulas:
    """DeepSeek's kernels: A is at least 1e-4; scale = A / M, or the power of two above it; x / scale."""

    def scale(amax: Quantity) -> Quantity:
        ratio = amax.at_least(_LEAST) / row.element.max
        if row.scale is float32:
            return ratio
        return choose(ratio.is_nan(), _NAN, exponent_above(ratio).at_most(_NAN)).code(float8_e8m0fnu)

    return _formulas(row, scale, stored, ElementRule("divide", factors="many"))


def transformer_engine(row: BlockFormat, x: DType) -> Formulas:
    """Transformer Engine's blocks: the multiplier is M / A rounded down to a power of two, kept as its reciprocal."""
    return _transformer_engine(row, powers=True)


def transformer_engine_float32(row: BlockFormat, x: DType) -> Formulas:
    """Transformer Engine's blocks with scales of any value: x * (M / A), kept as 1 / (M / A)."""
    return _transformer_engine(row, powers=False)


def _transformer_engine(row: BlockFormat, *, powers: bool) -> Formulas:
    def multiplier(amax: Quantity) -> Quantity:
        found = (row.element.max / amax).at_most(float32.max)
        found = found.bits().applied("bit_and", 0x7F800000).bits(float32) if powers else found
        return choose(amax.equals(0.0), 1.0, choose(amax.less(_INFINITE), found, 1.0))

    def scale(amax: Quantity) -> Quantity:
        return 1.0 / multiplier(amax)

    return _formulas(row, scale, lambda scale, amax: multiplier(amax), ElementRule("multiply"))


def _bits(x: DType) -> Factors:
    """How many bits quotients in x's dtype have."""
    return "many" if x is float32 else "few"


def torchao(row: BlockFormat, x: DType) -> Formulas:
    """torchao: scale = A / M in x's dtype; x / scale in float32."""
    rule = ElementRule("divide", factors=_bits(x))
    return _formulas(row, lambda amax: (amax.to(x) / row.element.max).to(float32), stored, rule)


def modelopt(row: BlockFormat, x: DType) -> Formulas:
    """ModelOpt: scale = A / M and x / scale, both in x's dtype."""
    rule = ElementRule("divide", within=x, factors=_bits(x))
    return _formulas(row, lambda amax: (amax.to(x) / row.element.max).to(float32), stored, rule)


def compressed_tensors(row: BlockFormat, x: DType) -> Formulas:
    """compressed-tensors: scale = A / M and x / scale, both in x's dtype; for a scale of 0 that dtype's epsilon."""

    def scale(amax: Quantity) -> Quantity:
        found = (amax.to(x) / row.element.max).to(float32)
        return choose(found.equals(0.0), x.epsilon, found)

    return _formulas(
        row, scale, stored, ElementRule("divide", within=x, factors=_bits(x)), (0x7F, 0x7F if x is bfloat16 else 0xFF)
    )
