"""Making mistakes in a checkout of three files, from the command to the table."""

import json
import subprocess

import mutants
import pytest

HALF = '''"""Half."""


def half(x):
    if x < 0:
        return 0
    return x // 2
'''
TESTS = """import subprocess, sys

import samebits
from samebits.room.half import half

def test_half():
    assert half(4) == 2

def test_of_isolated_processes():
    command = "from samebits.room.half import half; assert half(-4) == 0"
    subprocess.run([sys.executable, "-I", "-c", command], check=True)
"""
GIVEN = """
[[mistake]]
name = "seen here"
file = "src/samebits/room/half.py"
old = "x // 2"
new = "x // 3"

[[mistake]]
name = "seen by another process"
file = "src/samebits/room/half.py"
old = "x < 0"
new = "False"

[[mistake]]
name = "seen by another room"
file = "src/samebits/room/half.py"
old = "x // 2"
new = "x // 2 if x < 9 else 0"

[[mistake]]
name = "seen by nobody"
file = "src/samebits/room/half.py"
old = "x < 0"
new = "x <= 0"

[[mistake]]
name = "the end of the process"
file = "src/samebits/room/half.py"
old = "return x // 2"
new = "import os; os.abort()"
"""


@pytest.fixture
def checkout(tmp_path):
    files = {
        "pyproject.toml": "[tool.pytest.ini_options]\nmarkers = ['exhaustive: long']\n",
        "src/samebits/__init__.py": "",
        "src/samebits/room/__init__.py": "",
        "src/samebits/room/half.py": HALF,
        "tests/room/test_half.py": TESTS,
        "tests/test_other.py": "from samebits.room.half import half\n\ndef test_nine():\n    assert half(9) == 4\n",
        mutants.GIVEN: GIVEN,
        mutants.EQUIVALENT: "",
    }
    for path, text in files.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    subprocess.run(["git", "init", "--quiet"], cwd=tmp_path, check=True)
    return tmp_path


def test_mistakes_are_killed_or_survive_and_the_checkout_stays(checkout, capsys):
    log = checkout.parent / "log.jsonl"
    arguments = ["--given", "--resume", str(log)]
    assert mutants.main([*arguments, "--jobs", "2", "--floor", "80"], checkout) == 0
    said = capsys.readouterr().out
    assert (checkout / "src/samebits/room/half.py").read_text() == HALF
    rows = [json.loads(line) for line in log.read_text().splitlines()]
    results = {(x["mistake"].split(" ", 1)[1], x["stage"]): x["test"] for x in rows if "mistake" in x}
    mirror = "tests/room/test_half.py::test_"
    assert results == {
        ("return [-x // 2-]{+x // 3+}", "mirror"): f"{mirror}half",
        ("if [-x < 0-]{+False+}:", "mirror"): f"{mirror}of_isolated_processes",
        ("[-return x // 2-]{+import os; os.abort()+}", "mirror"): f"{mirror}half (SIGABRT)",
        ("return [-x // 2-]{+x // 2 if x < 9 else 0+}", "mirror"): None,
        ("return [-x // 2-]{+x // 2 if x < 9 else 0+}", "room"): None,
        ("return [-x // 2-]{+x // 2 if x < 9 else 0+}", "all"): "tests/test_other.py::test_nine",
        ("if [-x < 0-]{+x <= 0+}:", "mirror"): None,
        ("if [-x < 0-]{+x <= 0+}:", "room"): None,
        ("if [-x < 0-]{+x <= 0+}:", "all"): None,
    }
    assert sorted(x["module"] for x in rows if "module" in x) == ["tests/room/test_half.py", "tests/test_other.py"]
    assert said.count("\nkilled ") == 4
    assert said.count("-- 1 survived\nsurvived   room/half.py:5 if [-x < 0-]{+x <= 0+}: (seen by nobody)") == 1
    assert said.splitlines()[-1].split() == ["all", "5", "4", "0", "1", "0", "80.0"]

    # What is known is not run again, and one that is equivalent counts as seen.
    (checkout / mutants.EQUIVALENT).write_text(
        '[[equivalent]]\nfile = "src/samebits/room/half.py"\nline = "if x < 0:"\nbecomes = "if x <= 0:"\n'
        'reason = "half of 0 is 0"\n'
    )
    assert mutants.main([*arguments, "--stages", "mirror"], checkout) == 0
    assert capsys.readouterr().out.splitlines()[-1].split() == ["all", "5", "3", "1", "1", "0", "80.0"]


def test_too_few_killed_is_a_failure(checkout, capsys):
    arguments = ["--given", "--name", "nobody", "--stages", "mirror", "--floor", "1"]
    assert mutants.main(arguments, checkout) == 1
    assert mutants.main([*arguments, "--seconds", "0"], checkout) == 1
    assert capsys.readouterr().out.splitlines()[-1].split() == ["all", "1", "0", "0", "0", "1", "0.0"]


def test_tests_that_fail_anyway_are_refused(checkout, capsys):
    (checkout / "tests/room/test_half.py").write_text("def test_half():\n    assert False\n")
    assert mutants.main(["--given", "--stages", "mirror"], checkout) == 2
    assert capsys.readouterr().err == (
        "mutants: tests/room/test_half.py::test_half fails without a mistake; mend it first\n"
    )


def test_results_of_other_sources_are_refused(checkout, capsys):
    log = checkout.parent / "log.jsonl"
    log.write_text('{"sources": "others"}\n')
    assert mutants.main(["--given", "--resume", str(log)], checkout) == 2
    assert capsys.readouterr().err == f"mutants: {log} is of other sources; name a new file\n"


def test_a_draw_is_listed(checkout, capsys):
    assert mutants.main(["--list", "--seed", "1", "--count", "2", "--only", "src/samebits/room"], checkout) == 0
    first, *found = capsys.readouterr().out.splitlines()
    assert first == "2 mistakes drawn by seed 1"
    assert len(found) == 2
    assert all(line.startswith("src/samebits/room/half.py:") for line in found)


def test_given_mistakes_of_one_place_alone(checkout, capsys):
    assert mutants.main(["--given", "--list", "--only", "src/samebits/room/half.py"], checkout) == 0
    assert capsys.readouterr().out.count("room/half.py") == 5
    assert mutants.main(["--given", "--list", "--only", "src/samebits/__init__.py"], checkout) == 0
    assert "half.py" not in capsys.readouterr().out
    assert mutants.main(["--given", "--list", "--only", "nowhere"], checkout) == 2
    assert "--only nowhere: no source is there" in capsys.readouterr().err
