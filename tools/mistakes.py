"""The small mistakes that a person could make in a Python text: where they are possible, and what would stand there.

A place is a few bytes of one line and what might be written there instead: another comparison, a bound that is one
off, a condition left out, two arguments in the wrong order. Words are left alone: strings, annotations, decorators,
what is raised and its message. Start at `draw` and at `places`.
"""

from __future__ import annotations

import ast
import itertools
import random
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

__all__ = ["Mistake", "Place", "Refused", "changed", "draw", "equivalents", "given", "places"]

# What each operator is taken for; of two, either.
_COMPARISONS: dict[type[ast.cmpop], tuple[str, tuple[str, ...]]] = {
    ast.Lt: ("<", ("<=", ">=")), ast.LtE: ("<=", ("<", ">")), ast.Gt: (">", (">=", "<=")), ast.GtE: (">=", (">", "<")),
    ast.Eq: ("==", ("!=",)), ast.NotEq: ("!=", ("==",)), ast.Is: ("is", ("is not",)), ast.IsNot: ("is not", ("is",)),
    ast.In: ("in", ("not in",)), ast.NotIn: ("not in", ("in",)),
}  # fmt: skip
_OPERATORS: dict[type[ast.operator], tuple[str, tuple[str, ...]]] = {
    ast.Add: ("+", ("-",)), ast.Sub: ("-", ("+",)), ast.Mult: ("*", ("+", "//")), ast.Div: ("/", ("*",)),
    ast.FloorDiv: ("//", ("%", "*")), ast.Mod: ("%", ("//",)), ast.Pow: ("**", ("*",)), ast.LShift: ("<<", (">>",)),
    ast.RShift: (">>", ("<<",)), ast.BitAnd: ("&", ("|",)), ast.BitOr: ("|", ("&",)), ast.BitXor: ("^", ("|",)),
}  # fmt: skip
_FUNCTIONS = {"min": "max", "max": "min", "any": "all", "all": "any", "minimum": "maximum", "maximum": "minimum"}
# The words of kernel texts, whose builder is called b.
_WORDS = {
    "add": "sub", "sub": "add", "mul": "add", "less": "less_equal", "less_equal": "less", "bit_and": "bit_or",
    "bit_or": "bit_and", "shift_left": "shift_right", "shift_right": "shift_left",
}  # fmt: skip
# Functions of which the order of two arguments is no matter, or which nobody calls in another.
_ANY_ORDER = {
    "add", "all", "any", "array_equal", "bit_and", "bit_or", "bit_xor", "equal", "gcd", "lcm", "logical_and",
    "logical_or", "max", "maximum", "min", "minimum", "mul", "getattr", "hasattr", "isinstance", "issubclass",
}  # fmt: skip
# Names of what a message is made of: a mistake there is one of words.
_OF_MESSAGES = {"actual", "expected", "remedy"}
_STEADY = (ast.Name, ast.Attribute, ast.Call, ast.Subscript, ast.BinOp)


class Refused(Exception):
    """The tool cannot tell what it was asked; the text says why."""


@dataclass(frozen=True, slots=True)
class Place:
    """Bytes start .. end of a text, in one line, and each text that a mistake would put there."""

    start: int
    end: int
    choices: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Mistake:
    """A mistake in a file of the checkout: `new` in place of bytes start .. end; `name` where a person described it."""

    path: str
    start: int
    end: int
    new: str
    name: str = ""

    def made(self, text: bytes) -> bytes:
        """The file's text with the mistake."""
        return text[: self.start] + self.new.encode() + text[self.end :]

    def line(self, text: bytes) -> int:
        """The number of the line where it begins, from 1."""
        return text.count(b"\n", 0, self.start) + 1

    def lines(self, text: bytes) -> tuple[str, str]:
        """The line or lines that it changes, as they are and as they become, without indentation."""
        before, old, after = self._parts(text)
        return f"{before}{old}{after}".strip(), f"{before}{self.new}{after}".strip()

    def shown(self, text: bytes) -> str:
        """The line with what goes as [-old-] and what comes as {+new+}, as git shows words that differ."""
        before, old, after = self._parts(text)
        marked = (f"[-{old}-]" if old else "") + (f"{{+{self.new}+}}" if self.new else "")
        return " ".join(f"{before}{marked}{after}".split())

    def _parts(self, text: bytes) -> tuple[str, str, str]:
        """What goes, and the rest of its line before and after it."""
        begin, end = text.rfind(b"\n", 0, self.start) + 1, text.find(b"\n", self.end)
        after = text[self.end : len(text) if end < 0 else end]
        return text[begin : self.start].decode(), text[self.start : self.end].decode(), after.decode()


