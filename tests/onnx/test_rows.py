"""Each ONNX row against onnxruntime, and the session against the reference in every bit."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import onnxruntime
import protos
import pytest
from onnx import AttributeProto, ModelProto, defs, helper
from onnx.reference import ReferenceEvaluator
from onnx_cases import CASES, EDGES, FIXED_SHAPES, OPSETS, SLICES, X, ints

from samebits import onnx
from samebits.errors import UnsupportedModelError
from samebits.onnx import loading
from samebits.onnx.row import MANY, REQUIRED, Attribute, OnnxRow
from samebits.runtime import cpu, reference

EPS = np.finfo(np.float32).eps
# The last opset whose operators every onnxruntime tried has kernels for.
NEWEST = 22
# Those of other domains have tests of their own.
ROWS = [row for row in loading.ROWS if not row.domain]
NOT_IMPLEMENTED = tuple(
    getattr(onnxruntime.capi.onnxruntime_pybind11_state, name) for name in ("NotImplemented", "Fail")
)


def answers(proto: ModelProto, feed: dict[str, Any]) -> list[np.ndarray]:
    """Ours, by the session, which are the reference's in every bit."""
    program = onnx.load(proto)
    ours, meaning = cpu.prepare(program, threads=1).run(feed), reference.run(program, feed)
    for output, x in ours.items():
        assert x.tobytes() == np.ascontiguousarray(meaning[output]).tobytes()
    return list(ours.values())


def theirs(proto: ModelProto, feed: dict[str, Any]) -> list[np.ndarray]:
    """ONNX Runtime's answers; those of onnx.reference for operators that it does not know, or has no kernels for."""
    if proto.opset_import[0].version <= NEWEST:
        try:
            session = protos.session(proto)
        except NOT_IMPLEMENTED:
            return list(ReferenceEvaluator(proto).run(None, feed))
        made: list[np.ndarray] = session.run(None, feed)
        return made
    return list(ReferenceEvaluator(proto).run(None, feed))


def check_near(ours: list[np.ndarray], others: list[np.ndarray]) -> None:
    """Fail unless formats and shapes are equal and values near."""
    for x, y in zip(ours, map(np.asarray, others), strict=True):
        assert (x.dtype, x.shape) == (y.dtype, y.shape)
        np.testing.assert_allclose(x, y, rtol=16 * EPS, atol=8 * EPS)


@pytest.mark.parametrize("name", CASES)
def test_row_agrees_with_onnxruntime(name: str) -> None:
    op, arrays, attributes, fixed, outputs = CASES[name]
    operands = [np.asarray(array) for array in arrays]
    proto, feed = protos.one(op, operands, attributes, fixed, outputs, OPSETS.get(name, 19), name not in FIXED_SHAPES)
    check_near(answers(proto, feed), theirs(proto, feed))


@pytest.mark.parametrize("case", EDGES, ids=lambda case: f"{case[0]} {case[5]} {case[2]} {len(case[1])}"[:70])
def test_attributes_at_their_edges(case: tuple[str, list[Any], dict[str, Any], tuple[int, ...], int, int]) -> None:
    op, arrays, attributes, fixed, outputs, opset = case
    operands = [np.asarray(array) for array in arrays]
    proto, feed = protos.one(op, operands, attributes, fixed, outputs, opset, False)
    due = theirs(proto, feed)
    check_near(answers(proto, feed), due)
    if op not in FIXED_SHAPES:
        check_near(answers(*protos.one(op, operands, attributes, fixed, outputs, opset, True)), due)


def of_attribute(row: OnnxRow, attribute: Attribute) -> Iterator[Any]:
    """The values that EDGES gives an attribute in the opsets of both."""
    for op, _, attributes, _, _, opset in EDGES:
        inside = max(row.since, attribute.since) <= opset <= min(row.until, attribute.until)
        if op == row.op and inside and attribute.name in attributes:
            yield attributes[attribute.name]


