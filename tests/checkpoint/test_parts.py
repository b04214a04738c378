"""Quantised values in files: what was written comes back bit for bit, and a note that is none is one sentence."""

from __future__ import annotations

import json
import pathlib
import struct
import zipfile
from typing import Any

import block_rows
import numpy as np
import pytest
import safetensors
from sentences import check_sentence

import samebits as sb
from samebits import checkpoint
from samebits.errors import ClosedError, DTypeError, ModelError, OptionError, SamebitsError, ShapeError
from samebits.kernels.quantize import dialects, formats

X = np.random.default_rng(0).standard_normal((256, 256)).astype(np.float32)


def made(row: formats.BlockFormat, axis: int = -1) -> sb.Quantized | None:
    """X in a format, None where nothing quantises to it."""
    if not any(row.name in dialect.formats for dialect in dialects.ROWS):
        return None
    return sb.quantize(X, row, axis=axis)


@pytest.mark.parametrize("kind", ["safetensors", "npz"])
@pytest.mark.parametrize("row", block_rows.ROWS, ids=repr)
def test_every_format_comes_back_as_it_was(tmp_path: pathlib.Path, row: formats.BlockFormat, kind: str) -> None:
    q = made(row)
    if q is None:
        pytest.skip("nothing quantises to it")
    path = tmp_path / f"x.{kind}"
    checkpoint.save(path, {"bias": X[0], "w": q})
    with checkpoint.open(path) as found:
        assert list(found) == ["bias", "w"]
        assert ("w" in found, "w_scale" in found) == (True, True)
        again = found["w"]
        assert isinstance(again, sb.Quantized)
        assert again.equal_bits(q)
        assert (again.format, again.dialect, again.axis) == (q.format, q.dialect, q.axis)
        assert found["w_scale"].equal_bits(q.scales)
        assert found.quantized["w"].parts == {"elements": "w", "scales": "w_scale"} | (
            {} if q.global_scale is None else {"global_scale": "w_global_scale"}
        ) | ({} if q.zero_points is None else {"zero_points": "w_zero_point"})
    loaded = checkpoint.load(path)
    checkpoint.save(tmp_path / f"y.{kind}", loaded)
    assert (tmp_path / f"y.{kind}").read_bytes() == path.read_bytes()


def test_blocks_along_the_other_axis_and_no_dialect_come_back(tmp_path: pathlib.Path) -> None:
    q = sb.quantize(X, "mxfp8-e4m3", axis=-2)
    plain = sb.Quantized(q.elements, q.scales, "mxfp8-e4m3", axis=-2)
    checkpoint.save(tmp_path / "x.safetensors", {"a": q, "b": plain})
    found = checkpoint.load(tmp_path / "x.safetensors")
    assert found["a"].equal_bits(q)
    assert found["b"].equal_bits(plain)
    assert found["b"].dialect is None


def test_the_official_reader_sees_the_parts(tmp_path: pathlib.Path) -> None:
    q = sb.quantize(X, "nvfp4")
    checkpoint.save(tmp_path / "x.safetensors", {"w": q})
    entries = dict(safetensors.deserialize((tmp_path / "x.safetensors").read_bytes()))
    assert {name: (x["dtype"], x["shape"]) for name, x in entries.items()} == {
        "w": ("F4", [256, 256]), "w_scale": ("F8_E4M3", [256, 16]), "w_global_scale": ("F32", []),
    }  # fmt: skip
    assert bytes(entries["w"]["data"]) == q.elements.buffer.array().tobytes()


