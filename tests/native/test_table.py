"""Tables: every task once, the same bits for any number of threads and callers, whatever the float environment."""

from __future__ import annotations

import concurrent.futures
import ctypes
import platform
from collections.abc import Callable, Iterator
from typing import Any

import guard
import numpy as np
import pytest
import rows

from samebits import driver, errors
from samebits.codegen import isa as isas
from samebits.codegen.isa import Isa
from samebits.codegen.vocabulary import Builder, KernelSpec
from samebits.dtypes import float32, int64
from samebits.kernels.plan import Operand, Plan, Step
from samebits.native import compile, scratch
from samebits.native.table import HEADER, STEP, Table

THREADS = (1, 2, 3, 7, 16)
ROWS = pytest.mark.parametrize("isa", rows.ALL_ROWS, ids=lambda r: r.name)
COMPILED = pytest.mark.parametrize("isa", rows.COMPILED_ROWS[-1:], ids=lambda r: r.name)


def count_task(b: Builder, description: None) -> None:
    """counts[t] += 1."""
    p = b.pointer("counts", int64)
    for t in b.tasks():
        b.store(p, t, b.add(b.load(p, t, 1), b.constant(1, int64, 1)))


def smooth(b: Builder, description: int) -> None:
    """y[t] = x[t-1] * x[t] + x[t+1] around a ring of n, by way of scratch; a hundred times, to last a while."""
    x, y, n = b.pointer("x", float32), b.pointer("y", float32), b.index("n")
    own = b.scratch(float32)
    for t in b.tasks():
        b.store(own, 0, b.load(x, t, 1))
        carry = [b.constant(0.0, float32, 1)]
        for _ in b.loop(0, description, carry=carry):
            left, right = b.load(x, (t + n - 1) % n, 1), b.load(x, (t + 1) % n, 1)
            carry[0] = b.add(b.mul(carry[0], b.constant(0.5, float32, 1)), b.fma(left, b.load(own, 0, 1), right))
        b.store(y, t, carry[0])


def subnormal_and_ties(b: Builder, description: None) -> None:
    """Four results a task that flushing to zero or another rounding would change."""
    x, y = b.pointer("x", float32), b.pointer("y", float32)
    for t in b.tasks():
        tiny, one, tie, sub = (b.load(x, k, 1) for k in range(4))
        found = [b.mul(tiny, tiny), b.add(one, tie), b.add(sub, sub), b.sub(b.neg(one), tie)]
        b.store(y, t * 4, b.concat(found))


def fail(b: Builder, description: None) -> None:
    """A text that raises while it is interpreted."""
    raise ZeroDivisionError("on purpose")


def counting(isa: Isa, tasks: tuple[int, ...], threads: int) -> Table:
    """One step for each count of tasks, all on one operand."""
    spec = KernelSpec(count_task, None, ("counts",), isa)
    steps = tuple(Step(spec, n, (Operand(0),)) for n in tasks)
    return Table([(Plan("count", isa, threads, steps, ("counts",)), (0,))], 1, threads)


def smoothing(isa: Isa, n: int, threads: int, turns: int = 3) -> tuple[Plan, Table]:
    """Three steps x -> workspace -> y -> workspace's second half, each reading its neighbours' results, then x -> y."""
    spec = KernelSpec(smooth, turns, ("x", "y", "n"), isa)
    x, y, work, work2 = Operand(0), Operand(1), Operand(2), Operand(2, 4 * n)
    order = ((x, work), (work, work2), (work2, y))
    steps = tuple(Step(spec, n, (a, b, n)) for a, b in order)
    plan = Plan("smooth", isa, threads, steps, ("x", "y"), scratch_bytes=4, workspace_bytes=8 * n)
    return plan, Table([(plan, (0, 1, 2))], 3, threads)


def smoothed(table: Table, plan: Plan, x: Any) -> Any:
    """y for x."""
    y = np.empty_like(x)
    block = scratch.take(plan.workspace_bytes)
    try:
        table.run([x.ctypes.data, y.ctypes.data, block.address])
    finally:
        scratch.give(block)
    return y


@pytest.mark.parametrize("threads", THREADS)
@COMPILED
def test_every_task_runs_once(isa: Isa, threads: int) -> None:
    for tasks in (1, 2, 3, 8 * threads - 1, 8 * threads, 8 * threads + 1, 1000):
        counts = guard.empty(tasks, np.int64)
        counts[:] = 0
        table = counting(isa, (tasks,), threads)
        for turn in range(20):
            table.run([counts.ctypes.data])
            assert (counts == turn + 1).all()


@pytest.mark.parametrize("threads", [1, 2, 3])
@COMPILED
def test_more_tasks_than_the_state_word_has_room_for(isa: Isa, threads: int) -> None:
    counts = np.zeros((1 << 20) + 3, np.int64)
    counting(isa, (counts.size, counts.size - 1), threads).run([counts.ctypes.data])
    assert (counts[:-1] == 2).all()
    assert counts[-1] == 1


