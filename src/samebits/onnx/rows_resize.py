"""Resize and Upsample: an axis after the other, each output a few weighted places (numerics.md section 8).

Where an output position falls is computed when the model is loaded, so the extents of the axes that change must be
known by then. Start at `_resize`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from samebits import dtypes
from samebits.dtypes import DType
from samebits.frozen import dataclass
from samebits.onnx.row import Attribute, NodeCall, OnnxRow, OpenExtent, Unsupported
from samebits.onnx.taken import TakenAxis, taken
from samebits.operations.dim import Size
from samebits.operations.operation import Array

__all__ = ["ROWS"]


# The extent of an axis that is resized, and places that an output takes: each of these is an operation.
_MOST, _MOST_PLACES = 2**24, 1024


@dataclass(frozen=True, slots=True)
class _ResizedAxis:
    """How one axis changes.

    Attributes:
        at: Which it is.
        extent: Of the input.
        out: Of the result.
        scale: Between them, as it was given or as the extents are.
    """

    at: int
    extent: int
    out: int
    scale: float


def _resize(call: NodeCall) -> Sequence[str]:
    """Each axis of which the extent or the scale changes."""
    given = call.attributes
    x, dtype, positions = call[0], call.fact(0).dtype, _positions(given["coordinate_transformation_mode"])
    axes = _axes(call)
    if given["mode"] == "nearest":
        nearest = list[TakenAxis]()
        for axis in axes:
            rounded = _NEAREST[given["nearest_mode"] or ("ceil" if axis.scale < 1 else "floor")]
            places = np.clip(rounded(positions(axis)), 0, axis.extent - 1).astype(np.int64)
            nearest.append(TakenAxis(axis.at, places[None]))
        x = taken(call.b, x, nearest)
        return (x if axes else call.b.apply("copy", x),)
    if not dtype.is_float:
        raise Unsupported(f"input 0 is {dtype.name}, must be floats where mode is {given['mode']!r}")
    wide = dtype if dtype is dtypes.float64 else dtypes.float32
    x = call.converted(x, wide)
    x = taken(call.b, x, [_weighed(axis, positions(axis), given, wide) for axis in axes])
    return (call.converted(x, dtype) if axes else call.b.apply("copy", call[0]),)


def _axes(call: NodeCall) -> list[_ResizedAxis]:
    """The axes that change, by the scales or the extents that are given."""
    shape, rank = call.fact(0).shape, call.fact(0).rank
    named = call.attributes.get("axes")
    places = tuple(range(rank)) if named is None else call.axes(named, rank)
    scales, sizes = _scales(call), () if call.optional(3) is None else call.integers(3)
    if bool(scales) == bool(sizes):
        raise Unsupported("scales or sizes must be given, and not both")
    if len(scales or sizes) != len(places):
        raise Unsupported(f"{len(scales or sizes)} scales or sizes are given for {len(places)} axes")
    extents = [shape[place] for place in places]
    if sizes:
        return _by_sizes(call, places, extents, sizes)
    found = list[_ResizedAxis]()
    for place, extent, scale in zip(places, extents, scales, strict=True):
        if scale != 1:
            known = _known(extent)
            out = math.floor(known * scale) if math.isfinite(known * scale) else -1
            found.append(_ResizedAxis(place, known, out, scale))
    return _checked(found)


def _scales(call: NodeCall) -> tuple[float, ...]:
    """The scales: an attribute, or the last input but for sizes; none where sizes are given."""
    if "scales" in call.attributes:
        return tuple(float(np.float32(scale)) for scale in call.attributes["scales"])
    at = 1 if call.node.op == "Upsample" or call.opset < 11 else 2
    if call.optional(at) is None:
        return ()
    return tuple(float(scale) for scale in call.array(at).reshape(-1))


def _by_sizes(
    call: NodeCall, places: Sequence[int], extents: Sequence[Size], sizes: Sequence[Size]
) -> list[_ResizedAxis]:
    """The axes whose extent is given; by one scale for all where their ratio is to stay."""
    policy = call.attributes["keep_aspect_ratio_policy"]
    if policy == "stretch":
        changed = [(at, x, y) for at, x, y in zip(places, extents, sizes, strict=True) if x != y]
        pairs = [(at, _known(x), _known(y)) for at, x, y in changed]
        return _checked([_ResizedAxis(at, x, y, y / x if x else 1.0) for at, x, y in pairs])
    known = [(at, _known(x), _known(y)) for at, x, y in zip(places, extents, sizes, strict=True)]
    if not all(x for _, x, _ in known):
        raise Unsupported(f"axes of extents {extents} have no ratio to keep")
    chosen = (min if policy == "not_larger" else max)(y / x for _, x, y in known)
    found = [_ResizedAxis(at, x, math.floor(chosen * x + 0.5), chosen) for at, x, _ in known]
    return _checked([axis for axis in found if axis.scale != 1])


def _known(size: Size) -> int:
    if not isinstance(size, int):
        raise OpenExtent(f"an axis of extent {size} changes, which must be known when the model is loaded", [size])
    return size


def _checked(axes: list[_ResizedAxis]) -> list[_ResizedAxis]:
    for axis in axes:
        if not axis.scale > 0 or not math.isfinite(axis.scale) or axis.out < 0 or (axis.out and not axis.extent):
            raise Unsupported(f"axis {axis.at} of extent {axis.extent} is scaled by {axis.scale} to {axis.out}")
        if axis.out > _MOST:
            raise Unsupported(f"axis {axis.at} is resized to {axis.out}, must be to {_MOST} at most")
    return axes


# -- where an output position falls -----------------------------------------------------------------------------------
def _positions(mode: str) -> Callable[[_ResizedAxis], Array]:
    """By a mode's name, what gives where each output position falls in the input, in float64."""

    def align_corners(axis: _ResizedAxis) -> Array:
        return np.arange(axis.out) * ((axis.extent - 1) / (axis.out - 1) if axis.out > 1 else 0.0)

    def asymmetric(axis: _ResizedAxis) -> Array:
        return np.arange(axis.out) / axis.scale

    def half_pixel(axis: _ResizedAxis) -> Array:
        return (np.arange(axis.out) + 0.5) / axis.scale - 0.5

    def half_pixel_symmetric(axis: _ResizedAxis) -> Array:
        whole = axis.out / (axis.scale * axis.extent) if axis.extent else 1.0
        return axis.extent / 2 * (1 - whole) + half_pixel(axis)

    def pytorch_half_pixel(axis: _ResizedAxis) -> Array:
        return half_pixel(axis) if axis.out > 1 else np.zeros(axis.out)

    return {
        "align_corners": align_corners, "asymmetric": asymmetric, "half_pixel": half_pixel,
        "half_pixel_symmetric": half_pixel_symmetric, "pytorch_half_pixel": pytorch_half_pixel,
    }[mode]  # fmt: skip


