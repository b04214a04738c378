"""The picture of a file that was quantised."""

from __future__ import annotations

import pathlib

import numpy as np
import pytest

from samebits import checkpoint
from samebits.checkpoint import chart, converting
from samebits.errors import OptionError
from samebits.kernels.quantize import dialects, formats


@pytest.mark.parametrize("kind", ["png", "svg"])
def test_a_picture_is_drawn_whole_or_not_at_all(tmp_path: pathlib.Path, kind: str) -> None:
    row = formats.of("mxfp4")
    count = {"png": 14, "svg": 2}[kind]  # more than there are panels, and less than a line of them
    checkpoint.save(tmp_path / "in.npz", {f"w{i}": np.eye(32 + i, 64, dtype=np.float32) for i in range(count)})
    with checkpoint.open(tmp_path / "in.npz") as source:
        made = converting.quantize_file(
            "quantize", source, str(tmp_path / "out.npz"), row, dialects.default(row), pictured=True
        )
    path = tmp_path / f"x.{kind}"
    chart.draw("quantize", made, path)
    assert path.read_bytes()[:4] == {"png": b"\x89PNG", "svg": b"<?xm"}[kind]
    with pytest.raises(OptionError, match="is unwritable"):
        chart.draw("quantize", made, tmp_path / "no" / "x.png")
    found = chart.decibels(np.array([[[1.0, 0.0, 0.0, 2.0]], [[100.0, 5.0, 0.0, 2.0]]]))
    assert np.array_equal(found, [[20.0, 20.0, np.nan, 0.0]], equal_nan=True)
