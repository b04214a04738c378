"""Tensors of a file: the official writer's bytes, on the file's own memory, for as long as somebody holds them."""

from __future__ import annotations

import functools
import gc
import json
import os
import pathlib
import signal
import socket
import struct
import threading
from collections.abc import Iterator

import numpy as np
import pytest
import safetensors.torch
import torch
from sentences import check_sentence

import samebits as sb
from samebits import checkpoint, dtypes
from samebits.errors import ClosedError, DTypeError, ExchangeError, LayoutError, ModelError, OptionError

TORCH = [
    torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16, torch.int8,
    torch.uint64, torch.uint32, torch.uint16, torch.uint8, torch.bool, torch.float8_e4m3fn, torch.float8_e4m3fnuz,
    torch.float8_e5m2, torch.float8_e5m2fnuz, torch.float8_e8m0fnu, torch.float4_e2m1fn_x2,
]  # fmt: skip


@pytest.fixture(autouse=True)
def _nothing_waits() -> Iterator[None]:
    """A test that blocks is ended by SIGALRM."""
    signal.alarm(300)
    yield
    signal.alarm(0)


@pytest.fixture(name="path")
def _path(tmp_path: pathlib.Path) -> pathlib.Path:
    """A file of three tensors."""
    path = tmp_path / "x.safetensors"
    tensors = {
        "w": np.arange(12, dtype=np.float32).reshape(3, 4),
        "n": sb.Tensor.arange(7, dtype="int4"),
        "b": np.array([True, False]),
    }
    checkpoint.save(path, tensors, metadata={"made": "here"})
    return path


def bits(dtype: torch.dtype, count: int) -> torch.Tensor:
    """`count` elements (of float4: pairs), of every kind of bits."""
    size = count * dtype.itemsize
    codes = torch.arange(size, dtype=torch.int64) * 37 % (2 if dtype == torch.bool else 256)
    return codes.to(torch.uint8).view(dtype)


def test_what_the_official_writer_writes_is_read_and_shares_the_file(tmp_path: pathlib.Path) -> None:
    given = {str(dtype): bits(dtype, 24).reshape(4, 6) for dtype in TORCH}
    safetensors.torch.save_file(given, tmp_path / "x.safetensors", metadata={"a": "b"})
    with checkpoint.open(tmp_path / "x.safetensors", copy=False) as found:
        assert set(found) == set(given)
        assert dict(found.metadata) == {"a": "b"}
        for name, x in given.items():
            tensor = found[name]
            pairs = x.dtype == torch.float4_e2m1fn_x2
            assert tensor.dtype.name == name.removeprefix("torch.").removesuffix("_x2")
            assert tensor.shape == (4, 12) if pairs else (4, 6)
            assert tensor.buffer.read_only
            assert tensor.buffer.array().tobytes() == x.view(torch.uint8).numpy().tobytes()


def test_what_we_write_the_official_reader_reads(tmp_path: pathlib.Path) -> None:
    given = {str(dtype): bits(dtype, 24).reshape(4, 6) for dtype in TORCH}
    checkpoint.save(tmp_path / "x.safetensors", given, metadata={"a": "ü"})
    found = safetensors.torch.load_file(tmp_path / "x.safetensors")
    assert set(found) == set(given)
    for name, x in given.items():
        assert found[name].dtype == x.dtype
        assert found[name].view(torch.uint8).equal(x.view(torch.uint8))
    with safetensors.safe_open(tmp_path / "x.safetensors", "pt") as opened:
        assert opened.metadata() == {"a": "ü"}


