"""The command `samebits`: run, dump, isas, verify, doctor, tune, bench. Start at `command`; `screen` prints for all.

Exit codes: 0 done, 1 a verification failed, doctor found samebits broken or `bench gemm --assert` a lag (and nothing
else), 2 a verification was incomplete, a library asked for is not installed or the command line is wrong, 3 the model
or its input was refused, 70 an error of samebits itself, 130 interrupted. Needs the extra `cli` (click, rich).
"""

from __future__ import annotations

import os
import sys
import traceback

__all__ = ["main"]

REFUSED, INTERNAL, INTERRUPTED = 3, 70, 130


def main() -> None:
    """Run the command line; errors that are the caller's to mend print as one sentence."""
    try:
        import click
        import rich  # noqa: F401  # the other half of the extra
    except ImportError:
        print("samebits: the command needs click and rich; pip install 'samebits[cli]'", file=sys.stderr)
        raise SystemExit(REFUSED) from None
    from samebits.cli.command import command
    from samebits.errors import SamebitsError

    try:
        # Not click's own ending: it gives 1, which says here that bits differ, to an interrupt and a closed pipe.
        code = command(prog_name="samebits", standalone_mode=False)
        sys.stdout.flush()
    except SamebitsError as error:
        print(f"samebits: {error}", file=sys.stderr)
        code = REFUSED
    except MemoryError as error:
        print(f"samebits: out of memory: {error}", file=sys.stderr)
        code = REFUSED
    except click.ClickException as error:
        error.show()
        code = error.exit_code
    except (click.Abort, KeyboardInterrupt):
        print("samebits: interrupted", file=sys.stderr)
        code = INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or Python fails again when it flushes
        code = INTERNAL
    except Exception:
        traceback.print_exc()
        code = INTERNAL
    raise SystemExit(code)
