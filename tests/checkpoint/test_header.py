"""Headers of safetensors files: the verdict of the official reader on each, but for what is listed with its reason."""

from __future__ import annotations

import json
import pathlib
import random
import struct
from typing import Any

import numpy as np
import pytest
import safetensors
from safetensors import safe_open
from sentences import check_sentence

import samebits as sb
from samebits import checkpoint, dtypes
from samebits.checkpoint import header
from samebits.errors import ModelError

ONE = b'{"dtype":"F32","shape":[1],"data_offsets":[0,4]}'


def file_of(text: bytes, data_bytes: int) -> bytes:
    return struct.pack("<Q", len(text)) + text + bytes(data_bytes)


def facts(**changed: Any) -> bytes:
    """A header of one tensor "a", float32 [1], but for what is changed."""
    return json.dumps({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]} | changed}).encode()


def official(data: bytes) -> bool:
    """Whether the official reader takes a file."""
    try:
        safetensors.deserialize(data)
    except safetensors.SafetensorError:
        return False
    return True


def said(path: pathlib.Path, data: bytes) -> str:
    """What we say of a file; nothing where we take it."""
    path.unlink(missing_ok=True)  # file systems write one that is cut and written anew to the disk
    path.write_bytes(data)
    try:
        with checkpoint.open(path) as found:
            for stored in found.tensors.values():
                if stored.dtype is not None and len(stored.shape) <= 64 and max(stored.shape, default=0) < 2**32:
                    found[stored.name].tobytes()
    except ModelError as error:
        check_sentence(error)
        return str(error)
    return ""


