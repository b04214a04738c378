"""Products of ragged groups of rows: `grouped_matmul`. Each is the product of the group alone, in one native call."""

from __future__ import annotations

import functools
import itertools
from typing import Any

import numpy as np

from samebits import dtypes, tuning
from samebits.codegen.isa import Isa
from samebits.errors import DTypeError, PlanError, ShapeError
from samebits.frozen import dataclass, replace
from samebits.kernels import gemm
from samebits.kernels.gemm import unpack
from samebits.kernels.gemm.contraction import SB1, Contraction, Side, Spec
from samebits.kernels.plan import Plan
from samebits.native import series
from samebits.operations.lying import Lying, check_factor, matrix
from samebits.operations.names import MATMUL
from samebits.ops.call import Call
from samebits.ops.move import fill
from samebits.ops.product import Arguments
from samebits.tensor import Tensor

_INTEGERS = tuple(row for row in dtypes.ROWS if row.is_integer and row.width_bits >= 8)
# Sizes of groups whose plans are kept.
_KEPT = 4096
# A group with at most this part of a thread's rows is one thread's: the last one to end idles for no more.
_SMALL = 8
# Workspace that such a group may have; what packs b first has more, and is better shared.
_OWN_BYTES = 1 << 16


def grouped_matmul(
    a: Any, b: Any, group_sizes: Any, *, bias: Any = None, out_dtype: Any = None, out: Any = None,
    threads: int | None = None, spec: Spec = SB1,
) -> Any:  # fmt: skip
    """a[t] @ b[g] + bias[g] for each row t, of the group g that it belongs to: a mixture of experts.

    The first group_sizes[0] rows of a are those of group 0, and so on; a group may have none. As in
    `jax.lax.ragged_dot`, rows after the last group are +0, whatever a holds there; sizes that need more rows than a has
    are refused. The gradient by a is grouped_matmul of dy and b, its last two axes exchanged; the one by b[g] is
    `grad_weight(dy[rows], a[rows])` of the rows of group g.

    Args:    a: [T, K].   b: [G, K, N] or that packed; a weight [G, N, K] as its transpose.   Dtypes as in matmul.
             group_sizes: [G] integers of at least 0, on the host; their sum is at most T.
             bias: [N] or [G, N]; beside integers int32, or with a float out_dtype.   out_dtype, spec: as in matmul.
             out: [T, N] for the result.   threads: at most so many; default every usable core.
    Returns: [T, N] as the kind of array that a is.
    Raises:  DTypeError, ShapeError, DeviceError, LayoutError (out overlaps an operand), OptionError, PlanError.
    Bits:    numerics.md sections 2 and 3: a group's rows are those of `matmul(a[rows], b[g])`.
    """
    call = Call("grouped_matmul", a, threads)
    x = call.operand("a", a).tensor
    y = b if isinstance(b, gemm.PackedMatrix) else call.operand("b", b).tensor
    check_factor(call.name, "a", x.dtype)
    if isinstance(y, Tensor):
        check_factor(call.name, "b", y.dtype)
    for name, rank, due, remedy in (
        ("a", x.ndim, 2, "reshape it to [T, K]"), ("b", len(y.shape), 3, "stack the matrices of the groups"),
    ):  # fmt: skip
        if rank != due:
            raise ShapeError(call.name, name, "rank", rank, due, remedy)
    groups = y.shape[0]
    sizes = _sizes(call, group_sizes, groups, x.shape[0])
    addend = _bias(call, bias, groups, y.shape[-1])
    one = addend if addend is None or addend.ndim < 2 else _first(addend)
    # out is no bias: its rows are others' than those of the result.
    given = Arguments.of(call, MATMUL, x, _first(y), bias=one, spec=spec, out_dtype=out_dtype)
    found, made = given.into(out, may_be=())
    made, used = call.output(found.shape, found.dtype) if made is None else made, sum(sizes)
    if made.tensor.size:
        threads = call.sized(found.contraction.work, "products")
        product = _Product(call, found.contraction, x, y, addend, made.tensor)
        try:
            parts = _parts(product, sizes, threads)
        except (DTypeError, PlanError) as error:
            raise MATMUL.worded(call.name, error) from None
        series.run(parts, threads)
        if used < x.shape[0]:
            fill(made.tensor[used:], 0, threads=threads)
    return call.result(made)


def _sizes(call: Call, group_sizes: Any, groups: int, rows: int) -> list[int]:
    """The sizes as integers."""
    none = isinstance(group_sizes, list | tuple) and not group_sizes
    given = call.operand("group_sizes", np.empty(0, np.int64) if none else group_sizes, *_INTEGERS).tensor
    if given.shape != (groups,):
        expected = f"{(groups,)}, one for each matrix of b"
        raise ShapeError(call.name, "group_sizes", "shape", given.shape, expected, "give an empty group 0")
    sizes: list[int] = given.tolist()
    if sizes and min(sizes) < 0:
        remedy = "give an empty group 0"
        raise ShapeError(call.name, "group_sizes", "minimum", min(sizes), "at least 0", remedy)
    if sum(sizes) > rows:
        remedy = "give the rows of each group"
        raise ShapeError(call.name, "group_sizes", "sum", sum(sizes), f"at most a's row count {rows}", remedy)
    return sizes


