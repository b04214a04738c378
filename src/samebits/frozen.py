"""Values that never change: `dataclass(frozen=True, slots=True)`, made in a fraction of the standard one's time.

A program that imports the package makes more than a hundred such classes before its first answer. The standard
decorator writes each class six functions as text, compiles them, and makes the class a second time for its slots. Here
a method is made when somebody first needs it, of functions that are compiled once for all classes with as many
fields and in which only the names differ; initialising sets slots directly, and the class is made with all that it has.
What `dataclasses` says of its fields is found out when somebody asks. A class with other bases, or whose fields are
more than names, types, defaults and what takes no part in initialising, comparing or printing, is made by the standard
decorator. Either way it is a dataclass in all that `dataclasses` says of it, and its refusal to set or delete any
attribute is a sentence of ours. `replace` is as quick. Start at `dataclass`.
"""

from __future__ import annotations

import dataclasses
import functools
import sys
from collections.abc import Callable
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any, NoReturn

from samebits.errors import FrozenError

__all__ = ["dataclass", "field_names", "own_method", "replace"]

# The names that stand for those of fields in the functions that classes share.
_STAND_IN = "field{}".format
# In the stead of a field that is not replaced.
_KEPT = object()
# Where `dataclasses` keeps what it says of a class.
_FIELDS, _PARAMS = "__dataclass_fields__", "__dataclass_params__"
# Where ours is kept.
_OURS = "__frozen_fields__"
# Kinds of defaults that the standard decorator refuses.
_CHANGEABLE = (list, dict, set)


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
    """Whether fields are what `_Fields` holds, and no base has any, or slots."""
    for base in cls.__mro__[1:-1]:
        if getattr(base, "__slots__", ()) or hasattr(base, _FIELDS):
            return False
    own = vars(cls)
    for name, kind in cls.__annotations__.items():
        if "InitVar" in (text := str(kind)) or "KW_ONLY" in text:
            return False
        default = own.get(name)
        if isinstance(default, _CHANGEABLE) or (isinstance(default, dataclasses.Field) and not _is_simple(default)):
            return False
    return True


def _is_simple(field: dataclasses.Field[Any]) -> bool:
    """Whether a field only says which methods have it, or its default."""
    missing = dataclasses.MISSING
    is_given = field.default_factory is not missing or field.kw_only is not missing or field.hash is not None
    return not (is_given or field.metadata) and (field.init or field.default is missing)


class _Fields:
    """What the methods of a class are made of.

    Attributes:
        names: Its fields.
        types: Of each.
        given: The names that initialising takes, in order.
        defaults: Of the last of them.
        compared, shown: The names that comparing, and printing, has.
        home: The module's names, by which others know a method of the class from a stranger's. As the interpreter ends
            methods are still made, but modules are not found any more.
        body: The class as the standard decorator would be given it, but for its methods.
    """

    __slots__ = ("body", "compared", "defaults", "given", "home", "names", "shown", "types")

    def __init__(self, cls: type, own: dict[str, Any]) -> None:
        """Args:    own: the attributes of the class, of which defaults are taken."""
        self.types = {
            name: kind for name, kind in cls.__annotations__.items() if "ClassVar" not in str(kind).partition("[")[0]
        }
        self.names, self.home = tuple(self.types), vars(sys.modules[cls.__module__])
        values = {name: own.pop(name) for name in self.names if name in own}
        self.body = {**values, "__annotations__": self.types, "__module__": cls.__module__, "__doc__": cls.__doc__}
        self.given = self.compared = self.shown = self.names
        fields = {name: x for name, x in values.items() if isinstance(x, dataclasses.Field)}
        if fields:
            self.given = tuple([x for x in self.names if x not in fields or fields[x].init])
            self.compared = tuple([x for x in self.names if x not in fields or fields[x].compare])
            self.shown = tuple([x for x in self.names if x not in fields or fields[x].repr])
            values |= {name: x.default for name, x in fields.items()}
        found = [values.get(name, dataclasses.MISSING) for name in self.given]
        self.defaults = tuple([x for x in found if x is not dataclasses.MISSING])
        if any(x is dataclasses.MISSING for x in found[len(found) - len(self.defaults) :]):
            raise TypeError(f"{cls.__name__}: a field without a default follows one with a default")


