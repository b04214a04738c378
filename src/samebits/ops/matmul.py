"""Eager matrix products: `matmul`, `linear`, `pack`, `plan_matmul`. Numerics.md sections 2 to 4 decide bits.

`operations.product` describes them; `product` makes facts of the arrays, and runs what is described on them.
"""

from __future__ import annotations

from typing import Any

from samebits import dtypes, tuning
from samebits.dtypes import DType
from samebits.errors import DTypeError, OptionError, PlanError, ShapeError, shown
from samebits.kernels import gemm
from samebits.kernels.gemm import engine as engines
from samebits.kernels.gemm import selection
from samebits.kernels.gemm.contraction import SB1, Spec, check_spec
from samebits.kernels.plan import Plan
from samebits.operations import sharing
from samebits.operations.lying import A_FACTOR, FACTORS, check_factor, matrix
from samebits.operations.names import LINEAR, MATMUL, PACK
from samebits.operations.sharing import Lines, Parameter
from samebits.ops.call import Call
from samebits.ops.memo import remembered
from samebits.ops.pack_scaled import packed_scaled
from samebits.ops.product import (
    Arguments,
    multiplied,
    operand_of,
    parameter,
)
from samebits.ops.quantized_operands import elements, is_quantized, quantized_weight
from samebits.ops.recipe import CallOperand, Prepared
from samebits.tensor import Tensor


@remembered
def matmul(
    a: Any, b: Any, *, bias: Any = None, activation: str | None = None, alpha: float = 1.0, c: Any = None,
    beta: float = 1.0, a_zero_point: Any = None, b_zero_point: Any = None, a_scale: Any = None, b_scale: Any = None,
    a_group: Any = None, b_group: Any = None, a_global_scale: Any = None, b_global_scale: Any = None,
    out_scale: Any = None, out_zero_point: Any = None, a_dtype: Any = None, a_format: Any = None, a_dialect: Any = None,
    out_dtype: Any = None, out: Any = None, spec: Spec = SB1, threads: int | None = None, plan: Plan | None = None,
) -> Any:  # fmt: skip
    """activation((sum_k a[..., m, k] * b[..., k, n]) * (a_scale * b_scale) * alpha + beta * c + bias).

    Each step is rounded once, left to right. Floats of any two formats multiply exactly and sum in float32, in float64
    where one is float64. Integers of at most 8 bits, of any signs, sum exactly: in int32, or in int64 where K products
    could leave int32; scales and addends then take the sum as float32. Integers b beside floats a are weights.

    Args:    a: [..., M, K] or [K].   b: [..., K, N] or [K], or packed; batch dimensions broadcast. Either may be a
                Quantized, which stands for its elements with the scales, groups and zero points that its format says.
             bias, c: broadcast to the result; float64 for a float64 product, else float32, float16 or bfloat16; beside
                integers only with a float out_dtype. But int32 bias is part of a sum of integers, added exactly, which
                makes it int64.
             activation: of float32 products one of erf, exp, gelu, gelu_tanh, relu, sigmoid, silu, tanh.
             alpha, beta: what the scaled sum and c are multiplied with, rounded to float32 (float64 for a float64
                product); beta only with c.
             a_zero_point: subtracted from integers a: an int, or an array of a's dtype.   b_zero_point: the same for b.
             a_scale: what one unit of a stands for: a float, or a float32 array (float64 for a float64 product); of
                blocks also of the narrower floats that b_scale may be.
                b_scale: the same for b; beside float32 products, of weights and of blocks, also bfloat16, float16 or a
                float8, decoded exactly.
             The shape of a scale or zero point says what it belongs to: [] or every extent 1 is one for all of its
                operand; [..., M] or [..., M, 1] one for each row of a; [..., N] or [..., 1, N] one for each column of
                b, or of the result. It has the rank of its operand, or one axis, that of K, less; without the axis of
                K, dimensions in front may be left out. Anything else is refused.
             b_group: elements along K that share a row of b_scale or b_zero_point, which of rank 2 and more are then
                [..., K / b_group, N], and scale the sums of blocks before these are added. Where b_group does not
                divide K the last block is shorter, and has a row too; one block over all of K is a block. A pair is of
                blocks along both axes, (128, 128) with a b_scale [..., K / 128, N / 128].
             a_group: the same for a, whose a_scale is then [..., M, K / a_group].
             a_global_scale, b_global_scale: beside scales of blocks, a further one for all of a, or for each row of it;
                for all of b, or for each column. It multiplies the finished sum once.
             out_scale: what one unit of an integer result stands for: a float, or float32; of integers with both
                scales. Then sum * a_scale * b_scale / out_scale is rounded once, half to even, as the rational that it
                is, and bias is int32; there is no alpha, c or activation.
             out_zero_point: added to that before it saturates: an int, or an array of out_dtype; default 0.
             a_dtype: int8 or uint8: what float32, float16 or bfloat16 a is quantised to first, in a step of the plan:
                rint(a / a_scale) + a_zero_point, saturating. With an integer out_dtype a_scale does nothing else.
             a_format: a block format of lines, such as "nvfp4", to which float a is quantised first, as `quantize` does
                by a_dialect, default its own. a_global_scale is then what `quantize` takes for it; without one each
                row has its own, so that no row depends on another.
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
    Bits:    numerics.md sections 2, 3 and 4: they depend on the values, the groups and `spec` alone.

    Example, of floats, then of int8 with a scale for a and one for each column of b:
        >>> import numpy as np, samebits as sb
        >>> sb.matmul(np.ones((1, 3), np.float32), np.full((3, 2), 0.5, np.float32))
        array([[1.5, 1.5]], dtype=float32)
        >>> a, b = np.array([[1, 2, 3]], np.int8), np.array([[1, 4], [2, 5], [3, 6]], np.int8)
        >>> sb.matmul(a, b)
        array([[14, 32]], dtype=int32)
        >>> sb.matmul(a, b, a_scale=0.5, b_scale=np.array([0.5, 0.25], np.float32))
        array([[3.5, 4. ]], dtype=float32)
    """
    call = Call("matmul", elements(a), threads)
    if plan is not None and not isinstance(plan, Plan):
        raise OptionError("matmul", "plan", "", shown(plan), "a Plan", "make it with plan_matmul")
    given = Arguments.of(
        call, MATMUL, a, b, bias=bias, activation=activation, alpha=alpha, c=c, beta=beta, a_zero_point=a_zero_point,
        b_zero_point=b_zero_point, a_scale=a_scale, b_scale=b_scale, a_group=a_group, b_group=b_group,
        a_global_scale=a_global_scale, b_global_scale=b_global_scale, out_scale=out_scale,
        out_zero_point=out_zero_point, a_dtype=a_dtype, a_format=a_format, a_dialect=a_dialect, out_dtype=out_dtype,
        spec=spec,
    )  # fmt: skip
    return multiplied(given, out, plan)


