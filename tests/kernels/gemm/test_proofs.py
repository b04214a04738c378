"""What must not matter to a product's bits: everything but its operands' values. `gemm_cases.py` draws the cases.

The default run takes a sample; `exhaustive` has every M of 0..70, 127..129 and 512, more columns, and kinds of operands
that differ in little.
"""

from __future__ import annotations

import itertools
import os
import platform
import threading
from collections.abc import Callable
from typing import Any

import gemm_cases
import numpy as np
import pytest
from gemm_cases import KINDS, MORE, WIDTHS, Kind, cases
from launch import assert_bits, bits, flushing
from rows import COMPILED_ROWS, PRODUCT_ROWS, rows_of_engines

import samebits as sb
from samebits import driver, dtypes
from samebits.codegen.isa import Isa
from samebits.kernels.gemm import reference
from samebits.kernels.gemm.engine import span, total_of
from samebits.kernels.gemm.reference import integers

Array = np.ndarray[Any, np.dtype[Any]]


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_a_sample_has_the_bits_of_the_reference(kind: Kind) -> None:
    """One row of the kind, another for the next kind; a few M."""
    i = KINDS.index(kind)
    isa = PRODUCT_ROWS[i % len(PRODUCT_ROWS)]
    wrong = [case for case in cases(kind, isa, (i % 3, 5 + i % 13, 70 - i % 29)) if not case.run(rows=70)]
    assert wrong == []


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("kind", "isa"),
    [
        pytest.param(kind, row, id=f"{kind}-{row.name}")
        for kind in (*KINDS, *MORE)
        for row in rows_of_engines(kind.a, kind.b)
    ],
)
def test_every_m_has_the_bits_of_the_reference(kind: Kind, isa: Isa, capsys: pytest.CaptureFixture[str]) -> None:
    ran, wrong = 0, []
    for case in sorted(cases(kind, isa, columns=WIDTHS[-1]), key=lambda case: case.k):
        ran += 1
        if not case.run(columns=WIDTHS[-1]):
            wrong.append(case)
    with capsys.disabled():
        print(f"\n{kind} on {isa.name}: {ran} products, wrong = {len(wrong)}", end=" ")
    assert wrong == []


class Work:
    """Products of several kinds by the public functions, some with subnormal sums, and their bits by the reference."""

    M, K, N = 30, 260, 70

    def __init__(self) -> None:
        self.calls: list[Callable[[int | None], Any]] = []
        self.due: list[Array] = []
        for a, b in (("float32", "float32"), ("bfloat16", "bfloat16"), ("float64", "float64"), ("uint8", "int8")):
            x = gemm_cases.values(dtypes.of(a), self.M, self.K)
            y = gemm_cases.values(dtypes.of(b), self.K, self.N, seed=1)
            if a == "uint8":
                due = integers(x, y, 3, -7).astype(np.int32)
                self.add(due, x, y, {"a_zero_point": 3, "b_zero_point": -7})
                continue
            tiny = np.array(2.0 ** (-520 if a == "float64" else -70), x.dtype)
            x[::3], y[:, ::3] = x[::3] * tiny, y[:, ::3] * tiny
            due = reference(x, y)
            assert ((np.abs(due) < np.finfo(due.dtype).smallest_normal) & (due != 0)).any()
            self.add(due, x, y, {"out_dtype": due.dtype})
        x, dy = (gemm_cases.values(dtypes.float32, self.K, n, seed=n) for n in (self.N, 40))
        self.calls.append(lambda threads: sb.grad_weight(x, dy, threads=threads))
        self.due.append(reference(dy.T, x))

    def add(self, due: Array, x: Array, y: Array, options: dict[str, Any]) -> None:
        """The product as it is and with b packed, in one step and in two."""
        kept = sb.pack(y)
        self.calls.append(lambda threads: sb.matmul(x, y, threads=threads, **options))
        self.calls.append(lambda threads: sb.matmul(x, kept, threads=threads, **options))
        self.due += [due, due]

    def wrong(self, threads: int | None = None) -> list[int]:
        """The numbers of calls that give other bits."""
        got = [call(threads) for call in self.calls]
        return [i for i, (x, y) in enumerate(zip(got, self.due, strict=True)) if not np.array_equal(bits(x), bits(y))]


@pytest.fixture(scope="module")
def work() -> Work:
    """Made once."""
    return Work()


def test_the_callers_float_environment_does_not_matter(work: Work) -> None:
    library = driver.libc()
    modes = (0, 0x400, 0x800, 0xC00) if platform.machine() == "x86_64" else (0, 0x400000, 0x800000, 0xC00000)
    for mode, threads in itertools.product(modes, (1, 3)):
        assert library.fesetround(mode) == 0
        try:
            got = [call(threads) for call in work.calls]
            packed = sb.pack(np.full((3, 5), 2.0**-140, np.float32))
            assert library.fegetround() == mode
        finally:
            library.fesetround(0)
        for x, due in zip(got, work.due, strict=True):
            assert_bits(x, due, (mode, threads))
        assert (packed.tensor.numpy().reshape(3, -1)[:, :5] == np.float32(2.0**-140)).all()
    for threads in (1, 3):
        with flushing():
            got = [call(threads) for call in work.calls]
        for x, due in zip(got, work.due, strict=True):
            assert_bits(x, due, threads)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_gives_the_same_bits(work: Work) -> None:
    assert work.wrong(3) == []
    child = os.fork()
    if child == 0:
        try:
            os._exit(len(work.wrong(3)))
        except BaseException:
            os._exit(100)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert work.wrong(3) == []


