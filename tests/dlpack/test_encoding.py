"""Layouts in DLPack's terms: every mode, there and back, and what each cannot say."""

from typing import Any, get_args

import pytest
from drawing import examples
from hypothesis import example, given
from hypothesis import strategies as st

from samebits import dtypes
from samebits.dlpack import Encoding, Mode, decode, encode
from samebits.dlpack.encoding import PADDED
from samebits.dtypes import DType
from samebits.errors import DTypeError, ExchangeError
from samebits.layout import Layout

MODES: tuple[Mode, ...] = get_args(Mode)
NARROW = [row for row in dtypes.ROWS if row.width_bits < 8]
WHOLE = [row for row in dtypes.ROWS if row.width_bits >= 8]


def places(encoding: Encoding) -> list[int]:
    """The first bit of every element of DLPack's, in row-major order, by its definition alone."""
    unit = encoding.bits * encoding.lanes
    unit = 8 if encoding.flags & PADDED and unit < 8 else unit
    found = [encoding.byte_offset * 8]
    for extent, stride in zip(encoding.shape, encoding.strides, strict=True):
        found = [place + i * stride * unit for place in found for i in range(extent)]
    return found


def bits_of(layout: Layout) -> list[int]:
    """The first bit of every element, in row-major order, by the layout's definition alone."""
    found = [layout.offset_bits]
    for extent, stride in zip(layout.shape, layout.strides_bits, strict=True):
        found = [place + i * stride for place in found for i in range(extent)]
    return found


@st.composite
def layouts(draw: st.DrawFn) -> tuple[DType, Layout]:
    """A dtype and a layout of its width: dense ones sliced, permuted and broadcast, and arbitrary strides."""
    row = draw(st.sampled_from(dtypes.ROWS))
    storage: Any = draw(st.sampled_from(["packed", "padded"]))
    shape = tuple(draw(st.lists(st.sampled_from([0, 1, 2, 3, 4, 6, 8]), max_size=4)))
    pitch = Layout.dense((), width_bits=row.width_bits, storage=storage).pitch_bits
    if draw(st.booleans()):
        layout = Layout.dense(shape, width_bits=row.width_bits, storage=storage)
        layout = layout.permute(draw(st.permutations(range(len(shape)))))
        for axis, extent in enumerate(layout.shape):
            start = draw(st.integers(0, extent))
            step = draw(st.sampled_from([1, 1, 2, -1]))
            layout = layout[(*[slice(None)] * axis, slice(None if step < 0 else start, None, step))]
        return row, layout
    unit = draw(st.sampled_from([pitch, pitch, 8, row.width_bits, 1]))
    strides = tuple(draw(st.sampled_from([0, 1, 2, 3, 4, 8, -1, -2])) * unit for _ in shape)
    return row, Layout(shape, strides, draw(st.integers(0, 4)) * unit, row.width_bits, storage)


@examples(1000)
@given(layouts(), st.sampled_from(MODES))
@example((dtypes.float6_e2m3fn, Layout((0, 1), (6, 6), 0, 6)), "bytes")
def test_decoding_undoes_encoding(case: tuple[DType, Layout], mode: Mode) -> None:
    row, layout = case
    try:
        encoding = encode(row, layout, mode)
    except ExchangeError as error:
        assert str(error).startswith("encode: tensor ")  # noqa: PT017
        return
    meaning = (row, layout.storage) if mode == "bytes" else None
    assert decode(encoding, meaning=meaning) == (row, layout)
    # The bits that DLPack's definition gives are those of the layout: elements of a vector follow each other.
    if encoding.lanes == 1 and mode != "bytes":
        assert places(encoding) == bits_of(layout)
    else:
        width = row.width_bits
        size = max(encoding.bits * encoding.lanes, width) if layout.storage == "packed" else 8
        firsts = {place for place in bits_of(layout) if (place - layout.offset_bits) % size == 0}
        assert firsts <= set(places(encoding))


