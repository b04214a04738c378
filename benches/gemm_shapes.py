"""Products of transformers beside NumPy (OpenBLAS), torch and onnxruntime, a weight [N, K].

The weight is packed once, as onnxruntime has it, or lies as it is; with one row, GB/s of weight beside a read of as
many bytes, in turns with the others and in a loop. Then the gradients of `linear`: of its input, its weight (fresh, and
added to what is there) and its bias, which are contractions in a set order here, and sums in any order there; of the
bias GB/s. Last, bfloat16 beside torch's linear. Protocol as for gemm.

What falls short, and why: one row of float32 with a weight [N, K] as it lies and in a near cache. In a loop over one
weight it is 0.71 to 0.76 of OpenBLAS, 41 to 57 GB/s beside 85 of a plain read (two threads: 0.5 to 0.65); in turns with
other libraries part of the weight comes from memory, where our requests ahead mostly make up for it. Others' lanes run
over K and take whole lines, in another order of additions for each width; here lanes run over N, so the weight is
turned in registers. For 1 KB that is 64 loads of 16 bytes, 11 broadcasts and 16 lines asked for, 46 cycles of two
loads, and 32 inserts, 64 shuffles and 32 fma, 32 cycles of four: 83 GB/s at 3.7 GHz. A loop of these instructions alone
reaches 73 from the second cache and 60 from the last one, ours 63 and 54 to 58. Blends, which any pipe takes, instead
of inserts, and squares of 8 columns by 8 with half of the loads, were no faster (56 and 58 from the second cache).
Columns a multiple of 2 KB apart (K = 512, 1024, 3072) share too few sets of the first cache for the 24 that are walked
at once: 50. Weights that no cache holds are read at the speed of a plain read.
bfloat16 as it lies, 4 to 8 rows: it is packed into pairs first, as steps of float32 alone take as long as torch's (8
rows at 117 GFLOP/s: 14.6 GB/s of weight; 15). 128 and 512 rows: nothing hides the turning of the weight, 2 to 5 % of
the time; on two threads each packs all rows of A besides. It goes on at 20 to 30 GB/s in caches, as a copy in the same
order would: it waits for lines, not for shuffles. 512 rows, K = 4096, packed: joins of chunks, 2.6 %.
Two threads: torch's wake for some milliseconds after the pause before each turn, so what its short calls show is not
its kernels (0.3 to 30 GFLOP/s in bfloat16, sums of rows).
`python benches/gemm_shapes.py`
"""

from __future__ import annotations

import itertools
from typing import Any

from _products import BEST, Part, Rows, figure, limit, medians, row, run

import samebits as sb
from samebits.bench.measure import Call

WEIGHTS = tuple(itertools.product((768, 3072, 4096), repeat=2))
FEWER = ((768, 3072), (3072, 768), (768, 768), (4096, 4096))
GRADIENTS = ((128, 768, 768), (512, 768, 3072), (512, 3072, 768), (1024, 1024, 1024))


def _weights(threads: int) -> tuple[tuple[int, int], ...]:
    """(K, N); fewer with two threads, each of whose turns begins with a pause."""
    return WEIGHTS if threads == 1 else FEWER


def _arrays(*shapes: tuple[int, ...]) -> list[Any]:
    """Normal numbers."""
    import numpy as np

    return [np.random.default_rng(i).standard_normal(shape, dtype=np.float32) for i, shape in enumerate(shapes)]


def _linear(m: int, k: int, n: int, threads: int, packed: bool) -> dict[str, Call]:
    """x @ weight^T by each library."""
    import numpy as np
    import torch

    from samebits.bench import peers
    from samebits.tensor import Tensor

    torch.set_num_threads(threads)
    x, w = _arrays((m, k), (n, k))
    # Each reads bytes of its own: what another just read may still be in the last cache.
    tx, tw, other = torch.from_numpy(x), torch.from_numpy(w.copy()), w.copy()
    out, result, torch_result = np.empty((m, n), np.float32), np.empty((m, n), np.float32), torch.empty(m, n)
    right = sb.pack(w.T) if packed else w.T
    calls: dict[str, Call] = {
        "ours": lambda: sb.matmul(x, right, out=out, threads=threads),
        "OpenBLAS": lambda: np.matmul(x, other.T, out=result),
        "torch": lambda: torch.mm(tx, tw.t(), out=torch_result),
    }
    (onnxruntime,) = peers.named(["onnxruntime"])
    if packed and onnxruntime.installed:
        call = onnxruntime.call(Tensor.from_any(x), Tensor.from_any(np.ascontiguousarray(w.T)), True, threads)
        if not isinstance(call, str):
            calls["onnxruntime"] = call
    return calls


def _shapes(isa: str, threads: int, heights: tuple[int, ...], packed: bool) -> Rows:
    from samebits.kernels.gemm.engine import FMA32

    rows, most = Rows(), limit(FMA32, isa, threads)
    for k, n in _weights(threads):
        for m in heights:
            with sb.use_isa(isa):
                seconds = medians(_linear(m, k, n, threads, packed), threads, 7)
            rows.append(row(f"{m} x {k} x {n}", 2e-9 * m * k * n, seconds, most))
    return rows


def kept(isa: str, threads: int) -> Rows:
    """The weight packed once."""
    return _shapes(isa, threads, (8, 32, 128, 512), True)


def lying(isa: str, threads: int) -> Rows:
    """The weight as it is."""
    return _shapes(isa, threads, (8, 32, 128, 512), False)


