"""Seeded inputs for a model: those that make sense, those of every size, and those that disturb.

What an input is for is read from the program: an integer that indexes a gather stays within the gathered axis. Start at
`feeds`, where any other integer or bool is a mask whose first elements are one and floats are standard normal; `wide`
takes numbers of every size instead, and `poison` what disturbs a neighbour most. `read` and `write` are the files
that carry arrays by name.
"""

from __future__ import annotations

import math
import os
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from samebits import checkpoint, driver, dtypes
from samebits.dtypes import DType
from samebits.errors import DTypeError, ModelError, OptionError, message
from samebits.operations import dim
from samebits.program.graph import Program
from samebits.tensor import Tensor

Arrays = dict[str, NDArray[np.generic]]


# What `poison` fills a row with.
POISONS = ("NaN", "infinities", "largest values")
# How far `wide` goes; the rows of a batch take turns, so that in one of them something overflows and in one nothing.
SPREADS = 3
# Where the first of them stays.
_NEAR = 16
# Elements of a constant that inputs may be compared with; what has more is a table of weights.
_SMALL = 64
# Elements of float64, which inputs are made from, that an address space has room for; of more NumPy makes no array.
_MOST = 1 << 60
_ROOM = "fewer than 2**60 elements"


@driver.default_float_environment()
def feeds(program: Program, bindings: Mapping[str, int], seed: int) -> Arrays:
    """One array for each input, its symbols bound, drawn from `seed`.

    Raises:  KeyError if a symbol of an input is not bound.
    """
    random = np.random.default_rng(seed)
    limits = program.index_limits(bindings)
    made: Arrays = {}
    for name, dtype, shape in _inputs(program, bindings):
        if name in limits:
            made[name] = random.integers(0, max(limits[name], 1), shape).astype(dtype.numpy)
        elif dtype.is_float:
            made[name] = random.standard_normal(shape).astype(dtype.numpy)
        else:
            made[name] = _mask(random, shape).astype(dtype.numpy)
    return made


@driver.default_float_environment()
def wide(program: Program, bindings: Mapping[str, int], seed: int, most: int | None = None) -> Arrays:
    """As `feeds`, but numbers of every size.

    Floats spread over the exponents, with zeros of both signs, subnormals and the largest among them, but no infinity
    or NaN; integers over their format's range, with small ones and both ends among them. Some are constants of the
    model, since it may ask whether a number equals one.

    Args:    seed: also says how far it goes: `seed % SPREADS` is 0 for numbers near 1, 2 for all of the format.
             most: no integer of a larger magnitude, for models that refuse those.
    Raises:  KeyError if a symbol of an input is not bound.
    """
    random = np.random.default_rng((seed, 1))
    limits, numbers = program.index_limits(bindings), _numbers(program)
    made: Arrays = {}
    for name, dtype, shape in _inputs(program, bindings):
        if name in limits:
            last = max(limits[name], 1) - 1
            made[name] = _among(random, random.integers(0, last + 1, shape), (0, last)).astype(dtype.numpy)
        elif dtype.is_float:
            near = _fitting(dtype, numbers, None if seed % SPREADS else _NEAR)
            made[name] = _among(random, _floats(random, dtype, shape, seed % SPREADS), near)
        else:
            drawn = _integers(random, dtype, shape, seed % SPREADS, most)
            made[name] = _among(random, drawn, _fitting(dtype, numbers, most))
    return made


@driver.default_float_environment()
def poison(program: Program, bindings: Mapping[str, int], what: str, most: int | None = None) -> Arrays:
    """Inputs as disturbing as a neighbour can be: of one of POISONS alone, of both signs; integers are at their ends.

    Raises:  KeyError if a symbol of an input is not bound.
    """
    limits = program.index_limits(bindings)
    made: Arrays = {}
    for name, dtype, shape in _inputs(program, bindings):
        low, high = (0, max(limits[name], 1) - 1) if name in limits else _ends(dtype, most)
        pattern: list[float] = [low, high] if what == POISONS[2] else [low if what == POISONS[0] else high]
        if dtype.is_float:
            signed = {"NaN": [np.nan], "infinities": [np.inf, -np.inf], "largest values": [dtype.max, dtype.min]}
            pattern = list(signed[what])
        # A format without NaN or infinity takes the nearest that it has.
        with np.errstate(all="ignore"):
            made[name] = np.resize(np.array(pattern, None if dtype.is_float else object).astype(dtype.numpy), shape)
    return made


def _inputs(program: Program, bindings: Mapping[str, int]) -> Iterator[tuple[str, DType, tuple[int, ...]]]:
    """Name, format and shape of each input."""
    for name, fact in program.inputs.items():
        assert fact.dtype.numpy is not None  # inputs of models have NumPy formats
        shape = tuple(dim.bind(size, bindings) for size in fact.shape)
        if math.prod(shape) >= _MOST:
            raise MemoryError(message("made-up inputs", f"input {name!r}", "shape", shape, _ROOM, "give smaller sizes"))
        yield name, fact.dtype, shape


def _numbers(program: Program) -> set[float]:
    """The finite numbers of the model's small constants and fills."""
    found: set[float] = set()
    for array in program.constants.values():
        if isinstance(array, np.ndarray) and array.dtype.kind in "iuf" and array.size <= _SMALL:
            found.update(array.ravel().tolist())
    return {x for x in found if math.isfinite(x)}


