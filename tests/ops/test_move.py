"""Copies, fills and conversions of layout and storage against NumPy, ml_dtypes and the elements that tensors read."""

from typing import Any

import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
import torch
from drawing import examples
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import samebits as sb
from samebits import Layout, Tensor, dtypes
from samebits.dtypes import DType
from samebits.errors import DTypeError, ExchangeError, LayoutError, OptionError, SamebitsError, ShapeError
from samebits.memory import allocate
from samebits.ops import move

NARROW = [row for row in dtypes.ROWS if row.width_bits < 8]


def sample(row: DType, shape: tuple[int, ...], storage: Any = "packed") -> Tensor:
    """A dense tensor of random code points."""
    layout = Layout.dense(shape, width_bits=row.width_bits, storage=storage)
    t = Tensor(allocate(layout.required_bytes), layout, row)
    codes = np.random.default_rng(0).integers(0, 256, layout.required_bytes, np.uint8)
    t.buffer.array()[:] = codes & 1 if row.kind == "bool" else codes
    return t


@pytest.mark.parametrize("row", dtypes.ROWS, ids=repr)
def test_copies_of_any_view_have_its_bits(row: DType) -> None:
    for storage in ("packed", "padded"):
        t = sample(row, (5, 6, 7), storage)
        for view in (t, t.T, t[1:, ::2], t[:, :, 1:], t.flip(2)[::-2], t[2, 3, 1], t[:0], t[0].broadcast_to((2, 6, 7))):
            for order in ("C", "F", "K", tuple(range(view.ndim))[::-1]):
                c = sb.copy(view, order=order)
                assert c.equal_bits(view)
                assert (c.layout.storage, c.read_only) == (view.layout.storage, False)
                assert c.layout.is_contiguous("any")
                assert isinstance(order, tuple) or order == "K" or c.layout.is_contiguous(order)
            packed, padded = sb.to_packed(view), sb.to_padded(view)
            assert packed.equal_bits(view)
            assert padded.equal_bits(view)
            for c in (packed, padded, sb.contiguous(view)):
                assert c.layout.is_contiguous()
                assert c.layout.offset_bits % 8 == 0
            if row in NARROW:
                assert (packed.layout.storage, padded.layout.storage) == ("packed", "padded")
                assert sb.copy(view, storage="padded").layout.storage == "padded"


def test_out_whose_elements_share_bits_is_told_in_bits() -> None:
    x = Tensor.zeros((9,), "float6_e2m3fn")
    out = Tensor(x.buffer, Layout((4,), (5,), 0, 6), x.dtype)
    with pytest.raises(LayoutError) as error:
        sb.copy(Tensor.zeros((4,), x.dtype), out=out)
    assert str(error.value) == (
        "copy: out layout is (4,) with strides_bits (5,), must be one with a place for each element; pass another array"
    )


@pytest.mark.parametrize("row", [dtypes.float32, dtypes.float4_e2m1fn, dtypes.float6_e2m3fn], ids=repr)
def test_views_along_a_buffer_share_a_plan(row: DType) -> None:
    t = sample(row, (64, 3))
    before = move._prepared.cache_info().misses
    for k in range(64):
        assert sb.copy(t[k]).equal_bits(t[k])
        assert sb.copy(t[k, ::-1]).equal_bits(t[k, ::-1])
    # A row of three elements of 4 or 6 bits begins at one of at most four bits of a byte.
    assert move._prepared.cache_info().misses - before <= 2 * 4