def plan_matmul(
    a: Any, b: Any, *, bias: Any = None, activation: str | None = None, alpha: float = 1.0, c: Any = None,
    beta: float = 1.0, a_zero_point: Any = None, b_zero_point: Any = None, a_scale: Any = None, b_scale: Any = None,
    a_group: Any = None, b_group: Any = None, a_global_scale: Any = None, b_global_scale: Any = None,
    out_scale: Any = None, out_zero_point: Any = None, a_dtype: Any = None, a_format: Any = None, a_dialect: Any = None,
    out_dtype: Any = None, out: Any = None, spec: Spec = SB1, threads: int | None = None,
) -> Plan:  # fmt: skip
    """The plan that `matmul` with these arguments runs: printable, with the candidates it rejected and why.

    Args:    as `matmul`; only shapes, strides, dtypes and options matter; no element of a or b is read, but of a beside
             a_format, and no memory is taken for a result. The plan is that of the product of what is quantised.
    Raises:  as `matmul`.
    """
    call = Call("plan_matmul", elements(a), threads)
    given = Arguments.of(
        call, MATMUL, a, b, bias=bias, activation=activation, alpha=alpha, c=c, beta=beta, a_zero_point=a_zero_point,
        b_zero_point=b_zero_point, a_scale=a_scale, b_scale=b_scale, a_group=a_group, b_group=b_group,
        a_global_scale=a_global_scale, b_global_scale=b_global_scale, out_scale=out_scale,
        out_zero_point=out_zero_point, a_dtype=a_dtype, a_format=a_format, a_dialect=a_dialect, out_dtype=out_dtype,
        spec=spec,
    )  # fmt: skip
    contraction = given.into(out)[0].contraction
    threads, machine = call.sized(contraction.work, "products"), tuning.machine(call.isa)
    try:
        return gemm.plan(contraction, call.isa, threads, machine=machine)
    except (DTypeError, PlanError) as error:
        raise MATMUL.worded(call.name, error) from None


@remembered
def linear(
    x: Any, weight: Any, bias: Any = None, *, weight_scale: Any = None, weight_zero_point: Any = None,
    group: Any = None, weight_global_scale: Any = None, x_scale: Any = None, x_group: Any = None,
    x_global_scale: Any = None, x_format: Any = None, x_dialect: Any = None, activation: str | None = None,
    out_dtype: Any = None, out: Any = None, spec: Spec = SB1, threads: int | None = None,
) -> Any:  # fmt: skip
    """activation(x @ weight^T + bias).

    Args:    x: [..., K].   weight: [N, K], as torch keeps it, or `pack(weight.T)`.   bias: [N].   Dtypes as in matmul;
                x and weight may each be a Quantized.
             weight_scale, weight_zero_point: b_scale and b_zero_point of matmul: [] or every extent 1 is one for all
                of the weight, [N] or [N, 1] one for each output channel, a row of it.   group: b_group of matmul; those
                of two axes are then [N, K / group], as checkpoints of quantised weights keep them, or of a pair
                (128, 128) [N / 128, K / 128].   weight_global_scale: b_global_scale of matmul, for all of the weight or
                [N].
             x_scale, x_group, x_global_scale, x_format, x_dialect: a_scale, a_group, a_global_scale, a_format and
                a_dialect of matmul.
             activation, out_dtype, spec: those of matmul.
             out: [..., N] for the result.   threads: at most so many; default every usable core.
    Returns: [..., N] as the kind of array that x is.
    Raises:  as matmul.   Bits: numerics.md sections 2 to 4: those of matmul(x, weight.T, ...).

    Example, int8 weights with a scale for each of two output channels:
        >>> import numpy as np, samebits as sb
        >>> x, weight = np.ones((1, 3), np.float32), np.array([[1, 2, 3], [4, 5, 6]], np.int8)
        >>> sb.linear(x, weight, weight_scale=np.array([0.5, 0.25], np.float32))
        array([[3.  , 3.75]], dtype=float32)
    """
    call = Call("linear", elements(x), threads)
    given = Arguments.of(
        call, LINEAR, x, weight, bias=bias, activation=activation, out_dtype=out_dtype, spec=spec,
        a_scale=x_scale, a_group=x_group, a_global_scale=x_global_scale,
        a_format=x_format, a_dialect=x_dialect,
        b_scale=weight_scale, b_zero_point=weight_zero_point, b_group=group, b_global_scale=weight_global_scale,
    )  # fmt: skip
    return multiplied(given, out)


