"""Compiler processes: texts become objects beside this process, several at once.

llvmlite holds one lock for every call, so that threads of a process compile one after the other; processes do not. They
are started when several objects are missing at once, or when one is that nobody waits for, and end by themselves after
a few idle seconds or with this process. They have a session of their own, so that a terminal's interrupt is not for
them, and the cores that this process may use. Nothing depends on them: an object that none of them answers is compiled
here. Start at `compile_all`, for objects that a call waits for, and `ask`, for those that no call does.

Callers hold one lock around all of this (that of `native.compile`), also across a fork: the child of a fork has no
compilers until it starts its own.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import subprocess
import time
from collections.abc import Sequence
from typing import Protocol

from samebits import driver
from samebits.frozen import dataclass
from samebits.native import assembler
from samebits.native.assembler import Processor
from samebits.native.board import SLOTS, Board
from samebits.uninterrupted import uninterrupted

# More of them gain little, for the longest object takes as long as ever, and each takes 60 MB.
MOST = 8
# How long a call waits for an answer before it compiles by itself what others have begun: many times what one takes.
# Where it has compiled some by itself it waits twice as long as that says, for on a machine with other work others may
# not be let run (with 14 processes on two cores MiniLM's 128 lengths and an empty cache waited for half of 12 seconds).
_PATIENCE_SECONDS = 2.0
_TIMES, _LEAST_SECONDS = 2, 0.05
# What a compiler is started with on a single core, where it works while nothing else does.
_IDLE_NICENESS = 19


@dataclass(frozen=True, slots=True)
class Job:
    """A text to be compiled; `name` is what its object is called in the cache, `passes` as those of `assembler`."""

    name: str
    text: str
    processor: Processor
    passes: str = ""

    def compiled(self) -> bytes:
        """Its object, compiled in this process.

        Raises:  RuntimeError, with LLVM's reason, if it refuses the text.
        """
        return uninterrupted(assembler.object_code, self.text, self.processor, self.passes)


class CompilerProcess(Protocol):
    """What `driver.start_python` gives."""

    returncode: int | None

    def poll(self) -> int | None: ...

    def kill(self) -> None: ...

    def wait(self) -> int: ...


class _Compilers:
    """The compiler processes and the board of jobs that they were given."""

    def __init__(self) -> None:
        self.board = Board.opened()
        self.running: list[CompilerProcess] = []
        self.asked: dict[int, Job] = {}
        self.found: dict[str, bytes] = {}
        self.unwanted: set[str] = set()

    def start(self, count: int, niceness: int = 0) -> None:
        """Have `count` of them, where the system allows it."""
        self.running = [process for process in self.running if process.poll() is None]
        while len(self.running) < count:
            arguments = tuple(map(str, (*self.board.inherited, niceness)))
            nothing = subprocess.DEVNULL
            process = driver.start_python(
                "samebits.native.compiler", arguments, stdin=nothing, stdout=nothing, stderr=nothing,
                pass_fds=self.board.inherited, start_new_session=True,
            )  # fmt: skip
            self.running.append(process)
            driver.let_end(process)

    def is_alive(self) -> bool:
        """Whether one of the processes runs."""
        return any(process.poll() is None for process in self.running)

    def ask(self, job: Job) -> bool:
        """Offer a job; False where there is no room for it."""
        slot = next((slot for slot in range(SLOTS) if slot not in self.asked), None)
        if slot is None:
            return False
        self.unwanted.discard(job.name)
        self.asked[slot] = job  # before anybody can answer, should an interrupt end this call
        if self.board.ask(slot, (*job.processor, job.passes, job.text)):
            return True
        del self.asked[slot]
        return False

    def collect(self) -> None:
        """Take what was answered; of what cannot be compiled, nothing."""
        for slot in self.board.answers():
            job = self.asked.pop(slot)
            if job.name not in self.unwanted:
                self.found[job.name] = self.board.code(slot)
        if not self.asked:
            self.board.clear()
            self.unwanted.clear()

    def take(self, names: set[str]) -> Job | None:
        """A job of these that nobody has begun, which is the caller's now."""
        passed: list[int] = []
        try:
            while (slot := self.board.take()) is not None:
                if self.asked[slot].name in names:
                    return self.asked.pop(slot)
                passed.append(slot)
            return None
        finally:
            for slot in passed:
                self.board.offer_again(slot)

    def end(self) -> None:
        """End them all, at once."""
        for process in self.running:
            process.kill()
        for process in self.running:
            process.wait()
        self.board.close()


