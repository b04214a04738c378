"""Code points of every layout against loops over bits, and values against ml_dtypes and tables of all code points."""

import contextlib
import math
from fractions import Fraction
from typing import Any

import floating
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from samebits import driver, dtypes, elements, ieee
from samebits.dtypes import DType
from samebits.errors import DTypeError, OptionError
from samebits.layout import Layout

Array = np.ndarray[Any, Any]
STORAGES = ("packed", "padded")
FLOATS = [row for row in dtypes.ROWS if row.is_float]
SMALL = [row for row in FLOATS if row.width_bits <= 16]


@st.composite
def layouts(draw: st.DrawFn) -> Layout:
    """Layouts whose elements share no bit: any bit strides and offsets, views of dense ones, both storages."""
    width = draw(st.sampled_from([1, 2, 3, 4, 6, 8, 16, 32, 64]))
    shape = draw(st.lists(st.integers(0, 9), max_size=3))
    storage = draw(st.sampled_from(["packed", "padded"]))
    if draw(st.booleans()):
        layout = Layout.dense(shape, width_bits=width, storage=storage)
        layout = layout.permute(draw(st.permutations(range(len(shape)))))
        cut = st.builds(slice, st.integers(0, 3), st.none(), st.sampled_from([1, 2, 3, -1, -2]))
        return layout[tuple(draw(cut) for _ in shape)]
    strides, reach = [0] * len(shape), width
    for axis in draw(st.permutations(range(len(shape)))):
        step = reach + draw(st.integers(0, 9))
        strides[axis] = draw(st.sampled_from([step, -step]))
        reach = step * max(shape[axis], 1)
    low = sum(min(0, (n - 1) * s) for n, s in zip(shape, strides, strict=True) if n)
    return Layout(tuple(shape), tuple(strides), draw(st.integers(0, 20)) - low, width, storage)


def places(layout: Layout) -> dict[tuple[int, ...], range]:
    """The bits of each element, by the layout's formula."""
    found = {}
    for index in np.ndindex(*layout.shape):
        bit = layout.offset_bits + sum(i * s for i, s in zip(index, layout.strides_bits, strict=True))
        found[index] = range(bit, bit + layout.width_bits)
    return found


@given(layouts(), st.integers(0, 2**32))
def test_read_and_write_equal_loops_over_bits(layout: Layout, seed: int) -> None:
    rng = np.random.default_rng(seed)
    data = rng.integers(0, 256, layout.required_bytes, np.uint8)
    bits = np.unpackbits(data, bitorder="little")
    codes = elements.read(data, layout)
    assert (codes.shape, codes.dtype) == (layout.shape, elements.unit(layout.width_bits))
    assert codes.flags.c_contiguous
    for index, at in places(layout).items():
        assert codes[index] == sum(int(bits[bit]) << k for k, bit in enumerate(at))
    new = rng.integers(0, 2**64, layout.shape, np.uint64) & np.uint64((1 << layout.width_bits) - 1)
    elements.write(data, layout, new.astype(codes.dtype))
    assert np.array_equal(elements.read(data, layout), new)
    outside = np.ones(len(bits), bool)
    for at in places(layout).values():
        # A padded byte belongs to its element, unused bits too, where elements begin at bytes.
        whole = layout.storage == "padded" and not at.start % 8
        outside[at.start : at.start + (layout.pitch_bits if whole else layout.width_bits)] = False
    assert np.array_equal(np.unpackbits(data, bitorder="little")[outside], bits[outside])


@given(st.data(), st.integers(0, 2**32))
def test_copy_equals_read_and_write(data: st.DataObject, seed: int) -> None:
    layout, rng = data.draw(layouts()), np.random.default_rng(seed)
    into = Layout.dense(layout.shape, width_bits=layout.width_bits, storage=data.draw(st.sampled_from(STORAGES)))
    if data.draw(st.booleans()):
        layout = Layout.dense(layout.shape, width_bits=layout.width_bits, storage=layout.storage)
    for target in (into, Layout.dense((9, *layout.shape), width_bits=layout.width_bits, storage=into.storage)[5]):
        source = rng.integers(0, 256, layout.required_bytes, np.uint8)
        found = rng.integers(0, 256, target.required_bytes, np.uint8)
        due = found.copy()
        elements.write(due, target, elements.read(source, layout))
        elements.copy(source, layout, found, target)
        assert np.array_equal(found, due)


