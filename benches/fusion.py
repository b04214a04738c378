"""Fusions beside torch, eager and compiled, and beside our own functions: interleaved, one thread and two, medians.
Each turn begins with a call that is not counted, and with two threads after a pause, in which the others' go to sleep.

The chain is `(x * w + b).relu() * s - m`, then `where(y > t, y, a * y)`, on 16 million bfloat16, w and b of one row.
Ours is written into new memory, which was used before; torch's is fresh from the system, which costs more than the
chain, so it is compiled with a result that is there, too.
Softmax and layer norm are written in the operations of fusions, on 4096 x 1024 float32. NVFP4 is rows of 4096 elements,
dequantised, scaled by a number of all and summed, beside a sum of the packed bytes as int64: of 8 and 64 MiB, which
caches hold on some machines, and of 512, which none does; by a power of two, under which sums of such blocks are exact,
and by another number. The call is a fusion of three operations on 4 x 8 float32 that ran before.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parent))
from _products import Call, medians

import samebits as sb
from samebits.fusion import DataType, FusionDefinition

ROWS, COLUMNS, WIDE = 4096, 1024, 4096
ROUNDS = 30
PACKED_MIB = (8, 64, 512)
# Of all: a power of two, under which sums of these blocks are exact, and a number under which each element is rounded.
FACTORS = (0.5, 0.3)
SCALE, SHIFT, LIMIT, SLOPE = 1.7, 0.3, 0.1, 0.25


def eager_chain(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """The chain in torch's words."""
    y = (x * w + b).relu() * SCALE - SHIFT
    return torch.where(y > LIMIT, y, SLOPE * y)


def chain_into(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor, made: torch.Tensor) -> None:
    """The same, written into memory that is there."""
    made.copy_(eager_chain(x, w, b))


def chain(fd: FusionDefinition, x: Any, w: Any, b: Any) -> None:
    """The same; what is narrower than Float is computed in it, and rounded once at the end."""
    ops, (x, w, b) = fd.ops, [fd.from_pytorch(each) for each in (x, w, b)]
    shape = ops.shape(x)
    w, b = (ops.broadcast_in_dim(each, shape, [1]) for each in (w, b))
    y = ops.sub(ops.mul(ops.relu(ops.add(ops.mul(x, w), b)), SCALE), SHIFT)
    fd.add_output(ops.cast(ops.where(ops.gt(y, LIMIT), y, ops.mul(y, SLOPE)), DataType.BFloat16))


def softmax(fd: FusionDefinition, x: Any) -> None:
    """exp(x - max) over its sum."""
    ops, x = fd.ops, fd.from_pytorch(x)
    e = ops.exp(ops.sub(x, ops.max(x, dims=[1], keepdim=True)))
    fd.add_output(ops.div(e, ops.sum(e, dims=[1], keepdim=True)))


def layer_norm(fd: FusionDefinition, x: Any, w: Any, b: Any) -> None:
    """(x - mean) * rstd * w + b."""
    ops, (x, w, b) = fd.ops, [fd.from_pytorch(each) for each in (x, w, b)]
    shape = ops.shape(x)
    w, b = (ops.broadcast_in_dim(each, shape, [1]) for each in (w, b))
    var, mean = ops.var_mean(x, dims=[1], correction=0, keepdim=True)
    normal = ops.mul(ops.sub(x, mean), ops.rsqrt(ops.add(var, 1e-5)))
    fd.add_output(ops.add(ops.mul(normal, w), b))


