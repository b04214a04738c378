"""ONNX files as plain values: the only file that imports onnx.

Whatever is wrong with the bytes becomes one ModelError here; whether the operators are known is not asked. onnx gives
the message types alone: elements and the files they lie in are read here, alike with every version of it. Start at
`read`.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from samebits import dtypes, optional
from samebits.dtypes import DType
from samebits.errors import ModelError, UnsupportedModelError
from samebits.onnx import files
from samebits.operations import dim
from samebits.operations.dim import SymbolicShape
from samebits.operations.fact import MOST_AXES
from samebits.operations.operation import Array

__all__ = ["DTYPES", "Model", "ModelNode", "ModelValue", "read"]

# Those of 2**63.
_MOST_DIGITS = 19
# Where onnx.proto has elements that are not in raw_data, and as what.
_NARROW = ("int32_data", np.int32)
_FIELDS: Mapping[DType, tuple[str, Any]] = {
    dtypes.float32: ("float_data", np.float32),
    dtypes.float64: ("double_data", np.float64),
    dtypes.int64: ("int64_data", np.int64),
    dtypes.uint32: ("uint64_data", np.uint64),
    dtypes.uint64: ("uint64_data", np.uint64),
}

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

    Raises:  ModelError if it cannot be read, or is no model; MissingPackageError without onnx.
    """
    title, proto, folder = _parse(source)
    if not proto.HasField("graph") or not proto.opset_import:
        raise ModelError("load", title, "", "without a graph", "an ONNX model", "check that the file is complete")
    graph = proto.graph
    _refuse(title, "sparse initializers", len(graph.sparse_initializer))
    _refuse(title, "model functions", len(proto.functions))
    initializers: dict[str, Array] = {}
    for tensor in graph.initializer:
        name = _new_name("initializer", initializers, tensor.name)
        initializers[name] = _array(tensor, folder)
    parameters = {
        size.dim_param for value in (*graph.input, *graph.output) for size in value.type.tensor_type.shape.dim
    }
    inputs: dict[str, ModelValue] = {}
    outputs: dict[str, ModelValue] = {}
    for what, found, given in (("input", inputs, graph.input), ("output", outputs, graph.output)):
        for value in given:
            name = _new_name(what, found, value.name)
            found[name] = _value(value, parameters)
    return Model(
        _text("name of the graph", graph.name) or Path(title).stem,
        _opsets(proto),
        tuple(value for value in inputs.values() if value.name not in initializers),
        tuple(outputs.values()),
        initializers,
        tuple(_node(node, folder) for node in graph.node),
    )


def _parse(source: object) -> tuple[str, Any, str | None]:
    """The model as onnx has it, a name for messages, and the folder of the files that it names, if it has one."""
    try:
        import onnx
        from google.protobuf.message import DecodeError
    except ImportError as error:
        raise optional.missing("load", "onnx", error) from None

    if isinstance(source, onnx.ModelProto):
        return "the model", source, None
    name, folder = "the model", None
    if isinstance(source, str | os.PathLike):
        path = os.fsdecode(source)
        name, folder, data = files.readable(path), os.path.dirname(path), files.contents(path)
    else:
        data = bytes(source) if isinstance(source, bytes | bytearray | memoryview) else _contents(source)
    try:
        return name, onnx.ModelProto.FromString(data), folder
    except (DecodeError, UnicodeDecodeError) as error:  # the second by protobuf's version in Python
        reason = " ".join(str(error).split())
        remedy = "check that the file is complete"
        raise ModelError("load", name, "", f"malformed ({reason})", "an ONNX model", remedy) from error


def _contents(source: object) -> bytes:
    if not hasattr(source, "read"):
        kinds = "a path, bytes, a binary file or a ModelProto"
        raise ModelError("load", "source", "", type(source).__name__, kinds, "pass one of these")
    try:
        data = source.read()
    except OSError as error:
        reason = error.strerror or str(error)
        remedy = "open it with mode 'rb'"
        raise ModelError("load", "source", "", f"unreadable ({reason})", "a binary file", remedy) from error
    if not isinstance(data, bytes):
        raise ModelError("load", "source", "", "a text file", "a binary file", "open it with mode 'rb'")
    return data


def _text(what: str, given: str | bytes) -> str:
    """A string of the model; where it is no UTF-8, protobuf gives its bytes.

    Raises:  ModelError if it is no text.
    """
    if isinstance(given, str):
        return given
    shown = repr(bytes(given[:64]))
    raise ModelError("load", f"the {what}", "", shown, "UTF-8", "export the model with other names")


