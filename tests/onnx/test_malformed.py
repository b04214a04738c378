"""Models that lie, and sizes that trap: one error that says so, or the right answer; never another exception."""

from __future__ import annotations

import contextlib
import itertools
import pathlib
from collections.abc import Callable
from typing import Any

import numpy as np
import protos
import pytest
from onnx import ModelProto, NodeProto, TensorProto, helper
from onnx_cases import CASES, EDGES, OPSETS

from samebits import onnx
from samebits.errors import ModelError, SamebitsError, ShapeError, UnsupportedModelError
from samebits.runtime import cpu, reference

node, value, model = helper.make_node, protos.value, protos.model
F, I = np.float32, np.int64  # noqa: E741 - integers
X = np.arange(6, dtype=F).reshape(2, 3)


def run(proto: ModelProto, feed: dict[str, Any]) -> dict[str, np.ndarray]:
    """The answer, which is also the reference's."""
    program = onnx.load(proto)
    made, due = cpu.prepare(program, threads=1).run(feed), reference.run(program, feed)
    for name, x in made.items():
        assert (x.shape, x.dtype, x.tobytes()) == (due[name].shape, due[name].dtype, due[name].tobytes())
    return made


def sizes(*nodes: Any, constants: dict[str, Any], kind: Any = I, extent: int = 4) -> list[Any]:
    """What nodes make of the shape `s` of an input of `extent` elements."""
    first = node("Shape", ["a"], ["s"])
    proto = model([first, *nodes], [value("a", F, ["n"])], [value("y", kind, [1])], constants)
    return run(proto, {"a": np.zeros(extent, F)})["y"].tolist()


