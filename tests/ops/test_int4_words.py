"""Weights of GPTQ and AWQ: against compressed-tensors' converter, and against AutoGPTQ's formula written once more."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import samebits as sb
from samebits.errors import DTypeError, OptionError, ShapeError

Array = npt.NDArray[Any]

K, N, GROUP = 256, 48, 64


def parts(seed: int = 0) -> tuple[Array, Array, Array]:
    """Elements [K, N] and zero points [K / group, N] of 4 bits, and scales."""
    rng = np.random.default_rng(seed)
    lines = K // GROUP
    scales = rng.uniform(0.001, 0.1, (lines, N)).astype(np.float16)
    return rng.integers(0, 16, (K, N)), rng.integers(0, 16, (lines, N)), scales


def words(x: Array, places: Any = range(8)) -> Array:
    """Eight elements of the last axis in an int32, element i in nibble places[i]."""
    eights = x.reshape(*x.shape[:-1], -1, 8).astype(np.uint32)
    return np.sum([eights[..., i] << 4 * place for i, place in enumerate(places)], axis=0, dtype=np.uint32).view(
        np.int32
    )


@pytest.mark.parametrize("kind", [np.float16, np.float32])
def test_awq_is_what_the_converter_of_compressed_tensors_reads(kind: Any) -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("compressed_tensors")
    from compressed_tensors.entrypoints.convert.converters.autoawq import AutoAWQConverter

    weight, zeros, scales = parts()
    qweight, qzeros = (words(x, (0, 4, 1, 5, 2, 6, 3, 7)) for x in (weight, zeros))
    read = AutoAWQConverter.unpack_awq(torch.from_numpy(qweight), torch.from_numpy(qzeros), 4)
    codes, points = (x.numpy() & 15 for x in AutoAWQConverter.reverse_awq_order(*read, 4))
    np.testing.assert_array_equal(codes, weight)
    q = sb.from_awq(qweight, qzeros, scales.astype(kind), GROUP)
    assert (q.shape, q.format.name, q.zero_points.shape) == ((N, K), "uint4-group64-zero", (N, K // GROUP))  # type: ignore[union-attr]
    due = (codes - points.repeat(GROUP, 0)).astype(np.float32) * scales.astype(np.float32).repeat(GROUP, 0)
    np.testing.assert_array_equal(q.dequantize().numpy(), due.T)


@pytest.mark.parametrize("offset", [0, 1])
@pytest.mark.parametrize("ordered", [True, False])
def test_gptq_is_the_formula_of_autogptq(offset: int, ordered: bool) -> None:
    weight, zeros, scales = parts(1)
    g_idx = np.repeat(np.arange(K // GROUP), GROUP).astype(np.int32)
    if not ordered:
        np.random.default_rng(2).shuffle(g_idx)
    # qlinear_cuda_old.py: weight = scales[g_idx] * (weight - (zeros + 1)[g_idx]), in float16
    due = scales[g_idx] * (weight - (zeros + offset)[g_idx]).astype(np.float16)
    qweight = np.ascontiguousarray(words(np.ascontiguousarray(weight.T)).T)
    q, order = sb.from_gptq(qweight, words(zeros), scales, GROUP, g_idx=g_idx, zero_offset=offset)
    assert (order is None) == ordered
    found = q.dequantize("float16").numpy()
    x = np.random.default_rng(3).standard_normal((5, K)).astype(np.float32)
    if order is not None:
        np.testing.assert_array_equal(found, due.T[:, order.numpy()])
        taken = sb.take(x, order, axis=-1)
        np.testing.assert_array_equal(taken, x[:, order.numpy()])
    else:
        np.testing.assert_array_equal(found, due.T)
        alone, none = sb.from_gptq(qweight, words(zeros), scales, GROUP, zero_offset=offset)
        assert none is None
        assert alone.equal_bits(q)


@pytest.mark.parametrize("shape", [(0, 8), (64, 0), (0, 0)])
def test_weights_without_elements_have_none(shape: tuple[int, int]) -> None:
    k, n = shape
    qzeros, scales = np.zeros((k // 32, n // 8), np.int32), np.zeros((k // 32, n), np.float16)
    assert sb.from_awq(np.zeros((k, n // 8), np.int32), qzeros, scales, 32).shape == (n, k)
    q, order = sb.from_gptq(np.zeros((k // 8, n), np.int32), qzeros, scales, 32)
    assert (q.shape, order) == ((n, k), None)


def test_what_does_not_belong_together_is_refused() -> None:
    weight, zeros, scales = parts()
    qweight, qzeros = words(weight), words(zeros)
    cases: list[tuple[dict[str, Any], type[Exception], str]] = [
        ({"group": 16}, OptionError, "group is 16, must be 32, 64 or 128; pass that of the checkpoint"),
        ({"scales": scales[:2]}, ShapeError, "scales shape is (2, 48), must be (4, 48); pass what belongs to qweight"),
        ({"qzeros": qzeros[:, :3]}, ShapeError, "qzeros shape is (4, 3), must be (4, 6); pass what belongs to qweight"),
        ({"qweight": qweight[0]}, ShapeError, "qweight rank is 1, must be 2; pass a matrix"),
        ({"qweight": qweight[:100]}, ShapeError,
         "qweight elements is (100, 48), must be a multiple of 64 by a multiple of 8; pass whole groups"),
        ({"qweight": weight}, DTypeError, "qweight dtype is int64, must be int32 or uint32; convert it first"),
        ({"scales": scales.astype(np.float64)}, DTypeError,
         "scales dtype is float64, must be float16 or bfloat16 or float32; convert it first"),
    ]  # fmt: skip
    for given, kind, sentence in cases:
        with pytest.raises(kind) as caught:
            sb.from_awq(**{"qweight": qweight, "qzeros": qzeros, "scales": scales, "group": GROUP, **given})
        assert str(caught.value) == f"from_awq: {sentence}"


def test_groups_of_other_sizes_are_refused() -> None:
    weight, zeros, scales = parts()
    qweight = np.ascontiguousarray(words(np.ascontiguousarray(weight.T)).T)
    with pytest.raises(OptionError) as caught:
        sb.from_gptq(qweight, words(zeros), scales, GROUP, g_idx=np.zeros(K, np.int32))
    due = "g_idx is another count of each group, must be 64 of each group from 0 to 3; pass that of the checkpoint"
    assert str(caught.value) == f"from_gptq: {due}"
    with pytest.raises(OptionError) as offset:
        sb.from_gptq(qweight, words(zeros), scales, GROUP, zero_offset=2)
    assert str(offset.value) == "from_gptq: zero_offset is 2, must be 0 or 1; pass that of the version"
