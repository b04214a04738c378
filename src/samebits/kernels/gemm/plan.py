"""Which loops, blocks, tile and form a contraction runs with: pure, cached, printable.

`plan(contraction, isa, threads)` and `plan_pack(k, n, b, isa, threads, batch)`. Forms, by where B's panels come from:
`packed` (they exist), `fused` (each task packs a panel just before it uses it: B is read once where M is one block),
`in place` (few rows: B's own rows are the panels), `staged` (a step packs B first, then many blocks of M use it).
Start at `plan`; `_Choice` holds what was decided, `_steps` turns it into kernels and arguments.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, replace

from samebits.codegen.isa import Isa
from samebits.codegen.vocabulary import KernelSpec
from samebits.dtypes import float32
from samebits.errors import PlanError, message
from samebits.kernels.gemm import epilogue, pack, packed, tiles
from samebits.kernels.gemm.contraction import Contraction, Immediate, Matrix, Panels
from samebits.kernels.gemm.macrokernel import IN_PLACE, PACKED, Macrokernel, macrokernel
from samebits.kernels.gemm.normal import normal
from samebits.kernels.gemm.tiles import Rows, Tile
from samebits.kernels.plan import Operand, Plan, Step

_FLOAT = 4
_LINE = 64


# A block of A stays in the second cache (1 MB here, 512 KB on smaller cores) beside the micropanel of B and the tile of C.
_A_BYTES = 384 * 1024
# Longer KC means fewer visits to C, which miss where its rows are a power of two apart: at 2048 cubed 101.0, 102.7 and
# 104.1 GFLOP/s for KC 256, 512 and 1024 with a block of A of equal size.
_KC, _KC_LEAST = 1024, 256


@dataclass(frozen=True, slots=True)
class Blocks:
    """Cache blocks: at most `mc` rows and `nc` columns of C a task, `kc` of K at a time (rounded to whole chunks)."""

    mc: int
    nc: int
    kc: int


def blocks_for(c: Contraction) -> Blocks:
    """KC as long as K allows, MC what then fits `_A_BYTES`; all of M as one block while KC stays long enough."""
    kc = min(_KC, -(-max(c.k, 1) // _KC_LEAST) * _KC_LEAST)
    while c.m * kc > _A_BYTES // _FLOAT and c.m * _KC_LEAST <= _A_BYTES // _FLOAT and kc > _KC_LEAST:
        kc //= 2
    return Blocks(_A_BYTES // (_FLOAT * kc), 1 << 40, kc)


@dataclass(frozen=True, slots=True)
class _Choice:
    """Everything decided: `m_step` micropanels and `n_step` panels a task."""

    c: Contraction
    order: tuple[int, ...]
    isa: Isa
    threads: int
    tile: Tile
    rows: Rows
    wide: int
    kc: int
    form: str
    m_step: int
    n_step: int
    in_scratch: bool
    staged_panels: int
    rejected: tuple[tuple[str, str], ...]

    @property
    def nr(self) -> int:
        """Columns of a panel."""
        return self.tile.nr(self.isa)

    @property
    def panels(self) -> int:
        """Panels of B."""
        return -(-self.c.n // self.nr)

    @property
    def pitch(self) -> int:
        """Elements between rows of a packed block of A: a line more than KC, or rows would share a cache set."""
        return self.kc + max(_LINE // _FLOAT, self.isa.lanes)


@functools.lru_cache(maxsize=4096)
def plan(
    c: Contraction, isa: Isa, threads: int = 1, *, tile: Tile | None = None, form: str | None = None,
    blocks: Blocks | None = None,
) -> Plan:  # fmt: skip
    """How `c` runs on `isa` with `threads`.

    Args:    c: the contraction; operands of the plan are those of `c.operands`, in order.
             tile, form, blocks: instead of the measured ones. No choice changes a bit.
    Raises:  PlanError if b's panels are not this row's, or the form cannot be had.
    """
    choice = _choose(c, isa, threads, tile or tiles.tile_for(isa), form, blocks)
    steps, scratch, workspace = _steps(choice) if min(c.m, c.n, *c.batch, 1) else ((), 0, 0)
    return Plan(
        what=str(c), isa=isa, threads=threads, steps=steps, operands=c.operands, scratch_bytes=scratch,
        workspace_bytes=workspace, facts=_facts(choice), rejected=choice.rejected,
    )  # fmt: skip


def _choose(
    described: Contraction, isa: Isa, threads: int, tile: Tile, form: str | None, blocks: Blocks | None
) -> _Choice:
    """Orientation, tile, form and blocks."""
    rejected: list[tuple[str, str]] = []
    c, order = _orient(normal(described), tile.nr(isa), rejected)
    nr = tile.nr(isa)
    if isinstance(c.b, Panels) and c.b.nr != nr:
        raise PlanError(
            message("matmul", "b", "panel width", c.b.nr, f"{nr} on Isa row {isa.name}", "pack it again with pack()")
        )
    rows = tiles.cut(c.m, tile.mr)
    wide = tiles.columns(rows.heights[0], tile, isa)
    blocks = blocks or blocks_for(c)
    kc = c.spec.chunk * max(1, blocks.kc // c.spec.chunk)
    panels = -(-c.n // nr)
    form = form or _form(c, blocks, rejected)
    in_scratch = (c.out.column != 1 or c.in_place or c.out.dtype is not float32) and c.k > kc
    m_step = max(1, blocks.mc // rows.heights[0])
    n_step = max(1, min(panels, blocks.nc // nr))
    if in_scratch:
        n_step = max(1, min(n_step, 16 * wide))
    if form == "staged" and threads > 1:
        m_step = min(m_step, max(1, -(-rows.panels // (threads * 2))))
    m_blocks = -(-rows.panels // m_step)
    m_step = max(1, -(-rows.panels // max(m_blocks, 1)))
    batches = math.prod(c.batch)
    wanted = threads * 2 if threads > 1 else 1
    if m_blocks * batches < wanted:
        pieces = -(-wanted // max(m_blocks * batches, 1))
        n_step = min(n_step, max(1, -(-panels // pieces)))
    n_step = -(-n_step // wide) * wide
    return _Choice(
        c=c, order=order, isa=isa, threads=threads, tile=tile, rows=rows, wide=wide, kc=kc, form=form, m_step=m_step,
        n_step=n_step, in_scratch=in_scratch, staged_panels=panels, rejected=tuple(rejected),
    )  # fmt: skip


def _orient(c: Contraction, nr: int, rejected: list[tuple[str, str]]) -> tuple[Contraction, tuple[int, ...]]:
    """c or its transpose, and the plan's operand numbers of (a, b, out) and of the sources."""
    matrices = [i for i, s in enumerate(c.sources) if isinstance(s, Matrix)]
    sources = {i: 2 + n for n, i in enumerate(matrices)}
    order = (0, 1, 2 + len(matrices), *(sources.get(i, -1) for i in range(len(c.sources))))
    if isinstance(c.b, Matrix):
        if c.out.column != 1 and c.out.row == 1 and c.m > 1:
            rejected.append(("rows of out", "its columns are contiguous; the transposed product has contiguous rows"))
            return _unit(c.transposed), (1, 0, *order[2:])
        if c.n * 4 <= nr and c.m > c.n:
            rejected.append(("lanes over N", f"N = {c.n} would fill {c.n} of {nr} lanes; transposed, lanes run over M"))
            return _unit(c.transposed), (1, 0, *order[2:])
    return c, order


