"""What a product multiplies: operands as one shape of problem, in the words of the caller where they cannot be one."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from samebits import dtypes
from samebits.dtypes import DType
from samebits.errors import DTypeError, OptionError, SamebitsError, ShapeError
from samebits.kernels.gemm.contraction import Matrix, Panels
from samebits.kernels.gemm.packed import PackedFacts
from samebits.layout import Layout
from samebits.operations.factors import Factors, factors
from samebits.operations.lying import Lying
from samebits.operations.names import GRAD_INPUT, LINEAR, MATMUL, Names
from samebits.operations.sharing import Lines


def of(a: tuple[int, ...], b: tuple[int, ...], names: Names = MATMUL, **options: DType) -> Factors:
    left, right = options.get("left", dtypes.float32), options.get("right", dtypes.float32)
    return factors("matmul", names, Lying.dense(left, a), Lying.dense(right, b), options.get("a_dtype"))


SHAPES = [(), (3,), (2, 3), (3, 4), (2, 2, 3), (1, 3, 4), (5, 1, 2, 3), (2, 3, 4), (0, 3), (3, 0)]


@pytest.mark.parametrize(("a", "b"), [*itertools.product(SHAPES, SHAPES)])
def test_a_product_has_the_shape_of_numpys(a: tuple[int, ...], b: tuple[int, ...]) -> None:
    """And is refused where NumPy refuses it."""
    try:
        due = np.matmul(np.zeros(a), np.zeros(b)).shape
    except ValueError:
        with pytest.raises(ShapeError):
            of(a, b)
        return
    found = of(a, b)
    assert found.shape == due
    assert found.whole == (*found.batch, found.m, found.n)
    assert found.vectors == (len(a) == 1, len(b) == 1)
    assert found.ranks == (len(a), len(b))
    assert found.k == a[-1]


def test_operands_lie_as_they_are_and_repeat_over_the_batch() -> None:
    found = of((2, 1, 3, 5), (4, 5, 7))
    assert found.batch == (2, 4)
    assert found.a == Matrix(5, 1, (15, 0))
    assert found.b == Matrix(7, 1, (0, 35))
    vector = of((5,), (5, 7))
    assert (vector.m, vector.a) == (1, Matrix(0, 1))


def test_a_weight_lies_turned_but_packed_it_does_not() -> None:
    found = of((3, 5), (7, 5), LINEAR)
    assert (found.n, found.b) == (7, Matrix(1, 5))
    packed = PackedFacts((5, 7), 16, dtypes.float32, "fma float32")
    again = factors("linear", LINEAR, Lying.dense(dtypes.float32, (3, 5)), packed, None)
    assert (again.n, again.b) == (7, Panels(16))


def test_elements_within_bytes_are_told() -> None:
    x, y = (Layout.dense(shape, width_bits=4, storage="packed") for shape in ((3, 4), (4, 2)))
    a, b = Lying(dtypes.int4, x), Lying(dtypes.int4, y)
    assert factors("matmul", MATMUL, a, b, None).in_bytes == (True, True)
    assert factors("matmul", MATMUL, Lying.dense(dtypes.float32, (3, 4)), b, None).in_bytes == (False, True)
    padded = Lying(dtypes.int4, Layout.dense((3, 4), width_bits=4, storage="padded"))
    assert factors("matmul", MATMUL, padded, b, None).in_bytes == (False, True)


def test_what_is_summed_in_follows_the_formats() -> None:
    for left, right, exact, total, computed in (
        ("float32", "float16", False, "float32", "float32"), ("float32", "float64", False, "float64", "float64"),
        ("float64", "int8", False, "float64", "float64"), ("bfloat16", "uint4", False, "float32", "float32"),
        ("int8", "uint8", True, "float32", "float32"),
    ):  # fmt: skip
        found = of((2, 3), (3, 4), left=dtypes.of(left), right=dtypes.of(right))
        # The sum of integers is known only when their zero points are.
        assert (found.is_exact, found.total.name, found.computed.name) == (exact, total, computed)


def test_floats_that_are_quantised_are_multiplied_as_integers() -> None:
    found = of((2, 3), (3, 4), right=dtypes.int8, a_dtype=dtypes.uint8)
    assert found.floats == Matrix(3, 1)
    assert found.a.dtype is dtypes.uint8
    assert found.is_exact


def test_lines_are_rows_of_a_and_columns_of_b() -> None:
    found = of((6, 2, 3), (3, 4))
    assert found.rows == Lines("row of a", 2, 3, (6,), 3, first=True, option="a_group")
    assert found.columns == Lines("column of b", 4, 3, (6,), 2, first=False, option="b_group")
    assert of((2, 3), (4, 3), LINEAR).columns == Lines("row of weight", 4, 3, (), 2, first=True, option="group")


# Of float32 unless it says otherwise, a rejected product and the sentence.
REFUSED: list[tuple[tuple[int, ...], tuple[int, ...], Names, dict[str, DType], type[SamebitsError], str]] = [
    ((), (3,), MATMUL, {}, ShapeError, "matmul: a rank is 0, must be at least 1; use multiply for a scalar"),
    ((2, 3), (4, 5), MATMUL, {}, ShapeError,
     "matmul: b row count is 4, must be a's column count 3; pass b of shape [..., 3, N]"),
    ((2, 3), (5, 4), LINEAR, {}, ShapeError,
     "matmul: weight column count is 4, must be x's column count 3; pass weight of shape [N, 3]"),
    ((2, 3), (2, 5, 3), LINEAR, {}, ShapeError, "matmul: weight rank is 3, must be 2; pass a matrix, or use matmul"),
    ((2, 3), (2, 3, 5), GRAD_INPUT, {}, ShapeError, "matmul: weight rank is 3, must be 2"),
    ((2, 4, 3), (3, 3, 5), MATMUL, {}, ShapeError,
     "matmul: b batch shape is (3,), must be one that broadcasts with a's (2,); reshape one of them"),
    ((2, 3), (3, 4), MATMUL, {"left": dtypes.int16}, DTypeError,
     "matmul: a dtype is int16, must be a float or an integer of at most 8 bits; convert it first"),
    ((2, 3), (3, 4), MATMUL, {"right": dtypes.bool_}, DTypeError,
     "matmul: b dtype is bool, must be a float or an integer of at most 8 bits; convert it first"),
    ((2, 3), (3, 4), MATMUL, {"left": dtypes.int8}, DTypeError,
     "matmul: b dtype is float32, must be one that multiplies with int8; convert a to float32"),
    ((2, 3), (3, 4), MATMUL, {"a_dtype": dtypes.int8}, DTypeError,
     "matmul: b dtype is float32, must be one that multiplies with int8; leave a_dtype out"),
    ((2, 3), (3, 4), MATMUL, {"a_dtype": dtypes.int4}, OptionError,
     "matmul: a_dtype is int4, must be int8 or uint8; leave it out for another"),
    ((2, 3), (3, 4), MATMUL, {"a_dtype": dtypes.int8, "left": dtypes.float64}, DTypeError,
     "matmul: a dtype is float64, must be float32 or bfloat16 or float16 beside a_dtype; leave a_dtype out"),
]  # fmt: skip


@pytest.mark.parametrize(("a", "b", "names", "options", "kind", "sentence"), REFUSED)
def test_what_cannot_be_multiplied_is_refused_in_the_words_of_the_call(
    a: tuple[int, ...], b: tuple[int, ...], names: Names, options: dict[str, DType], kind: type[SamebitsError],
    sentence: str,
) -> None:  # fmt: skip
    with pytest.raises(kind) as refused:
        of(a, b, names, **options)
    assert str(refused.value).startswith(sentence)
