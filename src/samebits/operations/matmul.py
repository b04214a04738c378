"""The operation `contract`: matrix products (numerics.md sections 2 to 4).

Start at `MatrixProduct`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeVar

import numpy as np

from samebits import dtypes
from samebits.dtypes import DType, float32, float64, int8, int64, uint8
from samebits.errors import ShapeError
from samebits.frozen import dataclass, replace
from samebits.kernels import elementwise, spread, values
from samebits.kernels.expression import Chain, Expression
from samebits.kernels.gemm import engine as engines
from samebits.kernels.gemm import selection
from samebits.kernels.gemm.contraction import Contraction, Matrix, Shared, Side, Windows
from samebits.kernels.gemm.engine import Engine
from samebits.kernels.gemm.packed import PackedFacts, size_elements
from samebits.kernels.gemm.panels import panel_columns, plan_pack
from samebits.kernels.gemm.plan import plan as plan_contraction
from samebits.kernels.gemm.reference import product
from samebits.kernels.plan import Operand, Plan, chained
from samebits.layout import Layout
from samebits.operations import dim
from samebits.operations.axes import Axes, aligned
from samebits.operations.elementwise import check_dtypes, plan_map, single, text
from samebits.operations.fact import Fact, dense
from samebits.operations.lying import Lying
from samebits.operations.operation import Array, Filling, KeptConstant, Known, Operation, PlanTarget, Shape, View
from samebits.operations.product import PLAIN, Options, activation, describe
from samebits.operations.sharing import VALUES, Block
from samebits.operations.strided import dense_strides
from samebits.operations.views import text as sizes_text

__all__ = ["ROWS", "MatrixProduct", "plan_product"]

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class MatrixProduct:
    """Matrix product over the last axis of the first operand and the last but one of the second.

    Attributes:
        epilogue: Its input 0 is the product, which is float32 then; further operands broadcast to it. None is the
            product itself.
        names: What each operand is, a and b first, by the names that `product.describe` has for them; those of the
            epilogue follow.
        options: What the product does beside multiplying.
        packed: The second operand where it is in panels already; None where it is a matrix.
    """

    epilogue: Expression | None = None
    names: tuple[str, ...] = ("a", "b")
    options: Options = PLAIN
    packed: PackedFacts | None = None

    def __str__(self) -> str:
        given = ["product", *([f"of {', '.join(self.names)}"] if self.names[2:] else [])]
        given += [f"with {self.options}"] if self.options != PLAIN else []
        return ("" if given == ["product"] and self.epilogue else " ".join(given)) + (
            text(self.epilogue) if self.epilogue else ""
        )


def _infer(attributes: MatrixProduct, facts: Sequence[Fact]) -> tuple[Fact, ...]:
    named, extras = _named(attributes, facts)
    a, b, epilogue = named["a"], named["b"], attributes.epilogue
    if a.rank < 2 or b.rank < 2:
        raise ShapeError("matmul", "operands", "ranks", f"{a.rank} and {b.rank}", "at least 2", "reshape them")
    inner = a.shape[-1], b.shape[-2]
    if dim.are_known(*inner) and inner[0] != inner[1]:
        actual = f"{sizes_text(a.shape)} and {sizes_text(b.shape)}"
        raise ShapeError("matmul", "operands", "shapes", actual, "equal in K", "transpose one, or check the weights")
    dtype = _dtype(attributes, named, inner[0] if dim.are_known(inner[0]) else inner[1])
    check_dtypes(
        "matmul",
        () if epilogue is None else epilogue.inputs,
        () if epilogue is None else (Fact(dtype, (), ()), *extras),
    )
    shape = (*dim.broadcast_shapes([a.shape[:-2], b.shape[:-2]]), a.shape[-2], b.shape[-1])
    for name in ("c", "bias"):
        if name in named and dim.broadcast_shapes([shape, named[name].shape]) != shape:
            expected = f"one that broadcasts to {sizes_text(shape)}"
            raise ShapeError("matmul", name, "shape", sizes_text(named[name].shape), expected, "reshape it")
    if dim.broadcast_shapes([shape, *[extra.shape for extra in extras]]) != shape:
        raise ShapeError(
            "matmul", "epilogue operands", "shapes", [str(e) for e in extras], f"within {shape}", "expand a"
        )
    return (dense(dtype if epilogue is None else epilogue.dtype(epilogue.outputs[0]), shape),)


def _named(attributes: MatrixProduct, operands: Sequence[_T]) -> tuple[dict[str, _T], Sequence[_T]]:
    """The operands of the product by name, and those of the epilogue."""
    count = len(attributes.names)
    return dict(zip(attributes.names, operands, strict=False)), operands[count:]


def _dtype(attributes: MatrixProduct, named: Mapping[str, Fact], k: dim.Size) -> DType:
    """The dtype of the product, which follows from dtypes and options, and of integers from whether K is short.

    Where sizes are not known yet it is that of a small product of the same operands, so that what no sizes make one is
    refused at once. An unknown K is taken as short; what then is long has another dtype when sizes are bound, and is
    refused by what reads it.
    """
    if all(type(size) is int for fact in named.values() for size in fact.shape):
        lies: dict[str, Any] = {
            name: Lying.dense(fact.dtype, dim.bind_shape(fact.shape, {})) for name, fact in named.items()
        }
        return describe("matmul", options=attributes.options, **lies).dtype
    options = attributes.options
    left = options.a_dtype or named["a"].dtype
    kinds = left, named["b"].dtype
    is_long = False
    if kinds[0].is_integer and kinds[1].is_integer and not isinstance(k, dim.Dim):
        shifted = "a_zero_point" in named, "b_zero_point" in named
        is_long = engines.total_of(*kinds, k, shifted) is int64
    small = engines.LONGEST if is_long else 1
    given = dict[str, Any]()
    for name, fact in named.items():
        shape: Shape = {"a": (2, small), "b": (small, 3)}.get(name, ())
        if name in ("alpha", "beta"):
            shape = (1,) * fact.rank
        group = options.a_group if name == "a_scale" else options.b_group
        if name == "a_scale" and group is not None and fact.rank > 1:
            shape = (-(-2 // group.lines), -(-small // group.size))
        if name in ("b_scale", "b_zero_point") and group is not None and fact.rank > 1:
            shape = (-(-small // group.size), -(-3 // group.lines))
        given[name] = Lying.dense(fact.dtype, shape)
    return describe("matmul", options=options, **given).dtype


def _reference(attributes: MatrixProduct, arrays: Sequence[Array]) -> tuple[Array, ...]:
    named, extras = _named(attributes, arrays)
    options, given = attributes.options, dict(named)
    facts = [dense(dtypes.of(x.dtype), x.shape) for x in arrays]
    result = _dtype(attributes, _named(attributes, facts)[0], given["a"].shape[-1])
    t = product(
        given.pop("a"), given.pop("b"), result, spec=options.spec, groups=(options.a_group, options.b_group),
        a_dtype=options.a_dtype,
        activation=None if options.activation is None else activation(options.activation), **given,
    )  # fmt: skip
    return (t,) if attributes.epilogue is None else tuple(values.reference(attributes.epilogue, [t, *extras]))


def _axes(attributes: MatrixProduct, facts: Sequence[Fact]) -> Axes:
    """K and its blocks are read whole; scales and zero points of rows and columns follow these."""
    named, extras = _named(attributes, facts)
    a, b = named["a"].rank, named["b"].rank
    rank = max(a, b)
    (left,), (right,) = aligned([named["a"]], rank, [rank - 1]), aligned([named["b"]], rank, [rank - 2])
    others = list[tuple[int | None, ...]]()
    for name, fact in list(named.items())[2:]:
        if name in ("c", "bias"):
            others += aligned([fact], rank)
        elif name.startswith("a_"):
            others.append(_line_axes(fact.rank, a, rank, rank - 2, attributes.options.a_group))
        else:
            own = b if name.startswith("b_") else 2
            others.append(_line_axes(fact.rank, own, rank, rank - 1, attributes.options.b_group))
    return Axes((left, right, *others, *aligned(extras, rank)))


def _line_axes(own: int, operand: int, rank: int, lines: int, group: Block | None) -> tuple[int | None, ...]:
    """What the axes of a scale or zero point follow, one for each line of an operand: those of the result are `lines`.

    Args:    own: its rank: with the axis of K that of the operand, which is read whole; else less.
             group: blocks of it, which are read whole where they are of several lines.
    """
    batch = range(rank - 2)
    if own < operand:
        return (*batch[len(batch) - max(own - 1, 0) :], *((lines,) if own else ()))
    front = batch[len(batch) - (own - 2) :]
    along = None if group is not None and group.lines > 1 else lines
    return (*front, along, None) if lines == rank - 2 else (*front, None, along)


def plan_product(
    attributes: MatrixProduct, views: tuple[View, ...], target: PlanTarget, windows: Windows | None = None,
    engine: str | None = None,
) -> Plan:  # fmt: skip
    """One product.

    Args:    windows: how its second operand lies, if its columns are windows of an image; its view says then how far
                batches are apart.   engine: the one that it is to run on.
    """
    *inputs, out = views
    named, extras = _named(attributes, inputs)
    packed, as_values = attributes.packed, list[str]()
    right = packed.dtype if packed else inputs[1][0]
    if attributes.names == ("a", "b") and attributes.options == PLAIN and inputs[0][0] is right is float32:
        contraction, order = _plain(packed, named["a"], named["b"], out), ["a", "b"]
    else:
        lies: dict[str, Any] = {name: _lying(view) for name, view in named.items()}
        lies |= {"b": packed} if packed else {}
        dtype = float32 if attributes.epilogue else out[0]
        found = describe("matmul", options=attributes.options, **lies, out=_lying((dtype, *out[1:])))
        contraction, order = found.contraction, [x.name for x in found.operands]
        as_values = [x.name for x in found.operands if x.form == VALUES]
    if windows is not None:
        assert isinstance(contraction.b.values, Matrix)  # it is no panels
        slid = replace(contraction.b.values, row=0, column=1, windows=windows)
        contraction = replace(contraction, b=replace(contraction.b, values=slid))
    if attributes.epilogue is not None:
        contraction = _followed(contraction, attributes.epilogue, [_matrix(view, out[1]) for view in extras], out)
    threads = target.sized(contraction.work, "products")
    plan = plan_contraction(contraction, target.isa, threads, engine=engine, machine=target.machine)
    places = [attributes.names.index(name) for name in order]
    if places != sorted(places):
        places += range(len(places), plan.workspace + 1)
        steps = tuple(step.on(*map(Operand, places)) for step in plan.steps)
        plan = replace(plan, steps=steps, operands=(*attributes.names, *plan.operands[len(order) :]))
    for name in as_values:
        plan = _valued(plan, attributes.names.index(name), named[name])
    return plan


def _valued(plan: Plan, number: int, view: View) -> Plan:
    """A plan whose operand of that number, integers of fewer than 8 bits, is made integers of 8 bits first."""
    dtype, shape, strides = view
    widened = single("cast", dtype, cast_to=int8 if dtype.kind == "int" else uint8)
    layouts = ((shape, strides),), ((shape, dense_strides(shape)),)
    first = elementwise.plan(widened, *layouts, plan.isa, plan.threads)
    return spread.reading(plan, number, first, math.prod(shape))


def _plain(packed: PackedFacts | None, a: View, b: View, out: View) -> Contraction:
    """A product of float32 alone, what `describe` says of it without asking."""
    *batch, m, n = out[1]
    outer, k = tuple(batch), a[1][-1]
    right = packed.panels(outer) if packed else _matrix(b, (*outer, k, n))
    return Contraction(m, n, k, Side(_matrix(a, (*outer, m, k))), Side(right), Side(_matrix(out, out[1])), outer)


def _followed(c: Contraction, expression: Expression, extras: Sequence[Matrix], out: View) -> Contraction:
    """c with an expression of its result and of extras as what is stored."""
    lies = replace(c.out.values, dtype=out[0])
    return replace(
        c, epilogue=_both(c.epilogue, expression), sources=(*c.sources, *extras), out=replace(c.out, values=lies)
    )


@functools.lru_cache(maxsize=1024)
def _both(own: Expression | None, then: Expression) -> Expression:
    """The epilogue of a product, and then an expression of its result and of further inputs."""
    chain = Chain()
    inputs = [chain.input(dtype) for dtype in (own.inputs if own else (float32,))]
    value = chain.include(own, *inputs)[0] if own else inputs[0]
    further = [chain.input(dtype) for dtype in then.inputs[1:]]
    return chain.finish(*chain.include(then, value, *further))


def _lying(view: View) -> Lying:
    """A view as the description takes it; narrow elements have a byte each."""
    dtype, shape, strides = view
    storage: Literal["packed", "padded"] = "packed" if dtype.width_bits % 8 == 0 else "padded"
    return Lying(dtype, Layout.from_strides(shape, strides, width_bits=dtype.width_bits, storage=storage))


def _matrix(view: View, shape: Shape) -> Matrix:
    """A view as a matrix of that shape, repeated where its own extent is 1."""
    dtype, own, strides = view
    if own == shape and 1 not in shape:
        return Matrix(strides[-2], strides[-1], strides[:-2], dtype)
    padded = (0,) * (len(shape) - len(own)) + tuple(
        [0 if extent == 1 else stride for extent, stride in zip(own, strides, strict=True)]
    )
    return Matrix(padded[-2], padded[-1], padded[:-2], dtype)


def _keep(
    attributes: MatrixProduct, kinds: Sequence[DType], known: Mapping[int, Known], target: PlanTarget
) -> KeptConstant | None:
    """A right operand that is known and has no batches is packed once, as `pack` would for the left one's elements,
    with the scales and zero points of its blocks where these are known too.

    It stays a matrix where blocks along K share what its panels could not be multiplied with, and where its words
    would take much more memory than its elements.
    """
    b, options = known.get(1), attributes.options
    if b is None or len(b.shape) != 2 or 0 in b.shape:
        return None
    scaled = _keep_scaled(attributes, b, kinds, known, target)
    if scaled is not None:
        return scaled
    left = options.a_dtype or kinds[0]
    engine = _blocks_engine(left, kinds[1], b.shape, attributes, target) or _packing_engine(
        left, kinds[1], attributes, target
    )
    if engine is None:
        return None
    facts = PackedFacts(b.shape, panel_columns(target.isa, engine, target.machine), kinds[1], engine.name)
    key = "panels", engine.name, facts.nr

    def make(empty: Callable[..., Array]) -> Array:
        from samebits.kernels.gemm import kept  # as below: which kernels take the place of, where weights are large

        return kept.panels(b.values(), engine, facts.nr, empty)

    def filling() -> Filling:
        return _filling(b, engine, options.a_dtype or kinds[0], kinds[1], target)

    is_large = target.isa.compiled and math.prod(b.shape) >= _LARGE
    return KeptConstant(replace(attributes, packed=facts), 1, key, make, filling if is_large else None)


# Elements from which a constant is packed by kernels: 590,000 of codes and scales take NumPy 3 ms and kernels 0.6.
_LARGE = 1 << 17


def _filling(b: Known, engine: Engine, left: DType, right: DType, target: PlanTarget) -> Filling:
    """How kernels pack a right operand; one that is not in memory is made in the workspace first."""
    source = b.source
    known = (b.values(),) if source is None else source.operands
    arrays = tuple([np.require(x, requirements=("C", "A")) for x in known])
    views = tuple([(dtypes.of(x.dtype), x.shape, dense_strides(x.shape)) for x in arrays]) if source else ()
    plan = _packing_plan(b.shape, engine, left, right, target, source and source.attributes, views)
    k, n = b.shape
    size = size_elements(k, n, panel_columns(target.isa, engine, target.machine), engine)
    return Filling(plan, arrays, size, engine.word)


@functools.lru_cache(maxsize=1024)
def _packing_plan(
    shape: Shape, engine: Engine, left: DType, right: DType, target: PlanTarget, source: Any, views: tuple[View, ...]
) -> Plan:
    """How a dense matrix is packed, or what the map `source` makes of operands that lie so."""
    made: View = right, shape, dense_strides(shape)
    matrix, isa, threads = _matrix(made, shape), target.isa, target.threads
    plan = plan_pack(shape[0], shape[1], matrix, isa, threads, (), engine, left, target.machine)
    if source is None:
        return plan
    first = plan_map(source, (*views, made), target)
    return chained(first, plan, math.prod(shape) * right.element_bytes)


def _keep_scaled(
    attributes: MatrixProduct, b: Known, kinds: Sequence[DType], known: Mapping[int, Known], target: PlanTarget
) -> KeptConstant | None:
    """A weight of at most 8 bits with the scales of its blocks, beside floats; None where it is no such, or where not
    all of it is known."""
    options, names = attributes.options, attributes.names
    group, left, right, (k, n) = options.b_group, options.a_dtype or kinds[0], kinds[1], b.shape
    within = tuple(i for i, name in enumerate(names) if name in ("b_scale", "b_zero_point"))
    is_weight = left.is_float and left is not float64 and right.width_bits <= 8 and options.a_group is None
    if group is None or "b_scale" not in names or not is_weight or not known.keys() >= set(within):
        return None
    blocks = -(-k // group.size), -(-n // group.lines)
    has_zeros = "b_zero_point" in names
    engine = engines.of_coded(right, has_zeros, k)
    if any(known[i].shape != blocks for i in within) or engine is None:
        return None
    scale = engine.kept_scale(kinds[names.index("b_scale")])
    nr = panel_columns(target.isa, engine, target.machine)
    facts = PackedFacts((k, n), nr, right, engine.name, group.size, scale)
    own = {names[i]: known[i] for i in within}

    def make(empty: Callable[..., Array]) -> Array:
        from samebits.kernels.gemm import kept

        values = {name: x.values() for name, x in own.items()}
        return kept.scaled_panels(
            b.values(), engine, nr, group, scale, values["b_scale"], values.get("b_zero_point"), empty
        )  # fmt: skip

    others = tuple(name for i, name in enumerate(names) if i not in within)
    made = replace(attributes, names=others, options=replace(options, b_group=None), packed=facts)
    return KeptConstant(made, 1, ("scaled panels", engine.name, nr, group), make, within=within)


def _blocks_engine(
    left: DType, right: DType, shape: Shape, attributes: MatrixProduct, target: PlanTarget
) -> Engine | None:
    """What sums blocks that both sides scale, and packs a right operand [K, N] for that; None where nothing does."""
    options, (k, n) = attributes.options, shape
    zeros = {"a_zero_point", "b_zero_point"} & {*attributes.names}
    if options.a_group is None or options.b_group is None or zeros:
        return None
    a, b = (
        Side(Matrix(row, 1, (), dtype), Shared(Matrix(1, 1), group.size, group.lines))
        for dtype, row, group in ((left, k, options.a_group), (right, n, options.b_group))
    )
    c = Contraction(1, n, k, a, b, Side(Matrix(n, 1)), spec=options.spec)
    engine = selection.of_operands(c, target.isa, target.machine, None, None)[0]
    return engine if engine.sums_blocks else None


def _packing_engine(left: DType, right: DType, attributes: MatrixProduct, target: PlanTarget) -> Engine | None:
    """What packs a right operand for these elements; None where it is better not packed."""
    options = attributes.options
    if right.width_bits < 8:
        return None
    if right.is_integer and left.is_float and left is not float64:
        if "b_zero_point" in attributes.names:
            return None  # it would leave the elements as they are packed
        return engines.of_weights(right, has_zeros=False)
    engine = selection.packer_for(left, right, target.isa, target.machine, options.spec)
    groups = [group for group in (options.a_group, options.b_group) if group is not None]
    if groups and (engine.exact or any(group.size % engine.depth for group in groups)):
        return None
    # A product of one row reads each word once: words twice as wide are still faster than converting both operands (one
    # thread of AVX2, K = N = 2048, time without over with: int8 2.5), but not than converting only b.
    most = right.width_bits * (2 if left.width_bits == right.width_bits else 1)
    return engine if engine.word.width_bits <= engine.depth * most else None


ROWS: tuple[Operation, ...] = (Operation("contract", _infer, _reference, _axes, plan=plan_product, keep=_keep),)
