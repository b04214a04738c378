"""The Hadamard transform: its matrix, its bits, its inverse, and what it is for."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import samebits as sb
from samebits.errors import DTypeError, OptionError, ShapeError
from samebits.kernels.gemm.reference import reference

F32 = np.float32
SIGNS = np.array([1, 1, 1, -1, 1, -1, -1, -1, -1, -1, -1, 1, -1, 1, -1, -1])


def matrix(signs: Any = SIGNS) -> Any:
    """H[k, i] is -1 to the number of ones that k and i share in binary."""
    shared = np.array([[bin(k & i).count("1") for i in range(16)] for k in range(16)])
    return (np.asarray(signs)[:, None] * (-1.0) ** shared / 4).astype(F32)


@pytest.mark.parametrize("kind", [F32, ml_dtypes.bfloat16, np.float16])
@pytest.mark.parametrize("shape", [(16,), (3, 48), (2, 3, 64), (0, 32)])
def test_it_is_the_product_with_the_matrix(shape: tuple[int, ...], kind: Any) -> None:
    x = np.random.default_rng(0).standard_normal(shape).astype(kind)
    due = reference(x.reshape(-1, 16).astype(F32), matrix()).reshape(shape).astype(kind)
    found = sb.hadamard(x)
    assert found.dtype == x.dtype
    np.testing.assert_array_equal(found.view(np.uint8), due.view(np.uint8))
    plain = reference(x.reshape(-1, 16).astype(F32), matrix([1] * 16)).reshape(shape).astype(kind)
    np.testing.assert_array_equal(sb.hadamard(x, signs=[1] * 16).view(np.uint8), plain.view(np.uint8))


def test_the_inverse_undoes_it() -> None:
    x = np.arange(64, dtype=F32).reshape(2, 32)  # sums of such numbers are exact
    np.testing.assert_array_equal(sb.hadamard(sb.hadamard(x), inverse=True), x)


def test_an_outlier_is_spread_over_its_run() -> None:
    x = np.random.default_rng(1).standard_normal((64, 256)).astype(F32)
    x[:, ::64] = 100
    turned = sb.hadamard(x)
    assert abs(turned).max() < 50
    # A chain of 16 fma errs by 16 * 2**-24 of the sum of its 16 terms' magnitudes, which all together have at most 4
    # times the norm of x: its square errs by twice 4 * 2**-20, and by less than that again for what is of second order.
    energy, due = ((v.astype(np.float64) ** 2).sum() for v in (turned, x))
    assert abs(energy - due) < 2 * (2 * 4 * 2.0**-20) * due
    back = sb.hadamard(turned, inverse=True)
    # The way back errs by 2**-20 of the norm of its run, as the way there did, of whose errors it adds a quarter of 16.
    norms = np.sqrt((x.astype(np.float64).reshape(64, 16, 16) ** 2).sum(-1))
    assert abs(back.astype(np.float64) - x).max() < 1.001 * (1 + 4) * 2.0**-20 * norms.max()


def test_what_is_wrong_is_one_sentence() -> None:
    x = np.ones((2, 32), F32)
    cases: list[tuple[Any, type[Exception], str]] = [
        (lambda: sb.hadamard(x[:, :30]), ShapeError,
         "x last extent is 30, must be a multiple of 16; pad it with zeros first"),
        (lambda: sb.hadamard(F32(1)), ShapeError,
         "x last extent is missing, must be a multiple of 16; pad it with zeros first"),
        (lambda: sb.hadamard(x.astype(np.int8)), DTypeError,
         "x dtype is int8, must be float32 or bfloat16 or float16; convert it first"),
        (lambda: sb.hadamard(x, signs=[1, -1]), OptionError,
         "signs is [1, -1], must be 16 of 1 and -1; leave them out for the usual ones"),
        (lambda: sb.hadamard(x, inverse=1), OptionError, "inverse is 1, must be True or False; pass one of these"),
    ]  # fmt: skip
    for call, kind, sentence in cases:
        with pytest.raises(kind) as caught:
            call()
        assert str(caught.value) == f"hadamard: {sentence}"
