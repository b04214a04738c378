"""Eager matrix products: `matmul`, `linear`, `pack`, `plan_matmul`. Numerics.md section 2 decides every bit.

`_describe` turns operands into a `Contraction`; everything below it is the gemm room's.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from samebits import dtypes
from samebits.codegen.isa import Isa
from samebits.errors import OptionError, PlanError, ShapeError, message
from samebits.kernels import gemm
from samebits.kernels.gemm import tiles
from samebits.kernels.gemm.contraction import SB1, Contraction, Matrix, Spec, fused
from samebits.kernels.plan import Plan
from samebits.ops import elementwise
from samebits.ops.call import Call, Prepared, remembered
from samebits.tensor import Tensor

_Shape = tuple[int, ...]


@remembered
def matmul(
    a: Any, b: Any, *, bias: Any = None, activation: str | None = None, alpha: float = 1.0, c: Any = None,
    beta: float = 1.0, out: Any = None, spec: Spec = SB1, threads: int | None = None, plan: Plan | None = None,
) -> Any:  # fmt: skip
    """activation((sum_k a[..., m, k] * b[..., k, n]) * alpha + beta * c + bias), each step rounded once.

    Args:    a: float32 [..., M, K] or [K].   b: float32 [..., K, N] or [K], or packed; batch dimensions broadcast.
             bias, c: float32, broadcast to the result.   activation: one of erf, exp, gelu, relu.
             alpha, beta: scales, rounded to float32.   out: an array for the result; it may be c itself, or bias.
             spec: the order of the sum.   threads: at most so many; default every usable core.
             plan: one of `plan_matmul` for these operands, obeyed.
    Returns: [..., M, N] as the kind of array that a is; the axis of an operand with one is left out.
    Raises:  DTypeError, ShapeError, LayoutError (out overlaps a or b), OptionError, PlanError (the plan is for others).
    Bits:    numerics.md section 2: they depend on the values and `spec` alone.
    """
    call = Call("matmul", a, threads)
    if plan is not None and not isinstance(plan, Plan):
        raise OptionError(message("matmul", "plan", "", repr(plan), "a Plan", "make it with plan_matmul"))
    operands, contraction, made, shape = _described(call, a, b, bias, activation, alpha, c, beta, out, spec)
    if made.size:
        work = contraction.m * contraction.n * max(contraction.k, 1) * math.prod(contraction.batch)
        if plan is None:
            prepared = _prepared(contraction, call.isa, call.sized(work, "products"))
        else:
            prepared = _obeyed(plan, contraction)
        call.run(prepared, *operands)
    return call.result(made if made.shape == shape else made.reshape(shape), out)


def plan_matmul(
    a: Any, b: Any, *, bias: Any = None, activation: str | None = None, alpha: float = 1.0, c: Any = None,
    beta: float = 1.0, out: Any = None, spec: Spec = SB1, threads: int | None = None,
) -> Plan:  # fmt: skip
    """The plan that `matmul` with these arguments runs: printable, with the candidates it rejected and why.

    Args:    as `matmul`; only shapes, strides and dtypes matter.
    """
    call = Call("plan_matmul", a, threads)
    _, contraction, _, _ = _described(call, a, b, bias, activation, alpha, c, beta, out, spec)
    work = contraction.m * contraction.n * max(contraction.k, 1) * math.prod(contraction.batch)
    return gemm.plan(contraction, call.isa, call.sized(work, "products"))


def linear(x: Any, weight: Any, bias: Any = None, *, out: Any = None, threads: int | None = None) -> Any:
    """x @ weight^T + bias.

    Args:    x: float32 [..., K].   weight: float32 [N, K], as torch keeps it, or `pack(weight.T)`.   bias: float32 [N].
    Returns: [..., N] as the kind of array that x is.
    Raises:  as matmul.   Bits: numerics.md section 2.
    """
    right = weight if isinstance(weight, gemm.PackedMatrix) else Tensor.from_any(weight).T
    return matmul(x, right, bias=bias, out=out, threads=threads)


def pack(b: Any, *, threads: int | None = None) -> gemm.PackedMatrix:
    """b[..., K, N] copied into the panels that matmul reads, for a right operand that is used many times.

    Args:    b: float32 [..., K, N], any strides (pass `weight.T` for a weight [N, K]).
    Returns: a PackedMatrix for the Isa row in force; it can be pickled, and is refused on rows with other panels.
    Raises:  DTypeError, ShapeError.   Bits: a product with it has those of a product with b.
    """
    call = Call("pack", b, threads)
    y = call.operand("b", b, dtypes.float32)
    if y.ndim < 2:
        raise ShapeError(message("pack", "b", "rank", y.ndim, "at least 2", "reshape a vector to [K, 1]"))
    batch, (k, n) = y.shape[:-2], y.shape[-2:]
    plan = gemm.plan_pack(k, n, _matrix(call, "b", y, y.shape), call.isa, call.sized(y.size, "elements"), batch)
    panels = Tensor.empty((gemm.packed_elements(k, n, call.isa, batch),), dtypes.float32)
    if panels.size:
        call.run(Prepared(plan), y, panels)
    return gemm.PackedMatrix(panels, y.shape, tiles.tile_for(call.isa).nr(call.isa), call.isa.name)


@functools.lru_cache(maxsize=4096)
def _prepared(contraction: Contraction, isa: Isa, threads: int) -> Prepared:
    return Prepared(gemm.plan(contraction, isa, threads))


@functools.lru_cache(maxsize=256)
def _obeyed(plan: Plan, contraction: Contraction) -> Prepared:
    # A plan holds strides and epilogue, which its words do not all say: only the very plan is safe to obey.
    if plan != gemm.plan(contraction, plan.isa, plan.threads):
        actual = plan.what if plan.what != str(contraction) else "for other strides, options or tiles"
        remedy = "make it with plan_matmul for these operands"
        raise PlanError(message("matmul", "plan", "", actual, f"the one for {contraction}", remedy))
    return Prepared(plan)


def _described(
    call: Call, a: Any, b: Any, bias: Any, activation: str | None, alpha: float, c: Any, beta: float, out: Any,
    spec: Spec,
) -> tuple[list[Tensor], Contraction, Tensor, _Shape]:  # fmt: skip
    """The plan's operands, the contraction, the tensor written, and the shape that the caller sees."""
    if not isinstance(spec, Spec):
        raise OptionError(message(call.name, "spec", "", repr(spec), "a Spec", "leave it out for sb1"))
    x = call.operand("a", a, dtypes.float32)
    packed = b if isinstance(b, gemm.PackedMatrix) else None
    y = call.operand("b", b if packed is None else packed.tensor, dtypes.float32)
    right = packed.shape if packed is not None else y.shape
    for name, shape in (("a", x.shape), ("b", right)):
        if not shape:
            raise ShapeError(message(call.name, name, "rank", 0, "at least 1", "use multiply for a scalar"))
    vector_a, vector_b = x.ndim == 1, len(right) == 1
    apart = [x, y]
    x = x.unsqueeze(0) if vector_a else x
    if packed is None and vector_b:
        y, right = y.unsqueeze(1), (*right, 1)
    m, k, n = x.shape[-2], x.shape[-1], right[-1]
    if right[-2] != k:
        raise ShapeError(
            message(call.name, "b", "row count", right[-2], f"a's column count {k}", f"pass b of shape [..., {k}, N]")
        )
    batch = _batch(call, x.shape[:-2], right[:-2])
    whole = (*batch, m, n)
    seen = (*batch, *(() if vector_a else (m,)), *(() if vector_b else (n,)))
    addend = call.operand("c", c, dtypes.float32) if c is not None else None
    added = call.operand("bias", bias, dtypes.float32) if bias is not None else None
    sources = [t for t in (addend, added) if t is not None]
    target = call.output(seen, dtypes.float32, out, apart)
    in_place = out is not None and any(t.address == target.address for t in sources)
    if seen != whole:
        target = target.reshape(whole)
    alpha, beta = call.number("alpha", alpha), call.number("beta", beta)
    left = _matrix(call, "a", x, (*batch, m, k))
    epilogue, listed = fused(
        alpha=None if alpha == 1.0 else alpha,
        beta=None if addend is None or beta == 1.0 else beta,
        c=_matrix(call, "c", addend, whole) if addend is not None else None,
        bias=_matrix(call, "bias", added, whole) if added is not None else None,
        activation=_activation(call, activation),
    )
    contraction = Contraction(
        m, n, k, left, packed.panels(batch) if packed is not None else _matrix(call, "b", y, (*batch, k, n)),
        _matrix(call, "out", target, whole), batch, epilogue, listed, in_place, spec,
    )  # fmt: skip
    return [x, y, *sources, target], contraction, target, seen


