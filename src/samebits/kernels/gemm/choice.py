"""The choices of a plan, each a step of `choose`: orientation, engine, form, tile, cache blocks, tasks.

`choose` is pure; what a step did not take it lists with the reason. Every choice gives the same bits. `selection` knows
engines, `form` where panels come from, `tasks` how threads share the work; what is fast on which processor is a row of
`machine`. Start at `choose`.
"""

from __future__ import annotations

import itertools
import math

from samebits.codegen.isa import Isa
from samebits.dtypes import float32
from samebits.frozen import dataclass, replace
from samebits.kernels.gemm import checks, selection, tasks, tiles
from samebits.kernels.gemm import engine as engines
from samebits.kernels.gemm import form as forms
from samebits.kernels.gemm.block_microkernel import Runs
from samebits.kernels.gemm.contraction import Contraction, Matrix, Panels
from samebits.kernels.gemm.engine import Engine
from samebits.kernels.gemm.form import FUSED, STAGED, STREAMED, Reasons, has_weights, has_windows, runs_down
from samebits.kernels.gemm.inner import KC_LEAST, TILED_BLOCK, Inner, size_words
from samebits.kernels.gemm.interleaved import suits
from samebits.kernels.gemm.machine import DEFAULT, WIDE_LANES, Caches, Machine
from samebits.kernels.gemm.microtile import MOST_ASKS, UNROLL
from samebits.kernels.gemm.normal import normal
from samebits.kernels.gemm.order import SumOrder
from samebits.kernels.gemm.pack import DECODED, PACKED, WIDENED, copied_words, kind
from samebits.kernels.gemm.tiles import Micropanels, PanelSpan, Tile
from samebits.kernels.gemm.tuned import Sizes, Tuned
from samebits.kernels.gemm.words import Words
from samebits.kernels.plan import LINE_BYTES
from samebits.tape import entry

# Chunks of K from which columns of A pay for being turned.
_TURNED_CHUNKS = 4
# Panels that are packed together just before their use.
GROUP = 8
# Where four instructions begin in a cycle the loads of the narrow tile are in the way: it must save more than this part
# of the columns (float32, Cascade Lake, speed of the wide over it: 64 x 576 x 48 0.93, 128 x 128 x 80 1.01, 256 x 768 x
# 112 1.08, 48 x 768 x 400 1.11, 256 x 768 x 336 1.17, 128 x 1152 x 784 1.25, 512 x 512 x 1000 1.27).
_NARROW_PART = 5
# Rows of a block of A that pay for one block of K (`Caches.whole`).
_WHOLE_ROWS = 128
# More columns than any C has: a block of all of them.
_ALL = 1 << 40


@dataclass(frozen=True, slots=True)
class Blocks:
    """Cache blocks: at most `mc` rows and `nc` columns of C a task, `kc` of K at a time (rounded to whole chunks)."""

    mc: int
    nc: int
    kc: int


@dataclass(frozen=True, slots=True)
class Overrides:
    """What a caller of `plan` decides instead of the figures; None leaves it to them. `engine` is a name."""

    tile: Tile | None = None
    form: str | None = None
    blocks: Blocks | None = None
    engine: str | None = None


