"""Values that never change: `dataclass(frozen=True, slots=True)`, made in a fraction of the standard one's time.

A program that imports the package makes more than a hundred such classes before its first answer. The standard
decorator writes each class six functions as text, compiles them, and makes the class a second time for its slots. Here
classes with the same number of fields share compiled functions, in which only the names differ, initialising sets slots
directly, and the class is made with all that it has; what `dataclasses` says of its fields is found out when somebody
asks. A class with other bases or whose fields are more than names, types and defaults is made by the standard
decorator. Either way it is a dataclass in all that `dataclasses` says of it, and its refusal to set or delete any
attribute is a sentence of ours. `replace` is as quick. Start at `dataclass`.
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
# Where `dataclasses` keeps what it says of a class.
_FIELDS, _PARAMS = "__dataclass_fields__", "__dataclass_params__"


def _dataclass(
    *, frozen: bool = False, slots: bool = False, init: bool = True, repr: bool = True, eq: bool = True
) -> Any:
    """As `dataclasses.dataclass`."""

    def made(cls: type) -> type:
        if frozen and slots and _is_plain(cls):
            return _made(cls, init, repr, eq)
        cls = dataclasses.dataclass(frozen=frozen, slots=slots, init=init, repr=repr, eq=eq)(cls)
        if frozen and slots:
            cls.__setattr__, cls.__delattr__ = _set, _delete  # type: ignore[method-assign, assignment]
            cls.__replace__ = dataclasses.replace  # type: ignore[attr-defined]  # not that of a base with fewer fields
        return cls

    return made


def _is_plain(cls: type) -> bool:
    """Whether fields are names, types and defaults, and no base has any, or slots."""
    if any(getattr(base, "__slots__", ()) or hasattr(base, _FIELDS) for base in cls.__mro__[1:-1]):
        return False
    if any("InitVar" in kind or "KW_ONLY" in kind for kind in map(str, cls.__annotations__.values())):
        return False
    own = vars(cls)
    return not any(isinstance(own.get(name), dataclasses.Field | list | dict | set) for name in cls.__annotations__)


def _made(cls: type, init: bool, repr: bool, eq: bool) -> type:
    """The class with slots, what the standard decorator gives it, as far as it is wanted, and its own methods."""
    own = dict(vars(cls))
    types = {name: kind for name, kind in cls.__annotations__.items() if "ClassVar" not in str(kind).partition("[")[0]}
    names, setters = tuple(types), dict[str, Any]()
    given = [own.pop(name, dataclasses.MISSING) for name in names]
    known = {"__dict__", "__weakref__"} | ({"__hash__"} if own.get("__hash__") is None else set())
    for name in known & own.keys():
        del own[name]
    body = {name: x for name, x in zip(names, given, strict=True) if x is not dataclasses.MISSING}
    body |= {"__annotations__": types, "__module__": cls.__module__, "__doc__": cls.__doc__}
    found: dict[str, Any] = {"__match_args__": names, "__getstate__": _state, "__setstate__": _restore}
    if init:
        found |= _initialisers(cls, types, given, setters)
    if repr:
        found["__repr__"] = _shown
    if eq:
        home = vars(sys.modules[cls.__module__])  # by which others know a method of the class from a stranger's
        for code in _comparing(len(names)):
            found[code.co_name] = _function(code, cls, names, home)
    found |= own | {"__setattr__": _set, "__delattr__": _delete, "__slots__": names, "__qualname__": cls.__qualname__}
    found[_FIELDS] = _Said(_FIELDS, cls.__name__, body, {"init": False, "repr": False, "eq": False})
    options = {"init": init, "repr": repr, "eq": eq, "frozen": True, "slots": True}
    found[_PARAMS] = _Said(_PARAMS, cls.__name__, body, options)
    made = type(cls)(cls.__name__, cls.__bases__, found)
    setters.update({f"set_{_STAND_IN(i)}": vars(made)[name].__set__ for i, name in enumerate(names)})
    return made


def _initialisers(cls: type, types: dict[str, Any], given: list[Any], setters: dict[str, Any]) -> dict[str, Any]:
    """`__init__`, which calls `setters`, and `__replace__`.

    Args:    given: the default of each field, or `MISSING`.
    """
    names, defaults = tuple(types), tuple([x for x in given if x is not dataclasses.MISSING])
    if any(x is dataclasses.MISSING for x in given[len(given) - len(defaults) :]):
        raise TypeError(f"{cls.__name__}: a field without a default follows one with a default")
    starts = _function(_initialising(len(names), hasattr(cls, "__post_init__")), cls, names, setters, defaults)
    starts.__annotations__ = types | {"return": None}
    return {"__init__": starts, "__replace__": _Replacer(names)}


class _Replacer:
    """`__replace__` of a class with these fields, in whose stead it is put when somebody first asks."""

    __slots__ = ("_home", "_names")

    def __init__(self, names: tuple[str, ...]) -> None:
        self._names = names

    def __set_name__(self, owner: type, name: str) -> None:
        self._home = owner

    def __get__(self, value: object, owner: type) -> Any:
        names = self._names
        made = _function(_replacing(len(names)), self._home, names, {"kept": _KEPT}, (_KEPT,) * len(names))
        self._home.__replace__ = made  # type: ignore[attr-defined]
        return made if value is None else made.__get__(value)


class _Said:
    """What `dataclasses` keeps of a class under a name, found out when somebody asks, of one made with `options`."""

    __slots__ = ("_body", "_found", "_name", "_options", "_title")

    def __init__(self, name: str, title: str, body: dict[str, Any], options: dict[str, bool]) -> None:
        self._name, self._title, self._body, self._options = name, title, body, options
        self._found: Any = None

    def __get__(self, value: object, owner: type) -> Any:
        if self._found is None:
            like: type = type(self._title, (), self._body)
            self._found = getattr(dataclasses.dataclass(**self._options)(like), self._name)
        return self._found


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
    return _compiled([*lines, " self.__post_init__()" if has_more else " pass"])[0]


@functools.cache
def _replacing(count: int) -> CodeType:
    """`__replace__` of so many fields."""
    names = [_STAND_IN(i) for i in range(count)]
    values = ", ".join([f"self.{name} if {name} is kept else {name}" for name in names])
    return _compiled([f"def __replace__({', '.join(['self', *names])}): return self.__class__({values})"])[0]


@functools.cache
def _comparing(count: int) -> list[CodeType]:
    """`__eq__` and `__hash__` of so many fields."""
    left, right = ("".join([f"{x}.{_STAND_IN(i)}, " for i in range(count)]) for x in ("self", "other"))
    same = "other.__class__ is self.__class__"
    equal = f"def __eq__(self, other): return ({left}) == ({right}) if {same} else NotImplemented"
    return _compiled([equal, f"def __hash__(self): return hash(({left}))"])


def _compiled(lines: list[str]) -> list[CodeType]:
    """The code of the functions that these lines define."""
    module = compile("\n".join(lines), f"<{__name__}>", "exec")  # no lines of this file, which a traceback would show
    return [x for x in module.co_consts if isinstance(x, CodeType)]


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
