"""Make small mistakes in the package, one at a time, and see whether the tests notice: what survives wants a test.

    python tools/mutants.py                          100 mistakes, drawn by the commit's hash
    python tools/mutants.py --seed 7 --count 10 --only src/samebits/layout --stages mirror
    python tools/mutants.py --given                  the mistakes of tools/mutants_given.toml
    python tools/mutants.py --jobs 2 --seconds 3600 --resume mutants.jsonl     for an hour; again, to go on

Each mistake is made in a copy of the checkout, with uncommitted changes, and never here. Three stages of tests look
for it, each with what the ones before left over: `mirror`, the test modules named like the file (for want of them
those of the nearest folder); `room`, the test folder that mirrors the file's; `all`, every other test module, those
that import the file by the shortest way first. A stage ends with its first failure. Before, each test module runs
once without a mistake, when everything is compiled: it must pass, and what takes more than four times as long with a
mistake was killed by the clock.

A line is printed for each mistake, then a table by room. Exit code 1 means fewer killed or equivalent than `--floor`
percent, 2 that it could not be told. A mistake that provably changes nothing is written into
tools/mutants_equivalent.toml with the reason. The draw depends on the sources and the seed alone: after tests were
added, `--seed` as before with `--resume` and `--retry` runs what survived once more.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import hashlib
import json
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from typing import Any

from checkout_copy import Clock, Copy, Outcome, OutOfTime
from mistakes import Mistake, Refused, draw, equivalents, given
from nearest_tests import PACKAGE, STAGES, NearestTests, inner

ROOT = pathlib.Path(__file__).parent.parent
GIVEN, EQUIVALENT = "tools/mutants_given.toml", "tools/mutants_equivalent.toml"
# A stage may take so many times what its test modules took without a mistake, and so many seconds more.
_TIMES, _MORE_S = 4, 60
# A test module that takes longer than this without a mistake hangs.
_LONGEST_S = 3600


def sources(root: pathlib.Path) -> dict[str, bytes]:
    """The text of every file of the checkout that is under version control or could be put there, by its path."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    if listed.returncode:
        raise Refused(f"git ls-files says: {listed.stderr.strip()}; run this in a checkout")
    paths = sorted(set(listed.stdout.split("\0")) - {""})
    return {path: (root / path).read_bytes() for path in paths if (root / path).is_file()}


def room(path: str) -> str:
    """The folder of a source file within the package, or its name where it is a room of its own."""
    place = inner(path)
    return place.parent.as_posix() if len(place.parts) > 1 else place.stem


class Log:
    """Results as lines of JSON, in a file or only here: of each mistake and stage, and of each test module without one.

    What a module took without a mistake holds for the checkout as it is, results for the package's sources.
    """

    def __init__(self, path: pathlib.Path | None, texts: Mapping[str, bytes], retry: bool) -> None:
        self._lock, self._path, self._checkout = threading.Lock(), path, _digest(texts)
        package = _digest({name: text for name, text in texts.items() if name.startswith(f"{PACKAGE}/")})
        self.results: dict[tuple[str, str], Outcome] = {}
        self.lasted: dict[str, float] = {}
        lines = [json.loads(line) for line in path.read_text().splitlines()] if path and path.exists() else []
        if not lines:
            self._write({"sources": package})
        elif lines[0] != {"sources": package}:
            raise Refused(f"{path} is of other sources; name a new file")
        for row in lines[1:]:
            if "mistake" in row:
                self.results[row["mistake"], row["stage"]] = Outcome(row["test"], row["seconds"])
            elif row["checkout"] == self._checkout:
                self.lasted[row["module"]] = row["seconds"]
        if retry:
            killed = {mistake for (mistake, _), outcome in self.results.items() if outcome.test}
            self.results = {key: outcome for key, outcome in self.results.items() if key[0] in killed}

    def add(self, mistake: str, stage: str, outcome: Outcome) -> None:
        """What became of a mistake in a stage."""
        with self._lock:
            self.results[mistake, stage] = outcome
            self._write({"mistake": mistake, "stage": stage, "test": outcome.test, "seconds": outcome.seconds})

    def passes(self, module: str, seconds: float) -> None:
        """A test module passes without a mistake."""
        with self._lock:
            self.lasted[module] = seconds
            self._write({"module": module, "seconds": seconds, "checkout": self._checkout})

    def _write(self, row: Mapping[str, object]) -> None:
        if self._path is not None:
            with self._path.open("a") as file:
                file.write(json.dumps(row) + "\n")


def _digest(texts: Mapping[str, bytes]) -> str:
    return hashlib.sha256(repr(sorted(texts.items())).encode()).hexdigest()


