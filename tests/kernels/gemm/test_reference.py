"""The reference of products with every option: beside exact fractions, and what `matmul` gives for drawn options."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import samebits as sb
from samebits import dtypes
from samebits.kernels.gemm.reference import integers, product, reference
from samebits.operations.product import activation

Array = np.ndarray[Any, np.dtype[Any]]
M, K, N = 5, 70, 9


def drawn(rng: np.random.Generator, kind: Any, *shape: int) -> Array:
    row = dtypes.of(kind)
    if row.is_integer:
        return rng.integers(int(row.min), int(row.max) + 1, shape).astype(kind)
    return rng.standard_normal(shape).astype(kind)


def scale_of(rng: np.random.Generator, lines: int, kind: Any = np.float32) -> Any:
    """For all or for each line, as a number or in one of the shapes of `matmul`."""
    shapes: list[tuple[int, ...]] = [(), (1, 1), (lines,)]
    shape = shapes[int(rng.integers(3))]
    return np.exp(rng.standard_normal(shape)).astype(kind)


def point_of(rng: np.random.Generator, lines: int, kind: Any) -> Any:
    return drawn(rng, kind, *[(), (lines,)][int(rng.integers(2))])


def of_floats(rng: np.random.Generator) -> tuple[Array, Array, dict[str, Any]]:
    """Floats of two formats, or weights beside floats, in blocks or not."""
    halves = (np.float32, ml_dtypes.bfloat16, np.float16)
    kind = halves[int(rng.integers(3))] if rng.random() < 0.8 else np.float64
    lefts = [kind, np.int8, ml_dtypes.uint4] if kind is not np.float64 else [kind, np.float32]
    right = lefts[int(rng.integers(len(lefts)))]
    a, b, given = drawn(rng, kind, 2, M, K), drawn(rng, right, K, N), dict[str, Any]()
    wide = np.float64 if kind is np.float64 else np.float32
    grouped = wide is np.float32 and rng.random() < 0.5
    if rng.random() < 0.5:
        given["a_scale"] = scale_of(rng, M, wide)
    if rng.random() < 0.5 or grouped:
        given["b_scale"] = drawn(rng, np.float32, -(-K // 32), N) if grouped else scale_of(rng, N, wide)
    if dtypes.of(right).is_integer and rng.random() < 0.5:
        blocks = grouped and rng.random() < 0.5
        given["b_zero_point"] = drawn(rng, right, -(-K // 32), N) if blocks else point_of(rng, N, right)
    return a, b, given | ({"b_group": 32} if grouped else {})


def of_integers(rng: np.random.Generator) -> tuple[Array, Array, dict[str, Any]]:
    """Integers, or floats that are quantised, perhaps requantised."""
    kinds = (np.int8, np.uint8)
    left, right = kinds[int(rng.integers(2))], kinds[int(rng.integers(2))]
    quantised = rng.random() < 0.4
    a, b = drawn(rng, np.float32 if quantised else left, M, K), drawn(rng, right, K, N)
    given: dict[str, Any] = {"a_dtype": dtypes.of(left).name, "a_scale": scale_of(rng, M)} if quantised else {}
    if rng.random() < 0.5:
        given["a_zero_point"] = point_of(rng, M, left)
    if rng.random() < 0.5:
        given["b_zero_point"] = point_of(rng, N, right)
    if rng.random() < 0.4:
        given |= {"a_scale": scale_of(rng, M), "b_scale": scale_of(rng, N), "out_scale": scale_of(rng, N) * 500}
        given |= {"out_zero_point": point_of(rng, N, np.uint8), "out_dtype": "uint8"}
        return a, b, given | ({"bias": rng.integers(-999, 999, N).astype(np.int32)} if rng.random() < 0.5 else {})
    if rng.random() < 0.5:
        given["b_scale"] = scale_of(rng, N)
    if rng.random() < 0.3:
        given["bias"] = rng.integers(-999, 999, N).astype(np.int32)
    return a, b, given


def finished(rng: np.random.Generator, given: dict[str, Any], is_wide: bool) -> dict[str, Any]:
    """Addends and factors of what is a float."""
    kind = np.float64 if is_wide else np.float32
    if rng.random() < 0.5:
        given |= {"c": drawn(rng, kind, M, N), "beta": float(rng.standard_normal())}
    if rng.random() < 0.5 and "bias" not in given:
        given["bias"] = drawn(rng, kind, N)
    if rng.random() < 0.5:
        given["alpha"] = float(rng.standard_normal())
    if rng.random() < 0.4 and not is_wide:
        given["activation"] = ("relu", "gelu")[int(rng.integers(2))]
    if rng.random() < 0.4 and not is_wide:
        given["out_dtype"] = ("float32", "bfloat16", "float16")[int(rng.integers(3))]
    return given


def meant(a: Array, b: Array, result: Any, given: dict[str, Any]) -> Array:
    """The reference's product with the arguments of `matmul`."""
    given = {key: value for key, value in given.items() if key != "out_dtype"}
    size = given.pop("b_group", None)
    options: dict[str, Any] = {"groups": (None, None if size is None else (size, 1))}
    if "activation" in given:
        options["activation"] = activation(given.pop("activation"))
    if "a_dtype" in given:
        options["a_dtype"] = dtypes.of(given.pop("a_dtype"))
    return product(a, b, dtypes.of(result), **options, **given)


