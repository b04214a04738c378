"""Scales, quantisation and requantisation: such products have the bits of numerics.md sections 2 and 3.

How one element is quantised and requantised is held by kernels/functions/test_quantized.py; here they are steps of a
product.
"""

from __future__ import annotations

import re
from typing import Any

import aarch64
import guard
import ml_dtypes
import numpy as np
import pytest
from gemm_run import contraction
from rows import AARCH64_PRODUCT_ROWS, PRODUCT_ROWS

import samebits as sb
from samebits import dtypes
from samebits.codegen import llvm
from samebits.kernels import gemm
from samebits.kernels.functions import exact
from samebits.kernels.gemm.reference import integers, reference

Array = np.ndarray[Any, np.dtype[Any]]
F32 = np.float32


def assert_bits(got: Any, due: Array, what: object = "") -> None:
    found = np.asarray(got)
    assert found.dtype == due.dtype, what
    assert found.shape == due.shape, what
    assert found.tobytes() == due.tobytes(), what


def drawn(kind: str, *shape: int, seed: int = 0) -> Array:
    rng = np.random.default_rng([seed, *shape])
    if kind.startswith(("int", "uint")):
        limits = np.iinfo(kind)
        return rng.integers(limits.min, limits.max + 1, shape).astype(kind)
    return rng.standard_normal(shape).astype(sb.dtypes.of(kind).numpy)


def scales(*shape: int, seed: int = 0) -> Array:
    """Positive float32 of many magnitudes."""
    rng = np.random.default_rng([seed, 7, *shape])
    return np.asarray(np.exp2(rng.uniform(-12, 3, shape)), F32)


GIVEN = [(scales(5), scales(33)), (scales(5), None), (None, scales(33)), (0.3, scales()), (0.1, 1e-3)]


def factor(a_scale: Any, b_scale: Any) -> Array:
    """The float32 product of the scales, against [M, N]."""
    left, right = (np.asarray(1 if x is None else x, F32) for x in (a_scale, b_scale))
    return np.asarray((left[..., None] if left.ndim else left) * right)


@pytest.mark.parametrize(("a_scale", "b_scale"), GIVEN)
def test_scales_multiply_once(a_scale: Any, b_scale: Any) -> None:
    given, s = {"a_scale": a_scale, "b_scale": b_scale}, factor(a_scale, b_scale)
    a, b = drawn("float32", 5, 70), drawn("float32", 70, 33, seed=1)
    assert_bits(sb.matmul(a, b, **given), reference(a, b, scale=s))
    x, y, bias = drawn("uint8", 5, 70), drawn("int8", 70, 33, seed=1), drawn("float32", 33, seed=3)
    t = integers(x, y, 3, -7).astype(F32)
    given |= {"a_zero_point": 3, "b_zero_point": -7}
    assert_bits(sb.matmul(x, y, **given, alpha=0.7, bias=bias), t * s * F32(0.7) + bias)
    assert_bits(sb.matmul(x, sb.pack(y, left="uint8"), **given), t * s)


def test_scales_of_batches_vectors_and_other_formats() -> None:
    a, b = drawn("bfloat16", 3, 5, 40), drawn("bfloat16", 40, 30, seed=1)
    sa, sb_ = scales(3, 5), scales(30)
    due = reference(a, b, scale=sa[..., None] * sb_)
    assert_bits(sb.matmul(a, b, a_scale=sa, b_scale=sb_), due.astype(ml_dtypes.bfloat16))
    assert_bits(sb.matmul(a, b, a_scale=sa, b_scale=sb_, out_dtype="float32"), due)
    assert_bits(sb.matmul(a[0, 0], b, b_scale=sb_, out_dtype="float32"), reference(a[0, :1], b, scale=sb_)[0])
    assert_bits(
        sb.matmul(a, b[:, 0], a_scale=sa, out_dtype="float32"), reference(a, b[:, :1], scale=sa[..., None])[..., 0]
    )
    x, y = drawn("float64", 4, 20), drawn("float64", 20, 6)
    wide = np.full(6, 0.1)
    assert_bits(sb.matmul(x, y, b_scale=wide, a_scale=0.1), reference(x, y, scale=0.1 * wide))
    many = drawn("int8", 2, 40, 9), scales(2, 9)
    got = sb.matmul(drawn("int8", 5, 40), many[0], b_scale=many[1])
    assert_bits(got, integers(drawn("int8", 5, 40), many[0]).astype(F32) * many[1][:, None, :])


