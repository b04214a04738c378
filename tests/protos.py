"""ONNX models in memory: of given nodes, or of one node and its operands."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper


def value(name: str, dtype: Any, shape: Sequence[int | str] | None) -> onnx.ValueInfoProto:
    """An input or output."""
    number = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    return helper.make_tensor_value_info(name, number, shape)


def model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[onnx.ValueInfoProto],
    outputs: Sequence[onnx.ValueInfoProto],
    initializers: Mapping[str, np.ndarray] | None = None,
    opset: int = 17,
    domains: Sequence[str] = (),
) -> onnx.ModelProto:
    """A model of these nodes."""
    tensors = [numpy_helper.from_array(array, name) for name, array in (initializers or {}).items()]
    graph = helper.make_graph(list(nodes), "g", list(inputs), list(outputs), tensors)
    opsets = [helper.make_opsetid("", opset), *[helper.make_opsetid(domain, 1) for domain in domains]]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def one(
    op: str,
    arrays: Sequence[np.ndarray],
    attributes: Mapping[str, Any] | None = None,
    fixed: Sequence[int] = (),
    outputs: int = 1,
    opset: int = 19,
    symbolic: bool = True,
    domain: str = "",
) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """A model of one node, and its feed: `fixed` operands are initializers, the others inputs of symbolic shape."""
    names = [f"x{i}" for i in range(len(arrays))]
    node = helper.make_node(
        op, names, [f"y{i}" for i in range(outputs)], f"the_{op}", domain=domain, **(attributes or {})
    )
    feed = {name: array for i, (name, array) in enumerate(zip(names, arrays, strict=True)) if i not in fixed}
    inputs = [
        value(name, x.dtype, [f"{name}_{axis}" for axis in range(x.ndim)] if symbolic else x.shape)
        for name, x in feed.items()
    ]
    made = model([node], inputs, [], {names[i]: arrays[i] for i in fixed}, opset, [domain] if domain else [])
    made.graph.output.extend(_outputs(made, outputs, feed))
    return made, feed


def session(made: onnx.ModelProto) -> Any:
    """ONNX Runtime's session on one thread: it takes ten times as long to start others than to run a small model."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    return onnxruntime.InferenceSession(made.SerializeToString(), options, providers=["CPUExecutionProvider"])


def _outputs(made: onnx.ModelProto, count: int, feed: Mapping[str, np.ndarray]) -> list[onnx.ValueInfoProto]:
    """Typed by running the model."""
    from onnx.reference import ReferenceEvaluator

    probe = onnx.ModelProto()
    probe.CopyFrom(made)
    names = [f"y{i}" for i in range(count)]
    probe.graph.output.extend(helper.make_empty_tensor_value_info(name) for name in names)
    try:
        results = ReferenceEvaluator(probe).run(None, dict(feed))
    except (
        NotImplementedError,
        RuntimeError,
        TypeError,
        ValueError,
    ):  # an operator, or an old version of one, that it does not know
        results = session(probe).run(None, dict(feed))
    typed = zip(names, map(np.asarray, results), strict=True)
    return [value(name, x.dtype, [f"{name}_{axis}" for axis in range(x.ndim)]) for name, x in typed]
