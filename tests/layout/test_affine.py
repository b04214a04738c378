"""Layout against NumPy's strided views, and its own algebra."""

import copy
import pickle

import numpy as np
import pytest
from drawing import examples
from hypothesis import given
from hypothesis import strategies as st
from views import bits, layout_of, places

from samebits.errors import LayoutError, SamebitsError, ShapeError
from samebits.layout import Key, Layout
from samebits.shapes import MAX_RANK

SHAPES = st.lists(st.integers(0, 4), max_size=4).map(tuple)


@st.composite
def keys(draw: st.DrawFn, shape: tuple[int, ...]) -> Key:
    """A key NumPy accepts for the shape, with None and Ellipsis."""
    parts: list[object] = []
    for extent in shape[: draw(st.integers(0, len(shape)))]:
        part = st.slices(extent)
        if extent:
            part |= st.integers(-extent, extent - 1) | st.integers(-extent, extent - 1).map(np.int64)
        if draw(st.booleans()):
            parts.append(None)
        parts.append(draw(part))
    if draw(st.booleans()):
        parts.append(Ellipsis)
    return tuple(parts)


def numpy_view(view: np.ndarray, key: Key) -> np.ndarray:
    """view[key] as a view; without an Ellipsis NumPy would give a scalar, a copy, for integers alone."""
    return view[key if Ellipsis in key else (*key, Ellipsis)]


@st.composite
def views(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray]:
    """A base array and a view of it: transposed, sliced, reversed, broadcast."""
    base = np.arange(1024, dtype=np.int32)
    shape = draw(SHAPES)
    view = base[: int(np.prod(shape))].reshape(shape, order=draw(st.sampled_from("CF")))
    view = view.transpose(draw(st.permutations(range(view.ndim))))
    view = numpy_view(view, draw(keys(view.shape)))
    if draw(st.booleans()):
        view = np.broadcast_to(view, (2, *view.shape))
    return base, np.asarray(view)


@given(views(), st.data())
def test_slicing_selects_what_numpy_selects(pair: tuple[np.ndarray, np.ndarray], data: st.DataObject) -> None:
    base, view = pair
    key = data.draw(keys(view.shape))
    expected = numpy_view(view, key)
    result = layout_of(view, base)[key]
    assert result == layout_of(expected, base)
    assert result.shape == expected.shape


@given(views(), st.data())
def test_permute_flip_squeeze_unsqueeze_equal_numpy(pair: tuple[np.ndarray, np.ndarray], data: st.DataObject) -> None:
    base, view = pair
    layout = layout_of(view, base)
    axes = data.draw(st.permutations(range(view.ndim)))
    assert layout.permute(axes) == layout_of(view.transpose(axes), base)
    assert layout.squeeze() == layout_of(view.squeeze(), base)
    place = data.draw(st.integers(-view.ndim - 1, view.ndim))
    assert layout.unsqueeze(place) == layout_of(np.expand_dims(view, place), base)
    assert layout.unsqueeze(place).squeeze(place) == layout
    for axis in range(view.ndim):
        assert layout.flip(axis) == layout_of(np.flip(view, axis), base)
        assert layout.flip(axis).flip(axis) == layout


