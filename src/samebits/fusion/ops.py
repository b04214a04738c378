"""`fd.ops`: nvFuser's operations by its names.

Elementwise ones are `elementwise.ROWS`; the others are functions of the modules here. What each becomes in a program is
in `LOWERED`. What is not there is refused by name, with the reason. Start at `docs/fusion.md`, which lists all of them.
"""

from __future__ import annotations

import sys
from typing import Any

from samebits.errors import FusionError, FusionTypeError
from samebits.fusion import (
    elementwise,
    factories,
    grouped,
    grouped_scales,
    indexing,
    picking,
    products,
    quantizing,
    random,
    reductions,
    scaled,
    shaping,
    ternary,
)
from samebits.fusion.graph import Val

__all__ = ["LOWERED", "REFUSED"]

# Names of nvFuser's that are not there, and why.
REFUSED: dict[str, str] = {
    **dict.fromkeys(
        ("acos", "acosh", "asin", "asinh", "atan", "atanh", "atan2", "cosh", "sinh", "tan", "erfc", "erfinv",
         "erfcinv", "lgamma"),
        "no sequence of roundings is written for it in numerics.md",
    ),
    **dict.fromkeys(("complex", "imag", "real"), "complex numbers are not computed with"),
    **dict.fromkeys(("sdpfa_fwd", "sdpfa_bwd"), "attention is written with matmul, max, exp and sum"),
    "cutlass_nvfp4_grouped_mm": "it names a kernel of a GPU",
}  # fmt: skip


def _elementwise(name: str, count: int) -> Any:
    """The function of a row."""

    def operation(*operands: object) -> Val:
        if len(operands) != count:
            expected = f"{count}"
            raise FusionTypeError(name, "operands", "count", len(operands), expected, "pass one for each operand")
        return elementwise.define(name, *operands)

    operation.__name__ = operation.__qualname__ = name
    operation.__doc__ = f"""{name} of each element: nvFuser's operation, by numerics.md's rules.

    Raises:  FusionError if operands do not fit each other or the operation.
    """
    return operation


for _name in elementwise.ROWS:
    globals()[_name] = _elementwise(_name, 1 if _name in elementwise.UNARY else 2)
LOWERED = dict(elementwise.LOWERED)
for _module in (
    ternary,
    reductions,
    shaping,
    products,
    indexing,
    picking,
    factories,
    quantizing,
    random,
    grouped,
    grouped_scales,
    scaled,
):
    LOWERED |= _module.LOWERED
    for _name in _module.__all__:
        if _name != "LOWERED":
            globals()[_name] = getattr(_module, _name)


def __getattr__(name: str) -> Any:
    """Refuse an operation of nvFuser's that is not there."""
    if name in REFUSED:
        raise FusionError(
            "fd.ops", name, "", "not there", "an operation of docs/fusion.md", f"leave it out: {REFUSED[name]}"
        )
    # With these two Python's traceback says which name may have been meant.
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name, obj=sys.modules[__name__])
