"""A model's files: what is no regular file of its own folder is refused at once, in one sentence."""

from __future__ import annotations

import os
import pathlib
import resource
import signal
import socket
from collections.abc import Iterator
from typing import Any

import numpy as np
import protos
import pytest
from onnx import TensorProto, helper

from samebits import onnx
from samebits.errors import ModelError
from samebits.onnx import files
from samebits.runtime import cpu

W = np.array([0.5, -2.0, 3.0], np.float32)
SECRET = np.array([7.0, 7.0, 7.0], np.float32)


@pytest.fixture(autouse=True)
def _nothing_waits() -> Iterator[None]:
    """A test that blocks for minutes is ended by SIGALRM."""
    signal.alarm(300)
    yield
    signal.alarm(0)


def external(dims: tuple[int, ...] = (3,), **entries: str) -> bytes:
    """y = w + x, whose w is in another file."""
    x, y = protos.value("x", np.float32, [3]), protos.value("y", np.float32, [3])
    proto = protos.model([helper.make_node("Add", ["w", "x"], ["y"])], [x], [y], {"w": W})
    tensor = proto.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.dims[:] = dims
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in entries.items():
        tensor.external_data.add(key=key, value=value)
    data: bytes = proto.SerializeToString()
    return data


@pytest.fixture(name="folder")
def _folder(tmp_path: pathlib.Path) -> pathlib.Path:
    """A model's folder, beside a file and a folder that are none of its business."""
    folder = tmp_path / "model"
    (folder / "deep" / "er").mkdir(parents=True)
    (tmp_path / "elsewhere").mkdir()
    for place in (tmp_path / "secret.bin", tmp_path / "elsewhere" / "w.bin"):
        place.write_bytes(SECRET.tobytes())
    for place in (folder / "w.bin", folder / "deep" / "er" / "w.bin"):
        place.write_bytes(W.tobytes())
    return folder


def loaded(folder: pathlib.Path, **entries: str) -> list[float]:
    """w, as the model has it."""
    (folder / "m.onnx").write_bytes(external(**entries))
    made: list[float] = cpu.load(folder / "m.onnx").run({"x": np.zeros(3, np.float32)})["y"].tolist()
    return made


def refusal(folder: pathlib.Path, dims: tuple[int, ...] = (3,), **entries: str) -> str:
    """What loading says."""
    (folder / "m.onnx").write_bytes(external(dims, **entries))
    with pytest.raises(ModelError) as error:
        onnx.load(folder / "m.onnx")
    assert type(error.value) is ModelError
    return str(error.value)


# -- the elements of a tensor ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "entries",
    [
        {"location": "w.bin"},
        {"location": "./w.bin"},
        {"location": "deep/er/w.bin"},
        {"location": "deep//er/w.bin", "offset": "0", "length": "12"},
        {"location": "w.bin", "checksum": "ignored", "basepath": "/ignored", "another": "ignored"},
    ],
)
def test_a_file_below_the_folder_is_read(folder: pathlib.Path, entries: dict[str, str]) -> None:
    assert loaded(folder, **entries) == W.tolist()


def test_a_part_of_a_file_is_read(folder: pathlib.Path) -> None:
    (folder / "all.bin").write_bytes(b"\xff" * 5 + W.tobytes() + b"\xff" * 3)
    assert loaded(folder, location="all.bin", offset="5") == W.tolist()
    assert loaded(folder, location="all.bin", offset="5", length="12") == W.tolist()


def test_a_constant_of_a_node_may_lie_in_a_file(folder: pathlib.Path) -> None:
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[3], data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value="w.bin")
    proto = protos.model([helper.make_node("Constant", [], ["y"], value=tensor)], [], [protos.value("y", W.dtype, [3])])
    (folder / "m.onnx").write_bytes(proto.SerializeToString())
    assert cpu.load(folder / "m.onnx").run({})["y"].tolist() == W.tolist()
    tensor.external_data[0].value = "../secret.bin"
    proto.graph.node[0].attribute[0].t.CopyFrom(tensor)
    (folder / "m.onnx").write_bytes(proto.SerializeToString())
    with pytest.raises(ModelError, match="must be a relative path below the model's folder"):
        onnx.load(folder / "m.onnx")


