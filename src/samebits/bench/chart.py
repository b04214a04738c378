"""A ranking as a picture, drawn by matplotlib (extra `bench`), which is imported here alone."""

from __future__ import annotations

import io
import pathlib
from collections.abc import Sequence
from typing import Any

from samebits import files, optional
from samebits.bench.rank import Entry, Ranking

# Bars of a panel: enough to see what is near the best.
_BARS = 12
_COLOURS = {"picked": "#2a78b5", "candidate": "#a8c6dd", "peer": "#e39a3b"}


def check() -> None:
    """Raises:  MissingPackageError if matplotlib is not installed."""
    if not optional.is_installed("matplotlib"):
        raise optional.missing("bench", "matplotlib")


def bars(ranking: Ranking) -> list[tuple[str, float, str]]:
    """(label, rate, kind) of what is shown: the fastest candidates, the picked one in any case, the peers."""
    shown = [*ranking.candidates[:_BARS]]
    if ranking.picked not in shown:
        shown[-1] = ranking.picked
    found = [(_label(entry), entry, "picked" if entry.picked else "candidate") for entry in shown]
    found += [(entry.name, entry, "peer") for entry in ranking.peers if entry.rate is not None]
    rated = [(name, entry.rate, kind) for name, entry, kind in found if entry.rate is not None]
    return sorted(rated, key=lambda bar: bar[1])


def _label(entry: Entry) -> str:
    return entry.name + (" (picked)" if entry.picked else "")


def draw(rankings: Sequence[Ranking], path: pathlib.Path) -> None:
    """Write a PNG: one panel a problem, one bar a candidate or peer, the peak as a line.

    Raises:  MissingPackageError without matplotlib; OptionError if the file cannot be written.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise optional.missing("bench", "matplotlib", error) from None

    rows = [bars(ranking) for ranking in rankings]
    heights = [1 + 0.24 * len(row) for row in rows]
    figure: Any = Figure(figsize=(11, sum(heights)), layout="constrained")
    panels = figure.subplots(len(rows), 1, squeeze=False, gridspec_kw={"height_ratios": heights})[:, 0]
    for panel, ranking, row in zip(panels, rankings, rows, strict=True):
        panel.barh([name for name, _, _ in row], [rate for _, rate, _ in row], color=[_COLOURS[x] for *_, x in row])
        if ranking.peak is not None:
            panel.axvline(ranking.peak, color="black", linewidth=1, linestyle="--")
        panel.set_title(f"{ranking.problem}, {ranking.isa}, threads {ranking.threads}", fontsize=9, loc="left")
        panel.set_xlabel(ranking.unit + (", dashed: peak" if ranking.peak is not None else ""), fontsize=8)
        panel.tick_params(labelsize=7)
        panel.spines[["top", "right"]].set_visible(False)
    target = io.BytesIO()
    figure.savefig(target, format="png", dpi=120)
    new = files.Replacement("bench", str(path))
    try:
        new.write(target.getvalue(), 0)
        new.commit()
    finally:
        new.discard()
