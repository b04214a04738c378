"""Operators of indices: `embedding`, `cross_entropy` and `grouped_mm`, with gradients (numerics.md section 5)."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from samebits.errors import DTypeError, OptionError, OutOfRangeError, ShapeError, shown
from samebits.kernels.gemm.contraction import Spec
from samebits.ops import grouped, training
from samebits.ops import matmul as products
from samebits.ops.memo import itself
from samebits.torch.operator import Gradient, Operator, by_loop, check_tensor, define, of_memory
from samebits.torch.product_operators import rows_of
from samebits.torch.spec import DEFAULT

__all__ = ["check_rows", "cross_entropy", "embedding", "embedding_of", "embedding_shapes", "grouped_mm", "places"]

_ORDER = "int chunk, int segments, str order"
_taken, _losses = of_memory(training.embedding), of_memory(training.cross_entropy)
_losses_gradient = of_memory(training.cross_entropy_gradient)
_multiplied, _multiplied_groups = of_memory(products.matmul), of_memory(grouped.grouped_matmul)


def _check_range(call: str, name: str, indices: Tensor, extent: int, left_out: int | None = None) -> None:
    """Raise unless every index counts one of so many places, or is the one that is left out."""
    values = indices.numpy()
    unsigned: Any = values.view(np.uint64 if values.itemsize == 8 else np.uint32)  # what is negative is large
    if not values.size or np.maximum.reduce(unsigned, axis=None) < extent:
        return
    wrong = unsigned >= extent
    if left_out is not None:
        wrong &= values != left_out
    if wrong.any():
        expected = f"in [0, {extent})"
        remedy = (
            "give indices that exist" if left_out is None else "give classes that exist, or pass it as ignore_index"
        )
        raise OutOfRangeError(call, name, "", int(values[wrong][0]), expected, remedy)


# embedding: rows of a table


@of_memory
def embedding_of(
    indices: Tensor, weight: Tensor, padding: int, chunk: int, segments: int, order: str, *, threads: int
) -> Any:  # fmt: skip
    """Rows of a table on the host."""
    _check_embedding(indices, weight)
    _check_range("embedding", "input", indices, weight.shape[0])
    if indices.dtype is torch.int64:
        return itself(training.embedding)(weight, indices, threads=threads)
    return _taken(weight, indices.long(), threads=threads)


def embedding_shapes(indices: Tensor, weight: Tensor, padding: int, chunk: int, segments: int, order: str) -> Tensor:
    """The result without its values; refuses what does not fit."""
    _check_embedding(indices, weight)
    return weight.new_empty((*indices.shape, weight.shape[1]))


def _check_embedding(indices: Tensor, weight: Tensor) -> None:
    check_tensor("embedding", "input", indices, torch.int64, torch.int32)
    check_tensor("embedding", "weight", weight)
    if weight.ndim != 2:
        raise ShapeError("embedding", "weight", "rank", weight.ndim, 2, "reshape it to [V, D]")


def _embedding_backward(
    inputs: tuple[Any, ...], kept: tuple[Tensor, ...], needs: tuple[bool, ...], dy: Tensor
) -> tuple[Tensor | None, ...]:
    weight, padding, chunk, segments, order = inputs[1:]
    return None, scattered(dy, kept[0], weight.shape[0], padding, chunk, segments, order), None, None, None, None


@of_memory
def _scattered(
    dy: Tensor, indices: Tensor, count: int, padding: int, chunk: int, segments: int, order: str, threads: int
) -> Any:  # fmt: skip
    _check_range("embedding", "input", indices, count)
    check_rows("embedding_backward", rows_of(dy), indices.numel(), dy.shape[-1])
    x = dy if dy.ndim == 2 else dy.contiguous()
    return itself(training.embedding_gradient)(
        x, indices.contiguous(), count, padding, chunk, segments, order, threads=threads
    )  # fmt: skip


def places(indices: Tensor, count: int) -> Tensor:
    """Indices of rows of a table as one axis."""
    flat = indices if indices.ndim == 1 else indices.flatten()
    _check_range("embedding", "input", flat, count)
    return flat


def check_rows(call: str, dy: Tensor, rows: int, columns: int) -> None:
    """Raise unless dy has a row for each index, as wide as those of the table: the kernel reads so much memory."""
    if dy.shape != (rows, columns):
        raise ShapeError(call, "dy", "shape", tuple(dy.shape), (rows, columns), "give a row for each index")


def _scattered_shapes(
    dy: Tensor, indices: Tensor, count: int, padding: int, chunk: int, segments: int, order: str
) -> Tensor:
    return dy.new_empty((count, dy.shape[-1]))


def _scattered_backward(
    inputs: tuple[Any, ...], kept: tuple[Tensor, ...], needs: tuple[bool, ...], dy: Tensor
) -> tuple[Tensor | None, ...]:
    padding = inputs[3]
    rows_of = embedding(kept[0], dy, -1, *DEFAULT)
    if padding >= 0:
        rows_of = torch.where((kept[0] == padding).unsqueeze(-1), 0, rows_of)
    return rows_of, None, None, None, None, None, None


scattered = define(Operator(
    f"embedding_backward(Tensor dy, Tensor indices, SymInt count, int padding, {_ORDER}) -> Tensor",
    _scattered, _scattered_shapes, by_loop, Gradient(lambda inputs, result, needs: inputs[1:2], _scattered_backward),
))  # fmt: skip
embedding = define(Operator(
    f"embedding(Tensor input, Tensor weight, int padding, {_ORDER}) -> Tensor",
    embedding_of, embedding_shapes, by_loop,
    Gradient(lambda inputs, result, needs: inputs[:1], _embedding_backward, formed=(1,)),
))  # fmt: skip

# cross_entropy: one value a row, their sum, or that divided by a count


@of_memory
def _cross_entropy(
    x: Tensor, target: Tensor, left_out: int, reduction: str, count: float | None, threads: int
) -> Any:  # fmt: skip
    _check_cross_entropy(x, target)
    known, counted = _known(target, left_out, x.shape[1])
    if not x.numel() and len(x):
        raise ShapeError("cross_entropy", "input", "class count", 0, "at least 1", "give each row a class")
    is_whole, by = known is target, _divisor(reduction, count, counted)
    losses = itself(training.cross_entropy) if is_whole else _losses
    return losses(x, known, reduction, by, is_whole, threads=threads)


def _divisor(reduction: str, count: float | None, counted: int) -> float:
    """What the sum of all losses is divided by."""
    return 1.0 if reduction != "mean" else counted if count is None else count


def _check_cross_entropy(x: Tensor, target: Tensor) -> None:
    check_tensor("cross_entropy", "input", x)
    check_tensor("cross_entropy", "target", target, torch.int64)
    if x.ndim != 2:
        raise ShapeError("cross_entropy", "input", "rank", x.ndim, 2, "flatten the axes in front of the classes")
    if target.shape != x.shape[:1]:
        expected = f"{tuple(x.shape[:1])}, one for each row of input"
        raise ShapeError("cross_entropy", "target", "shape", tuple(target.shape), expected, "give each row a class")


def _known(target: Tensor, left_out: int, extent: int) -> tuple[Tensor, int]:
    """Classes, -1 for those that are left out, and how many are not.

    Raises:  OutOfRangeError for one that is not there.
    """
    values = target.numpy()
    # What is negative is large.
    if not 0 <= left_out < extent and (not values.size or np.maximum.reduce(values.view(np.uint64)) < extent):
        return target, values.size
    _check_range("cross_entropy", "target", target, extent, left_out)
    kept = values != left_out
    return torch.where(torch.from_numpy(kept), target, -1), int(np.count_nonzero(kept))


def _cross_entropy_shapes(x: Tensor, target: Tensor, left_out: int, reduction: str, count: float | None) -> Tensor:
    _check_cross_entropy(x, target)
    dtype = torch.float64 if x.dtype is torch.float64 else torch.float32
    return x.new_empty(target.shape if reduction == "none" else (), dtype=dtype)


def _cross_entropy_backward(
    inputs: tuple[Any, ...], kept: tuple[Tensor, ...], needs: tuple[bool, ...], dy: Tensor
) -> tuple[Tensor | None, ...]:
    return cross_entropy_input(*kept, dy, *inputs[2:]), None, None, None, None


@of_memory
def _cross_entropy_input(
    x: Tensor, target: Tensor, dy: Tensor, left_out: int, reduction: str, count: float | None, threads: int
) -> Any:  # fmt: skip
    known, counted = _known(target, left_out, x.shape[1])
    is_whole, by = known is target, _divisor(reduction, count, counted)
    gradient = itself(training.cross_entropy_gradient) if is_whole else _losses_gradient
    return gradient(x, known, dy, by, is_whole, threads=threads)


cross_entropy_input = define(Operator(
    "cross_entropy_backward(Tensor input, Tensor target, Tensor dy, int left_out, str reduction, float? count) "
    "-> Tensor",
    _cross_entropy_input, lambda x, *_: x.new_empty(x.shape), by_loop,
))  # fmt: skip
cross_entropy = define(Operator(
    "cross_entropy(Tensor input, Tensor target, int left_out, str reduction, float? count) -> Tensor",
    _cross_entropy, _cross_entropy_shapes, by_loop,
    Gradient(lambda inputs, result, needs: inputs[:2], _cross_entropy_backward),
))  # fmt: skip

# grouped_mm: rows of each group by a matrix of its own


def _sizes(ends: Tensor, rows: int) -> Tensor:
    """How many rows each group has."""
    sizes = torch.diff(ends, prepend=ends.new_zeros(1))
    if len(ends) and (int(sizes.min()) < 0 or int(ends[-1]) > rows):
        expected = f"ascending, from 0 to at most input's row count {rows}"
        remedy = "give where each group ends"
        raise OptionError("grouped_mm", "offs", "", shown(ends.tolist()), expected, remedy)
    return sizes


def _grouped(a: Tensor, b: Tensor, ends: Tensor, chunk: int, segments: int, order: str, threads: int) -> Any:
    _grouped_shapes(a, b, ends, chunk, segments, order)
    return _multiplied_groups(a, b, _sizes(ends, len(a)), spec=Spec(chunk, segments, order), threads=threads)


def _grouped_shapes(a: Tensor, b: Tensor, ends: Tensor, chunk: int, segments: int, order: str) -> Tensor:
    check_tensor("grouped_mm", "input", a)
    check_tensor("grouped_mm", "mat2", b)
    check_tensor("grouped_mm", "offs", ends, torch.int32, torch.int64)
    if a.dtype != b.dtype:
        actual, expected = (str(x.dtype).removeprefix("torch.") for x in (b, a))
        raise DTypeError(
            "grouped_mm", "mat2", "dtype", actual, f"{expected}, as the left operand's", "convert one of them"
        )
    for name, x, due in (("input", a, 2), ("mat2", b, 3), ("offs", ends, 1)):
        if x.ndim != due:
            raise ShapeError("grouped_mm", name, "rank", x.ndim, due, "pass [T, K], [G, K, N] and [G]")
    if a.shape[1] != b.shape[1]:
        expected = f"{a.shape[1]}, the left operand's column count"
        raise ShapeError("grouped_mm", "mat2", "row count", b.shape[1], expected, "transpose each matrix")
    if ends.shape[0] != b.shape[0]:
        expected = f"({b.shape[0]},), one for each matrix"
        raise ShapeError("grouped_mm", "offs", "shape", tuple(ends.shape), expected, "give where each group ends")
    return a.new_empty((a.shape[0], b.shape[2]))


def _grouped_backward(
    inputs: tuple[Any, ...], kept: tuple[Tensor, ...], needs: tuple[bool, ...], dy: Tensor
) -> tuple[Tensor | None, ...]:
    (a, b, ends), (chunk, segments, order) = kept, inputs[3:]
    da = grouped_mm(dy, b.mT, ends, chunk, segments, order) if needs[0] else None
    return da, grouped_weight(a, dy, ends, chunk, segments, order) if needs[1] else None, None, None, None, None


def _grouped_weight(
    a: Tensor, dy: Tensor, ends: Tensor, chunk: int, segments: int, order: str, threads: int
) -> Any:  # fmt: skip
    made = dy.new_empty((ends.shape[0], a.shape[1], dy.shape[1]))
    start, spec = 0, Spec(chunk, segments, order)
    for g, end in enumerate(ends.tolist()):
        _multiplied(a[start:end].mT, dy[start:end], out=made[g], spec=spec, threads=threads)
        start = end
    return made


grouped_weight = define(Operator(
    f"grouped_mm_backward(Tensor a, Tensor dy, Tensor ends, {_ORDER}) -> Tensor", _grouped_weight,
    lambda a, dy, ends, chunk, segments, order: dy.new_empty((ends.shape[0], a.shape[1], dy.shape[1])), by_loop,
))  # fmt: skip
grouped_mm = define(Operator(
    f"grouped_mm(Tensor input, Tensor mat2, Tensor offs, {_ORDER}) -> Tensor", _grouped, _grouped_shapes, by_loop,
    Gradient(lambda inputs, result, needs: inputs[:3], _grouped_backward), casts=2,
))  # fmt: skip
