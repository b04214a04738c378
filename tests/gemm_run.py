"""Running one contraction on given arrays, for the tests of the gemm room."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from samebits import dtypes
from samebits.codegen.isa import Isa
from samebits.dtypes import DType, float32
from samebits.kernels import gemm
from samebits.kernels.expression import Expression
from samebits.kernels.gemm.contraction import SB1, Contraction, Immediate, Matrix, Panels, Side, Source, Spec
from samebits.kernels.gemm.engine import named, total_of
from samebits.kernels.gemm.machine import DEFAULT, Machine
from samebits.kernels.gemm.tuned import Tuned
from samebits.kernels.plan import Plan
from samebits.native.table import Table
from samebits.tensor import Tensor

Array = np.ndarray[Any, np.dtype[Any]]


def measured(*rows: Tuned) -> Machine:
    """A machine on which these were measured to be the fastest."""
    return replace(DEFAULT, tuned=rows)


def contraction(
    m: int, n: int, k: int, a: Matrix | Side[Matrix], b: Matrix | Panels | Side[Any], out: Matrix | Side[Matrix],
    batch: tuple[int, ...] = (), epilogue: Expression | None = None, sources: Sequence[Source] = (), **facts: Any,
) -> Contraction:  # fmt: skip
    """A product of operands that are their elements, but for those that are given as sides."""
    sides = (x if isinstance(x, Side) else Side(x) for x in (a, b, out))
    return Contraction(m, n, k, *sides, batch, epilogue, tuple(sources), **facts)


def matrix(x: Array, shape: Sequence[int]) -> Matrix:
    """How x, broadcast to `shape`, lies."""
    wide = np.broadcast_to(x, shape)
    strides = [0 if extent == 1 else s // x.itemsize for extent, s in zip(wide.shape, wide.strides, strict=True)]
    return Matrix(strides[-2], strides[-1], tuple(strides[:-2]))


def execute(plan: Plan, arrays: Sequence[Array]) -> None:
    """Run a plan on its operands."""
    slots = [*arrays]
    if plan.workspace_bytes:
        slots.append(np.empty(plan.workspace_bytes // 8 + 8, np.float64))
    table = Table([(plan, list(range(len(slots))))], len(slots), plan.threads)
    addresses = [x.__array_interface__["data"][0] for x in slots]
    if plan.workspace_bytes:
        addresses[-1] = -(-addresses[-1] // 64) * 64
    table.run(addresses)


def product(
    a: Array, b: Array, isa: Isa, threads: int = 1, *, out: Array | None = None, epilogue: Expression | None = None,
    sources: Sequence[Array | Immediate] = (), in_place: bool = False, spec: Spec = SB1, packed: bool = False,
    run: Callable[[Plan, Sequence[Array]], None] = execute,
    out_dtype: DType = float32, **choices: Any,
) -> Array:  # fmt: skip
    """epilogue(a @ b, sources...) through the kernels."""
    m, k, n = a.shape[-2], a.shape[-1], b.shape[-1]
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    whole = (*batch, m, n)
    out = np.full(whole, np.nan, np.float32) if out is None else out
    right: Matrix | Panels = matrix(b, (*batch, k, n))
    operand = b
    if packed:
        operand = pack(b, isa)
        value = gemm.PackedMatrix(Tensor.from_any(operand), b.shape, gemm.panel_columns(isa), isa.name)
        right = value.fits.panels(batch)
    c = contraction(
        m, n, k, matrix(a, (*batch, m, k)), right, replace(matrix(out, whole), dtype=out_dtype), batch, epilogue,
        [s if isinstance(s, Immediate) else matrix(s, whole) for s in sources], in_place=in_place, spec=spec,
    )  # fmt: skip
    plan = gemm.plan(c, isa, threads, **choices)
    run(plan, [a, operand, *(s for s in sources if not isinstance(s, Immediate)), out])
    return out


def typed_product(a: Array, b: Array, isa: Isa, *, form: str, engine: str, **choices: Any) -> Array:
    """a @ b of any dtypes, each a dense matrix, in what the engine sums in; `form` "packed" packs b for it first."""
    (m, k), n, row = a.shape, b.shape[1], named(engine)
    kinds = dtypes.of(a.dtype), dtypes.of(b.dtype)
    total = total_of(*kinds, k, (False, False)) if row.exact else row.total
    a, b, out = np.ascontiguousarray(a), np.ascontiguousarray(b), np.full((m, n), 77, total.numpy)
    lying: Matrix | Panels = Matrix(n, 1, (), kinds[1])
    chosen: dict[str, Any] = {"form": form, "engine": engine} | choices
    if form == "packed":
        panels = np.zeros(max(1, gemm.packed_elements(k, n, isa, (), row)), row.word.numpy)
        execute(gemm.plan_pack(k, n, lying, isa, 1, (), row, kinds[0]), [b, panels])
        b, lying = panels, Panels(gemm.panel_columns(isa, row), (), kinds[1], row.name)
        chosen = choices
    c = contraction(m, n, k, Matrix(k, 1, (), kinds[0]), lying, Matrix(n, 1, (), total))
    execute(gemm.plan(c, isa, 1, **chosen), [a, b, out])
    return out


def product_of_codes(
    a: Array, b: Array, isa: Isa, form: str, threads: int = 1, run: Callable[[Plan, Sequence[Array]], None] = execute,
    spec: Spec = SB1,
) -> Array:  # fmt: skip
    """a @ b, floats of 16 bits, in float32, with b in panels that keep its codes."""
    (m, k), n, kind = a.shape, b.shape[1], dtypes.of(b.dtype)
    row = named(f"{kind.name} codes")
    panels = np.zeros(max(1, gemm.packed_elements(k, n, isa, (), row)), np.uint16)
    lying = replace(matrix(b, b.shape), dtype=kind)
    run(gemm.plan_pack(k, n, lying, isa, threads, (), row, kind), [b, panels])
    given = Panels(gemm.panel_columns(isa, row), (), kind, row.name)
    out = np.full((m, n), np.nan, np.float32)
    left = replace(matrix(a, a.shape), dtype=dtypes.of(a.dtype))
    c = contraction(m, n, k, left, given, Matrix(n, 1), spec=spec)
    run(gemm.plan(c, isa, threads, form=form), [a, panels, out])
    return out


def pack(b: Array, isa: Isa) -> Array:
    """b in panels."""
    batch, (k, n) = b.shape[:-2], b.shape[-2:]
    out = np.full(max(1, gemm.packed_elements(k, n, isa, batch)), np.nan, np.float32)
    execute(gemm.plan_pack(k, n, matrix(b, b.shape), isa, 1, batch), [b, out])
    return out


def same(x: Array, y: Array) -> bool:
    """Whether two float32 arrays hold the same bits."""
    return x.shape == y.shape and np.array_equal(np.ascontiguousarray(x).view("u4"), np.ascontiguousarray(y).view("u4"))
