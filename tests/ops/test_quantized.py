"""A Quantized is a value: its parts are checked, and it is cut, joined, compared, pickled and tiled."""

from __future__ import annotations

import pickle
from typing import Any

import block_rows
import numpy as np
import pytest

import samebits as sb
from samebits.errors import ClosedError, DTypeError, FrozenError, LayoutError, OptionError, OutOfRangeError, ShapeError
from samebits.layout import TiledLayout

F32 = np.float32
X = np.random.default_rng(3).standard_normal((4, 64)).astype(F32)
Q = sb.quantize(X, "nvfp4")
BIG = np.random.default_rng(3).standard_normal((3, 256, 256)).astype(F32)


def test_it_says_what_it_is() -> None:
    assert repr(Q) == "Quantized(nvfp4, nvfp4/exact-1, shape=(4, 64), 148 bytes)"
    assert (Q.shape, Q.ndim, Q.size, Q.nbytes) == ((4, 64), 2, 256, 128 + 16 + 4)
    assert list(Q.parts) == ["elements", "scales", "global_scale"]
    turned = sb.quantize(X.T.copy(), "mxfp4", axis=0)
    assert repr(turned) == "Quantized(mxfp4, mx/floor, shape=(64, 4), axis=-2, 136 bytes)"
    with pytest.raises(FrozenError):
        Q.axis = -2  # type: ignore[misc]


@pytest.mark.parametrize("row", block_rows.ROWS, ids=str)
@pytest.mark.parametrize("axis", [-1, -2])
def test_it_comes_back_from_a_pickle_and_from_its_parts(row: sb.BlockFormat, axis: int) -> None:
    q = sb.quantize(BIG[:, :128, :128], row, axis=axis)
    assert pickle.loads(pickle.dumps(q)).equal_bits(q)
    assert sb.Quantized.of_parts(q.parts, row, q.dialect, axis).equal_bits(q)
    assert not sb.Quantized.of_parts(q.parts, row, None, axis).equal_bits(q)
    parts = {name: q.parts.get(name) for name in ("global_scale", "zero_points")}
    named = sb.Quantized(q.elements, q.scales, row.name, **parts, dialect=q.dialect.name, axis=axis)  # type: ignore[arg-type, union-attr]
    assert named.equal_bits(q)


@pytest.mark.parametrize("row", block_rows.ROWS, ids=str)
@pytest.mark.parametrize("axis", [-1, -2])
def test_slices_between_blocks_hold_the_values_that_were_there(row: sb.BlockFormat, axis: int) -> None:
    across, along = row.block
    size = 256 if 128 in row.block else 128  # two blocks or more, where a block is not all of the axis
    q = sb.quantize(BIG[:, :size, :size], row, axis=axis)
    values = q.dequantize().numpy()
    ends = [across or size, along or size] if axis == -1 else [along or size, across or size]
    key = (slice(1, 3), *[slice(n, None) if n < size else slice(None) for n in ends])
    np.testing.assert_array_equal(q[key].dequantize().numpy(), values[key])
    np.testing.assert_array_equal(q[1].dequantize().numpy(), values[1])
    assert q[0:0].shape == (0, size, size)


def test_a_row_is_an_array_of_one_axis() -> None:
    row = sb.quantize(X, "nvfp4", global_scale="row")[2]
    assert (row.shape, row.scales.shape, row.axis) == ((64,), (4,), -1)
    assert row.global_scale is not None
    assert row.global_scale.shape == (1,)


@pytest.mark.parametrize("axis", [-1, -2])
@pytest.mark.parametrize("along", [0, 1, 2])
@pytest.mark.parametrize("name", ["nvfp4", "mxfp6-e3m2", "uint4-group64-zero", "fp8-128x128", "nvfp4-16x16"])
def test_what_was_cut_is_joined_again(name: str, along: int, axis: int) -> None:
    q = sb.quantize(BIG, name, axis=axis)
    at = 1 if along == 0 else 128
    first, second = (slice(None),) * along + (slice(0, at),), (slice(None),) * along + (slice(at, None),)
    found = sb.Quantized.cat([q[first], q[second]], axis=along)
    assert found.equal_bits(q)
    assert sb.Quantized.cat((q[first], q[second]), along - 3).equal_bits(q)
    np.testing.assert_array_equal(found.dequantize().numpy(), q.dequantize().numpy())


