"""ConvInteger and QLinearConv: exact sums, beside ONNX Runtime and in fractions, however they are computed."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import onnxruntime
import protos
import pytest
from onnx import ModelProto, helper

import samebits as sb
from samebits import onnx
from samebits.errors import UnsupportedModelError
from samebits.runtime import cpu, reference

Array = np.ndarray[Any, np.dtype[Any]]
I8, U8 = np.int8, np.uint8

# Image, weights, attributes: by products of words and columns, by chains of float32, by maps, by long sums of few.
CASES: dict[str, tuple[Any, ...]] = {
    "many filters": ((2, 7, 9, 8), (6, 7, 3, 3), {"pads": [1, 0, 1, 2]}),
    "in steps": ((1, 8, 12, 13), (9, 8, 3, 2), {"strides": [2, 2], "pads": [1, 1, 0, 0]}),
    "apart": ((1, 4, 9, 8), (7, 4, 2, 2), {"dilations": [2, 3]}),
    "one by one": ((2, 9, 6, 7), (10, 9, 1, 1), {}),
    "groups": ((1, 12, 8, 9), (15, 4, 3, 3), {"group": 3, "pads": [1] * 4}),
    "depth": ((2, 6, 9, 10), (12, 1, 3, 3), {"group": 6, "pads": [1] * 4, "strides": [1, 2]}),
    "two filters": ((1, 20, 7, 9), (2, 20, 3, 3), {"pads": [1] * 4}),
    "two filters of long sums": ((1, 40, 7, 9), (2, 40, 3, 3), {"pads": [1] * 4}),
    "one window": ((3, 6, 3, 2), (6, 1, 3, 2), {"group": 6}),
    "a line": ((2, 3, 30), (5, 3, 4), {"auto_pad": "SAME_UPPER", "strides": [3]}),
}
KINDS = [(U8, I8), (I8, I8), (U8, U8)]
NAMES = ("x", "xs", "xz", "w", "ws", "wz", "ys", "yz", "b")


def drawn(kind: Any, *shape: int) -> Array:
    limits = np.iinfo(kind)
    return np.asarray(np.random.default_rng([*shape]).integers(limits.min, limits.max + 1, shape)).astype(kind)


def operands(name: str, kinds: Any, each: bool, exponent: int | None = None) -> dict[str, Array]:
    """Those of QLinearConv; `each`: with a scale for each filter; `exponent`: scales are powers of two."""
    x, w, _ = CASES[name]
    shape, k = ((w[0],) if each else ()), int(np.prod(w[1:]))
    ws = np.random.default_rng(1).uniform(0.001, 0.02, shape).astype(np.float32)
    ys = np.array(0.0003 * k**0.5 * 100, np.float32)
    if exponent is not None:
        ws, ys = np.full(shape, 2.0**-5, np.float32), np.array(2.0**exponent, np.float32)
    zero = np.zeros(shape, I8) if kinds[1] is I8 else np.full(shape, 131, U8)
    return {
        "x": drawn(kinds[0], *x), "xs": np.array(2.0**-3, np.float32), "xz": np.array(101, kinds[0]),
        "w": drawn(kinds[1], *w), "ws": ws, "wz": zero, "ys": ys, "yz": np.array(20, kinds[0]),
        "b": np.random.default_rng(2).integers(-9000, 9000, w[0]).astype(np.int32),
    }  # fmt: skip


def model(op: str, name: str, given: dict[str, Array], fixed: bool, count: int = 9) -> ModelProto:
    """One node; all but the image is constant where it is `fixed`."""
    names = NAMES[:count] if op == "QLinearConv" else [x for x in ("x", "w", "xz", "wz") if x in given]
    result = given["yz"].dtype if op == "QLinearConv" else np.int32
    inputs = [protos.value(key, given[key].dtype, given[key].shape) for key in names if key == "x" or not fixed]
    known = {key: given[key] for key in names if key != "x"} if fixed else {}
    node = helper.make_node(op, names, ["y"], **CASES[name][2])
    return protos.model([node], inputs, [protos.value("y", result, None)], known)


def answer(made: ModelProto, given: dict[str, Array]) -> Array:
    """By kernels, which is the reference's."""
    program = onnx.load(made)
    feed = {key: given[key] for key in program.inputs}
    found: Array = cpu.prepare(program, threads=2).run(feed)["y"]
    assert found.tobytes() == np.ascontiguousarray(reference.run(program, feed)["y"]).tobytes()
    return found


