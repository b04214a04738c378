"""Packed float4 under every order of axes, with open, given and broadcast extents: the bits of unpacked elements."""

import itertools

import ml_dtypes
import numpy as np
import pytest

import samebits as sb
from samebits.fusion import DataType, FusionDefinition

SHAPES = [(6,), (4, 6), (2, 4, 6), (2, 1, 4, 2)]
ORDERS = [order for shape in SHAPES for order in itertools.permutations(range(len(shape)))]
VALUES = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], np.float32)


def laid(order: tuple[int, ...]) -> np.ndarray:
    """Elements, a byte each, of the shape that has this rank; axis order[0] varies slowest."""
    shape = SHAPES[len(order) - 1]
    values = np.resize(VALUES[::-1], np.prod(shape)).reshape([shape[axis] for axis in order])
    return np.ascontiguousarray(values).astype(ml_dtypes.float4_e2m1fn)


def back(order: tuple[int, ...]) -> tuple[int, ...]:
    """What undoes an order of axes."""
    return tuple(int(axis) for axis in np.argsort(order))


@pytest.mark.parametrize("open_", [False, True], ids=["given", "open"])
@pytest.mark.parametrize("order", ORDERS, ids=lambda order: "".join(map(str, order)))
def test_packed_elements_of_any_stride_order_are_the_unpacked_ones(order: tuple[int, ...], open_: bool) -> None:
    dense = laid(order)
    unpacked, packed = dense.transpose(back(order)), sb.to_packed(dense).permute(back(order))
    rank, shape = len(order), unpacked.shape
    sizes = [-1 if open_ and size > 1 else size for size in shape]
    # nvFuser's stride order says for each axis which place its stride has, counted from the fastest.
    stride_order = [rank - 1 - order.index(axis) for axis in range(rank)]
    with FusionDefinition() as fd:
        contiguity = [None if shape[axis] == 1 else True for axis in order]
        x = fd.define_tensor(sizes, contiguity, DataType.Float4_e2m1fn, stride_order=stride_order)
        y = fd.ops.cast(x, DataType.Float)
        fd.add_output(fd.ops.mul(y, 0.75))
        fd.add_output(fd.ops.sum(y, dims=[rank - 1]))
        fd.add_output(fd.ops.cast(fd.ops.neg(y), DataType.Float4_e2m1fn))
    fd.validate([unpacked])
    for one, other in zip(fd.execute([packed]), fd.execute([unpacked]), strict=True):
        assert sb.Tensor.from_any(one).numpy(copy=True).tobytes() == np.ascontiguousarray(other).tobytes()
    assert np.asarray(fd.execute([unpacked])[0]).tolist() == (unpacked.astype(np.float32) * 0.75).tolist()


def test_elements_may_begin_within_a_byte() -> None:
    with FusionDefinition() as fd:
        fd.add_output(fd.ops.cast(fd.define_tensor([-1, -1], True, DataType.Float4_e2m1fn), DataType.Float))
    dense = laid((0, 1))
    (y,) = fd.execute([sb.to_packed(dense)[:, 1:]])
    assert y.numpy(copy=True).tolist() == dense[:, 1:].astype(np.float32).tolist()


WAYS = {
    "permuted": lambda x: x.permute(2, 0, 1),
    "reversed": lambda x: x.permute(2, 1, 0),
    "every second row": lambda x: x[:, ::2],
    "bytes within rows": lambda x: x[:, :, 1:3],
    "broadcast": lambda x: x[:1].expand(3, 4, 5),
    "axes of one": lambda x: x[:1, :, :1],
    "without elements": lambda x: x[:0].permute(2, 0, 1),
}


@pytest.mark.parametrize("way", WAYS.values(), ids=list(WAYS))
def test_later_runs_on_packed_tensors_of_torch_that_are_not_dense_have_the_bits_of_the_first(way, monkeypatch) -> None:
    torch = pytest.importorskip("torch")
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1, -1], [False] * 3, DataType.Float4_e2m1fn)
        fd.add_output(fd.ops.mul(fd.ops.cast(x, DataType.Float), fd.define_scalar(DataType.Double)))
    drawn = np.random.default_rng(5).integers(0, 256, (2, 3, 4, 5), np.uint8)
    rows = [way(torch.from_numpy(codes).view(torch.float4_e2m1fn_x2)) for codes in drawn]
    wide = [sb.Tensor.from_any(row).numpy(copy=True).astype(np.float32) for row in rows]
    for _ in range(2):
        assert fd.execute([rows[0], 0.75])[0].numpy().tobytes() == (wide[0] * np.float32(0.75)).tobytes()
    if rows[0].numel():
        monkeypatch.setattr("samebits.runtime.cpu.Session.run", None)  # what later runs do without
    for row, values in zip(rows, wide, strict=True):
        assert fd.execute([row, -3.0])[0].numpy().tobytes() == (values * np.float32(-3)).tobytes()
