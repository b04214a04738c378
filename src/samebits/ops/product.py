"""Product: one call of `matmul` described. It turns operands into a `Contraction`, and refuses what cannot be one.

Start at `Product`; everything below it is the gemm room's.
"""

from __future__ import annotations

import functools
import numbers
from dataclasses import replace
from typing import Any

import numpy as np

from samebits import dtypes
from samebits.dtypes import DType
from samebits.errors import DTypeError, OptionError, PlanError, ShapeError, shown
from samebits.kernels import gemm
from samebits.kernels.expression import Expression
from samebits.kernels.gemm import engine as engines
from samebits.kernels.gemm import quantize
from samebits.kernels.gemm.contraction import (
    SB1,
    Contraction,
    Matrix,
    Panels,
    PerBlock,
    Quantized,
    Spec,
    fused,
    requantized,
)
from samebits.layout import Shape
from samebits.ops import elementwise, sharing
from samebits.ops.call import Call, rounded
from samebits.ops.names import MATMUL, Names
from samebits.ops.operands import check_shape, dense, in_bytes, matrix, operand
from samebits.ops.sharing import Lines
from samebits.shapes import broadcast_extents
from samebits.tensor import Tensor


class Product:
    """One call described: `blocks`, `zero_points`, `scales`, `requantise`, `finish`; then all attributes hold."""

    contraction: Contraction
    out: Tensor | None
    result: DType
    seen: Shape

    def __init__(
        self, call: Call, a: Any, b: Any, spec: Spec = SB1, a_dtype: Any = None, names: Names = MATMUL
    ) -> None:
        if not isinstance(spec, Spec):
            raise OptionError(call.name, "spec", "", shown(spec), "a Spec", "leave it out for sb1")
        self.call, self.names, self.spec = call, names, spec
        packed = b if isinstance(b, gemm.PackedMatrix) else None
        x = operand(call, names.a, a)
        y = operand(call, names.b, b) if packed is None else call.operand(names.b, packed.tensor)
        right = packed.shape if packed is not None else y.shape
        for name, shape in ((names.a, x.shape), (names.b, right)):
            if not shape:
                raise ShapeError(call.name, name, "rank", 0, "at least 1", "use multiply for a scalar")
        self.ranks = x.ndim, len(right)
        self.vectors = x.ndim == 1, len(right) == 1
        self.given = [x, y]
        x = x.unsqueeze(0) if self.vectors[0] else x
        if packed is None and names.turned:
            y, right = y.T, right[::-1]
        names.check_rank(call.name, right)
        if packed is None and self.vectors[1]:
            y, right = y.unsqueeze(1), (*right, 1)
        self.m, self.k, self.n = x.shape[-2], x.shape[-1], right[-1]
        names.check_rows(call.name, right[-2], self.k, packed is not None)
        self.batch = _batch(call, names, x.shape[:-2], right[:-2])
        self.whole = (*self.batch, self.m, self.n)
        rows, columns = ((extent,) for extent in self.whole[-2:])
        self.seen = (*self.batch, *(() if self.vectors[0] else rows), *(() if self.vectors[1] else columns))
        self.a = matrix(call, names.a, x, (*self.batch, self.m, self.k))
        self.floats: Matrix | None = None
        if a_dtype is not None:
            self.floats, self.a = self.a, replace(self.a, dtype=self._quantised(a_dtype))
        if packed is not None:
            self.b: Matrix | Panels = packed.panels(self.batch)
        else:
            self.b = matrix(call, names.b, y, (*self.batch, self.k, self.n))
        if self.a.dtype.is_integer and self.b.dtype.is_float:
            expected = f"one that multiplies with {self.a.dtype.name}"
            remedy = f"convert {names.a} to float32" if a_dtype is None else "leave a_dtype out"
            raise DTypeError(call.name, names.b, "dtype", self.b.dtype.name, expected, remedy)
        self.zeros: list[tuple[Tensor, Matrix]] = []
        self.zero_sides: tuple[int | None, int | None] = (None, None)
        self.factors: list[tuple[Tensor, Matrix]] = []
        self.requantised: DType | None = None
        self.per_block: dict[str, tuple[Tensor, PerBlock]] = {}
        self.added: dict[str, Tensor] = {}

    def _quantised(self, a_dtype: Any) -> DType:
        """What floats a are quantised to."""
        name, dtype, own = self.call.name, self.call.dtype("a_dtype", a_dtype), self.a.dtype
        if dtype not in _BYTES:
            expected = " or ".join(row.name for row in _BYTES)
            raise OptionError(name, "a_dtype", "", dtype.name, expected, "leave it out for another")
        if own not in _HALVES:
            expected = " or ".join(row.name for row in _HALVES)
            raise DTypeError(name, "a", "dtype", own.name, f"{expected} beside a_dtype", "leave a_dtype out")
        return dtype

    @property
    def is_exact(self) -> bool:
        """Whether both operands are integers, and sums are not of scaled blocks."""
        return self.a.dtype.is_integer and self.b.dtype.is_integer and not self.per_block

    @property
    def _given_for(self) -> str:
        """What an option that is for exact sums of integers alone was given for."""
        return f"given for {self.a.dtype.name} and {self.b.dtype.name}{' in blocks' if self.per_block else ''}"

    @property
    def total(self) -> DType:
        """What is summed in."""
        if self.is_exact:
            return engines.total_of(self.a.dtype, self.b.dtype, self.k, self.subtracted)
        return dtypes.float64 if dtypes.float64 in (self.a.dtype, self.b.dtype) else dtypes.float32

    @property
    def computed(self) -> DType:
        """What the sum is scaled, and addends are added, in."""
        return self.total if self.total.is_float else dtypes.float32

    @functools.cached_property
    def rows(self) -> Lines:
        """a as its scales and zero points see it."""
        return Lines(f"row of {self.names.a}", self.m, self.k, self.batch, max(self.ranks[0], 2), first=True)

    @functools.cached_property
    def columns(self) -> Lines:
        """b as its scales and zero points see it."""
        return Lines.of_b(self.names, self.n, self.k, self.batch, self.ranks[1])

    @functools.cached_property
    def target(self) -> Tensor:
        """What takes the result as [..., M, N]: out, or new memory, from the first time that it is asked for."""
        made = self.call.output(self.seen, self.result) if self.out is None else self.out
        return made if self.seen == self.whole else made.reshape(self.whole)

    @property
    def operands(self) -> list[Tensor]:
        """Those of the plan, in its order."""
        parameters = [x for x, _ in (*self.per_block.values(), *self.zeros, *self.factors)]
        return [*map(in_bytes, self.given), *parameters, *self.added.values(), self.target]

    @property
    def subtracted(self) -> tuple[bool, bool]:
        """Which operands have a zero point."""
        return self.zero_sides[0] is not None, self.zero_sides[1] is not None

    def blocks(self, scale: Any, zero_point: Any, group: int | None) -> tuple[Any, Any]:
        """Take what blocks of b share, and every zero point of weights; the rest of (b_scale, b_zero_point) is left."""
        call, names, lines = self.call, self.names, self.columns
        found = sharing.taken(call, names, lines, scale, zero_point, group, self.a.dtype, self.b)
        for key, name, x in zip(("b_scale", "b_zero_point"), (names.b_scale, names.b_zero_point), found, strict=True):
            if x:
                self.per_block[key] = x.values, x.described(call, name, lines)
        if self.per_block and self.computed is not dtypes.float32:
            actual, expected = f"beside {self.computed.name}", "beside float32"
            given = " or ".join(name for name, x in zip((names.b_scale, names.b_zero_point), found, strict=True) if x)
            raise PlanError(call.name, given, "per block", actual, expected, f"convert {names.a}")
        return None if found[0] else scale, None if found[1] else zero_point

    def _shared(self, name: str) -> PerBlock | None:
        """What `blocks` took under that name."""
        return self.per_block[name][1] if name in self.per_block else None

    def zero_points(self, a: Any, b: Any) -> None:
        """Take the zero points of integers."""
        places = list[int | None]()
        for name, value, dtype, lines in (
            ("a_zero_point", a, self.a.dtype, self.rows), (self.names.b_zero_point, b, self.b.dtype, self.columns),
        ):  # fmt: skip
            if value is None:
                places.append(None)
                continue
            if not self.is_exact:
                raise OptionError(self.call.name, name, "", self._given_for, "left out", "subtract it before")
            places.append(len(self.zeros))
            self._zero(name, value, dtype, dtypes.int32, lines)
        self.zero_sides = places[0], places[1]

    def _zero(self, name: str, value: Any, dtype: DType, kept: DType, lines: Lines) -> None:
        """Take a zero point of integers of `dtype`; a number is `kept` so."""
        self.zeros.append(self._repeated(name, sharing.integers(self.call, name, value, dtype, kept), lines))

    def _repeated(self, name: str, x: Tensor, lines: Lines) -> tuple[Tensor, Matrix]:
        """x, one for all or one for each line, as a source that repeats along the other axis of the result."""
        x, _ = lines.read(self.call, name, x)
        if x.ndim:
            x = x.unsqueeze(x.ndim if lines is self.rows else x.ndim - 1)
        return x, matrix(self.call, name, x, self.whole)

    def scales(self, a: Any, b: Any) -> None:
        """Take the scales of the operands: one for each row of a, one for each column of b, or one for all."""
        if self.floats and a is None:
            remedy = "pass what one unit of the integers stands for"
            raise OptionError(self.call.name, "a_scale", "", None, "given beside a_dtype", remedy)
        for name, value, lines in (("a_scale", a, self.rows), (self.names.b_scale, b, self.columns)):
            if value is not None:
                self._scale(name, value, lines)

    def _scale(self, name: str, value: Any, lines: Lines) -> None:
        """Take a scale; a number becomes a constant."""
        call, kind = self.call, self.computed
        if isinstance(value, numbers.Real | np.bool_):
            x = call.constant(rounded(call.number(name, value, kind), kind))
        else:
            is_weight = lines is self.columns and self.b.dtype.is_integer and self.a.dtype.is_float
            x = call.operand(name, value, *(sharing.SCALES if is_weight and kind is dtypes.float32 else (kind,)))
        self.factors.append(self._repeated(name, x, lines))

    def requantise(self, scale: Any, zero_point: Any, out_dtype: Any) -> None:
        """Take what makes the sum an integer of 8 bits again."""
        call = self.call
        if scale is None:
            if zero_point is not None:
                actual, remedy = "given without out_scale", "pass out_scale too"
                raise OptionError(call.name, "out_zero_point", "", actual, "left out", remedy)
            return
        if not self.is_exact:
            remedy = f"leave {self.names.b_group} out" if self.per_block else "pass integers, or a_dtype"
            raise OptionError(call.name, "out_scale", "", self._given_for, "left out", remedy)
        if len(self.factors) != 2:
            expected, remedy = "given with a_scale and b_scale", "pass 1.0 for none"
            raise OptionError(call.name, "out_scale", "", "given without both", expected, remedy)
        self.requantised = dtypes.int8 if out_dtype is None else call.dtype("out_dtype", out_dtype)
        if self.requantised not in _BYTES:
            expected = " or ".join(dtype.name for dtype in _BYTES)
            remedy = "leave out_scale out for another"
            raise OptionError(call.name, "out_dtype", "", self.requantised.name, expected, remedy)
        lines = Lines("column of the result", self.n, self.m, self.batch, 2, first=False)
        self._scale("out_scale", scale, lines)
        point = 0 if zero_point is None else zero_point
        self._zero("out_zero_point", point, self.requantised, self.requantised, lines)

    def finish(
        self, bias: Any, activation: str | None, alpha: float, c: Any, beta: float, out_dtype: Any, out: Any,
        may_be_added: bool = True,
    ) -> None:  # fmt: skip
        """Take the rest; `may_be_added`: out may be c itself, or bias."""
        call, kind = self.call, self.computed
        self.added = added = self._added(c, bias)
        total, result = self.total, self.requantised or self._result(out_dtype)
        alpha, beta = (call.number(name, x, kind) for name, x in (("alpha", alpha), ("beta", beta)))
        if c is None and beta != 1.0:
            raise OptionError(call.name, "beta", "", "given without c", "left out", "pass c too")
        self._check_float(result, kind, activation, alpha)
        self.result = result
        self.out = None if out is None else call.output(self.seen, result, out, added if may_be_added else ())
        in_place = self.out is not None and any(t.address == self.out.address for t in added.values())
        where = dense(call, self.whole, result) if self.out is None else matrix(call, "out", self.target, self.whole)
        matrices = {name: self._addend(name, x) for name, x in added.items()}
        zeros, scales = [x for _, x in self.zeros], [x for _, x in self.factors]
        quantised = self._quantisation(zeros, scales) if self.floats else None
        if quantised and result.is_integer and not self.requantised:
            zeros, scales = [*zeros, *scales], []  # a_scale quantises, and nothing else
        if self.requantised:
            epilogue: Expression | None
            epilogue, listed = requantized(
                total=total, result=result, zeros=zeros, scales=scales, bias=matrices.get("bias")
            )
        else:
            epilogue, listed = fused(
                total=total, result=result, zeros=zeros, scales=scales, alpha=None if alpha == 1.0 else alpha,
                beta=None if beta == 1.0 else beta, c=matrices.get("c"), bias=matrices.get("bias"),
                activation=_activation(call, activation),
            )  # fmt: skip
        self.contraction = Contraction(
            self.m, self.n, self.k, self.a, self.b, where, self.batch, epilogue, listed, in_place, self.spec,
            self.zero_sides, quantized=quantised, b_scale=self._shared("b_scale"), b_zero=self._shared("b_zero_point"),
        )  # fmt: skip

    def _added(self, c: Any, bias: Any) -> dict[str, Tensor]:
        """c and bias, where they are given."""
        kinds = {"c": _ADDED[self.computed], "bias": _ADDED[self.computed]}
        if self.requantised:
            kinds = {"c": (dtypes.int32,), "bias": (dtypes.int32,)}
        elif self.is_exact:
            kinds["bias"] = *kinds["bias"], dtypes.int32
        given = (("c", c), ("bias", bias))
        return {name: self.call.operand(name, x, *kinds[name]) for name, x in given if x is not None}

    def _addend(self, name: str, x: Tensor) -> Matrix:
        """x, which broadcasts to the result, with the axes that the result leaves out."""
        check_shape(self.call, name, x, self.seen)
        if x.ndim and self.vectors[0]:
            x = x.unsqueeze(x.ndim - 1)
        if x.ndim and self.vectors[1]:
            x = x.unsqueeze(x.ndim)
        return matrix(self.call, name, x, self.whole)

    def _quantisation(self, zeros: list[Matrix], scales: list[Matrix]) -> Quantized:
        """How floats a become integers, which from now on are a."""
        assert self.floats  # there are some
        side = self.zero_sides[0]
        parts = [self.floats, scales[0], *([] if side is None else [zeros[side]])]
        self.a = quantize.described(self.batch, self.m, self.k, parts, self.a.dtype)
        return Quantized(self.floats, len(zeros), side)

    def _result(self, out_dtype: Any) -> DType:
        """The dtype of the result, but for one that is requantised."""
        if self.is_exact and self.k > engines.LONGEST:
            remedy = "cut K and add the products"
            expected = f"at most {engines.LONGEST}"
            raise ShapeError(self.call.name, self.names.a, "column count", self.k, expected, remedy)
        bias = self.added.get("bias")
        total = dtypes.int64 if bias is not None and bias.dtype is dtypes.int32 else self.total
        if out_dtype is None:
            weights = self.b.dtype.is_integer and self.a.dtype.is_float
            half = self.a.dtype if self.a.dtype is self.b.dtype or weights else None
            return half if half in (dtypes.bfloat16, dtypes.float16) else self.computed if self.factors else total
        result, possible = self.call.dtype("out_dtype", out_dtype), _RESULTS[total]
        if result not in possible:
            expected = " or ".join(dtype.name for dtype in possible)
            long = "an int32 bias" if total is not self.total else f"K = {self.k}"
            remedy = "leave it out" if total is not dtypes.int64 else f"{long} may leave int32"
            raise OptionError(self.call.name, "out_dtype", "", result.name, expected, remedy)
        return result

    def _check_float(self, result: DType, kind: DType, activation: str | None, alpha: float) -> None:
        """Scales and addends are floats, but for an int32 bias, activations functions of float32; beside out_scale
        there is only a bias."""
        scaled = [*(name for name, x in self.added.items() if not x.dtype.is_integer or self.requantised)]
        scaled += ["activation"] if activation is not None else []
        scaled += ["alpha"] if alpha != 1.0 else []
        if self.requantised:
            for name in scaled:
                if name != "bias":
                    expected, remedy = "left out", "quantise the result instead"
                    raise OptionError(self.call.name, name, "", "given beside out_scale", expected, remedy)
            return
        # Beside an integer result the scale of a quantised a says what its integers are, and no more.
        both = f"a_scale or {self.names.b_scale}" if self.names is MATMUL else self.names.b_scale
        scaled += [both] if len(self.factors) > bool(self.floats) else []
        if scaled and not result.is_float:
            remedy = f"pass {self.names.as_float}"
            remedy = f"pass an int32 bias, or {self.names.as_float}" if scaled[0] == "bias" else remedy
            raise OptionError(self.call.name, scaled[0], "", f"given for {result.name}", "left out", remedy)
        if activation is not None and kind is not dtypes.float32:
            remedy = "apply it after"
            raise OptionError(self.call.name, "activation", "", f"given for {kind.name}", "left out", remedy)


