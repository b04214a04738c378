"""How windows slide along an image, where the image lies that they look at, how it is copied there, and how operands of
what follows lie beside them.

An image is copied where a window reaches beyond it, which reads as +0, or as the zero point of integers, or where
neighbouring windows do not lie side by side: by its phases, every s-th row and column of it, among which windows s
apart are neighbours. One of bytes may become one of `words` before, of several channels each. Start at `Slide`.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence

from samebits.codegen.isa import Isa
from samebits.dtypes import DType, uint8, uint32
from samebits.frozen import dataclass, replace
from samebits.kernels import elementwise
from samebits.kernels.expression import Chain, Expression
from samebits.kernels.plan import Operand, Step
from samebits.kernels.walk import AxisSteps
from samebits.operations.elementwise import single
from samebits.operations.operation import Shape, View
from samebits.operations.strided import dense_strides

__all__ = [
    "EXTRAS",
    "OUT",
    "WORKSPACE",
    "Beside",
    "Image",
    "Slide",
    "W",
    "X",
    "copied_image",
    "copy",
    "ground",
    "image_copy",
    "own_image",
    "words",
]

# The operands of a plan that slides windows along an image: the image, the weights, the result, and what is behind.
X, W, OUT, WORKSPACE = range(4)
# Those of the epilogue come last.
EXTRAS = WORKSPACE + 1


@dataclass(frozen=True, slots=True)
class Slide:
    """One spatial axis: extents of image and kernel, steps between windows and between places of the kernel, where the
    first window begins, how many there are."""

    extent: int
    kernel: int
    stride: int
    dilation: int
    before: int
    out: int

    @property
    def total(self) -> int:
        """How far windows reach from where the first begins."""
        return (self.out - 1) * self.stride + (self.kernel - 1) * self.dilation + 1

    @property
    def phases(self) -> int:
        """How many phases the image is copied in: within one of them neighbouring windows look at neighbours."""
        return self.stride if self.kernel > 1 and self.dilation == 1 else 1

    @property
    def seen(self) -> int:
        """The first so many phases, of which each is looked at by a place of the kernel."""
        return min(self.phases, self.kernel)

    @property
    def size(self) -> int:
        """Elements of a phase."""
        return -(-self.total // self.phases)

    @property
    def is_inside(self) -> bool:
        """Whether windows look at nothing beside the image, and one phase is all of it."""
        return not self.before and self.total <= self.extent and self.phases == 1

    def copied(self, phase: int) -> tuple[int, int, int]:
        """What of the image a phase has: the first element of the phase, that of the image, and how many."""
        first = -(-(self.before - phase) // self.phases) if self.before > phase else 0
        begin = phase + first * self.phases - self.before
        count = min(-(-(self.extent - begin) // self.phases), self.size - first)
        return first, begin, max(count, 0)

    @property
    def is_full(self) -> bool:
        """Whether phases have an element of the image everywhere."""
        return all(self.copied(phase)[::2] == (0, self.size) for phase in range(self.seen))

    def part(self, first: int, count: int) -> Slide:
        """Some of the windows."""
        return replace(self, before=self.before - first * self.stride, out=count)

    def places(self, phase: int) -> tuple[int, int, int]:
        """The places of the kernel that look at a phase: how many, steps in it between them, and between windows."""
        if self.phases == 1:
            return self.kernel, self.dilation, self.stride
        return -(-(self.kernel - phase) // self.phases), 1, 1


@dataclass(frozen=True, slots=True)
class Beside:
    """How an operand of an epilogue lies: elements from an image, a filter and a window to the next, 0 where it
    repeats."""

    dtype: DType
    image: int
    filter: int
    window: int

    def at(self, number: int, image: int, window: int) -> Operand:
        """Operand `number` of them where an image has such a window."""
        return Operand(EXTRAS + number, (image * self.image + window * self.window) * self.dtype.element_bytes)


@dataclass(frozen=True, slots=True)
class Image:
    """Where the channels of an image lie: in an operand, from an offset in elements on; steps between channels, and
    for each spatial axis between its phases and between the elements of one."""

    operand: int
    offset: int
    channel: int
    phases: Shape
    steps: Shape

    def at(self, slides: Sequence[Slide], place: Shape) -> int:
        """Where the first window looks by a place of the kernel, in elements from the first channel's."""
        total = 0
        for slide, k, phase, step in zip(slides, place, self.phases, self.steps, strict=True):
            k *= slide.dilation
            total += k % slide.phases * phase + k // slide.phases * step
        return total


def own_image(slides: Sequence[Slide], steps: Shape) -> Image | None:
    """The image as it lies, if windows need no other."""
    if not all(s.is_inside for s in slides):
        return None
    return Image(X, 0, steps[1], (0,) * len(slides), steps[2:])


