"""Compare two checkouts: our rows of benches/*.py, by the package of each, in turns; over 1, this one is faster.

    python tools/compare_trees.py BASE [BENCH ...] [--rows REGEX] [--threads 1] [--repeats 3] [--rounds 9]

BASE is another checkout, the head is this one; interpreter and other packages are those that run the tool. Both run the
head's benches where the base's package can, else each its own. A row is compared where both name it alike: by the
table, the parameters of the bench's functions, the variables of its loops, and the call. Other libraries' are left out.
A repeat is a process for either tree, side by side, of which one works at a time: a turn of each in every round, in
random order. A turn is the least of three samples, in time of the process where there is one thread; a repeat gives the
quotient of the trees' medians. Memory is placed anew in each process, which moves single rows by a tenth: believe what
stays with more repeats.
"""

from __future__ import annotations

import argparse
import ast
import functools
import importlib
import inspect
import json
import math
import os
import pathlib
import random
import re
import statistics
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import FrameType, ModuleType
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parent.parent
PEERS = re.compile(r"(torch|numpy|openblas|onnx ?runtime|numkong|cuda|read|write|copy|floor|fresh|nothing|compiled|peer"
                   r"|grouped_mm|loop of)", re.IGNORECASE)  # fmt: skip
# A sample is as many calls as take this many seconds. Of a call that takes longer than the second a turn is one sample,
# and so many rounds do.
SAMPLE, LONG, FEWER_ROUNDS = 1e-3, 0.1, 3
# Turns that do not count: compiled code comes after the first calls, from processes beside.
WARMING = 2
FAILED = '{"rows": [], "wrong": ["the process ended"]}'


# --- What runs in the process of a tree ---


@functools.cache
def loops(file: str) -> list[tuple[int, int, list[str]]]:
    """First line, last line and variables of each `for` of a file."""
    found = [node for node in ast.walk(ast.parse(pathlib.Path(file).read_text())) if isinstance(node, ast.For)]
    names = [[part.id for part in ast.walk(node.target) if isinstance(part, ast.Name)] for node in found]
    return sorted((node.lineno, node.end_lineno or 0, each) for node, each in zip(found, names, strict=True))


def facts(frame: FrameType) -> dict[str, object]:
    """Parameters of a frame's function and of those around it, and variables of the loops around its line."""
    code = frame.f_code
    names = [*code.co_freevars, *inspect.getargs(code).args]
    for first, last, variables in loops(code.co_filename):
        names += variables if code.co_firstlineno <= first <= frame.f_lineno <= last else []
    return {name: frame.f_locals[name] for name in names if name in frame.f_locals}


def word(value: object) -> str:
    """A fact as a row is named by it; of what has no name, nothing."""
    kind = type(value)
    if kind in (str, int) or kind.__name__ == "dtype" or "__str__" in vars(kind):
        return "" if str(value).startswith("<") else str(value)
    return kind.__name__ if kind.__module__.startswith("torch.nn") else ""


def named(frame: FrameType | None, folder: pathlib.Path) -> tuple[str, set[object]]:
    """What names the rows of a measurement that starts in a frame, and how many threads are said to take part."""
    words: list[str] = []
    threads: set[object] = set()
    while frame is not None:
        found = facts(frame) if pathlib.Path(frame.f_code.co_filename).parent == folder else {}
        if found and "calls" not in inspect.getargs(frame.f_code).args:  # those measure for the frame above them
            threads |= {found.pop("threads")} if "threads" in found else set()
            words[:0] = map(word, found.values())
        if frame.f_code.co_name not in ("main", "part"):
            words[:0] = [frame.f_code.co_name] if found else []
        frame = frame.f_back
    return " ".join(filter(None, words)), threads


def sample(clock: Callable[[], float], call: Callable[[], object]) -> float:
    """Seconds of a call: the least of three samples, of one alone where it is long."""

    def seconds(count: int) -> float:
        began = clock()
        for _ in range(count):
            call()
        return (clock() - began) / count

    once = seconds(1)  # also brings back what the other process drove out of the caches
    if once > LONG:
        return once
    count = max(1, int(SAMPLE / max(seconds(1), 1e-9)))
    return min(seconds(count) for _ in range(3))


def first(call: Callable[[], Sequence[float]]) -> float:
    """The figure that counts of those that a call reports."""
    return call()[0]


