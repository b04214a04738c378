"""Remembered calls under hostile circumstances: the interpreter ends, arguments change under the call."""

import subprocess
import sys
import weakref

import numpy as np
import remembering
import torch
from torch.overrides import TorchFunctionMode

import samebits as sb
from samebits.ops import memo

LATE = """
import os, sys
import numpy as np
import samebits as sb
from samebits.ops import memo

memo._PATIENCE = 10
x = np.arange(12, dtype=np.float32).reshape(3, 4)
for _ in range(40):
    sb.abs(x), sb.matmul(x, x.T)
assert memo._known is not None

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
