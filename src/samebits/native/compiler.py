"""What a compiler process does: `python -m samebits.native.compiler FILE ASKED ANSWERED NICENESS`.

It turns texts on a board into objects until nothing was asked for a while, or until the process that asks is gone. It
imports llvmlite and nothing else of weight, writes nothing but the board, and knows no cache: who asked looks after
that. `native.compilers` starts it.
"""

from __future__ import annotations

import os
import sys

from samebits.native import assembler
from samebits.native.board import Board

# It takes a tenth of a second to start one, and one that waits holds 60 MB.
IDLE_SECONDS = 3.0


def serve(board: Board) -> None:
    """Work until there is nothing to do.

    Raises:  EOFError, or an OSError, once nobody is there who asks.
    """
    while board.wait_for_work(IDLE_SECONDS):
        slot = board.take()
        if slot is None:  # another was quicker
            continue
        *processor, passes, text = board.work(slot)
        try:
            code = assembler.object_code(text, assembler.Processor(*processor), passes)
        except RuntimeError:  # who asked compiles it again, and is told why not
            code = b""
        board.answer(slot, code)


def main() -> None:
    """Serve the board whose descriptors the command line names."""
    file, asked, answered, niceness = map(int, sys.argv[1:])
    os.chdir("/")  # the directory that it was started in may be removed, or unmounted
    if niceness:
        os.nice(niceness)
    try:
        serve(Board(file, asked, answered))
    finally:
        os._exit(0)  # there is nothing to tidy up, and nobody to tell


if __name__ == "__main__":
    main()