def _made(cls: type, init: bool, repr: bool, eq: bool) -> type:
    """The class with slots, what the standard decorator gives it, as far as it is wanted, and its own methods."""
    own = dict(vars(cls))
    fields = _Fields(cls, own)
    own.pop("__dict__", None)
    own.pop("__weakref__", None)
    if own.get("__hash__") is None:
        own.pop("__hash__", None)
    found: dict[str, Any] = {
        _OURS: fields, "__match_args__": fields.given, "__getstate__": _state, "__setstate__": _restore
    }  # fmt: skip
    if init:
        found["__init__"], found["__replace__"] = _INIT, _REPLACE
    if repr:
        found["__repr__"] = _shown
    if eq:
        found["__eq__"], found["__hash__"] = _equal, _hashed
    found |= own
    found["__setattr__"], found["__delattr__"] = _set, _delete
    found["__slots__"], found["__qualname__"] = fields.names, cls.__qualname__
    found[_FIELDS] = _Said(_FIELDS, cls.__name__, fields.body, {"init": False, "repr": False, "eq": False})
    options = {"init": init, "repr": repr, "eq": eq, "frozen": True, "slots": True}
    found[_PARAMS] = _Said(_PARAMS, cls.__name__, fields.body, options)
    return type(cls)(cls.__name__, cls.__bases__, found)


class _Late:
    """A method of every class in whose stead it is: each gets its own when somebody first looks for it."""

    __slots__ = ("_make", "_name")

    def __init__(self, name: str, make: Callable[[Any, _Fields], Any]) -> None:
        self._name, self._make = name, make

    def __get__(self, value: object, owner: type) -> Any:
        made = _put(owner, self._name, self, self._make)
        return made if value is None else made.__get__(value)


def _put(owner: type, name: str, stand_in: object, make: Callable[[Any, _Fields], Any]) -> Any:
    """A class's own method, put in the stead of `stand_in`, as another thread may have done meanwhile."""
    having: list[Any] = [cls for cls in owner.__mro__ if _OURS in vars(cls) and name in vars(cls)]
    home = next((cls for cls in having if vars(cls)[name] is stand_in), having[0])
    made = make(home, vars(home)[_OURS])
    setattr(home, name, made)
    return made


def _initialiser(cls: Any, fields: _Fields) -> Any:
    names, own = fields.given, vars(cls)
    setters = {f"set_{_STAND_IN(i)}": own[name].__set__ for i, name in enumerate(names)}
    made = _function(_initialising(len(names), hasattr(cls, "__post_init__")), cls, names, setters, fields.defaults)
    made.__annotations__ = {name: fields.types[name] for name in names} | {"return": None}
    return made


def _replacer(cls: Any, fields: _Fields) -> Any:
    names = fields.given
    return _function(_replacing(len(names)), cls, names, {"kept": _KEPT}, (_KEPT,) * len(names))


def _compared(cls: Any, fields: _Fields, number: int) -> Any:
    return _function(_comparing(len(fields.compared))[number], cls, fields.compared, fields.home)


# These are made when they are first called, not when they are looked for: whatever is raised while an operator looks
# for `__eq__` or `__hash__`, such as an interrupt, the interpreter takes for their absence, and values are not equal.
def _equal(self: Any, other: object) -> Any:
    return _put(type(self), "__eq__", _equal, _make_equal)(self, other)


def _hashed(self: Any) -> Any:
    return _put(type(self), "__hash__", _hashed, _make_hashed)(self)


_make_equal, _make_hashed = functools.partial(_compared, number=0), functools.partial(_compared, number=1)
_INIT, _REPLACE = _Late("__init__", _initialiser), _Late("__replace__", _replacer)


def own_method(cls: type, name: str) -> Any:
    """What a class itself has under a name: a method of a frozen one is made now if nobody needed it yet."""
    getattr(cls, name)
    found = vars(cls)[name]
    if found is _equal or found is _hashed:
        return _put(cls, name, found, _make_equal if found is _equal else _make_hashed)
    return found


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


def field_names(cls: type) -> tuple[str, ...]:
    """The names of a dataclass's fields; of any other class none."""
    fields = vars(cls).get(_OURS)
    return fields.names if fields is not None else tuple(getattr(cls, _FIELDS, ()))


def _shown(self: Any) -> str:
    fields = vars(type(self)).get(_OURS)
    if fields is not None:
        names = fields.shown
    else:  # a class that inherits from one of ours
        names = [x.name for x in dataclasses.fields(self) if x.repr]
    return f"{type(self).__qualname__}({', '.join([f'{name}={getattr(self, name)!r}' for name in names])})"


def _state(self: Any) -> list[Any]:
    return [getattr(self, name) for name in field_names(type(self))]


def _restore(self: Any, state: list[Any]) -> None:
    for name, value in zip(field_names(type(self)), state, strict=True):
        object.__setattr__(self, name, value)


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
