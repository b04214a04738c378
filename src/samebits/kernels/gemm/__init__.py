"""Matrix products by numerics.md section 2, float32.

    plan(contraction, isa, threads=1) -> Plan           operands: a, b, matrix sources in order, out
    plan_pack(k, n, b, isa, threads=1, batch=()) -> Plan    operands: b, panels (`packed_elements` float32)
    reference(a, b, spec=...) -> array

`contraction.Contraction` says what a product is; `microkernel`, `macrokernel`, `stream`, `pack`, `epilogue` are its
kernel text; `tiles`, `normal` and `plan` choose. Start at `plan.plan`.
"""

from samebits.kernels.gemm.contraction import (
    SB1,
    Contraction,
    Immediate,
    Matrix,
    Panels,
    PerBlock,
    Spec,
    fused,
    requantized,
)
from samebits.kernels.gemm.packed import PackedMatrix
from samebits.kernels.gemm.plan import packed_elements, panel_columns, plan, plan_pack
from samebits.kernels.gemm.reference import reference

__all__ = [
    "SB1",
    "Contraction",
    "Immediate",
    "Matrix",
    "PackedMatrix",
    "Panels",
    "PerBlock",
    "Spec",
    "fused",
    "packed_elements",
    "panel_columns",
    "plan",
    "plan_pack",
    "reference",
    "requantized",
]
