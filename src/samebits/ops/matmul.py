"""Eager matrix products: `matmul`, `linear`, `pack`, `plan_matmul`. Numerics.md sections 2 to 4 decide bits.

`product.Product` turns operands into a `Contraction`; everything below it is the gemm room's.
"""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any

from samebits import dtypes, tuning
from samebits.codegen import isa as isas
from samebits.codegen.isa import Isa
from samebits.dtypes import DType
from samebits.errors import DTypeError, OptionError, PlanError, ShapeError, shown
from samebits.kernels import gemm
from samebits.kernels.gemm import engine as engines
from samebits.kernels.gemm import machine as machines
from samebits.kernels.gemm import selection
from samebits.kernels.gemm.contraction import SB1, Contraction, Panels, PerBlock, Spec
from samebits.kernels.gemm.machine import Machine
from samebits.kernels.plan import Plan
from samebits.ops import sharing
from samebits.ops.call import Call, check_threads
from samebits.ops.memo import Prepared, remembered
from samebits.ops.names import LINEAR, PACK
from samebits.ops.operands import A_FACTOR, FACTORS, in_bytes, matrix, operand
from samebits.ops.product import Product
from samebits.ops.sharing import Lines
from samebits.tensor import Tensor


@remembered
def matmul(
    a: Any, b: Any, *, bias: Any = None, activation: str | None = None, alpha: float = 1.0, c: Any = None,
    beta: float = 1.0, a_zero_point: Any = None, b_zero_point: Any = None, a_scale: Any = None, b_scale: Any = None,
    b_group: int | None = None, out_scale: Any = None, out_zero_point: Any = None, a_dtype: Any = None,
    out_dtype: Any = None, out: Any = None, spec: Spec = SB1, threads: int | None = None, plan: Plan | None = None,
) -> Any:  # fmt: skip
    """activation((sum_k a[..., m, k] * b[..., k, n]) * (a_scale * b_scale) * alpha + beta * c + bias).

    Each step is rounded once, left to right. Floats of any two formats multiply exactly and sum in float32, in float64
    where one is float64. Integers of at most 8 bits, of any signs, sum exactly: in int32, or in int64 where K products
    could leave int32; scales and addends then take the sum as float32. Integers b beside floats a are weights.

    Args:    a: [..., M, K] or [K].   b: [..., K, N] or [K], or packed; batch dimensions broadcast.
             bias, c: broadcast to the result; float64 for a float64 product, else float32, float16 or bfloat16; beside
                integers only with a float out_dtype. But int32 bias is part of a sum of integers, added exactly, which
                makes it int64.   activation: one of erf, exp, gelu, relu (float32 products).
             alpha, beta: what the scaled sum and c are multiplied with, rounded to float32 (float64 for a float64
                product); beta only with c.
             a_zero_point: subtracted from integers a: an int, or an array of a's dtype.   b_zero_point: the same for b.
             a_scale: what one unit of a stands for: a float, or a float32 array (float64 for a float64 product).
                b_scale: the same for b; beside float32 products, of weights and of blocks, also bfloat16, float16 or a
                float8, decoded exactly.
             The shape of a scale or zero point says what it belongs to: [] or every extent 1 is one for all of its
                operand; [..., M] or [..., M, 1] one for each row of a; [..., N] or [..., 1, N] one for each column of
                b, or of the result. It has the rank of its operand, or one axis, that of K, less; without the axis of
                K, dimensions in front may be left out. Anything else is refused.
             b_group: elements along K that share a row of b_scale or b_zero_point, which of rank 2 and more are then
                [..., K / b_group, N], and scale the sums of blocks before these are added. Where b_group does not
                divide K the last block is shorter, and has a row too; one block over all of K is a block.
             out_scale: what one unit of an integer result stands for: a float, or float32; of integers with both
                scales. Then sum * a_scale * b_scale / out_scale is rounded once, half to even, as the rational that it
                is, and bias is int32; there is no alpha, c or activation.
             out_zero_point: added to that before it saturates: an int, or an array of out_dtype; default 0.
             a_dtype: int8 or uint8: what float32, float16 or bfloat16 a is quantised to first, in a step of the plan:
                rint(a / a_scale) + a_zero_point, saturating. With an integer out_dtype a_scale does nothing else.
             out_dtype: what the result is rounded to, once: float32, float16 or bfloat16; float64 or float32 of a
                float64 product; int64 of integers too. Default: bfloat16 or float16 where both operands are, or a
                beside weights; float32 of integers with a scale; else what is summed in. With out_scale: int8, which
                is the default, or uint8.
             out: an array of that dtype for the result; it may be c itself, or bias.
             spec: the order of a sum of floats.   threads: at most so many; default every usable core.
             plan: one of `plan_matmul` for these operands, obeyed.
    Returns: [..., M, N] as the kind of array that a is; for a of shape [K] without M, for b of shape [K] without N.
    Raises:  DTypeError, ShapeError, OptionError, DeviceError (an operand is not on the host), LayoutError (out overlaps
             a or b), PlanError (the plan, or a packed b, is for others).
    Bits:    numerics.md sections 2, 3 and 4: they depend on the values, b_group and `spec` alone.
    """
    call = Call("matmul", a, threads)
    if plan is not None and not isinstance(plan, Plan):
        raise OptionError("matmul", "plan", "", shown(plan), "a Plan", "make it with plan_matmul")
    product = Product(call, a, b, spec, a_dtype)
    b_scale, b_zero_point = product.blocks(b_scale, b_zero_point, b_group)
    product.zero_points(a_zero_point, b_zero_point)
    product.scales(a_scale, b_scale)
    product.requantise(out_scale, out_zero_point, out_dtype)
    product.finish(bias, activation, alpha, c, beta, out_dtype, out)
    return multiplied(product, out, plan)


