"""Operators of ONNX Runtime between bytes: the bits of DequantizeLinear, the operator of numbers and QuantizeLinear."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import onnxruntime
import protos
import pytest
from onnx import ModelProto, helper

from samebits import onnx
from samebits.errors import UnsupportedModelError
from samebits.onnx import loading
from samebits.onnx.row import MANY, REQUIRED, OnnxRow
from samebits.runtime import cpu, reference

Array = np.ndarray[Any, np.dtype[Any]]
I8, U8, F = np.int8, np.uint8, np.float32
KINDS = pytest.mark.parametrize("kind", [I8, U8])
ROWS = [row for row in loading.ROWS if row.domain and row.op.startswith("Q")]
# Operands and attributes; all opsets of the operator of numbers are 17 but where an attribute says another.
CASES: list[tuple[str, list[tuple[int, ...]], dict[str, Any]]] = [
    ("Add", [(2, 3, 5, 7)] * 2, {}),
    ("Add", [(2, 3, 5, 7), (3, 1, 1)], {}),
    ("Mul", [(4, 1, 9), (3, 1)], {}),
    ("Where", [(4, 9), (1, 9)], {}),
    ("Sigmoid", [(3, 70)], {}),
    *[("LeakyRelu", [(3, 70)], {"alpha": alpha}) for alpha in (0.2, -1.5)],
    ("LeakyRelu", [(3, 70)], {}),
    *[("Softmax", [(2, 3, 35)], {"axis": axis, "opset": opset}) for axis in (-1, 1) for opset in (11, 13)],
    ("Softmax", [(2, 35)], {"opset": 12}),
    *[("GlobalAveragePool", [(2, 5, 6, 7)], {"channels_last": last}) for last in (0, 1)],
    ("GlobalAveragePool", [(1, 3, 50)], {}),
    *[
        ("AveragePool", [(2, 5, 9, 8)], {"kernel_shape": kernel, "channels_last": last, **more})
        for last in (0, 1)
        for kernel, more in (
            ([3, 3], {"auto_pad": "NOTSET", "pads": [1, 0, 1, 1]}),
            ([3, 2], {"auto_pad": "SAME_UPPER", "strides": [2, 2], "count_include_pad": 0}),
            ([2, 3], {"auto_pad": "SAME_LOWER", "strides": [1, 3], "count_include_pad": 1}),
            ([2, 2], {"auto_pad": "VALID", "ceil_mode": 0}),
            ([3, 3], {"pads": [1, 1, 1, 1], "strides": [2, 2], "ceil_mode": 1}),
        )
    ],
    ("AveragePool", [(2, 5, 30)], {"kernel_shape": [4], "pads": [0, 2]}),
    *[("Concat", [(2, 3, 4), (2, 1, 4), (2, 2, 4)], {"axis": axis}) for axis in (1, -2)],
    ("Concat", [(7,)], {"axis": 0}),
]
EACH = pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0]} {case[2]}"[:60])


class Bytes:
    """Operands of one case: `x0 s0 z0 ...` and the scale and zero point `s z` of the result; of Where a condition."""

    def __init__(self, case: tuple[str, list[tuple[int, ...]], dict[str, Any]], kind: Any, seed: int = 0) -> None:
        self.op, shapes, self.attributes = case
        random = np.random.default_rng([seed, len(self.op), len(shapes)])
        self.kind, self.known = kind, dict[str, Array]()
        self.count, self.feed = len(shapes), dict[str, Array]()
        self.opset = self.attributes.get("opset", 17)

        def byte(*shape: int) -> Array:
            limits = np.iinfo(kind)
            return np.array(random.integers(limits.min, limits.max + 1, shape), kind)

        if self.op == "Where":
            self.feed["condition"] = random.integers(0, 2, shapes[0]) > 0
        for i, shape in enumerate(shapes):
            self.feed[f"x{i}"] = byte(*shape)
            self.known |= {f"s{i}": np.array(random.uniform(0.02, 0.03), F), f"z{i}": self.middle(random)}
        # Most results are within the limits: those of softmax are small.
        self.known |= {"s": np.array(random.uniform(0.03, 0.04), F), "z": self.middle(random)}
        if self.op == "Softmax":
            self.known |= {"s": np.array(1 / 256, F), "z": np.array(np.iinfo(kind).min, kind)}

    def middle(self, random: np.random.Generator) -> Array:
        """A zero point near the middle."""
        limits = np.iinfo(self.kind)
        return np.array((limits.min + limits.max) // 2 + random.integers(-9, 10), self.kind)

    def names(self) -> list[str]:
        operands = [f"{name}{i}" for i in range(self.count) for name in "xsz"]
        if self.op == "Concat":
            return ["s", "z", *operands]
        return [*(["condition"] if self.op == "Where" else []), *operands, "s", "z"]

    def model(self, nodes: Sequence[Any], is_open: bool = False) -> ModelProto:
        inputs = [
            protos.value(key, x.dtype, [f"{key}_{i}" for i in range(x.ndim)] if is_open else x.shape)
            for key, x in self.feed.items()
        ]
        result = [protos.value("y", self.kind, None)]
        return protos.model(nodes, inputs, result, self.known, self.opset, ["com.microsoft"])

    def whole(self, is_open: bool = False) -> ModelProto:
        """The operator."""
        node = helper.make_node(
            f"QLinear{self.op}", self.names(), ["y"], "n", domain="com.microsoft", **self.attributes
        )
        return self.model([node], is_open)

    def apart(self) -> ModelProto:
        """DequantizeLinear, the operator of numbers, of images whose channels are second, and QuantizeLinear."""
        attributes = {key: x for key, x in self.attributes.items() if key not in ("channels_last", "opset")}
        is_last, rank = self.attributes.get("channels_last"), self.feed["x0"].ndim
        if self.op == "Softmax":
            attributes.setdefault("axis", -1)
        nodes = [
            helper.make_node("DequantizeLinear", [f"x{i}", f"s{i}", f"z{i}"], [f"f{i}"]) for i in range(self.count)
        ]
        names = [*(["condition"] if self.op == "Where" else []), *[f"f{i}" for i in range(self.count)]]
        if is_last:
            nodes.append(helper.make_node("Transpose", names, ["t"], perm=[0, rank - 1, *range(1, rank - 1)]))
            names = ["t"]
        nodes.append(helper.make_node(self.op, names, ["g"], **attributes))
        if is_last:
            nodes.append(helper.make_node("Transpose", ["g"], ["h"], perm=[0, *range(2, rank), 1]))
        nodes.append(helper.make_node("QuantizeLinear", ["h" if is_last else "g", "s", "z"], ["y"]))
        return self.model(nodes)


def answer(made: ModelProto, feed: dict[str, Array]) -> Array:
    """By kernels, which is the reference's."""
    program = onnx.load(made)
    found: Array = cpu.prepare(program, threads=1).run(feed)["y"]
    assert found.tobytes() == np.ascontiguousarray(reference.run(program, feed)["y"]).tobytes()
    return found


