"""What every error of ours looks like: six facts, one sentence."""

from samebits.errors import SamebitsError, UnsupportedModelError


def check_sentence(error: SamebitsError) -> None:
    """Fail unless an error says all six facts in one sentence; that of a model has a line a node below it."""
    sentence, *rest = str(error).splitlines() or [""]
    facts = (error.call, error.operand, str(error.actual), str(error.expected), error.remedy)
    assert all(fact and fact == fact.strip() for fact in facts), error.args
    subject = f"{error.operand} {error.fact}" if error.fact else error.operand
    assert sentence == f"{error.call}: {subject} is {error.actual}, must be {error.expected}; {error.remedy}"
    if isinstance(error, UnsupportedModelError):
        assert rest == [f"  {problem}" for problem in error.problems]
    else:
        assert not rest