def draw(texts: Mapping[str, bytes], seed: str, count: int) -> list[Mistake]:
    """`count` mistakes, no two in one line; every place where one is possible is as likely as any other."""
    chance = random.Random(seed)
    found = [(path, place) for path in sorted(texts) for place in sorted(places(texts[path]), key=_order)]
    chance.shuffle(found)
    drawn, lines = list[Mistake](), set[tuple[str, int]]()
    for path, place in found:
        if len(drawn) == count:
            break
        mistake = Mistake(path, place.start, place.end, chance.choice(place.choices))
        at = path, mistake.line(texts[path])
        if at not in lines and changed(texts[path], mistake.made(texts[path])):
            lines.add(at)
            drawn.append(mistake)
    return drawn


def _order(place: Place) -> tuple[int, int, tuple[str, ...]]:
    return place.start, place.end, place.choices


def given(table: str, texts: Mapping[str, bytes]) -> list[Mistake]:
    """The mistakes of a TOML file: of each its `name`, the `file`, the `old` text, the `new` one, and `after` what text
    the old one is looked for, where it is in the file more than once.

    Raises:  Refused if some do not apply to the sources as they are.
    """
    found, wrong = list[Mistake](), list[str]()
    for row in tomllib.loads(table).get("mistake", []):
        try:
            found.append(_given(row, texts))
        except Refused as reason:
            wrong.append(str(reason))
    if wrong:
        raise Refused("\n".join(wrong))
    return found


def _given(row: Mapping[str, str], texts: Mapping[str, bytes]) -> Mistake:
    name, path = row["name"], row["file"]
    if path not in texts:
        raise Refused(f"{name!r}: there is no file {path}; name the one that it became")
    text, old = texts[path], row["old"].encode()
    if "after" in row:
        at = text.find(old, _only(name, path, text, row["after"]))
        if at < 0:
            raise Refused(f"{name!r}: {path} has no {row['old']!r} after {row['after']!r}; write what it became")
    else:
        at = _only(name, path, text, row["old"])
    mistake = Mistake(path, at, at + len(old), row["new"], name)
    if not changed(text, mistake.made(text)):
        raise Refused(f"{name!r}: {path} with {row['new']!r} says the same, or is no Python")
    return mistake


def _only(name: str, path: str, text: bytes, part: str) -> int:
    """Where a part of a text is."""
    count = text.count(part.encode())
    if count != 1:
        remedy = "say after which text" if count else "write what it became"
        raise Refused(f"{name!r}: {path} has {part!r} {count} times, must have it once; {remedy}")
    return text.index(part.encode())


def equivalents(table: str, texts: Mapping[str, bytes]) -> dict[tuple[str, str, str], str]:
    """Why a mistake changes nothing, by its file, the line and what the line becomes, both without indentation.

    Raises:  Refused if an entry's line is no longer in its file.
    """
    found = {}
    for row in tomllib.loads(table).get("equivalent", []):
        lines = {line.strip() for line in texts.get(row["file"], b"").decode().splitlines()}
        if row["line"].strip() not in lines:
            raise Refused(f"an equivalent: {row['file']} has no line {row['line']!r}; take the entry out")
        found[row["file"], row["line"].strip(), row["becomes"].strip()] = row["reason"]
    return found


