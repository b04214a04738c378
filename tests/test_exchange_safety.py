"""Exchange leaks nothing, frees nothing twice and survives whoever breaks the protocol, by emitted code and by Python.

Leaks are counted, not estimated: blocks of Python's allocator and bytes of the C library's, before and after.
"""

import ctypes
import gc
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import capsules
import ml_dtypes
import numpy as np
import pytest
import torch
from capsules import HandMade
from drawing import examples
from hypothesis import given
from hypothesis import strategies as st

from samebits.errors import ExchangeError, SamebitsError
from samebits.native import exchange
from samebits.tensor import Tensor

pytestmark = pytest.mark.usefixtures("short_collections")

Receive = Callable[[Any], Tensor]
WAYS: dict[str, Receive] = {
    "python": exchange.REFERENCE["Tensor.from_dlpack"].__get__(None, Tensor),
    "emitted": lambda x: Tensor.from_dlpack(x),
}
EXPORTS: dict[str, Callable[..., Any]] = {
    "python": exchange.REFERENCE["Tensor.__dlpack__"],
    "emitted": lambda x, **options: x.__dlpack__(**options),
}
VERSIONED = {"max_version": (1, 3)}


@pytest.fixture(autouse=True, scope="module")
def installed() -> None:
    assert exchange.compile_exchange()


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> str:
    """Which implementation."""
    name: str = request.param
    return name


# Memory.


class _Mallinfo(ctypes.Structure):
    """struct mallinfo2 of glibc."""

    _names = "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost"
    _fields_ = [(name, ctypes.c_size_t) for name in _names.split()]


def in_use() -> tuple[int, int]:
    """Blocks of Python's allocator, and bytes of the C library's in this thread's arena and in maps of their own."""
    gc.collect()
    mallinfo = getattr(ctypes.CDLL(None), "mallinfo2", None)
    if mallinfo is None:
        return sys.getallocatedblocks(), 0
    mallinfo.restype = _Mallinfo
    facts = mallinfo()
    return sys.getallocatedblocks(), facts.uordblks + facts.hblkhd


def refused(call: Callable[[], object]) -> None:
    """Do what must raise."""
    try:
        call()
    except (SamebitsError, BufferError, RuntimeError):
        return
    raise AssertionError("it was accepted")


class _Forgetful(list[int]):
    """A list that stays empty."""

    def append(self, _: int) -> None:
        """Forget."""


def cycles(way: str) -> dict[str, Callable[[], object]]:
    """Ways round, each of which should leave nothing behind."""
    receive, export = WAYS[way], EXPORTS[way]
    array, constant = np.zeros((4, 5), np.float32), np.zeros(3, np.int8)
    constant.flags.writeable = False
    foreign, half = torch.zeros(4, 5), torch.zeros(8, dtype=torch.bfloat16)
    ours = Tensor.zeros((4, 5))
    strange, broken, newer = HandMade(), HandMade((2, -3)), HandMade(major=2)
    for producer in (strange, broken, newer):
        producer.deleted = _Forgetful()
    brain = Tensor.from_any(np.zeros(4, ml_dtypes.bfloat16))
    return {
        "numpy in": lambda: receive(array),
        "numpy in and out": lambda: receive(array)[1:].numpy(),
        "numpy out by DLPack": lambda: np.from_dlpack(ours),
        "constant": lambda: np.from_dlpack(receive(constant)),
        "torch in": lambda: receive(foreign),
        "torch in and out": lambda: receive(half).torch(),
        "ours to ours": lambda: receive(ours),
        "unused capsules": lambda: (export(ours), export(ours, **VERSIONED)),
        "a copy": lambda: export(ours, copy=True, **VERSIONED),
        "by hand": lambda: receive(strange),
        "refused by us": lambda: refused(lambda: receive(broken)),
        "of another version": lambda: refused(lambda: receive(newer)),
        "refused by NumPy": lambda: refused(lambda: np.from_dlpack(brain)),
        "refused by the producer": lambda: refused(lambda: export(receive(constant))),
    }