@dataclass(frozen=True, slots=True)
class Choice:
    """Everything decided. Along K all but `c.k` counts words of the engine. `order` holds the plan's operand numbers of
    a, b, out and each input; a task is one of the `m_blocks` equal blocks of M, `n_step` panels, and one of the
    `parts` of K, `part_steps` each; `sums` is how a chunk is summed; B is packed in `rounds`, in panels of `nr`
    columns, and `cached` is whether it comes from a cache. `four_wide` is the machine's, where
    vectors have 64 bytes and words one element; `result`: bytes of results that stay in its caches. `machine` is the
    name of whose figures decided; `tuned`: whether the engine, the tile and the sizes of blocks are those of rows that
    were measured."""

    c: Contraction
    order: tuple[int, ...]
    isa: Isa
    machine: str
    threads: int
    engine: Engine
    words: tuple[Words, Words]
    checked: bool
    tile: Tile
    rows: Micropanels
    wide: int
    group: int
    kc: int
    chunk: int
    sums: SumOrder
    form: str
    m_blocks: int
    n_step: int
    rounds: int
    in_scratch: bool
    parts: int
    part_steps: int
    runs: Runs | None
    unit_of_scales: float
    tuned: tuple[bool, bool, bool]
    rejected: Reasons
    nr: int
    cached: bool
    four_wide: bool
    result: int

    @property
    def panels(self) -> int:
        """Panels of B."""
        return -(-self.c.n // self.nr)

    @property
    def spans(self) -> list[PanelSpan]:
        """The panels of each round."""
        if self.rounds == 1:  # said by a comparison alone, as `asks`
            return [PanelSpan(0, self.panels)]
        walks = -(-self.panels // self.wide)
        edges = [min(self.panels, walks * i // self.rounds * self.wide) for i in range(self.rounds + 1)]
        return [PanelSpan(*edge) for edge in itertools.pairwise(edges)]

    @property
    def m_step(self) -> int:
        """Micropanels of the highest block."""
        return max(1, -(-self.rows.panels // self.m_blocks))

    @property
    def steps(self) -> int:
        """Words along K."""
        return self.engine.steps(self.c.k)

    @property
    def zeros(self) -> tuple[bool, bool]:
        """Whether the epilogue takes away a zero point of A and of B; an offset of A is gone when sums start."""
        return self.c.a.is_shifted, self.c.b.is_shifted or self.words[1].offset != 0

    @property
    def asks(self) -> int:
        """Lines of what is read next that each micropanel asks for in a turn, so that together they ask for all: 1, 2
        or MOST_ASKS (K = N = 4096, packed, M = 16 and 32: float32 90 to 100 and 97 to 106 GFLOP/s, uint8 x int8 389 to
        432 and 406 to 438 GOP/s; 8 would be slower). Where fewer are left to ask for, more keep memory busy for nothing
        (Emerald Rapids, GFLOP/s by 4 and 2: int8 weights beside 4 rows of bfloat16 92 and 98, 48 of float32 141 and
        159)."""
        right = self.words[1]
        as_it_lies = self.form in (FUSED, DECODED, WIDENED)
        size = right.pointer.size_bytes * right.depth if as_it_lies else self.engine.word.size_bytes
        lines = self.nr * size * UNROLL // LINE_BYTES
        asks = 1  # by comparisons alone: plans for other sizes share what is decided by them
        while asks < MOST_ASKS and asks * self.m_step < lines:
            asks *= 2
        return asks

    @property
    def passes(self) -> bool:
        """Whether results go past the caches (`Caches.result`): rows of whole lines, which nothing reads again."""
        c, size = self.c, self.engine.total.size_bytes
        lines = [c.out.values.row, *c.out.values.batch]
        is_large = c.m * c.n * math.prod(c.batch) * size > self.result
        return is_large and self.steps <= self.kc and self.parts == 1 and not any(x * size % LINE_BYTES for x in lines)

    @property
    def pitch(self) -> int:
        """Words between rows of A within a chunk: it in whole copies, and a line, or rows would share a set. Those of
        interleaved rows follow each other."""
        width = copied_words(self.chunk, self.engine.lanes(self.isa))
        between = 0 if self.interleaved else LINE_BYTES // self.engine.word.size_bytes
        return -(-self.chunk // width) * width + between

    @property
    def interleaved(self) -> bool:
        """Whether micropanels of A are interleaved: where a chunk is one chain, rows of A are contiguous and panels
        that use them pay for packing them so. Beside weights that are packed once words of several elements gain (Zen
        4, packed, speed over that by rows: int8 512 x 4096 x 4096 1.05, 512 x 768 x 3072 1.03, 128 x 768 x 768 1.01,
        bfloat16 512 x 4096 x 4096 1.02). By words of one element a model gains nothing there that can be measured, and
        would have both forms of its kernels to compile, but on machines that begin four instructions a cycle (Cascade
        Lake, packed: 512 x 1024 x 1024 1.06, 512 and 128 x 768 x 768 1.05, 32 x 768 x 768 1.03, 128 x 4096 x 3072
        1.05). There columns of A of words of one element are turned for it too, and of pairs of bfloat16 everywhere
        (Zen 4: 3072 x 512 x 768, 768 x 512 x 3072 and 768 cubed 1.02)."""
        if self.form == STREAMED or self.engine.takes_tiles:
            return False
        is_alone = self.engine.depth == 1
        by_rows = isinstance(self.c.b.values, Panels) and (has_weights(self.c) or (is_alone and not self.four_wide))
        pays = self.four_wide if is_alone else self.engine.is_guarded
        turned = pays and self.steps >= _TURNED_CHUNKS * self.chunk
        if by_rows or kind(self.c.a.values) not in (("copy", "transpose") if turned else ("copy",)):
            return False
        return suits(self.isa, self.c.n // self.nr) and not (self.runs or self.c.by_block or self.sums.block)

    @property
    def lies(self) -> bool:
        """Whether the first micropanel of a block reads B where it lies and writes panels for the others: the sums hide
        what reading rows waits for, which packing does not. So where B's rows are contiguous, its words of one element,
        and a panel is packed at a time on the way (Emerald Rapids, float32, K = N = 768, time of packing before over
        it: 32 rows 1.10, 64 rows 1.08, 128 rows 1.06). Packing reads faster what comes from memory (48 x 4096 x 4096:
        0.67).
        """
        right, is_alone = self.c.b.values, self.group == self.wide == 1 and self.m_step > 1
        is_copied = self.form == FUSED and isinstance(right, Matrix) and kind(right) == "copy"
        return is_copied and is_alone and self.cached and self.interleaved and self.engine.depth == 1


def choose(described: Contraction, isa: Isa, threads: int, given: Overrides, machine: Machine) -> Choice:
    """What `described` runs with on an Isa row of a machine, step by step."""
    engine, engines_not = selection.of_operands(described, isa, machine, given.engine, given.form)
    tile = given.tile or _row(described, engine, isa, machine).tile
    c, order, turned = orient(described, tile.nv * engine.lanes(isa))
    if turned or c.m != described.m:  # on which the choice of an engine depends too
        engine, engines_not = selection.of_operands(c, isa, machine, given.engine, given.form)
    row = _row(c, engine, isa, machine)
    tile = given.tile or row.tile
    checks.check_operands(c, tile.nv * engine.lanes(isa), isa, engine)
    if given.form is not None:
        forms.check_form(c, given.form, engine, machine.caches)
    checks.check_blocks(c, engine)
    inner = Inner.of(c, engine)
    checks.check_dtypes(inner.c, inner.engine)
    form, forms_not = form_of(inner, isa, machine.caches, row.sizes, given)
    inner, unchecked = for_form(inner, form, given.engine)
    tile, tiles_not = tile_of(inner, form, isa, row, given, machine)
    cut = cut_up(inner, form, tile, isa, threads, row.sizes, machine.caches, given)
    return Choice(
        c=inner.c, order=order, isa=isa, machine=machine.name, threads=threads, engine=inner.engine, words=inner.words,
        checked=inner.checked, tile=tile, rows=cut.rows, wide=cut.wide, group=cut.group, kc=cut.kc, chunk=inner.chunk,
        sums=inner.order,
        form=form, m_blocks=cut.m_blocks, n_step=cut.n_step, rounds=cut.rounds, in_scratch=cut.in_scratch,
        parts=cut.parts, part_steps=cut.part_steps, runs=inner.runs,
        unit_of_scales=inner.unit_of_scales, tuned=_measured(inner, row, isa, machine, given),
        rejected=turned + engines_not + forms_not + unchecked + tiles_not, nr=tile.nv * inner.engine.lanes(isa),
        cached=forms.is_cached(inner.c, inner.engine, machine.caches),
        four_wide=machine.four_wide and isa.lanes >= WIDE_LANES and inner.engine.depth == 1,
        result=machine.caches.result,
    )  # fmt: skip


def orient(described: Contraction, nr: int) -> tuple[Contraction, tuple[int, ...], Reasons]:
    """The product in its normal form or its transpose, the plan's operand numbers of a, b, out and each input (-1: an
    immediate), and why it is turned; panels of its B would have `nr` columns."""
    c = normal(described)
    inputs, first = c.inputs, 2 + len(c.by_block)
    matrices = [i for i, s in enumerate(inputs) if isinstance(s, Matrix)]
    numbers = {i: first + n for n, i in enumerate(matrices)}
    order = (0, 1, first + len(matrices), *(numbers.get(i, -1) for i in range(len(inputs))))
    reason = _why_turned(c, nr)
    if reason is None:
        return c, order, ()
    return normal(c.transposed), (1, 0, *order[2:]), (reason,)


def _why_turned(c: Contraction, nr: int) -> tuple[str, str] | None:
    """What of the product as it is given is worse than of its transpose, whose panels have `nr` columns too."""
    if isinstance(c.b.values, Panels) or c.by_block or c.b.values.windows:
        return None
    if c.out.values.column != 1 and c.out.values.row == 1 and c.m > 1:
        return "rows of out", "its columns are contiguous; the transposed product has contiguous rows"
    if c.n * 4 <= nr and c.m > c.n:
        return "lanes over N", f"N = {c.n} would fill {c.n} of {nr} lanes; transposed, lanes run over M"
    return None


def form_of(inner: Inner, isa: Isa, caches: Caches, sizes: Sizes, given: Overrides) -> tuple[str, Reasons]:
    """The form that was asked for, where there is anything to sum, else the one for the operands."""
    if given.form is None or not inner.c.k:
        return forms.form_for(inner, isa, caches, sizes.a_bytes, given.blocks.mc if given.blocks else None)
    forms.check_sums(inner, given.form)
    return given.form, ()


def for_form(inner: Inner, form: str, name: str | None) -> tuple[Inner, Reasons]:
    """The same sums by another engine where nothing looks at b before the form uses it; `name` is that of the engine
    that was asked for, whose words are then kept."""
    if form != STREAMED or not inner.checked:
        return inner, ()
    reason = "b is read once, where it lies: nothing has looked for subnormals in it before"
    engine = engines.FMA32 if name is None else inner.engine.safe
    return Inner.of(inner.c, engine), ((inner.engine.name, reason),)


def tile_of(
    inner: Inner, form: str, isa: Isa, row: Tuned, given: Overrides, machine: Machine = DEFAULT
) -> tuple[Tile, Reasons]:
    """The row's tile, or where B is packed for this product alone the machine's for that, or a narrower one whose
    panels B fills better; pairs of floats need the chains of the wide one, and what was measured or asked for stays."""
    engine, n, tile = inner.engine, inner.c.n, given.tile or row.tile
    # Packing panels of few columns takes nearly as long as of many.
    if has_windows(inner.c) or engine.takes_tiles:
        return tile, ()
    if inner.runs:
        is_short = engine.sums_blocks and inner.runs.is_short
        is_equal = engine.sums_blocks and inner.runs.words > 0
        if given.tile is None and is_equal and tile == machine.blocks and machine.equal_blocks is not None:
            return machine.equal_blocks, ()
        low = tiles.with_sums_of_blocks(tile, isa, tiles.SHORT if is_short else None)
        if not given.tile and (engine.sums_blocks or low.mr * low.nv >= tiles.CHAINS):
            tile = low
    is_free = given.tile is None and tile == tiles.tile_for(isa) and form in (FUSED, STAGED)
    if not is_free or isinstance(inner.c.b.values, Panels) or not (engine.exact or engine.depth == 1):
        return tile, ()
    lanes, wide = engine.lanes(isa), machine.staged
    if wide is not None and form == STAGED and engine.word is float32 and lanes == WIDE_LANES and wide.fits(isa):
        usual = f"MR {tile.mr} NR {tile.nv * lanes}"
        if -n % (wide.nv * lanes) <= -n % lanes:
            return wide, ((usual, "B is packed first, for this product alone"),)
    slower = machine.four_wide and isa.lanes >= WIDE_LANES
    found = tiles.narrow_for(n, tile, lanes, isa, n // _NARROW_PART if slower else 0)
    if found == tile:
        return tile, ()
    nr = tile.nv * lanes
    return found, ((f"MR {tile.mr} NR {nr}", f"N = {n} would fill {n} of {-(-n // nr) * nr} columns"),)


def blocks_for(inner: Inner, form: str, mr: int, sizes: Sizes, caches: Caches) -> Blocks:
    """KC as long as K allows, in equal parts, MC what then fits `sizes.a_bytes`; all of M as one block while KC stays
    long enough. Where B is packed on the way KC is short, so that more panels can be packed together; but where it runs
    down K (`form.runs_down`) KC is how long memory is read without a jump, and worth a block of A from a further cache,
    `caches.down_blocks` times as large; it is that of few rows while all of A takes at most `caches.down_all` bytes,
    and short too where B comes from a cache (`caches.down_cached`). Where panels are made before C is visited, all of K
    is one block if that leaves a block of A rows enough (`caches.whole`). Where B is read as it lies, and weights are,
    KC is how long memory is read too (`caches.kc_streamed`). Windows are packed a chunk at a time, whatever KC is. A
    block of C that is kept in scratch needs no more than a few micropanels of `mr` rows.

    512 x 3072, packed: 108 GFLOP/s with KC 1024 and 111 with 768 at K = 768; 128 x 768: 111 with 512, 113 with 768.
    Scales of short blocks leave a panel of B room in the first cache only with KC 128, which does not pay for visiting
    C twice as often (NVFP4, 1024 cubed: 5.8 ms by MC 64 KC 256, 6.0 by MC 64 and 96 KC 128; 4096 cubed: the same).
    """
    m, size, is_fused = inner.c.m, inner.engine.word.size_bytes, form == FUSED
    elements, is_plain = sizes.a_bytes // size, inner.engine.word is float32 and not inner.runs
    if inner.engine.takes_tiles and m > mr:
        longest, least = (sizes.kc, 1) if inner.runs else (TILED_BLOCK if is_fused else sizes.kc, TILED_BLOCK)
        parts = max(1, -(-inner.steps // longest))
        kc = max(1, -(-inner.steps // (parts * inner.chunk))) * inner.chunk
        return Blocks(elements // max(kc, least), _ALL, kc)
    short = caches.kc_fused if is_fused and is_plain and m <= caches.fused_rows else KC_LEAST
    if has_windows(inner.c):
        longest = max(KC_LEAST, caches.windows_blocks * elements // max(m, 1) // KC_LEAST * KC_LEAST)
        parts = max(1, -(-inner.steps // longest))
        kc = max(1, -(-inner.steps // (parts * KC_LEAST))) * KC_LEAST
        return Blocks(caches.windows_blocks * elements // KC_LEAST, _ALL, kc)
    if is_fused and not runs_down(inner.c):
        return Blocks(elements // short, _ALL, short)
    if is_fused and is_plain and forms.is_cached(inner.c, inner.engine, caches):
        kc = short if inner.steps * inner.c.n * size <= caches.near else KC_LEAST
        return Blocks(elements * caches.down_blocks // kc, _ALL, kc)
    longer = (caches.kc_streamed,) if form in (FUSED, STREAMED, DECODED) else ()
    lengths = [max(1, kc * float32.size_bytes // size) for kc in (*longer, sizes.kc_few_rows, sizes.kc)]
    room = caches.down_all // size if is_fused else elements
    longest = next((kc for kc in lengths if m * kc <= room), lengths[-1])
    if not is_fused and m * KC_LEAST <= elements:
        longest = min(longest, elements // max(m, 1) // KC_LEAST * KC_LEAST)
    if not is_fused and is_kept(inner):
        longest = max(longest, elements // (caches.kept_panels * mr) // KC_LEAST * KC_LEAST)
    held = elements * (caches.down_blocks if is_fused else 1)
    if is_fused and is_plain and 0 < inner.steps <= caches.down_whole:
        longest = inner.steps
    if form in (STAGED, PACKED) and is_plain and longest < inner.steps <= caches.whole // size // _WHOLE_ROWS:
        longest, held = inner.steps, caches.whole // size
    parts = max(1, -(-inner.steps // longest))
    kc = max(1, -(-inner.steps // (parts * KC_LEAST))) * KC_LEAST
    return Blocks(held // kc, _ALL, kc)


def is_kept(inner: Inner) -> bool:
    """Whether sums wait in scratch between blocks of K, as out is no place for them."""
    c = inner.c
    return c.out.values.column != 1 or c.in_place or c.out.dtype is not inner.engine.total


@dataclass(frozen=True, slots=True)
class Cut:
    """How C and K are cut up; the fields are those of `Choice`."""

    rows: Micropanels
    wide: int
    kc: int
    in_scratch: bool
    rounds: int
    m_blocks: int
    n_step: int
    group: int
    parts: int
    part_steps: int


def cut_up(
    inner: Inner, form: str, tile: Tile, isa: Isa, threads: int, sizes: Sizes, caches: Caches, given: Overrides
) -> Cut:
    """Cache blocks, rounds of packing, and tasks of C and of K."""
    c, engine, chunk = inner.c, inner.engine, inner.chunk
    blocks = given.blocks or blocks_for(inner, form, tile.mr, sizes, caches)
    kc = chunk * max(1, blocks.kc // chunk)
    rows, nr = (tiles.cut_whole if engine.takes_tiles else tiles.cut)(c.m, tile.mr), tile.nv * engine.lanes(isa)
    wide, panels = 1 if inner.runs or engine.takes_tiles else tiles.columns(rows.heights[0], tile, isa), -(-c.n // nr)
    walks, batch = -(-panels // wide), math.prod(c.batch)
    in_scratch = is_kept(inner) and inner.steps > kc
    walk_bytes = size_words(engine, c.k, nr) * engine.word.size_bytes * batch * wide
    rounds = rounds_of(c, walks, walk_bytes, sizes, caches) if form == STAGED else 1
    in_a_round = min(panels, -(-walks // rounds) * wide)
    if form == STREAMED:
        m_blocks, n_step = 1, tasks.strip(c, isa, engine, inner.words[1], panels, threads, nr, caches)
    else:
        kept_bytes = engine.total.size_bytes if in_scratch else 0
        m_blocks, n_step = tasks.blocks_of(
            c, rows, in_a_round, wide, threads, form == FUSED, blocks.mc, blocks.nc // nr, nr, kept_bytes, caches.kept
        )
    group = group_of(c, engine, kc, nr, n_step, wide, caches) if form == FUSED else wide
    of_all_k = batch * m_blocks * -(-in_a_round // n_step)
    parts, part_steps = tasks.parts(c, engine, inner.words[0], threads, of_all_k, chunk, panels * nr)
    return Cut(rows, wide, kc, in_scratch, rounds, m_blocks, n_step, group, parts, part_steps)


def rounds_of(c: Contraction, walks: int, walk_bytes: int, sizes: Sizes, caches: Caches) -> int:
    """In how many rounds panels are staged, `walk_bytes` of them for each walk across: each round a part of the third
    cache, unless A would be packed too often."""
    rounds = _nearest(walks * walk_bytes, caches.round)
    least = -(-walks // max(1, sizes.staged_bytes // max(1, walk_bytes)))
    return max(1, min(walks, max(least, rounds if (rounds - 1) * c.m <= c.n else 1)))


@entry
def _nearest(size_bytes: int, part_bytes: int) -> int:
    """In how many parts of about that size."""
    return max(1, round(size_bytes / part_bytes))


def group_of(c: Contraction, engine: Engine, kc: int, nr: int, n_step: int, wide: int, caches: Caches) -> int:
    """Panels of `kc` words by `nr` columns that a task packs together just before it uses them, in whole walks of
    `wide`: one where a panel's rows follow each other, as those of weights do (128 x 4096 x 4096: 191 GFLOP/s by 8, 195
    by 1), or where the machine packs panels alone that come from a cache and whose rows are whole lines (Emerald
    Rapids, float32 from memory, K = N = 4096, time of a panel alone over that of several: 40 rows 1.24, 96 rows 1.18,
    120 rows 1.08)."""
    panel_bytes = engine.word.size_bytes * kc * nr
    alone = engine.depth == 1 and nr * c.b.dtype.width_bits >= LINE_BYTES * 8
    alone = alone and engine.steps(c.k) * c.n * engine.word.size_bytes <= caches.panels_alone
    alone = alone or has_weights(c) or runs_down(c) or has_windows(c)
    several = 1 if alone else min(GROUP, caches.group // panel_bytes, n_step)
    return max(1, several // wide) * wide


def _row(c: Contraction, engine: Engine, isa: Isa, machine: Machine) -> Tuned:
    """The engine's tile and sizes, those that b's panels were packed for if there are any; words of weights are put
    into panels as wide as these have."""
    if not isinstance(c.b.values, Panels):
        return machine.row(engine, isa)
    row, nr, lanes = machine.row(engine, isa, c.b.values.nr), c.b.values.nr, engine.lanes(isa)
    is_other = has_weights(c) and nr != row.nr(engine, isa) and nr % lanes == 0
    return replace(row, tile=replace(row.tile, nv=nr // lanes)) if is_other else row


def _measured(inner: Inner, row: Tuned, isa: Isa, machine: Machine, given: Overrides) -> tuple[bool, bool, bool]:
    """Whether the engine, the tile and the sizes are those of rows that were measured."""
    c, shipped = inner.c, machine.shipped(inner.engine, isa)
    return (
        isinstance(c.b.values, Matrix) and given.engine is None and machine.prefers(inner.engine, c.a.dtype, c.b.dtype),
        given.tile is None and row.tile != shipped.tile and row.tile in [x.tile for x in machine.tuned],
        given.blocks is None and row.sizes != shipped.sizes,
    )
