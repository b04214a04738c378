"""What the command prints: tables, progress and verdicts. Colours and progress only on a terminal (rich decides)."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from samebits.verify import Comparison, Report

_out = Console(highlight=False, soft_wrap=True)
_err = Console(highlight=False, stderr=True)


def table(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """A table with a header."""
    made = Table(box=None, pad_edge=False)
    for name in header:
        made.add_column(name, no_wrap=True)
    for row in rows:
        made.add_row(*map(str, row))
    _out.print(made)


def outputs(answer: Mapping[str, NDArray[np.generic]], digest: str, isa: str) -> None:
    """Each output's name, format and shape, and one digest of all."""
    table(["output", "dtype", "shape"], [[name, x.dtype, list(x.shape)] for name, x in answer.items()])
    _out.print(f"digest {digest} (isa {isa})")


@contextlib.contextmanager
def progress() -> Iterator[Callable[[str], None]]:
    """A function that shows what is being done, on a terminal only."""
    if not _err.is_terminal:
        yield lambda name: None
        return
    with _err.status("preparing") as status:
        yield status.update


def report(found: Report, compared: Comparison | None) -> None:
    """The table of configurations, the comparison if there is one, and the verdict."""
    rows = [
        [c.axis, c.name, c.digest, "[green]same[/]" if c.agrees else "[red]DIFFERENT[/]"] for c in found.configurations
    ]
    table(["axis", "configuration", "digest", "bits"], rows)
    if compared is not None:
        _out.print(
            f"against {compared.runtime}: largest difference {compared.absolute:.3g} absolute, {compared.ulp} ulp,"
            f" in output {compared.output}"
        )
    colour = {0: "bold green", 1: "bold red", 2: "bold yellow"}[found.exit_code]
    _out.print(f"[{colour}]{found.verdict}[/]")


def report_json(found: Report, compared: Comparison | None) -> dict[str, Any]:
    """The report as plain values."""
    made = dataclasses.asdict(found)
    made["bindings"] = dict(found.bindings)
    made["unvaried"] = dict(found.unvaried)
    made["against"] = dataclasses.asdict(compared) if compared else None
    return made | {"verdict": found.verdict, "exit_code": found.exit_code}
