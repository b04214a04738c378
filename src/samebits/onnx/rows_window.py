"""ONNX operators over windows: pooling (numerics.md section 8); convolutions slide alike.

The places of a window are strided slices of the padded input, one for each place of the kernel in row-major order; so
the extents that a window slides along must be known when the model is loaded. The largest, which no order changes, is
taken along one axis after the other. Start at `Window`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

import numpy as np

from samebits.frozen import dataclass
from samebits.onnx.row import Attribute, NodeCall, OnnxRow, OpenExtent, Unsupported, chained
from samebits.operations.operation import Array

__all__ = ["OPEN", "ROWS", "SLIDE", "Window", "dilations", "window_of"]

# Places of a window that is added up, each of which is an operand.
_MOST = 256
# Places along an axis that one kernel takes the largest of.
_TOGETHER = 4
# Windows along an axis that look beyond the image, up to which these are computed apart and the image is not padded.
_FEW_BEYOND = 4
# Windows that look so often at elements of a row that are steps apart look at a copy where these are side by side: a
# load of elements apart takes an instruction for each, and as much text. Steps of two are picked from whole vectors.
_OFTEN, _PICKED = 4, 2


@dataclass(frozen=True, slots=True)
class Window:
    """How a kernel slides along the spatial axes of input 0, which come after the batch and the channels.

    Attributes:
        shape: The spatial extents of the input.
        kernel: Those of the kernel.
        strides: Steps between windows.
        dilations: Steps between places of the kernel.
        before: Padding before the first place of each axis.
        after: Padding behind the last, as it was asked for.
        out: How many windows there are.
    """

    shape: tuple[int, ...]
    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]
    out: tuple[int, ...]

    def places(self) -> Iterator[tuple[int, ...]]:
        """Where the first window looks, in row-major order of the kernel."""
        for place in itertools.product(*map(range, self.kernel)):
            yield tuple(k * step for k, step in zip(place, self.dilations, strict=True))

    def counts(self, with_padding: bool) -> Array:
        """How many places of each window are in the input, or in what it was asked to be padded to."""
        total = np.ones((), np.int64)
        for axis, extent in enumerate(self.shape):
            begin = np.arange(self.out[axis])[:, None] * self.strides[axis]
            at = begin + np.arange(self.kernel[axis]) * self.dilations[axis] - self.before[axis]
            low, high = (-self.before[axis], extent + self.after[axis]) if with_padding else (0, extent)
            total = np.multiply.outer(total, ((at >= low) & (at < high)).sum(axis=1))
        return total


def window_of(call: NodeCall, kernel: Sequence[int] | None = None) -> Window:
    """The window of a node; `kernel` where it is known from elsewhere than an attribute."""
    shape, given = call.fact(0).shape[2:], call.attributes
    kernel = given["kernel_shape"] if kernel is None else kernel
    known = [size for size in shape if isinstance(size, int)]
    if len(known) != len(shape) or not shape:
        raise OpenExtent(f"windows slide along extents {shape}, which must be known when the model is loaded", shape)
    ones, count = (1,) * len(shape), len(shape)
    strides, dilations = given.get("strides") or ones, given.get("dilations") or ones
    pads = given["pads"] or (0,) * (2 * count)
    if not len(kernel) == len(strides) == len(dilations) == count or len(pads) != 2 * count:
        raise Unsupported(f"kernel, strides, dilations or pads are not of {count} axes")
    if min(*kernel, *strides, *dilations) < 1 or min(pads) < 0:
        raise Unsupported(f"a kernel of {list(kernel)} by {list(strides)} is not of 1 or more places, padded by counts")
    axes = [
        _slid(call, known[i], (kernel[i] - 1) * dilations[i] + 1, strides[i], (pads[i], pads[count + i]))
        for i in range(count)
    ]
    before, after, out = (tuple(values) for values in zip(*axes, strict=True))
    return Window(tuple(known), tuple(kernel), tuple(strides), tuple(dilations), before, after, out)


def _slid(call: NodeCall, extent: int, reach: int, stride: int, pads: tuple[int, int]) -> tuple[int, int, int]:
    """Padding before and after an axis, and how many windows that reach so far there are."""
    mode, up = call.attributes["auto_pad"], call.attributes.get("ceil_mode", 0)
    if mode == "VALID":
        pads = 0, 0
    elif mode != "NOTSET":
        out = -(-extent // stride)
        total = max((out - 1) * stride + reach - extent, 0)
        less = total // 2
        return (less, total - less, out) if mode == "SAME_UPPER" else (total - less, less, out)
    free = extent + sum(pads) - reach
    out = (-(-free // stride) if up else free // stride) + 1
    if up and (out - 1) * stride >= extent + pads[0]:
        out -= 1  # a window that would begin behind the input
    if out < 1:
        raise Unsupported(f"a window of {reach} places does not fit into {extent} and {sum(pads)} of padding")
    return pads[0], pads[1], out


def _slices(call: NodeCall, x: str, window: Window, padding: Array) -> list[str]:
    """For each place of the kernel, what all windows have there: next to each other where many look at it."""
    if math.prod(window.kernel) > _MOST:
        raise Unsupported(f"a kernel of {list(window.kernel)} has more than {_MOST} places")
    b, x = call.b, _padded(call, x, window, padding, range(len(window.shape)))
    shape, stride = b.facts[x].shape, window.strides[-1]
    width = shape[-1]
    assert isinstance(width, int)  # as `window_of` found
    if stride <= _PICKED or math.prod(window.kernel) < _OFTEN * stride:
        steps = (1, 1, *window.strides)
        return [b.slice(x, (0, 0, *place), (*shape[:2], *window.out), steps) for place in window.places()]
    steps, still, last = (1, 1, *window.strides[:-1], 1), (0,) * (len(shape) - 1), len(shape) - 1
    parts, found = dict[int, str](), list[str]()
    for *place, along in window.places():
        start, phase = divmod(along, stride)
        if phase not in parts:
            extents = (*shape[:-1], -(-(width - phase) // stride))
            part = b.slice(x, (*still, phase), extents, (*(1,) * last, stride))
            parts[phase] = b.apply("copy", part)
        found.append(b.slice(parts[phase], (0, 0, *place, start), (*shape[:2], *window.out), steps))
    return found


def _padded(call: NodeCall, x: str, window: Window, padding: Array, axes: Sequence[int]) -> str:
    """x with all that windows look at along some spatial axes."""
    for axis in axes:
        reach = (window.kernel[axis] - 1) * window.dilations[axis] + 1
        last = (window.out[axis] - 1) * window.strides[axis] + reach
        behind = max(last - window.before[axis] - window.shape[axis], 0)
        x = call.padded(x, axis + 2, (window.before[axis], behind), padding)
    return x


def _max_pool(call: NodeCall) -> Sequence[str]:
    """The largest of each window, which is the largest along one axis after the other: no order changes it."""
    dtype, window = call.fact(0).dtype, window_of(call)
    lowest = np.array([-np.inf if dtype.is_float else dtype.min]).astype(dtype.numpy)
    x = call[0]
    for axis in range(len(window.shape)):
        x = _largest_inside(call, x, window, axis) or _largest_padded(call, x, window, axis, lowest)
    return (call.b.apply("copy", x) if math.prod(window.kernel) == 1 else x,)


def _largest_padded(call: NodeCall, x: str, window: Window, axis: int, lowest: Array) -> str:
    """The largest along an axis, which is padded with what is never larger."""
    slid = window.strides[axis], window.out[axis]
    x = _padded(call, x, window, lowest, (axis,))
    return _largest_along(call, x, axis + 2, window.kernel[axis], window.dilations[axis], slid)


def _largest_inside(call: NodeCall, x: str, window: Window, axis: int) -> str | None:
    """The same of an image as it lies: the few windows that look beyond it are the largest of fewer places. None where
    these are many, or one looks at nothing else."""
    b, extent, apart, stride = call.b, window.shape[axis], window.dilations[axis], window.strides[axis]
    count, out, before = window.kernel[axis], window.out[axis], window.before[axis]
    reach = (count - 1) * apart + 1
    inside = range(-(-before // stride), min(out, (extent - reach + before) // stride + 1))
    if not inside or out - len(inside) > _FEW_BEYOND:
        return None
    beyond = [w * stride - before for w in (*range(inside.start), *range(inside.stop, out))]
    seen = [[at for at in range(begin, begin + reach, apart) if 0 <= at < extent] for begin in beyond]
    if not all(seen):
        return None
    shape = list(b.facts[x].shape)

    def largest(first: int, last: int, places: int, windows: int) -> str:
        begin, extents = tuple(first if i == axis + 2 else 0 for i in range(len(shape))), list(shape)
        extents[axis + 2] = last + 1 - first
        part = b.slice(x, begin, tuple(extents), (1,) * len(shape))
        return _largest_along(call, part, axis + 2, places, apart, (stride, windows))

    first, last = inside[0] * stride - before, inside[-1] * stride - before + reach - 1
    parts = [largest(at[0], at[-1], len(at), 1) for at in seen]
    parts.insert(inside.start, largest(first, last, count, len(inside)))
    return b.concat(parts, axis + 2)


def _largest_along(call: NodeCall, x: str, axis: int, count: int, apart: int, out: tuple[int, int]) -> str:
    """The largest of `count` places, so far apart, from every place of an axis on; `out`: steps between those, and how
    many there are. Of many places it is that of two halves, which may share places."""
    b, (stride, windows) = call.b, out
    shape = list(b.facts[x].shape)
    starts = [place * apart for place in range(count)]
    if count > _TOGETHER:
        half = -(-count // 2)
        shift = (count - half) * apart
        x = _largest_along(call, x, axis, half, apart, (1, (windows - 1) * stride + 1 + shift))
        starts = [0, shift]
    shape[axis] = windows
    steps = tuple(stride if i == axis else 1 for i in range(len(shape)))
    values = [b.slice(x, tuple(start if i == axis else 0 for i in range(len(shape))), tuple(shape), steps)
              for start in starts]  # fmt: skip
    return chained(call, "maximum", values)


def _average_pool(call: NodeCall) -> Sequence[str]:
    """The sum in the kernel's order from the first place on, divided by how many places count."""
    dtype, window = call.fact(0).dtype, window_of(call)
    # -0 is what no sum is changed by, a sum of -0 alone included.
    total = chained(call, "add", _slices(call, call[0], window, np.array([-0.0], dtype.numpy)))
    counts = window.counts(bool(call.attributes["count_include_pad"])).astype(dtype.numpy)
    is_one = counts.size and (counts == counts.flat[0]).all()
    one = counts.flat[0].reshape(()) if is_one else counts
    return (call.b.apply("div", total, call.b.constant(one)),)


