"""DType rows: the scalar meaning and the row facts against NumPy and ml_dtypes."""

import copy
import math
import pickle
import struct

import floating
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
import torch

import samebits
from samebits import dtypes
from samebits.dtypes import DType
from samebits.errors import DTypeError

FLOATS = [row for row in dtypes.ROWS if row.kind == "float"]
SMALL_FLOATS = [row for row in FLOATS if row.width_bits <= 16]
INTEGERS = [row for row in dtypes.ROWS if row.kind in ("int", "uint")]


def all_codes(row: DType) -> np.ndarray:
    """Every code point of the row, as an array of the row's NumPy dtype."""
    assert row.numpy is not None
    return np.arange(1 << row.width_bits).astype(f"u{row.numpy.itemsize}").view(row.numpy)


@pytest.mark.parametrize("row", SMALL_FLOATS, ids=repr)
def test_decode_equals_ml_dtypes_on_every_code(row: DType) -> None:
    decoded = np.array([row.decode(code) for code in range(1 << row.width_bits)])
    with np.errstate(invalid="ignore"):
        oracle = all_codes(row).astype(np.float64)
    assert np.array_equal(np.isnan(decoded), np.isnan(oracle))
    finite = ~np.isnan(oracle)
    assert np.array_equal(decoded[finite].view(np.int64), oracle[finite].view(np.int64))


@pytest.mark.parametrize("row", [dtypes.float32, dtypes.float64], ids=repr)
def test_decode_equals_numpy_on_wide_formats(row: DType) -> None:
    assert row.numpy is not None
    codes = np.random.default_rng(1).integers(0, 2**row.width_bits, 4000, f"u{row.size_bytes}")
    edges = np.array([0, 1, row.canonical_nan], codes.dtype)
    limits = np.array([row.max, row.min, row.min_normal, np.inf, -np.inf, -0.0], row.numpy).view(codes.dtype)
    for code in np.concatenate([codes, edges, limits]):
        with np.errstate(invalid="ignore"):
            value = float(np.array(code).view(row.numpy))
        decoded = row.decode(int(code))
        assert (math.isnan(value) and math.isnan(decoded)) or np.float64(value).tobytes() == np.float64(
            decoded
        ).tobytes()


@pytest.mark.parametrize("row", FLOATS, ids=repr)
def test_limits_equal_finfo(row: DType) -> None:
    info = ml_dtypes.finfo(row.numpy)
    assert row.max == row.decode(row.max_code) == float(info.max)
    assert row.max_code == int(np.array(info.max, row.numpy).view(f"u{row.element_bytes}"))
    assert row.min == float(info.min)
    assert row.min_normal == float(info.smallest_normal)
    assert row.epsilon == float(info.eps)
    assert row.width_bits == info.bits
    if row.has_zero:
        assert row.min_subnormal == float(info.smallest_subnormal)
        assert row.exponent_bits == info.nexp
    assert row.mantissa_bits == info.nmant


@pytest.mark.parametrize("row", INTEGERS, ids=repr)
def test_integer_limits_equal_iinfo(row: DType) -> None:
    info = ml_dtypes.iinfo(row.numpy)
    assert (row.min, row.max, row.max_code) == (info.min, info.max, info.max)
    assert row.decode((1 << row.width_bits) - 1) == (-1 if row.signed else info.max)


@pytest.mark.parametrize("row", SMALL_FLOATS, ids=repr)
def test_special_values_are_as_the_row_says(row: DType) -> None:
    values = [row.decode(code) for code in range(1 << row.width_bits)]
    assert any(math.isinf(v) for v in values) == row.has_infinity
    assert any(v == 0 for v in values) == row.has_zero
    assert any(v == 0 and math.copysign(1, v) < 0 for v in values) == row.has_negative_zero
    assert any(math.isnan(v) for v in values) == (row.canonical_nan is not None)
    if row.canonical_nan is not None:
        assert math.isnan(values[row.canonical_nan])
    if row.nan == "ieee":
        assert row.canonical_nan == ((1 << row.exponent_bits + 1) - 1) << (row.mantissa_bits - 1)


def test_canonical_nans_are_those_of_the_contract() -> None:
    expected = {
        "float64": 0x7FF8000000000000,
        "float32": 0x7FC00000,
        "bfloat16": 0x7FC0,
        "float16": 0x7E00,
        "float8_e5m2": 0x7E,
        "float8_e4m3": 0x7C,
        "float8_e3m4": 0x78,
        "float8_e4m3fn": 0x7F,
        "float8_e4m3fnuz": 0x80,
        "float8_e4m3b11fnuz": 0x80,
        "float8_e5m2fnuz": 0x80,
        "float8_e8m0fnu": 0xFF,
    }
    assert {row.name: row.canonical_nan for row in dtypes.ROWS if row.canonical_nan is not None} == expected


def test_onnx_numbers_are_those_of_tensorproto() -> None:
    onnx = pytest.importorskip("onnx")
    names = {row.onnx: row.name for row in dtypes.ROWS if row.onnx is not None}
    for number, name in names.items():
        theirs = onnx.TensorProto.DataType.Name(number).lower()
        known = {"float": "float32", "double": "float64", "float4e2m1": "float4_e2m1fn", "float8e8m0": "float8_e8m0fnu"}
        known |= {"float6e2m3": "float6_e2m3fn", "float6e3m2": "float6_e3m2fn"}
        assert known.get(theirs, theirs.replace("float8e", "float8_e")) == name


