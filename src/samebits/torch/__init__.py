"""Training in PyTorch with the same bits everywhere: functions and modules with gradients that compose.

Names and arguments are torch's. The order of every sum, forward and backward, is written in docs/numerics.md.
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING

from samebits.optional import missing

try:
    import torch as _torch  # noqa: F401
except ImportError as error:
    raise missing("samebits.torch", "torch", error) from error

from samebits.torch.accumulate import Accumulation, accumulate
from samebits.torch.attention import scaled_dot_product_attention
from samebits.torch.collectives import ordered_all_reduce
from samebits.torch.convert import ConvertedModel, convert, left_to_torch
from samebits.torch.functions import (
    cross_entropy,
    embedding,
    erf,
    exp,
    gelu,
    grouped_mm,
    layer_norm,
    log,
    log_softmax,
    mean,
    relu,
    rms_norm,
    sigmoid,
    silu,
    softmax,
    sum,
    tanh,
)
from samebits.torch.modules import (
    GELU,
    Embedding,
    LayerNorm,
    Linear,
    LogSoftmax,
    ReLU,
    RMSNorm,
    Sigmoid,
    SiLU,
    Softmax,
    Tanh,
)
from samebits.torch.products import addmm, baddbmm, bmm, linear, matmul, mm
from samebits.torch.quantized import QuantLinear
from samebits.torch.spec import use_spec

# Optimisers tell torch's compiler where to break off, which loads it: half of an import, when it is first asked for.
if TYPE_CHECKING:
    from samebits.torch.optimizers import SGD, AdamW, clip_grad_norm_

__all__ = [
    "GELU", "SGD", "Accumulation", "AdamW", "ConvertedModel", "Embedding", "LayerNorm", "Linear", "LogSoftmax",
    "QuantLinear", "RMSNorm", "ReLU", "SiLU", "Sigmoid", "Softmax", "Tanh", "accumulate", "addmm", "baddbmm", "bmm",
    "clip_grad_norm_", "convert", "cross_entropy", "embedding", "erf", "exp", "gelu", "grouped_mm", "layer_norm",
    "left_to_torch", "linear", "log", "log_softmax", "matmul", "mean", "mm", "ordered_all_reduce", "relu", "rms_norm",
    "scaled_dot_product_attention", "sigmoid", "silu", "softmax", "sum", "tanh", "use_spec",
]  # fmt: skip


def __getattr__(name: str) -> object:
    """Import optimisers once somebody names one."""
    if name not in ("AdamW", "SGD", "clip_grad_norm_"):
        # With these two Python's traceback says which name may have been meant.
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name, obj=sys.modules[__name__])
    value = getattr(importlib.import_module(f"{__name__}.optimizers"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """What is public."""
    return __all__
