"""Indices, loops, conditions and functions of kernel text, on every row."""

from __future__ import annotations

from typing import Any

import aarch64
import guard
import numpy as np
import pytest
import rows
from vocabulary_run import INTEGERS, execute, python_integers, same_bits, values, widths

from samebits.codegen.isa import Isa
from samebits.codegen.vocabulary import Builder, FunctionSpec, KernelSpec
from samebits.dtypes import DType, bool_, float32, int32, int64, uint8, uint16, uint64
from samebits.kernels.plan import Operand, Plan, Step
from samebits.native import series
from samebits.native.table import Table

Array = Any


def index_arithmetic(b: Builder, description: None) -> None:
    """Each operator of indices, in both orders, on arguments and constants."""
    x, y, out = b.index("x"), b.index("y"), b.pointer("out", int64)
    found = [
        x + y, x - y, x * y, x // y, x % y, 3 + x, 100 - x, 5 * x, x // 4, x % 4, 1000 // x, 1000 % x, -x, x * 0, x * 1,
        x // 1, x % 1, b.min(x, y), b.max(x, 7), b.min(3, 4), b.max(3, 4), b.choose(x < y, x, y), b.choose(True, 1, 2),
        b.choose((x <= y) & (x != 3), 1, 0), b.choose((x > y) | (x == 6), 1, 0), b.choose((x >= y) & True, 1, 0),
        b.choose(False | (x < 100), 1, 0), b.choose(False & (x < 100), 1, 0), b.min(x, 0 - y),
    ]  # fmt: skip
    for k, value in enumerate(found):
        b.store(out, k, b.from_index(value, int64))
    p = b.choose(x < y, b.offset(out, 40), b.offset(out, 41))
    b.store(p, 0, b.constant(77, int64, 1))


@pytest.mark.parametrize("isa", rows.ALL_ROWS, ids=lambda r: r.name)
def test_index_arithmetic(isa: Isa) -> None:
    for x, y in ((6, 4), (3, 9), (1, 1), (1 << 40, 3)):
        out = np.zeros(42, np.int64)
        execute(KernelSpec(index_arithmetic, None, ("x", "y", "out"), isa), [x, y, out])
        expected = [
            x + y, x - y, x * y, x // y, x % y, 3 + x, 100 - x, 5 * x, x // 4, x % 4, 1000 // x, 1000 % x, -x, 0, x,
            x, 0, min(x, y), max(x, 7), 3, 4, x if x < y else y, 1, x <= y and x != 3, x > y or x == 6, x >= y,
            x < 100, 0, -y,
        ]  # fmt: skip
        assert out[: len(expected)].tolist() == [int(v) for v in expected]
        assert out[40:].tolist() == ([77, 0] if x < y else [0, 77])


def index_bits(b: Builder, description: None) -> None:
    """Each operator on the bits of indices, in both orders, on arguments and constants."""
    x, y, out = b.index("x"), b.index("y"), b.pointer("out", int64)
    found = [
        x << y, x << 0, x << 3, 1 << y, x >> y, x >> 0, x >> 3, -100 >> y, x & y, x & 12, 12 & x, x | y, x | 0, x | 5,
        5 | x, (-1 - x) & y,
    ]  # fmt: skip
    for k, value in enumerate(found):
        b.store(out, k, b.from_index(value, int64))


@pytest.mark.parametrize("isa", rows.ALL_ROWS, ids=lambda r: r.name)
def test_bits_of_indices(isa: Isa) -> None:
    for x, y in ((6, 4), (-77, 9), (0, 0), (-1, 40), (1 << 40, 3)):
        out = np.zeros(16, np.int64)
        execute(KernelSpec(index_bits, None, ("x", "y", "out"), isa), [x, y, out])
        expected = [
            x << y, x, x << 3, 1 << y, x >> y, x, x >> 3, -100 >> y, x & y, x & 12, x & 12, x | y, x, x | 5, x | 5,
            ~x & y,
        ]  # fmt: skip
        assert out.tolist() == expected


def shift_by_index(b: Builder, description: tuple[DType, int]) -> None:
    """out[0] = x << by, out[1] = x >> by."""
    dtype, width = description
    x, out, by = b.load(b.pointer("x", dtype), 0, width), b.pointer("out", dtype), b.index("by")
    b.store(out, 0, b.shift_left(x, by))
    b.store(out, width, b.shift_right(x, by))


