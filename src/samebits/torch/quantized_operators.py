"""The operator behind `QuantLinear`: a linear layer whose weight stays quantised (numerics.md sections 4, 5 and 9)."""

from __future__ import annotations

import weakref
from typing import Any, NamedTuple

import torch
from torch import Tensor

from samebits import dtypes
from samebits.codegen import isa
from samebits.dtypes import float4_e2m1fn
from samebits.errors import DTypeError, ShapeError
from samebits.kernels.quantize import dialects, formats
from samebits.ops import casts, elementwise
from samebits.ops import matmul as products
from samebits.ops.quantized import Quantized
from samebits.tensor import Tensor as OwnTensor
from samebits.torch.operator import Gradient, Operator, check_tensor, define, in_front, of_memory, threads

__all__ = ["INPUTS", "StoredWeight", "quant_linear"]

# What the input may be.
INPUTS = (torch.float32, torch.bfloat16, torch.float16)

_product, _multiplied, _cast = of_memory(products.linear), of_memory(products.matmul), of_memory(casts.cast)


class StoredWeight(NamedTuple):
    """What is stored of a weight [N, K]: tensors, and the names of the rows that say what they mean.

    Attributes:
        elements: [N, K] of 8 bits, or the bytes of narrower ones, row by row.
        scales, zero_points, global_scale: those of a `Quantized`.
        shift: [N, K / group], what is added to each value, in the dtype of the scales; or None.
        order: [K] int64, which column of the input meets each column of the weight; None where it is the same.
        format, dialect: names of rows; the dialect may be empty.
    """

    elements: Tensor
    scales: Tensor
    zero_points: Tensor | None
    global_scale: Tensor | None
    shift: Tensor | None
    order: Tensor | None
    format: str
    dialect: str

    @property
    def shape(self) -> tuple[int, int]:
        """N and K."""
        rows, width = self.elements.shape
        return rows, width * 8 // formats.of(self.format).element.width_bits

    def quantized(self) -> Quantized:
        """The weight without its shift, on the memory of the parts."""
        given = {
            name: x for name in ("scales", "zero_points", "global_scale") if (x := getattr(self, name)) is not None
        }
        found = {name: OwnTensor.from_any(x.detach()) for name, x in given.items()}
        dialect = dialects.of(self.dialect) if self.dialect else None
        return Quantized.of_parts({"elements": self._codes(), **found}, formats.of(self.format), dialect)

    def _codes(self) -> OwnTensor:
        """The elements in the format that they are of, [N, K]."""
        element, stored = formats.of(self.format).element, OwnTensor.from_any(self.elements.detach().contiguous())
        return stored if element.width_bits == 8 else OwnTensor.from_buffer(stored.buffer, element, self.shape)

    def values(self) -> Tensor:
        """The weight as it multiplies the input's columns in `order`: float32, or with a shift the scales' dtype."""
        if self.shift is None:
            found: Tensor = self.quantized().dequantize("float32", threads=threads()).torch()
            return found
        rows, columns = self.shape
        shifted = self.shift
        steps = torch.from_numpy(self._codes().values()).to(shifted.dtype).reshape(rows, shifted.shape[1], -1)
        scaled = elementwise.multiply(steps, self.scales.detach().unsqueeze(-1), threads=threads())
        made: Tensor = elementwise.add(scaled, shifted.detach().unsqueeze(-1), threads=threads()).reshape(rows, columns)
        return made


class _PackedWeight(NamedTuple):
    """A packed weight, and what it was made of: tensors as they were, whose memory cannot be another's meanwhile."""

    source: weakref.ref[Tensor]
    made_of: tuple[Any, ...]
    held: list[Tensor]
    weight: Any


_KEPT: dict[tuple[int, torch.dtype, str], _PackedWeight] = {}


