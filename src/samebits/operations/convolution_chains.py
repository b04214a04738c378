"""Convolutions whose elements are chains of their own: groups of few filters and short sums. Start at `plan`."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence

from samebits.codegen.isa import Isa
from samebits.dtypes import DType
from samebits.frozen import dataclass
from samebits.kernels import elementwise
from samebits.kernels.composites import given, taken
from samebits.kernels.expression import Chain, Expression
from samebits.kernels.plan import Operand, Step, in_lines
from samebits.operations.elementwise import single
from samebits.operations.operation import PlanTarget, Shape, View, shared_by
from samebits.operations.strided import dense_strides
from samebits.operations.windows import (
    OUT,
    WORKSPACE,
    Image,
    Slide,
    W,
    copied_image,
    image_copy,
    own_image,
    zeros,
)  # fmt: skip

__all__ = ["plan"]

# Windows of a row up to which rows are computed together with what lies between them: vectors are full then.
_NARROW = 32


@dataclass(frozen=True, slots=True)
class Sums:
    """The sums of some windows.

    Attributes:
        dtype: The elements'.
        w: The shape of the weights.
        groups: How many there are.
        slides: Each spatial axis.
        lies: Where the image lies.
        windows: How many, by axis.
        along: Elements of the image between windows, by axis.
    """

    dtype: DType
    w: Shape
    groups: int
    slides: Sequence[Slide]
    lies: Image
    windows: Shape
    along: Shape

    @property
    def filters(self) -> int:
        """Those of a group."""
        return self.w[0] // self.groups

    def steps(
        self, first: int, shape: tuple[int, int], image_step: int, out: Operand, goes: Shape, isa: Isa, threads: int
    ) -> tuple[Step, ...]:
        """Compute them for some groups of some images.

        Args:
            first: The first group, whose channels the image that lies begins with.
            shape: How many images, and groups.
            image_step: Elements from one image to the next.
            out: Where the first result goes.
            goes: Elements between results, by image, group, filter and axis of windows.
        """
        depth, kernel, lies = self.w[1], self.w[2:], self.lies
        count = depth * math.prod(kernel)
        image = (*shape, 1, *self.windows), (image_step, depth * lies.channel, 0, *self.along)
        ones = (1,) * len(self.windows)
        weights = (shape[1], self.filters, *ones), (self.filters * count, count, *ones)
        result = (*shape, self.filters, *self.windows), goes
        operands = (image,) * count + (weights,) * count
        found = elementwise.plan(_chain(self.dtype, count), operands, (result,), isa, threads)
        size, places = self.dtype.element_bytes, list(itertools.product(*map(range, kernel)))
        looks = [lies.offset + d * lies.channel + lies.at(self.slides, place) for d in range(depth) for place in places]
        at = [Operand(lies.operand, look * size) for look in looks]
        at += [Operand(W, (first * self.filters * count + k) * size) for k in range(count)]
        return tuple([step.on(*at, out) for step in found.steps])


@functools.lru_cache(maxsize=64)
def _chain(dtype: DType, count: int) -> Expression:
    """The sum of so many products, of elements of the image and then of weights: `p_0 + (+0)` of a chunk."""
    chain = Chain()
    image = [taken(chain, dtype) for _ in range(count)]
    weights = [taken(chain, dtype) for _ in range(count)]
    zero = chain.constant(0.0, image[0].dtype)
    total = zero
    for w, x in zip(weights, image, strict=True):
        total = chain.apply("fma", w, x, total)
    return chain.finish(given(chain, chain.apply("add", total, zero), dtype))


def plan(
    slides: Sequence[Slide], groups: int, views: tuple[View, ...], target: PlanTarget, near: int
) -> tuple[list[Step], int, int]:
    """Steps, threads and bytes of workspace: all images at once where they are taken as they lie, else some groups of
    one image, which are copied first.

    Args:    near: how many bytes are used before they leave a near cache.
    """
    (dtype, x, steps), (_, w, _), (made, (_, _, *out), goes) = views
    isa, threads, filters = target.isa, shared_by(views, target), w[0] // groups
    lies = own_image(slides, steps) or copied_image(slides)
    along = tuple([s.places(0)[2] * step for s, step in zip(slides, lies.steps, strict=True)])
    sums = Sums(dtype, w, groups, slides, lies, tuple(out), along)
    if lies.operand != WORKSPACE:
        result = goes[0], filters * goes[1], *goes[1:]
        return [*sums.steps(0, (x[0], groups), steps[0], Operand(OUT), result, isa, threads)], threads, 0
    together = _together(sums)
    area = 0 if together is None else math.prod(together.windows[:-1]) * out[-2] * along[-2]
    bytes_each = w[1] * lies.channel * dtype.element_bytes
    count = max(1, min(groups, near // (bytes_each + filters * area * made.element_bytes)))
    behind = in_lines(count * bytes_each)
    parts = zeros(dtype, count * w[1] * lies.channel, isa, threads)
    for image, first in itertools.product(range(x[0]), range(0, groups, count)):
        some = min(count, groups - first)
        begin = image * steps[0] + first * w[1] * steps[1]
        parts += image_copy(slides, views[0], lies, begin, some * w[1], isa, threads)
        at = Operand(OUT, (image * goes[0] + first * filters * goes[1]) * made.element_bytes)
        result = 0, filters * goes[1], *goes[1:]
        if together is None:
            parts += sums.steps(first, (1, some), 0, at, result, isa, threads)
            continue
        place, apart = Operand(WORKSPACE, behind), dense_strides((*out[:-1], along[-2]))
        between = 0, filters * area, area
        parts += together.steps(first, (1, some), 0, place, (*between, *apart[:-2], 1), isa, threads)
        shape = 1, some, filters, *out
        cut = elementwise.plan(single("copy", made), ((shape, (*between, *apart)),), ((shape, result),), isa, threads)
        parts += [step.on(place, at) for step in cut.steps]
    return parts, threads, behind + count * filters * area * made.element_bytes


def _together(sums: Sums) -> Sums | None:
    """The same sums as one long row, None where that gains nothing.

    The image is wider than there are windows in a row: 16 elements beside 14 windows of a kernel of 3. The two places
    behind each row of windows are computed as if windows began there too, from elements of this row and the next, so
    that the row goes on; what they give is left out when the results are copied. Where rows of the image are passed by,
    more could be left out than is kept.
    """
    if len(sums.windows) < 2 or sums.along[-1] != 1 or sums.windows[-1] > _NARROW:
        return None
    if sums.along[-2] > max(_NARROW, 2 * sums.windows[-1]):
        return None
    *outer, rows, columns = sums.windows
    windows = *outer, (rows - 1) * sums.along[-2] + columns
    return Sums(sums.dtype, sums.w, sums.groups, sums.slides, sums.lies, windows, (*sums.along[:-2], 1))
