"""nvFuser's names for element formats, and which row of `dtypes.ROWS` each stands for.

Start at `DataType`; `promoted` is the format that two of them have in common.
"""

from __future__ import annotations

import enum
import functools

from samebits import dtypes
from samebits.dtypes import DType
from samebits.errors import FusionTypeError

__all__ = [
    "DataType",
    "data_type_of",
    "is_float",
    "is_integer",
    "is_whole_bytes",
    "needs_float",
    "promoted",
    "row_of",
]


class DataType(enum.Enum):
    """Element formats by nvFuser's names; `Null` stands for none.

    The formats with `_x2` are pairs of elements in a byte: a tensor that is defined so has extents in bytes.
    `Float6_e2m3fn`, `Float6_e3m2fn` and the integers of fewer than 32 bits are ours, and count elements.
    """

    Double = "double"
    Float = "float"
    Half = "__half"
    BFloat16 = "__bfloat"
    Float8_e4m3fn = "__e4m3"
    Float8_e5m2 = "__e5m2"
    Float8_e8m0fnu = "__e8m0"
    Float6_e2m3fn = "__e2m3"
    Float6_e3m2fn = "__e3m2"
    Float4_e2m1fn = "__e2m1"
    Float4_e2m1fn_x2 = "__e2m1_x2"
    Int = "int64_t"
    Int32 = "int"
    Int16 = "int16_t"
    Int8 = "int8_t"
    Int4 = "int4_t"
    Int2 = "int2_t"
    UInt64 = "uint64_t"
    UInt32 = "uint32_t"
    UInt16 = "uint16_t"
    UInt8 = "uint8_t"
    UInt4 = "uint4_t"
    UInt2 = "uint2_t"
    Index = "nvfuser_index_t"
    Bool = "bool"
    ComplexFloat = "std::complex<float>"
    ComplexDouble = "std::complex<double>"
    Null = "null_type"

    def __repr__(self) -> str:
        return f"DataType.{self.name}"

    __str__ = __repr__


_ROWS: dict[DataType, DType] = {
    DataType.Double: dtypes.float64,
    DataType.Float: dtypes.float32,
    DataType.Half: dtypes.float16,
    DataType.BFloat16: dtypes.bfloat16,
    DataType.Float8_e4m3fn: dtypes.float8_e4m3fn,
    DataType.Float8_e5m2: dtypes.float8_e5m2,
    DataType.Float8_e8m0fnu: dtypes.float8_e8m0fnu,
    DataType.Float6_e2m3fn: dtypes.float6_e2m3fn,
    DataType.Float6_e3m2fn: dtypes.float6_e3m2fn,
    DataType.Float4_e2m1fn: dtypes.float4_e2m1fn,
    DataType.Int: dtypes.int64,
    DataType.Int32: dtypes.int32,
    DataType.Int16: dtypes.int16,
    DataType.Int8: dtypes.int8,
    DataType.Int4: dtypes.int4,
    DataType.Int2: dtypes.int2,
    DataType.UInt64: dtypes.uint64,
    DataType.UInt32: dtypes.uint32,
    DataType.UInt16: dtypes.uint16,
    DataType.UInt8: dtypes.uint8,
    DataType.UInt4: dtypes.uint4,
    DataType.UInt2: dtypes.uint2,
    DataType.Index: dtypes.int64,
    DataType.Bool: dtypes.bool_,
}
# The name of each format; Int before Index, which is another name for it.
_NAMES: dict[DType, DataType] = {row: name for name, row in reversed(_ROWS.items())}


def row_of(call: str, operand: str, given: object) -> DType:
    """The format that a name stands for.

    Raises:  FusionTypeError if it stands for none that is computed with here.
    """
    if not isinstance(given, DataType):
        remedy = "write one of its names, such as DataType.Float"
        fact = "" if operand == "dtype" else "dtype"
        raise FusionTypeError(call, operand, fact, type(given).__name__, "a DataType", remedy)
    found = _ROWS.get(given)
    if found is None:
        expected, remedy = "a real format of single elements", "pass real and imaginary parts apart"
        if given is DataType.Float4_e2m1fn_x2:
            remedy = "write DataType.Float4_e2m1fn, whose extents count elements"
        raise FusionTypeError(call, operand, "" if operand == "dtype" else "dtype", given, expected, remedy)
    return found


def data_type_of(row: DType) -> DataType:
    """The name of a format.

    Raises:  FusionTypeError if it has none.
    """
    found = _NAMES.get(row)
    if found is None:
        raise FusionTypeError("fusion", "operand", "dtype", row, "one that DataType names", "cast it first")
    return found


@functools.cache
def is_float(name: DataType) -> bool:
    """Whether it is a format of real floating-point numbers."""
    return name in _ROWS and _ROWS[name].is_float


@functools.cache
def is_integer(name: DataType) -> bool:
    """Whether it is a format of integers; bool is none."""
    return name in _ROWS and not is_float(name) and name is not DataType.Bool


@functools.cache
def is_whole_bytes(name: DataType) -> bool:
    """Whether it is a format whose elements are whole bytes that NumPy has a name for."""
    return name in _ROWS and _ROWS[name].width_bits >= 8 and _ROWS[name].numpy is not None


@functools.cache
def needs_float(name: DataType) -> bool:
    """Whether it is a float narrower than Float, with which nvFuser's arithmetic does not compute."""
    return is_float(name) and _ROWS[name].width_bits < 32


@functools.cache
def promoted(x: DataType, y: DataType) -> DataType:
    """The format that two operands have in common.

    Two floats: the wider one, Float if neither holds the other. A float and an integer: the float. Two integers: the
    wider one, the signed one of two as wide.
    """
    if x is y or y is DataType.Null:
        return x
    if x is DataType.Null:
        return y
    floats = [name for name in (x, y) if is_float(name)]
    if len(floats) == 1:
        return floats[0]
    if floats:
        return DataType.Double if DataType.Double in floats else DataType.Float
    a, b = _ROWS[x], _ROWS[y]
    if a.kind == "bool" or b.kind == "bool":
        return y if a.kind == "bool" else x
    if a.width_bits != b.width_bits:
        return x if a.width_bits > b.width_bits else y
    return x if a.min < 0 else y
