"""Every configuration answers every row, and says what it varies."""

import models
import pytest

from samebits import onnx, samples
from samebits.verification.sessions import Sessions
from samebits.verification.sizes import ModelSizes
from samebits.verification.variants import ROWS, Case, Variants


@pytest.fixture(params=[True, False], ids=["full", "short"])
def variants(tmp_path, request):
    program = onnx.load(models.classifier(tmp_path / "classifier.onnx"))
    rows = tuple(samples.feeds(program, {"batch": 1}, seed) for seed in range(ROWS + 2))
    case = Case("sensible", {"batch": 1}, rows[:ROWS], (rows[ROWS], rows[ROWS + 1]), full=request.param)

    def told(axis, *values):
        raise AssertionError(f"{axis}: {values}")

    return Variants(Sessions(program, "batch", None), ModelSizes(program, "batch", 1 << 21), case, told, told)


def test_each_configuration_answers_every_row(variants):
    rows = variants.case.rows
    for variant in [variants.alone(), *variants.all(interpreter=False)]:
        answered = [(number, run.rows[place]) for run in variant.runs for place, number in run.wanted]
        assert {number for number, _ in answered} == set(range(ROWS))
        assert all(row is rows[number] for number, row in answered)


def test_rows_of_the_test_are_compared_wherever_they_lie(variants):
    rows = {id(row) for row in variants.case.rows}
    for variant in variants.all(interpreter=False):
        for run in variant.runs:
            places = [place for place, _ in run.wanted]
            assert places == [place for place, row in enumerate(run.rows) if id(row) in rows]


def test_names_and_values_are_told_once(variants):
    made = list(variants.all(interpreter=True))
    for told in ([(v.axis, v.name) for v in made], [(v.axis, v.value) for v in made]):
        assert len(set(told)) == len(told)
    # Seventeen rows have too little to share.
    assert {v.axis for v in made} | (set() if variants.case.full else {"threads"}) == {
        "batch",
        "position",
        "neighbours",
        "threads",
        "isa",
        "strides",
    }


def test_positions_and_neighbours_are_others(variants):
    alone, made = variants.alone(), list(variants.all(interpreter=False))
    in_order = tuple(run.rows[0] for run in alone.runs)
    for variant in made:
        if variant.axis == "position":
            assert sorted(map(id, variant.runs[0].rows)) == sorted(map(id, in_order))
            assert all(x is not y for x, y in zip(variant.runs[0].rows, in_order, strict=True) if x is not in_order[8])
        if variant.axis == "neighbours":
            left, _, right = variant.runs[0].rows
            assert id(left) not in map(id, in_order)
            assert id(right) not in map(id, in_order)
