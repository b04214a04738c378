"""The eager `cast`: numbers to elements of another format, by the conversion that its options say.

numerics.md section 9 has the bits. Start at `cast`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from samebits import conversions
from samebits.conversions import PRESETS, Conversion, Infinity, Overflow, Rounding
from samebits.dtypes import DType
from samebits.errors import DTypeError, OptionError, shown
from samebits.operations.conversion import Converted
from samebits.operations.elementwise import Map, single
from samebits.ops.call import Call
from samebits.ops.elementwise import accepted, taken
from samebits.ops.launch import launch
from samebits.ops.memo import remembered
from samebits.ops.recipe import CallOperand
from samebits.shapes import check_seed

__all__ = ["cast"]


@remembered
def cast(
    x: Any,
    dtype: object,
    *,
    rounding: Rounding | None = None,
    overflow: Overflow | None = None,
    nan: str | int | None = None,
    inf: Infinity | None = None,
    seed: int | None = None,
    preset: str | None = None,
    out: Any = None,
    threads: int | None = None,
) -> Any:
    """x converted to another dtype by value, with one rounding.

    Args:    x: any array.   dtype: a DType, its name, or a NumPy dtype.
             rounding: `nearest_even` (to floats, unless it is given), `toward_zero` (to integers), `nearest_away`,
                `up`, `down` or `stochastic`.
             overflow: what a number beyond the largest value becomes: `ieee` an infinity, else NaN, else that value,
                and integers wrap; `saturate` that value; `error` refuses the call.
             nan: what NaN becomes: `canonical`, `signed` (that with its sign), or a code of the dtype.
             inf: what an infinity becomes: what `overflow`, `ieee` or `saturate` make of a number beyond the largest
                value, or what `nan` says.
             seed: of `stochastic` rounding; an element's word depends on it and on the element's index alone.
             preset: a conversion by name instead, such as `ml_dtypes` or `torch-2.13`.
             out: an array for the result.   threads: at most so many; default every usable core.
    Returns: an array of x's kind.
    Raises:  DTypeError if there is no such conversion, or if an element does not fit and `overflow` is `error`;
             OptionError if an option has no such value.   Bits: numerics.md sections 7 and 9.
    """
    call = Call("cast", x, threads)
    operand, to = taken(call, "x", x, "cast"), call.dtype("dtype", dtype)
    ((formats, expected),) = accepted("cast")
    if to not in formats:
        raise DTypeError("cast", "dtype", "", to, expected, "choose one of these")
    if preset is None:
        conversion: Conversion | None = _said(to, rounding, overflow, nan, inf)
    else:
        given = {"rounding": rounding, "overflow": overflow, "nan": nan, "inf": inf}
        conversion = _named(preset, operand.dtype, to, [name for name, value in given.items() if value is not None])
    return call.result(_converted(call, operand, to, conversion, seed, out))


def _converted(
    call: Call, x: CallOperand, to: DType, conversion: Conversion | None, seed: int | None, out: Any
) -> CallOperand:
    """x by a conversion, or copied where there is none."""
    drawn = conversion is not None and conversion.rounding == "stochastic"
    word, operands = check_seed("cast", seed, drawn), [x]
    if word is not None and to.kind != "bool":
        operands.append(call.constant(np.asarray(word, np.uint64)))
    if conversion is None:
        (made,) = launch(call, "map", Map(single("copy", to)), operands, out)
        return made
    conversion = conversion.normal(to)
    if conversion.is_placed:
        attributes = Converted(x.dtype, to, conversion)
        (made,) = launch(call, attributes.operation, attributes, operands, out)
    else:
        expression = single("cast", x.dtype, cast_to=to, conversion=conversion)
        (made,) = launch(call, "map", Map(expression), operands, out)
    return made


def _said(to: DType, rounding: object, overflow: object, nan: object, inf: object) -> Conversion:
    """The conversion to a format that the options say.

    Raises:  OptionError if one of them has no such value.
    """
    found: dict[str, Any] = {}
    choices = (
        ("rounding", rounding, conversions.ROUNDINGS),
        ("overflow", overflow, conversions.OVERFLOWS),
        ("inf", inf, conversions.INFINITIES),
    )
    for name, value, allowed in choices:
        if value is None:
            continue
        if not isinstance(value, str) or value not in allowed:
            raise OptionError("cast", name, "", shown(value), f"one of {list(allowed)}", "leave it out for the default")
        found[name] = value
    if nan == "signed":
        found["nan_sign"] = "always"
    elif nan is not None and nan != "canonical":
        found["nan"] = _code(to, nan)
    return Conversion(**found)


def _code(to: DType, nan: object) -> int:
    """A code of a format that NaN becomes.

    Raises:  OptionError if it is none.
    """
    if isinstance(nan, int | np.integer) and not isinstance(nan, bool) and 0 <= nan < 1 << to.width_bits:
        return int(nan)
    expected = f"'canonical', 'signed', or a code of {to.name} in [0, 2**{to.width_bits})"
    raise OptionError("cast", "nan", "", shown(nan), expected, "leave it out for the canonical NaN")


def _named(name: object, source: DType, to: DType, beside: list[str]) -> Conversion | None:
    """The conversion of a preset between two formats; None where it copies.

    Raises:  OptionError if there is no such preset, or if something is said beside it; DTypeError if it converts
             nothing between the formats.
    """
    found = next((preset for preset in PRESETS if preset.name == name), None)
    if found is None:
        known = f"one of {[preset.name for preset in PRESETS]}"
        raise OptionError("cast", "preset", "", shown(name), known, "or say rounding=, overflow=, nan= and inf=")
    if beside:
        raise OptionError("cast", "preset", "", f"given beside {beside[0]}", "given alone", f"leave {beside[0]} away")
    if found.copies and source is to:
        return None
    conversion = found.conversion(source, to)
    if conversion is None:
        targets = ", ".join(target.name for target in found.targets)
        actual, expected = f"{source.name} to {to.name}", f"a pair that it converts, to one of {targets}"
        raise DTypeError("cast", f"preset {name!r}", "conversion", actual, expected, "leave preset= away")
    return conversion
