"""The rate that an engine's step reaches with operands in registers: what no product on the row can pass."""

from __future__ import annotations

from typing import TYPE_CHECKING

from samebits.codegen.isa import Isa
from samebits.codegen.vocabulary import Builder, KernelSpec
from samebits.frozen import dataclass
from samebits.kernels.gemm.engine import Engine
from samebits.kernels.plan import Operand, Plan, Step
from samebits.ops.recipe import Prepared
from samebits.tensor import Tensor

if TYPE_CHECKING:
    from samebits.bench.rank import Timer

# Chains that hide the latency of any step on two pipes, and steps of each.
CHAINS, STEPS = 12, 100_000


@dataclass(frozen=True, slots=True)
class Chains:
    """`chains` accumulators of one register, each advanced `steps` times."""

    engine: Engine
    chains: int
    steps: int


def advance(b: Builder, d: Chains) -> None:
    """sums[task] = the chains after their steps, of operands that are read once."""
    engine, lanes = d.engine, d.engine.lanes(b.isa)
    x, sums = b.pointer("x", engine.word), b.pointer("sums", engine.accumulator)
    for task in b.tasks():
        left, right = b.load(x, 0, lanes), b.load(x, lanes, lanes)
        # Chains start from what is in memory: of those that start alike LLVM would keep one. Were the operands of
        # integers constant, it would take their product out of the loop.
        acc = [b.load(sums, (task * d.chains + i) * lanes, lanes) for i in range(d.chains)]
        for _ in b.loop(0, d.steps, carry=acc):
            lefts = [*acc[1:], acc[0]] if engine.exact else [left] * d.chains
            for i in range(d.chains):
                acc[i] = engine.advance(b, lefts[i], right, acc[i])
        for i in range(d.chains):
            b.store(sums, (task * d.chains + i) * lanes, acc[i])


def plan(engine: Engine, isa: Isa, threads: int) -> Plan:
    """One task a thread: operands x [2 * lanes] words, sums [threads, CHAINS, lanes]."""
    spec = KernelSpec(advance, Chains(engine, CHAINS, STEPS), ("x", "sums"), isa)
    step = Step(spec, threads, (Operand(0), Operand(1)))
    return Plan(what=f"peak of {engine.name}", isa=isa, threads=threads, steps=(step,), operands=("x", "sums"))


def rate(engine: Engine, isa: Isa, threads: int, seconds: Timer) -> float | None:
    """10^9 operations a second; None where the row has no instruction for the step."""
    if not engine.is_native(isa):
        return None
    lanes = engine.lanes(isa)
    x = Tensor.full((2 * lanes,), 1, engine.word)
    sums = Tensor.full((threads * CHAINS * lanes,), 1, engine.accumulator)
    prepared = Prepared(plan(engine, isa, threads))
    took = seconds({"peak": lambda: prepared.run([x.address, sums.address])}, 5)["peak"]
    return 2e-9 * engine.depth * lanes * CHAINS * STEPS * threads / took
