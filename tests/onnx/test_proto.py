"""What the bytes of a model say, and what they cannot: names that are text, elements that fill their shape."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import onnx as onnx_package
import protos
import pytest
from google.protobuf.message import EncodeError
from onnx import ModelProto, TensorProto, helper, numpy_helper

from samebits import dtypes, onnx
from samebits.errors import ModelError, SamebitsError, UnsupportedModelError
from samebits.onnx import messages, proto, wire
from samebits.runtime import cpu

X = np.array([1.5, -2.0], np.float32)


def named() -> ModelProto:
    """y = -(x + w), every name of eight letters of its own, so that bytes can be put in its place."""
    nodes = [
        helper.make_node("Add", ["inputxxx", "weightww"], ["middlemm"], "nodename", doc_string="docnodes"),
        helper.make_node("Cast", ["middlemm"], ["castcast"], to=1, round_mode="nearest"),
        helper.make_node("Neg", ["castcast"], ["outputyy"]),
    ]
    inputs, outputs = protos.value("inputxxx", np.float32, ["extentnn"]), protos.value("outputyy", np.float32, [2])
    model = protos.model(nodes, [inputs], [outputs], {"weightww": X}, opset=24)
    model.graph.name, model.doc_string, model.producer_name = "graphggg", "docmodel", "producer"
    model.domain, model.graph.doc_string = "domainmm", "docgraph"
    model.graph.initializer[0].doc_string, model.graph.input[0].doc_string = "doctenso", "docvalue"
    model.metadata_props.add(key="metadata", value="metavalu")
    model.opset_import.append(helper.make_opsetid("opsetdom", 1))
    model.graph.value_info.append(protos.value("middlemm", np.float32, ["otherext"]))
    return model


def damaged(name: str) -> bytes:
    """The model with every occurrence of a name made of bytes that are no UTF-8."""
    data = named().SerializeToString()
    assert name.encode() in data
    return data.replace(name.encode(), b"\xff\xfe" + name[2:].encode())


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("graphggg", "name of the graph"),
        ("nodename", "name of a node"),
        ("inputxxx", "name of an input"),
        ("weightww", "name of an initializer"),
        ("middlemm", "name of a node's output"),
        ("outputyy", "name of an output"),
        ("castcast", "name of a node's output"),
        ("extentnn", "name of extent 0 of 'inputxxx'"),
        ("opsetdom", "name of a domain"),
        ("round_mode", "name of an attribute of node 'Cast:castcast'"),
    ],
)
def test_a_name_is_text(name: str, what: str) -> None:
    with pytest.raises(ModelError) as error:
        onnx.load(damaged(name))
    shown = b"\xff\xfe" + name[2:].encode()
    assert str(error.value) == f"load: the {what} is {shown!r}, must be UTF-8; export the model with other names"


@pytest.mark.parametrize("what", ["operator", "domain", "input"])
def test_a_name_in_a_node_is_text(what: str) -> None:
    model = named()
    node = model.graph.node[2]
    node.op_type, node.domain = "Negative", "nodedoma"
    node.input[0] = "anotheri"
    data = model.SerializeToString()
    name = {"operator": b"Negative", "domain": b"nodedoma", "input": b"anotheri"}[what]
    with pytest.raises(ModelError, match="must be UTF-8; export the model with other names"):
        onnx.load(data.replace(name, b"\x80" + name[1:]))


def test_a_string_that_an_attribute_holds_is_text() -> None:
    with pytest.raises(UnsupportedModelError) as error:
        onnx.load(damaged("nearest"))
    assert str(error.value).splitlines()[1] == (
        "  node 'Cast:castcast', Cast of opset 24: attribute 'round_mode' is of bytes that are no UTF-8, "
        "must be of string"
    )


@pytest.mark.parametrize(
    "name", ["docmodel", "docgraph", "docnodes", "doctenso", "docvalue", "producer", "domainmm", "metadata", "metavalu"]
)
def test_words_that_nobody_reads_may_be_anything(name: str) -> None:
    assert cpu.load(damaged(name)).run({"inputxxx": X})["outputyy"].tolist() == (-2 * X).tolist()


def test_every_text_of_a_model_may_be_damaged() -> None:
    """Each byte of each name by one that no UTF-8 has: a sentence or a model, at load; nothing new at the run."""
    model = named()
    data = model.SerializeToString()
    for place in range(len(data)):
        if not chr(data[place]).isalpha():
            continue
        try:
            session = cpu.load(data[:place] + b"\xff" + data[place + 1 :])
        except SamebitsError:
            continue
        (name,) = session.program.input_names
        assert len(session.run({name: X})) == 1


def changed(change: Callable[[Any], object]) -> str:
    """What loading says of a changed model."""
    model = named()
    change(model)
    with pytest.raises(ModelError) as error:
        onnx.load(model.SerializeToString())
    return str(error.value)


def test_a_name_is_not_empty() -> None:
    """The empty name means an operand that is left out; a value must not be found under it."""
    for what, each in (("input", "input"), ("initializer", "initializer"), ("output", "output")):
        assert changed(lambda m, each=each: setattr(getattr(m.graph, each)[0], "name", "")) == (
            f"load: an {what} name is empty, must be a name; give it one"
        )


def test_a_domain_has_one_opset() -> None:
    assert changed(lambda m: m.opset_import.append(helper.make_opsetid("ai.onnx", 17))) == (
        "load: opset of domain '' is 24 and 17, must be one number; export the model again"
    )


def test_an_operator_of_odd_letters_is_quoted() -> None:
    text = changed(lambda m: setattr(m.graph.node[2], "op_type", "a\nb"))
    assert len(text.splitlines()) == 2
    assert "'a\\nb' of opset 24: no row for this operator" in text


# -- elements ---------------------------------------------------------------------------------------------------------


def array(tensor: TensorProto) -> np.ndarray[Any, Any]:
    return proto._array(wire.read(messages.TENSOR, tensor.SerializeToString()), None)


KINDS = [row for row in proto.DTYPES.values() if row.width_bits % 8 == 0 and row.numpy is not None]


@pytest.mark.parametrize("row", KINDS, ids=lambda row: row.name)
@pytest.mark.parametrize("raw", [False, True])
def test_elements_are_onnxs_own(row: dtypes.DType, raw: bool) -> None:
    """Against onnx.numpy_helper: every element format, in raw_data and in the field of its kind."""
    assert row.numpy is not None
    kind = np.dtype(row.numpy)
    values = np.array([0, 1]) if kind == np.bool_ else np.array([0, 1, 0.5, 3, 100, 120])
    due = (np.concatenate([values, -values]) if row.signed and kind != np.bool_ else values).astype(kind)
    number = next(number for number, other in proto.DTYPES.items() if other is row)
    if raw:
        tensor = TensorProto(name="t", data_type=number, dims=[2, len(due) // 2], raw_data=due.tobytes())
    else:
        field, stored = proto._FIELDS.get(row, proto._NARROW)
        assert field == helper.tensor_dtype_to_field(number)
        narrow = np.dtype(stored).kind in "iu" and kind.kind not in "iu"
        numbers = due.view(f"u{kind.itemsize}") if narrow else due
        tensor = TensorProto(name="t", data_type=number, dims=[2, len(due) // 2])
        getattr(tensor, field).extend(numbers.tolist())
    made, theirs = array(tensor), numpy_helper.to_array(tensor)
    assert made.shape == theirs.shape == (2, len(due) // 2)
    assert made.dtype == kind
    assert made.tobytes() == theirs.tobytes() == due.tobytes()


NARROW = [row for row in proto.DTYPES.values() if row.width_bits < 8]


@pytest.mark.parametrize("row", NARROW, ids=lambda row: row.name)
@pytest.mark.parametrize("raw", [False, True])
@pytest.mark.parametrize("count", [0, 1, 3, 4, 7, 64])
def test_elements_of_less_than_a_byte_are_onnxs_own(row: dtypes.DType, raw: bool, count: int) -> None:
    """Every code, packed as onnx.numpy_helper packs it, in raw_data and in int32_data."""
    codes = np.arange(count, dtype=np.uint8) % (1 << row.width_bits)
    due = codes.view(row.numpy)
    tensor = numpy_helper.from_array(due, "t")
    if not raw:
        packed = codes.tolist() if row.width_bits == 6 else list(tensor.raw_data)
        tensor = TensorProto(name="t", data_type=tensor.data_type, dims=[count], int32_data=packed)
    made, theirs = array(tensor), numpy_helper.to_array(tensor)
    assert made.dtype == due.dtype == theirs.dtype
    assert made.tobytes() == due.tobytes()
    assert (
        [row.decode(int(code)) for code in codes] == made.astype(np.float32).tolist() == theirs.astype(float).tolist()
    )


def initializer(**fields: Any) -> str:
    """What loading says of a model whose constant is this."""

    def change(model: Any) -> None:
        model.graph.initializer[0].CopyFrom(TensorProto(name="weightww", **fields))

    return changed(change)


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"dims": [2], "raw_data": b"1234567"}, "raw data count is 7 bytes, must be 8 for the shape [2]"),
        ({"dims": [], "raw_data": b""}, "raw data count is 0 bytes, must be 4 for the shape []"),
        ({"dims": [3], "float_data": [1, 2]}, "float_data count is 2 numbers, must be 3 for the shape [3]"),
        ({"dims": [1]}, "float_data count is 0 numbers, must be 1 for the shape [1]"),
        ({"dims": [1], "int32_data": [1]}, "float_data count is 0 numbers, must be 1 for the shape [1]"),
        ({"dims": [-1], "raw_data": b""}, "shape is [-1], must be not negative"),
        ({"dims": [0, 2**62, 2], "raw_data": b""}, f"shape is [0, {2**62}, 2], must be at most {2**63 - 1} bytes"),
    ],
)
def test_elements_fill_their_shape(fields: dict[str, Any], text: str) -> None:
    assert initializer(data_type=1, **fields) == f"load: tensor 'weightww' {text}; export it again"


@pytest.mark.parametrize(("part", "extent"), [("tensor", 2), ("tensor", -1), ("value", 1)])
def test_a_rank_is_one_that_numpy_broadcasts(part: str, extent: int) -> None:
    model = named()
    if part == "tensor":
        model.graph.initializer[0].dims[:] = [1] * 32 + [extent]
    else:
        model.graph.input[0].CopyFrom(protos.value("inputxxx", np.float32, [1] * 32 + [extent]))
    with pytest.raises(UnsupportedModelError) as error:
        onnx.load(model)
    name = "weightww" if part == "tensor" else "inputxxx"
    assert str(error.value) == f"load: {part} {name!r} rank is 33, must be at most 32; join axes"


def test_a_segment_is_no_tensor() -> None:
    segment = TensorProto.Segment(begin=0, end=1)
    assert initializer(data_type=1, dims=[1], float_data=[1], segment=segment) == (
        "load: tensor 'weightww' is a segment of one, must be whole; export it in one piece"
    )


@pytest.mark.parametrize("fields", [{"raw_data": b"\1\2"}, {"int32_data": [1, 2]}])
def test_a_truth_value_is_0_or_1(fields: dict[str, Any]) -> None:
    """Kernels and NumPy would read a third one differently."""
    assert initializer(data_type=9, dims=[2], **fields) == (
        "load: tensor 'weightww' an element is 2, must be 0 or 1; export it again"
    )


def test_narrow_integers_are_the_low_bytes_of_their_field() -> None:
    tensor = TensorProto(name="t", data_type=TensorProto.BFLOAT16, dims=[2], int32_data=[0x3F80, 0xC000])
    assert array(tensor).tolist() == np.array([1, -2], ml_dtypes.bfloat16).tolist()
    tensor = TensorProto(name="t", data_type=TensorProto.INT8, dims=[2], int32_data=[-1, 127])
    assert array(tensor).tolist() == [-1, 127]


def test_other_messages_are_no_model() -> None:
    with pytest.raises(ModelError) as error:
        onnx.load(onnx_package.GraphProto())
    assert str(error.value) == (
        "load: source is GraphProto, must be a path, bytes, a binary file or a ModelProto; pass one of these"
    )


def test_a_model_that_protobuf_cannot_write_is_one_sentence() -> None:
    class ModelProto:
        def SerializeToString(self) -> bytes:
            raise EncodeError("Failed to serialize proto")

    with pytest.raises(ModelError) as error:
        onnx.load(ModelProto())
    assert str(error.value) == (
        "load: the model is larger than a message can be, must be at most 2147483647 bytes;"
        " keep its tensors in a file of their own"
    )


@pytest.mark.parametrize("kind", [np.int8, np.float32, np.float64, np.bool_])
@pytest.mark.parametrize("shift", range(9))
def test_many_elements_lie_in_the_model_where_they_lie_well(kind: type, shift: int) -> None:
    numbers = np.arange(200_000 if np.dtype(kind).itemsize == 1 else 40_000) % 2
    model = protos.model([helper.make_node("Identity", ["w"], ["y"])], [], [], {"w": numbers.astype(kind)})
    model.graph.output.append(protos.value("y", kind, numbers.shape))
    model.producer_name = "p" * shift
    data = bytearray(model.SerializeToString())
    found = proto.read(data).initializers["w"]
    assert found.flags.aligned
    data[:] = bytes(len(data))  # the caller's own
    assert np.array_equal(found, numbers.astype(kind))
    shared = proto.read(given := model.SerializeToString()).initializers["w"]
    inside = np.frombuffer(given, np.uint8)
    lies_well = (
        found.itemsize == 1 or given.find(found.tobytes()) % found.itemsize == -inside.ctypes.data % found.itemsize
    )
    assert np.may_share_memory(shared, inside) == lies_well
