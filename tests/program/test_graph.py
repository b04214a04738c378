"""Programs: text, digest, checks."""

import numpy as np
import pytest

from samebits import dtypes
from samebits.errors import ModelError, OptionError, SamebitsError, ShapeError
from samebits.operations import dim
from samebits.operations.fact import dense
from samebits.program.builder import ProgramBuilder
from samebits.program.graph import Node, Program


def small(value: float = 2.0) -> Program:
    """y = max(x @ w + 2, 0)."""
    b = ProgramBuilder("small")
    x = b.input("x", dtypes.float32, (dim.symbol("batch"), 3))
    product = b.contract(x, b.constant(np.full((3, 2), 0.5, np.float32), "w"))
    y = b.apply("add", product, b.scalar(value, dtypes.float32))
    return b.build({"y": y}, {"xw": product})


def test_text() -> None:
    assert str(small()) == "\n".join(
        [
            "program small",
            "  input x: float32[batch, 3]",
            "  constant w: float32[3, 2]",
            "  constant %2: float32[]",
            "  xw: float32[batch, 2] = contract(x, w, product)",
            "  y: float32[batch, 2] = map(xw, %2, add(x0, x1))",
            "  output y",
        ]
    )


@pytest.mark.parametrize(
    ("values", "axis", "error", "text"),
    [
        (("x",), 2, ShapeError, "concat: axis is 2, must be within a rank of 2; give an existing one"),
        (("x",), "a", ShapeError, "concat: axis is 'a', must be an integer; give an existing one"),
        (("x", "x"), 1.0, ShapeError, "concat: axis is 1.0, must be an integer; give an existing one"),
        (("z",), 0, OptionError, "concat: operand is 'z', must be a value of this program; define it first"),
        (("x", "z"), 0, OptionError, "concat: operand is 'z', must be a value of this program; define it first"),
    ],
)
def test_one_value_is_concatenated_under_the_conditions_of_several(
    values: tuple[str, ...], axis: int, error: type[SamebitsError], text: str
) -> None:
    b = ProgramBuilder("one")
    assert b.concat((b.input("x", dtypes.float32, (2, 3)),), 1) == "x"
    with pytest.raises(error) as caught:
        b.concat(values, axis)
    assert str(caught.value) == text


def test_digest_covers_constants() -> None:
    assert small().digest() == small().digest()
    assert small().digest() != small(3.0).digest()


def test_shape_arithmetic_folds_as_it_is_added() -> None:
    b = ProgramBuilder("shapes")
    n = dim.symbol("n")
    b.input("x", dtypes.float32, (n, 6))
    shape = b.dims((n, 6))
    doubled = b.apply("mul", shape, b.dims((2,)))
    assert b.integers(doubled) == (2 * n, 12)


def test_operands_that_do_not_fit_are_refused() -> None:
    b = ProgramBuilder("bad")
    x = b.input("x", dtypes.float32, (2, 3))
    with pytest.raises(ShapeError) as error:
        b.contract(x, x)
    expected = "matmul: operands shapes is [2, 3] and [2, 3], must be equal in K; transpose one, or check the weights"
    assert str(error.value) == expected


def test_check_finds_a_value_that_nothing_makes() -> None:
    program = small()
    broken = Program("broken", program.facts, (Node("map", ("lost",), ("y",)),), {}, ("x",), ("y",))
    with pytest.raises(ModelError) as error:
        broken.check()
    assert str(error.value) == (
        "Program.check: input 'lost' of map (no origin) is not made by then, must be made by an earlier node; "
        "report the transform that made it"
    )


def test_a_program_with_nothing_else_in_it_is_the_same_program() -> None:
    program = small()
    assert program.replace(program.nodes) is program
    assert program.replace(program.nodes, dict(program.facts), dict(program.constants)) is program
    assert program.replace(program.nodes[:0]) is not program
    assert program.replace(program.nodes, {**program.facts, "y": dense(dtypes.float32, (6,))}) is not program
