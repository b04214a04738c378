"""What is written: a whole file or none, in parts of any size, of tensors in any layout."""

from __future__ import annotations

import errno
import os
import pathlib
import stat
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import apart
import ml_dtypes
import numpy as np
import pytest
import torch
from sentences import check_sentence

import samebits as sb
from samebits import checkpoint, dtypes, files
from samebits.checkpoint import header, sources
from samebits.errors import ClosedError, DTypeError, LayoutError, OptionError, SamebitsError, ShapeError

X = np.arange(12, dtype=np.float32).reshape(3, 4)


def test_parameters_are_written_as_their_values(tmp_path: pathlib.Path) -> None:
    model, path = torch.nn.Linear(3, 2), tmp_path / "w.safetensors"
    checkpoint.save(path, dict(model.named_parameters()))
    with checkpoint.create(tmp_path / "v.safetensors", {"weight": ("float32", (2, 3))}) as new:
        new.write("weight", model.weight)
    for name in (path, tmp_path / "v.safetensors"):
        assert torch.equal(checkpoint.load(name)["weight"].torch(copy=True), model.weight)
    assert model.weight.requires_grad


def test_any_layout_of_any_library_is_written(tmp_path: pathlib.Path) -> None:
    given: dict[str, Any] = {
        "turned": X.T,
        "backwards": X[::-1, ::-2],
        "broadcast": np.broadcast_to(np.float32(3), (2, 5)),
        "torch": torch.arange(6).reshape(2, 3).T.to(torch.bfloat16),
        "padded": np.arange(-4, 4).astype(ml_dtypes.int4).reshape(2, 4),
        "inside a byte": sb.Tensor.arange(9, dtype="uint4")[1:8],
        "float6": np.linspace(-2, 2, 7).astype(ml_dtypes.float6_e2m3fn),
        "empty": np.zeros((0, 7)),
        "number": 2.5,
        "list": [[1, 2], [3, 4]],
    }
    for kind in ("safetensors", "npz"):
        checkpoint.save(tmp_path / f"x.{kind}", given)
        found = checkpoint.load(tmp_path / f"x.{kind}")
        assert list(found) == (sorted(given, key=list(found).index))
        for name, x in given.items():
            tensor = sb.Tensor.from_any(x)
            assert found[name].shape == tensor.shape
            assert found[name].equal_bits(tensor), name


@pytest.mark.parametrize("kind", ["safetensors", "npz"])
@pytest.mark.parametrize("row", dtypes.ROWS, ids=repr)
def test_parts_of_several_tensors_in_turns_make_the_same_file(
    tmp_path: pathlib.Path, row: dtypes.DType, kind: str
) -> None:
    whole, one, two = sb.Tensor.arange(43, dtype="int64"), tmp_path / f"1.{kind}", tmp_path / f"2.{kind}"
    codes = (whole.numpy() % 2).astype(f"u{row.element_bytes}")
    x = sb.copy(sb.Tensor.from_bytes(codes.tobytes(), row, (43,), storage="padded"), storage="packed")
    given = {"a": x[:40], "b": x}
    checkpoint.save(one, given, metadata={"a": "b"})
    with checkpoint.create(two, {name: (row, t.shape) for name, t in given.items()}, metadata={"a": "b"}) as new:
        for start in range(0, 43, 8):
            new.write("b", x[start : start + 8])
            new.write("a", x[start : min(start + 8, 40)])
    assert one.read_bytes() == two.read_bytes()


