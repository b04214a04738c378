"""The meaning of a program: every node by its operation's NumPy reference, in order; slow and independent.

Start at `run`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from samebits import driver, dtypes
from samebits.errors import ShapeError
from samebits.operations.operation import Array
from samebits.program.constants import Value, array_of
from samebits.program.graph import Program
from samebits.runtime import limits
from samebits.runtime.inputs import bind_symbols, check_names, check_outputs
from samebits.tensor import Tensor

__all__ = ["run", "run_all"]


def run(program: Program, inputs: Mapping[str, Value], outputs: Sequence[str] | None = None) -> dict[str, Array]:
    """The outputs of a program for given inputs.

    Raises:  OptionError, DTypeError or ShapeError if the inputs do not fit.
    """
    names = check_outputs(program, outputs)
    values = run_all(program, inputs)
    return {name: values[name] for name in names}


@driver.default_float_environment()
def run_all(program: Program, inputs: Mapping[str, Value]) -> dict[str, Array]:
    """Every value of a program, by name."""
    check_names(program, inputs)
    arrays = {name: array_of(x) if isinstance(x, Tensor) else np.asarray(x) for name, x in inputs.items()}
    symbols = bind_symbols(program, arrays)
    values = {name: array_of(constant) for name, constant in program.constants.items()} | arrays
    facts = {name: program.facts[name].bind(symbols) for node in program.nodes for name in node.outputs}
    # Every value is kept.
    makers = [(node, name) for node in program.nodes for name in node.outputs]
    limits.check_total(sum(limits.check_value(node, name, facts[name], program.outputs) for node, name in makers))
    for node in program.nodes:
        try:
            made = node.bind(symbols).computed([values[name] for name in node.inputs])
        except MemoryError:
            raise limits.no_memory(f"node {node.label!r}") from None
        for name, array in zip(node.outputs, made, strict=True):
            expected = facts[name]
            if array.shape != expected.shape or dtypes.of(array.dtype) is not expected.dtype:
                found = f"{array.dtype}{list(array.shape)}"
                remedy = f"give inputs that node {node.label!r} can take"
                raise ShapeError("run", f"value {name!r}", "", found, expected, remedy)
            values[name] = array
    return values
