"""torch's names for formats as nvFuser's."""

from __future__ import annotations

from typing import Any

from samebits.errors import FusionTypeError, shown
from samebits.fusion.datatypes import DataType

__all__ = ["python_scalar_to_nvfuser_dtype", "torch_dtype_to_nvfuser_dtype"]

_NAMES = {
    "float64": DataType.Double, "float32": DataType.Float, "float16": DataType.Half, "bfloat16": DataType.BFloat16,
    "float8_e4m3fn": DataType.Float8_e4m3fn, "float8_e5m2": DataType.Float8_e5m2,
    "float8_e8m0fnu": DataType.Float8_e8m0fnu, "float4_e2m1fn_x2": DataType.Float4_e2m1fn_x2, "int64": DataType.Int,
    "int32": DataType.Int32, "int16": DataType.Int16, "int8": DataType.Int8, "uint64": DataType.UInt64,
    "uint32": DataType.UInt32, "uint16": DataType.UInt16, "uint8": DataType.UInt8, "bool": DataType.Bool,
    "complex64": DataType.ComplexFloat, "complex128": DataType.ComplexDouble,
}  # fmt: skip
_SCALARS = {bool: DataType.Bool, int: DataType.Int, float: DataType.Double, complex: DataType.ComplexDouble}


def torch_dtype_to_nvfuser_dtype(dtype: Any) -> DataType:
    """The name of torch's dtype, or of a Python number's type.

    Raises:  FusionTypeError if it has none.
    """
    if isinstance(dtype, type) and dtype in _SCALARS:
        return _SCALARS[dtype]
    found = _NAMES.get(str(dtype).removeprefix("torch."))
    if found is None:
        expected, remedy = "a dtype of torch that DataType names", "convert the tensor first"
        raise FusionTypeError("torch_dtype_to_nvfuser_dtype", "dtype", "", shown(dtype), expected, remedy)
    return found


def python_scalar_to_nvfuser_dtype(value: Any) -> DataType:
    """The name of a Python number's format.

    Raises:  FusionTypeError if it is no number.
    """
    return torch_dtype_to_nvfuser_dtype(type(value))
