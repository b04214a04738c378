"""Operations of `fd.ops` that move elements, and no more: shapes, parts, joins.

Each function defines one; `LOWERED` says what it becomes in a program.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from samebits.errors import FusionError
from samebits.fusion import datatypes, promotion, sizes
from samebits.fusion.datatypes import DataType
from samebits.fusion.elementwise import define
from samebits.fusion.graph import Argument, Expr, Scalar, TensorAxis, TensorView, Val, integer
from samebits.operations import dim
from samebits.operations.dim import Size

if TYPE_CHECKING:
    from samebits.fusion.lowering import Lowering

__all__ = ["LOWERED", "broadcast", "broadcast_in_dim", "cast", "cat", "expand", "pad", "permute", "reshape", "shape",
           "size", "slice", "squeeze", "stride_order"]  # fmt: skip


def cast(arg: object, dtype: DataType) -> Val:
    """arg in another format, rounded once; a copy where it has that format.

    Raises:  FusionError if either is none.
    """
    datatypes.row_of("cast", "dtype", dtype)
    dtype = DataType.Int if dtype is DataType.Index else dtype
    x = promotion.as_val("cast", promotion.fusion_of("cast", arg), arg)
    if isinstance(x, Scalar) and x.value is not None:
        return x.fusion.constant(promotion.number_as(x.value, x.dtype, dtype), dtype) if x.dtype is not dtype else x
    return define("set", x) if x.dtype is dtype else promotion.cast(x, dtype)


def broadcast(arg: TensorView, is_broadcast_dim: Sequence[bool]) -> TensorView:
    """arg with a broadcast axis wherever `is_broadcast_dim` is true.

    Raises:  FusionError unless the others are as many as arg's axes.
    """
    x = sizes.tensor("broadcast", "arg", arg)
    flags = [bool(flag) for flag in sizes.listed("broadcast", "is_broadcast_dim", is_broadcast_dim)]
    sizes.counted("broadcast", [flag for flag in flags if not flag], x.ndim, "false entries of is_broadcast_dim")
    if not any(flags):
        return x
    fusion = x.fusion
    made, axes = fusion.record("broadcast", [x], is_broadcast_dim=flags), iter(x.axes)
    return fusion.tensor(
        made, x.dtype, [fusion.new_axis(fusion.constant(1)) if flag else fusion.copied(next(axes)) for flag in flags]
    )


def expand(arg: TensorView, shape: Sequence[int | Scalar]) -> TensorView:
    """arg with its broadcast axes repeated to a shape; -1 keeps an extent, axes that lack are put in front.

    Raises:  FusionError if another axis has another extent.
    """
    x = sizes.tensor("expand", "arg", arg)
    fusion = x.fusion
    wanted = sizes.sequence("expand", fusion, shape)
    if len(wanted) < x.ndim:
        raise FusionError("expand", "shape", "rank", len(wanted), f"at least {x.ndim}", "name every axis")
    if len(wanted) > x.ndim:
        x = broadcast(x, [place < len(wanted) - x.ndim for place in range(len(wanted))])
    kept = [axis.length if size.value == -1 else size for axis, size in zip(x.axes, wanted, strict=True)]
    grown = [_grown(x, axis, size) for axis, size in zip(x.axes, kept, strict=True)]
    if not any(grown):
        return x
    made = fusion.record("expand", [x], shape=kept)
    axes = [
        fusion.new_axis(fusion.constant(1), expanded=size)
        if is_grown and axis.is_broadcast
        else fusion.new_axis(size)
        if is_grown
        else fusion.copied(axis)
        for axis, size, is_grown in zip(x.axes, kept, grown, strict=True)
    ]
    return fusion.tensor(made, x.dtype, axes)


def _grown(x: TensorView, axis: TensorAxis, size: Scalar) -> bool:
    """Whether an axis is repeated to an extent; else its own is that extent.

    An extent that is computed, as that of a part is, may turn out to be 1: then the axis is repeated in the run.

    Raises:  FusionError if it has another one.
    """
    fusion = x.fusion
    if axis.is_broadcast and axis.expanded is None:
        return fusion.root(size).value != 1
    a, b = fusion.root(axis.length).value, fusion.root(size).value
    if a is not None and b is not None and a != b:
        raise FusionError("expand", "size", "", b, f"{a}, the extent of axis {axis}", "give that one, or -1")
    if fusion.root(axis.length).definition is not None:
        return fusion.root(axis.length) is not fusion.root(size)
    fusion.same(axis.length, size)
    return False


def broadcast_in_dim(arg: TensorView, shape: Sequence[int | Scalar], broadcast_dims: Sequence[int]) -> TensorView:
    """arg's axes at the places `broadcast_dims` of a shape, repeated along all others.

    Raises:  FusionError if there are not as many places as axes, or one is named twice.
    """
    x = sizes.tensor("broadcast_in_dim", "arg", arg)
    wanted = sizes.sequence("broadcast_in_dim", x.fusion, shape)
    named = sizes.listed("broadcast_in_dim", "broadcast_dims", broadcast_dims)
    sizes.counted("broadcast_in_dim", named, x.ndim, "broadcast_dims")
    places: list[int] = []
    for place in [integer("broadcast_in_dim", "broadcast_dims", each) for each in named]:
        if not -len(wanted) <= place < len(wanted) or place % len(wanted) in places:
            expected = f"different places of a rank of {len(wanted)}"
            raise FusionError("broadcast_in_dim", "broadcast_dims", "", named, expected, "name others")
        places.append(place % len(wanted))
    return expand(broadcast(x, [place not in places for place in range(len(wanted))]), wanted)


def reshape(arg: TensorView, new_shape: Sequence[int | Scalar]) -> TensorView:
    """arg's elements, row-major, under another shape, of which one extent may be -1: what the others leave.

    Raises:  FusionError if two are -1, or the shape has another number of elements.
    """
    x = sizes.tensor("reshape", "arg", arg)
    fusion = x.fusion
    wanted = sizes.sequence("reshape", fusion, new_shape)
    whole = sizes.product(fusion, x.shape())
    open_ = [place for place, each in enumerate(wanted) if each.value == -1]
    if len(open_) > 1:
        raise FusionError("reshape", "new_shape", "count of -1", len(open_), "at most 1", "give the others a size")
    if open_:
        rest = sizes.product(fusion, [each for each in wanted if each.value != -1])
        if rest.value == 0 or (whole.value is not None and rest.value is not None and whole.value % rest.value):
            actual, expected = f"-1 beside {rest.value} elements", f"what divides {whole} elements"
            raise FusionError("reshape", "new_shape", "", actual, expected, "give another shape")
        wanted[open_[0]] = sizes.quotient(whole, rest)
    had = sizes.product(fusion, wanted)
    if None not in (whole.value, had.value) and whole.value != had.value:
        expected = f"the {whole.value} of arg"
        raise FusionError("reshape", "new_shape", "elements", had.value, expected, "give another shape")
    made = fusion.record("reshape", [x], new_shape=wanted)
    return fusion.tensor(made, x.dtype, [fusion.new_axis(fusion.root(size)) for size in wanted])


def permute(arg: TensorView, dims: Sequence[int]) -> TensorView:
    """TensorAxis i of the result is axis dims[i] of arg.

    Raises:  FusionError unless each axis is named once.
    """
    x = sizes.tensor("permute", "arg", arg)
    fusion = x.fusion
    named = sizes.listed("permute", "dims", dims)
    sizes.counted("permute", named, x.ndim, "dims")
    sizes.indices("permute", x, named)
    order = [fusion.axis("permute", x, each) for each in named]
    made = fusion.record("permute", [x], dims=order)
    return fusion.tensor(made, x.dtype, [fusion.copied(x.axes[place]) for place in order])


def squeeze(arg: TensorView, dims: Sequence[int], squeeze_expanded: bool = False) -> TensorView:
    """arg without axes of extent 1; with `squeeze_expanded` without repeated ones, too.

    Raises:  FusionError if an axis has another extent.
    """
    x = sizes.tensor("squeeze", "arg", arg)
    fusion, gone = x.fusion, sizes.indices("squeeze", x, dims)
    for place in gone:
        axis = x.axes[place]
        length = fusion.root(axis.length).value
        if not axis.is_broadcast and length not in (None, 1):
            raise FusionError("squeeze", f"axis {place}", "extent", length, "1", "leave it out of dims")
        if axis.expanded is not None and not squeeze_expanded:
            expected, remedy = "a broadcast axis that is not repeated", "pass squeeze_expanded=True"
            raise FusionError("squeeze", f"axis {place}", "", "repeated", expected, remedy)
    options: dict[str, Argument] = {"dims": gone}
    if any(x.axes[place].expanded is not None for place in gone):
        options["squeeze_expanded"] = True
    made = fusion.record("squeeze", [x], **options)
    return fusion.tensor(made, x.dtype, [fusion.copied(axis) for place, axis in enumerate(x.axes) if place not in gone])


def slice(
    arg: TensorView,
    start_indices: Sequence[int | Scalar],
    end_indices: Sequence[int | Scalar],
    strides: Sequence[int | Scalar] | None = None,
    manual_normalization: bool = False,
) -> TensorView:
    """The elements from start to end along each axis; an end beyond the extent is the extent.

    Args:
        arg: A tensor.
        start_indices: Where each axis begins, 0 or more.
        end_indices: Where each axis ends.
        strides: All 1, as nvFuser has them.
        manual_normalization: Taken, and of no effect: bounds are brought within the extents in any case.

    Raises:  FusionError if there are not as many as axes, or a part ends before it starts.
    """
    x = sizes.tensor("slice", "arg", arg)
    fusion = x.fusion
    starts = sizes.sequence("slice", fusion, start_indices, least=-(2**63))
    ends = sizes.sequence("slice", fusion, end_indices, least=-(2**63))
    steps = sizes.sequence("slice", fusion, [1] * len(starts) if strides is None else strides, least=-(2**63))
    _check_slice(x, starts, ends, steps)
    made = fusion.record("slice", [x], start_indices=starts, end_indices=ends, strides=steps, manual_normalization=True)
    axes = [_part(axis, start, end) for axis, start, end in zip(x.axes, starts, ends, strict=True)]
    return fusion.tensor(made, x.dtype, axes)


def _check_slice(x: TensorView, starts: list[Scalar], ends: list[Scalar], steps: list[Scalar]) -> None:
    """Raise FusionError, with nvFuser's words at its end, unless bounds are those of a part of x."""
    counts = [
        ("strides", len(steps), len(starts), "Slice start_indices and strides don't match!"),
        ("start_indices", len(starts), x.ndim, "Number of tensor dimensions does not match slice dimensions!"),
        ("end_indices", len(ends), len(starts), "Slice indexing attribute dimensions don't match!"),
    ]
    for what, count, expected, words in counts:
        if count != expected:
            raise FusionError("slice", what, "count", count, f"{expected}, one for each axis", f"give all: {words}")
    for start, end, step in zip(starts, ends, steps, strict=True):
        if start.value is not None and start.value < 0:
            words = "Slice operation start_indices must be greater than or equal to 0."
            raise FusionError("slice", "start_indices", "", start, "0 or more", f"count from the front: {words}")
        if start.value is not None and end.value is not None and end.value < start.value:
            words = "Slice operation end_indices must be greater than or equal to start_indices."
            raise FusionError("slice", "end_indices", "", end, f"at least the start, {start}", f"swap them: {words}")
        if step.value != 1:
            words = "nvFuser Limitation: All slice operation strides must be of const size 1."
            raise FusionError("slice", "strides", "", step, "1", f"leave strides out: {words}")


