"""Modules as torch names them, such as `Linear` and `LayerNorm`; their state is torch's."""

from __future__ import annotations

from typing import Any, Self

from torch import Tensor, nn

from samebits.errors import OptionError, shown
from samebits.ops.elementwise import is_by_tanh
from samebits.shapes import check_type
from samebits.torch import functions, products

__all__ = [
    "GELU", "Embedding", "LayerNorm", "Linear", "LogSoftmax", "RMSNorm", "ReLU", "SiLU", "Sigmoid", "Softmax", "Tanh",
    "check",
]  # fmt: skip


class Linear(nn.Linear):
    """`torch.nn.Linear` whose product, gradients included, has the bits of numerics.md sections 2 and 5."""

    def forward(self, input: Tensor) -> Tensor:
        """input @ weight^T + bias."""
        return products.linear(input, self.weight, self.bias)

    @classmethod
    def from_torch(cls, module: nn.Linear) -> Self:
        """One with the parameters of a module, which share its memory; in training if it is.

        Raises:  OptionError if it is no Linear.
        """
        check_type("Linear.from_torch", "module", module, nn.Linear, "pass a torch.nn.Linear")
        made = cls(1, 1, bias=module.bias is not None, device="meta")
        made.in_features, made.out_features = module.in_features, module.out_features
        made.weight, made.bias = module.weight, module.bias
        return made.train(module.training)


class LayerNorm(nn.LayerNorm):
    """`torch.nn.LayerNorm` with the bits of numerics.md sections 5 and 8."""

    def forward(self, input: Tensor) -> Tensor:
        """(input - mean) / sqrt(var + eps) * weight + bias."""
        return functions.layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)


class RMSNorm(nn.RMSNorm):
    """`torch.nn.RMSNorm` with the bits of numerics.md sections 5 and 8."""

    def forward(self, input: Tensor) -> Tensor:
        """input / sqrt(mean(input * input) + eps) * weight."""
        return functions.rms_norm(input, self.normalized_shape, self.weight, self.eps)


class Embedding(nn.Embedding):
    """`torch.nn.Embedding` whose gradient has the bits of numerics.md section 5.

    Raises:  OptionError for max_norm, scale_grad_by_freq and sparse, which it has not.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        check(self)

    def forward(self, input: Tensor) -> Tensor:
        """Rows of weight."""
        return functions.embedding(input, self.weight, self.padding_idx)


class GELU(nn.GELU):
    """`torch.nn.GELU` with the bits of numerics.md sections 5 and 7.

    Raises:  OptionError for another approximation than "none" and "tanh".
    """

    def __init__(self, approximate: str = "none") -> None:
        super().__init__(approximate)
        is_by_tanh("GELU", approximate)

    def forward(self, input: Tensor) -> Tensor:
        """0.5 * input * (1 + erf(input / sqrt(2))), or by tanh."""
        return functions.gelu(input, approximate=self.approximate)


class ReLU(nn.ReLU):
    """`torch.nn.ReLU`; it never writes to its operand."""

    def forward(self, input: Tensor) -> Tensor:
        """maximum(input, 0)."""
        return functions.relu(input)


class SiLU(nn.SiLU):
    """`torch.nn.SiLU` with the bits of numerics.md sections 5 and 7; it never writes to its operand."""

    def forward(self, input: Tensor) -> Tensor:
        """input * sigmoid(input)."""
        return functions.silu(input)


class Sigmoid(nn.Sigmoid):
    """`torch.nn.Sigmoid` with the bits of numerics.md sections 5 and 7."""

    def forward(self, input: Tensor) -> Tensor:
        """1 / (1 + exp(-input))."""
        return functions.sigmoid(input)


class Tanh(nn.Tanh):
    """`torch.nn.Tanh` with the bits of numerics.md sections 5 and 7."""

    def forward(self, input: Tensor) -> Tensor:
        """The hyperbolic tangent of input."""
        return functions.tanh(input)


class Softmax(nn.Softmax):
    """`torch.nn.Softmax` with the bits of numerics.md sections 5 and 8; the last axis where none is said."""

    def forward(self, input: Tensor) -> Tensor:
        """exp(input) / sum(exp(input))."""
        return functions.softmax(input, -1 if self.dim is None else self.dim)


class LogSoftmax(nn.LogSoftmax):
    """`torch.nn.LogSoftmax` with the bits of numerics.md section 5; the last axis where none is said."""

    def forward(self, input: Tensor) -> Tensor:
        """log(softmax(input))."""
        return functions.log_softmax(input, -1 if self.dim is None else self.dim)


_PLAIN = (("max_norm", None), ("scale_grad_by_freq", False), ("sparse", False))


def check(module: nn.Module) -> None:
    """Raise unless a module of torch has only options that ours have.

    Raises:  OptionError.
    """
    for name, left_out in _PLAIN:
        value = getattr(module, name, left_out)
        if value != left_out:
            call = next(cls.__name__ for cls in type(module).__mro__ if cls.__module__.startswith("torch.nn"))
            raise OptionError(call, name, "", shown(value), shown(left_out), "leave it out, or keep torch's module")
