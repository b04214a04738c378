"""A stand-in for `cuda.bindings.driver`: device memory that is the host's in truth, and a log of what was called.

Functions take and give what those of cuda-bindings 12 and 13 do: a status first, then the results. It refuses what the
driver would: addresses that are not its own, calls without a current context, streams that were never made.
"""

from __future__ import annotations

import ctypes
import enum
from typing import Any

import numpy as np
import numpy.typing as npt

from samebits.memory import address_of


class CUresult(enum.IntEnum):
    """The statuses that occur here, by the driver's numbers."""

    CUDA_SUCCESS = 0
    CUDA_ERROR_INVALID_VALUE = 1
    CUDA_ERROR_OUT_OF_MEMORY = 2
    CUDA_ERROR_NOT_INITIALIZED = 3
    CUDA_ERROR_INVALID_DEVICE = 101
    CUDA_ERROR_INVALID_CONTEXT = 201
    CUDA_ERROR_INVALID_HANDLE = 400


# The legacy default stream, that of a thread, and two that were made.
STREAMS = (1, 2, 5, 6)


class FakeCuda:
    """`devices` GPUs of 1 GiB each."""

    class CUpointer_attribute(enum.IntEnum):  # the driver's name
        """Numbers of cuda.h."""

        CU_POINTER_ATTRIBUTE_MEMORY_TYPE = 2
        CU_POINTER_ATTRIBUTE_IS_MANAGED = 8
        CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL = 9

    class CUmemorytype(enum.IntEnum):
        """Numbers of cuda.h."""

        CU_MEMORYTYPE_HOST = 1
        CU_MEMORYTYPE_DEVICE = 2

    def __init__(self, devices: int = 2) -> None:
        self.devices = devices
        self.blocks: dict[int, tuple[npt.NDArray[np.uint8], int, bool]] = {}
        self.host: dict[int, tuple[str, int]] = {}  # what the driver knows of host addresses
        self.contexts: list[int] = []
        self.log: list[str] = []
        self.events: list[str] = []

    def _context(self) -> CUresult:
        return CUresult.CUDA_SUCCESS if self.contexts else CUresult.CUDA_ERROR_INVALID_CONTEXT

    def cuInit(self, flags: int) -> tuple[CUresult]:
        assert flags == 0
        return (CUresult.CUDA_SUCCESS,)

    def cuDeviceGetCount(self) -> tuple[CUresult, int]:
        return CUresult.CUDA_SUCCESS, self.devices

    def cuDeviceGet(self, ordinal: int) -> tuple[CUresult, Any]:
        if not 0 <= ordinal < self.devices:
            return CUresult.CUDA_ERROR_INVALID_DEVICE, None
        return CUresult.CUDA_SUCCESS, ("device", ordinal)

    def cuDevicePrimaryCtxRetain(self, device: tuple[str, int]) -> tuple[CUresult, int]:
        self.log.append("retain")
        return CUresult.CUDA_SUCCESS, 1000 + device[1]

    def cuCtxPushCurrent(self, context: int) -> tuple[CUresult]:
        self.contexts.append(context)
        return (CUresult.CUDA_SUCCESS,)

    def cuCtxPopCurrent(self) -> tuple[CUresult, int]:
        return CUresult.CUDA_SUCCESS, self.contexts.pop()

    def cuCtxSynchronize(self) -> tuple[CUresult]:
        self.log.append("synchronize")
        return (self._context(),)

    def cuStreamSynchronize(self, stream: int) -> tuple[CUresult]:
        self.log.append(f"synchronize {stream}")
        return (self._context(),)

    def cuEventCreate(self, flags: int) -> tuple[CUresult, str]:
        assert flags == 2, "without timing"
        self.events.append(f"event {len(self.log)}")
        return self._context(), self.events[-1]

    def cuEventRecord(self, event: str, stream: int) -> tuple[CUresult]:
        if event not in self.events or stream not in STREAMS:
            return (CUresult.CUDA_ERROR_INVALID_HANDLE,)
        self.log.append(f"record {stream}")
        return (self._context(),)

    def cuStreamWaitEvent(self, stream: int, event: str, flags: int) -> tuple[CUresult]:
        if event not in self.events or stream not in STREAMS or flags:
            return (CUresult.CUDA_ERROR_INVALID_HANDLE,)
        self.log.append(f"wait {stream}")
        return (self._context(),)

    def cuEventDestroy(self, event: str) -> tuple[CUresult]:
        self.events.remove(event)
        return (self._context(),)

    def _allocate(self, size: int, ordered: bool) -> tuple[CUresult, int]:
        if not self.contexts:
            return CUresult.CUDA_ERROR_INVALID_CONTEXT, 0
        if size > 1 << 30:
            return CUresult.CUDA_ERROR_OUT_OF_MEMORY, 0
        block = np.full(size + 256, 0xCD, np.uint8)
        address = -(-address_of(block) // 256) * 256
        self.blocks[address] = (block, self.contexts[-1] - 1000, ordered)
        return CUresult.CUDA_SUCCESS, address

    def cuMemAlloc(self, size: int) -> tuple[CUresult, int]:
        self.log.append(f"alloc {size}")
        return self._allocate(size, False)

    def cuMemAllocAsync(self, size: int, stream: int) -> tuple[CUresult, int]:
        self.log.append(f"alloc {size} on {stream}")
        if stream not in STREAMS:
            return CUresult.CUDA_ERROR_INVALID_HANDLE, 0
        return self._allocate(size, True)

    def cuMemFree(self, address: int) -> tuple[CUresult]:
        self.log.append("free")
        return (self._free(address),)

    def cuMemFreeAsync(self, address: int, stream: int) -> tuple[CUresult]:
        self.log.append(f"free on {stream}")
        if stream not in STREAMS or not self.blocks.get(address, (None, 0, False))[2]:
            return (CUresult.CUDA_ERROR_INVALID_VALUE,)
        return (self._free(address),)

    def _free(self, address: int) -> CUresult:
        if not self.contexts:
            return CUresult.CUDA_ERROR_INVALID_CONTEXT
        return CUresult.CUDA_ERROR_INVALID_VALUE if self.blocks.pop(address, None) is None else CUresult.CUDA_SUCCESS

    def cuMemcpyAsync(self, target: int, source: int, count: int, stream: int) -> tuple[CUresult]:
        self.log.append(f"copy {count} on {stream}")
        if stream not in STREAMS:
            return (CUresult.CUDA_ERROR_INVALID_HANDLE,)
        ctypes.memmove(target, source, count)
        return (self._context(),)

    def cuMemsetD8Async(self, address: int, value: int, count: int, stream: int) -> tuple[CUresult]:
        self.log.append(f"set {count} on {stream}")
        ctypes.memset(address, value, count)
        return (self._context(),)

    def cuPointerGetAttributes(self, count: int, names: list[int], address: int) -> tuple[CUresult, list[Any]]:
        assert count == len(names)
        for start, (block, ordinal, _) in self.blocks.items():
            if start <= address < address_of(block) + len(block):
                known: tuple[int, bool, int] = (2, False, ordinal)
                break
        else:
            kind, ordinal = self.host.get(address, ("pageable", -2))
            known = ({"pageable": 0, "managed": 2}.get(kind, 1), kind == "managed", ordinal)
        answers = dict(zip((2, 8, 9), known, strict=True))
        return CUresult.CUDA_SUCCESS, [answers[int(name)] for name in names]