def test_tensors_are_aligned_for_everybody(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "x.safetensors"
    checkpoint.save(path, {row.name: sb.Tensor.zeros((3, 3), row) for row in dtypes.ROWS})
    with checkpoint.open(path, copy=False) as found:
        for name in found:
            assert found[name].shape == (3, 3)
    checkpoint.save(path, {"a": np.zeros(64, np.int8), "b": np.zeros(16, np.float32)})
    assert [x.buffer.address % 64 for x in checkpoint.load(path).values()] == [0, 0]


# Whole or not at all.


def left(folder: pathlib.Path) -> list[str]:
    return sorted(os.listdir(folder))


def unfinished(path: pathlib.Path) -> None:
    with checkpoint.create(path, {"a": ("float32", (3, 4))}) as new:
        new.write("a", X[:1])


def interrupted(path: pathlib.Path) -> None:
    with checkpoint.create(path, {"a": ("float32", (3, 4))}) as new:
        new.write("a", X[:1])
        raise KeyboardInterrupt


@pytest.mark.parametrize("kind", checkpoint.KINDS)
def test_an_exception_leaves_what_was_there(tmp_path: pathlib.Path, kind: str) -> None:
    path = tmp_path / f"x.{kind}"
    for before in ([], [path.name]):
        if before:
            path.write_text("kept")
        with pytest.raises(KeyboardInterrupt):
            interrupted(path)
        assert left(tmp_path) == before
        new = checkpoint.create(path, {"a": ("float32", (3, 4))})
        del new
        assert left(tmp_path) == before
        with pytest.raises(ShapeError, match=r"written part is 4 elements, must be all 12; write the rest") as error:
            unfinished(path)
        check_sentence(error.value)
        assert left(tmp_path) == before
    assert path.read_text() == "kept"


def test_a_part_that_failed_is_written_again(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, write = tmp_path / "x.npz", os.pwrite

    def full(*_: Any) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with checkpoint.create(path, {"a": ("float32", (3, 4))}) as new:
        monkeypatch.setattr(os, "pwrite", full)
        with pytest.raises(OptionError, match="No space left on device"):
            new.write("a", X)
        monkeypatch.setattr(os, "pwrite", write)
        new.write("a", X)
    assert checkpoint.load(path)["a"].tolist() == X.tolist()


def test_no_call_to_the_system_takes_2_gib(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert files.LARGEST < 1 << 31
    path, write, read = tmp_path / "x.safetensors", os.pwrite, os.preadv
    taken: list[int] = []

    def pwrite(descriptor: int, data: memoryview, place: int) -> int:
        taken.append(len(data))
        return write(descriptor, data, place)

    def preadv(descriptor: int, targets: list[memoryview], place: int) -> int:
        taken.append(len(targets[0]))
        return read(descriptor, targets, place)

    for module in (files, sources):
        monkeypatch.setattr(module, "LARGEST", 7)
    monkeypatch.setattr(os, "pwrite", pwrite)
    monkeypatch.setattr(os, "preadv", preadv)
    checkpoint.save(path, {"a": X})
    assert checkpoint.load(path, copy=True)["a"].tolist() == X.tolist()
    assert max(taken) == 7


@pytest.mark.parametrize("kind", checkpoint.KINDS)
def test_a_full_disk_leaves_what_was_there(tmp_path: pathlib.Path, kind: str) -> None:
    path = tmp_path / f"x.{kind}"
    path.write_text("kept")
    text = f"""
import resource, signal
import numpy as np
from samebits import checkpoint
x = np.zeros(1 << 20, np.float32)
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
try:
    checkpoint.save({str(path)!r}, {{"x": x}})
except checkpoint.writing.OptionError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=False)
    assert done.stdout == (
        f"checkpoint.save: path {path} is unwritable (File too large), must be a file that can be written;"
        " name another\n"
    ), done.stderr
    assert (left(tmp_path), path.read_text()) == ([path.name], "kept")


def test_permissions_are_kept_and_new_files_have_the_usual_ones(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "x.npy"
    before = os.umask(0o027)
    try:
        checkpoint.save(path, {"x": X})
        assert stat.S_IMODE(path.stat().st_mode) == 0o640
        path.chmod(0o604)
        checkpoint.save(path, {"x": X})
        assert stat.S_IMODE(path.stat().st_mode) == 0o604
    finally:
        os.umask(before)


def test_a_link_stays_one_and_its_file_is_replaced(tmp_path: pathlib.Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "x.npy").symlink_to(tmp_path / "deep" / "y.npy")
    for value in (1.0, 2.0):
        checkpoint.save(tmp_path / "x.npy", {"x": np.float64(value)})
        assert (tmp_path / "x.npy").is_symlink()
        assert np.load(tmp_path / "deep" / "y.npy") == value


def test_a_pipe_gets_the_whole_file(tmp_path: pathlib.Path) -> None:
    text = """
import numpy as np
from samebits import checkpoint
checkpoint.save("/dev/stdout", {"x": np.arange(3)}, kind="npz")
"""
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, check=True)
    (tmp_path / "x.npz").write_bytes(done.stdout)
    assert checkpoint.load(tmp_path / "x.npz")["x"].tolist() == [0, 1, 2]


def test_saving_needs_no_second_copy_and_parts_no_more_than_a_part(tmp_path: pathlib.Path) -> None:
    text = f"""
import apart
import numpy as np
from samebits import checkpoint
apart.without_huge_pages()
part = np.ones(1 << 20, np.float32)
checkpoint.save({str(tmp_path / "small.npz")!r}, {{"x": part}})
before = apart.peak()
for kind in ("npz", "safetensors"):
    with checkpoint.create(f"{tmp_path}/x.{{kind}}", {{"x": ("float32", (64 << 20,))}}) as new:
        for _ in range(64):
            new.write("x", part)
    with checkpoint.open(f"{tmp_path}/x.{{kind}}") as found:
        for at in range(0, 64 << 20, 1 << 20):
            assert found.read("x", at, at + (1 << 20)).numpy()[-1] == 1
print(apart.peak() - before)
"""
    assert int(apart.printed_by(text)) < 32 << 20  # of a file of 256 MiB


# What is refused.


Call = Callable[[pathlib.Path], object]


def save(name: str, *given: Any, **more: Any) -> Call:
    return lambda folder: checkpoint.save(folder / name, *given, **more)


def create(facts: Any) -> Call:
    return lambda folder: checkpoint.create(folder / "x.npz", {"a": facts})


def write(*parts: tuple[str, Any], kind: str = "npz") -> Call:
    def call(folder: pathlib.Path) -> None:
        with checkpoint.create(folder / f"x.{kind}", {"a": ("float32", (3, 4)), "n": ("int4", (7,))}) as new:
            for name, x in parts:
                new.write(name, x)

    return call


def write_closed(folder: pathlib.Path) -> None:
    new = checkpoint.create(folder / "x.npz", {})
    new.close()
    new.close()
    new.write("a", X)


CUT = (("n", sb.Tensor.zeros((3,), "int4")), ("n", sb.Tensor.zeros((4,), "int4")))
REFUSALS: list[tuple[Call, type[SamebitsError], str]] = [
    (save("x.bin", {"a": X}), OptionError, "must be one that ends with .safetensors, .npz, .npy; name it so, or"),
    (save("x.npz", {"a": X}, kind="zip"), OptionError, "kind is 'zip', must be one of safetensors, npz, npy"),
    (save("x.npz", {"a": X}, kind=[]), OptionError, "kind is [], must be one of"),
    (lambda _: checkpoint.save(3, {"a": X}), OptionError, "path is 3, must be the path of a file"),
    (save("", {"a": X}, kind="npy"), OptionError, "is unwritable (it is a directory), must be a file that can be"),
    (save("no/x.npz", {"a": X}), OptionError, "is unwritable (No such file or directory)"),
    (save("/dev/full", {"a": X}, kind="npy"), OptionError, "is unwritable (No space left on device)"),
    (save("x.npz", [X]), OptionError, "tensors type is list, must be a mapping of names"),
    (save("x.npz", {3: X}), OptionError, "tensors name is 3, must be text"),
    (save("x.npz", {"\ud800": X}), OptionError, "tensors name is '\\ud800', must be text"),
    (save("x.npz", {"a\0b": X}), OptionError, "tensors name is 'a\\x00b', must be one without a zero character"),
    (save("x.npz", {"__metadata__": X}), OptionError, "and not '__metadata__'; name it otherwise"),
    (save("x.npz", {"a": "text"}), DTypeError, "must be an array, numbers, or lists"),
    (save("x.npz", {"a": X}, metadata={"a": 3}), OptionError, "metadata is {'a': 3}, must be text by name"),
    (save("x.npz", {"a": X}, metadata={"samebits": ""}), OptionError, "none of which is 'samebits'"),
    (save("x.npz", {"a": X}, metadata=[]), OptionError, "metadata is [], must be text"),
    (save("x.npy", {"a": X, "b": X}), OptionError, "content is 2 tensors, must be one tensor alone"),
    (save("x.npy", {"a": X}, metadata={"a": "b"}), OptionError, "content is text beside it, must be one tensor alone"),
    (create(5), OptionError, "tensor 'a' is 5, must be a format and a shape; write ('float32', (4, 4))"),
    (create(("f", (3,))), DTypeError, "format of tensor 'a' is 'f', must be an element format"),
    (create(("int8", (-3,))), LayoutError, "shape of tensor 'a' is (-3,), must be extents of at least 0"),
    (write(("b", X)), OptionError, "name is 'b', must be one of the 2 that the file was made for"),
    (write(("a", X.astype(np.float64))), DTypeError, "dtype is float64, must be float32, as it was made"),
    (write(("a", X), ("a", X)), ShapeError, "tensor 'a' size is 12, must be at most the 0 left; write it once"),
    (write(*CUT, kind="safetensors"), LayoutError, "is 3 elements so far, must be whole bytes before the next part"),
    (write_closed, ClosedError, "file is closed, must be open; write before it is closed"),
]


@pytest.mark.parametrize("number", range(len(REFUSALS)))
def test_a_wrong_call_is_one_sentence_and_leaves_no_file(tmp_path: pathlib.Path, number: int) -> None:
    call, kind, sentence = REFUSALS[number]
    with pytest.raises(kind) as error:
        call(tmp_path)
    assert sentence in str(error.value)
    check_sentence(error.value)
    assert left(tmp_path) in ([], ["x.npz"])


def test_a_header_that_no_reader_takes_is_not_written(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(header, "LONGEST", 100)
    with pytest.raises(OptionError, match="tensors header is 128 bytes, must be at most 100; write several files"):
        checkpoint.save(tmp_path / "x.safetensors", {"a": X, "b": X})
    assert left(tmp_path) == []


def test_what_is_being_written_says_so(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "x.npz"
    with checkpoint.create(path, {"a": ("float32", (3, 4)), "b": ("int8", (0,))}) as new:
        assert repr(new) == f"NewCheckpoint({str(path)!r}, 1 of 2 tensors)"
        new.write("a", X)
    assert repr(new) == f"NewCheckpoint({str(path)!r}, 2 of 2 tensors, closed)"


def test_what_is_no_tensor_is_told_by_its_name(tmp_path: pathlib.Path) -> None:
    with pytest.raises(DTypeError) as error:
        checkpoint.save(tmp_path / "x.npz", {"w": np.ones(3), "v": None})
    assert str(error.value) == (
        "checkpoint.save: tensor 'v' type is NoneType, must be an array, numbers, or lists of them; convert it first"
    )
    assert not [*tmp_path.iterdir()]
