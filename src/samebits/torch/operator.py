"""Operators of torch whose arithmetic is ours: what each row registers with torch's dispatcher.

Start at `Operator` and `define`. Whatever calls an operator (autograd, `torch.func`, autocast, compiling, exporting)
meets it in the dispatcher, so each of these is answered once, here. What is used of torch beside its documented
functions is in this file alone (docs/decisions/0009-torch.md).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch._functorch.autograd_function import enable_single_level_autograd_function
from torch.autograd import forward_ad

from samebits.errors import DeviceError, DTypeError, LayoutError, OptionError, SamebitsError
from samebits.frozen import dataclass
from samebits.native.table import MAX_THREADS
from samebits.ops import memo
from samebits.ops.recording import is_stand_in
from samebits.torch.arguments import check_tensors

__all__ = [
    "FLOATS",
    "OPERATORS",
    "PLAIN",
    "WATCHERS",
    "Form",
    "Gradient",
    "Operator",
    "by_loop",
    "check_tensor",
    "count_threads",
    "define",
    "front",
    "in_front",
    "is_compiling",
    "is_recording",
    "levels",
    "of_memory",
    "profiler",
    "threads",
]

_LIBRARY = torch.library.Library("samebits", "DEF")
FLOATS = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
# Tensors that are nothing else.
PLAIN = frozenset([Tensor, torch.nn.Parameter])
# Every operator by its name.
OPERATORS: dict[str, Any] = {}
count_threads = torch.get_num_threads
# What torch is asked of its state at each call.
_C: Any = torch._C
levels: Any = forward_ad
profiler: Any = torch.autograd.profiler
is_compiling, is_recording = torch.compiler.is_dynamo_compiling, torch.is_grad_enabled
_modes, _overrides, _transforms = (
    _C._len_torch_dispatch_stack, _C._len_torch_function_stack, _C._are_functorch_transforms_active
)  # fmt: skip
_is_tracing, _is_autocast = _C._is_tracing, _C._is_any_autocast_enabled
# Where all of these say no, and forward mode and the profiler are off, nobody but autograd stands between a call and
# its kernel, or looks on.
WATCHERS = (_modes, _overrides, _transforms, _is_tracing, _is_autocast)
Batch = Callable[[Any, int, tuple[Any, ...], tuple[Any, ...]], tuple[Any, Any]]


class Form(NamedTuple):
    """What is known of a tensor that is not kept."""

    shape: torch.Size
    dtype: torch.dtype


# Every recorded call makes forms: this is the quick way to a named tuple.
_new = tuple.__new__


@dataclass(frozen=True, slots=True)
class Gradient:
    """How gradients of an operator are found.

    Attributes:
        keeps: `(inputs, result, which inputs need one)` to the inputs and results that backward reads.
        backward: `(inputs, kept tensors, which inputs need one, gradient of the result)` to a gradient or None for each
            input; of inputs that are tensors it gets None, or the `Form`.
        holds: Which inputs backward gets as they are, since it writes to them: what is kept may be copied meanwhile.
        formed: Which tensors it gets the `Form` of, since it reads their shapes or dtypes.
    """

    keeps: Callable[[tuple[Any, ...], Any, tuple[bool, ...]], Sequence[Tensor | None]]
    backward: Callable[..., tuple[Tensor | None, ...]]
    holds: tuple[int, ...] = ()
    formed: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Operator:
    """One operator.

    Attributes:
        schema: Its name, arguments and results, as torch writes them.
        compute: The results, of tensors on the host that need no gradient, by at most `threads=` threads.
        shapes: The results' shapes and dtypes alone; refuses, in one sentence, what does not fit.
        batch: `(operator, size, axes, arguments)` to the results of a batch of calls and the axis that they are stacked
            along; `axes` has None for an argument that is the same in each call.
        gradient: None where there is none to be had.
        casts: How many operands, the first ones, autocast makes narrower.
    """

    schema: str
    compute: Callable[..., Any]
    shapes: Callable[..., Any]
    batch: Batch
    gradient: Gradient | None = None
    casts: int = 0


def define(row: Operator) -> Any:
    """Register a row with torch; the function that calls it."""
    name = row.schema.partition("(")[0]
    _LIBRARY.define(row.schema, tags=(torch.Tag.pt2_compliant_tag,))
    call = getattr(torch.ops.samebits, name).default
    host = _host(row)
    _LIBRARY.impl(name, host, "CompositeExplicitAutograd")
    torch.library.register_fake(f"samebits::{name}", _fake(row), lib=_LIBRARY)
    places, entry = places_of(row.schema), call
    if "!" not in row.schema:
        below = _below(call, host, places)
        _LIBRARY.impl(name, _recorded(below, _node(name, _below_levels(below), row), places), "Autograd")
        entry = _entry(call, host, _node(name, host, row), row)
    torch.library.register_vmap(f"samebits::{name}", _mapped(row, call), lib=_LIBRARY)
    if row.casts:
        _LIBRARY.impl(name, _cast(call, row.casts), "AutocastCPU")
    OPERATORS[name] = call
    return entry


def places_of(schema: str) -> tuple[int, ...]:
    """Which arguments are tensors."""
    return tuple([i for i, argument in enumerate(_arguments(schema)) if argument.startswith("Tensor")])


def _public(schema: str) -> str:
    """How messages call an operator."""
    return schema.partition("(")[0].removesuffix("_into")


def _arguments(schema: str) -> list[str]:
    return schema[schema.index("(") + 1 : schema.rindex(") ->")].split(", ")


def threads() -> int:
    """How many threads a call takes: as many as torch does. They change no bit."""
    count = count_threads()
    return count if count < MAX_THREADS else MAX_THREADS


def check_tensor(call: str, name: str, x: Tensor, *dtypes: torch.dtype) -> None:
    """Raise unless x is of one of the dtypes (the floats where none is given), strided, and on the host.

    What stands in for a tensor while a call is recorded is not looked at: the tensor was.

    Raises:  DTypeError, LayoutError, DeviceError.
    """
    if is_stand_in(x):
        return
    if x.is_nested:
        remedy = "call its to_padded_tensor(0.0) first"
        raise LayoutError(call, name, "layout", "that of a nested tensor", "torch.strided", remedy)
    if x.layout is not torch.strided:
        raise LayoutError(call, name, "layout", x.layout, "torch.strided", "call its to_dense() first")
    expected = dtypes or FLOATS
    if x.dtype not in expected:
        remedy = "pass its real and imaginary parts apart" if x.dtype.is_complex else "convert it first"
        words = " or ".join(str(dtype).removeprefix("torch.") for dtype in expected)
        raise DTypeError(call, name, "dtype", str(x.dtype).removeprefix("torch."), words, remedy)
    if not (x.is_cpu or x.is_meta):
        raise DeviceError(call, name, "device", x.device, "cpu", "call its cpu() first")


def _host(row: Operator) -> Callable[..., Any]:
    """The kernel: on the tensors' own memory. What `shapes` refuses is refused in its words, wherever it is found."""
    compute, shapes = row.compute, row.shapes

    def kernel(*arguments: Any) -> Any:
        try:
            return compute(*arguments, threads=threads())
        except (SamebitsError, RuntimeError):  # what torch's own functions raise of a nested tensor
            shapes(*arguments)
            raise

    return kernel