def runtimes(made: ModelProto, given: dict[str, Array]) -> Array:
    """ONNX Runtime's answer."""
    session = onnxruntime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
    names = [x.name for x in session.get_inputs()]
    found: Array = session.run(None, {key: given[key] for key in names})[0]
    return found


@pytest.mark.parametrize("name", CASES)
def test_sums_are_those_of_onnx_runtime(name: str) -> None:
    number = [*CASES].index(name)
    for kinds, fixed in ((KINDS[number % 3], True), (KINDS[(number + 1) % 3], False)):
        given = operands(name, kinds, each=False)
        made = model("ConvInteger", name, given, fixed)
        assert answer(made, given).tobytes() == runtimes(made, given).tobytes(), kinds


@pytest.mark.parametrize("name", CASES)
def test_where_scales_are_powers_of_two_so_are_results(name: str) -> None:
    """ONNX Runtime rounds the scale, then the product; here there is nothing to round but the result."""
    number, k = [*CASES].index(name), int(np.prod(CASES[name][1][1:]))
    for kinds, fixed in ((KINDS[number % 3], True), (KINDS[(number + 1) % 3], False)):
        given = operands(name, kinds, each=number % 2 == 0, exponent=k.bit_length() // 2 - 1)
        made = model("QLinearConv", name, given, fixed)
        found = answer(made, given)
        assert found.tobytes() == runtimes(made, given).tobytes(), kinds
        assert len(np.unique(found)) > min(50, found.size // 3)


@pytest.mark.parametrize("name", ["many filters", "depth", "one window"])
@pytest.mark.parametrize("count", [8, 9])
def test_each_result_is_the_fraction_rounded_once(name: str, count: int) -> None:
    given = operands(name, KINDS[0], each=True)
    sums = answer(model("ConvInteger", name, given, True), given)
    found = answer(model("QLinearConv", name, given, True, count), given)
    over = Fraction(float(given["xs"])) / Fraction(float(given["ys"]))
    for at in np.ndindex(found.shape):
        total = int(sums[at]) + (int(given["b"][at[1]]) if count == 9 else 0)
        quotient = round(total * Fraction(float(given["ws"][at[1]])) * over) + int(given["yz"])
        assert found[at] == min(max(quotient, 0), 255)


@pytest.mark.parametrize("kinds", KINDS)
@pytest.mark.parametrize("count", [8, 9])
@pytest.mark.parametrize("each", [False, True])
def test_the_zero_point_of_an_image_is_part_of_a_constant_bias(kinds: Any, count: int, each: bool) -> None:
    """Where no window looks beside the image, and the bias stays an int32; whatever is no constant gives the same."""
    for name, largest in (("one by one", 9000), ("one by one", 2**31 - 1), ("apart", 9000), ("many filters", 9000)):
        given = operands(name, kinds, each)
        given["b"][:2] = largest, -largest
        program = onnx.load(model("QLinearConv", name, given, True, count))
        is_kept = name == "many filters" or (count == 9 and largest > 9000)
        assert ("b_zero_point" in str(program)) == is_kept, name
        assert ("bias" in str(program)) == (count == 9 or not is_kept)
        found = answer(model("QLinearConv", name, given, True, count), given)
        assert found.tobytes() == answer(model("QLinearConv", name, given, False, count), given).tobytes()
        given["xz"] = np.zeros_like(given["xz"])  # which is no operand, even beside an image
        assert "b_zero_point" not in str(onnx.load(model("QLinearConv", name, given, True, count)))
        found = answer(model("QLinearConv", name, given, True, count), given)
        assert found.tobytes() == answer(model("QLinearConv", name, given, False, count), given).tobytes()


@pytest.mark.parametrize("name", ["many filters", "depth"])
def test_a_constant_bias_fits_where_no_sum_with_it_leaves_int32(name: str) -> None:
    given = operands(name, KINDS[0], each=False)
    most = 2**31 - 1 - int(np.prod(CASES[name][1][1:])) * 255 * 255
    for bias, fits in ((most, True), (-most, True), (most + 1, False), (-most - 1, False)):
        given["b"][:] = bias
        for fixed in (True, False):
            made = model("QLinearConv", name, given, fixed)
            (node,) = [each for each in onnx.load(made).nodes if each.operation == "convolve"]
            assert node.attributes.bias_fits == (fits and fixed)  # type: ignore[union-attr]
            answer(made, given)


def test_zero_points_may_be_left_out() -> None:
    given = operands("many filters", KINDS[0], each=False)
    plain = {"x": given["x"], "w": given["w"]}
    zeros = {"xz": np.array(0, U8), "wz": np.array(0, I8)}
    found = answer(model("ConvInteger", "many filters", plain, True), plain)
    assert found.tobytes() == answer(model("ConvInteger", "many filters", plain | zeros, True), plain | zeros).tobytes()


def test_batches_may_be_open() -> None:
    given = operands("in steps", KINDS[0], each=True)
    made = model("QLinearConv", "in steps", given, True)
    made.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "n"
    session, images = sb.load(made), drawn(U8, 5, *given["x"].shape[1:])
    whole = session.run({"x": images})["y"]
    for n in range(5):
        assert session.run({"x": images[n : n + 1]})["y"].tobytes() == whole[n].tobytes()


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"xs": np.ones(3, np.float32)}, r"input 1 is float32\[3\], must be one element"),
        ({"ws": np.ones(4, np.float32)}, r"input 4 is float32\[4\], must be one element, or one a filter"),
        ({"b": np.ones(4, np.int32)}, r"input 8 is int32\[4\], must be 6 elements"),
    ],
)
def test_what_belongs_to_no_filter_is_refused(changed: dict[str, Array], said: str) -> None:
    given = operands("many filters", KINDS[0], each=True) | changed
    with pytest.raises(UnsupportedModelError, match=said):
        onnx.load(model("QLinearConv", "many filters", given, False))


@pytest.mark.parametrize("name", ["many filters", "two filters"])
@pytest.mark.parametrize(
    ("kinds", "said"),
    [
        ({"xz": I8}, "b_zero_point dtype is int8, must be uint8"),
        ({"wz": U8}, "a_zero_point dtype is uint8, must be int8"),
        ({"b": np.float32}, "bias dtype is float32, must be int32"),
        ({"x": np.int32, "w": np.int32}, "a dtype is int32, must be a float or an integer of at most 8 bits"),
    ],
)
def test_formats_are_refused_however_sums_are_computed(name: str, kinds: dict[str, Any], said: str) -> None:
    given = operands(name, KINDS[0], each=False)
    given |= {key: given[key].astype(kind) for key, kind in kinds.items()}
    with pytest.raises(UnsupportedModelError, match=said):
        onnx.load(model("QLinearConv", name, given, True))


def test_zero_points_of_weights_fit_them_although_they_are_zero() -> None:
    given = operands("many filters", KINDS[0], each=True) | {"wz": np.zeros(3, I8)}
    with pytest.raises(UnsupportedModelError, match=r"input 5 is int8\[3\], must be one element, or one a filter"):
        onnx.load(model("QLinearConv", "many filters", given, True))
