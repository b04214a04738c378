"""Ragged groups of rows: each group's result has the bits of its product alone, by the reference of products."""

from __future__ import annotations

import concurrent.futures
from typing import Any

import guard
import ml_dtypes
import numpy as np
import pytest
from launch import assert_bits
from rows import ALL_ROWS

import samebits as sb
from samebits.kernels.gemm import SB1, Spec, reference
from samebits.kernels.gemm.reference import integers

Array = np.ndarray[Any, np.dtype[Any]]
# 7 and 14 rows are micropanels of one height.
SIZES = [7, 0, 1, 14, 14, 0]
T, K, N, G = 40, 37, 29, len(SIZES)


def draw(kind: Any, *shape: int, seed: int = 0) -> Array:
    x = np.random.default_rng([seed, *shape]).standard_normal(shape) * 10
    return x.astype(kind)


def expected(a: Array, b: Array, sizes: list[int], bias: Array | None = None, spec: Spec = SB1) -> Array:
    """Group after group; +0 in the rows of none."""
    exact = a.dtype == np.int8
    due = np.zeros((len(a), b.shape[-1]), np.int32 if exact else np.float32)
    start = 0
    for g, size in enumerate(sizes):
        rows = slice(start, start + size)
        added = None if bias is None else bias[g] if bias.ndim == 2 else bias
        due[rows] = integers(a[rows], b[g]) if exact else reference(a[rows], b[g], bias=added, spec=spec)
        start += size
    return due


@pytest.mark.parametrize("isa", ALL_ROWS, ids=lambda row: row.name)
def test_groups_have_the_bits_of_their_products(isa: Any) -> None:
    with sb.use_isa(isa):
        a, b = guard.array(draw(np.float32, T, K)), guard.array(draw(np.float32, G, K, N, seed=1))
        due = expected(a, b, SIZES)
        a[sum(SIZES) :] = np.nan
        assert_bits(sb.grouped_matmul(a, b, SIZES), due, isa.name)
        assert_bits(sb.grouped_matmul(a, sb.pack(b), np.array(SIZES, np.uint8)), due, isa.name)


@pytest.mark.parametrize("kind", ["bfloat16", "float8_e4m3fn", "int8"])
def test_every_kind_of_element(kind: str) -> None:
    dtype = np.dtype(getattr(ml_dtypes, kind, None) or kind)
    a, b = draw(dtype, T, K), draw(dtype, G, K, N, seed=1)
    due = expected(a, b, SIZES)
    options = {} if kind == "int8" else {"out_dtype": np.float32}
    assert_bits(sb.grouped_matmul(a, b, SIZES, **options), due)
    assert_bits(sb.grouped_matmul(a, sb.pack(b), SIZES, **options), due)
    if kind == "bfloat16":
        assert_bits(sb.grouped_matmul(a, b, SIZES), due.astype(dtype))


def test_bits_ignore_threads_and_neighbours() -> None:
    a, b = draw(np.float32, 300, 129), draw(np.float32, 9, 129, 65, seed=1)
    sizes = [0, 96, 3, 1, 48, 0, 132, 1, 3]
    due = expected(a, b, sizes)
    for threads in (1, 2, 3):
        for right in (b, sb.pack(b)):
            assert_bits(sb.grouped_matmul(a, right, sizes, threads=threads), due, threads)
    assert_bits(sb.grouped_matmul(a[96:100], b[2:4], [3, 1]), due[96:100])
    with concurrent.futures.ThreadPoolExecutor(4) as callers:
        for got in callers.map(lambda threads: sb.grouped_matmul(a, b, sizes, threads=threads), [2, 1, 3, 2] * 4):
            assert_bits(got, due)
    # Many small groups, each the task of one thread, beside zero points' workspaces and one that all threads share.
    x, w = draw(np.int8, 300, 129), draw(np.int8, 40, 129, 65, seed=1)
    sizes = [96, *[3] * 38, 3]
    for right in (w, sb.pack(w)):
        assert_bits(sb.grouped_matmul(x, right, sizes, threads=2), expected(x, w, sizes))


