"""How a task of a product walks its block of C by tiles: it packs its micropanels of A in steps of tiles, and gives all
microtiles of a panel to one call. Start at `column`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from samebits.codegen.rules import TILE_LANES
from samebits.codegen.vocabulary import Condition, Index, Pointer
from samebits.kernels.plan import LINE_BYTES

if TYPE_CHECKING:
    from samebits.kernels.gemm.following import Following
    from samebits.kernels.gemm.macrokernel import TaskLoops

# Micropanels of tiles whose sums wait for the epilogue together: so many stay in the first cache.
_TOGETHER = 4
# More micropanels than any block has.
_ALL = 1 << 30


def pack(loops: TaskLoops, x: Pointer, pc: Index, kc: Index) -> None:
    """Micropanels of words pc .. pc+kc-1 of A, which begin at x, in steps of tiles."""
    text = loops.text
    b, row, column = text.b, text.b.index("a_row"), text.b.index("a_column")
    whole = kc // TILE_LANES
    for p in b.loop(loops.p0, loops.p1):
        r = text.row(p) - loops.r0
        rows = b.choose(p < text.tall, text.height, text.height - text.lower)
        block = loops.left(r, 0, rows)
        b.call(text.pack_a, b.offset(x, r * row), row, column, rows, text.elements(pc, kc), block)
        if text.look_a is not None:
            b.call(text.look_a, block, 0, 1, rows * whole * TILE_LANES, text.fact_a)
            rest = b.offset(block, whole * TILE_LANES * rows)
            b.call(text.look_a, rest, TILE_LANES, rows, kc - whole * TILE_LANES, text.fact_a)


def column(
    loops: TaskLoops, j: Index, pc: Index, kc: Index, panel: Pointer, following: Following, call: Index,
    part: tuple[Index, Condition] | None = None,
) -> None:  # fmt: skip
    """All microtiles of panel j gain kc words of K, by a call for those of tall micropanels and one for the low
    one; or chunk `part` of K, which may be the last. The first asks as call number `call` of the group."""
    text = loops.text
    b, d, nr, operands = text.b, text.d, text.nr, loops.operands
    columns = b.min(nr, text.n - j * nr)
    kept, kept_step = loops.kept(0, j, columns < nr)
    q, ends = (0, pc + text.kc >= loops.k_end) if part is None else part
    fresh, final = (pc == loops.k_begin) & (q == 0), (pc + text.kc >= loops.k_end) & ends
    more = pc + text.kc < loops.k_end
    # A plain t is out itself, or becomes it as a narrower float, but for a narrow panel; anything else leaves the
    # waiting rows by `finish`.
    is_whole = columns >= nr
    straight: Condition = is_whole if d.epilogue.plain else False
    goes_out = d.epilogue.plain or d.epilogue.converts is not None
    start, start_step = text.start, 0
    if d.accumulates:
        start, start_step = b.choose(straight, kept, text.waiting), b.choose(straight, kept_step, nr)
        for _ in b.when(fresh & (columns < nr) if d.epilogue.plain else fresh):
            text.finish.begin(operands, text.waiting, nr, loops.r0, j * nr, loops.rows, columns)
    is_kept = (more | straight) & ends if part is not None else more | straight
    before, before_step = kept, kept_step
    if part is not None:
        before, before_step = b.choose(q == 0, kept, text.waiting), b.choose(q == 0, kept_step, nr)
    t, t_step = b.choose(fresh, start, before), b.choose(fresh, start_step, before_step)
    c, c_step = b.choose(is_kept, kept, text.waiting), b.choose(is_kept, kept_step, nr)
    passes: Index = 0
    if d.may_pass:
        passes = b.choose(final & straight & (b.misaligned(kept, LINE_BYTES) == 0), b.index("passes"), 0)
    asked, each = text.asking.asked(b, following, call), text.asking.each(b, following)
    # The epilogue turns one micropanel at a time.
    together = _ALL if goes_out else 1 if d.epilogue.turned else _TOGETHER
    tall = b.max(b.min(text.tall, loops.p1) - loops.p0, 0)
    for tile, begin, end, height in (
        (text.tiles[0][1], 0, tall, text.height),
        (text.tiles[0][3], tall, loops.p1 - loops.p0, text.height - text.lower),
    ):
        for p in b.loop(begin, end, together):
            r, count = p * text.height, b.min(end - p, together)
            narrows: list[Any] = []
            if d.epilogue.converts:
                out = b.offset(operands["out"], (loops.r0 + r) * b.index("out_row") + j * nr)
                narrows = [out, b.index("out_row"), b.choose(final & is_whole, 1, 0)]
            b.call(
                tile, kc, loops.left(r, q, height), height * text.kc, panel, count, b.offset(t, r * t_step), t_step,
                b.offset(c, r * c_step), c_step, b.choose(final, 1, 0), passes,
                b.offset(asked[0], p * each), asked[1], each, b.index("asks"), *narrows,
            )  # fmt: skip
            for _ in b.when(final & (columns < nr) if goes_out else final):
                waiting = b.offset(text.waiting, r * nr)
                text.finish.call(operands, waiting, nr, loops.r0 + r, j * nr, height * count, columns)
