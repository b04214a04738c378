"""The description of a product: facts in, a contraction and the names of its operands out, without any memory."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest

from samebits import dtypes
from samebits.dtypes import bfloat16, float16, float32, float64, int4, int8, int32, int64, uint8
from samebits.errors import DTypeError, OptionError, PlanError, SamebitsError, ShapeError
from samebits.kernels.gemm import LINE, TENSOR, Immediate, Matrix, PackedFacts, Panels, Shared, Side, Spec
from samebits.layout import Layout
from samebits.operations.lying import Lying, Number
from samebits.operations.names import LINEAR, MATMUL
from samebits.operations.product import PLAIN, Options, ProductDescription, describe
from samebits.operations.sharing import AS_IT_LIES, IN_BYTES, VALUES, Block, ProductOperand

HALF = Number.of(0.5)


def lying(*shape: int, dtype: dtypes.DType = float32) -> Lying:
    """A dense array of whole bytes an element."""
    storage = "packed" if dtype.width_bits % 8 == 0 else "padded"
    return Lying(dtype, Layout.dense(shape, width_bits=dtype.width_bits, storage=storage))


ONE = Number.of(1.0)


def described(a: Lying, b: Any, options: Options = PLAIN, **given: Any) -> ProductDescription:
    return describe("matmul", a, b, options, **given)


def of_integers(**given: Any) -> ProductDescription:
    """A product of int8 [5, 7] and uint8 [7, 3]."""
    return described(lying(5, 7, dtype=int8), lying(7, 3, dtype=uint8), **given)


def test_a_product_of_two_arrays_is_described_by_its_sides() -> None:
    found = described(lying(4, 1, 5, 7), lying(2, 7, 3))
    c = found.contraction
    assert (c.m, c.n, c.k, c.batch) == (5, 3, 7, (4, 2))
    assert c.a == Side(Matrix(7, 1, (35, 0)))
    assert c.b == Side(Matrix(3, 1, (0, 21)))
    assert c.out == Side(Matrix(3, 1, (30, 15)))
    assert (c.epilogue, c.sources, c.in_place, c.accumulates) == (None, (), False, False)
    assert found.operands == (ProductOperand("a"), ProductOperand("b"))
    assert (found.shape, found.dtype) == ((4, 2, 5, 3), float32)


def test_vectors_lack_an_axis_of_the_result_and_of_what_is_added() -> None:
    row, column = lying(7), lying(7)
    found = described(row, lying(7, 3), bias=lying(3))
    assert (found.shape, found.contraction.m, found.contraction.sources) == ((3,), 1, (Matrix(0, 1),))
    found = described(lying(5, 7), column, bias=lying(5))
    assert (found.shape, found.contraction.n, found.contraction.sources) == ((5,), 1, (Matrix(1, 0),))
    found = described(row, column, c=lying())
    assert (found.shape, found.contraction.sources) == ((), (Matrix(0, 0),))


def test_a_weight_is_turned_but_where_it_is_packed() -> None:
    given = describe("linear", lying(5, 7), lying(3, 7), names=LINEAR)
    assert given.contraction.b == Side(Matrix(1, 7))
    packed = PackedFacts((7, 3), 32, float32, "fma float32")
    kept = describe("linear", lying(5, 7), packed, names=LINEAR)
    assert kept.contraction.b == Side(Panels(32, (), float32, "fma float32"))
    assert given.shape == kept.shape == (5, 3)


def test_scales_and_zero_points_belong_to_a_side_and_to_what_shares_them() -> None:
    line, column = lying(5), lying(3)
    c = of_integers(
        a_scale=line, b_scale=HALF, a_zero_point=3, b_zero_point=lying(3, dtype=uint8)
    ).contraction  # fmt: skip
    assert c.a.scale == Shared(Matrix(1, 0), LINE)
    assert c.a.zero == Shared(Matrix(0, 0, (), int32), TENSOR)
    assert c.b.scale == Shared(Matrix(0, 0), TENSOR)
    assert c.b.zero == Shared(Matrix(0, 1, (), uint8), LINE)
    c = of_integers(a_scale=ONE, b_scale=column, out_scale=column, out_zero_point=7).contraction
    assert c.out.scale == Shared(Matrix(0, 1), LINE)
    assert c.out.zero == Shared(Matrix(0, 0, (), int8), TENSOR)
    grouped = Options(b_group=Block(4))
    c = of_integers(options=grouped, b_scale=lying(2, 3), b_zero_point=lying(2, 3, dtype=uint8)).contraction
    assert c.b.scale == Shared(Matrix(3, 1), 4)
    assert c.b.zero == Shared(Matrix(3, 1, (), uint8), 4)
    weights = described(lying(5, 7), lying(7, 3, dtype=int4), b_zero_point=lying(3, dtype=int4)).contraction
    assert weights.b.zero == Shared(Matrix(0, 1, (), int8), 7)  # one block over all of K


def test_floats_that_are_quantised_keep_how_they_lie() -> None:
    c = described(
        lying(5, 7, dtype=bfloat16), lying(7, 3, dtype=int8), Options(a_dtype=uint8), a_scale=lying(5), a_zero_point=9
    ).contraction
    assert c.a.quantised_from == Matrix(7, 1, (), bfloat16)
    assert c.a.values == Matrix(7, 1, (), uint8)
    assert c.a.scale == Shared(Matrix(1, 0), LINE)


def test_operands_are_the_plans_in_order_and_name_what_was_given() -> None:
    given: dict[str, Any] = {
        "a_scale": lying(5), "b_scale": lying(3), "a_zero_point": lying(5, dtype=int8),
        "b_zero_point": lying(3, dtype=uint8), "c": lying(5, 3), "bias": lying(3),
    }  # fmt: skip
    order = ("a_zero_point", "b_zero_point", "a_scale", "b_scale", "c", "bias")
    for count in range(len(given) + 1):
        for names in itertools.combinations(given, count):
            floats = {"out_dtype": float32}
            found = of_integers(options=Options(**floats), **{name: given[name] for name in reversed(names)})
            assert [x.name for x in found.operands] == ["a", "b", *(name for name in order if name in names)]
            assert len(found.operands) + 1 == len(found.contraction.operands)
            assert all(x.constant is None and x.form == AS_IT_LIES for x in found.operands)
    both = {"a_scale": lying(5), "b_scale": lying(3), "out_scale": lying(), "out_zero_point": lying(dtype=int8)}
    found = of_integers(**both, bias=lying(3, dtype=int32))
    names = [x.name for x in found.operands]
    assert names == ["a", "b", "out_zero_point", "a_scale", "b_scale", "out_scale", "bias"]
    grouped = of_integers(
        options=Options(b_group=Block(7)), b_scale=lying(1, 3), b_zero_point=lying(1, 3, dtype=uint8), a_scale=ONE
    )
    assert [x.name for x in grouped.operands] == ["a", "b", "b_scale", "b_zero_point", "a_scale"]


def test_numbers_are_constants_of_what_is_computed_in() -> None:
    found = of_integers(a_scale=Number.of(0.1), a_zero_point=-3)
    constants = {x.name: x.constant for x in found.operands if x.constant}
    assert constants == {"a_scale": Immediate.of(0.1), "a_zero_point": Immediate(-3, int32)}
    wide = described(lying(5, 7, dtype=float64), lying(7, 3), a_scale=Number.of(0.1))
    assert wide.operands[2].constant == Immediate.of(0.1, float64)


def test_elements_within_bytes_are_named_by_their_first_byte_and_narrow_zero_points_by_their_values() -> None:
    packed = Lying(int4, Layout.dense((5, 7), width_bits=4))
    found = described(packed, Lying(int4, Layout.dense((7, 8), width_bits=4)), a_zero_point=lying(5, dtype=int4))
    assert [x.form for x in found.operands] == [IN_BYTES, IN_BYTES, VALUES]
    assert found.contraction.a.values.packed == packed.layout
    assert found.contraction.a.zero == Shared(Matrix(1, 0, (), int8), LINE)
    assert described(lying(5, 7, dtype=int4), lying(7, 8, dtype=int4)).operands[0].form == AS_IT_LIES


@pytest.mark.parametrize(
    ("a", "b", "given", "due"),
    [
        (float32, float32, {}, float32), (bfloat16, bfloat16, {}, bfloat16), (float16, int8, {}, float16),
        (bfloat16, float32, {}, float32), (float64, bfloat16, {}, float64), (int8, uint8, {}, int32),
        (int8, uint8, {"a_scale": ONE}, float32), (int8, int8, {"bias": lying(3, dtype=int32)}, int64),
        (int8, int8, {"a_scale": ONE, "b_scale": ONE, "out_scale": ONE}, int8),
    ],
)  # fmt: skip
def test_the_result_is_of_what_is_computed_where_nothing_else_is_said(
    a: dtypes.DType, b: dtypes.DType, given: dict[str, Any], due: dtypes.DType
) -> None:
    found = described(lying(5, 7, dtype=a), lying(7, 3, dtype=b), **given)
    assert found.dtype is found.contraction.out.dtype is due


def test_out_takes_the_result_where_it_lies() -> None:
    a, b, turned = lying(5, 7), lying(7, 3), Lying(float32, Layout.dense((5, 3), width_bits=32, order="F"))
    found = described(a, b, out=turned, c=turned, in_place=True)
    assert found.contraction.out == Side(Matrix(1, 5))
    assert found.contraction.in_place
    assert replace(found.contraction, out=Side(Matrix(3, 1)), in_place=False) == described(a, b, c=turned).contraction
    with pytest.raises(ShapeError, match=r"matmul: out shape is \(5, 4\), must be \(5, 3\)"):
        described(a, b, out=lying(5, 4))
    with pytest.raises(DTypeError, match="matmul: out dtype is int32, must be float32"):
        described(a, b, out=lying(5, 3, dtype=int32))
    accumulated = described(a, b, Options(accumulates=True), out=turned).contraction
    assert accumulated.accumulates
    assert (
        described(lying(5, 7, dtype=bfloat16), lying(7, 3, dtype=bfloat16), Options(accumulates=True)).dtype is float32
    )


def test_a_description_hashes_and_is_made_once_for_equal_facts() -> None:
    def one() -> ProductDescription:
        numbers = {"alpha": Number.of(2.0), "beta": Number.of(3.0)}
        options, added = Options(Spec(64), "relu"), {"c": lying(5, 3), "bias": lying(3)}
        return described(lying(5, 7), lying(7, 3), options, **added, **numbers, a_scale=lying(5))

    first, misses = one(), describe.cache_info().misses
    assert one() is first
    assert describe.cache_info().misses == misses
    assert isinstance(hash(first), int)
    assert described(lying(5, 7), lying(7, 4)) != described(lying(5, 7), lying(7, 3))


def test_groups_may_be_given_as_a_call_has_them() -> None:
    assert Options(a_group=16, b_group=(128, 64)) == Options(a_group=Block(16), b_group=Block(128, 64))
    assert Options(a_group=(4, 32)) == Options(a_group=Block(32, 4))
    for group, said in (
        (
            (16,),
            "a_group is (16,), must be a pair of integers of at least 1; pass an extent for each of its last two axes",
        ),
        (0, "a_group is 0, must be an integer of at least 1; count the elements along K that share a scale"),
    ):
        with pytest.raises(OptionError) as error:
            Options(a_group=group)
        assert str(error.value) == f"matmul: {said}"


def test_numbers_differ_where_their_bits_do() -> None:
    zero, minus = (described(lying(5, 7), lying(7, 3), alpha=Number.of(x)) for x in (0.0, -0.0))
    assert zero.operands != minus.operands
    assert zero.contraction == minus.contraction
    assert Number.of(float("nan")) == Number.of(float("nan"))
    assert Number.of(0.1).value == 0.1
    # What rounds to 1 in float32 multiplies nothing.
    assert described(lying(5, 7), lying(7, 3), alpha=Number.of(1 + 2.0**-40)).contraction.epilogue is None


REFUSED: dict[str, tuple[type[SamebitsError], str, Any, Any, Options, dict[str, Any]]] = {
    "rows": (ShapeError, "b row count is 6, must be a's column count 7", lying(5, 7), lying(6, 3), Options(), {}),
    "batch": (ShapeError, "b batch shape is (3,), must be one that", lying(2, 5, 7), lying(3, 7, 3), Options(), {}),
    "scalar": (ShapeError, "a rank is 0, must be at least 1", lying(), lying(7, 3), Options(), {}),
    "factor": (DTypeError, "a dtype is int32", lying(5, 7, dtype=int32), lying(7, 3), Options(), {}),
    "mix": (DTypeError, "b dtype is float32, must be one that", lying(5, 7, dtype=int8), lying(7, 3), Options(), {}),
    "a zero point of floats": (
        OptionError, "a_zero_point is given for float32", lying(5, 7), lying(7, 3), Options(), {"a_zero_point": 1}
    ),
    "a zero point that is none": (
        OptionError, "a_zero_point is 128, must be within [-128, 127]", lying(5, 7, dtype=int8),
        lying(7, 3, dtype=int8), Options(), {"a_zero_point": 128},
    ),
    "a scale of nobody": (
        ShapeError, "a_scale shape is (4,)", lying(5, 7), lying(7, 3), Options(), {"a_scale": lying(4)}
    ),
    "blocks in float64": (
        PlanError, "b_scale per block is beside float64", lying(5, 7, dtype=float64), lying(7, 3),
        Options(b_group=Block(7)), {"b_scale": lying(1, 3)},
    ),
    "a group of nothing": (
        OptionError, "b_group is 7 without blocks", lying(5, 7), lying(7, 3), Options(b_group=Block(7)), {}
    ),
    "a multiplier of each row": (
        ShapeError, "alpha shape is (5, 1), must be one that broadcasts to ()", lying(5, 7), lying(7, 3), Options(),
        {"alpha": lying(5, 1)},
    ),
    "a multiplier of another format": (
        DTypeError, "alpha dtype is float64, must be float32", lying(5, 7), lying(7, 3), Options(),
        {"alpha": lying(dtype=float64)},
    ),
    "beta of nothing": (OptionError, "beta is given without c", lying(5, 7), lying(7, 3), Options(), {"beta": HALF}),
    "an activation that is none": (
        OptionError, "activation is 'mish'", lying(5, 7), lying(7, 3), Options(activation="mish"), {}
    ),
    "an addend of integers": (
        OptionError, "c is given for int32, must be left out", lying(5, 7, dtype=int8), lying(7, 3, dtype=int8),
        Options(), {"c": lying(3)},
    ),
    "an addend that is larger": (
        ShapeError, "bias shape is (4,), must be one that broadcasts to (5, 3)", lying(5, 7), lying(7, 3), Options(),
        {"bias": lying(4)},
    ),
    "a scale of the result alone": (
        OptionError, "out_scale is given without both", lying(5, 7, dtype=int8), lying(7, 3, dtype=int8), Options(),
        {"out_scale": ONE},
    ),
    "a result of another kind": (
        OptionError, "out_dtype is int32, must be float32 or bfloat16 or float16", lying(5, 7), lying(7, 3),
        Options(out_dtype=int32), {},
    ),
    "quantised without a unit": (
        OptionError, "a_scale is None, must be given beside a_dtype", lying(5, 7), lying(7, 3, dtype=int8),
        Options(a_dtype=int8), {},
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_one_is_refused_in_the_words_of_the_call(case: str) -> None:
    kind, text, a, b, options, given = REFUSED[case]
    for call in ("matmul", "plan_matmul"):
        with pytest.raises(kind) as error:
            describe(call, a, b, options, MATMUL, **given)
        assert str(error.value).startswith(f"{call}: {text}")


def test_a_weight_is_refused_by_its_own_names() -> None:
    with pytest.raises(ShapeError, match=r"linear: weight column count is 6, must be x's column count 7"):
        describe("linear", lying(5, 7), lying(3, 6), names=LINEAR)
    with pytest.raises(ShapeError, match=r"linear: weight_scale shape is \(4,\)"):
        describe("linear", lying(5, 7), lying(3, 7), names=LINEAR, b_scale=lying(4))
