"""The Isa rows that tests run: those of this machine, and a made-up one whose registers fit nothing."""

from samebits.codegen import isa
from samebits.codegen.isa import Isa, Target

# Three lanes and eight registers: a width, a tile or a tail that only works for powers of two fails on it.
FAKE3 = Isa(
    "fake3",
    lanes=3,
    registers=8,
    targets=(Target("x86_64", "x86-64", "+fma", ("fma",)), Target("aarch64", "generic", "+neon")),
)

COMPILED_ROWS: tuple[Isa, ...] = tuple(row for row in (*isa.ROWS, FAKE3) if row.compiled and row.available)
ALL_ROWS: tuple[Isa, ...] = (*(row for row in isa.ROWS if not row.compiled), *COMPILED_ROWS)
# Rows with an AArch64 target: what tests/aarch64.py can emulate.
AARCH64_ROWS: tuple[Isa, ...] = tuple(
    row for row in (*isa.ROWS, FAKE3) if any(target.arch == "aarch64" for target in row.targets)
)
