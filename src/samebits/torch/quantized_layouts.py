"""Quantised weights as other packages keep them, as parts of a `QuantLinear`: integers, scales and zero points.

Torchao keeps an integer for each element and a row of scales for each row of the weight; compressed-tensors packs the
integers into words; GPTQ and AWQ are read by `from_gptq` and `from_awq`. Values are the package's own, bit for bit.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import torch
from torch import Tensor

from samebits.dtypes import uint4
from samebits.errors import DTypeError, OptionError, ShapeError, shown
from samebits.kernels.quantize import formats
from samebits.ops import move
from samebits.ops.quantized import Quantized
from samebits.tensor import Tensor as OwnTensor
from samebits.torch.arguments import check_tensors
from samebits.torch.operator import check_tensor

__all__ = ["affine", "column_order", "symmetric", "tensors_of", "unpacked"]

_GROUPS = (32, 64, 128)
_INTEGERS = (torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64)
_SCALES = (torch.float32, torch.bfloat16, torch.float16)
_NUMPY = {4: (ml_dtypes.int4, ml_dtypes.uint4), 8: (np.int8, np.uint8)}


def affine(call: str, codes: Tensor, scales: Tensor, zero_points: Tensor | None, bits: int) -> Quantized:
    """(code - zero point) * scale, with a scale for each group of columns, for each row or for all.

    Args:    codes: integers [N, K], of int8 or uint8 range (-8 to 7 or 0 to 15 of 4 bits).   scales: [N, K / group],
             [N, 1], [N] or [].   zero_points: integers of the scales' shape.   bits: 4 or 8.
    """
    check_tensors(call, codes=codes, scales=scales)
    check_tensor(call, "codes", codes, *_INTEGERS)
    check_tensor(call, "scales", scales, *_SCALES)
    if type(bits) is not int or bits not in _NUMPY:
        raise OptionError(call, "bits", "", shown(bits), "4 or 8", "pass the dequantised weight to Linear")
    if codes.ndim != 2:
        raise ShapeError(call, "codes", "rank", codes.ndim, 2, "pass [N, K]")
    name = _group_name(call, codes, scales)
    shape = (1, 1) if name == "tensor" else (codes.shape[0], scales.shape[1] if scales.ndim == 2 else 1)
    factors = scales.detach().reshape(shape).float()
    numbers = codes.detach().long()
    if zero_points is not None:
        check_tensors(call, zero_points=zero_points)
        check_tensor(call, "zero_points", zero_points, *_INTEGERS)
        if zero_points.numel() != factors.numel():
            expected = f"that of scales, {tuple(scales.shape)}"
            raise ShapeError(
                call, "zero_points", "shape", tuple(zero_points.shape), expected, "pass one for each scale"
            )
        points = zero_points.detach().long().reshape(shape)
        # Signed codes may all be positive: then their zero points say what they are.
        signed = codes.dtype is not torch.uint8 and any(x.numel() and int(x.min()) < 0 for x in (numbers, points))
        return symmetric(
            _made(call, f"uint{bits}-{name}-zero", numbers, factors, points, 1 << bits - 1 if signed else 0)
        )
    if codes.dtype is torch.uint8:
        raise DTypeError(call, "codes", "dtype", "uint8", "int8 without zero points", "pass zero_points too")
    return _made(call, f"int{bits}-{name}", numbers, factors, None)


def _group_name(call: str, codes: Tensor, scales: Tensor) -> str:
    """What formats call the blocks that have one scale each."""
    (rows, columns), shape = codes.shape, tuple(scales.shape)
    if scales.numel() == 1 and rows != 1:
        return "tensor"
    if shape in ((rows,), (rows, 1)):
        return "row"
    for group in _GROUPS:
        if len(shape) == 2 and shape[0] == rows and shape[1] * group == columns:
            return f"group{group}"
    expected = f"one for all, for each of {rows} rows, or for each 32, 64 or 128 of {columns} columns"
    raise ShapeError(call, "scales", "shape", shape, expected, "pass the dequantised weight to Linear")


def _made(call: str, name: str, codes: Tensor, scales: Tensor, points: Tensor | None, offset: int = 0) -> Quantized:
    """The weight in a format; `offset`: what makes codes and zero points elements of it."""
    row = formats.of(name)
    least, most = int(row.element.min) - offset, int(row.element.max) - offset
    for operand, x in (("codes", codes), ("zero_points", points)):
        if x is not None and x.numel() and (int(x.min()) < least or int(x.max()) > most):
            expected = f"those of {'u' * (not least)}int{row.element.width_bits}, from {least} to {most}"
            actual = f"from {int(x.min())} to {int(x.max())}"
            raise OptionError(call, operand, "values", actual, expected, "pass the bits that they have")
    codes, points = codes + offset, None if points is None else points + offset
    whole = OwnTensor.from_any(codes.numpy().astype(row.element.numpy))
    stored = move.to_packed(whole) if row.element.width_bits < 8 else whole
    zeros = None if points is None else OwnTensor.from_any(points.numpy().astype(np.uint8))
    return Quantized(stored, OwnTensor.from_any(scales.contiguous()), row, zero_points=zeros)


def symmetric(q: Quantized) -> Quantized:
    """A weight of four bits whose zero points are all 8 without them: its values are the same."""
    if q.zero_points is None or q.format.element is not uint4 or (q.zero_points.values() != 8).any():
        return q
    row = formats.of(q.format.name.removeprefix("u").removesuffix("-zero"))
    codes = (q.elements.values().astype(np.int8) - 8).astype(ml_dtypes.int4)
    return Quantized(move.to_packed(OwnTensor.from_any(codes)), q.scales, row)


def unpacked(call: str, name: str, words: Tensor, bits: int, shape: tuple[int, int], axis: int) -> Tensor:
    """Integers of words of 32 bits, as compressed-tensors packs them along an axis: the lowest bits first, each more
    than its value by half of what the bits hold."""
    check_tensors(call, **{name: words})
    check_tensor(call, name, words, torch.int32)
    each = 32 // bits
    lines = list(shape)
    lines[axis] = -(-shape[axis] // each)
    if tuple(words.shape) != tuple(lines):
        raise ShapeError(call, name, "shape", tuple(words.shape), tuple(lines), "pass the shape of the weight")
    along = words.movedim(axis, -1).contiguous()
    steps = torch.arange(0, 32, bits)
    found = (along.long().unsqueeze(-1) >> steps) & ((1 << bits) - 1)
    return (found.flatten(-2)[..., : shape[axis]] - (1 << (bits - 1))).movedim(-1, axis)


def column_order(call: str, g_idx: Tensor, columns: int, group: int) -> Tensor | None:
    """An order of the columns in which each group's are neighbours; None where they are already.

    Args:    g_idx: [K], the group of each column.
    """
    check_tensors(call, g_idx=g_idx)
    check_tensor(call, "g_idx", g_idx, torch.int32, torch.int64)
    if g_idx.shape != (columns,):
        raise ShapeError(call, "g_idx", "shape", tuple(g_idx.shape), (columns,), "pass one for each column")
    order: Tensor = g_idx.argsort(stable=True)
    due = torch.arange(columns) // group
    if not torch.equal(g_idx[order].long(), due):
        expected = f"{group} columns of each group"
        raise OptionError(call, "g_idx", "", "another count of a group", expected, "pass that of the checkpoint")
    return None if torch.equal(g_idx.long(), due) else order


def tensors_of(q: Quantized) -> dict[str, Any]:
    """The parts of a quantised weight as tensors of torch; elements narrower than a byte as bytes."""
    found: dict[str, Any] = {name: part.torch() for name, part in q.parts.items() if name != "elements"}
    stored = q.elements
    if q.format.element.width_bits < 8:
        rows, columns = q.shape
        width = columns * q.format.element.width_bits // 8
        data = np.array(move.to_packed(stored).buffer.array()[: rows * width], np.uint8).reshape(rows, width)
        return {"elements": torch.from_numpy(data), **found}
    return {"elements": stored.torch(), **found}
