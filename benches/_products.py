"""Tables of matrix products: calls of ours and of other libraries in turns, each table from a process of its own,
because OpenBLAS reads its thread count and its core type once. Start at `run`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from samebits.bench import measure, peak
from samebits.bench.measure import PAUSE, Call, clock
from samebits.codegen import isa as isas
from samebits.kernels.gemm.engine import Engine
from samebits.ops import memo

Rows = list[dict[str, object]]
# The fastest Isa row of this machine, for tables of dtypes for which some machines have instructions.
BEST = isas.best().name
# What is no library's rate.
_FACTS = ("shape", "ratio", "of peak", "of read", "possible", "read")


@dataclass(frozen=True)
class Part:
    """One table: `part` makes its rows on an Isa row with so many threads; `environment`: of the process."""

    title: str
    part: Callable[[str, int], Rows]
    isa: str
    threads: int
    environment: dict[str, str] = field(default_factory=dict)


def medians(calls: Mapping[str, Call], threads: int, rounds: int, burst: int = 1) -> dict[str, float]:
    """Seconds of each call: of the process where one thread works, else of the wall, after the others went to sleep."""
    pause = PAUSE if threads > 1 else 0.0
    return measure.medians(calls, rounds, burst, pause, least=measure.LEAST, clock=clock(threads))


def limit(engine: Engine, isa: str, threads: int) -> float | None:
    """10^9 operations a second with operands in registers, the most of a few times, as the machine's other business can
    only take from it; None where the row has no instruction for the step."""
    row = isas.named(isa)
    rates = [peak.rate(engine, row, threads, lambda calls, rounds: medians(calls, threads, rounds)) for _ in range(3)]
    return max((rate for rate in rates if rate is not None), default=None)


def row(name: str, work: float, seconds: Mapping[str, float], limit: float | None = None) -> dict[str, object]:
    """Rates; ours over the peak and over the best library's; the most that this ratio could be, if nothing but the
    steps took time."""
    rates = {key: work / value for key, value in seconds.items()}
    best = max(value for key, value in rates.items() if not key.startswith("ours") and key not in _FACTS)
    found: dict[str, object] = {"shape": name, **rates, "ratio": rates["ours"] / best}
    if limit is not None:
        found |= {"of peak": rates["ours"] / limit, "possible": limit / best}
    return found


def _measured(file: str, number: int, part: Part) -> Rows:
    """One table, from a process of its own."""
    pools = dict.fromkeys(measure.POOLS, str(part.threads))
    command = [sys.executable, file, str(number)]
    environment = os.environ | pools | part.environment
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    rows: Rows = json.loads(done.stdout.splitlines()[-1])
    return rows


def _show(part: Part, rows: Rows) -> None:
    """One Markdown table."""
    names = list(dict.fromkeys(key for found in rows for key in found if key not in _FACTS or key == "read"))
    facts = [key for key in ("of peak", "of read", "ratio", "possible") if any(key in found for found in rows)]
    heads = {"of peak": "ours / peak", "of read": "ours / read", "ratio": "ours / best library"}
    heads["possible"] = "peak / best library"
    print(f"\n### {part.title} ({part.isa})\n")
    print("| M x K x N | " + " | ".join([*names, *(heads[key] for key in facts)]) + " |")
    print("|---" * (1 + len(names) + len(facts)) + "|")
    for found in rows:
        cells = [f"{found[key]:.1f}" if key in found else "" for key in names]
        cells += [f"{found[key]:.2f}" if key in found else "" for key in facts]
        print(f"| {found['shape']} | " + " | ".join(cells) + " |", flush=True)


def figure(what: str, unit: str, found: Mapping[str, object]) -> None:
    """A row of the README's table."""
    rates = {key: float(str(value)) for key, value in found.items() if key not in _FACTS and not key.startswith("ours")}
    peer = max(rates, key=lambda key: rates[key])
    print(f"figure: {what} | {found['ours']:.1f} {unit} | {peer} {rates[peer]:.1f} | {found['ratio']:.2f}")


def run(file: str, parts: Sequence[Part]) -> dict[tuple[str, int, str], dict[str, object]]:
    """Measure and print every table whose Isa row runs here; with a number as the only argument, print the rows of that
    table alone, as JSON. Returns rows by Isa row, threads and shape, the first of equals."""
    if len(sys.argv) > 1:
        memo.compile_known()  # as it is after the first few calls
        part = parts[int(sys.argv[1])]
        print(json.dumps(part.part(part.isa, part.threads)))
        return {}
    available = {row.name for row in isas.ROWS if row.available}
    found: dict[tuple[str, int, str], dict[str, object]] = {}
    for number, part in enumerate(parts):
        if part.isa in available:
            rows = _measured(file, number, part)
            _show(part, rows)
            for one in rows:
                found.setdefault((part.isa, part.threads, str(one["shape"])), one)
    return found
