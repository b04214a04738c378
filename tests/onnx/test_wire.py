"""The wire format of Protocol Buffers beside protobuf's own parser, on whole models and on damaged ones."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from typing import Any

import models
import numpy as np
import onnx_nodes
import pytest
from google.protobuf.message import DecodeError, Message
from onnx import AttributeProto, ModelProto, NodeProto, TensorProto, TypeProto, helper, numpy_helper

from samebits.onnx import messages, proto, wire
from samebits.onnx.wire import Field, FieldType, MalformedError, Schema

KINDS = {
    "INT32": FieldType.INT32,
    "ENUM": FieldType.INT32,
    "INT64": FieldType.INT64,
    "UINT64": FieldType.UINT64,
    "FLOAT": FieldType.FLOAT,
    "DOUBLE": FieldType.DOUBLE,
    "STRING": FieldType.BYTES,
    "BYTES": FieldType.BYTES,
}


def schemas(schema: Schema, theirs: Any) -> Iterator[tuple[Schema, Any]]:
    """Every schema with protobuf's descriptor of the message."""
    yield schema, theirs
    for number, field in schema.fields.items():
        if isinstance(field.holds, Schema):
            yield from schemas(field.holds, theirs.fields_by_number[number].message_type)


def test_fields_are_those_of_onnxs_own_schema() -> None:
    for schema, theirs in schemas(messages.MODEL, ModelProto.DESCRIPTOR):
        for number, field in schema.fields.items():
            found = theirs.fields_by_number[number]
            assert (field.name, field.repeated) == (found.name, found.is_repeated)
            assert schema.is_choice == (found.containing_oneof is not None)
            if isinstance(field.holds, FieldType) and found.type != found.TYPE_MESSAGE:
                named = next(name for name in KINDS if getattr(found, f"TYPE_{name}") == found.type)
                assert field.holds is KINDS[named], field
    for kind in messages.AttributeKind:
        assert AttributeProto.AttributeType.Value(kind.name) == kind
    for place in messages.DataLocation:
        assert TensorProto.DataLocation.Value(place.name) == place


def plain(field: Field, value: Any, descriptor: Any) -> Any:
    """What protobuf found in a field, as `wire` says it."""
    if isinstance(field.holds, Schema):
        return said(field.holds, value)
    if field.holds in (FieldType.FLOAT, FieldType.DOUBLE):
        return struct.pack("<f" if field.holds is FieldType.FLOAT else "<d", value)
    if descriptor.type == descriptor.TYPE_MESSAGE:
        return b""  # only its presence is read
    return value.encode() if isinstance(value, str) else value


def said(schema: Schema, theirs: Message) -> dict[str, Any]:
    """What protobuf found in a message, of what is read."""
    found: dict[str, Any] = {}
    for number, field in schema.fields.items():
        descriptor = theirs.DESCRIPTOR.fields_by_number[number]
        value: Any = getattr(theirs, field.name)
        if field.repeated:
            many = [plain(field, each, descriptor) for each in value]
            found[field.name] = b"".join(many) if field.holds in (FieldType.FLOAT, FieldType.DOUBLE) else many
        else:
            found[field.name] = plain(field, value, descriptor) if theirs.HasField(field.name) else None
    return found


def ours(schema: Schema, message: wire.Message, theirs: Any) -> dict[str, Any]:
    """What we found, comparable with that."""
    found: dict[str, Any] = {}
    for number, field in schema.fields.items():
        descriptor, value = theirs.fields_by_number[number], getattr(message, field.name)
        many = value if field.repeated else [] if value is None else [value]
        if isinstance(field.holds, Schema):
            many = [ours(field.holds, each, descriptor.message_type) for each in many]
        elif field.holds in (FieldType.FLOAT, FieldType.DOUBLE):
            # Python's floats, which protobuf gives, are no signalling NaN; we keep those.
            kind = "<f" if field.holds is FieldType.FLOAT else "<d"
            many = [struct.pack(kind, x) for each in many for (x,) in struct.iter_unpack(kind, each)]
        elif field.holds is FieldType.BYTES:
            many = [b"" if descriptor.type == descriptor.TYPE_MESSAGE else bytes(each) for each in many]
        elif descriptor.type == descriptor.TYPE_ENUM:
            many = [each for each in many if each in descriptor.enum_type.values_by_number]
        if field.repeated:
            packs = field.holds in (FieldType.FLOAT, FieldType.DOUBLE)
            found[field.name] = b"".join(many) if packs else list(many)
        else:
            found[field.name] = many[0] if many else None
    return found


