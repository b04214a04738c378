"""The formulas of MX: how the power of two that a block shares follows from A, its largest magnitude.

Exponents are whole numbers, read from the bits of a float32. With E the exponent of A and e that of the element
format's largest value: OCP's rule is E - e, and the others raise A first. Start at `floor`; those of torchao, ModelOpt
and compressed-tensors equal the tool, and what each makes of NaN and Inf is spelled out.
"""

from __future__ import annotations

from collections.abc import Callable

from samebits.dtypes import DType, bfloat16, float4_e2m1fn, float8_e8m0fnu, float32, int32, uint8
from samebits.kernels.quantize.formats import BlockFormat
from samebits.kernels.quantize.formula import Quantity, choose, constant, exponent_above, expression
from samebits.kernels.quantize.formulas import ElementRule, Formulas

_NAN = 255
_INFINITE = float("inf")

Formula = Callable[..., Quantity]


def _formulas(exponent: Formula, factor: Formula, nan: Formula, rule: ElementRule) -> Formulas:
    """Of the code of a block's scale, and of the factor of its elements."""
    return Formulas(
        "amax",
        None,
        "propagate",
        expression(lambda amax: exponent(amax).code(float8_e8m0fnu), float32),
        expression(factor, float8_e8m0fnu, float32),
        expression(nan, float8_e8m0fnu, float32),
        rule,
    )


def _top(row: BlockFormat) -> int:
    """The exponent of the element format's largest value."""
    element = row.element
    return (element.max_code >> element.mantissa_bits) - element.bias


def _exponent(x: Quantity) -> Quantity:
    """The biased exponent of a float32 that is not negative, as an int32."""
    return x.bits().applied("shift_right", 23)


def _raised(x: Quantity, fraction_bits: int) -> Quantity:
    """The biased exponent of a float32 rounded to so many bits of fraction, half up."""
    return (x.bits() + (1 << (22 - fraction_bits))).applied("shift_right", 23)


def _code(scale: Quantity) -> Quantity:
    """The code of a power of two as an int32."""
    return scale.bits(uint8).applied("cast", dtype=int32)


def _nan(row: BlockFormat) -> int:
    """What torchao's integer arithmetic makes of a NaN in a format without: its exponent and top fraction bits."""
    element = row.element
    if element.canonical_nan is not None:
        return 0x7F
    bits = 0x7FC00000 + ((element.bias - 127) << 23) + (1 << (22 - element.mantissa_bits)) - 1
    kept = 23 - element.mantissa_bits
    return (bits + (0x7FC00000 >> kept & 1)) >> kept & 0xFF


def _torchao(row: BlockFormat, exponent: Formula) -> Formulas:
    """torchao's: the stored exponent within [0, 255], 255 of a NaN; x / the scale, which is never below 2^-126."""

    def stored(amax: Quantity) -> Quantity:
        return choose(amax.is_nan(), _NAN, (exponent(amax) - _top(row)).at_least(0).at_most(_NAN))

    def factor(scale: Quantity, amax: Quantity) -> Quantity:
        # By putting the code where float32 has its exponent, which makes Inf of NaN.
        return _code(scale).applied("shift_left", 23).bits(float32).at_least(float32.min_normal)

    return _formulas(stored, factor, constant(_nan(row), uint8), ElementRule("divide"))


def floor(row: BlockFormat, x: DType) -> Formulas:
    """OCP: the exponent of A."""
    return _torchao(row, _exponent)


def ceil(row: BlockFormat, x: DType) -> Formulas:
    """The exponent of the least power of two that is not below A."""
    return _torchao(row, lambda amax: (amax.bits() + 0x7FFFFF).applied("shift_right", 23))


def even(row: BlockFormat, x: DType) -> Formulas:
    """The exponent of A rounded to the element format's fraction, half up."""
    return _torchao(row, lambda amax: _raised(amax, row.element.mantissa_bits))


