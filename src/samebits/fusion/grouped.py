"""`fd.ops.grouped_mm`: products of groups of rows, columns or elements of K, each with a matrix of its own.

Each is the product of the group alone. Where groups end a run reads before it starts (`groups`), so that sizes are
symbols of the program. Start at `grouped_mm`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from samebits import dtypes
from samebits.errors import FusionError, FusionTypeError
from samebits.fusion import datatypes, groups, sizes
from samebits.fusion.datatypes import DataType
from samebits.fusion.graph import Argument, Expr, TensorAxis, TensorView
from samebits.fusion.misfits import OperandAxis, agreed, must_be
from samebits.operations import dim
from samebits.operations.dim import Size
from samebits.operations.product import Options

if TYPE_CHECKING:
    from samebits.fusion.lowering import Lowering

__all__ = ["LOWERED", "grouped_mm"]

_CALL = groups.CALL


def grouped_mm(
    mat1: TensorView, mat2: TensorView, offsets: TensorView, scale1: TensorView | None = None,
    scale2: TensorView | None = None, alpha: TensorView | None = None, bias: TensorView | None = None,
    beta: TensorView | None = None, dtype: DataType = DataType.BFloat16, output_block_scale_size: int = 0,
    output_block_scale_dtype: DataType = DataType.BFloat16, output_gamma: bool = False,
) -> Any:  # fmt: skip
    """Products of groups, by what has the group as an axis; what belongs to no group is +0.

    | mat1 | mat2 | result | groups are of |
    |---|---|---|---|
    | [m, k] | [g, k, n] | [m, n] | rows of mat1 |
    | [g, m, k] | [k, n] | [m, n] | columns of mat2 |
    | [m, k] | [k, n] | [g, m, n] | k |

    Args:
        mat1, mat2: Of one float format, or with scales of any two.
        offsets: Int32 or Int [g], an input: where each group ends.
        scale1, scale2: Float, one a row of mat1 and one a column of mat2: [m, 1] or [g, m, 1], and [1, n] or
            [g, 1, n], with the group as an axis where mat1 or mat2, or the result, has it.
        dtype: The result's, where there are scales; else it is the operands'.
        alpha, bias, beta, output_block_scale_size, output_block_scale_dtype, output_gamma: As they are.

    Returns:  The result; with scales (result, None, None).
    Raises:   FusionError if an operand or an option is another, a FusionTypeError where its kind or format is.
    """
    a, b, ends = (sizes.tensor(_CALL, name, x) for name, x in (("mat1", mat1), ("mat2", mat2), ("offsets", offsets)))
    left_out = {"alpha": alpha, "bias": bias, "beta": beta, "output_block_scale_size": output_block_scale_size,
                "output_gamma": output_gamma}  # fmt: skip
    for name, given in left_out.items():
        if given is not None and given != 0:
            remedy = "leave it out, and apply it to the result"
            raise FusionError(_CALL, name, "", "given", "left out: groups have none", remedy)
    groups.check(_CALL, "offsets", ends, "reshape it: offsets needs to be 1-D for grouped mm")
    axes = _axes(a, b, ends)
    options: dict[str, Argument] = {}
    if scale1 is None and scale2 is None:
        if a.dtype is not b.dtype or not datatypes.is_float(a.dtype):
            kinds = f"{a.dtype} and {b.dtype}"
            raise FusionTypeError(_CALL, "operands", "dtypes", kinds, "the same float format", "cast one of them")
        target = a.dtype
    else:
        options, target = _scales(a, b, ends, len(axes), scale1, scale2), dtype
        if not datatypes.is_float(datatypes.data_type_of(datatypes.row_of(_CALL, "dtype", dtype))):
            raise FusionTypeError(_CALL, "dtype", "", dtype, "a float format", "cast the result")
        options["dtype"] = dtype
    made = a.fusion.record(_CALL, [a, b, ends], **options)
    result = a.fusion.tensor(made, target, axes)
    return (result, None, None) if options else result


def _axes(a: TensorView, b: TensorView, ends: TensorView) -> list[TensorAxis]:
    """The result's axes."""
    fusion, count = a.fusion, ends.axes[0].length
    ranks = a.ndim, b.ndim
    if ranks not in ((2, 3), (3, 2), (2, 2)):
        remedy = "use matmul where both have groups: Unexpected operand ranks"
        raise FusionError(_CALL, "operands", "ranks", f"{ranks[0]} and {ranks[1]}", "2 and 3, 3 and 2, or 2", remedy)
    agreed(_CALL, OperandAxis("mat2", b, -2), OperandAxis("mat1", a, -1), "permute or slice one of them: both have K")
    rows, columns = fusion.copied(a.axes[-2]), fusion.copied(b.axes[-1])
    if ranks == (2, 2):
        return [fusion.new_axis(fusion.root(count)), rows, columns]
    grouped = OperandAxis("mat1", a, 0) if ranks[0] == 3 else OperandAxis("mat2", b, 0)
    agreed(_CALL, grouped, OperandAxis("offsets", ends, 0), "give one matrix for each group")
    return [rows, columns]


