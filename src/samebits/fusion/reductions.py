"""Operations of `fd.ops` over axes: sums, extremes, variances, each in the order of numerics.md section 6."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING

from samebits.dtypes import DType
from samebits.errors import FusionError
from samebits.fusion import datatypes, sizes
from samebits.fusion.datatypes import DataType
from samebits.fusion.elementwise import define
from samebits.fusion.graph import Argument, Expr, TensorView, integer
from samebits.fusion.promotion import cast
from samebits.fusion.shaping import broadcast, squeeze
from samebits.kernels import composites
from samebits.kernels.composites import given, taken
from samebits.kernels.expression import Chain, Expression
from samebits.kernels.scan import ScanKind
from samebits.operations import dim as dim_
from samebits.operations.scans import Along

if TYPE_CHECKING:
    from samebits.fusion.lowering import Lowering

__all__ = [
    "LOWERED", "cummax", "cummin", "cumprod", "cumsum", "max", "min", "prod", "sum", "var", "var_mean", "welford",
]  # fmt: skip

Dims = int | Sequence[int] | None


def sum(
    arg: TensorView, dims: Dims | DataType = None, keepdim: bool = False, dtype: DataType = DataType.Null,
    *, dim: Dims = None,
) -> TensorView:  # fmt: skip
    """The sum along axes, all of them where none is named.

    Args:
        arg: A tensor.
        dims: The axes; a DataType in this place is `dtype`.
        keepdim: Whether the axes stay, with extent 1.
        dtype: What is summed in: arg's own format, Int of integers and truths.
        dim: Another name for `dims`.

    Raises:  FusionError if there is no such axis.
    """
    return _reduced("sum", arg, dims if dim is None else dim, keepdim, dtype)


def prod(
    arg: TensorView, dims: Dims | DataType = None, keepdim: bool = False, dtype: DataType = DataType.Null,
    *, dim: Dims = None,
) -> TensorView:  # fmt: skip
    """The product along axes. Arguments and errors as `sum` has them."""
    return _reduced("prod", arg, dims if dim is None else dim, keepdim, dtype)


def max(
    arg: TensorView, dims: Dims | DataType = None, keepdim: bool = False, dtype: DataType = DataType.Null,
    *, dim: Dims = None,
) -> TensorView:  # fmt: skip
    """The largest along axes; NaN where one is NaN.

    Args:    as `sum` has them, but for dtype, which stays Null.
    Raises:  FusionError if there is no such axis, or a dtype is given.
    """
    return _reduced("max", arg, dims if dim is None else dim, keepdim, dtype)


def min(
    arg: TensorView, dims: Dims | DataType = None, keepdim: bool = False, dtype: DataType = DataType.Null,
    *, dim: Dims = None,
) -> TensorView:  # fmt: skip
    """The smallest along axes; NaN where one is NaN. Arguments and errors as `max` has them."""
    return _reduced("min", arg, dims if dim is None else dim, keepdim, dtype)


def _reduced(op: str, arg: object, dims: object, keepdim: bool, dtype: DataType) -> TensorView:
    x = sizes.tensor(op, "arg", arg)
    if isinstance(dims, DataType):
        dtype, dims = dims, None
    if dtype is not DataType.Null:
        datatypes.row_of(op, "dtype", dtype)
        if op in ("max", "min"):
            raise FusionError(op, "dtype", "", dtype, "DataType.Null", "cast the result")
    elif op not in ("max", "min") and not datatypes.is_float(x.dtype):
        dtype = DataType.Int
    if dtype is not DataType.Null:
        x = cast(x, dtype)  # type: ignore[assignment]  # a tensor stays one
    return reduced(op, x, axes_of(op, x, dims), keepdim, dtype)


def axes_of(op: str, x: TensorView, dims: object) -> list[int]:
    """The axes that a reduction is over.

    Raises:  FusionError if there is no such axis, or an empty list is given.
    """
    found = list(range(x.ndim)) if dims is None else sizes.indices(op, x, dims) if x.ndim else []
    if not found and x.ndim:
        raise FusionError(op, "dims", "", "empty", "at least one axis", "leave dims out for all of them")
    return found


def reduced(op: str, x: TensorView, axes: Sequence[int], keepdim: bool, dtype: DataType) -> TensorView:
    """x reduced along axes: those of extent 1 that are not repeated are squeezed, which changes no element."""
    fusion = x.fusion
    single = [place for place in axes if x.axes[place].is_broadcast and x.axes[place].expanded is None]
    rest = [place for place in axes if place not in single]
    if not axes:
        return define("set", x)  # type: ignore[return-value]  # of a tensor it is a tensor
    made = squeeze(x, single) if single else x
    if rest:
        moved = [place - len([each for each in single if each < place]) for place in rest]
        options: dict[str, Argument] = {"dims": moved}
        if op not in ("max", "min"):
            options["dtype"] = x.dtype if dtype is DataType.Null else dtype
        made = _result(fusion.record(op, [made], **options), made, moved, x.dtype)
    return broadcast(made, [place in axes for place in range(x.ndim)]) if keepdim else made


def _result(expr: Expr, x: TensorView, gone: Sequence[int], dtype: DataType) -> TensorView:
    """A new output of an operation, which reduces axes of x: they are printed, and no axes of it."""
    fusion = x.fusion
    printed = [
        fusion.new_axis(axis.length, reduced=True) if place in gone else fusion.copied(axis)
        for place, axis in enumerate(x.axes)
    ]
    return fusion.tensor(expr, dtype, [axis for axis in printed if not axis.is_reduced], printed)


def welford(arg: TensorView, dims: Sequence[int]) -> tuple[TensorView, TensorView, TensorView]:
    """Along axes the mean, the sum of squared differences from it, and the count: two passes, as var has them.

    Raises:  FusionError if there is no such axis.
    """
    x = sizes.tensor("welford", "arg", arg)
    fusion, axes = x.fusion, axes_of("welford", x, dims)
    expr = fusion.record("welford", [x], dims=axes)
    mean, square = (_result(expr, x, axes, x.dtype) for _ in range(2))
    return mean, square, _result(expr, x, axes, DataType.Int)


def var(arg: TensorView, dims: Sequence[int], correction: int = 1, keepdim: bool = False) -> TensorView:
    """The variance along axes: squared differences from the mean, over the count less the correction.

    Raises:  FusionError if there is no such axis, or the correction is negative.
    """
    return var_mean(arg, dims, correction, keepdim)[0]


def var_mean(
    arg: TensorView, dims: Sequence[int], correction: int = 1, keepdim: bool = False
) -> tuple[TensorView, TensorView]:
    """The variance and the mean along axes.

    Raises:  FusionError if there is no such axis, or the correction is negative.
    """
    x = sizes.tensor("var_mean", "arg", arg)
    if integer("var_mean", "correction", correction) < 0:
        raise FusionError("var_mean", "correction", "", correction, "0 or more", "give 0 or 1")
    if not datatypes.is_float(x.dtype) or datatypes.needs_float(x.dtype):
        expected = "DataType.Float or DataType.Double"
        raise FusionError("var_mean", "arg", "dtype", x.dtype, expected, "cast it first")
    fusion, axes = x.fusion, axes_of("var_mean", x, dims)
    expr = fusion.record("var_mean", [x], dims=axes, correction=correction)
    made, mean = (_result(expr, x, axes, x.dtype) for _ in range(2))
    if not keepdim:
        return made, mean
    flags = [place in axes for place in range(x.ndim)]
    return broadcast(made, flags), broadcast(mean, flags)


def cumsum(arg: TensorView, dim: int) -> TensorView:
    """Sums that run along an axis, from its first element on. Integers wrap in their format.

    Raises:  FusionError if there is no such axis.
    """
    return _scanned("cumsum", arg, dim)


def cumprod(arg: TensorView, dim: int) -> TensorView:
    """Products that run along an axis, from its first element on. Integers wrap in their format. Errors as `cumsum`."""
    return _scanned("cumprod", arg, dim)


def cummin(arg: TensorView, dim: int) -> TensorView:
    """The smallest so far along an axis; NaN from the first one on. Errors as `cumsum`."""
    return _scanned("cummin", arg, dim)


def cummax(arg: TensorView, dim: int) -> TensorView:
    """The largest so far along an axis; NaN from the first one on. Errors as `cumsum`."""
    return _scanned("cummax", arg, dim)


def _scanned(op: str, arg: object, dim: int) -> TensorView:
    x = sizes.tensor(op, "arg", arg)
    fusion, place = x.fusion, x.fusion.axis(op, x, dim)
    return fusion.like(fusion.record(op, [x], dim=place), x)


# -- what they become in a program -------------------------------------------------------------------------------------
_OPS = {"sum": "row_sum", "prod": "row_prod", "max": "row_max", "min": "row_min"}


def _reduce(low: Lowering, expr: Expr) -> list[str]:
    dims = expr.option("dims")
    name = low.value(expr.args[0])
    fact = low.b.facts[name]
    made = low.b.rows(composites.reduction(_OPS[expr.op], fact.dtype), name, axes=_negative(dims, fact.rank))[0]
    return [_without(low, low.b.as_dtype(made, fact.dtype), dims)]


def _negative(dims: Sequence[int], rank: int) -> tuple[int, ...]:
    return tuple(place - rank for place in dims)


def _without(low: Lowering, name: str, dims: Sequence[int]) -> str:
    """The value without axes of extent 1; `broadcast` that puts them back takes the value itself."""
    kept = [each for place, each in enumerate(low.b.facts[name].shape) if place not in dims]
    made = low.b.reshape(name, tuple(kept))
    low.wide[made] = name, tuple(dims)
    return made


@functools.cache
def _moments(dtype: DType) -> Expression:
    """Each row's mean, sum of squared differences from it, and count."""
    chain = Chain()
    x = taken(chain, dtype)
    count = chain.count(x.dtype)
    mean = chain.apply("div", chain.apply("row_sum", x), count)
    d = chain.apply("sub", x, mean)
    total = chain.apply("row_sum", chain.apply("mul", d, d))
    return chain.finish(given(chain, mean, dtype), given(chain, total, dtype))