def _first(x: gemm.PackedMatrix | Tensor) -> Any:
    """What the first group takes of x; where there are no groups, something of its shape."""
    if not x.shape[0]:
        return Tensor.empty(x.shape[1:], x.dtype)
    return x[0] if isinstance(x, Tensor) else replace(x, shape=x.shape[1:])


def _bias(call: Call, bias: Any, groups: int, n: int) -> Tensor | None:
    """The bias of all groups, or with a row for each."""
    if bias is None:
        return None
    x = call.operand("bias", bias).tensor
    if x.ndim > 2 or (x.ndim == 2 and x.shape[0] != groups):
        expected = f"({n},) or {(groups, n)}"
        raise ShapeError(call.name, "bias", "shape", x.shape, expected, "give each group's, or one for all")
    return x


@dataclass(frozen=True, slots=True)
class _Product:
    """All groups: `contraction` is that of every row with the first one; the others are its operands."""

    call: Call
    contraction: Contraction
    a: Tensor
    b: gemm.PackedMatrix | Tensor
    bias: Tensor | None
    out: Tensor


def _parts(product: _Product, sizes: list[int], threads: int) -> list[tuple[series.Laid, list[int]]]:
    """What each group with rows runs, and the addresses of its operands."""
    isa, used = product.call.isa, sum(sizes)
    known = _known(replace(product.contraction, m=0), isa, threads)
    is_far = isinstance(product.b, Tensor) and product.b.nbytes > tuning.machine(isa).caches.down_cached
    places = [_place(x) for x in (product.a, product.b, product.bias, product.out) if x is not None]
    of_rows = {0, len(places) - 1}
    starts = itertools.accumulate(sizes, initial=0)
    groups = [(g, size, start) for g, (size, start) in enumerate(zip(sizes, starts, strict=False)) if size]
    if threads > 1:
        groups.sort(key=lambda group: -group[1])
    parts = list[tuple[series.Laid, list[int]]]()
    for g, size, start in groups:
        bits = [bit + step * (start if i in of_rows else g) for i, (bit, step) in enumerate(places)]
        one = size * threads * _SMALL <= used
        key = size, one, is_far, bits[0] & 7, bits[1] & 7
        laid = known.get(key)
        if laid is None:
            if len(known) >= _KEPT:
                known.clear()
            contraction = _contraction(product, g, range(start, start + size))
            laid = known[key] = series.lay(_plan(contraction, isa, threads, one, is_far))
        parts.append((laid, [bit >> 3 for bit in bits]))
    return parts


def _plan(c: Contraction, isa: Isa, threads: int, one: bool, is_far: bool) -> Plan:
    """How one group runs: on one thread if it should and needs little memory of its own, else shared by all; `is_far`:
    all matrices together are more than a cache holds."""
    machine = tuning.machine(isa)
    machine = replace(machine, caches=machine.caches.far) if is_far else machine
    alone = gemm.plan(c, isa, 1 if one else threads, machine=machine)
    if not one or alone.workspace_bytes <= _OWN_BYTES:
        return alone
    return gemm.plan(c, isa, threads, machine=machine)


def _place(x: gemm.PackedMatrix | Tensor) -> tuple[int, int]:
    """Where x begins and how far it is to its next row or group, in bits; a bias for all groups stays."""
    if isinstance(x, gemm.PackedMatrix):
        return x.tensor.address * 8, x.fits.panels(x.shape[:1]).batch[0] * x.tensor.dtype.width_bits
    return x.buffer.address * 8 + x.layout.offset_bits, x.layout.strides_bits[0] if x.ndim > 1 else 0


def _contraction(product: _Product, g: int, rows: range) -> Contraction:
    """The product of one group: packed operands begin at other bits in each."""
    c, call, b = replace(product.contraction, m=len(rows)), product.call.name, product.b
    if unpack.has_packed(c.a.values):
        c = replace(c, a=Side(matrix(call, "a", _lying(product.a[rows.start : rows.stop]), (c.m, c.k))))
    if isinstance(b, Tensor) and unpack.has_packed(c.b.values):
        c = replace(c, b=Side(matrix(call, "b", _lying(b[g]), (c.k, c.n))))
    return c


def _lying(x: Tensor) -> Lying:
    return Lying.of(x.dtype, x.layout)


@functools.lru_cache(maxsize=64)
def _known(contraction: Contraction, isa: Isa, threads: int) -> dict[tuple[int, bool, bool, int, int], series.Laid]:
    """Plans of groups that differ in nothing but their number of rows, and the bits at which they begin."""
    return {}
