"""Every operator of `samebits.torch` is one of torch's: its schema, its shapes, its gradient, its batches."""

from __future__ import annotations

import pathlib
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import torch

import samebits.torch as st
from samebits.torch.operator import OPERATORS

pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.script:DeprecationWarning")


def normal(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    values = np.random.default_rng(len(shape)).standard_normal(shape)
    return torch.from_numpy(np.asarray(values)).to(dtype).abs().requires_grad_()


INDICES, ENDS = torch.tensor([[0, 2], [1, 2]]), torch.tensor([1, 4], dtype=torch.int32)
X, ROW = normal(4, 6), normal(6)
# A weight [3, 64] of four bits.
CODES, SCALES = torch.arange(96, dtype=torch.uint8).reshape(3, 32), normal(3, 2).detach()
ELEMENTS = ("exp", "log", "erf", "gelu", "gelu_tanh", "relu", "sigmoid", "silu", "tanh")
SAMPLES: dict[str, list[tuple[Any, ...]]] = {
    "linear": [(X, normal(3, 6), normal(3), 128, 1, "sb1"), (normal(2, 4, 6), normal(3, 6), None, 16, 2, "sb1"),
               (ROW, normal(3, 6), None, 128, 1, "sb1")],
    "matmul": [(normal(4, 1, 5, 6), normal(3, 6, 2), normal(2), 2.0, 0.5, 128, 1, "sb1"),
               (X.detach().T.requires_grad_(), X, None, 1.0, 1.0, 64, 2, "pairs32")],
    "wide_product": [(X.detach(), X.detach().bfloat16().T, None, 0.5, 128, "sb1"),
                     (X.detach().bfloat16(), X.detach().bfloat16().T, torch.ones(4, 4), 2.0, 16, "sb1")],
    "converted": [(X, torch.bfloat16), (normal(3, dtype=torch.float16), torch.float32)],
    "sum_rows": [(normal(2, 4, 6), 0.5, torch.bfloat16, 128, 1, "sb1")],
    "scaled": [(X, "mul", 0.3), (X, "div", 3.0)],
    **{name: [(X,), (normal(3, dtype=torch.bfloat16),)] for name in ELEMENTS},
    **{f"{name}_backward": [(X, X)] for name in ELEMENTS},
    **{name: [(X, -1), (X, -2)] for name in ("softmax", "log_softmax")},
    **{f"{name}_backward": [(X, X, -2)] for name in ("softmax", "log_softmax")},
    "layer_norm": [(X, ROW, ROW, 1e-5, 128, 1, "sb1"), (X, None, None, 1e-5, 128, 1, "sb1")],
    "rms_norm": [(X, ROW, 1e-5, 128, 1, "sb1"), (X, None, 1e-5, 128, 1, "sb1")],
    **{f"{name}_input_backward": [(X, X, ROW, 1e-5), (X, X, None, 1e-5)] for name in ("layer_norm", "rms_norm")},
    **{f"{name}_weight_backward": [(X, X, 1e-5)] for name in ("layer_norm", "rms_norm")},
    **{f"{name}_backward": [(X, X, ROW, 1e-5, 128, True), (X, X, ROW, 1e-5, 128, False)]
       for name in ("layer_norm", "rms_norm")},
    **{name: [(X, [-1], False), (X, [-2, -1], True)] for name in ("sum", "mean")},
    "embedding": [(INDICES, X, -1, 128, 1, "sb1"), (INDICES.int(), X, 2, 128, 1, "sb1")],
    "embedding_backward": [(normal(2, 2, 6), INDICES, 4, -1, 128, 1, "sb1"),
                           (normal(2, 2, 6), INDICES, 4, 2, 16, 2, "sb1")],
    "cross_entropy": [(X, torch.tensor([0, 5, -100, 2]), -100, reduction, count)
                      for reduction, count in (("none", None), ("sum", None), ("mean", None), ("mean", 8.0))],
    "cross_entropy_backward": [(X, torch.tensor([0, 5, -100, 2]), normal(4), -100, "none", None),
                               (X, torch.tensor([0, 5, 1, 2]), normal(), -100, "mean", None)],
    "grouped_mm": [(X, normal(2, 6, 3), ENDS, 128, 1, "sb1")],
    "grouped_mm_backward": [(X, normal(4, 3), ENDS, 128, 1, "sb1")],
    "linear_into": [(X, normal(3, 6), normal(3), torch.zeros(1, 3, 6), torch.zeros(1, 3), 512, 1, "pairs32")],
    "layer_norm_into": [(X, ROW, ROW, 1e-5, torch.zeros(2, 6), torch.zeros(2, 6), 128, 1, "sb1")],
    "rms_norm_into": [(X, ROW, 1e-5, torch.zeros(2, 6), 128, 1, "sb1")],
    "attend": [(normal(2, 4, 5), normal(2, 5, 3), torch.ones(2, 4, 5, dtype=torch.bool).triu(2), 128, "sb1")],
    "embedding_into": [(INDICES, X, -1, torch.zeros(2, 4, 6), 128, 1, "sb1")],
    "add_product_": [(torch.zeros(2, 3, 6), X.detach(), normal(4, 3).detach(), 128, 1, "sb1")],
    "add_rows_": [(torch.zeros(2, 6), X.detach(), 128, 1, "sb1")],
    "add_embedding_": [(torch.zeros(1, 4, 6), X.detach(), INDICES, 2, 128, 1, "sb1")],
    "quant_linear": [(normal(4, 64), normal(3).detach(), CODES, SCALES, None, None, None, None, "int4-group32", ""),
                     (normal(4, 64), None, CODES, SCALES, None, None, SCALES, INDICES.new_tensor(range(64)),
                      "int4-group32", "")],
    "quant_linear_backward": [(normal(4, 3), CODES, SCALES, None, None, None, None, "int4-group32", "")],
}  # fmt: skip
# Their gradients are not written.
ONCE = {name for name in OPERATORS if name.endswith("_backward")} - {"embedding_backward"}


@pytest.mark.parametrize("name", OPERATORS)
def test_an_operator_passes_torchs_own_check(name: str) -> None:
    for arguments in SAMPLES[name]:
        if name in ONCE:
            arguments = tuple(x.detach() if isinstance(x, torch.Tensor) else x for x in arguments)
        found = torch.library.opcheck(OPERATORS[name], arguments)
        assert set(found.values()) == {"SUCCESS"}, (arguments, found)


def several(made: Any) -> tuple[torch.Tensor, ...]:
    """The results of an operator that has one or some."""
    return made if isinstance(made, tuple) else (made,)


RESULTS = [name for name in OPERATORS if not name.endswith("_")]


@pytest.mark.parametrize("name", RESULTS)
def test_meta_tensors_have_shapes_and_dtypes(name: str) -> None:
    for arguments in SAMPLES[name]:
        made = several(OPERATORS[name](*arguments))
        like = several(OPERATORS[name](*[x.to("meta") if isinstance(x, torch.Tensor) else x for x in arguments]))
        assert [(x.shape, x.dtype, x.stride()) for x in like] == [(x.shape, x.dtype, x.stride()) for x in made]


@pytest.mark.parametrize("name", RESULTS)
def test_without_gradients_there_is_no_node(name: str) -> None:
    for arguments in SAMPLES[name]:
        with torch.no_grad():
            assert all(x.grad_fn is None for x in several(OPERATORS[name](*arguments)))
        with torch.inference_mode():
            assert all(x.is_inference() for x in several(OPERATORS[name](*arguments)))


def test_public_names_are_torchs() -> None:
    assert len(set(st.__all__)) == len(st.__all__)
    homes = (torch, torch.nn, torch.nn.functional, torch.optim, torch.nn.utils)
    known = {name for home in homes for name in dir(home)}
    own = {"Accumulation", "ConvertedModel", "QuantLinear", "accumulate", "convert", "left_to_torch",
           "ordered_all_reduce", "use_spec"}  # fmt: skip
    assert set(st.__all__) - known == own


def test_importing_samebits_loads_no_torch() -> None:
    source = pathlib.Path(st.__file__).parents[2]
    code = "import sys, samebits, samebits.ops.matmul; assert 'torch' not in sys.modules, 'loaded'"
    subprocess.run([sys.executable, "-c", code], check=True, env={"PYTHONPATH": str(source)})


def test_without_torch_the_import_says_what_to_install() -> None:
    source = pathlib.Path(st.__file__).parents[2]
    code = "import sys; sys.modules['torch'] = None\nimport samebits.torch"
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={"PYTHONPATH": str(source)}
    )
    assert "samebits.torch: package torch is not i" in found.stderr
    assert "pip install 'samebits[torch]'" in found.stderr