def _lp_pool(call: NodeCall) -> Sequence[str]:
    """The sum of magnitudes, or the root of the sum of squares, in the order of `AveragePool`."""
    b, window, order = call.b, window_of(call), call.attributes["p"]
    values = _slices(call, call[0], window, np.zeros(1, call.fact(0).dtype.numpy))
    if order == 1:
        return (chained(call, "add", [b.apply("abs", value) for value in values]),)
    return (b.apply("sqrt", chained(call, "add", [b.apply("mul", value, value) for value in values])),)


_AUTO = Attribute("auto_pad", "NOTSET", "string", ("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"))
_KERNEL = Attribute("kernel_shape", kind="ints")
SLIDE = (_AUTO, Attribute("pads", None, "ints"), Attribute("strides", None, "ints"))
_LARGE = f"windows of more than {_MOST} places"
OPEN = "extents of the image that are open when the model is loaded"


def _ceil(since: int) -> Attribute:
    return Attribute("ceil_mode", 0, allowed=(0, 1), since=since)


def dilations(since: int = 1) -> Attribute:
    return Attribute("dilations", None, "ints", since=since)


ROWS: tuple[OnnxRow, ...] = (
    OnnxRow(
        "MaxPool",
        1,
        _max_pool,
        (
            _KERNEL,
            *SLIDE,
            _ceil(10),
            dilations(10),
            # It speaks of the second output only, which is not done.
            Attribute("storage_order", 0, allowed=(0, 1), since=8),
        ),
        limits=f"the second output; {OPEN}",
    ),
    OnnxRow(
        "AveragePool",
        1,
        _average_pool,
        (
            _KERNEL,
            *SLIDE,
            _ceil(10),
            dilations(19),
            Attribute("count_include_pad", 0, allowed=(0, 1), since=7),
        ),
        limits=f"{_LARGE}; {OPEN}",
    ),
    OnnxRow(
        "LpPool",
        2,
        _lp_pool,
        (
            _KERNEL,
            *SLIDE,
            _ceil(18),
            dilations(18),
            Attribute("p", 2, allowed=(1, 2)),
        ),
        limits=f"other norms than 1 and 2; {_LARGE}; {OPEN}",
    ),
)
