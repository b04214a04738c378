"""MatMulNBits: values of ONNX Runtime, and the bits of the eager product of the same codes, scales and zero points."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np
import protos
import pytest
from onnx import ModelProto, helper

import samebits as sb
from samebits import onnx
from samebits.errors import UnsupportedModelError
from samebits.runtime import cpu, reference

Array = np.ndarray[Any, np.dtype[Any]]
M, N = 5, 24
EPS = np.finfo(np.float32).eps


@dataclass
class Case:
    """One node; `points`: none, packed within bytes, or of the format of a."""

    k: int = 128
    size: int = 32
    bits: int = 4
    points: str = "none"
    kind: Any = np.float32
    has_bias: bool = False
    more: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        r, blocks = np.random.default_rng([self.k, self.size, self.bits]), -(-self.k // self.size)
        self.a = r.standard_normal((2, M, self.k)).astype(self.kind)
        self.constants: dict[str, Array] = {
            "b": r.integers(0, 256, (N, blocks, self.size * self.bits // 8)).astype(np.uint8),
            "scales": r.uniform(0.01, 0.02, (N, blocks)).astype(self.kind),
        }
        if self.points == "packed":
            self.constants["points"] = r.integers(0, 256, (N, -(-blocks * self.bits // 8))).astype(np.uint8)
        if self.points == "floats":
            self.constants["points"] = r.uniform(0, 2**self.bits, (N, blocks)).astype(self.kind)
        if self.has_bias:
            self.constants["bias"] = r.standard_normal(N).astype(self.kind)

    def model(self, **more: Any) -> ModelProto:
        names = ["a", "b", "scales", "points" if "points" in self.constants else "", "", "bias"]
        attributes = {"K": self.k, "N": N, "bits": self.bits, "block_size": self.size, **self.more, **more}
        node = helper.make_node(
            "MatMulNBits", names if self.has_bias else names[:4], ["y"], "n", domain="com.microsoft", **attributes
        )
        ends = [protos.value(name, self.kind, ["batch", M, last]) for name, last in (("a", self.k), ("y", N))]
        return protos.model([node], ends[:1], ends[1:], self.constants, 21, ["com.microsoft"])

    def codes(self, name: str, count: int) -> Array:
        """Those of a packed constant, a row of N each."""
        rows = np.unpackbits(self.constants[name].reshape(N, -1), axis=1, bitorder="little")
        weights = 1 << np.arange(self.bits)
        return (rows.reshape(N, -1, self.bits) @ weights)[:, :count]

    def parts(self) -> tuple[Array, Array, Array]:
        """Codes, zero points and scales."""
        blocks = -(-self.k // self.size)
        points = np.full((N, blocks), 2 ** (self.bits - 1))
        if self.points == "packed":
            points = self.codes("points", blocks)
        if self.points == "floats":
            points = self.constants["points"]
        return self.codes("b", self.k), points, self.constants["scales"]

    def weight(self) -> Array:
        """In float64, exactly but for its product with a scale."""
        codes, points, scales = (x.astype(np.float64) for x in self.parts())
        points, scales = (np.repeat(x, self.size, 1)[:, : self.k] for x in (points, scales))
        return np.asarray((codes - points) * scales)

    def ours(self, **more: Any) -> Array:
        """The session's answer, which is the reference's in every bit."""
        program = onnx.load(self.model(**more))
        (found,), (due,) = (
            cpu.prepare(program, threads=1).run({"a": self.a}).values(),
            reference.run(program, {"a": self.a}).values(),
        )
        assert found.dtype == self.kind
        assert found.tobytes() == due.tobytes()
        return found


CASES = [
    Case(),
    Case(bits=2, points="packed", k=72, size=16),
    Case(bits=8, k=80),
    Case(points="packed", k=80, size=16, has_bias=True),
    Case(bits=8, points="packed", size=64),
    Case(points="floats", has_bias=True),
    Case(kind=np.float16, points="packed"),
    Case(more={"weight_prepacked": 0}, size=128, k=130),
]


@pytest.mark.parametrize("case", CASES, ids=repr)
def test_values_are_those_of_onnxruntime(case: Case) -> None:
    session = protos.session(case.model())
    (theirs,) = session.run(None, {"a": case.a})
    ours = case.ours()
    assert ours.shape == theirs.shape
    exact = case.a.astype(np.float64) @ case.weight().T
    eps = EPS if case.kind is np.float32 else np.finfo(case.kind).eps
    np.testing.assert_allclose(
        ours.astype(np.float64), theirs.astype(np.float64), rtol=4 * eps, atol=4 * eps * abs(exact).max()
    )


@pytest.mark.parametrize("level", [0, 1, 4])
def test_the_left_operand_is_not_quantised_whatever_is_allowed(level: int) -> None:
    """By level 4 ONNX Runtime may quantise blocks of a to int8: it is then farther from the exact product."""
    case = Case()
    session = protos.session(case.model(accuracy_level=level))
    (theirs,) = session.run(None, {"a": case.a})
    ours = case.ours(accuracy_level=level)
    assert ours.tobytes() == case.ours().tobytes()
    exact = case.a.astype(np.float64) @ case.weight().T
    steps = np.repeat(abs(case.a.reshape(2, M, -1, case.size)).max(-1) / 127, case.size, -1).astype(np.float64)
    allowed = steps / 2 @ abs(case.weight()).T if level == 4 else 0
    assert (abs(theirs - exact) <= allowed + 64 * EPS * abs(exact).max()).all()
    assert abs(ours - exact).max() <= 8 * EPS * abs(exact).max()


@pytest.mark.parametrize("case", [*CASES, Case(kind=ml_dtypes.bfloat16, points="packed", has_bias=True)], ids=repr)
def test_bits_are_those_of_the_eager_product(case: Case) -> None:
    codes, points, scales = case.parts()
    bias = case.constants.get("bias")
    if case.points == "floats":
        whole = [np.repeat(x.astype(np.float32), case.size, 1)[:, : case.k] for x in (points, scales)]
        weight = (codes.astype(np.float32) - whole[0]) * whole[1]
        due = sb.matmul(case.a, weight.T, bias=bias, out_dtype=case.kind)
    else:
        due = sb.linear(
            case.a, codes.astype(np.uint8), bias, weight_scale=scales, weight_zero_point=points.astype(np.uint8),
            group=case.size,
        )  # fmt: skip
    assert case.ours().tobytes() == due.tobytes()


@pytest.mark.parametrize("case", [case for case in CASES if case.points != "floats"], ids=repr)
def test_a_weight_is_packed_once_with_its_scales(case: Case) -> None:
    """No step of a run unpacks codes, or moves scales: there is one, that of the product."""
    session = cpu.prepare(onnx.load(case.model()), threads=1)
    (plan,) = session.plans({"batch": 2})
    assert f"packed[{case.k},{N}]" in plan
    assert plan.count("step ") == 1


def problem(proto: ModelProto) -> str:
    with pytest.raises(UnsupportedModelError) as error:
        onnx.load(proto)
    return error.value.problems[0].partition("of opset 1: ")[2]


def test_what_is_not_done_is_refused_by_name() -> None:
    case = Case()
    assert problem(case.model(bits=3)) == "attribute 'bits' is 3, must be one of [2, 4, 8]"
    assert problem(case.model(weight_prepacked=1)) == "attribute 'weight_prepacked' is 1, must be one of [0]"
    said = "N = 24, K = 128, block_size = 24: must be positive, the last a power of two from 16 on"
    assert problem(case.model(block_size=24)) == said
    assert (
        problem(case.model(K=96))
        == "input 0 is float32[batch, 5, 128], must be float32 or float16 or bfloat16 [..., 96]"
    )
    assert problem(case.model(N=25)) == "input 1 is uint8[24, 4, 16], must be uint8[25, 4, 16]"
    case.constants["scales"] = case.constants["scales"][:, :1]
    assert problem(case.model()) == "input 2 is float32[24, 1], must be floats [24, 4]"
    case = Case()
    node = case.model()
    node.graph.node[0].input.extend(["a"])
    assert problem(node) == "input 4, g_idx, which is deprecated, is given"
    node = case.model()
    (b,) = [x for x in node.graph.initializer if x.name == "b"]
    node.graph.initializer.remove(b)
    node.graph.input.append(protos.value("b", np.uint8, [N, 4, 16]))
    assert problem(node) == "input 1 ('b') depends on data, must be a constant"
    node = case.model()
    node.opset_import[1].version = 2
    with pytest.raises(UnsupportedModelError) as error:
        onnx.load(node)
    assert "of opset 2: opset 2 is outside 1 to 1" in str(error.value)