@pytest.mark.parametrize("dtype", INTEGERS, ids=lambda d: d.name)
@pytest.mark.parametrize("isa", [*rows.ALL_ROWS, *rows.AARCH64_ROWS[1:2]], ids=lambda r: r.name)
def test_shifts_by_an_index(isa: Isa, dtype: DType) -> None:
    for width in (1, 3, isa.lanes + 1):
        x, by = guard.array(values(dtype, 4)[:width]), dtype.width_bits - 3
        out = guard.empty((2, width), x.dtype)
        spec = KernelSpec(shift_by_index, (dtype, width), ("x", "out", "by"), isa)
        if isa.available:
            execute(spec, [x, out, by])
        else:
            aarch64.run_kernel(spec, [x, out, by], 0, 1)
        assert same_bits(out[0], python_integers(lambda v, n=by: v << n)(x))
        assert same_bits(out[1], python_integers(lambda v, n=by: v >> n)(x))


def copy_at_any_byte(b: Builder, description: tuple[DType, int]) -> None:
    """Elements that begin at any byte: whole, counted, strided and as an index."""
    dtype, width = description
    x = b.cast(b.pointer("x", uint8), dtype, aligned=False)
    y = b.cast(b.offset(b.pointer("y", uint8), 1), dtype, aligned=False)
    b.store(y, 0, b.load(b.offset(x, 1), 0, width))
    b.store(y, width, b.load(x, 0, width, width - 1), width - 1)
    b.store_strided(b.choose(b.index("zero") < 1, y, x), 2 * width, 1, b.load_strided(x, width, -1, width))
    b.store(b.cast(y, int64, aligned=False), 0, b.from_index(b.load_index(x, 0), int64))


@pytest.mark.parametrize("isa", [*rows.ALL_ROWS, *rows.AARCH64_ROWS[1:2]], ids=lambda r: r.name)
def test_elements_at_any_byte(isa: Isa) -> None:
    for dtype in (uint16, int32, uint64):
        for width in (4, 5, isa.lanes + 4):
            size = dtype.width_bits // 8
            memory = guard.array(np.arange(1, (width + 1) * size + 2, dtype=np.uint8))
            out = guard.empty(3 * width * size + 1, np.uint8)
            out[:] = 0xA5
            spec = KernelSpec(copy_at_any_byte, (dtype, width), ("x", "y", "zero"), isa)
            if isa.available:
                execute(spec, [memory[1:], out, 0])
            else:
                aarch64.run_kernel(spec, [memory[1:], out, 0], 0, 1)
            x = memory[1:].view(dtype.name)
            due = np.full(3 * width, 0, dtype.name)
            due.view(np.uint8)[:] = 0xA5
            due[:width], due[width : 2 * width - 1], due[2 * width :] = x[1:], x[: width - 1], x[width:0:-1]
            due.view(np.uint8)[:8] = np.array([int(x[0])], np.int64).view(np.uint8)
            assert (out[0], out[1:].tobytes()) == (0xA5, due.tobytes())


def weighted_sums(b: Builder, description: None) -> None:
    """out[task] = the sum of the arguments behind the named ones, each times its place, plus the task."""
    further, out = b.further(), b.pointer("out", int64)
    for task in b.tasks():
        carry = [task]
        for k in b.loop(0, b.index("count"), carry=carry):
            carry[0] = carry[0] + b.load_index(further, k) * k
        b.store(out, task, b.from_index(carry[0], int64))


@pytest.mark.parametrize("isa", [*rows.ALL_ROWS, *rows.AARCH64_ROWS[1:2]], ids=lambda r: r.name)
def test_a_step_may_give_more_arguments_than_are_named(isa: Isa) -> None:
    spec = KernelSpec(weighted_sums, None, ("out", "count"), isa)
    for further in ((), (7,), (3, -5, 1 << 40, 0, 11)):
        out = guard.empty((3,), np.int64)
        if isa.available:
            execute(spec, [out, len(further), *further], tasks=3)
        else:
            aarch64.run_kernel(spec, [out, len(further), *further], 0, 3)
        due = sum(k * x for k, x in enumerate(further))
        assert out.tolist() == [due, due + 1, due + 2]


