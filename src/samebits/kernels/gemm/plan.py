"""Plans of contractions: pure, cached, printable.

`plan(contraction, isa, threads, machine=...)`. Start at `plan`; `choice.choose` decides, `_Planning` turns that into
kernels and their arguments, `panels` has the steps that pack.
"""

from __future__ import annotations

import math

from samebits.codegen.isa import Isa
from samebits.codegen.rules import TILE_ROWS
from samebits.codegen.vocabulary import KernelSpec
from samebits.dtypes import int32
from samebits.frozen import replace
from samebits.kernels.gemm import batch as batches
from samebits.kernels.gemm import blocks, checks, epilogue, pack, parts, quantize, scaled_weights, unpack, window_panels
from samebits.kernels.gemm.blocks import A_SCALE, SCALE, ZERO
from samebits.kernels.gemm.choice import Blocks, Choice, Overrides, choose
from samebits.kernels.gemm.contraction import Contraction, Immediate, Matrix, Panels, Side
from samebits.kernels.gemm.engine import NIBBLES, named
from samebits.kernels.gemm.epilogue import Epilogue
from samebits.kernels.gemm.form import FUSED, STAGED, STREAMED, has_weights
from samebits.kernels.gemm.inner import size_words
from samebits.kernels.gemm.machine import DEFAULT, Caches, Machine
from samebits.kernels.gemm.macrokernel import kernel
from samebits.kernels.gemm.order import CHAIN
from samebits.kernels.gemm.panels import Arguments, Packing, SharedPanels, share, share_rows, shared_in_panels
from samebits.kernels.gemm.parts import Join, join
from samebits.kernels.gemm.specialised import Macrokernel
from samebits.kernels.gemm.stream import Stream, stream
from samebits.kernels.gemm.strip import StripWalk, together
from samebits.kernels.gemm.tiles import PanelSpan, Tile
from samebits.kernels.plan import LINE_BYTES, Operand, Plan, Step, in_lines
from samebits.tape import cached

# Lanes from which on a tile is transposed where the columns of out are dense.
_TURNED = 4
# Rows of a that a task sums.
_SUMMED_ROWS = 64


@cached(4096)
def plan(
    c: Contraction, isa: Isa, threads: int = 1, *, tile: Tile | None = None, form: str | None = None,
    blocks: Blocks | None = None, engine: str | None = None, machine: Machine = DEFAULT,
) -> Plan:  # fmt: skip
    """How `c` runs on `isa` with `threads`.

    Args:    c: the contraction; operands of the plan are those of `c.operands`, in order.
             tile, form, blocks, engine: instead of the measured ones. No choice changes a bit.
             machine: what is fast where it will run.
    Raises:  PlanError if b's panels are not this row's; OptionError if the form cannot be had; DTypeError if no engine
             takes a and b.
    """

    def again(c: Contraction) -> Plan:
        return plan(c, isa, threads, tile=tile, form=form, blocks=blocks, engine=engine, machine=machine)

    checks.check_sides(c)
    if c.a.quantised_from:
        inner = again(replace(c, a=replace(c.a, quantised_from=None)))
        return quantize.quantized(inner, c)
    if unpack.has_packed(c.a.values, c.b.values):
        inner = again(replace(c, a=unpack.plain(c.a), b=unpack.plain(c.b)))
        return unpack.unpacked(inner, (c.a.values, c.b.values))
    if isinstance(c.b.values, Panels) and named(c.b.values.engine) in NIBBLES:
        from samebits.kernels.gemm import nibbles  # which other weights do without

        return nibbles.plan(c, isa, threads, machine, again)
    if scaled_weights.holds(c.b.values):
        return scaled_weights.plan(c, again)
    chosen, operands = choose(c, isa, threads, Overrides(tile, form, blocks, engine), machine), c.operands
    lowering = _Planning(chosen, len(operands), machine.caches)
    if c.m and c.n and all(c.batch):
        lowering.product()
    return Plan(
        what=str(c), isa=isa, threads=threads, steps=tuple(lowering.steps), operands=operands,
        scratch_bytes=lowering.scratch_bytes, workspace_bytes=lowering.workspace_bytes, facts=_facts(chosen),
        rejected=chosen.rejected,
    )  # fmt: skip


