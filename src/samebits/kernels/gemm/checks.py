"""What a contraction must be for its kernels, which read and write what it says: anything else would be overrun.

`choice.choose` asks before it decides. Messages are in the words of `matmul`; start at `check_operands`.
"""

from __future__ import annotations

from samebits.codegen.isa import Isa
from samebits.dtypes import ROWS, bfloat16, float16, float32, int16, uint8
from samebits.errors import PlanError
from samebits.kernels.gemm import engine as engines
from samebits.kernels.gemm.contraction import Contraction, Matrix, Panels
from samebits.kernels.gemm.engine import Engine

# Floats that are sources beside float32: they are widened exactly.
_WIDENED = tuple(row for row in ROWS if row.is_float and row.width_bits <= 16 and row.width_bits % 8 == 0)
# What a float32 result may be stored as.
_ROUNDED = (float16, bfloat16)


def check_operands(c: Contraction, nr: int, isa: Isa, engine: Engine) -> None:
    """A sum that goes on is a float product as it is; panels are as wide as those of the row.

    Raises:  PlanError.
    """
    if c.accumulates and (c.epilogue is not None or c.spec.segments > 1 or not engine.total.is_float):
        actual = "an epilogue, segments or integers"
        remedy = "accumulate a float product as it is"
        raise PlanError("matmul", "accumulates", "", f"beside {actual}", f"without {actual}", remedy)
    if isinstance(c.b.values, Panels) and c.b.values.nr != nr:
        expected = f"{nr} on Isa row {isa.name}"
        raise PlanError("matmul", "b", "panel width", c.b.values.nr, expected, "pack it again with pack()")


def check_sides(c: Contraction) -> None:
    """Blocks of a and of b have scales, those of b zero points; only a is quantised, by a scale for all of it or for
    each row.

    Raises:  PlanError.
    """
    for name, side in (("a", c.a), ("b", c.b), ("out", c.out)):
        if side.is_bare and not side.quantised_from:
            continue
        for what, x in (("scale", side.scale), ("zero", side.zero), ("global_scale", side.global_scale)):
            allowed = (what, name) in (("scale", "a"), ("scale", "b"), ("zero", "b"))
            if x is not None and x.is_by_block and not allowed:
                expected, remedy = "one for all, or one for each line", "give blocks to b"
                raise PlanError("matmul", f"{name}_{what}", "", f"per block of {x.size}", expected, remedy)
        if side.global_scale is not None and not side.is_scaled_by_block:
            expected, remedy = "left out, or beside scales of blocks", f"pass it as {name}_scale"
            raise PlanError("matmul", f"{name}_global_scale", "", "given alone", expected, remedy)
        if side.quantised_from and (side is not c.a or side.scale is None or side.is_scaled_by_block):
            actual = "given for blocks of a" if side.is_scaled_by_block else "given without a_scale"
            actual = actual if side is c.a else f"given for {name}"
            raise PlanError("matmul", "quantised_from", "", actual, "beside a and a_scale", "quantise it before")


def check_dtypes(c: Contraction, engine: Engine) -> None:
    """Sources and out are of the dtypes that the epilogue reads and writes, or exactly convert to them.

    Raises:  PlanError.
    """
    e, inputs = c.epilogue, c.inputs
    if e is None and inputs:
        actual, expected = f"None beside {', '.join(c.operands[2 + len(c.by_block) : -1])}", "an expression of these"
        raise PlanError("matmul", "epilogue", "", actual, expected, "make it with fused")
    if e is not None and len(e.inputs) != 1 + len(inputs):
        expected = f"{len(e.inputs) - 1 - len(c.shared)}, as the epilogue's inputs after t are"
        raise PlanError("matmul", "sources", "count", len(c.sources), expected, "list each input's source")
    if e is not None and e.inputs[0] is not engine.total:
        remedy = "give the epilogue an input of that dtype"
        raise PlanError("matmul", "t", "dtype", e.inputs[0].name, engine.total.name, remedy)
    result = e.dtype(e.outputs[0]) if e else engine.total
    taken, given = [*(e.inputs[1:] if e else ()), result], [*(inputs if e else ()), c.out]
    for number, (x, dtype) in enumerate(zip(given, taken, strict=True), 1):
        others = _ROUNDED if x is c.out else _WIDENED
        if x.dtype is dtype or (dtype is float32 and x.dtype in others):
            continue
        names = [*c.shared, *(f"source {i}" for i in range(len(c.shared) + 1, len(taken))), "out"]
        raise PlanError("matmul", names[number - 1], "dtype", x.dtype.name, dtype.name, "describe it as it lies")


def check_blocks(c: Contraction, engine: Engine) -> None:
    """What blocks share is a float32 or less, and section 4 sums integers exactly.

    Raises:  PlanError.
    """
    if not c.by_block:
        return
    for name, x in c.by_block.items():
        if x.size < 1 or x.lines < 1:
            raise PlanError("matmul", name, "block", x.size, "at least 1", "count the elements of a block")
        dtype = x.operand.dtype
        is_zero = name == "b_zero"
        expected = "an integer of at most 8 bits" if is_zero else "float32 or a narrower float"
        if not (dtype.is_integer and dtype.width_bits <= 8 if is_zero else dtype is float32 or dtype in _WIDENED):
            raise PlanError("matmul", name, "dtype", dtype.name, expected, "convert it first")
    if engine.total is not float32:
        actual = f"beside {engine.total.name}"
        raise PlanError("matmul", "b_scale or b_zero", "per block", actual, "beside float32", "convert a")
    if "b_zero" in c.by_block and not (c.b.dtype.is_integer and isinstance(c.b.values, Matrix)):
        actual = "packed b" if isinstance(c.b.values, Panels) else c.b.dtype.name
        remedy = "give it to pack" if isinstance(c.b.values, Panels) else "subtract it before"
        raise PlanError("matmul", "b_zero", "", f"given for {actual}", "left out", remedy)
    if c.a.dtype.is_integer and c.b.dtype.is_integer:
        longest = min(c.spec.chunk, c.k, *(x.size for x in c.by_block.values()))
        most = longest * engines.span(c.a.dtype, False) * _span_of_b(c)
        if most > engines.EXACT:
            expected = "so short that sums of a block are exact in float32"
            raise PlanError("matmul", "b_scale", "block", longest, expected, "use the default spec")


def _span_of_b(c: Contraction) -> int:
    """The largest magnitude of an integer of b without its zero point, whose format may be wider than that of b."""
    if c.b.dtype is int16:  # weights of 8 bits that their zero points have left
        return engines.span(uint8, True)
    zero = c.by_block.get("b_zero")
    if zero is None:
        return engines.span(c.b.dtype, False)
    point = zero.operand.dtype
    return int(max(c.b.dtype.max - point.min, point.max - c.b.dtype.min))
