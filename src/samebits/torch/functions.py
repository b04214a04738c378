"""Functions as torch names them, with gradients: of one element, along axes, of tokens (numerics.md 5 to 8)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from samebits.errors import OptionError, ShapeError, shown
from samebits.kernels.gemm.contraction import Spec
from samebits.ops.elementwise import is_by_tanh
from samebits.shapes import check_flag, check_index, check_integers
from samebits.torch import accumulating_operators as accumulating
from samebits.torch import element_operators as elements
from samebits.torch import row_operators as along
from samebits.torch import token_operators as tokens
from samebits.torch.accumulate import total_of
from samebits.torch.arguments import are_tensors, check_tensors, number
from samebits.torch.operator import check_tensor
from samebits.torch.spec import order
from samebits.torch.whole import whole

__all__ = [
    "cross_entropy", "embedding", "erf", "exp", "gelu", "grouped_mm", "layer_norm", "log", "log_softmax", "mean",
    "relu", "rms_norm", "sigmoid", "silu", "softmax", "sum", "tanh",
]  # fmt: skip


@whole
def exp(input: Tensor) -> Tensor:
    """e to the power of each element, correctly rounded in float32, as `torch.exp`; floats."""
    return elements.exp(input)  # type: ignore[no-any-return]


@whole
def log(input: Tensor) -> Tensor:
    """The natural logarithm of each element, correctly rounded in float32, as `torch.log`; floats."""
    return elements.log(input)  # type: ignore[no-any-return]


@whole
def erf(input: Tensor) -> Tensor:
    """The error function of each element, correctly rounded in float32, as `torch.erf`; floats."""
    return elements.erf(input)  # type: ignore[no-any-return]


@whole
def relu(input: Tensor) -> Tensor:
    """The larger of each element and +0, as `torch.relu`; floats."""
    return elements.relu(input)  # type: ignore[no-any-return]


@whole
def gelu(input: Tensor, *, approximate: str = "none") -> Tensor:
    """x/2 * (1 + erf(x / sqrt(2))), or by tanh, as `torch.nn.functional.gelu`; floats.

    Raises:  OptionError for another approximation than "none" and "tanh", and as `linear`.
    """
    function = elements.gelu_tanh if is_by_tanh("gelu", approximate) else elements.gelu
    return function(input)  # type: ignore[no-any-return]


@whole
def sigmoid(input: Tensor) -> Tensor:
    """1 / (1 + exp(-x)) of each element, correctly rounded in float32, as `torch.sigmoid`; floats."""
    return elements.sigmoid(input)  # type: ignore[no-any-return]


@whole
def tanh(input: Tensor) -> Tensor:
    """The hyperbolic tangent of each element, correctly rounded in float32, as `torch.tanh`; floats."""
    return elements.tanh(input)  # type: ignore[no-any-return]


@whole
def silu(input: Tensor) -> Tensor:
    """x * sigmoid(x), as `torch.nn.functional.silu`; floats."""
    return elements.silu(input)  # type: ignore[no-any-return]


@whole
def softmax(input: Tensor, dim: int = -1) -> Tensor:
    """exp(x - max) / sum(exp(x - max)) along an axis, as `torch.softmax`; floats."""
    return _along("softmax", along.softmax, input, dim)


@whole
def log_softmax(input: Tensor, dim: int = -1) -> Tensor:
    """(x - max) - log(sum(exp(x - max))) along an axis, as `torch.log_softmax`; floats."""
    return _along("log_softmax", along.log_softmax, input, dim)


@whole
def sum(input: Tensor, dim: int | Sequence[int] | None = None, keepdim: bool = False) -> Tensor:
    """The sum along axes, all of them for None, as `torch.sum` of floats; 64 lanes and a tree."""
    if not are_tensors(input):
        check_tensors("sum", input=input)
    keepdim = check_flag("sum", "keepdim", keepdim)
    return along.sum(input, _axes("sum", dim, input.ndim), keepdim)  # type: ignore[no-any-return]


@whole
def mean(input: Tensor, dim: int | Sequence[int] | None = None, keepdim: bool = False) -> Tensor:
    """The sum along axes divided by their count, as `torch.mean`."""
    if not are_tensors(input):
        check_tensors("mean", input=input)
    keepdim = check_flag("mean", "keepdim", keepdim)
    return along.mean(input, _axes("mean", dim, input.ndim), keepdim)  # type: ignore[no-any-return]


@whole
def layer_norm(
    input: Tensor, normalized_shape: Sequence[int], weight: Tensor | None = None, bias: Tensor | None = None,
    eps: float = 1e-5, *, spec: Spec | None = None,
) -> Tensor:  # fmt: skip
    """(x - mean) / sqrt(var + eps) * weight + bias along the last axes, as `torch.nn.functional.layer_norm`.

    Args:    weight, bias: of shape normalized_shape; wider than input they make the result that of input converted,
             which is then converted back.   spec: the order of the sums over rows in backward.
    Raises:  ShapeError, DTypeError, LayoutError, DeviceError, OptionError as `linear`.
    """
    eps = number("layer_norm", "eps", eps)

    def normalised(x: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
        sums = order("layer_norm", spec)
        total = total_of("layer_norm", weight, x, sums)
        if total is None or weight is None:
            return along.layer_norm(x, weight, bias, eps, *sums)  # type: ignore[no-any-return]
        added = total_of("layer_norm", bias, x, sums)
        return accumulating.layer_norm_into(x, weight, bias, eps, total, added, *sums)  # type: ignore[no-any-return]

    return _norm("layer_norm", normalised, input, normalized_shape, {"weight": weight, "bias": bias})


@whole
def rms_norm(
    input: Tensor, normalized_shape: Sequence[int], weight: Tensor | None = None, eps: float | None = None, *,
    spec: Spec | None = None,
) -> Tensor:  # fmt: skip
    """x / sqrt(mean(x * x) + eps) * weight along the last axes, as `torch.nn.functional.rms_norm`.

    Args:    weight: of shape normalized_shape; wider than input it makes the result that of input converted, which is
             then converted back.   eps: by default that of float32, of float64 beside it.
             spec: the order of the sum over rows in backward.
    Raises:  ShapeError, DTypeError, LayoutError, DeviceError, OptionError as `linear`.
    """
    given = None if eps is None else number("rms_norm", "eps", eps)

    def normalised(x: Tensor, weight: Tensor | None) -> Tensor:
        sums = order("rms_norm", spec)
        least = torch.finfo(torch.float64 if x.dtype is torch.float64 else torch.float32).eps
        added = least if given is None else given
        total = total_of("rms_norm", weight, x, sums)
        if total is None or weight is None:
            return along.rms_norm(x, weight, added, *sums)  # type: ignore[no-any-return]
        return accumulating.rms_norm_into(x, weight, added, total, *sums)  # type: ignore[no-any-return]

    return _norm("rms_norm", normalised, input, normalized_shape, {"weight": weight})


def _norm(
    call: str, normalised: Callable[..., Tensor], input: Tensor, normalized_shape: Sequence[int],
    scales: dict[str, Tensor | None],
) -> Tensor:  # fmt: skip
    """A norm along the last axes, which `normalised` computes along one, of the dtype of its scales."""
    if not are_tensors(input, *[input if z is None else z for z in scales.values()]) or input.is_nested:
        check_tensors(call, input=input, **{name: z for name, z in scales.items() if z is not None})
    if not isinstance(normalized_shape, tuple | list) or any(isinstance(n, float) for n in normalized_shape):
        remedy = "pass input.shape[-1:]"
        raise ShapeError(call, "normalized_shape", "", shown(normalized_shape), "a tuple of extents", remedy)
    shape = tuple(normalized_shape)
    if not shape or tuple(input.shape[input.ndim - len(shape) :]) != shape:
        expected = f"input's last extents, of {tuple(input.shape)}"
        raise ShapeError(call, "normalized_shape", "", shape, expected, "pass input.shape[-1:]")
    x, given = input, list(scales.values())
    if len(shape) > 1:
        for name, z in scales.items():
            if z is not None and tuple(z.shape) != shape:
                remedy = "pass one for each place of normalized_shape"
                raise ShapeError(call, name, "shape", tuple(z.shape), shape, remedy)
        x = x.flatten(x.ndim - len(shape))
        given = [None if z is None else z.flatten() for z in given]
    wide = {z.dtype for z in given if z is not None and z.dtype is not x.dtype}
    if x.dtype in (torch.bfloat16, torch.float16) and wide == {torch.float32}:
        single = (
            elements.converted(x, torch.float32),
            *[None if z is None else elements.converted(z, torch.float32) for z in given],
        )
        y = elements.converted(normalised(*single), x.dtype)
    else:
        y = normalised(x, *given)
    return y if len(shape) == 1 else y.reshape(input.shape)


def _along(call: str, operator: Callable[[Tensor, int], Tensor], input: Tensor, dim: int) -> Tensor:
    """An operator along an axis. A number is a row of one: an axis of `vmap` in front of it is not the operator's."""
    if not are_tensors(input):
        check_tensors(call, input=input)
    axis = _axis(call, dim, input.ndim)
    return operator(input, axis) if input.ndim else operator(input.unsqueeze(0), axis).squeeze(0)