def rceil(row: BlockFormat, x: DType) -> Formulas:
    """The least power of two that is not below A / the largest value; x * its reciprocal, x itself for 2^-127."""

    def exponent(amax: Quantity) -> Quantity:
        ratio = amax / row.element.max
        return choose(ratio.is_nan(), _NAN, exponent_above(ratio).at_most(254))

    def factor(scale: Quantity, amax: Quantity) -> Quantity:
        code = _code(scale)
        inverse = (code.like(254) - code).applied("shift_left", 23).bits(float32)
        inverse = choose(code.equals(254), 2.0**-127, choose(code.equals(0), 1.0, inverse))
        return choose(code.equals(_NAN), float("nan"), inverse)

    return _formulas(exponent, factor, constant(_nan(row), uint8), ElementRule("multiply"))


def integers(row: BlockFormat, x: DType) -> Formulas:
    """OCP's rule for MXINT8: the exponent of A, as that of its largest value is 0; NaN of what is not finite."""

    def exponent(amax: Quantity) -> Quantity:
        return choose(amax.less(_INFINITE), _exponent(amax), _NAN)

    def factor(scale: Quantity, amax: Quantity) -> Quantity:
        return scale.to(float32) * row.unit

    return _formulas(exponent, factor, constant(0, uint8), ElementRule("divide"))


def modelopt(row: BlockFormat, x: DType) -> Formulas:
    """ModelOpt's: as `rceil`, but NaN is stored as 2^-127; for e2m1 Inf too, ties go toward zero, and zero is -0."""
    is_e2m1 = row.element is float4_e2m1fn

    def exponent(amax: Quantity) -> Quantity:
        ratio = amax / row.element.max
        found = choose(ratio.is_nan(), 0, exponent_above(ratio).at_most(254))
        return choose(ratio.equals(_INFINITE), 0, found) if is_e2m1 else found

    def factor(scale: Quantity, amax: Quantity) -> Quantity:
        return choose(amax.less(_INFINITE), scale.to(float32), amax) if is_e2m1 else scale.to(float32)

    rule = ElementRule("divide", "zero", "negative") if is_e2m1 else ElementRule("divide")
    return _formulas(exponent, factor, constant(8 if is_e2m1 else 0x7F, uint8), rule)


def compressed_tensors(row: BlockFormat, x: DType) -> Formulas:
    """compressed-tensors': as `even`, but e4m3 as if it had the fraction of e2m1; NaN is stored as 2^-127, Inf as 1."""
    fraction_bits = 3 if row.name == "mxfp6-e2m3" else 1

    def exponent(amax: Quantity) -> Quantity:
        found = (_raised(amax, fraction_bits) - _top(row)).at_least(0)
        return choose(amax.is_nan(), 0, choose(amax.equals(_INFINITE), 127, found))

    def factor(scale: Quantity, amax: Quantity) -> Quantity:
        return choose(amax.equals(_INFINITE), amax, scale.to(float32))

    def nan(scale: Quantity, amax: Quantity) -> Quantity:
        propagated, invalid = _compressed_nans(row, x)
        return choose(amax.is_nan(), *(constant(code, uint8)(scale) for code in (propagated, invalid)))

    return _formulas(exponent, factor, nan, ElementRule("divide", zero="positive" if row.name == "mxfp4" else "kept"))


def gguf(row: BlockFormat, x: DType) -> Formulas:
    """gguf-py: as `floor`, but 2^-127 and zeros of a block with NaN or Inf; ties go toward zero, and there is no -0.

    Where A is below 2^-125 its exponent wraps around in a conversion that C does not define; here it stays 2^-127.
    """

    def exponent(amax: Quantity) -> Quantity:
        found = (_exponent(amax) - _top(row)).at_least(0)
        return choose(amax.less(_INFINITE), found, 0)

    def factor(scale: Quantity, amax: Quantity) -> Quantity:
        return choose(amax.less(_INFINITE), scale.to(float32), float("nan"))

    return _formulas(exponent, factor, constant(0, uint8), ElementRule("divide", "zero", "unsigned"))


def _compressed_nans(row: BlockFormat, x: DType) -> tuple[int, int]:
    """The codes of a NaN that was in x, and of Inf / Inf, which has another sign in float32."""
    if row.name == "mxfp8-e4m3":
        return 0x7F, 0x7F if x is bfloat16 else 0xFF
    if row.name == "mxfp4":
        return (8, 8) if x is bfloat16 else (0, 0)
    return 0x20, 0x20
