"""Gradients of linear: the bits of numerics.md section 5, micro-batches, and torch's where sums are exact."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
import rows
import torch

import samebits as sb
from samebits import ieee
from samebits.codegen.isa import Isa
from samebits.errors import DTypeError, LayoutError, ShapeError

Array = np.ndarray[Any, Any]


def accumulated(old: Array | None, a: Array, b: Array) -> Array:
    """Section 5 word for word: t = old (or the first chunk), then each chunk's chain of fmas; K = 0 leaves old."""
    t = old
    for start in range(0, a.shape[1], 128):
        p = np.zeros((a.shape[0], b.shape[1]), np.float64 if a.dtype == np.float64 else np.float32)
        for k in range(start, min(start + 128, a.shape[1])):
            p = ieee.fma(a[:, k : k + 1], b[k : k + 1], p)
        t = p if t is None else t + p
    return np.zeros((a.shape[0], b.shape[1]), a.dtype) if t is None else t + np.zeros_like(t)


def normal(seed: int, *shape: int) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("row", rows.COMPILED_ROWS, ids=lambda row: str(row.name))
@pytest.mark.parametrize(("m", "n", "k"), [(1, 1, 1), (130, 17, 50), (300, 70, 33)])
def test_the_bits_of_the_contract(row: Isa, m: int, n: int, k: int) -> None:
    x, dy, old = normal(0, m, k), normal(1, m, n), normal(2, n, k)
    with sb.use_isa(row):
        assert sb.grad_weight(x, dy).tobytes() == accumulated(None, dy.T, x).tobytes()
        assert sb.grad_bias(dy).tobytes() == accumulated(None, np.ones((1, m), np.float32), dy).tobytes()
        for out in (old.copy(), np.asfortranarray(old), np.zeros((n, 3 * k), np.float32)[:, ::3], old[:, ::-1].copy()):
            before = out.copy()
            assert sb.grad_weight(x, dy, out=out) is out
            assert np.array_equal(out.view(np.int32), accumulated(before, dy.T, x).view(np.int32))
        bias = normal(3, n)
        due = accumulated(bias[None].copy(), np.ones((1, m), np.float32), dy)[0]
        assert sb.grad_bias(dy, out=bias) is bias
        assert bias.tobytes() == due.tobytes()


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("kind", [np.float32, np.float64, ml_dtypes.bfloat16])
def test_micro_batches_are_the_whole_batch(threads: int, kind: Any) -> None:
    x, dy = normal(0, 2700, 61).astype(kind), normal(1, 2700, 97).astype(kind)
    total = np.float64 if kind is np.float64 else np.float32
    whole, bias = sb.grad_weight(x, dy, threads=threads), sb.grad_bias(dy, threads=threads)
    assert whole.dtype == bias.dtype == total
    for cuts in ([128], [1280, 1408, 2688]):
        parts = np.split(np.arange(2700), cuts)
        outs = (np.zeros((97, 61), total), np.zeros((97, 122), total)[:, ::2], np.zeros((61, 97), total).T)
        for out in outs if kind is np.float32 else outs[:1]:
            for part in parts:
                sb.grad_weight(x[part], dy[part], out=out, threads=threads)
            assert out.tobytes() == whole.tobytes()
        out = np.zeros(97, total)
        for part in parts:
            sb.grad_bias(dy[part], out=out, threads=threads)
        assert out.tobytes() == bias.tobytes()


def test_exact_sums_are_those_of_torch() -> None:
    random = np.random.default_rng(4)
    x, w, dy = (random.integers(-8, 9, s).astype(np.float32) for s in ((2, 9, 40), (30, 40), (2, 9, 30)))
    tx, tw, tb = (torch.from_numpy(a).requires_grad_() for a in (x, w, np.zeros(30, np.float32)))
    torch.nn.functional.linear(tx, tw, tb).backward(torch.from_numpy(dy))
    assert np.array_equal(sb.grad_input(dy, w), tx.grad)
    assert np.array_equal(sb.grad_input(dy, sb.pack(w)), tx.grad)
    assert np.array_equal(sb.grad_weight(x, dy), tw.grad)
    assert np.array_equal(sb.grad_bias(dy), tb.grad)
    found = sb.grad_weight(torch.from_numpy(x), torch.from_numpy(dy))
    assert isinstance(found, torch.Tensor)
    assert torch.equal(found, tw.grad)


def test_rows_that_are_not_of_the_weight_do_not_matter() -> None:
    x, dy = normal(0, 40, 8), normal(1, 40, 5)
    due = sb.grad_weight(x, dy)
    dy = np.concatenate([dy, np.full((40, 1), np.nan, np.float32)], axis=1)
    assert sb.grad_weight(x, dy)[:5].tobytes() == due.tobytes()


def test_nothing_to_sum() -> None:
    x, dy = np.zeros((0, 4), np.float32), np.zeros((0, 3), np.float32)
    assert sb.grad_weight(x, dy).tobytes() == np.zeros((3, 4), np.float32).tobytes()
    # What is there keeps every bit, a negative zero and the payload of a NaN too.
    old = np.full((3, 4), -0.0, np.float32)
    old.view(np.uint32)[1] = 0xFFC12345
    for call, out in ((sb.grad_weight, old), (sb.grad_bias, old[0].copy()), (sb.grad_bias, old[1].copy())):
        kept = out.tobytes()
        call(*((x, dy) if call is sb.grad_weight else (np.zeros((0, 4), np.float32),)), out=out)
        assert out.tobytes() == kept
    assert sb.grad_weight(np.zeros((5, 0), np.float32), np.zeros((5, 3), np.float32)).shape == (3, 0)


def test_bad_operands() -> None:
    x, dy = normal(0, 6, 4), normal(1, 6, 3)
    with pytest.raises(ShapeError) as shape:
        sb.grad_weight(x, dy[:5])
    assert str(shape.value) == (
        "grad_weight: dy leading shape is (5,), must be x's (6,); pass the gradient of linear(x, ...)"
    )
    with pytest.raises(ShapeError, match="grad_bias: dy rank is 0, must be at least 1; reshape it to"):
        sb.grad_bias(np.float32(1))
    with pytest.raises(DTypeError, match="grad_weight: x dtype is int8, must be"):
        sb.grad_weight(x.astype(np.int8), dy)
    with pytest.raises(LayoutError, match="copy it first"):
        sb.grad_weight(normal(0, 6, 4, 2).transpose(1, 0, 2), normal(0, 6, 4, 3).transpose(1, 0, 2))
    with pytest.raises(ShapeError, match="out"):
        sb.grad_weight(x, dy, out=np.zeros((4, 3), np.float32))
    with pytest.raises(LayoutError, match="out"):
        sb.grad_weight(x, dy, out=x[:3])
    with pytest.raises(DTypeError, match="out"):
        sb.grad_weight(x, dy, out=np.zeros((3, 4), np.float64))
