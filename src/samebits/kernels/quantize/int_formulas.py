"""The formulas of integers of 8 and 4 bits with float32 scales, and of code books. Start at `symmetric`."""

from __future__ import annotations

from samebits.dtypes import DType, float32, uint8
from samebits.kernels.quantize.formats import BlockFormat
from samebits.kernels.quantize.formula import Quantity, choose, constant, expression
from samebits.kernels.quantize.formulas import ElementRule, Formulas
from samebits.kernels.quantize.fp8_formulas import rounded_up, stored

_INFINITE = float("inf")


def symmetric(row: BlockFormat, x: DType) -> Formulas:
    """scale = A / largest, rounded up to 15 bits, 1 of zeros; the integer nearest to x / scale, ties to even."""

    def scale(amax: Quantity) -> Quantity:
        near = rounded_up((amax / row.largest).at_least(2.0**-100), 15)
        return choose(amax.less(_INFINITE), choose(amax.equals(0.0), 1.0, near), float("nan"))

    return Formulas(
        "amax",
        None,
        "propagate",
        expression(scale, float32),
        expression(stored, row.scale, float32),
        expression(constant(0, uint8), row.scale, float32),
        ElementRule("divide"),
    )


def asymmetric(row: BlockFormat, x: DType) -> Formulas:
    """scale = (high - low) / levels, rounded up to 15 bits, with 0 between low and high; zero point = -low / scale.

    The code is the integer nearest to x / scale, plus the zero point, which is an integer too, or is added before.
    """
    zero_dtype = row.zero_point
    assert zero_dtype is not None  # such formats have one

    def scale(low: Quantity, high: Quantity) -> tuple[Quantity, Quantity]:
        low, high = low.at_most(0.0), high.at_least(0.0)
        span = high / row.largest - low / row.largest
        near = rounded_up(span.at_least(2.0**-100), 15)
        found = choose(span.less(_INFINITE), choose(span.equals(0.0), 1.0, near), float("nan"))
        zero = (low.like(0.0) - low) / found
        if zero_dtype is float32:
            return found, zero
        return found, zero.applied("rint").at_most(row.largest).applied("cast", dtype=zero_dtype)

    return Formulas(
        "range",
        None,
        "propagate",
        expression(scale, float32, float32),
        expression(lambda scale, low, high: scale.to(float32), row.scale, float32, float32),
        expression(constant(0, uint8), row.scale, float32, float32),
        ElementRule("divide"),
    )


def code_book(row: BlockFormat, x: DType) -> Formulas:
    """scale = A; the code whose value is nearest to x / A, the smaller of two as near; 0 of a block of zeros."""
    zero = (row.codebook or (0.0,)).index(0.0)

    def factor(scale: Quantity, amax: Quantity) -> Quantity:
        return choose(amax.equals(0.0), 1.0, scale.to(float32))

    return Formulas(
        "amax",
        None,
        "propagate",
        expression(lambda amax: choose(amax.less(_INFINITE), amax, float("nan")), float32),
        expression(factor, row.scale, float32),
        expression(constant(zero, uint8), row.scale, float32),
        ElementRule("divide"),
    )