_NEAREST: dict[str, Callable[[Array], Array]] = {
    "round_prefer_floor": lambda x: np.ceil(x - 0.5),
    "round_prefer_ceil": lambda x: np.floor(x + 0.5),
    "floor": np.floor,
    "ceil": np.ceil,
}


# -- linear and cubic ---------------------------------------------------------------------------------------------
def _weighed(axis: _ResizedAxis, positions: Array, given: Mapping[str, Any], dtype: DType) -> TakenAxis:
    """Of each output position the places that it takes, and their weights, which sum to 1."""
    is_cubic = given["mode"] == "cubic"
    narrow = min(axis.scale, 1.0) if given.get("antialias") else 1.0
    # So far from a position its places may lie: 1, or 2 where it is cubic, in steps of the wider filter.
    reach = math.ceil((2 if is_cubic else 1) / narrow)
    if 2 * reach > _MOST_PLACES:
        raise Unsupported(
            f"axis {axis.at} is scaled by {axis.scale}, by which outputs take more than {_MOST_PLACES} places"
        )
    places = np.floor(positions).astype(np.int64) + np.arange(1 - reach, reach + 1)[:, None]
    distances = np.abs(places - positions) * narrow
    weights = _cubic(distances, float(given["cubic_coeff_a"])) if is_cubic else np.maximum(1 - distances, 0)
    if given.get("exclude_outside"):
        weights = np.where((places >= 0) & (places < axis.extent), weights, 0)
    total = np.zeros(axis.out)
    for each in weights:
        total = total + each
    is_one = not given.get("exclude_outside") and narrow == 1
    weights = weights if is_one else weights / total
    is_taken = weights.any(1) | (axis.out == 0)  # what no output takes is left out
    within = np.clip(places, 0, axis.extent - 1)
    return TakenAxis(axis.at, within[is_taken], weights[is_taken].astype(dtype.numpy))


def _cubic(x: Array, a: float) -> Array:
    """Keys' filter: two cubics of a distance, which meet at 1 and are 0 from 2 on."""
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
    return np.where(x <= 1, near, np.where(x < 2, far, 0.0))


_MODES = ("half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric")
_MODE = Attribute("mode", "nearest", "string", ("nearest", "linear", "cubic"))
_PLAIN_MODE = Attribute("mode", "nearest", "string", ("nearest", "linear"))
_OPEN = "extents of axes that change and are open when the model is loaded"
_SINCE_11 = (
    _MODE,
    Attribute("coordinate_transformation_mode", "half_pixel", "string", _MODES),
    Attribute("cubic_coeff_a", -0.75, "float"),
    Attribute("exclude_outside", 0, allowed=(0, 1)),
    Attribute("extrapolation_value", 0.0, "float"),
    Attribute("nearest_mode", "round_prefer_floor", "string", tuple(_NEAREST)),
    Attribute("antialias", 0, allowed=(0, 1), since=18),
    Attribute("axes", None, "ints", since=18),
    Attribute("keep_aspect_ratio_policy", "stretch", "string", ("stretch", "not_larger", "not_smaller"), since=18),
)
_PLAIN = {
    "coordinate_transformation_mode": "asymmetric", "nearest_mode": "", "keep_aspect_ratio_policy": "stretch",
}  # fmt: skip


def _plain(call: NodeCall) -> Sequence[str]:
    """As before opset 11: an output position is its number over the scale; ONNX's cases round it up to make less."""
    return _resize(NodeCall(call.b, call.node, call.opset, call.inputs, {**call.attributes, **_PLAIN}))


ROWS: tuple[OnnxRow, ...] = (
    OnnxRow("Upsample", 7, _plain, (_PLAIN_MODE, Attribute("scales", kind="floats")), until=8, limits=_OPEN),
    OnnxRow("Upsample", 9, _plain, (_PLAIN_MODE,), 2, 9, limits=_OPEN),
    OnnxRow("Resize", 10, _plain, (_PLAIN_MODE,), 2, 10, limits=_OPEN),
    OnnxRow(
        "Resize", 11, _resize, _SINCE_11, 4,
        limits="integers by linear or cubic; a region of interest (`tf_crop_and_resize`)",
    ),
)  # fmt: skip
