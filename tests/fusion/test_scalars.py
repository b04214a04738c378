"""Scalars beside tensors, and tensors written into inputs: the bits of the operations one by one, however they come."""

import ml_dtypes
import numpy as np
import pytest

from samebits.errors import FusionError
from samebits.fusion import DataType, FusionDefinition, execution

F32, F64 = np.float32, np.float64
# A number that rounding to float32 first would put on the middle of two bfloat16, and others that formats round.
NUMBERS = [
    1 + 2.0**-8 + 2.0**-40,
    1 + 2.0**-11 + 2.0**-40,
    0.1,
    1e300,
    -1e-300,
    1e-40,
    -0.0,
    float("inf"),
    float("nan"),
]


def defined(make, *dtypes):
    """A definition of tensors of one axis, and what `make` gives of them."""
    with FusionDefinition() as fd:
        xs = [fd.define_tensor(shape=[-1], contiguity=True, dtype=dtype) for dtype in dtypes]
        made = make(fd, *xs)
        if made is not None:
            fd.add_output(made)
    return fd


def rounded_once(number, dtype):
    """The float nearest to a number, ties to even, by its distance from all neighbours of a first guess."""
    guess = np.array(number).astype(dtype)
    if not np.isfinite(number) or not np.isfinite(guess.astype(F64)):
        return guess
    code = int(guess.view(f"u{guess.dtype.itemsize}"))
    near = [np.array(c, f"u{guess.dtype.itemsize}").view(dtype) for c in (code - 1, code, code + 1) if c >= 0]
    best = min(abs(float(x) - number) for x in near if np.isfinite(x.astype(F64)))
    (found, *tied) = [x for x in near if abs(float(x) - number) == best and np.signbit(x) == np.signbit(number)]
    return found if not tied or int(found.view(f"u{guess.dtype.itemsize}")) % 2 == 0 else tied[0]


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize(("dtype", "kind"), [
    (DataType.BFloat16, ml_dtypes.bfloat16), (DataType.Half, np.float16), (DataType.Float8_e5m2, ml_dtypes.float8_e5m2),
    (DataType.Float, F32),
])  # fmt: skip
def test_a_scalar_is_rounded_once_as_constant_as_input_and_as_cast(number, dtype, kind):
    with np.errstate(all="ignore"):
        due = np.multiply(F64(1), rounded_once(number, kind).astype(F64))
    one = np.ones(1, F64)
    ways = {
        "constant": (lambda fd, x: fd.ops.mul(x, fd.define_scalar(number, dtype)), []),
        "input": (lambda fd, x: fd.ops.mul(x, fd.define_scalar(dtype)), [number]),
        "cast constant": (lambda fd, x: fd.ops.mul(x, fd.ops.cast(fd.define_scalar(number), dtype)), []),
        "cast input": (lambda fd, x: fd.ops.mul(x, fd.ops.cast(fd.define_scalar(DataType.Double), dtype)), [number]),
    }
    for name, (make, given) in ways.items():
        fd = defined(make, DataType.Double)
        for _ in range(3):  # the later ones go straight to the table
            (found,) = fd.execute([one, *given])
            assert found.tobytes() == due.tobytes() or (np.isnan(due) and np.isnan(found[0])), name


@pytest.mark.parametrize("dtype", [DataType.Int8, DataType.UInt8, DataType.Int32, DataType.Int, DataType.Bool])
@pytest.mark.parametrize("number", [1e30, -1e30, float("nan"), float("inf"), 300.7, -2.5, 300, -1, 2**40 + 5])
def test_a_cast_of_a_constant_is_the_cast_of_an_input(number, dtype):
    source = DataType.Int if isinstance(number, int) else DataType.Double
    constant = defined(lambda fd, x: fd.ops.add(x, fd.ops.cast(fd.define_scalar(number, source), dtype)), DataType.Int)
    given = defined(lambda fd, x: fd.ops.add(x, fd.ops.cast(fd.define_scalar(source), dtype)), DataType.Int)
    zero = np.zeros(1, np.int64)
    assert constant.execute([zero])[0] == given.execute([zero, number])[0]


