"""What every error of ours looks like: six facts, one sentence."""

from samebits.errors import SamebitsError, UnsupportedModelError


def check_sentence(error: SamebitsError) -> None:
    """Fail unless an error says all six facts in one sentence; that of a model has a line a node below it."""
    sentence, *rest = str(error).splitlines() or [""]
    facts = (error.call, error.operand, str(error.actual), str(error.expected), error.remedy)
    assert all(fact and fact == fact.strip() for fact in facts), error.args
    subject = f"{error.operand} {error.fact}" if error.fact else error.operand
    parts = map(_in_short, (subject, str(error.actual), str(error.expected)))
    assert sentence == "{}: {} is {}, must be {}; {}".format(error.call, *parts, error.remedy)
    if isinstance(error, UnsupportedModelError):
        assert rest == [f"  {_in_short(problem)}" for problem in error.problems]
    else:
        assert not rest


def _in_short(text: str) -> str:
    cut = text if len(text) <= 1000 else f"{text[:500]}... ({len(text)} characters) ...{text[-500:]}"
    return "".join(c if c.isprintable() else repr(c).strip("'") for c in cut)
