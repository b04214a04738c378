"""ONNX operators that are whole layers of others: negative log likelihood, cross-entropy, rotary embedding.

Their roundings are those of the steps that ONNX writes (numerics.md section 8). Start at `ROWS`.
"""

from __future__ import annotations

from collections.abc import Sequence

from samebits import dtypes
from samebits.kernels import composites
from samebits.onnx.row import Attribute, NodeCall, OnnxRow, Unsupported
from samebits.onnx.rows_move import indices_of, picked_along
from samebits.onnx.rows_reduce import row_reduction
from samebits.operations import dim
from samebits.operations.dim import Size

__all__ = ["ROWS"]


def _cross_entropy(call: NodeCall) -> Sequence[str]:
    """The likelihood of the logarithm of a softmax along the classes, and that logarithm."""
    fact = call.fact(0)
    if not fact.dtype.is_float or fact.rank < 2:
        raise Unsupported(f"input 0 is {fact}, must be floats whose second axis are classes")
    (found,) = call.b.rows(composites.log_softmax(fact.dtype), call[0], axes=(1 - fact.rank,))
    inner = NodeCall(call.b, call.node, call.opset, (found, *call.inputs[1:]), call.attributes)
    return (*_likelihood(inner), found)


def _likelihood(call: NodeCall) -> Sequence[str]:
    """-x at the class that is right, times the class's weight; their sum, or that over the sum of the weights."""
    b, fact, targets = call.b, call.fact(0), indices_of(call, 1)
    if not fact.dtype.is_float or fact.rank < 2 or b.facts[targets].rank != fact.rank - 1:
        raise Unsupported(f"operands are {fact} and {call.fact(1)}, must be floats and one class for each place")
    shape = (fact.shape[0], *fact.shape[2:])
    ignored = call.attributes["ignore_index"]
    is_left_out = None
    if ignored is not None:
        is_left_out = b.apply("equal", targets, b.scalar(ignored, dtypes.int64))
        targets = b.apply("where", is_left_out, b.scalar(0, dtypes.int64), targets)
    column = b.reshape(targets, (fact.shape[0], 1, *fact.shape[2:]))
    loss = b.apply("neg", b.reshape(picked_along(call, call[0], column, 1), shape))
    weights = _weights(call, targets, is_left_out)
    if weights is not None:
        loss = b.apply("mul", loss, weights)
    if call.attributes["reduction"] == "none":
        return (loss,)
    total = _sum(call, loss)
    if call.attributes["reduction"] == "sum":
        return (total,)
    if weights is None:
        weights = b.expand(b.scalar(1, fact.dtype), shape)
    return (b.apply("div", total, _sum(call, weights)),)


def _weights(call: NodeCall, targets: str, is_left_out: str | None) -> str | None:
    """The weight of each place, 0 where it is left out; None where all are 1."""
    b, dtype = call.b, call.fact(0).dtype
    weights = None
    if call.optional(2) is not None:
        weights = b.gather(call[2], targets, 0)
    if is_left_out is None:
        return weights
    return b.apply("where", is_left_out, b.scalar(0, dtype), b.scalar(1, dtype) if weights is None else weights)


def _sum(call: NodeCall, x: str) -> str:
    """The sum of all elements."""
    fact = call.b.facts[x]
    flat = call.b.reshape(x, (dim.product(fact.shape),))
    return call.b.reshape(call.b.rows(row_reduction("row_sum", fact.dtype), flat)[0], ())


def _rotary(call: NodeCall) -> Sequence[str]:
    """Pairs (x, y) along the last axis become (cos x - sin y, sin x + cos y), each product rounded."""
    b, fact = call.b, call.fact(0)
    x = _heads(call)
    shape = b.facts[x].shape
    head, turned = shape[3], call.attributes["rotary_embedding_dim"] or shape[3]
    if not isinstance(head, int) or not isinstance(turned, int) or turned % 2 or not 0 < turned <= head:
        raise Unsupported(f"{turned} of {head} places of a head are no pairs")
    cosine, sine = (_turn(call, index, turned // 2) for index in (1, 2))
    first, second = _pairs(call, x, turned)
    real = b.apply("sub", b.apply("mul", cosine, first), b.apply("mul", sine, second))
    imaginary = b.apply("add", b.apply("mul", sine, first), b.apply("mul", cosine, second))
    made = _unpaired(call, real, imaginary)
    if turned < head:
        rest = b.slice(x, (0, 0, 0, turned), (*shape[:3], head - turned), (1,) * 4)
        made = b.concat((made, rest), 3)
    return (b.transpose(made, (0, 2, 1, 3)) if fact.rank == 4 else b.reshape(made, fact.shape),)


def _heads(call: NodeCall) -> str:
    """Input 0 as [batch, sequence, heads, places of a head]."""
    fact, count = call.fact(0), call.attributes["num_heads"]
    if fact.rank == 4:
        return call.b.transpose(call[0], (0, 2, 1, 3))
    if fact.rank != 3 or not count or (isinstance(fact.shape[2], int) and fact.shape[2] % count):
        raise Unsupported(f"input 0 is {fact} with {count} heads, must be of 4 axes, or of 3 with heads of one size")
    return call.b.reshape(call[0], (*fact.shape[:2], count, dim.floor_divide(fact.shape[2], count)))


def _turn(call: NodeCall, index: int, pairs: int) -> str:
    """A cache of cosines or sines as [batch, sequence, 1, pairs]."""
    b, cache = call.b, call[index]
    if call.optional(3) is not None:
        cache = b.gather(cache, indices_of(call, 3), 0)
    shape: tuple[Size, ...] = b.facts[cache].shape
    if len(shape) != 3 or shape[2] != pairs:
        raise Unsupported(f"input {index} is {call.fact(index)}, must hold {pairs} numbers for each place")
    return b.reshape(cache, (*shape[:2], 1, pairs))


def _pairs(call: NodeCall, x: str, turned: int) -> tuple[str, str]:
    """The first and second of each pair: neighbours, or one of each half."""
    shape, half = call.b.facts[x].shape, turned // 2
    starts, step = ((0, 1), 2) if call.attributes["interleaved"] else ((0, half), 1)
    counts, steps = (*shape[:3], half), (1, 1, 1, step)
    first, second = (call.b.slice(x, (0, 0, 0, start), counts, steps) for start in starts)
    return first, second


def _unpaired(call: NodeCall, first: str, second: str) -> str:
    """Pairs as they lay before."""
    shape = call.b.facts[first].shape
    if not call.attributes["interleaved"]:
        return call.b.concat((first, second), 3)
    apart = [call.b.reshape(x, (*shape, 1)) for x in (first, second)]
    return call.b.reshape(call.b.concat(apart, 4), (*shape[:3], shape[3] * 2))


_LOSS = (Attribute("ignore_index", None), Attribute("reduction", "mean", "string", ("none", "sum", "mean")))

ROWS: tuple[OnnxRow, ...] = (
    OnnxRow("NegativeLogLikelihoodLoss", 12, _likelihood, _LOSS, inputs=3),
    OnnxRow("SoftmaxCrossEntropyLoss", 12, _cross_entropy, _LOSS, inputs=3),
    OnnxRow(
        "RotaryEmbedding",
        23,
        _rotary,
        (
            Attribute("interleaved", 0, allowed=(0, 1)),
            Attribute("num_heads", None),
            Attribute("rotary_embedding_dim", 0),
        ),
        inputs=4,
    ),
)
