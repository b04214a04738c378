"""`convert` puts our modules into a copy of a model, and says what it replaced, what it left and why."""

from __future__ import annotations

from typing import Any

import gradients as due
import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations

import samebits.torch as st
from samebits.errors import OptionError

pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.script:DeprecationWarning")


class Block(nn.Module):
    """A layer as small language models have it."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(st.gelu(self.up(self.norm(x))))


def model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Embedding(11, 8), *[Block(8) for _ in range(4)], nn.Linear(8, 11))


TOKENS = torch.arange(24).reshape(4, 6) % 11


def test_a_copy_is_converted_and_the_model_stays() -> None:
    made = model()
    found = st.convert(made)
    assert len(found.replaced) == 14
    assert found.replaced[:3] == ("0", "1.norm", "1.up")
    assert (found.left, found.disabled) == ((), ())
    assert type(made[0]) is nn.Embedding
    assert type(found.model[0]) is st.Embedding
    assert str(found).startswith("14 modules replaced: 0, 1.norm, 1.up, ")
    assert torch.allclose(found.model(TOKENS), made(TOKENS), 1e-4, 1e-5)
    assert st.convert(found.model).replaced == ()


def test_a_converted_model_compiles_and_exports_with_the_eager_bits() -> None:
    made = st.convert(model()).model
    compiled = torch.compile(made, fullgraph=True, backend="aot_eager")

    def step(function: Any) -> list[bytes]:
        made.zero_grad()
        y = function(TOKENS)
        st.cross_entropy(y.flatten(0, -2), TOKENS.flatten()).backward()
        return [due.bits(y), *[due.bits(p.grad) for p in made.parameters()]]

    assert step(compiled) == step(made)
    exported = torch.export.export(made, (TOKENS,), dynamic_shapes=({0: torch.export.Dim("rows")},))
    assert due.bits(exported.module()(TOKENS[:3])) == due.bits(made(TOKENS[:3]))


def test_ties_hooks_and_parametrisations_stay() -> None:
    embedding, head = nn.Embedding(11, 8), nn.Linear(8, 11, bias=False)
    head.weight = embedding.weight
    made = nn.Sequential(embedding, parametrizations.weight_norm(nn.Linear(8, 8)), head)
    made[2].register_forward_hook(lambda module, given, result: result * 2)
    found = st.convert(made)
    assert found.replaced == ("0", "1", "2")
    assert [name for name, _ in found.left] == ["1.parametrizations.weight.0"]
    assert found.model[0].weight is found.model[2].weight
    assert isinstance(found.model[1], st.Linear)
    assert type(made[1]).__bases__ == (nn.Linear,)
    assert torch.allclose(found.model(TOKENS), made(TOKENS), 1e-4, 1e-5)


def test_a_module_in_two_places_is_converted_once_and_shared() -> None:
    layer = nn.Linear(8, 8)
    found = st.convert(nn.Sequential(layer, layer))
    assert found.model[0] is found.model[1]
    assert found.replaced == ("0",)


def test_fast_paths_that_pass_modules_by_are_turned_off() -> None:
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    made = nn.TransformerEncoder(layer, 2).eval()
    found = st.convert(made)
    assert found.disabled == ("", "layers.0", "layers.1")
    assert "fast path off: layers.0" in str(found)
    calls = []
    for module in found.model.modules():
        if isinstance(module, st.Linear):
            module.register_forward_hook(lambda module, given, result: calls.append(module))
    x = torch.randn(3, 5, 8)
    with torch.no_grad():
        assert torch.allclose(found.model(x), made(x), 1e-4, 1e-5)
    assert len(calls) == 4
    assert ("layers.0.self_attn.out_proj", "MultiheadAttention reads its weight and passes the module by") in found.left


def test_what_stays_torchs_is_named() -> None:
    class Own(nn.Linear):
        pass

    made = nn.Sequential(nn.Mish(), Own(8, 8), nn.Embedding(4, 8, max_norm=1.0), nn.Dropout(), nn.GELU("tanh"))
    assert st.convert(made).left == (
        ("0", "torch computes it"),
        ("1", "Own is a class of its own; derive it from samebits.torch.Linear"),
        ("2", "Embedding: max_norm is 1.0, must be None; leave it out, or keep torch's module"),
    )


def test_what_a_call_leaves_to_torch_is_named() -> None:
    class Gated(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.up, self.norm = nn.Linear(8, 16), nn.LayerNorm(8)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            gate, value = self.up(self.norm(x)).chunk(2, -1)
            y = torch.cat([nn.functional.silu(gate) * value, x[..., ::2].clone().mul_(2.0)], -1) - 1.0
            return torch.add(y, y, alpha=3.0).softmax(-1) if x.shape[0] > 2 else y.where(y > 0, 0.0)

    model = st.convert(Gated()).model
    assert st.left_to_torch(model, torch.ones(2, 8)) == ("silu",)
    assert st.left_to_torch(model, torch.ones(3, 8)) == ("silu", "add", "_softmax")
    assert st.left_to_torch(lambda x: st.linear(st.silu(x), x[..., :1].repeat(1, 8)), torch.ones(8, 8)) == ()
    assert "native_layer_norm" in st.left_to_torch(Gated(), torch.ones(2, 8))
    with pytest.raises(OptionError) as caught:
        st.left_to_torch(None)  # type: ignore[arg-type]
    said = "left_to_torch: model is None, must be a module or a function; pass the module"
    assert str(caught.value) == said


def test_what_is_no_module_is_refused() -> None:
    with pytest.raises(OptionError) as caught:
        st.convert(torch.nn.functional.relu)  # type: ignore[arg-type]
    assert str(caught.value).startswith("convert: model is <function relu at ")
    assert str(caught.value).endswith("must be a torch.nn.Module; pass the module")