@pytest.mark.parametrize("row", NARROW, ids=repr)
def test_packing_takes_ml_dtypes_arrays_and_gives_them_back(row: DType) -> None:
    rng = np.random.default_rng(1)
    x = rng.integers(0, 1 << row.width_bits, (9, 11), np.uint8).view(row.numpy)
    packed = sb.to_packed(x[1:, ::-2])
    assert type(packed) is Tensor
    bits = np.unpackbits(np.ascontiguousarray(x[1:, ::-2]).view(np.uint8).reshape(-1, 1), axis=1, bitorder="little")
    assert packed.buffer.array().tobytes() == np.packbits(bits[:, : row.width_bits], bitorder="little").tobytes()
    back = sb.to_padded(packed).numpy()
    assert back.dtype == x.dtype
    assert np.array_equal(back.view(np.uint8), x[1:, ::-2].copy().view(np.uint8))
    assert sb.to_packed(packed) is packed
    assert sb.to_padded(x) is x


@given(hnp.arrays(np.float32, hnp.array_shapes(min_dims=0, max_dims=4, min_side=0)), st.data())
@examples(50)
def test_copy_and_contiguous_of_numpy_arrays_equal_numpys(x: np.ndarray, data: st.DataObject) -> None:
    view = x.transpose(data.draw(st.permutations(range(x.ndim))))
    if x.ndim:
        view = view[:: data.draw(st.sampled_from([1, 2, -1]))]
    for order in ("C", "F"):
        c = sb.copy(view, order=order)
        assert type(c) is np.ndarray
        assert c.tobytes() == view.tobytes()
        assert c.flags.c_contiguous if order == "C" else c.flags.f_contiguous
        assert not np.shares_memory(c, x)
        d = sb.contiguous(view, order=order)
        assert d.tobytes() == view.tobytes()
        assert (d is view) == (view.flags.c_contiguous if order == "C" else view.flags.f_contiguous)


def test_kinds_stay() -> None:
    x = torch.arange(6).reshape(2, 3)
    c = sb.copy(x.T)
    assert type(c) is torch.Tensor
    assert torch.equal(c, x.T)
    assert sb.contiguous(x) is x
    assert sb.contiguous([[1, 2], [3, 4]]).tolist() == [[1, 2], [3, 4]]
    assert sb.copy(3.5).tolist() == 3.5
    assert sb.contiguous(sb.copy(x, order="F"), order="any").is_contiguous() is False
    assert sb.copy(np.arange(5).astype(ml_dtypes.bfloat16)[::2]).tolist() == [0, 2, 4]


def test_narrow_elements_are_copied_to_what_their_kind_of_array_has() -> None:
    """Pairs in torch, a byte each in JAX, whose arrays come in packed."""
    x = np.arange(16).astype(np.uint8).reshape(2, 8)
    pairs = sb.to_packed(x.view(ml_dtypes.float4_e2m1fn)).torch()
    assert sb.copy(pairs).dtype == torch.float4_e2m1fn_x2
    assert Tensor.from_any(sb.copy(pairs)).equal_bits(Tensor.from_any(pairs))
    small = jnp.asarray(np.arange(-3, 4)).astype(jnp.int4)
    assert sb.copy(small).tolist() == small.tolist()


@pytest.mark.parametrize("row", dtypes.ROWS, ids=repr)
def test_out_takes_the_elements_and_nothing_else_changes(row: DType) -> None:
    for storage in ("packed", "padded"):
        whole = sample(row, (7, 9), storage)
        before = whole.copy()
        source = sb.copy(sample(row, (5, 4))[:, ::-1])
        target = whole[1:6, 2:6]
        assert sb.copy(source, out=target) is target
        assert target.equal_bits(source)
        for rest in (np.s_[:1], np.s_[6:], np.s_[:, :2], np.s_[:, 6:]):
            assert whole[rest].equal_bits(before[rest])
        assert sb.fill(target, 1 if row.max >= 1 else 0, threads=2) is target
        assert (target.values() == (1 if row.max >= 1 else 0)).all()
        for rest in (np.s_[:1], np.s_[6:], np.s_[:, :2], np.s_[:, 6:]):
            assert whole[rest].equal_bits(before[rest])


