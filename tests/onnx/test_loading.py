"""What is not a model, or asks for what is not there, is refused in one clear sentence."""

import io
import pathlib
from typing import Any

import numpy as np
import onnx as onnx_package
import protos
import pytest
from onnx import ModelProto, TensorProto, helper

import samebits as sb
from samebits import onnx
from samebits.errors import ModelError, OptionError, ShapeError, UnsupportedModelError
from samebits.onnx import loading, refused

X = np.ones((2, 3), np.float32)


class Giving:
    """A file that gives what it is told to."""

    def __init__(self, data: Any) -> None:
        self._data = data

    def read(self) -> Any:
        return self._data


def relu() -> onnx_package.ModelProto:
    """A model of one Relu."""
    return protos.one("Relu", [X])[0]


def refusal(source: object, kind: type[ModelError] = ModelError) -> str:
    """The text that loading raises."""
    with pytest.raises(kind) as error:
        onnx.load(source)
    assert type(error.value) is kind
    return str(error.value)


def test_path_bytes_file_and_proto_are_one_model(tmp_path: pathlib.Path) -> None:
    proto = relu()
    data = proto.SerializeToString()
    path = tmp_path / "m.onnx"
    path.write_bytes(data)
    digests = {onnx.load(source).digest() for source in (path, str(path), data, io.BytesIO(data), proto)}
    assert len(digests) == 1


def test_every_unsupported_node_is_listed() -> None:
    nodes = [
        helper.make_node("Tan", ["x"], ["a"], "first"),
        helper.make_node("Relu", ["a"], ["b"], "fine"),
        helper.make_node("Softmax", ["b"], ["c"], "third", axis=1, temperature=2.0),
        helper.make_node("FusedGelu", ["c"], ["d"], "fourth", domain="com.microsoft"),
        helper.make_node("Cast", ["x"], ["y"], "fifth", to=int(TensorProto.STRING)),
    ]
    proto = protos.model(
        nodes, [protos.value("x", np.float32, [2])], [protos.value("y", np.float32, [2])], domains=["com.microsoft"]
    )
    assert refusal(proto, UnsupportedModelError) == (
        "load: model 'g' is unsupported in 4 nodes, must be made of rows of samebits.onnx; "
        "replace it (docs/operators.md lists what is done), or add a row (docs/how-to-add-an-op.md)\n"
        "  node 'first', Tan of opset 17: no row for this operator: the tangent, hyperbolic and inverse functions are "
        "not there yet\n"
        "  node 'third', Softmax of opset 17: attribute 'temperature' is unknown\n"
        "  node 'fourth', com.microsoft.FusedGelu of opset 1: no row for this operator of domain 'com.microsoft'\n"
        "  node 'fifth', Cast of opset 17: attribute 'to' is 8, which no element type here has"
    )


@pytest.mark.parametrize(
    ("op", "opset", "attributes", "reason"),
    [
        ("Trilu", 13, {}, "opset 13 is outside 14 to 28"),
        ("Relu", 99, {}, "opset 99 is outside 6 to 28"),
        ("LayerNormalization", 17, {"stash_type": 11}, "attribute 'stash_type' is 11, must be one of [1]"),
        ("Cast", 17, {}, "attribute 'to' is missing"),
        ("Cast", 24, {"to": 24}, "casts to float8_e8m0fnu round to the nearest, not up"),
        ("Cast", 17, {"to": 1, "saturate": 1}, "attribute 'saturate' is unknown"),
        ("Softmax", 17, {"axis": 2}, "axis 2 is outside a rank of 2"),
        ("Reshape", 17, {}, "input 1 is missing"),
        ("MatMul", 17, {}, "input 1 is missing"),
        ("Einsum", 17, {"equation": "ij->ik"}, "the result is 'ik', must have letters of the operands, each once"),
        ("Einsum", 17, {"equation": "i"}, "'i' is given for an operand of rank 2"),
        (
            "Einsum",
            17,
            {"equation": "ij,"},
            "attribute 'equation' is 'ij,', must be letters and ellipses of 1 operands",
        ),
        ("Einsum", 17, {"equation": "...->"}, "an ellipsis is summed over, must be in the result"),
        ("Einsum", 17, {"equation": "ii"}, "axes 'i' have extents 2 and 3, must have one"),
        ("Resize", 17, {}, "scales or sizes must be given, and not both"),
    ],
)
def test_reasons(op: str, opset: int, attributes: dict[str, object], reason: str) -> None:
    node = helper.make_node(op, ["x"], ["y"], "n", **attributes)
    proto = protos.model(
        [node], [protos.value("x", np.float32, [2, 3])], [protos.value("y", np.float32, [2, 3])], opset=opset
    )
    assert refusal(proto, UnsupportedModelError).splitlines()[1] == f"  node 'n', {op} of opset {opset}: {reason}"


