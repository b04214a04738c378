"""The ONNX backend's node tests, run by this package: which pass, and why the others do not.

    python tools/onnx_nodes.py             run all; fail if the answers are not those of the kept list
    python tools/onnx_nodes.py --write     rewrite the list, once nothing is wrong
    python tools/onnx_nodes.py --reasons   also print why cases are refused, the most frequent reason first

A case is a model, arrays in and arrays out; those of `RESIZING` have constants where they give inputs.
It passes where its answers have the element format and the shape that are
due and values as near as the case asks; it is unsupported where the package refuses it by an error of its own. All else
is a defect, a wrong answer or an error that is not ours, but for the few cases of `NEAR` and `DIFFERENT`.
`tests/onnx/test_backend_nodes.py` holds the list of those that pass (`LIST`) to this. Start at `run_case`.
"""

from __future__ import annotations

import argparse
import collections
import pathlib
import re
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from samebits.errors import SamebitsError, UnsupportedModelError
from samebits.runtime import cpu

__all__ = ["COMMAND", "DIFFERENT", "LIST", "NEAR", "Case", "Outcome", "cases", "kept", "run_case"]

LIST = pathlib.Path(__file__).resolve().parents[1] / "tests" / "onnx" / "backend_nodes.txt"
COMMAND = "python tools/onnx_nodes.py --write"
# Operators of which the cases give as inputs what models have as constants, by all operands but the first.
RESIZING = frozenset({"Resize", "Upsample"})
STATUSES = ("pass", "unsupported", "near", "differs", "wrong", "error")
# Cases that ask for less than a unit in the last place of their format, and get the other neighbour of what is due.
# Here two of 192 float16 are, and all of ours are nearer to the exact values than the due ones at their worst.
NEAR = frozenset({"test_attention_4d_causal_fp16_expanded"})

# Cases with scales that give no whole extents: by them corners are aligned to the product, 2.4; by the operator's text
# and ONNX Runtime to the extent of the result, 2, as here.
DIFFERENT = frozenset(f"test_resize_downsample_scales_{mode}_align_corners" for mode in ("linear", "cubic"))


@dataclass(frozen=True, slots=True)
class Case:
    """One case: a model, how near its answers must be, and for each set of inputs what is due."""

    name: str
    model: Any
    rtol: float
    atol: float
    sets: Sequence[tuple[Sequence[Any], Sequence[Any]]]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a case: one of `STATUSES`, and the reason where it is not a pass."""

    status: str
    reason: str = ""


def cases() -> Iterator[Case]:
    """The node cases of the onnx that is installed."""
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some cases divide by zero as they are made
        found = load_model_tests(kind="node")
    for case in found:
        made = Case(case.name, case.model, case.rtol, case.atol, case.data_sets or ())
        yield _with_constants(made) if {node.op_type for node in made.model.graph.node} <= RESIZING else made


def _with_constants(case: Case) -> Case:
    """The case with the operands of its one node as constants, but for the first."""
    import onnx as onnx_package

    model, ((inputs, due),) = onnx_package.ModelProto(), case.sets
    model.CopyFrom(case.model)
    _, *rest = model.graph.input
    model.graph.initializer.extend(
        onnx_package.numpy_helper.from_array(np.asarray(x), value.name)
        for value, x in zip(rest, inputs[1:], strict=True)
    )
    del model.graph.input[1:]
    return Case(case.name, model, case.rtol, case.atol, [(inputs[:1], due)])


def run_case(case: Case, isa: str | None = None) -> Outcome:
    """Load the case's model, run it on every set of inputs and compare."""
    try:
        session = cpu.load(case.model, isa=isa, threads=1)
        for inputs, due in case.sets:
            feed = {value.name: _array(x) for value, x in zip(case.model.graph.input, inputs, strict=False)}
            made = list(session.run(feed).values())
            for number, (answer, expected) in enumerate(zip(made, due, strict=True)):
                problem = _difference(answer, _array(expected), case)
                if problem:
                    known = "near" if case.name in NEAR else "differs" if case.name in DIFFERENT else "wrong"
                    return Outcome(known, f"output {number}: {problem}")
    except UnsupportedModelError as error:
        return Outcome("unsupported", "; ".join(error.problems) or str(error))
    except SamebitsError as error:
        return Outcome("unsupported", str(error))
    except Exception as error:  # whatever escapes is the defect that is looked for
        return Outcome("error", f"{type(error).__name__}: {error}")
    return Outcome("pass")


