"""How far converted tensors are from what they were, whatever parts the sums were taken in."""

from __future__ import annotations

import numpy as np

from samebits.checkpoint.element_error import ElementError

R = np.random.default_rng(0)


def test_an_error_is_that_of_the_whole_whatever_its_parts() -> None:
    x = R.standard_normal((37, 29))
    y = x.astype(np.float16).astype(np.float64)
    x[3, 4], y[3, 4], y[5, 6] = np.nan, np.nan, 0.0
    whole, parts = ElementError(x.shape, pictured=True), ElementError(x.shape, pictured=True)
    whole.add(x.ravel(), y.ravel())
    for row in range(0, 37, 5):
        parts.add(x[row : row + 5].ravel(), y[row : row + 5].ravel())
    assert (whole.lost, whole.not_finite) == (parts.lost, parts.not_finite) == (1, 1)
    error = np.where(np.isfinite(x), x - y, 0.0)
    assert whole.largest == parts.largest == abs(error).max()
    due = 10 * np.log10((np.where(np.isfinite(x), x, 0) ** 2).sum() / (error**2).sum())
    # Two sums of n squares on each side, each within n * 2**-53 of itself, and the roundings of the logarithm.
    bound = 4 * (10 / np.log(10)) * x.size * 2.0**-53 + 4 * due * 2.0**-53
    assert abs(whole.sqnr_db - due) < bound
    assert abs(parts.sqnr_db - due) < bound
    assert whole.cells is not None
    assert parts.cells is not None
    np.testing.assert_array_equal(whole.cells, parts.cells)  # a cell for each element
    np.testing.assert_array_equal(whole.cells[0], error**2)


def test_a_large_matrix_has_as_many_cells_as_a_picture_shows() -> None:
    x = np.ones((1000, 500))
    found = ElementError(x.shape, pictured=True)
    found.add(x.ravel(), x.ravel() * 1.5)
    assert found.cells is not None
    assert found.cells.shape == (2, 96, 96)
    assert found.cells[0].sum() == 1000 * 500 * 0.25
    assert found.sqnr_db == 10 * np.log10(4)
    assert ElementError((3, 0)).sqnr_db == np.inf
