"""Operations called eagerly by their row: every one of them, with the bits of the same node in a program."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import samebits as sb
from samebits import dtypes
from samebits.codegen import isa as isas
from samebits.conversions import Conversion
from samebits.kernels import composites
from samebits.kernels.random import Random
from samebits.operations import registry
from samebits.operations.conversion import Converted
from samebits.operations.convolution import Convolution
from samebits.operations.elementwise import Map, single
from samebits.operations.matmul import MatrixProduct
from samebits.operations.moves import AxisGather, Concat, Dims, GatherND, Range, ScatterND
from samebits.operations.picks import PickAlong, SortedPlaces
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
from samebits.tensor import Tensor


def some(*shape: int) -> np.ndarray:
    return np.random.default_rng(len(shape)).standard_normal(shape).astype(np.float32)


def places(*shape: int) -> np.ndarray:
    return np.random.default_rng(1).integers(-3, 3, shape)


ADD = Map(single("add", dtypes.float32, dtypes.float32))


def converted(conversion: Conversion) -> Converted:
    return Converted(dtypes.float32, dtypes.float8_e5m2, conversion)


DRAWN_FROM = [*[np.array(x, np.float32) for x in (-1.5, 2)], *[np.array(x, np.uint64) for x in (3, 5)]]
RESAMPLED = Resample.of((np.array([[2, 0, 1, 1, 3]]), None), None)
assert RESAMPLED is not None
CASES: list[tuple[str, Any, Sequence[np.ndarray]]] = [
    ("map", ADD, [some(3, 40), some(40)]),
    ("map", ADD, [some(40, 3).T, some(3, 1)]),
    ("rows", RowWise(composites.softmax()), [some(3, 40)]),
    ("rows", RowWise(composites.layer_norm_statistics(True, True, 1e-5)), [some(2, 3, 40), some(40), some(40)]),
    ("rows", RowWise(composites.softmax(), (-3, -1)), [some(2, 3, 4)]),
    ("contract", MatrixProduct(), [some(2, 3, 40), some(40, 5)]),
    ("contract", MatrixProduct(single("add", dtypes.float32, dtypes.float32)), [some(3, 4), some(2, 4, 5), some(5)]),
    ("convolve", Convolution((2, 1), (1, 1), (1, 0), (2, 3)), [some(2, 3, 4, 5), some(4, 3, 2, 3)]),
    ("convolve", Convolution((1,), (2,), (1,), (5,), 3), [some(5, 3, 2).T, some(3, 1, 2)]),
    ("reshape", Reshape((4, 6)), [some(2, 3, 4)]),
    ("reshape", Reshape((4, 6)), [some(4, 3, 2).T]),
    ("transpose", Transpose((2, 0, 1)), [some(2, 3, 4)]),
    ("slice", Slice((0, 1, 3), (2, 2, 4), (1, 1, -1)), [some(2, 3, 4)]),
    ("expand", Expand((2, 3, 4)), [some(3, 1)]),
    ("concat", Concat(1), [some(2, 3, 4), some(2, 1, 4), some(2, 0, 4)]),
    ("gather", AxisGather(1), [some(2, 3, 4), places(2, 5)]),
    ("gather", AxisGather(0), [some(4, 3).T, places(2)]),
    ("gather_nd", GatherND(), [some(3, 3, 4), places(2, 5, 2)]),
    ("scatter_nd", ScatterND(), [some(3, 4, 3).transpose(0, 2, 1), places(2, 5, 2), some(2, 5, 4)]),
    ("dims", Dims((2, 3)), []),
    ("range", Range(1, 5, 2), []),
    ("stochastic_cast", converted(Conversion("stochastic")), [some(2, 3, 4), np.array(7, np.uint64)]),
    ("checked_cast", converted(Conversion(overflow="error")), [some(2, 3, 4)]),
    ("quantize", Quantization("nvfp4", "nvfp4/exact-1"), [some(2, 3, 32)]),
    ("random", Drawn(Random("uniform", dtypes.float32), (3, 40)), DRAWN_FROM),
    ("scan", Along("sum", 1), [some(2, 3, 4)]),
    ("order", SortedPlaces(2, True), [some(2, 3, 4)]),
    ("resample", RESAMPLED[0], [some(2, 4, 5).transpose(0, 2, 1), *RESAMPLED[1]]),
    ("gather_along", PickAlong(1), [some(2, 3, 4), places(2, 5, 4)]),
    ("scatter_along", PickAlong(1), [some(2, 3, 4), places(2, 2, 4), some(2, 2, 4)]),
]


@pytest.mark.parametrize("isa", [row.name for row in isas.isas() if row.available])
@pytest.mark.parametrize(("name", "attributes", "arrays"), CASES, ids=lambda x: x if isinstance(x, str) else "")
def test_eagerly_as_in_a_program(name: str, attributes: Any, arrays: Sequence[np.ndarray], isa: str) -> None:
    b = ProgramBuilder("one")
    inputs = [b.input(f"x{i}", dtypes.of(x.dtype), x.shape) for i, x in enumerate(arrays)]
    made = b.add(name, inputs, attributes)
    program = b.build({f"y{i}": value for i, value in enumerate(made)})
    ran = cpu.prepare(program, threads=1, isa=isa).run({f"x{i}": x for i, x in enumerate(arrays)})
    due = registry.ROWS[name].reference(attributes, arrays)
    with sb.use_isa(isa):
        call = Call("launch", arrays[0] if arrays else None, 1)
        found = [x.tensor for x in launch(call, name, attributes, [call.operand("x", x) for x in arrays])]
    assert len(found) == len(due) == len(ran)
    for i, (x, expected) in enumerate(zip(found, due, strict=True)):
        assert x.shape == expected.shape
        assert x.numpy().tobytes() == ran[f"y{i}"].tobytes() == np.ascontiguousarray(expected).tobytes()


def test_every_row_is_called() -> None:
    assert {name for name, _, _ in CASES} == registry.ROWS.keys()


def test_a_view_lies_in_its_operand() -> None:
    x = Tensor.from_any(some(2, 3, 4))
    call = Call("launch", x)
    (seen,) = launch(call, "slice", Slice((1, 0, 3), (1, 3, 2), (1, 1, -2)), [call.operand("x", x)])
    assert seen.tensor.buffer is x.buffer
    assert np.array_equal(seen.tensor.numpy(), x.numpy()[1:2, :, 3::-2])


def test_a_place_that_does_not_exist() -> None:
    call = Call("put", None)
    arrays = {"x": some(3, 4, 2), "indices": np.array([[[0, 3]], [[-3, -5]]]), "updates": some(2, 1, 2)}
    with pytest.raises(sb.ShapeError) as error:
        launch(call, "scatter_nd", ScatterND(), [call.operand(name, x) for name, x in arrays.items()])
    assert str(error.value) == "put: indices[1, 0, 1] is -5, must be in [-4, 4); give indices that exist"


def test_an_index_that_does_not_exist() -> None:
    call = Call("take", None)
    operands = [call.operand("x", some(3, 4)), call.operand("indices", np.array([0, 3]))]
    with pytest.raises(sb.ShapeError, match=r"take: an index is 3, must be in \[-3, 3\)"):
        launch(call, "gather", AxisGather(0), operands)
