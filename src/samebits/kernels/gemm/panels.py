"""Right operands in panels: the steps that put them there, and the plan that does so once.

`Packing` is a right operand that is packed, by `plan_pack` or by a step of a product; `SharedPanels` what its blocks
share, which is packed the same way. The kernel text is `pack`, the packed value `packed`. Start at `plan_pack`.
"""

from __future__ import annotations

import functools
import math

from samebits.codegen.isa import Isa
from samebits.codegen.vocabulary import KernelSpec
from samebits.dtypes import DType, float32
from samebits.frozen import dataclass, replace
from samebits.kernels.gemm import batch as batches
from samebits.kernels.gemm import blocks, pack, packed, unpack
from samebits.kernels.gemm.blocks import SCALE, ZERO
from samebits.kernels.gemm.choice import GROUP
from samebits.kernels.gemm.contraction import Matrix, Shared
from samebits.kernels.gemm.engine import FMA32, Engine
from samebits.kernels.gemm.inner import words_of
from samebits.kernels.gemm.machine import DEFAULT, Machine
from samebits.kernels.gemm.tiles import PanelSpan
from samebits.kernels.gemm.words import Words
from samebits.kernels.plan import Argument, Operand, Plan, Step, in_lines

Arguments = dict[str, Argument]
# Tasks of a thread from which one more or less does not matter.
_FEW_TASKS = 4


