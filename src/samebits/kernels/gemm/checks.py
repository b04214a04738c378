"""What a contraction must be for its kernels, which read and write what it says: anything else would be overrun.

`choice.choose` asks before it decides. Messages are in the words of `matmul`; start at `check_operands`.
"""

from __future__ import annotations

from samebits.codegen.isa import Isa
from samebits.dtypes import ROWS, bfloat16, float16, float32
from samebits.errors import PlanError
from samebits.kernels.gemm import engine as engines
from samebits.kernels.gemm.contraction import Contraction, Matrix, Panels
from samebits.kernels.gemm.engine import Engine

# Floats that are sources beside float32: they are widened exactly.
_WIDENED = tuple(row for row in ROWS if row.is_float and row.width_bits <= 16 and row.width_bits % 8 == 0)


def check_operands(c: Contraction, nr: int, isa: Isa, engine: Engine) -> None:
    """A sum that goes on is a float product as it is; panels are as wide as those of the row.

    Raises:  PlanError.
    """
    if c.accumulates and (c.epilogue is not None or c.spec.segments > 1 or not engine.total.is_float):
        actual = "an epilogue, segments or integers"
        remedy = "accumulate a float product as it is"
        raise PlanError("matmul", "accumulates", "", f"beside {actual}", f"without {actual}", remedy)
    if isinstance(c.b, Panels) and c.b.nr != nr:
        expected = f"{nr} on Isa row {isa.name}"
        raise PlanError("matmul", "b", "panel width", c.b.nr, expected, "pack it again with pack()")


def check_dtypes(c: Contraction, engine: Engine) -> None:
    """Sources and out are of the dtypes that the epilogue reads and writes, or exactly convert to them.

    Raises:  PlanError.
    """
    e = c.epilogue
    if e is not None and len(e.inputs) != 1 + len(c.sources):
        expected = f"{len(e.inputs) - 1}, as the epilogue's inputs after t are"
        raise PlanError("matmul", "sources", "count", len(c.sources), expected, "list each input's source")
    if e is not None and e.inputs[0] is not engine.total:
        remedy = "give the epilogue an input of that dtype"
        raise PlanError("matmul", "t", "dtype", e.inputs[0].name, engine.total.name, remedy)
    result = e.dtype(e.outputs[0]) if e else engine.total
    taken = [*(e.inputs[1:] if e else ()), result]
    names = [*(f"source {i}" for i in range(1, len(taken))), "out"]
    other = {"out": (float16, bfloat16)}
    for name, x, dtype in zip(names, (*(c.sources if e else ()), c.out), taken, strict=True):
        if x.dtype is dtype or (dtype is float32 and x.dtype in other.get(name, _WIDENED)):
            continue
        raise PlanError("matmul", name, "dtype", x.dtype.name, dtype.name, "describe it as it lies")


def check_blocks(c: Contraction, engine: Engine) -> None:
    """What blocks of b share is a float32 or less, and section 4 sums integers exactly.

    Raises:  PlanError.
    """
    for name, x in c.per_block.items():
        if x.size < 1:
            raise PlanError("matmul", name, "block", x.size, "at least 1", "count the elements of a block")
        dtype = x.matrix.dtype
        expected = "an integer of at most 8 bits" if x is c.b_zero else "float32 or a narrower float"
        if not (
            dtype is float32 or dtype in _WIDENED if x is c.b_scale else dtype.is_integer and dtype.width_bits <= 8
        ):
            raise PlanError("matmul", name, "dtype", dtype.name, expected, "convert it first")
    if c.per_block and engine.total is not float32:
        actual = f"beside {engine.total.name}"
        raise PlanError("matmul", "b_scale or b_zero", "per block", actual, "beside float32", "convert a")
    if c.b_zero is not None and not (c.b.dtype.is_integer and isinstance(c.b, Matrix)):
        actual = "packed b" if isinstance(c.b, Panels) else c.b.dtype.name
        remedy = "give it to pack" if isinstance(c.b, Panels) else "subtract it before"
        raise PlanError("matmul", "b_zero", "", f"given for {actual}", "left out", remedy)
    if c.per_block and c.a.dtype.is_integer and c.b.dtype.is_integer:
        longest = min(c.spec.chunk, c.k, *(x.size for x in c.per_block.values()))
        most = longest * engines.span(c.a.dtype, False) * engines.span(c.b.dtype, c.b_zero is not None)
        if most > engines.EXACT:
            expected = "so short that sums of a block are exact in float32"
            raise PlanError("matmul", "b_scale", "block", longest, expected, "use the default spec")
