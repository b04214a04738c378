"""Operations of `fd.ops` that take elements by index."""

from __future__ import annotations

from typing import TYPE_CHECKING

from samebits import dtypes
from samebits.errors import FusionError
from samebits.fusion import datatypes, promotion, sizes
from samebits.fusion.elementwise import matched
from samebits.fusion.graph import Argument, Expr, Scalar, TensorAxis, TensorView
from samebits.fusion.shaping import expand
from samebits.kernels import composites
from samebits.operations.picks import PickAlong

if TYPE_CHECKING:
    from samebits.fusion.lowering import Lowering

__all__ = ["LOWERED", "embedding_fwd", "gather", "index_select", "select", "take_along_axis"]


def index_select(arg: TensorView, index: TensorView, dim: int) -> TensorView:
    """The places `index` of an axis; an index without axes takes one place, and the axis stays.

    Raises:  FusionError if there is no such axis, or the index has two axes or more, or holds no integers.
    """
    x, places = sizes.tensor("index_select", "arg", arg), sizes.tensor("index_select", "index", index)
    fusion, place = x.fusion, x.fusion.axis("index_select", x, dim)
    if places.ndim > 1:
        raise FusionError("index_select", "index", "rank", places.ndim, "0 or 1", "reshape it")
    _check_index("index_select", places)
    made = fusion.record("index_select", [x, places], dim=place)
    taken = places.axes[0].length if places.ndim else fusion.constant(1)
    axes = [fusion.new_axis(taken) if i == place else fusion.copied(axis) for i, axis in enumerate(x.axes)]
    return fusion.tensor(made, x.dtype, axes)


def select(arg: TensorView, index: object, dim: int) -> TensorView:
    """One place of an axis, which goes away.

    Raises:  FusionError if there is no such axis, or the index is no integer.
    """
    x = sizes.tensor("select", "arg", arg)
    fusion, place = x.fusion, x.fusion.axis("select", x, dim)
    at = promotion.as_val("select", fusion, index)
    if not isinstance(at, Scalar) or not datatypes.is_integer(at.dtype):
        raise FusionError("select", "index", "dtype", at.dtype, "a scalar of an integer format", "use index_select")
    made = fusion.record("select", [x, at], dim=place)
    return fusion.tensor(made, x.dtype, [fusion.copied(axis) for i, axis in enumerate(x.axes) if i != place])


def embedding_fwd(
    input: TensorView,
    weight: TensorView,
    padding_idx: Scalar | None = None,
    max_norm: Scalar | None = None,
    norm_type: Scalar | None = None,
    scale_grad_by_freq: Scalar | None = None,
    sparse: Scalar | None = None,
) -> TensorView:
    """The rows of a table that `input` names.

    Args:
        input: Integers [...].
        weight: The table [N, E].
        padding_idx: Taken, and of no effect on what is computed, as torch has it.
        max_norm: Where a row's norm is greater it is multiplied by `max_norm / (norm + 1e-7)`; the table stays.
        norm_type: The p of the norm, `sum(|x|^p)^(1/p)`; default 2.
        scale_grad_by_freq: Taken, and of no effect: it concerns gradients.
        sparse: Taken, and of no effect: it concerns gradients.

    Raises:  FusionError unless input holds integers, and weight has two axes.
    """
    index, table = sizes.tensor("embedding_fwd", "input", input), sizes.tensor("embedding_fwd", "weight", weight)
    fusion = index.fusion
    _check_index("embedding_fwd", index)
    if table.ndim != 2:
        raise FusionError("embedding_fwd", "weight", "rank", table.ndim, "2", "reshape it to [N, E]")
    given = {"padding_idx": padding_idx, "max_norm": max_norm, "norm_type": norm_type,
             "scale_grad_by_freq": scale_grad_by_freq, "sparse": sparse}  # fmt: skip
    options: dict[str, Argument] = {
        name: promotion.as_val("embedding_fwd", fusion, x) for name, x in given.items() if x is not None
    }
    made = fusion.record("embedding_fwd", [index, table], **options)
    axes = [*[fusion.copied(axis) for axis in index.axes], fusion.copied(table.axes[1])]
    return fusion.tensor(made, table.dtype, axes)


def gather(arg: TensorView, index: TensorView, dim: int) -> TensorView:
    """Element i of the result is arg's at i, but for the place along an axis, which `index` has at i.

    Raises:  FusionError if there is no such axis, ranks differ, or the index holds no integers.
    """
    return _picked("gather", *_operands("gather", arg, index, dim))


