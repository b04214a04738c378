"""Device memory on a real GPU with torch, where there are both: in place, and in the order of streams.

A stream is kept busy for some milliseconds before it writes, so that who does not wait for it reads what was there.
"""

from __future__ import annotations

from typing import Any

import pytest

from samebits import dtypes
from samebits.errors import DeviceError, ExchangeError
from samebits.memory import CPU, Buffer, Device, allocate
from samebits.tensor import Tensor

torch: Any = pytest.importorskip("torch")
pytest.importorskip("cuda.bindings.driver")
if not torch.cuda.is_available():
    pytest.skip("torch has no GPU here", allow_module_level=True)

CUDA = Device("cuda")
CYCLES = 50_000_000


@pytest.fixture
def side() -> Any:
    """A stream that waits for no other by itself."""
    torch.cuda.synchronize()
    yield torch.cuda.Stream()
    torch.cuda.synchronize()


def ones_late(x: Any, stream: Any) -> None:
    """Make x 1 on a stream, after a while."""
    with torch.cuda.stream(stream):
        torch.cuda._sleep(CYCLES)
        x.fill_(1)


@pytest.mark.parametrize("name", [row.name for row in dtypes.ROWS if row.width_bits >= 8 and hasattr(torch, row.name)])
def test_every_format_is_shared(name: str) -> None:
    codes = torch.randint(0, 2 if name == "bool" else 256, (4, 6, 16), dtype=torch.uint8, device="cuda")
    x = codes.view(getattr(torch, name)).permute(1, 0, 2)
    t = Tensor.from_any(x)
    assert (t.device, t.dtype.name, t.shape, t.strides) == (CUDA, name, tuple(x.shape), x.stride())
    assert t.address == x.data_ptr() == t.torch().data_ptr() == torch.from_dlpack(t).data_ptr()
    assert t.to(CPU).tobytes() == x.contiguous().view(torch.uint8).cpu().numpy().tobytes()
    assert torch.equal(t.to(CPU).to(CUDA).torch().view(torch.uint8), x.contiguous().view(torch.uint8))


@pytest.mark.parametrize("take", [Tensor.from_any, Tensor.from_dlpack])
def test_what_comes_in_from_another_stream_is_not_read_early(take: Any, side: Any) -> None:
    x = torch.zeros(4096, device="cuda")
    torch.cuda.synchronize()
    ones_late(x, side)
    with torch.cuda.stream(side):
        t = take(x)
    assert set(t.to(CPU).tolist()) == {1.0}


@pytest.mark.parametrize("give", [lambda t: t.torch(), torch.from_dlpack])
def test_another_stream_that_takes_it_waits(give: Any, side: Any) -> None:
    t = Tensor.zeros((4096,), device=CUDA)
    ones_late(t.torch(), torch.cuda.default_stream())
    with torch.cuda.stream(side):
        more = give(t) + 1
    side.synchronize()
    assert set(more.tolist()) == {2.0}


def test_copies_follow_their_stream_and_allocations_go_back_in_its_order(side: Any) -> None:
    b = allocate(4096, device=CUDA, stream=side.cuda_stream, zero=True)
    x = Tensor.from_buffer(b, "float32", (1024,)).torch()
    ones_late(x, side)
    back = allocate(4096)
    b.copy_to(back, stream=side.cuda_stream)
    del x
    b.close(stream=side.cuda_stream)
    side.synchronize()
    assert set(Tensor.from_buffer(back, "float32", (1024,)).tolist()) == {1.0}


def test_what_the_driver_knows() -> None:
    pinned = torch.zeros(64).pin_memory()
    there = Buffer.from_handle(pinned.data_ptr(), 256, owner=pinned)
    assert (str(there.device), there.residence.kind, there.is_device_accessible) == ("cuda_host:0", "pinned", True)
    device = torch.zeros(64, device="cuda")
    assert str(Buffer.from_handle(device.data_ptr(), 256, owner=device).device) == "cuda:0"
    assert str(Buffer.from_handle(torch.zeros(64).data_ptr(), 256).device) == "cpu"
    with pytest.raises(MemoryError):
        allocate(1 << 50, device=CUDA)
    t = Tensor.from_any(device)
    with pytest.raises(DeviceError, match="readable by the host"):
        t.tolist()
    with pytest.raises(ExchangeError, match="non-negative strides"):
        torch.from_dlpack(t.flip(0))
