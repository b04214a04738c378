"""`grouped_mm`: each group is the product of its part alone, whatever the sizes, which plan nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import rows
import torch

import samebits as sb
from samebits import dtypes
from samebits.codegen import isa as isas
from samebits.codegen.isa import Isa
from samebits.errors import FusionError
from samebits.fusion import DataType, FusionDefinition
from samebits.fusion.cache import key_of

G, M, K, N = 4, 37, 24, 16
ENDS = ([5, 5, 20, 37], [10, 12, 14, 30], [0, 0, 0, 0], [37, 37, 37, 37])
RANKS = ((2, 3), (3, 2), (2, 2))
SHAPES = {(2, 3): ((M, K), (G, K, N)), (3, 2): ((G, 9, K), (K, M)), (2, 2): ((9, M), (M, 12))}
SCALES = {(2, 3): ((M, 1), (G, 1, N)), (3, 2): ((G, 9, 1), (1, M)), (2, 2): ((G, 9, 1), (G, 1, 12))}


def made(ranks: tuple[int, int], dtype: DataType, scaled: bool = False, kind: DataType = DataType.Int) -> Any:
    with FusionDefinition() as fd:
        a, b = (fd.define_tensor([-1] * rank, contiguity=True, dtype=dtype) for rank in ranks)
        ends = fd.define_tensor([-1], contiguity=True, dtype=kind)
        if not scaled:
            fd.add_output(fd.ops.grouped_mm(a, b, ends))
            return fd
        scales = [fd.define_tensor([1 if e == 1 else -1 for e in s], contiguity=True) for s in SCALES[ranks]]
        out, *nothing = fd.ops.grouped_mm(a, b, ends, *scales, dtype=DataType.Half)
        assert nothing == [None, None]
        fd.add_output(out)
    return fd


def drawn(shape: tuple[int, ...], dtype: dtypes.DType, seed: int) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32).astype(dtype.numpy)


def parts(a: Any, b: Any, ends: list[int], product: Callable[..., Any], scales: Any = (None, None)) -> Any:
    """Group by group."""
    ranks, start = (a.ndim, b.ndim), 0
    found = []
    for number, end in enumerate(ends):
        part = slice(start, end)
        left = a[number] if ranks[0] == 3 else a[part] if ranks[1] == 3 else a[:, part]
        right = b[number] if ranks[1] == 3 else b[:, part] if ranks[0] == 3 else b[part]
        more = {}
        if scales[0] is not None:
            x, y = scales
            more["a_scale"] = x[number] if x.ndim == 3 else x[part]
            more["b_scale"] = y[number] if y.ndim == 3 else y[:, part]
        found.append(product(left, right, **more))
        start = end
    if ranks == (2, 2):
        return np.stack(found)
    axis = 0 if ranks[1] == 3 else 1
    rest = (M - start, b.shape[-1]) if axis == 0 else (a.shape[-2], M - start)
    return np.concatenate([*found, np.zeros(rest, found[0].dtype)], axis)


@rows.in_turn("isa, ranks", RANKS, 0, always=[isas.best()], among=rows.AVAILABLE)
def test_a_group_is_the_product_of_its_part(isa: Isa, ranks: tuple[int, int]) -> None:
    for dtype, row in ((DataType.Float, dtypes.float32), (DataType.BFloat16, dtypes.bfloat16)):
        a, b = (drawn(shape, row, seed) for seed, shape in enumerate(SHAPES[ranks]))
        with sb.use_isa(isa):
            fd = made(ranks, dtype)
            for ends in ENDS:
                (found,) = fd.validate([a, b, np.array(ends)])
                due = parts(a, b, ends, sb.matmul)
                assert found.dtype == due.dtype
                assert found.tobytes() == due.tobytes(), ends
        assert len(fd.fec._sessions) == 1


@pytest.mark.parametrize("ranks", RANKS, ids=str)
def test_scales_of_rows_and_columns(ranks: tuple[int, int]) -> None:
    row = dtypes.float8_e4m3fn
    a, b = (drawn(shape, row, seed) for seed, shape in enumerate(SHAPES[ranks]))
    x, y = (np.abs(drawn(shape, dtypes.float32, 9)) for shape in SCALES[ranks])
    fd = made(ranks, DataType.Float8_e4m3fn, scaled=True, kind=DataType.Int32)
    for ends in ENDS:
        (found,) = fd.validate([a, b, np.array(ends, np.int32), x, y])
        due = parts(a, b, ends, lambda a, b, **more: sb.matmul(a, b, **more, out_dtype="float16"), (x, y))
        assert found.dtype == np.float16
        assert found.tobytes() == due.tobytes(), ends


def test_rows_are_those_of_grouped_matmul_and_of_torch() -> None:
    a, b = torch.randn(M, K), torch.randn(G, K, N)
    fd = made((2, 3), DataType.Float)
    (found,) = fd.execute([a, b, torch.tensor(ENDS[1])])
    assert type(found) is torch.Tensor
    assert torch.equal(found, sb.grouped_matmul(a, b, np.diff([0, *ENDS[1]])))
    # A product of 24 terms of magnitude 20 at most, in another order.
    assert torch.allclose(found[10:12], a[10:12] @ b[1], atol=24 * 24 * 2.0**-24 * 20)


def test_the_text_defines_it_again() -> None:
    for fd in (made((2, 3), DataType.Float), made((2, 2), DataType.BFloat16, scaled=True)):
        space: dict[str, Any] = {"FusionDefinition": FusionDefinition, "DataType": DataType}
        exec(repr(fd), space)
        with FusionDefinition() as again:
            space["nvfuser_fusion"](again)
        assert key_of(fd.fusion) == key_of(again.fusion)


@pytest.mark.parametrize("ends", [[5, 4, 6, 7], [1, 2, 3, 40], [-1, 2, 3, 4]], ids=str)
def test_groups_that_do_not_follow_one_another_are_refused(ends: list[int]) -> None:
    fd = made((2, 3), DataType.Float)
    a, b = (drawn(shape, dtypes.float32, 0) for shape in SHAPES[2, 3])
    for _ in range(2):
        with pytest.raises(FusionError) as caught:
            fd.execute([a, b, np.array(ends)])
        due = f"execute: input 2 is {ends}, must be ascending from 0 on, at most 37; give where each group ends"
        assert str(caught.value) == due
        fd.execute([a, b, np.array(ENDS[0])])


@pytest.mark.parametrize("extents", [(5, 37), (37, 5)], ids=str)
def test_groups_end_within_all_that_their_ends_cut(extents: tuple[int, int]) -> None:
    with FusionDefinition() as fd:
        a, b, x, y = (fd.define_tensor([-1] * rank, contiguity=True) for rank in (2, 3, 2, 3))
        ends = fd.define_tensor([-1], contiguity=True, dtype=DataType.Int)
        fd.add_output(fd.ops.grouped_mm(a, b, ends))
        fd.add_output(fd.ops.grouped_mm(x, y, ends))
    left, right = (drawn((m, K), dtypes.float32, 0) for m in extents)
    of_groups = drawn((G, K, N), dtypes.float32, 1)
    with pytest.raises(FusionError) as caught:
        fd.execute([left, of_groups, right, of_groups, np.array([1, 2, 3, 8])])
    due = "execute: input 4 is [1, 2, 3, 8], must be ascending from 0 on, at most 5; give where each group ends"
    assert str(caught.value) == due


def test_another_count_of_groups_than_matrices_is_refused() -> None:
    fd = made((2, 3), DataType.Float)
    a, b = (drawn(shape, dtypes.float32, 0) for shape in SHAPES[2, 3])
    with pytest.raises(FusionError) as caught:
        fd.execute([a, b, np.array([3, 7])])
    due = "execute: input 2 extent 0 is 2, must be 4 as extent 0 of input 1; pass tensors of extents that fit"
    assert str(caught.value) == due


@pytest.mark.parametrize("count", [2, 5])
def test_scales_of_another_count_of_groups_are_refused(count: int) -> None:
    a, b = (drawn(shape, dtypes.float8_e4m3fn, 0) for shape in SHAPES[2, 3])
    x, y = np.ones((M, 1), np.float32), np.ones((count, 1, N), np.float32)
    with pytest.raises(FusionError) as caught:
        made((2, 3), DataType.Float8_e4m3fn, scaled=True).execute([a, b, np.array(ENDS[0]), x, y])
    due = f"execute: input 4 extent 0 is {count}, must be 4 as extent 0 of input 1; pass tensors of extents that fit"
    assert str(caught.value) == due


BOTH = "permute or slice one of them: both have K"
ROW, COLUMN = "give one scale for each row of mat1", "give one scale for each column of mat2"


@pytest.mark.parametrize(("name", "shape", "sentence"), [
    ("mat2", [3, 7, 5], f"extent 1 is 7, must be 8 as extent 1 of mat1; {BOTH}"),
    ("mat2", [2, 8, 5], "extent 0 is 2, must be 3 as extent 0 of offsets; give one matrix for each group"),
    ("scale1", [4, 1], f"extent 0 is 4, must be 6 as extent 0 of mat1; {ROW}"),
    ("scale1", [6, 2], f"extent 1 is 2, must be 1; {ROW}"),
    ("scale2", [3, 1, 4], f"extent 2 is 4, must be 5 as extent 2 of mat2; {COLUMN}"),
    ("scale2", [2, 1, 5], "extent 0 is 2, must be 3 as extent 0 of offsets; give scales of each group"),
])  # fmt: skip
def test_extents_that_do_not_fit_are_named(name: str, shape: list[int], sentence: str) -> None:
    shapes = {"mat1": [6, 8], "mat2": [3, 8, 5], "scale1": [6, 1], "scale2": [3, 1, 5]} | {name: shape}
    with FusionDefinition() as fd:
        given = {name: fd.define_tensor(shape, contiguity=True) for name, shape in shapes.items()}
        offsets = fd.define_tensor([3], contiguity=True, dtype=DataType.Int)
        with pytest.raises(FusionError) as caught:
            fd.ops.grouped_mm(**given, offsets=offsets)
    assert str(caught.value) == f"grouped_mm: {name} {sentence}"


def refused(define: Callable[[FusionDefinition, Any], Any]) -> str:
    with FusionDefinition() as fd:
        kinds = {
            "a": (2, DataType.Float),
            "b": (3, DataType.Float),
            "ends": (1, DataType.Int),
            "s": (2, DataType.Float),
        }
        x = {name: fd.define_tensor([-1] * rank, contiguity=True, dtype=dtype) for name, (rank, dtype) in kinds.items()}
        with pytest.raises(FusionError) as caught:
            define(fd, x)
    return str(caught.value)


RANKS_WORDS = "Unexpected operand ranks"
COMPUTED = "compute it before, as a run must know its groups when it starts"
REFUSED: list[tuple[Callable[[FusionDefinition, Any], Any], str]] = [
    (lambda fd, x: fd.ops.grouped_mm(x["b"], x["b"], x["ends"]),
     f"operands ranks is 3 and 3, must be 2 and 3, 3 and 2, or 2; use matmul where both have groups: {RANKS_WORDS}"),
    (lambda fd, x: fd.ops.grouped_mm(x["a"], x["b"], x["s"]),
     "offsets rank is 2, must be 1; reshape it: offsets needs to be 1-D for grouped mm"),
    (lambda fd, x: fd.ops.grouped_mm(x["a"], x["b"], fd.ops.cast(x["ends"], DataType.Float)),
     "offsets dtype is DataType.Float, must be Int32 or Int; cast them before the run"),
    (lambda fd, x: fd.ops.grouped_mm(x["a"], x["b"], fd.ops.cumsum(x["ends"], 0)),
     f"offsets is what the fusion computes, must be an input; {COMPUTED}"),
    (lambda fd, x: fd.ops.grouped_mm(fd.ops.cast(x["a"], DataType.Half), x["b"], x["ends"]),
     "operands dtypes is DataType.Half and DataType.Float, must be the same float format; cast one of them"),
    (lambda fd, x: fd.ops.grouped_mm(x["a"], x["b"], x["ends"], x["s"]),
     "scale2 is None, must be given as the other scale is; give both, or neither"),
    (lambda fd, x: fd.ops.grouped_mm(x["a"], x["b"], x["ends"], x["s"], x["s"]),
     "scale2 rank is 2, must be 3; give it an axis of extent 1 along K"),
    (lambda fd, x: fd.ops.grouped_mm(x["a"], x["b"], x["ends"], x["s"], fd.ops.cast(x["b"], DataType.Half)),
     "scale2 dtype is DataType.Half, must be DataType.Float; cast it first"),
    (lambda fd, x: fd.ops.grouped_mm(x["a"], x["b"], x["ends"], alpha=x["s"]),
     "alpha is given, must be left out: groups have none; leave it out, and apply it to the result"),
    (lambda fd, x: fd.ops.grouped_mm(x["a"], x["b"], x["ends"], x["s"], x["b"], dtype=DataType.Int),
     "dtype is DataType.Int, must be a float format; cast the result"),
]  # fmt: skip


@pytest.mark.parametrize(("define", "sentence"), REFUSED, ids=[sentence for _, sentence in REFUSED])
def test_a_refusal_says_what_is_wrong(define: Callable[[FusionDefinition, Any], Any], sentence: str) -> None:
    assert refused(define) == f"grouped_mm: {sentence}"
