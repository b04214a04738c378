"""Objects for sizes to come: another process plans for them and fills the cache before a call asks.

A program whose sizes change meets thresholds of its plans one by one (heights of microtiles, panels, few rows), and
what is compiled for each stalls a call. Planners are pure: what they are asked depends on a blueprint and on numbers
alone. So once a session had to compile for a third set of sizes, the questions of its blueprint and what its tape gives
for many other values of each size that has changed go to one process (`python -P -m samebits.runtime.ahead`), which
asks the planners, compiles what the cache has not, and ends. No call waits for it, and no bit depends on it: what it
has not made yet a call compiles as ever. Start at `Ahead`.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from samebits import cache, driver
from samebits.kernels.plan import Plan
from samebits.operations import dim
from samebits.operations.strided import dense_strides
from samebits.runtime.plan_tape import filled

if TYPE_CHECKING:
    from samebits.native.compilers import CompilerProcess
    from samebits.runtime.blueprint import Blueprint

__all__ = ["Ahead", "sizes", "wait"]

# Sets of sizes that a session has met before it looks ahead: two are an example and a batch of it.
_MET = 3
# Every size up to `_EACH` is planned for, then eight in each doubling, up to `_LAST` or `_TIMES` the one that was met.
# Remainders of microtiles show among the first, and plans that depend on the sizes of caches among the others.
_EACH, _LAST, _TIMES = 64, 128, 4
# Entries of a tape, and questions, beyond which nothing is planned ahead: the call that replays the tape for all these
# sizes would take long.
_ENTRIES, _QUESTIONS = 4096, 256
# How often a session looks ahead.
_LOOKS = 8

_Question = tuple[Callable[..., Plan], Any]
_Numbers = Mapping[int, Any]


def sizes(met: int) -> list[int]:
    """Those that are planned for where this one was met, in the order of planning.

    Small sizes come first, as thresholds lie close to each other among them, and the largest of these first: where the
    sizes of a program grow, its calls compile from below while the process comes down from above.
    """
    far, last = list[int](), _EACH
    while last < _reach(met):
        far += range(last + last // 8, 2 * last + 1, last // 8)
        last *= 2
    return [*range(_EACH, 0, -1), *far]


def _reach(met: int) -> int:
    """How far is looked from there, a power of two."""
    return max(_LAST, _TIMES << (met - 1).bit_length())


class Ahead:
    """What a session has met, and for which sizes it has looked ahead."""

    def __init__(self) -> None:
        self._met = self._waited = 0
        self._first: Mapping[str, int] = {}
        self._changed: frozenset[str] = frozenset()
        self._asked: set[Any] = set()

    def met(self, blueprint: Blueprint, symbols: Mapping[str, int]) -> None:
        """Note that the session was bound to new sizes by this blueprint; it may compile ahead for others."""
        from samebits.native import compile  # for compiled rows alone

        before, self._waited = self._waited, compile.waited_for()
        self._first = self._first or symbols
        self._met += 1
        self._changed |= {name for name, value in symbols.items() if value != self._first[name]}
        if self._waited > before and self._met >= _MET and self._changed:
            self._look(blueprint, symbols)

    def _look(self, blueprint: Blueprint, symbols: Mapping[str, int]) -> None:
        """Look ahead from these sizes, unless somebody does."""
        import pickle  # which a process that finds its objects does without

        asked = blueprint, tuple([(name, _reach(symbols[name])) for name in sorted(self._changed)])
        tape, questions = blueprint.tape, [(each.planner, each.arguments) for each in blueprint.questions]
        if asked in self._asked or len(self._asked) == _LOOKS:
            return
        if len(tape) > _ENTRIES or len(questions) > _QUESTIONS:
            return
        places = sorted({place for each in blueprint.questions for place in each.places})
        given = list[_Numbers]()
        for others in _others(symbols, self._changed):
            numbers = tape.replay(_variables(blueprint, others))
            if numbers is not None:
                given.append({place: numbers[place] for place in places})
        with contextlib.suppress(pickle.PicklingError, AttributeError, TypeError):  # a planner that has no name
            if _start(pickle.dumps((questions, given))):
                self._asked.add(asked)


def _others(symbols: Mapping[str, int], changed: frozenset[str]) -> Iterator[Mapping[str, int]]:
    """The sizes with one symbol changed to a value to come, for each of the symbols that changed before."""
    for name in sorted(changed):
        for value in sizes(symbols[name]):
            if symbols[name] != value:
                yield {**symbols, name: value}


def _variables(blueprint: Blueprint, symbols: Mapping[str, int]) -> list[int]:
    """The variables of the blueprint's tape, for dense inputs."""
    program = blueprint.program
    found = [symbols[name] for name in program.symbols]
    for name in program.input_names:
        found += dense_strides(dim.bind_shape(program.facts[name].shape, symbols))
    return found