def dequantised(fd: FusionDefinition, x: Any, scales: Any, _: float) -> None:
    """Sums of rows of elements * scales of 16 * a scale of all."""
    ops, x, scales, scale = fd.ops, fd.from_pytorch(x), fd.from_pytorch(scales), fd.define_scalar()
    blocks = ops.reshape(ops.cast(x, DataType.Float), [-1, WIDE // 16, 16])
    factors = ops.broadcast(ops.cast(scales, DataType.Float), [False, False, True])
    fd.add_output(ops.sum(ops.mul(ops.mul(blocks, factors), scale), dims=[1, 2]))


def small(fd: FusionDefinition, x: Any, y: Any) -> None:
    """relu(x + y) * 2."""
    x, y = fd.from_pytorch(x), fd.from_pytorch(y)
    fd.add_output(fd.ops.mul(fd.ops.relu(fd.ops.add(x, y)), 2.0))


def fused(define: Callable[..., None], *given: Any) -> Call:
    """A call of a fusion that ran before, by the threads that are in force."""
    with FusionDefinition() as fd:
        define(fd, *given)
    fd.execute(given)
    return lambda: fd.execute(given)


def cases(threads: int) -> Iterator[tuple[str, dict[str, Call]]]:
    """Names, and calls by what makes them; ours comes first."""
    x = torch.randn(ROWS, WIDE, dtype=torch.bfloat16)
    w, b = torch.randn(2, WIDE, dtype=torch.bfloat16)
    compiled, into, made = torch.compile(eager_chain), torch.compile(chain_into), torch.empty_like(x)
    compiled(x, w, b)
    into(x, w, b, made)
    yield "chain of 16M bfloat16", {
        "ours": fused(chain, x, w, b), "torch": lambda: eager_chain(x, w, b),
        "torch.compile": lambda: compiled(x, w, b), "torch.compile into memory": lambda: into(x, w, b, made),
    }  # fmt: skip
    y, (g, h) = torch.randn(ROWS, COLUMNS), torch.randn(2, COLUMNS)
    yield "softmax of steps", {
        "ours": fused(softmax, y), "our softmax": lambda: sb.softmax(y, threads=threads),
        "torch": lambda: torch.softmax(y, 1),
    }  # fmt: skip
    yield "layer norm of steps", {
        "ours": fused(layer_norm, y, g, h), "our layer_norm": lambda: sb.layer_norm(y, g, h, threads=threads),
        "torch": lambda: torch.nn.functional.layer_norm(y, (COLUMNS,), g, h),
    }  # fmt: skip
    for size in PACKED_MIB:
        rows = (size << 20) // (WIDE // 2)
        codes = torch.randint(0, 256, (rows, WIDE // 2), dtype=torch.uint8)
        scales = (torch.rand(rows, WIDE // 16) + 0.1).to(torch.float8_e4m3fn)
        for scale in FACTORS:
            yield f"NVFP4 of {size} MiB dequantised, times {scale}, summed", {
                "ours": fused(dequantised, codes.view(torch.float4_e2m1fn_x2), scales, scale),
                "torch, packed bytes read": codes.view(torch.int64).sum,
            }  # fmt: skip
    x, y = torch.ones(4, 8), torch.ones(4, 8)
    yield "small call", {"ours": fused(small, x, y), "torch": lambda: (x + y).relu() * 2}


def by_threads(threads: int) -> None:
    """Rows of the table, by so many threads and cores."""
    torch.set_num_threads(threads)
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])  # fusions use every core
    for name, calls in cases(threads):
        mine, *others = medians(calls, threads, ROUNDS).items()
        words = [f"{peer} {took * 1e3:.4f} ms, {took / mine[1]:.2f}" for peer, took in others]
        print(f"| {name} | {threads} | {mine[1] * 1e3:.4f} ms | {'; '.join(words)} |", flush=True)


def main() -> None:
    """Print the table; each number of threads has a process, as a fusion that is kept keeps its threads."""
    if len(sys.argv) > 1:
        return by_threads(int(sys.argv[1]))
    print("## Fusions\n\nA ratio is the other's time over ours.\n")
    print("| operation | threads | ours | others |\n|---|---|---|---|", flush=True)
    for threads in ("1", "2"):
        subprocess.run([sys.executable, __file__, threads], check=True)
    return None


if __name__ == "__main__":
    main()
