"""Comparisons, truths and choices, eagerly: what NumPy and torch say, in every dtype that they take."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import samebits as sb
from samebits.fusion import DataType, FusionDefinition
from samebits.kernels import functions
from samebits.ops import elementwise

KINDS = ("float32", "float64", "int64", "int32", "int16", "int8", "uint64", "uint32", "uint16", "uint8")
COMPARISONS = ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal")


def some(kind: str, *shape: int, seed: int = 0) -> np.ndarray:
    """Numbers of which many are equal, with what compares oddly among them."""
    random = np.random.default_rng(seed)
    x = random.integers(0 if kind.startswith("u") else -2, 3, shape).astype(kind)
    if kind.startswith("float"):
        odd = np.array([np.nan, np.inf, -np.inf, -0.0, 0.0, 1e-45], kind)
        x = np.where(random.random(shape) < 0.4, random.choice(odd, shape), x)
    return x


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", COMPARISONS)
def test_comparisons(name: str, kind: str) -> None:
    for shapes in ([(37,), (37,)], [(5, 1), (7,)], [(0, 3), (3,)], [(), (4,)]):
        x, y = (some(kind, *shape, seed=i) for i, shape in enumerate(shapes))
        made = getattr(sb, name)(x, y)
        assert made.dtype == bool
        assert np.array_equal(made, getattr(np, name)(x, y))
    x, y = torch.from_numpy(some("float32", 9)), torch.from_numpy(some("float32", 9, seed=1))
    due = {"equal": torch.eq, "not_equal": torch.ne, "less": torch.lt, "less_equal": torch.le}
    compared = getattr(sb, name)(x, y)
    assert isinstance(compared, torch.Tensor)
    if name in due:
        assert torch.equal(compared, due[name](x, y))


def test_a_number_beside_an_array() -> None:
    x = np.array([1, 2, 3], np.int8)
    assert sb.less(x, 2).tolist() == [True, False, False]
    assert sb.greater(2.5, x.astype(np.float32)).tolist() == [True, True, False]
    with pytest.raises(sb.DTypeError, match=r"equal: y is 300, must be within \[-128, 127\]"):
        sb.equal(x, 300)


@pytest.mark.parametrize(("number", "due"), [(2**60 + 2**36 + 1, 2**60 + 2**37), (2**60 + 2**36 - 1, 2**60)])
def test_a_whole_number_that_float64_does_not_have_is_rounded_once_to_the_format_of_the_array(
    number: int, due: int
) -> None:
    """As `cast` rounds an array of int64: by way of float64 it would be the middle of two float32."""
    zero = np.zeros(1, np.float32)
    assert sb.cast(np.array([number]), "float32") == due
    assert sb.add(zero, number) == sb.fill(zero.copy(), number) == due
    assert sb.maximum(zero - np.inf, -number) == -due
    assert sb.Tensor.full((), number, dtype="float32").item() == due
    assert sb.uniform(number, number, (1,), seed=0) == due
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1], contiguity=True, dtype=DataType.Float)
        constant, given = fd.define_scalar(number, DataType.Float), fd.define_scalar(DataType.Float)
        fd.add_output(fd.ops.add(x, constant))
        fd.add_output(fd.ops.add(x, given))
    assert [y.item() for y in fd.execute([zero, number])] == [due, due]


@pytest.mark.parametrize("name", ["logical_and", "logical_or", "logical_xor"])
def test_truths(name: str) -> None:
    x, y = np.array([0, 0, 1, 1], bool), np.array([0, 1, 0, 1], bool)
    assert np.array_equal(getattr(sb, name)(x, y), getattr(np, name)(x, y))
    assert np.array_equal(sb.logical_not(x), ~x)
    with pytest.raises(sb.DTypeError, match=f"{name}: x dtype is int8, must be bool"):
        getattr(sb, name)(x.astype(np.int8), y)


def test_is_nan_and_round() -> None:
    x = np.array([np.nan, 0.5, 1.5, -0.5, np.inf, 2.5], np.float32)
    assert np.array_equal(sb.isnan(x), np.isnan(x))
    assert np.array_equal(sb.round(x), np.rint(x), equal_nan=True)
    assert np.signbit(sb.round(x))[3]


@pytest.mark.parametrize("kind", [*KINDS, "bool", "float16"])
def test_where_copies_bits(kind: str) -> None:
    holds = np.random.default_rng(3).random((5, 7)) < 0.5
    x, y = some(kind, 5, 7), some(kind, 7, seed=1)
    made = sb.where(holds, x, y)
    assert made.dtype == x.dtype
    assert made.tobytes() == np.where(holds, x, y).tobytes()
    nan = np.array([0x7FC01234, 0xFFFFFFFF], np.uint32).view(np.float32)
    assert sb.where(np.array([True, False]), nan, nan).tobytes() == nan.tobytes()


def test_where_with_numbers_and_out() -> None:
    holds, x = np.array([True, False, True]), np.array([1, 2, 3], np.int16)
    assert sb.where(holds, x, -1).tolist() == [1, -1, 3]
    assert sb.where(holds, 0, x).tolist() == [0, 2, 0]
    assert sb.where(holds, x, 0, out=x) is x
    assert x.tolist() == [1, 0, 3]


INTEGERS = [kind for kind in KINDS if not kind.startswith("float")]
OF_INTEGERS = {
    "bitwise_and": np.bitwise_and, "bitwise_or": np.bitwise_or, "bitwise_xor": np.bitwise_xor,
    "remainder": np.remainder, "fmod": np.fmod,
}  # fmt: skip


@pytest.mark.parametrize("kind", INTEGERS)
def test_integers(kind: str) -> None:
    limits = np.iinfo(kind)
    ends = np.array([limits.min, limits.min + 1, 0, 1, 2, 3, 7, limits.max // 3, limits.max - 1, limits.max], kind)
    x, y = (z.ravel() for z in np.meshgrid(ends, ends))
    with np.errstate(all="ignore"):
        for name, due in OF_INTEGERS.items():
            assert np.array_equal(getattr(sb, name)(x, y), due(x, y)), name
    assert np.array_equal(sb.bitwise_invert(x), ~x)
    assert np.array_equal(sb.sign(x), np.sign(x))
    wide = [(int(a), int(b)) for a, b in zip(x, y, strict=True)]
    exact = [0 if b == 0 else (abs(a) // abs(b)) * (-1 if (a < 0) != (b < 0) else 1) for a, b in wide]
    assert sb.quotient(x, y).tolist() == [limits.min if q == -limits.min != 0 else q for q in exact]


@pytest.mark.parametrize("kind", INTEGERS)
def test_shifts(kind: str) -> None:
    width = np.dtype(kind).itemsize * 8
    x = np.array([1, 3, 5, np.iinfo(kind).max, np.iinfo(kind).min], kind)
    for count in (0, 1, width // 2, width - 1):
        y = np.full(5, count, kind)
        assert np.array_equal(sb.bitwise_left_shift(x, y), x << y)
        assert np.array_equal(sb.bitwise_right_shift(x, y), x >> y)
    beyond = np.full(5, min(width, np.iinfo(kind).max), kind)
    if width <= np.iinfo(kind).max:
        assert not sb.bitwise_left_shift(x, beyond).any()


@pytest.mark.parametrize("kind", ["float32", "float64", "float16"])
def test_integral_values(kind: str) -> None:
    with np.errstate(all="ignore"):
        x = np.array([-2.5, -0.5, -0.0, 0.0, 0.3, 1.0, 1e9, -1e9, np.inf, -np.inf, np.nan, 1e-40]).astype(kind)
    for name, due in (("floor", np.floor), ("ceil", np.ceil), ("round", np.rint), ("sign", np.sign)):
        made, expected = getattr(sb, name)(x), due(x)
        assert np.array_equal(made, expected, equal_nan=True), name
        if name != "sign":
            assert np.array_equal(np.signbit(made[:10]), np.signbit(expected[:10])), name


def test_fma_rounds_once() -> None:
    x = np.array([1 + 2.0**-23, 3.0], np.float32)
    assert sb.fma(x, x, -np.ones(2, np.float32)).tolist() == [np.float32(2.0**-22 + 2.0**-46).item(), 8.0]


def test_every_function_of_an_element_can_be_called() -> None:
    """But those of parts of products and of casts, which their functions take."""
    within = {"copy", "cast", "bitcast", "quantize", "requantize", "requantize_sum", "where"}
    text = inspect.getsource(elementwise)
    assert [row.name for row in functions.ROWS if f'"{row.name}"' not in text and row.name not in within] == []


REFUSED: list[tuple[Callable[[], Any], type[Exception], str]] = [
    (lambda: sb.where(np.ones(3), 1.0, 2.0), sb.DTypeError, "where: condition dtype is float64, must be bool"),
    (lambda: sb.where(np.ones(3, bool), np.ones(3, np.int8), np.ones(3, np.int16)), sb.DTypeError,
     "where: y dtype is int16, must be int8"),
    (lambda: sb.where(np.ones(3, bool), np.ones(4), 1.0), sb.ShapeError, "where: x shape is"),
    (lambda: sb.where(np.ones(1, bool), np.ones(4), np.ones(3)), sb.ShapeError, "where: y shape is"),
    (lambda: sb.less(np.ones(3), np.ones(4)), sb.ShapeError, "less: y shape is"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "error", "text"), REFUSED)
def test_what_is_refused(call: Callable[[], Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        call()


def test_arrays_are_given_by_position_and_help_says_so() -> None:
    assert (
        str(inspect.signature(sb.add)) == "(x: Any, y: Any, /, *, out: Any = None, threads: 'int | None' = None) -> Any"
    )
    for call, name in ((lambda: sb.add(x1=1, x2=2), "x1"), (lambda: sb.add(1.0, 2.0, dtype="float32"), "dtype")):
        with pytest.raises(TypeError) as error:
            call()
        assert str(error.value) == f"add() takes x, y by position, out= and threads= by name, got {name}="
