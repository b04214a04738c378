"""Tiled layouts against formulas and reshapes that others publish."""

import itertools
import math
import pickle
import random

import numpy as np
import pytest
from views import places

from samebits.errors import LayoutError, SamebitsError
from samebits.layout import Layout, Swizzle, TiledLayout


def table(layout: TiledLayout) -> np.ndarray:
    """`element` of every coordinate."""
    found = [layout.element(*index) for index in np.ndindex(*layout.shape)]
    return np.array(found, np.int64).reshape(layout.shape)


def blocked(scales: np.ndarray) -> np.ndarray:
    """The scales in storage order, -1 for padding: 32 runs of 16 a tile, run r with rows r, 32 + r, 64 + r, 96 + r.

    So cuBLAS draws a tile (CUDA 13.0, section "1D Block Scaling Factors Layout"), and so torchao's to_blocked moves it.
    """
    tiles = [np.full((128, 4), -1) for _ in range(-(-scales.shape[0] // 128) * -(-scales.shape[1] // 4))]
    starts = itertools.product(range(0, scales.shape[0], 128), range(0, scales.shape[1], 4))
    stored = []
    for tile, (row, column) in zip(tiles, starts, strict=True):
        part = scales[row : row + 128, column : column + 4]
        tile[: part.shape[0], : part.shape[1]] = part
        stored += [tile[r + 32 * quarter] for r in range(32) for quarter in range(4)]
    return np.concatenate(stored)


@pytest.mark.parametrize("shape", [(128, 4), (256, 8), (1, 1), (129, 5), (300, 3), (384, 12)])
def test_scale_tiles_lie_as_cublas_documents(shape: tuple[int, int]) -> None:
    names = np.arange(math.prod(shape)).reshape(shape)
    stored = blocked(names)
    layout = TiledLayout.scales_128x4(*shape)
    found = table(layout)
    assert np.array_equal(stored[found], names)
    assert layout.padded_size == layout.required_bytes == stored.size
    m, k = np.indices(shape)
    tiles = -(-shape[1] // 4)
    assert np.array_equal(found, ((m // 128 * tiles + k // 4) * 32 + m % 32) * 16 + m % 128 // 32 * 4 + k % 4)


@pytest.mark.parametrize("block", [16, 32])
def test_elements_of_a_block_share_their_scale(block: int) -> None:
    rows, scales = 130, 5
    layout = TiledLayout.scales_128x4(rows, scales * block, block=block)
    of_scales = TiledLayout.scales_128x4(rows, scales)
    for m, k in itertools.product((0, 1, 31, 32, 127, 128, 129), range(scales * block)):
        assert layout.bit(m, k) == of_scales.bit(m, k // block)
    assert layout.padded_size == of_scales.padded_size
    assert TiledLayout.scales_128x4(rows, scales * block - 3, block=block).padded_size == layout.padded_size


def test_scale_tiles_read_as_an_affine_view() -> None:
    layout = TiledLayout.scales_128x4(256, 8)
    view = layout.affine()
    assert view.shape == (2, 4, 32, 2, 4)
    assert view.strides == (1024, 4, 16, 512, 1)
    assert np.array_equal(places(view).reshape(256, 8), table(layout) * 8)
    assert view.is_unique() is True
    with pytest.raises(LayoutError):
        view.reshape((256, 8))
    ragged = TiledLayout.scales_128x4(130, 8)
    assert ragged.affine(padded=True).shape == (2, 4, 32, 2, 4)
    with pytest.raises(LayoutError) as error:
        ragged.affine()
    assert str(error.value) == (
        "TiledLayout.affine: axis 0 extent is 130 of (2, 4, 32), must be whole pieces; pass padded=True"
    )
    assert TiledLayout.scales_128x4(64, 2).affine().shape == (1, 2, 32, 1, 2)


def test_groups_begin_at_whole_tiles() -> None:
    rows = (5, 0, 128, 200)
    groups = TiledLayout.grouped_scales_128x4(rows, 7)
    assert [group.offset_bits // 8 for group in groups] == [0, 1024, 1024, 2048]
    taken = np.concatenate([table(group).ravel() for group in groups])
    assert len(np.unique(taken)) == taken.size
    assert groups[-1].required_bytes == 2048 + 256 * 8
    assert groups[1].size == 0
    padded = TiledLayout.scales_128x4(512, 7)
    assert groups[3].element(199, 6) == padded.element(256 + 199, 6)


def test_blocks_lie_one_after_the_other() -> None:
    matrix = np.arange(6 * 8).reshape(6, 8)
    layout = TiledLayout.blocks((6, 8), (2, 4), width_bits=4)
    stored = matrix.reshape(3, 2, 2, 4).transpose(0, 2, 1, 3).ravel()
    assert np.array_equal(stored[table(layout)], matrix)
    assert np.array_equal(places(layout.affine()).reshape(6, 8), table(layout) * 4)
    ragged = TiledLayout.blocks((5, 7), (2, 4), width_bits=4)
    assert ragged.padded_shape == (6, 8)
    assert ragged.required_bytes == 24
    assert np.array_equal(table(ragged), table(layout)[:5, :7])


def test_block_scales_are_shared_by_blocks() -> None:
    layout = TiledLayout.block_scales((5, 300), (2, 128), width_bits=32)
    m, k = np.indices((5, 300))
    assert np.array_equal(table(layout), m // 2 * 3 + k // 128)
    assert layout.padded_size == 9
    assert layout.required_bytes == 36


def test_any_nesting_equals_its_affine_layout() -> None:
    rng = random.Random(9)
    for _ in range(300):
        pieces = tuple(tuple(rng.randint(1, 4) for _ in range(rng.randint(0, 3))) for _ in range(rng.randint(0, 3)))
        strides = tuple(tuple(rng.randint(-9, 9) for _ in axis) for axis in pieces)
        full = tuple(math.prod(axis) for axis in pieces)
        layout = TiledLayout(full, pieces, strides, 5, 4)
        found = [layout.bit(*index) for index in np.ndindex(*full)]
        assert found == places(layout.affine()).ravel().tolist()
        assert layout.affine() == layout.affine(padded=True)
        cut = tuple(rng.randint(1, extent) for extent in full)
        part = TiledLayout(cut, pieces, strides, 5, 4)
        kept = np.array(found).reshape(full)[tuple(slice(extent) for extent in cut)]
        assert [part.bit(*index) for index in np.ndindex(*cut)] == kept.ravel().tolist()
        try:
            view = part.affine()
        except LayoutError:
            continue
        assert places(view).ravel().tolist() == kept.ravel().tolist()


def test_a_tiled_layout_is_a_value() -> None:
    layout = TiledLayout.scales_128x4(np.int64(130), 5, block=16)
    assert pickle.loads(pickle.dumps(layout)) == layout == eval(repr(layout))
    assert hash(layout) == hash(TiledLayout.scales_128x4(130, 5, block=16))
    assert (layout.ndim, layout.size, layout.padded_shape) == (2, 650, (256, 64))
    assert TiledLayout.scales_128x4(0, 5).required_bytes == 0
    with pytest.raises(AttributeError):
        layout.shape = ()


ERRORS = {
    "TiledLayout: strides_bits is ((1, 2),), must be nested as pieces are; give one for each piece": lambda: (
        TiledLayout((4,), ((4,),), ((1, 2),), 0, 8)
    ),
    "TiledLayout: pieces is ((4,),), must be one row for each axis of (5,), of at least its extent; "
    "round the outer extent up": lambda: TiledLayout((5,), ((4,),), ((8,),), 0, 8),
    "TiledLayout: pieces is ((4,),), must be one row for each axis of (2, 2), of at least its extent; "
    "round the outer extent up": lambda: TiledLayout((2, 2), ((4,),), ((8,),), 0, 8),
    "TiledLayout: shape is (True,), must be a tuple of integers; convert it first": lambda: TiledLayout(
        (True,), ((4,),), ((8,),), 0, 8
    ),
    "TiledLayout.bit: index is (1,), must be 2 indices; give one for each axis": lambda: TiledLayout.scales_128x4(
        4, 4
    ).bit(1),
    "TiledLayout.bit: index of axis 1 is 4, must be in [-4, 4); use an existing one": lambda: TiledLayout.scales_128x4(
        4, 4
    ).bit(1, 4),
    "TiledLayout.element: place is 5 bits, must be whole elements of 4 bits; use bit": lambda: TiledLayout(
        (4,), ((4,),), ((5,),), 0, 4
    ).element(1),
    "TiledLayout.scales_128x4: block is 0, must be at least 1; use 16 for NVFP4, 32 for MX": lambda: (
        TiledLayout.scales_128x4(4, 4, block=0)
    ),
    "TiledLayout.blocks: block is (2, 0), must be 2 extents of at least 1; give one for each axis": lambda: (
        TiledLayout.blocks((4, 4), (2, 0), width_bits=8)
    ),
    "Swizzle: (bits, base, shift) is (3, 4, 2), must be 0 <= bits <= shift, base >= 0 and base + shift + bits <= 63; "
    "see CuTe": lambda: Swizzle(3, 4, 2),
    "Swizzle: place is -1, must be in [0, 2**63); count from the tile's start": lambda: Swizzle(3, 4, 3)(-1),
}


@pytest.mark.parametrize("text", ERRORS)
def test_each_bad_input_has_one_clear_error(text: str) -> None:
    with pytest.raises(SamebitsError) as error:
        ERRORS[text]()
    assert isinstance(error.value, ValueError)
    assert str(error.value) == text


def test_a_swizzle_spreads_a_column_over_the_banks() -> None:
    """128-byte rows of eight 16-byte chunks: chunk c of row r goes to chunk c ^ r (CUDA guide, TMA swizzle modes)."""
    swizzle = Swizzle(3, 4, 3)
    for row, chunk in itertools.product(range(16), range(8)):
        assert swizzle(row * 128 + chunk * 16) == row * 128 + (chunk ^ row % 8) * 16
    for swizzle in (Swizzle(1, 4, 3), Swizzle(2, 4, 3), Swizzle(0, 0, 0)):
        assert sorted(map(swizzle, range(4096))) == list(range(4096))
        assert all(swizzle(swizzle(place)) == place for place in range(4096))


def test_a_swizzle_reaches_as_far_as_a_place_does() -> None:
    """The bits that change others are below bit 63, so that every place has one."""
    top = (1 << 63) - 1
    for bits in (0, 1, 2, 5):
        for base in range(64):
            for shift in range(bits, 64):
                fits = base + shift + bits <= 63
                if not fits:
                    with pytest.raises(LayoutError):
                        Swizzle(bits, base, shift)
                    continue
                swizzle = Swizzle(bits, base, shift)
                for place in (0, 1, top, top ^ (1 << min(base, 62)), 1 << min(base + shift, 62)):
                    moved = swizzle(place)
                    assert 0 <= moved <= top
                    assert swizzle(moved) == place
    assert Swizzle(1, 40, 22)(1 << 62) == 1 << 62 | 1 << 40
    with pytest.raises(LayoutError):
        Swizzle(1, 40, 23)  # bit 63 is no place's
    for where in (top + 1, -1):
        with pytest.raises(LayoutError):
            Swizzle(1, 4, 3)(where)


def test_swizzled_places_are_no_layout() -> None:
    rows = Layout.dense((8, 8), width_bits=128)
    moved = [Swizzle(3, 4, 3)(int(bit) // 8) for bit in places(rows)[:, 0]]
    assert [place % 128 // 16 for place in moved] == list(range(8))
