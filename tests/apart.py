"""A file of tests run as a program, in a process of its own: nothing that ran before moves what it measures there."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys


def printed(file: str, *arguments: str) -> str:
    """What the file prints where it is run as a program. Whatever it says beside that fails the test that asks."""
    paths = [str(pathlib.Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    done = subprocess.run(
        [sys.executable, "-P", "-W", "error", file, *arguments],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout
