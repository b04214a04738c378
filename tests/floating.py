"""The float environments that a host program may compute in."""

import contextlib
import platform
from collections.abc import Iterator

import launch

from samebits import driver

# FE_DOWNWARD, FE_UPWARD and FE_TOWARDZERO of <fenv.h>.
_DIRECTIONS = {
    "x86_64": {"down": 0x400, "up": 0x800, "to zero": 0xC00},
    "aarch64": {"down": 0x800000, "up": 0x400000, "to zero": 0xC00000},
}
MODES = ("down", "up", "to zero", "flush")


@contextlib.contextmanager
def environment(mode: str) -> Iterator[None]:
    """The calling thread rounds that way meanwhile; `flush` treats subnormals as zero."""
    if mode == "flush":
        with launch.flushing():
            yield
        return
    library = driver.libc()
    assert library.fesetround(_DIRECTIONS[platform.machine()][mode]) == 0
    try:
        yield
    finally:
        library.fesetround(0)