def test_scales_that_are_not_finite_follow_the_multiplication() -> None:
    a, b = np.ones((2, 3), np.int8), np.zeros((3, 2), np.int8)
    b[:, 1] = 1
    with np.errstate(all="ignore"):
        due = np.array([[np.nan, np.inf]], F32).repeat(2, 0)
        due[np.isnan(due)] = np.uint32(0x7FC00000).view(F32)
    assert_bits(sb.matmul(a, b, a_scale=float("inf")), due)
    assert_bits(sb.matmul(a, b, a_scale=1e30, b_scale=1e30), due)
    assert_bits(sb.matmul(a, b, a_scale=-0.0), np.array([[-0.0, -0.0]], F32).repeat(2, 0))


def test_scales_that_cannot_be_are_refused() -> None:
    whole = np.ones((2, 2), np.int8)
    cases: list[tuple[dict[str, Any], type[Exception], str]] = [
        (
            {"b_scale": np.ones((1, 2, 2), F32)},
            sb.ShapeError,
            (
                "matmul: b_scale shape is (1, 2, 2), must be [], [2] or [1, 2], or [blocks, 2] with b_group=; pass one "
                "for all, or one for each column of b"
            ),
        ),
        (
            {"a_scale": np.ones((1, 2), F32)},
            sb.ShapeError,
            (
                "matmul: a_scale shape is (1, 2), must be [], [2] or [2, 1], or [2, blocks] with a_group=; exchange "
                "its last two axes for one for each row of a"
            ),
        ),
        (
            {"a_scale": np.ones(3, F32)},
            sb.ShapeError,
            (
                "matmul: a_scale shape is (3,), must be [], [2] or [2, 1], or [2, blocks] with a_group=; pass one for "
                "all, or one for each row of a"
            ),
        ),
        (
            {"a_scale": np.ones(2)},
            sb.DTypeError,
            "matmul: a_scale dtype is float64, must be float32; convert it first",
        ),
        (
            {"a_scale": 0.5, "out_dtype": "int32"},
            sb.OptionError,
            "matmul: a_scale or b_scale is given for int32, must be left out; pass out_dtype='float32'",
        ),
    ]
    for options, kind, text in cases:
        with pytest.raises(kind) as caught:
            sb.matmul(whole, whole, **options)
        assert str(caught.value) == text
    scale = np.ones(2, F32)
    with pytest.raises(sb.LayoutError, match="matmul: out memory is that of an operand, must be its own"):
        sb.matmul(whole[0], whole, b_scale=scale, out=scale)


def requantized(acc: Array, s_a: Any, s_b: Any, s_y: Any, zero: Any, kind: str) -> Array:
    """By fractions; s_a against rows."""
    left, *others = (np.asarray(x, F32) for x in (s_a, s_b, s_y))
    return exact.requantize(acc, left[..., None] if left.ndim else left, *others, np.asarray(zero, kind))


