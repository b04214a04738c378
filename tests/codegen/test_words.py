"""Every word on vectors, on every row and width: compiled bits == interpreted bits == a statement in NumPy."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import aarch64
import guard
import numpy as np
import pytest
import rows
from vocabulary_run import FLOATS, INTEGERS, NUMBERS, execute, python_integers, same_bits, values, widths

from samebits import ieee
from samebits.codegen import interpreter
from samebits.codegen.isa import Isa
from samebits.codegen.vocabulary import Builder, KernelSpec, Vector
from samebits.dtypes import DType, bool_, float16, float32, float64, int32, int64, uint32, uint64

Array = Any


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
        counted = functools.partial(_emit_counted, last=i.width_bits - 1)
        for word, function in {"shift_left": operator.lshift, "shift_right": operator.rshift}.items():
            meaning = python_integers(lambda x, n, f=function, last=i.width_bits - 1: f(x, n & last))
            add(f"{word}_lanes", [i, i], i, meaning, functools.partial(counted, word=word))
        add("quotient", [i, i], i, python_integers(_divided), _emit_quotient)
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
    for entries in (1, 5, 8, 9, 16, 17, 40):
        for d in (float32, float64, int32, int64):
            table = tuple(float(v) for v in np.arange(entries) * 3 - 7)
            add(
                f"lookup_{entries}", [int32], d,
                lambda x, t=table, d=d: np.array(t, d.name)[np.abs(x.astype(np.int64)) % len(t)],
                functools.partial(_emit_lookup, table=table, dtype=d),
            )  # fmt: skip
    codes = tuple(i * 2049 % 65536 for i in range(32))
    add(
        "lookup_halves", [uint32], uint32,
        lambda x: np.array(codes, np.uint32)[x % 32] | np.array(codes, np.uint32)[(x >> 16) % 32] << np.uint32(16),
        lambda b, x: b.lookup_halves(codes, x),
    )  # fmt: skip
    octets = tuple(i * 37 % 256 for i in range(16))
    add(
        "lookup_bytes", [uint32], uint32, lambda x: np.array(octets, np.uint8)[x.view(np.uint8) & 15].view(np.uint32),
        lambda b, x: b.lookup_bytes(octets, b.bit_and(x, b.like(x, 0x0F0F0F0F))),
    )  # fmt: skip
    for d in (float32, int32):
        numbers = (np.arange(16) * 3 - 7).astype(d.name)
        add(
            "lookup_at", [uint32], d, lambda x, t=numbers: t[x % 16],
            functools.partial(_emit_lookup_at, table=numbers, dtype=d),
        )  # fmt: skip
    return found


def _divided(x: int, y: int) -> int:
    """x / d toward zero, d odd and not -1: y | 1, or 3."""
    divisor = 3 if y | 1 == -1 else y | 1
    quotient = abs(x) // abs(divisor)
    return quotient if (x < 0) == (divisor < 0) else -quotient


def _emit_quotient(b: Builder, x: Vector, y: Vector) -> Vector:
    odd = b.bit_or(y, b.like(y, 1))
    if y.dtype.kind == "int":
        odd = b.select(b.equal(odd, b.like(y, -1)), b.like(y, 3), odd)
    return b.quotient(x, odd)


def _emit_counted(b: Builder, x: Vector, n: Vector, *, word: str, last: int) -> Vector:
    shifted: Vector = getattr(b, word)(x, b.bit_and(n, b.like(n, last)))
    return shifted


def _sign(x: Array) -> Any:
    return np.array(1 << (8 * x.itemsize - 1), f"u{x.itemsize}")


def _emit_lookup(b: Builder, x: Vector, *, table: tuple[float, ...], dtype: DType) -> Vector:
    """|x| % entries by float64 arithmetic, which is exact for int32, then the lookup."""
    wide = b.abs(b.convert(x, float64))
    count = b.like(wide, float(len(table)))
    quotient = b.convert(b.convert(b.div(wide, count), int64), float64)
    return b.lookup(table, dtype, b.convert(b.sub(wide, b.mul(quotient, count)), int32))


def _emit_lookup_at(b: Builder, x: Vector, *, table: Array, dtype: DType) -> Vector:
    """The table behind another one of as many elements, which is not read."""
    room = b.local(dtype, 32)
    for k, value in enumerate(table):
        b.store(room, 16 + k, b.constant(float(value), dtype, 1))
    return b.lookup_at(room, 16, x)


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


def _operands(word: Word, width: int) -> list[Array]:
    """What a word is given; some lanes of operands of one dtype are equal, as `less` is `less_equal` where none is."""
    given: list[Array] = []
    for seed, dtype in enumerate(word.inputs):
        x = values(dtype, seed, word.nan)[:width].copy()
        if seed and dtype == word.inputs[0]:
            x[1::3] = given[0][1::3]
        given.append(x)
    return given


def _prepared(names: tuple[str, ...], width: int) -> tuple[list[Array], list[tuple[int, Word, list[Array]]]]:
    arrays: list[Array] = []
    outputs = []
    for name in names:
        word = WORDS[name]
        given = [guard.array(x) for x in _operands(word, width)]
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


def few_widths(isa: Isa) -> list[int]:
    """One lane, an odd count, the row's own, one more, and two registers: what others are made up of too."""
    return sorted({1, 3, isa.lanes, isa.lanes + 1, 2 * isa.lanes}) if isa.compiled else widths(isa)


