"""The process's thread pool: native threads that join in when a caller runs a table.

Workers are plain threads of libc (they never touch Python), started when a call first asks for them, never more
spinning than there are cores: the rest go to sleep at once. Before a fork they are stopped, so that the process forks
with no thread of ours; parent and child start new ones when they next need them. At exit they are stopped and joined. A
table that runs meanwhile finishes on its caller alone. The protocol is in `pool_text`; start at `pool`.
"""

from __future__ import annotations

import atexit
import ctypes
import functools
import os
import sys
import threading
import time
from collections.abc import Sequence
from typing import Any

from samebits import driver, errors, forks
from samebits.codegen import isa as isas
from samebits.native import compile, pool_text

# An idle worker polls this long before it sleeps: longer than a gap between steps or eager calls, shorter than a tick.
# Autograd's gaps are long, as they come with cold caches: forward and backward of 512 x 768 float32 take, by 50 and 100
# us, two threads, LayerNorm 488 and 340 us, Softmax 470 and 337, GELU 600 and 449 (Emerald Rapids). What torch's own
# threads compute between ours waits for a polling worker: a chain of four is 1 to 3 % slower by 100, 4 to 8 % by 150.
_SPIN_NS = 100_000
_STOP = 40


@functools.cache
def _unit() -> compile.Unit:
    host = next(row for row in isas.ROWS if row.compiled and row.available)
    target = host.target()
    return compile.module_unit(pool_text.module(target.arch, linux=sys.platform == "linux"), target)


@functools.cache
def _entries() -> tuple[int, ...]:
    """Addresses of `run`, `worker`, `wake` and `spin`."""
    return compile.addresses(_unit(), ("run", "worker", "wake", "spin"))


def link(specs: Sequence[compile.Compiled]) -> None:
    """Have the addresses of kernels and functions and of what runs them; what is missing is compiled at the same time.

    Raises:  NativeError if LLVM refuses a text, which is a defect of it.
    """
    compile.link(specs, [] if _entries.cache_info().currsize else [_unit()])


def run_address() -> int:
    """Where `run` is, for emitted code."""
    return _entries()[0]


@functools.cache
def run_function() -> Any:
    """`run(table address)`, with the GIL released."""
    return ctypes.CFUNCTYPE(None, ctypes.c_void_p)(run_address())


@functools.cache
def _spins() -> int:
    """How many turns of an idle worker's loop take `_SPIN_NS` here: a pause lasts 10 to 150 cycles by machine."""
    spin, turns = ctypes.CFUNCTYPE(None, ctypes.c_int64)(_entries()[3]), 500
    best = _SPIN_NS
    for _ in range(5):
        start = time.perf_counter_ns()
        spin(turns)
        best = min(best, time.perf_counter_ns() - start)
    return turns * _SPIN_NS // max(best, 1)


class Pool:
    """The workers of one process, and the words they share with callers."""

    def __init__(self) -> None:
        self._libc = driver.libc()
        allocate = self._libc.calloc
        allocate.restype, allocate.argtypes = ctypes.c_void_p, (ctypes.c_size_t, ctypes.c_size_t)
        # Never freed: a caller may look at it until the process is gone.
        self.address: int = -(-allocate(pool_text.WORDS * 8 + 64, 1) // 64) * 64
        self.lock = threading.RLock()  # a signal handler of a thread that holds it may fork
        self._workers: list[ctypes.c_ulong] = []
        self._prepared = 0
        self._wake = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)(_entries()[2])

    def ensure(self, threads: int) -> None:
        """Start workers until a caller and they are `threads`.

        Raises:  NativeError if the system refuses a thread; those that were started stay, and no result is lost.
        """
        if len(self._workers) >= threads - 1:
            return
        with self.lock:
            while len(self._workers) < threads - 1 and not _ending:
                self._workers.append(self._start(len(self._workers) + 1))

    def _start(self, index: int) -> ctypes.c_ulong:
        import signal  # whose names take half a millisecond, for a process that starts threads

        record = self._record(index)
        handle = ctypes.c_ulong()
        # Signals are for Python's threads, except those that a thread brings upon itself.
        own = {signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL}
        before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals() - own)
        try:
            failed = self._libc.pthread_create(
                ctypes.byref(handle), None, ctypes.c_void_p(_entries()[1]), ctypes.c_void_p(record)
            )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        if failed:
            raise errors.NativeError(

                    "threads", f"worker {index}", "start", os.strerror(failed), "a new thread",
                    "ask for fewer threads="
            )  # fmt: skip
        return handle

    def _record(self, index: int) -> int:
        """The worker's record, its mutex and condition made once (a caller may be using them from then on)."""
        record: int = self.address + 8 * (pool_text.WORKER + pool_text.WORKER_WORDS * index)
        if index > self._prepared:
            self._libc.pthread_mutex_init(ctypes.c_void_p(record + 8 * 8), None)
            self._libc.pthread_cond_init(ctypes.c_void_p(record + 8 * 16), None)
            self._prepared = index
        spins = _spins() if index < driver.usable_cores() else 0
        (ctypes.c_int64 * 5).from_address(record)[:] = [self.address, index, spins, 0, 0]
        return record

    def stop(self) -> None:
        """End all workers and wait for them; the caller holds `lock`. `ensure` starts new ones."""
        if not self._workers:
            return
        stop = ctypes.c_int64.from_address(self.address + 8 * _STOP)
        stop.value = 1
        self._wake(self.address, 256)
        for handle in self._workers:
            self._libc.pthread_join(handle, None)
        self._workers.clear()
        stop.value = 0


_pool: Pool | None = None
_guard = threading.RLock()
_ending = False


def pool(threads: int) -> Pool:
    """This process's pool with enough workers for `threads` in all."""
    global _pool
    found = _pool
    if found is None:
        with _guard:
            found = _pool = _pool or Pool()
    found.ensure(threads)
    return found


def _before_fork() -> None:
    _guard.acquire()
    if _pool is not None:
        _pool.lock.acquire()
        _pool.stop()


def _after_fork_in_parent() -> None:
    if _pool is not None:
        _pool.lock.release()
    _guard.release()


def _after_fork_in_child() -> None:
    """The child's pool is its own: in the parent's, a caller that does not exist here may be half way."""
    global _pool
    _pool = None
    _guard.release()


def _at_exit() -> None:
    global _ending
    _ending = True
    if _pool is not None:
        with _pool.lock:
            _pool.stop()


forks.around(_before_fork, _after_fork_in_parent, _after_fork_in_child)
atexit.register(_at_exit)
