"""What the emitted exchange methods own: memory and counts stay flat, on any thread, and the interpreter ends well."""

import contextlib
import ctypes
import gc
import itertools
import json
import os
import subprocess
import sys
import threading
import tracemalloc
from collections.abc import Callable

import apart
import numpy as np
import pytest
import torch
from capsules import HandMade

from samebits import dtypes
from samebits.errors import SamebitsError
from samebits.layout import Layout
from samebits.memory import CPU, Buffer
from samebits.native import exchange, objects
from samebits.tensor import Tensor

pytestmark = pytest.mark.usefixtures("emitted_methods", "short_collections")


def cycles() -> dict[str, Callable[[], object]]:
    """Uses that leave nothing behind."""
    x, y, t = np.zeros((3, 4), np.float32), torch.zeros(3, 4), Tensor.zeros((3, 4))
    late = {"max_version": (1, 3)}
    return {
        "from numpy": lambda: Tensor.from_dlpack(x),
        "from torch": lambda: Tensor.from_dlpack(y),
        "capsule": lambda: t.__dlpack__(**late),
        "legacy": lambda: t.__dlpack__(),
        "device": lambda: t.__dlpack_device__(),
        "to numpy": lambda: np.from_dlpack(t),
        "to torch": lambda: torch.from_dlpack(t),
    }


def growth(name: str) -> tuple[int, int]:
    """By how much many uses change the count of an object that is always there, and memory in bytes."""
    cycle = cycles()[name]
    x = np.zeros(1, np.float32)
    watched = (None, True, False, CPU, Tensor, Buffer, Layout, dtypes.float32, x.dtype, torch.Tensor, np.ndarray)
    for _ in range(1000):
        cycle()
    before, counts = apart.resident(), [sys.getrefcount(each) for each in watched]
    rounds = 1_000_000 if name in ("from numpy", "capsule") else 100_000
    for _ in range(rounds):
        cycle()
    gc.collect()
    after = [sys.getrefcount(each) for each in watched]
    return max(abs(a - b) for a, b in zip(after, counts, strict=True)), apart.resident() - before


@pytest.fixture(scope="module")
def grown() -> dict[str, tuple[int, int]]:
    """The growth of each, in a process of its own."""
    found: dict[str, tuple[int, int]] = json.loads(apart.printed(__file__))
    return found


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("name", cycles())
def test_memory_and_counts_stay_flat(name: str, grown: dict[str, tuple[int, int]]) -> None:
    count, size_bytes = grown[name]
    assert count < 50
    assert size_bytes < 2 << 20


def uncommon() -> dict[str, Callable[[], object]]:
    """Uses that emitted code begins, and leaves to Python: some of these raise."""
    t, narrow, late = Tensor.zeros((3, 4)), Tensor.zeros((3, 4), dtypes.int4), {"max_version": (1, 3)}
    closed = Tensor.zeros((3,))
    closed.buffer.close()
    skewed = np.zeros(33, np.uint8)[1:].view(np.float32)
    constant = np.zeros((3, 4), np.float32)
    constant.flags.writeable = False
    kept, hand = Tensor.from_any(constant), HandMade(flags=1 << 40)
    return {
        "flipped capsule": lambda: t.flip(0).__dlpack__(**late),
        "flipped legacy capsule": lambda: t.flip(1).__dlpack__(),
        "flipped to numpy": lambda: np.from_dlpack(t.flip(0)),
        "flipped to torch": lambda: t.flip(0).torch(),
        "empty capsule": lambda: Tensor.zeros((0, 3)).__dlpack__(**late),
        "narrow capsule": lambda: narrow.__dlpack__(**late),
        "narrow at a bit": lambda: narrow[:, 1:2].__dlpack__(**late),
        "closed capsule": lambda: closed.__dlpack__(**late),
        "read-only legacy capsule": lambda: kept.__dlpack__(),
        "capsule for a stream": lambda: t.__dlpack__(stream=1, **late),
        "a version of another kind": lambda: t.__dlpack__(max_version=(1 << 70, 0)),
        "misaligned array": lambda: Tensor.from_dlpack(skewed),
        "a capsule that is refused": lambda: Tensor.from_dlpack(hand),
        "an index beyond": lambda: t[7],
        "a shape that does not fit": lambda: t.reshape((5,)),
        "axes twice": lambda: t.permute((0, 0)),
        "a layout that is refused": lambda: Layout((2,), (8,), 0, 7000),
    }


