"""Memory as a fact: where bytes are, how many, who keeps them alive, and whether they may be written.

Start at `allocate` and `Buffer`; where memory comes from is a `MemoryResource`, which a user can write.
"""

from samebits.memory.address import ALIGNMENT, address_of
from samebits.memory.allocation import HOST, allocate, new_array, use_resource
from samebits.memory.buffer import Buffer
from samebits.memory.cuda import CudaResource
from samebits.memory.device import CPU, Device
from samebits.memory.host import HostResource, Statistics
from samebits.memory.resource import MemoryResource

__all__ = [
    "ALIGNMENT",
    "CPU",
    "HOST",
    "Buffer",
    "CudaResource",
    "Device",
    "HostResource",
    "MemoryResource",
    "Statistics",
    "address_of",
    "allocate",
    "new_array",
    "use_resource",
]
