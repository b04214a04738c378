"""Eager data movement: copies, fills and conversions of layout and storage. Bits are copied, never computed.

Every layout and format goes through one of the kernels that `_prepared` chooses from: `elementwise` for elements of
whole bytes, `reorder` and `narrow` for those that are packed within bytes or padded to them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, Literal, SupportsIndex

import numpy as np

from samebits import dtypes, elements
from samebits.codegen.isa import Isa
from samebits.dtypes import DType
from samebits.errors import LayoutError, OptionError, ShapeError, shown
from samebits.kernels import elementwise, narrow, reorder
from samebits.kernels.expression import Chain, Expression
from samebits.kinds import narrow_storage
from samebits.layout import Layout, Shape, Storage
from samebits.memory import allocate
from samebits.operations.moves import AxisGather, Concat
from samebits.ops.call import Call, as_tensor
from samebits.ops.elementwise import taken
from samebits.ops.launch import launch
from samebits.ops.recipe import Prepared
from samebits.shapes import check_index
from samebits.tensor import Tensor

Order = Literal["C", "F", "K"] | Sequence[SupportsIndex]


def copy(
    x: Any,
    *,
    order: Order = "C",
    storage: Storage | None = None,
    out: Any = None,
    threads: int | None = None,
) -> Any:
    """x's elements, bits unchanged, in memory of their own.

    Args:    x: any array, of any dtype and layout.
             order: how they lie: `C`, `F`, `K` (the axes in x's order), or axes from slowest to fastest.
             storage: `packed` or `padded` elements of fewer than 8 bits; default those of a Tensor x, else what x's
             kind of array has: `padded` in NumPy and JAX.
             out: an array of x's dtype and shape that takes them instead, in its own layout; no element of it may be
             one of x's.   threads: at most so many; default every usable core.
    Returns: a dense array of x's kind, or out.
    Raises:  OptionError, LayoutError (out overlaps x), DTypeError, ShapeError; LayoutError if an array of another
             library was asked for that has the other storage.
    """
    call = Call("copy", x, threads)
    source = call.operand("x", x).tensor
    if out is None:
        made = call.own(_dense_for(call, source, order, storage))
    else:
        if storage is not None or not isinstance(order, str) or order != "C":
            remedy = "leave them out, or out"
            raise OptionError("copy", "order and storage", "", shown((order, storage)), "out's", remedy)
        made = call.output(source.shape, source.dtype, out, shared=())
    _move(call, source, made.tensor)
    return call.result(made)


def contiguous(x: Any, *, order: Literal["C", "F", "any"] = "C", threads: int | None = None) -> Any:
    """x itself where its elements lie side by side in that order from a byte on, else a copy where they do.

    Args:    x: any array.   order: `C`, `F`, or `any` order of the axes (a copy is then in the order `K`).
             threads: at most so many; default every usable core.
    Returns: x, or a dense array of its kind.
    Raises:  LayoutError if order is none of these.
    """
    call = Call("contiguous", x, threads)
    source = call.operand("x", x).tensor
    if source.layout.is_contiguous(order) and not source.layout.offset_bits % 8:
        return _as_given(call, x, source)
    made = _dense_for(call, source, "K" if order == "any" else order, None)
    _move(call, source, made)
    return call.result(call.own(made))


def concat(arrays: Sequence[Any], axis: int = 0, *, threads: int | None = None) -> Any:
    """Arrays one after the other along an axis, bits copied.

    Args:    arrays: at least one, of one dtype, alike in every extent but that of the axis.
             axis: counted from the end if negative.   threads: at most so many; default every usable core.
    Returns: a dense array of the kind of the first.
    Raises:  OptionError if there are none; DTypeError, ShapeError, LayoutError if there is no such axis.
    """
    given = list(arrays) if isinstance(arrays, Sequence) else []
    if not given:
        remedy = "pass at least one, as [x]"
        raise OptionError("concat", "arrays", "", shown(arrays), "a list or tuple of arrays", remedy)
    call = Call("concat", given[0], threads)
    operands = [taken(call, "arrays[0]", given[0], "copy")]
    first = operands[0]
    place = check_index("concat", "axis", axis, len(first.shape))
    for number, x in enumerate(given[1:], 1):
        name = f"arrays[{number}]"
        operands.append(call.operand(name, x, first.dtype))
        due = (*first.shape[:place], *operands[-1].shape[place : place + 1], *first.shape[place + 1 :])
        if operands[-1].shape != due:
            expected = f"that of arrays[0], {first.shape}, but for axis {place}"
            raise ShapeError("concat", name, "shape", operands[-1].shape, expected, "reshape it")
    return call.result(launch(call, "concat", Concat(place), operands)[0])


def take(x: Any, indices: Any, axis: int = 0, *, threads: int | None = None) -> Any:
    """x[..., indices, ...] on one axis, bits copied.

    Args:    x: any array.   indices: an array of int64; a negative one counts from the end.
             axis: of x, which the axes of the indices replace.   threads: at most so many; default every usable core.
    Returns: a dense array of x's kind.
    Raises:  ShapeError if an index is out of range; DTypeError; LayoutError if there is no such axis.
    """
    call = Call("take", x, threads)
    operands = [taken(call, "x", x, "copy"), call.operand("indices", indices, dtypes.int64)]
    place = check_index("take", "axis", axis, len(operands[0].shape))
    return call.result(launch(call, "gather", AxisGather(place), operands)[0])


def fill(out: Any, value: float, *, threads: int | None = None) -> Any:
    """Every element of out becomes the value; a float format takes the nearest it has, ties to an even fraction.

    Args:    out: any writable array.   value: a number.   threads: at most so many; default every usable core.
    Returns: out.
    Raises:  DTypeError if the format has no such value; ExchangeError if out is read-only.
    """
    call, given = Call("fill", out, threads), as_tensor("fill", "out", out)
    dtype = given.dtype
    target = call.output(given.shape, dtype, out)
    one = Tensor.empty((), dtype)
    elements.write(one.buffer.array(), one.layout, elements.code_of(value, dtype, "fill"))
    _move(call, one.broadcast_to(target.shape), target.tensor)
    return call.result(target)


def to_packed(x: Any, *, threads: int | None = None) -> Any:
    """x with its elements side by side, those of fewer than 8 bits several a byte, least significant bits first.

    Args:    x: any array, such as a NumPy array of ml_dtypes' int4.   threads: at most so many.
    Returns: a dense row-major Tensor, which may be x itself; of elements of 8 bits and more, `contiguous(x)`.
    """
    return _stored("to_packed", x, "packed", threads)


def to_padded(x: Any, *, threads: int | None = None) -> Any:
    """x with elements of fewer than 8 bits a byte each, unused high bits 0, as NumPy and ml_dtypes have them.

    Args:    x: any array.   threads: at most so many; default every usable core.
    Returns: a dense row-major array of x's kind, which may be x itself; a Tensor's has `numpy()`.
    """
    return _stored("to_padded", x, "padded", threads)


def _stored(name: str, x: Any, storage: Storage, threads: int | None) -> Any:
    call = Call(name, x, threads)
    source = call.operand("x", x).tensor
    is_narrow = source.dtype.width_bits < 8
    layout = source.layout
    if layout.is_contiguous() and not layout.offset_bits % 8 and (layout.storage == storage or not is_narrow):
        return _as_given(call, x, source)
    layout = Layout.dense(source.shape, width_bits=layout.width_bits, storage=storage)
    made = _new(layout, source.dtype)
    _move(call, source, made)
    return made if is_narrow and storage == "packed" else call.result(call.own(made))


def packing(x: Tensor) -> Callable[[int, int], None] | None:
    """What packs elements that lie as x's do: it takes the address of the first one's byte, and of dense memory.

    None where that is a view or nothing: where x is dense already, or has no elements.
    """
    source = x.layout
    if source.storage != "packed" or (source.is_contiguous() and not source.offset_bits % 8):
        return None
    return moving(x, Layout.dense(source.shape, width_bits=source.width_bits))


def moving(x: Tensor, layout: Layout) -> Callable[[int, int], None] | None:
    """What copies elements that lie as x's do to where a layout of its shape and width has them; None without elements.

    It takes the address of the byte of the first element there, and here.
    """
    if not x.size:
        return None
    call = Call("copy", x)
    threads = call.sized(x.size, "elements")
    prepared, first, second = _prepared(*_in_byte(x.layout), *_in_byte(layout), layout.width_bits, call.isa, threads)
    return lambda start, made: prepared.run([start + first, made + second])


def _as_given(call: Call, x: object, tensor: Tensor) -> Any:
    """x itself, or the array of what is none, such as a list."""
    return x if isinstance(x, Tensor | np.ndarray) or call.kind != "numpy" else call.result(call.own(tensor))


def _dense_for(call: Call, x: Tensor, order: Order, storage: Storage | None) -> Tensor:
    """A new dense tensor for x's elements, which x's kind of array must be able to be."""
    layout, width = x.layout, x.dtype.width_bits
    due = layout.storage if width >= 8 or call.kind == "tensor" else narrow_storage(call.kind)
    axes: Any = order
    if isinstance(order, str) and order == "K":
        # The slowest axis is the one of the largest stride; axes of stride 0 and equal ones keep their order.
        axes = layout.stride_order
    made = Layout.dense(layout.shape, width_bits=width, order=axes, storage=due if storage is None else storage)
    if width < 8 and call.kind != "tensor" and made.storage != due:
        expected = f"{due} for an array of {call.kind}"
        raise LayoutError(call.name, "storage", "", made.storage, expected, "pass Tensor.from_any(x)")
    return _new(made, x.dtype)


def _new(layout: Layout, dtype: DType) -> Tensor:
    """A tensor of a dense layout in new memory, bits after the last element 0."""
    buffer = allocate(layout.required_bytes)
    if layout.bounds_bits[1] % 8:
        buffer.array()[-1] = 0
    return Tensor(buffer, layout, dtype)


def _move(call: Call, source: Tensor, target: Tensor) -> None:
    """target[i] = source[i]: by the fastest kernel that takes both layouts."""
    if target.size:
        threads = call.sized(target.size, "elements")
        x, y = source.layout, target.layout
        prepared, first, second = _prepared(*_in_byte(x), *_in_byte(y), x.width_bits, call.isa, threads)
        first, second = first + (x.offset_bits >> 3), second + (y.offset_bits >> 3)
        prepared.run([source.buffer.address + first, target.buffer.address + second])


def _in_byte(layout: Layout) -> tuple[Shape, Shape, int, Storage]:
    """A layout from the byte on in which its first element begins, so that views along a buffer share a plan."""
    return layout.shape, layout.strides_bits, layout.offset_bits & 7, layout.storage


@functools.lru_cache(maxsize=4096)
def _prepared(
    shape: Shape, x_steps: Shape, x_bit: int, x_storage: Storage,
    goal: Shape, y_steps: Shape, y_bit: int, y_storage: Storage, width: int, isa: Isa, threads: int,
) -> tuple[Prepared, int, int]:  # fmt: skip
    """The plan, and where its operands begin, in bytes from those of the first elements."""
    x, y = Layout(shape, x_steps, x_bit, width, x_storage), Layout(goal, y_steps, y_bit, width, y_storage)
    if width >= 8 and not _steps_by(width, x, y):
        # Elements that are not their own size apart move as an axis of bytes each.
        x, y, width = _in_bytes(x), _in_bytes(y), 8
    if width >= 8 and _steps_by(width, x, y):
        plan = elementwise.plan(_copy(width), ((x.shape, x.strides),), ((y.shape, y.strides),), isa, threads)
        return Prepared(plan), 0, 0
    (x, x_start, _), (y, y_start, _) = x.rebased(), y.rebased()
    return Prepared((reorder if width < 8 else narrow).plan(x, y, isa, threads)), x_start, y_start


def _steps_by(width: int, *layouts: Layout) -> bool:
    """Whether every stride is a whole number of elements, and the first begins at a byte."""
    return not any(layout.offset_bits % 8 or any(s % width for s in layout.strides_bits) for layout in layouts)


def _in_bytes(layout: Layout) -> Layout:
    """The bytes of the elements, along one more axis."""
    shape, strides = (*layout.shape, layout.width_bits // 8), (*layout.strides_bits, 8)
    return Layout(shape, strides, layout.offset_bits, 8)


@functools.cache
def _copy(width: int) -> Expression:
    """The copy of code points of so many bits."""
    chain = Chain()
    return chain.finish(chain.apply("copy", chain.input(dtypes.of(f"uint{width}"))))
