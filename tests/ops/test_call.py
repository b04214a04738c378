"""Eager calls: the same kind of array out, the memo never changes an answer, bad operands get one sentence."""

import threading

import numpy as np
import pytest
import torch

import samebits as sb
from samebits.codegen.isa import use_isa
from samebits.kernels import gemm
from samebits.ops import call


def normal(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def test_kind_follows_the_first_operand():
    x = normal(3, 4)
    assert type(sb.exp(x)) is np.ndarray
    assert type(sb.exp(torch.from_numpy(x))) is torch.Tensor
    assert type(sb.exp(sb.Tensor.from_any(x))) is sb.Tensor
    assert type(sb.matmul(torch.from_numpy(x), x.T)) is torch.Tensor
    assert type(sb.sum(torch.from_numpy(x), 1)) is torch.Tensor


def test_kind_of_jax_arrays():
    jax = pytest.importorskip("jax")
    x = normal(3, 4)
    y = sb.softmax(jax.numpy.asarray(x))
    assert isinstance(y, jax.Array)
    assert np.asarray(y).tobytes() == sb.softmax(x).tobytes()


@pytest.mark.parametrize("repeat", range(3))
def test_a_remembered_call_equals_the_first(repeat):
    x, y = normal(5, 7, seed=repeat), normal(5, 7, seed=repeat + 10)
    assert sb.subtract(x, y).tobytes() == (x - y).tobytes()
    assert sb.subtract(y, x).tobytes() == (y - x).tobytes()
    assert sb.subtract(x, x).tobytes() == (x - x).tobytes()
    assert sb.subtract(x, y[:, ::-1]).tobytes() == (x - y[:, ::-1]).tobytes()


def test_remembered_arguments_by_keyword_keep_their_names():
    a, b = normal(4, 6), normal(6, 5, seed=1)
    c, bias = normal(4, 5, seed=2), normal(4, 5, seed=3)
    for _ in range(2):
        first = sb.matmul(a, b, c=c, bias=bias, beta=2.0)
        second = sb.matmul(a, b, bias=bias, c=c, beta=2.0)
        swapped = sb.matmul(a, b, bias=c, c=bias, beta=2.0)
        expected = gemm.reference(a, b, c=c, beta=2.0, bias=bias)
        assert first.tobytes() == second.tobytes() == expected.tobytes()
        assert swapped.tobytes() == gemm.reference(a, b, c=bias, beta=2.0, bias=c).tobytes()


def test_remembered_options_are_told_apart():
    x = normal(3, 4)
    for _ in range(2):
        assert sb.sum(x, 0).shape == (4,)
        assert sb.sum(x, 1).shape == (3,)
        assert sb.sum(x, 1, keepdims=True).shape == (3, 1)
        assert sb.sum(x).shape == ()
        assert sb.multiply(x, 0.0).tobytes() == (x * np.float32(0.0)).tobytes()
        assert sb.multiply(x, -0.0).tobytes() == (x * np.float32(-0.0)).tobytes()
        with pytest.raises(sb.OptionError):
            sb.sum(x, 1, threads=True)
    big = normal(64, 64)
    with use_isa("numpy"):
        slow = sb.sum(big, 1)
    assert slow.tobytes() == sb.sum(big, 1).tobytes()


def test_memo_is_bounded():
    for n in range(1, 40):
        sb.relu(np.zeros(n, np.float32))
    assert len(call._memos) <= call._MEMOS


def test_results_do_not_share_memory():
    x = normal(3)
    first, second = sb.exp(x), sb.exp(x)
    first[:] = 0
    assert second.tobytes() == sb.exp(x).tobytes()


def test_calls_from_many_threads():
    x = normal(257, 33)
    expected = sb.softmax(x).tobytes()
    wrong = []

    def work():
        for _ in range(30):
            if sb.softmax(x).tobytes() != expected:
                wrong.append(1)

    workers = [threading.Thread(target=work) for _ in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not wrong


def test_out_is_written_and_returned():
    x, out = normal(3, 4), np.empty((3, 4), np.float32)
    assert sb.exp(x, out=out) is out
    assert out.tobytes() == sb.exp(x).tobytes()
    strided = np.zeros((3, 8), np.float32)
    assert sb.softmax(x, out=strided[:, ::2]).tobytes() == sb.softmax(x).tobytes()
    assert not strided[:, 1::2].any()
    c = normal(3, 3)
    expected = gemm.reference(x, x.T, c=c)
    assert sb.matmul(x, x.T, c=c, out=c) is c
    assert c.tobytes() == expected.tobytes()


@pytest.mark.parametrize(
    ("made", "kind", "text"),
    [
        (
            lambda x: sb.matmul(x, x),
            sb.ShapeError,
            "matmul: b rows is 3, must be 4, the columns of a; pass b of shape [..., 4, N]",
        ),
        (
            lambda x: sb.matmul(x.astype(np.float64), x.T),
            sb.DTypeError,
            "matmul: a dtype is float64, must be float32; convert it first",
        ),
        (
            lambda x: sb.matmul(x, x.T, activation="tanh"),
            sb.OptionError,
            "matmul: activation is 'tanh', must be one of ('erf', 'exp', 'gelu', 'relu'); apply it after",
        ),
        (
            lambda x: sb.matmul(x, x.T, bias=np.zeros(5, np.float32)),
            sb.ShapeError,
            "matmul: bias shape is (5,), must be one that broadcasts to (3, 3); reshape it",
        ),
        (
            lambda x: sb.matmul(x, x.T, out=x[:, :3]),
            sb.LayoutError,
            "matmul: out memory is that of an operand, must be its own, or exactly c's; leave out= away",
        ),
        (
            lambda x: sb.matmul(x, x.T, plan=sb.plan_matmul(x[:2], x.T)),
            sb.PlanError,
            (
                "matmul: plan is matmul a[2,4] b[4,3], chunk 128, must be matmul a[3,4] b[4,3], chunk 128; "
                "make it with plan_matmul for these operands"
            ),
        ),
        (
            lambda x: sb.exp(x, out=np.empty((4, 3), np.float32)),
            sb.ShapeError,
            "exp: out shape is (4, 3), must be (3, 4); pass an array of that shape",
        ),
        (
            lambda x: sb.exp(x, threads=0),
            sb.OptionError,
            "exp: threads is 0, must be an integer from 1 to 255; leave it out for every core",
        ),
        (
            lambda x: sb.add(x, x[:, :3]),
            sb.ShapeError,
            "add: operands shapes is (3, 4) and (3, 3), must be shapes that broadcast; reshape one of them",
        ),
        (
            lambda x: sb.sum(x, (0, -2)),
            sb.LayoutError,
            "sum: axis is (0, -2), must be each axis once; leave out the repeated one",
        ),
        (
            lambda x: sb.max(x[:, :0], 1),
            sb.ShapeError,
            "max: x extent is 0, must be at least 1 along axis; an empty row has no max",
        ),
        (
            lambda x: sb.layer_norm(x, x[0, :3]),
            sb.ShapeError,
            "layer_norm: weight shape is (3,), must be (4,); match x's last axis",
        ),
        (lambda x: sb.pack(x[0]), sb.ShapeError, "pack: b rank is 1, must be at least 2; reshape a vector to [K, 1]"),
    ],
)
def test_error_texts(made, kind, text):
    with pytest.raises(kind) as caught:
        made(normal(3, 4))
    assert str(caught.value) == text


def test_read_only_out_is_refused():
    out = np.empty(3, np.float32)
    out.flags.writeable = False
    with pytest.raises(sb.ExchangeError, match="exp: out memory is read-only, must be writable; pass another array"):
        sb.exp(np.zeros(3, np.float32), out=out)
    with pytest.raises(sb.ExchangeError):
        sb.matmul(normal(3, 2), normal(2, 3), out=np.broadcast_to(np.float32(0), (3, 3)))
