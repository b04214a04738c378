"""A definition as text: Python that defines it again, in nvFuser's spelling. Start at `python`."""

from __future__ import annotations

from samebits.fusion.datatypes import DataType
from samebits.fusion.graph import Argument, Expr, Fusion, Scalar, TensorView, Val, number

__all__ = ["python"]

# Formats whose constants are written as Python numbers; others are defined by define_scalar.
_PLAIN = (DataType.Bool, DataType.Int, DataType.Double)


# Products that give their result and its scales, where their operands have scales.
_OF_THREE = ("grouped_mm", "scaled_mm")


class _Python:
    """The lines of a definition."""

    def __init__(self, fusion: Fusion) -> None:
        self.fusion = fusion
        self.lines = ["def nvfuser_fusion(fd : FusionDefinition) -> None :"]
        self._known: dict[Val, None] = {}

    def write(self) -> str:
        for x in self.fusion.inputs:
            self._known[x] = None
            if isinstance(x, TensorView):
                self._line(f"tv{x.name} = {_define(x)}")
            else:
                self._line(f"c{x.name} = fd.define_scalar(None, dtype={x.dtype})")
        for expr in self.fusion.sorted_exprs():
            self._expr(expr)
        for output in self.fusion.outputs:
            alias = "" if output.alias is None else f", tv{output.alias.name}"
            self._line(f"fd.add_output(tv{output.tensor.name}{alias})")
        return "\n".join(self.lines) + "\n"

    def _line(self, text: str) -> None:
        self.lines.append(f"    {text}")

    def _expr(self, expr: Expr) -> None:
        if all(x in self._known for x in expr.outputs):
            return
        words = [self._word(x) for x in expr.args]
        words += [f"{name}={self._word(value)}" for name, value in expr.options if value is not None]
        made = ", ".join(f"tv{x.name}" if isinstance(x, TensorView) else f"c{x.name}" for x in expr.outputs)
        if expr.op in _OF_THREE and expr.options:  # scales of a result that has none are None
            made += ", _, _"
        self._line(f"{made} = fd.ops.{expr.op}({', '.join(words)})")
        self._known.update(dict.fromkeys(expr.outputs))

    def _word(self, x: Argument) -> str:
        """An argument; lines that define it come before."""
        if isinstance(x, TensorView):
            return f"tv{x.name}"
        if isinstance(x, Scalar):
            return self._scalar(x)
        if isinstance(x, list | tuple):
            return f"[{', '.join(map(self._word, x))}]"
        return number(x) if isinstance(x, bool | int | float) else str(x)

    def _scalar(self, x: Scalar) -> str:
        if x.value is not None and x.dtype in _PLAIN:
            return number(x.value)
        if x in self._known:
            return f"c{x.name}"
        if x.value is not None:
            self._line(f"c{x.name} = fd.define_scalar({number(x.value)}, dtype={x.dtype})")
        elif (found := self.fusion.axis_of(x, self._known)) is not None:
            self._line(f"c{x.name} = fd.ops.size(tv{found[0].name}, dim={found[1]})")
        else:
            assert x.definition is not None  # extents of inputs are found among their axes
            self._expr(x.definition)
        self._known[x] = None
        return f"c{x.name}"


def _define(x: TensorView) -> str:
    """The call that defines an input."""
    words = [-1 if axis.length.value is None else int(axis.length.value) for axis in x.axes]
    text = f"fd.define_tensor(shape={words}, contiguity={list(x.contiguity or ())}, dtype={x.dtype}, is_cpu={x.is_cpu}"
    return text + (f", stride_order={list(x.stride_order)})" if x.stride_order else ")")


def python(fusion: Fusion) -> str:
    """Python that defines the fusion again: a function `nvfuser_fusion(fd)`."""
    return _Python(fusion).write()