# A header, the bytes behind it, and a part of what we say; nothing where it is taken.
HEADERS: list[tuple[bytes, int, str]] = [
    (b"{}", 0, ""),
    (b"  {} \n\t", 0, ""),
    (b'{"__metadata__":null}', 0, ""),
    (b'{"__metadata__":{"a":"b"}}', 0, ""),
    (b'{"a":' + ONE + b"}", 4, ""),
    (b'{"":' + ONE + b"}", 4, ""),
    (b'{"\\u0000":' + ONE + b"}", 4, ""),
    (facts(unknown=[[1.5, None, {"y": []}]]), 4, ""),
    (facts(shape=[]), 4, ""),
    (facts(shape=[1] * 100), 4, ""),
    (facts(shape=[0, 2**64 - 1], data_offsets=[0, 0]), 0, ""),
    (facts(shape=[2, 3], dtype="F4", data_offsets=[0, 3]), 3, ""),
    (facts(shape=[4], dtype="F6_E2M3", data_offsets=[0, 3]), 3, ""),
    (facts(dtype="C64", data_offsets=[0, 8]), 8, ""),
    (b'{"b":{"dtype":"U8","shape":[2],"data_offsets":[4,6]},"a":' + ONE + b"}", 6, ""),
    (b'{"b":{"dtype":"U8","shape":[0],"data_offsets":[4,4]},"a":' + ONE + b"}", 4, ""),
    (b"\x0c{}", 0, "header is no JSON (Expecting value: line 1 column 1)"),
    (b"[]", 0, "header is a JSON list, must be a JSON object in UTF-8"),
    (b"null", 0, "header is a JSON NoneType"),
    (b"", 0, "header is no JSON"),
    (b"{}x", 0, "header is no JSON (Extra data"),
    (b"\xef\xbb\xbf{}", 0, "header is no JSON"),
    (b'{"\xff":1}', 0, "header is no text in UTF-8"),
    (b'{"__metadata__":[]}', 0, "__metadata__ is a JSON list, must be an object of strings"),
    (b'{"__metadata__":{"a":1}}', 0, "__metadata__ 'a' is a JSON int, must be a string"),
    (b'{"__metadata__":{},"__metadata__":{}}', 0, "header name '__metadata__' is there twice, must be there once"),
    (b'{"a":null}', 0, "tensor 'a' is a JSON NoneType, must be an object of dtype, shape and data_offsets"),
    (b'{"a":{"dtype":"F32","dtype":"F32","shape":[1],"data_offsets":[0,4]}}', 4, "name 'dtype' is there twice"),
    (b'{"a":{"shape":[1],"data_offsets":[0,4]}}', 4, "tensor 'a' dtype is None, must be one of BOOL, F4,"),
    (facts(dtype="f32"), 4, "tensor 'a' dtype is 'f32'"),
    (facts(dtype=7), 4, "tensor 'a' dtype is 7"),
    (facts(dtype=["F32"]), 4, "tensor 'a' dtype is [\"F32\"]"),
    (facts(shape=[1.0]), 4, "tensor 'a' shape is [1.0], must be a list of integers from 0 to 2**64 - 1"),
    (facts(shape=[True]), 4, "tensor 'a' shape is [true]"),
    (facts(shape=[-1]), 4, "tensor 'a' shape is [-1]"),
    (facts(shape=1), 4, "tensor 'a' shape is 1"),
    (facts(shape=None), 4, "tensor 'a' shape is None"),
    (facts(shape={"0": 1}), 4, "tensor 'a' shape is {\"0\": 1}"),
    (facts(shape=[2**64]), 4, "tensor 'a' shape is [18446744073709551616]"),
    (b'{"a":{"dtype":"F32","shape":[-0],"data_offsets":[0,0]}}', 0, "tensor 'a' shape is [-0.0]"),
    (b'{"a":{"dtype":"F32","shape":[1e0],"data_offsets":[0,4]}}', 4, "tensor 'a' shape is [1.0]"),
    (b'{"a":{"dtype":"F32","shape":[NaN],"data_offsets":[0,4]}}', 4, "header is no JSON (NaN is no number)"),
    (b'{"a":{"dtype":"F32","shape":[01],"data_offsets":[0,4]}}', 4, "header is no JSON"),
    (facts(shape=[2**32, 2**32, 0], data_offsets=[0, 0]), 0, "must be of fewer than 2**64 bits"),
    (facts(shape=[2**60], data_offsets=[0, 2**62]), 4, "must be of fewer than 2**64 bits"),
    (
        facts(shape=[2**58], data_offsets=[0, 2**60]),
        4,
        "size behind its header is 4 bytes, must be 1152921504606846976",
    ),
    (facts(shape=[3], dtype="F4", data_offsets=[0, 2]), 2, "tensor 'a' size is 12 bits, must be whole bytes"),
    (facts(shape=[2]), 4, "data_offsets is [0, 4], must be 8 bytes, as F32 of shape [2] takes"),
    (facts(data_offsets=[0]), 4, "data_offsets is [0], must be two integers"),
    (facts(data_offsets=[0, 4, 4]), 4, "data_offsets is [0, 4, 4], must be two integers"),
    (facts(data_offsets=[4, 0]), 4, "data_offsets is [4, 0], must be 4 bytes"),
    (facts(data_offsets=[-4, 0]), 4, "data_offsets is [-4, 0], must be two integers"),
    (facts(data_offsets=[0.0, 4.0]), 4, "data_offsets is [0.0, 4.0], must be two integers"),
    (facts(data_offsets=[2**63, 2**63 + 4]), 4, "begin is 9223372036854775808, must be 0"),
    (facts(data_offsets=[4, 8]), 8, "tensor 'a' begin is 4, must be 0, where the tensor before it ends"),
    (facts(), 8, "size behind its header is 8 bytes, must be 4, as its tensors take"),
    (facts(), 3, "size behind its header is 3 bytes"),
    (b'{"b":' + ONE + b',"a":' + ONE + b"}", 4, "tensor 'a' begin is 0, must be 4"),
    (b'{"b":{"dtype":"U8","shape":[0],"data_offsets":[2,2]},"a":' + ONE + b"}", 4, "tensor 'b' begin is 2"),
    (b'{"\\ud800":' + ONE + b"}", 4, "header text is '\\ud800', must be one that UTF-8 has"),
    (b'{"a\tb":' + ONE + b"}", 4, "header is no JSON"),
    (b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}", 4, "header is no JSON (nested too deeply)"),
    (b'{"a":' + b"1" * 5000 + b"}", 4, "header is no JSON"),
]


@pytest.mark.parametrize(("text", "data_bytes", "sentence"), HEADERS, ids=range(len(HEADERS)))
def test_a_header_is_taken_or_refused_as_by_the_official_reader(
    tmp_path: pathlib.Path, text: bytes, data_bytes: int, sentence: str
) -> None:
    data = file_of(text, data_bytes)
    found = said(tmp_path / "x.safetensors", data)
    assert bool(found) == bool(sentence)
    assert sentence in found
    assert official(data) == (not sentence)


