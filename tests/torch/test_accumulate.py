"""`accumulate`: a batch whole and in parts, compiled and checkpointed, has the same gradients, bit for bit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gradients as due
import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import samebits as sb
import samebits.torch as st
from samebits.errors import OptionError, ShapeError

pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.script:DeprecationWarning")
ROWS = 1024
EACH = "128 for each segment of a micro-batch; cut the batch otherwise"
GENERATOR = torch.Generator().manual_seed(0)
TOKENS = torch.randint(0, 13, (ROWS,), generator=GENERATOR)


def model(dtype: torch.dtype = torch.float32) -> nn.Sequential:
    torch.manual_seed(1)
    norms = st.LayerNorm(20), st.SiLU(), st.RMSNorm(20)
    return nn.Sequential(st.Embedding(13, 10), st.Linear(10, 20), *norms, st.Linear(20, 13)).to(dtype)


def gradients(
    count: int, segments: int, dtype: torch.dtype = torch.float32, wrapped: Callable[[nn.Module], Any] = lambda m: m,
    made: nn.Module | None = None,
) -> list[bytes]:  # fmt: skip
    """Those of a batch in so many parts."""
    made = made or model(dtype)
    function = wrapped(made)
    with st.accumulate(made.parameters(), segments=segments) as batch:
        for i in batch.micro_batches(count):
            part = slice(i * ROWS // count, (i + 1) * ROWS // count)
            st.cross_entropy(function(TOKENS[part]), TOKENS[part], count=ROWS).backward()
    assert all(p.grad is None and p.main_grad.dtype == torch.float32 for p in made.parameters())
    return [due.bits(p.main_grad) for p in made.parameters()]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("segments", [1, 2, 4])
def test_parts_are_the_whole(segments: int, dtype: torch.dtype) -> None:
    whole = gradients(1, segments, dtype)
    assert all(gradients(count, segments, dtype) == whole for count in (2, 4, 8))


@pytest.mark.parametrize("segments", [1, 4])
def test_the_sums_are_those_of_a_spec_with_segments(segments: int) -> None:
    made = model()
    with st.use_spec(sb.Spec(segments=segments)):
        y = st.linear(hidden := torch.randn(ROWS, 20, generator=GENERATOR), made[5].weight, made[5].bias)
    dw, db = torch.autograd.grad(y, (made[5].weight, made[5].bias), torch.ones_like(y))
    with st.accumulate(made[5].parameters(), segments=segments):
        made[5](hidden).backward(torch.ones_like(y))
    assert (due.bits(made[5].weight.main_grad), due.bits(made[5].bias.main_grad)) == (due.bits(dw), due.bits(db))


def test_compiled_models_add_up_too() -> None:
    wrapped = lambda m: torch.compile(m, fullgraph=True, backend="aot_eager")  # noqa: E731
    assert gradients(4, 2, wrapped=wrapped) == gradients(1, 2)


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpointed_models_add_up_too(reentrant: bool) -> None:
    def wrapped(made: Any) -> Any:
        return lambda tokens: checkpoint(made[1:], made[0](tokens), use_reentrant=reentrant)

    assert gradients(4, 2, wrapped=wrapped) == gradients(1, 2)


def test_a_weight_that_is_used_twice_has_both_gradients() -> None:
    def tied() -> nn.Sequential:
        made = nn.Sequential(st.Embedding(13, 10), st.LayerNorm(10), st.Linear(10, 13, bias=False))
        torch.manual_seed(2)
        nn.init.normal_(made[0].weight)
        made[2].weight = made[0].weight
        return made

    whole = gradients(1, 4, made=tied())
    assert all(gradients(count, 4, made=tied()) == whole for count in (2, 4))
    plain = tied()
    st.cross_entropy(plain(TOKENS), TOKENS).backward()
    parted = tied()
    gradients(4, 4, made=parted)
    assert torch.allclose(parted[0].weight.main_grad, plain[0].weight.grad, 1e-4, 1e-6)


def test_autocast_adds_up_in_float32() -> None:
    def wrapped(made: Any) -> Any:
        def call(tokens: torch.Tensor) -> torch.Tensor:
            with torch.autocast("cpu", torch.bfloat16):
                return made(tokens)  # type: ignore[no-any-return]

        return call

    assert gradients(4, 2, wrapped=wrapped) == gradients(1, 2, wrapped=wrapped)


def test_operands_get_their_gradient_as_ever() -> None:
    layer, x = st.Linear(5, 3), torch.randn(4, 5, requires_grad=True)
    (expected,) = torch.autograd.grad(layer(x).sum(), x)
    with st.accumulate(layer.parameters()):
        (found,) = torch.autograd.grad(layer(x).sum(), x)
    assert due.bits(found) == due.bits(expected)


def test_other_parameters_and_later_calls_have_grad() -> None:
    inner, outer = st.Linear(5, 3), st.Linear(3, 2)
    with st.accumulate(inner.parameters()):
        outer(inner(torch.ones(4, 5))).sum().backward()
    assert outer.weight.grad is not None
    assert inner.weight.grad is None
    kept = inner.weight.main_grad.clone()
    inner(torch.ones(4, 5)).sum().backward()
    assert inner.weight.grad is not None
    assert torch.equal(inner.weight.main_grad, kept)


def test_a_main_grad_of_an_earlier_batch_is_not_added_to() -> None:
    inner, outer = st.Linear(5, 3), st.Linear(3, 3)
    x = torch.ones(4, 5)
    with st.accumulate([*inner.parameters(), *outer.parameters()]):
        outer(inner(x)).sum().backward()
    kept = outer.weight.main_grad.clone()
    # A shape that a sum could have: nothing but who made it tells them apart.
    outer.bias.main_grad = torch.zeros(1, 3)
    with st.accumulate(inner.parameters()):
        outer(inner(x)).sum().backward()
    assert torch.equal(outer.weight.main_grad, kept)
    assert not outer.bias.main_grad.any()
    assert due.bits(outer.weight.grad) == due.bits(kept)
    assert outer.bias.grad is not None


def test_a_weight_that_is_computed_passes_its_gradient_on() -> None:
    base, x = torch.ones(3, 5, requires_grad=True), torch.ones(4, 5)
    (expected,) = torch.autograd.grad(st.linear(x, base * 2).sum(), base)
    weight = base * 2
    with st.accumulate([weight]) as batch:
        st.linear(x, weight).sum().backward()
    assert batch.gradients == []
    assert base.grad is not None
    assert due.bits(base.grad) == due.bits(expected)


def test_a_turn_after_the_batch_is_refused_and_changes_nothing() -> None:
    layer = st.Linear(5, 3)
    with st.accumulate(layer.parameters()) as batch:
        turns = batch.micro_batches(2)
        next(turns)
        layer(torch.ones(128, 5)).sum().backward()
    kept = layer.weight.main_grad
    with pytest.raises(OptionError) as caught:
        next(turns)
    expected = "micro_batches: batch is over, must be one that accumulates; take every turn within it"
    assert str(caught.value) == expected
    assert layer.weight.main_grad is kept
    assert not hasattr(layer.weight, "samebits_sums")


def test_what_fails_leaves_nothing_behind() -> None:
    layer = st.Linear(5, 3)
    with pytest.raises(ZeroDivisionError), st.accumulate(layer.parameters()):
        raise ZeroDivisionError
    assert layer.weight.main_grad is None
    layer(torch.ones(4, 5)).sum().backward()
    assert layer.weight.grad is not None


def accumulating(call: Callable[[st.Accumulation, st.Linear], Any], **options: Any) -> None:
    layer = st.Linear(5, 3)
    with st.accumulate(layer.parameters(), **options) as batch:
        call(batch, layer)


def in_two(rows: int) -> Callable[[st.Accumulation, st.Linear], Any]:
    return lambda batch, layer: [layer(torch.ones(rows, 5)) for _ in batch.micro_batches(2)]


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: accumulating(in_two(64)), ShapeError,
         f"linear: input row count is 64, must be a multiple of 128, {EACH}"),
        (lambda: accumulating(in_two(128), segments=4), ShapeError,
         f"linear: input row count is 128, must be a multiple of 256, {EACH}"),
        (lambda: accumulating(lambda batch, layer: [*batch.micro_batches(3)], segments=2), OptionError,
         "micro_batches: count is 3, must be a multiple or a divisor of 2 segments; cut the batch otherwise"),
        (lambda: accumulating(in_two(64), segments=3), OptionError,
         "Spec: segments is 3, must be a power of two up to 1024; use 1, 2, 4 or 8"),
        (lambda: accumulating(lambda batch, layer: accumulating(in_two(64))), OptionError,
         "accumulate: this thread is in another one, must be in none; leave that first"),
        (lambda: accumulating(lambda batch, layer: st.linear(torch.ones(4, 5), layer.weight, spec=sb.Spec(64))),
         OptionError,
         ("linear: spec is Spec(chunk=64, segments=1, order='sb1'), must be sb1 while gradients accumulate; "
         "leave it out")),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused_in_a_sentence(call: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error) as caught:
        call()
    assert str(caught.value) == text
