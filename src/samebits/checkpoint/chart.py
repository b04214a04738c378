"""The error of blocks as a picture, drawn by matplotlib (extra `bench`), which is imported here alone."""

from __future__ import annotations

import io
import math
import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from samebits import files, optional
from samebits.checkpoint.converting import ConvertedTensor

__all__ = ["check", "draw"]

# Panels: the tensors that lost most.
_PANELS, _COLUMNS = 12, 4


def check() -> None:
    """Raises:  MissingPackageError if matplotlib is not installed."""
    if not optional.is_installed("matplotlib"):
        raise optional.missing("quantize", "matplotlib")


def draw(call: str, converted: Sequence[ConvertedTensor], path: str | os.PathLike[str]) -> None:
    """Write a picture, an SVG if the path says so, else a PNG: a panel a tensor, a colour a cell of it.

    A cell is a part of the tensor as a matrix; its colour is the error there relative to what is there, in decibels:
    10 log10(sum(x^2) / sum((x - value)^2)).

    Raises:  MissingPackageError without matplotlib; OptionError if the file cannot be written.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise optional.missing(call, "matplotlib", error) from None

    shown = sorted((x for x in converted if x.difference), key=lambda x: x.difference.sqnr_db)[:_PANELS]  # type: ignore[union-attr]
    wide = min(max(len(shown), 1), _COLUMNS)
    high = -(-max(len(shown), 1) // wide)
    figure: Any = Figure(figsize=(3.4 * wide, 2.9 * high), layout="constrained")
    panels = figure.subplots(high, wide, squeeze=False).ravel()
    for panel in panels[len(shown) :]:
        panel.set_axis_off()
    for panel, tensor in zip(panels, shown, strict=False):
        difference = tensor.difference
        assert difference is not None and difference.cells is not None
        image = panel.imshow(decibels(difference.cells), aspect="auto", interpolation="nearest", cmap="viridis")
        figure.colorbar(image, ax=panel).ax.tick_params(labelsize=6)
        called = tensor.name if len(tensor.name) <= 36 else f"...{tensor.name[-33:]}"
        panel.set_title(f"{called}\n{difference.sqnr_db:.2f} dB, {tensor.after}", fontsize=7, loc="left")
        panel.set_xlabel(f"{tensor.shape[-1]} columns", fontsize=6)
        panel.set_ylabel(f"{math.prod(tensor.shape[:-1])} rows", fontsize=6)
        panel.set_xticks([])
        panel.set_yticks([])
    target, kind = io.BytesIO(), "svg" if str(path).endswith(".svg") else "png"
    figure.savefig(target, format=kind, dpi=120, metadata={"Date": None} if kind == "svg" else None)
    new = files.Replacement(call, files.path_of(call, path))
    try:
        new.write(target.getvalue(), 0)
        new.commit()
    finally:
        new.discard()


def decibels(cells: Any) -> Any:
    """The quality of each cell: without an error that of the best that has one, without a signal none."""
    noise, signal = cells
    with np.errstate(all="ignore"):
        found = 10 * np.log10(signal / noise)
    best = found[np.isfinite(found)].max(initial=0.0)
    return np.where(signal > 0, np.where(np.isfinite(found), found, best), np.nan)