class _Planning:
    """The steps of one choice, its scratch and its workspace: staged panels of B, what its blocks share, then the parts
    of K."""

    def __init__(self, x: Choice, workspace: int, caches: Caches) -> None:
        self.x = x
        self.caches = caches
        self.workspace = workspace
        self.steps: list[Step] = []
        self.scratch_bytes = 0
        self.workspace_bytes = 0
        self.shared: dict[blocks.BlockOperand, SharedPanels] = {}

    def product(self) -> None:
        """Every round of panels, then the join of the parts of K."""
        x, c = self.x, self.x.c
        b, strides, size = Operand(x.order[1]), list(c.b.values.batch), x.engine.word.size_bytes
        rounds = x.spans
        most = max([span.panels for span in rounds])
        if x.form == STAGED:
            words = size_words(x.engine, c.k, most * x.nr)
            strides = [0] * len(c.batch)
            packed_from = [c.b.values, *(x.operand for name, x in c.by_block.items() if name == ZERO.name)]
            for d in reversed(range(len(c.batch))):
                if any(y.batch[d] for y in packed_from):
                    strides[d], words = words, words * c.batch[d]
            self.workspace_bytes = in_lines(words * size)
        sums = self.row_sums() if x.engine.exact and x.zeros[1] and c.k else None
        self.share()
        at, several, panel = self.workspace_bytes, x.parts > 1, x.steps * x.nr
        described, sources = c, self.sources
        for panels in rounds:
            if x.form == STAGED:
                target, zeros = Operand(self.workspace), self.shared.get(ZERO)
                self.steps.append(self.right.step(strides, panels, most, b, target, zeros))
            # Panels are numbered from the first of B, also where only a round of them is there; so are their facts.
            source = Operand(self.workspace, -panels.start * panel * size) if x.form == STAGED else b
            room = most + panels.start
            facts = room * panel - (panels.start * x.nr if x.form == STAGED else 0)
            if x.engine.exact and c.k and any(x.zeros):
                described, sources = self.corrected(
                    sums, Operand(source.index, source.offset_bytes + facts * size), strides
                )
            inner = (self.part, [], Operand(self.workspace, at)) if several else (described, sources, self.out)
            if x.form == STREAMED:
                self.stream(*inner)
            else:
                self.macrokernel(*inner, source, strides, facts, panels)
        if several:
            self.workspace_bytes += x.parts * self.part_bytes
            self.join(described, sources, Operand(self.workspace, at))

    @property
    def out(self) -> Operand:
        """The plan's operand of the result."""
        return Operand(self.x.order[2])

    @property
    def right(self) -> Packing:
        """How b is packed."""
        x, c = self.x, self.x.c
        b = c.b.values if isinstance(c.b.values, Matrix) else Matrix(x.nr, c.k, c.b.values.batch, c.b.dtype)
        return Packing(x.engine, x.words[1], b, c.k, c.n, c.batch, x.nr, x.isa, x.threads, has_weights(c))

    @property
    def sources(self) -> list[Operand]:
        """The plan's operands of what the epilogue takes."""
        return [Operand(max(i, 0)) for i in self.x.order[3:]]

    def share(self) -> None:
        """Add the steps that copy scales and zero points of blocks to where kernels read them."""
        x, c = self.x, self.x.c
        # Of b only how long and wide it is matters here.
        packing = Packing(x.engine, x.words[1], Matrix(0, 0), c.k, c.n, c.batch, x.nr, x.isa, x.threads)
        for operand, (name, shared) in enumerate(c.by_block.items(), 2):
            target = Operand(self.workspace, self.workspace_bytes)
            if shared.in_panels:
                self.shared[SCALE] = shared_in_panels(shared, packing, Operand(operand))
                continue
            if name == A_SCALE.name:
                row, made = A_SCALE, share_rows(shared, packing, c.m, Operand(operand), target, x.unit_of_scales)
            else:
                row = SCALE if name == SCALE.name else ZERO
                made = share(row, shared, packing, Operand(operand), target)
            self.shared[row], step, size_bytes = made
            self.workspace_bytes += size_bytes
            if c.k:
                self.steps.append(step)

    def row_sums(self) -> Operand:
        """The step that sums the rows of a, and where: [batch][m] int32 in the workspace."""
        from samebits.kernels.gemm.zero_points import RowSums, row_sums  # as below: which floats do without

        x, c = self.x, self.x.c
        at = self.workspace_bytes
        self.workspace_bytes += in_lines(math.prod(c.batch) * c.m * int32.size_bytes)
        blocks = -(-c.m // _SUMMED_ROWS)
        d = RowSums(x.engine, x.words[0], pack.kind(c.a.values), batches.rank(c.batch))
        values: Arguments = {
            "x": Operand(x.order[0]), "out": Operand(self.workspace, at), "m": c.m, "k": c.k, "row": c.a.values.row,
            "column": c.a.values.column, "rows": _SUMMED_ROWS, "blocks": blocks,
        }  # fmt: skip
        values |= batches.arguments(c.batch, {"x": c.a.values.batch, "out": self.row_strides})
        spec = KernelSpec(row_sums, d, d.parameters, x.isa)
        tasks = math.prod(c.batch) * blocks
        self.steps.append(Step(spec, tasks, tuple(values[name] for name in d.parameters)))
        return Operand(self.workspace, at)

    @property
    def row_strides(self) -> tuple[int, ...]:
        """From one batch of rows to the next."""
        c = self.x.c
        return tuple(c.m * math.prod(c.batch[d + 1 :]) for d in range(len(c.batch)))

    def corrected(
        self, rows: Operand | None, columns: Operand, strides: list[int]
    ) -> tuple[Contraction, list[Operand]]:
        """c with its zero points in the epilogue: sums of a's rows where b has zero points, and the other way round."""
        from samebits.kernels.gemm.zero_points import corrected

        x, c = self.x, self.x.c
        added: list[tuple[Matrix, Operand]] = []
        if rows is not None:
            added.append((Matrix(1, 0, self.row_strides, int32), rows))
        if x.zeros[0]:
            added.append((Matrix(0, 1, tuple(strides), int32), columns))
        epilogue = corrected(c, x.engine, x.words, (rows is not None, x.zeros[0]))
        sources = (*c.sources, *(matrix for matrix, _ in added), Immediate(c.k, x.engine.total))
        operands = [*self.sources, *(operand for _, operand in added), Operand(0)]  # K is a value, at no operand
        return replace(c, epilogue=epilogue, sources=sources), operands

    @property
    def part_elements(self) -> int:
        """Elements of one part's sums."""
        return math.prod(self.x.c.batch) * self.x.c.m * self.x.panels * self.x.nr

    @property
    def part_bytes(self) -> int:
        """Bytes of one part's sums."""
        return self.part_elements * self.x.engine.total.size_bytes

    @property
    def part(self) -> Contraction:
        """One part: dense rows of whole panels, no epilogue."""
        c, row = self.x.c, self.x.panels * self.x.nr
        strides = tuple(c.m * row * math.prod(c.batch[d + 1 :]) for d in range(len(c.batch)))
        a, b, out = Side(c.a.values), Side(c.b.values), Side(Matrix(row, 1, strides, self.x.engine.total))
        return replace(c, a=a, b=b, out=out, epilogue=None, sources=(), in_place=False, accumulates=False)

    @property
    def cut(self) -> Arguments:
        """How K is cut into tasks: the values of `parts.PARAMETERS`."""
        x = self.x
        return dict(zip(parts.PARAMETERS, (x.parts, x.part_steps, self.part_elements), strict=True))

    def macrokernel(
        self, c: Contraction, sources: list[Operand], out: Operand, b: Operand, b_batch: list[int], b_facts: int,
        panels: PanelSpan,
    ) -> None:  # fmt: skip
        """One step of blocks of C: these panels."""
        x, nr = self.x, self.x.nr
        in_scratch = x.in_scratch and c.out is x.c.out
        left, packing = c.a.values, self.right
        right, kind = packing.b, packing.kind
        if x.form != FUSED:
            kind = pack.PACKED if x.form == STAGED else x.form
        d = Macrokernel(
            engine=x.engine, words=x.words, checked=x.checked, tile=x.tile, chunk=x.chunk, pitch=x.pitch,
            a=pack.kind(left), b=kind,
            batch_rank=batches.rank(c.batch), accumulates=c.accumulates,
            epilogue=Epilogue.of(c, x.engine.total, x.tile.mr if x.isa.lanes >= _TURNED else 0),
            shared=tuple(row for row in self.shared if row is not ZERO or x.form == FUSED), runs=x.runs,
            order=x.sums, interleaved=x.interleaved, lies=x.lies, four_wide=x.four_wide,
        )  # fmt: skip
        height, word, total = x.m_step * x.rows.heights[0], x.engine.word.size_bytes, x.engine.total.size_bytes
        rows = height * -(-x.kc // x.chunk) + (TILE_ROWS if x.engine.takes_tiles else 0)  # which are read whole
        scratch_b = in_lines(rows * d.row_words * word) + LINE_BYTES
        scratch_f = scratch_b + in_lines(x.group * x.kc * nr * word) + max(LINE_BYTES, x.isa.lanes * word)
        scratch_c = scratch_f + (in_lines(x.group * nr * int32.size_bytes) if x.checked or x.words[0].offset else 0)
        scratch_w = scratch_c + in_lines(height * nr * (x.n_step if in_scratch else 1) * total)
        scratch_s = scratch_w + (in_lines(height * nr * x.wide * total) if d.waits else 0)
        self.scratch_bytes = max(self.scratch_bytes, scratch_s + in_lines(epilogue.scratch_bytes(c)))
        n_blocks = -(-panels.panels // x.n_step)
        values: Arguments = {
            "a": Operand(x.order[0]), "b": b, "m_panels": x.rows.panels, "tall": x.rows.tall,
            "height": x.rows.heights[0], "lower": x.rows.heights[0] - x.rows.heights[-1],
            "n": c.n, "k": x.steps, "k_begin": 0, "k_end": x.steps, "kc": x.kc,
            "n_step": x.n_step, "m_blocks": x.m_blocks, "n_blocks": n_blocks,
            "first": panels.start, "last": panels.stop, "elements": c.k, "group": x.group, "wide": x.wide,
            "asks": x.asks, "in_scratch": int(in_scratch),
            "a_row": left.row, "a_column": left.column, "b_row": right.row, "b_column": right.column,
            "b_facts": b_facts, "scratch_b": scratch_b, "scratch_f": scratch_f, "scratch_c": scratch_c,
        }  # fmt: skip
        if d.may_pass:
            values["passes"] = int(x.passes)
        values |= d.functions(x.rows, x.wide, x.isa)
        values |= epilogue.arguments(c, out, sources, scratch_s) | self.cut
        moving = {"a": left.batch, "b": b_batch, **_batch_strides(c)}
        for row in d.shared:
            values |= self.shared[row].arguments
            moving[row.name] = self.shared[row].strides
        values |= batches.arguments(c.batch, moving)
        windows = right.windows
        if d.waits:
            values["scratch_w"] = scratch_w
        if windows:
            values |= window_panels.arguments(windows)
        spec = kernel(d, x.isa)
        tasks = math.prod(c.batch) * x.m_blocks * n_blocks * x.parts
        given = tuple(map(values.__getitem__, spec.parameters))
        self.steps.append(Step(spec, tasks, (*given, *window_panels.words(windows)) if windows else given))

    def stream(self, c: Contraction, sources: list[Operand], out: Operand) -> None:
        """One step of strips of columns."""
        x, left, right = self.x, c.a.values, c.b.values
        assert isinstance(right, Matrix)  # it is not packed
        size_bytes = c.n * c.k * x.words[1].pointer.size_bytes
        d = Stream(
            engine=x.engine, words=x.words, chunk=x.chunk, pitch=x.pitch, a=pack.kind(left), b=pack.kind(right),
            batch_rank=batches.rank(c.batch), accumulates=c.accumulates, epilogue=Epilogue.of(c, x.engine.total),
            order=x.sums,
        )  # fmt: skip
        lanes, word, total = x.engine.lanes(x.isa), x.engine.word.size_bytes, x.engine.total.size_bytes
        shape = StripWalk.of(c.m, lanes, x.isa, d.words[1], size_bytes <= self.caches.near, x.sums.chains)
        width = math.lcm(shape.width, lanes) if d.b == "transpose" else lanes * StripWalk.across(x.isa)[1]
        # Rows of a tile are a line more apart than a power of two would be: they share no set of the first cache.
        columns = x.n_step * x.nr
        step = -(-columns // width) * width + max(width, LINE_BYTES // total)
        scratch_b = in_lines(c.m * -(-x.kc // x.chunk) * x.pitch * word) + LINE_BYTES
        scratch_t = scratch_b + in_lines(min(x.chunk, x.kc) * d.panel(x.isa) * word)
        scratch_s = scratch_t + in_lines((d.tiles * c.m + 1) * step * total)
        self.scratch_bytes = max(self.scratch_bytes, scratch_s + in_lines(epilogue.scratch_bytes(c)))
        n_blocks = -(-c.n // columns)
        values: Arguments = {
            "a": Operand(x.order[0]), "b": Operand(x.order[1]), "rows": c.m, "n": c.n, "k_begin": 0,
            "k_end": x.steps, "kc": x.kc, "elements": c.k, "n_step": columns, "n_blocks": n_blocks, "step": step,
            "a_row": left.row, "a_column": left.column, "b_row": right.row, "b_column": right.column,
            "scratch_b": scratch_b, "scratch_t": scratch_t,
        }  # fmt: skip
        if d.b == "transpose":
            values |= d.walked(shape, c.m, right.column, together(size_bytes <= self.caches.shared), x.isa)
        values |= epilogue.arguments(c, out, sources, scratch_s) | self.cut
        values |= batches.arguments(c.batch, {"a": left.batch, "b": right.batch, **_batch_strides(c)})
        spec = KernelSpec(stream, d, d.parameters, x.isa, unroll=False)
        tasks = math.prod(c.batch) * n_blocks * x.parts
        self.steps.append(Step(spec, tasks, tuple(values[name] for name in d.parameters)))

    def join(self, c: Contraction, sources: list[Operand], parts_at: Operand) -> None:
        """The step that adds the parts and applies the epilogue."""
        x, out = self.x, self.part.out.values
        d = Join(c.spec.segments, x.nr, batches.rank(c.batch), Epilogue.of(c, x.engine.total), c.accumulates)
        values: Arguments = {
            "parts": parts_at, "k_parts": x.parts, "part": self.part_elements, "part_row": out.row, "m": c.m, "n": c.n
        }  # fmt: skip
        values |= epilogue.arguments(c, self.out, sources, 0)
        values |= batches.arguments(c.batch, {"parts": out.batch, **_batch_strides(c)})
        self.scratch_bytes = max(self.scratch_bytes, in_lines(epilogue.scratch_bytes(c)))
        spec = KernelSpec(join, d, d.parameters, x.isa)
        self.steps.append(Step(spec, math.prod(c.batch) * c.m, tuple(values[name] for name in d.parameters)))


def _batch_strides(c: Contraction) -> dict[str, tuple[int, ...]]:
    """Of out and the matrices among the inputs, by the epilogue's names."""
    return {"out": c.out.values.batch} | {f"s{i}": s.batch for i, s in enumerate(c.inputs) if isinstance(s, Matrix)}


def _facts(x: Choice) -> tuple[tuple[str, str], ...]:
    heights = " and ".join(map(str, x.rows.heights))
    cut = f", tasks share K in {x.parts} parts" if x.parts > 1 else ""
    order = "" if x.sums is CHAIN else f"{x.sums.name}, "
    engine, tile, sizes = (" (tuned)" if measured else "" for measured in x.tuned)
    return (
        ("machine", x.machine),
        ("engine", x.engine.name + (", checked" if x.checked else "") + engine),
        ("tile", f"MR {x.tile.mr} NR {x.nr}, micropanels of {heights} rows, {x.wide} panels wide{tile}"),
        ("blocks", f"MC {x.m_step * x.rows.heights[0]} KC {x.kc} NC {x.n_step * x.nr}{sizes}"),
        ("form", x.form),
        ("orientation", "transposed" if x.order[0] else "as given"),
        ("kept between KC blocks", "in scratch" if x.in_scratch or x.form == STREAMED else "in out"),
        ("order", f"{order}chunk {x.c.spec.chunk}, segments {x.c.spec.segments}{cut}"),
    )
