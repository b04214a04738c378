"""Remembered calls under hostile circumstances: the interpreter ends, arguments change under the call, or are of every
kind in turn."""

import subprocess
import sys
import types
import weakref

import numpy as np
import pytest
import remembering
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

import samebits as sb
from samebits.kernels import gemm
from samebits.native import calls
from samebits.ops import memo

SHARED = np.zeros(4096, np.uint8)
LATE = """
import os, sys
import numpy as np
import samebits as sb
from samebits.ops import memo

memo.compile_known()
x = np.arange(12, dtype=np.float32).reshape(3, 4)
for _ in range(40):
    sb.abs(x), sb.matmul(x, x.T)
assert memo.known is not None

class Late:
    def __init__(self):
        self.functions, self.x = (sb.abs, sb.matmul), x

    def __del__(self, write=os.write):
        for _ in range(3):
            first, second = self.functions
            write(1, b"%d %d;" % (first(self.x)[2, 3], second(self.x, self.x.T)[0, 0]))

# Of the modules that are left at the end the last imported is cleared first: this one before `memo`, behind `calls`.
sys.modules["samebits.ops.product"].late = Late()
"""


def test_a_call_while_the_interpreter_ends_is_like_any_other():
    done = subprocess.run([sys.executable, "-X", "dev", "-c", LATE], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "11 14;" * 3, "")


SMALL = """
import threading
import numpy as np
import samebits as sb
from samebits.ops import memo

memo.compile_known()
x = np.ones(4, np.float32)
for _ in range(5):
    sb.add(x, x)
threading.stack_size(1 << 15)
thread = threading.Thread(target=lambda: print(sb.add(x, x)))
thread.start()
thread.join()
"""


def test_a_call_needs_no_more_of_the_stack_than_the_smallest_thread_has():
    done = subprocess.run([sys.executable, "-c", SMALL], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "[2. 2. 2. 2.]\n", "")


