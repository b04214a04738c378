"""verify finds what depends on the batch or on a row, names the node, and passes what does not."""

import math
import pathlib

import models
import numpy as np
import pytest
from onnx import TensorProto, helper

import samebits as sb
from samebits import onnx, samples, verify
from samebits.codegen import isa as isas
from samebits.kernels import fold, reduce, reduce_text


def test_equal_bits_everywhere_is_exit_code_0(tmp_path):
    path = models.classifier(tmp_path / "classifier.onnx")
    report = verify.verify(onnx.load(path), model=path, interpreter=True)
    assert report.exit_code == 0
    assert {c.axis for c in report.configurations} >= {"batch", "position", "neighbours", "threads", "isa", "process"}
    assert report.configurations[-1].name == "numpy, the first row alone"
    assert len({c.digest for c in report.configurations[:-1]}) == 1
    assert report.verdict == f"all {len(report.configurations)} configurations gave the same bits"


def test_scale_that_spans_the_batch_is_named(tmp_path):
    report = verify.verify(onnx.load(models.quantising(tmp_path / "quantising.onnx")))
    assert report.exit_code == 1
    wrong = {c.axis for c in report.configurations if not c.agrees}
    assert {"batch", "neighbours"} <= wrong
    assert report.difference is not None
    assert (report.difference.axis, report.difference.name) == ("batch", "batches of 2")
    assert report.difference.node == "quantise"


def _thirty_two_lanes(b, d):
    """The text of row reductions with the wrong number of lanes on one Isa row."""
    if b.isa.name == "scalar":
        kept, fold.LANES = fold.LANES, 32
        try:
            reduce_text.text(b, d)
        finally:
            fold.LANES = kept
    else:
        reduce_text.text(b, d)


@pytest.fixture
def broken_order(monkeypatch):
    monkeypatch.setattr(reduce, "text", _thirty_two_lanes)
    reduce.plan.cache_clear()
    yield
    reduce.plan.cache_clear()


@pytest.mark.skipif(not isas.named("scalar").available, reason="needs two compiled rows")
@pytest.mark.usefixtures("broken_order")
def test_kernel_with_another_order_is_caught(tmp_path):
    report = verify.verify(onnx.load(models.classifier(tmp_path / "classifier.onnx")))
    assert report.exit_code == 1
    assert [c.name for c in report.configurations if not c.agrees] == ["scalar"]
    assert report.difference is not None
    assert (report.difference.axis, report.difference.node) == ("isa", "softmax")


def test_what_cannot_be_varied_is_exit_code_2(tmp_path):
    report = verify.verify(onnx.load(models.fixed(tmp_path / "fixed.onnx")))
    assert report.exit_code == 2
    assert dict(report.unvaried) == {
        "batch": "no symbol is the first axis of every input, and only that",
        "process": "the model is not a file",
    }


def test_samples_stay_within_what_they_index(tmp_path):
    nodes = [helper.make_node("Gather", ["table", "ids"], ["y"], name="look_up", axis=0)]
    inputs = {"ids": (TensorProto.INT64, ["batch", "n"])}
    outputs = {"y": (TensorProto.FLOAT, ["batch", "n", 4])}
    path = models.save(tmp_path / "table.onnx", nodes, inputs, outputs, {"table": models.weights(3, 4)})
    program = onnx.load(path)
    made = samples.feeds(program, {"batch": 40, "n": 40}, 0)["ids"]
    assert made.dtype == np.int64
    assert (made.min(), made.max()) == (0, 2)
    assert made.tobytes() == samples.feeds(program, {"batch": 40, "n": 40}, 0)["ids"].tobytes()


def test_digest_covers_names_formats_shapes_and_bits():
    x = np.zeros((2, 3), np.float32)
    digests = {
        verify.digest([{"y": x}]),
        verify.digest([{"z": x}]),
        verify.digest([{"y": x.astype(np.int32)}]),
        verify.digest([{"y": x.reshape(3, 2)}]),
        verify.digest([{"y": -x}]),
    }
    assert len(digests) == 5


