"""Products of arrays: arguments become facts, `operations.product` describes them, and the plan runs on their memory.

Start at `Arguments.of` and `multiplied`. What only memory can say is looked at here: whether out is an operand, whether
an operand lies within bytes and where (`CallOperand.in_bytes`).
"""

from __future__ import annotations

import numbers
from collections.abc import Collection
from typing import Any

import numpy as np

from samebits import dtypes, tuning
from samebits.codegen import isa as isas
from samebits.codegen.isa import Isa
from samebits.errors import DTypeError, OptionError, PlanError, shown
from samebits.frozen import dataclass
from samebits.kernels import gemm
from samebits.kernels.gemm import machine as machines
from samebits.kernels.gemm.contraction import SB1, Contraction, Immediate, Panels, check_spec
from samebits.kernels.gemm.machine import Machine
from samebits.kernels.plan import Plan
from samebits.native.table import check_threads
from samebits.operations import sharing
from samebits.operations.lying import Lying, Number
from samebits.operations.names import MATMUL, Names
from samebits.operations.product import Options, ProductDescription, describe, unknown_activation
from samebits.operations.sharing import IN_BYTES, VALUES, ProductOperand
from samebits.ops.call import Call
from samebits.ops.quantized_left import quantized_left
from samebits.ops.quantized_operands import elements, is_quantized, taken_apart
from samebits.ops.recipe import CallOperand, Prepared
from samebits.tape import cached
from samebits.tensor import Tensor

_POINTS = ("a_zero_point", "b_zero_point", "out_zero_point")
_SCALES = ("a_scale", "b_scale", "out_scale", "a_global_scale", "b_global_scale")
ADDED = ("c", "bias")


def number(call: Call, name: str, value: Any) -> Number:
    """A number among the arguments.

    Raises:  OptionError if it is none.
    """
    return Number.of(value if type(value) is float else call.number(name, value, dtypes.float64))


def parameter(call: Call, name: str, key: str, value: Any, operands: dict[str, CallOperand]) -> Lying | Number | int:
    """The fact of a scale, of a zero point or of an addend, which goes to `operands` if it is an array.

    Raises:  OptionError if a number is none that could be it, and as `Call.operand`.
    """
    if key in _SCALES and isinstance(value, numbers.Real | np.bool_):
        return number(call, name, value)
    if key in _POINTS:
        if isinstance(value, bool | np.bool_):
            raise OptionError(call.name, name, "", shown(value), "an integer", "pass an int")
        if isinstance(value, int | np.integer):
            return int(value)
    operands[key] = call.operand(name, value)
    return operands[key].lying


@dataclass(frozen=True, slots=True)
class Arguments:
    """The arguments of one call as facts by name, which hash, beside the arrays that they are of."""

    call: Call
    names: Names
    facts: dict[str, Any]
    arrays: dict[str, CallOperand]
    options: Options

    @classmethod
    def of(
        cls, call: Call, names: Names, a: Any, b: Any, *, spec: Any = SB1, activation: Any = None, alpha: Any = 1.0,
        beta: Any = 1.0, a_group: Any = None, b_group: Any = None, a_dtype: Any = None, out_dtype: Any = None,
        a_format: Any = None, a_dialect: Any = None,
        **given: Any,
    ) -> Arguments:  # fmt: skip
        """Those of a product of a and b, by the names that `matmul` has for them; what is given may be None.

        Raises:  OptionError, DTypeError, and as `Call.operand`.
        """
        if activation is not None and not isinstance(activation, str):
            raise unknown_activation(call.name, activation)
        facts: dict[str, Any] = {}
        for name, value in (("alpha", alpha), ("beta", beta)):
            if type(value) is not float or value != 1.0:
                facts[name] = number(call, name, value)
        if a_format is not None:
            beside = {"a_group": a_group, "a_dtype": a_dtype, **given}
            a, given = quantized_left(call, names, a, a_format, a_dialect, beside), {**given, "a_global_scale": None}
        elif a_dialect is not None:
            remedy = f"pass {names.a_format} too"
            raise OptionError(call.name, names.a_dialect, "", f"given without {names.a_format}", "left out", remedy)
        for side, x in (("a", a), ("b", b)):
            if is_quantized(x):
                both = {"a_group": a_group, "b_group": b_group, **given}
                parts = taken_apart(call.name, names, side, x, both)
                a_group, b_group = parts.pop("a_group", a_group), parts.pop("b_group", b_group)
                given |= parts
        a, b = elements(a), elements(b)
        options = Options(
            check_spec(call.name, spec), activation, sharing.block_of(call.name, names.a_group, a_group, True),
            sharing.block_of(call.name, names.b_group, b_group, names.turned),
            None if a_dtype is None else call.dtype("a_dtype", a_dtype),
            None if out_dtype is None else call.dtype("out_dtype", out_dtype),
        )  # fmt: skip
        is_packed = isinstance(b, gemm.PackedMatrix)
        x, y = call.operand(names.a, a), call.operand(names.b, b.tensor if is_packed else b)
        arrays = {"a": x, "b": y}
        facts |= {"a": x.lying, "b": b.fits if is_packed else y.lying}
        if is_packed and b.global_scale is not None:
            if given.get("b_global_scale") is not None:
                actual = "given beside a packed one"
                raise OptionError(call.name, names.b_global_scale, "", actual, "left out", "pack without it")
            facts["b_global_scale"] = Number.of(b.global_scale)
        for key, value in given.items():
            if value is not None:
                facts[key] = parameter(call, getattr(names, key, key), key, value, arrays)
        return cls(call, names, facts, arrays, options)

    def described(self, **more: Any) -> ProductDescription:
        """What the product is.

        Raises:  what it cannot be.
        """
        try:
            return describe(self.call.name, options=self.options, names=self.names, **self.facts, **more)
        except DTypeError as error:
            raise self.call.told(error) from None

    def into(self, out: Any, may_be: Collection[str] = ADDED) -> tuple[ProductDescription, CallOperand | None]:
        """What the product is where out takes the result, and out; `may_be` names what out may be itself.

        Raises:  what it cannot be, and what out cannot be.
        """
        found = self.described()
        if out is None:
            return found, None
        added = [name for name in ADDED if name in self.arrays]
        taken = self.call.output(found.shape, found.dtype, out, [name for name in added if name in may_be])
        in_place = any(self.arrays[name].tensor.address == taken.tensor.address for name in added)
        return self.described(out=taken.lying, in_place=in_place), taken

    def operands(self, found: ProductDescription) -> list[CallOperand]:
        """Those of its plan, but for the result."""
        return [operand_of(self.call, operand, self.arrays) for operand in found.operands]


