"""Files turned into others part by part have the bits that the whole has, whatever the parts are."""

from __future__ import annotations

import json
import pathlib
import struct
from typing import Any

import block_rows
import ml_dtypes
import numpy as np
import pytest
import safetensors
from sentences import check_sentence

import samebits as sb
from samebits import checkpoint, dtypes
from samebits.checkpoint import converting
from samebits.errors import DTypeError, OptionError, ShapeError
from samebits.kernels.quantize import dialects, formats

R = np.random.default_rng(0)
TENSORS: dict[str, Any] = {
    "w": R.standard_normal((256, 384)).astype(ml_dtypes.bfloat16),
    "experts": R.standard_normal((3, 128, 256)).astype(np.float32) * np.float32(0.02),
    "odd": R.standard_normal((5, 27)).astype(np.float32),
    "bias": R.standard_normal(256).astype(np.float32),
    "ids": np.arange(5),
    "empty": np.zeros((0, 256), np.float32),
}
PAIRS = block_rows.tried((row, dialect) for row in formats.ROWS for dialect in dialects.dialects(row))


@pytest.fixture(name="source")
def _source(tmp_path: pathlib.Path) -> checkpoint.Checkpoint:
    checkpoint.save(tmp_path / "in.safetensors", TENSORS, metadata={"made": "here"})
    return checkpoint.open(tmp_path / "in.safetensors", copy=True)