def test_requantised_products_of_every_form() -> None:
    x, y = drawn("uint8", 3, 5, 70), drawn("int8", 70, 33, seed=1)
    za, zb = drawn("uint8", 3, 5), drawn("int8", 33)
    acc = integers(x, y, za, zb)
    given = {"a_zero_point": za, "b_zero_point": zb, "a_scale": 0.02, "b_scale": 0.01}
    bias = np.random.default_rng(0).integers(-(2**31), 2**31, 33).astype(np.int32)
    bias[:20] //= 1 << 17
    due = requantized(acc + bias, 0.02, 0.01, 1.5, 200, "uint8")
    options = {**given, "bias": bias, "out_scale": 1.5, "out_zero_point": 200, "out_dtype": "uint8"}
    assert_bits(sb.matmul(x, y, **options), due)
    assert_bits(sb.matmul(x, sb.pack(y, left="uint8"), **options), due)
    assert_bits(sb.matmul(x, y, **options, plan=sb.plan_matmul(x, y, **options)), due)
    out = np.empty((3, 33, 5), np.uint8).swapaxes(1, 2)
    assert sb.matmul(x, y, **options, out=out) is out
    assert_bits(out.copy(), due)
    one = sb.matmul(x[0, 0], y, a_scale=0.02, b_scale=scales(33), out_scale=1.5)
    assert_bits(one, requantized(integers(x[0, :1], y), 0.02, scales(33), 1.5, 0, "int8")[0])
    column = sb.matmul(x[0], y[:, 0], a_scale=scales(5), b_scale=0.5, out_scale=1.5)
    assert_bits(column, requantized(integers(x[0], y[:, :1]), scales(5), 0.5, 1.5, 0, "int8")[:, 0])
    nothing = sb.matmul(x[0, :, :0], y[:0], a_scale=0.02, b_scale=0.01, out_scale=1.5, out_zero_point=-7)
    assert_bits(nothing, np.full((5, 33), -7, np.int8))
    # Sums beyond int32, and more than one block of K.
    long = np.full((2, 33100), 255, np.uint8), np.full((33100, 20), 255, np.uint8)
    long[1][::3, 4] = 7
    wide = sb.matmul(*long, a_scale=0.02, b_scale=1e-4, out_scale=50.0)
    assert_bits(wide, requantized(integers(*long), 0.02, 1e-4, 50.0, 0, "int8"))
    assert len(np.unique(wide)) == 2


def in_seven_bits(*shape: int) -> Array:
    """int8 of which two products with uint8 fit int16; ONNX Runtime saturates others on processors without VNNI."""
    return drawn("int8", *shape, seed=1) // np.int8(2)


def test_requantised_products_beside_onnxruntime() -> None:
    """Where the scales' quotient is a power of two, its float32 arithmetic is exact too."""
    onnx, ort = pytest.importorskip("onnx"), pytest.importorskip("onnxruntime")
    helper, kinds = onnx.helper, onnx.TensorProto
    names = ["a", "a_scale", "a_zero", "b", "b_scale", "b_zero", "y_scale", "y_zero"]
    x, y = drawn("uint8", 30, 40), in_seven_bits(40, 20)
    feeds = dict(zip(names, (
        x, F32(0.03), np.uint8(100), y, F32(0.5), np.int8(-3), F32(0.03 * 32), np.uint8(130)
    ), strict=True))  # fmt: skip
    types = {np.dtype("uint8"): kinds.UINT8, np.dtype("int8"): kinds.INT8, np.dtype("float32"): kinds.FLOAT}
    inputs = [helper.make_tensor_value_info(n, types[v.dtype], v.shape) for n, v in feeds.items()]
    node = helper.make_node("QLinearMatMul", names, ["y"])
    result = helper.make_tensor_value_info("y", kinds.UINT8, [30, 20])
    graph = helper.make_graph([node], "g", inputs, [result])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (due,) = session.run(None, {n: np.asarray(v) for n, v in feeds.items()})
    got = sb.matmul(
        x, y, a_scale=0.03, a_zero_point=100, b_scale=0.5, b_zero_point=-3, out_scale=F32(0.03 * 32),
        out_zero_point=130, out_dtype="uint8",
    )  # fmt: skip
    assert_bits(got, due)
    assert len(np.unique(got)) > 100


