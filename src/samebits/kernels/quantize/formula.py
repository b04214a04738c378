"""Formulas as they are written on paper, made into expressions: `expression(lambda amax: amax / 6.0, float32)`.

Start at `expression`. A `Quantity` stands for a value of the expression; arithmetic with it, and with Python numbers,
adds one correctly rounded operation each, in the format of the quantity, in the order that Python evaluates them.
"""

from __future__ import annotations

from collections.abc import Callable

from samebits.conversions import SB1, Conversion
from samebits.dtypes import DType, bool_, int32, uint8
from samebits.frozen import dataclass
from samebits.kernels.expression import Chain, Expression, ExpressionValue

__all__ = ["Quantity", "choose", "constant", "exponent_above", "expression"]


@dataclass(frozen=True, slots=True, eq=False)
class Quantity:
    """A value of a formula: `+ - * /` round once, `at_least` and `at_most` keep a NaN, `to` converts."""

    chain: Chain
    value: ExpressionValue

    @property
    def dtype(self) -> DType:
        """Its element format."""
        return self.value.dtype

    def like(self, other: Quantity | float) -> Quantity:
        """A number as a constant of this format; a quantity as it is."""
        if isinstance(other, Quantity):
            return other
        return Quantity(self.chain, self.chain.constant(other, self.dtype))

    def applied(self, op: str, *others: Quantity | float, dtype: DType | None = None) -> Quantity:
        """An operation of `functions.ROWS` on this and others."""
        values = [self.like(x).value for x in others]
        return Quantity(self.chain, self.chain.apply(op, self.value, *values, dtype=dtype))

    def __add__(self, other: Quantity | float) -> Quantity:
        return self.applied("add", other)

    def __sub__(self, other: Quantity | float) -> Quantity:
        return self.applied("sub", other)

    def __mul__(self, other: Quantity | float) -> Quantity:
        return self.applied("mul", other)

    def __truediv__(self, other: Quantity | float) -> Quantity:
        return self.applied("div", other)

    def __rtruediv__(self, other: float) -> Quantity:
        return self.like(other) / self

    def at_least(self, low: Quantity | float) -> Quantity:
        """The larger of both, NaN if either is."""
        return self.applied("maximum", low)

    def at_most(self, high: Quantity | float) -> Quantity:
        """The smaller of both, NaN if either is."""
        return self.applied("minimum", high)

    def to(self, dtype: DType) -> Quantity:
        """By value, rounded to nearest even where it must be; beyond the largest value is that, a NaN a NaN."""
        if dtype is self.dtype:
            return self
        conversion = Conversion(overflow="saturate") if dtype.width_bits <= 8 else SB1
        return Quantity(self.chain, self.chain.apply("cast", self.value, dtype=dtype, conversion=conversion))

    def bits(self, dtype: DType = int32) -> Quantity:
        """The same bits as an element of another format of that width."""
        return self.applied("bitcast", dtype=dtype)

    def code(self, dtype: DType) -> Quantity:
        """A whole number as the code of a format of 8 bits."""
        return self.applied("cast", dtype=uint8).bits(dtype)

    def equals(self, other: Quantity | float) -> Quantity:
        """Whether both are the same number."""
        return self.applied("equal", other)

    def less(self, other: Quantity | float) -> Quantity:
        """Whether this is the smaller number; not if either is NaN."""
        return self.applied("less", other)

    def is_nan(self) -> Quantity:
        """Whether it is no number."""
        return self.applied("is_nan")


def choose(condition: Quantity, yes: Quantity | float, no: Quantity | float) -> Quantity:
    """`yes` where the condition holds, else `no`; at least one of them is a quantity."""
    assert condition.dtype is bool_
    kind = yes if isinstance(yes, Quantity) else no
    assert isinstance(kind, Quantity)
    return condition.applied("where", kind.like(yes), kind.like(no))


def exponent_above(x: Quantity) -> Quantity:
    """The biased exponent of the least power of two, 2^-127 at least, that is not below a float32, which is >= 0."""
    bits = x.bits()
    return choose(bits.less(0x400001), bits.like(0), (bits + 0x7FFFFF).applied("shift_right", 23))


def constant(code: int, dtype: DType) -> Callable[..., Quantity]:
    """A formula that ignores its arguments and gives this code point."""
    return lambda x, *rest: Quantity(x.chain, x.chain.constant_code(code, dtype))


def expression(formula: Callable[..., Quantity | tuple[Quantity, ...]], *dtypes: DType) -> Expression:
    """The expression of a formula of as many quantities as formats are given."""
    chain = Chain()
    found = formula(*[Quantity(chain, chain.input(dtype)) for dtype in dtypes])
    return chain.finish(*[x.value for x in (found if isinstance(found, tuple) else (found,))])
