"""Which of the package's sources decide what a text emits, and a digest of them for its key.

A text is a function of its module; what it emits depends on that module, on what this imports from the package, and so
on to the end, and on the modules of the values in its description. Import statements are found by reading, wherever
they stand, and not by what happens to be loaded: the digest is the same in every process. A module that is imported for
its submodule alone is not followed, nor is the front door, which only names what others have.

To read a hundred files takes a fortieth of a start, so digests are remembered beside the compiled objects, with what
the system says of every file and folder that they rest on: while that is the same, none is read. Start at `digest`.
"""

from __future__ import annotations

import functools
import os
import re
import sys
import time
from collections.abc import Iterable, Mapping

from samebits import __version__, cache
from samebits.frozen import field_names

_PACKAGE = __name__.partition(".")[0]
_ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
# The package's name behind `from` or `import`, then the module and the names; it begins with what is searched fastest.
# A process whose digests are remembered does not compile it.
_IMPORT = rb"%b(?<=from %b|port %b)(?:\.([\w.]+))?(?: import (\([^)]*\)|.*))?" % (3 * (_PACKAGE.encode(),))
# Types whose values refer to no code.
_PLAIN = frozenset([int, float, str, bool, bytes, type(None)])
_COMMENT = rb"#.*"
# Kinds of lines of a record, and how large one may be.
_FILE, _SET, _LIMIT_BYTES = "file", "set", 1 << 18
# A file that was written before is given another time if it is written again: clocks of file systems tick at least so.
_SETTLED_NS = 2_000_000_000
_noted: dict[str, str] = {}
# Before any of it was noted: what is settled by then has the times that it was read with, whenever that is remembered.
_began_ns = time.time_ns()


def digest(modules: Iterable[str]) -> str:
    """A digest of the sources of these modules and of all that they import; other packages' count by themselves."""
    return _digest(frozenset(modules))


@functools.cache
def _digest(modules: frozenset[str]) -> str:
    is_ours = all(name.partition(".")[0] == _PACKAGE for name in modules)
    key = cache.digest(" ".join(sorted(modules)).encode())
    facts, digests = _remembered(_ROOT)
    known = digests.get(key) if is_ours else None
    if known is not None:
        return known
    found = cache.digest(*[f"{name} {_read(name)[0]}\n".encode() for name in sorted(closure(modules))])
    if is_ours:
        _note(os.path.abspath(__file__))  # what is followed is said here
        digests[key] = found
        _remember(_ROOT, facts, digests.copy())  # to which other threads add
    return found


@functools.cache
def _remembered(root: str) -> tuple[dict[str, str], dict[str, str]]:
    """What the system said of files and folders of the package at `root`, and the digests that rest on them, as another
    process left them; nothing where any of it is no longer true."""
    kinds: dict[str, dict[str, str]] = {_FILE: {}, _SET: {}}
    for line in os.fsdecode(cache.read(_record(root), _LIMIT_BYTES) or b"").split("\n"):
        kind, _, rest = line.partition(" ")
        said, _, name = rest.partition(" ")
        kinds.get(kind, {})[name] = said
    if any(_facts(path) != said for path, said in kinds[_FILE].items()):
        return {}, {}
    return kinds[_FILE], kinds[_SET]


def _remember(root: str, known: dict[str, str], digests: Mapping[str, str]) -> None:
    """Leave digests to the processes to come, unless a file may change without the system saying so: once more within a
    tick of its clock, or with another image in this one's place, where all that images hold has one time."""
    facts = known | _noted
    times = {int(word) for said in facts.values() for word in said.split(",")[:2]}
    is_changed = any(facts[path] != said for path, said in known.items())
    is_settled = len(times) > 1 and _began_ns - max(times) >= _SETTLED_NS  # an image of one time for all says nothing
    if is_changed or not is_settled or any("\n" in path for path in facts):
        return
    lines = [f"{kind} {said} {name}" for kind, x in ((_FILE, facts), (_SET, digests)) for name, said in x.items()]
    cache.write(_record(root), os.fsencode("\n".join(lines)))


