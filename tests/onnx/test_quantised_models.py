"""Models that `quantize_static` of ONNX Runtime writes: of each node the result is a step from its own at most."""

from __future__ import annotations

import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx as onnx_package
import onnxruntime
import protos
import pytest
from onnx import ModelProto, helper, numpy_helper

from samebits import onnx
from samebits.runtime import cpu, reference

Array = np.ndarray[Any, np.dtype[Any]]
F = np.float32
EPS = np.finfo(F).eps
SHAPE = (2, 3, 20, 18)


def floats() -> ModelProto:
    """A residual block, a gated depthwise one, two that are joined, and what ends a network for classes."""
    random = np.random.default_rng(4)
    constants: dict[str, Array] = {"low": np.array(0, F), "high": np.array(6, F)}
    nodes = []

    def add(op: str, *names: str, **attributes: Any) -> str:
        nodes.append(helper.make_node(op, names, [f"t{len(nodes)}"], f"n{len(nodes)}", **attributes))
        return f"t{len(nodes) - 1}"

    def conv(x: str, filters: int, depth: int, kernel: int, **attributes: Any) -> str:
        name = f"w{len(nodes)}"
        constants[name] = random.standard_normal((filters, depth, kernel, kernel)).astype(F) / F(depth * kernel)
        constants[f"b{name}"] = random.standard_normal(filters).astype(F) / 4
        return add("Conv", x, name, f"b{name}", kernel_shape=[kernel] * 2, pads=[kernel // 2] * 4, **attributes)

    x = add("Relu", conv("x", 8, 3, 3, strides=[2, 2]))
    x = add("MaxPool", x, kernel_shape=[3, 3], strides=[1, 1], pads=[1] * 4)
    x = add("Relu", add("Add", conv(add("LeakyRelu", conv(x, 8, 8, 3), alpha=0.1), 8, 8, 3), conv(x, 8, 8, 1)))
    y = add("Clip", conv(x, 8, 1, 3, group=8), "low", "high")
    y = add("Mul", y, add("Sigmoid", conv(add("GlobalAveragePool", y), 8, 8, 1)))
    y = add("Concat", y, add("AveragePool", x, kernel_shape=[3, 3], strides=[1, 1], pads=[1] * 4), axis=1)
    y = add("Flatten", add("GlobalAveragePool", y))
    constants |= {"w": random.standard_normal((10, 16)).astype(F), "b": random.standard_normal(10).astype(F)}
    y = add("Softmax", add("Gemm", y, "w", "b", transB=1))
    outputs = [protos.value(y, F, [SHAPE[0], 10])]
    return protos.model(nodes, [protos.value("x", F, SHAPE)], outputs, constants)


def images(seed: int) -> dict[str, Array]:
    return {"x": np.random.default_rng(seed).standard_normal(SHAPE).astype(F)}


def quantised(path: pathlib.Path, form: str, each: bool) -> ModelProto:
    """The model with int8 weights, of 7 bits, whose products no instruction of ONNX Runtime saturates; `each`: with a
    scale for each filter."""
    from onnxruntime import quantization
    from onnxruntime.quantization.calibrate import CalibrationDataReader

    class Reader(CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            self.left = [images(seed) for seed in range(3)]

        def get_next(self) -> dict[str, Array] | None:
            return self.left.pop() if self.left else None

    onnx_package.save(floats(), path / "floats.onnx")
    quantization.quantize_static(
        path / "floats.onnx", path / "made.onnx", Reader(), quant_format=quantization.QuantFormat[form],
        per_channel=each, reduce_range=True, activation_type=quantization.QuantType.QUInt8,
        weight_type=quantization.QuantType.QInt8,
    )  # fmt: skip
    return onnx_package.load(path / "made.onnx")


def answers(made: ModelProto, feed: Mapping[str, Array]) -> dict[str, Array]:
    """By kernels, which are the reference's."""
    program = onnx.load(made)
    found, due = cpu.prepare(program, threads=1).run(feed), reference.run(program, feed)
    for name, x in found.items():
        assert x.tobytes() == np.ascontiguousarray(due[name]).tobytes()
    return found


def everything(made: ModelProto, feed: Mapping[str, Array]) -> dict[str, Array]:
    """What ONNX Runtime has for every value, none of its nodes joined."""
    wide = ModelProto()
    wide.CopyFrom(made)
    names = [name for node in made.graph.node for name in node.output]
    del wide.graph.output[:]
    wide.graph.output.extend(helper.make_empty_tensor_value_info(name) for name in names)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(wide.SerializeToString(), options, providers=["CPUExecutionProvider"])
    known = {x.name: numpy_helper.to_array(x) for x in made.graph.initializer}
    return known | dict(feed) | dict(zip(names, session.run(None, feed), strict=True))


OPERATORS = {
    "QuantizeLinear", "QLinearConv", "MaxPool", "QLinearAdd", "QLinearMul", "QLinearSigmoid", "QLinearLeakyRelu",
    "QLinearAveragePool", "QLinearGlobalAveragePool", "QLinearConcat", "Flatten", "QGemm", "QLinearSoftmax",
    "DequantizeLinear",
}  # fmt: skip
PAIRS = {
    "QuantizeLinear", "Conv", "MaxPool", "Add", "Mul", "Sigmoid", "LeakyRelu", "AveragePool", "GlobalAveragePool",
    "Concat", "Flatten", "Gemm", "Softmax", "DequantizeLinear",
}  # fmt: skip


@pytest.mark.parametrize(
    ("form", "each", "ops"), [("QOperator", False, OPERATORS), ("QOperator", True, OPERATORS), ("QDQ", True, PAIRS)]
)
def test_each_node_is_a_step_from_onnxruntime_at_most(
    tmp_path: pathlib.Path, form: str, each: bool, ops: set[str]
) -> None:
    """Of the operands that ONNX Runtime has for it; numbers are near."""
    made, feed = quantised(tmp_path, form, each), images(9)
    assert {node.op_type for node in made.graph.node} == ops
    values = everything(made, feed)
    constants = {x.name for x in made.graph.initializer}
    for node in made.graph.node:
        given = {name: values[name] for name in node.input if name}
        (name,) = node.output
        one = protos.model(
            [node],
            [protos.value(key, x.dtype, x.shape) for key, x in given.items() if key not in constants],
            [protos.value(name, values[name].dtype, None)],
            {key: x for key, x in given.items() if key in constants},
            domains=["com.microsoft"],
        )
        found, due = answers(one, {key: x for key, x in given.items() if key not in constants})[name], values[name]
        assert (found.dtype, found.shape) == (due.dtype, due.shape)
        apart = abs(found.astype(float) - due.astype(float))
        assert apart.max() <= (64 * EPS * abs(due).max() if due.dtype == F else 1)
    (found,), due = answers(made, feed).values(), values[made.graph.output[0].name]
    assert (found.argmax(1) == due.argmax(1)).all()
