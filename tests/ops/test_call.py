"""Eager calls: the same kind of array out, the memo never changes an answer, bad operands get one sentence."""

import platform
import threading
import weakref

import launch
import ml_dtypes
import numpy as np
import pytest
import torch

import samebits as sb
from samebits import driver
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


def test_big_results_take_memory_that_was_used_before():
    for kind in (np.asarray, sb.Tensor.from_any):
        x = kind(np.arange(1 << 18, dtype=np.float32))
        sb.add(x, x)
        places = set()
        for _ in range(5):
            result = sb.add(x, x)
            assert type(result) is type(x)
            places.add(np.asarray(result).ctypes.data)
            assert np.array_equal(np.asarray(result), 2 * np.arange(1 << 18, dtype=np.float32))
        assert len(places) <= 2  # the next is made before the last goes
        kept = [np.asarray(sb.add(x, x)) for _ in range(4)]
        assert len({result.ctypes.data for result in kept}) == 4
        assert all(np.array_equal(result, kept[0]) and result.flags.writeable for result in kept)


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


def test_out_may_interleave_with_an_operand_or_be_it():
    x = normal(5, 8)
    expected = sb.exp(x[:, ::2])
    sb.exp(x[:, ::2], out=x[:, 1::2])
    assert x[:, 1::2].tobytes() == expected.tobytes()
    y = normal(64, 64)
    expected = sb.softmax(y)
    assert sb.softmax(y, out=y).tobytes() == expected.tobytes()
    z = normal(3)
    expected = sb.add(sb.matmul(x[0], x[:3].T), z)
    assert sb.matmul(x[0], x[:3].T, c=z, out=z).tobytes() == expected.tobytes()


def test_numbers_take_the_dtype_and_leave_the_kind():
    t = torch.ones(2, 3)
    for _ in range(2):
        assert type(sb.subtract(1.0, t)) is torch.Tensor
        assert sb.multiply(np.arange(4, dtype=np.int8), 3).tolist() == [0, 3, 6, 9]
        assert sb.multiply(normal(3), 1e300).tobytes() == (normal(3) * np.float32(np.inf)).tobytes()
        assert sb.add(1, 2).tolist() == 3.0
    assert (
        sb.matmul(normal(2, 2), normal(2, 2), alpha=1e300).tobytes()
        == sb.multiply(sb.matmul(normal(2, 2), normal(2, 2)), float("inf")).tobytes()
    )


def test_remembered_out_is_written_where_it_is_each_time():
    a, b = normal(6, 7), normal(7, 5, seed=1)
    expected = gemm.reference(a, b).tobytes()
    for make in (lambda: np.empty((6, 5), np.float32), lambda: sb.Tensor.empty((6, 5), sb.dtypes.float32)):
        for _ in range(3):
            out = make()
            assert sb.matmul(a, b, out=out) is out
            assert np.asarray(out).tobytes() == expected
    c, kept = normal(6, 5, seed=2), normal(6, 5, seed=2)
    for _ in range(3):
        expected = gemm.reference(a, b, c=c).tobytes()
        assert sb.matmul(a, b, c=c, out=c).tobytes() == expected  # c itself
        view = kept[:]
        expected = gemm.reference(a, b, c=view).tobytes()
        assert sb.matmul(a, b, c=kept, out=view).tobytes() == expected  # another array of the same memory
        assert sb.matmul(a, b, c=c, out=np.empty((6, 5), np.float32)).tobytes() == gemm.reference(a, b, c=c).tobytes()


