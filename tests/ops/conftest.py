"""Fixtures of this folder."""

from typing import Any

import pytest
import remembering

from samebits import hot
from samebits.kernels import gemm
from samebits.native import calls
from samebits.ops import memo


@pytest.fixture(params=["python", "emitted"])
def way(request: Any, monkeypatch: pytest.MonkeyPatch) -> str:
    """Who does the remembered calls: each test is run both ways, from an empty memo."""
    known = calls.known(gemm.PackedMatrix, gemm.Spec)
    assert known is not None
    monkeypatch.setattr(memo, "known", known if request.param == "emitted" else None)
    monkeypatch.setattr(hot, "_offers", [])
    remembering.forget()
    return str(request.param)
