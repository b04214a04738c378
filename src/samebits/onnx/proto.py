"""ONNX files as plain values: the only file that imports onnx.

Whatever is wrong with the bytes becomes one ModelError here; whether the operators are known is not asked. Start at
`read`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from samebits import dtypes
from samebits.dtypes import DType
from samebits.errors import ModelError, UnsupportedModelError, message
from samebits.program import dim
from samebits.program.dim import Shape
from samebits.program.graph import Array

__all__ = ["DTYPES", "Model", "ModelNode", "ModelValue", "read"]

DTYPES = {row.onnx: row for row in dtypes.ROWS if row.onnx is not None}


@dataclass(frozen=True, slots=True)
class ModelValue:
    """An input or output of the graph; `shape` None where the model leaves it open."""

    name: str
    dtype: DType
    shape: Shape | None


@dataclass(frozen=True, slots=True)
class ModelNode:
    """One node; attributes are Python values, tensors arrays, anything else the name of its kind."""

    name: str
    op: str
    domain: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Model:
    """A model, as it was written."""

    name: str
    opsets: Mapping[str, int]
    inputs: tuple[ModelValue, ...]
    outputs: tuple[ModelValue, ...]
    initializers: Mapping[str, Array]
    nodes: tuple[ModelNode, ...]


def read(source: object) -> Model:
    """The model in a path, bytes, a binary file or a ModelProto.

    Raises:  ModelError if it cannot be read, or is no model.
    """
    import onnx

    name, proto = _parse(source)
    if not proto.HasField("graph") or not proto.opset_import:
        raise ModelError(
            message("load", name, "", "without a graph", "an ONNX model", "check that the file is complete")
        )
    graph = proto.graph
    _refuse(name, "sparse initializers", len(graph.sparse_initializer))
    _refuse(name, "model functions", len(proto.functions))
    initializers = {tensor.name: _array(name, tensor) for tensor in graph.initializer}
    return Model(
        graph.name or Path(name).stem,
        {entry.domain if entry.domain != "ai.onnx" else "": entry.version for entry in proto.opset_import},
        tuple(_value(name, value) for value in graph.input if value.name not in initializers),
        tuple(_value(name, value) for value in graph.output),
        initializers,
        tuple(
            ModelNode(
                node.name or f"{node.op_type}:{next(iter(node.output), '')}",
                node.op_type,
                "" if node.domain == "ai.onnx" else node.domain,
                tuple(node.input),
                tuple(node.output),
                {a.name: _attribute(name, onnx.helper.get_attribute_value(a)) for a in node.attribute},
            )
            for node in graph.node
        ),
    )


def _parse(source: object) -> tuple[str, Any]:
    import onnx

    if isinstance(source, onnx.ModelProto):
        return "the model", source
    name = os.fspath(source) if isinstance(source, str | os.PathLike) else "the model"
    try:
        if isinstance(source, str | os.PathLike):
            return str(name), onnx.load(name)
        data = source if isinstance(source, bytes | bytearray | memoryview) else _contents(source)
        return name, onnx.load_model_from_string(bytes(data))
    except OSError as error:
        reason = error.strerror or str(error)
        raise ModelError(
            message("load", str(name), "", f"unreadable ({reason})", "a readable file", "check the path")
        ) from error
    except ModelError:
        raise
    except Exception as error:  # protobuf's own error, or a checker's: the bytes are not a model
        reason = " ".join(str(error).split()) or type(error).__name__
        raise ModelError(
            message("load", str(name), "", f"malformed ({reason})", "an ONNX model", "check that the file is complete")
        ) from error


def _contents(source: object) -> bytes:
    if not hasattr(source, "read"):
        kinds = "a path, bytes, a binary file or a ModelProto"
        raise ModelError(message("load", "source", "", type(source).__name__, kinds, "pass one of these"))
    data = source.read()
    if not isinstance(data, bytes):
        raise ModelError(message("load", "source", "", "a text file", "a binary file", "open it with mode 'rb'"))
    return data


def _refuse(name: str, what: str, count: int) -> None:
    if count:
        raise ModelError(message("load", name, what, count, 0, "export the model without them"))


def _value(model: str, value: Any) -> ModelValue:
    import onnx

    kind = value.type.WhichOneof("value")
    if kind != "tensor_type":
        what = f"value {value.name!r}"
        raise UnsupportedModelError(message("load", what, "kind", kind, "tensor_type", "export it as a tensor"))
    tensor = value.type.tensor_type
    if tensor.elem_type not in DTYPES:
        what, kind = f"value {value.name!r}", onnx.TensorProto.DataType.Name(tensor.elem_type)
        remedy = "cast it before the model"
        raise UnsupportedModelError(message("load", what, "element type", kind, "a number or a truth value", remedy))
    if not tensor.HasField("shape"):
        return ModelValue(value.name, DTYPES[tensor.elem_type], None)
    shape: list[dim.Size] = []
    for axis, size in enumerate(tensor.shape.dim):
        if size.WhichOneof("value") == "dim_value":
            shape.append(int(size.dim_value))
        else:
            shape.append(dim.symbol(size.dim_param or f"{value.name}.{axis}"))
    return ModelValue(value.name, DTYPES[tensor.elem_type], tuple(shape))


def _array(model: str, tensor: Any) -> Array:
    import onnx

    try:
        array: Array = onnx.numpy_helper.to_array(tensor)
    except Exception as error:  # missing external data, or bytes that do not fit the shape
        reason = " ".join(str(error).split()) or type(error).__name__
        raise ModelError(
            message(
                "load",
                f"tensor {tensor.name!r}",
                "",
                f"unreadable ({reason})",
                "complete",
                "put its data where the model says",
            )
        ) from error
    return array


def _attribute(model: str, value: Any) -> Any:
    import onnx

    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, onnx.TensorProto):
        return _array(model, value)
    if isinstance(value, int | float):
        return value
    items = list(value) if hasattr(value, "__iter__") and not isinstance(value, onnx.GraphProto) else None
    if items is not None and all(isinstance(item, int | float) for item in items):
        return tuple(items)
    return type(value).__name__