@pytest.mark.parametrize(
    ("row", "attribute"),
    [
        pytest.param(row, a, id=f"{row.op} {row.since} {a.name}")
        for row in ROWS
        for a in row.attributes
        # onnx.reference does not know it in CastLike; Cast is tried with it.
        if (row.op, a.name) != ("CastLike", "round_mode")
    ],
)
def test_every_attribute_has_cases(row: OnnxRow, attribute: Attribute) -> None:
    """Each value that is allowed; where all are, two, one of which is not the default."""
    values = list(of_attribute(row, attribute))
    if attribute.allowed is not None:
        assert set(values) == set(attribute.allowed)
    else:
        texts = {str(value) for value in values}
        assert len(texts) >= 2 or (attribute.kind in ("float", "int", "floats", "ints") and row.op == "Constant")
        assert texts - {str(attribute.default)}


def test_every_operator_has_a_case() -> None:
    named = {case[0] for case in CASES.values()} | {edge[0] for edge in EDGES}
    assert named == {row.op for row in ROWS}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.op} {row.since}")
def test_attributes_and_inputs_are_those_of_onnx(row: OnnxRow) -> None:
    """Names, kinds, defaults and the number of inputs in every opset, against the schemas of the onnx installed."""
    not_done = {"sparse_value", "value_string", "value_strings"} if row.op == "Constant" else set()
    for opset in range(row.since, min(row.until, defs.onnx_opset_version()) + 1):
        schema = defs.get_schema(row.op, opset)
        known = {a.name: a for a in row.attributes if a.since <= opset <= a.until}
        assert set(known) == set(schema.attributes) - not_done
        assert row.inputs == min(schema.max_input, MANY) or row.inputs == MANY < schema.max_input
        for name, attribute in known.items():
            theirs = schema.attributes[name]
            assert attribute.kind == theirs.type.name.lower()
            default = helper.get_attribute_value(theirs.default_value) if theirs.default_value.name else None
            default = default.decode() if isinstance(default, bytes) else default
            default = tuple(text.decode() for text in default) if attribute.kind == "strings" and default else default
            if row.op == "Constant":  # one of them is required, which its lowering checks
                assert attribute.default is None
            elif theirs.required:
                assert attribute.default is REQUIRED
            else:
                is_float = isinstance(default, float)  # which the schema keeps in float32
                assert (np.float32(attribute.default) if is_float else attribute.default) == default


def refusal(op: str, opset: int, inputs: int = 1, **attributes: Any) -> str:
    """Why a node is not loaded."""
    node = helper.make_node(op, ["x"] * inputs, ["y"], "n", **attributes)
    proto = protos.model(
        [node], [protos.value("x", np.float32, [2, 3])], [protos.value("y", np.float32, [2, 3])], opset=opset
    )
    with pytest.raises(UnsupportedModelError) as error:
        onnx.load(proto)
    return error.value.problems[0].partition(f"{op} of opset {opset}: ")[2]


ODD = {"int": 77, "float": 7.5, "string": "seventy", "ints": [77], "floats": [7.5], "strings": ["seventy"]}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.op} {row.since}")
def test_a_row_ends_where_it_says(row: OnnxRow) -> None:
    """Opsets before and after its own, attributes before and after theirs, values that are not allowed, inputs."""
    others = [other for other in ROWS if other.op == row.op]
    for opset in (row.since - 1, row.until + 1):
        if opset > 0 and not any(other.since <= opset <= other.until for other in others):
            assert refusal(row.op, opset).startswith(f"opset {opset} is outside ")
    for opset in (row.since, row.until):
        assert refusal(row.op, opset, nonesuch=1) == "attribute 'nonesuch' is unknown"
        if row.inputs < MANY:
            needed = {a.name: (a.allowed or [ODD[a.kind]])[0] for a in row.attributes if a.default is REQUIRED}
            text = refusal(row.op, opset, row.inputs + 1, **needed)
            assert text == f"{row.inputs + 1} inputs are given, it takes at most {row.inputs}"
    for attribute in row.attributes:
        if attribute.kind == "tensor":
            continue
        odd = {attribute.name: ODD[attribute.kind]}
        for opset in (attribute.since - 1, attribute.until + 1):
            if row.since <= opset <= row.until:
                assert refusal(row.op, opset, **odd) == f"attribute {attribute.name!r} is unknown"
        if attribute.allowed is not None:
            text = refusal(row.op, max(row.since, attribute.since), **odd)
            expected = f"must be one of {list(attribute.allowed)}"
            assert text == f"attribute {attribute.name!r} is {ODD[attribute.kind]!r}, {expected}"


