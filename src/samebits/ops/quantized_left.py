"""A left operand of floats that a product quantises to a block format first. Start at `quantized_left`."""

from __future__ import annotations

from typing import Any

from samebits.errors import OptionError, SamebitsError, ShapeError
from samebits.operations.names import Names
from samebits.ops.call import Call, as_tensor
from samebits.ops.quantized_operands import is_quantized


def quantized_left(call: Call, names: Names, a: Any, format: Any, dialect: Any, given: dict[str, Any]) -> Any:
    """a as `quantize` gives it, each row with a global scale of its own unless one is given, which leaves `given`.

    Raises:  OptionError if a's parts are given too, or rows would share scales; and as `quantize`, in the call's words.
    """
    # Products that quantise nothing do not wait for these to load.
    from samebits.kernels.quantize import formats
    from samebits.ops.quantize import quantize

    option, value = names.a_format, "a Quantized" if is_quantized(a) else None
    for key in ("a_scale", "a_group", "a_zero_point", "a_dtype"):
        value = getattr(names, key, key) if given.get(key) is not None else value
    if value is not None:
        raise OptionError(call.name, option, "", f"given beside {value}", "left out", f"quantise {names.a} once")
    called = {"x": names.a, "format": option, "dialect": names.a_dialect, "global_scale": names.a_global_scale}
    whole = given.pop("a_global_scale", None)
    x = as_tensor(call.name, names.a, a)
    if x.ndim < 2:
        remedy = "reshape it to one row"
        raise ShapeError(call.name, names.a, "rank", x.ndim, f"at least 2 beside {option}", remedy)
    try:
        row = formats.of(format)
        if row.block[0] != 1:
            expected = "a format of lines of blocks, so that rows keep to themselves"
            raise OptionError(call.name, "format", "", row, expected, f"quantise {names.a} before")
        whole = "row" if whole is None and row.global_scale is not None else whole
        return quantize(x, row, dialect=dialect, global_scale=whole, threads=call.threads)
    except SamebitsError as error:
        raise error.renamed(call.name, called.get(error.operand, error.operand)) from None
