"""Products take what quantize gives: bits equal those of its parts, passed one by one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import samebits as sb
from samebits.kernels.gemm import reference

Array = np.ndarray[Any, np.dtype[Any]]
F32 = np.float32


def drawn(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng([seed, *shape]).standard_normal(shape, F32)


def values(x: Any) -> Array:
    """A part as NumPy has it."""
    return np.asarray(x.values() if hasattr(x, "values") else x)


# Format, then the extents of a block along the axes of a weight [N, K].
FORMATS = (
    ("nvfp4", (1, 16)), ("nvfp4-16x16", (16, 16)), ("mxfp4", (1, 32)), ("mxfp6-e2m3", (1, 32)), ("mxfp8-e4m3", (1, 32)),
    ("fp8-1x128", (1, 128)), ("fp8-128x128", (128, 128)), ("int8-group64", (1, 64)), ("int4-group32", (1, 32)),
)  # fmt: skip


@pytest.mark.parametrize(("name", "block"), FORMATS, ids=lambda x: x if isinstance(x, str) else "")
def test_both_operands_may_be_quantized(name: str, block: tuple[int, int]) -> None:
    x, w = sb.quantize(drawn(48, 256), name), sb.quantize(drawn(64, 256, seed=1), name)
    factors = [np.asarray(y.global_scale.numpy(), F32) for y in (x, w) if y.global_scale is not None]
    whole = np.prod(factors, dtype=F32) if factors else None
    due = reference(
        values(x.elements), values(w.elements).T, a_scale=values(x.scales), a_block=block, b_scale=values(w.scales).T,
        b_block=block[::-1], scale=whole,
    )  # fmt: skip
    assert np.array_equal(sb.linear(x, w).numpy(), due)
    columns = sb.quantize(drawn(64, 256, seed=1).T.copy(), name, axis=-2)
    assert np.array_equal(sb.matmul(x, columns).numpy(), due)
    assert "a_scale" in str(sb.plan_matmul(x, columns))


def test_a_weight_may_be_quantized_beside_floats() -> None:
    x, w = drawn(5, 256), sb.quantize(drawn(64, 256, seed=1), "nvfp4")
    due = reference(
        x, values(w.elements).T, b_scale=values(w.scales).T, b_block=16, scale=np.asarray(w.global_scale.numpy())
    )
    got = sb.linear(x, w)
    assert isinstance(got, np.ndarray)
    assert np.array_equal(got, due)


def test_lines_without_blocks_along_k_multiply_once() -> None:
    x, w = sb.quantize(drawn(5, 300), "int8-row"), sb.quantize(drawn(64, 300, seed=1), "int8-row")
    exact = values(x.elements).astype(np.int64) @ values(w.elements).astype(np.int64).T
    due = exact.astype(F32) * (values(x.scales) * values(w.scales).T)
    assert np.array_equal(sb.linear(x, w).numpy(), due)


def test_the_unit_of_mxint8_belongs_to_its_scales() -> None:
    x, w = sb.quantize(drawn(48, 256), "mxint8"), sb.quantize(drawn(64, 256, seed=1), "mxint8")
    scales = [np.asarray(q.scales.numpy(), F32) * F32(2.0**-6) for q in (x, w)]
    due = reference(
        values(x.elements), values(w.elements).T, a_scale=scales[0], a_block=(1, 32), b_scale=scales[1].T,
        b_block=(32, 1),
    )  # fmt: skip
    assert np.array_equal(sb.linear(x, w).numpy(), due)
    left, right = (q.dequantize().numpy().astype(np.float64) for q in (x, w))
    # 256 / 32 blocks are exact, and each is scaled and added with one rounding, of no more than all terms' magnitudes.
    assert (abs(sb.linear(x, w).numpy() - left @ right.T) <= 9 * 2.0**-24 * (abs(left) @ abs(right.T))).all()


@pytest.mark.parametrize(
    "name", ["int8-row", "int8-tensor", "fp8-row", "fp8-tensor", "fp8-column", "nvfp4", "int4-group32"]
)
def test_sums_of_nothing_are_zero_in_every_format(name: str) -> None:
    for m, n in ((5, 64), (0, 64), (5, 0)):
        x, w = sb.quantize(drawn(m, 0), name), sb.quantize(drawn(n, 0, seed=1), name)
        assert np.array_equal(sb.linear(x, w).numpy(), np.zeros((m, n), F32))
        assert np.array_equal(sb.linear(drawn(m, 0), w), np.zeros((m, n), F32))
    w = sb.quantize(drawn(0, 64), name)
    assert sb.linear(drawn(5, 64), w).shape == (5, 0)


def test_zero_points_leave_the_elements_first() -> None:
    x, w = drawn(5, 128), sb.quantize(drawn(24, 128, seed=1), "uint4-group32-zero")
    zeros = np.repeat(values(w.zero_points).T.astype(F32), 32, 0)
    due = reference(x, values(w.elements).T.astype(F32) - zeros, b_scale=values(w.scales).T, b_block=32)
    assert np.array_equal(sb.linear(x, w), due)


def test_what_products_cannot_sum_is_refused_in_one_sentence() -> None:
    x, w = drawn(5, 128), sb.quantize(drawn(24, 128, seed=1), "nf4")
    with pytest.raises(sb.OptionError) as error:
        sb.linear(x, w)
    assert str(error.value) == (
        "linear: weight format is nf4, which has a code book, must be a format whose elements are numbers, and zero "
        "points integers; pass its dequantize()"
    )
    w = sb.quantize(drawn(24, 128, seed=1), "int8-group32")
    with pytest.raises(sb.OptionError) as error:
        sb.linear(x, w, weight_scale=2.0)
    assert str(error.value) == (
        "linear: weight_scale is given beside a Quantized weight, must be left out; pass weight's elements"
    )


@pytest.mark.parametrize("name", ["int8-row", "fp8-tensor"])
def test_what_is_not_packed_with_its_scales_is_said_by_its_format(name: str) -> None:
    with pytest.raises(sb.OptionError) as error:
        sb.pack(sb.quantize(drawn(64, 64), name), left="float32")
    assert str(error.value) == (
        f"pack: b format is {name}, must be one of blocks along K, with one global scale at most; pass it to the "
        "product unpacked"
    )


@pytest.mark.parametrize(
    ("name", "dialect"), [("nvfp4", None), ("nvfp4", "nvfp4/te-2"), ("mxfp8-e4m3", "mx/even"), ("int8-group32", None)]
)
def test_floats_are_quantised_on_the_way_each_row_by_itself(name: str, dialect: str | None) -> None:
    x, w = drawn(5, 64), sb.quantize(drawn(24, 64, seed=1), name)
    whole = {} if w.global_scale is None else {"global_scale": "row"}
    due = sb.linear(sb.quantize(x, name, dialect=dialect, **whole), w).numpy()
    got = sb.linear(x, w, x_format=name, x_dialect=dialect)
    assert isinstance(got, np.ndarray)
    assert np.array_equal(got, due)
    again = sb.matmul(x * 1000, sb.quantize(drawn(24, 64, seed=1).T.copy(), name, axis=-2), a_format=name)
    assert again.shape == due.shape  # of other values: nothing of the call before is remembered
    for i in range(5):
        assert np.array_equal(sb.linear(x[i : i + 1], w, x_format=name, x_dialect=dialect)[0], due[i])
    if whole:
        one = sb.quantize(x, name, dialect=dialect, global_scale=2.0)
        assert np.array_equal(
            sb.linear(x, w, x_format=name, x_dialect=dialect, x_global_scale=2.0), sb.linear(one, w).numpy()
        )


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"x_format": "fp4"}, "x_format is 'fp4', must be one of "),
        ({"x_format": "nvfp4-16x16"}, "x_format is nvfp4-16x16, must be a format of lines of blocks, so "),
        ({"x_dialect": "mx/floor"}, "x_dialect is given without x_format, must be left out; pass x_format too"),
        ({"x_format": "nvfp4", "x_scale": 2.0}, "x_format is given beside x_scale, must be left out; quantise x once"),
        ({"x_format": "mxfp8-e4m3", "x_global_scale": 2.0}, "x_global_scale is 2.0, must be left out: mxfp8-e4m3 has "),
    ],
)  # fmt: skip
def test_what_cannot_be_quantised_on_the_way_is_refused_by_its_names(given: dict[str, Any], said: str) -> None:
    x, w = drawn(5, 64), sb.quantize(drawn(24, 64, seed=1), "nvfp4")
    with pytest.raises(sb.OptionError) as error:
        sb.linear(x, w, **given)
    assert str(error.value).startswith(f"linear: {said}")
    with pytest.raises(sb.OptionError) as error:
        sb.linear(sb.quantize(x, "nvfp4"), w, x_format="nvfp4")
    assert str(error.value) == "linear: x_format is given beside a Quantized, must be left out; quantise x once"


def test_a_vector_of_blocks_is_refused_with_what_would_do() -> None:
    x, w = sb.quantize(drawn(5, 64), "nvfp4"), sb.quantize(drawn(24, 64, seed=1), "nvfp4")
    with pytest.raises(sb.ShapeError) as error:
        sb.linear(x[3], w)
    due = "x rank is 1, must be at least 2 for blocks of nvfp4; slice one row instead, which keeps its axis"
    assert str(error.value) == f"linear: {due}"
    assert np.array_equal(sb.linear(x[3:4], w).numpy(), sb.linear(x, w).numpy()[3:4])
    row = sb.quantize(drawn(64), "int8-row")
    whole = sb.quantize(drawn(64)[None], "int8-row")
    weight = sb.quantize(drawn(24, 64, seed=1), "int8-row")
    assert np.array_equal(sb.linear(row, weight).numpy(), sb.linear(whole, weight).numpy()[0])