def nested_loops(b: Builder, description: int) -> None:
    """Carried vectors, masks and indices through loops in loops and conditions; every trip count may be zero."""
    width = description
    n, m = b.index("n"), b.index("m")
    x, out = b.pointer("x", float32), b.pointer("out", float32)
    one = b.constant(1.0, float32, width)
    carry: list[Any] = [[b.load(x, 0, width), one], [b.constant(False, bool_, width), [0]]]
    for i in b.loop(0, n, carry=carry):
        for j in b.loop(i, m, 2, carry=carry):
            carry[0][0] = b.add(carry[0][0], one)
            for _ in b.when((j % 3 == 0) & (i > 0), carry=carry):
                carry[0][1] = b.mul(carry[0][1], b.constant(3.0, float32, width))
                carry[1][0] = b.less(carry[0][0], carry[0][1])
                carry[1][1][0] = carry[1][1][0] + j
        for _ in b.when(b.any(carry[1][0]), carry=[]):
            b.store(out, 3 * width, b.from_index(i, float32))
    b.store(out, 0, carry[0][0])
    b.store(out, width, carry[0][1])
    b.store(out, 2 * width, b.convert(carry[1][0], float32))
    b.store(out, 3 * width + 1, b.from_index(carry[1][1][0], float32))


def nested_loops_in_python(x: Array, n: int, m: int) -> Array:
    """The same with Python's own control."""
    width = len(x)
    a, c, mask, total = x.copy(), np.ones(width, np.float32), np.zeros(width, bool), 0
    last = -1
    for i in range(n):
        for j in range(i, m, 2):
            a = a + np.float32(1)
            if j % 3 == 0 and i > 0:
                c = c * np.float32(3)
                mask = a < c
                total += j
        if mask.any():
            last = i
    return np.concatenate([a, c, mask.astype(np.float32), np.array([last, total], np.float32)])


@pytest.mark.parametrize("isa", rows.ALL_ROWS, ids=lambda r: r.name)
def test_loops_and_conditions_carry_what_python_carries(isa: Isa) -> None:
    for width in widths(isa):
        x = np.linspace(0, 40, width, dtype=np.float32)
        for n, m in ((0, 5), (5, 0), (1, 1), (4, 9), (7, 3)):
            out = np.full(3 * width + 2, -1, np.float32)
            execute(KernelSpec(nested_loops, width, ("n", "m", "x", "out"), isa), [n, m, x, out])
            assert same_bits(out, nested_loops_in_python(x, n, m)), (width, n, m)


