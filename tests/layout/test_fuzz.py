"""Random layouts against NumPy and brute force: what every index maps to, and every fact that layouts tell."""

import random

import pytest
import views


def run(count: int, seed: int) -> None:
    """So many layouts, made by up to six operations in a row; beside them, arbitrary bit strides and repacked ones."""
    rng = random.Random(seed)
    checked = repacked = 0
    while checked < count:
        pair = views.random_pair(rng)
        for _ in range(rng.randint(1, 6)):
            found = views.step(rng, pair)
            if found[0].size > 512 or (found[0].size < 2 and rng.random() < 0.8):
                break
            if found is not pair:
                views.check_pair(rng, found)
                checked += 1
            pair = found
        views.check_aliasing(rng)
        repacked += views.check_repack(rng)
    assert repacked > count // 50


def test_random_layouts_equal_numpy_and_brute_force() -> None:
    run(3000, 1)


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", range(2, 12))
def test_ten_thousand_random_layouts_equal_numpy_and_brute_force(seed: int) -> None:
    run(10_000, seed)