FEW = pytest.param(few_widths, id="few")
MANY = pytest.param(widths, id="many", marks=pytest.mark.exhaustive)


@pytest.mark.parametrize("lanes", [FEW, MANY])
@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize("isa", rows.ALL_ROWS, ids=lambda r: r.name)
def test_words_mean_what_numpy_says(isa: Isa, group: str, lanes: Callable[[Isa], list[int]]) -> None:
    names = tuple(name for name, word in WORDS.items() if word.name.split("_")[0] == group)
    for width in lanes(isa):
        arrays, outputs = _prepared(names, width)
        execute(_spec(names, width, len(arrays), isa), arrays)
        _check(arrays, outputs, isa)


def many_emulated_widths(isa: Isa) -> list[int]:
    """One lane, an odd count beyond a register, and four registers."""
    return {1: [3], 3: [1, 7]}.get(isa.lanes, [1, 7, 16])


def few_emulated_widths(isa: Isa) -> list[int]:
    """One lane, one more than the row has, and two registers."""
    return {1: [3], 3: [1, 4]}.get(isa.lanes, [1, 5, 8])


FEW_EMULATED = pytest.param(few_emulated_widths, id="few")
MANY_EMULATED = pytest.param(many_emulated_widths, id="many", marks=pytest.mark.exhaustive)


@pytest.mark.parametrize("lanes", [FEW_EMULATED, MANY_EMULATED])
@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize("isa", rows.AARCH64_ROWS, ids=lambda r: r.name)
def test_words_mean_the_same_on_aarch64(isa: Isa, group: str, lanes: Callable[[Isa], list[int]]) -> None:
    names = tuple(name for name, word in WORDS.items() if word.name.split("_")[0] == group)
    for width in lanes(isa):
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


def halves(b: Builder, width: int) -> None:
    """float32 of codes of float16, and codes of float32."""
    codes, wide = b.pointer("codes", float16), b.pointer("wide", float32)
    singles, narrow = b.pointer("singles", float32), b.pointer("narrow", float16)
    for _ in b.tasks():
        for i in b.loop(0, b.index("n"), width):
            b.store(wide, i, b.convert(b.load(codes, i, width), float32))
            b.store(narrow, i, b.convert(b.load(singles, i, width), float16))


def _with_half() -> list[Isa]:
    """Rows that convert float16 by an instruction, and the interpreted one as if it had it."""
    having = [row for row in (*rows.COMPILED_ROWS, *rows.AARCH64_ROWS) if "float16" in row.instructions]
    return [*having, replace(rows.ALL_ROWS[0], instructions=("float16",))]


@pytest.mark.parametrize("isa", _with_half(), ids=lambda row: row.name)
def test_float16_is_converted_where_the_row_has_an_instruction(isa: Isa) -> None:
    codes = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    with np.errstate(all="ignore"):
        middles = codes[: 1 << 15].astype(np.float32) + np.float32(2.0**-25)
        random = np.random.default_rng(0).integers(0, 1 << 32, 1 << 15, dtype=np.uint32).view(np.float32)
        singles = np.concatenate([middles, random])
        due = codes.astype(np.float32), singles.astype(np.float16)
    for width in (1, 4, 16, 32):
        found, n = (np.zeros_like(due[0]), np.zeros_like(due[1])), codes.size if width == 16 else 1 << 12
        spec = KernelSpec(halves, width, ("codes", "singles", "wide", "narrow", "n"), isa)
        arguments = [codes, singles, *found, n]
        if isa in rows.AARCH64_ROWS:
            aarch64.run_kernel(spec, arguments, 0, 1)
        elif isa.compiled:
            execute(spec, arguments)
        else:
            addresses = [x.ctypes.data if isinstance(x, np.ndarray) else x for x in arguments]
            interpreter.run(spec, addresses, 0, 1, 0)
        for got, want in zip(found, due, strict=True):
            with np.errstate(invalid="ignore"):
                assert same_bits(ieee.canonical(want[:n]), ieee.canonical(got[:n])), (isa.name, width)
