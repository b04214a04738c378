"""Calls like one before of the functions that users call, taken by emitted code as a whole: `whole`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from samebits.ops import memo
from samebits.torch.accumulate import current as accumulating
from samebits.torch.operator import PLAIN, WATCHERS, count_threads, is_compiling, is_recording, levels, profiler
from samebits.torch.spec import current as order

__all__ = ["whole"]

P = ParamSpec("P")
R = TypeVar("R")


def whole(function: Callable[P, R]) -> Callable[P, R]:
    """`function`, whose result is that of one operator on arrays among its arguments, or else made of several.

    Where torch's dispatcher has nothing to say about a call and nobody asks for a gradient, checks, operator and kernel
    of a call like one before are one call of emitted code. All else that decides the result goes into its key.
    """

    @functools.wraps(function)
    def called(*arguments: P.args, **options: P.kwargs) -> R:
        if (
            is_compiling()
            or levels._current_level >= 0
            or profiler._is_profiler_enabled
            or accumulating.is_active
            or memo.known is None
        ):
            return function(*arguments, **options)
        if is_recording():
            for x in (*arguments, *options.values()) if options else arguments:
                if type(x) in PLAIN and x.requires_grad:  # type: ignore[attr-defined]
                    return function(*arguments, **options)
        told = (*arguments, *order.sums, count_threads())
        found = memo.known(function, told, options, True, WATCHERS)
        if type(found) is not bytes:
            return found  # type: ignore[no-any-return]
        if not found:
            return function(*arguments, **options)
        return memo.as_one(found, function, arguments, options, told)  # type: ignore[no-any-return]

    # torch.compile counts compilations by code, and stops after eight: each function has its own.
    code = called.__code__  # type: ignore[attr-defined]
    called.__code__ = code.replace(co_name=function.__name__, co_qualname=function.__qualname__)  # type: ignore[attr-defined]
    return called
