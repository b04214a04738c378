"""ONNX files as plain values, read without the package onnx: it takes longer to import than a model to load.

Whatever is wrong with the bytes becomes one ModelError here; whether the operators are known is not asked. Start at
`read`.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from samebits import dtypes
from samebits.dtypes import DType
from samebits.errors import ModelError, UnsupportedModelError
from samebits.files import readable
from samebits.frozen import dataclass
from samebits.memory.address import address_of
from samebits.memory.pages import MAPPED
from samebits.onnx import files, messages, wire
from samebits.onnx.messages import AttributeKind, DataLocation
from samebits.onnx.wire import Message
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
    dtypes.float32: ("float_data", np.dtype("<f4")),
    dtypes.float64: ("double_data", np.dtype("<f8")),
    dtypes.int64: ("int64_data", np.int64),
    dtypes.uint32: ("uint64_data", np.uint64),
    dtypes.uint64: ("uint64_data", np.uint64),
}

# What has a number in onnx.proto and is no row.
_OTHER_DTYPES = {0: "UNDEFINED", 8: "STRING", 14: "COMPLEX64", 15: "COMPLEX128"}

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
    title, proto, folder = _parse(source)
    if proto.graph is None or not proto.opset_import:
        raise ModelError("load", title, "", "without a graph", "an ONNX model", "check that the file is complete")
    graph = proto.graph
    _refuse(title, "sparse initializers", len(graph.sparse_initializer))
    _refuse(title, "model functions", len(proto.functions))
    initializers: dict[str, Array] = {}
    for tensor in graph.initializer:
        name = _new_name("initializer", initializers, tensor.name)
        initializers[name] = _array(tensor, folder)
    parameters = {
        bytes(size.dim_param)
        for value in (*graph.input, *graph.output)
        for size in _extents(value)
        if size.dim_param is not None
    }
    inputs: dict[str, ModelValue] = {}
    outputs: dict[str, ModelValue] = {}
    for what, found, given in (("input", inputs, graph.input), ("output", outputs, graph.output)):
        for value in given:
            name = _new_name(what, found, value.name)
            found[name] = _value(value, parameters)
    return Model(
        _text("name of the graph", graph.name) or os.path.splitext(os.path.basename(title))[0],
        _opsets(proto),
        tuple(value for value in inputs.values() if value.name not in initializers),
        tuple(outputs.values()),
        initializers,
        tuple(_node(node, folder) for node in graph.node),
    )


def _parse(source: object) -> tuple[str, Message, str | None]:
    """The model's message, a name for error messages, and the folder of the files that it names, if it has one."""
    name, folder = "the model", None
    data: bytes | memoryview
    if isinstance(source, str | os.PathLike):
        path = os.fsdecode(source)
        name, folder, data = readable(path), os.path.dirname(path), files.contents(path)
    elif isinstance(source, bytes | bytearray | memoryview):
        data = bytes(source)
    elif type(source).__name__ == "ModelProto" and hasattr(source, "SerializeToString"):
        data = _serialised(source)
    else:
        data = _contents(source)
    try:
        return name, wire.read(messages.MODEL, data), folder
    except wire.MalformedError as error:
        remedy = "check that the file is complete"
        raise ModelError("load", name, "", f"malformed ({error})", "an ONNX model", remedy) from error


def _serialised(model: Any) -> bytes:
    """The bytes of an onnx.ModelProto."""
    try:
        return bytes(model.SerializeToString())
    except Exception as error:
        if type(error).__module__ != "google.protobuf.message":  # which is not imported for its name
            raise
        actual, expected = "larger than a message can be", "at most 2147483647 bytes"
        remedy = "keep its tensors in a file of their own"
        raise ModelError("load", "the model", "", actual, expected, remedy) from error


def _contents(source: object) -> bytes:
    if not hasattr(source, "read"):
        kinds = "a path, bytes, a binary file or a ModelProto"
        raise ModelError("load", "source", "", type(source).__name__, kinds, "pass one of these")
    try:
        data = source.read()
    except UnicodeDecodeError:
        data = ""  # bytes were read as text
    except (OSError, ValueError) as error:  # closed files raise the latter
        reason = getattr(error, "strerror", None) or str(error)
        remedy = "open it with mode 'rb'"
        raise ModelError("load", "source", "", f"unreadable ({reason})", "a binary file", remedy) from error
    if isinstance(data, str):
        raise ModelError("load", "source", "", "a text file", "a binary file", "open it with mode 'rb'")
    if not isinstance(data, bytes | bytearray | memoryview):
        actual = f"a file that gives {type(data).__name__}"
        raise ModelError("load", "source", "", actual, "one that gives bytes", "open it with mode 'rb'")
    return bytes(data)


