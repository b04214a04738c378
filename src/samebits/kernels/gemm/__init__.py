"""Matrix products by numerics.md sections 2 to 5.

    plan(contraction, isa, threads=1) -> Plan           operands: a, b, matrix sources in order, out
    plan_pack(k, n, b, isa, threads=1, batch=()) -> Plan    operands: b, panels (`packed_elements` words)
    reference(a, b, spec=...) -> array

`contraction.Contraction` says what a product is; `microkernel`, `macrokernel`, `stream`, `pack`, `epilogue` are its
kernel text; `choice` chooses: `selection` the engine, `form` where panels come from, `tiles` registers, `tasks` what
threads share, all by a row of `machine`; `checks` refuses what kernels would overrun; `panels` packs right operands.
Start at `plan.plan`.
"""

from samebits.kernels.gemm.contraction import (
    LINE,
    SB1,
    TENSOR,
    Contraction,
    Immediate,
    Matrix,
    Panels,
    Shared,
    Side,
    Spec,
    fused,
    requantized,
)
from samebits.kernels.gemm.packed import PackedFacts, PackedMatrix
from samebits.kernels.gemm.panels import packed_elements, panel_columns, plan_pack
from samebits.kernels.gemm.plan import plan
from samebits.kernels.gemm.reference import reference

__all__ = [
    "LINE",
    "SB1",
    "TENSOR",
    "Contraction",
    "Immediate",
    "Matrix",
    "PackedFacts",
    "PackedMatrix",
    "Panels",
    "Shared",
    "Side",
    "Spec",
    "fused",
    "packed_elements",
    "panel_columns",
    "plan",
    "plan_pack",
    "reference",
    "requantized",
]
