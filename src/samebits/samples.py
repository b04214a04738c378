"""Seeded inputs that make sense for a model: token ids within the table they index, masks of zeros and ones.

What an input is for is read from the program: an integer that indexes a gather stays within the gathered axis; any
other integer or bool is a mask whose first elements are one; floats are standard normal. Start at `feeds`; `read` and
`write` are the .npz files that carry arrays by name.
"""

from __future__ import annotations

import os
import zipfile
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from samebits import driver
from samebits.errors import DTypeError, OptionError
from samebits.program import dim
from samebits.program.graph import Program

Arrays = dict[str, NDArray[np.generic]]


@driver.default_float_environment()
def feeds(program: Program, bindings: Mapping[str, int], seed: int) -> Arrays:
    """One array for each input, its symbols bound, drawn from `seed`.

    Raises:  KeyError if a symbol of an input is not bound.
    """
    random = np.random.default_rng(seed)
    limits = program.index_limits()
    made: Arrays = {}
    for name, fact in program.inputs.items():
        shape = tuple(dim.bind(size, bindings) for size in fact.shape)
        dtype = fact.dtype.numpy
        assert dtype is not None  # inputs of models have NumPy formats
        if name in limits:
            made[name] = random.integers(0, max(limits[name], 1), shape).astype(dtype)
        elif fact.dtype.kind == "float":
            made[name] = random.standard_normal(shape).astype(dtype)
        else:
            made[name] = _mask(random, shape).astype(dtype)
    return made


def _mask(random: np.random.Generator, shape: tuple[int, ...]) -> NDArray[np.generic]:
    """Ones, then zeros, along the last axis; at least one one."""
    if not shape or not shape[-1]:
        return np.ones(shape, np.int64)
    lengths = random.integers(1, shape[-1] + 1, (*shape[:-1], 1))
    return (np.arange(shape[-1]) < lengths).astype(np.int64)


def poison(made: Arrays) -> None:
    """Make the float inputs of a row as disturbing as a neighbour can be: NaN, infinities and huge numbers."""
    for name, x in made.items():
        if x.dtype.kind == "f" and x.size:
            with np.errstate(over="ignore"):
                bad = np.array([np.nan, np.inf, -np.inf, 1e30], np.float64).astype(x.dtype)
            made[name] = np.resize(bad, x.shape)


def read(path: str | os.PathLike[str]) -> Arrays:
    """The arrays of an .npz file by name.

    Raises:  OptionError if it is no such file, whatever is wrong with it.
    """
    try:
        with open(path, "rb") as file:
            loaded = np.load(file, allow_pickle=False)
            if not isinstance(loaded, np.lib.npyio.NpzFile):
                raise ValueError("it holds one array without a name")
            return {name: loaded[name] for name in loaded.files}
    except Exception as reason:  # a damaged archive raises what zipfile, zlib, struct or NumPy find first
        remedy = f"write it with numpy.savez ({reason})"
        raise OptionError("read", "file", "", path, "an .npz of arrays", remedy) from reason


def write(path: str | os.PathLike[str], arrays: Mapping[str, NDArray[np.generic]]) -> None:
    """Write arrays to an .npz file of exactly this path, whatever their names (`numpy.savez` takes some for its own).

    Raises:  DTypeError if the file would lose an array's format; OptionError if it cannot be written.
    """
    for name, x in arrays.items():
        if x.dtype.isbuiltin != 1:
            remedy = "write its bytes, x.view('uint8')"
            raise DTypeError("write", repr(name), "dtype", x.dtype, "one of NumPy's own", remedy)
    try:
        with zipfile.ZipFile(path, "w") as archive:
            for name, x in arrays.items():
                with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                    np.lib.format.write_array(member, x, allow_pickle=False)
    except OSError as reason:
        raise OptionError("write", "file", "", path, "writable", f"name another ({reason.strerror})") from reason
