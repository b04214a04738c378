"""Products of arrays that are called again, remembered or not."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import samebits as sb
from samebits.kernels import gemm
from samebits.native.table import alone

Array = np.ndarray[Any, np.dtype[Any]]
F32 = np.float32


@pytest.mark.usefixtures("way")
def test_a_remembered_call_takes_no_other_shape_for_its_own() -> None:
    k = 256
    r = np.random.default_rng(1)
    x, w = r.standard_normal((4, k), F32), r.integers(-128, 128, (k, k)).astype(np.int8)
    s = r.random((k, k), F32)
    weights: list[tuple[Array, int | None]] = [
        (s[0, 0].reshape(()), None), (s[0], None), (s[:, :1], None), (s[:, :1], k), (s, 1), (s[:, :2], 128), (s, None),
        (s[:1], None), (s[:1, :1], None), (s[:1].copy(), 1),
    ]  # fmt: skip
    first = [outcome(lambda s=s, g=g: sb.linear(x, w, weight_scale=s, group=g)) for s, g in weights]
    rows = [s[0, :4], s[:4, :1], s[:1, :4], s[:1, :1], s[0, :1], s[0, 0].reshape(())]
    scaled = [outcome(lambda s=s: sb.matmul(x, w, a_scale=s)) for s in rows]
    assert len(set(first)) == 7
    assert len(set(scaled)) == 4
    for _ in range(5):
        assert first == [outcome(lambda s=s, g=g: sb.linear(x, w, weight_scale=s, group=g)) for s, g in weights]
        assert scaled == [outcome(lambda s=s: sb.matmul(x, w, a_scale=s)) for s in rows]


def outcome(call: Callable[[], Array]) -> bytes | type[Exception]:
    try:
        return call().tobytes()
    except sb.ShapeError as error:
        return type(error)


@pytest.mark.usefixtures("way")
def test_linear_adds_in_the_order_that_it_is_given() -> None:
    r = np.random.default_rng(4)
    x, w = r.standard_normal((5, 700), F32), r.standard_normal((7, 700), F32)
    specs = [sb.Spec(), sb.Spec(chunk=32), sb.Spec(segments=2), sb.Spec(order="pairs32")]
    due = [gemm.reference(x, w.T, spec=spec) for spec in specs]
    assert len({each.tobytes() for each in due}) == len(specs)
    for _ in range(4):
        for spec, each in zip(specs, due, strict=True):
            assert sb.linear(x, w, spec=spec).tobytes() == each.tobytes()


X, W, C = (np.random.default_rng(seed).standard_normal((6, 6)).astype(F32) for seed in range(3))
BYTES = np.random.default_rng(3).integers(-128, 128, (6, 6)).astype(np.int8)
# Calls with a number, and what the same is by NumPy or by the reference.
NUMBERS: dict[str, tuple[Callable[[float], Array], Callable[[float], Array]]] = {
    "an operand": (lambda x: sb.multiply(X, x), lambda x: X * F32(x)),
    "the first operand": (lambda x: sb.subtract(x, X), lambda x: F32(x) - X),
    "chosen": (lambda x: sb.where(X > 0, X, x), lambda x: np.where(X > 0, X, F32(x))),
    "alpha": (lambda x: sb.matmul(X, W, alpha=x), lambda x: gemm.reference(X, W, alpha=x)),
    "beta": (lambda x: sb.matmul(X, W, c=C, beta=x), lambda x: gemm.reference(X, W, c=C, beta=x)),
    "a scale": (lambda x: sb.matmul(X, W, a_scale=x), lambda x: gemm.reference(X, W, scale=np.full((1, 1), x, F32))),
    "a zero point": (
        lambda x: sb.matmul(BYTES, BYTES, a_zero_point=int(x * 16)),
        lambda x: (BYTES.astype(np.int32) - np.int32(x * 16)) @ BYTES.astype(np.int32),
    ),
    "filled": (lambda x: sb.fill(np.empty(5, F32), x), lambda x: np.full(5, x, F32)),
}


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("name", NUMBERS)
def test_other_numbers_are_neither_planned_nor_compiled_anew(name: str) -> None:
    call, due = NUMBERS[name]
    call(0.75)
    tables = alone.cache_info().misses
    for number in np.linspace(-7, 7, 50) + 0.01:  # 1 is none of them: an alpha of 1 is as good as none
        assert call(float(number)).tobytes() == due(float(number)).tobytes()
    assert alone.cache_info().misses == tables
