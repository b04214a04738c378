"""Calls of sizes not met before: bound to what was recorded of others, in the bits of planning."""

import gc
import itertools
import threading
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import remembering
import torch

import samebits as sb
from samebits import driver
from samebits.codegen.isa import use_isa
from samebits.kernels.gemm.contraction import Spec
from samebits.native import call_keys, calls
from samebits.operations.elementwise import Map, single
from samebits.ops import memo, rebound, recording
from samebits.ops.call import Call
from samebits.ops.launch import launch

# In an order in which a class is recorded at some, and others go the same way or another: nothing, one, heights of
# microtiles and blocks of them, and as much as several threads share.
SIZES = (40, 41, 42, 3, 500, 1, 2, 0, 64, 65, 63, 700, 701, 7, 13, 130, 1300, 1301, 43, 39, 8, 501, 1200)
R = np.random.default_rng(5)
X = R.standard_normal((1301, 48)).astype(np.float32)
W = R.standard_normal((48, 72)).astype(np.float32)
B = R.standard_normal(72).astype(np.float32)
INTEGERS = R.integers(-128, 128, (1301, 48), np.int8)
CODES = R.integers(-8, 8, (48, 72), np.int8)
BFLOAT16 = ml_dtypes.bfloat16
SCALE = R.random(72).astype(np.float32)


