"""Every float32 by every conversion, on every row: all 2^32 in `make exhaustive`, every 509th in each run.

A conversion is constant between the numbers at which the value nearest to it changes: the values of its format, the
midpoints between them, and the fractions of a NaN that are kept. So what is due is found for the first number of each
such run, among a format's values (`formats.by`) and by the NumPy reference, and a kernel has to give it along the whole
run. That is compared by `memcmp`, or by NumPy where several runs meet. Integers of 32 bits and more have nearly as many
runs as there are numbers: there each number is rounded in float64.
"""

from __future__ import annotations

import ctypes
import functools
from bisect import bisect
from typing import Any

import launch
import numpy as np
import pytest
import rows
from formats import CERTAIN, FORMATS, by, every_conversion, magnitudes, midpoints

from samebits import dtypes
from samebits.codegen.isa import Isa
from samebits.conversions import PRESETS, SB1, Conversion
from samebits.dtypes import DType, float32
from samebits.kernels import elementwise
from samebits.kernels.expression import Chain
from samebits.kernels.functions import exact
from samebits.native.table import Table

Array = np.ndarray[Any, Any]
FASTEST = max(rows.COMPILED_ROWS, key=lambda row: row.lanes)
# Numbers of a block, all outputs of which lie in the second cache together.
BLOCK = 1 << 14
# Bytes between outputs, so that those of a number do not all fall into one set of the first cache.
APART = 5 * 64
INTEGERS = tuple(dtype for dtype in dtypes.ROWS if dtype.is_integer)
NARROW = (*FORMATS, *(dtype for dtype in INTEGERS if dtype.width_bits <= 16), dtypes.bool_)
WIDE = tuple(dtype for dtype in INTEGERS if dtype.width_bits > 16)
# More runs than this within a block are compared together.
MANY = 12
INFINITE, NEGATIVE = 0x7F800000, 0x80000000
WHOLE = {"nearest_even": np.rint, "toward_zero": np.trunc, "up": np.ceil, "down": np.floor,
         "nearest_away": lambda x: np.copysign(np.floor(np.abs(x) + 0.5), x)}  # fmt: skip

_memcmp = ctypes.CDLL(None).memcmp
_memcmp.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]


def every_how(target: DType) -> list[Conversion]:
    """All conversions of float32 to a format, those of presets too, but for random ones and refusals."""
    if target.kind == "bool":
        return [SB1]
    found = every_conversion(target) if target.is_float else [Conversion(r, "saturate") for r in CERTAIN]
    if target.is_integer:
        found += [SB1, Conversion("up", nan=1, inf="nan"), Conversion("nearest_even", nan=1)]
    presets = (preset.conversion(float32, target) for preset in PRESETS)
    return list(dict.fromkeys([*found, *(how for how in presets if how is not None)]))


@functools.cache
def starts(target: DType) -> Array:
    """The codes of float32, ascending, from which on what is due is the same until the next of them."""
    if target.is_float:
        at = np.concatenate([[0, 2 * magnitudes(target)[-1]], magnitudes(target), midpoints(target)])
    else:
        low, high = (0, 1) if target.kind == "bool" else (int(target.min), int(target.max))
        at = np.arange(2 * max(-low, high) + 4) / 2
    with np.errstate(all="ignore"):
        assert (at.astype(np.float32)[at < 2.0**128] == at[at < 2.0**128]).all()
        edges = at.astype(np.float32).view(np.uint32).astype(np.int64)
    kept = 1 << 23 - min(target.mantissa_bits if target.is_float else 0, 23)
    nan = np.arange(INFINITE, NEGATIVE, kept)
    edges = np.concatenate([edges, edges + 1, nan, [INFINITE, INFINITE + 1]])
    edges = np.unique(edges[edges < NEGATIVE])
    return np.concatenate([edges, edges + NEGATIVE])


@functools.cache
def runs(target: DType, how: Conversion) -> tuple[list[int], list[int]]:
    """Where what is due changes, and what it is from there on."""
    due = due_at(starts(target), target, how)
    changes = np.flatnonzero(np.append(True, due[1:] != due[:-1]))
    return starts(target)[changes].tolist(), due[changes].tolist()


def due_at(codes: Array, target: DType, how: Conversion) -> Array:
    """What numbers become, as bits: the reference's, which are those that are found where a list of values says all."""
    x = codes.astype(np.uint32).view(np.float32)
    with np.errstate(all="ignore"):
        meant = launch.bits(exact.cast(target, x, how))
        if target.is_float and not (how.absolute or how.subnormal_up or how.nan_payload):
            assert np.array_equal(meant, by(x.astype(np.float64), target, how)), (target, how)
    return meant