def operand_of(call: Call, operand: ProductOperand, arrays: dict[str, CallOperand]) -> CallOperand:
    """What a plan takes for an operand."""
    if operand.constant is not None:
        return call.constant(_array(operand.constant))
    x = arrays[operand.name]
    if operand.form == VALUES:
        return call.own(Tensor.from_any(x.tensor.values()))
    return x.in_bytes() if operand.form == IN_BYTES else x


def _array(constant: Immediate) -> Any:
    """A number as an array []."""
    if constant.dtype.is_integer:
        return np.asarray(constant.code, constant.dtype.numpy)
    return np.asarray(constant.code, f"i{constant.dtype.size_bytes}").view(constant.dtype.numpy)


def multiplied(given: Arguments, out: Any, plan: Plan | None = None) -> Any:
    """The array of a product, in out if it is given, by a plan for it."""
    call = given.call
    found, made = given.into(out)
    prepared = _planned(given, found.contraction, plan) if plan or 0 not in found.shape else None
    if made is None:
        made = call.output(found.shape, found.dtype)
    if prepared is not None and made.tensor.size:
        call.run(prepared, *given.operands(found), made)
    return call.result(made)


def summed(call: Call, a: CallOperand, b: CallOperand, out: Any, spec: Any = SB1) -> Any:
    """a @ b in the dtype of its sum, for other functions: from what out holds if it is given, which K = 0 leaves."""
    total = dtypes.float64 if dtypes.float64 in (a.dtype, b.dtype) else dtypes.float32
    asked = Options(check_spec(call.name, spec), out_dtype=total, accumulates=out is not None)
    given = Arguments(call, MATMUL, {"a": a.lying, "b": b.lying}, {"a": a, "b": b}, asked)
    if out is not None and not b.shape[-2]:
        _, made = given.into(out)
        assert made is not None  # it was given
        return call.result(made)
    return multiplied(given, out)


def _planned(given: Arguments, contraction: Contraction, plan: Plan | None) -> Prepared:
    """What runs, in the words of the call."""
    call = given.call
    try:
        if plan:
            return _obeyed(plan, contraction)
        threads, machine = call.sized(contraction.work, "products"), tuning.machine(call.isa)
        return _prepared(contraction, call.isa, threads, machine)
    except (DTypeError, PlanError) as error:
        raise given.names.worded(call.name, error) from None


@cached(4096)
def _prepared(contraction: Contraction, isa: Isa, threads: int, machine: Machine) -> Prepared:
    return Prepared(gemm.plan(contraction, isa, threads, machine=machine))


def _obeyed(plan: Plan, contraction: Contraction) -> Prepared:
    # A plan holds strides and epilogue, which its words do not all say: only the very plan is safe to obey. What runs
    # is the one made here, of whose fields nobody else had a hand in any.
    remedy = "make it with plan_matmul for these operands"
    try:
        isa, threads = isas.given("matmul", plan.isa), check_threads("matmul", plan.threads)
    except OptionError as error:
        fact = f"{error.operand} {error.fact}".strip()
        raise PlanError("matmul", "plan", fact, error.actual, error.expected, remedy) from None
    # One made on another machine, or where nothing was tuned, is as good, but for panels of a tuned tile's width.
    here = tuning.machine(isa)
    others = () if here.tuned and isinstance(contraction.b.values, Panels) else machines.ROWS
    for machine in (here, *others):
        if plan == gemm.plan(contraction, isa, threads, machine=machine):
            return _prepared(contraction, isa, threads, machine)
    actual = plan.what if plan.what != str(contraction) else "for other strides, options or tiles"
    raise PlanError("matmul", "plan", "", actual, f"the one for {contraction}", remedy)