@pytest.mark.parametrize("threads", [1, 3])
@ROWS
def test_steps_without_tasks_are_nothing(isa: Isa, threads: int) -> None:
    counts = np.zeros(5, np.int64)
    counting(isa, (0,), threads).run([counts.ctypes.data])
    counting(isa, (), threads).run([counts.ctypes.data])
    assert counts.tolist() == [0] * 5
    counting(isa, (0, 5, 0, 3, 0), threads).run([counts.ctypes.data])
    assert counts.tolist() == [2, 2, 2, 1, 1]


@ROWS
def test_bits_ignore_threads(isa: Isa) -> None:
    n = 101
    x = np.random.default_rng(1).standard_normal(n).astype(np.float32)
    found = {smoothed(table, plan, x).tobytes() for threads in THREADS for plan, table in [smoothing(isa, n, threads)]}
    expected = smoothed(*reversed(smoothing(rows.ALL_ROWS[0], n, 1)), x)
    assert found == {expected.tobytes()}


@ROWS
def test_operands_take_an_offset_and_slots_any_order(isa: Isa) -> None:
    spec = KernelSpec(count_task, None, ("counts",), isa)
    first = Plan("first", isa, 1, (Step(spec, 2, (Operand(0, 16),)), Step(spec, 1, (Operand(1, 8),))), ("a", "b"))
    second = Plan("second", isa, 1, (Step(spec, 1, (Operand(0),)),), ("a",))
    table = Table([(first, (2, 0)), (second, (1,)), (second, (2,))], 3, 1)
    a, b, c = (np.zeros(4, np.int64) for _ in range(3))
    for turn in (1, 2):
        table.run([a.ctypes.data, b.ctypes.data, c.ctypes.data])
        assert (a.tolist(), b.tolist(), c.tolist()) == ([0, turn, 0, 0], [turn, 0, 0, 0], [turn, 0, turn, turn])
    table.run((c.ctypes.data, b.ctypes.data, a.ctypes.data))  # another place for two of the three
    assert (a.tolist(), b.tolist(), c.tolist()) == ([1, 2, 1, 1], [3, 0, 0, 0], [2, 1, 2, 2])


@ROWS
def test_constants_are_slots_whose_addresses_only_frames_hold(isa: Isa) -> None:
    spec = KernelSpec(count_task, None, ("counts",), isa)
    plan = Plan("count", isa, 1, (Step(spec, 2, (Operand(0, 8),)),), ("counts",))
    given, constants = np.zeros(4, np.int64), [np.zeros(4, np.int64) for _ in range(2)]
    calls = [(plan, (0,)), (plan, ((2, 8),)), (plan, ((1, 0),)), (plan, ((2, 8),))]
    table = Table(calls, 1, 1, [x.ctypes.data for x in constants])
    words = table.template.tobytes()
    for turn in (1, 2):
        table.run([given.ctypes.data])
        assert given.tolist() == constants[0].tolist() == [0, turn, turn, 0]
        assert constants[1].tolist() == [0, 0, 2 * turn, 2 * turn]
    same = Table(calls, 1, 1, [x.ctypes.data for x in reversed(constants)])
    assert words == table.template.tobytes() == same.template.tobytes()


@pytest.mark.parametrize("threads", [1, 2, 3])
@ROWS
def test_many_callers_of_one_table_and_of_many(isa: Isa, threads: int) -> None:
    n, turns = (101, 40) if isa.compiled else (11, 3)
    rng = np.random.default_rng(2)
    inputs = [rng.standard_normal(n).astype(np.float32) for _ in range(8)]
    shared = smoothing(isa, n, threads)
    expected = [smoothed(*reversed(shared), x).tobytes() for x in inputs]

    def work(k: int) -> bool:
        own = smoothing(isa, n, threads)
        same = (smoothed(table, plan, inputs[k]) for _ in range(turns) for plan, table in (shared, own))
        return all(y.tobytes() == expected[k] for y in same)

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(8)))
    assert len(shared[1]._frames) <= 8


@COMPILED
def test_many_threads_compile_at_once(isa: Isa) -> None:
    specs = [KernelSpec(smooth, 1000 + k, ("x", "y", "n"), isa) for k in range(4)]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        found = list(pool.map(compile.address, specs * 8))
    assert found == found[:4] * 8
    assert len(set(found)) == 4


# -- failures lose nothing ----------------------------------------------------------------------------------------


@COMPILED
def test_a_plan_for_one_thread_is_its_callers_alone(isa: Isa) -> None:
    spec = KernelSpec(count_task, None, ("counts",), isa)
    alone, shared = (Plan("count", isa, n, (Step(spec, 64, (Operand(0),)),), ("counts",)) for n in (1, 2))
    for plans, grains in (((alone,), [64]), ((alone, shared), [64, 2])):
        table = Table([(plan, (0,)) for plan in plans], 1, 2)
        assert table.template[HEADER + 3 : HEADER + STEP * len(plans) : STEP].tolist() == grains
        assert table.shares is (shared in plans)
        found = np.zeros(64, np.int64)
        table.run([found.ctypes.data])
        assert np.all(found == len(plans))


