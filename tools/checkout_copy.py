"""A copy of the checkout in which tests are run, with a mistake in one file or with none.

Nothing that runs there reaches the checkout, its object cache, or that of the user's home. A mistake in a kernel's
text changes the cache keys of all kernels but the machine code of few, and most of the tests' time is LLVM's: so the
copy's `native/compile.py` also keeps what LLVM made of each text, for all runs together. Start at `Copy.run`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sysconfig
import threading
import time
import venv
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from mistakes import Mistake, Refused

__all__ = ["Clock", "Copy", "OutOfTime", "Outcome", "culprit"]

_COMPILE = "src/samebits/native/compile.py"
# Stands behind the copy's text of that file, so that no line moves. The folder is named by one variable; another says
# to write only, as a run that measures how long compiling takes must.
_KEEPING = b"""

def _keeping(compiled, folder, reads):
    import contextlib, hashlib, os, tempfile

    def kept(module, target):
        path = os.path.join(folder, hashlib.sha256(repr((module, target)).encode()).hexdigest())
        if reads and os.path.exists(path):
            with open(path, "rb") as file:
                return file.read()
        made = compiled(module, target)
        with contextlib.suppress(OSError):
            handle, name = tempfile.mkstemp(dir=folder)
            with os.fdopen(handle, "wb") as file:
                file.write(made)
            os.replace(name, path)
        return made

    return kept if folder else compiled