def _axis(call: str, dim: int, rank: int) -> int:
    """An axis, counted from the end: then there may be more in front."""
    if type(dim) is int and -rank <= dim < 0:
        return dim
    return check_index(call, "dim", dim, max(rank, 1)) - max(rank, 1)


def _axes(call: str, dim: int | Sequence[int] | None, rank: int) -> list[int]:
    if dim is None:
        return list(range(-rank, 0))
    if isinstance(dim, int):
        axis = _axis(call, dim, rank)
        return [axis] if rank else []
    given = list(check_integers(call, "dim", dim))
    if not given:
        return list(range(-rank, 0))
    found = sorted({check_index(call, "dim", axis, max(rank, 1)) - max(rank, 1) for axis in given})
    if len(found) < len(given):
        raise ShapeError(call, "dim", "", tuple(given), "each axis once", "leave out the repeated one")
    return found if rank else []


@whole
def embedding(input: Tensor, weight: Tensor, padding_idx: int | None = None, *, spec: Spec | None = None) -> Tensor:
    """Rows of weight, as `torch.nn.functional.embedding`; of the row padding_idx the gradient is zero.

    Args:    input: int64 or int32, any shape.   weight: [V, D] floats.   spec: the order of the sums in backward.
    Raises:  OutOfRangeError for an index that is not there, and as `linear`.   Bits: copied; gradient section 5.
    """
    if not are_tensors(input, weight) or weight.is_nested:
        check_tensors("embedding", input=input, weight=weight)
    # A weight that is no matrix is refused by the operator.
    rows = weight.shape[0] if weight.ndim else 1
    padding = -1 if padding_idx is None else check_index("embedding", "padding_idx", padding_idx, rows)
    sums = order("embedding", spec)
    total = total_of("embedding", weight, input, sums, axes=0)
    if total is None:
        return tokens.embedding(input, weight, padding, *sums)  # type: ignore[no-any-return]
    return accumulating.embedding_into(input, weight, padding, total, *sums)  # type: ignore[no-any-return]