def test_complex_numbers_are_kept_as_they_are(tmp_path: pathlib.Path) -> None:
    entries = {
        "c": {"dtype": "C64", "shape": [2], "data_offsets": [0, 16]},
        "w": {"dtype": "F32", "shape": [2, 64], "data_offsets": [16, 528]},
    }
    text, data = json.dumps(entries).encode(), R.standard_normal(132).astype(np.float32).tobytes()
    (tmp_path / "in.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)
    row, out = formats.of("mxfp4"), tmp_path / "out.safetensors"
    dialect = dialects.default(row)
    for exclude in ((), ("c",)):
        with checkpoint.open(tmp_path / "in.safetensors") as source:
            found = converting.quantize_file("quantize", source, str(out), row, dialect, exclude=exclude)
        (kept,) = [x for x in found if x.name == "c"]
        assert (kept.before, kept.after, kept.reason) == ("C64", "C64", "not chosen" if exclude else "of C64")
        stored = dict(safetensors.deserialize(out.read_bytes()))["c"]
        assert (stored["dtype"], stored["shape"], bytes(stored["data"])) == ("C64", [2], data[:16])
    with checkpoint.open(tmp_path / "in.safetensors") as source:
        with pytest.raises(DTypeError, match=r"tensor .c. format is C64, must be an element format"):
            converting.quantize_file("quantize", source, str(out), row, dialect, include=("c",))
        with pytest.raises(OptionError, match=r"tensor 'c' format is C64, must be one that \.npz has"):
            converting.quantize_file("quantize", source, str(tmp_path / "out.npz"), row, dialect)
        found = converting.cast_file("cast", source, str(out), dtypes.float16, lambda x: sb.cast(x, "float16"))
        assert [x.after for x in found if x.name == "c"] == ["C64"]


@pytest.mark.parametrize(("row", "dialect"), PAIRS, ids=str)
def test_parts_are_quantised_as_the_whole(
    tmp_path: pathlib.Path, source: checkpoint.Checkpoint, row: formats.BlockFormat, dialect: dialects.Dialect,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(converting, "_PART", 1 << 12)
    path = tmp_path / "out.npz"
    made = {x.name: x for x in converting.quantize_file("quantize", source, str(path), row, dialect)}
    found = checkpoint.load(path)
    assert set(found) == set(TENSORS)
    for name, x in TENSORS.items():
        if made[name].reason:
            assert isinstance(found[name], sb.Tensor)
            assert found[name].equal_bits(sb.Tensor.from_any(x))
        else:
            assert found[name].equal_bits(sb.quantize(sb.Tensor.from_any(x), row, dialect=dialect)), name
    assert (made["ids"].reason, made["bias"].reason) == ("of int64", "no matrix")
    assert not made["w"].reason or made["w"].reason == "of bfloat16"
    with checkpoint.open(path) as again:
        assert again.metadata == {"made": "here"}


@pytest.mark.parametrize("special", [np.nan, np.inf, -np.inf])
def test_what_is_no_number_reaches_as_far_as_in_the_whole(
    tmp_path: pathlib.Path, special: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(converting, "_PART", 1 << 10)
    x = TENSORS["experts"].copy()
    x[1, 3, 5], x[2, 0, 0] = special, 0
    checkpoint.save(tmp_path / "in.npy", {"x": x})
    whole = [(row, way) for row in formats.ROWS if row.global_scale for way in dialects.dialects(row)]
    for row, dialect in whole:
        with checkpoint.open(tmp_path / "in.npy", copy=True) as source:
            converting.quantize_file("quantize", source, str(tmp_path / "out.npz"), row, dialect)
        assert checkpoint.load(tmp_path / "out.npz")["in"].equal_bits(sb.quantize(x, row, dialect=dialect)), dialect


CASTS: list[tuple[str, dict[str, Any]]] = [
    ("float8_e4m3fn", {}),
    ("float8_e4m3fn", {"overflow": "saturate"}),
    ("float4_e2m1fn", {"rounding": "toward_zero"}),
    ("float6_e3m2fn", {}),
    ("bfloat16", {"rounding": "stochastic", "seed": 3}),
    ("int4", {}),
    ("float64", {}),
]


@pytest.mark.parametrize("kind", ["safetensors", "npz"])
@pytest.mark.parametrize(("name", "options"), CASTS, ids=range(len(CASTS)))
def test_parts_are_converted_as_the_whole(
    tmp_path: pathlib.Path, source: checkpoint.Checkpoint, name: str, options: dict[str, Any], kind: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(converting, "_PART", 1 << 8)
    path, to = tmp_path / f"out.{kind}", dtypes.of(name)
    made = converting.cast_file(
        "cast", source, str(path), to, lambda x: sb.cast(x, to, **options), exclude=["bias"], whole="seed" in options
    )
    found = checkpoint.load(path)
    for x in made:
        given = sb.Tensor.from_any(TENSORS[x.name])
        due = given if x.reason else sb.cast(given, to, **options)
        assert found[x.name].dtype is due.dtype
        assert found[x.name].equal_bits(due), x.name
    reasons = {x.name: x.reason for x in made}
    own = "of this format"
    assert reasons == {"w": own if name == "bfloat16" else "", "experts": "", "odd": "", "bias": "not chosen",
                       "ids": "no floats", "empty": ""}  # fmt: skip


def test_arrays_of_the_other_order_are_converted_as_the_whole(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(converting, "_PART", 1 << 8)
    x = np.asfortranarray(R.standard_normal((64, 128)).astype(np.float32))
    np.savez_compressed(tmp_path / "in.npz", x=x)
    row, out = formats.of("nvfp4"), tmp_path / "out.npz"
    with checkpoint.open(tmp_path / "in.npz") as source:
        converting.quantize_file("quantize", source, str(out), row, dialects.default(row))
        assert checkpoint.load(out)["x"].equal_bits(sb.quantize(np.ascontiguousarray(x), row))
        converting.cast_file("cast", source, str(out), dtypes.float16, lambda x: sb.cast(x, "float16"))
        assert checkpoint.load(out)["x"].equal_bits(sb.cast(sb.Tensor.from_any(x), "float16"))


def test_integers_are_converted_where_they_are_named(tmp_path: pathlib.Path, source: checkpoint.Checkpoint) -> None:
    path, to = tmp_path / "out.npz", dtypes.float32
    made = converting.cast_file("cast", source, str(path), to, lambda x: sb.cast(x, to), include=["ids", "b*"])
    assert {x.name for x in made if not x.reason} == {"ids"}
    assert {x.name: x.reason for x in made}["bias"] == "of this format"
    assert checkpoint.load(path)["ids"].tolist() == [0.0, 1.0, 2.0, 3.0, 4.0]


def test_quantised_values_are_kept_whole(tmp_path: pathlib.Path) -> None:
    q = sb.quantize(TENSORS["experts"], "mxfp8-e4m3")
    checkpoint.save(tmp_path / "in.safetensors", {"q": q, "x": TENSORS["odd"]})
    path = tmp_path / "out.npz"
    with checkpoint.open(tmp_path / "in.safetensors", copy=True) as source:
        converting.cast_file("cast", source, str(path), dtypes.bfloat16, lambda x: sb.cast(x, "bfloat16"))
        assert checkpoint.load(path)["q"].equal_bits(q)
        converting.quantize_file("q", source, str(path), formats.of("int8-row"), dialects.of("int/exact-1"))
        found = checkpoint.load(path)
    assert found["q"].equal_bits(q)
    assert found["x"].equal_bits(sb.quantize(TENSORS["odd"], "int8-row"))


def test_what_is_named_must_be_there_and_fit(tmp_path: pathlib.Path, source: checkpoint.Checkpoint) -> None:
    row, path = formats.of("nvfp4"), str(tmp_path / "out.npz")
    for include, kind, said in (
        (["odd"], ShapeError, "tensor 'odd' is of 27 elements along axis 1, must be a matrix of float32 or bfloat16"),
        (["bias"], ShapeError, "tensor 'bias' is no matrix, must be a matrix"),
        (["ids"], ShapeError, "tensor 'ids' is of int64, must be a matrix"),
        (["x*"], OptionError, "--include is 'x*', must be a pattern of a name, such as"),
    ):
        with pytest.raises(kind) as error:
            converting.quantize_file("quantize", source, path, row, dialects.default(row), include=include)
        assert said in str(error.value)
        check_sentence(error.value)
    assert not (tmp_path / "out.npz").exists()


def test_an_element_that_is_refused_names_its_tensor_and_leaves_no_file(
    tmp_path: pathlib.Path, source: checkpoint.Checkpoint
) -> None:
    def convert(x: sb.Tensor) -> sb.Tensor:
        return sb.cast(sb.multiply(x, 1e4), "float8_e4m3fn", overflow="error")

    with pytest.raises(DTypeError, match=r"^cast: tensor '") as error:
        converting.cast_file("cast", source, str(tmp_path / "out.npz"), dtypes.float8_e4m3fn, convert)
    check_sentence(error.value)
    assert sorted(x.name for x in tmp_path.iterdir()) == ["in.safetensors"]


def test_a_part_that_another_tensor_is_called_is_refused(tmp_path: pathlib.Path) -> None:
    checkpoint.save(tmp_path / "in.npz", {"w": TENSORS["w"], "w_scale": TENSORS["bias"]})
    row = formats.of("nvfp4")
    with checkpoint.open(tmp_path / "in.npz") as source, pytest.raises(OptionError, match="name is 'w_scale'") as error:
        converting.quantize_file("quantize", source, str(tmp_path / "out.npz"), row, dialects.default(row))
    check_sentence(error.value)
