"""Every word of the vocabulary, on every row and width: compiled bits == interpreted bits == a statement in NumPy."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import aarch64
import guard
import numpy as np
import pytest
import rows

from samebits import dtypes, ieee
from samebits.codegen import interpreter, llvm
from samebits.codegen.isa import Isa
from samebits.codegen.vocabulary import Builder, KernelSpec, Vector
from samebits.dtypes import DType, bool_, float32, float64, int8, int16, int32, int64, uint8, uint16, uint32, uint64
from samebits.kernels.plan import Operand, Plan, Step
from samebits.native.table import Table

Array = Any

INTEGERS = (int8, int16, int32, int64, uint8, uint16, uint32, uint64)
FLOATS = (float32, float64)
NUMBERS = (*FLOATS, *INTEGERS)


def widths(isa: Isa) -> list[int]:
    """Lane counts around the row's own, and others."""
    longest = 64 if isa.lanes > 3 else 16
    return sorted({w for w in (1, 2, 3, isa.lanes - 1, isa.lanes, isa.lanes + 1, 16, longest) if w > 0})


def execute(spec: KernelSpec, arguments: Sequence[int | Array], tasks: int = 1) -> None:
    """Run one kernel on its row by the path that users take; arrays stand for their addresses."""
    operands = [x for x in arguments if isinstance(x, np.ndarray)]
    names = tuple(str(k) for k in range(len(operands)))
    places = iter(range(len(operands)))
    words = tuple(Operand(next(places)) if isinstance(x, np.ndarray) else x for x in arguments)
    plan = Plan("test", spec.isa, 1, (Step(spec, tasks, words),), names, scratch_bytes=256)
    Table([(plan, range(len(operands)))], len(operands), 1).run([x.ctypes.data for x in operands])


def same_bits(x: Array, y: Array) -> bool:
    """Equal dtype, shape and bytes."""
    return x.dtype == y.dtype and x.shape == y.shape and x.tobytes() == y.tobytes()


# -- values -----------------------------------------------------------------------------------------------------