_running: CompilerProcess | None = None
_guard = threading.Lock()
_ending = False


def _start(work: bytes) -> bool:
    """Have this work done; False where somebody else's is, or none can be."""
    global _running
    if _ending or driver.usable_cores() < 2 or not driver.can_start_python() or cache.directory() is None:
        return False
    guard = _guard  # the child of a fork has another, also of one in a signal's handler that comes below
    if not guard.acquire(blocking=False):
        return False
    try:
        if _running is not None and _running.poll() is None:
            return False
        import subprocess  # which a process that finds its objects does without

        from samebits.native import board

        file = board.nameless()
        try:
            os.pwrite(file, work, 0)
            nothing = subprocess.DEVNULL
            _running = process = driver.start_python(
                __name__, (str(file), str(os.getpid())), stdin=nothing, stdout=nothing, stderr=nothing,
                pass_fds=(file,), process_group=0,  # a terminal interrupts the caller alone
            )  # fmt: skip
            driver.let_end(process)
        finally:
            os.close(file)
    except (OSError, ValueError, RuntimeError):  # no descriptors, processes or memory; an interpreter that is ending
        return False
    finally:
        guard.release()
    return True


def wait() -> None:
    """Until nobody looks ahead any more."""
    if _running is not None:
        _running.wait()


def _at_exit() -> None:
    global _ending
    _ending = True
    if _running is not None and _running.poll() is None:
        with contextlib.suppress(OSError):
            _running.kill()
        _running.wait()


def _forget() -> None:
    """In the child of a fork: the process is the parent's."""
    global _running, _guard
    if _running is not None:
        _running.returncode = 0  # no child of this process, which would otherwise be told that it still runs
    _running, _guard = None, threading.Lock()


atexit.register(_at_exit)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


# -- what the process does -------------------------------------------------------------------------------------------
def fill(questions: Sequence[_Question], given: Sequence[_Numbers], is_wanted: Callable[[], bool]) -> int:
    """Have the cache hold what the answers to these questions need, for all these numbers, and say how much that is.

    Sizes that a planner refuses need nothing. A cache that does not keep an object, on a full disk or on one that is
    only read, gets no more.
    """
    from samebits.errors import SamebitsError
    from samebits.native import compile

    known = set[compile.Compiled]()
    for numbers in given:
        for planner, arguments in questions:
            try:
                plan = planner(*filled(arguments, numbers))
            except SamebitsError:
                continue
            for spec in [x for step in plan.steps if step.tasks for x in step.needs if x not in known]:
                if not is_wanted():
                    return len(known)
                known.add(spec)
                compile.load_object(spec)
                if not compile.is_kept(spec):
                    return len(known)
    return len(known)


def main() -> None:
    """Do the work that the command line names, for as long as the process that asks is there."""
    import pickle

    file, caller = map(int, sys.argv[1:])
    os.chdir("/")  # the directory that it was started in may be removed, or unmounted
    with os.fdopen(file, "rb") as work:
        work.seek(0)
        questions, given = pickle.load(work)
    try:
        fill(questions, given, lambda: os.getppid() == caller)
    finally:
        os._exit(0)  # there is nothing to tidy up, and nobody to tell


if __name__ == "__main__":
    main()