def pack(
    b: Any, *, left: Any = None, scale: Any = None, zero_point: Any = None, group: Any = None,
    global_scale: float | None = None, spec: Spec = SB1, threads: int | None = None,
) -> gemm.PackedMatrix:  # fmt: skip
    """b[..., K, N] copied into the panels that matmul reads, for a right operand that is used many times.

    Args:    b: [..., K, N] of any dtype of `matmul`, any strides (pass `weight.T` for a weight [N, K]). Or a Quantized
                matrix of blocks with scales, whose K is the axis along which its blocks lie.
             left: the dtype of the left operands to come, a float beside floats; default b's own. Weights, integers
                beside floats, stay integers in their panels, of one byte each (two where they have 8 bits and zero
                points); bfloat16 and float16 take two bytes each, float16 four where no instruction widens it.
             scale, global_scale: b_scale of blocks of `group`, and a number for all of b, which are packed too, beside
                a matrix of elements of at most 8 bits. These keep their codes, of a byte each, or two to a byte where
                they have four bits, no zero points and a K that is a multiple of 8, as that of float4 must be; few rows
                of A decode them as they are read. Products with them take no scale of b then.
             zero_point, group: b_zero_point and b_group of matmul, for weights; products with them take no zero point
                of b then, and without `scale` take scales as before.
             spec: the order of the products to come, for which panels may be made; they serve every order.
             threads: at most so many; default every usable core.
    Returns: a PackedMatrix for the Isa row in force; it can be pickled, and is refused on rows with other panels and
             beside elements that its words cannot be multiplied with.
    Raises:  DTypeError, ShapeError, OptionError, DeviceError.   Bits: a product with it has those of one with b.
    """
    if is_quantized(b):
        b, (scale, zero_point, group, global_scale) = quantized_weight(
            "pack", b, (scale, zero_point, group, global_scale)
        )
    call, arrays = Call("pack", b, threads), dict[str, CallOperand]()
    y = call.operand("b", b)
    check_factor("pack", "b", y.dtype)
    rank = len(y.shape)
    if rank < 2:
        raise ShapeError("pack", "b", "rank", rank, "at least 2", "reshape a vector to [K, 1]")
    batch, (k, n) = y.shape[:-2], y.shape[-2:]
    other, spec = _left(call, left, y.dtype), check_spec(call.name, spec)
    lies, threads = matrix("pack", "b", y.lying, y.shape), call.sized(y.tensor.size, "elements")
    if scale is not None or global_scale is not None:
        given = (scale, zero_point, sharing.block_of("pack", PACK.b_group, group, False), global_scale)
        return packed_scaled(call, y, other, given, threads)
    machine, zeros = tuning.machine(call.isa), dict[str, Parameter]()
    if y.dtype.is_integer and other.is_float and other is not dtypes.float64:
        lines = Lines.of_b(PACK, n, k, batch, rank)
        point: Any = None
        if zero_point is not None:
            point = parameter(call, "zero_point", "b_zero_point", zero_point, arrays)
        size = sharing.block_of("pack", PACK.b_group, group, False)
        zeros = sharing.by_block("pack", PACK, lines, None, point, size, other, lies)
        engine = engines.of_weights(y.dtype, bool(zeros))
    elif zero_point is not None or group is not None:
        actual, remedy = f"given for {y.dtype.name} beside {other.name}", "pass left= and integers"
        raise OptionError("pack", "zero_point or group", "", actual, "left out", remedy)
    else:
        engine = selection.packer_for(other, y.dtype, call.isa, machine, spec)
    zero = zeros["b_zero"].shared if zeros else None
    plan = gemm.plan_pack(k, n, lies, call.isa, threads, batch, engine, other, machine, zero)
    panels = Tensor.empty((gemm.packed_elements(k, n, call.isa, batch, engine, machine),), engine.word)
    if panels.size:
        points = [operand_of(call, x.operand, arrays) for x in zeros.values()]
        call.run(Prepared(plan), y.in_bytes(), *points, call.own(panels))
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