def _packed(parts: StoredWeight, dtype: torch.dtype) -> Any:
    """What products read fast: elements with the scales of their blocks in panels, kept until the elements are gone.

    Everything else is read as it lies: what has a scale for a row, and what `pack` does not take.
    """
    row, whole = formats.of(parts.format), parts.global_scale
    is_taken = row.codebook is None and (row.zero_point is None or row.zero_point.is_integer)
    is_taken &= row.element is not float4_e2m1fn or parts.shape[1] % 8 == 0
    if not is_taken or row.block[1] is None or (whole is not None and whole.numel() > 1):
        return parts.quantized()
    tensors = [x for x in parts[:4] if x is not None]
    if any(x.is_inference() for x in tensors):  # nothing tells whether they were written to
        return parts.quantized()
    key = id(parts.elements), dtype, isa.current().name
    made_of = parts[6:], [(x.data_ptr(), x._version, x.dtype, x.shape, x.stride()) for x in tensors]
    kept = _KEPT.get(key)
    if kept is not None and kept.source() is parts.elements and kept.made_of == made_of:
        return kept.weight
    weight = products.pack(parts.quantized(), left=str(dtype).removeprefix("torch."), threads=threads())
    source = weakref.ref(parts.elements, lambda _: _KEPT.pop(key, None) and None)
    _KEPT[key] = _PackedWeight(source, made_of, [x.detach() for x in tensors], weight)
    return weight


def _check(x: Tensor, parts: StoredWeight, bias: Tensor | None) -> None:
    check_tensor("QuantLinear", "input", x, *INPUTS)
    rows, columns = parts.shape
    if x.ndim < 1 or x.shape[-1] != columns:
        actual = x.shape[-1] if x.ndim else "missing"
        raise ShapeError("QuantLinear", "input", "column count", actual, columns, "pass [..., in_features]")
    if bias is not None and bias.shape != (rows,):
        raise ShapeError("QuantLinear", "bias", "shape", tuple(bias.shape), (rows,), "pass one for each row of weight")
    if bias is not None and bias.dtype not in INPUTS:
        actual = str(bias.dtype).removeprefix("torch.")
        raise DTypeError("QuantLinear", "bias", "dtype", actual, "float32 or bfloat16 or float16", "convert it first")


def _linear(x: Tensor, bias: Tensor | None, *rest: Any, threads: int) -> Any:
    parts = StoredWeight(*rest)
    _check(x, parts, bias)
    turned = x if parts.order is None else x.index_select(-1, parts.order)
    if "dot2_bfloat16" not in isa.current().instructions:
        # Then products compute in float32, which panels would be converted to one by one.
        turned = _cast(turned, "float32", threads=threads)
    weight = _packed(parts, turned.dtype) if parts.shift is None else parts.values()
    y = _product(turned, weight, bias, threads=threads)
    return y if y.dtype == x.dtype else _cast(y, _word(x.dtype), threads=threads)


def _linear_shapes(x: Tensor, bias: Tensor | None, *rest: Any) -> Tensor:
    parts = StoredWeight(*rest)
    _check(x, parts, bias)
    return x.new_empty((*x.shape[:-1], parts.shape[0]))


def _input(dy: Tensor, *rest: Any, threads: int) -> Any:
    """dy times the weight's values."""
    parts = StoredWeight(*rest)
    made = _multiplied(dy, parts.values(), out_dtype=_word(dy.dtype), threads=threads)
    return made if parts.order is None else made.index_select(-1, parts.order.argsort())


def _word(dtype: torch.dtype) -> str:
    return str(dtypes.of(dtype))


def _keeps(inputs: tuple[Any, ...], result: Any, needs: tuple[bool, ...]) -> tuple[Tensor | None, ...]:
    return inputs[2:8]


def _backward(inputs: tuple[Any, ...], kept: tuple[Any, ...], needs: tuple[bool, ...], dy: Tensor) -> tuple[Any, ...]:
    return quant_linear_input(dy, *kept, *inputs[8:]), *(None,) * 9


_STORED = "Tensor elements, Tensor scales, Tensor? zero_points, Tensor? global_scale, Tensor? shift"
quant_linear_input = define(Operator(
    f"quant_linear_backward(Tensor dy, {_STORED}, Tensor? order, str format, str dialect) -> Tensor",
    _input, lambda dy, *rest: dy.new_empty((*dy.shape[:-1], StoredWeight(*rest).shape[1])), in_front(1),
))  # fmt: skip
quant_linear = define(Operator(
    f"quant_linear(Tensor input, Tensor? bias, {_STORED}, Tensor? order, str format, str dialect) -> Tensor",
    _linear, _linear_shapes, in_front(1), Gradient(_keeps, _backward), casts=1,
))  # fmt: skip
