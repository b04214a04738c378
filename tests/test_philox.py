"""Philox4x32-10 gives the words that its authors publish, and an element's word depends on seed and index alone."""

from __future__ import annotations

import numpy as np
import pytest

from samebits import philox

# Random123's kat_vectors, philox4x32 with 10 rounds: counter, key, words.
KNOWN = (
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
)


@pytest.mark.parametrize(("counter", "key", "words"), KNOWN)
def test_blocks_are_those_of_the_paper(counter: tuple[int, ...], key: tuple[int, int], words: tuple[int, ...]) -> None:
    a, b, c, d = (np.array([word], np.uint64) for word in counter)
    assert tuple(int(word[0]) for word in philox.block((a, b, c, d), key)) == words


def test_a_word_is_one_of_its_counters_four() -> None:
    seed, index = 0x299F31D0A4093822, 0x85A308D3_243F6A88
    high = index >> 2
    parts = [np.array([part], np.uint64) for part in (high & 0xFFFFFFFF, high >> 32, 0, 0)]
    a, b, c, d = parts
    block = philox.block((a, b, c, d), (seed & 0xFFFFFFFF, seed >> 32))
    found = philox.words(seed, np.uint64(index & ~3) + np.arange(4, dtype=np.uint64))
    assert found.dtype == np.uint32
    assert found.tolist() == [int(word[0]) for word in block]


def test_words_are_those_of_the_index_in_any_order() -> None:
    index = np.array([[7, 0, 3], [1 << 40, 5, 2]], np.uint64)
    every = philox.words(9, np.arange(8))
    assert philox.words(9, index)[0].tolist() == every[[7, 0, 3]].tolist()
    assert philox.words(9, index)[1, 1:].tolist() == every[[5, 2]].tolist()
    assert not np.array_equal(philox.words(10, np.arange(8)), every)
