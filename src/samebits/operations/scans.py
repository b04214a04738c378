"""The operation `scan`: sums, products and extremes that run along an axis, ascending from its first element.

Start at `Along`.
"""

from __future__ import annotations

from collections.abc import Sequence

from samebits import dtypes
from samebits.errors import DTypeError
from samebits.frozen import dataclass
from samebits.kernels import scan
from samebits.kernels.plan import Plan
from samebits.kernels.scan import Scan, ScanKind
from samebits.operations.axes import along
from samebits.operations.fact import Fact, check_axis, dense
from samebits.operations.operation import Array, Operation, PlanTarget, View, shared_by

__all__ = ["ROWS", "Along"]


@dataclass(frozen=True, slots=True)
class Along:
    """What runs along which axis, counted from the front."""

    kind: ScanKind
    axis: int

    def __str__(self) -> str:
        return f"{self.kind} along axis {self.axis}"


def _infer(attributes: Along, facts: Sequence[Fact]) -> tuple[Fact, ...]:
    (x,) = facts
    check_axis("scan", attributes.axis, x.rank)
    if attributes.kind in ("sum", "prod") and not x.dtype.has_zero:
        raise DTypeError("scan", "x", "dtype", x.dtype.name, "any dtype with a zero", "cast it")
    return (dense(Scan(attributes.kind, x.dtype).target, x.shape),)


def _reference(attributes: Along, arrays: Sequence[Array]) -> tuple[Array, ...]:
    (x,) = arrays
    return (scan.reference(Scan(attributes.kind, dtypes.of(x.dtype)), x, attributes.axis),)


def _plan(attributes: Along, views: tuple[View, ...], target: PlanTarget) -> Plan:
    (dtype, *x), (_, *out) = views
    lies, goes = (x[0], x[1]), (out[0], out[1])
    threads = shared_by(views, target)
    return scan.plan(Scan(attributes.kind, dtype), lies, goes, attributes.axis, target.isa, threads)


ROWS: tuple[Operation, ...] = (Operation("scan", _infer, _reference, along, plan=_plan),)