def _array(given: Any) -> Any:
    """What a case gives, as an array; what is no tensor stays as it is."""
    import onnx as onnx_package

    if isinstance(given, onnx_package.TensorProto):
        return onnx_package.numpy_helper.to_array(given)
    return given if isinstance(given, list) or given is None else np.asarray(given)


def _difference(answer: np.ndarray[Any, Any], due: Any, case: Case) -> str:
    """What differs, or nothing: as onnx's own runner compares."""
    if answer.dtype != due.dtype:
        return f"is {answer.dtype}, not {due.dtype}"
    if answer.shape != due.shape:
        return f"has shape {answer.shape}, not {due.shape}"
    # What a case asks for may be less than a unit in the last of bfloat16's 8 bits.
    rtol = max(case.rtol, 2.0**-6) if due.dtype.name == "bfloat16" else case.rtol
    x, y = (each if each.dtype.kind in "biuf" else each.astype(np.float32) for each in (answer, due))
    if np.allclose(x, y, rtol=rtol, atol=case.atol, equal_nan=True):
        return ""
    return f"{int((~np.isclose(x, y, rtol, case.atol, equal_nan=True)).sum())} of {x.size} values differ"


def kept() -> frozenset[str]:
    """The names of the cases that pass, as the list has them."""
    return frozenset(line for line in LIST.read_text().splitlines() if line)


def _reasons(outcomes: Mapping[str, Outcome]) -> Iterator[str]:
    """Reasons, without names of values and nodes, by how many cases have them."""
    counts: collections.Counter[str] = collections.Counter()
    for outcome in outcomes.values():
        if outcome.status == "unsupported":
            counts[re.sub(r"node '[^']*', |model '[^']*'|\('[^']*'\)|'[^']*'", "", outcome.reason)[:170]] += 1
    for reason, count in counts.most_common():
        yield f"{count:5}  {reason}"


def main(argv: Sequence[str]) -> int:
    """Run every case; 1 if the list is not what it should be, or something is wrong."""
    parser = argparse.ArgumentParser(description="The ONNX backend's node tests, run by this package.")
    parser.add_argument("--write", action="store_true", help="rewrite the list of cases that pass")
    parser.add_argument("--reasons", action="store_true", help="print why cases are refused")
    parser.add_argument("--only", default="", help="a regular expression that names of cases must hold")
    parser.add_argument("--isa", help="the Isa row; default the machine's")
    options = parser.parse_args(argv)
    outcomes = {case.name: run_case(case, options.isa) for case in cases() if re.search(options.only, case.name)}
    bad = {name: outcome for name, outcome in outcomes.items() if outcome.status in ("wrong", "error")}
    for name, outcome in bad.items():
        print(f"{outcome.status:6} {name}: {outcome.reason}")
    if options.reasons:
        print("\n".join(_reasons(outcomes)))
    counts = collections.Counter(outcome.status for outcome in outcomes.values())
    print(f"{len(outcomes)} cases: " + ", ".join(f"{counts[status]} {status}" for status in STATUSES))
    passed = {name for name, outcome in outcomes.items() if outcome.status == "pass"}
    if options.write and not bad and not options.only:
        LIST.write_text("".join(f"{name}\n" for name in sorted(passed)))
        return 0
    wanted = {name for name in kept() if re.search(options.only, name)}
    for name in sorted(wanted ^ passed):
        print(f"{'lost' if name in wanted else 'new'} {name}: {outcomes.get(name, Outcome('gone')).reason}")
    return 1 if bad or wanted != passed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
