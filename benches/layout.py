"""What an operation on a layout costs: in Python, by emitted code, and by cuda.core's class where it is installed.

Nanoseconds, the best of many interleaved rounds: each is too short for anything else of the machine to average out.
The layout is (4, 6, 8) of 4-byte elements, strides given. cuda.core's class is an internal one (`cuda.core._layout`)
that remembers its facts, so asking for one makes a layout first. Emitted code replaces construction, indexing, permute,
reshape, broadcast_to and comparison alone. `python benches/layout.py`
"""

from __future__ import annotations

import copy
import functools
import importlib
import timeit
from typing import Any

from _turns import bests

from samebits.layout import Layout
from samebits.native import exchange

NUMBER, ROUNDS = 2000, 60
SHAPE, STRIDES = (4, 6, 8), (48, 8, 1)
# operation -> our statement, cuda.core's (None: it has no such operation)
OPERATIONS: dict[str, tuple[str, str | None]] = {
    "construct": ("L(shape, bits, 0, 32)", "L(shape, strides, 4)"),
    "construct, dense": ("L.dense(shape, width_bits=32)", "L.dense(shape, 4)"),
    "slice": ("x[1:3, :, 2]", "x[1:3, :, 2]"),
    "index": ("x[1]", "x[1]"),
    "reshape": ("x.reshape((24, 8))", "x.reshaped((24, 8))"),
    "permute": ("x.permute((2, 0, 1))", "x.permuted((2, 0, 1))"),
    "broadcast": ("x.broadcast_to((2, 4, 6, 8))", "x.broadcast_to((2, 4, 6, 8))"),
    "unsqueeze": ("x.unsqueeze(1)", "x.unsqueezed(1)"),
    "flatten": ("x.flatten()", "x.flattened()"),
    "repack to 16 bytes": ("x.repack(128)", "x.repacked(16)"),
    "dense in F order": ("x.to_dense('F')", "x.to_dense('F')"),
    "compare": ("x == y", "x == y"),
    "hash": ("hash(x)", None),
    "is contiguous": ("x.is_contiguous()", "L(shape, strides, 4).is_contiguous_c"),
    "is unique": ("x.is_unique()", "L(shape, strides, 4).is_unique"),
    "overlaps": ("x.overlaps(y)", None),
}


def cuda_core() -> dict[str, Any] | None:
    """Names for its statements, or None where it is not installed."""
    try:
        found = importlib.import_module("cuda.core._layout")._StridedLayout
    except (ImportError, AttributeError):
        return None
    made = [found(SHAPE, STRIDES, 4) for _ in range(2)]
    return {"L": found, "x": made[0], "y": made[1], "shape": SHAPE, "strides": STRIDES}


def best_of(spaces: dict[str, dict[str, Any]]) -> dict[tuple[str, str], float]:
    """The best time of each operation in each space of names, all of them in turns; `timeit` repeats a statement
    without a call."""
    timers = {
        (name, space): functools.partial(timeit.Timer(statement, globals=names).timeit, NUMBER)
        for name, statements in OPERATIONS.items()
        for space, names in spaces.items()
        if (statement := statements[space == "cuda.core"])
    }
    return {key: 1e9 * took / NUMBER for key, took in bests(timers, ROUNDS).items()}


def main() -> None:
    """Print the table and the README's figures."""
    made = [Layout.from_strides(SHAPE, STRIDES, width_bits=32) for _ in range(2)]
    # One is pickled, so that comparing finds two objects.
    names = {"L": Layout, "x": made[0], "y": copy.copy(made[1]), "shape": SHAPE, "bits": made[0].strides_bits}
    theirs = cuda_core()
    peer = {} if theirs is None else {"cuda.core": theirs}
    best = best_of({"python": names, **peer})
    if exchange.compile_exchange():
        best |= {key: time for key, time in best_of({"emitted": names, **peer}).items() if key[1] == "emitted"}
    columns = [column for column in ("python", "emitted", "cuda.core") if any(space == column for _, space in best)]
    print(f"| operation | {' | '.join(columns)} |\n|---|{'---|' * len(columns)}")
    for name, (_, other) in OPERATIONS.items():
        times = [best[name, column] if column != "cuda.core" or other else None for column in columns]
        print(f"| {name} | {' | '.join('-' if time is None else f'{time:.0f}' for time in times)} |")
        if name in ("construct", "slice", "reshape", "permute") and len(times) == 3 and times[1] and times[2]:
            what = f"layout: {name}, emitted code"
            print(f"figure: {what} | {times[1]:.0f} ns | cuda.core {times[2]:.0f} ns | {times[2] / times[1]:.2f}")


if __name__ == "__main__":
    main()
