"""The emitted layout operations give what those written in Python give, errors included."""

import functools
import gc
import inspect
import pickle
import random
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from samebits.layout import Layout
from samebits.native import exchange
from samebits.tensor import Tensor

SLOW: dict[str, Any] = exchange.REFERENCE
slow_new: Callable[..., Layout] = functools.partial(SLOW["Layout.__new__"].__func__, Layout)
slow_dense: Callable[..., Layout] = SLOW["Layout.dense"].__get__(None, Layout)
WIDTHS = (1, 2, 4, 6, 8, 16, 32, 64, 128)


@pytest.fixture(autouse=True, scope="module")
def installed() -> None:
    assert exchange.compile_exchange()


def outcome(call: Callable[..., Any], *arguments: Any, **keywords: Any) -> Any:
    """What a call returns, with its parts' exact types, or the exception."""
    try:
        x = call(*arguments, **keywords)
    except Exception as error:
        return type(error), str(error)
    parts = (x.shape, x.strides_bits, x.offset_bits, x.width_bits, x.storage)
    numbers = [*x.shape, *x.strides_bits, x.offset_bits, x.width_bits]
    return parts, {type(number) for number in numbers}, hash(x)


class Index:
    """A number that only `__index__` tells."""

    def __init__(self, value: int) -> None:
        self.value = value

    def __index__(self) -> int:
        return self.value

    def __repr__(self) -> str:
        return f"Index({self.value})"


