"""Every primitive, by name."""

from __future__ import annotations

from samebits.program import compute, moves, views
from samebits.program.primitive import Primitive

__all__ = ["ROWS"]

ROWS: dict[str, Primitive] = {row.name: row for row in (*compute.ROWS, *views.ROWS, *moves.ROWS)}