def _part(axis: TensorAxis, start: Scalar, end: Scalar) -> TensorAxis:
    """The axis of a part of another."""
    fusion, whole = start.fusion, axis.length
    zero = fusion.constant(0)
    stop = whole if fusion.root(end) is fusion.root(whole) else sizes.clamp(end, zero, whole)
    first = start if start.value == 0 else sizes.clamp(start, zero, stop)
    size = sizes.subtract(stop, first)
    if axis.expanded is not None:
        return fusion.new_axis(fusion.constant(1), expanded=size)
    return fusion.new_axis(size)


def pad(arg: TensorView, pad_widths: Sequence[int | Scalar], value: object = None) -> TensorView:
    """arg with so many elements of `value` before and after each axis, the last axis first; a negative width cuts.

    Raises:  FusionError unless there are two widths for each of the last axes.
    """
    x = sizes.tensor("pad", "arg", arg)
    fusion = x.fusion
    widths = sizes.sequence("pad", fusion, pad_widths, least=-(2**63))
    if len(widths) % 2 or len(widths) > 2 * x.ndim:
        expected = f"an even number, at most {2 * x.ndim}"
        raise FusionError("pad", "pad_widths", "count", len(widths), expected, "give two for each axis")
    fill = fusion.constant(promotion.converted("pad", 0, x.dtype), x.dtype)
    if value is not None:
        fill = _alike("pad", x, value)
    options: dict[str, Argument] = {"pad_widths": widths} | ({} if value is None else {"value": fill})
    made, axes = fusion.record("pad", [x], **options), []
    for place, axis in enumerate(x.axes):
        pair = 2 * (x.ndim - 1 - place)
        if pair >= len(widths) or all(width.value == 0 for width in widths[pair : pair + 2]):
            axes.append(fusion.copied(axis))
        else:
            before, after = widths[pair : pair + 2]
            axes.append(fusion.new_axis(sizes.add(sizes.add(axis.length, before), after)))
    return fusion.tensor(made, x.dtype, axes)


