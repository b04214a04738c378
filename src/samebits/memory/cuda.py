"""Memory of a CUDA device, through the driver that cuda-bindings reaches.

Tests meet a stand-in for the driver, and the driver itself where there is a GPU with torch: it ran on an NVIDIA H200.
"""

from samebits import driver
from samebits.memory.device import Device

__all__ = ["CudaResource"]


class CudaResource:
    """Memory of one CUDA device: `cuMemAlloc`, or in a stream's order `cuMemAllocAsync`.

    What is given back without a stream waits for all work of the device.

    Attributes:
        device: `Device("cuda", index)`.
    """

    is_host_accessible = False
    is_device_accessible = True

    def __init__(self, index: int = 0) -> None:
        """The memory of device index.

        Raises:
            DeviceError: There is no CUDA driver, or no such device.
        """
        self.device = Device("cuda", index)
        self._cuda = driver.needed_cuda("CudaResource", f"memory of {self.device}")
        self._cuda.check_device("CudaResource", index)
        self._ordered: set[int] = set()

    def __repr__(self) -> str:
        return f"CudaResource({self.device.index})"

    def allocate(self, size_bytes: int, *, stream: object = None) -> int:
        """The address of size_bytes arbitrary bytes, which may be used from now on, or in the stream's order.

        Raises:
            MemoryError: There is not that much.
            DeviceError: The driver refuses.
        """
        handle = driver.stream_handle("CudaResource.allocate", stream)
        address = self._cuda.allocate(size_bytes, self.device.index, handle)
        if handle is not None:
            self._ordered.add(address)
        return address

    def deallocate(self, address: int, size_bytes: int, *, stream: object = None) -> None:
        """Take back what `allocate` gave: in the stream's order, or when all work of the device is done.

        Raises:
            DeviceError: The driver refuses.
        """
        handle = driver.stream_handle("CudaResource.deallocate", stream)
        ordered = address in self._ordered
        self._ordered.discard(address)
        self._cuda.deallocate(address, self.device.index, handle if ordered else None, ordered=ordered)
