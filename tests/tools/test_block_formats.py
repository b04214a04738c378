"""docs/formats.md is what the tool writes."""

from __future__ import annotations

import block_formats


def test_the_page_is_what_the_tool_writes() -> None:
    assert block_formats.PAGE.read_text() == block_formats.page(), "run python tools/block_formats.py --write"
