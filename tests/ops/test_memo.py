"""Calls like one before: the memo never changes an answer, neither in Python nor in emitted code."""

import platform
import struct
import threading

import launch
import ml_dtypes
import numpy as np
import pytest
import remembering
import torch

import samebits as sb
from samebits import driver
from samebits.codegen.isa import use_isa
from samebits.kernels import gemm
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


def test_remembered_integers_are_told_apart_by_all_their_bits(way):
    x, numbers = np.arange(3), [1, 0, -1, (1 << 48) - 1, 1 << 48, (1 << 62) | 1, -(1 << 62), -(1 << 63), (1 << 63) - 1]
    for number in 3 * numbers:
        assert sb.bitwise_xor(x, number).tobytes() == (x ^ number).tobytes(), number


def test_what_is_remembered_is_bounded(way, monkeypatch):
    monkeypatch.setattr(memo, "_MEMOS", 2)  # fewer than calls of a class that are planned before one is recorded
    monkeypatch.setattr(calls, "_KEPT", 7)
    memos, records = [], []
    for n in range(1, 40):
        x = normal(n)
        for _ in range(3):
            assert sb.abs(x).tobytes() == np.abs(x).tobytes()
        memos.append(len(memo._memos))
        records.append(len(calls._records))
    assert max(memos) == 2
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


def test_remembered_orders_of_sums_are_told_apart(way, monkeypatch):
    """By what they say: each call makes its own."""
    a, b = normal(6, 300), normal(300, 17)
    orders = [(128, 1, "sb1"), (64, 1, "sb1"), (64, 2, "sb1"), (64, 1, "pairs32"), (512, 1, "pairs32")]
    due = [gemm.reference(a, b, spec=sb.Spec(*x)).tobytes() for x in orders]
    assert len(set(due)) == len(orders)
    for turn in range(4):
        if turn == 3 and way == "emitted":
            remembering.in_emitted_code_alone(monkeypatch)
        for x, expected in zip(orders, due, strict=True):
            assert sb.matmul(a, b, spec=sb.Spec(*x)).tobytes() == expected, x


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
        remembering.in_emitted_code_alone(monkeypatch)
    for kind in kinds:
        assert np.asarray(negated_tail(kind(arrays[0]))).tobytes() == (-arrays[0][1:, 2:]).tobytes()


@memo.remembered
def joined(x, y):
    """x - y, by what another function remembers."""
    return memo.itself(sb.subtract)(x, y)


@memo.remembered
def twice(x, y):
    """(x - y) - y: two calls, of which the first has the arguments of this one."""
    return memo.itself(sb.subtract)(memo.itself(sb.subtract)(x, y), y)


@memo.remembered
def reversed_rows(x, y):
    """What follows the call is more than it."""
    return memo.itself(sb.subtract)(x, y)[::-1]


@memo.remembered
def first_of_two(x, y):
    """The result of the first call, beside another."""
    made = memo.itself(sb.subtract)(x, y)
    return made if sb.sum(y).item() < np.inf else y


@pytest.mark.parametrize(
    ("function", "meant", "count"),
    [(joined, lambda x, y: x - y, 1), (twice, lambda x, y: (x - y) - y, 0), (first_of_two, lambda x, y: x - y, None),
     (reversed_rows, lambda x, y: (x - y)[::-1], 0)],
)  # fmt: skip
def test_what_is_one_call_alone_is_remembered_by_the_arguments_of_the_whole(function, meant, count):
    before = len(memo._memos)
    for seed in range(4):
        x, y = normal(4, 5, seed=seed), normal(4, 5, seed=seed + 10)
        assert function(x, y).tobytes() == meant(x, y).tobytes()
    if count is not None:
        assert len(memo._memos) - before == count


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


def test_autograd_knows_what_is_written_into_its_tensors(way):
    ones, kept, x = torch.ones(3, 4), torch.ones(3, 4), torch.ones(3, 4, requires_grad=True)
    ways = [
        lambda: sb.add(ones, ones, out=kept), lambda: sb.copy(ones, out=kept), lambda: sb.fill(kept, 2.0),
        lambda: sb.matmul(ones, torch.eye(4), out=kept), lambda: sb.softmax(ones, out=kept),
    ]  # fmt: skip
    for write in ways:
        for _ in range(4):
            y = (x * kept).sum()
            before = kept._version
            assert write() is kept
            assert kept._version > before
            with pytest.raises(RuntimeError, match="modified by an inplace operation"):
                y.backward()
    before = kept._version
    for refused in (
        lambda: sb.matmul(ones, torch.eye(4), out=kept, plan=sb.plan_matmul(ones, torch.ones(4, 7))),
        lambda: sb.fill(kept, "two"), lambda: sb.add(ones, kept[:2], out=kept),
    ):  # fmt: skip
        with pytest.raises(sb.errors.SamebitsError):
            refused()
    assert kept._version == before  # nothing was written
    narrow = torch.zeros(4, dtype=torch.float8_e4m3fn)
    before = narrow._version
    with pytest.raises(sb.errors.DTypeError):
        sb.cast(torch.tensor([1.0, 1e9, 1.0, 1.0]), "float8_e4m3fn", overflow="error", out=narrow)
    assert narrow._version > before  # its first element is
    with torch.inference_mode():
        alone = torch.ones(3, 4)
        for _ in range(4):
            assert sb.add(ones, ones, out=alone).sum() == 24
