"""Single ONNX nodes, and small models, beside ONNX Runtime: one thread, float32 unless a name says otherwise.

What a model is made of, at the sizes of small networks for images and text. Each runs interleaved with ONNX Runtime in
one process, so that either finds the caches as the other left them; medians. Microseconds include the call from Python.
`python benches/nodes.py [NAME ...]` measures those whose name has one of these in it.
"""

from __future__ import annotations

import functools
import itertools
import math
import sys
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnxruntime
from _turns import medians
from onnx import TensorProto, helper, numpy_helper

import samebits as sb

Array = np.ndarray[Any, Any]
_RANDOM = np.random.default_rng(0)
# Inputs, constants and nodes (operator, its inputs, its output, attributes); the last output is the model's.
Nodes = list[tuple[str, list[str], str, dict[str, Any]]]
Model = tuple[dict[str, Array], dict[str, Array], Nodes]
_ROUNDS, _SECONDS = 200, 1.0


def drawn(*shape: int) -> Array:
    """Normal numbers."""
    return _RANDOM.standard_normal(shape).astype(np.float32)


def one(op: str, *shape: int, **attributes: Any) -> Model:
    """A node of one input."""
    return {"x": drawn(*shape)}, {}, [(op, ["x"], "y", attributes)]


def conv(channels: int, size: int, filters: int, kernel: int, stride: int = 1, groups: int = 1) -> Model:
    """A convolution of a square image, padded to keep its size, with a bias."""
    depth = channels // groups
    weights = drawn(filters, depth, kernel, kernel) / np.float32(np.sqrt(depth * kernel**2))
    slide = {"kernel_shape": [kernel] * 2, "strides": [stride] * 2, "pads": [kernel // 2] * 4, "group": groups}
    constants = {"w": weights, "b": drawn(filters)}
    return {"x": drawn(1, channels, size, size)}, constants, [("Conv", ["x", "w", "b"], "y", slide)]


def conv_of_bytes(channels: int, size: int, filters: int, kernel: int, stride: int = 1, groups: int = 1) -> Model:
    """The same of uint8 by int8, a scale for each filter, the result in uint8."""
    shape = filters, channels // groups, kernel, kernel
    k = math.prod(shape[1:])
    constants = {
        "xs": np.float32(0.02), "xz": np.uint8(120), "w": _RANDOM.integers(-127, 128, shape).astype(np.int8),
        "ws": _RANDOM.uniform(0.005, 0.015, filters).astype(np.float32), "wz": np.zeros(filters, np.int8),
        "ys": np.float32(0.02 * np.sqrt(k)), "yz": np.uint8(128),
        "b": _RANDOM.integers(-3000, 3000, filters).astype(np.int32),
    }  # fmt: skip
    slide = {"kernel_shape": [kernel] * 2, "strides": [stride] * 2, "pads": [kernel // 2] * 4, "group": groups}
    image = _RANDOM.integers(0, 256, (1, channels, size, size)).astype(np.uint8)
    names = ["x", "xs", "xz", "w", "ws", "wz", "ys", "yz", "b"]
    return {"x": image}, constants, [("QLinearConv", names, "y", slide)]


def of_bytes(op: str, *shapes: tuple[int, ...], **attributes: Any) -> Model:
    """ONNX Runtime's operator from uint8 to uint8: the first operand is given, others are too."""
    inputs = {f"x{i}": _RANDOM.integers(0, 256, shape).astype(np.uint8) for i, shape in enumerate(shapes)}
    constants = {name: np.float32(scale) for name, scale in (("s0", 0.021), ("s1", 0.013), ("ys", 0.03))}
    constants |= {name: np.uint8(zero) for name, zero in (("z0", 120), ("z1", 131), ("yz", 100))}  # type: ignore[misc]
    operands = [f"{name}{i}" for i in range(len(shapes)) for name in ("x", "s", "z")]
    names = ["ys", "yz", *operands] if op == "QLinearConcat" else [*operands, "ys", "yz"]
    return inputs, constants, [(op, names, "y", attributes)]


def pool(op: str, channels: int, size: int, kernel: int, padding: int) -> Model:
    """Windows in steps of two."""
    return one(op, 1, channels, size, size, kernel_shape=[kernel] * 2, strides=[2, 2], pads=[padding] * 4)


def product(batch: int, m: int, k: int, n: int) -> Model:
    """Products of two inputs, as attention has them."""
    return {"a": drawn(batch, m, k), "b": drawn(batch, k, n)}, {}, [("MatMul", ["a", "b"], "y", {})]


def perceptron(rows: int) -> Model:
    """784, 256, 128 and 10 numbers of so many digits."""
    sizes, nodes, constants = (784, 256, 128, 10), Nodes(), dict[str, Array]()
    name = "x"
    for layer, (k, n) in enumerate(itertools.pairwise(sizes)):
        constants |= {f"w{layer}": drawn(k, n) / np.float32(28), f"b{layer}": drawn(n)}
        nodes.append(("Gemm", [name, f"w{layer}", f"b{layer}"], f"h{layer}", {}))
        last = layer == len(sizes) - 2
        name = "y" if last else f"r{layer}"
        nodes.append(("Softmax" if last else "Relu", [f"h{layer}"], name, {}))
    return {"x": drawn(rows, 784)}, constants, nodes


def recurrent(steps: int, inputs: int, hidden: int) -> Model:
    """An LSTM of one sequence."""
    constants = {
        "w": drawn(1, 4 * hidden, inputs) / 8,
        "r": drawn(1, 4 * hidden, hidden) / 8,
        "b": drawn(1, 8 * hidden),
    }
    return {"x": drawn(steps, 1, inputs)}, constants, [("LSTM", ["x", "w", "r", "b"], "y", {"hidden_size": hidden})]


def quantised(m: int, k: int, n: int) -> Model:
    """A product of int8 weights and of activations that are quantised on the way."""
    constants = {"w": _RANDOM.integers(-127, 127, (k, n)).astype(np.int8), "s": np.float32([0.01])}
    nodes: Nodes = [
        ("DynamicQuantizeLinear", ["x"], "q,qs,qz", {}), ("MatMulInteger", ["q", "w", "qz"], "i", {}),
        ("Cast", ["i"], "f", {"to": TensorProto.FLOAT}), ("Mul", ["qs", "s"], "t", {}), ("Mul", ["f", "t"], "y", {}),
    ]  # fmt: skip
    return {"x": drawn(m, k)}, constants, nodes


def rows_of_a_table(rows: int, columns: int, count: int) -> Model:
    """An embedding."""
    places = {"i": _RANDOM.integers(0, rows, (1, count))}
    return places, {"t": drawn(rows, columns)}, [("Gather", ["t", "i"], "y", {})]


def resized(channels: int, size: int) -> Model:
    """An image of twice the size."""
    scales = {"s": np.float32([1, 1, 2, 2])}
    return {"x": drawn(1, channels, size, size)}, scales, [("Resize", ["x", "", "s"], "y", {"mode": "linear"})]


def normalised(rows: int, columns: int) -> Model:
    """A layer norm."""
    constants = {"s": drawn(columns), "b": drawn(columns)}
    return {"x": drawn(rows, columns)}, constants, [("LayerNormalization", ["x", "s", "b"], "y", {"axis": -1})]


class Network:
    """Convolutions with biases, one after the other, and what ends a network for classes of images.

    Attributes:
        constants: Weights and biases, drawn.
        nodes: The network.
        last: The last value, which has `channels`.
    """

    def __init__(self, channels: int) -> None:
        self.constants: dict[str, Array] = {}
        self.nodes = Nodes()
        self.last, self.channels = "x", channels

    def add(self, op: str, names: list[str], **attributes: Any) -> str:
        """A node; its result is the last value."""
        self.last = f"t{len(self.nodes)}"
        self.nodes.append((op, names, self.last, attributes))
        return self.last

    def conv(self, filters: int, kernel: int, stride: int = 1, groups: int = 1, x: str | None = None) -> str:
        """A convolution of the last value, or another of as many channels, that keeps its size, but for the stride."""
        depth, number = self.channels // groups, len(self.nodes)
        self.constants[f"w{number}"] = drawn(filters, depth, kernel, kernel) * np.float32(
            1.4 / (depth * kernel**2) ** 0.5
        )
        self.constants[f"b{number}"] = drawn(filters) / 10
        slide = {"kernel_shape": [kernel] * 2, "strides": [stride] * 2, "pads": [kernel // 2] * 4, "group": groups}
        self.channels = filters
        return self.add("Conv", [x or self.last, f"w{number}", f"b{number}"], **slide)

    def bounded(self) -> str:
        """The last value between 0 and 6."""
        self.constants |= {"low": np.array(0, np.float32), "high": np.array(6, np.float32)}
        return self.add("Clip", [self.last, "low", "high"])

    def classes(self, size: int) -> Model:
        """The network for an image of three channels, with 1000 classes."""
        self.constants["w"] = drawn(self.channels, 1000) / np.float32(50)
        self.add("Flatten", [self.add("GlobalAveragePool", [self.last])])
        self.nodes.append(("Gemm", [self.last, "w"], "y", {}))
        return {"x": drawn(1, 3, size, size)}, self.constants, self.nodes


def residual_network() -> Model:
    """ResNet-18, its normalisations folded (He et al., arXiv:1512.03385)."""
    net = Network(3)
    net.add("Relu", [net.conv(64, 7, 2)])
    net.add("MaxPool", [net.last], kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    for filters in (64, 128, 256, 512):
        for stride in (1 if filters == 64 else 2, 1):
            before, channels = net.last, net.channels
            net.add("Relu", [net.conv(filters, 3, stride)])
            made = net.conv(filters, 3)
            if channels != filters:
                net.channels = channels
                before = net.conv(filters, 1, stride, x=before)
            net.add("Relu", [net.add("Add", [made, before])])
    return net.classes(224)


def inverted_network() -> Model:
    """MobileNetV2, its normalisations folded (Sandler et al., arXiv:1801.04381)."""
    net = Network(3)
    net.conv(32, 3, 2)
    net.bounded()
    rows = (1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)
    for wider, filters, times, first in rows:
        for stride in (first, *[1] * (times - 1)):
            before, channels = net.last, net.channels
            if wider > 1:
                net.conv(channels * wider, 1)
                net.bounded()
            net.conv(channels * wider, 3, stride, channels * wider)
            net.bounded()
            net.conv(filters, 1)
            if stride == 1 and channels == filters:
                net.add("Add", [net.last, before])
    net.conv(1280, 1)
    net.bounded()
    return net.classes(224)


MODELS: dict[str, Callable[[], Model]] = {
    "convolution 3 x 3, 64 of 56 x 56": lambda: conv(64, 56, 64, 3),
    "convolution 7 x 7 by 2, 3 to 64 of 224 x 224": lambda: conv(3, 224, 64, 7, 2),
    "convolution 1 x 1, 256 to 64 of 56 x 56": lambda: conv(256, 56, 64, 1),
    "convolution 3 x 3, 512 of 7 x 7": lambda: conv(512, 7, 512, 3),
    "depthwise 3 x 3 by 2, 96 of 112 x 112": lambda: conv(96, 112, 96, 3, 2, 96),
    "depthwise 3 x 3, 384 of 14 x 14": lambda: conv(384, 14, 384, 3, 1, 384),
    "depthwise 3 x 3, 144 of 56 x 56": lambda: conv(144, 56, 144, 3, 1, 144),
    "depthwise 7 x 7, 96 of 56 x 56": lambda: conv(96, 56, 96, 7, 1, 96),
    "bytes, convolution 3 x 3, 64 of 56 x 56": lambda: conv_of_bytes(64, 56, 64, 3),
    "bytes, convolution 3 x 3 by 2, 64 to 128 of 56 x 56": lambda: conv_of_bytes(64, 56, 128, 3, 2),
    "bytes, convolution 7 x 7 by 2, 3 to 64 of 224 x 224": lambda: conv_of_bytes(3, 224, 64, 7, 2),
    "bytes, convolution 1 x 1, 256 to 64 of 56 x 56": lambda: conv_of_bytes(256, 56, 64, 1),
    "bytes, depthwise 3 x 3, 144 of 56 x 56": lambda: conv_of_bytes(144, 56, 144, 3, 1, 144),
    "bytes, sum, 64 of 56 x 56": lambda: of_bytes("QLinearAdd", *[(1, 64, 56, 56)] * 2),
    "bytes, product by channel, 96 of 56 x 56": lambda: of_bytes("QLinearMul", (1, 96, 56, 56), (1, 96, 1, 1)),
    "bytes, sigmoid, 96 of 56 x 56": lambda: of_bytes("QLinearSigmoid", (1, 96, 56, 56)),
    "bytes, leaky relu, 96 of 56 x 56": lambda: of_bytes("QLinearLeakyRelu", (1, 96, 56, 56), alpha=0.1),
    "bytes, concat, 2 by 96 of 28 x 28": lambda: of_bytes("QLinearConcat", *[(1, 96, 28, 28)] * 2, axis=1),
    "bytes, softmax, 12 of 128 x 128": lambda: of_bytes("QLinearSoftmax", (1, 12, 128, 128), axis=-1, opset=17),
    "bytes, average of 512 images of 7 x 7": lambda: of_bytes("QLinearGlobalAveragePool", (1, 512, 7, 7)),
    "bytes, average of 3 x 3, 64 of 28 x 28": lambda: of_bytes(
        "QLinearAveragePool", (1, 64, 28, 28), kernel_shape=[3, 3], pads=[1] * 4
    ),
    "largest of 3 x 3 by 2, 64 of 112 x 112": lambda: pool("MaxPool", 64, 112, 3, 1),
    "average of 2 x 2 by 2, 64 of 56 x 56": lambda: pool("AveragePool", 64, 56, 2, 0),
    "average of 512 images of 7 x 7": lambda: one("GlobalAveragePool", 1, 512, 7, 7),
    "resize linear by 2, 64 of 28 x 28": lambda: resized(64, 28),
    "relu, 64 of 56 x 56": lambda: one("Relu", 1, 64, 56, 56),
    "sigmoid, 64 of 56 x 56": lambda: one("Sigmoid", 1, 64, 56, 56),
    "softmax, 12 of 128 x 128": lambda: one("Softmax", 1, 12, 128, 128, axis=-1),
    "layer norm, 128 of 768": lambda: normalised(128, 768),
    "transpose to channels last, 64 of 56 x 56": lambda: one("Transpose", 1, 64, 56, 56, perm=[0, 2, 3, 1]),
    "products 12 of 128 x 64 x 128": lambda: product(12, 128, 64, 128),
    "products 12 of 1 x 64 x 128": lambda: product(12, 1, 64, 128),
    "int8 weights, 128 x 384 x 1536": lambda: quantised(128, 384, 1536),
    "int8 weights, 1 x 768 x 3072": lambda: quantised(1, 768, 3072),
    "embedding, 128 of 30522 x 384": lambda: rows_of_a_table(30522, 384, 128),
    "perceptron, 1 digit": lambda: perceptron(1),
    "perceptron, 32 digits": lambda: perceptron(32),
    "LSTM, 32 steps of 64 to 128": lambda: recurrent(32, 64, 128),
    "ResNet-18, an image of 224 x 224": residual_network,
    "MobileNetV2, an image of 224 x 224": inverted_network,
}


def _domain(op: str) -> str:
    """Whose operator it is."""
    return "com.microsoft" if op.startswith("QLinear") and op not in ("QLinearConv", "QLinearMatMul") else ""


def proto(inputs: Mapping[str, Array], constants: Mapping[str, Array], nodes: Nodes) -> bytes:
    """The model as a file has it."""
    kinds = {name: helper.np_dtype_to_tensor_dtype(x.dtype) for name, x in inputs.items()}
    given = [helper.make_tensor_value_info(name, kinds[name], list(x.shape)) for name, x in inputs.items()]
    made = [
        helper.make_node(op, names, out.split(","), domain=_domain(op), **attributes)
        for op, names, out, attributes in nodes
    ]
    kind = TensorProto.UINT8 if nodes[-1][0].startswith("QLinear") else TensorProto.FLOAT
    result = helper.make_tensor_value_info("y", kind, None)
    graph = helper.make_graph(
        made, "bench", given, [result], [numpy_helper.from_array(x, name) for name, x in constants.items()]
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9).SerializeToString()


def main() -> None:
    """Measure and print."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    print(f"{'model':52} {'ours us':>9} {'ORT us':>9} {'ORT/ours':>8}")
    for name, make in MODELS.items():
        if sys.argv[1:] and not any(word in name for word in sys.argv[1:]):
            continue
        feeds, constants, nodes = make()
        model = proto(feeds, constants, nodes)
        ours = sb.load(model, threads=1)
        theirs = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        found, due = ours.run(feeds)["y"], theirs.run(None, feeds)[0]
        # ONNX Runtime rounds the scale of integers before the product.
        near = {"rtol": 1e-3, "atol": 1e-4} if found.dtype == np.float32 else {"rtol": 0, "atol": 1}
        np.testing.assert_allclose(found.astype(np.float64), due.astype(np.float64), **near)
        calls = {"ours": functools.partial(ours.run, feeds), "theirs": functools.partial(theirs.run, None, feeds)}
        once = sum(medians(calls, 3).values())
        a, b = medians(calls, max(5, min(_ROUNDS, int(_SECONDS / once)))).values()
        print(f"{name:52} {a * 1e6:9.1f} {b * 1e6:9.1f} {b / a:8.2f}")


if __name__ == "__main__":
    main()
