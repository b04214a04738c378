"""The form of a plan: where B's panels come from.

`packed`: they exist. `decoded`: packed weights become words as they are read. `widened`: they do so for the first
micropanel of a block, which writes the words down for the others. `streamed`: few rows use no panels, B is read once,
where it lies. `fused`: each task packs a panel just before it uses it. `staged`: a step packs B first, then many blocks
of M use it. Every form gives the same bits. Start at `form_for`.
"""

from __future__ import annotations

from samebits.codegen.isa import Isa
from samebits.errors import OptionError
from samebits.kernels.gemm import engine as engines
from samebits.kernels.gemm.contraction import Contraction, Matrix, Panels
from samebits.kernels.gemm.engine import FMA32, Engine
from samebits.kernels.gemm.inner import KC_LEAST, TILED_BLOCK, Inner, words_of
from samebits.kernels.gemm.machine import Caches
from samebits.kernels.gemm.pack import DECODED, PACKED, WIDENED, kind
from samebits.kernels.gemm.strip import FEW_HALVES, StripWalk
from samebits.kernels.gemm.tiles import tile_for
from samebits.kernels.gemm.words import Words

FUSED, STAGED, STREAMED = "fused", "staged", "streamed"
FORMS = (PACKED, DECODED, WIDENED, STREAMED, FUSED, STAGED)
# What was not taken, and why.
Reasons = tuple[tuple[str, str], ...]
# Up to so many rows packed weights whose blocks have scales are converted in the microkernel where the engine is fma
# (K = N = 4096 in ms, in the microkernel and before: 64 rows 22.7 23.3, 256 rows 97.0 92.5).
_DECODED_ROWS = 96
# Without scales of blocks, from two micropanels to so many rows, the first micropanel of a block converts for all. It
# still does that once a block, a step that packs once (Emerald Rapids, one thread, time of decoded, fused and staged
# over it: bfloat16, K = N = 4096, 24 rows 1.02 1.10 1.48, 128 rows 1.15 1.06 1.16, 512 rows 1.14 1.03 1.05; 768 x 768,
# 1024 and 2048 rows, staged 1.00 0.99; int8, K = N = 2048, 24 rows 1.07 1.11 1.72, 512 rows 1.18 1.02 1.02, 2048 rows
# 1.18 1.03 0.99).
_WIDENED_ROWS = 1024
# Streamed bfloat16 takes the steps of float32, as nothing has looked at it: where columns are turned anyway, packing
# costs little more (packed over streamed at M = 4 and 8: 3072 x 768 1.12 1.19, 768 x 3072 1.07 1.04, 4096 x 4096 1).
_STREAMED_CHECKED = FEW_HALVES
# Streamed sums cost each row the same for any K, and what they save grows with K: so many words along K pay for a row,
# where rows of B are contiguous and where columns are. Time packed over streamed, uint8 x int8, N = 1024, at M = 2, 4
# and 8: rows, K = 64: 1.06 1.01 0.88; columns, K = 64: 0.63 0.38 0.25, K = 512: 1.28 1.17 0.88, 2048: 1.87 1.66 1.24.
_ROW_WORDS, _COLUMN_WORDS = 5, 20
# Across rows of B every chain of a block waits in memory, which soon costs as much as packing (pairs32, K = N = 2048,
# time streamed over packed on the way at M = 2, 4, 8, 16: 0.70 1.04 1.19 1.39).
_STREAMED_BLOCKS = 3
# More rows than always may turn squares of B as often, once for as many rows as registers hold.
_TURNED = 2


def has_weights(c: Contraction) -> bool:
    """Whether b is in panels of integers that become words as they are used."""
    return isinstance(c.b.values, Panels) and c.b.values.engine in engines.WEIGHT_NAMES


def has_windows(c: Contraction) -> bool:
    """Whether b's columns are windows of an image."""
    return isinstance(c.b.values, Matrix) and c.b.values.windows is not None


def runs_down(c: Contraction) -> bool:
    """Whether b's columns are contiguous, so that packing reads long runs along K and only a panel at a time: 16 runs
    side by side, 8 KB apart, come with 9 GB/s from memory where they are of 1 KB, of 8 KB with 36."""
    return isinstance(c.b.values, Matrix) and kind(c.b.values) == "transpose"


def check_form(c: Contraction, form: str, engine: Engine, caches: Caches) -> None:
    """Whether the form that is asked for can be had.

    Raises:  OptionError.
    """
    possible = [FUSED] if has_windows(c) else [STREAMED, FUSED, STAGED]
    if isinstance(c.b.values, Panels):
        possible = [PACKED]
        if has_weights(c):
            possible = [DECODED, *([] if c.by_block else [WIDENED]), FUSED, STAGED]
    if form not in possible:
        given = PACKED if isinstance(c.b.values, Panels) else "unpacked"
        raise OptionError("plan", "form", f"for {given} b", repr(form), f"one of {possible}", "leave it away")
    if form != STREAMED or not c.k:
        return
    reason = _not_streamed(c, engine, words_of(engine, c.a.dtype, c.b.dtype), caches.streamed_rows)
    if reason:
        raise OptionError("plan", "form", "", repr(form), f"another: {reason}", "leave it away")


