"""Pack and unpack beside a copy of the unpacked bytes and NumPy's way: one process, interleaved, one thread, medians.

GB/s of the unpacked side, a byte an element, by the thread's CPU time. NumPy's way is the fastest that we know:
`packbits` and `unpackbits` for one bit, shifts of strided views for the others. NumKong, where it is installed, casts
int4 to int8.
`python benches/move.py`
"""

from __future__ import annotations

import importlib.util
import itertools
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
from _rows import compiled_rows
from _turns import Call, medians

from samebits.codegen.isa import Isa
from samebits.kernels import narrow
from samebits.layout import Layout
from samebits.memory import allocate
from samebits.native.table import Table

Array = np.ndarray[Any, np.dtype[np.uint8]]
ROUNDS = 15
COUNTS = (3 << 16, 3 << 24)
FORMATS = {1: "uint1", 2: "int2", 4: "float4, int4", 6: "float6"}


def ours(source: Layout, target: Layout, row: Isa, x: Array, y: Array) -> Call:
    """A call of the kernel."""
    table = Table([(narrow.plan(source, target, row), (0, 1))], 2, 1)
    addresses = (x.ctypes.data, y.ctypes.data)
    return lambda: table.run(addresses)


def numpy_unpack(width: int, packed: Array, codes: Array) -> Call:
    """NumPy's way to a byte an element."""
    if width == 1:
        return lambda: np.unpackbits(packed, bitorder="little")
    if width == 6:

        def six() -> None:
            first, second, third = packed[::3], packed[1::3], packed[2::3]
            np.bitwise_and(first, 63, out=codes[::4])
            codes[1::4] = first >> 6 | (second & 15) << 2
            codes[2::4] = second >> 4 | (third & 3) << 4
            np.right_shift(third, 2, out=codes[3::4])

        return six
    each, mask = 8 // width, (1 << width) - 1

    def shifts() -> None:
        for k in range(each):
            codes[k::each] = packed >> (k * width) & mask

    return shifts


def numpy_pack(width: int, packed: Array, codes: Array) -> Call:
    """NumPy's way back."""
    if width == 1:
        return lambda: np.packbits(codes, bitorder="little")
    if width == 6:

        def six() -> None:
            a, b, c, d = (codes[k::4] for k in range(4))
            packed[::3] = a | b << 6
            packed[1::3] = b >> 2 | c << 4
            packed[2::3] = c >> 4 | d << 2

        return six
    each = 8 // width

    def shifts() -> None:
        found = codes[::each].copy()
        for k in range(1, each):
            found |= codes[k::each] << (k * width)
        packed[:] = found

    return shifts


def numkong_unpack(count: int) -> Call | None:
    """NumKong's cast of int4 to int8, which writes as many bytes."""
    if importlib.util.find_spec("numkong") is None:
        return None
    import numkong

    source = numkong.zeros((count,), dtype="int4")
    return lambda: source.astype("int8")


def measured(width: int, count: int, way: str) -> dict[str, float]:
    """GB/s of every way to pack or unpack so many elements."""
    compiled = compiled_rows()
    tight = Layout.dense((count,), width_bits=width)
    loose = Layout.dense((count,), width_bits=width, storage="padded")
    packed, codes, spare = (allocate(n).array() for n in (tight.required_bytes, count, count))
    codes[:] = np.random.default_rng(width).integers(0, 1 << width, count, np.uint8)
    packed[:], spare[:] = 0xE4, 0
    sides = (loose, tight) if way == "pack" else (tight, loose)
    memory = (codes, packed) if way == "pack" else (packed, spare)
    calls = {row.name: ours(*sides, row, *memory) for row in compiled}
    calls["copy"] = lambda: np.copyto(spare, codes)
    calls["numpy"] = (numpy_pack if way == "pack" else numpy_unpack)(width, packed, codes)
    peer = numkong_unpack(count) if (way, width) == ("unpack", 4) else None
    if peer is not None:
        calls["numkong"] = peer
    return {key: count / value / 1e9 for key, value in medians(calls, ROUNDS, time.thread_time).items()}


def main() -> list[dict[str, object]]:
    """Measure, print, return the rows."""
    compiled = [row.name for row in compiled_rows()]
    found: list[dict[str, object]] = []
    print("| bits | elements | direction | row | ours | copy | NumPy | NumKong | ours / copy | ours / NumPy |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for count, width, way in itertools.product(COUNTS, FORMATS, ("pack", "unpack")):
        speed = measured(width, count, way)
        copy, theirs = speed["copy"], speed["numpy"]
        other = f"{speed['numkong']:.1f}" if "numkong" in speed else "-"
        for row in compiled:
            mine = speed[row]
            found.append({"bits": width, "elements": count, "direction": way, "row": row, "gb_s": mine})
            print(
                f"| {width} | {count} | {way} | {row} | {mine:.1f} | {copy:.1f} | {theirs:.2f} | {other} "
                f"| {mine / copy:.2f} | {mine / theirs:.1f} |"
            )
        if count == COUNTS[-1] and width in (4, 6):
            what = f"{way} {FORMATS[width]}, 50M elements, {compiled[-1]} (a copy: {copy:.1f} GB/s)"
            print(f"figure: {what} | {mine:.1f} GB/s | NumPy {theirs:.2f} GB/s | {mine / theirs:.1f}")
    return found


if __name__ == "__main__":
    main()