def changed(old: bytes, new: bytes) -> bool:
    """Whether the second text is still Python, and says something else than the first."""
    try:
        return ast.dump(ast.parse(new)) != ast.dump(ast.parse(old))
    except SyntaxError:
        return False


def places(text: bytes) -> Iterator[Place]:
    """Every place of a module where a small mistake is possible, in no particular order."""
    yield from _Text(text).below(ast.parse(text))


class _Text:
    """A text whose nodes are found again by their bytes."""

    def __init__(self, text: bytes) -> None:
        self.text = text
        self.starts = [0, *(match.end() for match in re.finditer(b"\n", text))]

    def start(self, node: ast.expr | ast.stmt) -> int:
        return self.starts[node.lineno - 1] + node.col_offset

    def end(self, node: ast.expr | ast.stmt) -> int:
        assert node.end_lineno is not None  # the parser sets both
        assert node.end_col_offset is not None
        return self.starts[node.end_lineno - 1] + node.end_col_offset

    def of(self, node: ast.expr) -> str:
        return self.text[self.start(node) : self.end(node)].decode()

    def whole(self, node: ast.expr | ast.stmt, *choices: str) -> Iterator[Place]:
        """The place that a node takes, if that is in one line."""
        if node.lineno == node.end_lineno:
            yield Place(self.start(node), self.end(node), choices)

    def between(self, first: ast.expr, second: ast.expr, token: str, *choices: str) -> Iterator[Place]:
        """The place of an operator between two operands, which may be in parentheses."""
        low = self.end(first)
        gap = self.text[low : self.start(second)].decode()
        at = gap.find(token)
        if at >= 0 and "#" not in gap:
            yield Place(low + at, low + at + len(token), choices)

    def below(self, node: ast.AST) -> Iterator[Place]:
        """The places in what a node consists of."""
        for part in _parts(node):
            yield from self.places(part)

    def places(self, node: ast.AST) -> Iterator[Place]:
        """The places of a node and of what it consists of."""
        if _is_of_words(node):
            return
        match node:
            case ast.If(test=test) | ast.IfExp(test=test):
                yield from self.condition(test, "True", "False")
            case ast.comprehension(ifs=ifs):
                for test in ifs:
                    yield from self.condition(test, "True")
            case ast.Compare(left=left, ops=ops, comparators=others):
                for first, op, second in zip([left, *others], ops, others, strict=False):
                    token, choices = _COMPARISONS[type(op)]
                    yield from self.between(first, second, token, *choices)
            case ast.BoolOp(op=op, values=values):
                token, other, without = ("and", "or", "True") if isinstance(op, ast.And) else ("or", "and", "False")
                for value in values:
                    yield from self.whole(value, without)
                for first, second in itertools.pairwise(values):
                    yield from self.between(first, second, token, other)
            case ast.BinOp(left=left, op=operator, right=right) if _is_arithmetic(node):
                token, choices = _OPERATORS[type(operator)]
                yield from self.between(left, right, token, *choices)
            case ast.AugAssign(target=target, op=operator, value=value) if type(operator) in _OPERATORS:
                token, choices = _OPERATORS[type(operator)]
                yield from self.between(target, value, f"{token}=", *(f"{choice}=" for choice in choices))
            case ast.UnaryOp(op=ast.Not() | ast.USub() | ast.Invert()) if not isinstance(node.operand, ast.Constant):
                length = len(re.match(rb"not\s*|.", self.text[self.start(node) :])[0])  # type: ignore[index]
                yield Place(self.start(node), self.start(node) + length, ("",))
            case ast.Constant():
                yield from self.constant(node)
            case ast.Call():
                yield from self.call(node)
            case ast.Slice(lower=lower, upper=upper):
                for bound in (lower, upper):
                    yield from self.bound(bound)
            case ast.Expr(value=ast.Call()):
                yield from self.whole(node, "pass")
            case ast.Continue() | ast.Break():
                yield from self.whole(node, "pass")
        yield from self.below(node)

    def condition(self, test: ast.expr, *choices: str) -> Iterator[Place]:
        """A condition that is left out; one that names a value is needed for its name."""
        if not isinstance(test, ast.Constant) and not any(isinstance(x, ast.NamedExpr) for x in ast.walk(test)):
            yield from self.whole(test, *choices)

    def bound(self, bound: ast.expr | None) -> Iterator[Place]:
        """A bound that is one off; one that is a number has its place as such."""
        if isinstance(bound, _STEADY) and bound.lineno == bound.end_lineno:
            yield Place(self.end(bound), self.end(bound), (" + 1", " - 1"))

    def constant(self, node: ast.Constant) -> Iterator[Place]:
        """A whole number that is one off, or the other truth value."""
        value = node.value
        if isinstance(value, bool):
            yield from self.whole(node, str(not value))
        elif isinstance(value, int):
            written = hex if self.of(node).lower().startswith("0x") else str
            yield from self.whole(node, *(written(value + step) for step in (1, -1) if value + step >= 0))

    def call(self, node: ast.Call) -> Iterator[Place]:
        """The function taken for its opposite, neighbouring arguments swapped, a loop's bound one off."""
        name = _name(node.func)
        is_word = isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Name)
        is_word = is_word and self.of(node.func).startswith("b.")
        other = _FUNCTIONS.get(name) or (_WORDS.get(name) if is_word else None)
        if other is not None:
            yield Place(self.end(node.func) - len(name), self.end(node.func), (other,))
        if name == "range" or (name == "loop" and is_word):
            for argument in node.args:
                yield from self.bound(argument)
        for first, second in itertools.pairwise(node.args):
            said = [isinstance(x, ast.Constant) and isinstance(x.value, str) for x in (first, second)]
            starred = isinstance(first, ast.Starred) or isinstance(second, ast.Starred)
            if name in _ANY_ORDER or starred or said[0] != said[1] or first.lineno != second.end_lineno:
                continue
            one, two = self.of(first), self.of(second)
            if one != two:
                middle = self.text[self.end(first) : self.start(second)].decode()
                yield Place(self.start(first), self.end(second), (f"{two}{middle}{one}",))


