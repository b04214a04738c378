"""The default float environment: in force inside, the caller's own again after, on a system that can."""

import floating
import numpy as np
import pytest

from samebits import driver

TINY = np.float32(2.0**-126)


def computed() -> tuple[float, ...]:
    """What tells the modes apart: quotients that are rounded down and up, and a product that is subnormal."""
    one = np.float64(1)
    return float(one / 3), float(one / 10), float(TINY * np.float32(0.5)) * 2.0**20


@pytest.mark.parametrize("mode", floating.MODES)
def test_the_default_environment_ends_with_its_block(mode: str) -> None:
    due = computed()
    with floating.environment(mode):
        before = computed()
        with driver.default_float_environment():
            inside = computed()
            with driver.default_float_environment():
                nested = computed()
            again = computed()
        after = computed()
        with pytest.raises(KeyError), driver.default_float_environment():
            raise KeyError
        raised = computed()
    assert due == inside == nested == again == computed()
    assert before == after == raised != due


@pytest.mark.parametrize("mode", floating.MODES)
def test_a_function_in_the_default_environment(mode: str) -> None:
    @driver.default_float_environment()
    def inner(deep: int) -> list[tuple[float, ...]]:
        return [computed(), *(inner(deep - 1) if deep else []), computed()]

    due = computed()
    with floating.environment(mode):
        before, made, after = computed(), inner(2), computed()
    assert set(made) == {due}
    assert before == after != due


def test_a_system_without_modes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "libc", object)
    driver._float_calls.cache_clear()
    try:
        with driver.default_float_environment():
            assert driver._float_calls() is None
    finally:
        driver._float_calls.cache_clear()
