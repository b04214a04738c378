"""Integer weights beside bfloat16 activations, K = N = 4096, packed: GFLOP/s of one thread beside torch's bfloat16.

torch multiplies weights that were dequantised before, 2 bytes each; ours are a byte each, with a float16 scale for each
group of 128, and 4-bit ones with zero points too. Medians of turns in one process, of its own time. With one row,
2 GFLOP/s are one GB/s of weights.

What falls short, and why: with many rows a scale for each group costs 24 multiplications for each 1536 steps of
VDPBF16PS, 1.6 %, beside the joins that torch has not; with 128 rows the conversion, once for each weight, takes turns
with the products, 2.6 % of the time, and A is packed again for each 1344 columns, whose sums are kept in scratch,
2.3 %.
`python benches/weights.py`
"""

from __future__ import annotations

import ml_dtypes
import numpy as np
import torch

import samebits as sb
from samebits.bench.measure import Call, clock, medians

K = N = 4096
GROUP = 128


def measured(m: int) -> dict[str, float]:
    """GFLOP/s of each candidate for m rows."""
    rng = np.random.default_rng(m)
    weight, zero = rng.integers(0, 16, (K, N)), rng.integers(0, 16, (K // GROUP, N)).astype(ml_dtypes.uint4)
    scale = rng.uniform(0.01, 0.02, (K // GROUP, N)).astype(np.float16)
    x = rng.standard_normal((m, K)).astype(ml_dtypes.bfloat16)
    whole = sb.pack(weight.astype(np.int8), left="bfloat16")
    four = sb.pack(weight.astype(ml_dtypes.uint4), left="bfloat16", zero_point=zero, group=GROUP)
    floats = sb.pack(weight.astype(ml_dtypes.bfloat16))
    tx, tw = torch.from_numpy(x.astype(np.float32)).bfloat16(), torch.from_numpy(weight.T).bfloat16().contiguous()
    calls: dict[str, Call] = {
        "int8": lambda: sb.matmul(x, whole, b_scale=scale, b_group=GROUP, threads=1),
        "uint4": lambda: sb.matmul(x, four, b_scale=scale, b_group=GROUP, threads=1),
        "bfloat16": lambda: sb.matmul(x, floats, threads=1),
        "torch bfloat16": lambda: torch.nn.functional.linear(tx, tw),
    }
    return {name: 2e-9 * m * K * N / value for name, value in medians(calls, 9, clock=clock(1)).items()}


def main() -> None:
    """Measure and print."""
    torch.set_num_threads(1)
    print("| M | int8 | uint4 | bfloat16 | torch bfloat16 | int8 / torch |\n" + "|---" * 6 + "|")
    for m in (1, 4, 8, 32, 128, 512):
        found = measured(m)
        cells = " | ".join(f"{value:.1f}" for value in found.values())
        print(f"| {m} | {cells} | {found['int8'] / found['torch bfloat16']:.2f} |", flush=True)


if __name__ == "__main__":
    main()