def _text(what: str, given: memoryview | None) -> str:
    """A string of the model, "" where it is not there.

    Raises:  ModelError if it is no text.
    """
    if not given:
        return ""
    try:
        return str(given, "utf-8")
    except UnicodeDecodeError:
        shown = repr(bytes(given[:64]))
        remedy = "export the model with other names"
        raise ModelError("load", f"the {what}", "", shown, "UTF-8", remedy) from None


def _texts(what: str, given: Iterable[memoryview]) -> tuple[str, ...]:
    return tuple([_text(what, each) for each in given])


def _new_name(what: str, found: Collection[str], given: memoryview | None) -> str:
    """A name that must be new, and not empty: the empty one stands for an operand that is left out."""
    name = _text(f"name of an {what}", given)
    if not name:
        raise ModelError("load", f"an {what}", "name", "empty", "a name", "give it one")
    _check_once(what, found, name)
    return name


def _check_once(what: str, found: Collection[str], name: str) -> None:
    """Raise ModelError if a name stands there twice."""
    if name in found:
        raise ModelError("load", f"{what} {name!r}", "", "there twice", "there once", "rename one")


def _opsets(proto: Message) -> dict[str, int]:
    """The version of each domain; the default one is called "" and, by some, ai.onnx."""
    found: dict[str, int] = {}
    for entry in proto.opset_import:
        domain = _domain(entry.domain)
        version = entry.version or 0
        if found.setdefault(domain, version) != version:
            actual = f"{found[domain]} and {version}"
            raise ModelError("load", f"opset of domain {domain!r}", "", actual, "one number", "export the model again")
    return found


def _domain(given: memoryview | None) -> str:
    domain = _text("name of a domain", given)
    return "" if domain == "ai.onnx" else domain


def _node(node: Message, folder: str | None) -> ModelNode:
    op, outputs = _text("operator of a node", node.op_type), _texts("name of a node's output", node.output)
    name = _text("name of a node", node.name) or f"{op}:{next(iter(outputs), '')}"
    inputs, attributes = _texts("name of a node's input", node.input), _attributes(name, node, folder)
    return ModelNode(name, op, _domain(node.domain), inputs, outputs, attributes)


def _refuse(name: str, what: str, count: int) -> None:
    if count:
        raise ModelError("load", name, what, count, 0, "export the model without them")


def _value(value: Message, parameters: Collection[bytes]) -> ModelValue:
    """An input or output; an extent without a name gets one that no parameter has."""
    name = _text("name of a value", value.name)
    what, kinds = f"value {name!r}", vars(value.type) if value.type else {}
    tensor = kinds.get("tensor_type")
    if tensor is None:
        kind = next((kind for kind, given in kinds.items() if given is not None), None)
        raise UnsupportedModelError("load", what, "kind", kind, "tensor_type", "export it as a tensor")
    dtype = _dtype(what, tensor.elem_type or 0)
    if tensor.shape is None:
        return ModelValue(name, dtype, None)
    _check_rank(what, len(tensor.shape.dim))
    shape: list[dim.Size] = []
    for axis, size in enumerate(tensor.shape.dim):
        if size.dim_value is not None:
            if size.dim_value < 0:
                raise ModelError("load", what, f"extent {axis}", size.dim_value, "0 or more", "export it again")
            shape.append(size.dim_value)
        else:
            given = _text(f"name of extent {axis} of {name!r}", size.dim_param)
            symbol = given or f"{name}.{axis}"
            while not given and symbol.encode() in parameters:
                symbol += "'"
            shape.append(dim.symbol(symbol))
    return ModelValue(name, dtype, tuple(shape))


def _extents(value: Message) -> Sequence[Message]:
    """What a value says of its extents."""
    tensor = value.type and value.type.tensor_type
    return tensor.shape.dim if tensor and tensor.shape else ()


def _dtype(what: str, number: int) -> DType:
    """The element format of that number.

    Raises:  UnsupportedModelError if there is none.
    """
    dtype = DTYPES.get(number)
    if dtype is None or dtype.numpy is None:
        kind, expected = _OTHER_DTYPES.get(number, number), "a number or a truth value"
        raise UnsupportedModelError("load", what, "element type", kind, expected, "export it with another type")
    return dtype


