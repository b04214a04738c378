"""Every row of `registry.ROWS` can be called, in every dtype, with the bits of its node and of NumPy."""

from __future__ import annotations

import importlib
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from called import ANY, NARROW, drawn

import samebits as sb
from samebits import dtypes
from samebits.codegen import isa as isas
from samebits.conversions import Conversion
from samebits.kernels import composites
from samebits.kernels.random import Random
from samebits.operations import picks, registry
from samebits.operations.conversion import Converted
from samebits.operations.convolution import Convolution
from samebits.operations.elementwise import Map, single
from samebits.operations.matmul import MatrixProduct
from samebits.operations.moves import AxisGather, Concat, Dims, GatherND, Range, ScatterND
from samebits.operations.quantization import Quantization
from samebits.operations.random import Drawn
from samebits.operations.resampling import Resample
from samebits.operations.rows import RowWise
from samebits.operations.scans import Along
from samebits.operations.views import Expand, Reshape, Slice, Transpose
from samebits.ops.call import Call
from samebits.ops.launch import launch
from samebits.program.builder import ProgramBuilder
from samebits.runtime import cpu

Array = np.ndarray[Any, np.dtype[Any]]
ROWS = [row.name for row in isas.isas() if row.available]
INDICES = np.array([[2, -1], [-3, 0]])


ALONG = np.random.default_rng(6).integers(-3, 3, (4, 2, 5))


def scattered(x: Array, indices: Array, updates: Array) -> Array:
    """One update after the other along axis 1."""
    found = np.array(x)
    for i in range(indices.shape[1]):
        np.put_along_axis(found, indices[:, i : i + 1], updates[:, i : i + 1], 1)
    return found


def put(x: Array, indices: Array, updates: Array) -> Array:
    """Updates at the places that the last axis of the indices names."""
    found = np.array(x)
    found[tuple(np.moveaxis(indices, -1, 0))] = updates
    return found


def backwards(kind: str) -> Array:
    """[4, 3, 5], every second element of a larger array from its end, axes turned."""
    return drawn(kind, 10, 6, 4)[::-2, ::2].transpose(2, 1, 0)[:, :, ::-1]


