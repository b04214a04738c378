"""What the command prints: tables, progress and verdicts. Colours and progress only on a terminal (rich decides)."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import math
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from rich.text import Text

from samebits import driver
from samebits.bench.rank import Entry, Ranking
from samebits.codegen.isa import Isa
from samebits.doctor import report as diagnosis
from samebits.doctor.trial import Cell, Outcome
from samebits.errors import printable
from samebits.frozen import dataclass
from samebits.program.graph import Program
from samebits.tuning import Record
from samebits.verification.compare import Comparison
from samebits.verification.report import Verification


class _Console(Console):
    """A console whose closed pipe is the command's to answer: rich would end with 1, which says that bits differ."""

    def on_broken_pipe(self) -> None:
        """Raises:  BrokenPipeError."""
        raise BrokenPipeError


# Names of a model are printed as they are: markup would take `[/block]` in one for an order.
_out = _Console(highlight=False, markup=False, soft_wrap=True)
_err = _Console(highlight=False, markup=False, stderr=True)
_ENDLESS = 1 << 20  # columns


def table(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """A table with a header, as wide as it needs to be: nothing in it is cut."""
    made = Table(box=None, pad_edge=False)
    for name in header:
        made.add_column(name, no_wrap=True)
    for row in rows:
        made.add_row(*(cell if isinstance(cell, Text) else Text(printable(str(cell))) for cell in row))
    needed = _out.measure(made, options=_out.options.update(width=_ENDLESS)).maximum
    _Console(highlight=False, markup=False, width=max(_out.width, needed)).print(made)


@dataclass(frozen=True, slots=True)
class Answer:
    """What a model answered.

    Attributes:
        outputs: By name.
        digest: Of all of them.
        isa: The row that computed them.
        made_up: The extents of the symbols of inputs that were made up, None where they were given.
        seed: What made-up inputs were made from.
    """

    outputs: Mapping[str, NDArray[np.generic]]
    digest: str
    isa: str
    made_up: Mapping[str, int] | None
    seed: int


def outputs(found: Answer) -> None:
    """Each output's name, format and shape, where the inputs came from, and one digest of all."""
    table(["output", "dtype", "shape"], [[name, x.dtype, list(x.shape)] for name, x in found.outputs.items()])
    if found.made_up is not None:
        extents = "".join(f", {printable(name)}={extent}" for name, extent in found.made_up.items())
        _out.print(f"inputs made up from seed {found.seed}{extents}; --input gives your own")
    _out.print(f"digest {found.digest} (isa {found.isa})")


def outputs_json(found: Answer) -> dict[str, Any]:
    """The answer's facts as plain values; `made_up` is None where the inputs were given."""
    made_up = None if found.made_up is None else {"seed": found.seed, "bindings": dict(found.made_up)}
    shapes = {name: {"dtype": str(x.dtype), "shape": list(x.shape)} for name, x in found.outputs.items()}
    return {"outputs": shapes, "digest": found.digest, "isa": found.isa, "made_up": made_up, "exit_code": 0}


def program_json(program: Program, bindings: Mapping[str, int] | None, plans: Sequence[str] | None) -> dict[str, Any]:
    """A program as plain values; `bindings` and `plans` are None where no plan was asked for."""

    def fact(name: str) -> dict[str, Any]:
        found = program.facts[name]
        return {"dtype": found.dtype.name, "shape": [x if isinstance(x, int) else str(x) for x in found.shape]}

    nodes = [
        {
            "operation": node.operation,
            "inputs": list(node.inputs),
            "outputs": list(node.outputs),
            "attributes": None if node.attributes is None else str(node.attributes),
            "origin": list(node.origin),
        }
        for node in program.nodes
    ]
    return {
        "name": program.name,
        "symbols": list(program.symbols),
        "inputs": list(program.input_names),
        "outputs": list(program.output_names),
        "constants": list(program.constants),
        "values": {name: fact(name) for name in program.facts},
        "nodes": nodes,
        "digest": program.digest(),
        "bindings": None if bindings is None else dict(bindings),
        "plans": None if plans is None else list(plans),
        "exit_code": 0,
    }


_SILENT_SECONDS, _BETWEEN_SECONDS = 1.0, 2.0


@contextlib.contextmanager
def progress() -> Iterator[Callable[[str], None]]:
    """A function that shows on standard error what is being done: in place on a terminal, elsewhere line by line.

    Where lines stay, none comes in the first second, and later ones are seconds apart.
    """
    if _err.is_terminal:
        with _err.status("preparing", spinner="line") as status:
            yield lambda name: status.update(Text(name))
        return
    next_time = time.monotonic() + _SILENT_SECONDS

    def say(name: str) -> None:
        nonlocal next_time
        now = time.monotonic()
        if now >= next_time:
            next_time = now + _BETWEEN_SECONDS
            with contextlib.suppress(OSError):  # where nobody listens, the work goes on
                print(f"samebits: {name}", file=sys.stderr, flush=True)

    yield say


def report(found: Verification, compared: Comparison | None) -> None:
    """What was tried, the comparison if there is one, and the verdict."""
    *lines, verdict = str(found).splitlines()
    for line in lines:
        text = Text(line)
        text.highlight_regex(r" same$", "green")
        text.highlight_regex(r" DIFFERENT$", "red")
        _out.print(text)
    if compared is not None:
        _out.print(
            f"against {compared.runtime}: largest difference {compared.absolute:.3g} absolute, {compared.ulp} ulp,"
            f" in output {printable(compared.output)}"
        )
    colour = {0: "bold green", 1: "bold red", 2: "bold yellow"}[found.exit_code]
    _out.print(Text(verdict, colour))


def report_json(found: Verification, compared: Comparison | None) -> dict[str, Any]:
    """The report as plain values; an infinite difference, for which JSON has no number, is None."""
    made: dict[str, Any] = {"against": None}
    if compared is not None:
        apart = compared.absolute if math.isfinite(compared.absolute) else None
        made["against"] = dataclasses.asdict(compared) | {"absolute": apart}
    return found.as_dict() | made


_SYMBOLS: dict[Outcome, tuple[str, str]] = {
    "zero-copy": ("=", "green"),
    "copy": ("c", "cyan"),
    "bytes": ("b", "yellow"),
    "refused": ("x", "red"),
    "relabelled": ("~", "red"),
    "wrong": ("!", "bold red"),
    "crashed": ("!", "bold red"),
    "cannot hold": ("-", "dim"),
}
_BY_ITS_ROW = ("r", "magenta")
_WIDE = 200  # columns of a reason that is not asked for
_LEGEND = (
    "in, out: = kept, no copy; c kept, copied; r refused by from_any or by the framework's own call, kept by lines that"
    " say what its bytes are; b the framework lacks it, its bytes cross with the name beside them; x refused;"
    " ~ under another name; ! broken; - the framework lacks it"
)


def _symbol(cell: Cell) -> tuple[str, str]:
    """What stands for a cell in the matrix, and its colour."""
    return _BY_ITS_ROW if cell.way == "row" else _SYMBOLS[cell.outcome]


def doctor(found: diagnosis.Diagnosis, *, verbose: bool) -> None:
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
    _out.print(f"linker   {machine.linker}")
    _out.print(f"cuda     {'driver ' + machine.cuda_driver if machine.cuda_driver else 'no driver'}")
    shown = [one for one in found.tried if one.cells]
    _out.print("tried    " + (", ".join(f"{one.name} {one.version}" for one in shown) or "no framework"))
    missing = [one.name for one in found.tried if one.version is None and not one.failure]
    if missing:
        _out.print("missing  " + ", ".join(missing))
    for one in found.tried:
        if one.failure:
            called = one.name if one.version is None else f"{one.name} {one.version}"
            _out.print(Text(f"{called} was not tried to the end: {one.failure}", "red"))
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
    colour = {0: "bold green", 1: "bold red", 2: "bold yellow"}[found.exit_code]
    _out.print(Text(found.verdict, colour))


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

    def outcomes(dtype: str) -> list[tuple[tuple[str, str], ...]]:
        return [tuple(map(_symbol, by_dtype[dtype].get(one.name, []))) for one in shown]

    rows: list[list[Any]] = []
    for alike, group in itertools.groupby(by_dtype, outcomes):
        names = list(group)
        label = names[0] if len(names) == 1 else f"{names[0]} .. {names[-1]}"
        rows.append([label, *(Text.assemble(*pair) for pair in alike)])
    return rows


def doctor_json(found: diagnosis.Diagnosis) -> dict[str, Any]:
    """The report as plain values."""
    broken = [dataclasses.asdict(cell) for cell in found.broken]
    return dataclasses.asdict(found) | {"broken": broken, "exit_code": found.exit_code}


_SHOWN = 10  # candidates of a ranking on the screen; --json has all
_NOTED = 80  # columns of why a library does not multiply


def rankings(found: Sequence[Ranking]) -> None:
    """One table a problem: its fastest candidates, the picked one, the peers; and the verdicts."""
    for ranking in found:
        facts = [f"{ranking.isa}, threads {ranking.threads}", ranking.unit]
        if ranking.peak is not None:
            facts.append(f"peak {ranking.peak:.1f}")
        _out.print(Text(f"{ranking.problem} ({', '.join(facts)})", "bold"))
        shown = [*ranking.candidates[:_SHOWN]]
        shown += [] if ranking.picked in shown else [ranking.picked]
        rows = [_rated(entry, ranking) for entry in (*shown, *ranking.peers)]
        table([ranking.unit, "of peak", "of picked", "", "kernel or library"], rows)
        _out.print(f"{len(ranking.candidates)} candidates, of which {len(shown)} are shown; * measured a few times")
        if ranking.ratio is not None:
            _out.print(f"picked over the best library: {ranking.ratio:.2f}")
        _out.print(Text(ranking.verdict, "bold red" if ranking.lags else "bold green"))
        _out.print("")


def _rated(entry: Entry, ranking: Ranking) -> list[Any]:
    if entry.rate is None or ranking.picked.rate is None:
        return ["-", "", "", "", f"{entry.name}: {entry.note[:_NOTED]}"]
    of_peak = f"{entry.rate / ranking.peak:.0%}" if ranking.peak is not None else ""
    mark = Text("picked", "green") if entry.picked else "*" if entry.screened else ""
    return [f"{entry.rate:.1f}", of_peak, f"{entry.rate / ranking.picked.rate:.3f}", mark, entry.name]


def rankings_json(found: Sequence[Ranking], exit_code: int) -> dict[str, Any]:
    """The rankings as plain values."""
    made = [dataclasses.asdict(x) | {"lags": x.lags, "verdict": x.verdict} for x in found]
    return {"rankings": made, "exit_code": exit_code}


def tuned(isa: Isa, record: Record | None) -> None:
    """What is kept for one Isa row."""
    if record is None:
        _out.print(f"nothing is kept for {isa.name}: products use the shipped choices")
        return
    rows = []
    for name, gain in record.gains:
        row = next((row for row in record.rows if row.engine == name), None)
        if row is None:
            rows.append([name, "shipped", "", "", ""])
            continue
        sizes = f"A {row.sizes.a_bytes // 1024} KiB, KC {row.sizes.kc}"
        rows.append([name, "tuned", f"MR {row.tile.mr} NV {row.tile.nv}", sizes, f"{gain:.3f}"])
    table(["engine", "", "tile", "blocks", "speed over shipped"], rows)
    taken = {(x.a, x.b): x.engine for x in record.preferred}
    formats = [[f"{a} x {b}", taken.get((a, b), "shipped"), f"{gain:.3f}" if (a, b) in taken else ""]
               for a, b, gain in record.pairs]  # fmt: skip
    if formats:
        table(["formats", "engine", "speed over shipped"], formats)
    _out.print(f"isa {isa.name}, measured with threads {record.threads}; in force in processes started from now on")


def tuned_json(isa: Isa, record: Record | None) -> dict[str, Any]:
    """The record as plain values; `kept` is None where there is none."""
    made = None if record is None else dataclasses.asdict(record) | {"gains": dict(record.gains)}
    return {"isa": isa.name, "processor": driver.processor(), "kept": made}
