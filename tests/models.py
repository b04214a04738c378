"""Small ONNX models for tests, saved where asked."""

import pathlib

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


def save(path: pathlib.Path, nodes, inputs, outputs, constants=None, opset: int = 17) -> pathlib.Path:
    """Write a model; `inputs` and `outputs` map names to (element type, shape)."""

    def described(values):
        return [helper.make_tensor_value_info(name, kind, shape) for name, (kind, shape) in values.items()]

    initializers = [numpy_helper.from_array(np.asarray(x), name) for name, x in (constants or {}).items()]
    graph = helper.make_graph(nodes, path.stem, described(inputs), described(outputs), initializers)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    onnx.checker.check_model(model)
    onnx.save(model, path)
    return path


def weights(*shape: int, seed: int = 0):
    """Seeded normal float32."""
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def quantising(path: pathlib.Path) -> pathlib.Path:
    """MatMul, then a per-tensor DynamicQuantizeLinear whose scale spans the batch."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["y"], name="project"),
        helper.make_node("DynamicQuantizeLinear", ["y"], ["q", "scale", "zero"], name="quantise"),
        helper.make_node("DequantizeLinear", ["q", "scale", "zero"], ["out"], name="back"),
    ]
    inputs, outputs = {"x": (TensorProto.FLOAT, ["batch", 8])}, {"out": (TensorProto.FLOAT, ["batch", 4])}
    return save(path, nodes, inputs, outputs, {"w": weights(8, 4)})


def classifier(path: pathlib.Path) -> pathlib.Path:
    """MatMul, Add, Softmax: the smallest model that uses every kernel room."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["y"], name="project"),
        helper.make_node("Add", ["y", "b"], ["z"], name="bias"),
        helper.make_node("Softmax", ["z"], ["p"], name="softmax", axis=-1),
    ]
    inputs, outputs = {"x": (TensorProto.FLOAT, ["batch", 70])}, {"p": (TensorProto.FLOAT, ["batch", 300])}
    return save(path, nodes, inputs, outputs, {"w": weights(70, 300), "b": weights(300, seed=1)})


def fixed(path: pathlib.Path) -> pathlib.Path:
    """One Exp of a fixed shape: no batch to vary."""
    value = {"x": (TensorProto.FLOAT, [3, 5])}
    return save(path, [helper.make_node("Exp", ["x"], ["y"], name="exp")], value, {"y": (TensorProto.FLOAT, [3, 5])})
