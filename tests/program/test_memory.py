"""The arena: nothing that lives at the same time overlaps, everything is aligned."""

from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from samebits.kernels.plan import LINE_BYTES
from samebits.program import memory
from samebits.program.memory import side_by_side


class Life(NamedTuple):
    """A temporary."""

    size_bytes: int
    first: int
    last: int


def place(lives: list[Life]) -> tuple[list[int], int]:
    return memory.place([life.size_bytes for life in lives], tuple([(life.first, life.last) for life in lives]))


LIVES = st.lists(
    st.builds(
        lambda size, first, length: Life(size, first, first + length),
        st.integers(0, 1000),
        st.integers(0, 20),
        st.integers(0, 8),
    ),
    max_size=30,
)


@given(LIVES)
def test_lives_that_meet_do_not_overlap(lives: list[Life]) -> None:
    offsets, total = place(lives)
    for i, (life, offset) in enumerate(zip(lives, offsets, strict=True)):
        assert offset % LINE_BYTES == 0
        assert offset + life.size_bytes <= total
        for other, at in list(zip(lives, offsets, strict=True))[:i]:
            apart = offset + life.size_bytes <= at or at + other.size_bytes <= offset
            assert apart or other.last < life.first or life.last < other.first or not life.size_bytes


@given(LIVES)
def test_side_by_side_none_shares_memory(lives: list[Life]) -> None:
    offsets, total = side_by_side([life.size_bytes for life in lives])
    ends = [offset + lines(life) for offset, life in zip(offsets, lives, strict=True)]
    assert [*offsets, total] == [0, *ends]


def test_one_after_the_other_share_memory() -> None:
    chain = [Life(4096, i, i + 1) for i in range(10)]
    assert place(chain)[1] == 2 * 4096


@given(LIVES)
def test_each_lies_as_low_as_those_placed_before_it_leave_room(lives: list[Life]) -> None:
    """The largest first, every offset tried."""
    due = [0] * len(lives)
    placed: list[int] = []
    for i in sorted(range(len(lives)), key=lambda i: (-lives[i].size_bytes, lives[i].first)):
        met = [j for j in placed if lives[j].first <= lives[i].last and lives[i].first <= lives[j].last]
        while any(due[i] < due[j] + lines(lives[j]) and due[j] < due[i] + lines(lives[i]) for j in met):
            due[i] += LINE_BYTES
        placed.append(i)
    assert place(lives) == (due, max([0, *(at + lines(life) for at, life in zip(due, lives, strict=True))]))


def lines(life: Life) -> int:
    """Bytes in whole cache lines."""
    return -(-life.size_bytes // LINE_BYTES) * LINE_BYTES


def test_who_meets_whom_is_remembered_of_few_alone() -> None:
    memory._meeting.cache_clear()
    for count in (10, 1100):
        lives = [Life(1, i, 2000) for i in range(count)]
        assert place(lives)[1] == count * LINE_BYTES
        assert memory._meeting.cache_info().currsize == 1
