"""Convolutions whose elements are chains of their own, for groups of few filters: how blocks of windows fit into a
first cache, and where in them each place of the kernel looks. The kernel is `window_chains`, but of images of one
window, as the steps of a causal convolution have them. Start at `plan`."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Mapping, Sequence

from samebits.codegen.isa import Isa
from samebits.codegen.vocabulary import KernelSpec
from samebits.dtypes import DType, float32, float64, int32, int64
from samebits.frozen import dataclass, replace
from samebits.kernels import elementwise
from samebits.kernels.composites import given, taken
from samebits.kernels.expression import Chain, Expression, ExpressionValue
from samebits.kernels.gemm import window_chains
from samebits.kernels.gemm.epilogue import REPEATED, ROW, STRIDED, Epilogue
from samebits.kernels.gemm.window_chains import PHASE, TOGETHER, WindowChains
from samebits.kernels.plan import Operand, Step, in_lines
from samebits.kernels.walk import SECOND
from samebits.operations.convolution import REQUANTISING
from samebits.operations.operation import View
from samebits.operations.windows import OUT, Beside, Slide, W, X

__all__ = ["Source", "plan", "plan_one_window"]

# Those of image and weights.
_ZERO_POINTS = ("b_zero_point", "a_zero_point")
# The number of an operand beside image and weights, and how it lies.
Source = tuple[int, Beside]

# Bytes of scratch that a block uses: with what it reads and writes they stay in a first cache of 32 KiB.
_NEAR = 24 << 10
# Columns of a block at most: where windows have several rows; where they have one, of few channels.
_WIDE, _WIDEST = 256, 2048
# Sums of a task, some microseconds of work; and groups at least, because +0 is written to scratch once for all of them.
_TASK, _GROUPS = 8192, 4
# An axis that is not there.
_NO_AXIS = Slide(extent=1, kernel=1, stride=1, dilation=1, before=0, out=1)


@dataclass(frozen=True, slots=True)
class _WindowBlock:
    """The windows that a task computes together, and what they look at in scratch.

    Attributes:
        is_flat: Whether its windows are computed as one row.
        rows: Windows along rows.
        columns: Windows along columns.
        phases: The first place of the kernel that looks at each phase of a row of the image.
        pitch: Elements of a row of a phase.
        seen: Rows of a phase.
    """

    is_flat: bool
    rows: int
    columns: int
    phases: tuple[int, ...]
    pitch: int
    seen: int

    @classmethod
    def of(cls, rows: Slide, columns: Slide, planes: int, size: int, lanes: int) -> _WindowBlock:
        """That of such axes.

        Args:    planes: channels of a group times places above rows.   size: bytes of an element in scratch.
        """
        looks = [k * columns.dilation for k in range(columns.kernel)]
        phases = tuple(dict.fromkeys(look % columns.stride for look in looks))
        widest = _WIDE if rows.out > 1 else max(_WIDE, min(_WIDEST, _NEAR // size // planes))
        wide = _even(columns.out, widest, lanes)
        pitch = wide + max(looks) // columns.stride
        reach, each = (rows.kernel - 1) * rows.dilation + 1, planes * len(phases) * pitch
        most = (_NEAR // size - each * (reach - rows.stride)) // (each * rows.stride + pitch)
        # Rows of the image that windows pass by are copied too: where those are by far the most, windows of one row.
        least = TOGETHER if rows.stride <= TOGETHER * reach else 1
        high = _even(rows.out, max(most, least), least)
        is_flat = rows.stride == 1 or high == 1
        return cls(is_flat, high, wide, phases, pitch, (high - 1) * rows.stride + reach)


def _even(count: int, most: int, multiple: int) -> int:
    """The size of parts of at most about so many, all but the last of which are a multiple, or all there is."""
    parts = max(1, -(-count // most))
    each = -(-count // parts)
    return min(max(count, 1), -(-each // multiple) * multiple)


def plan(
    slides: Sequence[Slide], groups: int, chunk: int, epilogue: Expression | None, beside: Sequence[Beside],
    named: Mapping[str, Source], bias_fits: bool, views: tuple[View, ...], isa: Isa,
) -> tuple[Step, int]:  # fmt: skip
    """The step, and its bytes of scratch.

    Args:    beside: the operands of the epilogue of floats.   named: what integers have beside image and weights.
             bias_fits: whether no sum with their bias leaves int32.
    """
    (dtype, x, steps), (weights, w, _), *_, (made, _, goes) = views
    # Axes with one window and one place of the kernel go above the others, so that vectors are along one with several.
    axes = [*zip(map(_near, slides), steps[2:], goes[2:], strict=True), *[(_NO_AXIS, 0, 0)] * (2 - len(slides))]
    axes.sort(key=lambda axis: axis[0].out > 1 or axis[0].kernel > 1)
    *above, (rows, x_row, out_row), (columns, x_column, out_column) = axes
    total = int32 if dtype.is_integer else float64 if dtype is float64 else float32
    size, depth, filters = total.size_bytes, w[1], w[0] // groups
    places_above, windows_above = math.prod(s.kernel for s, _, _ in above), math.prod(s.out for s, _, _ in above)
    block = _WindowBlock.of(rows, columns, depth * places_above, size, isa.lanes)
    sources, zeros = [*enumerate(beside)], [named.get(name) for name in _ZERO_POINTS]
    if dtype.is_integer:
        epilogue, read = _requantised(_kinds(named), bias_fits)
        sources = [named[name] for name in read]
    lying = tuple([_source(y) for _, y in sources])
    finish = Epilogue(total, epilogue, lying, ROW if out_column == 1 else STRIDED, made)
    inner = columns.stride * x_column
    lies = {1: "unit", 2: SECOND if dtype.element_bytes >= 4 or dtype.is_integer else "strided"}.get(inner, "strided")
    spec = WindowChains(dtype, weights, (zeros[0] is not None, zeros[1] is not None), lies, block.is_flat, finish)
    # Vectors that end behind the last window, or lie there, are read and written whole.
    behind = TOGETHER * isa.lanes
    vectors = -(-(depth * places_above * len(block.phases) * block.seen * block.pitch + behind) // isa.lanes)
    sums_pitch = block.pitch if block.is_flat else -(-block.columns // isa.lanes) * isa.lanes
    seen = in_lines(len(block.phases) * PHASE * int64.size_bytes)
    sums = seen + in_lines(vectors * isa.lanes * size)
    each = min(groups, max(_GROUPS, _TASK // (block.rows * block.columns * filters)))
    row_blocks, column_blocks = -(-rows.out // block.rows), -(-columns.out // block.columns)
    arguments: dict[str, int | Operand] = {
        "x0": Operand(X), "w": Operand(W), "row_blocks": row_blocks, "column_blocks": column_blocks, "groups": groups,
        "each": each, "above": windows_above, "block_rows": block.rows, "block_columns": block.columns,
        "rows": rows.out, "columns": columns.out, "depth": depth, "filters": filters, "places_above": places_above,
        "places": math.prod(w[1:]), "chunk": chunk, "row_stride": rows.stride, "column_stride": columns.stride,
        "rows_before": rows.before, "columns_before": columns.before, "height": rows.extent, "width": columns.extent,
        "x0.image": steps[0], "x0.channel": steps[1], "x0.row": x_row, "x0.column": x_column, "x0.inner": inner,
        "seen": seen, "phases": len(block.phases), "seen_rows": block.seen, "pitch": block.pitch, "vectors": vectors,
        "sums": sums, "sums_pitch": sums_pitch, "axes": len(above), "out": Operand(OUT), "out.image": goes[0],
        "out.filter": goes[1], "out_row": out_row, "out_column": out_column, "scratch_s": 0,
    }  # fmt: skip
    arguments["weights"] = scratch = in_lines(sums + (block.rows * sums_pitch + behind) * size)
    for name, source in zip(("zero", "w.zero"), zeros, strict=True):
        if source is not None:
            arguments |= {name: source[1].at(source[0], 0, 0), f"{name}.filter": source[1].filter}
    for i, (number, y) in enumerate(sources):
        arguments |= {f"s{i}": y.at(number, 0, 0), f"s{i}.image": y.image, f"s{i}.filter": y.filter}
        arguments |= {f"s{i}_row": y.window * columns.out, f"s{i}_column": y.window}
    words, between = [*_looks([s for s, _, _ in axes], depth, block), *block.phases], rows.out * columns.out
    for s, x_step, out_step in reversed(above):
        words += [s.out, s.kernel, s.stride, s.dilation, s.before, s.extent, x_step, out_step]
        words += [y.window * between for _, y in sources]
        between *= s.out
    kernel = KernelSpec(window_chains.text, spec, spec.parameters, isa, unroll=False)
    tasks = x[0] * windows_above * -(-groups // each) * row_blocks * column_blocks
    step = Step(kernel, tasks, (*[arguments[name] for name in spec.parameters], *words))
    return step, scratch + (-(-math.prod(w[1:]) // isa.lanes) * isa.lanes * size if weights.is_integer else 0)


def plan_one_window(
    slides: Sequence[Slide], groups: int, named: Mapping[str, Source], views: tuple[View, ...], isa: Isa, threads: int
) -> tuple[Step, ...] | None:
    """The steps of an image of one window, without an epilogue: a map of elements, so that vectors lie along filters.
    None where the window reaches beyond the image."""
    (dtype, x, steps), (kind, w, _), *_, (_, _, goes) = views
    if any(s.before or s.total > s.extent for s in slides):
        return None
    depth, filters, count = w[1], w[0] // groups, math.prod(w[1:])
    shape = x[0], groups, filters
    image, weights = (shape, (steps[0], depth * steps[1], 0)), (shape, (0, filters * count, count))
    result = shape, (goes[0], filters * goes[1], goes[1])
    expression, read = _sum((dtype, kind), count, _kinds(named))
    others = [named[name] for name in read]
    lying = [(shape, (0, filters * y.filter, y.filter)) for _, y in others]
    found = elementwise.plan(expression, (*[image] * count, *[weights] * count, *lying), (result,), isa, threads)
    size, between = dtype.element_bytes, (steps[1], *[s.dilation * x for s, x in zip(slides, steps[2:], strict=True)])
    places = itertools.product(*map(range, w[1:]))
    looks = [sum(at * step for at, step in zip(place, between, strict=True)) for place in places]
    at = [Operand(X, look * size) for look in looks] + [Operand(W, k * kind.element_bytes) for k in range(count)]
    at += [y.at(number, 0, 0) for number, y in others]
    return tuple([step.on(*at, Operand(OUT)) for step in found.steps])


def _kinds(named: Mapping[str, Source]) -> tuple[tuple[str, DType], ...]:
    """The formats of operands by name."""
    return tuple([(name, y.dtype) for name, (_, y) in named.items()])


@functools.lru_cache(maxsize=64)
def _sum(
    kinds: tuple[DType, DType], count: int, named: tuple[tuple[str, DType], ...]
) -> tuple[Expression, tuple[str, ...]]:
    """The sum of so many products, of elements of the image and then of weights, and the operands that it reads beside
    these."""
    chain, known = Chain(), dict(named)
    zeros = [name for name in _ZERO_POINTS if name in known]
    image, weights = ([_taken(chain, dtype) for _ in range(count)] for dtype in kinds)
    points = {name: _taken(chain, known[name]) for name in zeros}
    for values, name in zip((image, weights), _ZERO_POINTS, strict=True):
        if name in points:
            values[:] = [chain.apply("sub", x, points[name]) for x in values]
    zero = chain.constant(0.0, image[0].dtype)
    total = zero
    for w, x in zip(weights, image, strict=True):
        total = chain.apply("fma", w, x, total)
    total = chain.apply("add", total, zero)
    if not kinds[0].is_integer:
        return chain.finish(given(chain, total, kinds[0])), ()
    total, read = _rounded(chain, chain.apply("cast", total, dtype=int32), known, bias_fits=False)
    return chain.finish(total), (*zeros, *read)


def _taken(chain: Chain, dtype: DType) -> ExpressionValue:
    """An input as it is multiplied."""
    return chain.apply("cast", chain.input(dtype), dtype=float32) if dtype.is_integer else taken(chain, dtype)


@functools.lru_cache(maxsize=64)
def _requantised(named: tuple[tuple[str, DType], ...], bias_fits: bool) -> tuple[Expression | None, tuple[str, ...]]:
    """What follows a sum of integers, and the operands that it reads."""
    chain = Chain()
    total, read = _rounded(chain, chain.input(int32), dict(named), bias_fits)
    return chain.finish(total) if read else None, read


def _rounded(
    chain: Chain, total: ExpressionValue, known: Mapping[str, DType], bias_fits: bool
) -> tuple[ExpressionValue, tuple[str, ...]]:
    """A sum of integers as the result has it, rounded once where that has a scale, and the operands that this reads."""
    if "out_scale" not in known:
        return total, ()
    read = tuple([name for name in REQUANTISING if name in known])
    operands = [chain.input(known[name]) for name in read]
    if "bias" in read and bias_fits:
        total = chain.apply("add", total, operands.pop(0))
    return chain.apply("requantize_sum" if len(operands) == len(REQUANTISING) else "requantize", total, *operands), read


def _source(y: Beside) -> tuple[str, bool, DType]:
    """An operand of the epilogue as that has it."""
    return {0: REPEATED, 1: ROW}.get(y.window, STRIDED), y.window == 0, y.dtype


def _near(axis: Slide) -> Slide:
    """The axis with no longer steps than from the first window to behind the image, where everything reads as +0."""
    far = max(axis.before + axis.extent, 1)
    return replace(axis, stride=min(axis.stride, far), dilation=min(axis.dilation, far))


def _looks(slides: Sequence[Slide], depth: int, block: _WindowBlock) -> list[int]:
    """How far on in scratch each place of the kernel looks, in the order of the sum."""
    *above, rows, columns = slides
    outer, channel = math.prod(s.kernel for s in above), list[int]()
    plane = len(block.phases) * block.seen * block.pitch
    for place, row, column in itertools.product(*map(range, (outer, rows.kernel, columns.kernel))):
        on, phase = divmod(column * columns.dilation, columns.stride)
        line = block.phases.index(phase) * block.seen + row * rows.dilation
        channel.append(place * depth * plane + line * block.pitch + on)
    return [number * plane + look for number in range(depth) for look in channel]