@EACH
@KINDS
def test_bits_are_those_of_the_three_operators(case: Any, kind: Any) -> None:
    given = Bytes(case, kind)
    found, due = answer(given.whole(), given.feed), answer(given.apart(), given.feed)
    assert (found.dtype, found.shape) == (kind, due.shape)
    assert found.tobytes() == due.tobytes()
    assert len(np.unique(found)) > min(9, found.size // 4)
    if case[0] not in ("AveragePool", "Concat"):
        assert answer(given.whole(is_open=True), given.feed).tobytes() == due.tobytes()


@EACH
def test_scales_and_zero_points_may_be_given_and_have_an_axis(case: Any) -> None:
    due = answer(Bytes(case, U8).apart(), Bytes(case, U8).feed)
    open_ones, vectors = Bytes(case, U8), Bytes(case, U8)
    open_ones.feed, open_ones.known = open_ones.feed | open_ones.known, {}
    vectors.known = {name: x.reshape(1) for name, x in vectors.known.items()}
    for given in (open_ones, vectors):
        assert answer(given.whole(), given.feed).tobytes() == due.tobytes()


@EACH
@KINDS
def test_onnxruntime_is_a_step_away_at_most(case: Any, kind: Any) -> None:
    """Its sums and products are rounded elsewhere, so a result that is nearly a tie may fall on the other side."""
    given = Bytes(case, kind, seed=1)
    (theirs,) = protos.session(given.whole()).run(None, given.feed)
    found = answer(given.whole(), given.feed)
    assert (found.dtype, found.shape) == (theirs.dtype, theirs.shape)
    apart = abs(found.astype(int) - theirs.astype(int))
    assert apart.max() <= 1
    assert (apart > 0).mean() < 0.01


@pytest.mark.parametrize("op", ["Add", "Mul"])
@KINDS
def test_every_pair_of_bytes(op: str, kind: Any) -> None:
    """With scales whose sums and products are exact, where many results are ties: each is the fraction rounded."""
    given = Bytes((op, [(256, 1), (1, 256)], {}), kind)
    codes = np.arange(256).astype(U8).view(kind)
    given.feed = {"x0": codes[:, None], "x1": codes[None]}
    given.known |= {"s0": np.array(0.5, F), "s1": np.array(0.75, F), "s": np.array(1.0 if op == "Add" else 64.0, F)}
    found = answer(given.whole(), given.feed)
    x, y = (Fraction(s) * 4 for s in ("1/2", "3/4"))
    left = (codes.astype(int)[:, None] - int(given.known["z0"])) * int(x)
    right = (codes.astype(int)[None] - int(given.known["z1"])) * int(y)
    wide = (left + right) / 4 if op == "Add" else left * right / (16 * 64)
    limits = np.iinfo(kind)
    due = np.clip(np.rint(wide) + int(given.known["z"]), limits.min, limits.max)
    np.testing.assert_array_equal(found, due)
    assert (wide % 1 == 0.5).any()


@pytest.mark.parametrize("op", ["Sigmoid", "LeakyRelu", "AveragePool"])
def test_zero_points_may_be_left_out(op: str) -> None:
    attributes = {"kernel_shape": [2]} if op == "AveragePool" else {}
    given = Bytes((op, [(1, 2, 80)], attributes), I8)
    given.known |= {"z0": np.array(0, I8), "z": np.array(0, I8)}
    due, made = answer(given.whole(), given.feed), given.whole()
    del made.graph.node[0].input[4:]
    made.graph.node[0].input[2] = ""
    assert answer(made, given.feed).tobytes() == due.tobytes()


@pytest.mark.parametrize("scale", [0.03, -0.03, 1e-45, 3e38, 0.0, np.inf, np.nan])
def test_parts_that_are_quantised_as_the_result_keep_their_elements(scale: float) -> None:
    """But where their numbers, or quotients, are no numbers."""
    given = Bytes(("Concat", [(256,), (256,)], {"axis": 0}), I8)
    codes = np.arange(256).astype(U8).view(I8)
    given.feed = {"x0": codes, "x1": codes[::-1].copy()}
    given.known |= {name: np.array(scale, F) for name in ("s0", "s")} | {"z0": given.known["z"]}
    found = answer(given.whole(), given.feed)
    assert found.tobytes() == answer(given.apart(), given.feed).tobytes()
    is_kept = np.isfinite(scale) and 0 < abs(scale) < 1e30
    assert (found[:256].tobytes() == codes.tobytes()) == is_kept
    plans = list(cpu.prepare(onnx.load(given.whole()), threads=1).plans({}))
    assert sum("quantize" in plan for plan in plans) == 2 - is_kept


def gemm(kind: Any, attributes: dict[str, Any], addend: Sequence[int] | None, each: bool, result: Any) -> Any:
    """A QGemm of [5, 40] by [40, 6]; scales of the right operand, and its zero points, may be one a column."""
    random = np.random.default_rng([len(attributes), bool(each), kind is U8])
    limits, columns = np.iinfo(kind), (6,) if each else ()
    a = random.integers(limits.min, limits.max + 1, (5, 40)).astype(kind)
    w = random.integers(-64, 64, (40, 6)).astype(I8)
    zero, right = np.array(120 if kind is U8 else 5, kind), w.T.copy() if attributes.get("transB") else w
    known = {
        "as": np.array(0.03, F), "az": zero, "b": right,
        "bs": random.uniform(0.005, 0.02, columns).astype(F), "bz": random.integers(-3, 4, columns).astype(I8),
    }  # fmt: skip
    known |= {"c": random.integers(-9000, 9000, addend).astype(np.int32)} if addend is not None else {}
    known |= {"ys": np.array(0.4, F), "yz": zero} if result is not F else {}
    names = ["a", "as", "az", "b", "bs", "bz", *(["c"] if addend is not None else [""] if result is not F else [])]
    names += ["ys", "yz"] if result is not F else []
    node = helper.make_node("QGemm", names, ["y"], "n", domain="com.microsoft", **attributes)
    feed = {"a": a.T.copy() if attributes.get("transA") else a}
    made = protos.model(
        [node], [protos.value("a", kind, feed["a"].shape)], [protos.value("y", result, [5, 6])], known, 17,
        ["com.microsoft"],
    )  # fmt: skip
    sums = (a.astype(int) - int(known["az"])) @ (w.astype(int) - known["bz"].astype(int))
    return made, feed, known, sums + (known["c"] if addend is not None else 0)


GEMMS: list[tuple[dict[str, Any], Sequence[int] | None]] = [
    ({}, None), ({"transB": 1}, (6,)), ({"transA": 1, "transB": 0}, (1, 6)), ({"alpha": 0.5, "transA": 0}, (5, 1)),
    ({"alpha": 1.7}, (5, 6)), ({}, ()),
]  # fmt: skip


@pytest.mark.parametrize(("attributes", "addend"), GEMMS)
@KINDS
def test_a_product_is_the_fraction_rounded_once(
    kind: Any, attributes: dict[str, Any], addend: Sequence[int] | None
) -> None:
    for each in (False, True):
        made, feed, known, sums = gemm(kind, attributes, addend, each, kind)
        found = answer(made, feed)
        left = Fraction(float(known["as"] * F(attributes.get("alpha", 1))))
        limits, scales = np.iinfo(kind), np.broadcast_to(known["bs"], (6,))
        for at in np.ndindex(found.shape):
            quotient = int(sums[at]) * left * Fraction(float(scales[at[1]])) / Fraction(float(known["ys"]))
            assert found[at] == min(max(round(quotient) + int(known["yz"]), limits.min), limits.max)
        assert len(np.unique(found)) > 10
        (theirs,) = protos.session(made).run(None, feed)
        assert abs(found.astype(int) - theirs.astype(int)).max() <= 1


@pytest.mark.parametrize(("attributes", "addend"), GEMMS)
def test_a_product_without_a_scale_of_the_result_is_float32(
    attributes: dict[str, Any], addend: Sequence[int] | None
) -> None:
    made, feed, known, sums = gemm(U8, attributes, addend, True, F)
    left = known["as"] * F(attributes.get("alpha", 1))
    assert answer(made, feed).tobytes() == (sums.astype(F) * (left * known["bs"])).tobytes()
    (theirs,) = protos.session(made).run(None, feed)
    # ONNX Runtime rounds the sum as float32 too, and multiplies alpha and the scales in another order: each of the two
    # has at most four roundings, of half an eps each.
    np.testing.assert_allclose(answer(made, feed), theirs, rtol=4 * np.finfo(F).eps)


def of_attribute(row: OnnxRow, name: str) -> Iterator[Any]:
    """The values that cases give an attribute."""
    for op, _, attributes in CASES:
        if row.op == f"QLinear{op}" and name in attributes:
            yield attributes[name]
    for attributes, _ in GEMMS:
        if row.op == "QGemm" and name in attributes:
            yield attributes[name]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.op)