# Rows that only move take every dtype: attributes, and what NumPy makes of the operands.
MOVED: dict[str, tuple[Any, Callable[[str], Sequence[Array]], Callable[..., Array]]] = {
    "map": (None, lambda kind: [backwards(kind)], lambda x: x),
    "reshape": (Reshape((6, 10)), lambda kind: [backwards(kind)], lambda x: x.reshape(6, 10)),
    "transpose": (Transpose((1, 2, 0)), lambda kind: [backwards(kind)], lambda x: x.transpose(1, 2, 0)),
    "slice": (
        Slice((3, 0, 1), (2, 3, 2), (-2, 1, 2)), lambda kind: [backwards(kind)], lambda x: x[3::-2, :, 1:5:2]
    ),
    "expand": (
        Expand((2, 4, 3, 5)), lambda kind: [backwards(kind)[:, :1]], lambda x: np.broadcast_to(x, (2, 4, 3, 5))
    ),
    "concat": (
        Concat(1), lambda kind: [backwards(kind), drawn(kind, 4, 0, 5), drawn(kind, 4, 1, 5)],
        lambda *x: np.concatenate(x, 1),
    ),
    "gather": (AxisGather(1), lambda kind: [backwards(kind), INDICES], lambda x, i: np.take(x, i, axis=1)),
    "gather_along": (
        picks.PickAlong(1), lambda kind: [backwards(kind), ALONG], lambda x, i: np.take_along_axis(x, i, 1)
    ),
    "scatter_along": (
        picks.PickAlong(1), lambda kind: [backwards(kind), ALONG, drawn(kind, 4, 2, 5)],
        lambda x, i, u: scattered(x, i, u),
    ),
    "gather_nd": (
        GatherND(), lambda kind: [backwards(kind), INDICES], lambda x, i: x[tuple(np.moveaxis(i, -1, 0))]
    ),
    "scatter_nd": (
        ScatterND(), lambda kind: [backwards(kind), INDICES, drawn(kind, 2, 5)], lambda x, i, u: put(x, i, u)
    ),
}  # fmt: skip
# Rows without operands follow from sizes alone, and are computed before a run.
SIZES: dict[str, tuple[Any, Array]] = {
    "dims": (Dims((2, 3)), np.array([2, 3])),
    "range": (Range(1, 5, -2), np.array([1, -1, -3, -5, -7])),
}
RESAMPLED = Resample.of(
    (np.arange(40) // 8 + np.array([[0], [1]]), np.linspace(-1, 1, 80, dtype=np.float32).reshape(2, 40)),
    (np.array([[2, 0, 1, 1, 0]]), np.array([[0.5, -1.5, 2, 1, 3]], np.float32)),
)
assert RESAMPLED is not None
# Rows that compute; tests/ops/test_public_functions.py walks their dtypes by the functions that are made of them.
COMPUTED: dict[str, tuple[Any, Sequence[Array]]] = {
    "rows": (RowWise(composites.softmax()), [drawn("float32", 3, 40)]),
    "contract": (MatrixProduct(), [np.ones((2, 3, 40), np.float32), np.ones((40, 5), np.float32)]),
    "convolve": (
        Convolution((1, 2), (1, 1), (1, 0), (4, 3)),
        [drawn("float32", 2, 3, 4, 6), drawn("float32", 5, 3, 3, 2)],
    ),
    "order": (picks.SortedPlaces(1, True, 7), [drawn("float32", 3, 40)]),
    "scan": (Along("sum", 1), [drawn("float32", 3, 40)]),
    "resample": (RESAMPLED[0], [drawn("float32", 2, 3, 40), *RESAMPLED[1]]),
    "stochastic_cast": (
        Converted(dtypes.float32, dtypes.float8_e4m3fn, Conversion("stochastic")),
        [drawn("float32", 3, 40), np.array(7, np.uint64)],
    ),
    "checked_cast": (
        Converted(dtypes.float32, dtypes.bfloat16, Conversion(overflow="error")),
        [drawn("float32", 3, 40)],
    ),
    "random": (
        Drawn(Random("normal", dtypes.bfloat16), (3, 40)),
        [*[np.array(x, dtypes.bfloat16.numpy) for x in (1.5, -2)], *[np.array(x, np.uint64) for x in (7, 9)]],
    ),
    "quantize": (Quantization("mxfp6-e2m3", "mx/floor"), [drawn("bfloat16", 3, 64)]),
}


def run(name: str, attributes: Any, arrays: Sequence[Array], isa: str) -> tuple[list[Array], list[Array]]:
    """The outputs of a row in a program, and called."""
    p = ProgramBuilder("one")
    inputs = [p.input(f"x{i}", dtypes.of(x.dtype), x.shape) for i, x in enumerate(arrays)]
    outputs = {f"y{i}": made for i, made in enumerate(p.add(name, inputs, attributes))}
    ran = cpu.prepare(p.build(outputs), threads=2, isa=isa).run({f"x{i}": x for i, x in enumerate(arrays)})
    with sb.use_isa(isa):
        call = Call("launch", arrays[0] if arrays else None, 2)
        found = launch(call, name, attributes, [call.operand(f"x{i}", x) for i, x in enumerate(arrays)])
    return list(ran.values()), [np.asarray(sb.to_padded(x.tensor).numpy()) for x in found]


def same(x: Array, y: Array) -> bool:
    return x.dtype == y.dtype and x.shape == y.shape and x.tobytes() == np.ascontiguousarray(y).tobytes()


def test_every_row_is_here() -> None:
    assert {*MOVED, *SIZES, *COMPUTED} == registry.ROWS.keys()
    for home, names in registry._HOMES.items():
        module = importlib.import_module(f"samebits.operations.{home}")
        assert tuple([row.name for row in module.ROWS]) == names
    assert SIZES.keys() == {name for name, row in registry.ROWS.items() if not (row.view or row.plan)}


@pytest.mark.parametrize("name", MOVED)
def test_rows_that_move_take_every_dtype(name: str) -> None:
    """On one Isa row each, so that every dtype and every Isa row are there."""
    attributes, make, meant = MOVED[name]
    for number, kind in enumerate((*ANY, *NARROW)):
        arrays = make(kind)
        asked = Map(single("copy", dtypes.of(kind))) if attributes is None else attributes
        due = np.asarray(meant(*arrays))
        (reference,) = registry.ROWS[name].reference(asked, arrays)
        assert same(np.ascontiguousarray(reference), due), kind
        for (found,) in run(name, asked, arrays, ROWS[number % len(ROWS)]):
            assert same(np.ascontiguousarray(found), due), kind


@pytest.mark.parametrize("isa", ROWS)
def test_rows_of_sizes_and_rows_that_compute(isa: str) -> None:
    for name, (sizes, due) in SIZES.items():
        for (found,) in run(name, sizes, [], isa):
            assert same(found, due), name
    for name, (attributes, arrays) in COMPUTED.items():
        meant = registry.ROWS[name].reference(attributes, arrays)
        for found in run(name, attributes, arrays, isa):
            assert all(itertools.starmap(same, zip(found, meant, strict=True))), name