@pytest.mark.parametrize("row", dtypes.ROWS, ids=repr)
def test_decode_gives_every_value_exactly(row: DType) -> None:
    rng = np.random.default_rng(0)
    if row.width_bits <= 16:
        numbers = range(1 << row.width_bits) if row.kind != "bool" else range(2)
    else:
        numbers = rng.integers(0, 1 << row.width_bits, 1000, np.uint64).tolist()
    codes = np.array(numbers, elements.unit(row.width_bits))
    found = elements.decode(codes, row)
    due = [row.decode(int(code)) for code in codes]
    assert found.dtype.isbuiltin == 1
    for got, value in zip(found.tolist(), due, strict=True):
        assert got == value or (got != got and value != value)
        assert math.copysign(1, got) == math.copysign(1, value) or got != got


@pytest.mark.parametrize("row", SMALL, ids=repr)
def test_encode_takes_the_nearest_value_ties_to_even(row: DType) -> None:
    codes = np.arange(1 << row.width_bits).astype(elements.unit(row.width_bits))
    values = np.array([row.decode(int(code)) for code in codes])
    held = ~np.isnan(values)
    assert np.array_equal(elements.encode(values[held], row, "x"), codes[held])
    known = np.unique(values[np.isfinite(values)])
    middle = (known[1:] + known[:-1]) / 2
    below = elements.decode(elements.encode(np.nextafter(middle, -np.inf), row, "x"), row)
    above = elements.decode(elements.encode(np.nextafter(middle, np.inf), row, "x"), row)
    assert np.array_equal(below, known[:-1].astype(below.dtype))
    assert np.array_equal(above, known[1:].astype(above.dtype))
    # ml_dtypes goes through float32, in which the middles of all these formats are exact.
    assert row.numpy is not None
    due = middle.astype(row.numpy).view(codes.dtype)
    assert np.array_equal(elements.encode(middle, row, "x"), due & codes.dtype.type((1 << row.width_bits) - 1))


@pytest.mark.parametrize("row", [dtypes.float32, dtypes.float64, dtypes.float16], ids=repr)
def test_encode_equals_numpy(row: DType) -> None:
    rng = np.random.default_rng(1)
    wide = rng.integers(0, 2**64, 20_000, np.uint64).view(np.float64)
    near = rng.standard_normal(20_000) * 2.0 ** rng.integers(-30, 20, 20_000)
    values = np.concatenate([wide[~np.isnan(wide)], near, [0.0, -0.0, np.inf, -np.inf, 5e-324]])
    with np.errstate(over="ignore", under="ignore"):
        due = values.astype(row.name)
    assert np.array_equal(elements.encode(values, row, "x"), due.view(elements.unit(row.width_bits)))
    assert elements.encode(np.array(np.nan), row, "x") == row.canonical_nan


@pytest.mark.parametrize("row", SMALL, ids=repr)
def test_encode_refuses_what_is_not_there(row: DType) -> None:
    top, infinite = row.max, np.array(np.inf)
    if row.has_infinity:
        assert row.decode(int(elements.encode(infinite, row, "x"))) == math.inf
        assert row.decode(int(elements.encode(np.array(top * 4), row, "x"))) == math.inf
    else:
        for value in (math.inf, -math.inf, top * 4):
            with pytest.raises(DTypeError):
                elements.encode(np.array([1.0, value]), row, "x")
    if row.canonical_nan is None:
        with pytest.raises(DTypeError, match="value is nan, must be a number within"):
            elements.encode(np.array(np.nan), row, "x")
    else:
        assert elements.encode(np.array(-np.nan), row, "x") == row.canonical_nan
    if not row.has_zero:
        for value in (0.0, -1.0, 2.0**-200):
            with pytest.raises(DTypeError):
                elements.encode(np.array(value), row, "x")


def test_one_number_as_a_code_point() -> None:
    assert elements.code_of(-1, dtypes.int4, "x") == 15
    assert elements.code_of(2**64 - 1, dtypes.uint64, "x") == 2**64 - 1
    assert elements.code_of(-(2**63), dtypes.int64, "x") == 2**63
    assert elements.code_of(10**400, dtypes.float32, "x") == 0x7F800000
    assert elements.code_of(True, dtypes.float4_e2m1fn, "x") == 2
    assert elements.code_of(np.float32(3), dtypes.int8, "x") == 3
    for value in (8, -9, 0.5, math.nan, math.inf):
        with pytest.raises(DTypeError, match=r"must be a whole number within \[-8, 7\] for int4"):
            elements.code_of(value, dtypes.int4, "x")
    for wrong in ("1", None, 1j, [1], np.complex64(1)):
        with pytest.raises(OptionError, match="must be a real number"):
            elements.code_of(wrong, dtypes.int4, "x")