@given(views(), st.data())
@examples(400)
def test_reshape_views_exactly_what_numpy_can_view(pair: tuple[np.ndarray, np.ndarray], data: st.DataObject) -> None:
    base, view = pair
    layout = layout_of(view, base)
    factors = [f for extent in view.shape for f in ((2, extent // 2) if extent == 4 else (extent,))]
    shape: list[int] = []
    for factor in data.draw(st.permutations(factors)) if data.draw(st.booleans()) else factors:
        if shape and data.draw(st.booleans()):
            shape[-1] *= factor
        else:
            shape.append(factor)
        if data.draw(st.booleans()):
            shape.append(1)
    if not shape and view.size != 1:
        shape = [view.size]
    try:
        expected = np.reshape(view, shape, copy=False)
    except ValueError:
        with pytest.raises(LayoutError):
            layout.reshape(shape)
        return
    result = layout.reshape(shape)
    assert result == layout_of(expected, base)
    assert np.array_equal(places(result).ravel(), places(layout).ravel())


@given(views(), st.lists(st.integers(0, 4), max_size=5).map(tuple))
def test_broadcast_equals_numpy(pair: tuple[np.ndarray, np.ndarray], shape: tuple[int, ...]) -> None:
    base, view = pair
    layout = layout_of(view, base)
    for wanted in (shape, (3, *view.shape)):
        try:
            expected = np.broadcast_to(view, wanted)
        except ValueError:
            with pytest.raises(ShapeError):
                layout.broadcast_to(wanted)
        else:
            assert layout.broadcast_to(wanted) == layout_of(expected, base)


@given(views())
def test_facts_equal_numpy(pair: tuple[np.ndarray, np.ndarray]) -> None:
    base, view = pair
    layout = layout_of(view, base)
    assert (layout.size, layout.ndim, layout.shape) == (view.size, view.ndim, view.shape)
    assert layout.is_contiguous("C") == view.flags.c_contiguous
    assert layout.is_contiguous("F") == view.flags.f_contiguous
    if view.ndim <= 5:
        orders = [np.transpose(view, axes).flags.c_contiguous for axes in _all_orders(view.ndim)]
        assert layout.is_contiguous("any") == any(orders)
    if view.size:
        taken = places(layout)
        assert layout.bounds_bits == (taken.min(), taken.max() + 32)
        assert layout.required_bytes == taken.max() // 8 + 4
        assert layout.strides_bits == layout_of(view, base).strides_bits
    else:
        assert layout.bounds_bits == (0, 0)
        assert layout.required_bytes == 0


def _all_orders(ndim: int) -> list[tuple[int, ...]]:
    """Every permutation of the axes."""
    return [()] if ndim == 0 else [(*p[:i], ndim - 1, *p[i:]) for p in _all_orders(ndim - 1) for i in range(ndim)]


@given(SHAPES, st.sampled_from([1, 4, 6, 8, 32]), st.sampled_from(["packed", "padded"]))
def test_dense_puts_elements_side_by_side(shape: tuple[int, ...], width: int, storage: str) -> None:
    pitch = -(-width // 8) * 8 if storage == "padded" else width
    expected = np.arange(int(np.prod(shape))).reshape(shape) * pitch
    layout = Layout.dense(shape, width_bits=width, storage=storage)
    assert np.array_equal(places(layout), expected)
    assert layout.pitch_bits == pitch
    assert layout.is_contiguous("C")
    assert layout.is_contiguous("any")
    fortran = Layout.dense(shape, width_bits=width, storage=storage, order="F")
    assert fortran.is_contiguous("F")
    assert fortran.permute(range(len(shape))[::-1]) == Layout.dense(shape[::-1], width_bits=width, storage=storage)
    assert Layout.dense(shape, width_bits=width, storage=storage, order=range(len(shape))) == layout
    assert Layout.from_strides(shape, layout.strides, layout.offset, width_bits=width, storage=storage) == layout


@given(views())
def test_a_layout_is_a_value(pair: tuple[np.ndarray, np.ndarray]) -> None:
    base, view = pair
    layout = layout_of(view, base)
    for twin in (pickle.loads(pickle.dumps(layout)), copy.deepcopy(layout), eval(repr(layout))):
        assert twin == layout
        assert hash(twin) == hash(layout)
    with pytest.raises(AttributeError):
        layout.shape = ()


def test_strides_that_place_nothing_do_not_distinguish() -> None:
    a = Layout.from_strides((2, 1, 3), (3, 99, 1), width_bits=16)
    assert a == Layout.from_strides((2, 1, 3), (3, -7, 1), width_bits=16) == Layout.dense((2, 1, 3), width_bits=16)
    assert a.strides == (3, 3, 1)
    empty = Layout.from_strides((0, 3), (17, 5), 4, width_bits=16)
    assert empty == Layout.dense((0, 3), width_bits=16)
    assert Layout.dense((2,), width_bits=16, storage="padded") == Layout.dense((2,), width_bits=16)
    assert Layout.dense((2,), width_bits=4, storage="padded") != Layout.dense((2,), width_bits=4)


def test_narrow_elements_have_offsets_in_bits() -> None:
    layout = Layout.dense((4, 8), width_bits=4)[1:, 1:5]
    assert (layout.offset_bits, layout.offset, layout.strides) == (36, 9, (8, 1))
    assert layout.bounds_bits == (36, 36 + 2 * 32 + 4 * 4)
    assert layout.required_bytes == 15
    rows = Layout((3, 5), (32, 6), 0, 6)
    assert rows[:, 0].strides_bytes == (4,)


def test_negative_strides_need_an_offset() -> None:
    layout = Layout.from_strides((4,), (-1,), 3, width_bits=8)
    assert layout.required_bytes == 4
    assert layout == Layout.dense((4,), width_bits=8).flip(0)


def test_layouts_are_not_iterable() -> None:
    with pytest.raises(TypeError):
        iter(Layout.dense((2,), width_bits=8))


def test_k_order_keeps_the_order_of_strides() -> None:
    turned = Layout.dense((2, 3, 4), width_bits=8).permute((1, 2, 0))
    assert turned.stride_order == (2, 0, 1)
    assert turned.to_dense() is turned
    assert turned.to_dense("C") == Layout.dense((3, 4, 2), width_bits=8)
    assert turned.to_dense("F").is_contiguous("F")
    assert turned[:, ::-1].to_dense() == turned
    assert Layout.dense_like(turned, (1, 0, 2)).stride_order == (1, 0, 2)
    repeated = turned.broadcast_to((5, 3, 4, 2))
    assert repeated.to_dense() == Layout.dense((5, 3, 4, 2), width_bits=8, order=(3, 1, 2, 0))


@pytest.mark.parametrize("width", [1, 2, 4, 6, 8, 16])
@pytest.mark.parametrize("factor", [2, 3, 4, 8])
def test_repacked_layouts_take_the_same_bits(width: int, factor: int) -> None:
    layout = Layout.dense((5, 48), width_bits=width)[1:4, 24:]
    wide = layout.repack(width * factor)
    assert wide.shape == (3, 24 // factor)
    assert wide.size * wide.width_bits == layout.size * width
    assert np.array_equal(np.unique(bits(wide)), np.unique(bits(layout)))
    assert wide.repack(width) == layout
    along = layout.permute((1, 0)).repack(width * factor, 0)
    assert along == wide.permute((1, 0))


def test_repacked_elements_of_six_bits_may_begin_at_any_byte() -> None:
    for start in range(4):
        found = Layout.dense((2, 7), width_bits=8)[:, start : start + 3].repack(2).repack(6, address=start)
        assert found == Layout((2, 4), (56, 6), 8 * start, 6)
    with pytest.raises(LayoutError, match="offset_bits is 9, must be a multiple of 2; copy it first"):
        Layout((3,), (2,), 9, 2).repack(6)


def test_repack_keeps_the_limit_of_elements() -> None:
    with pytest.raises(ShapeError, match=r"Layout.repack: shape is .* must be fewer than 2\*\*63 elements"):
        Layout((1 << 12, 1 << 50), (0, 8), 0, 8).repack(1)


def test_repack_splits_anything_along_a_new_axis() -> None:
    columns = Layout.dense((4, 6), width_bits=16)[::-1, ::2]
    halves = columns.unsqueeze(-1).repack(8)
    assert halves.shape == (4, 3, 2)
    assert np.array_equal(np.sort(bits(halves), axis=None), np.sort(bits(columns), axis=None))
    padded = Layout.dense((4,), width_bits=4, storage="padded")
    assert padded.repack(8) == Layout.dense((4,), width_bits=8)
    assert padded.repack(4) == Layout.dense((8,), width_bits=4)
    for width in (4, 8, 16):
        with pytest.raises(LayoutError, match="offset_bits is 4, must be a multiple of"):
            Layout((2,), (8,), 4, 4, "padded").repack(width)
    empty = Layout.dense((2, 0, 3), width_bits=6)
    assert empty.repack(2).shape == (2, 0, 9)
    assert empty.repack(18).shape == (2, 0, 1)
    assert empty.repack(18, address=3).shape == (2, 0, 1)
    assert empty.repack(12, 1) == Layout.dense((2, 0, 3), width_bits=12)


@given(
    st.lists(st.integers(1, 16), min_size=1, max_size=3),
    st.sampled_from([1, 4, 6, 8, 16]),
    st.integers(0, 3),
    st.integers(0, 64),
    st.data(),
)
def test_a_vector_is_what_repack_accepts(
    shape: list[int], width: int, start: int, address: int, data: st.DataObject
) -> None:
    layout = Layout.dense((*shape[:-1], shape[-1] + start), width_bits=width)[..., start:]
    axis = data.draw(st.integers(0, len(shape) - 1))
    vector = layout.max_vector_bits(address, axis=axis, limit=128)
    accepted = [width]
    factor = 2
    while width * factor <= 128:
        try:
            layout.repack(width * factor, axis, address=address)
        except LayoutError:
            break
        accepted.append(width * factor)
        factor *= 2
    assert vector == accepted[-1]
    assert layout.max_vector_bits(limit=1, axis=axis) == width


def test_rows_of_narrow_elements_may_begin_at_bytes() -> None:
    assert Layout.dense((3, 4), width_bits=6).is_byte_aligned()
    assert not Layout.dense((3, 5), width_bits=6).is_byte_aligned()
    assert Layout.dense((1, 5), width_bits=6).is_byte_aligned()
    assert not Layout.dense((3, 4), width_bits=6)[:, 1:].is_byte_aligned()
    assert Layout.dense((4, 3), width_bits=6, order="F").is_byte_aligned(0)


def test_fits_counts_both_ends() -> None:
    layout = Layout.from_strides((4,), (-1,), width_bits=4)
    assert layout.fits(4, 2)
    assert layout.fits(3, 2)
    assert not layout.fits(2, 2)
    assert not layout.fits(4, 1)
    assert Layout.dense((0,), width_bits=8).fits(0)


def test_calling_init_again_changes_nothing() -> None:
    layout = Layout.dense((2, 3), width_bits=8)
    layout.__init__((7,), (8,), 0, 8)
    assert layout == Layout.dense((2, 3), width_bits=8)
    assert layout.size == 6


@pytest.mark.parametrize("bad", [(2.0, 3), (True, 3), ("2", 3), (None, 3), (np.float32(2), 3), (np.array([2, 2]), 3)])
def test_only_integers_are_extents_though_equal_ones_were_seen(bad: tuple[object, int]) -> None:
    for shape in ((1, 3), (2, 3)):
        Layout(shape, (24, 8), 0, 8)
        Layout.dense(shape, width_bits=8).permute((1, 0)).permute((1, 0)).reshape(shape)
    with pytest.raises(LayoutError):
        Layout(bad, (24, 8), 0, 8)
    with pytest.raises(LayoutError):
        Layout.dense((2, 3), width_bits=8).reshape(bad)
    with pytest.raises(LayoutError):
        Layout.dense((2, 3), width_bits=8).permute((bad[0], 0))
    assert Layout((np.int8(2), np.uint64(3)), (24, 8), 0, 8) == Layout.dense((2, 3), width_bits=8)
    assert {type(extent) for extent in Layout((np.int8(2), np.uint64(3)), (24, 8), 0, 8).shape} == {int}


D = Layout.dense((2, 3, 4), width_bits=32)
NIBBLES = Layout.dense((3,), width_bits=4)

ERRORS = {
    "Layout: strides_bits length is 1, must be 2; give one for each axis": lambda: Layout((2, 3), (4,), 0, 8),
    "Layout: width_bits is 0, must be at least 1; use DType.width_bits": lambda: Layout((2,), (4,), 0, 0),
    "Layout: storage is 'loose', must be 'packed' or 'padded'; name one of the two": lambda: Layout(
        (), (), 0, 4, "loose"
    ),
    "Layout: shape is (2.5,), must be a tuple of integers; convert it first": lambda: Layout((2.5,), (4,), 0, 8),
    "Layout: shape is (True,), must be a tuple of integers; convert it first": lambda: Layout((True,), (4,), 0, 8),
    "Layout: shape is 3, must be a tuple of integers; write it as a tuple": lambda: Layout(3, (4,), 0, 8),
    "Layout: shape is (-1,), must be extents of at least 0; count elements": lambda: Layout((-1,), (4,), 0, 8),
    f"Layout: shape is ({2**62}, 2), must be fewer than 2**63 elements; use less": lambda: Layout(
        (2**62, 2), (0, 0), 0, 8
    ),
    f"Layout: shape is (0, {2**63}), must be extents of fewer than 2**57 elements beside 0; use less": lambda: Layout(
        (0, 2**63), (0, 0), 0, 8
    ),
    "Layout: shape is (array([2, 3]),), must be a tuple of integers; convert it first": lambda: Layout(
        (np.array([2, 3]),), (4,), 0, 8
    ),
    "Layout.flip: axis is array([0, 1]), must be an integer; convert it first": lambda: D.flip(np.array([0, 1])),
    f"Layout: span is [0, {2**66}) bits, must be within 64-bit integers; use less": lambda: Layout(
        (5,), (2**64 - 2,), 0, 8
    ),
    "Layout: shape length is 65, must be at most 64; merge axes": lambda: Layout((1,) * 65, (0,) * 65, 0, 8),
    "Layout: rank is 65, must be at most 64; merge axes": lambda: Layout((2,) * 1, (8,), 0, 8)[(None,) * MAX_RANK],
    "Layout.dense: order is 'K', must be 'C', 'F' or axes; give one of these": lambda: Layout.dense(
        (2,), width_bits=8, order="K"
    ),
    "Layout.dense: order is (0, 0), must be a permutation of 2 axes; name each axis once": lambda: Layout.dense(
        (2, 3), width_bits=8, order=(0, 0)
    ),
    "Layout.permute: axes is (0, 1), must be a permutation of 3 axes; name each axis once": lambda: D.permute((0, 1)),
    "Layout.is_contiguous: order is 'K', must be 'C', 'F' or 'any'; give one of these": lambda: D.is_contiguous("K"),
    "Layout.reshape: shape is (5, -1), must be an extent that -1 can stand for with 24 elements; give every extent": (
        lambda: D.reshape((5, -1))
    ),
    "Layout.reshape: shape is (-1, -1), must be extents of at least 0; count elements": lambda: D.reshape((-1, -1)),
    "Layout.reshape: shape is (5, 5), must be of 24 elements like (2, 3, 4); keep the number of elements": (
        lambda: D.reshape((5, 5))
    ),
    "Layout.reshape: layout is (3, 2) with strides_bits (32, 96), must be viewable as (6,); copy it first": (
        lambda: Layout.dense((2, 3), width_bits=32).permute((1, 0)).reshape((6,))
    ),
    "Layout[...]: index of axis 1 is 3, must be in [-3, 3); use an existing one": lambda: D[0, 3],
    "Layout[...]: index of axis 0 is 1.0, must be an integer; convert it first": lambda: D[1.0],
    "Layout[...]: index of axis 0 is True, must be an integer; convert it first": lambda: D[True],
    "Layout[...]: key is 4 indices, must be at most 3; index existing axes only": lambda: D[0, 0, 0, 0],
    "Layout[...]: key is 2 ellipses, must be at most one; leave one of them": lambda: D[..., ...],
    "Layout.broadcast_to: shape is (3, 3, 4), must be one (2, 3, 4) broadcasts to; "
    "extents must be equal or 1, aligned at the last axis": lambda: D.broadcast_to((3, 3, 4)),
    f"Layout.broadcast_to: shape is ({2**62}, 2, 3, 4), must be fewer than 2**63 elements; use less": (
        lambda: D.broadcast_to((2**62, 2, 3, 4))
    ),
    "Layout.squeeze: axis 1 extent is 3, must be 1; index it instead": lambda: D.squeeze(1),
    "Layout.squeeze: axis is 3, must be in [-3, 3); use an existing one": lambda: D.squeeze(3),
    "Layout.unsqueeze: axis is 4, must be in [-4, 4); use an existing one": lambda: D.unsqueeze(4),
    "Layout.unsqueeze: axis is (0, 0), must be distinct; name each axis once": lambda: D.unsqueeze((0, -5)),
    "Layout.squeeze: axis is 1.0, must be a tuple of integers; write it as a tuple": lambda: D.squeeze(1.0),
    "Layout.flatten: end is 0, must be at least 2, the start; name the axes in their order": lambda: D.flatten(2, 0),
    "Layout.flatten: start is 3, must be in [-3, 3); use an existing one": lambda: D.flatten(3),
    "Layout.flatten: layout is (4, 3, 2) with strides_bits (32, 128, 384), must be viewable as (24,); copy it first": (
        lambda: D.permute((2, 1, 0)).flatten()
    ),
    "Layout.unflatten: shape is (3, 2), must be of 4 elements like (4,); keep the number of elements": (
        lambda: D.unflatten(-1, (3, 2))
    ),
    "Layout.diagonal: (axis1, axis2) is (1, 1), must be distinct; name each axis once": lambda: D.diagonal(0, 1, -2),
    "Layout.diagonal: skew is (0.5,), must be a tuple of integers; convert it first": lambda: D.diagonal(0.5),
    "Layout.sliding_window: window is (4,), must be within (2, 3, 4) along axes (1,); use a smaller window": (
        lambda: D.sliding_window(4, 1)
    ),
    "Layout.sliding_window: window length is 1, must be 3; give one for each axis": lambda: D.sliding_window(2),
    "Layout.sliding_window: window is (0,), must be extents of at least 1; leave the axis out": (
        lambda: D.sliding_window(0, 1)
    ),
    f"Layout.sliding_window: shape is ({2**60}, {2**60}), must be fewer than 2**63 elements; use less": (
        lambda: Layout.dense((2**61 - 1,), width_bits=1).sliding_window(2**60, 0)
    ),
    "Layout.repack: width_bits is 48, must be a multiple or a divisor of 32; repack to a common divisor first": (
        lambda: D.repack(48)
    ),
    "Layout.repack: width_bits is 0, must be a multiple or a divisor of 32; repack to a common divisor first": (
        lambda: D.repack(0)
    ),
    "Layout.repack: axis 2 extent is 4, must be a multiple of 8; copy it first": lambda: D.repack(256),
    "Layout.repack: axis 0 stride is 384, must be 32 bits, one element; copy it first": lambda: D.repack(64, 0),
    "Layout.repack: offset_bits is 32, must be a multiple of 64; copy it first": lambda: D[..., 1:3].repack(64),
    "Layout.repack: axis 0 stride in bits is 96, must be a multiple of 64; copy it first": (
        lambda: Layout.from_strides((2, 2), (3, 1), width_bits=32).repack(64)
    ),
    "Layout.repack: address in bits is 32, must be a multiple of 64; copy it first": lambda: D.repack(64, address=4),
    "Layout.dense_like: order is 'A', must be 'C', 'F', 'K' or axes; give one of these": lambda: D.to_dense("A"),
    "Layout[...]: slice of axis 0 is slice(None, None, 0), must be of integers or None, with a step that is not 0; "
    "use slice(None) for all": lambda: D[::0],
    "Layout[...]: slice of axis 1 is slice(1.0, None, None), must be of integers or None, with a step that is not 0; "
    "use slice(None) for all": lambda: D[:, 1.0:],
    "Layout[...]: slice of axis 0 is slice(True, None, None), must be of integers or None, with a step that is not 0; "
    "use slice(None) for all": lambda: D[True:],
    "Layout.overlaps: other type is tuple, must be Layout; give the layout of what might overlap": (
        lambda: D.overlaps((2, 3))
    ),
    "Layout.overlaps: delta_bits is (0.5,), must be a tuple of integers; convert it first": lambda: D.overlaps(D, 0.5),
    "Layout.flip: axis is -4, must be in [-3, 3); use an existing one": lambda: D.flip(-4),
    "Layout.strides: layout is 32 bits, must be whole elements of 6 bits; use the count in bits": (
        lambda: Layout((3, 5), (32, 6), 0, 6).strides
    ),
    "Layout.offset_bytes: layout is 4 bits, must be whole bytes of 8 bits; use the count in bits": (
        lambda: NIBBLES[1:].offset_bytes
    ),
    "Layout.required_bytes: first bit is -24, must be at least 0; add an offset": lambda: (
        Layout.from_strides((4,), (-1,), width_bits=8).required_bytes
    ),
}


@pytest.mark.parametrize("text", ERRORS)
def test_each_bad_input_has_one_clear_error(text: str) -> None:
    with pytest.raises(SamebitsError) as error:
        ERRORS[text]()
    assert isinstance(error.value, LayoutError | ShapeError)
    assert str(error.value) == text


def test_an_ellipsis_stands_anywhere() -> None:
    base = np.zeros((2, 3, 4), np.float32)
    for key in ((..., 1), (1, ...), (1, ..., 2), (..., None), (None, ..., None, 1), (...,)):
        assert layout_of(base, base)[key] == layout_of(base[key], base)
