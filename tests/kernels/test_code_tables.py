"""Chains that depend on codes alone are looked up: the bits of computing them, and where a chain is not such a one."""

from collections.abc import Callable
from typing import Any

import aarch64
import launch
import ml_dtypes
import numpy as np
import pytest
import rows

import samebits as sb
from samebits import dtypes
from samebits.codegen.isa import Isa
from samebits.fusion import DataType, FusionDefinition
from samebits.kernels import code_tables, reduce
from samebits.kernels.expression import Chain, Expression
from samebits.kernels.walk import PAIRED, blocks

Array = np.ndarray[Any, Any]
EVERY_ROW = pytest.mark.parametrize("row", rows.ALL_ROWS, ids=lambda row: row.name)
F32, F4, F8 = dtypes.float32, dtypes.of("float4_e2m1fn"), dtypes.of("float8_e4m3fn")
ENOUGH = 1 << 17


def dequantised(chain: Chain, element: dtypes.DType, scale: dtypes.DType) -> Any:
    """element * scale * a number: the inputs 0, 1 and 2."""
    x, s, number = chain.input(element), chain.input(scale), chain.input(F32)
    first = chain.apply("mul", chain.apply("cast", x, dtype=F32), chain.apply("cast", s, dtype=F32))
    return chain.apply("mul", first, number)


def reduced(element: dtypes.DType = F4, scale: dtypes.DType = F8) -> Expression:
    """The sum, both extremes, and the mean square of what is dequantised."""
    c = Chain()
    x = dequantised(c, element, scale)
    square = c.apply("row_sum", c.apply("mul", x, x))
    return c.finish(
        c.apply("row_sum", x), c.apply("row_max", x), c.apply("row_min", x), c.apply("div", square, c.count())
    )


def operands(shape: tuple[int, int, int], codes: int = 256) -> list[Array]:
    """Elements, a scale of each block, every code in turn, and a number."""
    random = np.random.default_rng(shape[2])
    elements = random.integers(0, 16, shape).astype(np.uint8)
    elements[0, :2] = 0
    scales = (np.arange(shape[0] * shape[1]) % codes).astype(np.uint8).reshape(*shape[:2], 1)
    return [elements, scales, np.array(0.37, np.float32)]


def check(
    row: Isa, e: Expression, inputs: list[Array], nibbles: bool, run: Callable[..., None] = launch.run_plan
) -> None:
    """The reference's bits, of elements two to a byte, or of one a byte, by a table."""
    typed = [x.view(dtype.numpy) for x, dtype in zip(inputs, e.inputs, strict=True)]
    due = reduce.reference(e, *typed, axes=(1, 2))
    outputs = [np.full_like(x, 99) for x in due]
    question = e, launch.layouts(*typed), launch.layouts(*outputs), (1, 2), row, 1
    packed = (0,) if nibbles and reduce.takes_packed(*question, (0,)) else ()
    plan = reduce.plan(*question, packed)
    size = inputs[0].shape[2]
    entries = 4096 if typed[1].size > 1 else 16
    of = "inputs 0 and 1" if typed[1].size > 1 else "input 0"
    assert dict(plan.facts)["looked up"] == f"{entries} float32 of the codes of {of}", size
    elements = (inputs[0][..., ::2] | inputs[0][..., 1::2] << 4).copy() if packed else typed[0]
    run(plan, [elements, *typed[1:], *outputs])
    for made, wanted in zip(outputs, due, strict=True):
        launch.assert_bits(made, wanted, row.name)


@EVERY_ROW
@pytest.mark.parametrize(
    ("shape", "scale", "nibbles"),
    [
        # Rows whose last 64 lanes are not all there, of one block of sums and of several; a byte each, where rows of
        # an odd number of elements or those that begin within a byte are unpacked.
        ((64, 129, 16), "float8_e4m3fn", True),
        ((256, 17, 32), "float8_e8m0fnu", True),
        ((16, 65, 128), "float8_e5m2", False),
    ],
)
def test_reductions_have_the_bits_of_computing_each_element(
    row: Isa, shape: tuple[int, int, int], scale: str, nibbles: bool
) -> None:
    check(row, reduced(scale=dtypes.of(scale)), operands(shape), nibbles)


