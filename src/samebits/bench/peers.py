"""Other libraries' products: one frozen row each, imported only when it is asked for.

A row's `make` gives a call that multiplies the operands, or says why it cannot. Start at `ROWS`.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable, Sequence

import numpy as np

from samebits import optional
from samebits.bench.measure import Call
from samebits.frozen import dataclass
from samebits.tensor import Tensor

# (a, b, whether b may be prepared before it is timed, threads) -> the call, or why there is none.
Make = Callable[[Tensor, Tensor, bool, int], "Call | str"]


@dataclass(frozen=True, slots=True)
class Peer:
    """One library.

    Attributes:
        name: As it is asked for.
        modules: What it needs to be installed; the first is the library's own.
        package: What to install, by pip's name.
        make: How its product is made.
    """

    name: str
    modules: tuple[str, ...]
    package: str
    make: Make

    @property
    def installed(self) -> bool:
        """Whether it could be imported."""
        return all(map(optional.is_installed, self.modules))

    @property
    def shown(self) -> str:
        """Name and version."""
        try:
            return f"{self.name} {importlib.metadata.version(self.modules[0])}"
        except importlib.metadata.PackageNotFoundError:
            return self.name

    def call(self, a: Tensor, b: Tensor, packed: bool, threads: int) -> Call | str:
        """The call, tried once, or why there is none."""
        try:
            made = self.make(a, b, packed, threads)
            if not isinstance(made, str):
                made()
        except Exception as error:  # another library's, of whatever class
            return f"refused: {str(error).splitlines()[0] if str(error) else type(error).__name__}"
        return made


def _torch(a: Tensor, b: Tensor, packed: bool, threads: int) -> Call | str:
    import torch

    torch.set_num_threads(threads)
    x, y = a.torch(), b.torch()
    if a.dtype.is_integer:
        if a.dtype.name != "int8" or b.dtype.name != "int8":
            return "multiplies int8 with int8 alone"
        return lambda: torch._int_mm(x, y)
    if a.dtype.width_bits < 16 or b.dtype.width_bits < 16:
        # It has no such product, so operands are converted: a kept b once, before it is timed.
        wide = next((z.dtype for z in (x, y) if z.is_floating_point() and z.element_size() > 1), torch.bfloat16)
        kept = y.to(wide) if packed else y
        return lambda: x.to(wide) @ kept.to(wide)
    if a.dtype is not b.dtype:
        return "multiplies one dtype with itself"
    out = torch.empty((a.shape[0], b.shape[1]), dtype=x.dtype)
    return lambda: torch.mm(x, y, out=out)


def _numpy(a: Tensor, b: Tensor, packed: bool, threads: int) -> Call | str:
    if a.dtype is not b.dtype or a.dtype.name not in ("float32", "float64"):
        return "has a BLAS for float32 and float64 alone"
    x, y, out = a.numpy(), b.numpy(), np.empty((a.shape[0], b.shape[1]), a.dtype.numpy)
    return lambda: np.matmul(x, y, out=out)


def _numkong(a: Tensor, b: Tensor, packed: bool, threads: int) -> Call | str:
    import numkong

    if a.dtype is not b.dtype:
        return "multiplies one dtype with itself"
    kind = {"float8_e4m3fn": "e4m3", "float8_e5m2": "e5m2"}.get(a.dtype.name, a.dtype.name)
    arrays = a.numpy(), np.ascontiguousarray(b.numpy().T)  # it multiplies with b's columns as rows
    x, y = (numkong.from_pointer(z.ctypes.data, z.shape, kind, owner=z) for z in arrays)
    kept = numkong.dots_pack(y) if packed else None
    if kept is not None:
        return lambda: numkong.dots_packed(x, kept, threads=threads)
    return lambda: numkong.dots_packed(x, numkong.dots_pack(y), threads=threads)


def _onnxruntime(a: Tensor, b: Tensor, packed: bool, threads: int) -> Call | str:
    import onnx
    import onnxruntime

    exact = a.dtype.is_integer
    if exact != b.dtype.is_integer or (not exact and a.dtype is not b.dtype):
        return "multiplies one float dtype with itself"
    helper, number = onnx.helper, onnx.helper.np_dtype_to_tensor_dtype
    x, y = a.numpy(), b.numpy()
    inputs = [helper.make_tensor_value_info(name, number(z.dtype), z.shape) for name, z in (("a", x), ("b", y))]
    result = onnx.TensorProto.INT32 if exact else number(x.dtype)
    outputs = [helper.make_tensor_value_info("c", result, (a.shape[0], b.shape[1]))]
    node = helper.make_node("MatMulInteger" if exact else "MatMul", ["a", "b"], ["c"])
    constant = [onnx.numpy_helper.from_array(y, "b")] if packed else []
    graph = helper.make_graph([node], "product", inputs[: 1 if packed else 2], outputs, constant)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    feeds = {"a": x} if packed else {"a": x, "b": y}
    return lambda: session.run(None, feeds)


ROWS: tuple[Peer, ...] = (
    Peer("torch", ("torch",), "torch", _torch),
    Peer("numpy", ("numpy",), "numpy", _numpy),
    Peer("numkong", ("numkong",), "numkong", _numkong),
    Peer("onnxruntime", ("onnxruntime", "onnx"), "onnxruntime onnx", _onnxruntime),
)


def named(names: Sequence[str]) -> tuple[Peer, ...]:
    """The rows of these names, in the order of `ROWS`."""
    return tuple(row for row in ROWS if row.name in names)
