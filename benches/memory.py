"""What new memory costs: a block is allocated, one byte of each page is written, and the block is let go.

`one`: each block goes before the next comes. `four`: four blocks live at once, as the temporaries of an expression do.
NumPy's allocator is the C library's, which returns big blocks to the system as soon as their neighbours are free too;
`fresh` is this library without its pool. `python benches/memory.py`
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from _turns import bests

from samebits import Tensor
from samebits.bench import measure
from samebits.memory import HostResource, allocate

ROUNDS = 15
FRESH = HostResource(keep_bytes=0)
WAYS: dict[str, Callable[[int], Any]] = {
    "ours": lambda size: allocate(size).array(),
    "fresh": lambda size: allocate(size, resource=FRESH).array(),
    "numpy": lambda size: np.empty(size, np.uint8),
}


def use(make: Callable[[int], Any], size: int, live: int) -> None:
    """Blocks from their allocation to their end."""
    blocks = [make(size) for _ in range(live)]
    for block in blocks:
        block[::4096] = 1
    del blocks, block


def measured(size: int, live: int) -> dict[str, float]:
    """Microseconds a block. Each way has several turns in a row, so that its second block can be reused."""
    ways = {name: functools.partial(use, make, size, live) for name, make in WAYS.items()}
    return {name: 1e6 * took / live for name, took in measure.medians(ways, ROUNDS, 3).items()}


def main() -> None:
    """Print the table."""
    print("| block | live | ours | fresh | numpy.empty | ratio |")
    print("|---|---|---|---|---|---|")
    figures: dict[tuple[int, int], dict[str, float]] = {}
    for size in (256 << 10, 1 << 20, 8 << 20, 64 << 20):
        for live in (1, 4):
            found = figures[size, live] = measured(size, live)
            row = " | ".join(f"{found[name]:.1f} us" for name in WAYS)
            print(f"| {size >> 10} KiB | {live} | {row} | {found['numpy'] / found['ours']:.2f} |")
    small = {
        "allocate(1024)": lambda: allocate(1024),
        "numpy.empty(1024)": lambda: np.empty(1024, np.uint8),
        "Tensor.empty((4, 4))": lambda: Tensor.empty((4, 4)),
    }
    print("\n" + "; ".join(f"{name}: {1e6 * took:.2f} us" for name, took in bests(small, ROUNDS, 20000).items()))
    found = figures[8 << 20, 4]
    what = "new memory, 4 blocks of 8 MiB, touched"
    print(f"figure: {what} | {found['ours']:.0f} us each | numpy.empty {found['numpy']:.0f} us | "
          f"{found['numpy'] / found['ours']:.1f}")  # fmt: skip


if __name__ == "__main__":
    main()
