"""ConvTranspose as products, one for each place between two strides (numerics.md section 2).

The outputs whose position leaves one remainder by the strides are reached by the same places of the kernel: they are a
convolution with these alone, and what they give lies between that of the other remainders. Start at `_transposed`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np

from samebits.frozen import dataclass
from samebits.onnx.row import Attribute, NodeCall, OnnxRow, OpenExtent, Unsupported

__all__ = ["ROWS"]

# Remainders of all axes, and places of the kernel: each is an operand of a concat.
_MOST = 256


@dataclass(frozen=True, slots=True)
class _SpreadAxis:
    """One spatial axis.

    Attributes:
        extent: Of the input.
        kernel: Of the kernel.
        stride: Between what neighbours of the input reach.
        dilation: Between places of the kernel.
        before: How many outputs are cut off at the beginning.
        out: How many are left.
    """

    extent: int
    kernel: int
    stride: int
    dilation: int
    before: int
    out: int

    @property
    def count(self) -> int:
        """How many outputs each remainder has, the last of some being cut off."""
        return -(-self.out // self.stride)

    def places(self, remainder: int) -> list[tuple[int, int]]:
        """The places of the kernel that reach these outputs, and which element the first of them takes of each."""
        at = remainder + self.before
        found = [(k, (at - k * self.dilation) // self.stride) for k in range(self.kernel)]
        return [(k, first) for k, first in found if first * self.stride == at - k * self.dilation]

    def around(self) -> tuple[int, int]:
        """How many elements before and behind the input are taken."""
        firsts = [first for remainder in range(self.stride) for _, first in self.places(remainder)]
        return max(0, -min(firsts, default=0)), max(0, max(firsts, default=0) + self.count - self.extent)


def _transposed(call: NodeCall) -> Sequence[str]:
    """Weights times what reaches each output: K runs over channels of the group, then places of the kernel."""
    b, x, groups = call.b, call.fact(0), call.attributes["group"]
    known = [size for size in (*x.shape[1:], *call.fact(1).shape) if isinstance(size, int)]
    if len(known) != 2 * x.rank - 1 or call.fact(1).rank != x.rank or x.rank < 3:
        reason = "extents and weights must be known when the model is loaded, in as many axes as input 0"
        raise OpenExtent(reason, (*x.shape[1:], *call.fact(1).shape))
    channels, weights = known[0], known[x.rank - 1 :]
    if groups < 1 or channels != weights[0] or channels % groups:
        raise Unsupported(f"{channels} channels and weights of {weights} are no {groups} groups")
    if call.fact(1).dtype is not x.dtype:
        raise Unsupported(f"weights are {call.fact(1).dtype.name}, must be {x.dtype.name}")
    filters = weights[1] * groups
    if call.optional(2) is not None and (call.fact(2).dtype is not x.dtype or call.fact(2).shape != (filters,)):
        raise Unsupported(
            f"a bias is {call.fact(2).dtype.name} of {list(call.fact(2).shape)}, must be {x.dtype.name} of [{filters}]"
        )
    axes = _axes(call, known[1 : x.rank - 1], weights[2:])
    padded = call[0]
    for at, axis in enumerate(axes):
        padded = call.padded(padded, at + 2, axis.around(), np.zeros(1, x.dtype.numpy))
    counts = tuple(axis.count for axis in axes)
    parts = [
        _part(call, padded, axes, remainders, groups)
        or call.filled((x.shape[0], filters, *counts), np.zeros(1, x.dtype.numpy))
        for remainders in itertools.product(*(range(axis.stride) for axis in axes))
    ]
    made = b.slice(
        _interleaved(call, parts, axes),
        (0,) * x.rank,
        (x.shape[0], filters, *(axis.out for axis in axes)),
        (1,) * x.rank,
    )
    if call.optional(2) is not None:
        made = b.apply("add", made, b.reshape(call[2], (filters, *[1] * len(axes))))
    return (made,)


def _axes(call: NodeCall, extents: Sequence[int], kernel: Sequence[int]) -> list[_SpreadAxis]:
    """The spatial axes by the attributes."""
    given, count = call.attributes, len(extents)
    if given["kernel_shape"] not in (None, tuple(kernel)):
        raise Unsupported(f"attribute 'kernel_shape' is not that of the weights, {list(kernel)}")
    strides, dilations = given["strides"] or (1,) * count, given["dilations"] or (1,) * count
    more, pads = given["output_padding"] or (0,) * count, given["pads"] or (0,) * (2 * count)
    if not len(strides) == len(dilations) == len(more) == count or len(pads) != 2 * count:
        raise Unsupported(f"strides, dilations, pads or output_padding are not of {count} axes")
    if min(*strides, *dilations, *kernel) < 1 or min(*more, *pads) < 0:
        raise Unsupported("strides, dilations and the kernel are not of 1 or more, or padding is less than none")
    if math.prod(strides) > _MOST or math.prod(kernel) > _MOST:
        raise Unsupported(f"a kernel of {list(kernel)} by {list(strides)} is not of 1 to {_MOST} places")
    whole = [
        strides[i] * (extents[i] - 1) + more[i] + (kernel[i] - 1) * dilations[i] + 1 if extents[i] else 0
        for i in range(count)
    ]
    axes: list[_SpreadAxis] = []
    for i in range(count):
        before, out = _cut(call, whole[i], extents[i] * strides[i], i, (pads[i], pads[count + i]))
        if out < 1:
            raise Unsupported(f"padding leaves {out} places of axis {i + 2}, must leave some")
        axes.append(_SpreadAxis(extents[i], kernel[i], strides[i], dilations[i], before, out))
    return axes


def _cut(call: NodeCall, whole: int, same: int, axis: int, pads: tuple[int, int]) -> tuple[int, int]:
    """How many places are cut off before, and how many are left of so many."""
    mode, shape = call.attributes["auto_pad"], call.attributes["output_shape"]
    rank = call.fact(0).rank
    if shape is not None and len(shape) not in (rank - 2, rank):
        raise Unsupported(f"attribute 'output_shape' is {list(shape)}, must be of {rank - 2} axes, or of all {rank}")
    if shape is None and mode in ("NOTSET", "VALID"):
        before, after = pads if mode == "NOTSET" else (0, 0)
        return before, whole - before - after
    out = same if shape is None else shape[axis - (rank - 2)]
    total = max(whole - out, 0)
    return (total // 2 if mode == "SAME_UPPER" else total - total // 2), out


def _part(call: NodeCall, x: str, axes: Sequence[_SpreadAxis], remainders: Sequence[int], groups: int) -> str:
    """The outputs of these remainders; nothing where no place of the kernel reaches them."""
    b, outer = call.b, call.b.facts[x].shape[0]
    found = [axis.places(remainder) for axis, remainder in zip(axes, remainders, strict=True)]
    taps = math.prod(map(len, found))
    if not taps:
        return ""
    before = [axis.around()[0] for axis in axes]
    channels, each, *_ = (size for size in call.fact(1).shape if isinstance(size, int))
    counts = tuple(axis.count for axis in axes)
    values = list[str]()
    for places in itertools.product(*found):
        starts = [first + pad for (_, first), pad in zip(places, before, strict=True)]
        value = b.slice(x, (0, 0, *starts), (outer, channels, *counts), (1,) * (len(axes) + 2))
        values.append(b.reshape(value, (outer, channels, 1, math.prod(counts))))
    whole = b.concat(values, 2)
    right = b.reshape(whole, (outer, groups, channels // groups * taps, math.prod(counts)))
    kept = tuple(map(len, found))
    steps = tuple(places[1][0] - places[0][0] if places[1:] else 1 for places in found)
    own = b.slice(call[1], (0, 0, *(places[0][0] for places in found)), (channels, each, *kept), (1, 1, *steps))
    turned = b.transpose(b.reshape(own, (groups, channels // groups, each, taps)), (0, 2, 1, 3))
    made = b.contract(b.reshape(turned, (groups, each, channels // groups * taps)), right)
    return b.reshape(made, (outer, each * groups, *counts))


def _interleaved(call: NodeCall, parts: list[str], axes: Sequence[_SpreadAxis]) -> str:
    """What each remainder gave, in the order of the outputs."""
    b, (outer, filters, *_) = call.b, call.b.facts[parts[0]].shape
    apart = [size for axis in axes for size in (axis.count, 1)]
    parts = [b.reshape(part, (outer, filters, *apart)) for part in parts]
    for at in reversed(range(len(axes))):
        stride = axes[at].stride
        if stride > 1:
            groups = [parts[i : i + stride] for i in range(0, len(parts), stride)]
            parts = [b.concat(group, 2 * at + 3) for group in groups]
    return b.reshape(parts[0], (outer, filters, *(axis.count * axis.stride for axis in axes)))


ROWS: tuple[OnnxRow, ...] = (
    OnnxRow(
        "ConvTranspose",
        1,
        _transposed,
        (
            Attribute("auto_pad", "NOTSET", "string", ("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID")),
            *(
                Attribute(name, None, "ints")
                for name in ("kernel_shape", "pads", "strides", "dilations", "output_padding", "output_shape")
            ),
            Attribute("group", 1),
        ),
        inputs=3,
        limits="extents of the image that are open when the model is loaded",
    ),
)