def take_along_axis(arg: TensorView, index: TensorView, dim: int) -> TensorView:
    """As `gather`, by NumPy's name: along the other axes arg and index broadcast.

    Raises:  FusionError if there is no such axis, ranks or other extents that are known differ, or the index holds no
        integers.
    """
    x, places, place = _operands("take_along_axis", arg, index, dim)
    pairs = list(zip(x.shape(), places.shape(), strict=True))
    for i in range(x.ndim):
        if i != place:
            pairs[i] = (_common(x.axes[i], places.axes[i], i - x.ndim),) * 2
    x, places = expand(x, [a for a, _ in pairs]), expand(places, [b for _, b in pairs])
    return _picked("take_along_axis", x, places, place)


def _common(a: TensorAxis, b: TensorAxis, place: int) -> Scalar:
    """The extent that two axes broadcast to."""
    wide = [axis.length for axis in (a, b) if not axis.is_broadcast or axis.expanded is not None]
    if len(wide) < 2:
        return wide[0] if wide else a.length
    return matched("take_along_axis", wide[0].fusion, place, *wide)


def _operands(call: str, arg: object, index: object, dim: object) -> tuple[TensorView, TensorView, int]:
    x, places = sizes.tensor(call, "arg", arg), sizes.tensor(call, "index", index)
    place = x.fusion.axis(call, x, dim)
    if places.ndim != x.ndim:
        raise FusionError(call, "index", "rank", places.ndim, f"{x.ndim} as arg", "reshape it")
    _check_index(call, places)
    return x, places, place


def _picked(call: str, x: TensorView, places: TensorView, place: int) -> TensorView:
    fusion = x.fusion
    made = fusion.record(call, [x, places], dim=place)
    return fusion.tensor(made, x.dtype, [fusion.new_axis(axis.length) for axis in places.axes])


def _check_index(call: str, index: TensorView) -> None:
    """Raise FusionError unless it holds integers."""
    if not datatypes.is_integer(index.dtype):
        raise FusionError(call, "index", "dtype", index.dtype, "an integer format", "cast it first")


# -- what they become in a program -------------------------------------------------------------------------------------
def _index_select(low: Lowering, expr: Expr) -> list[str]:
    x, index = expr.tensors
    places = low.operand(index, dtypes.int64)
    if not index.ndim:
        places = low.b.reshape(places, (1,))
    return [low.b.gather(low.value(x), places, expr.option("dim"))]


def _select(low: Lowering, expr: Expr) -> list[str]:
    x, index = expr.inputs
    place = low.operand(index, dtypes.int64)
    return [low.b.gather(low.value(x), place, expr.option("dim"))]


def _embedding(low: Lowering, expr: Expr) -> list[str]:
    index, table = expr.tensors
    rows = low.b.gather(low.value(table), low.operand(index, dtypes.int64), 0)
    limit = expr.option("max_norm")
    if limit is None:
        return [rows]
    b, dtype = low.b, low.b.facts[rows].dtype
    wide = dtypes.float64 if dtype is dtypes.float64 else dtypes.float32
    x, most = b.cast(rows, wide), low.operand(limit, wide)
    p = expr.option("norm_type")
    power = b.scalar(2, wide) if p is None else low.operand(p, wide)
    terms = b.apply("pow", b.apply("abs", x), power)
    total = b.rows(composites.reduction("row_sum", wide), terms)[0]
    norm = b.apply("pow", total, b.apply("reciprocal", power))
    scaled = b.apply("mul", x, b.apply("div", most, b.apply("add", norm, b.scalar(1e-7, wide))))
    made = b.apply("where", b.apply("greater", norm, most), scaled, x)
    return [b.as_dtype(made, dtype)]


def _gather(low: Lowering, expr: Expr) -> list[str]:
    x, index = expr.tensors
    along = expr.option("dim")
    for place, (own, its) in enumerate(zip(x.axes, index.axes, strict=True)):
        if place != along and low.size(own.length) != low.size(its.length):
            # The index may be shorter, which extents that are open do not say.
            low.number("gather", own.length)
            low.number("gather", its.length)
    return [low.b.add("gather_along", (low.value(x), low.operand(index, dtypes.int64)), PickAlong(along))[0]]


LOWERED = {
    "gather": _gather,
    "take_along_axis": _gather,
    "embedding_fwd": _embedding,
    "index_select": _index_select,
    "select": _select,
}