object_code = _keeping(object_code, os.environ.get("MUTANTS_OBJECTS"), "MUTANTS_FRESH" not in os.environ)
"""
# A test as pytest names it: a module, a function, its parameters.
_TEST = r"(tests/\S+?\.py(?:::[^\s\[]+(?:\[.*?\](?= |$))?)?)"
_PYTEST = ("-x", "-v", "--tb=no", "--no-header", "-p", "no:cacheprovider", "-m", "not exhaustive")


@dataclasses.dataclass(frozen=True, slots=True)
class Outcome:
    """What a run of tests came to: the test that failed, or none, and what it lasted."""

    test: str | None
    seconds: float


class OutOfTime(Exception):
    """The time for everything is over; nothing is known of what was running."""


class Clock:
    """When everything ends, and the processes to be ended then."""

    def __init__(self, seconds: float | None) -> None:
        self._end = None if seconds is None else time.monotonic() + seconds
        self._lock, self._running, self._stopped = threading.Lock(), set[subprocess.Popen[bytes]](), False

    def left(self) -> float:
        """Seconds until the end; 0 where it has come."""
        if self._stopped:
            return 0
        return float("inf") if self._end is None else max(0.0, self._end - time.monotonic())

    def run(self, command: Sequence[str], limit_s: float, **how: Any) -> int | None:
        """Run a command in a session of its own, which ends with it: its exit status, or None if it took too long.

        Raises:  OutOfTime if the end comes before.
        """
        limit_s = min(limit_s, self.left())
        with self._lock:
            if self.left() <= 0:
                raise OutOfTime
            process = subprocess.Popen(command, start_new_session=True, **how)
            self._running.add(process)
        # What a mistake takes from the machine's memory is taken from it first.
        with contextlib.suppress(OSError):
            pathlib.Path(f"/proc/{process.pid}/oom_score_adj").write_text("1000")
        try:
            status: int | None = process.wait(limit_s)
        except subprocess.TimeoutExpired:
            status = None
        finally:
            _end(process)
            self._running.discard(process)
        if self.left() <= 0:
            raise OutOfTime
        return status

    def stop(self) -> None:
        """The end comes now."""
        with self._lock:
            self._stopped = True
            for process in list(self._running):
                _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill a process and what it started."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


class Copy:
    """A copy of the checkout, with a Python that imports the package from there, in every process that tests start.

    That is an environment with a path of its own before that of the installed packages: PYTHONPATH would not reach
    processes that are started isolated. Copies share what LLVM made in the folder `objects`.
    """

    def __init__(
        self, folder: pathlib.Path, texts: Mapping[str, bytes], root: pathlib.Path, objects: pathlib.Path
    ) -> None:
        self.checkout, self._folder, self._home, self._objects = folder / "checkout", folder, folder / "home", objects
        self._texts, self._count = dict(texts), 0
        if _COMPILE in texts:
            self._texts[_COMPILE] += _KEEPING
        for path, text in self._texts.items():
            file = self.checkout / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(text)
            file.chmod((root / path).stat().st_mode)
        self._home.mkdir()
        venv.create(folder / "python", symlinks=True, with_pip=False)
        self._python = str(folder / "python" / "bin" / "python")
        asked = [self._python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
        own = pathlib.Path(subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip())
        installed = sorted({sysconfig.get_path("purelib"), sysconfig.get_path("platlib")})
        lines = [str(self.checkout / "src"), *(f"import site; site.addsitedir({path!r})" for path in installed)]
        (own / "checkout.pth").write_text("\n".join(lines) + "\n")
        self._check()

    def _check(self) -> None:
        """Refuse to go on where another package than the copy's is imported, or the copy's is not."""
        expected = self.checkout / "src" / "samebits" / "__init__.py"
        names = "samebits, samebits.native.compile" if _COMPILE in self._texts else "samebits"
        for flags in ([], ["-I"]):
            asked = [self._python, *flags, "-c", f"import {names}; print(samebits.__file__)"]
            done = subprocess.run(
                asked, capture_output=True, text=True, check=False, cwd=self.checkout, env=self._env(self._home)
            )
            if done.returncode or pathlib.Path(done.stdout.strip()).resolve() != expected.resolve():
                raise Refused(f"samebits is imported from {done.stdout.strip() or done.stderr}, must be {expected}")

    def _env(self, folder: pathlib.Path) -> dict[str, str]:
        """The environment of a run, all of whose traces are in a folder."""
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("MUTANTS_", "PYTEST_", "PYTHON", "SAMEBITS_"))}
        # The caller's home is out of reach: a mistake in the object cache must not empty the real one.
        return kept | {
            "HOME": str(self._home),
            "XDG_CACHE_HOME": str(self._home),
            "TMPDIR": str(folder),
            "HYPOTHESIS_STORAGE_DIRECTORY": str(folder / "hypothesis"),
            "SAMEBITS_CACHE_DIR": str(folder / "cache"),
        }

    def run(self, modules: Sequence[str], clock: Clock, limit_s: float, mistake: Mistake | None = None) -> Outcome:
        """Run test modules with a mistake, or with none: then all is compiled as if nothing ever had been.

        Tests get as short a temporary folder as pytest gives: the address of a socket holds a hundred bytes.

        Raises:  OutOfTime as the clock does; Refused if pytest itself could not run.
        """
        self._count += 1
        traces = self._folder / str(self._count)
        traces.mkdir()
        env, said = self._env(traces), traces / "said"
        if mistake is None or mistake.path != _COMPILE:
            env["MUTANTS_OBJECTS"] = str(self._objects)
        if mistake is None:
            env["MUTANTS_FRESH"] = "1"
        began = time.monotonic()
        try:
            with self._made(mistake), said.open("wb") as output:
                command = [self._python, "-m", "pytest", *_PYTEST, f"--basetemp={traces}/t", *modules]
                status = clock.run(
                    command, limit_s, cwd=self.checkout, env=env, stdin=subprocess.DEVNULL, stdout=output,
                    stderr=subprocess.STDOUT,
                )  # fmt: skip
            seconds, text = round(time.monotonic() - began, 1), said.read_text(errors="replace")
        finally:
            shutil.rmtree(traces, ignore_errors=True)
        if status in (0, 5):  # 5: none of the modules has a test to run
            return Outcome(None, seconds)
        if status == 4:
            raise Refused(f"pytest could not run: {text.strip()[-500:]}")
        failed = culprit(text)
        if status is None:
            failed += f" (no end within {limit_s:.0f} s)"
        elif status < 0:
            failed += f" ({signal.Signals(-status).name})"
        return Outcome(failed, seconds)

    @contextlib.contextmanager
    def _made(self, mistake: Mistake | None) -> Iterator[None]:
        """The mistake is in the copy."""
        if mistake is None:
            yield
            return
        file, text = self.checkout / mistake.path, self._texts[mistake.path]
        try:
            _rewrite(file, mistake.made(text))
            yield
        finally:
            _rewrite(file, text)


def _rewrite(file: pathlib.Path, text: bytes) -> None:
    """Write a file without its bytecode, which Python takes for the old text's by size and second alone."""
    file.write_bytes(text)
    for known in (file.parent / "__pycache__").glob(f"{file.stem}.*.pyc"):
        known.unlink()


def culprit(said: str) -> str:
    """The test that failed, by pytest's summary, or that was running when it ended without one."""
    _, summary, rest = said.rpartition("short test summary info")
    failed = re.search(f"^(?:FAILED|ERROR) {_TEST}", rest, re.M) if summary else None
    started = re.findall(f"^{_TEST}", said, re.M)
    return failed[1] if failed else started[-1] if started else "the import of its tests"
