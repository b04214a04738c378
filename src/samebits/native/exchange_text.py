"""The text of exchange's fast functions: what the hot methods of `Tensor` and `Layout` do for the common case.

Common is: host memory, elements of whole bytes, lanes 1, no flag but read-only, at least one element. Everything else,
and every error, is the business of the functions written in Python: an emitted function that meets a case which it
does not know gives back what it took and calls them. So the rules have one home, and these pages hold only their
shortest path: `consume_text` tensors that come in, `produce_text` those that go out,
`api_text` what other libraries call directly, `layout_text` and
`views_text` layouts and views.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from samebits.native.api_text import exchange_api
from samebits.native.capi import Module
from samebits.native.consume_text import consumption
from samebits.native.dlpack_text import InterpreterFacts, endings
from samebits.native.layout_text import layouts
from samebits.native.produce_text import production
from samebits.native.views_text import views

__all__ = ["parts"]


def parts(m: Module, facts: InterpreterFacts, docs: Mapping[str, str]) -> Iterator[bool]:
    """Write all functions and method tables into a module, step by step.

    Args:    docs: docstrings by the methods' qualified names, with the signature that `inspect` reads in front.
    """
    endings(m, facts)
    consumption(m, facts, docs)
    yield True
    production(m, facts, docs)
    exchange_api(m, facts)
    yield True
    layouts(m, facts, docs)
    yield True
    views(m, facts, docs)
    yield True
