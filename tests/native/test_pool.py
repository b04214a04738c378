"""The pool: who takes part, who sleeps, and that forks, exits, signals and refusals harm nothing.

Some tests put Python functions in the place of kernels, which shows on which thread and when each grab runs.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import pathlib
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import rows

import samebits
from samebits import driver, errors
from samebits.codegen.isa import Isa
from samebits.codegen.vocabulary import Builder, KernelSpec
from samebits.kernels.plan import Plan, Step
from samebits.native import compile, pool, pool_text
from samebits.native.table import Table

pytestmark = pytest.mark.skipif(not rows.COMPILED_ROWS, reason="no compiled row runs here")

_KERNEL = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)
Kernel = Callable[[int, int, int], None]


def replaced(b: Builder, description: int) -> None:
    """Never emitted: `python_steps` gives its address."""


@pytest.fixture
def python_steps(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Table]]:
    """`python_steps(threads, (kernel, tasks), ...)`: a table whose kernels are `kernel(begin, end, scratch)`."""
    kept: list[Any] = []

    def table(threads: int, *steps: tuple[Kernel, int], scratch_bytes: int = 0) -> Table:
        isa: Isa = rows.COMPILED_ROWS[-1]
        addresses = {}
        planned = []
        for k, (kernel, tasks) in enumerate(steps):
            native = _KERNEL(lambda _, begin, end, own, kernel=kernel: kernel(begin, end, own or 0))
            kept.append(native)
            spec = KernelSpec(replaced, k, (), isa)
            addresses[spec] = ctypes.cast(native, ctypes.c_void_p).value
            planned.append(Step(spec, tasks, ()))
        plan = Plan("python", isa, threads, tuple(planned), (), scratch_bytes=scratch_bytes)
        with monkeypatch.context() as patch:
            patch.setattr(compile, "address", addresses.__getitem__)
            return Table([(plan, ())], 0, threads)

    return table


def sleepers() -> set[int]:
    """Indices of the workers that say they sleep."""
    assert pool._pool is not None
    words = (ctypes.c_uint64 * 4).from_address(pool._pool.address + 8 * 32)
    return {64 * w + k for w in range(4) for k in range(64) if words[w] >> k & 1}


def until(condition: Callable[[], bool]) -> bool:
    """Whether the condition comes true within minutes."""
    end = time.monotonic() + 300
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.001)
    return True


def running() -> int:
    """How many threads of this process have a core or wait for one."""
    states = list[str]()
    for task in pathlib.Path("/proc/self/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # one that ended meanwhile
            states.append((task / "stat").read_text().rsplit(")", 1)[1].split()[0])
    return states.count("R")


# -- who takes part ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("threads", [2, 3, 7])
def test_as_many_threads_as_asked_for_share_a_step(threads: int, python_steps: Any) -> None:
    """Each grab waits until `threads` grabs run at once: only that many threads can do it, each with its scratch."""
    barrier, seen, scratches = threading.Barrier(threads), set(), set()

    def meet(begin: int, end: int, own: int) -> None:
        barrier.wait(300)
        seen.add(threading.get_ident())
        scratches.add(own)

    table = python_steps(threads, (meet, threads), (meet, threads), scratch_bytes=100)
    for _ in range(5):
        table.run([])
    assert not barrier.broken
    assert len(seen) == threads
    assert len(scratches) == threads
    assert all(x % 64 == 0 for x in scratches)
    assert min(abs(x - y) for x in scratches for y in scratches if x != y) >= 100


def test_a_step_begins_when_the_one_before_has_ended(python_steps: Any) -> None:
    running, log = set(), []

    def step(name: int) -> Kernel:
        def kernel(begin: int, end: int, own: int) -> None:
            running.add(name)
            time.sleep(0.0005)
            log.append((name, begin, end, frozenset(running)))

        def last(begin: int, end: int, own: int) -> None:
            kernel(begin, end, own)
            running.discard(name)

        return kernel if name else last

    table = python_steps(3, *((step(k), 5) for k in (1, 2, 3)))
    table.run([])
    assert [name for name, *_ in log] == [1] * 5 + [2] * 5 + [3] * 5
    assert sorted(begin for name, begin, *_ in log if name == 2) == [0, 1, 2, 3, 4]


def test_a_table_run_inside_another_ones_run_is_done_by_its_caller(python_steps: Any) -> None:
    inner_threads, outer_threads = [], []
    barrier = threading.Barrier(2)

    def inner(begin: int, end: int, own: int) -> None:
        inner_threads.append((threading.get_ident(), begin, end))

    nested = python_steps(2, (inner, 40))

    def outer(begin: int, end: int, own: int) -> None:
        barrier.wait(300)
        outer_threads.append(threading.get_ident())
        nested.run([])

    python_steps(2, (outer, 2)).run([])
    assert len(set(outer_threads)) == 2
    assert sorted(inner_threads) == sorted((ident, 0, 40) for ident in outer_threads)


def test_one_task_stays_on_the_caller(python_steps: Any) -> None:
    seen = []
    table = python_steps(3, (lambda begin, end, own: seen.append((threading.get_ident(), begin, end)), 1))
    table.run([])
    assert seen == [(threading.get_ident(), 0, 1)]


# -- who sleeps -------------------------------------------------------------------------------------------------------


def test_workers_sleep_when_there_is_nothing_to_do(python_steps: Any) -> None:
    python_steps(3, (lambda begin, end, own: None, 30)).run([])
    assert pool._pool is not None
    workers = len(pool._pool._workers)
    assert until(lambda: sleepers() == set(range(1, workers + 1)))
    check_script(
        """
        assert right()
        def ran():  # what each thread but this one does, its processor time and how often it was given a core
            found = []
            for task in sorted(pathlib.Path("/proc/self/task").iterdir()):
                if int(task.name) != os.getpid():
                    facts = (task / "stat").read_text().rsplit(")", 1)[1].split()
                    counts = [x for x in (task / "status").read_text().splitlines() if "ctxt_switches" in x]
                    found.append((task.name, facts[0], facts[11], facts[12], *counts))
            return found
        threads(3)
        before, after = [], None
        while before != after:
            before = ran()
            time.sleep(0.3)
            after = ran()
        print("done", [x[1] for x in after])
        """,
        "done ['S', 'S']",
    )


def test_no_more_threads_spin_than_there_are_cores(python_steps: Any) -> None:
    found = pool.pool(16)
    cores = driver.usable_cores()
    spins = []
    for index in range(1, len(found._workers) + 1):
        record = found.address + 8 * (pool_text.WORKER + pool_text.WORKER_WORDS * index)
        spins.append(ctypes.c_int64.from_address(record + 16).value)
    assert all(n > 0 for n in spins[: cores - 1])
    assert not any(spins[cores - 1 :])
    python_steps(16, (lambda begin, end, own: None, 128)).run([])
    assert until(lambda: len(sleepers()) == len(found._workers))
    assert until(lambda: running() <= cores)


def test_only_workers_that_are_wanted_are_woken(python_steps: Any) -> None:
    found = pool.pool(9)
    assert until(lambda: len(sleepers()) == len(found._workers))
    unwanted = set(range(2, len(found._workers) + 1))
    barrier, during = threading.Barrier(2), []

    def meet(begin: int, end: int, own: int) -> None:
        barrier.wait(300)
        during.append(sleepers())
        barrier.wait(300)  # who is done may sleep before the other has looked

    python_steps(2, (meet, 2)).run([])
    assert len(during) == 2
    assert all(asleep & unwanted == unwanted for asleep in during)
    assert all(1 not in asleep for asleep in during)


@pytest.mark.skipif(sys.platform != "linux" or driver.usable_cores() < 2, reason="no second core to wake on")
def test_a_worker_wakes_on_another_core_than_its_callers(python_steps: Any) -> None:
    may = os.sched_getaffinity(0)
    barrier, cores = threading.Barrier(2), dict[int, set[int]]()

    def meet(begin: int, end: int, own: int) -> None:
        barrier.wait(300)
        cores[threading.get_native_id()] = os.sched_getaffinity(0)

    def wake_on(allowed: set[int]) -> set[int]:
        """The cores that the worker may use, woken by a caller that may use `allowed`."""
        assert until(lambda: 1 in sleepers())
        cores.clear()
        os.sched_setaffinity(0, allowed)
        try:
            table.run([])
        finally:
            os.sched_setaffinity(0, may)
        del cores[threading.get_native_id()]
        return cores.popitem()[1]

    table = python_steps(2, (meet, 2))
    table.run([])
    woken = wake_on(may)
    assert woken < may
    assert len(woken) == len(may) - 1
    assert wake_on({min(may)}) <= may  # a caller held to one core leaves its worker where it may run: both take part


def test_a_spin_lasts_about_what_it_should() -> None:
    assert 100 <= pool._spins() <= 100_000


# -- what the system refuses ------------------------------------------------------------------------------------------


def test_a_refused_thread_is_one_clear_error_and_no_harm(python_steps: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    table = python_steps(12, (lambda begin, end, own: seen.extend(range(begin, end)), 100))
    found = pool.pool(3)
    with found.lock:
        found.stop()
    real = found._libc

    class Refusing:
        """libc, out of threads after the first."""

        created = 0

        def __getattr__(self, name: str) -> Any:
            return getattr(real, name)

        def pthread_create(self, *arguments: Any) -> int:
            self.created += 1
            return 11 if self.created > 1 else real.pthread_create(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(found, "_libc", Refusing())
        with pytest.raises(errors.NativeError) as caught:
            table.run([])
    assert str(caught.value) == (
        "threads: worker 2 start is Resource temporarily unavailable, must be a new thread; ask for fewer threads="
    )
    assert len(found._workers) == 1
    assert seen == []
    table.run([])
    assert sorted(seen) == list(range(100))


def test_a_stopped_pool_starts_again(python_steps: Any) -> None:
    seen: list[int] = []
    table = python_steps(3, (lambda begin, end, own: seen.extend(range(begin, end)), 100))
    for _ in range(5):
        table.run([])
        assert pool._pool is not None
        with pool._pool.lock:
            pool._pool.stop()
        assert sleepers() == set()
    assert sorted(seen) == sorted(list(range(100)) * 5)


# -- processes --------------------------------------------------------------------------------------------------------

_PRELUDE = """
import os, pathlib, signal, sys, threading, time
import numpy as np
import test_table, rows
from samebits.native import pool
isa = rows.COMPILED_ROWS[-1]
x = np.random.default_rng(1).standard_normal(101).astype(np.float32)
plan, table = test_table.smoothing(isa, 101, 3)
expected = test_table.smoothed(*reversed(test_table.smoothing(isa, 101, 1)), x).tobytes()
def right(turns=20):
    return all(test_table.smoothed(table, plan, x).tobytes() == expected for _ in range(turns))
