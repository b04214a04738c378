"""A linear layer whose weight stays quantised: `QuantLinear`, of the layouts in which other packages keep weights."""

from __future__ import annotations

from typing import Any, Self

import torch
from torch import Tensor, nn

from samebits.errors import OptionError, SamebitsError, ShapeError, shown
from samebits.ops.int4_words import from_awq, from_gptq
from samebits.ops.quantize import quantize
from samebits.ops.quantized import Quantized
from samebits.shapes import check_type
from samebits.torch import quantized_layouts as layouts
from samebits.torch.arguments import check_tensors
from samebits.torch.quantized_operators import StoredWeight, quant_linear

__all__ = ["QuantLinear"]

_PARTS = ("elements", "scales", "zero_points", "global_scale", "shift", "order")


class QuantLinear(nn.Module):
    """input @ weight^T + bias with a weight [N, K] that stays quantised; the input has a gradient, the weight has none.

    Its parts are buffers, so that a state dict has them, and one of the same format takes it. What torch writes into
    them is seen at the next call; what is written past it, by `.data` or in an array that shares their memory, is not.

    Args:    weight: a `Quantized` matrix whose blocks lie along K, a row of which is whole bytes.   bias: [N].
    Raises:  OptionError, ShapeError, DTypeError.
    Bits:    numerics.md section 4; values are those of section 9, and the input's gradient is dY by them in float32.
    """

    elements: Tensor
    scales: Tensor
    zero_points: Tensor | None
    global_scale: Tensor | None
    shift: Tensor | None
    order: Tensor | None
    bias: Tensor | None

    def __init__(self, weight: Quantized, bias: Tensor | None = None) -> None:
        super().__init__()
        check_type("QuantLinear", "weight", weight, Quantized, "pass what samebits.quantize gave")
        if weight.ndim != 2 or weight.axis != -1:
            expected = "a matrix whose blocks lie along its last axis"
            raise ShapeError("QuantLinear", "weight", "", weight, expected, "quantise [N, K] along K")
        if weight.format.codebook is not None:
            remedy = "pass the dequantised weight to Linear"
            raise OptionError(
                "QuantLinear", "weight", "format", weight.format, "one whose elements are numbers", remedy
            )
        if weight.shape[1] * weight.format.element.width_bits % 8:
            expected = f"whole bytes of {weight.format.element} in each row"
            remedy = "pad it, and the input, with columns of 0"
            raise ShapeError("QuantLinear", "weight", "column count", weight.shape[1], expected, remedy)
        self.out_features, self.in_features = weight.shape
        self.format, self.dialect = weight.format.name, weight.dialect.name if weight.dialect is not None else ""
        if bias is not None:
            check_tensors("QuantLinear", bias=bias)
            bias = bias.detach()
        parts = layouts.tensors_of(weight)
        for name in (*_PARTS, "bias"):
            self._hold(name, bias if name == "bias" else parts.get(name))

    def forward(self, input: Tensor) -> Tensor:
        """input @ weight^T + bias."""
        check_tensors("QuantLinear", input=input)
        return quant_linear(input, self.bias, *self._stored())  # type: ignore[no-any-return]

    def dequantize(self, dtype: torch.dtype = torch.float32) -> Tensor:
        """The weight's values [N, K], its columns in the order of the input's."""
        stored = self._stored()
        if stored.shift is None:
            name = str(dtype).removeprefix("torch.")
            made: Tensor = stored.quantized().dequantize(name).torch()
        else:
            made = stored.values().to(dtype)
        return made if stored.order is None else made[:, stored.order.argsort()]

    def extra_repr(self) -> str:
        """What `repr` says of it."""
        told = f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}"
        return f"{told}, format={self.format}"

    def _hold(self, name: str, x: Tensor | None) -> None:
        """Keep a part as a buffer; one that there is not is None, no buffer, which exporting could not take."""
        self.__dict__.pop(name, None)
        if x is None:
            setattr(self, name, None)
        else:
            self.register_buffer(name, x)

    def _stored(self) -> StoredWeight:
        names = self.format, self.dialect
        parts = self.zero_points, self.global_scale, self.shift, self.order
        return StoredWeight(self.elements, self.scales, *parts, *names)

    @classmethod
    def from_torch(cls, module: nn.Linear, format: str, *, dialect: str | None = None) -> Self:
        """A layer's weight quantised to a block format, such as nvfp4 or int4-group128, by a dialect of it."""
        check_type("QuantLinear.from_torch", "module", module, nn.Linear, "pass a torch.nn.Linear")
        try:
            weight = quantize(module.weight.detach(), format, dialect=dialect)
        except SamebitsError as error:
            operand = "weight" if error.operand == "x" else error.operand
            raise error.renamed("QuantLinear.from_torch", operand) from None
        return cls(weight, module.bias)

    @classmethod
    def from_affine(
        cls, codes: Tensor, scales: Tensor, zero_points: Tensor | None = None, *, bits: int = 8,
        bias: Tensor | None = None,
    ) -> Self:  # fmt: skip
        """(code - zero point) * scale, as torchao keeps what it calls affine, and compressed-tensors int-quantized.

        Args:    codes: integers [N, K].   scales: float32, bfloat16 or float16 [N, K / group], [N, 1], [N] or [];
                 a group is 32, 64 or 128.   zero_points: integers, one for each scale.   bits: 4 or 8.
        """
        return cls(layouts.affine("QuantLinear.from_affine", codes, scales, zero_points, bits), bias)

    @classmethod
    def from_tinygemm(cls, codes: Tensor, scale_and_zero: Tensor, *, bias: Tensor | None = None) -> Self:
        """(code - 8) * scale + zero, in two roundings in the dtype of the scales, as torchao's tinygemm layout.

        Each call computes the values of the weight, so it is slow.

        Args:    codes: integers [N, K] from 0 to 15, K whole groups of 32, 64 or 128.
                 scale_and_zero: [K / group, N, 2].
        """
        call = "QuantLinear.from_tinygemm"
        check_tensors(call, codes=codes, scale_and_zero=scale_and_zero)
        if scale_and_zero.ndim != 3 or scale_and_zero.shape[2] != 2:
            actual, remedy = tuple(scale_and_zero.shape), "stack scales and zeros"
            raise ShapeError(call, "scale_and_zero", "shape", actual, "[K / group, N, 2]", remedy)
        scales, shift = (x.T.contiguous() for x in scale_and_zero.detach().unbind(-1))
        if codes.ndim == 2 and codes.shape[1] % max(shift.shape[1], 1):
            expected = f"a multiple of {shift.shape[1]}, the count of groups"
            raise ShapeError(call, "codes", "column count", codes.shape[1], expected, "pass whole groups")
        found = cls(layouts.affine(call, codes.detach().long() - 8, scales, None, 4), bias)
        found.scales = scales
        found._hold("shift", shift)
        return found

    @classmethod
    def from_compressed_tensors(
        cls, weight_packed: Tensor, weight_scale: Tensor, weight_shape: Any, *, bits: int = 4,
        weight_zero_point: Tensor | None = None, weight_g_idx: Tensor | None = None, bias: Tensor | None = None,
    ) -> Self:  # fmt: skip
        """A weight of compressed-tensors' pack-quantized layout: integers of 4 or 8 bits in words of 32.

        Args:    weight_packed: int32 [N, K * bits / 32].   weight_scale: [N, K / group] or [N, 1].   weight_shape: N
                 and K.   weight_zero_point: int32 [N * bits / 32, K / group].   weight_g_idx: [K], the group of each
                 column, where they do not follow each other.
        """
        call = "QuantLinear.from_compressed_tensors"
        if not isinstance(bits, int) or bits not in (4, 8):
            raise OptionError(call, "bits", "", shown(bits), "4 or 8", "pass the dequantised weight to Linear")
        rows, columns = (int(extent) for extent in weight_shape)
        check_tensors(call, weight_scale=weight_scale)
        groups = weight_scale.shape[1] if weight_scale.ndim == 2 else 1
        codes, zeros = layouts.unpacked(call, "weight_packed", weight_packed, bits, (rows, columns), 1), None
        if weight_zero_point is not None:
            zeros = layouts.unpacked(call, "weight_zero_point", weight_zero_point, bits, (rows, groups), 0)
        order = None
        if weight_g_idx is not None and groups > 1:
            order = layouts.column_order(call, weight_g_idx, columns, -(-columns // groups))
        codes = codes if order is None else codes[:, order]
        found = cls(layouts.affine(call, codes, weight_scale, zeros, bits), bias)
        found._hold("order", order)
        return found

    @classmethod
    def from_gptq(
        cls, qweight: Tensor, qzeros: Tensor, scales: Tensor, group: int, *, g_idx: Tensor | None = None,
        zero_offset: int = 1, bias: Tensor | None = None,
    ) -> Self:  # fmt: skip
        """A weight of GPTQ of 4 bits; the arguments are those of `samebits.from_gptq`."""
        q, order = from_gptq(qweight, qzeros, scales.detach(), group, g_idx=g_idx, zero_offset=zero_offset)
        found = cls(layouts.symmetric(q), bias)
        found._hold("order", None if order is None else order.torch())
        return found

    @classmethod
    def from_awq(
        cls, qweight: Tensor, qzeros: Tensor, scales: Tensor, group: int, *, bias: Tensor | None = None
    ) -> Self:
        """A weight of AWQ of 4 bits; the arguments are those of `samebits.from_awq`."""
        return cls(layouts.symmetric(from_awq(qweight, qzeros, scales.detach(), group)), bias)
