"""Weights of four bits packed with the scales of their blocks. Start at `packed_scaled`."""

from __future__ import annotations

from typing import Any

from samebits import dtypes, tuning
from samebits.dtypes import DType
from samebits.errors import OptionError, ShapeError
from samebits.kernels import gemm
from samebits.kernels.gemm import nibbles
from samebits.kernels.gemm.engine import NIBBLES, named
from samebits.operations.lying import matrix
from samebits.operations.names import PACK
from samebits.operations.sharing import Block, Lines, by_block
from samebits.ops.call import Call
from samebits.ops.product import in_bytes, number, parameter
from samebits.ops.recipe import CallOperand, Prepared
from samebits.tensor import Tensor


def packed_scaled(
    call: Call, y: CallOperand, left: DType, given: tuple[Any, Any, Block | None, Any], threads: int
) -> gemm.PackedMatrix:
    """y, a matrix [K, N], in panels of four bits with its scales behind.

    Args:    left: the dtype of the left operands to come.   given: scale, zero point, block, global scale.
    Raises:  OptionError, ShapeError, DTypeError.
    """
    scale, zero, block, whole = given
    kinds = [row.b for row in NIBBLES]
    if y.dtype not in kinds or not left.is_float or left is dtypes.float64 or len(y.shape) != 2:
        shown = f"given for {y.dtype.name} {list(y.shape)} beside {left.name}"
        expected = "left out, or for a matrix of four bits beside floats"
        raise OptionError("pack", "scale", "", shown, expected, "pass it with the product")
    if scale is None or block is None or zero is not None:
        actual = "given without scale and group" if zero is None else "given beside a zero point"
        expected, remedy = "given with scales of blocks alone", "pass scale= and group=, or all with the product"
        raise OptionError("pack", "scale or global_scale", "", actual, expected, remedy)
    (k, n), arrays = y.shape, dict[str, CallOperand]()
    if k % 8:
        remedy = "pass b unpacked"
        raise ShapeError("pack", "b", "row count", k, "a multiple of 8 for elements of four bits with scales", remedy)
    lies = matrix("pack", "b", y.lying, y.shape)
    columns = Lines.of_b(PACK, n, k, (), 2)
    fact: Any = parameter(call, "scale", "b_scale", scale, arrays)
    shared = by_block("pack", PACK, columns, fact, None, block, left, lies)["b_scale"].shared
    engine, machine = named(f"{y.dtype.name} nibbles"), tuning.machine(call.isa)
    nr, kept = gemm.panel_columns(call.isa, engine, machine), nibbles.scale_of(shared.operand.dtype)
    size = gemm.packed_elements(k, n, call.isa, (), engine, machine)
    panels = Tensor.empty((size + nibbles.size_scales(k, n, nr, block.size, kept),), engine.word)
    if panels.size:
        plan = nibbles.plan_pack(k, n, lies, shared, nr, call.isa, threads)
        call.run(Prepared(plan), in_bytes(y), arrays["b_scale"], call.own(panels))
    one = None if whole is None else number(call, "global_scale", whole).value
    return gemm.PackedMatrix(
        panels, y.shape, nr, call.isa.name, y.dtype, engine.name, block=block.size, scale=kept, global_scale=one
    )  # fmt: skip
