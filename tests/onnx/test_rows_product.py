"""QLinearMatMul with a scale and zero point for each row and column: the rational rounded once, in every shape."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import protos
import pytest
from onnx import ModelProto, helper

from samebits import onnx
from samebits.errors import UnsupportedModelError
from samebits.runtime import cpu, reference

Array = np.ndarray[Any, np.dtype[Any]]
M, K, N = 3, 7, 4


def drawn(kind: Any, *shape: int) -> Array:
    limits = np.iinfo(kind)
    return np.asarray(np.random.default_rng([*shape]).integers(limits.min, limits.max + 1, shape)).astype(kind)


def scales(*shape: int) -> Array:
    return np.asarray(np.random.default_rng([1, *shape]).uniform(0.01, 0.1, shape)).astype(np.float32)


def operands(a: Array, b: Array, left: tuple[int, ...], right: tuple[int, ...]) -> list[Array]:
    """Those of the node, with scales and zero points of these shapes."""
    of_a, of_b = [scales(*left), drawn(a.dtype, *left)], [scales(*right), drawn(b.dtype, *right)]
    return [a, *of_a, b, *of_b, np.array(0.37, np.float32), np.array(9, np.uint8)]


def exact(given: list[Array]) -> Array:
    """The answer in fractions."""
    a, a_scale, a_zero, b, b_scale, b_zero, scale, zero = given
    if a_scale.ndim == 1 and a_scale.size > 1:
        a_scale, a_zero = a_scale[:, None], a_zero[:, None]
    x, y = (z.astype(object) for z in (a.astype(int) - a_zero.astype(int), b.astype(int) - b_zero.astype(int)))
    total = x @ y
    factors = np.broadcast_arrays(total, a_scale.reshape(a_scale.shape or (1, 1)), b_scale.reshape(b_scale.shape or 1))
    found = [
        min(
            max(round(Fraction(t) * Fraction(float(s)) * Fraction(float(u)) / Fraction(float(scale))) + int(zero), 0),
            255,
        )
        for t, s, u in zip(*(factor.ravel() for factor in factors), strict=True)
    ]
    return np.array(found, np.uint8).reshape(total.shape)


def answer(given: list[Array]) -> Array:
    """By the session, which is the reference."""
    program, feed = onnx.load(model(given)), dict(zip(NAMES, given, strict=True))
    ours: Array = cpu.prepare(program, threads=1).run(feed)["y"]
    assert ours.tobytes() == np.ascontiguousarray(reference.run(program, feed)["y"]).tobytes()
    return ours


NAMES = ("a", "a_scale", "a_zero", "b", "b_scale", "b_zero", "scale", "zero")


def model(given: list[Array], fixed: tuple[int, ...] = ()) -> ModelProto:
    """One node; `fixed` operands are constants."""
    inputs = [protos.value(name, x.dtype, x.shape) for name, x in zip(NAMES, given, strict=True)]
    known = {NAMES[i]: given[i] for i in fixed}
    node = helper.make_node("QLinearMatMul", NAMES, ["y"])
    return protos.model([node], [x for x in inputs if x.name not in known], [protos.value("y", np.uint8, None)], known)


@pytest.mark.parametrize("kinds", [(np.uint8, np.int8), (np.int8, np.uint8), (np.uint8, np.uint8)], ids=str)
@pytest.mark.parametrize(("left", "right"), [
    ((), ()), ((1,), (1,)), ((M,), ()), ((), (N,)), ((M,), (N,)), ((M, 1), (1, N)), ((1, 1), (1, 1)),
])  # fmt: skip
def test_matrices(left: tuple[int, ...], right: tuple[int, ...], kinds: tuple[Any, Any]) -> None:
    given = operands(drawn(kinds[0], M, K), drawn(kinds[1], K, N), left, right)
    assert np.array_equal(answer(given), exact(given))


@pytest.mark.parametrize(("left", "right"), [((2, M, 1), (2, 1, N)), ((1, M, 1), (1, 1, N)), ((2, M, 1), ())])
def test_batches_have_a_row_of_each(left: tuple[int, ...], right: tuple[int, ...]) -> None:
    given = operands(drawn(np.uint8, 2, M, K), drawn(np.int8, 2, K, N), left, right)
    assert np.array_equal(answer(given), exact(given))


def test_onnxruntime_has_the_same_columns() -> None:
    """It has no rows, and rounds in float32 more than once."""
    given = operands(drawn(np.uint8, M, K), drawn(np.int8, K, N), (), (N,))
    proto = model(given, (4, 5))
    session = protos.session(proto)
    (theirs,) = session.run(None, {NAMES[i]: given[i] for i in (0, 1, 2, 3, 6, 7)})
    assert np.abs(theirs.astype(int) - exact(given).astype(int)).max() <= 1


@pytest.mark.parametrize("place", [1, 2])
def test_other_shapes_are_refused_by_name(place: int) -> None:
    given = operands(drawn(np.uint8, 2, M, K), drawn(np.int8, K, N), (), ())
    given[place] = np.broadcast_to(given[place], (M, 1))
    with pytest.raises(UnsupportedModelError, match=rf"input {place} is .*\[3, 1\], must be one number or one a line"):
        onnx.load(model(given))
