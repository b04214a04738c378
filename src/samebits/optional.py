"""Packages that only some calls need: whether one could be imported, and the one sentence where it cannot.

`ROWS` says what to install for each. Start at `missing`, which every import of such a package answers with.
"""

from __future__ import annotations

import importlib
import itertools
import sys
from collections.abc import Iterable
from importlib.machinery import ModuleSpec
from types import ModuleType

from samebits.errors import MissingPackageError

__all__ = ["ROWS", "is_installed", "missing", "requirement"]

# What is imported -> what pip is asked for: an extra of ours, or the package that has no extra.
ROWS = {
    "click": "samebits[cli]",
    "cuda.bindings": "samebits[cuda]",
    "jax": "samebits[jax]",
    "matplotlib": "samebits[bench]",
    "numkong": "numkong",
    "onnx": "onnx",
    "onnxruntime": "onnxruntime",
    "rich": "samebits[cli]",
    "torch": "samebits[torch]",
}


def requirement(module: str) -> str:
    """What to give to pip for a module of `ROWS`, quoted for a shell where that is needed."""
    asked = ROWS[module]
    return f"'{asked}'" if "[" in asked else asked


def is_installed(module: str) -> bool:
    """Whether a module could be found by its whole name; neither it nor a package that it is in is run.

    Several distributions share a namespace such as `cuda`, so that finding the first part of a name says nothing of
    the rest; and asking `importlib.util.find_spec` for the whole name would import every package on the way.
    """
    path: Iterable[str] | None = None
    names = list(itertools.accumulate(module.split("."), lambda package, part: f"{package}.{part}"))
    for name in names:
        if name in sys.modules:
            loaded: ModuleType | None = sys.modules[name]
            if loaded is None:  # how Python notes that a name is not to be imported
                return False
            path = getattr(loaded, "__path__", None)
        else:
            spec = _spec(name, path)
            if spec is None:
                return False
            path = spec.submodule_search_locations
            if path is not None and spec.loader is None:
                # A namespace: importing it runs nothing, and Python looks within one only once it is imported.
                path = importlib.import_module(name).__path__
        if path is None and name != module:
            return False
    return True


def _spec(name: str, path: Iterable[str] | None) -> ModuleSpec | None:
    """What the first finder that knows the module says of it."""
    places = None if path is None else list(path)
    # Python passes over a finder without this method too.
    specs = (finder.find_spec(name, places) for finder in sys.meta_path if hasattr(finder, "find_spec"))
    return next((spec for spec in specs if spec is not None), None)


def missing(call: str, module: str, error: ImportError | None = None) -> MissingPackageError:
    """The error for a call that needs a module of `ROWS`; `error` is what its import said."""
    root = module.partition(".")[0]
    absent = error is None or (isinstance(error, ModuleNotFoundError) and (error.name or "").partition(".")[0] == root)
    actual = "not installed" if absent else f"not importable ({error})"
    remedy = f"pip install {requirement(module)}"
    return MissingPackageError(call, f"package {module}", "", actual, "installed", remedy)
