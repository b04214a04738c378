"""The command `samebits`: run, dump, isas, verify. One module a subcommand; `screen` prints for all of them.

Exit codes: 0 done, 1 a verification failed, 2 a verification was incomplete or the command line is wrong, 3 the
model or its input was refused. Needs the extra `cli` (click, rich).
"""

from __future__ import annotations

import sys

__all__ = ["main"]

REFUSED = 3


def main() -> None:
    """Run the command line; errors that are the caller's to mend print as one sentence."""
    try:
        import click  # noqa: F401  # both halves of the extra
        import rich  # noqa: F401
    except ImportError:
        print("samebits: the command needs click and rich; pip install 'samebits[cli]'", file=sys.stderr)
        raise SystemExit(REFUSED) from None
    from samebits.cli.command import command
    from samebits.errors import SamebitsError

    try:
        command()
    except SamebitsError as error:
        print(f"samebits: {error}", file=sys.stderr)
        raise SystemExit(REFUSED) from None