def _pairs(isa: str, threads: int, packed: bool) -> Rows:
    """bfloat16 beside torch's linear."""
    import ml_dtypes
    import numpy as np
    import torch

    from samebits.kernels.gemm.engine import PAIRS

    torch.set_num_threads(threads)
    rows, most = Rows(), limit(PAIRS, isa, threads)
    for k, n in _weights(threads):
        for m in (1, 8, 32, 128, 512):
            x, w = _arrays((m, k), (n, k))
            tx, tw = torch.from_numpy(x).bfloat16(), torch.from_numpy(w).bfloat16()
            x, w = x.astype(ml_dtypes.bfloat16), w.astype(ml_dtypes.bfloat16)
            right, out = sb.pack(w.T) if packed else w.T, np.empty((m, n), x.dtype)
            calls: dict[str, Call] = {
                "ours": lambda x=x, right=right, out=out: sb.matmul(x, right, out=out, threads=threads),
                "torch": lambda x=tx, w=tw: torch.nn.functional.linear(x, w),
            }
            with sb.use_isa(isa):
                seconds = medians(calls, threads, 7)
            rows.append(row(f"{m} x {k} x {n}", 2e-9 * m * k * n, seconds, most))
    return rows


def pairs_kept(isa: str, threads: int) -> Rows:
    """bfloat16, the weight packed once."""
    return _pairs(isa, threads, True)


def pairs_lying(isa: str, threads: int) -> Rows:
    """bfloat16, the weight as it is."""
    return _pairs(isa, threads, False)


def vector(isa: str, threads: int, packed: bool = True, burst: int = 1) -> Rows:
    """One row, GB/s of weight."""
    import numpy as np

    rows = Rows()
    for k, n in _weights(threads) if burst == 1 else FEWER:
        words = np.ones(k * n, np.float32).view(np.uint64)
        with sb.use_isa(isa):
            calls = _linear(1, k, n, threads, packed)
            if threads == 1:
                calls["read"] = lambda words=words: words.max()
            found = row(f"1 x {k} x {n}", 4e-9 * k * n, medians(calls, threads, 15, burst))
            if threads == 1:
                found["of read"] = float(str(found["ours"])) / float(str(found["read"]))
            rows.append(found)
    return rows


def vector_lying(isa: str, threads: int) -> Rows:
    """One row, the weight as it is."""
    return vector(isa, threads, packed=False)


def again(isa: str, threads: int) -> Rows:
    """One row, most samples of a turn with the weight in the caches that it fits."""
    return vector(isa, threads, burst=9)


def again_lying(isa: str, threads: int) -> Rows:
    """The same, the weight as it is."""
    return vector(isa, threads, packed=False, burst=9)


def gradients(isa: str, threads: int) -> Rows:
    """Of linear(x[M, K], weight[N, K])."""
    import numpy as np
    import torch

    from samebits.kernels.gemm.engine import FMA32

    torch.set_num_threads(threads)
    rows, most = Rows(), limit(FMA32, isa, threads)
    for m, k, n in GRADIENTS:
        x, dy, w = _arrays((m, k), (m, n), (n, k))
        tx, tdy, tw = map(torch.from_numpy, (x, dy, w))
        dx, torch_dx, dw, sums = np.empty_like(x), torch.empty(m, k), np.zeros_like(w), torch.zeros(n, k)
        cases: dict[str, dict[str, Call]] = {
            "dX": {
                "ours": lambda dy=dy, w=w, dx=dx: sb.grad_input(dy, w, out=dx, threads=threads),
                "torch": lambda dy=tdy, w=tw, dx=torch_dx: torch.mm(dy, w, out=dx),
            },
            "dW": {
                "ours": lambda x=x, dy=dy: sb.grad_weight(x, dy, threads=threads),
                "torch": lambda x=tx, dy=tdy: torch.mm(dy.t(), x),
            },
            "dW +=": {
                "ours": lambda x=x, dy=dy, dw=dw: sb.grad_weight(x, dy, out=dw, threads=threads),
                "torch": lambda x=tx, dy=tdy, dw=sums: dw.addmm_(dy.t(), x),
            },
            "db": {
                "ours": lambda dy=dy: sb.grad_bias(dy, threads=threads),
                "torch": lambda dy=tdy: dy.sum(0),
            },
        }
        for name, calls in cases.items():
            work = 4e-9 * m * n if name == "db" else 2e-9 * m * n * k
            with sb.use_isa(isa):
                seconds = medians(calls, threads, 9)
            rows.append(row(f"{name}, {m} x {k} x {n}", work, seconds, None if name == "db" else most))
    return rows


TABLES = (
    ("Weight packed once{}, GFLOP/s", kept, "avx512"),
    ("Weight as it lies{}, GFLOP/s", lying, "avx512"),
    ("One row, weight packed once{}, GB/s", vector, "avx512"),
    ("One row, weight as it lies{}, GB/s", vector_lying, "avx512"),
    ("One row, weight packed once, in a loop{}, GB/s", again, "avx512"),
    ("One row, weight as it lies, in a loop{}, GB/s", again_lying, "avx512"),
    ("Gradients{}, GFLOP/s", gradients, "avx512"),
    ("bfloat16, weight packed once{}, GFLOP/s", pairs_kept, BEST),
    ("bfloat16, weight as it lies{}, GFLOP/s", pairs_lying, BEST),
)
PARTS = tuple(
    Part(title.format(f", {many}"), table, isa, threads)
    for threads, many in ((1, "one thread"), (2, "two threads"))
    for title, table, isa in TABLES
)

if __name__ == "__main__":
    found = run(__file__, PARTS)
    one = found.get(("avx512", 1, "1 x 4096 x 4096"))
    if one is not None:
        figure("matmul 1 x 4096 x 4096, packed weight, 1 thread", "GB/s", one)
