"""Train a small language model: however many threads, instructions, parts and processes do it, one digest."""

import concurrent.futures
import hashlib
import pydoc_data.topics
import tempfile
import time

import torch
from torch import Tensor, distributed, multiprocessing, nn

import samebits as sb
import samebits.torch as st

TEXT = torch.tensor(list("".join(pydoc_data.topics.topics.values()).encode()[:50_000]))
ROWS, BEFORE, WIDTH, SEGMENTS, STEPS = 512, 8, 128, 4, 200


def train(ours: bool, threads: int = 1, parts: int = 1, rank: int = 0, world: int = 1, store: str = "") -> str:
    """A digest of weights and state after steps on this process's share of every batch, in so many parts."""
    if world > 1:
        distributed.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=world)
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    block = [nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 2 * WIDTH), nn.GELU(), nn.Linear(2 * WIDTH, WIDTH)]
    net: nn.Module = nn.Sequential(nn.Embedding(256, WIDTH // BEFORE), nn.Flatten(1), *block, nn.Linear(WIDTH, 256))
    net = st.convert(net).model if ours else net
    weights, rows = list(net.parameters()), ROWS // world
    optimizer = (st.AdamW if ours else torch.optim.AdamW)(weights, lr=3e-3)
    for i in range(STEPS):
        optimizer.zero_grad()
        batch = torch.randperm(len(TEXT) - BEFORE, generator=torch.Generator().manual_seed(i))[:ROWS]
        with st.accumulate(weights if ours else [], segments=SEGMENTS // world) as sums:
            for part in sums.micro_batches(parts):
                at = batch[rank * rows :][:rows].chunk(parts)[part]
                scores, truth = net(TEXT[at[:, None] + torch.arange(BEFORE)]), TEXT[at + BEFORE]
                theirs = None if ours else nn.functional.cross_entropy(scores, truth, reduction="sum") / ROWS
                (st.cross_entropy(scores, truth, count=ROWS) if theirs is None else theirs).backward()
        if world > 1 and ours:
            st.ordered_all_reduce(sums.gradients)
        for p in weights if world > 1 and not ours else []:
            distributed.all_reduce(p.grad)
        optimizer.step()
    state = [x for p in weights for x in (p.detach(), *optimizer.state[p].values()) if isinstance(x, Tensor)]
    return hashlib.sha256(b"".join(x.numpy().tobytes() for x in state)).hexdigest()[:16]


if __name__ == "__main__":
    (processes := multiprocessing.get_context("forkserver")).set_forkserver_preload(["samebits.torch"])
    for name, ours in (("samebits", True), ("torch", False)):
        for threads, parts in ((1, 1), (2, 1), (3, 1), (1, 2), (1, 4)):
            began, digest = time.perf_counter(), train(ours, threads, parts)
            print(name, digest, f"{threads} threads, {parts} parts, {time.perf_counter() - began:.1f} s")
        for row in [row for row in sb.isas() if row.available and row.name in ("avx2", "avx512")] * ours:
            print(name, sb.use_isa(row)(train)(ours), row.name)
        for world in (2, 4):
            with concurrent.futures.ProcessPoolExecutor(world, processes) as pool, tempfile.TemporaryDirectory() as at:
                runs = [pool.submit(train, ours, 1, 1, rank, world, f"{at}/store") for rank in range(world)]
                print(name, *{run.result() for run in runs}, f"{world} processes")
