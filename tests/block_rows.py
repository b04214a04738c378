"""Block formats that tests of calls try: one of each kind in every run, all in `make exhaustive`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pytest

from samebits.kernels.quantize import formats

# Of each kind of block, of element, of scale, of zero point, and a code book.
SOME = (
    "nvfp4", "nvfp4-16x16", "mxfp6-e3m2", "mxfp8-e4m3", "fp8-tensor", "fp8-row", "fp8-column", "fp8-128x128",
    "int8-group32", "int4-row", "uint8-row-zero", "uint4-group64-float-zero", "uint4-column-zero", "int8-tensor", "nf4",
)  # fmt: skip


def tried(cases: Iterable[Sequence[Any]]) -> list[Any]:
    """Cases that begin with a format: those of `SOME`, of each the first; the others marked `exhaustive`."""
    found, met = [], set()
    for case in cases:
        name = formats.of(case[0]).name
        every = name not in SOME or name in met
        met.add(name)
        found.append(pytest.param(*case, marks=pytest.mark.exhaustive if every else ()))
    return found


ROWS = tried((row,) for row in formats.ROWS)
