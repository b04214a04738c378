"""Quotients of positive numbers by their sum, without a division an element: what a softmax ends with.

For s of one row `first` is 1 / s rounded to nearest, and `second` what it lacks. Of an element e, `q = e * first + e *
second` errs by little more than half of its last place, `r = e - q * s` is exact, and `q + r * first`, rounded once, is
e / s rounded to nearest: Markstein, "Computation of elementary functions on the IBM RISC System/6000 processor" (1990),
theorem 3. It needs that nothing underflows: s is between 1 and 2**20, and e is 0 or at least 2**-100, so that q is at
least 2**-120 and r a multiple of 2**-147. A vector where that does not hold is divided. Start at `found`.
"""

from __future__ import annotations

from collections.abc import Sequence

from samebits import dtypes
from samebits.codegen.vocabulary import Builder, Vector
from samebits.dtypes import float32
from samebits.frozen import dataclass
from samebits.kernels.expression import Expression

_LEAST_SUM, _LARGEST_SUM = 1.0, 2.0**20
# The code of 2**-100.
_LEAST = (127 - 100) << 23
# From as many lanes on a register takes longer to divide than to multiply four times and compare.
_WIDE = 16


def found(e: Expression, lanes: int) -> tuple[int, ...]:
    """The nodes `x / row_sum(x)` of an x that is an exp, in float32, on machines whose registers are wide."""
    if lanes < _WIDE:
        return ()
    return tuple(k for k in range(len(e.inputs), len(e.inputs) + len(e.nodes)) if _is_share(e, k))


def _is_share(e: Expression, k: int) -> bool:
    node = e.node(k)
    if node is None or node.op != "div" or node.dtype is not float32:
        return False
    x, total = (e.node(argument) for argument in node.arguments)
    is_exp = x is not None and x.op == "exp"
    return is_exp and total is not None and total.op == "row_sum" and total.arguments == node.arguments[:1]


@dataclass(frozen=True, slots=True)
class Divisor:
    """The sum of a row, made ready for all of its elements.

    Attributes:
        total: The sum.
        first: 1 / total.
        second: What `first` lacks.
        limit: Of codes less 1, as unsigned numbers, the largest for which an element is divided; of a sum out of range
            all of them are.
    """

    total: Vector
    first: Vector
    second: Vector
    limit: Vector

    def splat(self, b: Builder, width: int) -> Divisor:
        """In every lane."""
        parts: Sequence[Vector] = (self.total, self.first, self.second, self.limit)
        return Divisor(*(b.splat(part, width) for part in parts))


def divisor(b: Builder, total: Vector) -> Divisor:
    """The sum of one row made ready; `total` has one lane."""
    one = b.like(total, _LEAST_SUM)
    first = b.div(one, total)
    second = b.mul(b.fma(b.neg(first), total, one), first)
    within = b.bit_and(b.less_equal(one, total), b.less_equal(total, b.like(total, _LARGEST_SUM)))
    limit = b.select(within, *(b.constant(code, dtypes.uint32, 1) for code in (_LEAST - 2, (1 << 32) - 1)))
    return Divisor(total, first, second, limit)


def quotient(b: Builder, x: Vector, by: Divisor) -> Vector:
    """x / sum, its NaNs canonical."""
    q = b.fma(x, by.first, b.mul(x, by.second))
    carry = [b.fma(b.fma(b.neg(q), by.total, x), by.first, q)]
    codes = b.bitcast(x, dtypes.uint32)
    for _ in b.when(b.any(b.less_equal(b.sub(codes, b.like(codes, 1)), by.limit)), carry):
        carry[0] = b.canonical(b.div(x, by.total))
    return carry[0]
