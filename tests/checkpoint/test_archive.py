"""Archives, .npz: what NumPy writes is read, what we write it reads, and what is damaged is one sentence."""

from __future__ import annotations

import concurrent.futures
import json
import os
import pathlib
import random
import signal
import threading
import zipfile
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from sentences import check_sentence

import samebits as sb
from samebits import checkpoint, dtypes
from samebits.errors import DTypeError, ExchangeError, ModelError

ARRAYS = {
    "f": np.arange(12, dtype=np.float32).reshape(3, 4),
    "turned": np.asfortranarray(np.arange(12, dtype=np.int16).reshape(3, 4)),
    "b": np.linspace(-1, 1, 6).astype(ml_dtypes.bfloat16).view([("bfloat16", "<u2")]),
    "a/b": np.zeros((0, 3), bool),
    "": np.array(2.5),
}


@pytest.mark.parametrize("write", [np.savez, np.savez_compressed])
def test_what_numpy_writes_is_read(tmp_path: pathlib.Path, write: Any) -> None:
    write(tmp_path / "x.npz", **ARRAYS)
    found = checkpoint.load(tmp_path / "x.npz")
    assert set(found) == set(ARRAYS)
    for name, array in ARRAYS.items():
        assert found[name].shape == array.shape
        assert found[name].tobytes() == array.tobytes()
    assert found["b"].dtype is dtypes.bfloat16
    with checkpoint.open(tmp_path / "x.npz") as opened:
        parts = [opened.read("turned", at, at + 3).tolist() for at in (9, 0, 3, 6)]
        assert parts == [[9, 10, 11], [0, 1, 2], [3, 4, 5], [6, 7, 8]]
        parts = [opened.read("f", at, at + 3).tolist() for at in (9, 0, 3, 6)]
        assert parts == [[9, 10, 11], [0, 1, 2], [3, 4, 5], [6, 7, 8]]
        assert opened.tensors["f"].offset is None


