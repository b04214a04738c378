"""Running one kernel of the vocabulary, and the values it is run on."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from samebits.codegen.isa import Isa
from samebits.codegen.vocabulary import KernelSpec
from samebits.dtypes import DType, bool_, float32, float64, int8, int16, int32, int64, uint8, uint16, uint32, uint64
from samebits.kernels.plan import Operand, Plan, Step
from samebits.native.table import Table

Array = Any

INTEGERS = (int8, int16, int32, int64, uint8, uint16, uint32, uint64)
FLOATS = (float32, float64)
NUMBERS = (*FLOATS, *INTEGERS)


def widths(isa: Isa) -> list[int]:
    """Lane counts around the row's own, and others."""
    longest = 64 if isa.lanes > 3 else 16
    return sorted({w for w in (1, 2, 3, isa.lanes - 1, isa.lanes, isa.lanes + 1, 16, longest) if w > 0})


def execute(spec: KernelSpec, arguments: Sequence[int | Array], tasks: int = 1) -> None:
    """Run one kernel on its row by the path that users take; arrays stand for their addresses."""
    operands = [x for x in arguments if isinstance(x, np.ndarray)]
    names = tuple(str(k) for k in range(len(operands)))
    places = iter(range(len(operands)))
    words = tuple(Operand(next(places)) if isinstance(x, np.ndarray) else x for x in arguments)
    plan = Plan("test", spec.isa, 1, (Step(spec, tasks, words),), names, scratch_bytes=256)
    Table([(plan, range(len(operands)))], len(operands), 1).run([x.ctypes.data for x in operands])


def same_bits(x: Array, y: Array) -> bool:
    """Equal dtype, shape and bytes."""
    return x.dtype == y.dtype and x.shape == y.shape and x.tobytes() == y.tobytes()


@functools.cache
def values(dtype: DType, seed: int, nan: bool = True) -> Array:
    """65 elements: specials, extremes, subnormals, NaN payloads (signalling too), then random bits and magnitudes."""
    rng = np.random.default_rng(seed)
    kind = np.dtype(dtype.name)
    if dtype is bool_:
        return rng.integers(0, 2, 65).astype(bool)
    if dtype.is_integer:
        info = np.iinfo(kind)
        picks = [0, 1, 2, info.min, info.max, info.min + 1, info.max - 1, info.max // 2, info.max // 3]
        rest = rng.integers(info.min, info.max, 65 - len(picks), dtype=kind, endpoint=True)
        found = np.concatenate([np.array(picks, kind), rest])
    else:
        info = np.finfo(kind)
        tiny, sub, big = float(info.tiny), float(info.smallest_subnormal), float(info.max)
        picks = [
            0.0,
            -0.0,
            1.0,
            -1.0,
            0.5,
            1.5,
            2.5,
            -2.5,
            np.inf,
            -np.inf,
            sub,
            -sub,
            tiny,
            tiny - sub,
            big,
            -big,
            3.3,
        ]
        numbers = rng.standard_normal(65 - len(picks)) * 2.0 ** rng.integers(-30, 30, 65 - len(picks))
        found = np.concatenate([np.array(picks), numbers]).astype(kind)
        word = np.uint32 if dtype is float32 else np.uint64
        if nan:
            payloads = (
                [0x7FC00000, 0xFFC01234, 0x7F800001, 0xFF80ABCD]
                if dtype is float32
                else [0x7FF8000000000000, 0xFFF8000012345678, 0x7FF0000000000001, 0xFFF00000DEADBEEF]
            )
            found.view(word)[20:24] = np.array(payloads, word)
    return rng.permutation(found)


def python_integers(function: Callable[..., int]) -> Callable[..., Array]:
    """Integer arithmetic in Python's own, wrapped to the lanes' width."""

    def wrapped(*arrays: Array) -> Array:
        bits = 8 * arrays[0].dtype.itemsize
        raw = [function(*(int(v) for v in lane)) % (1 << bits) for lane in zip(*arrays, strict=True)]
        return np.array(raw, np.uint64).astype(f"u{bits // 8}").view(arrays[0].dtype)

    return wrapped
