"""The formulas of NVFP4, one function a dialect, in each tool's own order of operations.

All are of float32 unless they say otherwise. G is the largest magnitude of everything, A that of a block. Start at
`exact`, which is our own; the others equal a tool, whose source its row of `dialects` names, down to the sign of a NaN:
on x86 what no operand is NaN of is negative, which ends up in codes of formats without NaN.
"""

from __future__ import annotations

from collections.abc import Callable

from samebits.dtypes import DType, bfloat16, float32, uint8
from samebits.frozen import replace
from samebits.kernels.quantize.formats import BlockFormat
from samebits.kernels.quantize.formula import Quantity, choose, constant, expression
from samebits.kernels.quantize.formulas import ElementRule, Formulas, Nan

_LARGEST = 6.0  # of e2m1
_LARGEST_SCALE = 448.0  # of e4m3fn
_BOTH = _LARGEST * _LARGEST_SCALE
_SIXTH = 1.0 / 6.0
_NAN, _MINUS_NAN = 0x7F, 0xFF  # of e4m3fn

Formula = Callable[..., Quantity]


def _formulas(
    row: BlockFormat,
    parts: tuple[Formula, Formula, Formula],
    nan: Formula,
    rule: ElementRule,
    whole_nan: Nan = "propagate",
) -> Formulas:
    """Of the global scale, of a block's scale, and of the factor of its elements."""
    whole, scale, factor = parts
    return Formulas(
        "amax",
        expression(whole, float32),
        whole_nan,
        expression(scale, float32, float32),
        expression(factor, row.scale, float32, float32),
        expression(nan, row.scale, float32, float32),
        rule,
    )


def _nan_scale(row: BlockFormat, scale: Quantity, code: Quantity | None = None) -> Quantity:
    """The scale as it is stored, a NaN with that code, or as a NaN of an invalid operation has it."""
    stored = scale.to(row.scale)
    return choose(stored.is_nan(), code or constant(_MINUS_NAN, row.scale)(scale), stored)


def _exact_whole(largest: float) -> Formula:
    """The least power of two from 2^-100 to 2^100 that is not below G / largest; 1 where G is 0."""

    def whole(amax: Quantity) -> Quantity:
        least = (amax / largest).at_least(2.0**-100).at_most(2.0**100)
        above = (least.bits() + 0x7FFFFF).applied("bit_and", 0x7F800000).bits(float32)
        return choose(amax.equals(0.0), 1.0, above)

    return whole


def _exact_scale(row: BlockFormat, largest: float) -> Formula:
    """(A / g) / largest within [2^-9, 448]; NaN where A is not finite."""

    def scale(amax: Quantity, g: Quantity) -> Quantity:
        found = (amax / g / largest).at_least(2.0**-9).at_most(_LARGEST_SCALE)
        return choose(amax.less(float("inf")), found, float("nan")).to(row.scale)

    return scale


def _product(scale: Quantity, amax: Quantity, g: Quantity) -> Quantity:
    return scale.to(float32) * g


def four_over_six(row: BlockFormat, x: DType) -> Formulas:
    """As `exact`, but A becomes 6 or 4, whichever is nearer to x; g leaves room for scales of A / 4."""
    parts = _exact_whole(4 * _LARGEST_SCALE), _exact_scale(row, _LARGEST), _product
    found = _formulas(row, parts, constant(0, uint8), ElementRule("divide", factors="short"), "finite")
    return replace(found, other=expression(_exact_scale(row, 4.0), float32, float32))


def exact(row: BlockFormat, x: DType) -> Formulas:
    """The nearest code for the stored scales: the global scale is a power of two, so that nothing else is rounded.

    scale * global_scale = S is then exact, as is S * m for every midpoint m between two codes, of at most 3 bits. Where
    x is not S * m it is at least 2^-24 of it away, and half an ulp of m is less than that of m: so the rounded x / S is
    on the side of m where x / S is, and its nearest code is the one nearest to x.
    """

    parts = _exact_whole(_BOTH), _exact_scale(row, _LARGEST), _product
    return _formulas(row, parts, constant(0, uint8), ElementRule("divide", factors="short"), "finite")


def torchao(row: BlockFormat, x: DType) -> Formulas:
    """torchao: s = G / 2688; scale = (A / 6) / s, never below the least normal one; x * ((1 / s) / scale)."""

    def whole(amax: Quantity) -> Quantity:
        return amax / _BOTH

    def scale(amax: Quantity, s: Quantity) -> Quantity:
        found = (amax / _LARGEST / s).at_least(2.0**-6).at_most(_LARGEST_SCALE)
        given = constant(_NAN, row.scale)(s)
        return choose(s.is_nan(), given, _nan_scale(row, found))

    def factor(scale: Quantity, amax: Quantity, s: Quantity) -> Quantity:
        return (1.0 / s) / scale.to(float32)

    def nan(scale: Quantity, amax: Quantity, s: Quantity) -> Quantity:
        code = scale.bits(uint8)
        return choose(scale.is_nan(), choose(code.equals(_NAN), code.like(0x3), code.like(0xC)), code.like(0xB))

    return _formulas(row, (whole, scale, factor), nan, ElementRule("multiply"))


