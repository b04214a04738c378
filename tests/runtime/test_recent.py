"""What is kept of late: bounded, oldest out first, whole in a child that is forked while a thread changes it."""

from __future__ import annotations

import os
import signal
import threading
from collections import OrderedDict

import pytest

from samebits.runtime.recent import keep


def test_the_oldest_goes_beyond_the_limit_and_is_given_back() -> None:
    found: OrderedDict[str, int] = OrderedDict()
    assert [keep(found, name, number, 2) for number, name in enumerate("abac")] == [[], [], [], [2]]
    assert found == {"b": 1, "c": 3}


class Slow(OrderedDict[str, int]):
    """A dictionary that is changed for a while."""

    def __init__(self) -> None:
        super().__init__()
        self.begun, self.may_end = threading.Event(), threading.Event()

    def __setitem__(self, key: str, value: int) -> None:
        self.begun.set()
        self.may_end.wait(60)
        super().__setitem__(key, value)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # from 3.12 on, where other threads live
def test_a_child_that_is_forked_while_a_thread_keeps_something_keeps_more() -> None:
    slow, others = Slow(), OrderedDict[str, int]()
    thread = threading.Thread(target=keep, args=(slow, "a", 1, 2))
    thread.start()
    assert slow.begun.wait(60)
    threading.Timer(0.1, slow.may_end.set).start()
    child = os.fork()
    if not child:
        signal.alarm(300)  # which ends a child that waits for ever
        keep(others, "b", 2, 2)
        keep(slow, "b", 2, 2)
        os._exit(0 if list(slow) == ["a", "b"] and list(others) == ["b"] else 1)
    assert os.waitpid(child, 0)[1] == 0
    thread.join()
    assert list(slow) == ["a"]