# What the official reader takes and we refuse.
STRICTER = {
    "a name that is there twice": b'{"a":' + ONE + b',"a":' + ONE + b"}",
    "text that is there twice": b'{"__metadata__":{"x":"y","x":"z"},"a":' + ONE + b"}",
    "facts without names": b'{"a":["F32",[1],[0,4]]}',
    "a format as an object": b'{"a":{"dtype":{"F32":null},"shape":[1],"data_offsets":[0,4]}}',
    "a note of ours that is none": b'{"__metadata__":{"samebits":"?"},"a":' + ONE + b"}",
}


@pytest.mark.parametrize("text", STRICTER.values(), ids=STRICTER)
def test_what_the_format_forbids_is_refused_though_the_official_reader_takes_it(
    tmp_path: pathlib.Path, text: bytes
) -> None:
    assert said(tmp_path / "x.safetensors", file_of(text, 4))
    assert official(file_of(text, 4))


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (b"", "size is 0 bytes, must be a safetensors, .npy or .npz file"),
        (bytes(7), "size is 7 bytes"),
        (bytes(8), "header is no JSON"),
        (struct.pack("<Q", 3) + b"{}", "header length is 3, must be at most 2"),
        (
            b"Hello, world",
            "content is of another kind (it begins with b'Hello, w'), must be a safetensors, .npy or .npz",
        ),
        (struct.pack("<Q", 2**63) + b"{}", "header length is 9223372036854775808, must be at most 2"),
        (struct.pack("<Q", 2**64 - 1) + b"{}", "header length is 18446744073709551615, must be at most 2"),
    ],
)
def test_a_length_that_is_none_is_refused(tmp_path: pathlib.Path, data: bytes, sentence: str) -> None:
    assert sentence in said(tmp_path / "x.safetensors", data)
    assert not official(data)


