"""The operations of a definition as nvFuser prints them. Start at `equations`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from samebits.fusion.graph import Argument, Expr, TensorView, Val

__all__ = ["equations"]

_SYMBOLS = {
    "add": "+", "sub": "-", "mul": "*", "div": "/", "truediv": "/", "mod": "%", "eq": "==", "ne": "!=", "lt": "<",
    "le": "<=", "gt": ">", "ge": ">=", "logical_and": "&&", "logical_or": "||", "bitwise_and": "&", "bitwise_or": "|",
    "bitwise_xor": "^", "bitwise_left_shift": "<<", "bitwise_right_shift": ">>",
}  # fmt: skip


def equations(inputs: Iterable[Val], outputs: Iterable[TensorView], exprs: Iterable[Expr]) -> str:
    """Inputs, outputs, and each operation with its operands' axes."""
    text = "Inputs:\n" + _list(inputs) + "Outputs:\n" + _list(outputs)
    return text + "\n%kernel_math {\n" + "".join(map(_equation, exprs)) + "} // %kernel_math \n\n"


def _list(values: Iterable[Val]) -> str:
    return "".join(f"  {x}\n" for x in values)


def _equation(expr: Expr) -> str:
    made = ",\n".join(map(str, expr.outputs))
    if expr.op in _SYMBOLS:
        x, y = expr.args
        return f"{made}\n   = {x}\n   {_SYMBOLS[expr.op]} {y};\n"
    words = [*map(_shown, expr.args), *[f"{name} = {_shown(value)}" for name, value in expr.options]]
    return f"{made}\n   = {expr.op}({', '.join(words)});\n"


def _shown(x: Argument) -> str:
    return f"[{', '.join(map(_shown, x))}]" if isinstance(x, list | tuple) else str(x)