def _texts(what: str, given: Iterable[str | bytes]) -> tuple[str, ...]:
    return tuple(_text(what, each) for each in given)


def _new_name(what: str, found: Collection[str], given: str | bytes) -> str:
    """A name that is none of those found, nor the empty one, which stands for what is left out."""
    name = _text(f"name of an {what}", given)
    if not name:
        raise ModelError("load", f"an {what}", "name", "empty", "a name", "give it one")
    _check_once(what, found, name)
    return name


def _check_once(what: str, found: Collection[str], name: str) -> None:
    """Raise ModelError if a name stands there twice."""
    if name in found:
        raise ModelError("load", f"{what} {name!r}", "", "there twice", "there once", "rename one")


def _opsets(proto: Any) -> dict[str, int]:
    """The version of each domain; the default one is called "" and, by some, ai.onnx."""
    found: dict[str, int] = {}
    for entry in proto.opset_import:
        domain = _domain(entry.domain)
        if found.setdefault(domain, entry.version) != entry.version:
            actual = f"{found[domain]} and {entry.version}"
            raise ModelError("load", f"opset of domain {domain!r}", "", actual, "one number", "export the model again")
    return found


def _domain(given: str | bytes) -> str:
    domain = _text("name of a domain", given)
    return "" if domain == "ai.onnx" else domain


def _node(node: Any, folder: str | None) -> ModelNode:
    op, outputs = _text("operator of a node", node.op_type), _texts("name of a node's output", node.output)
    name = _text("name of a node", node.name) or f"{op}:{next(iter(outputs), '')}"
    inputs, attributes = _texts("name of a node's input", node.input), _attributes(name, node, folder)
    return ModelNode(name, op, _domain(node.domain), inputs, outputs, attributes)


def _refuse(name: str, what: str, count: int) -> None:
    if count:
        raise ModelError("load", name, what, count, 0, "export the model without them")


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
    _check_rank(f"value {value.name!r}", len(tensor.shape.dim))
    shape: list[dim.Size] = []
    for axis, size in enumerate(tensor.shape.dim):
        if size.WhichOneof("value") == "dim_value":
            if size.dim_value < 0:
                what, expected = f"value {value.name!r}", "0 or more"
                raise ModelError("load", what, f"extent {axis}", size.dim_value, expected, "export it again")
            shape.append(int(size.dim_value))
        else:
            name = _text(f"name of extent {axis} of {value.name!r}", size.dim_param) or f"{value.name}.{axis}"
            while not size.dim_param and name in parameters:
                name += "'"
            shape.append(dim.symbol(name))
    return ModelValue(value.name, dtype, tuple(shape))


def _dtype(what: str, number: int) -> DType:
    """The element format of that number.

    Raises:  UnsupportedModelError if there is none.
    """
    import onnx

    dtype = DTYPES.get(number)
    if dtype is None or dtype.numpy is None:
        names = onnx.TensorProto.DataType
        kind = names.Name(number) if number in names.values() else number
        expected = "a number or a truth value"
        raise UnsupportedModelError("load", what, "element type", kind, expected, "export it with another type")
    return dtype


