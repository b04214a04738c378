"""What an x86-64 processor says of itself by its instruction CPUID, in the words of Intel's and AMD's manuals.

What `/proc/cpuinfo` says is less: a kernel lists what it knows and what it allows. Start at `words`.
"""

from __future__ import annotations

import ctypes
import functools
import sys
from platform import machine

from samebits import executable

__all__ = ["words"]

_EAX, _EBX, _ECX, _EDX = range(4)
# Each (leaf, subleaf) that tells of instructions, and the registers that are the same on all cores: EBX of leaf 1 has
# the number of the core that answers.
_LEAVES = {
    (0, 0): (_EAX, _EBX, _ECX, _EDX),
    (1, 0): (_EAX, _ECX, _EDX),
    (7, 0): (_EAX, _EBX, _ECX, _EDX),
    (7, 1): (_EAX, _EBX, _ECX, _EDX),
    (0xD, 1): (_EAX,),
    (0x14, 0): (_EBX,),
    (0x19, 0): (_EBX,),
    (0x1E, 1): (_EAX,),
    (0x24, 0): (_EBX,),
    (0x8000_0000, 0): (_EAX,),
    (0x8000_0001, 0): (_ECX, _EDX),
    (0x8000_0008, 0): (_EBX,),
}
# The bit of ECX of leaf 1 that says that XGETBV answers.
_XGETBV = 1 << 27
# void cpuid(uint32_t out[4], uint32_t leaf, uint32_t subleaf), as System V's convention has arguments:
# push rbx; mov eax, esi; mov ecx, edx; cpuid; mov [rdi], eax; mov [rdi + 4], ebx; mov [rdi + 8], ecx;
# mov [rdi + 12], edx; pop rbx; ret
_CPUID_CODE = bytes.fromhex("53 89f0 89d1 0fa2 8907 895f04 894f08 89570c 5b c3")
# void xgetbv(uint32_t out[2]): xor ecx, ecx; xgetbv; mov [rdi], eax; mov [rdi + 4], edx; ret
_XGETBV_CODE = bytes.fromhex("31c9 0f01d0 8907 895704 c3")
_XGETBV_AT = 32


@functools.cache
def words() -> tuple[int, ...] | None:
    """All that tells which instructions may be used in this process; None where this cannot be asked.

    Two processors with the same words run the same programs. The last two words are what the system saves when it
    switches threads, without which a processor has registers that no program may use.
    """
    if sys.platform != "linux" or machine() != "x86_64" or sys.maxsize < 1 << 32:
        return None
    code = _CPUID_CODE.ljust(_XGETBV_AT, b"\xcc") + _XGETBV_CODE
    try:
        address = executable.placed(executable.PAGE, 0, lambda at: code)
    except OSError:
        return None
    out = (ctypes.c_uint32 * 4)()
    ask = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint32)(address)
    found: list[int] = []
    most = {}
    for (leaf, subleaf), registers in _LEAVES.items():
        base = leaf & 0x8000_0000
        if leaf == base:
            ask(out, leaf, 0)
            most[base] = out[_EAX]
        known = leaf <= most[base]  # beyond the last leaf Intel's processors repeat it
        if known:
            ask(out, leaf, subleaf)
        found += [out[i] if known else 0 for i in registers]
        if leaf == 1:
            saves = bool(out[_ECX] & _XGETBV)
    state = (ctypes.c_uint32 * 2)()
    if saves:
        ctypes.CFUNCTYPE(None, ctypes.c_void_p)(address + _XGETBV_AT)(state)
    return *found, *state