def _alike(call: str, x: TensorView, value: object) -> Scalar:
    """A scalar of the same kind (truth, integer, float) as a tensor's elements.

    Raises:  FusionError if it is none.
    """
    found = promotion.as_val(call, x.fusion, value)
    kinds = [(datatypes.is_float(each.dtype), each.dtype is DataType.Bool) for each in (x, found)]
    if not isinstance(found, Scalar) or kinds[0] != kinds[1]:
        raise FusionError(call, "value", "dtype", found.dtype, f"of the kind of {x.dtype}", "cast it first")
    return found


def cat(tensors: Sequence[TensorView], dim: int = 0, manual_padding: bool = False) -> TensorView:
    """Tensors of one format one after the other along an axis.

    Args:
        tensors: At least one.
        dim: The axis.
        manual_padding: Taken, and of no effect.

    Raises:  FusionError if formats or ranks differ, or other extents are known to.
    """
    given = [sizes.tensor("cat", "tensors", x) for x in sizes.listed("cat", "tensors", tensors)]
    if not given:
        raise FusionError("cat", "tensors", "count", 0, "at least 1", "give one")
    first = given[0]
    fusion, place = first.fusion, first.fusion.axis("cat", first, dim)
    for x in given[1:]:
        if x.dtype is not first.dtype:
            raise FusionError("cat", "tensors", "dtype", x.dtype, f"{first.dtype} as the first", "cast it first")
        if x.ndim != first.ndim:
            raise FusionError("cat", "tensors", "rank", x.ndim, f"{first.ndim} as the first", "reshape it first")
    if len(given) == 1:
        return define("set", first)  # type: ignore[return-value]  # of a tensor it is a tensor
    axes = []
    for number in range(first.ndim):
        total = given[0].axes[number].length
        for x in given[1:]:
            if number == place:
                total = sizes.add(total, x.axes[number].length)
            else:
                total = _equal(x, number, total)
        axes.append(fusion.new_axis(fusion.root(total)))
    made = fusion.record("cat", [list(given)], dim=place, manual_padding=True)
    return fusion.tensor(made, first.dtype, axes)