def requantising() -> gemm.Contraction:
    """int8 [5, 39] beside uint8 [39, 14], scales of rows and of columns, to int8."""
    lying = gemm.Matrix(39, 1, (), dtypes.int8), gemm.Matrix(14, 1, (), dtypes.uint8)
    left = gemm.Side(lying[0], gemm.Shared(gemm.Matrix(1, 0), gemm.LINE))
    right = gemm.Side(lying[1], gemm.Shared(gemm.Matrix(0, 1), gemm.LINE))
    last = gemm.Shared(gemm.Matrix(0, 0)), gemm.Shared(gemm.Matrix(0, 0, (), dtypes.int8))
    result = gemm.Side(gemm.Matrix(14, 1, (), dtypes.int8), *last)
    epilogue, sources = gemm.requantized(total=dtypes.int32, a=left, b=right, out=result)
    return contraction(5, 14, 39, left, right, result, (), epilogue, sources)


@pytest.mark.parametrize("row", AARCH64_PRODUCT_ROWS, ids=lambda row: row.name)
def test_requantised_products_on_aarch64(row: Any) -> None:
    x, y, out = drawn("int8", 5, 39), drawn("uint8", 39, 14, seed=1), np.zeros((5, 14), np.int8)
    s_a, s_b, s_y, zero = scales(5), scales(14), np.array(20, F32), np.array(-5, np.int8)
    aarch64.run_plan(gemm.plan(requantising(), row, 1), [x, y, zero, s_a, s_b, s_y, out])
    assert_bits(out, requantized(integers(x, y), s_a, s_b, s_y, zero, "int8"))


def test_scales_of_columns_are_divided_once_for_all_rows() -> None:
    avx512 = next(row for row in PRODUCT_ROWS if row.name == "avx512")
    text = llvm.emit(gemm.plan(requantising(), avx512, 1, form="fused").steps[-1].spec)
    (finish,) = re.findall(r"^define [^\n]*@finish\(.*?^}", text, re.MULTILINE | re.DOTALL)
    blocks = re.split(r"^\w+:$", finish, flags=re.MULTILINE)
    of_float = [block for block in blocks if "fdiv <16 x float>" in block]
    of_rows = [block for block in blocks if "load <16 x i32>" in block]
    assert of_float
    assert of_rows
    assert not any(block in of_rows for block in of_float)


def test_what_cannot_be_requantised_is_refused() -> None:
    whole, half = np.ones((2, 2), np.int8), np.ones((2, 2), F32)
    both = {"a_scale": 0.5, "b_scale": 0.5}
    cases: list[tuple[Array, dict[str, Any], type[Exception], str]] = [
        (
            half,
            {**both, "out_scale": 1.0},
            sb.OptionError,
            "matmul: out_scale is given for float32 and float32, must be left out; pass integers, or a_dtype",
        ),
        (
            whole,
            {"a_scale": 0.5, "out_scale": 1.0},
            sb.OptionError,
            "matmul: out_scale is given without both, must be given with a_scale and b_scale; pass 1.0 for none",
        ),
        (
            whole,
            {**both, "out_zero_point": 1},
            sb.OptionError,
            "matmul: out_zero_point is given without out_scale, must be left out; pass out_scale too",
        ),
        (
            whole,
            {**both, "out_scale": 1.0, "out_dtype": "int4"},
            sb.OptionError,
            "matmul: out_dtype is int4, must be int8 or uint8; leave out_scale out for another",
        ),
        (
            whole,
            {**both, "out_scale": 1.0, "out_zero_point": 128},
            sb.OptionError,
            "matmul: out_zero_point is 128, must be within [-128, 127], as for int8; pass one that the format holds",
        ),
        (
            whole,
            {**both, "out_scale": np.ones((2, 2), F32)},
            sb.ShapeError,
            (
                "matmul: out_scale shape is (2, 2), must be [], [2] or [1, 2]; pass one for all, or one for each "
                "column of the result"
            ),
        ),
        (
            whole,
            {**both, "out_scale": 1.0, "bias": np.ones(2, F32)},
            sb.DTypeError,
            "matmul: bias dtype is float32, must be int32; convert it first",
        ),
        (
            whole,
            {**both, "out_scale": 1.0, "alpha": 0.5},
            sb.OptionError,
            "matmul: alpha is given beside out_scale, must be left out; quantise the result instead",
        ),
        (
            whole,
            {**both, "out_scale": 1.0, "activation": "relu"},
            sb.OptionError,
            "matmul: activation is given beside out_scale, must be left out; quantise the result instead",
        ),
    ]
    for operand, options, kind, text in cases:
        with pytest.raises(kind) as caught:
            sb.matmul(operand, operand, **options)
        assert str(caught.value) == text
    zero = np.ones(2, np.int8)
    with pytest.raises(sb.LayoutError):
        sb.matmul(whole[0], whole, **both, out_scale=1.0, out_zero_point=zero, out=zero)


