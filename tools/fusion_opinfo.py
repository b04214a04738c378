"""Write docs/fusion-opinfo.md: how many of nvFuser's own tests of operators pass, and a reason for each that does not.

    python tools/fusion_opinfo.py RESULT.json COMMIT

RESULT is `{"opinfo": {name of a test: "passed", or what it said}}` of a run of tests/python/opinfo/test_direct_ops.py
of the public repository NVIDIA/Fuser at that commit, on host tensors, with samebits.fusion in nvfuser_direct's place.
Nothing of that repository is kept here. A failure without a reason, and a reason without a failure, is an error. Start
at `page`.
"""

from __future__ import annotations

import collections
import json
import pathlib
import re
import sys
from collections.abc import Mapping

from samebits.fusion.ops import REFUSED

__all__ = ["PAGE", "REASONS", "page"]

PAGE = pathlib.Path(__file__).resolve().parents[1] / "docs" / "fusion-opinfo.md"

_HEAD = """# nvFuser's tests of operators

Written by `python tools/fusion_opinfo.py` from a run of `test_direct_ops.py` of the public repository NVIDIA/Fuser at
commit {commit}, on host tensors, with `samebits.fusion` in the place of `nvfuser_direct`. A test of correctness
compares runs with torch or JAX, within 0.001 whatever the size of the numbers, and runs the text of the definition
again; a test of errors asks that calls and runs raise a RuntimeError or a TypeError. No test is answered by a special
case.

| tests | pass | of |
|---|---|---|
"""
_REASONS = """
## What does not pass, and why
| correctness of | why |
|---|---|
"""
_COMPLEX = r"_complex(64|128)$"

# A pattern of names, and why tests of such a name fail.
REASONS: tuple[tuple[str, str], ...] = (
    (rf"^test_correctness_.*{_COMPLEX}", "complex numbers are refused by name, where a tensor or a scalar is defined"),
    (
        rf"^test_correctness_({'|'.join(sorted(REFUSED))})_[a-z0-9]+$",
        "the operation is refused by name ([fusions](fusion.md))",
    ),
    (r"^test_correctness_scaled_mm_", "torch's own side: its `_scaled_mm` refuses blocks of MXFP8 on a host"),
    (
        r"^test_correctness_(argsort|topk)_int\d+$",
        """the test compares the places of equal elements, which torch leaves open without `stable=True`: ours are the
        first ones, and the elements there are torch's""",
    ),
    (
        r"^test_correctness_pow_float\d+$",
        """wherever ours and torch's differ by more than the test allows, ours is nearer to the power, which was
        computed with 300 bits: 1527 of 2.6 million elements in float32, 4 in float64""",
    ),
    (
        r"^test_correctness_(linear|matmul)_(bfloat16|float16)$",
        """sums in float32 in two orders round to neighbours of the narrow format, two in a million elements, ours and
        torch's about as often the nearer one; neighbours are up to 2 apart there, and the test allows 0.001""",
    ),
)


def page(result: Mapping[str, str], commit: str) -> str:
    """The page of a run.

    Args:    result: for each test `passed`, or what it said.   commit: of nvFuser.
    Raises:  ValueError if a failure has no reason, or a reason no failure.
    """
    failed = [name for name, said in result.items() if said != "passed"]
    given = {name: next((why for pattern, why in REASONS if re.search(pattern, name)), None) for name in failed}
    without = sorted(name for name, why in given.items() if why is None)
    if without:
        raise ValueError(f"page: no reason is written for {', '.join(without)}")
    unused = sorted({why for _, why in REASONS} - set(given.values()) - {None})
    if unused:
        raise ValueError(f"page: no test fails because {unused[0]!r}; take the reason out")
    lines = [
        f"| {kind} | {sum(result[name] == 'passed' for name in names)} | {len(names)} |"
        for kind, names in _kinds(result).items()
    ]
    rows = [
        f"| {_joined([name for name, found in given.items() if found == why])} | {' '.join(why.split())} |"
        for why in dict.fromkeys(why for _, why in REASONS)
    ]
    return _HEAD.format(commit=commit) + "\n".join(lines) + "\n" + _REASONS + "\n".join(rows) + "\n"


def _kinds(result: Mapping[str, str]) -> dict[str, list[str]]:
    """Tests by what they are of."""
    found: dict[str, list[str]] = {
        kind: []
        for kind in (
            "correctness of operations that are there, in real formats",
            "errors, in real formats",
            "correctness of operations that are refused, in real formats",
            "correctness, in complex formats",
            "errors, in complex formats, which are refused whatever the test asks",
        )
    }
    there, errors, refused, complex_, complex_errors = found.values()
    for name in result:
        is_error = name.startswith("test_errors_")
        if re.search(_COMPLEX, name):
            (complex_errors if is_error else complex_).append(name)
        elif is_error:
            errors.append(name)
        else:
            operation, _ = _parts(name)
            (there if operation not in REFUSED else refused).append(name)
    return found


def _parts(name: str) -> tuple[str, str]:
    """The operation and the element format that a test names."""
    found = re.fullmatch(r"test_(?:correctness_|errors_)?(\w+?)_((?:float8_)?[a-z0-9]+)", name)
    if found is None:
        raise ValueError(f"page: {name!r} names no operation and element format")
    return found[1], found[2]


def _joined(names: list[str]) -> str:
    """Names of tests, the formats of one operation together."""
    formats: dict[str, list[str]] = collections.defaultdict(list)
    for name in sorted(names):
        operation, dtype = _parts(name)
        formats[operation].append(dtype)
    kinds = sorted({tuple(found) for found in formats.values()})
    parts = []
    for kind in kinds:
        operations = [operation for operation, found in formats.items() if tuple(found) == kind]
        parts.append(f"`{' '.join(operations)}` in {', '.join(kind)}")
    return "; ".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page(json.loads(pathlib.Path(sys.argv[1]).read_text())["opinfo"], sys.argv[2]))
