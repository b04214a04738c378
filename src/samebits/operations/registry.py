"""Every operation, by name."""

from __future__ import annotations

from samebits.operations import conversion, elementwise, matmul, moves, quantization, rows, scans, views
from samebits.operations.operation import Operation

__all__ = ["ROWS"]

ROWS: dict[str, Operation] = {
    row.name: row
    for row in (
        *elementwise.ROWS,
        *conversion.ROWS,
        *quantization.ROWS,
        *rows.ROWS,
        *matmul.ROWS,
        *views.ROWS,
        *moves.ROWS,
        *scans.ROWS,
    )
}
