"""Rankings: the picked kernel is marked, a lag is believed only if it stays, peers that cannot multiply say why."""

from __future__ import annotations

import dataclasses
import io
import json
import os
import pathlib
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

import pytest
from rows import COMPILED_ROWS

from samebits import tuning
from samebits.bench import candidates, peak, peers, rank, worker
from samebits.bench.measure import Call
from samebits.bench.peers import Peer
from samebits.bench.trial import Candidate, Problem, Workbench, label, operand
from samebits.codegen import isa as isas
from samebits.dtypes import bfloat16, float32, float64, int8, uint8
from samebits.errors import NativeError, OptionError
from samebits.kernels.gemm import engine as engines
from samebits.kernels.gemm.engine import FMA32
from samebits.kernels.gemm.tiles import Tile, tile_for
from samebits.kernels.gemm.tuned import SHIPPED
from samebits.native import compile
from samebits.ops import matmul
from samebits.ops.recipe import Prepared

ISA = isas.best()
CUBE = Problem(40, 300, 200, float32, float32)


class Clock:
    """A timer that times nothing: every call takes two seconds, but for those that were told otherwise."""

    def __init__(self, **seconds: float | list[float]) -> None:
        self.seconds = {rank.PICKED: 1.0, "peak": 1.0, **seconds}
        self.asked: list[tuple[str, ...]] = []

    def __call__(self, calls: Mapping[str, Call], rounds: int, *, pause: bool = False) -> dict[str, float]:
        self.asked.append(tuple(calls))
        return {name: self.of(name) for name in calls}

    def of(self, name: str) -> float:
        told = self.seconds.get(name, 2.0)
        return told if isinstance(told, float) else told.pop(0) if len(told) > 1 else told[0]


def another(problem: Problem) -> str:
    """The label of a candidate that is not picked."""
    bench = Workbench(1)
    found = candidates.distinct(bench, problem, ISA, candidates.first(problem, ISA))
    picked = label(bench.plan(problem, ISA))
    assert picked in found
    return next(name for name in found if name != picked)


def test_candidates_are_ranked_and_the_picked_one_is_marked() -> None:
    fast = another(CUBE)
    found = rank.rank(CUBE, ISA, 1, time=Clock(**{fast: 0.97}))
    assert [entry.picked for entry in found.candidates[:3]] == [False, True, False]
    assert (found.best.name, found.best.seconds) == (fast, pytest.approx(0.97))
    assert sum(entry.picked for entry in found.candidates) == 1
    assert found.picked.name == label(Workbench(1).plan(CUBE, ISA))
    assert found.picked.rate == pytest.approx(2e-9 * 40 * 300 * 200)
    assert found.lag == pytest.approx(1 / 0.97 - 1)
    assert not found.lags
    assert found.verdict == "40 x 300 x 200 float32: picked is within 5% of the best"
    assert (found.ratio, found.peers, found.unit) == (None, (), "GFLOP/s")
    assert len({entry.name for entry in found.candidates}) == len(found.candidates) > 10
    assert {entry.screened for entry in found.candidates} == {False, True}


def test_a_lag_is_named_and_measured_again() -> None:
    fast, clock = another(CUBE), Clock()
    clock.seconds[fast] = 0.8
    found = rank.rank(CUBE, ISA, 1, time=clock)
    assert found.lags
    assert found.lag == pytest.approx(0.25)
    assert found.verdict.endswith(f"picked {found.picked.name} lags by 25.0% behind {fast}")
    assert [asked for asked in clock.asked if set(asked) == {fast, rank.PICKED}] == [(fast, rank.PICKED)] * 2


def test_a_lag_that_does_not_stay_is_noise() -> None:
    fast = another(CUBE)
    found = rank.rank(CUBE, ISA, 1, time=Clock(**{fast: [0.8, 0.8, 0.99, 0.7]}))
    assert not found.lags
    assert found.lag == pytest.approx(1 / 0.99 - 1)


def _peer(name: str, made: object) -> Peer:
    return Peer(name, (name,), name, lambda a, b, packed, threads: made)  # type: ignore[return-value,arg-type]


def test_peers_stand_beside_and_say_why_they_do_not_multiply() -> None:
    def broken() -> None:
        raise RuntimeError("no kernel\nfor that")

    several = [_peer("slow", lambda: 0), _peer("fast", lambda: 0), _peer("lacks", "has no such dtype")]
    found = rank.rank(CUBE, ISA, 1, [*several, _peer("broken", broken)], time=Clock(slow=4.0, fast=0.5))
    assert [(x.name, x.seconds, x.note) for x in found.peers] == [
        ("fast", 0.5, ""), ("slow", 4.0, ""), ("lacks", None, "has no such dtype"),
        ("broken", None, "refused: no kernel"),
    ]  # fmt: skip
    assert found.ratio == pytest.approx(0.5)


