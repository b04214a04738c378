"""Products of tiles are what Python's integers say, on every row; their instructions stand between what they need."""

from __future__ import annotations

import itertools
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import rows
from vocabulary_run import execute

from samebits.codegen import isa as isas
from samebits.codegen import permission
from samebits.codegen.isa import Isa
from samebits.codegen.vocabulary import Builder, KernelSpec, Pointer
from samebits.dtypes import int32
from samebits.native import compile

Array = np.ndarray[Any, Any]
INTEGERS = {
    "tile_dot4_int8": (np.int8, np.int8, "tdpbssd"),
    "tile_dot4_int8_uint8": (np.int8, np.uint8, "tdpbsud"),
    "tile_dot4_uint8_int8": (np.uint8, np.int8, "tdpbusd"),
    "tile_dot4_uint8": (np.uint8, np.uint8, "tdpbuud"),
}
INSTRUCTIONS = {word: name for word, (_, _, name) in INTEGERS.items()} | {"tile_dot2_bfloat16": "tdpbf16ps"}
AMX = next(row for row in isas.ROWS if row.name == "avx512_amx")
# Where the system refuses tiles, their instructions end the process.
RUNNING = [row for row in rows.PRODUCT_ROWS if not row.has_tiles or permission.refusal() is None]
# Rows of the second operand are farther apart than they are long.
STEP = 20


def dots(b: Builder, word: str) -> None:
    """acc = word(acc, x, y); then twice as much in another function, and zeros behind."""

    def again(acc: Pointer, x: Pointer, y: Pointer) -> None:
        multiply(b, word, acc, x, y)

    twice = b.function("again", (int32, int32, int32), again)
    acc, x, y = b.pointer("acc", int32), b.pointer("x", int32), b.pointer("y", int32)
    for _ in b.tiles():
        for _ in b.tasks():
            multiply(b, word, acc, x, y)
            b.call(twice, acc, x, y)
            nothing = b.tile()
            b.tile_zero(nothing)
            b.tile_store(nothing, b.offset(acc, 256), 16)


def multiply(b: Builder, word: str, acc: Pointer, x: Pointer, y: Pointer) -> None:
    """acc = word(acc, x, y)."""
    sums, left, right = b.tile(), b.tile(), b.tile()
    b.tile_load(sums, acc, 16)
    b.tile_load(left, x, 16)
    b.tile_load(right, y, STEP)
    getattr(b, word)(sums, left, right)
    b.tile_store(sums, acc, 16)


def spec(word: str, isa: Isa) -> KernelSpec:
    """The kernel of a word."""
    return KernelSpec(dots, word, ("acc", "x", "y"), isa)