def test_values_are_compared_as_real_numbers() -> None:
    def same(x: Any, y: Any, dtype_x: str, dtype_y: str) -> bool:
        return bool(elements.same_values(np.array(x, dtype_x), np.array(y, dtype_y)))

    for x, y, a, b in [
        (2**53 + 1, 2.0**53, "int64", "float64"),
        (2**63 - 1, 2.0**63, "int64", "float64"),
        (2**64 - 1, 2.0**64, "uint64", "float64"),
        (2**64 - 1, -1, "uint64", "int64"),
        (2**63, -(2**63), "uint64", "int64"),
        (0, 0.5, "int64", "float32"),
        (0, math.nan, "uint64", "float32"),
        (16777217, 16777216, "int32", "float32"),
        (math.nan, math.nan, "float32", "float64"),
    ]:
        assert not same(x, y, a, b)
        assert not same(y, x, b, a)
    for x, y, a, b in [
        (2**63, 2.0**63, "uint64", "float32"),
        (-(2**63), -(2.0**63), "int64", "float64"),
        (0, -0.0, "int64", "float32"),
        (1, True, "int8", "bool"),
        (1.0, True, "float16", "bool"),
        (16777216, 16777216, "int32", "float32"),
        (7, 7, "uint64", "int64"),
    ]:
        assert same(x, y, a, b)
        assert same(y, x, b, a)


def test_ml_dtypes_reads_what_is_written_padded() -> None:
    for name in ("int4", "uint4", "int2", "uint2", "float4_e2m1fn", "float6_e2m3fn", "float6_e3m2fn"):
        row = dtypes.of(name)
        codes = np.arange(1 << row.width_bits, dtype=np.uint8)
        theirs = codes.view(getattr(ml_dtypes, name)).astype(np.float64)
        assert np.array_equal(elements.decode(codes, row), theirs)


@pytest.mark.filterwarnings("error")
def test_signalling_nans_are_quietly_unequal() -> None:
    signalling = np.array([0x7F80_0001], np.uint32).view(np.float32)
    assert not elements.same_values(signalling, signalling).any()
    assert not elements.same_values(signalling, np.array([1])).any()


def test_whole_bytes_are_seen_where_they_lie() -> None:
    data = np.random.default_rng(3).integers(0, 256, 96, np.uint8)
    for width, storage in [(16, "packed"), (8, "packed"), (6, "packed"), (4, "padded")]:
        layout = Layout.dense((4, 6), width_bits=width, storage=storage)  # type: ignore[arg-type]
        for view in (layout, layout.permute((1, 0)), layout[::-1, 1:]):
            assert np.array_equal(elements.seen(data, view), elements.read(data, view))
            assert np.shares_memory(elements.seen(data, view), data) == (width >= 8)
            assert not np.shares_memory(elements.read(data, view), data)


@pytest.mark.parametrize("name", ["int2", "int4"])
def test_a_lone_narrow_integer_decodes_as_those_in_arrays(name):
    dtype = dtypes.of(name)
    for value in range(int(dtype.min), int(dtype.max) + 1):
        codes = np.array(value, dtype.numpy).view(np.uint8) & np.uint8(2**dtype.width_bits - 1)
        assert elements.decode(codes, dtype) == value


# -- the caller's float environment ---------------------------------------------------------------------------------


def numbers_between(row: DType) -> Array:
    """Numbers on and between the values of a format, subnormals of float32 and float64 too."""
    with np.errstate(over="ignore"):
        codes = np.arange(1 << min(row.width_bits, 8), dtype=np.uint64) << np.uint64(max(row.width_bits - 8, 0))
        values = elements.decode(codes.astype(elements.unit(row.width_bits)), row).astype(np.float64)
    values = values[np.isfinite(values) & (values > row.min) & (values < row.max)]
    tiny = np.array([2.0**-140, 2.0**-149, 2.0**-1074, 3 * 2.0**-1074]) if row.has_zero else []
    return np.concatenate([values * 1.01, values * 0.97, values, tiny])


@pytest.mark.parametrize("mode", floating.MODES)
@pytest.mark.parametrize("row", FLOATS, ids=str)
def test_the_callers_float_environment_changes_no_element(row: DType, mode: str) -> None:
    numbers = numbers_between(row) if row.has_zero else np.abs(numbers_between(row)) + row.min_normal
    codes = (np.arange(256) % (1 << min(row.width_bits, 8))).astype(elements.unit(row.width_bits))
    some = [0.7, 1.1, np.float32(0.3), *([np.float32(2.0**-140)] if row.has_zero else [])]

    def computed() -> list[bytes]:
        elements._table.cache_clear()
        values = elements.decode(codes, row)
        made = [values, elements.encode(numbers, row, "t"), elements.arange(1 / 3, 1.9, 0.17, row, "t")]
        made += [elements.code_of(number, row, "t") for number in some]
        made += [elements.same_values(values, np.zeros_like(values)), elements.same_values(values[1:], values[:-1])]
        lists = elements.listed(values), [elements.listed(values[i].reshape(())) for i in range(len(values))]
        return [*(x.tobytes() for x in made), *(np.array(numbers).tobytes() for numbers in lists)]

    due = computed()
    with floating.environment(mode):
        found = computed()
    elements._table.cache_clear()
    assert found == due


