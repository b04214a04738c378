"""A model of torch's modules with those of ours in their place: `convert`."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn.utils import parametrize
from torch.utils._python_dispatch import TorchDispatchMode

from samebits.errors import OptionError, shown
from samebits.frozen import dataclass
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
    check,
)

__all__ = ["ConvertedModel", "convert", "left_to_torch"]

# Operators of torch whose results are copied, chosen or rounded once: they are the same wherever an element lies.
_EXACT = frozenset((
    "_to_copy", "_unsafe_view", "abs", "add", "alias", "arange", "bitwise_and", "bitwise_not", "bitwise_or",
    "bitwise_xor", "cat", "ceil", "clamp", "clamp_max", "clamp_min", "clone", "constant_pad_nd", "copy", "detach",
    "div", "embedding", "empty", "empty_like", "empty_strided", "fill", "floor", "full", "full_like", "gather", "index",
    "index_put", "index_select", "lift_fresh", "masked_fill", "max", "maximum", "min", "minimum", "mul", "neg",
    "new_empty", "new_full", "new_ones", "new_zeros", "ones", "ones_like", "relu", "repeat", "round", "scalar_tensor",
    "scatter", "select_scatter", "sign", "slice_scatter", "sort", "sqrt", "stack", "sub", "threshold", "topk", "tril",
    "triu", "trunc", "where", "zero", "zeros", "zeros_like",
))  # fmt: skip

_ROWS: tuple[tuple[type[nn.Module], type[nn.Module]], ...] = (
    (nn.Linear, Linear), (nn.LayerNorm, LayerNorm), (nn.RMSNorm, RMSNorm), (nn.Embedding, Embedding), (nn.GELU, GELU),
    (nn.ReLU, ReLU), (nn.SiLU, SiLU), (nn.Sigmoid, Sigmoid), (nn.Tanh, Tanh), (nn.Softmax, Softmax),
    (nn.LogSoftmax, LogSoftmax),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class ConvertedModel:
    """What `convert` made.

    Attributes:
        model: The copy.
        replaced: Names of modules that are ours now.
        left: Names of modules whose arithmetic is torch's still, each with the reason.
        disabled: Names of modules whose fast path, which reads parameters past the modules that hold them, is off now.
    """

    model: nn.Module
    replaced: tuple[str, ...]
    left: tuple[tuple[str, str], ...]
    disabled: tuple[str, ...]

    def __str__(self) -> str:
        lines = [f"{len(self.replaced)} modules replaced: {', '.join(self.replaced) or 'none'}"]
        lines += [f"left {name}: {reason}" for name, reason in self.left]
        lines += [f"fast path off: {name}" for name in self.disabled]
        return "\n".join(lines)


def convert(model: nn.Module) -> ConvertedModel:
    """A copy of a model with the modules of `samebits.torch` where it has torch's.

    A module keeps its parameters, names, hooks and parametrisations, and what is shared stays shared. What a model
    calls as a function, such as `torch.nn.functional.softmax`, is torch's still: `left_to_torch` finds it.

    Raises:  OptionError if model is no module.
    """
    if not isinstance(model, nn.Module):
        raise OptionError("convert", "model", "", shown(model), "a torch.nn.Module", "pass the module")
    made = copy.deepcopy(model)
    replaced, left, disabled = list[str](), list[tuple[str, str]](), list[str]()
    passed_by = {
        f"{name}.out_proj".removeprefix(".") for name, m in made.named_modules() if isinstance(m, nn.MultiheadAttention)
    }
    for name, module in made.named_modules():
        if isinstance(module, nn.TransformerEncoderLayer) and module.activation_relu_or_gelu:
            module.activation_relu_or_gelu = 0
            disabled.append(name)
        if isinstance(module, nn.TransformerEncoder) and module.use_nested_tensor:
            module.use_nested_tensor = False
            disabled.append(name)
        reason = (
            "MultiheadAttention reads its weight and passes the module by" if name in passed_by else _replace(module)
        )
        if reason:
            left.append((name, reason))
        elif reason is None:
            replaced.append(name)
    return ConvertedModel(made, tuple(replaced), tuple(left), tuple(disabled))


def left_to_torch(model: Callable[..., object], *arguments: Any, **keywords: Any) -> tuple[str, ...]:
    """Names of torch's operators that a call of a model computes with, in the order that they first come.

    Left out are those whose results are copied, chosen or rounded once: they have one answer wherever an element lies.
    The call is made, without gradients; another one may take another way through the model.

    Raises:  OptionError if model is nothing to call; what the model raises.
    """
    if not callable(model):
        raise OptionError("left_to_torch", "model", "", shown(model), "a module or a function", "pass the module")
    with torch.no_grad(), _Watch() as watch:
        model(*arguments, **keywords)
    return tuple(watch.found)


class _Watch(TorchDispatchMode):
    """What torch is asked to compute meanwhile, of floats."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.found: dict[str, None] = {}

    def __torch_dispatch__(self, operator: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Note the operator, and have it computed."""
        made, given = operator(*args, **(kwargs or {})), kwargs or {}
        space, _, name = str(operator.overloadpacket).partition(".")
        is_exact = operator.is_view or (name.rstrip("_") in _EXACT and given.get("alpha", 1) == 1)
        results = made if isinstance(made, tuple | list) else (made,)
        if (
            space == "aten"
            and not is_exact
            and any(isinstance(x, torch.Tensor) and x.is_floating_point() for x in results)
        ):
            self.found[name] = None
        return made


def _replace(module: nn.Module) -> str | None:
    """Make a module ours where it is one of `_ROWS`: None if it is now, else why it is not; empty where it has nothing
    to compute itself."""
    for theirs, ours in _ROWS:
        if isinstance(module, ours):
            return ""
        if type(module) is theirs or _is_parametrised(module, theirs):
            try:
                check(module)
            except OptionError as error:
                return str(error)
            module.__class__ = ours if type(module) is theirs else _parametrised(type(module), ours)
            return None
        if isinstance(module, theirs):
            return f"{type(module).__name__} is a class of its own; derive it from samebits.torch.{ours.__name__}"
    if isinstance(module, nn.MultiheadAttention):
        return "torch computes it"
    inert = (nn.Dropout, nn.Flatten, nn.Identity, nn.Unflatten, parametrize.ParametrizationList)
    return "" if any(True for _ in module.children()) or isinstance(module, inert) else "torch computes it"


def _is_parametrised(module: nn.Module, kind: type[nn.Module]) -> bool:
    return parametrize.is_parametrized(module) and type(module).__bases__ == (kind,)


def _parametrised(cls: type[nn.Module], ours: type[nn.Module]) -> Any:
    """The class that torch made for one parametrised module, derived from ours."""
    members = {name: value for name, value in vars(cls).items() if name not in ("__dict__", "__weakref__")}
    return type(cls.__name__, (ours,), members)
