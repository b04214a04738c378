"""What our capsules survive: a consumer that refuses, threads, a fork, the interpreter's end, a million times."""

import ctypes
import gc
import subprocess
import sys
import threading
import weakref
from typing import Any, get_args

import apart
import numpy as np
import pytest
import torch
from capsules import Legacy, Versioned, exported
from drawing import examples
from hypothesis import given
from hypothesis import strategies as st

from samebits import dtypes
from samebits.dlpack import Encoding, Mode, capsule_of, encode, produce
from samebits.dtypes import DType
from samebits.errors import ClosedError, ExchangeError
from samebits.memory import Buffer
from samebits.tensor import Tensor

pytestmark = pytest.mark.usefixtures("short_collections")

NARROW = [row for row in dtypes.ROWS if row.width_bits < 8]


@pytest.mark.parametrize("row", NARROW, ids=repr)
def test_a_capsule_of_narrow_elements_states_the_facts(row: DType) -> None:
    t = Tensor.zeros((4, 16), row)[1:]
    managed, _keep = exported(t, max_version=(1, 3))
    tensor = managed.tensor
    assert isinstance(managed, Versioned)
    assert (managed.major, managed.minor, managed.flags) == (1, 3, 0)
    assert (tensor.data, tensor.ndim, tensor.byte_offset) == (t.address, 2, 0)
    assert (tensor.code, tensor.bits, tensor.lanes) == (*row.dlpack, 1)
    assert (tensor.shape[:2], tensor.strides[:2]) == ([3, 16], [16, 1])
    # A legacy capsule has no flag, and so means packed.
    managed, _keep = exported(t)
    assert isinstance(managed, Legacy)
    assert (managed.tensor.bits, managed.tensor.lanes) == (row.width_bits, 1)
    padded = Tensor.zeros((4, 16), row, storage="padded")
    managed, _keep = exported(padded, max_version=(1, 0))
    assert (managed.flags, managed.tensor.bits, managed.tensor.strides[:2]) == (4, row.width_bits, [16, 1])
    with pytest.raises(ExchangeError) as error:
        padded.__dlpack__()
    assert str(error.value) == (
        "Tensor.__dlpack__: tensor storage is padded, must be packed in a legacy capsule; pass max_version=(1, 0)"
    )


class Encoded:
    """A tensor that exports itself in a mode of our choice."""

    def __init__(self, t: Tensor, encoding: Encoding, read_only: bool) -> None:
        self.t, self.encoding, self.read_only = t, encoding, read_only

    def __dlpack__(self, **_: Any) -> object:
        return capsule_of(self.t.buffer, self.encoding, (1, 0), versioned=True, read_only=self.read_only)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)


@examples(400)
@given(
    st.sampled_from(dtypes.ROWS),
    st.sampled_from(["packed", "padded"]),
    st.lists(st.sampled_from([0, 1, 2, 3, 4, 8]), max_size=3),
    st.sampled_from([mode for mode in get_args(Mode) if mode != "bytes"]),
    st.booleans(),
    st.data(),
)
def test_every_mode_brings_the_same_elements_back(
    row: DType, storage: Any, shape: list[int], mode: Mode, read_only: bool, data: st.DataObject
) -> None:
    t = Tensor.zeros(shape, row, storage=storage)
    random = np.random.default_rng(data.draw(st.integers(0, 99)))
    t.buffer.array()[:] = random.integers(0, 2 if row is dtypes.bool_ else 256, t.buffer.size_bytes)
    t = t.permute(data.draw(st.permutations(range(len(shape)))))
    for axis, extent in enumerate(t.shape):
        step = data.draw(st.sampled_from([1, 1, 2, -1]))
        start = data.draw(st.integers(0, extent)) if step > 0 else None
        t = t[(*[slice(None)] * axis, slice(start, None, step))]
    try:
        encoding = encode(row, t.layout, mode)
    except ExchangeError:
        return
    back = Tensor.from_dlpack(Encoded(t, encoding, read_only))
    assert (back.dtype, back.shape, back.read_only) == (row, t.shape, read_only)
    assert back.layout.strides_bits == t.layout.strides_bits
    assert back.digest() == t.digest()
    if t.size:
        assert back.address == t.address


def test_empty_tensors_have_no_data_and_scalars_no_shape() -> None:
    managed, _keep = exported(Tensor.zeros((0, 3), "int4"), max_version=(1, 3))
    assert (managed.tensor.data, managed.tensor.shape[:2], managed.tensor.strides[:2]) == (None, [0, 3], [3, 1])
    managed, _keep = exported(Tensor.zeros((), "float8_e5m2"), max_version=(1, 3))
    assert managed.tensor.ndim == 0


def test_a_capsule_gets_strides_where_numpy_left_them_out() -> None:
    t = Tensor.zeros((2, 8), "int4")
    encoding = encode(t.dtype, t.layout, "packed")
    stand = produce._Stand(t.address, encoding, None)
    fields = (ctypes.c_ubyte * ctypes.sizeof(Versioned))()
    produce._add_strides(fields, Versioned.tensor.offset, stand, encoding)
    assert Versioned.from_buffer(fields).tensor.strides[:2] == [8, 1]
    assert stand.strides is not None