def _batch(call: Call, x: _Shape, y: _Shape) -> _Shape:
    """The batch dimensions of the product."""
    if x == y:
        return x
    try:
        return np.broadcast_shapes(x, y)
    except ValueError:
        expected = f"one that broadcasts with a's {x}"
        raise ShapeError(message(call.name, "b", "batch shape", y, expected, "reshape one of them")) from None


def _matrix(call: Call, name: str, x: Tensor, shape: Sequence[int]) -> Matrix:
    """x broadcast to `shape`, by its strides."""
    if x.shape != tuple(shape):
        try:
            x = x.broadcast_to(shape)
        except ShapeError:
            raise ShapeError(
                message(call.name, name, "shape", x.shape, f"one that broadcasts to {tuple(shape)}", "reshape it")
            ) from None
    strides = tuple(0 if extent == 1 else s for extent, s in zip(x.shape, x.strides, strict=True))
    return Matrix(strides[-2], strides[-1], strides[:-2])


def _activation(call: Call, name: str | None) -> Any:
    if name is None:
        return None
    if name not in elementwise.ACTIVATIONS:
        raise OptionError(
            message(call.name, "activation", "", repr(name), f"one of {elementwise.ACTIVATIONS}", "apply it after")
        )
    return elementwise.activation(name)