_BYTES = (dtypes.int8, dtypes.uint8)
_HALVES = (dtypes.float32, dtypes.bfloat16, dtypes.float16)
# What is summed in: what a result may be, and what is added to it may be.
_RESULTS: dict[DType, tuple[DType, ...]] = {
    dtypes.float32: _HALVES,
    dtypes.float64: (dtypes.float64, dtypes.float32),
    dtypes.int32: (dtypes.int32, dtypes.int64, *_HALVES),
    dtypes.int64: (dtypes.int64, *_HALVES),
}
_ADDED: dict[DType, tuple[DType, ...]] = {dtypes.float32: _HALVES, dtypes.float64: (dtypes.float64,)}


def _batch(call: Call, names: Names, x: Shape, y: Shape) -> Shape:
    """The batch dimensions of the product."""
    if x == y:
        return x
    found = broadcast_extents(x, y)
    if found is None:
        expected = f"one that broadcasts with {names.a}'s {x}"
        raise ShapeError(call.name, names.b, "batch shape", y, expected, "reshape one of them")
    return found


def _activation(call: Call, name: str | None) -> Any:
    if name is None:
        return None
    if not isinstance(name, str) or name not in elementwise.ACTIVATIONS:
        raise OptionError(
            call.name, "activation", "", shown(name), f"one of {elementwise.ACTIVATIONS}", "apply it after"
        )
    return elementwise.activation(name)
