"""A program bound to sizes, recorded afresh."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from samebits.codegen.isa import Isa
from samebits.operations.operation import Array
from samebits.program.graph import Program
from samebits.runtime.blueprint import NOTHING, Lowered, Packed
from samebits.runtime.specialised import rebound, record


def lower(
    program: Program,
    isa: Isa,
    threads: int,
    symbols: Mapping[str, int],
    strides: Mapping[str, Sequence[int]],
    kept: dict[Any, Array],
    reuse: bool = True,
    packed: Packed = NOTHING,
) -> Lowered:
    """What `record` and `rebound` make of the same sizes."""
    made = rebound(record(program, isa, threads, symbols, strides, kept, reuse, packed), symbols, strides)
    assert made is not None
    return made
