"""Modules of `samebits.torch` are torch's in everything but their bits."""

from __future__ import annotations

import copy
import io
import threading

import gradients as due
import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import samebits.torch as st
from samebits.errors import OptionError


def test_linear_is_torchs_but_for_its_product() -> None:
    ours, theirs = st.Linear(7, 3, dtype=torch.float64), nn.Linear(7, 3, dtype=torch.float64)
    ours.load_state_dict(theirs.state_dict())
    x = torch.randn(5, 7, dtype=torch.float64)
    assert repr(ours) == repr(theirs)
    assert isinstance(ours, nn.Linear)
    assert torch.allclose(ours(x), theirs(x), 1e-12, 1e-12)
    assert torch.equal(ours(x), st.linear(x, ours.weight, ours.bias))
    assert ours(x[0]).shape == (3,)
    assert torch.equal(ours(x)[0], ours(x[0]))


def test_linear_is_made_on_meta_and_takes_a_state_by_assignment() -> None:
    ours = st.Linear(7, 3, device="meta", dtype=torch.bfloat16)
    state = nn.Linear(7, 3, dtype=torch.bfloat16).state_dict()
    ours.load_state_dict(state, assign=True)
    assert ours.weight.data_ptr() == state["weight"].data_ptr()
    assert ours(torch.ones(2, 7, dtype=torch.bfloat16)).dtype == torch.bfloat16


@pytest.mark.parametrize("bias", [True, False])
def test_from_torch_shares_parameters(bias: bool) -> None:
    theirs = nn.Linear(7, 3, bias=bias).eval()
    ours = st.Linear.from_torch(theirs)
    assert ours.weight is theirs.weight
    assert ours.bias is theirs.bias
    assert (repr(ours), ours.training) == (repr(theirs), False)


def test_norms_and_embedding_are_torchs() -> None:
    x, indices = torch.randn(4, 6), torch.tensor([[0, 2], [3, 3]])
    for ours, theirs, given in (
        (st.LayerNorm(6), nn.LayerNorm(6), x), (st.LayerNorm((4, 6), eps=0.1), nn.LayerNorm((4, 6), eps=0.1), x),
        (st.LayerNorm(6, elementwise_affine=False), nn.LayerNorm(6, elementwise_affine=False), x),
        (st.RMSNorm(6), nn.RMSNorm(6), x), (st.RMSNorm((4, 6), eps=0.1), nn.RMSNorm((4, 6), eps=0.1), x),
        (st.RMSNorm(6, elementwise_affine=False), nn.RMSNorm(6, elementwise_affine=False), x),
        (st.Embedding(4, 5, padding_idx=3), nn.Embedding(4, 5, padding_idx=3), indices),
    ):  # fmt: skip
        ours.load_state_dict(theirs.state_dict())
        assert repr(ours) == repr(theirs)
        assert torch.allclose(ours(given), theirs(given), 1e-5, 1e-6)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"max_norm": 1.0}, "max_norm is 1.0, must be None"),
        ({"scale_grad_by_freq": True}, "scale_grad_by_freq is True, must be False"),
        ({"sparse": True}, "sparse is True, must be False"),
    ],
)
def test_embedding_refuses_what_it_has_not(options: dict[str, object], text: str) -> None:
    with pytest.raises(OptionError) as caught:
        st.Embedding(4, 5, **options)
    assert str(caught.value) == f"Embedding: {text}; leave it out, or keep torch's module"


def test_a_name_that_is_none_is_told_with_what_it_was_looked_for_in() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'layernorm'") as caught:
        st.layernorm  # noqa: B018
    assert (caught.value.name, caught.value.obj) == ("layernorm", st)


def test_activations_are_the_functions() -> None:
    x = torch.randn(3, 4)
    for module, expected in (
        (st.GELU(), st.gelu(x)), (st.GELU("tanh"), st.gelu(x, approximate="tanh")),
        (st.ReLU(inplace=True), st.relu(x)), (st.Softmax(0), st.softmax(x, 0)),
        (st.Softmax(), st.softmax(x, -1)), (st.LogSoftmax(-1), st.log_softmax(x)), (st.Sigmoid(), st.sigmoid(x)),
        (st.Tanh(), st.tanh(x)), (st.SiLU(inplace=True), st.silu(x)),
    ):  # fmt: skip
        assert torch.equal(module(x), expected)
    with pytest.raises(OptionError) as caught:
        st.GELU("sigmoid")
    assert str(caught.value) == "GELU: approximate is 'sigmoid', must be none or tanh; leave it out for the one by erf"


def model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(st.Embedding(11, 8), st.Linear(8, 16), st.LayerNorm(16), st.Linear(16, 11, bias=False))


def step(made: nn.Module, tokens: torch.Tensor) -> list[bytes]:
    made.zero_grad()
    st.cross_entropy(made(tokens).flatten(0, -2), tokens.flatten()).backward()
    return [due.bits(p.grad) for p in made.parameters() if p.grad is not None]


TOKENS = torch.arange(24).reshape(4, 6) % 11


def test_copies_and_saved_modules_have_the_same_bits() -> None:
    made, file = model(), io.BytesIO()
    expected = step(made, TOKENS)
    torch.save(made, file)
    file.seek(0)
    loaded = torch.load(file, weights_only=False)
    assert step(copy.deepcopy(made), TOKENS) == step(loaded, TOKENS) == expected


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpoints_have_the_same_bits(reentrant: bool) -> None:
    made = model()
    expected = step(made, TOKENS)
    made.zero_grad()
    hidden = made[0](TOKENS)
    hidden = checkpoint(made[1:], hidden, use_reentrant=reentrant)
    st.cross_entropy(hidden.flatten(0, -2), TOKENS.flatten()).backward()
    assert [due.bits(p.grad) for p in made.parameters()] == expected


def test_threads_may_call_a_module_at_once() -> None:
    made = model()
    expected, found = step(made, TOKENS), []
    copies = [copy.deepcopy(made) for _ in range(8)]
    threads = [threading.Thread(target=lambda m=m: found.append(step(m, TOKENS))) for m in copies]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [expected] * 8


def test_backward_keeps_no_more_than_torchs() -> None:
    def kept(module: nn.Module, x: torch.Tensor) -> list[int]:
        found = []

        def pack(tensor: torch.Tensor) -> torch.Tensor:
            found.append(tensor.data_ptr())
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            module(x)
        return found

    x = torch.randn(5, 7, requires_grad=True)
    for frozen, given in ((False, x), (False, x.detach()), (True, x)):
        theirs = nn.Linear(7, 3)
        theirs.weight.requires_grad_(not frozen)
        ours = st.Linear.from_torch(theirs)
        assert set(kept(ours, given)) <= set(kept(theirs, given))
