"""Cases of products, for the proofs of their bits: kinds of operands, and all that must not matter, drawn by number.

`Case.run` makes one product beside forbidden pages, by the plan of the case's choices. Start at `cases`.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import guard
import numpy as np
from launch import bits

from samebits import dtypes
from samebits.codegen.isa import Isa
from samebits.dtypes import DType
from samebits.kernels import gemm
from samebits.kernels.gemm import Contraction, Matrix, engine, reference
from samebits.kernels.gemm.contraction import SB1, Panels, fused
from samebits.kernels.gemm.reference import integers
from samebits.kernels.gemm.tiles import Tile, tile_for
from samebits.kernels.plan import Operand, Plan, in_lines
from samebits.native.compile import address
from samebits.native.table import Table

Array = np.ndarray[Any, np.dtype[Any]]
MS = (*range(71), 127, 128, 129, 512)
KS = (0, 1, 131, 257, 530)
THREADS = (1, 2, 3, 7)
LAYOUTS = ("rows", "columns", "strided", "reversed")
FORMS = ("packed", "fused", "staged", None)
TILES = (None, None, Tile(1, 1), Tile(3, 2), Tile(5, 1))
_WIDEST = 131
_KERNEL = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)


@dataclass(frozen=True, slots=True)
class Kind:
    """Dtypes of a and b, and which has zero points."""

    a: DType
    b: DType
    zeros: tuple[bool, bool] = (False, False)

    def __str__(self) -> str:
        return f"{self.a.name}-{self.b.name}" + "-zeros" * any(self.zeros)


def _kinds() -> Iterator[Kind]:
    for name in ("float32", "float64", "bfloat16", "float16"):
        yield Kind(dtypes.of(name), dtypes.of(name))
    for name in ("float8_e4m3fn", "float8_e5m2", "float6_e2m3fn", "float4_e2m1fn"):
        yield Kind(dtypes.of(name), dtypes.of(name))
    for a, b in (("bfloat16", "float32"), ("float16", "float8_e4m3fn"), ("float64", "bfloat16")):
        yield Kind(dtypes.of(a), dtypes.of(b))
    for a, b in (("int8", "int8"), ("uint8", "uint8")):
        yield Kind(dtypes.of(a), dtypes.of(b))
    for a, b in (("uint8", "int8"), ("int8", "uint8"), ("uint8", "uint8"), ("int4", "uint2")):
        yield Kind(dtypes.of(a), dtypes.of(b), (a == "uint8", True))


KINDS = tuple(_kinds())


def values(dtype: DType, *shape: int, seed: int = 0) -> Array:
    """Every integer of a format, or floats of mixed magnitude and sign, some of them zero."""
    rng = np.random.default_rng([seed, *shape])
    if dtype.is_integer:
        return rng.integers(int(dtype.min), int(dtype.max) + 1, shape).astype(dtype.numpy)
    x = rng.standard_normal(shape) * np.exp2(rng.integers(-3, 3, shape)) * (rng.random(shape) > 0.05)
    return x.astype(dtype.numpy)


@functools.lru_cache(maxsize=8)
def operands(kind: Kind, k: int, rows: int) -> tuple[Array, Array, tuple[Array | None, Array | None], Array]:
    """a[rows, k], b[k, widest], zero points, and the reference's product: cases take the first rows and columns."""
    a, b = values(kind.a, rows, k), values(kind.b, k, _WIDEST, seed=1)
    of_a, of_b = kind.zeros
    zeros = values(kind.a, rows, seed=2) if of_a else None, values(kind.b, _WIDEST, seed=3) if of_b else None
    if not kind.a.is_integer:
        return a, b, zeros, reference(a, b)
    due = integers(a, b, *(0 if z is None else z for z in zeros))
    return a, b, zeros, due.astype(engine.total_of(kind.a, kind.b, k, kind.zeros).numpy)


def lying(x: Array, layout: str, at_start: bool) -> Array:
    """x beside a forbidden page: as rows, as columns, every second element, or from the end to the beginning."""
    if layout == "columns":
        return guard.array(x.T, at_start=at_start).T
    if layout == "reversed":
        return guard.array(x[::-1, ::-1], at_start=at_start)[::-1, ::-1]
    if layout == "strided":
        wide = guard.empty((x.shape[0], max(2 * x.shape[1] - 1, 0)), x.dtype, at_start=at_start)
        wide[:, ::2] = x
        return wide[:, ::2]
    return guard.array(x, at_start=at_start)


