"""Compiled functions: they break off before a step of an optimiser and go on behind it; each is counted alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gradients as due
import pytest
import torch

import samebits.torch as st

OPTIMISERS: dict[str, Callable[[Any], Any]] = {
    "SGD": lambda p: st.SGD(p, lr=0.1),
    "momentum": lambda p: st.SGD(p, lr=0.1, momentum=0.9, nesterov=True),
    "AdamW": st.AdamW,
}


def trained(make: Callable[[Any], Any], compiled: bool) -> torch.Tensor:
    """A parameter after three steps on clipped gradients, and each norm plus an element."""
    p = torch.nn.Parameter(torch.linspace(-1, 1, 15).reshape(3, 5))
    optimizer = make([p])

    def step() -> torch.Tensor:
        norm = st.clip_grad_norm_([p], 0.5)
        optimizer.step()
        return norm + p.detach()[0, 0]

    call = torch.compile(step, backend="eager") if compiled else step
    found = []
    for i in range(3):
        p.grad = torch.linspace(0, 1, 15).reshape(3, 5) + i
        found.append(call())
    return torch.cat([p.detach().flatten(), torch.stack(found)])


@pytest.mark.parametrize("name", OPTIMISERS)
def test_compiled_steps_have_the_eager_bits(name: str) -> None:
    assert due.bits(trained(OPTIMISERS[name], True)) == due.bits(trained(OPTIMISERS[name], False))


def test_one_graph_of_a_step_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(vars(st), "clip_grad_norm_", raising=False)  # so that the compiled function is the first to ask
    p = torch.nn.Parameter(torch.ones(3))
    p.grad, optimizer = torch.ones(3), st.SGD([p], lr=0.1)
    calls: dict[str, Callable[[], Any]] = {
        "optimizer.step": lambda: optimizer.step(),
        "clip_grad_norm_": lambda: st.clip_grad_norm_([p], 1.0),
    }
    for name, call in calls.items():
        with pytest.raises(torch._dynamo.exc.Unsupported) as caught:
            torch.compile(call, fullgraph=True, backend="eager")()
        remedy = f"call {name} outside of the compiled function"
        assert f"(reason: {name}: fullgraph is True, must be False around it; {remedy})" in str(caught.value)
    assert (p.tolist(), p.grad.tolist()) == ([1.0] * 3, [1.0] * 3)


def test_compiling_one_function_does_not_count_for_another() -> None:
    torch._dynamo.reset()
    x = torch.ones(2, 3)
    functions = (
        st.exp,
        st.log,
        st.erf,
        st.relu,
        st.gelu,
        st.sigmoid,
        st.silu,
        st.tanh,
        st.softmax,
        st.log_softmax,
        st.sum,
        st.mean,
    )
    assert len(functions) > torch._dynamo.config.recompile_limit
    for function in functions:
        given = (x, -1) if "softmax" in function.__name__ else (x,)
        assert torch.equal(torch.compile(function, fullgraph=True, backend="eager")(*given), function(*given))