def test_global_scales_of_rows_are_joined_along_rows() -> None:
    q = sb.quantize(X, "nvfp4", global_scale="row")
    assert sb.Quantized.cat([q[:1], q[1:]]).equal_bits(q)
    assert sb.Quantized.cat([q[:, :16], q[:, 16:]], 1).equal_bits(q)


@pytest.mark.parametrize("shape", [(1, 16), (128, 64), (129, 80), (300, 1600), (2, 3, 150, 160)])
@pytest.mark.parametrize("axis", [-1, -2])
def test_tiles_hold_each_scale_where_the_layout_says(shape: tuple[int, ...], axis: int) -> None:
    x = np.random.default_rng(4).standard_normal(shape).astype(F32)
    q = sb.quantize(x if axis == -1 else np.swapaxes(x, -1, -2), "nvfp4", axis=axis)
    scales = q.scales if axis == -1 else q.scales.transpose()
    tiles = q.scale_tiles()
    rows, columns = shape[-2], shape[-1] // 16
    layout = TiledLayout.scales_128x4(rows, columns)
    assert tiles.shape == (*shape[:-2], layout.padded_size)
    flat = tiles.numpy().view(np.uint8).reshape(-1, layout.padded_size)
    due = np.zeros_like(flat)
    codes = sb.copy(scales).numpy().view(np.uint8).reshape(-1, rows, columns)
    for i in range(rows):
        for j in range(columns):
            due[:, layout.element(i, j)] = codes[:, i, j]
    np.testing.assert_array_equal(flat, due)
    assert sb.scales_from_tiles(tiles, scales.shape).equal_bits(scales)


def test_tiles_are_those_of_torchao() -> None:
    pytest.importorskip("torchao")
    import quantizers

    q = sb.quantize(BIG[0, :200], "nvfp4")
    np.testing.assert_array_equal(
        q.scale_tiles().numpy().view(np.uint8), quantizers.tiles(q.scales.numpy().view(np.uint8))
    )


def test_parts_cross_to_torch_through_dlpack() -> None:
    torch = pytest.importorskip("torch")
    scales = torch.from_dlpack(Q.scales)
    assert scales.dtype is torch.float8_e4m3fn
    assert scales.data_ptr() == Q.scales.address
    assert Q.elements.torch().shape == (4, 32)


def closed() -> sb.Tensor:
    x = sb.copy(Q.scales)
    x.buffer.close()
    return x


PARTS: dict[str, Any] = {
    "elements": Q.elements, "scales": Q.scales, "format": "nvfp4", "global_scale": Q.global_scale, "axis": -1,
}  # fmt: skip
WRONG: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"scales": Q.scales[:, :3]}, ShapeError,
     "Quantized: scales shape is (4, 3), must be (4, 4), one for each block of (4, 64); reshape or recompute them"),
    ({"scales": Q.scales.view("uint8")}, DTypeError,
     "Quantized: scales dtype is uint8, must be float8_e4m3fn for nvfp4; view or convert it"),
    ({"elements": Q.elements.view("uint8")}, DTypeError,
     "Quantized: elements dtype is uint8, must be float4_e2m1fn for nvfp4; view or convert it"),
    ({"elements": Q.elements[:, :60]}, ShapeError,
     ("Quantized: elements extent of axis 1 is 60, must be a multiple of 16, the block of nvfp4; pad it with zeros "
     "first")),
    ({"elements": Q.elements[0, 0]}, LayoutError,
     "Quantized: axis is -1, must be one of the last two of 0 axes, or of the only one; transpose the array first"),
    ({"global_scale": None}, OptionError,
     "Quantized: global_scale is missing, must be given for nvfp4; see the page of formats"),
    ({"global_scale": np.ones(4, F32)}, ShapeError,
     "Quantized: global_scale shape is (4,), must be () or (4, 1); reshape it"),
    ({"global_scale": np.ones((), np.float64)}, DTypeError,
     "Quantized: global_scale dtype is float64, must be float32 for nvfp4; view or convert it"),
    ({"zero_points": Q.scales}, OptionError,
     "Quantized: zero_points is given, must be left out for nvfp4; see the page of formats"),
    ({"scales": closed()}, ClosedError,
     "Quantized: scales buffer is closed, must be open; close it after its last use"),
    ({"dialect": "mx/even"}, OptionError,
     ("Quantized: dialect is mx/even, must be one that makes nvfp4: nvfp4/exact-1, nvfp4/torchao-0.18, nvfp4/te-2, "
     "nvfp4/nvfuser-0.2, nvfp4/flashinfer, nvfp4/modelopt-0.47, nvfp4/compressed-tensors-0.20, "
     "nvfp4/four-over-six-1; choose one of these")),
]  # fmt: skip