def test_layouts_bias_and_out() -> None:
    weights = draw(np.float32, G, N, K, seed=1)
    b, wide = weights.transpose(0, 2, 1), np.repeat(draw(np.float32, T, K), 2, 1)
    a = wide[::-1, ::2]
    half = draw(ml_dtypes.bfloat16, G, 2 * N)[::-1, ::2]
    for bias, out in (
        (draw(np.float32, N), np.empty((T, N), np.float32)),
        (draw(np.float32, G, N), np.empty((N, T), np.float32).T),
        (half, np.empty((T, 2 * N), np.float32)[:, ::2]),
    ):
        out[...] = np.nan
        assert sb.grouped_matmul(a, b, SIZES, bias=bias, out=out) is out
        assert_bits(out, expected(a, b, SIZES, bias.astype(np.float32)))
    assert_bits(
        sb.grouped_matmul(a, b[::-1], SIZES, spec=Spec(chunk=8)), expected(a, b[::-1], SIZES, spec=Spec(chunk=8))
    )


def test_operands_packed_within_bytes() -> None:
    a, b = (draw(np.float32, *shape).clip(-8, 7).astype(ml_dtypes.int4) for shape in ((T, K), (G, N, K)))
    x, w = sb.to_packed(a), sb.to_packed(b).transpose(1, 2)
    due = expected(a.astype(np.int8), b.astype(np.int8).transpose(0, 2, 1), SIZES)
    for right in (w, sb.pack(w)):
        assert_bits(sb.grouped_matmul(x, right, SIZES).numpy(), due)
    assert_bits(
        sb.grouped_matmul(x[3:], w[1:], SIZES[1:]).numpy(),
        expected(a.astype(np.int8)[3:], b.astype(np.int8).transpose(0, 2, 1)[1:], SIZES[1:]),
    )


def test_nothing_to_do() -> None:
    a, b = draw(np.float32, T, K), draw(np.float32, G, K, N)
    nothing = np.zeros((T, N), np.float32)
    assert_bits(sb.grouped_matmul(a, b, [0] * G), nothing)
    assert_bits(sb.grouped_matmul(a, b[:0], []), nothing)
    assert_bits(sb.grouped_matmul(a, sb.pack(b[:0]), ()), nothing)
    assert_bits(sb.grouped_matmul(a[:, :0], b[:, :0], SIZES), nothing)
    assert sb.grouped_matmul(a[:0], b, [0] * G).shape == (0, N)
    assert sb.grouped_matmul(a, b[:, :, :0], SIZES).shape == (T, 0)
    bias = np.ones(N, np.float32)
    assert_bits(
        sb.grouped_matmul(a[:5, :0], b[:1, :0], [3], bias=bias), np.repeat(np.float32([[1], [0]]), [3, 2], 0) * bias
    )


def test_beside_jax_and_torch() -> None:
    jax, torch = pytest.importorskip("jax"), pytest.importorskip("torch")
    # Sums of small integers are exact in every order.
    a, b = draw(np.float32, T, 48).round(), draw(np.float32, G, 48, 32, seed=1).round()
    due = np.asarray(jax.lax.ragged_dot(a, b, np.array(SIZES, np.int32)))
    assert_bits(sb.grouped_matmul(a, b, SIZES), due)
    x, w = torch.from_numpy(a), torch.from_numpy(b)
    got = sb.grouped_matmul(x, w, torch.tensor(SIZES))
    assert isinstance(got, torch.Tensor)
    ends = torch.tensor(np.cumsum(SIZES), dtype=torch.int32)
    used = sum(SIZES)
    assert torch.equal(got[:used], torch.nn.functional.grouped_mm(x, w, offs=ends)[:used])


def test_gradients() -> None:
    torch = pytest.importorskip("torch")
    a, b, dy = (torch.from_numpy(draw(np.float32, *shape).round()) for shape in ((T, K), (G, K, N), (T, N)))
    a.requires_grad, b.requires_grad = True, True
    rows = [slice(end - size, end) for size, end in zip(SIZES, np.cumsum(SIZES).tolist(), strict=True)]
    torch.cat([a[part] @ b[g] for g, part in enumerate(rows)]).backward(dy[: sum(SIZES)])
    assert a.grad is not None
    assert b.grad is not None
    assert torch.equal(sb.grouped_matmul(dy, b.detach().transpose(1, 2), SIZES), a.grad)
    for g, part in enumerate(rows):
        assert torch.equal(sb.grad_weight(dy[part], a.detach()[part]), b.grad[g])


