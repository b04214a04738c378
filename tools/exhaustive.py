"""Run every float32 input of the correctly rounded functions on every compiled row of this machine, and count errors.

The oracle is not ours: glibc's float64 function rounded to float32, and MPFR (gmpy2) wherever glibc's result lies
within 8 ulp of float64 of a rounding boundary. It is computed once a function, and all rows are compared with it.

    python tools/exhaustive.py [--function exp] [--row avx2] [--stride 4096]
    python tools/exhaustive.py --powers 1000000000 [--row avx2]

`--stride N` takes one block of 2**16 inputs in N, for a quick look. `--powers N` raises N random numbers to random
powers that lead to no extreme, as nobody can run all pairs. Exits 1 if an input is wrong.
"""

from __future__ import annotations

import argparse
import ctypes
import functools
import os
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import gmpy2
import llvmlite.binding as llvm
import numpy as np
import numpy.typing as npt

from samebits import dtypes
from samebits.codegen import isa
from samebits.codegen.isa import Isa
from samebits.kernels import elementwise
from samebits.kernels.expression import Chain
from samebits.kernels.functions.texts import ROUNDED
from samebits.native.table import Table

FUNCTIONS = tuple(row.name for row, _ in ROUNDED)
_BLOCK = 1 << 16
_DOUBT_ULPS = 8

# What is made of functions of MPFR, in far more bits than the nearest to a tie needs to be told from it.
_COMPOSED: dict[str, Callable[[Any], Any]] = {"sigmoid": lambda x: 1 / (1 + gmpy2.exp(-x))}
_BITS = 300

Uints = npt.NDArray[np.uint32]


@dataclass(slots=True)
class Count:
    """What was found for one function."""

    inputs: int = 0
    decided: int = 0
    wrong: dict[str, int] = field(default_factory=dict)
    examples: list[str] = field(default_factory=list)

    def add(self, other: Count) -> None:
        """Take another block's counts too."""
        self.inputs += other.inputs
        self.decided += other.decided
        for name, wrong in other.wrong.items():
            self.wrong[name] = self.wrong.get(name, 0) + wrong
        self.examples = (self.examples + other.examples)[:20]


@functools.cache
def _loop() -> Callable[[int, int, int, int], None]:
    """void loop(function, source, target, n): a compiled loop, since 2**32 calls from Python would take an hour."""
    module = """
define void @loop(ptr %f, ptr %x, ptr %y, i64 %n) {
entry:
  br label %body
body:
  %i = phi i64 [ 0, %entry ], [ %next, %body ]
  %from = getelementptr float, ptr %x, i64 %i
  %narrow = load float, ptr %from
  %wide = fpext float %narrow to double
  %value = call double %f(double %wide)
  %to = getelementptr double, ptr %y, i64 %i
  store double %value, ptr %to
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %n
  br i1 %more, label %body, label %done
done:
  ret void
}
"""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_default_triple().create_target_machine(opt=2)
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(module), machine)
    engine.finalize_object()
    prototype = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)
    call = prototype(engine.get_function_address("loop"))
    call.engine = engine  # type: ignore[attr-defined]  # the code lives as long as its engine
    return call


@functools.cache
def _libm(name: str) -> int:
    """The address of the C library's float64 function."""
    found = getattr(ctypes.CDLL("libm.so.6"), name)
    return ctypes.cast(found, ctypes.c_void_p).value or 0


def oracle(name: str, x: npt.NDArray[np.float32]) -> tuple[Uints, int]:
    """The right float32 codes (NaN canonical), and how many of them MPFR decided."""
    wide = np.empty(len(x), np.float64)
    if name == "sigmoid":
        with np.errstate(all="ignore"):
            wide = 1 / (1 + np.exp(-x.astype(np.float64)))
    else:
        _loop()(_libm(name), x.ctypes.data, wide.ctypes.data, len(x))
    with np.errstate(all="ignore"):
        codes = wide.astype(np.float32).view(np.uint32)
        low = (wide.view(np.int64) - _DOUBT_ULPS).view(np.float64).astype(np.float32).view(np.uint32)
        high = (wide.view(np.int64) + _DOUBT_ULPS).view(np.float64).astype(np.float32).view(np.uint32)
    codes[np.isnan(wide)] = np.array(np.nan, np.float32).view(np.uint32)
    # Below a quarter of the smallest subnormal, and at infinity, there is no boundary nearby.
    doubtful = np.flatnonzero((low != high) & np.isfinite(wide) & (np.abs(wide) >= 2.0**-151))
    for i in doubtful:
        codes[i] = mpfr(name, x[i]).view(np.uint32)
    return codes, len(doubtful)


def mpfr(name: str, *x: float) -> np.float32:
    """The function of one float32 (`pow`: of two), rounded once to float32 with subnormals, by MPFR; NaN canonical."""
    narrow = gmpy2.context(precision=24, emin=-148, emax=128, subnormalize=True)
    values = [gmpy2.mpfr(float(v)) for v in x]
    if name in _COMPOSED:
        with gmpy2.context(precision=_BITS):
            wide = accurate(name, *values)
    with gmpy2.context(narrow):
        found = gmpy2.mpfr(wide) if name in _COMPOSED else accurate(name, *values)
    return np.float32(np.nan if gmpy2.is_nan(found) else float(found))


def accurate(name: str, *x: Any) -> Any:
    """The function by MPFR, in the precision that is set."""
    if name == "pow":
        return x[0] ** x[1]
    return _COMPOSED[name](*x) if name in _COMPOSED else getattr(gmpy2, name)(*x)


