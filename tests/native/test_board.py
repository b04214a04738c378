"""The board: work is taken by one, answers come back whole, and nobody waits for anybody."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator

import pytest

from samebits.native import board
from samebits.native.board import Board


@pytest.fixture
def opened() -> Iterator[Board]:
    """A board of this process, and nobody's work on it."""
    made = Board.opened()
    yield made
    made.close()


def test_work_is_taken_once_and_answered_whole(opened: Board) -> None:
    works = [["a", "b", "text ü" * 1000], ["", "", ""], ["x"]]
    for slot, parts in zip((3, 0, 255), works, strict=True):
        assert opened.ask(slot, parts)
    worker = Board(*opened.inherited)
    taken = [worker.take(), opened.take(), worker.take(), worker.take()]
    assert taken == [3, 0, 255, None]
    assert [worker.work(slot) for slot in (3, 0, 255)] == works
    assert opened.answers() == b""
    assert not opened.wait_for_answers(0)
    assert not worker.wait_for_work(0)
    code = bytes(range(256)) * 700
    worker.answer(255, code)
    worker.answer(3, b"")
    assert opened.wait_for_answers(60)
    assert opened.answers() == bytes([255, 3])
    assert (opened.code(255), opened.code(3)) == (code, b"")
    opened.clear()
    assert opened.ask(3, works[1])
    assert opened.code(3) == b""  # not what was there before


def test_what_was_passed_is_offered_again(opened: Board) -> None:
    opened.ask(1, ["a"])
    opened.ask(2, ["b"])
    slot = opened.take()
    assert slot == 1
    opened.offer_again(slot)
    assert [opened.take(), opened.take(), opened.take()] == [2, 1, None]


def test_what_does_not_fit_is_not_taken(opened: Board) -> None:
    assert not opened.ask(0, ["x" * (board._ANSWER - board._HEAD + 1)])
    assert opened.take() is None
    assert opened.ask(0, ["x" * (board._ANSWER - board._HEAD)])
    slot = opened.take()
    assert slot == 0
    opened.answer(slot, b"y" * (board._SLOT - board._ANSWER + 1))
    assert opened.answers() == b"\0"
    assert opened.code(0) == b""


def test_an_object_that_the_file_has_no_room_for_is_answered_with_nothing(opened: Board) -> None:
    resource = pytest.importorskip("resource")
    opened.ask(0, ["a"])
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (board._ANSWER + 10, hard))
    try:
        opened.answer(0, b"y" * 20)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert opened.answers() == b"\0"
    assert opened.code(0) == b""


def test_a_worker_is_told_that_nobody_asks_any_more() -> None:
    made = Board.opened()
    worker = Board(*map(os.dup, made.inherited))
    made.ask(7, ["last"])
    made.close()
    assert worker.take() == 7
    assert worker.wait_for_work(60)
    with pytest.raises(EOFError):
        worker.take()
    with pytest.raises(BrokenPipeError):
        worker.answer(7, b"late")
    worker.close()


def test_no_descriptor_is_a_standard_stream_or_inherited(opened: Board) -> None:
    kept = [os.dup(stream) for stream in range(3)]
    try:
        for stream in range(3):
            os.close(stream)
        made = Board.opened()
        descriptors = [*made.inherited, *made.ends]
        inherited = [os.get_inheritable(x) for x in descriptors]
        made.close()
    finally:
        for stream, copy in enumerate(kept):
            os.dup2(copy, stream)
            os.close(copy)
    assert min(descriptors) > 2
    assert not any(inherited)


@pytest.mark.parametrize("failing", range(1, 6))
def test_what_cannot_be_opened_whole_leaves_nothing_open(monkeypatch: pytest.MonkeyPatch, failing: int) -> None:
    gc.collect()  # what others left open in cycles would be closed meanwhile
    apart, calls, before = board._apart, [], len(os.listdir("/proc/self/fd"))

    def refuse(descriptor: int) -> int:
        calls.append(descriptor)
        if len(calls) == failing:
            os.close(descriptor)
            raise OSError(24, "Too many open files")
        return apart(descriptor)

    monkeypatch.setattr(board, "_apart", refuse)
    with pytest.raises(OSError, match="Too many open files"):
        Board.opened()
    assert len(os.listdir("/proc/self/fd")) == before


def test_without_files_in_memory_a_temporary_one_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "memfd_create", raising=False)
    made = Board.opened()
    assert made.ask(9, ["text"])
    assert made.take() == 9
    assert made.work(9) == ["text"]
    assert os.fstat(made.file).st_nlink == 0
    made.close()


def test_a_nameless_file_is_never_a_standard_stream() -> None:
    stdin = os.dup(0)
    os.close(0)  # the number that the system gives next
    try:
        file = board.nameless()
    finally:
        os.dup2(stdin, 0)
        os.close(stdin)
    os.close(file)
    assert file > 2