def test_the_folder_is_that_of_the_path(folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "m.onnx").write_bytes(external(location="w.bin"))
    monkeypatch.chdir(folder)
    assert cpu.load("m.onnx").run({"x": np.zeros(3, np.float32)})["y"].tolist() == W.tolist()


@pytest.mark.parametrize("location", ["../secret.bin", "deep/../../secret.bin", "deep/../w.bin", "..", "", ".", "w\0"])
def test_a_path_out_of_the_folder_is_no_file(folder: pathlib.Path, location: str) -> None:
    assert refusal(folder, location=location) == (
        f"load: tensor 'w' file is {location!r}, must be a relative path below the model's folder; "
        "put the file beside the model"
    )


@pytest.mark.parametrize("inside", [False, True])
def test_an_absolute_path_is_no_file(folder: pathlib.Path, inside: bool) -> None:
    place = folder / "w.bin" if inside else folder.parent / "secret.bin"
    assert "must be a relative path below the model's folder" in refusal(folder, location=str(place))


def test_a_tensor_without_a_file(folder: pathlib.Path) -> None:
    assert "file is '', must be a relative path" in refusal(folder)


@pytest.mark.parametrize(
    ("link", "target", "location"),
    [
        ("link.bin", "../secret.bin", "link.bin"),
        ("link.bin", "w.bin", "link.bin"),
        ("link.bin", "link.bin", "link.bin"),
        ("link.bin", "nowhere", "link.bin"),
        ("linked", "../elsewhere", "linked/w.bin"),
        ("linked", "..", "linked/secret.bin"),
        ("linked", "deep/er", "linked/w.bin"),
        ("deep/out", "../../elsewhere", "deep/out/w.bin"),
    ],
)
def test_no_link_is_followed(folder: pathlib.Path, link: str, target: str, location: str) -> None:
    (folder / link).symlink_to(target)
    name = pathlib.PurePath(link).name
    assert refusal(folder, location=location) == (
        f"load: tensor 'w' file {location!r} is reached through a symbolic link, {name!r}, must be a regular file; "
        "put the file itself into the model's folder"
    )


@pytest.mark.parametrize("target", ["link.bin", "linked"])
def test_a_link_that_comes_between_check_and_opening_is_not_followed(
    folder: pathlib.Path, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever may rename in the model's folder swaps a file for a link right after it was looked at."""
    location, swapped = ("w.bin", folder / "w.bin") if target == "link.bin" else ("deep/w.bin", folder / "deep")
    (folder / "deep" / "w.bin").write_bytes(W.tobytes())
    look = os.stat

    def look_then_swap(path: Any, **options: Any) -> os.stat_result:
        facts = look(path, **options)
        if path == swapped.name and not swapped.is_symlink():
            swapped.rename(folder / "was")
            swapped.symlink_to(folder.parent / "secret.bin" if target == "link.bin" else folder.parent / "elsewhere")
        return facts

    (folder / "m.onnx").write_bytes(external(location=location))
    monkeypatch.setattr(files.os, "stat", look_then_swap)
    with pytest.raises(ModelError, match="unreadable"):
        onnx.load(folder / "m.onnx")


def test_what_is_no_regular_file_holds_no_elements(folder: pathlib.Path) -> None:
    os.mkfifo(folder / "pipe")
    assert refusal(folder, location="pipe") == (
        "load: tensor 'w' file 'pipe' is a pipe, must be a regular file; put the file itself into the model's folder"
    )
    assert "file 'deep' is a directory, must be a regular file" in refusal(folder, location="deep")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(os.path.relpath(folder / "socket"))
        assert "file 'socket' is a socket, must be a regular file" in refusal(folder, location="socket")
    assert "file 'pipe/w.bin' is unreadable (Not a directory)" in refusal(folder, location="pipe/w.bin")
    assert "file 'gone.bin' is unreadable (No such file or directory)" in refusal(folder, location="gone.bin")


def test_a_file_must_hold_what_is_read_of_it(folder: pathlib.Path) -> None:
    short = "load: tensor 'w' file 'w.bin' size in bytes is 12, must be at least {}; copy the whole file"
    assert refusal(folder, location="w.bin", offset="1") == short.format(13)
    assert refusal(folder, location="w.bin", offset="999") == short.format(1011)
    assert refusal(folder, location="w.bin", offset=str(2**63 - 1)) == short.format(2**63 + 11)
    assert refusal(folder, (2**40,), location="w.bin") == short.format(2**42)
    assert refusal(folder, (2**40,), location="w.bin", length=str(2**42)) == short.format(2**42)


@pytest.mark.parametrize("length", [0, 8, 11, 13, 2**62])
def test_a_length_is_that_of_the_tensor(folder: pathlib.Path, length: int) -> None:
    assert refusal(folder, location="w.bin", length=str(length)) == (
        f"load: tensor 'w' raw data count is {length} bytes, must be 12 for the shape [3]; export it again"
    )


@pytest.mark.parametrize("key", ["offset", "length"])
@pytest.mark.parametrize("number", ["-1", "-12", "1.0", "0x0", " 0", "+0", "1_2", "", "\u0661", "9" * 20, "nan"])
def test_a_place_in_a_file_is_written_in_digits(folder: pathlib.Path, key: str, number: str) -> None:
    assert refusal(folder, location="w.bin", **{key: number}) == (
        f"load: tensor 'w' {key} is {number!r}, must be 0 or more, in at most 19 decimal digits; export it again"
    )


def test_a_file_of_no_room(folder: pathlib.Path) -> None:
    """A file may be longer than the memory: its elements are not asked for unless there is room."""
    with open(folder / "long.bin", "wb") as file:
        file.truncate(2**40)
    (folder / "m.onnx").write_bytes(external((2**38,), location="long.bin"))
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (2**39, before[1]))
    try:
        with pytest.raises(MemoryError) as error:
            onnx.load(folder / "m.onnx")
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)
    assert str(error.value) == (
        "load: tensor 'w' file 'long.bin' is 1099511627776 bytes, must be at most what the system has left; "
        "load it where there is more"
    )


