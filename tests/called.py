"""A call of a public function, and arrays to call it with. Start at `Called`."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from samebits import dtypes

Array = np.ndarray[Any, np.dtype[Any]]

FLOAT8 = (
    "float8_e3m4", "float8_e4m3", "float8_e4m3b11fnuz", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2",
    "float8_e5m2fnuz",
)  # fmt: skip
POWERS = ("float8_e8m0fnu",)
SINGLES = ("float32", "float16", "bfloat16", *FLOAT8)
FLOATS = ("float64", *SINGLES)
INTEGERS = ("int64", "int32", "int16", "int8", "uint64", "uint32", "uint16", "uint8")
BOOL = ("bool",)
NUMBERS = (*FLOATS, *INTEGERS)
ORDERED = (*NUMBERS, *POWERS)
ANY = (*ORDERED, *BOOL)
# Formats of less than a byte, an element in a byte of its own as ml_dtypes has them.
NARROW_FLOATS = ("float6_e2m3fn", "float6_e3m2fn", "float4_e2m1fn")
NARROW_INTEGERS = ("int4", "int2", "int1", "uint4", "uint2", "uint1")
NARROW = (*NARROW_FLOATS, *NARROW_INTEGERS)
BYTES = ("int8", "uint8", *NARROW_INTEGERS)
HALVES = ("float32", "bfloat16", "float16")


@dataclass(frozen=True, eq=False)
class Called:
    """One call: arrays among the arguments are operands."""

    name: str
    about: str
    arguments: tuple[Any, ...]
    options: Mapping[str, Any]

    def __str__(self) -> str:
        return f"{self.name}: {self.about}"


def drawn(kind: str, *shape: int, seed: int = 0) -> Array:
    """Elements of a format: numbers near 1, here and there any code; of integers small ones and any."""
    row = dtypes.of(kind)
    random = np.random.default_rng([seed, zlib.crc32(kind.encode()), *shape])
    width = max(row.width_bits, 8)
    codes = random.integers(0, (1 << row.width_bits) - 1, shape, np.uint64, endpoint=True)
    odd = codes.astype(f"u{width // 8}").view(row.numpy)
    if row.kind == "bool":
        return np.asarray(codes % 2, bool)
    with np.errstate(all="ignore"):
        if row.is_float:
            plain = random.standard_normal(shape)
            plain = (plain if row.has_zero else np.exp2(np.rint(plain))).astype(row.numpy)
        else:
            plain = random.integers(max(-3, int(row.min)), min(7, int(row.max)) + 1, shape).astype(row.numpy)
    return np.where(random.random(shape) < 0.2, odd, plain)