@functools.cache
def values(dtype: DType, seed: int, nan: bool = True) -> Array:
    """65 elements: specials, extremes, subnormals, NaN payloads (signalling too), then random bits and magnitudes."""
    rng = np.random.default_rng(seed)
    kind = np.dtype(dtype.name)
    if dtype is bool_:
        return rng.integers(0, 2, 65).astype(bool)
    if dtype.is_integer:
        info = np.iinfo(kind)
        picks = [0, 1, 2, info.min, info.max, info.min + 1, info.max - 1, info.max // 2, info.max // 3]
        rest = rng.integers(info.min, info.max, 65 - len(picks), dtype=kind, endpoint=True)
        found = np.concatenate([np.array(picks, kind), rest])
    else:
        info = np.finfo(kind)
        tiny, sub, big = float(info.tiny), float(info.smallest_subnormal), float(info.max)
        picks = [
            0.0,
            -0.0,
            1.0,
            -1.0,
            0.5,
            1.5,
            2.5,
            -2.5,
            np.inf,
            -np.inf,
            sub,
            -sub,
            tiny,
            tiny - sub,
            big,
            -big,
            3.3,
        ]
        numbers = rng.standard_normal(65 - len(picks)) * 2.0 ** rng.integers(-30, 30, 65 - len(picks))
        found = np.concatenate([np.array(picks), numbers]).astype(kind)
        word = np.uint32 if dtype is float32 else np.uint64
        if nan:
            payloads = (
                [0x7FC00000, 0xFFC01234, 0x7F800001, 0xFF80ABCD]
                if dtype is float32
                else [0x7FF8000000000000, 0xFFF8000012345678, 0x7FF0000000000001, 0xFFF00000DEADBEEF]
            )
            found.view(word)[20:24] = np.array(payloads, word)
    return rng.permutation(found)


# -- one word on vectors ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Word:
    """A word applied to loaded vectors: `emit` in the vocabulary, `meaning` in NumPy; arithmetic NaNs are any NaN."""

    name: str
    inputs: tuple[DType, ...]
    output: DType
    emit: Callable[..., Vector]
    meaning: Callable[..., Array]
    arithmetic: bool = False
    nan: bool = True

    def __str__(self) -> str:
        return f"{self.name}-{'-'.join(d.name for d in self.inputs)}-{self.output.name}"


def ordered_extreme(sign: int) -> Callable[[Array, Array], Array]:
    """maximum (sign 1) or minimum (-1), lane by lane in Python."""

    def one(x: Any, y: Any) -> Any:
        if x != x or y != y:
            return x.dtype.type(np.nan)
        if x == y == 0:
            negative = np.signbit(x) and np.signbit(y) if sign > 0 else np.signbit(x) or np.signbit(y)
            return x.dtype.type(-0.0 if negative else 0.0)
        return x if (x > y) == (sign > 0) else y

    return lambda x, y: np.array([one(a, b) for a, b in zip(x, y, strict=True)], x.dtype)


def python_integers(function: Callable[..., int]) -> Callable[..., Array]:
    """Integer arithmetic in Python's own, wrapped to the lanes' width."""

    def wrapped(*arrays: Array) -> Array:
        bits = 8 * arrays[0].dtype.itemsize
        raw = [function(*(int(v) for v in lane)) % (1 << bits) for lane in zip(*arrays, strict=True)]
        return np.array(raw, np.uint64).astype(f"u{bits // 8}").view(arrays[0].dtype)

    return wrapped


def clamp(x: Array, dtype: DType) -> Array:
    """Float to integer in Python's integers: toward zero, saturating, NaN gives 0."""
    low, high = int(dtype.min), int(dtype.max)

    def one(v: float) -> int:
        if v != v:
            return 0
        if v in (np.inf, -np.inf):
            return high if v > 0 else low
        return max(low, min(high, int(v)))

    return np.array([one(float(v)) for v in x], dtype.name)


def wrap(x: Array, dtype: DType) -> Array:
    """Integer to integer modulo the width, in Python's integers."""
    bits = dtype.width_bits
    return np.array([int(v) % (1 << bits) for v in x], np.uint64).astype(f"u{bits // 8}").view(dtype.name)


def to_float(x: Array, dtype: DType) -> Array:
    """Integer to float, rounded once: Python rounds int / int correctly to binary64, and long double holds 64 bits."""
    if dtype is float64:
        return np.array([int(v) / 1 for v in x])
    return np.array([np.float32(np.longdouble(int(v))) for v in x], np.float32)


def _words() -> list[Word]:
    found: list[Word] = []

    def add(name: str, inputs: Sequence[DType], output: DType, meaning: Any, emit: Any = None, **facts: bool) -> None:
        word = emit or (lambda b, *vs, word=name: getattr(b, word)(*vs))
        found.append(Word(name, tuple(inputs), output, word, meaning, **facts))

    for f in FLOATS:
        for name, meaning in {
            "add": operator.add,
            "sub": operator.sub,
            "mul": operator.mul,
            "div": operator.truediv,
        }.items():
            add(name, [f, f], f, meaning, arithmetic=True)
        add("fma", [f, f, f], f, ieee.fma, arithmetic=True)
        add(
            "mul_add",
            [f, f, f],
            f,
            lambda x, y, z: x * y + z,
            lambda b, x, y, z: b.add(b.mul(x, y), z),
            arithmetic=True,
        )
        add(
            "mul_sub",
            [f, f, f],
            f,
            lambda x, y, z: x * y - z,
            lambda b, x, y, z: b.sub(b.mul(x, y), z),
            arithmetic=True,
        )
        add("sqrt", [f], f, np.sqrt, arithmetic=True)
        add(
            "rint",
            [f],
            f,
            lambda x: np.array(
                [v if abs(v) > 2.0**60 or v != v else np.copysign(round(float(v)), v) for v in x], x.dtype
            ),
            arithmetic=True,
        )
        add("neg", [f], f, lambda x: (x.view(f"u{x.itemsize}") ^ _sign(x)).view(x.dtype))
        add("abs", [f], f, lambda x: (x.view(f"u{x.itemsize}") & ~_sign(x)).view(x.dtype))
        add("maximum", [f, f], f, ordered_extreme(1), arithmetic=True)
        add("minimum", [f, f], f, ordered_extreme(-1), arithmetic=True)
        add("canonical", [f], f, lambda x: np.where(x != x, x.dtype.type(np.nan), x))
        add("is_nan", [f], bool_, lambda x: x != x)
        signed, unsigned = (int32, uint32) if f is float32 else (int64, uint64)
        for i in (signed, unsigned):
            add("bitcast", [f], i, lambda x, i=i: x.view(i.name), lambda b, x, i=i: b.bitcast(x, i))
            add("bitcast", [i], f, lambda x, f=f: x.view(f.name), lambda b, x, f=f: b.bitcast(x, f))
        for i in INTEGERS:
            add("convert", [f], i, lambda x, i=i: clamp(x, i), lambda b, x, i=i: b.convert(x, i))
            add("convert", [i], f, lambda x, f=f: to_float(x, f), lambda b, x, f=f: b.convert(x, f))
        add("convert", [bool_], f, lambda x, f=f: x.astype(f.name), lambda b, x, f=f: b.convert(x, f))
        other = float64 if f is float32 else float32
        add(
            "convert",
            [f],
            other,
            lambda x, o=other: x.astype(o.name),
            lambda b, x, o=other: b.convert(x, o),
            arithmetic=True,
        )
    for i in INTEGERS:
        for name, function in {"add": operator.add, "sub": operator.sub, "mul": operator.mul}.items():
            add(name, [i, i], i, python_integers(function))
        add("neg", [i], i, python_integers(operator.neg))
        add("abs", [i], i, python_integers(abs))
        add("maximum", [i, i], i, python_integers(max))
        add("minimum", [i, i], i, python_integers(min))
        add("canonical", [i], i, lambda x: x)
        for name, function in {"bit_and": operator.and_, "bit_or": operator.or_, "bit_xor": operator.xor}.items():
            add(name, [i, i], i, python_integers(function))
        for bits in {0, 1, i.width_bits // 2, i.width_bits - 1}:
            add(
                f"shift_left_{bits}",
                [i],
                i,
                python_integers(lambda x, n=bits: x << n),
                lambda b, x, n=bits: b.shift_left(x, n),
            )
            add(
                f"shift_right_{bits}",
                [i],
                i,
                python_integers(lambda x, n=bits: x >> n),
                lambda b, x, n=bits: b.shift_right(x, n),
            )
        for o in INTEGERS:
            add("convert", [i], o, lambda x, o=o: wrap(x, o), lambda b, x, o=o: b.convert(x, o))
        add("convert", [bool_], i, lambda x, i=i: x.astype(i.name), lambda b, x, i=i: b.convert(x, i))
    for d in NUMBERS:
        add("convert", [d], bool_, lambda x: x != 0, lambda b, x: b.convert(x, bool_))
        add("equal", [d, d], bool_, operator.eq)
        add("less", [d, d], bool_, operator.lt)
        add("less_equal", [d, d], bool_, operator.le)
        add("select", [bool_, d, d], d, np.where)
        add("like", [d], d, lambda x: np.full_like(x, 3), lambda b, x: b.like(x, 3))
    for name, function in {"bit_and": operator.and_, "bit_or": operator.or_, "bit_xor": operator.xor}.items():
        add(name, [bool_, bool_], bool_, function)
    add("invert", [bool_], bool_, operator.invert)
    add("select", [bool_, bool_, bool_], bool_, np.where)
    for entries in (1, 5, 16, 17, 40):
        for d in (float32, float64, int32, int64):
            table = tuple(float(v) for v in np.arange(entries) * 3 - 7)
            add(
                f"lookup_{entries}", [int32], d,
                lambda x, t=table, d=d: np.array(t, d.name)[np.abs(x.astype(np.int64)) % len(t)],
                functools.partial(_emit_lookup, table=table, dtype=d),
            )  # fmt: skip
    return found


def _sign(x: Array) -> Any:
    return np.array(1 << (8 * x.itemsize - 1), f"u{x.itemsize}")


def _emit_lookup(b: Builder, x: Vector, *, table: tuple[float, ...], dtype: DType) -> Vector:
    """|x| % entries by float64 arithmetic, which is exact for int32, then the lookup."""
    wide = b.abs(b.convert(x, float64))
    count = b.like(wide, float(len(table)))
    quotient = b.convert(b.convert(b.div(wide, count), int64), float64)
    return b.lookup(table, dtype, b.convert(b.sub(wide, b.mul(quotient, count)), int32))


WORDS = {str(word): word for word in _words()}
GROUPS = sorted({word.name.split("_")[0] for word in WORDS.values()})


def apply_words(b: Builder, description: tuple[tuple[str, ...], int]) -> None:
    """Load whole vectors, apply each of the words, store: argument k is the k-th array of all the words'."""
    names, width = description
    place = 0
    for name in names:
        word = WORDS[name]
        vectors = []
        for dtype in word.inputs:
            vectors.append(b.load(b.pointer(f"p{place}", dtype), 0, width))
            place += 1
        b.store(b.pointer(f"p{place}", word.output), 0, word.emit(b, *vectors))
        place += 1


def _prepared(names: tuple[str, ...], width: int) -> tuple[list[Array], list[tuple[int, Word, list[Array]]]]:
    arrays: list[Array] = []
    outputs = []
    for name in names:
        word = WORDS[name]
        given = [guard.array(values(d, seed, word.nan)[:width]) for seed, d in enumerate(word.inputs)]
        arrays += given
        outputs.append((len(arrays), word, given))
        arrays.append(guard.empty(width, word.output.name))
        arrays[-1].view(np.uint8)[:] = 0xA5
    return arrays, outputs


def _check(arrays: list[Array], outputs: list[tuple[int, Word, list[Array]]], isa: Isa) -> None:
    for place, word, given in outputs:
        with np.errstate(all="ignore"):
            expected = np.asarray(word.meaning(*given))
        found = arrays[place]
        if word.arithmetic and word.output.is_float:
            expected, found = ieee.canonical(expected), ieee.canonical(found)
        assert same_bits(expected, found), (isa.name, str(word), given, expected, found)


def _spec(names: tuple[str, ...], width: int, count: int, isa: Isa) -> KernelSpec:
    return KernelSpec(apply_words, (names, width), tuple(f"p{k}" for k in range(count)), isa)


@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize("isa", rows.ALL_ROWS, ids=lambda r: r.name)
def test_words_mean_what_numpy_says(isa: Isa, group: str) -> None:
    names = tuple(name for name, word in WORDS.items() if word.name.split("_")[0] == group)
    for width in widths(isa):
        arrays, outputs = _prepared(names, width)
        execute(_spec(names, width, len(arrays), isa), arrays)
        _check(arrays, outputs, isa)


@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize("isa", rows.AARCH64_ROWS, ids=lambda r: r.name)
def test_words_mean_the_same_on_aarch64(isa: Isa, group: str) -> None:
    names = tuple(name for name, word in WORDS.items() if word.name.split("_")[0] == group)
    for width in {1: (3,), 3: (1, 7)}.get(isa.lanes, (1, 7, 16)):
        arrays, outputs = _prepared(names, width)
        aarch64.run_kernel(_spec(names, width, len(arrays), isa), arrays, 0, 1)
        _check(arrays, outputs, isa)


@pytest.mark.skipif(aarch64.QEMU is None, reason="qemu-aarch64 is not installed")
@pytest.mark.parametrize("group", GROUPS)
def test_words_mean_the_same_under_qemu(group: str) -> None:
    isa = next(row for row in rows.AARCH64_ROWS if row.name == "neon")
    names = tuple(name for name, word in WORDS.items() if word.name.split("_")[0] == group)
    arrays, outputs = _prepared(names, 16)
    aarch64.run_kernel_with_qemu(_spec(names, 16, len(arrays), isa), arrays, 0, 1)
    _check(arrays, outputs, isa)


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
    """y[k] = x[k] as an index; prefetch, cast and offset on the way."""
    x, y = b.pointer("x", description), b.pointer("y", int64)
    for k in b.loop(0, b.index("n")):
        b.prefetch(x, k + 1000000)
        i = b.load_index(b.offset(x, k), 0)
        b.store(b.cast(b.offset(b.cast(y, uint8), k * 8), int64), 0, b.from_index(i, int64))


@pytest.mark.parametrize("dtype", [*INTEGERS, bool_], ids=lambda d: d.name)
@pytest.mark.parametrize("isa", rows.ALL_ROWS, ids=lambda r: r.name)
def test_load_index_extends_by_the_sign_of_the_dtype(isa: Isa, dtype: DType) -> None:
    x = values(dtype, 5)
    if dtype is uint64:
        x = x >> 1
    y = np.empty(65, np.int64)
    execute(KernelSpec(extend_and_move, dtype, ("x", "y", "n"), isa), [x, y, 65])
    assert same_bits(y, x.astype(np.int64))


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


# -- indices and control ----------------------------------------------------------------------------------------


def index_arithmetic(b: Builder, description: None) -> None:
    """Each operator of indices, in both orders, on arguments and constants."""
    x, y, out = b.index("x"), b.index("y"), b.pointer("out", int64)
    found = [
        x + y, x - y, x * y, x // y, x % y, 3 + x, 100 - x, 5 * x, x // 4, x % 4, 1000 // x, 1000 % x, -x, x * 0, x * 1,
        x // 1, x % 1, b.min(x, y), b.max(x, 7), b.min(3, 4), b.max(3, 4), b.choose(x < y, x, y), b.choose(True, 1, 2),
        b.choose((x <= y) & (x != 3), 1, 0), b.choose((x > y) | (x == 6), 1, 0), b.choose((x >= y) & True, 1, 0),
        b.choose(False | (x < 100), 1, 0), b.choose(False & (x < 100), 1, 0), b.min(x, 0 - y),
    ]  # fmt: skip
    for k, value in enumerate(found):
        b.store(out, k, b.from_index(value, int64))
    p = b.choose(x < y, b.offset(out, 40), b.offset(out, 41))
    b.store(p, 0, b.constant(77, int64, 1))


@pytest.mark.parametrize("isa", rows.ALL_ROWS, ids=lambda r: r.name)
def test_index_arithmetic(isa: Isa) -> None:
    for x, y in ((6, 4), (3, 9), (1, 1), (1 << 40, 3)):
        out = np.zeros(42, np.int64)
        execute(KernelSpec(index_arithmetic, None, ("x", "y", "out"), isa), [x, y, out])
        expected = [
            x + y, x - y, x * y, x // y, x % y, 3 + x, 100 - x, 5 * x, x // 4, x % 4, 1000 // x, 1000 % x, -x, 0, x,
            x, 0, min(x, y), max(x, 7), 3, 4, x if x < y else y, 1, x <= y and x != 3, x > y or x == 6, x >= y,
            x < 100, 0, -y,
        ]  # fmt: skip
        assert out[: len(expected)].tolist() == [int(v) for v in expected]
        assert out[40:].tolist() == ([77, 0] if x < y else [0, 77])


def index_bits(b: Builder, description: None) -> None:
    """Each operator on the bits of indices, in both orders, on arguments and constants."""
    x, y, out = b.index("x"), b.index("y"), b.pointer("out", int64)
    found = [
        x << y, x << 0, x << 3, 1 << y, x >> y, x >> 0, x >> 3, -100 >> y, x & y, x & 12, 12 & x, x | y, x | 0, x | 5,
        5 | x, (-1 - x) & y,
    ]  # fmt: skip
    for k, value in enumerate(found):
        b.store(out, k, b.from_index(value, int64))


@pytest.mark.parametrize("isa", rows.ALL_ROWS, ids=lambda r: r.name)
def test_bits_of_indices(isa: Isa) -> None:
    for x, y in ((6, 4), (-77, 9), (0, 0), (-1, 40), (1 << 40, 3)):
        out = np.zeros(16, np.int64)
        execute(KernelSpec(index_bits, None, ("x", "y", "out"), isa), [x, y, out])
        expected = [
            x << y, x, x << 3, 1 << y, x >> y, x, x >> 3, -100 >> y, x & y, x & 12, x & 12, x | y, x, x | 5, x | 5,
            ~x & y,
        ]  # fmt: skip
        assert out.tolist() == expected


def shift_by_index(b: Builder, description: tuple[DType, int]) -> None:
    """out[0] = x << by, out[1] = x >> by."""
    dtype, width = description
    x, out, by = b.load(b.pointer("x", dtype), 0, width), b.pointer("out", dtype), b.index("by")
    b.store(out, 0, b.shift_left(x, by))
    b.store(out, width, b.shift_right(x, by))


@pytest.mark.parametrize("dtype", INTEGERS, ids=lambda d: d.name)
@pytest.mark.parametrize("isa", [*rows.ALL_ROWS, *rows.AARCH64_ROWS[1:2]], ids=lambda r: r.name)
def test_shifts_by_an_index(isa: Isa, dtype: DType) -> None:
    for width in (1, 3, isa.lanes + 1):
        x, by = guard.array(values(dtype, 4)[:width]), dtype.width_bits - 3
        out = guard.empty((2, width), x.dtype)
        spec = KernelSpec(shift_by_index, (dtype, width), ("x", "out", "by"), isa)
        if isa.available:
            execute(spec, [x, out, by])
        else:
            aarch64.run_kernel(spec, [x, out, by], 0, 1)
        assert same_bits(out[0], python_integers(lambda v, n=by: v << n)(x))
        assert same_bits(out[1], python_integers(lambda v, n=by: v >> n)(x))


def copy_at_any_byte(b: Builder, description: tuple[DType, int]) -> None:
    """Elements that begin at any byte: whole, counted, strided and as an index."""
    dtype, width = description
    x = b.cast(b.pointer("x", uint8), dtype, aligned=False)
    y = b.cast(b.offset(b.pointer("y", uint8), 1), dtype, aligned=False)
    b.store(y, 0, b.load(b.offset(x, 1), 0, width))
    b.store(y, width, b.load(x, 0, width, width - 1), width - 1)
    b.store_strided(b.choose(b.index("zero") < 1, y, x), 2 * width, 1, b.load_strided(x, width, -1, width))
    b.store(b.cast(y, int64, aligned=False), 0, b.from_index(b.load_index(x, 0), int64))


@pytest.mark.parametrize("isa", [*rows.ALL_ROWS, *rows.AARCH64_ROWS[1:2]], ids=lambda r: r.name)
def test_elements_at_any_byte(isa: Isa) -> None:
    for dtype in (uint16, int32, uint64):
        for width in (4, 5, isa.lanes + 4):
            size = dtype.width_bits // 8
            memory = guard.array(np.arange(1, (width + 1) * size + 2, dtype=np.uint8))
            out = guard.empty(3 * width * size + 1, np.uint8)
            out[:] = 0xA5
            spec = KernelSpec(copy_at_any_byte, (dtype, width), ("x", "y", "zero"), isa)
            if isa.available:
                execute(spec, [memory[1:], out, 0])
            else:
                aarch64.run_kernel(spec, [memory[1:], out, 0], 0, 1)
            x = memory[1:].view(dtype.name)
            due = np.full(3 * width, 0, dtype.name)
            due.view(np.uint8)[:] = 0xA5
            due[:width], due[width : 2 * width - 1], due[2 * width :] = x[1:], x[: width - 1], x[width:0:-1]
            due.view(np.uint8)[:8] = np.array([int(x[0])], np.int64).view(np.uint8)
            assert (out[0], out[1:].tobytes()) == (0xA5, due.tobytes())


def nested_loops(b: Builder, description: int) -> None:
    """Carried vectors, masks and indices through loops in loops and conditions; every trip count may be zero."""
    width = description
    n, m = b.index("n"), b.index("m")
    x, out = b.pointer("x", float32), b.pointer("out", float32)
    one = b.constant(1.0, float32, width)
    carry: list[Any] = [[b.load(x, 0, width), one], [b.constant(False, bool_, width), [0]]]
    for i in b.loop(0, n, carry=carry):
        for j in b.loop(i, m, 2, carry=carry):
            carry[0][0] = b.add(carry[0][0], one)
            for _ in b.when((j % 3 == 0) & (i > 0), carry=carry):
                carry[0][1] = b.mul(carry[0][1], b.constant(3.0, float32, width))
                carry[1][0] = b.less(carry[0][0], carry[0][1])
                carry[1][1][0] = carry[1][1][0] + j
        for _ in b.when(b.any(carry[1][0]), carry=[]):
            b.store(out, 3 * width, b.from_index(i, float32))
    b.store(out, 0, carry[0][0])
    b.store(out, width, carry[0][1])
    b.store(out, 2 * width, b.convert(carry[1][0], float32))
    b.store(out, 3 * width + 1, b.from_index(carry[1][1][0], float32))


def nested_loops_in_python(x: Array, n: int, m: int) -> Array:
    """The same with Python's own control."""
    width = len(x)
    a, c, mask, total = x.copy(), np.ones(width, np.float32), np.zeros(width, bool), 0
    last = -1
    for i in range(n):
        for j in range(i, m, 2):
            a = a + np.float32(1)
            if j % 3 == 0 and i > 0:
                c = c * np.float32(3)
                mask = a < c
                total += j
        if mask.any():
            last = i
    return np.concatenate([a, c, mask.astype(np.float32), np.array([last, total], np.float32)])


@pytest.mark.parametrize("isa", rows.ALL_ROWS, ids=lambda r: r.name)
def test_loops_and_conditions_carry_what_python_carries(isa: Isa) -> None:
    for width in widths(isa):
        x = np.linspace(0, 40, width, dtype=np.float32)
        for n, m in ((0, 5), (5, 0), (1, 1), (4, 9), (7, 3)):
            out = np.full(3 * width + 2, -1, np.float32)
            execute(KernelSpec(nested_loops, width, ("n", "m", "x", "out"), isa), [n, m, x, out])
            assert same_bits(out, nested_loops_in_python(x, n, m)), (width, n, m)


@pytest.mark.parametrize("isa", rows.AARCH64_ROWS, ids=lambda r: r.name)
def test_loops_and_conditions_on_aarch64(isa: Isa) -> None:
    x = np.linspace(0, 40, 5, dtype=np.float32)
    out = np.full(17, -1, np.float32)
    aarch64.run_kernel(KernelSpec(nested_loops, 5, ("n", "m", "x", "out"), isa), [4, 9, x, out], 0, 1)
    assert same_bits(out, nested_loops_in_python(x, 4, 9))


def functions_and_memory(b: Builder, description: int) -> None:
    """A function called twice, another inside a loop, a local array and scratch; one task a row."""
    width = description
    x, out = b.pointer("x", float32), b.pointer("out", float32)

    def scale(source: Any, to: Any, count: Any) -> None:
        for i in b.loop(0, count):
            v = b.load(source, i * width, width)
            b.store(to, i * width, b.add(v, v))

    def shift(p: Any, by: Any) -> None:
        kept = b.local(float32, width)
        b.store(kept, 0, b.load(p, 0, width))
        b.store(p, 0, b.add(b.load(kept, 0, width), b.splat(b.from_index(by, float32), width)))

    double = b.function("step", (float32, float32, None), scale)
    moved = b.function("step", (float32, None), shift)  # one name twice is two functions
    for t in b.tasks():
        own = b.scratch(float32, 64)
        b.call(double, b.offset(x, t * 2 * width), own, 2)
        b.call(moved, own, t)
        for _ in b.loop(0, 2):
            b.call(moved, b.offset(own, width), 10)
        for k in range(2):
            b.store(out, (t * 2 + k) * width, b.load(own, k * width, width))


@pytest.mark.parametrize("isa", rows.ALL_ROWS, ids=lambda r: r.name)
def test_functions_locals_scratch_and_tasks(isa: Isa) -> None:
    for width in (1, 3, 16):
        x = np.arange(5 * 2 * width, dtype=np.float32).reshape(5, 2, width)
        out = guard.empty(x.shape, np.float32)
        execute(KernelSpec(functions_and_memory, width, ("x", "out"), isa), [x, out], tasks=5)
        shift = np.stack([np.arange(5, dtype=np.float32), np.full(5, 20, np.float32)], 1)[:, :, None]
        assert same_bits(out, x * 2 + shift)


# -- what is refused --------------------------------------------------------------------------------------------


def _builders(isa: Isa) -> Builder:
    spec = KernelSpec(functions_and_memory, 1, ("p",), isa)
    return llvm.LlvmBuilder(spec) if isa.compiled else interpreter.NumpyBuilder(spec, [0], 0, 1, 0)


def _f(b: Builder, width: int = 4, dtype: DType = float32) -> Vector:
    return b.constant(1, dtype, width)


REFUSED: dict[str, tuple[Callable[[Builder], object], str]] = {
    "widths": (lambda b: b.add(_f(b, 4), _f(b, 5)), "add of float32 x 4, float32 x 5: they must agree"),
    "dtypes": (lambda b: b.mul(_f(b), _f(b, 4, float64)), "mul of float32 x 4, float64 x 4: they must agree"),
    "signs": (lambda b: b.add(_f(b, 4, int32), _f(b, 4, uint32)), "add of int32 x 4, uint32 x 4: they must agree"),
    "third": (lambda b: b.fma(_f(b), _f(b), _f(b, 3)), "fma of float32 x 4, float32 x 4, float32 x 3: they must agree"),
    "unaligned call": (
        lambda b: b.call(
            b.function("f", (int32,), lambda p: None), b.offset(b.cast(b.pointer("p", uint8), int32, aligned=False), 1)
        ),
        "call with a pointer at any byte: must be aligned; cast it inside the function",
    ),
    "integer div": (lambda b: b.div(_f(b, 4, int32), _f(b, 4, int32)), "div of int32: must be float32 or float64"),
    "integer sqrt": (lambda b: b.sqrt(_f(b, 4, int8)), "sqrt of int8: must be float32 or float64"),
    "mask add": (
        lambda b: b.add(_f(b, 4, bool_), _f(b, 4, bool_)),
        "add of bool: must be float32, float64 or an integer of whole bytes",
    ),
    "float bits": (
        lambda b: b.bit_and(_f(b), _f(b)),
        "bit_and of float32: must be an integer of whole bytes or a mask",
    ),
    "float shift": (lambda b: b.shift_left(_f(b), 1), "shift_left of float32: must be an integer of whole bytes"),
    "far shift": (lambda b: b.shift_right(_f(b, 4, int8), 8), "shift_right of int8 by 8: must be within 0 .. 7"),
    "select": (lambda b: b.select(_f(b), _f(b), _f(b)), "select of float32: must be a mask"),
    "select width": (
        lambda b: b.select(_f(b, 3, bool_), _f(b), _f(b)),
        "select of 3 mask lanes and 4 lanes: they must agree",
    ),
    "any": (lambda b: b.any(_f(b)), "any of float32: must be a mask"),
    "invert": (lambda b: b.invert(_f(b, 4, int32)), "invert of int32: must be a mask"),
    "splat": (lambda b: b.splat(_f(b), 8), "splat of 4 lanes: must be 1"),
    "slice": (lambda b: b.slice(_f(b), 2, 3), "slice of lanes 2 .. 4 from 4"),
    "concat": (lambda b: b.concat([_f(b), _f(b, 4, int32)]), "concat of ['float32', 'int32']: must be one dtype"),
    "transpose": (
        lambda b: b.transpose([_f(b), _f(b, 3)]),
        "transpose of float32 x 4, float32 x 3: they must agree",
    ),
    "bitcast": (
        lambda b: b.bitcast(_f(b), int64),
        "bitcast of float32 to int64: must be elements of one width, not masks",
    ),
    "bitcast mask": (
        lambda b: b.bitcast(_f(b, 4, bool_), uint8),
        "bitcast of bool to uint8: must be elements of one width, not masks",
    ),
    "convert": (
        lambda b: b.convert(_f(b), dtypes.bfloat16),
        "convert of bfloat16: must be a computed number or a mask",
    ),
    "constant range": (lambda b: b.constant(300, uint8, 4), "constant 300 of uint8: must be within 0 .. 255"),
    "constant part": (
        lambda b: b.constant(1.5, int32, 4),
        "constant 1.5 of int32: must be within -2147483648 .. 2147483647",
    ),
    "constant large": (
        lambda b: b.constant(1e300, float32, 4),
        "constant 1e+300 of float32: must be finite in float32, or infinite itself",
    ),
    "constant narrow": (
        lambda b: b.constant(1.0, dtypes.float16, 4),
        "constant of float16: must be a computed number or a mask",
    ),
    "iota": (lambda b: b.iota(float32, 4), "iota of float32: must be an integer of whole bytes"),
    "iota range": (lambda b: b.iota(int8, 200), "constant 199 of int8: must be within -128 .. 127"),
    "lookup": (
        lambda b: b.lookup([1.0], float32, _f(b, 4, int64)),
        "lookup of int64 in 1 entries: must be int32 in at least one",
    ),
    "store": (
        lambda b: b.store(b.pointer("p", float32), 0, _f(b, 4, float64)),
        "store of float64 to elements of float32: convert or cast first",
    ),
    "load_index": (
        lambda b: b.load_index(b.pointer("p", float32), 0),
        "load_index of float32: must be an integer of whole bytes or bool",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_text_that_mixes_types_is_refused_alike_by_both_builders(case: str) -> None:
    use, text = REFUSED[case]
    for isa in (rows.FAKE3, rows.ALL_ROWS[0]):
        with pytest.raises(TypeError) as caught:
            use(_builders(isa))
        assert str(caught.value) == text


COMPILED_REFUSED: dict[str, tuple[Callable[[Any], object], str]] = {
    "carry": (
        lambda b: _carry(b, lambda c: c.__setitem__(0, _f(b, 5))),
        "a body carries ['float32 x 5', 'index']: must be as before, ['float32 x 4', 'index']",
    ),
    "step": (lambda b: list(b.loop(0, 4, 0)), "loop step 0: must be a positive constant"),
    "call": (
        lambda b: b.call(b.function("f", (float32, None), lambda p, i: None), 3, 3),
        "call of f with [None, None]: must be [float32, None] (None: an index)",
    ),
    "condition": (
        lambda b: bool(b.index("p") < 3),
        "a condition of a kernel is known when it runs, not when it is emitted; use b.when",
    ),
    "index": (
        lambda b: bool(b.index("p")),
        "an index of a kernel is known when it runs, not when it is emitted; use b.when",
    ),
    "argument": (
        lambda b: b.function("f", (), lambda: b.index("p")),
        "p inside a function: must be passed to it as a parameter",
    ),
    "scratch": (
        lambda b: b.function("f", (), lambda: b.scratch(float32)),
        "scratch inside a function: must be passed to it as a parameter",
    ),
}


def _carry(b: Any, body: Callable[[list[Any]], None]) -> None:
    carry = [_f(b), 0]
    for _ in b.loop(0, 3, carry=carry):
        body(carry)


@pytest.mark.parametrize("case", COMPILED_REFUSED)
def test_a_text_that_cannot_be_compiled_says_why(case: str) -> None:
    use, text = COMPILED_REFUSED[case]
    with pytest.raises(TypeError) as caught:
        use(_builders(rows.FAKE3))
    assert str(caught.value) == text


def test_a_kernel_is_a_function_of_a_module() -> None:
    with pytest.raises(TypeError) as caught:
        KernelSpec(lambda b, d: None, None, (), rows.FAKE3)
    name = "test_a_kernel_is_a_function_of_a_module.<locals>.<lambda>"
    assert str(caught.value) == (
        f"KernelSpec: text {name} must be a function of a module: its name is in the cache key"
    )