def leaked(cycle: Callable[[], object], count: int) -> tuple[int, int]:
    """Blocks and bytes that so many rounds leave behind."""
    for _ in range(100):
        cycle()
    blocks, size = in_use()
    for _ in range(count):
        cycle()
    after = in_use()
    return after[0] - blocks, after[1] - size


@pytest.mark.parametrize("name", cycles("python"))
def test_nothing_is_left_behind(way: str, name: str) -> None:
    blocks, size = leaked(cycles(way)[name], 10_000)
    # One lost object a round would be 10 000 blocks, one lost struct 640 000 bytes; caches that fill are a few.
    if blocks >= 100 or size >= 16_000:  # what is set up once is no leak: it does not come again
        blocks, size = leaked(cycles(way)[name], 10_000)
    assert blocks < 100
    assert size < 16_000


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["numpy in and out", "torch in and out", "ours to ours", "refused by us"])
def test_a_million_rounds_leave_nothing_behind(way: str, name: str) -> None:
    def resident() -> int:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    cycle = cycles(way)[name]
    leaked(cycle, 10_000)
    before = resident()
    blocks, size = leaked(cycle, 1_000_000)
    assert (blocks < 100, size < 16_000, resident() - before < 1 << 20) == (True, True, True)


# Owners.


@pytest.mark.parametrize("legacy", [False, True])
def test_the_deleter_runs_once_whoever_is_last(way: str, legacy: bool) -> None:
    for last in range(4):
        producer = HandMade(legacy=legacy)
        t = WAYS[way](producer)
        users: list[Any] = [t, t[1:], t.numpy(), t.T]
        producer.capsule = None
        del t
        keeper = users.pop(last)
        users.clear()
        assert producer.deleted == []
        del keeper
        assert len(producer.deleted) == 1


def test_threads_import_and_drop(way: str) -> None:
    receive, errors = WAYS[way], []
    shared = HandMade()
    kept = receive(shared)
    array = np.arange(12, dtype=np.float32).reshape(3, 4)
    deleted: list[int] = []

    def work() -> None:
        try:
            for _ in range(300):
                producer = HandMade()
                t = receive(producer)
                u, v = receive(array), receive(kept)
                assert float(u.numpy()[2, 3]) == 11
                assert v.address == kept.address
                producer.capsule = None
                del t, u, v
                deleted.append(len(producer.deleted))
        except BaseException as error:
            errors.append(error)

    before = sys.getrefcount(array)
    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert deleted == [1] * 2400
    assert sys.getrefcount(array) == before
    assert shared.deleted == []