@pytest.fixture(autouse=True)
def emitted(monkeypatch: pytest.MonkeyPatch) -> None:
    remembering.begin_emitted(monkeypatch)


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The calls that are made in Python, by name; those that are recorded among them."""
    names, begin = list[str](), Call.__init__

    def noted(self: Call, name: str, *given: Any) -> None:
        names.append(name)
        begin(self, name, *given)

    monkeypatch.setattr(Call, "__init__", noted)
    return names


CASES: dict[str, Callable[[Any, int], tuple[Any, tuple[Any, ...], dict[str, Any]]]] = {
    "matmul": lambda of, m: (sb.matmul, (of(X[:m]), of(W)), {}),
    "matmul of turned": lambda of, m: (sb.matmul, (of(X[:m].T), of(X[:m])), {}),
    "matmul of widths": lambda of, m: (sb.matmul, (of(W.T), of(X[:m].T)), {"activation": "gelu"}),
    "matmul with a batch": lambda of, m: (sb.matmul, (of(X[: m // 4 * 4].reshape(4, -1, 48)), of(W)), {}),
    "matmul of a vector": lambda of, m: (sb.matmul, (of(X[:m, 0]), of(X[:m])), {}),
    "matmul of bfloat16": lambda of, m: (sb.matmul, (X[:m].astype(BFLOAT16), W.astype(BFLOAT16)), {}),
    "integers": lambda of, m: (
        sb.matmul, (of(INTEGERS[:m]), of(CODES)),
        {"a_scale": 0.5, "b_scale": of(SCALE), "bias": of(B), "a_zero_point": 3},
    ),
    "weights": lambda of, m: (sb.matmul, (of(X[:m]), of(CODES)), {"b_scale": of(SCALE)}),
    "packed": lambda of, m: (sb.matmul, (of(X[:m]), PACKED), {"spec": Spec(chunk=128)}),
    "linear": lambda of, m: (sb.linear, (of(X[:m]), of(np.ascontiguousarray(W.T)), of(B)), {}),
    "threads": lambda of, m: (sb.linear, (of(X[:m]), of(np.ascontiguousarray(W.T))), {"threads": 2}),
    "softmax": lambda of, m: (sb.softmax, (of(X[:m]),), {}),
    "softmax down": lambda of, m: (sb.softmax, (of(X[:m]), 0), {}),
    "layer_norm": lambda of, m: (sb.layer_norm, (of(X[:m]), of(X[0]), of(X[1])), {}),
    "rms_norm": lambda of, m: (sb.rms_norm, (of(X[:m]), of(X[0])), {}),
    "log_softmax": lambda of, m: (sb.log_softmax, (of(X[:m]),), {}),
    "layer_norm of widths": lambda of, m: (sb.layer_norm, (of(X[:m].T),), {}),
    "sum": lambda of, m: (sb.sum, (of(X[:m]), (0, 1)), {"keepdims": True}),
    "mean": lambda of, m: (sb.mean, (of(X[:m, 3]),), {}),
    "add": lambda of, m: (sb.add, (of(X[:m]), of(X[1301 - m :])), {}),
    "add a row": lambda of, m: (sb.add, (of(X[:m, ::2]), of(X[5, ::2])), {}),
    "add itself": lambda of, m: (sb.add, 2 * (of(X[:m]),), {}),
    "add a column": lambda of, m: (sb.add, (of(X[:m, :1]), of(X[:m])), {}),
    "a number": lambda of, m: (sb.multiply, (of(X[:m]), 1.7), {}),
    "cast": lambda of, m: (sb.cast, (of(X[:m]), "bfloat16"), {}),
    "narrow": lambda of, m: (sb.cast, (sb.Tensor.from_any(X[:m]), "int4"), {"overflow": "saturate"}),
    "exp": lambda of, m: (sb.exp, (of(X[:m].reshape(m, 6, 8)),), {}),
    "take": lambda of, m: (sb.take, (of(W), of(np.arange(m) % 48)), {}),
    "cumsum": lambda of, m: (sb.cumsum, (of(X[:m]), 0), {}),
    "copy": lambda of, m: (sb.copy, (of(X[:m].T),), {}),
    "out": lambda of, m: (sb.add, (of(X[:m]), of(X[:m])), {"out": of(np.empty((m, 48), np.float32))}),
}  # fmt: skip
PACKED = sb.pack(W)
KINDS: dict[str, Callable[[Any], Any]] = {"numpy": np.asarray, "torch": torch.from_numpy, "tensor": sb.Tensor.from_any}


def seen(made: Any) -> tuple[Any, ...]:
    x = sb.Tensor.from_any(made)
    return type(made), x.dtype, x.shape, x.tobytes()


def outcome(function: Any, arguments: Any, options: Any) -> tuple[Any, ...]:
    try:
        return seen(function(*arguments, **options))
    except sb.SamebitsError as error:
        return type(error), str(error)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", CASES)
def test_bits_of_any_size_are_those_of_planning(name: str, kind: str) -> None:
    for m in SIZES + SIZES[::-2]:
        function, arguments, options = CASES[name](KINDS[kind], m)
        due = outcome(getattr(function, "__wrapped__", function), arguments, options)
        assert outcome(function, arguments, options) == due, m


@pytest.mark.parametrize("isa", ["scalar", "avx2", "numpy"])
def test_each_row_has_classes_of_its_own(isa: str) -> None:
    for m in SIZES[:12]:
        due = seen(sb.linear(X[:m], W.T, B))
        with use_isa(isa):
            assert seen(sb.linear(X[:m], W.T, B)) == due, m


def test_calls_that_compare_alike_are_planned_a_few_times(planned: list[str]) -> None:
    for m in range(600, 800):
        sb.matmul(X[:m], W)
        sb.softmax(X[:m])
        sb.add(X[:m], X[:m])
    assert {name: planned.count(name) <= 20 for name in set(planned)} == dict.fromkeys(
        ["matmul", "softmax", "add"], True
    )
    planned.clear()
    for m in range(600, 800):
        sb.matmul(X[:m, :], W)
    assert planned == []


def test_layers_of_many_widths_are_groups_of_one_class(planned: list[str]) -> None:
    widths = [3, 8, 9, 20, 33, 48, 64, 70, 5, 16]
    weights = [R.standard_normal((n, k)).astype(np.float32) for k, n in itertools.pairwise([48, *widths])]

    def run(m: int) -> np.ndarray:
        x = X[:m]
        for weight in weights:
            x = sb.linear(x, weight)
        return x

    for m in range(640, 700):
        run(m)
    planned.clear()
    for m in range(700, 760):
        due = X[:m]
        for weight in weights:
            due = memo.itself(sb.linear)(due, weight)
        assert run(m).tobytes() == due.tobytes()
    assert planned.count("linear") - 60 * len(weights) <= 20


def test_both_extents_may_vary(planned: list[str]) -> None:
    for m, n in itertools.product(range(200, 216, 2), range(30, 40)):
        sb.add(X[:m, :n], X[1, :n])
    planned.clear()
    for m, n in itertools.product(range(201, 217, 2), range(30, 40)):
        assert sb.add(X[:m, :n], X[1, :n]).tobytes() == (X[:m, :n] + X[1, :n]).tobytes()
    assert len(planned) <= 20


@pytest.mark.parametrize("name", ["integers", "weights", "packed", "matmul of bfloat16", "matmul of turned", "linear"])
def test_products_of_every_kind_are_recorded(name: str, planned: list[str]) -> None:
    for m in range(600, 700):
        function, arguments, options = CASES[name](np.asarray, m)
        function(*arguments, **options)
    planned.clear()
    for m in range(700, 720):
        function, arguments, options = CASES[name](np.asarray, m)
        function(*arguments, **options)
    assert len(planned) <= 4


def test_a_shape_that_was_met_leaves_few_objects_to_the_collector() -> None:
    def objects() -> int:
        gc.collect()
        gc.collect()
        return len(gc.get_objects())

    for m in range(300, 400):
        sb.linear(X[:m], W.T, B)
    before = objects()
    for m in range(400, 600):
        sb.linear(X[:m], W.T, B)
    assert objects() - before < 5 * 200


def test_refusals_are_those_of_planning() -> None:
    for m in (50, 51, 52, 53):
        sb.matmul(X[:m], W)
        sb.layer_norm(X[:m], X[0])
        sb.add(X[:m], X[:m])
    for function, arguments in (
        (sb.matmul, (X[:54, :47], W)), (sb.layer_norm, (X[:54, 1:], X[0])), (sb.add, (X[:54], X[:55])),
    ):  # fmt: skip
        with pytest.raises(sb.ShapeError) as found:
            function(*arguments)
        with pytest.raises(sb.ShapeError) as due:
            memo.itself(function)(*arguments)
        assert str(found.value) == str(due.value)


def test_threads_meet_sizes_at_once() -> None:
    due = {m: memo.itself(sb.linear)(X[:m], W.T, B).tobytes() for m in range(100, 300)}
    wrong = list[int]()

    def work(seed: int) -> None:
        for m in np.random.default_rng(seed).permutation(200) + 100:
            if sb.linear(X[:m], W.T, B).tobytes() != due[m]:
                wrong.append(m)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_a_function_that_decides_by_more_than_sizes_is_planned_each_time(planned: list[str]) -> None:
    ops = itertools.cycle(["abs", "exp"])

    @memo.remembered
    def alternating(x: Any) -> Any:
        call = Call("alternating", x)
        given = call.operand("x", x)
        (made,) = launch(call, "map", Map(single(next(ops), given.dtype)), [given])
        return call.result(made)

    for m in range(100, 110):
        alternating(X[:m])
    assert planned.count("alternating") > 10  # and when it was recorded


def test_no_element_of_a_stand_in_is_read(planned: list[str]) -> None:
    """A function that looks at elements is right, and planned each time: what stands in for an array has none."""
    for x in (recording.stand_in((2, 3), None, sb.dtypes.float32), recording.stand_in((3,), (32,), sb.dtypes.int8)):
        assert recording.is_stand_in(x)
        for use in (lambda x: x.numpy(), lambda x: x.values(), lambda x: x.tobytes(), lambda x: x.address):
            with pytest.raises(sb.SamebitsError, match="closed"):
                use(x)

    @memo.remembered
    def looking(x: Any) -> Any:
        call = Call("looking", x)
        given = call.operand("x", x)
        given.tensor.values()
        (made,) = launch(call, "map", Map(single("abs", given.dtype)), [given])
        return call.result(made)

    for m in range(100, 110):
        assert looking(X[:m]).tobytes() == np.abs(X[:m]).tobytes()
    assert planned.count("looking") > 10  # and when it was recorded, in vain


def test_what_may_share_work_tells_classes_apart(monkeypatch: pytest.MonkeyPatch, planned: list[str]) -> None:
    for m in range(1000, 1200):
        sb.matmul(X[:m], W)
    planned.clear()
    sb.matmul(X[:1200], W)
    assert planned == []
    monkeypatch.setattr(driver, "usable_cores", lambda: 3)
    sb.matmul(X[:1201], W)
    assert set(planned) == {"matmul"}


def test_classes_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rebound, "_CLASSES", 2)
    for m in (10, 11, 12, 13):
        for function in (sb.abs, sb.exp, sb.negative, sb.tanh):
            assert function(X[:m]).tobytes() == memo.itself(function)(X[:m]).tobytes()
            assert len(rebound._classes) <= 2


def test_groups_are_bounded_and_the_first_stay(monkeypatch: pytest.MonkeyPatch, planned: list[str]) -> None:
    monkeypatch.setattr(rebound, "_GROUPS", 2)
    for n, m in itertools.product((20, 30, 40), range(600, 640)):
        sb.exp(X[:m, :n])
    (found,) = rebound._classes.values()
    assert sum(map(len, found.groups.values())) == 2
    planned.clear()
    for n, m in itertools.product((20, 30, 40), range(640, 660)):
        assert sb.exp(X[:m, :n]).tobytes() == memo.itself(sb.exp)(X[:m, :n]).tobytes()
    assert 60 + 20 <= len(planned) <= 60 + 20 + 8


def test_a_call_whose_shape_is_set_meanwhile_is_not_recorded_as_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is bound comes from the key alone, whatever the array says a moment later."""
    for m in (10, 11, 12):
        sb.negative(X[:m])
    x, taken_apart = np.arange(48 * 24, dtype=np.float32).reshape(24, 48), call_keys.taken_apart

    def set_meanwhile(*given: Any) -> Any:
        x.shape = (48, 24)
        monkeypatch.setattr(call_keys, "taken_apart", taken_apart)
        return taken_apart(*given)

    monkeypatch.setattr(call_keys, "taken_apart", set_meanwhile)
    sb.negative(x)
    for shape in ((24, 48), (48, 24)):
        x.shape = shape
        assert seen(sb.negative(x)) == seen(-x)


