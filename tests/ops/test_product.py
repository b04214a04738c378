"""Products of arrays that are called again, remembered or not."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import samebits as sb

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