_compilers: _Compilers | None = None
_ending = False


def _started(count: int, niceness: int = 0) -> _Compilers | None:
    """The compilers of this process, `count` of them running; None where there can be none."""
    global _compilers
    if _ending or not driver.can_start_python():
        return None
    try:
        if _compilers is None or not _compilers.is_alive():
            # What they were asked and did not answer is lost, with the slots that it stood in.
            others, _compilers = _compilers, None
            if others is not None:
                others.end()
            _compilers = _Compilers()
        _compilers.start(count, niceness)
    except (OSError, ValueError, RuntimeError):  # no descriptors, processes or memory; an interpreter that is ending
        return _compilers if _compilers is not None and _compilers.is_alive() else None
    return _compilers


def prepare(count: int) -> None:
    """Start what helps to compile `count` objects, while the caller is still writing their texts."""
    # One starts as long as two objects take: where there are no more the caller has compiled them by then.
    helpers = min(driver.usable_cores() - 1, (count - 1) // 2, MOST)
    if helpers > 0:
        _started(helpers)


def compile_all(jobs: Sequence[Job]) -> dict[str, bytes]:
    """The objects by name, compiled here and by those whom `prepare` started.

    Raises:  RuntimeError, with LLVM's reason, if it refuses a text.
    """
    others = _compilers
    if len(jobs) < 2 or others is None or not others.is_alive():
        return {job.name: job.compiled() for job in jobs}
    made: dict[str, bytes] = {}
    names = {job.name for job in jobs}
    here = [job for job in sorted(jobs, key=lambda job: -len(job.text)) if not others.ask(job)]
    pace = 0.0  # seconds that a character takes here, at most
    while (job := here.pop() if here else others.take(names)) is not None:
        begun = time.monotonic()
        made[job.name] = job.compiled()
        pace = max(pace, (time.monotonic() - begun) / len(job.text))
        others.collect()
    left = [job for job in jobs if job.name not in made]
    expected = _TIMES * pace * max([len(job.text) for job in left], default=0)
    _await(others, names - made.keys(), max(expected, _LEAST_SECONDS) if pace else _PATIENCE_SECONDS)
    for job in left:
        others.collect()
        found = others.found.pop(job.name, None)
        if found is None:
            others.unwanted.add(job.name)
        made[job.name] = found or job.compiled()
    return made


def _await(others: _Compilers, names: set[str], seconds: float) -> None:
    """Wait for these objects, as long as somebody works and answers within so many seconds."""
    last = time.monotonic()
    while names and others.is_alive() and time.monotonic() - last < seconds:
        before = len(others.found)
        others.board.wait_for_answers(min(seconds, 0.05))  # one that was killed answers nothing
        others.collect()
        if len(others.found) > before:
            last = time.monotonic()
        names -= others.found.keys()


def ask(job: Job) -> bool:
    """Have an object compiled that no call waits for; False where nobody can."""
    others = _started(1, 0 if driver.usable_cores() > 1 else _IDLE_NICENESS)
    return others is not None and others.ask(job)


def answer(name: str) -> bytes | None:
    """The object that was asked for under this name, once; None while it is not there.

    Raises:  LookupError if nobody is going to give it.
    """
    others = _compilers
    if others is None:
        raise LookupError(name)
    others.collect()
    code = others.found.pop(name, None)
    if code is None and not (any(job.name == name for job in others.asked.values()) and others.is_alive()):
        raise LookupError(name)
    if code == b"":
        raise LookupError(name)
    return code


def forget() -> None:
    """In the child of a fork: the compilers are the parent's."""
    global _compilers
    others, _compilers = _compilers, None
    if others is not None:
        for process in others.running:
            process.returncode = 0  # no child of this process, which would otherwise be told that it still runs
        others.board.close()


def _at_exit() -> None:
    global _compilers, _ending
    _ending = True
    others, _compilers = _compilers, None
    if others is not None:
        with contextlib.suppress(OSError):
            others.end()


atexit.register(_at_exit)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=forget)