@pytest.mark.parametrize("row", dtypes.ROWS, ids=repr)
def test_every_dense_row_has_the_modes_of_its_width(row: DType) -> None:
    """An encoding that is refused without a reason would satisfy the law above."""
    for storage in ("packed", "padded"):
        layout = Layout.dense((3, 8), width_bits=row.width_bits, storage=storage)  # type: ignore[arg-type]
        said = {mode for mode in MODES if is_said(row, layout, mode)}
        if row.width_bits >= 8:
            assert said == {"packed", "bytes"}
        elif storage == "packed":
            assert said == {"packed", "lanes", "bytes"}
        else:
            assert said == {"padded", "bytes"} | ({"widened"} if row.is_float else set())


def is_said(row: DType, layout: Layout, mode: Mode) -> bool:
    """Whether the mode says the layout."""
    try:
        return encode(row, layout, mode) is not None
    except ExchangeError:
        return False


def test_the_fields_are_those_of_the_standard_and_of_who_writes_them() -> None:
    fp4 = Layout.dense((3, 8), width_bits=4)
    apart = Layout.dense((3, 8), width_bits=4, storage="padded")
    fp6 = Layout.dense((3, 8), width_bits=6)
    assert encode(dtypes.float4_e2m1fn, fp4, "packed") == Encoding(17, 4, 1, 0, (3, 8), (8, 1))
    assert encode(dtypes.float4_e2m1fn, fp4, "lanes") == Encoding(17, 4, 2, 0, (3, 4), (4, 1))
    assert encode(dtypes.float4_e2m1fn, fp4.permute((1, 0)), "lanes") == Encoding(17, 4, 2, 0, (4, 3), (1, 4))
    assert encode(dtypes.float4_e2m1fn, fp4, "bytes") == Encoding(1, 8, 1, 0, (3, 4), (4, 1))
    assert encode(dtypes.float4_e2m1fn, apart, "padded") == Encoding(17, 4, 1, PADDED, (3, 8), (8, 1))
    assert encode(dtypes.float4_e2m1fn, apart, "widened") == Encoding(17, 8, 1, 0, (3, 8), (8, 1))
    assert encode(dtypes.float6_e3m2fn, fp6, "lanes") == Encoding(16, 6, 4, 0, (3, 2), (2, 1))
    assert encode(dtypes.float6_e3m2fn, fp6, "bytes") == Encoding(1, 8, 1, 0, (3, 6), (6, 1))
    assert encode(dtypes.int4, fp4[1:, ::2], "packed") == Encoding(0, 4, 1, 0, (2, 4), (8, 2), 4)
    assert encode(dtypes.uint1, Layout.dense((16,), width_bits=1), "lanes") == Encoding(1, 1, 8, 0, (2,), (1,))
    assert encode(dtypes.float32, Layout.dense((2, 3), width_bits=32), "bytes") == Encoding(
        1, 8, 1, 0, (2, 12), (12, 1)
    )


REMEDY = "choose another mode, or use Tensor.export"
FP4 = Layout.dense((4, 8), width_bits=4)
REFUSED: dict[str, tuple[Layout, Mode]] = {
    "first element is bit 4, must be at the start of a byte; copy it first, or use Tensor.export": (
        FP4[:, 1:],
        "packed",
    ),
    f"storage is packed, must be padded with one byte an element; {REMEDY}": (FP4, "padded"),
    "storage is padded, must be packed; pack it with to_packed, or use Tensor.export": (
        Layout.dense((2,), width_bits=4, storage="padded"),
        "lanes",
    ),
    (
        "layout is (3, 5) with strides_bits (20, 4), must be one with a dense axis of a multiple of 2 elements; "
        "pad it, or use Tensor.export"
    ): (Layout.dense((3, 5), width_bits=4), "lanes"),
    (
        "layout is (4, 4) with strides_bits (32, 8), must be one with a dense axis of a multiple of 2 elements; "
        "pad it, or use Tensor.export"
    ): (FP4[:, ::2], "lanes"),
    "layout is () with strides_bits (), must be one with a dense axis of a multiple of 2 elements; "
    "pad it, or use Tensor.export": (Layout.dense((), width_bits=4), "lanes"),
    f"stride 0 is 12 bits, must be a multiple of 8 bits; {REMEDY}": (
        Layout((2, 2), (12, 4), 0, 4),
        "lanes",
    ),
    f"stride 0 is 6 bits, must be a multiple of 4 bits; {REMEDY}": (Layout((2,), (6,), 0, 4), "packed"),
    f"layout is {Layout((0, 1), (4, 4), 0, 4)}, must be one whose axes lanes DLPack can tell apart; {REMEDY}": (
        Layout((0, 1), (4, 4), 0, 4),
        "lanes",
    ),
    # Pairs (1, 3) of strides (1, 1) are (1, 6) of four bits, and would be this as well.
    f"layout is {Layout((2, 3), (4, 8), 0, 4)}, must be one whose axes lanes DLPack can tell apart; {REMEDY}": (
        Layout((2, 3), (4, 8), 0, 4),
        "lanes",
    ),
}


