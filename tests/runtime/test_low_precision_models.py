"""Whole models in low precision: what a session gives are the bits of the eager functions, one after the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import rows
from onnx import TensorProto, helper, numpy_helper

import samebits as sb
from samebits import dtypes
from samebits.codegen.isa import Isa, best
from samebits.dtypes import DType
from samebits.kernels import composites
from samebits.operations import dim
from samebits.operations.product import Options
from samebits.operations.sharing import Block
from samebits.program.builder import ProgramBuilder
from samebits.program.graph import Program

BATCH, WIDE, DEEP, OUT, GROUP = 5, 24, 40, 7, 8
Array = np.ndarray[Any, Any]


def weights(kind: Any = np.float32) -> list[Array]:
    """Two layers: weight, bias, weight, bias."""
    random = np.random.default_rng(3)
    return [random.standard_normal(shape).astype(kind) for shape in ((WIDE, DEEP), (DEEP,), (DEEP, OUT), (OUT,))]


def model(nodes: Sequence[Any], constants: dict[str, Array], number: int, opset: int = 21) -> bytes:
    """x [batch, WIDE] to y [batch, OUT], both of one element type."""
    graph = helper.make_graph(
        nodes,
        "mlp",
        [helper.make_tensor_value_info("x", number, ["batch", WIDE])],
        [helper.make_tensor_value_info("y", number, ["batch", OUT])],
        [numpy_helper.from_array(x, name) for name, x in constants.items()],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
    return bytes(made.SerializeToString())


def halves(number: int) -> bytes:
    """Linear, Relu, Linear in one format."""
    kind = helper.tensor_dtype_to_np_dtype(number)
    named = dict(zip(("w0", "b0", "w1", "b1"), weights(kind), strict=True))
    node = helper.make_node
    nodes = [
        node("MatMul", ["x", "w0"], ["t0"]), node("Add", ["t0", "b0"], ["t1"]), node("Relu", ["t1"], ["t2"]),
        node("MatMul", ["t2", "w1"], ["t3"]), node("Add", ["t3", "b1"], ["y"]),
    ]  # fmt: skip
    return model(nodes, named, number)


def eager_halves(x: Array, kind: Any) -> Array:
    w0, b0, w1, b1 = weights(kind)
    hidden = sb.relu(sb.add(sb.matmul(x, w0), b0))
    return np.asarray(sb.add(sb.matmul(hidden, w1), b1))


def quantised(w: Array) -> tuple[Array, Array]:
    """A weight as int8 with one scale, and the scale."""
    scale = np.float32(np.abs(w).max() / 127)
    return np.clip(np.rint(w / scale), -127, 127).astype(np.int8), scale


def dynamic() -> bytes:
    """Linear by MatMulInteger of what DynamicQuantizeLinear makes, twice, Relu between."""
    w0, b0, w1, b1 = weights()
    (q0, s0), (q1, s1) = quantised(w0), quantised(w1)
    node, nodes, source = helper.make_node, list[Any](), "x"
    for i in range(2):
        nodes += [
            node("DynamicQuantizeLinear", [source], [f"q{i}x", f"s{i}x", f"z{i}x"]),
            node("MatMulInteger", [f"q{i}x", f"q{i}", f"z{i}x"], [f"i{i}"]),
            node("Cast", [f"i{i}"], [f"f{i}"], to=TensorProto.FLOAT),
            node("Mul", [f"s{i}x", f"s{i}"], [f"s{i}xw"]),
            node("Mul", [f"f{i}", f"s{i}xw"], [f"m{i}"]),
            node("Add", [f"m{i}", f"b{i}"], [f"a{i}" if i == 0 else "y"]),
        ]
        if i == 0:
            nodes.append(node("Relu", ["a0"], ["r0"]))
            source = "r0"
    return model(nodes, {"q0": q0, "s0": s0, "b0": b0, "q1": q1, "s1": s1, "b1": b1}, TensorProto.FLOAT)


def eager_dynamic(x: Array) -> Array:
    w0, b0, w1, b1 = weights()
    for i, (w, b) in enumerate(((w0, b0), (w1, b1))):
        (q, s) = quantised(w)
        low, high = sb.minimum(sb.min(x), 0.0), sb.maximum(sb.max(x), 0.0)
        scale = sb.divide(sb.subtract(high, low), 255.0)
        exact = sb.subtract(np.zeros((), np.float32), sb.divide(low, scale))
        point = sb.round(sb.minimum(sb.maximum(exact, 0.0), 255.0))
        codes = sb.add(sb.round(sb.divide(x, scale)), point)
        codes = sb.cast(sb.minimum(sb.maximum(codes, 0.0), 255.0), "uint8")
        total = sb.matmul(codes, q, a_zero_point=sb.cast(point, "uint8"))
        x = sb.add(sb.multiply(sb.cast(total, "float32"), sb.multiply(scale, np.asarray(s))), b)
        x = sb.relu(x) if i == 0 else x
    return np.asarray(x)


def qdq() -> bytes:
    """Linear, Relu, Linear in float32, every operand through int8 and back."""
    w0, b0, w1, b1 = weights()
    (q0, s0), (q1, s1) = quantised(w0), quantised(w1)
    node = helper.make_node
    zero = np.int8(3)
    nodes = [
        node("QuantizeLinear", ["x", "sx", "zx"], ["xq"]), node("DequantizeLinear", ["xq", "sx", "zx"], ["xd"]),
        node("DequantizeLinear", ["q0", "s0"], ["w0"]), node("MatMul", ["xd", "w0"], ["t0"]),
        node("Add", ["t0", "b0"], ["t1"]), node("Relu", ["t1"], ["t2"]),
        node("QuantizeLinear", ["t2", "sx", "zx"], ["tq"]), node("DequantizeLinear", ["tq", "sx", "zx"], ["td"]),
        node("DequantizeLinear", ["q1", "s1"], ["w1"]), node("MatMul", ["td", "w1"], ["t3"]),
        node("Add", ["t3", "b1"], ["y"]),
    ]  # fmt: skip
    constants = {"q0": q0, "s0": s0, "b0": b0, "q1": q1, "s1": s1, "b1": b1, "sx": np.float32(0.05), "zx": zero}
    return model(nodes, {name: np.asarray(x) for name, x in constants.items()}, TensorProto.FLOAT)


def eager_qdq(x: Array) -> Array:
    w0, b0, w1, b1 = weights()

    def there_and_back(y: Array) -> Array:
        codes = sb.add(sb.round(sb.divide(y, np.float32(0.05))), np.float32(3))
        codes = sb.cast(sb.minimum(sb.maximum(codes, -128.0), 127.0), "int8")
        return np.asarray(sb.multiply(sb.cast(sb.subtract(sb.cast(codes, "int32"), 3), "float32"), np.float32(0.05)))

    for i, (w, b) in enumerate(((w0, b0), (w1, b1))):
        q, s = quantised(w)
        x = sb.add(sb.matmul(there_and_back(x), sb.multiply(sb.cast(q, "float32"), np.asarray(s))), b)
        x = np.asarray(sb.relu(x) if i == 0 else x)
    return x


def group_quantised(w: Array, dtype: DType) -> tuple[sb.Tensor, Array, sb.Tensor | None]:
    """A weight [K, N] in few bits, packed: a scale and, of integers, a zero point for each column and GROUP rows."""
    blocks = w.reshape(-1, GROUP, w.shape[-1])
    low, high = blocks.min(1), blocks.max(1)
    if dtype.is_float:
        scale = (np.abs(blocks).max(1) / dtype.max).astype(np.float32)
        return sb.to_packed((blocks / scale[:, None]).reshape(w.shape).astype(dtype.numpy)), scale, None
    scale = ((high - low) / (dtype.max - dtype.min)).astype(np.float32)
    zero = np.clip(np.rint(dtype.min - low / scale), dtype.min, dtype.max)
    codes = np.clip(np.rint(blocks / scale[:, None]) + zero[:, None], dtype.min, dtype.max)
    return sb.to_packed(codes.reshape(w.shape).astype(dtype.numpy)), scale, sb.to_packed(zero.astype(dtype.numpy))


def grouped_layers(dtype: DType) -> list[tuple[sb.Tensor, Array, sb.Tensor | None, Array]]:
    """Weight, scales, zero points and bias of two layers."""
    w0, b0, w1, b1 = weights()
    return [(*group_quantised(w, dtype), b) for w, b in ((w0, b0), (w1, b1))]


def weight_only(dtype: DType) -> Program:
    """Linear, Relu, Linear on weights that stay packed in the program."""
    p = ProgramBuilder("mlp")
    x = p.input("x", dtypes.float32, (dim.symbol("batch"), WIDE))
    for number, (w, scale, zero, bias) in enumerate(grouped_layers(dtype)):
        shared = {"b_scale": p.constant(scale)} | ({} if zero is None else {"b_zero_point": p.constant(zero)})
        x = p.apply("add", p.contract(x, p.constant(w), Options(b_group=Block(GROUP)), **shared), p.constant(bias))
        x = p.map(composites.relu(dtypes.float32), x)[0] if number == 0 else x
    return p.build({"y": x})


def eager_weight_only(x: Array, dtype: DType) -> Array:
    for number, (w, scale, zero, bias) in enumerate(grouped_layers(dtype)):
        x = np.asarray(sb.add(sb.matmul(x, w, b_scale=scale, b_zero_point=zero, b_group=GROUP), bias))
        x = np.asarray(sb.relu(x) if number == 0 else x)
    return x


def prepared(made: bytes | Program, isa: str) -> sb.Session:
    return sb.prepare(made, isa=isa) if isinstance(made, Program) else sb.load(made, isa=isa)


MODELS: dict[str, tuple[Callable[[], bytes | Program], Callable[[Array], Array], Any]] = {
    "bfloat16": (
        lambda: halves(TensorProto.BFLOAT16), lambda x: eager_halves(x, ml_dtypes.bfloat16), ml_dtypes.bfloat16
    ),
    "float16": (lambda: halves(TensorProto.FLOAT16), lambda x: eager_halves(x, np.float16), np.float16),
    "dynamic int8": (dynamic, eager_dynamic, np.float32),
    "qdq int8": (qdq, eager_qdq, np.float32),
    "weight-only int4": (
        lambda: weight_only(dtypes.int4), lambda x: eager_weight_only(x, dtypes.int4), np.float32
    ),
    "weight-only uint4": (
        lambda: weight_only(dtypes.uint4), lambda x: eager_weight_only(x, dtypes.uint4), np.float32
    ),
    "weight-only float4": (
        lambda: weight_only(dtypes.float4_e2m1fn), lambda x: eager_weight_only(x, dtypes.float4_e2m1fn), np.float32
    ),
}  # fmt: skip


@rows.in_turn("isa, name", tuple(MODELS), 0, always=[best()], among=[row for row in rows.AVAILABLE if row.compiled])
def test_a_session_gives_the_bits_of_eager_calls(isa: Isa, name: str) -> None:
    made, eager, kind = MODELS[name]
    session = prepared(made(), isa.name)
    for count in (1, 2, BATCH):
        x = (np.random.default_rng(count).standard_normal((count, WIDE)) * 3).astype(kind)
        with sb.use_isa(isa):
            due = eager(x)
        found = session.run({"x": x})["y"]
        assert found.dtype == np.dtype(kind)
        assert found.tobytes() == due.tobytes()


@pytest.mark.parametrize("name", MODELS)
def test_verify_finds_the_same_bits(name: str) -> None:
    """But for a model that quantises over the whole batch, whose rows do depend on each other, and on nothing else."""
    made, _, _ = MODELS[name]
    found = sb.verify(made(), most_elements=1 << 16)
    assert [x.proved for x in found.proofs] == [name != "dynamic int8"]
    if name == "dynamic int8":
        assert not found.same
        for inputs in {x.inputs for x in found.configurations}:
            of_rows = ("baseline", "batch", "neighbours")
            whole = [x for x in found.configurations if x.inputs == inputs and x.axis not in of_rows]
            assert {x.axis for x in whole} >= {"isa", "process", "strides"}
            assert len({x.digest for x in whole}) == 1
    else:
        assert found.same, str(found)


@pytest.mark.parametrize("dtype", [dtypes.int4, dtypes.uint4, dtypes.float4_e2m1fn], ids=str)
def test_packed_weights_take_half_a_byte_each_and_stand_for_what_exact_fractions_say(dtype: DType) -> None:
    """One layer on inputs and scales that are powers of two, so that every sum is exact in float32."""
    (w, _, zero, _), _ = grouped_layers(dtype)
    scale = np.exp2(np.arange(WIDE // GROUP * DEEP) % 5 - 2).reshape(-1, DEEP).astype(np.float32)
    p = ProgramBuilder("layer")
    x = p.input("x", dtypes.float32, (BATCH, WIDE))
    constants = {"b_scale": p.constant(scale)} | ({} if zero is None else {"b_zero_point": p.constant(zero)})
    program = p.build({"y": p.contract(x, p.constant(w, "w"), Options(b_group=Block(GROUP)), **constants)})
    kept = program.constants["w"]
    assert isinstance(kept, sb.Tensor)
    assert kept.nbytes == WIDE * DEEP // 2
    given = np.exp2(np.arange(BATCH * WIDE) % 7 - 3).reshape(BATCH, WIDE).astype(np.float32)
    found = sb.prepare(program).run({"x": given})["y"]
    values = np.array([Fraction(float(v)) for v in w.values().ravel()], object).reshape(-1, GROUP, DEEP)
    shift = 0 if zero is None else zero.values().astype(object)[:, None]
    exact = (values - shift) * np.vectorize(Fraction, otypes=[object])(scale.astype(object))[:, None]
    due = np.vectorize(Fraction, otypes=[object])(given.astype(object)) @ exact.reshape(WIDE, DEEP)
    assert [Fraction(float(v)) for v in found.ravel()] == [*due.ravel()]
