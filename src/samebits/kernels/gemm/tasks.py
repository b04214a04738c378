"""How C and K become tasks: blocks of C that threads share equally, strips of columns, parts of K."""

from __future__ import annotations

import math

from samebits.codegen.isa import Isa
from samebits.kernels.gemm.contraction import Contraction, Matrix
from samebits.kernels.gemm.engine import Engine
from samebits.kernels.gemm.machine import Caches
from samebits.kernels.gemm.order import ORDERS
from samebits.kernels.gemm.pack import kind
from samebits.kernels.gemm.strip import StripWalk
from samebits.kernels.gemm.tiles import Micropanels
from samebits.kernels.gemm.words import Words
from samebits.tape import entry

# Where all rows are one block, threads share N if it is so many walks across panels for each, or twice as many where
# not all have equally many: blocks of fewer rows would each read all of B (32 x 4096 x 4096, packed, on 2 threads,
# GFLOP/s: float32 131 in blocks of 11 rows, 187 in halves of N; bfloat16 271 and 396). So do few columns (384 x 384 and
# 1536 x 384, packed, of a program on 2 threads, of one thread's time: M = 32 0.62 in 12 tasks, 0.49 in 2; M = 128 0.57
# in 8, 0.55 in 2).
_WALKS = 3
# Columns of a strip: as long runs as B has, where its rows are contiguous, while the sums stay in `Caches.strip`.
_STRIP, _STRIP_DOWN = 4096, 256
# Strips of contiguous columns that each thread should have: two, and they wait for the last of four (3072 x 768, M = 1
# and 2, microseconds: 150 and 199 by 4 strips on two threads, 121 and 150 by 8); not if they had fewer columns than
# this, as each packs A (4096 x 320, M = 8: 85 GFLOP/s by 10 strips, 95 by 2).
_STRIPS_A_THREAD, _STRIP_LEAST = 4, 64
# What a thread may have to do, over the least that it could have, where that makes for fewer pieces.
_UNEVEN = 1.1
# What sums of parts of K may take.
_PARTS_BYTES = 64 * 1024 * 1024


@entry
def micropanels(mc: int, height: int) -> int:
    """How many of that height have about `mc` rows."""
    return max(1, round(mc / height))


@entry
def evenly(units: int, wanted: int, repeats: int, threads: int) -> int:
    """Units of a piece where `units` become `wanted` pieces, or a few more, each of which is done `repeats` times: the
    thread with most to do has about the least that any such number of pieces would leave it."""
    units = max(1, units)
    wanted = max(1, min(wanted, units))
    sizes = [-(-units // pieces) for pieces in range(wanted, min(units, wanted + 2 * threads) + 1)]
    loads = [-(-repeats * -(-units // size) // threads) * size for size in sizes]
    return next(size for size, load in zip(sizes, loads, strict=True) if load <= min(loads) * _UNEVEN)


def blocks_of(
    c: Contraction, rows: Micropanels, panels: int, wide: int, threads: int, is_fused: bool, mc: int, nc: int, nr: int,
    kept_bytes: int, most_kept: int,
) -> tuple[int, int]:  # fmt: skip
    """(blocks of M, panels of a task): cache blocks of `mc` rows and `nc` of `panels`, made smaller until threads have
    about as much to do. `kept_bytes`: of each element that a task keeps in scratch between blocks of K; `most_kept`:
    of all that it may keep."""
    walks, batch = -(-panels // wide), math.prod(c.batch)
    m_blocks = max(1, -(-rows.panels // micropanels(mc, rows.heights[0])))
    for_each, more = divmod(walks, threads)
    across = is_fused or (m_blocks == 1 and for_each >= (2 * _WALKS if more else _WALKS))
    if not across and threads > 1 and batch % threads:
        # Two a thread at least, and as many for each: the rows of one block more or less are a tenth of the time.
        m_blocks = max(1, min(rows.panels, max(2, -(-m_blocks // threads)) * threads))
    # Two a thread; but each packs A, so one where threads share N alone (512 x 3072 x 768 of bfloat16, B's columns
    # contiguous, on 2 threads: 372 GFLOP/s in 4 tasks, 390 in 2).
    wanted = threads if across or threads == 1 else 2 * threads
    if not across and rows.panels % threads:
        # Threads cannot have equally many micropanels, halves of N make up for it (512 cubed on 2 threads, 43 of them:
        # 207 GFLOP/s in 4 tasks, 212 in 8); it does not pay where they can (768 cubed: 211, 208).
        wanted *= 2
    if kept_bytes:
        height = -(-rows.panels // m_blocks) * rows.heights[0]
        nc = min(nc, most_kept // (kept_bytes * max(1, height) * nr))
    tasks = m_blocks * batch
    pieces = max(-(-wanted // max(1, tasks)), -(-walks // max(1, nc // wide)))
    return m_blocks, evenly(walks, pieces, tasks, threads) * wide


def strip(
    c: Contraction, isa: Isa, engine: Engine, words: Words, panels: int, threads: int, nr: int, caches: Caches
) -> int:
    """Panels of a strip of columns, whose elements become `words`: about as many strips for each thread."""
    assert isinstance(c.b.values, Matrix)  # streamed
    columns, least, batch = _STRIP_DOWN, _STRIPS_A_THREAD, math.prod(c.batch)
    if kind(c.b.values) == "copy":
        columns, least = max(1, min(_STRIP, caches.strip // (2 * max(1, c.m) * engine.total.size_bytes))), 1
    shape = StripWalk.of(
        c.m,
        engine.lanes(isa),
        isa,
        words,
        c.n * c.k * words.pointer.size_bytes <= caches.near,
        ORDERS[c.sums.order].chains,
    )
    lanes = engine.lanes(isa)
    unit = lanes * StripWalk.across(isa)[1] if kind(c.b.values) == "copy" else shape.unit
    whole = math.lcm(unit, nr) // nr
    units, strips = -(-panels // whole), -(-panels * nr // columns)
    if batch % threads:
        least = least if panels * nr >= least * threads * _STRIP_LEAST else 1
        strips = max(-(-strips // threads), least) * threads
    return evenly(units, strips, batch, threads) * whole


def parts(
    c: Contraction, engine: Engine, words: Words, threads: int, tasks: int, chunk: int, columns: int
) -> tuple[int, int]:
    """(parts of K, words of each): segments; else, where C has fewer `tasks` than there are threads, chunks, unless
    their sums, of `columns` columns, would take too much. Integers need no order, so they take fewer parts. `words`:
    what elements of A become."""
    steps = engine.steps(c.k)
    if c.spec.segments > 1:
        first, last = c.spec.bounds(c.k)[0]
        return c.spec.segments, engine.steps(last - first)
    if engine.exact:
        chunk *= max(1, -(-steps // (2 * threads * chunk)))
    count = -(-steps // chunk)
    size_bytes = count * math.prod(c.batch) * c.m * columns * engine.total.size_bytes
    # A zero point or an offset of A is taken away with the sums of B's columns, which are of all of K.
    if tasks < threads <= count and size_bytes <= _PARTS_BYTES and not c.a.is_shifted and not words.offset:
        return count, chunk
    return 1, steps
