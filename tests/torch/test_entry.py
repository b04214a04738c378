"""Calls that torch's dispatcher has nothing to say about go to the kernel without it, and nobody can tell."""

from __future__ import annotations

import contextlib
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
    "sum": (lambda x: st.sum(x, 1), (X,)),
    "mean": (st.mean, (X,)),
    "quantised": (QUANTISED, (torch.randn(2, 64),)),
    **{name: (getattr(st, name), (X.abs(),)) for name in ("exp", "log", "erf", "gelu", "relu")},
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
