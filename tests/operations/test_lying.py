"""Operands as facts: what a kernel is told of them, by their layouts alone."""

import math

import numpy as np
import pytest

from samebits import dtypes
from samebits.errors import DTypeError, LayoutError, ShapeError
from samebits.kernels.gemm import Matrix
from samebits.layout import Layout
from samebits.operations.lying import Lying, Number, check_dtype, check_factor, check_shape, dense, matrix


def test_a_matrix_has_the_strides_of_its_layout_and_repeats_where_it_is_one() -> None:
    for x in (
        np.empty((4, 5), "f4"),
        np.empty((5, 4), "f4").T,
        np.empty((8, 10), "f4")[::2, ::-2],
        np.empty((1, 5), "f4"),
    ):
        lies = Lying(dtypes.float32, Layout.from_byte_strides(x.shape, x.strides, width_bits=32))
        strides = np.broadcast_to(x, (3, 4, 5)).strides
        steps = [0 if extent == 1 else step // 4 for extent, step in zip((3, *x.shape), strides, strict=True)]
        assert matrix("f", "x", lies, (3, 4, 5)) == Matrix(steps[1], steps[2], (0,))
    with pytest.raises(ShapeError, match=r"f: x shape is \(4, 5\), must be one that broadcasts to \(4, 6\)"):
        matrix("f", "x", Lying.dense(dtypes.float32, (4, 5)), (4, 6))


def test_views_along_a_buffer_are_one_fact_but_for_the_bit_that_they_begin_at() -> None:
    whole = Layout.dense((8, 6), width_bits=4)
    rows = {start: Lying.of(dtypes.int4, whole[start : start + 2]) for start in range(6)}
    assert len(set(rows.values())) == 1
    columns = [Lying.of(dtypes.int4, whole[:, start : start + 2]) for start in range(4)]
    assert [fact.layout.offset_bits for fact in columns] == [0, 4, 0, 4]
    assert columns[0] == columns[2] != columns[1] == columns[3]
    assert {fact.layout.strides_bits for fact in columns} == {whole.strides_bits}


def test_elements_within_bytes_are_told_with_their_layout() -> None:
    packed = Lying.dense(dtypes.int4, (4, 5))
    assert matrix("f", "x", packed, (4, 5)) == Matrix(5, 1, (), dtypes.int4, packed.layout)


def test_a_result_is_dense_and_fits_into_memory() -> None:
    assert dense("f", (2, 1, 4, 5), dtypes.int8) == Matrix(5, 1, (20, 0), dtypes.int8)
    with pytest.raises(LayoutError, match="must be one of fewer than 2\\*\\*63 elements; multiply parts"):
        dense("f", (1 << 40, 1 << 40), dtypes.float32)


def test_a_number_is_its_bits() -> None:
    for value in (0.0, -0.0, 0.1, -1e308, math.inf, 5e-324):
        number = Number.of(value)
        assert (number.value, math.copysign(1, number.value)) == (value, math.copysign(1, value))
    assert Number.of(0.0) != Number.of(-0.0)
    assert Number.of(math.nan) == Number.of(math.nan)
    assert math.isnan(Number.of(math.nan).value)


def test_formats_and_shapes_that_do_not_fit_are_refused() -> None:
    with pytest.raises(DTypeError) as error:
        check_dtype("f", "x", dtypes.int8, dtypes.float32, dtypes.float16)
    assert str(error.value) == "f: x dtype is int8, must be float32 or float16; convert it first"
    with pytest.raises(DTypeError) as error:
        check_factor("f", "x", dtypes.int16)
    assert str(error.value) == "f: x dtype is int16, must be a float or an integer of at most 8 bits; convert it first"
    with pytest.raises(ShapeError) as shape:
        check_shape("f", "x", (4,), (5, 3))
    assert str(shape.value) == "f: x shape is (4,), must be one that broadcasts to (5, 3); reshape it"
    check_shape("f", "x", (5, 1), (5, 3))
