"""How a task of a product walks its block of C by micropanels: each microtile gains words of K by one call.

A call adds to t, where the sums of the microtile begin or were left by the block of K before, and what it gains
becomes c: where they wait for the next block of K, out itself, or a tile that the epilogue takes. What it is given is
`chunk_calls.MicrotileCall`, or, where blocks of both sides have scales, what `block_microkernel` takes. Start at
`column`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from samebits.codegen.vocabulary import Builder, Condition, Function, Index, Pointer
from samebits.dtypes import float32
from samebits.frozen import dataclass
from samebits.kernels.gemm.blocks import SCALE
from samebits.kernels.gemm.chunk_calls import PanelCalls
from samebits.kernels.gemm.following import Following

if TYPE_CHECKING:
    from samebits.kernels.gemm.macrokernel import TaskLoops

# Where a microtile's panel is among its arguments.
_PANEL = 2


@dataclass(frozen=True, slots=True)
class MultipliedPanels:
    """Panels of B that all micropanels of a block are multiplied with, for some words of K.

    Attributes:
        j, g: The first panel of a group, and which of the group's panels the microtiles begin with.
        wide: How many panels a microtile covers.
        start, step: Where their words are, and from a panel to the next.
        pc, kc, chunks: The first word of K, how many, and in how many chunks.
        unsafe: 1 where the block of A and these panels may meet a subnormal, else 0.
        following: What of B to ask for meanwhile.
        only: The one of the chunks that the panels hold; None where they hold all.
    """

    j: Index
    g: Index
    wide: Index
    start: Pointer
    step: Index
    pc: Index
    kc: Index
    chunks: Index
    unsafe: Index
    following: Following
    only: Index | None = None


@dataclass(frozen=True, slots=True)
class _TilePlace:
    """A microtile in its block of C: row r of the block, panel j, and where its sums are.

    `start`: where they begin; `kept`: where they wait between blocks of K; each with the step of its rows. `width`:
    columns. Whether this is the first of K, the last, and not the last; `straight`: whether out takes the sums as they
    are; `tile`: where they are between chunks."""

    r: Index
    rows: Index
    j: Index
    kept: Pointer
    kept_step: Index
    start: Pointer
    start_step: Index
    width: Index
    fresh: Condition
    final: Condition
    more: Condition
    straight: Condition
    tile: Pointer


def expect(loops: TaskLoops, following: Following, kc: Index, chunks: Index) -> None:
    """Write down what microtiles of some panels have in common, which gain kc words in `chunks`."""
    text = loops.text
    b, d, x = text.b, text.d, following
    apart = d.chunk if d.by_tiles else d.pitch if d.interleaved else loops.rows * d.pitch
    asks = b.index("asks")
    PanelCalls(kc, d.chunk, chunks, apart, x.runs, x.calls, x.run, x.part, x.line, asks).keep(b, text.panel_calls)


def column(loops: TaskLoops, x: MultipliedPanels) -> None:
    """All microtiles of these panels; where tiles multiply, those that they may not."""
    b, p0, p1 = loops.text.b, loops.p0, loops.p1
    for p in b.loop(p0, b.choose(x.unsafe == 0, p0, p1) if loops.text.d.by_tiles else p1):
        # Beside windows nothing is asked for ahead, whatever the number of a call.
        call = 0 if x.only is not None else (x.g * (p1 - p0) + (p - p0)) * x.chunks
        _microtile(loops, x, p, call)


def _microtile(loops: TaskLoops, x: MultipliedPanels, p: Index, call: Index) -> None:
    """The microtile of micropanel p; the first of its chunks is call number `call` of the group."""
    text, only = loops.text, x.only
    b, d, nr = text.b, text.d, text.nr
    j = x.j + x.g
    r, is_tall = text.row(p) - loops.r0, p < text.tall
    rows, width = b.choose(is_tall, text.height, text.height - text.lower), x.wide * nr
    columns = b.min(width, text.n - j * nr)
    narrow = columns < width
    kept, kept_step = loops.kept(r, j, narrow)
    fresh, final, more = x.pc == loops.k_begin, x.pc + text.kc >= loops.k_end, x.pc + text.kc < loops.k_end
    if only is not None:
        fresh, final = fresh & (only == 0), final & (only + 1 >= x.chunks)
    # A plain t is out itself, but for a narrow panel; anything else leaves the tile by `finish`.
    straight: Condition = (columns >= width) if d.epilogue.plain else False
    start, start_step = text.start, 0
    tile = text.tile if only is None else b.offset(text.waiting, r * width)
    if d.accumulates:
        start, start_step = b.choose(straight, kept, tile), b.choose(straight, kept_step, width)
        for _ in b.when(fresh & narrow if d.epilogue.plain else fresh):
            text.finish.begin(loops.operands, tile, width, loops.r0 + r, j * nr, rows, columns)
    functions = [_function(b, tiles, is_tall, x.wide) for tiles in text.tiles]
    place = _TilePlace(r, rows, j, kept, kept_step, start, start_step, width, fresh, final, more, straight, tile)

    def run(arguments: list[Any]) -> None:
        if d.keeps:
            is_first = p == loops.p0
            if d.lies:
                is_first &= columns >= width
            first = _function(b, text.first, is_tall, x.wide)
            _run_keeping(loops, is_first, first, functions[0], arguments, j, x.pc)
            return
        for i, function in enumerate(functions):
            for _ in b.when(x.unsafe == i) if not (d.by_tiles and d.engines[i].takes_tiles) else ():
                b.call(function, *arguments)

    if not d.epilogue.plain:
        for _ in b.when(final):
            text.finish.ask(loops.operands, loops.r0 + r, j * nr, rows, columns)
    if d.runs is None:
        _of_chunks(loops, x, place, call, run)
    else:
        _of_runs(loops, x, place, run)
    for _ in b.when(final & narrow if d.epilogue.plain else final):
        text.finish.call(loops.operands, tile, width, loops.r0 + r, j * nr, rows, columns)


def _function(b: Builder, tiles: list[Function], is_tall: Condition, wide: Index) -> Function:
    """That of a micropanel over `wide` panels, among those of `specialised.tile_names`."""
    tall_wide, tall_one, low_wide, low_one = tiles
    several = b.choose(is_tall, tall_wide, low_wide)
    return b.choose(wide > 1, several, b.choose(is_tall, tall_one, low_one))


def _of_chunks(
    loops: TaskLoops, x: MultipliedPanels, to: _TilePlace, call: Index, run: Callable[[list[Any]], None]
) -> None:
    """The microtile gains its chunks, or one of them, by a call."""
    text, only = loops.text, x.only
    b, d, nr = text.b, text.d, text.nr
    t, t_step = b.choose(to.fresh, to.start, to.kept), b.choose(to.fresh, to.start_step, to.kept_step)
    keep, first = to.more | to.straight, 0
    if only is not None:
        t, t_step = b.choose(only == 0, t, to.tile), b.choose(only == 0, t_step, to.width)
        keep, first = keep & (only + 1 >= x.chunks), only
    c, c_step = b.choose(keep, to.kept, to.tile), b.choose(keep, to.kept_step, to.width)
    last, a = b.choose(to.final, 1, 0), loops.left(to.r, first, to.rows)
    arguments = [text.panel_calls, a, x.start, x.step, t, t_step, to.tile, c, c_step, last, x.following.start]
    arguments.append(call + first)
    if SCALE in d.shared:
        scales = SCALE.panel(b, loops.operands[SCALE.name], to.j, nr)
        arguments += [scales, SCALE.step(b, nr), x.pc + first * d.chunk, SCALE.words(b)]
    run(arguments)


def _of_runs(loops: TaskLoops, x: MultipliedPanels, to: _TilePlace, run: Callable[[list[Any]], None]) -> None:
    """The microtile gains the scaled sums of all runs, by a call."""
    text = loops.text
    b, d, nr = text.b, text.d, text.nr
    t, t_step = b.choose(to.fresh, to.start, to.kept), b.choose(to.fresh, to.start_step, to.kept_step)
    keep = to.more | to.straight
    c, c_step = b.choose(keep, to.kept, text.tile), b.choose(keep, to.kept_step, to.width)
    a = b.offset(text.block_a, to.r * d.pitch)
    arguments = [x.kc, a, loops.rows * d.row_words, x.start, t, t_step, c, c_step, b.choose(to.final, 1, 0), x.pc]
    values, step, block = loops.scales_of_a(loops.r0 + to.r)
    if text.values_a is not None:
        apart = d.row_words - d.pitch
        values = b.cast(b.offset(text.block_a, loops.rows * d.pitch + to.r * apart), float32)
    arguments += [values, step, block]
    scales, block = b.cast(text.start, float32), 1
    if SCALE in d.shared:
        scales, block = SCALE.panel(b, loops.operands[SCALE.name], to.j, nr), SCALE.words(b)
    run([*arguments, scales, block])


def _run_keeping(
    loops: TaskLoops, is_first: Condition, first: Function, other: Function, arguments: list[Any], j: Index, pc: Index
) -> None:
    """A micropanel gains words of panel j from pc on: the first reads B where it lies, or the panel of weights, and
    writes its words down, the others read these."""
    text = loops.text
    b = text.b
    words = text.block_b, text.kc * text.nr
    source: tuple[Any, ...] = tuple(arguments[_PANEL : _PANEL + 2])
    if text.d.lies:
        row = b.index("b_row")
        source = b.offset(loops.operands["b"], pc * row + j * text.nr), row
    before, after = arguments[:_PANEL], arguments[_PANEL + 2 :]
    which = b.choose(is_first, 0, 1)
    for _ in b.when(which == 0):
        b.call(first, *before, *source, *after, *words)
    for _ in b.when(which == 1):
        b.call(other, *before, *words, *after)