def test_fill_of_other_libraries_arrays() -> None:
    x, y = np.empty((3, 5), np.float16), torch.empty((3, 5), dtype=torch.bfloat16)
    assert sb.fill(x[:, ::2], 0.1).base is x
    assert (x[:, ::2] == np.float16(0.1)).all()
    assert sb.fill(y, -2) is y
    assert (y == -2).all()


@pytest.mark.parametrize("name", ["int4", "float6_e2m3fn", "uint1", "bfloat16", "float64"])
def test_threads_and_rows_give_the_same_bits(name: str) -> None:
    t = sample(dtypes.of(name), (257, 1025))
    view = t[:, 1:]
    due = view.digest()
    for isa in sb.isas():
        if isa.available and isa.compiled:
            with sb.use_isa(isa):
                for threads in (1, 2, 3):
                    assert sb.copy(view, threads=threads).digest() == due
                    assert sb.copy(view.T, threads=threads).T.digest() == due
                    assert sb.to_padded(view, threads=threads).digest() == due


def test_elements_that_are_no_multiple_of_their_size_apart_are_copied() -> None:
    data = np.random.default_rng(2).integers(0, 256, 100, np.uint8)
    buffer = Tensor.from_any(data).buffer
    for layout, row in (
        (Layout((5, 3), (112, 36), 16, 8), dtypes.uint8),
        (Layout((4, 3), (128, 24), 32, 16), dtypes.float16),
        (Layout((4, 3), (133, 40), 0, 32), dtypes.int32),
        (Layout((4,), (-72,), 512, 64), dtypes.float64),
    ):
        t = Tensor(buffer, layout, row)
        assert sb.copy(t).equal_bits(t)
        assert sb.contiguous(t).layout.is_contiguous()


def shared(name: str) -> Tensor:
    """Eight elements."""
    return Tensor.zeros((8,), name)


ERRORS: dict[str, tuple[type[SamebitsError], Any]] = {
    "copy: order and storage is ('F', None), must be out's; leave them out, or out": (
        OptionError,
        lambda: sb.copy(shared("int4"), order="F", out=shared("int4")),
    ),
    "copy: out dtype is uint4, must be int4; convert it first": (
        DTypeError,
        lambda: sb.copy(shared("int4"), out=shared("uint4")),
    ),
    "copy: out shape is (8,), must be (4,); pass an array of that shape": (
        ShapeError,
        lambda: sb.copy(shared("int4")[:4], out=shared("int4")),
    ),
    "copy: storage is padded, must be packed for an array of torch; pass Tensor.from_any(x)": (
        LayoutError,
        lambda: sb.copy(sb.to_packed(np.zeros(4, ml_dtypes.float4_e2m1fn)).torch(), storage="padded"),
    ),
    "copy: storage is packed, must be padded for an array of numpy; pass Tensor.from_any(x)": (
        LayoutError,
        lambda: sb.copy(np.zeros(3, ml_dtypes.int4), storage="packed"),
    ),
    "Layout.dense: order is 'A', must be 'C', 'F' or axes; give one of these": (
        LayoutError,
        lambda: sb.copy(shared("int4"), order="A"),  # type: ignore[arg-type]
    ),
    "fill: value is 8, must be a whole number within [-8, 7] for int4; choose another dtype": (
        DTypeError,
        lambda: sb.fill(shared("int4"), 8),
    ),
    "fill: out type is list, must be an array; make one with numpy.empty": (ExchangeError, lambda: sb.fill([1], 2)),
    "fill: out memory is read-only, must be writable; pass another array": (
        ExchangeError,
        lambda: sb.fill(np.broadcast_to(np.float32(1), (3,)), 2),
    ),
}


@pytest.mark.parametrize("text", ERRORS)
def test_each_bad_call_has_one_clear_error(text: str) -> None:
    kind, use = ERRORS[text]
    with pytest.raises(kind) as error:
        use()
    assert str(error.value) == text


