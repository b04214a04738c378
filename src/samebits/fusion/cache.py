"""Fusions that were run before: one entry for definitions that say the same, least recently used out first.

Start at `LRUCache`; `LruFusionCache` is the decorator.
"""

from __future__ import annotations

import functools
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

from samebits.errors import OptionError, shown
from samebits.fusion.execution import FusionExecutorCache
from samebits.fusion.graph import Argument, Fusion, Scalar, TensorView, Val
from samebits.runtime.recent import LOCK

__all__ = ["SHARED", "LRUCache", "LruFusionCache", "key_of"]

_F = TypeVar("_F", bound=Callable[..., Any])


def key_of(fusion: Fusion) -> Hashable:
    """What a definition says: alike for two that define the same, whatever numbers their values have."""
    numbers: dict[Val, Hashable] = {}
    lines: list[Hashable] = []
    for x in fusion.inputs:
        numbers[x] = len(numbers)
        if isinstance(x, TensorView):
            shape = tuple(-1 if axis.length.value is None else axis.length.value for axis in x.axes)
            lines.append((x.dtype, shape, x.contiguity, x.stride_order, x.is_cpu))
        else:
            lines.append(x.dtype)
    for x in fusion.inputs:
        if isinstance(x, TensorView):
            for place, axis in enumerate(x.axes):
                numbers.setdefault(axis.length, (numbers[x], place))

    def said(x: Argument) -> Hashable:
        if isinstance(x, list | tuple):
            return tuple(map(said, x))
        if isinstance(x, Scalar) and x.value is not None:
            return x.dtype, repr(x.value)
        if isinstance(x, Scalar) and x not in numbers and x.definition is not None:
            write(x.definition)
        return numbers[x] if isinstance(x, Val) else repr(x)

    def write(expr: Any) -> None:
        line = (expr.op, said(expr.args), tuple((name, said(value)) for name, value in expr.options))
        lines.append(line)
        for made in expr.outputs:
            numbers.setdefault(made, len(numbers))

    for expr in fusion.sorted_exprs():
        write(expr)
    for output in fusion.outputs:
        lines.append((numbers[output.tensor], None if output.alias is None else numbers[output.alias]))
    return tuple(lines)


class LRUCache:
    """Fusions by what they say; safe to use from many threads at once."""

    def __init__(self, max_fusions: int = 16384) -> None:
        if isinstance(max_fusions, bool) or not isinstance(max_fusions, int) or max_fusions < 1:
            expected, remedy = "an integer of 1 or more", "leave it out for 16384"
            raise OptionError("LRUCache", "max_fusions", "", shown(max_fusions), expected, remedy)
        self._limit = max_fusions
        self._found: OrderedDict[Hashable, FusionExecutorCache] = OrderedDict()
        self._hits: dict[Hashable, int] = {}
        self._lookups = self._compiled = 0

    def cache_compile(self, fusion: Fusion) -> FusionExecutorCache:
        """The executor of a fusion, shared by all definitions that say the same."""
        key = key_of(fusion)
        gone = []  # what is let go when the lock is not held
        with LOCK:
            self._lookups += 1
            found = self._found.get(key)
            if found is None:
                self._compiled += 1
                found = self._found[key] = FusionExecutorCache(fusion)
                self._hits[key] = 0
                if len(self._found) > self._limit:
                    gone.append(self._found.popitem(last=False))
                    del self._hits[gone[0][0]]
            else:
                self._hits[key] += 1
                self._found.move_to_end(key)
        return found

    def num_fusions(self) -> int:
        """How many are kept."""
        return len(self._found)

    def stats(self) -> str:
        """How often each was found, the one used last first."""
        with LOCK:
            counted, lookups, compiled = list(map(self._hits.__getitem__, self._found)), self._lookups, self._compiled
        lines = [f"Max Fusions Allowed: {self._limit}"]
        if not counted:
            return "\n".join([*lines, "The fusion cache is empty.", ""])
        lines += [f"Total Fusions in Cache: {len(counted)}", f"Total Unique Fusions Compiled: {compiled}"]
        lines.append("Cache Hits by LRU ordering:")
        lines += [f"\t{place} -> {hits} hits" for place, hits in enumerate(reversed(counted))]
        hits = sum(counted)
        lines += [f"Cache Lookups: {lookups}", f"Cache Hits: {hits}", f"Hit Rate: {100 * hits / lookups:g}%"]
        return "\n".join([*lines, ""])


# What definitions are looked up in that are run without a cache of their own.
SHARED = LRUCache(1024)


class LruFusionCache:
    """A decorator of functions that define fusions: their definitions are looked up in a cache of `max_fusions`."""

    def __init__(self, max_fusions: int = 16384) -> None:
        self.cache = LRUCache(max_fusions)

    def __call__(self, create_fusion_definition: _F) -> _F:
        """The function, whose FusionDefinition has `fec`; it has `stats` and `num_fusions` of the cache."""

        @functools.wraps(create_fusion_definition)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            made = create_fusion_definition(*args, **kwargs)
            if getattr(made, "fec", None) is None:
                made.fec = self.cache.cache_compile(made.fusion)
            return made

        wrapper.stats, wrapper.num_fusions = self.cache.stats, self.cache.num_fusions  # type: ignore[attr-defined]
        return wrapper  # type: ignore[return-value]  # of the same signature
