"""The operation `contract`: matrix products (numerics.md sections 2 to 4).

Start at `MatrixProduct`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from samebits.dtypes import float32
from samebits.errors import ShapeError
from samebits.kernels import values
from samebits.kernels.expression import Expression
from samebits.kernels.gemm.contraction import Contraction, Matrix, Panels, Side
from samebits.kernels.gemm.panels import panel_columns
from samebits.kernels.gemm.plan import plan as plan_contraction
from samebits.kernels.gemm.reference import reference
from samebits.kernels.plan import SMALL, Plan
from samebits.operations import dim
from samebits.operations.axes import Axes, aligned
from samebits.operations.elementwise import check_dtypes, text
from samebits.operations.fact import Fact, dense
from samebits.operations.operation import Array, KeptConstant, Operation, PlanTarget, Shape, View
from samebits.operations.views import text as sizes_text

__all__ = ["ROWS", "MatrixProduct"]


@dataclass(frozen=True, slots=True)
class MatrixProduct:
    """Matrix product over the last axis of the first operand and the last but one of the second.

    Attributes:
        epilogue: Its input 0 is the product; further operands broadcast to it. None is the product itself.
        columns: The width of the panels that the second operand is packed in; None where it is a matrix.
    """

    epilogue: Expression | None = None
    columns: int | None = None

    def __str__(self) -> str:
        return "product" if self.epilogue is None else text(self.epilogue)


def _infer(attributes: MatrixProduct, facts: Sequence[Fact]) -> tuple[Fact, ...]:
    a, b, *extras = facts
    epilogue = attributes.epilogue
    check_dtypes("matmul", (float32, float32), (a, b))
    check_dtypes("matmul", () if epilogue is None else epilogue.inputs[1:], extras)
    if a.rank < 2 or b.rank < 2:
        raise ShapeError("matmul", "operands", "ranks", f"{a.rank} and {b.rank}", "at least 2", "reshape them")
    inner = a.shape[-1], b.shape[-2]
    if dim.are_known(*inner) and inner[0] != inner[1]:
        actual = f"{sizes_text(a.shape)} and {sizes_text(b.shape)}"
        raise ShapeError("matmul", "operands", "shapes", actual, "equal in K", "transpose one, or check the weights")
    shape = (*dim.broadcast_shapes([a.shape[:-2], b.shape[:-2]]), a.shape[-2], b.shape[-1])
    if dim.broadcast_shapes([shape, *[extra.shape for extra in extras]]) != shape:
        raise ShapeError(
            "matmul", "epilogue operands", "shapes", [str(e) for e in extras], f"within {shape}", "expand a"
        )
    return (dense(a.dtype if epilogue is None else epilogue.dtype(epilogue.outputs[0]), shape),)


def _reference(attributes: MatrixProduct, arrays: Sequence[Array]) -> tuple[Array, ...]:
    a, b, *extras = arrays
    t = reference(a, b)
    if attributes.epilogue is None:
        return (t,)
    return tuple(values.reference(attributes.epilogue, [t, *extras]))


def _axes(attributes: MatrixProduct, facts: Sequence[Fact]) -> Axes:
    """K is read whole."""
    a, b, *extras = facts
    rank = max(a.rank, b.rank)
    (left,), (right,) = aligned([a], rank, [rank - 1]), aligned([b], rank, [rank - 2])
    return Axes((left, right, *aligned(extras, rank)))


def _plan(attributes: MatrixProduct, views: tuple[View, ...], target: PlanTarget) -> Plan:
    """One product."""
    a, b, *extras, out = views
    *batch, m, n = out[1]
    outer, k = tuple(batch), a[1][-1]
    packed = None if attributes.columns is None else Panels(attributes.columns, (0,) * len(outer))
    contraction = Contraction(
        m=m,
        n=n,
        k=k,
        a=Side(_matrix(a, (*outer, m, k))),
        b=Side(packed or _matrix(b, (*outer, k, n))),
        out=Side(_matrix(out, out[1])),
        batch=outer,
        epilogue=attributes.epilogue,
        sources=tuple(_matrix(extra, out[1]) for extra in extras),
    )
    threads = target.threads if contraction.work >= SMALL["products"] else 1
    return plan_contraction(contraction, target.isa, threads, machine=target.machine)


def _matrix(view: View, shape: Shape) -> Matrix:
    """A view as a matrix of that shape, repeated where its own extent is 1."""
    dtype, own, strides = view
    padded = (0,) * (len(shape) - len(own)) + tuple(
        0 if extent == 1 else stride for extent, stride in zip(own, strides, strict=True)
    )
    return Matrix(padded[-2], padded[-1], padded[:-2], dtype)


def _keep(attributes: MatrixProduct, known: Mapping[int, Array], target: PlanTarget) -> KeptConstant | None:
    """A right operand that is known and has no batches is packed once."""
    b = known.get(1)
    if b is None or b.ndim != 2 or not b.size or b.dtype != np.float32:
        return None
    width = panel_columns(target.isa, machine=target.machine)
    return KeptConstant(replace(attributes, columns=width), 1, ("panels", width), lambda: _panels(b, width))


def _panels(b: Array, width: int) -> Array:
    """[panel][k][width], missing columns zero."""
    k, n = b.shape
    panels = np.zeros((math.ceil(n / width), k, width), np.float32)
    whole = n // width
    panels[:whole] = b[:, : whole * width].reshape(k, whole, width).transpose(1, 0, 2)
    if n % width:
        panels[whole, :, : n - whole * width] = b[:, whole * width :]
    return panels


ROWS: tuple[Operation, ...] = (Operation("contract", _infer, _reference, _axes, plan=_plan, keep=_keep),)