def of_memory(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that makes one call of `ops`, or one of `ops` itself, which takes torch's tensors for their memory
    alone, as autograd's part is done around it. A call like one before is not looked at again: what it refuses, and
    what it does, has to follow from shapes, strides, dtypes and numbers.
    """
    remembered = function if hasattr(function, "__wrapped__") else memo.remembered(function)

    def called(*arguments: Any, **options: Any) -> Any:
        found = memo.recalled(remembered, arguments, options)
        if found is None:
            # Calls are remembered for tensors that are nothing else, which a frozen parameter is not; what is given
            # twice is one tensor.
            plain = {id(x): x.detach() for x in (*arguments, *options.values()) if isinstance(x, Tensor)}
            named = {key: plain.get(id(x), x) for key, x in options.items()}
            found = remembered(*[plain.get(id(x), x) for x in arguments], **named)
        return found

    return called


def _fake(row: Operator) -> Callable[..., Any]:
    """The shapes, of operands that are all on one device."""
    shapes, places, arguments = row.shapes, places_of(row.schema), _arguments(row.schema)
    call = _public(row.schema)

    def described(*given: Any) -> Any:
        made, operands = shapes(*given), [i for i in places if given[i] is not None]
        for i in operands[1:]:
            device, expected = given[i].device, given[operands[0]].device
            if device != expected:
                name = arguments[i].split()[-1]
                remedy = "move one of them"
                raise DeviceError(call, name, "device", device, f"{expected}, as the first operand's", remedy)
        return made

    return described


def _mapped(row: Operator, call: Callable[..., Any]) -> Callable[..., Any]:
    """What vmap calls: the row's rule."""

    def kernel(info: Any, axes: tuple[Any, ...], *arguments: Any) -> tuple[Any, Any]:
        # Of a list torch says a list of axes, of which there are none.
        known = tuple([axis if isinstance(axis, int) else None for axis in axes])
        return row.batch(call, info.batch_size, known, arguments)

    return kernel


def _below(call: Callable[..., Any], host: Callable[..., Any], places: tuple[int, ...]) -> Callable[..., Any]:
    """What autograd calls: whatever the dispatcher has below it. Where that is the kernel, the kernel itself, which is
    3 us of a call less."""

    def computed(*arguments: Any) -> Any:
        if not (_modes() or _transforms()):
            for i in places:
                x = arguments[i]
                if x is not None and not (type(x) in PLAIN and x.is_cpu):
                    break
            else:
                return host(*arguments)
        with torch._C._AutoDispatchBelowAutograd():
            return call(*arguments)

    return computed


def _below_levels(below: Callable[..., Any]) -> Callable[..., Any]:
    """What a node computes with: `below`, of which the transforms of `torch.func` around this one know."""

    def computed(*arguments: Any) -> Any:
        if not _transforms():
            return below(*arguments)
        # A node computes with gradients off; the transforms around this one have yet to record theirs.
        forward_mode: Any = forward_ad._set_fwd_grad_enabled
        with torch.enable_grad(), forward_mode(True):
            return below(*arguments)

    return computed


def _entry(call: Callable[..., Any], host: Callable[..., Any], apply: Any, row: Operator) -> Callable[..., Any]:
    """What our functions call: torch's dispatcher, or, where it would only go on to the node or the kernel, these
    themselves, which is a fifth of a small call less. What they refuse the dispatcher gets after all, and so the last
    word.
    """
    places, arguments_, is_cast = places_of(row.schema), _arguments(row.schema), bool(row.casts)
    name, names = _public(row.schema), [argument.split()[-1] for argument in arguments_]
    due = frozenset([i for i in places if not arguments_[i].startswith("Tensor?")])
    autograd, is_excluded = _C.DispatchKey.AutogradFunctionality, _C._dispatch_tls_is_dispatch_key_excluded

    def asked(*arguments: Any) -> Any:
        # What is no tensor the dispatcher refuses in a way of its own.
        check_tensors(name, **{names[i]: arguments[i] for i in places if i in due or arguments[i] is not None})
        return call(*arguments)

    def entered(*arguments: Any) -> Any:
        if is_compiling() or (
            _modes()
            or _overrides()
            or _transforms()
            or levels._current_level >= 0
            or (is_cast and _is_autocast())
            or profiler._is_profiler_enabled
            or _is_tracing()
        ):
            return asked(*arguments)
        is_needed = False
        for i in places:
            x = arguments[i]
            if type(x) in PLAIN and x.is_cpu:
                is_needed |= x.requires_grad
            elif x is not None or i in due:
                return asked(*arguments)
        try:
            if is_needed and is_recording():
                # In another operator's kernel autograd's turn is over.
                return (host if is_excluded(autograd) else apply)(*arguments)
            return host(*arguments)
        except (SamebitsError, RuntimeError):
            return call(*arguments)

    return entered


def _node(name: str, below: Callable[..., Any], row: Operator) -> Any:
    """What computes below autograd and records a node, which knows the gradient."""
    gradient = row.gradient
    formed, holds = ((), ()) if gradient is None else (gradient.formed, gradient.holds)
    unread = [i for i in places_of(row.schema) if i not in (*formed, *holds)]

    class Differentiable(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *arguments: Any) -> Any:
            result = below(*arguments)
            if gradient is not None:
                ctx.save_for_backward(*gradient.keeps(arguments, result, ctx.needs_input_grad))
                forms = ctx.forms = list(arguments)
                for i in unread:
                    forms[i] = None
                for i in formed:
                    x = arguments[i]
                    if x is not None:
                        forms[i] = _new(Form, (x.shape, x.dtype))
            return result

        @staticmethod
        def backward(ctx: Any, dy: Tensor, *_: Any) -> Any:
            if gradient is None:
                call = name.removesuffix("_backward").removesuffix("_input").removesuffix("_weight")
                raise OptionError(call, "a second gradient", "", "asked for", "left out", "differentiate once")
            return gradient.backward(ctx.forms, ctx.saved_tensors, ctx.needs_input_grad, dy)

        @staticmethod
        def jvp(ctx: Any, *tangents: Any) -> Any:
            remedy = "use torch.func.grad, vjp or jacrev"
            raise OptionError(name, "forward-mode differentiation", "", "asked for", "reverse mode", remedy)

    Differentiable.__name__ = Differentiable.__qualname__ = name
    return super(torch.autograd.Function, Differentiable).apply


def _recorded(below: Callable[..., Any], apply: Any, places: tuple[int, ...]) -> Callable[..., Any]:
    """What autograd's key does: a node where a gradient could be asked for, else nothing."""
    single_level: Any = enable_single_level_autograd_function

    def kernel(*arguments: Any) -> Any:
        is_needed = levels._current_level >= 0
        if torch.is_grad_enabled():
            for i in places:
                x = arguments[i]
                if x is not None and x.requires_grad:
                    is_needed = True
        if not is_needed:
            return below(*arguments)
        if _transforms():
            with single_level():
                return apply(*arguments)
        return apply(*arguments)

    return kernel


def _cast(call: Any, count: int) -> Callable[..., Any]:
    """What autocast does: floats but float64 become its dtype, as they do for torch's products."""
    excluded = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU)

    def kernel(*arguments: Any) -> Any:
        dtype = torch.get_autocast_dtype("cpu")
        narrowed = [
            x.to(dtype) if isinstance(x, Tensor) and x.is_floating_point() and x.dtype is not torch.float64 else x
            for x in arguments[:count]
        ]
        with torch._C._ExcludeDispatchKeyGuard(excluded):
            return call(*narrowed, *arguments[count:])

    return kernel