def some_layout(chance: random.Random) -> Layout:
    """A layout as Python makes it."""
    rank = chance.randrange(5)
    shape = tuple(chance.choice((0, 1, 1, 2, 3, 4, 5, 7)) for _ in range(rank))
    width = chance.choice(WIDTHS)
    storage = chance.choice(("packed", "padded"))
    if chance.random() < 0.6:
        order = chance.choice(("C", "F", tuple(chance.sample(range(rank), rank))))
        return slow_dense(shape, width_bits=width, order=order, storage=storage)
    pitch = width if storage == "packed" else -(-width // 8) * 8
    strides = tuple(pitch * chance.randrange(-40, 40) for _ in range(rank))
    return slow_new(shape, strides, pitch * chance.randrange(10_000), width, storage)


def oddity(chance: random.Random) -> Any:
    """What is rarely passed for a number."""
    numbers = (True, 1.0, "2", None, Index(1), np.int64(1), 1 << 63, -(1 << 63), 1 << 70, -1, 0, [1], (1,), ..., b"")
    return chance.choice(numbers)


def test_construction_is_the_same() -> None:
    chance = random.Random(1)
    for _ in range(8000):
        x = some_layout(chance)
        arguments: list[Any] = [x.shape, x.strides_bits, x.offset_bits, x.width_bits]
        if chance.random() < 0.7:
            arguments.append(chance.choice((x.storage, "packed", "padded", "".join(["pad", "ded"]), "loose", None)))
        if chance.random() < 0.3:
            arguments[chance.randrange(len(arguments))] = oddity(chance)
        if chance.random() < 0.2 and isinstance(arguments[1], tuple) and arguments[1]:
            strides = list(arguments[1])
            strides[chance.randrange(len(strides))] = chance.choice((1, 1 << 62, -(1 << 62), 1 << 61, oddity(chance)))
            arguments[1] = tuple(strides)
        if chance.random() < 0.1:
            arguments = arguments[: chance.randrange(len(arguments))]
        assert outcome(Layout, *arguments) == outcome(slow_new, *arguments), arguments
    named = {"shape": (2, 3), "strides_bits": (24, 8), "offset_bits": 0, "width_bits": 8}
    assert outcome(Layout, **named) == outcome(slow_new, **named)
    assert outcome(Layout, (2,), (8,), 0, wide=8) == outcome(slow_new, (2,), (8,), 0, wide=8)
    assert outcome(Layout, (2,) * 64, (0,) * 64, 0, 8) == outcome(slow_new, (2,) * 64, (0,) * 64, 0, 8)
    assert outcome(Layout, (1,) * 65, (0,) * 65, 0, 8) == outcome(slow_new, (1,) * 65, (0,) * 65, 0, 8)


def test_dense_is_the_same() -> None:
    chance = random.Random(2)
    for _ in range(4000):
        x = some_layout(chance)
        shape: Any = (
            x.shape if chance.random() < 0.8 else chance.choice((list(x.shape), oddity(chance), (1 << 40,) * 2))
        )
        keywords: dict[str, Any] = {"width_bits": x.width_bits}
        if chance.random() < 0.3:
            keywords = chance.choice(
                ({}, {"width_bits": oddity(chance)}, {"order": "C", "width_bits": 8}, {"order": "F"}, {"width": 8})
            )
        assert outcome(Layout.dense, shape, **keywords) == outcome(slow_dense, shape, **keywords), (shape, keywords)
    assert outcome(Layout.dense, shape=(2, 3), width_bits=8) == outcome(slow_dense, shape=(2, 3), width_bits=8)
    assert outcome(Layout.dense) == outcome(slow_dense)
    assert outcome(Layout.dense, (1,) * 65, width_bits=8) == outcome(slow_dense, (1,) * 65, width_bits=8)
    x = Layout.dense((2,), width_bits=8)
    assert x.dense((3,), width_bits=8) == Layout.dense((3,), width_bits=8)


def test_permute_is_the_same() -> None:
    chance = random.Random(3)
    for _ in range(6000):
        x = some_layout(chance)
        axes: Any = list(range(x.ndim))
        chance.shuffle(axes)
        axes = tuple(axis - x.ndim if chance.random() < 0.2 else axis for axis in axes)
        if chance.random() < 0.2:
            axes = chance.choice(
                (list(axes), (*axes, 0), axes[1:], oddity(chance), axes[:1] * x.ndim, (oddity(chance),))
            )
        assert outcome(x.permute, axes) == outcome(SLOW["Layout.permute"], x, axes), (x, axes)
    x = Layout((1,) * 64, (0,) * 64, 0, 8)
    for axes in (tuple(range(64)), tuple(range(64))[::-1], (*range(63), 62), (*range(63), 64)):
        assert outcome(x.permute, axes) == outcome(SLOW["Layout.permute"], x, axes)
    assert outcome(x.permute) == outcome(SLOW["Layout.permute"], x)
    assert outcome(x.permute, axes=axes) == outcome(SLOW["Layout.permute"], x, axes=axes)


def test_reshape_is_the_same() -> None:
    chance = random.Random(4)
    found = 0
    for _ in range(12_000):
        x = some_layout(chance)
        size, wanted = x.size, []
        while size > 1 and chance.random() < 0.9:
            factor = chance.choice([n for n in range(1, size + 1) if size % n == 0])
            wanted.append(factor)
            size //= factor
        wanted.append(size)
        if chance.random() < 0.3:
            wanted.insert(chance.randrange(len(wanted) + 1), 1)
        if chance.random() < 0.3:
            wanted[chance.randrange(len(wanted))] = chance.choice((-1, 0, 5, oddity(chance)))
        shape = tuple(wanted)
        got = outcome(x.reshape, shape)
        assert got == outcome(SLOW["Layout.reshape"], x, shape), (x, shape)
        found += len(got) == 3
    assert found > 3000
    for wrong in ([6], 6, None, (), (-1, -1), (1 << 62, 4), (1,) * 64, (1,) * 65, (-1,)):
        for y in (Layout.dense((6,), width_bits=4), Layout.dense((), width_bits=8)):
            assert outcome(y.reshape, wrong) == outcome(SLOW["Layout.reshape"], y, wrong)


def some_key(chance: random.Random, x: Layout) -> Any:
    """A key, mostly of this layout's."""

    def bound(extent: int) -> Any:
        if chance.random() < 0.03:
            return oddity(chance)
        return chance.choice((None, chance.randrange(-extent - 2, extent + 3)))

    keys: list[Any] = []
    for extent in x.shape[: chance.randrange(x.ndim + 1)]:
        kind = chance.random()
        if kind < 0.4 and extent:
            keys.append(chance.randrange(-extent, extent))
        elif kind < 0.9:
            keys.append(slice(bound(extent), bound(extent), chance.choice((None, 1, 2, -1, -3, bound(2)))))
        else:
            keys.append(chance.choice((oddity(chance), extent, -extent - 1)))
    for extra in (None, ...):
        if chance.random() < 0.25:
            keys.insert(chance.randrange(len(keys) + 1), extra)
    if chance.random() < 0.05:
        keys.append(chance.choice((0, ..., slice(None), oddity(chance))))
    return keys[0] if len(keys) == 1 and chance.random() < 0.5 else tuple(keys)


def test_indexing_is_the_same() -> None:
    chance = random.Random(5)
    found = 0
    for _ in range(30_000):
        x = some_layout(chance)
        key = some_key(chance, x)
        got = outcome(x.__getitem__, key)
        assert got == outcome(SLOW["Layout.__getitem__"], x, key), (x, key)
        found += len(got) == 3
    assert found > 15_000
    x = Layout((2, 2) + (1,) * 62, (8,) * 64, 0, 8)
    for key in (
        (0, *(None,) * 1),
        (None,),
        (None,) * 64,
        (0, None),
        (0,) * 64,
        (0,) * 65,
        (..., 1),
        (slice(None),) * 64,
    ):
        assert outcome(x.__getitem__, key) == outcome(SLOW["Layout.__getitem__"], x, key)
    y = Layout((2, 2), (1 << 61, 1 << 60), 0, 8)
    for step in (2, 8, -8, 1 << 62, -(1 << 63), 0):
        key = (slice(None, None, step), slice(None, None, step))
        assert outcome(y.__getitem__, key) == outcome(SLOW["Layout.__getitem__"], y, key)


def test_indexing_is_that_of_numpy() -> None:
    chance = random.Random(6)
    base = np.arange(5 * 7 * 3, dtype=np.int64).reshape(5, 7, 3)
    x = Layout.dense(base.shape, width_bits=64)
    for _ in range(4000):
        key = some_key(chance, x)
        try:
            expected = base[key]
        except (IndexError, TypeError, ValueError, OverflowError):
            continue
        if expected.base is None or not expected.size or isinstance(expected, np.generic):
            continue
        try:
            got = x[key]
        except Exception:  # what NumPy takes for a mask or a list of places
            continue
        address = expected.__array_interface__["data"][0] - base.__array_interface__["data"][0]
        steps = zip(expected.shape, expected.strides, got.strides_bytes, strict=True)
        assert (got.shape, got.offset_bytes) == (expected.shape, address)
        assert all(a == b for n, a, b in steps if n > 1)


def test_strided_layouts_are_the_same() -> None:
    chance = random.Random(7)
    for name in ("from_strides", "from_byte_strides"):
        emitted, written = getattr(Layout, name), SLOW[f"Layout.{name}"].__get__(None, Layout)
        for _ in range(3000):
            x = some_layout(chance)
            strides: Any = tuple(stride // 8 for stride in x.strides_bits)
            arguments: list[Any] = [x.shape, strides]
            if chance.random() < 0.5:
                arguments.append(chance.randrange(-50, 50))
            keywords: dict[str, Any] = {"width_bits": x.width_bits}
            if chance.random() < 0.2:
                arguments[chance.randrange(len(arguments))] = oddity(chance)
            if chance.random() < 0.2 and isinstance(arguments[1], tuple) and arguments[1]:
                arguments[1] = (*arguments[1][1:], chance.choice((oddity(chance), 1 << 60, -(1 << 61))))
            if chance.random() < 0.2:
                keywords = chance.choice(
                    ({}, {"width_bits": oddity(chance)}, {"width_bits": 4, "storage": "padded"}, {"width": 8})
                )
            assert outcome(emitted, *arguments, **keywords) == outcome(written, *arguments, **keywords), arguments
        assert outcome(emitted, (2,), (1,), 0, 8) == outcome(written, (2,), (1,), 0, 8)
        assert outcome(emitted, (2,), width_bits=8) == outcome(written, (2,), width_bits=8)
        assert outcome(emitted) == outcome(written)


def test_broadcast_is_the_same() -> None:
    chance = random.Random(8)
    found = 0
    for _ in range(8000):
        x = some_layout(chance)
        wanted = [chance.choice((0, 1, 2, 9)) for _ in range(chance.randrange(3))]
        wanted += [chance.choice((1, 2, 6)) if extent == 1 else extent for extent in x.shape]
        if chance.random() < 0.2 and wanted:
            wanted[chance.randrange(len(wanted))] = chance.choice((oddity(chance), 1 << 62, -1))
        shape: Any = tuple(wanted[chance.randrange(2) * (chance.random() < 0.1) :])
        shape = list(shape) if chance.random() < 0.05 else shape
        got = outcome(x.broadcast_to, shape)
        assert got == outcome(SLOW["Layout.broadcast_to"], x, shape), (x, shape)
        found += len(got) == 3
    assert found > 4000
    x = Layout((1,) * 64, (0,) * 64, 0, 8)
    for shape in ((2,) * 62 + (1, 1), (2,) * 64, (1,) * 65, (1,) * 63):
        assert outcome(x.broadcast_to, shape) == outcome(SLOW["Layout.broadcast_to"], x, shape)


def test_comparison_is_the_same() -> None:
    chance = random.Random(9)
    some = [some_layout(chance) for _ in range(60)] + [Layout((1 << 40, 3), (24, 8), 8, 8) for _ in range(2)]
    others: list[Any] = [*some, object(), None, (), Derived((2,), (8,), 0, 8)]
    for x in some:
        for y in others:
            expected = SLOW["Layout.__eq__"](x, y)
            assert x.__eq__(y) is expected
            assert (x == y, x != y) == (expected is True, expected is not True)
    assert some[-1] == some[-2]
    assert some[-1] is not some[-2]
    assert (some[0] == Anything()) is True


class Anything:
    """Equal to everything."""

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        return True


def test_views_of_tensors_are_the_same() -> None:
    base = Tensor.from_any(np.arange(2 * 3 * 4, dtype=np.int32).reshape(2, 3, 4))
    array = base.numpy()

    class Special(Tensor):
        pass

    views: list[tuple[str, Any]] = [
        ("permute", (2, 0, 1)), ("permute", (0, 0, 1)), ("permute", [1, 0, 2]), ("reshape", (6, 4)), ("reshape", (-1,)),
        ("reshape", (5, 5)), ("reshape", None), ("reshape", 24), ("permute", 0),
        ("broadcast_to", (7, 2, 3, 4)), ("broadcast_to", (2, 3)),
        ("__getitem__", 1), ("__getitem__", (..., slice(None, None, -1))), ("__getitem__", (0, None, slice(1, 3))),
        ("__getitem__", 5), ("__getitem__", "a"), ("__getitem__", np.int64(1)), ("__getitem__", True),
    ]  # fmt: skip
    for t in (base, Special(base.buffer, base.layout, base.dtype)):
        for name, argument in views:
            emitted = whole(getattr(t, name), argument)
            assert emitted == whole(SLOW[f"Tensor.{name}"], t, argument), (name, argument)
    assert base[1, ::-1].tolist() == array[1, ::-1].tolist()
    assert base.T.tolist() == array.T.tolist()
    assert base.transpose().tolist() == array.swapaxes(-1, -2).tolist()
    assert [row.tolist() for row in base] == array.tolist()
    before = sys.getrefcount(base.buffer), sys.getrefcount(base.dtype), sys.getrefcount(base.layout)
    for _ in range(1000):
        base[1], base.permute((2, 0, 1)), base.reshape((24,)), base.broadcast_to((2, 2, 3, 4))
        whole(base.permute, (0, 0))
    assert (sys.getrefcount(base.buffer), sys.getrefcount(base.dtype), sys.getrefcount(base.layout)) == before
    bare = object.__new__(Tensor)
    for use in (lambda: bare[0], lambda: bare.permute(()), lambda: bare.reshape(())):
        with pytest.raises(AttributeError):
            use()


def whole(call: Callable[..., Any], *arguments: Any) -> Any:
    """A tensor's parts, or the exception."""
    try:
        t = call(*arguments)
    except Exception as error:
        return type(error), str(error)
    return type(t), t.layout, t.dtype, id(t.buffer)


def test_instances_are_layouts_in_every_way() -> None:
    x = Layout.dense((2, 3, 4), width_bits=16)
    for y in (x[1], x.permute((2, 0, 1)), x.reshape((6, 4)), Layout((2,), (8,), 0, 8)):
        assert type(y) is Layout
        assert pickle.loads(pickle.dumps(y)) == y
        assert y in {y}
        assert gc.is_tracked(y)
        with pytest.raises(AttributeError):
            y.shape = (1,)  # type: ignore[misc]
    assert list(inspect.signature(Layout).parameters) == [
        "shape",
        "strides_bits",
        "offset_bits",
        "width_bits",
        "storage",
    ]
    for name in ("permute", "reshape", "broadcast_to", "__getitem__", "dense", "from_strides", "from_byte_strides"):
        function = getattr(SLOW[f"Layout.{name}"], "__func__", SLOW[f"Layout.{name}"])
        assert getattr(Layout, name).__doc__ == inspect.getdoc(function)
    bare = object.__new__(Layout)
    for use in (lambda: bare[0], lambda: bare.permute(()), lambda: bare.reshape(())):
        with pytest.raises(AttributeError):
            use()
    for method in (Layout.permute, Layout.reshape, Layout.__getitem__):
        with pytest.raises(TypeError):
            method(object(), ())  # type: ignore[arg-type]


class Derived(Layout):
    """A class derived from ours."""


def test_derived_classes_are_made_by_python() -> None:
    assert outcome(Derived, (2,), (8,), 0, 8) == outcome(slow_new, (2,), (8,), 0, 8)
    assert type(Derived((2,), (8,), 0, 8)) is type(SLOW["Layout.__new__"].__func__(Derived, (2,), (8,), 0, 8))


def test_nothing_is_left_behind() -> None:
    x = Layout.dense((20, 30, 40), width_bits=32)
    wrong = ((1, 2), (0, 99), (slice(0, 5, 0),), (1.5,))

    def use() -> None:
        x[1:3, :, 2], x[..., ::-1], x[5], x.permute((2, 0, 1)), x.reshape((600, -1))
        Layout((3, 4), (128, 32), 0, 32), Layout.dense((3, 4), width_bits=32)
        for each in wrong:
            for call in (x.__getitem__, x.permute, x.reshape):
                outcome(call, each)

    watched: tuple[object, ...] = (
        x,
        x.shape,
        x.strides_bits,
        x.shape[0],
        Layout,
        None,
        "packed",
        ...,
        slice,
        tuple,
        int,
    )
    for _ in range(50):
        use()
    gc.collect()
    before, blocks = [sys.getrefcount(each) for each in watched], sys.getallocatedblocks()
    for _ in range(2000):
        use()
    gc.collect()
    after = [sys.getrefcount(each) for each in watched]
    assert max(abs(a - b) for a, b in zip(after, before, strict=True)) < 10
    assert sys.getallocatedblocks() - blocks < 500