@pytest.mark.parametrize(("given", "kind", "sentence"), WRONG)
def test_parts_that_do_not_fit_are_refused(given: dict[str, Any], kind: type[Exception], sentence: str) -> None:
    with pytest.raises(kind) as caught:
        sb.Quantized(**{**PARTS, **given})
    assert str(caught.value) == sentence


KEYS: list[tuple[Any, str]] = [
    (slice(None, None, 0), ("slice of axis 0 is slice(None, None, 0), must be from one multiple of 1 to another, in "
     "steps of 1; cut between blocks")),
    (slice(0, 2, 2), ("slice of axis 0 is slice(0, 2, 2), must be from one multiple of 1 to another, in steps of 1; "
     "cut between blocks")),
    ((0, slice(8, 32)), ("slice of axis 1 is slice(8, 32, None), must be from one multiple of 16 to another, in steps "
     "of 1; cut between blocks")),
    ((0, 3), "index of axis 1 is 3, must be a slice, as blocks lie along it; use a slice of blocks"),
    ((0, slice(None), 0), "key is (0, slice(None, None, None), 0), must be at most 2 indices; give one for each axis"),
    (None, "index of axis 0 is None, must be a slice or an integer; use a slice of blocks"),
]  # fmt: skip


@pytest.mark.parametrize(("key", "sentence"), KEYS)
def test_keys_that_cut_a_block_are_refused(key: Any, sentence: str) -> None:
    with pytest.raises(LayoutError) as caught:
        Q[key]
    assert str(caught.value) == f"Quantized[]: {sentence}"


def test_an_index_that_is_not_there_is_refused_as_that_of_the_array() -> None:
    for place in (4, -5, 2**70):
        with pytest.raises(OutOfRangeError) as error:
            Q[place]
        assert str(error.value) == f"Quantized[]: index of axis 0 is {place}, must be in [-4, 4); use an existing one"


def test_no_integer_takes_the_axis_of_the_blocks_away() -> None:
    for row, x, axis in (("fp8-column", X, -1), ("fp8-column", X, -2), ("fp8-row", X[:, :1], -1)):
        q = sb.quantize(x, row, axis=axis)
        with pytest.raises(LayoutError) as caught:
            q[(slice(None), 0) if axis == -1 else 0]
        place = f"index of axis {2 + axis} is 0"
        assert (
            str(caught.value) == f"Quantized[]: {place}, must be a slice, as blocks lie along it; use a slice of blocks"
        )


def test_blocks_of_several_lines_have_one_global_scale() -> None:
    q = sb.quantize(BIG, "nvfp4-16x16")
    lines = np.ones((len(BIG), 1), np.float32)
    for call, make in (
        ("Quantized", lambda: sb.Quantized(q.elements, q.scales, "nvfp4-16x16", global_scale=lines)),  # type: ignore[arg-type]
        ("quantize", lambda: sb.quantize(BIG, "nvfp4-16x16", global_scale=lines)),
    ):
        with pytest.raises(ShapeError) as caught:
            make()
        due = (
            f"global_scale shape is {lines.shape}, must be (), as a block of nvfp4-16x16 has several lines; reshape it"
        )
        assert str(caught.value) == f"{call}: {due}"


