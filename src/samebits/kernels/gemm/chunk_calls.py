"""Calls of a microtile: what it is given, and the chunks of K that it gains by one.

All chunks of a block of K are one call: a call for each would begin behind the stores of the one before (Zen 4,
bfloat16, 512 x 768 x 3072, speed over that: weight [N, K] 1.02, [K, N] 1.02, columns of A 1.02; K = 3072 1.03). Between
chunks the sums stay in a dense tile, because rows of C that are a power of two apart share one set of the first cache
and would evict each other (1024 cubed of float32: 102 GFLOP/s in C, 106 in the tile).

What the calls of some panels have in common they read from memory: as arguments it would be written there for each of
them, again behind the sums of the one before (512 x 768 x 3072 of bytes, part of the time that calls take: 4.9 and
0.8 %). Start at `chunks_of`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields

from samebits.codegen.vocabulary import Builder, Condition, Index, Pointer
from samebits.dtypes import DType, int64, uint8
from samebits.frozen import dataclass

__all__ = ["ARGUMENTS", "PANEL_CALLS", "CalledChunk", "MicrotileCall", "PanelCalls", "chunks_of", "taken"]


@dataclass(frozen=True, slots=True)
class PanelCalls:
    """What the calls of a panel, or of a group of them, have in common.

    Attributes:
        kc: Words of K.
        chunk, chunks: Words of a chunk; chunks, of which the last may be shorter.
        a_step: Words from a chunk to the next, of all rows of A, or of each row of a micropanel that lies by itself.
        runs, calls, run, part, line: Of `following.Following`: a chunk asks for the next part of what follows.
        asks: Lines that a turn asks for: 1, 2 or MOST_ASKS.
    """

    kc: Index
    chunk: Index
    chunks: Index
    a_step: Index
    runs: Index
    calls: Index
    run: Index
    part: Index
    line: Index
    asks: Index

    def keep(self, b: Builder, place: Pointer) -> None:
        """Write it down."""
        for i, name in enumerate(PANEL_CALLS):
            b.store(place, i, b.from_index(getattr(self, name), int64))

    @classmethod
    def kept(cls, b: Builder, place: Pointer) -> PanelCalls:
        """What was written down."""
        return cls(*[b.load_index(place, i) for i in range(len(PANEL_CALLS))])


PANEL_CALLS = tuple([x.name for x in fields(PanelCalls)])


@dataclass(frozen=True, slots=True)
class MicrotileCall:
    """What every microtile takes, in this order.

    Attributes:
        panels: Where `PanelCalls` are.
        a, panel, b_step: The first chunk of both operands, and the step of B (`microkernel`).
        t, t_step: What the first chunk is added to.
        tile: Where sums wait between chunks, dense.
        c, c_step: What the last chunk becomes.
        last: Whether that is the last of its sum.
        following: What of B to ask for meanwhile, from its start.
        call: How many chunks asked for some of it before.
    """

    panels: Pointer
    a: Pointer
    panel: Pointer
    b_step: Index
    t: Pointer
    t_step: Index
    tile: Pointer
    c: Pointer
    c_step: Index
    last: Index
    following: Pointer
    call: Index


ARGUMENTS = len(fields(MicrotileCall))


def taken(word: DType, panel: DType, total: DType) -> tuple[DType | None, ...]:
    """The arguments, as `Builder.function` names them."""
    return (int64, word, panel, None, total, None, total, total, None, None, uint8, None)


@dataclass(frozen=True, slots=True)
class CalledChunk:
    """One chunk of a call: `size` words behind the `first` ones, their operands, what they ask for from `following` on;
    what the sums are added to and become, each with the step of its rows; whether it is the last of the call, and 1
    where it is the last of its sum."""

    panels: PanelCalls
    size: Index
    first: Index
    a: Pointer
    panel: Pointer
    following: Pointer
    t: tuple[Pointer, Index]
    c: tuple[Pointer, Index]
    ends: Condition
    last: Index


def chunks_of(b: Builder, x: MicrotileCall, rows: int, width: int, row: Index) -> Iterator[CalledChunk]:
    """The chunks of a call.

    Args:    rows: those of the micropanel where `a_step` is of each row, else 1.   width: columns of the tile.
             row: from a row of B to the next.
    """
    of, asked = PanelCalls.kept(b, x.panels), [x.call, 0]
    for _ in b.when(of.calls > 1, carry=asked):
        asked[0], asked[1] = x.call // of.calls, x.call % of.calls
    for q in b.loop(0, of.chunks, carry=asked):
        begins, ends, first = q == 0, q + 1 >= of.chunks, q * of.chunk
        run, part = asked
        following = b.offset(x.following, b.min(run, of.runs) * of.run + part * of.part)
        whole = part + 1 >= of.calls
        asked[0], asked[1] = run + b.choose(whole, 1, 0), b.choose(whole, 0, part + 1)
        yield CalledChunk(
            panels=of, size=b.min(of.kc - first, of.chunk), first=first, a=b.offset(x.a, q * of.a_step * rows),
            panel=b.offset(x.panel, first * row), following=following,
            t=(b.choose(begins, x.t, x.tile), b.choose(begins, x.t_step, width)),
            c=(b.choose(ends, x.c, x.tile), b.choose(ends, x.c_step, width)),
            ends=ends, last=b.choose(ends, x.last, 0),
        )  # fmt: skip