class Turns:
    """Stands where a bench measures: notes which rows are there, and takes a turn of one when it is asked to."""

    def __init__(self, folder: pathlib.Path, threads: int, wanted: list[str] | None) -> None:
        self.folder, self.threads, self.wanted = folder, threads, wanted
        self.orders, self.answers = os.fdopen(os.dup(0)), os.fdopen(os.dup(1), "w")
        for stream in (0, 1):
            os.dup2(os.open(os.devnull, os.O_RDWR), stream)  # benches print, and start processes
        self.names: list[str] = []

    def tell(self, said: object) -> None:
        print(json.dumps(said), file=self.answers, flush=True)

    def measured(self, calls: Mapping[Any, Any], turn: Callable[[Any], float]) -> None:
        """Turns of the calls that are ours and wanted, by order, until the parent has enough of them."""
        where, threads = named(sys._getframe(2), self.folder)
        found: dict[str, Any] = {}
        for key, call in calls.items() if threads <= {self.threads} else ():
            each = key if isinstance(key, tuple) else (str(key),)
            name = " ".join([where, *each]).strip()
            if not PEERS.match(each[-1]):
                name += f" #{self.names.count(name) + 1}" if name in self.names else ""
                self.names.append(name)
                found |= {name: call} if name in (self.wanted or ()) else {}
        if found:
            self.tell(list(found))
        for line in self.orders if found else ():
            name = json.loads(line)
            if name is None:
                return
            self.tell(turn(found[name]))

    def medians(self, calls: Mapping[Any, Any], *_: object, **__: object) -> dict[Any, float]:
        """In the place of `medians` and `bests`. The bench goes on with figures that mean nothing."""
        from samebits.bench.measure import clock

        self.measured(calls, functools.partial(sample, clock(self.threads)))
        return dict.fromkeys(calls, 1.0)

    def reported(self, calls: Mapping[Any, Any], columns: Sequence[str], *_: object) -> dict[Any, dict[str, float]]:
        """In the place of `reported`."""
        self.measured(calls, first)
        return {name: dict.fromkeys(columns, 1.0) for name in calls}


def tables(bench: ModuleType, threads: int) -> Iterator[Callable[[], object]]:
    """What makes a bench's tables in this process."""
    if hasattr(bench, "PARTS"):
        from samebits.codegen import isa
        from samebits.ops import memo

        memo.compile_known()
        here = {row.name for row in isa.ROWS if row.available}
        for part in bench.PARTS:
            if part.threads == threads and part.isa in here:
                yield functools.partial(part.part, part.isa, part.threads)
    else:
        yield functools.partial(bench.by_threads, threads) if hasattr(bench, "by_threads") else bench.main


def serve(path: pathlib.Path, threads: int, wanted: list[str] | None) -> None:
    """Run a bench up to each of its measurements; at the end tell all rows, and what went wrong."""
    from samebits.bench import measure

    turns, wrong = Turns(path.parent, threads, wanted), []
    stands = {"medians": turns.medians, "bests": turns.medians, "reported": turns.reported}
    stands |= {"limit": lambda *_: None, "rate_of_registers": lambda *_, **__: None}
    sys.path[0], sys.argv = str(path.parent), [str(path)]
    measure.medians = turns.medians
    try:
        bench = importlib.import_module(path.stem)
        for module in list(sys.modules.values()):
            if pathlib.Path(getattr(module, "__file__", None) or "/").parent == path.parent:
                vars(module).update({name: put for name, put in stands.items() if hasattr(module, name)})
        for table in tables(bench, threads):
            try:
                table()
            except Exception as error:
                wrong.append(traceback.format_exception_only(error)[-1].strip())
    except Exception as error:
        wrong.append(traceback.format_exception_only(error)[-1].strip())
    turns.tell({"rows": turns.names, "wrong": wrong})


# --- What asks them ---


class Tree:
    """A process of a tree that runs a bench."""

    def __init__(self, tree: pathlib.Path, path: pathlib.Path, threads: int, wanted: Sequence[str] | None) -> None:
        command = [sys.executable, __file__, "--serve", json.dumps([str(path), threads, wanted])]
        single = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), str(threads))
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
            env=os.environ | single | {"PYTHONPATH": str(tree / "src")},
        )  # fmt: skip

    def hear(self) -> Any:
        assert self.process.stdout is not None
        said = json.loads(self.process.stdout.readline() or FAILED)
        if isinstance(said, dict):
            self.process.communicate()  # it has no more to say
        return said

    def turn(self, name: str | None) -> float:
        """A turn of a row; None: of no more of this table."""
        assert self.process.stdin is not None
        print(json.dumps(name), file=self.process.stdin, flush=True)
        return 0.0 if name is None else float(self.hear())


