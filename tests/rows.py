"""The Isa rows that tests run: those of this machine, and made-up ones: of odd registers, and one that stands in."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from samebits.codegen import isa
from samebits.codegen.isa import Isa, Target
from samebits.dtypes import DType
from samebits.kernels.gemm import SB1, Spec, selection
from samebits.kernels.gemm.machine import DEFAULT


def row_named(name: str) -> Isa:
    """The row called `name`, for what is planned and compiled but not run: this machine may not have it."""
    return next(row for row in isa.ROWS if row.name == name)


def here(name: str) -> Any:
    """The row called `name` as a parameter of a test, which is skipped where this machine cannot run it."""
    row = row_named(name)
    return pytest.param(row, marks=pytest.mark.skipif(not row.available, reason="this machine cannot run it"))


# Three lanes and eight registers: a width, a tile or a tail that only works for powers of two fails on it.
FAKE3 = Isa(
    "fake3",
    lanes=3,
    registers=8,
    targets=(Target("x86_64", "x86-64", "+fma", ("fma",)), Target("aarch64", "generic", "+neon")),
)
# The row avx_vnni with AVX-512's form of the same instruction on 256 bits: its kernel text runs where that row cannot.
AVX_VNNI = row_named("avx_vnni")
_NEEDS = (*(name for name in AVX_VNNI.targets[0].needs if name != "avxvnni"), "avx512vl", "avx512vnni")
_EVEX = Target("x86_64", "x86-64-v3", "+avx512vl,+avx512vnni,+prefer-256-bit", _NEEDS)
EVEX_VNNI = replace(AVX_VNNI, name="evex_vnni", targets=(_EVEX,))

for _row in (FAKE3, EVEX_VNNI):
    isa.admit(_row)


def without_dots(found: Iterable[Isa]) -> tuple[Isa, ...]:
    """One of rows that differ only in instructions for inner products, which products and few sums use.

    It is the row that calls take which name none, so that both share compiled objects; else the first.
    """
    one: dict[object, Isa] = {}
    for row in found:
        plain = frozenset(word for word in row.instructions if not word.startswith("dot"))
        of_its_kind = (row.lanes, row.registers, plain)
        if of_its_kind not in one or row is isa.best():
            one[of_its_kind] = row
    return tuple(one.values())


# Rows of this machine for products; rows with registers and instructions of their own for everything else.
_AT = isa.ROWS.index(AVX_VNNI) + 1
PRODUCT_ROWS: tuple[Isa, ...] = tuple(
    row for row in (*isa.ROWS[:_AT], EVEX_VNNI, *isa.ROWS[_AT:], FAKE3) if row.compiled and row.available
)
COMPILED_ROWS: tuple[Isa, ...] = without_dots(PRODUCT_ROWS)
ALL_ROWS: tuple[Isa, ...] = (*(row for row in isa.ROWS if not row.compiled), *COMPILED_ROWS)
# Rows that public calls may name, which are this machine's alone.
AVAILABLE: tuple[Isa, ...] = tuple(row for row in isa.ROWS if row.available)
# What plans are made for where nothing is run.
PLANNED: Isa = row_named("avx2")
# Rows with an AArch64 target: what tests/aarch64.py can emulate.
AARCH64_PRODUCT_ROWS: tuple[Isa, ...] = tuple(
    row for row in (*isa.ROWS, FAKE3) if any(target.arch == "aarch64" for target in row.targets)
)
AARCH64_ROWS: tuple[Isa, ...] = without_dots(AARCH64_PRODUCT_ROWS)


def rows_of_engines(a: DType, b: DType, spec: Spec = SB1) -> tuple[Isa, ...]:
    """PRODUCT_ROWS without those where another's engine multiplies such elements in registers of the same kind."""
    first: dict[object, Isa] = {}
    for row in PRODUCT_ROWS:
        engine = selection.engine_for(a, b, row, DEFAULT, spec).name
        first.setdefault((row.lanes, row.registers, row.has_tiles, engine), row)
    return tuple(first.values())


def in_turn(
    names: str, cases: Sequence[Any], turn: int, always: Sequence[Isa] = (), among: Sequence[Isa] = ALL_ROWS
) -> pytest.MarkDecorator:
    """Pairs of a row and a case, of which the default run takes few and `make exhaustive` the others.

    A case is interpreted, runs on what is `always` run, and on one other compiled row, the next case on the next one:
    compiling each case for each row is what takes long. Tests that begin at another `turn` give a case other rows.
    """
    others = [row for row in among if row.compiled and row not in always]
    pairs = []
    for number, case in enumerate(cases):
        for row in among:
            late = row in others and row != others[(turn + number) % len(others)]
            name = f"{row.name}-{getattr(case, 'name', case)}"
            pairs.append(pytest.param(row, case, id=name, marks=pytest.mark.exhaustive if late else ()))
    return pytest.mark.parametrize(names, pairs)