def test_a_header_beyond_the_limit_is_refused_unread(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "x.safetensors"
    with path.open("wb") as file:
        file.write(struct.pack("<Q", header.LONGEST + 1))
        file.truncate(header.LONGEST + 100)
    with pytest.raises(ModelError, match=f"header length is {header.LONGEST + 1}, must be at most {header.LONGEST}"):
        checkpoint.open(path)
    with pytest.raises(safetensors.SafetensorError, match="header too large"), safe_open(path, "np"):
        pass


@pytest.mark.parametrize("count", [50_000, pytest.param(1_000_000, marks=pytest.mark.exhaustive)])
def test_many_tensors_are_read_and_one_wrong_among_them_is_found(tmp_path: pathlib.Path, count: int) -> None:
    path = tmp_path / "x.safetensors"
    entries = [f'"{i}":{{"dtype":"U8","shape":[1],"data_offsets":[{i},{i + 1}]}}' for i in range(count)]
    path.write_bytes(file_of(("{" + ",".join(entries) + "}").encode(), count))
    with checkpoint.open(path) as found:
        assert len(found) == count
        assert found[str(count - 1)].tolist() == [0]
    entries[count // 2] = '"9":' + entries[count // 2].partition(":")[2]
    assert "header name '9' is there twice" in said(path, file_of(("{" + ",".join(entries) + "}").encode(), count))


# Our own note.


@pytest.mark.parametrize(
    ("note", "sentence"),
    [
        ({"dtypes": {"a": {"dtype": "int4", "shape": [7]}}}, ""),
        ({"dtypes": {"a": {"dtype": "int4", "shape": [2, 4]}}}, ""),
        ({"dtypes": {}}, ""),
        ({"unknown": 5}, ""),
        ({"dtypes": []}, "__metadata__ 'samebits' dtypes is a JSON list, must be an object"),
        ({"dtypes": {"a": 5}}, "dtypes 'a' is 5, must be an object of dtype and shape"),
        ({"dtypes": {"a": {"dtype": "int4", "shape": [9]}}}, "shape is [9], must be of 4 bytes of int4"),
        ({"dtypes": {"a": {"dtype": "int4", "shape": [2**63, 2**63]}}}, "must be of 4 bytes of int4"),
        ({"dtypes": {"a": {"dtype": "int4", "shape": [2**63] * 20_000}}}, "must be of 4 bytes of int4"),
        ({"dtypes": {"a": {"dtype": "int4", "shape": [-8]}}}, "must be an object of dtype and shape"),
        ({"dtypes": {"a": {"dtype": "int5", "shape": [7]}}}, "dtype is 'int5', must be a name of dtypes.ROWS"),
        ({"dtypes": {"a": {"dtype": ["int4"], "shape": [7]}}}, 'dtype is ["int4"], must be a name of dtypes.ROWS'),
        ({"dtypes": {"b": {"dtype": "int4", "shape": [7]}}}, "'b' is of no tensor, must be of a U8 tensor"),
        ({"dtypes": {"c": {"dtype": "int4", "shape": [8]}}}, "'c' is of no U8 tensor, must be of a U8 tensor"),
        ([], "__metadata__ 'samebits' is a JSON list"),
    ],
)
def test_a_note_says_what_bytes_are_or_is_refused(tmp_path: pathlib.Path, note: Any, sentence: str) -> None:
    entries = {
        "__metadata__": {"samebits": json.dumps(note)},
        "a": {"dtype": "U8", "shape": [4], "data_offsets": [0, 4]},
        "c": {"dtype": "I8", "shape": [4], "data_offsets": [4, 8]},
    }
    found = said(tmp_path / "x.safetensors", file_of(json.dumps(entries).encode(), 8))
    assert bool(found) == bool(sentence)
    assert sentence in found


# Mutations.


def base(path: pathlib.Path) -> bytes:
    """A file with a tensor of many formats, text, and a note."""
    r = np.random.default_rng(0)
    tensors: dict[str, object] = {}
    for row in dtypes.ROWS:
        codes = r.integers(0, 2, -(-6 * row.width_bits // 8)).astype(np.uint8)
        tensors[f"{row.name} ü"] = sb.Tensor.from_bytes(codes, row, (2, 3))
    checkpoint.save(path, tensors, metadata={"a": "b"})
    return path.read_bytes()


def mutated(data: bytes, r: random.Random) -> bytes:
    """A few bytes of a file changed, most of them in the header."""
    changed, end = bytearray(data), 8 + int.from_bytes(data[:8], "little")
    for _ in range(r.choice((1, 1, 1, 2, 4))):
        at = r.randrange(min(len(changed), end + 8 if r.random() < 0.9 else len(data)) or 1)
        match r.randrange(6):
            case 0:
                changed[at : at + 1] = bytes([r.randrange(256)])
            case 1:
                changed[at : at + 1] = r.choice(b'0123456789[]{},:"-. enulFU').to_bytes()
            case 2:
                del changed[at : at + r.randrange(1, 9)]
            case 3:
                changed[at:at] = changed[at : at + r.randrange(1, 60)]
            case 4:
                changed = changed[:at] if r.random() < 0.2 else changed
            case 5:
                changed[:8] = struct.pack("<Q", max(0, int.from_bytes(changed[:8], "little") + r.randrange(-9, 9)))
    return bytes(changed)


def is_stricter(data: bytes) -> bool:
    """Whether one of the listed reasons to refuse what the official reader takes is there."""
    text = data[8 : 8 + int.from_bytes(data[:8], "little")].decode()

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        nonlocal is_twice
        is_twice |= len(dict(pairs)) < len(pairs)
        return dict(pairs)

    is_twice = False
    found = json.loads(text, object_pairs_hook=unique)
    has_note = "samebits" in (found.get("__metadata__") or {})
    return is_twice or has_note


@pytest.mark.parametrize("seed", [0, *[pytest.param(seed, marks=pytest.mark.exhaustive) for seed in range(1, 5)]])
def test_two_thousand_mutations_get_the_official_verdict_and_one_sentence(tmp_path: pathlib.Path, seed: int) -> None:
    path, r = tmp_path / "x.safetensors", random.Random(seed)
    data, taken, stricter = base(path), 0, 0
    for _ in range(2000):
        changed = mutated(data, r)
        is_taken, is_officially = not said(path, changed), official(changed)
        assert is_taken == is_officially or (is_officially and is_stricter(changed)), changed
        taken += is_taken
        stricter += is_officially and not is_taken
    assert taken > 100
    assert 0 < stricter < 200
