"""What the parts of a quantised array must be: their dtypes and shapes, and which keys cut between blocks.

Start at `check_parts`. `joined` puts the parts of several arrays one after the other.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence

from samebits.dtypes import DType
from samebits.errors import ClosedError, DTypeError, LayoutError, OptionError, ShapeError, shown
from samebits.kernels.quantize import blocks, dialects, formats
from samebits.kernels.quantize.dialects import Dialect
from samebits.kernels.quantize.formats import BlockFormat
from samebits.layout import Shape
from samebits.ops.move import concat
from samebits.shapes import check_index
from samebits.tensor import Tensor

Index = int | slice
Key = Index | tuple[Index, ...]
Parts = Mapping[str, Tensor]
# The names of parts, in the order in which values are made of them.
PARTS = ("elements", "scales", "global_scale", "zero_points")


def format_of(call: str, given: object) -> BlockFormat:
    """The block format that a call was given."""
    try:
        return formats.of(given)
    except OptionError as error:
        raise error.renamed(call, "format") from None


def dialect_of(call: str, given: object, row: BlockFormat) -> Dialect:
    """The dialect that a call was given, of a format that it makes.

    Raises:  OptionError if there is none of that name, or it makes other formats.
    """
    try:
        found: object = dialects.of(given)
    except OptionError:
        found = shown(given)
    known = dialects.dialects(row)
    if not isinstance(found, Dialect) or found not in known:
        expected = f"one that makes {row}: {', '.join(d.name for d in known)}"
        raise OptionError(call, "dialect", "", found, expected, "choose one of these")
    return found


def check_axis(call: str, axis: object, shape: Shape) -> int:
    """The axis of the blocks, counted from the end.

    Raises:  LayoutError if it is none of the last two.
    """
    rank = len(shape)
    if isinstance(axis, int) and not isinstance(axis, bool):
        found = axis - rank if axis >= 0 else axis
        if found in (-1, -2) and -found <= rank:
            return found
    expected = f"one of the last two of {rank} axes, or of the only one"
    raise LayoutError(call, "axis", "", shown(axis), expected, "transpose the array first")


def part_dtypes(row: BlockFormat) -> dict[str, DType | None]:
    """The dtype of each part by its name; None where the format has no such part."""
    return {
        "elements": row.element,
        "scales": row.scale,
        "global_scale": row.global_scale,
        "zero_points": row.zero_point,
    }


def check_parts(row: BlockFormat, parts: Mapping[str, Tensor | None], axis: int) -> None:
    """Raise unless every part has the dtype and shape that the format gives it."""
    elements = parts["elements"]
    assert elements is not None
    due = part_dtypes(row)
    for name, part in parts.items():
        if part is not None and part.dtype is not due[name]:
            expected = f"{due[name]} for {row}"
            raise DTypeError("Quantized", name, "dtype", part.dtype, expected, "view or convert it")
    check_blocks("Quantized", "elements", row, elements.shape, axis)
    shape = blocks.scales_shape(row, elements.shape, axis)
    for name in ("scales", "zero_points"):
        part = parts[name]
        if part is not None and part.shape != shape:
            expected = f"{shape}, one for each block of {elements.shape}"
            raise ShapeError("Quantized", name, "shape", part.shape, expected, "reshape or recompute them")
    whole = parts["global_scale"]
    if whole is not None:
        check_global_scale("Quantized", row, whole.shape, elements.shape, axis)


def check_open(call: str, parts: Parts, owner: str = "") -> None:
    """Raise ClosedError if the memory of a part is closed.

    Args:    owner: what stands before the name of a part in the message, such as `q.`.
    """
    for name, part in parts.items():
        if part.buffer.is_closed:
            raise ClosedError(call, f"{owner}{name}", "buffer", "closed", "open", "close it after its last use")


def empty(shape: Shape, dtype: DType, axis: int) -> Tensor:
    """Memory for a part, in which what lies along an axis, -1 or -2, is dense."""
    if axis == -1:
        return Tensor.empty(shape, dtype)
    return Tensor.empty((*shape[:-2], shape[-1], shape[-2]), dtype).transpose()


def line_shape(shape: Shape, axis: int) -> Shape:
    """The shape of one number a line along an axis."""
    extents = list(shape)
    extents[axis] = 1
    return tuple(extents)


def check_global_scale(call: str, row: BlockFormat, shape: Shape, array: Shape, axis: int) -> None:
    """Raise ShapeError unless a global scale is one for an array, or one a line where blocks are lines, by its shape.

    Args:    shape: that of the global scale.   array: that of what it scales.
    """
    due = [()] if row.block[0] != 1 else [(), line_shape(array, axis)]
    if shape not in due:
        expected = " or ".join(map(str, due)) + ("" if len(due) > 1 else f", as a block of {row} has several lines")
        raise ShapeError(call, "global_scale", "shape", shape, expected, "reshape it")


def check_blocks(call: str, name: str, row: BlockFormat, shape: Shape, axis: int) -> None:
    """Raise ShapeError unless blocks of a format divide an array of that shape, or may end short."""
    if not shape:
        raise ShapeError(call, name, "rank", 0, "at least 1", "reshape it to one row")
    if row.partial:
        return
    for number, (extent, block) in enumerate(zip(shape, blocks.extents(row, shape, axis), strict=True)):
        if extent % block:
            expected = f"a multiple of {block}, the block of {row}"
            raise ShapeError(call, name, f"extent of axis {number}", extent, expected, "pad it with zeros first")


def checked_key(row: BlockFormat, shape: Shape, axis: int, key: Key) -> tuple[Index, ...]:
    """An index for each axis, slices from boundary to boundary."""
    given = key if isinstance(key, tuple) else (key,)
    if len(given) > len(shape):
        expected = f"at most {len(shape)} indices"
        raise LayoutError("Quantized[]", "key", "", shown(key), expected, "give one for each axis")
    block = blocks.extents(row, shape, axis)
    items = (*given, *[slice(None)] * (len(shape) - len(given)))
    if not isinstance(items[axis], slice):
        expected = "a slice, as blocks lie along it"
        place = f"index of axis {len(shape) + axis}"
        raise LayoutError("Quantized[]", place, "", shown(items[axis]), expected, "use a slice of blocks")
    return tuple([_checked_index(n, *facts) for n, facts in enumerate(zip(items, shape, block, strict=True))])


def _checked_index(axis: int, item: object, extent: int, block: int) -> Index:
    """One index, its slice with both ends."""
    if isinstance(item, slice):
        try:
            start, stop, step = item.indices(extent)
        except (TypeError, ValueError):  # what are no integers; a step of 0
            start, stop, step = 0, 0, 0
        if step != 1 or start % block or (stop % block and stop != extent):
            expected = f"from one multiple of {block} to another, in steps of 1"
            raise LayoutError("Quantized[]", f"slice of axis {axis}", "", shown(item), expected, "cut between blocks")
        return slice(start, max(stop, start))
    try:
        place = None if isinstance(item, bool) else operator.index(item)  # type: ignore[arg-type]  # refused below
    except TypeError:
        place = None
    if block != 1 or place is None:
        expected = "a slice" if block != 1 else "a slice or an integer"
        raise LayoutError("Quantized[]", f"index of axis {axis}", "", shown(item), expected, "use a slice of blocks")
    return check_index("Quantized[]", f"index of axis {axis}", place, extent)


def key_of_part(name: str, row: BlockFormat, shape: Shape, axis: int, keys: tuple[Index, ...]) -> tuple[Index, ...]:
    """The key of a part that has as many axes as the elements, for a checked key of those."""
    if name == "elements":
        return keys
    if name == "global_scale":
        return tuple([slice(None) if n == len(keys) + axis else item for n, item in enumerate(keys)])
    pairs = zip(keys, blocks.extents(row, shape, axis), strict=True)
    return tuple([slice(item.start // b, -(-item.stop // b)) if isinstance(item, slice) else item for item, b in pairs])


def joined(row: BlockFormat, several: Sequence[Parts], block_axis: int, axis: int) -> dict[str, Tensor]:
    """The parts of several arrays one after the other along an axis, counted from the front.

    Raises:  ShapeError if one but the last ends inside a block, or other extents differ; OptionError if global scales
             differ where one holds for all.
    """
    call, first = "Quantized.cat", several[0]
    rank, due = first["elements"].ndim, first["elements"].shape
    for number, parts in enumerate(several):
        shape = parts["elements"].shape
        if shape[:axis] != due[:axis] or shape[axis + 1 :] != due[axis + 1 :]:
            expected = f"that of parts[0], {due}, but for axis {axis}"
            raise ShapeError(call, f"parts[{number}]", "shape", shape, expected, "slice or pad the array first")
    for number, parts in enumerate(several[:-1]):
        shape = parts["elements"].shape
        block = row.block[1 if axis == rank + block_axis else 0] if axis >= rank - 2 else 1
        if block is None or shape[axis] % block:
            expected = f"a multiple of {block}, the block of {row}" if block else f"that of all of {row}"
            raise ShapeError(
                call, f"parts[{number}]", f"extent of axis {axis}", shape[axis], expected, "join the arrays first"
            )
    found = {
        name: _concatenated([parts[name] for parts in several], axis, block_axis) for name in first if first[name].ndim
    }
    whole = first.get("global_scale")
    if whole is not None and (not whole.ndim or axis == rank + block_axis):
        for number, parts in enumerate(several):
            if not parts["global_scale"].equal_bits(whole):
                actual, expected = "another", "that of parts[0]"
                raise OptionError(call, f"parts[{number}]", "global scale", actual, expected, "quantise them with one")
        found["global_scale"] = whole
    return found


def _concatenated(several: Sequence[Tensor], axis: int, block_axis: int) -> Tensor:
    """Tensors one after the other; what lies along the axis of the blocks is dense."""
    found: Tensor
    if block_axis == -1:
        found = concat(several, axis)
        return found
    rank = several[0].ndim
    found = concat([part.transpose() for part in several], {rank - 1: rank - 2, rank - 2: rank - 1}.get(axis, axis))
    return found.transpose()