def test_packed_and_integer_problems_have_candidates() -> None:
    for problem in (
        Problem(8, 300, 200, float32, float32, True), Problem(1, 300, 200, uint8, int8),
        Problem(8, 300, 200, bfloat16, bfloat16, True), Problem(9, 300, 200, float64, float64),
    ):  # fmt: skip
        found = rank.rank(problem, ISA, 1, time=Clock())
        assert len(found.candidates) > 5, problem
        assert found.best.picked
        assert found.unit == ("GOP/s" if problem.a is uint8 else "GFLOP/s")
    assert str(Problem(1, 2, 3, uint8, int8, True)) == "1 x 2 x 3 uint8 x int8, b packed"


def test_one_kernel_is_one_candidate() -> None:
    bench = Workbench(1)
    for problem in (CUBE, Problem(1, 300, 200, float32, float32)):
        found = candidates.distinct(bench, problem, ISA, candidates.first(problem, ISA))
        plans = [bench.plan(problem, ISA, candidate) for candidate in found.values()]
        assert len({plan.steps for plan in plans}) == len({label(plan) for plan in plans}) == len(plans)


def test_every_is_every_form_tile_and_size() -> None:
    some, every = (list(candidates.first(CUBE, ISA, every)) for every in (False, True))
    assert len(every) > 5 * len(some)
    assert {c.row.sizes for c in every} >= set(candidates.sizes(FMA32))
    assert {c.row.tile for c in some} >= set(candidates.tiles(ISA, FMA32))


def test_tiles_and_sizes_start_with_the_shipped_ones_and_fit() -> None:
    for isa in COMPILED_ROWS:
        for quick in (False, True):
            found = candidates.tiles(isa, FMA32, quick)
            assert found[0] == tile_for(isa)
            assert all(tile == tile_for(isa) or tile.fits(isa) for tile in found)
            assert len(set(found)) == len(found)
    assert candidates.sizes(FMA32)[0] == candidates.sizes(FMA32, quick=True)[0] == SHIPPED


def test_candidates_multiply_with_the_same_bits() -> None:
    for problem in (CUBE, Problem(5, 70, 90, int8, uint8, True)):
        bench = Workbench(1)
        a, b = bench.operands(problem)
        expected = matmul.matmul(a, b).tobytes()
        engine = bench.engine(problem, ISA)
        for tile in (Tile(3, 1), Tile(2, 3)):
            row = dataclasses.replace(tuning.shipped(ISA).shipped(engine, ISA), tile=tile)
            plan, operands = bench._planned(problem, ISA, Candidate(ISA, row), fill=True)
            Prepared(plan).run([x.address for x in operands])
            assert operands[-1].tobytes() == expected, (problem, tile)


def test_calls_of_a_workbench_run() -> None:
    bench = Workbench(1)
    call = bench.call(CUBE, ISA)
    assert call() is None
    assert call() is None


def test_operands_have_their_dtype_and_are_the_same_again() -> None:
    for dtype in (float32, float64, bfloat16, int8, uint8):
        x, y = (operand(dtype, (3, 5), 1) for _ in range(2))
        assert (x.dtype, x.tobytes()) == (dtype, y.tobytes())


@pytest.mark.parametrize("isa", COMPILED_ROWS, ids=lambda row: row.name)
def test_peaks_count_the_steps_that_were_taken(isa: isas.Isa) -> None:
    for engine in engines.ROWS:
        rate = peak.rate(engine, isa, 1, Clock(peak=1e-9))
        if not engine.is_native(isa):
            assert rate is None
            continue
        assert rate == pytest.approx(2 * engine.depth * engine.lanes(isa) * peak.CHAINS * peak.STEPS)


@pytest.mark.skipif(isas.host_arch() != "x86_64", reason="reads x86-64 assembly")
def test_peaks_take_every_step_of_every_chain() -> None:
    for isa in COMPILED_ROWS:
        for engine in (engines.FMA32, engines.FMA64):
            if isa.lanes > 1 and engine.is_native(isa):
                text = compile.assembly(peak.plan(engine, isa, 1).steps[0].spec)
                assert text.count("vfmadd") >= peak.CHAINS, (isa.name, engine.name)


def test_rankings_come_back_from_another_process_as_they_were() -> None:
    made = rank.rank(CUBE, ISA, 1, [_peer("lacks", "why")], time=Clock())
    assert worker.restored(dataclasses.asdict(made)) == made