def test_attributes_and_inputs_are_those_of_onnxruntime(row: OnnxRow) -> None:
    schemas = onnxruntime.capi.onnxruntime_pybind11_state.get_all_operator_schema()
    (schema,) = [each for each in schemas if (each.domain, each.name) == (row.domain, row.op)]
    assert (schema.since_version, row.since, row.until) == (1, 1, 1)
    assert row.inputs == (MANY if row.inputs == MANY < schema.max_input else schema.max_input)
    assert {a.name for a in row.attributes} == set(schema.attributes)
    for a in row.attributes:
        theirs = schema.attributes[a.name]
        assert theirs.type.name.lower() == a.kind
        assert theirs.required == (a.default is REQUIRED)
        default = helper.AttributeProto.FromString(theirs._default_value)
        if default.name:
            value = helper.get_attribute_value(default)
            value = value.decode() if isinstance(value, bytes) else value
            assert value == (F(a.default) if a.kind == "float" else a.default)
        values = list(of_attribute(row, a.name))
        if a.allowed is not None:
            assert set(values) == set(a.allowed)
        else:
            assert len({str(value) for value in values}) >= 2


def refusal(made: ModelProto) -> str:
    with pytest.raises(UnsupportedModelError) as error:
        onnx.load(made)
    return error.value.problems[0].partition("of opset 1: ")[2]


