"""ModelSizes worth trying: where a size of the model changes its form, and its constants; within a bound, or said."""

import models
import numpy as np
from onnx import TensorProto, helper

from samebits import onnx
from samebits.verification.sizes import LADDER, MOST_ROWS, ModelSizes


def sliced(path, bounds, extent="n"):
    """x[n, 2], a piece for each (start, stop)."""
    nodes, outputs, constants = [], {}, {"axes": np.array([0], np.int64)}
    for i, (start, stop) in enumerate(bounds):
        nodes.append(helper.make_node("Slice", ["x", f"from{i}", f"to{i}", "axes"], [f"y{i}"]))
        outputs[f"y{i}"] = (TensorProto.FLOAT, [f"rest{i}", 2])
        constants |= {f"from{i}": np.array([start], np.int64), f"to{i}": np.array([stop], np.int64)}
    return onnx.load(models.save(path / "m.onnx", nodes, {"x": (TensorProto.FLOAT, [extent, 2])}, outputs, constants))


def test_forms_change_where_slices_begin_and_end(tmp_path):
    made = ModelSizes(sliced(tmp_path, [(17, 2**62), (0, 40), (3000, 2**62)]), "n", 1 << 20)
    assert made.changes("n", 5000, {"n": 1}) == ((18, 41, 3001), None)


def test_a_change_beyond_the_bound_is_found(tmp_path):
    made = ModelSizes(sliced(tmp_path, [(17, 2**62), (123456, 2**62)]), "n", 1 << 12)
    assert made.changes("n", 64, {"n": 1}) == ((18,), 123457)
    batches, beyond = made.batches({"n": 1})
    assert beyond == 123457
    assert 18 in batches


def test_a_model_without_such_sizes_has_the_ladder(tmp_path):
    nodes = [helper.make_node("Exp", ["x"], ["y"])]
    x = (TensorProto.FLOAT, ["n", 2])
    made = ModelSizes(onnx.load(models.save(tmp_path / "m.onnx", nodes, {"x": x}, {"y": x})), "n", 1 << 20)
    assert made.batches({"n": 1}) == (LADDER, None)


def test_the_bound_holds_for_all_values_together(tmp_path):
    nodes = [helper.make_node("Exp", ["x"], ["t"]), helper.make_node("Neg", ["t"], ["y"])]
    x = (TensorProto.FLOAT, ["n", 2])
    made = onnx.load(models.save(tmp_path / "m.onnx", nodes, {"x": x}, {"y": x}))
    assert ModelSizes(made, "n", 600).elements({"n": 100}) == 600
    assert ModelSizes(made, "n", 600).most("n", {}) == 100
    assert ModelSizes(made, "n", 599).most("n", {}) == 99
    assert ModelSizes(made, "n", 1 << 40).most("n", {}) == MOST_ROWS


def test_constants_are_whole_numbers_that_are_no_weights(tmp_path):
    nodes = [
        helper.make_node("Greater", ["x", "limit"], ["is"]),
        helper.make_node("Where", ["is", "few", "weights"], ["w"]),
        helper.make_node("Cast", ["many"], ["floats"], to=TensorProto.FLOAT),
        helper.make_node("Add", ["w", "floats"], ["y"]),
    ]
    constants = {
        "limit": np.array(20.5, np.float32), "few": np.array([[33]], np.float32),
        "weights": np.full((1, 100), 7, np.float32), "many": np.arange(100).reshape(1, 100),
    }  # fmt: skip
    x = (TensorProto.FLOAT, ["n", 1])
    y = (TensorProto.FLOAT, ["n", 100])
    made = onnx.load(models.save(tmp_path / "m.onnx", nodes, {"x": x}, {"y": y}, constants))
    assert ModelSizes(made, "n", 1 << 20).constants == (20, 33, 99)
