"""A directory that does not change, also for an administrator, whom a mode alone refuses nothing."""

import os

import pytest

from samebits import cache


def refuse_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cache may make no file in its directory, and take none away."""
    opened = os.open

    def refuse(path: str, flags: int = os.O_CREAT, *rest: int, **place: int) -> int:
        if flags & os.O_CREAT:
            raise PermissionError(13, "Permission denied")
        return opened(path, flags, *rest, **place)

    monkeypatch.setattr(cache.os, "open", refuse)
    monkeypatch.setattr(cache.os, "unlink", refuse)