@pytest.mark.parametrize("text", REFUSED)
def test_what_a_mode_cannot_say_is_refused_with_the_reason(text: str) -> None:
    layout, mode = REFUSED[text]
    with pytest.raises(ExchangeError) as error:
        encode(dtypes.float4_e2m1fn, layout, mode)
    assert str(error.value) == f"encode: tensor {text}"


def test_integers_are_not_widened_and_whole_bytes_have_no_lanes() -> None:
    with pytest.raises(ExchangeError) as error:
        encode(dtypes.int4, Layout.dense((2,), width_bits=4, storage="padded"), "widened")
    assert "dtype is int4, must be a float, because integers of 8 bits are another format" in str(error.value)
    with pytest.raises(ExchangeError) as error:
        encode(dtypes.float8_e5m2, Layout.dense((2,), width_bits=8), "lanes")
    assert "width is 8 bits, must be fewer than 8 bits" in str(error.value)


A_ROW = "must be an element format in one lane, or in lanes of fewer than 8 bits that fill bytes; convert it first"
UNKNOWN = {
    "complex64 (code 5, bits 64, lanes 1)": (5, 64, 1, 0),
    "complex128 (code 5, bits 128, lanes 1)": (5, 128, 1, 0),
    "an opaque handle (code 3, bits 64, lanes 1)": (3, 64, 1, 0),
    "int3 (code 0, bits 3, lanes 1)": (0, 3, 1, 0),
    "float32 (code 2, bits 32, lanes 4)": (2, 32, 4, 0),
    "float4_e2m1fn (code 17, bits 4, lanes 3)": (17, 4, 3, 0),
    "float4_e2m1fn (code 17, bits 4, lanes 0)": (17, 4, 0, 0),
    "float4_e2m1fn (code 17, bits 4, lanes 2, padded)": (17, 4, 2, PADDED),
    "bool1 (code 6, bits 1, lanes 1)": (6, 1, 1, 0),
    "unknown to DLPack 1.3 (code 200, bits 8, lanes 1)": (200, 8, 1, 0),
}


@pytest.mark.parametrize("text", UNKNOWN)
def test_what_no_row_is_meant_by_is_refused_by_name(text: str) -> None:
    code, bits, lanes, flags = UNKNOWN[text]
    with pytest.raises(DTypeError) as error:
        decode(Encoding(code, bits, lanes, flags, (2,), (1,)))
    assert str(error.value) == f"decode: x DLPack dtype is {text}, {A_ROW}"


def test_vectors_along_no_axis_are_refused() -> None:
    for shape, strides in (((2, 2), (4, 2)), ((), ()), ((3,), (-1,))):
        with pytest.raises(ExchangeError, match="must be one with a unit stride for its lanes to lie along"):
            decode(Encoding(17, 4, 2, 0, shape, strides))


def test_torchs_pairs_are_read_along_its_contiguous_axis() -> None:
    for shape, strides, logical in (
        ((3, 4), (4, 1), (3, 8)),
        ((4, 3), (1, 4), (8, 3)),
        ((3, 1), (1, 1), (3, 2)),
        ((1, 1), (1, 1), (1, 2)),
        ((0, 4), (4, 1), (0, 8)),
        ((4, 0), (1, 1), (4, 0)),
    ):
        dtype, layout = decode(Encoding(17, 4, 2, 0, shape, strides))
        assert (dtype, layout.shape) == (dtypes.float4_e2m1fn, logical)


def test_a_flag_that_means_nothing_is_no_harm() -> None:
    dtype, layout = decode(Encoding(10, 8, 1, PADDED, (2,), (1,)))
    assert (dtype, layout) == (dtypes.float8_e4m3fn, Layout.dense((2,), width_bits=8))
