"""Eager quantisation to block formats and back (numerics.md section 9): start at `quantize`."""

from __future__ import annotations

from typing import Any

import numpy as np

from samebits import dtypes, elements
from samebits.errors import DTypeError, OptionError, ShapeError, shown
from samebits.kernels.quantize import dialects, reference
from samebits.kernels.quantize.dialects import Dialect
from samebits.kernels.quantize.formats import BlockFormat
from samebits.layout import Shape
from samebits.ops import block_parts, block_run, block_values
from samebits.ops.call import Call, as_tensor
from samebits.ops.quantized import Quantized
from samebits.shapes import check_type
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
    _check_given(global_scale)
    return quantized(
        x,
        format,
        dialect=dialect,
        axis=axis,
        rounding=rounding,
        seed=seed,
        global_scale=global_scale,
        out=out,
        threads=threads,
    )


def quantized(
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
    """As `quantize`, with any global scale: that of a dialect may be NaN or 0 where x is."""
    call = Call("quantize", x, threads)
    row = block_parts.format_of("quantize", format)
    way = dialects.default(row) if dialect is None else block_parts.dialect_of("quantize", dialect, row)
    drawn = _seed(row, way, rounding, seed)
    given = call.operand("x", x, *map(dtypes.of, way.takes), meant=f"{' or '.join(way.takes)} for {way}").tensor
    axis = block_parts.check_axis("quantize", axis, given.shape)
    block_parts.check_blocks("quantize", "x", row, given.shape, axis)
    whole = _global_scale(call, row, way, global_scale, given, axis)
    line = isinstance(global_scale, str)
    target = _target(call, out, (row, way, axis), given.shape, line or (whole is not None and whole.ndim > 0))
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
    assert kind is not None  # what dialects take has one
    array = elements.seen(given.buffer.array(), given.layout).view(kind)
    parts = reference.quantize(array, row, way, axis, whole, line=line, seed=drawn)
    return _made(parts, row, way, axis, target)


def _seed(row: BlockFormat, way: Dialect, rounding: object, seed: object) -> int | None:
    """The seed of stochastic rounding; None where codes are the nearest.

    Raises:  OptionError if an option has no such value, or if the format or the dialect takes nearest codes alone.
    """
    if rounding not in ("nearest_even", "stochastic"):
        expected = "nearest_even or stochastic"
        raise OptionError("quantize", "rounding", "", shown(rounding), expected, "leave it out for the nearest")
    if rounding == "nearest_even":
        if seed is not None:
            remedy = "pass rounding='stochastic', or leave seed away"
            raise OptionError("quantize", "seed", "", shown(seed), "left out where nothing is drawn", remedy)
        return None
    nearest = "a code book" if row.codebook is not None else "a choice of scales by the error" if way.chooses else ""
    if nearest:
        expected = f"nearest_even for {way}, which has {nearest}"
        raise OptionError("quantize", "rounding", "", "'stochastic'", expected, "name another dialect or format")
    if isinstance(seed, int | np.integer) and not isinstance(seed, bool) and 0 <= int(seed) < 1 << 64:
        return int(seed)
    expected = "an integer in [0, 2**64), which stochastic rounding draws from"
    raise OptionError("quantize", "seed", "", shown(seed), expected, "pass seed=0")


def _check_given(global_scale: Any) -> None:
    """Raise OptionError for a global scale from outside that no numbers have."""
    if global_scale is None or isinstance(global_scale, str):
        return
    number = isinstance(global_scale, float | int)
    found = global_scale if number else as_tensor("quantize", "global_scale", global_scale)
    array = np.asarray(found if number else found.values(), np.float64)
    if not (np.isfinite(array) & (array > 0)).all():
        raise OptionError(
            "quantize", "global_scale", "", shown(global_scale), "finite and above 0", "leave it out to have it found"
        )


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
    target = None if out is None else call.output(q.shape, made, out, shared=()).tensor
    found = block_values.values(q.parts, q.format, q.divides, q.axis, made, target, threads)
    return found if out is None else out


def _target(
    call: Call, out: object, due: tuple[BlockFormat, Dialect, int], shape: Shape, line: bool
) -> Quantized | None:
    """What takes the parts, checked to be of this format, dialect, axis and shape, in writable memory of its own.

    Args:    line: whether each line has a global scale.
    """
    if out is None:
        return None
    check_type("quantize", "out", out, Quantized, "pass what quantize gave")
    assert isinstance(out, Quantized)  # what is none was refused
    facts = (out.format, out.dialect, out.axis)
    if facts != due:
        raise OptionError("quantize", "out", "(format, dialect, axis)", facts, due, "pass one made by such a call")
    if out.shape != shape:
        raise ShapeError("quantize", "out", "shape", out.shape, shape, "pass one of x's shape")
    whole, needed = out.global_scale, block_parts.line_shape(shape, due[2]) if line else ()
    if whole is not None and whole.shape != needed:
        expected = f"{needed} for such scales"
        raise ShapeError("quantize", "out", "shape of global_scale", whole.shape, expected, "leave out= away")
    for part in out.parts.values():
        call.output(part.shape, part.dtype, part, shared=())
    return out


def _global_scale(call: Call, row: BlockFormat, way: Dialect, given: Any, x: Tensor, axis: int) -> Any:
    """The global scale that a caller gave; None where it is to be found."""
    if given is None:
        return None
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
    block_parts.check_global_scale("quantize", row, found.shape, x.shape, axis)
    array = found.values()
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
    found = {name: getattr(parts, name) for name in ("elements", "scales", "global_scale", "zero_points")}
    due = {
        "elements": row.element,
        "scales": row.scale,
        "global_scale": row.global_scale,
        "zero_points": row.zero_point,
    }
    made: dict[str, Tensor] = {}
    for name, part in found.items():
        dtype = due[name]
        if part is None or dtype is None:
            continue
        given = None if out is None else out.parts[name]
        made[name] = block_parts.empty(part.shape, dtype, axis if part.ndim > 1 else -1) if given is None else given
        codes = part if name == "elements" else part.view(f"u{part.dtype.itemsize}")
        elements.write(made[name].buffer.array(), made[name].layout, codes)
    return Quantized.of_parts(made, row, way, axis) if out is None else out