@pytest.mark.parametrize("row", PRODUCT_ROWS, ids=lambda row: row.name)
def test_quantised_products_on_every_row(row: Any) -> None:
    with sb.use_isa(row):
        x, y, s_a, s_b = map(
            guard.array, (drawn("bfloat16", 5, 70), drawn("int8", 70, 49), scales(5) * F32(0.1), scales(49))
        )
        q = exact.quantize(x.astype(F32), s_a[:, None], np.array(-3, np.int8))
        due = integers(q, y, -3)
        first = {"a_dtype": "int8", "a_scale": s_a, "a_zero_point": -3}
        assert_bits(sb.matmul(x, y, **first, b_scale=s_b), due.astype(F32) * factor(s_a, s_b))
        last = {"b_scale": s_b, "out_scale": scales(49, seed=2) * F32(99), "out_zero_point": drawn("int8", 49)}
        got = sb.matmul(x, y, **first, **last, out=guard.empty((5, 49), np.int8))
        assert_bits(got, requantized(due, s_a, *last.values(), "int8"))
        # One column turns the product around.
        x, y = drawn("int8", 13, 40), drawn("uint8", 40, 1)
        got = sb.matmul(x, y, a_scale=scales(13), b_scale=0.5, out_scale=99.0, b_zero_point=200)
        assert_bits(got, requantized(integers(x, y, 0, 200), scales(13), 0.5, 99, 0, "int8"))


def test_products_of_what_is_quantised_in_every_form() -> None:
    x = drawn("float32", 3, 5, 70)
    x[0, 0, :4] = np.nan, np.inf, -np.inf, 1e30
    zeros, scale = drawn("uint8", 3, 5), scales(3, 5) * F32(0.1)
    q = exact.quantize(x, scale[..., None], zeros[..., None])
    y, b_zero = drawn("int8", 70, 33, seed=1), drawn("int8", 33)
    due = integers(q, y, zeros, b_zero).astype(np.int32)
    given = {"a_dtype": "uint8", "a_scale": scale, "a_zero_point": zeros, "b_zero_point": b_zero}
    for right in (y, np.asfortranarray(y), sb.pack(y, left="uint8")):
        for left in (x, np.ascontiguousarray(x.swapaxes(0, 2)).swapaxes(0, 2), x[:, ::-1].copy()[:, ::-1]):
            assert_bits(sb.matmul(left, right, **given, out_dtype="int32"), due)
        factor = np.asarray(scale[..., None] * F32(0.5))
        assert_bits(sb.matmul(x, right, **given, b_scale=0.5), due.astype(F32) * factor)
    plan = sb.plan_matmul(x, y, **given)
    assert "a: float32 quantised to uint8, 1050 bytes of the workspace" in str(plan)
    assert_bits(sb.matmul(x, y, **given, plan=plan), due.astype(F32) * scale[..., None])
    # A scale for each batch of an operand that repeats; a vector; few columns, which turn the product around.
    many = sb.matmul(x[:1], np.stack([y, y[::-1]]), a_dtype="int8", a_scale=scales(2, 5), out_dtype="int32")
    q = exact.quantize(x[:1], scales(2, 5)[..., None], np.array(0, np.int8))
    assert_bits(many, integers(q, np.stack([y, y[::-1]])).astype(np.int32))
    whole = integers(exact.quantize(x[1], np.array(0.03, F32), np.array(0, np.int8)), y)
    options = {"a_dtype": "int8", "a_scale": 0.03, "out_dtype": "int32"}
    assert_bits(sb.matmul(x[1, 2], y, **options), whole[2].astype(np.int32))
    assert_bits(sb.matmul(x[1], y[:, :1], **options), whole[:, :1].astype(np.int32))
    for m, n, k in ((0, 3, 4), (3, 0, 4), (3, 4, 0)):
        empty = sb.matmul(np.ones((m, k), F32), np.ones((k, n), np.int8), **options)
        assert_bits(empty, np.zeros((m, n), np.int32))
    shared = {"b_scale": scales(5, 33), "b_group": 16}
    q = exact.quantize(x[1], scale[1][:, None], np.array(0, np.int8))
    blocks = sb.matmul(x[1], y, a_dtype="int8", a_scale=scale[1], **shared)
    assert_bits(blocks, sb.matmul(q, y, a_scale=scale[1], **shared))
    nibbles = sb.Tensor.zeros((70, 33), "int4")
    assert_bits(sb.matmul(x[1], nibbles, **options), np.zeros((5, 33), np.int32))