def _record(root: str) -> str:
    """Where digests of the package at `root` are remembered."""
    return "sources-" + cache.digest(os.fsencode(f"{__version__} {root}"))[:32]


def _note(path: str) -> None:
    """Note what the system says of a file or folder, before it is read."""
    _noted.setdefault(path, _facts(path))  # what another thread noted first may rest on older contents


def _facts(path: str) -> str:
    """What the system says of a file or folder, and says otherwise once that has changed."""
    try:
        found = os.stat(path)
    except OSError:
        return "0,0"
    return f"{found.st_mtime_ns},{found.st_ctime_ns},{found.st_size},{found.st_ino}"


def closure(modules: Iterable[str]) -> set[str]:
    """These modules and those of the package that they import, to the end."""
    found: set[str] = set()
    left = set(modules)
    while left:
        name = left.pop()
        found.add(name)
        left |= _read(name)[1] - found
    return found


def modules_of(value: object) -> set[str]:
    """The modules of the package that say what a description's values do."""
    found: set[str] = set()
    seen: set[int] = set()
    left: list[object] = [value]
    while left:
        x = left.pop()
        kind = type(x)
        if kind in _PLAIN or id(x) in seen:
            continue
        seen.add(id(x))  # all of them live as long as the description
        if isinstance(x, (tuple, list, frozenset, set)):
            left += x
        elif isinstance(x, dict):
            left += [*x, *x.values()]
        found.add(getattr(x if isinstance(x, type) or callable(x) else kind, "__module__", None) or "")
        left += [getattr(x, name) for name in field_names(kind)]
    return {name for name in found if name.partition(".")[0] == _PACKAGE}


@functools.cache
def room(name: str) -> frozenset[str]:
    """Every module of a folder of the package."""
    files = _entries(os.path.join(_ROOT, name))
    return frozenset(f"{_PACKAGE}.{name}.{file[:-3]}" for file in files if file.endswith(".py"))


@functools.cache
def _read(module: str) -> tuple[str, frozenset[str]]:
    """A digest of a module's source, empty where there is none, and the modules of the package that it imports."""
    path = _path(module)
    if path is None:
        return "", frozenset()
    _note(path)
    with open(path, "rb") as file:
        source = file.read()
    found: set[str] = set()
    for home, names in re.findall(_IMPORT, source):
        parts = re.sub(_COMMENT, b"", names).strip(b"()").split(b",")
        for part in [x for x in parts if x.strip()] or [b""]:  # the last name of several may have a comma too
            name = b".".join([x for x in (home, *part.split()[:1]) if x]).decode()
            found.add(name if _file(name) else home.decode())
    return cache.digest(source), frozenset(f"{_PACKAGE}.{name}" for name in found if _file(name))


@functools.cache
def _file(name: str) -> str | None:
    """The file of a module by its name below the package; None where there is no such module."""
    above, _, last = name.rpartition(".")
    folder = os.path.join(_ROOT, *above.split("."))
    if f"{last}.py" in _entries(folder):
        return os.path.join(folder, f"{last}.py")
    own = os.path.join(folder, last)
    return os.path.join(own, "__init__.py") if last in _entries(folder) and "__init__.py" in _entries(own) else None


@functools.cache
def _entries(folder: str) -> frozenset[str]:
    """What lies in a folder; nothing where it is none. To ask for each file takes longer than all else here."""
    _note(folder)
    try:
        return frozenset(os.listdir(folder))
    except OSError:
        return frozenset()


def _path(module: str) -> str | None:
    """Where a module's source is: that of a text need not be the package's."""
    package, _, name = module.partition(".")
    if package == _PACKAGE:
        return _file(name)
    path = getattr(sys.modules.get(module), "__file__", None)
    return path if path and os.path.isfile(path) else None