@pytest.mark.parametrize("word", INTEGERS)
@pytest.mark.parametrize("isa", [rows.ALL_ROWS[0], *RUNNING], ids=lambda row: row.name)
def test_tiles_mean_what_python_says(isa: Isa, word: str) -> None:
    left, right, _ = INTEGERS[word]
    rng = np.random.default_rng(0)
    x, y = rng.integers(0, 256, (16, 64)).astype(np.uint8), rng.integers(0, 256, (16, 4 * STEP)).astype(np.uint8)
    x[0], y[:, :4] = (255 if left is np.uint8 else 128), (255 if right is np.uint8 else 128)
    acc = np.full((32, 16), 7, np.int32)
    acc[:16] = rng.integers(-(2**31), 2**31, (16, 16))
    a, b = x.view(left).tolist(), y[:, :64].copy().view(right).tolist()
    due = [
        [
            (total + 2 * sum(a[i][k] * b[k // 4][4 * j + k % 4] for k in range(64)) + 2**31) % 2**32 - 2**31
            for j, total in enumerate(line)
        ]
        for i, line in enumerate(acc[:16].tolist())
    ]
    execute(spec(word, isa), [acc, x, y])
    assert acc[:16].tolist() == due
    assert not acc[16:].any()


@pytest.mark.skipif(isas.host_arch() != "x86_64", reason="reads x86-64 assembly")
@pytest.mark.parametrize(("word", "name"), INSTRUCTIONS.items())
def test_registers_are_configured_and_released_in_the_entry(word: str, name: str) -> None:
    lines = [line.split("#")[0].split() for line in compile.assembly(spec(word, AMX)).splitlines()]
    names = [line[0] for line in lines if line and line[0].startswith(("ldtilecfg", "tile", "tdp"))]
    assert names.count("ldtilecfg") == names.count("tilerelease") == 1
    entry = names[names.index("ldtilecfg") : names.index("tilerelease")]
    assert entry.count(name) >= 1
    assert {x for x in names if x.startswith("tdp")} == {name}


@pytest.mark.skipif(isas.host_arch() != "x86_64", reason="reads x86-64 assembly")
def test_other_rows_touch_no_register_of_tiles() -> None:
    text = compile.assembly(spec("tile_dot4_int8", next(row for row in isas.ROWS if row.name == "avx512_bf16")))
    assert "tmm" not in text
    assert "ldtilecfg" not in text


def rounded(x: Fraction) -> Fraction:
    """x rounded once to float32, of normal numbers."""
    if not x:
        return x
    exponent = abs(x.numerator).bit_length() - x.denominator.bit_length()
    exponent -= abs(x) < Fraction(2) ** exponent
    ulp = Fraction(2) ** (exponent - 23)
    return round(x / ulp) * ulp


@pytest.mark.parametrize("isa", [rows.ALL_ROWS[0], *RUNNING], ids=lambda row: row.name)
def test_tiles_of_bfloat16_add_two_chains(isa: Isa) -> None:
    rng = np.random.default_rng(0)
    x, y = ((rng.standard_normal((16, 4 * STEP)) * np.exp2(rng.integers(-9, 9, (16, 4 * STEP)))) for _ in range(2))
    left, right = (v.astype(ml_dtypes.bfloat16) for v in (x[:, :32], y[:, : 2 * STEP]))
    before = rng.standard_normal((16, 16)).astype(np.float32)
    a, b = ([[Fraction(float(e)) for e in line] for line in v] for v in (left, right))
    due = []
    for i, j in itertools.product(range(16), repeat=2):
        chains = [Fraction(0), Fraction(0)]
        for k, half in itertools.product(range(16), range(2)):
            chains[half] = rounded(a[i][2 * k + half] * b[k][2 * j + half] + chains[half])
        due.append(rounded(Fraction(float(before[i, j])) + rounded(chains[0] + chains[1])))
    acc = np.concatenate([before.view(np.int32), np.full((16, 16), 7, np.int32)])
    operands = [acc, *(v.view(np.int32).copy() for v in (left, right))]
    execute(KernelSpec(once, "tile_dot2_bfloat16", ("acc", "x", "y"), isa), operands)
    assert acc[:16].view(np.float32).ravel().tolist() == [float(v) for v in due]


@pytest.mark.parametrize("isa", [rows.ALL_ROWS[0], *RUNNING], ids=lambda row: row.name)
def test_a_nan_stays_in_its_row_and_column(isa: Isa) -> None:
    left, right = np.ones((16, 32), ml_dtypes.bfloat16), np.ones((16, 2 * STEP), ml_dtypes.bfloat16)
    left[3, 5], right[7, 18], left[4, 6] = np.nan, np.nan, np.inf
    acc = np.zeros((32, 16), np.int32)
    operands = [acc, *(v.view(np.int32).copy() for v in (left, right))]
    execute(KernelSpec(once, "tile_dot2_bfloat16", ("acc", "x", "y"), isa), operands)
    found = acc[:16].view(np.float32)
    due = np.full((16, 16), 32, np.float32)
    due[4], due[3], due[:, 9] = np.inf, np.nan, np.nan
    assert np.array_equal(found, due, equal_nan=True)


def once(b: Builder, word: str) -> None:
    """acc = word(acc, x, y)."""
    acc, x, y = b.pointer("acc", int32), b.pointer("x", int32), b.pointer("y", int32)
    for _ in b.tiles():
        for _ in b.tasks():
            multiply(b, word, acc, x, y)


def nine(b: Builder, description: None) -> None:
    """More tiles than there are."""
    for _ in b.tiles():
        for _ in range(9):
            b.tile()


def inside(b: Builder, description: None) -> None:
    """Tiles are enabled in a function."""

    def body(x: Pointer) -> None:
        for _ in b.tiles():
            pass

    b.function("body", (int32,), body)


def test_a_text_has_eight_tiles_and_enables_them_in_the_kernel() -> None:
    for row in (rows.ALL_ROWS[0], AMX):
        run = compile.assembly if row.compiled else (lambda x: execute(x, []))
        with pytest.raises(TypeError, match="tile number 9: a text has at most 8"):
            run(KernelSpec(nine, None, (), row))
    with pytest.raises(TypeError, match="tiles inside a function: must be passed to it as a parameter"):
        compile.assembly(KernelSpec(inside, None, (), AMX))
