"""Try every format from every framework through samebits into every other, and write docs/exchange-matrix.md.

python tools/exchange_matrix.py [--only NAME...]

It runs in an environment that has the frameworks; each producer is tried in a process of its own, with every consumer.
The page has one section for each NumPy minor version, and this writes that of the version it runs under.
"""

from __future__ import annotations

import argparse
import collections
import datetime
import importlib
import itertools
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from samebits import dtypes
from samebits.doctor import frameworks, report, trial
from samebits.doctor.framework import CannotHold, Framework, Held
from samebits.doctor.witness import codes_for
from samebits.dtypes import DType
from samebits.tensor import Tensor

PAGE = pathlib.Path(__file__).parent.parent / "docs" / "exchange-matrix.md"
SYMBOLS = {"zero-copy": "=", "copy": "c", "bytes": "b", "refused": "x", "relabelled": "~", "wrong": "!", "none": "."}
# One letter a framework, in the order of frameworks.ROWS.
LETTERS = dict(zip((row.name for row in frameworks.ROWS), "NMTJKCOPVF", strict=True))
# What a consumer does by itself with a producer's tensor, without samebits.
ALONE: dict[str, Callable[[Any, Any], Any]] = {
    "numpy": lambda np, x: np.from_dlpack(x),
    "ml_dtypes": lambda _, x: np.from_dlpack(x),
    "torch": lambda torch, x: torch.from_dlpack(x),
    "jax": lambda jax, x: jax.numpy.from_dlpack(x),
    "numkong": lambda numkong, x: numkong.from_dlpack(x),
    "cuda.core": lambda utils, x: utils.StridedMemoryView.from_dlpack(x, -1),
    "onnxruntime": lambda ort, x: ort.OrtValue.from_dlpack(x),
    "pyarrow": lambda pa, x: pa.Tensor.from_dlpack(x),
    "tvm_ffi": lambda tvm_ffi, x: tvm_ffi.from_dlpack(x),
    "tensorflow": lambda tf, x: tf.experimental.dlpack.from_dlpack(x.__dlpack__()),
}


@dataclass(frozen=True, slots=True)
class Crossing:
    """One format from one framework into another.

    Attributes:
        outcome: Of the way through samebits, a key of SYMBOLS; `none` where the producer has no such format.
        reason: Why it was copied, or not kept.
        alone: What comes of it without samebits; `bytes` cannot.
    """

    dtype: str
    producer: str
    consumer: str
    outcome: str
    reason: str
    alone: str


Modules = dict[str, tuple[Framework, Any]]


def loaded(names: list[str]) -> Modules:
    """Frameworks by name, imported."""
    found = {}
    for row in map(frameworks.named, names):
        module = importlib.import_module(row.module)
        row.prepare(module)
        found[row.name] = row, module
    return found


def crossings(producer: str, modules: Modules, deadly: list[list[str]]) -> Iterator[Crossing | list[str]]:
    """All formats from one producer into every consumer; each that is tried without samebits is announced before.

    `deadly` are those of the latter, as (format, consumer), that are known to end the process.
    """
    row, module = modules[producer]
    for dtype in dtypes.ROWS:
        try:
            theirs, held = trial.made(row, module, dtype, codes_for(dtype))
        except CannotHold:
            yield from (Crossing(dtype.name, producer, name, "none", "", "none") for name in modules)
            continue
        ours = taken_in(row, module, theirs, dtype)
        for name, (consumer, its) in modules.items():
            yield [dtype.name, name]
            dies = [dtype.name, name] in deadly
            alone = "crashed" if dies else received_alone(consumer, its, theirs, held)
            outcome, reason = handed_on(consumer, its, ours, held)
            yield Crossing(dtype.name, producer, name, outcome, reason, alone)


def taken_in(row: Framework, module: Any, theirs: Any, dtype: DType) -> Tensor:
    """A producer's tensor as ours: from_any, or the row's own way."""
    try:
        ours = Tensor.from_any(theirs)
        if ours.dtype is dtype or row.give is None:
            return ours
    except Exception:
        if row.give is None:
            raise
    return row.give(module, theirs)


