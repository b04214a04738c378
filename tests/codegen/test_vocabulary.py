"""Words of the vocabulary that read and write memory, and that make and move vectors, on every row."""

from __future__ import annotations

import itertools
import os
import pickle
import subprocess
import sys
from typing import Any

import aarch64
import guard
import numpy as np
import pytest
import rows
from vocabulary_run import INTEGERS, execute, same_bits, values, widths

from samebits import dtypes
from samebits.codegen.isa import Isa
from samebits.codegen.vocabulary import Builder, KernelSpec
from samebits.dtypes import DType, bool_, float32, float64, int8, int32, int64, uint8, uint16, uint32, uint64

Array = Any


def test_a_spec_from_another_process_is_the_key_that_it_was() -> None:
    here = KernelSpec(copy_counted, (float32, 8), ("x", "y", "z", "count"), rows.ALL_ROWS[0])
    text = "import pickle, sys; sys.path[:0] = {!r}; found = pickle.loads(bytes.fromhex({!r}));"
    text += "print(pickle.dumps(found).hex(), hash(found))"
    command = [sys.executable, "-c", text.format(sys.path, pickle.dumps(here).hex())]
    environment = os.environ | {"PYTHONHASHSEED": "1"}
    run = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    back, other = run.stdout.split()
    there = pickle.loads(bytes.fromhex(back))
    assert there == here
    assert hash(there) == hash(here) != int(other)
    assert {here: 1}[there] == 1


# -- memory -----------------------------------------------------------------------------------------------------


def copy_counted(b: Builder, description: tuple[DType, int]) -> None:
    """y[:count] = x[:count]; z = what was loaded, whole."""
    dtype, width = description
    count = b.index("count")
    v = b.load(b.pointer("x", dtype), 0, width, count)
    b.store(b.pointer("y", dtype), 0, v, count)
    b.store(b.pointer("z", dtype), 0, v)


STORED = (bool_, int8, uint16, dtypes.bfloat16, int32, float32, float64, int64)


def _storage(dtype: DType) -> Any:
    return np.dtype(np.uint16) if dtype is dtypes.bfloat16 else np.dtype(dtype.name)


