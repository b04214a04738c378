"""What equal runs of K take from the rows of A (`block_microkernel`): float32 [chunk][row][values], behind the words of
each chunk of a block of A, where the macrokernel has packed these.

A row's values of a chunk are the scales of its runs, if blocks of A have them, and behind these a number for each run:
where sums are floating, the float32 that is added to a sum times its scale, which takes away what the sum began at and
what `Runs.offset`, which packing added to B's elements, has added to it; else, where there is an offset, the int32 that
the sum starts from, which takes that away. Start at `emit`.
"""

from __future__ import annotations

from samebits.codegen.vocabulary import Builder, Function, Index, Pointer, Vector
from samebits.dtypes import float32, int32
from samebits.kernels.gemm.block_microkernel import BEGUN_FLOAT, Runs
from samebits.kernels.gemm.engine import Engine

# Runs of up to so many words are summed as one vector, longer ones in a loop over vectors of so many: a chunk may have
# any length, and a text that grew with it would take minutes to compile.
_WIDEST = 64


def emit(b: Builder, engine: Engine, runs: Runs, chunk: int, pitch: int) -> Function:
    """A function `(words, rows, size, scales, step, block, first)` for the `size` words of a chunk of some rows of A,
    which begin at word `first` of K; the values come behind the rows. `scales`: where the first row's are, `step` from
    row to row, a block of `block` words each."""
    together = max(1, min(chunk, 2 * b.isa.lanes) // runs.words)
    behind = runs.of(chunk) * runs.scaled[0]

    def body(
        words: Pointer, rows: Index, size: Index, scales: Pointer, step: Index, block: Index, first: Index
    ) -> None:
        values, there = b.cast(b.offset(words, rows * pitch), float32), (size + runs.words - 1) // runs.words
        for i in b.loop(0, rows):
            row, source = b.offset(words, i * pitch), b.offset(scales, i * step)
            target = b.offset(values, i * runs.values(chunk))
            for q in b.loop(0, there, together):
                count, scale = b.min(there - q, together), None
                if runs.scaled[0]:
                    scale = _scales(b, runs, source, first // runs.words + q, block, together, count)
                    b.store(target, q, scale, count)
                if runs.floating or runs.offset:
                    left = b.min(size - q * runs.words, together * runs.words)
                    added = _added(b, engine, runs, b.offset(row, q * runs.words), together, left)
                    b.store(target, behind + q, _taken_away(b, runs, added, scale), count)

    return b.function("values", (engine.word, None, None, float32, None, None, None), body)


def _scales(b: Builder, runs: Runs, scales: Pointer, first: Index, block: Index, together: int, count: Index) -> Vector:
    """Those of `count` runs of a row from run `first` of K on; zero behind them."""
    if runs.alone[0]:
        return b.load(scales, first, together, count)
    places = [b.choose(count > q, (first + q) * runs.words // block, 0) for q in range(together)]
    return b.concat([b.load(scales, place, 1) for place in places])


def _added(b: Builder, engine: Engine, runs: Runs, words: Pointer, together: int, count: Index) -> Vector:
    """What the offset of B adds to the sums of runs of `count` words that follow each other."""
    if not runs.offset:
        return b.constant(0, int32, together)
    each, is_long = min(runs.words, _WIDEST), runs.words > _WIDEST
    width = together * each
    found = [b.constant(0, int32, width)]
    for w in b.loop(0, count, width, carry=found) if is_long else (0,):
        there = b.min(count - w, width) if is_long else count
        found[0] = engine.sums(b, b.load(words, w, width, there), engine.a, found[0])
    total = found[0]
    while together == 1 and each % 2 == 0:  # halves are at hand, where neighbours would be picked
        each //= 2
        total = b.add(b.slice(total, 0, each), b.slice(total, each, each))
    width = together * each
    while each > 1:
        parts = 2 if each % 2 == 0 else each
        width, each = width // parts, each // parts
        total, *others = [b.pick([total], range(part, width * parts, parts)) for part in range(parts)]
        for other in others:
            total = b.add(total, other)
    return b.mul(total, b.like(total, runs.offset))


def _taken_away(b: Builder, runs: Runs, added: Vector, scale: Vector | None) -> Vector:
    """Of each run the number that takes away what its sum has too much: `added`, and where it is floating BEGUN."""
    if not runs.floating:
        return b.bitcast(b.sub(b.like(added, 0), added), float32)
    assert scale is not None  # both sides have scales
    much = b.convert(added, float32)
    return b.mul(b.sub(b.like(much, -BEGUN_FLOAT), much), scale)
