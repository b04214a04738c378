"""The process's thread pool: native threads that join in when a caller runs a table.

Workers are plain threads of libc (they never touch Python), started when a call first asks for them, never more
spinning than there are cores: the rest go to sleep at once. After a fork the child starts a pool of its own. At exit
they are stopped and joined before the code they run is unloaded. The protocol is in `pool_text`.
"""

from __future__ import annotations

import atexit
import ctypes
import functools
import os
import signal
import threading
from typing import Any

from samebits import driver, errors
from samebits.codegen import isa as isas
from samebits.native import cache, compile, pool_text

MAX_THREADS = 255
SPINS = 2500  # about 50 us of polling before a worker sleeps: longer than a gap between steps, shorter than a tick


@functools.cache
def _entries() -> tuple[int, int]:
    """Addresses of `run` and `worker`."""
    host = next(row for row in isas.ROWS if row.compiled and row.available)
    text = pool_text.module(isas.host_arch())
    key = compile.module_key(text, host.target())
    code = cache.read(key)
    if code is None:
        code = compile.object_code(text, host.target())
        cache.write(key, code)
    run, worker = compile.link_all(code, ("run", "worker"))
    return run, worker


@functools.cache
def run_function() -> Any:
    """`run(table address)`, with the GIL released."""
    return ctypes.CFUNCTYPE(None, ctypes.c_void_p)(_entries()[0])


class Pool:
    """The workers of one process, and the words they share with callers."""

    def __init__(self) -> None:
        # Never freed: a worker may look at it until the process is gone.
        size = pool_text.WORDS * 8
        self._libc = driver.libc()
        self._libc.malloc.restype = ctypes.c_void_p
        block = self._libc.malloc(ctypes.c_size_t(size + 64))
        self.address = -(-block // 64) * 64
        ctypes.memset(self.address, 0, size)
        self._word(40, self._libc.pthread_mutex_init)
        self._word(56, self._libc.pthread_cond_init)
        self._lock = threading.Lock()
        self._workers: list[tuple[ctypes.c_ulong, Any]] = []

    def _word(self, word: int, initialise: Any) -> None:
        initialise(ctypes.c_void_p(self.address + 8 * word), None)

    def ensure(self, threads: int) -> None:
        """Start workers until a caller and they are `threads`.

        Raises:  NativeError if the system refuses a thread.
        """
        if len(self._workers) >= threads - 1:
            return
        with self._lock:
            while len(self._workers) < threads - 1:
                self._start(len(self._workers) + 1)

    def _start(self, index: int) -> None:
        spins = SPINS if index < driver.usable_cores() else 0
        record = (ctypes.c_int64 * 3)(self.address, index, spins)
        handle = ctypes.c_ulong()
        every = signal.valid_signals() if hasattr(signal, "pthread_sigmask") else set()
        before = signal.pthread_sigmask(signal.SIG_BLOCK, every)  # signals are for Python's threads
        try:
            failed = self._libc.pthread_create(
                ctypes.byref(handle),
                None,
                ctypes.c_void_p(_entries()[1]),
                ctypes.byref(record),
            )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        if failed:
            raise errors.NativeError(
                errors.message(
                    "threads", f"worker {index}", "start", os.strerror(failed), "a new thread",
                    "ask for fewer threads=",
                )
            )  # fmt: skip
        self._workers.append((handle, record))

    def stop(self) -> None:
        """End all workers and wait for them."""
        with self._lock:
            ctypes.c_int64.from_address(self.address + 8 * 33).value = 1
            mutex, condition = (ctypes.c_void_p(self.address + 8 * word) for word in (40, 56))
            self._libc.pthread_mutex_lock(mutex)
            self._libc.pthread_cond_broadcast(condition)
            self._libc.pthread_mutex_unlock(mutex)
            for handle, _ in self._workers:
                self._libc.pthread_join(handle, None)
            self._workers.clear()


_pool: Pool | None = None
_guard = threading.Lock()


def pool(threads: int) -> Pool:
    """This process's pool with enough workers for `threads` in all."""
    global _pool
    if _pool is None:
        with _guard:
            if _pool is None:
                _pool = Pool()
    _pool.ensure(threads)
    return _pool


def _forget() -> None:
    """In a forked child: the parent's workers do not exist here, and its locks may be held."""
    global _pool, _guard
    _pool, _guard = None, threading.Lock()


def _stop() -> None:
    if _pool is not None:
        _pool.stop()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
atexit.register(_stop)