def test_formats_without_a_name_are_bytes_to_the_official_reader(tmp_path: pathlib.Path) -> None:
    given = {}
    for row in dtypes.ROWS:
        for shape in ((3, 8), (3, 5), (), (5, 0)):
            size = int(np.prod(shape))
            codes = (np.arange(size, dtype=np.uint8) % 2).astype(f"u{row.element_bytes}")
            tensor = sb.Tensor.from_bytes(codes.tobytes(), row, shape, storage="padded")
            given[f"{row.name} {shape}"] = sb.copy(tensor, storage="packed")
    path = tmp_path / "x.safetensors"
    checkpoint.save(path, given)
    entries = dict(safetensors.deserialize(path.read_bytes()))
    with checkpoint.open(path) as found:
        for name, x in given.items():
            assert found[name].equal_bits(x)
            assert bytes(entries[name]["data"]) == x.buffer.array()[: -(-x.size * x.dtype.width_bits // 8)].tobytes()
            if found.tensors[name].stored == "U8" and x.dtype.name != "uint8":
                assert entries[name]["dtype"] == "U8"
    shapes = {name: (entry["dtype"], entry["shape"]) for name, entry in entries.items()}
    assert shapes["int4 (3, 8)"] == ("U8", [3, 4])
    assert shapes["int4 (3, 5)"] == ("U8", [8])
    assert shapes["float8_e3m4 (3, 5)"] == ("U8", [3, 5])
    assert shapes["float6_e2m3fn (3, 8)"] == ("F6_E2M3", [3, 8])
    assert shapes["float4_e2m1fn (3, 8)"] == ("F4", [3, 8])
    assert shapes["float4_e2m1fn (3, 5)"] == ("U8", [8])


# Lives.


def test_a_closed_checkpoint_closes_its_tensors_and_not_what_was_made_of_them(path: pathlib.Path) -> None:
    found = checkpoint.open(path)
    tensor = found["w"]
    array = tensor.numpy()
    assert not array.flags.writeable
    found.close()
    found.close()
    with pytest.raises(ClosedError):
        tensor.numpy()
    with pytest.raises(ClosedError) as error:
        found["w"]
    check_sentence(error.value)
    with pytest.raises(ClosedError) as error:
        found.read("w")
    check_sentence(error.value)
    del found, tensor, error
    gc.collect()
    os.unlink(path)
    assert array.tolist() == np.arange(12, dtype=np.float32).reshape(3, 4).tolist()


def test_loaded_tensors_outlive_everything_but_themselves(path: pathlib.Path) -> None:
    found = checkpoint.load(path)
    os.unlink(path)
    gc.collect()
    assert found["n"].tolist() == list(range(7))
    assert found["w"].buffer.owner is found["n"].buffer.owner


def test_who_reads_while_another_thread_closes_reads_to_the_end(
    path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And not what has got the number of the closed file."""
    own, others = os.preadv, list[int]()

    def preadv(descriptor: int, buffers: list[memoryview], place: int) -> int:
        found.close()
        others.append(os.open(__file__, os.O_RDONLY))
        return own(descriptor, buffers, place)

    found = checkpoint.open(path)
    monkeypatch.setattr(os, "preadv", preadv)
    try:
        assert found.read("w", 2, 5).tolist() == [2.0, 3.0, 4.0]
    finally:
        for other in others:
            os.close(other)
    assert others


def test_an_archive_that_another_thread_closes_is_read_to_the_end(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x.npz"
    np.savez_compressed(path, w=np.arange(5))
    found = checkpoint.open(path)
    monkeypatch.setattr(type(found._source), "check", lambda _: found.close())
    assert found["w"].tolist() == list(range(5))
    with pytest.raises(ClosedError):
        found["w"]


def test_a_checkpoint_that_another_thread_closes_says_so(path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("view", "check"):  # before it is mapped, and between
        found = checkpoint.open(path)
        if name == "check":
            assert found["b"].tolist() == [True, False]
        kind = type(found._source)
        own = getattr(kind, name)

        def closing(self: object, *given: object, own=own, found=found) -> object:
            found.close()
            return own(self, *given)

        with monkeypatch.context() as changed:
            changed.setattr(kind, name, closing)
            with pytest.raises(ClosedError) as error:
                found["w"]
        assert str(error.value) == "Checkpoint[...]: checkpoint is closed, must be open; close it after its last use"


def test_threads_that_map_a_file_at_once_share_one_map(path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = checkpoint.open(path)
    kind = type(found._source)
    own, meanwhile = kind._map, list[sb.Tensor]()

    def mapping(self: object) -> object:
        monkeypatch.setattr(kind, "_map", own)
        meanwhile.append(found["n"])
        return own(self)

    monkeypatch.setattr(kind, "_map", mapping)
    assert found["w"].buffer.owner is meanwhile[0].buffer.owner
    found.close()
    with pytest.raises(ClosedError):
        meanwhile[0].tolist()


def test_very_long_names_are_shown_in_part_and_not_compared(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "x.safetensors"
    name = "name" * 50_000
    facts = {"dtype": "U8", "shape": [0], "data_offsets": [0, 0]}
    header = json.dumps({name: facts, "weight": facts}).encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header)
    with checkpoint.open(path) as found:
        for asked, near in (("weigh", "'weight'"), (name[1:], repr(name)[:200])):
            with pytest.raises(OptionError) as error:
                found[asked]
            assert f"such as {near}" in str(error.value)
            assert len(str(error.value)) < 4000


def test_nothing_is_left_open(path: pathlib.Path) -> None:
    def opened() -> int:
        gc.collect()
        return len(os.listdir("/proc/self/fd"))

    before = opened()
    for _ in range(3):
        checkpoint.open(path)["w"]
        checkpoint.load(path)
        checkpoint.open(path).close()
        with pytest.raises(ModelError):
            checkpoint.open(__file__)
    assert opened() == before


def test_a_replaced_file_stays_what_it_was_for_whoever_has_it_open(path: pathlib.Path) -> None:
    with checkpoint.open(path) as found:
        checkpoint.save(path, {"w": np.zeros(1, np.float32)})
        assert found["w"].tolist()[2] == [8.0, 9.0, 10.0, 11.0]
        assert found.read("w", 2, 4).tolist() == [2.0, 3.0]
    assert checkpoint.load(path)["w"].shape == (1,)


@pytest.mark.parametrize("copy", [None, True])
@pytest.mark.parametrize("change", ["cut", "grown", "written", "emptied"])
def test_a_file_that_changes_after_it_was_opened_is_refused(path: pathlib.Path, change: str, copy: bool | None) -> None:
    with checkpoint.open(path, copy=copy) as found:
        held = found["b"] if copy else None
        size = path.stat().st_size
        with path.open("r+b") as file:
            if change in ("cut", "emptied"):
                file.truncate(size - 1 if change == "cut" else 0)
            else:
                file.seek(0 if change == "written" else size)
                file.write(b"?")
        for ask in (lambda: found["w"], lambda: found.read("w")):
            with pytest.raises(ModelError, match="changed since it was opened, must be as it was") as error:
                ask()
            check_sentence(error.value)
        if held is not None:
            assert held.tolist() == [True, False]


def test_a_file_that_ends_while_it_is_read_is_refused(path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with checkpoint.open(path, copy=True) as found:
        source = found._source
        monkeypatch.setattr(type(source), "check", lambda self: None)
        os.truncate(path, 200)
        with pytest.raises(ModelError, match=r"size is \d+ bytes, must be at least"):
            found["w"]


# Copies.


def test_elements_at_odd_addresses_are_copied_unless_that_is_forbidden(tmp_path: pathlib.Path) -> None:
    header = json.dumps({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
    header += b" " * (1 + -len(header) % 8)
    path = tmp_path / "x.safetensors"
    path.write_bytes(struct.pack("<Q", len(header)) + header + np.float32(2.5).tobytes())
    assert checkpoint.load(path)["a"].tolist() == [2.5]
    assert not checkpoint.load(path)["a"].buffer.read_only
    with (
        checkpoint.open(path, copy=False) as found,
        pytest.raises(ExchangeError, match="leave copy=False out") as error,
    ):
        found["a"]
    check_sentence(error.value)


def test_a_copy_is_writable_and_aligned(path: pathlib.Path) -> None:
    found = checkpoint.load(path, copy=True)
    assert not found["w"].buffer.read_only
    assert found["w"].buffer.address % 64 == 0
    shared = checkpoint.load(path, copy=False)
    assert all(found[name].equal_bits(shared[name]) for name in shared)


def test_parts_are_read_at_any_element(path: pathlib.Path) -> None:
    with checkpoint.open(path) as found:
        for name in found:
            whole = sb.copy(found[name]).reshape((-1,))
            for start in range(whole.size + 1):
                for stop in range(start, whole.size + 1):
                    assert found.read(name, start, stop).equal_bits(whole[start:stop])


@pytest.mark.parametrize("part", [(-1, 2), (3, 2), (0, 13)])
def test_a_part_that_is_not_there_is_refused(path: pathlib.Path, part: tuple[int, int]) -> None:
    with checkpoint.open(path) as found, pytest.raises(OptionError, match="must be a part of 12 elements") as error:
        found.read("w", *part)
    check_sentence(error.value)


def test_threads_read_one_checkpoint(path: pathlib.Path) -> None:
    wrong = []
    with checkpoint.open(path) as found:

        def ask() -> None:
            for _ in range(200):
                if found["w"].tolist()[0][1] != 1.0 or found.read("n", 3, 4).tolist() != [3]:
                    wrong.append(1)

        threads = [threading.Thread(target=ask) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not wrong


# What is asked for.


def test_a_checkpoint_says_what_is_in_it_without_reading(path: pathlib.Path) -> None:
    with checkpoint.open(path) as found:
        stored = found.tensors["n"]
        assert (stored.dtype, stored.shape, stored.stored, stored.size_bytes) == (dtypes.int4, (7,), "U8", 4)
        assert found.metadata == {"made": "here"}
        assert (len(found), set(found), "w" in found, "x" in found) == (3, {"w", "n", "b"}, True, False)
        assert {name: x.shape for name, x in dict(found).items()} == {"w": (3, 4), "n": (7,), "b": (2,)}
        assert repr(found) == f"Checkpoint({str(path)!r}, 3 tensors)"
    assert repr(found) == f"Checkpoint({str(path)!r}, 3 tensors, closed)"
    for changed in (found.tensors, found.metadata):
        with pytest.raises(TypeError):
            changed["x"] = 1  # type: ignore[index]


@pytest.mark.parametrize("name", ["ww", "", 3, None])
def test_a_name_that_is_not_there_is_one_sentence(path: pathlib.Path, name: str) -> None:
    with checkpoint.open(path) as found, pytest.raises(OptionError, match=r"must be a tensor of .*, such as") as error:
        found[name]
    check_sentence(error.value)


def test_what_no_tensor_can_be_is_listed_and_refused_when_it_is_asked_for(tmp_path: pathlib.Path) -> None:
    entries = {
        "c": {"dtype": "C64", "shape": [1], "data_offsets": [0, 8]},
        "r": {"dtype": "U8", "shape": [1] * 65, "data_offsets": [8, 9]},
        "z": {"dtype": "U8", "shape": [0, 2**60], "data_offsets": [9, 9]},
    }
    header = json.dumps(entries).encode()
    path = tmp_path / "x.safetensors"
    path.write_bytes(struct.pack("<Q", len(header)) + header + bytes(9))
    with checkpoint.open(path) as found:
        for name, kind in {"c": DTypeError, "r": LayoutError, "z": LayoutError}.items():
            for ask in (lambda name=name: found[name], lambda name=name: found.read(name)):
                with pytest.raises(kind) as error:
                    ask()
                check_sentence(error.value)
                assert f"tensor {name!r}" in str(error.value)


@pytest.mark.parametrize("kind", ["npy", "npz", "npz compressed"])
@pytest.mark.parametrize("name", ["float4_e2m1fn", "int4", "uint2", "float6_e3m2fn"])
def test_bits_above_a_narrow_element_are_refused(tmp_path: pathlib.Path, name: str, kind: str) -> None:
    codes, path = np.arange(16, dtype=np.uint8) % 4, tmp_path / f"x.{kind[:3]}"
    save = {"npy": np.save, "npz": np.savez, "npz compressed": np.savez_compressed}[kind]
    for junk in (0, 0x80):
        codes[7] |= junk
        save(path, codes.view([(name, "u1")]))  # type: ignore[operator]
        with checkpoint.open(path) as found:
            (tensor,) = found
            if not junk:
                assert found[tensor].tolist() == found.read(tensor).tolist()
                continue
            width = sb.dtype(name).width_bits
            for ask in (functools.partial(found.__getitem__, tensor), functools.partial(found.read, tensor, 3)):
                with pytest.raises(ModelError) as error:
                    ask()
                due = f"elements is with bits above the lowest {width} of a byte, must be 0 there"
                assert due in str(error.value)
                check_sentence(error.value)
            assert found.read(tensor, 8).shape == (8,)


# No such file.


def test_what_is_no_regular_file_is_refused_at_once(tmp_path: pathlib.Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(tmp_path / "socket"))
        expected = {
            "pipe": "a pipe", "folder": "a directory", "socket": "a socket", "missing": "unreadable",
            "link": "unreadable",
        }  # fmt: skip
        for name, said in expected.items():
            for call in (checkpoint.open, checkpoint.load):
                with pytest.raises(ModelError, match=f"{name} is {said}") as error:
                    call(tmp_path / name)
                check_sentence(error.value)
    with pytest.raises(ModelError, match="/dev/zero is a device, must be a regular file"):
        checkpoint.open("/dev/zero")


@pytest.mark.skipif(os.geteuid() == 0, reason="an administrator may read everything")
def test_a_file_that_may_not_be_read_is_refused(path: pathlib.Path) -> None:
    path.chmod(0)
    with pytest.raises(ModelError, match="unreadable"):
        checkpoint.open(path)


@pytest.mark.parametrize("given", [3, None, "", "a\0b"])
def test_what_is_no_path_is_refused(given: str) -> None:
    with pytest.raises(OptionError, match=r"path is .*, must be the path of a file") as error:
        checkpoint.open(given)
    check_sentence(error.value)


def test_a_link_is_followed_and_bytes_are_a_path(path: pathlib.Path, tmp_path: pathlib.Path) -> None:
    (tmp_path / "link").symlink_to(path)
    assert checkpoint.load(os.fsencode(tmp_path / "link"))["n"].shape == (7,)
