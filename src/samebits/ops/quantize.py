"""Eager quantisation to block formats and back (numerics.md section 9): start at `quantize`."""

from __future__ import annotations

from typing import Any

import numpy as np

from samebits import dtypes, elements
from samebits.errors import DTypeError, OptionError, ShapeError, shown
from samebits.frozen import dataclass
from samebits.kernels.quantize import dialects, reference
from samebits.kernels.quantize.dialects import Dialect
from samebits.kernels.quantize.formats import BlockFormat
from samebits.ops import block_parts, block_run, block_values
from samebits.ops.call import Call, as_tensor
from samebits.ops.quantized import Quantized
from samebits.shapes import check_seed, check_type
from samebits.tensor import Tensor

__all__ = ["dequantize", "quantize"]


def quantize(
    x: Any,
    format: object,
    *,
    dialect: object = None,
    axis: int = -1,
    rounding: str = "nearest_even",
    seed: int | None = None,
    global_scale: Any = None,
    out: Quantized | None = None,
    threads: int | None = None,
) -> Quantized:
    """x in a block format: what a dialect stores of it.

    Args:    x: float32, bfloat16 or float16 [..., N].   format: a row of `formats`, or its name, such as "nvfp4".
             dialect: by which formulas, such as "nvfp4/torchao-0.18"; default the format's first, which is exact.
             axis: along which the elements of a block lie, one of the last two.
             rounding: of elements: nearest_even, with ties as the dialect has them, or stochastic: of the two codes
             beside x the one farther from 0 as often as x is near to it.
             seed: of stochastic rounding; an element's word depends on it and on the element's index in x alone.
             global_scale: of a format that has one, as the dialect keeps it: a number, an array of one or of one a
             line; "row" for each line's own; default that of all of x, which makes every value depend on all of x.
             out: what takes the parts instead.   threads: at most so many; default every usable core.
    Returns: a Quantized, whose parts are Tensors.
    Raises:  OptionError, DTypeError, ShapeError, LayoutError.   Bits: numerics.md section 9 and the dialect's row.
    """
    call = Call("quantize", x, threads)
    due = _due(call, x, format, dialect, axis)
    drawn = _seed(due.format, due.dialect, rounding, seed)
    whole, line = _global_scale(call, due, global_scale), isinstance(global_scale, str)
    target = _target(call, out, due, line or (whole is not None and whole.ndim > 0))
    return _stored(call, due, whole, line, target, drawn)


def quantized_part(x: Tensor, format: BlockFormat, dialect: Dialect, global_scale: Tensor | None) -> Quantized:
    """As `quantize`, of a part of an array that has been looked at as a whole.

    Args:    global_scale: that of the whole array, which may be what a caller may not give: 0, or NaN where x is.
    """
    call = Call("quantize", x)
    due = _due(call, x, format, dialect, -1)
    return _stored(call, due, None if global_scale is None else global_scale.values(), False, None, None)


@dataclass(frozen=True, slots=True)
class _Due:
    """What is asked for: x in a format, by a dialect, in blocks along an axis, -1 or -2."""

    x: Tensor
    format: BlockFormat
    dialect: Dialect
    axis: int


def _due(call: Call, x: Any, format: object, dialect: object, axis: int) -> _Due:
    """What is asked for.

    Raises:  OptionError, DTypeError, ShapeError, LayoutError if x does not go with the format and the dialect.
    """
    row = block_parts.format_of("quantize", format)
    way = dialects.default(row) if dialect is None else block_parts.dialect_of("quantize", dialect, row)
    given = call.operand("x", x, *map(dtypes.of, way.takes), meant=f"{' or '.join(way.takes)} for {way}").tensor
    axis = block_parts.check_axis("quantize", axis, given.shape)
    block_parts.check_blocks("quantize", "x", row, given.shape, axis)
    return _Due(given, row, way, axis)


def _stored(call: Call, due: _Due, whole: Any, line: bool, target: Quantized | None, drawn: int | None) -> Quantized:
    """What is stored of x, by a kernel where there is one for the format and the dialect.

    Args:    whole: the global scale, or those of lines; None where there is none, or it is to be found.
             line: whether each line finds its own.   target: what takes the parts.   drawn: the seed.
    """
    given, row, way, axis = due.x, due.format, due.dialect, due.axis
    found = block_run.quantised(
        given,
        row,
        way,
        axis,
        None if whole is None else Tensor.from_any(whole),
        line=line,
        isa=call.isa,
        threads=call.threads,
        into=None if target is None else target.parts,
        seed=drawn,
    )
    if found is not None:
        return Quantized.of_parts(found, row, way, axis) if target is None else target
    kind = given.dtype.numpy
    assert kind is not None  # every format that dialects take has a NumPy dtype
    array = elements.seen(given.buffer.array(), given.layout).view(kind)
    parts = reference.quantize(array, row, way, axis, whole, line=line, seed=drawn)
    return _made(parts, row, way, axis, target)


