"""What eager functions remember of calls, for tests that begin with nothing."""

from samebits.native import calls
from samebits.ops import memo


def forget() -> None:
    """Every call is the first again."""
    memo._memos.clear()
    calls._records.clear()
