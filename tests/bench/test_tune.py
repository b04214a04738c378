"""Tuning keeps what is really faster, for every engine of a row; no test times anything."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest
from rows import COMPILED_ROWS

from samebits import tuning
from samebits.bench import candidates, tune
from samebits.bench.measure import Call
from samebits.bench.trial import Candidate, Problem, Workbench
from samebits.codegen import isa as isas
from samebits.codegen.isa import Isa
from samebits.codegen.rules import TILE_LANES, TILE_ROWS
from samebits.dtypes import bfloat16, float32, int8
from samebits.kernels.gemm import machine as machines
from samebits.kernels.gemm.engine import FMA32, PAIRS, named
from samebits.kernels.gemm.machine import SAPPHIRE_RAPIDS, ZEN4
from samebits.kernels.gemm.tiles import Tile, tile_for
from samebits.kernels.gemm.tuned import SHIPPED, Preferred, Tuned

Seconds = Callable[[Problem, Tuned], float]
INT32 = named("int32")


@pytest.fixture
def timed(monkeypatch: pytest.MonkeyPatch) -> Callable[[Seconds], object]:
    """A timer that says what a function of problem and row says."""
    rows: dict[Call, tuple[Problem, Tuned]] = {}

    def call(self: Workbench, problem: Problem, isa: Isa, candidate: Candidate) -> Call:
        def run() -> None:
            raise AssertionError("a test ran what it should not time")

        rows[run] = problem, candidate.row
        return run

    monkeypatch.setattr(Workbench, "call", call)

    def made(seconds: Seconds) -> object:
        def timer(calls: Mapping[str, Call], rounds: int, *, pause: bool = False) -> dict[str, float]:
            return {name: seconds(*rows[run]) for name, run in calls.items()}

        return timer

    return made


def test_every_engine_of_a_row_is_measured() -> None:
    for isa in COMPILED_ROWS:
        found = tune.operands(isa)
        assert {"fma float32", "fma float64"} <= {engine.name for engine in found}
        for engine in found:
            assert engine.is_native(isa)


def test_candidates_for_tiles_of_the_machine_are_whole_ones() -> None:
    row, engine = next(row for row in isas.ROWS if row.name == "avx512_amx"), named("int8 x int8 quads by tiles")
    shipped = ZEN4.shipped(engine, row)
    for quick in (True, False):
        tiles, sizes = candidates.tiles(row, engine, quick), candidates.sizes(engine, quick)
        assert (tiles[0], sizes[0]) == (shipped.tile, replace(shipped.sizes, kc_few_rows=2 * shipped.sizes.kc))
        assert {(tile.mr, tile.nv * engine.lanes(row) % TILE_LANES) for tile in tiles} == {(2 * TILE_ROWS, 0)}
        assert len(sizes) == (6 if quick else 12)


def test_what_is_faster_is_kept(timed: Callable[[Seconds], object]) -> None:
    isa = isas.best()
    best = next(tile for tile in candidates.tiles(isa, FMA32) if tile != tile_for(isa))

    def seconds(problem: Problem, row: Tuned) -> float:
        return 1.0 - 0.2 * (row.tile == best) - 0.1 * (row.sizes.kc == 256)

    said: list[str] = []
    record = tune.tune(isa, 1, time=timed(seconds), progress=said.append)  # type: ignore[arg-type]
    assert {row.tile for row in record.rows} == {best}
    assert {row.engine for row in record.rows} == {engine.name for engine in tune.operands(isa)}
    assert all(gain > 1.1 for _, gain in record.gains)  # 1.25 for a shape whose plan the tile changes, else 1
    # Where sizes change no plan, they stay as shipped.
    assert {row.sizes.kc for row in record.rows} <= {256, SHIPPED.kc}
    assert next(row.sizes.kc for row in record.rows if row.engine == "fma float32") == 256
    assert said[:3] == [
        f"{record.gains[0][0]}: {what}" for what in ("tiles", "cache blocks", "measuring the best again")
    ]
    assert (record.isa, record.threads) == (isa.name, 1)


def test_noise_and_what_costs_a_shape_is_not_kept(
    timed: Callable[[Seconds], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    isa = isas.best()
    monkeypatch.setattr(tune, "operands", lambda isa: {FMA32: (float32, float32)})
    best = next(tile for tile in candidates.tiles(isa, FMA32) if tile != tile_for(isa))
    little = tune.tune(isa, 1, quick=True, time=timed(lambda p, row: 1 - 0.015 * (row.tile == best)))  # type: ignore[arg-type]
    assert little.rows == ()
    assert {gain for _, gain in little.gains} == {1.0}

    def lopsided(problem: Problem, row: Tuned) -> float:
        return (2.0 if problem.m < 100 else 0.1) if row.tile == best else 1.0

    assert tune.tune(isa, 1, quick=True, time=timed(lopsided)).rows == ()  # type: ignore[arg-type]
    second = next(tile for tile in candidates.tiles(isa, FMA32) if tile not in (best, tile_for(isa)))

    def lopsided_and_better(problem: Problem, row: Tuned) -> float:
        return 0.9 if row.tile == second else lopsided(problem, row)

    record = tune.tune(isa, 1, time=timed(lopsided_and_better))  # type: ignore[arg-type]
    assert {row.tile for row in record.rows} == {second}

    def only_elsewhere(problem: Problem, row: Tuned) -> float:
        return 2.0 if (problem.m, problem.k) in {x[:2] for x in tune.CHECKS} else 0.9

    changed = timed(lambda p, row: only_elsewhere(p, row) if row.tile == second else 1.0)
    assert tune.tune(isa, 1, quick=False, time=changed).rows == ()  # type: ignore[arg-type]


def test_a_record_that_was_made_is_read_back(
    timed: Callable[[Seconds], object], tmp_path: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SAMEBITS_CACHE_DIR", f"{tmp_path}/cache")
    isa = isas.best()
    record = tune.tune(isa, 2, quick=True, time=timed(lambda p, row: 1 - 0.3 * (row.tile == Tile(4, 4))))  # type: ignore[arg-type]
    assert tuning.write(record)
    assert tuning.read(isa) == record
    assert all(row.sizes == SHIPPED for row in record.rows)


def test_formats_that_several_engines_take_are_contested() -> None:
    for isa in COMPILED_ROWS:
        found = tune.contested(isa)
        assert (float32, float32) not in found
        assert ((int8, int8) in found) == any(word.startswith("dot") for word in isa.instructions)
        assert ((bfloat16, bfloat16) in found) == ("dot2_bfloat16" in isa.instructions)


def test_an_engine_that_is_faster_is_preferred(
    timed: Callable[[Seconds], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """For the formats for which it was measured alone, and with the tile that suits it best."""
    isa = isas.best()
    monkeypatch.setattr(tune, "operands", lambda isa: {INT32: (int8, int8)})
    best = next(tile for tile in candidates.tiles(isa, FMA32) if tile != tile_for(isa))

    def seconds(problem: Problem, row: Tuned) -> float:
        if row.engine == INT32.name and problem.a is int8:
            return 0.4 if row.tile == best else 0.8
        return 1.0

    said: list[str] = []
    record = tune.tune(isa, 1, quick=True, time=timed(seconds), progress=said.append)  # type: ignore[arg-type]
    assert record.preferred[0] == Preferred("int8", "int8", "int32")
    assert {x.a for x in record.preferred} == {"int8"}
    gains = {(a, b): gain for a, b, gain in record.pairs}
    assert list(gains) == [(a.name, b.name) for a, b in tune.contested(isa)]
    assert gains["int8", "int8"] > 2  # 2.5 where the plan has the tile
    assert gains["uint8", "uint8"] == 1.0
    assert "int8 x int8: engines" in said
    assert "int8 x int8: measuring the best again" in said


def test_an_engine_that_costs_a_shape_too_much_is_not_preferred(
    timed: Callable[[Seconds], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tune, "operands", lambda isa: {})

    def only_elsewhere(problem: Problem, row: Tuned) -> float:
        is_check = (problem.m, problem.k) in {x[:2] for x in tune.CHECKS}
        return (2.0 if is_check else 0.5) if row.engine == INT32.name else 1.0

    for seconds in (only_elsewhere, lambda problem, row: 0.99 if row.engine == INT32.name else 1.0):
        record = tune.tune(isas.best(), 1, quick=True, time=timed(seconds))  # type: ignore[arg-type]
        assert record.preferred == ()
        assert {gain for _, _, gain in record.pairs} == {1.0}


@pytest.mark.skipif("dot2_bfloat16" not in isas.best().instructions, reason="no engine of pairs here")
def test_engines_are_compared_with_what_the_machines_row_takes(
    timed: Callable[[Seconds], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tune, "operands", lambda isa: {})
    monkeypatch.setattr(tune, "contested", lambda isa: [(bfloat16, bfloat16)])
    for machine, better in ((ZEN4, FMA32), (SAPPHIRE_RAPIDS, PAIRS)):
        monkeypatch.setattr(machines, "current", lambda machine=machine: machine)
        faster = timed(lambda problem, row, better=better: 0.5 if row.engine == better.name else 1.0)  # type: ignore[misc]
        record = tune.tune(isas.best(), 1, quick=True, time=faster)  # type: ignore[arg-type]
        assert record.preferred == (Preferred("bfloat16", "bfloat16", better.name),)
        ((_, _, gain),) = record.pairs
        assert 1.02 < gain <= 2.0


def test_a_candidate_that_is_not_forced_runs_as_where_it_was_measured() -> None:
    """A few rows of bfloat16 that nothing has looked at stream as float32, whatever engine is preferred."""
    isa, bench = isas.best(), Workbench(1)
    problem = Problem(1, 256, 64, bfloat16, bfloat16)
    row = tuning.shipped(isa).shipped(INT32, isa)
    assert Candidate(isa, row).machine(problem).preferred == ()
    assert Candidate(isa, row, forced=False).machine(problem).preferred == (Preferred("bfloat16", "bfloat16", "int32"),)
    packed = Problem(5, 256, 64, int8, int8, packed=True)
    for some in (Problem(5, 256, 64, int8, int8), packed):
        assert dict(bench.plan(some, isa, Candidate(isa, row, forced=False)).facts)["engine"].startswith("int32")
    pairs = tuning.shipped(isa).shipped(PAIRS, isa)
    assert dict(bench.plan(problem, isa, Candidate(isa, pairs, forced=False)).facts)["engine"] == "fma float32"