def test_what_is_no_group_is_refused() -> None:
    a, b = draw(np.float32, 4, 3), draw(np.float32, 2, 3, 5)
    shared = np.zeros(60, np.float32)
    buffer = sb.Buffer(4096, 16, None, sb.Device("cuda"))
    elsewhere = sb.Tensor(buffer, sb.Layout.dense((2,), width_bits=64), sb.dtypes.int64)
    over = shared[:20].reshape(4, 5)
    cases: list[tuple[Any, type[Exception], str]] = [
        (
            lambda: sb.grouped_matmul(a, b, [3, -1]),
            sb.ShapeError,
            "grouped_matmul: group_sizes minimum is -1, must be at least 0; give an empty group 0",
        ),
        (
            lambda: sb.grouped_matmul(a, b, [3, 2]),
            sb.ShapeError,
            "grouped_matmul: group_sizes sum is 5, must be at most a's row count 4; give the rows of each group",
        ),
        (
            lambda: sb.grouped_matmul(a, b, [2**63 - 1, 2**63 - 1]),
            sb.ShapeError,
            (
                "grouped_matmul: group_sizes sum is 18446744073709551614, must be at most a's row count 4; "
                "give the rows of each group"
            ),
        ),
        (
            lambda: sb.grouped_matmul(a, b, [1, 2, 1]),
            sb.ShapeError,
            "grouped_matmul: group_sizes shape is (3,), must be (2,), one for each matrix of b; give an empty group 0",
        ),
        (
            lambda: sb.grouped_matmul(a, b, 4),
            sb.ShapeError,
            "grouped_matmul: group_sizes shape is (), must be (2,), one for each matrix of b; give an empty group 0",
        ),
        (
            lambda: sb.grouped_matmul(a, b, [1.0, 3.0]),
            sb.DTypeError,
            (
                "grouped_matmul: group_sizes dtype is float64, must be int64 or int32 or int16 or int8 or uint64 "
                "or uint32 or uint16 or uint8; convert it first"
            ),
        ),
        (
            lambda: sb.grouped_matmul(a, b, [True, False]),
            sb.DTypeError,
            (
                "grouped_matmul: group_sizes dtype is bool, must be int64 or int32 or int16 or int8 or uint64 "
                "or uint32 or uint16 or uint8; convert it first"
            ),
        ),
        (
            lambda: sb.grouped_matmul(a, b, elsewhere),
            sb.DeviceError,
            "grouped_matmul: group_sizes device is cuda:0, must be the host; copy it to the host",
        ),
        (
            lambda: sb.grouped_matmul(a[0], b, [1, 3]),
            sb.ShapeError,
            "grouped_matmul: a rank is 1, must be 2; reshape it to [T, K]",
        ),
        (
            lambda: sb.grouped_matmul(a, sb.pack(b[0]), [4]),
            sb.ShapeError,
            "grouped_matmul: b rank is 2, must be 3; stack the matrices of the groups",
        ),
        (
            lambda: sb.grouped_matmul(a, b.transpose(0, 2, 1), [1, 3]),
            sb.ShapeError,
            "grouped_matmul: b row count is 5, must be a's column count 3; pass b of shape [..., 3, N]",
        ),
        (
            lambda: sb.grouped_matmul(a, b, [1, 3], bias=np.ones((3, 5), np.float32)),
            sb.ShapeError,
            "grouped_matmul: bias shape is (3, 5), must be (5,) or (2, 5); give each group's, or one for all",
        ),
        (
            lambda: sb.grouped_matmul(a, b, [1, 3], bias=np.ones((2, 4), np.float32)),
            sb.ShapeError,
            "grouped_matmul: bias shape is (4,), must be one that broadcasts to (4, 5); reshape it",
        ),
        (
            lambda: sb.grouped_matmul(a, shared[:30].reshape(2, 3, 5), [1, 3], out=shared[15:35].reshape(4, 5)),
            sb.LayoutError,
            "grouped_matmul: out memory is that of an operand, must be its own; leave out= away",
        ),
        (
            lambda: sb.grouped_matmul(a, draw(np.float32, 4, 3, 5), [1, 1, 1, 1], bias=over, out=over),
            sb.LayoutError,
            "grouped_matmul: out memory is that of an operand, must be its own; leave out= away",
        ),
    ]
    for call, kind, text in cases:
        with pytest.raises(kind) as caught:
            call()
        assert str(caught.value) == text