# -- the model itself -------------------------------------------------------------------------------------------------


def said(path: object) -> str:
    """What loading says of a path."""
    with pytest.raises(ModelError) as error:
        onnx.load(path)
    return str(error.value)


def test_a_model_is_a_regular_file(tmp_path: pathlib.Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("pipe")
    due = "load: {} is {}, must be a regular file; copy the model into one"
    assert said(tmp_path / "pipe") == due.format(tmp_path / "pipe", "a pipe")
    assert said(tmp_path / "link") == due.format(tmp_path / "link", "a pipe")
    assert said(tmp_path) == due.format(tmp_path, "a directory")
    assert said("/dev/zero") == due.format("/dev/zero", "a device")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(os.path.relpath(tmp_path / "socket"))
        assert said(tmp_path / "socket") == due.format(tmp_path / "socket", "a socket")


def test_a_pipe_that_takes_the_place_of_a_model_is_not_waited_for(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "m.onnx").write_bytes(b"")
    look = os.stat
    monkeypatch.setattr(files.os, "stat", lambda path, **options: look(tmp_path / "m.onnx"))
    assert said(tmp_path / "pipe").startswith(f"load: {tmp_path / 'pipe'} is a pipe, must be a regular file")


def test_a_link_to_a_model_is_followed(folder: pathlib.Path) -> None:
    (folder / "m.onnx").write_bytes(external(location="w.bin"))
    (folder / "link.onnx").symlink_to("m.onnx")
    assert onnx.load(folder / "link.onnx").digest() == onnx.load(folder / "m.onnx").digest()


def test_a_path_that_no_file_has(tmp_path: pathlib.Path) -> None:
    assert said("a\0b") == (
        "load: 'a\\x00b' is no path (it holds a zero byte), must be a readable file; check the path"
    )
    assert said("\ud800").startswith("load: '\\ud800' is unreadable (")
    assert said("") == "load: '' is unreadable (No such file or directory), must be a readable file; check the path"
    assert said(tmp_path / ("x" * 300)).endswith(
        "is unreadable (File name too long), must be a readable file; check the path"
    )


def test_a_model_longer_than_protobuf_reads(tmp_path: pathlib.Path) -> None:
    with open(tmp_path / "long.onnx", "wb") as file:
        file.truncate(2**31)
    assert said(tmp_path / "long.onnx") == (
        f"load: {tmp_path / 'long.onnx'} size in bytes is 2147483648, must be at most 2147483647; "
        "keep its tensors in a file of their own"
    )
