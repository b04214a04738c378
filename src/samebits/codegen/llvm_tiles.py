"""Tiles of the LLVM builder: registers of the machine where the row multiplies them, else rows in memory.

The instructions' intrinsics are named here, and nowhere else. A register is named by its number, which LLVM takes for a
constant, so that a tile is a place and no value that LLVM could move. Start at `dot`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from samebits.codegen.rules import MOST_TILES, TILE_LANES, TILE_ROWS
from samebits.codegen.ssa import Pointer, TileRegister, operand
from samebits.dtypes import float32, int32

if TYPE_CHECKING:
    from samebits.codegen.llvm import LlvmBuilder

_ROW_BYTES = TILE_LANES * int32.size_bytes
# word: what it is called by LLVM, and the inner product that it is made of elsewhere, whose operands may change places.
_DOTS = {
    "dot4_int8": ("tdpbssd", "dot4_int8", False),
    "dot4_int8_uint8": ("tdpbsud", "dot4_uint8_int8", True),
    "dot4_uint8_int8": ("tdpbusd", "dot4_uint8_int8", False),
    "dot4_uint8": ("tdpbuud", "dot4_uint8", False),
}


def enabled(b: LlvmBuilder) -> Iterator[None]:
    """Registers are of use only between their configuration and their release, which ends what is saved of them when
    another thread runs."""
    if not b.isa.has_tiles:
        yield None
        return
    # Palette 1; no row to begin at; bytes of a row of each register, of sixteen; rows of each.
    sizes = [*[_ROW_BYTES, 0] * MOST_TILES, *[0] * 16, *[TILE_ROWS] * MOST_TILES, *[0] * 8]
    text = ", ".join(f"i8 {x}" for x in (1, 0, *[0] * 14, *sizes))
    b.constants["tiles",] = f"@tiles = private unnamed_addr constant [64 x i8] [{text}], align 64"
    b.intrinsic("llvm.x86.ldtilecfg", "void", [("ptr", "@tiles")])
    yield None
    b.intrinsic("llvm.x86.tilerelease", "void", [])


def made(b: LlvmBuilder, number: int) -> TileRegister:
    """TileRegister `number` of the text."""
    return TileRegister(number, None if b.isa.has_tiles else b.local(int32, TILE_ROWS * TILE_LANES))


def zero(b: LlvmBuilder, x: TileRegister) -> None:
    """As `Builder.tile_zero`."""
    if x.rows is None:
        b.intrinsic("llvm.x86.tilezero", "void", [("i8", str(x.number))])
        return
    for r in b.loop(0, TILE_ROWS):
        b.store(x.rows, r * TILE_LANES, b.constant(0, int32, TILE_LANES))


def load(b: LlvmBuilder, x: TileRegister, p: Pointer, step: Any) -> None:
    """As `Builder.tile_load`."""
    if x.rows is None:
        b.intrinsic("llvm.x86.tileloadd64", "void", _moved(x, p, step))
        return
    for r in b.loop(0, TILE_ROWS):
        row = b.load(b.cast(b.offset(p, r * step), int32, p.aligned), 0, TILE_LANES)
        b.store(x.rows, r * TILE_LANES, row)


def store(b: LlvmBuilder, x: TileRegister, p: Pointer, step: Any) -> None:
    """As `Builder.tile_store`."""
    if x.rows is None:
        b.intrinsic("llvm.x86.tilestored64", "void", _moved(x, p, step))
        return
    for r in b.loop(0, TILE_ROWS):
        row = b.load(x.rows, r * TILE_LANES, TILE_LANES)
        b.store(b.cast(b.offset(p, r * step), int32, p.aligned), 0, row)


def _moved(x: TileRegister, p: Pointer, step: Any) -> list[tuple[str, str]]:
    return [("i8", str(x.number)), ("ptr", p.name), ("i64", operand(step * p.dtype.size_bytes))]


def dot(b: LlvmBuilder, word: str, acc: TileRegister, x: TileRegister, y: TileRegister) -> None:
    """As `Builder.tile_dot4_int8` and its like."""
    name, plain, is_turned = _DOTS[word]
    if acc.rows is None or x.rows is None or y.rows is None:
        b.intrinsic(f"llvm.x86.{name}", "void", [("i8", str(block.number)) for block in (acc, x, y)])
        return
    step = getattr(b, plain)
    for r in b.loop(0, TILE_ROWS):
        sums = [b.load(acc.rows, r * TILE_LANES, TILE_LANES)]
        for k in b.loop(0, TILE_ROWS, carry=sums):
            left = b.splat(b.load(x.rows, r * TILE_LANES + k, 1), TILE_LANES)
            right = b.load(y.rows, k * TILE_LANES, TILE_LANES)
            sums[0] = step(sums[0], *((right, left) if is_turned else (left, right)))
        b.store(acc.rows, r * TILE_LANES, sums[0])


def dot_bfloat16(b: LlvmBuilder, acc: TileRegister, x: TileRegister, y: TileRegister) -> None:
    """As `Builder.tile_dot2_bfloat16`."""
    if acc.rows is None or x.rows is None or y.rows is None:
        b.intrinsic("llvm.x86.tdpbf16ps", "void", [("i8", str(tile.number)) for tile in (acc, x, y)])
        return

    def halves(v: Any) -> list[Any]:
        return [b.bitcast(h, float32) for h in (b.shift_left(v, 16), b.bit_and(v, b.like(v, -65536)))]

    sums = b.cast(acc.rows, float32)
    for r in b.loop(0, TILE_ROWS):
        chains = [b.constant(0, float32, TILE_LANES)] * 2
        for k in b.loop(0, TILE_ROWS, carry=chains):
            left = halves(b.splat(b.load(x.rows, r * TILE_LANES + k, 1), TILE_LANES))
            right = halves(b.load(y.rows, k * TILE_LANES, TILE_LANES))
            chains[:] = [b.fma(*each) for each in zip(left, right, chains, strict=True)]
        before = b.load(sums, r * TILE_LANES, TILE_LANES)
        b.store(sums, r * TILE_LANES, b.add(before, b.add(*chains)))
