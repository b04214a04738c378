"""verify finds what depends on the batch or on a row, names the node, and passes what does not."""

import models
import numpy as np
import pytest

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
        "batch": "the inputs have no common symbolic first axis",
        "process": "the model is not a file",
    }


def test_samples_stay_within_what_they_index(tmp_path):
    from onnx import TensorProto, helper

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
