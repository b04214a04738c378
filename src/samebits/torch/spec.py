"""The order of sums that calls take where none is given: `use_spec`. Operators take a chunk, segments and a name."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

from samebits.kernels.gemm.contraction import SB1, Spec, check_spec

__all__ = ["DEFAULT", "Sums", "order", "use_spec"]

# The chunk, the segments and the name of the order of a spec.
Sums = tuple[int, int, str]
DEFAULT: Sums = (SB1.chunk, SB1.segments, SB1.order)


class _Order(threading.local):
    """What this thread's calls take."""

    def __init__(self) -> None:
        # An attribute of the instance, which the guards of compiled functions look at.
        self.sums = DEFAULT


current = _Order()


@contextlib.contextmanager
def use_spec(spec: Spec) -> Iterator[None]:
    """Calls of this thread that name no spec take this one; backward takes what its forward took, in any thread.

    Raises:  OptionError if it is no Spec.
    """
    check_spec("use_spec", spec)
    before, current.sums = current.sums, (spec.chunk, spec.segments, spec.order)
    try:
        yield
    finally:
        current.sums = before


def order(call: str, spec: Spec | None) -> Sums:
    """What a call's sums follow.

    Raises:  OptionError if it was given what is no Spec.
    """
    if spec is None:
        return current.sums
    check_spec(call, spec)
    return spec.chunk, spec.segments, spec.order
