"""What an operation on a layout costs, beside cuda.core's compiled class where it is installed.

Nanoseconds, the best of many interleaved rounds: each is too short for anything else of the machine to average out.
The layout is (4, 6, 8) of 4-byte elements, strides given; cuda.core's class is internal (`cuda.core._layout`), and
strides of its are in elements. `python benches/layout.py`
"""

from __future__ import annotations

import importlib
import timeit
from typing import Any

from samebits.layout import Layout

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


def main() -> None:
    """Print the table and the README's figures."""
    made = [Layout.from_strides(SHAPE, STRIDES, width_bits=32) for _ in range(2)]
    ours = {"L": Layout, "x": made[0], "y": Layout(*made[1].__reduce__()[1]), "shape": SHAPE}
    ours["bits"] = made[0].strides_bits
    theirs = cuda_core()
    timers: dict[tuple[str, str], timeit.Timer] = {}
    for name, (statement, other) in OPERATIONS.items():
        timers[name, "ours"] = timeit.Timer(statement, globals=ours)
        if theirs is not None and other is not None:
            timers[name, "theirs"] = timeit.Timer(other, globals=theirs)
    best = dict.fromkeys(timers, float("inf"))
    for _ in range(ROUNDS):
        for key, timer in timers.items():
            best[key] = min(best[key], timer.timeit(NUMBER) / NUMBER * 1e9)
    print("| operation | ours, ns | cuda.core, ns | cuda.core / ours |\n|---|---|---|---|")
    for name in OPERATIONS:
        mine, peer = best[name, "ours"], best.get((name, "theirs"))
        text = "- | -" if peer is None else f"{peer:.0f} | {peer / mine:.2f}"
        print(f"| {name} | {mine:.0f} | {text} |")
        if peer is not None and name in ("construct", "slice", "reshape", "permute"):
            print(f"figure: layout: {name} | {mine:.0f} ns | cuda.core {peer:.0f} ns | {peer / mine:.2f}")


if __name__ == "__main__":
    main()
