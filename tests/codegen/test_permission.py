"""A process asks for the registers of tiles when it plans the first product by them, and says why it was refused."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator

import pytest

from samebits.codegen import isa as isas
from samebits.codegen import permission
from samebits.dtypes import int8, int32, uint8
from samebits.errors import OptionError
from samebits.kernels.gemm import Matrix, Side, plan
from samebits.kernels.gemm.contraction import Contraction, Panels
from samebits.kernels.gemm.machine import DEFAULT
from samebits.kernels.gemm.selection import _first, _named, _reader, engine_for, of_operands

AMX = next(row for row in isas.ROWS if row.name == "avx512_amx")
HAS_TILES = AMX.available and permission.refusal() is None
needs_tiles = pytest.mark.skipif(not HAS_TILES, reason=f"no AMX here: {permission.refusal() or 'Isa row unavailable'}")
REASONS = {
    errno.EINVAL: "this kernel does not know AMX (EINVAL)",
    errno.EPERM: "a sandbox forbids AMX (EPERM)",
    errno.ENOSPC: "a thread's alternate signal stack is too small for AMX's registers (ENOSPC)",
    errno.EOPNOTSUPP: "this processor or hypervisor keeps AMX from the system (EOPNOTSUPP)",
    errno.ENOSYS: "this system has no arch_prctl to ask for AMX with (ENOSYS)",
    errno.EIO: f"the system refuses AMX ({os.strerror(errno.EIO)})",
}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """What the system answers, in a process that has not asked yet, on a machine that has the row."""
    answers = [0]
    cached = (permission.refusal, _first, _named, _reader, plan, isas._host_target)

    def forget() -> None:
        for function in cached:
            function.cache_clear()

    def answer() -> int:
        return answers[0]

    forget()
    monkeypatch.setattr(permission, "_asked", answer)
    monkeypatch.setattr(isas, "_host_features", lambda: frozenset(AMX.targets[0].needs))
    monkeypatch.setattr(isas, "host_arch", lambda: "x86_64")
    yield answers
    monkeypatch.undo()
    forget()


def described(m: int, right: Matrix | Panels | None = None) -> Contraction:
    """int8 products, [m, 256] by [256, 64]."""
    b = Matrix(64, 1, (), int8) if right is None else right
    return Contraction(m, 64, 256, Side(Matrix(256, 1, (), int8)), Side(b), Side(Matrix(64, 1, (), int32)))


@pytest.mark.parametrize("code", REASONS, ids=errno.errorcode.get)
def test_a_refusal_is_a_fact_of_the_plan(asked: list[int], code: int) -> None:
    asked[0] = code
    engine, rejected = of_operands(described(100), AMX, DEFAULT, None, None)
    assert engine.name == "uint8 x int8 quads"
    assert rejected == (("int8 x int8 quads by tiles", REASONS[code]),)
    assert f"rejected int8 x int8 quads by tiles: {REASONS[code]}" in str(plan(described(100), AMX, 1))
    # What was packed for tiles is multiplied by what there is.
    panels = Panels(32, (), int8, "int8 x int8 quads")
    engine, rejected = of_operands(described(100, panels), AMX, DEFAULT, None, None)
    assert (engine.name, rejected) == ("uint8 x int8 quads", (("int8 x int8 quads by tiles", REASONS[code]),))
    with pytest.raises(OptionError) as caught:
        plan(described(100), AMX, 1, engine="int8 x int8 quads by tiles")
    assert str(caught.value) == (
        f"plan: engine is 'int8 x int8 quads by tiles', must be one without tiles: {REASONS[code]}; leave it out"
    )


def test_leave_gives_tiles_of_every_sign(asked: list[int]) -> None:
    for a in (int8, uint8):
        for b in (int8, uint8):
            assert engine_for(a, b, AMX, DEFAULT).name == f"{a.name} x {b.name} quads"
    engine, rejected = of_operands(described(100), AMX, DEFAULT, None, None)
    assert (engine.name, rejected) == ("int8 x int8 quads by tiles", ())
    engine, rejected = of_operands(described(4), AMX, DEFAULT, None, None)
    assert engine.name == "uint8 x int8 quads"
    assert rejected[0][0] == "int8 x int8 quads by tiles"
    panels = Panels(32, (), int8, "uint8 x int8 quads")
    assert of_operands(described(2, panels), AMX, DEFAULT, None, None)[0].name == "int8 x int8 quads by tiles"
    engine, rejected = of_operands(described(1, panels), AMX, DEFAULT, None, None)
    assert engine.name == "uint8 x int8 quads"
    assert rejected == (("int8 x int8 quads by tiles", "one row waits for memory alone"),)


def run(code: str, *options: str) -> str:
    """What another process prints."""
    text = textwrap.dedent(code)
    done = subprocess.run([sys.executable, *options, "-c", text], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, (done.returncode, done.stderr)
    return done.stdout


def test_nothing_but_a_product_asks() -> None:
    printed = run(
        """
        import samebits as sb
        from samebits.codegen import permission
        from samebits.doctor import report
        import numpy as np
        def asked():
            raise SystemExit("asked")
        permission._asked = asked
        print([row.name for row in sb.isas() if row.available][-1] == sb.isas()[-1].name)
        report.machine()
        x = np.ones((3, 5), np.float32)
        assert (sb.matmul(x, x.T) == 5).all() and sb.sum(x, axis=(0, 1)) == 15
        """
    )
    assert printed.strip() in ("True", "False")


PRODUCT = """
import numpy as np
import samebits as sb
from samebits.codegen import permission
rng = np.random.default_rng(0)
a, b = (rng.integers(-128, 128, (100, 531), np.int8), rng.integers(-128, 128, (531, 70), np.int8))
due = a.astype(np.int64) @ b.astype(np.int64)
def check():
    assert (sb.matmul(a, b) == due).all()
    assert permission.refusal() is None