def execute(plan: Plan, arrays: list[Array]) -> None:
    """Run a plan on its operands, its workspace beside a forbidden page too; on one thread also its scratch."""
    slots = [*arrays, guard.empty(in_lines(plan.workspace_bytes), np.uint8)]
    addresses = [x.__array_interface__["data"][0] for x in slots]
    if plan.threads > 1:
        used = len(arrays) + (plan.workspace_bytes > 0)
        Table([(plan, range(used))], used, plan.threads).run(addresses[:used])
        return
    scratch = guard.empty(in_lines(plan.scratch_bytes), np.uint8)
    for step in plan.steps:
        given = [addresses[x.index] + x.offset_bytes if isinstance(x, Operand) else x for x in step.arguments]
        words = guard.array(given, np.int64)  # kept for as long as the call
        scratch[:] = 0xFF
        _KERNEL(address(step.spec))(words.ctypes.data, 0, step.tasks, scratch.ctypes.data)


def matrix(x: Array) -> Matrix:
    """How x lies."""
    row, column = (0 if extent < 2 else s // x.itemsize for extent, s in zip(x.shape, x.strides, strict=True))
    return Matrix(row, column, (), dtypes.of(x.dtype))


@dataclass(frozen=True, slots=True)
class Case:
    """One product: what it is of, and what must not matter."""

    kind: Kind
    isa: Isa
    m: int
    n: int
    k: int
    threads: int
    layouts: tuple[str, str, str]
    form: str | None
    tile: Tile | None
    at_start: bool

    def run(self, rows: int = MS[-1]) -> bool:
        """Whether the kernels give the bits of the reference."""
        a, b, zeros, due = operands(self.kind, self.k, rows)
        a, b, due = a[: self.m], b[:, : self.n], due[: self.m, : self.n]
        left, right = lying(a, self.layouts[0], self.at_start), lying(b, self.layouts[1], self.at_start)
        out = lying(np.full(due.shape, 77, due.dtype), self.layouts[2], self.at_start)
        given = [
            guard.array(z[:extent].astype(np.int32), at_start=self.at_start)
            for z, extent in zip(zeros, (self.m, self.n), strict=True) if z is not None
        ]  # fmt: skip
        sides = (0 if self.kind.zeros[0] else None, len(given) - 1 if self.kind.zeros[1] else None)
        points = [Matrix(*((1, 0) if i == sides[0] else (0, 1)), (), dtypes.int32) for i in range(len(given))]
        epilogue, sources = fused(total=dtypes.of(due.dtype), zeros=points)
        lies: Matrix | Panels = matrix(right)
        if self.form == "packed":
            right, lies = self.packed(right)
        c = Contraction(self.m, self.n, self.k, matrix(left), lies, matrix(out), (), epilogue, sources, zeros=sides)
        tile = self.tile if self.form != "packed" else None  # panels have the width of the row's own tile
        form = self.form if self.form != "fused" or self.kind.a.is_float else None  # what needs sums cannot be fused
        plan = gemm.plan(c, self.isa, self.threads, tile=tile, form=form)
        execute(plan, [left, right, *given, out])
        return bool(np.array_equal(bits(out), bits(due)))

    def packed(self, b: Array) -> tuple[Array, Panels]:
        """b in panels."""
        found = engine.choose(self.kind.a, self.kind.b, SB1.chunk, self.isa, [])
        words = guard.empty(gemm.packed_elements(self.k, self.n, self.isa, (), found), found.word.numpy)
        plan = gemm.plan_pack(self.k, self.n, matrix(b), self.isa, 1, (), found, self.kind.a)
        execute(plan, [b, words])
        return words, Panels(gemm.panel_columns(self.isa, found), (), self.kind.b, found.name)


def cases(kind: Kind, isa: Isa, ms: tuple[int, ...] = MS) -> Iterator[Case]:
    """Every M with every count of threads and two N; each three M with another tile, form, layouts and K."""
    rng = np.random.default_rng([KINDS.index(kind), isa.lanes])
    nr = tile_for(isa).nr(isa)
    extents = sorted({0, 1, nr - 1, nr, nr + 1, 2 * nr + 1} & set(range(_WIDEST + 1)))

    def drawn(choices: tuple[Any, ...]) -> Any:
        return choices[int(rng.integers(len(choices)))]

    for i, m in enumerate(ms):
        if i % 3 == 0:
            tile, form, k, at_start = drawn(TILES), drawn(FORMS), drawn(KS), bool(rng.integers(2))
            layouts = drawn(LAYOUTS), drawn(LAYOUTS), drawn(LAYOUTS)
        for n in rng.choice(extents, 2, replace=False):
            for threads in THREADS:
                yield Case(kind, isa, m, int(n), k, threads, layouts, form, tile, at_start)