def _array(tensor: Message, folder: str | None) -> Array:
    """The elements of a tensor, wherever the model keeps them."""
    what = f"tensor {_text('name of a tensor', tensor.name)!r}"
    dtype = _dtype(what, tensor.data_type or 0)
    shape, kind = _checked_shape(what, tensor.dims, dtype), np.dtype(dtype.numpy)
    if tensor.segment is not None:
        raise UnsupportedModelError("load", what, "", "a segment of one", "whole", "export it in one piece")
    count = math.prod(shape)
    size_bytes = -(-count * dtype.width_bits // 8)
    if tensor.data_location == DataLocation.EXTERNAL:
        array = _elements(_external(what, tensor, size_bytes, folder), kind, dtype.width_bits, count)
    elif tensor.raw_data is not None:
        raw = tensor.raw_data
        _check_size(what, "raw data", len(raw), size_bytes, shape)
        array = _elements(_kept(raw, kind), kind, dtype.width_bits, count)
    else:
        field, stored = _FIELDS.get(dtype, _NARROW)
        numbers = _numbers(getattr(tensor, field), stored)
        is_packed = dtype.width_bits in (2, 4)
        _check_size(what, field, len(numbers), size_bytes if is_packed else count, shape)
        # What is narrower than its field lies in the low bytes; elements of 2 and 4 bits share them.
        array = numbers
        if is_packed:
            array = _elements(array.astype(np.uint8), kind, dtype.width_bits, count)
        elif array.dtype.kind in "iu":
            array = array.astype(f"u{kind.itemsize}").view(kind)
    if kind == np.bool_ and array.size and array.view(np.uint8).max() > 1:
        raise ModelError("load", what, "an element", array.view(np.uint8).max(), "0 or 1", "export it again")
    return array.reshape(shape)


def _kept(raw: memoryview, kind: np.dtype[Any]) -> Array:
    """A tensor's bytes, for elements of that kind: those of the model itself where they are many and lie well for it.

    A copy lies well, and keeps nothing of the model but itself.
    """
    data = np.frombuffer(raw, np.uint8)
    is_many = data.nbytes >= MAPPED and address_of(data) % kind.alignment == 0
    return data if is_many else data.copy()


def _numbers(given: Sequence[Any], stored: Any) -> Array:
    """The numbers of a field that may be there many times."""
    if np.dtype(stored).kind == "f":
        return np.frombuffer(b"".join(given), stored).astype(np.dtype(stored).newbyteorder("="))
    return np.array(given, stored)


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
    _check_rank(what, len(shape))
    if any(extent < 0 for extent in shape):
        raise ModelError("load", what, "shape", list(shape), "not negative", "export it again")
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


def _external(what: str, tensor: Message, size: int, folder: str | None) -> Array:
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


def _attributes(name: str, node: Message, folder: str | None) -> dict[str, tuple[str, Any]]:
    """The attributes of a node by name."""
    found: dict[str, tuple[str, Any]] = {}
    for attribute in node.attribute:
        key = _text(f"name of an attribute of node {name!r}", attribute.name)
        _check_once(f"node {name!r}: attribute", found, key)
        found[key] = ("another kind", None) if attribute.ref_attr_name else _attribute(attribute, folder)
    return found


def _attribute(attribute: Message, folder: str | None) -> tuple[str, Any]:
    """The kind of an attribute, as rows call it, and its value."""
    kind = attribute.type
    if kind == AttributeKind.INT:
        return "int", attribute.i or 0
    if kind == AttributeKind.FLOAT:
        return "float", float(_numbers([attribute.f or bytes(4)], "<f4")[0])
    if kind in (AttributeKind.STRING, AttributeKind.STRINGS):
        try:
            if kind == AttributeKind.STRINGS:
                return "strings", tuple(str(text, "utf-8") for text in attribute.strings)
            return "string", str(attribute.s or b"", "utf-8")
        except UnicodeDecodeError:
            return "bytes that are no UTF-8", None
    if kind == AttributeKind.INTS:
        return "ints", tuple(attribute.ints)
    if kind == AttributeKind.FLOATS:
        return "floats", tuple(_numbers(attribute.floats, "<f4").tolist())
    if kind == AttributeKind.TENSOR:
        return "tensor", _array(attribute.t or wire.read(messages.TENSOR, b""), folder)
    return "another kind", None
