"""The picture of a ranking: its bars, and one clear error where matplotlib is missing."""

from __future__ import annotations

import errno
import io
import os
import pathlib
import sys
import types

import pytest

from samebits.bench import chart
from samebits.bench.rank import Entry, Ranking
from samebits.errors import MissingPackageError, OptionError


def ranking(candidates: int = 20, picked: int = 15, peak: float | None = 100.0) -> Ranking:
    entries = tuple(Entry(f"candidate {i}", 1.0 + i, 90.0 - i, picked=i == picked) for i in range(candidates))
    peers = (Entry("torch 1", 2.0, 50.0), Entry("numpy 2", None, None, note="cannot"))
    return Ranking("1 x 2 x 3 float32", "GFLOP/s", "avx2", 2, entries, peers, 0.1, 1.5, peak)


def test_bars_are_the_fastest_the_picked_and_the_peers() -> None:
    found = chart.bars(ranking())
    assert [rate for _, rate, _ in found] == sorted(rate for _, rate, _ in found)
    names = [name for name, _, _ in found]
    assert "candidate 15 (picked)" in names
    assert {"candidate 0", "torch 1"} <= set(names)
    assert "numpy 2" not in names
    assert len(found) == 13
    assert {kind for _, _, kind in found} == {"picked", "candidate", "peer"}


def test_without_matplotlib_there_is_one_clear_error(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
    for name in [*sys.modules, "matplotlib"]:
        if name.partition(".")[0] == "matplotlib":
            monkeypatch.setitem(sys.modules, name, None)
    expected = "bench: package matplotlib is not installed, must be installed; pip install 'samebits[bench]'"
    for call in (chart.check, lambda: chart.draw([ranking()], tmp_path / "x.png")):
        with pytest.raises(MissingPackageError) as caught:
            call()
        assert str(caught.value) == expected
    assert not (tmp_path / "x.png").exists()


class _Panel:
    """What a panel is asked for."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.spines = self

    def __getitem__(self, names: list[str]) -> _Panel:
        return self

    def __getattr__(self, name: str) -> object:
        return lambda *_, **__: self.said.append(name)


def test_a_panel_a_problem_and_a_line_for_the_peak(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
    panels = [_Panel(), _Panel()]

    class Column(list):  # type: ignore[type-arg]
        def __getitem__(self, at: object) -> object:
            return panels

    class Figure:
        def __init__(self, **_: object) -> None: ...

        def subplots(self, rows: int, *_: object, **__: object) -> object:
            assert rows == 2
            return Column()

        def savefig(self, target: io.BytesIO, **facts: object) -> None:
            target.write(str(facts["format"]).encode())

    figure = types.ModuleType("matplotlib.figure")
    figure.Figure = Figure  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "matplotlib", types.ModuleType("matplotlib"))
    monkeypatch.setitem(sys.modules, "matplotlib.figure", figure)
    monkeypatch.setattr(chart, "check", lambda: None)
    chart.draw([ranking(), ranking(peak=None)], tmp_path / "x.png")
    assert (tmp_path / "x.png").read_text() == "png"
    assert "axvline" in panels[0].said
    assert "axvline" not in panels[1].said
    (tmp_path / "folder.png").mkdir()
    with pytest.raises(OptionError, match=r"is unwritable \(it is a directory\), must be a file that can be written"):
        chart.draw([ranking(), ranking()], tmp_path / "folder.png")


def test_a_picture_that_fails_leaves_what_was_there(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / "x.png"
    path.write_text("kept")

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(OptionError, match="No space left on device"):
        chart.draw([ranking()], path)
    assert os.listdir(tmp_path) == ["x.png"]
    assert path.read_text() == "kept"


def test_a_png_is_drawn(tmp_path: pathlib.Path) -> None:
    pytest.importorskip("matplotlib")
    chart.draw([ranking(), ranking(3, 0)], tmp_path / "x.png")
    assert (tmp_path / "x.png").read_bytes().startswith(b"\x89PNG")