def test_an_element_type_without_kernels_is_a_reason() -> None:
    node = helper.make_node("Add", ["x", "x"], ["y"], "n")
    proto = protos.model([node], [protos.value("x", np.bool_, [2])], [protos.value("y", np.bool_, [2])])
    (line,) = refusal(proto, UnsupportedModelError).splitlines()[1:]
    assert line.startswith("  node 'n', Add of opset 17: add: arguments dtypes is (bool, bool), must be ")


def test_a_shape_that_depends_on_data_is_a_reason() -> None:
    proto, _ = protos.one("Reshape", [X, np.array([3, 2])])
    assert refusal(proto, UnsupportedModelError).splitlines()[1] == (
        "  node 'the_Reshape', Reshape of opset 19: input 1 ('x1') depends on data, must be a shape or a constant"
    )


def image(shape: list[int | str]) -> ModelProto:
    """A convolution and a pool of images of that shape."""
    weights = {"w": np.arange(54, dtype=np.float32).reshape(2, 3, 3, 3)}
    nodes = [helper.make_node("Conv", ["x", "w"], ["c"], "c"),
             helper.make_node("MaxPool", ["c"], ["y"], "p", kernel_shape=[2, 2])]  # fmt: skip
    ends = [protos.value("x", np.float32, shape)], [protos.value("y", np.float32, ["a", "b", "c", "d"])]
    return protos.model(nodes, *ends, weights)


def test_sizes_that_must_be_known_are_bound_when_the_model_is_loaded() -> None:
    x = np.random.default_rng(0).standard_normal((2, 3, 7, 9)).astype(np.float32)
    session = sb.load(image(["n", 3, "h", "w"]), bindings={"h": 7, "w": 9})
    assert str(session.program.inputs["x"]) == "float32[n, 3, 7, 9]"
    fixed = sb.load(image([2, 3, 7, 9]))
    assert session.run({"x": x})["y"].tobytes() == fixed.run({"x": x})["y"].tobytes()
    with pytest.raises(ShapeError, match=r"input 'x' extent 2 is 6, must be 7"):
        session.run({"x": x[:, :, 1:]})


def test_what_is_open_is_named_with_what_binds_it() -> None:
    assert refusal(image(["n", 3, "h", "w"]), UnsupportedModelError) == (
        "load: model 'g' is unsupported in 1 node, must be made of rows of samebits.onnx; "
        "pass bindings={'h': size, 'w': size} (--set h=SIZE), or replace it (docs/operators.md lists what is done), or "
        "add a row (docs/how-to-add-an-op.md)\n"
        "  node 'c', Conv of opset 17: windows slide along extents (h, w), which must be known when the model is loaded"
    )


@pytest.mark.parametrize(
    ("bindings", "sentence"),
    [
        ({"H": 7}, "load: bindings symbol is 'H', must be one of ['n', 'h', 'w']; remove or rename it"),
        ({"h": -1}, "load: symbol 'h' is -1, must be an integer in [0, 2**63); write {'H': 224} for a symbol H"),
        ({"h": True}, "load: symbol 'h' is True, must be an integer in [0, 2**63); write {'H': 224} for a symbol H"),
        (
            {"h": 2**63},
            f"load: symbol 'h' is {2**63}, must be an integer in [0, 2**63); write {{'H': 224}} for a symbol H",
        ),
        (["h"], "load: bindings is list, must be a mapping from symbols to sizes; write {'H': 224} for a symbol H"),
    ],
)
def test_wrong_bindings_are_refused(bindings: Any, sentence: str) -> None:
    with pytest.raises(OptionError) as caught:
        sb.load(image(["n", 3, "h", "w"]), bindings=bindings)
    assert str(caught.value) == sentence