def _welford(low: Lowering, expr: Expr) -> list[str]:
    (x,) = expr.tensors
    dims, name = expr.option("dims"), low.value(x)
    fact = low.b.facts[name]
    made = low.b.rows(_moments(fact.dtype), name, axes=_negative(dims, fact.rank))
    mean, square = (_without(low, each, dims) for each in made)
    count = low.b.dims((dim_.product([fact.shape[place] for place in dims]),), scalar=True)
    return [mean, square, low.b.expand(count, low.b.facts[mean].shape)]


def _var_mean(low: Lowering, expr: Expr) -> list[str]:
    dims, name = expr.option("dims"), low.value(expr.args[0])
    fact = low.b.facts[name]
    expression = composites.var_mean(float(expr.option("correction")), fact.dtype)
    made = low.b.rows(expression, name, axes=_negative(dims, fact.rank))
    return [_without(low, each, dims) for each in made]


def _scan(low: Lowering, expr: Expr) -> list[str]:
    name = low.value(expr.args[0])
    fact = low.b.facts[name]
    made = low.b.add("scan", (name,), Along(_SCANS[expr.op], expr.option("dim")))[0]
    return [low.b.as_dtype(made, fact.dtype)]


_SCANS: dict[str, ScanKind] = {"cumsum": "sum", "cumprod": "prod", "cummin": "min", "cummax": "max"}
LOWERED = {
    **dict.fromkeys(_OPS, _reduce), **dict.fromkeys(_SCANS, _scan), "var_mean": _var_mean, "welford": _welford,
}  # fmt: skip