def test_memory_outlives_a_buffer_closed_while_later_arguments_are_read(way):
    """torch asks code of the user what its tensors are: that may close what was read before it."""

    class Owner:
        pass

    class Closing(TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            seen.append(alive() is not None)
            x.buffer.close()
            return function(*args, **kwargs or {})

    right = torch.arange(16.0).reshape(4, 4)
    for number in range(6):
        owner, memory = Owner(), np.full((4, 4), number, np.float32)
        alive, seen = weakref.ref(owner), []
        layout = sb.Layout.dense((4, 4), width_bits=32)
        x = sb.Tensor(sb.Buffer(memory.ctypes.data, memory.nbytes, owner), layout, sb.dtypes.float32)
        del owner
        if number < 3:
            assert sb.matmul(x, right).numpy()[0, 3] == number * 36
            x.buffer.close()
        else:
            with Closing():
                made = sb.matmul(x, right)
            assert made.numpy()[0, 3] == number * 36
            assert seen
            assert all(seen)
        assert alive() is None


def test_a_shape_set_by_another_thread_during_a_call_is_not_remembered_for_the_next(way, monkeypatch):
    x, shapes = np.arange(36, dtype=np.float32), [(6, 6), (4, 9), (36,)]
    due = {shape: (-x.reshape(shape)).tobytes() for shape in shapes}
    address_of, signature = memo.address_of, memo.Signature

    def check():
        for shape in shapes:
            x.shape = shape
            for _ in range(3):
                made = sb.negative(x)
                assert (made.shape, made.tobytes()) == (shape, due[shape])

    def at_the_first_look(array):
        monkeypatch.setattr(memo, "address_of", address_of)
        array.shape = (4, 9)
        return address_of(array)

    def after_the_first_look(*facts):
        monkeypatch.setattr(memo, "Signature", signature)
        x.shape = (4, 9)
        return signature(*facts)

    x.shape = (6, 6)
    monkeypatch.setattr(memo, "Signature", after_the_first_look)
    sb.negative(x)
    check()
    x.shape = (6, 6)
    remembering.forget()
    sb.negative(x)
    x.shape = (4, 9)
    sb.negative(x)
    x.shape = (6, 6)
    monkeypatch.setattr(memo, "address_of", at_the_first_look)
    sb.negative(x)
    check()


def test_a_mode_that_answers_for_torch_changes_no_bits(way):
    class Mode(TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            found = function(*args, **kwargs or {})
            return torch.float32 if isinstance(found, torch.dtype) else found

    x = torch.arange(40.0).reshape(8, 5)
    for _ in range(4):
        assert torch.equal(sb.negative(x), -x)
        with Mode():
            made = sb.negative(x.double())
        assert torch.equal(made, -x.double())


@pytest.mark.parametrize("which", range(2))
def test_an_interruption_in_a_mode_ends_the_call(way, which):
    class Mode(TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            seen.append(function)
            if len(seen) == which + 1:
                raise kind
            return function(*args, **kwargs or {})

    x = torch.arange(40.0).reshape(8, 5)
    for _ in range(3):
        assert torch.equal(sb.negative(x), -x)
        seen, kind = [], KeyboardInterrupt
        with Mode(), pytest.raises(KeyboardInterrupt):
            sb.negative(x)
        if way == "emitted":  # looked at by Python once more
            seen, kind = [], AttributeError
            with Mode():
                made = sb.negative(x)
            assert torch.equal(made, -x)


@pytest.mark.parametrize(
    "other", [lambda _: torch.ones(1), lambda x: x.to("meta"), lambda x: x.double(), lambda x: x.reshape(5, 8).T]
)
def test_what_a_mode_has_torch_make_is_no_result(way, other):
    class Mode(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            made = function(*args, **kwargs or {})
            return other(made) if "empty" in str(function) else made

    x = torch.arange(40.0).reshape(8, 5)
    for _ in range(4):
        assert torch.equal(sb.negative(x), -x)
        with Mode():
            made = sb.negative(x)
        assert made.dtype == x.dtype
        assert torch.equal(made, -x)


def test_torch_that_is_half_imported_is_no_matter(way, monkeypatch):
    x = np.arange(6, dtype=np.float32)
    for module in (types.ModuleType("torch"), None):
        monkeypatch.setitem(sys.modules, "torch", module)
        for _ in range(3):
            assert sb.cast(x, np.int32).tobytes() == np.arange(6, dtype=np.int32).tobytes()
            assert sb.negative([1.0, 2.0]).tolist() == [-1.0, -2.0]


def arrays(pick, shape):
    """Integers as float32, of any strides and alignment, by any library, in memory of their own or in one buffer."""
    size = int(np.prod(shape))
    at = pick.integers(0, 400) * pick.choice([1, 4])
    x = (
        pick.integers(-8, 8, shape).astype(np.float32),
        pick.integers(-8, 8, shape[::-1]).astype(np.float32).T,
        pick.integers(-8, 8, [2 * n for n in shape]).astype(np.float32)[tuple(slice(None, None, -2) for _ in shape)],
        SHARED[at : at + 4 * size].view(np.float32).reshape(shape),
    )[pick.integers(4)]
    if pick.random() < 0.05:
        x.flags.writeable = False
    if pick.random() < 0.6 or not x.flags.aligned:
        return x
    return sb.Tensor.from_any(x) if pick.random() < 0.5 else torch.from_numpy(x.copy())


def calls_of(pick):
    """A function and its arguments; some of the calls are refused."""
    m, k, n = pick.integers(1, 4, 3)
    a, options = arrays(pick, (m, k)), {}
    b = arrays(pick, (n, k)).T
    b = sb.pack(b.copy()) if isinstance(b, np.ndarray) and pick.random() < 0.3 else b
    function, rest, shape = (
        (sb.matmul, (b,), (m, n)),
        (sb.linear, (arrays(pick, (n, k)), arrays(pick, (n,))), (m, n)),
        (sb.subtract, (a if pick.random() < 0.3 else arrays(pick, (m, k)),), (m, k)),
        (sb.multiply, ((2, 2.0, -0.0, 0.0, True)[pick.integers(5)],), (m, k)),
        (sb.sum, (int(pick.integers(2)),), (m,)),
    )[pick.integers(5)]
    if pick.random() < 0.4:
        options["out"] = (a, arrays(pick, shape), None, 1)[pick.integers(4)]
    if pick.random() < 0.2:
        options["threads"] = int(pick.integers(1, 3))
    return function, (a, *rest), options


def outcome(call):
    try:
        result = call()
    except (sb.SamebitsError, BufferError, TypeError) as error:
        return type(error), str(error)
    return type(result), sb.Tensor.from_any(result).shape, sb.Tensor.from_any(result).tobytes()


def tried(function, arguments, options):
    """The outcome of a call, whose arguments are afterwards as before."""
    views = [x.numpy() if isinstance(x, sb.Tensor) else x for x in (*arguments, *options.values())]
    views = [x for x in views if isinstance(x, np.ndarray | torch.Tensor)]
    kept = [x.clone() if isinstance(x, torch.Tensor) else x.copy() for x in views]
    found = outcome(lambda: function(*arguments, **options))
    for view, before in zip(views, kept, strict=True):
        if isinstance(view, torch.Tensor) or view.flags.writeable:
            view[...] = before
    return found


@pytest.mark.parametrize("seed", range(3))
def test_random_calls_have_one_answer(seed, monkeypatch):
    known, pick = calls.known(gemm.PackedMatrix, gemm.Spec), np.random.default_rng(seed)
    SHARED.view(np.float32)[:] = pick.integers(-8, 8, SHARED.size // 4)
    for _ in range(150):
        function, arguments, options = calls_of(pick)
        due = tried(function.__wrapped__, arguments, options)
        for way in (known, None, known, known):
            monkeypatch.setattr(memo, "known", way)
            assert tried(function, arguments, options) == due, (function.__name__, arguments, options)