def test_sizes_of_symbols_are_numbers_of_numpy_too() -> None:
    model = image(["n", 3, "h", "w"])
    session = sb.load(model, bindings={"h": np.int64(5), "w": np.uint8(7)})
    assert str(session) == str(sb.load(model, bindings={"h": 5, "w": 7}))
    assert [*session.plans({"n": np.int32(2)})] == [*session.plans({"n": 2})]


_UNKNOWN = "extents and weights must be known when the model is loaded, in as many axes as input 0"


@pytest.mark.parametrize(
    ("op", "arrays", "attributes", "fixed", "reason"),
    [
        ("ScatterND", [X, np.zeros((1, 3), int), X[:1, 0]], {}, (), "indices name 3 axes, must name 1 to 2"),
        ("ScatterND", [X, np.zeros((2, 1), int), X[:1]], {}, (), "updates are [1, 3], must be [2, 3]"),
        ("Resize", [X, X[0, :0], X[0, :1]], {}, (1, 2), "1 scales or sizes are given for 2 axes"),
        (
            "Resize",
            [X, X[0, :0], np.array([1, -2], np.float32)],
            {},
            (1, 2),
            "axis 1 of extent 3 is scaled by -2.0 to -6",
        ),
        *[
            ("Resize", [X, X[0, :0], np.array([1, scale], np.float32)], {"mode": "linear", **more}, (1, 2), reason)
            for scale, more, reason in (
                (np.nan, {}, "axis 1 of extent 3 is scaled by nan to -1"),
                (np.inf, {}, "axis 1 of extent 3 is scaled by inf to -1"),
                (2.0**30, {}, "axis 1 is resized to 3221225472, must be to 16777216 at most"),
                (
                    2.0**-40,
                    {"antialias": 1},
                    f"axis 1 is scaled by {2.0**-40}, by which outputs take more than 1024 places",
                ),
            )
        ],
        *[
            (
                op,
                [np.zeros((1, 1, 300), np.float32)],
                {"kernel_shape": [257]},
                (),
                "a kernel of [257] has more than 256 places",
            )
            for op in ("AveragePool", "LpPool")
        ],
        ("ConvTranspose", [X, X], {}, (), _UNKNOWN),
        (
            "ConvTranspose",
            [X[None, :, :, None], X[:, None, :, None]],
            {"output_shape": [4]},
            (),
            "attribute 'output_shape' is [4], must be of 2 axes, or of all 4",
        ),
        ("ConvTranspose", [X[None], X[:, None].astype(float)], {}, (), "weights are float64, must be float32"),
        ("ConvTranspose", [X[None], X[:, None], X[0, :2]], {}, (), "a bias is float32 of [2], must be float32 of [1]"),
        ("ConvTranspose", [X[None], X[None]], {}, (), "2 channels and weights of [1, 2, 3] are no 1 groups"),
        (
            "ConvTranspose",
            [X[None], X[:, None]],
            {"pads": [3, 3]},
            (),
            "padding leaves -1 places of axis 2, must leave some",
        ),
        (
            "RNN",
            [X[None], X[None], X[None]],
            {},
            (),
            "weights are [1, 2, 3] and [1, 2, 3], must be (1, 2, 3) and (1, 2, 2)",
        ),
        (
            "RNN",
            [X[None], X[None], X[None, :, :2]],
            {"activations": ["Elu"]},
            (),
            "activations are ['Elu'], must be 1 of ['Sigmoid', 'Tanh', 'Relu']",
        ),
        *[
            ("RNN", [X[None], X[None], X[None, :, :2], *more], attributes, (), reason)
            for more, attributes, reason in (
                ([X[0, :2]], {}, "input 3 is float32 of shape [2], must be float32 of [1, 4]"),
                ([X[:, :2].repeat(2, 1)], {}, "input 3 is float32 of shape [2, 4], must be float32 of [1, 4]"),
                ([np.zeros((1, 4))], {}, "input 3 is float64 of shape [1, 4], must be float32 of [1, 4]"),
                (
                    [np.zeros((1, 4), np.float32), np.ones(1, np.int32)],
                    {},
                    "input 4 is int32 of shape [1], must be int32 of [2]",
                ),
                (
                    [np.zeros((1, 4), np.float32), np.ones(1, np.int32), X[None, :, :2]],
                    {"layout": 1},
                    "input 5 is float32 of shape [1, 2, 2], must be float32 of [1, 1, 2]",
                ),
                ([], {"clip": -1.0}, "attribute 'clip' is -1.0, must be 0 or more"),
                (
                    [],
                    {"activations": ["Tanh"] * 3},
                    "activations are ['Tanh', 'Tanh', 'Tanh'], must be 1 of ['Sigmoid', 'Tanh', 'Relu']",
                ),
            )
        ],
    ],
)
def test_reasons_of_operands(
    op: str, arrays: list[np.ndarray], attributes: dict[str, object], fixed: tuple[int, ...], reason: str
) -> None:
    names = [f"x{i}" for i in range(len(arrays))]
    node = helper.make_node(op, names, ["y"], "n", **attributes)
    inputs = [protos.value(names[i], x.dtype, x.shape) for i, x in enumerate(arrays) if i not in fixed]
    known = {names[i]: arrays[i] for i in fixed}
    proto = protos.model([node], inputs, [protos.value("y", np.float32, None)], known, opset=18)
    assert refusal(proto, UnsupportedModelError).splitlines()[1] == f"  node 'n', {op} of opset 18: {reason}"


