"""What the command prints while it works."""

from __future__ import annotations

import io
import time

import pytest

from samebits.cli import screen


def test_progress_is_a_line_now_and_then_where_standard_error_is_no_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    with screen.progress() as progress:
        for second, name in ((0.5, "early"), (1.0, "first"), (2.5, "between"), (3.0, "second"), (9.0, "[third]")):
            now = 100.0 + second
            progress(name)
    found = capsys.readouterr()
    assert found.err == "samebits: first\nsamebits: second\nsamebits: [third]\n"
    assert found.out == ""


def test_progress_that_cannot_be_written_stops_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    class Full(io.StringIO):
        def write(self, text: str) -> int:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(screen.sys, "stderr", Full())
    monkeypatch.setattr(screen, "_SILENT_SECONDS", 0.0)
    with screen.progress() as progress:
        progress("told to nobody")
