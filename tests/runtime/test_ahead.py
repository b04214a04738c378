"""A session that had to compile for a third set of sizes has another process plan for others, which fills the cache."""

import json
import pathlib
import pickle
from collections.abc import Mapping
from typing import Any

import apart
import numpy as np
import pytest

from samebits import cache, driver, dtypes
from samebits.codegen.vocabulary import FunctionSpec, KernelSpec
from samebits.kernels.plan import Plan
from samebits.native import compile
from samebits.operations import dim
from samebits.program.builder import ProgramBuilder
from samebits.runtime import ahead, cpu
from samebits.runtime.plan_tape import filled

N = dim.symbol("n")


def session(isa: str | None = None) -> cpu.Session:
    """Of x @ w, whose rows come in microtiles of several heights."""
    b = ProgramBuilder("product")
    w = b.constant(np.arange(8, dtype=np.float32).reshape(4, 2) / 4)
    return cpu.prepare(b.build({"y": b.contract(b.input("x", dtypes.float32, (N, 4)), w)}), isa=isa, threads=1)


def run(made: cpu.Session, rows: int) -> int:
    """How many objects a call with so many rows waited for."""
    before = compile.waited_for()
    x = np.ones((rows, 4), np.float32)
    assert made.run({"x": x})["y"].tolist() == [[3, 4]] * rows
    return compile.waited_for() - before


def main() -> None:
    """With an empty cache: what some calls wait for, then calls with sizes that another process has planned for."""
    driver.usable_cores = lambda: 2  # so that there is another process
    made = session("scalar")
    first = [run(made, rows) for rows in (1, 2, 3)]
    ahead.wait()
    print(json.dumps([first, sum(run(made, rows) for rows in range(4, 129))]))


