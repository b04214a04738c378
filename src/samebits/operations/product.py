"""Matrix products described: from facts and options alone to a contraction, what its plan reads, and what it makes.

`describe` is pure and cached: `matmul`, `linear`, the gradients and a program's products are all described here, and
refused here. It knows no memory: what depends on where arrays lie, its callers look at. Start at `describe`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from samebits import dtypes, elements
from samebits.dtypes import DType
from samebits.errors import OptionError, PlanError, ShapeError, shown
from samebits.frozen import dataclass, replace
from samebits.kernels import activations, composites
from samebits.kernels.expression import Expression
from samebits.kernels.gemm import engine as engines
from samebits.kernels.gemm import quantize
from samebits.kernels.gemm.contraction import (
    LINE,
    SB1,
    TENSOR,
    Contraction,
    Immediate,
    Matrix,
    Panels,
    Shared,
    Side,
    Source,
    Spec,
    fused,
    requantized,
)
from samebits.kernels.gemm.packed import PackedFacts
from samebits.layout import Shape
from samebits.operations import sharing
from samebits.operations.elementwise import single
from samebits.operations.factors import BYTES, HALVES, Factors, factors
from samebits.operations.lying import Lying, Number, check_dtype, check_shape, dense, matrix
from samebits.operations.names import MATMUL, Names
from samebits.operations.sharing import AS_IT_LIES, IN_BYTES, Block, Lines, Parameter, ProductOperand
from samebits.tape import cached

# Each makes an expression of one float32 value.
ACTIVATIONS: Mapping[str, Callable[[], Expression]] = MappingProxyType({
    **{name: functools.partial(single, name, dtypes.float32) for name in ("erf", "exp", "sigmoid", "tanh")},
    "gelu": composites.gelu, "gelu_tanh": composites.gelu_tanh, "relu": composites.relu, "silu": activations.silu,
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class Options:
    """What a product does beside multiplying; `matmul` says what each is. `accumulates`: out's sums go on.
    `bias_fits`: no sum of the product with an int32 bias leaves int32, as who has its numbers knows.

    Groups may be given as `matmul` takes them, an int or a pair; they become blocks.

    Raises:  OptionError if a group is neither.
    """

    spec: Spec = SB1
    activation: str | None = None
    a_group: Block | None = None
    b_group: Block | None = None
    a_dtype: DType | None = None
    out_dtype: DType | None = None
    accumulates: bool = False
    bias_fits: bool = False

    def __post_init__(self) -> None:
        for name, lines_first in (("a_group", True), ("b_group", False)):
            object.__setattr__(self, name, sharing.block_of("matmul", name, getattr(self, name), lines_first))


PLAIN = Options()


@dataclass(frozen=True, slots=True)
class ProductDescription:
    """What a product is.

    `operands`: the plan's in its order, but for the last, which is the result.   `shape`, `dtype`: those of the result;
    it is [..., M, N] without the axes that vectors lack.
    """

    contraction: Contraction
    operands: tuple[ProductOperand, ...]
    shape: Shape
    dtype: DType


@cached(4096)
def describe(
    call: str, a: Lying, b: Lying | PackedFacts, options: Options = PLAIN, names: Names = MATMUL, *,
    a_scale: Lying | Number | None = None, b_scale: Lying | Number | None = None,
    a_global_scale: Lying | Number | None = None, b_global_scale: Lying | Number | None = None,
    a_zero_point: Lying | int | None = None, b_zero_point: Lying | int | None = None,
    out_scale: Lying | Number | None = None, out_zero_point: Lying | int | None = None,
    c: Lying | None = None, bias: Lying | None = None, alpha: Lying | Number | None = None,
    beta: Lying | Number | None = None, out: Lying | None = None, in_place: bool = False,
) -> ProductDescription:  # fmt: skip
    """The product of a and b, as `matmul` documents it.

    Args:    call, names: the function, and what it calls these arguments, in errors.
             out: what takes the result; default new memory.   in_place: it is c or bias, element on element.
    Raises:  DTypeError, ShapeError, OptionError, PlanError, LayoutError: what cannot be one, in the caller's words.
    """
    x = factors(call, names, a, b, options.a_dtype, options.a_group is not None)
    blocks = sharing.by_block_of_a(call, names, x.rows, a_scale, options.a_group)
    left = dtypes.float32 if blocks else x.a.dtype  # integers in blocks are numbers like floats
    blocks |= sharing.by_block(call, names, x.columns, b_scale, b_zero_point, options.b_group, left, x.b)
    kept = ("b_scale",) if isinstance(x.b, Panels) and x.b.block else ()
    if blocks or kept:
        x = replace(x, by_block=(*blocks, *kept))
        _check_blocks(x)
    zeros = _zero_points(x, a_zero_point, None if "b_zero" in blocks else b_zero_point)
    if x.is_exact:
        shifted = "a_zero" in zeros, "b_zero" in zeros
        x = replace(x, total=engines.total_of(x.a.dtype, x.b.dtype, x.k, shifted))
    scales = _scales(x, *(None if f"{side}_scale" in blocks else y for side, y in (("a", a_scale), ("b", b_scale))))
    scales |= _global_scales(x, a_global_scale, b_global_scale)
    requantised = _requantised(x, out_scale, out_zero_point, options, len(scales))
    taken = blocks | zeros | scales | requantised
    added = {name: lying for name, lying in (("c", c), ("bias", bias)) if lying is not None}
    multiplied = _multipliers(x, alpha, beta)
    if "beta" in multiplied and c is None:
        raise OptionError(x.call, "beta", "", "given without c", "left out", "pass c too")
    result = _result(x, added, options, [*multiplied], len(scales), bool(requantised))
    sides, epilogue, sources = _finished(x, added, multiplied, options, taken, result)
    if out is not None:
        check_dtype(call, "out", out.dtype, result)
        if out.shape != x.shape:
            raise ShapeError(call, "out", "shape", out.shape, x.shape, "pass an array of that shape")
        lies = matrix(call, "out", out.seen(out.layout.reshape(x.whole)), x.whole)
        sides["out"] = replace(sides["out"], values=lies)
    contraction = Contraction(
        x.m, x.n, x.k, **sides, batch=x.batch, epilogue=epilogue, sources=sources, in_place=in_place,
        spec=options.spec, accumulates=options.accumulates,
    )  # fmt: skip
    return ProductDescription(contraction, _operands(contraction, x, taken, added, multiplied), x.shape, result)


def _check_blocks(x: Factors) -> None:
    """Whether what blocks share is beside a sum in float32.

    Raises:  PlanError.
    """
    if x.by_block and x.computed is not dtypes.float32:
        called = {"a_scale": x.names.a_scale, "b_scale": x.names.b_scale, "b_zero": x.names.b_zero_point}
        given = " or ".join(called[name] for name in x.by_block)
        actual, expected = f"beside {x.computed.name}", "beside float32"
        raise PlanError(x.call, given, "per block", actual, expected, f"convert {x.names.a}")
    if "a_scale" in x.by_block and x.floats:
        actual = f"given beside {x.names.a_group}"
        raise OptionError(x.call, "a_dtype", "", actual, "left out", f"quantise {x.names.a} before")


def _zero_points(x: Factors, a: Lying | int | None, b: Lying | int | None) -> dict[str, Parameter]:
    """The zero points of integers, which leave their sum."""
    found = dict[str, Parameter]()
    for key, name, value, dtype, lines in (
        ("a_zero", "a_zero_point", a, x.a.dtype, x.rows.without_blocks),
        ("b_zero", x.names.b_zero_point, b, x.b.dtype, x.columns),
    ):  # fmt: skip
        if value is None:
            continue
        if not x.is_exact:
            raise OptionError(x.call, name, "", x.given_for, "left out", "subtract it before")
        operand, lying = sharing.integers(x.call, name, f"{key}_point", value, dtype, dtypes.int32)
        found[key] = Parameter(operand, _repeated(x, name, lying, lines))
    return found


def _scales(x: Factors, a: Lying | Number | None, b: Lying | Number | None) -> dict[str, Parameter]:
    """The scales of the operands: one for each row of a, one for each column of b, or one for all."""
    if x.floats and a is None and "a_scale" not in x.by_block:
        remedy = "pass what one unit of the integers stands for"
        raise OptionError(x.call, "a_scale", "", None, "given beside a_dtype", remedy)
    given = (("a_scale", x.names.a_scale, a, x.rows), ("b_scale", x.names.b_scale, b, x.columns))
    return {key: _scale(x, key, name, value, lines) for key, name, value, lines in given if value is not None}


def _global_scales(x: Factors, a: Lying | Number | None, b: Lying | Number | None) -> dict[str, Parameter]:
    """The scales beside those of blocks: one for all of an operand, or one for each of its lines.

    Raises:  OptionError if its operand has no scales of blocks.
    """
    found, names = dict[str, Parameter](), x.names
    for side, name, other, group, value, lines in (
        ("a", names.a_global_scale, names.a_scale, names.a_group, a, x.rows),
        ("b", names.b_global_scale, names.b_scale, names.b_group, b, x.columns),
    ):
        if value is None:
            continue
        if f"{side}_scale" not in x.by_block:
            expected, remedy = f"left out, or beside {other} of blocks", f"pass it as {other}, or {group}= too"
            raise OptionError(x.call, name, "", "given without blocks", expected, remedy)
        found[f"{side}_global_scale"] = _scale(x, f"{side}_global_scale", name, value, lines.without_blocks)
    return found


def _scale(x: Factors, argument: str, name: str, value: Lying | Number, lines: Lines) -> Parameter:
    """One scale; a number becomes a constant."""
    kind = x.computed
    if isinstance(value, Number):
        operand, lying = ProductOperand(argument, constant=Immediate.of(value.value, kind)), Lying.dense(kind)
    else:
        is_weight = argument == "b_scale" and x.b.dtype.is_integer and x.a.dtype.is_float
        accepted = sharing.SCALES if is_weight and kind is dtypes.float32 else (kind,)
        check_dtype(x.call, name, value.dtype, *accepted)
        operand, lying = ProductOperand(argument), value
    return Parameter(operand, _repeated(x, name, lying, lines))


def _multipliers(x: Factors, alpha: Lying | Number | None, beta: Lying | Number | None) -> dict[str, Parameter]:
    """What the scaled sum and c are multiplied with, but for numbers that round to 1, which have the bits of none."""
    found = dict[str, Parameter]()
    for name, value in (("alpha", alpha), ("beta", beta)):
        if isinstance(value, Lying):
            check_shape(x.call, name, value.shape, ())
        if value is not None and not (isinstance(value, Number) and elements.rounded(value.value, x.computed) == 1.0):
            found[name] = _scale(x, name, name, value, x.rows)
    return found


def _repeated(x: Factors, name: str, lying: Lying, lines: Lines) -> Shared:
    """One for all or one for each line, seen as [..., M, N], repeating along the other axis of the result."""
    lying, _ = lines.read(x.call, name, lying)
    if not lying.shape:
        return Shared(matrix(x.call, name, lying, x.whole), TENSOR)
    rank = len(lying.shape)
    seen = lying.seen(lying.layout.unsqueeze(rank if lines.whose == x.rows.whose else rank - 1))
    return Shared(matrix(x.call, name, seen, x.whole), LINE)


def _requantised(
    x: Factors, scale: Lying | Number | None, zero_point: Lying | int | None, options: Options, scales: int
) -> dict[str, Parameter]:
    """What makes the sum an integer of 8 bits again, and that the rest is as that needs it.

    Raises:  OptionError, DTypeError, ShapeError.
    """
    call = x.call
    if scale is None:
        if zero_point is not None:
            actual, remedy = "given without out_scale", "pass out_scale too"
            raise OptionError(call, "out_zero_point", "", actual, "left out", remedy)
        return {}
    if not x.is_exact:
        group = x.names.a_group if "a_scale" in x.by_block else x.names.b_group
        remedy = f"leave {group} out" if x.by_block else "pass integers, or a_dtype"
        raise OptionError(call, "out_scale", "", x.given_for, "left out", remedy)
    if scales != 2:
        expected, remedy = "given with a_scale and b_scale", "pass 1.0 for none"
        raise OptionError(call, "out_scale", "", "given without both", expected, remedy)
    result = options.out_dtype or dtypes.int8
    if result not in BYTES:
        expected = " or ".join(dtype.name for dtype in BYTES)
        raise OptionError(call, "out_dtype", "", result.name, expected, "leave out_scale out for another")
    lines = Lines("column of the result", x.n, x.m, x.batch, 2, first=False)
    found = {"out_scale": _scale(x, "out_scale", "out_scale", scale, lines)}
    point = 0 if zero_point is None else zero_point
    operand, lying = sharing.integers(call, "out_zero_point", "out_zero_point", point, result, result)
    return found | {"out_zero": Parameter(operand, _repeated(x, "out_zero_point", lying, lines))}


def _result(
    x: Factors, added: dict[str, Lying], options: Options, multiplied: Sequence[str], factors: int, requantised: bool
) -> DType:
    """The dtype of the result, and that addends, options, multipliers, that many scales and it go together.

    Raises:  DTypeError, ShapeError, OptionError.
    """
    kind = x.computed
    kinds = {"c": _ADDED[kind], "bias": _ADDED[kind]}
    if requantised:
        kinds = {"c": (dtypes.int32,), "bias": (dtypes.int32,)}
    elif x.is_exact:
        kinds["bias"] = *kinds["bias"], dtypes.int32
    for name, lying in added.items():
        check_dtype(x.call, name, lying.dtype, *kinds[name])
    result = (options.out_dtype or dtypes.int8) if requantised else _dtype(x, added, options, factors)
    scaled = [name for name, lying in added.items() if requantised or not lying.dtype.is_integer]
    scaled += ["activation"] if options.activation is not None else []
    scaled += ["alpha"] if "alpha" in multiplied else []
    if requantised:
        _check_requantised(x, scaled)
    else:
        _check_float(x, result, scaled, factors, options)
    return result


def _dtype(x: Factors, added: dict[str, Lying], options: Options, factors: int) -> DType:
    """The dtype of a result that is not requantised."""
    if x.is_exact and x.k > engines.LONGEST:
        remedy, expected = "cut K and add the products", f"at most {engines.LONGEST}"
        raise ShapeError(x.call, x.names.a, "column count", x.k, expected, remedy)
    total = dtypes.int64 if "bias" in added and added["bias"].dtype is dtypes.int32 else x.total
    if options.accumulates:
        return total
    if options.out_dtype is None:
        weights = x.b.dtype.is_integer and x.a.dtype.is_float
        half = x.a.dtype if x.a.dtype is x.b.dtype or weights else None
        return half if half in (dtypes.bfloat16, dtypes.float16) else x.computed if factors else total
    possible = _RESULTS[total]
    if options.out_dtype not in possible:
        expected = " or ".join(dtype.name for dtype in possible)
        long = "an int32 bias" if total is not x.total else f"K = {x.k}"
        remedy = "leave it out" if total is not dtypes.int64 else f"{long} may leave int32"
        raise OptionError(x.call, "out_dtype", "", options.out_dtype.name, expected, remedy)
    return options.out_dtype


def _check_requantised(x: Factors, scaled: Sequence[str]) -> None:
    """Beside out_scale there is only a bias."""
    for name in scaled:
        if name != "bias":
            expected, remedy = "left out", "quantise the result instead"
            raise OptionError(x.call, name, "", "given beside out_scale", expected, remedy)


def _check_float(x: Factors, result: DType, scaled: list[str], factors: int, options: Options) -> None:
    """Scales and addends are floats, but for an int32 bias; activations are functions of float32."""
    names, activation = x.names, options.activation
    # Beside an integer result the scale of a quantised a says what its integers are, and no more.
    both = f"a_scale or {names.b_scale}" if names is MATMUL else names.b_scale
    scaled = [*scaled, both] if factors > bool(x.floats) else scaled
    if scaled and not result.is_float:
        remedy = f"pass an int32 bias, or {names.as_float}" if scaled[0] == "bias" else f"pass {names.as_float}"
        raise OptionError(x.call, scaled[0], "", f"given for {result.name}", "left out", remedy)
    if activation is not None and x.computed is not dtypes.float32:
        remedy = "apply it after"
        raise OptionError(x.call, "activation", "", f"given for {x.computed.name}", "left out", remedy)


def _finished(
    x: Factors,
    added: dict[str, Lying],
    multiplied: dict[str, Parameter],
    options: Options,
    taken: dict[str, Parameter],
    result: DType,
) -> tuple[dict[str, Any], Expression | None, tuple[Source, ...]]:
    """The sides, and what happens to the sum."""
    shared = {name: parameter.shared for name, parameter in taken.items()}
    matrices = {name: _addend(x, name, lying) for name, lying in added.items()}
    parts = [x.floats, *(shared[name].operand for name in ("a_scale", "a_zero") if name in shared)]
    values = {"a": x.a, "b": x.b, "out": dense(x.call, x.whole, result)}
    if x.floats:
        values["a"] = quantize.described(x.batch, x.m, x.k, [part for part in parts if part], x.a.dtype)
    sides: dict[str, Any] = {}
    for name, lying in values.items():
        scale, zero, both = (shared.get(f"{name}_{what}") for what in ("scale", "zero", "global_scale"))
        sides[name] = Side(lying, scale, zero, both)
    if x.floats:
        sides["a"] = replace(sides["a"], quantised_from=x.floats)
    if "out_scale" in shared:
        return sides, *requantized(total=x.total, bias=matrices.get("bias"), fits=options.bias_fits, **sides)
    if options.activation is not None and options.activation not in ACTIVATIONS:
        raise unknown_activation(x.call, options.activation)
    epilogue, sources = fused(
        total=x.total, result=result, a=sides["a"], b=sides["b"], c=matrices.get("c"), bias=matrices.get("bias"),
        **{name: parameter.shared.operand for name, parameter in multiplied.items()},
        activation=None if options.activation is None else activation(options.activation),
    )  # fmt: skip
    return sides, epilogue, sources


def _addend(x: Factors, name: str, lying: Lying) -> Matrix:
    """An addend, which broadcasts to the result, with the axes that the result leaves out."""
    check_shape(x.call, name, lying.shape, x.shape)
    layout = lying.layout
    if layout.ndim and x.vectors[0]:
        layout = layout.unsqueeze(layout.ndim - 1)
    if layout.ndim and x.vectors[1]:
        layout = layout.unsqueeze(layout.ndim)
    return matrix(x.call, name, lying.seen(layout), x.whole)


def _operands(
    c: Contraction, x: Factors, taken: dict[str, Parameter], added: dict[str, Lying], multiplied: dict[str, Parameter]
) -> tuple[ProductOperand, ...]:
    """Where the plan of c has its operands from, but for the result."""
    sources = [ProductOperand(name) for name in added] + [parameter.operand for parameter in multiplied.values()]
    factors = [
        ProductOperand(name, IN_BYTES if in_bytes else AS_IT_LIES)
        for name, in_bytes in zip(("a", "b"), x.in_bytes, strict=True)
    ]
    named = [taken[name].operand for name in (*c.by_block, *c.shared)]
    return (*factors, *named, *sources)


def unknown_activation(call: str, name: object) -> OptionError:
    """What is said of an activation that there is none of."""
    return OptionError(
        call, "activation", "", shown(name), f"one of {', '.join(sorted(ACTIVATIONS))}", "apply it after"
    )


def activation(name: str) -> Expression:
    """The expression of one float32 value that a name of `ACTIVATIONS` stands for."""
    return ACTIVATIONS[name]()


# What is summed in: what a result may be, and what is added to it may be.
_RESULTS: dict[DType, tuple[DType, ...]] = {
    dtypes.float32: HALVES,
    dtypes.float64: (dtypes.float64, dtypes.float32),
    dtypes.int32: (dtypes.int32, dtypes.int64, *HALVES),
    dtypes.int64: (dtypes.int64, *HALVES),
}
_ADDED: dict[DType, tuple[DType, ...]] = {dtypes.float32: HALVES, dtypes.float64: (dtypes.float64,)}
