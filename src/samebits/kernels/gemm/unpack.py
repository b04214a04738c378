"""Operands of products that are packed within bytes: the product reads copies of them (`kernels.spread`).

`described` says how such an operand and its copy lie; `unpacked` is a plan that reads the copies. Start there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from samebits.dtypes import DType
from samebits.frozen import replace
from samebits.kernels import spread
from samebits.kernels.gemm.contraction import Matrix, Panels, Side
from samebits.kernels.plan import Plan
from samebits.layout import Layout


def described(layout: Layout, rank: int, dtype: DType) -> Matrix:
    """The operand description of a packed [..., rows, columns]; dimensions that it lacks of `rank` repeat."""
    lying = spread.once(layout)
    copy = spread.copy_of(lying)
    own = tuple(0 if n == 1 else step for n, step in zip(copy.shape, copy.strides, strict=True))
    strides = (0,) * (rank - len(own)) + own
    return Matrix(strides[-2], strides[-1], strides[:-2], dtype, lying)


def has_packed(*operands: Matrix | Panels) -> bool:
    """Whether one of these lies packed."""
    return any(isinstance(x, Matrix) and x.packed is not None for x in operands)


def plain(x: Side[Any]) -> Side[Any]:
    """The description of the copy of x."""
    return replace(x, values=replace(x.values, packed=None)) if isinstance(x.values, Matrix) else x


def unpacked(plan: Plan, operands: Sequence[Matrix | Panels]) -> Plan:
    """A plan on `operands`, the first ones of `plan`, which reads copies of those that lie packed."""
    lies = [(x.dtype, x.packed) if isinstance(x, Matrix) and x.packed is not None else None for x in operands]
    return spread.on_copies(plan, lies)
