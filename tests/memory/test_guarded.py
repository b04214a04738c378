"""The exchange tests again, with host memory that ends at a page that nobody may touch."""

import os
import pathlib
import subprocess
import sys

import pytest

TESTS = pathlib.Path(__file__).parent.parent
OVERRUN = """
import ctypes
from samebits.memory import allocate

def test_one_byte_too_far():
    buffer = allocate(70)
    ctypes.memset(buffer.address, 1, {count})
"""


def guarded(*arguments: object) -> subprocess.CompletedProcess[str]:
    """Tests run with the plugin in a process of their own."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "guarded", "-p", "no:cacheprovider", *map(str, arguments)]
    path = os.pathsep.join([str(TESTS.parent / "src"), str(TESTS)])
    environment = os.environ | {"PYTHONPATH": path}
    return subprocess.run(command, capture_output=True, text=True, env=environment, cwd=TESTS.parent, timeout=600)


@pytest.mark.parametrize(("count", "passes"), [(70, True), (71, False)])
def test_a_write_past_the_end_is_found(tmp_path: pathlib.Path, count: int, passes: bool) -> None:
    file = tmp_path / "test_overrun.py"
    file.write_text(OVERRUN.format(count=count))
    run = guarded(file, "-c", os.devnull)
    assert (run.returncode == 0) is passes, run.stdout
    assert ("written past the end of 70 bytes" in run.stdout) is not passes


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="pages are forbidden by the mprotect of Linux")
@pytest.mark.parametrize(
    "names",
    [
        ("dlpack/test_capsules.py", "tensor/test_tensor.py"),
        pytest.param(("dlpack/test_produce.py", "exchange/test_frameworks.py"), marks=pytest.mark.exhaustive),
    ],
    ids=str,
)
def test_exchange_writes_nothing_past_an_end(names: tuple[str, ...]) -> None:
    files = [TESTS / name for name in names]
    assert all(file.exists() for file in files)
    run = guarded("-m", "not exhaustive and not slow", *files)
    assert run.returncode == 0, run.stdout[-5000:]
