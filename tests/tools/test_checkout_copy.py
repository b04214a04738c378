"""What a run in a copy says: which test failed, or was running when it ended."""

import checkout_copy
import pytest

STARTED = "tests/test_a.py::test_one[1 - 2] PASSED      [ 50%]\ntests/test_a.py::test_two[x y] "


@pytest.mark.parametrize(
    ("said", "test"),
    [
        (
            STARTED + "FAILED [100%]\n=== short test summary info ===\nFAILED tests/test_a.py::test_two[x y] - E: 1\n",
            "tests/test_a.py::test_two[x y]",
        ),
        ("=== short test summary info ===\nERROR tests/test_a.py\n!!! stopping !!!\n", "tests/test_a.py"),
        (STARTED, "tests/test_a.py::test_two[x y]"),
        (STARTED + "Fatal Python error: Segmentation fault\n", "tests/test_a.py::test_two[x y]"),
        ("", "the import of its tests"),
    ],
)
def test_the_culprit_is_named(said, test):
    assert checkout_copy.culprit(said) == test


def test_a_clock_ends_what_runs_too_long_and_all_when_it_is_over():
    clock = checkout_copy.Clock(None)
    assert clock.run(["true"], 60) == 0
    assert clock.run(["sleep", "60"], 0.1) is None
    clock.stop()
    with pytest.raises(checkout_copy.OutOfTime):
        clock.run(["true"], 60)
    with pytest.raises(checkout_copy.OutOfTime):
        checkout_copy.Clock(0.1).run(["sleep", "60"], 60)