def test_it_is_no_array_of_numpy() -> None:
    with pytest.raises(sb.ExchangeError) as caught:
        np.asarray(Q)
    due = "x is Quantized(nvfp4, nvfp4/exact-1, shape=(4, 64), 148 bytes), must be an array"
    assert str(caught.value) == f"numpy.asarray: {due}; pass x.dequantize(), or one of x.parts"


def test_parts_that_are_missing_or_of_no_name_are_refused() -> None:
    due = "must be elements, scales, and what else Quantized.parts names; pass the parts of a Quantized"
    for parts, actual in (
        ({}, "[]"),
        ({**Q.parts, "bias": Q.scales}, "['elements', 'scales', 'global_scale', 'bias']"),
        (3, "3"),
    ):
        with pytest.raises(OptionError) as caught:
            sb.Quantized.of_parts(parts, Q.format)  # type: ignore[arg-type]
        assert str(caught.value) == f"Quantized.of_parts: parts is {actual}, {due}"


def test_calls_name_the_part_whose_memory_is_closed() -> None:
    scales = sb.copy(Q.scales)
    q = sb.Quantized(Q.elements, scales, "nvfp4", global_scale=Q.global_scale)  # type: ignore[arg-type]
    scales.buffer.close()
    calls: list[tuple[str, Any]] = [
        ("Quantized.dequantize: scales", q.dequantize),
        ("Quantized.scale_tiles: scales", q.scale_tiles),
        ("Quantized.equal_bits: scales", lambda: q.equal_bits(Q)),
        ("Quantized.equal_bits: other.scales", lambda: Q.equal_bits(q)),
        ("Quantized[]: scales", lambda: q[:1]),
        ("Quantized.cat: parts[1].scales", lambda: sb.Quantized.cat([Q, q])),
        ("report: q.scales", lambda: sb.report(X, q)),
        ("pickle: scales", lambda: pickle.dumps(q)),
    ]
    for named, call in calls:
        with pytest.raises(ClosedError) as caught:
            call()
        assert str(caught.value) == f"{named} buffer is closed, must be open; close it after its last use"


def test_what_does_not_go_together_is_not_joined() -> None:
    other = sb.quantize(X * 3, "nvfp4")
    with pytest.raises(OptionError) as scale:
        sb.Quantized.cat([Q, other])
    due = "Quantized.cat: parts[1] global scale is another, must be that of parts[0]; quantise them with one"
    assert str(scale.value) == due
    with pytest.raises(OptionError) as kind:
        sb.Quantized.cat([Q, sb.quantize(X, "mxfp4")])
    assert str(kind.value).startswith("Quantized.cat: parts[1] format and dialect is Quantized(mxfp4, mx/floor")
    short = sb.quantize(BIG[0, :100], "fp8-128x128")
    with pytest.raises(ShapeError) as cut:
        sb.Quantized.cat([short, short])
    due = "parts[0] extent of axis 0 is 100, must be a multiple of 128, the block of fp8-128x128; join the arrays first"
    assert str(cut.value) == f"Quantized.cat: {due}"
    with pytest.raises(OptionError) as empty:
        sb.Quantized.cat([])
    assert str(empty.value) == "Quantized.cat: parts is empty, must be at least one; pass one"
    with pytest.raises(ShapeError) as shapes:
        sb.Quantized.cat([Q, sb.quantize(X[:, :16], "nvfp4")])
    assert str(shapes.value) == (
        f"Quantized.cat: parts[1] shape is {X[:, :16].shape}, must be that of parts[0], {X.shape}, but for axis 0; "
        "slice or pad the array first"
    )


def test_tiles_of_another_size_are_refused() -> None:
    with pytest.raises(ShapeError) as caught:
        sb.scales_from_tiles(np.zeros(500, np.uint8), (4, 4))
    due = "tiles shape is (500,), must be (512,) for scales (4, 4); pass whole tiles"
    assert str(caught.value) == f"scales_from_tiles: {due}"
    with pytest.raises(ShapeError) as line:
        sb.quantize(X[0], "nvfp4").scale_tiles()
    assert str(line.value) == ("Quantized.scale_tiles: scales rank is 1, must be at least 2; reshape them to one row")
