"""Kinds of memory, and which of their devices holds it."""

from samebits.errors import DeviceError, OptionError, shown
from samebits.frozen import dataclass

__all__ = ["CPU", "Device", "check_device"]

# DLDeviceType of dlpack.h 1.3, where a data pointer is an address: Metal's is a handle, and oneAPI's may be either.
_DLPACK_CODES = {"cpu": 1, "cuda": 2, "cuda_host": 3, "rocm": 10, "rocm_host": 11, "cuda_managed": 13}
_DLPACK_KINDS = {code: kind for kind, code in _DLPACK_CODES.items()}
_HOST_KINDS = frozenset({"cpu", "cuda_host", "rocm_host", "cuda_managed"})


@dataclass(frozen=True, slots=True)
class Device:
    """Where memory is: a kind of memory and which of its devices.

    Attributes:
        kind: `cpu`, `cuda`, `cuda_host` (pinned), `cuda_managed`, `rocm` or `rocm_host`.
        index: Which device; 0 for host memory.
    """

    kind: str
    index: int = 0

    def __post_init__(self) -> None:
        if not isinstance(self.kind, str) or self.kind not in _DLPACK_CODES:
            expected, remedy = f"one of {sorted(_DLPACK_CODES)}", "name one of these"
            if isinstance(self.kind, str) and ":" in self.kind:
                remedy = "pass the number of the device apart, as Device('cuda', 0)"
            raise DeviceError("Device", "kind", "", shown(self.kind), expected, remedy)
        if type(self.index) is not int:
            raise DeviceError("Device", "index", "", shown(self.index), "an int", "count devices from 0")

    def __str__(self) -> str:
        return self.kind if self.kind == "cpu" else f"{self.kind}:{self.index}"

    @property
    def is_host(self) -> bool:
        """Whether the host can read the memory."""
        return self.kind in _HOST_KINDS

    @property
    def dlpack(self) -> tuple[int, int]:
        """`(device_type, device_id)` of DLDevice."""
        return _DLPACK_CODES[self.kind], self.index

    @classmethod
    def from_dlpack(cls, code: int, index: int) -> "Device | None":
        """The device of a DLDevice, or None for a device type without a name here."""
        kind = _DLPACK_KINDS.get(code)
        return None if kind is None else CPU if code == 1 and index == 0 else cls(kind, index)


CPU = Device("cpu")


def check_device(call: str, device: object) -> Device:
    """An argument that must be a device; a text is none, though it may say which is meant.

    Raises:
        OptionError: It is none.
    """
    if isinstance(device, Device):
        return device
    kind, _, index = device.partition(":") if isinstance(device, str) else ("", "", "")
    remedy = "write Device('cpu')"
    if kind in _DLPACK_CODES and (not index or index.isdecimal()):
        remedy = f"write Device({kind!r}, {int(index)})" if index else f"write Device({kind!r})"
    elif isinstance(device, str):
        remedy = "write Device('cpu'), or call astype for another dtype"
    raise OptionError(call, "device", "", shown(device), "a Device", remedy)
