"""Trials: one product, run with one candidate kernel.

A `Candidate` is a form and a tuned row (tile, sizes of cache blocks) of an engine on an Isa row; `Workbench` plans it
as `matmul` would with that row in force, and makes a call of it. Start at `Workbench.call`.
"""

from __future__ import annotations

import functools

import numpy as np

from samebits import tuning
from samebits.bench.measure import Call
from samebits.codegen import isa as isas
from samebits.codegen.isa import Isa
from samebits.dtypes import DType
from samebits.frozen import dataclass, replace
from samebits.kernels import gemm
from samebits.kernels.gemm import engine as engines
from samebits.kernels.gemm import selection
from samebits.kernels.gemm.engine import Engine
from samebits.kernels.gemm.machine import Machine
from samebits.kernels.gemm.tuned import Preferred, Tuned
from samebits.kernels.plan import Plan
from samebits.operations.lying import Lying, matrix
from samebits.operations.names import MATMUL
from samebits.ops import call as calls
from samebits.ops.product import Arguments
from samebits.ops.recipe import Prepared
from samebits.tensor import Tensor


@dataclass(frozen=True, slots=True)
class Problem:
    """a[m, k] @ b[k, n] of these dtypes; `packed`: b is packed before it is timed."""

    m: int
    k: int
    n: int
    a: DType
    b: DType
    packed: bool = False

    @property
    def work(self) -> int:
        """Operations: a multiplication and an addition for each product."""
        return 2 * self.m * self.n * max(self.k, 1)

    @property
    def unit(self) -> str:
        """10^9 of them a second."""
        return "GOP/s" if self.a.is_integer else "GFLOP/s"

    def __str__(self) -> str:
        types = self.a.name if self.a is self.b else f"{self.a.name} x {self.b.name}"
        return f"{self.m} x {self.k} x {self.n} {types}" + (", b packed" if self.packed else "")


@dataclass(frozen=True, slots=True)
class Candidate:
    """One way to run a product: the machine as it is shipped, but with this row.

    `form`: None leaves it to the plan.   `forced`: every form runs on the row's engine; else the engine is what the
    machine prefers for the problem's formats, as where the row was measured to be the fastest.
    """

    isa: Isa
    row: Tuned
    form: str | None = None
    forced: bool = True

    def machine(self, problem: Problem) -> Machine:
        """The machine with this row in force."""
        preferred = () if self.forced else (Preferred(problem.a.name, problem.b.name, self.row.engine),)
        return replace(tuning.shipped(self.isa), tuned=(self.row,), preferred=preferred)


def label(plan: Plan) -> str:
    """What tells a plan of one problem from the others."""
    facts = dict(plan.facts)
    tile = facts["tile"].partition(",")[0]
    engine, blocks = (facts[name].replace(" (tuned)", "") for name in ("engine", "blocks"))
    return f"{plan.isa.name}, {engine}, {facts['form']}, {tile}, {blocks}"


def operand(dtype: DType, shape: tuple[int, int], seed: int) -> Tensor:
    """Normal floats, or integers of the whole range."""
    rng = np.random.default_rng([seed, *shape])
    if dtype.is_integer:
        return Tensor.from_any(rng.integers(int(dtype.min), int(dtype.max), shape, endpoint=True).astype(dtype.numpy))
    return Tensor.from_any(rng.standard_normal(shape, np.float32).astype(dtype.numpy))


class Workbench:
    """Products of one thread count, with their operands."""

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self.operands = functools.cache(self._operands)

    def _operands(self, problem: Problem) -> tuple[Tensor, Tensor]:
        p = problem
        return operand(p.a, (p.m, p.k), 0), operand(p.b, (p.k, p.n), 1)

    def engine(self, problem: Problem, isa: Isa) -> Engine:
        """What `matmul` would run the problem on."""
        return selection.engine_for(problem.a, problem.b, isa, tuning.machine(isa))

    def plan(self, problem: Problem, isa: Isa, candidate: Candidate | None = None) -> Plan:
        """The candidate's plan, or the one that `matmul` picks on `isa`.

        Raises:  OptionError or PlanError if the problem has no such plan.
        """
        return self._planned(problem, isa, candidate, fill=False)[0]

    def call(self, problem: Problem, isa: Isa, candidate: Candidate | None = None) -> Call:
        """A call of that plan; what it needs is compiled and packed when it is first called."""
        prepared: list[tuple[Prepared, list[int], list[Tensor]]] = []

        def run() -> None:
            if not prepared:
                plan, operands = self._planned(problem, isa, candidate, fill=True)
                prepared.append((Prepared(plan), [x.address for x in operands], operands))
            kernel, addresses, _ = prepared[0]
            kernel.run([*addresses])

        return run

    def _planned(
        self, problem: Problem, isa: Isa, candidate: Candidate | None, *, fill: bool
    ) -> tuple[Plan, list[Tensor]]:
        isa = candidate.isa if candidate else isa
        machine = candidate.machine(problem) if candidate else tuning.machine(isa)
        name = candidate.row.engine if candidate and candidate.forced else None
        with isas.use_isa(isa):
            call = calls.Call("bench", None, self.threads)
            a, b = self.operands(problem)
            right: Tensor | gemm.PackedMatrix = b
            if problem.packed:
                engine = engines.named(name) if name else selection.engine_for(problem.a, problem.b, isa, machine)
                engine = engines.packs(engine, problem.b, isa)
                right = self._packed(call, problem, b, engine, machine, fill=fill)
            given = Arguments.of(call, MATMUL, a, right)
            found = given.described()
            contraction, result = found.contraction, Tensor.empty(found.shape, found.dtype)
            threads = call.sized(contraction.work, "products")
        form = candidate.form if candidate else None
        engine_name = None if problem.packed else name
        plan = gemm.plan(contraction, isa, threads, form=form, engine=engine_name, machine=machine)
        return plan, [*[x.tensor for x in given.operands(found)], result]

    def _packed(
        self, call: calls.Call, problem: Problem, b: Tensor, engine: Engine, machine: Machine, *, fill: bool
    ) -> gemm.PackedMatrix:
        k, n = b.shape
        isa = call.isa
        panels = Tensor.empty((gemm.packed_elements(k, n, isa, (), engine, machine),), engine.word)
        if fill and panels.size:
            lies = matrix(call.name, "b", Lying.of(b.dtype, b.layout), b.shape)
            plan = gemm.plan_pack(k, n, lies, isa, 1, (), engine, problem.a, machine)
            Prepared(plan).run([b.address, panels.address])
        nr = gemm.panel_columns(isa, engine, machine)
        return gemm.PackedMatrix(panels, b.shape, nr, isa.name, b.dtype, engine.name)
