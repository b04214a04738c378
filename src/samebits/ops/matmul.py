"""Eager matrix products: `matmul`, `linear`, `pack`, `plan_matmul`. Numerics.md sections 2 and 3 decide every bit.

`_Product` turns operands into a `Contraction`; everything below it is the gemm room's.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from samebits import dtypes
from samebits.codegen.isa import Isa
from samebits.dtypes import DType
from samebits.errors import DTypeError, LayoutError, OptionError, PlanError, ShapeError, message
from samebits.kernels import gemm
from samebits.kernels.gemm import engine as engines
from samebits.kernels.gemm.contraction import SB1, Contraction, Matrix, Panels, Spec, fused
from samebits.kernels.plan import Plan
from samebits.ops import elementwise
from samebits.ops.call import Call, Prepared, remembered
from samebits.tensor import Tensor

_Shape = tuple[int, ...]


@remembered
def matmul(
    a: Any, b: Any, *, bias: Any = None, activation: str | None = None, alpha: float = 1.0, c: Any = None,
    beta: float = 1.0, a_zero_point: Any = None, b_zero_point: Any = None, out_dtype: Any = None, out: Any = None,
    spec: Spec = SB1, threads: int | None = None, plan: Plan | None = None,
) -> Any:  # fmt: skip
    """activation((sum_k a[..., m, k] * b[..., k, n]) * alpha + beta * c + bias), each step rounded once.

    Floats of any two formats multiply exactly and sum in float32, in float64 where one is float64. Integers of at most
    8 bits, of any signs, sum exactly: in int32, or in int64 where K products could leave int32.

    Args:    a: [..., M, K] or [K].   b: [..., K, N] or [K], or packed; batch dimensions broadcast.
             bias, c: broadcast to the result; float64 for a float64 product, else float32, float16 or bfloat16; beside
                integers only with a float out_dtype.   activation: one of erf, exp, gelu, relu (float32 products).
             alpha, beta: scales, rounded to float32 (float64 for a float64 product).
             a_zero_point: subtracted from integers a: an int, or an array of a's dtype, [] or [..., M].
             b_zero_point: the same for b, [] or [..., N].
             out_dtype: what the result is rounded to, once: float32, float16 or bfloat16; float64 or float32 of a
                float64 product; int64 of integers too. Default: bfloat16 or float16 where both operands are, else what
                is summed in.   out: an array of that dtype for the result; it may be c itself, or bias.
             spec: the order of a sum of floats.   threads: at most so many; default every usable core.
             plan: one of `plan_matmul` for these operands, obeyed.
    Returns: [..., M, N] as the kind of array that a is; the axis of an operand with one is left out.
    Raises:  DTypeError, ShapeError, LayoutError (out overlaps a or b), OptionError, PlanError (the plan is for others).
    Bits:    numerics.md sections 2 and 3: they depend on the values and `spec` alone.
    """
    call = Call("matmul", a, threads)
    if plan is not None and not isinstance(plan, Plan):
        raise OptionError(message("matmul", "plan", "", repr(plan), "a Plan", "make it with plan_matmul"))
    product = _Product(call, a, b, spec)
    product.zero_points(a_zero_point, b_zero_point)
    product.finish(bias, activation, alpha, c, beta, out_dtype, out)
    contraction, made = product.contraction, product.target
    if made.size:
        if plan is None:
            prepared = _prepared(contraction, call.isa, call.sized(product.work, "products"))
        else:
            prepared = _obeyed(plan, contraction)
        call.run(prepared, *product.operands)
    return call.result(made if made.shape == product.seen else made.reshape(product.seen), out)


def summed(call: Call, a: Tensor, b: Tensor, out: Any) -> Any:
    """a @ b in the dtype of its sum, for other functions: from what out holds if it is given, which K = 0 leaves."""
    product, accumulates = _Product(call, a, b, SB1), out is not None
    product.finish(None, None, 1.0, None, 1.0, product.total, out)
    made = product.target
    if made.size and (product.k or not accumulates):
        contraction = replace(product.contraction, accumulates=accumulates)
        call.run(_prepared(contraction, call.isa, call.sized(product.work, "products")), *product.operands)
    return call.result(made if made.shape == product.seen else made.reshape(product.seen), out)


def plan_matmul(
    a: Any, b: Any, *, bias: Any = None, activation: str | None = None, alpha: float = 1.0, c: Any = None,
    beta: float = 1.0, a_zero_point: Any = None, b_zero_point: Any = None, out_dtype: Any = None, out: Any = None,
    spec: Spec = SB1, threads: int | None = None,
) -> Plan:  # fmt: skip
    """The plan that `matmul` with these arguments runs: printable, with the candidates it rejected and why.

    Args:    as `matmul`; only shapes, strides and dtypes matter.
    """
    call = Call("plan_matmul", a, threads)
    product = _Product(call, a, b, spec)
    product.zero_points(a_zero_point, b_zero_point)
    product.finish(bias, activation, alpha, c, beta, out_dtype, out)
    return gemm.plan(product.contraction, call.isa, call.sized(product.work, "products"))


def linear(x: Any, weight: Any, bias: Any = None, *, out: Any = None, threads: int | None = None) -> Any:
    """x @ weight^T + bias.

    Args:    x: [..., K].   weight: [N, K], as torch keeps it, or `pack(weight.T)`.   bias: [N].   Dtypes as in matmul.
    Returns: [..., N] as the kind of array that x is.
    Raises:  as matmul.   Bits: numerics.md section 2.
    """
    right = weight if isinstance(weight, gemm.PackedMatrix) else Tensor.from_any(weight).T
    return matmul(x, right, bias=bias, out=out, threads=threads)


def pack(b: Any, *, left: Any = None, threads: int | None = None) -> gemm.PackedMatrix:
    """b[..., K, N] copied into the panels that matmul reads, for a right operand that is used many times.

    Args:    b: [..., K, N] of any dtype of `matmul`, any strides (pass `weight.T` for a weight [N, K]).
             left: the dtype of the left operands to come; default b's own.
    Returns: a PackedMatrix for the Isa row in force; it can be pickled, and is refused on rows with other panels and
             beside elements that its words cannot be multiplied with.
    Raises:  DTypeError, ShapeError.   Bits: a product with it has those of a product with b.
    """
    call = Call("pack", b, threads)
    y = _operand(call, "b", b)
    if y.ndim < 2:
        raise ShapeError(message("pack", "b", "rank", y.ndim, "at least 2", "reshape a vector to [K, 1]"))
    batch, (k, n) = y.shape[:-2], y.shape[-2:]
    other = y.dtype if left is None else dtypes.of(left)
    engine = engines.choose(other, y.dtype, SB1.chunk, call.isa, [])
    lying, threads = _matrix(call, "b", y, y.shape), call.sized(y.size, "elements")
    plan = gemm.plan_pack(k, n, lying, call.isa, threads, batch, engine, other)
    panels = Tensor.empty((gemm.packed_elements(k, n, call.isa, batch, engine),), engine.word)
    if panels.size:
        call.run(Prepared(plan), y, panels)
    nr = gemm.panel_columns(call.isa, engine)
    return gemm.PackedMatrix(panels, y.shape, nr, call.isa.name, y.dtype, engine.name)


@functools.lru_cache(maxsize=4096)
def _prepared(contraction: Contraction, isa: Isa, threads: int) -> Prepared:
    return Prepared(gemm.plan(contraction, isa, threads))


@functools.lru_cache(maxsize=256)
def _obeyed(plan: Plan, contraction: Contraction) -> Prepared:
    # A plan holds strides and epilogue, which its words do not all say: only the very plan is safe to obey.
    if plan != gemm.plan(contraction, plan.isa, plan.threads):
        actual = plan.what if plan.what != str(contraction) else "for other strides, options or tiles"
        remedy = "make it with plan_matmul for these operands"
        raise PlanError(message("matmul", "plan", "", actual, f"the one for {contraction}", remedy))
    return Prepared(plan)


class _Product:
    """One call's operands described: `zero_points`, then `finish`, then the other attributes hold."""

    contraction: Contraction
    target: Tensor
    operands: list[Tensor]
    seen: _Shape

    def __init__(self, call: Call, a: Any, b: Any, spec: Spec) -> None:
        if not isinstance(spec, Spec):
            raise OptionError(message(call.name, "spec", "", repr(spec), "a Spec", "leave it out for sb1"))
        self.call, self.spec = call, spec
        packed = b if isinstance(b, gemm.PackedMatrix) else None
        x = _operand(call, "a", a)
        y = _operand(call, "b", b) if packed is None else call.operand("b", packed.tensor)
        right = packed.shape if packed is not None else y.shape
        for name, shape in (("a", x.shape), ("b", right)):
            if not shape:
                raise ShapeError(message(call.name, name, "rank", 0, "at least 1", "use multiply for a scalar"))
        self.vectors = x.ndim == 1, len(right) == 1
        self.given = [x, y]
        x = x.unsqueeze(0) if self.vectors[0] else x
        if packed is None and self.vectors[1]:
            y, right = y.unsqueeze(1), (*right, 1)
        self.m, self.k, self.n = x.shape[-2], x.shape[-1], right[-1]
        if right[-2] != self.k:
            remedy = f"pass b of shape [..., {self.k}, N]"
            raise ShapeError(message(call.name, "b", "row count", right[-2], f"a's column count {self.k}", remedy))
        self.batch = _batch(call, x.shape[:-2], right[:-2])
        self.whole = (*self.batch, self.m, self.n)
        self.a = _matrix(call, "a", x, (*self.batch, self.m, self.k))
        if packed is not None:
            self.b: Matrix | Panels = packed.panels(self.batch)
        else:
            self.b = _matrix(call, "b", y, (*self.batch, self.k, self.n))
        self.zeros: list[tuple[Tensor, Matrix]] = []
        self.zero_sides: tuple[int | None, int | None] = (None, None)

    @property
    def work(self) -> int:
        """Products of elements."""
        return self.m * self.n * max(self.k, 1) * math.prod(self.batch)

    @property
    def is_exact(self) -> bool:
        """Whether both operands are integers."""
        return self.a.dtype.is_integer and self.b.dtype.is_integer

    @property
    def total(self) -> DType:
        """What is summed in."""
        if self.is_exact:
            return engines.total_of(self.a.dtype, self.b.dtype, self.k, self.subtracted)
        return dtypes.float64 if dtypes.float64 in (self.a.dtype, self.b.dtype) else dtypes.float32

    @property
    def subtracted(self) -> tuple[bool, bool]:
        """Which operands have a zero point."""
        return self.zero_sides[0] is not None, self.zero_sides[1] is not None

    def zero_points(self, a: Any, b: Any) -> None:
        """Take the zero points of integers."""
        call, numbers = self.call, list[int | None]()
        for name, value, dtype, axis in (
            ("a_zero_point", a, self.a.dtype, 1), ("b_zero_point", b, self.b.dtype, 0),
        ):  # fmt: skip
            if value is None:
                numbers.append(None)
                continue
            if not self.is_exact:
                kinds = f"{self.a.dtype.name} and {self.b.dtype.name}"
                raise OptionError(message(call.name, name, "", f"given for {kinds}", "left out", "subtract it before"))
            if isinstance(value, int) and not isinstance(value, bool):
                if not dtype.min <= value <= dtype.max:
                    expected = f"within [{dtype.min}, {dtype.max}], as for {dtype.name}"
                    raise OptionError(message(call.name, name, "", value, expected, "pass one that the format holds"))
                x = call.constant(np.asarray(value, np.int32))
            else:
                x = call.operand(name, value, *(row for row in (dtypes.int8, dtypes.uint8) if row is dtype))
            numbers.append(len(self.zeros))
            if x.ndim:
                x = x.unsqueeze(x.ndim - 1 + axis)
            self.zeros.append((x, _matrix(call, name, x, self.whole)))
        self.zero_sides = numbers[0], numbers[1]

    def finish(
        self, bias: Any, activation: str | None, alpha: float, c: Any, beta: float, out_dtype: Any, out: Any
    ) -> None:
        """Take the rest."""
        call, total = self.call, self.total
        result = self._result(total, out_dtype)
        kind = total if total.is_float else dtypes.float32
        added = {name: call.operand(name, x, *_ADDED[kind]) for name, x in (("c", c), ("bias", bias)) if x is not None}
        alpha, beta = (call.number(name, x, kind) for name, x in (("alpha", alpha), ("beta", beta)))
        self._check_float(result, kind, added, activation, alpha)
        self.seen = (
            *self.batch, *(() if self.vectors[0] else (self.m,)), *(() if self.vectors[1] else (self.n,))
        )  # fmt: skip
        apart = [*self.given, *(x for x, _ in self.zeros)]
        target = call.output(self.seen, result, out, apart)
        in_place = out is not None and any(t.address == target.address for t in added.values())
        self.target = target if self.seen == self.whole else target.reshape(self.whole)
        matrices = {name: _matrix(call, name, x, self.whole) for name, x in added.items()}
        epilogue, listed = fused(
            total=total,
            result=None if result is total else result,
            zeros=[matrix for _, matrix in self.zeros],
            alpha=None if alpha == 1.0 else alpha,
            beta=None if "c" not in added or beta == 1.0 else beta,
            c=matrices.get("c"),
            bias=matrices.get("bias"),
            activation=_activation(call, activation),
        )
        self.contraction = Contraction(
            self.m, self.n, self.k, self.a, self.b, _matrix(call, "out", self.target, self.whole), self.batch, epilogue,
            listed, in_place, self.spec, self.zero_sides,
        )  # fmt: skip
        self.operands = [*self.given, *(x for x, _ in self.zeros), *added.values(), self.target]

    def _result(self, total: DType, out_dtype: Any) -> DType:
        """The dtype of the result."""
        if self.is_exact and self.k > engines.LONGEST:
            remedy = "cut K and add the products"
            raise ShapeError(message(self.call.name, "a", "column count", self.k, f"at most {engines.LONGEST}", remedy))
        if out_dtype is None:
            half = self.a.dtype if self.a.dtype is self.b.dtype else None
            return half if half in (dtypes.bfloat16, dtypes.float16) else total
        result = dtypes.of(out_dtype)
        possible = _RESULTS[total]
        if result not in possible:
            expected = " or ".join(dtype.name for dtype in possible)
            remedy = "leave it out" if total is not dtypes.int64 else f"K = {self.k} may leave int32"
            raise OptionError(message(self.call.name, "out_dtype", "", result.name, expected, remedy))
        return result

    def _check_float(
        self, result: DType, kind: DType, added: dict[str, Tensor], activation: str | None, alpha: float
    ) -> None:
        """Scales and addends are floats; activations are functions of float32."""
        scaled = [*added, *(["activation"] if activation is not None else []), *(["alpha"] if alpha != 1.0 else [])]
        if scaled and not result.is_float:
            remedy = "pass out_dtype='float32'"
            raise OptionError(message(self.call.name, scaled[0], "", f"given for {result.name}", "left out", remedy))
        if activation is not None and kind is not dtypes.float32:
            remedy = "apply it after"
            raise OptionError(message(self.call.name, "activation", "", f"given for {kind.name}", "left out", remedy))