@pytest.mark.parametrize("name", uncommon())
def test_what_is_left_to_python_leaves_no_memory_behind(name: str) -> None:
    use = uncommon()[name]

    def several(rounds: int) -> int:
        """Bytes that are held after so many uses: Python's and C's, which `PyMem_RawMalloc` gives."""
        for _ in range(rounds):
            with contextlib.suppress(SamebitsError, BufferError, RuntimeError, TypeError, ValueError, IndexError):
                use()
        for producer in HandMade.kept:
            producer.deleted.clear()
        gc.collect()
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    try:
        several(50)
        held = [several(400) for _ in range(4)]
        # A block of the smallest kind each time is 6,400 in every turn; what is kept once, as code that another
        # process has ready, comes in one of them.
        assert min(after - before for before, after in itertools.pairwise(held)) < 3200
    finally:
        tracemalloc.stop()


def test_an_array_lives_exactly_as_long_as_its_tensors() -> None:
    x, y = np.zeros(5), torch.zeros(5)
    before = sys.getrefcount(x), sys.getrefcount(y)
    made = [Tensor.from_dlpack(x) for _ in range(100)]
    assert sys.getrefcount(x) == before[0] + 100
    assert {t.buffer.owner is x for t in made} == {True}
    layout = made[0].layout
    uses = sys.getrefcount(layout)
    capsules = [t.__dlpack__(max_version=(1, 0)) for t in made]
    assert sys.getrefcount(x) == before[0] + 200
    assert sys.getrefcount(layout) == uses
    made[0].buffer.close()
    made.clear()
    assert sys.getrefcount(x) == before[0] + 100
    capsules.clear()
    assert (sys.getrefcount(x), sys.getrefcount(y)) == before
    kept = Tensor.from_dlpack(y)
    address = y.data_ptr()
    del y
    assert kept.address == address
    assert kept.numpy().sum() == 0


def test_a_capsule_that_dies_keeps_the_exception_in_flight() -> None:
    t = Tensor.zeros((3,), dtypes.bfloat16)
    for _ in range(100):
        with pytest.raises((RuntimeError, BufferError), match=r"[Uu]nsupported dtype"):
            np.from_dlpack(t)


def test_a_deleter_runs_on_any_thread_without_the_lock() -> None:
    x = np.zeros(5)
    t = Tensor.from_dlpack(x)
    before = sys.getrefcount(x)
    for versioned, at in ((False, 56), (True, 16)):
        capsule = t.__dlpack__(max_version=(1, 0)) if versioned else t.__dlpack__()
        name = b"dltensor_versioned" if versioned else b"dltensor"
        pointer, rename = ctypes.pythonapi["PyCapsule_GetPointer"], ctypes.pythonapi["PyCapsule_SetName"]
        pointer.restype, pointer.argtypes = ctypes.c_size_t, (ctypes.py_object, ctypes.c_char_p)
        rename.argtypes = (ctypes.py_object, ctypes.c_char_p)
        managed = pointer(capsule, name)
        rename(capsule, b"used")
        assert sys.getrefcount(x) == before + 1
        deleter = ctypes.CFUNCTYPE(None, ctypes.c_size_t)(objects.word(managed + at))  # releases the lock
        thread = threading.Thread(target=deleter, args=(managed,))
        thread.start()
        thread.join()
        del capsule
        assert sys.getrefcount(x) == before


