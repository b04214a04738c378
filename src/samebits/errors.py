"""The exception tree. An error carries its facts as fields; the one sentence that says them is worded last.

SamebitsError
├── DTypeError             (TypeError)     an element format that is unknown or not allowed here
├── LayoutError            (ValueError)    strides, offsets, axes: how elements lie in memory
│   └── OutOfRangeError    (IndexError)    an index or an axis that is not there
├── ShapeError             (ValueError)    extents that do not fit each other
├── DeviceError            (ValueError)    memory that lives, or should live, elsewhere
├── ExchangeError          (BufferError)   DLPack and the array interfaces
├── ClosedError            (ValueError)    use of a buffer after close()
├── OptionError            (ValueError)    a keyword with a value that no call accepts
├── PlanError              (ValueError)    no kernel can do what the description asks
├── FrozenError            (AttributeError)  an attribute of a value that never changes was set
├── MissingPackageError    (ModuleNotFoundError)  a package that only some calls need is not installed
├── NativeError            (RuntimeError)  compiling, loading or running machine code
├── FusionError            (RuntimeError)  a definition of a fusion, or what a run of it is given, that does not fit
│   ├── FusionTypeError       (DTypeError)   an element format, or a type of an argument, that fusions do not take
│   └── UndefinedFusionError  (NotImplementedError)  a fusion that is run before it is defined
└── ModelError             (ValueError)    a model that is malformed
    └── UnsupportedModelError              a valid model that needs what is not there
"""

from collections.abc import Iterable
from typing import Self

__all__ = [
    "ClosedError",
    "DTypeError",
    "DeviceError",
    "ExchangeError",
    "FrozenError",
    "FusionError",
    "FusionTypeError",
    "LayoutError",
    "MissingPackageError",
    "ModelError",
    "NativeError",
    "OptionError",
    "OutOfRangeError",
    "PlanError",
    "SamebitsError",
    "ShapeError",
    "UndefinedFusionError",
    "UnsupportedModelError",
    "message",
    "near",
    "printable",
]


class SamebitsError(Exception):
    """Everything this library raises on purpose: `<call>: <operand> <fact> is <actual>, must be <expected>; <remedy>`.

    Attributes:
        call: The public function, as the caller wrote it.
        operand: The argument at fault.
        fact: What about it is wrong: `dtype`, `extent 1`, `stride 0`; empty where the operand itself is.
        actual: What was given.
        expected: What would have been accepted.
        remedy: The next thing to try, as an imperative.
    """

    def __init__(self, call: str, operand: str, fact: str, actual: object, expected: object, remedy: str) -> None:
        super().__init__(call, operand, fact, actual, expected, remedy)
        self.call, self.operand, self.fact = call, operand, fact
        self.actual, self.expected, self.remedy = actual, expected, remedy

    def __str__(self) -> str:
        return message(self.call, self.operand, self.fact, self.actual, self.expected, self.remedy)

    def renamed(self, call: str, operand: str) -> Self:
        """The same error in the words of the function that was called: a room knows neither it nor its arguments."""
        return type(self)(call, operand, *self.args[2:])


class DTypeError(SamebitsError, TypeError):
    """An element format is unknown, or not one that the call takes."""


class LayoutError(SamebitsError, ValueError):
    """A layout is malformed, or cannot be viewed the way that was asked."""


class OutOfRangeError(LayoutError, IndexError):
    """An index lies outside its axis, or an axis outside those that there are."""


class ShapeError(SamebitsError, ValueError):
    """Extents do not fit each other or the operation."""


class DeviceError(SamebitsError, ValueError):
    """Memory is on a device where the call cannot use it."""


class ExchangeError(SamebitsError, BufferError):
    """A tensor cannot be handed over, or what was handed over breaks the protocol."""


class ClosedError(SamebitsError, ValueError):
    """A buffer was used after it was closed."""


class OptionError(SamebitsError, ValueError):
    """A keyword has a value outside its range, such as threads=0."""


class PlanError(SamebitsError, ValueError):
    """No kernel can do what the description asks."""


class FrozenError(SamebitsError, AttributeError):
    """An attribute of a value that never changes was set or deleted."""


class MissingPackageError(SamebitsError, ModuleNotFoundError):
    """A package that only some calls need is not installed, or cannot be imported."""


class NativeError(SamebitsError, RuntimeError):
    """Machine code could not be compiled, loaded or run."""


class FusionError(SamebitsError, RuntimeError):
    """A definition of a fusion does not fit together, or a run of it is given what it does not take."""


class FusionTypeError(FusionError, DTypeError):
    """A fusion is given an element format, or an argument of a Python type, that it does not take."""


class UndefinedFusionError(FusionError, NotImplementedError):
    """A fusion is run before it is defined, or gives nothing."""


class ModelError(SamebitsError, ValueError):
    """A model, or a file of tensors, is malformed."""


class UnsupportedModelError(ModelError):
    """A model is valid, and needs an operator, type or option that is not there.

    Attributes:
        problems: A line for each node that is at fault.
    """

    def __init__(
        self, call: str, operand: str, fact: str, actual: object, expected: object, remedy: str,
        problems: tuple[str, ...] = (),
    ) -> None:  # fmt: skip
        super().__init__(call, operand, fact, actual, expected, remedy)
        self.args = (*self.args, problems)
        self.problems = problems

    def __str__(self) -> str:
        return "\n  ".join((super().__str__(), *map(in_short, self.problems)))


_ENDLESS = "a number of too many digits to show"
_SHORT = 200
# Of a part of a sentence.
_LONGEST = 1000


def shown(value: object) -> str:
    """repr(value) where that is a part of a sentence, else what value is: an array has lines of numbers, and Python
    refuses to write a number of many digits (sys.get_int_max_str_digits)."""
    try:
        text = repr(value)
    except ValueError:
        return _ENDLESS
    if len(text) <= _SHORT and "\n" not in text:
        return text
    return _ENDLESS if isinstance(value, int) else f"an object of type {type(value).__name__}"


def message(call: str, operand: str, fact: str, actual: object, expected: object, remedy: str) -> str:
    """The sentence of an error's fields, for errors that are Python's own, such as MemoryError."""
    subject = f"{operand} {fact}" if fact else operand
    try:
        given = str(actual)
    except ValueError:
        given = _ENDLESS
    if "\n" in given:
        given = " ".join(given.split())
    return f"{call}: {in_short(subject)} is {in_short(given)}, must be {in_short(str(expected))}; {remedy}"


def near(given: str, names: Iterable[str]) -> list[str]:
    """Names that may have been meant, in capitals or not: those with the text in them, or else up to three with nearly
    the same letters."""
    import difflib  # which a start does without

    # What is compared takes the product of the lengths.
    short = {name.lower(): name for name in names if len(name) <= _SHORT}
    text = given[:_SHORT].lower()
    found = [name for name in short if len(text) > 1 and text in name][:8] or difflib.get_close_matches(text, short, 3)
    return [short[name] for name in found]


def in_short(text: str) -> str:
    """A part of a sentence as `printable` has it, of which the middle is left out where it is very long: a file names
    tensors as it likes."""
    if len(text) > _LONGEST:
        text = f"{text[: _LONGEST // 2]}... ({len(text)} characters) ...{text[-_LONGEST // 2 :]}"
    return printable(text)


def printable(text: str) -> str:
    """A line in which what is no character on a terminal is written as Python writes it: a terminal would obey the
    escapes that a file may have in its names."""
    return text if text.isprintable() else "".join([c if c.isprintable() else repr(c)[1:-1] for c in text])