@pytest.mark.parametrize("number", [2**31, -(2**31) - 1, 2**70, 1e30, float("nan"), np.int64(2**31), np.str_("1")])
def test_a_number_that_a_format_does_not_hold_is_refused_each_time(number):
    fd = defined(lambda fd, x: fd.ops.add(x, fd.define_scalar(DataType.Int32)), DataType.Int32)
    x = np.zeros(1, np.int32)
    fd.execute([x, 1])
    for _ in range(2):
        with pytest.raises(FusionError, match=r"execute: .*, must be a number"):
            fd.execute([x, number])
    if not isinstance(number, np.generic):
        words = r"define_scalar: scalar is .*, must be a number that DataType.Int32 holds"
        with pytest.raises(FusionError, match=words):
            defined(lambda fd, x: fd.ops.add(x, fd.define_scalar(number, DataType.Int32)), DataType.Int32)


def test_a_scalar_that_decides_a_size_keeps_the_sign_of_its_zero():
    def make(fd, x):
        number = fd.define_scalar(DataType.Double)
        fd.add_output(fd.ops.full([fd.ops.add(fd.ops.cast(number, DataType.Int), 2)], number, DataType.Float))
        fd.add_output(fd.ops.neg(x))

    fd = defined(make, DataType.Float)
    for number in (0.0, -0.0, 0.0, -0.0):
        found, _ = fd.execute([np.zeros(1, F32), number])
        assert np.signbit(found).tolist() == [np.signbit(number)] * 2


def test_a_view_of_an_input_that_is_written_has_what_was_there():
    def make(fd, x):
        fd.add_output(fd.ops.add(x, 1.0), alias_input=x)
        fd.add_output(fd.ops.reshape(x, [2, 2]))
        fd.add_output(x)

    fd, x = defined(make, DataType.Float), np.arange(4, dtype=F32)
    for run in range(3):
        old = x.copy()
        view, same = fd.execute([x])
        np.testing.assert_array_equal(x, old + 1, f"run {run}")
        np.testing.assert_array_equal(view, old.reshape(2, 2))
        np.testing.assert_array_equal(same, old)


def test_inputs_are_exchanged_and_one_value_goes_into_two():
    def swap(fd, x, y):
        fd.add_output(x, alias_input=y)
        fd.add_output(y, alias_input=x)

    def both(fd, x, y):
        total = fd.ops.add(x, y)
        fd.add_output(total, alias_input=x)
        fd.add_output(total, alias_input=y)

    fd, x, y = defined(swap, DataType.Float, DataType.Float), np.ones(3, F32), np.zeros(3, F32)
    for run in range(3):
        fd.execute([x, y])
        assert (x[0], y[0]) == ((0, 1), (1, 0))[run % 2]
    fd, x, y = defined(both, DataType.Float, DataType.Float), np.ones(3, F32), np.full(3, 2, F32)
    fd.execute([x, y])
    assert (x.tolist(), y.tolist()) == ([3.0] * 3, [3.0] * 3)


def test_only_so_many_extents_are_known_to_have_run(monkeypatch):
    monkeypatch.setattr(execution, "_RUNS", 8)
    fd, x = defined(lambda fd, x: fd.ops.neg(x), DataType.Float), np.zeros(50, F32)
    for extent in range(1, 50):
        fd.execute([x[:extent]])
    assert [extent for extent in range(1, 50) if fd.fec.is_compiled([x[:extent]])] == list(range(42, 50))


def test_another_format_is_refused_in_the_same_words_later():
    fd = defined(lambda fd, x: fd.ops.neg(x), DataType.Float)
    with pytest.raises(FusionError) as first:
        fd.execute([np.zeros(2, np.float16)])
    for _ in range(2):
        fd.execute([np.zeros(2, F32)])
    with pytest.raises(FusionError) as later:
        fd.execute([np.zeros(2, np.float16)])
    assert str(first.value) == str(later.value)
