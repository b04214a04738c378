"""The command `samebits` with its subcommands: start at `main`, then `command`.

`process` takes signals, streams and errors, and ends with an exit code of docs/command.md; `options` reads the command
line, `screen` prints for all. Needs the extra `cli` (click, rich).
"""

import os

__all__ = ["main"]


def main() -> None:
    """Run the command line and end the process with its exit code."""
    try:
        # Here, and nothing before: an interrupt while this is imported is answered like any later one.
        from samebits.cli import process

        process.take_signals()
    except KeyboardInterrupt:
        os.write(2, b"samebits: interrupted\n")
        os._exit(130)
    process.main()
