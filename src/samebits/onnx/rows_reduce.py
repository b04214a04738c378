"""ONNX operators over whole axes: reductions, softmax, norms, and where an extreme is.

Several axes are one axis in row-major order (numerics.md section 6). Start at `ROWS`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from samebits import dtypes
from samebits.dtypes import DType
from samebits.kernels import composites, convert, functions
from samebits.kernels.expression import Chain, Expression
from samebits.onnx.row import LATEST, Attribute, NodeCall, OnnxRow, Unsupported
from samebits.operations import dim
from samebits.operations.dim import SymbolicShape

if TYPE_CHECKING:
    from samebits.kernels.scan import ScanKind

__all__ = ["ROWS", "row_reduction"]

_Axes = tuple[int, ...] | None
# The operation between two elements of a row.
_STEP = {"row_sum": "add", "row_prod": "mul", "row_max": "maximum", "row_min": "minimum"}


def _reduce(
    op: str, first: str | None = None, last: str | None = None, axes_of: Callable[[NodeCall, int], _Axes] | None = None
) -> Callable[[NodeCall], Sequence[str]]:
    """A reduction over some axes.

    Args:
        op: The reduction.
        first: What is done to each element before: `abs`, or `mul` by itself.
        last: What is done to the result: `sqrt`, `log`, or `div` by the number of elements.
        axes_of: Which axes; default those that the node names.
    """

    def expression(dtype: DType, is_reduced: bool) -> Expression:
        _check_reduction(op, dtype)
        chain = Chain()
        value = composites.taken(chain, dtype)
        if first is not None:
            value = chain.apply(first, value, *[value] * (first == "mul"))
        if is_reduced:
            value = chain.apply(op, value)
        if last == "div" and is_reduced:
            value = chain.apply("div", value, chain.count(value.dtype))
        elif last in ("sqrt", "log"):
            value = chain.apply(last, value)
        return chain.finish(composites.given(chain, value, dtype))

    def lower(call: NodeCall) -> Sequence[str]:
        fact = call.fact(0)
        axes = (axes_of or _axes)(call, fact.rank)
        each = expression(fact.dtype, axes is not None)
        if axes is None:  # nothing is reduced, what else the operator does is done
            return call.b.map(each, call[0]) if each.nodes else (call[0],)
        return (_reduced(call, each, axes),)

    return lower


def _reduced(call: NodeCall, each: Expression, axes: tuple[int, ...]) -> str:
    """One value for the elements of input 0 along some axes, or along all where none is named."""
    b, fact = call.b, call.fact(0)
    shape = fact.shape or (1,)
    axes = axes or tuple(range(len(shape)))
    (made,) = b.rows(each, b.reshape(call[0], shape), axes=tuple(axis - len(shape) for axis in axes))
    if call.attributes.get("keepdims", 1) and fact.rank:
        return made
    return b.reshape(made, tuple(size for i, size in enumerate(shape) if i not in axes))


def _log_sum_exp(call: NodeCall) -> Sequence[str]:
    """The logarithm of the sum of exponentials, of which no element leaves its format."""
    fact = call.fact(0)
    _check_reduction("row_sum", fact.dtype)
    axes = _axes(call, fact.rank)
    return (call[0],) if axes is None else (_reduced(call, composites.logsumexp(fact.dtype), axes),)


def _axes(call: NodeCall, rank: int) -> _Axes:
    """The axes to reduce, ascending; empty for all of them, None for none at all."""
    given = call.attributes.get("axes")
    if given is None and call.optional(1) is not None:
        given = call.numbers(1)
    if not given and call.attributes.get("noop_with_empty_axes"):
        return None
    return tuple(sorted(call.axes(given or (), rank)))


def _spatial(call: NodeCall, rank: int) -> _Axes:
    """All but the batch and the channels."""
    if rank < 3:
        raise Unsupported(f"input 0 has {rank} axes, must have some behind batch and channels")
    return tuple(range(2, rank))


def _extreme_place(op: str) -> Callable[[NodeCall], Sequence[str]]:
    """The place of the largest or smallest element, which a NaN is: the first, or the last where several are."""

    def lower(call: NodeCall) -> Sequence[str]:
        made = _place(call, op, bool(call.attributes.get("select_last_index")))
        if call.attributes["keepdims"]:
            return (made,)
        axis, shape = call.axis(), call.fact(0).shape
        return (call.b.reshape(made, (*shape[:axis], *shape[axis + 1 :])),)

    return lower


def _place(call: NodeCall, op: str, is_last: bool) -> str:
    """The place as int64, its axis kept."""
    b, fact, axis = call.b, call.fact(0), call.axis()
    extent, counted = fact.shape[axis], axis - fact.rank
    x = call[0]
    (best,) = b.rows(row_reduction(op, fact.dtype), x, axes=(counted,))
    found = b.apply("equal", x, best)
    if fact.dtype.is_float:  # an extreme that is NaN equals none
        found = b.apply("logical_or", found, b.apply("is_nan", x))
    places = b.reshape(call.numbered(extent), (extent, *[1] * (fact.rank - axis - 1)))
    beyond = b.scalar(-1, dtypes.int64) if is_last else b.dims((extent,), scalar=True)
    candidates = b.apply("where", found, places, beyond)
    return b.rows(row_reduction("row_max" if is_last else "row_min", dtypes.int64), candidates, axes=(counted,))[0]


def row_reduction(op: str, dtype: DType) -> Expression:
    """One reduction of a row, whose result has the row's format."""
    _check_reduction(op, dtype)
    chain = Chain()
    return chain.finish(composites.given(chain, chain.apply(op, composites.taken(chain, dtype)), dtype))