def test_remembered_out_that_overlaps_an_operand_or_is_read_only_is_refused():
    memory = normal(1000)
    a, b = memory[:36].reshape(6, 6), memory[300:336].reshape(6, 6)
    down = memory[335:299:-1].reshape(6, 6)  # its bytes lie before its first element
    for place in (100, 36, 264, 900):
        out = memory[place : place + 36].reshape(6, 6)
        assert sb.matmul(a, b, out=out).tobytes() == gemm.reference(a, b).tobytes()
        assert sb.matmul(a, down, out=out).tobytes() == gemm.reference(a, down).tobytes()
    for place in (0, 35, 265, 300, 335):
        out = memory[place : place + 36].reshape(6, 6)
        for right in (b, down):
            with pytest.raises(sb.LayoutError, match="matmul: out memory is that of an operand"):
                sb.matmul(a, right, out=out)
    between = memory[400:472].reshape(6, 12)  # apart, element by element
    assert sb.matmul(between[:, :6], b, out=between[:, 6:]).tobytes() == gemm.reference(between[:, :6], b).tobytes()
    frozen = np.zeros((6, 6), np.float32)
    frozen.flags.writeable = False
    with pytest.raises(sb.ExchangeError, match="matmul: out memory is read-only"):
        sb.matmul(a, b, out=frozen)
    for wrong in (1, "x", [1.0], sb.pack(b)):
        with pytest.raises(sb.SamebitsError):
            sb.matmul(a, b, out=wrong)


def test_remembered_packed_matrices_are_told_apart():
    a, rights = normal(6, 40), [normal(40, n, seed=n) for n in (32, 31, 17, 32)]
    for _ in range(2):
        for b in rights:
            assert sb.matmul(a, sb.pack(b)).tobytes() == gemm.reference(a, b).tobytes()
    half, b = (normal(*shape, seed=7).astype(ml_dtypes.bfloat16) for shape in ((6, 40), (40, 17)))
    expected = gemm.reference(half.astype(np.float32), b.astype(np.float32)).tobytes()
    for _ in range(2):
        for kept in (sb.pack(b), sb.pack(b, left="float32"), sb.pack(b.astype(np.float32), left="bfloat16")):
            assert sb.matmul(half, kept, out_dtype="float32").tobytes() == expected


def test_remembered_gradients_equal_the_first():
    x, dy = normal(3, 50, 8), normal(3, 50, 9, seed=1)
    flat, other = x.reshape(-1, 8), dy.reshape(-1, 9)
    for _ in range(3):
        assert sb.grad_weight(x, dy).tobytes() == gemm.reference(other.T, flat).tobytes()
        assert sb.grad_bias(dy).tobytes() == gemm.reference(np.ones((1, 150), np.float32), other)[0].tobytes()
        dw, whole = np.zeros((9, 8), np.float32), np.zeros((9, 8), np.float32)
        sb.grad_weight(flat[:128], other[:128], out=dw)
        assert sb.grad_weight(flat[128:], other[128:], out=dw) is dw
        assert dw.tobytes() == sb.grad_weight(x, dy, out=whole).tobytes()


def test_numbers_round_once_whatever_the_callers_float_environment():
    a, b, c = normal(3, 40), normal(40, 5), normal(3, 5)
    x, y = (np.arange(n, dtype=np.int8).reshape(shape) for n, shape in ((12, (3, 4)), (20, (4, 5))))

    def calls(value):
        yield lambda: sb.matmul(a, b, alpha=value)
        yield lambda: sb.matmul(a, b, c=c, beta=value)
        yield lambda: sb.matmul(a, b, a_scale=value)
        yield lambda: sb.matmul(x, y, a_scale=value, b_scale=1.0, out_scale=value)
        yield lambda: sb.multiply(a, value)
        yield lambda: sb.layer_norm(a, eps=value)

    library = driver.libc()
    up = 0x800 if platform.machine() == "x86_64" else 0x400000
    values = (1e-40, 0.7, 1.1)
    assert library.fesetround(up) == 0
    try:
        rounded_up = [one() for value in values for one in calls(value)]
    finally:
        library.fesetround(0)
    call._memos.clear()  # constants are remembered
    with launch.flushing():
        flushed = [one() for value in values for one in calls(value)]
    call._memos.clear()
    due = [one() for value in values for one in calls(value)]
    for found in (rounded_up, flushed):
        assert [x.tobytes() for x in found] == [x.tobytes() for x in due]


