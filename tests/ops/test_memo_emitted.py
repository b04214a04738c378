"""Calls like one before: what they hold on to, what emitted code does itself, and when there is some."""

import gc
import itertools
import sys
import threading
import tracemalloc
import weakref

import ml_dtypes
import numpy as np
import pytest
import remembering
import torch
from torch.fx.experimental.proxy_tensor import make_fx

import samebits as sb
from samebits import hot
from samebits.codegen.isa import use_isa
from samebits.kernels import gemm
from samebits.memory import HostResource, use_resource
from samebits.native import calls
from samebits.ops import memo

pytestmark = pytest.mark.usefixtures("way")


def normal(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def test_remembered_call_refuses_a_closed_tensor():
    x = sb.Tensor.zeros((3, 5))
    sb.sqrt(x)
    assert sb.sqrt(sb.Tensor.zeros((3, 5))).numpy().sum() == 0
    x.buffer.close()
    with pytest.raises(sb.ClosedError, match="sqrt: x buffer is closed"):
        sb.sqrt(x)


class Acting(HostResource):
    """Memory as ever, but `act` is called first."""

    act = staticmethod(lambda: None)

    def take(self, size_bytes):
        self.act()
        return super().take(size_bytes)


def test_memory_outlives_a_buffer_closed_during_the_call():
    class Owner:
        pass

    for remembered in (False, False, True, True):
        owner, memory = Owner(), normal(4, 4)
        alive = weakref.ref(owner)
        x = sb.Tensor(
            sb.Buffer(memory.ctypes.data, memory.nbytes, owner),
            sb.Layout.dense((4, 4), width_bits=32),
            sb.dtypes.float32,
        )
        del owner
        seen, resource = [], Acting()

        def close(x=x, alive=alive, seen=seen):
            x.buffer.close()
            seen.append(alive() is not None)

        if remembered:
            resource.act = close
        with use_resource(resource):
            made = sb.abs(x)
        assert made.numpy().tobytes() == np.abs(memory).tobytes()
        assert seen == [True] * remembered
        del x, close
        assert alive() is None


def test_what_emitted_code_does(way, monkeypatch):
    x, y, bias = normal(5, 7), normal(7, 9, seed=1), normal(9, seed=2)
    packed, out = sb.pack(y), np.empty((5, 9), np.float32)
    tensors = [sb.Tensor.from_any(z) for z in (x, y, bias)]
    half = sb.Tensor.from_any(x.astype(ml_dtypes.bfloat16))
    big, sheet = normal(300, 301, seed=3), normal(40, 80, seed=4)
    cases = [
        lambda: sb.add(x, x),
        lambda: sb.add(x, x[::-1]),
        lambda: sb.add(x.T, bias[:5]),
        lambda: sb.multiply(x, 2.5),
        lambda: sb.multiply(3, x),
        lambda: sb.exp(x[2]),
        lambda: sb.exp(np.float32(1) + np.zeros((), np.float32).reshape(())),
        lambda: sb.sum(x, 1, keepdims=True),
        lambda: sb.sum(x, (0, 1)),
        lambda: sb.softmax(x, threads=1),
        lambda: sb.matmul(x, y),
        lambda: sb.matmul(x, packed, bias=bias, activation="relu"),
        lambda: sb.matmul(x, y, out=out),
        lambda: sb.matmul(x, y, c=out, out=out, beta=0.5),
        lambda: sb.linear(x, packed, bias),
        lambda: sb.linear(x, y.T),
        lambda: sb.matmul(*tensors[:2], bias=tensors[2]),
        lambda: sb.matmul(x, tensors[1], bias=bias),
        lambda: sb.matmul(half, half.T),
        lambda: sb.matmul(big, big.T, threads=2),
        lambda: sb.add(big, big),
        lambda: sb.grad_weight(sheet, sheet),
        lambda: sb.add(t, t.flip(0)),
        lambda: sb.matmul(t, u.T, bias=tensors[2]),
        lambda: sb.linear(t, u, bias, out=torch_out),
        lambda: sb.matmul(t.to(torch.bfloat16), u.to(torch.bfloat16).T),
        lambda: sb.multiply(t.to(torch.int8), 3),
        lambda: sb.exp(torch.ones(200, 300)),
    ]
    t, u, torch_out = torch.from_numpy(x), torch.from_numpy(y.T.copy()), torch.empty(5, 9)
    expected = []
    for case in cases:
        out[:] = 1
        expected.append(case())
        expected[-1] = type(expected[-1]), sb.Tensor.from_any(expected[-1]).tobytes()
        case()
    if way == "emitted":
        remembering.in_emitted_code_alone(monkeypatch)
    for case, due in zip(cases, expected, strict=True):
        out[:] = 1
        found = case()
        assert (type(found), sb.Tensor.from_any(found).tobytes()) == due


def test_what_changes_between_calls_is_seen():
    x, y = normal(6, 6), normal(6, 6, seed=1)
    a, b = x.copy(), y.copy()
    for _ in range(3):
        assert sb.subtract(a, b).tobytes() == (x - y).tobytes()
    a.shape, b.shape = (4, 9), (4, 9)
    assert sb.subtract(a, b).shape == (4, 9)
    a.shape, b.shape = (6, 6), (6, 6)
    a = np.asfortranarray(a)
    assert sb.subtract(a, b).tobytes() == (x - y).tobytes()
    a.dtype = b.dtype = np.int32
    assert sb.subtract(a, b).dtype == np.int32
    a.dtype = b.dtype = ">f4"
    with pytest.raises(sb.SamebitsError):
        sb.subtract(a, b)
    out = np.empty((6, 6), np.float32)
    for _ in range(3):
        sb.subtract(x, y, out=out)
    out.flags.writeable = False
    with pytest.raises(sb.ExchangeError, match="read-only"):
        sb.subtract(x, y, out=out)
    for _ in range(3):
        with pytest.raises((sb.LayoutError, FutureWarning)):
            sb.subtract(x, y, out=np.broadcast_arrays(out[:1].copy(), x)[0])


def test_packed_weights_are_told_apart_by_their_scales():
    """Of one shape and engine, and as many words: 8-bit scales of blocks of 16 take what float32 ones of 32 do."""
    x, b = normal(1, 64).astype(ml_dtypes.bfloat16), np.arange(64 * 8).astype(np.uint8).reshape(64, 8) & 15
    b, few, many = b.view(sb.dtypes.float4_e2m1fn.numpy), normal(2, 8), normal(4, 8).astype(ml_dtypes.float8_e4m3fn)
    for scale, group, factor in ((few, 32, None), (few, 32, 0.5), (few, 32, -0.5), (many, 16, None)):
        packed = sb.pack(b, left="bfloat16", scale=scale, group=group, global_scale=factor)
        due = gemm.reference(x, b, b_scale=scale, b_block=group, scale=np.float32(1 if factor is None else factor))
        for _ in range(4):
            assert sb.matmul(x, packed, out_dtype="float32").tobytes() == due.tobytes(), (group, factor)


def test_only_exact_types_are_remembered():
    class Sub(np.ndarray):
        pass

    class Number(int):
        pass

    x = normal(3, 4)
    for given in (x, x.view(Sub), sb.Tensor.from_any(x)):
        for _ in range(3):
            assert np.asarray(sb.abs(given)).tobytes() == np.abs(x).tobytes()
    for axis in (1, Number(1), np.int64(1), -1):
        for _ in range(3):
            assert np.array_equal(sb.max(x, axis), x.max(1))
    for _ in range(3):
        with pytest.raises(sb.OptionError):
            sb.max(x, 1, threads=2**70)


def test_tensors_of_torch_are_taken_as_they_are_now():
    x = torch.from_numpy(normal(4, 6))
    due = (x - x.flip(1)).numpy().tobytes()
    for _ in range(3):
        assert sb.subtract(x, x.flip(1)).numpy().tobytes() == due
    assert torch.equal(sb.subtract(x.t(), x.t()), torch.zeros(6, 4))
    negated = torch.view_as_complex(torch.stack([x, x], -1)).conj().imag  # its memory holds x
    assert negated.is_neg()
    for _ in range(3):
        with pytest.raises(sb.ExchangeError, match="still to be negated"):
            sb.subtract(negated, negated)
        assert torch.equal(sb.subtract(-negated, x), torch.zeros(4, 6))
    x.requires_grad_()
    for _ in range(3):
        with pytest.raises(BufferError, match="require gradient"):
            sb.subtract(x, x.flip(1))
        with pytest.raises(BufferError, match="require gradient"):
            sb.abs(torch.nn.Parameter(x.detach()))
    x = x.detach()
    for _ in range(3):
        with torch.device("meta"):
            assert sb.abs(x).device.type == "cpu"
        with pytest.raises(BufferError, match="meta"):
            sb.abs(x.to("meta"))
    out = torch.empty(4, 6)
    for _ in range(3):
        assert sb.abs(x, out=out) is out
        assert torch.equal(out, x.abs())
        with pytest.raises(sb.LayoutError):
            sb.softmax(x[:, :3], out=x[:, 1:4])
    x.resize_(3, 8)
    assert torch.equal(sb.abs(x), x.abs())


def functions_during(call):
    """The package's Python functions that run meanwhile."""
    seen = []

    def note(frame, event, _):
        if event == "call" and frame.f_globals.get("__name__", "").startswith("samebits."):
            seen.append(frame.f_code.co_name)

    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
    return seen


@pytest.mark.parametrize("kind", ["numpy", "torch", "tensor", "packed", "out", "torch out"])
def test_emitted_code_needs_no_python(kind, way):
    """What it left to Python would have the same answer, and only take longer. Python makes new Tensors alone."""
    x, y, out = normal(6, 6), normal(6, 6, seed=1), np.empty((6, 6), np.float32)
    kinds = {"torch": torch.from_numpy, "torch out": torch.from_numpy, "tensor": sb.Tensor.from_any}
    x, y, out = (kinds.get(kind, np.asarray)(array) for array in (x, y, out))
    options = {"out": out} if "out" in kind else {}
    y = sb.pack(y) if kind == "packed" else y
    for _ in range(3):
        sb.matmul(x, y, **options)
    seen = functions_during(lambda: sb.matmul(x, y, **options))
    assert ("_described" in seen) == (way == "python")
    assert (seen == ["wrapper"]) == (way == "emitted" and kind != "tensor")


def test_results_for_torch_are_from_the_resource_in_use():
    x, resource, taken = torch.ones(3, 4), Acting(), []
    resource.act = lambda: taken.append(1)
    for _ in range(4):
        made = sb.exp(x)
        assert (made.shape, made.dtype, made.requires_grad) == (x.shape, x.dtype, False)
        assert made.data_ptr() % 64 == 0
        with use_resource(resource):
            assert torch.equal(sb.exp(x), made)
    assert len(taken) == 4


def test_rows_threads_and_spans_have_results_of_their_own(way):
    x, y = normal(40, 50), normal(50, 60, seed=1)
    expected = sb.matmul(x, y).tobytes()
    for _ in range(3):
        for row in ("scalar", "numpy"):
            with use_isa(row):
                assert sb.matmul(x, y).tobytes() == expected
        assert sb.matmul(x, y, threads=2).tobytes() == expected
        assert sb.matmul(x, y).tobytes() == expected


def test_a_failing_allocation_raises_and_the_next_call_works():
    x, resource = sb.Tensor.from_any(normal(4, 4)), Acting()
    for _ in range(3):
        due = sb.abs(x).numpy().tobytes()

    def refuse():
        raise MemoryError("none left")

    resource.act = refuse
    for _ in range(3):
        with use_resource(resource), pytest.raises(MemoryError, match="none left"):
            sb.abs(x)
        assert sb.abs(x).numpy().tobytes() == due


def test_remembered_calls_keep_no_reference_and_no_memory():
    x, y, out = normal(5, 40), normal(40, 33, seed=1), np.empty((5, 33), np.float32)
    bias = sb.Tensor.from_any(normal(33, seed=2))
    packed, scale = sb.pack(y), 2.5
    tensor = torch.from_numpy(normal(5, 40, seed=3))
    kept = [tensor, x, y, out, bias, bias.buffer, packed, packed.tensor, scale]
    kept += [tensor.dtype, x.dtype, sb.dtypes.float32, memo._memos]

    def run():
        sb.matmul(x, packed, bias=bias, alpha=scale, threads=1)
        sb.matmul(x, y, out=out)
        sb.add(bias, bias)
        sb.exp(tensor)
        for wrong in ({"out": x}, {"alpha": None}):
            with pytest.raises(sb.SamebitsError):
                sb.matmul(x, y, **wrong)

    for _ in range(20):
        run()
    # What other tests left behind may refer to these dtypes: it goes before they are counted.
    for _ in range(5):
        gc.collect()
    before = [sys.getrefcount(z) for z in kept]
    tracemalloc.start()
    run()
    start = tracemalloc.get_traced_memory()[0]
    for _ in range(300):
        run()
    gc.collect()
    grown = tracemalloc.get_traced_memory()[0] - start
    tracemalloc.stop()
    assert [sys.getrefcount(z) for z in kept] == before
    assert grown < 20_000


def test_remembered_calls_let_go_of_their_arrays():
    x = normal(5, 40)
    for kind in (np.copy, torch.tensor):
        array, out = kind(x), kind(x)
        alive = weakref.ref(array), weakref.ref(out)
        for _ in range(3):
            sb.abs(array)
            sb.exp(array, out=out)
        del array, out
        assert [one() for one in alive] == [None, None]
    packed = sb.pack(x)
    buffer = weakref.ref(packed.tensor.buffer)
    for _ in range(3):
        sb.matmul(x[:, :5], packed)
    del packed
    assert buffer() is None


def test_threads_run_the_same_and_other_calls_at_once():
    pairs = [(normal(9, 65, seed=i), normal(65, 40, seed=i + 9)) for i in range(1, 5)]
    due = [gemm.reference(*pair).tobytes() for pair in pairs]
    wrong = []

    def work(first):
        out = np.empty((9, 40), np.float32)
        for n in range(first, first + 400):
            a, b = pairs[n % 4]
            found = sb.matmul(a, b, out=out) if n % 3 else sb.matmul(a, b)
            if found.tobytes() != due[n % 4]:
                wrong.append(n)

    workers = [threading.Thread(target=work, args=(n,)) for n in range(6)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not wrong


def test_emitted_code_comes_with_the_first_few_calls(monkeypatch):
    x, known = normal(3, 4), calls.known(gemm.PackedMatrix, gemm.Spec)
    sb.abs(x)
    for name, value in {"_calls": 0, "_begun": {}, "_offers": [memo._steps]}.items():
        monkeypatch.setattr(hot, name, value)
    monkeypatch.setattr(memo, "known", None)
    monkeypatch.setattr(hot, "thread_time", itertools.count(0.0, hot._SECONDS / 2).__next__)  # each step takes as long
    with use_isa("numpy"):
        for _ in range(20):
            sb.abs(x)
    assert (memo.known, hot._begun) == (None, {})
    for _ in range(2):  # the second has time for the first step alone
        sb.abs(x)
        assert memo.known is None
    for _ in range(8):
        sb.abs(x)
    assert memo.known is known
    assert hot._offers == []


def test_where_there_can_be_no_emitted_code_python_goes_on(monkeypatch):
    x = normal(3, 4)
    for name, value in {"_calls": 0, "_begun": {}, "_offers": [memo._steps]}.items():
        monkeypatch.setattr(hot, name, value)
    monkeypatch.setattr(memo, "known", None)
    monkeypatch.setattr(calls, "known", lambda _: None)
    for _ in range(120):
        assert sb.abs(x).tobytes() == np.abs(x).tobytes()
    assert memo.known is None


TRACERS = {
    "real": lambda f, x: make_fx(f, tracing_mode="real")(x),
    "before dispatch": lambda f, x: make_fx(f, tracing_mode="real", pre_dispatch=True)(x),
    "fake": lambda f, x: make_fx(f, tracing_mode="fake")(x),
    "script": lambda f, x: torch.jit.trace(f, (x,)),
}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("calls_before", [0, 4])
@pytest.mark.parametrize("tracer", TRACERS)
def test_what_torch_traces_to_run_again_is_refused(tracer, calls_before):
    x, out = torch.from_numpy(normal(3, 3)), torch.empty(3, 3)
    given = [lambda x: sb.matmul(x, x), lambda x: sb.exp(x), lambda x: sb.matmul(x, x, out=out)]
    for name, call in zip(("matmul", "exp", "matmul"), given, strict=True):
        for _ in range(calls_before):
            call(x)
        with pytest.raises(sb.ExchangeError) as error:
            TRACERS[tracer](call, x)
        assert str(error.value) == (
            f"{name}: call is within what torch traces, must be outside of it; "
            "call functions of samebits.torch there, which are operators of torch"
        )
        assert torch.equal(call(x), call(x.clone()))
