"""What the elements of a tensor are: as numbers, as bytes, as a digest and in print; and how tensors are compared.

Start at `TensorValues`. Elements are read by NumPy (`elements`), whatever the layout.
"""

import math
import numbers
from collections.abc import Callable
from typing import Any, NoReturn, Self

import numpy as np
import numpy.typing as npt

from samebits import driver, elements
from samebits.errors import ShapeError, message
from samebits.shapes import check_flag
from samebits.tensor.facts import TensorFacts, check_tensor

__all__ = ["TensorValues"]

# All of so many elements are shown, of more three places at both ends of an axis; nothing of a tensor with so many axes
# that even the summary would be larger than this.
_WHOLE, _EDGES, _SHOWN = 100, 6, 10_000


class TensorValues(TensorFacts):
    """The methods of a `Tensor` that read its elements; operators of Python refuse, and name the function to call."""

    __slots__ = ()

    def values(self) -> npt.NDArray[Any]:
        """The elements as numbers of a dtype of NumPy's own that holds every value of the format exactly; a new array.

        Returns:
            float32 for the narrow floats and bfloat16, int8 or uint8 for the narrow integers, else the same dtype.
        """
        return elements.decode(self._codes(), self.dtype)

    def tolist(self) -> Any:
        """The values as Python numbers in nested lists; a number alone for rank 0."""
        return elements.listed(self.values())

    def item(self) -> float:
        """The one element as a Python number.

        Raises:
            ShapeError: There is not exactly one.
        """
        return self._only("Tensor.item")

    def __float__(self) -> float:
        """The one element as a float.

        Raises:
            ShapeError: There is not exactly one.
        """
        return float(self._only("float"))

    def __int__(self) -> int:
        """The one element as an int, what is behind the point cut off.

        Raises:
            ShapeError: There is not exactly one.
        """
        return int(self._only("int"))

    def __format__(self, spec: str) -> str:
        """The one element as Python formats its number, as in f"{loss:.3f}"; without a spec, what `repr` says.

        Raises:
            ShapeError: There is a spec, and not exactly one element.
        """
        return format(self._only("format"), spec) if spec else repr(self)

    def equal_bits(self, other: Self) -> bool:
        """Whether dtype, shape and every code point agree, whatever the layouts: exactly where digests do.

        A NaN equals the NaN of the same code, and -0 is not 0.

        Raises:
            OptionError: other is no Tensor.
        """
        check_tensor("Tensor.equal_bits", "other", other)
        same = self.dtype is other.dtype and self.shape == other.shape
        return same and np.array_equal(self._seen(), other._seen())

    def equal_values(self, other: Self, *, equal_nan: bool = False) -> bool:
        """Whether shapes agree and elements are equal as real numbers; dtypes may differ, and nothing is rounded.

        -0 equals 0, and True equals 1. A NaN equals nothing, or every NaN if `equal_nan`.

        Raises:
            OptionError: other is no Tensor.
        """
        check_tensor("Tensor.equal_values", "other", other)
        check_flag("Tensor.equal_values", "equal_nan", equal_nan)
        if self.shape != other.shape:
            return False
        x, y = self.values(), other.values()
        equal = elements.same_values(x, y)
        if equal_nan and x.dtype.kind == y.dtype.kind == "f":
            equal |= np.isnan(x) & np.isnan(y)
        return bool(equal.all())

    def tobytes(self) -> bytes:
        """The elements in row-major order, each in as few whole bytes as hold it, unused high bits 0."""
        return self._seen().tobytes()

    def digest(self) -> str:
        """SHA-256, in hex, of the dtype's name, the shape and `tobytes()`: equal exactly where all three are.

        Strides, storage and device do not matter.
        """
        import hashlib  # which a start does without

        digest = hashlib.sha256(f"{self.dtype.name} {self.shape}\n".encode())
        digest.update(np.ascontiguousarray(self._seen()).reshape(-1).view(np.uint8).data)
        return digest.hexdigest()

    def __eq__(self, other: object) -> bool:
        """Refused for tensors, arrays and numbers: neither whether two are one object, nor whether bits or values are
        the same, nor an answer for each element would be clear. Nothing else equals a tensor.

        Raises:
            TypeError: `other` could be meant by its values.
        """
        if isinstance(other, numbers.Number | list | tuple) or hasattr(type(other), "__dlpack__"):
            remedy = "ask what you mean: x is y, x.equal_bits(y) or x.equal_values(y)"
            expected = "an object that is no array"
            raise TypeError(message("Tensor ==", "other", "", f"of type {type(other).__name__}", expected, remedy))
        return NotImplemented

    # A tensor is a view, told from others by identity: in a set or as a key each is one of its own.
    __hash__ = object.__hash__

    @driver.default_float_environment()
    def __bool__(self) -> bool:
        """Whether the one element is not zero; NaN is not. Of several, or none, what is meant would not be clear.

        Raises:
            ShapeError: There is not exactly one.
        """
        if self.size == 1:
            return bool(self.item())
        remedy = "ask what you mean: tensor is None, tensor.size, or tensor.numpy().any()"
        raise ShapeError("bool", "tensor", "shape", self.shape, "one truth value", remedy)

    @driver.default_float_environment()
    def __repr__(self) -> str:
        facts = f"{self.dtype}, shape={self.shape}, {self.device}"
        if self.buffer.is_closed:
            return f"Tensor(closed, {facts})"
        shown = min(self.size, math.prod(min(extent, _EDGES + 1) for extent in self.shape))
        if not self.device.is_host or shown > _SHOWN:
            return f"Tensor({facts})"
        # Of a large tensor NumPy leaves places of its long axes out, and what it leaves out is not read.
        whole = self.size <= _WHOLE
        codes = self._codes() if whole else elements.edges(self.buffer.array(), self.layout, _EDGES // 2)
        values = np.array2string(
            elements.decode(codes, self.dtype), separator=", ", prefix="Tensor(", threshold=_WHOLE if whole else 0
        )
        return f"Tensor({values}, {facts})"

    def _only(self, call: str) -> float:
        """The one element as a Python number, for `call`."""
        if self.size != 1:
            raise ShapeError(call, "tensor", "size", self.size, 1, "use tolist()")
        number: float = elements.listed(self.values().reshape(()))
        return number

    def _codes(self) -> npt.NDArray[Any]:
        """The code points, unused high bits 0, in a new dense array of `shape`."""
        return elements.read(self.buffer.array(), self.layout)

    def _seen(self) -> npt.NDArray[Any]:
        """The code points, unused high bits 0, of `shape`; perhaps this memory, so not to be written."""
        return elements.seen(self.buffer.array(), self.layout)


# Python's operators, and what computes the same.
_OPERATORS = {
    "+": ("add", "add"), "-": ("sub", "subtract"), "*": ("mul", "multiply"), "/": ("truediv", "divide"),
    "//": ("floordiv", "floor_divide"), "%": ("mod", "remainder"), "**": ("pow", "pow"), "@": ("matmul", "matmul"),
    "<": ("lt", "less"), "<=": ("le", "less_equal"), ">": ("gt", "greater"), ">=": ("ge", "greater_equal"),
    "&": ("and", "bitwise_and"), "|": ("or", "bitwise_or"), "^": ("xor", "bitwise_xor"),
    "~": ("invert", "bitwise_invert"), "abs": ("abs", "abs"), "negation": ("neg", "negative"),
}  # fmt: skip


def _refusal(symbol: str, name: str) -> Callable[..., NoReturn]:
    def operator(self: object, *others: object) -> NoReturn:
        expected, remedy = "an array whose library computes", f"call samebits.{name}"
        raise TypeError(message(f"Tensor {symbol}", "an operand", "", "a Tensor", expected, remedy))

    return operator


for _symbol, (_word, _name) in _OPERATORS.items():
    setattr(TensorValues, f"__{_word}__", _refusal(_symbol, _name))
    if _word not in ("lt", "le", "gt", "ge", "invert", "abs", "neg"):
        setattr(TensorValues, f"__r{_word}__", _refusal(_symbol, _name))