def test_tensors_made_in_one_thread_die_in_others(way: str) -> None:
    producers = [HandMade() for _ in range(400)]
    tensors = [WAYS[way](producer) for producer in producers]

    def drop() -> None:
        while True:
            try:
                tensors.pop()
            except IndexError:
                return

    threads = [threading.Thread(target=drop) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for producer in producers:
        producer.capsule = None
    assert [len(producer.deleted) for producer in producers] == [1] * 400


def test_a_consumer_that_raises_while_it_holds_the_capsule(way: str) -> None:
    array = np.zeros(3, np.float32)
    t = Tensor.from_any(array)
    t.buffer.array()  # kept by the buffer from here on
    base = sys.getrefcount(array)

    def consume() -> None:
        capsule = EXPORTS[way](t, **VERSIONED)
        raise KeyError(capsules.name_of(capsule))

    for _ in range(50):
        with pytest.raises(KeyError, match="dltensor_versioned"):
            consume()
    assert sys.getrefcount(array) == base


def test_a_capsule_is_used_once(way: str) -> None:
    class Again:
        def __init__(self) -> None:
            self.capsule = EXPORTS[way](Tensor.zeros((3,)), **VERSIONED)

        def __dlpack__(self, **_: object) -> object:
            return self.capsule

    again = Again()
    WAYS[way](again)
    with pytest.raises(ExchangeError, match="used_dltensor_versioned"):
        WAYS[way](again)


# Read-only stays read-only.


def test_read_only_is_carried_through_every_door(way: str) -> None:
    array = np.arange(12, dtype=np.float32).reshape(3, 4)
    array.flags.writeable = False
    for t in (WAYS[way](array), WAYS[way](WAYS[way](array)), Tensor.from_any(array)):
        for view in (t, t[1:], t.T, t.reshape((4, 3)), t.view("uint32"), t.broadcast_to((2, 3, 4)), WAYS[way](t)):
            assert view.read_only
            assert not view.numpy().flags.writeable
            assert not np.from_dlpack(view).flags.writeable
            assert not np.asarray(view).flags.writeable
            assert not view.buffer.array().flags.writeable
            with pytest.raises(ExchangeError, match="read-only"):
                view.torch()
            with pytest.raises(ExchangeError, match="read-only"):
                EXPORTS[way](view)
            managed, _keep = capsules.exported(view, **VERSIONED)
            assert managed.flags & 1
    assert np.array_equal(array.ravel(), np.arange(12))


# Producers that lie.

_INT64 = st.one_of(st.integers(-3, 5), st.sampled_from([2**31, 2**62, -(2**62), 2**63 - 1, -(2**63)]))
_LIES = {
    "ndim": st.sampled_from([-(2**31), -1, 0, 1, 2, 3, 64, 65, 10**9, 2**31 - 1]),
    "code": st.integers(0, 255),
    "bits": st.sampled_from([0, 1, 2, 4, 6, 7, 8, 16, 32, 64, 128, 255]),
    "lanes": st.sampled_from([0, 1, 2, 4, 65535]),
    "device_type": st.sampled_from([-1, 0, 1, 2, 3, 5, 13, 77, 2**31 - 1]),
    "device_id": st.sampled_from([-1, 0, 3, 2**31 - 1]),
    "byte_offset": st.sampled_from([0, 1, 4, 2**63, 2**64 - 1, 2**64 - 4]),
    "data": st.sampled_from([None, 1, 64, 2**63, 2**64 - 4, 2**64 - 64]),
    "flags": st.sampled_from([0, 1, 2, 3, 4, 7, 8, 2**63, 2**64 - 1]),
    "major": st.sampled_from([0, 1, 2, 2**32 - 1]),
    "minor": st.sampled_from([0, 3, 9, 2**32 - 1]),
}


def told(receive: Receive, producer: HandMade) -> tuple[Any, ...]:
    """What is made of a lie, without touching its memory; whatever it is, the deleter ran once in the end."""
    try:
        t = receive(producer)
        made = (t.dtype, t.layout, t.buffer.size_bytes, t.buffer.device, t.read_only)
        assert producer.deleted == []
        del t
    except SamebitsError as error:
        made = (type(error), re.sub(r"0x[0-9a-f]+", "an address", str(error)))
    producer.capsule = None
    assert len(producer.deleted) == 1
    return made


@examples(300)
@given(
    st.lists(_INT64, max_size=4),
    st.none() | st.lists(_INT64, min_size=4, max_size=4),
    st.fixed_dictionaries({}, optional=_LIES),
    st.booleans(),
)
def test_lies_are_refused_or_harmless_and_alike(
    shape: list[int], strides: list[int] | None, lies: dict[str, Any], legacy: bool
) -> None:
    if legacy:
        lies = {name: lie for name, lie in lies.items() if name not in ("flags", "major", "minor")}
    if 0 < lies.get("ndim", 0) <= 64:  # more axes than arrays would be read past their end: nothing can know
        lies["ndim"] = min(lies["ndim"], len(shape))
    made = [
        told(receive, HandMade(shape, strides[: len(shape)] if strides else None, legacy=legacy, **lies))
        for receive in WAYS.values()
    ]
    assert made[0] == made[1]


def test_what_is_no_capsule(way: str) -> None:
    for given_ in (None, 7, "dltensor", object()):

        class Liar:
            def __dlpack__(self, given_: object = given_, **_: object) -> object:
                return given_

        with pytest.raises(ExchangeError):
            WAYS[way](Liar())


def test_a_producer_that_raises_is_heard(way: str) -> None:
    refusals: tuple[type[BaseException], ...] = (BufferError, RuntimeError, TypeError, ValueError)
    for error in (*refusals, KeyboardInterrupt, MemoryError, KeyError, AttributeError):

        class Raiser:
            def __dlpack__(self, error: type[BaseException] = error, **_: object) -> object:
                raise error("by the producer")

        with pytest.raises(ExchangeError if error in refusals else error, match="by the producer") as caught:
            WAYS[way](Raiser())
        assert type(caught.value.__cause__ if error in refusals else caught.value) is error


# Processes.

PRELUDE = """
import ctypes, gc, os, sys, threading
import numpy as np
from samebits.native import exchange
from samebits.tensor import Tensor
if {emitted}:
    assert exchange.compile_exchange()
array = np.arange(8, dtype=np.float32)
t = Tensor.from_dlpack(array)
"""
ENDINGS = {
    "capsules in globals": "keep = [t.__dlpack__(), t.__dlpack__(max_version=(1, 3))]",
    "capsules in a cycle": "keep = [t.__dlpack__()]; keep.append(keep); del keep",
    "a used capsule": "class P:\n    def __dlpack__(self, **_):\n        self.c = t.__dlpack__(); return self.c\n"
    "p = P(); u = Tensor.from_dlpack(p)",
    "views that outlive their module": "sys.modules['zzz'] = [t[1:].numpy(), np.from_dlpack(t), t.__dlpack__()]",
    "an object that exports while it dies": "class D:\n    def __init__(self): self.t = t\n"
    "    def __del__(self): np.from_dlpack(self.t).tolist()\nd = D()",
    "at exit": "import atexit; atexit.register(lambda: Tensor.from_dlpack(t).numpy().sum())",
    "closed": "c = t.__dlpack__(); t.buffer.close()",
    "a thread that goes on": "def go():\n    while True:\n        np.from_dlpack(Tensor.from_dlpack(array))\n"
    "threading.Thread(target=go, daemon=True).start()",
    "a deleter in Python": "sys.path.insert(0, 'tests'); from capsules import HandMade\n"
    "h = HandMade(); u = Tensor.from_dlpack(h); v = u.numpy()",
    "torch": "import torch; x = torch.zeros(4); u = Tensor.from_dlpack(x); y = u.torch(); z = torch.from_dlpack(t)",
}


def ended(text: str, *, emitted: bool) -> subprocess.CompletedProcess[str]:
    """A process that runs to its end."""
    root = os.path.dirname(os.path.dirname(__file__))
    return subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", PRELUDE.format(emitted=emitted) + text],
        capture_output=True,
        text=True,
        check=False,
        cwd=root,
        timeout=600,
    )


@pytest.mark.parametrize("name", ENDINGS)
def test_the_interpreter_ends_with_capsules_alive(way: str, name: str) -> None:
    done = ended(ENDINGS[name], emitted=way == "emitted")
    assert (done.returncode, done.stderr) == (0, "")


def test_fork_with_tensors_alive(way: str) -> None:
    text = """
keep = [t, t.__dlpack__(max_version=(1, 3)), np.from_dlpack(t)]
children = []
for number in range(4):
    child = os.fork()
    if not child:
        assert np.from_dlpack(t).tolist() == list(range(8))
        u = Tensor.from_dlpack(array)
        u.numpy()[0] = 100 + number
        assert t.numpy()[0] == 100 + number
        keep.clear()
        gc.collect()
        sys.exit(number)
    children.append(child)
codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
assert codes == [0, 1, 2, 3], codes
assert t.tolist() == list(range(8))
"""
    done = ended(text, emitted=way == "emitted")
    assert (done.returncode, done.stderr) == (0, "")