def test_misaligned_array_is_refused_by_a_remembered_call_too():
    memory = np.zeros(21, np.uint8)
    misaligned = memory[1 - memory.ctypes.data % 4 :][:16].view(np.float32)
    assert not misaligned.flags.aligned
    for _ in range(2):
        with pytest.raises(sb.ExchangeError, match="x alignment is less than its dtype's"):
            sb.sqrt(misaligned)
        sb.sqrt(np.zeros(4, np.float32))


def test_remembered_tensors_that_share_a_buffer_are_told_from_those_that_do_not():
    x, y, z = (sb.Tensor.from_any(normal(6, 6, seed=seed)) for seed in range(3))
    for a, b in [(x, x.T), (x, y.T), (y, x.T), (z, z.T), (x, x), (x, y), (z, z)]:
        for _ in range(2):
            made = sb.subtract(a, b)
            assert type(made) is sb.Tensor
            assert made.numpy().tobytes() == (a.numpy() - b.numpy()).tobytes()
    n = x.numpy()
    for a, b, c, bias in [(n, n, x, x.T), (n, n, x, y.T), (n, z.numpy(), x, x.T)]:
        for _ in range(2):
            expected = gemm.reference(a, b, c=c.numpy(), bias=bias.numpy())
            assert sb.matmul(a, b, c=c, bias=bias).tobytes() == expected.tobytes()


def test_remembered_call_refuses_a_closed_tensor():
    x = sb.Tensor.zeros((3, 5))
    sb.sqrt(x)
    assert sb.sqrt(sb.Tensor.zeros((3, 5))).numpy().sum() == 0
    x.buffer.close()
    with pytest.raises(sb.ClosedError, match="sqrt: x buffer is closed"):
        sb.sqrt(x)


def test_memory_outlives_a_buffer_closed_during_the_call(monkeypatch):
    class Owner:
        pass

    for _ in range(2):  # the second call is remembered
        owner, memory = Owner(), normal(4, 4)
        alive = weakref.ref(owner)
        x = sb.Tensor(
            sb.Buffer(memory.ctypes.data, memory.nbytes, owner),
            sb.Layout.dense((4, 4), width_bits=32),
            sb.dtypes.float32,
        )
        del owner
        seen = []
        run = call.Prepared.run

        def closing(prepared, addresses, x=x, alive=alive, seen=seen, run=run):
            x.buffer.close()
            seen.append(alive() is not None)
            run(prepared, addresses)

        with monkeypatch.context() as patch:
            patch.setattr(call.Prepared, "run", closing)
            assert sb.abs(x).numpy().tobytes() == np.abs(memory).tobytes()
        assert seen == [True]
        assert alive() is None


def closed():
    x = sb.Tensor.zeros((3,))
    x.buffer.close()
    return x


