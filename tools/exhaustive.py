"""Run every float32 input of the correctly rounded functions on every compiled row of this machine, and count errors.

The oracle is not ours: glibc's float64 function rounded to float32, and MPFR (gmpy2) wherever glibc's result lies
within 8 ulp of float64 of a rounding boundary. It is computed once a function, and all rows are compared with it.

    python tools/exhaustive.py [--function exp] [--row avx2] [--stride 4096]

`--stride N` takes one block of 2**16 inputs in N, for a quick look. Exits 1 if an input is wrong.
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
from samebits.native.table import Table

FUNCTIONS = ("exp", "erf")
_BLOCK = 1 << 16
_DOUBT_ULPS = 8

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


def mpfr(name: str, x: float) -> np.float32:
    """The function of one float32, rounded once to float32 with subnormals, by MPFR."""
    narrow = gmpy2.context(precision=24, emin=-148, emax=128, subnormalize=True)
    with gmpy2.context(narrow):
        found: Any = getattr(gmpy2, name)(gmpy2.mpfr(float(x)))
    return np.float32(float(found))


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


def main(arguments: Sequence[str] | None = None) -> int:
    """Scan and print one line a function and row."""
    compiled = [row for row in isa.ROWS if row.compiled and row.available]
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--function", choices=FUNCTIONS, action="append")
    parser.add_argument("--row", choices=[row.name for row in compiled], action="append")
    parser.add_argument("--stride", type=int, default=1)
    options = parser.parse_args(arguments)
    rows = [row for row in compiled if not options.row or row.name in options.row]
    print(f"{'function':<10}{'row':<10}{'inputs':>12}{'by MPFR':>10}{'wrong':>8}{'seconds':>10}")
    failed = False
    for name in options.function or FUNCTIONS:
        began = time.perf_counter()
        count = scan(name, rows, options.stride)
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
