"""A layout in DLPack's terms, and back: pure functions of facts, no memory.

Start at `encode`; `decode` is its inverse wherever it gives an answer, by construction: what would come back as
another layout is refused. DLPack counts strides in its own elements of `bits * lanes` bits and offsets in bytes, and
has three ways to write elements of fewer than 8 bits (dlpack.h 1.3, DLDataType and its flag IS_SUBBYTE_TYPE_PADDED);
two more are in use beside it.

| mode | bits, lanes | who writes it |
|---|---|---|
| `packed` | width, 1 | the standard's default, least significant bits first; JAX's float4 |
| `lanes` | width, n | vectors of n elements in whole bytes along an axis of unit stride; torch's float4_e2m1fn_x2 |
| `padded` | width, 1, flag | one byte an element; versioned capsules alone can say it |
| `widened` | 8, 1 | one byte an element; NumPy 2.5's registered dtypes, float6 and float4 only |
| `bytes` | uint8 | the bytes alone: whoever decodes must be told dtype and storage |

Elements of whole bytes are `packed`, and need no other mode but `bytes`.
"""

import math
from functools import lru_cache
from typing import Literal

from samebits import dtypes
from samebits.dtypes import DType
from samebits.errors import DTypeError, ExchangeError, LayoutError
from samebits.frozen import dataclass
from samebits.layout import Layout, Shape, Storage

__all__ = ["COPIED", "PADDED", "READ_ONLY", "Encoding", "Mode", "decode", "encode", "row_major"]

Mode = Literal["packed", "lanes", "padded", "widened", "bytes"]

# DLManagedTensorVersioned.flags.
READ_ONLY, COPIED, PADDED = 1, 2, 4

# DLDataTypeCode of dlpack.h 1.3 where one number of bits does not make a name of `dtypes.ROWS`.
_CODE_NAMES = {0: "int{}", 1: "uint{}", 2: "float{}", 3: "an opaque handle", 4: "bfloat{}", 5: "complex{}", 6: "bool{}"}


@dataclass(frozen=True, slots=True)
class Encoding:
    """The fields of a DLTensor that say what its bytes mean, and the one flag that does.

    Attributes:
        code: DLDataTypeCode.
        bits: Bits of one lane.
        lanes: Lanes of one element of DLPack's.
        flags: `PADDED` or 0; the other flags are about the memory.
        shape: Extents in elements of DLPack's.
        strides: Strides in elements of DLPack's.
        byte_offset: Bytes to element (0, 0, ...).
    """

    code: int
    bits: int
    lanes: int
    flags: int
    shape: Shape
    strides: Shape
    byte_offset: int = 0


