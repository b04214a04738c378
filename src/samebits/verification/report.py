"""What `verify` returns: a value that prints itself, compares, and turns into JSON. Start at `Verification`."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

from samebits.errors import printable
from samebits.frozen import dataclass
from samebits.verification.proof import Proof


@dataclass(frozen=True, slots=True)
class Configuration:
    """One way to run the rows.

    Attributes:
        axis: What it varies.
        name: How.
        inputs: Which inputs the rows are made of.
        digest: Of all rows' outputs; `refused` where the model took the rows one by one and not like this.
        agrees: Whether every row has the bits that it has alone.
    """

    axis: str
    name: str
    inputs: str
    digest: str
    agrees: bool


@dataclass(frozen=True, slots=True)
class TriedAxis:
    """What was tried of one axis: the values, each once, and a remark, such as values that the model refuses."""

    name: str
    values: tuple[str, ...]
    note: str = ""


@dataclass(frozen=True, slots=True)
class Difference:
    """The first node whose bits differ between the baseline and a configuration."""

    axis: str
    name: str
    node: str
    value: str
    elements: int


@dataclass(frozen=True, slots=True)
class Verification:
    """What `verify` tried and found.

    Attributes:
        configurations: Every way in which the model was run.
        axes: What was tried of each axis.
        difference: The first node that differs; None where none does, or none when run again.
        unvaried: What could not be varied or is not shown, each with the reason.
        bindings: The extents of the first inputs' symbols; the batch symbol's is 1.
        most_elements: How many elements all values of one run might have, at most.
        proofs: Of each output, whether its rows are proved not to depend on each other; none without a batch symbol.
    """

    configurations: tuple[Configuration, ...]
    axes: tuple[TriedAxis, ...]
    difference: Difference | None
    unvaried: tuple[tuple[str, str], ...]
    bindings: tuple[tuple[str, int], ...]
    most_elements: int
    proofs: tuple[Proof, ...] = ()

    @property
    def same(self) -> bool:
        """Whether every configuration that was tried gave the same bits."""
        return all(c.agrees for c in self.configurations)

    @property
    def ok(self) -> bool:
        """Whether every configuration gave the same bits, and every axis was varied."""
        return self.same and not self.unvaried

    @property
    def exit_code(self) -> int:
        """0 if `ok`, 1 if not the `same`, 2 if the same but not all was varied."""
        return 0 if self.ok else 2 if self.same else 1

    @property
    def verdict(self) -> str:
        """One sentence."""
        n = len(self.configurations)
        wrong = [c for c in self.configurations if not c.agrees]
        if wrong:
            d = self.difference
            first = f"first at node {d.node} (value {d.value})" if d else "at no single node when run again"
            moved = f"moved by {wrong[0].axis} ({wrong[0].name}, {wrong[0].inputs})"
            return f"NOT the same bits: {len(wrong)} of {n} configurations differ; {first}, {moved}"
        tail = "".join(f"; {axis}: {why}" for axis, why in self.unvaried)
        return f"all {n} configurations that were tried gave the same bits{tail}"

    def as_dict(self) -> dict[str, Any]:
        """The same as values that JSON has."""
        reasons: dict[str, str] = {}
        for axis, why in self.unvaried:
            reasons[axis] = f"{reasons[axis]}; {why}" if axis in reasons else why
        said = {"bindings": dict(self.bindings), "unvaried": reasons, "verdict": self.verdict}
        counted = [dataclasses.asdict(axis) | {"tried": len(axis.values)} for axis in self.axes]
        return (
            dataclasses.asdict(self)
            | said
            | {"axes": counted, "same": self.same, "ok": self.ok, "exit_code": self.exit_code}
        )

    def _lines(self) -> Iterator[tuple[str, ...]]:
        """Every configuration of the first inputs; of the others those of one axis together, if they agree."""
        first = self.configurations[0].inputs if self.configurations else ""
        for (inputs, axis, _), group in itertools.groupby(
            self.configurations, lambda c: (c.inputs, c.axis, (c.agrees and c.inputs != first) or c.name)
        ):
            alike = list(group)
            c = alike[0]
            name = c.name if len(alike) == 1 else f"{len(alike)} configurations"
            yield axis, name, inputs, c.digest, "same" if c.agrees else "DIFFERENT"

    def __str__(self) -> str:
        lines = _table(("axis", "configuration", "inputs", "digest", "bits"), list(self._lines()))
        tried = [(x.name, str(len(x.values)), _said(x)) for x in self.axes]
        lines += ["", *_table(("axis", "tried", "what"), tried)]
        told = [(x.output, "proved" if x.proved else "unknown", x.reason) for x in self.proofs]
        lines += ["", *_table(("output", "rows alone", "why"), told)] if told else []
        lines.append(
            f"no sizes were tried for which a run has more than {self.most_elements} elements in all its values"
        )
        return "\n".join([*lines, printable(self.verdict)])


def _said(axis: TriedAxis) -> str:
    return ", ".join(axis.values) + (f" ({axis.note})" if axis.note and axis.values else axis.note)


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Columns two blanks apart, as wide as they need to be."""
    lines = [[*map(printable, row)] for row in (header, *rows)]
    widths = [max(len(row[i]) for row in lines) for i in range(len(header))]
    return ["  ".join(x.ljust(width) for x, width in zip(row, widths, strict=True)).rstrip() for row in lines]
