"""Tensors in low-precision formats, and computing on them with the same bits everywhere.

Start with `matmul`, `linear`, `quantize` and `cast`, which take arrays of NumPy, PyTorch and JAX and give back the same
kind; with `Tensor.from_any`, which shares an array's memory in any format; with `load`, which runs an ONNX model;
with `checkpoint`, which keeps tensors in files; or with `samebits.torch`, whose functions and modules have gradients.
`samebits.fusion` is nvFuser's API. `help` of each says what it takes and gives; the README has examples.
"""

from __future__ import annotations

from samebits import forks

forks.watch()  # before anything else is imported: a fork before it waits for no import

from samebits import demand, hot  # noqa: E402 - after forks are watched

# Type checkers take it for true. What is imported here delays whoever wants one name, and the command's answer to
# signals: typing and importlib would take longer than all else.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from samebits import checkpoint, dtypes, errors, layout, memory
    from samebits import fusion as fusion
    from samebits import onnx as onnx
    from samebits import torch as torch
    from samebits.codegen.isa import Isa, isas, use_isa
    from samebits.dtypes import DType, dtype
    from samebits.errors import (
        ClosedError,
        DeviceError,
        DTypeError,
        ExchangeError,
        FrozenError,
        FusionError,
        FusionTypeError,
        LayoutError,
        MissingPackageError,
        ModelError,
        NativeError,
        OptionError,
        OutOfRangeError,
        PlanError,
        SamebitsError,
        ShapeError,
        UndefinedFusionError,
        UnsupportedModelError,
    )
    from samebits.exchange.outgoing import Exported
    from samebits.kernels.gemm.contraction import Spec
    from samebits.kernels.gemm.packed import PackedMatrix
    from samebits.kernels.plan import Plan
    from samebits.kernels.quantize.dialects import Dialect, dialects
    from samebits.kernels.quantize.formats import BlockFormat, block_formats
    from samebits.layout.affine import Layout
    from samebits.memory.buffer import Buffer
    from samebits.memory.device import Device
    from samebits.native.exchange import compile_exchange
    from samebits.ops.casts import cast
    from samebits.ops.elementwise import (
        abs,
        add,
        addcmul,
        bitwise_and,
        bitwise_invert,
        bitwise_left_shift,
        bitwise_or,
        bitwise_right_shift,
        bitwise_xor,
        ceil,
        clip,
        cos,
        divide,
        equal,
        erf,
        exp,
        exp2,
        expm1,
        floor,
        floor_divide,
        fma,
        fmod,
        frac,
        gcd,
        gelu,
        greater,
        greater_equal,
        isfinite,
        isinf,
        isnan,
        lerp,
        less,
        less_equal,
        log,
        log1p,
        log2,
        log10,
        logical_and,
        logical_not,
        logical_or,
        logical_xor,
        maximum,
        minimum,
        multiply,
        negative,
        nextafter,
        not_equal,
        pow,
        quotient,
        reciprocal,
        relu,
        remainder,
        round,
        rsqrt,
        sigmoid,
        sign,
        signbit,
        silu,
        sin,
        sqrt,
        square,
        subtract,
        tanh,
        threshold,
        trunc,
        where,
    )
    from samebits.ops.gguf import decode_gguf
    from samebits.ops.gradients import grad_bias, grad_input, grad_weight
    from samebits.ops.grouped import grouped_matmul
    from samebits.ops.hadamard import hadamard
    from samebits.ops.int4_words import from_awq, from_gptq
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
    from samebits.ops.picks import argsort, scatter, sort, take_along_axis, topk
    from samebits.ops.quantize import dequantize, quantize
    from samebits.ops.quantize_report import QuantizationReport, report
    from samebits.ops.quantized import Quantized
    from samebits.ops.random import normal, rand_like, randn_like, uniform
    from samebits.ops.rows import layer_norm, log_softmax, max, mean, min, prod, rms_norm, softmax, sum, var
    from samebits.ops.scale_tiles import scales_from_tiles
    from samebits.ops.scans import cummax, cummin, cumprod, cumsum
    from samebits.program.graph import Program
    from samebits.runtime.cpu import Session, load, prepare
    from samebits.tensor import Tensor
    from samebits.verification.report import Verification
    from samebits.verification.verify import verify

