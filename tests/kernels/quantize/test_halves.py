"""Codes of float4_e2m1fn by halves of lanes against the nearest codes of exact quotients, on every row."""

from __future__ import annotations

from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
import rows
from quantize_run import KINDS
from vocabulary_run import execute

from samebits import dtypes
from samebits.codegen.isa import Isa
from samebits.codegen.vocabulary import Builder, KernelSpec
from samebits.dtypes import DType, float32, uint32
from samebits.kernels.quantize import halves
from samebits.kernels.quantize.codes import load_pairs, magnitude

# Factors as scales of float8_e4m3fn and powers of two make them: every significand of four bits.
SCALES = [m / 8 * 2.0**k for m in range(8, 16) for k in (-100, -3, 0, 5)]


def text(b: Builder, x: DType) -> None:
    """Element k of `out` becomes the codes of pair k of x, times the only factor."""
    width = b.isa.lanes
    for _ in b.tasks():
        factor = b.splat(b.load(b.pointer("factor", float32), 0, 1), width)
        for i in b.loop(0, b.index("pairs"), width):
            pairs = load_pairs(b, b.pointer("x", x), 2 * i, width)
            assert pairs.both is not None
            even, odd = (magnitude(b, v) for v in (pairs.even, pairs.odd))
            found = halves.codes(b, even, odd, pairs.both, (factor, factor))
            b.store(b.pointer("out", uint32), i, found)


def nearest(x: Fraction) -> int:
    """The code of a magnitude: ties to even, at most the largest."""
    values = [Fraction(dtypes.float4_e2m1fn.decode(k)) for k in range(8)]
    return min(range(8), key=lambda k: (abs(values[k] - x), k % 2))


@rows.in_turn("isa, kind", ("bfloat16", "float16"), 0)
def test_halves_have_the_nearest_codes_of_all_quotients_below_the_limit(isa: Isa, kind: str) -> None:
    every = np.arange(1 << 15, dtype=np.uint16).view(KINDS[kind]).astype(np.float32)
    for scale in SCALES if isa.compiled else SCALES[::11]:
        with np.errstate(all="ignore"):
            magnitudes = every[np.isfinite(every) & (every / np.float32(scale) < halves.LIMIT)]
        # Of the many that are nearer to 0 than to any other code a few.
        near = magnitudes[magnitudes > scale / 8]
        x = np.concatenate([magnitudes[:: len(magnitudes) // 40 + 1], near])
        if not len(near):
            continue
        x = np.concatenate([x, -x])
        x = np.concatenate([x, np.zeros(-len(x) % (2 * isa.lanes), np.float32)])
        given, factor = x.astype(KINDS[kind]), np.array([1 / scale], np.float32)
        out = np.zeros(len(x) // 2, np.uint32)
        spec = KernelSpec(text, dtypes.of(given.dtype), ("x", "factor", "pairs", "out"), isa)
        execute(spec, [given, factor, len(out), out])
        due = [nearest(Fraction(float(abs(v))) / Fraction(scale)) + 8 * int(np.signbit(v)) for v in given.astype(float)]
        assert np.array_equal(out & 255, np.array(due[::2]) | np.array(due[1::2]) << 4), scale


def test_no_number_of_16_bits_is_between_the_limit_and_8() -> None:
    for kind in (ml_dtypes.bfloat16, np.float16):
        below = np.nextafter(np.array(8, kind), np.array(0, kind))
        assert float(below) < halves.LIMIT < 8


@pytest.mark.parametrize("k", range(32))
def test_a_stretch_stays_within_its_half(k: int) -> None:
    first, last = k << 11, (k + 1 << 11) - 1
    assert 0 <= halves._table()[k] < 1 << 16
    assert first + halves._table()[k] >= 1 << 15
    assert last + halves._table()[k] < 1 << 16