@pytest.mark.parametrize("row", rows.AARCH64_ROWS, ids=lambda row: row.name)
def test_bits_on_aarch64(row: Isa) -> None:
    check(row, reduced(), operands((64, 129, 16)), True, aarch64.run_plan)


@EVERY_ROW
def test_stored_elements_and_other_operands_take_their_own_order(row: Isa) -> None:
    """Beside an operand of each element nothing may be in another order; and a pass may store what it looks up."""
    c = Chain()
    x, other = dequantised(c, F4, F8), c.input(F32)
    mean = c.apply("div", c.apply("row_sum", x), c.count())
    e = c.finish(c.apply("row_sum", c.apply("mul", x, other)), c.apply("mul", c.apply("sub", x, mean), other))
    shape = (65, 127, 16)
    inputs = [*operands(shape, 120), np.random.default_rng(0).standard_normal(shape).astype(np.float32)]
    check(row, e, inputs, True)


@EVERY_ROW
def test_what_a_pass_kept_for_a_later_one_is_in_the_order_of_elements(row: Isa) -> None:
    c = Chain()
    x = dequantised(c, F4, F8)
    power = c.apply("exp", c.apply("sub", x, c.apply("row_max", x)))
    total = c.apply("row_sum", power)
    e = c.finish(c.apply("row_sum", c.apply("mul", c.apply("div", power, total), x)))
    check(row, e, operands((64, 129, 16), 60), True)


@EVERY_ROW
def test_elements_alone_have_a_table_of_sixteen(row: Isa) -> None:
    """int4 less a zero point, and a scale of all: nothing is read beside the codes."""
    c = Chain()
    x, s, zero = c.input(dtypes.of("int4")), c.input(F32), c.input(F32)
    value = c.apply("mul", c.apply("sub", c.apply("cast", x, dtype=F32), zero), s)
    e = c.finish(c.apply("row_sum", c.apply("exp", value)))
    elements = np.random.default_rng(0).integers(0, 16, (64, 129, 16)).astype(np.uint8)
    check(row, e, [elements, np.array(0.1, np.float32), np.array(3, np.float32)], True)


@EVERY_ROW
def test_two_operands_of_codes_have_a_table_each(row: Isa) -> None:
    c = Chain()
    x, y = dequantised(c, F4, F8), dequantised(c, F4, F8)
    e = c.finish(c.apply("row_sum", c.apply("mul", x, y)))
    shape = (64, 129, 16)
    inputs = [*operands(shape, 120), *operands(shape, 90)]
    typed = [x.view(dtype.numpy) for x, dtype in zip(inputs, e.inputs, strict=True)]
    (due,) = reduce.reference(e, *typed, axes=(1, 2))
    found = np.full_like(due, 99)
    plan = reduce.plan(e, launch.layouts(*typed), launch.layouts(found), (1, 2), row)
    assert [kind for kind, _ in plan.facts].count("looked up") == 2
    assert len(plan.steps) == 3
    launch.run_plan(plan, [*typed, found])
    launch.assert_bits(found, due, row.name)


def test_a_fusion_of_nvfp4_is_what_ml_dtypes_makes_of_it() -> None:
    """Rows that begin within a byte too, which are unpacked first."""
    random = np.random.default_rng(0)
    codes = random.integers(0, 16, (40, 257 * 16)).astype(np.uint8)
    scales = random.integers(0, 127, (40, 257)).astype(np.uint8).view(ml_dtypes.float8_e4m3fn)
    values = codes.view(ml_dtypes.float4_e2m1fn).astype(np.float32) * np.repeat(scales.astype(np.float32), 16, axis=1)
    due = sb.sum(values * np.float32(0.37), axis=1)
    whole = sb.to_packed(np.pad(codes, ((0, 0), (1, 1))).view(ml_dtypes.float4_e2m1fn))
    for packed in (sb.to_packed(codes.view(ml_dtypes.float4_e2m1fn)), whole[:, 1:-1]):
        with FusionDefinition() as fd:
            x, s, number = fd.from_any(packed), fd.from_any(scales), fd.define_scalar()
            blocks_of = fd.ops.reshape(fd.ops.cast(x, DataType.Float), [40, 257, 16])
            factors = fd.ops.broadcast(fd.ops.cast(s, DataType.Float), [False, False, True])
            fd.add_output(fd.ops.sum(fd.ops.mul(fd.ops.mul(blocks_of, factors), number), dims=[1, 2]))
        (found,) = fd.execute([packed, scales, 0.37])
        launch.assert_bits(np.asarray(found), due)


