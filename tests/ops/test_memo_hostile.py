"""Remembered calls under hostile circumstances: the interpreter ends, arguments change under the call."""

import subprocess
import sys

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
