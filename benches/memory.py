"""What new memory costs: a block is allocated, one byte of each page is written, and the block is let go.

`one`: each block goes before the next comes. `four`: four blocks live at once, as the temporaries of an expression do.
NumPy's allocator is the C library's, which returns big blocks to the system as soon as their neighbours are free too;
`fresh` is this library without its pool. `python benches/memory.py`
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from samebits import Tensor
from samebits.memory import HostResource, allocate

ROUNDS = 15
FRESH = HostResource(keep_bytes=0)
WAYS: dict[str, Callable[[int], Any]] = {
    "ours": lambda size: allocate(size).array(),
    "fresh": lambda size: allocate(size, resource=FRESH).array(),
    "numpy": lambda size: np.empty(size, np.uint8),
}


def used(make: Callable[[int], Any], size: int, live: int) -> float:
    """Microseconds a block, from its allocation to its end."""
    began = time.perf_counter()
    blocks = [make(size) for _ in range(live)]
    for block in blocks:
        block[::4096] = 1
    del blocks, block
    return (time.perf_counter() - began) * 1e6 / live


def medians(size: int, live: int) -> dict[str, float]:
    """Medians of rounds that take the ways in turn, each several times over so that its second block can be reused."""
    times: dict[str, list[float]] = {name: [] for name in WAYS}
    for _ in range(ROUNDS):
        for name, make in WAYS.items():
            times[name].extend([used(make, size, live) for _ in range(4)][1:])
    return {name: statistics.median(found) for name, found in times.items()}


def small(make: Callable[[], Any], count: int = 20000) -> float:
    """Microseconds of one small allocation: the best of some rounds, because it is a latency."""
    best = float("inf")
    for _ in range(ROUNDS):
        began = time.perf_counter()
        for _ in range(count):
            make()
        best = min(best, time.perf_counter() - began)
    return best / count * 1e6


def main() -> None:
    """Print the table."""
    print("| block | live | ours | fresh | numpy.empty | ratio |")
    print("|---|---|---|---|---|---|")
    figures: dict[tuple[int, int], dict[str, float]] = {}
    for size in (256 << 10, 1 << 20, 8 << 20, 64 << 20):
        for live in (1, 4):
            found = figures[size, live] = medians(size, live)
            row = " | ".join(f"{found[name]:.1f} us" for name in WAYS)
            print(f"| {size >> 10} KiB | {live} | {row} | {found['numpy'] / found['ours']:.2f} |")
    print(f"\nallocate(1024): {small(lambda: allocate(1024)):.2f} us; ", end="")
    print(f"numpy.empty(1024): {small(lambda: np.empty(1024, np.uint8)):.2f} us; ", end="")
    print(f"Tensor.empty((4, 4)): {small(lambda: Tensor.empty((4, 4))):.2f} us")
    found = figures[8 << 20, 4]
    what = "new memory, 4 blocks of 8 MiB, touched"
    print(f"figure: {what} | {found['ours']:.0f} us each | numpy.empty {found['numpy']:.0f} us | "
          f"{found['numpy'] / found['ours']:.1f}")  # fmt: skip


if __name__ == "__main__":
    main()
