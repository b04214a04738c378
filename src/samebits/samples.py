"""Seeded inputs that make sense for a model: token ids within the table they index, masks of zeros and ones.

What an input is for is read from the program: an integer that indexes a gather stays within the gathered axis; any
other integer or bool is a mask whose first elements are one; floats are standard normal. Start at `feeds`.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from samebits.program import dim
from samebits.program.graph import Program

Arrays = dict[str, NDArray[np.generic]]


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
            made[name] = random.integers(0, limits[name], shape).astype(dtype)
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
            bad = np.array([np.nan, np.inf, -np.inf, 1e30], np.float64)
            made[name] = np.resize(bad, x.shape).astype(x.dtype)