def _check_reduction(op: str, dtype: DType) -> None:
    """Raise DTypeError unless elements of this format can be reduced so; of truth values only the extremes can."""
    if dtype.kind != "bool" or op in ("row_sum", "row_prod"):
        functions.result_dtype(_STEP[op], (dtype, dtype))


def _running(kind: ScanKind) -> Callable[[NodeCall], Sequence[str]]:
    """Sums or products along an axis; from its end, or of what is before each element, of nothing at the first."""

    def lower(call: NodeCall) -> Sequence[str]:
        from samebits.operations.scans import Along  # which few models need

        b, fact, given = call.b, call.fact(0), call.numbers(1)
        if len(given) != 1 or not fact.rank:
            raise Unsupported(f"{len(given)} axes are given for {fact.rank}, must be one that there is")
        (axis,) = call.axes(given, fact.rank)
        _check_reduction(f"row_{kind}", fact.dtype)
        x = _turned(call, call[0], axis) if call.attributes["reverse"] else call[0]
        made = call.converted(b.add("scan", (x,), Along(kind, axis))[0], fact.dtype)
        if call.attributes["exclusive"]:
            made = _without_itself(call, made, axis, int(kind == "prod"))
        return (_turned(call, made, axis) if call.attributes["reverse"] else made,)

    return lower


def _turned(call: NodeCall, x: str, axis: int) -> str:
    """x from the end of an axis to its start."""
    shape = call.b.facts[x].shape
    starts = tuple([size - 1 if i == axis else 0 for i, size in enumerate(shape)])
    return call.b.slice(x, starts, shape, tuple([-1 if i == axis else 1 for i in range(len(shape))]))


def _without_itself(call: NodeCall, made: str, axis: int, first: int) -> str:
    """Each result one place further on, and what nothing gives in the first."""
    b, shape, dtype = call.b, call.b.facts[made].shape, call.fact(0).dtype
    count = dim.minimum(shape[axis], 1)  # of an axis without places nothing
    others = shape[axis] - count
    one, rest = (tuple([size if i == axis else n for i, n in enumerate(shape)]) for size in (count, others))
    before = b.slice(made, (0,) * len(shape), rest, (1,) * len(shape))
    return b.concat((b.expand(b.scalar(first, dtype), one), before), axis)