def test_memory_is_not_touched_to_export_it() -> None:
    """Address 2**16 is not mapped: whoever read it would end the process."""
    t = Tensor.from_buffer(Buffer(1 << 16, 1 << 20, None), "float32", (1 << 18,))
    managed, capsule = exported(t, max_version=(1, 3))
    assert managed.tensor.data == 1 << 16
    assert Tensor.from_dlpack(t).address == 1 << 16
    del capsule


def test_a_refused_capsule_keeps_the_error_and_lets_go() -> None:
    for name in ("int4", "float6_e2m3fn", "bfloat16", "float8_e8m0fnu"):
        x = np.zeros(8, np.uint8)
        gone = weakref.ref(x)
        t = Tensor.from_buffer(x, name, (4,))
        del x
        # A float6 is no torch dtype; NumPy 2.4 knows none of them.
        with pytest.raises(BufferError, match="Unsupported"):
            torch.from_dlpack(Tensor.from_buffer(t.buffer, "float6_e2m3fn", (4,)))
        if not hasattr(np.dtypes, "register_dlpack_dtype"):
            with pytest.raises((RuntimeError, BufferError), match="dtype"):
                np.from_dlpack(t)
        del t
        gc.collect()
        assert gone() is None


def test_a_capsule_that_dies_with_an_exception_in_flight_leaves_it() -> None:
    x = np.zeros(8, np.uint8)
    gone = weakref.ref(x)

    def fails(t: Tensor) -> None:
        keep = t.__dlpack__(max_version=(1, 3))
        raise KeyError(keep is None)

    with pytest.raises(KeyError, match="False"):
        fails(Tensor.from_buffer(x, "int4", (16,)))
    del x
    gc.collect()
    assert gone() is None


def test_closed_memory_is_not_exported() -> None:
    t = Tensor.zeros((4,), "int4")
    t.buffer.close()
    with pytest.raises(ClosedError):
        t.__dlpack__(max_version=(1, 3))


def test_eight_threads_import_and_drop() -> None:
    x = np.arange(64, dtype=np.uint8)
    gone = weakref.ref(x)
    held = [Tensor.from_buffer(x, "float4_e2m1fn", (8, 16))]
    del x
    failures: list[BaseException] = []

    def work(number: int) -> None:
        try:
            t = held[0]
            for i in range(150):
                made: list[Any] = [t.__dlpack__(max_version=(1, 3)), Tensor.from_dlpack(t), t.export("numpy")]
                if number % 2:
                    made.append(t.torch())
                back = Tensor.from_exported(made[2])
                assert back.shape == (8, 16)
                del made[i % 3]
        except BaseException as error:  # whatever it is, the test must see it
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    held.clear()
    gc.collect()
    assert gone() is None


def run(text: str) -> subprocess.CompletedProcess[str]:
    """A process of its own that must end well and say nothing."""
    return subprocess.run([sys.executable, "-W", "error", "-c", text], capture_output=True, text=True, timeout=600)


SETUP = """
import numpy as np
from samebits import Tensor
t = Tensor.zeros((4, 16), "float4_e2m1fn")
"""


@pytest.mark.parametrize(
    "text",
    [
        "held = [t.__dlpack__(max_version=(1, 3)), t.__dlpack__(), Tensor.from_dlpack(t), t.export('numpy')]",
        "import builtins; builtins.held = [t.__dlpack__(max_version=(1, 3)), Tensor.from_dlpack(t)]",
        "import sys; sys.held = [Tensor.from_dlpack(Tensor.from_any(np.zeros(3)))]; ring = [sys.held]; ring += [ring]",
        "import torch; held = [t.torch(), Tensor.from_any(torch.zeros(3))]; torch.held = held",
    ],
)
def test_the_interpreter_ends_with_live_capsules(text: str) -> None:
    done = run(SETUP + text)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_child_process_lets_go_of_its_own() -> None:
    text = SETUP + (
        "import os\n"
        "held = [t.__dlpack__(max_version=(1, 3)), Tensor.from_dlpack(t)]\n"
        "child = os.fork()\n"
        "del held, t\n"
        "if not child:\n"
        "    os._exit(0)\n"
        "_, status = os.waitpid(child, 0)\n"
        "raise SystemExit(status)\n"
    )
    done = run(text)
    assert (done.returncode, done.stderr) == (0, "")


# Growth of memory over so many exports and imports of every kind, after as many again to warm up.
CYCLES = """
import sys
import apart, ml_dtypes
import numpy as np
from samebits.tensor import Tensor
t, x = Tensor.zeros((4, 16), "float4_e2m1fn"), np.zeros((4, 16), ml_dtypes.float8_e5m2)
for _ in range(2):
    before = apart.resident()
    for _ in range(int(sys.argv[1])):
        Tensor.from_dlpack(t)
        t.__dlpack__()
        Tensor.from_any(x)
print(apart.resident() - before)
"""


def cycles(count: int) -> int:
    return int(apart.printed_by(CYCLES, str(count)))


def test_memory_stays_flat() -> None:
    assert cycles(5_000) < 4_000_000


@pytest.mark.exhaustive
def test_memory_stays_flat_over_a_million() -> None:
    assert cycles(1_000_000) < 4_000_000
