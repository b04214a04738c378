"""What the command prints: tables, progress and verdicts. Colours and progress only on a terminal (rich decides)."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from rich.text import Text

from samebits.doctor import report as diagnosis
from samebits.doctor.trial import Cell, Outcome
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


_SYMBOLS: dict[Outcome, tuple[str, str]] = {
    "zero-copy": ("=", "green"),
    "copy": ("c", "cyan"),
    "bytes": ("b", "yellow"),
    "refused": ("x", "red"),
    "relabelled": ("~", "red"),
    "wrong": ("!", "bold red"),
    "crashed": ("!", "bold red"),
    "cannot hold": ("·", "dim"),
}
_WIDE = 200  # columns of a reason that is not asked for
_LEGEND = (
    "in, out: = kept, no copy; c kept, copied; b the framework lacks it, its bytes cross with the name beside them;"
    " x refused; ~ under another name; ! broken; · the framework lacks it"
)


def doctor(found: diagnosis.Report, *, verbose: bool) -> None:
    """The machine, the matrix, what is not kept."""
    machine = found.machine
    rows = " ".join(name + ("" if runs else " (not here)") for name, runs in machine.isas)
    kept = "none: every kernel is compiled in each process"
    if machine.cache is not None:
        limit = machine.cache_limit_bytes / 1e6
        kept = f"{machine.cache}: {machine.cache_entries} objects, {machine.cache_bytes / 1e6:.1f} of {limit:.0f} MB"
    stands_on = ", ".join(f"{name} {version}" for name, version in machine.versions)
    _out.print(
        f"samebits {machine.samebits}, Python {machine.python}, {machine.platform}, {machine.cores} cores; {stands_on}"
    )
    _out.print(f"isa      {rows}; default {machine.default_isa}")
    _out.print(f"cache    {kept}")
    _out.print(f"cuda     {'driver ' + machine.cuda_driver if machine.cuda_driver else 'no driver'}")
    shown = [one for one in found.tried if one.cells]
    _out.print("tried    " + (", ".join(f"{one.name} {one.version}" for one in shown) or "no framework"))
    missing = [one.name for one in found.tried if one.version is None]
    if missing:
        _out.print("missing  " + ", ".join(missing))
    for one in found.tried:
        if one.failure:
            _out.print(Text(f"{one.name} {one.version} was not tried to the end: {one.failure}", "red"))
    if shown:
        _out.print()
        table(["dtype", *(one.name for one in shown)], _matrix_rows(shown))
        _out.print(_LEGEND)
    broken = found.broken
    for cells in _grouped(cell for one in shown for cell in one.cells if cell in broken or (verbose and cell.reason)):
        first = cells[0]
        names = ", ".join(cell.dtype for cell in cells)
        text = f"{first.framework} {first.direction}, {first.outcome}: {names}: {first.reason}"
        _out.print(Text(text if verbose else text[:_WIDE], "red" if first in broken else ""))
    verdict = f"{len(broken)} cells are broken" if broken else "nothing of samebits is broken"
    _out.print(Text(verdict, "bold red" if broken else "bold green"))


def _grouped(cells: Iterable[Cell]) -> list[list[Cell]]:
    """Cells of one framework, direction and outcome together, if the reason is the same but for the format's name."""
    groups: dict[tuple[str, ...], list[Cell]] = {}
    for cell in cells:
        reason = cell.reason.replace(cell.dtype, "")
        groups.setdefault((cell.framework, cell.direction, cell.outcome, reason), []).append(cell)
    return list(groups.values())


def _matrix_rows(shown: Sequence[diagnosis.Tried]) -> list[list[Any]]:
    """One row for each run of formats that fare alike everywhere."""
    by_dtype: dict[str, dict[str, list[Cell]]] = {}
    for one in shown:
        for cell in one.cells:
            by_dtype.setdefault(cell.dtype, {}).setdefault(one.name, []).append(cell)

    def outcomes(dtype: str) -> list[tuple[Outcome, ...]]:
        return [tuple(cell.outcome for cell in by_dtype[dtype].get(one.name, [])) for one in shown]

    rows: list[list[Any]] = []
    for alike, group in itertools.groupby(by_dtype, outcomes):
        names = list(group)
        label = names[0] if len(names) == 1 else f"{names[0]} .. {names[-1]}"
        rows.append([label, *(Text.assemble(*(_SYMBOLS[outcome] for outcome in pair)) for pair in alike)])
    return rows


def doctor_json(found: diagnosis.Report) -> dict[str, Any]:
    """The report as plain values."""
    broken = [dataclasses.asdict(cell) for cell in found.broken]
    return dataclasses.asdict(found) | {"broken": broken, "exit_code": found.exit_code}