def _hardmax(call: NodeCall) -> Sequence[str]:
    """1 at the first maximum, 0 elsewhere; before opset 13 of the axes from `axis` on as one."""

    def lower(flat: NodeCall) -> str:
        b, fact, axis = flat.b, flat.fact(0), flat.axis()
        places = b.reshape(flat.numbered(fact.shape[axis]), (fact.shape[axis], *[1] * (fact.rank - axis - 1)))
        found = b.apply("equal", places, _place(flat, "row_max", False))
        return flat.converted(found, fact.dtype)

    return (_along_axis(call, lower),)


def _softmax(call: NodeCall) -> Sequence[str]:
    """Along one axis; before opset 13 along the axes from `axis` on as one."""

    def lower(flat: NodeCall) -> str:
        fact = flat.fact(0)
        (made,) = flat.b.rows(composites.softmax(fact.dtype), flat[0], axes=(flat.axis() - fact.rank,))
        return made

    return (_along_axis(call, lower),)


def _log_softmax(call: NodeCall) -> Sequence[str]:
    """Along one axis, as `_softmax`."""

    def lower(flat: NodeCall) -> str:
        (made,) = flat.b.rows(
            composites.log_softmax(flat.fact(0).dtype), flat[0], axes=(flat.axis() - flat.fact(0).rank,)
        )
        return made

    return (_along_axis(call, lower),)


def _along_axis(call: NodeCall, lower: Callable[[NodeCall], str]) -> str:
    """What `lower` makes of input 0, which before opset 13 is a matrix for it, cut before the axis."""
    if call.opset >= 13:
        return lower(call)
    shape, axis = call.fact(0).shape, call.axis()
    flat = call.b.reshape(call[0], (dim.product(shape[:axis]), dim.product(shape[axis:])))
    matrix = NodeCall(call.b, call.node, call.opset, (flat,), {**call.attributes, "axis": 1})
    return call.b.reshape(lower(matrix), shape)


def _layer_norm(call: NodeCall) -> Sequence[str]:
    """Of narrower floats in float32; the mean and its companion stay in that."""
    fact = call.fact(0)
    scales = [call[1], *([call[2]] if call.optional(2) is not None else [])]
    expression = composites.layer_norm_statistics(True, len(scales) == 2, call.attributes["epsilon"], fact.dtype)
    operands = [call.b.fitted(name, fact.shape) for name in scales]
    return call.b.rows(expression, call[0], *operands, axes=tuple(range(call.axis() - fact.rank, 0)))


def _rms_norm(call: NodeCall) -> Sequence[str]:
    """The first stage in float32 and rounded to the input's format, then the product with the scale."""
    b, fact = call.b, call.fact(0)
    axes = tuple(range(call.axis() - fact.rank, 0))
    (y,) = b.rows(composites.rms_norm(False, call.attributes["epsilon"], fact.dtype), call[0], axes=axes)
    return (b.apply("mul", y, b.fitted(call[1], fact.shape)),)


def _group_norm(call: NodeCall) -> Sequence[str]:
    """Each group of channels of each instance is a row."""
    fact, groups = call.fact(0), call.attributes["num_groups"]
    _check_channels(call)
    channels = fact.shape[1]
    if groups < 1 or (isinstance(channels, int) and channels % groups):
        raise Unsupported(f"{channels} channels are no {groups} groups")
    inner = dim.product((dim.floor_divide(channels, groups), *fact.shape[2:]))
    return (_normed_groups(call, (fact.shape[0], groups, inner)),)


def _instance_norm(call: NodeCall) -> Sequence[str]:
    """Each channel of each instance is a row."""
    _check_channels(call)
    shape = call.fact(0).shape
    return (_normed_groups(call, (shape[0], shape[1], dim.product(shape[2:]))),)


def _check_channels(call: NodeCall) -> None:
    if call.fact(0).rank < 2:
        raise Unsupported(f"input 0 has {call.fact(0).rank} axes, the second must be channels")


