"""What a public function calls the operands of its product, so that its errors name what its caller wrote."""

from __future__ import annotations

from samebits.errors import DTypeError, PlanError, SamebitsError, ShapeError
from samebits.frozen import dataclass


@dataclass(frozen=True, slots=True)
class Names:
    """The names of one function.

    `a_format`, `a_scale`, `a_group`, ...: what the options of a, and of b, are called.
    `b_shape`: the shape that b is given in.   `turned`: that is a weight [N, K], what its blocks share [N, blocks];
    packed, it is [K, N] all the same.   `is_weight`: b is one matrix, without batch dimensions.
    `as_float`: what makes the result of integers float32.
    """

    a: str = "a"
    b: str = "b"
    b_shape: str = "[..., {k}, N]"
    a_format: str = "a_format"
    a_dialect: str = "a_dialect"
    a_scale: str = "a_scale"
    a_group: str = "a_group"
    a_global_scale: str = "a_global_scale"
    b_scale: str = "b_scale"
    b_global_scale: str = "b_global_scale"
    b_zero_point: str = "b_zero_point"
    b_group: str = "b_group"
    as_float: str = "out_dtype='float32'"
    turned: bool = False
    is_weight: bool = False

    def check_rank(self, call: str, shape: tuple[int, ...]) -> None:
        """Whether b is a matrix where it must be one.

        Raises:  ShapeError.
        """
        if self.is_weight and len(shape) != 2:
            raise ShapeError(call, self.b, "rank", len(shape), 2, "pass a matrix, or use matmul")

    def check_rows(self, call: str, rows: int, k: int, is_packed: bool) -> None:
        """Whether b, seen as [..., K, N], has as many rows as a has columns.

        Raises:  ShapeError.
        """
        if rows != k:
            side, remedy = "row", f"pass {self.b} of shape {self.b_shape.format(k=k)}"
            if self.turned:
                side, remedy = ("row", f"pack {self.b}.T of shape [{k}, N]") if is_packed else ("column", remedy)
            raise ShapeError(call, self.b, f"{side} count", rows, f"{self.a}'s column count {k}", remedy)

    def worded(self, call: str, error: DTypeError | PlanError) -> SamebitsError:
        """An error of planning in these names: the gemm room, which knows none, speaks of matmul's operands."""
        return error if error.call != "matmul" else error.renamed(call, getattr(self, error.operand, error.operand))


MATMUL = Names()
PACK = Names(b_scale="scale", b_zero_point="zero_point", b_group="group", b_global_scale="global_scale")
LINEAR = Names(
    a="x", b="weight", b_shape="[N, {k}]", a_format="x_format", a_dialect="x_dialect",
    a_scale="x_scale", a_group="x_group", a_global_scale="x_global_scale",
    b_scale="weight_scale", b_global_scale="weight_global_scale", b_zero_point="weight_zero_point", b_group="group",
    as_float="weight_scale=1.0", turned=True, is_weight=True,
)  # fmt: skip
GRAD_INPUT = Names(a="dy", b="weight", b_shape="[{k}, K]", is_weight=True)