def _taken_by(row: BlockFormat, scale: Formula) -> Formulas:
    """g = 2688 / G, and elements take the reciprocal of what their scale stands for, no more than the largest float."""

    def whole(amax: Quantity) -> Quantity:
        found = (_BOTH / amax).at_most(float32.max)
        return choose(amax.equals(0.0), 1.0, choose(found.equals(0.0), 1.0, found))

    def factor(scale: Quantity, amax: Quantity, g: Quantity) -> Quantity:
        return (1.0 / (scale.to(float32) * (1.0 / g))).at_most(float32.max)

    return _formulas(row, (whole, scale, factor), constant(7, uint8), ElementRule("multiply"))


def transformer_engine(row: BlockFormat, x: DType) -> Formulas:
    """Transformer Engine: g = 2688 / G; scale = A * (g * (1/6)); x * min(1 / (scale * (1 / g)), the largest float)."""

    def scale(amax: Quantity, g: Quantity) -> Quantity:
        return (amax * (g * _SIXTH)).at_most(_LARGEST_SCALE).to(row.scale)

    return _taken_by(row, scale)


def nvfuser(row: BlockFormat, x: DType) -> Formulas:
    """nvFuser: g is given, 2688 / G by its tests; scale = (A / 6) * g; elements as by Transformer Engine."""

    def scale(amax: Quantity, g: Quantity) -> Quantity:
        return (amax / _LARGEST * g).at_most(_LARGEST_SCALE).to(row.scale)

    return _taken_by(row, scale)


def flashinfer(row: BlockFormat, x: DType) -> Formulas:
    """FlashInfer's reference: g = 2688 / G; scale = g * (A * (1/6)); x * (1 / (scale * (1 / g))), 0 of a zero scale."""

    def whole(amax: Quantity) -> Quantity:
        return _BOTH / amax

    def scale(amax: Quantity, g: Quantity) -> Quantity:
        return (g * (amax * _SIXTH)).at_most(_LARGEST_SCALE).to(row.scale)

    def factor(scale: Quantity, amax: Quantity, g: Quantity) -> Quantity:
        together = scale.to(float32) * (1.0 / g)
        return choose(together.equals(0.0), 0.0, 1.0 / together)

    return _formulas(row, (whole, scale, factor), constant(0, uint8), ElementRule("multiply"))


def modelopt(row: BlockFormat, x: DType) -> Formulas:
    """ModelOpt: s = G / 2688; scale = A / (6 * s), 1 where that is 0, within [2^-9, 448]; x / (scale * s)."""

    def whole(amax: Quantity) -> Quantity:
        return amax / _BOTH

    def scale(amax: Quantity, s: Quantity) -> Quantity:
        found = amax / (s * _LARGEST)
        found = choose(found.equals(0.0), 1.0, found).at_least(2.0**-9).at_most(_LARGEST_SCALE)
        plus, minus = (constant(code, row.scale)(s) for code in (_NAN, _MINUS_NAN))
        return _nan_scale(row, found, choose(amax.is_nan(), minus, choose(s.is_nan(), plus, minus)))

    def factor(scale: Quantity, amax: Quantity, s: Quantity) -> Quantity:
        return scale.to(float32) * s

    rule = ElementRule("divide", zero="positive", factors="many")
    return _formulas(row, (whole, scale, factor), constant(7, uint8), rule)


def compressed_tensors(row: BlockFormat, x: DType) -> Formulas:
    """compressed-tensors: g = 1 / G * 2688, A / 6 in x's dtype; scale = g * (A / 6), 0.125 for 0; x / (scale / g)."""

    def whole(amax: Quantity) -> Quantity:
        found = (1.0 / amax.to(x).at_least(x.min_normal) * _BOTH).to(float32)
        return choose(found.less(float("inf")), found, 1.0)

    def scale(amax: Quantity, g: Quantity) -> Quantity:
        found = _nan_scale(row, (g * (amax.to(x) / _LARGEST).to(float32)).at_most(_LARGEST_SCALE))
        return choose(found.equals(0.0), 0.125, found)

    def factor(scale: Quantity, amax: Quantity, g: Quantity) -> Quantity:
        return scale.to(float32) / g

    nan = 0x8 if x is bfloat16 else 0x0
    rule = ElementRule("divide", zero="positive", factors="many")
    return _formulas(row, (whole, scale, factor), constant(nan, uint8), rule)