__version__ = "0.1.0"

__all__ = [  # noqa: RUF022 - in the order of dir()
    "BlockFormat",
    "Buffer",
    "ClosedError",
    "DType",
    "DTypeError",
    "Device",
    "DeviceError",
    "Dialect",
    "ExchangeError",
    "Exported",
    "FrozenError",
    "FusionError",
    "FusionTypeError",
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
    "QuantizationReport",
    "Quantized",
    "SamebitsError",
    "Session",
    "ShapeError",
    "Spec",
    "Tensor",
    "UndefinedFusionError",
    "UnsupportedModelError",
    "Verification",
    "__version__",
    "abs",
    "add",
    "addcmul",
    "argsort",
    "bitwise_and",
    "bitwise_invert",
    "bitwise_left_shift",
    "bitwise_or",
    "bitwise_right_shift",
    "bitwise_xor",
    "block_formats",
    "cast",
    "ceil",
    "checkpoint",
    "clip",
    "compile_exchange",
    "concat",
    "contiguous",
    "copy",
    "cos",
    "cummax",
    "cummin",
    "cumprod",
    "cumsum",
    "decode_gguf",
    "dequantize",
    "dialects",
    "divide",
    "dtype",
    "dtypes",
    "equal",
    "erf",
    "errors",
    "exp",
    "exp2",
    "expm1",
    "fill",
    "floor",
    "floor_divide",
    "fma",
    "fmod",
    "frac",
    "from_awq",
    "from_gptq",
    "gcd",
    "gelu",
    "grad_bias",
    "grad_input",
    "grad_weight",
    "greater",
    "greater_equal",
    "grouped_matmul",
    "hadamard",
    "isas",
    "isfinite",
    "isinf",
    "isnan",
    "layer_norm",
    "layout",
    "lerp",
    "less",
    "less_equal",
    "linear",
    "load",
    "log",
    "log10",
    "log1p",
    "log2",
    "log_softmax",
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
    "nextafter",
    "normal",
    "not_equal",
    "pack",
    "plan_matmul",
    "pow",
    "prepare",
    "prod",
    "quantize",
    "quotient",
    "rand_like",
    "randn_like",
    "reciprocal",
    "relu",
    "remainder",
    "report",
    "rms_norm",
    "round",
    "rsqrt",
    "scales_from_tiles",
    "scatter",
    "sigmoid",
    "sign",
    "signbit",
    "silu",
    "sin",
    "softmax",
    "sort",
    "sqrt",
    "square",
    "subtract",
    "sum",
    "take",
    "take_along_axis",
    "tanh",
    "threshold",
    "to_packed",
    "to_padded",
    "topk",
    "trunc",
    "uniform",
    "use_isa",
    "var",
    "verify",
    "where",
]

