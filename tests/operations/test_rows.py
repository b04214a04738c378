"""The operation `rows`: what it gives, and what rows without elements have no value for."""

from __future__ import annotations

import numpy as np
import onnx
import protos
import pytest
from onnx import helper

import samebits as sb
from samebits.dtypes import float32
from samebits.errors import PlanError, UnsupportedModelError
from samebits.kernels import composites
from samebits.operations import dim, registry
from samebits.operations.fact import dense
from samebits.operations.rows import RowWise

ROWS = registry.ROWS["rows"]
MAX = composites.reduction("row_max")


def test_rows_without_elements_have_sums_and_no_extremes() -> None:
    (total,) = ROWS.infer(RowWise(composites.reduction("row_sum")), [dense(float32, (3, 0))])
    assert total.shape == (3, 1)
    for shape, axes in (((3, 0), (-1,)), ((0, 3), (-2,)), ((0, 3), (-2, -1)), ((0,), (-1,)), ((2, 0, 3), (-2,))):
        with pytest.raises(PlanError) as refused:
            ROWS.infer(RowWise(MAX, axes), [dense(float32, shape)])
        assert str(refused.value) == (
            f"rows: x0 length along axes {[*axes]} is 0, must be at least 1; "
            "give each row an element, as row_max of nothing has no value"
        )
        with pytest.raises(PlanError, match="row_max of nothing"):
            ROWS.reference(RowWise(MAX, axes), [np.zeros(shape, np.float32)])


def test_no_rows_at_all_have_no_values_and_unknown_rows_may_have_some() -> None:
    for shape in ((0, 3), (0, 0)):
        (made,) = ROWS.infer(RowWise(MAX), [dense(float32, shape)])
        assert made.shape == (0, 1)
    n = dim.symbol("n")
    (made,) = ROWS.infer(RowWise(MAX), [dense(float32, (3, n))])
    assert made.shape == (3, 1)
    (made,) = ROWS.infer(RowWise(composites.softmax()), [dense(float32, (3, 0))])
    assert made.shape == (3, 0)


@pytest.mark.parametrize("op", ["ReduceMax", "ReduceMin", "DynamicQuantizeLinear"])
def test_a_model_refuses_an_empty_tensor_by_its_node(op: str) -> None:
    kinds = [np.float32] if op.startswith("Reduce") else [np.uint8, np.float32, np.uint8]
    outputs = [f"y{number}" for number in range(len(kinds))]

    def made(extent: int | str) -> onnx.ModelProto:
        node = helper.make_node(op, ["x"], outputs, name="extreme")
        values = [protos.value(name, kind, None) for name, kind in zip(outputs, kinds, strict=True)]
        return protos.model([node], [protos.value("x", np.float32, [extent, 3])], values)

    session, least = sb.load(made("n")), "row_max" if op == "ReduceMax" else "row_min"
    due = f"rows: x0 length along axes .* is 0, must be at least 1; give each row an element, as {least} of nothing"
    with pytest.raises(PlanError, match=f"run: node 'extreme': {due}"):
        session.run({"x": np.zeros((0, 3), np.float32)})
    assert session.run({"x": np.ones((2, 3), np.float32)}).keys() == {*outputs}
    with pytest.raises(UnsupportedModelError, match=f"node 'extreme', {op} of opset .*: {due}"):
        sb.load(made(0))
