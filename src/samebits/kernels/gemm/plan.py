"""Plans of contractions: pure, cached, printable.

`plan(contraction, isa, threads)` and `plan_pack(k, n, b, isa, threads, batch)`. Forms, by where B's panels come from:
`packed` (they exist), `fused` (each task packs a panel just before it uses it: B is read once where M is one block),
`in place` (few rows: B's own rows are the panels), `staged` (a step packs B first, then many blocks of M use it).
Start at `plan`; `choice.choose` decides, `_Lowering` turns that into kernels and their arguments.
"""

from __future__ import annotations

import functools
import math
from dataclasses import replace

from samebits.codegen.isa import Isa
from samebits.codegen.vocabulary import KernelSpec
from samebits.kernels.gemm import batch as batches
from samebits.kernels.gemm import epilogue, pack, packed, tiles
from samebits.kernels.gemm.choice import FLOAT_BYTES, GROUP, LINE_BYTES, STAGED, Blocks, Choice, choose
from samebits.kernels.gemm.contraction import Contraction, Matrix
from samebits.kernels.gemm.epilogue import Epilogue
from samebits.kernels.gemm.macrokernel import IN_PLACE, PACKED, Macrokernel, macrokernel
from samebits.kernels.gemm.segments import Join, join
from samebits.kernels.gemm.tiles import Tile
from samebits.kernels.plan import Operand, Plan, Step

_Arguments = dict[str, int | Operand]


@functools.lru_cache(maxsize=4096)
def plan(
    c: Contraction, isa: Isa, threads: int = 1, *, tile: Tile | None = None, form: str | None = None,
    blocks: Blocks | None = None,
) -> Plan:  # fmt: skip
    """How `c` runs on `isa` with `threads`.

    Args:    c: the contraction; operands of the plan are those of `c.operands`, in order.
             tile, form, blocks: instead of the measured ones. No choice changes a bit.
    Raises:  PlanError if b's panels are not this row's; OptionError if the form cannot be had.
    """
    chosen = choose(c, isa, threads, tile, form, blocks)
    lowering = _Lowering(chosen, len(c.operands))
    if c.m and c.n and all(c.batch):
        lowering.product()
    return Plan(
        what=str(c), isa=isa, threads=threads, steps=tuple(lowering.steps), operands=c.operands,
        scratch_bytes=lowering.scratch_bytes, workspace_bytes=lowering.workspace_bytes, facts=_facts(chosen),
        rejected=chosen.rejected,
    )  # fmt: skip