def needed(plans: list[Plan]) -> set[KernelSpec | FunctionSpec]:
    """The objects of these plans."""
    return {x for plan in plans for step in plan.steps if step.tasks for x in step.needs}


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The work that a process would be started for; every call waits for an object, as with an empty cache."""
    works: list[bytes] = []
    counts = iter(range(1, 1000))
    monkeypatch.setattr(ahead, "_LOOKS", 8)
    monkeypatch.setattr(ahead, "_start", lambda work: works.append(work) is None)
    monkeypatch.setattr(compile, "waited_for", lambda: next(counts))
    return works


def test_sizes_to_come_find_all_in_the_cache(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tmp_path.chmod(0o700)
    monkeypatch.setenv("SAMEBITS_CACHE_DIR", str(tmp_path))
    first, later = json.loads(apart.printed(__file__))
    assert min(first) > 0
    assert later == 0


def test_what_is_planned_ahead_is_what_these_sizes_need(started: list[bytes]) -> None:
    made = session()
    for rows in (2, 3, 5):
        run(made, rows)
    (work,) = started
    questions, given = pickle.loads(work)
    others = [rows for rows in ahead.sizes(5) if rows not in (1, 5)]  # an extent of 1 has another blueprint
    assert len(given) == len(others)
    for rows, numbers in zip(others, given, strict=True):
        planned = made.planned({"x": np.ones((rows, 4), np.float32)})
        assert needed([planner(*filled(template, numbers)) for planner, template in questions]) == needed(
            [plan for _, plan in planned]
        )


def test_sizes_that_do_not_change_are_not_looked_at(started: list[bytes]) -> None:
    made = session()
    run(made, 2)
    run(made, 3)
    assert not started  # two sets are an example and what it is an example of
    b = ProgramBuilder("fixed")
    x = b.input("x", dtypes.float32, (3, N))
    fixed = cpu.prepare(b.build({"y": b.apply("exp", x)}), threads=1)
    for order in ("C", "F"):
        fixed.run({"x": np.ones((3, 4), np.float32, order=order)})
    fixed.run({"x": np.ones((6, 4), np.float32)[::2]})
    assert not started


def test_the_same_is_looked_at_once_and_further_on_again(started: list[bytes]) -> None:
    made = session()
    for rows in range(2, 20):
        run(made, rows)
    assert len(started) == 1
    run(made, 100)
    assert len(started) == 2
    assert max(len(pickle.loads(work)[1]) for work in started) == len(ahead.sizes(100)) - 1


@pytest.mark.parametrize("limit", ["_LOOKS", "_ENTRIES", "_QUESTIONS"])
def test_what_would_take_a_caller_long_is_left_alone(
    limit: str, started: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ahead, limit, 0)
    made = session()
    for rows in range(2, 6):
        run(made, rows)
    assert not started


def test_sizes_ascend_beyond_those_that_are_close() -> None:
    near, far = ahead.sizes(3)[:64], ahead.sizes(3)[64:]
    assert near == list(range(64, 0, -1))
    assert far == [72, 80, 88, 96, 104, 112, 120, 128]
    assert [max(ahead.sizes(met)) for met in (0, 1, 32, 33, 64, 65)] == [128, 128, 128, 256, 256, 512]
    assert ahead.sizes(100)[64:] == [*far, *range(144, 257, 16), *range(288, 513, 32)]


@pytest.mark.parametrize(
    ("owner", "name", "answer"),
    [(driver, "usable_cores", 1), (driver, "can_start_python", False), (cache, "directory", None)],
)
def test_nothing_is_started_that_could_not_help(
    owner: Any, name: str, answer: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = list[object]()
    monkeypatch.setattr(driver, "start_python", lambda *given, **options: begun.append(given))
    monkeypatch.setattr(driver, "usable_cores", lambda: 2)
    monkeypatch.setattr(owner, name, lambda: answer)
    assert not ahead._start(b"")
    assert not begun


class Running:
    """A process."""

    returncode: int | None = None

    def __init__(self) -> None:
        self.calls: list[str] = []

    def poll(self) -> int | None:
        return self.returncode

    def kill(self) -> None:
        self.calls.append("kill")
        self.returncode = -9

    def wait(self) -> int:
        self.calls.append("wait")
        return 0


def test_one_process_at_a_time_ends_with_this_one(monkeypatch: pytest.MonkeyPatch) -> None:
    running = Running()
    begun = list[object]()
    monkeypatch.setattr(driver, "usable_cores", lambda: 2)
    monkeypatch.setattr(driver, "start_python", lambda *given, **options: begun.append(given) or running)
    monkeypatch.setattr(ahead, "_running", None)
    monkeypatch.setattr(ahead, "_ending", False)
    assert ahead._start(b"work")
    assert not ahead._start(b"more")
    assert len(begun) == 1
    ahead._at_exit()
    assert running.calls == ["kill", "wait"]
    assert not ahead._start(b"work")


def test_the_child_of_a_fork_has_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    running = Running()
    monkeypatch.setattr(ahead, "_running", running)
    monkeypatch.setattr(ahead, "_guard", ahead._guard)
    ahead._forget()
    assert (running.returncode, running.calls, ahead._running) == (0, [], None)


def test_a_process_that_cannot_be_had_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*given: object, **options: object) -> None:
        raise OSError("no processes")

    monkeypatch.setattr(driver, "usable_cores", lambda: 2)
    monkeypatch.setattr(driver, "start_python", refuse)
    assert not ahead._start(b"work")


def test_who_asked_and_is_gone_wants_nothing_more() -> None:
    made = session()
    run(made, 2)
    (blueprint,) = made._blueprints
    numbers: Mapping[int, Any] = dict(enumerate(blueprint.tape.values))
    questions = [(each.planner, each.arguments) for each in blueprint.questions]
    assert ahead.fill(questions, [numbers], lambda: True) == len(
        needed([plan for _, plan in made.planned({"x": np.ones((2, 4), np.float32)})])
    )
    assert ahead.fill(questions, [numbers], lambda: False) == 0


def test_a_cache_that_keeps_nothing_gets_no_more(started: list[bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    made = session()
    for rows in (2, 3, 5):
        run(made, rows)
    compiled = list[object]()
    monkeypatch.setattr(cache, "read", lambda key: None)
    monkeypatch.setattr(compile, "load_object", compiled.append)
    assert ahead.fill(*pickle.loads(started[0]), lambda: True) == 1
    assert len(compiled) == 1


if __name__ == "__main__":
    main()
