"""Small mistakes: where a text can have one, how they are drawn, and how a person describes one."""

import pathlib

import mistakes
import pytest
from mistakes import Mistake, Refused

ROOT = pathlib.Path(__file__).parents[2]
PACKAGE = {
    path.relative_to(ROOT).as_posix(): path.read_bytes() for path in (ROOT / "src" / "samebits").rglob("*.py")
}  # fmt: skip


def made(line):
    """What each mistake makes of a line."""
    text = line.encode()
    found = [Mistake("", x.start, x.end, new).made(text).decode() for x in mistakes.places(text) for new in x.choices]
    assert all(mistakes.changed(text, new.encode()) for new in found)
    return sorted(found)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("a < b", ["a <= b", "a >= b"]),
        ("(a) is not (b)", ["(a) is (b)"]),
        ("a == b != c", ["a != b != c", "a == b == c"]),
        ("a * (b)", ["a + (b)", "a // (b)"]),
        ("a // b", ["a % b", "a * b"]),
        ("a << b", ["a >> b"]),
        ("a += b", ["a -= b"]),
        ("a and b", ["True and b", "a and True", "a or b"]),
        ("not (a or b)", ["(a or b)", "not (False or b)", "not (a and b)", "not (a or False)"]),
        ("-a", ["a"]),
        ("a = 7", ["a = 6", "a = 8"]),
        ("a = 0", ["a = 1"]),
        ("a = 0xff", ["a = 0x100", "a = 0xfe"]),
        ("a = True", ["a = False"]),
        ("a[b:]", ["a[b + 1:]", "a[b - 1:]"]),
        ("a = f(b, c)", ["a = f(c, b)"]),
        ("a = f(b, *c)", []),
        ("a = min(b, c)", ["a = max(b, c)"]),
        ("a = b.add(c, d)", ["a = b.sub(c, d)"]),
        ("a = c.add(d, e)", []),
        ("a = range(b)", ["a = range(b + 1)", "a = range(b - 1)"]),
        ("a = b if c else d", ["a = b if False else d", "a = b if True else d"]),
        ("[a for a in b if a]", ["[a for a in b if True]"]),
        ("f()", ["pass"]),
        ("if a: b", ["if False: b", "if True: b"]),
        ("if a: raise B(1 + 2, c < d)", ["if False: raise B(1 + 2, c < d)", "if True: raise B(1 + 2, c < d)"]),
    ],
)
def test_a_place_has_these_mistakes(line, expected):
    assert made(line) == sorted(expected)


@pytest.mark.parametrize(
    "line",
    [
        '"""Say 1 < 2."""',
        'a = f"{b + 1}"',
        "a: Literal[1]",
        "def f(a: Array[2]) -> Array[3]: ...",
        "@cache(maxsize=4096)\ndef f(): ...",
        "assert a < b",
        'remedy = "x" if a else "y"',
        "a = isinstance(b, C | D)",
        'a = message(1, "b", 2)',
        "a = zip(b, strict=True)",
        "if TYPE_CHECKING:\n    a = 1",
        "a: B | None = None",
        "A = B | None",
        'a = "b" + c',
    ],
)
def test_words_and_types_have_none(line):
    assert made(line) == []


def test_a_mistake_changes_one_line_and_the_text_is_still_python():
    some = {path: text for path, text in PACKAGE.items() if "/kernels/" in path}
    drawn = mistakes.draw(some, "a seed", 50)
    assert len({(x.path, x.line(PACKAGE[x.path])) for x in drawn}) == 50
    for mistake in drawn:
        text = PACKAGE[mistake.path]
        new = mistake.made(text)
        compile(new, mistake.path, "exec")
        pairs = zip(text.splitlines(), new.splitlines(), strict=True)
        assert sum(old != line for old, line in pairs) == 1


def test_a_seed_says_what_is_drawn():
    few = {path: PACKAGE[path] for path in sorted(PACKAGE)[:9]}
    assert mistakes.draw(few, "1", 20) == mistakes.draw(dict(reversed(few.items())), "1", 20)
    assert mistakes.draw(few, "1", 20) != mistakes.draw(few, "2", 20)
    assert mistakes.draw(few, "1", 20)[:5] == mistakes.draw(few, "1", 5)


def test_a_mistake_is_shown_where_it_is():
    text = "é = 1\nif a < b:  # ×\n    c\n".encode()
    (mistake,) = [Mistake("f.py", x.start, x.end, "<=") for x in mistakes.places(text) if "<=" in x.choices]
    assert mistake.line(text) == 2
    assert mistake.lines(text) == ("if a < b:  # ×", "if a <= b:  # ×")
    assert mistake.shown(text) == "if a [-<-]{+<=+} b: # ×"


def test_those_kept_apply_to_the_sources():
    tools = ROOT / "tools"
    assert len(mistakes.given((tools / "mutants_given.toml").read_text(), PACKAGE)) >= 26
    mistakes.equivalents((tools / "mutants_equivalent.toml").read_text(), PACKAGE)


GIVEN = '[[mistake]]\nname = "n"\nfile = "f.py"\n'


def test_one_given_is_found_after_the_text_it_names():
    text = b"a < b\ndef f():\n    return a < b\n"
    table = GIVEN + 'after = "def f"\nold = "a < b"\nnew = "a <= b"\n'
    (mistake,) = mistakes.given(table, {"f.py": text})
    assert mistake.made(text) == b"a < b\ndef f():\n    return a <= b\n"


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ('old = "c"\nnew = "d"', "'n': f.py has 'c' 0 times, must have it once; write what it became"),
        ('old = "a"\nnew = "d"', "'n': f.py has 'a' 2 times, must have it once; say after which text"),
        ('old = "a"\nnew = "d"\nafter = "b"', "'n': f.py has no 'a' after 'b'; write what it became"),
        ('old = "b"\nnew = "(b)"', "'n': f.py with '(b)' says the same, or is no Python"),
        ('old = "b"\nnew = "("', "'n': f.py with '(' says the same, or is no Python"),
    ],
)
def test_one_given_that_does_not_apply_is_refused(row, said):
    with pytest.raises(Refused) as refused:
        mistakes.given(f"{GIVEN}{row}\n", {"f.py": b"a + a + b\n"})
    assert str(refused.value) == said


def test_a_file_that_is_gone_is_refused():
    with pytest.raises(Refused, match=r"^'n': there is no file f.py; name the one that it became$"):
        mistakes.given(GIVEN + 'old = "a"\nnew = "b"\n', {})


def test_an_equivalent_is_known_by_its_line_and_what_it_becomes():
    table = '[[equivalent]]\nfile = "f.py"\nline = "a < b"\nbecomes = "a <= b"\nreason = "never equal"\n'
    text = b"if c:\n    a < b\n"
    known = mistakes.equivalents(table, {"f.py": text})
    at = text.index(b"<")
    assert known[("f.py", *Mistake("f.py", at, at + 1, "<=").lines(text))] == "never equal"
    with pytest.raises(Refused, match=r"^an equivalent: f.py has no line 'a < b'; take the entry out$"):
        mistakes.equivalents(table, {"f.py": b"a > b\n"})
