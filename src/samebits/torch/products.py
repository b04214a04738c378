"""Products as torch names them, with gradients: `linear matmul mm bmm addmm baddbmm` (numerics.md sections 2 and 5)."""

from __future__ import annotations

from torch import Tensor

from samebits.errors import SamebitsError, ShapeError
from samebits.kernels.gemm.contraction import Spec
from samebits.torch import accumulating_operators as accumulating
from samebits.torch import product_operators as operators
from samebits.torch.accumulate import total_of
from samebits.torch.arguments import are_tensors, check_tensors, number
from samebits.torch.spec import Sums, order
from samebits.torch.whole import whole

__all__ = ["addmm", "baddbmm", "bmm", "linear", "matmul", "mm"]


@whole
def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None, *, spec: Spec | None = None) -> Tensor:
    """input @ weight^T + bias, as `torch.nn.functional.linear`.

    Args:    input: [..., K].   weight: [N, K] of input's dtype.   bias: [N].   spec: the order of sums, here and in
             backward; default that of `use_spec`.
    Returns: [..., N] of input's dtype, one rounding.
    Raises:  DTypeError, ShapeError, LayoutError, DeviceError; OptionError for a spec that is none, and for forward-mode
             differentiation.   Bits: numerics.md section 2; gradients section 5.
    """
    sums = order("linear", spec)
    total = total_of("linear", weight, input, sums)
    if total is None:
        return operators.linear(input, weight, bias, *sums)  # type: ignore[no-any-return]
    added = total_of("linear", bias, input, sums)
    return accumulating.linear_into(input, weight, bias, total, added, *sums)  # type: ignore[no-any-return]


@whole
def matmul(input: Tensor, other: Tensor, *, spec: Spec | None = None) -> Tensor:
    """input @ other, as `torch.matmul`: vectors are taken as a row and a column, batches broadcast.

    Args:    input: [..., M, K] or [K].   other: [..., K, N] or [K].   spec: as in `linear`.
    Raises:  as `linear`.   Bits: numerics.md section 2; gradients section 5.
    """
    if not are_tensors(input, other):
        check_tensors("matmul", input=input, other=other)
    order_ = order("matmul", spec)
    if input.ndim > 1 and other.ndim > 1:
        return _product("matmul", ("input", "other"), input, other, order_)
    for name, x in (("input", input), ("other", other)):
        if x.ndim == 0:
            raise ShapeError("matmul", name, "rank", 0, "at least 1", "multiply by it instead")
    a = input.unsqueeze(0) if input.ndim == 1 else input
    b = other.unsqueeze(1) if other.ndim == 1 else other
    y = _product("matmul", ("input", "other"), a, b, order_)
    y = y.squeeze(-1) if other.ndim == 1 else y
    return y.squeeze(-2 if other.ndim > 1 else -1) if input.ndim == 1 else y


@whole
def mm(input: Tensor, mat2: Tensor, *, spec: Spec | None = None) -> Tensor:
    """input @ mat2 for matrices, as `torch.mm`.

    Args:    input: [M, K].   mat2: [K, N].   spec: as in `linear`.   Raises: as `linear`.
    """
    if not (are_tensors(input, mat2) and input.ndim == 2 == mat2.ndim):
        _check_ranks("mm", 2, input=input, mat2=mat2)
    return _product("mm", ("input", "mat2"), input, mat2, order("mm", spec))


@whole
def bmm(input: Tensor, mat2: Tensor, *, spec: Spec | None = None) -> Tensor:
    """input[i] @ mat2[i] for each i, as `torch.bmm`.

    Args:    input: [B, M, K].   mat2: [B, K, N].   spec: as in `linear`.   Raises: as `linear`.
    """
    _check_batches("bmm", ("input", "mat2"), input, mat2)
    return _product("bmm", ("input", "mat2"), input, mat2, order("bmm", spec))


@whole
def addmm(
    input: Tensor, mat1: Tensor, mat2: Tensor, *, beta: float = 1.0, alpha: float = 1.0, spec: Spec | None = None
) -> Tensor:
    """(mat1 @ mat2) * alpha + beta * input, as `torch.addmm`; beta = 0 leaves input out.

    Args:    input: broadcasts to [M, N].   mat1: [M, K].   mat2: [K, N].   spec: as in `linear`.   Raises: as `linear`.
    """
    if not (are_tensors(mat1, mat2) and mat1.ndim == 2 == mat2.ndim):
        _check_ranks("addmm", 2, mat1=mat1, mat2=mat2)
    return _added("addmm", ("mat1", "mat2"), mat1, mat2, order("addmm", spec), input, alpha, beta)


@whole
def baddbmm(
    input: Tensor, batch1: Tensor, batch2: Tensor, *, beta: float = 1.0, alpha: float = 1.0, spec: Spec | None = None
) -> Tensor:
    """(batch1[i] @ batch2[i]) * alpha + beta * input[i] for each i, as `torch.baddbmm`; beta = 0 leaves input out.

    Args:    input: broadcasts to [B, M, N].   batch1: [B, M, K].   batch2: [B, K, N].   spec: as in `linear`.
    Raises:  as `linear`.
    """
    _check_batches("baddbmm", ("batch1", "batch2"), batch1, batch2)
    return _added("baddbmm", ("batch1", "batch2"), batch1, batch2, order("baddbmm", spec), input, alpha, beta)


def _added(
    call: str, names: tuple[str, str], a: Tensor, b: Tensor, order_: Sums, c: Tensor, alpha: float,
    beta: float,
) -> Tensor:  # fmt: skip
    """(a @ b) * alpha + beta * c; where beta is 0 c is not looked at."""
    if not are_tensors(c):
        check_tensors(call, input=c)
    alpha, beta = number(call, "alpha", alpha), number(call, "beta", beta)
    return _product(call, names, a, b, order_, None if beta == 0 else c, alpha, beta)


def _product(
    call: str, names: tuple[str, str], a: Tensor, b: Tensor, order_: Sums, c: Tensor | None = None,
    alpha: float = 1.0, beta: float = 1.0,
) -> Tensor:  # fmt: skip
    """(a @ b) * alpha + beta * c, refused in the words of the function that was called."""
    try:
        return operators.matmul(a, b, c, alpha, beta, *order_)  # type: ignore[no-any-return]
    except SamebitsError as error:
        known = {"a": names[0], "b": names[1], "c": "input"}
        raise error.renamed(call, known.get(error.operand, error.operand)) from None


def _check_ranks(call: str, rank: int, **operands: Tensor) -> None:
    check_tensors(call, **operands)
    for name, x in operands.items():
        if x.ndim != rank:
            raise ShapeError(call, name, "rank", x.ndim, rank, "call matmul, which takes any")


def _check_batches(call: str, names: tuple[str, str], a: Tensor, b: Tensor) -> None:
    """Raise unless both are batches of matrices, of one size."""
    if not (are_tensors(a, b) and a.ndim == 3 == b.ndim) or a.is_nested or b.is_nested:
        _check_ranks(call, 3, **{names[0]: a, names[1]: b})
    if b.shape[0] != a.shape[0]:
        expected, remedy = f"that of the other, {a.shape[0]}", "call matmul, which broadcasts"
        raise ShapeError(call, names[1], "batch size", b.shape[0], expected, remedy)