@pytest.mark.parametrize("row", dtypes.ROWS, ids=repr)
def test_a_row_is_found_by_every_name_it_has(row: DType) -> None:
    assert dtypes.of(row) is row
    assert dtypes.of(row.name) is row
    assert dtypes.of_dlpack(*row.dlpack) is row
    if row.numpy is not None:
        assert dtypes.of(row.numpy) is row
        assert dtypes.of(row.numpy.type) is row
    if row.name.rstrip("0123456789") not in ("int", "uint") and hasattr(torch, row.name):
        assert dtypes.of(getattr(torch, row.name)) is row
    if hasattr(jnp, row.name):
        assert dtypes.of(getattr(jnp, row.name)) is row


def test_module_constants_are_the_rows() -> None:
    for row in dtypes.ROWS:
        assert getattr(dtypes, "bool_" if row.name == "bool" else row.name) is row


@pytest.mark.parametrize("row", dtypes.ROWS, ids=repr)
def test_a_row_is_one_object(row: DType) -> None:
    assert pickle.loads(pickle.dumps(row)) is row
    assert copy.deepcopy(row) is row


@pytest.mark.parametrize("row", dtypes.ROWS, ids=repr)
def test_every_librarys_dtype_is_compared_as_the_row_it_names(row: DType) -> None:
    names: list[object] = [row.name]
    if row.numpy is not None:
        names += [row.numpy, row.numpy.type]
    if row.name.rstrip("0123456789") not in ("int", "uint") or row.width_bits >= 8:
        names += [getattr(home, row.name) for home in (torch, jnp, ml_dtypes) if hasattr(home, row.name)]
    for name in names:
        assert samebits.dtype(name) is row
        assert samebits.dtype(name) == row
        # False would be a wrong answer, and whichever side Python asks first gives none.
        for compare in (lambda name=name: row == name, lambda name=name: row != name, lambda name=name: row in (name,)):
            with pytest.raises(DTypeError) as error:
                compare()
            assert error.value.remedy == f"compare with samebits.dtype({error.value.actual})"
    assert samebits.dtype(row) is row


def test_a_row_equals_itself_alone() -> None:
    for row in dtypes.ROWS:
        assert [other for other in dtypes.ROWS if other == row] == [row]
        assert [other for other in dtypes.ROWS if other != row] == [other for other in dtypes.ROWS if other is not row]
        assert row != "float33"
        assert row not in (None, 5, "", object(), np.dtype("complex64"), np.dtype("O"), torch.complex64, float)
    assert len({*dtypes.ROWS, *dtypes.ROWS}) == len(dtypes.ROWS)
    assert {row: row.name for row in dtypes.ROWS}[dtypes.int4] == "int4"


def test_what_names_no_row_is_refused_by_the_public_name() -> None:
    with pytest.raises(DTypeError) as error:
        samebits.dtype("float33")
    assert str(error.value) == (
        "dtype: x is 'float33', must be an element format; "
        "pass one of its names, such as 'float32', 'float64', 'float16'"
    )


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("bf16", ["bfloat16"]),
        ("FP16", ["float16", "bfloat16"]),
        ("e2m1", ["float4_e2m1fn"]),
        ("fp8", [row.name for row in dtypes.ROWS if row.name.startswith("float8")]),
        ("", ["float32"]),
        ("x" * 100_000, ["float32"]),
    ],
)
def test_a_name_that_is_none_is_told_those_that_may_be_meant(name: str, meant: list[str]) -> None:
    with pytest.raises(DTypeError) as error:
        samebits.dtype(name)
    assert error.value.remedy == f"pass one of its names, such as {', '.join(map(repr, meant))}"


def test_unknown_dtypes_are_named() -> None:
    names = ("float33", "torch.float32", np.dtype(">f4"), torch.complex64, float, np.floating, np.integer, None)
    values = (True, np.True_, 1, np.float32(1), np.zeros(2), torch.zeros(2), jnp.zeros(2))
    for x in (*names, *values):
        with pytest.raises(DTypeError) as error:
            dtypes.of(x)
        is_array = hasattr(x, "dtype") and not isinstance(x, type)
        others = ", 'float64', 'float16'" if isinstance(x, str) and x == "float33" else ""
        remedy = "pass its dtype" if is_array else f"pass one of its names, such as 'float32'{others}"
        assert str(error.value) == f"dtypes.of: dtype is {x!r}, must be an element format; {remedy}"


def test_narrow_rows_have_no_size_in_bytes() -> None:
    assert dtypes.float32.size_bytes == 4
    for row in dtypes.ROWS:
        assert row.numpy is None or row.element_bytes == row.numpy.itemsize
    with pytest.raises(DTypeError) as error:
        _ = dtypes.float4_e2m1fn.size_bytes
    assert str(error.value) == (
        "DType.size_bytes: float4_e2m1fn width is 4 bits, must be whole bytes; "
        "use width_bits, or Layout.required_bytes for a tensor"
    )


def test_code_points_outside_the_width_are_refused() -> None:
    with pytest.raises(DTypeError) as error:
        dtypes.float4_e2m1fn.decode(16)
    assert str(error.value) == (
        "DType.decode: code is 16, must be an integer in [0, 2**4); mask it to the 4 bits of float4_e2m1fn"
    )


@pytest.mark.parametrize("mode", floating.MODES)
@pytest.mark.parametrize("row", [row for row in dtypes.ROWS if row.is_float], ids=str)
def test_the_callers_float_environment_changes_no_value(row: DType, mode: str) -> None:
    low, top = range(min(1 << row.width_bits, 300)), 1 << (row.width_bits - 1)
    codes = [*low, *(top + code for code in low if top + code < 1 << row.width_bits)]
    due = [struct.pack("<d", row.decode(code)) for code in codes]
    with floating.environment(mode):
        found = [struct.pack("<d", row.decode(code)) for code in codes]
    assert found == due
