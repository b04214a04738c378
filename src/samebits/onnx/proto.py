"""ONNX files as plain values: the only file that imports onnx.

Whatever is wrong with the bytes becomes one ModelError here; whether the operators are known is not asked. Start at
`read`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from samebits import dtypes
from samebits.dtypes import DType
from samebits.errors import ModelError, UnsupportedModelError
from samebits.program import dim
from samebits.program.dim import SymbolicShape
from samebits.program.graph import Array

__all__ = ["DTYPES", "Model", "ModelNode", "ModelValue", "read"]

DTYPES = {row.onnx: row for row in dtypes.ROWS if row.onnx is not None}


@dataclass(frozen=True, slots=True)
class ModelValue:
    """An input or output of the graph; `shape` None where the model leaves it open."""

    name: str
    dtype: DType
    shape: SymbolicShape | None


@dataclass(frozen=True, slots=True)
class ModelNode:
    """One node; attributes by name: the kind as rows call it, and the value (None for kinds that no row has)."""

    name: str
    op: str
    domain: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, tuple[str, Any]]


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
    name, proto = _parse(source)
    if not proto.HasField("graph") or not proto.opset_import:
        raise ModelError("load", name, "", "without a graph", "an ONNX model", "check that the file is complete")
    graph = proto.graph
    _refuse(name, "sparse initializers", len(graph.sparse_initializer))
    _refuse(name, "model functions", len(proto.functions))
    _check_once("initializer", [tensor.name for tensor in graph.initializer])
    _check_once("input", [value.name for value in graph.input])
    _check_once("output", [value.name for value in graph.output])
    initializers = {tensor.name: _array(tensor) for tensor in graph.initializer}
    parameters = {
        size.dim_param for value in (*graph.input, *graph.output) for size in value.type.tensor_type.shape.dim
    }
    return Model(
        graph.name or Path(name).stem,
        {entry.domain if entry.domain != "ai.onnx" else "": entry.version for entry in proto.opset_import},
        tuple(_value(value, parameters) for value in graph.input if value.name not in initializers),
        tuple(_value(value, parameters) for value in graph.output),
        initializers,
        tuple(
            ModelNode(
                node.name or f"{node.op_type}:{next(iter(node.output), '')}",
                node.op_type,
                "" if node.domain == "ai.onnx" else node.domain,
                tuple(node.input),
                tuple(node.output),
                _attributes(node),
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
            "load", str(name), "", f"unreadable ({reason})", "a readable file", "check the path"
        ) from error
    except ModelError:
        raise
    except Exception as error:  # protobuf's own error, or a checker's: the bytes are not a model
        reason = " ".join(str(error).split()) or type(error).__name__
        raise ModelError(
            "load", str(name), "", f"malformed ({reason})", "an ONNX model", "check that the file is complete"
        ) from error


def _contents(source: object) -> bytes:
    if not hasattr(source, "read"):
        kinds = "a path, bytes, a binary file or a ModelProto"
        raise ModelError("load", "source", "", type(source).__name__, kinds, "pass one of these")
    data = source.read()
    if not isinstance(data, bytes):
        raise ModelError("load", "source", "", "a text file", "a binary file", "open it with mode 'rb'")
    return data


def _refuse(name: str, what: str, count: int) -> None:
    if count:
        raise ModelError("load", name, what, count, 0, "export the model without them")


def _check_once(what: str, names: Iterable[str]) -> None:
    """Raise ModelError if a name stands there twice."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise ModelError("load", f"{what} {name!r}", "", "there twice", "there once", "rename one")
        seen.add(name)


def _value(value: Any, parameters: Collection[str]) -> ModelValue:
    """An input or output; an extent without a name gets one that no parameter has."""
    kind = value.type.WhichOneof("value")
    if kind != "tensor_type":
        what = f"value {value.name!r}"
        raise UnsupportedModelError("load", what, "kind", kind, "tensor_type", "export it as a tensor")
    tensor = value.type.tensor_type
    dtype = _dtype(f"value {value.name!r}", tensor.elem_type)
    if not tensor.HasField("shape"):
        return ModelValue(value.name, dtype, None)
    shape: list[dim.Size] = []
    for axis, size in enumerate(tensor.shape.dim):
        if size.WhichOneof("value") == "dim_value":
            if size.dim_value < 0:
                what, expected = f"value {value.name!r}", "0 or more"
                raise ModelError("load", what, f"extent {axis}", size.dim_value, expected, "export it again")
            shape.append(int(size.dim_value))
        else:
            name = size.dim_param or f"{value.name}.{axis}"
            while not size.dim_param and name in parameters:
                name += "'"
            shape.append(dim.symbol(name))
    return ModelValue(value.name, dtype, tuple(shape))


def _dtype(what: str, number: int) -> DType:
    """The element format of that number.

    Raises:  UnsupportedModelError if there is none, or one whose elements have no byte of their own.
    """
    import onnx

    dtype = DTYPES.get(number)
    if dtype is None or dtype.width_bits % 8 or dtype.numpy is None:
        names = onnx.TensorProto.DataType
        kind = names.Name(number) if number in names.values() else number
        expected = "a number of whole bytes or a truth value"
        raise UnsupportedModelError("load", what, "element type", kind, expected, "cast it before the model")
    return dtype


def _array(tensor: Any) -> Array:
    """The elements of a tensor whose data are in the file."""
    import onnx

    what = f"tensor {tensor.name!r}"
    _dtype(what, tensor.data_type)
    if tensor.data_location == onnx.TensorProto.EXTERNAL:
        # Paths are followed where a path was given, by onnx, which keeps them in the model's folder.
        raise ModelError("load", what, "", "in another file", "in the model", "load the model by its path")
    if any(extent < 0 for extent in tensor.dims):
        raise ModelError("load", what, "shape", list(tensor.dims), "not negative", "export it again")
    try:
        array: Array = onnx.numpy_helper.to_array(tensor)
    except Exception as error:  # missing external data, or bytes that do not fit the shape
        reason = " ".join(str(error).split()) or type(error).__name__
        raise ModelError(
            "load", what, "", f"unreadable ({reason})", "complete", "put its data where the model says"
        ) from error
    return array


def _attributes(node: Any) -> dict[str, tuple[str, Any]]:
    """The attributes of a node by name."""
    import onnx

    _check_once(f"node {node.name or node.op_type!r}: attribute", [attribute.name for attribute in node.attribute])
    kinds = onnx.AttributeProto
    read: dict[int, tuple[str, Callable[[Any], Any]]] = {
        kinds.INT: ("int", lambda a: int(a.i)),
        kinds.FLOAT: ("float", lambda a: float(a.f)),
        kinds.STRING: ("string", lambda a: a.s.decode(errors="replace")),
        kinds.INTS: ("ints", lambda a: tuple(map(int, a.ints))),
        kinds.FLOATS: ("floats", lambda a: tuple(map(float, a.floats))),
        kinds.TENSOR: ("tensor", lambda a: _array(a.t)),
    }
    found: dict[str, tuple[str, Any]] = {}
    for attribute in node.attribute:
        known = read.get(attribute.type)
        if known is None or attribute.ref_attr_name:
            found[attribute.name] = ("another kind", None)
        else:
            found[attribute.name] = (known[0], known[1](attribute))
    return found
