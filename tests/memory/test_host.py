"""The host pool: what is reused, what is let go; threads, collections, signals, forks and exits harm nothing."""

from __future__ import annotations

import contextlib
import ctypes
import dis
import functools
import gc
import itertools
import mmap
import os
import pathlib
import signal
import subprocess
import sys
import textwrap
import threading
import warnings
from collections.abc import Callable
from typing import Any

import apart
import numpy as np
import pytest

from samebits import Tensor, driver, memory
from samebits.errors import OptionError
from samebits.memory import HostResource, allocate
from samebits.memory.host import _room
from samebits.memory.pages import HUGE, MAPPED, PageBlock

pytestmark = pytest.mark.usefixtures("short_collections")

MIB = 1 << 20
needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")


def test_rooms_are_at_most_an_eighth_larger_and_multiples_of_a_page() -> None:
    sizes = [MAPPED + i for i in (0, 1, 4095)] + [(1 << e) + d for e in range(17, 40) for d in (-1, 0, 1, 12345)]
    for size in (size for size in sizes if size >= MAPPED):
        room = _room(size)
        assert size <= room <= size + size // 8 + 1, size
        assert room % 4096 == 0
        assert _room(room) == room
    assert [_room(size) for size in (0, 1, 100, MAPPED - 1)] == [0, 1, 100, MAPPED - 1]
    assert len({_room(size) for size in range(1 << 20, 1 << 21, 4096)}) <= 9


def test_a_block_is_used_again_and_keeps_to_its_alignment() -> None:
    pool = HostResource()
    for size, align in ((MAPPED, mmap.PAGESIZE), (MIB, mmap.PAGESIZE), (HUGE, HUGE), (9 * MIB, HUGE)):
        first = allocate(size, resource=pool)
        address = first.address
        assert address % align == 0
        array = first.array()
        array[:] = 7
        first.close()
        assert pool.statistics.kept_blocks == 0, "the array keeps it"
        assert (array == 7).all()
        del array
        before = pool.statistics.reuses
        again = allocate(size - 1 if size > MAPPED else size, resource=pool)
        assert (again.address, pool.statistics.reuses) == (address, before + 1)
        again.array()[:] = 8
        del again
        pool.trim()
    assert pool.statistics == memory.Statistics(0, 0, 0, 0, 4)


def test_small_blocks_are_not_kept() -> None:
    pool = HostResource()
    buffers = [allocate(size, resource=pool) for size in (1, 64, 1000, MAPPED - 1)]
    assert pool.statistics.lent_blocks == 4
    assert pool.statistics.lent_bytes == 1 + 64 + 1000 + MAPPED - 1
    assert all(buffer.address % 64 == 0 for buffer in buffers)
    buffers.clear()
    assert pool.statistics == memory.Statistics(0, 0, 0, 0, 0)


@pytest.mark.parametrize(("value", "fact"), [(-1, "at least 0; count bytes"), ("1", "an integer; convert it first")])
def test_a_pool_counts_bytes(value: Any, fact: str) -> None:
    pool = HostResource()
    for use, name in (
        (lambda: HostResource(keep_bytes=value), "HostResource: keep_bytes"),
        (lambda: pool.allocate(value), "HostResource.allocate: size_bytes"),
        (lambda: pool.trim(value), "HostResource.trim: keep_bytes"),
    ):
        with pytest.raises(OptionError) as error:
            use()
        assert str(error.value) == f"{name} is {value!r}, must be {fact}"