def _fitting(dtype: DType, numbers: set[float], most: int | None) -> list[float]:
    """Those of `numbers` that the format has; of integers their neighbours too, none of a magnitude above `most`."""
    if dtype.is_float:
        largest = dtype.max if most is None else most
        return sorted(float(x) for x in numbers if abs(x) <= largest)
    low, high = _ends(dtype, most)
    near = {math.floor(x) + step for x in numbers for step in (-1, 0, 1)}
    return sorted(x for x in near if low <= x <= high)


def _among(random: np.random.Generator, x: NDArray[Any], special: Sequence[float]) -> NDArray[Any]:
    """x, about every eighth element replaced by one of `special`, where there is one."""
    if not special:
        return x
    return np.where(random.random(x.shape) < 0.125, random.choice(np.array(special, x.dtype), x.shape), x)


def _floats(random: np.random.Generator, dtype: DType, shape: tuple[int, ...], spread: int) -> NDArray[np.generic]:
    """Standard normal, or +-1.f * 2^e with e of a quarter of the exponents, or of all of them and of subnormals."""
    x = random.standard_normal(shape)
    if spread:
        top, bottom = (math.frexp(value)[1] - 1 for value in (dtype.max, dtype.min_subnormal))
        low, high = ((bottom // 4, top // 4), (bottom, top))[spread - 1]
        x = np.copysign(np.ldexp(random.uniform(1, 2, shape), random.integers(low, high + 1, shape)), x)
        x = np.clip(x, dtype.min, dtype.max)
    special = [0.0, -0.0, 1.0, -1.0]
    if spread:
        special += [dtype.min_subnormal, -dtype.min_subnormal, dtype.min_normal, -dtype.min_normal]
    if spread == SPREADS - 1:
        special += [dtype.max, dtype.min]
    with np.errstate(all="ignore"):
        return np.asarray(_among(random, x, special).astype(dtype.numpy))


def _ends(dtype: DType, most: int | None) -> tuple[int, int]:
    """The smallest and the largest integer of a format whose magnitude is not above `most`."""
    if dtype.is_float:
        return 0, 0
    low, high = int(dtype.min), int(dtype.max)
    return (low, high) if most is None else (max(low, -most), min(high, most))


def _integers(
    random: np.random.Generator, dtype: DType, shape: tuple[int, ...], spread: int, most: int | None
) -> NDArray[np.generic]:
    """Of -3 .. 3, of the powers of two and their neighbours, of the whole range; both ends from the second on."""
    low, high = _ends(dtype, most)
    ends = np.array([low, high], object)
    if spread == 0:
        drawn = np.array(range(max(low, -3), min(high, 3) + 1), object)
    else:
        powers = [1 << bit for bit in range(max(high.bit_length(), 1))]
        near = {sign * power + step for power in powers for sign in (1, -1) for step in (-1, 0, 1)}
        drawn = np.array(sorted(x for x in near if low <= x <= high), object)
    x = random.choice(drawn, shape)
    if spread == SPREADS - 1:
        # numpy.integers takes bounds of int64 or of uint64.
        bounded = random.integers(low, high, shape, np.int64 if low < 0 else np.uint64, endpoint=True)
        x = np.where(random.random(shape) < 0.5, bounded.astype(object), x)
    if spread:
        x = np.where(random.random(shape) < 0.125, random.choice(ends, shape), x)
    return np.asarray(x).astype(dtype.numpy).reshape(shape)


def _mask(random: np.random.Generator, shape: tuple[int, ...]) -> NDArray[np.generic]:
    """Ones, then zeros, along the last axis; at least one one."""
    if not shape or not shape[-1]:
        return np.ones(shape, np.int64)
    lengths = random.integers(1, shape[-1] + 1, (*shape[:-1], 1))
    return (np.arange(shape[-1]) < lengths).astype(np.int64)


def read(path: str | os.PathLike[str]) -> Arrays:
    """The tensors of a file by name, as arrays of NumPy; of what .npy and .npz lose the name, `checkpoint` knows it.

    Raises:  OptionError if it is no file of tensors, whatever is wrong with it.
    """
    try:
        found = checkpoint.load(path)
    except (ModelError, DTypeError) as error:
        fact = f"{error.operand} {error.fact}".strip()
        raise OptionError("read", "file", fact, *error.args[3:]) from error
    arrays: Arrays = {}
    for name, x in found.items():
        if not isinstance(x, Tensor):
            remedy = "write what its dequantize() gives"
            raise OptionError("read", "file", f"{path} tensor {name!r}", "quantised", "an array", remedy)
        arrays[name] = x.numpy(copy=x.layout.pitch_bits % 8 > 0)
    return arrays


def check_written(path: pathlib.Path, outputs: Mapping[str, DType]) -> None:
    """Raises:  OptionError unless arrays of these names and formats can be written to a file of that name."""
    if path.suffix == ".npy" and len(outputs) != 1:
        what = f"an .npy beside {len(outputs)} outputs"
        raise OptionError("write", "file", "", what, "an .npz, whose arrays have names", "name the file .npz")


def write(path: str | os.PathLike[str], arrays: Mapping[str, NDArray[np.generic]]) -> None:
    """Write arrays to a file of exactly this path, which says by its ending which kind it is, else as an .npz.

    Raises:  OptionError if it cannot be written, or if an .npy file would lose a name.
    """
    path = pathlib.Path(path)
    check_written(path, {name: dtypes.of(x.dtype) for name, x in arrays.items()})
    checkpoint.save(path, arrays, kind=None if path.suffix[1:] in checkpoint.KINDS else "npz")