@pytest.mark.parametrize(
    ("made", "kind", "text"),
    [
        (
            lambda x: sb.matmul(x, x),
            sb.ShapeError,
            "matmul: b row count is 3, must be a's column count 4; pass b of shape [..., 4, N]",
        ),
        (
            lambda x: sb.matmul(x.astype(np.int64), x.T),
            sb.DTypeError,
            "matmul: a dtype is int64, must be a float or an integer of at most 8 bits; convert it first",
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
            "matmul: out memory is that of an operand, must be its own; leave out= away",
        ),
        (
            lambda x: sb.matmul(x, x.T, plan=sb.plan_matmul(x[:2], x.T)),
            sb.PlanError,
            (
                "matmul: plan is matmul a[2,4] b[4,3], chunk 128, must be the one for matmul a[3,4] b[4,3], chunk 128; "
                "make it with plan_matmul for these operands"
            ),
        ),
        (
            lambda x: sb.matmul(x, x.T, plan=sb.plan_matmul(x.copy("F"), x.T)),
            sb.PlanError,
            (
                "matmul: plan is for other strides, options or tiles, must be the one for "
                "matmul a[3,4] b[4,3], chunk 128; make it with plan_matmul for these operands"
            ),
        ),
        (
            lambda x: sb.matmul(x, x.T, plan=sb.plan_matmul(x, x.T, activation="relu")),
            sb.PlanError,
            (
                "matmul: plan is for other strides, options or tiles, must be the one for "
                "matmul a[3,4] b[4,3], chunk 128; make it with plan_matmul for these operands"
            ),
        ),
        (
            lambda x: sb.matmul(x, x.T, plan="fast"),
            sb.OptionError,
            "matmul: plan is 'fast', must be a Plan; make it with plan_matmul",
        ),
        (
            lambda x: sb.matmul(x, x.T, spec=256),
            sb.OptionError,
            "matmul: spec is 256, must be a Spec; leave it out for sb1",
        ),
        (
            lambda x: sb.matmul(x, x.T, alpha="2"),
            sb.OptionError,
            "matmul: alpha is '2', must be a number; pass a float",
        ),
        (
            lambda x: sb.layer_norm(x, eps=None),
            sb.OptionError,
            "layer_norm: eps is None, must be a number; pass a float",
        ),
        (
            lambda x: sb.matmul(np.stack([x, x]), np.stack([x.T] * 3)),
            sb.ShapeError,
            "matmul: b batch shape is (3,), must be one that broadcasts with a's (2,); reshape one of them",
        ),
        (
            lambda x: sb.matmul(x, np.float32(3)),
            sb.ShapeError,
            "matmul: b rank is 0, must be at least 1; use multiply for a scalar",
        ),
        (
            lambda x: sb.exp(x[:, :3], out=x[:, 1:]),
            sb.LayoutError,
            "exp: out memory is that of an operand, must be its own, or exactly an operand's; leave out= away",
        ),
        (
            lambda x: sb.softmax(x[:, :3], out=x[:, :3].T),
            sb.LayoutError,
            "softmax: out memory is that of an operand, must be its own, or exactly an operand's; leave out= away",
        ),
        (
            lambda x: sb.exp(x, out=np.lib.stride_tricks.as_strided(x.copy(), (3, 4), (4, 4))),
            sb.LayoutError,
            (
                "exp: out layout is (3, 4) with strides_bits (32, 32), must be one with a place for each element; "
                "pass another array"
            ),
        ),
        (
            lambda x: sb.exp(x[0], out=[np.float32(0)] * 4),
            sb.ExchangeError,
            "exp: out type is list, must be an array; make one with numpy.empty",
        ),
        (
            lambda x: sb.exp(x[0, 0], out=np.float32(0)),
            sb.ExchangeError,
            "exp: out type is float32, must be an array; make one with numpy.empty",
        ),
        (
            lambda x: sb.multiply(x.astype(np.int32), 0.5),
            sb.DTypeError,
            "multiply: y is 0.5, must be an integer, as the array is int32; cast the array first",
        ),
        (
            lambda x: sb.add(300, x.astype(np.uint8)),
            sb.DTypeError,
            "add: x is 300, must be within [0, 255], as the array is uint8; cast the array first",
        ),
        (
            lambda x: sb.add(x, 10**400),
            sb.DTypeError,
            "add: y is beyond float64, must be a number; pass an array",
        ),
        (
            lambda x: sb.add(x, x.astype(np.float64)),
            sb.DTypeError,
            "add: y dtype is float64, must be float32; convert it first",
        ),
        (lambda x: sb.exp(range(3)), sb.DTypeError, "exp: x dtype is int64, must be float32; convert it first"),
        (
            lambda x: sb.cast(x, "float4_e2m1fn"),
            sb.DTypeError,
            (
                "cast: dtype is float4_e2m1fn, must be float64 or float32 or int64 or int32 or int16 or int8 or "
                "uint64 or uint32 or uint16 or uint8 or bool; choose one of these"
            ),
        ),
        (
            lambda x: sb.exp(closed()),
            sb.ClosedError,
            "exp: x buffer is closed, must be open; close it after its last use",
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
            "add: y shape is (3, 3), must be one that broadcasts with (3, 4); reshape it",
        ),
        (
            lambda x: sb.sum(x, (0, -2)),
            sb.LayoutError,
            "sum: axis is (0, -2), must be each axis once; leave out the repeated one",
        ),
        (
            lambda x: sb.max(x[:, :0], 1),
            sb.ShapeError,
            "max: x row length is 0, must be at least 1; an empty row has no max",
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