def _scales(
    a: TensorView, b: TensorView, ends: TensorView, rank: int, *scales: TensorView | None
) -> dict[str, Argument]:
    """The scales, each of the rank of its operand or of the result, with extent 1 along K."""
    found: dict[str, Argument] = {}
    for name, x, given, inner, other in (
        ("scale1", a, scales[0], -1, -2), ("scale2", b, scales[1], -2, -1),
    ):  # fmt: skip
        if given is None:
            raise FusionError(_CALL, name, "", None, "given as the other scale is", "give both, or neither")
        scale, due = sizes.tensor(_CALL, name, given), max(x.ndim, rank)
        if scale.dtype is not DataType.Float:
            raise FusionTypeError(_CALL, name, "dtype", scale.dtype, DataType.Float, "cast it first")
        if scale.ndim != due:
            raise FusionError(_CALL, name, "rank", scale.ndim, due, "give it an axis of extent 1 along K")
        operand, line = ("mat1", "row") if other == -2 else ("mat2", "column")
        remedy = f"give one scale for each {line} of {operand}"
        must_be(_CALL, OperandAxis(name, scale, inner), 1, remedy)
        agreed(_CALL, OperandAxis(name, scale, other), OperandAxis(operand, x, other), remedy)
        if due == 3:
            agreed(_CALL, OperandAxis(name, scale, 0), OperandAxis("offsets", ends, 0), "give scales of each group")
        found[name] = scale
    return found


# -- what it becomes in a program --------------------------------------------------------------------------------------
def _sizes(low: Lowering, ends: TensorView) -> list[Size]:
    """The sizes of all groups."""
    found: list[Size] = []
    for number in range(low.number(_CALL, ends.axes[0].length)):
        name, size = groups.input_name(ends, number), dim.symbol(f"g{ends.name}_{number}")
        if name not in low.b.facts:
            low.b.input(name, dtypes.bool_, (size,))
        found.append(size)
    return found


def _grouped_mm(low: Lowering, expr: Expr) -> list[str]:
    mat1, mat2, ends = expr.tensors
    a, b = low.value(mat1), low.value(mat2)
    ranks, result = (low.b.facts[a].rank, low.b.facts[b].rank), low.shape(expr.outputs[0])
    product, are_of_k = _product(low, expr), ranks == (2, 2)
    axis = 1 if ranks[0] == 3 else 0  # along which the results of groups lie
    parts: list[str] = []
    start: Size = 0
    for number, size in enumerate(_sizes(low, ends)):
        left = _one(low, a, number) if ranks[0] == 3 else _cut(low, a, 1 if are_of_k else 0, start, size)
        right = _one(low, b, number) if ranks[1] == 3 else _cut(low, b, 0 if are_of_k else 1, start, size)
        made = product(left, right, number, start, size)
        parts.append(low.b.reshape(made, (1, *result[1:])) if are_of_k else made)
        start = start + size
    if not are_of_k:
        rest = tuple([extent - start if place == axis else extent for place, extent in enumerate(result)])
        dtype = datatypes.row_of(_CALL, "dtype", expr.outputs[0].dtype)
        parts.append(low.b.expand(low.b.scalar(0.0, dtype), rest))
    return [low.b.concat(parts, axis)]


def _product(low: Lowering, expr: Expr) -> Callable[[str, str, int, Size, Size], str]:
    """The product of a group's operands: with its number, and where it starts and how long it is."""
    dtype = datatypes.row_of(_CALL, "dtype", expr.outputs[0].dtype)
    given = [expr.option(name) for name in ("scale1", "scale2")]
    scales = [None if x is None else low.value(x) for x in given]

    def product(left: str, right: str, number: int, start: Size, size: Size) -> str:
        more: dict[str, str] = {}
        for name, scale, operand, axis in (("a_scale", scales[0], left, 0), ("b_scale", scales[1], right, 1)):
            if scale is None:
                continue
            of_group = _one(low, scale, number) if low.b.facts[scale].rank == 3 else scale
            own, due = low.b.facts[of_group].shape[axis], low.b.facts[operand].shape[axis]
            more[name] = of_group if own == due else _cut(low, of_group, axis, start, size)
        made = low.b.contract(left, right, Options(out_dtype=dtype), **more) if more else low.b.contract(left, right)
        return low.b.as_dtype(made, dtype)

    return product


def _one(low: Lowering, name: str, number: int) -> str:
    """One of the matrices along the first axis."""
    rest = low.b.facts[name].shape[1:]
    return low.b.reshape(low.b.slice(name, (number, 0, 0), (1, *rest), (1, 1, 1)), rest)


def _cut(low: Lowering, name: str, axis: int, start: Size, size: Size) -> str:
    """A group's part of an axis of a matrix."""
    own = low.b.facts[name].shape
    starts = tuple([start if place == axis else 0 for place in range(2)])
    wanted = tuple([size if place == axis else extent for place, extent in enumerate(own)])
    return low.b.slice(name, starts, wanted, (1, 1))


LOWERED = {_CALL: _grouped_mm}