def _equal(x: TensorView, number: int, size: Scalar) -> Scalar:
    fusion = x.fusion
    a, b = fusion.root(x.axes[number].length).value, fusion.root(size).value
    if a is not None and b is not None and a != b:
        raise FusionError("cat", "tensors", f"extent {number}", a, f"{b} as the first", "pad or slice it")
    return fusion.same(x.axes[number].length, size)


def size(arg: TensorView, dim: int) -> Scalar:
    """The extent of an axis, which may be counted from the end.

    Raises:  FusionError if there is no such axis; FusionTypeError if arg is no tensor.
    """
    return sizes.tensor("size", "arg", arg).size(dim)


def shape(arg: TensorView) -> list[Scalar]:
    """The extents of all axes.

    Raises:  FusionTypeError if arg is no tensor.
    """
    return sizes.tensor("shape", "arg", arg).shape()


def stride_order(arg: TensorView, stride_order: Sequence[int]) -> TensorView:
    """arg, which lies so where it is an output: entry i says how many axes vary faster than axis i.

    Raises:  FusionError unless each number below the rank stands in it once.
    """
    x = sizes.tensor("stride_order", "arg", arg)
    fusion = x.fusion
    named = sizes.listed("stride_order", "stride_order", stride_order)
    if not named:
        return define("set", x)  # type: ignore[return-value]  # of a tensor it is a tensor
    sizes.counted("stride_order", named, x.ndim, "stride_order")
    sizes.indices("stride_order", x, named)
    order = [each % x.ndim for each in named]
    made = fusion.record("stride_order", [x], stride_order=order)
    return fusion.tensor(made, x.dtype, [fusion.copied(axis) for axis in x.axes], stride_order=tuple(order))