def test_what_we_write_others_read(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "x.npz"
    given = {row.name: sb.Tensor.zeros((3, 8), row) for row in dtypes.ROWS} | {"ü/ö": sb.Tensor.arange(3.0)}
    checkpoint.save(path, given, metadata={"a": "ü"})
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        assert json.loads(archive.read("samebits.json")) == {"metadata": {"a": "ü"}}
    with np.load(path) as arrays:
        assert arrays["ü/ö"].tolist() == [0.0, 1.0, 2.0]
        assert arrays["bfloat16"]["bfloat16"].shape == (3, 8)
        assert arrays["int4"]["int4_x2"].shape == (3, 4)
    with checkpoint.open(path) as found:
        assert dict(found.metadata) == {"a": "ü"}
        for name, x in given.items():
            assert found[name].dtype is x.dtype
            assert found[name].equal_bits(x)


def test_equal_tensors_make_equal_files(tmp_path: pathlib.Path) -> None:
    for kind in checkpoint.KINDS:
        for name in ("one", "two"):
            checkpoint.save(tmp_path / f"{name}.{kind}", {"x": np.arange(5)})
        assert (tmp_path / f"one.{kind}").read_bytes() == (tmp_path / f"two.{kind}").read_bytes()


def test_members_are_never_shared(tmp_path: pathlib.Path) -> None:
    checkpoint.save(tmp_path / "x.npz", {"x": np.arange(3)})
    with checkpoint.open(tmp_path / "x.npz", copy=False) as found, pytest.raises(ExchangeError, match="is compressed"):
        found["x"]


def test_an_archive_without_tensors_has_none(tmp_path: pathlib.Path) -> None:
    checkpoint.save(tmp_path / "x.npz", {})
    np.savez(tmp_path / "y.npz")
    assert checkpoint.load(tmp_path / "x.npz") == checkpoint.load(tmp_path / "y.npz") == {}


NOTES = ["{", "[]", '{"metadata": []}', '{"metadata": {"a": 1}}', '{"quantized": 5}', "[" * 100_000, '{"a": NaN}']
NOTES += ["\ud800", '{"metadata": {"a": "\\ud800"}}', '{"metadata": {"\\ud800": "a"}}']
NOTES += ['{"metadata": {"a": "1", "a": "2"}}', '{"metadata": {}, "metadata": {}}']


def with_note(path: pathlib.Path, note: str) -> pathlib.Path:
    np.savez(path, x=np.arange(3))
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("samebits.json", note.encode(errors="surrogatepass"))
    return path


@pytest.mark.parametrize("note", NOTES, ids=range(len(NOTES)))
def test_a_note_that_is_none_is_refused(tmp_path: pathlib.Path, note: str) -> None:
    with pytest.raises(ModelError, match=r"member 'samebits.json'") as error:
        checkpoint.load(with_note(tmp_path / "x.npz", note))
    check_sentence(error.value)


def test_a_note_in_another_encoding_is_refused(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "x.npz"
    np.savez(path, x=np.arange(3))
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("samebits.json", '{"metadata": {"a": "b"}}'.encode("utf-16"))
    with pytest.raises(ModelError, match=r"member 'samebits.json' is damaged \('utf-8' codec") as error:
        checkpoint.open(path)
    check_sentence(error.value)


def test_members_that_are_no_tensors_are_told_when_they_are_asked_for(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "x.npz"
    np.savez(path, x=np.arange(3), o=np.array([object()], dtype=object), s=np.array(["a"]))
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("readme.txt", "hello")
    with checkpoint.open(path) as found:
        assert set(found) == {"x", "o", "s"}
        assert found["x"].tolist() == [0, 1, 2]
        for name in ("o", "s"):
            with pytest.raises(DTypeError, match=f"tensor {name!r} format is"):
                found[name]


def test_two_members_of_one_name_are_refused(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "x.npz"
    np.savez(path, x=np.arange(3))
    with zipfile.ZipFile(path, "a") as archive, pytest.warns(UserWarning, match="Duplicate name"):
        archive.writestr("x.npy", b"")
    with pytest.raises(ModelError, match="members is of one name, must be of different names"):
        checkpoint.load(path)


def test_threads_and_forks_read_one_archive(tmp_path: pathlib.Path) -> None:
    x = np.arange(300_000, dtype=np.int32)
    np.savez_compressed(tmp_path / "x.npz", x=x, y=-x)

    def is_read(found: checkpoint.Checkpoint) -> bool:
        parts = [found.read("x", at, at + 50_000).numpy() for at in range(0, x.size, 50_000)]
        return np.array_equal(np.concatenate(parts), x) and np.array_equal(found["y"].numpy(), -x)

    with checkpoint.open(tmp_path / "x.npz") as found:
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            assert all(pool.map(is_read, [found] * 12))
        children = []
        for _ in range(3):
            child = os.fork()
            if not child:
                os._exit(0 if all(is_read(found) for _ in range(5)) else 1)
            children.append(child)
        assert all(is_read(found) for _ in range(5))
        assert [os.waitpid(child, 0)[1] for child in children] == [0, 0, 0]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # from 3.12 on, where other threads live
def test_a_child_that_is_forked_while_a_thread_reads_an_archive_reads_it(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = np.arange(3000, dtype=np.int32)
    np.savez_compressed(tmp_path / "x.npz", x=x)
    begun, may_end, read = threading.Event(), threading.Event(), zipfile.ZipExtFile.read

    def slowly(self: zipfile.ZipExtFile, count: int | None = -1) -> bytes:
        if threading.current_thread() is thread:
            begun.set()
            assert may_end.wait(60)
        return read(self, count)

    with checkpoint.open(tmp_path / "x.npz") as found:
        monkeypatch.setattr(zipfile.ZipExtFile, "read", slowly)
        thread = threading.Thread(target=found.read, args=("x", 0, 1000))
        thread.start()
        assert begun.wait(60)
        threading.Timer(0.1, may_end.set).start()
        child = os.fork()
        if not child:
            signal.alarm(300)  # which ends a child that waits for ever
            parts = [found.read("x", at, at + 1000).numpy() for at in (1000, 2000, 0)]
            os._exit(0 if np.array_equal(np.concatenate([parts[2], *parts[:2]]), x) else 1)
        assert os.waitpid(child, 0)[1] == 0
        thread.join()
        assert np.array_equal(found["x"].numpy(), x)


def given(folder: pathlib.Path) -> pathlib.Path:
    np.savez(folder / "given.npz", **ARRAYS)
    return folder / "given.npz"


@pytest.mark.parametrize("seed", [0, *[pytest.param(seed, marks=pytest.mark.exhaustive) for seed in range(1, 5)]])
@pytest.mark.parametrize("write", [np.savez, np.savez_compressed, checkpoint.save])
def test_a_thousand_mutations_are_read_or_one_sentence(tmp_path: pathlib.Path, write: Any, seed: int) -> None:
    path, r = tmp_path / "x.npz", random.Random(seed)
    if write is checkpoint.save:
        write(path, checkpoint.load(given(tmp_path)), metadata={"a": "b"})
    else:
        write(path, **ARRAYS)
    data, whole, taken = path.read_bytes(), checkpoint.load(path), 0
    for _ in range(1000):
        changed = bytearray(data)
        for _ in range(r.choice((1, 1, 2, 4))):
            at = r.randrange(len(changed) or 1)
            match r.randrange(4):
                case 0 | 1:
                    changed[at : at + 1] = bytes([r.randrange(256)])
                case 2:
                    del changed[at : at + r.randrange(1, 9)]
                case _:
                    changed[at:at] = changed[at : at + r.randrange(1, 40)]
        path.unlink()
        path.write_bytes(changed)
        try:
            found = checkpoint.load(path)
        except (ModelError, DTypeError, MemoryError) as error:
            if not isinstance(error, MemoryError):
                check_sentence(error)
            continue
        taken += 1
        assert all(found[name].equal_bits(whole[name]) for name in found if name in whole)
    assert taken > 10
