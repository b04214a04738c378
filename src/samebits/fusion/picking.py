"""Operations of `fd.ops` along one axis by places that are data: `scatter`, `argsort`, `topk`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from samebits import dtypes
from samebits.errors import FusionError
from samebits.fusion import datatypes, promotion, sizes
from samebits.fusion.datatypes import DataType
from samebits.fusion.graph import Expr, Scalar, TensorView, integer
from samebits.operations.picks import PickAlong, SortedPlaces

if TYPE_CHECKING:
    from samebits.fusion.lowering import Lowering

__all__ = ["LOWERED", "argsort", "scatter", "topk"]


def scatter(arg: TensorView, index: TensorView, src: object, dim: int) -> TensorView:
    """arg, but for the elements at the places that `index` names along an axis, which become src's at the same place
    as the index; of several for one place the last in row-major order stays.

    Args:    index: integers, of arg's rank, no longer than arg along other axes.   src: a tensor no shorter than index,
                cast to arg's format; or a scalar.
    Raises:  FusionError if there is no such axis, ranks differ, or the index holds no integers.
    """
    x, places = sizes.tensor("scatter", "arg", arg), sizes.tensor("scatter", "index", index)
    fusion, given = x.fusion, promotion.as_val("scatter", x.fusion, src)
    place = fusion.axis("scatter", x, dim)
    for name, each in (("index", places), ("src", given)):
        if isinstance(each, TensorView) and each.ndim != x.ndim:
            raise FusionError("scatter", name, "rank", each.ndim, f"{x.ndim} as arg", "reshape it")
    if not datatypes.is_integer(places.dtype):
        raise FusionError("scatter", "index", "dtype", places.dtype, "an integer format", "cast it first")
    return fusion.like(fusion.record("scatter", [x, places, given], dim=place), x)


def argsort(arg: TensorView, dim: int, descending: bool = False, stable: bool = False) -> TensorView:
    """The places of sorted elements along an axis, Int; NaN is above every number. A tensor without axes has place 0.

    Args:    descending: the largest first.   stable: taken, and of no effect: of equal elements the first comes first.
    Raises:  FusionError if there is no such axis.
    """
    x = sizes.tensor("argsort", "arg", arg)
    fusion = x.fusion
    place = fusion.axis("argsort", x, dim) if x.ndim else 0
    if not x.ndim and integer("argsort", "dim", dim) not in (0, -1):
        raise FusionError("argsort", "dim", "", dim, "0 or -1 of no axes", "pass one of them")
    options = {"dim": place, "descending": bool(descending), "stable": bool(stable)}
    return fusion.like(fusion.record("argsort", [x], **options), x, DataType.Int)


def topk(
    arg: TensorView, k: object, dim: int = -1, largest: bool = True, sorted: bool = False
) -> tuple[TensorView, TensorView]:
    """The k largest elements along an axis, or the smallest, and their places, Int.

    Args:    sorted: taken, and of no effect: they come in order, of equal elements the first first.
    Raises:  FusionError if there is no such axis, or k is no integer.
    """
    x = sizes.tensor("topk", "arg", arg)
    fusion, count = x.fusion, promotion.as_val("topk", x.fusion, k)
    place = fusion.axis("topk", x, dim)
    if not isinstance(count, Scalar) or not datatypes.is_integer(count.dtype):
        raise FusionError("topk", "k", "dtype", count.dtype, "an integer format", "pass a count")
    made = fusion.record("topk", [x], k=count, dim=place, largest=bool(largest), sorted=bool(sorted))

    def result(dtype: DataType) -> TensorView:
        axes = [fusion.new_axis(fusion.root(count)) if i == place else fusion.copied(x.axes[i]) for i in range(x.ndim)]
        return fusion.tensor(made, dtype, axes)

    return result(x.dtype), result(DataType.Int)


# -- what they become in a program -------------------------------------------------------------------------------------
def _scatter(low: Lowering, expr: Expr) -> list[str]:
    x, index, *_ = expr.tensors
    *_, src = expr.inputs
    b, data = low.b, low.value(x)
    # Parts of x may be written, which extents that are open do not say.
    for axis in x.axes:
        low.number("scatter", axis.length)
    shape = tuple([low.number("scatter", axis.length) for axis in index.axes])
    updates = low.operand(src, b.facts[data].dtype)
    if isinstance(src, TensorView):
        own = tuple([low.number("scatter", axis.length) for axis in src.axes])
        if any(have < due for have, due in zip(own, shape, strict=True)):
            raise FusionError("scatter", "src", "shape", own, f"at least that of index, {shape}", "pad it")
        updates = b.slice(updates, (0,) * len(shape), shape, (1,) * len(shape))
    else:
        updates = b.expand(updates, shape)
    along = PickAlong(expr.option("dim"))
    return [b.add("scatter_along", (data, low.operand(index, dtypes.int64), updates), along)[0]]


def _argsort(low: Lowering, expr: Expr) -> list[str]:
    (x,) = expr.tensors
    if not x.ndim:
        return [low.b.expand(low.b.scalar(0, dtypes.int64), ())]
    places = SortedPlaces(expr.option("dim"), expr.option("descending"))
    return [low.b.add("order", (low.value(x),), places)[0]]


def _topk(low: Lowering, expr: Expr) -> list[str]:
    (x,) = expr.tensors
    data, dim = low.value(x), expr.option("dim")
    low.number("topk", x.axes[dim].length)
    places = SortedPlaces(dim, expr.option("largest"), low.number("topk", expr.option("k")))
    (found,) = low.b.add("order", (data,), places)
    return [low.b.add("gather_along", (data, found), PickAlong(dim))[0], found]


LOWERED = {"argsort": _argsort, "scatter": _scatter, "topk": _topk}
