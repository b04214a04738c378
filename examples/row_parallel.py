"""A product whose K lies on several workers: each sums its own segments, and their count changes no bit."""

import numpy as np
from numpy.typing import NDArray

import samebits as sb

SPEC = sb.Spec(segments=8)
Floats = NDArray[np.float32]


def join(parts: list[Floats]) -> Floats:
    """Neighbours are added in pairs until one is left: numerics.md section 2."""
    while len(parts) > 1:
        parts = [sb.add(x, y) for x, y in zip(parts[::2], parts[1::2], strict=True)]
    return parts[0]


def worker(a: Floats, b: Floats, bounds: list[tuple[int, int]]) -> Floats:
    """What one worker sends: the join of its segments, each a product of its own."""
    low = bounds[0][0]
    return join([sb.matmul(a[:, x - low : y - low], b[x - low : y - low], out_dtype="float32") for x, y in bounds])


def main() -> None:
    """Print the digest of a product by 1, 2, 4 and 8 workers."""
    rng = np.random.default_rng(0)
    a = rng.standard_normal((5, 3000)).astype(np.float32)
    b = rng.standard_normal((3000, 64)).astype(np.float32)
    whole = sb.matmul(a, b, spec=SPEC)
    bounds = list(SPEC.bounds(a.shape[1]))
    for workers in (1, 2, 4, 8):
        shares = [bounds[i : i + 8 // workers] for i in range(0, 8, 8 // workers)]
        parts = [worker(a[:, s[0][0] : s[-1][1]], b[s[0][0] : s[-1][1]], s) for s in shares]
        print(workers, "workers:", sb.Tensor.from_any(join(parts)).digest(), np.array_equal(join(parts), whole))


if __name__ == "__main__":
    main()