def test_the_process_says_what_it_does_what_it_found_and_what_failed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made = rank.rank(CUBE, ISA, 1, time=Clock())

    def found(problem: Problem, isa: isas.Isa, threads: int, others: object, **options: Any) -> rank.Ranking:
        assert (problem, isa, threads, others, options["every"]) == (CUBE, ISA, 3, peers.named(["numpy"]), True)
        options["progress"]("this")
        return made

    monkeypatch.setattr(rank, "rank", found)
    asked = {
        "problems": [[40, 300, 200, "float32", "float32", False]], "isa": ISA.name, "threads": 3,
        "against": ["numpy"], "every": True,
    }  # fmt: skip
    monkeypatch.setattr(worker.sys, "argv", ["worker", json.dumps(asked)])
    worker.main()
    doing, ranking = map(json.loads, capsys.readouterr().out.splitlines())
    assert doing == {"doing": "this"}
    assert worker.restored(ranking["ranking"]) == made
    monkeypatch.setattr(worker.sys, "argv", ["worker", json.dumps(asked | {"isa": "sse9"})])
    worker.main()
    assert json.loads(capsys.readouterr().out)["failed"][:5] == ["OptionError", "use_isa", "name", "value", "'sse9'"]


class _Process:
    """A process that has printed these lines."""

    def __init__(self, lines: list[str], returncode: int = 0) -> None:
        self.stdout, self.returncode, self.done = io.StringIO("".join(lines)), returncode, list[str]()

    def kill(self) -> None:
        self.done.append("killed")

    def wait(self) -> None:
        self.done.append("waited for")


def test_what_the_process_says_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    made: list[_Process] = []

    def start(lines: list[str], returncode: int) -> _Process:
        made.append(_Process(lines, returncode))
        return made[-1]

    def answer(lines: list[str], returncode: int = 0) -> list[rank.Ranking]:
        monkeypatch.setattr(worker.subprocess, "Popen", lambda *_, **__: start(lines, returncode))
        return worker.ranked([CUBE], ISA.name, 1, [], progress=told.append)

    assert answer(['{"doing": "this"}\n']) == []
    assert told == ["this"]
    with pytest.raises(NativeError, match=r"^rank: x is 1, must be 2; give 2$"):
        answer(['{"failed": ["NativeError", "rank", "x", "", "1", "2", "give 2"]}\n'])
    assert [x.done for x in made] == [["waited for"], ["killed", "waited for"]]
    with pytest.raises(NativeError, match=r"^bench: measuring process is ended by SIGKILL, must be "):
        answer([], -9)
    with pytest.raises(NativeError, match=r"^bench: measuring process is ended with 2, must be "):
        answer([], 2)


def test_whatever_ends_the_measurement_ends_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    process = _Process(['{"doing": "this"}\n'])
    monkeypatch.setattr(worker.subprocess, "Popen", lambda *_, **__: process)

    def interrupted(name: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        worker.ranked([CUBE], ISA.name, 1, [], progress=interrupted)
    assert process.done == ["killed", "waited for"]


def test_a_measuring_process_that_nobody_listens_to_ends_without_a_word() -> None:
    asked = {"problems": [[2, 2, 2, "float32", "float32", False]] * 9, "isa": "scalar", "threads": 1, "against": []}
    command = [sys.executable, "-m", "samebits.bench.worker", json.dumps(asked | {"every": False})]
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, check=False)
    os.close(writing)
    assert (done.returncode, done.stderr) == (1, b"")


def test_the_process_does_not_look_in_the_current_directory(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "numpy.py").write_text("raise SystemExit(7)")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(OptionError, match=r"^use_isa: name value is 'sse9'"):
        worker.ranked([CUBE], "sse9", 1, [])


def test_operands_that_do_not_fit_are_said(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    asked = {
        "problems": [[99999999, 99999999, 1, "float32", "float32", False]], "isa": ISA.name, "threads": 1,
        "against": [], "every": False,
    }  # fmt: skip
    monkeypatch.setattr(worker.sys, "argv", ["worker", json.dumps(asked)])
    worker.main()
    assert json.loads(capsys.readouterr().out)["failed"][:4] == ["NativeError", "bench", "memory", ""]


def test_other_rows_are_of_other_registers() -> None:
    for isa in COMPILED_ROWS:
        kinds = [candidates.alike(row) for row in candidates._rows(isa)]
        assert candidates.alike(isa) not in kinds
        assert len(set(kinds)) == len(kinds)
