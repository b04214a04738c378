"""`samebits tune` and `samebits bench gemm`: what they print, their JSON and their exit codes; nothing is timed."""

from __future__ import annotations

import json
import pathlib
from typing import Any

import pytest
from click.testing import CliRunner

from samebits import driver, errors, optional, tuning
from samebits.bench import chart, peers, worker
from samebits.bench import tune as tuner
from samebits.bench.rank import Entry, Ranking
from samebits.bench.trial import Problem
from samebits.cli.command import command
from samebits.codegen import isa as isas
from samebits.kernels.gemm.tiles import Tile
from samebits.kernels.gemm.tuned import Preferred, Sizes, Tuned

ISA = isas.best().name
RECORD = tuning.Record(
    ISA,
    1,
    (Tuned("fma float32", Tile(3, 1), Sizes(kc=512)),),
    (("fma float32", 1.25), ("fma float64", 1.0)),
    (Preferred("int8", "int8", "int32"),),
    (("int8", "int8", 1.5), ("uint8", "int8", 1.0)),
)


def samebits(*arguments: object) -> tuple[int, str]:
    """The command in this process: (exit code, standard output and error)."""
    result = CliRunner().invoke(command, [str(a) for a in arguments], catch_exceptions=False)
    return result.exit_code, result.output


