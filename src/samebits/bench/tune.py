"""Choosing tiles, sizes of cache blocks and engines for this machine.

For one engine after the other first tiles, then sizes with the best tile; then, for pairs of formats that several
engines take, the engines, each with its best tile and sizes. Each is measured over a few shapes, in turns beside the
shipped choice; the winner is measured once more, with other shapes too, and kept only if it is really faster. Start at
`tune`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from samebits import dtypes, tuning
from samebits.bench import candidates, rank
from samebits.bench.measure import Call
from samebits.bench.trial import Candidate, Problem, Workbench
from samebits.codegen.isa import Isa
from samebits.dtypes import DType
from samebits.frozen import replace
from samebits.kernels.gemm import selection
from samebits.kernels.gemm.engine import Engine
from samebits.kernels.gemm.tuned import Preferred, Tuned
from samebits.kernels.plan import Plan

# Small, square, few rows with a kept weight, few rows: M, K, N and whether b is packed.
SHAPES = ((48, 256, 256, False), (640, 1024, 640, False), (8, 1536, 1536, True), (1, 2048, 2048, False))
# What only the winner is measured with, so that it is not one for those shapes alone.
CHECKS = ((128, 384, 1536, False), (16, 384, 384, True), (1, 3072, 768, True), (4, 768, 3072, False))
# What a row must gain over the shipped one, in all and for each shape, to be kept: less is the machine's noise.
_GAIN, _LOSS = 1.02, 0.95
_ROUNDS, _CONFIRMED = 5, 11
_GROUP = 6

_PAIRS = tuple(
    (getattr(dtypes, a), getattr(dtypes, b))
    for a, b in (
        ("float32", "float32"), ("bfloat16", "bfloat16"), ("float64", "float64"), ("uint8", "int8"), ("int8", "int8"),
        ("uint8", "uint8"), ("int8", "uint8"), ("float8_e4m3fn", "float8_e4m3fn"),
    )
)  # fmt: skip


def operands(isa: Isa) -> dict[Engine, tuple[DType, DType]]:
    """The engines that products run on, on this row, each with dtypes that choose it."""
    found: dict[Engine, tuple[DType, DType]] = {}
    for a, b in _PAIRS:
        found.setdefault(selection.engine_for(a, b, isa, tuning.shipped(isa)), (a, b))
    return found


def contested(isa: Isa) -> list[tuple[DType, DType]]:
    """Pairs of formats that several engines take on this row."""
    return [(a, b) for a, b in _PAIRS if len(selection.candidates(a, b, isa)) > 1]


def tune(
    isa: Isa, threads: int, *, quick: bool = False, progress: Callable[[str], None] = lambda done: None,
    time: rank.Timer | None = None,
) -> tuning.Record:  # fmt: skip
    """Measure every engine of the row, and which of them suits which formats; the record is not written.

    Args:    quick: fewer tiles and sizes.   progress: told what is measured.
             time: for tests, which never time.
    """
    search = _Search(isa, threads, time or rank.timer(threads), quick, progress)
    rows, gains = list[Tuned](), list[tuple[str, float]]()
    for engine, (a, b) in operands(isa).items():
        row, gain = search.row(engine, a, b)
        gains.append((engine.name, gain))
        if row is not None:
            rows.append(row)
    preferred, pairs = list[Preferred](), list[tuple[str, str, float]]()
    for a, b in contested(isa):
        best, gain = search.engine(a, b, rows)
        pairs.append((a.name, b.name, gain))
        if best is not None:
            preferred.append(Preferred(a.name, b.name, best))
    return tuning.Record(isa.name, threads, tuple(rows), tuple(gains), tuple(preferred), tuple(pairs))


class _Search:
    """The measurements of one Isa row."""

    def __init__(
        self, isa: Isa, threads: int, seconds: rank.Timer, quick: bool, progress: Callable[[str], None]
    ) -> None:
        self.isa, self.seconds, self.quick, self.progress = isa, seconds, quick, progress
        self.machine = tuning.shipped(isa)
        self.bench = Workbench(threads)

    def row(self, engine: Engine, a: DType, b: DType) -> tuple[Tuned | None, float]:
        """The engine's best row, None where that is the shipped one, and its gain over it."""
        problems, best = _problems(SHAPES, a, b), self.machine.shipped(engine, self.isa)
        default = best
        self.progress(f"{engine.name}: tiles")
        tiles = candidates.tiles(self.isa, engine, self.quick)
        best = self.fastest(problems, default, [replace(best, tile=x) for x in tiles])
        self.progress(f"{engine.name}: cache blocks")
        best = self.fastest(problems, default, [replace(best, sizes=x) for x in candidates.sizes(engine, self.quick)])
        gain = self.confirmed(engine.name, a, b, default, best)
        return (None, 1.0) if gain is None else (best, gain)

    def engine(self, a: DType, b: DType, tuned: Sequence[Tuned]) -> tuple[str | None, float]:
        """The name of the best engine of these formats, None where that is the shipped one, and its gain over it; each
        engine with its row among `tuned`, if there is one."""
        machine, name = replace(self.machine, tuned=tuple(tuned)), f"{a.name} x {b.name}"
        default = machine.row(selection.engine_for(a, b, self.isa, self.machine), self.isa)
        self.progress(f"{name}: engines")
        rows = [machine.row(engine, self.isa) for engine in selection.candidates(a, b, self.isa)]
        best = self.fastest(_problems(SHAPES, a, b), default, rows)
        gain = self.confirmed(name, a, b, default, best)
        return (None, 1.0) if gain is None else (best.engine, gain)

    def confirmed(self, name: str, a: DType, b: DType, default: Tuned, best: Tuned) -> float | None:
        """How many times as fast as the default the best row is, with other shapes too; None where it is the default,
        or not really faster."""
        if best == default:
            return None
        self.progress(f"{name}: measuring the best again")
        gains = self.gains(_problems((*SHAPES, *CHECKS), a, b), default, [best], _CONFIRMED)[best]
        gain = _mean(gains)
        return gain if gain > _GAIN and min(gains) > _LOSS else None

    def fastest(self, problems: Sequence[Problem], default: Tuned, rows: Sequence[Tuned]) -> Tuned:
        """Of the rows that cost no shape too much, and the default, that which gains most, the first of equals."""
        gains = self.gains(problems, default, [default, *rows], _ROUNDS)
        return max((row for row in gains if min(gains[row]) > _LOSS), key=lambda row: _mean(gains[row]))

    def gains(
        self, problems: Sequence[Problem], default: Tuned, rows: Sequence[Tuned], rounds: int
    ) -> dict[Tuned, list[float]]:
        """How many times as fast as the default row each is, for each problem.

        Rows whose plans come out alike are measured once."""
        found: dict[Tuned, list[float]] = {row: [] for row in rows}
        for problem in problems:
            plans = {row: self.plan(problem, row).steps for row in (*rows, default)}
            speeds = {plans[default]: 1.0}
            distinct = [(steps, row) for steps, row in {plans[row]: row for row in rows}.items() if steps not in speeds]
            for start in range(0, len(distinct), _GROUP):
                group = distinct[start : start + _GROUP]
                calls = {str(i): self.call(problem, row) for i, (_, row) in enumerate(group)}
                took = self.seconds(calls | {"shipped": self.call(problem, default)}, rounds)
                speeds |= {steps: took["shipped"] / took[str(i)] for i, (steps, _) in enumerate(group)}
            for row in rows:
                found[row].append(speeds[plans[row]])
        return found

    def plan(self, problem: Problem, row: Tuned) -> Plan:
        """The problem's plan with a row in force."""
        return self.bench.plan(problem, self.isa, Candidate(self.isa, row, forced=False))

    def call(self, problem: Problem, row: Tuned) -> Call:
        """A call of that plan."""
        return self.bench.call(problem, self.isa, Candidate(self.isa, row, forced=False))


def _problems(shapes: Sequence[tuple[int, int, int, bool]], a: DType, b: DType) -> list[Problem]:
    return [Problem(m, k, n, a, b, packed) for m, k, n, packed in shapes]


def _mean(gains: Sequence[float]) -> float:
    return math.exp(sum(map(math.log, gains)) / len(gains))
