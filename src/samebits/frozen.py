"""Values that never change: `dataclass(frozen=True, slots=True)`, made in a tenth of the standard one's time.

A program that imports the package makes more than a hundred such classes before its first answer. The standard
decorator writes each class six functions as text and compiles them. Here classes with the same number of fields share
compiled functions, in which only the names differ, and initialising sets slots directly. A class whose fields are more
than names, types and defaults is made by the standard decorator. Either way it is a dataclass in all that
`dataclasses` says of it, and its refusal to set or delete any attribute is a sentence of ours. `replace` is as quick.
Start at `dataclass`.
"""

from __future__ import annotations

import dataclasses
import functools
import sys
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any, NoReturn

from samebits.errors import FrozenError

__all__ = ["dataclass", "replace"]

# The names that stand for those of fields in the functions that classes share.
_STAND_IN = "field{}".format
# In the stead of a field that is not replaced.
_KEPT = object()


def _dataclass(
    *, frozen: bool = False, slots: bool = False, init: bool = True, repr: bool = True, eq: bool = True
) -> Any:
    """As `dataclasses.dataclass`."""

    def made(cls: type) -> type:
        if not (frozen and slots) or any(isinstance(x, dataclasses.Field) for x in vars(cls).values()):
            cls = dataclasses.dataclass(frozen=frozen, slots=slots, init=init, repr=repr, eq=eq)(cls)
        else:
            own = set(vars(cls)) - ({"__hash__"} if vars(cls).get("__hash__") is None else set())
            cls = dataclasses.dataclass(slots=True, init=False, repr=False, eq=False)(cls)
            methods = _methods(cls, init, repr, eq)
            for name in methods.keys() - own:
                setattr(cls, name, methods[name])
        if frozen and slots:
            cls.__setattr__, cls.__delattr__ = _set, _delete  # type: ignore[method-assign, assignment]
        return cls

    return made


def _methods(cls: type, init: bool, repr: bool, eq: bool) -> dict[str, Any]:
    """What the standard decorator writes for a class, as far as it is wanted."""
    fields = dataclasses.fields(cls)
    names = tuple([field.name for field in fields])
    found: dict[str, Any] = {"__getstate__": _state, "__setstate__": _restore}
    if init:
        setters = {f"set_{_STAND_IN(i)}": getattr(cls, name).__set__ for i, name in enumerate(names)}
        defaults = tuple([x.default for x in fields if x.default is not dataclasses.MISSING])
        if any(x.default is dataclasses.MISSING for x in fields[len(fields) - len(defaults) :]):
            raise TypeError(f"{cls.__name__}: a field without a default follows one with a default")
        has_more = hasattr(cls, "__post_init__")
        found["__init__"] = _function(_initialising(len(names), has_more), cls, names, setters, defaults)
        kept = {"kept": _KEPT}
        found["__replace__"] = _function(_replacing(len(names)), cls, names, kept, (_KEPT,) * len(names))
        found["__init__"].__annotations__ = {field.name: field.type for field in fields} | {"return": None}
    if repr:
        found["__repr__"] = _shown
    if eq:
        home = vars(sys.modules[cls.__module__])  # by which others know a method of the class from a stranger's
        for code in _comparing(len(names)):
            found[code.co_name] = _function(code, cls, names, home)
    return found


def _function(code: CodeType, cls: type, names: tuple[str, ...], known: dict[str, Any], defaults: Any = None) -> Any:
    """Shared code with the names of a class's fields, as a method of it."""
    named = {_STAND_IN(i): name for i, name in enumerate(names)}
    renamed = code.replace(
        co_varnames=tuple([named.get(x, x) for x in code.co_varnames]),
        co_names=tuple([named.get(x, x) for x in code.co_names]),
        co_qualname=f"{cls.__qualname__}.{code.co_name}",
    )
    return FunctionType(renamed, known, code.co_name, defaults)


@functools.cache
def _initialising(count: int, has_more: bool) -> CodeType:
    """`__init__` of so many fields."""
    names = [_STAND_IN(i) for i in range(count)]
    lines = [f"def __init__({', '.join(['self', *names])}):", *[f" set_{name}(self, {name})" for name in names]]
    return _compiled([*lines, " self.__post_init__()" if has_more else " pass"])


@functools.cache
def _replacing(count: int) -> CodeType:
    """`__replace__` of so many fields."""
    names = [_STAND_IN(i) for i in range(count)]
    values = ", ".join([f"self.{name} if {name} is kept else {name}" for name in names])
    return _compiled([f"def __replace__({', '.join(['self', *names])}): return self.__class__({values})"])


@functools.cache
def _comparing(count: int) -> tuple[CodeType, CodeType]:
    """`__eq__` and `__hash__` of so many fields."""
    left, right = ("".join([f"{x}.{_STAND_IN(i)}, " for i in range(count)]) for x in ("self", "other"))
    same = "other.__class__ is self.__class__"
    equal = f"def __eq__(self, other): return ({left}) == ({right}) if {same} else NotImplemented"
    return _compiled([equal]), _compiled([f"def __hash__(self): return hash(({left}))"])


def _compiled(lines: list[str]) -> CodeType:
    """The code of the function that these lines define."""
    module = compile("\n".join(lines), __file__, "exec")
    return next(x for x in module.co_consts if isinstance(x, CodeType))


def _shown(self: Any) -> str:
    fields = [f"{x.name}={getattr(self, x.name)!r}" for x in dataclasses.fields(self) if x.repr]
    return f"{type(self).__qualname__}({', '.join(fields)})"


def _state(self: Any) -> list[Any]:
    return [getattr(self, field.name) for field in dataclasses.fields(self)]


def _restore(self: Any, state: list[Any]) -> None:
    for field, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, field.name, value)


def _replace(value: Any, /, **changes: Any) -> Any:
    """As `dataclasses.replace`."""
    try:
        own = value.__replace__
    except AttributeError:
        return dataclasses.replace(value, **changes)
    return own(**changes)


def _set(self: object, name: str, value: object) -> NoReturn:
    raise _refusal(type(self), name, "set")


def _delete(self: object, name: str) -> NoReturn:
    raise _refusal(type(self), name, "deleted")


def _refusal(cls: type, name: str, done: str) -> FrozenError:
    return FrozenError(cls.__name__, f"attribute {name!r}", "", done, "left as it is", f"make another {cls.__name__}")


if TYPE_CHECKING:
    from dataclasses import dataclass, replace  # what a type checker knows; what they make is no other
else:
    dataclass, replace = _dataclass, _replace
