"""A file of tests or a text run as a program, in a process of its own: nothing that ran before moves what it measures.

What the program tells of its memory: `resident` and `peak`.
"""

from __future__ import annotations

import ctypes
import gc
import os
import pathlib
import re
import subprocess
import sys

_PR_SET_THP_DISABLE = 41


def printed(file: str, *arguments: str) -> str:
    """What the file prints where it is run as a program. Whatever it says beside that fails the test that asks."""
    return _printed(file, *arguments)


def printed_by(text: str, *arguments: str) -> str:
    """What a program of this text prints, as `printed` does."""
    return _printed("-c", text, *arguments)


def _printed(*words: str) -> str:
    paths = [str(pathlib.Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    done = subprocess.run(
        [sys.executable, "-P", "-W", "error", *words],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout


def without_huge_pages() -> None:
    """From now on this process and those that it starts get none: the system gives them by what it has left."""
    change = getattr(ctypes.CDLL(None), "prctl", None)
    if change is not None:
        change(_PR_SET_THP_DISABLE, ctypes.c_ulong(1), ctypes.c_ulong(0), ctypes.c_ulong(0), ctypes.c_ulong(0))


def resident() -> int:
    """Bytes of this process that are in memory."""
    without_huge_pages()
    gc.collect()
    return int(pathlib.Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def peak() -> int:
    """Bytes that this program had in memory at most; what `getrusage` says counts those of who started it."""
    without_huge_pages()
    found = re.search(r"^VmHWM:\s*(\d+) kB$", pathlib.Path("/proc/self/status").read_text(), re.M)
    assert found is not None
    return int(found[1]) << 10