def tables(e: Expression, *lies: str, fixed: tuple[int, ...] = (), elements: int = ENOUGH) -> list[str]:
    """What is looked up of an expression whose inputs lie so."""
    return [str(table) for table in code_tables.split(e, lies, fixed, elements)[1]]


@pytest.mark.parametrize(
    ("lies", "fixed", "elements", "found"),
    [
        (("nibbles", blocks(16), "same"), (2,), ENOUGH, ["4096 float32 of the codes of inputs 0 and 1"]),
        (("unit", blocks(64), "same"), (2,), ENOUGH, ["4096 float32 of the codes of inputs 0 and 1"]),
        (("nibbles", "same", "same"), (1, 2), ENOUGH, ["16 float32 of the codes of input 0"]),
        (("nibbles", blocks(16), "same"), (2,), ENOUGH - 1, []),
        # A scale of fewer elements than a row of a table is for, or of each element.
        (("nibbles", blocks(8), "same"), (2,), ENOUGH, []),
        (("nibbles", "unit", "same"), (2,), ENOUGH, []),
        # A number that is another one for each row, beside which a table is of what comes before it.
        (("nibbles", blocks(16), "same"), (), ENOUGH, ["4096 float32 of the codes of inputs 0 and 1"]),
        (("same", blocks(16), "same"), (0, 2), ENOUGH, []),
    ],
)
def test_what_is_looked_up(lies: tuple[str, ...], fixed: tuple[int, ...], elements: int, found: list[str]) -> None:
    assert tables(reduced(), *lies, fixed=fixed, elements=elements) == found


def test_the_table_is_of_the_last_value_by_which_all_is_made() -> None:
    """Squares and elements are both made of the dequantised element, whatever follows."""
    e = reduced()
    _, (table,) = code_tables.split(e, ("nibbles", blocks(16), "same"), (2,), ENOUGH)
    assert e.nodes[table.value - 3].op == "mul"
    assert table.fixed == (2,)
    kept, _ = code_tables.split(e, ("nibbles", blocks(16), "same"), (2,), ENOUGH)
    assert [node.op for node in kept.nodes].count("table") == 1
    assert len(kept.nodes) == len(e.nodes)


def test_what_is_no_more_than_a_conversion_is_computed() -> None:
    c = Chain()
    e = c.finish(c.apply("row_sum", c.apply("cast", c.input(F4), dtype=F32)))
    assert tables(e, "nibbles") == []


def test_codes_that_are_read_beside_the_chain_are_computed() -> None:
    c = Chain()
    x, other = c.input(F4), c.input(F32)
    number = c.apply("cast", x, dtype=F32)
    e = c.finish(c.apply("row_sum", c.apply("exp", number)), c.apply("row_sum", c.apply("mul", number, other)))
    assert tables(e, "nibbles", "unit") == []


def test_numbers_of_64_bits_are_computed() -> None:
    c = Chain()
    x = c.apply("cast", c.apply("neg", c.apply("cast", c.input(F4), dtype=F32)), dtype=dtypes.float64)
    e = c.finish(c.apply("row_sum", x))
    assert tables(e, "nibbles") == ["16 float32 of the codes of input 0"]  # what comes before them is looked up
    c = Chain()
    x = c.apply("neg", c.apply("cast", c.input(F4), dtype=dtypes.float64))
    assert tables(c.finish(c.apply("row_sum", x)), "nibbles") == []


def test_lanes_take_turns_between_two_words() -> None:
    assert PAIRED == (0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15)
