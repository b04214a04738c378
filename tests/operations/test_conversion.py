"""Casts that draw or refuse, as nodes of programs: the bits of an eager call, and its sentence with the node's name."""

from __future__ import annotations

import numpy as np
import pytest

import samebits as sb
from samebits import dtypes
from samebits.conversions import Conversion
from samebits.errors import DTypeError
from samebits.operations import registry
from samebits.operations.conversion import Converted
from samebits.operations.fact import dense
from samebits.program.builder import ProgramBuilder
from samebits.program.graph import Program
from samebits.runtime import cpu, reference

E4M3 = dtypes.float8_e4m3fn


def program(how: Conversion, seed: int | None = None) -> Program:
    """One cast of a sum [4, 3]."""
    p = ProgramBuilder("cast")
    p.origin = ("before",)
    x = p.apply("add", *[p.input("x", dtypes.float32, (4, 3))] * 2)
    p.origin = ("narrow",)
    y = p.cast(x, E4M3, how, None if seed is None else p.constant(np.array(seed, np.uint64)))
    return p.build({"y": y})


def test_a_program_draws_as_an_eager_call() -> None:
    made = program(Conversion("stochastic"), 9)
    x = np.random.default_rng(0).standard_normal((4, 3)).astype(np.float32)
    due = sb.cast(sb.add(x, x), E4M3, rounding="stochastic", seed=9)
    for run in (cpu.prepare(made).run, lambda given: reference.run(made, given)):
        assert run({"x": x})["y"].tobytes() == due.tobytes()


def test_a_session_names_the_first_element_that_does_not_fit() -> None:
    session = cpu.prepare(program(Conversion(overflow="error")))
    x = np.ones((4, 3), np.float32)
    assert session.run({"x": x})["y"].astype(np.float32).tolist() == (x + x).tolist()
    x[2, 1], x[3, 0] = 300.0, np.inf
    sentence = (
        "x element (2, 1) is nothing that float8_e4m3fn has a value for, must be a number within [-448.0, 448.0];"
        " pass overflow='saturate' or 'ieee', or say by nan= and inf= what those become"
    )
    with pytest.raises(DTypeError) as caught:
        session.run({"x": x})
    assert str(caught.value) == f"run: node 'narrow': cast: {sentence}"
    with pytest.raises(DTypeError) as caught:
        sb.cast(sb.add(x, x), E4M3, overflow="error")
    assert str(caught.value) == f"cast: {sentence}"
    x[2, 1], x[3, 0] = 1.0, 1.0
    assert session.run({"x": x})["y"].astype(np.float32).tolist() == (x + x).tolist()


def test_they_are_never_fused_and_print_what_they_do() -> None:
    attributes = Converted(dtypes.float32, E4M3, Conversion("stochastic", "saturate"))
    assert str(attributes) == "float8_e4m3fn, stochastic, saturate"
    assert attributes.operation == "stochastic_cast"
    names = [node.operation for node in program(Conversion("stochastic"), 1).nodes]
    assert names == ["map", "stochastic_cast"]


def test_what_is_drawn_follows_no_axis() -> None:
    row = registry.ROWS["stochastic_cast"]
    facts = [dense(dtypes.float32, (4, 3)), dense(dtypes.uint64, ())]
    assert row.axes is not None
    assert row.axes(Converted(dtypes.float32, E4M3, Conversion("stochastic")), facts).follows == ((None, None), ())
    assert row.axes(Converted(dtypes.float32, E4M3, Conversion(overflow="error")), facts[:1]).follows == ((0, 1),)


def test_a_seed_is_one_uint64() -> None:
    p = ProgramBuilder("cast")
    x = p.input("x", dtypes.float32, (3,))
    with pytest.raises(DTypeError, match="operands dtypes"):
        p.cast(x, E4M3, Conversion("stochastic"), p.constant(np.array(3, np.int64)))