def check(data: bytes) -> bool:
    """Whether both find the same model; False where protobuf finds none.

    Protobuf also looks at what nobody reads, so that it may refuse what we take.
    """
    try:
        theirs = ModelProto.FromString(data)
    except DecodeError:
        return False
    assert ours(messages.MODEL, wire.read(messages.MODEL, data), ModelProto.DESCRIPTOR) == said(messages.MODEL, theirs)
    return True


def test_models_are_those_that_protobuf_reads() -> None:
    """Every model of ONNX's backend tests."""
    names = {case.name for case in onnx_nodes.cases() if check(case.model.SerializeToString())}
    assert len(names) > 1500


def sample() -> bytes:
    """A model with a field of every kind that is read."""
    nodes = [
        helper.make_node("Add", ["x", "w"], ["s"], "first", doc_string="words"),
        helper.make_node("Clip", ["s"], ["t"], domain="some", ints=[1, -2, 1 << 62], floats=[0.5, -1.5], alpha=2.5),
        helper.make_node("Constant", [], ["c"], value=numpy_helper.from_array(np.arange(3), "k"), mode="text", k=-1),
    ]
    graph = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3, None])],
        [helper.make_tensor_value_info("t", TensorProto.FLOAT, None)],
        [
            numpy_helper.from_array(np.arange(3, dtype=np.float32), "w"),
            helper.make_tensor("i", TensorProto.INT32, [2], [-1, 5]),
            helper.make_tensor("j", TensorProto.INT64, [3], [-1, 300, 1 << 62]),
            helper.make_tensor("f", TensorProto.FLOAT, [2], [1.5, float("nan")]),
            helper.make_tensor("d", TensorProto.DOUBLE, [1], [2.5]),
            helper.make_tensor("u", TensorProto.UINT64, [1], [2**64 - 1]),
        ],
    )
    tensor = graph.initializer.add(name="outside", dims=[4], data_type=1, data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value="file.bin")
    graph.output.append(helper.make_value_info("q", helper.make_sequence_type_proto(TypeProto())))
    return bytes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)]).SerializeToString())


def damaged(data: bytes, r: random.Random) -> bytes:
    """Some bytes changed, taken out, put in or said again elsewhere."""
    for _ in range(r.randint(1, 3)):
        at = r.randrange(len(data) + 1)
        end = min(len(data), at + r.choice([0, 1, 1, 1, 2, 5, 30]))
        same = r.randbytes(end - at)
        new = r.choice([same, same, same, b"", r.randbytes(1), r.randbytes(3), data[at:end] * 2])
        data = data[:at] + new + data[end:]
    return data


@pytest.mark.parametrize("seed", range(8))
def test_damaged_models_are_read_as_protobuf_reads_them(seed: int) -> None:
    """What protobuf takes we take, with the same values; what we refuse it refuses too."""
    r, data = random.Random(seed), sample()
    assert check(data)
    counts = {True: 0, False: 0}
    for _ in range(1500):
        other = damaged(data, r)
        taken = check(other)
        counts[taken] += 1
        if not taken:
            try:
                wire.read(messages.MODEL, other)
            except MalformedError:
                continue
    assert min(counts.values()) > 100


def field(number: int, kind: int, content: bytes = b"") -> bytes:
    return varint(number << 3 | kind) + content


def varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    found = bytearray()
    while value >= 0x80:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*found, value])


def text(number: int, content: bytes) -> bytes:
    return field(number, 2, varint(len(content)) + content)


TENSORS = {
    "nothing": b"",
    "numbers apart": b"".join(field(1, 0, varint(x)) for x in (1, -1, 300)),
    "numbers packed": text(1, varint(1) + varint(-1) + varint(300)),
    "both": field(1, 0, varint(7)) + text(1, varint(8)) + field(1, 0, varint(9)),
    "none packed": text(1, b""),
    "a number of ten bytes": text(1, b"\xff" * 9 + b"\x7f"),
    "low bits alone": field(2, 0, varint(1 << 40 | 11)) + text(5, varint((1 << 35) + 3) + varint(-5)),
    "the last one counts": field(2, 0, varint(1)) + field(2, 0, varint(6)),
    "floats apart and packed": field(4, 5, b"\1\2\3\4") + text(4, b"\5\6\7\x08" * 2),
    "quiet and other NaN": text(4, struct.pack("<II", 0x7FC00001, 0x7FC00000)),
    "doubles": field(10, 1, b"\1\2\3\4\5\6\7\x08") + text(10, bytes(16)),
    "another wire type": field(2, 2, varint(2) + b"ab") + field(8, 0, varint(5)) + field(9, 5, b"abcd"),
    "a field of a group": field(2, 3, field(1, 0, varint(5)) + field(3, 3) + field(3, 4)) + field(2, 4),
    "many unknown": text(99, b"abc") + field(98, 0, varint(3)) + field(97, 5, b"abcd") + field(96, 1, b"abcdefgh"),
    "the largest field": field((1 << 29) - 1, 0, varint(1)),
    "a long tag": bytes([0x90, 0x80, 0x80, 0x80, 0x00]) + varint(6),
    "a segment": text(3, b""),
    "an entry": text(13, text(1, b"key") + text(2, b"value")),
}


