"""What a row says of its axes: an element that changes only changes results at its own index along axes that follow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from samebits import dtypes
from samebits.kernels import composites
from samebits.operations import registry
from samebits.operations.elementwise import Map, single
from samebits.operations.fact import dense
from samebits.operations.matmul import MatrixProduct
from samebits.operations.moves import AxisGather, Concat, Dims, GatherND, Range, ScatterND
from samebits.operations.operation import Array
from samebits.operations.quantization import Quantization
from samebits.operations.resampling import Resample
from samebits.operations.rows import RowWise
from samebits.operations.views import Expand, Reshape, Slice, Transpose

F = np.float32
ADD = Map(single("add", dtypes.float32, dtypes.float32))


def some(*shape: int) -> Array:
    return np.random.default_rng(len(shape)).standard_normal(shape).astype(F)


def places(*shape: int, below: int = 3) -> Array:
    return np.random.default_rng(1).integers(0, below, shape)


def codes(*shape: int) -> Array:
    return np.random.default_rng(2).integers(1, 9, shape).astype(np.int8)


COLUMNS = Resample.of((np.array([[2, 0, 1, 1, 3]]), None), None)
BOTH = Resample.of(
    (np.array([[2, 0, 1]]), np.array([[0.5, -1.5, 2]], np.float32)),
    (np.array([[1, 1, 0, 2], [2, 2, 1, 2]]), np.ones((2, 4), np.float32)),
)
assert COLUMNS is not None
assert BOTH is not None
CASES: list[tuple[str, Any, Sequence[Array]]] = [
    ("map", ADD, [some(3, 4), some(3, 4)]),
    ("map", ADD, [some(2, 3, 4), some(4)]),
    ("map", ADD, [some(3, 1), some(1, 4)]),
    ("rows", RowWise(composites.softmax()), [some(3, 4)]),
    ("resample", COLUMNS[0], [some(2, 4, 60), *COLUMNS[1]]),
    ("resample", BOTH[0], [some(2, 4, 60), *BOTH[1]]),
    ("rows", RowWise(composites.softmax(), (-3, -1)), [some(2, 3, 4)]),
    ("rows", RowWise(composites.layer_norm(True, True, 1e-5)), [some(2, 3, 4), some(4), some(4)]),
    ("contract", MatrixProduct(), [some(2, 3, 4), some(4, 5)]),
    ("contract", MatrixProduct(), [some(3, 4), some(2, 4, 5)]),
    ("contract", MatrixProduct(single("add", dtypes.float32, dtypes.float32)), [some(2, 3, 4), some(2, 4, 5), some(5)]),
    *(
        ("contract", MatrixProduct(names=("a", "b", name)), [codes(2, 3, 4), codes(2, 4, 5), some(*shape)])
        for name, shape in (
            ("a_scale", (3,)),
            ("a_scale", (2, 3, 1)),
            ("a_scale", (2, 3)),
            ("a_scale", (1,)),
            ("b_scale", (5,)),
            ("b_scale", (2, 1, 5)),
            ("b_scale", (2, 5)),
            ("b_scale", (1, 5)),
        )
    ),
    ("quantize", Quantization("mxfp8-e4m3", "mx/floor"), [some(3, 32)]),
    ("quantize", Quantization("nvfp4", "nvfp4/exact-1"), [some(2, 3, 16)]),
    ("quantize", Quantization("nvfp4", "nvfp4/exact-1", given=True), [some(3, 16), np.ones((3, 1), F)]),
    ("transpose", Transpose((2, 0, 1)), [some(2, 3, 4)]),
    ("slice", Slice((0, 1, 3), (2, 2, 4), (1, 1, -1)), [some(2, 3, 4)]),
    ("expand", Expand((2, 3, 4)), [some(3, 1)]),
    ("concat", Concat(1), [some(2, 3), some(2, 1)]),
    ("gather", AxisGather(1), [some(2, 3, 4), places(2, 5)]),
    ("gather", AxisGather(0), [some(3, 4), places(2)]),
    ("gather_nd", GatherND(), [some(3, 3, 4), places(2, 5, 2)]),
    ("gather_nd", GatherND(), [some(3, 2), places(2, 1)]),
    ("scatter_nd", ScatterND(), [some(3, 3, 4), places(2, 5, 2), some(2, 5, 4)]),
    ("scatter_nd", ScatterND(), [some(3, 2), places(2, 1), some(2, 2)]),
]


def computed(name: str, attributes: Any, arrays: Sequence[Array]) -> list[Array]:
    return [np.array(x) for x in registry.ROWS[name].reference(attributes, arrays)]


@pytest.mark.parametrize(("name", "attributes", "arrays"), CASES, ids=lambda x: x if isinstance(x, str) else "")
def test_results_follow(name: str, attributes: Any, arrays: Sequence[Array]) -> None:
    says = registry.ROWS[name].axes
    assert says is not None
    axes = says(attributes, [dense(dtypes.of(x.dtype), x.shape) for x in arrays])
    due, followed, moved = computed(name, attributes, arrays), 0, 0
    for number, x in enumerate(arrays):
        assert len(axes.follows[number]) == x.ndim
        for index in np.ndindex(x.shape):
            changed = x.copy()
            changed[index] = (x[index] + 1) % 3 if x.dtype == np.int64 else x[index] + 50
            given = [changed if i == number else each for i, each in enumerate(arrays)]
            for before, after in zip(due, computed(name, attributes, given), strict=True):
                touched = np.argwhere(before != after)
                moved += len(touched)
                for axis, target in enumerate(axes.follows[number]):
                    if target is not None and x.shape[axis] == before.shape[target]:
                        followed += 1
                        assert (touched[:, target] == index[axis]).all()
    assert followed
    assert moved


def test_a_reshape_keeps_row_major_positions() -> None:
    says = registry.ROWS["reshape"].axes
    assert says is not None
    assert says(Reshape((4, 3)), [dense(dtypes.float32, (2, 6))]).is_flat


@pytest.mark.parametrize(
    ("name", "attributes", "reads"),
    [
        ("dims", Dims((2, 3)), (2, 3)),
        ("range", Range(1, 5, 2), (1, 5)),
        ("slice", Slice((1,), (1,), (1,)), (1,)),
    ],
)
def test_sizes_that_are_data_are_said(name: str, attributes: Any, reads: tuple[int, ...]) -> None:
    says = registry.ROWS[name].axes
    assert says is not None
    assert says(attributes, [dense(dtypes.float32, (4,))]).reads == reads


def test_every_row_says_what_its_results_depend_on() -> None:
    assert [row.name for row in registry.ROWS.values() if row.axes is None] == []
    assert [row.name for row in registry.ROWS.values() if row.view and row.plan] == []
