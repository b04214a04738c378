"""Ragged groups of rows, 512 x 1024 by G matrices of 1024 x 1024, beside torch's grouped_mm and a loop of its mm.

Milliseconds of one thread, medians of turns in one process; sizes are uneven, some groups have few rows or none. jax's
ragged_dot multiplies every row with every matrix on a CPU (8 groups of float32: 117 ms) and is left out.
`python benches/grouped.py`
"""

from __future__ import annotations

import ml_dtypes
import numpy as np
import torch

import samebits as sb
from samebits.bench.measure import Call, clock, medians

T, K, N = 512, 1024, 1024


def measured(groups: int, name: str) -> dict[str, float]:
    """Milliseconds of each candidate."""
    rng = np.random.default_rng(groups)
    kind = np.dtype(getattr(ml_dtypes, name, None) or name)
    sizes = rng.multinomial(T, rng.dirichlet(np.ones(groups))).tolist()
    a, b = rng.standard_normal((T, K)).astype(kind), rng.standard_normal((groups, K, N)).astype(kind)
    x, w = (torch.from_numpy(z.astype(np.float32)).to(getattr(torch, name)) for z in (a, b))
    kept, ends = sb.pack(b), torch.tensor(np.cumsum(sizes), dtype=torch.int32)
    rows = [slice(end - size, end) for size, end in zip(sizes, ends.tolist(), strict=True)]

    def loop() -> object:
        return [torch.mm(x[part], w[g]) for g, part in enumerate(rows) if part.stop > part.start]

    calls: dict[str, Call] = {
        "ours": lambda: sb.grouped_matmul(a, b, sizes, threads=1),
        "ours, packed": lambda: sb.grouped_matmul(a, kept, sizes, threads=1),
        "grouped_mm": lambda: torch.nn.functional.grouped_mm(x, w, offs=ends),
        "loop of mm": loop,
    }
    return {key: value * 1e3 for key, value in medians(calls, 9, clock=clock(1)).items()}


def main() -> None:
    """Measure and print."""
    torch.set_num_threads(1)
    print(
        "| dtype | groups | ours | ours, packed | grouped_mm | loop of mm | best of torch / ours |\n" + "|---" * 7 + "|"
    )
    for name in ("float32", "bfloat16"):
        for groups in (8, 64):
            found = measured(groups, name)
            ratio = min(found["grouped_mm"], found["loop of mm"]) / found["ours"]
            figures = " | ".join(f"{value:.1f}" for value in found.values())
            print(f"| {name} | {groups} | {figures} | {ratio:.2f} |")


if __name__ == "__main__":
    main()
