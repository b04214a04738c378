"""The messages of onnx.proto (github.com/onnx/onnx, onnx/onnx.proto), as far as models are read.

Start at `MODEL`.
"""

from __future__ import annotations

import enum

from samebits.onnx.wire import Field, FieldType, Schema

__all__ = ["MODEL", "TENSOR", "AttributeKind", "DataLocation"]


class AttributeKind(enum.IntEnum):
    """AttributeProto.AttributeType, of those that rows read."""

    FLOAT = 1
    INT = 2
    STRING = 3
    TENSOR = 4
    FLOATS = 6
    INTS = 7
    STRINGS = 8


class DataLocation(enum.IntEnum):
    """TensorProto.DataLocation."""

    DEFAULT = 0
    EXTERNAL = 1


def _any(name: str) -> Field:
    """A field of which only the presence matters."""
    return Field(name, FieldType.BYTES)


_ENTRY = Schema({1: Field("key", FieldType.BYTES), 2: Field("value", FieldType.BYTES)})
_DIMENSION = Schema({1: Field("dim_value", FieldType.INT64), 2: Field("dim_param", FieldType.BYTES)}, is_choice=True)
_SHAPE = Schema({1: Field("dim", _DIMENSION, repeated=True)})
_TENSOR_TYPE = Schema({1: Field("elem_type", FieldType.INT32), 2: Field("shape", _SHAPE)})
_TYPE = Schema(
    {
        1: Field("tensor_type", _TENSOR_TYPE),
        4: _any("sequence_type"),
        5: _any("map_type"),
        7: _any("opaque_type"),
        8: _any("sparse_tensor_type"),
        9: _any("optional_type"),
    },
    is_choice=True,
)
_VALUE = Schema({1: Field("name", FieldType.BYTES), 2: Field("type", _TYPE)})
TENSOR = Schema(
    {
        1: Field("dims", FieldType.INT64, repeated=True),
        2: Field("data_type", FieldType.INT32),
        3: _any("segment"),
        4: Field("float_data", FieldType.FLOAT, repeated=True),
        5: Field("int32_data", FieldType.INT32, repeated=True),
        7: Field("int64_data", FieldType.INT64, repeated=True),
        8: Field("name", FieldType.BYTES),
        9: Field("raw_data", FieldType.BYTES),
        10: Field("double_data", FieldType.DOUBLE, repeated=True),
        11: Field("uint64_data", FieldType.UINT64, repeated=True),
        13: Field("external_data", _ENTRY, repeated=True),
        14: Field("data_location", FieldType.INT32),
    }
)
_ATTRIBUTE = Schema(
    {
        1: Field("name", FieldType.BYTES),
        2: Field("f", FieldType.FLOAT),
        3: Field("i", FieldType.INT64),
        4: Field("s", FieldType.BYTES),
        5: Field("t", TENSOR),
        7: Field("floats", FieldType.FLOAT, repeated=True),
        8: Field("ints", FieldType.INT64, repeated=True),
        9: Field("strings", FieldType.BYTES, repeated=True),
        20: Field("type", FieldType.INT32),
        21: Field("ref_attr_name", FieldType.BYTES),
    }
)
_NODE = Schema(
    {
        1: Field("input", FieldType.BYTES, repeated=True),
        2: Field("output", FieldType.BYTES, repeated=True),
        3: Field("name", FieldType.BYTES),
        4: Field("op_type", FieldType.BYTES),
        5: Field("attribute", _ATTRIBUTE, repeated=True),
        7: Field("domain", FieldType.BYTES),
    }
)
_GRAPH = Schema(
    {
        1: Field("node", _NODE, repeated=True),
        2: Field("name", FieldType.BYTES),
        5: Field("initializer", TENSOR, repeated=True),
        11: Field("input", _VALUE, repeated=True),
        12: Field("output", _VALUE, repeated=True),
        15: Field("sparse_initializer", FieldType.BYTES, repeated=True),
    }
)
_OPSET = Schema({1: Field("domain", FieldType.BYTES), 2: Field("version", FieldType.INT64)})
MODEL = Schema(
    {
        7: Field("graph", _GRAPH),
        8: Field("opset_import", _OPSET, repeated=True),
        25: Field("functions", FieldType.BYTES, repeated=True),
    }
)
