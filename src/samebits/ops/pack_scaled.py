"""Weights of at most 8 bits packed with the scales of their blocks. Start at `packed_scaled`."""

from __future__ import annotations

from typing import Any

from samebits import dtypes, tuning
from samebits.dtypes import DType
from samebits.errors import OptionError, ShapeError
from samebits.kernels import gemm
from samebits.kernels.gemm import nibble_panels
from samebits.kernels.gemm.engine import NIBBLES, WEIGHTS, of_coded
from samebits.kernels.gemm.packed import size_scaled
from samebits.operations.lying import matrix
from samebits.operations.names import PACK
from samebits.operations.sharing import Block, Lines, Parameter, by_block
from samebits.ops.call import Call
from samebits.ops.product import number, operand_of, parameter
from samebits.ops.recipe import CallOperand, Prepared
from samebits.tensor import Tensor


def packed_scaled(
    call: Call, y: CallOperand, left: DType, given: tuple[Any, Any, Block | None, Any], threads: int
) -> gemm.PackedMatrix:
    """y, a matrix [K, N], in panels that keep its codes, with its scales behind.

    Args:    left: the dtype of the left operands to come.   given: scale, zero point, block, global scale.
    Raises:  OptionError, ShapeError, DTypeError.
    """
    scale, zero, block, whole = given
    kinds = [row.b for row in (*NIBBLES, *WEIGHTS)]
    is_narrow = y.dtype in kinds or (y.dtype.is_integer and y.dtype.width_bits <= 8)
    if not is_narrow or left is dtypes.float64 or len(y.shape) != 2:
        shown = f"given for {y.dtype.name} {list(y.shape)} beside {left.name}"
        expected = "left out, or for integers or signed floats of at most 8 bits, [K, N], beside float32 or narrower"
        raise OptionError("pack", "scale", "", shown, expected, "pass it with the product")
    if scale is None or block is None:
        name, missing = ("global_scale", "scale") if scale is None else ("scale", "group")
        actual, expected = f"given without {missing}", "given beside scale and group, for scales of blocks"
        remedy = f"pass {missing}= too, or {name} with the product"
        raise OptionError("pack", name, "", actual, expected, remedy)
    (k, n), arrays = y.shape, dict[str, CallOperand]()
    columns, lies = Lines.of_b(PACK, n, k, (), 2), matrix("pack", "b", y.lying, y.shape)
    facts: list[Any] = [
        None if value is None else parameter(call, name, key, value, arrays)
        for name, key, value in (("scale", "b_scale", scale), ("zero_point", "b_zero_point", zero))
    ]
    found = by_block("pack", PACK, columns, facts[0], facts[1], block, left, lies)
    if "b_scale" not in found:
        expected = "one for each block of group"
        raise OptionError("pack", "scale", "", "one for more than a block", expected, "pass it with the product")
    engine, machine = of_coded(y.dtype, zero is not None, k), tuning.machine(call.isa)
    if engine is None:
        remedy = "pass b unpacked"
        raise ShapeError("pack", "b", "row count", k, f"a multiple of 8 for {y.dtype.name} with scales", remedy)
    nr, kept = gemm.panel_columns(call.isa, engine, machine), engine.kept_scale(found["b_scale"].shared.operand.dtype)
    panels = Tensor.empty((size_scaled(k, n, nr, engine, block.size, kept),), engine.word)
    if panels.size:
        shared = [found[name].shared if name in found else None for name in ("b_scale", "b_zero")]
        if engine in NIBBLES:
            plan = nibble_panels.plan_pack(k, n, lies, found["b_scale"].shared, nr, call.isa, threads)
        else:
            plan = gemm.plan_pack(k, n, lies, call.isa, threads, (), engine, left, machine, *shared[::-1])
        call.run(Prepared(plan), y.in_bytes(), *_operands(call, found, arrays), call.own(panels))
    one = None if whole is None else number(call, "global_scale", whole).value
    return gemm.PackedMatrix(
        panels, y.shape, nr, call.isa.name, y.dtype, engine.name, block=block.size, scale=kept, global_scale=one
    )  # fmt: skip


def _operands(call: Call, found: dict[str, Parameter], arrays: dict[str, CallOperand]) -> list[CallOperand]:
    """The scales and the zero points, if there are any."""
    return [operand_of(call, x.operand, arrays) for x in found.values()]
