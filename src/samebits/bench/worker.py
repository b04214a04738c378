"""Rankings in a process of their own, because OpenBLAS and OpenMP read their thread counts once.

`ranked` starts `python -m samebits.bench.worker` and reads its lines: JSON, `{"doing": ...}` or `{"ranking": ...}`.
"""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from samebits import driver, dtypes, errors
from samebits.bench import measure, peers, rank
from samebits.bench.rank import Entry, Ranking
from samebits.bench.trial import Problem
from samebits.codegen import isa as isas


def ranked(
    problems: Sequence[Problem], isa: str, threads: int, against: Sequence[str], *, every: bool = False,
    progress: Callable[[str], None] = lambda done: None,
) -> list[Ranking]:  # fmt: skip
    """One ranking a problem.

    Raises:  what the process raised; NativeError if it ended without a word.
    """
    asked = {
        "problems": [[p.m, p.k, p.n, p.a.name, p.b.name, p.packed] for p in problems],
        "isa": isa, "threads": threads, "against": list(against), "every": every,
    }  # fmt: skip
    pools = dict.fromkeys(measure.POOLS, str(threads))
    made = list[Ranking]()
    # In a session of its own, so that an interrupt from a terminal reaches this process alone, which ends that one.
    process = driver.start_python(
        "samebits.bench.worker", (json.dumps(asked),), pools, stdout=subprocess.PIPE, start_new_session=True
    )
    assert process.stdout is not None
    try:
        for line in process.stdout:
            for key, value in json.loads(line).items():
                if key == "doing":
                    progress(value)
                elif key == "failed":
                    raise getattr(errors, value[0])(*value[1:])
                else:
                    made.append(restored(value))
    except BaseException:
        process.kill()
        raise
    finally:
        process.stdout.close()
        process.wait()
    if process.returncode:
        code = process.returncode
        ended = f"ended by {signal.Signals(-code).name}" if code < 0 else f"ended with {code}"
        raise errors.NativeError("bench", "measuring process", "", ended, "able to finish", "look at what it printed")
    return made


def restored(value: dict[str, Any]) -> Ranking:
    """A ranking from its plain values."""
    entries = {name: tuple(Entry(**entry) for entry in value[name]) for name in ("candidates", "peers")}
    return Ranking(**(value | entries))


def answers(asked: dict[str, Any]) -> Iterator[Ranking]:
    """The rankings asked for, measured in this process."""
    isa = isas.named(asked["isa"])
    for m, k, n, a, b, packed in asked["problems"]:
        yield rank.rank(
            Problem(m, k, n, dtypes.of(a), dtypes.of(b), packed), isa, asked["threads"], peers.named(asked["against"]),
            every=asked["every"], progress=lambda done: _say("doing", done),
        )  # fmt: skip


def _say(key: str, value: object) -> None:
    print(json.dumps({key: value}), flush=True)


def main() -> None:
    """Answer the one argument, as long as somebody listens."""
    try:
        _answer()
    except BrokenPipeError:
        os._exit(1)  # at its end Python would try once more to write what is left


def _answer() -> None:
    """A line for each ranking, or one that says why there is none."""
    try:
        for ranking in answers(json.loads(sys.argv[1])):
            _say("ranking", dataclasses.asdict(ranking))
    except errors.SamebitsError as error:
        _say("failed", [type(error).__name__, *map(str, error.args)])
    except MemoryError as error:
        told = f"exhausted ({error})", "enough for the operands", "give smaller products"
        _say("failed", ["NativeError", "bench", "memory", "", *told])


if __name__ == "__main__":
    main()
