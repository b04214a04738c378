"""Arrays that are kept in blocks: what is copied, where it lies, and how long."""

import weakref

import ml_dtypes
import numpy as np
import pytest

from samebits.memory import ALIGNMENT, address_of
from samebits.memory.chunks import Chunks
from samebits.memory.pages import MAPPED


@pytest.mark.parametrize("dtype", [np.int8, np.float32, np.float64, ml_dtypes.bfloat16])
def test_copies_are_dense_aligned_and_never_overlap(dtype: type) -> None:
    chunks = Chunks()
    given = [np.arange(MAPPED + 13 * i).astype(dtype) for i in range(40)]
    made = [chunks.keep(x) for x in given]
    ends = 0
    for x, copy in zip(given, made, strict=True):
        assert copy is not x
        assert (copy.dtype, copy.shape) == (x.dtype, x.shape)
        assert copy.flags.c_contiguous
        assert copy.flags.aligned
        assert copy.tobytes() == x.tobytes()
        assert address_of(copy) % ALIGNMENT == 0
    spans = sorted((address_of(x), address_of(x) + x.nbytes) for x in made)
    for start, end in spans:
        assert start >= ends
        ends = end


def test_other_strides_are_made_dense() -> None:
    x = np.arange(2 * MAPPED, dtype=np.int32).reshape(-1, 8)
    copy = Chunks().keep(x.T)
    assert copy is not x
    assert copy.flags.c_contiguous
    assert (copy == x.T).all()


@pytest.mark.parametrize("size", [0, MAPPED - 1, 4 << 20])
def test_small_arrays_and_those_that_get_huge_pages_anyway_are_left(size: int) -> None:
    x = np.zeros(size, np.uint8)
    assert Chunks().keep(x) is x


def test_a_block_is_free_when_none_of_its_arrays_is_left() -> None:
    chunks = Chunks()
    made = [chunks.keep(np.zeros(3 << 20, np.uint8)) for _ in range(12)]
    blocks = {id(x.base): weakref.ref(x.base) for x in made if x.base is not None}
    assert len(blocks) == 3
    del made, chunks
    assert all(block() is None for block in blocks.values())


@pytest.mark.parametrize("count", [0, 7, MAPPED // 4, MAPPED])
def test_memory_that_is_asked_for_is_aligned_and_nobody_elses(count: int) -> None:
    chunks = Chunks()
    made = [chunks.empty(count, np.float32) for _ in range(3)]
    for number, x in enumerate(made):
        assert (x.dtype, x.shape) == (np.float32, (count,))
        x[:] = number
    assert [set(x.tolist()) for x in made] == [{0.0}, {1.0}, {2.0}] if count else [set()] * 3
    assert all(address_of(x) % ALIGNMENT == 0 for x in made) or 4 * count < MAPPED


def test_no_memory_for_a_block_is_no_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*given: object) -> None:
        raise MemoryError

    x, chunks = np.zeros(MAPPED, np.uint8), Chunks()
    monkeypatch.setattr(np, "empty", refuse)
    assert chunks.keep(x) is x