@pytest.mark.parametrize("name", ["int4", "float32"])
def test_out_may_not_share_elements_with_x(name: str) -> None:
    t = shared(name)
    for source, target in ((t[1:], t[:-1]), (t, t.flip(0)), (t[:5], t[3:]), (t, t)):
        with pytest.raises(
            LayoutError, match=r"copy: out memory is that of an operand, must be its own; leave out= away"
        ):
            sb.copy(source, out=target)
    sb.fill(t[:4], 1)
    assert sb.copy(t[:4], out=t[4:]).tolist() == [1] * 4
    with pytest.raises(LayoutError, match="must be one with a place for each element"):
        sb.fill(t[:1].broadcast_to((3,)), 1)


# -- concat and take ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["float32", "int8", "float16", "bool", "uint64"])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_concat(kind: str, axis: int) -> None:
    arrays = [
        np.arange(24).reshape(2, 3, 4).astype(kind),
        np.ones((2, 3, 4), kind)[:, ::-1],
        np.zeros((4, 3, 2), kind).T,
    ]
    made = sb.concat(arrays, axis)
    assert made.dtype == arrays[0].dtype
    assert np.array_equal(made, np.concatenate(arrays, axis))


def test_concat_of_one_and_of_nothing() -> None:
    x = np.ones((2, 0))
    assert sb.concat([x]).shape == (2, 0)
    assert sb.concat([x, np.ones((2, 3))], 1).tolist() == [[1, 1, 1]] * 2
    with pytest.raises(sb.OptionError, match=r"concat: arrays is \[\], must be a list or tuple of arrays"):
        sb.concat([])
    with pytest.raises(sb.ShapeError, match=r"concat: arrays\[1\] shape is \(3, 3\), must be that of arrays\[0\]"):
        sb.concat([x, np.ones((3, 3))], 1)
    with pytest.raises(sb.DTypeError, match=r"concat: arrays\[1\] dtype is float32, must be float64"):
        sb.concat([x, x.astype(np.float32)])
    with pytest.raises(sb.LayoutError, match="concat: axis"):
        sb.concat([x], 2)


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_take(axis: int) -> None:
    x = np.arange(60).reshape(3, 4, 5).astype(np.float32)
    for indices in (np.array([2, -1, 0]), np.array([[0, 1], [-3, 2]]), np.array(1), np.zeros((0,), np.int64)):
        for lies in (x, np.asfortranarray(x), x[:, ::-1]):
            assert np.array_equal(sb.take(lies, indices, axis), np.take(lies, indices, axis))


def test_what_take_refuses() -> None:
    x = np.ones((3, 4))
    with pytest.raises(sb.ShapeError, match=r"take: an index is 3, must be in \[-3, 3\)"):
        sb.take(x, np.array([0, 3]))
    with pytest.raises(sb.DTypeError, match="take: indices dtype is int32, must be int64"):
        sb.take(x, np.array([0], np.int32))
    with pytest.raises(sb.ShapeError, match="extents"):
        sb.take(np.ones((0, 4)), np.array([0]))


@pytest.mark.parametrize("kind", ["float32", "float4_e2m1fn"])
def test_take_looks_at_indices_where_nothing_is_taken(kind: str) -> None:
    for shape, axis in [((3, 0), 0), ((2, 0, 3), 2), ((0, 3), 1)]:
        x = Tensor.empty(shape, dtypes.of(kind))
        assert sb.take(x, np.array([2, -3]), axis).shape == (*shape[:axis], 2, *shape[axis + 1 :])
        with pytest.raises(ShapeError) as error:
            sb.take(x, np.array([0, 3]), axis)
        assert str(error.value) == "take: an index is 3, must be in [-3, 3); give indices that exist"
    nothing = Tensor.empty((0, 0), dtypes.of(kind))
    assert sb.take(nothing, np.zeros(0, np.int64)).shape == (0, 0)
    with pytest.raises(ShapeError) as error:
        sb.take(nothing, np.array([0]))
    remedy = "give elements to index, or no indices"
    assert str(error.value) == f"take: x extents is (0,), must be at least 1; {remedy}"
