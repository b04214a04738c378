"""What a value that never changes says to whoever would change it: start at `frozen`."""

from typing import NoReturn, TypeVar

from samebits.errors import FrozenError

__all__ = ["frozen"]

_T = TypeVar("_T", bound=type)


def frozen(cls: _T) -> _T:
    """A frozen dataclass with slots, whose refusal to set or delete any attribute is a sentence of ours.

    With slots `dataclass` makes the class a second time, while the methods that refuse ask `super` of the first: of a
    name that is no field they end in a TypeError about `super(type, obj)`.
    """

    def __setattr__(self: object, name: str, value: object) -> NoReturn:
        raise _refusal(cls, name, "set")

    def __delattr__(self: object, name: str) -> NoReturn:
        raise _refusal(cls, name, "deleted")

    type.__setattr__(cls, "__setattr__", __setattr__)
    type.__setattr__(cls, "__delattr__", __delattr__)
    return cls


def _refusal(cls: type, name: str, done: str) -> FrozenError:
    return FrozenError(cls.__name__, f"attribute {name!r}", "", done, "left as it is", f"make another {cls.__name__}")
