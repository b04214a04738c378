"""Operators whose backward adds the gradients of parameters to sums that it is given: one sum a segment of the rows.

`linear_into`, `layer_norm_into`, `rms_norm_into` and `embedding_into` compute what the operators without `_into` do. A
sum is an argument, since what a compiled backward would read as an attribute stays as it was traced.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from samebits.frozen import replace
from samebits.kernels.gemm.contraction import Spec
from samebits.kinds import note_written
from samebits.ops import gradients, training
from samebits.torch import product_operators as products
from samebits.torch import row_operators as along
from samebits.torch import token_operators as tokens
from samebits.torch.operator import Gradient, Operator, by_loop, define, of_memory

__all__ = ["embedding_into", "layer_norm_into", "linear_into", "rms_norm_into"]

_ORDER = "int chunk, int segments, str order"
_grad_weight, _grad_bias = of_memory(gradients.grad_weight), of_memory(gradients.grad_bias)
_add_embedding_gradient = of_memory(training.add_embedding_gradient)


def _parts(total: Tensor, rows: int, spec: Spec) -> list[tuple[Tensor, int, int]]:
    """Each segment's sum, and its rows."""
    return [(total[s], low, high) for s, (low, high) in enumerate(replace(spec, segments=total.shape[0]).bounds(rows))]


def _add_product(
    total: Tensor, x: Tensor, dy: Tensor, chunk: int, segments: int, order: str, threads: int
) -> None:  # fmt: skip
    options = products.spec_options(chunk, segments, order)
    for sums, low, high in _parts(total, len(x), Spec(chunk, segments, order)):
        _grad_weight(x[low:high], dy[low:high], out=sums, threads=threads, **options)


def _add_rows(total: Tensor, x: Tensor, chunk: int, segments: int, order: str, threads: int) -> None:
    options = products.spec_options(chunk, segments, order)
    for sums, low, high in _parts(total, len(x), Spec(chunk, segments, order)):
        _grad_bias(x[low:high], out=sums, threads=threads, **options)


def _add_embedding(
    total: Tensor, dy: Tensor, indices: Tensor, padding: int, chunk: int, segments: int, order: str, threads: int
) -> None:  # fmt: skip
    spec = Spec(chunk, segments, order)
    note_written(total)
    flat = tokens.places(indices, total.shape[1])
    tokens.check_rows("add_embedding_", dy, len(flat), total.shape[2])
    _add_embedding_gradient(total, dy, flat, padding, spec, threads=threads)


def _nothing(*arguments: Any) -> None:
    return None


def _adding(schema: str, compute: Any) -> Any:
    return define(Operator(schema, compute, _nothing, by_loop))


add_product = _adding(f"add_product_(Tensor(a!) total, Tensor input, Tensor dy, {_ORDER}) -> ()", _add_product)
add_rows = _adding(f"add_rows_(Tensor(a!) total, Tensor input, {_ORDER}) -> ()", _add_rows)
add_embedding = _adding(
    f"add_embedding_(Tensor(a!) total, Tensor dy, Tensor indices, int padding, {_ORDER}) -> ()", _add_embedding
)


def _linear_backward(inputs: tuple[Any, ...], kept: tuple[Any, ...], needs: tuple[bool, ...], dy: Tensor) -> Any:
    (x, weight), (weight_total, bias_total, *sums) = kept, inputs[3:]
    rows = products.rows_of(dy)
    dx = products.linear(dy, weight.mT, None, *sums) if needs[0] else None
    if needs[1]:
        add_product(weight_total, products.rows_of(x), rows, *sums)
    if needs[2]:
        add_rows(bias_total, rows, *sums)
    return dx, None, None, None, None, None, None, None


def _linear(x: Tensor, weight: Tensor, bias: Tensor | None, *totals: Any, threads: int) -> Any:
    return products.linear_of(x, weight, bias, *totals[2:], threads=threads)


def _linear_shapes(x: Tensor, weight: Tensor, bias: Tensor | None, *totals: Any) -> Tensor:
    return products.linear_shapes(x, weight, bias, *totals[2:])


