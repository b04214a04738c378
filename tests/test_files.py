"""Files that a caller names: regular ones are opened, and replaced as a whole or not at all."""

from __future__ import annotations

import gc
import os
import pathlib

import pytest
from sentences import check_sentence

from samebits import files
from samebits.errors import OptionError


@pytest.mark.parametrize(("given", "text"), [("a", "a"), (b"a", "a"), (pathlib.Path("a/b"), "a/b")])
def test_a_path_is_text(given: object, text: str) -> None:
    assert files.path_of("f", given) == text


@pytest.mark.parametrize("given", [3, None, "", b"", "a\0b", b"a\0b"])
def test_what_is_no_path_is_refused(given: object) -> None:
    with pytest.raises(OptionError, match=r"^f: path is ") as error:
        files.path_of("f", given)
    check_sentence(error.value)


def test_a_path_is_shown_as_it_is_where_a_terminal_can() -> None:
    assert files.readable("höhe/x") == "höhe/x"
    assert files.readable("a\nb") == "'a\\nb'"
    assert files.readable("") == "''"


def test_what_changes_places_with_a_file_is_refused(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "x").write_bytes(b"x")
    os.mkfifo(tmp_path / "pipe")
    facts = os.stat(tmp_path / "x")
    gc.collect()  # what others left open in cycles would be closed meanwhile
    before = len(os.listdir("/proc/self/fd"))
    with monkeypatch.context() as changed:
        changed.setattr(files.os, "stat", lambda path: facts)
        with pytest.raises(files.NoFileError, match="a pipe"):
            files.opened(str(tmp_path / "pipe"))
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_replacement_is_put_in_place_once(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "x"
    path.write_text("old")
    new = files.Replacement("f", str(path))
    new.resize(6)
    new.write(b"def", 3)
    new.write(memoryview(b"abc"), 0)
    assert path.read_text() == "old"
    new.commit()
    new.discard()
    assert (path.read_text(), os.listdir(tmp_path)) == ("abcdef", ["x"])


def test_a_name_may_have_as_many_bytes_as_a_name_can(tmp_path: pathlib.Path) -> None:
    path = tmp_path / ("\N{GRINNING FACE}" * 63 + "xyz")
    new = files.Replacement("f", str(path))
    new.write(b"x", 0)
    new.commit()
    assert path.read_bytes() == b"x"


def test_an_exception_while_the_new_file_is_made_leaves_none(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(descriptor: int, mode: int) -> None:
        raise KeyboardInterrupt

    (tmp_path / "x").write_text("old")
    monkeypatch.setattr(files.os, "chmod", interrupted)
    with pytest.raises(KeyboardInterrupt):
        files.Replacement("f", str(tmp_path / "x"))
    assert os.listdir(tmp_path) == ["x"]


def test_a_child_of_a_fork_leaves_the_new_file_to_its_parent(tmp_path: pathlib.Path) -> None:
    new = files.Replacement("f", str(tmp_path / "x"))
    child = os.fork()
    if not child:
        new.discard()
        os._exit(0)
    os.waitpid(child, 0)
    new.write(b"whole", 0)
    new.commit()
    assert (tmp_path / "x").read_bytes() == b"whole"


def test_what_cannot_be_put_in_place_leaves_what_was_there(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    (tmp_path / "x").write_text("old")
    new = files.Replacement("f", str(tmp_path / "x"))
    monkeypatch.setattr(files.os, "fsync", full)
    with pytest.raises(OptionError, match=r"unwritable \(No space left on device\), must be") as error:
        new.commit()
    check_sentence(error.value)
    assert (os.listdir(tmp_path), (tmp_path / "x").read_text()) == (["x"], "old")
