"""What is under us: libc, the machine's facts, Python, the CUDA driver. An absence is a fact, not an error."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import gc
import os
import platform
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from samebits.errors import DeviceError, OptionError, message, shown
from samebits.frozen import dataclass

if TYPE_CHECKING:
    import subprocess


@functools.cache
def libc() -> ctypes.CDLL:
    """The C library (and whatever else this process has loaded)."""
    return ctypes.CDLL(None)


def usable_cores() -> int:
    """Cores that this process may run on (its affinity, not the machine's count)."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


# What Linux says of a processor, by the names of x86-64 and of AArch64.
_PROCESSOR = (
    "vendor_id", "cpu family", "model", "model name", "stepping", "cache size",
    "CPU implementer", "CPU variant", "CPU part", "CPU revision",
)  # fmt: skip


@functools.cache
def processor() -> str:
    """This machine's processor, told apart from others: what Linux says of the first, else what the system calls it."""
    said: dict[str, str] = {}
    with contextlib.suppress(OSError), open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
        for line in file:
            name, colon, value = (part.strip() for part in line.partition(":"))
            if colon and name in _PROCESSOR:
                said.setdefault(name, value)
            if said and not name:  # the next processor follows
                break
    return ", ".join(f"{name} {value}" for name, value in said.items()) or platform.processor() or platform.machine()


@functools.cache
def cuda_driver_version() -> str | None:
    """`12.8`: the CUDA version that the machine's NVIDIA driver serves, None where there is no driver."""
    try:
        version = ctypes.c_int()
        failed = ctypes.CDLL("libcuda.so.1").cuDriverGetVersion(ctypes.byref(version))
    except (OSError, AttributeError):
        return None
    return None if failed else f"{version.value // 1000}.{version.value % 1000 // 10}"


# Where Linux says how much a container may use: control groups of version 2, then of version 1.
_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def memory_bytes() -> int:
    """Memory that this process may use: the machine's, or less in a container; 4 GiB where nothing says."""
    try:
        found = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        found = 4 << 30
    for path in _LIMITS:
        with contextlib.suppress(OSError, ValueError), open(path) as file:  # "max" is no number
            found = min(found, int(file.read()))
    return found


def start_python(
    module: str, arguments: tuple[str, ...], environment: Mapping[str, str] | None = None, **options: Any
) -> subprocess.Popen[str]:
    """Start `python -m module arguments` as a process that imports what this one does; the only way that we start one.

    `-m` alone would look for modules in the current directory first, where a file beside a model that somebody
    downloaded could be called `zipfile.py`. So the child has `-P`, and of this process's places of modules all but the
    current directory, which is among them by chance (`python -m` and an empty part of PYTHONPATH put it there), unless
    this package lies there.

    Args:    environment: variables to set on top of this process's.   options: those of subprocess.Popen.
    """
    import subprocess  # which `import samebits` does not need

    variables = os.environ | dict(environment or {}) | {"PYTHONPATH": os.pathsep.join(_module_places())}
    command = [sys.executable, "-P", "-m", module, *arguments]
    return subprocess.Popen(command, env=variables, text=True, **options)


_children: list[subprocess.Popen[str]] = []


def let_end(process: subprocess.Popen[str]) -> None:
    """Have the system forget this child some time after it ends, also where nobody waits for it.

    Python's collector of cycles looks whether it has ended, after it went over more than the youngest objects, which it
    does all the time: that takes no thread, and no handler of a signal, which are its program's.
    """
    _children.append(process)
    if _forget_ended not in gc.callbacks:
        gc.callbacks.append(_forget_ended)


def _forget_ended(phase: str, info: Mapping[str, int]) -> None:
    """Called by the collector, in any thread and between any two of its steps.

    It stays among the collector's callbacks: one that takes itself out has the collector pass over the next.
    """
    if phase == "start" or not info["generation"]:
        return
    for process in list(_children):
        if process.poll() is not None:
            with contextlib.suppress(ValueError):
                _children.remove(process)


def can_start_python() -> bool:
    """Whether a process that helps this one can be started: a program that embeds Python may call itself its Python."""
    if os.name != "posix" or getattr(sys, "frozen", False):
        return False
    return "python" in os.path.basename(sys.executable or "").lower()


def _module_places() -> list[str]:
    """The places in `sys.path` that a child may import from."""
    home = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    # What holds the separator cannot be said in PYTHONPATH: its parts would name other places.
    return [x for x in sys.path if x and os.pathsep not in x and (not _is_same(x, os.curdir) or _is_same(x, home))]


def _is_same(path: str, other: str) -> bool:
    try:
        return os.path.samefile(path, other)
    except OSError:
        return False


# Larger than any fenv_t.
_FLOAT_STATE = ctypes.c_char * 256
_FloatCalls = tuple[Callable[[Any], int], Callable[[Any], int], ctypes.c_void_p]


@functools.cache
def _float_calls() -> _FloatCalls | None:
    """fegetenv, fesetenv and FE_DFL_ENV (a variable of Apple's libm, the pointer -1 of glibc and musl), or None."""
    try:
        get, put = libc().fegetenv, libc().fesetenv
        if sys.platform == "darwin":
            apple = ctypes.c_char.in_dll(libc(), "_FE_DFL_ENV")
            return get, put, ctypes.cast(ctypes.byref(apple), ctypes.c_void_p)
    except (AttributeError, ValueError):
        return None
    return get, put, ctypes.c_void_p(-1)


class default_float_environment(contextlib.ContextDecorator):
    """Round to nearest even with subnormals in this thread until the block ends, whatever the caller had set.

    What NumPy and Python compute follows the modes of the calling thread: the direction of rounding, and whether
    subnormals count as zero. Results that are ours, or that are kept, are computed inside such a block. On a system
    without fegetenv the caller's modes stay.
    """

    __slots__ = ("_kept",)

    def __enter__(self) -> None:
        calls = _float_calls()
        self._kept = None if calls is None else _FLOAT_STATE()
        if calls is not None:
            calls[0](self._kept)
            calls[1](calls[2])

    def __exit__(self, *error: object) -> None:
        calls = _float_calls()
        if calls is not None and self._kept is not None:
            calls[1](self._kept)

    def _recreate_cm(self) -> default_float_environment:
        """Each call of a decorated function has a block of its own: they nest, and threads meet in them."""
        return type(self)()


@dataclass(frozen=True, slots=True)
class Residence:
    """What the CUDA driver knows of an address.

    Attributes:
        kind: `pageable` (host memory that it does not know), `pinned` (host memory that it allocated, or that was
            registered with it: it answers alike for both), `managed` or `device`.
        index: The device that it belongs to; 0 for pageable memory.
    """

    kind: str
    index: int = 0


PAGEABLE = Residence("pageable")


# CU_STREAM_LEGACY, which is that stream even where a process was told to have default streams of its threads.
LEGACY_STREAM = 1
# CU_EVENT_DISABLE_TIMING.
_NO_TIMING = 2
_REMEDIES = {"CUDA_ERROR_NOT_INITIALIZED": "use it in processes started by spawn, not by a fork of one that did"}


class Cuda:
    """The calls of the CUDA driver that memory needs, each in the primary context of the device it is for.

    `api` is the module `cuda.bindings.driver`, or what answers as it does: every function gives its status first.
    """

    def __init__(self, api: Any) -> None:
        self._api = api
        self._contexts: dict[int, Any] = {}

    def _call(self, name: str, *arguments: Any) -> Any:
        """The result of a driver's function, None for one that has none."""
        status, *results = getattr(self._api, name)(*arguments)
        if int(status):
            code = getattr(status, "name", f"status {int(status)}")
            remedy = _REMEDIES.get(code, "see the driver's documentation")
            told = (name, "CUDA driver's answer", "", code, "CUDA_SUCCESS", remedy)
            raise MemoryError(message(*told)) if code == "CUDA_ERROR_OUT_OF_MEMORY" else DeviceError(*told)
        return results[0] if results else None

    @contextlib.contextmanager
    def _current(self, index: int) -> Iterator[None]:
        """The device's primary context, which CUDA's own runtime and the frameworks use, as this thread's."""
        context = self._contexts.get(index)
        if context is None:
            context = self._call("cuDevicePrimaryCtxRetain", self._call("cuDeviceGet", index))
            self._contexts[index] = context
        self._call("cuCtxPushCurrent", context)
        try:
            yield
        finally:
            self._call("cuCtxPopCurrent")

    def check_device(self, call: str, index: int) -> None:
        """Raise DeviceError unless there is a device of that index."""
        count = self._call("cuDeviceGetCount")
        if not 0 <= index < count:
            raise DeviceError(call, "device", "", index, f"one of {count}", "count from 0")

    def residence(self, address: int) -> Residence:
        """Whose the memory at an address is."""
        names = self._api.CUpointer_attribute
        asked = [
            names.CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
            names.CU_POINTER_ATTRIBUTE_IS_MANAGED,
            names.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
        ]
        memory_type, managed, ordinal = self._call("cuPointerGetAttributes", len(asked), asked, address)
        types = self._api.CUmemorytype
        if managed:
            return Residence("managed", ordinal)
        if int(memory_type) == int(types.CU_MEMORYTYPE_DEVICE):
            return Residence("device", ordinal)
        if int(memory_type) == int(types.CU_MEMORYTYPE_HOST):
            return Residence("pinned", ordinal)
        return PAGEABLE

    def allocate(self, size_bytes: int, index: int, stream: int | None) -> int:
        """The address of new device memory, to be used at once or in a stream's order."""
        with self._current(index):
            if stream is None:
                return int(self._call("cuMemAlloc", size_bytes))
            return int(self._call("cuMemAllocAsync", size_bytes, stream))

    def deallocate(self, address: int, index: int, stream: int | None, *, ordered: bool) -> None:
        """Free device memory; `ordered` is what was allocated on a stream, which cuMemFree alone would not wait for."""
        with self._current(index):
            if stream is not None:
                self._call("cuMemFreeAsync", address, stream)
                return
            if ordered:
                self._call("cuCtxSynchronize")
            self._call("cuMemFree", address)

    def copy(self, target: int, source: int, size_bytes: int, index: int, stream: int | None) -> None:
        """Copy between any two of host and devices, whose addresses are one space.

        Without a stream the copy follows the work of the legacy default stream, and is done when this returns.
        """
        if not size_bytes:
            return
        with self._current(index):
            self._call("cuMemcpyAsync", target, source, size_bytes, LEGACY_STREAM if stream is None else stream)
            if stream is None:
                self._call("cuStreamSynchronize", LEGACY_STREAM)

    def fill_zero(self, address: int, size_bytes: int, index: int, stream: int | None) -> None:
        """Make device memory 0, in the order that `copy` has."""
        with self._current(index):
            self._call("cuMemsetD8Async", address, 0, size_bytes, LEGACY_STREAM if stream is None else stream)
            if stream is None:
                self._call("cuStreamSynchronize", LEGACY_STREAM)

    def order(self, earlier: int, later: int, index: int) -> None:
        """Let what is given to the stream `later` from now on wait for what the stream `earlier` has to do now."""
        if earlier == later:
            return
        with self._current(index):
            event = self._call("cuEventCreate", _NO_TIMING)
            try:
                self._call("cuEventRecord", event, earlier)
                self._call("cuStreamWaitEvent", later, event, 0)
            finally:
                self._call("cuEventDestroy", event)  # the driver frees it after the wait


@functools.cache
def cuda() -> Cuda | None:
    """The CUDA driver, or None where cuda-bindings or the driver is missing, or there is no device."""
    try:
        from cuda.bindings import driver as api

        found = Cuda(api)
        found._call("cuInit", 0)
        return found if found._call("cuDeviceGetCount") else None
    except (ImportError, RuntimeError, DeviceError):  # the loader of cuda-bindings raises RuntimeError
        return None


def needed_cuda(call: str, operand: str) -> Cuda:
    """The CUDA driver, for a call that cannot do without.

    Raises:
        DeviceError: There is none.
    """
    found = cuda()
    if found is None:
        remedy = "install cuda-bindings on a machine with an NVIDIA driver"
        raise DeviceError(call, operand, "", "out of reach", "reachable by the CUDA driver", remedy)
    return found


def stream_handle(call: str, stream: Any) -> int | None:
    """The handle of a CUDA stream: an integer, or what has `__cuda_stream__`; None for none.

    Raises:
        OptionError: It is neither.
    """
    if stream is None:
        return None
    given = stream.__cuda_stream__()[1] if hasattr(stream, "__cuda_stream__") else stream
    if isinstance(given, bool) or not isinstance(given, int) or given < 0:
        expected = "a stream's handle or an object with __cuda_stream__"
        raise OptionError(call, "stream", "", shown(stream), expected, "pass stream.handle")
    return given
