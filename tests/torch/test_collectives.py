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

SEGMENTS = 8
# Processes, forks of one that has imported what they need: each has its share of the rows of a product's weight, and
# its share of the rows of a batch, each joined by itself, then those of all processes.
CODE = f"""
import os, sys, torch, torch.distributed as dist, samebits as sb, samebits.torch as st
folder, world = sys.argv[1], int(sys.argv[2])
children = []
for rank in range(world):
    child = os.fork()
    if child == 0:
        break
    children.append(child)
else:
    sys.exit(any([os.waitpid(child, 0)[1] for child in children]))
dist.init_process_group("gloo", init_method=f"file://{{folder}}/store", rank=rank, world_size=world)
x, w, dy = (torch.load(f"{{folder}}/{{name}}") for name in ("x", "w", "dy"))
own = slice(rank * 1024 // world, (rank + 1) * 1024 // world)
product = st.mm(x[:, own], w[own], spec=sb.Spec(segments={SEGMENTS} // world))
layer = st.Linear(7, 5)
with st.accumulate(layer.parameters(), segments={SEGMENTS} // world) as sums:
    layer(w[own]).backward(dy[own])
st.ordered_all_reduce([product, *sums.gradients])
if rank == world - 1:
    torch.save([product, *sums.gradients], f"{{folder}}/results")
dist.destroy_process_group()
"""


EXHAUSTIVE = pytest.mark.exhaustive


@pytest.mark.parametrize("world", [pytest.param(2, marks=EXHAUSTIVE), 4, pytest.param(8, marks=EXHAUSTIVE)])
def test_processes_have_the_bits_of_one(world: int, tmp_path: pathlib.Path) -> None:
    generator, spec = torch.Generator().manual_seed(0), sb.Spec(segments=SEGMENTS)
    x, w, dy = (torch.randn(*shape, generator=generator) for shape in ((5, 1024), (1024, 7), (1024, 5)))
    for name, tensor in (("x", x), ("w", w), ("dy", dy)):
        torch.save(tensor, tmp_path / name)
    assert subprocess.run([sys.executable, "-c", CODE, tmp_path, str(world)], timeout=300, check=False).returncode == 0
    product, dw, db = torch.load(tmp_path / "results")
    a, b, g = map(due.numbers, (x, w, dy))
    assert due.bits(product) == due.bits(st.mm(x, w, spec=spec)) == due.bits(due.contraction(a, b, spec))
    assert due.bits(dw) == due.bits(due.contraction(g.T, b, spec))
    assert due.bits(db) == due.bits(due.sum_of_rows(g, spec))


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
