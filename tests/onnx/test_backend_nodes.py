"""The ONNX backend's node tests: those of the kept list pass, no others do, and nothing that loads is wrong."""

import numpy as np
import onnx_nodes
import pytest
from onnx import TensorProto, helper
from onnx_nodes import Case, Outcome

# A case of so many elements is compiled sooner than interpreted, but for one whose windows of 125 places are a long
# kernel.
LARGE = 4096
LONG = ("test_maxpool_3d_dilations_use_ref_impl_large",)


@pytest.fixture(scope="module")
def outcomes() -> dict[str, Outcome]:
    """What became of each case: interpreted, but where its operators are the first of their kind or it is large."""
    made, compiled = dict[str, Outcome](), set[frozenset[str]]()
    for case in onnx_nodes.cases():
        operators = frozenset(node.op_type for node in case.model.graph.node)
        is_interpreted = operators in compiled and (elements(case) < LARGE or case.name in LONG)
        made[case.name] = onnx_nodes.run_case(case, "numpy" if is_interpreted else None)
        if made[case.name].status == "pass":
            compiled.add(operators)
    return made


def elements(case: Case) -> int:
    """How many its largest array has."""
    arrays = [x for inputs, due in case.sets for x in (*inputs, *due)]
    return max([x.size for x in arrays if isinstance(x, np.ndarray)], default=0)


@pytest.mark.exhaustive
def test_every_case_passes_compiled(outcomes: dict[str, Outcome]) -> None:
    assert {case.name: onnx_nodes.run_case(case) for case in onnx_nodes.cases()} == outcomes


def test_nothing_is_wrong_and_every_refusal_is_ours(outcomes: dict[str, Outcome]) -> None:
    assert not {name: outcome for name, outcome in outcomes.items() if outcome.status in ("wrong", "error")}
    assert {name for name, outcome in outcomes.items() if outcome.status == "near"} == onnx_nodes.NEAR
    assert {name for name, outcome in outcomes.items() if outcome.status == "differs"} == onnx_nodes.DIFFERENT


def test_those_of_the_kept_list_pass_and_no_others(outcomes: dict[str, Outcome]) -> None:
    passed = {name for name, outcome in outcomes.items() if outcome.status == "pass"}
    lost = {name: outcomes.get(name) for name in onnx_nodes.kept() - passed}
    assert not lost, f"they passed before: {lost}"
    assert not passed - onnx_nodes.kept(), f"they pass now: run {onnx_nodes.COMMAND}"


def case(due: float, op: str = "Neg", shape: tuple[int, ...] = (1,)) -> Case:
    """What an operator makes of one float32, 1, and what is said to be due, within a thousandth."""
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in "xy")
    graph = helper.make_graph([helper.make_node(op, ["x"], ["y"])], "g", [x], [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)])
    given, expected = (helper.make_tensor("t", 1, dims, [v]) for dims, v in (((1,), 1.0), (shape, due)))
    return Case("made", model, 1e-3, 0.0, [([given], [expected])])


def test_what_becomes_of_a_case() -> None:
    assert onnx_nodes.run_case(case(-1.0)) == Outcome("pass")
    assert onnx_nodes.run_case(case(-1.0005)) == Outcome("pass")
    assert onnx_nodes.run_case(case(-1.01)) == Outcome("wrong", "output 0: 1 of 1 values differ")
    assert onnx_nodes.run_case(case(-1.0, shape=(1, 1))) == Outcome("wrong", "output 0: has shape (1,), not (1, 1)")
    assert onnx_nodes.run_case(case(-1.0, "Tan")).status == "unsupported"
