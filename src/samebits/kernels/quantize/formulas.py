"""What a dialect computes for one format and one dtype of x, as values: start at `Formulas`.

They are frozen and hold expressions, so that a kernel's description may hold them, and NumPy means the same by them.
"""

from __future__ import annotations

from typing import Literal

from samebits.dtypes import DType, float32
from samebits.frozen import dataclass
from samebits.kernels.expression import Expression

__all__ = ["Apply", "ElementRule", "Factors", "Formulas", "Nan", "Statistic", "Ties", "Zero"]

Statistic = Literal["amax", "range"]
Nan = Literal["propagate", "finite"]
Apply = Literal["multiply", "divide"]
Ties = Literal["even", "zero"]
Zero = Literal["kept", "positive", "negative", "unsigned"]
Factors = Literal["short", "few", "many"]


@dataclass(frozen=True, slots=True)
class ElementRule:
    """code = nearest(x * factor) or nearest(x / factor), in float32; what is too large is the largest value.

    Of integers the zero point is added: to the nearest integer where it is one, else, in float32, to the scaled number.
    Of a code book the nearest is that of its values.

    Attributes:
        apply: What the factor of the block does.
        ties: Which of two codes as near is taken: the one of even fraction, or the smaller magnitude.
        zero: The sign of the code where the scaled number is zero: its own (`kept`), or always that; `unsigned`: what
            is rounded to zero is +0 too.
        within: What the scaled number is rounded to before its code is found.
        factors: How many significant bits factors have where numbers are divided by them: any number (`many`), or few,
            by which division is quicker: `few` at most 15, `short` at most 4, as float8_e4m3fn has. Blocks whose
            factors have more than that are encoded plainly, which is slow: they must be rare.
    """

    apply: Apply
    ties: Ties = "even"
    zero: Zero = "kept"
    within: DType = float32
    factors: Factors = "few"


@dataclass(frozen=True, slots=True)
class Formulas:
    """From x to what is stored, in three expressions and a rule.

    A statistic is of float32: `amax` the largest magnitude, NaN where there is one; `range` the least and the largest
    value. Blocks without elements do not exist; a tensor without elements has an amax of +0.

    Attributes:
        statistic: What the expressions are given of a block, and of everything.
        whole: (statistic of everything) to the global scale as it is kept, float32; None for a format without one.
        whole_nan: What that statistic makes of NaN and Inf: `propagate`, or `finite`: those elements are skipped.
        scale: (statistic of a block, global scale where there is one) to the stored scale, then the zero point where
            the format has one.
        factor: (stored scale, statistic of the block, global scale where there is one) to the factor of the block's
            elements, float32.
        nan: The same to the code, uint8, of those elements whose scaled number is NaN; for most a constant.
        element: How a code follows from x and the factor.
        other: Another expression for the stored scale: of the two a block has the one with the lesser squared error,
            the first where both have the same; None for one.
    """

    statistic: Statistic
    whole: Expression | None
    whole_nan: Nan
    scale: Expression
    factor: Expression
    nan: Expression
    element: ElementRule
    other: Expression | None = None