class Trial:
    """The mistakes, the copies that they are made in, and what became of each."""

    def __init__(
        self, found: Sequence[Mistake], texts: Mapping[str, bytes], known: Mapping[tuple[str, str, str], str],
        stages: Sequence[str], log: Log,
    ) -> None:  # fmt: skip
        self.found, self.texts, self.stages, self.log = found, texts, stages, log
        nearest = NearestTests(texts)
        self._modules = {path: nearest.stages(path, stages) for path in {x.path for x in found}}
        self._known = known

    def name(self, mistake: Mistake) -> str:
        """What tells a mistake from others: its line and what is written there."""
        text = self.texts[mistake.path]
        return f"{mistake.path}:{mistake.line(text)} {mistake.shown(text)}"

    def verdict(self, mistake: Mistake) -> tuple[str, str, float]:
        """(what became of it, by which test or why, seconds)"""
        reason = self._known.get((mistake.path, *mistake.lines(self.texts[mistake.path])))
        if reason is not None:
            return "equivalent", reason, 0.0
        outcomes = [self.log.results.get((self.name(mistake), stage)) for stage in self.stages]
        seconds = sum(outcome.seconds for outcome in outcomes if outcome)
        for stage, outcome in zip(self.stages, outcomes, strict=True):
            if outcome and outcome.test:
                return "killed", f"{stage}: {outcome.test}", seconds
        return ("not run", "", seconds) if None in outcomes else ("survived", ", ".join(self.stages), seconds)

    def line(self, mistake: Mistake) -> str:
        """A mistake and what became of it."""
        verdict, why, seconds = self.verdict(mistake)
        name = f" ({mistake.name})" if mistake.name else ""
        return f"{verdict:10} {self.name(mistake).removeprefix(f'{PACKAGE}/')}{name}; {seconds:.0f} s; {why}"

    def run(self, folder: pathlib.Path, jobs: int, clock: Clock, root: pathlib.Path) -> None:
        """Run the stages one after the other for all mistakes, so that the long one meets only what is left."""
        objects, copies = folder / "objects", SimpleQueue[Copy]()
        objects.mkdir()
        for job in range(jobs):
            (folder / str(job)).mkdir()
            copies.put(Copy(folder / str(job), self.texts, root, objects))

        def measure(module: str) -> None:
            copy = copies.get()
            try:
                outcome = copy.run([module], clock, _LONGEST_S)
            finally:
                copies.put(copy)
            if outcome.test:
                raise Refused(f"{outcome.test} fails without a mistake; mend it first")
            self.log.passes(module, outcome.seconds)
            print(f"passes     {module}; {outcome.seconds:.0f} s", flush=True)

        def attempt(mistake: Mistake, stage: str) -> None:
            modules = self._modules[mistake.path][stage]
            limit = _MORE_S + _TIMES * sum(self.log.lasted[module] for module in modules)
            copy = copies.get()
            try:
                outcome = copy.run(modules, clock, limit, mistake) if modules else Outcome(None, 0.0)
            finally:
                copies.put(copy)
            self.log.add(self.name(mistake), stage, outcome)
            if outcome.test or stage == self.stages[-1]:
                print(self.line(mistake), flush=True)

        for mistake in self.found:
            if self.verdict(mistake)[0] != "not run":
                print(self.line(mistake), flush=True)
        for stage in self.stages:
            left = [x for x in self.found if self.verdict(x)[0] == "not run"]
            left = [x for x in left if (self.name(x), stage) not in self.log.results]
            asked = {module for x in left for module in self._modules[x.path][stage]} - self.log.lasted.keys()
            print(f"-- {stage}: {len(left)} mistakes, {len(asked)} test modules to run without one", flush=True)
            for work in ([(measure, (x,)) for x in sorted(asked)], [(attempt, (x, stage)) for x in left]):
                _each(work, jobs, clock)


def _each(work: Iterable[tuple[Callable[..., None], tuple[Any, ...]]], jobs: int, clock: Clock) -> None:
    """Do all of it in so many threads; the first that fails ends the others."""
    pool = ThreadPoolExecutor(jobs)
    try:
        for future in [pool.submit(function, *arguments) for function, arguments in work]:
            future.result()
    except BaseException:
        clock.stop()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def table(rows: Sequence[tuple[str, str]]) -> tuple[str, float]:
    """(room, verdict) of each mistake as a table by room, and how many of a hundred were killed or are equivalent."""
    columns = ("killed", "equivalent", "survived", "not run")
    counts: dict[str, collections.Counter[str]] = {}
    for place, verdict in [*sorted(rows), *(("all", verdict) for _, verdict in rows)]:
        counts.setdefault(place, collections.Counter())[verdict] += 1
    lines = [f"{'room':20}{'drawn':>8}" + "".join(f"{column:>12}" for column in columns) + f"{'percent':>9}"]
    share = 100.0
    for place, found in counts.items():
        share = 100 * (found["killed"] + found["equivalent"]) / found.total()
        numbers = "".join(f"{found[column]:12}" for column in columns)
        lines.append(f"{place:20}{found.total():8}{numbers}{share:9.1f}")
    return "\n".join(lines), share


