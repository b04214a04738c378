"""Arrays that are kept in blocks: what is copied, where it lies, and how long."""

import mmap
import weakref

import ml_dtypes
import numpy as np
import pytest

from samebits.memory import ALIGNMENT, address_of, pages
from samebits.memory import chunks as chunks_module
from samebits.memory.chunks import Chunks
from samebits.memory.pages import HUGE, MAPPED, FreshPages


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
    def refuse(*given: object, **named: object) -> None:
        raise MemoryError

    x, chunks = np.zeros(MAPPED, np.uint8), Chunks()
    monkeypatch.setattr(np, "empty", refuse)
    monkeypatch.setattr(chunks_module, "FreshPages", refuse)
    assert chunks.keep(x) is x


@pytest.fixture(params=["quick", "slow", "slow after one"])
def advised(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> tuple[str, list[tuple[int, ...]]]:
    """How huge pages come, and what the system was advised of."""
    told: list[tuple[int, ...]] = []
    times = iter(range(0, 1 << 62, 2 * pages._SLOW_NS if request.param == "slow after one" else 1))
    monkeypatch.setattr(pages, "_are_slow", request.param == "slow")
    monkeypatch.setattr(pages.time, "thread_time_ns", lambda: next(times))
    monkeypatch.setattr(pages, "_advise", lambda mapped, *advice: told.append(advice))
    return request.param, told


def test_fresh_pages_are_huge_until_one_comes_slowly(advised: tuple[str, list[tuple[int, ...]]]) -> None:
    how, told = advised
    fresh = FreshPages(3 * HUGE + 5)
    assert address_of(fresh.array) % HUGE == 0
    assert fresh.array.nbytes == 3 * HUGE + 5
    for end in (1, HUGE, HUGE + 1, 3 * HUGE + 5):
        fresh.reach(end)
        fresh.array[:end] = 7
    huge, small = (mmap.MADV_HUGEPAGE,), (mmap.MADV_NOHUGEPAGE,)
    begin, page = fresh._begin, mmap.PAGESIZE
    populated = {
        "quick": [],
        "slow": [(0, page), (page, HUGE - page), (HUGE, page), (HUGE + page, 2 * HUGE)],
        "slow after one": [(HUGE, page), (HUGE + page, 2 * HUGE)],
    }[how]
    parts = [(pages._POPULATE, begin + start, size) for start, size in populated]
    assert told == ([huge] if how == "quick" else [huge, small, *parts])
    assert (fresh.array == 7).all()


def test_fewer_bytes_than_a_huge_page_are_numpys() -> None:
    fresh = FreshPages(HUGE - 1)
    fresh.reach(HUGE - 1)
    assert (fresh.array.nbytes, fresh.array.base) == (HUGE - 1, None)


@pytest.mark.parametrize("size_bytes", [1 << 60, (1 << 63) - 1])
def test_no_memory_is_a_memory_error(size_bytes: int) -> None:
    with pytest.raises(MemoryError):
        FreshPages(size_bytes)
