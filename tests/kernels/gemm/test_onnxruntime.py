"""With chunks of 256 a product has the bits of ONNX Runtime's MatMul with a constant right operand."""

from __future__ import annotations

import numpy as np
import pytest
from gemm_run import product, same

from samebits.codegen.isa import best
from samebits.kernels.gemm import Spec

onnx = pytest.importorskip("onnx")
ort = pytest.importorskip("onnxruntime")


def session(b: np.ndarray) -> ort.InferenceSession:
    helper = onnx.helper
    x = helper.make_tensor_value_info("a", onnx.TensorProto.FLOAT, ["m", b.shape[0]])
    y = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["m", b.shape[1]])
    node = helper.make_node("MatMul", ["a", "b"], ["y"])
    graph = helper.make_graph([node], "g", [x], [y], [onnx.numpy_helper.from_array(b, "b")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    return ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def check(k: int, n: int, rows: list[int]) -> None:
    rng = np.random.default_rng([k, n])
    b = rng.standard_normal((k, n)).astype(np.float32)
    run = session(b)
    for m in rows:
        a = rng.standard_normal((m, k)).astype(np.float32)
        (expected,) = run.run(None, {"a": a})
        assert same(product(a, b, best(), spec=Spec(256)), expected), (m, n, k)


SHAPES = [(k, n) for k in (1, 2, 17, 255, 256, 257, 512, 700, 1024, 3000, 8192) for n in (1, 2, 16, 31, 48, 100)]
ROWS = [1, 2, 3, 5, 12, 13, 33, 64, 70]


@pytest.mark.parametrize(("k", "n"), SHAPES[::5])
def test_bits_of_onnxruntime(k: int, n: int) -> None:
    check(k, n, ROWS[:: 4 if k > 1024 else 2])


@pytest.mark.exhaustive
@pytest.mark.parametrize(("k", "n"), SHAPES)
def test_bits_of_onnxruntime_on_660_shapes(k: int, n: int) -> None:
    check(k, n, [*ROWS, 1 + (7 * k + n) % 70])