@pytest.mark.parametrize("dtype", STORED, ids=lambda d: d.name)
@pytest.mark.parametrize("isa", rows.ALL_ROWS, ids=lambda r: r.name)
def test_masked_access_touches_nothing_outside(isa: Isa, dtype: DType) -> None:
    for width in widths(isa):
        counts = sorted({0, 1, width // 2, width - 1, width})
        source = values(dtype if dtype is not dtypes.bfloat16 else uint16, 3)[:width].astype(_storage(dtype))
        for count in counts:
            x, y = guard.array(source[:count]), guard.empty(count, source.dtype)
            z = guard.empty(width, source.dtype)
            spec = KernelSpec(copy_counted, (dtype, width), ("count", "x", "y", "z"), isa)
            execute(spec, [count, x, y, z])
            assert same_bits(x, y)
            assert same_bits(z, np.concatenate([source[:count], np.zeros(width - count, source.dtype)]))
        for count in (-5, width + 1, 1 << 40):  # clamped at both ends
            x, y, z = guard.array(source), guard.array(source), guard.empty(width, source.dtype)
            y.view(np.uint8)[:] = 0
            execute(spec, [count, x, y, z])
            expected = source if count > 0 else np.zeros_like(source)
            assert same_bits(y, expected)
            assert same_bits(z, expected)


def store_first(b: Builder, description: tuple[DType, DType, int, int]) -> None:
    """y[:count] = x[:count] as another dtype, of a count that the text knows."""
    source, dtype, width, count = description
    v = b.convert(b.load(b.pointer("x", source), 0, width), dtype)
    b.store(b.pointer("y", dtype), 0, v, count)


@pytest.mark.parametrize(
    ("source", "dtype"),
    [(int32, int8), (int32, uint8), (int32, uint16), (int64, int32), (int64, int8), (float32, uint8), (float32, int32)],
    ids=str,
)
@pytest.mark.parametrize("isa", rows.COMPILED_ROWS, ids=lambda r: r.name)
def test_known_masks_of_what_is_narrowed_touch_nothing_outside(isa: Isa, source: DType, dtype: DType) -> None:
    for width in widths(isa):
        x = np.arange(3, 3 + width).astype(source.name)
        for count in sorted({1, min(2, width), width}):
            y = guard.empty(count, np.dtype(dtype.name))
            execute(KernelSpec(store_first, (source, dtype, width, count), ("x", "y"), isa), [x, y])
            assert (y == x[:count]).all()


@pytest.mark.parametrize("isa", rows.AARCH64_ROWS, ids=lambda r: r.name)
def test_masked_access_touches_nothing_outside_on_aarch64(isa: Isa) -> None:
    for dtype in (bool_, float32, float64):
        for width in widths(isa):
            spec = KernelSpec(copy_counted, (dtype, width), ("count", "x", "y", "z"), isa)
            for count in sorted({0, 1, width // 2, width}):
                x = values(dtype, 3)[:count].copy()
                y, z = np.empty_like(x), np.empty(width, x.dtype)
                aarch64.run_kernel(spec, [count, x, y, z], 0, 1)
                assert same_bits(x, y)
                assert same_bits(z[:count], x)


def write_inside(b: Builder, description: int) -> None:
    """A store of `count` lanes in the middle of y."""
    b.store(b.pointer("y", float32), b.index("at"), b.constant(2.0, float32, description), b.index("count"))


@pytest.mark.parametrize("isa", rows.ALL_ROWS, ids=lambda r: r.name)
def test_masked_store_leaves_neighbours(isa: Isa) -> None:
    width = isa.lanes + 2
    for count in range(width + 1):
        y = np.ones(width + 8, np.float32)
        execute(KernelSpec(write_inside, width, ("y", "at", "count"), isa), [y, 3, count])
        expected = np.ones_like(y)
        expected[3 : 3 + count] = 2
        assert same_bits(y, expected)


def any_byte_is_true(b: Builder, description: int) -> None:
    """y = mask of x, as bytes."""
    b.store(b.pointer("y", bool_), 0, b.load(b.pointer("x", bool_), 0, description))


@pytest.mark.parametrize("isa", rows.ALL_ROWS, ids=lambda r: r.name)
def test_any_nonzero_byte_is_true(isa: Isa) -> None:
    for width in widths(isa):
        x = guard.array((np.arange(width) * 37 % 256).astype(np.uint8))
        y = guard.empty(width, np.uint8)
        execute(KernelSpec(any_byte_is_true, width, ("x", "y"), isa), [x, y])
        assert same_bits(y, (x != 0).astype(np.uint8))


def strided_copy(b: Builder, description: int) -> None:
    """y[k * t] = x[k * s], k < count."""
    width, count = description, b.index("count")
    v = b.load_strided(b.pointer("x", float32), b.index("first"), b.index("s"), width, count)
    b.store_strided(b.pointer("y", float32), 0, b.index("t"), v, count)


@pytest.mark.parametrize("isa", rows.ALL_ROWS, ids=lambda r: r.name)
def test_strided_access(isa: Isa) -> None:
    for width in widths(isa):
        for count in sorted({0, 1, width - 1, width}):
            for s, t in ((1, 3), (3, 1), (0, 2), (-2, 1)):
                span = abs(s) * max(count - 1, 0) + 1
                x = guard.array(np.arange(span, dtype=np.float32) + 1, at_start=s < 0)
                y = guard.empty(max(count - 1, 0) * t + 1, np.float32)
                y[:] = -1
                first = span - 1 if s < 0 else 0
                spec = KernelSpec(strided_copy, width, ("count", "x", "first", "s", "y", "t"), isa)
                execute(spec, [count, x, first, s, y, t])
                expected = np.full_like(y, -1)
                expected[: count * t : t] = x[[first + s * k for k in range(count)]] if count else []
                assert same_bits(y, expected), (width, count, s, t)


def extend_and_move(b: Builder, description: DType) -> None:
    """y[k] = x[k] as an index; prefetch, cast, offset and anchor on the way."""
    x, y = b.pointer("x", description), b.pointer("y", int64)
    for k in b.loop(0, b.index("n")):
        b.prefetch(x, k + 1000000)
        b.prefetch(x, k, 2)
        made = [b.constant(1, dtype, n) for dtype in (float32, float64, int32, int8) for n in (1, 4, 19, 64)]
        place = b.anchor(b.offset(b.anchor(x), k), made)
        i = b.load_index(place, 0)
        b.store(b.cast(b.offset(b.cast(y, uint8), k * 8), int64), 0, b.from_index(i, int64))


@pytest.mark.parametrize("dtype", [*INTEGERS, bool_], ids=lambda d: d.name)
@pytest.mark.parametrize("isa", [*rows.ALL_ROWS, *rows.AARCH64_ROWS], ids=lambda r: r.name)
def test_load_index_extends_by_the_sign_of_the_dtype(isa: Isa, dtype: DType) -> None:
    x = values(dtype, 5)
    if dtype is uint64:
        x = x >> 1
    y = np.empty(65, np.int64)
    spec = KernelSpec(extend_and_move, dtype, ("x", "y", "n"), isa)
    if isa.available:
        execute(spec, [x, y, 65])
    else:
        aarch64.run_kernel(spec, [x, y, 65], 0, 1)
    assert same_bits(y, x.astype(np.int64))


def copy_past_caches(b: Builder, description: tuple[DType, int]) -> None:
    """y = x, vectors of one width, past the caches; then how far y and y + 1 are behind a multiple of 64 bytes."""
    dtype, width = description
    x, y, found = b.pointer("x", dtype), b.pointer("y", dtype), b.pointer("found", int64)
    for i in b.loop(0, b.index("n"), width):
        b.store_nontemporal(y, i, b.load(x, i, width))
    b.fence()
    for i in range(2):
        b.store(found, i, b.from_index(b.misaligned(b.offset(y, i), 64), int64))


@pytest.mark.parametrize("dtype", [float32, int64, uint8], ids=lambda d: d.name)
@pytest.mark.parametrize("isa", [*rows.ALL_ROWS, *rows.AARCH64_ROWS], ids=lambda r: r.name)
def test_stores_past_the_caches_are_stores(isa: Isa, dtype: DType) -> None:
    for width in (16, 64) if dtype.size_bytes < 8 else (8, 16):
        x, found = values(dtype, 5)[:64], np.full(2, -1, np.int64)
        memory = np.zeros(x.nbytes + 64, np.uint8)
        first = -memory.ctypes.data % 64
        y = memory[first : first + x.nbytes].view(dtype.numpy)
        spec = KernelSpec(copy_past_caches, (dtype, width), ("x", "y", "n", "found"), isa)
        if isa.available:
            execute(spec, [x, y, y.size, found])
            assert found.tolist() == [0, dtype.size_bytes]
        else:
            aarch64.run_kernel(spec, [x, y, y.size, found], 0, 1)
        assert same_bits(y, x)


# -- making and moving ------------------------------------------------------------------------------------------


def make_vectors(b: Builder, description: int) -> None:
    """Constants, splats, iotas, scalars and indices as vectors, one row of 65 float64 each."""
    width = description
    out = b.pointer("out", float64)
    vectors = [
        b.constant(0.1, float64, width),
        b.convert(b.constant(0.1, float32, width), float64),
        b.convert(b.constant(-128, int8, width), float64),
        b.convert(b.constant(255, uint8, width), float64),
        b.convert(b.constant(True, bool_, width), float64),
        b.splat(b.convert(b.scalar("f", float32), float64), width),
        b.splat(b.convert(b.scalar("i", int32), float64), width),
        b.splat(b.convert(b.scalar("i", uint8), float64), width),
        b.splat(b.convert(b.scalar("i", bool_), float64), width),
        b.convert(b.iota(int32, width), float64),
        b.convert(b.iota(int64, width), float64),
        b.splat(b.convert(b.from_index(b.index("big"), float32), float64), width),
        b.splat(b.from_index(b.index("big"), float64), width),
        b.splat(b.convert(b.from_index(b.index("big"), int32), float64), width),
        b.convert(b.splat(b.convert(b.scalar("i", int32), bool_), width), float64),
    ]
    for k, v in enumerate(vectors):
        b.store(out, k * 65, v)


@pytest.mark.parametrize("isa", rows.ALL_ROWS, ids=lambda r: r.name)
def test_making_vectors(isa: Isa) -> None:
    big = (1 << 62) + (1 << 38) + 1  # rounds up in float32 only if it is rounded once
    f = int(np.array([-1.75], np.float32).view(np.int32)[0])
    expected = [
        0.1, float(np.float32(0.1)), -128.0, 255.0, 1.0, -1.75, -3.0, 253.0, 1.0, None, None,
        float(2**62 + 2**39), float(big), float(1), 1.0,
    ]  # fmt: skip
    for width in widths(isa):
        out = np.full((len(expected), 65), 7.0)
        execute(KernelSpec(make_vectors, width, ("out", "f", "i", "big"), isa), [out, f, -3, big])
        for k, value in enumerate(expected):
            row = np.arange(width, dtype=np.float64) if value is None else np.full(width, value)
            assert same_bits(out[k, :width].copy(), row), (width, k)
            assert (out[k, width:] == 7).all()


def transpose_rows(b: Builder, description: tuple[DType, int, int]) -> None:
    """y = transpose of the n x width matrix x."""
    dtype, n, width = description
    x, y = b.pointer("x", dtype), b.pointer("y", dtype)
    columns = b.transpose([b.load(x, k * width, width) for k in range(n)])
    for k, v in enumerate(columns):
        b.store(y, k * n, v)


@pytest.mark.parametrize("isa", rows.ALL_ROWS, ids=lambda r: r.name)
def test_transpose(isa: Isa) -> None:
    lanes = min(isa.lanes, 16)
    sizes = sorted({1, 2, 3, 4, lanes, lanes + 1})
    for n, width in {(n, w) for n in sizes for w in sizes} | {(8, 8)}:
        for dtype in (float32, int64, bool_) if n == width else (float32,):
            x = values(dtype, 7)
            x = guard.array(np.resize(x, (n, width)))
            y = guard.empty((width, n), x.dtype)
            execute(KernelSpec(transpose_rows, (dtype, n, width), ("x", "y"), isa), [x, y])
            assert same_bits(y, np.ascontiguousarray(x.T)), (dtype, n, width)


def transpose_block_rows(b: Builder, description: tuple[DType, int, int]) -> None:
    """y = x [n, blocks, n], its first and last axis exchanged."""
    dtype, n, width = description
    x, y = b.pointer("x", dtype), b.pointer("y", dtype)
    for k, v in enumerate(b.transpose_blocks([b.load(x, k * width, width) for k in range(n)])):
        b.store(y, k * width, v)


@pytest.mark.parametrize("isa", rows.ALL_ROWS, ids=lambda r: r.name)
def test_transpose_blocks(isa: Isa) -> None:
    for dtype, n, blocks in itertools.product((float32, int64, bool_), (1, 2, 3, 4, 8), (1, 2, 3, 4)):
        x = guard.array(np.resize(values(dtype, 7), (n, blocks, n)))
        y = guard.empty((n, blocks, n), x.dtype)
        execute(KernelSpec(transpose_block_rows, (dtype, n, blocks * n), ("x", "y"), isa), [x, y])
        assert same_bits(y, np.ascontiguousarray(x.transpose(2, 1, 0))), (dtype, n, blocks)


def join_lanes(b: Builder, description: tuple[DType, DType, int]) -> None:
    """y = join(x)."""
    source, target, width = description
    x = b.load(b.pointer("x", source), 0, width)
    b.store(b.pointer("y", target), 0, b.join(x, target))


@pytest.mark.parametrize("isa", rows.ALL_ROWS, ids=lambda r: r.name)
def test_join_puts_the_first_lane_lowest(isa: Isa) -> None:
    for source, target in ((uint8, uint64), (uint8, uint16), (uint16, uint32), (uint32, uint64)):
        each = target.width_bits // source.width_bits
        for count in (1, 2, 3, 5, 8, isa.lanes):
            x = guard.array(np.random.default_rng(count).integers(0, 256, count * target.size_bytes, dtype=np.uint8))
            y = guard.empty(count, target.numpy)
            spec = KernelSpec(join_lanes, (source, target, count * each), ("x", "y"), isa)
            execute(spec, [x.view(source.numpy), y])
            due = [int.from_bytes(part.tobytes(), "little") for part in x.reshape(count, -1)]
            assert y.tolist() == due, (source, target, count)


def pick_lanes(b: Builder, description: tuple[int, tuple[int, ...]]) -> None:
    """y = lanes of x and of its second half, by their numbers."""
    width, lanes = description
    x = b.pointer("x", float32)
    b.store(b.pointer("y", float32), 0, b.pick([b.load(x, 0, width), b.load(x, width, width)], lanes))


@pytest.mark.parametrize("isa", rows.ALL_ROWS, ids=lambda r: r.name)
def test_pick(isa: Isa) -> None:
    for width in widths(isa):
        x = guard.array(np.resize(values(float32, 8), 2 * width))
        every = range(2 * width)
        for lanes in ((0,), tuple(every[::2]), tuple(every[1::2]), tuple(every[::-1]), (*every, 0, 2 * width - 1)):
            y = guard.empty(len(lanes), np.float32)
            execute(KernelSpec(pick_lanes, (width, lanes), ("x", "y"), isa), [x, y])
            assert same_bits(y, x[list(lanes)]), (width, lanes)


def move_lanes(b: Builder, description: tuple[int, int, int]) -> None:
    """y = concat(x[start:start+size], x, x[start:start+size], [the scalar x[0]])."""
    width, start, size = description
    x = b.load(b.pointer("x", float32), 0, width)
    part = b.slice(x, start, size)
    b.store(b.pointer("y", float32), 0, b.concat([part, x, part, b.slice(x, 0, 1)]))


@pytest.mark.parametrize("isa", rows.ALL_ROWS, ids=lambda r: r.name)
def test_slice_and_concat(isa: Isa) -> None:
    for width in widths(isa):
        x = guard.array(values(float32, 8)[:width])
        for start, size in {(0, 1), (0, width), (width // 2, width - width // 2), (width - 1, 1), (width // 3, 1)}:
            y = guard.empty(2 * size + width + 1, np.float32)
            execute(KernelSpec(move_lanes, (width, start, size), ("x", "y"), isa), [x, y])
            part = x[start : start + size]
            assert same_bits(y, np.concatenate([part, x, part, x[:1]])), (width, start, size)