@pytest.mark.parametrize("seed", range(12))
def test_matmul_has_its_bits_whatever_the_options(seed: int) -> None:
    rng = np.random.default_rng([5, seed])
    for _ in range(12):
        a, b, given = (of_floats, of_integers)[int(rng.integers(2))](rng)
        is_exact = dtypes.of(b.dtype).is_integer and (dtypes.of(a.dtype).is_integer or "a_dtype" in given)
        if not is_exact or ("b_scale" in given and "out_scale" not in given):
            given = finished(rng, given, a.dtype == np.float64)
        got = sb.matmul(a, b, **given)
        due = meant(a, b, got.dtype, given)
        assert due.dtype == got.dtype
        assert np.broadcast_to(due, got.shape).tobytes() == got.tobytes(), (a.dtype, b.dtype, sorted(given))


def test_scaled_sums_are_the_rationals_that_they_stand_for() -> None:
    rng = np.random.default_rng(6)
    a, b = drawn(rng, np.int8, M, K), drawn(rng, np.uint8, K, N)
    zeros, scales = (drawn(rng, np.int8, M), drawn(rng, np.uint8, N)), (scale_of(rng, M), scale_of(rng, N))
    got = product(
        a, b, dtypes.int8, a_zero_point=zeros[0], b_zero_point=zeros[1], a_scale=scales[0], b_scale=scales[1],
        out_scale=np.float32(700), out_zero_point=np.int8(-3),
    )  # fmt: skip
    of_a, of_b = np.broadcast_to(scales[0].ravel(), M), np.broadcast_to(scales[1].ravel(), N)
    for m in range(M):
        for n in range(N):
            total = sum((int(a[m, k]) - int(zeros[0][m])) * (int(b[k, n]) - int(zeros[1][n])) for k in range(K))
            due = round(total * Fraction(float(of_a[m])) * Fraction(float(of_b[n])) / 700) - 3
            assert got[m, n] == min(max(due, -128), 127)


def test_it_is_the_reference_of_floats_and_of_integers_where_there_are_no_options() -> None:
    rng = np.random.default_rng(7)
    a, b = drawn(rng, np.float32, M, K), drawn(rng, np.float32, K, N)
    assert product(a, b, dtypes.float32).tobytes() == reference(a, b).tobytes()
    x, y = drawn(rng, np.int8, M, K), drawn(rng, np.int8, K, N)
    due = integers(x, y, 3, y[0])
    assert np.array_equal(product(x, y, dtypes.int64, a_zero_point=3, b_zero_point=y[0]), due)