@functools.lru_cache(maxsize=1024)
def plan_pack(
    k: int, n: int, b: Matrix, isa: Isa, threads: int = 1, batch: tuple[int, ...] = (), engine: Engine = FMA32,
    left: DType = float32, machine: Machine = DEFAULT, zero: Shared | None = None, scale: Shared | None = None,
) -> Plan:  # fmt: skip
    """How b[batch..., k, n] is packed once for `Panels` of `engine`, to be multiplied with elements of `left`: operands
    b, the scales of its blocks and the zero points that leave weights if there are any, panels (`packed_elements`
    words, and behind them the scales)."""
    if unpack.has_packed(b):
        inner = plan_pack(k, n, replace(b, packed=None), isa, threads, batch, engine, left, machine, zero, scale)
        return unpack.unpacked(inner, (b,))
    nr = panel_columns(isa, engine, machine)
    strided = replace(b, column=1) if n == 1 else b
    panels, size = -(-n // nr), packed.size_elements(k, n, nr, engine)
    strides = [size * math.prod(batch[d + 1 :]) for d in range(len(batch))]
    words = words_of(engine, left, b.dtype)[1]
    packing = Packing(engine, words, strided, k, n, batch, nr, isa, threads)
    operands = ("b", *["scale"] * (scale is not None), *["zero"] * (zero is not None), "panels")
    steps, shared, workspace_bytes, out = list[Step](), None, 0, len(operands) - 1
    if zero is not None:
        shared, step, workspace_bytes = share(ZERO, zero, packing, Operand(out - 1), Operand(len(operands)))
        steps.append(step)
    steps.append(packing.step(strides, PanelSpan(0, panels), panels, Operand(0), Operand(out), shared))
    if scale is not None:
        target = Operand(out, packed.scales_at(k, n, nr, engine))
        steps.append(share(SCALE, scale, packing, Operand(1), target)[1])
    return Plan(
        what=f"pack b[{k},{n}] batch {list(batch)}", isa=isa, threads=threads,
        steps=tuple(steps) if size * math.prod(batch) else (), operands=operands,
        workspace_bytes=workspace_bytes if size * math.prod(batch) else 0,
        facts=(
            ("engine", engine.name), ("panels", f"{panels} of {engine.steps(k)} x {nr}"), ("kind", pack.kind(strided))
        ),
    )  # fmt: skip


def packed_elements(
    k: int, n: int, isa: Isa, batch: tuple[int, ...] = (), engine: Engine = FMA32, machine: Machine = DEFAULT
) -> int:
    """Words that `plan_pack` writes."""
    return math.prod(batch) * packed.size_elements(k, n, panel_columns(isa, engine, machine), engine)


def panel_columns(isa: Isa, engine: Engine = FMA32, machine: Machine = DEFAULT) -> int:
    """Columns of a packed panel on this Isa row of the machine."""
    return machine.row(engine, isa).nr(engine, isa)


@dataclass(frozen=True, slots=True)
class Packing:
    """A right operand b[batch..., k, n] that a step packs into panels of `nr` columns, which `threads` share.

    `from_panels`: it lies in panels of packed weights; the row's stride is then `nr`, the column's K."""

    engine: Engine
    words: Words
    b: Matrix
    k: int
    n: int
    batch: tuple[int, ...]
    nr: int
    isa: Isa
    threads: int
    from_panels: bool = False

    @property
    def kind(self) -> str:
        """How it is packed."""
        return pack.FROM_PANELS if self.from_panels else pack.kind(self.b)

    def step(
        self, strides: list[int], panels: PanelSpan, room: int, source: Operand, target: Operand,
        zeros: SharedPanels | None = None,
    ) -> Step:  # fmt: skip
        """Pack some panels, into where there is room for `room` of them; a batch dimension whose panels repeat
        (stride 0) is packed once."""
        b, batch = self.b, self.batch
        distinct = [d for d in range(len(batch)) if strides[d]]
        repeats = math.prod(batch[i] for i in distinct)
        group = self.group(panels.panels, repeats)
        extents = [batch[i] for i in distinct]
        d = pack.PackPanels(
            self.engine, self.words, self.kind, self.nr, batches.rank(extents), has_zeros=zeros is not None
        )
        groups = -(-panels.panels // group)
        values: Arguments = {
            "x": source, "out": target, "k": self.k, "n": self.n, "row": b.row, "column": b.column,
            "panels": panels.panels, "group": group, "groups": groups, "first": panels.start,
            "facts": room * self.engine.steps(self.k) * self.nr,
        }  # fmt: skip
        moving = {"x": [b.batch[i] for i in distinct], "out": [strides[i] for i in distinct]}
        if zeros is not None:
            values |= zeros.arguments
            moving[ZERO.name] = [zeros.strides[i] for i in distinct]
        values |= batches.arguments(extents, moving)
        spec = KernelSpec(pack.pack_panels, d, d.parameters, self.isa)
        return Step(spec, groups * repeats, tuple(values[name] for name in d.parameters))

    def group(self, panels: int, repeats: int) -> int:
        """Panels of a task; half as many where threads would have few tasks, and not equally many (24 panels on
        two threads, 512 x 3072 x 768 of bfloat16: 394 GFLOP/s in 3 tasks, 406 in 6)."""
        tasks = -(-panels // GROUP) * repeats
        return GROUP // 2 if tasks % self.threads and tasks < _FEW_TASKS * self.threads else GROUP


@dataclass(frozen=True, slots=True)
class SharedPanels:
    """Panels, or rows of a, in the workspace of what blocks share, and batch strides from one's to the next's."""

    row: blocks.BlockOperand
    operand: Operand
    rows: int
    words: int
    strides: tuple[int, ...]

    @property
    def arguments(self) -> Arguments:
        """The values of `blocks.BlockOperand.parameters`."""
        return dict(zip(self.row.parameters, (self.operand, self.rows, self.words), strict=True))


def share(
    row: blocks.BlockOperand, x: Shared, b: Packing, source: Operand, target: Operand
) -> tuple[SharedPanels, Step, int]:
    """What blocks of b share, the step that puts it into panels at `target`, and their bytes."""
    rows, words = -(-b.k // x.size), words_of(FMA32, float32, x.operand.dtype)[1]
    panels = -(-b.n // b.nr)
    strides, size = _batch_strides(x, b.batch, rows * panels * b.nr)
    if x.lines > 1:
        step = _spread(x, b, rows, b.n, strides, source, target, b.nr)
    else:
        packing = Packing(FMA32, words, x.operand, rows, b.n, b.batch, b.nr, b.isa, b.threads)
        step = packing.step(strides, PanelSpan(0, panels), panels, source, target)
    # A size that splits a word is longer than K: its engine would not have been chosen.
    in_words = -(-x.size // b.engine.depth)
    return SharedPanels(row, target, rows, in_words, tuple(strides)), step, in_lines(max(1, size) * float32.size_bytes)


def shared_in_panels(x: Shared, b: Packing, source: Operand) -> SharedPanels:
    """The scales of blocks of b that lie in panels already."""
    return SharedPanels(SCALE, source, -(-b.k // x.size), -(-x.size // b.engine.depth), x.operand.batch)


def share_rows(
    x: Shared, b: Packing, m: int, source: Operand, target: Operand, unit: float
) -> tuple[SharedPanels, Step, int]:
    """What blocks of the `m` rows of a share, the step that puts it into rows at `target`, times `unit`, and their
    bytes; `b` is what they are multiplied with."""
    count = -(-b.k // x.size)
    strides, size = _batch_strides(x, b.batch, count * m)
    step = _spread(x, b, count, m, strides, source, target, None, unit)
    in_words = -(-x.size // b.engine.depth)
    shared = SharedPanels(blocks.A_SCALE, target, count, in_words, tuple(strides))
    return shared, step, in_lines(max(1, size) * float32.size_bytes)


def _batch_strides(x: Shared, batch: tuple[int, ...], size: int) -> tuple[list[int], int]:
    """From one's values to the next's, `size` of them in each batch, and how many there are in all."""
    strides = [0] * len(batch)
    for d in reversed(range(len(batch))):
        if x.operand.batch[d]:
            strides[d], size = size, size * batch[d]
    return strides, size


def _spread(
    x: Shared, b: Packing, blocks_along: int, lines: int, strides: list[int], source: Operand, target: Operand,
    nr: int | None, unit: float = 1.0,
) -> Step:  # fmt: skip
    """The step that writes a block's value once for each line of the block."""
    line, block = (x.operand.row, x.operand.column)[:: 1 if nr is None else -1]
    distinct = [d for d in range(len(b.batch)) if strides[d]]
    extents = [b.batch[i] for i in distinct]
    words = words_of(FMA32, float32, x.operand.dtype)[1]
    d = blocks.Spread(words, nr, block == 1 and nr is None, batches.rank(extents), unit)
    pieces = -(-lines // (blocks.ROWS_OF_TASK if nr is None else nr))
    values: Arguments = {
        "x": source, "out": target, "lines": lines, "shared": x.lines, "blocks": blocks_along, "line": line,
        "block": block, "pieces": pieces,
    }  # fmt: skip
    moving = {"x": [x.operand.batch[i] for i in distinct], "out": [strides[i] for i in distinct]}
    values |= batches.arguments(extents, moving)
    spec = KernelSpec(blocks.spread, d, d.parameters, b.isa)
    return Step(spec, pieces * math.prod(extents), tuple(values[name] for name in d.parameters))