@lru_cache(maxsize=4096)
def encode(dtype: DType, layout: Layout, mode: Mode, call: str = "encode") -> Encoding:
    """The layout as a DLTensor says it in that mode.

    Args:
        dtype: As wide as the layout's elements.
        layout: Any.
        mode: One row of the table above.
        call: The public function, for messages.

    Raises:
        ExchangeError: The mode cannot say this layout, and why.
    """
    width = layout.width_bits
    if layout.offset_bits < 0 or layout.offset_bits % 8:
        actual, remedy = f"bit {layout.offset_bits}", "copy it first, or use Tensor.export"
        raise ExchangeError(call, "tensor", "first element", actual, "at the start of a byte", remedy)
    if mode in ("padded", "widened"):
        _require(call, layout.storage == "padded", "storage", "packed", "padded with one byte an element")
        if mode == "widened":
            _require(call, dtype.is_float, "dtype", dtype, "a float, because integers of 8 bits are another format")
        bits, lanes, unit, axis, flags = (8, 1, 8, None, 0) if mode == "widened" else (width, 1, 8, None, PADDED)
        code = dtype.dlpack[0]
    elif mode == "bytes":
        code, bits, lanes, unit, flags = 1, 8, 1, 8, 0
        axis = None if layout.pitch_bits == 8 else _unit_axis(layout, 8, call)
    else:
        if layout.storage != "packed":
            remedy = "pack it with to_packed, or use Tensor.export"
            raise ExchangeError(call, "tensor", "storage", layout.storage, "packed", remedy)
        code, bits, flags = dtype.dlpack[0], width, 0
        lanes = 1 if mode == "packed" else 8 // math.gcd(width, 8)
        _require(call, mode == "packed" or lanes > 1, "width", f"{width} bits", "fewer than 8 bits")
        unit = width * lanes
        axis = None if mode == "packed" else _unit_axis(layout, unit, call)
    shape, strides = _extents(layout, unit, axis, call)
    made = Encoding(code, bits, lanes, flags, shape, strides, layout.offset_bits // 8)
    try:
        back = decode(made, call, (dtype, layout.storage) if mode == "bytes" else None)
    except ExchangeError:
        back = None
    _require(call, back == (dtype, layout), "layout", layout, f"one whose axes {mode} DLPack can tell apart")
    return made


def _require(call: str, holds: bool, fact: str, actual: object, expected: str) -> None:
    """Raise what a mode cannot say."""
    if not holds:
        remedy = "choose another mode, or use Tensor.export"
        raise ExchangeError(call, "tensor", fact, actual, expected, remedy)


def _unit_axis(layout: Layout, unit_bits: int, call: str) -> int:
    """The last axis whose elements lie side by side and fill units of so many bits."""
    width = layout.width_bits
    for axis in reversed(range(layout.ndim)):
        if layout.strides_bits[axis] == width and layout.shape[axis] * width % unit_bits == 0:
            return axis
    actual = f"{layout.shape} with strides_bits {layout.strides_bits}"
    # The shortest run of elements that is whole units.
    count = unit_bits // math.gcd(width, unit_bits)
    expected = f"one with a dense axis of a multiple of {count} elements"
    raise ExchangeError(call, "tensor", "layout", actual, expected, "pad it, or use Tensor.export")


def _extents(layout: Layout, unit: int, axis: int | None, call: str) -> tuple[Shape, Shape]:
    """Shape and strides that count units of so many bits, which fill up along the axis."""
    shape = tuple(
        extent * layout.width_bits // unit if place == axis else extent for place, extent in enumerate(layout.shape)
    )
    if 0 in shape:
        return shape, row_major(shape)
    strides = []
    for place, stride in enumerate(layout.strides_bits):
        steps, rest = divmod(stride, unit)
        if place == axis:
            steps, rest = 1, 0
        elif shape[place] == 1 and (rest or (steps == 1 and axis is not None and place > axis)):
            # A stride that nothing steps along is free, and 1 would make the axis look like that of the units.
            steps, rest = 2, 0
        _require(call, not rest, f"stride {place}", f"{stride} bits", f"a multiple of {unit} bits")
        strides.append(steps)
    return shape, tuple(strides)


def row_major(shape: Shape) -> Shape:
    """Strides of dense units; those of no units step as those of one."""
    strides = [1] * len(shape)
    for place in range(len(shape) - 2, -1, -1):
        strides[place] = strides[place + 1] * max(shape[place + 1], 1)
    return tuple(strides)


@lru_cache(maxsize=4096)
def decode(
    encoding: Encoding, call: str = "decode", meaning: tuple[DType, Storage] | None = None
) -> tuple[DType, Layout]:
    """The dtype and the layout that a DLTensor states.

    Args:
        encoding: Its facts, as a producer wrote them.
        call: The public function, for messages.
        meaning: For `bytes`: the dtype and storage of the elements whose bytes these are.

    Raises:
        DTypeError: No row of `dtypes.ROWS` is meant, or its lanes are no elements side by side.
        ExchangeError: Shape and strides are those of no layout.
    """
    dtype, unit, storage = _element(encoding, call)
    if meaning is not None:
        dtype, storage = meaning
    width = dtype.width_bits
    shape, strides = encoding.shape, tuple([step * unit for step in encoding.strides])
    if unit != (8 if storage == "padded" else width):
        # Elements lie side by side within a unit, along the last axis that has a unit's stride.
        axis = next((place for place in reversed(range(len(strides))) if strides[place] == unit), -1)
        if 0 in shape:
            axis = len(shape) - 1
        if axis < 0 or shape[axis] * unit % width:
            raise _no_axis(encoding, call)
        shape = (*shape[:axis], shape[axis] * unit // width, *shape[axis + 1 :])
        strides = (*strides[:axis], width, *strides[axis + 1 :])
    try:
        return dtype, Layout(shape, strides, encoding.byte_offset * 8, width, storage)
    except LayoutError as error:
        remedy = "report it to the producer"
        actual = (encoding.shape, encoding.strides)
        raise ExchangeError(call, "x", "(shape, strides)", actual, "those of a layout", remedy) from error


def _element(encoding: Encoding, call: str) -> tuple[DType, int, Storage]:
    """The dtype, the bits from one dense element of DLPack's to the next, and the storage."""
    code, bits, lanes = encoding.code, encoding.bits, encoding.lanes
    is_padded = bool(encoding.flags & PADDED) and bits < 8
    dtype = dtypes.of_dlpack(code, bits)
    if dtype is not None and lanes == 1:
        return (dtype, 8, "padded") if is_padded else (dtype, bits, "packed")
    if dtype is not None and bits < 8 and lanes > 1 and lanes * bits % 8 == 0 and not is_padded:
        return dtype, lanes * bits, "packed"
    # The standard leaves a narrow float of 8 bits undefined; NumPy 2.5 writes it for one byte an element.
    narrow = [row for row in dtypes.ROWS if row.is_float and row.width_bits < 8 and row.dlpack[0] == code]
    if narrow and bits == 8 and lanes == 1:
        return narrow[0], 8, "padded"
    name = dtype.name if dtype is not None else _CODE_NAMES.get(code, "unknown to DLPack 1.3").format(bits)
    flag = ", padded" if is_padded else ""
    actual = f"{name} (code {code}, bits {bits}, lanes {lanes}{flag})"
    expected = "an element format in one lane, or in lanes of fewer than 8 bits that fill bytes"
    raise DTypeError(call, "x", "DLPack dtype", actual, expected, "convert it first")


def _no_axis(encoding: Encoding, call: str) -> ExchangeError:
    """Vectors of elements that lie along no axis."""
    actual = f"{encoding.shape} with strides {encoding.strides}"
    expected = "one with a unit stride for its lanes to lie along"
    return ExchangeError(call, "x", "layout", actual, expected, "make it contiguous first")