@ROWS
def test_a_call_that_fails_leaves_the_table_as_it_was(isa: Isa) -> None:
    plan, table = smoothing(isa, 5, 1)
    x = np.arange(5, dtype=np.float32)
    expected = smoothed(table, plan, x)
    good = [x.ctypes.data, 0, 0]
    with pytest.raises(errors.OptionError) as caught:
        table.run(good[:2])
    assert str(caught.value) == "Table.run: addresses count is 2, must be 3; give one a slot"
    with pytest.raises(TypeError):
        table.run([x.ctypes.data + 4, "somewhere", 0])  # type: ignore[list-item]
    with pytest.raises(OverflowError):
        table.run([x.ctypes.data + 4, 1 << 70, 0])
    assert len(table._frames) == 1
    for _ in range(2):
        assert smoothed(table, plan, x).tobytes() == expected.tobytes()


def test_a_text_that_raises_gives_frame_and_scratch_back() -> None:
    isa = rows.ALL_ROWS[0]
    plan = Plan("fail", isa, 1, (Step(KernelSpec(fail, None, (), isa), 1, ()),), (), scratch_bytes=12345)
    table = Table([(plan, ())], 0, 1)
    before = scratch.take(12345)
    scratch.give(before)
    for _ in range(3):
        with pytest.raises(ZeroDivisionError):
            table.run([])
    assert len(table._frames) == 1
    assert scratch.take(12345) is before
    scratch.give(before)


@pytest.mark.parametrize("threads", [0, -1, 256])
def test_threads_out_of_range(threads: int) -> None:
    with pytest.raises(errors.OptionError) as caught:
        counting(rows.ALL_ROWS[0], (1,), threads)
    assert str(caught.value) == f"Table: threads is {threads}, must be within 1 .. 255; leave it out for all cores"


# -- the float environment ------------------------------------------------------------------------------------------

_CONTROL = """
declare void @llvm.x86.sse.stmxcsr(ptr)
declare void @llvm.x86.sse.ldmxcsr(ptr)
define i32 @get() {
  %at = alloca i32
  call void @llvm.x86.sse.stmxcsr(ptr %at)
  %v = load i32, ptr %at
  ret i32 %v
}
define void @set(i32 %v) {
  %at = alloca i32
  store i32 %v, ptr %at
  call void @llvm.x86.sse.ldmxcsr(ptr %at)
  ret void
}
"""
_DIRTY = 0x1F80 | 0x8040 | 0x4000  # exceptions masked, flush to zero, denormals are zero, round up
_CONTROL_BITS = 0xFFC0  # all but the sticky exception flags


@pytest.fixture
def control() -> Iterator[tuple[Callable[[], int], Callable[[int], None]]]:
    """`get` and `set` of this thread's MXCSR, which is put back afterwards."""
    if isas.host_arch() != "x86_64":
        pytest.skip("MXCSR is x86's")
    host = next(row for row in isas.ROWS if row.compiled and row.available)
    get_at, set_at = compile.addresses(compile.module_unit(_CONTROL, host.target()), ("get", "set"))
    get, put = ctypes.CFUNCTYPE(ctypes.c_uint32)(get_at), ctypes.CFUNCTYPE(None, ctypes.c_uint32)(set_at)
    before = get()
    yield get, put
    put(before)


@pytest.mark.parametrize("threads", [1, 3])
@ROWS
def test_the_callers_float_environment_is_not_felt_and_is_kept(isa: Isa, threads: int, control: Any) -> None:
    get, put = control
    tasks = 200
    spec = KernelSpec(subnormal_and_ties, None, ("x", "y"), isa)
    plan = Plan("ties", isa, threads, (Step(spec, tasks, (Operand(0), Operand(1))),) * 3, ("x", "y"))
    table = Table([(plan, (0, 1))], 2, threads)
    x = np.array([2.0**-70, 1.0, 2.0**-24, 2.0**-149], np.float32)
    expected = np.array([2.0**-140, 1.0, 2.0**-148, -1.0], np.float32)
    y = np.empty((tasks, 4), np.float32)
    addresses = [x.ctypes.data, y.ctypes.data]
    from samebits.native import pool

    if pool._pool is not None:  # workers are to be born from a thread whose environment is dirty
        with pool._pool.lock:
            pool._pool.stop()
    before = get()
    put(_DIRTY)
    try:
        table.run(addresses)
        after = get()
    finally:
        put(before)
    assert y.tobytes() == np.tile(expected, (tasks, 1)).tobytes()
    assert after & _CONTROL_BITS == _DIRTY


@pytest.mark.skipif(platform.system() != "Linux", reason="glibc's names for the rounding modes")
def test_default_float_environment_restores_what_was(control: Any) -> None:
    get, put = control
    before = get()
    put(_DIRTY)
    try:
        with driver.default_float_environment():
            inside = get()
        after = get()
    finally:
        put(before)
    assert inside & _CONTROL_BITS == 0x1F80
    assert after & _CONTROL_BITS == _DIRTY
