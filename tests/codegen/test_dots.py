"""Inner products of neighbours in a lane are what Python's integers and fractions say, on every row and width."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import aarch64
import numpy as np
import pytest
import rows
from vocabulary_run import execute, widths

from samebits.codegen.isa import Isa
from samebits.codegen.vocabulary import Builder, KernelSpec
from samebits.dtypes import float32, int32

Array = np.ndarray[Any, Any]
INTEGERS = {
    "dot2_int16": (np.int16, np.int16),
    "dot4_uint8_int8": (np.uint8, np.int8),
    "dot4_int8": (np.int8, np.int8),
}  # fmt: skip
WORDS = (*INTEGERS, "dot2_bfloat16")
COUNT = 64


def dots(b: Builder, description: tuple[str, int]) -> None:
    """acc = word(acc, x, y), of `width` lanes at a time."""
    word, width = description
    total = float32 if word == "dot2_bfloat16" else int32
    acc, x, y = b.pointer("acc", total), b.pointer("x", int32), b.pointer("y", int32)
    for _ in b.tasks():
        for i in b.loop(0, COUNT // width * width, width):
            b.store(acc, i, getattr(b, word)(b.load(acc, i, width), b.load(x, i, width), b.load(y, i, width)))


def operands(word: str) -> tuple[Array, Array, Array, Array]:
    """acc, x and y of lanes, and the word of them; extremes first."""
    rng = np.random.default_rng(0)
    if word == "dot2_bfloat16":
        x, y = (rng.standard_normal((2, COUNT, 2)) * np.exp2(rng.integers(-20, 20, (2, COUNT, 2)))).astype(np.float32)
        x, y = ((v.view(np.uint32) & 0xFFFF0000).view(np.float32) for v in (x, y))
        acc = (rng.standard_normal(COUNT) * np.exp2(rng.integers(-20, 20, COUNT))).astype(np.float32)
        # The high half is the first of its pair; each fma is rounded once.
        due = np.array([fma(a[0], b[0], fma(a[1], b[1], c)) for a, b, c in zip(x, y, acc, strict=True)], np.float32)
        words = ((v.view(np.uint32) >> 16).astype(np.uint16).view(np.uint32)[:, 0].view(np.int32) for v in (x, y))
        return acc, *(w.copy() for w in words), due
    kinds = INTEGERS[word]
    size = 4 // np.dtype(kinds[0]).itemsize
    x, y = (rng.integers(np.iinfo(t).min, np.iinfo(t).max + 1, (COUNT, size)).astype(t) for t in kinds)
    low, high = ([np.iinfo(t).min for t in kinds], [np.iinfo(t).max for t in kinds])
    for i, (a, b) in enumerate(((high, high), (low, low), ((high[0], 0), (0, low[1])))):
        x[i], y[i] = a[0], b[1]
    acc = rng.integers(-(2**31), 2**31, COUNT).astype(np.int32)
    lanes = zip(acc.tolist(), x.tolist(), y.tolist(), strict=True)
    whole = [c + sum(a * b for a, b in zip(p, q, strict=True)) for c, p, q in lanes]
    due = np.array([v % 2**32 for v in whole], np.uint32).view(np.int32)
    return acc, x.view(np.int32)[:, 0].copy(), y.view(np.int32)[:, 0].copy(), due


def fma(x: Any, y: Any, z: Any) -> np.float32:
    """x * y + z in fractions, rounded once: Python divides integers correctly, and 53 bits are kept odd before 24."""
    exact = Fraction(float(x)) * Fraction(float(y)) + Fraction(float(z))
    if exact == 0:
        return np.float32(0)
    exponent = exact.numerator.bit_length() - exact.denominator.bit_length()
    ulp = Fraction(2) ** (exponent - 23)
    if abs(exact) < Fraction(2) ** exponent:
        ulp /= 2
    return np.float32(float(round(exact / ulp) * ulp))


def check(word: str, got: Array, due: Array, width: int) -> None:
    whole = COUNT // width * width
    wrong = np.flatnonzero(got[:whole].view(np.uint32) != due[:whole].view(np.uint32))
    assert not len(wrong), (word, width, wrong)


@pytest.mark.parametrize("word", WORDS)
@pytest.mark.parametrize("isa", [rows.ALL_ROWS[0], *rows.PRODUCT_ROWS], ids=lambda row: row.name)
def test_dots_mean_what_python_says(isa: Isa, word: str) -> None:
    for width in {1, 3, isa.lanes, 2 * isa.lanes} & set(widths(isa)) | {isa.lanes}:
        acc, x, y, due = operands(word)
        execute(KernelSpec(dots, (word, width), ("acc", "x", "y"), isa), [acc, x, y])
        check(word, acc, due, width)


@pytest.mark.parametrize("word", WORDS)
@pytest.mark.parametrize("isa", rows.AARCH64_PRODUCT_ROWS, ids=lambda row: row.name)
def test_dots_mean_the_same_on_aarch64(isa: Isa, word: str) -> None:
    acc, x, y, due = operands(word)
    aarch64.run_kernel(KernelSpec(dots, (word, isa.lanes), ("acc", "x", "y"), isa), [acc, x, y], 0, 1)
    check(word, acc, due, isa.lanes)
