"""Calls like one before: the memo never changes an answer, neither in Python nor in emitted code."""

import gc
import platform
import struct
import sys
import threading
import tracemalloc
import weakref

import launch
import ml_dtypes
import numpy as np
import pytest
import remembering
import torch

import samebits as sb
from samebits import driver, hot
from samebits.codegen.isa import use_isa
from samebits.kernels import gemm
from samebits.memory import HostResource, use_resource
from samebits.native import calls, table
from samebits.operations.elementwise import Map, single
from samebits.ops import memo
from samebits.ops.call import Call
from samebits.ops.launch import launch as launch_operation

pytestmark = pytest.mark.usefixtures("way")


def normal(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


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
    for _ in range(3):
        first = sb.matmul(a, b, c=c, bias=bias, beta=2.0)
        second = sb.matmul(a, b, bias=bias, c=c, beta=2.0)
        swapped = sb.matmul(a, b, bias=c, c=bias, beta=2.0)
        expected = gemm.reference(a, b, c=c, beta=2.0, bias=bias)
        assert first.tobytes() == second.tobytes() == expected.tobytes()
        assert swapped.tobytes() == gemm.reference(a, b, c=bias, beta=2.0, bias=c).tobytes()


def test_remembered_options_are_told_apart():
    x = normal(3, 4)
    for _ in range(3):
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


def test_remembered_numbers_are_told_apart_by_all_their_bits():
    """Zeros have signs. Of the sign and payload of a NaN its conversion to the array's format keeps none."""
    x, never = np.zeros(3, np.float32), np.zeros(3, bool)
    canonical = np.uint32(0x7FC00000).tobytes()
    codes = [0x7FF8000000000000, 0xFFF8000000000000, 0x7FF8000020000000, 0, 1 << 63]
    for code in 3 * codes:
        (number,) = struct.unpack("<d", struct.pack("<Q", code))
        due = canonical if number != number else np.float32(number).tobytes()
        assert sb.where(never, x, number).tobytes() == 3 * due, hex(code)


def test_what_is_remembered_is_bounded(way, monkeypatch):
    monkeypatch.setattr(memo, "_MEMOS", 5)
    monkeypatch.setattr(calls, "_KEPT", 7)
    memos, records = [], []
    for n in range(1, 40):
        x = normal(n)
        for _ in range(3):
            assert sb.abs(x).tobytes() == np.abs(x).tobytes()
        memos.append(len(memo._memos))
        records.append(len(calls._records))
    assert max(memos) == 5
    assert max(records) == (7 if way == "emitted" else 0)


def test_calls_of_more_axes_or_arguments_than_a_key_holds_are_as_right(way):
    for rank in (7, 8, 9, 12):
        x, before = normal(*[2] * rank), len(calls._records)
        for _ in range(3):
            assert sb.abs(x).tobytes() == np.abs(x).tobytes()
            assert sb.abs(sb.Tensor.from_any(x)).numpy().tobytes() == np.abs(x).tobytes()
            assert sb.abs(torch.from_numpy(x)).numpy().tobytes() == np.abs(x).tobytes()
        assert len(calls._records) - before == (3 if way == "emitted" and rank <= 8 else 0)


def distinct(text):
    """An equal string that is another object, as torch's dispatcher makes of each string at each call."""
    made = "".join([text[:1], text[1:]])
    assert made is not text
    return made


def test_strings_are_known_by_their_characters(way):
    """A key that told a string by where it lies would miss at each call, and keep a record of each."""
    a, b = normal(4, 6), normal(6, 5)
    names = ["erf", "exp", "gelu", "relu"]
    due = [sb.matmul(a, b, activation=name).tobytes() for name in names]
    assert len(set(due)) == len(names)

    def check(times):
        for _ in range(times):
            for name, bits in zip(names, due, strict=True):
                assert sb.matmul(a, b, **{distinct("activation"): distinct(name)}).tobytes() == bits
        return len(calls._records)

    assert check(5) == check(20) == (len(names) if way == "emitted" else 0)


TEXTS = ["", "\0", "exp\0", "\0exp", "\xe9xp", "\ud800", "e" * 303, "e" * 304, "e" * 5000]


@pytest.mark.parametrize("text", TEXTS, ids=[ascii(text[:8]) + str(len(text)) for text in TEXTS])
def test_strings_of_any_characters_are_looked_at(way, text):
    a, b = normal(4, 6), normal(6, 5)
    due = sb.matmul(a, b, activation="exp").tobytes()
    for _ in range(5):
        assert sb.matmul(a, b, activation="exp").tobytes() == due
        with pytest.raises(sb.OptionError, match="activation"):
            sb.matmul(a, b, activation=text)
        with pytest.raises(TypeError):
            sb.matmul(a, b, **{text: "exp"})


# Views of a row of elements of fewer bits than a byte, which begin at every bit of one.
VIEWS = {
    "dense": lambda t, at: t[at : at + 32].reshape((4, 8)),
    "flipped": lambda t, at: t[at : at + 32][::-1].reshape((4, 8)),
    "every second": lambda t, at: t[at : at + 64 : 2].reshape((4, 8)),
    "turned": lambda t, at: t[at : at + 32].reshape((8, 4)).T,
    "rows apart": lambda t, at: t[at : at + 48].reshape((4, 12))[:, 3:11],
}


@pytest.mark.parametrize("row", [row for row in sb.dtypes.ROWS if row.width_bits < 8], ids=str)
def test_remembered_elements_are_told_apart_by_the_bit_that_they_begin_at(row):
    codes = np.random.default_rng(5).integers(0, 1 << row.width_bits, 80).astype(np.uint8)
    bits = ((codes[:, None] >> np.arange(row.width_bits)) & 1).astype(np.uint8).ravel()
    packed = sb.Tensor.from_buffer(np.packbits(bits, bitorder="little"), row, (80,))
    values = np.array([row.decode(int(code)) for code in codes], np.float64)
    right = np.eye(8, dtype=np.float32 if row.is_float else np.int8)
    for _ in range(3):  # the first call, one remembered in Python, one that emitted code may know
        for name, view in VIEWS.items():
            for at in range(9):
                found = sb.matmul(view(packed, at), right).numpy()
                assert np.array_equal(found, view(values, at)), (name, at)


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
    for _ in range(3):
        for b in rights:
            assert sb.matmul(a, sb.pack(b)).tobytes() == gemm.reference(a, b).tobytes()
    half, b = (normal(*shape, seed=7).astype(ml_dtypes.bfloat16) for shape in ((6, 40), (40, 17)))
    expected = gemm.reference(half.astype(np.float32), b.astype(np.float32)).tobytes()
    for _ in range(3):
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
    values = (1e-40, 0.7, 1.1, np.float32(1e-40))
    assert library.fesetround(up) == 0
    try:
        rounded_up = [one() for value in values for one in calls(value)]
    finally:
        library.fesetround(0)
    remembering.forget()  # constants are remembered
    with launch.flushing():
        flushed = [one() for value in values for one in calls(value)]
    remembering.forget()
    due = [one() for value in values for one in calls(value)]
    for found in (rounded_up, flushed):
        assert [x.tobytes() for x in found] == [x.tobytes() for x in due]


def test_misaligned_array_is_refused_by_a_remembered_call_too():
    memory = np.zeros(21, np.uint8)
    misaligned = memory[1 - memory.ctypes.data % 4 :][:16].view(np.float32)
    assert not misaligned.flags.aligned
    for _ in range(3):
        with pytest.raises(sb.ExchangeError, match="x alignment is less than its dtype's"):
            sb.sqrt(misaligned)
        sb.sqrt(np.zeros(4, np.float32))


def test_remembered_tensors_that_share_a_buffer_are_told_from_those_that_do_not():
    x, y, z = (sb.Tensor.from_any(normal(6, 6, seed=seed)) for seed in range(3))
    for a, b in [(x, x.T), (x, y.T), (y, x.T), (z, z.T), (x, x), (x, y), (z, z)]:
        for _ in range(3):
            made = sb.subtract(a, b)
            assert type(made) is sb.Tensor
            assert made.numpy().tobytes() == (a.numpy() - b.numpy()).tobytes()
    n = x.numpy()
    for a, b, c, bias in [(n, n, x, x.T), (n, n, x, y.T), (n, z.numpy(), x, x.T)]:
        for _ in range(3):
            expected = gemm.reference(a, b, c=c.numpy(), bias=bias.numpy())
            assert sb.matmul(a, b, c=c, bias=bias).tobytes() == expected.tobytes()


def test_each_operand_is_remembered_by_its_argument_and_the_bytes_from_its_start():
    """The number of the array and the bytes from where it begins, of every operand of the plan, the result at last."""
    x = sb.Tensor.from_any(normal(9, 6))
    whole, part = x.T, x[3:].T
    packed = sb.to_packed(np.zeros((40, 8), ml_dtypes.int4))
    small, out = normal(6, 6), np.empty((6, 6), np.float32)
    result, fixed = table.RESULT, table.FIXED
    cases = {
        lambda: sb.subtract(small, out): [(0, 0), (1, 0), (result, 0)],
        lambda: sb.subtract(small, small): [(0, 0), (0, 0), (result, 0)],
        lambda: sb.subtract(whole[:, 3:], part): [(0, 0), (1, 0), (result, 0)],
        lambda: sb.sum(part): [(0, 0), (result, 0)],
        lambda: sb.subtract(small, out, out=out): [(0, 0), (1, 0), (1, 0)],
        lambda: sb.matmul(small, small, c=out, bias=small[0]): [(0, 0), (0, 0), (2, 0), (3, 0), (result, 0)],
        lambda: sb.grad_weight(part, whole[:, :6]): [(1, 0), (0, 0), (result, 0)],
        lambda: sb.matmul(small.astype(np.int8), packed[:6]): [(0, 0), (1, 0), (result, 0)],
        lambda: sb.add(small, 0.5): [(0, 0), (fixed, ...), (result, 0)],
        lambda: sb.matmul(small, small, alpha=2.0): [(0, 0), (0, 0), (fixed, ...), (result, 0)],
    }
    for call, due in cases.items():
        remembering.forget()
        call()
        (kept,) = memo._memos.values()
        constants = iter(kept.constants)
        expected = [(number, next(constants).address if at is ... else at) for number, at in due]
        assert [*kept.places] == expected, due


@memo.remembered
def negated_tail(x):
    """-x[1:, 2:], of the argument's own memory."""
    call = Call("negated_tail", x)
    given = call.operand("x", x)
    expression = single("neg", given.dtype)
    return call.result(launch_operation(call, "map", Map(expression), [given.seen(given.tensor[1:, 2:])])[0])


def test_a_view_that_begins_further_on_is_read_there(way, monkeypatch):
    arrays = [normal(5, 7, seed=seed) for seed in range(4)]
    kinds = [np.array, torch.tensor, sb.Tensor.from_any, lambda x: np.concatenate([x, x])[5:]]
    for kind in kinds:
        for x in arrays:
            assert np.asarray(negated_tail(kind(x))).tobytes() == (-x[1:, 2:]).tobytes()
    assert {kept.places[0] for kept in memo._memos.values()} == {(0, 4 * (7 + 2))}
    if way == "emitted":
        in_emitted_code_alone(monkeypatch)
    for kind in kinds:
        assert np.asarray(negated_tail(kind(arrays[0]))).tobytes() == (-arrays[0][1:, 2:]).tobytes()


def test_calls_whose_operands_are_made_for_them_alone_are_not_remembered():
    w, point = normal(8, 4).astype(np.int8), sb.Tensor.from_any(np.ones((), ml_dtypes.int4))
    for call in (
        lambda: sb.matmul(w.T.astype(ml_dtypes.int4), w, a_zero_point=point),  # a copy of its value
        lambda: sb.matmul(normal(0, 3), normal(3, 4)),  # nothing runs
    ):
        remembering.forget()
        for _ in range(3):
            call()
        assert not memo._memos


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


def in_emitted_code_alone(monkeypatch):
    """From here on a call that emitted code does not do fails."""

    def fail(*_):
        raise AssertionError("this call is done in Python")

    monkeypatch.setattr(memo.Memo, "run", fail)
    monkeypatch.setattr(memo, "_record", fail)


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
        in_emitted_code_alone(monkeypatch)
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
    """What it left to Python would have the same answer, and only take longer; Python makes new Tensors alone."""
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
    x, known = normal(3, 4), calls.known(gemm.PackedMatrix)
    sb.abs(x)
    for name, value in {"_calls": 0, "_begun": {}, "_offers": [memo._steps]}.items():
        monkeypatch.setattr(hot, name, value)
    monkeypatch.setattr(memo, "_known", None)
    with use_isa("numpy"):
        for _ in range(20):
            sb.abs(x)
    assert (memo._known, hot._begun) == (None, {})
    sb.abs(x)
    assert memo._known is None
    for _ in range(9):
        sb.abs(x)
    assert memo._known is known
    assert hot._offers == []


def test_where_there_can_be_no_emitted_code_python_goes_on(monkeypatch):
    x = normal(3, 4)
    for name, value in {"_calls": 0, "_begun": {}, "_offers": [memo._steps]}.items():
        monkeypatch.setattr(hot, name, value)
    monkeypatch.setattr(memo, "_known", None)
    monkeypatch.setattr(calls, "known", lambda _: None)
    for _ in range(120):
        assert sb.abs(x).tobytes() == np.abs(x).tobytes()
    assert memo._known is None
