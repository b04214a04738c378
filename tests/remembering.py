"""What eager functions remember of calls, for tests that begin with nothing."""

import pytest

from samebits import hot
from samebits.kernels import gemm
from samebits.native import calls
from samebits.ops import memo, rebound


def forget() -> None:
    """Every call is the first again."""
    memo._memos.clear()
    calls._records.clear()
    rebound.forget()


def in_emitted_code_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """From here on a call that emitted code does not do fails."""

    def fail(*_: object) -> None:
        raise AssertionError("this call is done in Python")

    monkeypatch.setattr(memo.Memo, "run", fail)
    monkeypatch.setattr(memo, "_record", fail)


def begin_emitted(monkeypatch: pytest.MonkeyPatch) -> None:
    """From here on emitted code knows calls, none of them so far, and nothing more is set up."""
    found = calls.known(gemm.PackedMatrix, gemm.Spec)
    assert found is not None
    monkeypatch.setattr(memo, "known", found)
    monkeypatch.setattr(hot, "_offers", [])
    forget()
