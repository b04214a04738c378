"""A fork beside a thread that is within an import of ours: the child can call what needs the module."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading

import pytest

from samebits import forks

# A finder that holds the import of a module, in another thread than that which forks, for a while; locks are Python's
# own. A child that waits says where, and ends.
_BESIDE = """
import faulthandler, os, sys, threading, time
import numpy as np
import samebits as sb

begun = threading.Event()

class Slow:
    def find_spec(self, name, path, target=None):
        if name == sys.argv[1] and not begun.is_set():
            begun.set()
            time.sleep(0.1)

sys.meta_path.insert(0, Slow())
x = np.ones((2, 3), np.float32)
first = threading.Thread(target=lambda: sb.sum(x))
first.start()
assert begun.wait(60)
child = os.fork()
if not child:
    faulthandler.dump_traceback_later(300, exit=True)
    os._exit(0 if sb.sum(x).tolist() == 6.0 else 1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
first.join()
"""


@pytest.mark.parametrize("module", ["samebits.native.pool", "mmap"])
def test_a_fork_waits_for_imports_of_other_threads(module: str) -> None:
    """Of a module of this package, whose hook before a fork comes meanwhile, and of another that it asks for."""
    command = [sys.executable, "-X", "faulthandler", "-c", _BESIDE, module]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_imports_of_others_are_not_waited_for() -> None:
    assert not forks.is_importing(sys._getframe())
    found = list[bool]()

    class Finder:
        def find_spec(self, name: str, path: object, target: object = None) -> None:
            if name == "of_somebody_else":
                found.append(forks.is_importing(sys._getframe()))

    sys.meta_path.insert(0, Finder())  # type: ignore[arg-type]
    try:
        with pytest.raises(ModuleNotFoundError):
            __import__("of_somebody_else")
    finally:
        del sys.meta_path[0]
    assert found == [False]


def test_what_follows_a_fork_is_what_was_called_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where a signal's handler forks within a fork, and where a hook comes while another is called."""
    said = list[str]()
    monkeypatch.setattr(forks, "_hooks", [])

    def hook(name: str, act: object = None) -> None:
        def before() -> None:
            said.append(f"before {name}")
            if callable(act) and said.count(f"before {name}") == 1:
                act()

        forks.around(before, lambda: said.append(f"after {name}"), lambda: said.append(f"child {name}"))

    def nested() -> None:
        hook("late")
        forks._before()
        forks._after_in_parent()

    hook("first", nested)
    hook("second")
    forks._before()
    forks._after_in_child()
    inner = ["before late", "before second", "before first", "after first", "after second", "after late"]
    assert said == ["before second", "before first", *inner, "child first", "child second"]


def test_an_import_that_begins_while_a_lock_is_waited_for_ends_before_the_fork(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may need that lock, which is released for it."""
    said, begun, released = list[str](), threading.Event(), threading.Event()
    monkeypatch.setattr(forks, "_hooks", [])

    class Finder:
        def find_spec(self, name: str, path: object, target: object = None) -> None:
            if name == "samebits.of_nobody":
                begun.set()
                assert released.wait(60)
                said.append("imported")

    def imports() -> None:
        with contextlib.suppress(ModuleNotFoundError):
            __import__("samebits.of_nobody")

    def before() -> None:
        said.append("before")
        if not begun.is_set():
            other.start()
            assert begun.wait(60)

    def after() -> None:
        said.append("after")
        released.set()

    other = threading.Thread(target=imports)
    monkeypatch.setattr(sys, "meta_path", [Finder(), *sys.meta_path])
    forks.around(before, after, after)
    forks._before()
    forks._after_in_parent()
    other.join()
    assert said == ["before", "after", "imported", "before", "after"]