def test_quantised_products_beside_onnxruntime() -> None:
    onnx, ort = pytest.importorskip("onnx"), pytest.importorskip("onnxruntime")
    helper, kinds = onnx.helper, onnx.TensorProto
    x, y = drawn("float32", 30, 40), in_seven_bits(40, 20)
    x[0, :3] = [1e9, -1e9, 0.5 * 0.03]
    feeds = {"x": x, "s": np.array(0.03, F32), "z": np.array(100, np.uint8), "y": y, "yz": np.array(-3, np.int8)}
    types = {np.dtype("uint8"): kinds.UINT8, np.dtype("int8"): kinds.INT8, np.dtype("float32"): kinds.FLOAT}
    inputs = [helper.make_tensor_value_info(n, types[v.dtype], v.shape) for n, v in feeds.items()]
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        helper.make_node("MatMulInteger", ["q", "y", "z", "yz"], ["out"]),
    ]
    graph = helper.make_graph(nodes, "g", inputs, [helper.make_tensor_value_info("out", kinds.INT32, [30, 20])])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (due,) = session.run(None, feeds)
    given = {"a_dtype": "uint8", "a_scale": 0.03, "a_zero_point": 100, "b_zero_point": -3}
    assert_bits(sb.matmul(x, y, **given, out_dtype="int32"), due)


def test_what_cannot_be_quantised_is_refused() -> None:
    half, whole = np.ones((2, 2), F32), np.ones((2, 2), np.int8)
    cases: list[tuple[Array, Array, dict[str, Any], type[Exception], str]] = [
        (
            whole,
            whole,
            {"a_scale": 1.0},
            sb.DTypeError,
            "matmul: a dtype is int8, must be float32 or bfloat16 or float16 beside a_dtype; leave a_dtype out",
        ),
        (
            half,
            half,
            {"a_scale": 1.0},
            sb.DTypeError,
            "matmul: b dtype is float32, must be one that multiplies with int8; leave a_dtype out",
        ),
        (
            half,
            whole,
            {},
            sb.OptionError,
            "matmul: a_scale is None, must be given beside a_dtype; pass what one unit of the integers stands for",
        ),
        (
            half,
            whole,
            {"a_scale": 1.0, "a_dtype": "int4"},
            sb.OptionError,
            "matmul: a_dtype is int4, must be int8 or uint8; leave it out for another",
        ),
        (
            half,
            whole,
            {"a_scale": 1.0, "b_scale": 1.0, "out_dtype": "int32"},
            sb.OptionError,
            "matmul: a_scale or b_scale is given for int32, must be left out; pass out_dtype='float32'",
        ),
    ]
    for a, b, options, kind, text in cases:
        with pytest.raises(kind) as caught:
            sb.matmul(a, b, **{"a_dtype": "int8", **options})
        assert str(caught.value) == text