def test_eight_threads_exchange_at_once() -> None:
    x, y, t = np.zeros((3, 4)), torch.zeros(3, 4), Tensor.zeros((3, 4))
    before = sys.getrefcount(x)
    wrong: list[object] = []

    def work(seed: int) -> None:
        for i in range(3000):
            a = Tensor.from_dlpack(x[: 1 + (i + seed) % 3])
            b = Tensor.from_dlpack(y[:, : 1 + i % 4])
            c, d = np.from_dlpack(t), torch.from_dlpack(b)
            if (a.shape, b.shape, c.shape, tuple(d.shape)) != (
                (1 + (i + seed) % 3, 4),
                (3, 1 + i % 4),
                (3, 4),
                b.shape,
            ):
                wrong.append(i)
            if i % 500 == 0:
                exchange._layouts.clear()

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert sys.getrefcount(x) == before


def test_the_kept_layouts_are_bounded() -> None:
    x = np.zeros(8192, np.uint8)
    for n in range(1, 8193):
        assert Tensor.from_dlpack(x[:n]).shape == (n,)
    assert 0 < len(exchange._layouts) <= exchange._KEPT_LAYOUTS


def python(program: str, *flags: str, **environment: str) -> str:
    """What a fresh interpreter prints; it must end well."""
    run = subprocess.run(
        [sys.executable, *flags, "-c", program],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert run.stderr == ""
    return run.stdout


LIVE = """
import ctypes, numpy as np, torch
from samebits import Tensor
from samebits.native import exchange
assert exchange.compile_exchange()
t = Tensor.from_dlpack(np.arange(3.0))
kept = [t, t.__dlpack__(), t.__dlpack__(max_version=(1, 3)), torch.from_dlpack(t), np.from_dlpack(t)]
kept += [Tensor.from_dlpack(torch.ones(3)), Tensor.from_dlpack(torch.from_dlpack(t))]
import builtins, sys
builtins.kept_for_ever = kept
sys.kept_for_ever = kept
cycle = [kept]
cycle.append(cycle)
print("end")
"""

# The C library calls the deleter after the interpreter is gone.
LATE = """
import ctypes, numpy as np
from samebits import Tensor
from samebits.native import exchange, objects
assert exchange.compile_exchange()
pointer, rename = ctypes.pythonapi["PyCapsule_GetPointer"], ctypes.pythonapi["PyCapsule_SetName"]
pointer.restype, pointer.argtypes = ctypes.c_size_t, (ctypes.py_object, ctypes.c_char_p)
rename.argtypes = (ctypes.py_object, ctypes.c_char_p)
t = Tensor.from_dlpack(np.arange(3.0))
capsule = t.__dlpack__(max_version=(1, 3))
managed = pointer(capsule, b"dltensor_versioned")
rename(capsule, b"used")
at_exit = ctypes.CDLL(None)["__cxa_atexit"]
at_exit.argtypes = (ctypes.c_size_t, ctypes.c_size_t, ctypes.c_size_t)
assert at_exit(objects.word(managed + 16), managed, 0) == 0
print("end")
"""

FORK = """
import os, numpy as np
from samebits import Tensor
from samebits.native import exchange
assert exchange.compile_exchange()
x = np.arange(3.0)
t = Tensor.from_dlpack(x)
capsule = t.__dlpack__(max_version=(1, 3))
child = os.fork()
del capsule
assert np.from_dlpack(Tensor.from_dlpack(x)).sum() == 3
if not child:
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
print("end")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's exit and fork")
@pytest.mark.parametrize("program", [LIVE, LATE, FORK], ids=["live", "late", "fork"])
def test_the_interpreter_ends_well(program: str) -> None:
    assert python(program, "-X", "dev", PYTHONMALLOC="debug").strip() == "end"


if __name__ == "__main__":
    apart.without_huge_pages()
    assert exchange.compile_exchange()
    print(json.dumps({each: growth(each) for each in cycles()}))