@whole
def cross_entropy(
    input: Tensor, target: Tensor, *, ignore_index: int = -100, reduction: str = "mean", count: float | None = None
) -> Tensor:
    """-log_softmax(input)[target], summed over rows and divided by their count, as `torch.nn.functional.cross_entropy`.

    It is computed in float32 (float64) as a whole.

    Args:    input: [N, C], [C], or [N, C, ...], floats.   target: int64, without the axis C.
             reduction: none, sum or mean.   count: what a mean divides by; default the rows that are not ignored. Parts
             of one batch give the batch's.
    Returns: float32; float64 for float64.
    Raises:  OutOfRangeError for a class that is not there, and as `linear`.
    """
    if not are_tensors(input, target):
        check_tensors("cross_entropy", input=input, target=target)
    if not isinstance(reduction, str) or reduction not in ("none", "sum", "mean"):
        remedy = "leave it out for mean"
        raise OptionError("cross_entropy", "reduction", "", shown(reduction), "none, sum or mean", remedy)
    if type(ignore_index) is not int or not -(2**63) <= ignore_index < 2**63:
        remedy = "leave it out for -100"
        raise OptionError("cross_entropy", "ignore_index", "", shown(ignore_index), "an integer of 64 bits", remedy)
    by = None if count is None else number("cross_entropy", "count", count)
    if input.ndim == 2:
        return tokens.cross_entropy(input, target, ignore_index, reduction, by)  # type: ignore[no-any-return]
    check_tensor("cross_entropy", "input", input)
    check_tensor("cross_entropy", "target", target, torch.int64)
    if not input.ndim:
        raise ShapeError("cross_entropy", "input", "rank", 0, "at least 1", "give each row a class")
    due = (*input.shape[:1], *input.shape[2:]) if input.ndim > 1 else ()
    if target.shape != due:
        remedy = "leave out input's axis of classes, the second" if due else "pass one class"
        raise ShapeError("cross_entropy", "target", "shape", tuple(target.shape), due, remedy)
    rows = input.unsqueeze(0) if input.ndim == 1 else input.movedim(1, -1).flatten(0, -2)
    classes = target.unsqueeze(0) if input.ndim == 1 else target.flatten()
    losses: Tensor = tokens.cross_entropy(rows, classes, ignore_index, reduction, by)
    return losses.reshape(target.shape) if reduction == "none" else losses


def grouped_mm(input: Tensor, mat2: Tensor, *, offs: Tensor, spec: Spec | None = None) -> Tensor:
    """input[t] @ mat2[g] for each row t of the group g that it belongs to, as `torch.nn.functional.grouped_mm`.

    Args:    input: [T, K].   mat2: [G, K, N].   offs: [G] int32 or int64: where each group ends; rows behind the last
             give +0.   spec: as in `linear`.   Raises: as `linear`.
    """
    return tokens.grouped_mm(input, mat2, offs, *order("grouped_mm", spec))  # type: ignore[no-any-return]