_HALVES = (dtypes.float32, dtypes.bfloat16, dtypes.float16)
# What is summed in: what a result may be, and what is added to it may be.
_RESULTS: dict[DType, tuple[DType, ...]] = {
    dtypes.float32: _HALVES,
    dtypes.float64: (dtypes.float64, dtypes.float32),
    dtypes.int32: (dtypes.int32, dtypes.int64, *_HALVES),
    dtypes.int64: (dtypes.int64, *_HALVES),
}
_ADDED: dict[DType, tuple[DType, ...]] = {dtypes.float32: _HALVES, dtypes.float64: (dtypes.float64,)}
_FACTORS = tuple(row for row in dtypes.ROWS if row.is_float or (row.is_integer and row.width_bits <= 8))


def _operand(call: Call, name: str, x: Any) -> Tensor:
    """A factor: its elements lie each in whole bytes."""
    tensor = call.operand(name, x)
    if tensor.dtype not in _FACTORS:
        expected = "a float or an integer of at most 8 bits"
        raise DTypeError(message(call.name, name, "dtype", tensor.dtype.name, expected, "convert it first"))
    if tensor.layout.pitch_bits % 8:
        remedy = "copy it with to_padded"
        raise LayoutError(message(call.name, name, "storage", "packed", "padded", remedy))
    return tensor


