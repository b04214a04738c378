"""A pytest plugin, `-p guarded`: tests take host memory from a GuardResource, and all that comes back is looked at.

`PYTHONPATH=tests pytest -p guarded tests/dlpack` runs a folder under it.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from typing import Any

import guard
import pytest

from samebits.memory import use_resource


@pytest.fixture(scope="session")
def _guard_resource() -> Iterator[guard.GuardResource]:
    """What a finaliser finds is raised in it, so the hook for those is where it is seen."""
    resource, found = guard.GuardResource(), list[str]()
    before = sys.unraisablehook

    def hook(raised: Any) -> None:
        if raised.exc_type is AssertionError:
            found.append(str(raised.exc_value))
        else:
            before(raised)

    sys.unraisablehook = hook
    yield resource
    gc.collect()
    sys.unraisablehook = before
    assert found == []
    assert resource.count > 0, "no test took memory"


@pytest.fixture(autouse=True)
def _guarded(_guard_resource: guard.GuardResource) -> Iterator[None]:
    with use_resource(_guard_resource):
        yield
