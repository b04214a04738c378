"""Command lines as a user starts them, many of one process: what a start imports is imported once."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

# Each line has a fork of its own, which has the command's own streams, signals and ending.
_EACH = """
import json, os, sys
import samebits.cli.command
from samebits.cli import main
lines, folder = json.load(sys.stdin), sys.argv[1]
codes = []
for number, words in enumerate(lines):
    child = os.fork()
    if child == 0:
        for descriptor in (1, 2):
            name = f"{folder}/{number}.{descriptor}"
            os.dup2(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), descriptor)
        sys.argv = ["samebits", *words]
        main()
    codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
json.dump(codes, sys.stdout)
"""


@dataclass(frozen=True)
class Ended:
    """How a command ended, and what it printed."""

    returncode: int
    stdout: str
    stderr: str


def each(lines: Iterable[Sequence[object]], folder: pathlib.Path) -> list[Ended]:
    """`samebits` with each list of words; what they print goes through files in `folder`."""
    given = json.dumps([[str(word) for word in words] for words in lines])
    done = subprocess.run(
        [sys.executable, "-c", _EACH, str(folder)], input=given, capture_output=True, text=True, check=True
    )
    return [
        Ended(code, *((folder / f"{number}.{descriptor}").read_text() for descriptor in (1, 2)))
        for number, code in enumerate(json.loads(done.stdout))
    ]
