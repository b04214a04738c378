"""Random fusions of mixed formats, strides, broadcasts and reductions: their bits are those of the operations one by
one, of NumPy and of every Isa row; and packed inputs of every stride order are the unpacked ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import rows
from drawing import examples
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import samebits as sb
from samebits.codegen.isa import Isa
from samebits.fusion import DataType, FusionDefinition, FusionExecutorCache, TensorView
from samebits.fusion.lowering import lowered
from samebits.runtime import cpu

F32 = np.float32
FLOATS = [DataType.Float, DataType.Float, DataType.BFloat16, DataType.Half, DataType.Double, DataType.Float8_e4m3fn]
INTEGERS = [DataType.Int32, DataType.Int, DataType.UInt8, DataType.Int8, DataType.Bool]
NARROW = [DataType.Float4_e2m1fn, DataType.Float6_e3m2fn, DataType.Int4]
EXTENTS = [2, 3, 5, 16, 17, 40, 70]
ODD = np.array([0.0, -0.0, 1e-42, np.inf, -np.inf, np.nan, 3e38, -2.5])
UNARY = ["neg", "abs", "relu", "exp", "sqrt", "reciprocal", "sigmoid", "trunc", "isnan", "silu"]
BINARY = ["add", "sub", "mul", "div", "truediv", "minimum", "maximum", "lt", "eq", "pow"]


class Graph:
    """A fusion as it is drawn, and arrays to run it on."""

    def __init__(self, draw: st.DrawFn) -> None:
        self.draw, self.arrays = draw, list[Any]()
        # Which axes of the whole shape each value has, in its order: what has other ones does not fit.
        self.axes_of: dict[TensorView, tuple[int, ...]] = {}
        self.rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
        self.extents = draw(st.lists(st.sampled_from(EXTENTS), min_size=1, max_size=3))
        with FusionDefinition() as self.fd:
            self.values = [self.input(k == 0) for k in range(draw(st.integers(1, 4)))]
            first = len(self.values)
            for _ in range(draw(st.integers(1, 10))):
                self.values += draw(st.sampled_from(self.steps()))()
            made = self.values[first:] or self.unary()
            for x in dict.fromkeys([made[-1], *draw(st.lists(st.sampled_from(made), max_size=3))]):
                self.fd.add_output(x)

    def pick(self, among: list[Any]) -> Any:
        """One of several."""
        return self.draw(st.sampled_from(among))

    def input(self, whole: bool) -> TensorView:
        """A tensor: of some format, repeated along some axes, its elements lying in some way."""
        dtype = self.pick(FLOATS + INTEGERS + NARROW)
        kept = [whole or self.draw(st.booleans()) for _ in self.extents]
        shape = tuple(extent if keep else 1 for extent, keep in zip(self.extents, kept, strict=True))
        self.arrays.append(self.laid(self.elements(shape, dtype)))
        sizes = [-1 if keep and self.draw(st.booleans()) else size for size, keep in zip(shape, kept, strict=True)]
        contiguity = [None if size == 1 else True for size in sizes]
        x = self.fd.define_tensor(sizes, contiguity, dtype)
        self.axes_of[x] = tuple(range(x.ndim))
        return x

    def elements(self, shape: tuple[int, ...], dtype: DataType) -> Any:
        """Numbers of a format, here and there an odd one."""
        to = sb.dtype(sb.fusion.datatypes.row_of("test", "input", dtype).name).numpy
        x = self.rng.standard_normal(shape) * 3
        if to.kind in "iub" or dtype is DataType.Int4:
            return np.abs(x).astype(np.int64).astype(to) if to.kind in "ub" else x.astype(np.int64).astype(to)
        x[self.rng.random(shape) < 0.05] = self.rng.choice(ODD)
        if dtype in NARROW:
            x = np.nan_to_num(x, posinf=1, neginf=-1).clip(-4, 4)
        with np.errstate(all="ignore"):
            return x.astype(F32).astype(to) if to.kind != "f" else x.astype(to)

    def laid(self, x: Any) -> Any:
        """The same elements with other strides: turned, every other one of more, backwards."""
        way = self.pick(["dense", "turned", "apart", "backwards"])
        if way == "turned":
            return np.ascontiguousarray(x.transpose()).transpose()
        if way == "apart":
            wide = np.zeros((*x.shape[:-1], 2 * x.shape[-1]), x.dtype)
            wide[..., ::2] = x
            return wide[..., ::2]
        return np.ascontiguousarray(x[..., ::-1])[..., ::-1] if way == "backwards" else x

    # -- steps: each gives what it made ------------------------------------------------------------------------------
    def steps(self) -> list[Callable[[], list[TensorView]]]:
        """What may come next; reductions and what goes with them more often than one in nine."""
        return [self.unary, self.binary, self.binary, self.where, self.cast, self.reduced, self.reduced, self.moments,
                self.normal, self.turned]  # fmt: skip

    def named(self, axes: tuple[int, ...], *made: TensorView) -> list[TensorView]:
        """Values, which have these axes."""
        self.axes_of.update(dict.fromkeys(made, axes))
        return list(made)

    def number(self, axes: tuple[int, ...] | None = None) -> tuple[TensorView, tuple[int, ...]]:
        """A tensor of numbers, and its axes; of those with these axes."""
        x = self.pick([x for x in self.values if axes in (None, self.axes_of[x])])
        return self.fd.ops.cast(x, DataType.Int32) if x.dtype is DataType.Bool else x, self.axes_of[x]

    def wide(self, axes: tuple[int, ...] | None = None) -> tuple[TensorView, tuple[int, ...]]:
        """A tensor of Float or Double, and its axes."""
        x, axes = self.number(axes)
        return x if x.dtype in (DataType.Float, DataType.Double) else self.fd.ops.cast(x, DataType.Float), axes

    def unary(self) -> list[TensorView]:
        x, axes = self.wide()
        return self.named(axes, getattr(self.fd.ops, self.pick(UNARY))(x))

    def binary(self) -> list[TensorView]:
        x, axes = self.wide()
        y = self.pick([lambda: self.wide(axes)[0], lambda: 0.5, lambda: -2.0])()
        return self.named(axes, getattr(self.fd.ops, self.pick(BINARY))(x, y))

    def where(self) -> list[TensorView]:
        x, axes = self.wide()
        y, _ = self.wide(axes)
        return self.named(axes, self.fd.ops.where(self.fd.ops.gt(x, y), x, y))

    def cast(self) -> list[TensorView]:
        x, axes = self.wide()
        return self.named(axes, self.fd.ops.cast(x, self.pick(FLOATS + INTEGERS[:2])))

    def some(self, x: TensorView) -> list[int]:
        """Some axes, at least one of those that there are."""
        found = [axis for axis in range(x.ndim) if self.draw(st.booleans())]
        return found or [x.ndim - 1][: x.ndim]

    def reduced(self) -> list[TensorView]:
        x, axes = self.number()
        op = self.pick(["sum", "sum", "max", "min", "prod"])
        if op == "prod" or x.dtype in NARROW:
            x = self.fd.ops.cast(x, DataType.Float)
        return self.over(x, axes, lambda dims, keep: [getattr(self.fd.ops, op)(x, dims, keep)])

    def moments(self) -> list[TensorView]:
        x, axes = self.wide()
        correction = self.pick([0, 1])
        return self.over(x, axes, lambda dims, keep: list(self.fd.ops.var_mean(x, dims, correction, keep)))

    def over(
        self, x: TensorView, axes: tuple[int, ...], reduce: Callable[[list[int], bool], list[TensorView]]
    ) -> list[TensorView]:
        """What reduces x along some axes, which stay or go."""
        dims, keep = self.some(x), self.draw(st.booleans())
        if not dims:
            return []
        left = axes if keep else tuple(axis for place, axis in enumerate(axes) if place not in dims)
        return self.named(left, *reduce(dims, keep))

    def normal(self) -> list[TensorView]:
        """A softmax, or a difference from the mean, step by step."""
        (x, axes), ops = self.wide(), self.fd.ops
        dims = self.some(x)
        if not dims:
            return []
        if self.draw(st.booleans()):
            e = ops.exp(ops.sub(x, ops.max(x, dims, True)))
            return self.named(axes, e, ops.truediv(e, ops.sum(e, dims, True)))
        mean = ops.mul(ops.sum(x, dims, False), 0.125)
        return self.named(axes, ops.sub(x, ops.broadcast(mean, [axis in dims for axis in range(x.ndim)])))

    def turned(self) -> list[TensorView]:
        x = self.pick(self.values)
        order = self.draw(st.permutations(list(range(x.ndim))))
        return self.named(tuple(self.axes_of[x][place] for place in order), self.fd.ops.permute(x, order))


def bits(x: Any) -> tuple[Any, ...]:
    """Shape, format and elements."""
    array = np.ascontiguousarray(x)
    return array.shape, array.dtype, array.tobytes()


def check(graph: Graph, compiled: Sequence[Isa]) -> None:
    """What runs has the bits of the NumPy meaning, fused and not, on these rows and interpreted."""
    fusion = graph.fd.fusion
    due: list[Any] | None = None
    for row in (*compiled, *(row for row in rows.ALL_ROWS if not row.compiled)):
        with sb.use_isa(row.name):
            executor = FusionExecutorCache(fusion)
            made = [bits(x) for x in executor.execute(graph.arrays)]
            if due is None:
                due = [bits(x) for x in executor.visible(executor.reference(graph.arrays), graph.arrays)]
                unfused = cpu.prepare(lowered(fusion, {}, {}), fuse=False)
                names = [f"T{x.name}" for x in fusion.inputs]
                alone = unfused.run(dict(zip(names, graph.arrays, strict=True)))
                assert [bits(x) for x in executor.visible(list(alone.values()), graph.arrays)] == due, (
                    row.name,
                    graph.fd,
                )
            assert made == due, (row.name, graph.fd)


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """Any graph."""
    return Graph(draw)


def checked_once(drawn: settings) -> settings:
    """What fails is not drawn smaller: its kernels would be compiled again and again."""
    return settings(drawn, suppress_health_check=list(HealthCheck), phases=(Phase.generate,))


@checked_once(examples(60))
@given(graphs())
def test_random_fusions_have_the_bits_of_their_operations(graph: Graph) -> None:
    """Each on a row that it decides: to compile it for all takes long."""
    check(graph, [rows.COMPILED_ROWS[int(graph.rng.integers(len(rows.COMPILED_ROWS)))]])


@pytest.mark.exhaustive
@checked_once(settings(max_examples=2000))
@given(graphs())
def test_two_thousand_random_fusions_have_the_bits_of_their_operations_on_every_row(graph: Graph) -> None:
    check(graph, rows.COMPILED_ROWS)
