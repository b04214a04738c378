"""Cases of products, for the proofs of their bits: kinds of operands, and all that must not matter, drawn by number.

`Case.run` makes one product beside forbidden pages, by the plan of the case's choices. Start at `cases`.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import guard
import numpy as np
from launch import bits

from samebits import dtypes
from samebits.codegen.isa import Isa
from samebits.dtypes import DType
from samebits.kernels import gemm
from samebits.kernels.gemm import LINE, Contraction, Matrix, Shared, Side, engine, reference, selection
from samebits.kernels.gemm.contraction import Panels, fused
from samebits.kernels.gemm.machine import DEFAULT, Machine
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
WIDTHS = (131, 515)  # of a sample, and of all: more columns than a strip, a group of panels or a half of them has
_KERNEL = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)


@dataclass(frozen=True, slots=True)
class Kind:
    """Dtypes of a and b, and which has zero points.

    `shares`: of weights (integers b beside floats a), how many consecutive k share a scale and a zero point; 0 for all
    of a column, whose scale then multiplies once.
    """

    a: DType
    b: DType
    zeros: tuple[bool, bool] = (False, False)
    shares: int | None = None

    def __str__(self) -> str:
        name = f"{self.a.name}-{self.b.name}" + "-zeros" * any(self.zeros)
        return name if self.shares is None else f"{name}-by{self.shares or 'column'}"


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
    for a, b, zero, shares in (
        ("float32", "int8", False, 0), ("bfloat16", "uint4", True, 32), ("float32", "uint4", True, 128),
        ("bfloat16", "int4", False, 0),
    ):  # fmt: skip
        yield Kind(dtypes.of(a), dtypes.of(b), (False, zero), shares)
    for a, b in (("bfloat16", "float8_e3m4"), ("float8_e4m3b11fnuz", "float8_e5m2fnuz")):
        yield Kind(dtypes.of(a), dtypes.of(b))
    yield Kind(dtypes.uint4, dtypes.int2, (True, False))


def _more() -> Iterator[Kind]:
    for name in ("e3m4", "e4m3", "e4m3b11fnuz", "e4m3fnuz", "e5m2fnuz"):
        yield Kind(dtypes.of(f"float8_{name}"), dtypes.of(f"float8_{name}"))
    yield Kind(dtypes.float6_e3m2fn, dtypes.float6_e3m2fn)
    for a, b in (
        ("float32", "float8_e4m3fnuz"), ("float8_e5m2fnuz", "bfloat16"), ("float6_e3m2fn", "float4_e2m1fn"),
        ("float64", "float32"), ("float32", "bfloat16"),
    ):  # fmt: skip
        yield Kind(dtypes.of(a), dtypes.of(b))
    for a, b, zeros in (
        ("int2", "int2", (False, False)), ("uint4", "uint4", (True, True)), ("uint4", "int8", (True, True)),
        ("int8", "uint4", (False, True)), ("int4", "int4", (False, False)), ("uint8", "int4", (True, False)),
        ("int2", "uint8", (True, True)), ("uint1", "int1", (False, False)), ("int8", "int8", (True, True)),
    ):  # fmt: skip
        yield Kind(dtypes.of(a), dtypes.of(b), zeros)
    for a, b in itertools.product(("float32", "bfloat16"), ("int8", "uint8", "int4", "uint4")):
        yield Kind(dtypes.of(a), dtypes.of(b), shares=0)
        yield Kind(dtypes.of(a), dtypes.of(b), (False, True), 32)
    for a, b, zero, shares in (
        ("bfloat16", "int8", False, 32), ("float32", "int8", False, 128), ("bfloat16", "int8", True, 48),
        ("float32", "uint8", True, 0), ("bfloat16", "uint4", True, 0), ("float16", "int4", True, 5),
        ("bfloat16", "int2", True, 128),
    ):  # fmt: skip
        yield Kind(dtypes.of(a), dtypes.of(b), (False, zero), shares)


KINDS = tuple(_kinds())
# What `exhaustive` alone has, each on half the rows: these differ from KINDS in how elements become words.
MORE = tuple(kind for kind in _more() if kind not in KINDS)


def values(dtype: DType, *shape: int, seed: int = 0) -> Array:
    """Every integer of a format, or floats of mixed magnitude and sign, some of them zero."""
    rng = np.random.default_rng([seed, *shape])
    if dtype.is_integer:
        return rng.integers(int(dtype.min), int(dtype.max) + 1, shape).astype(dtype.numpy)
    x = rng.standard_normal(shape) * np.exp2(rng.integers(-3, 3, shape)) * (rng.random(shape) > 0.05)
    with np.errstate(over="ignore"):  # float8_e3m4 ends at 15.5
        return x.astype(dtype.numpy)


class Given(NamedTuple):
    """a[rows, k], b[k, columns], zero points, scales of weights, and the reference's product.

    Zero points are one a row of a and one a column of b; those of weights, as their scales, [blocks, columns].
    """

    a: Array
    b: Array
    zeros: tuple[Array | None, Array | None]
    scale: Array | None
    due: Array


@functools.lru_cache(maxsize=8)
def operands(kind: Kind, k: int, rows: int, columns: int = WIDTHS[0]) -> Given:
    """What cases take the first rows and columns of."""
    a, b = values(kind.a, rows, k), values(kind.b, k, columns, seed=1)
    of_a, of_b = kind.zeros
    if kind.shares is not None:
        blocks = -(-k // kind.shares) if kind.shares else 1
        zero = values(kind.b, blocks, columns, seed=3) if of_b else None
        scale = values(dtypes.float16 if kind.shares else dtypes.float32, blocks, columns, seed=4)
        right = b.astype(np.float32)
        if zero is not None:
            right -= np.repeat(zero.astype(np.float32), kind.shares or k, 0)[:k]
        shared = {"b_scale": scale, "b_block": kind.shares} if kind.shares else {"scale": scale}
        return Given(a, b, (None, zero), scale, reference(a, right, **shared))
    zeros = values(kind.a, rows, seed=2) if of_a else None, values(kind.b, columns, seed=3) if of_b else None
    if not kind.a.is_integer:
        return Given(a, b, zeros, None, reference(a, b))
    due = integers(a, b, *(0 if z is None else z for z in zeros))
    return Given(a, b, zeros, None, due.astype(engine.total_of(kind.a, kind.b, k, kind.zeros).numpy))


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
        given = [
            addresses[x.index] + x.offset_bytes if isinstance(x, Operand) else x if isinstance(x, int) else address(x)
            for x in step.arguments
        ]
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
    machine: Machine = DEFAULT

    def run(self, rows: int = MS[-1], columns: int = WIDTHS[0]) -> bool:
        """Whether the kernels give the bits of the reference."""
        given = operands(self.kind, self.k, rows, columns)
        a, b, due = given.a[: self.m], given.b[:, : self.n], given.due[: self.m, : self.n]
        left, right = lying(a, self.layouts[0], self.at_start), lying(b, self.layouts[1], self.at_start)
        out = lying(np.full(due.shape, 77, due.dtype), self.layouts[2], self.at_start)
        shared, sides, described = self.shared(given)
        lies: Matrix | Panels = matrix(right)
        if self.form == "packed":
            points = None if self.kind.shares is None else sides["b"].pop("zero", None)
            right, lies = self.packed(right, shared.pop("b_zero", None), points)
        whole = Side(matrix(left), **sides["a"]), Side(lies, **sides["b"]), Side(matrix(out))
        c = Contraction(self.m, self.n, self.k, *whole, **described)
        is_packed, exact = self.form == "packed", self.kind.a.is_integer
        tile = None if is_packed else self.tile  # panels have the width of the row's own tile
        # What needs sums cannot be fused; codes in panels take the form that suits M.
        has_codes = isinstance(lies, Panels) and lies.engine in engine.WEIGHT_NAMES
        free = (self.form == "fused" and exact) or has_codes
        form = None if free else self.form
        plan = gemm.plan(c, self.isa, self.threads, tile=tile, form=form, machine=self.machine)
        execute(plan, [left, right, *shared.values(), out])
        return bool(np.array_equal(bits(out), bits(due)))

    def shared(self, given: Given) -> tuple[dict[str, Array], dict[str, dict[str, Shared]], dict[str, Any]]:
        """Zero points and scales, beside a forbidden page, in the plan's order; what says of a and of b that they have
        them; the epilogue."""
        total, arrays, described = dtypes.of(given.due.dtype), dict[str, Array](), dict[str, Any]()
        sides: dict[str, dict[str, Shared]] = {"a": {}, "b": {}}
        if self.kind.shares is None:
            for name, zero, extent in zip("ab", given.zeros, (self.m, self.n), strict=True):
                if zero is not None:
                    arrays[f"zero of {name}"] = guard.array(zero[:extent].astype(np.int32), at_start=self.at_start)
                    steps = (1, 0) if name == "a" else (0, 1)
                    sides[name]["zero"] = Shared(Matrix(*steps, (), dtypes.int32), LINE)
            of_a, of_b = (Side(Matrix(0, 0), **sides[name]) for name in "ab")
            described["epilogue"], described["sources"] = fused(total=total, a=of_a, b=of_b)
            return arrays, sides, described
        size = self.kind.shares or max(self.k, 1)
        for name, x in (("scale", given.scale), ("zero", given.zeros[1])):
            if x is not None:
                arrays[f"b_{name}"] = guard.array(x[:, : self.n], at_start=self.at_start)
                sides["b"][name] = Shared(matrix(arrays[f"b_{name}"]), size)
        if not self.kind.shares:
            arrays["scale"] = arrays.pop("b_scale")  # the last
            sides["b"]["scale"] = Shared(Matrix(0, 1), LINE)
            described["epilogue"], described["sources"] = fused(total=total, b=Side(Matrix(0, 0), **sides["b"]))
        return arrays, sides, described

    def packed(self, b: Array, zero: Array | None, points: Shared | None) -> tuple[Array, Panels]:
        """b in panels, weights without their zero points."""
        found, holds = selection.packer_for(self.kind.a, self.kind.b, self.isa, self.machine), self.kind.b
        if self.kind.shares is not None:
            found = engine.of_weights(self.kind.b, zero is not None)
            holds = found.b
        words = guard.empty(gemm.packed_elements(self.k, self.n, self.isa, (), found, self.machine), found.word.numpy)
        plan = gemm.plan_pack(self.k, self.n, matrix(b), self.isa, 1, (), found, self.kind.a, self.machine, points)
        execute(plan, [b, *([] if zero is None else [zero]), words])
        return words, Panels(gemm.panel_columns(self.isa, found, self.machine), (), holds, found.name)


def cases(kind: Kind, isa: Isa, ms: tuple[int, ...] = MS, columns: int = WIDTHS[0]) -> Iterator[Case]:
    """Every M with every count of threads and two N; each three M with another tile, form, layouts and K."""
    rng = np.random.default_rng([(*KINDS, *MORE).index(kind), isa.lanes])
    nr = tile_for(isa).nr(isa)
    extents = sorted({0, 1, nr - 1, nr, nr + 1, 2 * nr + 1, 8 * nr + 1, *WIDTHS[1:]} & set(range(columns + 1)))

    def drawn(choices: tuple[Any, ...]) -> Any:
        return choices[int(rng.integers(len(choices)))]

    for i, m in enumerate(ms):
        if i % 3 == 0:
            tile, form, k, at_start = drawn(TILES), drawn(FORMS), drawn(KS), bool(rng.integers(2))
            layouts = drawn(LAYOUTS), drawn(LAYOUTS), drawn(LAYOUTS)
        for n in rng.choice(extents, 2, replace=False):
            for threads in THREADS:
                yield Case(kind, isa, m, int(n), k, threads, layouts, form, tile, at_start)
