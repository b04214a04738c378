"""Steps of any length: calls of sizes not met before have the bits of planning, and few are planned."""

from typing import Any

import numpy as np
import pytest
import remembering
import torch

import samebits.torch as sbt
from samebits.ops import memo
from samebits.ops.call import Call

SIZES = (40, 41, 42, 3, 500, 1, 64, 65, 2, 700, 43, 39, 501, 7)
X = torch.from_numpy(np.random.default_rng(3).standard_normal((700, 48)).astype(np.float32))


def step(model: torch.nn.Module, m: int) -> list[bytes]:
    model.zero_grad()
    x = X[:m].clone().requires_grad_()
    y = model(x)
    sbt.sum(y * y, None).backward()  # type: ignore[no-untyped-call]
    return [t.detach().numpy().tobytes() for t in (y, x.grad, *[p.grad for p in model.parameters()]) if t is not None]


@pytest.fixture
def model() -> torch.nn.Module:
    torch.manual_seed(1)
    layers = torch.nn.Linear(48, 32), torch.nn.GELU(), torch.nn.Linear(32, 16), torch.nn.Softmax(-1)
    found: torch.nn.Module = sbt.convert(torch.nn.Sequential(*layers)).model
    return found


def test_steps_of_any_length_have_the_bits_of_planning(model: torch.nn.Module, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as python:
        python.setattr(memo, "known", None)
        due = {m: step(model, m) for m in SIZES}
    remembering.begin_emitted(monkeypatch)
    for m in SIZES + SIZES[::-1]:
        assert step(model, m) == due[m], m


def test_steps_that_compare_alike_are_planned_a_few_times(
    model: torch.nn.Module, monkeypatch: pytest.MonkeyPatch
) -> None:
    remembering.begin_emitted(monkeypatch)
    names, begin = list[str](), Call.__init__

    def noted(self: Call, name: str, *given: Any) -> None:
        names.append(name)
        begin(self, name, *given)

    for m in range(300, 360):
        step(model, m)
    monkeypatch.setattr(Call, "__init__", noted)
    for m in range(360, 420):
        step(model, m)
    assert max(map(names.count, names), default=0) <= 40