FLOAT = TensorProto.FLOAT
UNVARIED = {"process": "the model is not a file"}


def model(path, nodes, inputs, outputs, constants=None):
    return onnx.load(models.save(path / "model.onnx", nodes, inputs, outputs, constants))


def merging(quantise: bool):
    """A batch that is moved behind another axis and merged into it, so that its rows lie interleaved."""
    nodes = [
        helper.make_node("Transpose", ["x"], ["t"], perm=[1, 0, 2], name="move"),
        helper.make_node("Reshape", ["t", "flat"], ["m"], name="merge"),
        helper.make_node("Exp", ["m"], ["e"], name="exp"),
    ]
    if quantise:
        nodes += [
            helper.make_node("DynamicQuantizeLinear", ["e"], ["q", "scale", "zero"], name="quantise"),
            helper.make_node("DequantizeLinear", ["q", "scale", "zero"], ["y"], name="back"),
        ]
    inputs, outputs = {"x": (FLOAT, ["batch", 3, 4])}, {"y" if quantise else "e": (FLOAT, ["rows", 4])}
    return nodes, inputs, outputs, {"flat": np.array([-1, 4], np.int64)}


def test_rows_that_lie_interleaved_are_found(tmp_path):
    report = verify.verify(model(tmp_path, *merging(quantise=False)))
    assert (report.exit_code, dict(report.unvaried)) == (2, UNVARIED)
    report = verify.verify(model(tmp_path, *merging(quantise=True)))
    assert report.exit_code == 1
    assert report.difference is not None
    assert report.difference.node == "quantise"


