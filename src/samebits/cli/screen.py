"""What the command prints: tables, progress and verdicts. Colours and progress only on a terminal (rich decides)."""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from rich.text import Text

from samebits.verify import Comparison, Report

# Names of a model are printed as they are: markup would take `[/block]` in one for an order.
_out = Console(highlight=False, markup=False, soft_wrap=True)
_err = Console(highlight=False, markup=False, stderr=True)
_ENDLESS = 1 << 20  # columns


def table(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """A table with a header, as wide as it needs to be: nothing in it is cut."""
    made = Table(box=None, pad_edge=False)
    for name in header:
        made.add_column(name, no_wrap=True)
    for row in rows:
        made.add_row(*(cell if isinstance(cell, Text) else Text(str(cell)) for cell in row))
    needed = _out.measure(made, options=_out.options.update(width=_ENDLESS)).maximum
    Console(highlight=False, markup=False, width=max(_out.width, needed)).print(made)


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
        yield lambda name: status.update(Text(name))


def report(found: Report, compared: Comparison | None) -> None:
    """The table of configurations, the comparison if there is one, and the verdict."""
    rows = [
        [c.axis, c.name, c.digest, Text("same", "green") if c.agrees else Text("DIFFERENT", "red")]
        for c in found.configurations
    ]
    table(["axis", "configuration", "digest", "bits"], rows)
    if compared is not None:
        _out.print(
            f"against {compared.runtime}: largest difference {compared.absolute:.3g} absolute, {compared.ulp} ulp,"
            f" in output {compared.output}"
        )
    colour = {0: "bold green", 1: "bold red", 2: "bold yellow"}[found.exit_code]
    _out.print(Text(found.verdict, colour))


def report_json(found: Report, compared: Comparison | None) -> dict[str, Any]:
    """The report as plain values; an infinite difference, for which JSON has no number, is None."""
    made = dataclasses.asdict(found)
    made["bindings"] = dict(found.bindings)
    made["unvaried"] = dict(found.unvaried)
    made["against"] = None
    if compared is not None:
        apart = compared.absolute if math.isfinite(compared.absolute) else None
        made["against"] = dataclasses.asdict(compared) | {"absolute": apart}
    return made | {"verdict": found.verdict, "exit_code": found.exit_code}