@functools.lru_cache(maxsize=1024)
def plan_pack(k: int, n: int, b: Matrix, isa: Isa, threads: int = 1, batch: tuple[int, ...] = ()) -> Plan:
    """How b[batch..., k, n] is packed once for `Panels`: operands b, panels (`packed_elements` of float32)."""
    nr = panel_columns(isa)
    strided = replace(b, column=1) if n == 1 else b
    panels, size = -(-n // nr), packed.size_elements(k, n, nr)
    strides = [size * math.prod(batch[d + 1 :]) for d in range(len(batch))]
    step = _pack_step(strided, k, n, batch, strides, range(panels), nr, isa, Operand(0), Operand(1))
    return Plan(
        what=f"pack b[{k},{n}] batch {list(batch)}", isa=isa, threads=threads,
        steps=(step,) if size * math.prod(batch) else (), operands=("b", "panels"),
        facts=(("panels", f"{panels} of {k} x {nr}"), ("kind", pack.kind(strided))),
    )  # fmt: skip


def packed_elements(k: int, n: int, isa: Isa, batch: tuple[int, ...] = ()) -> int:
    """Elements that `plan_pack` writes."""
    return math.prod(batch) * packed.size_elements(k, n, panel_columns(isa))


def panel_columns(isa: Isa) -> int:
    """Columns of a packed panel on this row."""
    return tiles.tile_for(isa).nr(isa)


def _pack_step(
    b: Matrix, k: int, n: int, batch: tuple[int, ...], strides: list[int], panels: range, nr: int, isa: Isa,
    source: Operand, target: Operand,
) -> Step:  # fmt: skip
    """Pack some panels of b; a batch dimension whose panels repeat (stride 0) is packed once."""
    distinct = [d for d in range(len(batch)) if strides[d]]
    d = pack.PackPanels(pack.kind(b), nr, GROUP, len(distinct))
    groups = -(-len(panels) // GROUP)
    values: _Arguments = {
        "x": source, "out": target, "k": k, "n": n, "row": b.row, "column": b.column, "panels": len(panels),
        "groups": groups, "first": panels.start,
    }  # fmt: skip
    moving = {"x": [b.batch[i] for i in distinct], "out": [strides[i] for i in distinct]}
    values |= batches.arguments([batch[i] for i in distinct], moving)
    tasks = groups * math.prod(batch[i] for i in distinct)
    spec = KernelSpec(pack.pack_panels, d, d.parameters, isa)
    return Step(spec, tasks, tuple(values[name] for name in d.parameters))


class _Lowering:
    """The steps of one choice, its scratch and its workspace: staged panels of B, then the parts of segments."""

    def __init__(self, x: Choice, workspace: int) -> None:
        self.x = x
        self.workspace = workspace
        self.steps: list[Step] = []
        self.scratch_bytes = 0
        self.workspace_bytes = 0

    def product(self) -> None:
        """Every round of panels, every segment of K."""
        x, c = self.x, self.x.c
        rounds = [range(x.panels)]
        b, strides = Operand(x.order[1]), list(c.b.batch)
        if x.form == STAGED:
            starts = range(0, x.panels, x.round_panels)
            rounds = [range(start, min(start + x.round_panels, x.panels)) for start in starts]
            size = len(rounds[0]) * c.k * x.nr
            strides = [0] * len(c.batch)
            for d in reversed(range(len(c.batch))):
                strides[d] = size if c.b.batch[d] else 0
                size *= c.batch[d] if c.b.batch[d] else 1
            self.workspace_bytes = _rounded(size * FLOAT_BYTES)
        bounds = c.spec.bounds(c.k)
        parts = self.workspace_bytes
        inner = self.part() if len(bounds) > 1 else c
        for panels in rounds:
            if x.form == STAGED:
                assert isinstance(c.b, Matrix)
                target = Operand(self.workspace)
                step = _pack_step(c.b, c.k, c.n, c.batch, strides, panels, x.nr, x.isa, b, target)
                self.steps.append(step)
            # Panels are numbered from the first of B, also where only a round of them is there.
            source = Operand(self.workspace, -panels.start * c.k * x.nr * FLOAT_BYTES) if x.form == STAGED else b
            for s, (begin, end) in enumerate(bounds):
                out = Operand(x.order[2])
                if len(bounds) > 1:
                    out = Operand(self.workspace, parts + s * self.part_elements * FLOAT_BYTES)
                self.macrokernel(inner, source, strides, out, panels, begin, end)
        if len(bounds) > 1:
            self.workspace_bytes += len(bounds) * self.part_elements * FLOAT_BYTES
            self.join(Operand(self.workspace, parts), inner)

    @property
    def part_elements(self) -> int:
        """Elements of one segment's sums."""
        return math.prod(self.x.c.batch) * self.x.c.m * self.x.panels * self.x.nr

    def part(self) -> Contraction:
        """One segment: dense rows of whole panels, no epilogue."""
        c, row = self.x.c, self.x.panels * self.x.nr
        strides = tuple(c.m * row * math.prod(c.batch[d + 1 :]) for d in range(len(c.batch)))
        return replace(c, out=Matrix(row, 1, strides), epilogue=None, sources=(), in_place=False)

    def macrokernel(
        self, c: Contraction, b: Operand, b_batch: list[int], out: Operand, panels: range, begin: int, end: int
    ) -> None:
        """One step of blocks of C: these panels, k from begin to end."""
        x, nr = self.x, self.x.nr
        in_scratch = x.in_scratch and c is x.c
        right = c.b if isinstance(c.b, Matrix) else Matrix(0, 0)
        kind = PACKED if x.form in (PACKED, STAGED) else IN_PLACE if x.form == IN_PLACE else pack.kind(right)
        d = Macrokernel(
            heights=x.rows.heights, wide=x.wide, group=x.group, nv=x.tile.nv, kc=x.kc, pitch=x.pitch, chunk=x.chunk,
            a=pack.kind(c.a), b=kind, batch_rank=len(c.batch), in_scratch=in_scratch, epilogue=Epilogue.of(c),
        )  # fmt: skip
        height = x.m_step * x.rows.heights[0]
        scratch_b = _rounded(height * x.pitch * FLOAT_BYTES) + LINE_BYTES
        scratch_c = scratch_b + _rounded(x.group * x.kc * nr * FLOAT_BYTES) + LINE_BYTES
        scratch_s = scratch_c + _rounded(height * nr * (x.n_step if in_scratch else 1) * FLOAT_BYTES)
        self.scratch_bytes = max(self.scratch_bytes, scratch_s + _rounded(epilogue.scratch_bytes(c)))
        n_blocks = -(-len(panels) // x.n_step)
        values: _Arguments = {
            "a": Operand(x.order[0]), "b": b, "m_panels": x.rows.panels, "tall": x.rows.tall, "n": c.n, "k": c.k,
            "k_begin": begin, "k_end": end, "n_step": x.n_step, "m_blocks": x.m_blocks,
            "n_blocks": n_blocks, "first": panels.start, "last": panels.stop, "a_row": c.a.row, "a_column": c.a.column,
            "b_row": right.row, "b_column": right.column, "scratch_b": scratch_b, "scratch_c": scratch_c,
        }  # fmt: skip
        values |= epilogue.arguments(c, out, x.order[3:], scratch_s)
        values |= batches.arguments(c.batch, {"a": c.a.batch, "b": b_batch, **_batch_strides(c)})
        spec = KernelSpec(macrokernel, d, d.parameters, x.isa)
        tasks = math.prod(c.batch) * x.m_blocks * n_blocks
        self.steps.append(Step(spec, tasks, tuple(values[name] for name in d.parameters)))

    def join(self, parts: Operand, inner: Contraction) -> None:
        """The step that adds the segments and applies the epilogue."""
        x, c = self.x, self.x.c
        d = Join(c.spec.segments, x.tile.nv, len(c.batch), Epilogue.of(c))
        values: _Arguments = {
            "parts": parts, "part": self.part_elements, "part_row": inner.out.row, "m": c.m, "n": c.n
        }  # fmt: skip
        values |= epilogue.arguments(c, Operand(x.order[2]), x.order[3:], 0)
        values |= batches.arguments(c.batch, {"parts": inner.out.batch, **_batch_strides(c)})
        self.scratch_bytes = max(self.scratch_bytes, _rounded(epilogue.scratch_bytes(c)))
        spec = KernelSpec(join, d, d.parameters, x.isa)
        self.steps.append(Step(spec, math.prod(c.batch) * c.m, tuple(values[name] for name in d.parameters)))


def _batch_strides(c: Contraction) -> dict[str, tuple[int, ...]]:
    """Of out and the matrix sources, by the epilogue's names."""
    return {"out": c.out.batch} | {f"s{i}": s.batch for i, s in enumerate(c.sources) if isinstance(s, Matrix)}


def _rounded(size_bytes: int) -> int:
    return -(-size_bytes // LINE_BYTES) * LINE_BYTES


def _facts(x: Choice) -> tuple[tuple[str, str], ...]:
    heights = " and ".join(map(str, x.rows.heights))
    return (
        ("tile", f"MR {x.tile.mr} NR {x.nr}, micropanels of {heights} rows, {x.wide} panels wide"),
        ("blocks", f"MC {x.m_step * x.rows.heights[0]} KC {x.kc} NC {x.n_step * x.nr}"),
        ("form", x.form),
        ("orientation", "transposed" if x.order[0] else "as given"),
        ("kept between KC blocks", "in scratch" if x.in_scratch else "in out"),
        ("order", f"chunk {x.c.spec.chunk}, segments {x.c.spec.segments}"),
    )
