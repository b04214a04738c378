"""Every operation, by name."""

from __future__ import annotations

from samebits.operations import conversion, elementwise, matmul, moves, picks, quantization, random, rows, scans, views
from samebits.operations.operation import Operation

__all__ = ["ROWS"]

_MODULES = (elementwise, conversion, quantization, rows, matmul, views, moves, scans, picks, random)
ROWS: dict[str, Operation] = {row.name: row for module in _MODULES for row in module.ROWS}
"""Every operation, by name."""
