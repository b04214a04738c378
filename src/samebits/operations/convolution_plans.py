"""Plans of the operation `convolve`, which `convolution` defines.

A product whose right operand has a column for each window and a row for each channel of the group and place of the
kernel, in that order. Its panels are packed, a chunk at a time, from a copy of the image, or of what some rows of
windows look at of a large one; of integers beside constant weights this is a copy in the engine's words, of several
channels each. Elsewhere, as where the weights are in panels or tiles are multiplied, the columns of some windows at a
time are written out first, and stay in a near cache until they are multiplied. Groups of few filters are
`convolution_chains`'. What windows look at is `windows`'. Start at `_plan`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from samebits.codegen.isa import Isa
from samebits.dtypes import DType
from samebits.frozen import replace
from samebits.kernels.gemm import selection
from samebits.kernels.gemm.contraction import Windows
from samebits.kernels.gemm.engine import LONGEST_CHUNK, Engine
from samebits.kernels.gemm.panels import panel_columns
from samebits.kernels.plan import Operand, Plan, Step, in_lines
from samebits.operations import convolution_chains, matmul
from samebits.operations.convolution import Convolution, axes, by_group, infer, reference
from samebits.operations.convolution_chains import Source
from samebits.operations.operation import Array, KeptConstant, Known, Operation, PlanTarget, Shape, View, shared_by
from samebits.operations.strided import dense_strides, of_strides
from samebits.operations.windows import (
    EXTRAS,
    OUT,
    WORKSPACE,
    Beside,
    Image,
    Slide,
    W,
    X,
    copied_image,
    copy,
    ground,
    image_copy,
    own_image,
    words,
)

__all__ = ["ROWS"]

# Bytes of columns, and of an image's channels, that are used before they leave the second cache; and columns of a
# product at least, below which packing the weights again takes too much of it.
_NEAR, _COLUMNS = 1 << 19, 256
# Windows of a part of an image at least, for the same reason.
_LEAST = 1024
# Windows of an image up to which the weights are the larger operand by far.
_WINDOWS = 256
# The format of an operand, and its steps between images (if there are several), filters and windows.
Lying = tuple[DType, Shape]


def _takes(attributes: Convolution, views: Sequence[View]) -> list[Shape | None]:
    """Weights whose elements lie side by side, and so an image that is its own columns, and what else has an element
    for each window."""
    count = len(attributes.names)
    (_, image, steps), (_, w, w_steps), *named = views[:count]
    extras = views[count : count + _count(attributes)]
    slides = attributes.slides(image[2:], (attributes.weights or w)[2:])
    needs = _is_pointwise(slides) and not of_strides(image[1:], steps[1:]).is_dense
    apart = [None if _beside(attributes, extra) else extra[1] for extra in extras]
    kept = None if of_strides(w, w_steps).is_dense else w
    return [image if needs else None, kept, *[None] * len(named), *apart]


def _beside(attributes: Convolution, view: View) -> Beside | None:
    """How an operand of the epilogue lies; None where windows of an image are not equally far apart in it."""
    dtype, shape, steps = view
    rank = len(attributes.out)
    missing = (1,) * (rank + 2 - len(shape))
    image, filter, *along = [
        0 if extent == 1 else step for extent, step in zip((*missing, *shape), (*missing, *steps), strict=True)
    ]
    if not any(along):
        return Beside(dtype, image, filter, 0)
    flat = of_strides(attributes.out, along).reshape((math.prod(attributes.out),))
    return None if flat is None or flat.strides is None else Beside(dtype, image, filter, flat.strides[0])


def _all_beside(attributes: Convolution, views: Sequence[View]) -> list[Beside]:
    """How the operands of the epilogue lie, as `_takes` says they do."""
    found = list[Beside]()
    for view in views[len(attributes.names) : -1]:
        lies = _beside(attributes, view)
        assert lies is not None  # else it was copied
        found.append(lies)
    return found


def _count(attributes: Convolution) -> int:
    """How many operands the epilogue has beside the product."""
    return 0 if attributes.epilogue is None else len(attributes.epilogue.inputs) - 1


def _is_pointwise(slides: Sequence[Slide]) -> bool:
    """Whether each window is exactly one element of the image, and each element has a window."""
    return all(s.kernel == s.stride == 1 and not s.before and s.out == s.extent for s in slides)


def _plan(attributes: Convolution, views: tuple[View, ...], target: PlanTarget) -> Plan:
    """Chains of elements or products, of some channels or windows of an image at a time."""
    w = attributes.weights or views[1][1]
    slides = attributes.slides(views[0][1][2:], w[2:])
    is_counted = attributes.is_counted(w, [dtype for dtype, _, _ in views[:-1]])
    if is_counted or (attributes.is_chained(w) and views[0][0].is_float):
        beside, named = _all_beside(attributes, views), _named(attributes, views)
        if attributes.is_map(w) and attributes.epilogue is None:
            threads = shared_by(views, target)
            steps = convolution_chains.plan_one_window(slides, attributes.groups, named, views, target.isa, threads)
            if steps is not None:
                return _whole(attributes, views, target, steps, threads, 0, 0, "elements of one window")
        step, scratch = convolution_chains.plan(
            slides,
            attributes.groups,
            attributes.spec.chunk,
            attributes.epilogue,
            beside,
            named,
            attributes.bias_fits,
            views,
            target.isa,
        )
        products = math.prod(views[-1][1]) * math.prod(w[1:])
        threads = max(shared_by(views, target), target.sized(products, "products"))
        return _whole(attributes, views, target, [step], threads, 0, scratch, "chains of elements")
    if _is_pointwise(slides):
        return _by_columns(attributes, slides, views, target)
    return _by_windows(attributes, slides, views, target) or _by_columns(attributes, slides, views, target)


def _named(attributes: Convolution, views: Sequence[View]) -> dict[str, Source]:
    """What integers have beside image and weights: one number, or one a filter."""
    names = attributes.names[2:]
    lies = [Beside(dtype, 0, steps[0] if steps else 0, 0) for dtype, _, steps in views[2 : 2 + len(names)]]
    return dict(zip(names, enumerate(lies), strict=True))


def _by_windows(
    attributes: Convolution, slides: Sequence[Slide], views: tuple[View, ...], target: PlanTarget
) -> Plan | None:
    """Products of the weights and the windows of an image, packed from a copy of it; None where windows of a row do
    not lie side by side or are too few, where they look at nothing, where weights are the right operand, or where words
    are no elements and weights are not grouped for them."""
    (dtype, x, steps), *_, (made, out, goes) = views
    w, depth = attributes.weights or views[1][1], attributes.depth
    if not attributes.engine:
        if dtype.is_integer:
            return None
        engine = selection.engine_for(dtype, dtype, target.isa, target.machine, attributes.spec)
        if attributes.packed or engine.depth > 1 or not _are_many(attributes, w, engine, target):
            return None
    channels, inner = -(-x[1] // depth), math.prod(out[3:])
    whole, size = copied_image(slides), dtype.element_bytes * depth
    rows, threads = _rows_at_a_time(out[2], channels * whole.channel * size, inner), shared_by(views, target)
    named, beside = views[2 : len(attributes.names)], _all_beside(attributes, views)
    own = [Operand(EXTRAS + number) for number in range(len(named))]
    # Up to a vector is read behind the copy, which the words of an image follow.
    behind = in_lines((channels * _part(slides, 0, rows)[1].channel + target.isa.lanes) * size)
    room = behind + in_lines(channels * math.prod(x[2:]) * size if depth > 1 else 0)
    parts, workspace, scratch = list[Step](), room, 0
    before: tuple[int, int] | None = None
    plans: dict[int, Plan] = {}  # by rows of windows
    for image, first in itertools.product(range(x[0]), range(0, out[2], rows)):
        some = min(rows, out[2] - first)
        part, lies = _part(slides, first, some)
        plan = plans.get(some) or _windows_product(attributes, part, lies, views, beside, target)
        plans[some] = plan
        if first == 0:
            source, begin = views[0], Operand(X, image * steps[0] * dtype.element_bytes)
            if depth > 1:
                source, made_words = words(source, begin, depth, behind, target.isa, threads)
                begin = Operand(WORKSPACE, behind)
                parts += made_words
        # What a copy leaves out is the ground already, where the one before lay alike and left out no less.
        if before != (first, some) and not (before and before[1] == some and part[0].is_full):
            parts += ground(dtype, attributes.point, channels * lies.channel, depth, target.isa, threads)
        before = first, some
        parts += image_copy(part, source, lies, begin, channels, target.isa, threads)
        into = Operand(OUT, (image * goes[0] + first * inner) * made.element_bytes)
        others = [*own, *[y.at(number, image, first * inner) for number, y in enumerate(beside, len(named))]]
        places = Operand(W), Operand(WORKSPACE), *others, into, Operand(WORKSPACE, room)
        parts += [step.on(*places) for step in plan.steps]
        workspace, scratch = max(workspace, room + plan.workspace_bytes), max(scratch, plan.scratch_bytes)
        threads = max(threads, plan.threads)
    how = "a copied image" + (" of words" if depth > 1 else "")
    how = f"windows of {how}" if rows == out[2] else f"windows of {rows} rows of {how} at a time"
    return _whole(attributes, views, target, parts, threads, workspace, scratch, how)


def _part(slides: Sequence[Slide], first: int, count: int) -> tuple[Sequence[Slide], Image]:
    """Some rows of windows, and the copy of what they look at."""
    part = [slides[0].part(first, count), *slides[1:]]
    return part, copied_image(part)


def _are_many(attributes: Convolution, w: Shape, engine: Engine, target: PlanTarget) -> bool:
    """Whether windows are as many as a panel's columns at least, look at something, and those of a row look at
    neighbours in a copy of the image."""
    stride, dilation = attributes.strides[-1], attributes.dilations[-1]
    are_neighbours = stride == 1 or (w[-1] > 1 and dilation == 1)
    nr = panel_columns(target.isa, engine, target.machine)
    return are_neighbours and 0 not in w and math.prod(attributes.out) >= nr


def _rows_at_a_time(rows: int, size: int, inner: int) -> int:
    """How many rows of windows are multiplied at a time: all, if the image that they look at stays in a second cache.

    Args:    size: bytes of the image.   inner: windows of a row.
    """
    if size <= 2 * _NEAR:
        return rows
    most = max(_NEAR * rows // size, -(-_LEAST // inner))
    return -(-rows // -(-rows // most))


def _windows_product(
    attributes: Convolution, slides: Sequence[Slide], lies: Image, views: tuple[View, ...], beside: Sequence[Beside],
    target: PlanTarget,
) -> Plan:  # fmt: skip
    """The product of weights and windows of such an image."""
    (dtype, _, _), (kind, shape, _), *_, (made, _, goes) = views
    w, depth = attributes.weights or shape, attributes.depth
    whole = w[0], -(-w[1] // depth) * depth, *w[2:]
    looks = [lies.at(slides, place) for place in itertools.product(*map(range, w[2:]))]
    along = [s.places(0)[2] * step for s, step in zip(slides, lies.steps, strict=True)]
    rows = [(s.out, step) for s, step in zip(slides[:-1], along[:-1], strict=True)][::-1]
    windows = Windows(slides[-1].out, tuple(rows), lies.channel, tuple(looks), depth)
    area, apart = math.prod(s.out for s in slides), whole[1] // depth * lies.channel
    columns = dtype, (attributes.groups, math.prod(whole[1:]), area), (apart, 0, 1)
    lying: list[Lying] = [(y.dtype, (y.filter, y.window)) for y in beside]
    others = [*lying, (made, (goes[1], 1))]
    return _product(attributes, columns, (kind, whole, ()), views[2 : len(attributes.names)], others, target, windows)


def _by_columns(attributes: Convolution, slides: Sequence[Slide], views: tuple[View, ...], target: PlanTarget) -> Plan:
    """Products of the weights and the columns of some rows of windows of an image."""
    (dtype, x, steps), *_, (made, out, goes) = views
    named, beside = views[2 : len(attributes.names)], _all_beside(attributes, views)
    own_places = [Operand(EXTRAS + number) for number in range(len(named))]
    w = attributes.weights or views[1][1]
    groups, k, inner = attributes.groups, math.prod(w[1:]), math.prod(out[3:])
    threads, area, size = shared_by(views, target), math.prod(out[2:]), dtype.element_bytes
    if _is_pointwise(slides):
        shape = x[0], groups, k, area
        columns: View = dtype, shape, (steps[0], k * steps[1], steps[1], 1)
        lying: list[Lying] = [(y.dtype, (y.image, y.filter, y.window)) for y in beside]
        plan = _product(
            attributes, columns, (views[1][0], w, ()), named, [*lying, (made, (goes[0], goes[1], 1))], target
        )
        places = [*own_places, *[y.at(number, 0, 0) for number, y in enumerate(beside, len(named))]]
        parts = _on(attributes, plan, Operand(X), [*places, Operand(OUT), Operand(WORKSPACE)])
        return _whole(attributes, views, target, parts, plan.threads, plan.workspace_bytes, plan.scratch_bytes, "1 x 1")
    own = own_image(slides, steps)
    lies = own or copied_image(slides)
    at = 0 if own else in_lines(x[1] * lies.channel * size)
    row_bytes = max(1, groups * k * inner * size)
    rows = min(out[2], max(1, _NEAR // row_bytes, -(-_COLUMNS // inner)))
    behind, room, scratch = at + in_lines(rows * row_bytes), 0, 0
    parts = [] if own else ground(dtype, attributes.point, x[1] * lies.channel, 1, target.isa, threads)
    for image in range(x[0]):
        if own is None:
            parts += image_copy(slides, views[0], lies, Operand(X, image * steps[0] * size), x[1], target.isa, threads)
        begin = replace(lies, offset=image * steps[0]) if own else lies
        for first in range(0, out[2], rows):
            some = min(rows, out[2] - first)
            parts += _columns(slides, w, begin, (dtype, x[1]), at, first, some, target.isa, threads)
            columns = dtype, (groups, k, some * inner), (k * some * inner, some * inner, 1)
            lying = [(y.dtype, (y.filter, y.window)) for y in beside]
            plan = _product(attributes, columns, (views[1][0], w, ()), named, [*lying, (made, (goes[1], 1))], target)
            room, scratch = max(room, plan.workspace_bytes), max(scratch, plan.scratch_bytes)
            threads = max(threads, plan.threads)
            into = Operand(OUT, (image * goes[0] + first * inner) * made.element_bytes)
            places = [*own_places, *[y.at(number, image, first * inner) for number, y in enumerate(beside, len(named))]]
            parts += _on(attributes, plan, Operand(WORKSPACE, at), [*places, into, Operand(WORKSPACE, behind)])
    how = f"columns of {rows} rows of windows at a time"
    return _whole(attributes, views, target, parts, threads, behind + room, scratch, how)


def _product(
    attributes: Convolution, columns: View, w: View, named: Sequence[View], others: Sequence[Lying],
    target: PlanTarget, windows: Windows | None = None,
) -> Plan:  # fmt: skip
    """Weights times columns [..., groups, K, N]; turned, where the weights are in panels: these are right operands.

    Args:    w: the weights.   named: what else the product takes.   others: operands of the epilogue, then results.
             windows: as `matmul.plan_product` takes them.
    """
    dtype, (*images, groups, k, n), (*between, group, row, column) = columns
    filters, is_turned = w[1][0] // groups, attributes.packed is not None
    both: list[View] = [(w[0], (groups, filters, k), (filters * k, k, 1)), columns]
    if is_turned:
        turned: View = dtype, (*images, groups, n, k), (*between, group, column, row)
        both = [turned, (dtype, (k, filters), (1, k))]
    for name, (kind, shape, strides) in zip(attributes.names[2:], named, strict=True):
        if shape:
            shape, step = by_group(attributes, name, shape[0]), strides[0]
            strides = (filters * step, step, 0)[: len(shape)]
        both.append((kind, shape, strides))
    for kind, (*outer, filter, window) in others:
        extents, inner = ((n, filters), (window, filter)) if is_turned else ((filters, n), (filter, window))
        both.append((kind, (*images, groups, *extents), (*outer, filters * filter, *inner)))
    product = replace(attributes.product, epilogue=attributes.epilogue)
    return matmul.plan_product(product, tuple(both), target, windows, attributes.engine or None)


def _on(attributes: Convolution, plan: Plan, columns: Operand, others: Sequence[Operand]) -> list[Step]:
    """The steps of a product on where its operands are, the others being those of the epilogue, results, workspace."""
    both = (columns, Operand(W)) if attributes.packed else (Operand(W), columns)
    return [step.on(*both, *others) for step in plan.steps]


def _columns(
    slides: Sequence[Slide], w: Shape, lies: Image, of: tuple[DType, int], to: int, first: int, rows: int,
    isa: Isa, threads: int,
) -> list[Step]:  # fmt: skip
    """Write out what some rows of windows look at: a row for each channel and place, a column for each window.

    Args:    w: the shape of the weights.   of: the format, and how many channels.   to: the byte of the workspace.
    """
    dtype, channels = of
    kernel = w[2:]
    windows = (rows, *[s.out for s in slides[1:]])
    area, count = math.prod(windows), math.prod(kernel)
    rests = dense_strides(kernel)
    steps: list[Step] = []
    for phases in itertools.product(*[range(s.seen) for s in slides]):
        ways = [slide.places(phase) for slide, phase in zip(slides, phases, strict=True)]
        shape = channels, *[places for places, _, _ in ways], *windows
        between = [apart * step for (_, apart, _), step in zip(ways, lies.steps, strict=True)]
        along = [apart * step for (_, _, apart), step in zip(ways, lies.steps, strict=True)]
        goes = [s.phases * rest * area for s, rest in zip(slides, rests, strict=True)]
        source = shape, (lies.channel, *between, *along)
        target = shape, (count * area, *goes, *dense_strides(windows))
        begin = lies.offset + lies.at(slides, phases) + first * along[0]
        at = sum(phase * rest for phase, rest in zip(phases, rests, strict=True)) * area
        steps += copy(dtype, source, target, Operand(lies.operand, begin * dtype.element_bytes), (to, at), isa, threads)
    return steps


def _whole(
    attributes: Convolution, views: tuple[View, ...], target: PlanTarget, steps: Sequence[Step], threads: int,
    workspace_bytes: int, scratch_bytes: int, how: str,
) -> Plan:  # fmt: skip
    """The plan of steps whose operands are numbered as here: those of the epilogue come last."""
    count = len(views) - 3
    if count:
        places = X, W, OUT + count, WORKSPACE + count, *range(OUT, OUT + count)
        steps = [step.on(*map(Operand, places)) for step in steps]
    return Plan(
        what=f"convolve {views[0][1]} by {attributes.weights or views[1][1]}, {attributes}",
        isa=target.isa,
        threads=threads,
        steps=tuple(steps),
        operands=("x", "w", *[f"input {k}" for k in range(2, 2 + count)], "out"),
        scratch_bytes=scratch_bytes,
        workspace_bytes=workspace_bytes,
        facts=(("by", how), *((("order", str(attributes.spec)),) if views[0][0].is_float else ())),
    )


def _keep(
    attributes: Convolution, kinds: Sequence[DType], known: Mapping[int, Known], target: PlanTarget
) -> KeptConstant | None:
    """Constant weights of few windows are packed once, as the right operand of the turned product: packed anew for
    each image they would take as long as it does."""
    w, keep = known.get(1), matmul.ROWS[0].keep
    assert keep is not None
    if w is not None and kinds[0].is_integer:
        return _keep_grouped(attributes, kinds, w, target)
    if w is None or 0 in w.shape or attributes.groups > 1 or math.prod(attributes.out) > _WINDOWS:
        return None
    if attributes.is_chained(w.shape):
        return None
    filters, k = w.shape[0], math.prod(w.shape[1:])
    matrix = Known((k, filters), lambda: w.values().reshape(filters, k).T)
    found = keep(attributes.product, kinds, {1: matrix}, target)
    if found is None:
        return None
    packed = replace(attributes, packed=found.attributes.packed, weights=w.shape)
    return replace(found, attributes=packed, key=("convolve", found.key))


def _keep_grouped(attributes: Convolution, kinds: Sequence[DType], w: Known, target: PlanTarget) -> KeptConstant | None:
    """Constant weights of integers, whose channels are grouped as words of the image have them, for an engine that
    takes these weights as they are; None where none does, where tiles are multiplied, or where windows are packed from
    columns, as those of one element are."""
    if attributes.is_counted(w.shape, kinds):
        return None
    if "a_zero_point" in attributes.names or {kinds[0].width_bits, kinds[1].width_bits} != {8}:
        return None  # which the sums of the columns would be needed for
    if math.prod(w.shape[2:]) * math.prod(attributes.strides) == 1:
        return None
    if selection.by_tiles(kinds[1], kinds[0], target.isa, target.machine):
        return None
    engines = selection.candidates(kinds[1], kinds[0], target.isa)
    engine = next((x for x in engines if x.a is kinds[1] and x.depth > 1 and x.a.width_bits == 8), None)
    filters, depth, *kernel = w.shape
    if engine is None or not _are_many(attributes, w.shape, engine, target):
        return None
    groups, places = -(-depth // engine.depth), math.prod(kernel)
    if (attributes.groups > 1 and depth % engine.depth) or groups * places * engine.depth > LONGEST_CHUNK:
        return None

    def make(empty: Callable[..., Array]) -> Array:
        made = empty(filters * groups * places * engine.depth, kinds[1].numpy)
        whole = np.zeros((filters, groups * engine.depth, places), made.dtype)
        whole[:, :depth] = w.values().reshape(filters, depth, places)
        made.reshape(filters, groups, places, engine.depth)[:] = np.swapaxes(
            whole.reshape(filters, groups, engine.depth, places), 2, 3
        )
        return made

    grouped = replace(attributes, weights=w.shape, engine=engine.name)
    return KeptConstant(grouped, 1, ("grouped", w.shape, engine.depth), make)


ROWS: tuple[Operation, ...] = (
    Operation("convolve", infer, reference, axes, plan=_plan, takes=_takes, keep=_keep, any_order=False),
)
