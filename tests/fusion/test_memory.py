"""Many definitions, one after the other: their memory is bounded by the cache."""

import apart
import numpy as np
import pytest

from samebits.fusion import FusionDefinition, LRUCache


def growth() -> int:
    """Bytes that 1024 definitions add after 4096 that fill the caches of plans, which hold so many each."""
    apart.without_huge_pages()
    cache, marks = LRUCache(16), []
    for number in range(4096 + 1024):
        with FusionDefinition() as fd:
            x = fd.define_tensor([-1, number + 1], contiguity=True)
            fd.add_output(fd.ops.sum(fd.ops.mul(x, x), dims=[1]))
        fd.fec = cache.cache_compile(fd.fusion)
        (y,) = fd.execute([np.ones((2, number + 1), np.float32)])
        assert y.tolist() == [number + 1] * 2
        if number in (4095, 4096 + 1023):
            marks.append(apart.resident())
    assert cache.num_fusions() == 16
    return marks[1] - marks[0]


@pytest.mark.slow
def test_definitions_that_run_take_flat_memory() -> None:
    # A definition that stayed would be thousands of bytes, so several megabytes here.
    assert int(apart.printed(__file__)) < 1 << 20


if __name__ == "__main__":
    print(growth())