def multiplied(product: Product, out: Any, plan: Plan | None = None) -> Any:
    """The array of a product, in out if it is given, by a plan for it."""
    call, contraction = product.call, product.contraction
    obeyed = product.names.planned(call.name, lambda: _obeyed(plan, contraction)) if plan else None
    made = product.target
    if made.size:
        threads = call.sized(product.contraction.work, "products")
        planned, machine = product.names.planned, tuning.machine(call.isa)
        call.run(
            obeyed or planned(call.name, lambda: _prepared(contraction, call.isa, threads, machine)), *product.operands
        )
    return call.result(made if made.shape == product.seen else made.reshape(product.seen), out)


def summed(call: Call, a: Tensor, b: Tensor, out: Any) -> Any:
    """a @ b in the dtype of its sum, for other functions: from what out holds if it is given, which K = 0 leaves."""
    product, accumulates = Product(call, a, b), out is not None
    product.finish(None, None, 1.0, None, 1.0, product.total, out)
    if accumulates and not product.k:
        return call.result(product.target, out)
    product.contraction = replace(product.contraction, accumulates=accumulates)
    return multiplied(product, out)


def plan_matmul(
    a: Any, b: Any, *, bias: Any = None, activation: str | None = None, alpha: float = 1.0, c: Any = None,
    beta: float = 1.0, a_zero_point: Any = None, b_zero_point: Any = None, a_scale: Any = None, b_scale: Any = None,
    b_group: int | None = None, out_scale: Any = None, out_zero_point: Any = None, a_dtype: Any = None,
    out_dtype: Any = None, out: Any = None, spec: Spec = SB1, threads: int | None = None,
) -> Plan:  # fmt: skip
    """The plan that `matmul` with these arguments runs: printable, with the candidates it rejected and why.

    Args:    as `matmul`; only shapes, strides, dtypes and options matter; no element of a or b is read, and no memory
             is taken for a result.
    Raises:  as `matmul`.
    """
    call = Call("plan_matmul", a, threads)
    product = Product(call, a, b, spec, a_dtype)
    b_scale, b_zero_point = product.blocks(b_scale, b_zero_point, b_group)
    product.zero_points(a_zero_point, b_zero_point)
    product.scales(a_scale, b_scale)
    product.requantise(out_scale, out_zero_point, out_dtype)
    product.finish(bias, activation, alpha, c, beta, out_dtype, out)
    threads = call.sized(product.contraction.work, "products")
    machine = tuning.machine(call.isa)
    return product.names.planned(call.name, lambda: gemm.plan(product.contraction, call.isa, threads, machine=machine))


@remembered
def linear(
    x: Any, weight: Any, bias: Any = None, *, weight_scale: Any = None, weight_zero_point: Any = None,
    group: int | None = None, out: Any = None, threads: int | None = None,
) -> Any:  # fmt: skip
    """x @ weight^T + bias.

    Args:    x: [..., K].   weight: [N, K], as torch keeps it, or `pack(weight.T)`.   bias: [N].   Dtypes as in matmul.
             weight_scale, weight_zero_point: b_scale and b_zero_point of matmul: [] or every extent 1 is one for all
                of the weight, [N] or [N, 1] one for each output channel, a row of it.   group: b_group of matmul; those
                of two axes are then [N, K / group], as checkpoints of quantised weights keep them.
             out: [..., N] for the result.   threads: at most so many; default every usable core.
    Returns: [..., N] as the kind of array that x is.
    Raises:  as matmul.   Bits: numerics.md sections 2 to 4: those of matmul(x, weight.T, ...).
    """
    product = Product(Call("linear", x, threads), x, weight, names=LINEAR)
    scale, zero_point = product.blocks(weight_scale, weight_zero_point, group)
    product.zero_points(None, zero_point)
    product.scales(None, scale)
    product.finish(bias, None, 1.0, None, 1.0, None, out)
    return multiplied(product, out)


