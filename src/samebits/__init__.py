"""Tensors in low-precision formats, and computing on them with the same bits everywhere.

Every public name is here, and its module is imported when the name is first used: `_HOMES` says which. A new name goes
into that table, under TYPE_CHECKING and into `__all__`.
"""

from __future__ import annotations

from samebits import hot

# Type checkers take it for true. What is imported here delays whoever wants one name, and the command's answer to
# signals: typing and importlib would take longer than all else.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from samebits import dtypes, errors, layout, memory
    from samebits.codegen.isa import Isa, isas, use_isa
    from samebits.dtypes import DType, dtype
    from samebits.errors import (
        ClosedError,
        DeviceError,
        DTypeError,
        ExchangeError,
        FrozenError,
        LayoutError,
        MissingPackageError,
        ModelError,
        NativeError,
        OptionError,
        OutOfRangeError,
        PlanError,
        SamebitsError,
        ShapeError,
        UnsupportedModelError,
    )
    from samebits.exchange.outgoing import Exported
    from samebits.kernels.gemm.contraction import Spec
    from samebits.kernels.gemm.packed import PackedMatrix
    from samebits.kernels.plan import Plan
    from samebits.layout.affine import Layout
    from samebits.memory.buffer import Buffer
    from samebits.memory.device import Device
    from samebits.native.exchange import compile_exchange
    from samebits.ops.elementwise import (
        abs,
        add,
        bitwise_and,
        bitwise_invert,
        bitwise_left_shift,
        bitwise_or,
        bitwise_right_shift,
        bitwise_xor,
        cast,
        ceil,
        divide,
        equal,
        erf,
        exp,
        floor,
        fma,
        fmod,
        gelu,
        greater,
        greater_equal,
        isnan,
        less,
        less_equal,
        logical_and,
        logical_not,
        logical_or,
        logical_xor,
        maximum,
        minimum,
        multiply,
        negative,
        not_equal,
        quotient,
        reciprocal,
        relu,
        remainder,
        round,
        sign,
        sqrt,
        subtract,
        where,
    )
    from samebits.ops.gradients import grad_bias, grad_input, grad_weight
    from samebits.ops.grouped import grouped_matmul
    from samebits.ops.matmul import linear, matmul, pack, plan_matmul
    from samebits.ops.move import (
        concat,
        contiguous,
        copy,
        fill,
        take,
        to_packed,
        to_padded,
    )
    from samebits.ops.rows import layer_norm, max, mean, min, softmax, sum
    from samebits.program.graph import Program
    from samebits.runtime.cpu import Session, load, prepare
    from samebits.tensor import Tensor
    from samebits.verification.report import Verification
    from samebits.verification.verify import verify

__version__ = "0.1.0"

__all__ = [
    "Buffer",
    "ClosedError",
    "DType",
    "DTypeError",
    "Device",
    "DeviceError",
    "ExchangeError",
    "Exported",
    "FrozenError",
    "Isa",
    "Layout",
    "LayoutError",
    "MissingPackageError",
    "ModelError",
    "NativeError",
    "OptionError",
    "OutOfRangeError",
    "PackedMatrix",
    "Plan",
    "PlanError",
    "Program",
    "SamebitsError",
    "Session",
    "ShapeError",
    "Spec",
    "Tensor",
    "UnsupportedModelError",
    "Verification",
    "__version__",
    "abs",
    "add",
    "bitwise_and",
    "bitwise_invert",
    "bitwise_left_shift",
    "bitwise_or",
    "bitwise_right_shift",
    "bitwise_xor",
    "cast",
    "ceil",
    "compile_exchange",
    "concat",
    "contiguous",
    "copy",
    "divide",
    "dtype",
    "dtypes",
    "equal",
    "erf",
    "errors",
    "exp",
    "fill",
    "floor",
    "fma",
    "fmod",
    "gelu",
    "grad_bias",
    "grad_input",
    "grad_weight",
    "greater",
    "greater_equal",
    "grouped_matmul",
    "isas",
    "isnan",
    "layer_norm",
    "layout",
    "less",
    "less_equal",
    "linear",
    "load",
    "logical_and",
    "logical_not",
    "logical_or",
    "logical_xor",
    "matmul",
    "max",
    "maximum",
    "mean",
    "memory",
    "min",
    "minimum",
    "multiply",
    "negative",
    "not_equal",
    "pack",
    "plan_matmul",
    "prepare",
    "quotient",
    "reciprocal",
    "relu",
    "remainder",
    "round",
    "sign",
    "softmax",
    "sqrt",
    "subtract",
    "sum",
    "take",
    "to_packed",
    "to_padded",
    "use_isa",
    "verify",
    "where",
]

_HOMES = {
    "codegen.isa": "Isa isas use_isa",
    "dtypes": "DType dtype",
    "errors": "ClosedError DTypeError DeviceError ExchangeError FrozenError LayoutError MissingPackageError ModelError"
    " NativeError OptionError OutOfRangeError PlanError SamebitsError ShapeError UnsupportedModelError",
    "exchange.outgoing": "Exported",
    "kernels.gemm.contraction": "Spec",
    "kernels.gemm.packed": "PackedMatrix",
    "kernels.plan": "Plan",
    "layout.affine": "Layout",
    "memory.buffer": "Buffer",
    "memory.device": "Device",
    "native.exchange": "compile_exchange",
    "ops.elementwise": "abs add bitwise_and bitwise_invert bitwise_left_shift bitwise_or bitwise_right_shift"
    " bitwise_xor cast ceil divide equal erf exp floor fma fmod gelu greater greater_equal isnan"
    " less less_equal logical_and logical_not logical_or logical_xor maximum minimum multiply"
    " negative not_equal quotient reciprocal relu remainder round sign sqrt subtract where",
    "ops.gradients": "grad_bias grad_input grad_weight",
    "ops.grouped": "grouped_matmul",
    "ops.matmul": "linear matmul pack plan_matmul",
    "ops.move": "concat contiguous copy fill take to_packed to_padded",
    "ops.rows": "layer_norm max mean min softmax sum",
    "program.graph": "Program",
    "runtime.cpu": "Session load prepare",
    "tensor": "Tensor",
    "verification.report": "Verification",
    "verification.verify": "verify",
}
_MODULES = frozenset({"dtypes", "errors", "layout", "memory"})
_HOME = {name: home for home, names in _HOMES.items() for name in names.split()}


def _compile_exchange() -> None:
    """What happens when somebody looks for what only emitted code has."""
    from samebits.native.exchange import compile_exchange

    compile_exchange()


def _exchange_steps() -> hot.Steps:
    """What happens when exchange is called often."""
    from samebits.native import exchange

    yield True
    yield from exchange.steps()


hot.on_demand(_compile_exchange)
hot.offer(_exchange_steps)


def __getattr__(name: str) -> object:
    """Import what `name` is in, once."""
    import importlib

    if name in _MODULES:
        return importlib.import_module(f"samebits.{name}")
    if name not in _HOME:
        raise AttributeError(f"module 'samebits' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"samebits.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """What is public."""
    return __all__
