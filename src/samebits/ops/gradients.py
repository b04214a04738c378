"""Gradients of `linear`: `grad_input`, `grad_weight`, `grad_bias`. Each is a contraction, by numerics.md section 5.

Leading dimensions count rows together, in row-major order. Micro-batches that are cut at multiples of the spec's chunk
(128 rows in sb1) and accumulated in order have the bits of the whole batch.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from samebits import dtypes
from samebits.errors import LayoutError, ShapeError
from samebits.kernels.gemm.contraction import SB1, Spec
from samebits.operations.names import GRAD_INPUT
from samebits.ops.call import Call
from samebits.ops.memo import remembered
from samebits.ops.product import Arguments, multiplied, summed
from samebits.ops.recipe import CallOperand


@remembered
def grad_input(
    dy: Any, weight: Any, *, out: Any = None, out_dtype: Any = None, spec: Spec = SB1, threads: int | None = None
) -> Any:  # fmt: skip
    """dy @ weight, the gradient of `linear` by its input.

    Args:    dy: [..., N].   weight: [N, K], as `linear` takes it, or `pack(weight)`, where `linear` has
             `pack(weight.T)`.   out: [..., K], overwritten.   out_dtype, spec, threads: as in
             matmul.
    Returns: [..., K] as the kind of array that dy is.
    Raises:  as matmul.   Bits: numerics.md section 2.
    """
    call = Call("grad_input", dy, threads)
    return multiplied(Arguments.of(call, GRAD_INPUT, dy, weight, out_dtype=out_dtype, spec=spec), out)


@remembered
def grad_weight(x: Any, dy: Any, *, out: Any = None, spec: Spec = SB1, threads: int | None = None) -> Any:
    """dy^T @ x summed over all rows, the gradient of `linear` by its weight.

    Args:    x: [..., K], the input of `linear`.   dy: [..., N] with the same leading dimensions, which must be
             viewable as one; floats.   out: [N, K] in float32 (float64 where an operand is), to be added to: the sum
             starts from what it holds. Without it the sum starts with the first chunk of rows.   spec: the order of
             the sum; its segments must be 1 beside out.   threads: as in matmul.
    Returns: [N, K] as the kind of array that x is; out if it was given.
    Raises:  DTypeError, ShapeError, LayoutError (rows must be copied first, or out overlaps an operand).
    Bits:    numerics.md section 5.
    """
    call = Call("grad_weight", x, threads)
    left, right = _rows(call, "x", x), _rows(call, "dy", dy)
    if left[0] != right[0]:
        remedy = "pass the gradient of linear(x, ...)"
        raise ShapeError("grad_weight", "dy", "leading shape", right[0], f"x's {left[0]}", remedy)
    return summed(call, right[1].seen(right[1].tensor.T), left[1], out, spec)


@remembered
def grad_bias(dy: Any, *, out: Any = None, spec: Spec = SB1, threads: int | None = None) -> Any:
    """dy summed over all rows, the gradient of `linear` by its bias; not `sum`, whose order is another.

    Args:    dy: [..., N].   out: [N] in float32 (float64 for float64), to be added to.   spec: both as in
             grad_weight.
    Returns: [N] as the kind of array that dy is; out if it was given.
    Raises:  as grad_weight.   Bits: numerics.md section 5.
    """
    call = Call("grad_bias", dy, threads)
    _, rows = _rows(call, "dy", dy)
    one = call.constant(np.ones((), np.float32))
    return summed(call, one.seen(one.tensor.broadcast_to((rows.shape[0],))), rows, out, spec)


def _rows(call: Call, name: str, x: Any) -> tuple[tuple[int, ...], CallOperand]:
    """The leading shape, and x as a matrix of rows."""
    given = call.operand(name, x, *_FLOATS)
    tensor = given.tensor
    if tensor.ndim < 1:
        raise ShapeError(call.name, name, "rank", 0, "at least 1", "reshape it to [1, N]")
    leading = tensor.shape[:-1]
    try:
        return leading, given.seen(tensor.reshape((math.prod(leading), tensor.shape[-1])))
    except LayoutError:
        actual = f"{tensor.shape} with strides_bits {tensor.layout.strides_bits}"
        expected = "one whose leading dimensions can be viewed as one"
        raise LayoutError(call.name, name, "layout", actual, expected, "copy it first") from None


_FLOATS = tuple(row for row in dtypes.ROWS if row.is_float)