def pack(
    b: Any, *, left: Any = None, zero_point: Any = None, group: int | None = None, threads: int | None = None
) -> gemm.PackedMatrix:
    """b[..., K, N] copied into the panels that matmul reads, for a right operand that is used many times.

    Args:    b: [..., K, N] of any dtype of `matmul`, any strides (pass `weight.T` for a weight [N, K]).
             left: the dtype of the left operands to come, a float beside floats; default b's own. Weights, integers
                beside floats, stay integers in their panels, of one byte each (two where they have 8 bits and zero
                points).
             zero_point, group: b_zero_point and b_group of matmul, for weights; products with them take no zero point
                of b then, and take scales as before.
             threads: at most so many; default every usable core.
    Returns: a PackedMatrix for the Isa row in force; it can be pickled, and is refused on rows with other panels and
             beside elements that its words cannot be multiplied with.
    Raises:  DTypeError, ShapeError, OptionError, DeviceError.   Bits: a product with it has those of one with b.
    """
    call = Call("pack", b, threads)
    y = operand(call, "b", b)
    if y.ndim < 2:
        raise ShapeError("pack", "b", "rank", y.ndim, "at least 2", "reshape a vector to [K, 1]")
    batch, (k, n) = y.shape[:-2], y.shape[-2:]
    other = _left(call, left, y.dtype)
    lying, threads = matrix(call, "b", y, y.shape), call.sized(y.size, "elements")
    machine, zeros = tuning.machine(call.isa), list[tuple[Tensor, PerBlock]]()
    if y.dtype.is_integer and other.is_float and other is not dtypes.float64:
        lines = Lines.of_b(PACK, n, k, batch, y.ndim)
        _, block = sharing.taken(call, PACK, lines, None, zero_point, group, other, lying)
        if block:
            zeros.append((block.values, block.described(call, PACK.b_zero_point, lines)))
        engine = engines.of_weights(y.dtype, bool(zeros))
    elif zero_point is not None or group is not None:
        actual, remedy = f"given for {y.dtype.name} beside {other.name}", "pass left= and integers"
        raise OptionError("pack", "zero_point or group", "", actual, "left out", remedy)
    else:
        engine = selection.engine_for(other, y.dtype, call.isa, machine)
    zero = zeros[0][1] if zeros else None
    plan = gemm.plan_pack(k, n, lying, call.isa, threads, batch, engine, other, machine, zero)
    panels = Tensor.empty((gemm.packed_elements(k, n, call.isa, batch, engine, machine),), engine.word)
    if panels.size:
        call.run(Prepared(plan), in_bytes(y), *(x for x, _ in zeros), panels)
    nr = gemm.panel_columns(call.isa, engine, machine)
    return gemm.PackedMatrix(panels, y.shape, nr, call.isa.name, y.dtype, engine.name)


def _left(call: Call, left: Any, b: DType) -> DType:
    """The dtype of the left operands that a packed b will meet."""
    dtype = b if left is None else call.dtype("left", left)
    expected = A_FACTOR
    if dtype in FACTORS:
        if dtype.is_float or b.is_integer:
            return dtype
        expected = f"a float, as b is {b.name}"
    remedy = "name the dtype of the left operands to come"
    raise DTypeError("pack", "left", "", dtype.name, expected, remedy)


@functools.lru_cache(maxsize=4096)
def _prepared(contraction: Contraction, isa: Isa, threads: int, machine: Machine) -> Prepared:
    return Prepared(gemm.plan(contraction, isa, threads, machine=machine))


def _obeyed(plan: Plan, contraction: Contraction) -> Prepared:
    # A plan holds strides and epilogue, which its words do not all say: only the very plan is safe to obey. What runs
    # is the one made here, of whose fields nobody else had a hand in any.
    remedy = "make it with plan_matmul for these operands"
    try:
        isa, threads = isas.given("matmul", plan.isa), check_threads("matmul", plan.threads)
    except OptionError as error:
        fact = f"{error.operand} {error.fact}".strip()
        raise PlanError("matmul", "plan", fact, error.actual, error.expected, remedy) from None
    # One made on another machine, or where nothing was tuned, is as good, but for panels of a tuned tile's width.
    here = tuning.machine(isa)
    others = () if here.tuned and isinstance(contraction.b, Panels) else machines.ROWS
    for machine in (here, *others):
        if plan == gemm.plan(contraction, isa, threads, machine=machine):
            return _prepared(contraction, isa, threads, machine)
    actual = plan.what if plan.what != str(contraction) else "for other strides, options or tiles"
    raise PlanError("matmul", "plan", "", actual, f"the one for {contraction}", remedy)