def test_part_finds_a_row_however_the_batch_lies():
    row = np.arange(12, dtype=np.float32).reshape(2, 6)
    for outer in (1, 2, 3, 6):
        pieces = np.stack([row.reshape(2, outer, 6 // outer), -row.reshape(2, outer, 6 // outer)], 2)
        whole = pieces.reshape(2, 12)
        assert verify.same_bits(verify.part(whole, 1, 0, 2, row), row)
        assert verify.same_bits(verify.part(whole, 1, 1, 2, -row), -row)
        assert not verify.same_bits(verify.part(whole, 1, 1, 2, row), row)
    assert verify.part(row, 1, 0, 4, row) is row  # 6 does not divide into 4 rows


def test_each_variant_answers_every_row_once(tmp_path):
    program = onnx.load(models.classifier(tmp_path / "classifier.onnx"))
    rows = [samples.feeds(program, {"batch": 1}, seed) for seed in range(verify.ROWS)]
    for variant in verify._variants(verify._Bench(program, "batch", rows, None), rows[:2], False):
        answered = [(number, run.rows[place]) for run in variant.runs for place, number in run.wanted]
        assert sorted(number for number, _ in answered) == list(range(verify.ROWS))
        assert all(row is rows[number] for number, row in answered)


def test_a_wrong_first_batch_is_not_hidden_by_a_later_one(tmp_path, monkeypatch):
    program = onnx.load(models.classifier(tmp_path / "classifier.onnx"))
    rows = [samples.feeds(program, {"batch": 1}, seed) for seed in range(verify.ROWS)]
    original = verify._Bench.stack

    def stack(self, together):
        made = original(self, together)
        if len(together) == 3 and together[0]["x"].tobytes() == rows[0]["x"].tobytes():
            made["x"][0, 0] += 1
        return made

    monkeypatch.setattr(verify._Bench, "stack", stack)
    assert [c.name for c in verify.verify(program).configurations if not c.agrees] == ["batches of 3"]


def test_second_process_that_fails_is_an_axis_that_could_not_be_varied(tmp_path):
    path = models.classifier(tmp_path / "classifier.onnx")
    report = verify.verify(onnx.load(path), model=pathlib.Path(tmp_path / "gone.onnx"))
    assert report.exit_code == 2
    ((axis, why),) = report.unvaried
    assert axis == "process"
    assert why.startswith("it ended with code 2 and said: ")
    assert why.endswith("does not exist.")


def test_names_that_numpy_keeps_for_itself_reach_the_second_process(tmp_path):
    nodes = [helper.make_node("Exp", ["file"], ["allow_pickle"], name="exp")]
    path = models.save(
        tmp_path / "m.onnx", nodes, {"file": (FLOAT, ["batch", 4])}, {"allow_pickle": (FLOAT, ["batch", 4])}
    )
    assert verify.verify(onnx.load(path), model=path).exit_code == 0


def test_symbol_on_two_axes_of_an_input_is_no_batch(tmp_path):
    nodes = [helper.make_node("Exp", ["x"], ["y"], name="exp")]
    report = verify.verify(model(tmp_path, nodes, {"x": (FLOAT, ["n", "n"])}, {"y": (FLOAT, ["n", "n"])}))
    assert dict(report.unvaried) == UNVARIED | {"batch": "no symbol is the first axis of every input, and only that"}


def test_bindings_name_symbols_that_are_free(tmp_path):
    nodes = [helper.make_node("Exp", ["x"], ["y"], name="exp")]
    program = model(tmp_path, nodes, {"x": (FLOAT, ["batch", "n"])}, {"y": (FLOAT, ["batch", "n"])})
    for name, remedy in [("batch", "leave it out, verify varies it"), ("m", "see samebits dump")]:
        with pytest.raises(sb.OptionError) as caught:
            verify.verify(program, bindings={name: 3})
        assert str(caught.value) == f"verify: bindings symbol is {name!r} (3), must be one of ['n']; {remedy}"
    report = verify.verify(program, bindings={"n": 0})
    assert dict(report.unvaried) == UNVARIED | {"input": "the outputs have no elements"}


def test_sum_over_the_batch_is_named(tmp_path):
    nodes = [helper.make_node("ReduceSum", ["x", "axes"], ["y"], keepdims=0, name="total")]
    constants = {"axes": np.array([0], np.int64)}
    report = verify.verify(model(tmp_path, nodes, {"x": (FLOAT, ["batch", 4])}, {"y": (FLOAT, [4])}, constants))
    assert report.exit_code == 1
    assert report.verdict.endswith("moved by batch")
    assert "first at node total" in report.verdict


def test_verdict_names_the_axis_where_no_node_differs_again():
    found = (verify.Configuration("baseline", "a", "0", True), verify.Configuration("threads", "b", "1", False))
    report = verify.Report(found, None, (), ())
    expected = "NOT the same bits: 1 of 2 configurations differ; at no single node when run again, moved by threads"
    assert (report.exit_code, report.verdict) == (1, expected)


def test_elements_are_compared_by_bits():
    x = np.array([0.0, np.nan, 1.0], np.float32)
    y = np.array([-0.0, np.nan, 1.0], np.float32)
    assert verify.different_elements(x, x) == 0
    assert verify.different_elements(x, y) == 1
    assert not verify.same_bits(x, y)
    assert not verify.same_bits(x[:0], x[:0].astype(np.float64))


def test_compare_hides_nothing():
    x = np.array([1.0, np.nan, np.inf, -1.0], np.float32)

    def apart(a, b):
        found = verify.compare("other", "y", np.asarray(a), np.asarray(b))
        return found.absolute, found.ulp

    assert apart(x, x) == (0.0, 0)
    assert apart(x[:1], np.nextafter(x[:1], np.float32(2))) == (2.0**-23, 1)
    assert apart(np.float32([0.0]), np.float32([-0.0])) == (0.0, 1)
    assert apart(np.float64([-1.7e308]), np.float64([1.7e308])) == (
        math.inf,
        2 * int(np.float64(1.7e308).view(np.int64)) + 1,
    )
    assert apart(x, np.float32([1.0, 0.0, np.inf, -1.0]))[0] == math.inf
    assert apart(x, np.float32([1.0, np.nan, 3e38, -1.0]))[0] == math.inf
    assert apart(np.int64([3, -4]), np.int64([3, 5])) == (9.0, 0)
    assert apart([True, False], [True, True]) == (1.0, 0)
    assert apart(x, x[:2])[0] == math.inf
    assert apart(x[:0], x[:0]) == (0.0, 0)