def check_sums(inner: Inner, form: str) -> None:
    """Whether the form that is asked for has the sums of b's columns when they are needed.

    Raises:  OptionError.
    """
    if form == FUSED and inner.needs_sums:
        expected = "one that packs b first, as the zero points of a need"
        raise OptionError("plan", "form", "", repr(form), expected, "leave it away")


def form_for(inner: Inner, isa: Isa, caches: Caches, a_bytes: int, mc: int | None) -> tuple[str, Reasons]:
    """Where B's panels come from, and why not from elsewhere.

    Args:    a_bytes: what a block of A may take.   mc: its rows, where the caller says them.
    """
    c = inner.c
    rejected: Reasons = ()
    if has_weights(c) and not inner.runs and inner.engine is FMA32:
        most = _DECODED_ROWS if c.by_block else tile_for(isa).mr
        if c.m <= most or not c.k:
            return DECODED, ()
        if not c.by_block and c.m <= _WIDENED_ROWS:
            return WIDENED, ((DECODED, f"{c.m} rows are several micropanels: the first converts for all"),)
    if isinstance(c.b.values, Panels) and not has_weights(c):
        return PACKED, ()
    if has_windows(c):
        return FUSED, ()
    if inner.needs_sums:
        return STAGED, ((FUSED, "the zero points of a need the sums of b's columns first"),)
    if c.k and isinstance(c.b.values, Matrix):
        reason = _not_streamed(c, inner.engine, inner.words, _streamed_rows(inner, isa, caches))
        if reason is None:
            return STREAMED, ((FUSED, f"{c.m} rows use each element of B {c.m} times: packing it would cost more"),)
        rejected = ((STREAMED, reason),)
    shortest = TILED_BLOCK if inner.engine.takes_tiles and not inner.runs else KC_LEAST
    one_block = a_bytes // inner.engine.word.size_bytes // shortest if mc is None else mc
    if c.m <= one_block or not c.k:
        return FUSED, (*rejected, (STAGED, f"all {c.m} rows are one block: nothing would use packed B again"))
    if mc is None and c.m <= caches.down_rows and runs_down(c):
        return FUSED, (*rejected, (STAGED, f"{c.m} rows are few blocks: packing columns of B again costs less"))
    return STAGED, (*rejected, (FUSED, f"{c.m} rows are several blocks, and each would pack B again"))


def is_cached(c: Contraction, engine: Engine, caches: Caches) -> bool:
    """Whether words of B are so few that it comes from a cache."""
    most = caches.down_cached if runs_down(c) else caches.rows_cached
    return engine.steps(c.k) * c.n * engine.word.size_bytes <= most


def _streamed_rows(inner: Inner, isa: Isa, caches: Caches) -> int:
    """The most rows for which B is read where it lies."""
    c, right = inner.c, inner.words[1]
    assert isinstance(c.b.values, Matrix)  # the caller looked
    most, lies = caches.streamed_rows if right.depth == 1 else caches.streamed_always, kind(c.b.values)
    if lies == "transpose":
        most = min(most, max(caches.streamed_always, _TURNED * StripWalk.highest(isa.lanes, isa, inner.order.chains)))
        most = _STREAMED_CHECKED if inner.checked else most
    elif inner.order.block:
        most = min(most, _STREAMED_BLOCKS)
    elif kind(c.a.values) == "copy" and is_cached(c, inner.engine, caches):
        most = min(most, caches.streamed_cached)
    if c.a.dtype.is_integer and c.b.dtype.is_integer:
        paid = -(-c.k // right.depth) // (_ROW_WORDS if lies == "copy" else _COLUMN_WORDS)
        most = min(most, max(1, paid))
    return most


def _not_streamed(c: Contraction, engine: Engine, words: tuple[Words, Words], most: int) -> str | None:
    """Why B cannot be read where it lies, or should not be for more rows than `most`."""
    assert isinstance(c.b.values, Matrix)  # the caller looked
    if c.m > most:
        return f"{c.m} rows use each element of B more than {most} times: packing it pays"
    if engine.takes_tiles:
        return "tiles are of panels"
    if c.a.is_shifted or words[0].offset:
        return "the zero points of a need the sums of b's columns first"
    if c.by_block:
        return "blocks of b share scales or zero points, which are kept in panels"
    return "neither rows nor columns of b are contiguous" if kind(c.b.values) == "gather" else None
