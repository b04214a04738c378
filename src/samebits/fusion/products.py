"""Operations of `fd.ops` that multiply matrices, in the order of numerics.md section 2."""

from __future__ import annotations

from typing import TYPE_CHECKING

from samebits.errors import FusionError
from samebits.fusion import sizes
from samebits.fusion.elementwise import joined, matched
from samebits.fusion.graph import Argument, Expr, TensorAxis, TensorView

if TYPE_CHECKING:
    from samebits.fusion.lowering import Lowering

__all__ = ["LOWERED", "linear", "matmul"]


def matmul(arg1: TensorView, arg2: TensorView) -> TensorView:
    """The product of matrices, of vectors too, as torch.matmul has it; leading axes broadcast.

    Raises:  FusionError if formats, or extents that are known, do not fit.
    """
    a, b = sizes.tensor("matmul", "arg1", arg1), sizes.tensor("matmul", "arg2", arg2)
    _check_dtypes("matmul", a, b)
    for name, x in (("arg1", a), ("arg2", b)):
        if not x.ndim:
            raise FusionError("matmul", name, "rank", 0, "at least 1", "broadcast it")
    fusion = a.fusion
    inner = b.axes[-2 if b.ndim > 1 else 0]
    matched("matmul", fusion, -1, a.axes[-1].length, inner.length)
    made = fusion.record("matmul", [a, b])
    axes = _batch("matmul", a, b)
    if a.ndim > 1:
        axes.append(fusion.new_axis(a.axes[-2].length))
    if b.ndim > 1:
        axes.append(fusion.new_axis(b.axes[-1].length))
    return fusion.tensor(made, a.dtype, axes)


def linear(arg1: TensorView, arg2: TensorView, bias: TensorView | None = None) -> TensorView:
    """arg1 @ arg2.T + bias.

    Args:    arg1: [..., K].   arg2: [N, K].   bias: [N].
    Raises:  FusionError if formats, ranks, or extents that are known, do not fit.
    """
    x, w = sizes.tensor("linear", "arg1", arg1), sizes.tensor("linear", "arg2", arg2)
    _check_dtypes("linear", x, w)
    if not x.ndim:
        raise FusionError("linear", "arg1", "rank", 0, "at least 1", "broadcast it")
    if w.ndim != 2:
        raise FusionError("linear", "arg2", "rank", w.ndim, "2", "reshape it to [N, K]")
    fusion = x.fusion
    matched("linear", fusion, -1, x.axes[-1].length, w.axes[-1].length)
    options: dict[str, Argument] = {}
    if bias is not None:
        c = sizes.tensor("linear", "bias", bias)
        _check_dtypes("linear", x, c)
        if c.ndim != 1:
            raise FusionError("linear", "bias", "rank", c.ndim, "1", "reshape it to [N]")
        matched("linear", fusion, -1, c.axes[0].length, w.axes[0].length)
        options["bias"] = c
    made = fusion.record("linear", [x, w], **options)
    axes = [fusion.copied(axis) for axis in x.axes[:-1]]
    return fusion.tensor(made, x.dtype, [*axes, fusion.new_axis(w.axes[0].length)])


def _check_dtypes(call: str, a: TensorView, b: TensorView) -> None:
    """Raise FusionError unless operands have one format."""
    if a.dtype is not b.dtype:
        raise FusionError(call, "operands", "dtypes", f"{a.dtype} and {b.dtype}", "the same", "cast one of them")


def _batch(call: str, a: TensorView, b: TensorView) -> list[TensorAxis]:
    """The axes before those of the matrices, which broadcast."""
    fusion = a.fusion
    leading = [x for x in (a, b) if x.ndim > 2]
    if not leading:
        return []
    shells = [_Shell(fusion, x.axes[:-2]) for x in leading]
    return joined(call, shells)  # type: ignore[arg-type]  # which have axes


class _Shell:
    """Axes without a tensor."""

    def __init__(self, fusion: object, axes: tuple[TensorAxis, ...]) -> None:
        self.fusion, self.axes, self.ndim = fusion, axes, len(axes)


# -- what they become in a program -------------------------------------------------------------------------------------
def _matmul(low: Lowering, expr: Expr) -> list[str]:
    a, b = (low.value(x) for x in expr.args)
    ranks = low.b.facts[a].rank, low.b.facts[b].rank
    shape = low.shape(expr.outputs[0])
    if ranks[0] == 1:
        a = low.b.reshape(a, (1, *low.b.facts[a].shape))
    if ranks[1] == 1:
        b = low.b.reshape(b, (*low.b.facts[b].shape, 1))
    made = _converted(low, expr, low.b.contract(a, b))
    return [low.b.reshape(made, shape) if 1 in ranks else made]


def _converted(low: Lowering, expr: Expr, name: str) -> str:
    """A product in the format of its operands."""
    (x, *_) = expr.args
    dtype = low.b.facts[low.value(x)].dtype
    return low.b.as_dtype(name, dtype)


def _linear(low: Lowering, expr: Expr) -> list[str]:
    x, w = (low.value(each) for each in expr.args)
    rank = low.b.facts[x].rank
    if rank == 1:
        x = low.b.reshape(x, (1, *low.b.facts[x].shape))
    bias = expr.option("bias")
    turned = low.b.transpose(w, (1, 0))
    made = low.b.contract(x, turned) if bias is None else low.b.contract(x, turned, bias=low.value(bias))
    made = _converted(low, expr, made)
    return [low.b.reshape(made, low.shape(expr.outputs[0])) if rank == 1 else made]


LOWERED = {"matmul": _matmul, "linear": _linear}