def _normed_groups(call: NodeCall, groups: SymbolicShape) -> str:
    """fma((x - mean) * rstd, scale, bias), rows along the last axis of `groups`; scale and bias are of channels."""
    b, fact = call.b, call.fact(0)
    for i in (1, 2):
        if call.fact(i).dtype is not fact.dtype:
            raise Unsupported(f"input {i} is {call.fact(i).dtype.name}, must be {fact.dtype.name} as input 0")
    wide = convert.computed(fact.dtype)  # the first stage is not rounded to the input's format
    x = b.reshape(call.converted(call[0], wide), groups)
    y = b.rows(composites.layer_norm_statistics(False, False, call.attributes["epsilon"], wide), x)[0]
    channels = [_per_channel(call, call.converted(call[i], wide)) for i in (1, 2)]
    (made,) = b.map(composites.scaled(wide), b.reshape(y, fact.shape), *channels)
    return call.converted(made, fact.dtype)


def _per_channel(call: NodeCall, x: str) -> str:
    """A vector of one number a channel, as an operand beside input 0."""
    shape = call.b.facts[x].shape
    if len(shape) != 1:
        raise Unsupported(f"one number a channel is given in {len(shape)} axes, must be a vector")
    return call.b.reshape(x, (*shape, *[1] * (call.fact(0).rank - 2)))


def _batch_norm(call: NodeCall) -> Sequence[str]:
    """As in inference: with the mean and the variance that are given, which may be of wider floats than input 0."""
    _check_channels(call)
    fact = call.fact(0)
    for i in range(1, 5):
        if not call.fact(i).dtype.is_float:
            raise Unsupported(f"input {i} is {call.fact(i).dtype.name}, must be floats")
    is_double = any(call.fact(i).dtype is dtypes.float64 for i in range(5))
    wide = dtypes.float64 if is_double else convert.computed(fact.dtype)
    operands = [_per_channel(call, call.converted(call[i], wide)) for i in range(1, 5)]
    expression = composites.batch_norm(call.attributes["epsilon"], wide)
    (made,) = call.b.map(expression, call.converted(call[0], wide), *operands)
    return (call.converted(made, fact.dtype),)


def _lp_norm(call: NodeCall) -> Sequence[str]:
    """x / norm, +0 where the norm is 0; the norm is that of ReduceL1 or ReduceL2."""
    fact, axis = call.fact(0), call.axis() - call.fact(0).rank
    _check_reduction("row_sum", fact.dtype)
    chain = Chain()
    x = composites.taken(chain, fact.dtype)
    if call.attributes["p"] == 1:
        norm = chain.apply("row_sum", chain.apply("abs", x))
    else:
        norm = chain.apply("sqrt", chain.apply("row_sum", chain.apply("mul", x, x)))
    zero = chain.constant(0, x.dtype)
    y = chain.apply("where", chain.apply("equal", norm, zero), zero, chain.apply("div", x, norm))
    return call.b.rows(chain.finish(composites.given(chain, y, fact.dtype)), call[0], axes=(axis,))


_KEEP = Attribute("keepdims", 1, allowed=(0, 1))
_NOOP = Attribute("noop_with_empty_axes", 0, allowed=(0, 1))
_AXES = Attribute("axes", None, "ints")
_EPSILON = Attribute("epsilon", 1e-5, "float")
_STASH = Attribute("stash_type", 1, allowed=(1,))
_FIRST = "a first stage in another format than float32"
_LAST = Attribute("select_last_index", 0, allowed=(0, 1), since=12)

_REDUCTIONS = {
    "ReduceMean": _reduce("row_sum", last="div"),
    "ReduceProd": _reduce("row_prod"),
    "ReduceMax": _reduce("row_max"),
    "ReduceMin": _reduce("row_min"),
    "ReduceL1": _reduce("row_sum", first="abs"),
    "ReduceL2": _reduce("row_sum", first="mul", last="sqrt"),
    "ReduceSumSquare": _reduce("row_sum", first="mul"),
    "ReduceLogSum": _reduce("row_sum", last="log"),
    "ReduceLogSumExp": _log_sum_exp,
}