def test_a_step_back_from_within_an_open_axis_is_a_reason() -> None:
    proto, _ = protos.one(
        "Slice", [X, *[np.array([n]) for n in (2, -(2**63), 0, -1)]], fixed=(1, 2, 3, 4), symbolic=True
    )
    assert refusal(proto, UnsupportedModelError).splitlines()[1] == (
        "  node 'the_Slice', Slice of opset 19: a step of -1 from 2 to -9223372036854775808 needs an extent"
        " that is known when the model is loaded, unless it begins at -1 and ends at the least int64"
    )


def test_truncated_file(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "cut.onnx"
    path.write_bytes(protos.one("MatMul", [X, np.ones((3, 64), np.float32)], fixed=(1,))[0].SerializeToString()[:-40])
    text = refusal(path)
    assert text.startswith(f"load: {path} is malformed (")
    assert text.endswith("), must be an ONNX model; check that the file is complete")


@pytest.mark.parametrize("data", [b"", b"\x08\x08"])
def test_no_graph(data: bytes) -> None:
    expected = "load: the model is without a graph, must be an ONNX model; check that the file is complete"
    assert refusal(data) == expected


def test_noise() -> None:
    assert refusal(b"PK\x03\x04 not a model at all").startswith("load: the model is malformed (")


def test_every_truncation_is_a_model_error() -> None:
    data = relu().SerializeToString()
    for length in range(len(data)):
        with pytest.raises(ModelError):
            onnx.load(data[:length])


def test_missing_file(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "gone.onnx"
    expected = f"load: {path} is unreadable (No such file or directory), must be a readable file; check the path"
    assert refusal(path) == expected


def test_missing_external_data(tmp_path: pathlib.Path) -> None:
    proto = protos.one("MatMul", [X, np.ones((3, 2), np.float32)], fixed=(1,))[0]
    path = tmp_path / "external.onnx"
    onnx_package.save(proto, path, save_as_external_data=True, location="weights.bin", size_threshold=0)
    (tmp_path / "weights.bin").unlink()
    text = refusal(path)
    assert text.startswith("load: ")
    assert "weights.bin" in text


def test_other_sources() -> None:
    assert refusal(7) == (
        "load: source is int, must be a path, bytes, a binary file or a ModelProto; pass one of these"
    )
    assert refusal(io.StringIO("x")) == ("load: source is a text file, must be a binary file; open it with mode 'rb'")


def test_files_that_give_no_bytes(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(b"\x08\x0a\xff\xfe")
    with path.open(encoding="utf-8") as file:  # whose bytes are no text
        assert refusal(file) == "load: source is a text file, must be a binary file; open it with mode 'rb'"
    with path.open("rb") as file:
        pass
    assert refusal(file) == (
        "load: source is unreadable (read of closed file), must be a binary file; open it with mode 'rb'"
    )
    assert refusal(Giving(None)) == (
        "load: source is a file that gives NoneType, must be one that gives bytes; open it with mode 'rb'"
    )


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_a_file_may_give_any_bytes(kind: Any) -> None:
    data = relu().SerializeToString()
    assert onnx.load(Giving(kind(data))).digest() == onnx.load(data).digest()


def test_an_input_without_a_shape() -> None:
    node = helper.make_node("Relu", ["x"], ["y"])
    proto = protos.model([node], [protos.value("x", np.float32, None)], [protos.value("y", np.float32, None)])
    assert refusal(proto) == "load: input 'x' rank is unknown, must be given in the model; export it with a shape"


def test_strings_and_sequences() -> None:
    strings = helper.make_tensor_value_info("s", TensorProto.STRING, [1])
    assert refusal(protos.model([], [strings], [strings]), UnsupportedModelError) == (
        "load: value 's' element type is STRING, must be a number or a truth value; export it with another type"
    )
    sequence = helper.make_tensor_sequence_value_info("q", TensorProto.FLOAT, [1])
    assert refusal(protos.model([], [sequence], [sequence]), UnsupportedModelError) == (
        "load: value 'q' kind is sequence_type, must be tensor_type; export it as a tensor"
    )


def test_sizes_divide() -> None:
    nodes = [
        helper.make_node("Shape", ["x"], ["s"], start=1),
        helper.make_node("Div", ["s", "two"], ["half"]),
        helper.make_node("Concat", ["open", "half", "two"], ["t"], axis=0),
        helper.make_node("Reshape", ["x", "t"], ["y"]),
    ]
    x, y = protos.value("x", np.float32, ["n", 6]), protos.value("y", np.float32, ["n", 3, 2])
    program = onnx.load(protos.model(nodes, [x], [y], {"two": np.array([2]), "open": np.array([-1])}))
    assert str(program.outputs["y"]) == "float32[n, 3, 2]"


def test_every_operator_of_onnx_has_a_row_or_a_reason() -> None:
    names = {schema.name for schema in onnx_package.defs.get_all_schemas() if not schema.domain}
    done = {row.op for row in loading.ROWS if not row.domain}
    assert done | refused.REASONS.keys() == names
    assert not done & refused.REASONS.keys()


def test_graphs_that_are_not_sorted() -> None:
    node = helper.make_node("Relu", ["lost"], ["y"], "n")
    proto = protos.model([node], [protos.value("x", np.float32, [1])], [protos.value("y", np.float32, [1])])
    assert refusal(proto) == (
        "load: input 'lost' of node 'n' is made by no earlier node, must be made by one; sort the nodes of the model"
    )


def test_an_output_that_nothing_makes() -> None:
    proto = protos.model([], [protos.value("x", np.float32, [1])], [protos.value("y", np.float32, [1])])
    assert refusal(proto) == "load: output 'y' is made by no node, must be made by one; export it again"


def test_loading_a_pool_takes_no_step_for_each_window() -> None:
    extent = 1 << 40
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 1, extent]) for name in "xy")
    node = helper.make_node("MaxPool", ["x"], ["y"], kernel_shape=[7], pads=[3, 3])
    program = onnx.load(helper.make_model(helper.make_graph([node], "pool", [x], [y])))
    (made,) = program.outputs
    assert program.facts[made].shape == (1, 1, extent)
