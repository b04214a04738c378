"""A pytest plugin (`-p emitted`): the tests of a run meet the emitted methods in place of those written in Python."""

from samebits.native import exchange

if not exchange.compile_exchange():
    raise RuntimeError("the emitted methods cannot be installed here")
