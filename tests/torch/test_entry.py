"""Calls that torch's dispatcher has nothing to say about go to the kernel without it, and nobody can tell."""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from remembering import in_emitted_code_alone
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

import samebits as sb
import samebits.torch as st
from samebits.errors import SamebitsError
from samebits.native import calls
from samebits.ops import memo

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::torch.jit.TracerWarning")
X, W, V, ROW = torch.randn(4, 6), torch.randn(3, 6), torch.randn(4, 5), torch.randn(6)
IDS, ENDS = torch.tensor([[0, 2], [1, 2]]), torch.tensor([1, 4], dtype=torch.int32)
QUANTISED = st.QuantLinear.from_torch(nn.Linear(64, 3), "int4-group32")

Function = Callable[..., Tensor]
CASES: dict[str, tuple[Function, tuple[Tensor, ...]]] = {
    "linear": (st.linear, (X, W, torch.randn(3))),
    "matmul": (st.matmul, (X.T, V)),
    "addmm": (st.addmm, (torch.randn(5), X.T, V)),
    "grouped_mm": (lambda a, b: st.grouped_mm(a, b, offs=ENDS), (X, torch.randn(2, 6, 3))),
    "embedding": (lambda table: st.embedding(IDS, table), (X,)),
    "cross_entropy": (lambda x: st.cross_entropy(x, torch.tensor([0, 5, 1, 2])), (X,)),
    "softmax": (lambda x: st.softmax(x, -1), (X,)),
    "log_softmax": (lambda x: st.log_softmax(x, 0), (X,)),
    "layer_norm": (lambda x, w, b: st.layer_norm(x, (6,), w, b), (X, ROW, ROW + 1)),
    "rms_norm": (lambda x, w: st.rms_norm(x, (6,), w), (X, ROW)),
    "sum": (lambda x: st.sum(x, 1), (X,)),
    "mean": (st.mean, (X,)),
    "quantised": (QUANTISED, (torch.randn(2, 64),)),
    "gelu_tanh": (lambda x: st.gelu(x, approximate="tanh"), (X,)),
    **{
        name: (getattr(st, name), (X.abs(),))
        for name in ("exp", "log", "erf", "gelu", "relu", "sigmoid", "silu", "tanh")
    },
}
EVERY = pytest.mark.parametrize("name", CASES)


class Ignored(TorchFunctionMode):
    """A mode that changes nothing, under which torch asks its dispatcher."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


class Seen(TorchDispatchMode):
    """Which operators the dispatcher had."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(str(func))
        return func(*args, **(kwargs or {}))


