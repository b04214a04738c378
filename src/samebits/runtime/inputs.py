"""What a caller gives to a program, checked once: names, element formats, shapes, and one value for each symbol.

Start at `bind_symbols`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from samebits.errors import DTypeError, OptionError, ShapeError
from samebits.program.dim import Dim
from samebits.program.graph import Array, Program

__all__ = ["bind_symbols", "check_names", "check_outputs"]


def check_names(program: Program, given: Iterable[str]) -> None:
    """Raise OptionError unless exactly the program's inputs are given."""
    names = list(given)
    for name in names:
        if name not in program.inputs:
            raise OptionError(
                "run", f"input {name!r}", "", "not an input", f"one of {list(program.inputs)}", "remove or rename it"
            )
    for name in program.inputs:
        if name not in names:
            raise OptionError(
                "run",
                f"input {name!r}",
                "",
                "missing",
                f"a {program.facts[name]} array",
                f"give {list(program.inputs)}",
            )


def check_outputs(program: Program, outputs: Sequence[str] | None) -> tuple[str, ...]:
    """The outputs to give back: those asked for, or all.

    Raises:  OptionError if one is asked for that there is not.
    """
    if outputs is None:
        return program.output_names
    for name in outputs:
        if name not in program.outputs:
            raise OptionError(
                "run",
                f"output {name!r}",
                "",
                "not an output",
                f"one of {list(program.outputs)}",
                "ask for one of these",
            )
    return tuple(outputs)


def bind_symbols(program: Program, given: Mapping[str, Array]) -> dict[str, int]:
    """The value of every symbol, from the shapes of the inputs, whose element formats are checked.

    Raises:
        DTypeError: An input has another element format.
        ShapeError: An input has another rank, another fixed extent, or two extents of one symbol differ.
    """
    values: dict[str, int] = {}
    seen: dict[str, str] = {}
    for name in program.inputs:
        fact, array, shape = program.facts[name], given[name], given[name].shape
        if array.dtype != fact.dtype.numpy:
            # NumPy's own spelling where the byte order is all that differs.
            found = array.dtype.name if array.dtype.isnative else array.dtype.str
            what, remedy = f"input {name!r}", f"convert it to {fact.dtype.name}"
            raise DTypeError("run", what, "dtype", found, fact.dtype.name, remedy)
        if len(shape) != fact.rank:
            expected = f"{fact.rank} ({fact})"
            raise ShapeError("run", f"input {name!r}", "rank", len(shape), expected, "reshape it")
        for axis, (size, extent) in enumerate(zip(fact.shape, shape, strict=True)):
            if isinstance(size, Dim) and str(size) not in seen:
                seen[str(size)] = name
                values[str(size)] = extent
            elif isinstance(size, Dim) and values[str(size)] != extent:
                what, expected = f"extent {axis} ({size})", f"{values[str(size)]} as in {seen[str(size)]!r}"
                raise ShapeError("run", f"input {name!r}", what, extent, expected, f"give every input one {size}")
            elif isinstance(size, int) and extent != size:
                raise ShapeError(
                    "run", f"input {name!r}", f"extent {axis}", extent, f"{size} ({fact})", "pad, cut or reshape it"
                )
    return values