def handed_on(consumer: Framework, module: Any, ours: Tensor, held: Held) -> tuple[str, str]:
    """How ours arrives at a consumer, and why not better."""
    assert held.dtype is not None
    try:
        trial.made(consumer, module, held.dtype, held.codes)
    except CannotHold as error:
        return as_bytes(consumer, module, ours, held, str(error))
    ways: list[Callable[[Tensor], Any]] = [partial(trial.taken, consumer, module, copy) for copy in (False, True)]
    if consumer.put is not None:
        ways.append(partial(consumer.put, module))
    first = "" if ours.address == held.address else "it came in as a copy"
    for way in ways:
        cell = trial.sent(consumer, module, way, ours)
        if cell.outcome == "zero-copy":
            return "copy" if ours.address != held.address else "zero-copy", first
        if cell.outcome in ("copy", "wrong", "relabelled"):
            return cell.outcome, first or cell.reason or "the consumer copied"
        first = first or cell.reason
    return "refused", first


def as_bytes(consumer: Framework, module: Any, ours: Tensor, held: Held, why: str) -> tuple[str, str]:
    """A format that the consumer lacks: its bytes there and back, of a copy where the memory itself may not go."""
    failure = ""
    for copy in (False, True):
        try:
            exported = ours.export("tensor", copy=copy)
            back = Tensor.from_exported(replace(exported, bytes=consumer.take(module, exported.bytes, False)))
        except Exception as error:
            failure = trial.said(error)
            continue
        kept = back.dtype is held.dtype and np.array_equal(trial.codes_of(back), held.codes)
        return ("bytes", why) if kept else ("wrong", "other bytes came back")
    return "refused", failure


def received_alone(consumer: Framework, module: Any, theirs: Any, held: Held) -> str:
    """What a consumer makes of a producer's tensor by itself."""
    try:
        found = consumer.read(module, ALONE[consumer.name](module, theirs))
    except Exception:
        return "refused"
    if found.dtype is not held.dtype:
        return "relabelled"
    if found.shape != held.shape or not np.array_equal(found.codes, held.codes):
        return "wrong"
    return "zero-copy" if found.address == held.address else "copy"


def child(producer: str, consumers: str, deadly: str, path: str) -> None:
    """Try one producer; a line of JSON for each crossing and each announcement."""
    modules = loaded(sorted({producer, *consumers.split(",")}, key=list(LETTERS).index))
    with open(path, "w") as file:
        for item in crossings(producer, modules, json.loads(deadly)):
            print(json.dumps(item if isinstance(item, list) else asdict(item)), file=file, flush=True)


def tried(names: list[str]) -> list[Crossing]:
    """All crossings. A producer is tried anew where a consumer ended the process without samebits in the middle."""
    found: list[Crossing] = []
    environment = dict(os.environ, TF_CPP_MIN_LOG_LEVEL="3", TF_ENABLE_ONEDNN_OPTS="0", JAX_PLATFORMS="cpu")
    for name in names:
        deadly: list[list[str]] = []
        while True:
            with tempfile.NamedTemporaryFile("r") as file:
                command = [sys.executable, __file__, "--child", name, ",".join(names), json.dumps(deadly), file.name]
                done = subprocess.run(command, check=False, env=environment, capture_output=True, text=True)
                lines = [json.loads(line) for line in file]
            if done.returncode == 0:
                found += [Crossing(**line) for line in lines if isinstance(line, dict)]
                break
            if not lines or not isinstance(lines[-1], list) or lines[-1] in deadly:
                sys.exit(f"{name} ended with {done.returncode} after {lines[-1:]}: {done.stderr[-2000:]}")
            deadly.append(lines[-1])
    return found


# The page.


def grid(found: list[Crossing], names: list[str], of: Callable[[Crossing], str]) -> str:
    """One row for each run of formats that fare alike, one column a producer, one letter a consumer."""
    cells = {(one.dtype, one.producer, one.consumer): SYMBOLS[of(one)] for one in found}

    def fares(dtype: str) -> list[str]:
        return ["".join(cells[dtype, producer, consumer] for consumer in names) for producer in names]

    width = max(len(names), max(map(len, names))) + 2
    consumers = "".join(LETTERS[name] for name in names)
    lines = ["".join([" " * 36, *(f"{name:{width}}" for name in names)]).rstrip()]
    lines.append("".join([" " * 36, *(f"{consumers:{width}}" for _ in names)]).rstrip())
    for alike, group in itertools.groupby([row.name for row in dtypes.ROWS], fares):
        members = list(group)
        label = members[0] if len(members) == 1 else f"{members[0]} .. {members[-1]}"
        lines.append("".join([f"{label:36}", *(f"{one:{width}}" for one in alike)]).rstrip())
    return "\n".join(lines)


