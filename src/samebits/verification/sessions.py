"""Running a model as a variant says, in this process or the second one, and finding where two variants differ.

Start at `Sessions.answers`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field

from samebits import errors
from samebits.codegen import isa as isas
from samebits.frozen import dataclass
from samebits.program.graph import Program
from samebits.runtime import cpu
from samebits.verification import rows as rows_
from samebits.verification.process import SecondProcess
from samebits.verification.report import Difference
from samebits.verification.rows import Arrays


@dataclass(frozen=True)
class Run:
    """Rows that are run together, and where in them rows of the test are: (place, number)."""

    rows: tuple[Arrays, ...]
    wanted: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Variant:
    """A configuration to run: what it varies, the value as the axis tells it, its name, and how it is run.

    `process` runs it in the second process; `layout` is a key of `rows.LAYOUTS`.
    """

    axis: str
    value: str
    name: str
    runs: tuple[Run, ...]
    isa: str
    threads: int = 1
    layout: str | None = None
    process: bool = False


@dataclass(frozen=True)
class Sessions:
    """A model, the symbol of its batch, the second process where there is one, and the sessions made so far."""

    program: Program
    batch: str | None
    second: SecondProcess | None
    made: dict[tuple[str, int], cpu.Session] = field(default_factory=dict)

    def get(self, isa: str, threads: int) -> cpu.Session:
        """The session for a row and a thread count, prepared once."""
        if (isa, threads) not in self.made:
            self.made[isa, threads] = cpu.prepare(self.program, isa=isa, threads=threads)
        return self.made[isa, threads]

    def refuses(self, bindings: Mapping[str, int]) -> bool:
        """Whether the model cannot have these sizes, whatever the values are."""
        try:
            self.get(isas.current().name, 1).shared_steps(bindings)
        except errors.ShapeError:
            return True
        return False

    def answers(self, variant: Variant, baseline: Mapping[int, Arrays]) -> Iterator[tuple[int, Arrays]]:
        """The outputs of each row that the variant runs, wherever it lies.

        Raises:  ShapeError if the model refuses the inputs; ProcessFailed if the second process does not answer.
        """
        for run in variant.runs:
            stacked = rows_.laid(variant.layout, rows_.stack(self.program, self.batch, run.rows))
            if variant.process:
                assert self.second is not None
                answer = self.second.run(stacked, variant.isa)
            else:
                answer = self.get(variant.isa, variant.threads).run(stacked)
            for place, number in run.wanted:
                like = baseline.get(number)
                yield number, rows_.unstack(self.program, self.batch, answer, place, len(run.rows), like)

    def locate(self, alone: Variant, variant: Variant, number: int) -> Difference | None:
        """The first value, in the program's order, whose bits for a row differ between two variants.

        The unfused program shows the node; where only a fused kernel differs, its nodes are named together.
        """
        for fuse in (False, True):
            base = self.traced(alone, alone.runs[number], fuse)
            for run in variant.runs:
                places = [place for place, n in run.wanted if n == number]
                other = self.traced(variant, run, fuse) if places else {}
                for place in places:
                    difference = self.first_difference(variant, base, other, place, len(run.rows))
                    if difference is not None:
                        return difference
        return None

    def traced(self, variant: Variant, run: Run, fuse: bool) -> dict[str, cpu.Traced]:
        """Every value of a run."""
        session = cpu.prepare(self.program, isa=variant.isa, threads=variant.threads, fuse=fuse)
        return session.trace(rows_.laid(variant.layout, rows_.stack(self.program, self.batch, run.rows)))

    def first_difference(
        self, variant: Variant, base: Mapping[str, cpu.Traced], other: Mapping[str, cpu.Traced], place: int, count: int
    ) -> Difference | None:
        """Where the row that is alone in `base` differs from the one at `place` in `other`."""
        for name, expected in base.items():
            got = other.get(name)
            if got is None:
                continue
            x, y = expected.array, got.array
            axis = rows_.batch_axis(expected.fact.shape, self.batch)
            if axis is None:
                x, y = x.ravel(), y.ravel()
            elif x.ndim == y.ndim == len(expected.fact.shape):
                x = rows_.part(x, axis, 0, 1)
                y = rows_.part(y, axis, place, count, x)
            else:
                continue  # made in the memory of an output of another shape: rows cannot be told apart in it
            if not rows_.same_bits(x, y):
                elements = rows_.different_elements(x, y)
                return Difference(variant.axis, variant.name, expected.node, name, elements)
        return None