# -- extents of 0 ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(1, 1, 0, 5), (1, 1, 5, 0)])
@pytest.mark.parametrize("op", ["AveragePool", "MaxPool", "LpPool"])
def test_windows_over_nothing_are_none(op: str, shape: tuple[int, ...]) -> None:
    for padding in ("SAME_UPPER", "SAME_LOWER"):
        pool = node(op, ["x"], ["y"], kernel_shape=[3, 3], strides=[2, 2], auto_pad=padding)
        made = run(model([pool], [value("x", F, shape)], [value("y", F, [0])]), {"x": np.ones(shape, F)})
        assert made["y"].shape == (1, 1, *(-(-extent // 2) for extent in shape[2:]))


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("reverse", [0, 1])
def test_exclusive_sums_along_an_open_axis_may_be_of_nothing(axis: int, reverse: int) -> None:
    sums = node("CumSum", ["x", "axis"], ["y"], exclusive=1, reverse=reverse)
    proto = model([sums], [value("x", F, ["n", "m"])], [value("y", F, [0])], {"axis": np.array(axis)})
    for shape in ((0, 3), (2, 0), (0, 0), (1, 1), (2, 3)):
        x = np.arange(1, 1 + np.prod(shape), dtype=F).reshape(shape)
        turned = np.flip(x, axis) if reverse else x
        due = np.cumsum(turned, axis) - turned
        assert np.array_equal(run(proto, {"x": x})["y"], np.flip(due, axis) if reverse else due)


# -- sizes are numbers like any other ---------------------------------------------------------------------------


def test_a_size_cast_to_bool_is_a_truth_value() -> None:
    nodes = [node("Cast", ["s"], ["t"], to=9), node("Cast", ["t"], ["y"], to=7)]
    assert sizes(*nodes, constants={}) == [1]


@pytest.mark.parametrize(("extent", "expected"), [(0, 2), (4, 1)])
def test_a_size_as_a_condition(extent: int, expected: int) -> None:
    nodes = [node("Cast", ["s"], ["t"], to=9), node("Where", ["t", "one", "two"], ["y"])]
    assert sizes(*nodes, constants={"one": np.array([1]), "two": np.array([2])}, extent=extent) == [expected]


def test_a_narrow_size_wraps() -> None:
    assert sizes(node("Cast", ["s"], ["t"], to=2), node("Cast", ["t"], ["y"], to=7), constants={}, extent=300) == [44]


def test_a_difference_of_sizes_may_be_negative() -> None:
    nodes = [node("Sub", ["s", "five"], ["t"]), node("Equal", ["t", "less"], ["y"])]
    assert sizes(*nodes, constants={"five": np.array([5]), "less": np.array([-1])}, kind=np.bool_) == [True]


def test_a_difference_is_no_bound() -> None:
    five = {"five": np.array([5]), "two": np.array([2])}
    with pytest.raises(UnsupportedModelError, match="n-5"):
        sizes(node("Sub", ["s", "five"], ["t"]), node("Slice", ["s", "t", "two"], ["y"]), constants=five)


def test_a_negative_dividend_is_rounded_toward_zero() -> None:
    nine = {"nine": np.array([9]), "two": np.array([2])}
    assert sizes(node("Sub", ["s", "nine"], ["t"]), node("Div", ["t", "two"], ["y"]), constants=nine) == [-2]


@pytest.mark.parametrize(("op", "x"), [("Add", np.array([2**62])), ("Add", np.array([200], np.uint8))])
def test_constants_wrap(op: str, x: np.ndarray) -> None:
    nodes = [node(op, ["c", "c"], ["t"]), node("Cast", ["t"], ["y"], to=7)]
    assert run(model(nodes, [], [value("y", I, [1])], {"c": x}), {})["y"].tolist() == (x + x).tolist()


def test_a_size_beyond_int64() -> None:
    with pytest.raises(ShapeError) as error:
        sizes(node("Mul", ["s", "c"], ["y"]), constants={"c": np.array([2**62])})
    assert str(error.value) == (
        "run: node 'Mul:y': dims: a size is 18446744073709551616, must be an int64; give smaller inputs"
    )


def test_a_size_divided_by_zero() -> None:
    nodes = [node("Shape", ["a"], ["s"]), node("Shape", ["b"], ["t"]), node("Div", ["s", "t"], ["y"])]
    proto = model(nodes, [value("a", F, ["n"]), value("b", F, ["m"])], [value("y", I, [1])])
    with pytest.raises(ShapeError) as error:
        run(proto, {"a": np.zeros(4, F), "b": np.zeros(0, F)})
    assert str(error.value) == (
        "run: node 'Div:y': floor_divide: divisor is 0, must be another size; divide by something else"
    )


BOMBS: dict[str, Callable[[str, str], list[NodeProto]]] = {
    "a power": lambda m, n: [node("Mul", [m, m], [n])],
    "a quotient": lambda m, n: [node("Div", [m, "two"], [f"{m}q"]), node("Add", [f"{m}q", m], [n])],
    "a maximum": lambda m, n: [node("Mul", [m, "two"], [f"{m}q"]), node("Sub", ["two", f"{m}q"], [f"{m}r"]),
                               node("Max", [f"{m}r", m], [n])],
    "a minimum": lambda m, n: [node("Mul", [m, "p"], [f"{m}q"]), node("Min", [f"{m}q", m], [f"{m}r"]),
                               node("Add", [f"{m}r", m], [n])],
    "a difference": lambda m, n: [node("Sub", [m, "two"], [f"{m}q"]), node("Mul", [f"{m}q", m], [n])],
    "a negative": lambda m, n: [node("Neg", [m], [f"{m}q"]), node("Mul", [f"{m}q", m], [n])],
}  # fmt: skip


@pytest.mark.parametrize("bomb", BOMBS.values(), ids=BOMBS.keys())
def test_sizes_do_not_grow_without_end(bomb: Callable[[str, str], list[NodeProto]]) -> None:
    nodes = [node("Gather", ["s", "zero"], ["p"]), node("Add", ["p", "one"], ["m0"])]
    for i in range(22):
        nodes += bomb(f"m{i}", f"m{i + 1}")
    constants = {"zero": np.array([0]), "one": np.array([1]), "two": np.array([2])}
    with pytest.raises(UnsupportedModelError, match=r"dim: a size is .*, must be simpler; "):
        sizes(*nodes, node("Identity", ["m22"], ["y"]), constants=constants)


def test_a_long_vector_of_sizes_is_data() -> None:
    nodes = [node("Concat", [f"m{i}" if i else "s", f"m{i}" if i else "s"], [f"m{i + 1}"], axis=0) for i in range(40)]
    with pytest.raises(ShapeError, match="size in bytes is "):
        sizes(*nodes, node("Identity", ["m40"], ["y"]), constants={})


@pytest.mark.parametrize("count", [40, 400])
def test_slices_of_slices(count: int) -> None:
    nodes = [node("Slice", [f"v{i}" if i else "a", "one", "end"], [f"v{i + 1}"]) for i in range(count)]
    proto = model(
        nodes, [value("a", F, ["n"])], [value(f"v{count}", F, ["m"])], {"one": np.array([1]), "end": np.array([2**62])}
    )
    assert run(proto, {"a": np.arange(500, dtype=F)})[f"v{count}"].tolist() == list(range(count, 500))
    assert run(proto, {"a": np.arange(5, dtype=F)})[f"v{count}"].shape == (0,)


# -- shapes that do not fit ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("symbolic", [False, True])
def test_concat_of_operands_that_do_not_fit(symbolic: bool) -> None:
    shapes = (["n", "m"], ["p", "q"]) if symbolic else ([2, 3], [2, 70000])
    proto = model(
        [node("Concat", ["a", "b"], ["y"], "join", axis=0)],
        [value("a", F, shapes[0]), value("b", F, shapes[1])],
        [value("y", F, ["r", "s"])],
    )
    with pytest.raises(SamebitsError, match="join"):
        run(proto, {"a": X, "b": np.zeros((2, 70000), F)})


def one_constant(op: str, constant: Any, shape: tuple[Any, ...] = (2, 3), **attributes: Any) -> ModelProto:
    """op(a, constant)."""
    nodes = [node(op, ["a", "c"], ["y"], "the node", **attributes)]
    return model(nodes, [value("a", F, shape)], [value("y", F, None)], {"c": np.asarray(constant)}, opset=19)


@pytest.mark.parametrize(
    ("op", "constant", "reason"),
    [
        ("Reshape", [-2, -3], "the shape (-2, -3) has negative extents"),
        ("Expand", [-1], "broadcast: extents is 3 and -1, must be equal, or one of them 1; align the operands"),
        ("ReduceSum", [1, -1], "axes (1, -1) name one axis twice"),
        ("Gather", np.array([0.0], F), "indices are float32, must be int32 or int64"),
        ("Relu", [1], "2 inputs are given, it takes at most 1"),
        ("Pad", [1, 1], "2 counts are given for 2 axes, two an axis are needed"),
        ("Pad", [0, -2, 0, -2], "slice: axis 1 is 2+-1 by 1, must be in 3; give other bounds"),
        ("Gemm", np.ones((3, 2)), "operands are float32 and float64, must be of one format"),
        ("MatMul", np.ones((3, 2)), "operands are float32 and float64, must be of one format"),
    ],
)
def test_reasons(op: str, constant: Any, reason: str) -> None:
    with pytest.raises(UnsupportedModelError) as error:
        onnx.load(one_constant(op, constant))
    assert str(error.value).splitlines()[1] == f"  node 'the node', {op} of opset 19: {reason}"


@pytest.mark.parametrize(
    ("attribute", "reason"),
    [
        (1.5, "attribute 'axis' is of float, must be of int"),
        ("x", "attribute 'axis' is of string, must be of int"),
        ([1], "attribute 'axis' is of ints, must be of int"),
    ],
)
def test_kinds_of_attributes(attribute: Any, reason: str) -> None:
    nodes = [node("Softmax", ["a"], ["y"], "n", axis=attribute)]
    with pytest.raises(UnsupportedModelError) as error:
        onnx.load(model(nodes, [value("a", F, [2, 3])], [value("y", F, [2, 3])]))
    assert str(error.value).splitlines()[1] == f"  node 'n', Softmax of opset 17: {reason}"


def test_an_operand_left_out_is_not_the_next() -> None:
    nodes = [node("LayerNormalization", ["a", "", "b"], ["y"], "n")]
    proto = model(nodes, [value("a", F, [2, 3]), value("b", F, [3])], [value("y", F, [2, 3])])
    with pytest.raises(UnsupportedModelError, match="input 1 is missing"):
        onnx.load(proto)


def test_an_addend_does_not_enlarge_a_product() -> None:
    nodes = [node("Gemm", ["a", "a", "c"], ["y"], "n")]
    proto = model(nodes, [value("a", F, ["n", "n"]), value("c", F, ["m", "n"])], [value("y", F, ["p", "q"])])
    one = np.ones((1, 1), F)
    assert run(proto, {"a": one, "c": one})["y"].tolist() == [[2]]
    with pytest.raises(ShapeError) as error:
        run(proto, {"a": one, "c": np.ones((3, 1), F)})
    assert str(error.value) == (
        "run: operand of node 'n' shape is [3, 1], must be one that fits [1, 1]; give inputs of other sizes"
    )


def test_the_exponent_has_a_rank() -> None:
    proto = one_constant("Pow", np.full((1, 1, 1), 2, F))
    assert run(proto_with_output(proto, 3), {"a": X})["y"].shape == (1, 2, 3)


def proto_with_output(proto: ModelProto, rank: int) -> ModelProto:
    """The model, its output of that rank."""
    proto.graph.output[0].CopyFrom(value("y", F, [f"y{axis}" for axis in range(rank)]))
    return proto


EACH = {case[0]: case for case in [*EDGES, *((*case, OPSETS.get(name, 19)) for name, case in CASES.items())]}


@pytest.mark.parametrize("op", EACH)
def test_an_operand_of_any_rank_is_taken_or_a_reason(op: str) -> None:
    _, arrays, attributes, fixed, outputs, opset = EACH[op]
    for number, rank in itertools.product(range(len(arrays)), (0, 1, 2, 5)):
        operands = [np.asarray(array) for array in arrays]
        operands[number] = np.zeros((1,) * rank, operands[number].dtype)
        names, made = [f"x{i}" for i in range(len(operands))], [f"y{i}" for i in range(outputs)]
        inputs = [value(names[i], x.dtype, x.shape) for i, x in enumerate(operands) if i not in fixed]
        outs = [value(name, F, None) for name in made]
        constants = {names[i]: operands[i] for i in fixed}
        proto = model([node(op, names, made, **attributes)], inputs, outs, constants, opset)
        with contextlib.suppress(SamebitsError):
            onnx.load(proto.SerializeToString())


@pytest.mark.parametrize("shape", [[2**40], [2**40, 2**40, 2**40]])
def test_a_value_larger_than_the_memory(shape: list[int]) -> None:
    proto = model([node("ConstantOfShape", ["c"], ["y"])], [], [value("y", F, None)], {"c": np.array(shape)})
    with pytest.raises(ShapeError, match="run: value 'y' of node 'ConstantOfShape:y' size in bytes is "):
        run(proto, {})


def test_a_value_of_no_elements_that_numpy_does_not_hold() -> None:
    """NumPy counts an extent of 0 as 1 when it asks whether an array is too big."""
    proto = model(
        [node("Reshape", ["a", "c"], ["y"], allowzero=1)],
        [value("a", F, [0, 3])],
        [value("y", F, None)],
        {"c": np.array([0, 2**62])},
    )
    with pytest.raises(ShapeError) as error:
        run(proto, {"a": np.zeros((0, 3), F)})
    assert str(error.value) == (
        f"run: value 'y' of node 'Reshape:y' size in bytes is {2**64}, must be at most {2**63 - 1}; give smaller inputs"
    )


@pytest.mark.parametrize(
    ("nodes", "what"),
    [
        ([node("Expand", ["one", "s"], ["y"])], "'y' of node 'Expand:y'"),
        ([node("ConstantOfShape", ["s"], ["y"])], "'y' of node 'ConstantOfShape:y'"),
        ([node("Reshape", ["none", "s"], ["y"])], "'y' of node 'Reshape:y'"),
        ([node("Expand", ["one", "s"], ["e"]), node("Concat", ["e", "e"], ["y"], axis=0)], "'e' of node 'Expand:e'"),
    ],
)
def test_a_constant_of_no_elements_that_numpy_does_not_hold(nodes: list[NodeProto], what: str) -> None:
    constants = {"s": np.array([0, 2**62]), "one": np.ones((1, 1), F), "none": np.ones((0, 1), F)}
    with pytest.raises(ShapeError) as error:
        run(model(nodes, [value("x", F, [1])], [value("y", F, [0, 2**62])], constants), {"x": np.ones(1, F)})
    assert str(error.value) == (
        f"run: value {what} size in bytes is {2**64}, must be at most {2**63 - 1}; give smaller inputs"
    )


X32 = np.arange(6, dtype=F).reshape(*[1] * 30, 2, 3)


@pytest.mark.parametrize(
    ("op", "operands"),
    [
        ("Add", [X32, X32[..., :1, :]]),
        ("Exp", [X32]),
        ("ReduceSum", [X32]),
        ("Softmax", [X32]),
        ("MatMul", [X32, np.swapaxes(X32, -1, -2)]),
        ("Transpose", [X32]),
        ("Gather", [X32, np.array([0])]),
        ("Where", [X32 > 2, X32, X32]),
        ("Concat", [X32, X32]),
    ],
)
def test_as_many_axes_as_numpy_broadcasts(op: str, operands: list[np.ndarray]) -> None:
    proto, feed = protos.one(op, operands, {"axis": -1} if op in ("Softmax", "Concat") else {})
    made = run(proto, feed)["y0"]
    assert made.ndim == 32


def test_a_node_that_makes_more_axes_is_a_reason() -> None:
    nodes = [node("Unsqueeze", ["a", "c"], ["b"], "more"), node("Exp", ["b"], ["y"])]
    proto = model(nodes, [value("a", F, [2, 3])], [value("y", F, [2, 3])], {"c": np.arange(31)})
    with pytest.raises(UnsupportedModelError) as error:
        onnx.load(proto)
    assert error.value.problems == (
        "node 'more', Unsqueeze of opset 17: reshape: its result rank is 33, must be at most 32; join axes",
    )


@pytest.mark.parametrize(("start", "limit"), [(np.inf, 0), (0, -np.inf), (5, 5), (6, 5)])
def test_a_range_of_nothing(start: float, limit: float) -> None:
    operands = {"a": F(start), "b": F(limit), "c": F(1)}
    proto = model([node("Range", ["a", "b", "c"], ["y"])], [], [value("y", F, ["n"])], operands)
    assert run(proto, {})["y"].shape == (0,)


@pytest.mark.parametrize("step", [0.0, np.nan, 1e-30])
def test_a_range_without_end(step: float) -> None:
    operands = {"a": F(0), "b": F(1), "c": F(step)}
    proto = model([node("Range", ["a", "b", "c"], ["y"])], [], [value("y", F, ["n"])], operands)
    with pytest.raises(UnsupportedModelError, match="it would have"):
        onnx.load(proto)


def test_a_scalar_index_out_of_range_of_a_constant() -> None:
    proto = model([node("Gather", ["a", "c"], ["y"], "n")], [], [value("y", F, [3])], {"a": X, "c": np.array(2)})
    with pytest.raises(UnsupportedModelError, match=r"an index is 2, must be in \[-2, 2\)"):
        onnx.load(proto)


def test_a_scalar_index_into_a_large_scaled_table() -> None:
    nodes = [node("Mul", ["t", "s"], ["u"]), node("Gather", ["u", "i"], ["y"])]
    constants = {"t": np.arange(140000, dtype=F).reshape(70000, 2), "s": np.full((1, 2), 2, F)}
    proto = model(nodes, [value("i", I, [])], [value("y", F, [2])], constants)
    assert run(proto, {"i": np.array(3)})["y"].tolist() == [12, 14]


def test_long_chains() -> None:
    nodes = [node("Add", [f"v{i}" if i else "a", "a"], [f"v{i + 1}"]) for i in range(1200)]
    proto = model(nodes, [value("a", F, ["n"])], [value("v1200", F, ["n"])])
    assert run(proto, {"a": np.ones(3, F)})["v1200"].tolist() == [1201] * 3


def test_a_nan_of_a_narrow_float_is_moved() -> None:
    nodes = [node("Where", ["m", "c", "a"], ["y"])]
    inputs = [value("m", np.bool_, [2]), value("a", np.float16, [2])]
    proto = model(nodes, inputs, [value("y", np.float16, [2])], {"c": np.array(np.nan, np.float16)})
    made = run(proto, {"m": np.array([True, False]), "a": np.ones(2, np.float16)})["y"]
    assert np.array_equal(made, np.array([np.nan, 1], np.float16), equal_nan=True)


# -- names ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("names", [("%1", "%2", "%3", "%4"), ("%4", "%3", "%2", "%1"), ("a", "%3", "%1", "%2")])
def test_any_name_is_a_name(names: tuple[str, ...]) -> None:
    x, a, b, y = names
    nodes = [node("Neg", [x], [a]), node("Exp", [a], [b]), node("Mul", [b, "%5"], ["c"]), node("Add", ["c", a], [y])]
    proto = model(nodes, [value(x, F, [2])], [value(y, F, [2]), value(a, F, [2])], {"%5": F(3)})
    made = run(proto, {x: np.zeros(2, F)})
    assert made[y].tolist() == [3, 3]
    assert made[a].tolist() == [0, 0]


def test_an_open_extent_is_no_parameter() -> None:
    inputs = [value("x", F, [None]), value("a", F, ["x.0"])]
    proto = model([node("Neg", ["a"], ["y"])], inputs, [value("y", F, ["n"])])
    assert run(proto, {"x": np.ones(3, F), "a": np.ones(2, F)})["y"].shape == (2,)


def negated() -> ModelProto:
    """y = -a + c."""
    nodes = [node("Neg", ["a"], ["n"]), node("Add", ["n", "c"], ["y"])]
    return model(nodes, [value("a", F, [2])], [value("y", F, [2])], {"c": np.ones(2, F)})


def refused(change: Any) -> str:
    """The text that a changed model is refused with."""
    proto = negated()
    change(proto)
    with pytest.raises(ModelError) as error:
        onnx.load(proto)
    return str(error.value)


def test_lies() -> None:
    twice = "is there twice, must be there once; rename one"
    assert refused(lambda p: p.graph.input.append(p.graph.input[0])) == f"load: input 'a' {twice}"
    assert refused(lambda p: p.graph.output.append(p.graph.output[0])) == f"load: output 'y' {twice}"
    assert refused(lambda p: p.graph.initializer.append(p.graph.initializer[0])) == f"load: initializer 'c' {twice}"
    assert refused(lambda p: p.graph.initializer[0].dims.__setitem__(0, -1)) == (
        "load: tensor 'c' shape is [-1], must be not negative; export it again"
    )
    assert refused(lambda p: p.graph.initializer[0].dims.__setitem__(0, 2**62)) == (
        "load: tensor 'c' shape is [4611686018427387904], must be at most 9223372036854775807 bytes; export it again"
    )
    assert refused(lambda p: p.graph.input[0].CopyFrom(value("a", F, [-3]))) == (
        "load: value 'a' extent 0 is -3, must be 0 or more; export it again"
    )
    assert refused(lambda p: p.graph.output[0].CopyFrom(value("y", I, [2]))) == (
        "load: output 'y' dtype is float32, must be int64; export it again"
    )
    assert refused(lambda p: setattr(p.graph.input[0].type.tensor_type, "elem_type", 77)) == (
        "load: value 'a' element type is 77, must be a number or a truth value; export it with another type"
    )


def test_tensors_without_kernels() -> None:
    for kind, name in (
        (TensorProto.STRING, "STRING"),
        (TensorProto.COMPLEX64, "COMPLEX64"),
    ):
        tensor = TensorProto(name="t", data_type=kind, dims=[0])
        assert refused(lambda p, t=tensor: p.graph.initializer.append(t)) == (
            f"load: tensor 't' element type is {name}, must be a number or a truth value; export it with another type"
        )


# -- data in other files ------------------------------------------------------------------------------------------


def external(location: str) -> bytes:
    """A model whose constant is in another file."""
    proto = negated()
    tensor = proto.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value=location)
    return proto.SerializeToString()


def test_other_files_are_read_beside_a_path_alone(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    (tmp_path / "secret.bin").write_bytes(np.ones(2, F).tobytes())
    (folder / "own.bin").write_bytes(np.ones(2, F).tobytes())
    (folder / "link.bin").symlink_to(tmp_path / "secret.bin")
    path = folder / "m.onnx"
    path.write_bytes(external("own.bin"))
    assert cpu.load(path).run({"a": np.ones(2, F)})["y"].tolist() == [0, 0]
    for location in ("../secret.bin", str(tmp_path / "secret.bin"), "link.bin"):
        path.write_bytes(external(location))
        with pytest.raises(ModelError, match=r"(secret|link)\.bin"):
            onnx.load(path)
    monkeypatch.chdir(folder)
    with pytest.raises(ModelError) as error:
        onnx.load(external("own.bin"))
    assert str(error.value) == "load: tensor 'c' is in another file, must be in the model; load the model by its path"