# Every public name's module, which is imported when the name is first used. A new name goes in here, under
# TYPE_CHECKING and into `__all__`.
_HOMES = {
    "codegen.isa": "Isa isas use_isa",
    "dtypes": "DType dtype",
    "errors": "ClosedError DTypeError DeviceError ExchangeError FrozenError FusionError FusionTypeError LayoutError"
    " MissingPackageError ModelError NativeError OptionError OutOfRangeError PlanError SamebitsError ShapeError"
    " UndefinedFusionError UnsupportedModelError",
    "exchange.outgoing": "Exported",
    "kernels.gemm.contraction": "Spec",
    "kernels.gemm.packed": "PackedMatrix",
    "kernels.plan": "Plan",
    "kernels.quantize.dialects": "Dialect dialects",
    "kernels.quantize.formats": "BlockFormat block_formats",
    "layout.affine": "Layout",
    "memory.buffer": "Buffer",
    "memory.device": "Device",
    "native.exchange": "compile_exchange",
    "ops.casts": "cast",
    "ops.elementwise": "abs add addcmul bitwise_and bitwise_invert bitwise_left_shift bitwise_or bitwise_right_shift"
    " bitwise_xor ceil clip cos divide equal erf exp exp2 expm1 floor floor_divide fma fmod frac gcd gelu"
    " greater greater_equal isfinite isinf isnan lerp less less_equal log log10 log1p log2 logical_and"
    " logical_not logical_or logical_xor maximum minimum multiply negative nextafter not_equal pow"
    " quotient reciprocal relu remainder round rsqrt sigmoid sign signbit silu sin sqrt square subtract"
    " tanh threshold trunc where",
    "ops.gguf": "decode_gguf",
    "ops.hadamard": "hadamard",
    "ops.int4_words": "from_awq from_gptq",
    "ops.gradients": "grad_bias grad_input grad_weight",
    "ops.grouped": "grouped_matmul",
    "ops.matmul": "linear matmul pack plan_matmul",
    "ops.move": "concat contiguous copy fill take to_packed to_padded",
    "ops.picks": "argsort scatter sort take_along_axis topk",
    "ops.quantize": "dequantize quantize",
    "ops.quantize_report": "QuantizationReport report",
    "ops.quantized": "Quantized",
    "ops.random": "normal rand_like randn_like uniform",
    "ops.rows": "layer_norm log_softmax max mean min prod rms_norm softmax sum var",
    "ops.scale_tiles": "scales_from_tiles",
    "ops.scans": "cummax cummin cumprod cumsum",
    "program.graph": "Program",
    "runtime.cpu": "Session load prepare",
    "tensor": "Tensor",
    "verification.report": "Verification",
    "verification.verify": "verify",
}
_MODULES = frozenset({"checkpoint", "dtypes", "errors", "layout", "memory"})
# Public modules beside these; `import *` leaves them out, as it would hide the packages that two are called after.
_BESIDE = frozenset({"fusion", "onnx", "torch"})
# What other libraries call it: a method of Tensor, or a function here.
_ELSEWHERE = {
    "arange": "Tensor.arange", "array": "Tensor.from_any", "asarray": "Tensor.from_any", "empty": "Tensor.empty",
    "empty_like": "Tensor.empty_like", "frombuffer": "Tensor.from_buffer", "from_dlpack": "Tensor.from_dlpack",
    "from_numpy": "Tensor.from_any", "full": "Tensor.full", "full_like": "Tensor.full_like", "ones": "Tensor.ones",
    "ones_like": "Tensor.ones_like", "zeros": "Tensor.zeros", "zeros_like": "Tensor.zeros_like",
    "absolute": "abs", "amax": "max", "amin": "min", "ascontiguousarray": "contiguous", "astype": "cast",
    "bitwise_not": "bitwise_invert", "bmm": "matmul", "cat": "concat", "clamp": "clip", "concatenate": "concat",
    "div": "divide", "dot": "matmul", "embedding": "take", "eq": "equal", "finfo": "dtype", "ge": "greater_equal",
    "gt": "greater", "iinfo": "dtype", "index_select": "take", "invert": "bitwise_invert", "le": "less_equal",
    "lt": "less", "mm": "matmul", "mul": "multiply", "ne": "not_equal", "neg": "negative", "power": "pow",
    "rand": "uniform", "randn": "normal", "sub": "subtract", "true_divide": "divide",
}  # fmt: skip
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


def _cast() -> object:
    """What `Tensor.astype` is."""
    from samebits.ops.casts import cast

    return cast


demand.offer("cast", _cast)
hot.on_demand(_compile_exchange)
hot.offer(_exchange_steps)


def __getattr__(name: str) -> object:
    """Import what `name` is in, once."""
    import importlib
    import sys

    if name in _MODULES or name in _BESIDE:
        return importlib.import_module(f"samebits.{name}")
    if name in _ELSEWHERE:
        raise AttributeError(f"module 'samebits' has no attribute {name!r}; call samebits.{_ELSEWHERE[name]}")
    if name not in _HOME:
        formats = vars(importlib.import_module("samebits.dtypes"))
        if isinstance(formats.get(name), formats["DType"]):
            raise AttributeError(f"module 'samebits' has no attribute {name!r}; write samebits.dtypes.{name}")
        # With these two Python's traceback says which name may have been meant.
        raise AttributeError(f"module 'samebits' has no attribute {name!r}", name=name, obj=sys.modules[__name__])
    value = getattr(importlib.import_module(f"samebits.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """What is public."""
    return __all__
