"""When emitted code replaces the exchange methods, seen from fresh processes, and that results do not change then."""

import os
import subprocess
import sys

import pytest

from samebits import hot

START = """
import sys, numpy as np, samebits as sb
x = np.arange(6, dtype=np.float32).reshape(2, 3)
T = sb.Tensor
def told():
    module = sys.modules.get("samebits.native.exchange")
    return "llvmlite" in sys.modules, module is not None and module.is_installed()
def use(count):
    found = set()
    for _ in range(count):
        t = T.from_dlpack(x)
        found.add((t.shape, t.strides, t.dtype.name, t.address == x.ctypes.data, t.layout))
    return len(found)
"""


def printed(program: str, **environment: str) -> str:
    """What a fresh interpreter prints."""
    command = [sys.executable, "-X", "dev", "-c", START + program]
    run = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **environment}, check=False)
    assert (run.returncode, run.stderr) == (0, "")
    return run.stdout.strip()


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        ("print(use(9_999), *told())", "1 False False"),
        ("print(use(20_000), *told())", "1 True True"),
        ("import llvmlite.binding; print(use(999), *told())", "1 True False"),
        ("import llvmlite.binding; print(use(1000), *told())", "1 True True"),
        ("print(hasattr(T, '__dlpack_c_exchange_api__'), *told())", "True True True"),
        ("print(sb.compile_exchange(), sb.compile_exchange(), *told(), use(9))", "True True True True 1"),
    ],
)
def test_emitted_code_is_loaded_when_it_pays(program: str, expected: str) -> None:
    assert printed(program) == expected


@pytest.mark.parametrize(
    "obstacle",
    [
        "sys.modules['llvmlite'] = sys.modules['llvmlite.binding'] = None",
        "sys.implementation.name = 'other'",
        "import sysconfig; sysconfig.get_config_vars()['Py_GIL_DISABLED'] = 1",
        (
            "import samebits.native.compile as c; from samebits.errors import NativeError\n"
            "def addresses(*_): raise NativeError('compile', 'it', '', 'no', 'yes', 'wait')\nc.addresses = addresses"
        ),
        # An llvmlite whose shared library does not load.
        (
            "class Broken:\n    def find_spec(self, name, *_):\n"
            "        if name == 'llvmlite': raise OSError('Could not find/load shared object file')\n"
            "sys.meta_path.insert(0, Broken())"
        ),
        "T.__getitem__ = lambda self, key: None",
    ],
)
def test_everything_works_where_there_can_be_none(obstacle: str) -> None:
    program = (
        f"{obstacle}\nprint(hasattr(T, '__dlpack_c_exchange_api__'), use(10_000), T.from_dlpack(T.from_any(x)).shape)"
    )
    assert printed(program) == "False 1 (2, 3)"


def test_a_method_that_somebody_replaced_stays_theirs() -> None:
    program = """
from unittest import mock
with mock.patch.object(T, "from_any", return_value=7):
    print(sb.compile_exchange(), T.from_any(x))
print(sb.compile_exchange(), T.from_any(x).shape)
"""
    assert printed(program) == "False 7\nFalse (2, 3)"


def test_an_interrupted_installation_is_done_again() -> None:
    program = """
from samebits.native import exchange
python = exchange.python_function
def interrupted(name, *types):
    if name == "PyCapsule_New":
        raise KeyboardInterrupt
    return python(name, *types)
exchange.python_function = interrupted
try:
    sb.compile_exchange()
except KeyboardInterrupt:
    exchange.python_function = python
    print(told()[1], T.from_any(x).shape, sb.compile_exchange(), T.from_any(x).shape)
"""
    assert printed(program) == "False (2, 3) True (2, 3)"


def test_an_offer_is_taken_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hot, "_act", None)
    done: list[int] = []
    hot.act()
    hot.offer(lambda: done.append(1))
    hot.act()
    hot.act()
    assert done == [1]
