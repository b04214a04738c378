"""The configurations that are tried of rows of one kind and size, axis by axis. Start at `Variants.all`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from samebits import driver, errors, samples
from samebits.codegen import isa as isas
from samebits.frozen import dataclass
from samebits.verification import rows as rows_
from samebits.verification.rows import Arrays
from samebits.verification.sessions import Run, Sessions, Variant
from samebits.verification.sizes import ModelSizes

ROWS = 17


@dataclass(frozen=True)
class Case:
    """Rows of one kind and size.

    Attributes:
        name: How they are told apart.
        bindings: The extents of one row; the batch symbol's is 1.
        rows: What is run.
        others: Two rows more.
        most: The magnitude to which integers are kept; None for that of their formats.
        full: Whether every value of each axis is tried, or one or two.
    """

    name: str
    bindings: dict[str, int]
    rows: tuple[Arrays, ...]
    others: tuple[Arrays, Arrays]
    most: int | None = None
    full: bool = True


@dataclass(frozen=True)
class Variants:
    """What can be tried of a case.

    Attributes:
        sessions: Of the model.
        sizes: Which batches are worth trying.
        case: The rows.
        refused: Called with an axis and a value that the model refuses.
        too_large: Called with an axis, a symbol, and an extent that is worth trying but beyond the bound.
    """

    sessions: Sessions
    sizes: ModelSizes
    case: Case
    refused: Callable[[str, str], None]
    too_large: Callable[[str, str, int], None]

    def alone(self) -> Variant:
        """The baseline: each row alone."""
        best = isas.current().name
        return Variant("baseline", "", f"each row alone, {best}, 1 thread", self.apart(), best)

    def all(self, *, interpreter: bool) -> Iterator[Variant]:
        """Every configuration but the baseline."""
        best, count = isas.current().name, len(self.case.rows)
        if self.sessions.batch is not None:
            yield from self.batches(self.sessions.batch)
            yield Variant("position", "reversed", "reversed order", self.together(range(count)[::-1]), best)
            if self.case.full:
                around = self.together([(r + 5) % count for r in range(count)])
                yield Variant("position", "rotated by 5", "rotated by 5", around, best)
            yield from self.neighbours()
        yield from self.threads()
        whole = self.together(range(count))
        rows = [row.name for row in isas.isas() if row.available and row.compiled]
        for row in rows:
            if row != best:
                yield Variant("isa", row, row, whole, row)
        if self.case.full and self.sessions.second is not None:
            for row in rows:
                yield Variant("process", row, f"a second process, {row}", whole, row, process=True)
        for layout in list(rows_.LAYOUTS)[: None if self.case.full else 1]:
            yield Variant("strides", layout, layout, whole, best, layout=layout)
        if interpreter:
            yield Variant("isa", "numpy", "numpy, the first row alone", self.apart()[:1], "numpy")

    def apart(self) -> tuple[Run, ...]:
        """Each row alone."""
        return tuple(Run((row,), ((0, number),)) for number, row in enumerate(self.case.rows))

    def together(self, numbers: Sequence[int]) -> tuple[Run, ...]:
        """Those rows in one batch, each compared at every place where it lies; without a batch each alone."""
        if self.sessions.batch is None:
            return self.apart()
        return (Run(tuple(self.case.rows[n] for n in numbers), tuple(enumerate(numbers))),)

    def batches(self, symbol: str) -> Iterator[Variant]:
        """Batches of many sizes: small ones hold every row once, the last filled up from the front."""
        count = len(self.case.rows)
        sizes, beyond = self.sizes.batches(self.case.bindings)
        if beyond is not None and not self.sessions.refuses({**self.case.bindings, symbol: beyond}):
            self.too_large("batch", symbol, beyond)
        for n in sizes if self.case.full else sorted({count, sizes[-1]}):
            starts = range(0, count, n) if n <= count else range(1)
            runs = [run for at in starts for run in self.together([(at + i) % count for i in range(n)])]
            yield Variant("batch", str(n), f"batches of {n}", tuple(runs), isas.current().name)

    def neighbours(self) -> Iterator[Variant]:
        """Each row between two rows of other numbers, NaN among them."""
        best, case, program = isas.current().name, self.case, self.sessions.program
        beside = {"other rows": case.others} if case.full else {}
        for what in samples.POISONS[: None if case.full else 1]:
            beside[what] = (samples.poison(program, case.bindings, what, case.most),) * 2
        for what, (left, right) in beside.items():
            try:
                self.sessions.get(best, 1).run(left)
            except errors.ShapeError:
                self.refused("neighbours", what)
                continue
            between = tuple(Run((left, row, right), ((1, number),)) for number, row in enumerate(case.rows))
            yield Variant("neighbours", what, f"each between {what}", between, best)

    def threads(self) -> Iterator[Variant]:
        """Thread counts on a batch whose steps they share: with less to do every plan is of one thread."""
        best, case, symbol = isas.current().name, self.case, self.sessions.batch
        counts = sorted({2, 3, driver.usable_cores() + 1})
        n = self.shared_batch(counts[-1])
        runs = self.together([i % len(case.rows) for i in range(n)])
        bound = case.bindings if symbol is None else {**case.bindings, symbol: n}
        for threads in counts if case.full else counts[-1:]:
            steps = self.sessions.get(best, threads).shared_steps(bound)
            if steps:
                name = f"{threads} threads share {steps} steps" + ("" if symbol is None else f" of {n} rows")
                yield Variant("threads", str(threads), name, runs, best, threads)

    def shared_batch(self, threads: int) -> int:
        """The smallest batch, from that of all rows on, of which so many threads share the most steps."""
        symbol, bindings, count = self.sessions.batch, self.case.bindings, len(self.case.rows)
        if symbol is None:
            return 1
        session = self.sessions.get(isas.current().name, threads)
        most = self.sizes.most(symbol, bindings) if self.case.full else count
        batches = [count, *(1 << i for i in range(most.bit_length()) if 1 << i > count)]
        taken = [n for n in batches if not self.sessions.refuses({**bindings, symbol: n})]
        # Of equal ones `max` takes the first.
        return max(taken, key=lambda n: session.shared_steps({**bindings, symbol: n}), default=count)