def test_what_is_not_done_is_refused_by_name() -> None:
    def given(**known: Any) -> Bytes:
        made = Bytes(("Add", [(2, 3)] * 2, {}), U8)
        made.known |= known
        return made

    assert refusal(given(s1=np.ones(3, F)).whole()) == "input 4 ('s1') is float32[3], must be one float32"
    assert refusal(given(s=np.array(1.0)).whole()) == "input 6 ('s') is float64[], must be one float32"
    assert refusal(given(z0=np.array(0, I8)).whole()) == "input 2 ('z0') is int8[], must be one uint8"
    assert refusal(given(z=np.zeros(2, U8)).whole()) == "input 7 ('z') is uint8[2], must be one element"
    assert refusal(given(z=np.array(0, I8)).whole()) == "input 7 is int8[], must be uint8 as input 0"
    made = given()
    made.feed["x1"] = np.zeros((2, 3), F)
    assert refusal(made.whole()) == "input 3 is float32, must be int8 or uint8"
    made = given().whole()
    del made.graph.node[0].input[6:]
    assert refusal(made) == "input 6 is missing"
    parts = Bytes(("Concat", [(2, 3)] * 2, {"axis": 2}), U8)
    assert refusal(parts.whole()) == "axis 2 is outside a rank of 2"
    made = parts.whole()
    del made.graph.node[0].input[7:]
    assert refusal(made) == "7 inputs are given, must be 2 of the result and 3 of each part"
    product = gemm(U8, {}, None, False, U8)[0]
    del product.graph.node[0].input[8:]
    assert refusal(product) == "one of inputs 7 and 8 is given, must be both, or none for a result in float32"
    product = gemm(U8, {}, (6,), False, U8)[0]
    product.graph.input[0].type.tensor_type.shape.dim.add().dim_value = 1
    assert refusal(product) == "operands are not matrices"
