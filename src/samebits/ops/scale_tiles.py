"""Scales of blocks in tiles of 128 rows by 4 scales, as block-scaled tensor cores take them, and back.

`TiledLayout.scales_128x4` says where a scale lies. What a tile holds beyond the scales is 0.
"""

from __future__ import annotations

import math
from typing import SupportsIndex

from samebits.errors import ShapeError
from samebits.layout import Shape
from samebits.layout.tiled import TiledLayout
from samebits.ops.call import as_tensor
from samebits.ops.move import copy
from samebits.shapes import check_extents
from samebits.tensor import Tensor

__all__ = ["scales_from_tiles", "to_tiles"]


def to_tiles(call: str, scales: Tensor, axis: int) -> Tensor:
    """Scales [..., rows, columns] as tiles [..., bytes], the columns being along `axis`."""
    if scales.ndim < 2:
        raise ShapeError(call, "scales", "rank", scales.ndim, "at least 2", "reshape them to one row")
    seen = scales if axis == -1 else scales.transpose()
    padded = Tensor.zeros(_padded(seen.shape), seen.dtype)
    copy(seen, out=padded[(..., slice(seen.shape[-2]), slice(seen.shape[-1]))])
    tiles: Tensor = copy(_in_tiles(padded))
    return tiles.reshape((*tiles.shape[:-5], math.prod(tiles.shape[-5:])))


def scales_from_tiles(tiles: object, shape: tuple[SupportsIndex, ...]) -> Tensor:
    """Scales [..., rows, columns], dense, out of tiles of 128 rows by 4: what `Quantized.scale_tiles` gave.

    Args:    tiles: an array of a format of 8 bits [..., bytes of the tiles].   shape: that of the scales.
    Raises:  ShapeError if there are not as many bytes as such scales take.
    """
    call = "scales_from_tiles"
    found, extents = as_tensor(call, "tiles", tiles), check_extents(call, "shape", shape)
    if len(extents) < 2:
        raise ShapeError(call, "shape", "rank", len(extents), "at least 2", "give rows and columns")
    whole = _padded(extents)
    due = (*whole[:-2], whole[-2] * whole[-1])
    if found.shape != due:
        raise ShapeError(call, "tiles", "shape", found.shape, f"{due} for scales {extents}", "pass whole tiles")
    padded = Tensor.empty(whole, found.dtype)
    seen = _in_tiles(padded)
    copy(found.reshape(seen.shape), out=seen)
    scales: Tensor = copy(padded[(..., slice(extents[-2]), slice(extents[-1]))])
    return scales


def _padded(shape: Shape) -> Shape:
    """The shape of scales with whole tiles."""
    return (*shape[:-2], *TiledLayout.scales_128x4(shape[-2], shape[-1]).padded_shape)


def _in_tiles(padded: Tensor) -> Tensor:
    """Whole tiles seen as [..., down, across, 32, 4, 4]: in a tile, rows m and m + 32 lie beside each other."""
    lead, (rows, columns) = padded.shape[:-2], padded.shape[-2:]
    split = padded.reshape((*lead, rows // 128, 4, 32, columns // 4, 4))
    first = len(lead)
    return split.permute((*range(first), *[first + axis for axis in (0, 3, 2, 1, 4)]))