@pytest.mark.parametrize("row", [row for row in dtypes.ROWS if row.numpy is not None and row.is_float], ids=str)
def test_one_number_is_rounded_once_and_nan_is_canonical(row: DType) -> None:
    """Against ml_dtypes and NumPy, where these round once: from values of twice the format, and from their middles."""
    for code in (1, 2, row.max_code):
        value = float(row.decode(code))
        assert elements.rounded(value, row).view(f"u{row.element_bytes}") == code
    if row.canonical_nan is not None:
        assert elements.rounded(-np.nan, row).view(f"u{row.element_bytes}") == row.canonical_nan
    if row.has_infinity:
        assert np.isinf(elements.rounded(1e300, row).astype(np.float64)) or row is dtypes.float64


@pytest.mark.parametrize("mode", ["nearest", *floating.MODES])
@pytest.mark.parametrize("row", [row for row in dtypes.ROWS if row.has_infinity and row.width_bits <= 32], ids=str)
def test_one_number_is_rounded_as_the_reference_rounds_arrays_in_every_float_environment(row: DType, mode: str) -> None:
    """Values of the format, the middles between neighbours and their neighbours, and arbitrary bits, of both signs."""
    random = np.random.default_rng(5)
    codes = random.integers(0, row.max_code, 100).tolist()
    with driver.default_float_environment():
        pairs = [(row.decode(code), row.decode(code + 1)) for code in [0, 1, *codes, row.max_code - 1]]
        middles = [x / 2 + y / 2 for x, y in pairs] + [row.max + (row.max - pairs[-1][0]) / 2]
        near = [math.nextafter(x, to) for x in middles for to in (-math.inf, math.inf)]
        special = [5e-324, 2.3e-308, 1e-310, 1e300, math.inf, math.nan]
        words = random.integers(0, 2**64, 100, np.uint64, endpoint=False).view(np.float64).tolist()
        numbers = [y for x in (*sum(pairs, ()), *middles, *near, *special, *words) for y in (x, -x)]
        due = ieee.encode(np.array(numbers), row)
        if row is dtypes.float32:
            with np.errstate(all="ignore"):
                assert due.tobytes() == ieee.canonical(np.array(numbers).astype(np.float32)).tobytes()
    elements._of_bits.cache_clear()
    with contextlib.nullcontext() if mode == "nearest" else floating.environment(mode):
        found = [elements.rounded(x, row) for x in numbers]
    assert {(x.shape, x.dtype, x.flags.writeable) for x in found} == {((), row.numpy, True)}
    assert b"".join(x.tobytes() for x in found) == due.tobytes()


def test_one_number_of_a_narrow_format_is_not_rounded_to_float32_first() -> None:
    middle = 1 + 2**-8 + 2**-40  # just above the middle of two bfloat16; as float32 it is the middle
    assert elements.rounded(middle, dtypes.bfloat16) == 1 + 2**-7
    assert elements.rounded(3, dtypes.int8) == 3


def test_a_number_that_float64_does_not_have_is_rounded_once() -> None:
    """Beside middles of two numbers of a format, nearer to them than float64 tells: whole numbers and fractions."""
    for row in (row for row in dtypes.ROWS if row.has_infinity and row.width_bits <= 32):
        for code in np.random.default_rng(7).integers(1, row.max_code - 1, 100).tolist():
            low, high = Fraction(row.decode(code)), Fraction(row.decode(code + 1))
            step = (high - low) / 2**60
            for number, due in (((low + high) / 2 - step, low), ((low + high) / 2 + step, high)):
                number = int(number) if number.denominator == 1 else number
                for sign in (1, -1):
                    assert Fraction(float(elements.rounded(sign * number, row))) == sign * due, (row, number)
    whole = 2**60 + 2**36 + 1  # float64 has 2**60 + 2**36, the middle of two float32
    assert elements.code_of(whole, dtypes.float32, "x") == elements.rounded(whole, dtypes.float32).view(np.uint32)
    assert elements.rounded(whole, dtypes.float32) == elements.rounded(-whole, dtypes.float32) * -1 == 2**60 + 2**37
    assert elements.rounded(2**60 + 2**36 - 1, dtypes.float32) == 2**60
    assert elements.rounded(2**53 + 1, dtypes.float64) == 2**53
    with pytest.raises(OverflowError):
        elements.rounded(10**400, dtypes.float32)