def _array(tensor: Any, folder: str | None) -> Array:
    """The elements of a tensor, wherever the model keeps them."""
    import onnx

    what = f"tensor {_text('name of a tensor', tensor.name)!r}"
    dtype = _dtype(what, tensor.data_type)
    shape, kind = _checked_shape(what, tensor.dims, dtype), np.dtype(dtype.numpy)
    if tensor.HasField("segment"):
        raise UnsupportedModelError("load", what, "", "a segment of one", "whole", "export it in one piece")
    count = math.prod(shape)
    size_bytes = -(-count * dtype.width_bits // 8)
    if tensor.data_location == onnx.TensorProto.EXTERNAL:
        array = _elements(_external(what, tensor, size_bytes, folder), kind, dtype.width_bits, count)
    elif tensor.HasField("raw_data"):
        raw = tensor.raw_data
        _check_size(what, "raw data", len(raw), size_bytes, shape)
        array = _elements(np.frombuffer(raw, np.uint8), kind, dtype.width_bits, count)
    else:
        field, stored = _FIELDS.get(dtype, _NARROW)
        numbers = getattr(tensor, field)
        is_packed = dtype.width_bits in (2, 4)
        _check_size(what, field, len(numbers), size_bytes if is_packed else count, shape)
        # What is narrower than its field lies in the low bytes; elements of 2 and 4 bits share them.
        array = np.array(numbers, stored)
        if is_packed:
            array = _elements(array.astype(np.uint8), kind, dtype.width_bits, count)
        elif array.dtype.kind in "iu":
            array = array.astype(f"u{kind.itemsize}").view(kind)
    if kind == np.bool_ and array.size and array.view(np.uint8).max() > 1:
        raise ModelError("load", what, "an element", array.view(np.uint8).max(), "0 or 1", "export it again")
    return array.reshape(shape)


def _elements(data: Array, kind: np.dtype[Any], width: int, count: int) -> Array:
    """Bytes as elements; narrower ones follow each other without gaps, from the low bits of each byte on."""
    if width >= 8:
        return data.view(kind)
    bits = np.unpackbits(data, count=count * width, bitorder="little").reshape(count, width)
    return np.packbits(bits, axis=1, bitorder="little").reshape(count).view(kind)


def _checked_shape(what: str, dims: Iterable[int], dtype: DType) -> tuple[int, ...]:
    """The shape of a tensor, which NumPy can hold.

    Raises:  ModelError if an extent is negative, or the shape has too many axes or bytes.
    """
    shape = tuple(map(int, dims))
    if any(extent < 0 for extent in shape):
        raise ModelError("load", what, "shape", list(shape), "not negative", "export it again")
    _check_rank(what, len(shape))
    if math.prod(max(extent, 1) for extent in shape) * dtype.element_bytes > sys.maxsize:
        raise ModelError("load", what, "shape", list(shape), f"at most {sys.maxsize} bytes", "export it again")
    return shape


def _check_rank(what: str, rank: int) -> None:
    if rank > MOST_AXES:
        raise UnsupportedModelError("load", what, "rank", rank, f"at most {MOST_AXES}", "join axes")


def _check_size(what: str, field: str, found: int, expected: int, shape: tuple[int, ...]) -> None:
    if found != expected:
        unit = "bytes" if field == "raw data" else "numbers"
        due = f"{expected} for the shape {list(shape)}"
        raise ModelError("load", what, f"{field} count", f"{found} {unit}", due, "export it again")


def _external(what: str, tensor: Any, size: int, folder: str | None) -> Array:
    """The bytes of a tensor whose elements are in another file; other keys than these three do not matter."""
    if folder is None:
        raise ModelError("load", what, "", "in another file", "in the model", "load the model by its path")
    found: dict[str, str] = {}
    for entry in tensor.external_data:
        key = _text(f"key of {what}", entry.key)
        _check_once(f"{what}: key", found, key)
        found[key] = _text(f"{key} of {what}", entry.value)
    offset, length = _count(what, found, "offset", 0), _count(what, found, "length", size)
    _check_size(what, "raw data", length, size, tuple(tensor.dims))
    return files.part(what, folder, found.get("location", ""), offset, size)


def _count(what: str, found: Mapping[str, str], key: str, default: int) -> int:
    """A number of bytes that the model wrote in decimal digits."""
    text = found.get(key)
    if text is None:
        return default
    if not text.isascii() or not text.isdigit() or len(text) > _MOST_DIGITS:
        expected = f"0 or more, in at most {_MOST_DIGITS} decimal digits"
        raise ModelError("load", what, key, repr(text[:64]), expected, "export it again")
    return int(text)


def _attributes(name: str, node: Any, folder: str | None) -> dict[str, tuple[str, Any]]:
    """The attributes of a node by name."""
    if not node.attribute:
        return {}
    import onnx

    kinds = onnx.AttributeProto
    read: dict[int, tuple[str, Callable[[Any], Any]]] = {
        kinds.INT: ("int", lambda a: int(a.i)),
        kinds.FLOAT: ("float", lambda a: float(a.f)),
        kinds.STRING: ("string", lambda a: a.s.decode()),
        kinds.INTS: ("ints", lambda a: tuple(map(int, a.ints))),
        kinds.FLOATS: ("floats", lambda a: tuple(map(float, a.floats))),
        kinds.TENSOR: ("tensor", lambda a: _array(a.t, folder)),
    }
    found: dict[str, tuple[str, Any]] = {}
    for attribute in node.attribute:
        key = _text(f"name of an attribute of node {name!r}", attribute.name)
        _check_once(f"node {name!r}: attribute", found, key)
        known = read.get(attribute.type)
        if known is None or attribute.ref_attr_name:
            found[key] = ("another kind", None)
        elif attribute.type == kinds.STRING and not _is_text(attribute.s):
            found[key] = ("bytes that are no UTF-8", None)
        else:
            found[key] = (known[0], known[1](attribute))
    return found


def _is_text(given: bytes) -> bool:
    try:
        given.decode()
    except UnicodeDecodeError:
        return False
    return True