class Scan:
    """One function on some rows, in blocks, by one worker."""

    def __init__(self, name: str, rows: Sequence[Isa]) -> None:
        self.name = name
        chain = Chain()
        expression = chain.finish(chain.apply(name, chain.input(dtypes.float32)))
        layout = ((_BLOCK,), (1,))
        self.tables = {
            row.name: Table([(elementwise.plan(expression, (layout,), (layout,), row), (0, 1))], 2, 1) for row in rows
        }
        self.out = np.empty(_BLOCK, np.float32)

    def block(self, start: int) -> Count:
        """Compare every row with the oracle on the codes start .. start + 2**16 - 1."""
        codes = np.arange(start, start + _BLOCK, dtype=np.uint32)
        x = codes.view(np.float32)
        right, decided = oracle(self.name, x)
        count = Count(_BLOCK, decided)
        for row, table in self.tables.items():
            table.run([x.ctypes.data, self.out.ctypes.data])
            wrong = np.flatnonzero(self.out.view(np.uint32) != right)
            count.wrong[row] = len(wrong)
            for i in wrong[:3]:
                got, due = self.out.view(np.uint32)[i], right[i]
                count.examples.append(f"{row}: {self.name}({codes[i]:08x}) is {got:08x}, must be {due:08x}")
        return count


def scan(name: str, rows: Sequence[Isa], stride: int = 1) -> Count:
    """All blocks (one in `stride`), shared by as many workers as there are cores."""
    starts = range(0, 1 << 32, _BLOCK * stride)
    workers = os.cpu_count() or 1

    def work(worker: int) -> Count:
        mine, total = Scan(name, rows), Count()
        for start in starts[worker::workers]:
            total.add(mine.block(start))
        return total

    total = Count()
    with ThreadPoolExecutor(workers) as pool:
        for count in pool.map(work, range(workers)):
            total.add(count)
    return total


def _pairs(random: np.random.Generator, kind: int) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    """Numbers of any size, near 1 or between 1/16 and 16, and powers of which half lead near 1."""
    if kind == 0:
        x = random.integers(1, 0x7F800000, _BLOCK, dtype=np.uint32).view(np.float32)
    elif kind == 1:
        x = (1 + random.integers(-(1 << 16), 1 << 16, _BLOCK) * 2.0**-23).astype(np.float32)
    else:
        x = np.exp2(random.uniform(-4, 4, _BLOCK)).astype(np.float32)
    x[x == 1] = 3
    reached = random.uniform(-149, 128, _BLOCK) * np.exp2(
        -random.integers(0, 20, _BLOCK) * random.integers(0, 2, _BLOCK)
    )
    with np.errstate(over="ignore"):
        return x, (reached / np.log2(x.astype(np.float64))).astype(np.float32)


def scan_powers(rows: Sequence[Isa], pairs: int) -> Count:
    """Random pairs: NumPy's float64 power, and MPFR within 16 ulp of a boundary."""
    chain, total = Chain(), Count()
    expression = chain.finish(chain.apply("pow", chain.input(dtypes.float32), chain.input(dtypes.float32)))
    layout, out = ((_BLOCK,), (1,)), np.empty(_BLOCK, np.float32)
    tables = {
        row.name: Table([(elementwise.plan(expression, (layout, layout), (layout,), row), (0, 1, 2))], 3, 1)
        for row in rows
    }
    random = np.random.default_rng(pairs)
    while total.inputs < pairs:
        x, y = _pairs(random, total.inputs // _BLOCK % 3)
        with np.errstate(all="ignore"):
            wide = np.power(x.astype(np.float64), y.astype(np.float64))
            right = wide.astype(np.float32)
            low, high = ((wide * (1 + d)).astype(np.float32) for d in (-(2.0**-48), 2.0**-48))
        doubtful = np.flatnonzero((low != high) & np.isfinite(wide))
        for i in doubtful:
            right[i] = mpfr("pow", x[i], y[i])
        count = Count(_BLOCK, len(doubtful))
        for name, table in tables.items():
            table.run([x.ctypes.data, y.ctypes.data, out.ctypes.data])
            wrong = np.flatnonzero(out.view(np.uint32) != right.view(np.uint32))
            count.wrong[name] = len(wrong)
            count.examples += [f"{name}: {x[i]!r} ** {y[i]!r} is {out[i]!r}, must be {right[i]!r}" for i in wrong[:3]]
        total.add(count)
    return total


def main(arguments: Sequence[str] | None = None) -> int:
    """Scan and print one line a function and row."""
    compiled = [row for row in isa.ROWS if row.compiled and row.available]
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--function", choices=FUNCTIONS, action="append")
    parser.add_argument("--row", choices=[row.name for row in compiled], action="append")
    parser.add_argument("--stride", type=int, default=1)
    parser.add_argument("--powers", type=int, default=0)
    options = parser.parse_args(arguments)
    rows = [row for row in compiled if not options.row or row.name in options.row]
    print(f"{'function':<10}{'row':<10}{'inputs':>12}{'by MPFR':>10}{'wrong':>8}{'seconds':>10}")
    failed = False
    for name in ("pow",) if options.powers else options.function or FUNCTIONS:
        began = time.perf_counter()
        count = scan_powers(rows, options.powers) if options.powers else scan(name, rows, options.stride)
        seconds = time.perf_counter() - began
        for row in rows:
            wrong = count.wrong[row.name]
            failed |= wrong > 0
            print(
                f"{name:<10}{row.name:<10}{count.inputs:>12}{count.decided:>10}{wrong:>8}{seconds:>10.1f}", flush=True
            )
        for example in count.examples:
            print("  " + example)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
