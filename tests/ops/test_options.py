"""Numbers among the options: Python calls True one, no option does."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import samebits as sb

F32 = np.float32
X, W, INTEGERS = np.ones((2, 4), F32), np.ones((4, 2), F32), np.ones((4, 2), np.int8)

NUMBERS: dict[str, Callable[[Any], object]] = {
    "matmul: alpha": lambda x: sb.matmul(X, W, alpha=x),
    "matmul: beta": lambda x: sb.matmul(X, W, beta=x),
    "matmul: a_scale": lambda x: sb.matmul(X, W, a_scale=x),
    "matmul: b_scale": lambda x: sb.matmul(X, INTEGERS, b_scale=x),
    "matmul: out_scale": lambda x: sb.matmul(INTEGERS, INTEGERS.T, a_scale=1.0, b_scale=1.0, out_scale=x),
    "plan_matmul: a_scale": lambda x: sb.plan_matmul(X, W, a_scale=x),
    "linear: weight_scale": lambda x: sb.linear(X, INTEGERS.T, weight_scale=x),
    "layer_norm: eps": lambda x: sb.layer_norm(X, eps=x),
    "rms_norm: eps": lambda x: sb.rms_norm(X, eps=x),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_a_bool_is_no_number(name: str) -> None:
    for value in (True, np.True_, False):
        with pytest.raises(sb.OptionError) as error:
            NUMBERS[name](value)
        assert str(error.value) == f"{name} is {value!r}, must be a number; pass a float"
    assert all(NUMBERS[name](one) is not None for one in (1, 1.0, np.int64(1), np.float64(1)))


SCALES = ("matmul: a_scale", "matmul: b_scale", "matmul: out_scale", "linear: weight_scale")


@pytest.mark.parametrize("name", SCALES)
def test_bools_are_no_scales(name: str) -> None:
    with pytest.raises(sb.DTypeError) as error:
        NUMBERS[name](np.ones(2, bool))
    assert str(error.value).startswith(f"{name} dtype is bool, must be float32")


POINTS: dict[str, Callable[[Any], object]] = {
    "matmul: a_zero_point": lambda x: sb.matmul(INTEGERS, INTEGERS.T, a_zero_point=x),
    "matmul: b_zero_point": lambda x: sb.matmul(X, INTEGERS, b_zero_point=x),
    "matmul: out_zero_point": lambda x: sb.matmul(
        INTEGERS, INTEGERS.T, a_scale=1.0, b_scale=1.0, out_scale=1.0, out_zero_point=x
    ),
    "linear: weight_zero_point": lambda x: sb.linear(X, INTEGERS.T, weight_zero_point=x),
    "pack: zero_point": lambda x: sb.pack(INTEGERS, left="float32", zero_point=x),
}


@pytest.mark.parametrize("name", POINTS)
def test_a_bool_is_no_zero_point(name: str) -> None:
    for value in (True, np.True_, False):
        with pytest.raises(sb.OptionError) as error:
            POINTS[name](value)
        assert str(error.value) == f"{name} is {value!r}, must be an integer; pass an int"
    with pytest.raises(sb.DTypeError) as kind:
        POINTS[name](np.zeros(2, bool))
    assert str(kind.value) == f"{name} dtype is bool, must be int8; convert it first"
    assert POINTS[name](np.int64(1)) is not None


def test_a_bool_is_no_size_of_groups() -> None:
    scale = np.ones((4, 2), F32)
    calls: dict[str, Callable[[Any], object]] = {
        "matmul: b_group": lambda x: sb.matmul(X, INTEGERS, b_scale=scale, b_group=x),
        "linear: group": lambda x: sb.linear(X, INTEGERS.T, weight_scale=scale.T, group=x),
        "pack: group": lambda x: sb.pack(INTEGERS, left="float32", zero_point=INTEGERS, group=x),
    }
    for name, call in calls.items():
        for value in (True, np.True_):
            with pytest.raises(sb.OptionError) as error:
                call(value)
            assert str(error.value) == (
                f"{name} is {value!r}, must be an integer of at least 1; count the elements along K that share a scale"
            )


def test_a_bool_is_no_size_of_a_sum() -> None:
    for value in (True, np.True_):
        with pytest.raises(sb.OptionError) as chunk:
            sb.Spec(chunk=value)
        assert (
            str(chunk.value) == f"Spec: chunk is {value!r}, must be an int of at least 1; leave it at 128, which is sb1"
        )
        with pytest.raises(sb.OptionError) as segments:
            sb.Spec(segments=value)
        assert str(segments.value) == (
            f"Spec: segments is {value!r}, must be a power of two up to 1024; use 1, 2, 4 or 8"
        )


THREADS: dict[str, Callable[[Any], object]] = {
    "matmul": lambda x: sb.matmul(X, W, threads=x),
    "plan_matmul": lambda x: sb.plan_matmul(X, W, threads=x),
    "linear": lambda x: sb.linear(X, X, threads=x),
    "pack": lambda x: sb.pack(W, threads=x),
    "grouped_matmul": lambda x: sb.grouped_matmul(X, W[None], [2], threads=x),
    "grad_input": lambda x: sb.grad_input(X, W, threads=x),
    "grad_weight": lambda x: sb.grad_weight(X, X, threads=x),
    "grad_bias": lambda x: sb.grad_bias(X, threads=x),
    "exp": lambda x: sb.exp(X, threads=x),
    "cast": lambda x: sb.cast(X, "int8", threads=x),
    "softmax": lambda x: sb.softmax(X, threads=x),
    "layer_norm": lambda x: sb.layer_norm(X, threads=x),
    "copy": lambda x: sb.copy(X, threads=x),
}


@pytest.mark.parametrize("name", THREADS)
def test_a_bool_is_no_count_of_threads(name: str) -> None:
    for value in (True, np.True_):
        with pytest.raises(sb.OptionError) as error:
            THREADS[name](value)
        assert str(error.value) == (
            f"{name}: threads is {value!r}, must be an integer from 1 to 255; leave it out for every core"
        )


def test_what_is_for_exact_sums_is_refused_beside_blocks_by_name() -> None:
    blocks = {"b_scale": np.ones((2, 4), F32), "b_group": 1}
    given = "is given for int8 and int8 in blocks, must be left out"
    with pytest.raises(sb.OptionError) as error:
        sb.matmul(INTEGERS, INTEGERS.T, a_zero_point=1, **blocks)
    assert str(error.value) == f"matmul: a_zero_point {given}; subtract it before"
    with pytest.raises(sb.OptionError) as error:
        sb.matmul(INTEGERS, INTEGERS.T, a_scale=1.0, out_scale=1.0, **blocks)
    assert str(error.value) == f"matmul: out_scale {given}; leave b_group out"
