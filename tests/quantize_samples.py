"""Numbers that quantisers disagree on, by name."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


def samples(rows: int = 128, columns: int = 256) -> Iterator[tuple[str, Array]]:
    """Named float32 arrays [rows, columns] that quantisers disagree on."""
    rng = np.random.default_rng(7)
    shape = (rows, columns)
    normal = rng.standard_normal(shape)
    yield "normal", normal
    yield "small", normal * 0.02
    yield "heavy", rng.standard_t(3, shape)
    yield "wide", normal * np.exp2(rng.uniform(-24, 24, (rows, columns // 16)).repeat(16, 1))
    yield "tiny", normal * 2.0**-120
    yield "huge", normal * 2.0**122
    yield "subnormal", normal * 2.0**-130
    yield "zeros", np.zeros(shape)
    yield (
        "zero blocks",
        np.where(rng.random((rows, columns // 32)).repeat(32, 1) < 0.5, normal, np.copysign(0.0, normal)),
    )
    yield "steps", np.round(normal * 8) / 8
    x = np.where(rng.random(shape) < 0.001, normal * 100, normal)
    yield "outliers", x
    for name, value in (("nan", np.nan), ("inf", np.inf), ("minus inf", -np.inf)):
        x = normal.copy()
        x[3, 40] = value
        yield name, x
    x = normal.copy()
    x[3, 40:42], x[5, 7], x[60, 0] = (np.nan, np.inf), -np.inf, np.nan
    yield "nan and inf", x