def test_what_is_kept_is_bounded_and_the_oldest_goes_first() -> None:
    pool = HostResource(keep_bytes=4 * MIB)
    for size in (MIB, 2 * MIB, MIB // 2):
        allocate(size, resource=pool).close()
    assert pool.statistics.kept_bytes == 3 * MIB + MIB // 2
    allocate(MIB, resource=pool).close()
    assert pool.statistics.reuses == 1
    many = [allocate(MIB // 2, resource=pool) for _ in range(3)]
    assert pool.statistics == memory.Statistics(3, 3 * MIB // 2, 2, 3 * MIB, 2)
    del many
    # 3 MiB and 1.5 MiB are more than 4: the 2 MiB block was used longest ago.
    assert pool.statistics == memory.Statistics(0, 0, 4, 2 * MIB + MIB // 2, 2)
    allocate(5 * MIB, resource=pool).close()
    assert pool.statistics.kept_bytes == 2 * MIB + MIB // 2, "what is larger than the bound is never kept"
    assert pool.trim(MIB) == MIB + MIB // 2
    assert pool.trim() == MIB
    assert pool.trim() == 0
    none = HostResource(keep_bytes=0)
    allocate(MIB, resource=none).close()
    assert none.statistics.kept_bytes == 0


def test_a_pool_that_may_keep_less_lets_go_at_the_next_block_that_comes_back() -> None:
    """Of any size, also one that is over the limit itself."""
    pool = HostResource(keep_bytes=8 * MIB)
    small, big = [pool.take(MIB)[0] for _ in range(3)], pool.take(4 * MIB)[0]
    while small:
        pool.give(small.pop())
    pool.keep_bytes = 2 * MIB
    pool.give(big)
    assert pool.statistics.kept_bytes == 2 * MIB


def test_when_memory_runs_out_what_is_kept_goes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = HostResource()
    held = allocate(MIB, resource=pool)
    del held
    assert pool.statistics.kept_blocks == 1
    refusals = [OSError(12, "Cannot allocate memory")]
    real = mmap.mmap

    class Short(real):  # type: ignore[misc, valid-type]
        def __new__(cls, *args: Any, **options: Any) -> Any:
            if refusals:
                raise refusals.pop()
            return real(*args, **options)

    monkeypatch.setattr(mmap, "mmap", Short)
    assert allocate(4 * MIB, resource=pool).size_bytes == 4 * MIB
    assert pool.statistics.kept_bytes == 4 * MIB


def test_an_address_that_is_not_lent_is_refused() -> None:
    pool = HostResource()
    address = pool.allocate(MIB)
    pool.deallocate(address, MIB)
    for wrong in (address, 4096, 0):
        with pytest.raises(OptionError) as error:
            pool.deallocate(wrong, MIB)
        assert str(error.value) == (
            f"HostResource.deallocate: address is {wrong:#x}, must be one that is lent; pass it once"
        )
    with pytest.raises(OptionError):
        pool.allocate(8, stream=1)


def test_huge_pages_are_asked_for_and_their_absence_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    real = mmap.mmap

    class Refusing(real):  # type: ignore[misc, valid-type]
        def madvise(self, advice: int, *_: int) -> None:
            asked.append(advice)
            raise OSError(22, "Invalid argument")

    monkeypatch.setattr(mmap, "mmap", Refusing)
    pool = HostResource(keep_bytes=8 * MIB)
    for size in (MIB, 4 * MIB):
        buffer = allocate(size, resource=pool)
        buffer.array()[:] = 1
        del buffer
    assert asked == [getattr(mmap, name) for name in ("MADV_HUGEPAGE", "MADV_FREE") if hasattr(mmap, name)]
    assert pool.statistics.kept_blocks == 2
    for name in ("MADV_HUGEPAGE", "MADV_FREE"):
        monkeypatch.delattr(mmap, name, raising=False)
    assert allocate(8 * MIB, resource=pool).size_bytes == 8 * MIB


def test_the_system_is_offered_what_was_not_used_last(monkeypatch: pytest.MonkeyPatch) -> None:
    offered: list[int] = []
    monkeypatch.setattr(PageBlock, "offer", lambda block: offered.append(block.address))
    pool = HostResource(keep_bytes=32 * MIB)
    first, *others = [pool.allocate(4 * MIB) for _ in range(3)]
    for _ in range(3):
        pool.deallocate(first, 4 * MIB)
        assert pool.allocate(4 * MIB) == first
    pool.deallocate(first, 4 * MIB)
    pool.deallocate(others[0], 4 * MIB)
    assert not offered, "8 MiB are kept as they are"
    pool.deallocate(others[1], 4 * MIB)
    assert offered == [first]
    assert [pool.allocate(4 * MIB) for _ in range(3)] == [*reversed(others), first], "what is warm comes first"
    assert pool.statistics == memory.Statistics(3, 12 * MIB, 0, 0, 6)


def test_what_the_system_took_from_a_kept_block_comes_back() -> None:
    pool = HostResource()
    buffer = allocate(4 * MIB, resource=pool)
    buffer.array()[:] = 5
    address = buffer.address
    del buffer
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.madvise(ctypes.c_void_p(address), ctypes.c_size_t(4 * MIB), 4):  # MADV_DONTNEED: what pressure would do
        pytest.skip("this system has no MADV_DONTNEED")
    buffer = allocate(4 * MIB, resource=pool)
    assert buffer.address == address
    buffer.array()[:] = 6
    assert (buffer.array() == 6).all()


def test_eight_threads_get_memory_of_their_own() -> None:
    pool = HostResource(keep_bytes=8 * MIB)
    wrong: list[object] = []

    def work(seed: int) -> None:
        try:
            rng = np.random.default_rng(seed)
            held: list[tuple[memory.Buffer, int]] = []
            for step in range(400):
                size = int(rng.choice([100, 5000, MAPPED, MIB // 2, MIB, 2 * MIB]))
                buffer = allocate(size, resource=pool if step % 3 else None)
                mark = (seed * 37 + step) % 251
                buffer.array()[:: max(size // 16, 1)] = mark
                held.append((buffer, mark))
                if len(held) > 5:
                    old, due = held.pop(int(rng.integers(len(held))))
                    part = old.array()[:: max(old.size_bytes // 16, 1)]
                    if not (part == due).all():
                        wrong.append((seed, step))
                    if step % 2:
                        old.close()
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    assert wrong == []
    kept = pool.statistics
    assert kept.lent_blocks == 0
    assert kept.kept_bytes <= 8 * MIB
    assert kept.reuses > 100
    assert pool.trim() == kept.kept_bytes


def test_a_collection_inside_the_pool_may_allocate_and_free() -> None:
    """Finalisers that run while this very thread is inside allocate or deallocate."""
    pool = HostResource()

    class Cycle:
        def __init__(self, buffer: memory.Buffer) -> None:
            self.me, self.buffer = self, buffer

        def __del__(self) -> None:
            allocate(MIB, resource=pool).array()[0] = 1

    def trace(frame: Any, event: str, _: Any) -> Any:
        """Between any two lines of the pool: a collection with something to free."""
        if frame.f_code.co_filename.endswith("host.py"):
            sys.settrace(None)
            Cycle(allocate(MIB, resource=pool))
            gc.collect()
            sys.settrace(trace)
            return trace
        return None

    try:
        for _ in range(5):
            sys.settrace(trace)
            buffer = allocate(MIB, resource=pool)
            del buffer
            sys.settrace(None)
    finally:
        sys.settrace(None)
    statistics = pool.statistics
    assert statistics.lent_blocks == 0
    assert statistics.reuses > 5
    assert pool.trim() == statistics.kept_bytes


def test_a_collection_while_blocks_are_counted_may_free() -> None:
    """Before Python 3.12 a collection may come at any new object, also inside one step of a list or a dict."""
    pool = HostResource(keep_bytes=64 * MIB)

    class Cycle:
        def __init__(self, buffer: memory.Buffer) -> None:
            self.me, self.buffer = self, buffer

    for buffer in [allocate(MAPPED + (i << 14), resource=pool) for i in range(16)]:
        buffer.close()
    pairs: list[tuple[int, int]] = []
    unraisable: list[Any] = []
    before, hook = gc.get_threshold(), sys.unraisablehook
    gc.collect()
    sys.unraisablehook = unraisable.append
    try:
        for objects in range(1, 40):  # until a collection comes
            gc.disable()
            pool.trim()
            buffers = [allocate(MAPPED + (i << 14), resource=pool) for i in range(16)]
            for i in range(4):
                Cycle(allocate((2 + i + objects % 5) * MIB, resource=pool))
            for buffer in buffers:
                buffer.close()
            pairs += [(i, objects) for i in range(4000)]  # none that was freed is left: a new one is a new object
            gc.set_threshold(gc.get_count()[0] + objects)
            gc.enable()
            pool.trim(64 * MIB)
            _ = pool.statistics
    finally:
        sys.unraisablehook = hook
        gc.set_threshold(*before)
        gc.enable()
    assert unraisable == []


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="this system has no interval timers")
def test_a_signal_inside_the_pool_may_allocate_and_free() -> None:
    pool = HostResource()
    caught: list[int] = []

    def handle(*_: object) -> None:
        caught.append(allocate(MIB, resource=pool).size_bytes)

    before = signal.signal(signal.SIGALRM, handle)
    signal.setitimer(signal.ITIMER_REAL, 1e-4, 1e-4)
    try:
        while len(caught) < 50:
            allocate(MIB, resource=pool).array()[0] = 1
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert pool.statistics.lent_blocks == 0


class Interrupted(Exception):
    """What a signal handler raises."""


@pytest.fixture
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is raised in a finaliser is not reported."""
    monkeypatch.setattr(sys, "unraisablehook", lambda _: None)


def is_of_memory(frame: Any) -> bool:
    """Whether a frame runs code of memory's rooms."""
    return os.path.dirname(frame.f_code.co_filename) == os.path.dirname(memory.__file__)


@functools.cache
def instruction(code: Any, offset: int) -> str:
    """The name of an instruction."""
    return next(x.opname for x in dis.get_instructions(code) if x.offset == offset)


def interrupted_at(number: int, work: Callable[[], object]) -> bool:
    """Do work, with an exception at the place of that number where memory's rooms let signal handlers come: as a
    function begins, behind a call and at a jump back. Whether there is one."""
    left, last = [number], dict[Any, str]()

    def trace(frame: Any, event: str, _: Any) -> Any:
        if not is_of_memory(frame):
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        if event == "return":
            last.pop(frame, None)  # it holds what its names are bound to
        if event == "opcode":
            before, last[frame] = last.get(frame, ""), instruction(frame.f_code, frame.f_lasti)
            if not before.startswith(("CALL", "JUMP_BACKWARD")) or last[frame] == "PUSH_EXC_INFO":  # it raised itself
                return trace
        if event in ("call", "opcode"):
            left[0] -= 1
            if left[0] < 0:
                sys.settrace(None)
                raise Interrupted
        return trace

    sys.settrace(trace)
    try:
        with contextlib.suppress(Interrupted):
            work()
    finally:
        sys.settrace(None)
        last.clear()
    return left[0] < 0


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("size_bytes", [1000, MIB, 2 * MIB])
def test_a_handler_that_raises_leaves_nothing_lent(size_bytes: int) -> None:
    pool = HostResource(keep_bytes=4 * MIB)

    def borrow() -> None:
        kept = allocate(size_bytes, resource=pool)
        kept.array()[:1] = 1
        allocate(size_bytes, resource=pool).close()
        del kept  # a frame that ends is not traced any more

    number = 0
    while interrupted_at(number, borrow):
        statistics = pool.statistics
        assert statistics.lent_blocks == 0, number
        assert statistics.kept_bytes <= 4 * MIB
        number += 1
    assert number > 40
    before = pool.statistics.reuses
    for _ in range(3):
        borrow()
    due = 5 if size_bytes >= MIB else 0
    assert pool.statistics.reuses - before >= due, "the pool still works"
    assert pool.trim() == pool.statistics.kept_bytes + (due and 2 * size_bytes)


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("rows", [256, 1024])
def test_a_handler_that_raises_leaves_no_array_lent(rows: int) -> None:
    pool = HostResource(keep_bytes=4 * MIB)

    def borrow() -> None:
        kept = memory.new_array((rows, 512), np.dtype(np.float32))
        kept[0, 0] = 1
        part = kept[1:].T
        del kept, part  # a frame that ends is not traced any more

    number = 0
    with memory.use_resource(pool):
        while interrupted_at(number, borrow):
            assert pool.statistics.lent_blocks == 0, number
            number += 1
        assert number > 20
        reuses = pool.statistics.reuses
        borrow()
        borrow()
    assert pool.statistics.reuses >= reuses + 1, "the pool still works"


@pytest.mark.usefixtures("quiet")
def test_memory_of_a_lease_on_an_address_is_never_left_lent_either() -> None:
    pool = HostResource()

    def borrow() -> None:
        buffer = memory.Buffer.from_handle(address, MIB, resource=pool)
        made.append(number)
        buffer.array()[:1] = 1
        del buffer  # a frame that ends is not traced any more

    number, interrupted, made = 0, True, list[int]()
    while interrupted:
        address = pool.allocate(MIB)
        interrupted = interrupted_at(number, borrow)
        if number not in made:  # the memory is still the caller's, unless a buffer was almost there
            with contextlib.suppress(OptionError):
                pool.deallocate(address, MIB)
        assert pool.statistics.lent_blocks == 0, number
        number += 1
    assert number > 15


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="this system has no interval timers")
@pytest.mark.usefixtures("quiet")
def test_handlers_that_raise_thousands_of_times_leave_nothing_lent() -> None:
    pool, caught = HostResource(), 0

    def handle(_: int, frame: Any) -> None:
        nonlocal caught
        if is_of_memory(frame):
            caught += 1
            raise Interrupted

    before = signal.signal(signal.SIGALRM, handle)
    delays = itertools.cycle(range(1, 60))
    try:
        while caught < 5000:
            with contextlib.suppress(Interrupted):
                # One alarm at a time: on a busy machine the next would come before its handler has ended.
                signal.setitimer(signal.ITIMER_REAL, next(delays) * 1e-6)
                allocate(MIB, resource=pool)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert pool.statistics.lent_blocks == 0
    allocate(MIB, resource=pool)
    reuses = pool.statistics.reuses
    allocate(MIB, resource=pool)
    assert pool.statistics.reuses == reuses + 1, "the pool still works"


@needs_fork
def test_a_child_has_memory_of_its_own_and_frees_nothing_of_its_parent() -> None:
    import guard

    pool, guarded = HostResource(), guard.GuardResource()
    live = [allocate(size, resource=pool) for size in (100, MIB, 4 * MIB)] + [allocate(100, resource=guarded)]
    kept = allocate(MIB, resource=pool)
    del kept
    for buffer in live:
        buffer.array()[:] = 3
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a fork beside threads of other tests, JAX's among them
        child = os.fork()
    if child == 0:
        code = 1
        try:
            ok = pool.statistics.kept_blocks == 0 and guarded.lent == 1
            for buffer in live[:3]:
                buffer.array()[:] = 9
            del buffer
            live.clear()
            ok = ok and guarded.lent == 1 and pool.statistics.lent_blocks == 0 and pool.statistics.kept_blocks == 2
            again = allocate(4 * MIB, resource=pool)
            again.array()[:] = 7
            code = 0 if ok and pool.statistics.reuses == 1 else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert all((buffer.array() == 3).all() for buffer in live)
    del buffer
    live.clear()
    assert guarded.lent == 0
    assert pool.statistics.kept_blocks == 3


@pytest.mark.parametrize("limit", ["max", "536870912", "9223372036854771712", "", None])
def test_a_container_keeps_less(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, limit: str | None) -> None:
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    path = tmp_path / "memory.max"
    if limit is not None:
        path.write_text(limit + "\n")
    monkeypatch.setattr(driver, "_LIMITS", (str(tmp_path / "none"), str(path)))
    due = min(machine, 536870912) if limit == "536870912" else machine
    assert driver.memory_bytes() == due
    assert HostResource().keep_bytes == min(512 * MIB, due // 8)


def test_a_thread_that_python_does_not_know_gives_memory_back() -> None:
    """A consumer's own thread calls the deleter, without the interpreter's lock."""
    pool = HostResource()
    like = Tensor.zeros((512, 512))
    capsule = Tensor(allocate(MIB, resource=pool), like.layout, like.dtype).__dlpack__(max_version=(1, 0))
    gc.collect()
    assert pool.statistics.lent_blocks == 1
    api = ctypes.pythonapi
    api.PyCapsule_GetPointer.restype = ctypes.c_void_p
    api.PyCapsule_GetPointer.argtypes = (ctypes.py_object, ctypes.c_char_p)
    api.PyCapsule_SetName.argtypes = (ctypes.py_object, ctypes.c_char_p)
    used = ctypes.create_string_buffer(b"used_dltensor_versioned")  # outlives the capsule, which keeps the pointer
    managed = api.PyCapsule_GetPointer(capsule, b"dltensor_versioned")
    assert api.PyCapsule_SetName(capsule, ctypes.cast(used, ctypes.c_char_p)) == 0
    del capsule
    deleter = ctypes.c_void_p.from_address(managed + 16)  # after version and manager_ctx
    thread = ctypes.c_ulong()
    libc = ctypes.CDLL(None)
    # A void (*)(void *) as a void *(*)(void *): what it returns is not looked at.
    assert libc.pthread_create(ctypes.byref(thread), None, deleter, ctypes.c_void_p(managed)) == 0
    assert libc.pthread_join(thread, None) == 0
    assert pool.statistics.lent_blocks == 0
    assert pool.statistics.kept_blocks == 1


EXITS = {
    "live": """
        import samebits as sb
        from samebits.memory import HostResource, allocate, new_array
        held = [allocate(size) for size in (10, 1 << 20, 1 << 23)]
        arrays = [buffer.array() for buffer in held]
        arrays.append(new_array((1000, 1000), arrays[0].dtype)[1:])
        own = allocate(1 << 20, resource=HostResource())
        tensor = sb.Tensor.zeros((1000, 1000))
        capsule = tensor.__dlpack__(max_version=(1, 0))
    """,
    "a cycle, and a module that goes first": """
        import sys
        from samebits import memory
        class Cycle: pass
        cycle = Cycle()
        cycle.me, cycle.buffer = cycle, memory.allocate(1 << 20)
        sys.modules["keeper"] = cycle
        del memory
    """,
    "a resource of one's own": """
        import ctypes
        from samebits.memory import CPU, allocate
        class Raw:
            device, is_host_accessible, is_device_accessible = CPU, True, False
            def __init__(self): self.kept = {}
            def allocate(self, size_bytes, *, stream=None):
                block = ctypes.create_string_buffer(size_bytes + 64)
                address = -(-ctypes.addressof(block) // 64) * 64
                self.kept[address] = block
                return address
            def deallocate(self, address, size_bytes, *, stream=None):
                del self.kept[address]
        buffer = allocate(1000, resource=Raw())
        buffer.array()[:] = 1
    """,
    "a thread that goes on": """
        import threading, time
        from samebits.memory import allocate
        def work():
            while True:
                allocate(1 << 20).array()[0] = 1
        threading.Thread(target=work, daemon=True).start()
        time.sleep(0.05)
    """,
    "at exit": """
        import atexit
        from samebits.memory import allocate
        kept = allocate(1 << 20)
        atexit.register(lambda: (kept.array().fill(1), allocate(1 << 20).array().fill(2), print("done")))
    """,
}


@pytest.mark.parametrize("name", EXITS)
def test_the_interpreter_ends_with_live_buffers(name: str) -> None:
    command = [sys.executable, "-c", textwrap.dedent(EXITS[name])]
    run = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert (run.returncode, run.stderr) == (0, "")
    assert run.stdout == ("done\n" if name == "at exit" else "")


CHURN = """
import apart
from samebits import Tensor
from samebits.memory import allocate

def churn(count):
    for i in range(count):
        buffer = allocate((1 + i % 7) * 40_000 + i % 64)
        buffer.array()[::4096] = 1
        part = buffer[:100]
        if i % 3 == 0:
            buffer.close()
        tensor = Tensor.empty((4, i % 50))
        del part, buffer, tensor

apart.without_huge_pages()
churn(5_000)
before = apart.resident()
churn(100_000)
print(apart.resident() - before)
"""


@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="this system does not say what is resident")
def test_memory_is_flat_over_many_allocations() -> None:
    assert int(apart.printed_by(CHURN)) < 4 * MIB
