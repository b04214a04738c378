"""How the command's process ends: signals, streams that cannot be written and errors as exit codes of docs/command.md.

Start at `main`.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.machinery
import io
import os
import signal
import sys
import traceback
from collections.abc import Iterator
from types import FrameType, TracebackType
from typing import Any

from samebits import __version__, errors, optional

__all__ = ["main", "take_signals"]

WRONG, REFUSED, INTERNAL, CLOSED_PIPE = 2, 3, 70, 128 + signal.SIGPIPE
_ENDS = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated"}
_OUT, _ERR = 1, 2
# What runs while a compiled module is loaded, and how often one looks whether that is through.
_LOADING = tuple(
    function.__code__
    for function in (
        importlib.machinery.ExtensionFileLoader.create_module,
        importlib.machinery.ExtensionFileLoader.exec_module,
    )
)
_LOOK_SECONDS = 0.01


class _Stopped(BaseException):
    """A signal asked the command to end: no `except Exception` on the way keeps it from doing so."""


# The signal that asked the command to end; whatever is raised afterwards is a consequence.
_asked: int | None = None


class _Raw(io.FileIO):
    """Standard output, which remembers why it could not be written: whose an OSError is, nothing else tells."""

    error: OSError | None = None

    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except OSError as error:
            self.error = error
            raise


def main() -> None:
    """Run the command line and end the process with its exit code; `take_signals` was called before."""
    try:
        out = _open_streams()
        code = _refused_closed() if out is None else _written(_run(out), out)
        _ignore_signals()
    except BaseException:
        if _asked is None:
            raise
        _ignore_signals()
        code = 0
    if _asked is not None:
        code = _stopped(_asked)
    raise SystemExit(code)


def _run(out: _Raw) -> int:
    """The exit code of the command line; errors that are the caller's to mend print as one sentence."""
    for name in ("click", "rich"):
        try:
            importlib.import_module(name)
        except ImportError as error:
            if sys.argv[1:] == ["--version"]:
                print(f"samebits, version {__version__}")
                return 0
            return _say(str(optional.missing("samebits", name, error)), WRONG)
    import click

    from samebits.cli.command import command

    try:
        # Not click's own ending: it gives 1, which says here that bits differ, to an interrupt and a closed pipe.
        return int(command(prog_name="samebits", standalone_mode=False) or 0)
    except errors.MissingPackageError as error:
        return _say(f"samebits: {error}", WRONG)
    except errors.SamebitsError as error:
        return _say(f"samebits: {error}", REFUSED)
    except MemoryError as error:
        return _say(f"samebits: out of memory: {error}", REFUSED)
    except click.ClickException as error:
        with _heard():
            error.show()
        return error.exit_code
    except SystemExit:  # click's own ending of a closed pipe
        if out.error is None:
            raise
        return REFUSED
    except Exception as error:
        if _asked is not None:
            raise  # C code made another error of the exception that a signal raised
        # What is wrong with standard output is said once it is flushed.
        return REFUSED if isinstance(error, OSError) and out.error is not None else _internal(error)


def _internal(error: Exception) -> int:
    """A defect of ours: all that is known of it, and last one line that says so."""
    said = " ".join(str(error).split())
    _say("".join(traceback.format_exception(error)), INTERNAL)
    told = f"{type(error).__name__}: {said}" if said else type(error).__name__
    return _say(f"samebits: internal error ({told}); this is a defect: report it with the lines above", INTERNAL)


# Streams.


def _open_streams() -> _Raw | None:
    """Make standard streams safe to write to; standard output, None where it is closed.

    What is opened next would take the number of a closed stream, and whoever prints would write into it. A name that a
    stream's encoding lacks is written with escapes.
    """
    is_closed = sys.stdout is None
    for number in (0, _OUT, _ERR):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free: this one
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115  # open as long as the process
    if isinstance(sys.stderr, io.TextIOWrapper):
        sys.stderr.reconfigure(errors="backslashreplace")
    if is_closed:
        return None
    raw = _Raw(_OUT, "w", closefd=False)
    sys.stdout = io.TextIOWrapper(
        io.BufferedWriter(raw), sys.stdout.encoding, "backslashreplace", line_buffering=raw.isatty()
    )
    return raw


def _refused_closed() -> int:
    return _say("samebits: standard output is closed, must be open; send it to /dev/null", REFUSED)


@contextlib.contextmanager
def _heard() -> Iterator[None]:
    """What is printed to standard error within the block is printed where that is possible."""
    try:
        yield
    except OSError:
        _let_go(_ERR)


def _say(text: str, code: int) -> int:
    """Print to standard error; `code`."""
    with _heard():
        print(text, file=sys.stderr, flush=True)
    return code


def _written(code: int, out: _Raw) -> int:
    """`code` when all that was printed is written; otherwise what that ends with."""
    with contextlib.suppress(OSError):
        sys.stdout.flush()
    if out.error is None:
        return code
    _let_go(_OUT)
    if isinstance(out.error, BrokenPipeError):
        return CLOSED_PIPE
    return _say(f"samebits: standard output cannot be written ({out.error.strerror})", REFUSED)


def _let_go(number: int) -> None:
    """Let what is left in a stream's buffer go nowhere: Python would fail once more when it flushes at its end."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, number)
    os.close(nowhere)


# Signals.


def take_signals() -> None:
    """End on SIGINT and SIGTERM by an exception, so that files and processes are cleaned up on the way."""
    global _asked
    _asked = None
    for number in _ENDS:
        if signal.getsignal(number) is not signal.SIG_IGN:  # as `nohup` and shells set it
            signal.signal(number, _stop)
    signal.signal(signal.SIGALRM, _end)
    # Raised in a destructor or under C code, an exception ends there, in one of these.
    sys.excepthook, sys.unraisablehook = _uncaught, _unraisable


def _ignore_signals() -> None:
    """Let nothing come between the command, which is through, and its code: at its end Python drops handlers."""
    for number in (*_ENDS, signal.SIGALRM):
        signal.signal(number, signal.SIG_IGN)


def _stop(number: int, frame: FrameType | None) -> None:
    """The handler of both signals; asked again, it waits for nothing."""
    global _asked
    if _asked is not None:
        os._exit(128 + _asked)
    _asked = number
    _end(number, frame)


def _end(number: int, frame: FrameType | None) -> None:
    """Raise what ends the command, or have a timer call this again while a compiled module is being loaded.

    Such a module calls Python while it sets itself up, and some, as that of onnx, crash where an exception comes back.
    """
    outer = frame
    while outer is not None:
        if outer.f_code in _LOADING:
            signal.setitimer(signal.ITIMER_REAL, _LOOK_SECONDS)
            return
        outer = outer.f_back
    raise _Stopped


def _uncaught(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    _end_at_once(kind)
    sys.__excepthook__(kind, error, trace)


def _unraisable(found: sys.UnraisableHookArgs) -> None:
    _end_at_once(found.exc_type)
    sys.__unraisablehook__(found)


def _end_at_once(kind: type[BaseException]) -> None:
    """End the process if this is the exception of a signal that nobody will see."""
    if _asked is not None and issubclass(kind, _Stopped):
        os._exit(_stopped(_asked))


def _stopped(number: int) -> int:
    """Say which signal ended the command; its exit code."""
    return _say(f"samebits: {_ENDS[signal.Signals(number)]}", 128 + number)