class Kernel:
    """All conversions of a block of numbers, an output each."""

    def __init__(self, target: DType, hows: list[Conversion], row: Isa) -> None:
        chain = Chain()
        x = chain.input(float32)
        expression = chain.finish(*(chain.apply("cast", x, dtype=target, conversion=how) for how in hows))
        self.codes = np.empty(BLOCK, np.uint32)
        size = BLOCK * target.numpy.itemsize
        memory = np.empty(len(hows) * (size + APART), np.uint8)
        self.outs = [memory[at:][:size].view(target.numpy) for at in range(0, memory.size, size + APART)]
        given = self.codes.view(np.float32)
        plan = elementwise.plan(expression, launch.layouts(given), launch.layouts(*self.outs), row, 1)
        operands = [given, *self.outs]
        self.addresses = [a.ctypes.data for a in operands]
        self.table = Table([(plan, tuple(range(len(operands))))], len(operands), 1)
        self.bits = [launch.bits(out) for out in self.outs]

    def run(self, first: int, stride: int) -> None:
        """Convert the numbers whose codes begin at one and lie a stride apart."""
        np.add(np.arange(0, BLOCK * stride, stride, dtype=np.uint32), np.uint32(first), out=self.codes)
        self.table.run(self.addresses)


def compare(target: DType, hows: list[Conversion], row: Isa, stride: int) -> None:
    """A kernel's codes of every stride-th float32, with those that are due, run by run."""
    kernel, due_of = Kernel(target, hows, row), [runs(target, how) for how in hows]
    for first in range(0, 1 << 32, BLOCK * stride):
        first = min(first, (1 << 32) - BLOCK * stride)
        kernel.run(first, stride)
        for how, got, address, (begins, due) in zip(hows, kernel.bits, kernel.addresses[1:], due_of, strict=True):
            low, high = bisect(begins, first), bisect(begins, first + (BLOCK - 1) * stride)
            ends = [*(-((first - begin) // stride) for begin in begins[low:high]), BLOCK]
            if not are_runs(got, address, ends, due[low - 1 : high]):
                meant = np.repeat(due[low - 1 : high], np.diff(ends, prepend=0))
                at = int(np.flatnonzero(got != meant)[0])
                raise AssertionError(
                    f"{row.name}, {target.name}, {how}: {first + at * stride:08x} is {got[at]:x}, not {meant[at]:x}"
                )


def are_runs(got: Array, address: int, ends: list[int], due: list[int]) -> bool:
    """Whether codes are one along each run, and it is the one that is due."""
    if len(due) > MANY:
        return np.array_equal(got, np.repeat(np.array(due, got.dtype), np.diff(ends, prepend=0)))
    size, begin = got.itemsize, 0
    for end, code in zip(ends, due, strict=True):
        # Numbers are all one where they are themselves, moved by one.
        at = address + begin * size
        if begin < end and (got[begin] != code or _memcmp(at, at + size, (end - begin - 1) * size)):
            return False
        begin = end
    return True


def test_what_is_due_is_the_same_along_a_run() -> None:
    random = np.random.default_rng(8)
    for target in NARROW:
        some = random.integers(0, 1 << 32, 500)
        for how in every_how(target)[::3]:
            begins, due = runs(target, how)
            meant = [due[bisect(begins, code) - 1] for code in some.tolist()]
            assert due_at(some, target, how).tolist() == meant, (target, how)


@pytest.mark.parametrize("target", FORMATS, ids=lambda dtype: dtype.name)
def test_float32_becomes_what_is_due(target: DType) -> None:
    compare(target, every_how(target)[::5], FASTEST, 509)


@pytest.mark.exhaustive
@pytest.mark.parametrize("target", NARROW, ids=lambda dtype: dtype.name)
@pytest.mark.parametrize("row", rows.COMPILED_ROWS, ids=lambda row: row.name)
def test_every_float32_becomes_what_is_due(row: Isa, target: DType) -> None:
    compare(target, every_how(target), row, 1)


@pytest.mark.exhaustive
@pytest.mark.parametrize("target", WIDE, ids=lambda dtype: dtype.name)
@pytest.mark.parametrize("row", rows.COMPILED_ROWS, ids=lambda row: row.name)
def test_every_float32_becomes_a_wide_integer(row: Isa, target: DType) -> None:
    hows = every_how(target)
    kernel = Kernel(target, hows, row)
    low, high = int(target.min), int(target.max)
    for first in range(0, 1 << 32, BLOCK):
        kernel.run(first, 1)
        # All numbers of a block have one exponent. Where it says that they are one integer, its ends say which.
        exponent = first >> 23 & 0xFF
        is_one = 0 < exponent < 125 or 127 + 65 < exponent < 255
        kept = [0, -1] if is_one else slice(None)
        with np.errstate(all="ignore"):
            x = kernel.codes[kept].view(np.float32).astype(np.float64)
            codes = [WHOLE[rounding](x) for rounding in CERTAIN]
            inside = [np.where((y > low - 1) & (y < high + 1), y, 0).astype(target.numpy) for y in codes]
        for how, got, address in zip(hows, kernel.outs, kernel.addresses[1:], strict=True):
            assert not is_one or not _memcmp(address, address + got.itemsize, got.itemsize * (BLOCK - 1))
            at = CERTAIN.index(how.rounding_to(target))
            due = np.where(codes[at] >= high + 1, target.numpy.type(high), inside[at])
            due = np.where(codes[at] <= low - 1, target.numpy.type(low), due)
            lost = np.isnan(x) | (np.isinf(x) & (how.inf == "nan"))
            due = np.where(lost, target.numpy.type(how.nan or 0), due)
            launch.assert_bits(got[kept], due, (row.name, target, how, hex(first)))
