"""What a caller gives to a program, checked once: names, element formats, shapes, and one value for each symbol.

Start at `bind_symbols`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from samebits.errors import DTypeError, OptionError, SamebitsError, ShapeError
from samebits.kinds import check_untraced, kind_of
from samebits.operations.dim import Dim
from samebits.operations.fact import Fact
from samebits.program.constants import Value, given
from samebits.program.graph import Program
from samebits.shapes import check_size

__all__ = ["as_value", "bind_symbols", "check_bindings", "check_names", "check_outputs"]


def check_names(program: Program, given: object) -> None:
    """Raise OptionError unless it is a mapping from exactly the program's inputs."""
    if not isinstance(given, Mapping):
        example = f"run({{{', '.join(f'{name!r}: array' for name in program.inputs)}}})"
        expected = "a mapping from the inputs' names to arrays"
        remedy = f"write {example}, and the wanted outputs after it, if not all"
        raise OptionError("run", "given", "", type(given).__name__, expected, remedy)
    for name in given:
        if name not in program.inputs:
            expected = f"one of {list(program.inputs)}"
            raise OptionError("run", f"input {_named(name)}", "", "not an input", expected, "remove or rename it")
    for name in program.inputs:
        if name not in given:
            expected, remedy = f"a {program.facts[name]} array", f"give {list(program.inputs)}"
            raise OptionError("run", f"input {name!r}", "", "missing", expected, remedy)


def check_outputs(program: Program, outputs: Iterable[str] | None) -> tuple[str, ...]:
    """The outputs to give back: those asked for, or all.

    Raises:  OptionError if it is no list of names, or one is asked for that there is not.
    """
    if outputs is None:
        return program.output_names
    if isinstance(outputs, str | bytes | Mapping) or not isinstance(outputs, Iterable):
        actual = repr(outputs) if isinstance(outputs, str) else type(outputs).__name__
        remedy = f"write {[outputs] if outputs in program.output_names else list(program.output_names)}"
        raise OptionError("run", "outputs", "", actual, "a list of outputs' names", remedy)
    names = tuple(outputs)
    for name in names:
        if not isinstance(name, str) or name not in program.outputs:
            expected = f"one of {list(program.outputs)}"
            raise OptionError("run", f"output {_named(name)}", "", "not an output", expected, "ask for one of these")
    return names


def check_bindings(call: str, program: Program, bindings: object) -> dict[str, int]:
    """The sizes of exactly the program's symbols.

    Raises:  OptionError if they are no such mapping.
    """
    if not isinstance(bindings, Mapping):
        expected, remedy = "a mapping from symbols to sizes", f"bind {list(program.symbols)}"
        raise OptionError(call, "bindings", "", type(bindings).__name__, expected, remedy)
    for name in program.symbols:
        if name not in bindings:
            raise OptionError(call, f"symbol {name!r}", "", "without a value", "a size", "give it one")
    for name in bindings:
        if name not in program.symbols:
            expected = f"one of {list(program.symbols)}"
            raise OptionError(call, f"symbol {_named(name)}", "", "not a symbol", expected, "remove or rename it")
    return {name: check_size(call, f"symbol {name!r}", size, "give it a size") for name, size in bindings.items()}


def as_value(program: Program, name: str, x: object) -> Value:
    """What a caller gives for an input, shared where it can be.

    Raises:
        DTypeError: Its elements are of another format.
        DeviceError: They are elsewhere than on the host.
        ExchangeError: Its library does not share its memory, or records what is computed.
    """
    from samebits.ops.call import as_tensor  # which NumPy's arrays do without

    if kind_of(x) == "torch":
        check_untraced("run")
    tensor, fact = as_tensor("run", f"input {name!r}", x), program.facts[name]
    if tensor.dtype != fact.dtype:  # before a format that NumPy has not gets there
        raise _wrong_dtype(name, tensor.dtype.name, fact)
    try:
        return given(tensor)
    except SamebitsError as error:
        raise error.renamed("run", f"input {name!r}") from None


def bind_symbols(program: Program, arrays: Mapping[str, Value]) -> dict[str, int]:
    """The value of every symbol, from the shapes of the inputs, whose element formats are checked.

    Raises:
        DTypeError: An input has another element format.
        ShapeError: An input has another rank, another fixed extent, or two extents of one symbol differ.
    """
    values: dict[str, int] = {}
    seen: dict[str, str] = {}
    for name in program.inputs:
        fact, array, shape = program.facts[name], arrays[name], arrays[name].shape
        if isinstance(array, np.ndarray) and array.dtype != fact.dtype.numpy:
            # NumPy's own spelling where the byte order is all that differs.
            raise _wrong_dtype(name, array.dtype.name if array.dtype.isnative else array.dtype.str, fact)
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


def _wrong_dtype(name: str, found: str, fact: Fact) -> DTypeError:
    expected = fact.dtype.name
    return DTypeError("run", f"input {name!r}", "dtype", found, expected, f"convert it to {expected}")


def _named(given: object) -> str:
    """What a caller gives for a name, in a message."""
    return repr(given) if isinstance(given, str) else f"of type {type(given).__name__}"
