"""docs/operators.md is what the tool writes."""

import operators


def test_the_page_is_what_the_tool_writes() -> None:
    assert operators.PAGE.read_text() == operators.page(), "run python tools/operators.py"