def results(function: Function, operands: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """The result, and the gradients of its sum by the operands."""
    leaves = [x.detach().clone().requires_grad_() for x in operands]
    y = function(*leaves)
    assert y.grad_fn is not None
    return y, *torch.autograd.grad(y.sum(), leaves)


@EVERY
def test_it_has_the_bits_of_the_dispatcher(name: str) -> None:
    function, operands = CASES[name]
    found = results(function, operands)
    with Ignored():
        due = results(function, operands)
    assert len(found) == len(due) == len(operands) + 1
    assert all(torch.equal(a, b) for a, b in zip(found, due, strict=True))
    with torch.no_grad():
        alone = function(*[x.clone().requires_grad_() for x in operands])
    assert alone.grad_fn is None
    assert torch.equal(alone, due[0])


@EVERY
def test_whoever_looks_at_operators_sees_it(name: str) -> None:
    function, operands = CASES[name]
    with Seen() as seen:
        results(function, operands)
    assert sum(called.startswith("samebits.") for called in seen.names) >= (1 if name in ("sum", "mean") else 2)
    with torch.profiler.profile() as profile:
        function(*operands)
    assert any(event.key.startswith("samebits::") for event in profile.key_averages())
    traced = torch.jit.trace(function, operands)
    again = [x.clone() for x in operands]
    again[-1] *= 2
    assert torch.equal(traced(*again), function(*again))


def test_parameters_are_remembered_as_the_tensors_that_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    assert memo.compile_known()
    layer, weight, bias = st.Linear(6, 3), torch.randn(3, 6), torch.randn(3)
    for _ in range(3):
        st.linear(X, weight, bias)
    due = [layer(x) for x in (X, X.clone().requires_grad_(), X)]

    def fail(*_: object) -> None:
        raise AssertionError("this call took a tensor apart from its gradient")

    in_emitted_code_alone(monkeypatch)
    monkeypatch.setattr(Tensor, "detach", fail)
    for manager in (contextlib.nullcontext(), torch.no_grad(), torch.inference_mode(), Ignored()):
        with manager:
            for x, y in zip((X, X.clone().requires_grad_(), X), due, strict=True):
                assert torch.equal(layer(x), y)
    layer.requires_grad_(False)
    assert torch.equal(layer(X), due[0])


SPEC = sb.Spec(chunk=2, segments=2)
# A grouped product is as many products as there are groups, whose sizes are values.
KNOWN = {name: case for name, case in CASES.items() if name != "grouped_mm"} | {
    "mm": (st.mm, (X.T, V)),
    "a factor twice": (lambda x: st.mm(x, x), (torch.randn(4, 4),)),
    "bmm": (st.bmm, (torch.randn(2, 3, 4), torch.randn(2, 4, 5))),
    "baddbmm": (lambda *x: st.baddbmm(*x, beta=0.5, alpha=2.0), (X[0], torch.randn(2, 3, 4), torch.randn(2, 4, 6))),
    "linear by a spec": (lambda *x: st.linear(*x, spec=SPEC), (X, W, torch.randn(3))),
    "matmul by a spec": (lambda *x: st.matmul(*x, spec=SPEC), (X.T, V)),
}


@pytest.mark.parametrize("name", KNOWN)
def test_calls_like_one_before_are_done_in_emitted_code(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert memo.compile_known()
    function, operands = KNOWN[name]
    others = tuple([x.flip(0).contiguous().as_strided(x.shape, x.stride()) for x in operands])
    with Ignored():
        due = results(function, others)
    with torch.no_grad():
        for _ in range(3):
            function(*operands)
        in_emitted_code_alone(monkeypatch)
        monkeypatch.setattr(memo, "_described", None)
        assert torch.equal(function(*others), due[0])
    leaves = [x.clone(memory_format=torch.preserve_format).requires_grad_() for x in others]
    assert torch.equal(function(*leaves), due[0])


# Calls whose operator takes the arrays that the caller gave, and arguments that a key holds.
CLASSES = torch.tensor([0, 5, 1, 2])
WHOLE = {name: case for name, case in KNOWN.items() if name != "quantised" and not name.endswith("by a spec")} | {
    "embedding of a batch": (st.embedding, (torch.tensor([[0, 3], [1, 3]]), X)),
    "cross_entropy, none": (lambda x: st.cross_entropy(x, CLASSES, reduction="none"), (X,)),
    "by name": (lambda a, b: st.mm(mat2=b, input=a), (X.T, V)),
}
EVERY_WHOLE = pytest.mark.parametrize("name", WHOLE)


@EVERY_WHOLE
def test_calls_like_one_before_are_taken_as_a_whole(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    function, operands = whole(name)
    others = tuple([x.flip(0).contiguous().as_strided(x.shape, x.stride()) for x in operands])
    with Ignored():
        due = function(*others)

    def fail(*_: object) -> None:
        raise AssertionError("an operator was asked")

    monkeypatch.setattr(memo, "recalled", fail)
    assert torch.equal(function(*others), due)
    with torch.no_grad():
        leaves = [x.clone().as_strided(x.shape, x.stride()) for x in others]
        needing = [nn.Parameter(x) if x.is_floating_point() else x for x in leaves]
        assert torch.equal(function(*needing), due)
    frozen = [nn.Parameter(x, requires_grad=False) for x in leaves]
    assert torch.equal(function(*frozen), due)


def whole(name: str) -> tuple[Function, tuple[Tensor, ...]]:
    """A call that emitted code takes as a whole."""
    assert memo.compile_known()
    function, operands = WHOLE[name]
    for _ in range(4):
        function(*operands)
    return function, operands


@EVERY_WHOLE
def test_whoever_has_a_say_in_such_a_call_has_it(name: str) -> None:
    function, operands = whole(name)
    with Seen() as seen:
        function(*operands)
    assert [called for called in seen.names if called.startswith("samebits.")]
    with torch.profiler.profile() as profile:
        function(*operands)
    assert any(event.key.startswith("samebits::") for event in profile.key_averages())
    floats = tuple([x for x in operands if x.is_floating_point()])
    if len(floats) < len(operands):
        return
    assert torch.jit.trace(function, operands).graph.findAllNodes(f"samebits::{operator(name)}")
    leaves = [x.clone().requires_grad_() for x in floats]
    assert function(*leaves).grad_fn is not None
    assert torch.func.vmap(function)(*[x.expand(2, *x.shape) for x in floats]).ndim == function(*operands).ndim + 1
    with torch.autograd.forward_ad.dual_level(), pytest.raises(SamebitsError, match="forward-mode"):
        function(*[torch.autograd.forward_ad.make_dual(x, x) for x in floats])


def operator(name: str) -> str:
    """What runs in such a call."""
    products = ("mm", "bmm", "addmm", "baddbmm", "a factor twice", "by name")
    return "matmul" if name in products else name.partition(",")[0]


def test_autocast_the_order_of_sums_and_accumulation_decide_such_a_call() -> None:
    assert memo.compile_known()
    x, weight = torch.randn(8, 256), nn.Parameter(torch.randn(3, 256))
    with torch.no_grad():
        for _ in range(4):
            due = st.linear(x, weight)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert st.linear(x, weight).dtype is torch.bfloat16
        with st.use_spec(SPEC):
            for _ in range(4):
                assert torch.equal(st.linear(x, weight), st.linear(x, weight, spec=SPEC))
            assert not torch.equal(st.linear(x, weight), due)
        assert torch.equal(st.linear(x, weight), due)
        with (
            pytest.raises(SamebitsError, match="while gradients accumulate"),
            st.accumulate([weight]),
            st.use_spec(SPEC),
        ):
            st.linear(x, weight)


def test_such_calls_are_not_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    whole("exp")
    monkeypatch.setattr(calls, "_KEPT", len(calls._records) + 5)
    for chunk in range(1, 20):
        with st.use_spec(sb.Spec(chunk=chunk)):
            assert torch.equal(st.exp(X.abs()), st.exp(X.abs()))
        assert len(calls._records) <= calls._KEPT


def test_what_is_asked_of_torch_at_such_a_call_is_let_go() -> None:
    assert memo.compile_known()
    said: list[int] = []
    before = sys.getrefcount(said)
    for _ in range(10):
        assert type(memo.known(st.exp, (X,), {}, True, (lambda: said,) * 3)) is bytes  # type: ignore[misc]
    assert sys.getrefcount(said) == before


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32])
def test_indices_are_looked_at_in_such_a_call(dtype: torch.dtype) -> None:
    assert memo.compile_known()
    table = torch.randn(5, 3)
    for rank in (1, 2):
        indices = torch.arange(4).reshape((4,) if rank == 1 else (2, 2)).to(dtype)
        for _ in range(4):
            assert torch.equal(st.embedding(indices, table), table[indices])
        indices.view(-1)[3] = 4
        assert torch.equal(st.embedding(indices, table), table[indices])
        for wrong in (5, -1, torch.iinfo(dtype).min, torch.iinfo(dtype).max):
            indices.view(-1)[2] = wrong
            text = f"embedding: input is {wrong}, must be in [0, 5); give indices that exist"
            with pytest.raises(sb.OutOfRangeError, match=f"^{re.escape(text)}$"):
                st.embedding(indices, table)
    dy, indices = torch.randn(4, 3), torch.arange(4).to(dtype)
    for _ in range(4):
        assert torch.equal(torch.ops.samebits.embedding_backward(dy, indices, 5, -1, 128, 1, "sb1")[:4], dy)
    indices[1] = 5
    with pytest.raises(sb.OutOfRangeError):
        torch.ops.samebits.embedding_backward(dy, indices, 5, -1, 128, 1, "sb1")
    apart = torch.arange(10).to(dtype)[::2]
    for i in range(4):
        apart[1] = i
        assert torch.equal(st.embedding(apart, torch.eye(10))[:, :9].argmax(1), apart.long())
    apart[1] = 10
    with pytest.raises(sb.OutOfRangeError):
        st.embedding(apart, torch.eye(10))


def test_classes_are_looked_at_in_such_a_call() -> None:
    assert memo.compile_known()
    x, classes = torch.randn(4, 6, requires_grad=True), torch.tensor([0, 5, 1, 2])

    def call() -> tuple[Tensor, Tensor]:
        y = st.cross_entropy(x.detach(), classes, ignore_index=-7)
        (dx,) = torch.autograd.grad(st.cross_entropy(x, classes, ignore_index=-7), x)
        return y, dx

    for _ in range(4):
        y, dx = call()
    for wrong in (6, -1, -(2**63)):
        classes[3] = wrong
        remedy = "give classes that exist, or pass it as ignore_index"
        text = f"cross_entropy: target is {wrong}, must be in [0, 6); {remedy}"
        with pytest.raises(sb.OutOfRangeError, match=f"^{re.escape(text)}$"):
            call()
    classes[3] = -7
    with Ignored():
        due = call()
    for _ in range(4):
        found = call()
        assert torch.equal(found[0], due[0])
        assert torch.equal(found[1], due[1])
        assert torch.equal(found[1][3], torch.zeros(6))
    classes[3] = 2
    assert torch.equal(call()[0], y)
    assert torch.equal(call()[1], dx)


def test_what_needs_a_gradient_is_refused_as_before_once_it_was_remembered() -> None:
    weight, bias = nn.Parameter(torch.randn(3, 6)), torch.randn(3)
    for _ in range(3):
        sb.linear(X, weight.detach(), bias)
        st.linear(X, weight, bias)
    with pytest.raises(SamebitsError, match="detach"):
        sb.linear(X, weight, bias)
    with pytest.raises(SamebitsError, match="detach"):
        sb.linear(X, weight.detach().requires_grad_(), bias)


def test_a_tensor_that_escaped_its_transform_has_its_values() -> None:
    escaped: list[Tensor] = []

    def keep(x: Tensor) -> Tensor:
        escaped.append(x)
        return x.sum()

    torch.func.grad(keep)(X)
    assert torch.equal(st.exp(escaped[0]).detach(), st.exp(X))


def test_below_autograd_nothing_is_recorded() -> None:
    """As in kernels of operators whose gradient another one registers."""
    x = X.clone().requires_grad_()
    with torch._C._AutoDispatchBelowAutograd():
        assert torch.exp(x).grad_fn is None
        assert st.exp(x).grad_fn is None
        assert torch.equal(st.exp(x), st.exp(X))