linear_into = define(Operator(
    "linear_into(Tensor input, Tensor weight, Tensor? bias, Tensor weight_total, Tensor? bias_total, "
    f"{_ORDER}) -> Tensor",
    _linear, _linear_shapes, by_loop, Gradient(products.factors, _linear_backward, holds=(3, 4)), casts=3,
))  # fmt: skip


def _layer_norm_backward(inputs: tuple[Any, ...], kept: tuple[Any, ...], needs: tuple[bool, ...], dy: Tensor) -> Any:
    (x, weight), (eps, weight_total, bias_total, *sums) = kept, inputs[3:]
    dx = along.of_layer_norm.input(x, dy, weight, eps) if needs[0] else None
    if needs[1]:
        add_rows(weight_total, products.rows_of(along.of_layer_norm.weight(x, dy, eps)), *sums)
    if needs[2]:
        add_rows(bias_total, products.rows_of(dy), *sums)
    return dx, None, None, None, None, None, None, None, None


def _layer_norm(x: Tensor, weight: Tensor, bias: Tensor | None, eps: float, *totals: Any, threads: int) -> Any:
    return along.layer_norm_of(x, weight, bias, eps, *totals[2:], threads=threads)


def _layer_norm_shapes(x: Tensor, weight: Tensor, bias: Tensor | None, eps: float, *totals: Any) -> Tensor:
    return along.layer_norm_shapes(x, weight, bias, eps, *totals[2:])


layer_norm_into = define(Operator(
    "layer_norm_into(Tensor input, Tensor weight, Tensor? bias, float eps, Tensor weight_total, "
    f"Tensor? bias_total, {_ORDER}) -> Tensor",
    _layer_norm, _layer_norm_shapes, by_loop, Gradient(along.weighed, _layer_norm_backward, holds=(4, 5)),
))  # fmt: skip


def _rms_norm_backward(inputs: tuple[Any, ...], kept: tuple[Tensor, ...], needs: tuple[bool, ...], dy: Tensor) -> Any:
    (x, weight), (eps, weight_total, *sums) = kept, inputs[2:]
    dx = along.of_rms_norm.input(x, dy, weight, eps) if needs[0] else None
    if needs[1]:
        add_rows(weight_total, products.rows_of(along.of_rms_norm.weight(x, dy, eps)), *sums)
    return dx, None, None, None, None, None, None


def _rms_norm(x: Tensor, weight: Tensor, eps: float, total: Tensor, *sums: Any, threads: int) -> Any:
    return along.rms_norm_of(x, weight, eps, *sums, threads=threads)


def _rms_norm_shapes(x: Tensor, weight: Tensor, eps: float, total: Tensor, *sums: Any) -> Tensor:
    return along.rms_norm_shapes(x, weight, eps, *sums)


rms_norm_into = define(Operator(
    f"rms_norm_into(Tensor input, Tensor weight, float eps, Tensor weight_total, {_ORDER}) -> Tensor",
    _rms_norm, _rms_norm_shapes, by_loop, Gradient(along.weighed, _rms_norm_backward, holds=(3,)),
))  # fmt: skip


def _embedding_backward(inputs: tuple[Any, ...], kept: tuple[Any, ...], needs: tuple[bool, ...], dy: Tensor) -> Any:
    add_embedding(inputs[3], products.rows_of(dy), kept[0], inputs[2], *inputs[4:])
    return None, None, None, None, None, None, None


def _embedding(indices: Tensor, weight: Tensor, padding: int, *totals: Any, threads: int) -> Any:
    return tokens.embedding_of(indices, weight, padding, *totals[1:], threads=threads)


def _embedding_shapes(indices: Tensor, weight: Tensor, padding: int, *totals: Any) -> Tensor:
    return tokens.embedding_shapes(indices, weight, padding, *totals[1:])


embedding_into = define(Operator(
    f"embedding_into(Tensor input, Tensor weight, int padding, Tensor weight_total, {_ORDER}) -> Tensor",
    _embedding, _embedding_shapes, by_loop,
    Gradient(lambda inputs, result, needs: inputs[:1], _embedding_backward, holds=(3,)),
))  # fmt: skip
