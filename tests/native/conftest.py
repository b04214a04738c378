"""What tests of emitted code start from."""

import pytest

from samebits.native import exchange


@pytest.fixture(scope="module")
def emitted_methods() -> None:
    """The emitted exchange methods in place of those written in Python."""
    assert exchange.compile_exchange()
    assert exchange.is_installed()