@pytest.mark.parametrize("data", TENSORS.values(), ids=TENSORS.keys())
def test_what_may_be_written_in_several_ways(data: bytes) -> None:
    theirs = TensorProto.FromString(data)
    found = wire.read(messages.TENSOR, data)
    assert ours(messages.TENSOR, found, TensorProto.DESCRIPTOR) == said(messages.TENSOR, theirs)


MALFORMED = {
    "a tag is cut off": (b"\x80", "it ends within a number"),
    "a number is cut off": (field(2, 0, b"\xff"), "it ends within a number"),
    "a number is too long": (field(2, 0, b"\xff" * 10 + b"\1"), "a number has more than 10 bytes"),
    "a text is cut off": (field(8, 2, varint(4) + b"abc"), "field 8 is cut off"),
    "a length is huge": (field(8, 2, varint(1 << 63)), "field 8 is cut off"),
    "a float is cut off": (field(4, 5, b"abc"), "field 4 is cut off"),
    "packed floats are cut off": (text(4, b"abcde"), "float_data ends within a number"),
    "packed numbers are cut off": (text(7, b"\1\x80"), "int64_data ends within a number"),
    "a packed number is too long": (text(7, b"\xff" * 10 + b"\1"), "int64_data has a number of more than 10 bytes"),
    "no field": (field(0, 0, b"\1"), "a field has the number 0"),
    "a wire type that is none": (field(8, 6), "field 8 has the wire type 6"),
    "a group that nobody began": (field(8, 4), "field 8 has the wire type 4"),
    "a group without end": (field(50, 3, field(1, 0, b"\1")), "it ends within a number"),
    "another group's end": (field(50, 3) + field(51, 4), "field 51 has the wire type 4"),
    "groups without end": (field(50, 3) * 5000 + field(50, 4) * 5000, "more than 100 groups are within each other"),
    "a tag of more than 32 bits": (varint(1 << 40), "a field has the number 137438953472"),
}


@pytest.mark.parametrize(("data", "reason"), MALFORMED.values(), ids=MALFORMED.keys())
def test_what_is_no_message_is_refused(data: bytes, reason: str) -> None:
    with pytest.raises(DecodeError):
        TensorProto.FromString(data)
    with pytest.raises(MalformedError) as error:
        wire.read(messages.TENSOR, data)
    assert str(error.value) == reason


def test_messages_of_one_field_are_joined_and_of_a_choice_the_last_counts() -> None:
    model = ModelProto.FromString(sample())
    parts = [ModelProto(), ModelProto()]
    parts[0].graph.node.add(op_type="One")
    parts[1].graph.node.add(op_type="Two")
    parts[1].graph.name = "another"
    assert check(b"".join(bytes(part.SerializeToString()) for part in (model, *parts)))
    number, name = field(1, 0, varint(5)), text(2, b"n")
    for first, second in ((number, name), (name, number)):
        extent = text(1, first + second)
        data = text(7, text(11, text(2, text(1, text(2, extent)))))
        assert check(data)
    tensor, sequence = text(1, field(1, 0, varint(1))), text(4, b"")
    for first, second in ((tensor, sequence), (sequence, tensor), (tensor, text(1, text(2, b"")))):
        assert check(text(7, text(11, text(2, first + second))))


def test_a_value_that_is_not_utf8_is_bytes() -> None:
    node = NodeProto.FromString(text(4, b"ok"))
    assert node.op_type == "ok"
    (found,) = wire.read(messages.MODEL, text(7, text(1, text(4, b"\xff\xfe")))).graph.node
    assert bytes(found.op_type) == b"\xff\xfe"


def test_a_model_is_read_from_its_bytes_alone(tmp_path: Any) -> None:
    """What is read keeps no part of the file: constants are copies, aligned for their elements."""
    path = models.classifier(tmp_path / "model.onnx")
    data = bytearray(path.read_bytes())
    model = proto.read(data)
    before = {name: array.copy() for name, array in model.initializers.items()}
    data[:] = bytes(len(data))
    assert before
    for name, array in model.initializers.items():
        assert array.flags.aligned
        assert array.tobytes() == before[name].tobytes()
