"""What scales and zero points belong to: their shape and `group=` say it, by one rule, or they are refused.

The rule is written here a second time, as a table of every shape that means something. Operands of the first tests are
small integers and scales powers of two, so that every sum is exact and NumPy's float64 product of what the values stand
for has the bits of ours.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
import onnx
import onnx.helper
import pytest

import samebits as sb

Array = np.ndarray[Any, np.dtype[Any]]
F32 = np.float32


def drawn(*shape: int, seed: int = 0, dtype: Any = np.int8) -> Array:
    return np.random.default_rng([seed, *shape]).integers(0, 8, shape).astype(dtype)


def powers(*shape: int, seed: int = 0) -> Array:
    """Powers of two from 1/8 to 8, neighbours always unlike."""
    start = np.random.default_rng([seed, *shape]).integers(0, 7)
    return np.exp2((np.arange(start, start + int(np.prod(shape))) * 3 % 7 - 3).reshape(shape)).astype(F32)


class Sizes(NamedTuple):
    """One product: [batch, M, K] by [batch, K, N], without batch where that is None."""

    m: int
    n: int
    k: int
    batch: int | None = None

    @property
    def front(self) -> tuple[int, ...]:
        return () if self.batch is None else (self.batch,)


# Squares, single rows and columns, one element along K, batches as long as other extents.
SIZES = (
    Sizes(3, 5, 8), Sizes(8, 8, 8), Sizes(4, 4, 4), Sizes(1, 8, 8), Sizes(8, 1, 8), Sizes(5, 1, 4), Sizes(3, 4, 1),
    Sizes(1, 1, 4), Sizes(2, 4, 4), Sizes(3, 4, 8, 2), Sizes(2, 2, 4, 2), Sizes(1, 3, 4, 3), Sizes(3, 1, 4, 3),
    Sizes(4, 4, 4, 4), Sizes(2, 3, 4, 1),
)  # fmt: skip
GROUPS = (None, 1, 2, 3, 4, 8, 100)


def is_asked(meaning: str | None, shape: tuple[int, ...], group: int | None) -> bool:
    """Whether a shape is tried with a group: all that mean something are, of the others each with every third group."""
    return meaning is not None or group is None or (len(shape) + sum(shape) + GROUPS.index(group)) % 3 == 0


def meaning_of_b(shape: tuple[int, ...], size: Sizes, group: int | None) -> str | None:
    """What a shape says of b [..., K, N], by the list in docs/products.md."""
    n, rank = size.n, 2 + len(size.front)
    fronts = [(), (1,), size.front] if size.front else [()]
    blocks = -(-size.k // group) if group else 0
    if group and shape in [(*front, blocks, n) for front in fronts]:
        return "blocks"
    if group and len(shape) > 1:
        return None
    if shape in [(1,) * r for r in range(rank + 1)]:
        return "all"
    if shape in [(*front, n) for front in fronts]:
        return "lines"
    return "kept" if shape in [(*front, 1, n) for front in fronts[bool(size.front) :]] else None


def meaning_of_a(shape: tuple[int, ...], size: Sizes) -> str | None:
    """The same of a [..., M, K], and of a weight [N, K], whose lines come first."""
    rank = 2 + len(size.front)
    fronts = [(), (1,), size.front] if size.front else [()]
    if shape in [(1,) * r for r in range(rank + 1)]:
        return "all"
    if shape in [(*front, size.m) for front in fronts]:
        return "lines"
    return "kept" if shape in [(*front, size.m, 1) for front in fronts[bool(size.front) :]] else None


def spread_b(x: Array, meaning: str, size: Sizes, group: int | None) -> Array:
    """A value for each element of b."""
    whole = (*size.front, size.k, size.n)
    if meaning == "all":
        return np.broadcast_to(x.reshape(()), whole)
    if meaning == "lines":
        return np.broadcast_to(x[..., None, :], whole)
    if meaning == "blocks":
        assert group
        x = np.repeat(x, min(group, size.k), axis=-2)[..., : size.k, :]
    return np.broadcast_to(x, whole)


def spread_a(x: Array, meaning: str, size: Sizes) -> Array:
    """A value for each element of a."""
    whole = (*size.front, size.m, size.k)
    if meaning == "all":
        return np.broadcast_to(x.reshape(()), whole)
    return np.broadcast_to(x[..., None] if meaning == "lines" else x, whole)


def shapes(size: Sizes) -> Iterator[tuple[int, ...]]:
    """Every shape of rank 0 to that of the operands and one more, of extents that occur in the product."""
    extents = sorted({1, 2, *size.front, size.m, size.n, size.k, -(-size.k // 2)})
    for rank in range(4 + len(size.front)):
        yield from itertools.product(extents, repeat=rank)


def check(call: Callable[[Array], Any], given: Array, due: Array | None, name: str, what: object) -> None:
    """The product `due` where the shape has a meaning, else one sentence about it."""
    if due is not None:
        got = np.asarray(call(given))
        assert got.dtype == F32
        assert got.tobytes() == due.astype(F32).tobytes(), what
        return
    with pytest.raises(sb.ShapeError) as caught:
        call(given)
    assert (caught.value.operand, caught.value.fact, caught.value.actual) == (name, "shape", given.shape), what


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_shape_and_group_say_what_a_scale_of_b_belongs_to(size: Sizes) -> None:
    a, b = drawn(*size.front, size.m, size.k, dtype=F32), drawn(*size.front, size.k, size.n, seed=1)
    for shape, group in itertools.product(shapes(size), GROUPS):
        meaning, s = meaning_of_b(shape, size, group), powers(*shape)
        if group and meaning != "blocks" and len(shape) < 2:
            continue  # refused as a group without blocks, whatever the shape
        if not is_asked(meaning, shape, group):
            continue
        due = None if meaning is None else a.astype(float) @ (b * spread_b(s, meaning, size, group).astype(float))
        both = (b, b.astype(F32))
        # What is refused is so for its shape: by one of the two in turn.
        for right in both if due is not None else (both[(len(shape) + sum(shape)) % 2],):
            check(lambda s, b=right, g=group: sb.matmul(a, b, b_scale=s, b_group=g), s, due, "b_scale", (shape, group))
        if size.front:
            continue
        # A weight [N, K] has all of it the other way round.
        turned = s.T if s.ndim == 2 else s
        call = lambda s, g=group: sb.linear(a, b.T, weight_scale=s, group=g)  # noqa: E731
        check(call, turned, due, "weight_scale", (shape, group))


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_shape_says_what_a_scale_of_a_belongs_to(size: Sizes) -> None:
    a, b = drawn(*size.front, size.m, size.k, dtype=F32), drawn(*size.front, size.k, size.n, seed=1)
    for shape in shapes(size):
        meaning, s = meaning_of_a(shape, size), powers(*shape)
        due = None if meaning is None else (a * spread_a(s, meaning, size).astype(float)) @ b.astype(float)
        pairs = ((a, b), (a, b.astype(F32)), (a.astype(np.int8), b))
        for left, right in pairs if due is not None else (pairs[(len(shape) + sum(shape)) % 3],):
            check(lambda s, a=left, b=right: sb.matmul(a, b, a_scale=s), s, due, "a_scale", shape)


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_shape_and_group_say_what_a_zero_point_belongs_to(size: Sizes) -> None:
    a, b = drawn(*size.front, size.m, size.k), drawn(*size.front, size.k, size.n, seed=1)
    floats, one = a.astype(F32), {"b_scale": 1.0}
    for shape, group in itertools.product(shapes(size), GROUPS):
        z = drawn(*shape, seed=2)
        if group is None:
            meaning = meaning_of_a(shape, size)
            due = None if meaning is None else (a - spread_a(z, meaning, size).astype(float)) @ b.astype(float)
            check(lambda z: sb.matmul(a, b, a_zero_point=z, **one), z, due, "a_zero_point", shape)
        meaning = meaning_of_b(shape, size, group)
        if (group and meaning != "blocks" and len(shape) < 2) or not is_asked(meaning, shape, group):
            continue
        due = None if meaning is None else a.astype(float) @ (b - spread_b(z, meaning, size, group).astype(float))
        what = shape, group
        call = lambda z, g=group: sb.matmul(floats, b, b_zero_point=z, b_group=g)  # noqa: E731
        check(call, z, due, "b_zero_point", what)
        packed = lambda z, g=group: sb.matmul(floats, sb.pack(b, left="float32", zero_point=z, group=g))  # noqa: E731
        check(packed, z, due, "zero_point", what)
        if group is None:
            check(lambda z: sb.matmul(a, b, b_zero_point=z, **one), z, due, "b_zero_point", what)
        if not size.front:
            turned = z.T if z.ndim == 2 else z
            call = lambda z, g=group: sb.linear(floats, b.T, weight_zero_point=z, group=g)  # noqa: E731
            check(call, turned, due, "weight_zero_point", what)


@pytest.mark.parametrize("size", [s for s in SIZES if s.batch is None], ids=str)
def test_shape_says_what_an_output_scale_and_zero_point_belong_to(size: Sizes) -> None:
    a, b = drawn(size.m, size.k), drawn(size.k, size.n, seed=1)
    total = a.astype(np.int64) @ b.astype(np.int64)
    both = {"a_scale": 1.0, "b_scale": 1.0}
    for shape in shapes(size):
        meaning, s, z = meaning_of_b(shape, size, None), powers(*shape), drawn(*shape, seed=2)
        calls: dict[str, Callable[[Array], Any]] = {
            "out_scale": lambda x: sb.matmul(a, b, **both, out_scale=x),
            "out_zero_point": lambda x: sb.matmul(a, b, **both, out_scale=1.0, out_zero_point=x),
        }
        if meaning is None:
            for name, x in (("out_scale", s), ("out_zero_point", z)):
                check(calls[name], x, None, name, shape)
            continue
        columns = np.broadcast_to((s if meaning != "all" else s.reshape(())), (1, size.n))
        due = np.clip(np.rint(total / columns.astype(float)), -128, 127).astype(np.int8)
        assert np.array_equal(calls["out_scale"](s), due), shape
        columns = np.broadcast_to((z if meaning != "all" else z.reshape(())), (1, size.n))
        assert np.array_equal(calls["out_zero_point"](z), np.clip(total + columns, -128, 127)), shape


def rounded(x: Fraction) -> np.float32:
    """The nearest float32, ties to even: of the neighbours of a first guess, that which is nearest."""
    guess = F32(float(x))
    near = [np.nextafter(guess, F32(-np.inf)), guess, np.nextafter(guess, F32(np.inf))]
    return min(near, key=lambda y: (abs(Fraction(float(y)) - x), int(y.view(np.int32)) & 1))


def test_a_block_over_all_of_k_rounds_in_each_chunk_and_a_column_once() -> None:
    k = 256
    x, w = drawn(1, k, dtype=F32), drawn(1, k, seed=1)
    sums = [int(x[0, i : i + 128] @ w[0, i : i + 128]) for i in (0, 128)]

    def once(scale: np.float32) -> np.float32:
        return rounded(sum(sums) * Fraction(float(scale)))

    def by_chunk(scale: np.float32) -> np.float32:
        first, second = (Fraction(float(rounded(total * Fraction(float(scale))))) for total in sums)
        return rounded(first + second)

    found = next(scale for scale in np.random.default_rng(0).random(100, F32) if once(scale) != by_chunk(scale))
    column, block, s = once(found), by_chunk(found), np.array([[found]])
    for given in (s, s[0], s[0, 0], s[0].reshape(())):
        assert sb.linear(x, w, weight_scale=given)[0, 0] == column
        assert sb.matmul(x, w.T, b_scale=given)[0, 0] == column
    for group in (k, k + 1, 1 << 40):
        assert sb.linear(x, w, weight_scale=s, group=group)[0, 0] == block
        assert sb.matmul(x, w.T, b_scale=s, b_group=group)[0, 0] == block


def test_the_same_scale_of_a_channel_has_the_same_bits_in_every_shape() -> None:
    r = np.random.default_rng(0)
    x, w, s = r.standard_normal((7, 300), F32), r.integers(-128, 128, (300, 300)).astype(np.int8), r.random(300, F32)
    due = sb.linear(x, w, weight_scale=s)
    assert due.tobytes() == sb.linear(x, w, weight_scale=s[:, None]).tobytes()
    assert due.tobytes() == sb.matmul(x, w.T, b_scale=s).tobytes() == sb.matmul(x, w.T, b_scale=s[None]).tobytes()
    sums = sb.linear(x, w)
    assert due.tobytes() == (sums * s).tobytes()  # numerics.md section 2, step 4
    for wrong in (s[None], np.ones((1, 299), F32), s[:299]):
        with pytest.raises(sb.ShapeError):
            sb.linear(x, w, weight_scale=wrong)
    with pytest.raises(sb.ShapeError):
        sb.matmul(x, w.T, b_scale=s[:, None])


def test_scales_of_channels_and_groups_mean_what_they_do_elsewhere() -> None:
    torch, onnxruntime = pytest.importorskip("torch"), pytest.importorskip("onnxruntime")
    x, w, zeros = drawn(3, 8, dtype=F32), drawn(8, 8, seed=1), drawn(8, 4, seed=3)
    channels, groups = powers(8, 1), powers(8, 4)

    def dequantised(scale: Array, zero: Array | None, **attributes: int) -> Any:
        names = ["w", "s", *(["z"] if zero is not None else [])]
        given = dict(zip(names, (w, scale, *([] if zero is None else [zero])), strict=True))
        kinds = {"w": 3, "s": 1, "z": 3}
        graph = onnx.helper.make_graph(
            [onnx.helper.make_node("DequantizeLinear", names, ["y"], **attributes)], "g",
            [onnx.helper.make_tensor_value_info(name, kinds[name], x.shape) for name, x in given.items()],
            [onnx.helper.make_tensor_value_info("y", 1, w.shape)],
        )  # fmt: skip
        model = onnx.helper.make_model(graph, ir_version=10, opset_imports=[onnx.helper.make_opsetid("", 21)])
        session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        return torch.from_numpy(session.run(None, given)[0])

    def linear(weight: Any) -> Array:
        return torch.nn.functional.linear(torch.from_numpy(x), weight).numpy()

    due = linear(torch.from_numpy(w).float() * torch.from_numpy(channels))
    assert np.array_equal(linear(dequantised(channels[:, 0], None, axis=0)), due)
    assert np.array_equal(sb.linear(x, w, weight_scale=channels), due)
    due = linear(dequantised(groups, zeros, axis=1, block_size=2))
    assert np.array_equal(sb.linear(x, w, weight_scale=groups, weight_zero_point=zeros, group=2), due)


REFUSED: list[tuple[Callable[[], Any], str]] = [
    (
        lambda: sb.linear(X, W, weight_scale=np.ones((1, 5), F32)),
        (
            "linear: weight_scale shape is (1, 5), must be [], [5] or [5, 1], or [5, blocks] with group=; exchange its "
            "last two axes for one for each row of weight"
        ),
    ),
    (
        lambda: sb.linear(X, W, weight_scale=np.ones((5, 2), F32)),
        (
            "linear: weight_scale shape is (5, 2), must be [], [5] or [5, 1], or [5, blocks] with group=; pass group=, "
            "the number of elements along K that share one"
        ),
    ),
    (
        lambda: sb.linear(X, W, weight_scale=np.ones((2, 5), F32), group=2),
        (
            "linear: weight_scale shape is (2, 5), must be [5, 2], as K = 4 has blocks of 2; exchange its last two "
            "axes"
        ),
    ),
    (
        lambda: sb.linear(X, W, weight_scale=np.ones((5, 1), F32), group=2),
        ("linear: weight_scale shape is (5, 1), must be [5, 2], as K = 4 has blocks of 2; pass [5] for one for each "
        "row of weight"),
    ),
    (
        lambda: sb.matmul(X, W.T, b_scale=np.ones((3, 4), F32), b_group=2),
        ("matmul: b_scale shape is (3, 4), must be [2, 5], as K = 4 has blocks of 2; pass one for each column of b and "
        "each block"),
    ),
    (
        lambda: sb.matmul(X, W.T, a_scale=np.ones((1, 3), F32)),
        ("matmul: a_scale shape is (1, 3), must be [], [3] or [3, 1], or [3, blocks] with a_group=; exchange its last "
        "two axes for one for each row of a"),
    ),
    (
        lambda: sb.matmul(X[None], W.T, a_scale=np.ones((3, 1), F32)),
        ("matmul: a_scale shape is (3, 1), must be [], [..., 3] or [..., 3, 1], or [..., 3, blocks] with a_group=; "
        "pass one for all, or one for each row of a"),
    ),
    (
        lambda: sb.pack(W, left="float32", zero_point=np.zeros((5, 1), np.int8)),
        ("pack: zero_point shape is (5, 1), must be [], [4] or [1, 4], or [blocks, 4] with group=; pass one for all, "
        "or one for each column of b"),
    ),
]  # fmt: skip
X, W = np.ones((3, 4), F32), np.ones((5, 4), np.int8)


@pytest.mark.parametrize(("call", "text"), REFUSED)
def test_what_says_nothing_is_refused_with_the_nearest_meaning(call: Callable[[], Any], text: str) -> None:
    with pytest.raises(sb.ShapeError) as caught:
        call()
    assert str(caught.value) == text
