"""Eager products, reductions and composites give the references' bits, and stay near outsiders."""

import numpy as np
import pytest
import rows
import torch

import samebits as sb
from samebits.codegen.isa import use_isa
from samebits.kernels import composites, elementwise, gemm, reduce
from samebits.operations.product import ACTIVATIONS


def normal(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


SHAPES = [
    ((3, 5), (5, 4)), ((2, 3, 130), (130, 40)), ((2, 3, 130), (2, 130, 40)), ((4, 1, 5, 6), (3, 6, 2)),
    ((130,), (130, 40)), ((7, 130), (130,)), ((5,), (5,)), ((0, 4), (4, 3)), ((3, 0), (0, 4)), ((2, 3, 4), (4, 0)),
    ((1, 300), (300, 70)), ((33, 300), (300, 1)),
]  # fmt: skip


@pytest.mark.parametrize(("left", "right"), SHAPES, ids=str)
@pytest.mark.parametrize("isa", rows.COMPILED_ROWS, ids=lambda row: row.name)
def test_matmul_follows_numpy_shapes_and_the_reference_bits(left, right, isa):
    a, b = normal(*left), normal(*right, seed=1)
    with use_isa(isa):
        y = sb.matmul(a, b)
        packed = sb.matmul(a, sb.pack(b)) if b.ndim > 1 else y
    numpy = a @ b
    assert np.shape(y) == numpy.shape
    whole = gemm.reference(a if a.ndim > 1 else a[None], b if b.ndim > 1 else b[:, None])
    assert y.tobytes() == whole.tobytes() == packed.tobytes()


def test_linear_takes_weights_as_torch_keeps_them():
    x, w, bias = normal(6, 70), normal(9, 70, seed=1), normal(9, seed=2)
    expected = gemm.reference(x, w.T, bias=bias)
    assert sb.linear(x, w, bias).tobytes() == expected.tobytes()
    assert sb.linear(x, sb.pack(w.T), bias).tobytes() == expected.tobytes()
    ours = sb.linear(*map(torch.from_numpy, (x, w, bias)))
    theirs = torch.nn.functional.linear(*map(torch.from_numpy, (x, w, bias)))
    # Two orders of 70 products differ by at most 2 * 70 roundings of partial sums below sum |a b|.
    bound = 2 * 70 * 2.0**-24 * (np.abs(x) @ np.abs(w).T + 1)
    assert (np.abs((ours - theirs).numpy()) <= bound).all()


def test_epilogue_is_the_sequence_of_separate_calls():
    a, b, c, bias = normal(5, 200), normal(200, 37, seed=1), normal(5, 37, seed=2), normal(37, seed=3)
    fused = sb.matmul(a, b, alpha=0.3, c=c, beta=-1.5, bias=bias, activation="gelu")
    scaled = sb.multiply(sb.matmul(a, b), np.float32(0.3))
    apart = sb.gelu(sb.add(sb.add(scaled, sb.multiply(c, np.float32(-1.5))), bias))
    assert fused.tobytes() == apart.tobytes()


def test_a_sum_is_never_minus_zero_and_its_scale_may_make_it_so():
    a, b = np.full((2, 3), -0.0, np.float32), np.ones((3, 2), np.float32)
    assert sb.matmul(a, b).view(np.uint32).tolist() == [[0, 0]] * 2
    assert sb.matmul(a, b, alpha=-1.0).view(np.uint32).tolist() == [[0x80000000] * 2] * 2
    assert sb.matmul(a[:, :0], b[:0], alpha=-1.0).view(np.uint32).tolist() == [[0x80000000] * 2] * 2
    assert sb.matmul(a, b, alpha=-1.0, bias=np.float32([0.0, -0.0])).view(np.uint32).tolist() == [[0, 0x80000000]] * 2


@pytest.mark.parametrize(("left", "right"), SHAPES, ids=str)
def test_addends_broadcast_to_the_result_without_the_axes_that_vectors_leave_out(left, right):
    a, b = normal(*left), normal(*right, seed=1)
    y = sb.matmul(a, b)
    for shape in {y.shape[i:] for i in range(y.ndim + 1)}:
        c = np.asarray(normal(*shape, seed=2))
        due = np.asarray(np.asarray(y) + c)
        assert sb.matmul(a, b, bias=c).tobytes() == sb.matmul(a, b, c=c).tobytes() == due.tobytes()
    out = np.array(normal(*y.shape, seed=3))
    due = np.asarray(y) + out
    assert sb.matmul(a, b, c=out, out=out) is out
    assert out.tobytes() == np.asarray(due).tobytes()


def test_a_row_alone_equals_the_row_in_a_batch():
    a, b = normal(40, 500), normal(500, 60, seed=1)
    whole = sb.matmul(a, b)
    assert all(sb.matmul(a[i : i + 1], b).tobytes() == whole[i].tobytes() for i in range(40))
    assert all(sb.softmax(a[i]).tobytes() == sb.softmax(a)[i].tobytes() for i in range(40))


def test_packed_for_another_row_is_refused():
    if not all(row.available for row in map(_row, ("avx2", "avx512"))):
        pytest.skip("needs rows with different panels")
    with use_isa("avx2"):
        packed = sb.pack(normal(8, 9))
    with use_isa("avx512"), pytest.raises(sb.PlanError, match="pack it again with pack"):
        sb.matmul(normal(2, 8), packed)


APPLIED = {"gelu_tanh": lambda x: sb.gelu(x, approximate="tanh")}


@pytest.mark.parametrize("name", sorted(ACTIVATIONS))
def test_an_activation_is_the_function_of_the_product(name):
    a, b, bias = normal(9, 33), normal(33, 17, seed=1), normal(17, seed=2)
    function = APPLIED.get(name) or getattr(sb, name)
    due = function(sb.add(sb.matmul(a, b), bias))
    assert sb.matmul(a, b, bias=bias, activation=name).tobytes() == due.tobytes()
    assert sb.linear(a, b.T, bias, activation=name).tobytes() == due.tobytes()


def _row(name):
    return next(row for row in sb.isas() if row.name == name)


@pytest.mark.parametrize("isa", rows.COMPILED_ROWS, ids=lambda row: row.name)
@pytest.mark.parametrize("n", [1, 2, 63, 64, 65, 384, 2049])
def test_composites_give_the_reference_bits(isa, n):
    x, w, bias = normal(3, n), normal(n, seed=1), normal(n, seed=2)
    with use_isa(isa):
        made = [sb.softmax(x), sb.layer_norm(x, w, bias), sb.layer_norm(x, w), sb.layer_norm(x), sb.gelu(x)]
        made.append(sb.gelu(x, approximate="tanh"))
    expected = [
        reduce.reference(composites.softmax(), x, axes=(-1,))[0],
        reduce.reference(composites.layer_norm(True, True, 1e-5), x, w, bias, axes=(-1,))[0],
        reduce.reference(composites.layer_norm(True, False, 1e-5), x, w, axes=(-1,))[0],
        reduce.reference(composites.layer_norm(False, False, 1e-5), x, axes=(-1,))[0],
        elementwise.reference(composites.gelu(), x)[0],
        elementwise.reference(composites.gelu_tanh(), x)[0],
    ]
    assert [y.tobytes() for y in made] == [y.tobytes() for y in expected]


@pytest.mark.parametrize("axis", [None, 0, 1, 2, -1, (0, 1), (0, 2), (1, 2), (0, 1, 2)], ids=str)
@pytest.mark.parametrize("op", ["sum", "mean", "max", "min"])
def test_reductions_over_any_axes(op, axis):
    x = normal(4, 70, 33)
    y = getattr(sb, op)(x, axis)
    numpy = getattr(np, op)(x.astype(np.float64), axis)
    assert np.shape(y) == np.shape(numpy)
    # The error of a sum is at most n roundings of sum |x|; a maximum is exact.
    bound = x.size * 2.0**-24 * np.abs(x).sum() if op in ("sum", "mean") else 0.0
    assert np.abs(y - numpy).max() <= bound
    kept = getattr(sb, op)(x, axis, keepdims=True)
    assert kept.shape == numpy_keepdims(op, x, axis)
    assert kept.tobytes() == np.asarray(y).tobytes()


@pytest.mark.parametrize("op", ["sum", "mean", "max", "min"])
def test_one_element_stays_but_for_the_code_of_its_nan(op):
    x = np.array([[-0.0], [0.0], [-1.5], [0.0]], np.float32)
    x.view(np.uint32)[3] = 0xFFC12345
    due = [0x80000000, 0, 0xBFC00000, 0x7FC00000]
    assert getattr(sb, op)(x, 1).view(np.uint32).tolist() == due
    assert getattr(sb, op)(x, ()).view(np.uint32).ravel().tolist() == due


@pytest.mark.parametrize("op", ["sum", "mean"])
def test_several_axes_are_one_in_the_order_of_the_array(op):
    x = normal(7, 30, 41)
    due = getattr(sb, op)(np.ascontiguousarray(x.transpose(1, 0, 2)).reshape(30, -1), 1)
    for lying in (x, np.asfortranarray(x), x[:, ::-1][:, ::-1]):
        for axes in ((0, 2), (2, 0), (-1, 0)):
            assert getattr(sb, op)(lying, axes).tobytes() == due.tobytes()


def numpy_keepdims(op, x, axis):
    return getattr(np, op)(x, axis, keepdims=True).shape


def test_cast_and_signed_zeros():
    x = np.array([-0.0, 0.0, 2.5, -2.5, np.nan, np.inf, 3e9, -3e9], np.float32)
    assert sb.cast(x, "int32").tolist() == [0, 0, 2, -2, 0, 2**31 - 1, 2**31 - 1, -(2**31)]
    nan = np.array([0xFFC12345], np.uint32).view(np.float32)
    assert sb.cast(nan, "float32").view(np.uint32).tolist() == [0x7FC00000]
    assert sb.copy(nan).view(np.uint32).tolist() == [0xFFC12345]
    assert sb.relu(x).view(np.uint32).tolist()[:2] == [0, 0]
    assert sb.maximum(x[:1], x[1:2]).view(np.uint32).tolist() == [0]
    assert sb.minimum(x[1:2], x[:1]).view(np.uint32).tolist() == [0x80000000]
    assert sb.negative(x[4:5]).view(np.uint32).tolist() == [0xFFC00000]
    assert sb.sqrt(np.float32([-1.0])).view(np.uint32).tolist() == [0x7FC00000]