def ranking(
    problem: str = "1 x 2 x 3 float32", lag: float = 0.0, picked: int = 0, peak: float | None = 100.0
) -> Ranking:
    entries = tuple(
        Entry(f"candidate {i}", 1.0 + i, 90.0 - i, picked=i == picked, screened=i > 5) for i in range(20)
    )  # fmt: skip
    others = (Entry("torch 1", 2.0, 45.0), Entry("numpy 2", None, None, note="cannot"))
    return Ranking(problem, "GFLOP/s", ISA, 2, entries, others, lag, 2.0, peak)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the measuring process is asked for; it answers with `asked["rankings"]`."""
    found: dict[str, Any] = {"rankings": [ranking()]}

    def ranked(
        problems: list[Problem], isa: str, threads: int, against: list[str], *, every: bool, progress: Any
    ) -> list[Ranking]:
        found.update(problems=problems, isa=isa, threads=threads, against=against, every=every)
        return list(found["rankings"])

    monkeypatch.setattr(worker, "ranked", ranked)
    return found


@pytest.fixture
def folder(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """An empty cache directory, and a `tune` that measures nothing."""
    monkeypatch.setenv("SAMEBITS_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(tuner, "tune", lambda isa, threads, **_: RECORD)
    return tmp_path / "cache"


def test_shapes_and_options_reach_the_process(asked: dict[str, Any]) -> None:
    code, text = samebits(
        "bench", "gemm", "3,4,5", "6x7x8", "--dtype", "uint8,int8", "--threads", 2, "--isa", "scalar", "--packed",
        "--every", "--against", "numpy,torch",
    )  # fmt: skip
    assert code == 0, text
    assert [str(x) for x in asked["problems"]] == [
        "3 x 4 x 5 uint8 x int8, b packed", "6 x 7 x 8 uint8 x int8, b packed"
    ]  # fmt: skip
    assert (asked["isa"], asked["threads"], asked["every"]) == ("scalar", 2, True)
    assert asked["against"] == ["torch", "numpy"]


def test_default_peers_are_those_installed(asked: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    missing = peers.Peer("numkong", ("no_such_module",), "numkong", lambda *_: "")
    monkeypatch.setattr(peers, "ROWS", (*peers.named(["numpy"]), missing))
    assert samebits("bench", "gemm")[0] == 0
    assert asked["against"] == ["numpy"]
    assert len(asked["problems"]) == 4
    assert samebits("bench", "gemm", "--against", "")[0] == 0
    assert asked["against"] == []


def test_a_table_marks_the_picked_kernel(asked: dict[str, Any]) -> None:
    asked["rankings"] = [ranking(picked=15), ranking("4 x 5 x 6 float32", peak=None)]
    code, text = samebits("bench", "gemm")
    lines = text.splitlines()
    assert code == 0
    assert lines[0] == f"1 x 2 x 3 float32 ({ISA}, threads 2, GFLOP/s, peak 100.0)"
    (picked,) = (line for line in lines[:20] if "candidate 15" in line)
    assert picked.split() == ["75.0", "75%", "1.000", "picked", "candidate", "15"]
    assert "torch 1" in text
    assert "numpy 2: cannot" in text
    assert "picked over the best library: 2.00" in text
    assert "20 candidates, of which 11 are shown; * measured a few times" in text
    assert text.count("picked is within 5% of the best") == 2
    assert "\x1b" not in text


def test_a_lag_ends_with_1_only_where_it_is_asserted(asked: dict[str, Any]) -> None:
    asked["rankings"] = [ranking(), ranking("4 x 5 x 6 float32", lag=0.07, picked=1)]
    code, text = samebits("bench", "gemm", "--assert")
    assert code == 1
    assert "4 x 5 x 6 float32: picked candidate 1 lags by 7.0% behind candidate 0" in text
    assert samebits("bench", "gemm")[0] == 0
    asked["rankings"] = [ranking(lag=0.05, picked=1)]
    assert samebits("bench", "gemm", "--assert")[0] == 0


def test_rankings_as_json(asked: dict[str, Any]) -> None:
    asked["rankings"] = [ranking(lag=0.07, picked=1)]
    code, text = samebits("bench", "gemm", "--json", "--assert")
    made = json.loads(text)
    assert (code, made["exit_code"]) == (1, 1)
    (found,) = made["rankings"]
    assert set(found) == {
        "problem", "unit", "isa", "threads", "candidates", "peers", "lag", "ratio", "peak", "lags", "verdict"
    }  # fmt: skip
    assert found["candidates"][1] == {
        "name": "candidate 1", "seconds": 2.0, "rate": 89.0, "picked": True, "screened": False, "note": ""
    }  # fmt: skip
    assert found["peers"][1]["seconds"] is None


def test_a_peer_that_is_missing_ends_with_2(asked: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    row = peers.Peer("numkong", ("no_such_module",), "numkong", lambda *_: "")
    monkeypatch.setattr(peers, "ROWS", (*peers.named(["numpy"]), row))
    code, text = samebits("bench", "gemm", "--against", "numpy,numkong")
    assert code == 2
    assert text == "Error: --against: numkong not installed; pip install numkong\n"
    assert "problems" not in asked


def test_a_missing_matplotlib_ends_with_2_before_anything_is_measured(
    asked: dict[str, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    def missing() -> None:
        raise optional.missing("bench", "matplotlib")

    monkeypatch.setattr(chart, "check", missing)
    assert samebits("bench", "gemm", "--chart", tmp_path / "x.png") == (
        2,
        "Error: --chart: is not installed, must be installed; pip install 'samebits[bench]'\n",
    )
    assert "problems" not in asked


def test_a_chart_that_cannot_be_written_is_refused_before_anything_is_measured(
    asked: dict[str, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    monkeypatch.setattr(chart, "check", lambda: None)
    code, text = samebits("bench", "gemm", "--chart", tmp_path / "none" / "x.png")
    assert code == 2
    assert "Invalid value for '--chart': " in text
    assert "is no directory; make it first" in text
    assert "problems" not in asked


def test_default_threads_are_at_most_those_of_a_product(asked: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "usable_cores", lambda: 384)
    assert samebits("bench", "gemm", "1,2,3", "--against", "")[0] == 0
    assert asked["threads"] == 255


def test_a_chart_is_drawn_of_what_was_measured(
    asked: dict[str, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    drawn: list[object] = []
    monkeypatch.setattr(chart, "check", lambda: None)
    monkeypatch.setattr(chart, "draw", lambda rankings, path: drawn.append((rankings, path)))
    assert samebits("bench", "gemm", "--chart", tmp_path / "x.png")[0] == 0
    assert drawn == [(asked["rankings"], tmp_path / "x.png")]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["bench", "gemm", "3,4"], "'3,4' is not M,K,N with three positive integers"),
        (["bench", "gemm", "3,4,0"], "'3,4,0' is not M,K,N with three positive integers"),
        (["bench", "gemm", "3,4,100000000"], "is not M,K,N with three positive integers below 10^8"),
        (["bench", "gemm", "3,4,x5"], "is not M,K,N with three positive integers"),
        (["bench", "gemm", "--against", "mkl"], "'mkl' is not one of torch, numpy, numkong, onnxruntime"),
        (["bench", "gemm", "--threads", "0"], "0 is not in the range 1<=x<=255"),
        (["tune", "--show", "--clear"], "--show and --clear exclude each other."),
    ],
)
def test_a_wrong_command_line_ends_with_2(asked: dict[str, Any], arguments: list[str], said: str) -> None:
    code, text = samebits(*arguments)
    assert code == 2
    assert said in text


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["tune", "--isa", "numpy"], "Invalid value for --isa: 'numpy' is interpreted, must be one of scalar, "),
        (["bench", "gemm", "--isa", "sse9"], "Invalid value for '--isa': 'sse9' is not one of numpy, scalar, "),
        (["bench", "gemm", "--dtype", "float99"], "Invalid value for --dtype: is 'float99', must be "),
        (
            ["bench", "gemm", "--dtype", "int8,float32,int8"],
            "'int8,float32,int8' is not one name, or two",
        ),
        (["bench", "gemm", "--dtype", "int16"], "Invalid value for --dtype: dtype is int16, must be "),
    ],
)
def test_what_cannot_be_measured_is_told_with_the_options_name(
    asked: dict[str, Any], arguments: list[str], said: str
) -> None:
    code, text = samebits(*arguments)
    assert code == 2
    assert said in text
    assert "problems" not in asked


def test_what_is_tuned_is_kept_shown_and_cleared(folder: pathlib.Path) -> None:
    assert samebits("tune", "--show") == (0, f"nothing is kept for {ISA}: products use the shipped choices\n")
    code, text = samebits("tune")
    assert code == 0
    assert text == samebits("tune", "--show")[1]
    lines = text.splitlines()
    assert lines[1].split() == [
        "fma",
        "float32",
        "tuned",
        "MR",
        "3",
        "NV",
        "1",
        "A",
        "384",
        "KiB,",
        "KC",
        "512",
        "1.250",
    ]
    assert lines[2].split() == ["fma", "float64", "shipped"]
    assert lines[4].split() == ["int8", "x", "int8", "int32", "1.500"]
    assert lines[5].split() == ["uint8", "x", "int8", "shipped"]
    assert lines[-1] == f"isa {ISA}, measured with threads 1; in force in processes started from now on"
    assert tuning.read(isas.best()) == RECORD
    made = json.loads(samebits("tune", "--show", "--json")[1])
    assert (made["isa"], made["kept"]["gains"]) == (ISA, {"fma float32": 1.25, "fma float64": 1.0})
    assert made["kept"]["rows"][0]["tile"] == {"mr": 3, "nv": 1}
    assert made["kept"]["preferred"] == [{"a": "int8", "b": "int8", "engine": "int32"}]
    assert made["kept"]["pairs"] == [["int8", "int8", 1.5], ["uint8", "int8", 1.0]]
    assert samebits("tune", "--clear")[1] == samebits("tune", "--show")[1]
    assert json.loads(samebits("tune", "--clear", "--json")[1])["kept"] is None
    assert tuning.read(isas.best()) is None


def test_tuning_without_a_directory_is_refused_before_it_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SAMEBITS_CACHE_DIR", "")
    with pytest.raises(errors.OptionError) as caught:
        samebits("tune")
    assert str(caught.value) == (
        "tune: cache directory is none, must be one to keep rows in; "
        "set SAMEBITS_CACHE_DIR to a directory of your own with mode 0700"
    )
    assert samebits("tune", "--show")[0] == 0


def test_a_directory_that_is_full_is_named(folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "write", lambda record: False)
    with pytest.raises(errors.OptionError, match=r"^tune: cache directory is .*, must be writable; make room there$"):
        samebits("tune")