def counted(found: list[Crossing], of: Callable[[Crossing], str]) -> str:
    """How many of the crossings between two holders of a format kept it."""
    both = [one for one in found if one.outcome not in ("none", "bytes")]
    kinds = collections.Counter(of(one) for one in both)
    kept = kinds["zero-copy"] + kinds["copy"]
    lost = ", ".join(f"{kinds[kind]} {kind}" for kind in ("refused", "relabelled", "wrong", "crashed") if kinds[kind])
    return f"{kept} of {len(both)} kept ({kinds['zero-copy']} without a copy){'; ' + lost if lost else ''}"


def alike(text: str) -> str:
    """A reason without what differs from format to format, to group by."""
    names = "|".join(sorted((row.name for row in dtypes.ROWS), key=len, reverse=True))
    return re.sub(rf"0x[0-9a-f]+|\b\d+\b|{names}", "..", text, flags=re.I)


def quoted(reason: str) -> str:
    """A reason as it was said, without the address of the day."""
    return f"`{re.sub(r'0x[0-9a-f]{6,}', '0x..', reason)}`"


def faults(found: report.Diagnosis) -> list[str]:
    """What the direct way does not do, in the words of whoever refused the first format of each group."""
    groups: dict[tuple[str, str, str], list[trial.Cell]] = {}
    for one in found.tried:
        for cell in one.cells:
            if cell.way == "row":
                groups.setdefault((one.name, cell.direction, alike(cell.reason)), []).append(cell)
    return [
        f"| {name} | {direction} | {', '.join(cell.dtype for cell in cells)} | {quoted(cells[0].reason)} |"
        for (name, direction, _), cells in groups.items()
    ]


def copied(found: list[Crossing]) -> list[str]:
    """Why crossings copy, and which."""
    groups: dict[str, tuple[str, set[str]]] = {}
    for one in found:
        if one.outcome == "copy":
            pair = f"{LETTERS[one.producer]}{LETTERS[one.consumer]}"
            groups.setdefault(alike(one.reason), (one.reason, set()))[1].add(pair)
    return [f"| {' '.join(sorted(pairs))} | {quoted(reason)} |" for reason, pairs in groups.values()]


def section(names: list[str]) -> str:
    """What the page says of this environment."""
    found, state = tried(names), report.examine(names)
    crossed = sum(one.outcome == "bytes" for one in found)
    lost = [one for one in found if one.outcome in ("refused", "relabelled", "wrong")]
    versions = ", ".join(f"{one.name} {one.version} ({LETTERS[one.name]})" for one in state.tried)
    lines = [
        f"{datetime.date.today()}, Python {state.machine.python}: {versions}.",
        "",
        f"- Through samebits, where both hold the format: {counted(found, lambda one: one.outcome)}.",
        f"- Through samebits, where only the producer does: {crossed} as bytes and whole again.",
        f"- Without samebits, by the consumer's import, where both hold it: {counted(found, lambda one: one.alone)}.",
        "",
        "```",
        grid(found, names, lambda one: one.outcome),
        "```",
        "",
        *(f"- not kept: {one.dtype} from {one.producer} to {one.consumer}: {one.reason}" for one in lost),
        "",
        "Why crossings copy, in the words of the first refusal:",
        "",
        "| pairs | reason |",
        "|---|---|",
        *copied(found),
        "",
        "What the direct way does not do, and the framework's row does: `in` is from the framework, `out` is to it.",
        "",
        "| framework | | formats | what the direct way answers |",
        "|---|---|---|---|",
        *faults(state),
    ]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines))


def main() -> None:
    """Rewrite this environment's section of the page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--child", nargs=4, help=argparse.SUPPRESS)
    parser.add_argument("--only", nargs="+", choices=list(LETTERS), help="Print the section of these, write nothing.")
    options = parser.parse_args()
    if options.child:
        child(*options.child)
        return
    names = options.only or [row.name for row in frameworks.ROWS if report.installed_version(row) is not None]
    text = section(names)
    if options.only:
        print(text)
        return
    label = "numpy-" + ".".join(np.__version__.split(".")[:2])
    page = PAGE.read_text()
    start, end = (re.escape(f"<!-- matrix:{label}:{side} -->") for side in ("start", "end"))
    pattern = re.compile(rf"({start}\n).*?({end})", re.S)
    if not pattern.search(page):
        sys.exit(f"{PAGE} has no section {label}")
    PAGE.write_text(pattern.sub(lambda match: match[1] + text + "\n" + match[2], page))


if __name__ == "__main__":
    main()