def _unit(c: Contraction) -> Contraction:
    return normal(replace(c))


def _form(c: Contraction, blocks: Blocks, rejected: list[tuple[str, str]]) -> str:
    """Where B's panels come from."""
    if isinstance(c.b, Panels):
        return PACKED
    if c.m <= blocks.mc or not c.k:
        rejected.append(("staged", f"all {c.m} rows are one block: nothing would use packed B again"))
        return "fused"
    rejected.append(("fused", f"{c.m} rows are several blocks, and each would pack B again"))
    return "staged"


def _round(size: int) -> int:
    return -(-size // _LINE) * _LINE


def _steps(x: _Choice) -> tuple[tuple[Step, ...], int, int]:
    """(steps, scratch bytes, workspace bytes)."""
    c, nr = x.c, x.nr
    steps: list[Step] = []
    workspace = 0
    b_operand, b_batch = Operand(x.order[1]), c.b.batch
    if x.form == "staged":
        assert isinstance(c.b, Matrix)
        number = 3 + sum(1 for s in c.sources if isinstance(s, Matrix))
        step, b_batch, workspace = _pack_step(c.b, c.k, c.n, c.batch, nr, x.isa, Operand(x.order[1]), Operand(number))
        steps.append(step)
        b_operand = Operand(number)
    sources = tuple(epilogue.source_class(s) for s in c.sources)
    kind = PACKED if x.form in (PACKED, "staged") else IN_PLACE if x.form == IN_PLACE else pack.kind(_matrix(c.b))
    d = Macrokernel(
        heights=x.rows.heights, wide=x.wide, nv=x.tile.nv, kc=x.kc, pitch=x.pitch, chunk=c.spec.chunk,
        a=pack.kind(c.a), b=kind, batch_rank=len(c.batch), in_scratch=x.in_scratch,
        out=epilogue.ROW if c.out.column == 1 else epilogue.STRIDED, expression=c.epilogue, sources=sources,
    )  # fmt: skip
    height = x.m_step * x.rows.heights[0]
    scratch_b = _round(height * x.pitch * _FLOAT) + _LINE
    scratch_c = scratch_b + _round(x.wide * x.kc * nr * _FLOAT) + _LINE
    scratch_s = scratch_c + _round(height * nr * (x.n_step if x.in_scratch else 1) * _FLOAT)
    scratch = scratch_s + _round(len(sources) * 8)
    m_blocks, n_blocks = -(-x.rows.panels // x.m_step), -(-x.panels // x.n_step)
    values: dict[str, int | Operand] = {
        "a": Operand(x.order[0]), "b": b_operand, "out": Operand(x.order[2]), "m_panels": x.rows.panels,
        "tall": x.rows.tall, "n": c.n, "k": c.k, "m_step": x.m_step, "n_step": x.n_step, "m_blocks": m_blocks,
        "n_blocks": n_blocks, "first": 0, "a_row": c.a.row, "a_column": c.a.column,
        "b_row": c.b.row if isinstance(c.b, Matrix) else 0, "b_column": c.b.column if isinstance(c.b, Matrix) else 0,
        "out_row": c.out.row, "out_column": c.out.column,
        "scratch_b": scratch_b, "scratch_c": scratch_c, "scratch_s": scratch_s,
    }  # fmt: skip
    moving = {"a": c.a.batch, "b": b_batch, "out": c.out.batch}
    for i, s in enumerate(c.sources):
        if isinstance(s, Immediate):
            values[f"s{i}"] = s.code
        else:
            values |= {f"s{i}": Operand(x.order[3 + i]), f"s{i}_row": s.row, f"s{i}_column": s.column}
            moving[f"s{i}"] = s.batch
    for dimension, extent in enumerate(c.batch):
        values[f"batch{dimension}"] = extent
        values |= {f"{name}_batch{dimension}": batch[dimension] for name, batch in moving.items()}
    spec = KernelSpec(macrokernel, d, d.parameters, x.isa)
    tasks = math.prod(c.batch) * m_blocks * n_blocks
    steps.append(Step(spec, tasks, tuple(values[name] for name in d.parameters)))
    return tuple(steps), scratch, workspace


def _matrix(b: Matrix | Panels) -> Matrix:
    assert isinstance(b, Matrix)
    return b


def _pack_step(
    b: Matrix, k: int, n: int, batch: tuple[int, ...], nr: int, isa: Isa, source: Operand, target: Operand, *,
    every: bool = False,
) -> tuple[Step, tuple[int, ...], int]:
    """(the step that packs b, the batch strides of its panels, their bytes); a repeated batch is packed once, unless
    `every` batch is wanted."""
    panels, size = -(-n // nr), packed.size_elements(k, n, nr)
    strides, distinct = [0] * len(batch), []
    for d in reversed(range(len(batch))):
        if b.batch[d] or every:
            strides[d] = size
            size *= batch[d]
            distinct.insert(0, d)
    d = pack.PackPanels(pack.kind(b), nr, len(distinct))
    values: dict[str, int | Operand] = {
        "x": source, "out": target, "k": k, "n": n, "row": b.row, "column": b.column, "panels": panels, "first": 0,
    }  # fmt: skip
    for i, dimension in enumerate(distinct):
        values |= {
            f"batch{i}": batch[dimension], f"x_batch{i}": b.batch[dimension], f"out_batch{i}": strides[dimension],
        }  # fmt: skip
    tasks = panels * math.prod(batch[i] for i in distinct)
    spec = KernelSpec(pack.pack_panels, d, d.parameters, isa)
    return Step(spec, tasks, tuple(values[name] for name in d.parameters)), tuple(strides), size * _FLOAT


def _facts(x: _Choice) -> tuple[tuple[str, str], ...]:
    return (
        ("tile", f"MR {x.tile.mr} NR {x.nr}, heights {list(x.rows.heights)}, {x.wide} panels wide"),
        ("blocks", f"MC {x.m_step * x.rows.heights[0]} KC {x.kc} NC {x.n_step * x.nr}"),
        ("form", x.form),
    )


@functools.lru_cache(maxsize=1024)
def plan_pack(k: int, n: int, b: Matrix, isa: Isa, threads: int = 1, batch: tuple[int, ...] = ()) -> Plan:
    """How b[batch..., k, n] is packed once for `Panels`: operands b, panels (`packed_elements` of float32)."""
    nr = tiles.tile_for(isa).nr(isa)
    strided = replace(b, column=1) if n == 1 else b
    step, _, size_bytes = _pack_step(strided, k, n, batch, nr, isa, Operand(0), Operand(1), every=True)
    return Plan(
        what=f"pack b[{k},{n}] batch {list(batch)}", isa=isa, threads=threads, steps=(step,) if size_bytes else (),
        operands=("b", "panels"), facts=(("panels", f"{-(-n // nr)} of {k} x {nr}"), ("kind", pack.kind(strided))),
    )  # fmt: skip


def packed_elements(k: int, n: int, isa: Isa, batch: tuple[int, ...] = ()) -> int:
    """Elements that `plan_pack` writes; a panel has `tiles.tile_for(isa).nr(isa)` columns."""
    return math.prod(batch) * packed.size_elements(k, n, tiles.tile_for(isa).nr(isa))