def _batch(call: Call, x: _Shape, y: _Shape) -> _Shape:
    """The batch dimensions of the product."""
    if x == y:
        return x
    try:
        return np.broadcast_shapes(x, y)
    except ValueError:
        expected = f"one that broadcasts with a's {x}"
        raise ShapeError(message(call.name, "b", "batch shape", y, expected, "reshape one of them")) from None


def _matrix(call: Call, name: str, x: Tensor, shape: Sequence[int]) -> Matrix:
    """x broadcast to `shape`, by its strides."""
    if x.shape != tuple(shape):
        try:
            x = x.broadcast_to(shape)
        except ShapeError:
            raise ShapeError(
                message(call.name, name, "shape", x.shape, f"one that broadcasts to {tuple(shape)}", "reshape it")
            ) from None
    strides = tuple(0 if extent == 1 else s for extent, s in zip(x.shape, x.strides, strict=True))
    return Matrix(strides[-2], strides[-1], strides[:-2], x.dtype)


def _activation(call: Call, name: str | None) -> Any:
    if name is None:
        return None
    if name not in elementwise.ACTIVATIONS:
        raise OptionError(
            message(call.name, "activation", "", repr(name), f"one of {elementwise.ACTIVATIONS}", "apply it after")
        )
    return elementwise.activation(name)