def steps_at_run_time(b: Builder, description: int) -> None:
    """A loop in a loop, both by steps that are arguments or made of indices: the values of both indices, carried."""
    start, stop, step, width = b.index("start"), b.index("stop"), b.index("step"), description
    out = b.pointer("out", int64)
    carry: list[Any] = [0, b.constant(0, int64, width)]
    for i in b.loop(start, stop, step, carry):
        for j in b.loop(i, b.min(i + step, stop), step // 2 + 1, carry):
            b.store(out, carry[0], b.from_index(i * 1000 + j, int64))
            carry[0] = carry[0] + 1
            carry[1] = b.add(carry[1], b.splat(b.from_index(j, int64), width))
    b.store(out, carry[0], carry[1])


def steps_in_python(start: int, stop: int, step: int) -> list[tuple[int, int]]:
    """The same with Python's own ranges."""
    return [(i, j) for i in range(start, stop, step) for j in range(i, min(i + step, stop), step // 2 + 1)]


@pytest.mark.parametrize("isa", [*rows.ALL_ROWS, *rows.AARCH64_ROWS[1:2]], ids=lambda r: r.name)
def test_a_loops_step_may_be_known_when_it_runs(isa: Isa) -> None:
    width, parameters = isa.lanes + 1, ("start", "stop", "step", "out")
    for start, stop, step in ((0, 0, 1), (0, 5, 1), (3, 20, 4), (2, 18, 4), (7, 9, 50), (9, 7, 3), (-5, 6, 3)):
        due = steps_in_python(start, stop, step)
        out = guard.empty((len(due) + width,), np.int64)
        spec = KernelSpec(steps_at_run_time, width, parameters, isa)
        if isa.available:
            execute(spec, [start, stop, step, out])
        else:
            aarch64.run_kernel(spec, [start, stop, step, out], 0, 1)
        assert out.tolist() == [i * 1000 + j for i, j in due] + [sum(j for _, j in due)] * width


@pytest.mark.parametrize("isa", rows.AARCH64_ROWS, ids=lambda r: r.name)
def test_loops_and_conditions_on_aarch64(isa: Isa) -> None:
    x = np.linspace(0, 40, 5, dtype=np.float32)
    out = np.full(17, -1, np.float32)
    aarch64.run_kernel(KernelSpec(nested_loops, 5, ("n", "m", "x", "out"), isa), [4, 9, x, out], 0, 1)
    assert same_bits(out, nested_loops_in_python(x, 4, 9))


def functions_and_memory(b: Builder, description: int) -> None:
    """A function called twice, another inside a loop, a local array and scratch; one task a row."""
    width = description
    x, out = b.pointer("x", float32), b.pointer("out", float32)

    def scale(source: Any, to: Any, count: Any) -> None:
        for i in b.loop(0, count):
            v = b.load(source, i * width, width)
            b.store(to, i * width, b.add(v, v))

    def shift(p: Any, by: Any) -> None:
        kept = b.local(float32, width)
        b.store(kept, 0, b.load(p, 0, width))
        b.store(p, 0, b.add(b.load(kept, 0, width), b.splat(b.from_index(by, float32), width)))

    double = b.function("step", (float32, float32, None), scale)
    moved = b.function("step", (float32, None), shift)  # one name twice is two functions
    for t in b.tasks():
        own = b.scratch(float32, 64)
        b.call(double, b.offset(x, t * 2 * width), own, 2)
        b.call(moved, own, t)
        for _ in b.loop(0, 2):
            b.call(moved, b.offset(own, width), 10)
        for k in range(2):
            b.store(out, (t * 2 + k) * width, b.load(own, k * width, width))


def times(b: Builder, by: int, x: Any, count: Any, out: Any) -> None:
    """A function that is compiled alone: out[i] = x[i] * by."""
    for i in b.loop(0, count):
        b.store(out, i, b.mul(b.load(x, i, 1), b.constant(by, float32, 1)))


def by_address(b: Builder, description: None) -> None:
    """Calls one function for even tasks and another for odd ones."""
    taken = (float32, None, float32)
    even, odd = b.callee("even", taken), b.callee("odd", taken)
    for t in b.tasks():
        function = b.choose(t % 2 == 0, even, odd)
        b.call(function, b.offset(b.pointer("x", float32), 3 * t), 3, b.offset(b.pointer("out", float32), 3 * t))
        b.call(b.choose(True, even, odd), b.pointer("x", float32), 0, b.pointer("out", float32))


@pytest.mark.parametrize("isa", [*rows.ALL_ROWS, *rows.AARCH64_ROWS[1:2]], ids=lambda r: r.name)
def test_a_function_may_be_called_by_its_address(isa: Isa) -> None:
    x, due = guard.array(np.arange(1, 13, dtype=np.float32).reshape(4, 3)), np.array([[5], [7], [5], [7]], np.float32)
    out = guard.empty(x.shape, np.float32)
    five, seven = (FunctionSpec(times, by, (float32, None, float32), isa) for by in (5, 7))
    spec = KernelSpec(by_address, None, ("x", "out", "even", "odd"), isa)
    step = Step(spec, 4, (Operand(0), Operand(1), five, seven))
    assert step.needs == (five, seven, spec)
    plan = Plan("test", isa, 1, (step,), ("x", "out"))
    if isa.available:
        Table([(plan, range(2))], 2, 1).run([x.ctypes.data, out.ctypes.data])
    else:
        aarch64.run_plan(plan, [x, out])
    assert same_bits(out, x * due)
    if isa.available:
        out[...] = 0
        series.run([(series.lay(plan), [x.ctypes.data, out.ctypes.data])], 1)
        assert same_bits(out, x * due)


@pytest.mark.parametrize("isa", rows.ALL_ROWS, ids=lambda r: r.name)
def test_functions_locals_scratch_and_tasks(isa: Isa) -> None:
    for width in (1, 3, 16):
        x = np.arange(5 * 2 * width, dtype=np.float32).reshape(5, 2, width)
        out = guard.empty(x.shape, np.float32)
        execute(KernelSpec(functions_and_memory, width, ("x", "out"), isa), [x, out], tasks=5)
        shift = np.stack([np.arange(5, dtype=np.float32), np.full(5, 20, np.float32)], 1)[:, :, None]
        assert same_bits(out, x * 2 + shift)
