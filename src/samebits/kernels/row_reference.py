"""What expressions with reductions along rows mean, by NumPy: numerics.md section 6, word for word.

Its sums and extremes share nothing with the kernels that `reduce` plans, which must have their bits; what is computed
of each element is `values.reference`. Start at `reference`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from samebits import ieee
from samebits.kernels import values
from samebits.kernels.expression import Expression, Term
from samebits.kernels.row_axes import normal_axes

Array = values.Array


def reference(expression: Expression, *inputs: npt.ArrayLike, axes: Sequence[int]) -> list[Array]:
    """The outputs by NumPy; a value that is one a row has extent 1 along `axes`."""
    shape = np.broadcast_shapes(*[np.shape(x) for x in inputs])
    reduced = normal_axes(axes, len(shape))
    outer = tuple(a for a in range(len(shape)) if a not in reduced)
    n = math.prod(shape[a] for a in reduced)

    def special(node: Term, arguments: list[Array]) -> Array:
        if node.op == "count":
            return np.array(n, node.dtype.numpy)
        whole = np.broadcast_to(arguments[0], shape).transpose(*outer, *reduced)
        rows = whole.reshape(math.prod(shape[a] for a in outer), n)
        ordered = {"row_sum": np.add, "row_prod": np.multiply}.get(node.op)
        result = _sum_rule(rows, ordered) if ordered else _extreme(node.op, rows)
        return result.reshape([1 if a in reduced else extent for a, extent in enumerate(shape)])

    return values.reference(expression, inputs, special)


def _sum_rule(x: Array, step: np.ufunc) -> Array:
    """Row sums, or products, of [rows, n]: numerics.md section 6, word for word."""
    rows, n = x.shape
    if n == 0:
        return np.full(rows, step.identity, x.dtype)
    blocks = []
    with np.errstate(all="ignore"):
        for start in range(0, n, 2048):
            block = x[:, start : start + 2048]
            lanes = block[:, :64].copy()
            for k in range(64, block.shape[1], 64):
                part = block[:, k : k + 64]
                lanes[:, : part.shape[1]] = step(lanes[:, : part.shape[1]], part)
            for distance in (32, 16, 8, 4, 2, 1):
                lanes, others = lanes[:, :distance], lanes[:, distance:]
                lanes[:, : others.shape[1]] = step(lanes[:, : others.shape[1]], others)
            blocks.append(lanes[:, 0])
    return np.array(blocks[0]) if len(blocks) == 1 else _sum_rule(np.stack(blocks, axis=1), step)


def _extreme(op: str, x: Array) -> Array:
    """Row maxima or minima of [rows, n]."""
    if x.dtype.kind != "f":
        return np.asarray((np.max if op == "row_max" else np.min)(x, axis=1))
    step = ieee.maximum if op == "row_max" else ieee.minimum
    while x.shape[1] > 1:  # of each two neighbours; then of what these gave, and what is left over
        pairs = x.shape[1] // 2 * 2
        x = np.concatenate([step(x[:, :pairs:2], x[:, 1:pairs:2]), x[:, pairs:]], axis=1)
    return np.array(x[:, 0])