def front(x: Tensor | None, axis: int | None, rank: int) -> Tensor | None:
    """x with its batch in front, and behind it as many axes as a call's operands have; as it is without a batch."""
    if x is None or axis is None:
        return x
    x = x.movedim(axis, 0)
    return x.reshape(x.shape[0], *(1,) * (rank - x.ndim + 1), *x.shape[1:])


def by_loop(call: Any, size: int, axes: tuple[Any, ...], arguments: tuple[Any, ...]) -> tuple[Any, Any]:
    """The batch of an operator that has no faster form: one call after another."""
    made = []
    for i in range(size):
        made.append(call(*[x if a is None else x.select(a, i) for x, a in zip(arguments, axes, strict=True)]))
    return torch.stack(made), 0


def in_front(count: int) -> Batch:
    """The rule of operators that take any axes in front of the first `count` operands, of one rank, and no others."""

    def batch(call: Any, size: int, axes: tuple[Any, ...], arguments: tuple[Any, ...]) -> tuple[Any, Any]:
        if any(axis is not None for axis in axes[count:]):
            return by_loop(call, size, axes, arguments)
        moved = [
            x.unsqueeze(0).expand(size, *x.shape) if axis is None else x.movedim(axis, 0)
            for x, axis in zip(arguments[:count], axes[:count], strict=True)
        ]
        return call(*moved, *arguments[count:]), 0

    return batch
