"""Per-element operations: `ROWS`, `row(name)`, and the rule for the dtype of a result.

`rows` holds the table, `texts` what a kernel is written with and the table does not hold: `quantized`, `requantized`
and `whole` texts of several words; `rounded` that of all correctly rounded functions, whose rows are in `exponentials`,
`logarithms`, `trigonometric` and `error_function`; where registers have eight lanes or more `paired_exponential` has
exp and exp2, `paired_quotients` sigmoid and tanh, and `paired_error`, with `error_nodes`, erf; where they have sixteen
`paired_logarithm` logarithms, `bounded_gelu` gelu of bfloat16; `exact` and `decimals` the independent meanings.
"""

from __future__ import annotations

from samebits import dtypes
from samebits.dtypes import DType
from samebits.errors import DTypeError, OptionError
from samebits.kernels.functions.rows import MEANT, ROWS, FunctionRow

__all__ = ["MEANT", "ROWS", "FunctionRow", "result_dtype", "row"]

_BY_NAME = {entry.name: entry for entry in ROWS}


def row(name: str) -> FunctionRow:
    """The row called `name`.

    Raises:  OptionError if there is none.
    """
    try:
        return _BY_NAME[name]
    except KeyError:
        raise OptionError(
            "functions.row", "name", "", repr(name), "a row of functions.ROWS", "compose it of other rows"
        ) from None


def result_dtype(name: str, arguments: tuple[DType, ...], cast_to: DType | None = None) -> DType:
    """The dtype of `name(*arguments)`.

    Args:    cast_to: what a `cast` or `bitcast` converts to; None for every other operation.
    Raises:  DTypeError if the row does not take these arguments.
    """
    entry = row(name)
    pairs = list(zip(arguments, entry.accepts, strict=False))
    taken = [argument.name in accepted for argument, accepted in pairs]
    kinds = {accepted: argument for argument, accepted in pairs}
    alike = all(kinds[accepted] is argument for argument, accepted in pairs if len(accepted) > 1)
    if len(arguments) != entry.arity or not all(taken) or not alike:
        expected = ", ".join(MEANT.get(accepted, "/".join(sorted(accepted))) for accepted in entry.accepts)
        raise DTypeError(name, "arguments", "dtypes", arguments, f"({expected}), alike", "convert them first")
    if entry.result == "any":
        if cast_to is None:
            raise DTypeError(name, "dtype", "", None, "the dtype to convert to", "pass dtype=")
        if name == "bitcast" and cast_to.width_bits != arguments[0].width_bits:
            expected = f"one of {arguments[0].width_bits} bits, as {arguments[0]} is"
            raise DTypeError(name, "dtype", "", cast_to, expected, "cast, or view the memory")
        return cast_to
    return arguments[-1] if entry.result == "like" else dtypes.of(entry.result)