# -- what they become in a program -------------------------------------------------------------------------------------
def _cast(low: Lowering, expr: Expr) -> list[str]:
    return [low.b.cast(low.value(expr.args[0]), datatypes.row_of("cast", "dtype", expr.option("dtype")))]


def _reshape(low: Lowering, expr: Expr) -> list[str]:
    """Every reshape, squeeze and broadcast: a view of the same elements."""
    return [low.b.reshape(low.value(expr.args[0]), low.shape(expr.outputs[0]))]


def _squeeze(low: Lowering, expr: Expr) -> list[str]:
    (x,), gone = expr.tensors, expr.option("dims")
    name = low.value(x)
    counts = tuple(
        1 if place in gone and x.axes[place].expanded is not None else each
        for place, each in enumerate(low.b.facts[name].shape)
    )
    if counts != low.b.facts[name].shape:
        name = low.b.slice(name, (0,) * x.ndim, counts, (1,) * x.ndim)
    kept = tuple(each for place, each in enumerate(low.b.facts[name].shape) if place not in gone)
    return [low.b.reshape(name, kept)]


def _broadcast(low: Lowering, expr: Expr) -> list[str]:
    name = low.value(expr.args[0])
    flags = expr.option("is_broadcast_dim")
    wide, axes = low.wide.get(name, (name, ()))
    if axes and axes == tuple(place for place, flag in enumerate(flags) if flag):
        return [wide]
    own = iter(low.b.facts[name].shape)
    return [low.b.reshape(name, tuple(1 if flag else next(own) for flag in flags))]


def _expand(low: Lowering, expr: Expr) -> list[str]:
    return [low.b.expand(low.value(expr.args[0]), low.shape(expr.outputs[0]))]


def _permute(low: Lowering, expr: Expr) -> list[str]:
    return [low.b.transpose(low.value(expr.args[0]), expr.option("dims"))]


def _slice(low: Lowering, expr: Expr) -> list[str]:
    name = low.value(expr.args[0])
    extents = low.b.facts[name].shape
    starts, counts = [], []
    for extent, start, end in zip(extents, expr.option("start_indices"), expr.option("end_indices"), strict=True):
        stop = _within(low.size(end), extent)
        starts.append(_within(low.size(start), stop))
        counts.append(stop - starts[-1])
    return [low.b.slice(name, tuple(starts), tuple(counts), (1,) * len(extents))]


def _within(place: Size, extent: Size) -> Size:
    """A place that is no farther than an extent, and no less than 0."""
    found = dim.minimum(place, extent)
    return found if dim.is_never_negative(found) else dim.maximum(found, 0)


def _pad(low: Lowering, expr: Expr) -> list[str]:
    (x,) = expr.tensors
    name, given = low.value(x), expr.option("value")
    dtype = low.b.facts[name].dtype
    fill = low.operand(given, dtype) if isinstance(given, Val) else low.b.scalar(0, dtype)
    widths = [low.number("pad", each) for each in expr.option("pad_widths")]
    for place in range(x.ndim):
        pair = 2 * (x.ndim - 1 - place)
        for at, width in enumerate(widths[pair : pair + 2]):
            name = _padded(low, name, place, width, fill, before=not at)
    return [name]


def _padded(low: Lowering, name: str, place: int, width: int, fill: str, *, before: bool) -> str:
    """A value with `width` elements more at one end of an axis, or -width fewer."""
    own = low.b.facts[name].shape
    if not width:
        return name
    if width < 0:
        starts = tuple(-width if before and axis == place else 0 for axis in range(len(own)))
        counts = tuple(each + width if axis == place else each for axis, each in enumerate(own))
        return low.b.slice(name, starts, counts, (1,) * len(own))
    filled = low.b.expand(fill, (*own[:place], width, *own[place + 1 :]))
    return low.b.concat((filled, name) if before else (name, filled), place)


def _cat(low: Lowering, expr: Expr) -> list[str]:
    return [low.b.concat([low.value(x) for x in expr.inputs], expr.option("dim"))]


def _stride_order(low: Lowering, expr: Expr) -> list[str]:
    return [low.value(expr.args[0])]


LOWERED = {
    "cast": _cast,
    "broadcast": _broadcast,
    "expand": _expand,
    "reshape": _reshape,
    "permute": _permute,
    "squeeze": _squeeze,
    "slice": _slice,
    "pad": _pad,
    "cat": _cat,
    "stride_order": _stride_order,
}