def test_keys_are_taken_apart_to_the_last_word() -> None:
    known = calls.known(sb.PackedMatrix, Spec)
    tensor = sb.Tensor.from_any(X)
    options: dict[str, Any] = {
        "a": None, "b": True, "c": False, "d": 0, "e": (1 << 48) - 1, "f": 1 << 48, "g": -1, "h": 1.5, "i": "",
        "j": "sevenxx", "k": "eight bytes and more of them", "a name of more than eight characters": (1, 2, 3),
        "l": (), "m": Spec(chunk=64),
    }  # fmt: skip
    arrays = [*[np.ones([2] * rank, np.float32) for rank in range(9)], tensor, tensor[3:, ::2], torch.ones(2, 3), X, X]
    for arguments in ([PACKED, x] for x in arrays):
        key = known(sb.add, tuple(arguments), options)
        parts = call_keys.taken_apart(key, tuple(arguments), options, sb.PackedMatrix, Spec)
        assert parts is not None
        assert len(parts.numbers) == 2 * arguments[1].ndim
        assert len(parts.others) + len(parts.numbers) == len(key) // 8
        assert parts.numbers[: arguments[1].ndim] == tuple(arguments[1].shape)
        assert [x is not None for x in parts.arrays] == [False, True] + [False] * len(options)
