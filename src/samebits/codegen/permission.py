"""Leave to use the registers that tiles are kept in, which a process on Linux asks the kernel for, once.

The kernel refuses where it does not know them, where a sandbox does not pass the question on, and where a thread has an
alternate signal stack too small for what a signal would then save on it (`faulthandler` makes one, as large as the
machine asks for). Whoever plans the first product that would use them asks (`refusal`); never an import, nor what
lists rows. Leave holds for all threads and forks of the process. Source: Linux, Documentation/arch/x86/xstate.rst.
"""

from __future__ import annotations

import ctypes
import errno
import functools
import os
import sys

_ARCH_PRCTL, _ARCH_REQ_XCOMP_PERM, _TILE_DATA = 158, 0x1023, 18
_REASONS = {
    errno.EINVAL: "this kernel does not know AMX (EINVAL)",
    errno.EPERM: "a sandbox forbids AMX (EPERM)",
    errno.ENOSPC: "a thread's alternate signal stack is too small for AMX's registers (ENOSPC)",
    errno.ENOSYS: "this system has no arch_prctl to ask for AMX with (ENOSYS)",
    errno.EOPNOTSUPP: "this processor or hypervisor keeps AMX from the system (EOPNOTSUPP)",
}


@functools.cache
def refusal() -> str | None:
    """Why this process may not use tiles; None where it may. The first call asks, and its answer stands."""
    code = _asked()
    return None if code == 0 else _REASONS.get(code, f"the system refuses AMX ({os.strerror(code)})")


def _asked() -> int:
    """What the system answers: 0, or the number of an error."""
    if not sys.platform.startswith("linux"):
        return errno.ENOSYS
    call = ctypes.CDLL(None, use_errno=True).syscall
    call.restype = ctypes.c_long
    call.argtypes = [ctypes.c_long] * 3
    done = call(_ARCH_PRCTL, _ARCH_REQ_XCOMP_PERM, _TILE_DATA)
    return 0 if done == 0 else ctypes.get_errno()
