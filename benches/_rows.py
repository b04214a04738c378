"""The Isa rows that benches of anything but products compare."""

from samebits.codegen import isa
from samebits.codegen.isa import Isa


def compiled_rows() -> list[Isa]:
    """The rows that run here, of those with as many lanes the first: the others differ in products alone."""
    rows = [row for row in isa.ROWS if row.compiled and row.available]
    return list({row.lanes: row for row in reversed(rows)}.values())[::-1]