def _global_lp(call: NodeCall) -> Sequence[str]:
    """ReduceL1 or ReduceL2 over all spatial axes."""
    first, last = ("abs", None) if call.attributes["p"] == 1 else ("mul", "sqrt")
    return _reduce("row_sum", first, last, axes_of=_spatial)(call)


_RUNNING: tuple[tuple[str, int, ScanKind], ...] = (("CumSum", 11, "sum"), ("CumProd", 26, "prod"))
# What nothing has no extreme of.
_NOTHING = "rows without elements"
_LEFT_OUT = dict.fromkeys(("ReduceMax", "ReduceMin", "ReduceLogSumExp"), _NOTHING)
ROWS: tuple[OnnxRow, ...] = (
    OnnxRow("ReduceSum", 1, _reduce("row_sum"), (_KEEP, _AXES), until=12),
    OnnxRow("ReduceSum", 13, _reduce("row_sum"), (_KEEP, _NOOP), inputs=2, limits="axes that depend on data"),
    *(
        OnnxRow(op, since, lower, (_KEEP, attribute), inputs, until, limits or _LEFT_OUT.get(op, ""))
        for op, lower in _REDUCTIONS.items()
        for since, until, inputs, attribute, limits in (
            (1, 17, 1, _AXES, ""),
            (18, LATEST, 2, _NOOP, "axes that depend on data"),
        )
    ),
    *(
        OnnxRow(
            op,
            since,
            _running(kind),
            (Attribute("exclusive", 0, allowed=(0, 1)), Attribute("reverse", 0, allowed=(0, 1))),
            2,
            limits="an axis that depends on data",
        )
        for op, since, kind in _RUNNING
    ),
    OnnxRow("GlobalAveragePool", 1, _reduce("row_sum", last="div", axes_of=_spatial)),
    OnnxRow("GlobalLpPool", 2, _global_lp, (Attribute("p", 2, allowed=(1, 2)),), limits="other norms than 1 and 2"),
    OnnxRow("GlobalMaxPool", 1, _reduce("row_max", axes_of=_spatial), limits=_NOTHING),
    *(
        OnnxRow(op, 1, _extreme_place(row), (Attribute("axis", 0), _KEEP, _LAST), limits=_NOTHING)
        for op, row in (("ArgMax", "row_max"), ("ArgMin", "row_min"))
    ),
    *(
        OnnxRow(op, since, lower, (Attribute("axis", axis),), until=until, limits=limits)
        for op, lower, limits in (
            ("Softmax", _softmax, ""),
            ("LogSoftmax", _log_softmax, ""),
            ("Hardmax", _hardmax, _NOTHING),
        )
        for since, until, axis in ((1, 12, 1), (13, LATEST, -1))
    ),
    OnnxRow("LayerNormalization", 17, _layer_norm, (Attribute("axis", -1), _EPSILON, _STASH), inputs=3, limits=_FIRST),
    OnnxRow("RMSNormalization", 23, _rms_norm, (Attribute("axis", -1), _EPSILON, _STASH), inputs=2, limits=_FIRST),
    OnnxRow(
        "GroupNormalization", 21, _group_norm, (Attribute("num_groups"), _EPSILON, _STASH), inputs=3, limits=_FIRST
    ),
    OnnxRow("InstanceNormalization", 6, _instance_norm, (_EPSILON,), inputs=3),
    OnnxRow(
        "BatchNormalization",
        9,
        _batch_norm,
        (_EPSILON, Attribute("momentum", 0.9, "float"), Attribute("training_mode", 0, allowed=(0,), since=14)),
        inputs=5,
        limits="training",
    ),
    OnnxRow("LpNormalization", 1, _lp_norm, (Attribute("axis", -1), Attribute("p", 2, allowed=(1, 2)))),
)