def test_reductions_took_axes_as_an_attribute_before_opset_18() -> None:
    for op in ("ReduceMean", "ReduceMax", "ReduceMin"):
        assert refusal(op, 18, axes=[1]) == "attribute 'axes' is unknown"
        assert refusal(op, 17, inputs=2) == "2 inputs are given, it takes at most 1"
        assert refusal(op, 17, noop_with_empty_axes=1) == "attribute 'noop_with_empty_axes' is unknown"


def test_the_logarithm_of_a_sum_of_exponentials_beside_infinities() -> None:
    inf, x = np.inf, X[:1, :1, :2]
    rows = np.array([[-inf, 1], [inf, 1], [-inf, -inf], [inf, -inf], [np.nan, inf]], np.float32)
    with np.errstate(invalid="ignore"):  # ONNX's evaluator, which says the shapes, subtracts infinities
        proto, feed = protos.one("ReduceLogSumExp", [rows, ints(1)], {"keepdims": 0}, (1,), 1, 18, True)
    np.testing.assert_array_equal(answers(proto, feed), [[1, inf, -inf, inf, np.nan]])
    nothing, feed = protos.one("ReduceLogSumExp", [x, ints()], {"noop_with_empty_axes": 1}, (), 1, 18, False)
    np.testing.assert_array_equal(answers(nothing, feed), [x])  # axes of no element are known, whatever makes them


@pytest.mark.parametrize("attribute", ["value_floats", "value_ints"])
def test_a_constant_of_no_elements(attribute: str) -> None:
    kind = AttributeProto.FLOATS if attribute == "value_floats" else AttributeProto.INTS
    node = helper.make_node("Constant", [], ["y"])
    node.attribute.append(helper.make_attribute(attribute, [], attr_type=kind))
    dtype = np.float32 if attribute == "value_floats" else np.int64
    proto = protos.model([node], [], [protos.value("y", dtype, [0])])
    check_near(answers(proto, {}), theirs(proto, {}))


@pytest.mark.parametrize("extent", [0, 1, 4])
@pytest.mark.parametrize("symbolic", [False, True])
def test_slices_at_and_beyond_both_ends(symbolic: bool, extent: int) -> None:
    """Against ONNX Runtime, and against the words of ONNX: a start before the first element is the first element."""
    x = X[..., :extent].copy()
    nodes, outputs, constants, due = [], [], {}, []
    for i, (start, end, step) in enumerate(SLICES):
        if symbolic and step < 0 and (start, end) != (-1, -(2**63) + 1):
            continue
        names = [f"{what}{i}" for what in ("start", "end", "axis", "step")]
        constants |= dict(zip(names, (ints(start), ints(end), ints(-1), ints(step)), strict=True))
        nodes.append(helper.make_node("Slice", ["x", *names], [f"y{i}"]))
        outputs.append(protos.value(f"y{i}", np.float32, [2, 3, f"n{i}"]))
        first, last = (place + extent if place < 0 else place for place in (start, end))
        first = min(max(first, 0), extent if step > 0 else extent - 1)
        last = min(max(last, 0), extent) if step > 0 else min(max(last, -1), extent - 1)
        due.append(x[..., list(range(first, last, step))])
    shape = ["a", "b", "c"] if symbolic else x.shape
    proto = protos.model(nodes, [protos.value("x", np.float32, shape)], outputs, constants)
    ours, others = answers(proto, {"x": x}), theirs(proto, {"x": x})
    for mine, other, part in zip(ours, others, due, strict=True):
        assert mine.shape == other.shape == part.shape
        assert mine.tobytes() == other.tobytes() == part.tobytes()


def test_shapes_of_symbolic_inputs_stay_symbolic() -> None:
    proto, _ = protos.one("Shape", [X])
    assert str(onnx.load(proto)).splitlines()[-2:] == ["  y0: int64[3] = dims([x0_0, x0_1, x0_2])", "  output y0"]


def test_pads_below_zero_cut() -> None:
    node = helper.make_node("Pad", ["x", "pads"], ["y"])
    values = [protos.value("x", np.float32, X.shape)], [protos.value("y", np.float32, [3, 2, 1])]
    proto = protos.model([node], *values, {"pads": ints(-1, 1, 0, 2, -2, -3)})
    made = cpu.load(proto).run({"x": X})["y"]
    (theirs,) = protos.session(proto).run(None, {"x": X})
    assert made.tobytes() == theirs.tobytes()
