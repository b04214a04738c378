"""Training takes no more memory the longer it goes on, and keeps for backward what torch's own modules keep."""

from __future__ import annotations

import pathlib
import sys

import apart
import pytest
import torch
from torch import nn

import samebits.torch as st

STEPS = [pytest.param(500), pytest.param(10_000, marks=pytest.mark.exhaustive)]


def growth(steps: int) -> int:
    """Bytes that so many steps of a small model add after 100 others."""
    apart.without_huge_pages()
    model = nn.Sequential(st.Embedding(64, 32), st.Linear(32, 64), st.GELU(), st.LayerNorm(64), st.Linear(64, 64))
    optimizer, tokens = st.AdamW(model.parameters()), torch.arange(256) % 64

    def train(count: int) -> None:
        for step in range(count):
            x = tokens.roll(step)
            if step % 2:
                with st.accumulate(model.parameters()):
                    st.cross_entropy(model(x), x, count=256).backward()
            else:
                st.cross_entropy(model(x), x).backward()
            st.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()

    train(100)
    before = apart.resident()
    train(steps)
    return apart.resident() - before


@pytest.mark.skipif(not pathlib.Path("/proc/self/statm").exists(), reason="nothing tells what is in memory")
@pytest.mark.parametrize("steps", STEPS)
def test_steps_of_a_small_model_do_not_add_up(steps: int) -> None:
    # What keeps 5 KiB in each of 500 steps, or half a KiB in each of 10,000, is more than this.
    assert int(apart.printed(__file__, str(steps))) < (4 << 20 if steps > 1000 else 2 << 20)


def kept_bytes(module: nn.Module, x: torch.Tensor) -> int:
    """How much memory a call keeps for backward, beside parameters and the operand."""
    found: dict[int, int] = {}
    given = {x.untyped_storage().data_ptr(), *(p.untyped_storage().data_ptr() for p in module.parameters())}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in given:
            found[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        y = module(x)
    assert y.grad_fn is not None
    return sum(found.values())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_backward_keeps_no_more_bytes_than_torchs(dtype: torch.dtype) -> None:
    x = torch.randn(128, 96).to(dtype).requires_grad_()
    for ours, theirs in (
        (st.Linear(96, 64), nn.Linear(96, 64)), (st.LayerNorm(96), nn.LayerNorm(96)), (st.GELU(), nn.GELU()),
        (st.ReLU(), nn.ReLU()), (st.Softmax(-1), nn.Softmax(-1)), (st.LogSoftmax(-1), nn.LogSoftmax(-1)),
        (nn.Sequential(st.Linear(96, 64), st.Linear(64, 32)), nn.Sequential(nn.Linear(96, 64), nn.Linear(64, 32))),
    ):  # fmt: skip
        assert kept_bytes(ours.to(dtype), x) <= kept_bytes(theirs.to(dtype), x), ours


if __name__ == "__main__":
    print(growth(int(sys.argv[1])))