def common(base: pathlib.Path, name: str, threads: int) -> tuple[pathlib.Path, list[str], list[str]]:
    """The file that the base runs, the one with more rows of the head's, these rows, and what is not comparable."""
    own, other = (tree / "benches" / f"{name}.py" for tree in (ROOT, base))
    head = Tree(ROOT, own, threads, None)
    tries = {path: Tree(base, path, threads, None) for path in (own, other) if path.exists()}
    mine, found = head.hear(), {path: tree.hear() for path, tree in tries.items()}
    path = max(found, key=lambda each: len({*found[each]["rows"]} & {*mine["rows"]}))
    rows = [row for row in mine["rows"] if row in found[path]["rows"]]
    left = [row for row in mine["rows"] if row not in rows]
    why = [f"(head: {text})" for text in mine["wrong"]] + [f"(base: {text})" for text in found[path]["wrong"]]
    return path, rows, left + (why if left or mine["wrong"] else [])


def repeat(trees: Sequence[Tree], rounds: int) -> Iterator[tuple[str, tuple[float, float]]]:
    """Each row with its seconds in either tree, medians of rounds."""
    while isinstance(names := trees[0].hear(), list):
        if (other := trees[1].hear()) != names:
            raise RuntimeError(f"the trees are at different rows: {names} and {other}")
        for name in names:
            taken: tuple[list[float], list[float]] = ([], [])
            while len(taken[0]) < WARMING + rounds:
                for which in random.sample((0, 1), 2):
                    taken[which].append(trees[which].turn(name))
                if taken[0][0] > LONG and len(taken[0]) == WARMING + FEWER_ROUNDS:
                    break
            base, head = (statistics.median(each[WARMING:]) for each in taken)
            yield name, (base, head)
        for tree in trees:
            tree.turn(None)
    trees[1].hear()


def report(found: Mapping[str, Sequence[tuple[float, float]]]) -> str:
    """A line for each row, the geometric mean, and the rows that are behind."""
    lines, middles = [], {}
    for row, pairs in found.items():
        ratios, head = [base / head for base, head in pairs], statistics.median(head for _, head in pairs)
        middles[row] = statistics.median(ratios)
        lines.append(f"{middles[row]:6.3f}  {min(ratios):.3f} .. {max(ratios):.3f}  {1e6 * head:12.2f} us  {row}")
    mean = math.exp(statistics.fmean(map(math.log, middles.values()))) if middles else math.nan
    behind = [f"{ratio:6.3f}  {row}" for row, ratio in sorted(middles.items(), key=lambda x: x[1]) if ratio < 0.95]
    return "\n".join([*lines, f"{len(lines)} rows, geometric mean {mean:.3f}, under 0.95: {len(behind)}", *behind])


def main() -> None:
    """Compare and print."""
    if sys.argv[1:2] == ["--serve"]:
        path, threads, wanted = json.loads(sys.argv[2])
        serve(pathlib.Path(path), threads, wanted)
        return
    names = sorted(path.stem for path in (ROOT / "benches").glob("[!_]*.py"))
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("base", type=pathlib.Path)
    parser.add_argument("benches", nargs="*", metavar="BENCH", help=", ".join(names))
    parser.add_argument("--rows", default="", help="only rows whose name has this regular expression")
    for option, value in (("threads", 1), ("repeats", 3), ("rounds", 9)):
        parser.add_argument(f"--{option}", type=int, default=value)
    given = parser.parse_args()
    base, found = given.base.resolve(), dict[str, list[tuple[float, float]]]()
    for name in given.benches or names:
        path, rows, left = common(base, name, given.threads)
        wanted = [row for row in rows if re.search(given.rows, row)]
        for _ in range(given.repeats if wanted else 0):
            ways = ((base, path), (ROOT, ROOT / "benches" / f"{name}.py"))
            trees = [Tree(tree, file, given.threads, wanted) for tree, file in ways]
            for row, pair in repeat(trees, given.rounds):
                found.setdefault(f"{name}: {row}", []).append(pair)
        print(*(f"not comparable  {name}: {row}" for row in left), sep="\n", end="\n" if left else "", flush=True)
    print(report(found))


if __name__ == "__main__":
    main()
