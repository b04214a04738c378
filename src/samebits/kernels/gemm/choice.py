"""The choices of a plan: orientation, engine, tile, form, cache blocks; `tasks` says how threads share the work.

`choose` is pure; what it did not take it lists with the reason. Every choice gives the same bits.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from samebits.codegen.isa import Isa
from samebits.dtypes import DType, float32, float64, int8, int16
from samebits.errors import OptionError, PlanError
from samebits.kernels.gemm import checks, tasks, tiles
from samebits.kernels.gemm import engine as engines
from samebits.kernels.gemm.contraction import Contraction, Matrix, Panels, Spec
from samebits.kernels.gemm.engine import FMA32, Engine
from samebits.kernels.gemm.macrokernel import DECODED, PACKED
from samebits.kernels.gemm.microkernel import MOST_ASKS, UNROLL
from samebits.kernels.gemm.normal import normal
from samebits.kernels.gemm.pack import COPIED_VECTORS, kind
from samebits.kernels.gemm.strip import FEW_HALVES, StripWalk
from samebits.kernels.gemm.tiles import Micropanels, Tile
from samebits.kernels.gemm.tuned import SHIPPED, Sizes, Tuned, row_for
from samebits.kernels.gemm.words import Words
from samebits.kernels.plan import LINE_BYTES

FUSED, STAGED, STREAMED = "fused", "staged", "streamed"
FORMS = (PACKED, DECODED, STREAMED, FUSED, STAGED)
# Up to so many rows packed weights are converted in the microkernel, beyond beforehand: for bfloat16 pairs, for fma.
# K = N = 4096 in ms, in the microkernel and before: pairs 8 rows 3.2 3.6, 12 rows 4.3 4.3, 16 rows 6.0 4.9; fma 64 rows
# 22.7 23.3, 256 rows 97.0 92.5.
_DECODED_ROWS, _DECODED_FMA_ROWS = 12, 96
_KC_LEAST = 256
# Words of a chunk of integers: any number gives the same sums. Adding them up is 1 % of the time.
_EXACT_WORDS = 512
# Where B's columns are contiguous, a panel of all of K is one run of memory, and C is visited once: worth a block of A
# of so many times the second cache's part, which comes from the third (128 x 4096 x 4096, GFLOP/s: bfloat16 by KC
# 768 and 2048 194 and 206, float32 by 768 and 4096 97 and 100).
_DOWN = 12
# Up to so many rows that also pays where they are a few such blocks and each packs B again: panels of all of B would
# leave the caches (GFLOP/s, staged and fused: 512 x 4096 x 4096 of bfloat16 195 and 208, 512 x 3072 x 768 of float32 97
# and 103; but 1024 cubed of float32 106 and 104, 2048 cubed of bfloat16 210 and 202).
_DOWN_ROWS = 640
# Micropanels of a block of A where C would be kept in scratch between blocks of K: fewer visits to it pay for reading B
# more often (512 x 3072 x 768 of bfloat16, packed, KC 768 with MC 132: 205 GFLOP/s, KC 1536 with MC 60: 213).
_FEW_PANELS = 4
# Staged panels of B that stay in the third cache until they are used; half as much again does too.
_ROUND_BYTES = 8 * 1024 * 1024
# Up to so many rows B is read where it lies: packing it would cost more than the sums (24 x 4096 x 4096: 6.6 GB/s of B
# streamed and 4.7 packed on the way). Where a word holds several elements packing pays sooner.
_STREAMED_ROWS, _STREAMED_ALWAYS = 24, 8
# Streamed bfloat16 takes the steps of float32, as nothing has looked at it: where columns are turned anyway, packing
# costs little more (packed over streamed at M = 4 and 8: 3072 x 768 1.12 1.19, 768 x 3072 1.07 1.04, 4096 x 4096 1).
_STREAMED_CHECKED = FEW_HALVES
# Streamed sums cost each row the same for any K, and what they save grows with K: so many words along K pay for a row,
# where rows of B are contiguous and where columns are. Time packed over streamed, uint8 x int8, N = 1024, at M = 2, 4
# and 8: rows, K = 64: 1.06 1.01 0.88; columns, K = 64: 0.63 0.38 0.25, K = 512: 1.28 1.17 0.88, 2048: 1.87 1.66 1.24.
_ROW_WORDS, _COLUMN_WORDS = 5, 20
# Up to so many elements of B the sums of its columns cost less than a step for those of A's rows (int8, time with the
# step over without at M = 4: K = N = 64: 1.32, K = N = 256: 1.02, K = 256 and N = 1024: 0.90).
_SUMMED = 1 << 16
# More rows than always may turn squares of B as often, once for as many rows as registers hold.
_TURNED = 2
# Panels that are packed together just before their use, and what they may take of the second cache.
GROUP, _GROUP_BYTES = 8, 256 * 1024


@dataclass(frozen=True, slots=True)
class Blocks:
    """Cache blocks: at most `mc` rows and `nc` columns of C a task, `kc` of K at a time (rounded to whole chunks)."""

    mc: int
    nc: int
    kc: int


@dataclass(frozen=True, slots=True)
class Choice:
    """Everything decided. Along K all but `c.k` counts words of the engine. `order` holds the plan's operand numbers of
    a, b, out and each source; a task is one of the `m_blocks` equal blocks of M, `n_step` panels, and one of the
    `parts` of K, `part_steps` each; B is packed in `rounds`. `tuned`: whether the tile and the sizes of blocks are a
    measured row's."""

    c: Contraction
    order: tuple[int, ...]
    isa: Isa
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
    form: str
    m_blocks: int
    n_step: int
    rounds: int
    in_scratch: bool
    parts: int
    part_steps: int
    tuned: tuple[bool, bool]
    rejected: tuple[tuple[str, str], ...]

    @property
    def nr(self) -> int:
        """Columns of a panel."""
        return self.tile.nv * self.engine.lanes(self.isa)

    @property
    def panels(self) -> int:
        """Panels of B."""
        return -(-self.c.n // self.nr)

    @property
    def ranges(self) -> list[range]:
        """The panels of each round."""
        walks = -(-self.panels // self.wide)
        edges = [min(self.panels, walks * i // self.rounds * self.wide) for i in range(self.rounds + 1)]
        return [range(*edge) for edge in itertools.pairwise(edges)]

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
        z = self.c.zeros
        return z[0] is not None, z[1] is not None or self.words[1].offset != 0

    @property
    def asks(self) -> int:
        """Lines of what is read next that each micropanel asks for in a turn, so that together they ask for all: one,
        or as many as the microkernel can (K = N = 4096, packed, M = 16 and 32: float32 90 to 100 and 97 to 106 GFLOP/s,
        uint8 x int8 389 to 432 and 406 to 438 GOP/s; 8 would be slower)."""
        right = self.words[1]
        size = right.pointer.size_bytes * right.depth if self.form in (FUSED, DECODED) else self.engine.word.size_bytes
        lines = self.nr * size * UNROLL // LINE_BYTES
        return 1 if lines <= self.m_step else MOST_ASKS

    @property
    def pitch(self) -> int:
        """Words between rows of A within a chunk: it in whole copies, and a line, or rows would share a set."""
        width = COPIED_VECTORS * self.engine.lanes(self.isa)
        return -(-self.chunk // width) * width + LINE_BYTES // self.engine.word.size_bytes


def size_words(engine: Engine, k: int, columns: int) -> int:
    """Words of panels of `columns` columns in all, with their facts."""
    return (engine.steps(k) + engine.has_facts) * columns


def words_of(engine: Engine, a: DType, b: DType) -> tuple[Words, Words]:
    """How elements of A and of B become the engine's words."""
    pairs = ((engine.a, a), (engine.b, b))
    return tuple(Words(x, e, engines.offset(e, x), engine.depth, engine.word) for e, x in pairs)  # type: ignore[return-value]


def choose(
    described: Contraction, isa: Isa, threads: int, tile: Tile | None, form: str | None, blocks: Blocks | None,
    name: str | None = None, tuned: Sequence[Tuned] = (),
) -> Choice:  # fmt: skip
    """What `described` runs with; `tile`, `form`, `blocks` and the engine called `name` overrule the measured ones."""
    rejected: list[tuple[str, str]] = []
    width = described.b.nr if isinstance(described.b, Panels) else None
    engine = _engine(described, isa, [], name, form)
    row = row_for(engine, isa, tuned, width)
    c, order = _orient(normal(described), (tile or row.tile).nv * engine.lanes(isa), rejected)
    engine = _engine(c, isa, rejected, name, form)
    row = row_for(engine, isa, tuned, width)
    measured = tile is None and row.tile != tiles.tile_for(isa), blocks is None and row.sizes != SHIPPED
    is_free = tile is None and row.tile == tiles.tile_for(isa)
    tile, sizes = tile or row.tile, row.sizes
    nr = tile.nv * engine.lanes(isa)
    checks.check_operands(c, nr, isa, engine)
    _check_form(c, form, engine)
    checks.check_blocks(c, engine)
    words = words_of(engine, c.a.dtype, c.b.dtype)
    if engine.exact:
        total = engines.total_of(c.a.dtype, c.b.dtype, c.k, (c.zeros[0] is not None, c.zeros[1] is not None))
        # The order is free, so chunks are long, while their sums fit their lanes.
        chunk = min(_EXACT_WORDS * engine.depth, engines.LONGEST_CHUNK)
        engine, c = replace(engine, total=total), replace(c, spec=Spec(chunk))
    checks.check_dtypes(c, engine)
    steps, size = engine.steps(c.k), engine.word.size_bytes
    chunk = _chunk(c, engine)
    # Sums of b's columns are there before they are needed if B was packed before, or all of K is.
    needs_sums = bool(c.k) and (c.zeros[0] is not None or (words[0].offset != 0 and steps > chunk))
    if form is None or not c.k:
        form = _form(c, isa, engine, words, blocks, size, sizes, needs_sums, rejected)
    elif form == FUSED and needs_sums:
        expected = "one that packs b first, as the zero points of a need"
        raise OptionError("plan", "form", "", repr(form), expected, "leave it away")
    if form == STREAMED and _checked(c, engine):
        rejected.append((engine.name, "b is read once, where it lies: nothing has looked for subnormals in it before"))
        engine = engines.FMA32 if name is None else engine.safe
        words, steps, size = words_of(engine, c.a.dtype, c.b.dtype), engine.steps(c.k), engine.word.size_bytes
        nr, chunk = tile.nv * engine.lanes(isa), _chunk(c, engine)
    if is_free and form in (FUSED, STAGED):
        tile = _tile(c, tile, engine, isa, rejected)
        nr = tile.nv * engine.lanes(isa)
    kept = c.out.column != 1 or c.in_place or c.out.dtype is not engine.total
    blocks = blocks or blocks_for(c.m, steps, form, size, sizes, _runs_down(c), _FEW_PANELS * tile.mr if kept else 0)
    kc = chunk * max(1, blocks.kc // chunk)
    rows = tiles.cut(c.m, tile.mr)
    wide = tiles.columns(rows.heights[0], tile, isa)
    panels = -(-c.n // nr)
    walks, batch = -(-panels // wide), math.prod(c.batch)
    in_scratch = kept and steps > kc
    rounds = _rounds(c, walks, size_words(engine, c.k, nr) * size * batch * wide, sizes) if form == STAGED else 1
    in_a_round = min(panels, -(-walks // rounds) * wide)
    if form == STREAMED:
        m_blocks, n_step = 1, tasks.strip(c, isa, engine, words[1], panels, threads, nr)
    else:
        kept_bytes = engine.total.size_bytes if in_scratch else 0
        m_blocks, n_step = tasks.blocks_of(
            c, rows, in_a_round, wide, threads, form == FUSED, blocks.mc, blocks.nc // nr, nr, kept_bytes
        )
    group = wide
    if form == FUSED:
        # Panels of weights follow each other as a panel's rows do (128 x 4096 x 4096: 191 GFLOP/s by 8, 195 by 1).
        several = 1 if has_weights(c) or _runs_down(c) else min(GROUP, _GROUP_BYTES // (size * kc * nr), n_step)
        group = max(1, several // wide) * wide
    of_all_k = batch * m_blocks * -(-in_a_round // n_step)
    parts, part_steps = tasks.parts(c, engine, words[0], threads, of_all_k, chunk, panels * nr)
    return Choice(
        c=c, order=order, isa=isa, threads=threads, engine=engine, words=words,
        checked=_checked(c, engine), tile=tile, rows=rows, wide=wide,
        group=group, kc=kc, chunk=chunk, form=form, m_blocks=m_blocks, n_step=n_step, rounds=rounds,
        in_scratch=in_scratch, parts=parts, part_steps=part_steps, tuned=measured, rejected=tuple(rejected),
    )  # fmt: skip


def _tile(c: Contraction, tile: Tile, engine: Engine, isa: Isa, rejected: list[tuple[str, str]]) -> Tile:
    """A tile whose panels B, which is packed for this product alone, fills better; pairs of floats need the chains."""
    lanes = engine.lanes(isa)
    if isinstance(c.b, Panels) or not (engine.exact or engine.depth == 1):
        return tile
    found = tiles.narrow_for(c.n, tile, lanes, isa)
    if found != tile:
        nr = tile.nv * lanes
        rejected.append((f"MR {tile.mr} NR {nr}", f"N = {c.n} would fill {c.n} of {-(-c.n // nr) * nr} columns"))
    return found


def has_weights(c: Contraction) -> bool:
    """Whether b is in panels of integers that become words as they are used."""
    return isinstance(c.b, Panels) and engines.named(c.b.engine) in engines.WEIGHTS


def _engine(c: Contraction, isa: Isa, rejected: list[tuple[str, str]], name: str | None, form: str | None) -> Engine:
    """The engine of the panels, else the fastest one that takes the operands."""
    right = c.b.dtype
    # A block that is longer than a chunk ends where a chunk does.
    blocks = [c.spec.chunk if x.size >= c.k else x.size for x in c.per_block.values()]
    if isinstance(c.b, Panels):
        packed = engines.named(c.b.engine)
        if has_weights(c):
            right = int8 if right is int16 else right  # its values are differences of 8 bits, which every float holds
            if form == DECODED or (name is form is None and c.m <= _DECODED_ROWS):
                rejected.append((FUSED, f"{c.m} rows use each weight too seldom to convert it first"))
                name = FMA32.name
        else:
            name = c.b.engine
        in_float64 = float64 in (c.a.dtype, right)
        taken = c.a.dtype.is_integer == packed.exact and engines.takes(packed.a, c.a.dtype)
        if not taken or (packed is engines.FMA64) != in_float64:
            name = c.b.engine
            remedy = f"pack it again with left={c.a.dtype.name!r}"
            raise PlanError("matmul", "b", "engine", repr(name), f"one for {c.a.dtype.name}", remedy)
        if not packed.exact and c.spec.chunk % packed.depth:
            expected, remedy = f"one for chunks of {c.spec.chunk}", "pack it again with left='float32'"
            raise PlanError("matmul", "b", "engine", repr(name), expected, remedy)
        if blocks and (packed.exact or any(block % packed.depth for block in blocks)):
            expected = "one for scales of blocks" if packed.exact else f"one for blocks of {min(blocks)}"
            remedy = "pass it as it is, not packed" if packed.exact else "pack it again with left='float32'"
            raise PlanError("matmul", "b", "engine", repr(c.b.engine), expected, remedy)
    few = c.m <= _STREAMED_ALWAYS and math.prod(c.batch) * c.k * c.n >= _SUMMED
    few_rows = isinstance(c.b, Matrix) and (few or form == STREAMED)
    return engines.choose(c.a.dtype, right, c.spec.chunk, isa, rejected, name, blocks, few_rows)


def _check_form(c: Contraction, form: str | None, engine: Engine) -> None:
    """Whether the form that is asked for can be had."""
    possible = [STREAMED, FUSED, STAGED]
    if isinstance(c.b, Panels):
        possible = [DECODED, FUSED, STAGED] if has_weights(c) else [PACKED]
    if form is not None and form not in possible:
        given = PACKED if isinstance(c.b, Panels) else "unpacked"
        raise OptionError("plan", "form", f"for {given} b", repr(form), f"one of {possible}", "leave it away")
    if (
        form == STREAMED
        and c.k
        and (reason := _not_streamed(c, words_of(engine, c.a.dtype, c.b.dtype), _STREAMED_ROWS))
    ):
        raise OptionError("plan", "form", "", repr(form), f"another: {reason}", "leave it away")


def blocks_for(m: int, steps: int, form: str, size: int, sizes: Sizes, runs_down: bool, least_rows: int) -> Blocks:
    """KC as long as K allows, in equal parts, MC what then fits `sizes.a_bytes`; all of M as one block while KC stays
    long enough. Where B is packed on the way KC is short, so that more panels can be packed together; but where it runs
    down K (`_runs_down`) KC is how long memory is read without a jump, and worth a block of A from the third cache
    (`_DOWN`). A block needs no more than `least_rows`.

    512 x 3072, packed: 108 GFLOP/s with KC 1024 and 111 with 768 at K = 768; 128 x 768: 111 with 512, 113 with 768.
    """
    elements = sizes.a_bytes // size
    if form == FUSED and not runs_down:
        return Blocks(elements // _KC_LEAST, 1 << 40, _KC_LEAST)
    few, many = (kc * float32.size_bytes // size for kc in (sizes.kc_few_rows, sizes.kc))
    longest = few if form == FUSED or m * few <= elements else many
    if form != FUSED and m * _KC_LEAST <= elements:
        longest = min(longest, elements // max(m, 1) // _KC_LEAST * _KC_LEAST)
    if form != FUSED and least_rows:
        longest = max(longest, elements // least_rows // _KC_LEAST * _KC_LEAST)
    parts = max(1, -(-steps // longest))
    kc = max(1, -(-steps // (parts * _KC_LEAST))) * _KC_LEAST
    return Blocks(elements * (_DOWN if form == FUSED else 1) // kc, 1 << 40, kc)


def _orient(c: Contraction, nr: int, rejected: list[tuple[str, str]]) -> tuple[Contraction, tuple[int, ...]]:
    """c or its transpose, and the plan's operand numbers of a, b, out and each source (-1: an immediate)."""
    matrices = [i for i, s in enumerate(c.sources) if isinstance(s, Matrix)]
    first = 2 + len(c.per_block)
    sources = {i: first + n for n, i in enumerate(matrices)}
    order = (0, 1, first + len(matrices), *(sources.get(i, -1) for i in range(len(c.sources))))
    if isinstance(c.b, Matrix) and not c.per_block:
        if c.out.column != 1 and c.out.row == 1 and c.m > 1:
            rejected.append(("rows of out", "its columns are contiguous; the transposed product has contiguous rows"))
            return normal(c.transposed), (1, 0, *order[2:])
        if c.n * 4 <= nr and c.m > c.n:
            rejected.append(("lanes over N", f"N = {c.n} would fill {c.n} of {nr} lanes; transposed, lanes run over M"))
            return normal(c.transposed), (1, 0, *order[2:])
    return c, order


def _form(
    c: Contraction, isa: Isa, engine: Engine, words: tuple[Words, Words], blocks: Blocks | None, size: int,
    sizes: Sizes, needs_sums: bool, rejected: list[tuple[str, str]],
) -> str:  # fmt: skip
    """Where B's panels come from."""
    if has_weights(c) and engine is FMA32 and (c.m <= _DECODED_FMA_ROWS or not c.k):
        return DECODED
    if isinstance(c.b, Panels) and not has_weights(c):
        return PACKED
    if needs_sums:
        rejected.append((FUSED, "the zero points of a need the sums of b's columns first"))
        return STAGED
    if not c.k or isinstance(c.b, Panels):
        pass
    elif reason := _not_streamed(c, words, _streamed_rows(c, engine, words, isa)):
        rejected.append((STREAMED, reason))
    else:
        rejected.append((FUSED, f"{c.m} rows use each element of B {c.m} times: packing it would cost more"))
        return STREAMED
    if c.m <= (blocks.mc if blocks else sizes.a_bytes // size // _KC_LEAST) or not c.k:
        rejected.append((STAGED, f"all {c.m} rows are one block: nothing would use packed B again"))
        return FUSED
    if not blocks and c.m <= _DOWN_ROWS and _runs_down(c):
        rejected.append((STAGED, f"{c.m} rows are few blocks: packing columns of B again costs less"))
        return FUSED
    rejected.append((FUSED, f"{c.m} rows are several blocks, and each would pack B again"))
    return STAGED


def _streamed_rows(c: Contraction, engine: Engine, words: tuple[Words, Words], isa: Isa) -> int:
    """The most rows for which B is read where it lies."""
    assert isinstance(c.b, Matrix)  # the caller looked
    most, lies = _STREAMED_ROWS if words[1].depth == 1 else _STREAMED_ALWAYS, kind(c.b)
    if lies == "transpose":
        most = min(most, max(_STREAMED_ALWAYS, _TURNED * StripWalk.highest(isa.lanes, isa)))
        most = _STREAMED_CHECKED if _checked(c, engine) else most
    if c.a.dtype.is_integer and c.b.dtype.is_integer:
        paid = -(-c.k // words[1].depth) // (_ROW_WORDS if lies == "copy" else _COLUMN_WORDS)
        most = min(most, max(1, paid))
    return most


def _not_streamed(c: Contraction, words: tuple[Words, Words], most: int) -> str | None:
    """Why B cannot be read where it lies, or should not be for more rows than `most`."""
    assert isinstance(c.b, Matrix)  # the caller looked
    if c.m > most:
        return f"{c.m} rows use each element of B more than {most} times: packing it pays"
    if c.zeros[0] is not None or words[0].offset:
        return "the zero points of a need the sums of b's columns first"
    if c.per_block:
        return "blocks of b share scales or zero points, which are kept in panels"
    return "neither rows nor columns of b are contiguous" if kind(c.b) == "gather" else None


def _rounds(c: Contraction, walks: int, walk_bytes: int, sizes: Sizes) -> int:
    """In how many rounds panels are staged, `walk_bytes` of them for each walk across: each round a part of the third
    cache, where packing A again for it costs less than panels that go through memory (512 x 4096 x 4096 of bfloat16:
    198 and 203 GFLOP/s)."""
    rounds = max(1, round(walks * walk_bytes / _ROUND_BYTES))
    least = -(-walks // max(1, sizes.staged_bytes // max(1, walk_bytes)))
    return max(1, min(walks, max(least, rounds if (rounds - 1) * c.m <= c.n else 1)))


def _runs_down(c: Contraction) -> bool:
    """Whether b's columns are contiguous, so that packing reads long runs along K and only a panel at a time: 16 runs
    side by side, 8 KB apart, come with 9 GB/s from memory where they are of 1 KB, of 8 KB with 36."""
    return isinstance(c.b, Matrix) and kind(c.b) == "transpose"


def _checked(c: Contraction, engine: Engine) -> bool:
    """Whether elements must be looked at before the engine may run."""
    return engine.is_guarded and engines.must_check(c.a.dtype, c.b.dtype)


def _chunk(c: Contraction, engine: Engine) -> int:
    """Words of a chunk; one longer than K is as long as K, rounded, so that kernels are shared."""
    return min(c.spec.chunk // engine.depth, -(-max(engine.steps(c.k), 1) // _KC_LEAST) * _KC_LEAST)