def test_eight_callers_at_once_get_the_same_bits(work: Work) -> None:
    found: list[object] = []
    start = threading.Barrier(8)

    def call(number: int) -> None:
        start.wait()
        try:
            for _ in range(4):
                found.extend(work.wrong(1 + number % 3))
        except Exception as error:
            found.append(error)

    callers = [threading.Thread(target=call, args=(number,)) for number in range(8)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert found == []


@pytest.mark.parametrize("kind", [KINDS[0], KINDS[2], Kind(dtypes.uint8, dtypes.int8, (True, True))], ids=str)
def test_a_row_does_not_see_the_others(kind: Kind) -> None:
    """Neither how many they are nor what they hold."""
    a, b, zeros, _, due = gemm_cases.operands(kind, 257, 70)
    options: dict[str, Any] = {"out_dtype": due.dtype}
    if zeros[1] is not None:
        options["b_zero_point"] = zeros[1]
    kept = sb.pack(b, left=a.dtype)

    def check(x: Array, rows: slice, first: int, right: Any) -> None:
        points = {} if zeros[0] is None else {"a_zero_point": zeros[0][first : first + len(x)].copy()}
        got = sb.matmul(x, right, **options, **points)
        assert_bits(got[rows], due[first : first + len(x)][rows], (len(x), rows))

    for i in range(70):
        check(a[i : i + 1], slice(None), i, kept if i % 2 else b)
    for i, size in enumerate((2, 5, 12, 13, 40)):
        check(a[i : i + size], slice(None), i, b if i % 2 else kept)
    if kind.a.is_float:
        for hostile, i in itertools.product((np.nan, np.inf, 1e30, 1e-40), (0, 1, 12, 69)):
            x = np.full(a.shape, np.float32(hostile).astype(a.dtype), a.dtype)
            x[i] = a[i]
            for right in (b, kept):
                check(x, slice(i, i + 1), 0, right)


@pytest.mark.parametrize("threads", [1, 2, 3, 7])
def test_micro_batches_on_any_workers_give_the_weight_gradient_of_the_whole(threads: int) -> None:
    """Cut anywhere at multiples of 128 rows, each part by as many threads as it likes."""
    rng = np.random.default_rng(threads)
    rows = 128 * 9 + 17
    x, dy = gemm_cases.values(dtypes.float32, rows, 37), gemm_cases.values(dtypes.float32, rows, 66, seed=1)
    whole = sb.grad_weight(x, dy)
    assert_bits(whole, reference(dy.T, x))
    for _ in range(6):
        cuts = np.sort(rng.choice(np.arange(1, 10), rng.integers(1, 9), replace=False)) * 128
        out = np.zeros_like(whole)
        for part in np.split(np.arange(rows), cuts):
            sb.grad_weight(x[part], dy[part], out=out, threads=int(rng.integers(1, 8)) if threads == 7 else threads)
        assert_bits(out, whole, cuts)


MIXES = list(itertools.product((dtypes.int8, dtypes.uint8), repeat=2))


@pytest.mark.parametrize(("left", "right"), MIXES, ids=lambda dtype: dtype.name)
def test_integers_are_pythons_where_int32_ends(left: dtypes.DType, right: dtypes.DType) -> None:
    """The longest K that cannot leave int32 and the next, of the largest magnitudes, with zero points and without."""
    for zeros in ((None, None), (int(left.max), int(right.min))):
        given = zeros[0] is not None
        extremes = [
            max((int(dtype.min), int(dtype.max)), key=lambda value, zero=zero or 0: abs(value - zero))
            for dtype, zero in zip((left, right), zeros, strict=True)
        ]  # fmt: skip
        step = (extremes[0] - (zeros[0] or 0)) * (extremes[1] - (zeros[1] or 0))
        longest = (2**31 - 1) // (span(left, given) * span(right, given))
        for k in (longest, longest + 1):
            a, b = np.full((2, k), extremes[0], left.numpy), np.full((k, 3), extremes[1], right.numpy)
            got = sb.matmul(a, b, a_zero_point=zeros[0], b_zero_point=zeros[1])
            assert got.dtype == total_of(left, right, k, (given, given)).numpy
            assert got.dtype == (np.int32 if k == longest else np.int64)
            assert got.tolist() == [[step * k] * 3] * 2


def test_int64_sums_are_pythons() -> None:
    k = 3_000_000
    a, b = np.full((1, k), 255, np.uint8), np.full((k, 2), 255, np.uint8)
    for isa in COMPILED_ROWS:
        with sb.use_isa(isa):
            assert sb.matmul(a, b).tolist() == [[255 * 255 * k] * 2]