def _parts(node: ast.AST) -> Iterator[ast.AST]:
    """What a node consists of, but for annotations, decorators and the types that `isinstance` is asked for."""
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list"):
            continue
        if name == "args" and isinstance(node, ast.Call) and _name(node.func) in ("isinstance", "issubclass"):
            value = value[:1]
        for part in value if isinstance(value, list) else [value]:
            if isinstance(part, ast.AST):
                yield part


def _is_of_words(node: ast.AST) -> bool:
    """Whether a part is for people or for type checkers."""
    match node:
        case ast.Raise() | ast.Assert() | ast.JoinedStr() | ast.pattern():
            return True
        case ast.If(test=ast.Name(id="TYPE_CHECKING") | ast.Attribute(attr="TYPE_CHECKING")):
            return True
        case ast.keyword(arg="strict"):  # of zip, which only finds defects
            return True
        case ast.Call(func=function):
            return _name(function) == "message"
        case ast.Assign(targets=targets):
            names = {x.id for target in targets for x in ast.walk(target) if isinstance(x, ast.Name)}
            return bool(names) and (names <= _OF_MESSAGES or names <= {"__all__", "__slots__"})
    return False


def _is_arithmetic(node: ast.BinOp) -> bool:
    """Whether operands may be numbers: not texts, lists, or types, which have no other operator that people take."""
    for part in (node.left, node.right):
        if isinstance(part, ast.JoinedStr | ast.List | ast.Tuple | ast.Set | ast.Dict):
            return False
        if isinstance(part, ast.Constant) and not isinstance(part.value, int | float):
            return False
        if isinstance(node.op, ast.BitOr) and _name(part)[:1].isupper() and not _name(part).isupper():
            return False
    return type(node.op) in _OPERATORS


def _name(node: ast.expr) -> str:
    """The last name of `name` or `a.b.name`, or none."""
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