"""


@needs_tiles
def test_forks_and_new_programs_multiply() -> None:
    code = PRODUCT + textwrap.dedent(
        """
        import os, subprocess, sys
        if "again" not in sys.argv:
            for before in (False, True):
                child = os.fork()
                if not child:
                    check()
                    os._exit(0)
                assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
                check()
            subprocess.run([sys.executable, "-c", sys.orig_argv[-1], "again"], check=True)
        check()
        """
    )
    run(code)


@needs_tiles
def test_threads_multiply_while_signals_arrive() -> None:
    code = PRODUCT + textwrap.dedent(
        """
        import signal, threading
        seen = []
        def seen_one(*_):
            seen.append(1)
        signal.signal(signal.SIGALRM, seen_one)
        signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
        def work():
            count = 0
            while count < 200 or len(seen) < 4:
                check()
                count += 1
        threads = [threading.Thread(target=work) for _ in range(12)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        signal.setitimer(signal.ITIMER_REAL, 0)
        """
    )
    run(code)


@needs_tiles
def test_faulthandler_may_be_enabled_before_and_after() -> None:
    run(PRODUCT + "check()\n", "-X", "faulthandler")
    run(PRODUCT + "import faulthandler\ncheck()\nfaulthandler.enable()\ncheck()\n", "-X", "dev")


@needs_tiles
def test_a_small_alternate_signal_stack_is_told() -> None:
    code = """
    import ctypes
    from samebits.codegen import permission
    class Stack(ctypes.Structure):
        _fields_ = [("sp", ctypes.c_void_p), ("flags", ctypes.c_int), ("size", ctypes.c_size_t)]
    block = ctypes.create_string_buffer(4096)
    given = Stack(ctypes.addressof(block), 0, 4096)
    assert ctypes.CDLL(None).sigaltstack(ctypes.byref(given), None) == 0
    print(permission.refusal())
    import numpy as np
    import samebits as sb
    x = np.full((100, 100), 3, np.int8)
    assert (sb.matmul(x, x) == 900).all()
    """
    assert run(code).strip() == REASONS[errno.ENOSPC]