def _seed(row: BlockFormat, way: Dialect, rounding: object, seed: object) -> int | None:
    """The seed of stochastic rounding; None where codes are the nearest.

    Raises:  OptionError if an option has no such value, or if the format or the dialect takes nearest codes alone.
    """
    if not isinstance(rounding, str) or rounding not in ("nearest_even", "stochastic"):
        expected = "nearest_even or stochastic"
        raise OptionError("quantize", "rounding", "", shown(rounding), expected, "leave it out for the nearest")
    if rounding == "nearest_even":
        return check_seed("quantize", seed, is_drawn=False)
    nearest = "a code book" if row.codebook is not None else "a choice of scales by the error" if way.chooses else ""
    if nearest:
        expected = f"nearest_even for {way}, which has {nearest}"
        raise OptionError("quantize", "rounding", "", "'stochastic'", expected, "name another dialect or format")
    return check_seed("quantize", seed, is_drawn=True)


def dequantize(q: Quantized, dtype: object = "float32", *, out: Any = None, threads: int | None = None) -> Any:
    """The values of a quantised array: element * scale, then the global scale, then one conversion to the dtype.

    Args:    q: what `quantize` gave, or a Quantized of parts.   dtype: float32, bfloat16 or float16.
             out: an array that takes them instead.   threads: at most so many; default every usable core.
    Returns: a Tensor, or out.
    Raises:  OptionError if q is no Quantized; DTypeError.   Bits: numerics.md section 9.
    """
    check_type("dequantize", "q", q, Quantized, "pass what quantize gave")
    call = Call("dequantize", q.elements, threads)
    for name, part in q.parts.items():
        call.operand(f"q.{name}", part)
    made = block_values.value_dtype("dequantize", dtype)
    target = None if out is None else call.output(q.shape, made, out, shared=())
    into = None if target is None else target.tensor
    found = block_values.values(q.parts, q.format, q.divides, q.axis, made, into, threads)
    return found if target is None else call.result(target)


def _target(call: Call, out: object, due: _Due, line: bool) -> Quantized | None:
    """What takes the parts, checked to be of this format, dialect, axis and shape, in writable memory of its own.

    Args:    line: whether each line has a global scale.
    """
    if out is None:
        return None
    check_type("quantize", "out", out, Quantized, "pass what quantize gave")
    assert isinstance(out, Quantized)  # what is none was refused
    facts, asked, shape = (out.format, out.dialect, out.axis), (due.format, due.dialect, due.axis), due.x.shape
    if facts != asked:
        raise OptionError("quantize", "out", "(format, dialect, axis)", facts, asked, "pass one made by such a call")
    if out.shape != shape:
        raise ShapeError("quantize", "out", "shape", out.shape, shape, "pass one of x's shape")
    whole, needed = out.global_scale, block_parts.line_shape(shape, due.axis) if line else ()
    if whole is not None and whole.shape != needed:
        expected = f"{needed} for such scales"
        raise ShapeError("quantize", "out", "shape of global_scale", whole.shape, expected, "leave out= away")
    for part in out.parts.values():
        call.output(part.shape, part.dtype, part, shared=())
    return out


def _global_scale(call: Call, due: _Due, given: Any) -> Any:
    """The global scale that a caller gave; None where it is to be found.

    Raises:  OptionError, DTypeError, ShapeError if the format or the dialect has no such global scale.
    """
    if given is None:
        return None
    row, way = due.format, due.dialect
    if row.global_scale is None:
        raise OptionError("quantize", "global_scale", "", shown(given), f"left out: {row} has none", "leave it out")
    if isinstance(given, str):
        if given != "row" or row.block[0] != 1:
            expected = "a number, an array" + (" or 'row'" if row.block[0] == 1 else "")
            raise OptionError("quantize", "global_scale", "", shown(given), expected, "pass one of these")
        return None
    number = isinstance(given, float | int)
    found = as_tensor("quantize", "global_scale", np.float32(call.number("global_scale", given)) if number else given)
    if found.dtype is not dtypes.float32:
        raise DTypeError("quantize", "global_scale", "dtype", found.dtype, "float32", "convert it first")
    block_parts.check_global_scale("quantize", row, found.shape, due.x.shape, due.axis)
    array = found.values()
    if not (np.isfinite(array) & (array > 0)).all():
        expected = "finite and above 0 in float32"
        raise OptionError("quantize", "global_scale", "", shown(given), expected, "leave it out to have it found")
    if way.exact and not _are_powers_of_two(array):
        expected = f"powers of two for {way}"
        raise OptionError(
            "quantize", "global_scale", "", shown(given), expected, "round it up to one, or name another dialect"
        )
    return array


def _are_powers_of_two(x: Any) -> bool:
    """Whether all are powers of two within the limits that keep products with scales exact."""
    fraction, exponent = np.frexp(x)
    return bool(((fraction == 0.5) & (abs(exponent) <= 101)).all())


def _made(parts: reference.StoredParts, row: BlockFormat, way: Dialect, axis: int, out: Quantized | None) -> Quantized:
    """The stored parts as tensors, or in those of `out`."""
    made: dict[str, Tensor] = {}
    for name, dtype in block_parts.part_dtypes(row).items():
        part = getattr(parts, name)
        if part is None or dtype is None:
            continue
        given = None if out is None else out.parts[name]
        made[name] = block_parts.empty(part.shape, dtype, axis if part.ndim > 1 else -1) if given is None else given
        codes = part if name == "elements" else part.view(f"u{part.dtype.itemsize}")
        elements.write(made[name].buffer.array(), made[name].layout, codes)
    return Quantized.of_parts(made, row, way, axis) if out is None else out