def _arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--count", type=int, default=100, help="mistakes to draw (100)")
    parser.add_argument("--seed", help="any text; default: the commit's hash")
    parser.add_argument(
        "--only", action="append", metavar="PATH", help="mistakes in this file or folder alone (repeatable)"
    )
    parser.add_argument("--given", nargs="?", const=GIVEN, metavar="FILE", help=f"do not draw, take these ({GIVEN})")
    parser.add_argument("--name", action="append", help="of those given, only what has this in its name (repeatable)")
    parser.add_argument("--stages", default=",".join(STAGES), help=f"some of {','.join(STAGES)}")
    parser.add_argument("--jobs", type=int, default=1, help="mistakes that are tried at a time, each in its own copy")
    parser.add_argument("--seconds", type=float, help="end after so many, whatever is left")
    parser.add_argument("--resume", type=pathlib.Path, metavar="FILE", help="keep results there, and take those there")
    parser.add_argument("--retry", action="store_true", help="with --resume: run what survived again")
    parser.add_argument("--floor", type=float, metavar="PERCENT", help="exit with 1 if fewer are killed or equivalent")
    parser.add_argument("--list", action="store_true", help="print the mistakes and run nothing")
    asked = parser.parse_args(arguments)
    asked.stages = [stage for stage in STAGES if stage in asked.stages.split(",")]
    if not asked.stages or asked.jobs < 1 or asked.count < 1:
        parser.error(f"--stages are some of {','.join(STAGES)}; --jobs and --count are at least 1")
    return asked


def _chosen(asked: argparse.Namespace, texts: Mapping[str, bytes], root: pathlib.Path) -> list[Mistake]:
    """The mistakes that the command asks for; a line says where they are from."""
    package = {x: text for x, text in texts.items() if x.startswith(f"{PACKAGE}/") and x.endswith(".py")}
    for path in asked.only or ():
        if not any(_is_under(x, path) for x in package):
            raise Refused(f"--only {path}: no source is there; name a path such as {PACKAGE}/layout")
    if asked.only:
        package = {x: text for x, text in package.items() if any(_is_under(x, path) for path in asked.only)}
    if asked.given:
        found = given((root / asked.given).read_text(), texts)
        print(f"{len(found)} mistakes of {asked.given}")
        found = [x for x in found if not asked.only or x.path in package]
        return [x for x in found if not asked.name or any(part in x.name for part in asked.name)]
    seed = asked.seed
    if seed is None:
        command = ["git", "rev-parse", "HEAD"]
        seed = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True).stdout.strip()
    found = draw(package, seed, asked.count)
    print(f"{len(found)} mistakes drawn by seed {seed}")
    return found


def _is_under(path: str, folder: str) -> bool:
    return pathlib.PurePosixPath(path).is_relative_to(folder)


def main(arguments: Sequence[str] | None = None, root: pathlib.Path = ROOT) -> int:
    """Run the command: 0, 1 below the floor, 2 where nothing could be told."""
    asked = _arguments(arguments)
    clock = Clock(asked.seconds)
    try:
        texts = sources(root)
        known = equivalents((root / EQUIVALENT).read_text(), texts)
        trial = Trial(_chosen(asked, texts, root), texts, known, asked.stages, Log(asked.resume, texts, asked.retry))
        if asked.list:
            for mistake in trial.found:
                print(trial.name(mistake) + (f" ({mistake.name})" if mistake.name else ""))
            return 0
        with (
            tempfile.TemporaryDirectory(prefix="mutants-") as folder,
            contextlib.suppress(OutOfTime, KeyboardInterrupt),  # what is known is shown
        ):
            trial.run(pathlib.Path(folder).resolve(), asked.jobs, clock, root)
    except Refused as reason:
        print(f"mutants: {reason}", file=sys.stderr)
        return 2
    verdicts = [(room(x.path), trial.verdict(x)[0]) for x in trial.found]
    text, share = table(verdicts)
    survivors = [x for x in trial.found if trial.verdict(x)[0] == "survived"]
    print(f"-- {len(survivors)} survived", *map(trial.line, survivors), text, sep="\n")
    return int(asked.floor is not None and share < asked.floor)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that nothing is left running
    sys.exit(main())