def copied_image(slides: Sequence[Slide]) -> Image:
    """The image in the phases that windows look at, at the begin of the workspace."""
    sizes, phases = tuple(s.size for s in slides), tuple(s.seen for s in slides)
    plane = math.prod(sizes)
    between = tuple(plane * step for step in dense_strides(phases))
    return Image(WORKSPACE, 0, plane * math.prod(phases), between, dense_strides(sizes))


def image_copy(
    slides: Sequence[Slide], x: View, lies: Image, begin: Operand, channels: int, isa: Isa, threads: int
) -> list[Step]:
    """Copy some channels of x, from where `begin` is, to where windows look; what is beside them stays as it is."""
    dtype, _, steps = x
    made: list[Step] = []
    for phases in itertools.product(*[range(s.seen) for s in slides]):
        parts = [slide.copied(phase) for slide, phase in zip(slides, phases, strict=True)]
        shape = channels, *[count for _, _, count in parts]
        source = shape, (steps[1], *[s.phases * step for s, step in zip(slides, steps[2:], strict=True)])
        target = shape, (lies.channel, *lies.steps)
        reads = sum(at * step for (_, at, _), step in zip(parts, steps[2:], strict=True))
        writes = sum(p * step for p, step in zip(phases, lies.phases, strict=True))
        writes += sum(at * step for (at, _, _), step in zip(parts, lies.steps, strict=True))
        if 0 not in shape:
            made += copy(dtype, source, target, begin.behind(reads * dtype.element_bytes), (0, writes), isa, threads)
    return made


def words(x: View, begin: Operand, depth: int, to: int, isa: Isa, threads: int) -> tuple[View, list[Step]]:
    """An image of words, each of so many channels of one of bytes, and the steps that make it in the workspace.

    Args:    begin: where that of bytes is.   to: the byte of the workspace.
    Returns: where there are fewer channels for the last words, these are 0.
    """
    _, (_, channels, *spatial), (_, apart, *steps) = x
    shape = 1, -(-channels // depth), *spatial
    strides, whole, made = dense_strides(shape), channels // depth, list[Step]()
    for first, count, together in (0, whole, depth), (whole, 1, channels % depth):
        if not (count and together) or 0 in spatial:
            continue
        extents = count, *spatial
        source, target = (extents, (together * apart, *steps)), (extents, strides[1:])
        plan = elementwise.plan(_word(together), (source,) * together, (target,), isa, threads)
        bytes_of = [begin.behind((first * depth + c) * apart) for c in range(together)]
        into = Operand(WORKSPACE, to + first * strides[1] * uint32.size_bytes)
        made += [step.on(*bytes_of, into) for step in plan.steps]
    return (uint32, shape, strides), made


def copy(
    dtype: DType, source: AxisSteps, target: AxisSteps, reads: Operand, writes: tuple[int, int], isa: Isa,
    threads: int,
) -> list[Step]:  # fmt: skip
    """Copy elements to the workspace.

    Args:    writes: the byte of the workspace, and elements from there.
    """
    plan = elementwise.plan(single("copy", dtype), (source,), (target,), isa, threads)
    into = Operand(WORKSPACE, writes[0] + writes[1] * dtype.element_bytes)
    return [step.on(reads, into) for step in plan.steps]


def zeros(dtype: DType, count: int, isa: Isa, threads: int) -> list[Step]:
    """Make so many elements of the workspace +0."""
    plan = elementwise.plan(_zero(dtype), (), (((count,), (1,)),), isa, threads)
    return [step.on(Operand(WORKSPACE)) for step in plan.steps]


def ground(dtype: DType, point: int | None, count: int, depth: int, isa: Isa, threads: int) -> list[Step]:
    """Make so many elements of the workspace, or words of them, what windows see beside an image: +0, or operand
    `point`."""
    if point is None:
        return zeros(uint32 if depth > 1 else dtype, count, isa, threads)
    spread = _word(1, depth) if depth > 1 else single("copy", dtype)
    plan = elementwise.plan(spread, (((count,), (0,)),), (((count,), (1,)),), isa, threads)
    return [step.on(Operand(point), Operand(WORKSPACE)) for step in plan.steps]


@functools.cache
def _word(count: int, copies: int = 1) -> Expression:
    """Words of so many bytes, the first lowest; or of one so often."""
    chain, word = Chain(), None
    for place in range(count):
        byte = chain.apply("cast", chain.input(uint8), dtype=uint32)
        if place:
            byte = chain.apply("shift_left", byte, chain.constant(8 * place, uint32))
        word = byte if word is None else chain.apply("bit_or", word, byte)
    assert word is not None  # a word has a byte
    if copies > 1:
        word = chain.apply("mul", word, chain.constant(sum(1 << 8 * i for i in range(copies)), uint32))
    return chain.finish(word)


@functools.cache
def _zero(dtype: DType) -> Expression:
    chain = Chain()
    return chain.finish(chain.constant(0.0, dtype))