def test_a_closed_file_says_so_of_a_value_whose_name_is_no_tensors(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "x.npz"
    q = sb.quantize(X, "nvfp4")
    checkpoint.save(path, q.parts)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("samebits.json", json.dumps({"quantized": {"w": NOTE | {"parts": {x: x for x in q.parts}}}}))
    found = checkpoint.open(path)
    assert isinstance(found["w"], sb.Quantized)
    found.close()
    with pytest.raises(ClosedError) as error:
        found["w"]
    check_sentence(error.value)


def test_a_name_that_a_part_takes_is_refused(tmp_path: pathlib.Path) -> None:
    q = sb.quantize(X, "nvfp4")
    for given in ({"w": q, "w_scale": X}, {"w_scale": X, "w": q}):
        with pytest.raises(OptionError, match="name is 'w_scale', must be the name of a part of 'w' alone") as error:
            checkpoint.save(tmp_path / "x.npz", given)
        check_sentence(error.value)
    with pytest.raises(OptionError, match="content is 3 tensors"):
        checkpoint.save(tmp_path / "x.npy", {"w": q})


NOTE = {
    "format": "nvfp4",
    "dialect": "nvfp4/exact-1",
    "axis": -1,
    "parts": {"elements": "w", "scales": "w_scale", "global_scale": "w_global_scale"},
}
WRONG: list[tuple[Any, type[SamebitsError], str]] = [
    ([], ModelError, "quantized is a JSON list, must be an object"),
    ({"\ud800": NOTE}, ModelError, "quantized name is '\\ud800', must be text that UTF-8 has"),
    ({"w": 5}, ModelError, "quantized 'w' is another, must be an object of format, dialect, axis and parts"),
    ({"w": NOTE | {"more": 1}}, ModelError, "must be an object of format, dialect, axis and parts"),
    ({"w": NOTE | {"format": 5}}, ModelError, "must be of a format's and a dialect's name, and axis -1 or -2"),
    ({"w": NOTE | {"dialect": 5}}, ModelError, "must be of a format's and a dialect's name"),
    ({"w": NOTE | {"axis": 0}}, ModelError, "and axis -1 or -2"),
    ({"w": NOTE | {"axis": [-1]}}, ModelError, "and axis -1 or -2"),
    ({"w": NOTE | {"parts": {"elements": "w"}}}, ModelError, "quantized 'w' parts is others, must be elements, scales"),
    ({"w": NOTE | {"parts": NOTE["parts"] | {"more": "w"}}}, ModelError, "parts is others"),
    ({"w": NOTE | {"parts": NOTE["parts"] | {"scales": "s"}}}, ModelError, "'w' scales is 's', must be the name of a"),
    ({"w": NOTE | {"parts": NOTE["parts"] | {"scales": 3}}}, ModelError, "'w' scales is 3, must be the name of a"),
    (
        {"w_scale": NOTE | {"parts": {"elements": "w", "scales": "w_global_scale"}}},
        ModelError,
        "quantized name is 'w_scale', must be that of one of its parts, or of no tensor",
    ),
    ({"w": NOTE | {"format": "nvfp5"}}, OptionError, "format of 'w' is 'nvfp5', must be one of"),
    ({"w": NOTE | {"dialect": "nvfp4/none"}}, OptionError, "dialect of 'w' is 'nvfp4/none', must be one of"),
    ({"w": NOTE | {"dialect": "mx/floor"}}, OptionError, "dialect of 'w' is mx/floor, must be one that makes nvfp4"),
    (
        {"w": NOTE | {"format": "mxfp8-e4m3", "dialect": None}},
        OptionError,
        "global_scale of 'w' is given, must be left out for mxfp8-e4m3",
    ),
    ({"w": NOTE | {"axis": -2}}, ShapeError, "scales of 'w' shape is (256, 16), must be (16, 256)"),
    ({"w": NOTE | {"parts": NOTE["parts"] | {"scales": "w"}}}, DTypeError, "scales of 'w' dtype is float4_e2m1fn"),
]


@pytest.mark.parametrize(("note", "kind", "sentence"), WRONG, ids=range(len(WRONG)))
def test_a_note_of_parts_that_is_none_is_one_sentence(
    tmp_path: pathlib.Path, note: Any, kind: type[SamebitsError], sentence: str
) -> None:
    path = tmp_path / "x.safetensors"
    checkpoint.save(path, {"w": sb.quantize(X, "nvfp4")})
    data = path.read_bytes()
    end = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:end])
    header["__metadata__"]["samebits"] = json.dumps({"quantized": note})
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data[end:])
    with pytest.raises(kind) as error:
        checkpoint.load(path)
    assert sentence in str(error.value)
    check_sentence(error.value)