def threads(due=None):  # how many there are; the system may list one that was joined a little longer
    while (found := len(os.listdir("/proc/self/task"))) != due and due is not None:
        time.sleep(0.001)
    return found
"""


def script(text: str, timeout: float = 600) -> subprocess.CompletedProcess[str]:
    """Run a program after the prelude in a process of its own."""
    here = pathlib.Path(__file__).parent
    paths = [str(here), str(here.parent), str(pathlib.Path(samebits.__file__).parents[1])]
    # NumPy's own threads are not to be counted.
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OPENBLAS_NUM_THREADS": "1"}
    program = _PRELUDE + textwrap.dedent(text)
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        env=environment, capture_output=True, text=True, timeout=timeout, check=False,
    )  # fmt: skip


def check_script(text: str, output: str) -> None:
    """The program ends well and prints `output`."""
    done = script(text)
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, output, "")


def test_fork_leaves_both_sides_a_pool() -> None:
    check_script(
        """
        assert right()
        for _ in range(10):
            child = os.fork()
            if child == 0:
                os._exit(0 if threads() == 1 and right() and threads(3) == 3 else 1)
            assert right()
            assert os.waitpid(child, 0)[1] == 0
        print("done", threads(3))
        """,
        "done 3",
    )


def test_fork_while_another_thread_runs_a_table() -> None:
    check_script(
        """
        ending, wrong = threading.Event(), []
        def work():
            while not ending.is_set():
                if not right(5):
                    wrong.append(1)
        workers = [threading.Thread(target=work) for _ in range(2)]
        for w in workers:
            w.start()
        import warnings
        warnings.simplefilter("ignore", DeprecationWarning)  # there are other Python threads, on purpose
        for _ in range(20):
            child = os.fork()
            if child == 0:
                os._exit(0 if right() else 1)
            assert os.waitpid(child, 0)[1] == 0
            assert right(2)
        ending.set()
        for w in workers:
            w.join()
        print("done", wrong)
        """,
        "done []",
    )


def test_fork_while_another_thread_compiles() -> None:
    check_script(
        """
        import warnings
        warnings.simplefilter("ignore", DeprecationWarning)
        os.environ["SAMEBITS_CACHE_DIR"] = ""
        from samebits.native import compile
        from samebits.codegen.vocabulary import KernelSpec
        def spec(k):
            return KernelSpec(test_table.smooth, k, ("x", "y", "n"), isa)
        ending = threading.Event()
        def work():
            k = 100
            while not ending.is_set():
                compile.load_object(spec(k))
                k += 1
        worker = threading.Thread(target=work)
        worker.start()
        for k in range(8):
            time.sleep(0.003 * k)
            child = os.fork()
            if child == 0:
                compile.address(spec(k))
                os._exit(0)
            assert os.waitpid(child, 0)[1] == 0
        ending.set()
        worker.join()
        print("done")
        """,
        "done",
    )


@pytest.mark.parametrize("state", ["spinning", "sleeping"])
def test_the_interpreter_exits_with_workers(state: str) -> None:
    pause = 0.01 if state == "sleeping" else 0
    check_script(
        f"""
        for _ in range(10):
            child = os.fork()
            if child == 0:
                break
            assert os.waitpid(child, 0)[1] == 0
        assert right(2)
        time.sleep({pause})
        if child:
            print('done')
        """,
        "done",
    )


def test_the_interpreter_exits_while_a_daemon_thread_runs_a_table() -> None:
    check_script(
        """
        for _ in range(3):
            child = os.fork()
            if child == 0:
                break
            assert os.waitpid(child, 0)[1] == 0
        begun = threading.Event()
        def work():
            while True:
                assert right(1)
                begun.set()
        threading.Thread(target=work, daemon=True).start()
        begun.wait()
        if child:
            print("done")
        """,
        "done",
    )


def test_a_table_that_runs_at_exit_still_gives_its_bits() -> None:
    check_script(
        """
        assert right()
        pool._at_exit()
        print("done", right(), threads(1))
        """,
        "done True 1",
    )


def test_an_interrupt_reaches_the_main_thread() -> None:
    check_script(
        """
        assert right()
        blocked = []
        threads(3)
        for task in os.listdir("/proc/self/task"):
            if int(task) != os.getpid():
                status = pathlib.Path(f"/proc/self/task/{task}/status").read_text()
                blocked.append(int(status.split("SigBlk:")[1].split()[0], 16) >> (signal.SIGINT - 1) & 1)
        assert blocked == [1, 1], blocked
        def interrupt(*_):  # raises once, where it is caught
            global may_raise
            if may_raise:
                may_raise = False
                raise KeyboardInterrupt
        signal.signal(signal.SIGINT, interrupt)
        may_raise = interrupted = False
        def press():
            while not interrupted:
                os.kill(os.getpid(), signal.SIGINT)
                time.sleep(0.05)
        keys = threading.Thread(target=press)
        keys.start()
        try:
            while True:
                may_raise = True
                assert right(1)
        except KeyboardInterrupt:
            interrupted = True
        keys.join()
        print("interrupted", right())
        """,
        "interrupted True",
    )
