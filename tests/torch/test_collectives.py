"""`ordered_all_reduce`: the number of processes changes no bit."""

from __future__ import annotations

import pathlib
import subprocess
import sys
from typing import Any

import gradients as due
import pytest
import torch
import torch.distributed as dist

import samebits as sb
import samebits.torch as st
from samebits.errors import OptionError

# A process: its share of the rows of a product, joined, then those of all processes.
CODE = """
import sys, torch, torch.distributed as dist, samebits as sb, samebits.torch as st
folder, rank, world = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=world)
x, w = (torch.load(f"{folder}/{name}") for name in "xw")
own = slice(rank * 1024 // world, (rank + 1) * 1024 // world)
part = st.mm(x[:, own], w[own], spec=sb.Spec(segments=4 // world))
st.ordered_all_reduce([part])
if rank == world - 1:
    torch.save(part, f"{folder}/result")
dist.destroy_process_group()
"""


@pytest.mark.parametrize("world", [2, 4])
def test_processes_have_the_bits_of_one(world: int, tmp_path: pathlib.Path) -> None:
    generator = torch.Generator().manual_seed(0)
    x, w = torch.randn(5, 1024, generator=generator), torch.randn(1024, 7, generator=generator)
    torch.save(x, tmp_path / "x")
    torch.save(w, tmp_path / "w")
    runs = [subprocess.Popen([sys.executable, "-c", CODE, tmp_path, str(r), str(world)]) for r in range(world)]
    assert [run.wait(timeout=300) for run in runs] == [0] * world
    assert due.bits(torch.load(tmp_path / "result")) == due.bits(st.mm(x, w, spec=sb.Spec(segments=4)))


@pytest.fixture
def alone(tmp_path: pathlib.Path) -> Any:
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.usefixtures("alone")
def test_one_process_keeps_its_sums() -> None:
    x = torch.randn(3, 4).T
    before = x.clone()
    st.ordered_all_reduce([x])
    assert torch.equal(x, before)


@pytest.mark.usefixtures("alone")
def test_a_number_of_processes_that_no_tree_joins_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dist, "get_world_size", lambda group: 3)
    with pytest.raises(OptionError) as caught:
        st.ordered_all_reduce([torch.ones(3)])
    text = "ordered_all_reduce: group size is 3, must be a power of two; run on 1, 2, 4 or 8 processes"
    assert str(caught.value) == text
